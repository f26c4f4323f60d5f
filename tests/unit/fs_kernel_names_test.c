/*
 * Names and directories, with a simulated kernel: look-up counts, renames,
 * listings, what a directory's fsync waits for, and what is refused.
 */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/node/node_priv.h"
#include "tests/unit/fs_kernel.h"

#define ROOT FUSE_ROOT_ID

static int synced; /* 0 or -errno; 1: in flight */

static int64_t inodes(const struct world *w)
{
	return pool_gauge_value(&w->fs->ninodes);
}

/* ---- look-ups ---- */

static void look_ups_are_counted_until_they_are_forgotten(void **state)
{
	struct world *w = *state;
	int64_t before = inodes(w);
	uint64_t id, again;

	id = k_publish(w, "a", "text");
	assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
	assert_int_equal(id, again);
	k_forget(w, id, w->k.inodes[id].nlookup - 1);
	assert_true(inodes(w) > before);
	assert_int_equal(0, k_lookup(w, ROOT, "a", &again));
	assert_int_equal(id, again);
	k_forget(w, id, 2);
	/* The nodeid by which the file was written may still be in use, too. */
	for (again = 2; again < K_INODES; again++)
		if (w->k.inodes[again].nlookup)
			k_forget(w, again, w->k.inodes[again].nlookup);
	k_until(w, inodes(w) == before);
}

/* Because too many changes wait for the master. */
static void a_refused_unlink_changes_nothing(void **state)
{
	struct world *w = *state;
	struct pool_node *n = w->fs->node;
	uint64_t id = k_publish(w, "a", "text");
	struct fuse_attr before, after;

	assert_int_equal(0, k_getattr(w, id, &before));
	n->nops += NODE_OPS_MAX;
	assert_int_equal(EAGAIN, k_unlink(w, ROOT, "a"));
	n->nops -= NODE_OPS_MAX;
	assert_int_equal(0, k_getattr(w, id, &after));
	assert_memory_equal(&before, &after, sizeof(before));
	k_expect_name(w, "a", "text");
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
}

static uint64_t changed_ns(struct world *w)
{
	struct fuse_attr a;

	assert_int_equal(0, k_getattr(w, ROOT, &a));
	return a.mtime * 1000000000ull + a.mtimensec;
}

static void a_new_name_changes_its_directorys_time(void **state)
{
	struct world *w = *state;
	uint64_t before = changed_ns(w), made;
	struct k_file f;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	made = changed_ns(w);
	assert_true(made > before);
	k_write(w, &f, "text", 0);
	k_close(w, &f);
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	assert_true(changed_ns(w) > made);
}

static void several_are_forgotten_at_once(void **state)
{
	struct world *w = *state;
	int64_t before = inodes(w);
	struct {
		struct fuse_batch_forget_in in;
		struct fuse_forget_one one[2];
	} q = { .in = { .count = 2 } };
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(0, k_mkdir(w, ROOT, i ? "e" : "d",
					    &q.one[i].nodeid));
	assert_int_equal(before + 2, inodes(w));
	for (i = 0; i < 2; i++) {
		q.one[i].nlookup = 1;
		w->k.inodes[q.one[i].nodeid].nlookup = 0;
	}
	(void)k_send(w, FUSE_BATCH_FORGET, 0, &q, sizeof(q), NULL, NULL);
	k_until(w, inodes(w) == before);
}

static void an_open_file_outlives_that_it_is_forgotten(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct k_file f;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
	k_forget(w, id, w->k.inodes[id].nlookup);
	k_expect(w, &f, "text");
	k_close(w, &f);
}

/* ---- refused ---- */

static void names_that_cannot_be_are_refused(void **state)
{
	struct world *w = *state;
	char name[POOL_NAME_MAX + 2];
	struct k_file f;
	uint64_t id;

	memset(name, 'x', sizeof(name) - 1);
	name[sizeof(name) - 1] = '\0';
	assert_int_equal(ENAMETOOLONG, k_lookup(w, ROOT, name, &id));
	assert_int_equal(ENAMETOOLONG, k_create(w, ROOT, name, O_RDWR, &f));
	assert_int_equal(ENAMETOOLONG, k_mkdir(w, ROOT, name, &id));
	assert_int_equal(EEXIST, k_mkdir(w, ROOT, FS_PROC_NAME, &id));
	assert_int_equal(EPERM, k_rmdir(w, ROOT, FS_PROC_NAME));
}

static int mknod_of(struct world *w, const char *name, uint32_t mode)
{
	struct fuse_mknod_in in = { .mode = mode, .umask = 022 };
	const struct k_reply *r =
		k_wait(w, k_send(w, FUSE_MKNOD, ROOT, &in, sizeof(in), name,
				 NULL));

	if (!r->err)
		w->k.inodes[r->entry.nodeid].nlookup++;
	return r->err;
}

static void only_regular_files_and_directories_are_made(void **state)
{
	struct world *w = *state;

	assert_int_equal(EPERM, mknod_of(w, "fifo", S_IFIFO | 0644));
	assert_int_equal(EPERM, mknod_of(w, "sock", S_IFSOCK | 0644));
	assert_int_equal(EPERM, mknod_of(w, "dev", S_IFCHR | 0644));
	assert_int_equal(EPERM, k_wait(w, k_send(w, FUSE_SYMLINK, ROOT, NULL,
						 0, "link", "to"))->err);
	assert_int_equal(0, mknod_of(w, "file", S_IFREG | 0644));
	assert_int_equal(EEXIST, mknod_of(w, "file", S_IFREG | 0644));
	k_until(w, k_published(w, "file"));
}

static void the_wrong_kind_of_name_is_refused(void **state)
{
	struct world *w = *state;
	uint64_t d, e;

	(void)k_publish(w, "f", "text");
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(0, k_mkdir(w, d, "e", &e));
	assert_int_equal(EISDIR, k_unlink(w, ROOT, "d"));
	assert_int_equal(ENOTDIR, k_rmdir(w, ROOT, "f"));
	assert_int_equal(ENOENT, k_rmdir(w, ROOT, "none"));
	assert_int_equal(ENOENT, k_unlink(w, ROOT, "none"));
	assert_int_equal(ENOTEMPTY, k_rmdir(w, ROOT, "d"));
	assert_int_equal(0, k_rmdir(w, d, "e"));
	assert_int_equal(0, k_rmdir(w, ROOT, "d"));
}

/* ---- renames ---- */

static void renames_that_cannot_be_change_nothing(void **state)
{
	struct world *w = *state;
	uint64_t d, id;

	(void)k_publish(w, "a", "a's");
	(void)k_publish(w, "b", "b's");
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(EEXIST, k_rename(w, ROOT, "a", ROOT, "b", 1));
	assert_int_equal(EINVAL, k_rename(w, ROOT, "a", ROOT, "b", 2));
	assert_int_equal(ENOENT, k_rename(w, ROOT, "none", ROOT, "b", 0));
	assert_int_equal(EPERM, k_rename(w, ROOT, "a", FS_PROC_DIR, "a", 0));
	assert_int_equal(0, k_rename(w, ROOT, "a", ROOT, "a", 0));
	assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
	assert_int_equal(0, k_lookup(w, ROOT, "b", &id));
}

static void an_open_file_goes_along_with_its_name(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text"), d, now;
	struct k_file f, g;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(0, k_open(w, id, O_RDONLY, &f));
	assert_int_equal(0, k_rename(w, ROOT, "a", d, "b", 0));
	k_expect(w, &f, "text");
	k_close(w, &f);
	k_until(w, k_published(w, "d/b"));
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "a", &now));
	assert_int_equal(0, k_lookup(w, d, "b", &now));
	assert_int_equal(0, k_open(w, now, O_RDONLY, &g));
	k_expect(w, &g, "text");
	k_close(w, &g);
}

static void an_empty_directory_is_renamed_with_its_nodeid(void **state)
{
	struct world *w = *state;
	uint64_t d, now;
	struct k_file f;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	assert_int_equal(0, k_rename(w, ROOT, "d", ROOT, "e", 0));
	assert_int_equal(0, k_lookup(w, ROOT, "e", &now));
	assert_int_equal(d, now);
	assert_int_equal(ENOENT, k_lookup(w, ROOT, "d", &now));
	assert_int_equal(0, k_create(w, d, "f", O_WRONLY, &f));
	k_write(w, &f, "text", 0);
	k_close(w, &f);
	k_until(w, k_published(w, "e/f"));
}

/* ---- listings ---- */

static uint64_t opendir_of(struct world *w, uint64_t nodeid)
{
	struct fuse_open_in in = { 0 };
	const struct k_reply *r = k_wait(
		w, k_send(w, FUSE_OPENDIR, nodeid, &in, sizeof(in), NULL,
			  NULL));

	assert_int_equal(0, r->err);
	return r->open.fh;
}

static void releasedir(struct world *w, uint64_t nodeid, uint64_t fh)
{
	struct fuse_release_in in = { .fh = fh };

	assert_int_equal(0, k_wait(w, k_send(w, FUSE_RELEASEDIR, nodeid, &in,
					     sizeof(in), NULL, NULL))->err);
}

/* Number of times that the name is listed in replies of `size` bytes. */
static unsigned int listed(struct world *w, uint64_t nodeid, uint64_t fh,
			   uint32_t size, const char *name)
{
	struct fuse_read_in in = { .fh = fh, .size = size };
	const struct fuse_dirent *d;
	const struct k_reply *r;
	unsigned int found = 0;
	size_t at;

	for (;;) {
		r = k_wait(w, k_send(w, FUSE_READDIR, nodeid, &in, sizeof(in),
				     NULL, NULL));
		assert_int_equal(0, r->err);
		if (r->len == 0)
			return found;
		for (at = 0; at < r->len; at += FUSE_DIRENT_SIZE(d)) {
			d = (const void *)(r->bytes + at);
			in.offset = d->off;
			if (!name || (strlen(name) == d->namelen &&
				      memcmp(d->name, name, d->namelen) == 0))
				found++;
		}
	}
}

static void a_listing_has_each_name_once(void **state)
{
	struct world *w = *state;
	uint64_t d, fh;
	struct k_file f;
	char name[16];
	int i;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "f%02d", i);
		assert_int_equal(0, k_create(w, d, name, O_WRONLY, &f));
		k_write(w, &f, "text", 0);
		k_close(w, &f);
	}
	assert_int_equal(0, k_unlink(w, d, "f07"));
	fh = opendir_of(w, d);
	for (i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "f%02d", i);
		assert_int_equal(i != 7, listed(w, d, fh, 128, name));
	}
	assert_int_equal(41, listed(w, d, fh, 4096, NULL)); /* ., .. */
	releasedir(w, d, fh);
}

/* The same with look-ups (READDIRPLUS), which the kernel counts: the number of
 * names. */
static unsigned int listed_and_looked_up(struct world *w, uint64_t nodeid,
					 uint64_t fh, uint32_t size)
{
	struct fuse_read_in in = { .fh = fh, .size = size };
	const struct fuse_direntplus *d;
	const struct k_reply *r;
	unsigned int found = 0;
	size_t at;

	for (;;) {
		r = k_wait(w, k_send(w, FUSE_READDIRPLUS, nodeid, &in,
				     sizeof(in), NULL, NULL));
		assert_int_equal(0, r->err);
		if (r->len == 0)
			return found;
		for (at = 0; at < r->len; at += FUSE_DIRENTPLUS_SIZE(d)) {
			d = (const void *)(r->bytes + at);
			in.offset = d->dirent.off;
			if (!d->entry_out.nodeid)
				continue; /* ., .. */
			w->k.inodes[d->entry_out.nodeid].nlookup++;
			found++;
		}
	}
}

static void forget_everything_in(struct world *w, uint64_t dir)
{
	uint64_t id;

	for (id = 2; id < K_INODES; id++)
		if (id != dir && w->k.inodes[id].nlookup)
			k_forget(w, id, w->k.inodes[id].nlookup);
}

static void names_that_a_reply_has_no_room_for_are_not_looked_up(void **state)
{
	struct world *w = *state;
	struct k_file f;
	char name[16];
	uint64_t d, fh;
	int64_t before;
	int i;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	before = inodes(w);
	for (i = 0; i < 10; i++) {
		snprintf(name, sizeof(name), "f%02d", i);
		assert_int_equal(0, k_create(w, d, name, O_WRONLY, &f));
		k_close(w, &f);
	}
	forget_everything_in(w, d);
	k_until(w, inodes(w) == before);
	fh = opendir_of(w, d);
	assert_int_equal(10, listed_and_looked_up(w, d, fh, 512));
	assert_true(inodes(w) > before);
	forget_everything_in(w, d);
	k_until(w, inodes(w) == before);
	releasedir(w, d, fh);
}

static void a_listing_of_what_is_removed_ends(void **state)
{
	struct world *w = *state;
	uint64_t d, fh;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	fh = opendir_of(w, d);
	assert_int_equal(0, k_rmdir(w, ROOT, "d"));
	assert_int_equal(0, listed(w, d, fh, 4096, "f"));
	releasedir(w, d, fh);
}

static void a_listing_of_what_is_renamed_ends(void **state)
{
	struct world *w = *state;
	uint64_t d, fh, again;

	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	fh = opendir_of(w, d);
	assert_int_equal(0, k_rename(w, ROOT, "d", ROOT, "e", 0));
	assert_int_equal(0, listed(w, d, fh, 4096, NULL));
	releasedir(w, d, fh);
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &again));
	fh = opendir_of(w, d);
	assert_int_equal(2, listed(w, d, fh, 4096, NULL));
	releasedir(w, d, fh);
}

/* ---- names that are not shown ---- */

#define HIDDEN 20000u
#define SLICES 5u /* of 4096 names each, after the first 256 */

static void add_file(struct world *w, uint64_t dir, const char *name)
{
	struct k_file f;

	assert_int_equal(0, k_create(w, dir, name, O_WRONLY, &f));
	k_close(w, &f);
}

static void listings_do_not_continue(uv_timer_t *t)
{
	(void)t;
}

/* The directory "d" with "first", many hidden names, and "last". Only
 * fs_listings_run continues its listings. */
static uint64_t hide_many(struct world *w)
{
	struct pool_tree *t = pool_node_tree(w->m[0].node);
	char name[16];
	uint64_t d;

	w->fs->on_waiting = listings_do_not_continue;
	assert_int_equal(0, k_mkdir(w, ROOT, "d", &d));
	add_file(w, d, "first");
	for (unsigned int i = 0; i < HIDDEN; i++)
		assert_non_null(pool_tree_add(
			t, node_dir_tree(fs_dir_of(w->fs, d)), name,
			(size_t)snprintf(name, sizeof(name), "%u", i), false));
	add_file(w, d, "last");
	return d;
}

static void unhide(struct world *w)
{
	struct pool_tree *t = pool_node_tree(w->m[0].node);
	char path[16];

	for (unsigned int i = 0; i < HIDDEN; i++)
		pool_tree_remove(t, pool_tree_lookup(
			t, path, (size_t)snprintf(path, sizeof(path), "d/%u",
						  i)));
}

static uint64_t readdir_at(struct world *w, uint64_t d, uint64_t fh, off_t off)
{
	struct fuse_read_in in = { .fh = fh, .size = 4096,
				   .offset = (uint64_t)off };

	return k_send(w, FUSE_READDIR, d, &in, sizeof(in), NULL, NULL);
}

/* The n-th name of a reply, which has n names; returns the offset after it. */
static off_t last_of(const struct k_reply *r, unsigned int n, const char *name)
{
	const struct fuse_dirent *d = NULL;
	size_t at;

	assert_int_equal(0, r->err);
	for (at = 0; at < r->len; at += FUSE_DIRENT_SIZE(d), n--)
		d = (const void *)(r->bytes + at);
	assert_int_equal(0, n);
	assert_memory_equal(name, d->name, strlen(name));
	return (off_t)d->off;
}

static void many_hidden_names_are_walked_over_in_slices(void **state)
{
	struct world *w = *state;
	uint64_t d = hide_many(w), fh = opendir_of(w, d), asked;
	unsigned int slices = 0;
	off_t off;

	/* The reply is sent with the names found before the hidden ones. */
	off = last_of(k_wait(w, readdir_at(w, d, fh, 0)), 3, "first");
	asked = readdir_at(w, d, fh, off);
	k_until(w, w->fs->ndeferred[FS_DEFERRED_LISTING] == 1 ||
			   k_answered(w, asked));
	assert_false(k_answered(w, asked));
	assert_non_null(fs_busy(w->fs));
	for (; w->fs->ndeferred[FS_DEFERRED_LISTING]; slices++)
		fs_listings_run(w->fs);
	assert_int_equal(SLICES, slices);
	off = last_of(k_wait(w, asked), 1, "last");
	assert_int_equal(0, k_wait(w, readdir_at(w, d, fh, off))->len);
	assert_int_equal(1, pool_counter_value(&w->fs->listing_waits));
	releasedir(w, d, fh);
	unhide(w);
}

static void waiting_listings_share_the_slices(void **state)
{
	enum { N = 8 };
	struct world *w = *state;
	uint64_t d = hide_many(w), fh[N], asked[N];
	unsigned int slices = 0, i;
	off_t off;

	for (i = 0; i < N; i++) {
		fh[i] = opendir_of(w, d);
		off = last_of(k_wait(w, readdir_at(w, d, fh[i], 0)), 3,
			      "first");
		asked[i] = readdir_at(w, d, fh[i], off);
	}
	k_until(w, w->fs->ndeferred[FS_DEFERRED_LISTING] == N);
	for (; w->fs->ndeferred[FS_DEFERRED_LISTING]; slices++)
		fs_listings_run(w->fs);
	assert_true(slices >= N * (SLICES - 1));
	assert_true(slices <= N * SLICES);
	for (i = 0; i < N; i++) {
		last_of(k_wait(w, asked[i]), 1, "last");
		releasedir(w, d, fh[i]);
	}
	unhide(w);
}

static void a_waiting_listing_ends_with_its_directory_or_the_mount(void **state)
{
	struct world *w = *state;
	uint64_t d = hide_many(w), fh = opendir_of(w, d), asked;
	off_t off = last_of(k_wait(w, readdir_at(w, d, fh, 0)), 3, "first");

	asked = readdir_at(w, d, fh, off);
	k_until(w, w->fs->ndeferred[FS_DEFERRED_LISTING] == 1);
	fs_listings_fini(w->fs);
	assert_int_equal(EIO, k_wait(w, asked)->err);

	asked = readdir_at(w, d, fh, off);
	k_until(w, w->fs->ndeferred[FS_DEFERRED_LISTING] == 1);
	unhide(w);
	assert_int_equal(0, k_unlink(w, d, "first"));
	assert_int_equal(0, k_unlink(w, d, "last"));
	assert_int_equal(0, k_rmdir(w, ROOT, "d"));
	fs_listings_run(w->fs);
	assert_int_equal(0, k_wait(w, asked)->err);
	assert_int_equal(0, k_wait(w, asked)->len);
	releasedir(w, d, fh);
}

/* ---- /.kvpool ---- */

static void status_files_that_others_may_not_open_are_counted(void **state)
{
	struct world *w = *state;
	struct k_file f[FS_TEXTS_MAX + 1], refused;
	uint64_t dir, file;
	unsigned int i;

	assert_int_equal(0, k_lookup(w, ROOT, FS_PROC_NAME, &dir));
	assert_int_equal(0, k_lookup(w, dir, "metrics", &file));
	w->k.uid = w->k.gid = 1000;
	for (i = 0; i < FS_TEXTS_MAX; i++)
		assert_int_equal(0, k_open(w, file, O_RDONLY, &f[i]));
	assert_int_equal(0, pool_counter_value(&w->fs->texts_refused));
	assert_int_equal(EMFILE, k_open(w, file, O_RDONLY, &refused));
	assert_int_equal(EMFILE, k_open(w, file, O_RDONLY, &refused));
	assert_int_equal(2, pool_counter_value(&w->fs->texts_refused));
	w->k.uid = w->k.gid = 0;
	assert_int_equal(0, k_open(w, file, O_RDONLY, &f[i]));
	assert_int_equal(2, pool_counter_value(&w->fs->texts_refused));
	for (i = 0; i <= FS_TEXTS_MAX; i++)
		k_close(w, &f[i]);
	w->k.inodes[dir].nlookup = w->k.inodes[file].nlookup = 0;
}

static void the_pools_own_directory_is_there_and_is_read(void **state)
{
	struct world *w = *state;
	uint64_t dir, file, fh;
	struct k_file f;
	char buf[4096];

	assert_int_equal(0, k_lookup(w, ROOT, FS_PROC_NAME, &dir));
	assert_int_equal(FS_PROC_DIR, dir);
	fh = opendir_of(w, dir);
	assert_int_equal(1, listed(w, dir, fh, 4096, "metrics"));
	releasedir(w, dir, fh);
	assert_int_equal(0, k_lookup(w, dir, "metrics", &file));
	assert_int_equal(0, k_open(w, file, O_RDONLY, &f));
	assert_true(k_read(w, &f, buf, sizeof(buf)) > 100);
	k_close(w, &f);
	assert_int_equal(EPERM, k_unlink(w, dir, "metrics"));
	/* fs does not count look-ups of its virtual files, so forget them here,
	 * too. */
	w->k.inodes[dir].nlookup = w->k.inodes[file].nlookup = 0;
}

/* ---- fsync of a directory ---- */

static void fsync_of_a_directory_waits_until_all_know(void **state)
{
	struct world *w = *state;
	struct pool_entry *e;
	struct k_file f;

	k_start_other(w);
	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "text", 0);
	k_close(w, &f);
	assert_int_equal(0, k_fsyncdir(w, ROOT));
	assert_true(k_published(w, "a"));
	e = pool_tree_lookup(pool_node_tree(w->m[1].node), "a", 1);
	assert_non_null(e);
	assert_true(pool_node_version(node_file(e)).gen > 0);
	assert_int_equal(0, k_unlink(w, ROOT, "a"));
	assert_int_equal(0, k_fsyncdir(w, ROOT));
	e = pool_tree_lookup(pool_node_tree(w->m[1].node), "a", 1);
	assert_true(!e || !pool_node_visible(e));
}

static void fsync_of_a_directory_is_interrupted(void **state)
{
	struct world *w = *state;
	struct fuse_fsync_in in = { 0 };
	struct k_file f;
	uint64_t unique;

	assert_int_equal(0, k_create(w, ROOT, "a", O_WRONLY, &f));
	k_write(w, &f, "text", 0);
	k_close(w, &f);
	unique = k_send(w, FUSE_FSYNCDIR, ROOT, &in, sizeof(in), NULL, NULL);
	k_interrupt(w, unique);
	assert_int_equal(EINTR, k_wait(w, unique)->err);
	k_until(w, k_published(w, "a"));
}

/* ---- attributes ---- */

static int setmode(struct world *w, uint64_t nodeid, uint32_t mode)
{
	struct fuse_setattr_in in = { .valid = FATTR_MODE, .mode = mode };

	return k_wait(w, k_send(w, FUSE_SETATTR, nodeid, &in, sizeof(in), NULL,
				NULL))->err;
}

static void attributes_are_kept_and_privilege_bits_are_not(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct fuse_attr a;

	assert_int_equal(EPERM, setmode(w, id, S_IFREG | 06640));
	assert_int_equal(EPERM, setmode(w, id, S_IFREG | 02640));
	assert_int_equal(0, setmode(w, id, S_IFREG | 0640));
	assert_int_equal(0, k_getattr(w, id, &a));
	assert_int_equal(S_IFREG | 0640, a.mode);
	assert_int_equal(4, a.size);
}

static void attributes_of_a_replaced_file_are_its_own(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	struct k_file reader, f;
	struct fuse_attr a;

	assert_int_equal(0, k_open(w, id, O_RDONLY, &reader));
	assert_int_equal(0, k_create(w, ROOT, "b.tmp", O_WRONLY, &f));
	k_write(w, &f, "longer text", 0);
	k_close(w, &f);
	assert_int_equal(0, k_rename(w, ROOT, "b.tmp", ROOT, "a", 0));
	assert_int_equal(0, k_getattr(w, id, &a));
	assert_int_equal(4, a.size);
	k_close(w, &reader);
}

/* ---- directories that somebody has locked ---- */

static void on_synced(struct node_barrier *b, int status)
{
	(void)b;
	synced = status;
}

/* An fsync of a directory on the other node; 0 or -errno. */
static int sync_elsewhere(struct world *w)
{
	struct node_barrier b;

	synced = 1;
	assert_int_equal(0, pool_node_barrier_start(w->m[1].node, &b,
						    on_synced));
	k_until(w, synced <= 0);
	return synced;
}

/* The kernel looks up a missing name, which another node then publishes. */
static void appears(struct world *w, const char *name, const char *text)
{
	uint64_t id;

	assert_int_equal(ENOENT, k_lookup(w, ROOT, name, &id));
	k_publish_elsewhere(w, name, text);
}

/* While a user holds a directory's lock, the kernel takes no notification for
 * it. Names are still invalidated, by an epoch. */
static void names_show_although_the_kernel_takes_no_notification(void **state)
{
	struct world *w = *state;
	unsigned int epochs;

	k_start_other(w);
	k_lock(w, true);
	appears(w, "a", "text");
	k_until(w, k_waiting(w));
	appears(w, "b", "text");
	assert_int_equal(0, sync_elsewhere(w));
	epochs = k_epochs(w);
	assert_true(epochs > 0);
	assert_int_equal(0, k_noted(w, ROOT, "b"));
	/* Also for later names, while the lock is still held. */
	appears(w, "c", "text");
	assert_int_equal(0, sync_elsewhere(w));
	assert_true(k_epochs(w) > epochs);
	k_lock(w, false);
	k_until(w, k_noted(w, ROOT, "a") > 0);
	appears(w, "d", "text");
	assert_int_equal(0, sync_elsewhere(w));
}

/* k_teardown checks that the mount ends. */
static void a_lock_that_is_held_does_not_keep_the_mount_from_ending(
	void **state)
{
	struct world *w = *state;

	k_start_other(w);
	k_lock(w, true);
	appears(w, "a", "text");
	k_until(w, k_waiting(w));
}

static int64_t ctime_of(struct world *w, uint64_t nodeid)
{
	struct fuse_attr a;

	assert_int_equal(0, k_getattr(w, nodeid, &a));
	return (int64_t)a.ctime * 1000000000 + a.ctimensec;
}

/* The kernel changes the file by the nodeid by which it was written, before it
 * looks the name up again. */
static void a_change_by_the_nodeid_before_shows_in_the_next(void **state)
{
	struct world *w = *state;
	uint64_t written_by, id;
	struct k_file f;
	int64_t before;
	char name[2] = "a";

	for (; *name < 'c'; name[0]++) {
		assert_int_equal(0, k_create(w, ROOT, name, O_WRONLY, &f));
		written_by = f.nodeid;
		k_write(w, &f, "text", 0);
		k_close(w, &f);
		/* b's ctime was changed while its mtime stayed */
		if (*name == 'b')
			assert_int_equal(0, setmode(w, written_by,
						    S_IFREG | 0640));
		k_until(w, k_published(w, name));
		before = ctime_of(w, written_by);
		assert_int_equal(0, setmode(w, written_by, S_IFREG | 0600));
		assert_int_equal(0, k_lookup(w, ROOT, name, &id));
		assert_true(ctime_of(w, id) > before);
	}
}

static void what_the_kernel_forgot_has_its_ctime_later(void **state)
{
	struct world *w = *state;
	uint64_t id = k_publish(w, "a", "text");
	int64_t changed;

	for (int round = 0; round < 2; round++) {
		assert_int_equal(0, setmode(w, id, S_IFREG | 0600));
		changed = ctime_of(w, id);
		k_forget(w, id, w->k.inodes[id].nlookup);
		assert_int_equal(0, k_lookup(w, ROOT, "a", &id));
		assert_int_equal(changed, ctime_of(w, id));
	}
}

static void space_is_that_of_the_pool(void **state)
{
	struct world *w = *state;
	const struct k_reply *r =
		k_wait(w, k_send(w, FUSE_STATFS, ROOT, NULL, 0, NULL, NULL));
	const struct fuse_statfs_out *st = (const void *)r->bytes;

	assert_int_equal(0, r->err);
	assert_int_equal(4096, st->st.bsize);
	assert_int_equal(4096, st->st.frsize);
	assert_int_equal(w->opts.store_size / 4096, st->st.blocks);
	assert_true(st->st.bavail > st->st.blocks / 2);
	assert_int_equal(POOL_NAME_MAX, st->st.namelen);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		both(look_ups_are_counted_until_they_are_forgotten),
		both(a_refused_unlink_changes_nothing),
		both(a_new_name_changes_its_directorys_time),
		both(several_are_forgotten_at_once),
		both(an_open_file_outlives_that_it_is_forgotten),
		both(names_that_cannot_be_are_refused),
		both(only_regular_files_and_directories_are_made),
		both(the_wrong_kind_of_name_is_refused),
		both(renames_that_cannot_be_change_nothing),
		both(an_open_file_goes_along_with_its_name),
		both(an_empty_directory_is_renamed_with_its_nodeid),
		both(a_listing_has_each_name_once),
		both(names_that_a_reply_has_no_room_for_are_not_looked_up),
		both(a_listing_of_what_is_removed_ends),
		both(a_listing_of_what_is_renamed_ends),
		both(many_hidden_names_are_walked_over_in_slices),
		both(waiting_listings_share_the_slices),
		both(a_waiting_listing_ends_with_its_directory_or_the_mount),
		both(status_files_that_others_may_not_open_are_counted),
		both(the_pools_own_directory_is_there_and_is_read),
		both(fsync_of_a_directory_waits_until_all_know),
		both(fsync_of_a_directory_is_interrupted),
		both(attributes_are_kept_and_privilege_bits_are_not),
		both(attributes_of_a_replaced_file_are_its_own),
		both(a_change_by_the_nodeid_before_shows_in_the_next),
		both(what_the_kernel_forgot_has_its_ctime_later),
		both(space_is_that_of_the_pool),
		both(names_show_although_the_kernel_takes_no_notification),
		both(a_lock_that_is_held_does_not_keep_the_mount_from_ending),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
