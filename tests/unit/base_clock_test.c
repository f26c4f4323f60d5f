#include "tests/lib/unit.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"

static uint64_t fake_now(void)
{
	return 5000000123u;
}

static uint64_t fake_wall(void)
{
	return 42;
}

static void fake_random(void *buf, size_t n)
{
	memset(buf, 0x5a, n);
}

static const struct pool_clock fake = { fake_now, fake_wall, fake_random };

static void time_goes_forward_and_units_agree(void **state)
{
	uint64_t ns = pool_now_ns(), us = pool_now_us(), ms = pool_now_ms();

	(void)state;
	assert_true(ns > 0);
	assert_true(us >= ns / 1000);
	assert_true(ms >= us / 1000);
	assert_true(ms - ns / 1000000 < 10000);
	assert_true(pool_now_ns() >= ns);
}

static void the_wall_clock_is_the_time_of_day(void **state)
{
	uint64_t s = pool_wall_ns() / 1000000000u, t = (uint64_t)time(NULL);

	(void)state;
	assert_in_range(s, t - 10, t + 10);
}

static void random_numbers_fill_the_buffer_and_differ(void **state)
{
	uint8_t a[64] = { 0 }, b[64] = { 0 }, guard[4] = { 0 };

	(void)state;
	pool_random(a, sizeof(a));
	pool_random(b, sizeof(b));
	assert_memory_not_equal(a, b, sizeof(a));
	assert_memory_not_equal(a + 32, b + 32, 32);
	pool_random(guard, 0);
	assert_int_equal(guard[0], 0);
	assert_true(pool_random_u64() != pool_random_u64());
}

static void a_clock_that_is_set_replaces_the_real_one(void **state)
{
	(void)state;
	pool_clock_set(&fake);
	assert_int_equal(pool_now_ns(), 5000000123u);
	assert_int_equal(pool_now_us(), 5000000);
	assert_int_equal(pool_now_ms(), 5000);
	assert_int_equal(pool_wall_ns(), 42);
	assert_true(pool_random_u64() == UINT64_C(0x5a5a5a5a5a5a5a5a));
	pool_clock_set(NULL);
	assert_true(pool_wall_ns() > 42);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(time_goes_forward_and_units_agree),
		cmocka_unit_test(the_wall_clock_is_the_time_of_day),
		cmocka_unit_test(random_numbers_fill_the_buffer_and_differ),
		cmocka_unit_test(a_clock_that_is_set_replaces_the_real_one),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
