/*
 * The table of pointers by number.
 */
#include "tests/lib/unit.h"

#include <errno.h>

#include "pool/base/slots.h"

static int things[1000];

static void what_was_added_is_found_until_it_is_removed(void **state)
{
	struct pool_slots s;
	uint64_t n[1000], again;
	size_t i;

	(void)state;
	pool_slots_init(&s);
	assert_null(pool_slots_get(&s, 0));
	for (i = 0; i < 1000; i++)
		assert_int_equal(0, pool_slots_add(&s, &things[i], &n[i]));
	for (i = 0; i < 1000; i++)
		assert_ptr_equal(&things[i], pool_slots_get(&s, n[i]));
	pool_slots_remove(&s, n[500]);
	assert_null(pool_slots_get(&s, n[500]));
	assert_ptr_equal(&things[501], pool_slots_get(&s, n[501]));
	assert_int_equal(0, pool_slots_add(&s, &things[500], &again));
	assert_int_equal(n[500], again);
	assert_null(pool_slots_get(&s, 1ull << 40));
	pool_slots_fini(&s);
}

static void numbers_that_are_taken_over_are_kept(void **state)
{
	static const uint64_t over[] = { 700, 3, 0, 64, 5, 63 };
	struct pool_slots s;
	uint64_t n, seen = 0;
	size_t i;

	(void)state;
	pool_slots_init(&s);
	for (i = 0; i < 6; i++)
		assert_int_equal(0, pool_slots_add_at(&s, over[i],
						      &things[over[i]]));
	assert_int_equal(-EEXIST, pool_slots_add_at(&s, 64, &things[1]));
	assert_int_equal(-ERANGE, pool_slots_add_at(&s, 1ull << 31,
						    &things[1]));
	for (i = 0; i < 3000; i++) {
		assert_int_equal(0, pool_slots_add(&s, &things[1], &n));
		assert_true(n != 700 && n != 3 && n != 0 && n != 64 &&
			    n != 5 && n != 63);
	}
	for (n = pool_slots_next(&s, 0); n < s.cap;
	     n = pool_slots_next(&s, n + 1))
		seen++;
	assert_int_equal(3006, seen);
	for (i = 0; i < 6; i++)
		assert_ptr_equal(&things[over[i]], pool_slots_get(&s, over[i]));
	pool_slots_fini(&s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_was_added_is_found_until_it_is_removed),
		cmocka_unit_test(numbers_that_are_taken_over_are_kept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
