/*
 * Busy-polling of an event loop: for a while after something has come, the loop
 * looks for the next thing instead of sleeping, as what an engine does comes in
 * rows (open, read, close, open, ...) and waking a thread that sleeps takes
 * longer than most of what it is woken for.
 *
 * How long follows what happens, as in the kernel's halt polling (kvm:
 * Documentation/virt/kvm/halt-polling.rst): twice as long when the next thing
 * came soon after sleeping, half as long when it did not, between
 * POOL_BUSY_LEAST_US and the limit. And no longer than that least while
 * somebody else wants this CPU (the thread was preempted, POOL_BUSY_CALM_US
 * ago or less): looking must not take away what engines compute with.
 *
 * It may even be who is to ask that waits for this CPU, also where others are
 * idle. Then looking finds nothing, ever, and what comes comes that much later.
 * So after a look in vain the next one is spared, as a trial; if what is next
 * comes sooner than the least look takes, the loop sleeps at once for
 * POOL_BUSY_SPARE_US, and twice as long each time until a look finds something.
 *
 *   pool_busy_open -> pool_busy_touch (from callbacks, at each thing that
 *   came) -> pool_busy_close
 *
 * What comes most often is looked for directly, which is quicker than to be
 * told of it by the loop: pool_busy_look_for.
 *
 * Thread: the loop's. It does not keep the loop alive.
 */
#ifndef POOL_BASE_BUSY_H
#define POOL_BASE_BUSY_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"

#define POOL_BUSY_LEAST_US 25u
#define POOL_BUSY_CALM_US 20000u
#define POOL_BUSY_SPARE_US 500u

struct pool_busy {
	uv_idle_t looking; /* active: the loop does not sleep */
	unsigned int max_us, window_us;
	uint64_t touched_us, until_us;
	long preemptions; /* of the thread, when last asked */
	uint64_t preempted_us;
	bool looked; /* since the last thing came */
	bool trial;  /* not, after a look in vain */
	uint64_t spare_us, spared_until_us;
	struct pool_counter found, slept, spared;
	void (*look)(void *arg); /* or NULL */
	void *arg;
};

/*
 * max_us: 0: never; as well where there is but one CPU, which whoever would ask
 * needs. metrics: where found and slept are shown; NULL: nowhere. The loop's
 * data is b from here on, until pool_busy_close. 0 or -ENOMEM (not without
 * metrics).
 */
int pool_busy_open(struct pool_busy *b, uv_loop_t *loop, unsigned int max_us,
		   struct pool_metrics *metrics);
/* cb(the handle, b->looking) from a later turn. */
void pool_busy_close(struct pool_busy *b, uv_close_cb cb);
/* Something has come, and more may. A loop without a pool_busy: no-op. */
void pool_busy_touch(uv_loop_t *loop);

/* look(arg): take what has come, if anything has; called again and again while
 * the loop does not sleep. NULL: nothing (any more). As pool_busy_touch. */
void pool_busy_look_for(uv_loop_t *loop, void (*look)(void *arg), void *arg);

/* The window after something came gap_us after the thing before. */
unsigned int pool_busy_window(unsigned int window_us, unsigned int max_us,
			      uint64_t gap_us, bool preempted);
/* How long to spare looks, if it was this long before; not longer than
 * POOL_BUSY_CALM_US. */
uint64_t pool_busy_spare(uint64_t spare_us);

#endif
