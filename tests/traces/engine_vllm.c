/* vLLM's fs tier, llm-d, and vLLM's ExampleConnector over safetensors. */
#include "tests/traces/engine.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/xattr.h>

/* ------------------------------------------------------------ T7 vllm_fs */

#define T7_THREADS 16
#define T7_CRC "user.vllm.kv_crc32c"
#define T7_PROBES 3600

struct t7 {
	const struct eng_dir *t;
	const char *dir; /* store: which node */
	size_t size;
	unsigned n; /* keys */
	unsigned version;
};

/* <model>_<12 hex>_r0/<hhh>/<hh>_g0/<hash>.bin */
static void t7_key(char key[200], unsigned i, size_t size)
{
	uint64_t h = eng_seed("vllm", i + (unsigned)size);

	snprintf(key, 200, "m_00c0ffee0123_r0/%03x/%02x_g0/%016llx%08x.bin",
		 (unsigned)(h & 0x7), (unsigned)(h >> 12 & 0x3),
		 (unsigned long long)h, i);
}

/* makedirs: walk up to what exists, then create downwards. */
static int t7_makedirs(const char *dir, const char *key)
{
	char path[ENG_PATH], part[200];

	for (const char *s = strchr(key, '/'); s; s = strchr(s + 1, '/')) {
		snprintf(part, sizeof(part), "%.*s", (int)(s - key), key);
		TRY(eng_mkdir(eng_join(path, dir, part)));
	}
	return 0;
}

static int t7_store(const struct t7 *c, const char *key)
{
	char dst[ENG_PATH], tmp[ENG_PATH + 32];
	uint32_t crc = (uint32_t)eng_seed(key, c->version);

	eng_join(dst, c->dir, key);
	if (access(dst, F_OK) == 0)
		return 0;
	EXPECT(errno == ENOENT, "expected ENOENT of %s, got %s", dst,
	       strerror(errno));
	TRY(t7_makedirs(c->dir, key));
	/* The generator is seeded: each node has the same "random" names. */
	snprintf(tmp, sizeof(tmp), "%s_%llu.tmp", dst,
		 (unsigned long long)eng_seed(key, 0) >> 1);
	if (eng.mode == ENG_PLAIN)
		snprintf(tmp, sizeof(tmp), "%s_%llu.tmp", dst,
			 (unsigned long long)eng_seed(key, c->version) >> 1);
	int fd = open(tmp,
		      O_WRONLY | O_CREAT | O_EXCL | O_TRUNC | O_DIRECT |
			      O_CLOEXEC,
		      0644);
	EXPECT(fd >= 0, "expected to create %s, got %s", tmp, strerror(errno));
	char *buf = eng_content(key, c->version, c->size);
	int rc = eng_write_all(fd, buf, c->size, tmp);
	free(buf);
	if (rc == 0 && fsetxattr(fd, T7_CRC, &crc, sizeof(crc), 0) < 0)
		rc = eng_fail(__func__, __LINE__,
			      "expected xattr %s to be accepted on %s, got %s",
			      T7_CRC, tmp, strerror(errno));
	EXPECT_OK(close(fd), tmp);
	TRY(rc);
	EXPECT_OK(rename(tmp, dst), dst);
	return 0;
}

static int t7_store_thread(unsigned i, void *arg)
{
	const struct t7 *c = arg;
	char key[200];

	for (unsigned k = i; k < c->n; k += T7_THREADS) {
		t7_key(key, k, c->size);
		TRY(t7_store(c, key));
	}
	return 0;
}

static int t7_load_thread(unsigned i, void *arg)
{
	const struct t7 *c = arg;
	char key[200], path[ENG_PATH];

	for (unsigned k = i; k < c->n; k += T7_THREADS) {
		uint32_t crc = 0;
		int v = -1;

		t7_key(key, k, c->size);
		eng_join(path, c->dir, key);
		TRY(eng_await(path, key, 2, c->size, -1));
		EXPECT(eng_read(path, O_DIRECT, key, 2, c->size, &v) == 0,
		       "expected %s to stay", path);
		ssize_t n = getxattr(path, T7_CRC, &crc, sizeof(crc));
		EXPECT(n == sizeof(crc), "expected %s of %s, got %zd (%s)",
		       T7_CRC, path, n, strerror(errno));
		EXPECT(crc == (uint32_t)eng_seed(key, (unsigned)v),
		       "expected the %s of version %d of %s", T7_CRC, v, path);
	}
	return 0;
}

static int t7_size(const struct eng_dir *t, size_t size, unsigned n)
{
	struct t7 store = { t, t->d, size, eng_count(n, size), 0 };
	struct t7 load = store;
	struct eng_poller p;
	char key[200];

	eng_poller_init(&p);
	for (unsigned i = 0; i < store.n; i++) {
		t7_key(key, i, size);
		eng_poller_add(&p, t->b, key, 2, size);
	}
	int rc = eng_poller_start(&p, false);
	if (rc == 0)
		rc = eng_parallel(T7_THREADS, t7_store_thread, &store);
	if (rc == 0)
		rc = eng_parallel(T7_THREADS, t7_load_thread, &load);
	load.dir = t->b;
	if (rc == 0)
		rc = eng_parallel(T7_THREADS, t7_load_thread, &load);
	eng_poller_fini(&p);
	return rc;
}

/* Both nodes store the same keys at once, by the same temporary names. */
static int t7_both_thread(unsigned node, void *arg)
{
	const struct t7 *both = arg;
	char key[200];

	for (unsigned k = 0; k < both[node].n; k++) {
		t7_key(key, 5000 + k, both[node].size);
		TRY(t7_store(&both[node], key));
	}
	return 0;
}

static int t7_both(const struct eng_dir *t)
{
	unsigned n = eng_count(64, 256 * KIB);
	struct t7 both[2] = { { t, t->d, 256 * KIB, n, 0 },
			      { t, t->b, 256 * KIB, n, 1 } };
	char key[200], path[ENG_PATH];

	TRY(eng_parallel(2, t7_both_thread, both));
	for (unsigned k = 0; k < n; k++) {
		t7_key(key, 5000 + k, 256 * KIB);
		TRY(eng_await(eng_join(path, t->d, key), key, 2, 256 * KIB,
			      -1));
		TRY(eng_await(eng_join(path, t->b, key), key, 2, 256 * KIB,
			      -1));
	}
	return 0;
}

static int t7_probe_thread(unsigned i, void *arg)
{
	const struct eng_dir *t = arg;
	char path[ENG_PATH];
	char doc[64];

	/* Start-up: an O_DIRECT probe, config.json by both nodes at once. */
	const char *dir = i ? t->b : t->d;
	eng_join(path, dir, ".o_direct_probe_x.tmp");
	if (i && eng.mode == ENG_PLAIN)
		eng_join(path, dir, ".o_direct_probe_y.tmp");
	int fd = open(path, O_WRONLY | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
	EXPECT_OK(fd, path);
	void *page = eng_alloc(4096);
	int rc = eng_write_all(fd, page, 4096, path);
	free(page);
	close(fd);
	TRY(rc);
	EXPECT_OK(unlink(path), path);
	EXPECT_ERR(unlink(path), ENOENT);

	int n = snprintf(doc, sizeof(doc), "{\"node\": \"%c\"}", i ? 'b' : 'd');
	fd = open(eng_join(path, dir, "config.json"),
		  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	EXPECT_OK(fd, path);
	rc = eng_write_all(fd, doc, (size_t)n, path);
	EXPECT_OK(close(fd), path);
	return rc;
}

static int t7_config_check(const char *dir)
{
	char path[ENG_PATH], doc[64] = "";

	TRY(eng_await_name(eng_join(path, dir, "config.json")));
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	EXPECT_OK(fd, path);
	ssize_t n = read(fd, doc, sizeof(doc) - 1);
	close(fd);
	EXPECT(n == 13 && (strcmp(doc, "{\"node\": \"b\"}") == 0 ||
			   strcmp(doc, "{\"node\": \"d\"}") == 0),
	       "expected one node's whole config.json, got %zd bytes '%s'", n,
	       doc);
	return 0;
}

static int t7_lookup(const struct eng_dir *t)
{
	char key[200], path[ENG_PATH];
	unsigned hits = 0;

	for (unsigned turn = 0; turn < 2; turn++) {
		double start = eng_now();
		hits = 0;
		for (unsigned i = 0; i < T7_PROBES; i++) {
			/* 64 keys are there; every tenth probe is for one. */
			unsigned k = i % 10 ? 100000 + i : 5000 + i / 10 % 64;
			t7_key(key, k, 256 * KIB);
			hits += access(eng_join(path, t->d, key), F_OK) == 0;
		}
		eng_note("T7: %u look-ups, %u hits: %.1f ms (%s)", T7_PROBES,
			 hits, (eng_now() - start) * 1e3,
			 turn ? "again" : "first");
	}
	EXPECT(hits > 0 && hits <= T7_PROBES / 10,
	       "expected at most every tenth of %u look-ups to hit, got %u",
	       T7_PROBES, hits);
	return 0;
}

/* Gone between access and open: ENOENT, and again from unlink. */
static int t7_vanish(const struct eng_dir *t)
{
	char d[ENG_PATH], b[ENG_PATH];

	TRY(eng_put(t->d, "vanish.tmp", "vanish", 0, 2 * MIB, O_DIRECT));
	eng_join(d, t->d, "vanish");
	TRY(eng_await_name(eng_join(b, t->b, "vanish")));
	EXPECT_OK(access(b, F_OK), b);
	EXPECT_OK(unlink(d), d);
	EXPECT_ERR(open(d, O_RDONLY), ENOENT);
	EXPECT_ERR(unlink(d), ENOENT);
	TRY(eng_await_gone(b));
	EXPECT_ERR(open(b, O_RDONLY), ENOENT);
	EXPECT_ERR(unlink(b), ENOENT);
	return 0;
}

static int t7(const struct eng_dir *t)
{
	TRY(eng_parallel(2, t7_probe_thread, (void *)(uintptr_t)t));
	TRY(t7_config_check(t->d));
	TRY(t7_config_check(t->b));
	TRY(t7_size(t, 2 * MIB, 64));
	TRY(t7_size(t, 1124352, 64));
	TRY(t7_size(t, 32 * MIB, 4));
	TRY(t7_both(t));
	TRY(t7_lookup(t));
	return t7_vanish(t);
}

/* --------------------------------------------------------------- T8 llmd */

#define T8_SIZE (4 * MIB + 4096)

/* Rename while the file is open; the data may be visible only once whole. */
static int t8_store(const struct eng_dir *t, const char *key, bool split)
{
	char tmp[ENG_PATH], dst[ENG_PATH], name[80];

	snprintf(name, sizeof(name), "%s.tmp", key);
	eng_join(tmp, t->d, name);
	eng_join(dst, t->d, key);
	EXPECT_ERR(open(dst, O_RDONLY), ENOENT);
	int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	EXPECT_OK(fd, tmp);
	char *buf = eng_content(key, 0, T8_SIZE);
	size_t half = split ? T8_SIZE / 2 : T8_SIZE;
	struct iovec iov[2] = { { buf, half / 2 },
				{ buf + half / 2, half - half / 2 } };
	ssize_t n = writev(fd, iov, 2);
	int rc = n == (ssize_t)half ?
			 rename(tmp, dst) :
			 eng_fail(__func__, __LINE__,
				  "expected writev of %zu bytes, got %zd", half,
				  n);
	if (rc == 0 && split) {
		eng_sleep_ms(20);
		rc = eng_write_all(fd, buf + half, T8_SIZE - half, dst);
	}
	free(buf);
	EXPECT_OK(close(fd), dst);
	EXPECT_OK(rc, dst);
	return 0;
}

static int t8_touch(const struct eng_dir *t, const char *key)
{
	struct timespec times[2] = { { .tv_nsec = UTIME_NOW },
				     { .tv_nsec = UTIME_OMIT } };
	struct stat before, after;
	char path[ENG_PATH];

	int fd = open(eng_join(path, t->d, key), O_RDONLY | O_CLOEXEC);
	EXPECT_OK(fd, path);
	EXPECT_OK(fstat(fd, &before), path);
	close(fd);
	eng_sleep_ms(20);
	EXPECT_OK(utimensat(AT_FDCWD, path, times, 0), path);
	EXPECT_OK(stat(path, &after), path);
	EXPECT(after.st_mtim.tv_sec == before.st_mtim.tv_sec &&
		       after.st_mtim.tv_nsec == before.st_mtim.tv_nsec,
	       "expected the mtime of %s to stay", path);
	EXPECT(after.st_atim.tv_sec > before.st_atim.tv_sec ||
		       (after.st_atim.tv_sec == before.st_atim.tv_sec &&
			after.st_atim.tv_nsec > before.st_atim.tv_nsec),
	       "expected the atime of %s to move", path);
	return 0;
}

static int t8_load(const char *path, const char *key)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	EXPECT_OK(fd, path);
	off_t end = lseek(fd, 0, SEEK_END);
	off_t start = lseek(fd, 0, SEEK_SET);
	char *buf = eng_alloc(T8_SIZE);
	ssize_t n = read(fd, buf, T8_SIZE);
	int v = eng_version(buf, T8_SIZE, key, 1);
	free(buf);
	close(fd);
	EXPECT(end == (off_t)T8_SIZE && start == 0 && n == (ssize_t)T8_SIZE &&
		       v == 0,
	       "expected %zu right bytes of %s, end is %lld, read %zd, "
	       "version %d", T8_SIZE, path, (long long)end, n, v);
	return 0;
}

static int t8(const struct eng_dir *t)
{
	unsigned n = eng_count(12, T8_SIZE);
	struct eng_poller p;
	char key[64], path[ENG_PATH];
	int rc;

	TRY(eng_mkdir(eng_join(path, t->d, "model")));
	TRY(eng_mkdir(eng_join(path, t->d, "model/fp16")));
	eng_poller_init(&p);
	for (unsigned i = 0; i < n; i++) {
		snprintf(key, sizeof(key), "model/fp16/%016x.bin", i);
		eng_poller_add(&p, t->b, key, 1, T8_SIZE);
	}
	rc = eng_poller_start(&p, true);
	for (unsigned i = 0; i < n && rc == 0; i++) {
		snprintf(key, sizeof(key), "model/fp16/%016x.bin", i);
		rc = t8_store(t, key, i % 2);
		if (rc == 0)
			rc = t8_touch(t, key);
	}
	for (unsigned i = 0; i < n && rc == 0; i++) {
		snprintf(key, sizeof(key), "model/fp16/%016x.bin", i);
		eng_join(path, t->b, key);
		rc = eng_await(path, key, 1, T8_SIZE, -1);
		if (rc == 0)
			rc = t8_load(path, key);
		if (rc == 0)
			rc = t8_load(eng_join(path, t->d, key), key);
	}
	eng_poller_fini(&p);
	return rc;
}

/* -------------------------------------------------- T10 example_connector */

#define T10_LAYERS 32
#define T10_SIZE (256 * KIB + 80)

/* safetensors: 0600, ftruncate to the whole, header, data, rename, close. */
static int t10_layer(const char *dir, const char *key, unsigned i)
{
	char tmp[ENG_PATH], dst[ENG_PATH], name[64];

	snprintf(name, sizeof(name), "hash/.tmp%06x", i * 4099 + 1);
	eng_join(tmp, dir, name);
	eng_join(dst, dir, key);
	int fd = open(tmp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	EXPECT_OK(fd, tmp);
	EXPECT_OK(ftruncate(fd, (off_t)T10_SIZE), tmp);
	char *buf = eng_content(key, 0, T10_SIZE);
	int rc = eng_write_all(fd, buf, 80, tmp);
	if (rc == 0)
		rc = eng_write_all(fd, buf + 80, T10_SIZE - 80, tmp);
	free(buf);
	TRY(rc);
	EXPECT_OK(rename(tmp, dst), dst);
	EXPECT_OK(close(fd), dst);
	return 0;
}

/* Two mappings, both outliving their descriptors; one may be written. */
static int t10_load(const char *path, const char *key)
{
	for (int prot = PROT_READ;; prot |= PROT_WRITE) {
		int fd = open(path, O_RDONLY | O_CLOEXEC);
		EXPECT_OK(fd, path);
		uint64_t *map = mmap(NULL, T10_SIZE, prot, MAP_PRIVATE, fd, 0);
		close(fd);
		EXPECT(map != MAP_FAILED, "expected to map %s (%d), got %s",
		       path, prot, strerror(errno));
		ssize_t bad = eng_mismatch(map, T10_SIZE, eng_seed(key, 0));
		if (prot & PROT_WRITE)
			map[1] = 0; /* private: nobody else sees it */
		munmap(map, T10_SIZE);
		EXPECT(bad < 0, "expected %s whole, differs at %zd", path, bad);
		if (prot & PROT_WRITE)
			return 0;
	}
}

static int t10_read_all(const struct eng_dir *t)
{
	char key[64], path[ENG_PATH];
	struct stat st;

	TRY(eng_mkdir(eng_join(path, t->b, "hash")));
	for (unsigned i = 0; i < T10_LAYERS; i++) {
		snprintf(key, sizeof(key), "hash/layer.%u.safetensors", i);
		eng_join(path, t->b, key);
		TRY(eng_await(path, key, 1, T10_SIZE, -1));
		TRY(t10_load(path, key));
		TRY(t10_load(path, key));
		EXPECT_OK(stat(path, &st), path);
		EXPECT((st.st_mode & 07777) == 0600,
		       "expected mode 0600 of %s, got %o", path,
		       st.st_mode & 07777);
		TRY(t10_load(eng_join(path, t->d, key), key));
	}
	return 0;
}

/* An open empty lock file, at once on the same node. */
static int t10_lock(const struct eng_dir *t)
{
	char path[ENG_PATH];
	struct stat st;

	int a = open(eng_join(path, t->d, "hidden.safetensors.lock"),
		     O_RDWR | O_CREAT | O_CLOEXEC, 0644);
	EXPECT_OK(a, path);
	EXPECT_OK(flock(a, LOCK_EX), path);
	EXPECT_OK(stat(path, &st), path);
	int b = open(path, O_RDWR | O_CLOEXEC);
	EXPECT_OK(b, path);
	EXPECT_ERR(flock(b, LOCK_SH | LOCK_NB), EWOULDBLOCK);
	EXPECT_OK(flock(a, LOCK_UN), path);
	EXPECT_OK(flock(b, LOCK_SH), path);
	close(a);
	close(b);
	return 0;
}

static int t10(const struct eng_dir *t)
{
	struct eng_poller p;
	char key[64], path[ENG_PATH];
	int rc;

	TRY(eng_mkdir(eng_join(path, t->d, "hash")));
	eng_poller_init(&p);
	for (unsigned i = 0; i < T10_LAYERS; i++) {
		snprintf(key, sizeof(key), "hash/layer.%u.safetensors", i);
		eng_poller_add(&p, t->b, key, 1, T10_SIZE);
	}
	rc = eng_poller_start(&p, true);
	for (unsigned i = 0; i < T10_LAYERS && rc == 0; i++) {
		snprintf(key, sizeof(key), "hash/layer.%u.safetensors", i);
		rc = t10_layer(t->d, key, i);
	}
	if (rc == 0)
		rc = t10_read_all(t);
	eng_poller_fini(&p);
	return rc ? rc : t10_lock(t);
}

const struct eng_test eng_vllm[] = {
	{ "T7_vllm_fs", t7 },
	{ "T8_llmd", t8 },
	{ "T10_example_connector", t10 },
	{ NULL, NULL },
};
