/*
 * Logging: one line an event, to stderr, "2026-11-21T05:00:00.123Z level text".
 *
 * Thread: any (one write(2) a line). Expected outcomes (a miss, a retry, a
 * peer that went away in order) are counters, not log lines.
 */
#ifndef POOL_BASE_LOG_H
#define POOL_BASE_LOG_H

#include <stdint.h>

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
 * At most one line a second from this call site (`limit_` is the site's own
 * memory); what was left out is counted in the next line.
 */
#define pool_warn_limited(...)                                     \
	do {                                                       \
		static struct pool_log_limit limit_;               \
		pool_log_limited(&limit_, POOL_LOG_WARN, __VA_ARGS__); \
	} while (0)

struct pool_log_limit {
	uint64_t last_ms;
	uint64_t dropped;
};
void pool_log_limited(struct pool_log_limit *limit, enum pool_log_level level,
		      const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

#endif
