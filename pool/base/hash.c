/*
 * Linear hashing. With n buckets and 2^k the largest power of two <= n, a hash
 * lives in bucket (hash mod 2^(k+1)) if there is one, else in (hash mod 2^k).
 * Growing by one bucket therefore splits exactly one chain, shrinking joins
 * two.
 *
 * Buckets lie in segments of 4 KiB; the directory of segments doubles, which at
 * five million elements copies 64 KiB: some microseconds.
 *
 * A bucket is a 48-bit pointer to its first element, and above it a 16-bit
 * filter: bit i is set if the upper 4 bits of an element's hash are i. (The
 * lower bits choose the bucket.)
 */
#include "pool/base/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/random.h>

#define SEG_BUCKETS ((size_t)512)
#define POINTER_BITS 48
#define POINTER_MASK (((uintptr_t)1 << POINTER_BITS) - 1)
#define BUCKETS_MAX ((size_t)1 << 31) /* a hash has 32 bits */

uint64_t pool_hash_seed(void)
{
	static _Atomic uint64_t seed;
	uint64_t now = atomic_load(&seed), drawn = 0;

	if (now)
		return now;
	/* Not pool_random, whose numbers a simulation makes predictable. While
	 * the machine boots, getrandom may fail: the seed is then 1. */
	(void)!getrandom(&drawn, sizeof(drawn), GRND_NONBLOCK);
	drawn |= 1;
	return atomic_compare_exchange_strong(&seed, &now, drawn) ? drawn :
								    now;
}

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

static uintptr_t *slot(const struct pool_hash *h, size_t bucket)
{
	return &h->segs[bucket / SEG_BUCKETS][bucket % SEG_BUCKETS];
}

static struct pool_hash_node *first_of(const uintptr_t *s)
{
	return (struct pool_hash_node *)(*s & POINTER_MASK);
}

static uintptr_t filter_bit(uint32_t hash)
{
	return (uintptr_t)1 << (POINTER_BITS + (hash >> 28));
}

/* Set a bucket to the chain that begins with n, and its filter to bits. */
static void set_chain(uintptr_t *s, struct pool_hash_node *n, uintptr_t bits)
{
	assert(((uintptr_t)n & ~POINTER_MASK) == 0);
	*s = (uintptr_t)n | bits;
}

/* The same, with the filter computed from the elements. */
static void set_any_chain(uintptr_t *s, struct pool_hash_node *first)
{
	uintptr_t bits = 0;

	for (struct pool_hash_node *n = first; n; n = n->next)
		bits |= filter_bit(n->hash);
	set_chain(s, first, bits);
}

static uintptr_t *slot_of(const struct pool_hash *h, uint32_t hash)
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
	const uintptr_t *s;

	if (h->nbuckets == 0)
		return NULL;
	s = slot_of(h, hash);
	return *s & filter_bit(hash) ? first_of(s) : NULL;
}

static int add_segment(struct pool_hash *h)
{
	size_t n = h->nsegs;
	uintptr_t *seg;

	/* The directory has room up to the next power of two. */
	if (n == 0 || (n & (n - 1)) == 0) {
		void *p = realloc(h->segs, (n ? 2 * n : 1) * sizeof(*h->segs));

		if (!p)
			return -ENOMEM;
		h->segs = p;
	}
	seg = calloc(SEG_BUCKETS, sizeof(*seg));
	if (!seg)
		return -ENOMEM;
	h->segs[h->nsegs++] = seg;
	return 0;
}

/* Add one bucket: split bucket b - low. */
static void grow(struct pool_hash *h)
{
	size_t b = h->nbuckets, low = floor_pow2(b);
	struct pool_hash_node *n, *next, *stay = NULL, *go = NULL;
	uintptr_t *from;

	if (b >= BUCKETS_MAX)
		return;
	if (b == h->nsegs * SEG_BUCKETS && add_segment(h))
		return; /* longer chains; the next insert retries */
	h->nbuckets++;
	from = slot(h, b - low);
	for (n = first_of(from); n; n = next) {
		struct pool_hash_node **to =
			(n->hash & (2 * low - 1)) == b ? &go : &stay;

		next = n->next;
		n->next = *to;
		*to = n;
	}
	set_any_chain(from, stay);
	set_any_chain(slot(h, b), go);
}

/* Merge the last bucket into the one it was split from. */
static void shrink(struct pool_hash *h)
{
	size_t b = h->nbuckets - 1;
	uintptr_t *from = slot(h, b), *to = slot(h, b - floor_pow2(b));
	struct pool_hash_node *last = first_of(to);

	while (last && last->next)
		last = last->next;
	if (last)
		last->next = first_of(from);
	set_chain(to, last ? first_of(to) : first_of(from),
		  (*to | *from) & ~POINTER_MASK);
	*from = 0;
	h->nbuckets = b;
	/* Keep one empty segment, so that a table whose size alternates here
	 * does not allocate and free each time. */
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
	uintptr_t *s;

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
	n->next = first_of(s);
	set_chain(s, n, (*s & ~POINTER_MASK) | filter_bit(hash));
	h->count++;
	return 0;
}

void pool_hash_remove(struct pool_hash *h, struct pool_hash_node *n)
{
	uintptr_t *s = slot_of(h, n->hash);
	struct pool_hash_node *first = first_of(s), **at = &first;

	assert(h->count > 0);
	for (; *at != n; at = &(*at)->next)
		assert(*at);
	*at = n->next;
	n->next = NULL;
	set_any_chain(s, first);
	h->count--;
	/* Keeps count >= nbuckets / 2, for which the removal of one element may
	 * require two merges. */
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
	return same_hash(pool_hash_peek(h, hash), hash);
}

struct pool_hash_node *pool_hash_next(const struct pool_hash_node *n)
{
	return same_hash(n->next, n->hash);
}

void pool_hash_each(struct pool_hash *h,
		    void (*fn)(struct pool_hash_node *n, void *arg), void *arg)
{
	/* No merges meanwhile: they would move elements past the walk. */
	h->walking++;
	for (size_t b = 0; b < h->nbuckets; b++) {
		struct pool_hash_node *n, *next;

		for (n = first_of(slot(h, b)); n; n = next) {
			next = n->next;
			fn(n, arg);
		}
	}
	h->walking--;
	while (!h->walking && too_large(h))
		shrink(h);
}
