/*
 * A fake node for tests of the master: a real connection, but no store. Keeps a
 * mirror of the feed and the last answers; run_until() turns the loop until a
 * condition holds.
 */
#ifndef TESTS_MASTER_FAKE_NODE_H
#define TESTS_MASTER_FAKE_NODE_H

#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master/server.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

#define HEARTBEAT_MS 150
#define MIRROR_MAX 512

struct seen_name {
	char path[128];
	uint64_t gen;
	unsigned int nholders;
	uint32_t holders[8];
	uint32_t mode, uid, gid, set;
	uint64_t mtime_ns;
	bool is_dir, listed;
};

struct fake_node {
	uv_loop_t *loop;
	struct pool_conn *conn;
	uv_timer_t beat;
	bool timer_open;
	char name[40];
	uint8_t id[16];
	const char *host;
	const char *advertise; /* NULL: 127.0.0.1:1 */
	const char *program;   /* NULL: an older version, which sends none */
	uint64_t cert_expires; /* as in NodeInfo */
	bool is_store, is_mount;
	uint64_t capacity, used, evictable;
	bool tells_figures; /* HELD contains capacity, used, evictable */
	uint64_t join_epoch, join_seq, seen_epoch;
	uint64_t ops_run, ops_received; /* JOIN's; 0: an older version */
	/* how it behaves */
	bool silent, no_ack, count_only;
	/* what it has received */
	bool open, welcomed, closed;
	uint64_t epoch;
	uint32_t index;
	uint64_t known_run, ops_executed;
	size_t nresults_lost; /* results of earlier changes, in WELCOME */
	bool exact;
	unsigned int heartbeats;
	uint64_t asked_seed, wall_ms; /* of the last one */
	char masters_program[64];
	int error;
	bool ops_done, feed_before_done;
	unsigned int ndone; /* OPS_DONE */
	size_t nresults;
	int status[POOL_BATCH_MAX];
	uint64_t gen[POOL_BATCH_MAX], seq[POOL_BATCH_MAX];
	struct seen_name names[MIRROR_MAX];
	unsigned int nnames, nfeed_entries, begins, completes, feeds;
	unsigned int entries_complete; /* nfeed_entries at the last complete */
	uint64_t upto;
	bool picture;
	struct {
		bool known, alive;
		char program[64];
	} nodes[64];
	unsigned int nsynced;
	uint64_t synced_req;
	unsigned int ndrops;
	struct {
		char path[128];
		uint64_t gen;
		int reason;
		uint64_t helds;
	} drops[256];
	unsigned int nreplicates;
	struct {
		char path[128];
		uint64_t gen;
		size_t nnodes;
		bool extra;
	} replicates[64];
};

/* ---- the mirror ---- */

static struct seen_name *fake_find(struct fake_node *n, const char *path)
{
	unsigned int i;

	for (i = 0; i < n->nnames; i++)
		if (!strcmp(n->names[i].path, path))
			return &n->names[i];
	return NULL;
}

static inline bool fake_knows(struct fake_node *n, const char *path,
			      uint64_t gen)
{
	const struct seen_name *s = fake_find(n, path);

	return s && s->gen == gen;
}

static void fake_forget(struct fake_node *n, struct seen_name *s)
{
	*s = n->names[--n->nnames];
}

static void fake_apply(struct fake_node *n, const Kvpool__Meta *e)
{
	char path[128];
	struct seen_name *s;
	size_t i;

	n->nfeed_entries++;
	if (n->count_only)
		return;
	snprintf(path, sizeof(path), "%.*s", (int)e->path.len,
		 (const char *)e->path.data);
	s = fake_find(n, path);
	if (e->deleted) { /* of that kind, up to that generation */
		if (s && s->is_dir == e->is_dir &&
		    (!e->gen || s->gen <= e->gen))
			fake_forget(n, s);
		return;
	}
	if (s && s->is_dir != e->is_dir)
		return; /* cannot be shown */
	if (!s) {
		if (n->nnames == MIRROR_MAX)
			return;
		s = &n->names[n->nnames++];
		strcpy(s->path, path);
	}
	s->gen = e->gen;
	s->is_dir = e->is_dir;
	s->mode = e->mode;
	s->uid = e->uid;
	s->gid = e->gid;
	s->set = e->set;
	s->mtime_ns = e->mtime_ns;
	s->listed = true;
	s->nholders = (unsigned int)e->n_holders;
	for (i = 0; i < e->n_holders && i < 8; i++)
		s->holders[i] = e->holders[i];
}

static void fake_on_feed(struct fake_node *n, const Kvpool__Feed *f)
{
	Kvpool__FeedAck ack = KVPOOL__FEED_ACK__INIT;
	unsigned int j;
	size_t i;

	n->feeds++;
	if (!n->ops_done && f->n_entries)
		n->feed_before_done = true;
	if (f->begin) {
		n->begins++;
		n->picture = true;
		for (j = 0; j < n->nnames; j++)
			n->names[j].listed = false;
	}
	for (i = 0; i < f->n_nodes; i++) {
		if (f->nodes[i]->index < 64) {
			n->nodes[f->nodes[i]->index].known = true;
			n->nodes[f->nodes[i]->index].alive = f->nodes[i]->alive;
			snprintf(n->nodes[f->nodes[i]->index].program, 64, "%s",
				 f->nodes[i]->program);
		}
	}
	for (i = 0; i < f->n_entries; i++)
		fake_apply(n, f->entries[i]);
	if (f->complete) {
		n->completes++;
		n->entries_complete = n->nfeed_entries;
		n->picture = false;
		for (j = 0; j < n->nnames;)
			if (n->names[j].listed)
				j++;
			else
				fake_forget(n, &n->names[j]);
	}
	n->upto = f->upto_seq;
	ack.seq = f->upto_seq;
	if (!n->no_ack)
		pool_conn_send(n->conn, POOL_MSG_FEED_ACK, 0, &ack.base);
}

static void fake_on_drop(struct fake_node *n, const Kvpool__Drop *d)
{
	size_t i;

	for (i = 0; i < d->n_items; i++) {
		const Kvpool__Drop__Item *it = d->items[i];

		if (n->ndrops < 256) {
			snprintf(n->drops[n->ndrops].path, 128, "%.*s",
				 (int)it->path.len,
				 (const char *)it->path.data);
			n->drops[n->ndrops].gen = it->gen;
			n->drops[n->ndrops].reason = (int)it->reason;
			n->drops[n->ndrops].helds = it->helds;
		}
		n->ndrops++;
	}
}

static void fake_on_replicate(struct fake_node *n, const Kvpool__Replicate *r)
{
	size_t i;

	for (i = 0; i < r->n_entries; i++) {
		const Kvpool__Meta *e = r->entries[i];

		if (n->nreplicates < 64) {
			snprintf(n->replicates[n->nreplicates].path, 128,
				 "%.*s", (int)e->path.len,
				 (const char *)e->path.data);
			n->replicates[n->nreplicates].gen = e->gen;
			n->replicates[n->nreplicates].nnodes = r->n_nodes;
			n->replicates[n->nreplicates].extra = r->extra;
		}
		n->nreplicates++;
	}
}

static void fake_on_done(struct fake_node *n, const Kvpool__OpsDone *d)
{
	size_t i;

	n->ops_done = true;
	n->ndone++;
	n->nresults = d->n_results;
	for (i = 0; i < d->n_results; i++) {
		n->status[i] = d->results[i]->status;
		n->gen[i] = d->results[i]->gen;
		n->seq[i] = d->results[i]->seq;
	}
}

static const ProtobufCMessageDescriptor *fake_descriptor(uint16_t type)
{
	switch (type) {
	case POOL_MSG_WELCOME:
		return &kvpool__welcome__descriptor;
	case POOL_MSG_FEED:
		return &kvpool__feed__descriptor;
	case POOL_MSG_OPS_DONE:
		return &kvpool__ops_done__descriptor;
	case POOL_MSG_DROP:
		return &kvpool__drop__descriptor;
	case POOL_MSG_REPLICATE:
		return &kvpool__replicate__descriptor;
	case POOL_MSG_HEARTBEAT:
		return &kvpool__heartbeat__descriptor;
	case POOL_MSG_ERROR:
		return &kvpool__error__descriptor;
	default:
		return NULL;
	}
}

static void fake_on_frame(struct pool_conn *c, const struct pool_frame *f,
			  const uint8_t *payload, int fd)
{
	struct fake_node *n = pool_conn_user(c);
	const ProtobufCMessageDescriptor *d = fake_descriptor(f->type);
	ProtobufCMessage *msg = NULL;

	(void)fd;
	if (d)
		msg = protobuf_c_message_unpack(d, NULL, f->payload_len,
						payload);
	switch (f->type) {
	case POOL_MSG_WELCOME:
		n->welcomed = true;
		n->epoch = ((Kvpool__Welcome *)msg)->epoch;
		n->index = ((Kvpool__Welcome *)msg)->index;
		n->known_run = ((Kvpool__Welcome *)msg)->ops_run;
		n->ops_executed = ((Kvpool__Welcome *)msg)->ops_done;
		n->nresults_lost = ((Kvpool__Welcome *)msg)->n_ops;
		n->exact = ((Kvpool__Welcome *)msg)->ops_exact;
		snprintf(n->masters_program, sizeof(n->masters_program), "%s",
			 ((Kvpool__Welcome *)msg)->program);
		break;
	case POOL_MSG_FEED:
		fake_on_feed(n, (Kvpool__Feed *)msg);
		break;
	case POOL_MSG_OPS_DONE:
		fake_on_done(n, (Kvpool__OpsDone *)msg);
		break;
	case POOL_MSG_DROP:
		fake_on_drop(n, (Kvpool__Drop *)msg);
		break;
	case POOL_MSG_REPLICATE:
		fake_on_replicate(n, (Kvpool__Replicate *)msg);
		break;
	case POOL_MSG_HEARTBEAT:
		n->heartbeats++;
		n->asked_seed = ((Kvpool__Heartbeat *)msg)->asked_seed;
		n->wall_ms = ((Kvpool__Heartbeat *)msg)->wall_ms;
		break;
	case POOL_MSG_ERROR:
		n->error = ((Kvpool__Error *)msg)->status;
		break;
	case POOL_MSG_SYNCED:
		n->nsynced++;
		n->synced_req = f->req;
		break;
	default:
		break;
	}
	if (msg)
		protobuf_c_message_free_unpacked(msg, NULL);
}

static void fake_on_open(struct pool_conn *c)
{
	((struct fake_node *)pool_conn_user(c))->open = true;
}

static void fake_on_close(struct pool_conn *c, int err)
{
	struct fake_node *n = pool_conn_user(c);

	(void)err;
	n->closed = true;
	n->conn = NULL;
}

static const struct pool_conn_ops fake_ops = {
	.on_open = fake_on_open,
	.on_frame = fake_on_frame,
	.on_close = fake_on_close,
};

static void fake_info(const struct fake_node *n, Kvpool__NodeInfo *info)
{
	kvpool__node_info__init(info);
	info->id.data = (uint8_t *)n->id;
	info->id.len = 16;
	info->name = (char *)n->name;
	info->advertise = (char *)(n->advertise ? n->advertise : "127.0.0.1:1");
	info->host_id = (char *)n->host;
	if (n->program)
		info->program = (char *)n->program;
	info->cert_expires = n->cert_expires;
	info->is_store = n->is_store;
	info->is_mount = n->is_mount;
	info->capacity = n->capacity;
	info->used = n->used;
	info->evictable = n->evictable;
}

static void fake_beat(uv_timer_t *t)
{
	struct fake_node *n = t->data;
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	Kvpool__NodeInfo info;

	if (n->silent || !n->welcomed || !n->conn)
		return;
	fake_info(n, &info);
	hb.epoch = n->epoch;
	hb.node = &info;
	pool_conn_send(n->conn, POOL_MSG_HEARTBEAT, 0, &hb.base);
}

/* ---- turning the loop ---- */

static void fake_nothing(uv_timer_t *t)
{
	(void)t;
}

/* Turn the loop until cond is true. It turns at least each millisecond, because
 * cond may depend on time alone. */
#define run_until(loop, cond)                                           \
	do {                                                            \
		uv_timer_t tick_;                                       \
		uv_timer_init((loop), &tick_);                          \
		uv_timer_start(&tick_, fake_nothing, 1, 1);             \
		(void)unit_ran_until((loop), (cond), #cond);            \
		uv_close((uv_handle_t *)&tick_, NULL);                  \
		uv_run((loop), UV_RUN_NOWAIT);                          \
		if (!(cond))                                            \
			unit_timed_out(#cond);                          \
	} while (0)

static inline void run_ms(uv_loop_t *loop, uint64_t ms)
{
	uint64_t end = pool_now_ms() + ms;

	run_until(loop, pool_now_ms() >= end);
}

/* ---- what a node does ---- */

static void fake_dial(struct fake_node *n, uv_loop_t *loop, uint16_t port)
{
	/* Longer than the default, which may expire on a busy machine before
	 * the loop turns. Tests that wait for the connection have a limit. */
	struct pool_conn_opts opts = {
		.ops = &fake_ops,
		.user = n,
		.connect_timeout_ms = 2 * UNIT_WAIT_S * 1000,
	};
	struct pool_hostport to = { .host = "127.0.0.1", .port = port };

	n->loop = loop;
	n->open = n->welcomed = n->closed = false;
	n->error = 0;
	assert_int_equal(0, pool_conn_connect(loop, &to, &opts, &n->conn));
	if (!n->timer_open) {
		uv_timer_init(loop, &n->beat);
		n->beat.data = n;
		uv_timer_start(&n->beat, fake_beat, HEARTBEAT_MS / 3,
			       HEARTBEAT_MS / 3);
		n->timer_open = true;
	}
}

static void fake_send_join(struct fake_node *n)
{
	Kvpool__Join join = KVPOOL__JOIN__INIT;
	Kvpool__NodeInfo info;

	fake_info(n, &info);
	join.version = POOL_WIRE_VERSION;
	join.node = &info;
	join.epoch = n->join_epoch;
	join.seq = n->join_seq;
	join.seen_epoch = n->seen_epoch;
	join.ops_run = n->ops_run;
	join.ops_done = n->ops_received;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_JOIN, 0,
					   &join.base));
}

/* Owner of all files in messages of fake nodes. */
static uint32_t fake_uid;
/* 1 + uid of the user who makes changes; 0: not known */
static uint32_t fake_by;

static void fake_meta(Kvpool__Meta *meta, const char *path, uint64_t gen)
{
	static uint8_t sum[16] = "0123456789abcde";

	kvpool__meta__init(meta);
	meta->path.data = (uint8_t *)path;
	meta->path.len = strlen(path);
	meta->gen = gen;
	meta->size = 1000;
	meta->mode = 0644;
	meta->uid = fake_uid;
	meta->sum.data = sum;
	meta->sum.len = 16;
}

/* One entry (path NULL: none) of an inventory. */
static void fake_inventory_attr(struct fake_node *n, const char *path,
				uint64_t gen, uint32_t mode,
				uint64_t attr_gen, bool last)
{
	Kvpool__Inventory inv = KVPOOL__INVENTORY__INIT;
	Kvpool__Meta meta, *list[1] = { &meta };

	if (path) {
		fake_meta(&meta, path, gen);
		meta.mode = mode;
		meta.attr_gen = attr_gen;
		inv.entries = list;
		inv.n_entries = 1;
	}
	inv.last = last;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_INVENTORY, 0,
					   &inv.base));
}

static void fake_inventory(struct fake_node *n, const char *path, uint64_t gen,
			   bool last)
{
	fake_inventory_attr(n, path, gen, 0644, 0, last);
}

/* An Inventory.gone entry: the node evicted this while there was no master. */
static inline void fake_gone(struct fake_node *n, const char *path,
			     uint64_t gen)
{
	Kvpool__Inventory inv = KVPOOL__INVENTORY__INIT;
	Kvpool__Meta meta = KVPOOL__META__INIT, *list[1] = { &meta };

	meta.path.data = (uint8_t *)path;
	meta.path.len = strlen(path);
	meta.gen = gen;
	inv.gone = list;
	inv.n_gone = 1;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_INVENTORY, 0,
					   &inv.base));
}

static inline void fake_subscribe(struct fake_node *n, uint64_t epoch,
				  uint64_t seq)
{
	Kvpool__Subscribe sub = KVPOOL__SUBSCRIBE__INIT;

	sub.epoch = epoch;
	sub.seq = seq;
	n->ops_done = true; /* no OPS in flight that a FEED could overtake */
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_SUBSCRIBE, 0,
					   &sub.base));
}

/* Send one operation and wait for its result. */
static int fake_op(struct fake_node *n, Kvpool__Op *op)
{
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	Kvpool__Op *list[1] = { op };

	op->by = fake_by;
	ops.ops = list;
	ops.n_ops = 1;
	n->ops_done = n->feed_before_done = false;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_OPS, 7,
					   &ops.base));
	run_until(n->loop, n->ops_done || n->closed);
	assert_true(n->ops_done);
	assert_int_equal(1, n->nresults);
	return n->status[0];
}

static int fake_do(struct fake_node *n, Kvpool__Op__Kind kind, const char *path)
{
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	op.kind = kind;
	op.meta = &meta;
	return fake_op(n, &op);
}

/* PUBLISH with the same checksum each time. */
static inline uint64_t fake_publish(struct fake_node *n, const char *path)
{
	assert_int_equal(0, fake_do(n, KVPOOL__OP__KIND__PUBLISH, path));
	assert_true(n->gen[0] != 0);
	return n->gen[0];
}

/* The same, made from generation `base`. */
static inline uint64_t fake_publish_from(struct fake_node *n, const char *path,
					 uint64_t base)
{
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	meta.base_gen = base;
	op.kind = KVPOOL__OP__KIND__PUBLISH;
	op.meta = &meta;
	assert_int_equal(0, fake_op(n, &op));
	return n->gen[0];
}

/* PUBLISH with a new checksum each time. */
static inline uint64_t fake_rewrite(struct fake_node *n, const char *path)
{
	static uint64_t bytes[2];
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	bytes[0]++;
	meta.sum.data = (uint8_t *)bytes;
	op.kind = KVPOOL__OP__KIND__PUBLISH;
	op.meta = &meta;
	assert_int_equal(0, fake_op(n, &op));
	assert_true(n->gen[0] != 0);
	return n->gen[0];
}

/* SETATTR of the one xattr name=value. */
static inline int fake_rule(struct fake_node *n, const char *path,
			    const char *name, const char *value)
{
	Kvpool__Op op = KVPOOL__OP__INIT;
	Kvpool__Xattr x = KVPOOL__XATTR__INIT, *xs[1] = { &x };
	Kvpool__Meta meta;

	fake_meta(&meta, path, 0);
	x.name = (char *)name;
	x.value.data = (uint8_t *)value;
	x.value.len = strlen(value);
	meta.xattrs = xs;
	meta.n_xattrs = 1;
	op.kind = KVPOOL__OP__KIND__SETATTR;
	op.set = POOL_SET_XATTRS;
	op.meta = &meta;
	return fake_op(n, &op);
}

/* EVICT from a node that needs `need` bytes and has seen DROPs that free `seen`
 * bytes. */
static inline void fake_evict_for(struct fake_node *n, const char *path,
				  uint64_t gen, uint64_t need, uint64_t seen)
{
	Kvpool__Evict ev = KVPOOL__EVICT__INIT;
	Kvpool__Meta meta, *list[1] = { &meta };

	fake_meta(&meta, path, gen);
	ev.entries = list;
	ev.n_entries = 1;
	ev.need = need;
	ev.seen = seen;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_EVICT, 0,
					   &ev.base));
}

static inline void fake_evict(struct fake_node *n, const char *path,
			      uint64_t gen)
{
	fake_evict_for(n, path, gen, 0, 0);
}

static inline void fake_held(struct fake_node *n, const char *path,
			     uint64_t gen, int status)
{
	Kvpool__Held held = KVPOOL__HELD__INIT;
	Kvpool__Held__Item item = KVPOOL__HELD__ITEM__INIT,
			   *list[1] = { &item };
	Kvpool__NodeInfo info;

	item.path.data = (uint8_t *)path;
	item.path.len = strlen(path);
	item.gen = gen;
	item.status = status;
	held.items = list;
	held.n_items = 1;
	if (n->tells_figures) {
		fake_info(n, &info);
		held.node = &info;
	}
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_HELD, 0,
					   &held.base));
}

static inline void fake_heat(struct fake_node *n, const char *path,
			     uint64_t gen, bool cold)
{
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	Kvpool__Heat item = KVPOOL__HEAT__INIT, *list[1] = { &item };

	item.path.data = (uint8_t *)path;
	item.path.len = strlen(path);
	item.gen = gen;
	item.cold = cold;
	hb.epoch = n->epoch;
	hb.heat = list;
	hb.n_heat = 1;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_HEARTBEAT, 0,
					   &hb.base));
}

static inline void fake_sync(struct fake_node *n, uint64_t seq, uint64_t req)
{
	Kvpool__Sync sync = KVPOOL__SYNC__INIT;

	sync.seq = seq;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_SYNC, req,
					   &sync.base));
}

/* Acks what was received while no_ack was set. */
static inline void fake_ack(struct fake_node *n)
{
	Kvpool__FeedAck ack = KVPOOL__FEED_ACK__INIT;

	ack.seq = n->upto;
	assert_int_equal(0, pool_conn_send(n->conn, POOL_MSG_FEED_ACK, 0,
					   &ack.base));
}

static void fake_hang_up(struct fake_node *n)
{
	if (n->conn)
		pool_conn_close(n->conn);
	run_until(n->loop, n->closed);
}

static void fake_fini(struct fake_node *n)
{
	if (n->conn)
		fake_hang_up(n);
	if (n->timer_open)
		uv_close((uv_handle_t *)&n->beat, NULL);
	n->timer_open = false;
}

static inline bool fake_dropped(const struct fake_node *n, const char *path,
				uint64_t gen, Kvpool__Drop__Reason reason)
{
	unsigned int i;

	for (i = 0; i < n->ndrops && i < 256; i++)
		if (!strcmp(n->drops[i].path, path) && n->drops[i].gen == gen &&
		    n->drops[i].reason == (int)reason)
			return true;
	return false;
}

#endif
