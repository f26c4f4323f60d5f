#include "tests/lib/unit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/list.h"

/* Includes the code under test, with an allocator that the test can make
 * fail. */
static unsigned int fail_at, allocations; /* fail_at 0: never */

static int allocation_fails(void)
{
	return ++allocations == fail_at;
}

static void *flaky_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : calloc(n, size);
}

static void *flaky_realloc(void *p, size_t size)
{
	return allocation_fails() ? NULL : realloc(p, size);
}

#define calloc flaky_calloc
#define realloc flaky_realloc
#include "pool/base/hash.c"
#undef calloc
#undef realloc

#define MILLION 1000000u

struct item {
	struct pool_hash_node node;
	uint32_t id;
	bool in, visited;
};

static uint64_t seed = 1;

static uint32_t random_below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((seed >> 32) * n >> 32);
}

/* Scattered, but pairs of ids share a hash: real collisions. */
static uint32_t hash_of(uint32_t id)
{
	return (id / 2) * 2654435761u;
}

static struct item *item_of(struct pool_hash_node *n)
{
	return pool_container_of(n, struct item, node);
}

static struct item *find(const struct pool_hash *h, uint32_t id)
{
	struct pool_hash_node *n = pool_hash_first(h, hash_of(id));

	while (n && item_of(n)->id != id)
		n = pool_hash_next(n);
	return n ? item_of(n) : NULL;
}

static struct item *items_make(uint32_t n)
{
	struct item *items = calloc(n, sizeof(*items));

	assert_non_null(items);
	for (uint32_t i = 0; i < n; i++)
		items[i].id = i;
	return items;
}

static void flip(struct pool_hash *h, struct item *it)
{
	if (it->in)
		pool_hash_remove(h, &it->node);
	else
		assert_int_equal(
			pool_hash_insert(h, &it->node, hash_of(it->id)), 0);
	it->in = !it->in;
}

static void check(const struct pool_hash *h, struct item *items, uint32_t n)
{
	size_t count = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct item *found = find(h, i);

		if (items[i].in ? found != &items[i] : found != NULL)
			fail_msg("item %u", i);
		count += items[i].in;
	}
	assert_int_equal(h->count, count);
	/* short chains, and memory in proportion to count */
	assert_true(count <= h->nbuckets);
	assert_true(h->nbuckets <= 512 || h->nbuckets <= 2 * count + 1);
	assert_true(h->nsegs <= h->nbuckets / 512 + 2);
	for (size_t b = 0; b < h->nbuckets; b++) {
		uintptr_t bits = 0;

		for (struct pool_hash_node *at = first_of(slot(h, b)); at;
		     at = at->next)
			bits |= filter_bit(at->hash);
		/* The filter has the bit of each element, and no other bits. */
		assert_int_equal(*slot(h, b) & ~POINTER_MASK, bits);
	}
}

static void an_empty_table_finds_nothing(void **state)
{
	struct pool_hash h;

	(void)state;
	pool_hash_init(&h);
	assert_null(pool_hash_first(&h, 0));
	assert_null(pool_hash_first(&h, UINT32_MAX));
	pool_hash_fini(&h);
}

static void it_agrees_with_a_model_up_to_a_million_elements(void **state)
{
	struct item *items = items_make(MILLION);
	struct pool_hash h;

	(void)state;
	pool_hash_init(&h);
	for (uint32_t i = 0; i < MILLION; i++)
		flip(&h, &items[i]);
	check(&h, items, MILLION);
	for (uint32_t i = 0; i < MILLION; i++)
		flip(&h, &items[random_below(MILLION)]);
	check(&h, items, MILLION);
	for (uint32_t i = 0; i < MILLION; i++)
		if (items[i].in && i % 1000)
			flip(&h, &items[i]);
	check(&h, items, MILLION);
	for (uint32_t i = 0; i < MILLION; i++)
		if (items[i].in)
			flip(&h, &items[i]);
	check(&h, items, MILLION);
	pool_hash_fini(&h);
	free(items);
}

static void it_agrees_with_a_model_at_every_small_size(void **state)
{
	enum { SMALL = 3000 };
	struct item *items = items_make(SMALL);
	struct pool_hash h;

	(void)state;
	pool_hash_init(&h);
	/* grows and shrinks across the edges of segments */
	for (uint32_t round = 0; round < 300; round++) {
		bool rising = round / 30 % 2 == 0;

		for (int i = 0; i < 200; i++) {
			struct item *it = &items[random_below(SMALL)];

			if (it->in != rising || random_below(4) == 0)
				flip(&h, it);
		}
		check(&h, items, SMALL);
	}
	pool_hash_fini(&h);
	free(items);
}

static void equal_hashes_are_all_found(void **state)
{
	struct item *items = items_make(100);
	struct pool_hash h;
	int seen = 0;

	(void)state;
	pool_hash_init(&h);
	for (int i = 0; i < 100; i++)
		assert_int_equal(pool_hash_insert(&h, &items[i].node,
						  i < 50 ? 7 : 7 + 512), 0);
	for (struct pool_hash_node *n = pool_hash_first(&h, 7); n;
	     n = pool_hash_next(n)) {
		assert_true(item_of(n)->id < 50);
		seen++;
	}
	assert_int_equal(seen, 50);
	pool_hash_fini(&h);
	free(items);
}

static void when_memory_is_short_chains_grow_instead(void **state)
{
	enum { MANY = 5000 };
	struct item *items = items_make(MANY);
	struct pool_hash h;

	(void)state;
	pool_hash_init(&h);
	for (fail_at = 1; fail_at <= 2; fail_at++) {
		allocations = 0;
		assert_int_equal(pool_hash_insert(&h, &items[0].node, 0),
				 -ENOMEM);
		assert_int_equal(h.count, 0);
		assert_null(pool_hash_first(&h, 0));
	}
	fail_at = 0;
	flip(&h, &items[0]);
	for (uint32_t i = 1; i < MANY; i++) {
		allocations = 0;
		fail_at = i < MANY / 2 ? 1 : i < 3 * MANY / 4 ? 2 : 0;
		flip(&h, &items[i]);
		assert_true(i >= MANY / 2 || h.nbuckets == 512);
	}
	fail_at = 0;
	assert_true(h.nbuckets > 512);
	for (uint32_t i = 0; i < MANY; i++)
		assert_ptr_equal(find(&h, i), &items[i]);
	for (uint32_t i = 0; i < MANY; i++)
		flip(&h, &items[i]);
	check(&h, items, MANY);
	pool_hash_fini(&h);
	free(items);
}

struct walk {
	struct pool_hash *h;
	uint32_t seen, keep_every;
};

static void visit(struct pool_hash_node *n, void *arg)
{
	struct item *it = item_of(n);
	struct walk *w = arg;

	if (it->visited)
		fail_msg("item %u twice", it->id);
	it->visited = true;
	w->seen++;
	if (w->keep_every && it->id % w->keep_every) {
		pool_hash_remove(w->h, n);
		it->in = false;
	}
}

static void each_element_is_visited_once_even_if_it_is_removed(void **state)
{
	enum { MANY = 50000 };
	struct item *items = items_make(MANY);
	struct pool_hash h;
	struct walk w = { &h, 0, 100 };

	(void)state;
	pool_hash_init(&h);
	pool_hash_each(&h, visit, &w);
	assert_int_equal(w.seen, 0);
	for (uint32_t i = 0; i < MANY; i++)
		flip(&h, &items[i]);
	pool_hash_each(&h, visit, &w);
	assert_int_equal(w.seen, MANY);
	check(&h, items, MANY);
	assert_int_equal(h.count, MANY / 100);

	for (uint32_t i = 0; i < MANY; i++)
		items[i].visited = false;
	w.seen = w.keep_every = 0;
	pool_hash_each(&h, visit, &w);
	assert_int_equal(w.seen, MANY / 100);
	pool_hash_fini(&h);
	assert_int_equal(h.count, 0);
	free(items);
}

/* The seed of another process of this program. */
static uint64_t seed_of_another_run(void)
{
	unsigned long long other = 0;
	char self[4096], cmd[sizeof(self) + 16];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	FILE *f;

	assert_true(n > 0);
	self[n] = '\0';
	snprintf(cmd, sizeof(cmd), "exec '%s' seed", self);
	f = popen(cmd, "r");
	assert_non_null(f);
	assert_int_equal(1, fscanf(f, "%llx", &other));
	assert_int_equal(0, pclose(f));
	return other;
}

/* Each seed has 63 random bits: two are never equal by chance. */
static void each_process_has_a_seed_of_its_own(void **state)
{
	uint64_t own = pool_hash_seed(), other = seed_of_another_run();

	(void)state;
	assert_true(own == pool_hash_seed());
	assert_true(own != other);
	assert_true(other != seed_of_another_run());
}

int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "seed") == 0)
		return printf("%llx\n", (unsigned long long)pool_hash_seed()) <
		       0;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(an_empty_table_finds_nothing),
		cmocka_unit_test(
			it_agrees_with_a_model_up_to_a_million_elements),
		cmocka_unit_test(it_agrees_with_a_model_at_every_small_size),
		cmocka_unit_test(equal_hashes_are_all_found),
		cmocka_unit_test(when_memory_is_short_chains_grow_instead),
		cmocka_unit_test(
			each_element_is_visited_once_even_if_it_is_removed),
		cmocka_unit_test(each_process_has_a_seed_of_its_own),
	};

	alarm(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
