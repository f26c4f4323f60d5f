/*
 * Shared by all cmocka programs: the headers that must precede cmocka.h,
 * waiting, temporary directories, and T() for the list of tests. A file
 * includes this before anything else.
 *
 *   static int setup(void **state)
 *   {
 *           f->top = unit_dir_make("/tmp/pool_some_test");
 *           ...
 *           unit_run_until(&f->loop, f->opened);
 *   }
 *
 *   const struct CMUnitTest tests[] = {
 *           T(names_are_sentences),
 *   };
 *
 * Thread: the test's own. A failure here fails the test, as assert_true does,
 * which works only on this thread.
 */
#ifndef TESTS_UNIT_H
#define TESTS_UNIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

/* A test between the functions setup() and teardown() of its file. */
#define T(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

/* ---- waiting ---- */

/* The longest wait, in seconds. Shorter than the limit of tests/run, so that
 * the test says what it waited for. */
#define UNIT_WAIT_S 30

/*
 * Turn the loop until cond is true; fail the test with cond's text after
 * UNIT_WAIT_S. cond is judged before each turn: the loop does not turn if it is
 * true already, and not once more when it has become true.
 *
 * A turn sleeps until the loop has an event, so an event of the loop must make
 * cond true. The program ends if the loop sleeps too long.
 */
#define unit_run_until(loop, cond)                                      \
	do {                                                            \
		if (!unit_ran_until((loop), (cond), #cond))             \
			unit_timed_out(#cond);                     \
	} while (0)

/* The same for callers that clean up before the test fails: false after
 * UNIT_WAIT_S. text: cond as text, printed if the loop sleeps too long. */
#define unit_ran_until(loop, cond, text)                                \
	({                                                              \
		struct unit_wait wait_ = unit_wait_start(text);         \
		bool came_;                                             \
		while (!(came_ = !!(cond)) && !unit_wait_over(&wait_))  \
			uv_run((loop), UV_RUN_ONCE);                    \
		unit_wait_end(&wait_);                                  \
		came_;                                                  \
	})

/* For conditions that another thread or time makes true: polls cond, without a
 * loop, or with one that turns between the polls and does not sleep. */
#define unit_poll_until(cond) unit_look_until((cond), (void)0, #cond)
#define unit_turn_until(loop, cond) \
	unit_look_until((cond), uv_run((loop), UV_RUN_NOWAIT), #cond)

#define unit_look_until(cond, meanwhile, text)                          \
	do {                                                            \
		uint64_t end_ = unit_now_s() + UNIT_WAIT_S;             \
		while (!(cond)) {                                       \
			if (unit_now_s() > end_)                        \
				unit_timed_out(text);                   \
			meanwhile;                                      \
			usleep(200);                                    \
		}                                                       \
	} while (0)

#define unit_timed_out(text) fail_msg("timed out waiting for %s", text)

/* Real time: tests replace the clock of pool/base/clock.h. */
static inline uint64_t unit_now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec;
}

/* A sleeping loop cannot check a clock: if it sleeps past the limit, a timer's
 * SIGALRM ends the program. The program's own handler is then restored. */
static struct {
	timer_t timer;
	bool made;
	const char *awaited;
} unit_watch;

struct unit_wait {
	uint64_t end_s;
	void (*on_alarm)(int); /* of the program */
};

static inline void unit_on_alarm(int sig)
{
	static const char sleeps[] = "the loop sleeps while waiting for ";

	(void)sig;
	(void)!write(STDERR_FILENO, sleeps, sizeof(sleeps) - 1);
	(void)!write(STDERR_FILENO, unit_watch.awaited,
		     strlen(unit_watch.awaited));
	(void)!write(STDERR_FILENO, "\n", 1);
	_exit(1);
}

static inline void unit_watch_set(time_t seconds)
{
	struct itimerspec at = { .it_value.tv_sec = seconds };

	assert_int_equal(0, timer_settime(unit_watch.timer, 0, &at, NULL));
}

static inline struct unit_wait unit_wait_start(const char *text)
{
	struct unit_wait w = { .end_s = unit_now_s() + UNIT_WAIT_S };

	if (!unit_watch.made)
		assert_int_equal(0, timer_create(CLOCK_MONOTONIC, NULL,
						 &unit_watch.timer));
	unit_watch.made = true;
	unit_watch.awaited = text;
	w.on_alarm = signal(SIGALRM, unit_on_alarm);
	unit_watch_set(UNIT_WAIT_S + 5);
	return w;
}

static inline bool unit_wait_over(const struct unit_wait *w)
{
	return unit_now_s() > w->end_s;
}

static inline void unit_wait_end(const struct unit_wait *w)
{
	unit_watch_set(0);
	signal(SIGALRM, w->on_alarm);
}

/* ---- temporary directories ---- */

/* Make a directory, PREFIX.XXXXXX. prefix: with its parent, "/tmp/NAME". The
 * caller owns the path until it gives it to a function below. */
static inline char *unit_dir_make(const char *prefix)
{
	char *path;

	assert_true(asprintf(&path, "%s.XXXXXX", prefix) > 0);
	assert_non_null(mkdtemp(path));
	return path;
}

static inline int unit_remove_one(const char *path, const struct stat *st,
				  int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path) == 0 || errno == ENOENT ? 0 : -1;
}

/* Remove the directory and all that is in it; symbolic links are not followed.
 * Nothing may be mounted there. */
static inline void unit_dir_remove(char *path)
{
	assert_int_equal(0, nftw(path, unit_remove_one, 16,
				 FTW_DEPTH | FTW_PHYS));
	free(path);
}

/* Remove the directory, in which the test has left nothing. */
static inline void unit_dir_remove_empty(char *path)
{
	assert_int_equal(0, rmdir(path));
	free(path);
}

#endif
