/*
 * What moving objects by libkvpool takes, for bench_library.sh and others:
 *
 *	library_bench AT stock ROUNDS	objects to be got
 *	library_bench AT move ROUNDS	puts and gets of such, beside a raw
 *					socket
 *	library_bench AT small BATCH	small objects put until the buffer is
 *					full, and on, so many at once
 *	library_bench AT words ROUNDS	the same, without that, as words
 *					get.BYTES.N=MICROSECONDS
 *
 * Each figure is the median of rounds that alternate with what it is compared
 * to.
 */
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>
#include <netinet/in.h>
#include <netinet/tcp.h>

#include "tests/bench/library_bench.h"

#define NEW_PAGES 3 /* rounds of puts before the buffer is full */
#define FILL 1000   /* their names, after those of rounds */

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

/* Until the buffer is full of such, as it is where puts have gone on for a
 * while: each further one takes the place of one that has been stored. */
static void fill(unsigned int n, size_t len)
{
	uint64_t times = buffer_size() / (n * len) + 1;

	for (uint64_t i = 0; i < times; i++) {
		put_many((unsigned int)(FILL + i), n, len);
		must("sync", kvpool_sync(pool));
	}
}

/* Large ones are judged by bytes a second, small ones by round trips. */
static void print_move(const char *call, unsigned int n, size_t len,
		       uint64_t *took, uint64_t *raw, unsigned int rounds)
{
	double us = (double)median(took, rounds) / 1e3;
	double base = (double)median(raw, rounds) / 1e3;
	double best = (double)took[0] / 1e3, base_best = (double)raw[0] / 1e3;
	bool small = len <= 4096;
	bool aims = call[0] == 'g' || (!small && strcmp(call, "put") == 0);
	char what[64];

	snprintf(what, sizeof(what), "%s %u x %zu KiB", call, n, len >> 10);
	line(what, small ? us <= 3 * base : base >= 0.9 * us,
	     !aims ? "" : small ? "<= 3.00 times" : ">= 0.90 of raw",
	     "%.0f us, raw %.0f: %.2f %s (best: %.2f)", us, base,
	     small ? us / base : base / us, small ? "times" : "of raw",
	     small ? best / base_best : base_best / best);
}

static void move(size_t len, unsigned int n, unsigned int rounds)
{
	uint64_t raw[ROUNDS_MAX], first[ROUNDS_MAX], again[ROUNDS_MAX];
	uint64_t put[ROUNDS_MAX], new_raw[NEW_PAGES], new_put[NEW_PAGES];
	struct raw r = { .len = len * n };
	pthread_t t;

	r.from = malloc(r.len);
	/* else it is one page of zeroes, over and over */
	memset(r.from, 1, r.len);
	if (tcp_pair(r.fd) || pthread_create(&t, NULL, send_raw, &r))
		exit(1);
	raw_get(&r);
	for (unsigned int i = 0; i < NEW_PAGES; i++) {
		new_raw[i] = raw_get(&r);
		new_put[i] = put_many(ROUNDS_MAX + i, n, len);
		must("sync", kvpool_sync(pool));
	}
	if (len > 4096)
		fill(n, len);
	for (unsigned int i = 0; i < rounds; i++) {
		raw[i] = raw_get(&r);
		first[i] = get_many(i, n, len);
		again[i] = get_many(i, n, len);
		put[i] = put_many(i, n, len);
		must("sync", kvpool_sync(pool));
	}
	print_move("get", n, len, first, raw, rounds);
	print_move("get again", n, len, again, raw, rounds);
	print_move("put", n, len, put, raw, rounds);
	if (len > 4096)
		print_move("put, new pages", n, len, new_put, new_raw,
			   NEW_PAGES);
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

/* Objects of 64 bytes to 4 KiB. */
static size_t small_len(uint64_t i)
{
	return 64 + (size_t)(i * 0x9e3779b97f4a7c15ull >> 32) % 4033;
}

/* n of them from `at` on, in one batch. */
static uint64_t put_small(uint64_t at, unsigned int n)
{
	static uint64_t run;
	struct kvpool_key *keys;
	struct kvpool_buf *bufs = calloc(n, sizeof(*bufs));
	int64_t *ret = calloc(n, sizeof(*ret));
	uint64_t begin;

	if (!run)
		run = now_ns() << 24; /* not what an earlier run has put */
	keys = make_keys(run + at, n);
	for (unsigned int i = 0; i < n; i++)
		bufs[i] = (struct kvpool_buf){ mem + (at + i) * 64 % (MEM / 2),
					       small_len(at + i) };
	begin = now_ns();
	must("put", kvpool_batch_put_from(ns, keys, bufs, n, 0, ret));
	begin = now_ns() - begin;
	for (unsigned int i = 0; i < n; i++)
		must("put of one", ret[i]);
	free((void *)(uintptr_t)keys[0].data);
	free(keys);
	free(bufs);
	free(ret);
	return begin;
}

/* Puts a second, of n objects or a few more, in batches. */
static double small_rate(uint64_t *at, uint64_t n, unsigned int batch)
{
	uint64_t took = 0, begin = *at;

	for (; *at - begin < n; *at += batch)
		took += put_small(*at, batch);
	return (double)(*at - begin) * 1e9 / (double)took;
}

/* On and on, faster than stores take them: what the buffer takes at first, what
 * it takes when it is full and has to wait for them. */
static void small(unsigned int batch)
{
	uint64_t at = 0, pages = buffer_size() / 4096;
	double first = small_rate(&at, pages / 2, batch), later;
	char what[64];

	small_rate(&at, pages, batch); /* it is full */
	later = small_rate(&at, 3 * pages / 2, batch);
	snprintf(what, sizeof(what), "put %u x 64 B to 4 KiB, on and on",
		 batch);
	line(what, later >= 0.5 * first, ">= 0.50 of first",
	     "%.0f puts/s, at first %.0f: %.2f", later, first, later / first);
	must("sync", kvpool_sync(pool));
}

int main(int argc, char **argv)
{
	unsigned int n;

	if (argc < 4 || (strcmp(argv[2], "small") != 0 &&
			 strtoul(argv[3], NULL, 10) > ROUNDS_MAX))
		return 2;
	n = (unsigned int)strtoul(argv[3], NULL, 10);
	connect_to(argv[1]);
	if (strcmp(argv[2], "stock") == 0) {
		stock(4096, 1, n);
		stock(4u << 20, 1, n);
		stock(1u << 20, 32, n);
	}
	if (strcmp(argv[2], "move") == 0) {
		move(4096, 1, n);
		move(4u << 20, 1, n);
		move(1u << 20, 32, n);
	}
	if (strcmp(argv[2], "words") == 0) {
		words(4u << 20, 1, n);
		words(1u << 20, 32, n);
	}
	if (strcmp(argv[2], "small") == 0)
		small(n);
	disconnect();
	return 0;
}
