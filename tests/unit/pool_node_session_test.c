/* The session with the master: its connection, the feed and whole pictures, and
 * barriers, which fsync waits for (pool/node/session.c, feed.c, barrier.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- the connection ---- */

/* In an empty pool there is nothing to send but heartbeats. */
static void an_idle_pool_keeps_its_connections(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	run_for(f, 6 * HEARTBEAT_MS);
	assert_count(1, f, 0, master_connects);
	assert_count(1, f, 1, master_connects);
	assert_false(node(f, 0)->ack_waits);
}

static void batches_of_an_earlier_connection_are_not_acked(void **state)
{
	struct fixture *f = *state;
	uint64_t old;

	start_pool(f, 1);
	f->m[0].calls.slow = true;
	publish(f, 0, "k", 1000, 1);
	run_until(f, f->m[0].calls.mark);
	old = f->m[0].calls.mark;
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	assert_false(node(f, 0)->ack_waits);
	start_master(f);
	run_until(f, node(f, 0)->ack_waits);
	pool_node_notified(node(f, 0), old);
	assert_true(node(f, 0)->ack_waits);
	pool_node_notified(node(f, 0), f->m[0].calls.mark);
	assert_false(node(f, 0)->ack_waits);
}

static void a_master_of_an_older_epoch_is_left(void **state)
{
	struct fixture *f = *state;
	uint64_t connects, epoch;
	char path[96];

	f->opts.mount = false; /* no feed to refuse */
	start_master(f);
	stop_master(f);
	start_master(f);
	start_node(f, 0);
	run_until(f, node_session_up(node(f, 0)));
	epoch = node(f, 0)->epoch;
	assert_int_equal(2, epoch);
	stop_master(f);
	snprintf(path, sizeof(path), "%s/master", f->top);
	assert_int_equal(0, unlink(path));
	start_master(f);
	connects = pool_counter_value(&node(f, 0)->c.master_connects);
	run_until(f, pool_counter_value(&node(f, 0)->c.master_connects) >
			     connects + 1);
	assert_false(node_session_up(node(f, 0)));
	assert_int_equal(epoch, node(f, 0)->epoch);
}

/* Only the second master of the list is running. */
static void a_node_goes_through_its_list_of_masters(void **state)
{
	struct fixture *f = *state;
	struct pool_hostports *list = &f->opts.masters;

	start_master(f);
	list->at[1] = list->at[0];
	list->at[0].port = 1;
	list->n = 2;
	start_node(f, 0);
	run_until(f, node_session_up(node(f, 0)));
	list->at[0] = list->at[1];
}

/* ---- the feed ---- */

/* The feed lists a name as it was before the changes in flight. */
static const char *program_of(struct fixture *f, int i, int other)
{
	return node_member(node(f, i), node(f, other)->index)->program;
}

/* The program of the member `other`, after a feed with this one. */
static const char *program_by_feed(struct fixture *f, int i, int other,
				   const char *program)
{
	Kvpool__NodeInfo info;

	node_session_info(node(f, other), &info);
	info.index = node(f, other)->index;
	info.program = (char *)(uintptr_t)program;
	node_member_apply(node(f, i), &info);
	return program_of(f, i, other);
}

static void the_pools_versions_are_known(void **state)
{
	struct fixture *f = *state;
	json_t *j;

	start_pool(f, 2);
	assert_string_equal("9.8.7", node_session_program(node(f, 0)));
	assert_string_equal("0.2.0", program_of(f, 0, 0));
	assert_string_equal("0.1.0", program_of(f, 0, 1));
	j = pool_node_nodes_json(node(f, 0));
	assert_string_equal(
		"0.1.0",
		json_string_value(json_object_get(
			json_array_get(json_object_get(j, "nodes"),
				       node(f, 1)->index),
			"version")));
	json_decref(j);
	assert_string_equal("", program_by_feed(f, 0, 1, ""));
	assert_string_equal("1??[J", program_by_feed(f, 0, 1, "1\n\xff[J"));
	assert_string_equal("12345678901234567890123456789012345678901234567",
			    program_by_feed(
				    f, 0, 1,
				    "123456789012345678901234567890123456"
				    "78901234567890"));
	stop_master(f);
	run_until(f, !is_up(f, 0));
	assert_string_equal("", node_session_program(node(f, 0)));
}

/* Each node is a row, also if its name is not UTF-8. */
static void a_name_that_is_not_utf8_is_shown(void **state)
{
	struct fixture *f = *state;
	Kvpool__NodeInfo info;
	json_t *j, *row;

	start_pool(f, 2);
	node_session_info(node(f, 1), &info);
	info.index = node(f, 1)->index;
	info.name = (char *)(uintptr_t)"caf\xe9";
	info.data_mode = (char *)(uintptr_t)"\xff";
	node_member_apply(node(f, 0), &info);
	j = pool_node_nodes_json(node(f, 0));
	assert_int_equal(2, json_array_size(json_object_get(j, "nodes")));
	row = json_array_get(json_object_get(j, "nodes"), info.index);
	assert_string_equal("caf\\xe9",
			    json_string_value(json_object_get(row, "name")));
	assert_string_equal("\\xff", json_string_value(json_object_get(
					     row, "data_mode")));
	json_decref(j);
}

/* A heartbeat of a master whose clock is so far behind ours, or ahead (ms < 0).
 */
static void note_clock(struct fixture *f, int64_t ms)
{
	node_session_note_clock(node(f, 0),
				(uint64_t)((int64_t)(pool_wall_ns() / 1000000) -
					   ms));
}

static int64_t clock_ahead_ms(struct fixture *f)
{
	json_t *j = pool_node_status_json(node(f, 0));
	const json_t *ahead = json_object_get(json_object_get(j, "master"),
					      "clock_ahead_ms");
	int64_t ms = json_is_null(ahead) ? INT64_MIN :
					   json_integer_value(ahead);

	assert_non_null(ahead);
	json_decref(j);
	return ms;
}

static bool page_has(struct fixture *f, const char *what)
{
	char *page;
	size_t len;
	bool has;

	assert_int_equal(0, pool_metrics_print(f->m[0].metrics, &page, &len));
	has = strstr(page, what) != NULL;
	free(page);
	return has;
}

#define assert_about(ms) \
	assert_in_range(clock_ahead_ms(f) + 10000000, 9999500 + (ms), \
			10000500 + (ms))

static void the_masters_clock_is_compared(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 1);
	run_until(f, clock_ahead_ms(f) != INT64_MIN);
	assert_about(0);
	/* From here on no heartbeat is received. */
	node(f, 0)->session->clocks.n = 0;
	node_session_note_clock(node(f, 0), 0); /* of an older version */
	assert_true(clock_ahead_ms(f) == INT64_MIN);
	note_clock(f, 9000); /* this one was late */
	assert_about(9000);
	note_clock(f, 5000);
	note_clock(f, 8000);
	assert_about(5000);
	for (int i = 0; i < NODE_CLOCKS; i++)
		note_clock(f, -7000);
	assert_about(-7000);
	assert_true(page_has(f, "\nkvpool_node_clock_ahead_seconds -7.0") ||
		    page_has(f, "\nkvpool_node_clock_ahead_seconds -6.9"));
	/* Nonsense stays a number. */
	for (int i = 0; i < NODE_CLOCKS; i++)
		node_session_note_clock(node(f, 0), UINT64_MAX - (unsigned)i);
	assert_true(clock_ahead_ms(f) == -NODE_CLOCK_MAX_MS);
	assert_true(page_has(f, "\nkvpool_node_clock_ahead_seconds -4398046511"
				".104000000\n"));
	stop_master(f);
	run_until(f, !is_up(f, 0));
	assert_true(clock_ahead_ms(f) == INT64_MIN);
}

static void feed_older(struct fixture *f, int i, const struct pool_entry *pe,
		       const char *path)
{
	const struct node_entry *e = (const void *)pe;
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta m = KVPOOL__META__INIT, *list[1] = { &m };
	uint8_t sum[16] = { 0 };

	m.path.data = (uint8_t *)(uintptr_t)path;
	m.path.len = strlen(path);
	m.is_dir = pe->is_dir;
	m.mode = 0700;
	if (!pe->is_dir) {
		m.gen = e->gen;
		m.size = e->size;
		m.sum.data = sum;
		m.sum.len = sizeof(sum);
	}
	feed.entries = list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(node(f, i), &feed));
}

static void change_and_feed(struct fixture *f, struct pool_entry *e,
			    const char *path)
{
	struct node_attr attr = { .mode = 0601, .uid = 7, .gid = 8 };
	unsigned int before;

	assert_int_equal(0, set_xattr(f, 0, e, "user.gone", "1"));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, set_xattr(f, 0, e, "user.a", "1"));
	assert_int_equal(0, pool_node_setattr(node(f, 0), e,
					      POOL_SET_MODE | POOL_SET_UID,
					      &attr, NULL));
	assert_int_equal(0, set_xattr(f, 0, e, "user.b", "2"));
	assert_int_equal(0, set_xattr(f, 0, e, "user.a", "3"));
	assert_int_equal(0, set_xattr(f, 0, e, "user.gone", NULL));
	before = f->m[0].calls.attr_changed;
	feed_older(f, 0, e, path);
	assert_true(has_xattr(e, "user.a", "3"));
	assert_true(has_xattr(e, "user.b", "2"));
	assert_false(has_xattr(e, "user.gone", "1"));
	assert_int_equal(0601, pool_node_attr(e)->mode);
	assert_int_equal(7, pool_node_attr(e)->uid);
	run_until(f, all_answered(f, 0));
	run_for(f, 60);
	assert_true(has_xattr(e, "user.a", "3"));
	assert_true(has_xattr(e, "user.b", "2"));
	assert_false(has_xattr(e, "user.gone", "1"));
	assert_int_equal(0601, pool_node_attr(e)->mode);
	assert_true(f->m[0].calls.attr_changed <= before + 2);
	/* After the ack, the feed's state is the current one. */
	feed_older(f, 0, e, path);
	assert_null(pool_node_xattrs(e));
	assert_int_equal(0700, pool_node_attr(e)->mode);
}

static void an_older_feed_undoes_no_change_that_is_under_way(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	struct node_dirent *d;

	start_pool(f, 1);
	publish(f, 0, "k", 1000, 1);
	change_and_feed(f, &find(f, 0, "k")->e, "k");
	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)), "d",
					    1, &attr, &d));
	change_and_feed(f, &d->d.e, "d");
	change_and_feed(f, &pool_node_root(node(f, 0))->d.e, "");
	assert_int_equal(0, node(f, 0)->changes.count);
}

/* An entry from before a directory was created again does not remove it. */
static void an_older_feed_removes_no_directory_being_made(void **state)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct fixture *f = *state;
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta m = KVPOOL__META__INIT, *list[1] = { &m };
	struct node_dirent *root, *d;

	start_pool(f, 1);
	root = pool_node_root(node(f, 0));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	run_until(f, all_answered(f, 0));
	assert_int_equal(0, pool_node_rmdir(node(f, 0), d));
	assert_int_equal(0, pool_node_mkdir(node(f, 0), root, "d", 1, &attr,
					    &d));
	m.path.data = (uint8_t *)(uintptr_t)"d";
	m.path.len = 1;
	m.is_dir = m.deleted = true;
	feed.entries = list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(node(f, 0), &feed));
	assert_non_null(pool_node_lookup(node(f, 0), root, "d", 1));
	run_until(f, all_answered(f, 0));
	run_for(f, 60);
	assert_ptr_equal(d, pool_node_lookup(node(f, 0), root, "d", 1));
	assert_int_equal(1, f->m[0].calls.dir_gone); /* its rmdir */
}

/* Publishes a name that is acked, but that the feed has not listed yet. */
static void publish_ahead(struct fixture *f, char name[16])
{
	int i = 0;

	do { /* until the feed does not arrive in the same turn */
		snprintf(name, 16, "new%d", i);
		publish(f, 0, name, 1000, 2);
	} while (!find(f, 0, name)->ahead && ++i < 100);
	assert_true(i < 100);
}

static void feed_alone(struct fixture *f, bool begin, bool complete)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;

	feed.upto_seq = node(f, 0)->feed_seq;
	feed.begin = begin;
	feed.complete = complete;
	assert_int_equal(0, node_feed_apply(node(f, 0), &feed));
}

/* A whole picture lacks names acked while it is sent: the feed waits until
 * others' changes are settled, and lists them afterwards. */
static void what_is_published_during_a_picture_outlives_it(void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish(f, 0, "old", 1000, 1);
	run_until(f, find(f, 0, "old")->ahead == 0);
	feed_alone(f, true, false);
	publish_ahead(f, name);
	feed_alone(f, false, true);
	assert_null(find(f, 0, "old"));
	assert_non_null(find(f, 0, name));
	assert_readable(f, 0, name, 1000, 2);
}

/* It is in the picture, or does not exist any more. */
static void what_was_published_before_a_picture_is_in_it(void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish_ahead(f, name);
	feed_alone(f, true, false);
	feed_alone(f, false, true);
	assert_null(find(f, 0, name));
}

/* The newer version was lost with its holders. Its cached copy must be dropped,
 * or the older version's bytes could not be fetched. */
static void a_picture_of_an_older_version_ends_a_cached_copy(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	uint64_t gen;

	start_pool(f, 2);
	publish(f, 1, "k", 1000, 1);
	run_until(f, find(f, 0, "k"));
	assert_readable(f, 0, "k", 1000, 1);
	e = find(f, 0, "k");
	gen = e->gen;
	assert_true(e->obj && e->obj->gen == gen && !e->obj->counted);
	feed_alone(f, true, false);
	feed_names(f, 0, (char[]){ "k" }, gen - 1);
	assert_int_equal(gen - 1, e->gen);
	assert_null(e->obj);
	feed_alone(f, false, true);
}

/* The first picture of a session may list names acked in this session only
 * afterwards. If such a name is removed, the feed reports that
 * (master_sub_since). */
static void what_was_named_before_the_first_picture_of_a_session_outlives_it(
	void **state)
{
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 1);
	publish_ahead(f, name);
	node(f, 0)->feed_begun = false; /* as after WELCOME */
	feed_alone(f, true, false);
	feed_alone(f, false, true);
	assert_non_null(find(f, 0, name));
	assert_readable(f, 0, name, 1000, 2);
}

/* ---- barriers ---- */

static void a_barrier_without_a_master_times_out(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false }, cancelled = t;
	uint64_t start = pool_now_ms();

	f->opts.deadline_ms = 1000;
	start_node(f, 0);
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &cancelled.b,
						    on_barrier));
	pool_node_barrier_cancel(node(f, 0), &cancelled.b);
	run_until(f, t.done);
	assert_int_equal(-ETIMEDOUT, t.status);
	assert_in_range(pool_now_ms() - start, 1000, 4000);
	assert_false(cancelled.done);
	assert_count(1, f, 0, barrier_timeouts);
	/* Without a session, the next barrier fails at once. */
	t.done = false;
	start = pool_now_ms();
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(-ETIMEDOUT, t.status);
	assert_in_range(pool_now_ms() - start, 0, 900);
	/* A barrier that waits when the node closes ends, too. */
	t.done = false;
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	stop_node(f, 0);
	assert_true(t.done);
	/* On a busy machine it may time out before that. */
	assert_true(t.status == -ECANCELED || t.status == -ETIMEDOUT);
}

static void a_barrier_ends_after_the_publications_before_it(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };
	int i;

	start_pool(f, 2);
	for (i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i);
		put(f, 0, name, 10000, (uint32_t)i);
	}
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	for (i = 0; i < 20; i++) {
		char name[16];

		snprintf(name, sizeof(name), "k%d", i);
		assert_true(is_published(f, 0, name));
		assert_non_null(find(f, 1, name)); /* listed before */
	}
	/* Without pending changes, one round trip. */
	t.done = false;
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

static void a_barrier_waits_until_other_kernels_are_notified(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 2);
	f->m[1].calls.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, find(f, 1, "k") && f->m[1].calls.mark);
	run_for(f, 60);
	assert_false(t.done);
	f->m[1].calls.slow = false;
	pool_node_notified(node(f, 1), f->m[1].calls.mark);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

static void a_patient_barrier_waits_while_something_is_done(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false }, other = t;
	uint64_t end, other_end;

	start_pool(f, 2);
	f->m[1].calls.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	pool_node_barrier_patient(&t.b);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &other.b,
						    on_barrier));
	end = t.b.deadline_ms;
	other_end = other.b.deadline_ms;
	usleep(5000);
	run_until(f, is_published(f, 0, "k") && f->m[1].calls.mark);
	assert_true(t.b.deadline_ms > end);
	assert_int_equal(other.b.deadline_ms, other_end);
	/* Later changes do not extend the wait. */
	end = t.b.deadline_ms;
	usleep(5000);
	publish(f, 0, "later", 1000, 1);
	assert_int_equal(t.b.deadline_ms, end);
	f->m[1].calls.slow = false;
	pool_node_notified(node(f, 1), f->m[1].calls.mark);
	run_until(f, t.done && other.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, other.status);
}

static void a_barrier_outlives_the_loss_of_the_master(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 1);
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	put(f, 0, "k", 10000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_for(f, 40);
	assert_false(t.done);
	start_master(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(is_published(f, 0, "k"));
}

/* The former master's answer is lost. */
static void a_barrier_asks_the_next_master_again(void **state)
{
	struct fixture *f = *state;
	struct test_barrier t = { .done = false };

	start_pool(f, 2);
	f->m[1].calls.slow = true;
	put(f, 0, "k", 1000, 1);
	assert_int_equal(0, pool_node_barrier_start(node(f, 0), &t.b,
						    on_barrier));
	run_until(f, f->m[1].calls.mark && is_published(f, 0, "k"));
	run_for(f, 60); /* it asks */
	assert_false(t.done);
	stop_master(f);
	run_until(f,
		  !node_session_up(node(f, 0)) && !node_session_up(node(f, 1)));
	f->m[1].calls.slow = false;
	pool_node_notified(node(f, 1), f->m[1].calls.mark);
	start_master(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(an_idle_pool_keeps_its_connections),
		T(batches_of_an_earlier_connection_are_not_acked),
		T(a_master_of_an_older_epoch_is_left),
		T(a_node_goes_through_its_list_of_masters),
		T(the_pools_versions_are_known),
		T(a_name_that_is_not_utf8_is_shown),
		T(the_masters_clock_is_compared),
		T(an_older_feed_undoes_no_change_that_is_under_way),
		T(an_older_feed_removes_no_directory_being_made),
		T(what_is_published_during_a_picture_outlives_it),
		T(what_was_published_before_a_picture_is_in_it),
		T(a_picture_of_an_older_version_ends_a_cached_copy),
		T(what_was_named_before_the_first_picture_of_a_session_outlives_it),
		T(a_barrier_without_a_master_times_out),
		T(a_barrier_ends_after_the_publications_before_it),
		T(a_barrier_waits_until_other_kernels_are_notified),
		T(a_patient_barrier_waits_while_something_is_done),
		T(a_barrier_outlives_the_loss_of_the_master),
		T(a_barrier_asks_the_next_master_again),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
