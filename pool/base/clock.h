/*
 * Time and randomness. Protocol logic uses no other source of either, so that a
 * simulation can replace them (pool_clock_set) and be repeated from its seed.
 *
 * Thread: any. Times are monotonic except pool_wall_ns.
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

/* Replace the clock of the whole process (tests). NULL restores the real one.
 */
void pool_clock_set(const struct pool_clock *clock);

uint64_t pool_now_ns(void);
uint64_t pool_now_us(void);
uint64_t pool_now_ms(void);
/* CLOCK_BOOTTIME: advances while the machine is suspended, for deadlines that
 * other machines rely on. With pool_clock_set, the same as pool_now_ms. */
uint64_t pool_boot_ms(void);
uint64_t pool_wall_ns(void);
void pool_random(void *buf, size_t n);
uint64_t pool_random_u64(void);

#endif
