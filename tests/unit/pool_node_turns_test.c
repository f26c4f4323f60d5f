/*
 * No turn of a node's loop is long: walks over a large mirror are done in
 * slices, between which names change; and a change that waits for the master is
 * found without a search (pool/node/walk.c, feed.c, session.c).
 */
#include "tests/lib/unit.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/pool_node_fixture.h"

#define MANY (3 * NODE_SLICE + 500)
#define GEN(k) (1ull << POOL_GEN_SEQ_BITS | (k))

/* A node with space for MANY files. */
static struct pool_node *start_large(struct fixture *f, int i)
{
	f->opts.store_size = 256 * MIB;
	start_node(f, i);
	return node(f, i);
}

static int turns_setup(void **state)
{
	setup(state);
	alarm(100);
	return 0;
}

/* Starts the ticks again that a test has stopped: closing needs them. */
static int turns_teardown(void **state)
{
	struct fixture *f = *state;

	for (int i = 0; i < NNODES; i++)
		if (f->m[i].node)
			uv_timer_again(&f->m[i].node->tick);
	return teardown(state);
}

#define TURNS(test) \
	cmocka_unit_test_setup_teardown(test, turns_setup, turns_teardown)

/* ---- names ---- */

static const char *path_of(unsigned int k)
{
	static char path[32];

	snprintf(path, sizeof(path), "d%u/%u", k % 7, k);
	return path;
}

static struct pool_entry *lookup(struct pool_node *n, const char *path)
{
	return pool_tree_lookup(pool_node_tree(n), path, strlen(path));
}

static bool shown(struct pool_node *n, const char *path)
{
	struct pool_entry *e = lookup(n, path);

	return e && pool_node_visible(e);
}

static void feed_name(struct pool_node *n, const char *path, uint64_t gen)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	uint8_t sum[16] = { 1 };

	meta.path.data = (uint8_t *)(uintptr_t)path;
	meta.path.len = strlen(path);
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	meta.gen = gen;
	feed.entries = &list;
	feed.n_entries = 1;
	feed.upto_seq = n->swept_seq + 1;
	assert_int_equal(0, node_feed_apply(n, &feed));
}

static void feed_picture(struct pool_node *n, bool begin, bool complete)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;

	feed.begin = begin;
	feed.complete = complete;
	feed.upto_seq = n->swept_seq + 1;
	assert_int_equal(0, node_feed_apply(n, &feed));
}

/* The test applies the feed: the node has failed to reach a master, and does
 * not try again. */
static struct pool_node *node_with_names(struct fixture *f)
{
	struct pool_node *n = start_large(f, 0);
	unsigned int k;

	n->ack_waits = true;
	run_until(f, !n->ack_waits); /* until the connection has ended */
	uv_timer_stop(&n->tick);
	for (k = 0; k < MANY; k++)
		feed_name(n, path_of(k), GEN(k + 1));
	return n;
}

static unsigned int count_shown(struct pool_node *n)
{
	unsigned int k, sum = 0;

	for (k = 0; k < MANY; k++)
		sum += shown(n, path_of(k));
	return sum;
}

static int64_t longest(struct pool_node *n)
{
	return pool_gauge_value(&n->c.walked_max);
}

static void turn(struct fixture *f)
{
	uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* ---- the end of a whole picture ---- */

static void what_a_picture_does_not_name_goes_in_slices(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = node_with_names(f);
	uint64_t seq = n->feed_seq;
	unsigned int left, turns = 0;

	feed_picture(n, true, false);
	feed_name(n, path_of(3), GEN(4));
	feed_picture(n, false, true);
	left = count_shown(n);
	assert_in_range(left, MANY - NODE_SLICE, MANY - 1);
	assert_true(node_feed_sweeping(n));
	/* The picture is not complete yet: a session that ends now needs a new
	 * one. */
	assert_int_equal(seq, n->feed_seq);
	/* Between slices, the feed lists a name that would be removed, and a
	 * new one. */
	feed_name(n, path_of(MANY - 1), GEN(MANY));
	feed_name(n, "new/k", GEN(MANY + 1));
	for (; node_feed_sweeping(n); turns++)
		turn(f);
	assert_in_range(turns, MANY / NODE_SLICE, MANY);
	assert_int_equal(2, count_shown(n));
	assert_true(shown(n, path_of(3)) && shown(n, path_of(MANY - 1)));
	assert_true(shown(n, "new/k"));
	assert_null(lookup(n, "d0"));
	assert_int_equal(MANY - 2, f->m[0].calls.changed);
	assert_int_equal(n->swept_seq, n->feed_seq);
	turn(f);
	assert_in_range(longest(n), 1, NODE_SLICE);
}

static void a_session_that_ends_amid_a_sweep_needs_a_new_picture(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = node_with_names(f);

	feed_picture(n, true, true);
	assert_true(node_feed_sweeping(n));
	node_sweep_cut_off(n);
	assert_true(n->in_picture && !node_feed_sweeping(n));
	feed_picture(n, true, false);
	feed_name(n, path_of(5), GEN(6));
	feed_picture(n, false, true);
	run_until(f, !node_feed_sweeping(n));
	assert_int_equal(1, count_shown(n));
	assert_false(n->in_picture);
}

static void a_picture_that_begins_amid_a_sweep_ends_it(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = node_with_names(f);
	unsigned int left;

	feed_picture(n, true, true);
	turn(f);
	feed_picture(n, true, false);
	left = count_shown(n);
	assert_in_range(left, 1, MANY);
	turn(f);
	turn(f);
	assert_int_equal(left, count_shown(n));
	feed_picture(n, false, true);
	run_until(f, !node_feed_sweeping(n));
	assert_int_equal(0, count_shown(n));
}

static void ack_mkdir(struct pool_node *n)
{
	Kvpool__OpResult result = KVPOOL__OP_RESULT__INIT, *list = &result;
	Kvpool__OpsDone done = KVPOOL__OPS_DONE__INIT;

	assert_int_equal(1, n->nops);
	pool_list_splice(&n->ops_sent, &n->ops_waiting);
	done.results = &list;
	done.n_results = 1;
	node_ops_done(n, &done);
}

/* The first picture may be older than the directory; the next one is not. */
static void a_directory_acked_during_a_picture_goes_with_the_next(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = node_with_names(f);
	struct node_attr attr = { .mode = 0755 };
	struct node_dirent *d;

	node_stage_begins(n); /* as WELCOME does */
	assert_int_equal(0, pool_node_mkdir(n, pool_node_root(n), "m", 1,
					    &attr, &d));
	feed_picture(n, true, false);
	ack_mkdir(n);
	feed_picture(n, false, true);
	run_until(f, !node_feed_sweeping(n));
	assert_true(shown(n, "m"));
	feed_picture(n, true, true);
	run_until(f, !node_feed_sweeping(n));
	assert_null(lookup(n, "m"));
}

/* ---- rules ---- */

static void hold_all(struct pool_node *n)
{
	struct node_object *o;
	struct node_entry *e;
	unsigned int k;

	for (k = 0; k < MANY; k++) {
		e = node_file(lookup(n, path_of(k)));
		o = node_object_new(e, NODE_FETCHING);
		assert_non_null(o);
		o->gen = e->gen;
		o->counted = true;
		node_object_held(n, e, o);
	}
}

static void feed_root(struct pool_node *n, uint64_t mtime_ns, const char *class)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	Kvpool__Xattr xattr = KVPOOL__XATTR__INIT, *xattrs = &xattr;

	xattr.name = (char *)(uintptr_t)"user.kvpool.class";
	xattr.value.data = (uint8_t *)(uintptr_t)class;
	xattr.value.len = strlen(class);
	meta.xattrs = &xattrs;
	meta.n_xattrs = 1;
	meta.is_dir = true;
	meta.mode = 0755;
	meta.mtime_ns = mtime_ns;
	feed.entries = &list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(n, &feed));
}

static uint64_t kept(struct pool_node *n)
{
	return pool_evict_count(n->evict, POOL_EVICT_KEPT);
}

static void names_are_judged_only_if_a_rule_changed_and_in_slices(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = node_with_names(f);
	struct node_attr attr = { .mode = 0700 };
	uint64_t looked = pool_counter_value(&n->c.walked);

	hold_all(n);
	feed_root(n, 1, "shared");
	run_until(f, !pool_tree_walk_is_open(&n->judging));
	looked = pool_counter_value(&n->c.walked);
	/* Changes that do not affect eviction. */
	feed_root(n, 2, "shared");
	assert_int_equal(0, pool_node_setattr(n, &pool_node_root(n)->d.e,
					      POOL_SET_MODE, &attr, NULL));
	assert_int_equal(0, pool_node_setxattr(n, &pool_node_root(n)->d.e,
					       "user.other", "1", 1, 0));
	assert_int_equal(0, pool_node_setxattr(n, &pool_node_root(n)->d.e,
					       "user.kvpool.replicas", "2", 1,
					       0));
	turn(f);
	assert_int_equal(looked, pool_counter_value(&n->c.walked));
	/* A rule: applied in slices, and once more because it changes
	 * meanwhile. */
	feed_root(n, 3, "noevict");
	assert_in_range(kept(n), 1, NODE_SLICE);
	turn(f);
	assert_in_range(kept(n), NODE_SLICE, 2 * NODE_SLICE);
	run_until(f, !pool_tree_walk_is_open(&n->judging));
	assert_int_equal(MANY, kept(n));
	feed_root(n, 4, "shared");
	turn(f);
	feed_root(n, 5, "noevict");
	run_until(f, !pool_tree_walk_is_open(&n->judging));
	assert_int_equal(MANY, kept(n));
	turn(f);
	assert_in_range(longest(n), 1, NODE_SLICE);
}

/* ---- files of its own ---- */

static struct node_object *create(struct pool_node *n, unsigned int k)
{
	static const struct node_attr attr = { .mode = 0640, .mtime_ns = 1 };
	struct node_object *o = NULL;
	char name[16];

	snprintf(name, sizeof(name), "%u", k);
	assert_int_equal(0, pool_node_create(n, pool_node_root(n), name,
					     strlen(name), &attr, 0, &o));
	pool_node_writer_opened(n, o);
	return o;
}

static void put_one(struct pool_node *n, unsigned int k)
{
	struct node_object *o = create(n, k);
	int fd = pool_store_fd(pool_node_store(n), o->id, O_RDWR);

	assert_true(fd >= 0);
	assert_int_equal(sizeof(k), pwrite(fd, &k, sizeof(k), 0));
	close(fd);
	pool_node_writer_flushed(n, o);
	pool_node_writer_closed(n, o);
}

static struct node_entry *file(struct pool_node *n, unsigned int k)
{
	char name[16];
	struct pool_entry *e;

	snprintf(name, sizeof(name), "%u", k);
	e = lookup(n, name);
	return e ? node_file(e) : NULL;
}

static bool is_waiting(struct pool_node *n, unsigned int k)
{
	struct node_entry *e = file(n, k);

	return e && e->own && e->own->state == NODE_PENDING;
}

static bool is_held(struct pool_node *n, unsigned int k)
{
	struct node_entry *e = file(n, k);

	return e && !e->own && e->obj && e->obj->state == NODE_HELD;
}

/* ---- what waits for the master ---- */

static uint64_t cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000 + (uint64_t)ts.tv_nsec;
}

#define PENDING 12000u
#define SOME 500u

/* CPU time, the minimum of several rounds. The first and the last of the
 * waiting files are unlinked alternately. */
static void a_file_that_waits_is_unlinked_without_a_search(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_large(f, 0);
	uint64_t first = UINT64_MAX, last = UINT64_MAX, ns, begin;
	unsigned int k, r, low = 0, high = PENDING;

	for (k = 0; k < PENDING; k++)
		put_one(n, k);
	run_until(f, n->nops == PENDING);
	for (r = 0; r < 4; r++) {
		begin = cpu_ns();
		for (k = 0; k < SOME; k++, low++)
			assert_int_equal(0, pool_node_unlink(n, file(n, low)));
		ns = cpu_ns() - begin;
		first = ns < first ? ns : first;
		begin = cpu_ns();
		for (k = 0; k < SOME; k++)
			assert_int_equal(0, pool_node_unlink(n, file(n,
								     --high)));
		ns = cpu_ns() - begin;
		last = ns < last ? ns : last;
	}
	assert_int_equal(PENDING - 8 * SOME, n->nops);
	print_message(
		"%u unlinked: the first ones %.2f ms, the last ones %.2f ms\n",
		SOME, (double)first / 1e6, (double)last / 1e6);
	assert_in_range(last, 0, 3 * first);
}

static void publications_beyond_the_bound_wait_and_go_in_order(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_large(f, 0);

	put_one(n, 1);
	run_until(f, is_waiting(n, 1) && n->nops == 1);
	n->nops = NODE_OPS_MAX; /* as if that many were queued */
	put_one(n, 2);
	put_one(n, 3);
	run_until(f, is_waiting(n, 2) && is_waiting(n, 3) &&
		     pool_counter_value(&n->c.publish_waits) > 2);
	assert_int_equal(NODE_OPS_MAX, n->nops);
	assert_int_equal(WRITER_SEALED, file(n, 2)->own->w->phase);
	assert_int_equal(WRITER_SEALED, file(n, 3)->own->w->phase);
	n->nops = NODE_OPS_MAX - 1; /* room for one of them */
	node_publish_sealed(n);
	assert_int_equal(WRITER_QUEUED, file(n, 2)->own->w->phase);
	assert_int_equal(WRITER_SEALED, file(n, 3)->own->w->phase);
	n->nops = 2;
	start_master(f);
	run_until(f, is_held(n, 1) && is_held(n, 2) && is_held(n, 3));
	assert_true(file(n, 1)->gen < file(n, 2)->gen);
	assert_true(file(n, 2)->gen < file(n, 3)->gen);
	assert_int_equal(0, n->nops);
}

/* The last eighth of the queue is for root. A user's file waits for room; a
 * file of root in the same directory, closed later, must not be published
 * before it. */
static void a_publication_with_room_waits_for_one_without(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_large(f, 0);

	n->nops = NODE_OPS_MAX - 1; /* as if that many were queued */
	put_one(n, 1);
	file(n, 1)->own->w->attr.uid = 1000;
	put_one(n, 2);
	run_until(f, is_waiting(n, 1) && is_waiting(n, 2) &&
		     pool_counter_value(&n->c.publish_waits) > 2);
	assert_int_equal(WRITER_SEALED, file(n, 1)->own->w->phase);
	assert_int_equal(WRITER_SEALED, file(n, 2)->own->w->phase);
	n->nops = 0;
	node_publish_sealed(n);
	assert_int_equal(WRITER_QUEUED, file(n, 1)->own->w->phase);
	assert_int_equal(WRITER_QUEUED, file(n, 2)->own->w->phase);
	start_master(f);
	run_until(f, is_held(n, 1) && is_held(n, 2));
	assert_true(file(n, 1)->gen < file(n, 2)->gen);
}

/* It is not counted as waiting any more, although its handle keeps it. */
static void a_publication_that_waits_is_unlinked_while_open(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n = start_large(f, 0);
	struct node_object *o;

	n->nops = NODE_OPS_MAX; /* as if that many were queued */
	put_one(n, 1);
	run_until(f, is_waiting(n, 1) && n->nsealed == 1);
	o = node_object_ref(file(n, 1)->own);
	pool_node_writer_opened(n, o);
	assert_int_equal(0, pool_node_unlink(n, file(n, 1)));
	assert_int_equal(0, n->nsealed);
	assert_int_equal(WRITER_ENDED, o->w->phase);
	pool_node_writer_closed(n, o);
	node_object_unref(n, o);
	n->nops = 0;
	node_check(n);
}

/* ---- fsync ---- */

struct sync {
	struct node_barrier b;
	struct pool_node *n;
	bool ended, held; /* held: had file 1 been published when it ended? */
};

static void on_synced(struct node_barrier *b, int status)
{
	struct sync *s = pool_container_of(b, struct sync, b);

	assert_int_equal(0, status);
	s->ended = true;
	s->held = is_held(s->n, 1);
}

#define LARGE (300u << 10) /* the second one is sealed by a worker */

static void turns_for(struct fixture *f, uint64_t ms)
{
	for (uint64_t end = pool_now_ms() + ms; pool_now_ms() < end;)
		uv_run(&f->loop, UV_RUN_NOWAIT);
}

/* All workers are busy, so that it is not sealed. */
static void an_fsync_waits_for_what_is_being_sealed(void **state)
{
	static const char bytes[LARGE];
	struct fixture *f = *state;
	struct sync s = { .ended = false };
	struct node_object *o;
	int fd;

	start_master(f);
	s.n = start_large(f, 0);
	run_until(f, node_session_up(s.n) && s.n->complete);
	workers_begin(f);
	for (unsigned int i = 2; i > 0; i--) {
		o = create(s.n, i);
		fd = pool_store_fd(pool_node_store(s.n), o->id, O_RDWR);
		assert_int_equal(LARGE, pwrite(fd, bytes, LARGE, 0));
		close(fd);
		pool_node_writer_flushed(s.n, o);
		pool_node_writer_closed(s.n, o);
	}
	assert_int_equal(NODE_SEALING, file(s.n, 1)->own->state);
	assert_int_equal(0, pool_node_barrier_start(s.n, &s.b, on_synced));
	turns_for(f, 300);
	assert_false(s.ended);
	workers_end(f);
	run_until(f, s.ended);
	assert_true(s.held);
}

/* The file waits for room in the queue. */
static void an_fsync_waits_for_what_is_not_queued_yet(void **state)
{
	struct fixture *f = *state;
	struct sync s = { .ended = false };

	start_master(f);
	s.n = start_large(f, 0);
	run_until(f, node_session_up(s.n) && s.n->complete);
	s.n->nops = NODE_OPS_MAX; /* as if that many were queued */
	put_one(s.n, 1);
	run_until(f, is_waiting(s.n, 1));
	assert_int_equal(0, pool_node_barrier_start(s.n, &s.b, on_synced));
	turns_for(f, 300);
	assert_false(s.ended);
	s.n->nops = 0;
	node_publish_sealed(s.n);
	run_until(f, s.ended);
	assert_true(s.held);
}

/* ---- the inventory ---- */

static bool same_names(struct pool_node *a, struct pool_node *b)
{
	unsigned int k;

	for (k = 0; k < MANY + 2; k++) {
		struct node_entry *x = file(a, k), *y = file(b, k);
		bool in_a = x && pool_node_visible(&x->e);

		if (in_a != (y && pool_node_visible(&y->e)) ||
		    (in_a && (x->own || x->gen != y->gen)))
			return false;
	}
	return true;
}

static unsigned int count_held(struct pool_node *n)
{
	unsigned int k, sum = 0;

	for (k = 0; k < MANY; k++)
		sum += is_held(n, k);
	return sum;
}

static bool sent_some(struct pool_node *n)
{
	return node_session_in_inventory(n) && n->inventory.at &&
	       pool_counter_value(&n->c.inventory_sent) > 0;
}

/* While the inventory is sent, names before and after its cursor change. In the
 * end the new master, and the other node, have what the node has. */
static void the_inventory_is_sent_in_slices_while_names_change(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *e;
	struct pool_node *n, *other;
	unsigned int k;

	start_master(f);
	n = start_large(f, 0);
	run_until(f, node_session_up(n));
	for (k = 0; k < MANY; k++)
		put_one(n, k);
	run_until(f, count_held(n) == MANY);
	stop_master(f);
	run_until(f, !node_session_up(n) && !node_session_in_inventory(n));
	start_master(f);
	other = start_large(f, 1);
	run_until(f, sent_some(n));
	assert_in_range(pool_counter_value(&n->c.inventory_sent), 1,
			NODE_SLICE);
	/* One that was sent, and one that was not. */
	assert_int_equal(0, pool_node_unlink(n, file(n, 0)));
	assert_int_equal(0, pool_node_unlink(n, file(n, MANY - 1)));
	assert_int_equal(0, pool_node_rename(n, &file(n, 1)->e,
					     pool_node_root(n), "m1", 2,
					     false, &e));
	assert_int_equal(0, pool_node_rename(n, &file(n, MANY - 2)->e,
					     pool_node_root(n), "m2", 2,
					     false, &e));
	node_object_damaged(n, file(n, 2)->obj, -EBADMSG);
	put_one(n, MANY);
	assert_false(node_session_up(n));
	run_until(f, node_session_up(n) && n->nops == 0 && is_held(n, MANY));
	run_until(f, node_session_up(other) && other->complete &&
		     same_names(n, other));
	assert_false(shown(other, "0") || shown(other, "1"));
	run_until(f, shown(other, "m1") && shown(other, "m2"));
	/* The only copy was damaged, so the name is removed. */
	run_until(f, !shown(n, "2") && !shown(other, "2"));
	assert_true(is_held(n, MANY) && shown(other, "3"));
	turn(f);
	assert_in_range(longest(n), 1, NODE_SLICE);
}

/* The walk starts again in each session. */
static void an_interrupted_inventory_is_sent_again(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n, *other;
	unsigned int k;

	start_master(f);
	n = start_large(f, 0);
	run_until(f, node_session_up(n));
	for (k = 0; k < MANY; k++)
		put_one(n, k);
	run_until(f, count_held(n) == MANY);
	stop_master(f);
	start_master(f);
	run_until(f, sent_some(n));
	stop_master(f);
	run_until(f, !node_session_in_inventory(n));
	assert_false(pool_tree_walk_is_open(&n->inventory));
	assert_true(n->cut_off_ms > 0);
	start_master(f);
	other = start_large(f, 1);
	run_until(f, node_session_up(n) && other->complete &&
		     same_names(n, other));
	assert_int_equal(MANY, count_held(n));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TURNS(what_a_picture_does_not_name_goes_in_slices),
		TURNS(a_session_that_ends_amid_a_sweep_needs_a_new_picture),
		TURNS(a_picture_that_begins_amid_a_sweep_ends_it),
		TURNS(a_directory_acked_during_a_picture_goes_with_the_next),
		TURNS(names_are_judged_only_if_a_rule_changed_and_in_slices),
		TURNS(a_file_that_waits_is_unlinked_without_a_search),
		TURNS(publications_beyond_the_bound_wait_and_go_in_order),
		TURNS(a_publication_with_room_waits_for_one_without),
		TURNS(a_publication_that_waits_is_unlinked_while_open),
		TURNS(an_fsync_waits_for_what_is_being_sealed),
		TURNS(an_fsync_waits_for_what_is_not_queued_yet),
		TURNS(the_inventory_is_sent_in_slices_while_names_change),
		TURNS(an_interrupted_inventory_is_sent_again),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
