/* LMCache: local_disk in place, fs:// temp + rename, GDS by mmap. */
#include "tests/traces/engine.h"

#include <sys/mman.h>

/* ------------------------------------------------- T1 lmcache_local_disk */

#define T1_THREADS 4
#define T1_SIZE (32 * MIB)

struct t1 {
	const struct eng_dir *t;
	unsigned per_thread;
	int flags; /* O_DIRECT, or 0 for the buffered variant */
	const char *tag;
};

static void t1_key(char key[256], const struct t1 *c, unsigned thread,
		   unsigned i)
{
	snprintf(key, 256, "m@1@0@%s%062x@bfloat16.pt", c->tag,
		 thread * 1000 + i);
}

static int t1_store(const struct t1 *c, const char *key)
{
	char path[ENG_PATH], other[ENG_PATH];

	eng_join(path, c->t->d, key);
	eng_join(other, c->t->b, key);
	int fd = open(path, O_CREAT | O_WRONLY | c->flags, 0644);
	EXPECT_OK(fd, path);
	if (!c->flags)
		EXPECT_OK(ftruncate(fd, 0), path);
	void *buf = eng_content(key, 0, T1_SIZE);
	int rc = eng_write_all(fd, buf, T1_SIZE, path);
	free(buf);
	if (rc == 0 && eng.mode != ENG_PLAIN && access(other, F_OK) == 0)
		rc = eng_fail(__func__, __LINE__,
			      "expected %s absent before its close", other);
	EXPECT_OK(close(fd), path);
	return rc;
}

static int t1_thread(unsigned thread, void *arg)
{
	const struct t1 *c = arg;
	char key[256], path[ENG_PATH];

	for (unsigned i = 0; i < c->per_thread; i++) {
		t1_key(key, c, thread, i);
		TRY(t1_store(c, key));
		/* At once on its own node. */
		eng_join(path, c->t->d, key);
		EXPECT(eng_read(path, O_DIRECT, key, 1, T1_SIZE, NULL) == 0,
		       "expected %s on its own node at once", path);
	}
	return 0;
}

static int t1_unlink(unsigned thread, void *arg)
{
	const struct t1 *c = arg;
	char key[256], path[ENG_PATH], other[ENG_PATH];

	for (unsigned i = 0; i < c->per_thread; i++) {
		t1_key(key, c, thread, i);
		eng_join(path, c->t->d, key);
		eng_join(other, c->t->b, key);
		TRY(eng_await(other, key, 1, T1_SIZE, -1));
		EXPECT_OK(unlink(path), path);
		EXPECT_ERR(access(path, F_OK), ENOENT);
		TRY(eng_await_gone(other));
	}
	return 0;
}

static int t1_variant(const struct eng_dir *t, int flags, const char *tag)
{
	struct t1 c = { t, 0, flags, tag };
	struct eng_poller p;
	char key[256];

	c.per_thread = (eng_count(8, T1_SIZE) + T1_THREADS - 1) / T1_THREADS;
	eng_poller_init(&p);
	for (unsigned i = 0; i < T1_THREADS; i++) {
		for (unsigned k = 0; k < c.per_thread; k++) {
			t1_key(key, &c, i, k);
			eng_poller_add(&p, t->b, key, 1, T1_SIZE);
		}
	}
	int rc = eng_poller_start(&p, true);
	if (rc == 0)
		rc = eng_parallel(T1_THREADS, t1_thread, &c);
	if (rc == 0)
		rc = eng_parallel(T1_THREADS, t1_unlink, &c);
	eng_poller_fini(&p);
	return rc;
}

static int t1(const struct eng_dir *t)
{
	TRY(t1_variant(t, O_DIRECT, "aa"));
	return t1_variant(t, 0, "bb");
}

/* -------------------------------------------------------- T2 lmcache_fs */

#define T2_HEADER 28
#define T2_SIZE (2 * MIB + T2_HEADER)

static int t2_miss(unsigned i, void *arg)
{
	const struct eng_dir *t = arg;
	char path[ENG_PATH], name[64];
	struct stat st;

	snprintf(name, sizeof(name), "m@1@0@%040x.data", i);
	eng_join(path, t->d, name);
	EXPECT_ERR(stat(path, &st), ENOENT);
	return 0;
}

/* Header, then the rest, into tmp; close; rename over key. */
static int t2_put(const char *dir, const char *tmp, const char *key,
		  unsigned version)
{
	char from[ENG_PATH], to[ENG_PATH];

	eng_join(from, dir, tmp);
	eng_join(to, dir, key);
	int fd = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	EXPECT_OK(fd, from);
	char *buf = eng_content(key, version, T2_SIZE);
	int rc = eng_write_all(fd, buf, T2_HEADER, from);
	if (rc == 0)
		rc = eng_write_all(fd, buf + T2_HEADER, T2_SIZE - T2_HEADER,
				   from);
	free(buf);
	EXPECT_OK(close(fd), from);
	TRY(rc);
	EXPECT_OK(rename(from, to), to);
	struct stat st;
	EXPECT_OK(stat(to, &st), to);
	return 0;
}

/* get: header by one read, the body by another. */
static int t2_get(const char *dir, const char *key, unsigned nver)
{
	char path[ENG_PATH];

	eng_join(path, dir, key);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT_OK(fd, path);
	char *buf = eng_alloc(T2_SIZE);
	ssize_t a = read(fd, buf, T2_HEADER);
	ssize_t b = read(fd, buf + T2_HEADER, T2_SIZE - T2_HEADER);
	int v = eng_version(buf, T2_SIZE, key, nver);
	free(buf);
	close(fd);
	EXPECT(a == T2_HEADER && b == (ssize_t)(T2_SIZE - T2_HEADER) && v >= 0,
	       "expected %s in reads of %d and %zu, got %zd, %zd, version %d",
	       path, T2_HEADER, T2_SIZE - T2_HEADER, a, b, v);
	return 0;
}

static int t2_basic(const struct eng_dir *t)
{
	char key[64], tmp[80], path[ENG_PATH];
	unsigned n = eng_count(16, T2_SIZE);

	TRY(eng_parallel(64, t2_miss, (void *)(uintptr_t)t));
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "m@1@0@%040x.data", i);
		snprintf(tmp, sizeof(tmp), "m@1@0@%040x.tmp", i);
		TRY(t2_put(t->d, tmp, key, 0));
		TRY(t2_get(t->d, key, 1));
	}
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "m@1@0@%040x.data", i);
		TRY(eng_await(eng_join(path, t->b, key), key, 1, T2_SIZE, -1));
		TRY(t2_get(t->b, key, 1));
	}
	return 0;
}

/* Every put rewrites and renames over the published file. */
static int t2_rewrite(const struct eng_dir *t)
{
	const char *key = "rewritten.data";
	char path[ENG_PATH];
	struct eng_poller p;
	int rc;

	TRY(t2_put(t->d, "rewritten.tmp", key, 0));
	eng_poller_init(&p);
	eng_poller_add(&p, t->b, key, 12, T2_SIZE);
	rc = eng_poller_start(&p, false);
	for (unsigned v = 1; v < 12 && rc == 0; v++) {
		/* Of what two nodes put, the master has the last word: the
		 * last one is the last only if it knows the others. */
		if (v == 11)
			rc = eng_sync_dir(t->d);
		if (rc == 0)
			rc = t2_put(v % 2 ? t->b : t->d, "rewritten.tmp", key,
				    v);
	}
	eng_poller_fini(&p);
	TRY(rc);
	TRY(eng_await(eng_join(path, t->d, key), key, 12, T2_SIZE, 11));
	return eng_await(eng_join(path, t->b, key), key, 12, T2_SIZE, 11);
}

/*
 * The same key, the same temporary name, both nodes at once; on one the
 * temporary of the other is unlinked as LMCache does when a put fails.
 */
static int t2_collide_thread(unsigned node, void *arg)
{
	const struct eng_dir *t = arg;
	char key[64], tmp[64], path[ENG_PATH];

	for (unsigned i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "collide%u.data", i);
		snprintf(tmp, sizeof(tmp), "collide%u.tmp", i);
		TRY(t2_put(node ? t->b : t->d, tmp, key, node));
		if (node) {
			EXPECT_ERR(unlink(eng_join(path, t->b, tmp)), ENOENT);
			snprintf(tmp, sizeof(tmp), "collide%u.tmp", i + 1);
			EXPECT_ERR(unlink(eng_join(path, t->b, tmp)), ENOENT);
		}
	}
	return 0;
}

static int t2_collide(const struct eng_dir *t)
{
	char key[64], d[ENG_PATH], b[ENG_PATH];
	int v = -1;

	if (eng.mode == ENG_PLAIN) {
		eng_note("T2: equal temporaries of two nodes skipped: a plain "
			 "directory mixes them");
		return 0;
	}
	TRY(eng_parallel(2, t2_collide_thread, (void *)(uintptr_t)t));
	for (unsigned i = 0; i < 8; i++) {
		snprintf(key, sizeof(key), "collide%u.data", i);
		eng_join(d, t->d, key);
		eng_join(b, t->b, key);
		TRY(eng_await(d, key, 2, T2_SIZE, -1));
		/* Which one won is free; both nodes must come to agree. */
		double end = eng_now() + ENG_DEADLINE_MS / 1e3;
		for (;;) {
			int w = -1;
			int rd = eng_read(d, 0, key, 2, T2_SIZE, &v);
			int rb = eng_read(b, 0, key, 2, T2_SIZE, &w);
			if (rd == -1 || rb == -1)
				return -1;
			if (rd == 0 && rb == 0 && v == w)
				break;
			EXPECT(eng_now() < end,
			       "expected both nodes to agree on %s, D has "
			       "version %d, B %d", key, v, w);
			eng_sleep_ms(5);
		}
	}
	return 0;
}

static int t2_cross_dir(const struct eng_dir *t)
{
	char dir[ENG_PATH], path[ENG_PATH];

	TRY(eng_mkdir(eng_join(dir, t->d, "tmp")));
	TRY(t2_put(t->d, "tmp/k", "crossed.data", 0));
	EXPECT_ERR(access(eng_join(path, t->d, "tmp/k"), F_OK), ENOENT);
	return eng_await(eng_join(path, t->b, "crossed.data"), "crossed.data",
			 1, T2_SIZE, -1);
}

static int t2(const struct eng_dir *t)
{
	TRY(t2_basic(t));
	TRY(t2_rewrite(t));
	TRY(t2_collide(t));
	return t2_cross_dir(t);
}

/* -------------------------------------------------- T3 lmcache_gds_mmap */

#define T3_HEADER ((size_t)4096)
#define T3_SIZE (8 * MIB)

/* The mapping outlives its descriptor, and is filled from its end. */
static int t3_fill(const char *path, const char *content)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);

	EXPECT_OK(fd, path);
	EXPECT_OK(ftruncate(fd, (off_t)(T3_HEADER + T3_SIZE)), path);
	char *map = mmap(NULL, T3_HEADER + T3_SIZE, PROT_READ | PROT_WRITE,
			 MAP_SHARED, fd, 0);
	EXPECT_OK(close(fd), path);
	EXPECT(map != MAP_FAILED, "expected a shared writable mapping of %s, "
	       "got %s", path, strerror(errno));
	bool zero = map[T3_HEADER] == 0 && map[T3_HEADER + T3_SIZE - 1] == 0;
	for (size_t at = T3_SIZE; at > 0; at -= 64 * KIB) {
		size_t off = T3_HEADER + at - 64 * KIB;
		memcpy(map + off, content + off, 64 * KIB);
	}
	EXPECT_OK(munmap(map, T3_HEADER + T3_SIZE), path);
	EXPECT(zero, "expected zeros in the hole of %s", path);
	return 0;
}

static int t3_store(const struct eng_dir *t, const char *key)
{
	char tmp[ENG_PATH], path[ENG_PATH], name[320];

	snprintf(name, sizeof(name), "%s.tmp", key);
	eng_join(tmp, t->d, name);
	eng_join(path, t->d, key);
	char *content = eng_content(key, 0, T3_HEADER + T3_SIZE);
	int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int rc = fd < 0 ? eng_fail(__func__, __LINE__, "expected to create %s",
				   tmp) :
			  eng_write_all(fd, content, T3_HEADER, tmp);
	if (fd >= 0)
		close(fd);
	if (rc == 0)
		rc = t3_fill(tmp, content);
	free(content);
	TRY(rc);
	EXPECT_OK(rename(tmp, path), path);
	snprintf(name, sizeof(name), "%s.metadata", key);
	char name_tmp[330];
	snprintf(name_tmp, sizeof(name_tmp), "%s.tmp", name);
	return eng_put(t->d, name_tmp, name, 0, 200, 0);
}

/* On B: the metadata is there, so the data must be, complete. */
static int t3_load(const char *dir, const char *key, const char *meta)
{
	char path[ENG_PATH];
	size_t n = T3_HEADER + T3_SIZE;

	TRY(eng_await(eng_join(path, dir, meta), meta, 1, 200, -1));
	eng_join(path, dir, key);
	int fd = open(path, O_RDONLY | O_NOATIME | O_CLOEXEC);
	EXPECT(fd >= 0, "expected %s beside its metadata, got %s", path,
	       strerror(errno));
	char head[T3_HEADER];
	ssize_t got = read(fd, head, T3_HEADER);
	char *map = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_POPULATE, fd, 0);
	close(fd);
	EXPECT(map != MAP_FAILED, "expected to map %s, got %s", path,
	       strerror(errno));
	bool same = got == (ssize_t)T3_HEADER &&
		    memcmp(head, map, T3_HEADER) == 0;
	ssize_t bad = eng_mismatch(map, n, eng_seed(key, 0));
	munmap(map, n);
	EXPECT(same, "expected read and map of %s to agree", path);
	EXPECT(bad < 0, "expected %s whole through a map, differs at %zd", path,
	       bad);
	return 0;
}

static int t3(const struct eng_dir *t)
{
	char dir[ENG_PATH], key[300], meta[320];

	TRY(eng_mkdir(eng_join(dir, t->d, "a")));
	TRY(eng_mkdir(eng_join(dir, t->d, "a/b")));
	for (unsigned i = 0; i < eng_count(6, T3_SIZE); i++) {
		snprintf(key, sizeof(key), "a/b/m@%u@0@%040x.safetensors", i,
			 i * 7919);
		snprintf(meta, sizeof(meta), "%s.metadata", key);
		TRY(t3_store(t, key));
		TRY(t3_load(t->d, key, meta));
		TRY(t3_load(t->b, key, meta));
	}
	return 0;
}

const struct eng_test eng_lmcache[] = {
	{ "T1_lmcache_local_disk", t1 },
	{ "T2_lmcache_fs", t2 },
	{ "T3_lmcache_gds_mmap", t3 },
	{ NULL, NULL },
};
