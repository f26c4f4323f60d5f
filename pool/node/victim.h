/*
 * Victims: the next copy to evict when space.c needs bytes, in the policy's
 * order (pool/model/evict.h) and by the directory's rules. Objects that are
 * open, mapped, lent, being written or hard-pinned are never chosen;
 * soft-pinned and recently looked-up ones only if there is nothing else.
 * Nothing is evicted here.
 *
 * Thread: loop.
 */
#ifndef POOL_NODE_VICTIM_H
#define POOL_NODE_VICTIM_H

#include "pool/node/node_priv.h"

/* A cached copy. NULL: none may be evicted. */
struct node_object *node_victim_cached(struct pool_node *n);
/* A counted copy of at most size_max bytes. to_move: it will be copied
 * elsewhere first, so noevict ones qualify. NULL: none. */
struct node_object *node_victim(struct pool_node *n, bool to_move,
				uint64_t size_max);
/*
 * A counted copy to be evicted without the master's permission. Never of a name
 * with replicas >= 2: if all holders are cut off, each might evict its copy in
 * reliance on the others, and the object would be lost.
 */
struct node_object *node_victim_alone(struct pool_node *n, uint64_t size_max);
/* A counted copy to be moved, even a hard-pinned one. */
struct node_object *node_victim_pinned(struct pool_node *n, uint64_t size_max);
/* Can any object of this class be evicted, now or soon? Soon: its EVICT is in
 * flight, or a peer will return its descriptor. While another store has room,
 * POOL_EVICT_COUNTED includes noevict objects, which can be moved there; with
 * `pinned`, hard-pinned ones, too. */
bool node_victim_any(struct pool_node *n, enum pool_evict_class class,
		     bool pinned);

#endif
