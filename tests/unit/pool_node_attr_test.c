/* Attributes that several nodes change at the same time; and limits on the
 * attributes and directories of a user (pool/node/attr.c, change.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- attributes ---- */

/* A user who chooses names cannot predict their hashes. */
static void changes_are_found_by_a_hash_with_a_seed(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	publish(f, 0, "k", 1000, 1);
	e = find(f, 0, "k");
	assert_int_equal(0, pool_node_setattr(node(f, 0), &e->e, POOL_SET_MODE,
					      pool_node_attr(&e->e), NULL));
	assert_non_null(pool_hash_first(
		&node(f, 0)->changes,
		(uint32_t)XXH3_64bits_withSeed("k", 1, pool_hash_seed())));
}

static void attributes_travel_with_the_feed(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { .mode = 0604, .uid = 7 };
	struct pool_xattrs *x = NULL;
	struct node_entry *e;
	size_t len = 0;

	start_pool(f, 2);
	publish_and_see(f, "k", 1000, 1);
	assert_int_equal(0, pool_xattrs_set(&x, "user.a", "bc", 2, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &find(f, 0, "k")->e,
					      POOL_SET_MODE | POOL_SET_XATTRS,
					      &attr, x));
	e = find(f, 1, "k");
	run_until(f, e->attr.mode == 0604);
	assert_int_equal(1000, e->attr.uid); /* not asked for */
	assert_memory_equal("bc", pool_xattrs_get(e->xattrs, "user.a", &len),
			    2);
	assert_int_equal(1, f->m[1].calls.attr_changed);
	assert_int_equal(0, f->m[1].calls.changed);
}

static void xattrs_set_on_two_nodes_at_once_both_last(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a, *b;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	a = &find(f, 0, "k")->e;
	b = &find(f, 1, "k")->e;
	assert_int_equal(0, set_xattr(f, 0, a, "user.kvpool.pin", "hard"));
	assert_int_equal(0, set_xattr(f, 1, b, "user.kvpool.replicas", "2"));
	assert_int_equal(0, set_xattr(f, 0, a, "user.both", "a"));
	assert_int_equal(0, set_xattr(f, 1, b, "user.both", "b"));
	run_until(f, all_answered(f, 0) && all_answered(f, 1));
	run_until(f, has_xattr(a, "user.kvpool.replicas", "2") &&
			     has_xattr(b, "user.kvpool.pin", "hard"));
	run_for(f, 60);
	assert_true(has_xattr(a, "user.kvpool.pin", "hard"));
	assert_true(has_xattr(b, "user.kvpool.replicas", "2"));
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
	assert_int_equal(0, set_xattr(f, 1, b, "user.kvpool.pin", NULL));
	run_until(f, !has_xattr(a, "user.kvpool.pin", "hard"));
	assert_true(has_xattr(a, "user.kvpool.replicas", "2"));
	/* Also as the whole set, which older nodes send. */
	assert_int_equal(0, pool_node_setattr(node(f, 0), a, POOL_SET_XATTRS,
					      pool_node_attr(a), NULL));
	run_until(f, !pool_node_xattrs(b));
}

/* Each node has room for its own xattr; the master has no room for both. */
static void an_xattr_that_the_master_refuses_does_not_stay(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a, *b;
	char big[3000];

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	a = &find(f, 0, "k")->e;
	b = &find(f, 1, "k")->e;
	memset(big, 'x', sizeof(big));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), a, "user.a", big,
					       sizeof(big), 0));
	assert_int_equal(0, pool_node_setxattr(node(f, 1), b, "user.b", big,
					       sizeof(big), 0));
	run_until(f, all_answered(f, 0) && all_answered(f, 1));
	run_until(f, pool_node_xattrs(a) && pool_node_xattrs(b) &&
			     pool_xattrs_equal(pool_node_xattrs(a),
					       pool_node_xattrs(b)));
	run_for(f, 60);
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
}

/* A directory that is created again before the master has removed it is a new
 * one. */
static void a_directory_made_again_has_no_attributes(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *root, *d;

	start_pool(f, 2);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), &d->d.e,
					       "user.kvpool.replicas", "2", 1,
					       0));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	assert_null(d->xattrs);
	assert_int_equal(0, d->rules.replicas);
	run_until(f, all_answered(f, 0));
	assert_null(master_map_dir(&f->master->map, "d", 1)->extra);
	/* A directory that could not be removed keeps its attributes. */
	assert_int_equal(0, pool_node_setxattr(node(f, 0), &d->d.e, "user.a",
					       "1", 1, 0));
	run_until(f, all_answered(f, 0) && known(f, 1, "d"));
	put_in(f, 1, node_dir(pool_tree_lookup(&node(f, 1)->tree, "d", 1)),
	       "k", 100, 1);
	run_until(f, f->master->map.nfiles == 1);
	if (d->d.nchildren)
		return; /* the node knows of it already */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	run_until(f, all_answered(f, 0) && d->xattrs);
}

/* ---- what names cost ---- */

/* A pool of n nodes, in which USER may have a quarter of `dirs` and `bytes`. */
static void start_small_pool(struct fixture *f, int n, uint64_t dirs,
			     uint64_t bytes)
{
	start_master(f);
	pool_quota_limit(&f->master->map.quota, dirs, bytes);
	for (int i = 0; i < n; i++)
		start_node(f, i);
	for (int i = 0; i < n; i++)
		run_until(f, is_up(f, i));
	run_until(f, master_ready(f->master));
}

static bool counts_alike(struct fixture *f, int i)
{
	return pool_quota_equal(&node(f, i)->quota, &f->master->map.quota);
}

static void directories_beyond_a_user_s_are_refused_at_once(void **state)
{
	struct node_dirent *d[4], *other;
	struct fixture *f = *state;
	struct pool_entry *to;
	char name[] = "d0";

	start_small_pool(f, 2, 16, 0);
	for (int i = 0; i < 4; i++, name[1]++)
		assert_int_equal(0, mkdir_top(f, 0, name, &d[i]));
	assert_int_equal(-EDQUOT, mkdir_in(f, 0, d[3], "e", &other));
	assert_false(known(f, 0, "d3/e"));
	assert_int_equal(1, pool_counter_value(&node(f, 0)->c.quota_refused));
	run_until(f, counts_alike(f, 0) && counts_alike(f, 1));
	assert_int_equal(-EDQUOT, mkdir_top(f, 1, "e", &other));
	/* A removed directory does not count, even before the ack. */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[0]));
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), other));
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(-EDQUOT, mkdir_top(f, 0, "f", &other));
	check_nodes(f);
	/* An empty directory that is renamed. */
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[1]));
	assert_int_equal(0, pool_node_rename(
				    node(f, 0), &d[2]->d.e,
				    pool_node_root(node(f, 0)), "to", 2, false,
				    &to));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d[2]));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0) &&
			     counts_alike(f, 1));
	assert_int_equal(3, node(f, 1)->quota.used.dirs);
}

static int set_attr(struct fixture *f, int i, struct pool_entry *e,
		    const char *name, size_t len)
{
	static char value[4096];

	return pool_node_setxattr(node(f, i), e, name, value, len, 0);
}

static void attributes_beyond_a_user_s_are_refused_at_once(void **state)
{
	struct fixture *f = *state;
	struct node_attr root = { .uid = 0 };
	struct node_object *o;
	struct node_dirent *d;
	struct pool_entry *e;

	start_small_pool(f, 2, 0, 8000);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	e = &d->d.e;
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.a", 2000));
	assert_null(pool_node_xattrs(e));
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 1000));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 1000));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), e, "user.a", NULL,
					       0, 0));
	assert_int_equal(0, set_attr(f, 0, e, "user.b", 1000));
	run_until(f, all_answered(f, 0) && counts_alike(f, 1));
	/* Given to root, which has no limit per user. */
	assert_int_equal(0, pool_node_setattr(node(f, 0), e, POOL_SET_UID,
					      &root, NULL));
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 2000));
	/* A file before it is published (create_in: user 1000) and after; a
	 * copy that is being written; an unlinked open file. */
	o = create_in(f, 0, d, "k", 0);
	e = &o->entry->e;
	assert_int_equal(0, set_attr(f, 0, e, "user.a", 1900));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 100));
	write_bytes(f, 0, o, 100, 1);
	close_whole(f, 0, o);
	run_until(f, all_answered(f, 0) && !node_file(e)->own &&
			     counts_alike(f, 0) && counts_alike(f, 1));
	assert_int_equal(-EDQUOT, set_attr(f, 0, e, "user.b", 100));
	assert_int_equal(0, pool_node_unlink(node(f, 0), node_file(e)));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0) &&
			     counts_alike(f, 1));
	o = node_object_ref(create_in(f, 0, d, "l", 0));
	assert_int_equal(0, set_attr(f, 0, &o->entry->e, "user.a", 1900));
	assert_int_equal(0, pool_node_unlink(node(f, 0), o->entry));
	check_nodes(f);
	assert_true(counts_alike(f, 0));
	pool_node_writer_closed(node(f, 0), o);
	node_object_unref(node(f, 0), o);
}

/* Changes that nodes grant and the master refuses are undone. */
static void what_the_master_has_no_room_for_does_not_stay(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e, *root;

	start_small_pool(f, 1, 4, 8000);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "x", 1, &writers,
					    &e)); /* uses up the user's share */
	run_until(f, all_answered(f, 0));
	pool_quota_limit(&node(f, 0)->quota, 0, 0); /* no limit */
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	run_until(f, all_answered(f, 0));
	assert_null(pool_node_lookup(node(f, 0), root, "e", 1));
	assert_false(known(f, 0, "e"));
	assert_int_equal(-EDQUOT, pool_node_lost(root));
	assert_int_equal(0, pool_node_lost(root));
	/* Files in it are not published, either. */
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	e->fs = f; /* as if it were open */
	put_in(f, 0, e, "k", 100, 1);
	run_until(f, e->d.nchildren == 0 && all_answered(f, 0));
	assert_int_equal(-EDQUOT, pool_node_lost(e));
	assert_null(master_map_dir(&f->master->map, "e", 1));
	assert_null(there(f, 0, "e"));
	e->fs = NULL;
	pool_node_tidy(node(f, 0), &e->d.e);
	assert_int_equal(0, set_attr(f, 0, &d->d.e, "user.a", 3000));
	run_until(f, all_answered(f, 0) && !d->xattrs);
	run_until(f, !known(f, 0, "e") && counts_alike(f, 0));
}

static void the_accounts_outlive_master_and_node(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	struct pool_entry *k;

	start_pool(f, 1);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, mkdir_in(f, 0, d, "e", &e));
	assert_int_equal(0, set_attr(f, 0, &e->d.e, "user.a", 100));
	put_in(f, 0, e, "k", 100, 1);
	run_until(f, (k = pool_tree_lookup(&node(f, 0)->tree, "d/e/k", 5)) &&
			     !node_file(k)->own);
	assert_int_equal(0, set_attr(f, 0, k, "user.a", 200));
	run_until(f, all_answered(f, 0) && counts_alike(f, 0));
	stop_master(f);
	start_master(f);
	run_until(f, is_up(f, 0) && counts_alike(f, 0));
	assert_int_equal(2, node(f, 0)->quota.used.dirs);
	assert_true(node(f, 0)->quota.used.bytes > 300);
	stop_node(f, 0);
	stop_master(f);
	start_node(f, 0); /* finds its objects */
	node_check(node(f, 0));
	assert_int_equal(2, node(f, 0)->quota.used.dirs);
	start_master(f);
	run_until(f, is_up(f, 0) && counts_alike(f, 0));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(changes_are_found_by_a_hash_with_a_seed),
		T(attributes_travel_with_the_feed),
		T(xattrs_set_on_two_nodes_at_once_both_last),
		T(an_xattr_that_the_master_refuses_does_not_stay),
		T(a_directory_made_again_has_no_attributes),
		T(directories_beyond_a_user_s_are_refused_at_once),
		T(attributes_beyond_a_user_s_are_refused_at_once),
		T(what_the_master_has_no_room_for_does_not_stay),
		T(the_accounts_outlive_master_and_node),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
