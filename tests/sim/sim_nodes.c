#include "tests/sim/sim_nodes.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"

#define PORT 7000
#define STORE_SIZE (2u << 20)
#define BUFFER_SIZE (1u << 20)
#define LOOK_NS (20 * SIM_MS)
#define BUSY_NS (9 * SIM_S)
#define REST_NS (90 * SIM_S)

void sn_wrong(struct sn *s, const char *fmt, ...)
{
	va_list ap;

	if (s->wrong[0])
		return;
	va_start(ap, fmt);
	vsnprintf(s->wrong, sizeof(s->wrong), fmt, ap);
	va_end(ap);
	sn_say(s, "WRONG: %s", s->wrong);
}

void sn_say(struct sn *s, const char *fmt, ...)
{
	va_list ap;

	if (!s->trace)
		return;
	printf("%10.6f  ", (double)(sim_now_ns() - 1000 * SIM_S) / 1e9);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	printf("\n");
}

/* ---- processes ---- */

static struct sn_proc *proc_new(struct sn *s, unsigned int index)
{
	struct sn_proc *p = calloc(1, sizeof(*p));

	assert(p);
	p->sn = s;
	p->index = index;
	pool_list_init(&p->tasks);
	pool_list_init(&p->call.link);
	sim_host_open(&p->host, false);
	p->host.idle_ns = 200000;
	pool_list_add_tail(&s->procs, &p->link);
	return p;
}

static void store_dir(unsigned int i, char buf[16])
{
	snprintf(buf, 16, "node%u", i);
}

/* Two stores with a mount each, and a client. */
static void open_node(struct sn_proc *p)
{
	char dir[16], name[16];
	struct pool_node_opts o = {
		.loop = &p->host.loop,
		.listen = { .host = "127.0.0.1" },
		.name = name,
		.store_dir = dir,
		.store_size = p->index < 2 ? STORE_SIZE : 0,
		.buffer_size = BUFFER_SIZE,
		.mount = true,
		.reserve = p->index == 0,
		.movers = 1,
		.prefetch_max = 2,
	};
	int err;

	store_dir(p->index, dir);
	snprintf(name, sizeof(name), "%u", p->index);
	o.masters.at[0] = (struct pool_hostport){ .host = "sim", .port = PORT };
	o.masters.n = 1;
	p->metrics = pool_metrics_open();
	o.metrics = p->metrics;
	err = pool_node_open(&o, &p->node);
	assert(!err);
	snprintf(p->node->host_id, sizeof(p->node->host_id), "machine%u",
		 p->index);
}

static void start_node(struct sn *s, unsigned int i)
{
	s->node[i] = proc_new(s, i);
	sn_say(s, "node %u starts", i);
	open_node(s->node[i]);
}

static void on_node_closed(void *arg)
{
	((struct sn_proc *)arg)->closed = true;
}

static void close_node(struct sim_call *c)
{
	struct sn_proc *p = pool_container_of(c, struct sn_proc, call);

	sn_users_leave(p);
	pool_node_close(p->node, 0, on_node_closed, p);
}

/* The process dies; its files stay. */
static void end_node(struct sn *s, unsigned int i)
{
	struct sn_proc *p = s->node[i];
	char dir[16];

	s->node[i] = NULL;
	sn_say(s, "node %u dies", i);
	sn_forget_shown(s, i);
	sn_users_lose(p);
	store_dir(i, dir);
	p->dead = true;
	sim_disk_crash(dir, false);
	if (s->with & SN_WITH_ROT && !s->calm && sim_random(2))
		sn_rot(s, i);
	sim_host_die(&p->host, sim_random(4) == 0);
	p->call.run = close_node;
	sim_call(&p->host, &p->call);
}

static void on_settled(void *arg)
{
	struct sn_proc *p = arg;

	if (p->master && !p->dead)
		master_settled(p->master);
}

static void open_master(struct sim_call *c)
{
	struct sn_proc *p = pool_container_of(c, struct sn_proc, call);
	struct master_opts opts = {
		.loop = &p->host.loop,
		.listen = { .host = "sim", .port = PORT },
		.etcd_state = p->state,
		.epoch = p->sn->etcd.epoch,
	};
	int err;

	if (p->dead) {
		p->closed = true;
		return;
	}
	err = master_open(&opts, &p->master);
	assert(!err);
}

static void start_master(struct sn *s)
{
	struct sn_proc *p = proc_new(s, SN_NODES);

	s->master = p;
	p->state = sim_etcd_elect(&s->etcd, &p->host, on_settled, p);
	sn_say(s, "a master starts, epoch %llu",
	       (unsigned long long)s->etcd.epoch);
	p->call.run = open_master;
	sim_call(&p->host, &p->call);
}

static void on_master_closed(void *arg)
{
	struct sn_proc *p = arg;

	p->master = NULL;
	p->closed = true;
}

static void close_master(struct sim_call *c)
{
	struct sn_proc *p = pool_container_of(c, struct sn_proc, call);

	if (p->master)
		master_close(p->master, on_master_closed, p);
	else
		p->closed = true;
}

static void end_master(struct sn *s)
{
	struct sn_proc *p = s->master;

	s->master = NULL;
	sn_say(s, "the master dies");
	p->dead = true;
	sim_etcd_die(p->state, sim_random(2));
	sim_host_die(&p->host, sim_random(4) == 0);
	pool_list_del(&p->call.link);
	p->call.run = close_master;
	sim_call(&p->host, &p->call);
}

static void free_proc(struct sn_proc *p)
{
	etcd_state_close(p->state);
	sim_host_close(&p->host);
	if (p->metrics)
		pool_metrics_close(p->metrics);
	pool_list_del(&p->link);
	free(p);
}

static bool all_closed(struct sn *s)
{
	struct pool_list *it, *tmp;
	bool left = false;

	pool_list_each(it, tmp, &s->procs) {
		struct sn_proc *p = pool_list_entry(it, struct sn_proc, link);

		if (p->closed)
			free_proc(p);
		else
			left |= p->dead || s->calm;
	}
	return !left;
}

/* ---- faults ---- */

static void on_back(struct sim_event *e)
{
	struct sn *s = e->user;
	unsigned int i = 0;

	while (&s->back[i] != e)
		i++;
	if (i < SN_NODES && !s->node[i])
		start_node(s, i);
	else if (i == SN_NODES && !s->master)
		start_master(s);
}

static uint64_t soon(uint64_t within_ns)
{
	return sim_now_ns() + sim_random(within_ns);
}

/* Schedules the crash, because code of this host is on the stack: a crash now
 * would free what that uses. */
static void on_crash(struct sim_host *h)
{
	struct sn_proc *p = pool_container_of(h, struct sn_proc, host);
	struct sn *s = p->sn;

	if (p->dead || s->calm || s->trouble.pos == 0)
		return;
	s->crashing = p->index;
	sim_at(&s->crash, sim_now_ns());
}

static void crash(struct sn *s, unsigned int i)
{
	if (i == SN_NODES && s->master && s->with & SN_WITH_ETCD) {
		s->nfaults++;
		end_master(s);
		sim_at(&s->back[i], soon(3 * SIM_S));
	} else if (i < SN_NODES && s->node[i] && s->with & SN_WITH_CRASHES) {
		s->nfaults++;
		end_node(s, i);
		sim_at(&s->back[i], soon(3 * SIM_S));
	}
}

static void on_crash_event(struct sim_event *e)
{
	struct sn *s = e->user;

	crash(s, s->crashing);
}

static struct sn_proc *any_proc(struct sn *s)
{
	unsigned int i = (unsigned int)sim_random(SN_NODES + 2);

	return i < SN_NODES ? s->node[i] : s->master;
}

static void on_trouble(struct sim_event *e)
{
	struct sn *s = e->user;
	struct sn_proc *p = any_proc(s);
	uint64_t ns = sim_random(2) ? sim_random(6 * SIM_S) :
				      2900 * SIM_MS + sim_random(300 * SIM_MS);

	if (p && sim_random(2)) {
		crash(s, p->index);
	} else if (p && s->with & SN_WITH_STOPS) {
		s->nfaults++;
		sn_say(s, "%s %u is stopped for %llu ms",
		       p->node ? "node" : "master", p->index,
		       (unsigned long long)(ns / SIM_MS));
		sim_host_stop(&p->host, ns);
	}
	sim_at(e, soon(4 * SIM_S));
}

static uint32_t often(unsigned int one_of)
{
	return sim_random(2) ? (uint32_t)sim_random(1000000 / one_of) : 0;
}

static void begin_trouble(struct sn *s)
{
	memset(&sim_faults, 0, sizeof(sim_faults));
	sim_faults.late_ns = sim_random(2) ? SIM_S : 20 * SIM_MS;
	sim_faults.stop_ns = sim_random(2) ? 4 * SIM_S : 50 * SIM_MS;
	sim_faults.late = often(20);
	sim_faults.fetch_fails = often(4);
	sim_faults.fetch_wrong = often(4);
	sim_faults.fetch_late = often(4);
	if (s->with & SN_WITH_CUTS) {
		sim_faults.cut = often(20);
		sim_faults.mute = often(100);
	}
	if (s->with & SN_WITH_ETCD && sim_random(2))
		sim_etcd_slow(&s->etcd, sim_random(SIM_S));
	if (s->with & SN_WITH_STOPS)
		sim_faults.stop = often(50);
	if (s->with & SN_WITH_CRASHES)
		sim_faults.crash = often(100);
	sim_faults.on_crash = on_crash;
	sim_at(&s->trouble, soon(4 * SIM_S));
}

/* ---- users ---- */

static void on_user(struct sim_event *e)
{
	struct sn *s = e->user;
	unsigned int i = 0;

	while (&s->user[i] != e)
		i++;
	if (s->node[i]) {
		if (s->node[i]->node)
			node_check(s->node[i]->node);
		sn_user_acts(s, s->node[i]);
	}
	sim_at(e, soon(sim_random(3) ? 30 * SIM_MS : 900 * SIM_MS));
}

static void on_poll(struct sim_event *e)
{
	struct sn *s = e->user;

	sn_observe(s);
	(void)all_closed(s);
	sim_at(e, sim_now_ns() + LOOK_NS);
}

/* ---- rest ---- */

static const char *node_busy(const struct sn *s, const struct pool_node *n)
{
	const struct master *m = s->master->master;

	if (!n->complete || n->in_picture || n->feed_epoch != m->epoch)
		return "a node has no picture";
	if (n->feed_skipped)
		return "a node is about to request the picture again";
	if (n->feed_seq != m->map.feed.seq)
		return "a node has not received all of the feed";
	if (n->nops)
		return "a node's changes are not acked";
	if (n->nfetches)
		return "a node fetches";
	if (!pool_list_empty(&n->sealing) || !pool_list_empty(&n->pending))
		return "a node has files to publish";
	return pool_list_empty(&n->claims) ? NULL : "a claim waits for space";
}

/* The master would declare it dead, and the reads of the check would fail. */
static bool is_stopped(const struct sn_proc *p)
{
	return p->host.free_ns > sim_now_ns() + LOOK_NS;
}

static const char *busy(const struct sn *s)
{
	const struct master *m = s->master->master;
	const char *why;
	unsigned int i;

	if (!m || !m->ready)
		return "the master is not ready";
	if (is_stopped(s->master))
		return "the master is stopped";
	for (i = 0; i < SN_NODES; i++) {
		if (is_stopped(s->node[i]))
			return "a node is stopped";
		if (sim_net_cut(&s->node[i]->host, &s->master->host))
			return "a node is cut off and has not noticed";
		why = node_busy(s, s->node[i]->node);
		if (why)
			return why;
	}
	if (s->tasks)
		return "users' operations are in flight";
	if (m->patrol.active)
		return "a patrol";
	if (m->repair.nwaiting || m->repair.nordered)
		return "repair";
	if (!master_keep_settled(m, master_keep_mark(m)))
		return "answers wait for etcd";
	return NULL;
}

static void settle(struct sn *s)
{
	uint64_t end = sim_now_ns() + REST_NS;
	const char *why = NULL;
	unsigned int quiet = 0;

	while (quiet < 10 && sim_now_ns() < end && !s->wrong[0]) {
		sim_run_until(sim_now_ns() + 10 * LOOK_NS);
		why = busy(s);
		quiet = why ? 0 : quiet + 1;
	}
	if (why)
		sn_wrong(s, "does not come to rest: %s", why);
}

static void calm_down(struct sn *s)
{
	unsigned int i;

	memset(&sim_faults, 0, sizeof(sim_faults));
	sim_etcd_slow(&s->etcd, 0);
	sim_cancel(&s->trouble);
	sim_cancel(&s->crash);
	for (i = 0; i < SN_NODES; i++) {
		sim_cancel(&s->user[i]);
		sim_cancel(&s->back[i]);
	}
	sim_cancel(&s->back[SN_NODES]);
	sn_say(s, "calm");
	if (!s->master)
		start_master(s);
	for (i = 0; i < SN_NODES; i++)
		if (!s->node[i])
			start_node(s, i);
}

/* ---- a run ---- */

static void open_all(struct sn *s)
{
	unsigned int i;

	sim_etcd_open(&s->etcd);
	pool_list_init(&s->procs);
	s->poll = (struct sim_event){ .run = on_poll, .user = s };
	s->trouble = (struct sim_event){ .run = on_trouble, .user = s };
	s->crash = (struct sim_event){ .run = on_crash_event, .user = s };
	for (i = 0; i <= SN_NODES; i++)
		s->back[i] = (struct sim_event){ .run = on_back, .user = s };
	for (i = 0; i < SN_NODES; i++)
		s->user[i] = (struct sim_event){ .run = on_user, .user = s };
	start_master(s);
	for (i = 0; i < SN_NODES; i++)
		start_node(s, i);
	sim_at(&s->poll, sim_now_ns() + LOOK_NS);
}

static void close_all(struct sn *s)
{
	unsigned int i;

	s->calm = true;
	sim_disk_on_remove(NULL);
	sim_net_on_frame(NULL);
	sim_net_on_send(NULL);
	sim_cancel(&s->poll);
	for (i = 0; i < SN_NODES; i++)
		if (s->node[i])
			end_node(s, i);
	if (s->master)
		end_master(s);
	while (!all_closed(s))
		sim_run_until(sim_now_ns() + LOOK_NS);
	sim_etcd_close(&s->etcd);
	sim_close();
}

static void prepare(struct sn *s)
{
	unsigned int i = 0;

	do
		sim_run_until(sim_now_ns() + LOOK_NS);
	while (busy(s) && ++i < 500);
	if (busy(s))
		sn_wrong(s, "does not start: %s", busy(s));
	sn_prepare(s, s->node[0]);
	settle(s);
}

static void rest_and_check(struct sn *s)
{
	unsigned int i;

	calm_down(s);
	settle(s);
	sn_observe(s);
	if (!s->wrong[0])
		sn_check(s);
	if (!s->wrong[0])
		sn_check_mirrors(s);
	if (!s->wrong[0])
		sn_check_counts(s);
	for (i = 0; i < SN_NODES; i++)
		if (s->node[i] && s->node[i]->node)
			node_check(s->node[i]->node);
	for (i = 0; i < SN_NODES && !s->wrong[0]; i++)
		sn_read_all(s, s->node[i]);
	if (!s->wrong[0])
		settle(s);
}

bool sn_run(struct sn *s, uint64_t seed, unsigned int with, bool trace)
{
	unsigned int i;

	memset(s, 0, sizeof(*s));
	s->seed = seed;
	s->with = with;
	s->trace = trace;
	sim_open(seed);
	memset(&sim_faults, 0, sizeof(sim_faults));
	sn_model_open(s);
	sn_trace_open(s);
	open_all(s);
	prepare(s);
	if (!s->wrong[0]) {
		begin_trouble(s);
		for (i = 0; i < SN_NODES; i++)
			sim_at(&s->user[i], soon(100 * SIM_MS));
		sim_run_until(sim_now_ns() + BUSY_NS);
		rest_and_check(s);
	}
	s->digest = sim_digest();
	close_all(s);
	return !s->wrong[0];
}
