/* Changes that the master has not acknowledged: what ops.c and ops_done.c
 * share. */
#ifndef POOL_NODE_OPS_H
#define POOL_NODE_OPS_H

#include "pool/node/node_priv.h"

struct node_op {
	struct pool_list link; /* ops_waiting or ops_sent */
	int kind;	       /* enum _Kvpool__Op__Kind */
	bool queued; /* made while cut off */
	bool sent;   /* in ops_sent */
	bool told;   /* sent before a cut: the master may have done it */
	/* another master may have, of which this one cannot know */
	bool again;
	uint64_t number; /* in ops_run, as last sent; 0: never */
	uint64_t seen; /* highest generation seen when it was sent first */
	uint64_t ticket, gen;
	uint64_t made; /* ticket that it was given first, in ops_run */
	/* UNLINK of any generation: owns; or NULL */
	struct node_before *before;
	struct node_content base; /* has_base: what it was made from */
	bool has_base;
	struct node_object *obj; /* PUBLISH: ref; NULL: no longer wanted, or
				    answered. As long as it has a writer, that
				    one's op is this */
	struct node_change c;	 /* SETATTR; MKDIR: attr, xattrs. Owns both */
	char *sent_path; /* PUBLISH: the name it was sent under */
	/* SETATTR: a ring of those of one path, in order; the first of them is
	 * in node->changes. */
	struct pool_hash_node by_path;
	struct pool_list same;
	bool first;
	size_t path_len;
	char path[];
};

/* Whose publication it was; the op's ref is the caller's, or NULL. */
struct node_object *node_op_take_object(struct node_op *op);
void node_op_free(struct pool_node *n, struct node_op *op);
/* A change with a ticket, at the end of what waits; NULL: ENOMEM. */
struct node_op *node_op_new(struct pool_node *n, int kind, const char *path,
			    size_t path_len);
/* What waits is sent in a moment, with what comes until then. */
void node_ops_schedule(struct pool_node *n);

#endif
