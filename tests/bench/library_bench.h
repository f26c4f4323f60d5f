/*
 * What programs that measure libkvpool share: a connection, clocks, keys, and
 * the lines of one table (bench_library.sh prints its head).
 */
#ifndef LIBRARY_BENCH_H
#define LIBRARY_BENCH_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/kvpool.h"

#define MEM ((size_t)64 << 20)
#define ROUNDS_MAX 200

static struct kvpool *pool;
static struct kvpool_ns *ns;
static char *mem;

static inline uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* CPU time of this thread, without that of others on the machine. */
static inline uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static inline uint64_t median(uint64_t *ns_, unsigned int n)
{
	qsort(ns_, n, sizeof(*ns_), by_size);
	return ns_[n / 2];
}

static inline void must(const char *what, int64_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvpool_strerror(r),
		kvpool_last_error());
	exit(1);
}

/* Writes a key that looks like a block hash; equal numbers give equal keys. */
static inline void name(char *buf, uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15ull;

	snprintf(buf, 64, "llama@8@%016llx%016llx%08llx",
		 (unsigned long long)x,
		 (unsigned long long)(x ^ (x >> 29)) * 3,
		 (unsigned long long)i & 0xffffffff);
}

static inline struct kvpool_key *make_keys(uint64_t from, size_t n)
{
	struct kvpool_key *keys = calloc(n, sizeof(*keys));
	char *names = malloc(n * 64);

	for (size_t i = 0; i < n; i++) {
		name(names + i * 64, from + i);
		keys[i].data = names + i * 64;
		keys[i].len = strlen(names + i * 64);
	}
	return keys;
}

/* Prints a line of the table: what was measured, the figures (fmt), the aim,
 * and whether it was met (good). aim "": there is none. */
static inline void line(const char *what, bool good, const char *aim,
			const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
static inline void line(const char *what, bool good, const char *aim,
			const char *fmt, ...)
{
	char figures[96];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(figures, sizeof(figures), fmt, ap);
	va_end(ap);
	printf("%-34s %-50s %-14s %s\n", what, figures, aim,
	       !aim[0] ? "" : good ? "ok" : "MISSED");
	fflush(stdout);
}

static inline uint64_t buffer_size(void)
{
	const char *mib = getenv("LIBRARY_MIB");

	return (mib ? strtoull(mib, NULL, 10) : 512) << 20;
}

static inline void connect_to(const char *at)
{
	struct kvpool_options o = { .struct_size = sizeof(o), .at = at };

	o.buffer_dir = getenv("LIBRARY_BUFFER");
	o.rdma_device = getenv("LIBRARY_RDMA");
	o.listen = getenv("LIBRARY_LISTEN");
	o.flags = o.listen ? KVPOOL_INSECURE : 0;
	o.timeout_ms = 60000;
	o.buffer_size = buffer_size();
	must("connect", kvpool_connect(&o, &pool));
	must("namespace", kvpool_open_ns(pool, "bench", NULL, &ns));
	mem = malloc(MEM);
	memset(mem, 1, MEM);
	must("register", kvpool_register_buffer(pool, mem, MEM));
}

static inline void disconnect(void)
{
	kvpool_close_ns(ns);
	must("close", kvpool_close(pool));
}

#endif
