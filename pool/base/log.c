#include "pool/base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"

#define LINE_MAX_LEN 1152 /* head, 1 KiB of text, count of dropped lines */
#define TEXT_END 1088

struct pool_counter pool_log_left_out;

static _Atomic int max_level = POOL_LOG_INFO;

static const char *const level_names[] = {
	[POOL_LOG_ERROR] = "error",
	[POOL_LOG_WARN] = "warn",
	[POOL_LOG_INFO] = "info",
	[POOL_LOG_DEBUG] = "debug",
};

void pool_log_set_level(enum pool_log_level level)
{
	atomic_store_explicit(&max_level, (int)level, memory_order_relaxed);
}

static bool enabled(enum pool_log_level level)
{
	return (int)level <=
	       atomic_load_explicit(&max_level, memory_order_relaxed);
}

static size_t put_head(char *line, enum pool_log_level level)
{
	uint64_t ns = pool_wall_ns();
	time_t sec = (time_t)(ns / 1000000000u);
	unsigned int ms = (unsigned int)(ns / 1000000u % 1000u);
	struct tm tm;
	size_t n;

	gmtime_r(&sec, &tm);
	n = strftime(line, TEXT_END, "%Y-%m-%dT%H:%M:%S", &tm);
	n += (size_t)snprintf(line + n, TEXT_END - n, ".%03uZ %s ", ms,
			      level_names[level]);
	return n;
}

/* A name with a newline must not look like another log line. */
static void blank_controls(char *s, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c < 0x20 || c == 0x7f)
			s[i] = '?';
	}
}

static void write_line(const char *line, size_t n)
{
	while (write(STDERR_FILENO, line, n) < 0 && errno == EINTR)
		;
}

__attribute__((format(printf, 3, 0))) static void
emit(enum pool_log_level level, uint64_t dropped, const char *fmt, va_list ap)
{
	int saved = errno;
	char line[LINE_MAX_LEN];
	size_t head = put_head(line, level), n = head;
	int want = vsnprintf(line + n, TEXT_END - n, fmt, ap);

	if (want > 0)
		n += (size_t)want;
	if (n >= TEXT_END) {
		n = TEXT_END - 1;
		memcpy(line + n - 3, "...", 3);
	}
	blank_controls(line + head, n - head);
	if (dropped)
		n += (size_t)snprintf(line + n, sizeof(line) - n,
				      " (%llu more left out)",
				      (unsigned long long)dropped);
	line[n++] = '\n';
	write_line(line, n);
	errno = saved;
}

void pool_log(enum pool_log_level level, const char *fmt, ...)
{
	va_list ap;

	if (!enabled(level))
		return;
	va_start(ap, fmt);
	emit(level, 0, fmt, ap);
	va_end(ap);
}

/* True for one call a second and the burst; counts the others. due_ms advances
 * by a second for each line, and may be burst seconds in the future. */
static bool may_log(struct pool_log_limit *limit, uint64_t *ret_dropped)
{
	uint64_t now = pool_now_ms();
	uint64_t due = __atomic_load_n(&limit->due_ms, __ATOMIC_RELAXED);
	uint64_t from;

	do {
		from = due > now ? due : now;
		if (from - now > limit->burst * UINT64_C(1000)) {
			__atomic_fetch_add(&limit->dropped, 1,
					   __ATOMIC_RELAXED);
			pool_count(&pool_log_left_out);
			return false;
		}
	} while (!__atomic_compare_exchange_n(&limit->due_ms, &due, from + 1000,
					      false, __ATOMIC_RELAXED,
					      __ATOMIC_RELAXED));
	*ret_dropped = __atomic_exchange_n(&limit->dropped, 0,
					   __ATOMIC_RELAXED);
	return true;
}

void pool_log_limited(struct pool_log_limit *limit, enum pool_log_level level,
		      const char *fmt, ...)
{
	uint64_t dropped;
	va_list ap;

	if (!enabled(level) || !may_log(limit, &dropped))
		return;
	va_start(ap, fmt);
	emit(level, dropped, fmt, ap);
	va_end(ap);
}
