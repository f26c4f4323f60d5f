/* Full stores: puts and reads for which only headroom is left, and objects that
 * move to another store (pool/node/space.c, fetch_room.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- puts that pass through ---- */

/* Does node 0 know that node 1 has space? */
static bool room_elsewhere_known(struct fixture *f)
{
	const struct node_member *m =
		&node(f, 0)->members[node(f, 1)->index];

	return m->known && m->alive &&
	       m->capacity - m->used >= 8 * MIB;
}

/* Claims space for a put on node i, and ends the claim: 0 or -errno. */
static int claim_to_put(struct fixture *f, int i, uint64_t bytes,
			unsigned int timeout_ms)
{
	struct test_claim t = { .c.put = true };
	int rc = pool_node_claim_start(node(f, i), &t.c, bytes, timeout_ms,
				       on_claim);

	if (rc == 0) {
		run_until(f, t.done);
		rc = t.status;
	}
	if (rc >= 0)
		pool_node_claim_end(node(f, i), bytes);
	return rc < 0 ? rc : 0;
}

/* Node 0 is full with k, of 26 MiB, and knows that node 1 has space. */
static void fill_one(struct fixture *f)
{
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 26 * MIB, 1);
	run_until(f, room_elsewhere_known(f));
}

static void a_put_passes_through_where_nothing_may_go(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	fill_one(f);
	pin(f, 0, "k");
	/* Only puts may use the headroom. */
	assert_int_equal(0, claim(f, &t, 8 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(1, f, 0, claims_through);
	/* The new object moves to node 1, and k stays. */
	publish(f, 0, "l", 8 * MIB, 2);
	run_until(f, known(f, 1, "l") && !find(f, 0, "l")->obj);
	assert_readable(f, 1, "l", 8 * MIB, 2);
	assert_non_null(find(f, 0, "k")->obj);
	/* Without space on node 1 a put is refused. */
	publish(f, 1, "a", 20 * MIB, 3);
	pin(f, 1, "a");
	pin(f, 1, "l");
	run_until(f, find(f, 0, "a") && !room_elsewhere_known(f));
	assert_int_equal(-ENOSPC, claim_to_put(f, 0, 8 * MIB, 0));
}

static void rule_of_all(struct fixture *f, const char *name, const char *value)
{
	const struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;

	assert_int_equal(0, pool_xattrs_set(&x, name, value, strlen(value), 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0),
					      &pool_node_root(node(f, 0))->d.e,
					      POOL_SET_XATTRS, &attr, x));
}

static bool has_copy(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->obj && e->obj->counted;
}

/* Pinned objects can use all stores of the pool. */
static void what_is_pinned_does_not_stay_in_the_headroom(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	fill_one(f);
	rule_of_all(f, "user.kvpool.pin", "hard");
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(1, f, 0, claims_through);
	publish(f, 0, "l", 8 * MIB, 2);
	run_until(f, has_copy(f, 0, "k") != has_copy(f, 0, "l") &&
			     has_copy(f, 1, "k") != has_copy(f, 1, "l"));
	for (int i = 0; i < 2; i++) {
		o = find(f, i, "k")->obj;
		assert_bytes(f, i, o ? o : find(f, i, "l")->obj,
			     o ? 26 * MIB : 8 * MIB, o ? 1 : 2);
	}
}

static uint64_t used(struct fixture *f, int i)
{
	struct pool_space sp;

	pool_store_space(pool_node_store(node(f, i)), &sp);
	return sp.used;
}

/* Node 1 has space for two of the pinned objects, and not for l. */
static void objects_without_room_elsewhere_are_not_evicted_for_it(void **state)
{
	const struct node_member *m;
	struct fixture *f = *state;
	char name[16];

	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish(f, 1, "a", 20 * MIB, 1);
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		publish_and_see(f, name, 5 * MIB, 2);
		pin(f, 0, name);
	}
	m = &node(f, 0)->members[node(f, 1)->index];
	run_until(f, m->known && m->used >= 20 * MIB);
	publish(f, 0, "l", 14 * MIB, 3);
	run_until(f, used(f, 0) < STORE_SIZE + MIB);
	assert_true(has_copy(f, 0, "l") && has_copy(f, 1, "a"));
	for (int i = 0; i < 5; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		assert_true(has_copy(f, 0, name) != has_copy(f, 1, name));
	}
}

/* A put may use the headroom only if another node will take the object. */
static void what_stays_here_does_not_pass_through(void **state)
{
	struct fixture *f = *state;
	struct test_claim t = { .done = false };
	json_t *json = NULL;
	const char *text;
	struct node_object *o;

	fill_one(f);
	rule_of_all(f, "user.kvpool.class", "scratch");
	pin(f, 0, "k");
	o = create_in(f, 0, pool_node_root(node(f, 0)), "s", 0);
	assert_true(o->w->scratch);
	assert_int_equal(0, pool_node_extend_start(node(f, 0), o, 0, 8 * MIB,
						   on_extended, &t));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	pool_node_writer_closed(node(f, 0), o);
	/* A draining node takes no objects. */
	assert_int_equal(0, master_drain(f->master, "node1", MASTER_DRAIN_BEGIN,
					 &json, &text));
	json_decref(json);
	run_until(f, node(f, 0)->members[node(f, 1)->index].draining);
	assert_int_equal(-ENOSPC, claim_to_put(f, 0, 8 * MIB, 0));
	assert_count(0, f, 0, claims_through);
}

static void a_client_holds_no_more_than_its_buffer(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_master(f);
	start_node(f, 0);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	need_own_tmpfs(f, 1);
	run_until(f, is_up(f, 0) && is_up(f, 1) &&
			     node(f, 1)->members[node(f, 0)->index].known);
	o = create_in(f, 1, pool_node_root(node(f, 1)), "k", 0);
	write_bytes(f, 1, o, 14 * MIB, 1);
	assert_int_equal(-ENOSPC, claim_to_put(f, 1, 8 * MIB, 0));
	assert_count(0, f, 1, claims_through);
	close_whole(f, 1, o);
}

/* Two full stores of 32 MiB: node 0 has one object, node 1 has two. */
static void fill_both(struct fixture *f)
{
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 26 * MIB, 1);
	publish(f, 1, "a", 13 * MIB, 2);
	publish(f, 1, "b", 13 * MIB, 3);
	run_until(f, find(f, 0, "a") && find(f, 0, "b"));
}

/* Without the rule, the master would permit eviction, because no store has
 * space. */
static void a_rule_is_sent_before_its_objects_are_offered(
	void **state)
{
	struct fixture *f = *state;

	fill_both(f);
	rule_of_all(f, "user.kvpool.class", "noevict");
	/* What node 0 knows of node 1 is outdated. */
	node(f, 0)->members[node(f, 1)->index].used = 0;
	(void)claim_to_put(f, 0, 20 * MIB, 500);
	run_for(f, 3 * HEARTBEAT_MS);
	assert_readable(f, 0, "k", 26 * MIB, 1);
}

/* An object that a peer has open may become evictable at any time, or not. */
static void a_put_does_not_fail_because_peers_have_all_open(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	fill_one(f);
	o = find(f, 0, "k")->obj;
	o->lent++;
	assert_int_equal(0, claim_to_put(f, 0, 8 * MIB, 500));
	assert_count(1, f, 0, claims_through);
	o->lent--;
}

/* ---- reads ---- */

/* Opens and reads the object; it is in use until then. */
static void open_start(struct fixture *f, int i, const char *name,
		       struct test_want *t)
{
	assert_int_equal(0, want_start(f, i, name, t));
	t->use = true;
}

static void assert_opened(struct fixture *f, int i, struct test_want *t,
			  uint64_t len, uint32_t seed)
{
	run_until(f, t->done);
	assert_int_equal(0, t->status);
	assert_false(t->obj->counted);
	assert_bytes(f, i, t->obj, len, seed);
	t->obj->users--;
	node_object_unref(node(f, i), t->obj);
	node_kick(node(f, i));
}

/* All objects are pinned. There is no space for a counted copy, but the
 * headroom suffices for reading. */
static void what_is_ordered_to_where_there_is_no_room_can_be_read(void **state)
{
	static const char *const names[] = { "k", "l", "a", "b", "c" };
	struct fixture *f = *state;
	struct test_want a, b;

	fill_both(f);
	publish_and_see(f, "l", 4 * MIB, 4);
	publish(f, 1, "c", 5 * MIB, 5);
	for (int i = 0; i < 5; i++)
		pin(f, i < 2 ? 0 : 1, names[i]);
	run_for(f, 3 * HEARTBEAT_MS);
	order_copy(f, 1, 0, "l");
	assert_non_null(find(f, 1, "l")->fetch);
	open_start(f, 1, "l", &a); /* while the ordered copy waits */
	open_start(f, 1, "l", &b);
	assert_opened(f, 1, &a, 4 * MIB, 4);
	assert_opened(f, 1, &b, 4 * MIB, 4);
	assert_count(1, f, 1, replicate_failures);
	/* Reads node 1's objects, one after another and two at once. */
	open_start(f, 0, "a", &a);
	assert_opened(f, 0, &a, 13 * MIB, 2);
	open_start(f, 0, "c", &a);
	open_start(f, 0, "b", &b);
	assert_opened(f, 0, &a, 5 * MIB, 5);
	assert_opened(f, 0, &b, 13 * MIB, 3);
}

static int claim_to_read(struct fixture *f, struct test_claim *t,
			 uint64_t bytes)
{
	memset(t, 0, sizeof(*t));
	t->c.transient = true;
	return pool_node_claim_start(node(f, 0), &t->c, bytes, 0, on_claim);
}

/* A read that waits for headroom is served before one that begins later, even
 * if that one begins in the turn in which both fit. */
static void a_read_does_not_overtake_one_that_fits(void **state)
{
	struct fixture *f = *state;
	struct test_claim a, b, c;

	fill_one(f);
	pin(f, 0, "k");
	assert_int_equal(1, claim_to_read(f, &a, 18 * MIB));
	assert_int_equal(0, claim_to_read(f, &b, 8 * MIB));
	run_for(f, 3 * HEARTBEAT_MS);
	assert_false(b.done);
	pool_node_claim_end(node(f, 0), 18 * MIB);
	assert_int_equal(0, claim_to_read(f, &c, 18 * MIB));
	run_until(f, b.done);
	assert_int_equal(0, b.status);
	assert_false(c.done);
	pool_node_claim_end(node(f, 0), 8 * MIB);
	run_until(f, c.done);
	assert_int_equal(0, c.status);
	/* One that does not fit yet does not make others wait. */
	assert_int_equal(0, claim_to_read(f, &a, 4 * MIB));
	assert_int_equal(1, claim_to_read(f, &b, MIB));
	pool_node_claim_end(node(f, 0), 19 * MIB);
	run_until(f, a.done);
	assert_int_equal(0, a.status);
	pool_node_claim_end(node(f, 0), 4 * MIB);
}

static void what_is_read_costs_no_copy_that_counts(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	struct node_object *o;
	struct test_want w;

	fill_both(f);
	assert_int_equal(0, want_start(f, 0, "a", &w));
	w.use = true;
	run_until(f, w.done);
	assert_int_equal(0, w.status);
	o = w.obj;
	assert_bytes(f, 0, o, 13 * MIB, 2);
	assert_count(1, f, 0, claims_passing);
	/* The store exceeds its size for as long as the object is in use;
	 * writers do not wait for that. */
	run_for(f, 100);
	assert_int_equal(NODE_HELD, o->state);
	assert_int_equal(1, claim(f, &t, MIB, 0));
	pool_node_claim_end(node(f, 0), MIB);
	o->users--;
	run_until(f, o->state == NODE_DROPPED);
	node_object_unref(node(f, 0), o);
	assert_int_equal(0, want(f, 0, "b", &o));
	node_object_unref(node(f, 0), o);
	assert_non_null(find(f, 0, "k")->obj);
	assert_count(0, f, 0, evicted_last);
	assert_count(0, f, 1, evicted_last);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_put_passes_through_where_nothing_may_go),
		T(what_is_pinned_does_not_stay_in_the_headroom),
		T(objects_without_room_elsewhere_are_not_evicted_for_it),
		T(what_stays_here_does_not_pass_through),
		T(a_client_holds_no_more_than_its_buffer),
		T(a_rule_is_sent_before_its_objects_are_offered),
		T(a_put_does_not_fail_because_peers_have_all_open),
		T(what_is_ordered_to_where_there_is_no_room_can_be_read),
		T(a_read_does_not_overtake_one_that_fits),
		T(what_is_read_costs_no_copy_that_counts),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
