/* The queue of changes for the master: which changes are merged, which keep
 * their order, and whose share of the queue they use (pool/node/ops.c,
 * outbox.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- changes of attributes that are merged ---- */

#define LOOP 10000

static size_t merged(struct fixture *f)
{
	return pool_counter_value(&node(f, 0)->c.ops_merged);
}

/* The queued changes, as kind and path: "SETATTR k, MKDIR d". */
static const char *queue_of(struct fixture *f)
{
	static const char *const kinds[] = { "PUBLISH", "UNLINK", "MKDIR",
					     "RMDIR", "SETATTR" };
	static char text[512];
	struct pool_list *it, *tmp;
	size_t len = 0;

	text[0] = '\0';
	pool_list_each(it, tmp, &node(f, 0)->ops_waiting) {
		const struct node_op *op =
			pool_list_entry(it, struct node_op, link);

		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%s %.*s", len ? ", " : "",
					kinds[op->kind], (int)op->path_len,
					op->path);
	}
	return text;
}

static int set_mode(struct fixture *f, struct pool_entry *e, uint32_t mode)
{
	struct node_attr a = { .mode = mode };

	return pool_node_setattr(node(f, 0), e, POOL_SET_MODE, &a, NULL);
}

static int set_time(struct fixture *f, struct pool_entry *e, uint64_t ns)
{
	struct node_attr a = { .mtime_ns = ns };

	return pool_node_setattr(node(f, 0), e, POOL_SET_MTIME, &a, NULL);
}

/* Two nodes, which both know an empty directory. */
static struct pool_entry *start_with_dir(struct fixture *f)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	start_pool(f, 2);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d", 1,
					    &attr, &d));
	run_until(f, all_answered(f, 0) && known(f, 1, "d"));
	return &d->d.e;
}

/* Both mirrors equal the master's map. */
static void assert_mirrors_agree(struct fixture *f, const char *name)
{
	struct pool_entry *a, *b;

	run_until(f, all_answered(f, 0));
	run_until(f, node(f, 0)->feed_seq == f->master->map.feed.seq &&
			     node(f, 1)->feed_seq == f->master->map.feed.seq);
	a = there(f, 0, name);
	b = there(f, 1, name);
	assert_non_null(a);
	assert_non_null(b);
	assert_int_equal(pool_node_attr(a)->mode, pool_node_attr(b)->mode);
	assert_int_equal(pool_node_attr(a)->uid, pool_node_attr(b)->uid);
	assert_int_equal(pool_node_attr(a)->mtime_ns,
			 pool_node_attr(b)->mtime_ns);
	assert_true(pool_xattrs_equal(pool_node_xattrs(a),
				      pool_node_xattrs(b)));
}

static void a_loop_of_changes_leaves_one_of_each_attribute(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	char value[16];

	for (int k = 0; k <= LOOP; k++) {
		snprintf(value, sizeof(value), "%d", k);
		assert_int_equal(0, set_xattr(f, 0, d, "user.a", value));
	}
	assert_int_equal(1, node(f, 0)->nops);
	assert_int_equal(LOOP, merged(f));
	/* Alternating changes, as by a program that restores attributes. */
	for (int k = 0; k <= LOOP; k++) {
		snprintf(value, sizeof(value), "%d", k % 10);
		assert_int_equal(0, set_mode(f, d, k % 2 ? 0711 : 0700));
		assert_int_equal(0, set_xattr(f, 0, d, "user.b", value));
		assert_int_equal(0, set_time(f, d, 1000 + (uint64_t)k));
		assert_int_equal(0, set_xattr(f, 0, d, "user.c", "same"));
		assert_int_equal(0, k % 2 ? set_xattr(f, 0, d, "user.d", NULL) :
					    set_xattr(f, 0, d, "user.d", "x"));
	}
	assert_string_equal(
		"SETATTR d, SETATTR d, SETATTR d, SETATTR d, SETATTR d",
		queue_of(f));
	assert_mirrors_agree(f, "d");
	d = there(f, 1, "d");
	assert_true(has_xattr(d, "user.a", "10000"));
	assert_true(has_xattr(d, "user.b", "0"));
	assert_true(has_xattr(d, "user.c", "same"));
	assert_true(has_xattr(d, "user.d", "x"));
	assert_int_equal(0700, pool_node_attr(d)->mode);
	assert_int_equal(1000 + LOOP, pool_node_attr(d)->mtime_ns);
}

static void what_is_set_and_removed_is_merged_by_name(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.old", "1"));
	run_until(f, has_xattr(there(f, 1, "d"), "user.old", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.old", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.old", NULL));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	d = there(f, 1, "d");
	assert_true(has_xattr(d, "user.b", "1"));
	assert_false(has_xattr(d, "user.old", "1"));
	assert_false(has_xattr(d, "user.old", "2"));
	assert_false(has_xattr(d, "user.a", "1"));
	/* Removed and set again: one change. */
	d = there(f, 0, "d");
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", "2"));
	assert_int_equal(1, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.b", "2"));
}

/* Does the directory have this xattr on the master? */
static bool master_has_xattr(struct fixture *f, const char *path,
			     const char *name, const char *value)
{
	const struct master_dir *d =
		master_map_dir(&f->master->map, path, strlen(path));
	size_t len;
	const void *v = d && d->extra ?
				pool_xattrs_get(d->extra->xattrs, name, &len) :
				NULL;

	return v && len == strlen(value) && memcmp(v, value, len) == 0;
}

/* An xattr that the master refuses does not affect others. */
static void each_xattr_is_refused_alone(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f), *other;
	static char big[3000];

	other = there(f, 1, "d");
	assert_int_equal(0, pool_node_setxattr(node(f, 1), other, "user.b", big,
					       sizeof(big), 0));
	node_ops_send(node(f, 1));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_setxattr(node(f, 0), d, "user.c", big,
					       sizeof(big), 0));
	assert_int_equal(0, set_mode(f, d, 0700));
	run_until(f, all_answered(f, 1));
	assert_mirrors_agree(f, "d");
	assert_true(master_has_xattr(f, "d", "user.a", "1"));
	assert_int_equal(0700, master_map_dir(&f->master->map, "d", 1)->mode);
}

/* A growing xattr needs the space that another one frees: it must not be merged
 * into an earlier change. */
static void what_grows_does_not_pass_what_makes_room_for_it(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	static char big[3000];

	memset(big, 'x', sizeof(big) - 1);
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", big));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.b", NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", big));
	assert_int_equal(3, node(f, 0)->nops);
	/* A value that shrinks is merged into the earlier change. */
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", big));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", big));
	assert_count(0, f, 0, ops_failed);
}

static void other_names_changes_keep_their_order(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *e;

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, mkdir_top(f, 0, "e", &e));
	assert_int_equal(0, set_xattr(f, 0, &e->d.e, "user.a", "1"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "3"));
	assert_string_equal("SETATTR d, MKDIR e, SETATTR e, RMDIR e",
			    queue_of(f));
	assert_true(node_ops_in_order(node(f, 0)));
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "3"));
	assert_false(known(f, 1, "e"));
}

/* When the directory is opened to all, files removed before must not be visible
 * on other nodes any more. */
static void a_mode_does_not_pass_what_says_who_may_read(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *e;

	assert_int_equal(0, mkdir_in(f, 0, node_dir(d), "e", &e));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_time(f, d, 1));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), e));
	assert_int_equal(0, set_mode(f, d, 0777));
	assert_string_equal("SETATTR d, RMDIR d/e, SETATTR d", queue_of(f));
	run_until(f, all_answered(f, 0));
	/* The same for the mode of another directory. */
	assert_int_equal(0, mkdir_in(f, 0, node_dir(d), "e", &e));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_mode(f, d, 0700));
	assert_int_equal(0, set_mode(f, &e->d.e, 0700));
	assert_int_equal(0, set_mode(f, d, 0777));
	assert_string_equal("SETATTR d, SETATTR d/e, SETATTR d", queue_of(f));
	assert_mirrors_agree(f, "d");
}

/* An xattr must not move before a change of the owner, who is charged for
 * it. */
static void an_owner_is_not_passed(void **state)
{
	static const struct node_attr to = { .uid = USER };
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_setattr(node(f, 0), d, POOL_SET_UID, &to,
					      NULL));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(3, node(f, 0)->nops);
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
}

static void what_was_sent_is_not_changed(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	node_ops_send(node(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "3"));
	assert_int_equal(2, node(f, 0)->nops);
	assert_int_equal(1, merged(f));
	/* Changes that may have been executed before a disconnect are not
	 * merged into. */
	node_ops_send(node(f, 0));
	stop_master(f);
	run_until(f, !is_up(f, 0));
	assert_int_equal(2, node(f, 0)->nops);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "4"));
	assert_int_equal(3, node(f, 0)->nops);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "5"));
	assert_int_equal(3, node(f, 0)->nops);
	start_master(f);
	run_until(f, is_up(f, 0) && is_up(f, 1));
	assert_mirrors_agree(f, "d");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "5"));
}

static void a_barrier_waits_for_what_was_merged_before_it(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct test_barrier first = { .done = false }, last = first;

	refuses_ops = node(f, 0);
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &first.b,
						    on_barrier));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "2"));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &last.b,
						    on_barrier));
	assert_int_equal(1, node(f, 0)->nops);
	assert_true(node_ops_oldest(node(f, 0)) <= first.b.ticket);
	node_barriers_check(node(f, 0));
	refuses_ops = NULL;
	run_until(f, last.done);
	assert_int_equal(0, last.status);
	assert_true(first.done);
	assert_true(master_has_xattr(f, "d", "user.a", "2"));
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
}

/* A removed name loses its attributes; a new one has its own. */
static void a_change_of_the_name_is_not_passed(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f), *to;
	struct node_dirent *e;

	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_rename(node(f, 0), d,
					     pool_node_root(node(f, 0)), "e", 1,
					     false, &to));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), node_dir(d)));
	assert_int_equal(0, mkdir_top(f, 0, "d", &e));
	assert_int_equal(0, set_xattr(f, 0, &e->d.e, "user.a", "2"));
	assert_int_equal(0, set_xattr(f, 0, to, "user.b", "2"));
	assert_string_equal("SETATTR d, MKDIR e, SETATTR e, RMDIR d, MKDIR d, "
			    "SETATTR d, SETATTR e",
			    queue_of(f));
	assert_mirrors_agree(f, "d");
	assert_mirrors_agree(f, "e");
	assert_true(has_xattr(there(f, 1, "d"), "user.a", "2"));
	assert_true(has_xattr(there(f, 1, "e"), "user.a", "1"));
	assert_true(has_xattr(there(f, 1, "e"), "user.b", "2"));
}

/* The same for a file that is removed, or published again or under another
 * name. */
static void a_publication_of_the_name_is_not_passed(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	start_pool(f, 2);
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k") && all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "k")->e, "user.a",
				      "1"));
	refuses_ops = node(f, 0);
	assert_int_equal(0, rename_to(f, 0, "k", "l", false));
	put(f, 0, "k", 500, 2);
	run_until(f, is_pending(f, 0, "k") && is_pending(f, 0, "l"));
	run_until(f, node(f, 0)->nops == 4);
	e = find(f, 0, "k");
	assert_non_null(e->own);
	assert_int_equal(0, set_xattr(f, 0, &e->e, "user.b", "2"));
	assert_int_equal(0, set_mode(f, &e->e, 0604));
	assert_int_equal(0, set_xattr(f, 0, &e->e, "user.a", "3"));
	assert_true(node(f, 0)->nops == 7);
	refuses_ops = NULL;
	run_until(f, is_published(f, 0, "k") && is_published(f, 0, "l"));
	run_until(f, find(f, 1, "l"));
	assert_mirrors_agree(f, "k");
	assert_mirrors_agree(f, "l");
	assert_true(has_xattr(there(f, 1, "l"), "user.a", "1"));
	assert_false(has_xattr(there(f, 1, "l"), "user.b", "2"));
	assert_true(has_xattr(there(f, 1, "k"), "user.a", "3"));
	assert_true(has_xattr(there(f, 1, "k"), "user.b", "2"));
	assert_int_equal(0604, pool_node_attr(there(f, 1, "k"))->mode);
}

/* ---- shares of the queue ---- */

/* Changes of ever different xattrs cannot be merged. */
static void one_name_has_no_more_than_its_share_of_changes(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *d = start_with_dir(f);
	struct node_dirent *other;
	char name[32];
	int err = 0, k;

	for (k = 0; !err && k <= NODE_PATH_CHANGES_MAX; k++) {
		snprintf(name, sizeof(name), "user.%d", k);
		err = set_xattr(f, 0, d, name, "1");
		if (!err)
			err = set_xattr(f, 0, d, name, NULL);
	}
	assert_int_equal(-EAGAIN, err);
	assert_false(has_xattr(d, name, "1"));
	assert_int_equal(NODE_PATH_CHANGES_MAX, node(f, 0)->nops);
	assert_count(1, f, 0, ops_refused);
	assert_int_equal(0, mkdir_top(f, 0, "e", &other));
	assert_int_equal(0, set_xattr(f, 0, &other->d.e, "user.a", "1"));
	/* A merged change needs no place in the queue. */
	snprintf(name, sizeof(name), "user.%d", NODE_PATH_CHANGES_MAX - 1);
	assert_int_equal(0, set_xattr(f, 0, d, name, "1"));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_mirrors_agree(f, "d");
}

/* A user fills his share of the queue; other users and root still have
 * theirs. */
static void one_user_has_no_more_than_his_share_of_changes(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	char name[16];
	int err = 0, k;

	start_pool(f, 1);
	pool_quota_limit(&node(f, 0)->changers, 40, 0);
	for (k = 0; !err && k < 40; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		err = mkdir_top(f, 0, name, &d);
	}
	assert_int_equal(-EAGAIN, err);
	assert_int_equal(10, node(f, 0)->nops);
	assert_count(1, f, 0, ops_refused);
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "e", 1,
					    &writers, &e));
	assert_int_equal(0, set_mode(f, &pool_node_root(node(f, 0))->d.e,
				     0777));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, mkdir_top(f, 0, name, &d));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, node(f, 0)->changers.used.dirs);
}

/* USER creates directories dN until the user's share of the queue is full. */
static void fill_share(struct fixture *f, unsigned int queue)
{
	struct node_dirent *d;
	char name[16];
	int err = 0;

	pool_quota_limit(&node(f, 0)->changers, queue, 0);
	for (int k = 0; !err; k++) {
		snprintf(name, sizeof(name), "d%d", k);
		err = mkdir_top(f, 0, name, &d);
	}
	assert_int_equal(-EAGAIN, err);
	assert_int_equal(queue / 4, node(f, 0)->nops);
}

/* Root can change, remove and rename files of a user whose share is full. The
 * user's changes of root's files count against the user's share. */
static void a_change_takes_the_share_of_its_caller(void **state)
{
	struct fixture *f = *state;
	struct node_attr root = { .mode = 0777 };
	struct node_attr user = { .uid = USER };
	struct node_dirent *made;
	struct pool_entry *d, *k;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	for (char name[] = "k0"; name[1] < '3'; name[1]++)
		put(f, 0, name, 100, 1);
	assert_int_equal(0, pool_node_mkdir(n, pool_node_root(n), "root", 4,
					    &root, &made));
	run_until(f, is_published(f, 0, "k0") && is_published(f, 0, "k1") &&
			     is_published(f, 0, "k2"));
	k = there(f, 0, "k0");
	assert_int_equal(0, pool_node_setattr(n, k, POOL_SET_UID, &user, NULL));
	run_until(f, all_answered(f, 0));
	fill_share(f, 80);
	d = there(f, 0, "d0");
	pool_node_caller(n, 0);
	assert_int_equal(0, set_mode(f, d, 0700));
	assert_int_equal(0, set_xattr(f, 0, d, "user.a", "1"));
	assert_int_equal(0, pool_node_rmdir(n, node_dir(d)));
	assert_int_equal(0, set_mode(f, k, 0600));
	assert_int_equal(0, pool_node_unlink(n, node_file(k)));
	assert_int_equal(0, rename_to(f, 0, "k1", "to", false));
	pool_node_caller(n, USER);
	assert_int_equal(-EAGAIN, set_xattr(f, 0, there(f, 0, "root"),
					    "user.a", "1"));
	assert_int_equal(-EAGAIN, rename_to(f, 0, "k2", "to", false));
	assert_int_equal(-EAGAIN, pool_node_unlink(n, find(f, 0, "k2")));
	pool_node_caller(n, NODE_NO_CALLER);
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, n->changers.used.dirs);
	assert_non_null(there(f, 0, "k2"));
}

/* Also for changes of one name, and when publications fill the queue. */
static void the_last_eighth_of_a_queue_is_root_s(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d, *e;
	char name[32];
	int err = 0, k;

	start_pool(f, 1);
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	for (k = 0; !err; k++) {
		snprintf(name, sizeof(name), "user.%d", k);
		err = set_xattr(f, 0, &d->d.e, name, "1");
		if (!err)
			err = set_xattr(f, 0, &d->d.e, name, NULL);
	}
	assert_int_equal(-EAGAIN, err);
	assert_in_range(node(f, 0)->nops, NODE_PATH_CHANGES_MAX * 3 / 4,
			NODE_PATH_CHANGES_MAX * 7 / 8 + 1);
	pool_node_caller(node(f, 0), 0);
	assert_int_equal(0, set_mode(f, &d->d.e, 0700));
	pool_node_caller(node(f, 0), NODE_NO_CALLER);
	run_until(f, all_answered(f, 0));
	node(f, 0)->nops += NODE_OPS_MAX / 8 * 7; /* as if queued */
	assert_int_equal(-EAGAIN, mkdir_top(f, 0, "e", &e));
	pool_node_caller(node(f, 0), 0);
	assert_int_equal(0, set_mode(f, &d->d.e, 0711));
	pool_node_caller(node(f, 0), NODE_NO_CALLER);
	node(f, 0)->nops -= NODE_OPS_MAX / 8 * 7;
	run_until(f, all_answered(f, 0));
}

/* ---- what is sent ---- */

/* The master gets the uid whose permission removed the name. */
static void a_deletion_names_its_caller(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	publish(f, 0, "k", 100, 1);
	publish(f, 0, "l", 100, 1);
	assert_int_equal(0, set_mode(f, &pool_node_root(n)->d.e, 0777));
	run_until(f, all_answered(f, 0));
	pool_node_caller(n, USER);
	assert_int_equal(0, rename_to(f, 0, "k", "to", false));
	pool_node_caller(n, NODE_NO_CALLER);
	assert_int_equal(0, pool_node_unlink(n, find(f, 0, "l")));
	run_until(f, all_answered(f, 0));
	assert_int_equal(
		MASTER_BY_ALL,
		master_map_grave(&f->master->map, "k", 1)->account.kind);
	assert_int_equal(
		MASTER_BY_OWNER,
		master_map_grave(&f->master->map, "l", 1)->account.kind);
}

/* Also for a file that is not published yet. */
static void a_rename_over_another_s_file_names_its_caller(void **state)
{
	static const struct node_attr to = { .uid = USER };
	const char *const names[] = { "a", "b" };
	struct fixture *f = *state;
	struct pool_node *n;

	start_pool(f, 1);
	n = node(f, 0);
	publish(f, 0, "k", 100, 1);
	publish(f, 0, "a", 100, 2);
	publish(f, 0, "b", 100, 3);
	for (int i = 0; i < 2; i++)
		assert_int_equal(0, pool_node_setattr(
					    n, &find(f, 0, names[i])->e,
					    POOL_SET_UID,
					    &(struct node_attr){ .uid = 7 },
					    NULL));
	assert_int_equal(0, pool_node_setattr(n, &pool_node_root(n)->d.e,
					      POOL_SET_UID, &to, NULL));
	run_until(f, all_answered(f, 0));
	put(f, 0, "l.tmp", 100, 4);
	pool_node_caller(n, USER);
	assert_int_equal(0, rename_to(f, 0, "k", "a", false));
	assert_int_equal(0, rename_to(f, 0, "l.tmp", "b", false));
	pool_node_caller(n, NODE_NO_CALLER);
	run_until(f, is_published(f, 0, "a") && is_published(f, 0, "b") &&
			     all_answered(f, 0));
	for (int i = 0; i < 2; i++)
		assert_int_equal(MASTER_BY_DIR,
				 master_map_former(&f->master->map, names[i], 1,
						   7)->account.kind);
}

static struct node_dirent *make(struct fixture *f, struct node_dirent *in,
				const char *name)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	assert_int_equal(0, pool_node_mkdir(node(f, 0), in, name, strlen(name),
					    &attr, &d));
	return d;
}

/* Directories that are made while no change can be sent. */
static void make_unsent(struct fixture *f, struct node_dirent *in,
			size_t ndirs)
{
	char name[24];

	refuses_ops = node(f, 0);
	for (size_t k = 0; k < ndirs; k++) {
		snprintf(name, sizeof(name), "d%zu", k);
		make(f, in, name);
	}
}

/* More than fits one message, and sending the first one fails: the order is
 * kept. */
static void changes_that_could_not_be_sent_keep_their_order(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 1);
	make_unsent(f, pool_node_root(node(f, 0)), 2 * POOL_BATCH_MAX);
	node_ops_send(node(f, 0));
	assert_true(pool_list_empty(&node(f, 0)->ops_sent));
	assert_int_equal(2 * POOL_BATCH_MAX, node(f, 0)->nops);
	assert_true(node_ops_in_order(node(f, 0)));
	refuses_ops = NULL;
	run_until(f, node(f, 0)->nops == 0);
}

/* The feed reaches this node between its messages, and all fsyncs wait for
 * that. */
static void a_message_has_few_changes_of_the_state(void **state)
{
	struct fixture *f = *state;
	const struct pool_counter *messages;
	struct node_dirent *in;
	uint64_t before;
	char name[251];

	start_pool(f, 1);
	messages = &f->master->stats.requests[POOL_MSG_OPS];
	before = pool_counter_value(messages);
	in = pool_node_root(node(f, 0));
	make_unsent(f, in, 3 * POOL_OPS_STATE);
	refuses_ops = NULL;
	run_until(f, node(f, 0)->nops == 0);
	assert_int_equal(before + 3, pool_counter_value(messages));
	/* Records with names of twice 1000 bytes cost 2. */
	memset(name, 'n', sizeof(name) - 1);
	name[sizeof(name) - 1] = 0;
	for (int i = 0; i < 4; i++)
		in = make(f, in, name);
	run_until(f, node(f, 0)->nops == 0);
	before = pool_counter_value(messages);
	make_unsent(f, in, 3 * POOL_OPS_STATE);
	refuses_ops = NULL;
	run_until(f, node(f, 0)->nops == 0);
	assert_int_equal(before + 6, pool_counter_value(messages));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_loop_of_changes_leaves_one_of_each_attribute),
		T(what_is_set_and_removed_is_merged_by_name),
		T(each_xattr_is_refused_alone),
		T(what_grows_does_not_pass_what_makes_room_for_it),
		T(other_names_changes_keep_their_order),
		T(a_mode_does_not_pass_what_says_who_may_read),
		T(an_owner_is_not_passed),
		T(what_was_sent_is_not_changed),
		T(a_barrier_waits_for_what_was_merged_before_it),
		T(a_change_of_the_name_is_not_passed),
		T(a_publication_of_the_name_is_not_passed),
		T(one_name_has_no_more_than_its_share_of_changes),
		T(one_user_has_no_more_than_his_share_of_changes),
		T(a_change_takes_the_share_of_its_caller),
		T(the_last_eighth_of_a_queue_is_root_s),
		T(a_deletion_names_its_caller),
		T(a_rename_over_another_s_file_names_its_caller),
		T(changes_that_could_not_be_sent_keep_their_order),
		T(a_message_has_few_changes_of_the_state),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
