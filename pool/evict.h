/*
 * Which object to evict next: policy only, no I/O, no knowledge of what an
 * object is. (S3-FIFO unless the trace says something else is better.)
 *
 * Thread: any; the caller serialises access (here: loop).
 *
 * The owner embeds struct pool_evict_node in its object. Two classes are kept
 * apart, each in the policy's own order: POOL_EVICT_CACHE (copies that others
 * hold too) goes before POOL_EVICT_LAST (what may be the pool's only copy).
 * What must not go at the moment (open, mapped, pinned) stays inserted and is
 * refused by the `may` callback when the scan reaches it.
 */
#ifndef POOL_EVICT_H
#define POOL_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/list.h"

enum pool_evict_class {
	POOL_EVICT_CACHE,
	POOL_EVICT_LAST,
	POOL_EVICT_NCLASSES,
};

struct pool_evict_node {
	struct pool_list link; /* self-linked while not inserted */
	uint64_t key;	       /* hash of the object's name, for the ghosts */
	uint64_t size;	       /* bytes */
	uint8_t class;
	uint8_t queue; /* private */
	uint8_t freq;  /* private */
};

struct pool_evict; /* opaque */

/* capacity: bytes that the store may hold (sizes queues and ghosts).
 * NULL on ENOMEM. */
struct pool_evict *pool_evict_open(uint64_t capacity);
/* The nodes are the caller's. */
void pool_evict_close(struct pool_evict *ev);

void pool_evict_node_init(struct pool_evict_node *n);
bool pool_evict_inserted(const struct pool_evict_node *n);
/* n->key and n->size must be set; n must not be inserted. */
void pool_evict_insert(struct pool_evict *ev, struct pool_evict_node *n,
		       enum pool_evict_class class);
/* The object was read (a GET by a peer counts as well). */
void pool_evict_touch(struct pool_evict *ev, struct pool_evict_node *n);
/* Move to another class, keeping its standing as far as the policy can. */
void pool_evict_set_class(struct pool_evict *ev, struct pool_evict_node *n,
			  enum pool_evict_class class);
/* Take out. evicted: it goes for lack of space (remembered as a ghost);
 * otherwise it was deleted or superseded. No-op if not inserted. */
void pool_evict_remove(struct pool_evict *ev, struct pool_evict_node *n,
		       bool evicted);

/*
 * The next victim of class, or NULL when a whole pass found none that
 * may(n, arg) allows. The victim stays inserted (remove it with evicted=true),
 * but a second call does not return it again before other candidates:
 * so a caller may ask for several and wait for permission to drop them.
 * Bounded: looks at no more than `scan_max` nodes.
 */
struct pool_evict_node *
pool_evict_victim(struct pool_evict *ev, enum pool_evict_class class,
		  bool (*may)(struct pool_evict_node *n, void *arg), void *arg,
		  unsigned int scan_max);

/* Bytes inserted in class. */
uint64_t pool_evict_bytes(const struct pool_evict *ev,
			  enum pool_evict_class class);
uint64_t pool_evict_count(const struct pool_evict *ev,
			  enum pool_evict_class class);

#endif
