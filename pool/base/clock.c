#include "pool/base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <sys/types.h>
#include <time.h>

static uint64_t real_ns(clockid_t id)
{
	struct timespec ts;
	int err = clock_gettime(id, &ts);

	assert(err == 0);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t real_now_ns(void)
{
	return real_ns(CLOCK_MONOTONIC);
}

static uint64_t real_wall_ns(void)
{
	return real_ns(CLOCK_REALTIME);
}

static void real_random(void *buf, size_t n)
{
	uint8_t *p = buf;

	while (n > 0) {
		ssize_t got = getrandom(p, n, 0);

		if (got < 0) {
			/* Never fall back to a weaker source. */
			assert(errno == EINTR);
			continue;
		}
		p += got;
		n -= (size_t)got;
	}
}

static const struct pool_clock real_clock = {
	.now_ns = real_now_ns,
	.wall_ns = real_wall_ns,
	.random = real_random,
};

static const struct pool_clock *_Atomic current = &real_clock;

static const struct pool_clock *get(void)
{
	return atomic_load_explicit(&current, memory_order_acquire);
}

void pool_clock_set(const struct pool_clock *clock)
{
	atomic_store_explicit(&current, clock ? clock : &real_clock,
			      memory_order_release);
}

uint64_t pool_now_ns(void)
{
	return get()->now_ns();
}

uint64_t pool_now_us(void)
{
	return pool_now_ns() / 1000;
}

uint64_t pool_now_ms(void)
{
	return pool_now_ns() / 1000000;
}

uint64_t pool_boot_ms(void)
{
	const struct pool_clock *c = get();
	uint64_t ns = c == &real_clock ? real_ns(CLOCK_BOOTTIME) : c->now_ns();

	return ns / 1000000u;
}

uint64_t pool_wall_ns(void)
{
	return get()->wall_ns();
}

void pool_random(void *buf, size_t n)
{
	get()->random(buf, n);
}

uint64_t pool_random_u64(void)
{
	uint64_t v;

	pool_random(&v, sizeof(v));
	return v;
}
