/* Space in one store: claims, and what is evicted for them, with and without a
 * master (pool/node/space.c, victim.c, evicted.c). */
#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/model/pages.h"
#include "tests/unit/pool_node_fixture.h"

/* ---- claims ---- */

static void claims_are_granted_while_there_is_room(void **state)
{
	struct fixture *f = *state;
	struct test_claim a, b;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	assert_int_equal(1, claim(f, &a, 16 * MIB, 0));
	assert_int_equal(-ENOSPC, claim(f, &b, STORE_SIZE + 1, 0));
	/* No object may be evicted for it. */
	assert_int_equal(0, claim(f, &b, 20 * MIB, 0));
	run_until(f, b.done);
	assert_int_equal(-ENOSPC, b.status);
	assert_count(1, f, 0, claims_refused);
	assert_int_equal(1, claim(f, &b, 8 * MIB, 0));
	pool_node_claim_end(node(f, 0), 8 * MIB);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	assert_int_equal(1, claim(f, &a, 30 * MIB, 0));
	pool_node_claim_end(node(f, 0), 30 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
	assert_false(a.done);
}

static void a_claim_waits_for_what_is_being_published_to_its_deadline(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim a, b, cancelled, small;
	uint64_t start;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	put(f, 0, "k", 16 * MIB, 1);
	run_until(f, is_pending(f, 0, "k"));
	start = pool_now_ms();
	assert_int_equal(0, claim(f, &a, 20 * MIB, 100));
	assert_int_equal(0, claim(f, &cancelled, 20 * MIB, 100));
	assert_int_equal(0, claim(f, &b, 2 * MIB, 5000)); /* in order */
	assert_int_equal(1, claim(f, &small, MIB, 0));	  /* past them */
	pool_node_claim_end(node(f, 0), MIB);
	pool_node_claim_cancel(node(f, 0), &cancelled.c);
	run_until(f, a.done);
	assert_int_equal(-ENOSPC, a.status);
	assert_true(pool_now_ms() - start >= 100);
	run_until(f, b.done);
	assert_int_equal(0, b.status);
	assert_false(cancelled.done);
	pool_node_claim_end(node(f, 0), 2 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
}

struct greedy {
	struct test_claim t, more;
	struct fixture *f;
};

static void on_greedy(struct node_claim *c, int status)
{
	struct greedy *g = pool_container_of(c, struct greedy, t.c);

	on_claim(c, status);
	assert_int_equal(1, claim(g->f, &g->more, MIB / 2, 0));
}

static void what_is_claimed_when_a_claim_is_granted_is_not_granted_again(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim all, next, last;
	struct greedy first = { .f = f };
	struct pool_space sp;

	start_node(f, 0);
	need_own_tmpfs(f, 0);
	put(f, 0, "k", 16 * MIB, 1);
	run_until(f, is_pending(f, 0, "k"));
	pool_store_space(node(f, 0)->store, &sp);
	assert_int_equal(1, claim(f, &all, sp.free, 0));
	assert_int_equal(0, pool_node_claim_start(node(f, 0), &first.t.c,
						  MIB / 2, 5000, on_greedy));
	assert_int_equal(0, claim(f, &next, MIB / 2, 5000));
	assert_int_equal(0, claim(f, &last, MIB / 2, 5000));
	pool_node_claim_end(node(f, 0), 5 * MIB / 4);
	run_until(f, first.t.done);
	run_for(f, 50);
	assert_false(next.done || last.done);
	assert_int_equal(sp.free - MIB / 4, node(f, 0)->claimed);
	pool_node_claim_end(node(f, 0), MIB);
	run_until(f, last.done);
	assert_true(next.done);
	assert_int_equal(sp.free - MIB / 4, node(f, 0)->claimed);
	pool_node_claim_end(node(f, 0), sp.free - MIB / 4);
}

static void a_claim_is_granted_when_the_master_lets_objects_go(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 12 * MIB, 1);
	publish(f, 0, "b", 12 * MIB, 2);
	memset(&t, 0, sizeof(t));
	t.c.cache_only = true; /* a prefetch evicts only cached copies */
	assert_int_equal(-ENOSPC,
			 pool_node_claim_start(node(f, 0), &t.c, 16 * MIB, 0,
					       on_claim));
	assert_int_equal(0, claim(f, &t, 16 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(pool_counter_value(&node(f, 0)->c.evicted_last) > 0);
	run_until(f, !known(f, 0, "a") || !known(f, 0, "b"));
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static void a_claim_waits_for_what_is_being_sent_to_a_peer(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	int fd;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "k", 24 * MIB, 1);
	fd = pool_store_fd(pool_node_store(node(f, 0)),
			   find(f, 0, "k")->obj->id,
			   O_RDONLY); /* a mover holds it open */
	assert_true(fd >= 0);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_for(f, 2 * NODE_ASK_MS);
	assert_false(t.done);
	close(fd);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static void bytes_that_are_still_being_freed_are_not_given_away(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "k", 20 * MIB, 1);
	workers_begin(f);
	assert_int_equal(0, pool_node_unlink(node(f, 0), find(f, 0, "k")));
	/* More than the rest of the headroom. */
	assert_int_equal(0, claim(f, &t, 30 * MIB, 10000));
	run_for(f, 50);
	assert_false(t.done);
	workers_end(f);
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 30 * MIB);
	assert_int_equal(0, node(f, 0)->claimed);
}

static void room_for_more_of_a_file_that_went_meanwhile_is_given_back(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim others, more = { .done = false };
	struct node_object *o;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	assert_int_equal(1, claim(f, &others, 20 * MIB, 0));
	o = create_in(f, 0, pool_node_root(node(f, 0)), "k", 0);
	assert_int_equal(0, pool_node_extend_start(node(f, 0), o, 0, 24 * MIB,
						   on_extended, &more));
	pool_node_poison(node(f, 0), o, -EIO);
	pool_node_writer_closed(node(f, 0), o);
	assert_false(more.done);
	pool_node_claim_end(node(f, 0), 20 * MIB);
	run_until(f, more.done);
	assert_int_equal(0, node(f, 0)->claimed);
}

/* A writer's claim is released once, and claims of others are not. */
static void a_claim_of_a_writer_ends_once(void **state)
{
	struct fixture *f = *state;
	struct node_object *a, *b;
	struct test_claim t;

	f->opts.reserve = false;
	start_pool(f, 1);
	a = create_in(f, 0, pool_node_root(node(f, 0)), "a", 0);
	b = create_in(f, 0, pool_node_root(node(f, 0)), "b", 0);
	/* A write far behind the end: more is claimed than is written. */
	assert_int_equal(1, pool_node_extend_start(node(f, 0), a, 8 * MIB, 1,
						   on_extended, &t));
	assert_int_equal(1, pool_node_extend_start(node(f, 0), b, 8 * MIB, 1,
						   on_extended, &t));
	assert_true(a->w->claimed > 0 && b->w->claimed > 0);
	write_bytes(f, 0, a, 1000, 1);
	close_whole(f, 0, a);
	run_until(f, is_published(f, 0, "a"));
	assert_int_equal(b->w->claimed, node(f, 0)->claimed);
	close_whole(f, 0, b);
	assert_int_equal(0, node(f, 0)->claimed);
}

/* ---- what goes, and what does not ---- */

/* Claims and writes as a daemon-served write does. 0, or the claim's status. */
static int put_claimed(struct fixture *f, struct node_dirent *dir,
		       const char *name, uint64_t len, uint32_t seed)
{
	struct node_object *o = create_in(f, 0, dir, name, 0);
	struct node_entry *e = o->entry;
	int status = 1, rc;

	rc = pool_node_extend_start(node(f, 0), o, 0, len, on_done, &status);
	if (rc == 0) {
		run_until(f, status != 1);
		rc = status;
	}
	if (rc < 0) {
		pool_node_poison(node(f, 0), o, rc);
		pool_node_writer_closed(node(f, 0), o);
		return rc;
	}
	write_bytes(f, 0, o, len, seed);
	close_whole(f, 0, o);
	run_until(f, !e->own);
	return 0;
}

static void shared_objects_make_room_for_new_ones(void **state)
{
	struct fixture *f = *state;
	unsigned int there = 0, i;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_int_equal(0, put_claimed(f, pool_node_root(node(f, 0)),
						name, MIB, i));
	}
	assert_non_null(find(f, 0, "k63"));
	assert_readable(f, 0, "k63", MIB, 63);
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		if (!is_published(f, 0, name))
			continue;
		there++;
		assert_readable(f, 0, name, MIB, i);
	}
	assert_in_range(there, 20, 32);
	assert_count(64 - there, f, 0, evicted_last);
	assert_count(0, f, 0, claims_refused);
}

static void what_was_looked_up_goes_last(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 12 * MIB, 1);
	publish(f, 0, "b", 12 * MIB, 2);
	pool_node_prefetch(node(f, 0), find(f, 0, "a"));
	assert_int_equal(0, claim(f, &t, 16 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	assert_null(find(f, 0, "b"));
	/* The prefetch does not block the claim. */
	pool_node_prefetch(node(f, 0), find(f, 0, "a"));
	assert_int_equal(0, claim(f, &t, 28 * MIB, 0));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 28 * MIB);
	assert_null(find(f, 0, "a"));
}

static void what_is_open_does_not_go_for_room(void **state)
{
	struct fixture *f = *state;
	struct node_object *o;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 24 * MIB, 1);
	assert_int_equal(0, want(f, 0, "a", &o));
	o->users++;
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_ptr_equal(o, find(f, 0, "a")->obj);
	o->users--;
	node_object_unref(node(f, 0), o);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	pool_node_claim_end(node(f, 0), 16 * MIB);
}

static struct node_dirent *make_noevict(struct fixture *f)
{
	static const struct node_attr attr = { .mode = 0755 };
	struct pool_xattrs *x = NULL;
	struct node_dirent *d = NULL;

	assert_int_equal(0, pool_node_mkdir(node(f, 0),
					    pool_node_root(node(f, 0)),
					    "keep", 4, &attr, &d));
	assert_int_equal(0, pool_xattrs_set(&x, "user.kvpool.class",
					    "noevict", 7, 0));
	assert_int_equal(0, pool_node_setattr(node(f, 0), &d->d.e,
					      POOL_SET_XATTRS, &attr, x));
	return d;
}

/* They are the oldest objects, and more than one search for a victim visits. */
static void objects_that_may_not_go_are_in_no_others_way(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	unsigned int i;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	for (i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_int_equal(0, put_claimed(f, d, name, 100, i));
	}
	for (i = 0; i < 64; i++) {
		snprintf(name, sizeof(name), "s%u", i);
		assert_int_equal(0, put_claimed(f, pool_node_root(node(f, 0)),
						name, MIB, i));
	}
	assert_count(0, f, 0, claims_refused);
	assert_in_range(pool_counter_value(&node(f, 0)->c.evicted_last), 30,
			64);
	for (i = 0; i < 600; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_non_null(find_in(f, 0, d, name));
	}
	/* When the directory's rule is removed, all may be evicted. */
	assert_true(node_evictable(node(f, 0)) < 32 * MIB);
	assert_int_equal(600, pool_evict_count(node(f, 0)->evict,
					       POOL_EVICT_KEPT));
	assert_int_equal(0, pool_node_setattr(
				    node(f, 0), &d->d.e, POOL_SET_XATTRS,
				    &(struct node_attr){ .mode = 0755 }, NULL));
	assert_int_equal(0, pool_evict_count(node(f, 0)->evict,
					     POOL_EVICT_KEPT));
}

static void noevict_refuses_instead_of_evicting(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	unsigned int n = 0, i;
	struct statvfs st;
	char name[16];

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	for (;;) {
		int rc;

		snprintf(name, sizeof(name), "k%u", n);
		rc = put_claimed(f, d, name, MIB, n);
		if (rc < 0) {
			assert_int_equal(-ENOSPC, rc);
			break;
		}
		assert_in_range(++n, 1, 32);
	}
	assert_in_range(n, 28, 32);
	assert_count(0, f, 0, evicted_last);
	for (i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		assert_non_null(find_in(f, 0, d, name));
	}
	pool_node_statvfs(node(f, 0), &st);
	assert_true(st.f_bavail * st.f_bsize < 4 * MIB);
	/* Unlinking files frees space. */
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find_in(f, 0, d, "k0")));
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find_in(f, 0, d, "k1")));
	run_for(f, 40);
	assert_int_equal(0, put_claimed(f, d, "again", MIB, 77));
}

/* ---- without a master ---- */

static void cut_off_for_long_a_node_evicts_on_its_own(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;
	uint64_t start;
	int forgotten, alone;
	const char *path;
	json_t *j;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 24 * MIB, 1);
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	start = node(f, 0)->cut_off_ms;
	assert_int_equal(0, claim(f, &t, 16 * MIB, 10000));
	run_until(f, t.done);
	assert_int_equal(0, t.status);
	assert_true(pool_now_ms() - start >= NODE_MASTERLESS_MS);
	assert_count(1, f, 0, evicted_alone);
	assert_null(find(f, 0, "a"));
	j = pool_node_evicted_json(node(f, 0));
	assert_int_equal(0, json_unpack(j, "{s:i, s:[{s:s, s:b}!]}",
					"forgotten", &forgotten, "evicted",
					"path", &path, "alone", &alone));
	assert_int_equal(0, forgotten);
	assert_string_equal("a", path);
	assert_true(alone);
	json_decref(j);
	pool_node_claim_end(node(f, 0), 16 * MIB);
	/* The next master learns of the eviction, so that no older version
	 * comes back. */
	start_master(f);
	run_until(f, master_map_grave(&f->master->map, "a", 1));
}

static void what_falls_out_of_the_list_of_evictions_is_counted(void **state)
{
	struct fixture *f = *state;
	int forgotten;
	json_t *j;

	start_pool(f, 1);
	publish(f, 0, "a", MIB, 1);
	for (int i = 0; i < NODE_EVICTED_MAX + 3; i++)
		node_evicted_note(node(f, 0), find(f, 0, "a")->obj, false);
	assert_count(3, f, 0, evicted_forgotten);
	j = pool_node_evicted_json(node(f, 0));
	assert_int_equal(0, json_unpack(j, "{s:i}", "forgotten", &forgotten));
	assert_int_equal(3, forgotten);
	assert_int_equal(NODE_EVICTED_MAX,
			 json_array_size(json_object_get(j, "evicted")));
	json_decref(j);
}

static void long_names_leave_room_for_fewer_evictions(void **state)
{
	/* as JSON: \u0001 */
	const int shown = (int)(POOL_PAGES_PATHS / (6 * 200)) + 1;
	struct fixture *f = *state;
	char name[201] = "";
	int forgotten;
	json_t *j;

	start_pool(f, 1);
	memset(name, '\1', 200);
	publish(f, 0, name, MIB, 1);
	for (int i = 0; i < NODE_EVICTED_MAX; i++)
		node_evicted_note(node(f, 0), find(f, 0, name)->obj, false);
	j = pool_node_evicted_json(node(f, 0));
	assert_int_equal(0, json_unpack(j, "{s:i}", "forgotten", &forgotten));
	assert_int_equal(NODE_EVICTED_MAX - shown, forgotten);
	assert_int_equal(shown, json_array_size(json_object_get(j, "evicted")));
	json_decref(j);
}

/* The store of a limited node has objects outside of its namespaces, too. */
static size_t nlisted(struct fixture *f)
{
	json_t *j = pool_node_evicted_json(node(f, 0));
	size_t n = json_array_size(json_object_get(j, "evicted"));

	json_decref(j);
	return n;
}

static void evictions_of_others_are_not_listed(void **state)
{
	static const struct pool_tls_id limited = { .ndirs = 1,
						    .dirs = { "mine" } };
	struct fixture *f = *state;

	start_pool(f, 1);
	publish(f, 0, "a", MIB, 1);
	node_evicted_note(node(f, 0), find(f, 0, "a")->obj, false);
	assert_int_equal(1, nlisted(f));
	node(f, 0)->self = &limited;
	assert_int_equal(0, nlisted(f));
	node(f, 0)->self = NULL;
}

static void at_a_join_a_node_reports_its_last_evictions(void **state)
{
	static Kvpool__Meta list[NODE_EVICTED_SENT];
	struct fixture *f = *state;

	start_pool(f, 1);
	publish(f, 0, "first", MIB, 1);
	publish(f, 0, "last", MIB, 1);
	node_evicted_note(node(f, 0), find(f, 0, "first")->obj, true);
	node_evicted_note(node(f, 0), find(f, 0, "last")->obj, false);
	assert_int_equal(1, node_evicted_alone(node(f, 0), list));
	assert_int_equal(1000, list[0].uid);
	for (int i = 0; i < NODE_EVICTED_SENT; i++)
		node_evicted_note(node(f, 0), find(f, 0, "last")->obj, true);
	assert_int_equal(NODE_EVICTED_SENT,
			 node_evicted_alone(node(f, 0), list));
	for (int i = 0; i < NODE_EVICTED_SENT; i++)
		assert_memory_equal("last", list[i].path.data, 4);
}

static void cut_off_a_node_gives_up_no_name_that_is_to_have_replicas(
	void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	publish(f, 0, "a", 14 * MIB, 1);
	publish(f, 0, "b", 14 * MIB, 2);
	assert_int_equal(0, set_xattr(f, 0, &find(f, 0, "a")->e,
				      "user.kvpool.replicas", "2"));
	run_until(f, node(f, 0)->nops == 0);
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	/* Both objects would have to be evicted. */
	assert_int_equal(0, claim(f, &t, 26 * MIB, 4000));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_count(1, f, 0, evicted_alone);
	assert_non_null(find(f, 0, "a"));
	assert_null(find(f, 0, "b"));
}

static void noevict_holds_without_a_master_as_well(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *d;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	d = make_noevict(f);
	assert_int_equal(0, put_claimed(f, d, "k", 24 * MIB, 1));
	stop_master(f);
	run_until(f, !node_session_up(node(f, 0)));
	run_until(f, pool_now_ms() - node(f, 0)->cut_off_ms >
			     NODE_MASTERLESS_MS + 100);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_non_null(find_in(f, 0, d, "k"));
	assert_count(0, f, 0, evicted_alone);
}

/* The node does not know the rules of its directories yet. */
static void started_without_a_master_a_node_gives_up_nothing_alone(void **state)
{
	struct fixture *f = *state;
	struct test_claim t;

	start_pool(f, 1);
	need_own_tmpfs(f, 0);
	assert_int_equal(0, put_claimed(f, make_noevict(f), "k", 24 * MIB, 1));
	stop_master(f);
	stop_node(f, 0);
	start_node(f, 0);
	run_until(f, pool_now_ms() - node(f, 0)->cut_off_ms >
			     NODE_MASTERLESS_MS + 100);
	assert_int_equal(0, claim(f, &t, 16 * MIB, 500));
	run_until(f, t.done);
	assert_int_equal(-ENOSPC, t.status);
	assert_count(0, f, 0, evicted_alone);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(claims_are_granted_while_there_is_room),
		T(a_claim_waits_for_what_is_being_published_to_its_deadline),
		T(what_is_claimed_when_a_claim_is_granted_is_not_granted_again),
		T(a_claim_is_granted_when_the_master_lets_objects_go),
		T(a_claim_waits_for_what_is_being_sent_to_a_peer),
		T(bytes_that_are_still_being_freed_are_not_given_away),
		T(room_for_more_of_a_file_that_went_meanwhile_is_given_back),
		T(a_claim_of_a_writer_ends_once),
		T(shared_objects_make_room_for_new_ones),
		T(what_was_looked_up_goes_last),
		T(what_is_open_does_not_go_for_room),
		T(objects_that_may_not_go_are_in_no_others_way),
		T(noevict_refuses_instead_of_evicting),
		T(cut_off_for_long_a_node_evicts_on_its_own),
		T(what_falls_out_of_the_list_of_evictions_is_counted),
		T(long_names_leave_room_for_fewer_evictions),
		T(evictions_of_others_are_not_listed),
		T(at_a_join_a_node_reports_its_last_evictions),
		T(cut_off_a_node_gives_up_no_name_that_is_to_have_replicas),
		T(noevict_holds_without_a_master_as_well),
		T(started_without_a_master_a_node_gives_up_nothing_alone),
	};

	if (argc > 1) /* run only the tests that match these cmocka patterns */
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
