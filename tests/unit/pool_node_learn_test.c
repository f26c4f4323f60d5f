/* Which names are temporary, and the expected size of a new file
 * (pool/node/learn.c). */
#include "tests/lib/unit.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/node/node_priv.h"

#define KIB 1024u
#define MIB (1024u * KIB)

/* ---- names ---- */

static bool temporary(const char *name)
{
	return node_name_is_temporary(name, strlen(name));
}

static void the_temporaries_of_the_engines_are_known(void **state)
{
	static const char *const names[] = {
		"k.tmp",
		"f.tmp.4711.140213.0f8fad5bd9cb469fa165",
		".tmpAbC123",
		".0f8fad5bd9cb469fa16570867728950e.tmp",
		"9f86d081884c7d65_4611686018427387904.tmp",
		"_1.tmp",
		".o_direct_probe_x.tmp",
		"config.json.tmp.9a1e",
		".tmp",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!temporary(names[i]))
			fail_msg("%s is a temporary", names[i]);
}

static void final_names_are_not_temporaries(void **state)
{
	static const char *const names[] = {
		"m@1@0@8f3a1c@bfloat16.pt", "k.data",	"x.bin",
		"layer.0.safetensors",	    "slot_0.bin", "config.json",
		"tmp",			    "a.tmpx",	"tmp.data",
		"tmp.bin.1",		    "k.TMP",	"k_tmp",
		".metadata",		    "x",	"12345",
	};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (temporary(names[i]))
			fail_msg("%s is a final name", names[i]);
}

static void a_name_ends_where_its_length_says(void **state)
{
	(void)state;
	/* Names of the tree are not NUL-terminated. */
	assert_false(node_name_is_temporary("k.tmp", 4));
	assert_false(node_name_is_temporary("k.tmp.x", 3));
	assert_false(node_name_is_temporary(".tmp", 3));
	assert_true(node_name_is_temporary("k.tmpx", 5));
	assert_false(node_name_is_temporary("t", 1));
}

/* ---- sizes ---- */

struct fixture {
	struct pool_node n; /* only the tree and `learn` are used */
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_non_null(f);
	assert_int_equal(0, pool_tree_init(&f->n.tree,
					   sizeof(struct node_entry),
					   sizeof(struct node_dirent)));
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	pool_tree_fini(&f->n.tree, NULL, NULL);
	free(f);
	return 0;
}

static struct pool_entry *make(struct fixture *f, const char *path,
			       bool is_dir)
{
	struct pool_entry *e = NULL;

	assert_int_equal(0, pool_tree_make(&f->n.tree, path, strlen(path),
					   is_dir, NULL, NULL, &e));
	return e;
}

static struct node_dirent *dir(struct fixture *f, const char *path)
{
	return node_dir(make(f, path, true));
}

static void written(struct fixture *f, const char *path, uint64_t size)
{
	node_learn_size(&f->n, node_file(make(f, path, false)), size);
}

static void nothing_known_predicts_nothing(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(0, node_learn_predict(&f->n, dir(f, "a/b")));
	assert_int_equal(0, node_learn_predict(&f->n, dir(f, "a")));
}

static void files_of_one_size_predict_that_size(void **state)
{
	struct fixture *f = *state;

	written(f, "a/1", 2 * MIB);
	assert_int_equal(2 * MIB, node_learn_predict(&f->n, dir(f, "a")));
	written(f, "a/2", 2 * MIB);
	assert_int_equal(2 * MIB, node_learn_predict(&f->n, dir(f, "a")));
}

static void empty_files_teach_nothing(void **state)
{
	struct fixture *f = *state;

	written(f, "a/1", 0);
	assert_int_equal(0, node_learn_predict(&f->n, dir(f, "a")));
	written(f, "a/1", MIB);
	written(f, "a/2", 0);
	assert_int_equal(MIB, node_learn_predict(&f->n, dir(f, "a")));
}

static void varied_sizes_predict_twice_the_largest(void **state)
{
	struct fixture *f = *state;

	written(f, "a/1", MIB);
	written(f, "a/2", 3 * MIB);
	written(f, "a/3", 2 * MIB);
	assert_int_equal(6 * MIB, node_learn_predict(&f->n, dir(f, "a")));
}

static void sizes_that_settle_are_believed_again(void **state)
{
	struct fixture *f = *state;
	int i;

	written(f, "a/1", 5 * MIB);
	written(f, "a/2", MIB); /* different size: no prediction for a while */
	for (i = 0; i < 7; i++)
		written(f, "a/2", MIB);
	assert_true(node_learn_predict(&f->n, dir(f, "a")) > MIB);
	written(f, "a/2", MIB);
	assert_int_equal(MIB, node_learn_predict(&f->n, dir(f, "a")));
	/* The largest earlier size is not remembered. */
	written(f, "a/3", 2 * MIB);
	assert_int_equal(4 * MIB, node_learn_predict(&f->n, dir(f, "a")));
}

static void a_large_one_long_ago_fades(void **state)
{
	struct fixture *f = *state;
	int i;

	written(f, "a/1", 64 * MIB);
	for (i = 0; i < 400; i++)
		written(f, "a/2", i % 2 ? MIB : 2 * MIB);
	assert_true(node_learn_predict(&f->n, dir(f, "a")) < 16 * MIB);
	assert_true(node_learn_predict(&f->n, dir(f, "a")) >= 2 * MIB);
}

static void an_empty_directory_takes_its_nearest_ancestor_of_one_mind(
	void **state)
{
	struct fixture *f = *state;

	written(f, "m/1", 2 * MIB);
	assert_int_equal(2 * MIB, node_learn_predict(&f->n, dir(f, "m/a/b")));
	/* the root and the whole mount have learned it as well */
	assert_int_equal(2 * MIB, node_learn_predict(&f->n, dir(f, "o/p")));
	/* A nearer directory takes precedence. */
	written(f, "m/k/1", 4 * KIB);
	assert_int_equal(4 * KIB, node_learn_predict(&f->n, dir(f, "m/k/x")));
}

static void an_ancestor_of_varied_sizes_predicts_nothing_for_others(
	void **state)
{
	struct fixture *f = *state;

	written(f, "m/a/1", 64 * KIB);
	written(f, "m/b/1", 2 * MIB);
	assert_int_equal(0, node_learn_predict(&f->n, dir(f, "m/c")));
	assert_int_equal(0, node_learn_predict(&f->n, dir(f, "o")));
	/* Siblings with a history of their own use it. */
	assert_int_equal(64 * KIB, node_learn_predict(&f->n, dir(f, "m/a")));
	assert_int_equal(2 * MIB, node_learn_predict(&f->n, dir(f, "m/b")));
}

static void directories_deeper_than_the_bound_still_learn(void **state)
{
	struct fixture *f = *state;
	char path[128] = "";
	int i;

	for (i = 0; i < 20; i++)
		strcat(path, "d/");
	strcat(path, "file");
	written(f, path, MIB);
	path[strlen(path) - strlen("/file")] = '\0';
	assert_int_equal(MIB, node_learn_predict(&f->n, dir(f, path)));
	/* The root is too many levels up, but the mount as a whole learns. */
	assert_int_equal(0, pool_node_root(&f->n)->learn.count);
	assert_int_equal(MIB, node_learn_predict(&f->n, dir(f, "other")));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_temporaries_of_the_engines_are_known),
		cmocka_unit_test(final_names_are_not_temporaries),
		cmocka_unit_test(a_name_ends_where_its_length_says),
		T(nothing_known_predicts_nothing),
		T(files_of_one_size_predict_that_size),
		T(empty_files_teach_nothing),
		T(varied_sizes_predict_twice_the_largest),
		T(sizes_that_settle_are_believed_again),
		T(a_large_one_long_ago_fades),
		T(an_empty_directory_takes_its_nearest_ancestor_of_one_mind),
		T(an_ancestor_of_varied_sizes_predicts_nothing_for_others),
		T(directories_deeper_than_the_bound_still_learn),
	};

	alarm(30);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
