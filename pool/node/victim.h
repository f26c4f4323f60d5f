/*
 * Victims: which copy goes next when the store (space.c) needs its bytes, in
 * the policy's order (pool/model/evict.h) and by the rules of its directory.
 * What is open, mapped, lent, being written or hard-pinned does not go; what is
 * soft-pinned or was just looked up does if there is nothing else. Nothing is
 * dropped here.
 *
 * Thread: loop.
 */
#ifndef POOL_NODE_VICTIM_H
#define POOL_NODE_VICTIM_H

#include "pool/node/node_priv.h"

/* A cached copy: others hold it, too. NULL: none may go. */
struct node_object *node_victim_cached(struct pool_node *n);
/* A copy that counts, of size_max bytes at most; to_move: it is not lost by
 * that, so a noevict one may go, too. NULL: none may. */
struct node_object *node_victim(struct pool_node *n, bool to_move,
				uint64_t size_max);
/*
 * A copy that counts, to be evicted without the master's grant. Never one of a
 * name that is to have replicas: each of its holders, cut off, could believe in
 * the others' copies, and all would go.
 */
struct node_object *node_victim_alone(struct pool_node *n, uint64_t size_max);
/* The same, to be moved, even if it is hard-pinned. */
struct node_object *node_victim_pinned(struct pool_node *n, uint64_t size_max);
/* Is there anything of class that may go now, or soon: when the master answers,
 * or a peer gives it back? pinned: as well what is hard-pinned, if it has
 * somewhere to go. */
bool node_victim_any(struct pool_node *n, enum pool_evict_class class,
		     bool pinned);

#endif
