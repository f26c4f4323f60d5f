/* Placement: targets, free space, and which node may drop which copy. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "master/place.h"

#define GIB (1ull << 30)

static struct master_members ms;
static struct master_map map;
static struct master_file *file;

static int setup(void **state)
{
	struct master_attrs attrs = { 0 };
	bool made;

	(void)state;
	master_members_init(&ms);
	if (master_map_init(&map, 1, 1))
		return -1;
	return master_map_make_file(&map, "k", 1, &attrs, &file, &made);
}

static int teardown(void **state)
{
	(void)state;
	master_map_fini(&map);
	master_members_fini(&ms);
	return 0;
}

static struct master_member *node(uint64_t capacity, uint64_t used,
				  const char *host)
{
	uint8_t id[POOL_ID_SIZE] = { (uint8_t)(ms.n + 1) };
	struct master_member *mb;

	assert_int_equal(0, master_members_make(&ms, id, &mb));
	assert_int_equal(0, master_member_join(&ms, mb, (void *)&ms, 0));
	mb->inventoried = true;
	mb->is_store = capacity != 0;
	mb->capacity = capacity;
	mb->used = used;
	strcpy(mb->host_id, host);
	master_place_accepting(mb);
	return mb;
}

static void holds(const struct master_member *mb)
{
	master_file_add_holder(&map, file,
			       master_holder_make(mb->index, mb->phase));
}

static struct master_member *target(unsigned int avoid)
{
	struct master_member *to = NULL;

	return master_place_target(&ms, file, avoid, false, &to) ? NULL : to;
}

static const struct pool_rules shared = { .class = POOL_CLASS_SHARED,
					  .pin = POOL_PIN_NONE,
					  .replicas = 1 };

static enum master_verdict evict(const struct master_member *from,
				 const struct pool_rules *rules, bool ready)
{
	struct master_member *to;

	return master_place_evict(&ms, file, from, rules, ready, &to);
}

static void a_copy_goes_where_most_is_free(void **state)
{
	struct master_member *b, *c;

	(void)state;
	holds(node(10 * GIB, 0, "h1"));
	b = node(10 * GIB, 5 * GIB, "h2");
	c = node(10 * GIB, 4 * GIB, "h3");
	assert_ptr_equal(c, target(MASTER_NOBODY));
	c->promised = 2 * GIB;
	assert_ptr_equal(b, target(MASTER_NOBODY));
	assert_ptr_equal(c, target(b->index));
}

static void another_host_is_preferred_to_more_room(void **state)
{
	struct master_member *b, *c;

	(void)state;
	holds(node(10 * GIB, 0, "h1"));
	b = node(10 * GIB, 0, "h1");
	c = node(10 * GIB, 9 * GIB, "h2");
	assert_ptr_equal(c, target(MASTER_NOBODY));
	c->session = NULL;
	assert_ptr_equal(b, target(MASTER_NOBODY));
}

static void neither_holders_nor_clients_nor_the_dead_are_targets(void **state)
{
	struct master_member *a, *to;

	(void)state;
	a = node(10 * GIB, 0, "h1");
	holds(a);
	node(0, 0, "h2");
	node(10 * GIB, 0, "h3")->session = NULL;
	assert_int_equal(-ENOSPC,
			 master_place_target(&ms, file, MASTER_NOBODY,
					     false, &to));
}

static void a_target_at_its_bounds_is_waited_for(void **state)
{
	struct master_member *b, *to;

	(void)state;
	holds(node(10 * GIB, 0, "h1"));
	b = node(10 * GIB, 0, "h2");
	b->coming = MASTER_COMING_MAX;
	assert_int_equal(-EBUSY,
			 master_place_target(&ms, file, MASTER_NOBODY,
					     false, &to));
	b->coming = 1;
	b->promised = MASTER_COMING_BYTES;
	assert_int_equal(-EBUSY,
			 master_place_target(&ms, file, MASTER_NOBODY,
					     false, &to));
}

static void a_nearly_full_store_takes_copies_again_only_from_4_percent(
	void **state)
{
	struct master_member *a = node(100 * GIB, 97 * GIB, "h");

	(void)state;
	assert_false(a->accepting); /* 3 % free: it accepts again from 4 % on */
	a->used = 96 * GIB;
	master_place_accepting(a);
	assert_true(master_place_room(a, 1));
	a->used = 97 * GIB;
	master_place_accepting(a);
	assert_true(master_place_room(a, 1));
	assert_false(master_place_room(a, GIB)); /* 2 % stay free */
	assert_true(master_place_room(a, GIB - 1));
	a->used = 98 * GIB;
	master_place_accepting(a);
	assert_false(master_place_room(a, 1));
	a->used = 97 * GIB;
	master_place_accepting(a);
	assert_false(master_place_room(a, 1));
}

static void what_only_a_client_has_goes_where_room_can_be_made(void **state)
{
	struct master_member *b, *c, *to = NULL;

	(void)state;
	file->size = GIB;
	b = node(10 * GIB, 10 * GIB, "h2");
	c = node(10 * GIB, 10 * GIB, "h3");
	c->evictable = 2 * GIB;
	holds(node(0, 0, "h1"));
	assert_ptr_equal(c, target(MASTER_NOBODY));
	c->promised = GIB;
	assert_int_equal(-ENOSPC,
			 master_place_target(&ms, file, MASTER_NOBODY,
					     false, &to));
	c->promised = 0;
	/* A further copy is not worth evicting another object's last copy,
	 * except for a put and for objects that must be kept. */
	holds(b);
	assert_int_equal(0, master_place_target(&ms, file, MASTER_NOBODY, true,
						&to));
	assert_ptr_equal(c, to);
	assert_int_equal(-ENOSPC,
			 master_place_target(&ms, file, MASTER_NOBODY,
					     false, &to));
}

static void what_must_be_kept_displaces_what_need_not(void **state)
{
	struct master_member *a = node(10 * GIB, 10 * GIB, "h1"), *to = NULL;
	struct master_member *b = node(10 * GIB, 10 * GIB, "h2");
	struct pool_rules rules = shared;

	(void)state;
	holds(a);
	b->evictable = 5 * GIB;
	rules.class = POOL_CLASS_NOEVICT;
	assert_int_equal(MASTER_MOVE, master_place_evict(&ms, file, a, &rules,
							 true, &to));
	assert_ptr_equal(b, to);
	assert_int_equal(MASTER_LAST, evict(a, &shared, true));
}

static void what_a_client_has_put_stays_until_a_store_has_it(void **state)
{
	struct master_member *b = node(10 * GIB, 10 * GIB, "h2");
	struct master_member *a = node(0, 0, "h1");

	(void)state;
	holds(a);
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	holds(b);
	assert_int_equal(MASTER_GRANT, evict(a, &shared, true));
}

static void a_surplus_copy_may_go_at_any_time(void **state)
{
	struct master_member *a = node(10 * GIB, 0, "h1");
	struct pool_rules hard = shared;

	(void)state;
	hard.pin = POOL_PIN_HARD;
	holds(a);
	holds(node(10 * GIB, 0, "h2"));
	assert_int_equal(MASTER_GRANT, evict(a, &hard, false));
}

/* The other holder may be dead, or may have lost its copy; wait until that is
 * known. */
static void beside_a_copy_that_is_not_sure_none_is_surplus(void **state)
{
	struct master_member *a = node(10 * GIB, 0, "h1");
	struct master_member *b = node(10 * GIB, 0, "h2");

	(void)state;
	holds(a);
	holds(b);
	b->session = NULL; /* away */
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, false));
	/* The node is back, but its inventory is not complete. */
	assert_int_equal(0, master_member_join(&ms, b, (void *)&ms, 0));
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	holds(b);
	b->inventoried = true;
	assert_int_equal(MASTER_GRANT, evict(a, &shared, true));
	master_member_gone(&ms, b, 1);
	assert_int_equal(MASTER_LAST, evict(a, &shared, true));
}

static int surplus(unsigned int wanted, const struct master_member *keep)
{
	int pos = master_place_surplus(&ms, file, wanted, keep);

	return pos < 0 ? pos : (int)master_holder_index(
				       master_file_holders(file)[pos]);
}

static void a_copy_becomes_cache_only_beside_enough_sure_ones(void **state)
{
	struct master_member *a = node(10 * GIB, 0, "h1");
	struct master_member *b = node(10 * GIB, 5 * GIB, "h2");
	struct master_member *c = node(0, 0, "h3");

	(void)state;
	holds(a);
	holds(c); /* a client's copy does not count */
	assert_int_equal(-1, surplus(1, NULL));
	holds(b);
	assert_int_equal(-1, surplus(2, NULL));
	assert_int_equal(b->index, surplus(1, NULL));
	assert_int_equal(a->index, surplus(1, b));
	master_member_drain(&ms, b, true);
	assert_int_equal(b->index, surplus(1, NULL));
	assert_int_equal(-1, surplus(1, b));
	assert_int_equal(-1, surplus(2, NULL));
	master_member_drain(&ms, a, true); /* no other node would hold it */
	assert_int_equal(-1, surplus(1, NULL));
	master_member_drain(&ms, a, false);
	a->session = NULL;
	assert_int_equal(-1, surplus(1, NULL));
	master_member_drain(&ms, b, false);
	assert_int_equal(-1, surplus(1, NULL));
	assert_int_equal(0, master_member_join(&ms, a, (void *)&ms, 0));
	assert_int_equal(-1, surplus(1, NULL));
	holds(a);
	assert_int_equal(b->index, surplus(1, NULL));
	master_file_remove_holder(file, (unsigned int)master_file_find_holder(
						file, a->index));
	master_file_add_holder(&map, file,
			       master_holder_make(a->index, a->phase) |
				       MASTER_HOLDER_EXTRA);
	assert_int_equal(-1, surplus(1, NULL));
}

static void a_copy_on_a_client_is_no_surplus(void **state)
{
	struct master_member *a = node(10 * GIB, 0, "h1");

	(void)state;
	holds(a);
	holds(node(0, 0, "h2"));
	assert_int_equal(MASTER_LAST, evict(a, &shared, true));
}

static void the_last_copy_moves_while_any_node_has_room(void **state)
{
	struct master_member *a = node(10 * GIB, 10 * GIB, "h1");
	struct master_member *b = node(10 * GIB, 0, "h2"), *to = NULL;

	(void)state;
	holds(a);
	assert_int_equal(MASTER_MOVE, master_place_evict(&ms, file, a, &shared,
							 true, &to));
	assert_ptr_equal(b, to);
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, false));
	a->leaving = MASTER_COMING_MAX;
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	a->leaving = 0;
	b->coming = MASTER_COMING_MAX;
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	b->coming = 0;
	b->used = 10 * GIB;
	master_place_accepting(b);
	a->leaving = 1; /* a copy that is leaving will free space */
	assert_int_equal(MASTER_REFUSE, evict(a, &shared, true));
	a->leaving = 0;
	assert_int_equal(MASTER_LAST, evict(a, &shared, true));
}

static void what_must_not_be_evicted_stays_when_the_pool_is_full(void **state)
{
	struct master_member *a = node(10 * GIB, 10 * GIB, "h1");
	struct pool_rules rules = shared;

	(void)state;
	holds(a);
	rules.class = POOL_CLASS_NOEVICT;
	assert_int_equal(MASTER_KEEP, evict(a, &rules, true));
	rules.class = POOL_CLASS_SHARED;
	rules.pin = POOL_PIN_HARD;
	assert_int_equal(MASTER_KEEP, evict(a, &rules, true));
	rules.pin = POOL_PIN_SOFT;
	assert_int_equal(MASTER_LAST, evict(a, &rules, true));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_copy_goes_where_most_is_free),
		T(another_host_is_preferred_to_more_room),
		T(neither_holders_nor_clients_nor_the_dead_are_targets),
		T(a_target_at_its_bounds_is_waited_for),
		T(a_nearly_full_store_takes_copies_again_only_from_4_percent),
		T(what_only_a_client_has_goes_where_room_can_be_made),
		T(what_must_be_kept_displaces_what_need_not),
		T(what_a_client_has_put_stays_until_a_store_has_it),
		T(a_surplus_copy_may_go_at_any_time),
		T(beside_a_copy_that_is_not_sure_none_is_surplus),
		T(a_copy_becomes_cache_only_beside_enough_sure_ones),
		T(a_copy_on_a_client_is_no_surplus),
		T(the_last_copy_moves_while_any_node_has_room),
		T(what_must_not_be_evicted_stays_when_the_pool_is_full),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
