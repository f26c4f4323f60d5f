/*
 * An intrusive hash table that grows without pauses.
 *
 * Linear hashing: buckets live in segments; they are split one at a time as
 * elements are inserted, and merged as elements are removed. The cost of an
 * insert is bounded by one short chain and one segment allocation, however
 * large the table is. The owner embeds a struct pool_hash_node, computes a
 * 32-bit hash of its key and compares keys itself.
 *
 * The unused bits of a bucket's pointer are a filter: they record 4 bits of
 * each element's hash. 15 of 16 look-ups of a missing key end there and touch
 * no element.
 *
 * Thread: any; the caller serialises access to one table.
 */
#ifndef POOL_BASE_HASH_H
#define POOL_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

struct pool_hash_node {
	struct pool_hash_node *next; /* owned by the table */
	uint32_t hash;		     /* set by insert */
};

struct pool_hash {
	uintptr_t **segs; /* owns; nsegs segments of buckets */
	size_t nsegs;
	size_t nbuckets; /* >= 1 after the first insert */
	size_t count;
	unsigned int walking; /* private: nesting of pool_hash_each */
};

/* This process's random hash seed. Use it for keys that users or peers choose,
 * so that they cannot provoke collisions. Thread: any. */
uint64_t pool_hash_seed(void);

/* An empty table; allocates nothing, cannot fail. */
void pool_hash_init(struct pool_hash *h);
/* Frees the buckets, not the elements. The table is empty and usable after. */
void pool_hash_fini(struct pool_hash *h);

/*
 * Insert n under hash, without a check for duplicates. 0, or -ENOMEM: n was not
 * inserted. Only the first insert can fail; later, a failed allocation just
 * makes chains longer.
 */
int pool_hash_insert(struct pool_hash *h, struct pool_hash_node *n,
		     uint32_t hash);
/* Remove n, which must be in h. */
void pool_hash_remove(struct pool_hash *h, struct pool_hash_node *n);

/*
 * Prefetching for a batch of look-ups: pool_hash_prefetch loads the bucket into
 * the cache; pool_hash_peek, some 100 ns later, returns its first element for
 * the caller to prefetch, or NULL if the filter says that the key is missing.
 */
void pool_hash_prefetch(const struct pool_hash *h, uint32_t hash);
struct pool_hash_node *pool_hash_peek(const struct pool_hash *h,
				      uint32_t hash);

/* First element whose hash is `hash`, or NULL. */
struct pool_hash_node *pool_hash_first(const struct pool_hash *h,
				       uint32_t hash);
/* Next element with the same hash as n, or NULL. */
struct pool_hash_node *pool_hash_next(const struct pool_hash_node *n);

/*
 * Call fn for every element, in no particular order. fn may remove and free its
 * element, but no other, and must not insert.
 */
void pool_hash_each(struct pool_hash *h,
		    void (*fn)(struct pool_hash_node *n, void *arg), void *arg);

#endif
