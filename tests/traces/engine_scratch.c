/* Scratch files, a full pool, a full noevict directory, mass unlink. */
#include "tests/traces/engine.h"

#include <sys/statvfs.h>
#include <sys/uio.h>
#include <sys/xattr.h>

#define CLASS "user.kvpool.class"

/* 0, or 1: the file system does not support the attribute, which is noted. */
static int set_class(const char *dir, const char *value)
{
	if (setxattr(dir, CLASS, value, strlen(value), 0) == 0)
		return 0;
	EXPECT(errno == EOPNOTSUPP && eng.mode == ENG_PLAIN,
	       "expected %s=%s to be accepted on %s, got %s", CLASS, value, dir,
	       strerror(errno));
	eng_note("%s is not supported here: class %s not set", CLASS, value);
	return 1;
}

/* ------------------------------------------------------------ T11 scratch */

/* Dynamo: an unlinked file of a fixed size, random 1 MiB pieces. */
static int t11_dynamo(const char *dir)
{
	char path[ENG_PATH + 16];
	size_t size = 256 * MIB;
	uint8_t written[256] = { 0 };
	unsigned seed = 42;

	while (size > eng.capacity / 8 && size > 4 * MIB)
		size /= 2;
	snprintf(path, sizeof(path), "%s/dynamoXXXXXX", dir);
	int fd = mkostemp(path, O_CLOEXEC);
	EXPECT_OK(fd, path);
	EXPECT_OK(fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_DIRECT), path);
	EXPECT_OK(fallocate(fd, 0, 0, (off_t)size), path);
	EXPECT_OK(unlink(path), path);
	char *buf = eng_alloc(MIB);
	double end = eng_now() + 1.0 * eng.scale;
	while (eng_now() < end) {
		unsigned i = (unsigned)rand_r(&seed) % (unsigned)(size / MIB);
		off_t at = (off_t)i * (off_t)MIB;
		if (written[i]) {
			ssize_t n = pread(fd, buf, MIB, at);
			EXPECT(n == (ssize_t)MIB,
			       "expected 1 MiB at %lld, got %zd",
			       (long long)at, n);
			ssize_t bad = eng_mismatch(
				buf, MIB, eng_seed("dynamo", i * 256 +
							written[i]));
			EXPECT(bad < 0, "expected what was written at %lld",
			       (long long)at);
		}
		written[i] = (uint8_t)(written[i] % 255 + 1);
		eng_fill(buf, MIB, eng_seed("dynamo", i * 256 + written[i]));
		struct iovec iov[2] = { { buf, MIB / 4 },
					{ buf + MIB / 4, MIB - MIB / 4 } };
		ssize_t n = pwritev(fd, iov, 2, at);
		EXPECT(n == (ssize_t)MIB, "expected 1 MiB written at %lld, got "
		       "%zd (%s)", (long long)at, n, strerror(errno));
	}
	free(buf);
	EXPECT_OK(close(fd), path);
	return 0;
}

static bool refused(int err)
{
	return err == EFBIG || err == EOPNOTSUPP || err == ENOSPC;
}

/* A hole reads as zeros; what is written at 40 GiB is there. */
static int t11_far(int fd, const char *path)
{
	char *buf = eng_content("far", 0, MIB);
	off_t at = 40 * (off_t)GIB;
	ssize_t n = pwrite(fd, buf, MIB, at);

	EXPECT(n == (ssize_t)MIB, "expected 1 MiB written at 40 GiB of %s, got "
	       "%zd (%s)", path, n, strerror(errno));
	memset(buf, 1, MIB);
	EXPECT(pread(fd, buf, MIB, at) == (ssize_t)MIB &&
		       eng_mismatch(buf, MIB, eng_seed("far", 0)) < 0,
	       "expected what was written at 40 GiB of %s", path);
	memset(buf, 1, MIB);
	n = pread(fd, buf, MIB, 10 * (off_t)GIB);
	bool zero = n == (ssize_t)MIB;
	for (size_t i = 0; i < MIB && zero; i++)
		zero = buf[i] == 0;
	free(buf);
	EXPECT(zero, "expected zeros in the hole at 10 GiB of %s (%zd)", path,
	       n);
	return 0;
}

/* Simple disk: 100 GiB sparse. With may_refuse: ftruncate may say no. */
static int t11_sparse(const char *dir, bool may_refuse)
{
	char path[ENG_PATH];
	int rc = 0;

	eng_join(path, dir, "disk.bin");
	if (unlink(path) < 0)
		EXPECT(errno == ENOENT, "expected ENOENT of %s", path);
	int fd = open(path,
		      O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_DIRECT |
			      O_CLOEXEC,
		      0600);
	EXPECT_OK(fd, path);
	if (ftruncate(fd, 100 * (off_t)GIB) == 0)
		rc = t11_far(fd, path);
	else if (!may_refuse || !refused(errno))
		rc = eng_fail(__func__, __LINE__,
			      "expected ftruncate of %s to 100 GiB to %s, got "
			      "%s", path, may_refuse ? "be refused" : "succeed",
			      strerror(errno));
	close(fd);
	unlink(path);
	return rc;
}

static int t11_tmpfile(const char *dir)
{
	int fd = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	if (fd < 0) {
		EXPECT(errno == EOPNOTSUPP || errno == EISDIR,
		       "expected O_TMPFILE or EOPNOTSUPP, got %s",
		       strerror(errno));
		eng_note("T11: O_TMPFILE is refused (%s)",
			 strerrorname_np(errno));
		return 0;
	}
	char *buf = eng_content("tmpfile", 0, MIB);
	int rc = eng_write_all(fd, buf, MIB, "O_TMPFILE");
	memset(buf, 0, MIB);
	if (rc == 0 && (pread(fd, buf, MIB, 0) != (ssize_t)MIB ||
			eng_mismatch(buf, MIB, eng_seed("tmpfile", 0)) >= 0))
		rc = eng_fail(__func__, __LINE__,
			      "expected an O_TMPFILE file to read back");
	free(buf);
	close(fd);
	return rc;
}

static int t11(const struct eng_dir *t)
{
	char dir[ENG_PATH], path[ENG_PATH];

	TRY(eng_mkdir(eng_join(dir, t->d, "scratch")));
	int rc = set_class(dir, "scratch");
	if (rc < 0)
		return rc;
	TRY(t11_dynamo(dir));
	TRY(t11_sparse(dir, false));
	TRY(t11_tmpfile(dir));
	/* Scratch is private to its mount. */
	TRY(eng_put(dir, "s.tmp", "private", 0, MIB, 0));
	TRY(eng_put(t->d, "p.tmp", "public", 0, MIB, 0));
	TRY(eng_await_name(eng_join(path, t->b, "public")));
	if (eng.mode != ENG_PLAIN) {
		char out[ENG_PATH];

		EXPECT_ERR(access(eng_join(path, t->b, "scratch/private"),
				  F_OK), ENOENT);
		/* Neither becomes the other: it would stay what it is. */
		eng_join(path, t->d, "scratch/private");
		EXPECT_ERR(rename(path, eng_join(out, t->d, "moved")), EXDEV);
		eng_join(path, t->d, "public");
		EXPECT_ERR(rename(path, eng_join(out, t->d, "scratch/moved")),
			   EXDEV);
	}
	/* In a shared directory: accepted whole, or refused before data. */
	TRY(t11_sparse(t->d, true));
	return t11_tmpfile(t->d);
}

/* ---------------------------------------------------- T12 a full pool */

#define FILL_SIZE (2 * MIB)
#define FILL_THREADS 8
#define FILL_OPEN 8
#define FILL_MAX ((uint64_t)8 * GIB)

struct fill {
	const char *dir;
	unsigned n;
};

static void fill_key(char key[64], unsigned i)
{
	snprintf(key, 64, "fill_%08u.bin", i);
}

static int fill_put(const char *dir, unsigned i)
{
	char key[64], tmp[80];

	fill_key(key, i);
	snprintf(tmp, sizeof(tmp), "%s_%u.tmp", key, i * 2654435761u);
	return eng_put(dir, tmp, key, 0, FILL_SIZE, O_DIRECT);
}

static int fill_thread(unsigned i, void *arg)
{
	const struct fill *f = arg;

	for (unsigned k = FILL_OPEN + i; k < f->n; k += FILL_THREADS)
		TRY(fill_put(f->dir, k));
	return 0;
}

/* Descriptors opened before the flood must still read whole after it. */
static int fill_readers_check(const int *fds)
{
	char key[64];
	char *buf = eng_alloc(FILL_SIZE);

	for (unsigned i = 0; i < FILL_OPEN; i++) {
		fill_key(key, i);
		ssize_t n = pread(fds[i], buf, FILL_SIZE, 0);
		EXPECT(n == (ssize_t)FILL_SIZE &&
			       eng_version(buf, FILL_SIZE, key, 1) == 0,
		       "expected %s, open all the time, whole, read %zd", key,
		       n);
		close(fds[i]);
	}
	free(buf);
	return 0;
}

/* Count what is left; each either absent or whole. */
static int fill_count(const char *dir, unsigned n, unsigned *ret_present)
{
	char key[64], path[ENG_PATH];
	unsigned present = 0;

	for (unsigned i = 0; i < n; i++) {
		fill_key(key, i);
		int rc = eng_read(eng_join(path, dir, key), 0, key, 1,
				  FILL_SIZE, NULL);
		if (rc == -1)
			return -1;
		present += rc == 0;
	}
	*ret_present = present;
	return 0;
}

static int fill_used_check(const char *dir)
{
	struct statvfs sv;

	EXPECT_OK(statvfs(dir, &sv), dir);
	double used = 1 - (double)sv.f_bavail / (double)sv.f_blocks;
	eng_note("T12: full of cache, statvfs says %.0f %% used", used * 100);
	EXPECT(used < 0.8, "expected used %% < 80 in a pool full of cache, so "
	       "that no engine's cleaner starts, got %.0f %%", used * 100);
	return 0;
}

static int t12_fill(const struct eng_dir *t)
{
	struct fill f = { t->d, (unsigned)(2 * eng.capacity / FILL_SIZE) };
	char key[64], path[ENG_PATH];
	int fds[FILL_OPEN];
	unsigned present;

	if (eng.mode == ENG_PLAIN || 2 * eng.capacity > FILL_MAX * eng.scale) {
		eng_note("T12a skipped: %s", eng.mode == ENG_PLAIN ?
			 "a plain directory evicts nothing" :
			 "the pool is too large to fill twice");
		return 0;
	}
	for (unsigned i = 0; i < FILL_OPEN; i++) {
		fill_key(key, i);
		TRY(fill_put(t->d, i));
		fds[i] = open(eng_join(path, t->d, key), O_RDONLY | O_CLOEXEC);
		EXPECT_OK(fds[i], path);
	}
	TRY(eng_parallel(FILL_THREADS, fill_thread, &f));
	TRY(fill_used_check(t->d));
	TRY(fill_readers_check(fds));
	TRY(fill_count(t->d, f.n, &present));
	eng_note("T12: %u of %u keys left after filling twice", present, f.n);
	EXPECT(present > 0 && present < f.n,
	       "expected some of %u keys evicted and some left, %u left", f.n,
	       present);
	return 0;
}

/* -------------------------------------------------- T12 noevict is full */

/* Store one file the plain way; 0, -ENOSPC (the file abandoned as an engine
 * would: closed, then renamed all the same), or -1. */
static int noevict_put(const char *dir, unsigned i, unsigned *ret_bad)
{
	char key[64], tmp[80], from[ENG_PATH], to[ENG_PATH];

	fill_key(key, i);
	snprintf(tmp, sizeof(tmp), "%s.tmp", key);
	eng_join(from, dir, tmp);
	eng_join(to, dir, key);
	int fd = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		EXPECT(errno == ENOSPC, "expected %s or ENOSPC, got %s", from,
		       strerror(errno));
		return -ENOSPC;
	}
	char *buf = eng_content(key, 0, FILL_SIZE);
	size_t at = 0;
	ssize_t n;
	while (at < FILL_SIZE && (n = write(fd, buf + at, FILL_SIZE - at)) > 0)
		at += (size_t)n;
	int err = errno;
	free(buf);
	close(fd);
	if (at == FILL_SIZE) {
		if (rename(from, to) == 0)
			return 0;
		/* A file that outgrew its reservation is removed at its
		 * close: before the rename, or after it. */
		EXPECT(errno == ENOSPC || errno == EIO || errno == ENOENT,
		       "expected the rename of %s, or ENOSPC, got %s", from,
		       strerror(errno));
		unlink(from);
		return -ENOSPC;
	}
	EXPECT(err == ENOSPC, "expected ENOSPC writing %s, got %s", from,
	       strerror(err));
	/* Known to be short: it must not become a key. */
	if (rename(from, to) == 0 || access(to, F_OK) == 0)
		(*ret_bad)++;
	unlink(from);
	return -ENOSPC;
}

static int t12_noevict(const struct eng_dir *t)
{
	unsigned n = (unsigned)(eng.capacity / FILL_SIZE * 3 / 2);
	unsigned i, bad = 0, present;
	char dir[ENG_PATH], key[64], path[ENG_PATH];
	int rc = 0;

	if (eng.mode == ENG_PLAIN || eng.capacity > FILL_MAX * eng.scale) {
		eng_note("T12b skipped: %s", eng.mode == ENG_PLAIN ?
			 "a plain directory has no classes" :
			 "the pool is too large to fill");
		return 0;
	}
	TRY(eng_mkdir(eng_join(dir, t->d, "noevict")));
	TRY(set_class(dir, "noevict"));
	for (i = 0; i < n && rc == 0; i++)
		rc = noevict_put(dir, i, &bad);
	if (rc == -1)
		return -1;
	EXPECT(rc == -ENOSPC, "expected ENOSPC within %u files, got none", n);
	EXPECT(bad == 0, "expected no key from a file whose write failed");
	TRY(fill_count(dir, i - 1, &present));
	eng_note("T12: noevict took %u files of %u that the pool could hold",
		 i - 1, (unsigned)(eng.capacity / FILL_SIZE));
	EXPECT(present == i - 1, "expected all %u accepted files of a noevict "
	       "directory, %u are there", i - 1, present);
	/* Room is made by deleting, and is then had again. */
	for (unsigned k = 0; k < 8 && k < i - 1; k++) {
		fill_key(key, k);
		EXPECT_OK(unlink(eng_join(path, dir, key)), path);
	}
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	while ((rc = noevict_put(dir, n, &bad)) == -ENOSPC) {
		EXPECT(eng_now() < end, "expected room after deleting 8 files");
		eng_sleep_ms(50);
	}
	return rc;
}

/* ----------------------------------------- T12 unlink all while B reads */

#define CLEAR_N 64
#define CLEAR_SIZE (1 * MIB)

static int clear_thread(unsigned i, void *arg)
{
	const struct eng_dir *t = arg;
	char key[64], path[ENG_PATH];

	for (unsigned k = 0; k < CLEAR_N; k++) {
		fill_key(key, k);
		if (i == 0) {
			EXPECT_OK(unlink(eng_join(path, t->d, key)), path);
			eng_sleep_ms(2);
			continue;
		}
		int rc = eng_read(eng_join(path, t->b, key),
				  i == 1 ? O_DIRECT : 0, key, 1, CLEAR_SIZE,
				  NULL);
		if (rc == -1)
			return -1;
	}
	return 0;
}

static int t12_clear(const struct eng_dir *t)
{
	char key[64], tmp[80], path[ENG_PATH];

	for (unsigned i = 0; i < CLEAR_N; i++) {
		fill_key(key, i);
		snprintf(tmp, sizeof(tmp), "%s.tmp", key);
		TRY(eng_put(t->d, tmp, key, 0, CLEAR_SIZE, 0));
	}
	TRY(eng_sync_dir(t->d));
	TRY(eng_parallel(3, clear_thread, (void *)(uintptr_t)t));
	for (unsigned i = 0; i < CLEAR_N; i++) {
		fill_key(key, i);
		EXPECT_ERR(access(eng_join(path, t->d, key), F_OK), ENOENT);
		TRY(eng_await_gone(eng_join(path, t->b, key)));
	}
	return 0;
}

const struct eng_test eng_scratch[] = {
	{ "T11_scratch", t11 },
	{ "T12_fill_twice", t12_fill },
	{ "T12_noevict_full", t12_noevict },
	{ "T12_clear", t12_clear },
	{ NULL, NULL },
};
