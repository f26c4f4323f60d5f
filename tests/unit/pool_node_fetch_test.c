/* Objects of other nodes: fetched, borrowed, and never read when damaged
 * (pool/node/fetch.c, want.c, serve.c, doubt.c). */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/peer/peer_priv.h"
#include "tests/unit/pool_node_fixture.h"

/* ---- fetching ---- */

static void another_node_sees_and_fetches_what_was_published(void **state)
{
	struct fixture *f = *state;
	struct test_want a, b, cancelled;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "remote");
	assert_int_equal(0, want_start(f, 1, "k", &a));
	assert_int_equal(0, want_start(f, 1, "k", &b));
	assert_int_equal(0, want_start(f, 1, "k", &cancelled));
	pool_node_want_cancel(node(f, 1), &cancelled.w);
	run_until(f, a.done && b.done);
	assert_int_equal(0, a.status);
	assert_ptr_equal(a.obj, b.obj);
	assert_false(cancelled.done);
	assert_count(1, f, 1, fetches);
	assert_true(a.obj->lent_fd < 0);
	assert_bytes(f, 1, a.obj, 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "cached");
	node_object_unref(node(f, 1), a.obj);
	node_object_unref(node(f, 1), b.obj);
	/* Now it is here. */
	assert_int_equal(1, want_start(f, 1, "k", &a));
	node_object_unref(node(f, 1), a.obj);
}

/* Nodes 0 and 1 have `name`; node 2, which has not, knows it. */
static void publish_on_two(struct fixture *f, const char *name, uint64_t size,
			   uint32_t seed)
{
	publish_and_see(f, name, size, seed);
	set_replicas(f, 0, name, "2", 0600);
	run_until(f, find(f, 0, name)->replicas == 2);
	if (!node(f, 2))
		start_node(f, 2);
	run_until(f, is_up(f, 2) && known(f, 2, name) &&
			     find(f, 2, name)->nholders == 2);
}

/* A peer's GET for the first `length` bytes reaches node i. */
static void ask_for(struct fixture *f, int i, const char *name, uint64_t length)
{
	uint64_t size;
	bool lendable;
	int fd = node_peers_ops.get(node(f, i), name, strlen(name),
				    find(f, i, name)->gen, length, false,
				    &size, &lendable);

	assert_true(fd >= 0);
	close(fd);
}

/* From one holder a large object is one range; from two, it comes in pieces. */
static void a_large_object_comes_in_pieces_from_several_holders(void **state)
{
	struct fixture *f = *state;
	uint64_t size = 11 * MIB + 123;
	struct pool_counter *ranges;

	f->opts.hot_gets = 1;
	start_pool(f, 2);
	publish_and_see(f, "one", size, 2);
	ranges = &node(f, 1)->peers->metrics.fetched;
	assert_readable(f, 1, "one", size, 2);
	assert_int_equal(1, ranges->v);
	assert_count(1, f, 0, hot);
	ask_for(f, 0, "one", size + 1); /* will be refused */
	assert_count(1, f, 0, hot);
	ask_for(f, 0, "one", size);
	assert_count(2, f, 0, hot);

	publish_on_two(f, "two", size, 3);
	ranges = &node(f, 2)->peers->metrics.fetched;
	assert_readable(f, 2, "two", size, 3);
	assert_int_equal(3, ranges->v);
	/* Neither was asked for all bytes of it by a reader. */
	assert_count(0, f, 1, hot);
}

/* Two of the three objects are one range each. The third begins in pieces. */
static void few_large_ranges_are_in_flight(void **state)
{
	static const char *const names[] = { "a", "b", "c" };
	struct fixture *f = *state;
	uint64_t size = 45 * MIB;
	struct test_want w[3];
	struct pool_node *n;

	f->opts.store_size = 256 * MIB;
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	for (uint32_t i = 0; i < 3; i++)
		publish_and_see(f, names[i], size, i);
	n = node(f, 1);
	for (int i = 0; i < 3; i++)
		assert_int_equal(0, want_start(f, 1, names[i], &w[i]));
	assert_int_equal(2 * size, n->whole_bytes);
	while (!w[0].done || !w[1].done || !w[2].done) {
		assert_true(n->whole_bytes <= NODE_WHOLE_SUM);
		uv_run(&f->loop, UV_RUN_ONCE);
	}
	assert_int_equal(0, n->whole_bytes);
	assert_true(n->peers->metrics.fetched.v > 3);
	for (uint32_t i = 0; i < 3; i++) {
		assert_int_equal(0, w[i].status);
		assert_bytes(f, 1, w[i].obj, size, i);
		node_object_unref(n, w[i].obj);
	}
}

/* Tells node `to`, as the master would, whether node i is alive. */
static void tell_alive(struct fixture *f, int to, int i, bool alive)
{
	Kvpool__NodeInfo info;

	node_session_info(node(f, i), &info);
	info.index = node(f, i)->index;
	info.alive = alive;
	node_member_apply(node(f, to), &info);
}

/* Node 1 wants k, whose only holder seems to be dead until the master's next
 * heartbeat. */
static void want_from_absent(struct fixture *f, struct test_want *t)
{
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	tell_alive(f, 1, 0, false);
	assert_int_equal(0, want_start(f, 1, "k", t));
	assert_false(t->done);
}

static void a_holder_that_is_away_for_a_moment_is_waited_for(void **state)
{
	struct fixture *f = *state;
	struct test_want t;

	want_from_absent(f, &t);
	tell_alive(f, 1, 0, true);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	node_object_unref(node(f, 1), t.obj);
}

static void but_not_beyond_the_deadline(void **state)
{
	struct fixture *f = *state;
	struct test_want t;

	want_from_absent(f, &t);
	node_fetch_tick(node(f, 1), pool_now_ms() + 1000000);
	run_until(f, t.done);
	assert_int_equal(-ENOENT, t.status);
	assert_count(0, f, 1, fetches);
}

/* Node 0 publishes two names with the same bytes, of which node 2's mirror also
 * names node 1 as a holder. Of one of the names node 2 asks node 1 first. */
static void publish_with_a_holder_too_many(struct fixture *f)
{
	static const char *const names[] = { "k1", "k2" };

	start_pool(f, 3);
	for (int i = 0; i < 2; i++) {
		struct node_entry *e;

		publish(f, 0, names[i], 100000, 1);
		run_until(f, find(f, 1, names[i]) && find(f, 2, names[i]));
		e = find(f, 2, names[i]);
		assert_int_equal(1, e->nholders);
		e->holders[e->nholders++] = e->holders[0];
		e->holders[i] = (uint16_t)node(f, 1)->index;
	}
}

static void a_holder_without_a_copy_is_left_for_another(void **state)
{
	struct fixture *f = *state;

	publish_with_a_holder_too_many(f);
	assert_readable(f, 2, "k1", 100000, 1);
	assert_readable(f, 2, "k2", 100000, 1);
	assert_true(pool_counter_value(&node(f, 2)->c.fetch_retries) >= 1);
	assert_count(0, f, 2, fetch_failures);
}

/* It accepts the connection, and is silent. The deadline is not what helps. */
static void a_silent_holder_is_left_for_another(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct fixture *f = *state;
	struct node_member *m;

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(0, bind(fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, listen(fd, 1));
	assert_int_equal(0, getsockname(fd, (void *)&sa, &len));
	f->opts.deadline_ms = 4 * UNIT_WAIT_S * 1000;
	publish_with_a_holder_too_many(f);
	m = node_member(node(f, 2), node(f, 1)->index);
	m->addr.tcp.port = ntohs(sa.sin_port);
	assert_readable(f, 2, "k1", 100000, 1);
	assert_readable(f, 2, "k2", 100000, 1);
	assert_true(pool_counter_value(&node(f, 2)->c.fetch_stalls) >= 1);
	assert_count(0, f, 2, fetch_failures);
	close(fd);
}

/* The name stays until the feed removes it. */
static void a_copy_that_is_dropped_leaves_its_name(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	Kvpool__Drop__Item item = KVPOOL__DROP__ITEM__INIT, *list = &item;
	Kvpool__Drop drop = KVPOOL__DROP__INIT;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	item.path.data = (uint8_t *)(uintptr_t)"k";
	item.path.len = 1;
	item.gen = o->gen;
	item.reason = KVPOOL__DROP__REASON__EVICTED;
	drop.items = &list;
	drop.n_items = 1;
	node_object_unref(node(f, 1), o);
	node_drop_apply(node(f, 1), &drop);
	assert_info(f, 1, "k", "user.kvpool.state", "remote");
}

static void a_look_up_hit_may_fetch_ahead(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;

	f->opts.prefetch_max = 1;
	start_pool(f, 2);
	publish_and_see(f, "a", 100000, 1);
	publish_and_see(f, "b", 100000, 2);
	e = find(f, 1, "a");
	pool_node_prefetch(node(f, 1), e);
	pool_node_prefetch(node(f, 1), find(f, 1, "b"));
	assert_count(1, f, 1, prefetched);
	assert_count(1, f, 1, prefetch_skipped);
	run_until(f, e->obj && e->obj->state == NODE_HELD);
	assert_true(e->obj->prefetched);
	assert_readable(f, 1, "a", 100000, 1);
	pool_node_used(node(f, 1), e->obj);
	pool_node_used(node(f, 1), e->obj);
	assert_count(1, f, 1, prefetch_useful);
	assert_null(find(f, 1, "b")->obj);
}

static void what_has_landed_is_claimed_no_longer(void **state)
{
	struct fixture *f = *state;
	struct pool_node *n;
	uint64_t landed = 0;
	struct test_want w;

	start_pool(f, 2);
	publish_on_two(f, "k", 26 * MIB, 1); /* in pieces: many turns */
	n = node(f, 2);
	assert_int_equal(0, want_start(f, 2, "k", &w));
	while (!w.done) {
		uint64_t now = node_fetch_settle(n);

		landed = now > landed ? now : landed;
		assert_true(n->claimed + now <= 26 * MIB);
		uv_run(&f->loop, UV_RUN_ONCE);
	}
	assert_int_equal(0, w.status);
	node_object_unref(n, w.obj);
	assert_true(landed > 0);
	assert_int_equal(0, n->claimed);
}

static void a_fetch_that_fails_gives_back_what_had_not_landed(void **state)
{
	struct fixture *f = *state;
	uint64_t landed = 0;
	struct test_claim t;
	struct test_want w;
	struct pool_node *n;

	start_pool(f, 2);
	publish_on_two(f, "k", 20 * MIB, 1); /* in pieces: many turns */
	n = node(f, 2);
	memset(&t, 0, sizeof(t));
	assert_int_equal(1, pool_node_claim_start(n, &t.c, MIB, 0, on_claim));
	assert_int_equal(0, want_start(f, 2, "k", &w));
	while (!w.done && landed == 0) {
		uv_run(&f->loop, UV_RUN_ONCE);
		landed = node_fetch_settle(n);
	}
	assert_false(w.done);
	/* Half of the object has arrived. Unlinking the name ends the fetch. */
	assert_true(n->claimed < 21 * MIB);
	assert_int_equal(0, pool_node_unlink(n, find(f, 2, "k")));
	pool_node_want_cancel(n, &w.w);
	stop_node(f, 0);
	run_until(f, n->nfetches == 0);
	assert_int_equal(MIB, n->claimed);
	pool_node_claim_end(n, MIB);
}

/* ---- borrowing ---- */

static void a_node_on_the_same_host_borrows_the_descriptor(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	assert_true(o->lent_fd >= 0);
	assert_bytes(f, 1, o, 100000, 1);
	assert_info(f, 1, "k", "user.kvpool.state", "borrowed");
	assert_int_equal(1, find(f, 0, "k")->obj->lent);
	assert_int_equal(1, node(f, 1)->borrowed);
	assert_count(0, f, 1, fetch_bytes);
	/* Removed from the pool: the descriptor is returned, but the object
	 * stays readable while it is open. */
	o->users++;
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	run_until(f, o->state == NODE_DROPPED);
	assert_int_equal(0, node(f, 1)->borrowed);
	assert_bytes(f, 1, o, 100000, 1);
	o->users--;
	node_object_unref(node(f, 1), o);
}

/* A member says where its socket is: it may be any program's on this host. */
static void a_socket_that_is_not_a_peers_is_not_dialled(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.fd_passing = true;
	f->sock_name = "other.sock";
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	assert_true(o->lent_fd < 0);
	assert_bytes(f, 1, o, 100000, 1);
	assert_int_equal(0, find(f, 0, "k")->obj->lent);
	assert_count(100000, f, 1, fetch_bytes);
	node_object_unref(node(f, 1), o);
}

static void a_borrowed_object_is_asked_back_for_room(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct test_claim t;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	need_own_tmpfs(f, 0);
	publish_and_see(f, "k", 24 * MIB, 1);
	assert_int_equal(0, want(f, 1, "k", &o));
	node_object_unref(node(f, 1), o);
	assert_int_equal(1, find(f, 0, "k")->obj->lent);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000)); /* waits for it */
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_int_equal(0, node(f, 1)->borrowed);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

/* Each borrowed object uses a descriptor: beyond the limit, objects are
 * copied. */
static void so_many_are_borrowed_others_are_copied(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	char name[] = "k0";

	f->opts.fd_passing = true;
	f->opts.fds_max = 2;
	start_pool(f, 2);
	for (int k = 0; k < 4; k++, name[1]++)
		publish_and_see(f, name, 1 * MIB, 1);
	for (name[1] = '0'; name[1] < '4'; name[1]++) {
		assert_int_equal(0, want(f, 1, name, &o));
		node_object_unref(node(f, 1), o);
	}
	assert_int_equal(2, node(f, 1)->borrowed);
	assert_info(f, 1, "k1", "user.kvpool.state", "borrowed");
	assert_info(f, 1, "k2", "user.kvpool.state", "cached");
	assert_info(f, 1, "k3", "user.kvpool.state", "cached");
}

/* ---- damaged bytes ---- */

static void bytes_with_a_wrong_sum_are_discarded(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "small", 100000, 1);
	publish_and_see(f, "large", 9 * MIB, 2);
	damage(f, 0, find(f, 0, "small")->obj);
	damage(f, 0, find(f, 0, "large")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "small", &o));
	assert_int_equal(-ENOENT, want(f, 1, "large", &o));
	assert_count(2, f, 1, bad_sums);
	assert_count(2, f, 1, fetch_failures);
	assert_false(find(f, 1, "small") && find(f, 1, "small")->obj);
}

static void what_is_lent_with_a_wrong_sum_is_not_read(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	f->opts.fd_passing = true;
	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	publish_and_see(f, "right", 100000, 2);
	damage(f, 0, find(f, 0, "k")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "k", &o));
	assert_count(1, f, 1, bad_sums);
	assert_int_equal(0, node(f, 1)->borrowed);
	/* The descriptor was returned, so that the holder can evict the
	 * object. */
	run_until(f, find(f, 0, "k")->obj->lent == 0);
	assert_readable(f, 1, "right", 100000, 2);
	assert_int_equal(1, node(f, 1)->borrowed);
}

/* Number of files in quarantine in node i's store. */
static unsigned int kept_aside(struct fixture *f, int i)
{
	const char *dir = pool_store_path(pool_node_store(node(f, i)));
	char cmd[256];
	FILE *p;
	unsigned int n = 0;

	snprintf(cmd, sizeof(cmd), "ls '%s' | grep -c ^bad-", dir);
	p = popen(cmd, "re");
	assert_non_null(p);
	assert_int_equal(1, fscanf(p, "%u", &n));
	pclose(p);
	return n;
}

static void a_holder_withdraws_a_copy_reported_as_damaged(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;

	start_pool(f, 2);
	publish_and_see(f, "small", 100000, 1);
	publish_and_see(f, "large", 9 * MIB, 2);
	publish_and_see(f, "whole", 100000, 3);
	damage(f, 0, find(f, 0, "small")->obj);
	damage(f, 0, find(f, 0, "large")->obj);
	assert_int_equal(-ENOENT, want(f, 1, "small", &o));
	assert_int_equal(-ENOENT, want(f, 1, "large", &o));
	assert_count(2, f, 1, doubts_reported);
	/* There are no other copies: the names are removed. */
	run_until(f, !find(f, 0, "small") && !find(f, 1, "small"));
	run_until(f, !find(f, 0, "large") && !find(f, 1, "large"));
	assert_count(2, f, 0, damaged);
	assert_int_equal(1, kept_aside(f, 0)); /* one is too large */
	/* The third copy is right; a second report does not verify it again. */
	pool_node_doubt(node(f, 0), find(f, 0, "whole")->obj);
	run_until(f, node(f, 0)->c.doubts_unfounded.v == 1);
	pool_node_doubt(node(f, 0), find(f, 0, "whole")->obj);
	assert_count(1, f, 0, doubts_skipped);
	assert_count(3, f, 0, doubts);
	assert_count(2, f, 0, damaged);
	assert_true(find(f, 0, "whole")->obj->verified);
	assert_readable(f, 1, "whole", 100000, 3);
}

/* A short or missing file is detected before it is sent. */
static void a_file_that_is_cut_or_missing_is_withdrawn(void **state)
{
	static const char *const names[] = { "cut", "missing" };
	struct fixture *f = *state;
	struct node_object *o;
	char path[256];

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish_and_see(f, names[i], 100000, 1);
		snprintf(path, sizeof(path), "%s/%016llx",
			 pool_store_path(pool_node_store(node(f, 0))),
			 (unsigned long long)find(f, 0, names[i])->obj->id);
		assert_int_equal(0, i ? unlink(path) : truncate(path, 50000));
		assert_true(want(f, 1, names[i], &o) < 0);
		run_until(f, !find(f, 0, names[i]) && !find(f, 1, names[i]));
		assert_count((unsigned)i + 1, f, 0, damaged);
	}
	assert_int_equal(1, kept_aside(f, 0));
}

/* Reads a large object in pieces from both holders. A holder that was delayed
 * on a busy machine is left out, so this is repeated until the damaged copy was
 * read and reported. */
static void read_from_both(struct fixture *f, int i, const char *name,
			   uint64_t size, uint32_t seed)
{
	uint64_t before = node(f, i)->c.doubts_reported.v;

	for (int tries = 0; tries < 5; tries++) {
		assert_readable(f, i, name, size, seed);
		if (node(f, i)->c.doubts_reported.v > before)
			return;
		if (find(f, i, name)->obj)
			node_object_drop(node(f, i), find(f, i, name)->obj,
					 true);
		run_for(f, NODE_BACKOFF_MS);
	}
	fail_msg("no holder's bytes were wrong");
}

/* Then it is read from one of them. */
static void a_reader_finds_the_holder_whose_copy_is_right(void **state)
{
	static const char *const names[] = { "first-bad", "second-bad" };
	struct fixture *f = *state;
	uint64_t size = 9 * MIB;

	start_pool(f, 2);
	for (int i = 0; i < 2; i++) {
		publish_and_see(f, names[i], size, 5);
		set_replicas(f, 0, names[i], "2", 0600);
		run_until(f, find(f, 0, names[i])->replicas == 2);
	}
	start_node(f, 2);
	run_until(f, is_up(f, 2));
	for (int i = 0; i < 2; i++) {
		damage(f, i, find(f, i, names[i])->obj);
		read_from_both(f, 2, names[i], size, 5);
		/* Repair makes a second copy again. */
		run_until(f, node(f, i)->c.damaged.v == 1);
		run_until(f, node(f, 0)->c.replicated.v +
					     node(f, 1)->c.replicated.v +
					     node(f, 2)->c.replicated.v ==
				     3u + (unsigned)i);
		run_until(f, find(f, 2, names[i])->replicas == 2);
	}
	assert_count(1, f, 0, damaged);
	assert_count(1, f, 1, damaged);
}

/* The copy was damaged while the node was down. The first open detects that and
 * fetches another copy. */
static void a_damaged_copy_of_our_own_is_fetched_instead(void **state)
{
	struct fixture *f = *state;

	start_pool(f, 2);
	publish_and_see(f, "k", 100000, 1);
	set_replicas(f, 0, "k", "2", 0600);
	run_until(f, find(f, 0, "k")->replicas == 2);
	damage(f, 1, find(f, 1, "k")->obj);
	stop_node(f, 1);
	start_node(f, 1);
	run_until(f, is_up(f, 1) && find(f, 1, "k")->replicas == 2);
	assert_false(find(f, 1, "k")->obj->verified);
	assert_readable(f, 1, "k", 100000, 1);
	assert_count(1, f, 1, damaged);
	assert_int_equal(1, kept_aside(f, 1));
	run_until(f, find(f, 1, "k")->obj->counted &&
			     find(f, 0, "k")->replicas == 2);
}

static void what_is_in_doubt_is_read_by_nobody_before_it_is_checked(
	void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	int rc;

	start_pool(f, 1);
	publish(f, 0, "k", 100000, 1);
	damage(f, 0, find(f, 0, "k")->obj);
	pool_node_doubt(node(f, 0), find(f, 0, "k")->obj);
	rc = want(f, 0, "k", &o);
	assert_true(rc == -ENOENT || rc == -ESTALE);
	assert_null(o);
	assert_count(1, f, 0, bad_sums);
}

/* The number of doubts in work is bounded, however many peers report. */
static void doubts_are_bounded(void **state)
{
	struct fixture *f = *state;
	struct node_entry *e;
	char name[16];

	start_pool(f, 1);
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		put(f, 0, name, 100, 1);
	}
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		run_until(f, is_published(f, 0, name));
	}
	for (int k = 0; k < NODE_DOUBTS_MAX + 2; k++) {
		snprintf(name, sizeof(name), "k%d", k);
		e = find(f, 0, name);
		pool_node_doubt(node(f, 0), e->obj);
	}
	assert_int_equal(NODE_DOUBTS_MAX, node(f, 0)->ndoubted);
	assert_count(2, f, 0, doubts_skipped);
	run_until(f, node(f, 0)->ndoubted == 0);
	assert_count(NODE_DOUBTS_MAX, f, 0, doubts_unfounded);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(another_node_sees_and_fetches_what_was_published),
		T(a_large_object_comes_in_pieces_from_several_holders),
		T(few_large_ranges_are_in_flight),
		T(a_holder_that_is_away_for_a_moment_is_waited_for),
		T(but_not_beyond_the_deadline),
		T(a_holder_without_a_copy_is_left_for_another),
		T(a_silent_holder_is_left_for_another),
		T(a_copy_that_is_dropped_leaves_its_name),
		T(a_look_up_hit_may_fetch_ahead),
		T(what_has_landed_is_claimed_no_longer),
		T(a_fetch_that_fails_gives_back_what_had_not_landed),
		T(a_node_on_the_same_host_borrows_the_descriptor),
		T(a_socket_that_is_not_a_peers_is_not_dialled),
		T(a_borrowed_object_is_asked_back_for_room),
		T(so_many_are_borrowed_others_are_copied),
		T(bytes_with_a_wrong_sum_are_discarded),
		T(what_is_lent_with_a_wrong_sum_is_not_read),
		T(a_holder_withdraws_a_copy_reported_as_damaged),
		T(a_file_that_is_cut_or_missing_is_withdrawn),
		T(a_reader_finds_the_holder_whose_copy_is_right),
		T(a_damaged_copy_of_our_own_is_fetched_instead),
		T(what_is_in_doubt_is_read_by_nobody_before_it_is_checked),
		T(doubts_are_bounded),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
