/* access(): hits and misses, warm, for the first time, and under load. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/bench.h"

#define NAMES 256
#define CALLS 20000
#define PROBES 3600 /* look-ups for a prompt of 128K tokens */
#define HIT_EVERY 10
#define BUSY_SECONDS 1.2

/* CALLS calls on NAMES names that were all looked up before. */
static int turn_access(struct bench *b, const struct bench_case *c,
		       enum bench_side side, struct bench_hist *lat,
		       double *ret_s)
{
	static char paths[NAMES][BENCH_PATH];
	const char *dir = bench_dir(b, side);
	bool hit = strcmp(c->name, "access_hit") == 0;
	unsigned found = 0;
	char name[32];
	int rc = 0;

	(void)lat;
	for (unsigned i = 0; i < NAMES && rc == 0; i++) {
		snprintf(name, sizeof(name), "%s_%u", hit ? "here" : "none", i);
		snprintf(paths[i], BENCH_PATH, "%s/%s", dir, name);
		if (hit)
			rc = bench_need_file(b, dir, name, 4096);
		found += access(paths[i], F_OK) == 0;
	}
	double start = bench_now();
	for (unsigned i = 0; i < CALLS; i++)
		found += access(paths[i % NAMES], F_OK) == 0;
	*ret_s = (bench_now() - start) / CALLS;
	if (rc == 0 && found != (hit ? CALLS + NAMES : 0)) {
		fprintf(stderr, "kvpool bench: %s: %u of %d found\n", c->name,
			found, CALLS + NAMES);
		rc = -EIO;
	}
	return rc;
}

static void probe_path(char path[BENCH_PATH], const char *dir,
		       unsigned i)
{
	snprintf(path, BENCH_PATH, "%s/%032x%u.bin", dir, i * 2654435761u, i);
}

/* Every HIT_EVERY-th name exists below dir. */
static int probe_fill(const struct bench *b, const char *dir)
{
	char path[BENCH_PATH];
	int rc = 0;

	for (unsigned i = 0; i < PROBES && rc == 0; i += HIT_EVERY) {
		probe_path(path, dir, i);
		rc = bench_write_file(b, path, 4096, 0);
	}
	return rc;
}

static double probe_run(const char *dir, struct bench_hist *lat,
			unsigned *ret_hits)
{
	static char paths[PROBES][BENCH_PATH];
	unsigned hits = 0;

	for (unsigned i = 0; i < PROBES; i++)
		probe_path(paths[i], dir, i);
	double start = bench_now(), last = start;
	for (unsigned i = 0; i < PROBES; i++) {
		hits += access(paths[i], F_OK) == 0;
		if (!lat)
			continue;
		double now = bench_now();
		bench_hist_add(lat, (uint64_t)((now - last) * 1e9));
		last = now;
	}
	*ret_hits = hits;
	return bench_now() - start;
}

static int turn_probe_warm(struct bench *b, const struct bench_case *c,
			   enum bench_side side, struct bench_hist *lat,
			   double *ret_s)
{
	char dir[BENCH_PATH];
	unsigned hits;
	int rc = 0;

	(void)lat;
	snprintf(dir, sizeof(dir), "%s/probe", bench_dir(b, side));
	if (mkdir(dir, 0755) == 0)
		rc = probe_fill(b, dir);
	else if (errno != EEXIST)
		rc = bench_error("mkdir", dir);
	if (rc < 0)
		return rc;
	probe_run(dir, NULL, &hits);
	*ret_s = probe_run(dir, NULL, &hits);
	if (hits != PROBES / HIT_EVERY) {
		fprintf(stderr, "kvpool bench: %s: %u hits\n", c->name, hits);
		return -EIO;
	}
	return 0;
}

/*
 * Looks up names for the first time in this mount. Those that exist were
 * written through the other mount, so that this kernel has not seen them.
 * Without another mount, no name exists.
 */
static int turn_probe_first(struct bench *b, const struct bench_case *c,
			    enum bench_side side, struct bench_hist *lat,
			    double *ret_s)
{
	char dir[BENCH_DIR + 32], there[BENCH_DIR + 32];
	unsigned hits, serial = b->serial++;
	struct stat st;
	int rc;

	(void)c;
	if (side == BENCH_NOFUSE) {
		/* In one directory; no name is used twice. */
		snprintf(dir, sizeof(dir), "%s/%u_", b->nofuse, serial);
		*ret_s = 0;
		char path[BENCH_PATH];
		double start = bench_now();
		for (unsigned i = 0; i < PROBES; i++) {
			snprintf(path, sizeof(path), "%s%032x%u", dir,
				 i * 2654435761u, i);
			(void)!access(path, F_OK);
		}
		*ret_s = bench_now() - start;
		return 0;
	}
	snprintf(dir, sizeof(dir), "%s/first%u", b->dirs[BENCH_OURS], serial);
	snprintf(there, sizeof(there), "%s/first%u",
		 b->mount2 ? b->dir2 : b->dirs[BENCH_OURS], serial);
	if (mkdir(there, 0755) < 0)
		return bench_error("mkdir", there);
	rc = b->mount2 ? probe_fill(b, there) : 0;
	if (rc == 0)
		rc = bench_sync_dir(there);
	if (rc == 0 && stat(dir, &st) < 0)
		rc = bench_error("stat", dir);
	if (rc < 0)
		return rc;
	*ret_s = probe_run(dir, lat, &hits);
	if (b->mount2 && hits != PROBES / HIT_EVERY) {
		fprintf(stderr, "kvpool bench: %s: %u hits of %d\n", c->name,
			hits, PROBES / HIT_EVERY);
		return -EIO;
	}
	return 0;
}

/* ------------------------------------------------------------ under load */

struct busy {
	struct bench *b;
	const char *dir;
	volatile bool stop;
	int rc;
};

static void *busy_main(void *arg)
{
	struct busy *y = arg;
	double took;

	y->rc = bench_writers(y->b, y->dir, 0, &y->stop, &took);
	return NULL;
}

/* Alternates hits and misses, all warm. */
int bench_busy_access(struct bench *b, const char *dir, struct bench_hist *lat)
{
	struct busy y = { .b = b, .dir = dir };
	char path[2][BENCH_PATH];
	pthread_t thread;

	int rc = bench_need_file(b, dir, "here_busy", 4096);
	if (rc < 0)
		return rc;
	snprintf(path[0], BENCH_PATH, "%s/here_busy", dir);
	snprintf(path[1], BENCH_PATH, "%s/none_busy", dir);
	rc = pthread_create(&thread, NULL, busy_main, &y);
	if (rc)
		return -rc;
	usleep(100000);
	double end = bench_now() + BUSY_SECONDS;
	for (unsigned i = 0; bench_now() < end; i++) {
		double start = bench_now();
		(void)!access(path[i % 2], F_OK);
		bench_hist_add(lat, (uint64_t)((bench_now() - start) * 1e9));
		/* Engines do not spin: leave CPU time to the writers. */
		if (i % 64 == 63)
			usleep(100);
	}
	y.stop = true;
	pthread_join(thread, NULL);
	return y.rc;
}

const struct bench_case bench_probe_cases[] = {
	{ .name = "access_hit",
	  .what = "access() of a cached hit, time / tmpfs",
	  .ref = BENCH_PLAIN,
	  .is_time = true,
	  .turn = turn_access },
	{ .name = "access_miss",
	  .what = "access() of a cached miss, time / tmpfs",
	  .ref = BENCH_PLAIN,
	  .is_time = true,
	  .turn = turn_access },
	{ .name = "probe_warm",
	  .what = "3,600 access(), 90 % misses, warm, time / tmpfs",
	  .ref = BENCH_PLAIN,
	  .is_time = true,
	  .turn = turn_probe_warm },
	{ .name = "probe_first",
	  .what = "3,600 access(), first time / do-nothing FUSE daemon",
	  .ref = BENCH_NOFUSE,
	  .is_time = true,
	  .turn = turn_probe_first },
	{ .name = NULL },
};
