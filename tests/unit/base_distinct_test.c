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

/* Small ones: within four standard errors of 4.6 %. */
static void a_small_estimate_is_within_19_percent(void **state)
{
	uint8_t a[POOL_SMALL_SIZE] = { 0 }, b[POOL_SMALL_SIZE] = { 0 };
	uint64_t k = 0;

	(void)state;
	assert_int_equal(0, pool_small_count(a));
	for (uint64_t next = 10; next < 1000000; next += next / 3 + 1) {
		for (; k < next; k++)
			pool_small_add(k % 2 ? a : b, hash_of(k));
		for (uint64_t i = 0; i < next; i += 2)
			pool_small_add(a, hash_of(i)); /* a has seen all */
		assert_in_range(pool_small_count(a), k - k * 19 / 100,
				k + k * 19 / 100);
		pool_small_merge(b, a);
		assert_memory_equal(a, b, sizeof(a));
		assert_true(pool_small_check(a, sizeof(a)));
	}
	assert_false(pool_small_check(a, sizeof(a) - 1));
	pool_small_add(a, 0);
	assert_true(pool_small_check(a, sizeof(a)));
	a[0]++;
	assert_false(pool_small_check(a, sizeof(a)));
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
		pool_window_add(w, hash_of(k), k % 4 == 0);
}

static void assert_window(const struct pool_window *w, uint64_t seen,
			  uint64_t keys)
{
	struct pool_seen s;

	pool_window_count(w, &s);
	assert_int_equal(seen, s.seen);
	assert_near(keys, s.keys);
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
	struct pool_seen s;

	(void)state;
	for (uint64_t k = 0; k < 30000; k++) {
		pool_window_add(w, hash_of(k), false);
		if (k % 100)
			continue;
		pool_window_count(w, &s);
		assert_true(s.keys <= s.seen);
	}
	free(w);
}

static void hits_are_forgotten_with_their_part(void **state)
{
	struct pool_window *w = new_window();
	struct pool_seen s;

	(void)state;
	pool_window_turn(w, SPAN);
	see(w, 0, 4000);
	pool_window_turn(w, SPAN + PART);
	see(w, 0, 400);
	pool_window_count(w, &s);
	assert_int_equal(1100, s.hits);
	pool_window_turn(w, 2 * SPAN);
	pool_window_count(w, &s);
	assert_int_equal(100, s.hits);
	free(w);
}

static void the_best_is_what_was_seen_before_or_hit_more(void **state)
{
	struct pool_seen s = { .seen = 100, .hits = 10, .keys = 60 };

	(void)state;
	assert_int_equal(40, pool_seen_best(&s));
	s.hits = 70; /* put before the window */
	assert_int_equal(70, pool_seen_best(&s));
}

/* ---- folded sketches ---- */

/* The same by hand, without a larger sketch. */
static void add_folded(uint8_t *folded, uint64_t hash)
{
	uint64_t rest = hash << POOL_FOLDED_BITS;
	uint8_t *max = &folded[hash >> (64 - POOL_FOLDED_BITS)];
	uint8_t rank = rest ? (uint8_t)(__builtin_clzll(rest) + 1) :
			      64 - POOL_FOLDED_BITS + 1;

	*max = rank > *max ? rank : *max;
}

static void folding_loses_nothing_but_registers(void **state)
{
	static const uint64_t odd[] = { 0, 1, UINT64_MAX, 3ull << 50,
					1ull << 50, 1ull << 51, 1ull << 49 };
	uint8_t want[POOL_FOLDED_SIZE] = { 0 }, got[POOL_FOLDED_SIZE];
	struct pool_window *w = new_window();

	(void)state;
	for (uint64_t k = 0; k < 100000; k++) {
		pool_window_turn(w, SPAN + k / 30000 * PART);
		pool_window_add(w, hash_of(k), false);
		add_folded(want, hash_of(k));
		if (k != 10 && k != 1000 && k != 99999)
			continue;
		pool_window_fold(w, got);
		assert_memory_equal(want, got, sizeof(got));
		assert_true(pool_folded_check(got, sizeof(got)));
	}
	assert_in_range(pool_folded_count(got), 95000, 105000);
	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		pool_window_add(w, odd[i], false);
		add_folded(want, odd[i]);
	}
	pool_window_fold(w, got);
	assert_memory_equal(want, got, sizeof(got));
	free(w);
}

static void folded_sketches_merge_as_a_union(void **state)
{
	uint8_t a[POOL_FOLDED_SIZE] = { 0 }, b[POOL_FOLDED_SIZE] = { 0 };
	uint8_t both[POOL_FOLDED_SIZE] = { 0 };

	(void)state;
	assert_int_equal(0, pool_folded_count(a));
	for (uint64_t k = 0; k < 3000; k++) {
		add_folded(k < 2000 ? a : b, hash_of(k));
		add_folded(both, hash_of(k));
	}
	pool_folded_merge(a, b);
	assert_memory_equal(both, a, sizeof(a));
}

static void what_no_sketch_can_be_is_refused(void **state)
{
	uint8_t s[POOL_FOLDED_SIZE + 1] = { 0 };

	(void)state;
	memset(s, 53, POOL_FOLDED_SIZE);
	assert_true(pool_folded_check(s, POOL_FOLDED_SIZE));
	assert_true(pool_folded_count(s) > 1000000);
	s[POOL_FOLDED_SIZE - 1] = 54;
	assert_false(pool_folded_check(s, POOL_FOLDED_SIZE));
	s[POOL_FOLDED_SIZE - 1] = 0;
	assert_false(pool_folded_check(s, POOL_FOLDED_SIZE - 1));
	assert_false(pool_folded_check(s, POOL_FOLDED_SIZE + 1));
	assert_false(pool_folded_check(NULL, 0));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_estimate_is_within_3_percent),
		cmocka_unit_test(repeats_change_nothing),
		cmocka_unit_test(a_merge_is_a_union),
		cmocka_unit_test(a_small_estimate_is_within_19_percent),
		cmocka_unit_test(extreme_hashes_are_counted),
		cmocka_unit_test(a_window_forgets_part_by_part),
		cmocka_unit_test(a_long_pause_empties_a_window),
		cmocka_unit_test(there_are_no_more_keys_than_sightings),
		cmocka_unit_test(hits_are_forgotten_with_their_part),
		cmocka_unit_test(the_best_is_what_was_seen_before_or_hit_more),
		cmocka_unit_test(folding_loses_nothing_but_registers),
		cmocka_unit_test(folded_sketches_merge_as_a_union),
		cmocka_unit_test(what_no_sketch_can_be_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
