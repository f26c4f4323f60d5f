/* POSIX semantics of bytes: truncate, append, holes, mmap, O_DIRECT. */
#include "tests/traces/engine.h"

#include <sys/mman.h>

#define SIZE (512 * KIB)

static int put(const struct eng_dir *t, const char *key, unsigned version)
{
	char tmp[300];

	snprintf(tmp, sizeof(tmp), "%s.tmp", key);
	return eng_put(t->d, tmp, key, version, SIZE, 0);
}

/* The whole of path must be len bytes equal to want; waits for the size. */
static int await_bytes(const char *path, const void *want, size_t len)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	char *buf = eng_alloc(len + 1);
	ssize_t n = -1;
	bool same;

	for (;;) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		EXPECT(fd >= 0 || errno == ENOENT,
		       "expected to open %s, got %s", path, strerror(errno));
		n = fd < 0 ? -1 : read(fd, buf, len + 1);
		if (fd >= 0)
			close(fd);
		same = n == (ssize_t)len && memcmp(buf, want, len) == 0;
		if (same || eng_now() > end)
			break;
		eng_sleep_ms(2);
	}
	free(buf);
	EXPECT(same, "expected %zu certain bytes of %s, got %zd bytes", len,
	       path, n);
	return 0;
}

/* At once through D, in time through B. */
static int both_bytes(const struct eng_dir *t, const char *key,
		      const void *want, size_t len)
{
	char path[ENG_PATH];
	struct stat st;

	EXPECT_OK(stat(eng_join(path, t->d, key), &st), path);
	EXPECT(st.st_size == (off_t)len, "expected %zu bytes of %s at once, "
	       "stat says %lld", len, path, (long long)st.st_size);
	TRY(await_bytes(path, want, len));
	return await_bytes(eng_join(path, t->b, key), want, len);
}

static int reader_keeps(int fd, const char *key, unsigned version)
{
	char *buf = eng_alloc(SIZE);
	ssize_t n = pread(fd, buf, SIZE, 0);
	ssize_t bad = eng_mismatch(buf, SIZE, eng_seed(key, version));

	free(buf);
	EXPECT(n == (ssize_t)SIZE && bad < 0,
	       "expected an old reader of %s to keep version %u, read %zd, "
	       "differs at %zd", key, version, n, bad);
	return 0;
}

static int truncate_path(const struct eng_dir *t)
{
	char path[ENG_PATH], b[ENG_PATH];
	char *want = eng_content("k", 0, SIZE);

	TRY(put(t, "k", 0));
	TRY(eng_await(eng_join(b, t->b, "k"), "k", 1, SIZE, 0));
	int fd = open(eng_join(path, t->d, "k"), O_RDONLY);
	int bfd = open(b, O_RDONLY);
	EXPECT(fd >= 0 && bfd >= 0, "expected to open k twice");
	EXPECT_OK(truncate(path, 100000), path);
	TRY(both_bytes(t, "k", want, 100000));
	EXPECT_OK(truncate(path, (off_t)SIZE), path);
	memset(want + 100000, 0, SIZE - 100000);
	TRY(both_bytes(t, "k", want, SIZE));
	EXPECT_OK(truncate(path, 0), path);
	struct stat st;
	EXPECT_OK(stat(path, &st), path);
	EXPECT(st.st_size == 0, "expected k empty");
	if (eng.mode != ENG_PLAIN) {
		TRY(reader_keeps(fd, "k", 0));
		TRY(reader_keeps(bfd, "k", 0));
	}
	close(fd);
	close(bfd);
	free(want);
	return 0;
}

static int append(const struct eng_dir *t)
{
	char path[ENG_PATH];
	char *want = eng_content("k", 0, SIZE);
	size_t at = 0;

	eng_join(path, t->d, "k");
	/* Three openings; each starts from what the last one published. */
	for (int i = 0; i < 3; i++) {
		int fd = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
		EXPECT_OK(fd, path);
		for (int j = 0; j < 4; j++) {
			EXPECT_OK(lseek(fd, 0, SEEK_SET), path);
			TRY(eng_write_all(fd, want + at, 10007, path));
			at += 10007;
		}
		EXPECT_OK(close(fd), path);
		TRY(both_bytes(t, "k", want, at));
	}
	free(want);
	return 0;
}

static int sparse(const struct eng_dir *t)
{
	char path[ENG_PATH];
	char *want = eng_alloc(SIZE);
	static const size_t at[] = { 400001, 70000, 4095, 8192, 300000 };

	int fd = open(eng_join(path, t->d, "k"), O_RDWR | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	for (size_t i = 0; i < 5; i++) {
		memset(want + at[i], 'a' + (int)i, 777);
		EXPECT(pwrite(fd, want + at[i], 777, (off_t)at[i]) == 777,
		       "expected 777 bytes at %zu", at[i]);
	}
	EXPECT_OK(ftruncate(fd, (off_t)SIZE), path);
	char *got = eng_alloc(SIZE);
	EXPECT(pread(fd, got, SIZE, 0) == (ssize_t)SIZE &&
		       memcmp(got, want, SIZE) == 0,
	       "expected zeros in the holes before the close");
	free(got);
	EXPECT_OK(close(fd), path);
	int rc = both_bytes(t, "k", want, SIZE);
	free(want);
	return rc;
}

static int fallocate_modes(const struct eng_dir *t)
{
	char path[ENG_PATH];
	char *want = eng_alloc(SIZE);
	struct stat st;

	int fd = open(eng_join(path, t->d, "keep"), O_RDWR | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	EXPECT_OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)SIZE), path);
	EXPECT_OK(fstat(fd, &st), path);
	EXPECT(st.st_size == 0, "expected KEEP_SIZE to keep the size 0, got "
	       "%lld", (long long)st.st_size);
	memset(want, 7, 1000);
	TRY(eng_write_all(fd, want, 1000, path));
	EXPECT_OK(close(fd), path);
	TRY(both_bytes(t, "keep", want, 1000));

	fd = open(eng_join(path, t->d, "grow"), O_RDWR | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	TRY(eng_write_all(fd, want, 1000, path));
	if (fallocate(fd, 0, 0, (off_t)SIZE) < 0) {
		EXPECT(errno == EOPNOTSUPP, "expected fallocate or EOPNOTSUPP, "
		       "got %s", strerror(errno));
		eng_note("fallocate mode 0 is refused");
		EXPECT_OK(ftruncate(fd, (off_t)SIZE), path);
	}
	EXPECT_OK(fstat(fd, &st), path);
	EXPECT(st.st_size == (off_t)SIZE, "expected the size set, got %lld",
	       (long long)st.st_size);
	EXPECT_OK(close(fd), path);
	int rc = both_bytes(t, "grow", want, SIZE);
	free(want);
	return rc;
}

static int mmap_shared(const struct eng_dir *t)
{
	char path[ENG_PATH], b[ENG_PATH];
	char *want = eng_content("k", 0, SIZE);

	int fd = open(eng_join(path, t->d, "k"), O_RDWR | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	EXPECT_OK(ftruncate(fd, (off_t)SIZE), path);
	char *map = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	EXPECT(map != MAP_FAILED, "expected a shared mapping, got %s",
	       strerror(errno));
	memcpy(map, want, SIZE / 2);
	EXPECT_OK(msync(map, SIZE, MS_SYNC), path);
	EXPECT_OK(close(fd), path);
	/* The mapping outlives the close, and so does the writing. */
	eng_sleep_ms(100);
	eng_join(b, t->b, "k");
	if (eng.mode != ENG_PLAIN)
		EXPECT_ERR(access(b, F_OK), ENOENT);
	memcpy(map + SIZE / 2, want + SIZE / 2, SIZE / 2);
	EXPECT_OK(munmap(map, SIZE), path);
	int rc = both_bytes(t, "k", want, SIZE);
	free(want);
	return rc;
}

static int mmap_private(const struct eng_dir *t)
{
	char path[ENG_PATH];

	TRY(put(t, "k", 0));
	TRY(eng_await(eng_join(path, t->b, "k"), "k", 1, SIZE, -1));
	void *map[2];
	for (int i = 0; i < 2; i++) {
		int fd = open(eng_join(path, i ? t->b : t->d, "k"), O_RDONLY);
		EXPECT_OK(fd, path);
		map[i] = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE, fd, 0);
		EXPECT(map[i] != MAP_FAILED, "expected to map %s", path);
		close(fd);
	}
	/* Rewritten and unlinked: the mappings keep what they mapped. */
	TRY(put(t, "k", 1));
	EXPECT_OK(unlink(eng_join(path, t->d, "k")), path);
	TRY(eng_await_gone(eng_join(path, t->b, "k")));
	for (int i = 0; i < 2; i++) {
		ssize_t bad = eng_mismatch(map[i], SIZE, eng_seed("k", 0));
		EXPECT(bad < 0, "expected the mapping through %s to keep its "
		       "bytes, differs at %zd", i ? "B" : "D", bad);
		munmap(map[i], SIZE);
	}
	return 0;
}

/* Odd offsets, odd sizes, odd addresses. */
static int o_direct_unaligned(const struct eng_dir *t)
{
	static const struct { off_t at; size_t len; } io[] = {
		{ 0, 13 }, { 13, 4096 }, { 4109, 1 }, { 4110, 100000 },
		{ 104110, SIZE - 104110 },
	};
	char path[ENG_PATH];
	char *want = eng_content("k", 0, SIZE), *got = eng_alloc(SIZE + 64);

	int fd = open(eng_join(path, t->d, "k"),
		      O_WRONLY | O_CREAT | O_DIRECT, 0644);
	EXPECT_OK(fd, path);
	for (size_t i = 0; i < 5; i++)
		EXPECT(pwrite(fd, want + io[i].at, io[i].len, io[i].at) ==
			       (ssize_t)io[i].len,
		       "expected an O_DIRECT write of %zu at %lld, got %s",
		       io[i].len, (long long)io[i].at, strerror(errno));
	EXPECT_OK(close(fd), path);
	TRY(both_bytes(t, "k", want, SIZE));
	for (int side = 0; side < 2; side++) {
		fd = open(eng_join(path, side ? t->b : t->d, "k"),
			  O_RDONLY | O_DIRECT);
		EXPECT_OK(fd, path);
		for (size_t i = 0; i < 5; i++) {
			ssize_t n = pread(fd, got + 3, io[i].len, io[i].at);
			EXPECT(n == (ssize_t)io[i].len &&
				       memcmp(got + 3, want + io[i].at,
					      io[i].len) == 0,
			       "expected an O_DIRECT read of %zu at %lld of "
			       "%s, got %zd", io[i].len, (long long)io[i].at,
			       path, n);
		}
		EXPECT(pread(fd, got, SIZE, (off_t)SIZE - 10) == 10,
		       "expected 10 bytes before the end");
		EXPECT(pread(fd, got, 10, (off_t)SIZE) == 0,
		       "expected the end of the file");
		close(fd);
	}
	free(want);
	free(got);
	return 0;
}

static int o_excl(const struct eng_dir *t)
{
	char path[ENG_PATH], b[ENG_PATH];

	TRY(put(t, "k", 0));
	eng_join(path, t->d, "k");
	EXPECT_ERR(open(path, O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
	TRY(eng_await(eng_join(b, t->b, "k"), "k", 1, SIZE, -1));
	EXPECT_ERR(open(b, O_WRONLY | O_CREAT | O_EXCL, 0644), EEXIST);
	EXPECT_ERR(open(path, O_RDONLY | O_DIRECTORY), ENOTDIR);
	EXPECT_ERR(open(t->d, O_WRONLY), EISDIR);
	return 0;
}

/* Opened for writing: starts as a copy; unchanged, it stays as it was. */
static int rewrite_in_place(const struct eng_dir *t)
{
	char path[ENG_PATH], b[ENG_PATH];
	char *want = eng_content("k", 0, SIZE);
	struct stat before, after;

	TRY(put(t, "k", 0));
	eng_join(path, t->d, "k");
	TRY(eng_await(eng_join(b, t->b, "k"), "k", 1, SIZE, -1));
	EXPECT_OK(stat(b, &before), b);

	int fd = open(path, O_RDWR);
	EXPECT_OK(fd, path);
	TRY(reader_keeps(fd, "k", 0));
	EXPECT_OK(close(fd), path);
	TRY(both_bytes(t, "k", want, SIZE));
	EXPECT_OK(stat(b, &after), b);
	EXPECT(after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
		       after.st_mtim.tv_nsec == before.st_mtim.tv_nsec,
	       "expected an opened, unchanged file to keep its mtime");

	int old = open(path, O_RDONLY), oldb = open(b, O_RDONLY);
	EXPECT(old >= 0 && oldb >= 0, "expected to open k twice");
	fd = open(path, O_RDWR);
	EXPECT_OK(fd, path);
	memset(want + 5000, 9, 100);
	EXPECT(pwrite(fd, want + 5000, 100, 5000) == 100,
	       "expected 100 bytes written");
	if (eng.mode != ENG_PLAIN) {
		TRY(eng_await(b, "k", 1, SIZE, 0));
		TRY(reader_keeps(old, "k", 0));
	}
	EXPECT_OK(close(fd), path);
	TRY(both_bytes(t, "k", want, SIZE));
	if (eng.mode != ENG_PLAIN) {
		TRY(reader_keeps(old, "k", 0));
		TRY(reader_keeps(oldb, "k", 0));
	}
	close(old);
	close(oldb);

	/* And by the node that has only borrowed or fetched it. */
	fd = open(b, O_RDWR);
	EXPECT_OK(fd, b);
	memset(want + 9000, 8, 100);
	EXPECT(pwrite(fd, want + 9000, 100, 9000) == 100,
	       "expected 100 bytes written");
	EXPECT_OK(close(fd), b);
	TRY(both_bytes(t, "k", want, SIZE));
	free(want);
	return 0;
}

/* O_TRUNC over a published file, with readers of the old bytes. */
static int rewrite_truncated(const struct eng_dir *t)
{
	char path[ENG_PATH], b[ENG_PATH];

	TRY(put(t, "k", 0));
	eng_join(path, t->d, "k");
	TRY(eng_await(eng_join(b, t->b, "k"), "k", 1, SIZE, -1));
	int old = open(path, O_RDONLY), oldb = open(b, O_RDONLY);
	EXPECT(old >= 0 && oldb >= 0, "expected to open k twice");
	char *buf = eng_content("k", 1, SIZE);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	EXPECT_OK(fd, path);
	TRY(eng_write_all(fd, buf, SIZE / 2, path));
	if (eng.mode != ENG_PLAIN) {
		TRY(reader_keeps(old, "k", 0));
		TRY(reader_keeps(oldb, "k", 0));
		TRY(eng_await(b, "k", 1, SIZE, 0));
	}
	TRY(eng_write_all(fd, buf + SIZE / 2, SIZE / 2, path));
	EXPECT_OK(close(fd), path);
	TRY(both_bytes(t, "k", buf, SIZE));
	free(buf);
	if (eng.mode != ENG_PLAIN) {
		TRY(reader_keeps(old, "k", 0));
		TRY(reader_keeps(oldb, "k", 0));
	}
	close(old);
	close(oldb);
	return 0;
}

static int empty_file(const struct eng_dir *t)
{
	char path[ENG_PATH];
	struct stat st;

	int fd = open(eng_join(path, t->d, "empty"), O_WRONLY | O_CREAT, 0644);
	EXPECT_OK(fd, path);
	EXPECT_OK(close(fd), path);
	EXPECT_OK(stat(path, &st), path);
	TRY(eng_await_name(eng_join(path, t->b, "empty")));
	EXPECT_OK(stat(path, &st), path);
	EXPECT(st.st_size == 0, "expected 0 bytes");
	fd = open(path, O_RDONLY);
	EXPECT_OK(fd, path);
	char c;
	EXPECT(read(fd, &c, 1) == 0, "expected the end of an empty file");
	close(fd);
	return 0;
}

/* Two nodes make the same name, the second a little later each time: what the
 * other has published meanwhile may be opened or replaced, never be an error.
 */
#define BOTH_NAMES 400
#define BOTH_STEP_US 20
static int both_create_thread(unsigned node, void *arg)
{
	const struct eng_dir *t = arg;
	char path[ENG_PATH], name[32], line[8] = "node 0\n";

	line[5] = (char)('0' + node);
	for (unsigned i = 0; i < BOTH_NAMES; i++) {
		snprintf(name, sizeof(name), "both%u", i);
		eng_join(path, node ? t->b : t->d, name);
		if (access(path, F_OK) < 0)
			EXPECT(errno == ENOENT, "expected %s or ENOENT, got %s",
			       path, strerror(errno));
		if (node)
			usleep(i % 100 * BOTH_STEP_US);
		int fd = open(path, O_RDWR | O_CREAT | (i % 2 ? O_TRUNC : 0),
			      0644);
		EXPECT_OK(fd, path);
		TRY(eng_write_all(fd, line, 7, path));
		EXPECT_OK(close(fd), path);
	}
	return 0;
}
static int both_create(const struct eng_dir *t)
{
	return eng_parallel(2, both_create_thread, (void *)(uintptr_t)t);
}

static int reopen(int fd, int flags)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, flags | O_CLOEXEC);
}

/* The size that is at path by then, through either mount. */
static int await_size(const char *path, off_t size)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	struct stat st = { 0 };

	while (stat(path, &st) < 0 || st.st_size != size) {
		EXPECT(eng_now() < end, "expected %lld bytes of %s, got %lld",
		       (long long)size, path, (long long)st.st_size);
		eng_sleep_ms(2);
	}
	return 0;
}

/* To who writes by a descriptor, in passthrough mode, the kernel has no way. */
static int reopen_to_write(const struct eng_dir *t, int fd)
{
	char b[ENG_PATH], d[ENG_PATH];
	int w = reopen(fd, O_RDWR);

	eng_join(d, t->d, "k");
	eng_join(b, t->b, "k");
	if (eng.mode == ENG_PASSTHROUGH) {
		EXPECT(w < 0 && errno == ETXTBSY, "expected ETXTBSY, got %s",
		       w < 0 ? strerror(errno) : "success");
		return 0;
	}
	EXPECT_OK(w, "reopening to write");
	EXPECT(pwrite(w, "new", 3, SIZE) == 3, "expected to append");
	EXPECT_OK(close(w), "closing");
	TRY(await_size(d, SIZE + 3));
	TRY(await_size(b, SIZE + 3));
	/* Opened, and not changed. */
	w = reopen(fd, O_RDWR);
	EXPECT_OK(w, "reopening to write");
	EXPECT_OK(close(w), "closing");
	return 0;
}

/* By /proc/self/fd there is no name that the kernel could look up again. */
static int by_descriptor(const struct eng_dir *t)
{
	char d[ENG_PATH], b[ENG_PATH], path[64], byte;

	TRY(put(t, "k", 0));
	TRY(eng_sync_dir(t->d));
	int fd = open(eng_join(d, t->d, "k"), O_RDONLY | O_CLOEXEC);
	EXPECT_OK(fd, d);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	TRY(reopen_to_write(t, fd));
	int r = reopen(fd, O_RDONLY);
	EXPECT_OK(r, "reopening to read");
	EXPECT(pread(r, &byte, 1, SIZE - 1) == 1, "expected to read it");
	EXPECT_OK(close(r), "closing");
	EXPECT_OK(truncate(path, 1000), path);
	TRY(await_size(d, 1000));
	TRY(await_size(eng_join(b, t->b, "k"), 1000));
	/* Who has it open keeps it; and once more, when it has no name. */
	if (eng.mode != ENG_PLAIN)
		EXPECT(pread(fd, &byte, 1, SIZE - 1) == 1,
		       "expected the open one to stay");
	EXPECT_OK(unlink(d), d);
	r = reopen(fd, O_RDONLY);
	EXPECT_OK(r, "reopening what was unlinked");
	EXPECT(pread(r, &byte, 1, 500) == 1, "expected to read it");
	EXPECT_OK(close(r), "closing");
	EXPECT_OK(close(fd), "closing");
	EXPECT_ERR(access(d, F_OK), ENOENT);
	return 0;
}

const struct eng_test eng_posix_data[] = {
	{ "posix_truncate_path", truncate_path },
	{ "posix_append", append },
	{ "posix_sparse", sparse },
	{ "posix_fallocate", fallocate_modes },
	{ "posix_mmap_shared", mmap_shared },
	{ "posix_mmap_private", mmap_private },
	{ "posix_o_direct_unaligned", o_direct_unaligned },
	{ "posix_o_excl", o_excl },
	{ "posix_rewrite_in_place", rewrite_in_place },
	{ "posix_rewrite_truncated", rewrite_truncated },
	{ "posix_empty_file", empty_file },
	{ "posix_both_create", both_create },
	{ "posix_by_descriptor", by_descriptor },
	{ NULL, NULL },
};
