/* Which master is dialled next, and when. */
#include "tests/lib/unit.h"

#include <string.h>

#include "pool/conn/dial.h"

static struct pool_dial d;
static uint64_t now;

static void begin(const char *list)
{
	struct pool_hostports masters = { 0 };

	now = 1000000;
	if (list)
		assert_int_equal(0, pool_parse_hostports(list, 0, &masters));
	pool_dial_init(&d, &masters);
}

/* Port of the master that is dialled now; 0: none. */
static unsigned int dialled(void)
{
	return pool_dial_next(&d, now) ? d.at.port : 0;
}

static void one_alone_is_tried_again_ever_more_slowly(void **state)
{
	uint64_t waited, want = POOL_DIAL_MIN_MS;
	int i;

	(void)state;
	begin("h:1");
	for (i = 0; i < 8; i++) {
		assert_int_equal(1, dialled());
		assert_int_equal(0, pool_dial_connect_ms(&d));
		assert_int_equal(0, pool_dial_join_ms(&d));
		pool_dial_failed(&d, now);
		for (waited = 0; !pool_dial_next(&d, now + waited);)
			waited++;
		assert_int_equal(want, waited);
		now += waited;
		want = want * 2 < POOL_DIAL_ALONE_MAX_MS ?
			       want * 2 : POOL_DIAL_ALONE_MAX_MS;
	}
	assert_in_range(want, POOL_DIAL_MIN_MS, 500);
	pool_dial_joined(&d);
	pool_dial_failed(&d, now);
	now += POOL_DIAL_MIN_MS;
	assert_int_equal(1, dialled());
}

static void
of_several_the_next_is_tried_at_once_and_rounds_have_a_pause(void **state)
{
	int round;

	(void)state;
	begin("h:1,h:2,h:3");
	for (round = 0; round < 20; round++) {
		assert_int_equal(1, dialled());
		pool_dial_failed(&d, now);
		assert_int_equal(2, dialled());
		pool_dial_standby(&d, "", now);
		assert_int_equal(3, dialled());
		pool_dial_failed(&d, now);
		assert_int_equal(0, dialled());
		now += POOL_DIAL_ROUND_MAX_MS;
	}
	assert_int_equal(POOL_DIAL_CONNECT_MS, pool_dial_connect_ms(&d));
}

static void a_master_named_by_a_standby_is_next(void **state)
{
	(void)state;
	begin("h:1,h:2");
	assert_int_equal(1, dialled());
	pool_dial_standby(&d, "other:9", now);
	assert_int_equal(9, dialled());
	assert_string_equal("other", d.at.host);
	pool_dial_failed(&d, now);
	assert_int_equal(2, dialled());
}

static void nobodys_word_counts_for_one_that_has_just_failed(void **state)
{
	(void)state;
	begin("h:1,h:2,h:3");
	assert_int_equal(1, dialled());
	pool_dial_joined(&d);
	pool_dial_failed(&d, now); /* lost */
	assert_int_equal(2, dialled());
	pool_dial_standby(&d, "h:1", now);
	assert_int_equal(3, dialled());
	now += POOL_DIAL_FAILED_MS;
	pool_dial_standby(&d, "h:1", now);
	assert_int_equal(1, dialled());
}

/* A machine in the middle of the list accepts connections and does not
 * answer. */
static void one_that_has_just_failed_is_left_out_while_there_are_others(
	void **state)
{
	struct pool_hostport two = { "h", 2 }, three = { "h", 3 };
	int i;

	(void)state;
	begin("h:1,h:2,h:3");
	pool_dial_next(&d, now);
	pool_dial_joined(&d); /* at 1 */
	d.next = 0;
	pool_dial_failed(&d, now);
	for (i = 0; i < 4; i++, now += POOL_DIAL_ROUND_MAX_MS) {
		assert_int_equal(2, dialled());
		assert_false(pool_dial_named(&d, &two, now)); /* at it */
		assert_int_equal(2, dialled());
		pool_dial_standby(&d, "", now);
		assert_int_equal(3, dialled());
		pool_dial_standby(&d, "", now);
	}
	assert_true(pool_dial_named(&d, &two, now));
	assert_int_equal(2, dialled());
	assert_true(pool_dial_named(&d, &three, now));
	assert_int_equal(3, dialled());
	now += POOL_DIAL_FAILED_MS;
	assert_int_equal(1, dialled());
}

static void without_a_list_it_waits_for_a_name(void **state)
{
	struct pool_hostport hp = { "h", 7 };

	(void)state;
	begin(NULL);
	assert_int_equal(0, dialled());
	pool_dial_named(&d, &hp, now);
	assert_int_equal(7, dialled());
	pool_dial_failed(&d, now);
	now += 10000;
	assert_int_equal(0, dialled());
	pool_dial_named(&d, &hp, now);
	assert_int_equal(7, dialled());
	assert_int_equal(POOL_DIAL_CONNECT_MS, pool_dial_connect_ms(&d));
}

static void nonsense_for_a_name_is_as_if_none_was_given(void **state)
{
	static const char *const bad[] = {
		"", "h", "h:0", "h:x", ":1", "a b:1"
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		begin("h:1,h:2");
		assert_int_equal(1, dialled());
		pool_dial_standby(&d, bad[i], now);
		assert_int_equal(2, dialled());
	}
}

static void a_slow_master_gets_more_time_up_to_a_bound(void **state)
{
	int i;

	(void)state;
	begin("h:1,h:2");
	assert_int_equal(POOL_DIAL_JOIN_MS, pool_dial_join_ms(&d));
	assert_int_equal(1, dialled());
	pool_dial_slow(&d);
	assert_int_equal(2 * POOL_DIAL_JOIN_MS, pool_dial_join_ms(&d));
	pool_dial_failed(&d, now); /* h:2 was not slow */
	assert_int_equal(2, dialled());
	assert_int_equal(POOL_DIAL_JOIN_MS, pool_dial_join_ms(&d));
	pool_dial_standby(&d, "", now);
	now += POOL_DIAL_FAILED_MS;
	assert_int_equal(1, dialled());
	for (i = 0; i < 10; i++)
		pool_dial_slow(&d);
	assert_int_equal(POOL_DIAL_JOIN_MAX_MS, pool_dial_join_ms(&d));
	pool_dial_joined(&d);
	assert_int_equal(POOL_DIAL_JOIN_MS, pool_dial_join_ms(&d));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_alone_is_tried_again_ever_more_slowly),
		cmocka_unit_test(
			of_several_the_next_is_tried_at_once_and_rounds_have_a_pause),
		cmocka_unit_test(a_master_named_by_a_standby_is_next),
		cmocka_unit_test(
			nobodys_word_counts_for_one_that_has_just_failed),
		cmocka_unit_test(
			one_that_has_just_failed_is_left_out_while_there_are_others),
		cmocka_unit_test(without_a_list_it_waits_for_a_name),
		cmocka_unit_test(nonsense_for_a_name_is_as_if_none_was_given),
		cmocka_unit_test(a_slow_master_gets_more_time_up_to_a_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
