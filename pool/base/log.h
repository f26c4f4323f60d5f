/*
 * Logging to stderr: one line per event, "2026-11-21T05:00:00.123Z level text".
 *
 * Thread: any (one write(2) per line). Expected outcomes (a miss, a retry, an
 * orderly close by a peer) are counters, not log lines.
 */
#ifndef POOL_BASE_LOG_H
#define POOL_BASE_LOG_H

#include <stdint.h>

#include "pool/base/metric.h"

enum pool_log_level {
	POOL_LOG_ERROR,
	POOL_LOG_WARN,
	POOL_LOG_INFO,
	POOL_LOG_DEBUG,
};

/* Default POOL_LOG_INFO. */
void pool_log_set_level(enum pool_log_level level);

/*
 * Text beyond about 1 KiB is truncated and ends in "...". Control characters,
 * which foreign names may contain, are printed as '?'. Preserves errno.
 */
void pool_log(enum pool_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define pool_error(...) pool_log(POOL_LOG_ERROR, __VA_ARGS__)
#define pool_warn(...) pool_log(POOL_LOG_WARN, __VA_ARGS__)
#define pool_info(...) pool_log(POOL_LOG_INFO, __VA_ARGS__)
#define pool_debug(...) pool_log(POOL_LOG_DEBUG, __VA_ARGS__)

/*
 * Rate limiting, for messages that peers can cause at will: at most one line a
 * second per call site (`limit_` is its state). Suppressed lines are counted in
 * the site's next line and in pool_log_left_out.
 *
 * _paced: also allows a burst of POOL_LOG_BURST lines, refilled at one a
 * second. For events that come in bursts and each matter, such as nodes that
 * join.
 */
#define pool_error_limited(...) pool_limited_(POOL_LOG_ERROR, 0, __VA_ARGS__)
#define pool_warn_limited(...) pool_limited_(POOL_LOG_WARN, 0, __VA_ARGS__)
#define pool_info_limited(...) pool_limited_(POOL_LOG_INFO, 0, __VA_ARGS__)
#define pool_warn_paced(...) \
	pool_limited_(POOL_LOG_WARN, POOL_LOG_BURST, __VA_ARGS__)
#define pool_info_paced(...) \
	pool_limited_(POOL_LOG_INFO, POOL_LOG_BURST, __VA_ARGS__)
#define POOL_LOG_BURST 64u
#define pool_limited_(level, burst_, ...)                                    \
	do {                                                                 \
		static struct pool_log_limit limit_ = { .burst = (burst_) }; \
		pool_log_limited(&limit_, level, __VA_ARGS__);               \
	} while (0)

/* Suppressed lines of all sites. */
extern struct pool_counter pool_log_left_out;

struct pool_log_limit {
	uint64_t due_ms; /* from then on the whole burst is available */
	uint64_t dropped; /* since the last line */
	unsigned int burst;
};
void pool_log_limited(struct pool_log_limit *limit, enum pool_log_level level,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
