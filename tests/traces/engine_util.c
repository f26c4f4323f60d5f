/* Content, files, threads and failures for the engine traces. */
#include "tests/traces/engine.h"

#include <dirent.h>
#include <pthread.h>
#include <stdarg.h>
#include <time.h>

struct eng eng = { .scale = 1, .patience = 1 };

static pthread_mutex_t fail_lock = PTHREAD_MUTEX_INITIALIZER;
static char fail_text[2048];

int eng_fail(const char *func, int line, const char *fmt, ...)
{
	va_list ap;

	pthread_mutex_lock(&fail_lock);
	if (!fail_text[0]) {
		va_start(ap, fmt);
		vsnprintf(fail_text, sizeof(fail_text), fmt, ap);
		va_end(ap);
		size_t n = strlen(fail_text);
		snprintf(fail_text + n, sizeof(fail_text) - n, " (%s:%d)",
			 func, line);
	}
	pthread_mutex_unlock(&fail_lock);
	return -1;
}

void eng_note(const char *fmt, ...)
{
	va_list ap;

	fputs("# ", stdout);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

bool eng_failed(void)
{
	pthread_mutex_lock(&fail_lock);
	bool failed = fail_text[0] != 0;
	pthread_mutex_unlock(&fail_lock);
	return failed;
}

void eng_failure_take(char *buf, size_t cap)
{
	pthread_mutex_lock(&fail_lock);
	snprintf(buf, cap, "%s", fail_text);
	fail_text[0] = 0;
	pthread_mutex_unlock(&fail_lock);
}

/* ------------------------------------------------------------- content */

#define STEP 0x9e3779b97f4a7c15ull

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

uint64_t eng_seed(const char *key, unsigned version)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; *key; key++)
		h = (h ^ (unsigned char)*key) * 0x100000001b3ull;
	return mix(h + STEP * (version + 1));
}

/* Word i of the content is a function of seed and i: a page of another
 * version, or of another place in the same file, does not match. */
static inline uint64_t word_at(uint64_t seed, size_t i)
{
	return seed + STEP * i;
}

void eng_fill(void *buf, size_t len, uint64_t seed)
{
	uint64_t *w = buf;
	size_t n = len / 8;

	for (size_t i = 0; i < n; i++)
		w[i] = word_at(seed, i);
	uint64_t last = word_at(seed, n);
	memcpy(w + n, &last, len % 8);
}

ssize_t eng_mismatch(const void *buf, size_t len, uint64_t seed)
{
	const uint64_t *w = buf;
	size_t n = len / 8;

	for (size_t i = 0; i < n; i++)
		if (w[i] != word_at(seed, i))
			return (ssize_t)(i * 8);
	uint64_t last = word_at(seed, n);
	if (memcmp(w + n, &last, len % 8) != 0)
		return (ssize_t)(n * 8);
	return -1;
}

int eng_version(const void *buf, size_t len, const char *key, unsigned nver)
{
	for (unsigned v = 0; v < nver; v++)
		if (eng_mismatch(buf, len, eng_seed(key, v)) < 0)
			return (int)v;
	return -1;
}

void *eng_alloc(size_t len)
{
	void *p;

	if (posix_memalign(&p, 4096, len ? len : 1) != 0) {
		fprintf(stderr, "engine_traces: no memory for %zu bytes\n",
			len);
		exit(1);
	}
	memset(p, 0, len);
	return p;
}

void *eng_content(const char *key, unsigned version, size_t len)
{
	void *p = eng_alloc(len);

	eng_fill(p, len, eng_seed(key, version));
	return p;
}

/* --------------------------------------------------------------- files */

char *eng_join(char buf[ENG_PATH], const char *dir, const char *name)
{
	snprintf(buf, ENG_PATH, "%s/%s", dir, name);
	return buf;
}

unsigned eng_count(unsigned n, size_t size)
{
	uint64_t want = (uint64_t)n * eng.scale;
	uint64_t fit = eng.capacity / 6 / (size ? size : 1);

	if (want > fit)
		want = fit;
	return want ? (unsigned)want : 1;
}

int eng_write_all(int fd, const void *buf, size_t len, const char *what)
{
	ssize_t n = write(fd, buf, len);

	EXPECT(n >= 0, "expected to write %zu bytes to %s, got %s", len, what,
	       strerror(errno));
	EXPECT((size_t)n == len, "expected write of %zu bytes to %s, got %zd",
	       len, what, n);
	return 0;
}

static int read_whole(int fd, const char *path, const char *key,
		      unsigned nver, size_t size, int *ret_version)
{
	struct stat st;

	EXPECT_OK(fstat(fd, &st), path);
	EXPECT(size ? st.st_size == (off_t)size : st.st_size > 0,
	       "expected %s of %zu bytes, fstat says %lld", path, size,
	       (long long)st.st_size);
	size = (size_t)st.st_size;
	void *buf = eng_alloc(size);
	ssize_t n = read(fd, buf, size);
	int v = n == (ssize_t)size ? eng_version(buf, size, key, nver) : -1;
	ssize_t bad = v < 0 && n == (ssize_t)size ?
			      eng_mismatch(buf, size, eng_seed(key, 0)) :
			      -1;
	free(buf);
	EXPECT(n >= 0, "expected to read %s (open succeeded), got %s", path,
	       strerror(errno));
	EXPECT((size_t)n == size, "expected read of %zu bytes of %s, got %zd",
	       size, path, n);
	EXPECT(v >= 0,
	       "expected %s whole in one of %u versions, differs at %zd", path,
	       nver, bad);
	if (ret_version)
		*ret_version = v;
	return 0;
}

int eng_read(const char *path, int flags, const char *key, unsigned nver,
	     size_t size, int *ret_version)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | flags);

	if (fd < 0 && errno == ENOENT)
		return -ENOENT;
	EXPECT_OK(fd, path);
	int rc = read_whole(fd, path, key, nver, size, ret_version);
	close(fd);
	return rc;
}

int eng_await(const char *path, const char *key, unsigned nver, size_t size,
	      int version)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;
	int v = -1, rc;

	for (;;) {
		rc = eng_read(path, 0, key, nver, size, &v);
		if (rc == 0 && (version < 0 || v == version))
			return 0;
		if (rc == -1)
			return -1;
		EXPECT(eng_now() < end,
		       "expected %s (version %d) within %u ms, got %s", path,
		       version, ENG_DEADLINE_MS,
		       rc == -ENOENT ? "ENOENT" : "an older version");
		eng_sleep_ms(2);
	}
}

int eng_await_gone(const char *path)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;

	while (access(path, F_OK) == 0) {
		EXPECT(eng_now() < end, "expected %s gone within %u ms", path,
		       ENG_DEADLINE_MS);
		eng_sleep_ms(2);
	}
	EXPECT(errno == ENOENT, "expected ENOENT of %s, got %s", path,
	       strerror(errno));
	return 0;
}

int eng_await_name(const char *path)
{
	double end = eng_now() + ENG_DEADLINE_MS / 1e3;

	while (access(path, F_OK) != 0) {
		EXPECT(errno == ENOENT, "expected ENOENT or success of %s, "
		       "got %s", path, strerror(errno));
		EXPECT(eng_now() < end, "expected %s within %u ms", path,
		       ENG_DEADLINE_MS);
		eng_sleep_ms(2);
	}
	return 0;
}

int eng_sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	EXPECT_OK(fd, dir);
	int rc = fsync(fd);
	int err = errno;
	close(fd);
	EXPECT(rc == 0, "expected fsync of directory %s to succeed, got %s",
	       dir, strerror(err));
	return 0;
}

int eng_put(const char *dir, const char *tmp, const char *key,
	    unsigned version, size_t size, int flags)
{
	char from[ENG_PATH], to[ENG_PATH];

	eng_join(from, dir, tmp);
	eng_join(to, dir, key);
	int fd = open(from, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | flags,
		      0644);
	EXPECT_OK(fd, from);
	void *buf = eng_content(key, version, size);
	int rc = eng_write_all(fd, buf, size, from);
	free(buf);
	EXPECT_OK(close(fd), from);
	TRY(rc);
	if (strcmp(tmp, key) != 0)
		EXPECT_OK(rename(from, to), to);
	return 0;
}

int eng_mkdir(const char *path)
{
	if (mkdir(path, 0755) < 0)
		EXPECT(errno == EEXIST, "expected mkdir %s, got %s", path,
		       strerror(errno));
	return 0;
}

static void remove_in(int dirfd, const char *name, int depth)
{
	if (unlinkat(dirfd, name, 0) == 0 || errno == ENOENT || depth > 5000)
		return;
	int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return;
	struct dirent *e;
	while ((e = readdir(dir)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_in(fd, e->d_name, depth + 1);
	closedir(dir);
	unlinkat(dirfd, name, AT_REMOVEDIR);
}

void eng_remove_tree(const char *path)
{
	/* An entry removed while listing may shift others past the cursor. */
	for (int i = 0; i < 3 && access(path, F_OK) == 0; i++)
		remove_in(AT_FDCWD, path, 0);
}

double eng_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

void eng_sleep_ms(unsigned ms)
{
	struct timespec ts = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&ts, NULL);
}

/* ------------------------------------------------------------- threads */

struct worker {
	pthread_t thread;
	unsigned i;
	int (*fn)(unsigned i, void *arg);
	void *arg;
	int rc;
};

static void *worker_main(void *arg)
{
	struct worker *w = arg;

	w->rc = w->fn(w->i, w->arg);
	return NULL;
}

int eng_parallel(unsigned n, int (*fn)(unsigned i, void *arg), void *arg)
{
	struct worker *w = calloc(n, sizeof(*w));
	unsigned started = 0;
	int rc = 0;

	EXPECT(w, "expected memory for %u threads", n);
	for (; started < n; started++) {
		w[started] = (struct worker){ .i = started, .fn = fn,
					      .arg = arg };
		if (pthread_create(&w[started].thread, NULL, worker_main,
				   &w[started]) != 0)
			break;
	}
	if (started < n)
		rc = eng_fail(__func__, __LINE__, "expected %u threads, got %u",
			      n, started);
	for (unsigned i = 0; i < started; i++) {
		pthread_join(w[i].thread, NULL);
		if (w[i].rc != 0)
			rc = -1;
	}
	free(w);
	return rc;
}

/* -------------------------------------------------------------- poller */

void eng_poller_init(struct eng_poller *p)
{
	memset(p, 0, sizeof(*p));
}

void eng_poller_add(struct eng_poller *p, const char *dir, const char *key,
		    unsigned nver, size_t size)
{
	p->watch = realloc(p->watch, (p->nwatch + 1) * sizeof(*p->watch));
	if (!p->watch)
		abort();
	struct eng_watch *w = &p->watch[p->nwatch++];
	*w = (struct eng_watch){ .size = size, .nver = nver };
	eng_join(w->path, dir, key);
	snprintf(w->key, sizeof(w->key), "%s", key);
}

/* One look: absent, or of the right size; read now and then. */
static int poller_look(struct eng_poller *p, struct eng_watch *w)
{
	struct stat st;

	p->looks++;
	if (stat(w->path, &st) < 0) {
		EXPECT(errno == ENOENT, "B: expected ENOENT or %s, got %s",
		       w->path, strerror(errno));
		return 0;
	}
	EXPECT(st.st_size == (off_t)w->size,
	       "B: expected no %s or all %zu bytes of it, stat says %lld",
	       w->path, w->size, (long long)st.st_size);
	p->hits++;
	if (w->reads++ > 1 && w->reads % 32 != 0)
		return 0;
	int flags = w->reads % 2 ? O_DIRECT : 0;
	int rc = eng_read(w->path, flags, w->key, w->nver, w->size, NULL);
	return rc == -1 ? -1 : 0;
}

static void *poller_main(void *arg)
{
	struct eng_poller *p = arg;

	while (!atomic_load(&p->stop)) {
		for (size_t i = 0; i < p->nwatch && !atomic_load(&p->stop); i++)
			if (poller_look(p, &p->watch[i]) != 0)
				return NULL;
		usleep(500);
	}
	return NULL;
}

int eng_poller_start(struct eng_poller *p, bool in_place)
{
	pthread_t thread;

	if (in_place && eng.mode == ENG_PLAIN)
		return 0;
	EXPECT(pthread_create(&thread, NULL, poller_main, p) == 0,
	       "expected a poller thread");
	p->thread = thread;
	p->running = true;
	return 0;
}

void eng_poller_fini(struct eng_poller *p)
{
	atomic_store(&p->stop, true);
	if (p->running)
		pthread_join(p->thread, NULL);
	free(p->watch);
	memset(p, 0, sizeof(*p));
}
