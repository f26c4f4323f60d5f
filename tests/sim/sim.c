#include "tests/sim/sim.h"

#include <assert.h>
#include <stdatomic.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_faults.h"

#define START_NS (1000 * SIM_S)
#define WALL_NS (1750000000ull * SIM_S)

struct sim_faults sim_faults;

static struct {
	bool open;
	_Atomic uint64_t now_ns; /* the product's threads read it, too */
	uint64_t order, happened, digest;
	uint64_t rnd_sim, rnd_product;
	struct sim_event **heap; /* owns; [1..n] */
	size_t n, cap;
	struct pool_list hosts;
} sim;

static struct {
	struct sim_turn *log; /* borrows */
	size_t n, max;
} turns;

/* ---- randomness ---- */

/* splitmix64 */
static uint64_t next_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

uint64_t sim_random(uint64_t bound)
{
	return next_random(&sim.rnd_sim) % bound;
}

static void clock_random(void *buf, size_t n)
{
	uint8_t *p = buf;

	while (n--)
		*p++ = (uint8_t)next_random(&sim.rnd_product);
}

/* ---- time ---- */

uint64_t sim_now_ns(void)
{
	return atomic_load_explicit(&sim.now_ns, memory_order_relaxed);
}

static uint64_t clock_wall_ns(void)
{
	return WALL_NS + sim_now_ns();
}

static const struct pool_clock clock_virtual = {
	.now_ns = sim_now_ns,
	.wall_ns = clock_wall_ns,
	.random = clock_random,
};

/* Replaces libc's, for libuv's loops. */
int clock_gettime(clockid_t id, struct timespec *ts)
{
	uint64_t ns;

	switch (id) {
	case CLOCK_MONOTONIC:
	case CLOCK_MONOTONIC_COARSE:
	case CLOCK_MONOTONIC_RAW:
	case CLOCK_BOOTTIME:
		ns = sim_now_ns();
		break;
	default:
		ns = 0;
	}
	if (!sim.open || !ns)
		return (int)syscall(SYS_clock_gettime, id, ts);
	ts->tv_sec = (time_t)(ns / SIM_S);
	ts->tv_nsec = (long)(ns % SIM_S);
	return 0;
}

/* No descriptor is ever ready: a loop's poll returns at once. */
int epoll_pwait(int fd, struct epoll_event *events, int max, int timeout_ms,
		const sigset_t *mask)
{
	if (sim.open)
		return 0;
	return (int)syscall(SYS_epoll_pwait, fd, events, max, timeout_ms, mask,
			    _NSIG / 8);
}

int epoll_wait(int fd, struct epoll_event *events, int max, int timeout_ms)
{
	return epoll_pwait(fd, events, max, timeout_ms, NULL);
}

uint64_t sim_cpu_ns(void)
{
	struct timespec ts;

	syscall(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * SIM_S + (uint64_t)ts.tv_nsec;
}

void sim_open(uint64_t seed)
{
	memset(&sim, 0, sizeof(sim));
	pool_list_init(&sim.hosts);
	sim.rnd_sim = seed;
	sim.rnd_product = ~seed;
	atomic_store(&sim.now_ns, START_NS);
	sim.open = true;
	pool_clock_set(&clock_virtual);
	sim_net_open();
	sim_disks_open();
}

void sim_close(void)
{
	assert(pool_list_empty(&sim.hosts));
	sim_net_close();
	sim_disks_close();
	pool_clock_set(NULL);
	sim.open = false;
	free(sim.heap);
	sim.heap = NULL;
}

void sim_note(uint64_t what)
{
	sim.digest = (sim.digest ^ what) * 0x100000001b3u;
	sim.digest ^= sim.digest >> 29;
}

uint64_t sim_digest(void)
{
	return sim.digest;
}

uint64_t sim_happened(void)
{
	return sim.happened;
}

/* ---- scheduled events: a heap ---- */

static bool before(const struct sim_event *a, const struct sim_event *b)
{
	return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

static void put(size_t pos, struct sim_event *e)
{
	sim.heap[pos] = e;
	e->pos = pos;
}

static void sift_up(size_t pos, struct sim_event *e)
{
	for (; pos > 1 && before(e, sim.heap[pos / 2]); pos /= 2)
		put(pos, sim.heap[pos / 2]);
	put(pos, e);
}

static void sift_down(size_t pos, struct sim_event *e)
{
	size_t child;

	while ((child = pos * 2) <= sim.n) {
		if (child < sim.n && before(sim.heap[child + 1],
					    sim.heap[child]))
			child++;
		if (!before(sim.heap[child], e))
			break;
		put(pos, sim.heap[child]);
		pos = child;
	}
	put(pos, e);
}

void sim_cancel(struct sim_event *e)
{
	struct sim_event *last;
	size_t pos = e->pos;

	if (!pos)
		return;
	e->pos = 0;
	last = sim.heap[sim.n--];
	if (last == e)
		return;
	if (pos > 1 && before(last, sim.heap[pos / 2]))
		sift_up(pos, last);
	else
		sift_down(pos, last);
}

void sim_at(struct sim_event *e, uint64_t at_ns)
{
	sim_cancel(e);
	e->at_ns = at_ns > sim_now_ns() ? at_ns : sim_now_ns();
	e->order = ++sim.order;
	if (sim.n + 2 > sim.cap) {
		sim.cap = sim.cap ? sim.cap * 2 : 1024;
		sim.heap = realloc(sim.heap, sim.cap * sizeof(*sim.heap));
		assert(sim.heap);
	}
	sift_up(++sim.n, e);
}

/* ---- hosts ---- */

static struct sim_host *host_of(uv_loop_t *loop)
{
	return pool_container_of(loop, struct sim_host, loop);
}

struct work {
	struct pool_list link;
	uv_work_t *req;
	uv_after_work_cb done;
};

int uv_queue_work(uv_loop_t *loop, uv_work_t *req, uv_work_cb work,
		  uv_after_work_cb done)
{
	struct work *w = calloc(1, sizeof(*w));

	if (!w)
		return UV_ENOMEM;
	w->req = req;
	w->done = done;
	req->loop = loop;
	work(req);
	pool_list_add_tail(&host_of(loop)->works, &w->link);
	return 0;
}

static void run_works(struct sim_host *h)
{
	struct pool_list list, *it, *tmp;

	pool_list_init(&list);
	pool_list_splice(&list, &h->works);
	pool_list_each(it, tmp, &list) {
		struct work *w = pool_list_entry(it, struct work, link);

		w->done(w->req, 0);
		free(w);
	}
}

static void run_calls(struct sim_host *h)
{
	struct pool_list list;

	pool_list_init(&list);
	pool_list_splice(&list, &h->calls);
	while (!pool_list_empty(&list)) {
		struct sim_call *c =
			pool_list_first(&list, struct sim_call, link);

		pool_list_del(&c->link);
		c->run(c);
	}
}

/* libuv runs this right after it has polled. */
static void on_input(uv_check_t *check)
{
	struct sim_host *h = pool_container_of(check, struct sim_host, input);

	run_works(h);
	run_calls(h);
	sim_net_input(h);
}

void sim_call(struct sim_host *h, struct sim_call *c)
{
	pool_list_add_tail(&h->calls, &c->link);
}

void sim_host_open(struct sim_host *h, bool script)
{
	int err;

	memset(h, 0, sizeof(*h));
	h->script = script;
	h->turn_ns = 20000;
	h->byte_ps = 30000;
	h->idle_ns = 2 * SIM_MS;
	pool_list_init(&h->calls);
	pool_list_init(&h->works);
	pool_list_init(&h->doors);
	pool_list_init(&h->readable);
	pool_list_init(&h->closing);
	pool_list_init(&h->conns);
	pool_list_add_tail(&sim.hosts, &h->link);
	err = uv_loop_init(&h->loop);
	assert(!err);
	uv_check_init(&h->loop, &h->input);
	uv_check_start(&h->input, on_input);
}

void sim_host_close(struct sim_host *h)
{
	struct pool_list *it, *tmp;
	int err;

	pool_list_del(&h->link);
	pool_list_each(it, tmp, &sim.hosts)
		sim_net_forget(pool_list_entry(it, struct sim_host, link), h);
	uv_close((uv_handle_t *)&h->input, NULL);
	uv_run(&h->loop, UV_RUN_DEFAULT);
	err = uv_loop_close(&h->loop);
	assert(!err);
}

void sim_host_stop(struct sim_host *h, uint64_t ns)
{
	if (h->free_ns < sim_now_ns() + ns)
		h->free_ns = sim_now_ns() + ns;
}

void sim_host_die(struct sim_host *h, bool silent)
{
	h->dead = true;
	h->free_ns = 0;
	sim_net_die(h, silent);
}

/* ---- turns ---- */

void sim_log_turns(struct sim_turn *log, size_t max)
{
	turns.log = log;
	turns.max = max;
	turns.n = 0;
}

size_t sim_logged(void)
{
	return turns.n;
}

static void log_turn(const struct sim_host *h, uint64_t begin_ns)
{
	uint64_t cpu_ns;

	if (!h->logged || turns.n == turns.max)
		return;
	cpu_ns = sim_cpu_ns() - begin_ns;
	turns.log[turns.n++] = (struct sim_turn){
		.cpu_ns = cpu_ns < UINT32_MAX ? (uint32_t)cpu_ns : UINT32_MAX,
		.frames = (uint32_t)h->got_frames,
		.bytes = (uint32_t)h->got_bytes,
	};
}

static bool has_input(const struct sim_host *h)
{
	return !pool_list_empty(&h->calls) || !pool_list_empty(&h->works) ||
	       sim_net_waiting(h);
}

/* When its next turn is due; UINT64_MAX: nothing to do. */
static uint64_t turn_due(struct sim_host *h)
{
	uint64_t at = UINT64_MAX;
	int ms;

	if (h->script)
		return at;
	if (has_input(h)) {
		at = sim_now_ns();
	} else {
		ms = uv_backend_timeout(&h->loop);
		if (ms >= 0)
			at = (uv_now(&h->loop) + (uint64_t)ms) * SIM_MS;
	}
	if (at < h->free_ns)
		at = h->free_ns;
	return at < sim_now_ns() ? sim_now_ns() : at;
}

static void turn(struct sim_host *h)
{
	uint64_t begin = h->logged ? sim_cpu_ns() : 0;

	h->got_bytes = h->got_frames = 0;
	uv_run(&h->loop, UV_RUN_NOWAIT);
	log_turn(h, begin);
	sim_host_stop(h, h->turn_ns + h->got_bytes * h->byte_ps / 1000);
	if (!has_input(h) && uv_backend_timeout(&h->loop) == 0)
		h->free_ns += h->idle_ns;
	sim_note(h->got_frames);
}

static struct sim_host *next_turn(uint64_t *ret_at)
{
	struct pool_list *it, *tmp;
	struct sim_host *best = NULL;

	*ret_at = UINT64_MAX;
	pool_list_each(it, tmp, &sim.hosts) {
		struct sim_host *h = pool_list_entry(it, struct sim_host, link);
		uint64_t at = turn_due(h);

		if (at < *ret_at) {
			*ret_at = at;
			best = h;
		}
	}
	return best;
}

void sim_run_until(uint64_t at_ns)
{
	for (;;) {
		uint64_t at;
		struct sim_host *h = next_turn(&at);
		struct sim_event *e = sim.n ? sim.heap[1] : NULL;

		if (e && e->at_ns <= at)
			at = e->at_ns;
		else
			e = NULL;
		if (at > at_ns)
			break;
		atomic_store(&sim.now_ns, at);
		sim.happened++;
		if (e) {
			sim_cancel(e);
			e->run(e);
		} else {
			turn(h);
		}
	}
	atomic_store(&sim.now_ns, at_ns);
}
