/*
 * Linear hashing. With n buckets and 2^k the largest power of two <= n, a hash
 * lives in bucket (hash mod 2^(k+1)) if there is one, else in (hash mod 2^k).
 * Growing by one bucket therefore splits exactly one chain, shrinking joins
 * two.
 *
 * Buckets lie in segments of 4 KiB; the directory of segments doubles, which
 * at five million elements copies 64 KiB: some microseconds.
 */
#include "pool/base/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

#define SEG_BUCKETS ((size_t)512)
#define BUCKETS_MAX ((size_t)1 << 31) /* what a 32-bit hash can tell apart */

void pool_hash_init(struct pool_hash *h)
{
	*h = (struct pool_hash){ 0 };
}

void pool_hash_fini(struct pool_hash *h)
{
	for (size_t i = 0; i < h->nsegs; i++)
		free(h->segs[i]);
	free(h->segs);
	pool_hash_init(h);
}

static size_t floor_pow2(size_t n)
{
	return (size_t)1 << (63 - __builtin_clzll(n));
}

static struct pool_hash_node **slot(const struct pool_hash *h, size_t bucket)
{
	return &h->segs[bucket / SEG_BUCKETS][bucket % SEG_BUCKETS];
}

static struct pool_hash_node **slot_of(const struct pool_hash *h,
				       uint32_t hash)
{
	size_t low = floor_pow2(h->nbuckets);
	size_t b = hash & (2 * low - 1);

	if (b >= h->nbuckets)
		b &= low - 1;
	return slot(h, b);
}

void pool_hash_prefetch(const struct pool_hash *h, uint32_t hash)
{
	if (h->nbuckets > 0)
		__builtin_prefetch(slot_of(h, hash));
}

struct pool_hash_node *pool_hash_peek(const struct pool_hash *h, uint32_t hash)
{
	return h->nbuckets > 0 ? *slot_of(h, hash) : NULL;
}

static int add_segment(struct pool_hash *h)
{
	struct pool_hash_node **seg;
	size_t n = h->nsegs;

	/* The directory has room up to the next power of two. */
	if (n == 0 || (n & (n - 1)) == 0) {
		void *p = realloc(h->segs, (n ? 2 * n : 1) * sizeof(*h->segs));

		if (!p)
			return -ENOMEM;
		h->segs = p;
	}
	seg = calloc(SEG_BUCKETS, sizeof(struct pool_hash_node *));
	if (!seg)
		return -ENOMEM;
	h->segs[h->nsegs++] = seg;
	return 0;
}

/* Add one bucket, filled from the one whose upper half it is. */
static void grow(struct pool_hash *h)
{
	size_t b = h->nbuckets, low = floor_pow2(b);
	struct pool_hash_node **from, **to, *n;

	if (b >= BUCKETS_MAX)
		return;
	if (b == h->nsegs * SEG_BUCKETS && add_segment(h))
		return; /* longer chains; the next insert tries again */
	h->nbuckets++;
	from = slot(h, b - low);
	to = slot(h, b);
	while ((n = *from)) {
		if ((n->hash & (2 * low - 1)) != b) {
			from = &n->next;
			continue;
		}
		*from = n->next;
		n->next = *to;
		*to = n;
	}
}

/* Give up the last bucket; the first segment stays. */
static void shrink(struct pool_hash *h)
{
	size_t b = h->nbuckets - 1;
	struct pool_hash_node **from = slot(h, b);
	struct pool_hash_node **to = slot(h, b - floor_pow2(b));

	while (*to)
		to = &(*to)->next;
	*to = *from;
	*from = NULL;
	h->nbuckets = b;
	/* One empty segment is kept: a table that hovers here must not
	 * allocate and free at each turn. */
	if (b + SEG_BUCKETS == (h->nsegs - 1) * SEG_BUCKETS)
		free(h->segs[--h->nsegs]);
}

static bool too_large(const struct pool_hash *h)
{
	return h->nbuckets > SEG_BUCKETS && h->count < h->nbuckets / 2;
}

int pool_hash_insert(struct pool_hash *h, struct pool_hash_node *n,
		     uint32_t hash)
{
	struct pool_hash_node **s;

	assert(!h->walking);
	if (h->nbuckets == 0) {
		int err = add_segment(h);

		if (err)
			return err;
		h->nbuckets = SEG_BUCKETS;
	}
	if (h->count >= h->nbuckets)
		grow(h);
	s = slot_of(h, hash);
	n->hash = hash;
	n->next = *s;
	*s = n;
	h->count++;
	return 0;
}

void pool_hash_remove(struct pool_hash *h, struct pool_hash_node *n)
{
	struct pool_hash_node **s;

	assert(h->count > 0);
	for (s = slot_of(h, n->hash); *s != n; s = &(*s)->next)
		assert(*s);
	*s = n->next;
	n->next = NULL;
	h->count--;
	/* One element less is room for two buckets less. */
	for (int i = 0; i < 2 && !h->walking && too_large(h); i++)
		shrink(h);
}

static struct pool_hash_node *same_hash(struct pool_hash_node *n,
					uint32_t hash)
{
	while (n && n->hash != hash)
		n = n->next;
	return n;
}

struct pool_hash_node *pool_hash_first(const struct pool_hash *h,
				       uint32_t hash)
{
	if (h->nbuckets == 0)
		return NULL;
	return same_hash(*slot_of(h, hash), hash);
}

struct pool_hash_node *pool_hash_next(const struct pool_hash_node *n)
{
	return same_hash(n->next, n->hash);
}

void pool_hash_each(struct pool_hash *h,
		    void (*fn)(struct pool_hash_node *n, void *arg), void *arg)
{
	/* A merge would move elements across the walk's position. */
	h->walking++;
	for (size_t b = 0; b < h->nbuckets; b++) {
		struct pool_hash_node *n, *next;

		for (n = *slot(h, b); n; n = next) {
			next = n->next;
			fn(n, arg);
		}
	}
	h->walking--;
	while (!h->walking && too_large(h))
		shrink(h);
}
