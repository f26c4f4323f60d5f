/*
 * How many distinct keys were seen, without keeping them: a HyperLogLog sketch
 * (Flajolet et al. 2007, with the estimator of Ertl 2017, which needs no tables
 * of corrections), and a window of recent time made of such sketches.
 *
 * A sketch's standard error is 0.8 %: one count in thousands is off by more
 * than 3 %. It depends on the number of distinct keys alone, not on how often
 * each is seen.
 *
 * A folded sketch is a sketch of fewer registers, a byte each, for the network:
 * its standard error is 1.6 %. A small sketch has 512, where there are many
 * sketches: its standard error is 4.6 %.
 *
 * A window is a ring of sketches, each for a part of the window's time. The
 * oldest is emptied and becomes the newest, so a window covers its time, less
 * one part at most.
 *
 * Thread: any; the caller serialises access to one sketch or window. Nothing
 * here allocates or fails.
 */
#ifndef POOL_BASE_DISTINCT_H
#define POOL_BASE_DISTINCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define POOL_DISTINCT_BITS 14
#define POOL_DISTINCT_REGISTERS (1u << POOL_DISTINCT_BITS)

/* All zero: empty. */
struct pool_distinct {
	uint8_t max[POOL_DISTINCT_REGISTERS];
};

/* hash: 64 well-mixed bits, such as XXH3's. Seed it if others choose the keys:
 * without a seed they can choose the count, too. */
void pool_distinct_add(struct pool_distinct *d, uint64_t hash);
/* As if d had seen what `from` saw, too. Both used the same hash. */
void pool_distinct_merge(struct pool_distinct *d,
			 const struct pool_distinct *from);
/* The estimate. 0 is exact. */
uint64_t pool_distinct_count(const struct pool_distinct *d);

#define POOL_FOLDED_BITS 12
#define POOL_FOLDED_SIZE (1u << POOL_FOLDED_BITS)

/* May these bytes be a folded sketch? Others must not be counted. */
bool pool_folded_check(const uint8_t *folded, size_t len);
void pool_folded_merge(uint8_t folded[POOL_FOLDED_SIZE],
		       const uint8_t from[POOL_FOLDED_SIZE]);
uint64_t pool_folded_count(const uint8_t folded[POOL_FOLDED_SIZE]);

#define POOL_SMALL_BITS 9
#define POOL_SMALL_SIZE (1u << POOL_SMALL_BITS)

/* As those of the other sketches; all zero: empty. */
void pool_small_add(uint8_t small[POOL_SMALL_SIZE], uint64_t hash);
bool pool_small_check(const uint8_t *small, size_t len);
void pool_small_merge(uint8_t small[POOL_SMALL_SIZE],
		      const uint8_t from[POOL_SMALL_SIZE]);
uint64_t pool_small_count(const uint8_t small[POOL_SMALL_SIZE]);

#define POOL_WINDOW_PARTS 5

/* All zero but for span_ms: empty. */
struct pool_window {
	uint64_t span_ms; /* of the whole window; >= POOL_WINDOW_PARTS */
	uint64_t part;	  /* private: number of the current part since time 0 */
	struct pool_distinct keys[POOL_WINDOW_PARTS];
	uint64_t seen[POOL_WINDOW_PARTS], hits[POOL_WINDOW_PARTS];
};

struct pool_seen {
	uint64_t seen; /* how often any key was seen */
	uint64_t hits; /* of these */
	uint64_t keys; /* an estimate of how many keys, at most `seen` */
};

/* A key was seen, as a hit or not, at the time of the last pool_window_turn. */
void pool_window_add(struct pool_window *w, uint64_t hash, bool hit);
/* It is now_ms: forget what is older than the window; returns whether a new
 * part has begun. A clock that goes back changes nothing. */
bool pool_window_turn(struct pool_window *w, uint64_t now_ms);
void pool_window_count(const struct pool_window *w, struct pool_seen *ret);
/* The keys of the whole window. */
void pool_window_fold(const struct pool_window *w,
		      uint8_t ret_folded[POOL_FOLDED_SIZE]);
/* How many look-ups would have hit, had nothing been evicted: at least those of
 * keys seen before in the window. */
uint64_t pool_seen_best(const struct pool_seen *s);

#endif
