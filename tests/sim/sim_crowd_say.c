/* The copies of played nodes, and the messages that they send to the master. */
#include "tests/sim/sim_crowd_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/wire.h"

#define LIST_NS (2 * SIM_MS) /* between two checks of the send queue */
#define LIST_QUEUE (512u << 10)

/* ---- copies ---- */

static void note(struct sim_node *n, uint32_t key)
{
	if (n->n == n->cap) {
		n->cap = n->cap ? n->cap * 2 : 64;
		n->list = realloc(n->list, n->cap * sizeof(*n->list));
		assert(n->list);
	}
	n->list[n->n++] = key;
}

void sim_node_give(struct sim_node *n, uint32_t key, uint64_t gen)
{
	if (!sim_key_hold(&n->crowd->keys->key[key], n->nr, gen))
		return;
	n->used += sim_key_size(key);
	note(n, key);
}

void sim_node_drop(struct sim_node *n, uint32_t key, int copy)
{
	sim_key_drop(&n->crowd->keys->key[key], copy);
	n->used -= sim_key_size(key);
}

static int by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return x < y ? -1 : x > y;
}

void sim_node_tidy(struct sim_node *n)
{
	const struct sim_key *keys = n->crowd->keys->key;
	uint32_t i, kept = 0;

	if (n->n)
		qsort(n->list, n->n, sizeof(*n->list), by_number);
	for (i = 0; i < n->n; i++) {
		uint32_t key = n->list[i];

		if (sim_key_copy(&keys[key], n->nr) >= 0 &&
		    (!kept || n->list[kept - 1] != key))
			n->list[kept++] = key;
	}
	n->n = kept;
}

/* ---- messages ---- */

static void send_msg(struct sim_node *n, uint16_t type, uint64_t req,
		     const ProtobufCMessage *msg)
{
	int err = pool_conn_send(n->conn, type, req, msg);

	assert(!err || err == -ENOTCONN); /* on_close is still to come */
}

static void fill_info(struct sim_node *n, Kvpool__NodeInfo *info)
{
	kvpool__node_info__init(info);
	info->id.data = n->id;
	info->id.len = sizeof(n->id);
	info->name = n->name;
	info->advertise = n->advertise;
	info->host_id = n->host_id;
	info->data_mode = (char *)"none";
	info->is_store = true;
	info->is_mount = n->is_mount;
	info->alive = true;
	info->capacity = n->capacity;
	info->used = n->used;
	info->evictable = n->used;
	info->objects = n->n;
}

void sim_say_join(struct sim_node *n)
{
	Kvpool__Join msg = KVPOOL__JOIN__INIT;
	Kvpool__NodeInfo info;

	fill_info(n, &info);
	msg.version = POOL_WIRE_VERSION;
	msg.node = &info;
	msg.epoch = n->feed_epoch;
	msg.seq = n->feed_seq;
	send_msg(n, POOL_MSG_JOIN, 0, &msg.base);
	n->crowd->joins++;
}

void sim_say_heartbeat(struct sim_node *n)
{
	Kvpool__Heartbeat msg = KVPOOL__HEARTBEAT__INIT;
	Kvpool__NodeInfo info;

	fill_info(n, &info);
	msg.epoch = n->epoch;
	msg.node = &info;
	send_msg(n, POOL_MSG_HEARTBEAT, 0, &msg.base);
}

static void send_subscribe(struct sim_node *n)
{
	Kvpool__Subscribe msg = KVPOOL__SUBSCRIBE__INIT;

	msg.epoch = n->complete ? n->feed_epoch : 0;
	msg.seq = n->complete ? n->feed_seq : 0;
	n->feed_epoch = n->epoch;
	n->complete = false;
	send_msg(n, POOL_MSG_SUBSCRIBE, 0, &msg.base);
}

/* Metas for one message, with their paths and sums. */
static struct batch {
	Kvpool__Meta meta[POOL_BATCH_MAX], *list[POOL_BATCH_MAX];
	char path[POOL_BATCH_MAX][SIM_PATH_LEN + 1];
	uint8_t sum[POOL_BATCH_MAX][16];
	size_t n;
} batch;

static Kvpool__Meta *add_meta(uint32_t key, uint16_t version, uint64_t gen)
{
	size_t i = batch.n++;
	Kvpool__Meta *m = batch.list[i] = &batch.meta[i];

	kvpool__meta__init(m);
	sim_key_path(key, batch.path[i]);
	sim_key_sum(key, version, batch.sum[i]);
	m->path.data = (uint8_t *)batch.path[i];
	m->path.len = SIM_PATH_LEN;
	m->sum.data = batch.sum[i];
	m->sum.len = 16;
	m->gen = gen;
	m->size = sim_key_size(key);
	m->mode = 0644;
	m->mtime_ns = 1700000000000000000ull + key;
	return m;
}

static void send_inventory(struct sim_node *n)
{
	const struct sim_key *keys = n->crowd->keys->key;
	Kvpool__Inventory msg = KVPOOL__INVENTORY__INIT;

	batch.n = 0;
	for (; n->sent < n->n && batch.n < POOL_BATCH_MAX; n->sent++) {
		uint32_t key = n->list[n->sent];
		int copy = sim_key_copy(&keys[key], n->nr);

		if (copy >= 0)
			add_meta(key, keys[key].version,
				 sim_copy_gen(keys[key].copies[copy]));
	}
	msg.entries = batch.list;
	msg.n_entries = batch.n;
	msg.last = n->sent == n->n;
	send_msg(n, POOL_MSG_INVENTORY, 0, &msg.base);
}

void sim_say_inventory(struct sim_event *e)
{
	struct sim_node *n = pool_container_of(e, struct sim_node, list_more);

	if (n->state != NODE_LISTING)
		return;
	while (n->sent < n->n && pool_conn_queued(n->conn) < LIST_QUEUE)
		send_inventory(n);
	if (n->sent < n->n) {
		sim_at(&n->list_more, sim_now_ns() + LIST_NS);
		return;
	}
	if (!n->n)
		send_inventory(n);
	n->state = NODE_UP;
	if (n->is_mount)
		send_subscribe(n);
}

void sim_say_held(struct sim_node *n, uint32_t key, uint64_t gen,
		      int status)
{
	Kvpool__Held msg = KVPOOL__HELD__INIT;
	Kvpool__Held__Item item = KVPOOL__HELD__ITEM__INIT,
			   *list[1] = { &item };
	char path[SIM_PATH_LEN + 1];

	sim_key_path(key, path);
	item.path.data = (uint8_t *)path;
	item.path.len = SIM_PATH_LEN;
	item.gen = gen;
	item.status = status;
	msg.items = list;
	msg.n_items = 1;
	send_msg(n, POOL_MSG_HELD, 0, &msg.base);
}

void sim_say_ack(struct sim_event *e)
{
	struct sim_node *n = pool_container_of(e, struct sim_node, ack);
	Kvpool__FeedAck msg = KVPOOL__FEED_ACK__INIT;

	if (n->state != NODE_UP)
		return;
	msg.seq = n->feed_seq;
	send_msg(n, POOL_MSG_FEED_ACK, 0, &msg.base);
}

bool sim_node_ask(struct sim_node *n, const struct sim_op *ops,
		  unsigned int nops)
{
	Kvpool__Ops msg = KVPOOL__OPS__INIT;
	Kvpool__Op op[SIM_OPS_MAX], *list[SIM_OPS_MAX];
	unsigned int i;

	assert(nops <= SIM_OPS_MAX);
	if (n->state != NODE_UP || n->nops)
		return false;
	batch.n = 0;
	for (i = 0; i < nops; i++) {
		struct sim_key *k = &n->crowd->keys->key[ops[i].key];

		kvpool__op__init(&op[i]);
		op[i].kind = ops[i].kind;
		/* A mount unlinks the generation that it shows. */
		op[i].meta = add_meta(
			ops[i].key, ops[i].version,
			op[i].kind == KVPOOL__OP__KIND__UNLINK ? k->gen : 0);
		list[i] = &op[i];
		k->busy = true;
		n->ops[i] = ops[i];
	}
	n->nops = nops;
	msg.ops = list;
	msg.n_ops = nops;
	send_msg(n, POOL_MSG_OPS, 1, &msg.base);
	return true;
}

void sim_node_evict(struct sim_node *n, uint32_t key)
{
	const struct sim_key *k = &n->crowd->keys->key[key];
	int copy = sim_key_copy(k, n->nr);
	Kvpool__Evict msg = KVPOOL__EVICT__INIT;

	if (n->state != NODE_UP || copy < 0)
		return;
	batch.n = 0;
	add_meta(key, k->version, sim_copy_gen(k->copies[copy]));
	msg.entries = batch.list;
	msg.n_entries = 1;
	send_msg(n, POOL_MSG_EVICT, 0, &msg.base);
}

void sim_node_set_replicas(struct sim_node *n, unsigned int replicas)
{
	Kvpool__Ops msg = KVPOOL__OPS__INIT;
	Kvpool__Op op = KVPOOL__OP__INIT, *ops[1] = { &op };
	Kvpool__Meta meta = KVPOOL__META__INIT;
	Kvpool__Xattr x = KVPOOL__XATTR__INIT, *xs[1] = { &x };
	char text[8];

	x.name = (char *)"user.kvpool.replicas";
	x.value.data = (uint8_t *)text;
	x.value.len = (size_t)snprintf(text, sizeof(text), "%u", replicas);
	meta.path.data = (uint8_t *)"kv";
	meta.path.len = 2;
	meta.is_dir = true;
	meta.mode = 0755;
	meta.xattrs = xs;
	meta.n_xattrs = 1;
	op.kind = KVPOOL__OP__KIND__MKDIR;
	op.meta = &meta;
	msg.ops = ops;
	msg.n_ops = 1;
	assert(n->state == NODE_UP && !n->nops);
	send_msg(n, POOL_MSG_OPS, 1, &msg.base);
}
