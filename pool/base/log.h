/*
 * Logging: one line an event, to stderr, "2026-11-21T05:00:00.123Z level text".
 *
 * Thread: any (one write(2) a line). Expected outcomes (a miss, a retry, a
 * peer that went away in order) are counters, not log lines.
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
 * Text longer than about 1 KiB is cut ("..." shows it); control characters,
 * which names from outside may hold, are printed as '?'. errno is kept.
 */
void pool_log(enum pool_log_level level, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

#define pool_error(...) pool_log(POOL_LOG_ERROR, __VA_ARGS__)
#define pool_warn(...) pool_log(POOL_LOG_WARN, __VA_ARGS__)
#define pool_info(...) pool_log(POOL_LOG_INFO, __VA_ARGS__)
#define pool_debug(...) pool_log(POOL_LOG_DEBUG, __VA_ARGS__)

/*
 * For what others may cause as often as they like: at most one line a second
 * from this call site (`limit_` is the site's own memory), what was left out is
 * counted in its next line and in pool_log_left_out. paced: of which many may
 * come at once and each is of interest, as when all nodes join: up to
 * POOL_LOG_BURST lines more, which are had again one a second.
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

/* Lines left out, of all sites. */
extern struct pool_counter pool_log_left_out;

struct pool_log_limit {
	uint64_t due_ms; /* when lines will have been said at one a second */
	uint64_t dropped;
	unsigned int burst;
};
void pool_log_limited(struct pool_log_limit *limit, enum pool_log_level level,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
