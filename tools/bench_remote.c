/* First reads of objects that another node wrote. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tools/bench.h"

#define OBJECTS 12
#define VISIBLE_SAMPLES 200
#define VISIBLE_SIZE (64 * BENCH_KIB)
#define VISIBLE_DEADLINE_S 10.0

static void object_name(char name[64], unsigned serial, unsigned i)
{
	snprintf(name, 64, "remote%u_%u", serial, i);
}

/* Writes and publishes through mount2; `mount` has not looked them up yet. */
static int objects_write(struct bench *b, const char *dir, unsigned serial,
			 size_t size)
{
	char name[64], path[BENCH_PATH];
	int rc = 0;

	for (unsigned i = 0; i < OBJECTS && rc == 0; i++) {
		object_name(name, serial, i);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		rc = bench_write_file(b, path, size, 0);
	}
	return rc ? rc : bench_sync_dir(dir);
}

static void objects_remove(const char *dir, unsigned serial)
{
	char name[64], path[BENCH_PATH];

	for (unsigned i = 0; i < OBJECTS; i++) {
		object_name(name, serial, i);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		unlink(path);
	}
}

static int objects_read(struct bench *b, const char *dir, unsigned serial,
			size_t size, struct bench_hist *lat, double *ret_s)
{
	char name[64], path[BENCH_PATH];
	double start = bench_now(), last = start;
	int rc = 0;

	for (unsigned i = 0; i < OBJECTS && rc == 0; i++) {
		object_name(name, serial, i);
		snprintf(path, sizeof(path), "%s/%s", dir, name);
		rc = bench_read_file(path, b->other, size);
		double now = bench_now();
		if (lat)
			bench_hist_add(lat, (uint64_t)((now - last) * 1e9));
		last = now;
	}
	*ret_s = (last - start) / OBJECTS;
	if (rc == 0 && memcmp(b->buf, b->other, size) != 0) {
		fprintf(stderr, "kvpool bench: wrong bytes in %s\n", path);
		rc = -EBADMSG;
	}
	return rc;
}

static int turn_remote(struct bench *b, const struct bench_case *c,
		       enum bench_side side, struct bench_hist *lat,
		       double *ret_s)
{
	const char *from = side == BENCH_OURS ? b->dir2 : b->dirs[BENCH_OURS];
	unsigned serial = b->serial++;
	int rc;

	if (side == BENCH_SOCKET) {
		double start = bench_now();
		rc = 0;
		for (unsigned i = 0; i < OBJECTS && rc == 0; i++)
			rc = bench_socket_read(b, b->other, c->bytes);
		*ret_s = (bench_now() - start) / OBJECTS;
		return rc;
	}
	rc = objects_write(b, from, serial, c->bytes);
	if (rc == 0 && side == BENCH_LOCAL) /* warm */
		rc = objects_read(b, b->dirs[BENCH_OURS], serial, c->bytes,
				  NULL, ret_s);
	if (rc == 0)
		rc = objects_read(b, b->dirs[BENCH_OURS], serial, c->bytes,
				  lat, ret_s);
	objects_remove(from, serial);
	return rc;
}

static void nap_us(long us)
{
	struct timespec ts = { 0, us * 1000 };

	nanosleep(&ts, NULL);
}

/* Time from close in `mount` until an open in mount2 succeeds. */
static int visible_once(struct bench *b, struct bench_hist *lat)
{
	char path[BENCH_PATH], other[BENCH_PATH];
	unsigned serial = b->serial++;
	int fd;

	snprintf(path, sizeof(path), "%s/seen%u", b->dirs[BENCH_OURS], serial);
	snprintf(other, sizeof(other), "%s/seen%u", b->dir2, serial);
	/* Looked up before it exists: the other kernel caches the miss, and
	 * must be notified. */
	if (access(other, F_OK) == 0)
		return bench_error("expected to miss", other);
	int rc = bench_write_file(b, path, VISIBLE_SIZE, 0);
	double start = bench_now();
	if (rc < 0)
		return rc;
	while ((fd = open(other, O_RDONLY | O_CLOEXEC)) < 0) {
		if (errno != ENOENT)
			return bench_error("open", other);
		if (bench_now() - start > VISIBLE_DEADLINE_S) {
			errno = ETIMEDOUT;
			return bench_error("open", other);
		}
		nap_us(20);
	}
	bench_hist_add(lat, (uint64_t)((bench_now() - start) * 1e9));
	close(fd);
	unlink(path);
	return 0;
}

int bench_visible(struct bench *b, struct bench_hist *lat)
{
	int rc = 0;

	prctl(PR_SET_TIMERSLACK, 1000);
	for (unsigned i = 0; i < VISIBLE_SAMPLES && rc == 0; i++)
		rc = visible_once(b, lat);
	prctl(PR_SET_TIMERSLACK, 0);
	return rc;
}

const struct bench_case bench_remote_cases[] = {
	{ .name = "remote_4m",
	  .what = "first read of another node's 4 MiB / plain socket",
	  .ref = BENCH_SOCKET, .bytes = 4 * BENCH_MIB,
	  .needs_mount2 = true, .turn = turn_remote },
	{ .name = "remote_32m",
	  .what = "first read of another node's 32 MiB / plain socket",
	  .ref = BENCH_SOCKET, .bytes = 32 * BENCH_MIB,
	  .needs_mount2 = true, .turn = turn_remote },
	{ .name = "remote_128k",
	  .what = "first read of another node's 128 KiB, time / plain socket",
	  .ref = BENCH_SOCKET, .bytes = 128 * BENCH_KIB, .is_time = true,
	  .needs_mount2 = true, .turn = turn_remote },
	{ .name = "passed_4m",
	  .what = "first read of another node's 4 MiB / local read",
	  .ref = BENCH_LOCAL, .bytes = 4 * BENCH_MIB,
	  .needs_mount2 = true, .turn = turn_remote },
	{ .name = NULL },
};
