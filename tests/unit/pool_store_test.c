/*
 * The store, on real files under /tmp. Tests that need a tmpfs of the store's
 * own are skipped where none may be mounted.
 */
#include "tests/lib/unit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)

struct found {
	uint64_t id, size;
	size_t len;
	char blob[64];
};

struct fixture {
	char *top; /* owns */
	char dir[96];
	uv_loop_t loop;
	struct pool_store *store;
	struct found found[64];
	unsigned int nfound;
	int refuse; /* result of on_found */
	int nfds; /* descriptors open before the test */
};

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;

	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	alarm(60);
	f->nfds = count_fds();
	f->top = unit_dir_make("/tmp/pool_store_test");
	snprintf(f->dir, sizeof(f->dir), "%s/a/store", f->top);
	assert_int_equal(uv_loop_init(&f->loop), 0);
	*state = f;
	return 0;
}

static void on_closed(void *arg)
{
	*(bool *)arg = true;
}

static void close_store(struct fixture *f, bool unmount)
{
	bool closed = false;

	pool_store_close(f->store, unmount, on_closed, &closed);
	assert_false(closed); /* called in a later turn */
	unit_run_until(&f->loop, closed);
	f->store = NULL;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	if (f->store != NULL)
		close_store(f, true);
	while (umount2(f->dir, MNT_DETACH) == 0)
		;
	assert_int_equal(uv_loop_close(&f->loop), 0);
	assert_int_equal(count_fds(), f->nfds);
	unit_dir_remove(f->top);
	free(f);
	pool_clock_set(NULL);
	alarm(0);
	return 0;
}

static int on_found(void *arg, uint64_t id, uint64_t size, const void *blob,
		    size_t len)
{
	struct fixture *f = arg;
	struct found *e = &f->found[f->nfound++];

	assert_true(f->nfound <= 64);
	e->id = id;
	e->size = size;
	e->len = len;
	if (len < sizeof(e->blob)) {
		memcpy(e->blob, blob, len);
		e->blob[len] = '\0';
	}
	return f->refuse;
}

static int try_open(struct fixture *f, uint64_t size, struct pool_store **ret)
{
	struct pool_store_opts o = { .loop = &f->loop, .dir = f->dir,
				     .size = size };

	f->nfound = 0;
	return pool_store_open(&o, on_found, f, ret);
}

static struct pool_store *open_store(struct fixture *f, uint64_t size)
{
	assert_int_equal(try_open(f, size, &f->store), 0);
	return f->store;
}

static struct pool_store *reopen(struct fixture *f, uint64_t size)
{
	close_store(f, false);
	return open_store(f, size);
}

/* A store on a tmpfs of its own, or skips. */
static struct pool_store *open_tmpfs(struct fixture *f, uint64_t size)
{
	struct pool_store *s = open_store(f, size);

	if (!s->own) {
		print_message("SKIPPED: no tmpfs may be mounted here\n");
		skip();
	}
	return s;
}

/* A store in a directory that shares its filesystem. */
static struct pool_store *open_plain(struct fixture *f, uint64_t size)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/a", f->top);
	assert_int_equal(mkdir(path, 0755), 0);
	assert_int_equal(mkdir(f->dir, 0755), 0);
	snprintf(path, sizeof(path), "%s/notes.txt", f->dir);
	fd = open(path, O_WRONLY | O_CREAT, 0600);
	assert_true(fd >= 0);
	close(fd);
	open_store(f, size);
	assert_false(f->store->own);
	return f->store;
}

#define run_until(f, cond) unit_turn_until(&(f)->loop, cond)

/* In real time, whatever clock the store uses. */
static void run_ms(struct fixture *f, unsigned int ms)
{
	uint64_t end = uv_hrtime() + ms * 1000000ull;

	run_until(f, uv_hrtime() >= end);
}

static void fill(int fd, size_t n, unsigned char seed)
{
	unsigned char *buf = malloc(n);

	for (size_t i = 0; i < n; i++)
		buf[i] = (unsigned char)(seed + i * 31 + (i >> 8));
	assert_int_equal(pwrite(fd, buf, n, 0), n);
	free(buf);
}

/* ---- starting the asynchronous ones and waiting for them ---- */

struct sealing {
	struct pool_seal seal;
	const char *text;
	int refuse;
	bool done;
};

static ptrdiff_t seal_blob(struct pool_seal *seal, void *buf, size_t cap)
{
	struct sealing *x = pool_container_of(seal, struct sealing, seal);

	if (x->refuse != 0)
		return x->refuse;
	if (strlen(x->text) > cap)
		return -E2BIG;
	memcpy(buf, x->text, strlen(x->text));
	return (ptrdiff_t)strlen(x->text);
}

static void seal_cb(struct pool_seal *seal, int status)
{
	assert_int_equal(status, seal->status);
	pool_container_of(seal, struct sealing, seal)->done = true;
}

static int seal(struct fixture *f, struct sealing *x, uint64_t id,
		const char *text)
{
	x->seal.id = id;
	x->seal.blob = seal_blob;
	x->text = text;
	x->done = false;
	pool_seal_start(f->store, &x->seal, seal_cb);
	assert_false(x->done);
	run_until(f, x->done);
	return x->seal.status;
}

/* A sealed file of n bytes. */
static uint64_t put(struct fixture *f, size_t n, const char *text)
{
	struct sealing x = { .refuse = 0 };
	struct pool_file file;

	assert_int_equal(pool_store_take(f->store, 0, &file), 0);
	fill(file.fd, n, 1);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, text), 0);
	assert_int_equal(x.seal.size, n);
	return file.id;
}

static bool exists(struct fixture *f, uint64_t id)
{
	int fd = pool_store_fd(f->store, id, O_PATH);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static void path_of(struct fixture *f, uint64_t id, char *out)
{
	store_path(f->store, id, out);
}

static uint64_t used(struct fixture *f)
{
	struct pool_space sp;

	pool_store_space(f->store, &sp);
	return sp.used;
}

/* ---- opening ---- */

static bool is_mounted(struct fixture *f)
{
	struct stat dir, up;

	return stat(f->dir, &dir) == 0 && stat(f->top, &up) == 0 &&
	       dir.st_dev != up.st_dev;
}

static void opening_makes_the_directory_and_keeps_its_identity(void **state)
{
	struct fixture *f = *state;
	uint8_t id[16], zero[16] = { 0 };
	struct stat st;

	memcpy(id, pool_store_id(open_store(f, 64 * MIB)), 16);
	assert_memory_not_equal(id, zero, 16);
	assert_int_equal(stat(f->dir, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0700);
	assert_memory_equal(pool_store_id(reopen(f, 64 * MIB)), id, 16);
}

static void a_second_user_of_the_directory_is_refused(void **state)
{
	struct fixture *f = *state;
	struct pool_store *other = NULL;

	open_store(f, 64 * MIB);
	assert_int_equal(try_open(f, 64 * MIB, &other), -EBUSY);
	assert_null(other);
	assert_true(put(f, 100, "still usable") != 0);
}

static void a_size_beyond_memory_is_refused_and_nothing_is_mounted(void **state)
{
	struct fixture *f = *state;

	assert_int_equal(try_open(f, 1ull << 50, &f->store), -EDOM);
	assert_int_equal(try_open(f, UINT64_MAX, &f->store), -EDOM);
	assert_null(f->store);
	assert_false(is_mounted(f));
}

static void
headroom_is_a_sixteenth_at_least_64_mib_and_a_fourth_of_small_stores(
	void **state)
{
	(void)state;
	assert_int_equal(store_headroom(1 * MIB), 16 * MIB);
	assert_int_equal(store_headroom(128 * MIB), 32 * MIB);
	assert_int_equal(store_headroom(512 * MIB), 64 * MIB);
	assert_int_equal(store_headroom(1024 * MIB), 64 * MIB);
	assert_int_equal(store_headroom(4096 * MIB), 256 * MIB);
	assert_int_equal(store_headroom(1ull << 40), 1024 * MIB);
	assert_int_equal(store_allowed(64 * MIB), 0);
	assert_int_equal(store_allowed(1000 * MIB), 936 * MIB);
	assert_int_equal(store_allowed(20480 * MIB), 19456 * MIB);
}

static void a_directory_that_holds_others_files_keeps_them(void **state)
{
	struct fixture *f = *state;
	char path[128];

	open_plain(f, 64 * MIB);
	reopen(f, 64 * MIB);
	snprintf(path, sizeof(path), "%s/notes.txt", f->dir);
	assert_int_equal(access(path, F_OK), 0);
}

static void
a_directory_with_names_like_ours_but_no_store_is_refused(void **state)
{
	struct fixture *f = *state;
	char path[160];

	open_plain(f, 64 * MIB);
	close_store(f, false);
	snprintf(path, sizeof(path), "%s/" STORE_ID_FILE, f->dir);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/0123456789abcdef", f->dir);
	assert_int_equal(close(open(path, O_CREAT | O_WRONLY, 0600)), 0);
	assert_int_equal(try_open(f, 64 * MIB, &f->store), -ENOTEMPTY);
	assert_int_equal(access(path, F_OK), 0);
}

static void a_damaged_identity_is_refused(void **state)
{
	struct fixture *f = *state;
	char path[160];

	open_plain(f, 64 * MIB);
	close_store(f, false);
	snprintf(path, sizeof(path), "%s/" STORE_ID_FILE, f->dir);
	assert_int_equal(truncate(path, 20), 0);
	assert_int_equal(try_open(f, 64 * MIB, &f->store), -EBADMSG);
}

/* ---- what is found at start ---- */

static void sealed_files_are_found_again_oldest_first(void **state)
{
	struct fixture *f = *state;
	uint64_t id[3];

	open_store(f, 64 * MIB);
	id[0] = put(f, 5000, "first");
	id[1] = put(f, 0, "empty");
	id[2] = put(f, 3 * MIB, "");
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 3);
	for (int i = 0; i < 3; i++)
		assert_int_equal(f->found[i].id, id[i]);
	assert_string_equal(f->found[0].blob, "first");
	assert_int_equal(f->found[0].size, 5000);
	assert_string_equal(f->found[1].blob, "empty");
	assert_int_equal(f->found[1].size, 0);
	assert_int_equal(f->found[2].len, 0);
	assert_int_equal(f->found[2].size, 3 * MIB);
}

static void files_that_were_never_sealed_are_removed_at_start(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	uint64_t kept;

	open_store(f, 64 * MIB);
	kept = put(f, 100, "kept");
	assert_int_equal(pool_store_take(f->store, 0, &file), 0);
	fill(file.fd, 100, 2);
	close(file.fd);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_true(exists(f, kept));
	assert_false(exists(f, file.id));
	assert_int_equal(pool_counter_value(&f->store->n.gone_unsealed), 1);
}

static bool kept_aside(struct fixture *f, uint64_t id)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/bad-%016llx", f->store->path,
		 (unsigned long long)id);
	return access(path, F_OK) == 0;
}

static void truncated_and_damaged_files_are_kept_aside_and_counted(void **state)
{
	struct fixture *f = *state;
	uint64_t cut, grown, bad, kept;
	unsigned char raw[STORE_XATTR_MAX];
	char path[PATH_MAX];
	ssize_t n;

	open_store(f, 64 * MIB);
	cut = put(f, 10000, "cut");
	grown = put(f, 10000, "grown");
	bad = put(f, 10000, "bad");
	kept = put(f, 10000, "kept");
	path_of(f, cut, path);
	assert_int_equal(truncate(path, 9999), 0);
	path_of(f, grown, path);
	assert_int_equal(truncate(path, 10001), 0);
	path_of(f, bad, path);
	n = lgetxattr(path, f->store->xattr, raw, sizeof(raw));
	assert_true(n > 0);
	raw[n - 1] ^= 1;
	assert_int_equal(lsetxattr(path, f->store->xattr, raw, (size_t)n, 0),
			 0);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_int_equal(f->found[0].id, kept);
	assert_false(exists(f, cut) || exists(f, grown) || exists(f, bad));
	assert_true(kept_aside(f, cut) && kept_aside(f, grown) &&
		    kept_aside(f, bad));
	assert_int_equal(pool_counter_value(&f->store->n.quarantined), 3);
	/* Files in quarantine stay at the next start. */
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_true(kept_aside(f, cut));
	assert_int_equal(3, f->store->nbad);
	assert_int_equal(pool_counter_value(&f->store->n.quarantined), 0);
}

/* Its owner could change it after it was verified. */
static void a_file_that_another_user_owns_is_kept_aside(void **state)
{
	struct fixture *f = *state;
	char path[PATH_MAX];
	uint64_t theirs, kept;

	if (getuid() != 0) {
		print_message("skipped: needs root, to be another user\n");
		skip();
	}
	open_store(f, 64 * MIB);
	theirs = put(f, 10000, "theirs");
	kept = put(f, 10000, "kept");
	path_of(f, theirs, path);
	assert_int_equal(lchown(path, 65534, 65534), 0);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_int_equal(f->found[0].id, kept);
	assert_true(kept_aside(f, theirs));
}

/* A file that lost its metadata differs from one that never had any. */
static void files_that_lost_their_metadata_are_kept_aside(void **state)
{
	struct fixture *f = *state;
	uint64_t lost, cached, again;
	struct sealing x = { 0 };
	char path[PATH_MAX];

	open_store(f, 64 * MIB);
	lost = put(f, 10000, "lost");
	cached = put(f, 10000, "cached");
	again = put(f, 10000, "again");
	path_of(f, lost, path);
	assert_int_equal(0, lremovexattr(path, f->store->xattr));
	assert_int_equal(0, pool_store_detach(f->store, cached));
	assert_int_equal(0, pool_store_detach(f->store, again));
	assert_int_equal(0, seal(f, &x, again, "again"));
	reopen(f, 64 * MIB);
	assert_int_equal(1, f->nfound);
	assert_int_equal(again, f->found[0].id);
	assert_true(!exists(f, lost) && kept_aside(f, lost));
	assert_int_equal(1, pool_counter_value(&f->store->n.quarantined));
	assert_false(exists(f, cached) || kept_aside(f, cached));
	assert_int_equal(1, pool_counter_value(&f->store->n.gone_unsealed));
}

static void only_a_few_damaged_files_are_kept_aside(void **state)
{
	struct fixture *f = *state;
	uint64_t ids[POOL_BAD_FILES + 2];
	unsigned int i;

	open_store(f, 64 * MIB);
	for (i = 0; i < POOL_BAD_FILES + 2; i++)
		ids[i] = put(f, 100, "x");
	f->refuse = -EBADMSG;
	reopen(f, 64 * MIB);
	assert_true(kept_aside(f, ids[POOL_BAD_FILES - 1]));
	for (; i > POOL_BAD_FILES; i--)
		assert_false(kept_aside(f, ids[i - 1]) ||
			     exists(f, ids[i - 1]));
	assert_int_equal(POOL_BAD_FILES, f->store->nbad);
	assert_int_equal(2, pool_counter_value(&f->store->n.quarantine_full));
}

static void a_damaged_file_that_is_large_is_not_kept_aside(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	open_store(f, 64 * MIB);
	id = put(f, MIB + 1, "large");
	pool_store_quarantine(f->store, id, "by the test");
	assert_false(exists(f, id) || kept_aside(f, id));
	id = put(f, MIB - 4096, "less");
	pool_store_quarantine(f->store, id, "by the test");
	assert_true(!exists(f, id) && kept_aside(f, id));
}

static void damaged_files_take_a_share_of_the_store_together(void **state)
{
	struct fixture *f = *state;
	uint64_t id[3];
	int i;

	open_store(f, 64 * MIB);
	for (i = 0; i < 3; i++) {
		id[i] = put(f, 2 * MIB / 5, "of two fifths");
		pool_store_quarantine(f->store, id[i], "by the test");
	}
	assert_true(kept_aside(f, id[0]) && kept_aside(f, id[1]));
	assert_false(exists(f, id[2]) || kept_aside(f, id[2]));
}

/* Without memory a file cannot be judged, and none is removed. */
static void a_start_without_memory_fails_and_keeps_all(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s;
	uint64_t id;

	open_store(f, 64 * MIB);
	id = put(f, 100, "x");
	close_store(f, false);
	f->refuse = -ENOMEM;
	assert_int_equal(-ENOMEM, try_open(f, 64 * MIB, &s));
	f->refuse = 0;
	open_store(f, 64 * MIB);
	assert_int_equal(1, f->nfound);
	assert_true(exists(f, id));
}

static void a_file_that_the_owner_refuses_is_removed(void **state)
{
	struct fixture *f = *state;
	uint64_t id;

	open_store(f, 64 * MIB);
	id = put(f, 100, "x");
	f->refuse = -ESTALE;
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_false(exists(f, id));
}

static uint64_t slow_wall(void)
{
	return 1000;
}
static uint64_t real_now;
static uint64_t fixed_now(void)
{
	return real_now;
}
static void no_random(void *buf, size_t n)
{
	memset(buf, 7, n);
}

static void ids_do_not_repeat_although_all_is_removed_and_the_clock_is_reset(
	void **state)
{
	static const struct pool_clock back = { fixed_now, slow_wall,
						no_random };
	struct fixture *f = *state;
	uint64_t last = 0, id;

	open_store(f, 64 * MIB);
	for (int i = 0; i < 4; i++) {
		id = put(f, 10, "x");
		assert_true(id > last);
		last = id;
		pool_store_remove(f->store, id);
		pool_clock_set(&back);
		reopen(f, 64 * MIB);
		pool_clock_set(NULL);
	}
}

/* ---- ready files ---- */

static void a_plain_file_is_had_at_once_and_a_reserved_one_when_announced(
	void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	struct pool_file file;
	struct stat st;
	uint64_t before;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(file.reserved, 0);
	close(file.fd);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), -EAGAIN);
	run_ms(f, 20);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), -EAGAIN);
	pool_store_announce(s, 1 * MIB);
	run_until(f, s->ready.bytes > 0);
	before = used(f);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), 0);
	assert_int_equal(file.reserved, 1 * MIB);
	assert_int_equal(fstat(file.fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_true(st.st_blocks * 512 >= (int64_t)(1 * MIB));
	assert_int_equal(fcntl(file.fd, F_GETFL) & O_ACCMODE, O_RDWR);
	pool_store_drop_ready(s);
	before = used(f);
	fill(file.fd, 1 * MIB, 3);
	assert_true(used(f) <= before);
	close(file.fd);
}

static void ready_files_stay_within_two_percent(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 512 * MIB);
	struct pool_file file;

	pool_store_announce(s, 1 * MIB);
	pool_store_announce(s, 64 * KIB);
	run_until(f, s->ready.bytes >= 8 * MIB && s->ready.nfills == 0);
	while (pool_counter_value(&s->n.takes_ready) < 300) {
		if (pool_store_take(s, 64 * KIB, &file) == 0) {
			close(file.fd);
			pool_store_remove(s, file.id);
		}
		uv_run(&f->loop, UV_RUN_NOWAIT);
		assert_true(s->ready.bytes + s->ready.filling <=
			    512 * MIB / 50);
	}
}

static void one_large_file_is_kept_up_to_a_sixteenth_of_the_store(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);

	pool_store_announce(s, 4 * MIB + 4096);
	run_ms(f, 20);
	assert_int_equal(s->ready.nfiles, 0);
	pool_store_announce(s, 4 * MIB);
	run_until(f, s->ready.bytes > 0);
	run_ms(f, 20);
	assert_int_equal(s->ready.bytes, 4 * MIB);
}

static void a_larger_ready_file_serves_up_to_half_its_size(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	struct pool_file file;

	pool_store_announce(s, 1 * MIB);
	run_until(f, s->ready.nfills == 0);
	assert_int_equal(pool_store_take(s, 512 * KIB - 4096, &file), -EAGAIN);
	assert_int_equal(pool_store_take(s, 1 * MIB + 1, &file), -EAGAIN);
	assert_int_equal(pool_store_take(s, 512 * KIB, &file), 0);
	assert_int_equal(file.reserved, 1 * MIB);
	close(file.fd);
}

static void a_stream_of_takes_is_kept_supplied(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 512 * MIB);
	struct pool_file file;

	pool_store_announce(s, 128 * KIB);
	for (int i = 0; i < 1000; i++) {
		run_until(f, pool_store_take(s, 128 * KIB, &file) == 0);
		assert_int_equal(file.reserved, 128 * KIB);
		close(file.fd);
		pool_store_remove(s, file.id);
	}
	assert_true(pool_counter_value(&s->n.fills) >= 1000);
}

static void no_file_is_made_ready_out_of_what_must_stay_free(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);

	pool_store_set_keep_free(s, 64 * MIB);
	pool_store_announce(s, 1 * MIB);
	run_ms(f, 20);
	assert_int_equal(s->ready.nfiles, 0);
	assert_true(pool_counter_value(&s->n.fills_short) > 0);
	pool_store_set_keep_free(s, 32 * MIB);
	run_until(f, s->ready.nfiles == 1); /* without another announcement */
}

/* The store's clock stands still, so it does not refill a second later. */
static void stop_clock(void)
{
	static const struct pool_clock stopped = { fixed_now, slow_wall,
						   no_random };

	real_now = pool_now_ns();
	pool_clock_set(&stopped);
}

static void ready_files_are_given_up_when_space_is_short(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 512 * MIB);
	uint64_t before = used(f), bytes;

	pool_store_announce(s, 2 * MIB);
	run_until(f, s->ready.bytes >= 8 * MIB && s->ready.nfills == 0);
	bytes = s->ready.bytes;
	stop_clock();
	assert_int_equal(pool_store_drop_ready(s), bytes);
	assert_int_equal(s->ready.nfiles, 0);
	assert_in_range(used(f), 0, before);
	run_ms(f, 50);
	assert_int_equal(s->ready.nfiles, 0);
}

static void
fills_under_way_when_files_are_given_up_are_thrown_away(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 512 * MIB);

	stop_clock();
	pool_store_announce(s, 2 * MIB);
	assert_int_equal(s->ready.nfills, 1);
	assert_int_equal(pool_store_drop_ready(s), 0);
	run_until(f, s->ready.nfills == 0);
	assert_int_equal(s->ready.nfiles, 0);
	assert_int_equal(s->ready.bytes, 0);
	assert_in_range(used(f), 0, 64 * KIB);
}

static void a_size_that_nobody_takes_for_a_minute_is_forgotten(void **state)
{
	static const struct pool_clock fake = { fixed_now, slow_wall,
						no_random };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	struct pool_file file;

	real_now = pool_now_ns();
	pool_clock_set(&fake);
	pool_store_announce(s, 1 * MIB);
	pool_store_announce(s, 2 * MIB);
	run_until(f, s->ready.nfills == 0);
	real_now += 59000000000ull;
	store_ready_tick(s);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), 0);
	close(file.fd);
	real_now += 2000000000ull;
	store_ready_tick(s);
	run_until(f, s->ready.nfills == 0);
	assert_int_equal(pool_store_take(s, 2 * MIB, &file), -EAGAIN);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), 0);
	close(file.fd);
}

/* Each tick decides when the next one is due. */
static void the_store_ticks_only_while_something_is_due(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	uv_handle_t *tick = (uv_handle_t *)&s->tick_timer;
	struct pool_file file;

	run_until(f, !uv_is_active(tick)); /* nothing is kept ready */
	pool_store_announce(s, 1 * MIB);
	assert_true(uv_is_active(tick));
	/* until the size is forgotten */
	run_until(f, uv_timer_get_due_in(&s->tick_timer) >
			     STORE_READY_IDLE_MS / 2);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), 0);
	close(file.fd);
	assert_true(uv_timer_get_due_in(&s->tick_timer) <= STORE_READY_TICK_MS);
	run_until(f, uv_timer_get_due_in(&s->tick_timer) >
			     STORE_READY_IDLE_MS / 2);
	pool_store_drop_ready(s); /* to be filled again, later */
	assert_true(uv_timer_get_due_in(&s->tick_timer) <= STORE_READY_TICK_MS);
	run_until(f, s->ready.nfiles > 0 && s->ready.nfills == 0);
	assert_int_equal(pool_store_take(s, 1 * MIB, &file), 0);
	close(file.fd);
}

static void the_seventeenth_size_replaces_the_one_longest_unused(void **state)
{
	static const struct pool_clock fake = { fixed_now, slow_wall,
						no_random };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 512 * MIB);
	struct pool_file file;

	real_now = pool_now_ns();
	pool_clock_set(&fake);
	for (uint64_t i = 0; i < 17; i++) {
		real_now += 1000000;
		pool_store_announce(s, (i + 1) * 64 * KIB);
		run_until(f, s->ready.nfills == 0);
	}
	pool_store_drop_ready(s);
	assert_int_equal(s->ready.bytes, 0);
	for (int i = 0; i < STORE_READY_CLASSES; i++)
		assert_int_not_equal(s->ready.classes[i].size, 64 * KIB);
	assert_int_equal(pool_store_take(s, 64 * KIB, &file), -EAGAIN);
}

/* Whatever the fill achieved, its files do not count as being made any more. */
static void a_fill_that_fails_is_no_longer_under_way(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 512 * MIB);
	struct rlimit old, few;
	struct pool_file file;

	stop_clock(); /* no retry */
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = (struct rlimit){ (rlim_t)count_fds() + 1, old.rlim_max };
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
	pool_store_announce(s, 1 * MIB);
	assert_true(s->ready.filling > 0);
	run_until(f, s->ready.nfills == 0);
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
	assert_true(pool_counter_value(&s->n.fills_failed) > 0);
	assert_int_equal(s->ready.filling, 0);
	assert_int_equal(s->ready.nfiles * MIB, s->ready.bytes);
	assert_int_equal(pool_store_make(s, 2 * MIB, &file), 0);
	close(file.fd);
}

static void a_fill_that_finds_no_space_leaves_nothing(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 16 * MIB);
	struct pool_file file;
	uint64_t before;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(fallocate(file.fd, 0, 0, 16 * MIB - 64 * KIB), 0);
	before = used(f);
	assert_int_equal(store_reserve(s, file.fd, 17 * MIB), -ENOSPC);
	assert_int_equal(used(f), before);
	pool_store_announce(s, 1 * MIB);
	run_ms(f, 20);
	assert_int_equal(s->ready.nfiles, 0);
	assert_int_equal(used(f), before);
	close(file.fd);
}

/* ---- sealing ---- */

static void sealing_trims_checksums_and_attaches_the_metadata(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	struct sealing x = { .refuse = 0 };
	size_t n = 3 * MIB + 4097;
	unsigned char *copy = malloc(n);
	struct pool_file file;
	struct stat st;
	int fd;

	pool_store_announce(s, 4 * MIB);
	run_until(f, s->ready.nfiles > 0 && s->ready.nfills == 0);
	assert_int_equal(pool_store_take(s, 4 * MIB, &file), 0);
	fill(file.fd, n, 9);
	assert_int_equal(pread(file.fd, copy, n, 0), n);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, "meta"), 0);
	assert_int_equal(x.seal.size, n);
	assert_true(XXH128_isEqual(x.seal.sum, XXH3_128bits(copy, n)));
	free(copy);
	fd = pool_store_fd(s, file.id, O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	assert_int_equal(st.st_blocks * 512, 3 * MIB + 8192);
	if (strncmp(s->xattr, "trusted.", 8) == 0)
		assert_int_equal(st.st_mode & 0777, 0400);
	reopen(f, 256 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_string_equal(f->found[0].blob, "meta");
}

static void sums_are_the_same_for_every_size_and_way_of_reading(void **state)
{
	static const size_t sizes[] = { 0, 1, 4095, 131072, 131073, 2097152,
					2097153, 5000000 };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	unsigned char *buf = malloc(5000000);
	struct pool_file file;
	XXH128_hash_t a, b;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	fill(file.fd, 5000000, 4);
	assert_int_equal(pread(file.fd, buf, 5000000, 0), 5000000);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		assert_int_equal(store_sum(file.fd, sizes[i], false, NULL,
						 &a), 0);
		assert_int_equal(store_sum(file.fd, sizes[i], true, NULL,
						 &b), 0);
		assert_true(XXH128_isEqual(a, b));
		assert_true(XXH128_isEqual(a, XXH3_128bits(buf, sizes[i])));
	}
	assert_int_equal(store_sum(file.fd, 5000001, false, NULL, &a),
			 -EBADMSG);
	free(buf);
	close(file.fd);
}

static void a_seal_that_takes_long_ends_when_the_store_is_closed(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 16 * MIB);
	struct sealing x = { .refuse = 0 };
	struct pool_file file;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(ftruncate(file.fd, 1ll << 40), 0);
	close(file.fd);
	x.seal.id = file.id;
	x.seal.blob = seal_blob;
	pool_seal_start(s, &x.seal, seal_cb);
	close_store(f, false);
	assert_true(x.done);
	assert_int_equal(x.seal.status, -ECANCELED);
	open_store(f, 16 * MIB);
	assert_int_equal(f->nfound, 0);
}

/* Number of calls; ends with `status`. */
static unsigned int seal_in_slices(struct fixture *f, struct sealing *x,
				   uint64_t id, int status)
{
	unsigned int calls = 0;
	int rc;

	x->seal.id = id;
	x->seal.blob = seal_blob;
	x->text = "slices";
	do {
		rc = pool_seal_slice(f->store, &x->seal);
		calls++;
	} while (rc == -EAGAIN);
	assert_int_equal(status, rc);
	assert_int_equal(status, x->seal.status);
	assert_null(x->seal.slices);
	return calls;
}

static void a_seal_in_slices_is_the_same(void **state)
{
	static const size_t sizes[] = { 0, 1, 131072, 131073, 3 * MIB + 4097 };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	unsigned char *copy = malloc(4 * MIB);

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		struct sealing x = { .refuse = 0 };
		struct pool_file file;
		size_t n = sizes[i];

		assert_int_equal(pool_store_take(s, 0, &file), 0);
		assert_int_equal(fallocate(file.fd, FALLOC_FL_KEEP_SIZE, 0,
					   5 * MIB), 0);
		if (n > 0)
			fill(file.fd, n, 9);
		assert_int_equal(pread(file.fd, copy, n, 0), n);
		x.seal.fd = i % 2 ? file.fd : 0; /* its own, or ours */
		if (!x.seal.fd)
			close(file.fd);
		assert_int_equal(1 + (n > 131072 ? (n + 131071) / 131072 : 1),
				 seal_in_slices(f, &x, file.id, 0));
		assert_int_equal(n, x.seal.size);
		assert_true(XXH128_isEqual(x.seal.sum, XXH3_128bits(copy, n)));
	}
	free(copy);
	assert_int_equal(5, pool_counter_value(&s->n.seals));
	reopen(f, 256 * MIB);
	assert_int_equal(f->nfound, 5);
	for (unsigned int i = 0; i < 5; i++) {
		assert_string_equal(f->found[i].blob, "slices");
		assert_int_equal(f->found[i].size, sizes[i]);
	}
}

static void a_seal_in_slices_that_fails_leaves_the_file_unsealed(void **state)
{
	struct fixture *f = *state;
	struct sealing x = { .refuse = -EXDEV };
	struct pool_file file;

	assert_int_equal(pool_store_take(open_store(f, 64 * MIB), 0, &file), 0);
	fill(file.fd, MIB, 1);
	assert_int_equal(1, seal_in_slices(f, &x, file.id + 1, -ENOENT));
	assert_int_equal(9, seal_in_slices(f, &x, file.id, -EXDEV));
	/* It becomes shorter between two slices. */
	x.refuse = 0;
	assert_int_equal(ftruncate(file.fd, 2 * MIB), 0); /* a hole */
	assert_int_equal(-EAGAIN, pool_seal_slice(f->store, &x.seal));
	assert_int_equal(ftruncate(file.fd, 1), 0);
	assert_int_equal(1, seal_in_slices(f, &x, file.id, -EBADMSG));
	close(file.fd);
	assert_int_equal(pool_counter_value(&f->store->n.seals_failed), 3);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 0);
}

static void a_file_with_holes_is_sealed_as_zeros_without_filling_them(
	void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 256 * MIB);
	struct sealing x = { .refuse = 0 };
	unsigned char *zeros = calloc(1, 8 * MIB);
	struct pool_file file;
	struct stat st;
	int fd;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(fallocate(file.fd, FALLOC_FL_KEEP_SIZE, 8 * MIB,
				   1 * MIB), 0);
	zeros[8 * MIB - 1] = 5;
	assert_int_equal(pwrite(file.fd, "\5", 1, 8 * MIB - 1), 1);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, ""), 0);
	assert_true(XXH128_isEqual(x.seal.sum, XXH3_128bits(zeros, 8 * MIB)));
	free(zeros);
	fd = pool_store_fd(s, file.id, O_RDONLY);
	assert_int_equal(fstat(fd, &st), 0);
	close(fd);
	/* One large folio at most, for the last byte. */
	assert_in_range(st.st_blocks * 512, 4096, 2 * MIB);
}

static void a_sum_that_is_known_is_not_computed_again(void **state)
{
	struct fixture *f = *state;
	struct sealing x = { .seal = { .have_sum = true,
				       .sum = { 1, 2 } } };
	struct pool_file file;

	assert_int_equal(pool_store_take(open_store(f, 64 * MIB), 0, &file), 0);
	fill(file.fd, 100, 1);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, "x"), 0);
	assert_int_equal(x.seal.sum.low64, 1);
	assert_int_equal(x.seal.sum.high64, 2);
}

static void
a_seal_that_fails_says_why_and_leaves_the_file_unsealed(void **state)
{
	struct fixture *f = *state;
	struct sealing x = { .refuse = -EXDEV };
	struct pool_file file;

	assert_int_equal(pool_store_take(open_store(f, 64 * MIB), 0, &file), 0);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, "x"), -EXDEV);
	assert_int_equal(seal(f, &x, file.id + 1, "x"), -ENOENT);
	assert_int_equal(pool_counter_value(&f->store->n.seals_failed), 2);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 0);
}

static void metadata_is_replaced_whole_but_only_of_sealed_files(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t id = put(f, 5000, "a first, long text"), big = put(f, 1, "");
	char *blob = calloc(1, POOL_BLOB_MAX + 1);
	/* Disk filesystems accept less: ext4 one block. */
	size_t max = s->tmpfs ? POOL_BLOB_MAX : 2000;
	struct pool_file file;

	assert_int_equal(pool_store_set_blob(s, id, 5000, "second", 6), 0);
	assert_int_equal(pool_store_set_blob(s, big, 1, blob, max), 0);
	assert_int_equal(pool_store_set_blob(s, big, 1, blob,
					     POOL_BLOB_MAX + 1),
			 -E2BIG);
	free(blob);
	assert_int_equal(pool_store_take(s, 0, &file), 0);
	close(file.fd);
	assert_int_equal(pool_store_set_blob(s, file.id, 0, "x", 1),
			 -ENODATA);
	assert_int_equal(pool_store_set_blob(s, file.id + 9, 0, "x", 1),
			 -ENOENT);
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 2);
	assert_string_equal(f->found[0].blob, "second");
	assert_int_equal(f->found[0].size, 5000);
	assert_int_equal(f->found[1].len, max);
}

/* ---- verify, copy, reserve ---- */

static bool work_done;

static void verify_cb(struct pool_verify *v, int status)
{
	assert_int_equal(v->status, status);
	work_done = true;
}

static int verify(struct fixture *f, uint64_t id, XXH128_hash_t sum)
{
	struct pool_verify v = { .id = id, .sum = sum };

	work_done = false;
	pool_verify_start(f->store, &v, verify_cb);
	assert_false(work_done);
	run_until(f, work_done);
	return v.status;
}

static void a_flipped_bit_is_found_by_verifying(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	struct sealing x = { .refuse = 0 };
	struct pool_file file;
	char c;
	int fd;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	fill(file.fd, 3 * MIB, 1);
	close(file.fd);
	assert_int_equal(seal(f, &x, file.id, ""), 0);
	assert_int_equal(verify(f, file.id, x.seal.sum), 0);
	fd = pool_store_fd(s, file.id, O_RDWR);
	assert_int_equal(pread(fd, &c, 1, 2000000), 1);
	c ^= 4;
	assert_int_equal(pwrite(fd, &c, 1, 2000000), 1);
	close(fd);
	assert_int_equal(verify(f, file.id, x.seal.sum), -EBADMSG);
	assert_int_equal(verify(f, file.id + 1, x.seal.sum), -ENOENT);
}

static void copy_cb(struct pool_copy *c, int status)
{
	assert_int_equal(c->status, status);
	work_done = true;
}

static void a_copy_has_the_same_bytes_up_to_its_limit(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	struct pool_copy c = { .limit = UINT64_MAX };
	static char a[4 * MIB], b[4 * MIB];
	struct pool_file file;
	struct stat st;

	c.from = pool_store_fd(s, put(f, 3 * MIB + 5, ""), O_RDONLY);
	assert_int_equal(pread(c.from, a, sizeof(a), 0), 3 * MIB + 5);
	for (int i = 0; i < 2; i++) {
		uint64_t want = i == 0 ? 3 * MIB + 5 : 70001;

		assert_int_equal(pool_store_take(s, 0, &file), 0);
		c.fd = file.fd;
		c.limit = i == 0 ? UINT64_MAX : want;
		work_done = false;
		pool_copy_start(s, &c, copy_cb);
		run_until(f, work_done);
		assert_int_equal(c.status, 0);
		assert_int_equal(fstat(file.fd, &st), 0);
		assert_int_equal(st.st_size, want);
		assert_int_equal(pread(file.fd, b, sizeof(b), 0), want);
		assert_memory_equal(a, b, want);
		close(file.fd);
	}
	close(c.from);
}

static void reserve_cb(struct pool_reserve *r, int status)
{
	assert_int_equal(r->status, status);
	work_done = true;
}

static int reserve(struct fixture *f, int fd, uint64_t size)
{
	struct pool_reserve r = { .fd = fd, .size = size };

	work_done = false;
	pool_store_reserve_start(f->store, &r, reserve_cb);
	run_until(f, work_done);
	return r.status;
}

static void a_file_is_reserved_again_but_never_out_of_the_headroom(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 32 * MIB);
	struct pool_file file, other;
	struct stat st;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(reserve(f, file.fd, 4 * MIB), 0);
	assert_int_equal(ftruncate(file.fd, 0), 0);
	assert_int_equal(reserve(f, file.fd, 8 * MIB), 0);
	assert_int_equal(reserve(f, file.fd, 33 * MIB), -ENOSPC);
	assert_int_equal(pool_store_take(s, 0, &other), 0);
	assert_int_equal(reserve(f, other.fd, 25 * MIB), -ENOSPC);
	close(other.fd);
	assert_int_equal(fstat(file.fd, &st), 0);
	assert_int_equal(st.st_size, 0);
	assert_int_equal(st.st_blocks * 512, 8 * MIB);
	assert_int_equal(reserve(f, file.fd, 31 * MIB), 0);
	close(file.fd);
}

/* ---- removing, and who uses a file ---- */

static void a_removed_file_is_gone_at_once_but_its_reader_keeps_it(void **state)
{
	static const size_t sizes[] = { 100, 12 * MIB, 100, 12 * MIB };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t id, before = used(f);
	char c;
	int fd;

	for (int i = 0; i < 4; i++) {
		id = put(f, sizes[i], "");
		fd = pool_store_fd(s, id, O_RDONLY);
		if (i < 2)
			pool_store_remove(s, id);
		else
			pool_store_remove_sealed(s, id, sizes[i], false);
		assert_false(exists(f, id));
		run_until(f, s->pending == 0);
		assert_true(used(f) >= before + sizes[i]);
		assert_int_equal(pread(fd, &c, 1, (off_t)sizes[i] - 1), 1);
		close(fd);
		assert_in_range(used(f), 0, before);
		pool_store_remove(s, id); /* a second removal is a no-op */
	}
	assert_int_equal(pool_counter_value(&s->n.removes), 4);
}

/* In a burst of evictions, a worker unlinks most files. */
static void evicted_files_of_a_burst_go_in_a_worker(void **state)
{
	enum { N = STORE_UNLINKS_INLINE + 64 };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t id[N], before = used(f);
	struct pool_space sp;
	unsigned int left = 0;

	for (int i = 0; i < N; i++)
		id[i] = put(f, 4096, "");
	uv_update_time(&f->loop);
	for (int i = 0; i < N; i++)
		pool_store_remove_sealed(s, id[i], 4096, true);
	assert_in_range(used(f), 0, before); /* at once */
	run_until(f, s->pending == 0);
	for (int i = 0; i < N; i++)
		left += exists(f, id[i]);
	assert_int_equal(left, 0);
	pool_store_space(s, &sp);
	assert_int_equal(sp.releasing, 0);
	assert_int_equal(pool_counter_value(&s->n.removes), N);
	assert_int_equal(pool_counter_value(&s->n.removes_failed), 0);
}

/* Beyond the limit of files that wait for the worker, the loop unlinks them;
 * closing waits for the worker. */
static void no_more_files_wait_for_the_worker_than_may(void **state)
{
	enum { N = STORE_UNLINKS_INLINE + STORE_UNLINKS_MAX + 40 };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	static uint64_t id[N];

	for (int i = 0; i < N; i++)
		id[i] = put(f, 1, "");
	uv_update_time(&f->loop);
	pthread_mutex_lock(&s->unlinks.lock); /* blocks the worker */
	s->unlinks.running = true;
	pthread_mutex_unlock(&s->unlinks.lock);
	for (int i = 0; i < N; i++)
		pool_store_remove_sealed(s, id[i], 1, true);
	assert_int_equal(s->unlinks.n, STORE_UNLINKS_MAX);
	assert_true(exists(f, id[STORE_UNLINKS_INLINE]));
	assert_false(exists(f, id[N - 1]));
	s->unlinks.running = false;
	pool_store_remove_sealed(s, put(f, 1, ""), 1, true); /* full: at once */
	assert_int_equal(s->unlinks.n, STORE_UNLINKS_MAX);
	store_unlinks_start(s);
	f->nfound = 0;
	reopen(f, 64 * MIB);
	assert_int_equal(f->nfound, 0);
}

/* With owner_counts nothing is counted, whatever other programs do. */
static void reported_use_is_used(void **state)
{
	struct fixture *f = *state;
	struct pool_store_opts o = { .loop = &f->loop, .dir = f->dir,
				     .size = 64 * MIB, .plain = true,
				     .owner_counts = true };
	char neighbour[96];
	struct pool_space sp;
	int fd;

	assert_int_equal(pool_store_open(&o, on_found, f, &f->store), 0);
	put(f, 100000, "");
	pool_store_space(f->store, &sp);
	assert_int_equal(sp.used, 0);
	pool_store_use(f->store, 24 * 4096);
	pool_store_use(f->store, 8192);
	pool_store_use(f->store, -4096);
	snprintf(neighbour, sizeof(neighbour), "%s/neighbour", f->top);
	fd = open(neighbour, O_WRONLY | O_CREAT, 0600);
	fill(fd, 8 * MIB, 1);
	close(fd);
	pool_store_space(f->store, &sp);
	assert_int_equal(sp.used, 25 * 4096);
	assert_int_equal(sp.free, 64 * MIB - sp.used);
	assert_true(pool_store_counted(f->store));
	assert_false(f->store->usage.counting);
}

static void space_of_large_files_counts_as_free_as_soon_as_they_are_removed(
	void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t before = used(f);
	uint64_t id = put(f, 16 * MIB, "");

	pool_store_remove(s, id);
	assert_in_range(used(f), 0, before);
	assert_int_equal(s->nreleases, 1);
	run_until(f, s->pending == 0);
	assert_in_range(used(f), 0, before);
}

static void the_pages_of_a_file_that_goes_are_another_s(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t id = put(f, MIB, "blob"), all = used(f);
	struct pool_file file;
	struct stat was, st;
	char back[4096];
	int fd = pool_store_fd(s, id, O_RDONLY);

	assert_int_equal(fstat(fd, &was), 0);
	close(fd);
	assert_int_equal(pool_store_reuse(s, id, MIB, &file), 0);
	assert_false(exists(f, id));
	assert_true(exists(f, file.id));
	assert_int_equal(fstat(file.fd, &st), 0);
	assert_int_equal(st.st_ino, was.st_ino);
	assert_int_equal(st.st_size, MIB);
	assert_int_equal(file.reserved, MIB);
	assert_int_equal(used(f), all);
	assert_int_equal(st.st_mode & 0777, STORE_MODE_OPEN);
	assert_int_equal(pwrite(file.fd, back, sizeof(back), 0), sizeof(back));
	/* Without metadata: not found after a crash. */
	assert_true(fgetxattr(file.fd, s->xattr, back, sizeof(back)) < 0);
	close(file.fd);
	assert_int_equal(pool_counter_value(&s->n.takes_reused), 1);
	assert_int_equal(pool_counter_value(&s->n.removes), 0);
}

/* The file is just removed; processes that have it open keep its pages. */
static void pages_that_somebody_has_are_nobody_else_s(void **state)
{
	enum { OPEN, MAPPED, NAMED, SHORTER, LONGER, HOLES, CASES };
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	char path[PATH_MAX], named[PATH_MAX + 8];
	struct pool_file file;
	void *p = NULL;
	uint64_t id;
	int fd = -1;

	for (int i = 0; i < CASES; i++) {
		id = put(f, MIB, "");
		store_path(s, id, path);
		snprintf(named, sizeof(named), "%s.named", path);
		if (i == OPEN || i == MAPPED)
			fd = pool_store_fd(s, id, O_RDONLY);
		if (i == MAPPED) {
			p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
			close(fd);
		}
		if (i == NAMED)
			assert_int_equal(link(path, named), 0);
		if (i == HOLES) {
			assert_int_equal(chmod(path, 0600), 0);
			fd = pool_store_fd(s, id, O_RDWR);
			assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE |
						   FALLOC_FL_KEEP_SIZE,
						   8192, 8192), 0);
			close(fd);
		}
		assert_int_equal(pool_store_reuse(
					 s, id, i == SHORTER ? MIB - 1 :
						i == LONGER ? MIB + 1 : MIB,
					 &file),
				 i < SHORTER ? -EBUSY : -EAGAIN);
		assert_false(exists(f, id));
		if (i == OPEN)
			close(fd);
		if (i == MAPPED)
			munmap(p, 4096);
		if (i == NAMED)
			assert_int_equal(unlink(named), 0);
		assert_int_equal(pool_counter_value(&s->n.removes), i + 1);
	}
	assert_int_equal(pool_store_reuse(s, id, MIB, &file), -ENOENT);
	assert_int_equal(pool_counter_value(&s->n.takes_reused), 0);
}

static void a_writer_is_seen_by_descriptor_and_by_mapping(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	struct pool_file file;
	void *p;
	int fd;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	fill(file.fd, 8192, 1);
	fd = pool_store_fd(s, file.id, O_RDONLY);
	assert_int_equal(pool_file_has_writer(fd), -EBUSY);
	p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file.fd, 0);
	close(file.fd);
	assert_int_equal(pool_file_has_writer(fd), -EBUSY);
	munmap(p, 4096);
	assert_int_equal(pool_file_has_writer(fd), 0);
	assert_int_equal(pool_file_has_writer(-1), -EBADF);
	close(fd);
}

static void a_reader_is_seen_by_descriptor_and_by_mapping(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	uint64_t id = put(f, 8192, "");
	int fd = pool_store_fd(s, id, O_RDONLY), other, path;
	void *p;

	path = pool_store_fd(s, id, O_PATH);
	assert_int_equal(pool_file_in_use(fd), 0);
	other = pool_store_fd(s, id, O_RDONLY);
	assert_int_equal(pool_file_in_use(fd), -EBUSY);
	p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, other, 0);
	close(other);
	assert_int_equal(pool_file_in_use(fd), -EBUSY);
	munmap(p, 4096);
	assert_int_equal(pool_file_in_use(fd), 0);
	close(path);
	close(fd);
}

static void asking_for_leases_beside_openers_ends_nobody(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 64 * MIB);
	char path[PATH_MAX];
	uint64_t id = put(f, 8192, ""), end = pool_now_ms() + 5000;
	int fd = pool_store_fd(s, id, O_RDONLY), status;
	unsigned int granted = 0, refused = 0;
	pid_t pid;

	path_of(f, id, path);
	pid = fork();
	if (pid == 0) {
		/* Each open may wait for a lease: fewer rounds where that takes
		 * long. */
		for (int i = 0; i < 20000 && pool_now_ms() < end; i++)
			close(open(path, O_RDWR));
		_exit(0);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (pool_file_in_use(fd) == 0)
			granted++;
		else
			refused++;
	}
	assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	assert_true(granted > 0);
	(void)refused;
	close(fd);
}

/* ---- space ---- */

static void
nearing_the_end_of_the_headroom_is_counted_while_sampling(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 16 * MIB);
	struct pool_file file;
	const off_t all = 32 * MIB - MIB / 2; /* all but 1/32 of the headroom */
	struct pool_space sp;
	uint64_t n;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	assert_int_equal(fallocate(file.fd, 0, 0, all), 0);
	run_ms(f, 30);
	assert_int_equal(pool_store_breaches(s), 0); /* nobody looks */
	pool_store_sampling(s, true);
	pool_store_sampling(s, true);
	pool_store_sampling(s, false);
	n = pool_store_breaches(s);
	assert_true(n > 0);
	run_until(f, s->breaches > n + 3); /* by the timer */
	pool_store_space(s, &sp);
	assert_int_equal(sp.free, 0);
	assert_int_equal(sp.reach, 0);
	assert_true(sp.used >= (uint64_t)all);
	assert_int_equal(ftruncate(file.fd, 17 * MIB), 0);
	n = pool_store_breaches(s);
	run_ms(f, 40); /* uses headroom, but not the last part of it */
	assert_int_equal(pool_store_breaches(s), n);
	pool_store_space(s, &sp);
	assert_int_equal(sp.free, 0);
	assert_in_range(sp.reach, 13 * MIB, 14 * MIB);
	assert_int_equal(fallocate(file.fd, 0, 0, all), 0);
	pool_store_sampling(s, false);
	run_ms(f, 30);
	assert_int_equal(pool_store_breaches(s), n);
	close(file.fd);
}

static void what_is_freed_hides_no_breach(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 16 * MIB);
	uint64_t id = put(f, 4 * MIB, "other");
	struct pool_file file;
	uint64_t n;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	pool_store_sampling(s, true);
	n = pool_store_breaches(s);
	assert_int_equal(fallocate(file.fd, 0, 0, 27 * MIB + MIB / 2), 0);
	pool_store_remove(s, id);
	assert_int_equal(pool_store_breaches(s), n + 1);
	pool_store_sampling(s, false);
	close(file.fd);
}

/* What other programs write or remove counts as the store's until the next
 * count. */
static bool counts_six(struct fixture *f)
{
	return used(f) >= 6 * MIB - 64 * KIB && used(f) < 7 * MIB;
}

static void a_shared_directory_is_counted_without_its_neighbours(void **state)
{
	struct fixture *f = *state;
	char path[128];
	int fd;

	open_plain(f, 64 * MIB);
	put(f, 6 * MIB, "");
	run_until(f, counts_six(f));
	snprintf(path, sizeof(path), "%s/neighbour", f->top);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	assert_int_equal(fallocate(fd, 0, 0, 20 * MIB), 0);
	close(fd);
	run_until(f, counts_six(f));
	reopen(f, 64 * MIB);
	run_until(f, counts_six(f));
}

struct counts {
	struct fixture *f;
	unsigned int n;	   /* ended */
	unsigned int good; /* of these, valid when cb was called */
};

static void on_counted(void *arg)
{
	struct counts *c = arg;

	c->n++;
	c->good += pool_store_counted(c->f->store) && counts_six(c->f);
}

/* Bytes that another program has written since the last count must not cause
 * evictions. */
static void data_goes_for_nothing_that_was_not_counted(void **state)
{
	struct fixture *f = *state;
	struct counts counts = { .f = f };
	char path[128];
	int fd;

	open_plain(f, 64 * MIB);
	pool_store_on_counted(f->store, on_counted, &counts);
	put(f, 6 * MIB, "");
	run_until(f, pool_store_counted(f->store) && counts_six(f));
	snprintf(path, sizeof(path), "%s/neighbour", f->top);
	fd = open(path, O_CREAT | O_RDWR, 0600);
	for (unsigned int i = 0; i < 5; i++) {
		assert_int_equal(fallocate(fd, 0, i * 20 * MIB, 20 * MIB), 0);
		counts.n = counts.good = 0;
		/* The last count stays valid for a multiple of its own
		 * duration. */
		run_until(f, counts.n || !pool_store_counted(f->store));
		run_until(f, counts.good > 0);
	}
	close(fd);
	pool_store_on_counted(f->store, NULL, NULL);
}

static void a_shared_directory_without_room_is_refused(void **state)
{
	struct fixture *f = *state;
	char cmd[256];

	open_plain(f, 64 * MIB);
	close_store(f, false);
	if (mount("x", f->dir, "tmpfs", 0, "size=64m") < 0) {
		print_message("SKIPPED: no tmpfs may be mounted here\n");
		skip();
	}
	snprintf(cmd, sizeof(cmd), "touch %s/notes.txt", f->dir);
	assert_int_equal(system(cmd), 0);
	assert_int_equal(try_open(f, 60 * MIB, &f->store), -ENOSPC);
	assert_int_equal(try_open(f, 40 * MIB, &f->store), 0);
	assert_false(f->store->own);
}

/* ---- a tmpfs given for the store ---- */

/* Mounts a tmpfs for other programs, too, at path. */
static void mount_given(struct fixture *f, const char *path, const char *opts)
{
	char up[128];

	snprintf(up, sizeof(up), "%s/a", f->top);
	assert_int_equal(chmod(f->top, 0711), 0);
	assert_int_equal(mkdir(up, 0755), 0);
	if (path == f->dir)
		assert_int_equal(mkdir(path, 0755), 0);
	if (mount("none", path, "tmpfs", 0, opts) == 0)
		return;
	print_message("SKIPPED: no tmpfs may be mounted here\n");
	skip();
}

static void a_given_tmpfs_keeps_its_size_and_outlives_the_store(void **state)
{
	struct fixture *f = *state;
	struct statfs st;
	uint64_t id;

	mount_given(f, f->dir, "size=96m,mode=0777");
	assert_int_equal(try_open(f, 96 * MIB, &f->store), -ENOSPC);
	assert_int_equal(try_open(f, 64 * MIB, &f->store), 0);
	assert_true(f->store->own && f->store->given);
	assert_false(f->store->mounted);
	id = put(f, 20 * MIB, "kept");
	close_store(f, true);
	assert_int_equal(statfs(f->dir, &st), 0);
	assert_int_equal(st.f_blocks * (uint64_t)st.f_bsize, 96 * MIB);
	open_store(f, 64 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_true(exists(f, id));
}

/* Opens a store as an ordinary user, in a tmpfs mounted with these options,
 * which has this other file (NULL: none). Does the store treat the tmpfs as its
 * own? */
static bool own_below(struct fixture *f, const char *opts, const char *other)
{
	char up[128], path[160];
	bool own;

	snprintf(up, sizeof(up), "%s/a", f->top);
	mount_given(f, up, opts);
	snprintf(path, sizeof(path), "%s/%s", up, other ? other : "");
	if (other)
		close(open(path, O_CREAT | O_WRONLY, 0600));
	assert_int_equal(seteuid(65534), 0);
	open_store(f, 64 * MIB);
	own = f->store->own;
	assert_int_equal(own, f->store->given);
	close_store(f, false);
	assert_int_equal(seteuid(0), 0);
	assert_int_equal(umount2(up, MNT_DETACH), 0);
	assert_int_equal(rmdir(up), 0);
	return own;
}

static void the_only_directory_in_a_given_tmpfs_owns_it(void **state)
{
	struct fixture *f = *state;

	assert_true(own_below(f, "size=96m,mode=0777", NULL));
	assert_false(own_below(f, "size=96m,mode=0777", "notes.txt"));
	assert_false(own_below(f, "size=96m,mode=1777", NULL));
}

static void a_limit_that_cannot_be_seen_is_kept(void **state)
{
	struct fixture *f = *state;
	struct pool_store_opts o = { .loop = &f->loop, .dir = f->dir,
				     .size = 64 * MIB,
				     .memory_max = 140 * MIB };

	assert_int_equal(pool_store_open(&o, on_found, f, &f->store), -EDOM);
	o.memory_max = 160 * MIB;
	assert_int_equal(pool_store_open(&o, on_found, f, &f->store), 0);
}

/* ---- a tmpfs of its own ---- */

static void its_own_tmpfs_is_larger_by_the_headroom_and_private(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_tmpfs(f, 64 * MIB);
	struct pool_space sp;
	struct statfs st;

	assert_true(s->mounted);
	assert_int_equal(statfs(f->dir, &st), 0);
	assert_int_equal(st.f_blocks * (uint64_t)st.f_bsize, 80 * MIB);
	assert_true(st.f_files >= 3 * 64 * MIB / 4096);
	assert_true(st.f_flags & ST_NOSUID && st.f_flags & ST_NODEV);
	pool_store_space(s, &sp);
	assert_int_equal(sp.size, 64 * MIB);
	assert_int_equal(sp.headroom, 16 * MIB);
	assert_in_range(sp.used, 4096, 64 * KIB);
	assert_int_equal(sp.free, sp.size - sp.used);
	close_store(f, true);
	assert_int_equal(statfs(f->dir, &st), 0);
	assert_int_not_equal(st.f_blocks * (uint64_t)st.f_bsize, 80 * MIB);
}

/* Measured before sealing, which frees the unused part of a huge page. */
static void a_small_file_costs_its_own_size(void **state)
{
	struct fixture *f = *state;
	struct pool_file file;
	uint64_t before;

	open_tmpfs(f, 64 * MIB);
	before = used(f);
	assert_int_equal(pool_store_take(f->store, 0, &file), 0);
	fill(file.fd, 128 * KIB, 1);
	close(file.fd);
	assert_int_equal(used(f) - before, 128 * KIB);
}

static void a_restart_with_another_size_keeps_the_files(void **state)
{
	struct fixture *f = *state;
	struct statfs st;
	uint64_t id;

	open_tmpfs(f, 64 * MIB);
	id = put(f, 20 * MIB, "kept");
	reopen(f, 128 * MIB);
	assert_false(f->store->mounted);
	assert_int_equal(statfs(f->dir, &st), 0);
	assert_int_equal(st.f_blocks * (uint64_t)st.f_bsize, 160 * MIB);
	reopen(f, 32 * MIB);
	assert_int_equal(statfs(f->dir, &st), 0);
	assert_int_equal(st.f_blocks * (uint64_t)st.f_bsize, 48 * MIB);
	assert_true(exists(f, id));
	put(f, 8 * MIB, "more");
	close_store(f, false);
	assert_int_equal(try_open(f, 8 * MIB, &f->store), -ENOSPC);
	open_store(f, 64 * MIB);
	assert_int_equal(f->nfound, 2);
}

/* The first, second, ... descriptor that it needs cannot be opened. */
static void a_start_that_fails_leaves_no_mount_and_no_descriptor(void **state)
{
	struct fixture *f = *state;
	struct rlimit old, few;
	int lowest = dup(0), fails = 0, rc;

	close(lowest);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
	few = old;
	for (rlim_t n = 0;; n++) {
		int before = count_fds();

		few.rlim_cur = (rlim_t)lowest + n;
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
		rc = try_open(f, 64 * MIB, &f->store);
		assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
		if (rc == 0)
			break;
		assert_int_equal(rc, -EMFILE);
		assert_null(f->store);
		assert_false(is_mounted(f));
		assert_int_equal(count_fds(), before);
		fails++;
	}
	assert_in_range(fails, 3, 10);
}

/* ---- closing ---- */

static void closing_waits_for_work_and_calls_it_back(void **state)
{
	struct fixture *f = *state;
	struct pool_store *s = open_store(f, 128 * MIB);
	struct sealing x = { .text = "late" };
	struct pool_file file;

	assert_int_equal(pool_store_take(s, 0, &file), 0);
	fill(file.fd, 32 * MIB, 1);
	close(file.fd);
	x.seal.id = file.id;
	x.seal.blob = seal_blob;
	pool_seal_start(s, &x.seal, seal_cb);
	pool_store_announce(s, 1 * MIB);
	stop_clock(); /* close waits for the work, however long it takes */
	close_store(f, false);
	assert_true(x.done);
	assert_int_equal(x.seal.status, 0);
	open_store(f, 128 * MIB);
	assert_int_equal(f->nfound, 1);
	assert_string_equal(f->found[0].blob, "late");
	assert_int_equal(pool_counter_value(&f->store->n.gone_unsealed), 0);
}

static void metrics_count_what_happened(void **state)
{
	struct fixture *f = *state;
	struct pool_metrics *m = pool_metrics_open();
	struct pool_store_opts o = { .loop = &f->loop, .dir = f->dir,
				     .size = 64 * MIB, .metrics = m };
	char *text;
	size_t len;

	assert_int_equal(pool_store_open(&o, NULL, NULL, &f->store), 0);
	put(f, 100, "");
	assert_int_equal(pool_metrics_print(m, &text, &len), 0);
	assert_non_null(strstr(text, "\nkvpool_store_seals_total 1\n"));
	assert_non_null(strstr(text, "\nkvpool_store_size_bytes 67108864\n"));
	assert_non_null(strstr(text, "kvpool_store_takes_total{result="
				     "\"unreserved\"} 1\n"));
	free(text);
	close_store(f, true);
	pool_metrics_close(m);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		T(opening_makes_the_directory_and_keeps_its_identity),
		T(a_second_user_of_the_directory_is_refused),
		T(a_size_beyond_memory_is_refused_and_nothing_is_mounted),
		T(headroom_is_a_sixteenth_at_least_64_mib_and_a_fourth_of_small_stores),
		T(a_directory_that_holds_others_files_keeps_them),
		T(a_directory_with_names_like_ours_but_no_store_is_refused),
		T(a_damaged_identity_is_refused),
		T(sealed_files_are_found_again_oldest_first),
		T(files_that_were_never_sealed_are_removed_at_start),
		T(truncated_and_damaged_files_are_kept_aside_and_counted),
		T(a_file_that_another_user_owns_is_kept_aside),
		T(files_that_lost_their_metadata_are_kept_aside),
		T(only_a_few_damaged_files_are_kept_aside),
		T(a_damaged_file_that_is_large_is_not_kept_aside),
		T(damaged_files_take_a_share_of_the_store_together),
		T(a_start_without_memory_fails_and_keeps_all),
		T(a_file_that_the_owner_refuses_is_removed),
		T(ids_do_not_repeat_although_all_is_removed_and_the_clock_is_reset),
		T(a_plain_file_is_had_at_once_and_a_reserved_one_when_announced),
		T(a_fill_that_fails_is_no_longer_under_way),
		T(ready_files_stay_within_two_percent),
		T(one_large_file_is_kept_up_to_a_sixteenth_of_the_store),
		T(a_larger_ready_file_serves_up_to_half_its_size),
		T(a_stream_of_takes_is_kept_supplied),
		T(no_file_is_made_ready_out_of_what_must_stay_free),
		T(ready_files_are_given_up_when_space_is_short),
		T(fills_under_way_when_files_are_given_up_are_thrown_away),
		T(a_size_that_nobody_takes_for_a_minute_is_forgotten),
		T(the_store_ticks_only_while_something_is_due),
		T(the_seventeenth_size_replaces_the_one_longest_unused),
		T(a_fill_that_finds_no_space_leaves_nothing),
		T(sealing_trims_checksums_and_attaches_the_metadata),
		T(sums_are_the_same_for_every_size_and_way_of_reading),
		T(a_seal_that_takes_long_ends_when_the_store_is_closed),
		T(a_seal_in_slices_is_the_same),
		T(a_seal_in_slices_that_fails_leaves_the_file_unsealed),
		T(a_file_with_holes_is_sealed_as_zeros_without_filling_them),
		T(a_sum_that_is_known_is_not_computed_again),
		T(a_seal_that_fails_says_why_and_leaves_the_file_unsealed),
		T(metadata_is_replaced_whole_but_only_of_sealed_files),
		T(a_flipped_bit_is_found_by_verifying),
		T(a_copy_has_the_same_bytes_up_to_its_limit),
		T(a_file_is_reserved_again_but_never_out_of_the_headroom),
		T(a_removed_file_is_gone_at_once_but_its_reader_keeps_it),
		T(evicted_files_of_a_burst_go_in_a_worker),
		T(no_more_files_wait_for_the_worker_than_may),
		T(reported_use_is_used),
		T(space_of_large_files_counts_as_free_as_soon_as_they_are_removed),
		T(the_pages_of_a_file_that_goes_are_another_s),
		T(pages_that_somebody_has_are_nobody_else_s),
		T(a_writer_is_seen_by_descriptor_and_by_mapping),
		T(a_reader_is_seen_by_descriptor_and_by_mapping),
		T(asking_for_leases_beside_openers_ends_nobody),
		T(nearing_the_end_of_the_headroom_is_counted_while_sampling),
		T(what_is_freed_hides_no_breach),
		T(a_shared_directory_is_counted_without_its_neighbours),
		T(data_goes_for_nothing_that_was_not_counted),
		T(a_shared_directory_without_room_is_refused),
		T(a_given_tmpfs_keeps_its_size_and_outlives_the_store),
		T(the_only_directory_in_a_given_tmpfs_owns_it),
		T(a_limit_that_cannot_be_seen_is_kept),
		T(its_own_tmpfs_is_larger_by_the_headroom_and_private),
		T(a_small_file_costs_its_own_size),
		T(a_restart_with_another_size_keeps_the_files),
		T(a_start_that_fails_leaves_no_mount_and_no_descriptor),
		T(closing_waits_for_work_and_calls_it_back),
		T(metrics_count_what_happened),
	};

	uv_loop_t loop;

	/* With its first loop, libuv opens two descriptors that stay open. */
	if (uv_loop_init(&loop) != 0 || uv_loop_close(&loop) != 0)
		return 1;
	pool_log_set_level(POOL_LOG_ERROR);
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
