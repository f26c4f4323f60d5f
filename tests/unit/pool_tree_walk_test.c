/* Walks over a tree while entries are added and removed. */
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/model/tree.h"

#define ENTRIES_MAX 4000

/* The state of an entry, by its cookie. */
struct mark {
	struct pool_entry *e; /* NULL: removed, or never added */
	uint8_t seen, left;
	bool before; /* existed when the walk began */
};

struct fixture {
	struct pool_tree t;
	struct pool_tree_walk w;
	struct mark mark[ENTRIES_MAX];
	uint64_t random;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(30);
	assert_int_equal(0, pool_tree_init(&f->t, sizeof(struct pool_entry),
					   sizeof(struct pool_dir)));
	f->mark[f->t.root->e.cookie].e = &f->t.root->e;
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	pool_tree_walk_close(&f->w);
	pool_tree_fini(&f->t, NULL, NULL);
	free(f);
	alarm(0);
	return 0;
}

static struct pool_entry *add(struct fixture *f, struct pool_dir *d,
			      const char *name, bool is_dir)
{
	struct pool_entry *e = pool_tree_add(&f->t, d, name, strlen(name),
					     is_dir);

	assert_non_null(e);
	f->mark[e->cookie].e = e;
	return e;
}

static void forget(struct fixture *f, struct pool_entry *e)
{
	f->mark[e->cookie].e = NULL;
	pool_tree_remove(&f->t, e);
}

/* The rest of the walk as text: "+" and the name of a directory before its
 * contents, "-" after them. */
static const char *rest(struct fixture *f)
{
	static char text[128];
	struct pool_entry *e;
	size_t len = 0;
	bool leaving;

	text[0] = '\0';
	while ((e = pool_tree_walk_step(&f->w, &leaving)))
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%.*s ",
					!e->is_dir ? "" : leaving ? "-" : "+",
					e->name_len ? e->name_len : 1,
					e->name_len ? pool_entry_name(e) : "/");
	return text;
}

static struct pool_entry *step(struct fixture *f)
{
	bool leaving;

	return pool_tree_walk_step(&f->w, &leaving);
}

static void a_directory_comes_before_and_behind_what_is_in_it(void **state)
{
	struct fixture *f = *state;
	struct pool_dir *a, *b;

	a = pool_entry_dir(add(f, f->t.root, "a", true));
	add(f, f->t.root, "k", false);
	b = pool_entry_dir(add(f, a, "b", true));
	add(f, b, "x", false);
	add(f, a, "y", false);
	pool_tree_walk_open(&f->t, f->t.root, &f->w);
	assert_string_equal("+/ +a +b x -b y -a k -/ ", rest(f));
	assert_null(step(f));
	assert_true(pool_tree_walk_is_open(&f->w));
	pool_tree_walk_close(&f->w);
	assert_false(pool_tree_walk_is_open(&f->w));
	pool_tree_walk_close(&f->w);
	pool_tree_walk_open(&f->t, a, &f->w);
	assert_string_equal("+a +b x -b y -a ", rest(f));
}

static void what_is_next_may_go(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a = add(f, f->t.root, "a", true), *x, *y;

	x = add(f, pool_entry_dir(a), "x", false);
	y = add(f, pool_entry_dir(a), "y", false);
	pool_tree_walk_open(&f->t, f->t.root, &f->w);
	assert_ptr_equal(&f->t.root->e, step(f));
	assert_ptr_equal(a, step(f));
	forget(f, x);
	forget(f, y);
	assert_string_equal("-a -/ ", rest(f));
}

static void a_directory_may_go_before_it_is_left(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a = add(f, f->t.root, "a", true);

	add(f, f->t.root, "k", false);
	pool_tree_walk_open(&f->t, f->t.root, &f->w);
	step(f);
	assert_ptr_equal(a, step(f));
	forget(f, a);
	assert_string_equal("k -/ ", rest(f));
}

static void a_walk_ends_with_what_it_is_of(void **state)
{
	struct fixture *f = *state;
	struct pool_entry *a = add(f, f->t.root, "a", true);

	add(f, f->t.root, "k", false);
	pool_tree_walk_open(&f->t, pool_entry_dir(a), &f->w);
	assert_ptr_equal(a, step(f));
	forget(f, a);
	assert_null(step(f));
}

/* ---- by chance ---- */

static unsigned int chance(struct fixture *f, unsigned int of)
{
	f->random = f->random * 6364136223846793005u + 1442695040888963407u;
	return (unsigned int)(f->random >> 33) % of;
}

static struct pool_entry *any(struct fixture *f)
{
	struct pool_entry *e;

	do
		e = f->mark[chance(f, (unsigned int)f->t.next_cookie)].e;
	while (!e);
	return e;
}

static void change(struct fixture *f)
{
	struct pool_entry *e = any(f);
	char name[16];

	if (chance(f, 2) && f->t.next_cookie < ENTRIES_MAX) {
		if (!e->is_dir)
			e = &e->parent->e;
		snprintf(name, sizeof(name), "%u",
			 (unsigned int)f->t.next_cookie);
		add(f, pool_entry_dir(e), name, chance(f, 3) == 0);
	} else if (e->parent && !(e->is_dir && pool_entry_dir(e)->nchildren)) {
		forget(f, e);
	}
}

static void walk_while_it_changes(struct fixture *f)
{
	struct pool_entry *e;
	unsigned int k;
	bool leaving;

	for (k = 0; k < ENTRIES_MAX; k++) {
		f->mark[k].before = f->mark[k].e != NULL;
		f->mark[k].seen = f->mark[k].left = 0;
	}
	pool_tree_walk_open(&f->t, f->t.root, &f->w);
	while ((e = pool_tree_walk_step(&f->w, &leaving))) {
		struct mark *m = &f->mark[e->cookie];

		assert_ptr_equal(m->e, e);
		if (leaving)
			m->left++;
		else
			m->seen++;
		assert_true(m->seen <= 1 && m->left <= m->seen);
		if (leaving && e->parent && !pool_entry_dir(e)->nchildren &&
		    chance(f, 2))
			forget(f, e);
		for (k = chance(f, 4); k > 0; k--)
			change(f);
	}
	pool_tree_walk_close(&f->w);
	for (k = 0; k < ENTRIES_MAX; k++)
		if (f->mark[k].e && f->mark[k].before) {
			assert_int_equal(1, f->mark[k].seen);
			assert_int_equal(f->mark[k].e->is_dir, f->mark[k].left);
		}
}

static void what_stays_is_returned_once_whatever_comes_and_goes(void **state)
{
	struct fixture *f = *state;
	unsigned int k;

	f->random = 42;
	for (k = 0; k < 400; k++)
		change(f);
	for (k = 0; k < 40; k++)
		walk_while_it_changes(f);
	assert_true(f->t.next_cookie > 1000);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_directory_comes_before_and_behind_what_is_in_it),
		T(what_is_next_may_go),
		T(a_directory_may_go_before_it_is_left),
		T(a_walk_ends_with_what_it_is_of),
		T(what_stays_is_returned_once_whatever_comes_and_goes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
