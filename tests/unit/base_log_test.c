#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"

static uint64_t now_ns;

static uint64_t fake_now(void)
{
	return now_ns;
}

static uint64_t fake_wall(void)
{
	return UINT64_C(1795237200123) * 1000000u; /* 2026-11-21T05:00:00.123 */
}

static void fake_random(void *buf, size_t n)
{
	memset(buf, 0, n);
}

static const struct pool_clock fake = { fake_now, fake_wall, fake_random };

/* stderr goes into a pipe while a test looks at it. */
static int saved_stderr, pipe_fd[2];

static void capture(void)
{
	assert_int_equal(pipe(pipe_fd), 0);
	saved_stderr = dup(STDERR_FILENO);
	assert_true(saved_stderr >= 0);
	assert_true(dup2(pipe_fd[1], STDERR_FILENO) >= 0);
	close(pipe_fd[1]);
}

static const char *captured(void)
{
	static char buf[8192];
	ssize_t n;

	assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
	close(saved_stderr);
	n = read(pipe_fd[0], buf, sizeof(buf) - 1);
	assert_true(n >= 0);
	buf[n] = 0;
	close(pipe_fd[0]);
	return buf;
}

static void a_line_has_time_level_and_text(void **state)
{
	(void)state;
	capture();
	pool_error("node %s is gone: %d", "n1", 7);
	assert_string_equal(captured(), "2026-11-21T05:00:00.123Z error node "
					"n1 is gone: 7\n");
}

static void levels_above_the_limit_are_silent(void **state)
{
	const char *text;

	(void)state;
	capture();
	pool_debug("no");
	pool_info("yes");
	pool_log_set_level(POOL_LOG_WARN);
	pool_info("no");
	pool_warn("yes");
	pool_log_set_level(POOL_LOG_DEBUG);
	pool_debug("yes");
	pool_log_set_level(POOL_LOG_INFO);
	text = captured();
	assert_null(strstr(text, "no"));
	assert_non_null(strstr(text, "info yes\n"));
	assert_non_null(strstr(text, "warn yes\n"));
	assert_non_null(strstr(text, "debug yes\n"));
}

static void a_name_with_control_characters_stays_one_line(void **state)
{
	(void)state;
	capture();
	pool_info("name '%s'", "a\nb\033[2Jc\177\303\244");
	assert_string_equal(captured(), "2026-11-21T05:00:00.123Z info name "
					"'a?b?[2Jc?\303\244'\n");
}

static void a_long_line_is_cut_and_shows_it(void **state)
{
	char big[5000];
	const char *text;

	(void)state;
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = 0;
	capture();
	pool_info("%s", big);
	text = captured();
	assert_in_range(strlen(text), 1000, 1200);
	assert_string_equal(text + strlen(text) - 5, "x...\n");
}

static void errno_is_kept_even_if_nobody_listens(void **state)
{
	(void)state;
	capture();
	close(STDERR_FILENO);
	errno = EXDEV;
	pool_info("text");
	assert_int_equal(errno, EXDEV);
	assert_string_equal(captured(), "");
}

static void warn_at_one_place(int i)
{
	pool_warn_limited("event %d", i);
}

static void a_limited_site_logs_once_a_second_and_counts(void **state)
{
	(void)state;
	capture();
	now_ns = 0;
	for (int i = 0; i < 100; i++)
		warn_at_one_place(i);
	now_ns = 999999999;
	warn_at_one_place(100);
	now_ns = 1000000000;
	warn_at_one_place(101);
	now_ns = 3000000000;
	warn_at_one_place(102);
	assert_string_equal(
		captured(),
		"2026-11-21T05:00:00.123Z warn event 0\n"
		"2026-11-21T05:00:00.123Z warn event 101 (100 more left out)\n"
		"2026-11-21T05:00:00.123Z warn event 102\n");
}

static void info_at_one_place(int i)
{
	pool_info_paced("event %d", i);
}

static unsigned int lines_of(const char *text)
{
	unsigned int n = 0;

	for (; *text; text++)
		n += *text == '\n';
	return n;
}

static void a_paced_site_logs_a_burst_and_then_once_a_second(void **state)
{
	uint64_t before = pool_counter_value(&pool_log_left_out);
	const char *text;

	(void)state;
	now_ns = 5000000000;
	capture();
	for (int i = 0; i < 1000; i++)
		info_at_one_place(i);
	text = captured();
	assert_int_equal(POOL_LOG_BURST + 1, lines_of(text));
	assert_null(strstr(text, "left out"));
	assert_int_equal(1000 - POOL_LOG_BURST - 1,
			 pool_counter_value(&pool_log_left_out) - before);
	capture();
	for (int s = 0; s < 3; s++) {
		now_ns += 1000000000;
		for (int i = 0; i < 10; i++)
			info_at_one_place(i);
	}
	text = captured();
	assert_int_equal(3, lines_of(text));
	assert_non_null(strstr(text, " (935 more left out)\n"));
	assert_non_null(strstr(text, " (9 more left out)\n"));
	/* After half an hour without lines, the burst is no larger. */
	capture();
	now_ns += 1800 * UINT64_C(1000000000);
	for (int i = 0; i < 1000; i++)
		info_at_one_place(i);
	assert_int_equal(POOL_LOG_BURST + 1, lines_of(captured()));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_line_has_time_level_and_text),
		cmocka_unit_test(levels_above_the_limit_are_silent),
		cmocka_unit_test(a_name_with_control_characters_stays_one_line),
		cmocka_unit_test(a_long_line_is_cut_and_shows_it),
		cmocka_unit_test(errno_is_kept_even_if_nobody_listens),
		cmocka_unit_test(a_limited_site_logs_once_a_second_and_counts),
		cmocka_unit_test(
			a_paced_site_logs_a_burst_and_then_once_a_second),
	};

	alarm(30);
	pool_clock_set(&fake);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
