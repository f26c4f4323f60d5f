/*
 * What tests/bench/bench_rdma.sh measures of ours, one figure a run; perftest
 * beside it measures the device.
 *
 *   bench_rdma fetch HOW SIZE COUNT DEVICE,ADDRESS DEVICE,ADDRESS DIR
 *       ranges of SIZE bytes, one after the other, from a process that holds
 *       them (the first of the two) to this one, each into a new file in DIR (a
 *       node's store), by pool/peer/peer.h: from pool_fetch_start to its
 *       callback. HOW: push (written by the holder), pull (read from it), tcp.
 *   bench_rdma mount SIZE COUNT DIR DIR
 *       files of SIZE bytes, written through the first mount, opened and read
 *       through the second.
 *   bench_rdma echo SIZE COUNT ADDRESS
 *       SIZE bytes for ECHO_ASK bytes, between two processes over a plain TCP
 *       connection, that sleep between.
 *
 * KVTEST_BUSY: the movers of a fetch look so many microseconds for what devices
 * have done, before they sleep (kvpoold --rdma-busy-poll); unset: they sleep.
 *
 * Prints NAME=VALUE words, medians of times in microseconds:
 *
 *   fetch    total; and as means: of which register (pages made and pinned),
 *            move (from there to the last byte), sum (XXH3 of what has come,
 *            while the rest comes) and tail (what was left of that after the
 *            last byte); rdma=BYTES that came by RDMA
 *   mount    total, open, read; local, the same files once more
 *   echo     total
 */
#include <errno.h>
#include <fcntl.h>
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#include "pool/base/clock.h"
#include "pool/base/metric.h"
#include "pool/peer/peer.h"
#include "pool/verbs/device.h"

#define COUNT_MAX 1000u
#define WARM_UP 3u
#define TIMEOUT_MS 60000u

#define CHECK(cond)                                                     \
	do {                                                            \
		if (!(cond)) {                                          \
			fprintf(stderr, "bench_rdma: line %d: %s (%s)\n", \
				__LINE__, #cond, strerror(errno));      \
			exit(1);                                        \
		}                                                       \
	} while (0)

static int compare(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static double median_us(uint64_t *ns, unsigned int n)
{
	qsort(ns, n, sizeof(*ns), compare);
	return (double)ns[n / 2] / 1000.;
}

static unsigned int count_of(const char *text)
{
	unsigned long n = strtoul(text, NULL, 10);

	CHECK(n > 0 && n <= COUNT_MAX);
	return (unsigned int)n;
}

/* ---- fetch ---- */

struct end { /* DEVICE,ADDRESS */
	char device[64];
	struct pool_hostport at;
};

static struct end end_of(const char *text)
{
	const char *comma = strchr(text, ',');
	struct end e = { .device = "" };

	CHECK(comma && (size_t)(comma - text) < sizeof(e.device));
	memcpy(e.device, text, (size_t)(comma - text));
	CHECK(strlen(comma + 1) < sizeof(e.at.host));
	strcpy(e.at.host, comma + 1);
	return e;
}

struct node {
	const char *dir; /* of files */
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct verbs *verbs;
	struct pool_peers *peers;
	int obj; /* the holder's */
	uint64_t obj_size;
};

static int on_get(void *arg, const char *path, size_t path_len, uint64_t gen,
		  uint64_t length, bool copy, uint64_t *ret_size,
		  bool *ret_lendable)
{
	struct node *n = arg;
	char proc[64];

	(void)length;
	(void)path;
	(void)path_len;
	(void)gen;
	(void)copy;
	*ret_size = n->obj_size;
	*ret_lendable = false;
	snprintf(proc, sizeof(proc), "/proc/self/fd/%d", n->obj);
	return open(proc, O_RDONLY | O_CLOEXEC);
}

static const struct pool_peers_ops ops = { .get = on_get };

static void node_open(struct node *n, char id, const struct end *e, bool rdma)
{
	struct pool_peers_opts opts = {
		.loop = &n->loop,
		.id = { (uint8_t)id },
		.listen = e->at,
		.movers = 1,
		.ops = &ops,
		.arg = n,
	};

	const char *busy = getenv("KVTEST_BUSY");
	unsigned int busy_us = busy ? (unsigned int)strtoul(busy, NULL, 10) : 0;

	CHECK(uv_loop_init(&n->loop) == 0);
	n->metrics = pool_metrics_open();
	CHECK(n->metrics);
	if (rdma) {
		CHECK(verbs_open(e->device, &n->verbs) == 0);
		verbs_busy_poll(n->verbs, busy_us);
	}
	opts.verbs = n->verbs;
	opts.metrics = n->metrics;
	CHECK(pool_peers_open(&opts, &n->peers) == 0);
}

/* The sum of a histogram, in ns, or the value of a counter. */
static double metric(struct node *n, const char *name)
{
	size_t len, name_len = strlen(name);
	char *text, *line, *save = NULL;
	double v = -1;

	CHECK(pool_metrics_print(n->metrics, &text, &len) == 0);
	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save))
		if (strncmp(line, name, name_len) == 0 &&
		    line[name_len] == ' ')
			v = strtod(line + name_len, NULL);
	free(text);
	CHECK(v >= 0);
	return v;
}

static int new_file(const struct node *n, uint64_t size)
{
	int fd = open(n->dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0);
	return fd;
}

/* Until it is killed. */
static void hold(struct node *n, const struct end *e, bool rdma, uint64_t size,
		 int out)
{
	uint16_t port;
	uint8_t *map;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	n->obj = new_file(n, size);
	n->obj_size = size;
	map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, n->obj, 0);
	CHECK(map != MAP_FAILED);
	for (uint64_t i = 0; i < size; i++)
		map[i] = (uint8_t)(i * 31 + (i >> 12));
	munmap(map, size);
	node_open(n, 'h', e, rdma);
	port = pool_peers_port(n->peers);
	CHECK(write(out, &port, sizeof(port)) == sizeof(port));
	uv_run(&n->loop, UV_RUN_DEFAULT);
}

struct want {
	struct pool_fetch f;
	bool over;
	int status;
};

static void on_fetched(struct pool_fetch *f, int status)
{
	struct want *w = (struct want *)f;

	w->over = true;
	w->status = status;
}

/* Returns ns. */
static uint64_t fetch(struct node *n, const struct end *from, bool pull,
		      uint64_t size)
{
	struct want w = { .over = false };
	uint64_t begun;

	w.f.from.id[0] = 'h';
	w.f.from.tcp = from->at;
	w.f.path = "obj";
	w.f.path_len = 3;
	w.f.gen = 1;
	w.f.length = size;
	w.f.timeout_ms = TIMEOUT_MS;
	w.f.pull = pull;
	w.f.fd = new_file(n, size);
	begun = pool_now_ns();
	CHECK(pool_fetch_start(n->peers, &w.f, on_fetched) == 0);
	while (!w.over)
		uv_run(&n->loop, UV_RUN_ONCE);
	begun = pool_now_ns() - begun;
	if (w.status)
		errno = -w.status;
	CHECK(w.status == 0);
	close(w.f.fd);
	return begun;
}

/* What the links say of each range, of the last one. */
static const char *const shares[] = { "register", "move", "sum", "tail" };
#define SHARES (sizeof(shares) / sizeof(shares[0]))

static void shares_read(struct node *n, double *ret)
{
	char name[64];

	for (size_t i = 0; i < SHARES; i++) {
		snprintf(name, sizeof(name), "kvpool_rdma_%s_seconds_sum",
			 shares[i]);
		ret[i] = metric(n, name);
	}
}

static int cmd_fetch(char **argv)
{
	bool rdma = strcmp(argv[0], "tcp") != 0;
	bool pull = strcmp(argv[0], "pull") == 0;
	uint64_t size = strtoull(argv[1], NULL, 10), ns[COUNT_MAX];
	unsigned int count = count_of(argv[2]);
	struct end from = end_of(argv[3]), to = end_of(argv[4]);
	double before[SHARES], after[SHARES], bytes;
	struct node n = { .dir = argv[5], .obj = -1 };
	int pipes[2];
	pid_t child;

	CHECK(pipe(pipes) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		hold(&n, &from, rdma, size, pipes[1]);
		_exit(1);
	}
	CHECK(read(pipes[0], &from.at.port, sizeof(uint16_t)) ==
	      sizeof(uint16_t));
	node_open(&n, 'f', &to, rdma);
	for (unsigned int i = 0; i < WARM_UP; i++)
		fetch(&n, &from, pull, size);
	shares_read(&n, before);
	bytes = metric(&n, "kvpool_rdma_received_bytes_total");
	for (unsigned int i = 0; i < count; i++)
		ns[i] = fetch(&n, &from, pull, size);
	shares_read(&n, after);
	bytes = metric(&n, "kvpool_rdma_received_bytes_total") - bytes;
	printf("total=%.0f", median_us(ns, count));
	for (size_t i = 0; i < SHARES; i++)
		printf(" %s=%.0f", shares[i],
		       (after[i] - before[i]) * 1e6 / count);
	printf(" rdma=%.0f\n", bytes / count);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

/* ---- mount ---- */

static void write_file(const char *path, const char *buf, size_t size)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	CHECK(fd >= 0);
	CHECK(write(fd, buf, size) == (ssize_t)size);
	CHECK(close(fd) == 0);
}

static void read_file(const char *path, char *buf, size_t size,
		      uint64_t *ret_open_ns, uint64_t *ret_read_ns)
{
	uint64_t begun = pool_now_ns(), opened;
	size_t got = 0;
	ssize_t n;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	CHECK(fd >= 0);
	opened = pool_now_ns();
	while ((n = read(fd, buf + got, size - got)) > 0)
		got += (size_t)n;
	CHECK(got == size);
	close(fd);
	*ret_open_ns = opened - begun;
	*ret_read_ns = pool_now_ns() - opened;
}

static int cmd_mount(char **argv)
{
	size_t size = strtoul(argv[0], NULL, 10);
	unsigned int count = count_of(argv[1]);
	uint64_t total[COUNT_MAX], opens[COUNT_MAX], reads[COUNT_MAX],
		local[COUNT_MAX];
	char *buf = malloc(size), *got = malloc(size), path[512];
	int dir = open(argv[2], O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	CHECK(buf && got && dir >= 0);
	memset(got, 1, size);
	for (unsigned int i = 0; i < count; i++) {
		memset(buf, (int)i + 1, size);
		snprintf(path, sizeof(path), "%s/bench.%d.%u", argv[2],
			 (int)getpid(), i);
		write_file(path, buf, size);
		CHECK(fsync(dir) == 0);
		snprintf(path, sizeof(path), "%s/bench.%d.%u", argv[3],
			 (int)getpid(), i);
		read_file(path, got, size, &opens[i], &reads[i]);
		total[i] = opens[i] + reads[i];
		CHECK(memcmp(buf, got, size) == 0);
		uint64_t o, r;
		read_file(path, got, size, &o, &r);
		local[i] = o + r;
		CHECK(unlink(path) == 0);
	}
	close(dir);
	printf("total=%.0f open=%.0f read=%.0f local=%.0f\n",
	       median_us(total, count), median_us(opens, count),
	       median_us(reads, count), median_us(local, count));
	return 0;
}

/* ---- echo ---- */

#define ECHO_ASK 128 /* a request for a range is about so long */

static int stream(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	CHECK(fd >= 0);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	return fd;
}

/* Until it is killed. */
static void echo_serve(int listening, const char *buf, size_t size)
{
	int fd = accept(listening, NULL, NULL), one = 1;
	char ask[ECHO_ASK];

	CHECK(fd >= 0);
	CHECK(setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) == 0);
	while (recv(fd, ask, sizeof(ask), MSG_WAITALL) == sizeof(ask))
		CHECK(send(fd, buf, size, 0) == (ssize_t)size);
}

static int cmd_echo(char **argv)
{
	size_t size = strtoul(argv[0], NULL, 10);
	unsigned int count = count_of(argv[1]);
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);
	char *buf = calloc(1, size), ask[ECHO_ASK] = "";
	int fd = stream();
	uint64_t ns[COUNT_MAX];
	pid_t child;

	CHECK(buf && inet_pton(AF_INET, argv[2], &at.sin_addr) == 1);
	CHECK(bind(fd, (struct sockaddr *)&at, len) == 0 && listen(fd, 1) == 0);
	CHECK(getsockname(fd, (struct sockaddr *)&at, &len) == 0);
	child = fork();
	CHECK(child >= 0);
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		echo_serve(fd, buf, size);
		_exit(1);
	}
	close(fd);
	fd = stream();
	CHECK(connect(fd, (struct sockaddr *)&at, len) == 0);
	for (unsigned int i = 0; i < WARM_UP + count; i++) {
		uint64_t begun = pool_now_ns();

		CHECK(send(fd, ask, sizeof(ask), 0) == sizeof(ask));
		CHECK(recv(fd, buf, size, MSG_WAITALL) == (ssize_t)size);
		if (i >= WARM_UP)
			ns[i - WARM_UP] = pool_now_ns() - begun;
	}
	printf("total=%.0f\n", median_us(ns, count));
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc == 8 && strcmp(argv[1], "fetch") == 0)
		return cmd_fetch(argv + 2);
	if (argc == 6 && strcmp(argv[1], "mount") == 0)
		return cmd_mount(argv + 2);
	if (argc == 5 && strcmp(argv[1], "echo") == 0)
		return cmd_echo(argv + 2);
	fprintf(stderr, "usage: see the head of tests/bench/bench_rdma.c\n");
	return 2;
}
