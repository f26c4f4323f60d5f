/*
 * What calls of libkvpool take, for bench_library.sh:
 *
 *	library_bench AT fill KEYS	that many keys of 64 bytes, by this process
 *	library_bench AT ask KEYS	questions about these, and as many misses
 *	library_bench AT move ROUNDS	puts and gets, beside a raw socket
 *	library_bench AT words ROUNDS	the same, without that, as words
 *					get.BYTES.N=MICROSECONDS
 *
 * Each figure is the median of rounds that alternate with what it is compared
 * to.
 */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "pool/kvpool.h"

#define MEM ((size_t)64 << 20)
#define BATCH 4096
#define ROUNDS_MAX 200
#define PREFIX 3600

static struct kvpool *pool;
static struct kvpool_ns *ns;
static char *mem;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of this thread: what others do on the machine is not in it. */
static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return (*x > *y) - (*x < *y);
}

static uint64_t median(uint64_t *ns_, unsigned int n)
{
	qsort(ns_, n, sizeof(*ns_), by_size);
	return ns_[n / 2];
}

static void must(const char *what, int64_t r)
{
	if (r >= 0)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, kvpool_strerror(r),
		kvpool_last_error());
	exit(1);
}

/* As block hashes look: the same number is the same key. */
static void name(char *buf, uint64_t i)
{
	uint64_t x = i * 0x9e3779b97f4a7c15ull;

	snprintf(buf, 64, "llama@8@%016llx%016llx%08llx",
		 (unsigned long long)x,
		 (unsigned long long)(x ^ (x >> 29)) * 3,
		 (unsigned long long)i & 0xffffffff);
}

static struct kvpool_key *make_keys(uint64_t from, size_t n)
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

/* ---- fill ---- */

static void fill(size_t n)
{
	static struct kvpool_buf bufs[BATCH];
	static int64_t ret[BATCH];
	uint64_t begin = now_ns();

	for (size_t at = 0; at < n; at += BATCH) {
		size_t k = n - at < BATCH ? n - at : BATCH;
		struct kvpool_key *keys = make_keys(at, k);

		for (size_t i = 0; i < k; i++) {
			memcpy(mem + i * 64, keys[i].data, keys[i].len);
			bufs[i] = (struct kvpool_buf){ mem + i * 64, 64 };
		}
		must("put", kvpool_batch_put_from(ns, keys, bufs, k, 0, ret));
		for (size_t i = 0; i < k; i++)
			must("put", ret[i]);
		free((void *)(uintptr_t)keys[0].data);
		free(keys);
	}
	printf("%zu keys put in %.1f s, ", n, (double)(now_ns() - begin) / 1e9);
	/* Stores take them one by one. */
	for (unsigned int i = 0; kvpool_sync(pool) && i < 60; i++)
		;
	printf("on stores in %.1f s\n",
	       (double)(now_ns() - begin) / 1e9);
}

/* ---- ask ---- */

static void shuffle(struct kvpool_key *keys, size_t n)
{
	unsigned int seed = 1;

	for (size_t i = n; i > 1; i--) {
		size_t k = (size_t)rand_r(&seed) * (size_t)rand_r(&seed) % i;
		struct kvpool_key swap = keys[i - 1];

		keys[i - 1] = keys[k];
		keys[k] = swap;
	}
}

static void ask(size_t n)
{
	struct kvpool_key *keys = calloc(2 * n, sizeof(*keys)), *some;
	uint64_t took[ROUNDS_MAX], cpu[ROUNDS_MAX], begin, used;
	int64_t *ret = calloc(BATCH, sizeof(*ret));
	ssize_t there = 0;
	unsigned int r;

	some = make_keys(0, n);
	memcpy(keys, some, n * sizeof(*keys));
	memcpy(keys + n, make_keys(1ull << 40, n), n * sizeof(*keys));
	shuffle(keys, 2 * n);
	begin = now_ns();
	used = cpu_ns();
	for (size_t at = 0; at < 2 * n; at += BATCH)
		there += kvpool_batch_exists(ns, keys + at,
					     2 * n - at < BATCH ? 2 * n - at :
								  BATCH, ret);
	begin = now_ns() - begin;
	used = cpu_ns() - used;
	printf("batch exists, %zu keys and as many misses: %.2f M keys/s, "
	       "%.2f M a second of CPU time (%zd there)\n", n,
	       2e3 * (double)n / (double)begin, 2e3 * (double)n / (double)used,
	       there);
	for (r = 0; r < 100; r++) {
		size_t from = r * PREFIX % (n > PREFIX ? n - PREFIX : 1);
		size_t k = n < PREFIX ? n : PREFIX;

		begin = now_ns();
		used = cpu_ns();
		if (kvpool_exists_prefix(ns, some + from, k) != (ssize_t)k)
			printf("(not all of the prefix are there)\n");
		took[r] = now_ns() - begin;
		cpu[r] = cpu_ns() - used;
	}
	printf("prefix of %u keys: median %.3f ms, ", PREFIX,
	       (double)median(took, 100) / 1e6);
	printf("p99 %.3f ms; CPU time %.3f ms\n", (double)took[98] / 1e6,
	       (double)median(cpu, 100) / 1e6);
	for (r = 0; r < 100; r++) {
		begin = now_ns();
		for (unsigned int i = 0; i < 100; i++)
			(void)kvpool_exists(ns, keys[r * 100 + i].data,
					    keys[r * 100 + i].len);
		took[r] = (now_ns() - begin) / 100;
	}
	printf("exists, one key: median %.2f us\n",
	       (double)median(took, 100) / 1e3);
}

/* ---- move ---- */

struct raw {
	int fd[2]; /* ours, the sender's */
	size_t len;
	char *from;
};

static void *send_raw(void *arg)
{
	struct raw *r = arg;
	char byte;

	while (read(r->fd[1], &byte, 1) == 1)
		for (size_t done = 0; done < r->len;) {
			ssize_t n = write(r->fd[1], r->from + done,
					  r->len - done);

			if (n <= 0)
				return NULL;
			done += (size_t)n;
		}
	return NULL;
}

static int tcp_pair(int fd[2])
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int s = socket(AF_INET, SOCK_STREAM, 0), one = 1;
	socklen_t len = sizeof(sa);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	if (bind(s, (void *)&sa, sizeof(sa)) || listen(s, 1) ||
	    getsockname(s, (void *)&sa, &len))
		return -1;
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd[0], (void *)&sa, sizeof(sa)))
		return -1;
	fd[1] = accept(s, NULL, NULL);
	setsockopt(fd[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fd[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	close(s);
	return 0;
}

static uint64_t raw_get(struct raw *r)
{
	uint64_t begin = now_ns();

	if (write(r->fd[0], "x", 1) != 1)
		exit(1);
	for (size_t done = 0; done < r->len;) {
		ssize_t n = read(r->fd[0], mem + done, r->len - done);

		if (n <= 0)
			exit(1);
		done += (size_t)n;
	}
	return now_ns() - begin;
}

static void put_one(const char *key, size_t len)
{
	must("put", kvpool_put_from(ns, key, strlen(key), mem, len, 0));
}

/* n objects of len bytes at once. */
static uint64_t many(const char *form, bool put, unsigned int seed,
		     unsigned int n, size_t len)
{
	struct kvpool_key keys[32];
	struct kvpool_buf bufs[32];
	char names[32][48];
	int64_t ret[32];
	uint64_t begin;

	for (unsigned int i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "%s%zu-%u-%u", form, len,
			 seed, i);
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
		bufs[i] = (struct kvpool_buf){ mem + i * len, len };
		if (put)
			memcpy(bufs[i].data, names[i], sizeof(names[i]));
	}
	begin = now_ns();
	must("many", put ? kvpool_batch_put_from(ns, keys, bufs, n, 0, ret) :
			   kvpool_batch_get_into(ns, keys, bufs, n,
						 KVPOOL_EXACT, ret));
	begin = now_ns() - begin;
	for (unsigned int i = 0; i < n; i++)
		must(put ? "put" : "get", ret[i]);
	return begin;
}

static uint64_t get_many(unsigned int seed, unsigned int n, size_t len)
{
	return many("m", false, seed, n, len);
}

static uint64_t put_many(unsigned int seed, unsigned int n, size_t len)
{
	return many("p", true, seed, n, len);
}

/* AT's MOVE: objects that the process started with "stock" has put. */
static void stock(size_t len, unsigned int n, unsigned int rounds)
{
	uint64_t started = now_ns();
	char key[32];

	for (unsigned int r = 0; r < rounds; r++)
		for (unsigned int i = 0; i < n; i++) {
			snprintf(key, sizeof(key), "m%zu-%u-%u", len, r, i);
			/* Not what an earlier run has put. */
			memcpy(mem, key, sizeof(key));
			memcpy(mem + sizeof(key), &started, sizeof(started));
			put_one(key, len);
		}
	must("sync", kvpool_sync(pool));
}

static void move(size_t len, unsigned int n, unsigned int rounds)
{
	uint64_t raw[ROUNDS_MAX], first[ROUNDS_MAX], again[ROUNDS_MAX];
	uint64_t put[ROUNDS_MAX];
	struct raw r = { .len = len * n };
	pthread_t t;
	double base;

	r.from = calloc(1, r.len);
	if (tcp_pair(r.fd) || pthread_create(&t, NULL, send_raw, &r))
		exit(1);
	raw_get(&r);
	for (unsigned int i = 0; i < rounds; i++) {
		raw[i] = raw_get(&r);
		first[i] = get_many(i, n, len);
		again[i] = get_many(i, n, len);
		put[i] = put_many(i, n, len);
		must("sync", kvpool_sync(pool));
	}
	base = (double)median(raw, rounds) / 1e3;
	printf("%2u x %7zu bytes: raw socket %8.0f us;", n, len, base);
	printf(" get %8.0f us (%.2f of raw),", (double)median(first, rounds) / 1e3,
	       base / ((double)median(first, rounds) / 1e3));
	printf(" again %8.0f us (%.2f),", (double)median(again, rounds) / 1e3,
	       base / ((double)median(again, rounds) / 1e3));
	printf(" put %8.0f us (%.2f)\n", (double)median(put, rounds) / 1e3,
	       base / ((double)median(put, rounds) / 1e3));
	shutdown(r.fd[0], SHUT_RDWR);
	pthread_join(t, NULL);
}

static void words(size_t len, unsigned int n, unsigned int rounds)
{
	uint64_t get[ROUNDS_MAX], put[ROUNDS_MAX];

	for (unsigned int i = 0; i < rounds; i++) {
		get[i] = get_many(i, n, len);
		put[i] = put_many(i, n, len);
		must("sync", kvpool_sync(pool));
	}
	printf("get.%zu.%u=%.1f put.%zu.%u=%.1f\n", len, n,
	       (double)median(get, rounds) / 1e3, len, n,
	       (double)median(put, rounds) / 1e3);
}

int main(int argc, char **argv)
{
	struct kvpool_options o = { .struct_size = sizeof(o) };
	size_t n;

	if (argc < 4)
		return 2;
	n = strtoul(argv[3], NULL, 10);
	o.at = argv[1];
	o.buffer_dir = getenv("LIBRARY_BUFFER");
	o.rdma_device = getenv("LIBRARY_RDMA");
	o.listen = getenv("LIBRARY_LISTEN");
	o.flags = o.listen ? KVPOOL_INSECURE : 0;
	o.timeout_ms = 60000;
	o.buffer_size = 512u << 20;
	must("connect", kvpool_connect(&o, &pool));
	must("namespace", kvpool_open_ns(pool, "bench", NULL, &ns));
	mem = malloc(MEM);
	memset(mem, 1, MEM);
	must("register", kvpool_register_buffer(pool, mem, MEM));
	if (strcmp(argv[2], "fill") == 0)
		fill(n);
	if (strcmp(argv[2], "ask") == 0)
		ask(n);
	if (strcmp(argv[2], "stock") == 0 && n <= ROUNDS_MAX) {
		stock(4096, 1, (unsigned int)n);
		stock(4u << 20, 1, (unsigned int)n);
		stock(1u << 20, 32, (unsigned int)n);
	}
	if (strcmp(argv[2], "move") == 0 && n <= ROUNDS_MAX) {
		move(4096, 1, (unsigned int)n);
		move(4u << 20, 1, (unsigned int)n);
		move(1u << 20, 32, (unsigned int)n);
	}
	if (strcmp(argv[2], "words") == 0 && n <= ROUNDS_MAX) {
		words(4u << 20, 1, (unsigned int)n);
		words(1u << 20, 32, (unsigned int)n);
	}
	kvpool_close_ns(ns);
	must("close", kvpool_close(pool));
	return 0;
}
