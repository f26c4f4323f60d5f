/*
 * pool/verbs/ on real devices: two queue pairs of this process, one on each of
 * two ports (or both on one), on one loop.
 *
 *   verbs_pingpong DEVICE DEVICE [STEP]...
 *
 * STEP (default: all but the last two):
 *   move    1 MiB pieces by WRITE and READ, a message after each; verified
 *   small   4 KiB READs one after the other
 *   wrong   another key, another range, another right: refused, all fail
 *   closed  the peer closes with work in flight: it fails, in time
 *   closing we close with work in flight: it is cancelled, in time
 *   file    the bytes are in the file's own pages, at an odd offset
 *   cut     print "cut", and wait until what is posted fails (a link goes down)
 *   remove  print "remove", and wait until the port is gone (device removed)
 *
 * A line for each step that passed; 1 and what was wrong otherwise.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <uv.h>

#include "pool/base/clock.h"
#include "pool/verbs/device.h"
#include "pool/verbs/queue.h"
#include "pool/verbs/region.h"
#include "pool/verbs/verbs_priv.h"

#define PIECE VERBS_MESSAGE_MAX
#define PIECES 16u
#define REMOTE                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ)
#define LIMIT_MS 30000u

#define CHECK(cond)                                                       \
	do {                                                              \
		if (!(cond)) {                                            \
			fprintf(stderr, "verbs_pingpong: line %d: %s\n",  \
				__LINE__, #cond);                         \
			exit(1);                                          \
		}                                                         \
	} while (0)

struct side {
	struct verbs_port *port;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	struct verbs_region region;
	uint8_t *mem;
	int notes, broken, err, closed, cq_closed;
};

struct item {
	struct verbs_work w;
	int status; /* 1: in flight */
};

static uv_loop_t loop;
static struct verbs *v;
static struct side a, b;
static struct item items[4 * PIECES];
static int ndone;
static uv_timer_t ticker; /* so that a limit is seen */

static void on_note(void *arg, const void *msg, uint32_t length)
{
	(void)msg;
	CHECK(length == 5);
	((struct side *)arg)->notes++;
}

static void on_broken(void *arg, int err)
{
	struct side *s = arg;

	s->broken++;
	s->err = err;
}

static const struct verbs_qp_ops ops = { on_note, on_broken };

static void on_done(struct verbs_work *w, int status)
{
	pool_container_of(w, struct item, w)->status = status;
	ndone++;
}

static void on_flag(void *arg)
{
	++*(int *)arg;
}

static void until(const int *value, int wanted)
{
	uint64_t begun = pool_now_ms();

	while (*value != wanted) {
		uv_run(&loop, UV_RUN_ONCE);
		CHECK(pool_now_ms() < begun + LIMIT_MS);
	}
}

static void open_side(struct side *s, const char *device)
{
	for (unsigned int i = 0; i < verbs_nports(v) && !s->port; i++)
		if (strcmp(verbs_port_at(v, i)->device, device) == 0)
			s->port = verbs_port_at(v, i);
	CHECK(s->port);
	s->mem = mmap(NULL, PIECES * PIECE, PROT_READ | PROT_WRITE,
		      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	CHECK(s->mem != MAP_FAILED);
	CHECK(verbs_cq_open(s->port, &loop, 4, &s->cq) == 0);
	CHECK(verbs_region_open_memory(s->port, s->port->pd, s->mem,
				       PIECES * PIECE, REMOTE,
				       &s->region) == 0);
}

static void open_qp(struct side *s)
{
	struct verbs_qp_opts o = { .cq = s->cq, .pd = s->port->pd,
				   .access = IBV_ACCESS_REMOTE_WRITE |
					     IBV_ACCESS_REMOTE_READ,
				   .ops = &ops, .arg = s };

	s->notes = s->broken = s->closed = 0;
	CHECK(verbs_qp_open(&o, &s->qp) == 0);
}

static void connect_to(struct side *s, const struct side *peer)
{
	struct verbs_address addr;

	verbs_qp_address(peer->qp, &addr);
	CHECK(!verbs_address_wrong(&addr, s->port));
	CHECK(verbs_qp_connect(s->qp, &addr) == 0);
}

static void begin(void)
{
	open_qp(&a);
	open_qp(&b);
	connect_to(&a, &b);
	connect_to(&b, &a);
	ndone = 0;
}

static void close_qp(struct side *s)
{
	if (s->closed)
		return;
	verbs_qp_close(s->qp, on_flag, &s->closed);
	until(&s->closed, 1);
}

static void end(void)
{
	close_qp(&a);
	close_qp(&b);
}

static struct item *post(int i, enum verbs_op op, uint64_t offset,
			 uint32_t length)
{
	struct item *it = &items[i];

	it->status = 1;
	it->w = (struct verbs_work){
		.op = op,
		.addr = op == VERBS_SEND ? (const void *)"moved" :
					   a.mem + offset,
		.lkey = a.region.mr->lkey,
		.length = op == VERBS_SEND ? 5 : length,
		.remote_addr = (uintptr_t)b.mem + offset,
		.rkey = b.region.mr->rkey,
		.done = on_done,
	};
	CHECK(verbs_qp_post(a.qp, &it->w) == 0);
	return it;
}

static void fill(uint8_t *mem, uint8_t seed)
{
	for (size_t i = 0; i < PIECES * PIECE; i++)
		mem[i] = (uint8_t)(i * 31 + (i >> 12) + seed);
}

static void check_all(int n, int status)
{
	for (int i = 0; i < n; i++)
		CHECK(items[i].status == status);
}

static void move(void)
{
	uint64_t begun;

	for (int op = VERBS_WRITE; op <= VERBS_READ; op++) {
		begin();
		fill(op == VERBS_WRITE ? a.mem : b.mem, (uint8_t)(op + 1));
		begun = pool_now_us();
		for (unsigned int i = 0; i < PIECES; i++) {
			post((int)(2 * i), (enum verbs_op)op,
			     (uint64_t)i * PIECE, PIECE);
			post((int)(2 * i + 1), VERBS_SEND, 0, 0);
		}
		until(&b.notes, PIECES);
		if (op == VERBS_WRITE)
			CHECK(memcmp(a.mem, b.mem, PIECES * PIECE) == 0);
		until(&ndone, 2 * PIECES);
		printf("%s: %.1f MB/s\n", op == VERBS_WRITE ? "write" : "read",
		       (double)PIECES * PIECE /
			       (double)(pool_now_us() - begun));
		CHECK(memcmp(a.mem, b.mem, PIECES * PIECE) == 0);
		check_all(2 * PIECES, 0);
		end();
	}
}

static void small(void)
{
	uint64_t begun;
	int n = 200;

	begin();
	begun = pool_now_us();
	for (int i = 0; i < n; i++) {
		post(0, VERBS_READ, 0, 4096);
		until(&ndone, i + 1);
	}
	printf("4 KiB read: %.0f us\n",
	       (double)(pool_now_us() - begun) / n);
	CHECK(items[0].status == 0);
	end();
}

static void refused(uint64_t offset, uint32_t rkey)
{
	struct item *it = &items[0];

	begin();
	it->status = 1;
	it->w = (struct verbs_work){
		.op = VERBS_WRITE, .addr = a.mem,
		.lkey = a.region.mr->lkey, .length = 8192,
		.remote_addr = (uintptr_t)b.mem + offset,
		.rkey = b.region.mr->rkey + rkey, .done = on_done,
	};
	CHECK(verbs_qp_post(a.qp, &it->w) == 0);
	post(1, VERBS_WRITE, 0, 4096);
	until(&a.broken, 1);
	printf("  refused with %d\n", it->status);
	CHECK(it->status == -EREMOTEIO);
	CHECK(items[1].status == -ECANCELED);
	until(&b.broken, 1);
	end();
}

static void wrong(void)
{
	refused(0, 1 << 8);
	refused((uint64_t)PIECES * PIECE - 4096, 0);
	refused((uint64_t)-4096, 0);
	verbs_region_close(&b.region);
	CHECK(verbs_region_open_memory(b.port, b.port->pd, b.mem,
				       PIECES * PIECE, IBV_ACCESS_REMOTE_READ,
				       &b.region) == 0);
	refused(0, 0);
	verbs_region_close(&b.region);
	CHECK(verbs_region_open_memory(b.port, b.port->pd, b.mem,
				       PIECES * PIECE, REMOTE,
				       &b.region) == 0);
}

static void closed(void)
{
	uint64_t begun;

	begin();
	for (unsigned int i = 0; i < PIECES; i++)
		post((int)i, VERBS_READ, (uint64_t)i * PIECE, PIECE);
	while (ndone < 2)
		uv_run(&loop, UV_RUN_ONCE);
	begun = pool_now_ms();
	close_qp(&b);
	printf("  the peer closed in %llu ms\n",
	       (unsigned long long)(pool_now_ms() - begun));
	until(&a.broken, 1);
	printf("  we got %d after %llu ms\n", a.err,
	       (unsigned long long)(pool_now_ms() - begun));
	CHECK(a.err == -ETIMEDOUT || a.err == -EREMOTEIO);
	CHECK(ndone == PIECES);
	end();
}

static void closing(void)
{
	uint64_t begun;

	begin();
	for (unsigned int i = 0; i < PIECES; i++)
		post((int)i, VERBS_WRITE, (uint64_t)i * PIECE, PIECE);
	while (ndone < 2)
		uv_run(&loop, UV_RUN_ONCE);
	begun = pool_now_ms();
	close_qp(&a);
	printf("  closed in %llu ms\n",
	       (unsigned long long)(pool_now_ms() - begun));
	CHECK(ndone == PIECES && !a.broken);
	CHECK(items[PIECES - 1].status == -ECANCELED);
	end();
	/* Never connected: at once, too. */
	open_qp(&a);
	begun = pool_now_ms();
	close_qp(&a);
	printf("  an unconnected one closed in %llu ms\n",
	       (unsigned long long)(pool_now_ms() - begun));
}

static void file(void)
{
	int fd = memfd_create("object", MFD_CLOEXEC);
	struct verbs_region from, to;
	uint8_t *mem = a.mem;
	uint8_t buf[5000];

	CHECK(fd >= 0 && ftruncate(fd, 20000) == 0);
	CHECK(verbs_region_open(b.port, b.port->pd, fd, 5001, sizeof(buf),
				IBV_ACCESS_REMOTE_WRITE, &to) == 0);
	begin();
	fill(a.mem, 9);
	CHECK(verbs_region_open_memory(a.port, a.port->pd, mem, sizeof(buf), 0,
				       &from) == 0);
	items[0].w = (struct verbs_work){
		.op = VERBS_WRITE, .addr = from.addr, .lkey = from.mr->lkey,
		.length = sizeof(buf), .remote_addr = (uintptr_t)to.addr,
		.rkey = to.mr->rkey, .done = on_done,
	};
	CHECK(verbs_qp_post(a.qp, &items[0].w) == 0);
	until(&ndone, 1);
	CHECK(items[0].status == 0);
	CHECK(pread(fd, buf, sizeof(buf), 5001) == sizeof(buf));
	CHECK(memcmp(buf, mem, sizeof(buf)) == 0);
	end();
	verbs_region_close(&from);
	verbs_region_close(&to);
	close(fd);
}

static void cut(void)
{
	uint64_t begun;

	begin();
	printf("cut\n");
	begun = pool_now_ms();
	while (!a.broken) {
		ndone = 0;
		for (unsigned int i = 0; i < PIECES && !a.broken; i++) {
			if (a.qp->state != VERBS_QP_READY)
				break;
			post((int)i, VERBS_WRITE, (uint64_t)i * PIECE, PIECE);
			until(&ndone, (int)i + 1);
		}
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	printf("  failed: %d, %llu ms after the start; a port is %d\n", a.err,
	       (unsigned long long)(pool_now_ms() - begun), a.port->state);
	begun = pool_now_ms();
	end();
	printf("  closed in %llu ms\n",
	       (unsigned long long)(pool_now_ms() - begun));
}

static void removed(void)
{
	uint64_t begun = pool_now_ms();

	begin();
	printf("remove\n");
	while (a.port->state != VERBS_GONE && !a.broken) {
		uv_run(&loop, UV_RUN_ONCE);
		CHECK(pool_now_ms() < begun + LIMIT_MS);
	}
	printf("  the port is %d, broken %d (%d)\n", a.port->state, a.broken,
	       a.err);
	begun = pool_now_ms();
	end();
	printf("  closed in %llu ms\n",
	       (unsigned long long)(pool_now_ms() - begun));
}

static const struct {
	const char *name;
	void (*fn)(void);
	bool asked; /* only when it is */
} steps[] = {
	{ "move", move, false },       { "small", small, false },
	{ "wrong", wrong, false },     { "closed", closed, false },
	{ "closing", closing, false }, { "file", file, false },
	{ "cut", cut, true },	       { "remove", removed, true },
};

static bool is_asked(const char *name, int argc, char **argv)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(argv[i], name) == 0)
			return true;
	return false;
}

static void close_side(struct side *s)
{
	verbs_region_close(&s->region);
	verbs_cq_close(s->cq, on_flag, &s->cq_closed);
	until(&s->cq_closed, 1);
}

static void on_tick(uv_timer_t *t)
{
	(void)t;
}

int main(int argc, char **argv)
{
	char text[2048];
	int unwatched = 0;

	CHECK(argc >= 3);
	setvbuf(stdout, NULL, _IOLBF, 0);
	CHECK(uv_loop_init(&loop) == 0);
	uv_timer_init(&loop, &ticker);
	uv_timer_start(&ticker, on_tick, 100, 100);
	CHECK(verbs_open(NULL, &v) == 0);
	printf("%s\n", verbs_format(v, text, sizeof(text)));
	CHECK(verbs_watch(v, &loop) == 0);
	open_side(&a, argv[1]);
	open_side(&b, argv[2]);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		if (argc > 3 ? !is_asked(steps[i].name, argc, argv) :
			       steps[i].asked)
			continue;
		steps[i].fn();
		printf("%s passed\n", steps[i].name);
	}
	close_side(&a);
	close_side(&b);
	verbs_unwatch(v, on_flag, &unwatched);
	until(&unwatched, 1);
	verbs_close(v);
	uv_close((uv_handle_t *)&ticker, NULL);
	uv_run(&loop, UV_RUN_DEFAULT);
	CHECK(uv_loop_close(&loop) == 0);
	return 0;
}
