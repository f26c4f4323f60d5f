/*
 * The master's protocol logic at full size, simulated (tests/sim/sim.h). Prints
 * the figures of each phase, and the longest turn of a master's event loop in
 * thread CPU time, which includes no system calls on sockets.
 *
 *   bench_sim [NODES [KEYS [SEED [RUNS]]]]     default: 1000 5000000 1 1
 *
 * With RUNS > 1 the simulation is repeated in further processes. All runs have
 * the same turns; the least time of each turn counts, because it contains least
 * of the machine's other load.
 *
 * Exits with 1 if a check fails, if two runs differ, or (without sanitizers) if
 * a turn was longer than TURN_MS (100).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "tests/sim/sim_story.h"

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#define TURNS_MAX (16u << 20)
#define PHASES_MAX 16

/* The results of one run, in memory shared with the run's process. */
struct run {
	struct sim_phase phase[PHASES_MAX];
	unsigned int n;
	char wrong[256];
	double rss_gb;
	struct sim_turn turn[TURNS_MAX];
};

static double ms(uint64_t ns)
{
	return (double)ns / 1e6;
}

static double rss_gb(void)
{
	FILE *f = fopen("/proc/self/status", "r");
	char line[128];
	double kb = 0;

	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "VmHWM:", 6))
			kb = strtod(line + 6, NULL);
	if (f)
		fclose(f);
	return kb / 1e6;
}

/* ---- one run ---- */

static void on_phase(void *arg, struct sim_world *w, const struct sim_phase *p)
{
	struct run *r = arg;

	(void)w;
	fprintf(stderr, "%s: %.0f s\n", p->name, ms(p->real_ns) / 1000);
	if (p->wrong)
		snprintf(r->wrong, sizeof(r->wrong), "%s: %s", p->name,
			 p->wrong);
	r->phase[r->n++] = *p;
	r->rss_gb = rss_gb();
}

static int run_here(struct sim_story_opts *o, struct run *r)
{
	char dir[] = "/tmp/bench_sim.XXXXXX", cmd[64];
	bool good;

	if (!mkdtemp(dir))
		return 1;
	o->world.dir = dir;
	pool_log_set_level(POOL_LOG_ERROR);
	sim_log_turns(r->turn, TURNS_MAX);
	good = sim_story_run(o, on_phase, r);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd) || !good;
}

static struct run *run_apart(struct sim_story_opts *o)
{
	struct run *r = mmap(NULL, sizeof(*r), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	int status = 0;
	pid_t pid;

	if (r == MAP_FAILED)
		exit(2);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		_exit(run_here(o, r));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		exit(2);
	if (status && !r->wrong[0])
		snprintf(r->wrong, sizeof(r->wrong), "the run ended with %d",
			 status);
	return r;
}

/* Keeps the shorter time of each turn. False: the runs differ. */
static bool merge(struct run *into, const struct run *r)
{
	size_t i, n = into->n ? into->phase[into->n - 1].turns_end : 0;

	if (into->n != r->n || memcmp(&into->phase[into->n - 1].digest,
				      &r->phase[r->n - 1].digest, 8))
		return false;
	for (i = 0; i < n; i++)
		if (r->turn[i].cpu_ns < into->turn[i].cpu_ns)
			into->turn[i].cpu_ns = r->turn[i].cpu_ns;
	return true;
}

/* ---- the table ---- */

static int by_time(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

struct figures {
	uint64_t cpu_ns, frames, bytes;
	uint32_t p99_ns;
	struct sim_turn longest;
};

static void figure(const struct sim_turn *t, size_t n, struct figures *ret)
{
	uint32_t *ns = calloc(n + 1, sizeof(*ns));
	size_t i;

	memset(ret, 0, sizeof(*ret));
	for (i = 0; i < n; i++) {
		ns[i] = t[i].cpu_ns;
		ret->cpu_ns += t[i].cpu_ns;
		ret->frames += t[i].frames;
		ret->bytes += t[i].bytes;
		if (t[i].cpu_ns > ret->longest.cpu_ns)
			ret->longest = t[i];
	}
	qsort(ns, n, sizeof(*ns), by_time);
	ret->p99_ns = ns[n - n / 100 - (n > 0)];
	free(ns);
}

static uint32_t print_phase(const struct run *r, const struct sim_phase *p)
{
	const struct sim_census *c = &p->census;
	struct figures f;

	figure(r->turn + p->turns, p->turns_end - p->turns, &f);
	printf("%-22s %9.1f %9llu %9.1f %9zu %8.1f %8.2f %8.2f   %u frames, "
	       "%.0f kB\n",
	       p->name, ms(p->virtual_ns) / 1000, (unsigned long long)f.frames,
	       (double)f.bytes / 1e6, p->turns_end - p->turns,
	       ms(f.cpu_ns) / 1000, ms(f.p99_ns), ms(f.longest.cpu_ns),
	       f.longest.frames, (double)f.longest.bytes / 1e3);
	printf("%22s %llu keys with %llu copies, %llu lost, %llu deleted; %llu "
	       "copies made, %llu dropped; fullest node %.2f of the mean\n",
	       "", (unsigned long long)c->keys, (unsigned long long)c->copies,
	       (unsigned long long)c->lost, (unsigned long long)c->deleted,
	       (unsigned long long)p->copies, (unsigned long long)p->drops,
	       (double)c->used_max / (double)(c->used_mean ? c->used_mean : 1));
	return f.longest.cpu_ns;
}

static unsigned int number(int argc, char **argv, int i, unsigned int otherwise)
{
	return argc > i ? (unsigned int)strtoul(argv[i], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
	struct sim_story_opts o = {
		.load_ns = 2 * SIM_MS,
		.busy_ns = 10 * SIM_S,
		.limit_ns = 600 * SIM_S,
	};
	unsigned int runs = number(argc, argv, 4, 1), i;
	const char *limit = getenv("TURN_MS"), *mounts = getenv("MOUNTS");
	double limit_ms = limit ? strtod(limit, NULL) : 100;
	uint32_t longest = 0, ns;
	struct run *r, *other;
	bool same = true;

	o.world.nodes = number(argc, argv, 1, 1000);
	o.world.keys = number(argc, argv, 2, 5000000);
	o.world.seed = number(argc, argv, 3, 1);
	o.world.born = o.world.keys - o.world.keys / 50;
	o.world.mounts = mounts ? (unsigned int)strtoul(mounts, NULL, 10) : 4;
	o.world.mirrors = 1;
	o.deaths = o.world.nodes / 10;
	if (o.world.nodes < 20 || o.world.keys < 100)
		return 2;
	r = run_apart(&o);
	for (i = 1; i < runs && same && !r->wrong[0]; i++) {
		other = run_apart(&o);
		same = merge(r, other);
		munmap(other, sizeof(*other));
	}
	printf("%u nodes (%u of them mounts), 1 mirror, %u keys, %u replicas, "
	       "seed %llu, %u run(s)\n\n",
	       o.world.nodes, o.world.mounts, o.world.keys, SIM_REPLICAS,
	       (unsigned long long)o.world.seed, runs);
	printf("%-22s %9s %9s %9s %9s %8s %8s %8s   %s\n", "phase",
	       "virtual s", "frames", "MB", "turns", "CPU s", "p99 ms",
	       "max ms", "longest turn");
	for (i = 0; i < r->n; i++) {
		ns = print_phase(r, &r->phase[i]);
		longest = ns > longest ? ns : longest;
	}
	printf("\nmost memory: %.1f GB; longest turn: %.1f ms (<= %.0f)\n%s\n",
	       r->rss_gb, ms(longest), limit_ms,
	       r->wrong[0] ? r->wrong :
	       !same	   ? "two runs of one seed differ" :
		       "after each phase, the map matched the nodes' copies "
		       "and the mirror matched the map");
	return r->wrong[0] || !same || (ms(longest) > limit_ms && !SANITIZED);
}
