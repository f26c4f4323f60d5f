#include "pool/base/distinct.h"

#include <string.h>

/* Registers hold 0 (nothing seen) to RANK_MAX: the position of the first 1 in
 * the bits of a hash that do not select the register. */
#define RANK_MAX(bits) (64 - (bits) + 1)
#define FOLDS (POOL_DISTINCT_BITS - POOL_FOLDED_BITS)

/* ---- sketch ---- */

/* Of 2^bits registers. */
static void add(uint8_t *registers, unsigned int bits, uint64_t hash)
{
	uint64_t rest = hash << bits;
	uint8_t *max = &registers[hash >> (64 - bits)];
	unsigned int rank = rest ? (unsigned int)__builtin_clzll(rest) + 1 :
				   RANK_MAX(bits);

	if (rank > *max)
		*max = (uint8_t)rank;
}

void pool_distinct_add(struct pool_distinct *d, uint64_t hash)
{
	add(d->max, POOL_DISTINCT_BITS, hash);
}

/* Vectorised, which takes `restrict`: 1,000 nodes are merged in a
 * millisecond. */
static void merge(uint8_t *restrict to, const uint8_t *restrict from,
		  unsigned int n)
{
	for (unsigned int i = 0; i < n; i++)
		to[i] = from[i] > to[i] ? from[i] : to[i];
}

void pool_distinct_merge(struct pool_distinct *d,
			 const struct pool_distinct *from)
{
	merge(d->max, from->max, POOL_DISTINCT_REGISTERS);
}

/* x + sum of x^(2^k) * 2^(k-1) for k >= 1; 0 <= x < 1. What registers that are
 * still empty contribute. */
static double sigma(double x)
{
	double y = 1, z = x, last;

	do {
		x *= x;
		last = z;
		z += x * y;
		y += y;
	} while (z > last);
	return z;
}

/* Of 2^bits registers. */
static uint64_t estimate(const uint8_t *registers, unsigned int bits)
{
	const unsigned int n = 1u << bits, rank_max = RANK_MAX(bits);
	const double m = n;
	const double alpha = 0.7213475204444817; /* 1 / (2 ln 2) */
	uint32_t with[RANK_MAX(POOL_SMALL_BITS) + 1] = { 0 };
	double z;

	for (unsigned int i = 0; i < n; i++)
		with[registers[i]]++;
	if (with[0] == n)
		return 0;
	/* Ertl's tau() of the last is left out: below 2^50 keys it is 0. */
	z = with[rank_max];
	for (unsigned int k = rank_max - 1; k >= 1; k--)
		z = (z + with[k]) / 2;
	z += m * sigma(with[0] / m);
	return (uint64_t)(alpha * m * m / z + 0.5);
}

uint64_t pool_distinct_count(const struct pool_distinct *d)
{
	return estimate(d->max, POOL_DISTINCT_BITS);
}

/* ---- folded ---- */

/* The last bits that select a register become the first of those that its rank
 * is of. */
static void fold(const struct pool_distinct *d,
		 uint8_t ret_folded[POOL_FOLDED_SIZE])
{
	memset(ret_folded, 0, POOL_FOLDED_SIZE);
	for (unsigned int i = 0; i < POOL_DISTINCT_REGISTERS; i++) {
		unsigned int low = i & ((1u << FOLDS) - 1);
		unsigned int rank = low ? (unsigned int)__builtin_clz(low) -
						  (32 - FOLDS) + 1 :
					  d->max[i] + (unsigned int)FOLDS;
		uint8_t *max = &ret_folded[i >> FOLDS];

		if (d->max[i] && rank > *max)
			*max = (uint8_t)rank;
	}
}

static bool check(const uint8_t *registers, size_t len, unsigned int bits)
{
	for (size_t i = 0; i < len; i++)
		if (registers[i] > RANK_MAX(bits))
			return false;
	return len == (size_t)1 << bits;
}

bool pool_folded_check(const uint8_t *folded, size_t len)
{
	return check(folded, len, POOL_FOLDED_BITS);
}

void pool_folded_merge(uint8_t folded[POOL_FOLDED_SIZE],
		       const uint8_t from[POOL_FOLDED_SIZE])
{
	merge(folded, from, POOL_FOLDED_SIZE);
}

uint64_t pool_folded_count(const uint8_t folded[POOL_FOLDED_SIZE])
{
	return estimate(folded, POOL_FOLDED_BITS);
}

/* ---- small ---- */

void pool_small_add(uint8_t small[POOL_SMALL_SIZE], uint64_t hash)
{
	add(small, POOL_SMALL_BITS, hash);
}

bool pool_small_check(const uint8_t *small, size_t len)
{
	return check(small, len, POOL_SMALL_BITS);
}

void pool_small_merge(uint8_t small[POOL_SMALL_SIZE],
		      const uint8_t from[POOL_SMALL_SIZE])
{
	merge(small, from, POOL_SMALL_SIZE);
}

uint64_t pool_small_count(const uint8_t small[POOL_SMALL_SIZE])
{
	return estimate(small, POOL_SMALL_BITS);
}

/* ---- window ---- */

void pool_window_add(struct pool_window *w, uint64_t hash, bool hit)
{
	unsigned int i = (unsigned int)(w->part % POOL_WINDOW_PARTS);

	pool_distinct_add(&w->keys[i], hash);
	w->seen[i]++;
	w->hits[i] += hit;
}

bool pool_window_turn(struct pool_window *w, uint64_t now_ms)
{
	uint64_t part = now_ms / (w->span_ms / POOL_WINDOW_PARTS);
	uint64_t steps = part > w->part ? part - w->part : 0;
	unsigned int i;

	if (!steps)
		return false;
	if (steps > POOL_WINDOW_PARTS)
		steps = POOL_WINDOW_PARTS;
	for (; steps > 0; steps--) {
		i = (unsigned int)((part - steps + 1) % POOL_WINDOW_PARTS);
		memset(&w->keys[i], 0, sizeof(w->keys[i]));
		w->seen[i] = w->hits[i] = 0;
	}
	w->part = part;
	return true;
}

static void merge_parts(const struct pool_window *w, struct pool_distinct *ret)
{
	*ret = w->keys[0];
	for (unsigned int i = 1; i < POOL_WINDOW_PARTS; i++)
		pool_distinct_merge(ret, &w->keys[i]);
}

void pool_window_count(const struct pool_window *w, struct pool_seen *ret)
{
	struct pool_distinct all;
	uint64_t keys;

	memset(ret, 0, sizeof(*ret));
	for (unsigned int i = 0; i < POOL_WINDOW_PARTS; i++) {
		ret->seen += w->seen[i];
		ret->hits += w->hits[i];
	}
	merge_parts(w, &all);
	keys = pool_distinct_count(&all);
	ret->keys = keys < ret->seen ? keys : ret->seen;
}

void pool_window_fold(const struct pool_window *w,
		      uint8_t ret_folded[POOL_FOLDED_SIZE])
{
	struct pool_distinct all;

	merge_parts(w, &all);
	fold(&all, ret_folded);
}

uint64_t pool_seen_best(const struct pool_seen *s)
{
	uint64_t again = s->seen - s->keys;

	return again > s->hits ? again : s->hits;
}
