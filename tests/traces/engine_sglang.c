/* SGLang: the file backend, its directory scans, nixl in place. */
#include "tests/traces/engine.h"

#include <dirent.h>
#include <linux/aio_abi.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>

/* --------------------------------------------------------- T4 sglang_file */

struct t4 {
	const struct eng_dir *t;
	size_t size;
	unsigned n;
	bool hidden; /* ".<uuid>.tmp" (new), or "<key>.tmp.pid.tid.uuid" */
};

static void t4_key(char key[128], const struct t4 *c, unsigned i)
{
	snprintf(key, 128, "%064x_model_0_%zuK%d.bin", i * 31 + 7,
		 c->size / KIB, c->hidden);
}

static void t4_tmp(char tmp[200], const struct t4 *c, unsigned i,
		   const char *key)
{
	if (c->hidden)
		snprintf(tmp, 200, ".%08x%024zx.tmp", i * 977, c->size);
	else
		snprintf(tmp, 200, "%s.tmp.%d.%u.%08x", key, getpid(), i,
			 i * 977);
}

/* numpy's tofile: a dup'd descriptor, a reservation, the write through the
 * dup, its close (a FLUSH while the other still writes), then the last part
 * through the first. */
static int t4_tofile(const char *path, const char *buf, size_t size)
{
	size_t tail = size % 4096 ? size % 4096 : 4096;
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

	EXPECT_OK(fd, path);
	int dupfd = dup(fd);
	EXPECT_OK(dupfd, path);
	EXPECT_OK(fallocate(dupfd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size), path);
	TRY(eng_write_all(dupfd, buf, size - tail, path));
	EXPECT_OK(close(dupfd), path);
	EXPECT_OK(lseek(fd, (off_t)(size - tail), SEEK_SET), path);
	TRY(eng_write_all(fd, buf + size - tail, tail, path));
	EXPECT_OK(close(fd), path);
	return 0;
}

static int t4_set(const struct t4 *c, unsigned i)
{
	char key[128], tmp[200], from[ENG_PATH], to[ENG_PATH];
	struct stat st;

	t4_key(key, c, i);
	t4_tmp(tmp, c, i, key);
	eng_join(from, c->t->d, tmp);
	eng_join(to, c->t->d, key);
	EXPECT_ERR(stat(to, &st), ENOENT);
	char *buf = eng_content(key, 0, c->size);
	int rc = t4_tofile(from, buf, c->size);
	free(buf);
	TRY(rc);
	EXPECT_OK(rename(from, to), to);
	EXPECT_OK(stat(to, &st), to);
	EXPECT(st.st_size == (off_t)c->size, "expected %zu bytes of %s, stat "
	       "says %lld", c->size, to, (long long)st.st_size);
	return 0;
}

static int t4_run(const struct eng_dir *t, size_t size, unsigned n, bool hidden)
{
	struct t4 c = { t, size, eng_count(n, size), hidden };
	struct eng_poller p;
	char key[128], path[ENG_PATH];
	int rc;

	eng_poller_init(&p);
	for (unsigned i = 0; i < c.n; i++) {
		t4_key(key, &c, i);
		eng_poller_add(&p, t->b, key, 1, size);
	}
	rc = eng_poller_start(&p, false);
	for (unsigned i = 0; i < c.n && rc == 0; i++)
		rc = t4_set(&c, i);
	for (unsigned i = 0; i < c.n && rc == 0; i++) {
		t4_key(key, &c, i);
		rc = eng_await(eng_join(path, t->b, key), key, 1, size, -1);
		if (rc == 0)
			rc = eng_read(eng_join(path, t->d, key), 0, key, 1,
				      size, NULL);
		if (rc == -ENOENT)
			rc = eng_fail(__func__, __LINE__,
				      "expected %s on its own node", path);
	}
	eng_poller_fini(&p);
	return rc;
}

static int t4(const struct eng_dir *t)
{
	TRY(t4_run(t, 128 * KIB, 128, true));
	TRY(t4_run(t, 128 * KIB, 32, false));
	TRY(t4_run(t, 8 * MIB + 100, 4, true));
	return t4_run(t, 16 * MIB, 2, true);
}

/* ------------------------------------------------------ T5 sglang_v2_scan */

#define T5_SIZE ((size_t)4096)
#define T5_CHURN 64

struct t5 {
	const struct eng_dir *t;
	unsigned n; /* keys that exist throughout */
	atomic_bool stop;
};

static int t5_create(const struct eng_dir *t, const char *prefix, unsigned i)
{
	char path[ENG_PATH], name[64];

	snprintf(name, sizeof(name), "%s%08u.bin", prefix, i);
	int fd = open(eng_join(path, t->d, name),
		      O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	EXPECT_OK(fd, path);
	uint64_t page[T5_SIZE / 8];
	eng_fill(page, T5_SIZE, eng_seed(name, 0));
	TRY(eng_write_all(fd, page, T5_SIZE, path));
	EXPECT_OK(close(fd), path);
	return 0;
}

static int t5_churn(struct t5 *c)
{
	char path[ENG_PATH], name[64];

	for (unsigned i = 0; !atomic_load(&c->stop); i++) {
		TRY(t5_create(c->t, "churn", i));
		if (i < T5_CHURN)
			continue;
		snprintf(name, sizeof(name), "churn%08u.bin", i - T5_CHURN);
		EXPECT_OK(unlink(eng_join(path, c->t->d, name)), path);
	}
	return 0;
}

/* One whole listing; seen must come out with all of 0..n-1. */
static int t5_list(const char *path, unsigned n, uint8_t *seen,
		   unsigned *ret_total)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	unsigned found = 0, total = 0, k;

	EXPECT(dir, "expected to list %s, got %s", path, strerror(errno));
	memset(seen, 0, n);
	while ((errno = 0, e = readdir(dir))) {
		if (e->d_name[0] == '.')
			continue;
		EXPECT(e->d_type == DT_REG,
		       "expected d_type %d of %s, got %d", DT_REG, e->d_name,
		       e->d_type);
		EXPECT(++total < 4 * n + 1000000,
		       "expected the listing of %s to end", path);
		if (sscanf(e->d_name, "key%8u.bin", &k) != 1 || k >= n)
			continue;
		EXPECT(!seen[k], "expected %s once in a listing, got it twice",
		       e->d_name);
		seen[k] = 1;
		found++;
	}
	EXPECT(errno == 0, "expected the listing of %s to end well, got %s",
	       path, strerror(errno));
	closedir(dir);
	*ret_total = total;
	if (found < n)
		return -ENOENT;
	return 0;
}

static int t5_scan(struct t5 *c)
{
	uint8_t *seen = eng_alloc(c->n);
	unsigned total;
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	int rc;

	/* B learns of the last keys a moment later. */
	while ((rc = t5_list(c->t->b, c->n, seen, &total)) == -ENOENT)
		EXPECT(eng_now() < end, "expected all %u keys listed by B",
		       c->n);
	double best[2] = { 1e9, 1e9 };
	for (unsigned i = 0; i < 10 && rc == 0; i++) {
		double start = eng_now();
		rc = t5_list(i % 2 ? c->t->b : c->t->d, c->n, seen, &total);
		if (rc == -ENOENT)
			rc = eng_fail(__func__, __LINE__,
				      "expected all %u keys that exist "
				      "throughout in each listing of %s",
				      c->n, i % 2 ? "B" : "D");
		double took = (eng_now() - start) / total * 1e5;
		if (took < best[i % 2])
			best[i % 2] = took;
	}
	free(seen);
	eng_note("T5: listing 100 k entries takes %.2f s on D, %.2f s on B",
		 best[0], best[1]);
	return rc;
}

static int t5_thread(unsigned i, void *arg)
{
	struct t5 *c = arg;

	if (i)
		return t5_churn(c);
	int rc = t5_scan(c);
	atomic_store(&c->stop, true);
	return rc;
}

static int t5_fill(unsigned i, void *arg)
{
	struct t5 *c = arg;

	for (unsigned k = i; k < c->n; k += 4)
		TRY(t5_create(c->t, "key", k));
	return 0;
}

static int t5(const struct eng_dir *t)
{
	struct t5 c = { .t = t, .n = eng_count(10000, T5_SIZE + 4096) };

	TRY(eng_parallel(4, t5_fill, &c));
	return eng_parallel(2, t5_thread, &c);
}

/* -------------------------------------------------- T6 sglang_nixl_inplace */

#define T6_SIZE (512 * KIB)
#define T6_PARTS 8
#define T6_BATCH 32

static int io_setup(unsigned n, aio_context_t *ret_ctx)
{
	return (int)syscall(SYS_io_setup, n, ret_ctx);
}

/* One submit for the parts of all the files; short I/O fails the batch. */
static int t6_submit(int *fds, char **bufs, unsigned n, bool writing)
{
	aio_context_t ctx = 0;
	static const size_t part = T6_SIZE / T6_PARTS;
	unsigned total = n * T6_PARTS, done = 0;
	struct iocb *cb = calloc(total, sizeof(*cb));
	struct iocb **list = calloc(total, sizeof(*list));
	struct io_event *ev = calloc(total, sizeof(*ev));

	EXPECT(cb && list && ev, "expected memory for %u requests", total);
	EXPECT_OK(io_setup(total, &ctx), "io_setup");
	for (unsigned i = 0; i < total; i++) {
		/* Parts out of order, files interleaved. */
		unsigned f = i % n, p = T6_PARTS - 1 - i / n;
		cb[i] = (struct iocb){
			.aio_fildes = (uint32_t)fds[f],
			.aio_lio_opcode = writing ? IOCB_CMD_PWRITE :
						    IOCB_CMD_PREAD,
			.aio_buf = (uint64_t)(uintptr_t)(bufs[f] + p * part),
			.aio_nbytes = part,
			.aio_offset = (int64_t)(p * part),
		};
		list[i] = &cb[i];
	}
	for (unsigned sent = 0; sent < total;) {
		long k = syscall(SYS_io_submit, ctx, (long)(total - sent),
				 list + sent);
		EXPECT(k > 0, "expected io_submit to take %u requests, got %s",
		       total - sent, strerror(errno));
		sent += (unsigned)k;
	}
	while (done < total) {
		long k = syscall(SYS_io_getevents, ctx, 1L, (long)total, ev,
				 NULL);
		EXPECT(k > 0, "expected io_getevents to succeed, got %s",
		       strerror(errno));
		for (long j = 0; j < k; j++)
			EXPECT(ev[j].res == (int64_t)part,
			       "expected %zu bytes of an asynchronous %s, got "
			       "%lld", part, writing ? "write" : "read",
			       (long long)ev[j].res);
		done += (unsigned)k;
	}
	syscall(SYS_io_destroy, ctx);
	free(cb);
	free(list);
	free(ev);
	return 0;
}

static void t6_key(char key[128], unsigned i)
{
	snprintf(key, 128, "%02x/%064x", (i * 37) % 256, i);
}

static int t6_store(const struct eng_dir *t, unsigned first, unsigned n,
		    unsigned version)
{
	int fds[T6_BATCH];
	char *bufs[T6_BATCH], key[128], path[ENG_PATH];
	int rc;

	for (unsigned i = 0; i < n; i++) {
		t6_key(key, first + i);
		fds[i] = open(eng_join(path, t->d, key),
			      O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0644);
		EXPECT_OK(fds[i], path);
		bufs[i] = eng_content(key, version, T6_SIZE);
	}
	rc = t6_submit(fds, bufs, n, true);
	for (unsigned i = 0; i < n; i++) {
		t6_key(key, first + i);
		eng_join(path, t->b, key);
		if (rc == 0 && version == 0 && eng.mode != ENG_PLAIN &&
		    access(path, F_OK) == 0)
			rc = eng_fail(__func__, __LINE__,
				      "expected %s absent before its close",
				      path);
		close(fds[i]);
		free(bufs[i]);
	}
	return rc;
}

static int t6_load(const char *dir, unsigned first, unsigned n,
		   unsigned nver)
{
	int fds[T6_BATCH];
	char *bufs[T6_BATCH], key[128], path[ENG_PATH];

	for (unsigned i = 0; i < n; i++) {
		t6_key(key, first + i);
		fds[i] = open(eng_join(path, dir, key),
			      O_RDONLY | O_DIRECT | O_CLOEXEC);
		EXPECT_OK(fds[i], path);
		bufs[i] = eng_alloc(T6_SIZE);
	}
	int rc = t6_submit(fds, bufs, n, false);
	for (unsigned i = 0; i < n; i++) {
		t6_key(key, first + i);
		if (rc == 0 && eng_version(bufs[i], T6_SIZE, key, nver) < 0)
			rc = eng_fail(__func__, __LINE__,
				      "expected %s/%s whole in one version",
				      dir, key);
		close(fds[i]);
		free(bufs[i]);
	}
	return rc;
}

static int t6_body(const struct eng_dir *t, unsigned n)
{
	char key[128], path[ENG_PATH];

	for (unsigned version = 0; version < 3; version++) {
		for (unsigned i = 0; i < n; i += T6_BATCH)
			TRY(t6_store(t, i, n - i < T6_BATCH ? n - i : T6_BATCH,
				     version));
		for (unsigned i = 0; i < n; i++) {
			t6_key(key, i);
			TRY(eng_await(eng_join(path, t->b, key), key, 3,
				      T6_SIZE, (int)version));
		}
		for (unsigned i = 0; i < n; i += T6_BATCH)
			TRY(t6_load(t->b, i,
				    n - i < T6_BATCH ? n - i : T6_BATCH, 3));
	}
	return 0;
}

static int t6(const struct eng_dir *t)
{
	unsigned n = eng_count(128, T6_SIZE * 3);
	struct eng_poller p;
	char key[128], path[ENG_PATH];
	int rc;

	for (unsigned i = 0; i < 256; i++) {
		snprintf(key, sizeof(key), "%02x", i);
		TRY(eng_mkdir(eng_join(path, t->d, key)));
	}
	TRY(eng_await_name(eng_join(path, t->b, "ff")));
	eng_poller_init(&p);
	for (unsigned i = 0; i < n; i++) {
		t6_key(key, i);
		eng_poller_add(&p, t->b, key, 3, T6_SIZE);
	}
	rc = eng_poller_start(&p, true);
	if (rc == 0)
		rc = t6_body(t, n);
	eng_poller_fini(&p);
	return rc;
}

const struct eng_test eng_sglang[] = {
	{ "T4_sglang_file", t4 },
	{ "T5_sglang_v2_scan", t5 },
	{ "T6_sglang_nixl_inplace", t6 },
	{ NULL, NULL },
};
