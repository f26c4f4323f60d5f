/* POSIX semantics of names: rename, unlink, directories, what is refused. */
#include "tests/traces/engine.h"

#include <dirent.h>
#include <sys/sysmacros.h>

#define SIZE (256 * KIB)

/* Through B, whatever was published last under key. */
static int await_b(const struct eng_dir *t, const char *key, const char *as,
		   int version)
{
	char path[ENG_PATH];

	return eng_await(eng_join(path, t->b, key), as, 4, SIZE, version);
}

static int put(const struct eng_dir *t, const char *key, unsigned version)
{
	char tmp[300];

	snprintf(tmp, sizeof(tmp), "%s.tmp", key);
	return eng_put(t->d, tmp, key, version, SIZE, 0);
}

static int rename_over_existing(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];
	int v = -1;

	TRY(put(t, "k", 0));
	TRY(await_b(t, "k", "k", 0));
	TRY(eng_put(t->d, "other", "other", 1, SIZE, 0));
	/* Same content function as "k", distinguished by version. */
	TRY(put(t, "k", 2));
	EXPECT(eng_read(eng_join(a, t->d, "k"), 0, "k", 4, SIZE, &v) == 0 &&
		       v == 2, "expected version 2 at once, got %d", v);
	TRY(await_b(t, "k", "k", 2));
	/* A published file over a published one. */
	eng_join(b, t->d, "other");
	EXPECT_OK(rename(b, a), "rename other k");
	EXPECT_ERR(access(b, F_OK), ENOENT);
	EXPECT(eng_read(a, 0, "other", 2, SIZE, NULL) == 0,
	       "expected the renamed file under its new name");
	TRY(eng_await_gone(eng_join(b, t->b, "other")));
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	eng_join(b, t->b, "k");
	for (;;) {
		int fd = open(b, O_RDONLY);
		char *buf = eng_alloc(SIZE);
		ssize_t n = fd < 0 ? -1 : read(fd, buf, SIZE);
		bool newer = n == (ssize_t)SIZE &&
			     eng_version(buf, SIZE, "other", 2) == 1;
		bool older = n == (ssize_t)SIZE &&
			     eng_version(buf, SIZE, "k", 4) == 2;
		free(buf);
		if (fd >= 0)
			close(fd);
		if (newer)
			return 0;
		EXPECT(older || fd < 0, "B: expected the old or the new file");
		EXPECT(eng_now() < end, "B: expected the renamed file");
		eng_sleep_ms(2);
	}
}

static int rename_across_dirs(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];

	TRY(eng_mkdir(eng_join(a, t->d, "x")));
	TRY(eng_mkdir(eng_join(a, t->d, "y")));
	TRY(put(t, "x/k", 0));
	TRY(await_b(t, "x/k", "x/k", 0));
	eng_join(a, t->d, "x/k");
	EXPECT_OK(rename(a, eng_join(b, t->d, "y/k")), "x/k to y/k");
	EXPECT_ERR(access(a, F_OK), ENOENT);
	EXPECT(eng_read(b, 0, "x/k", 1, SIZE, NULL) == 0,
	       "expected y/k at once");
	TRY(await_b(t, "y/k", "x/k", 0));
	return eng_await_gone(eng_join(a, t->b, "x/k"));
}

static int rename_directory(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];

	TRY(eng_mkdir(eng_join(a, t->d, "old")));
	TRY(put(t, "old/k", 0));
	TRY(await_b(t, "old/k", "old/k", 0));
	if (rename(a, eng_join(b, t->d, "new")) < 0) {
		EXPECT(errno == EXDEV || errno == EOPNOTSUPP,
		       "expected a directory to be renamed or EXDEV, got %s",
		       strerror(errno));
		eng_note("rename of a directory with contents is refused (%s)",
			 strerrorname_np(errno));
		return eng_read(eng_join(b, t->d, "old/k"), 0, "old/k", 1, SIZE,
				NULL);
	}
	TRY(await_b(t, "new/k", "old/k", 0));
	return eng_await_gone(eng_join(a, t->b, "old/k"));
}

static int rename_noreplace(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];

	TRY(put(t, "k", 0));
	TRY(eng_put(t->d, "k2.tmp", "k2.tmp", 1, SIZE, 0));
	eng_join(a, t->d, "k2.tmp");
	eng_join(b, t->d, "k");
	EXPECT_ERR(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE),
		   EEXIST);
	EXPECT(eng_read(b, 0, "k", 1, SIZE, NULL) == 0,
	       "expected the old k untouched");
	eng_join(b, t->d, "k3");
	EXPECT_OK(renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_NOREPLACE), b);
	return await_b(t, "k3", "k2.tmp", 1);
}

static int rename_errors(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH], c[ENG_PATH];

	EXPECT_ERR(rename(eng_join(a, t->d, "none"), eng_join(b, t->d, "k")),
		   ENOENT);
	TRY(eng_mkdir(eng_join(a, t->d, "dir")));
	TRY(eng_mkdir(eng_join(c, t->d, "dir/sub")));
	TRY(put(t, "k", 0));
	EXPECT_ERR(rename(b, a), EISDIR);
	EXPECT_ERR(rename(a, b), ENOTDIR);
	TRY(eng_mkdir(eng_join(b, t->d, "dir2")));
	EXPECT_ERR(rename(b, a), ENOTEMPTY);
	EXPECT_ERR(rename(a, eng_join(b, t->d, "dir/sub/in")), EINVAL);
	return 0;
}

/* The open file keeps going under its new name; B sees it once whole. */
static int rename_while_open(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH], path[ENG_PATH];
	char *buf = eng_content("k", 0, SIZE);
	int fd = open(eng_join(a, t->d, "k.tmp"), O_WRONLY | O_CREAT, 0644);

	EXPECT_OK(fd, a);
	TRY(eng_write_all(fd, buf, SIZE / 2, a));
	EXPECT_OK(rename(a, eng_join(b, t->d, "k")), b);
	eng_sleep_ms(100);
	if (eng.mode != ENG_PLAIN)
		EXPECT_ERR(access(eng_join(path, t->b, "k"), F_OK), ENOENT);
	TRY(eng_write_all(fd, buf + SIZE / 2, SIZE / 2, b));
	EXPECT_OK(close(fd), b);
	free(buf);
	return await_b(t, "k", "k", 0);
}

/* Replaced, and unlinked, under an open reader: its bytes stay. */
static int unlink_while_open(const struct eng_dir *t)
{
	char path[ENG_PATH];
	char *buf = eng_alloc(SIZE);
	struct stat st;

	TRY(put(t, "k", 0));
	TRY(await_b(t, "k", "k", 0));
	int d = open(eng_join(path, t->d, "k"), O_RDONLY);
	EXPECT_OK(d, path);
	int b = open(eng_join(path, t->b, "k"), O_RDONLY);
	EXPECT_OK(b, path);
	EXPECT_OK(unlink(eng_join(path, t->d, "k")), path);
	EXPECT_ERR(access(path, F_OK), ENOENT);
	TRY(eng_await_gone(eng_join(path, t->b, "k")));
	/* The name is free again at once. */
	TRY(put(t, "k", 1));
	for (int i = 0; i < 2; i++) {
		ssize_t n = pread(i ? b : d, buf, SIZE, 0);
		EXPECT(n == (ssize_t)SIZE &&
			       eng_version(buf, SIZE, "k", 1) == 0,
		       "expected %s's open file to keep its bytes, read %zd",
		       i ? "B" : "D", n);
		EXPECT_OK(fstat(i ? b : d, &st), "fstat of an unlinked file");
		EXPECT(st.st_size == (off_t)SIZE, "expected its size to stay");
		close(i ? b : d);
	}
	free(buf);
	return await_b(t, "k", "k", 1);
}

/* An unlinked file still works for its writer: size, truncation, end. */
static int nameless_file_works(int fd, const char *how)
{
	struct stat st;
	char got[16] = "";

	EXPECT(pwrite(fd, "zz", 2, 5) == 2, "expected a write after %s", how);
	EXPECT_OK(fstat(fd, &st), how);
	EXPECT(st.st_size == 7, "expected 7 bytes after %s, fstat says %lld",
	       how, (long long)st.st_size);
	EXPECT(lseek(fd, 0, SEEK_END) == 7, "expected the end at 7 after %s",
	       how);
	EXPECT(pread(fd, got, sizeof(got), 0) == 7 &&
		       memcmp(got, "hellozz", 7) == 0,
	       "expected hellozz after %s, got %s", how, got);
	EXPECT_OK(ftruncate(fd, 3), how);
	EXPECT_OK(fstat(fd, &st), how);
	EXPECT(st.st_size == 3, "expected 3 bytes after truncation, got %lld",
	       (long long)st.st_size);
	return 0;
}
static int nameless(const struct eng_dir *t)
{
	char path[ENG_PATH], other[ENG_PATH];

	/* The second file of a directory is of a size that is known. */
	for (int i = 0; i < 3; i++) {
		TRY(put(t, "known", 0));
		eng_join(path, t->d, "u");
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL, 0600);
		EXPECT_OK(fd, path);
		TRY(eng_write_all(fd, "hello", 5, path));
		if (i == 0) {
			EXPECT_OK(unlink(path), path);
		} else {
			TRY(put(t, "v", 0));
			EXPECT_OK(rename(eng_join(other, t->d, "v"), path),
				  path);
		}
		TRY(nameless_file_works(fd, i ? "being replaced" :
						"its unlink"));
		close(fd);
		if (i) {
			TRY(eng_await(path, "v", 1, SIZE, 0));
			EXPECT_OK(unlink(path), path);
		}
	}
	return 0;
}

/* A temporary unlinked while it is written never becomes anything. */
static int unlink_unpublished(const struct eng_dir *t)
{
	char path[ENG_PATH];
	char *buf = eng_content("k", 0, SIZE);

	int fd = open(eng_join(path, t->d, "k"), O_RDWR | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	TRY(eng_write_all(fd, buf, SIZE / 2, path));
	EXPECT_OK(unlink(path), path);
	TRY(eng_write_all(fd, buf + SIZE / 2, SIZE / 2, path));
	EXPECT(pread(fd, buf, SIZE, 0) == (ssize_t)SIZE &&
		       eng_version(buf, SIZE, "k", 1) == 0,
	       "expected an unlinked file to read back");
	EXPECT_OK(close(fd), path);
	free(buf);
	eng_sleep_ms(200);
	EXPECT_ERR(access(path, F_OK), ENOENT);
	EXPECT_ERR(access(eng_join(path, t->b, "k"), F_OK), ENOENT);
	return 0;
}

static int directories(const struct eng_dir *t)
{
	char dir[ENG_PATH], path[ENG_PATH];

	EXPECT_OK(mkdir(eng_join(dir, t->d, "sub"), 0755), dir);
	EXPECT_ERR(mkdir(dir, 0755), EEXIST);
	EXPECT_ERR(rmdir(eng_join(path, t->d, "none")), ENOENT);
	TRY(eng_await_name(eng_join(path, t->b, "sub")));
	EXPECT_ERR(mkdir(path, 0755), EEXIST);
	TRY(put(t, "sub/k", 0));
	EXPECT_ERR(rmdir(dir), ENOTEMPTY);
	EXPECT_ERR(unlink(dir), EISDIR);
	EXPECT_ERR(rmdir(eng_join(path, t->d, "sub/k")), ENOTDIR);
	EXPECT_ERR(mkdir(eng_join(path, t->d, "sub/k/x"), 0755), ENOTDIR);
	EXPECT_ERR(mkdir(eng_join(path, t->d, "none/x"), 0755), ENOENT);
	EXPECT_OK(unlink(eng_join(path, t->d, "sub/k")), path);
	EXPECT_OK(rmdir(dir), dir);
	EXPECT_ERR(access(dir, F_OK), ENOENT);
	return eng_await_gone(eng_join(path, t->b, "sub"));
}

static int readdir_types(const struct eng_dir *t)
{
	char path[ENG_PATH];
	unsigned files = 0, dirs = 0;

	TRY(eng_mkdir(eng_join(path, t->d, "sub")));
	for (unsigned i = 0; i < 50; i++) {
		char name[32];
		snprintf(name, sizeof(name), "f%u", i);
		TRY(eng_put(t->d, name, name, 0, 4096, 0));
	}
	TRY(eng_await_name(eng_join(path, t->b, "f49")));
	TRY(eng_sync_dir(t->d));
	DIR *dir = opendir(t->b);
	EXPECT(dir, "expected to list %s", t->b);
	struct dirent *e;
	while ((e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		int want = strcmp(e->d_name, "sub") == 0 ? DT_DIR : DT_REG;
		EXPECT(e->d_type == want, "expected d_type %d of %s, got %d",
		       want, e->d_name, e->d_type);
		files += want == DT_REG;
		dirs += want == DT_DIR;
	}
	rewinddir(dir);
	unsigned again = 0;
	while ((e = readdir(dir)))
		again += e->d_name[0] != '.';
	closedir(dir);
	EXPECT(files == 50 && dirs == 1 && again == 51,
	       "expected 50 files, 1 directory, 51 again; got %u, %u, %u",
	       files, dirs, again);
	return 0;
}

static int long_names(const struct eng_dir *t)
{
	char name[300], tmp[300], path[ENG_PATH];

	memset(name, 'n', sizeof(name));
	name[255] = 0;
	memset(tmp, 'm', 251);
	strcpy(tmp + 251, ".tmp");
	TRY(eng_put(t->d, tmp, name, 0, SIZE, 0));
	TRY(await_b(t, name, name, 0));
	memset(name, 'n', sizeof(name));
	name[256] = 0;
	eng_join(path, t->d, name);
	EXPECT_ERR(open(path, O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
	EXPECT_ERR(mkdir(path, 0755), ENAMETOOLONG);
	EXPECT_ERR(access(path, F_OK), ENAMETOOLONG);
	/* Bytes that are not ASCII, blanks, and a name that is a dot file. */
	TRY(put(t, "h\xc3\xa4 \t'\"%.bin", 0));
	TRY(await_b(t, "h\xc3\xa4 \t'\"%.bin", "h\xc3\xa4 \t'\"%.bin", 0));
	TRY(put(t, ".hidden", 0));
	return await_b(t, ".hidden", ".hidden", 0);
}

/* Names in a directory, up to a path of 4096 bytes: as good as any other. */
static int fitting_names(int fd, size_t fits)
{
	char name[256], dir[64];

	snprintf(dir, sizeof(dir), "/proc/self/fd/%d", fd);
	for (size_t len = fits - 1; len <= fits; len++) {
		memset(name, 'f', len);
		name[len] = 0;
		TRY(eng_put(dir, "short.tmp", name, 0, SIZE, 0));
		name[0] = 'g';
		TRY(eng_put(dir, name, name, 0, SIZE, 0));
		name[0] = 'd';
		EXPECT_OK(mkdirat(fd, name, 0755), "a directory");
	}
	EXPECT_OK(fsync(fd), "fsync of a deep directory");
	for (size_t len = fits - 1; len <= fits; len++) {
		memset(name, 'f', len);
		name[len] = 0;
		EXPECT_OK(faccessat(fd, name, F_OK, 0), "what was renamed");
		name[0] = 'g';
		EXPECT_OK(faccessat(fd, name, F_OK, 0), "what was made");
	}
	return 0;
}

/* Longer ones are refused, by whatever would make them. */
static int longer_names(int fd, size_t len)
{
	char name[256], dir[64];

	memset(name, 'l', len);
	name[len] = 0;
	snprintf(dir, sizeof(dir), "/proc/self/fd/%d", fd);
	EXPECT_ERR(openat(fd, name, O_RDWR | O_CREAT, 0644), ENAMETOOLONG);
	EXPECT_ERR(mkdirat(fd, name, 0755), ENAMETOOLONG);
	EXPECT_ERR(mknodat(fd, name, S_IFREG | 0644, 0), ENAMETOOLONG);
	TRY(eng_put(dir, "short.tmp", "short.tmp", 0, SIZE, 0));
	TRY(eng_put(dir, "short", "short", 0, SIZE, 0));
	EXPECT_ERR(renameat(fd, "short.tmp", fd, name), ENAMETOOLONG);
	EXPECT_ERR(renameat(fd, "short", fd, name), ENAMETOOLONG);
	EXPECT_OK(fsync(fd), "fsync of a deep directory");
	EXPECT_ERR(renameat(fd, "short", fd, name), ENAMETOOLONG);
	EXPECT_OK(faccessat(fd, "short.tmp", F_OK, 0), "what was not renamed");
	EXPECT_OK(faccessat(fd, "short", F_OK, 0), "what was not renamed");
	EXPECT_OK(mkdirat(fd, "d", 0755), "a directory");
	EXPECT_ERR(renameat(fd, "d", fd, name), ENAMETOOLONG);
	EXPECT_OK(unlinkat(fd, "d", AT_REMOVEDIR), "a directory");
	return 0;
}

/* In fd, whose path below the mount has len bytes, a directory so deep that
 * names of up to 100 bytes fit. */
static int longest_paths(int fd, size_t len)
{
	char name[256];
	size_t fill = 3994 - len;

	EXPECT(fill > 0 && fill < sizeof(name), "no such directory: %zu", fill);
	memset(name, 'q', fill);
	name[fill] = 0;
	EXPECT_OK(mkdirat(fd, name, 0755), "a deep directory");
	int deep = openat(fd, name, O_RDONLY | O_DIRECTORY);
	EXPECT_OK(deep, "a deep directory");
	int rc = fitting_names(deep, 100);
	for (len = 101; rc == 0 && len < 256; len += 77)
		rc = longer_names(deep, len);
	close(deep);
	return rc;
}

/* Step down by names of 200 bytes until a path of about 4,000 is reached. */
static int deep_paths(const struct eng_dir *t)
{
	char name[201], path[ENG_PATH];
	int depth = (int)((4000 - strlen(t->d)) / 201);

	memset(name, 'p', 200);
	name[200] = 0;
	int fd = open(t->d, O_RDONLY | O_DIRECTORY);
	EXPECT_OK(fd, t->d);
	for (int i = 0; i < depth; i++) {
		EXPECT(mkdirat(fd, name, 0755) == 0,
		       "expected directory %d of %d, got %s", i, depth,
		       strerror(errno));
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		EXPECT_OK(next, "openat of a deep directory");
		close(fd);
		fd = next;
	}
	int f = openat(fd, "leaf", O_WRONLY | O_CREAT, 0644);
	EXPECT_OK(f, "creation of a file at a deep path");
	void *buf = eng_content("leaf", 0, SIZE);
	TRY(eng_write_all(f, buf, SIZE, "leaf"));
	free(buf);
	EXPECT_OK(close(f), "leaf");
	EXPECT_OK(fsync(fd), "fsync of a deep directory");
	close(fd);

	fd = open(t->b, O_RDONLY | O_DIRECTORY);
	EXPECT_OK(fd, t->b);
	for (int i = 0; i < depth; i++) {
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		EXPECT(next >= 0, "B: expected directory %d, got %s", i,
		       strerror(errno));
		close(fd);
		fd = next;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d/leaf", fd);
	int rc = eng_await(path, "leaf", 1, SIZE, -1);
	close(fd);
	TRY(rc);
	fd = open(t->d, O_RDONLY | O_DIRECTORY);
	for (int i = 0; i < depth && fd >= 0; i++) {
		int next = openat(fd, name, O_RDONLY | O_DIRECTORY);
		close(fd);
		fd = next;
	}
	EXPECT_OK(fd, "the deep directory again");
	if (eng.mode != ENG_PLAIN)
		rc = longest_paths(fd, strlen(strrchr(t->d, '/') + 1) +
					       201 * (size_t)depth);
	close(fd);
	return rc;
}

static int link_refused(const struct eng_dir *t)
{
	char a[ENG_PATH], b[ENG_PATH];

	TRY(put(t, "k", 0));
	if (link(eng_join(a, t->d, "k"), eng_join(b, t->d, "l")) == 0) {
		EXPECT(eng.mode == ENG_PLAIN, "expected link() to be refused");
		return 0;
	}
	EXPECT(errno == EPERM || errno == EMLINK || errno == EOPNOTSUPP ||
		       errno == ENOSYS,
	       "expected link() to be refused by EPERM, got %s",
	       strerror(errno));
	EXPECT_ERR(access(b, F_OK), ENOENT);
	return 0;
}

static int mknod_refused(const struct eng_dir *t)
{
	char path[ENG_PATH];

	if (eng.mode == ENG_PLAIN) {
		eng_note("mknod skipped: a plain directory takes it");
		return 0;
	}
	eng_join(path, t->d, "node");
	EXPECT(mkfifo(path, 0644) < 0, "expected a fifo to be refused");
	EXPECT(errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS,
	       "expected EPERM of mkfifo, got %s", strerror(errno));
	EXPECT(mknod(path, S_IFCHR | 0600, makedev(1, 3)) < 0,
	       "expected a device to be refused");
	EXPECT(errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS,
	       "expected EPERM of mknod, got %s", strerror(errno));
	EXPECT_ERR(access(path, F_OK), ENOENT);
	/* A regular file by mknod is an empty file or a refusal. */
	if (mknod(path, S_IFREG | 0644, 0) == 0)
		EXPECT_OK(unlink(path), path);
	return 0;
}

static int symlink_refused(const struct eng_dir *t)
{
	char path[ENG_PATH], target[64];

	eng_join(path, t->d, "s");
	if (symlink("k", path) < 0) {
		EXPECT(errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS,
		       "expected symlink() or EPERM, got %s", strerror(errno));
		eng_note("symlink is refused (%s)", strerrorname_np(errno));
		EXPECT_ERR(access(path, F_OK), ENOENT);
		return 0;
	}
	eng_note("symlink is supported");
	ssize_t n = readlink(path, target, sizeof(target));
	EXPECT(n == 1 && target[0] == 'k', "expected the target k, got %zd "
	       "bytes", n);
	return 0;
}

const struct eng_test eng_posix_names[] = {
	{ "posix_rename_over_existing", rename_over_existing },
	{ "posix_rename_across_dirs", rename_across_dirs },
	{ "posix_rename_directory", rename_directory },
	{ "posix_rename_noreplace", rename_noreplace },
	{ "posix_rename_errors", rename_errors },
	{ "posix_rename_while_open", rename_while_open },
	{ "posix_unlink_while_open", unlink_while_open },
	{ "posix_unlink_unpublished", unlink_unpublished },
	{ "posix_nameless", nameless },
	{ "posix_directories", directories },
	{ "posix_readdir_types", readdir_types },
	{ "posix_long_names", long_names },
	{ "posix_deep_paths", deep_paths },
	{ "posix_link_refused", link_refused },
	{ "posix_mknod_refused", mknod_refused },
	{ "posix_symlink", symlink_refused },
	{ NULL, NULL },
};
