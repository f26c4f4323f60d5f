/*
 * Which object to evict next: policy only, no I/O, no knowledge of what an
 * object is. There are two LRU queues, one of objects used once and one of
 * objects used again; the age of their heads decides which head is evicted.
 * evict.c compares this policy with others.
 *
 * Thread: any; the caller serialises access (here: loop).
 *
 * The owner embeds struct pool_evict_node in its object. Each class has queues
 * of its own, and the caller chooses the class of the next victim: cached
 * copies before counted ones. KEPT and UNSTORED are classes of their own so
 * that scans of the first two do not meet their objects. Objects that cannot be
 * evicted now (open, mapped, pinned) stay inserted; the `may` callback refuses
 * them when the scan reaches them.
 *
 * Every operation is O(1) (victim: O(scan_max)) and none but open allocates.
 * Evicted keys are remembered ("ghosts") until as many bytes as the capacity
 * have been inserted since, in a table of fixed size (8 bytes a slot, at most 8
 * MiB): an object that comes back meanwhile counts as used again.
 */
#ifndef POOL_MODEL_EVICT_H
#define POOL_MODEL_EVICT_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/list.h"

enum pool_evict_class {
	POOL_EVICT_CACHE,    /* the master does not count it as a replica */
	POOL_EVICT_COUNTED,  /* it does: may be the pool's only copy */
	POOL_EVICT_KEPT,     /* the same, but rules forbid its eviction */
	POOL_EVICT_UNSTORED, /* a client's object that no store has yet */
	POOL_EVICT_NCLASSES,
};

struct pool_evict_node {
	struct pool_list link; /* self-linked while not inserted */
	uint64_t key;	       /* hash of the object's name, for the ghosts */
	uint64_t size;	       /* bytes; constant while inserted */
	uint32_t stamp;	       /* private: when it joined its list */
	uint8_t class;	       /* enum pool_evict_class; read only */
	uint8_t queue;	       /* private: used once, used again */
	uint8_t aside;	       /* private: recently returned or refused */
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
/* The object was read (a GET by a peer counts as well). No-op if not inserted.
 */
void pool_evict_touch(struct pool_evict *ev, struct pool_evict_node *n);
/* Move to another class: it keeps its queue and counts as just used. No-op if
 * not inserted or in that class already. */
void pool_evict_set_class(struct pool_evict *ev, struct pool_evict_node *n,
			  enum pool_evict_class class);
/* Remove. evicted: for lack of space (remembered as a ghost); otherwise the
 * object was deleted or superseded. No-op if not inserted. */
void pool_evict_remove(struct pool_evict *ev, struct pool_evict_node *n,
		       bool evicted);

/*
 * The next victim of class, or NULL if may(n, arg) allows none in a whole pass,
 * or among scan_max nodes. may NULL: all are allowed. may must not call this
 * module. The victim stays inserted (remove it with evicted=true). Both the
 * victim and the nodes that `may` refused go to the end of the line: later
 * calls try them after all others of the class, or again once 1/64 of the
 * capacity was inserted. A caller can therefore take several victims before it
 * has permission to drop the first, and a call after one that gave up at
 * scan_max continues that scan.
 */
struct pool_evict_node *
pool_evict_victim(struct pool_evict *ev, enum pool_evict_class class,
		  bool (*may)(struct pool_evict_node *n, void *arg), void *arg,
		  unsigned int scan_max);

/* Does `may` allow any node of class? Looks at scan_max nodes at most, and
 * changes nothing. */
bool pool_evict_any(const struct pool_evict *ev, enum pool_evict_class class,
		    bool (*may)(struct pool_evict_node *n, void *arg),
		    void *arg, unsigned int scan_max);

/* Bytes inserted in class. */
uint64_t pool_evict_bytes(const struct pool_evict *ev,
			  enum pool_evict_class class);
uint64_t pool_evict_count(const struct pool_evict *ev,
			  enum pool_evict_class class);

#endif
