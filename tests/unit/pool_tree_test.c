#include "tests/lib/unit.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Includes the code under test, with an allocator that the test can make
 * fail. */
static unsigned int fail_at, allocations; /* fail_at 0: never */

static int allocation_fails(void)
{
	return ++allocations == fail_at;
}

static void *flaky_calloc(size_t n, size_t size)
{
	return allocation_fails() ? NULL : calloc(n, size);
}

static void *flaky_realloc(void *p, size_t size)
{
	return allocation_fails() ? NULL : realloc(p, size);
}

static bool no_memory_for_marks;

static void *marks_realloc(void *p, size_t size)
{
	return no_memory_for_marks ? NULL : realloc(p, size);
}

#define calloc flaky_calloc
#define realloc flaky_realloc
#include "pool/base/hash.c"
#include "pool/model/tree.c"
#undef calloc
#undef realloc
#define realloc marks_realloc
#include "pool/model/marks.c"
#undef realloc

struct file {
	struct pool_entry e;
	uint32_t mark;
	char tail[3];
};

struct dir {
	struct pool_dir d;
	uint32_t mark;
};

static int setup(void **state)
{
	struct pool_tree *t = malloc(sizeof(*t));

	*state = t;
	return t ? pool_tree_init(t, sizeof(struct file), sizeof(struct dir)) :
		   -1;
}

static int teardown(void **state)
{
	pool_tree_fini(*state, NULL, NULL);
	free(*state);
	return 0;
}

static struct pool_entry *make(struct pool_tree *t, const char *path,
			       bool is_dir)
{
	struct pool_entry *e = NULL;

	assert_int_equal(pool_tree_make(t, path, strlen(path), is_dir, NULL,
					NULL, &e), 0);
	assert_non_null(e);
	return e;
}

static struct pool_entry *lookup(struct pool_tree *t, const char *path)
{
	return pool_tree_lookup(t, path, strlen(path));
}

static void assert_path(const struct pool_entry *e, const char *path)
{
	char buf[POOL_PATH_MAX + 1];

	assert_int_equal(pool_tree_path(e, buf, sizeof(buf)), strlen(path));
	assert_string_equal(buf, path);
}

/* ---- names and paths ---- */

static void names_that_no_file_may_have_are_refused(void **state)
{
	char big[300];

	(void)state;
	memset(big, 'n', sizeof(big));
	assert_int_equal(pool_name_check("a", 1), 0);
	assert_int_equal(pool_name_check("...", 3), 0);
	assert_int_equal(pool_name_check(".a", 2), 0);
	assert_int_equal(pool_name_check("\377\n", 2), 0);
	assert_int_equal(pool_name_check(big, 255), 0);
	assert_int_equal(pool_name_check(big, 256), -ENAMETOOLONG);
	assert_int_equal(pool_name_check("", 0), -EINVAL);
	assert_int_equal(pool_name_check(".", 1), -EINVAL);
	assert_int_equal(pool_name_check("..", 2), -EINVAL);
	assert_int_equal(pool_name_check("a/b", 3), -EINVAL);
	assert_int_equal(pool_name_check("a\0b", 3), -EINVAL);
}

static int path_check(const char *path)
{
	return pool_path_check(path, strlen(path));
}

static void paths_are_checked_component_by_component(void **state)
{
	char big[POOL_PATH_MAX + 1];

	(void)state;
	assert_int_equal(path_check("a"), 0);
	assert_int_equal(path_check("a/b/c.tmp"), 0);
	assert_int_equal(path_check(""), -EINVAL);
	assert_int_equal(path_check("/"), -EINVAL);
	assert_int_equal(path_check("/a"), -EINVAL);
	assert_int_equal(path_check("a/"), -EINVAL);
	assert_int_equal(path_check("a//b"), -EINVAL);
	assert_int_equal(path_check("a/../b"), -EINVAL);
	assert_int_equal(path_check("a/."), -EINVAL);
	assert_int_equal(pool_path_check("a\0", 2), -EINVAL);
	for (size_t i = 0; i < sizeof(big); i++)
		big[i] = i % 200 == 199 ? '/' : 'p';
	assert_int_equal(pool_path_check(big, POOL_PATH_MAX), 0);
	assert_int_equal(pool_path_check(big, POOL_PATH_MAX + 1),
			 -ENAMETOOLONG);
	memset(big, 'p', sizeof(big));
	assert_int_equal(pool_path_check(big, 256), -ENAMETOOLONG);
}

/* ---- the tree ---- */

static void a_new_tree_has_a_root_and_nothing_else(void **state)
{
	struct pool_tree *t = *state;

	assert_ptr_equal(lookup(t, ""), &t->root->e);
	assert_int_equal(t->root->e.is_dir, 1);
	assert_null(t->root->e.parent);
	assert_int_equal(t->root->e.name_len, 0);
	assert_path(&t->root->e, "");
	assert_null(lookup(t, "a"));
	assert_null(lookup(t, "/"));
}

static void an_entry_is_found_by_its_name_and_its_path(void **state)
{
	struct pool_tree *t = *state;
	struct pool_entry *f = make(t, "a/b/file", false);
	struct pool_entry *b = lookup(t, "a/b");

	assert_ptr_equal(lookup(t, "a/b/file"), f);
	assert_non_null(b);
	assert_int_equal(b->is_dir, 1);
	assert_ptr_equal(f->parent, pool_entry_dir(b));
	assert_ptr_equal(pool_tree_find(t, f->parent, "file", 4), f);
	assert_null(pool_tree_find(t, f->parent, "fil", 3));
	assert_null(pool_tree_find(t, t->root, "file", 4));
	assert_null(lookup(t, "a/b/file/x"));
	assert_null(lookup(t, "a//file"));
	assert_null(pool_entry_dir(f));
	assert_memory_equal(pool_entry_name(f), "file", 4);
	assert_int_equal(f->name_len, 4);
	assert_path(f, "a/b/file");
	/* the user's part is zeroed, the name lies behind it */
	assert_int_equal(((struct file *)(void *)f)->mark, 0);
	memset(((struct file *)(void *)f)->tail, 'x', 3);
	((struct file *)(void *)f)->mark = UINT32_MAX;
	assert_ptr_equal(lookup(t, "a/b/file"), f);
}

static void cookies_are_unique_and_grow(void **state)
{
	struct pool_tree *t = *state;
	uint64_t last = t->root->e.cookie;

	assert_int_not_equal(last, 0);
	for (int i = 0; i < 10; i++) {
		struct pool_entry *e = make(t, i % 2 ? "x" : "d/y", false);

		assert_true(e->cookie > last);
		last = e->cookie;
		pool_tree_remove(t, e);
	}
}

static void count_added(struct pool_entry *e, void *arg)
{
	char buf[POOL_PATH_MAX + 1], *seen = arg;

	assert_true(pool_tree_path(e, buf, sizeof(buf)) > 0);
	strcat(seen, buf);
	strcat(seen, e->is_dir ? "/ " : " ");
}

static void making_a_path_adds_what_is_missing_outermost_first(void **state)
{
	struct pool_tree *t = *state;
	struct pool_entry *e, *again;
	char seen[200] = "";

	make(t, "a", true);
	assert_int_equal(pool_tree_make(t, "a/b/c/f", 7, false, count_added,
					seen, &e), 0);
	assert_string_equal(seen, "a/b/ a/b/c/ a/b/c/f ");
	assert_int_equal(pool_tree_make(t, "a/b/c/f", 7, false, count_added,
					seen, &again), 0);
	assert_ptr_equal(e, again);
	assert_string_equal(seen, "a/b/ a/b/c/ a/b/c/f ");
	assert_int_equal(pool_tree_make(t, "", 0, true, NULL, NULL, &e), 0);
	assert_ptr_equal(e, &t->root->e);
}

static void making_a_path_of_another_kind_fails(void **state)
{
	struct pool_tree *t = *state;
	struct pool_entry *e = NULL;

	make(t, "d/f", false);
	assert_int_equal(pool_tree_make(t, "d", 1, false, NULL, NULL, &e),
			 -EISDIR);
	assert_int_equal(pool_tree_make(t, "", 0, false, NULL, NULL, &e),
			 -EISDIR);
	assert_int_equal(pool_tree_make(t, "d/f", 3, true, NULL, NULL, &e),
			 -ENOTDIR);
	assert_int_equal(pool_tree_make(t, "d/f/g", 5, true, NULL, NULL, &e),
			 -ENOTDIR);
	assert_int_equal(pool_tree_make(t, "d//g", 4, true, NULL, NULL, &e),
			 -EINVAL);
	assert_int_equal(pool_tree_make(t, "x/..", 4, true, NULL, NULL, &e),
			 -EINVAL);
	assert_null(e);
	assert_null(lookup(t, "x")); /* checked before anything is added */
}

static void every_allocation_may_fail(void **state)
{
	struct pool_tree t;
	struct pool_entry *e = NULL;
	int err = -ENOMEM;

	(void)state;
	fail_at = 1;
	allocations = 0;
	assert_int_equal(pool_tree_init(&t, sizeof(struct file),
					sizeof(struct dir)), -ENOMEM);
	fail_at = 0;
	assert_int_equal(pool_tree_init(&t, sizeof(struct file),
					sizeof(struct dir)), 0);
	for (fail_at = 1; err; fail_at++) {
		assert_true(fail_at < 20);
		allocations = 0;
		err = pool_tree_make(&t, "a/b/c", 5, false, NULL, NULL, &e);
		assert_true(err == 0 || (err == -ENOMEM && !e));
	}
	fail_at = 0;
	assert_ptr_equal(lookup(&t, "a/b/c"), e);
	assert_int_equal(t.hash.count, 3);
	pool_tree_fini(&t, NULL, NULL);
}

static void a_path_longer_than_the_limit_is_an_error(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = t->root;
	char name[POOL_NAME_MAX], buf[POOL_PATH_MAX + 1];

	memset(name, 'n', sizeof(name));
	for (int i = 0; i < 16; i++)
		d = pool_entry_dir(pool_tree_add(t, d, name, 255, true));
	/* 16 names and 15 slashes */
	assert_int_equal(pool_tree_path(&d->e, buf, sizeof(buf)), 4095);
	assert_int_equal(strlen(buf), 4095);
	assert_ptr_equal(lookup(t, buf), &d->e);
	d = pool_entry_dir(pool_tree_add(t, d, name, 1, true));
	assert_int_equal(pool_tree_path(&d->e, buf, sizeof(buf)),
			 -ENAMETOOLONG);
}

static void a_removed_entry_is_gone_and_its_name_free(void **state)
{
	struct pool_tree *t = *state;
	struct pool_entry *f = make(t, "d/f", false);

	assert_int_equal(f->parent->nchildren, 1);
	pool_tree_remove(t, f);
	assert_null(lookup(t, "d/f"));
	assert_int_equal(pool_entry_dir(lookup(t, "d"))->nchildren, 0);
	assert_int_equal(make(t, "d/f", true)->is_dir, 1);
	pool_tree_remove(t, lookup(t, "d/f"));
	pool_tree_remove(t, lookup(t, "d"));
	assert_int_equal(t->root->nchildren, 0);
	assert_int_equal(t->hash.count, 0);
}

static void many_entries_are_found_and_removed(void **state)
{
	enum { DIRS = 50, FILES = 2000 };
	struct pool_tree *t = *state;
	char path[64];

	for (int i = 0; i < DIRS * FILES; i++) {
		sprintf(path, "d%d/%08d.kv", i % DIRS, i / DIRS);
		((struct file *)(void *)make(t, path, false))->mark =
			(uint32_t)i;
	}
	assert_int_equal(t->root->nchildren, DIRS);
	for (int i = 0; i < DIRS * FILES; i++) {
		struct pool_entry *e;

		sprintf(path, "d%d/%08d.kv", i % DIRS, i / DIRS);
		e = lookup(t, path);
		assert_non_null(e);
		assert_int_equal(((struct file *)(void *)e)->mark, i);
		assert_path(e, path);
		if (i % 3)
			pool_tree_remove(t, e);
	}
	assert_null(lookup(t, "d1/00000000.kv"));
	assert_non_null(lookup(t, "d0/00000000.kv"));
}

static void names_with_the_same_hash_are_distinct(void **state)
{
	enum { DIRS = 200000 }; /* some of them share a 32-bit hash */
	struct pool_tree *t = *state;
	struct pool_dir **dirs = malloc(DIRS * sizeof(struct pool_dir *));
	unsigned int met = 0;
	char name[16];

	assert_non_null(dirs);
	for (unsigned int i = 0; i < DIRS; i++) {
		size_t len = (size_t)sprintf(name, "%u", i);

		dirs[i] = pool_entry_dir(
			pool_tree_add(t, t->root, name, len, true));
		assert_non_null(pool_tree_add(t, dirs[i], "f", 1, false));
	}
	for (unsigned int i = 0; i < DIRS; i++) {
		struct pool_entry *e = pool_tree_find(t, dirs[i], "f", 1);

		assert_ptr_equal(e->parent, dirs[i]);
		met += pool_hash_next(&e->hash) != NULL;
	}
	assert_int_not_equal(met, 0);
	free(dirs);
}

static void count_freed(struct pool_entry *e, void *arg)
{
	unsigned int *freed = arg;

	/* children go before their directory */
	if (e->is_dir)
		assert_true(pool_list_empty(&pool_entry_dir(e)->children));
	assert_true(!e->parent || e->parent->e.is_dir);
	++*freed;
}

/* A user who chooses names cannot predict their hashes. */
static void names_are_found_by_a_hash_with_a_seed(void **state)
{
	struct pool_tree *t = *state;
	struct pool_entry *e = pool_tree_add(t, t->root, "name", 4, false);

	assert_non_null(e);
	assert_int_equal((uint32_t)XXH3_64bits_withSeed(
				 "name", 4, t->root->e.cookie +
						    pool_hash_seed()),
			 e->hash.hash);
}

static void closing_a_tree_frees_every_entry_once(void **state)
{
	struct pool_tree t;
	unsigned int freed = 0;

	(void)state;
	assert_int_equal(pool_tree_init(&t, sizeof(struct file),
					sizeof(struct dir)), 0);
	make(&t, "a/b/c/f", false);
	make(&t, "a/b/g", false);
	make(&t, "a/empty", true);
	make(&t, "h", false);
	pool_tree_fini(&t, count_freed, &freed);
	assert_int_equal(freed, 1 + 7);
}

/* ---- readers ---- */

static char next_name(struct pool_tree_reader *r)
{
	struct pool_entry *e = pool_tree_reader_peek(r);

	pool_tree_reader_advance(r);
	return e ? *pool_entry_name(e) : '-';
}

static struct pool_dir *letters(struct pool_tree *t, const char *names)
{
	struct pool_dir *d = pool_entry_dir(make(t, "dir", true));

	for (; *names; names++)
		assert_non_null(pool_tree_add(t, d, names, 1, false));
	return d;
}

static void remove_letter(struct pool_tree *t, const char *name)
{
	struct pool_dir *d = pool_entry_dir(lookup(t, "dir"));

	pool_tree_remove(t, pool_tree_find(t, d, name, 1));
}

static void a_reader_returns_entries_in_order_of_creation(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = letters(t, "zay");
	struct pool_tree_reader r;

	pool_tree_reader_open(t, d, &r);
	assert_int_equal(next_name(&r), 'z');
	assert_int_equal(next_name(&r), 'a');
	assert_int_equal(next_name(&r), 'y');
	assert_int_equal(next_name(&r), '-');
	assert_int_equal(next_name(&r), '-');
	pool_tree_reader_open(t, pool_entry_dir(make(t, "e", true)), &r);
	assert_int_equal(next_name(&r), '-');
}

static void a_reader_does_not_return_what_came_after_it(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = letters(t, "ab");
	struct pool_tree_reader r, later;

	pool_tree_reader_open(t, d, &r);
	letters(t, "c");
	pool_tree_reader_open(t, d, &later);
	assert_int_equal(next_name(&r), 'a');
	assert_int_equal(next_name(&r), 'b');
	letters(t, "d");
	assert_int_equal(next_name(&r), '-');
	assert_int_equal(next_name(&later), 'a');
	assert_int_equal(next_name(&later), 'b');
	assert_int_equal(next_name(&later), 'c');
	assert_int_equal(next_name(&later), '-');
}

static void removing_the_next_entry_moves_the_reader_on(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = letters(t, "abcde");
	struct pool_tree_reader r, other;

	pool_tree_reader_open(t, d, &r);
	pool_tree_reader_open(t, d, &other);
	assert_int_equal(next_name(&r), 'a');
	remove_letter(t, "b");
	remove_letter(t, "c");
	assert_int_equal(next_name(&r), 'd');
	remove_letter(t, "a");
	assert_int_equal(next_name(&other), 'd');
	remove_letter(t, "e");
	letters(t, "f");
	assert_int_equal(next_name(&r), '-');
	assert_int_equal(next_name(&other), '-');
}

static void removing_the_last_entry_does_not_reach_newer_ones(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = letters(t, "a");
	struct pool_tree_reader r;

	pool_tree_reader_open(t, d, &r);
	letters(t, "b");
	remove_letter(t, "a");
	assert_null(pool_tree_reader_peek(&r));
}

static void a_reader_can_be_sought_back_and_forth(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = letters(t, "abcde");
	struct pool_tree_reader r;
	uint64_t b, d_cookie, e;

	b = pool_tree_find(t, d, "b", 1)->cookie;
	d_cookie = pool_tree_find(t, d, "d", 1)->cookie;
	e = pool_tree_find(t, d, "e", 1)->cookie;
	pool_tree_reader_open(t, d, &r);
	letters(t, "f");
	pool_tree_reader_seek(&r, d_cookie);
	assert_int_equal(next_name(&r), 'e');
	assert_int_equal(next_name(&r), '-');
	pool_tree_reader_seek(&r, b);
	assert_int_equal(next_name(&r), 'c');
	pool_tree_reader_seek(&r, b);
	assert_int_equal(next_name(&r), 'c');
	pool_tree_reader_seek(&r, 0);
	assert_int_equal(next_name(&r), 'a');
	pool_tree_reader_seek(&r, pool_tree_find(t, d, "a", 1)->cookie);
	assert_int_equal(next_name(&r), 'b');
	remove_letter(t, "b"); /* also after a cookie whose entry was removed */
	pool_tree_reader_seek(&r, b);
	assert_int_equal(next_name(&r), 'c');
	pool_tree_reader_seek(&r, e);
	assert_int_equal(next_name(&r), '-');
	pool_tree_reader_seek(&r, UINT64_MAX);
	assert_int_equal(next_name(&r), '-');
	pool_tree_reader_seek(&r, 0);
	assert_int_equal(next_name(&r), 'a');
}

static uint64_t seed = 7;

static uint32_t random_below(uint32_t n)
{
	seed = seed * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)((seed >> 32) * n >> 32);
}

/*
 * Model: names 0..NAMES-1 are added and removed at random while readers walk. A
 * name that existed from the open to the end must have been returned once; a
 * name that did not exist at the open, never.
 */
enum { NAMES = 200, READERS = 5 };

struct model {
	uint64_t cookie[NAMES]; /* 0: not there */
	struct {
		struct pool_tree_reader r;
		uint64_t at_open[NAMES];
		unsigned int seen[NAMES];
		bool open;
	} reader[READERS];
};

static void model_flip(struct pool_tree *t, struct model *m, uint32_t i)
{
	char name[16];
	size_t len = (size_t)sprintf(name, "%u", i);

	if (m->cookie[i]) {
		pool_tree_remove(t, pool_tree_find(t, t->root, name, len));
		m->cookie[i] = 0;
	} else {
		m->cookie[i] =
			pool_tree_add(t, t->root, name, len, false)->cookie;
	}
}

static void model_open(struct pool_tree *t, struct model *m, unsigned int k)
{
	memcpy(m->reader[k].at_open, m->cookie, sizeof(m->cookie));
	memset(m->reader[k].seen, 0, sizeof(m->reader[k].seen));
	pool_tree_reader_open(t, t->root, &m->reader[k].r);
	m->reader[k].open = true;
}

static void model_step(struct model *m, unsigned int k)
{
	struct pool_entry *e = pool_tree_reader_peek(&m->reader[k].r);
	char name[16] = "";
	unsigned int i;

	if (e) {
		memcpy(name, pool_entry_name(e), e->name_len);
		i = (unsigned int)atoi(name);
		assert_true(m->cookie[i] == e->cookie);
		assert_true(m->reader[k].at_open[i] == e->cookie);
		m->reader[k].seen[i]++;
		pool_tree_reader_advance(&m->reader[k].r);
		return;
	}
	for (i = 0; i < NAMES; i++) {
		bool stayed = m->reader[k].at_open[i] &&
			      m->reader[k].at_open[i] == m->cookie[i];

		assert_true(m->reader[k].seen[i] <= 1);
		if (stayed)
			assert_int_equal(m->reader[k].seen[i], 1);
	}
	m->reader[k].open = false;
}

static void
readers_see_what_stays_exactly_once_while_entries_come_and_go(void **state)
{
	static struct model m;
	struct pool_tree *t = *state;
	unsigned int ended = 0;

	for (int step = 0; step < 200000; step++) {
		unsigned int k = random_below(READERS);

		if (random_below(3) == 0) {
			model_flip(t, &m, random_below(NAMES));
		} else if (!m.reader[k].open) {
			model_open(t, &m, k);
		} else {
			model_step(&m, k);
			ended += !m.reader[k].open;
		}
	}
	assert_true(ended > 500);
}

/* ---- places in a large directory ---- */

enum {
	STRIDE = POOL_MARKS_STRIDE,
	MANY = 100 * STRIDE,
};

static struct pool_entry *add_number(struct pool_tree *t, struct pool_dir *d,
				     unsigned int i)
{
	char name[16];

	return pool_tree_add(t, d, name, (size_t)sprintf(name, "%u", i), false);
}

static struct pool_dir *numbers(struct pool_tree *t, unsigned int n)
{
	struct pool_dir *d = pool_entry_dir(make(t, "dir", true));

	for (unsigned int i = 0; i < n; i++)
		assert_non_null(add_number(t, d, i));
	return d;
}

static struct pool_entry *oldest(const struct pool_dir *d)
{
	return pool_list_first(&d->children, struct pool_entry, sibling);
}

static struct pool_entry *youngest(const struct pool_dir *d)
{
	return pool_list_entry(d->children.prev, struct pool_entry, sibling);
}

static void a_seek_walks_over_no_more_names_in_a_large_directory(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = numbers(t, MANY);
	uint64_t first = oldest(d)->cookie;
	struct pool_tree_reader r;

	pool_tree_reader_open(t, d, &r);
	for (unsigned int i = 0; i < 1000; i++) {
		uint64_t cookie = first + random_below(MANY - 1), before;

		before = r.nsteps;
		pool_tree_reader_seek(&r, cookie);
		assert_int_equal(pool_tree_reader_peek(&r)->cookie, cookie + 1);
		assert_true(r.nsteps - before <= STRIDE);
		pool_tree_reader_seek(&r, cookie);
		assert_true(r.nsteps - before <= STRIDE);
	}
}

static void a_removal_costs_a_reader_a_search_and_no_more(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = numbers(t, MANY);
	struct pool_tree_reader r;
	uint64_t before, cookie;

	pool_tree_reader_open(t, d, &r);
	for (unsigned int i = 0; i < MANY / 2; i++)
		pool_tree_reader_advance(&r);
	assert_int_equal(r.nsteps, 0);
	cookie = pool_tree_reader_peek(&r)->cookie;
	pool_tree_remove(t, oldest(d));
	before = r.nsteps;
	for (unsigned int i = 0; i < MANY / 4; i++, cookie++) {
		assert_int_equal(pool_tree_reader_peek(&r)->cookie, cookie);
		pool_tree_reader_advance(&r);
	}
	assert_true(r.nsteps - before <= STRIDE);
}

static void the_index_of_a_directory_goes_with_its_names(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = numbers(t, STRIDE - 1);
	unsigned int i;

	assert_null(d->marks);
	for (i = 0; i < MANY; i++)
		assert_non_null(add_number(t, d, STRIDE + i));
	assert_int_equal(pool_marks_check(d, STRIDE), 100);
	/* Entries added and removed at the end leave no marks behind. */
	for (i = 0; i < MANY; i++)
		pool_tree_remove(t, add_number(t, d, 2 * MANY + i));
	assert_true(pool_marks_check(d, STRIDE) <= 101);
	/* Nor does a queue, in which new names replace the oldest. */
	for (i = 0; i < 2 * MANY; i++) {
		assert_non_null(add_number(t, d, 4 * MANY + i));
		pool_tree_remove(t, oldest(d));
	}
	assert_true(pool_marks_check(d, STRIDE) <= 102);
	for (i = 0; d->nchildren > 0; i++) {
		pool_tree_remove(t, i % 2 ? oldest(d) : youngest(d));
		pool_marks_check(d, STRIDE);
	}
	assert_null(d->marks);
	pool_tree_remove(t, &d->e);
}

/* Model: the cookies in the directory, sorted. */
struct places {
	uint64_t cookie[2 * MANY];
	unsigned int n;
};

static unsigned int places_upto(const struct places *p, uint64_t cookie)
{
	unsigned int k = 0;

	while (k < p->n && p->cookie[k] <= cookie)
		k++;
	return k;
}

static void places_remove(struct pool_tree *t, struct pool_dir *d,
			  struct places *p, unsigned int k)
{
	struct pool_entry *e = pool_tree_after(d, p->cookie[k] - 1);

	assert_int_equal(e->cookie, p->cookie[k]);
	pool_tree_remove(t, e);
	memmove(&p->cookie[k], &p->cookie[k + 1],
		(--p->n - k) * sizeof(p->cookie[0]));
}

static void places_add(struct pool_tree *t, struct pool_dir *d,
		       struct places *p)
{
	static unsigned int i;

	p->cookie[p->n++] = add_number(t, d, i++)->cookie;
}

static void places_seek(const struct pool_tree *t, const struct places *p,
			struct pool_tree_reader *r)
{
	uint64_t to = random_below((uint32_t)t->next_cookie + 2);
	struct pool_entry *e;
	unsigned int k;

	pool_tree_reader_seek(r, to);
	k = places_upto(p, to);
	for (unsigned int steps = random_below(4); steps > 0; steps--, k++) {
		e = pool_tree_reader_peek(r);
		if (k >= p->n || p->cookie[k] > r->last_cookie) {
			assert_null(e);
			return;
		}
		assert_int_equal(e->cookie, p->cookie[k]);
		pool_tree_reader_advance(r);
	}
}

/* Removes single names, runs of them, or all but every 100th, which leaves
 * marks side by side. */
static void places_thin(struct pool_tree *t, struct pool_dir *d,
			struct places *p)
{
	unsigned int k = random_below(p->n), run = random_below(3 * STRIDE);
	bool sparse = random_below(2);

	for (; run > 0 && k < p->n; run--) {
		places_remove(t, d, p, k);
		k += sparse && run % 100 == 0;
	}
}

static void places_are_found_as_a_walk_finds_them(void **state)
{
	static struct places p;
	struct pool_tree *t = *state;
	struct pool_dir *d = numbers(t, 0);
	struct pool_tree_reader r;

	pool_tree_reader_open(t, d, &r);
	for (unsigned int step = 0; step < 20000; step++) {
		bool grows = step / 2500 % 2 == 0;

		for (unsigned int k = 0; grows && k < 4; k++)
			if (p.n < 2 * MANY)
				places_add(t, d, &p);
		if (p.n && random_below(grows ? 400 : 20) == 0)
			places_thin(t, d, &p);
		else if (p.n)
			places_remove(t, d, &p, random_below(p.n));
		if (random_below(50) == 0)
			pool_tree_reader_open(t, d, &r);
		places_seek(t, &p, &r);
		if (step % 50 == 0)
			pool_marks_check(d, STRIDE);
	}
}

static void without_memory_for_the_index_names_are_added_and_found(void **state)
{
	struct pool_tree *t = *state;
	struct pool_dir *d = numbers(t, STRIDE - 1);
	struct pool_entry *e = NULL;
	uint64_t first = oldest(d)->cookie;
	unsigned int i;

	for (i = STRIDE; i < 2 * STRIDE; i++) {
		no_memory_for_marks = true;
		e = add_number(t, d, i);
		no_memory_for_marks = false;
		assert_non_null(e);
	}
	assert_null(d->marks);
	assert_ptr_equal(pool_tree_after(d, e->cookie - 1), e);
	assert_int_equal(pool_tree_after(d, first)->cookie, first + 1);
	e = add_number(t, d, i);
	assert_int_equal(pool_marks_check(d, 2 * STRIDE), 1);
	assert_ptr_equal(pool_tree_after(d, e->cookie - 1), e);
}

static void many_names_are_found_as_each_one_is(void **state)
{
	enum { N = 1000 };
	struct pool_tree_name names[N];
	struct pool_entry *found[N];
	struct pool_dir *a, *b;
	static char text[N][8];
	struct pool_tree t;

	(void)state;
	assert_int_equal(pool_tree_init(&t, sizeof(struct pool_entry),
					sizeof(struct pool_dir)), 0);
	for (size_t i = 0; i < N; i++) {
		snprintf(text[i], sizeof(text[i]), "%zu", i);
		names[i].name = text[i];
		names[i].len = strlen(text[i]);
	}
	pool_tree_find_many(&t, t.root, names, N, found);
	for (size_t i = 0; i < N; i++)
		assert_null(found[i]);
	a = pool_entry_dir(pool_tree_add(&t, t.root, "a", 1, true));
	b = pool_entry_dir(pool_tree_add(&t, t.root, "b", 1, true));
	for (size_t i = 0; i < N; i += 3) {
		assert_non_null(pool_tree_add(&t, a, names[i].name,
					      names[i].len, false));
		assert_non_null(pool_tree_add(&t, b, names[i].name,
					      names[i].len, i % 2));
	}
	pool_tree_find_many(&t, a, names, N - 1, found);
	for (size_t i = 0; i < N - 1; i++) {
		assert_ptr_equal(found[i], pool_tree_find(&t, a, names[i].name,
							  names[i].len));
		assert_int_equal(found[i] != NULL, i % 3 == 0);
	}
	pool_tree_fini(&t, NULL, NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(names_that_no_file_may_have_are_refused),
		T(paths_are_checked_component_by_component),
		T(a_new_tree_has_a_root_and_nothing_else),
		T(an_entry_is_found_by_its_name_and_its_path),
		T(cookies_are_unique_and_grow),
		T(making_a_path_adds_what_is_missing_outermost_first),
		T(making_a_path_of_another_kind_fails),
		T(every_allocation_may_fail),
		T(a_path_longer_than_the_limit_is_an_error),
		T(a_removed_entry_is_gone_and_its_name_free),
		T(many_entries_are_found_and_removed),
		cmocka_unit_test(many_names_are_found_as_each_one_is),
		T(names_with_the_same_hash_are_distinct),
		T(names_are_found_by_a_hash_with_a_seed),
		T(closing_a_tree_frees_every_entry_once),
		T(a_reader_returns_entries_in_order_of_creation),
		T(a_reader_does_not_return_what_came_after_it),
		T(removing_the_next_entry_moves_the_reader_on),
		T(removing_the_last_entry_does_not_reach_newer_ones),
		T(a_reader_can_be_sought_back_and_forth),
		T(a_seek_walks_over_no_more_names_in_a_large_directory),
		T(a_removal_costs_a_reader_a_search_and_no_more),
		T(the_index_of_a_directory_goes_with_its_names),
		T(places_are_found_as_a_walk_finds_them),
		T(without_memory_for_the_index_names_are_added_and_found),
		T(readers_see_what_stays_exactly_once_while_entries_come_and_go),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
