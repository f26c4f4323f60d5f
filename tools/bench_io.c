/* Whole files: read, pread, mmap, write; and vLLM's writers. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench.h"

#define WRITERS 16
#define WRITER_SIZE (2 * BENCH_MIB)
#define READ_FILES 8
#define TURN_BYTES (192 * BENCH_MIB)

double bench_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

int bench_error(const char *what, const char *path)
{
	int err = errno ? errno : EIO;

	fprintf(stderr, "kvpool bench: %s %s: %s\n", what, path, strerror(err));
	return -err;
}

const char *bench_dir(const struct bench *b, enum bench_side side)
{
	return b->dirs[side == BENCH_LOCAL ? BENCH_OURS : side];
}

int bench_write_file(const struct bench *b, const char *path, size_t size,
		     int flags)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0644);

	if (fd < 0)
		return bench_error("create", path);
	errno = 0;
	ssize_t n = write(fd, b->buf, size);
	int rc = n == (ssize_t)size ? 0 : bench_error("write", path);
	if (close(fd) < 0 && rc == 0)
		rc = bench_error("close", path);
	return rc;
}

int bench_read_file(const char *path, void *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return bench_error("open", path);
	errno = 0;
	ssize_t n = read(fd, buf, size);
	int rc = n == (ssize_t)size ? 0 : bench_error("read", path);
	close(fd);
	return rc;
}

int bench_need_file(const struct bench *b, const char *dir, const char *name,
		    size_t size)
{
	char path[BENCH_PATH];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	if (access(path, F_OK) == 0)
		return 0;
	return bench_write_file(b, path, size, 0);
}

int bench_sync_dir(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return bench_error("open", dir);
	int rc = fsync(fd) < 0 ? bench_error("fsync", dir) : 0;
	close(fd);
	return rc;
}

static unsigned read_ops(size_t bytes)
{
	size_t n = TURN_BYTES / bytes;

	return n > 512 ? 512 : (unsigned)n;
}

/* Creates the files that a turn reads; *ret_n: how many. */
static int read_set(const struct bench *b, const struct bench_case *c,
		    const char *dir, unsigned *ret_n)
{
	unsigned n = c->bytes > 8 * BENCH_MIB ? 2 : READ_FILES;
	char name[64];

	for (unsigned i = 0; i < n; i++) {
		snprintf(name, sizeof(name), "read_%zuK_%u",
			 c->bytes / BENCH_KIB, i);
		int rc = bench_need_file(b, dir, name, c->bytes);
		if (rc < 0)
			return rc;
	}
	*ret_n = n;
	return 0;
}

static void read_path(char path[BENCH_PATH], const struct bench_case *c,
		      const char *dir, unsigned i)
{
	snprintf(path, BENCH_PATH, "%s/read_%zuK_%u", dir,
		 c->bytes / BENCH_KIB, i);
}

/* Maps the file and reads every word. */
static int map_open_file(int fd, const char *path, size_t size)
{
	const uint64_t *w = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	uint64_t sum = 0;

	if (w == MAP_FAILED)
		return bench_error("mmap", path);
	for (size_t i = 0; i < size / 8; i += 4)
		sum += w[i] + w[i + 1] + w[i + 2] + w[i + 3];
	munmap((void *)(uintptr_t)w, size);
	__asm__ volatile("" : : "r"(sum));
	return 0;
}

static int map_file(const char *path, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int rc;

	if (fd < 0)
		return bench_error("open", path);
	rc = map_open_file(fd, path, size);
	close(fd);
	return rc;
}

static int turn_read(struct bench *b, const struct bench_case *c,
		     enum bench_side side, struct bench_hist *lat,
		     double *ret_s)
{
	const char *dir = bench_dir(b, side);
	unsigned ops = read_ops(c->bytes), nfiles;
	char path[BENCH_PATH];
	int rc = read_set(b, c, dir, &nfiles);
	double start = bench_now(), last = start;

	for (unsigned i = 0; i < ops && rc == 0; i++) {
		read_path(path, c, dir, i % nfiles);
		rc = bench_read_file(path, b->other, c->bytes);
		double now = bench_now();
		bench_hist_add(lat, (uint64_t)((now - last) * 1e9));
		last = now;
	}
	*ret_s = (last - start) / ops;
	return rc;
}

static int turn_mmap(struct bench *b, const struct bench_case *c,
		     enum bench_side side, struct bench_hist *lat,
		     double *ret_s)
{
	const char *dir = bench_dir(b, side);
	unsigned ops = read_ops(c->bytes), nfiles;
	char path[BENCH_PATH];
	int rc = read_set(b, c, dir, &nfiles);
	double start = bench_now();

	(void)lat;
	for (unsigned i = 0; i < ops && rc == 0; i++) {
		read_path(path, c, dir, i % nfiles);
		rc = map_file(path, c->bytes);
	}
	*ret_s = (bench_now() - start) / ops;
	return rc;
}

static int pread_open_file(struct bench *b, int fd, const char *dir,
			   size_t size)
{
	errno = 0;
	return pread(fd, b->other, size, 0) == (ssize_t)size ?
		       0 : bench_error("pread", dir);
}

/* Maps or reads files that are open already. */
static int turn_open_files(struct bench *b, const struct bench_case *c,
			   enum bench_side side, bool map, double *ret_s)
{
	const char *dir = bench_dir(b, side);
	unsigned ops = read_ops(c->bytes), nfiles;
	char path[BENCH_PATH];
	int fds[READ_FILES];
	int rc = read_set(b, c, dir, &nfiles);

	if (rc < 0)
		return rc;
	for (unsigned i = 0; i < nfiles; i++) {
		read_path(path, c, dir, i);
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (fds[i] < 0)
			return bench_error("open", path);
	}
	double start = bench_now();
	for (unsigned i = 0; i < ops && rc == 0; i++) {
		int fd = fds[i % nfiles];

		rc = map ? map_open_file(fd, dir, c->bytes) :
			   pread_open_file(b, fd, dir, c->bytes);
	}
	*ret_s = (bench_now() - start) / ops;
	for (unsigned i = 0; i < nfiles; i++)
		close(fds[i]);
	return rc;
}

static int turn_pread(struct bench *b, const struct bench_case *c,
		      enum bench_side side, struct bench_hist *lat,
		      double *ret_s)
{
	(void)lat;
	return turn_open_files(b, c, side, false, ret_s);
}

static int turn_mmap_open(struct bench *b, const struct bench_case *c,
			  enum bench_side side, struct bench_hist *lat,
			  double *ret_s)
{
	(void)lat;
	return turn_open_files(b, c, side, true, ret_s);
}

/* Writes a burst of new files, 64 MiB or 64 files; removes them, untimed. */
static int turn_write(struct bench *b, const struct bench_case *c,
		      enum bench_side side, struct bench_hist *lat,
		      double *ret_s)
{
	const char *dir = bench_dir(b, side);
	size_t fit = 64 * BENCH_MIB / c->bytes;
	unsigned ops = fit > 64 ? 64 : (unsigned)fit;
	unsigned first = b->serial;
	char path[BENCH_PATH];
	int rc = 0;
	double start = bench_now(), last = start;

	b->serial += ops;
	for (unsigned i = 0; i < ops && rc == 0; i++) {
		snprintf(path, sizeof(path), "%s/write_%u", dir, first + i);
		rc = bench_write_file(b, path, c->bytes, 0);
		double now = bench_now();
		bench_hist_add(lat, (uint64_t)((now - last) * 1e9));
		last = now;
	}
	*ret_s = (last - start) / ops;
	for (unsigned i = 0; i < ops; i++) {
		snprintf(path, sizeof(path), "%s/write_%u", dir, first + i);
		unlink(path);
	}
	return rc;
}

/* ------------------------------------------------------- vLLM's writers */

struct writers {
	const struct bench *b;
	const char *dir;
	unsigned first, files_each;
	const volatile bool *stop;
	int rc;
};
struct writer {
	pthread_t thread;
	struct writers *w;
	unsigned i, files;
};

/* access, temporary by O_EXCL and O_DIRECT, one write, close, rename. */
static int writer_store(const struct writers *w, unsigned i, unsigned k)
{
	char path[BENCH_PATH], tmp[BENCH_PATH + 32];

	snprintf(path, sizeof(path), "%s/v%u_%u_%u.bin", w->dir, w->first, i,
		 k);
	if (access(path, F_OK) == 0)
		return 0;
	snprintf(tmp, sizeof(tmp), "%s_%u.tmp", path,
		 (w->first + i + k) * 2654435761u);
	int rc = bench_write_file(w->b, tmp, WRITER_SIZE,
				  O_EXCL | O_TRUNC | O_DIRECT);
	if (rc == 0 && rename(tmp, path) < 0)
		rc = bench_error("rename", tmp);
	return rc;
}

static void writer_remove(const struct writers *w, unsigned i, unsigned k)
{
	char path[BENCH_PATH];

	snprintf(path, sizeof(path), "%s/v%u_%u_%u.bin", w->dir, w->first, i,
		 k);
	unlink(path);
}

static void *writer_main(void *arg)
{
	struct writer *t = arg;
	struct writers *w = t->w;

	/* Endless writers remove older files, to stay within memory. */
	while (!w->files_each || t->files < w->files_each) {
		if (w->stop && *w->stop)
			break;
		int rc = writer_store(w, t->i, t->files);
		if (rc < 0) {
			w->rc = rc;
			break;
		}
		t->files++;
		if (!w->files_each && t->files > 4)
			writer_remove(w, t->i, t->files - 5);
	}
	return NULL;
}

int bench_writers(struct bench *b, const char *dir, unsigned files_each,
		  const volatile bool *stop, double *ret_s)
{
	struct writers w = { b, dir, b->serial++, files_each, stop, 0 };
	struct writer t[WRITERS];
	unsigned started = 0;
	double start = bench_now();

	for (; started < WRITERS; started++) {
		t[started] = (struct writer){ .w = &w, .i = started };
		int err = pthread_create(&t[started].thread, NULL, writer_main,
					 &t[started]);
		if (err) {
			w.rc = -err;
			break;
		}
	}
	for (unsigned i = 0; i < started; i++)
		pthread_join(t[i].thread, NULL);
	*ret_s = bench_now() - start;
	for (unsigned i = 0; i < started; i++) {
		unsigned k = files_each || t[i].files < 6 ? 0 : t[i].files - 6;
		for (; k < t[i].files; k++)
			writer_remove(&w, i, k);
	}
	return w.rc;
}

#define WRITER_FILES 4

static int turn_writers(struct bench *b, const struct bench_case *c,
			enum bench_side side, struct bench_hist *lat,
			double *ret_s)
{
	double took;
	int rc = bench_writers(b, bench_dir(b, side), WRITER_FILES, NULL,
			       &took);

	(void)c;
	(void)lat;
	*ret_s = took / (WRITERS * WRITER_FILES);
	return rc;
}

const struct bench_case bench_io_cases[] = {
	{ .name = "read_4m",
	  .what = "open, read, close 4 MiB / huge tmpfs",
	  .ref = BENCH_HUGE,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_read },
	{ .name = "read_32m",
	  .what = "open, read, close 32 MiB / huge tmpfs",
	  .ref = BENCH_HUGE,
	  .bytes = 32 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_read },
	{ .name = "pread_4m",
	  .what = "pread 4 MiB / huge tmpfs",
	  .ref = BENCH_HUGE,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_pread },
	{ .name = "read_4m_plain",
	  .what = "open, read, close 4 MiB / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_read },
	{ .name = "mmap_4m_open",
	  .what = "mmap, read 4 MiB of an open file / huge tmpfs",
	  .ref = BENCH_HUGE,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_mmap_open },
	{ .name = "mmap_4m",
	  .what = "open, mmap, read 4 MiB / huge tmpfs",
	  .ref = BENCH_HUGE,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_mmap },
	{ .name = "write_4m",
	  .what = "create, write, close 4 MiB / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = 4 * BENCH_MIB,
	  .is_data = true,
	  .turn = turn_write },
	{ .name = "write_1m",
	  .what = "create, write, close 1 MiB / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = BENCH_MIB,
	  .is_data = true,
	  .turn = turn_write },
	{ .name = "write_128k",
	  .what = "create, write, close 128 KiB, time / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = 128 * BENCH_KIB,
	  .is_time = true,
	  .is_data = true,
	  .turn = turn_write },
	{ .name = "read_128k",
	  .what = "open, read, close 128 KiB, time / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = 128 * BENCH_KIB,
	  .is_time = true,
	  .is_data = true,
	  .turn = turn_read },
	{ .name = "writers16",
	  .what = "16 vLLM writers x 2 MiB / default tmpfs",
	  .ref = BENCH_PLAIN,
	  .bytes = WRITER_SIZE,
	  .is_data = true,
	  .turn = turn_writers },
	{ .name = NULL },
};
