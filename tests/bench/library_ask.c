/*
 * What questions to libkvpool take, for bench_library.sh:
 *
 *	library_ask AT fill KEYS	that many keys of 64 bytes, by this
 *					process
 *	library_ask AT press MIBPS	puts of 1 MiB, which evict others, so
 *					many a second (0: as fast as they go),
 *					to its end
 *	library_ask AT ask KEYS		questions about these keys, and as many
 *					misses
 *	library_ask AT ask-beside KEYS	the same, without aims
 *	library_ask AT look KEYS	512 at a time, while two threads of this
 *					process get, then put, all the bytes
 *					that they can, through the same
 *					connection
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include "tests/bench/library_bench.h"

#define BATCH 4096
#define PREFIX 3600
#define LOOK 512
#define LOOKS 4000

/* ---- fill ---- */

/* However busy the machine is. */
static void sync_all(void)
{
	for (unsigned int i = 0; kvpool_sync(pool) && i < 60; i++)
		;
}

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
		/* Stores take them one by one, and the buffer is not endless.
		 */
		if (at / BATCH % 8 == 7)
			sync_all();
	}
	fprintf(stderr, "%zu keys put in %.1f s, ", n,
		(double)(now_ns() - begin) / 1e9);
	sync_all();
	fprintf(stderr, "on stores in %.1f s\n",
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

static void ask(size_t n, bool aims)
{
	struct kvpool_key *keys = calloc(2 * n, sizeof(*keys)), *some;
	uint64_t took[ROUNDS_MAX], cpu[ROUNDS_MAX], begin, used;
	int64_t *ret = calloc(BATCH, sizeof(*ret));
	ssize_t there = 0;
	char what[64];
	unsigned int r;
	double ms;

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
	snprintf(what, sizeof(what), "batch exists, %zu keys", n);
	line(what, 2e3 * (double)n / (double)begin >= 5, aims ? ">= 5 M/s" : "",
	     "%.2f M/s (%.2f M a second of CPU), %.0f %% hits",
	     2e3 * (double)n / (double)begin, 2e3 * (double)n / (double)used,
	     50.0 * (double)there / (double)n);
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
	snprintf(what, sizeof(what), "prefix of %u keys", PREFIX);
	ms = (double)median(took, 100) / 1e6;
	line(what, ms <= 0.8, aims ? "<= 0.80 ms" : "",
	     "%.3f ms (p99 %.3f; CPU %.3f)", ms, (double)took[98] / 1e6,
	     (double)median(cpu, 100) / 1e6);
	for (r = 0; r < 100; r++) {
		begin = now_ns();
		for (unsigned int i = 0; i < 100; i++)
			(void)kvpool_exists(ns, keys[r * 100 + i].data,
					    keys[r * 100 + i].len);
		took[r] = (now_ns() - begin) / 100;
	}
	line("exists, one key", true, "", "%.2f us",
	     (double)median(took, 100) / 1e3);
}

/* ---- press ---- */

/* Each put is of new bytes under a new key: what was there before has to go. */
static void press(uint64_t mibps)
{
	uint64_t begin = now_ns(), due, n;
	struct kvpool_ns *other;
	char key[48];

	must("namespace", kvpool_open_ns(pool, "press", NULL, &other));
	for (n = 0;; n++) {
		due = mibps ? begin + n * 1000000000u / mibps : 0;
		if (due > now_ns())
			usleep((useconds_t)((due - now_ns()) / 1000));
		snprintf(key, sizeof(key), "p%d-%llu", (int)getpid(),
			 (unsigned long long)n);
		memcpy(mem, key, sizeof(key));
		(void)kvpool_put_from(other, key, strlen(key), mem, 1u << 20,
				      0);
	}
}

/* ---- look ---- */

#define MOVED_AT_ONCE 16

static _Atomic bool looked;
static _Atomic uint64_t moved; /* MiB */

/* What one thread moves: a batch, again and again. */
struct mover {
	pthread_t thread;
	unsigned int nth;
	bool put;
	struct kvpool_ns *ns;
	struct kvpool_key keys[MOVED_AT_ONCE];
	struct kvpool_buf bufs[MOVED_AT_ONCE];
	char names[MOVED_AT_ONCE][32];
};

/* Gets of what is there; puts of new bytes under new keys. */
static void set_batch(struct mover *m, unsigned int round)
{
	for (unsigned int i = 0; i < MOVED_AT_ONCE; i++) {
		snprintf(m->names[i], sizeof(m->names[i]),
			 m->put ? "put%u-%u-%u" : "look%u", i, m->nth, round);
		m->keys[i].data = m->names[i];
		m->keys[i].len = strlen(m->names[i]);
		m->bufs[i].data = mem + m->nth * (MEM / 2) + ((size_t)i << 20);
		m->bufs[i].len = 1u << 20;
		if (m->put)
			memcpy(m->bufs[i].data, m->names[i], 32);
	}
}

static void *move_bytes(void *arg)
{
	struct mover *m = arg;
	int64_t ret[MOVED_AT_ONCE];
	ssize_t n;

	for (unsigned int round = 0; !looked; round++) {
		set_batch(m, round);
		n = m->put ? kvpool_batch_put_from(m->ns, m->keys, m->bufs,
						   MOVED_AT_ONCE, 0, ret) :
			     kvpool_batch_get_into(m->ns, m->keys, m->bufs,
						   MOVED_AT_ONCE, 0, ret);
		if (n > 0)
			moved += (uint64_t)n;
	}
	return NULL;
}

/* How long the calling thread was ready and did not run, ns. fd: of its
 * schedstat. */
static uint64_t waited_ns(int fd)
{
	char text[96] = "";
	ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
	const char *second = n > 0 ? strchr(text, ' ') : NULL;

	return second ? strtoull(second, NULL, 10) : 0;
}

static void look_beside(bool put, struct kvpool_key *keys, size_t n)
{
	uint64_t *took = calloc(LOOKS, sizeof(*took)), begin, from, waited;
	uint64_t *ran = calloc(LOOKS, sizeof(*ran));
	int schedstat = open("/proc/thread-self/schedstat", O_RDONLY);
	struct mover m[2] = { { .nth = 0 }, { .nth = 1 } };
	struct kvpool_ns *press;
	int64_t ret[LOOK];
	unsigned int i;

	must("schedstat", schedstat < 0 ? -errno : 0);
	must("namespace", kvpool_open_ns(pool, "press", NULL, &press));
	looked = false;
	for (i = 0; i < 2; i++) {
		m[i].put = put;
		m[i].ns = put ? press : ns;
		if (pthread_create(&m[i].thread, NULL, move_bytes, &m[i]))
			exit(1);
	}
	usleep(200000);
	moved = 0;
	begin = now_ns();
	for (i = 0; i < LOOKS; i++) {
		waited = waited_ns(schedstat);
		from = now_ns();
		(void)kvpool_batch_exists(ns, keys, n, ret);
		took[i] = now_ns() - from;
		waited = waited_ns(schedstat) - waited;
		ran[i] = took[i] > waited ? took[i] - waited : 0;
		usleep(500);
	}
	looked = true;
	begin = now_ns() - begin;
	for (i = 0; i < 2; i++)
		pthread_join(m[i].thread, NULL);
	kvpool_close_ns(press);
	(void)median(took, LOOKS);
	(void)median(ran, LOOKS);
	line(put ? "look-up of 512 keys beside puts" :
		   "look-up of 512 keys beside gets",
	     took[LOOKS / 100 * 99] <= 1000000, "p99 <= 1.00 ms",
	     "p50 %.3f, p99 %.3f (without waits for a CPU: %.3f), "
	     "max %.1f ms, %.2f GB/s",
	     (double)took[LOOKS / 2] / 1e6,
	     (double)took[LOOKS / 100 * 99] / 1e6,
	     (double)ran[LOOKS / 100 * 99] / 1e6,
	     (double)took[LOOKS - 1] / 1e6,
	     (double)(moved << 20) / (double)begin);
	close(schedstat);
	free(took);
	free(ran);
}

static void look(size_t n)
{
	struct kvpool_key *keys;
	char key[32];

	n = n < LOOK ? n : LOOK;
	keys = make_keys(0, n);
	for (unsigned int i = 0; i < MOVED_AT_ONCE; i++) {
		snprintf(key, sizeof(key), "look%u", i);
		memcpy(mem, key, sizeof(key));
		must("put", kvpool_put_from(ns, key, strlen(key), mem, 1u << 20,
					    KVPOOL_SYNC));
	}
	disconnect(); /* what is its own would be read here */
	connect_to(getenv("LIBRARY_AT"));
	look_beside(false, keys, n);
	look_beside(true, keys, n);
}

int main(int argc, char **argv)
{
	size_t n;

	if (argc < 4)
		return 2;
	n = strtoul(argv[3], NULL, 10);
	setenv("LIBRARY_AT", argv[1], 1);
	connect_to(argv[1]);
	if (strcmp(argv[2], "fill") == 0)
		fill(n);
	if (strcmp(argv[2], "press") == 0)
		press(n);
	if (strncmp(argv[2], "ask", 3) == 0)
		ask(n, strcmp(argv[2], "ask") == 0);
	if (strcmp(argv[2], "look") == 0)
		look(n);
	disconnect();
	return 0;
}
