/*
 * Sending to the master. Messages from the master are dispatched in session.c.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool node_session_up(const struct pool_node *n)
{
	return n->session && n->session->state == SESSION_UP;
}

bool node_session_in_inventory(const struct pool_node *n)
{
	return n->session && n->session->state == SESSION_INVENTORY;
}

int node_session_send_any(struct pool_node *n, uint16_t type, uint64_t req,
		       const ProtobufCMessage *msg)
{
	int err;

	if (type != POOL_MSG_HELD)
		node_helds_send(n);
	err = pool_conn_send(n->session->conn, type, req, msg);
	pool_count(&n->c.master_requests);
	if (err) {
		/* The master may wait for this message. Closing the connection
		 * makes the next join send everything. */
		pool_warn_limited("sending %s to the master failed: %s",
				  pool_msg_name(type), strerror(-err));
		pool_conn_close(n->session->conn);
	}
	return err;
}

int node_session_send(struct pool_node *n, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg)
{
	if (!node_session_up(n) &&
	    !(node_session_in_inventory(n) && type == POOL_MSG_HELD))
		return -ENOTCONN;
	return node_session_send_any(n, type, req, msg);
}

unsigned int node_session_version(const struct pool_node *n)
{
	return node_session_up(n) ? pool_conn_version(n->session->conn) : 0;
}

void node_session_info(struct pool_node *n, Kvpool__NodeInfo *info)
{
	struct pool_space sp;
	uint64_t cached;

	kvpool__node_info__init(info);
	pool_store_space(n->store, &sp);
	info->id.data = n->id;
	info->id.len = POOL_ID_SIZE;
	info->name = n->name;
	info->advertise = n->advertise;
	info->unix_path = n->opts.fd_passing && n->unix_path ? n->unix_path :
							       (char *)"";
	info->host_id = n->host_id;
	info->is_store = n->opts.store_size > 0;
	info->is_mount = n->opts.mount;
	info->alive = true;
	info->capacity = info->is_store ? sp.size : 0;
	cached = sp.ready + pool_evict_bytes(n->evict, POOL_EVICT_CACHE) +
		 node_fetch_settle(n);
	info->used = info->is_store && sp.used > cached ? sp.used - cached : 0;
	if (info->used > info->capacity)
		info->used = info->capacity;
	if (info->is_store)
		info->evictable =
			pool_evict_bytes(n->evict, POOL_EVICT_COUNTED);
	/* (Headroom; or the store was larger when it was filled.) */
	if (info->evictable > info->capacity)
		info->evictable = info->capacity;
	info->objects = pool_evict_count(n->evict, POOL_EVICT_COUNTED) +
			pool_evict_count(n->evict, POOL_EVICT_KEPT) +
			pool_evict_count(n->evict, POOL_EVICT_UNSTORED);
	info->data_mode = n->data_mode;
	if (n->opts.program)
		info->program = (char *)(uintptr_t)n->opts.program;
	info->sent_bytes = n->peers ? pool_peers_sent(n->peers) : 0;
	if (n->opts.tls)
		info->cert_expires =
			(uint64_t)((int64_t)(pool_wall_ns() / 1000000000u) +
				   pool_tls_expires_s(n->opts.tls));
}

static void send_helds(struct pool_node *n, Kvpool__Held__Item **items,
		       size_t n_items)
{
	Kvpool__Held held = KVPOOL__HELD__INIT;
	Kvpool__NodeInfo info;

	if (!node_session_up(n) && !node_session_in_inventory(n))
		return; /* no session; the node may be closing */
	held.items = items;
	held.n_items = n_items;
	node_session_info(n, &info);
	held.node = &info;
	(void)node_session_send(n, POOL_MSG_HELD, 0, &held.base);
}

void node_helds_send(struct pool_node *n)
{
	struct node_helds *h = &n->helds;
	size_t n_items = h->n, i;

	h->n = h->bytes = 0; /* node_session_send_any calls this function */
	if (n_items)
		send_helds(n, h->items, n_items);
	for (i = 0; i < n_items; i++)
		free(h->items[i]);
}

/* One message per turn carries all items, because each message also carries the
 * node's figures, which cost more than an item. */
void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status)
{
	struct node_helds *h = &n->helds;
	Kvpool__Held__Item one, *item = malloc(sizeof(*item) + path_len);
	bool alone = !item;

	if (alone) { /* no memory to queue it: sent now, after those queued */
		node_helds_send(n);
		item = &one;
	}
	kvpool__held__item__init(item);
	item->path.data = alone ? (uint8_t *)(uintptr_t)path :
				  memcpy(item + 1, path, path_len);
	item->path.len = path_len;
	item->gen = gen;
	item->status = status;
	item->extra = extra;
	pool_count(status ? &n->c.replicate_failures : &n->c.replicated);
	n->helds_sent++;
	if (alone) {
		send_helds(n, &item, 1);
		return;
	}
	h->items[h->n++] = item;
	h->bytes += path_len + 32;
	if (h->n == NODE_HELDS_MAX || h->bytes >= POOL_BATCH_BYTES)
		node_helds_send(n);
	else
		node_kick(n);
}

static void send_ack(struct pool_node *n, uint64_t seq)
{
	Kvpool__FeedAck ack = KVPOOL__FEED_ACK__INIT;

	n->ack_waits = false;
	ack.seq = seq;
	if (node_session_up(n))
		(void)node_session_send_any(n, POOL_MSG_FEED_ACK, 0, &ack.base);
}

void pool_node_notified(struct pool_node *n, uint64_t mark)
{
	if (n->ack_waits && mark == n->mark)
		send_ack(n, n->ack_seq);
}

bool node_kernel_behind(const struct pool_node *n)
{
	return n->ops && n->ops->behind && n->ops->behind(n->ops_arg);
}

/*
 * fsync of a directory on any node waits for these acks, so that afterwards
 * every mount shows the names. An ack waits until the kernel has received the
 * notifications. But while an fsync waits here, the kernel holds that
 * directory's lock and may be unable to take notifications, so two nodes in
 * fsync would wait for each other. Then all dentries are expired and the ack is
 * sent at once, unless the queue of notifications is full.
 */
void node_feed_ack(struct pool_node *n, uint64_t seq)
{
	bool blocked = !pool_list_empty(&n->barriers);

	if (n->ops && blocked)
		n->ops->expire(n->ops_arg);
	if (!n->ops || (blocked && !node_kernel_behind(n))) {
		send_ack(n, seq);
		return;
	}
	n->ack_waits = true;
	n->ack_seq = seq;
	n->ops->when_notified(n->ops_arg, ++n->mark);
}
