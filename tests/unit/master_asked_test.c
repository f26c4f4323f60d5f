/*
 * What the nodes' mounts asked for (master/asked.c), and the sums by directory
 * of the root (master/tops.c): reports are merged, invalid ones change nothing.
 */
#define NNODES 2
#include <errno.h>
#include <xxhash.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"
#include "master/asked.h"

#define SEED 99

static void join(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed);
	fake_inventory(n, NULL, 0, true);
	fake_subscribe(n, 0, 0);
	run_until(&loop, n->completes >= 1 && master_ready(master));
}

static int setup_joined(void **state)
{
	setup(state);
	fake_dial(&node[1], &loop, master_port(master));
	fake_send_join(&node[1]);
	run_until(&loop, node[1].welcomed);
	fake_inventory(&node[1], NULL, 0, true);
	join(&node[0]);
	return 0;
}

/* ---- reports ---- */

struct report {
	Kvpool__Asked msg;
	Kvpool__AskedWindow windows[POOL_ASKED_WINDOWS + 1];
	Kvpool__AskedWindow *window_list[POOL_ASKED_WINDOWS + 1];
	Kvpool__AskedDir dirs[POOL_ASKED_DIRS + 1];
	Kvpool__AskedDir *dir_list[POOL_ASKED_DIRS + 1];
	Kvpool__AskedWindow dir_windows[POOL_ASKED_DIRS][POOL_ASKED_WINDOWS];
	Kvpool__AskedWindow
		*dir_window_list[POOL_ASKED_DIRS][POOL_ASKED_WINDOWS];
	uint8_t small[POOL_ASKED_DIRS][POOL_SMALL_SIZE];
	uint8_t names[POOL_FOLDED_SIZE + 1];
};

/* Names from..upto - 1 were asked for, each once; `hits` were there. */
static void fill(struct report *r, unsigned int from, unsigned int upto,
		 unsigned int hits)
{
	struct pool_window *w = calloc(1, sizeof(*w));

	assert_non_null(w);
	w->span_ms = 1000;
	for (uint64_t k = from; k < upto; k++)
		pool_window_add(w, XXH3_64bits_withSeed(&k, sizeof(k), SEED),
				false);
	memset(r, 0, sizeof(*r));
	pool_window_fold(w, r->names);
	free(w);
	kvpool__asked__init(&r->msg);
	r->msg.seed = SEED;
	r->msg.windows = r->window_list;
	r->msg.n_windows = POOL_ASKED_WINDOWS;
	r->msg.dirs = r->dir_list;
	for (size_t i = 0; i <= POOL_ASKED_WINDOWS; i++) {
		kvpool__asked_window__init(&r->windows[i]);
		r->windows[i].lookups = upto - from;
		r->windows[i].hits = hits;
		r->windows[i].names.data = r->names;
		r->windows[i].names.len = POOL_FOLDED_SIZE;
		r->window_list[i] = &r->windows[i];
	}
}

static void add_dir(struct report *r, const char *name, size_t len,
		    uint64_t lookups, uint64_t hits)
{
	Kvpool__AskedDir *d = &r->dirs[r->msg.n_dirs];

	kvpool__asked_dir__init(d);
	d->name.data = (uint8_t *)name;
	d->name.len = len;
	d->lookups = lookups;
	d->hits = hits;
	r->dir_list[r->msg.n_dirs++] = d;
}

/* The same, with windows: names from..upto - 1, as often as gives `lookups`. */
static void add_dir_of(struct report *r, const char *name, uint64_t from,
		       uint64_t upto, uint64_t lookups, uint64_t hits,
		       uint64_t loaded)
{
	size_t i = r->msg.n_dirs;

	for (uint64_t k = from; k < upto; k++)
		pool_small_add(r->small[i], XXH3_64bits_withSeed(
						    &k, sizeof(k), SEED));
	for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++) {
		Kvpool__AskedWindow *to = &r->dir_windows[i][w];

		kvpool__asked_window__init(to);
		to->lookups = lookups;
		to->hits = hits;
		to->loaded = loaded;
		to->names.data = r->small[i];
		to->names.len = POOL_SMALL_SIZE;
		r->dir_window_list[i][w] = to;
	}
	add_dir(r, name, strlen(name), lookups, hits);
	r->dirs[i].windows = r->dir_window_list[i];
	r->dirs[i].n_windows = POOL_ASKED_WINDOWS;
}

static void report(struct fake_node *n, struct report *r)
{
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	unsigned int before = n->heartbeats;

	hb.epoch = n->epoch;
	hb.asked = &r->msg;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_HEARTBEAT, 0,
					   &hb.base));
	/* The second answer, for one more may have been in flight. */
	run_until(&loop, n->heartbeats > before + 1 || n->closed);
}

static void assert_window(unsigned int lookups, unsigned int hits,
			  unsigned int names, unsigned int off)
{
	struct pool_seen s[POOL_ASKED_WINDOWS];

	master_asked_totals(master, s);
	for (size_t i = 0; i < POOL_ASKED_WINDOWS; i++) {
		assert_int_equal(lookups, s[i].seen);
		assert_int_equal(hits, s[i].hits);
		assert_in_range(s[i].keys, names - off, names + off);
	}
}

static void names_that_two_nodes_asked_for_count_once(void **state)
{
	struct report r;
	json_t *j;

	(void)state;
	assert_window(0, 0, 0, 0);
	fill(&r, 0, 3000, 1000);
	report(&node[0], &r);
	assert_window(3000, 1000, 3000, 150);
	fill(&r, 1000, 4000, 500);
	report(&node[1], &r);
	assert_window(6000, 1500, 4000, 200);
	j = master_status_json(master);
	assert_int_equal(6000, json_integer_value(json_object_get(
		json_object_get(json_object_get(j, "asked"), "24h"),
		"lookups")));
	json_decref(j);
	/* The next report replaces the one before. */
	fill(&r, 0, 100, 100);
	report(&node[0], &r);
	assert_window(3100, 600, 3100, 150);
	fake_hang_up(&node[1]);
	run_until(&loop, node[1].closed);
	run_ms(&loop, HEARTBEAT_MS);
	assert_window(100, 100, 100, 5);
}

static void the_first_seed_is_the_pool_s(void **state)
{
	struct report r;

	(void)state;
	assert_int_equal(0, node[0].asked_seed);
	fill(&r, 0, 10, 0);
	report(&node[0], &r);
	assert_int_equal(SEED, node[0].asked_seed);
	r.msg.seed = SEED + 1;
	report(&node[1], &r);
	assert_int_equal(SEED, node[1].asked_seed);
	assert_window(10, 0, 10, 2);
}

static void refused(struct report *r)
{
	uint64_t bad = pool_counter_value(&master->stats.c[MC_BAD_ITEMS]);

	report(&node[0], r);
	assert_false(node[0].closed);
	assert_int_equal(bad + 1, pool_counter_value(
					  &master->stats.c[MC_BAD_ITEMS]));
	assert_window(50, 0, 50, 3);
}

static void an_invalid_report_changes_nothing(void **state)
{
	char name[POOL_NAME_MAX + 1];
	struct report r;

	(void)state;
	memset(name, 'x', sizeof(name));
	fill(&r, 0, 50, 0);
	report(&node[0], &r);
	fill(&r, 0, 9, 0);
	r.msg.seed = 0;
	refused(&r);
	fill(&r, 0, 9, 10); /* more hits than look-ups */
	refused(&r);
	fill(&r, 0, 9, 0);
	r.windows[2].lookups = UINT64_MAX;
	refused(&r);
	fill(&r, 0, 9, 0);
	r.windows[1].names.len = POOL_FOLDED_SIZE - 1;
	refused(&r);
	r.windows[1].names.len = POOL_FOLDED_SIZE + 1;
	refused(&r);
	r.windows[1].names.len = 0;
	refused(&r);
	fill(&r, 0, 9, 0);
	r.names[17] = 200;
	refused(&r);
	fill(&r, 0, 9, 0);
	r.msg.n_windows = POOL_ASKED_WINDOWS + 1;
	refused(&r);
	r.msg.n_windows = 0;
	refused(&r);
	fill(&r, 0, 9, 0);
	for (size_t i = 0; i <= POOL_ASKED_DIRS; i++)
		add_dir(&r, "d", 1, 1, 0);
	refused(&r);
	fill(&r, 0, 9, 0);
	add_dir(&r, name, sizeof(name), 1, 0);
	refused(&r);
	fill(&r, 0, 9, 0);
	add_dir(&r, "d", 1, 1, 2);
	refused(&r);
	assert_true(master->members.by_index[node[0].index]->impossible);
}

/* What one directory says is bounded by what the mount asked for in all. */
static void impossible_figures_of_a_directory_change_nothing(void **state)
{
	struct report r;

	(void)state;
	fill(&r, 0, 50, 0);
	report(&node[0], &r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 10, 1, 0); /* more than all look-ups */
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 4, 5, 1, 0);
	add_dir_of(&r, "d", 0, 4, 5, 1, 0); /* the same together */
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 5, 0); /* more hits */
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 100, 9, 4, 0); /* more names than look-ups */
	refused(&r);
	fill(&r, 0, 100, 4);
	r.windows[2].lookups = 9; /* the same of all */
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 4, POOL_ASKED_LOADED_MAX);
	add_dir_of(&r, "e", 0, 0, 0, 0, 1); /* more bytes than are added up */
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 4, UINT64_MAX);
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 4, 0);
	r.small[0][3] = 99;
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 4, 0);
	r.dir_windows[0][1].names.len--;
	refused(&r);
	fill(&r, 0, 9, 4);
	add_dir_of(&r, "d", 0, 9, 9, 4, 0);
	r.dirs[0].n_windows--;
	refused(&r);
	fill(&r, 0, 9, 4);
	for (size_t i = 0; i < POOL_ASKED_DIRS; i++) /* of an older node */
		add_dir(&r, "d", 1, 1ull << 50, 0);
	refused(&r);
}

/* ---- directories ---- */

static json_int_t figure(const char *name, const char *key)
{
	return figure_of(name, NULL, key);
}

static void hits_are_added_by_directory(void **state)
{
	struct report r;

	(void)state;
	fake_publish(&node[0], "a/b/c");
	fill(&r, 0, 9, 0);
	add_dir(&r, "a", 1, 10, 4);
	add_dir(&r, "", 0, 3, 1);
	add_dir(&r, "/", 1, 7, 2);
	add_dir(&r, "unknown", 7, 5, 0);
	report(&node[0], &r);
	report(&node[1], &r);
	assert_int_equal(20, figure("a", "lookups"));
	assert_int_equal(8, figure("a", "hits"));
	assert_int_equal(6, figure("", "lookups"));
	assert_int_equal(24, figure(NULL, "lookups"));
	assert_int_equal(4, figure(NULL, "hits"));
	assert_int_equal(-1, figure("unknown", "lookups"));
}

static void a_directory_could_have_hit_what_was_asked_again(void **state)
{
	static const char *const windows[] = { "15m", "1h", "24h", NULL };
	struct report r;

	(void)state;
	fake_publish(&node[0], "a/k");
	fake_publish(&node[0], "b/k");
	fill(&r, 0, 10000, 2000);
	add_dir_of(&r, "a", 0, 1000, 4000, 500, 7000);
	add_dir_of(&r, "b", 5000, 6000, 1000, 200, 0);
	report(&node[0], &r);
	fill(&r, 0, 10000, 2000);
	add_dir_of(&r, "a", 500, 1500, 1000, 100, 1000);
	report(&node[1], &r);
	for (size_t i = 0; i < 4; i++) {
		const char *w = windows[i];

		assert_int_equal(5000, figure_of("a", w, "lookups"));
		assert_int_equal(600, figure_of("a", w, "hits"));
		assert_int_equal(8000, figure_of("a", w, "loaded_bytes"));
		/* 1500 names of two nodes, some of both */
		assert_in_range(figure_of("a", w, "best_hits"), 3500 - 270,
				3500 + 270);
		assert_int_equal(1000, figure_of("b", w, "lookups"));
		/* All were first look-ups: at best what was hit. */
		assert_in_range(figure_of("b", w, "best_hits"), 200, 200 + 180);
		assert_int_equal(0, figure_of("b", w, "loaded_bytes"));
	}
}

static void what_an_older_node_does_not_tell_is_unknown(void **state)
{
	struct report r;

	(void)state;
	fake_publish(&node[0], "a/k");
	fake_publish(&node[0], "b/k");
	fill(&r, 0, 100, 0);
	add_dir_of(&r, "a", 0, 10, 10, 0, 5);
	add_dir_of(&r, "b", 0, 10, 10, 0, 5);
	report(&node[0], &r);
	fill(&r, 0, 100, 0);
	add_dir(&r, "a", 1, 7, 3);
	report(&node[1], &r);
	assert_int_equal(17, figure_of("a", NULL, "lookups"));
	assert_int_equal(3, figure_of("a", NULL, "hits"));
	assert_int_equal(-2, figure_of("a", NULL, "best_hits"));
	assert_int_equal(-2, figure_of("a", NULL, "loaded_bytes"));
	assert_int_equal(-2, figure_of("a", NULL, "asked"));
	assert_int_equal(5, figure_of("b", NULL, "loaded_bytes"));
}

/* The sums of all nodes that lie are JSON integers. */
static void the_greatest_figures_do_not_wrap(void **state)
{
	struct report r;

	(void)state;
	fake_publish(&node[0], "a/k");
	for (unsigned int i = 0; i < NNODES; i++) {
		fill(&r, 0, 100, 0);
		for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++)
			r.windows[w].lookups = r.windows[w].hits = 1ull << 50;
		add_dir_of(&r, "a", 0, 10, 1ull << 50, 1ull << 50,
			   POOL_ASKED_LOADED_MAX);
		report(&node[i], &r);
	}
	assert_int_equal((json_int_t)NNODES << 50,
			 figure_of("a", "24h", "best_hits"));
	assert_int_equal((json_int_t)NNODES * (json_int_t)POOL_ASKED_LOADED_MAX,
			 figure_of("a", "24h", "loaded_bytes"));
	assert_true(POOL_ASKED_LOADED_MAX <= INT64_MAX / MASTER_NODES_MAX);
}

static void sums_follow_every_change_of_a_file(void **state)
{
	json_int_t size;

	(void)state;
	fake_publish(&node[0], "a/b/c");
	size = figure("a", "bytes");
	assert_true(size > 0);
	fake_publish(&node[0], "a/d");
	fake_publish(&node[0], "e/f");
	fake_publish(&node[0], "g");
	assert_int_equal(2, figure("a", "objects"));
	assert_int_equal(2 * size, figure("a", "bytes"));
	assert_int_equal(1, figure("e", "objects"));
	assert_int_equal(1, figure("", "objects"));
	fake_rewrite(&node[0], "a/d");
	assert_int_equal(2, figure("a", "objects"));
	master_map_check(&master->map);
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK,
				    "a/d"));
	assert_int_equal(1, figure("a", "objects"));
	assert_int_equal(size, figure("a", "bytes"));
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__UNLINK,
				    "e/f"));
	assert_int_equal(0, fake_do(&node[0], KVPOOL__OP__KIND__RMDIR,
				    "e"));
	assert_int_equal(-1, figure("e", "objects"));
	master_map_check(&master->map);
}

static void evictions_count_in_their_directory(void **state)
{
	uint64_t gen, size;

	(void)state;
	fake_hang_up(&node[1]); /* or the copy moves to it */
	gen = fake_publish(&node[0], "a/k");
	fake_publish(&node[0], "b/k");
	size = (uint64_t)figure("a", "bytes");
	assert_true(size > 0);
	assert_int_equal(0, figure("a", "evicted"));
	fake_evict(&node[0], "a/k", gen);
	run_until(&loop, figure("a", "objects") == 0);
	assert_int_equal(1, figure("a", "evicted"));
	assert_int_equal(size, figure("a", "evicted_bytes"));
	assert_int_equal(0, figure("b", "evicted"));
	fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "b/k");
	assert_int_equal(0, figure("b", "evicted"));
}

static void directories_beyond_the_bound_are_among_the_others(void **state)
{
	char path[32];

	(void)state;
	for (unsigned int i = 0; i < MASTER_TOPS_MAX + 10; i++) {
		snprintf(path, sizeof(path), "d%u/k", i);
		fake_publish(&node[0], path);
	}
	assert_int_equal(12, figure(NULL, "objects"));
	assert_int_equal(1, figure("d253", "objects"));
	assert_int_equal(-1, figure("d254", "objects"));
	/* A place that is free is the next one's. */
	fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "d7/k");
	fake_do(&node[0], KVPOOL__OP__KIND__RMDIR, "d7");
	fake_publish(&node[0], "new/k");
	assert_int_equal(1, figure("new", "objects"));
	assert_int_equal(12, figure(NULL, "objects"));
	fake_do(&node[0], KVPOOL__OP__KIND__UNLINK, "d260/k");
	fake_do(&node[0], KVPOOL__OP__KIND__RMDIR, "d260");
	assert_int_equal(11, figure(NULL, "objects"));
	master_map_check(&master->map);
}

#undef T
#define T(f) cmocka_unit_test_setup_teardown(f, setup_joined, teardown)

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(names_that_two_nodes_asked_for_count_once),
		T(the_first_seed_is_the_pool_s),
		T(an_invalid_report_changes_nothing),
		T(impossible_figures_of_a_directory_change_nothing),
		T(hits_are_added_by_directory),
		T(a_directory_could_have_hit_what_was_asked_again),
		T(what_an_older_node_does_not_tell_is_unknown),
		T(the_greatest_figures_do_not_wrap),
		T(sums_follow_every_change_of_a_file),
		T(evictions_count_in_their_directory),
		T(directories_beyond_the_bound_are_among_the_others),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
