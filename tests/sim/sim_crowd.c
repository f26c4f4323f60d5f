#include "tests/sim/sim_crowd_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/wire.h"

#define HEARTBEAT_NS (500 * SIM_MS)
#define DIAL_NS (50 * SIM_MS)
#define DIAL_MAX_NS SIM_S
#define ACK_NS SIM_MS
#define COPY_NS (3 * SIM_MS) /* plus the size at 1 GB/s */

/* ---- copies ---- */

struct copy {
	struct pool_list link;
	struct sim_node *to;
	uint32_t key;
	uint64_t gen;
	struct sim_event done;
};

static bool somebody_has(const struct sim_crowd *c, const struct copy *p)
{
	const struct sim_key *key = &c->keys->key[p->key];
	int i;

	for (i = 0; i < key->ncopies; i++) {
		const struct sim_node *n =
			&c->node[sim_copy_node(key->copies[i])];

		if (n != p->to && n->state != NODE_OFF &&
		    sim_copy_gen(key->copies[i]) == p->gen)
			return true;
	}
	return false;
}

/* Does the node hold it already? The order then only changes attributes, which
 * played nodes do not keep. */
static bool has_it(const struct sim_crowd *c, const struct copy *p)
{
	const struct sim_key *key = &c->keys->key[p->key];
	int i = sim_key_copy(key, p->to->nr);

	return i >= 0 && sim_copy_gen(key->copies[i]) >= p->gen;
}

static void on_copied(struct sim_event *e)
{
	struct copy *p = pool_container_of(e, struct copy, done);
	struct sim_node *n = p->to;
	struct sim_crowd *c = n->crowd;
	int status = 0;

	if (!has_it(c, p)) {
		if (!somebody_has(c, p))
			status = -ENOENT;
		else if (n->used + sim_key_size(p->key) > n->capacity)
			status = -ENOSPC;
		else
			sim_node_give(n, p->key, p->gen);
	}
	c->copies++;
	c->copies_failed += status != 0;
	/* In earlier states the inventory will list the copy. */
	if (n->state == NODE_UP)
		sim_say_held(n, p->key, p->gen, status);
	pool_list_del(&p->link);
	free(p);
}

static void copies_cancel(struct sim_node *n)
{
	while (!pool_list_empty(&n->copying)) {
		struct copy *p =
			pool_list_first(&n->copying, struct copy, link);

		sim_cancel(&p->done);
		pool_list_del(&p->link);
		free(p);
	}
}

static void on_replicate(struct sim_node *n, const Kvpool__Replicate *r)
{
	size_t i;

	for (i = 0; i < r->n_entries; i++) {
		const Kvpool__Meta *m = r->entries[i];
		int64_t key = sim_key_of_path(n->crowd->keys, m->path.data,
					      m->path.len);
		struct copy *p = calloc(1, sizeof(*p));

		assert(p && key >= 0 && m->size == sim_key_size((uint32_t)key));
		p->to = n;
		p->key = (uint32_t)key;
		p->gen = m->gen;
		p->done.run = on_copied;
		pool_list_add_tail(&n->copying, &p->link);
		sim_at(&p->done, sim_now_ns() + COPY_NS + sim_random(COPY_NS) +
					 m->size);
	}
}

/* ---- messages from the master ---- */

static void on_drop(struct sim_node *n, const Kvpool__Drop *d)
{
	size_t i;

	for (i = 0; i < d->n_items; i++) {
		const Kvpool__Drop__Item *it = d->items[i];
		int64_t key = sim_key_of_path(n->crowd->keys, it->path.data,
					      it->path.len);
		struct sim_key *k;
		int copy;

		assert(key >= 0);
		k = &n->crowd->keys->key[key];
		copy = sim_key_copy(k, n->nr);
		if (it->reason == KVPOOL__DROP__REASON__KEEP || copy < 0 ||
		    sim_copy_gen(k->copies[copy]) != it->gen)
			continue;
		sim_node_drop(n, (uint32_t)key, copy);
		n->crowd->drops++;
	}
}

static void op_done(struct sim_node *n, const struct sim_op *op,
		    const Kvpool__OpResult *r)
{
	struct sim_key *key = &n->crowd->keys->key[op->key];

	key->busy = false;
	n->crowd->ops_done++;
	if (r->status) {
		n->crowd->ops_failed++;
		return;
	}
	if (op->kind == KVPOOL__OP__KIND__UNLINK) {
		key->deleted = true;
		return;
	}
	assert(r->gen > key->gen);
	key->gen = r->gen;
	key->version = op->version;
	key->deleted = key->unsure = false;
	sim_node_give(n, op->key, r->gen);
}

static void on_ops_done(struct sim_node *n, const Kvpool__OpsDone *d)
{
	unsigned int i;

	if (!n->nops)
		return; /* the ack of sim_node_set_replicas */
	assert(d->n_results == n->nops);
	for (i = 0; i < n->nops; i++)
		op_done(n, &n->ops[i], d->results[i]);
	n->nops = 0;
}

/* The acks will never arrive. */
static void ops_lost(struct sim_node *n)
{
	unsigned int i;

	for (i = 0; i < n->nops; i++) {
		struct sim_key *key = &n->crowd->keys->key[n->ops[i].key];

		key->busy = false;
		key->unsure = true;
	}
	n->nops = 0;
}

static uint64_t varint(const uint8_t **p, const uint8_t *end)
{
	uint64_t v = 0;
	unsigned int shift = 0;

	while (*p < end && shift < 64) {
		v |= (uint64_t)(**p & 127) << shift;
		shift += 7;
		if (!(*(*p)++ & 128))
			break;
	}
	return v;
}

/* Parses only upto_seq and complete. Mirrors are checked for the entries. */
static void on_feed(struct sim_node *n, const uint8_t *p, size_t len)
{
	const uint8_t *end = p + len;

	while (p < end) {
		uint64_t tag = varint(&p, end), v = 0;

		switch (tag & 7) {
		case 0:
			v = varint(&p, end);
			break;
		case 1:
			memcpy(&v, p, 8);
			p += 8;
			break;
		default:
			v = varint(&p, end);
			p += v;
		}
		assert(p <= end);
		if (tag >> 3 == 3)
			n->feed_seq = v;
		else if (tag >> 3 == 2)
			n->complete = true;
	}
	n->crowd->batches++;
	if (!n->ack.pos)
		sim_at(&n->ack, sim_now_ns() + sim_random(ACK_NS));
}

static void on_welcome(struct sim_node *n, const Kvpool__Welcome *w)
{
	if (w->epoch < n->epoch)
		n->crowd->epochs_fell++;
	n->epoch = w->epoch;
	n->state = NODE_LISTING;
	n->dial_delay_ns = DIAL_NS;
	n->sent = 0;
	sim_node_tidy(n);
	sim_at(&n->list_more, sim_now_ns());
	sim_at(&n->beat, sim_now_ns() + sim_random(HEARTBEAT_NS));
}

static const ProtobufCMessageDescriptor *descriptor(uint16_t type)
{
	switch (type) {
	case POOL_MSG_WELCOME:
		return &kvpool__welcome__descriptor;
	case POOL_MSG_OPS_DONE:
		return &kvpool__ops_done__descriptor;
	case POOL_MSG_DROP:
		return &kvpool__drop__descriptor;
	case POOL_MSG_REPLICATE:
		return &kvpool__replicate__descriptor;
	default:
		return NULL;
	}
}

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct sim_node *n = pool_conn_user(c);
	const ProtobufCMessageDescriptor *d = descriptor(f->type);
	ProtobufCMessage *msg;

	(void)fd;
	if (f->type == POOL_MSG_FEED)
		return on_feed(n, payload, f->payload_len);
	if (f->type == POOL_MSG_ERROR)
		n->crowd->refused++;
	if (!d)
		return;
	msg = protobuf_c_message_unpack(d, NULL, f->payload_len, payload);
	assert(msg);
	switch (f->type) {
	case POOL_MSG_WELCOME:
		on_welcome(n, (const Kvpool__Welcome *)msg);
		break;
	case POOL_MSG_OPS_DONE:
		on_ops_done(n, (const Kvpool__OpsDone *)msg);
		break;
	case POOL_MSG_DROP:
		on_drop(n, (const Kvpool__Drop *)msg);
		break;
	default:
		on_replicate(n, (const Kvpool__Replicate *)msg);
	}
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* ---- connection and state ---- */

static void on_open(struct pool_conn *c)
{
	struct sim_node *n = pool_conn_user(c);

	n->state = NODE_JOINING;
	sim_say_join(n);
}

static void on_close(struct pool_conn *c, int err)
{
	struct sim_node *n = pool_conn_user(c);

	(void)err;
	if (n->conn != c)
		return; /* it was killed */
	n->conn = NULL;
	n->state = NODE_AWAY;
	ops_lost(n);
	sim_cancel(&n->list_more);
	sim_cancel(&n->ack);
	sim_at(&n->beat, sim_now_ns() + n->dial_delay_ns +
				 sim_random(n->dial_delay_ns));
	if (n->dial_delay_ns < DIAL_MAX_NS)
		n->dial_delay_ns *= 2;
}

static const struct pool_conn_ops conn_ops = {
	.on_open = on_open,
	.on_frame = on_frame,
	.on_close = on_close,
};

static void dial(struct sim_node *n)
{
	struct pool_hostport to = { .port = n->crowd->leader_port };
	struct pool_conn_opts opts = {
		.ops = &conn_ops,
		.user = n,
		.idle_timeout_ms = 3000,
	};
	int err;

	n->state = NODE_DIALLING;
	err = pool_conn_connect(&n->crowd->host.loop, &to, &opts, &n->conn);
	assert(!err);
}

static void on_beat(struct sim_event *e)
{
	struct sim_node *n = pool_container_of(e, struct sim_node, beat);

	if (n->state == NODE_AWAY) {
		dial(n);
	} else if (n->state >= NODE_LISTING) {
		sim_say_heartbeat(n);
		sim_at(e, sim_now_ns() + HEARTBEAT_NS);
	}
}

void sim_node_start(struct sim_node *n, uint64_t within_ns)
{
	assert(n->state == NODE_OFF);
	n->state = NODE_AWAY;
	n->dial_delay_ns = DIAL_NS;
	sim_at(&n->beat, sim_now_ns() + sim_random(within_ns));
}

void sim_node_kill(struct sim_node *n, bool silent)
{
	struct pool_conn *c = n->conn;

	n->conn = NULL;
	n->state = NODE_OFF;
	n->complete = false;
	sim_cancel(&n->beat);
	sim_cancel(&n->list_more);
	sim_cancel(&n->ack);
	copies_cancel(n);
	ops_lost(n);
	if (!c)
		return;
	if (silent)
		sim_conn_vanish(c);
	else
		pool_conn_close(c);
}

/* ---- the crowd ---- */

static void node_init(struct sim_crowd *c, unsigned int nr,
		      const struct sim_crowd_opts *o)
{
	struct sim_node *n = &c->node[nr];

	n->crowd = c;
	n->nr = (uint16_t)nr;
	memcpy(n->id, "sim-node", 8);
	memcpy(n->id + 8, &nr, sizeof(nr));
	snprintf(n->name, sizeof(n->name), "n%u", nr);
	snprintf(n->host_id, sizeof(n->host_id), "h%u",
		 nr / o->nodes_per_machine);
	snprintf(n->advertise, sizeof(n->advertise), "10.0.%u.%u:7071",
		 nr >> 8, nr & 255);
	n->is_mount = nr < o->mounts;
	n->capacity = o->capacity;
	n->beat.run = on_beat;
	n->list_more.run = sim_say_inventory;
	n->ack.run = sim_say_ack;
	pool_list_init(&n->copying);
}

void sim_crowd_open(struct sim_crowd *c, const struct sim_crowd_opts *opts,
		    struct sim_keys *keys)
{
	unsigned int i;

	assert(opts->nodes <= SIM_NODES_MAX);
	memset(c, 0, sizeof(*c));
	sim_host_open(&c->host, true);
	c->keys = keys;
	c->n = opts->nodes;
	c->node = calloc(c->n, sizeof(*c->node));
	assert(c->node);
	for (i = 0; i < c->n; i++)
		node_init(c, i, opts);
}

void sim_crowd_close(struct sim_crowd *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++) {
		if (c->node[i].state != NODE_OFF)
			sim_node_kill(&c->node[i], true);
		free(c->node[i].list);
	}
	free(c->node);
	sim_host_close(&c->host);
}

bool sim_crowd_quiet(const struct sim_crowd *c)
{
	unsigned int i;

	for (i = 0; i < c->n; i++) {
		const struct sim_node *n = &c->node[i];

		if (n->state == NODE_OFF)
			continue;
		if (n->state != NODE_UP || n->nops || n->ack.pos ||
		    !pool_list_empty(&n->copying))
			return false;
	}
	return true;
}
