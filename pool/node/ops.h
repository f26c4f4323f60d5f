/* Unacked changes: shared by ops.c and ops_done.c. */
#ifndef POOL_NODE_OPS_H
#define POOL_NODE_OPS_H

#include "pool/node/node_priv.h"

struct node_op {
	struct pool_list link; /* ops_waiting or ops_sent */
	int kind;	       /* enum _Kvpool__Op__Kind */
	bool queued; /* made without a session */
	bool sent;   /* in ops_sent */
	bool in_doubt; /* sent in an earlier session: a master may have
			  executed it */
	/* Op.again: an earlier master may have executed it, and the current one
	 * cannot know whether it did */
	bool again;
	/* its number in this run (node->ops_run) when it was last sent; 0: not
	 * sent since the last WELCOME */
	uint64_t number;
	/* node->seen_gen when it was first sent (UNLINK of any generation: when
	 * it was made). A master that executes it gives it a greater
	 * generation. 0: not sent yet */
	uint64_t seen_gen;
	uint64_t ticket, gen;
	uint64_t made; /* its ticket when it was made; a take-over changes
			  `ticket`, but not this */
	/* UNLINK of any generation: contents that this mount may have published
	 * under the name. Owns; or NULL */
	struct node_before *before;
	struct node_content base; /* has_base: the content it was made from */
	bool has_base;
	/* PUBLISH: ref; NULL: cancelled, or acked. obj->w->op points back here
	 */
	struct node_object *obj;
	struct node_change c;	 /* SETATTR; MKDIR: attr, xattrs. Owns both */
	char *sent_path; /* PUBLISH: the name it was sent under */
	/* SETATTR: all queued SETATTRs of one path form a ring (`same`), oldest
	 * first. Only the oldest (`first`) is in node->changes (`by_path`). */
	struct pool_hash_node by_path;
	struct pool_list same;
	bool first;
	size_t nsame; /* in `first`: how many are in the ring */
	bool closed; /* the name was changed later: no change is merged in */
	bool charged; /* to payer, in node->changers */
	uint32_t payer;
	uint32_t by; /* 1 + uid of the caller; 0: not known */
	size_t path_len;
	char path[];
};

/* ---- ops_path.c: changes of attributes, by path ---- */

/* 0 or -ENOMEM. */
int node_changes_add(struct pool_node *n, struct node_op *op);
/* op may be of any kind. No-op if it was not added. */
void node_changes_remove(struct pool_node *n, struct node_op *op);
size_t node_changes_of(struct pool_node *n, const char *path, size_t len);
/* The name is about to be changed: changes queued from now on are not merged
 * into those queued before. */
void node_changes_close(struct pool_node *n, const char *path, size_t len);
/* Merges c, which is newer than all queued changes, into one of this path that
 * was never sent. False: there is none, or no memory. */
bool node_changes_merge(struct pool_node *n, const char *path, size_t len,
			const struct node_change *c);

/* ---- ops.c ---- */

/* The object of a PUBLISH: its ref passes to the caller; or NULL. */
struct node_object *node_op_take_object(struct node_op *op);
void node_op_free(struct pool_node *n, struct node_op *op);
/* A new change with a ticket, at the end of ops_waiting; NULL: ENOMEM. */
struct node_op *node_op_new(struct pool_node *n, int kind, const char *path,
			    size_t path_len);
/* Sends ops_waiting after NODE_BATCH_MS or NODE_BATCH_BUSY_MS, together with
 * changes made until then. */
void node_ops_schedule(struct pool_node *n);

#endif
