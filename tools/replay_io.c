/*
 * Blocks as files, like vLLM: a request first looks up all its keys with
 * access(F_OK), then loads each existing one with an O_DIRECT open and a single
 * read, then stores each missing one by temporary file and rename.
 *
 * Layout: ROOT/MODEL_<12 hex>_r0/<hhh>/<hh>_g0/<64 hex>.bin
 *
 * A block's bytes are a pseudo-random sequence seeded by its id, so that every
 * byte read is compared with the expected one, at memory speed.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/replay.h"

#define MODEL_DIR "replay_7a6f6f6d6f72_r0"
#define PAGE_WORDS 512
#define STEP 0x9e3779b97f4a7c15ull

static uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t mix(uint64_t x)
{
	x += STEP;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/* ------------------------------------------------------------- content */

/* Word i. As fast as memory; no two pages are equal, in one block or in two. */
static inline uint64_t word_at(uint64_t seed, uint64_t i)
{
	uint64_t x = seed + i * STEP;

	return x ^ (x >> 29);
}

static void fill_words(uint64_t *w, uint64_t seed, uint64_t first, size_t n)
{
	for (size_t i = 0; i < n; i++)
		w[i] = word_at(seed, first + i);
}

static void content_fill(void *buf, size_t len, uint64_t id)
{
	uint64_t *w = buf;
	uint64_t seed = mix(id), last;
	size_t n = len / 8;

	fill_words(w, seed, 0, n);
	last = word_at(seed, n);
	memcpy(w + n, &last, len % 8);
}

/* A page at a time: the compiler vectorises loops of a constant trip count. */
static bool page_is_right(const uint64_t *w, uint64_t x)
{
	uint64_t diff = 0;

	for (unsigned i = 0; i < PAGE_WORDS; i++) {
		diff |= w[i] ^ x ^ (x >> 29);
		x += STEP;
	}
	return diff == 0;
}

static bool content_is_right(const void *buf, size_t len, uint64_t id)
{
	const uint64_t *w = buf;
	uint64_t seed = mix(id), last;
	size_t n = len / 8, i = 0;

	for (; i + PAGE_WORDS <= n; i += PAGE_WORDS)
		if (!page_is_right(w + i, seed + i * STEP))
			return false;
	for (; i < n; i++)
		if (w[i] != word_at(seed, i))
			return false;
	last = word_at(seed, n);
	return memcmp(w + n, &last, len % 8) == 0;
}

/* --------------------------------------------------------------- names */

struct block_path {
	char path[PATH_MAX];
	size_t root_len;
};

/* 0, or -ENAMETOOLONG. */
static int block_path(struct block_path *p, const char *root, uint64_t id)
{
	unsigned long long h[4];
	int n;

	for (unsigned i = 0; i < 4; i++)
		h[i] = mix(id * 4 + i);
	p->root_len = strlen(root);
	n = snprintf(p->path, sizeof(p->path) - 64,
		     "%s/" MODEL_DIR
		     "/%03x/%02x_g0/%016llx%016llx%016llx%016llx"
		     ".bin",
		     root, (unsigned)(h[0] >> 52),
		     (unsigned)(h[0] >> 44 & 0xff), h[0], h[1], h[2], h[3]);
	return n < 0 || (size_t)n >= sizeof(p->path) - 64 ? -ENAMETOOLONG : 0;
}

static void tell(struct replay_io *io, const char *path, const char *what,
		 int err)
{
	char text[PATH_MAX + 256];

	snprintf(text, sizeof(text), "%s: %s%s%s", path, what, err ? ": " : "",
		 err ? strerror(err) : "");
	io->report(text, io->report_arg);
}

static void fault(struct replay_io *io, const char *path, const char *what,
		  int err)
{
	io->stats.errors++;
	tell(io, path, what, err);
}

/*
 * Creates the parents of path: stat() upwards to the deepest that exists, then
 * mkdir downwards. On EEXIST another thread or node has created it. 0 or
 * -errno.
 */
static int make_parents(struct block_path *p)
{
	size_t cut[3];
	unsigned missing = 0;
	struct stat st;
	int rc = 0;

	for (char *s; missing < 3; missing++) {
		s = strrchr(p->path, '/');
		if (!s || (size_t)(s - p->path) <= p->root_len)
			break;
		*s = 0;
		cut[missing] = (size_t)(s - p->path);
		if (stat(p->path, &st) == 0) {
			*s = '/';
			break;
		}
	}
	while (missing > 0 && rc == 0) {
		if (mkdir(p->path, 0755) < 0 && errno != EEXIST)
			rc = -errno;
		p->path[cut[--missing]] = '/';
	}
	while (missing > 0)
		p->path[cut[--missing]] = '/';
	return rc;
}

/* ------------------------------------------------------------- look-up */

static bool block_exists(struct replay_io *io, const char *path)
{
	uint64_t start = now_ns();
	int rc = access(path, F_OK);
	int err = errno;
	uint64_t took = now_ns() - start;

	if (rc == 0) {
		bench_hist_add(&io->stats.access_hit, took);
		return true;
	}
	bench_hist_add(&io->stats.access_miss, took);
	if (err != ENOENT)
		fault(io, path, "access", err);
	return false;
}

/* Was the block read (right or wrong)? false: it does not exist, or a fault. */
static bool block_load(struct replay_io *io, const char *path, uint64_t id)
{
	uint64_t start = now_ns();
	int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

	if (fd < 0) {
		if (errno == ENOENT)
			io->stats.vanished++;
		else
			fault(io, path, "open", errno);
		return false;
	}
	ssize_t n = read(fd, io->buf, io->block_size);
	int err = errno;
	close(fd);
	bench_hist_add(&io->stats.read, now_ns() - start);
	if (n < 0) {
		fault(io, path, "read", err);
		return false;
	}
	io->stats.bytes_read += (uint64_t)n;
	if ((size_t)n != io->block_size) {
		fault(io, path, "short read", 0);
		return false;
	}
	if (!content_is_right(io->buf, io->block_size, id)) {
		io->stats.wrong++;
		tell(io, path, "wrong bytes", 0);
	}
	return true;
}

/* --------------------------------------------------------------- store */

/* Write and rename; 0, or -errno with *ret_what naming the step. */
static int store_file(struct replay_io *io, struct block_path *p,
		      const char **ret_what)
{
	char tmp[PATH_MAX];
	int rc;

	*ret_what = "mkdir";
	rc = make_parents(p);
	if (rc < 0)
		return rc;
	io->random = mix(io->random);
	rc = snprintf(tmp, sizeof(tmp), "%s_%llu.tmp", p->path,
		      (unsigned long long)(io->random >> 1));
	*ret_what = "name of the temporary";
	if (rc < 0 || (size_t)rc >= sizeof(tmp))
		return -ENAMETOOLONG;
	*ret_what = "create";
	int fd = open(tmp,
		      O_WRONLY | O_CREAT | O_EXCL | O_TRUNC | O_DIRECT |
			      O_CLOEXEC,
		      0644);
	if (fd < 0)
		return -errno;
	*ret_what = "write";
	ssize_t n = write(fd, io->buf, io->block_size);
	rc = n < 0 ? -errno : (size_t)n != io->block_size ? -EIO : 0;
	if (close(fd) < 0 && rc == 0) {
		*ret_what = "close";
		rc = -errno;
	}
	if (rc == 0 && rename(tmp, p->path) < 0) {
		*ret_what = "rename";
		rc = -errno;
	}
	if (rc < 0)
		unlink(tmp);
	return rc;
}

static void block_store(struct replay_io *io, struct block_path *p,
			uint64_t id)
{
	const char *what;

	content_fill(io->buf, io->block_size, id);
	uint64_t start = now_ns();
	if (access(p->path, F_OK) == 0) {
		io->stats.skipped++;
		return;
	}
	int rc = store_file(io, p, &what);
	bench_hist_add(&io->stats.write, now_ns() - start);
	if (rc < 0) {
		fault(io, p->path, what, -rc);
		return;
	}
	io->stats.stored++;
	io->stats.bytes_written += io->block_size;
}

void replay_io_request(struct replay_io *io, const char *root,
		       const uint64_t *ids, size_t n, bool *present)
{
	struct block_path p;

	for (size_t i = 0; i < n; i++) {
		io->stats.blocks++;
		if (block_path(&p, root, ids[i]) < 0) {
			fault(io, root, "mount path too long", 0);
			return;
		}
		present[i] = block_exists(io, p.path);
	}
	for (size_t i = 0; i < n; i++) {
		if (!present[i])
			continue;
		block_path(&p, root, ids[i]);
		present[i] = block_load(io, p.path, ids[i]);
		io->stats.hits += present[i];
	}
	for (size_t i = 0; i < n; i++) {
		if (present[i])
			continue;
		block_path(&p, root, ids[i]);
		block_store(io, &p, ids[i]);
	}
}

int replay_io_init(struct replay_io *io, size_t block_size, uint64_t seed,
		   void (*report)(const char *text, void *arg), void *arg)
{
	void *buf;

	memset(io, 0, sizeof(*io));
	if (posix_memalign(&buf, 4096, block_size) != 0)
		return -ENOMEM;
	io->buf = buf;
	io->block_size = block_size;
	io->random = seed;
	io->report = report;
	io->report_arg = arg;
	return 0;
}

void replay_io_fini(struct replay_io *io)
{
	free(io->buf);
	io->buf = NULL;
}
