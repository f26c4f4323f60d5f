/*
 * What the master's map costs in memory: a million keys, flat in one directory
 * and in vLLM's layout (about 0.6 directories a key), each in a process of its
 * own. Prints bytes of RSS per key; exits with 1 above 400.
 *
 *   bench_master_memory [KEYS]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <xxhash.h>

#include "master/map.h"
#include "pool/base/clock.h"

#define BUDGET 400

static size_t rss(void)
{
	FILE *f = fopen("/proc/self/statm", "r");
	unsigned long size, resident = 0;

	if (f && fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	if (f)
		fclose(f);
	return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}

static int name_flat(unsigned long i, char *buf, size_t cap)
{
	XXH128_hash_t h = XXH3_128bits(&i, sizeof(i));

	return snprintf(buf, cap, "cache/%016lx%016lx%016lx%016lx.bin",
			h.high64, h.low64, h.high64 ^ i, h.low64 ^ i);
}

static int name_vllm(unsigned long i, char *buf, size_t cap)
{
	XXH128_hash_t h = XXH3_128bits(&i, sizeof(i));

	return snprintf(buf, cap,
			"model_0123456789ab_r0/%03lx/%02lx_g0/"
			"%016lx%016lx%016lx%016lx.bin",
			h.high64 >> 52, (h.high64 >> 44) & 255, h.high64,
			h.low64, h.high64 ^ i, h.low64 ^ i);
}

static int fill(const char *what, unsigned long n,
		int (*name)(unsigned long i, char *buf, size_t cap))
{
	struct master_attrs attrs = { .mode = 0644 };
	size_t before = rss(), per_key;
	uint64_t start = pool_now_ns(), ns;
	struct master_map m;
	struct master_file *f;
	unsigned long i;
	char path[256];
	bool made;
	int len;

	if (master_map_init(&m, 1000, 1000))
		return 1;
	for (i = 0; i < n; i++) {
		len = name(i, path, sizeof(path));
		if (master_map_make_file(&m, path, (size_t)len, &attrs, &f,
					 &made))
			return 1;
		f->gen = i + 1;
		master_file_set_size(&m, f, 1 << 20);
		memset(f->sum, (int)i, sizeof(f->sum));
		/* Two holders, as a replicated key has. */
		master_file_add_holder(&m, f, master_holder_make(1, 1));
		master_file_add_holder(&m, f, master_holder_make(2, 1));
		master_map_touch_file(&m, f);
	}
	ns = pool_now_ns() - start;
	per_key = (rss() - before) / n;
	printf("%-5s %lu keys, %llu directories: %zu bytes of RSS a key (<= "
	       "%d), %.2f us a key\n",
	       what, n, (unsigned long long)m.ndirs, per_key, BUDGET,
	       (double)ns / 1000.0 / (double)n);
	fflush(stdout);
	return per_key > BUDGET;
}

/* In a process of its own, so that one's memory is not the other's. */
static int apart(const char *what, unsigned long n,
		 int (*name)(unsigned long i, char *buf, size_t cap))
{
	int status = 0;
	pid_t pid = fork();

	if (pid == 0)
		_exit(fill(what, n, name));
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		return 1;
	return !WIFEXITED(status) || WEXITSTATUS(status);
}

int main(int argc, char **argv)
{
	unsigned long n = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
	int bad;

	if (!n)
		return 2;
	bad = apart("flat", n, name_flat);
	bad |= apart("vllm", n, name_vllm);
	return bad;
}
