/* Busy-polling: how long the loop polls, and that it sleeps again. */
#include "tests/lib/unit.h"

#include <unistd.h>

#include "pool/base/busy.h"
#include "pool/base/clock.h"

enum { MAX = 200, LEAST = POOL_BUSY_LEAST_US };

static unsigned int window(unsigned int now, uint64_t gap)
{
	return pool_busy_window(now, MAX, gap, false);
}

static void it_looks_longer_when_more_comes_soon_after(void **state)
{
	(void)state;
	assert_int_equal(window(LEAST, 10), LEAST); /* long enough */
	assert_int_equal(window(LEAST, 150), 2 * LEAST);
	assert_int_equal(window(150, 180), MAX);
	assert_int_equal(window(MAX, 180), MAX);
	assert_int_equal(window(MAX, MAX + 1), MAX / 2);
	assert_int_equal(window(LEAST, 1000000), LEAST);
}

static void it_looks_least_where_the_cpu_is_wanted(void **state)
{
	(void)state;
	assert_int_equal(pool_busy_window(MAX, MAX, 10, true), LEAST);
	assert_int_equal(pool_busy_window(5, 5, 10, true), 5);
	assert_int_equal(pool_busy_window(0, 0, 10, false), 0);
}

/* A request by TLS, for example, takes longer than the shortest window. */
static void polling_is_in_the_way_of_what_comes_sooner_without(void **state)
{
	(void)state;
	assert_true(pool_busy_delayed(LEAST, LEAST + 1));
	assert_false(pool_busy_delayed(LEAST + 1, LEAST + 2));
	assert_true(pool_busy_delayed(30, 55));
	assert_false(pool_busy_delayed(50, 55));
	assert_false(pool_busy_delayed(150, 120));
}

static void after_vain_polls_it_polls_less_and_less(void **state)
{
	uint64_t us = 0;

	(void)state;
	us = pool_busy_skip(us);
	assert_int_equal(us, POOL_BUSY_SKIP_US);
	us = pool_busy_skip(us);
	assert_int_equal(us, 2 * POOL_BUSY_SKIP_US);
	while (us < POOL_BUSY_CALM_US)
		us = pool_busy_skip(us);
	assert_int_equal(us, POOL_BUSY_CALM_US);
	assert_int_equal(pool_busy_skip(us), POOL_BUSY_CALM_US);
}

struct run {
	uv_loop_t loop;
	uv_timer_t tick;
	struct pool_busy busy;
	struct pool_metrics *metrics;
	unsigned int looks, ticks;
};

static void look(void *arg)
{
	struct run *r = arg;

	r->looks++;
}

static void on_tick(uv_timer_t *t)
{
	struct run *r = t->data;

	/* The second comes after a sleep, with nothing in between. */
	if (++r->ticks == 1)
		pool_busy_touch(&r->loop);
}

static void begin(struct run *r, unsigned int max_us)
{
	r->metrics = pool_metrics_open();
	assert_non_null(r->metrics);
	assert_int_equal(uv_loop_init(&r->loop), 0);
	assert_int_equal(pool_busy_open(&r->busy, &r->loop, max_us,
					r->metrics), 0);
	pool_busy_look_for(&r->loop, look, r);
	uv_timer_init(&r->loop, &r->tick);
	r->tick.data = r;
}

static void end(struct run *r)
{
	pool_busy_close(&r->busy, NULL);
	uv_close((uv_handle_t *)&r->tick, NULL);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	pool_busy_touch(&r->loop); /* no-op after the close */
	assert_int_equal(uv_loop_close(&r->loop), 0);
	pool_metrics_close(r->metrics);
}

static void run(struct run *r, unsigned int max_us)
{
	begin(r, max_us);
	uv_timer_start(&r->tick, on_tick, 1, 0);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	uv_timer_start(&r->tick, on_tick, 50, 0);
	uv_run(&r->loop, UV_RUN_DEFAULT);
	end(r);
}

static bool looking(const struct run *r)
{
	return uv_is_active((const uv_handle_t *)&r->busy.looking);
}

/* Imitates a requester that waited for this CPU: no event while the loop polls,
 * then two at once. False: the test itself was delayed. */
static bool poll_for_nothing(struct run *r)
{
	usleep(2 * POOL_BUSY_CALM_US); /* any skipping has ended */
	pool_busy_touch(&r->loop);
	assert_true(looking(r));
	while (looking(r))
		uv_run(&r->loop, UV_RUN_NOWAIT);
	pool_busy_touch(&r->loop);
	assert_false(looking(r)); /* the trial */
	pool_busy_touch(&r->loop);
	return r->busy.skip_us > 0;
}

static void polling_stops_while_a_requester_needs_the_cpu(void **state)
{
	struct run r = { 0 };
	int i;

	(void)state;
	begin(&r, 10000);
	if (!r.busy.max_us) { /* one CPU */
		end(&r);
		skip();
	}
	uv_timer_start(&r.tick, on_tick, 1000000, 0); /* the loop is alive */
	for (i = 0; i < 100 && !poll_for_nothing(&r); i++)
		;
	assert_int_equal(r.busy.skip_us, POOL_BUSY_SKIP_US);
	assert_false(looking(&r));
	usleep(2 * POOL_BUSY_CALM_US);
	pool_busy_touch(&r.loop);
	assert_true(looking(&r));
	pool_busy_touch(&r.loop); /* found */
	assert_int_equal(r.busy.skip_us, 0);
	end(&r);
}

static void it_looks_for_a_while_and_sleeps_again(void **state)
{
	struct run r = { 0 };

	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	run(&r, MAX);
	assert_in_range(r.looks, 1, 100000);
	assert_int_equal(pool_counter_value(&r.busy.slept), 1);
	assert_int_equal(pool_counter_value(&r.busy.found), 0);
	assert_false(uv_is_active((uv_handle_t *)&r.busy.looking));
}

static void with_none_it_sleeps_at_once(void **state)
{
	struct run r = { 0 };

	(void)state;
	run(&r, 0);
	assert_int_equal(r.looks, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(it_looks_longer_when_more_comes_soon_after),
		cmocka_unit_test(it_looks_least_where_the_cpu_is_wanted),
		cmocka_unit_test(
			polling_is_in_the_way_of_what_comes_sooner_without),
		cmocka_unit_test(
			after_vain_polls_it_polls_less_and_less),
		cmocka_unit_test(it_looks_for_a_while_and_sleeps_again),
		cmocka_unit_test(polling_stops_while_a_requester_needs_the_cpu),
		cmocka_unit_test(with_none_it_sleeps_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
