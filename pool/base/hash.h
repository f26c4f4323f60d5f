/*
 * An intrusive hash table that grows without a pause.
 *
 * Linear hashing: buckets live in segments and are split one at a time as
 * elements are inserted (and merged as they are removed), so that no insert
 * costs more than one short chain and one segment allocation, at five million
 * elements as at five. The owner embeds a struct pool_hash_node, computes a
 * 32-bit hash of its key and compares keys itself.
 *
 * A bucket remembers 4 bits of each of its elements' hashes, in the bits that a
 * pointer has no use for: of what is not there, 15 of 16 look-ups end at the
 * bucket and touch no element.
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
	unsigned int walking; /* private: pool_hash_each calls under way */
};

/* An empty table; allocates nothing, cannot fail. */
void pool_hash_init(struct pool_hash *h);
/* Frees the buckets; the elements are the caller's. The table is empty after.
 */
void pool_hash_fini(struct pool_hash *h);

/*
 * Insert n under hash. Duplicates are not looked for.
 * Returns 0, or -ENOMEM (only while the table has no bucket at all: a failed
 * growth merely leaves chains longer), then n is not in the table.
 */
int pool_hash_insert(struct pool_hash *h, struct pool_hash_node *n,
		     uint32_t hash);
/* Remove n, which must be in h. */
void pool_hash_remove(struct pool_hash *h, struct pool_hash_node *n);

/*
 * Of what is to be looked up in a moment: have its bucket brought to the
 * processor, and some 100 ns later the first element there, if it may be there
 * at all.
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
 * Call fn for every element, in no order; fn may remove (and free) the element
 * it is given and no other, and may insert none.
 */
void pool_hash_each(struct pool_hash *h,
		    void (*fn)(struct pool_hash_node *n, void *arg), void *arg);

#endif
