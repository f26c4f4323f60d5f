#include "pool/base/distinct.h"

#include <string.h>

/* Registers hold 0 (nothing seen) to RANK_MAX: the position of the first 1 in
 * the bits of a hash that do not select the register. */
#define RANK_MAX (64 - POOL_DISTINCT_BITS + 1)

/* ---- sketch ---- */

void pool_distinct_add(struct pool_distinct *d, uint64_t hash)
{
	uint64_t rest = hash << POOL_DISTINCT_BITS;
	uint8_t *max = &d->max[hash >> (64 - POOL_DISTINCT_BITS)];
	uint8_t rank = rest ? (uint8_t)(__builtin_clzll(rest) + 1) : RANK_MAX;

	if (rank > *max)
		*max = rank;
}

void pool_distinct_merge(struct pool_distinct *d,
			 const struct pool_distinct *from)
{
	for (unsigned int i = 0; i < POOL_DISTINCT_REGISTERS; i++)
		if (from->max[i] > d->max[i])
			d->max[i] = from->max[i];
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

uint64_t pool_distinct_count(const struct pool_distinct *d)
{
	const double m = POOL_DISTINCT_REGISTERS;
	const double alpha = 0.7213475204444817; /* 1 / (2 ln 2) */
	uint32_t with[RANK_MAX + 1] = { 0 };
	double z;

	for (unsigned int i = 0; i < POOL_DISTINCT_REGISTERS; i++)
		with[d->max[i]]++;
	if (with[0] == POOL_DISTINCT_REGISTERS)
		return 0;
	/* Ertl's tau() of the last is left out: below 2^50 keys it is 0. */
	z = with[RANK_MAX];
	for (unsigned int k = RANK_MAX - 1; k >= 1; k--)
		z = (z + with[k]) / 2;
	z += m * sigma(with[0] / m);
	return (uint64_t)(alpha * m * m / z + 0.5);
}

/* ---- window ---- */

void pool_window_add(struct pool_window *w, uint64_t hash)
{
	unsigned int i = (unsigned int)(w->part % POOL_WINDOW_PARTS);

	pool_distinct_add(&w->keys[i], hash);
	w->seen[i]++;
}

void pool_window_turn(struct pool_window *w, uint64_t now_ms)
{
	uint64_t part = now_ms / (w->span_ms / POOL_WINDOW_PARTS);
	uint64_t steps = part > w->part ? part - w->part : 0;
	unsigned int i;

	if (steps > POOL_WINDOW_PARTS)
		steps = POOL_WINDOW_PARTS;
	for (; steps > 0; steps--) {
		i = (unsigned int)((part - steps + 1) % POOL_WINDOW_PARTS);
		memset(&w->keys[i], 0, sizeof(w->keys[i]));
		w->seen[i] = 0;
	}
	if (part > w->part)
		w->part = part;
}

void pool_window_count(const struct pool_window *w, uint64_t *ret_seen,
		       uint64_t *ret_keys)
{
	struct pool_distinct all = w->keys[0];
	uint64_t seen = w->seen[0], keys;

	for (unsigned int i = 1; i < POOL_WINDOW_PARTS; i++) {
		pool_distinct_merge(&all, &w->keys[i]);
		seen += w->seen[i];
	}
	keys = pool_distinct_count(&all);
	*ret_seen = seen;
	*ret_keys = keys < seen ? keys : seen;
}
