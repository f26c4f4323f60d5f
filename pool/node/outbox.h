/*
 * The outbox: queues changes until the master has acked them (ops.h has its
 * inner parts), collects HELD items until the end of a turn, and sends both.
 * ops.c describes what happens when an ack is lost or a new master takes over.
 */
#ifndef POOL_NODE_OUTBOX_H
#define POOL_NODE_OUTBOX_H

#include "pool/node/object.h"

/* Limit of unacked changes. The last eighth is reserved for root and this
 * process's user (pool_quota_bound). At the limit a publication waits, and any
 * other change is refused. So is a change of a user whose share is used up
 * (pool_quota_check). */
#define NODE_OPS_MAX (1u << 20)
#define NODE_PATH_CHANGES_MAX 1000 /* SETATTRs of one path among them, the last
				      eighth reserved likewise. Bounded because
				      all are applied to each feed entry of the
				      path */
#define NODE_OPS_INFLIGHT 4	/* unacked batches of changes */
#define NODE_BATCH_MS 1	/* a change waits for others to share its message */
#define NODE_BATCH_BUSY_MS 4 /* the same soon after another batch */

#define NODE_HELDS_MAX 256

/* HELD items of this turn (outbox.c). */
struct node_helds {
	/* owns; each is followed by its path */
	Kvpool__Held__Item *items[NODE_HELDS_MAX];
	size_t n, bytes;
};

/* ---- before.c: earlier contents that a master may have published ---- */

/* Contents of one name that were sent before the connection broke, and not
 * acked. */
#define NODE_BEFORE_MAX 4 /* = NODE_OPS_INFLIGHT; then drops the oldest */
struct node_before {
	unsigned int n;
	struct node_content list[NODE_BEFORE_MAX];
};
/* The contents of a node_before as protobuf messages, and the content that the
 * change was made from. A message borrows this storage. */
struct node_before_pb {
	Kvpool__Content *list[NODE_BEFORE_MAX + 1];
	Kvpool__Content content[NODE_BEFORE_MAX + 1];
	XXH128_canonical_t sum[NODE_BEFORE_MAX + 1];
};
/* *b is allocated if it is NULL. Without memory the content is forgotten
 * (counted): then the master may take this node's own earlier version for
 * another node's, and refuse the change. */
void node_before_add(struct pool_node *n, struct node_before **b,
		     const struct node_content *c);
void node_before_join(struct pool_node *n, struct node_before **b,
		      const struct node_before *more);
/* Returns the number of entries: those of b, and base. Both may be NULL. */
size_t node_before_to_pb(const struct node_before *b,
			 const struct node_content *base,
			 struct node_before_pb *ret_pb);
void node_before_from_pb(struct pool_node *n, struct node_before **b,
			 Kvpool__Content *const *list, size_t len);

/* ---- outbox.c: sending to the master ---- */

bool node_session_up(const struct pool_node *n);
/* Is the inventory being sent? Changes wait until it is complete. */
bool node_session_in_inventory(const struct pool_node *n);
/* Sends in any state of the session. 0 or -errno, logged: the connection then
 * ends. */
int node_session_send_any(struct pool_node *n, uint16_t type, uint64_t req,
		       const ProtobufCMessage *msg);
/* The same; -ENOTCONN unless the session is up. */
int node_session_send(struct pool_node *n, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg);
/* The session's protocol version; 0: there is no session. */
unsigned int node_session_version(const struct pool_node *n);
/* This node's figures for the master. Bytes of copies in flight do not count as
 * used: the master has ordered them. Borrows from n until the next turn. */
void node_session_info(struct pool_node *n, Kvpool__NodeInfo *info);
/* HELD: the result of an order to copy. -EBADMSG also reports that a counted
 * copy was damaged and has been dropped. Sent at the end of the turn, or
 * earlier if any other message is sent. */
void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status);
void node_helds_send(struct pool_node *n);
/* Is the queue of notifications to the kernel full? */
bool node_kernel_behind(const struct pool_node *n);
/* The feed is applied up to seq: ack it once the kernel has been notified. */
void node_feed_ack(struct pool_node *n, uint64_t seq);

/* ---- ops_path.c: unacked changes of attributes, by path ---- */

/* Applies this path's unacked changes to *a and *x, which have the master's
 * values. 0 or -ENOMEM. */
int node_ops_overlay(struct pool_node *n, const char *path, size_t path_len,
		     struct node_attr *a, struct pool_xattrs **x);

/* ---- ops.c: unacked changes: queue and sending ---- */

struct node_op; /* ops.h */
/* An invariant, for tests: tickets ascend. */
bool node_ops_in_order(const struct pool_node *n);
/* Queues the PUBLISH of o (PENDING). 0, -ENOMEM, or -EAGAIN: the queue is full,
 * retry at a later tick. */
int node_op_publish(struct pool_node *n, struct node_object *o);
/* Op.by of a change that the caller makes. */
uint32_t node_op_by(const struct pool_node *n);
/* kind: UNLINK (gen 0: any generation), MKDIR, RMDIR. 0 or -errno. */
int node_op_name(struct pool_node *n, int kind, struct pool_entry *e,
		 uint64_t gen);
/* Copies c; the attributes sent are those that e shows. Merges it into an
 * earlier change if possible (ops_path.c). 0 or -errno. */
int node_op_setattr(struct pool_node *n, struct pool_entry *e,
		    const struct node_change *c);
/* Adds to *b the contents in `before` of o's writer; and o's own, if a master
 * may have executed its PUBLISH. */
void node_op_before(struct pool_node *n, const struct node_object *o,
		    struct node_before **b);
/* o's PUBLISH is cancelled: freed, unless a master may have executed it. Then
 * it stays without an object until its result is known. */
void node_op_forget(struct pool_node *n, struct node_object *o);
/* Is o's PUBLISH in flight? */
bool node_op_sent(struct pool_node *n, const struct node_object *o);
/* May a master have executed it? It is in flight, or in doubt after a cut. */
bool node_op_maybe_executed(struct pool_node *n, const struct node_object *o);
void node_ops_send(struct pool_node *n);
/* Have all changes of rules been sent? Then the master receives them before any
 * message sent from now on. */
bool node_ops_rules_sent(struct pool_node *n);
/* The lowest ticket of an unacked change; UINT64_MAX: there is none. */
uint64_t node_ops_oldest(const struct pool_node *n);
/* Take-over: writes unacked changes to records; reads them back, after the
 * objects of the publications among them. 0 or -errno; hand_over: h->err. */
void node_ops_hand_over(struct pool_node *n, struct pool_handover *h);
int node_ops_take_over(struct pool_node *n, const Kvpool__Ops *ops);
void node_ops_free(struct pool_node *n);

/* ---- ops_done.c: acks of changes ---- */

void node_ops_done(struct pool_node *n, const Kvpool__OpsDone *done);
/*
 * A session begins. Changes of earlier sessions are completed if the master has
 * their results, and resent otherwise (the table in ops.c). Call it before the
 * inventory is sent, because the results change the inventory.
 */
void node_ops_welcome(struct pool_node *n, const Kvpool__Welcome *w);
/* The session has ended: changes in flight are in doubt, first in the queue. */
void node_ops_cut_off(struct pool_node *n);

#endif
