/*
 * One round of bench_tls.sh, of objects of the sizes in `shapes`:
 *
 *	tls_bench AT put TAG		puts them, and waits until they are
 *					stored
 *	tls_bench AT get TAG PID	gets them from the node with that pid
 *	tls_bench MOUNT read TAG	reads them through a mount
 *
 * AT is a master. TAG names the objects: no two rounds have the same. Prints
 * words NAME=VALUE: microseconds (the median of a shape's repetitions), and for
 * cpu the seconds of CPU time per GB of both processes.
 */
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/bench/library_bench.h"

#define N_MAX 32
#define LOOKS 512 /* keys a look-up: as many hits as misses */

static const struct shape {
	const char *name;
	size_t len;
	unsigned int n; /* objects in one call */
	unsigned int repeat;
} shapes[] = {
	{ "4k", 4096, 1, 64 },
	{ "1m", 1u << 20, 1, 16 },
	{ "4m", 4u << 20, 1, 8 },
	{ "32x1m", 1u << 20, 32, 4 },
};
#define SHAPES (sizeof(shapes) / sizeof(shapes[0]))

struct batch {
	char names[N_MAX][96];
	struct kvpool_key keys[N_MAX];
	struct kvpool_buf bufs[N_MAX];
	int64_t ret[N_MAX];
};

static void make_batch(struct batch *b, const struct shape *s, const char *tag,
		       unsigned int nth)
{
	for (unsigned int i = 0; i < s->n; i++) {
		snprintf(b->names[i], sizeof(b->names[i]), "%s-%s-%u-%u", tag,
			 s->name, nth, i);
		b->keys[i] = (struct kvpool_key){ b->names[i],
						  strlen(b->names[i]) };
		b->bufs[i] = (struct kvpool_buf){ mem + i * s->len, s->len };
	}
}

static uint64_t put(const struct shape *s, const char *tag, unsigned int nth)
{
	static struct batch b;
	uint64_t begin;

	make_batch(&b, s, tag, nth);
	for (unsigned int i = 0; i < s->n; i++)
		memcpy(b.bufs[i].data, b.names[i], sizeof(b.names[i]));
	begin = now_ns();
	must("put", kvpool_batch_put_from(ns, b.keys, b.bufs, s->n, 0, b.ret));
	must("sync", kvpool_sync(pool));
	begin = now_ns() - begin;
	for (unsigned int i = 0; i < s->n; i++)
		must("put", b.ret[i]);
	return begin;
}

static uint64_t get(const struct shape *s, const char *tag, unsigned int nth)
{
	static struct batch b;
	uint64_t begin;

	make_batch(&b, s, tag, nth);
	begin = now_ns();
	must("get", kvpool_batch_get_into(ns, b.keys, b.bufs, s->n,
					  KVPOOL_EXACT, b.ret));
	begin = now_ns() - begin;
	for (unsigned int i = 0; i < s->n; i++)
		must("get", b.ret[i]);
	return begin;
}

/* The files one after the other, as programs read files. */
static uint64_t read_files(const struct shape *s, const char *tag,
			   unsigned int nth)
{
	static struct batch b;
	uint64_t begin;

	make_batch(&b, s, tag, nth);
	begin = now_ns();
	for (unsigned int i = 0; i < s->n; i++) {
		int fd = open(b.names[i], O_RDONLY);
		size_t done = 0;
		ssize_t n = fd < 0 ? -1 : 1;

		for (; done < s->len && n > 0; done += (size_t)n)
			n = read(fd, mem + done, s->len - done);
		if (n <= 0) {
			perror(b.names[i]);
			exit(1);
		}
		close(fd);
	}
	return now_ns() - begin;
}

/* Those for stat_one. */
static void put_unread(const char *tag)
{
	for (unsigned int k = 0; k < shapes[0].repeat; k++)
		put(&shapes[0], tag, shapes[0].repeat + k);
}

static void all_shapes(const char *what, const char *tag,
		       uint64_t (*one)(const struct shape *s, const char *tag,
				       unsigned int nth))
{
	uint64_t took[ROUNDS_MAX];

	for (unsigned int i = 0; i < SHAPES; i++) {
		for (unsigned int k = 0; k < shapes[i].repeat; k++)
			took[k] = one(&shapes[i], tag, k);
		printf("%s_%s=%.2f\n", what, shapes[i].name,
		       (double)median(took, shapes[i].repeat) / 1e3);
	}
}

static uint64_t cpu_of(clockid_t clock)
{
	struct timespec t;

	if (clock_gettime(clock, &t)) {
		perror("clock_gettime");
		exit(1);
	}
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static void cpu(const char *tag, pid_t holder)
{
	const struct shape *s = &shapes[SHAPES - 1];
	uint64_t before;
	clockid_t other;

	if (clock_getcpuclockid(holder, &other))
		exit(1);
	before = cpu_of(CLOCK_PROCESS_CPUTIME_ID) + cpu_of(other);
	for (unsigned int k = 0; k < s->repeat; k++)
		get(s, tag, k);
	before = cpu_of(CLOCK_PROCESS_CPUTIME_ID) + cpu_of(other) - before;
	printf("cpu=%.4f\n", (double)before /
			     (double)(s->len * s->n * s->repeat));
}

static void look(const char *tag)
{
	static char names[LOOKS][96];
	static struct kvpool_key keys[LOOKS];
	static int64_t ret[LOOKS];
	uint64_t took[ROUNDS_MAX];

	for (unsigned int i = 0; i < LOOKS; i++) {
		snprintf(names[i], sizeof(names[i]), "%s-%s-%u-0", tag,
			 shapes[0].name, i / 2 % shapes[0].repeat);
		if (i % 2)
			names[i][0] = '!';
		keys[i] = (struct kvpool_key){ names[i], strlen(names[i]) };
	}
	for (unsigned int k = 0; k < 50; k++) {
		took[k] = now_ns();
		if (kvpool_batch_exists(ns, keys, LOOKS, ret) != LOOKS / 2) {
			fprintf(stderr, "not half of the keys exist\n");
			exit(1);
		}
		took[k] = now_ns() - took[k];
	}
	printf("look=%.2f\n", (double)median(took, 50) / 1e3);
}

/* A name that this mount has not been asked for yet: it prefetches the bytes,
 * so they are of no object that is read. That is work for the daemon's loop
 * after the reply, and over TLS more of it: the next one waits until it is
 * done. */
static uint64_t stat_one(const struct shape *s, const char *tag,
			 unsigned int nth)
{
	static struct batch b;
	struct stat st;
	uint64_t begin;

	make_batch(&b, s, tag, s->repeat + nth);
	usleep(2000);
	begin = now_ns();
	if (stat(b.names[0], &st)) {
		perror(b.names[0]);
		exit(1);
	}
	return now_ns() - begin;
}

static void stats(const char *tag)
{
	const struct shape *s = &shapes[0];
	uint64_t took[ROUNDS_MAX];

	for (unsigned int k = 0; k < s->repeat; k++)
		took[k] = stat_one(s, tag, k);
	printf("stat=%.2f\n", (double)median(took, s->repeat) / 1e3);
}

static int read_all(const char *mount, const char *tag)
{
	mem = malloc(MEM);
	memset(mem, 1, MEM);
	if (chdir(mount) || chdir("bench")) {
		perror(mount);
		return 1;
	}
	stats(tag);
	all_shapes("read", tag, read_files);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 4 || (strcmp(argv[2], "get") == 0 && argc < 5))
		return 2;
	if (strcmp(argv[2], "read") == 0)
		return read_all(argv[1], argv[3]);
	connect_to(argv[1]);
	if (strcmp(argv[2], "put") == 0) {
		all_shapes("put", argv[3], put);
		put_unread(argv[3]);
	}
	if (strcmp(argv[2], "get") == 0) {
		look(argv[3]);
		all_shapes("get", argv[3], get);
		cpu(argv[3], (pid_t)atoi(argv[4]));
	}
	disconnect();
	return 0;
}
