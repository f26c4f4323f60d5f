/*
 * mount_bench ROUNDS FILES NAME=DIRECTORY[:PID]...: what engines do to files,
 * in each directory in turn, a round after the other. Prints a table in
 * Markdown: medians over the rounds in microseconds an operation, of a round's
 * slowest per cent, operations a second of several threads, and the CPU time of
 * PID. The first directory is the one that others are compared with.
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TARGETS 8
#define THREADS 16
#define ROUNDS 101
#define FILES 20000u

struct target {
	char name[32];
	const char *dir;
	long pid; /* 0: none */
};

struct figure {
	double mean[ROUNDS], p99[ROUNDS], cpu[ROUNDS];
};

struct worker {
	const struct target *t;
	unsigned int first, n; /* of the files */
	int round;
	size_t size;
	int (*op)(const struct worker *w, const char *path);
	char *bytes;
	double *us; /* of each file */
};

static struct target targets[TARGETS];
static int ntargets, nrounds;
static unsigned int nfiles;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static double now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* User and system time of a process, all threads. */
static double cpu_us(long pid)
{
	unsigned long user, sys;
	char path[64];
	FILE *f;

	if (!pid)
		return 0;
	snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
	f = fopen(path, "r");
	if (!f || fscanf(f, "%*d (%*[^)]) %*c %*d %*d %*d %*d %*d %*u %*u %*u "
			    "%*u %*u %lu %lu", &user, &sys) != 2)
		die(path);
	fclose(f);
	return (double)(user + sys) * 1e6 / (double)sysconf(_SC_CLK_TCK);
}

/* ---- operations ---- */

static int put(const struct worker *w, const char *path)
{
	char tmp[300];
	int fd, ok;

	snprintf(tmp, sizeof(tmp), "%s.tmp", path);
	fd = open(tmp, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		return -1;
	ok = write(fd, w->bytes, w->size) == (ssize_t)w->size;
	ok &= close(fd) == 0;
	return ok && rename(tmp, path) == 0 ? 0 : -1;
}

static int get(const struct worker *w, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	int ok = fd >= 0 && read(fd, w->bytes, w->size) == (ssize_t)w->size;

	return fd >= 0 && close(fd) == 0 && ok ? 0 : -1;
}

static int look(const struct worker *w, const char *path)
{
	struct stat st;
	char none[300];

	/* A name that nobody has asked for. */
	snprintf(none, sizeof(none), "%s.%d-%zu", path, w->round, w->size);
	return stat(none, &st) < 0 && errno == ENOENT ? 0 : -1;
}

static int away(const struct worker *w, const char *path)
{
	(void)w;
	return unlink(path);
}

static void *work(void *arg)
{
	struct worker *w = arg;
	char path[256];
	double begin;

	for (unsigned int i = w->first; i < w->first + w->n; i++) {
		snprintf(path, sizeof(path), "%s/bench-%u", w->t->dir, i);
		begin = now_us();
		if (w->op(w, path))
			die(path);
		w->us[i] = now_us() - begin;
	}
	return NULL;
}

/* ---- rounds ---- */

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *of)
{
	double sorted[ROUNDS];

	memcpy(sorted, of, (size_t)nrounds * sizeof(*of));
	qsort(sorted, (size_t)nrounds, sizeof(*sorted), ascending);
	return sorted[nrounds / 2];
}

/* All files once, shared by the threads. */
static void run(const struct target *t, int threads, size_t size,
		int (*op)(const struct worker *w, const char *path),
		struct figure *f, int round)
{
	static double us[FILES];
	struct worker w[THREADS];
	pthread_t id[THREADS];
	unsigned int share = nfiles / (unsigned int)threads;
	double begin, cpu = cpu_us(t->pid);

	for (int i = 0; i < threads; i++) {
		w[i] = (struct worker){ t,    (unsigned int)i * share,
					share, round * THREADS + threads,
					size, op,
					malloc(size), us };
		if (!w[i].bytes)
			die("memory");
		memset(w[i].bytes, i + 1, size);
	}
	begin = now_us();
	for (int i = 0; i < threads; i++)
		if (pthread_create(&id[i], NULL, work, &w[i]))
			die("thread");
	for (int i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		free(w[i].bytes);
	}
	share *= (unsigned int)threads;
	f->mean[round] = (now_us() - begin) / share;
	f->cpu[round] = (cpu_us(t->pid) - cpu) / share;
	qsort(us, share, sizeof(*us), ascending);
	f->p99[round] = us[share * 99 / 100];
}

static void print(const char *what, size_t size, int threads,
		  const struct figure *f)
{
	printf("| %s, %zu KiB, %d thread%s |", what, size / 1024, threads,
	       threads == 1 ? "" : "s");
	for (int i = 0; i < ntargets; i++)
		printf(" %.1f | %.1f | %.1f |%s", median(f[i].mean),
		       median(f[i].p99), median(f[i].cpu),
		       i == ntargets - 1 ? "" : " ");
	for (int i = 1; i < ntargets; i++) {
		double ratio[ROUNDS];

		for (int r = 0; r < nrounds; r++)
			ratio[r] = f[0].mean[r] / f[i].mean[r];
		printf(" %.2f |", median(ratio));
	}
	putchar('\n');
	fflush(stdout);
}

static void measure(size_t size, int threads)
{
	static struct figure puts_[TARGETS], gets_[TARGETS], looks[TARGETS],
		gone[TARGETS];

	for (int r = 0; r < nrounds; r++) {
		for (int i = 0; i < ntargets; i++) {
			const struct target *t = &targets[(i + r) % ntargets];
			size_t at = (size_t)(t - targets);

			run(t, threads, size, put, &puts_[at], r);
			run(t, threads, size, get, &gets_[at], r);
			run(t, threads, size, look, &looks[at], r);
			run(t, threads, size, away, &gone[at], r);
		}
		fprintf(stderr, "\r%zu KiB, %d threads: round %d of %d   ",
			size / 1024, threads, r + 1, nrounds);
	}
	fputc('\r', stderr);
	print("put", size, threads, puts_);
	print("open, read, close", size, threads, gets_);
	print("stat of no file", size, threads, looks);
	print("unlink", size, threads, gone);
}

static void add_target(char *arg)
{
	struct target *t = &targets[ntargets++];
	char *dir = strchr(arg, '='), *pid;

	if (!dir || (size_t)(dir - arg) >= sizeof(t->name)) {
		fprintf(stderr, "not NAME=DIRECTORY[:PID]: %s\n", arg);
		exit(2);
	}
	*dir++ = 0;
	pid = strchr(dir, ':');
	if (pid) {
		*pid++ = 0;
		t->pid = atol(pid);
	}
	strcpy(t->name, arg);
	t->dir = dir;
}

int main(int argc, char **argv)
{
	static const size_t sizes[] = { 4 << 10, 128 << 10 };
	static const int threads[] = { 1, 4, 16 };

	nrounds = argc > 2 ? atoi(argv[1]) : 0;
	nfiles = argc > 2 ? (unsigned int)atoi(argv[2]) : 0;
	if (argc < 4 || argc - 3 > TARGETS || nrounds < 1 || nrounds > ROUNDS ||
	    nfiles < THREADS || nfiles > FILES) {
		fprintf(stderr, "usage: mount_bench ROUNDS(1..%d) "
				"FILES(%d..%u) NAME=DIRECTORY[:PID]...\n",
			ROUNDS, THREADS, FILES);
		return 2;
	}
	for (int i = 3; i < argc; i++)
		add_target(argv[i]);
	printf("| us |");
	for (int i = 0; i < ntargets; i++)
		printf(" %s | p99 | CPU |", targets[i].name);
	for (int i = 1; i < ntargets; i++)
		printf(" %s/%s |", targets[0].name, targets[i].name);
	printf("\n|---|");
	for (int i = 0; i < 4 * ntargets - 1; i++)
		printf("---|");
	putchar('\n');
	for (size_t s = 0; s < sizeof(sizes) / sizeof(*sizes); s++)
		for (size_t t = 0; t < sizeof(threads) / sizeof(*threads); t++)
			measure(sizes[s], threads[t]);
	return 0;
}
