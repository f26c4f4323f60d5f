/* Copies that the master orders and drops, and which copies are counted
 * (pool/node/replicate.c, object.c, heat.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/pool_node_fixture.h"

/* ---- orders ---- */

static void a_copy_is_checked_before_it_counts_as_a_replica(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_readable(f, 1, "k", 100000, 1); /* makes a cached copy */
	o = find(f, 1, "k")->obj;
	assert_false(o->counted);
	damage(f, 1, o);
	o->verified = false; /* as after a restart */
	order_copy(f, 1, 0, "k");
	assert_false(o->counted);
	run_until(f, find(f, 1, "k")->obj != o);
	/* The holder's copy is right. */
	assert_readable(f, 1, "k", 100000, 1);
	/* A copy that was verified is counted when it is ordered again. */
	o = find(f, 1, "k")->obj;
	o->verified = false;
	order_copy(f, 1, 0, "k");
	assert_false(o->counted);
	run_until(f, o->verified);
	order_copy(f, 1, 0, "k");
	assert_true(o->counted);
}

/* The order for a new generation may arrive before the feed lists it. */
static void a_copy_that_was_ordered_replaces_what_the_mount_shows(void **state)
{
	struct fixture *f = *state;
	struct pool_xattrs *x = NULL;
	unsigned int i;

	start_pool(f, 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.replicas", "2", 1,
					    0));
	assert_int_equal(0, pool_node_setattr(
				    node(f, 0),
				    &pool_node_root(node(f, 0))->d.e,
				    POOL_SET_XATTRS,
				    &pool_node_root(node(f, 0))->attr, x));
	publish(f, 0, "k", 1000, 1);
	run_until(f, find(f, 1, "k") && find(f, 1, "k")->obj);
	for (i = 1; i <= 8; i++) {
		publish(f, 0, "k", 1000 + i, 1 + i);
		run_until(f, find(f, 1, "k")->gen == find(f, 0, "k")->gen &&
				     find(f, 1, "k")->obj);
		run_for(f, 30); /* the feed lists it by now, too */
		assert_int_equal(i, f->m[1].calls.changed);
	}
	assert_readable(f, 1, "k", 1008, 9);
}

/* The order comes while a read of the object is in flight, which borrows. */
static void a_copy_that_is_borrowed_is_no_replica(void **state)
{
	struct fixture *f = *state;
	struct test_want w;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_int_equal(0, want_start(f, 1, "k", &w));
	order_copy(f, 1, 0, "k");
	assert_false(w.done);
	run_until(f, w.done);
	assert_int_equal(0, w.status);
	assert_true(w.obj->lent_fd >= 0);
	assert_false(w.obj->counted);
	node_object_unref(node(f, 1), w.obj);
}

/* The master waits for the answer, and a client's put waits for the master. */
static void an_order_that_cannot_begin_is_answered(void **state)
{
	struct fixture *f = *state;
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	struct test_want t;
	uint8_t sum[16] = { 1 };

	start_pool(f, 2);
	publish_and_see(f, "k", 3 * MIB, 1);
	assert_int_equal(0, want_start(f, 1, "k", &t));
	meta.path.data = (uint8_t *)(uintptr_t)"k";
	meta.path.len = 1;
	meta.gen = find(f, 1, "k")->gen + 1;
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	msg.entries = &list;
	msg.n_entries = 1;
	node_replicate(node(f, 1), &msg);
	assert_count(1, f, 1, replicate_failures);
	run_until(f, t.done);
	assert_int_equal(-ESTALE, t.status);
}

/* One message for each, with the node's figures, would cost more than the
 * copies. */
static void results_of_many_orders_are_sent_together(void **state)
{
	struct fixture *f = *state;
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list[500];
	uint8_t sum[16] = { 1 };
	uint64_t before;
	size_t i;

	start_pool(f, 1);
	meta.path.data = (uint8_t *)(uintptr_t)"k/";
	meta.path.len = 2; /* no name */
	meta.gen = 1;
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	for (i = 0; i < 500; i++)
		list[i] = &meta;
	msg.entries = list;
	msg.n_entries = 500;
	before = pool_counter_value(&node(f, 0)->c.master_requests);
	node_replicate(node(f, 0), &msg);
	assert_count(500, f, 0, replicate_failures);
	uv_run(&f->loop, UV_RUN_NOWAIT);
	assert_int_equal(0, node(f, 0)->helds.n);
	/* Two messages, and perhaps a heartbeat. */
	assert_in_range(pool_counter_value(&node(f, 0)->c.master_requests) -
				before, 2, 3);
}

/* ---- which copies count ---- */

static bool counts(struct fixture *f, int i, const char *name)
{
	struct node_entry *e = find(f, i, name);

	return e && e->obj && e->obj->state == NODE_HELD && e->obj->counted;
}

/* A store has a copy and an fsync has ended, but two copies are wanted. The
 * master still lists the client as a holder, so the client must not evict its
 * copy without asking. */
static void a_clients_copy_counts_as_long_as_it_is_named(void **state)
{
	struct fixture *f = *state;
	struct node_attr attr = { 0 };
	struct pool_xattrs *x = NULL;
	struct node_entry *e;

	start_pool(f, 1);
	f->opts.store_size = 0;
	f->opts.buffer_size = 16 * MIB;
	start_node(f, 1);
	run_until(f, is_up(f, 1) && node(f, 1)->nmembers == 2);
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.replicas", "2", 1,
					    0));
	assert_int_equal(0, pool_node_setattr(node(f, 0),
					      &pool_node_root(node(f, 0))->d.e,
					      POOL_SET_XATTRS, &attr, x));
	run_until(f, pool_node_root(node(f, 1))->rules.replicas == 2);
	publish(f, 1, "k", 100000, 1);
	e = find(f, 1, "k");
	run_until(f, counts(f, 0, "k") && e->replicas == 2 && !e->obj->w);
	assert_true(e->obj->counted);
	f->opts.store_size = STORE_SIZE;
	start_node(f, 2);
	run_until(f, counts(f, 2, "k") && !e->obj->counted);
	assert_int_equal(2, e->replicas);
}

static void drop_was_decided(struct fixture *f, int i, const char *name,
			     Kvpool__Drop__Reason reason, uint64_t helds)
{
	Kvpool__Drop msg = KVPOOL__DROP__INIT;
	Kvpool__Drop__Item item = KVPOOL__DROP__ITEM__INIT, *list = &item;

	item.path.data = (uint8_t *)(uintptr_t)name;
	item.path.len = strlen(name);
	item.gen = find(f, i, name)->gen;
	item.reason = reason;
	item.helds = helds;
	msg.items = &list;
	msg.n_items = 1;
	msg.granted = node(f, i)->granted;
	node_drop_apply(node(f, i), &msg);
}

/* The master counts this copy. A DROP that it sent before it received HELD
 * means an earlier copy. */
static void a_drop_that_crosses_held_does_not_mean_that_copy(void **state)
{
	struct fixture *f = *state;
	const char *const names[] = { "k", "l" };

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish(f, 0, names[i], 100000, 1);
		set_replicas(f, 0, names[i], "2", 0640);
		run_until(f, counts(f, 1, names[i]));
		/* The number of HELDs received when the DROP was decided, plus
		 * 1. */
		drop_was_decided(f, 1, names[i], KVPOOL__DROP__REASON__EVICTED,
				 1 + (unsigned)i);
		drop_was_decided(f, 1, names[i], KVPOOL__DROP__REASON__SURPLUS,
				 1 + (unsigned)i);
		assert_true(counts(f, 1, names[i]));
		run_until(f, find(f, 0, names[i])->replicas == 2);
	}
	drop_was_decided(f, 1, "k", KVPOOL__DROP__REASON__EVICTED, 2);
	assert_null(find(f, 1, "k")->obj);
	drop_was_decided(f, 1, "l", KVPOOL__DROP__REASON__SURPLUS, 3);
	assert_false(counts(f, 1, "l"));
	/* A DROP of an older master, without that number. */
	drop_was_decided(f, 1, "l", KVPOOL__DROP__REASON__EVICTED, 0);
	assert_null(find(f, 1, "l")->obj);
}

static void a_surplus_copy_is_cache_and_gone_after_a_restart(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	int i;

	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	set_replicas(f, 0, "k", "2", 0640);
	run_until(f, counts(f, 1, "k") && find(f, 0, "k")->replicas == 2);
	set_replicas(f, 0, "k", "1", 0640);
	run_until(f, counts(f, 0, "k") != counts(f, 1, "k"));
	i = counts(f, 0, "k") ? 1 : 0;
	e = find(f, i, "k");
	assert_non_null(e->obj); /* still readable on this node */
	assert_readable(f, i, "k", 100000, 1);
	assert_int_equal(POOL_EVICT_CACHE, e->obj->ev.class);
	run_until(f, find(f, 0, "k")->replicas == 1 &&
			     find(f, 1, "k")->replicas == 1);
	/* While the node is down it would not receive a deletion. */
	stop_node(f, i);
	start_node(f, i);
	run_until(f, is_up(f, i) && known(f, i, "k"));
	assert_null(find(f, i, "k")->obj);
	assert_true(counts(f, !i, "k"));
}

/* An object that moves to another store before it is evicted was not read by
 * that. */
static void a_copy_that_was_ordered_is_no_read(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish_and_see(f, "moved", 100000, 1);
	publish_and_see(f, "read", 100000, 2);
	order_copy(f, 1, 0, "moved");
	run_until(f, find(f, 1, "moved")->obj);
	assert_readable(f, 1, "read", 100000, 2);
	node_object_drop(node(f, 0), find(f, 0, "read")->obj, true);
	assert_count(0, f, 0, evicted_unread);
	node_object_drop(node(f, 0), find(f, 0, "moved")->obj, true);
	assert_count(1, f, 0, evicted_unread);
}

/* Engines read what they have just stored. */
static void a_use_before_the_ack_is_a_read(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 1);
	put(f, 0, "used", 100000, 1);
	put(f, 0, "unused", 100000, 2);
	assert_int_not_equal(NODE_HELD, find(f, 0, "used")->own->state);
	pool_node_used(node(f, 0), find(f, 0, "used")->own);
	run_until(f, is_published(f, 0, "used") &&
			     is_published(f, 0, "unused"));
	node_object_drop(node(f, 0), find(f, 0, "used")->obj, true);
	assert_count(0, f, 0, evicted_unread);
	node_object_drop(node(f, 0), find(f, 0, "unused")->obj, true);
	assert_count(1, f, 0, evicted_unread);
}

/* ---- extra copies ---- */

/* k of node 0 was read on node 1, which is listed as a holder for cold_ms. */
static void make_hot(struct fixture *f, unsigned int cold_ms)
{
	f->opts.hot_gets = 1;
	f->opts.cold_ms = cold_ms;
	start_pool(f, 2);
	publish(f, 0, "k", 100000, 1);
	run_until(f, known(f, 1, "k"));
	assert_readable(f, 1, "k", 100000, 1);
	run_until(f, find(f, 0, "k")->replicas == 2);
	assert_int_equal(1, node(f, 1)->nextras);
}

static void what_peers_ask_for_is_extra_until_it_is_cold(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	make_hot(f, 400);
	e = find(f, 1, "k");
	assert_false(e->obj->counted);
	run_until(f, find(f, 0, "k")->replicas == 1);
	assert_int_equal(0, node(f, 1)->nextras);
	assert_non_null(e->obj); /* an ordinary cached copy */
	assert_true(counts(f, 0, "k"));
}

static void an_extra_copy_that_is_evicted_is_named_no_more(void **state)
{
	struct fixture *f = *state;

	make_hot(f, 60000);
	node_object_drop(node(f, 1), find(f, 1, "k")->obj, true);
	run_until(f, find(f, 0, "k")->replicas == 1);
	assert_int_equal(0, node(f, 1)->nheats);
}

static void an_extra_copy_that_is_renamed_is_one_no_more(void **state)
{
	struct fixture *f = *state;

	make_hot(f, 60000);
	assert_int_equal(0, rename_to(f, 1, "k", "new", false));
	assert_int_equal(0, node(f, 1)->nheats);
	/* No timer refers to them when they would have become cold. */
	assert_int_equal(0, pool_node_unlink(node(f, 1), find(f, 1, "new")));
	node_heat_tick(node(f, 1), pool_now_ms() + 120000);
	run_until(f, !known(f, 0, "k") && !known(f, 0, "new"));
}

static unsigned int copies(struct fixture *f, int i, enum pool_evict_class c)
{
	return (unsigned int)pool_evict_count(node(f, i)->evict, c);
}

/*
 * A store without a mount knows the rules of files, but not of directories: d/a
 * is evictable to it, b is not. The master subtracts what either keeps, once.
 */
static void what_is_kept_on_a_store_without_a_mount_is_subtracted_once(
	void **state)
{
	struct fixture *f = *state;
	const struct master_member *mb;
	const uint64_t size = 1 << 20;
	struct node_dirent *d;

	start_master(f);
	start_node(f, 0);
	f->opts.mount = false;
	start_node(f, 1);
	run_until(f, is_up(f, 0) && node_session_up(node(f, 1)));
	mb = f->master->members.by_index[node(f, 1)->index];
	assert_int_equal(0, mkdir_top(f, 0, "d", &d));
	put_in(f, 0, d, "a", size, 1);
	publish(f, 0, "b", size, 2);
	publish(f, 0, "c", size, 3);
	run_until(f, all_answered(f, 0) && pool_node_published(
						   find_in(f, 0, d, "a")));
	assert_int_equal(0, set_xattr(f, 0, &d->d.e, "user.kvpool.replicas",
				      "2"));
	assert_int_equal(0, set_xattr(f, 0, &d->d.e, "user.kvpool.class",
				      "noevict"));
	set_replicas(f, 0, "c", "2", 0640);
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "b")->e,
				      "user.kvpool.pin", "hard"));
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "b")->e,
				      "user.kvpool.replicas", "2"));
	run_until(f, copies(f, 1, POOL_EVICT_COUNTED) == 2 &&
			     copies(f, 1, POOL_EVICT_KEPT) == 1);
	run_until(f, mb->used >= 3 * size &&
			     mb->reported_evictable == 2 * size);
	master_patrol_start(f->master);
	run_until(f, mb->kept == 2 * size);
	assert_true(mb->evictable >= size);
	assert_true(mb->evictable < 2 * size);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(a_copy_is_checked_before_it_counts_as_a_replica),
		T(a_copy_that_was_ordered_replaces_what_the_mount_shows),
		T(a_copy_that_is_borrowed_is_no_replica),
		T(an_order_that_cannot_begin_is_answered),
		T(results_of_many_orders_are_sent_together),
		T(a_clients_copy_counts_as_long_as_it_is_named),
		T(a_drop_that_crosses_held_does_not_mean_that_copy),
		T(a_surplus_copy_is_cache_and_gone_after_a_restart),
		T(a_copy_that_was_ordered_is_no_read),
		T(a_use_before_the_ack_is_a_read),
		T(what_peers_ask_for_is_extra_until_it_is_cold),
		T(an_extra_copy_that_is_evicted_is_named_no_more),
		T(an_extra_copy_that_is_renamed_is_one_no_more),
		T(what_is_kept_on_a_store_without_a_mount_is_subtracted_once),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
