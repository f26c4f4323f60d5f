/* Costs of the machine itself, needed to interpret the other figures. */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench.h"

#define WAKES 500
#define FRESH (64 * BENCH_MIB)

/* The first (0) or second (1) CPU that we may use; -1: there is none. */
static int cpu_number(int nth)
{
	cpu_set_t all;

	if (sched_getaffinity(0, sizeof(all), &all) < 0)
		return -1;
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET((size_t)cpu, &all) && nth-- == 0)
			return cpu;
	return -1;
}

static int pin(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((size_t)cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one);
}

static void echo(int in, int out, int cpu)
{
	char c;

	if (pin(cpu) == 0)
		while (read(in, &c, 1) == 1 && write(out, &c, 1) == 1)
			;
	_exit(0);
}

static int ping(int out, int in)
{
	char c = 0;

	return write(out, &c, 1) == 1 && read(in, &c, 1) == 1 ? 0 : -EIO;
}

/* Time to wake a process on another CPU, which then wakes us. */
static int measure_wake(double *ret_us)
{
	int there[2], back[2], cpu = cpu_number(1), rc = 0;
	cpu_set_t before;

	if (cpu < 0 || sched_getaffinity(0, sizeof(before), &before) < 0)
		return -ENOTSUP;
	if (pipe(there) < 0 || pipe(back) < 0)
		return bench_error("pipe", "");
	pid_t pid = fork();
	if (pid < 0)
		return bench_error("fork", "");
	if (pid == 0)
		echo(there[0], back[1], cpu);
	rc = pin(cpu_number(0));
	double start = bench_now();
	for (unsigned i = 0; i < WAKES && rc == 0; i++)
		rc = ping(there[1], back[0]);
	*ret_us = (bench_now() - start) / WAKES / 2 * 1e6;
	sched_setaffinity(0, sizeof(before), &before);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	for (int i = 0; i < 2; i++) {
		close(there[i]);
		close(back[i]);
	}
	return rc;
}

/* Time of the first touch of memory that was not used recently. */
static int measure_fresh(double *ret_us_per_mib)
{
	unsigned char *p = mmap(NULL, FRESH, PROT_READ | PROT_WRITE,
				MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (p == MAP_FAILED)
		return bench_error("mmap", "");
	madvise(p, FRESH, MADV_HUGEPAGE);
	double start = bench_now();
	for (size_t i = 0; i < FRESH; i += 4096)
		p[i] = 1;
	*ret_us_per_mib = (bench_now() - start) / (FRESH / BENCH_MIB) * 1e6;
	munmap(p, FRESH);
	return 0;
}

int bench_machine(struct bench_machine *ret_m)
{
	int rc = measure_fresh(&ret_m->fresh_us_per_mib);

	ret_m->wake_us = 0;
	if (rc == 0)
		rc = measure_wake(&ret_m->wake_us);
	return rc == -ENOTSUP ? 0 : rc;
}
