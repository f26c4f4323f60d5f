/*
 * Space: claims of writes and fetches, and evictions that make room for them.
 */
#ifndef POOL_NODE_SPACE_H
#define POOL_NODE_SPACE_H

#include "pool/node/object.h"

#define NODE_MASTERLESS_MS 1500 /* after so long without a master, a node evicts
				   counted copies without permission */
#define NODE_ASK_MS 250		/* then an EVICT without answer is repeated */
#define NODE_REFUSED_MS 1000	/* then one that was refused is repeated */
#define NODE_LEASE_MS 5000	/* for so long after a look-up hit an open is
				   expected: the copy is evicted last */

/* ---- fetch_space.c: bytes of fetches in flight ---- */

/* Returns the bytes that fetches in flight have written so far. Subtracts them
 * from node->claimed, because the store counts them as used. */
uint64_t node_fetch_settle(struct pool_node *n);
/* Bytes of fetches in flight that will be cached copies: those written so far,
 * and those that are only claimed. */
uint64_t node_fetch_cache(struct pool_node *n);

/* ---- evicted.c: what was evicted here, by name ---- */

#define NODE_EVICTED_MAX 4096 /* remembered */
#define NODE_EVICTED_SENT 256 /* evicted without a master: sent at a join */
/* o, a counted copy, is about to be evicted; alone: without a master. */
void node_evicted_note(struct pool_node *n, const struct node_object *o,
		       bool alone);
/* Fills list (room: NODE_EVICTED_SENT) with the last copies evicted without a
 * master: path (borrowed until the next call), generation. Returns how many. */
size_t node_evicted_alone(struct pool_node *n, Kvpool__Meta *list);
void node_evicted_fini(struct pool_node *n);

/* ---- victim.c: what may be evicted (for space.c: victim.h) ---- */

/* Judges everything below d, whose rules changed, in slices. */
void node_judge_below(struct pool_node *n, struct node_dirent *d);
bool node_judge_slice(struct pool_node *n); /* is there more to do? */
uint64_t node_evictable(struct pool_node *n); /* bytes */

/* ---- space.c: claims and evictions ---- */

void node_space_init(struct pool_node *n);
void node_space_run(struct pool_node *n);
/* pool_store_space as of this millisecond. For decisions that need no exact
 * figure, as any write may change it right after. Valid until the next call. */
const struct pool_space *node_space_lately(struct pool_node *n);
void node_space_fini(struct pool_node *n);
/*
 * Evicts the next cached copy and reuses its pages for a file of size bytes
 * that will be written completely. 0, or -errno: its pages cannot be reused (it
 * may be evicted all the same), or there is room without that.
 */
int node_space_reuse(struct pool_node *n, uint64_t size,
		     struct pool_file *ret_file);
/* The master has answered the EVICT for o. */
void node_space_answered(struct pool_node *n, const struct node_object *o);

#endif
