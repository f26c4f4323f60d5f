/*
 * Time and randomness, the only source of both for the protocol logic, so
 * that a simulation can replace them (pool_clock_set) and be repeated by seed.
 *
 * Thread: any. Monotonic unless said otherwise.
 */
#ifndef POOL_BASE_CLOCK_H
#define POOL_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

struct pool_clock {
	uint64_t (*now_ns)(void);	     /* monotonic */
	uint64_t (*wall_ns)(void);	     /* since 1970 */
	void (*random)(void *buf, size_t n); /* never fails */
};

/* Replace the clock for the whole process (tests); NULL restores the real one.
 */
void pool_clock_set(const struct pool_clock *clock);

uint64_t pool_now_ns(void);
uint64_t pool_now_us(void);
uint64_t pool_now_ms(void);
/* Goes on while the machine is suspended: for what others count on, too. A
 * clock that was set has the same as pool_now_ms. */
uint64_t pool_boot_ms(void);
uint64_t pool_wall_ns(void);
void pool_random(void *buf, size_t n);
uint64_t pool_random_u64(void);

#endif
