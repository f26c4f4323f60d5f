/*
 * How much repair may do at a time: copies under way, and bytes a second, which
 * are a bucket of tokens that may go below zero by one copy. And how fast it
 * has been of late.
 *
 * Times are passed in; no I/O. Thread: loop.
 */
#ifndef MASTER_THROTTLE_H
#define MASTER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct master_throttle {
	uint64_t rate; /* bytes a second; 0: any */
	unsigned int copies_max;
	unsigned int copies;  /* under way */
	uint64_t bytes_per_s; /* done of late */
	/* private */
	int64_t tokens; /* bytes that may be begun now */
	uint64_t refilled_ms, metered, meter_ms;
};

/* copies_max 0: MASTER_REPAIR_COPIES. */
void master_throttle_init(struct master_throttle *t, uint64_t rate,
			  unsigned int copies_max, uint64_t now_ms);
/* Often: refills the bucket. */
void master_throttle_tick(struct master_throttle *t, uint64_t now_ms);
/* May one more copy begin? */
bool master_throttle_open(const struct master_throttle *t);
/* A copy begins, of this size; ends, however; came to its end well. */
void master_throttle_begin(struct master_throttle *t, uint64_t bytes);
void master_throttle_end(struct master_throttle *t);
void master_throttle_done(struct master_throttle *t, uint64_t bytes);

#endif
