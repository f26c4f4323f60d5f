/* Links between two movers: ranges pushed and pulled, and all failures in the
 * middle of them. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <unistd.h>

#include "tests/unit/fake_verbs_lanes.h"

#define MIB (1ull << 20)

static struct lanes w;

static int setup(void **state)
{
	(void)state;
	lanes_open(&w, 1);
	return 0;
}

static int setup_two(void **state)
{
	(void)state;
	lanes_open(&w, 2);
	return 0;
}

#define BUSY_US 2000u

static int setup_busy(void **state)
{
	setup(state);
	verbs_busy_poll(w.verbs, BUSY_US);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lanes_close(&w);
	return 0;
}

static uint64_t count(const struct pool_counter *c)
{
	return pool_counter_value(c);
}

/* Returns whether RDMA has moved some of it. */
static bool move(uint64_t offset, uint64_t length, bool pull)
{
	struct lanes_move m;

	lanes_start(&w, &m, offset, length, pull);
	lanes_check(&w, &m);
	return m.x.by_rdma;
}

/* With a pull link as well. */
static void join(void)
{
	lanes_join(&w);
	/* pushed: there is no other link yet */
	assert_true(move(0, MIB, true));
	lanes_until(&w, w.lane->linked[LINK_PULL]);
	assert_int_equal(count(&w.asks.rdma_pulled), 0);
}

static void ranges_are_written_and_pulled(void **state)
{
	uint64_t in;

	(void)state;
	join();
	assert_int_equal(count(&w.asks.links_up), 2);
	assert_true(move(0, 1, false));
	assert_true(move(4096, 5 * MIB + 3, false));
	assert_true(move(12345, 7 * MIB, false));
	in = count(&w.asks.rdma_in);
	assert_int_equal(in, 13 * MIB + 4);
	assert_int_equal(count(&w.holds.rdma_out), in);
	assert_true(move(4096 + 7, 5 * MIB + 3, true));
	assert_int_equal(count(&w.asks.rdma_pulled), 5 * MIB + 3);
	assert_int_equal(count(&w.asks.rdma_in), in + 5 * MIB + 3);
	assert_int_equal(count(&w.holds.rdma_fallbacks), 0);
	assert_int_equal(count(&verbs_port_at(w.verbs, 0)->received),
			 in + 5 * MIB + 3);
	assert_int_equal(count(&verbs_port_at(w.verbs, 0)->sent),
			 in + 5 * MIB + 3);
}

/* Number of registrations, without the cached ones for sending. */
static unsigned int exposed(void)
{
	return fake_verbs_regions() -
	       (unsigned int)pool_gauge_value(&w.cached.count);
}

/* A pushed range of 6 MiB is registered in parts of 1 MiB, on one side; a
 * pulled one in parts of 1, 1, 2 and 2 MiB, on both. */
#define PARTS_OF_6 6u
#define PULLED_PARTS_OF_6 (2u * 4u)

static void is_broken_off_and_sent_by_tcp(bool pull, enum ibv_wc_status status)
{
	unsigned int idle, parts = pull ? PULLED_PARTS_OF_6 : PARTS_OF_6;
	struct lanes_move m[2];

	join();
	idle = exposed();
	fake_verbs_hold(true);
	for (int i = 0; i < 2; i++)
		lanes_start(&w, &m[i], 0, 6 * MIB, pull);
	lanes_until(&w, exposed() == idle + 2 * parts);
	for (int i = 0; i < 20; i++)
		lanes_turn(&w);
	fake_verbs_step(3);
	if (status)
		fake_verbs_status(1, status);
	/* Held work reports no failure. */
	fake_verbs_hold(status == IBV_WC_SUCCESS);
	for (int i = 0; i < 2; i++)
		lanes_check(&w, &m[i]);
	assert_true(count(&w.holds.rdma_fallbacks) > 0);
	fake_verbs_hold(false);
	lanes_until(&w, w.lane->linked[pull ? LINK_PULL : LINK_PUSH]);
	lanes_until(&w, exposed() == idle);
	move(0, 2 * MIB, pull);
	assert_int_equal(count(&w.holds.rdma_fallbacks), 2);
}

static void a_write_that_fails_is_made_up_for(void **state)
{
	(void)state;
	is_broken_off_and_sent_by_tcp(false, IBV_WC_RETRY_EXC_ERR);
}

static void a_read_that_fails_is_made_up_for(void **state)
{
	(void)state;
	is_broken_off_and_sent_by_tcp(true, IBV_WC_REM_ACCESS_ERR);
}

static void a_silent_link_is_given_up(void **state)
{
	uint64_t begin = uv_hrtime();

	(void)state;
	is_broken_off_and_sent_by_tcp(false, IBV_WC_SUCCESS);
	assert_true(uv_hrtime() - begin >= 300000000);
	assert_true(count(&w.holds.links_broken) > 0);
}

static void a_silent_link_to_pull_by_is_given_up(void **state)
{
	(void)state;
	is_broken_off_and_sent_by_tcp(true, IBV_WC_SUCCESS);
}

static void what_is_not_wanted_any_more(bool pull, bool late)
{
	struct lanes_move m;
	unsigned int idle;

	join();
	idle = exposed();
	fake_verbs_hold(true);
	lanes_start(&w, &m, 0, 6 * MIB, pull);
	lanes_until(&w, exposed() > idle);
	for (int i = 0; i < 20; i++)
		lanes_turn(&w);
	fake_verbs_step(1);
	lanes_cancel(&w, &m);
	for (int i = 0; i < 20; i++)
		lanes_turn(&w);
	assert_false(m.got); /* bytes may still land */
	if (!late)
		fake_verbs_hold(false);
	lanes_until(&w, m.got);
	assert_int_equal(m.x.landing.status, -ECANCELED);
	lanes_until(&w, exposed() <= idle);
	fake_verbs_hold(false);
	lanes_until(&w, m.sent);
	assert_true(pull || m.s.status == -ECANCELED);
	lanes_drop(&m);
	lanes_until(&w, w.lane->linked[pull ? LINK_PULL : LINK_PUSH]);
	assert_true(late || count(&w.asks.links_broken) == 0);
	move(0, 2 * MIB, pull);
}

static void a_range_is_let_go(void **state)
{
	(void)state;
	what_is_not_wanted_any_more(false, false);
	assert_int_equal(count(&w.asks.links_up), 2);
}

static void a_pulled_range_is_let_go(void **state)
{
	(void)state;
	what_is_not_wanted_any_more(true, false);
	assert_int_equal(count(&w.asks.links_up), 2);
}

static void a_range_is_not_let_go(void **state)
{
	(void)state;
	what_is_not_wanted_any_more(false, true);
}

static void a_pulled_range_is_not_let_go(void **state)
{
	(void)state;
	what_is_not_wanted_any_more(true, true);
}

/* The n-th registration fails; each side has three parts. */
static void without_registration_by_tcp(bool pull, unsigned int nth, bool holds)
{
	uint64_t in;

	join();
	in = count(&w.asks.rdma_in);
	fake_verbs_fail("ibv_reg_mr", nth, ENOMEM);
	if (!pull && holds) /* the retry without the cached ones fails, too */
		fake_verbs_fail("ibv_reg_mr", nth + 1, ENOMEM);
	move(0, 3 * MIB, pull);
	assert_true(count(&w.asks.rdma_in) < in + 3 * MIB);
	assert_int_equal(count(&w.asks.map_failures), holds ? 0 : 1);
	assert_int_equal(count(&w.holds.map_failures), holds ? 1 : 0);
	assert_int_equal(count(&w.asks.links_broken), 0);
	in = count(&w.asks.rdma_in);
	move(0, 3 * MIB, pull);
	assert_int_equal(count(&w.asks.rdma_in), in + 3 * MIB);
}

static void the_requester_cannot_register(void **state)
{
	(void)state;
	without_registration_by_tcp(false, 1, false);
}

static void the_requester_cannot_register_all(void **state)
{
	(void)state;
	without_registration_by_tcp(false, 3, false);
}

static void the_holder_cannot_register(void **state)
{
	(void)state;
	without_registration_by_tcp(false, 4, true);
}

static void the_holder_read_cannot_register(void **state)
{
	(void)state;
	without_registration_by_tcp(true, 1, true);
}

static void the_holder_read_cannot_register_all(void **state)
{
	(void)state;
	without_registration_by_tcp(true, 2, true);
}

static void the_reader_cannot_register(void **state)
{
	(void)state;
	without_registration_by_tcp(true, 4, false);
}

static void the_reader_cannot_register_all(void **state)
{
	(void)state;
	without_registration_by_tcp(true, 6, false);
}

static void in_the_middle(struct lanes_move m[2])
{
	unsigned int idle;

	join();
	idle = exposed();
	fake_verbs_hold(true);
	lanes_start(&w, &m[0], 0, 6 * MIB, false);
	lanes_start(&w, &m[1], 0, 6 * MIB, true);
	lanes_until(&w, exposed() == idle + PARTS_OF_6 + PULLED_PARTS_OF_6);
	for (int i = 0; i < 20; i++)
		lanes_turn(&w);
	fake_verbs_step(2);
}

static void over(struct lanes_move m[2])
{
	for (int i = 0; i < 2; i++) {
		lanes_until(&w, m[i].got && m[i].sent);
		assert_true(m[i].x.landing.status < 0);
		lanes_drop(&m[i]);
	}
	/* Only the notes of queue pairs may still be registered. */
	lanes_until(&w, exposed() == 0);
}

static void a_lane_that_is_lost_takes_all_with_it(void **state)
{
	struct lanes_move m[2];

	(void)state;
	in_the_middle(m);
	pool_conn_close(w.lane->conn);
	lanes_until(&w, !w.lane);
	over(m);
}

static void the_holder_may_stop(void **state)
{
	struct lanes_move m[2];

	(void)state;
	in_the_middle(m);
	lanes_stop(&w, &w.hold);
	lanes_until(&w, !w.lane);
	over(m);
}

static void the_requester_may_stop(void **state)
{
	struct lanes_move m[2];

	(void)state;
	in_the_middle(m);
	lanes_stop(&w, &w.ask);
	over(m);
}

static void both_may_stop(void **state)
{
	struct lanes_move m[2];

	(void)state;
	in_the_middle(m);
	fake_verbs_mute(true); /* no more completions */
	lanes_stop(&w, &w.hold);
	lanes_stop(&w, &w.ask);
	over(m);
}

static void a_port_that_failed_is_the_last_choice(void **state)
{
	struct verbs_port *first = verbs_port_at(w.verbs, 0);
	struct verbs_port *second = verbs_port_at(w.verbs, 1);

	(void)state;
	lanes_join(&w);
	move(0, MIB, false);
	assert_int_equal(count(&first->sent), MIB);
	fake_verbs_status(1, IBV_WC_RETRY_EXC_ERR);
	move(0, MIB, false);
	lanes_until(&w, w.lane->linked[LINK_PUSH]);
	for (int i = 0; i < 3; i++)
		move(0, MIB, false);
	assert_int_equal(count(&first->sent), MIB);
	assert_int_equal(count(&second->sent), 3 * MIB);
	atomic_store(&second->state, VERBS_DOWN);
	fake_verbs_status(1, IBV_WC_RETRY_EXC_ERR);
	move(0, MIB, false);
	lanes_until(&w, w.lane->linked[LINK_PUSH]);
	move(0, MIB, false);
	assert_int_equal(count(&first->sent), 2 * MIB);
	atomic_store(&second->state, VERBS_ACTIVE);
}

static void without_a_port_there_is_tcp(void **state)
{
	(void)state;
	atomic_store(&verbs_port_at(w.verbs, 0)->state, VERBS_DOWN);
	lanes_join(&w);
	assert_false(w.lane->linked[LINK_PUSH]);
	move(0, 3 * MIB, false);
	move(0, 3 * MIB, true);
	assert_int_equal(count(&w.asks.bytes_in), 6 * MIB);
	assert_int_equal(count(&w.asks.rdma_in), 0);
	atomic_store(&verbs_port_at(w.verbs, 0)->state, VERBS_ACTIVE);
	lanes_until(&w, w.lane->linked[LINK_PUSH]);
	move(0, 3 * MIB, false);
	assert_int_equal(count(&w.asks.rdma_in), 3 * MIB);
}

static unsigned int looks_in(unsigned int turns)
{
	unsigned int before = fake_verbs_calls("ibv_poll_cq");

	while (turns--)
		lanes_turn(&w);
	return fake_verbs_calls("ibv_poll_cq") - before;
}

/* Counts polls while a range is in flight, for which the device has no
 * completion yet. */
static unsigned int looks_under_way(bool pull)
{
	struct lanes_move m;
	unsigned int n;

	fake_verbs_hold(true);
	lanes_start(&w, &m, 0, 3 * MIB, pull);
	n = looks_in(20);
	fake_verbs_hold(false);
	lanes_check(&w, &m);
	return n;
}

static void completions_are_looked_for_when_asked(void **state)
{
	(void)state;
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		skip();
	join();
	assert_true(looks_under_way(false) > 0);
	assert_true(looks_under_way(true) > 0);
	looks_in(2 * BUSY_US / LANES_TURN_US);
	assert_int_equal(looks_in(10), 0); /* they sleep again */
}

static void without_busy_polling_nothing_is_polled(void **state)
{
	(void)state;
	join();
	assert_int_equal(looks_under_way(false), 0);
	assert_int_equal(looks_under_way(true), 0);
}

#define TB(f) cmocka_unit_test_setup_teardown(f, setup_busy, teardown)
#define T2(f) cmocka_unit_test_setup_teardown(f, setup_two, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(ranges_are_written_and_pulled),
		T(a_write_that_fails_is_made_up_for),
		T(a_read_that_fails_is_made_up_for),
		T(a_silent_link_is_given_up),
		T(a_silent_link_to_pull_by_is_given_up),
		T(a_range_is_let_go),
		T(a_pulled_range_is_let_go),
		T(a_range_is_not_let_go),
		T(a_pulled_range_is_not_let_go),
		T(the_requester_cannot_register),
		T(the_requester_cannot_register_all),
		T(the_holder_cannot_register),
		T(the_holder_read_cannot_register),
		T(the_holder_read_cannot_register_all),
		T(the_reader_cannot_register),
		T(the_reader_cannot_register_all),
		T(a_lane_that_is_lost_takes_all_with_it),
		T(the_holder_may_stop),
		T(the_requester_may_stop),
		T(both_may_stop),
		T2(a_port_that_failed_is_the_last_choice),
		T(without_a_port_there_is_tcp),
		TB(completions_are_looked_for_when_asked),
		T(without_busy_polling_nothing_is_polled),
		TB(both_may_stop),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
