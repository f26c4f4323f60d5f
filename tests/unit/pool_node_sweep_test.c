/* The end of a whole picture, in a tree with hidden names and removed
 * directories: entries that free each other meanwhile are not visited any more
 * (pool/node/feed.c). */
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/node/node_priv.h"

struct fixture {
	struct pool_node n; /* only the tree and the feed are used */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	alarm(20);
	assert_int_equal(0, pool_tree_init(&f->n.tree,
					   sizeof(struct node_entry),
					   sizeof(struct node_dirent)));
	*state = f;
	return 0;
}

static void free_entry(struct pool_entry *e, void *arg)
{
	(void)arg;
	pool_xattrs_free(e->is_dir ? node_dir(e)->xattrs :
				     node_file(e)->xattrs);
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	pool_tree_fini(&f->n.tree, free_entry, NULL);
	pool_quota_fini(&f->n.quota);
	free(f);
	alarm(0);
	return 0;
}

static struct pool_entry *lookup(struct fixture *f, const char *path)
{
	return pool_tree_lookup(&f->n.tree, path, strlen(path));
}

static void feed_name(struct fixture *f, const char *path)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list = &meta;
	uint8_t sum[16] = { 1 };

	meta.path.data = (uint8_t *)(uintptr_t)path;
	meta.path.len = strlen(path);
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	meta.gen = 1ull << POOL_GEN_SEQ_BITS | 1;
	feed.entries = &list;
	feed.n_entries = 1;
	assert_int_equal(0, node_feed_apply(&f->n, &feed));
}

/* Applies a whole picture without any names. */
static void feed_nothing(struct fixture *f)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;

	feed.begin = feed.complete = true;
	assert_int_equal(0, node_feed_apply(&f->n, &feed));
}

/* Unlinked here; the master has acked that, and the feed has not reported
 * it. */
static void hide(struct fixture *f, const char *path)
{
	struct node_entry *e = node_file(lookup(f, path));

	node_hide(&f->n, e, e->gen);
}

/* The same of a directory. */
static void remove_here(struct fixture *f, const char *path)
{
	node_dir_gone(&f->n, node_dir(lookup(f, path)), true);
}

static void directories_that_are_gone_go_with_their_last_hidden_name(
	void **state)
{
	struct fixture *f = *state;

	feed_name(f, "a/b/c/k");
	hide(f, "a/b/c/k");
	remove_here(f, "a/b/c");
	remove_here(f, "a/b");
	remove_here(f, "a");
	feed_nothing(f);
	assert_null(lookup(f, "a"));
}

static void what_stands_beside_them_is_swept_as_well(void **state)
{
	struct fixture *f = *state;

	feed_name(f, "a/b/k");
	feed_name(f, "a/z");
	feed_name(f, "y/k");
	hide(f, "a/b/k");
	hide(f, "a/z");
	remove_here(f, "a/b");
	remove_here(f, "a");
	feed_nothing(f);
	assert_null(lookup(f, "a"));
	assert_null(lookup(f, "y"));
	assert_true(pool_list_empty(&f->n.tree.root->children));
}

static void a_directory_shown_goes_from_one_that_is_gone(void **state)
{
	struct fixture *f = *state;

	feed_name(f, "a/b/k");
	remove_here(f, "a");
	feed_nothing(f);
	assert_null(lookup(f, "a"));
}

/* A name outside of this node's namespaces, created by an order. No picture has
 * it. */
static void names_of_others_are_not_swept(void **state)
{
	static const struct pool_tls_id limited = { .ndirs = 1,
						    .dirs = { "mine" } };
	struct fixture *f = *state;
	Kvpool__Meta meta = KVPOOL__META__INIT;
	uint8_t sum[16] = { 1 };

	f->n.self = &limited;
	pool_node_root(&f->n)->reach = POOL_ABOVE;
	feed_name(f, "mine/k");
	meta.path.data = (uint8_t *)(uintptr_t)"others/k";
	meta.path.len = strlen("others/k");
	meta.sum.data = sum;
	meta.sum.len = sizeof(sum);
	meta.gen = 1ull << POOL_GEN_SEQ_BITS | 2;
	assert_non_null(node_feed_ahead(&f->n, &meta));
	feed_nothing(f);
	feed_nothing(f);
	assert_null(lookup(f, "mine"));
	assert_non_null(lookup(f, "others/k"));
	assert_int_equal(meta.gen, node_file(lookup(f, "others/k"))->gen);
	assert_false(node_dir(lookup(f, "others"))->gone);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(directories_that_are_gone_go_with_their_last_hidden_name),
		T(what_stands_beside_them_is_swept_as_well),
		T(a_directory_shown_goes_from_one_that_is_gone),
		T(names_of_others_are_not_swept),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
