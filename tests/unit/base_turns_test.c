/* The duration of loop turns does not include the loop's sleep. */
#include "tests/lib/unit.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/turns.h"

#define MS 1000000ull

struct fixture {
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct pool_turns turns;
	uv_timer_t timer;
	uint64_t busy_ns, was_busy_ns;
	unsigned int left;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(30);
	f->metrics = pool_metrics_open();
	assert_int_equal(0, uv_loop_init(&f->loop));
	assert_int_equal(0, POOL_TURNS_REGISTER(f->metrics, &f->turns,
						"kvpool_test_loop_turn"));
	uv_timer_init(&f->loop, &f->timer);
	f->timer.data = f;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	uv_close((uv_handle_t *)&f->timer, NULL);
	assert_int_equal(0, uv_run(&f->loop, UV_RUN_DEFAULT));
	assert_int_equal(0, uv_loop_close(&f->loop));
	pool_metrics_close(f->metrics);
	free(f);
	alarm(0);
	return 0;
}

static uint64_t busy(uint64_t ns)
{
	uint64_t begin = uv_hrtime(), now = begin;

	while (now - begin < ns)
		now = uv_hrtime();
	return now - begin;
}

static void on_timer(uv_timer_t *h)
{
	struct fixture *f = h->data;

	f->was_busy_ns += busy(f->busy_ns);
	if (--f->left == 0)
		uv_timer_stop(h);
}

static uint64_t longest(const struct fixture *f)
{
	return (uint64_t)pool_gauge_value(&f->turns.longest_ns);
}

static uint64_t sum(struct fixture *f)
{
	return atomic_load(&f->turns.hist.sum_ns);
}

/* Each timer's turn is as long as its callback; the sleep between them is not
 * counted. Time that the machine takes from the thread is, so the sums are
 * compared with the time that the test itself has measured. */
static void a_turn_is_what_the_loop_does_and_not_its_sleep(void **state)
{
	struct fixture *f = *state;
	uint64_t begin, all;

	begin = uv_hrtime(); /* before the first turn begins */
	pool_turns_open(&f->turns, &f->loop);
	f->busy_ns = 2 * MS;
	f->left = 5;
	uv_timer_start(&f->timer, on_timer, 40, 40);
	uv_run(&f->loop, UV_RUN_DEFAULT);
	all = uv_hrtime() - begin;
	assert_in_range(longest(f), f->busy_ns, all);
	assert_true(pool_hist_count(&f->turns.hist) >= 5);
	/* The turn of the fifth callback ended with the loop and was not
	 * measured. */
	assert_true(sum(f) >= 4 * f->busy_ns);
	assert_true(sum(f) <= all);
	assert_in_range(uv_metrics_idle_time(&f->loop), 1, all - sum(f));
	pool_turns_close(&f->turns, NULL);
}

static void the_longest_is_kept_and_shown_in_seconds(void **state)
{
	struct fixture *f = *state;
	char *text;
	size_t len;

	pool_turns_add(&f->turns, 3 * MS);
	pool_turns_add(&f->turns, 1250 * MS);
	pool_turns_add(&f->turns, 5 * MS);
	assert_int_equal(0, pool_metrics_print(f->metrics, &text, &len));
	assert_non_null(strstr(
		text, "# TYPE kvpool_test_loop_turn_longest_seconds gauge\n"
		      "kvpool_test_loop_turn_longest_seconds 1.250000000\n"));
	assert_non_null(
		strstr(text, "kvpool_test_loop_turn_seconds_count 3\n"));
	assert_non_null(strstr(
		text, "kvpool_test_loop_turn_seconds_sum 1.258000000\n"));
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_turn_is_what_the_loop_does_and_not_its_sleep),
		T(the_longest_is_kept_and_shown_in_seconds),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
