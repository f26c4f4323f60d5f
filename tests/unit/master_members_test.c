/* The table of members: places that may be reused; figures. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

#include "master/members.h"

static struct master_members ms;

static int setup(void **state)
{
	(void)state;
	master_members_init(&ms);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	master_members_fini(&ms);
	return 0;
}

static int make(unsigned int k, struct master_member **ret)
{
	uint8_t id[POOL_ID_SIZE] = { 1, (uint8_t)k, (uint8_t)(k >> 8) };

	return master_members_make(&ms, id, ret);
}

/* A patrol begins and ends. */
static void sweep(void)
{
	master_members_sweep_begin(&ms);
	master_members_sweep_end(&ms);
}

/* Fills all places with connected nodes. */
static void fill(void)
{
	static uint8_t session;
	struct master_member *mb;
	unsigned int k;

	for (k = 0; k < MASTER_NODES_MAX; k++) {
		assert_int_equal(0, make(k, &mb));
		assert_int_equal(k, mb->index);
		assert_int_equal(0, master_member_join(
				    &ms, mb, (void *)&session, 1));
		mb->inventoried = true;
	}
}

static void
a_place_is_free_once_a_patrol_has_taken_its_holders_away(void **state)
{
	struct master_member *mb, *left = NULL;

	(void)state;
	fill();
	assert_int_equal(0, make(7, &left));
	sweep();
	/* A place is free only after a patrol that began after its node
	 * left. */
	master_member_gone(&ms, left, 1);
	assert_int_equal(-ENOSPC, make(MASTER_NODES_MAX, &mb));
	sweep();
	assert_int_equal(0, make(MASTER_NODES_MAX, &mb));
	assert_int_equal(7, mb->index);
}

static void a_patrol_that_began_before_a_node_left_frees_nothing(void **state)
{
	struct master_member *mb, *left = NULL;

	(void)state;
	fill();
	assert_int_equal(0, make(7, &left));
	sweep();
	master_members_sweep_begin(&ms);
	master_member_gone(&ms, left, 1);
	master_members_sweep_end(&ms);
	assert_int_equal(-ENOSPC, make(MASTER_NODES_MAX, &mb));
	sweep();
	assert_int_equal(0, make(MASTER_NODES_MAX, &mb));
}

static void a_description_has_no_control_bytes(void **state)
{
	Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;
	struct master_member *mb;

	(void)state;
	assert_int_equal(0, make(1, &mb));
	info.name = "a\033[2Jb\n";
	info.advertise = "h\033c:1";
	master_member_describe(&ms, mb, &info);
	assert_string_equal("a?[2Jb?", mb->name);
	assert_string_equal("h?c:1", mb->advertise);
}

static void
what_a_patrol_finds_kept_is_not_evictable_on_a_store_without_a_mount(
	void **state)
{
	Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;
	struct master_member *mb;

	(void)state;
	assert_int_equal(0, make(1, &mb));
	info.name = info.advertise = "a";
	info.is_store = true;
	info.capacity = info.used = info.evictable = 100 * 4096;
	for (int mount = 0; mount < 2; mount++) {
		info.is_mount = mount;
		master_member_describe(&ms, mb, &info);
		master_members_sweep_begin(&ms);
		master_member_keeps(mb, 4096);
		master_member_keeps(mb, 1);
		master_members_sweep_end(&ms);
		master_member_figures(&ms, mb, &info);
		assert_int_equal((mount ? 100 : 98) * 4096, mb->evictable);
	}
	/* The store has subtracted one of the two itself, ... */
	info.is_mount = false;
	info.evictable = 99 * 4096;
	master_member_describe(&ms, mb, &info);
	assert_int_equal(98 * 4096, mb->evictable);
	/* ... or more than the patrol has found. */
	info.evictable = 4096;
	master_member_describe(&ms, mb, &info);
	assert_int_equal(4096, mb->evictable);
	info.used = info.evictable = 4096;
	master_member_describe(&ms, mb, &info);
	assert_int_equal(0, mb->evictable);
	sweep();
	assert_int_equal(4096, mb->evictable);
}

static void check_figures(uint64_t capacity, uint64_t used, uint64_t evictable,
			  bool possible, const uint64_t want[3])
{
	Kvpool__NodeInfo info = KVPOOL__NODE_INFO__INIT;
	struct master_totals totals;
	static uint8_t session;
	struct master_member *mb;
	uint64_t changes;

	info.name = info.advertise = "a";
	info.is_store = true;
	info.capacity = capacity;
	info.used = used;
	info.evictable = evictable;
	for (unsigned int k = 0; k < 2; k++) {
		assert_int_equal(0, make(k, &mb));
		mb->session = (void *)&session;
		assert_int_equal(possible,
				 master_member_describe(&ms, mb, &info));
		/* The same again is no news for mounts. */
		changes = ms.changes;
		assert_int_equal(possible,
				 master_member_figures(&ms, mb, &info));
		assert_int_equal(changes, ms.changes);
	}
	master_members_totals(&ms, &totals);
	assert_int_equal(2 * want[0], totals.capacity);
	assert_int_equal(2 * want[1], totals.used);
	assert_int_equal(2 * want[2], totals.evictable);
}

static void figures_that_cannot_be_are_told_and_bounded(void **state)
{
	const uint64_t max = MASTER_CAPACITY_MAX;

	(void)state;
	check_figures(100, 100, 104, true, (uint64_t[]){ 100, 100, 100 });
	check_figures(max, max, 0, true, (uint64_t[]){ max, max, 0 });
	check_figures(100, 101, 0, false, (uint64_t[]){ 100, 100, 0 });
	check_figures(100, 0, 202, false, (uint64_t[]){ 100, 0, 100 });
	check_figures(max + 1, 1, 1, false, (uint64_t[]){ 0, 0, 0 });
	check_figures(UINT64_MAX, UINT64_MAX - 1, 0, false,
		      (uint64_t[]){ 0, 0, 0 });
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_place_is_free_once_a_patrol_has_taken_its_holders_away),
		T(a_patrol_that_began_before_a_node_left_frees_nothing),
		T(what_a_patrol_finds_kept_is_not_evictable_on_a_store_without_a_mount),
		T(a_description_has_no_control_bytes),
		T(figures_that_cannot_be_are_told_and_bounded),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
