/*
 * The throttle of repair: a bound on the copies in flight, and a token bucket
 * that bounds the bytes a second; one copy may take its level below zero. It
 * also measures the recent speed of repair.
 *
 * Callers pass the time; no I/O. Thread: loop.
 */
#ifndef MASTER_THROTTLE_H
#define MASTER_THROTTLE_H

#include <stdbool.h>
#include <stdint.h>

struct master_throttle {
	uint64_t rate; /* bytes a second; 0: unlimited */
	unsigned int copies_max;
	unsigned int copies;  /* in flight */
	uint64_t bytes_per_s; /* recent speed */
	/* private */
	int64_t tokens; /* bytes of copies that may begin now */
	uint64_t refilled_ms, metered, meter_ms;
};

/* copies_max 0: MASTER_REPAIR_COPIES. */
void master_throttle_init(struct master_throttle *t, uint64_t rate,
			  unsigned int copies_max, uint64_t now_ms);
/* Refills the bucket and updates bytes_per_s; call it often. */
void master_throttle_tick(struct master_throttle *t, uint64_t now_ms);
/* May one more copy begin? */
bool master_throttle_open(const struct master_throttle *t);
/* A copy of this size begins. */
void master_throttle_begin(struct master_throttle *t, uint64_t bytes);
/* A copy is no longer in flight, done or failed. */
void master_throttle_end(struct master_throttle *t);
/* A copy succeeded: counts towards bytes_per_s. */
void master_throttle_done(struct master_throttle *t, uint64_t bytes);

#endif
