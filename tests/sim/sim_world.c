#include "tests/sim/sim_world.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#include "master/impl.h"
#include "pool/node/node_priv.h"

#define PORT 7000
#define EPOCH_BEFORE 1 /* of the keys that exist from the start */
#define COPIES_MAX 4096
#define LOOK_NS (10 * SIM_MS)
#define CAPACITY_SHARE 3 /* the pool has room for so many times its copies */

/* ---- masters ---- */

struct sim_master *sim_world_leader(struct sim_world *w)
{
	return w->nmasters ? &w->master[w->nmasters - 1] : NULL;
}

static void on_settled(void *arg)
{
	struct sim_master *sm = arg;

	if (sm->m)
		master_settled(sm->m);
}

/* As master/ha.c, once its state has been read. */
static void on_elected(struct sim_call *c)
{
	struct sim_master *sm = pool_container_of(c, struct sim_master, call);
	struct master_opts opts = {
		.loop = &sm->host.loop,
		.listen = { .host = "sim", .port = sm->port },
		.etcd_state = sm->state,
		.epoch = sm->epoch,
		.repair_copies = COPIES_MAX,
	};
	int err = master_open(&opts, &sm->m);

	assert(!err);
	sm->w->crowd.leader_port = sm->port;
}

void sim_world_elect(struct sim_world *w)
{
	struct sim_master *sm = &w->master[w->nmasters];

	assert(w->nmasters < SIM_MASTERS_MAX);
	w->nmasters++;
	sim_host_open(&sm->host, false);
	sm->host.logged = true;
	sm->w = w;
	sm->port = (uint16_t)(PORT + w->nmasters);
	sm->state = sim_etcd_elect(&w->etcd, &sm->host, on_settled, sm);
	sm->epoch = w->etcd.epoch;
	sm->call.run = on_elected;
	pool_list_init(&sm->call.link);
	sim_call(&sm->host, &sm->call);
}

static void on_closed(void *arg)
{
	struct sim_master *sm = arg;

	sm->m = NULL;
	etcd_state_close(sm->state);
	sm->state = NULL;
}

static void on_lost(struct sim_call *c)
{
	struct sim_master *sm = pool_container_of(c, struct sim_master, call);

	master_close(sm->m, on_closed, sm);
}

void sim_world_lose_leader(struct sim_world *w)
{
	struct sim_master *sm = sim_world_leader(w);

	w->crowd.leader_port = 0;
	sm->call.run = on_lost;
	sim_call(&sm->host, &sm->call);
}

/* ---- mirrors ---- */

static void open_mirror(struct sim_world *w, unsigned int i)
{
	struct sim_mirror *mi = &w->mirror[i];
	struct pool_node_opts o = {
		.loop = &mi->host.loop,
		.listen = { .host = "127.0.0.1" },
		.name = "mirror",
		.store_dir = mi->dir,
		.buffer_size = 16 << 20,
		.mount = true,
		.movers = 1,
	};
	unsigned int k;
	int err;

	for (k = 0; k < SIM_MASTERS_MAX; k++)
		o.masters.at[k % POOL_HOSTPORTS_MAX] = (struct pool_hostport){
			.host = "sim", .port = (uint16_t)(PORT + 1 + k)
		};
	o.masters.n = SIM_MASTERS_MAX < POOL_HOSTPORTS_MAX ?
			      SIM_MASTERS_MAX : POOL_HOSTPORTS_MAX;
	snprintf(mi->dir, sizeof(mi->dir), "%s/mirror%u", w->o.dir, i);
	sim_host_open(&mi->host, false);
	mi->host.byte_ps = 5000;
	mi->metrics = pool_metrics_open();
	o.metrics = mi->metrics;
	err = pool_node_open(&o, &mi->node);
	assert(!err);
}

static void on_mirror_closed(void *arg)
{
	((struct sim_mirror *)arg)->closed = true;
}

static void close_mirror(struct sim_mirror *mi)
{
	pool_node_close(mi->node, 0, on_mirror_closed, mi);
	while (!mi->closed)
		sim_run_until(sim_now_ns() + LOOK_NS);
	sim_host_close(&mi->host);
	pool_metrics_close(mi->metrics);
	umount2(mi->dir, MNT_DETACH);
}

/* ---- the nodes ---- */

static void start_node(struct sim_node *n, uint64_t within_ns)
{
	if (n->state == NODE_OFF)
		sim_node_start(n, within_ns);
}

void sim_world_start_nodes(struct sim_world *w, uint64_t within_ns)
{
	unsigned int i;

	for (i = 0; i < w->crowd.n; i++)
		start_node(&w->crowd.node[i], within_ns);
}

void sim_world_kill_nodes(struct sim_world *w, unsigned int n)
{
	unsigned int i, left = n;

	assert(n < w->crowd.n);
	while (left) {
		i = (unsigned int)sim_random(w->crowd.n);
		/* Mounts stay, so that their feeds continue. */
		if (w->crowd.node[i].state == NODE_OFF ||
		    w->crowd.node[i].is_mount)
			continue;
		sim_node_kill(&w->crowd.node[i], left % 2);
		left--;
	}
}

static struct sim_node *random_node(struct sim_world *w)
{
	return &w->crowd.node[sim_random(w->crowd.n)];
}

/* ---- load ---- */

static bool free_to_change(const struct sim_key *k)
{
	return k->gen && !k->busy && !k->unsure;
}

/* False: the key that it picked cannot be changed now. */
static bool choose_op(struct sim_world *w, struct sim_op *op)
{
	unsigned int dice = (unsigned int)sim_random(100);
	struct sim_key *k;

	op->kind = dice < 85 ? KVPOOL__OP__KIND__PUBLISH :
			       KVPOOL__OP__KIND__UNLINK;
	if (dice < 50 && w->nborn < w->keys.n) {
		op->key = w->nborn++;
		op->version = 1;
		return true;
	}
	op->key = (uint32_t)sim_random(w->nborn);
	k = &w->keys.key[op->key];
	op->version = (uint16_t)(k->version + 1);
	return free_to_change(k) &&
	       (op->kind == KVPOOL__OP__KIND__PUBLISH || !k->deleted);
}

static void on_load(struct sim_event *e)
{
	struct sim_world *w = pool_container_of(e, struct sim_world, load);
	struct sim_node *n = random_node(w);
	struct sim_op ops[SIM_OPS_MAX];
	unsigned int nops = 0, i, j;

	if (n->state == NODE_UP && !n->nops) {
		for (i = 0; i < SIM_OPS_MAX; i++) {
			if (!choose_op(w, &ops[nops]))
				continue;
			for (j = 0; j < nops; j++)
				if (ops[j].key == ops[nops].key)
					break;
			nops += j == nops;
		}
		if (nops && sim_node_ask(n, ops, nops))
			w->asked += nops;
		if (n->n)
			sim_node_evict(n, n->list[sim_random(n->n)]);
	}
	if (w->load_ns)
		sim_at(e, sim_now_ns() + w->load_ns);
}

void sim_world_load(struct sim_world *w, uint64_t period_ns)
{
	w->load_ns = period_ns;
	if (period_ns)
		sim_at(&w->load, sim_now_ns() + period_ns);
	else
		sim_cancel(&w->load);
}

/* ---- rest ---- */

static const char *mounts_busy(struct sim_world *w, const struct master *m)
{
	unsigned int i;

	for (i = 0; i < w->crowd.n; i++) {
		const struct sim_node *n = &w->crowd.node[i];

		if (n->is_mount && n->state == NODE_UP &&
		    (!n->complete || n->feed_seq != m->map.feed.seq))
			return "a mount has not received all of the feed";
	}
	for (i = 0; i < w->o.mirrors; i++) {
		const struct pool_node *n = w->mirror[i].node;

		if (!n->complete || n->in_picture ||
		    n->feed_epoch != m->epoch ||
		    n->feed_seq != m->map.feed.seq)
			return "a mirror has not received all of the feed";
	}
	return NULL;
}

static const char *members_busy(struct sim_world *w, const struct master *m)
{
	unsigned int i, off = 0, joined = 0, gone = 0;

	for (i = 0; i < w->crowd.n; i++)
		off += w->crowd.node[i].state == NODE_OFF;
	for (i = 0; i < m->members.n; i++) {
		const struct master_member *mb = m->members.by_index[i];

		joined += mb->session && mb->inventoried;
		gone += mb->gone;
	}
	if (joined != w->crowd.n - off + w->o.mirrors)
		return "nodes are joining";
	return joined + gone == m->members.n ? NULL : "nodes are away";
}

const char *sim_world_busy(struct sim_world *w)
{
	const struct master *m = sim_world_leader(w)->m;
	const char *why;

	if (!m || !m->ready)
		return "the master is not ready";
	why = members_busy(w, m);
	if (why)
		return why;
	if (!sim_crowd_quiet(&w->crowd))
		return "nodes are busy";
	if (m->patrol.active)
		return "a patrol";
	if (m->repair.nwaiting || m->repair.nordered)
		return "repair";
	if (!master_keep_settled(m, master_keep_mark(m)))
		return "answers wait for etcd";
	return mounts_busy(w, m);
}

bool sim_world_settle(struct sim_world *w, uint64_t limit_ns)
{
	uint64_t end = sim_now_ns() + limit_ns;
	unsigned int quiet = 0;

	/* Long enough for frames in flight to arrive. */
	while (quiet < 20 && sim_now_ns() < end) {
		sim_run_until(sim_now_ns() + LOOK_NS);
		quiet = sim_world_busy(w) ? 0 : quiet + 1;
	}
	return quiet == 20;
}

/* ---- open and close ---- */

/* Two nodes on different machines get a copy of the key. */
static void give_key(struct sim_world *w, uint32_t id)
{
	struct sim_node *a = random_node(w), *b;
	uint64_t gen = (uint64_t)EPOCH_BEFORE << POOL_GEN_SEQ_BITS | (id + 1);

	do
		b = random_node(w);
	while (!strcmp(a->host_id, b->host_id));
	w->keys.key[id].gen = gen;
	w->keys.key[id].version = 1;
	sim_node_give(a, id, gen);
	sim_node_give(b, id, gen);
}

static uint64_t capacity_for(const struct sim_world_opts *o)
{
	uint64_t total = 0;
	uint32_t i;

	for (i = 0; i < o->keys; i++)
		total += sim_key_size(i);
	return total * SIM_REPLICAS * CAPACITY_SHARE / o->nodes;
}

/* The nodes, still empty, join the first master, and one sets the number of
 * replicas. Then all stop. */
static void prepare(struct sim_world *w)
{
	unsigned int i;

	sim_world_elect(w);
	sim_world_start_nodes(w, SIM_S);
	while (!sim_crowd_quiet(&w->crowd))
		sim_run_until(sim_now_ns() + LOOK_NS);
	sim_node_set_replicas(&w->crowd.node[0], SIM_REPLICAS);
	sim_run_until(sim_now_ns() + SIM_S);
	sim_world_lose_leader(w);
	for (i = 0; i < w->crowd.n; i++)
		sim_node_kill(&w->crowd.node[i], false);
	sim_run_until(sim_now_ns() + SIM_S);
}

void sim_world_open(struct sim_world *w, const struct sim_world_opts *opts)
{
	struct sim_crowd_opts co = {
		.nodes = opts->nodes,
		.mounts = opts->mounts,
		.nodes_per_machine = 2,
		.capacity = capacity_for(opts),
	};
	unsigned int i;
	uint32_t id;

	sim_open(opts->seed);
	memset(w, 0, sizeof(*w));
	w->o = *opts;
	w->load.run = on_load;
	sim_etcd_open(&w->etcd);
	sim_keys_open(&w->keys, opts->keys);
	sim_crowd_open(&w->crowd, &co, &w->keys);
	prepare(w);
	for (id = 0; id < opts->born; id++)
		give_key(w, id);
	w->nborn = opts->born;
	for (i = 0; i < opts->mirrors; i++)
		open_mirror(w, i);
}

void sim_world_close(struct sim_world *w)
{
	unsigned int i;

	sim_world_load(w, 0);
	for (i = 0; i < w->crowd.n; i++)
		if (w->crowd.node[i].state != NODE_OFF)
			sim_node_kill(&w->crowd.node[i], true);
	if (sim_world_leader(w)->m)
		sim_world_lose_leader(w);
	for (i = 0; i < w->o.mirrors; i++)
		close_mirror(&w->mirror[i]);
	for (i = 0; i < w->nmasters; i++) /* it frees some keys a turn */
		while (w->master[i].m)
			sim_run_until(sim_now_ns() + LOOK_NS);
	sim_run_until(sim_now_ns() + SIM_S);
	sim_crowd_close(&w->crowd);
	for (i = 0; i < w->nmasters; i++) {
		assert(!w->master[i].m);
		sim_host_close(&w->master[i].host);
	}
	sim_etcd_close(&w->etcd);
	sim_keys_close(&w->keys);
	sim_close();
}
