/* Renames, unlinks and directories, as this and another node show them
 * (pool/node/name.c, entry.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>

#include "tests/unit/master_tomb.h"
#include "tests/unit/pool_node_fixture.h"

/* ---- renaming ---- */

static void a_held_object_moves_without_a_copy(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	start_pool(f, 2);
	publish(f, 0, "old", 100000, 1);
	run_until(f, find(f, 1, "old"));
	id = find(f, 0, "old")->obj->id;
	assert_int_equal(0, rename_to(f, 0, "old", "new", false));
	assert_null(find(f, 0, "old"));
	assert_true(is_pending(f, 0, "new"));
	run_until(f, is_published(f, 0, "new"));
	assert_int_equal(id, find(f, 0, "new")->obj->id);
	assert_readable(f, 0, "new", 100000, 1);
	run_until(f, find(f, 1, "new") && !find(f, 1, "old"));
	run_until(f, !known(f, 0, "old"));
	assert_readable(f, 1, "new", 100000, 1);
}

static void what_is_not_here_is_not_moved(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_int_equal(-EXDEV, rename_to(f, 1, "k", "new", false));
	assert_non_null(find(f, 1, "k"));
	assert_false(known(f, 1, "new"));
}

static void a_rename_replaces_what_is_there_except_with_noreplace(void **state)
{
	struct fixture *f = *state;
	uint64_t gen, id;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	gen = find(f, 0, "k")->gen;
	id = find(f, 0, "k")->obj->id;
	put(f, 0, "k.tmp", 2000, 2);
	assert_int_equal(-EEXIST, rename_to(f, 0, "k.tmp", "k", true));
	assert_non_null(find(f, 0, "k.tmp"));
	assert_int_equal(0, rename_to(f, 0, "k.tmp", "k", false));
	assert_null(find(f, 0, "k.tmp"));
	assert_true(find(f, 0, "k")->own != NULL);
	run_until(f, is_published(f, 0, "k"));
	assert_true(find(f, 0, "k")->gen > gen);
	assert_readable(f, 0, "k", 2000, 2);
	assert_int_equal(-ENOENT, pool_store_fd(pool_node_store(node(f, 0)),
						id, O_RDONLY));
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->size == 2000);
	assert_readable(f, 1, "k", 2000, 2);

	/* A published file over a published one. */
	publish(f, 0, "other", 3000, 3);
	assert_int_equal(0, rename_to(f, 0, "other", "k", false));
	run_until(f, is_published(f, 0, "k"));
	assert_readable(f, 0, "k", 3000, 3);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->size == 3000);
	run_until(f, !known(f, 1, "other"));
}

/* ---- unlinking ---- */

/* The new name would be published as its owner's: the master refuses that if
 * the certificate does not speak for him, and the old name is gone by then. */
static void files_of_users_that_it_does_not_speak_for_are_not_renamed(
	void **state)
{
	struct pool_tls_id own = { .nuids = 1, .uids = { 1000 } };
	struct pool_tls_id other = { .nuids = 1, .uids = { 1001 } };
	struct fixture *f = *state;

	start_pool(f, 1);
	publish(f, 0, "k", 1000, 1);
	node(f, 0)->self = &other;
	assert_int_equal(-EACCES, rename_to(f, 0, "k", "new", false));
	assert_true(is_published(f, 0, "k"));
	assert_null(find(f, 0, "new"));
	node(f, 0)->self = &own;
	assert_int_equal(0, rename_to(f, 0, "k", "new", false));
	node(f, 0)->self = NULL;
	run_until(f, is_published(f, 0, "new"));
	assert_readable(f, 0, "new", 1000, 1);
}

static void an_unlinked_name_is_hidden_at_once_and_stays_away(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	run_until(f, find(f, 1, "k"));
	o = node_object_ref(find(f, 0, "k")->obj);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	assert_null(find(f, 0, "k"));
	assert_int_equal(NODE_DROPPED, o->state);
	node_object_unref(node(f, 0), o);
	run_until(f, !known(f, 0, "k") && !known(f, 1, "k"));
	assert_int_equal(1, f->m[1].calls.changed);
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, is_up(f, 0));
	assert_null(find(f, 0, "k"));
	assert_null(find(f, 1, "k"));
	/* The name may be used again. */
	publish(f, 1, "k", 10, 2);
	run_until(f, find(f, 0, "k"));
}

/* A put whose publication is in flight. (On a stalled machine one turn may
 * handle the ack, too: then it is put again.) */
static struct node_entry *put_on_its_way(struct fixture *f,
					 struct node_dirent *d, const char *k)
{
	struct node_entry *e;

	for (;;) {
		put_in(f, 0, d, k, 1000, 1);
		e = find_in(f, 0, d, k);
		run_until(f, !e->own || (e->own->state == NODE_PENDING &&
					 node_op_sent(node(f, 0), e->own)));
		if (e->own)
			return e;
		assert_int_equal(0, pool_node_unlink(node(f, 0), e));
		run_until(f, all_answered(f, 0) && !find_in(f, 0, d, k));
	}
}

static void unlinking_what_the_master_is_about_to_name_removes_it(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[] = "k";

	start_pool(f, 2);
	e = put_on_its_way(f, pool_node_root(node(f, 0)), "k");
	assert_int_equal(-EAGAIN, pool_node_unseal(node(f, 0), e->own));
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_null(find(f, 0, "k"));
	/* The feed may list the name before the unlink is acked. */
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find(f, 0, "k"));
	assert_int_equal(0, f->m[0].calls.appeared);
	run_until(f, pool_list_empty(&node(f, 0)->ops_sent) &&
			     pool_list_empty(&node(f, 0)->ops_waiting) &&
			     (assert_null(find(f, 0, "k")), true));
	run_until(f, !known(f, 0, "k"));
	/* Nor after a later change has been seen. */
	publish(f, 0, "later", 10, 2);
	run_until(f, find(f, 1, "later"));
	assert_null(find(f, 1, "k"));
}

/* Each unlink comes while the publication is in flight, some of them before the
 * earlier ones are acked. */
static void what_is_unlinked_again_and_again_does_not_come_back(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 1);
	for (unsigned int i = 0; i < 100; i++) {
		put(f, 0, "k", 100, i);
		e = find(f, 0, "k");
		/* on a busy machine one turn may handle the ack, too */
		run_until(f, !e->own || (e->own->state == NODE_PENDING &&
					 node_op_sent(node(f, 0), e->own)));
		assert_int_equal(0, pool_node_unlink(node(f, 0), e));
		if (i % 3 == 2)
			run_until(f, all_answered(f, 0) ||
					     (assert_null(find(f, 0, "k")),
					      false));
		assert_null(find(f, 0, "k"));
	}
	run_until(f, !known(f, 0, "k"));
}

/* The master may have the file, and lists it until a patrol after the node's
 * return. */
static void unlinking_what_was_in_flight_at_a_cut_is_sent(
	void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[] = "k";

	start_pool(f, 2);
	e = put_on_its_way(f, pool_node_root(node(f, 0)), "k");
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	assert_true(is_pending(f, 0, "k"));
	assert_false(node_op_sent(node(f, 0), e->own));
	assert_int_equal(0, pool_node_unlink(node(f, 0), e));
	assert_false(all_answered(f, 0));
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find(f, 0, "k"));
	start_master(f);
	run_until(f, is_up(f, 0) && all_answered(f, 0));
	run_until(f, !known(f, 0, "k"));
}

/* The same for the old name of a rename; its directory can be removed. */
static void renaming_what_the_master_is_about_to_name_hides_the_old_name(
	void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d;
	struct pool_entry *to;
	struct node_entry *e;
	char name[] = "d/k";

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	e = put_on_its_way(f, d, "k");
	assert_int_equal(0, pool_node_rename(node(f, 0), &e->e,
					     pool_node_root(node(f, 0)), "to",
					     2, false, &to));
	pool_node_tidy(node(f, 0), &e->e);
	/* The feed may list the name before the unlink is acked. */
	feed_names(f, 0, name, 1ull << POOL_GEN_SEQ_BITS | 1);
	assert_null(find_in(f, 0, d, "k"));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	run_until(f, is_published(f, 0, "to") && all_answered(f, 0));
	run_until(f, !known(f, 0, "d") && find(f, 1, "to") &&
			     !known(f, 1, "d"));
	assert_readable(f, 1, "to", 1000, 1);
}

/* The tombstone counts for the owner's account. */
static void the_owner_of_an_unpublished_file_is_sent(
	void **state)
{
	struct fixture *f = *state;
	struct master_map *map;

	start_pool(f, 1);
	map = &f->master->map;
	publish(f, 0, "k", 1000, 1); /* a generation is seen */
	put(f, 0, "l", 1000, 1);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "l")));
	run_until(f, tomb_gen(map, "l", 1));
	assert_int_equal(1000, master_map_grave(map, "l", 1)->uid);
}

static void the_rule_unlink_node_hides_a_name_here_only(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	struct node_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.unlink", "node",
					    4, 0));
	assert_int_equal(0, pool_node_setattr(
				    node(f, 1),
				    &pool_node_root(node(f, 1))->d.e,
				    POOL_SET_XATTRS,
				    &pool_node_root(node(f, 1))->attr, x));
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k"));
	assert_readable(f, 1, "k", 1000, 1);
	assert_int_equal(0, pool_node_unlink(node(f, 1), find(f, 1, "k")));
	assert_null(find(f, 1, "k"));
	run_for(f, 60);
	assert_null(find(f, 1, "k"));
	e = find(f, 0, "k");
	assert_non_null(e);
	assert_readable(f, 0, "k", 1000, 1);
	/* A newer generation is shown. */
	publish(f, 0, "k", 1000, 2);
	run_until(f, find(f, 1, "k"));
}

/* ---- directories ---- */

static void directories_come_and_go_on_both_nodes(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d = NULL, *other;
	struct pool_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	assert_int_equal(-EEXIST,
			 pool_node_mkdir(node(f, 0),
					 pool_node_root(node(f, 0)), "d", 1,
					 &attr, &other));
	assert_int_equal(-EBUSY, pool_node_rmdir(node(f, 0),
					 pool_node_root(node(f, 0))));
	put_in(f, 0, d, "k", 1000, 1);
	assert_int_equal(-ENOTEMPTY, pool_node_rmdir(node(f, 0), d));
	run_until(f, known(f, 1, "d/k"));
	e = pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)), "d", 1);
	assert_true(e->is_dir);
	assert_int_equal(0750, pool_node_attr(e)->mode);
	assert_int_equal(-ENOTEMPTY, pool_node_rmdir(node(f, 1),
						     node_dir(e)));
	assert_int_equal(0, pool_node_unlink(node(f, 1),
					     find_in(f, 1, node_dir(e), "k")));
	assert_int_equal(0, pool_node_rmdir(node(f, 1), node_dir(e)));
	assert_null(pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)),
				     "d", 1));
	run_until(f, !known(f, 1, "d") && !known(f, 0, "d"));
	assert_int_equal(1, f->m[0].calls.dir_gone);
}

/* The feed may repeat the removal of a name after that of its directory. */
static void a_directory_goes_before_the_names_that_were_in_it(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_dirent *d, *sub;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), d, "sub", 3, &attr,
					    &sub));
	put_in(f, 0, d, "k", 1000, 1);
	put_in(f, 0, sub, "k", 1000, 1);
	run_until(f, known(f, 1, "d/k") && known(f, 1, "d/sub/k"));
	feed_deleted(f, 1, "d", true);
	assert_false(known(f, 1, "d/k"));
	assert_false(known(f, 1, "d"));
	assert_int_equal(2, f->m[1].calls.dir_gone);
	feed_deleted(f, 1, "d/k", false);
	feed_deleted(f, 1, "d/sub/k", false);
	feed_deleted(f, 1, "d/sub", true);
	assert_false(known(f, 1, "d"));
}

/* A file that is only on this node keeps its directory: it will create it
 * again. */
static void a_directory_with_what_is_being_written_stays(void **state)
{
	static const struct node_attr attr = { .mode = 0750 };
	struct fixture *f = *state;
	struct node_object *o;
	struct node_dirent *d;
	struct pool_entry *e;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	run_until(f, known(f, 1, "d"));
	e = pool_node_lookup(node(f, 1), pool_node_root(node(f, 1)), "d", 1);
	o = create_in(f, 1, node_dir(e), "new", 0);
	feed_deleted(f, 1, "d", true);
	assert_ptr_equal(e, pool_node_lookup(node(f, 1),
					     pool_node_root(node(f, 1)), "d",
					     1));
	close_whole(f, 1, o);
	run_until(f, known(f, 0, "d/new"));
}

/* Node 1 writes d/e/k while node 0 removes the directories. */
static struct node_object *written_in_a_removed_directory(struct fixture *f)
{
	struct node_dirent *d, *e;
	struct node_object *o;

	start_pool(f, 2);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	assert_int_equal(0, mkdir_in(f, 0, d, "e", &e));
	run_until(f, known(f, 1, "d/e"));
	o = create_in(f, 1, node_dir(pool_tree_lookup(
				    pool_node_tree(node(f, 1)), "d/e", 3)),
		      "k", 0);
	write_bytes(f, 1, o, 1000, 1);
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	run_until(f, !known(f, 0, "d") &&
			     node(f, 1)->feed_seq == f->master->map.feed.seq);
	assert_non_null(there(f, 1, "d"));
	assert_null(master_map_dir(&f->master->map, "d", 1));
	return o;
}

static void removed_directories_go_with_the_last_file_below(void **state)
{
	struct fixture *f = *state;
	struct node_object *o = written_in_a_removed_directory(f);
	struct pool_entry *k = &o->entry->e;

	node_object_ref(o); /* reference of the open handle */
	assert_int_equal(0, pool_node_unlink(node(f, 1), node_file(k)));
	pool_node_tidy(node(f, 1), k);
	assert_null(there(f, 1, "d"));
	assert_false(known(f, 1, "d"));
	pool_node_writer_closed(node(f, 1), o);
	node_object_unref(node(f, 1), o);
}

static void removed_directories_come_back_with_a_file_below(void **state)
{
	struct fixture *f = *state;
	struct node_object *o = written_in_a_removed_directory(f);

	close_whole(f, 1, o);
	run_until(f, known(f, 0, "d/e/k"));
	assert_non_null(master_map_dir(&f->master->map, "d/e", 3));
	run_until(f, node(f, 1)->feed_seq == f->master->map.feed.seq);
	assert_true(node_dir(there(f, 1, "d"))->known);
	assert_false(node_dir(there(f, 1, "d"))->leaving);
}

/* ---- names of both kinds ---- */

/* Two nodes create the name at the same time, one of them a directory that it
 * has removed since: the other's file is shown. */
static void a_directory_removed_where_a_file_won_does_not_come_back(
	void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;

	start_pool(f, 2);
	refuses_ops = node(f, 0);
	assert_int_equal(0, mkdir_top(f, 0, "r", &d));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	put(f, 1, "r", 1000, 1);
	run_until(f, master_map_file(&f->master->map, "r", 1));
	refuses_ops = NULL;
	run_until(f, all_answered(f, 0));
	run_until(f, find(f, 0, "r"));
}

/* The feed may report earlier removals while many changes are in flight. */
static void a_directory_made_and_removed_often_is_as_it_was_last(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	unsigned int i;

	start_pool(f, 1);
	for (i = 0; i < 256; i++) {
		if (i)
			assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
		assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	}
	feed_deleted(f, 0, "d", true);
	assert_non_null(there(f, 0, "d"));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(256, d->making);
	assert_int_equal(256, d->removing);
	run_until(f, all_answered(f, 0));
	run_until(f, !known(f, 0, "d"));
}

/* A file unlinked here is hidden until the feed reports its removal. A
 * directory of that name reports it, too, without another picture. */
static void a_hidden_file_gives_way_to_a_directory(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *e;
	struct node_dirent *d;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	e = node_tree_add(node(f, 0), pool_node_root(node(f, 0)), "r", 1,
			  false);
	assert_non_null(e);
	node_hide(node(f, 0), node_file(e), node(f, 0)->seen_gen);
	assert_int_equal(0, mkdir_top(f, 1, "r", &d));
	run_until(f, there(f, 0, "r"));
	assert_count(1, f, 0, feed_resyncs);
}

/* The master's ack of the file decides: the directory in the feed is older. */
static void a_file_on_its_way_stays_where_a_directory_was(void **state)
{
	struct fixture *f = *state;
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta m = KVPOOL__META__INIT, *list[1] = { &m };
	char path[] = "r";

	start_pool(f, 2);
	put_on_its_way(f, pool_node_root(node(f, 0)), path);
	m.path.data = (uint8_t *)path;
	m.path.len = strlen(path);
	m.is_dir = true;
	m.mode = 0700;
	feed.entries = list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(node(f, 0), &feed));
	run_until(f, find(f, 1, path));
	run_until(f, all_answered(f, 0));
	assert_readable(f, 0, path, 1000, 1);
	assert_non_null(master_map_file(&f->master->map, path, m.path.len));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_held_object_moves_without_a_copy),
		T(what_is_not_here_is_not_moved),
		T(a_rename_replaces_what_is_there_except_with_noreplace),
		T(files_of_users_that_it_does_not_speak_for_are_not_renamed),
		T(an_unlinked_name_is_hidden_at_once_and_stays_away),
		T(unlinking_what_the_master_is_about_to_name_removes_it),
		T(what_is_unlinked_again_and_again_does_not_come_back),
		T(unlinking_what_was_in_flight_at_a_cut_is_sent),
		T(renaming_what_the_master_is_about_to_name_hides_the_old_name),
		T(the_owner_of_an_unpublished_file_is_sent),
		T(the_rule_unlink_node_hides_a_name_here_only),
		T(directories_come_and_go_on_both_nodes),
		T(a_directory_goes_before_the_names_that_were_in_it),
		T(a_directory_with_what_is_being_written_stays),
		T(removed_directories_go_with_the_last_file_below),
		T(removed_directories_come_back_with_a_file_below),
		T(a_directory_removed_where_a_file_won_does_not_come_back),
		T(a_hidden_file_gives_way_to_a_directory),
		T(a_directory_made_and_removed_often_is_as_it_was_last),
		T(a_file_on_its_way_stays_where_a_directory_was),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
