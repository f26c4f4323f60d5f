/*
 * Directories and attribute bytes, per user and in total: requests beyond the
 * limits are refused; creation, change of owner and removal are counted.
 */
#define NNODES 1
#include <errno.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"
#include "master/impl.h"
#include "pool/model/root.h"

#define USER 4711u
#define DIRS_MAX 16u /* of USER: 4 */
#define BYTES_MAX 8000u /* of USER: 2000 */

static void join(void)
{
	node[0].nnames = node[0].completes = 0;
	fake_dial(&node[0], &loop, master_port(master));
	fake_send_join(&node[0]);
	run_until(&loop, node[0].welcomed);
}

static void begin(uint64_t dirs, uint64_t bytes)
{
	stop_master();
	run_until(&loop, node[0].closed || !node[0].conn);
	opts.dirs_max = dirs;
	opts.attr_bytes_max = bytes;
	start_master();
	join();
	fake_inventory(&node[0], NULL, 0, true);
	fake_subscribe(&node[0], 0, 0);
	run_until(&loop, node[0].completes >= 1);
}

/* Requests a change with one xattr of `bytes` bytes; 0: none. */
static int ask(Kvpool__Op__Kind kind, const char *path, uint32_t uid,
	       size_t bytes, uint32_t set)
{
	static char value[4096];
	Kvpool__Op o = KVPOOL__OP__INIT;
	Kvpool__Xattr x = KVPOOL__XATTR__INIT, *xs[1] = { &x };
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	meta.uid = uid;
	x.name = (char *)(uintptr_t)"user.x";
	x.value.data = (uint8_t *)value;
	x.value.len = bytes;
	meta.xattrs = xs;
	meta.n_xattrs = bytes > 0;
	o.kind = kind;
	o.set = set;
	o.meta = &meta;
	return fake_op(&node[0], &o);
}

static int op(Kvpool__Op__Kind kind, const char *path, uint32_t uid,
	      size_t bytes, uint32_t set)
{
	int status = ask(kind, path, uid, bytes, set);

	master_map_check(&master->map);
	return status;
}

static int make_dir(const char *path, uint32_t uid, size_t bytes)
{
	return op(KVPOOL__OP__KIND__MKDIR, path, uid, bytes, 0);
}

static int put(const char *path, uint32_t uid, size_t bytes)
{
	return op(KVPOOL__OP__KIND__PUBLISH, path, uid, bytes, 0);
}

static int set_attr(const char *path, size_t bytes)
{
	return op(KVPOOL__OP__KIND__SETATTR, path, USER, bytes,
		  POOL_SET_XATTRS);
}

static int give(const char *path, uint32_t uid)
{
	return op(KVPOOL__OP__KIND__SETATTR, path, uid, 0, POOL_SET_UID);
}

static struct pool_usage has(uint32_t uid)
{
	return pool_quota_of(&master->map.quota, uid);
}

static uint64_t refused(enum master_counter c)
{
	return pool_counter_value(&master->stats.c[c]);
}

static void make_n(const char *prefix, uint32_t uid, unsigned int n)
{
	char path[16];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s%u", prefix, i);
		assert_int_equal(0, make_dir(path, uid, 0));
	}
}

static void remove_n(const char *prefix, unsigned int n)
{
	char path[16];

	for (unsigned int i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s%u", prefix, i);
		assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__RMDIR,
					    path));
	}
}

static void a_user_makes_so_many_directories_and_root_more(void **state)
{
	(void)state;
	begin(DIRS_MAX, 0);
	make_n("u", USER, 4);
	assert_int_equal(-EDQUOT, make_dir("u4", USER, 0));
	assert_int_equal(0, make_dir("u3", USER, 0)); /* it exists */
	assert_int_equal(1, refused(MC_QUOTA_USER));
	make_n("v", USER + 1, 4);
	make_n("w", USER + 2, 4);
	make_n("x", USER + 3, 2);
	assert_int_equal(-ENOSPC, make_dir("x2", USER + 3, 0));
	make_n("root", 0, 2);
	assert_int_equal(-ENOSPC, make_dir("root2", 0, 0));
	assert_int_equal(2, refused(MC_QUOTA_POOL));
	remove_n("u", 2);
	remove_n("root", 2);
	make_n("u", USER, 2);
}

static void directories_on_the_way_are_their_file_s_owner_s(void **state)
{
	(void)state;
	begin(DIRS_MAX, 0);
	assert_int_equal(-EDQUOT, put("a/b/c/d/e/k", USER, 0));
	assert_int_equal(0, master->map.ndirs);
	assert_int_equal(0, put("a/b/c/k", USER, 0));
	assert_int_equal(3, has(USER).dirs);
	assert_int_equal(-EDQUOT, make_dir("a/b/c/d/e", USER, 0));
	assert_int_equal(0, put("a/b/c/l", USER, 0));
	assert_int_equal(0, make_dir("a", USER + 1, 0)); /* made, and given */
	assert_int_equal(2, has(USER).dirs);
	assert_int_equal(1, has(USER + 1).dirs);
}

static void attributes_are_bounded_however_they_come(void **state)
{
	(void)state;
	begin(0, BYTES_MAX);
	assert_int_equal(-EDQUOT, make_dir("d", USER, 2000));
	assert_null(master_map_dir(&master->map, "d", 1));
	assert_int_equal(-EDQUOT, put("k", USER, 2000));
	assert_null(master_map_file(&master->map, "k", 1));
	assert_int_equal(0, make_dir("d", USER, 900));
	assert_int_equal(0, put("k", USER, 900));
	assert_int_equal(-EDQUOT, set_attr("d", 1200));
	assert_int_equal(-EDQUOT, set_attr("k", 1200));
	assert_int_equal(0, set_attr("d", 100)); /* a shorter value */
	assert_int_equal(0, set_attr("k", 1700));
	assert_int_equal(-EDQUOT, set_attr("d", 400));
	assert_int_equal(0, set_attr("k", 0));
	assert_int_equal(0, set_attr("d", 1700));
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__RMDIR, "d"));
	assert_int_equal(0, put("k", USER, 1900)); /* a new version */
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "k"));
	assert_int_equal(0, master->map.quota.used.bytes);
	assert_int_equal(5, refused(MC_QUOTA_USER));
}

static void what_is_given_away_is_the_new_owner_s(void **state)
{
	(void)state;
	begin(DIRS_MAX, BYTES_MAX);
	assert_int_equal(0, make_dir("d", USER, 500));
	assert_int_equal(0, put("k", USER, 500));
	assert_int_equal(0, give("d", 5));
	assert_int_equal(0, give("k", 5));
	assert_int_equal(0, has(USER).dirs + has(USER).bytes);
	assert_int_equal(1, has(5).dirs);
	assert_true(has(5).bytes > 1000);
	assert_int_equal(0, give("", 5)); /* the root counts for no user */
	assert_int_equal(1, has(5).dirs);
}

static void an_older_state_beyond_the_limits_is_kept(void **state)
{
	(void)state;
	begin(0, 0);
	make_n("d", USER, 8);
	assert_int_equal(0, make_dir("e", USER, 3000));
	begin(DIRS_MAX, BYTES_MAX);
	assert_int_equal(9, has(USER).dirs);
	assert_true(has(USER).bytes > 3000);
	assert_int_equal(-EDQUOT, make_dir("f", USER, 0));
	assert_int_equal(-EDQUOT, set_attr("d1", 10));
	assert_int_equal(0, give("d1", USER)); /* no addition */
	assert_int_equal(0, make_dir("root", 0, 0));
}

static void an_inventory_is_never_refused(void **state)
{
	(void)state;
	begin(4, 0);
	stop_master();
	run_until(&loop, node[0].closed || !node[0].conn);
	start_master();
	join();
	fake_inventory(&node[0], "a/b/c/d/e/f/k",
		       (node[0].epoch - 1) << POOL_GEN_SEQ_BITS | 1, true);
	fake_subscribe(&node[0], 0, 0);
	run_until(&loop, fake_find(&node[0], "a/b/c/d/e/f/k"));
	assert_int_equal(6, master->map.quota.used.dirs);
	assert_int_equal(0, put("a/k", 0, 0));
	assert_int_equal(-ENOSPC, make_dir("b", 0, 0));
}

/* Directories that were created and removed again leave no records. */
static void the_state_shrinks_when_directories_go(void **state)
{
	uint64_t most, end;
	char path[16];

	(void)state;
	begin(0, 0);
	for (int i = 0; i < 6000; i++) { /* causes a compaction */
		snprintf(path, sizeof(path), "d%d", i);
		assert_int_equal(0, ask(KVPOOL__OP__KIND__MKDIR, path, 0, 3000,
					0));
	}
	most = master_state_bytes(master->state);
	remove_n("d", 6000);
	end = pool_now_ms() + 15000;
	while (master_state_bytes(master->state) > most / 8 &&
	       pool_now_ms() < end)
		run_ms(&loop, 50);
	assert_true(master_state_bytes(master->state) < most / 8);
	assert_int_equal(0, master->map.quota.used.bytes);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(a_user_makes_so_many_directories_and_root_more),
		T(directories_on_the_way_are_their_file_s_owner_s),
		T(attributes_are_bounded_however_they_come),
		T(what_is_given_away_is_the_new_owner_s),
		T(an_older_state_beyond_the_limits_is_kept),
		T(an_inventory_is_never_refused),
		T(the_state_shrinks_when_directories_go),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
