/*
 * A program that uses libkvpool.so, as engines do, for it_library.sh:
 *
 *	library_user AT NAMESPACE COMMAND [ARGUMENT...]
 *
 *	put KEY FILE		get KEY FILE		map KEY FILE
 *	size KEY		exists KEY...		prefix KEY...
 *	remove KEY		pin KEY SECONDS		unpin KEY
 *	path KEY		key PATH		layout MODEL RANKS
 *	use SECONDS THREADS	puts and gets, synchronous and not, each of
 *				which succeeds whole, or misses
 *	busy N			puts N small ones; "LONGEST TOTAL", ms: of
 *				questions meanwhile, and until all are in stores
 *	survive FILE		asks for keys and puts, until FILE is there;
 *				then all has to work
 *	reread KEY FILE		gets KEY until FILE is there; "N gets", all the
 *				same
 *
 * In keys \xHH is a byte. Prints results; 0, or 1 and the error on stderr. From
 * the environment: LIBRARY_BUFFER, LIBRARY_RDMA (devices), LIBRARY_LISTEN;
 * LIBRARY_DEBUG: set, all that the library logs.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "pool/kvpool.h"

#define MEM ((size_t)16 << 20)
#define KEYS_MAX 256

static struct kvpool *pool;
static struct kvpool_ns *ns;
static char *mem;

static int fails(const char *what, int64_t result)
{
	if (result >= 0)
		return 0;
	fprintf(stderr, "%s: %s: %s\n", what, kvpool_strerror(result),
		kvpool_last_error());
	return 1;
}

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

/* In place. */
static struct kvpool_key key_of(char *text)
{
	char *to = text, *from = text, hex[3] = "";

	while (*from) {
		if (from[0] == '\\' && from[1] == 'x' && from[2] && from[3]) {
			memcpy(hex, from + 2, 2);
			*to++ = (char)strtoul(hex, NULL, 16);
			from += 4;
		} else {
			*to++ = *from++;
		}
	}
	return (struct kvpool_key){ text, (size_t)(to - text) };
}

static int read_file(const char *name, size_t *ret_len)
{
	FILE *f = fopen(name, "r");

	if (!f)
		return 1;
	*ret_len = fread(mem, 1, MEM, f);
	fclose(f);
	return 0;
}

static int write_file(const char *name, const void *data, size_t len)
{
	FILE *f = fopen(name, "w");
	size_t n = f ? fwrite(data, 1, len, f) : 0;

	if (f)
		fclose(f);
	return n != len;
}

/* ---- use ---- */

static uint64_t until_ms;
static atomic_uint puts_made, hits, misses, wrong;

struct worker {
	pthread_t thread;
	unsigned int number;
	char *mem; /* of its own, of MEM / 16 */
};

/* Every word says of which key and size it is. */
static void fill(char *at, size_t len, uint32_t seed)
{
	for (size_t i = 0; i + 4 <= len; i += 4) {
		uint32_t x = seed * 2654435761u + (uint32_t)i;

		memcpy(at + i, &x, 4);
	}
}

static bool filled(const char *at, size_t len, uint32_t key)
{
	uint32_t first, x;

	if (len < 4)
		return false;
	memcpy(&first, at, 4);
	for (size_t i = 0; i + 4 <= len; i += 4) {
		memcpy(&x, at + i, 4);
		if (x != first + (uint32_t)i)
			return false;
	}
	/* 64 versions of a key. */
	for (uint32_t v = 0; v < 64; v++)
		if (first == (key * 64 + v) * 2654435761u)
			return true;
	return false;
}

static bool is_miss(int64_t r)
{
	return r == -ENOENT;
}

static void *use_some(void *arg)
{
	static const size_t sizes[] = { 4096, 65536, 262144, 1000000 };
	struct worker *w = arg;
	unsigned int seed = w->number + 1;
	char name[32];

	while (now_ms() < until_ms) {
		uint32_t key = (uint32_t)rand_r(&seed) % 64;
		size_t len = sizes[key % 4];
		int64_t r;

		snprintf(name, sizeof(name), "use/%u", key);
		if (rand_r(&seed) % 4 == 0) {
			fill(w->mem, len,
			     key * 64 + (uint32_t)rand_r(&seed) % 64);
			r = kvpool_put_from(ns, name, strlen(name), w->mem,
					    len, 0);
			puts_made += r == 0;
			if (r && r != -ENOSPC && r != -ETIMEDOUT) {
				fails("put", r);
				wrong++;
			}
			continue;
		}
		memset(w->mem, 0, len);
		r = kvpool_get_into(ns, name, strlen(name), w->mem, MEM / 16,
				    rand_r(&seed) % 2 ? KVPOOL_EXACT : 0);
		if (r == -EMSGSIZE) /* the buffer is larger */
			continue;
		hits += r > 0;
		misses += is_miss(r);
		if (!is_miss(r) && (r != (int64_t)len ||
				    !filled(w->mem, len, key))) {
			fails("get", r);
			fprintf(stderr, "key %u: %lld bytes\n", key,
				(long long)r);
			wrong++;
		}
	}
	return NULL;
}

/* Batches of requests, from this thread. */
static void use_requests(void)
{
	struct pollfd at = { .fd = kvpool_event_fd(pool), .events = POLLIN };
	enum { BATCH = 16, REQUESTS = 8 };
	struct kvpool_key keys[BATCH];
	char names[BATCH][32];
	static int64_t ret[REQUESTS][BATCH];
	struct kvpool_completion c[REQUESTS];
	unsigned int out = 0, turn = 0;

	for (;;) {
		for (; out < REQUESTS && now_ms() < until_ms; out++) {
			for (unsigned int i = 0; i < BATCH; i++) {
				snprintf(names[i], sizeof(names[i]), "use/%u",
					 (turn + i) % 64);
				keys[i].data = names[i];
				keys[i].len = strlen(names[i]);
			}
			if (fails("submit", kvpool_submit(
					ns, turn % 2 ? KVPOOL_CALL_EXISTS :
						       KVPOOL_CALL_GET_SIZE,
					keys, NULL, BATCH, 0,
					ret[turn % REQUESTS], turn)))
				wrong++;
			turn++;
		}
		if (out == 0)
			return;
		if (poll(&at, 1, 30000) != 1) {
			fprintf(stderr, "no completion in 30 s\n");
			wrong++;
			return;
		}
		out -= (unsigned int)kvpool_completions(pool, c, REQUESTS);
	}
}

static int use(unsigned int seconds, unsigned int n)
{
	struct worker w[15];

	if (n > 15)
		n = 15;
	until_ms = now_ms() + seconds * 1000;
	for (unsigned int i = 0; i < n; i++) {
		w[i].number = i;
		w[i].mem = mem + i * (MEM / 16);
		if (pthread_create(&w[i].thread, NULL, use_some, &w[i]))
			return 1;
	}
	use_requests();
	for (unsigned int i = 0; i < n; i++)
		pthread_join(w[i].thread, NULL);
	printf("%u puts, %u hits, %u misses, %u wrong\n", puts_made, hits,
	       misses, wrong);
	return wrong > 0 || hits == 0;
}

/* ---- survive ---- */

static int survive(const char *file)
{
	unsigned int i = 0, failed = 0;
	char name[32];
	uint64_t end;
	int64_t r = 0;

	fill(mem, 100000, 7);
	for (; access(file, F_OK) < 0; i++) {
		snprintf(name, sizeof(name), "s%u", i % 10);
		r = kvpool_put_from(ns, name, strlen(name), mem, 100000, 0);
		failed += r != 0;
		if (r && r != -ENOSPC && r != -ETIMEDOUT)
			return fails("put", r);
		r = kvpool_get_into(ns, name, strlen(name), mem, MEM, 0);
		failed += r < 0;
		if (r != 100000 && !is_miss(r))
			return fails("get", r);
		usleep(5000);
	}
	/* Reconnected by itself. */
	for (end = now_ms() + 30000; now_ms() < end;) {
		r = kvpool_put_from(ns, "after", 5, mem, 100000, KVPOOL_SYNC);
		if (r == 0)
			break;
	}
	printf("%u puts and gets, %u failed\n", 2 * i, failed);
	return fails("put at the end", r);
}

/* ---- reread ---- */

static int reread(struct kvpool_key k, const char *file)
{
	int64_t first = kvpool_get_into(ns, k.data, k.len, mem, MEM / 2, 0);
	char *again = mem + MEM / 2;
	unsigned int n = 1;

	if (first < 0)
		return fails("get", first);
	for (; access(file, F_OK) < 0; n++) {
		int64_t r =
			kvpool_get_into(ns, k.data, k.len, again, MEM / 2, 0);

		if (r < 0)
			return fails("get", r);
		if (r != first || memcmp(mem, again, (size_t)r) != 0)
			return fails("another object", -EBADMSG);
	}
	printf("%u gets\n", n);
	return 0;
}

/* ---- one key ---- */

static int show(const char *what, int64_t r)
{
	if (r >= 0)
		printf("%lld\n", (long long)r);
	return fails(what, r);
}

static int on_key(const char *what, struct kvpool_key k, const char *arg)
{
	char path[4097], back[KVPOOL_KEY_MAX];
	const void *at;
	size_t len;
	int64_t r;

	if (strcmp(what, "put") == 0 && arg)
		return read_file(arg, &len) ||
		       fails(what, kvpool_put_from(ns, k.data, k.len, mem, len,
						   KVPOOL_SYNC));
	if (strcmp(what, "get") == 0 && arg) {
		r = kvpool_get_into(ns, k.data, k.len, mem, MEM, 0);
		return fails(what, r) || write_file(arg, mem, (size_t)r);
	}
	if (strcmp(what, "map") == 0 && arg) {
		r = kvpool_map(ns, k.data, k.len, &at, &len);
		if (fails(what, r) || write_file(arg, at, len))
			return 1;
		kvpool_unmap(at, len);
		return 0;
	}
	if (strcmp(what, "size") == 0)
		return show(what, kvpool_get_size(ns, k.data, k.len));
	if (strcmp(what, "remove") == 0)
		return fails(what, kvpool_remove(ns, k.data, k.len)) ||
		       fails(what, kvpool_sync(pool));
	if (strcmp(what, "pin") == 0 && arg)
		return fails(what, kvpool_pin(ns, k.data, k.len,
					      strtoull(arg, NULL, 10))) ||
		       fails(what, kvpool_sync(pool));
	if (strcmp(what, "unpin") == 0)
		return fails(what, kvpool_unpin(ns, k.data, k.len)) ||
		       fails(what, kvpool_sync(pool));
	if (strcmp(what, "path") == 0) {
		r = kvpool_key_path(ns, k.data, k.len, path, sizeof(path));
		if (r >= 0)
			printf("%s\n", path);
		return fails(what, r);
	}
	if (strcmp(what, "key") == 0) {
		r = kvpool_path_key(ns, k.data, back, sizeof(back));
		if (r >= 0)
			fwrite(back, 1, (size_t)r, stdout);
		return fails(what, r);
	}
	fprintf(stderr, "%s?\n", what);
	return 1;
}

static int on_keys(const char *what, char **names, int n)
{
	struct kvpool_key keys[KEYS_MAX] = { 0 };
	int64_t ret[KEYS_MAX];
	ssize_t r;

	if (n > KEYS_MAX)
		return 1;
	for (int i = 0; i < n; i++)
		keys[i] = key_of(names[i]);
	if (strcmp(what, "prefix") == 0)
		return show(what, kvpool_exists_prefix(ns, keys, (size_t)n));
	r = kvpool_batch_exists(ns, keys, (size_t)n, ret);
	for (int i = 0; r >= 0 && i < n; i++)
		printf("%lld%s", (long long)ret[i], i + 1 < n ? " " : "\n");
	return fails(what, r);
}

static atomic_bool asking = true;

static void *ask(void *arg)
{
	uint64_t *longest = arg, begin;

	while (asking) {
		begin = now_ms();
		kvpool_exists(ns, "none", 4);
		begin = now_ms() - begin;
		if (begin > *longest)
			*longest = begin;
	}
	return NULL;
}

static int put_small(size_t n)
{
	struct kvpool_key *keys = calloc(n, sizeof(*keys));
	struct kvpool_buf *bufs = calloc(n, sizeof(*bufs));
	int64_t *ret = calloc(n, sizeof(*ret));
	char(*names)[32] = calloc(n, sizeof(*names));
	ssize_t put;

	for (size_t i = 0; i < n; i++) {
		snprintf(names[i], sizeof(names[i]), "small%zu", i);
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
		bufs[i] = (struct kvpool_buf){ mem, 500 };
	}
	put = kvpool_batch_put_from(ns, keys, bufs, n, KVPOOL_SYNC, ret);
	free(keys);
	free(bufs);
	free(ret);
	free(names);
	return fails("puts", put < 0 ? put : put == (ssize_t)n ? 0 : -EIO);
}

static int busy(size_t n)
{
	uint64_t longest = 0, begin = now_ms();
	pthread_t thread;
	int err;

	if (pthread_create(&thread, NULL, ask, &longest))
		return 1;
	err = put_small(n);
	asking = false;
	pthread_join(thread, NULL);
	printf("%llu %llu\n", (unsigned long long)longest,
	       (unsigned long long)(now_ms() - begin));
	return err;
}

static int layout(const char *path, const char *model, const char *ranks)
{
	struct kvpool_layout l = { .struct_size = sizeof(l), .model = model,
				   .dtype = "bf16", .layout = "NHD",
				   .tokens = 256 };
	struct kvpool_ns *with;
	int err;

	l.tp = (uint32_t)strtoul(ranks, NULL, 10);
	err = kvpool_open_ns(pool, path, &l, &with);
	if (!err)
		kvpool_close_ns(with);
	return fails("layout", err);
}

static int run(int argc, char **argv)
{
	const char *what = argv[3];
	const char *arg = argc > 5 ? argv[5] : NULL;

	if (argc > 5 && strcmp(what, "layout") == 0)
		return layout(argv[2], argv[4], arg);
	if (argc > 5 && strcmp(what, "use") == 0)
		return use((unsigned int)atoi(argv[4]),
			   (unsigned int)atoi(arg));
	if (argc > 4 && strcmp(what, "busy") == 0)
		return busy(strtoul(argv[4], NULL, 10));
	if (argc > 4 && strcmp(what, "survive") == 0)
		return survive(argv[4]);
	if (argc > 5 && strcmp(what, "reread") == 0)
		return reread(key_of(argv[4]), arg);
	if (strcmp(what, "exists") == 0 || strcmp(what, "prefix") == 0)
		return on_keys(what, argv + 4, argc - 4);
	if (argc > 4)
		return on_key(what, key_of(argv[4]), arg);
	return 1;
}

int main(int argc, char **argv)
{
	struct kvpool_options o = { .struct_size = sizeof(o) };
	int err;

	if (argc < 4) {
		fprintf(stderr, "usage: library_user AT NAMESPACE COMMAND "
				"[ARGUMENT...]\n");
		return 2;
	}
	o.at = argv[1];
	o.buffer_dir = getenv("LIBRARY_BUFFER");
	o.rdma_device = getenv("LIBRARY_RDMA");
	o.listen = getenv("LIBRARY_LISTEN");
	o.log_level = getenv("LIBRARY_DEBUG") ? 3 : 0;
	o.flags = o.listen ? KVPOOL_INSECURE : 0;
	o.buffer_size = 64u << 20;
	if (fails("connect", kvpool_connect(&o, &pool)))
		return 1;
	err = fails("namespace", kvpool_open_ns(pool, argv[2], NULL, &ns));
	mem = calloc(1, MEM);
	if (!err)
		err = fails("register", kvpool_register_buffer(pool, mem, MEM));
	if (!err)
		err = run(argc, argv);
	kvpool_close_ns(ns);
	if (fails("close", kvpool_close(pool)))
		err = 1;
	free(mem);
	return err;
}
