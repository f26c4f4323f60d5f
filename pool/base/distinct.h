/*
 * How many distinct keys were seen, without keeping them: a HyperLogLog sketch
 * (Flajolet et al. 2007, with the estimator of Ertl 2017, which needs no tables
 * of corrections), and a window of recent time made of such sketches.
 *
 * A sketch's standard error is 0.8 %: 3 % is exceeded once in thousands of
 * times. It depends on the number of distinct keys alone, not on how often each
 * is seen.
 *
 * A window is a ring of sketches, each for a part of the window's time. The
 * oldest is emptied for what comes next, so that a window covers between
 * (parts - 1) / parts of its time and the whole.
 *
 * Thread: any; the caller serialises access to one sketch or window. Nothing
 * here allocates or fails.
 */
#ifndef POOL_BASE_DISTINCT_H
#define POOL_BASE_DISTINCT_H

#include <stdint.h>

#define POOL_DISTINCT_BITS 14
#define POOL_DISTINCT_REGISTERS (1u << POOL_DISTINCT_BITS)

/* All zero: empty. */
struct pool_distinct {
	uint8_t max[POOL_DISTINCT_REGISTERS];
};

/* hash: 64 bits that are all good, such as XXH3's. Seed it if others choose the
 * keys: who knows the hash can make the count anything. */
void pool_distinct_add(struct pool_distinct *d, uint64_t hash);
/* As if d had seen what `from` saw, too. Both used the same hash. */
void pool_distinct_merge(struct pool_distinct *d,
			 const struct pool_distinct *from);
/* The estimate. 0 is exact. */
uint64_t pool_distinct_count(const struct pool_distinct *d);

#define POOL_WINDOW_PARTS 5

/* All zero but for span_ms: empty. */
struct pool_window {
	uint64_t span_ms; /* of the whole window; >= POOL_WINDOW_PARTS */
	uint64_t part;	  /* private: number of the current part since time 0 */
	struct pool_distinct keys[POOL_WINDOW_PARTS];
	uint64_t seen[POOL_WINDOW_PARTS];
};

/* A key was seen at the time of the last pool_window_turn. */
void pool_window_add(struct pool_window *w, uint64_t hash);
/* It is now_ms: forget what is older than the window. A clock that goes back
 * changes nothing. */
void pool_window_turn(struct pool_window *w, uint64_t now_ms);
/* In the window: how often any key was seen, and an estimate of how many keys,
 * which is at most that. */
void pool_window_count(const struct pool_window *w, uint64_t *ret_seen,
		       uint64_t *ret_keys);

#endif
