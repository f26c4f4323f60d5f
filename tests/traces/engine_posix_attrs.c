/* POSIX semantics of attributes: times, modes, xattrs, statvfs, fsync. */
#include "tests/traces/engine.h"

#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>

#define SIZE (128 * KIB)
#define HANDLES 5000

static int put(const struct eng_dir *t, const char *key, unsigned version)
{
	char tmp[300];

	snprintf(tmp, sizeof(tmp), "%s.tmp", key);
	return eng_put(t->d, tmp, key, version, SIZE, 0);
}

/* Until stat through B satisfies ok(). */
static int await_stat(const char *path, bool (*ok)(const struct stat *st),
		      const char *what)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	struct stat st;

	while (stat(path, &st) < 0 || !ok(&st)) {
		EXPECT(eng_now() < end, "expected %s of %s through B", what,
		       path);
		eng_sleep_ms(2);
	}
	return 0;
}

static bool same_time(struct timespec a, struct timespec b)
{
	return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static int times(const struct eng_dir *t)
{
	struct timespec ts[2] = { { 1000000000, 5 },
				  { .tv_nsec = UTIME_OMIT } };
	struct stat before, after;
	char path[ENG_PATH];

	TRY(put(t, "k", 0));
	eng_join(path, t->d, "k");
	EXPECT_OK(stat(path, &before), path);
	EXPECT_OK(utimensat(AT_FDCWD, path, ts, 0), path);
	EXPECT_OK(stat(path, &after), path);
	EXPECT(after.st_atim.tv_sec == 1000000000,
	       "expected the atime set, got %lld",
	       (long long)after.st_atim.tv_sec);
	EXPECT(same_time(before.st_mtim, after.st_mtim),
	       "expected the mtime to stay");
	ts[0].tv_nsec = UTIME_OMIT;
	ts[1] = (struct timespec){ 1000000001, 0 };
	EXPECT_OK(utimensat(AT_FDCWD, path, ts, 0), path);
	EXPECT_OK(stat(path, &after), path);
	EXPECT(after.st_mtim.tv_sec == 1000000001 &&
		       after.st_atim.tv_sec == 1000000000,
	       "expected only the mtime to move");
	/* A touch need not leave the node; the publication's time is what all
	 * nodes share (mtime_stable). */
	eng_join(path, t->b, "k");
	TRY(eng_await_name(path));
	EXPECT_OK(stat(path, &after), path);
	eng_note("an mtime that was set %s at once on the other node",
		 after.st_mtim.tv_sec == 1000000001 ? "shows" :
						      "does not show");
	return 0;
}

/* mtime is the publication's, equal on both nodes, and stays. */
static int mtime_stable(const struct eng_dir *t)
{
	struct stat d, b;
	char path[ENG_PATH];

	TRY(put(t, "k", 0));
	TRY(eng_sync_dir(t->d));
	EXPECT_OK(stat(eng_join(path, t->d, "k"), &d), path);
	EXPECT_OK(stat(eng_join(path, t->b, "k"), &b), path);
	EXPECT(same_time(d.st_mtim, b.st_mtim),
	       "expected one mtime on both nodes, D %lld.%09ld, B %lld.%09ld",
	       (long long)d.st_mtim.tv_sec, d.st_mtim.tv_nsec,
	       (long long)b.st_mtim.tv_sec, b.st_mtim.tv_nsec);
	EXPECT(d.st_size == b.st_size && d.st_mode == b.st_mode,
	       "expected one size and mode on both nodes");
	EXPECT(d.st_blocks > 0 && d.st_blksize > 0,
	       "expected blocks, got %lld of %ld", (long long)d.st_blocks,
	       (long)d.st_blksize);
	return 0;
}

static bool mode_is_600(const struct stat *st)
{
	return (st->st_mode & 07777) == 0600;
}

static bool owner_is_1234(const struct stat *st)
{
	return st->st_uid == 1234 && st->st_gid == 4321;
}

static int modes(const struct eng_dir *t)
{
	char d[ENG_PATH], b[ENG_PATH];

	TRY(put(t, "k", 0));
	eng_join(d, t->d, "k");
	TRY(eng_await_name(eng_join(b, t->b, "k")));
	EXPECT_OK(chmod(d, 0600), d);
	TRY(await_stat(b, mode_is_600, "mode 0600"));
	if (geteuid() == 0) {
		EXPECT_OK(chown(d, 1234, 4321), d);
		TRY(await_stat(b, owner_is_1234, "owner 1234:4321"));
	} else {
		eng_note("chown skipped: not root");
	}
	TRY(eng_mkdir(eng_join(d, t->d, "dir")));
	EXPECT_OK(chmod(d, 0600), d);
	return await_stat(eng_join(b, t->b, "dir"), mode_is_600,
			  "mode 0600 of a directory");
}

static int suid(const struct eng_dir *t)
{
	char path[ENG_PATH];
	struct stat st;

	if (eng.mode == ENG_PLAIN) {
		eng_note("setuid bits skipped: a plain directory keeps them");
		return 0;
	}
	int fd = open(eng_join(path, t->d, "created"), O_WRONLY | O_CREAT,
		      06755);
	if (fd >= 0) {
		close(fd);
		EXPECT_OK(stat(path, &st), path);
		EXPECT(!(st.st_mode & 06000),
		       "expected setuid bits stripped at create, got %o",
		       st.st_mode & 07777);
	} else {
		EXPECT(errno == EPERM, "expected EPERM, got %s",
		       strerror(errno));
	}
	TRY(put(t, "k", 0));
	eng_join(path, t->d, "k");
	if (chmod(path, 06755) < 0)
		EXPECT(errno == EPERM, "expected EPERM, got %s",
		       strerror(errno));
	EXPECT_OK(stat(path, &st), path);
	EXPECT(!(st.st_mode & 06000),
	       "expected setuid bits refused or stripped at chmod, got %o",
	       st.st_mode & 07777);
	return 0;
}

static int await_xattr(const char *path, const char *name, const char *want)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	char got[64];

	for (;;) {
		ssize_t n = getxattr(path, name, got, sizeof(got));
		if (want && n == (ssize_t)strlen(want) &&
		    memcmp(got, want, (size_t)n) == 0)
			return 0;
		if (!want && n < 0 && errno == ENODATA)
			return 0;
		EXPECT(eng_now() < end,
		       "expected %s=%s of %s, got %zd bytes (%s)", name,
		       want ? want : "(none)", path, n,
		       n < 0 ? strerror(errno) : "other");
		eng_sleep_ms(2);
	}
}

/* The first file below a directory is daemon-served, and gets another nodeid
 * when it is published: the one that the caller knows speaks for it. */
static int xattr_at_once(const struct eng_dir *t)
{
	char dir[ENG_PATH], path[ENG_PATH], got[8];

	for (unsigned i = 0; i < 20; i++) {
		char name[32];

		snprintf(name, sizeof(name), "new%u", i);
		EXPECT_OK(mkdir(eng_join(dir, t->d, name), 0755), dir);
		TRY(eng_put(dir, "k.tmp", "k", 0, SIZE, 0));
		EXPECT_OK(setxattr(eng_join(path, dir, "k"), "user.crc", "12",
				   2, 0), path);
		TRY(eng_sync_dir(dir));
		ssize_t n = getxattr(path, "user.crc", got, sizeof(got));
		EXPECT(n == 2, "expected 2 bytes of user.crc of %s, got %zd "
		       "(%s)", path, n, n < 0 ? strerror(errno) : "");
	}
	return 0;
}

static int xattrs(const struct eng_dir *t)
{
	char d[ENG_PATH], b[ENG_PATH], tmp[ENG_PATH], list[1024], big[5000];

	TRY(eng_put(t->d, "k.tmp", "k.tmp", 0, SIZE, 0));
	eng_join(tmp, t->d, "k.tmp");
	EXPECT_OK(setxattr(tmp, "user.crc", "12345", 5, 0), tmp);
	EXPECT_OK(setxattr(tmp, "user.b", "", 0, 0), tmp);
	EXPECT_OK(rename(tmp, eng_join(d, t->d, "k")), d);
	TRY(await_xattr(d, "user.crc", "12345"));
	TRY(await_xattr(eng_join(b, t->b, "k"), "user.crc", "12345"));
	TRY(await_xattr(b, "user.b", ""));
	/* Set, replaced and removed on the published file. */
	EXPECT_ERR(setxattr(d, "user.crc", "x", 1, XATTR_CREATE), EEXIST);
	EXPECT_ERR(setxattr(d, "user.no", "x", 1, XATTR_REPLACE), ENODATA);
	EXPECT_OK(setxattr(d, "user.crc", "67", 2, XATTR_REPLACE), d);
	TRY(await_xattr(d, "user.crc", "67"));
	TRY(await_xattr(b, "user.crc", "67"));
	EXPECT_ERR(getxattr(d, "user.crc", list, 1), ERANGE);
	EXPECT(getxattr(d, "user.crc", NULL, 0) == 2, "expected length 2");
	ssize_t n = listxattr(b, list, sizeof(list));
	EXPECT(n > 0 && memmem(list, (size_t)n, "user.crc", 9) &&
		       memmem(list, (size_t)n, "user.b", 7),
	       "expected user.crc and user.b in B's list of %zd bytes", n);
	EXPECT_OK(removexattr(d, "user.crc"), d);
	EXPECT_ERR(removexattr(d, "user.crc"), ENODATA);
	TRY(await_xattr(b, "user.crc", NULL));
	EXPECT_ERR(getxattr(d, "user.none", list, sizeof(list)), ENODATA);
	/* The bytes are as they were. */
	TRY(eng_await(b, "k.tmp", 1, SIZE, 0));
	if (eng.mode == ENG_PLAIN)
		return 0;
	memset(big, 'x', sizeof(big));
	int rc = setxattr(d, "user.big", big, sizeof(big), 0);
	EXPECT(rc == 0 || errno == ENOSPC || errno == E2BIG || errno == ERANGE,
	       "expected a large xattr or ENOSPC, got %s", strerror(errno));
	errno = 0;
	rc = setxattr(d, "user.kvpool.replicas", "none", 4, 0);
	EXPECT(rc < 0 && errno == EINVAL,
	       "expected EINVAL of user.kvpool.replicas=none, got %s",
	       rc < 0 ? strerror(errno) : "success");
	return 0;
}

/* One after the other, each of them is there at once, and all of them stay. */
static int xattrs_in_a_row(const char *d, const char *b)
{
	char name[32], got[8];

	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "user.a%u", i);
		EXPECT_OK(setxattr(d, name, "1", 1, 0), d);
		EXPECT_OK(chmod(d, 0700 + i), d);
		for (unsigned k = 0; k <= i; k++) {
			snprintf(name, sizeof(name), "user.a%u", k);
			ssize_t n = getxattr(d, name, got, sizeof(got));
			EXPECT(n == 1, "expected %s of %s after %u more, got "
			       "%zd (%s)", name, d, i - k, n, strerror(errno));
		}
	}
	for (unsigned i = 0; i < 20; i++) {
		struct stat st;

		snprintf(name, sizeof(name), "user.a%u", i);
		TRY(await_xattr(b, name, "1"));
		EXPECT(getxattr(d, name, got, sizeof(got)) == 1,
		       "expected %s of %s to stay", name, d);
		EXPECT_OK(stat(d, &st), d);
		EXPECT((st.st_mode & 0777) == 0723,
		       "expected mode 723 of %s, got %o", d,
		       st.st_mode & 0777);
	}
	return 0;
}

/* On both nodes at once: each change lasts. */
static int xattrs_in_turns(const char *d, const char *b)
{
	char name[32];

	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "user.t%u", i);
		EXPECT_OK(setxattr(i % 2 ? b : d, name, "1", 1, 0), d);
	}
	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "user.t%u", i);
		TRY(await_xattr(d, name, "1"));
		TRY(await_xattr(b, name, "1"));
	}
	return 0;
}

static int xattrs_many(const struct eng_dir *t)
{
	char d[ENG_PATH], b[ENG_PATH], name[32];

	for (unsigned i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "k%u", i);
		if (i % 2)
			TRY(put(t, name, 0));
		else
			TRY(eng_mkdir(eng_join(d, t->d, name)));
		eng_join(d, t->d, name);
		TRY(eng_await_name(eng_join(b, t->b, name)));
		TRY(xattrs_in_a_row(d, b));
		TRY(xattrs_in_turns(d, b));
	}
	return 0;
}

static int statvfs_fields(const struct eng_dir *t)
{
	struct statvfs d, b;

	EXPECT_OK(statvfs(t->d, &d), t->d);
	EXPECT_OK(statvfs(t->b, &b), t->b);
	EXPECT(d.f_bsize == 4096 && d.f_frsize == 4096,
	       "expected f_bsize = f_frsize = 4096, got %lu and %lu",
	       d.f_bsize, d.f_frsize);
	EXPECT(d.f_namemax == 255, "expected f_namemax 255, got %lu",
	       d.f_namemax);
	EXPECT(d.f_blocks > 0 && d.f_bavail <= d.f_blocks &&
		       d.f_bfree <= d.f_blocks && d.f_bavail <= d.f_bfree,
	       "expected f_bavail <= f_bfree <= f_blocks, got %llu, %llu, "
	       "%llu", (unsigned long long)d.f_bavail,
	       (unsigned long long)d.f_bfree, (unsigned long long)d.f_blocks);
	EXPECT(d.f_blocks == b.f_blocks,
	       "expected one capacity on both nodes, got %llu and %llu",
	       (unsigned long long)d.f_blocks, (unsigned long long)b.f_blocks);
	return 0;
}

/* After fsync of the directory, no waiting at all. */
static int fsync_directory(const struct eng_dir *t)
{
	char key[64], b[ENG_PATH], d[ENG_PATH];

	int dirfd = open(t->d, O_RDONLY | O_DIRECTORY);
	EXPECT_OK(dirfd, t->d);
	for (unsigned i = 0; i < 50; i++) {
		/* In place and by rename, in turn. */
		snprintf(key, sizeof(key), "k%u", i);
		TRY(i % 2 ? put(t, key, 0) :
			    eng_put(t->d, key, key, 0, SIZE, 0));
		EXPECT_OK(fsync(dirfd), "fsync of a directory");
		EXPECT(eng_read(eng_join(b, t->b, key), 0, key, 1, SIZE,
				NULL) == 0,
		       "expected %s at once after fsync of its directory", b);
	}
	for (unsigned i = 0; i < 50; i += 5) {
		snprintf(key, sizeof(key), "k%u", i);
		EXPECT_OK(unlink(eng_join(d, t->d, key)), d);
	}
	EXPECT_OK(fsync(dirfd), "fsync of a directory");
	for (unsigned i = 0; i < 50; i += 5) {
		snprintf(key, sizeof(key), "k%u", i);
		EXPECT_ERR(access(eng_join(b, t->b, key), F_OK), ENOENT);
	}
	close(dirfd);
	int fd = open(eng_join(d, t->d, "file"), O_WRONLY | O_CREAT, 0644);
	EXPECT_OK(fd, d);
	EXPECT_OK(fsync(fd), d);
	EXPECT_OK(fdatasync(fd), d);
	EXPECT_OK(close(fd), d);
	return 0;
}

static int locks(const struct eng_dir *t)
{
	char path[ENG_PATH];
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

	int a = open(eng_join(path, t->d, "k"), O_RDWR | O_CREAT, 0644);
	int b = open(path, O_RDWR);
	EXPECT(a >= 0 && b >= 0, "expected to open %s twice, got %s", path,
	       strerror(errno));
	EXPECT_OK(flock(a, LOCK_EX), path);
	EXPECT_ERR(flock(b, LOCK_EX | LOCK_NB), EWOULDBLOCK);
	EXPECT_OK(flock(a, LOCK_UN), path);
	EXPECT_OK(flock(b, LOCK_EX | LOCK_NB), path);
	EXPECT_OK(flock(b, LOCK_UN), path);
	EXPECT_OK(fcntl(a, F_OFD_SETLK, &fl), path);
	EXPECT_ERR(fcntl(b, F_OFD_SETLK, &fl), EAGAIN);
	close(a);
	EXPECT_OK(fcntl(b, F_OFD_SETLK, &fl), path);
	close(b);
	return 0;
}

static int many_handles(const struct eng_dir *t)
{
	static int fds[HANDLES];
	char path[ENG_PATH], key[32];
	unsigned n = 0;

	for (unsigned i = 0; i < 50; i++) {
		snprintf(key, sizeof(key), "k%u", i);
		TRY(eng_put(t->d, key, key, 0, 4096, 0));
	}
	TRY(eng_sync_dir(t->d));
	for (; n < HANDLES; n++) {
		snprintf(key, sizeof(key), "k%u", n % 50);
		fds[n] = open(eng_join(path, n % 2 ? t->b : t->d, key),
			      O_RDONLY | O_CLOEXEC);
		if (fds[n] < 0)
			break;
	}
	int err = errno;
	uint64_t page[512];
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "k%u", i % 50);
		bool right = pread(fds[i], page, 4096, 0) == 4096 &&
			     eng_mismatch(page, 4096, eng_seed(key, 0)) < 0;
		close(fds[i]);
		EXPECT(right, "expected handle %u of %u to read its file", i,
		       n);
	}
	EXPECT(n == HANDLES, "expected %d open handles, got %u (%s)", HANDLES,
	       n, strerror(err));
	return 0;
}

const struct eng_test eng_posix_attrs[] = {
	{ "posix_times", times },
	{ "posix_mtime_stable", mtime_stable },
	{ "posix_modes", modes },
	{ "posix_suid", suid },
	{ "posix_xattrs", xattrs },
	{ "posix_xattr_at_once", xattr_at_once },
	{ "posix_xattrs_many", xattrs_many },
	{ "posix_statvfs", statvfs_fields },
	{ "posix_fsync_directory", fsync_directory },
	{ "posix_locks", locks },
	{ "posix_many_handles", many_handles },
	{ NULL, NULL },
};
