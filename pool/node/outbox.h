/*
 * The outbox: changes until the master has acked them (inside: ops.h), the HELD
 * items of a turn, and what sends both.
 */
#ifndef POOL_NODE_OUTBOX_H
#define POOL_NODE_OUTBOX_H

#include "pool/node/object.h"

/* Unacked changes. The last eighth is reserved for root and this process's user
 * (pool_quota_bound). A publication that finds no room waits. Another change is
 * refused then, or when its user's share is used up (pool_quota_check). */
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

/* Contents of one name that were sent before a cut and not acked. */
#define NODE_BEFORE_MAX 4 /* as batches in flight; beyond, drops the oldest */
struct node_before {
	unsigned int n;
	struct node_content list[NODE_BEFORE_MAX];
};
/* A node_before in the form of a message, which borrows this storage; and one
 * more content: the one that the change was made from. */
struct node_before_pb {
	Kvpool__Content *list[NODE_BEFORE_MAX + 1];
	Kvpool__Content content[NODE_BEFORE_MAX + 1];
	XXH128_canonical_t sum[NODE_BEFORE_MAX + 1];
};
/* *b is allocated if it is NULL. Without memory the content is forgotten: the
 * master then refuses a change that it believes another node has overtaken. */
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
/* HELD: the result of an order to copy; with -EBADMSG also: a counted copy was
 * damaged and is gone. Sent at the end of the turn, before any other message.
 */
void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status);
void node_helds_send(struct pool_node *n);
/* Is the queue of notifications to the kernel full? */
bool node_kernel_behind(const struct pool_node *n);
/* The feed is applied up to seq: ack it once the kernel has been notified. */
void node_feed_ack(struct pool_node *n, uint64_t seq);

/* ---- ops_path.c: changes of attributes that are not acked, by path ---- */

/* Applies this path's unacked changes to what the master says. 0 or -ENOMEM. */
int node_ops_overlay(struct pool_node *n, const char *path, size_t path_len,
		     struct node_attr *a, struct pool_xattrs **x);

/* ---- ops.c: changes that are not acked: queue and sending ---- */

struct node_op; /* ops.h */
/* An invariant, for tests: tickets ascend. */
bool node_ops_in_order(const struct pool_node *n);
/* Queues the PUBLISH of o (PENDING). 0, -ENOMEM, or -EAGAIN: the queue is full,
 * retry at a later tick. (Changes are refused then.) */
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
/* Adds to *b the content of o, if a master may have been sent it, and what o's
 * writer has in `before`. */
void node_op_before(struct pool_node *n, const struct node_object *o,
		    struct node_before **b);
/* o's publication is not wanted any more. */
void node_op_forget(struct pool_node *n, struct node_object *o);
/* Is o's PUBLISH in flight? */
bool node_op_sent(struct pool_node *n, const struct node_object *o);
/* May a master have executed it? It is in flight, or in doubt after a cut. */
bool node_op_maybe_executed(struct pool_node *n, const struct node_object *o);
void node_ops_send(struct pool_node *n);
void node_ops_batched(uv_timer_t *h);
/* Has every change of rules been sent, so that the master knows it before any
 * message that is sent now? */
bool node_ops_rules_sent(struct pool_node *n);
/* The lowest ticket of an unacked change; UINT64_MAX: there is none. */
uint64_t node_ops_oldest(const struct pool_node *n);
/* Take-over: unacked changes as records, and back (the objects of publications
 * must be there). 0 or -errno. */
void node_ops_hand_over(struct pool_node *n, struct pool_handover *h);
int node_ops_take_over(struct pool_node *n, const Kvpool__Ops *ops);
void node_ops_free(struct pool_node *n);

/* ---- ops_done.c: acks of changes ---- */

void node_ops_done(struct pool_node *n, const Kvpool__OpsDone *done);
/*
 * A session begins. Changes of earlier sessions whose result the master knows
 * are completed; the others are sent again. Call it before the inventory is
 * sent, because the results change the inventory.
 */
void node_ops_welcome(struct pool_node *n, const Kvpool__Welcome *w);
void node_ops_cut_off(struct pool_node *n);

#endif
