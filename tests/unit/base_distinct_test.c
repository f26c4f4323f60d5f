/* Estimates are within 3 % of the truth, merging is a union, and windows forget
 * what is older. All hashes are those of one seed: each run is the same. */
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <xxhash.h>

#include "pool/base/distinct.h"

#define SEED 20261126

static uint64_t hash_of(uint64_t key)
{
	return XXH3_64bits_withSeed(&key, sizeof(key), SEED);
}

static void add(struct pool_distinct *d, uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++)
		pool_distinct_add(d, hash_of(k));
}

static struct pool_distinct *new_sketch(void)
{
	struct pool_distinct *d = calloc(1, sizeof(*d));

	assert_non_null(d);
	return d;
}

static void assert_near(uint64_t want, uint64_t got)
{
	uint64_t off = want > got ? want - got : got - want;

	if (off * 100 > want * 3)
		fail_msg("estimated %llu of %llu", (unsigned long long)got,
			 (unsigned long long)want);
}

static void an_estimate_is_within_3_percent(void **state)
{
	struct pool_distinct *d = new_sketch();
	uint64_t k = 0, next;

	(void)state;
	assert_int_equal(0, pool_distinct_count(d));
	/* 41 steps to 4 M: few, about as many as registers, and many. */
	for (next = 1; next < 4000000; next += next / 3 + 1) {
		add(d, k, next);
		k = next;
		assert_near(k, pool_distinct_count(d));
	}
	free(d);
}

static void repeats_change_nothing(void **state)
{
	struct pool_distinct *d = new_sketch();
	uint64_t once;

	(void)state;
	add(d, 0, 50000);
	once = pool_distinct_count(d);
	add(d, 0, 50000);
	assert_int_equal(once, pool_distinct_count(d));
	free(d);
}

static void a_merge_is_a_union(void **state)
{
	struct pool_distinct *a = new_sketch(), *b = new_sketch();
	struct pool_distinct *both = new_sketch();

	(void)state;
	add(a, 0, 100000);
	add(b, 60000, 200000);
	add(both, 0, 200000);
	pool_distinct_merge(a, b);
	assert_memory_equal(both, a, sizeof(*a));
	assert_near(200000, pool_distinct_count(a));
	pool_distinct_merge(a, b);
	assert_memory_equal(both, a, sizeof(*a));
	free(a);
	free(b);
	free(both);
}

/* The hashes that an honest caller never has. */
static void extreme_hashes_are_counted(void **state)
{
	struct pool_distinct *d = new_sketch();

	(void)state;
	pool_distinct_add(d, 0);
	pool_distinct_add(d, UINT64_MAX);
	assert_in_range(pool_distinct_count(d), 1, 3);
	for (uint64_t i = 0; i < POOL_DISTINCT_REGISTERS; i++)
		pool_distinct_add(d, i << (64 - POOL_DISTINCT_BITS));
	assert_true(pool_distinct_count(d) > 1000000);
	free(d);
}

/* ---- windows ---- */

#define PART 1000ull
#define SPAN (PART * POOL_WINDOW_PARTS)

static struct pool_window *new_window(void)
{
	struct pool_window *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->span_ms = SPAN;
	return w;
}

static void see(struct pool_window *w, uint64_t from, uint64_t to)
{
	for (uint64_t k = from; k < to; k++)
		pool_window_add(w, hash_of(k));
}

static void assert_window(const struct pool_window *w, uint64_t seen,
			  uint64_t keys)
{
	uint64_t s, k;

	pool_window_count(w, &s, &k);
	assert_int_equal(seen, s);
	assert_near(keys, k);
}

static void a_window_forgets_part_by_part(void **state)
{
	struct pool_window *w = new_window();
	uint64_t start = 1000 * SPAN, i;

	(void)state;
	/* In each part 1000 new keys, and 500 of the part before. */
	for (i = 0; i < POOL_WINDOW_PARTS; i++) {
		pool_window_turn(w, start + i * PART);
		see(w, i * 1000 + (i ? 0 : 500), (i + 1) * 1000);
		if (i)
			see(w, i * 1000 - 500, i * 1000);
		else
			see(w, 0, 500);
	}
	assert_window(w, 5000 + 4 * 500, 5000);
	pool_window_turn(w, start + SPAN - 1);
	assert_window(w, 5000 + 4 * 500, 5000);
	/* The first part goes, but for what the second repeated. */
	pool_window_turn(w, start + SPAN);
	assert_window(w, 6000, 4500);
	pool_window_turn(w, start + SPAN + 3 * PART);
	assert_window(w, 1500, 1500);
	pool_window_turn(w, start + SPAN + 4 * PART);
	assert_window(w, 0, 0);
	free(w);
}

static void a_long_pause_empties_a_window(void **state)
{
	struct pool_window *w = new_window();

	(void)state;
	pool_window_turn(w, 7 * PART);
	see(w, 0, 1000);
	pool_window_turn(w, 7 * PART + 1000000 * SPAN);
	assert_window(w, 0, 0);
	see(w, 0, 10);
	pool_window_turn(w, 0); /* back: nothing is lost */
	assert_window(w, 10, 10);
	free(w);
}

static void there_are_no_more_keys_than_sightings(void **state)
{
	struct pool_window *w = new_window();
	uint64_t seen, keys;

	(void)state;
	for (uint64_t k = 0; k < 30000; k++) {
		pool_window_add(w, hash_of(k));
		if (k % 100)
			continue;
		pool_window_count(w, &seen, &keys);
		assert_true(keys <= seen);
	}
	free(w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_estimate_is_within_3_percent),
		cmocka_unit_test(repeats_change_nothing),
		cmocka_unit_test(a_merge_is_a_union),
		cmocka_unit_test(extreme_hashes_are_counted),
		cmocka_unit_test(a_window_forgets_part_by_part),
		cmocka_unit_test(a_long_pause_empties_a_window),
		cmocka_unit_test(there_are_no_more_keys_than_sightings),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
