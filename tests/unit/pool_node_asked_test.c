/* What the mount looked up and loaded, in all and by directory of the root
 * (pool/node/asked.c), as the reports to the master have it. */
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/pool_node_fixture.h"

#define MANY 2000u
#define PART_MS (15 * 60 * 1000ull / POOL_WINDOW_PARTS) /* of the shortest */

static struct node_dirent *dir_of(struct fixture *f, const char *name)
{
	struct node_dirent *d;

	assert_int_equal(0, mkdir_top(f, 0, name, &d));
	return d;
}

/* Names from..upto - 1 of the directory are looked up. */
static void ask(struct fixture *f, const struct node_dirent *d,
		unsigned int from, unsigned int upto, bool hit)
{
	char name[16];

	for (unsigned int i = from; i < upto; i++) {
		int len = snprintf(name, sizeof(name), "n%u", i);

		pool_node_asked(node(f, 0), d, name, (size_t)len, hit);
	}
}

static struct node_asked_report *report(struct fixture *f)
{
	uint64_t sent = 0;

	return node_asked_report(node(f, 0), &sent);
}

/* Of the report's directory of that name; NULL: it has none. */
static const Kvpool__AskedWindow *window_of(const struct node_asked_report *r,
					    const char *name,
					    unsigned int window)
{
	for (size_t i = 0; i < r->msg.n_dirs; i++) {
		const Kvpool__AskedDir *d = r->msg.dirs[i];

		if (d->name.len == strlen(name) &&
		    !memcmp(d->name.data, name, d->name.len))
			return d->windows[window];
	}
	return NULL;
}

static void assert_reported(struct fixture *f, const char *name,
			    unsigned int window, unsigned int lookups,
			    unsigned int hits, unsigned int names)
{
	struct node_asked_report *r = report(f);
	const Kvpool__AskedWindow *w;
	uint64_t got;

	assert_non_null(r);
	w = window_of(r, name, window);
	assert_non_null(w);
	assert_int_equal(lookups, w->lookups);
	assert_int_equal(hits, w->hits);
	if (lookups) {
		assert_true(pool_small_check(w->names.data, w->names.len));
		got = pool_small_count(w->names.data);
		assert_in_range(got, names - names / 5, names + names / 5);
	}
	free(r);
}

static void assert_directories_add_up(struct fixture *f)
{
	struct node_asked_report *r = report(f);

	assert_non_null(r);
	for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++) {
		uint64_t lookups = 0, hits = 0;

		for (size_t i = 0; i < r->msg.n_dirs; i++) {
			lookups += r->msg.dirs[i]->windows[w]->lookups;
			hits += r->msg.dirs[i]->windows[w]->hits;
		}
		assert_int_equal(r->msg.windows[w]->lookups, lookups);
		assert_int_equal(r->msg.windows[w]->hits, hits);
	}
	free(r);
}

static void each_directory_has_its_look_ups_and_names(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *a, *b, *deep;

	start_pool(f, 1);
	a = dir_of(f, "a");
	b = dir_of(f, "b");
	assert_int_equal(0, mkdir_in(f, 0, a, "deep", &deep));
	ask(f, a, 0, MANY, false);
	ask(f, a, 0, MANY, true);
	ask(f, deep, 0, MANY, false); /* other names than those of a */
	ask(f, b, 0, 100, false);
	ask(f, pool_node_parent(&node_dir_tree(b)->e), 0, 10, true);
	for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++) {
		assert_reported(f, "a", w, 3 * MANY, MANY, 2 * MANY);
		assert_reported(f, "b", w, 100, 0, 100);
		assert_reported(f, "", w, 10, 10, 10);
	}
	assert_directories_add_up(f);
	assert_count(0, f, 0, asked_others);
}

static void a_window_forgets_what_is_older(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *a;
	uint64_t now = pool_now_ms();

	start_pool(f, 1);
	a = dir_of(f, "a");
	ask(f, a, 0, 100, false);
	for (unsigned int i = 1; i < POOL_WINDOW_PARTS; i++) {
		node_asked_tick(node(f, 0), now + i * PART_MS);
		ask(f, a, 0, 10, false);
		assert_reported(f, "a", 0, 100 + 10 * i, 0, 100);
		assert_directories_add_up(f);
	}
	node_asked_tick(node(f, 0), now + POOL_WINDOW_PARTS * PART_MS);
	assert_reported(f, "a", 0, 40, 0, 10);
	assert_reported(f, "a", 1, 140, 0, 100);
	node_asked_tick(node(f, 0), now + 4 * POOL_WINDOW_PARTS * PART_MS);
	assert_reported(f, "a", 0, 0, 0, 0);
	assert_reported(f, "a", 2, 140, 0, 100);
	assert_directories_add_up(f);
}

static void directories_beyond_the_bound_share_one(void **state)
{
	struct fixture *f = *state;
	uint64_t now = pool_now_ms();
	struct node_dirent *d[POOL_ASKED_DIRS + 5];
	char name[16];

	start_pool(f, 1);
	for (unsigned int i = 0; i < POOL_ASKED_DIRS + 5; i++) {
		snprintf(name, sizeof(name), "d%u", i);
		d[i] = dir_of(f, name);
		ask(f, d[i], 0, 10, i % 2);
	}
	assert_reported(f, "d62", 2, 10, 0, 10);
	assert_reported(f, "/", 2, 60, 30, 60);
	assert_count(60, f, 0, asked_others);
	assert_directories_add_up(f);
	/* The place of one that no window has is free. */
	node_asked_tick(node(f, 0), now + 24 * 3600 * 1000ull);
	ask(f, d[1], 0, 10, false);
	node_asked_tick(node(f, 0), now + 48 * 3600 * 1000ull);
	ask(f, d[65], 0, 10, false);
	assert_reported(f, "d65", 2, 10, 0, 10);
	assert_count(60, f, 0, asked_others);
	assert_directories_add_up(f);
}

static void another_seed_begins_anew(void **state)
{
	struct fixture *f = *state;
	struct node_asked_report *r;
	struct node_dirent *a;
	uint64_t sent = 0;

	start_pool(f, 1);
	a = dir_of(f, "a");
	ask(f, a, 0, 100, true);
	free(node_asked_report(node(f, 0), &sent));
	node_asked_seed(node(f, 0), node(f, 0)->asked_seed + 1);
	r = node_asked_report(node(f, 0), &sent);
	assert_non_null(r);
	assert_int_equal(0, r->msg.n_dirs);
	free(r);
	ask(f, a, 0, 100, true);
	assert_reported(f, "a", 0, 100, 100, 100);
	assert_directories_add_up(f);
}

static void only_changes_are_reported(void **state)
{
	struct fixture *f = *state;
	struct node_asked_report *r;
	struct node_dirent *a;
	uint64_t sent = 0, now = pool_now_ms();

	start_pool(f, 1);
	a = dir_of(f, "a");
	r = node_asked_report(node(f, 0), &sent);
	assert_non_null(r);
	free(r);
	assert_null(node_asked_report(node(f, 0), &sent));
	ask(f, a, 0, 1, true);
	r = node_asked_report(node(f, 0), &sent);
	assert_non_null(r);
	free(r);
	assert_null(node_asked_report(node(f, 0), &sent));
	node_asked_tick(node(f, 0), now + PART_MS); /* look-ups end */
	r = node_asked_report(node(f, 0), &sent);
	assert_non_null(r);
	free(r);
	assert_null(node_asked_report(node(f, 0), &sent));
}

static uint64_t loaded(struct fixture *f, const char *name)
{
	struct node_asked_report *r = report(f);
	const Kvpool__AskedWindow *w;
	uint64_t bytes;

	assert_non_null(r);
	w = window_of(r, name, 1);
	bytes = w ? w->loaded : 0;
	free(r);
	return bytes;
}

/* A pool of one node with a/k, published. Returns the directory. */
static struct node_dirent *pool_with_k(struct fixture *f)
{
	const struct node_entry *e;
	struct node_dirent *a;

	start_pool(f, 1);
	a = dir_of(f, "a");
	put_in(f, 0, a, "k", 1000, 1);
	e = find_in(f, 0, a, "k");
	run_until(f, e->obj && e->obj->state == NODE_HELD);
	return a;
}

static void bytes_loaded_are_the_directory_s(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *a = pool_with_k(f);
	struct node_object *o =
		node_object_ref(find_in(f, 0, a, "k")->obj);

	pool_node_loaded(node(f, 0), o, 1000);
	pool_node_loaded(node(f, 0), o, 500);
	assert_int_equal(1500, loaded(f, "a"));
	assert_int_equal(0, loaded(f, "/"));
	/* A version that is open longer than its name exists. */
	assert_int_equal(0, pool_node_unlink(node(f, 0),
					     find_in(f, 0, a, "k")));
	run_until(f, !o->entry);
	pool_node_loaded(node(f, 0), o, 200);
	node_object_unref(node(f, 0), o);
	assert_int_equal(1500, loaded(f, "a"));
	assert_int_equal(200, loaded(f, "/"));
	assert_count(1700, f, 0, loaded_bytes);
	assert_count(0, f, 0, asked_others);
	assert_directories_add_up(f);
}

static void a_report_has_no_more_bytes_than_the_master_takes(void **state)
{
	struct fixture *f = *state;
	struct node_dirent *a = pool_with_k(f);
	struct node_object *o = find_in(f, 0, a, "k")->obj;

	publish(f, 0, "top", 1000, 1);
	pool_node_loaded(node(f, 0), find(f, 0, "top")->obj, 1000);
	pool_node_loaded(node(f, 0), o, 2 * POOL_ASKED_LOADED_MAX);
	assert_int_equal(POOL_ASKED_LOADED_MAX, loaded(f, "a") + loaded(f, ""));
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(each_directory_has_its_look_ups_and_names),
		T(a_window_forgets_what_is_older),
		T(directories_beyond_the_bound_share_one),
		T(another_seed_begins_anew),
		T(only_changes_are_reported),
		T(bytes_loaded_are_the_directory_s),
		T(a_report_has_no_more_bytes_than_the_master_takes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
