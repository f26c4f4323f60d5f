/*
 * More daemon-served files are open than descriptors are kept for them
 * (pool/node/fds.c). Each file behaves as if it had one.
 */
#include "tests/lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "pool/node/node_priv.h" /* counters, store ids */
#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID
#define KEPT 4
#define FILES 20

static struct pool_node *begin(struct world *w)
{
	w->m[0].node->opts.fds_max = KEPT;
	return w->m[0].node;
}

/* Number of open descriptors of this process. */
static unsigned int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	unsigned int count = 0;

	assert_non_null(d);
	while (readdir(d))
		count++;
	closedir(d);
	return count;
}

static const char *name_of(unsigned int i)
{
	static char name[16];

	snprintf(name, sizeof(name), "f%u", i);
	return name;
}

static const char *text_of(unsigned int i, unsigned int pieces)
{
	static char text[256];
	size_t len = 0;

	for (text[0] = '\0'; pieces > 0; pieces--)
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"<%02u>", i);
	return text;
}

static void create_all(struct world *w, struct k_file *f)
{
	for (unsigned int i = 0; i < FILES; i++) {
		assert_int_equal(0, k_create(w, ROOT, name_of(i), O_RDWR,
					     &f[i]));
		k_write(w, &f[i], text_of(i, 1), 0);
	}
}

/* Writes one more piece to each file in turn, then reads each file whole. */
static void write_all(struct world *w, struct k_file *f, unsigned int piece)
{
	unsigned int i;

	for (i = 0; i < FILES; i++)
		k_write(w, &f[i], text_of(i, 1), piece * 4);
	for (i = 0; i < FILES; i++)
		k_expect(w, &f[i], text_of(i, piece + 1));
}

static void close_all(struct world *w, struct k_file *f)
{
	for (unsigned int i = 0; i < FILES; i++)
		k_close(w, &f[i]);
}

static void more_files_are_written_than_descriptors_are_kept(void **state)
{
	struct world *w = *state;
	struct pool_node *n = begin(w);
	unsigned int i, before = count_fds();
	struct k_file f[FILES];
	struct node_entry *e;

	create_all(w, f);
	write_all(w, f, 1);
	write_all(w, f, 2);
	assert_in_range(count_fds(), before, before + KEPT);
	assert_true(pool_counter_value(&n->c.fds_closed) >= FILES);
	close_all(w, f);
	for (i = 0; i < FILES; i++) {
		k_until(w, k_published(w, name_of(i)));
		e = node_file(pool_tree_lookup(pool_node_tree(n), name_of(i),
					       strlen(name_of(i))));
		assert_true(XXH128_isEqual(e->sum,
					   XXH3_128bits(text_of(i, 3), 12)));
		assert_int_equal(0, k_open_name(w, name_of(i), O_RDONLY, f));
		k_expect(w, f, text_of(i, 3));
		k_close(w, f);
	}
}

static void more_files_are_read_than_descriptors_are_kept(void **state)
{
	struct world *w = *state;
	unsigned int i, before;
	struct k_file f[FILES];

	(void)begin(w);
	for (i = 0; i < FILES; i++)
		(void)k_publish(w, name_of(i), text_of(i, 3));
	before = count_fds();
	for (i = 0; i < FILES; i++)
		assert_int_equal(0, k_open_name(w, name_of(i), O_RDONLY,
						&f[i]));
	for (i = 0; i < FILES; i++)
		k_expect(w, &f[i], text_of(i, 3));
	assert_in_range(count_fds(), before, before + KEPT);
	close_all(w, f);
}

/* The store has no file; or (there) it has one without metadata, which the next
 * start would remove. */
static void expect_left(struct pool_node *n, const uint64_t *ids, bool there)
{
	for (unsigned int i = 0; i < FILES; i++)
		assert_int_equal(there ? -ENODATA : -ENOENT,
				 pool_store_set_blob(n->store, ids[i], 12, "",
						     1));
}

static void what_is_read_and_unlinked_is_kept_without_a_descriptor(
	void **state)
{
	struct world *w = *state;
	struct pool_node *n = begin(w);
	unsigned int i, before = count_fds();
	struct k_file f[FILES];
	uint64_t ids[FILES];

	for (i = 0; i < FILES; i++) {
		(void)k_publish(w, name_of(i), text_of(i, 3));
		assert_int_equal(0, k_open_name(w, name_of(i), O_RDONLY,
						&f[i]));
		ids[i] = fs_handle_obj(w->fs, fs_inode_find(w->fs, f[i].nodeid),
				       f[i].fh)->id;
		assert_int_equal(0, k_unlink(w, ROOT, name_of(i)));
	}
	for (i = 0; i < FILES; i++)
		k_expect(w, &f[i], text_of(i, 3));
	assert_in_range(count_fds(), before, before + KEPT);
	expect_left(n, ids, true);
	close_all(w, f);
	expect_left(n, ids, false);
}

static void what_is_written_and_unlinked_is_kept_without_a_descriptor(
	void **state)
{
	struct world *w = *state;
	struct pool_node *n = begin(w);
	unsigned int i, before = count_fds();
	struct k_file f[FILES];
	uint64_t ids[FILES];
	struct fuse_attr a;

	create_all(w, f);
	for (i = 0; i < FILES; i++) {
		ids[i] = fs_inode_find(w->fs, f[i].nodeid)->obj->id;
		assert_int_equal(0, k_unlink(w, ROOT, name_of(i)));
	}
	write_all(w, f, 1);
	write_all(w, f, 2);
	assert_in_range(count_fds(), before, before + KEPT);
	assert_int_equal(0, k_getattr(w, f[0].nodeid, &a));
	assert_int_equal(12, a.size);
	expect_left(n, ids, true);
	close_all(w, f);
	expect_left(n, ids, false);
}

static void a_file_that_cannot_be_opened_again_is_lost_alone(void **state)
{
	struct world *w = *state;
	struct {
		struct fuse_write_in in;
		char text[4];
	} write = { .in = { .offset = 4, .size = 4 } };
	struct rlimit old, none;
	struct k_file f[FILES];
	uint64_t missing;
	unsigned int i;
	int err;

	(void)begin(w);
	create_all(w, f);
	write.in.fh = f[0].fh;
	assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &old));
	none = (struct rlimit){ 0, old.rlim_max };
	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &none));
	err = k_wait(w, k_send(w, FUSE_WRITE, f[0].nodeid, &write,
			       sizeof(write.in) + 4, NULL, NULL))->err;
	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &old));
	assert_int_equal(EMFILE, err);
	k_write(w, &f[0], text_of(0, 1), 8); /* accepted, but the file is
					        poisoned */
	for (i = 1; i < FILES; i++)
		k_write(w, &f[i], text_of(i, 1), 4);
	close_all(w, f);
	for (i = 1; i < FILES; i++)
		k_until(w, k_published(w, name_of(i)));
	assert_int_equal(ENOENT, k_lookup(w, ROOT, name_of(0), &missing));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		both(more_files_are_written_than_descriptors_are_kept),
		cmocka_unit_test_setup_teardown(
			more_files_are_read_than_descriptors_are_kept,
			k_setup_served, k_teardown),
		cmocka_unit_test_setup_teardown(
			what_is_read_and_unlinked_is_kept_without_a_descriptor,
			k_setup_served, k_teardown),
		both(what_is_written_and_unlinked_is_kept_without_a_descriptor),
		both(a_file_that_cannot_be_opened_again_is_lost_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
