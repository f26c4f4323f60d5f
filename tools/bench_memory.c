/*
 * Memory per object, and the daemon's own count of requests.
 *
 * Memory is counted before and after objects are stored: the pages of all tmpfs
 * files, the kernel's slabs (after its caches were dropped) and the anonymous
 * pages of the pool's own processes. The first two are counts of the whole
 * machine: run this on a quiet one.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench.h"

#define METRICS_MAX (256 * BENCH_KIB)

struct meminfo {
	double shmem, slab, anon; /* bytes */
};

static void drop_caches(void)
{
	int fd = open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC);

	sync();
	if (fd < 0)
		return;
	/* If that fails, the figure includes clean caches. */
	(void)!write(fd, "3", 1);
	close(fd);
}

/* A line "Name:   123 kB" of a file under /proc; 0 if there is none. */
static double proc_kib(const char *path, const char *name)
{
	char line[256], field[64];
	double kib = 0, found = 0;
	FILE *f = fopen(path, "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "%63[^:]: %lf", field, &kib) == 2 &&
		    strcmp(field, name) == 0)
			found = kib;
	if (f)
		fclose(f);
	return found;
}

/* Anonymous memory of all processes called kvpool..., except this one. */
static double pool_anon(void)
{
	char path[64], comm[32];
	DIR *proc = opendir("/proc");
	struct dirent *e;
	double sum = 0;

	while (proc && (e = readdir(proc))) {
		long pid = strtol(e->d_name, NULL, 10);
		if (pid <= 0 || pid == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/%ld/comm", pid);
		FILE *f = fopen(path, "re");
		bool ours = f && fgets(comm, sizeof(comm), f) &&
			    strncmp(comm, "kvpool", 6) == 0;
		if (f)
			fclose(f);
		if (!ours)
			continue;
		snprintf(path, sizeof(path), "/proc/%ld/status", pid);
		sum += proc_kib(path, "RssAnon");
	}
	if (proc)
		closedir(proc);
	return sum * 1024;
}

static void meminfo_read(struct meminfo *m)
{
	m->shmem = proc_kib("/proc/meminfo", "Shmem") * 1024;
	m->slab = proc_kib("/proc/meminfo", "Slab") * 1024;
	m->anon = pool_anon();
}

static void settle(struct meminfo *m)
{
	usleep(1500000); /* until publications and reservations are done */
	drop_caches();
	usleep(300000);
	meminfo_read(m);
}

static int store_objects(const struct bench *b, const char *dir, size_t size,
			 unsigned first, unsigned n)
{
	char path[BENCH_PATH];
	int rc = 0;

	for (unsigned i = first; i < first + n && rc == 0; i++) {
		snprintf(path, sizeof(path), "%s/%064x_%u.bin", dir, i, i);
		rc = bench_write_file(b, path, size, 0);
	}
	return rc ? rc : bench_sync_dir(dir);
}

static void remove_objects(const char *dir, unsigned n)
{
	char path[BENCH_PATH];

	for (unsigned i = 0; i < n; i++) {
		snprintf(path, sizeof(path), "%s/%064x_%u.bin", dir, i, i);
		unlink(path);
	}
}

static unsigned warm_up(unsigned objects)
{
	return objects / 10; /* enough to fill tables and reserves */
}

uint64_t bench_memory_bytes(size_t size, unsigned objects)
{
	return (uint64_t)(objects + warm_up(objects)) *
	       ((size + 4095) / 4096 * 4096);
}

int bench_memory(struct bench *b, size_t size, unsigned objects,
		 struct bench_memory *ret_m)
{
	const char *dir = b->dirs[BENCH_OURS];
	struct meminfo before = { 0 }, after = { 0 };
	unsigned first = warm_up(objects);
	int rc = store_objects(b, dir, size, 0, first);

	if (rc == 0) {
		settle(&before);
		rc = store_objects(b, dir, size, first, objects);
	}
	if (rc == 0)
		settle(&after);
	remove_objects(dir, first + objects);
	if (rc < 0)
		return rc;
	*ret_m = (struct bench_memory){
		.size = size,
		.objects = objects,
		.slab = (after.slab - before.slab) / objects,
		.anon = (after.anon - before.anon) / objects,
	};
	ret_m->total = (after.shmem - before.shmem) / objects + ret_m->slab +
		       ret_m->anon;
	ret_m->over = ret_m->total - (double)((size + 4095) / 4096 * 4096);
	return 0;
}

int bench_requests(const struct bench *b, double *ret_reads,
		   double *ret_writes)
{
	char path[BENCH_PATH], line[1024];
	bool found = false;
	double v;

	snprintf(path, sizeof(path), "%s/.kvpool/metrics", b->mount);
	FILE *f = fopen(path, "re");
	if (!f)
		return -ENOENT;
	/* In one read, so that each call costs the same number of requests. */
	setvbuf(f, NULL, _IOFBF, METRICS_MAX);
	while (fgets(line, sizeof(line), f)) {
		if (sscanf(line, "kvpool_fuse_requests_total{op=\"read\"} %lf",
			   &v) == 1) {
			*ret_reads = v;
			found = true;
		} else if (sscanf(line,
				  "kvpool_fuse_requests_total{op=\"write\"} "
				  "%lf", &v) == 1) {
			*ret_writes = v;
		}
	}
	fclose(f);
	return found ? 0 : -ENOENT;
}
