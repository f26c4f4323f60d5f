/*
 * Adaptive busy-polling of an event loop: after an event, the loop polls for
 * the next one for a while instead of sleeping. Engines send requests in quick
 * succession (open, read, close), and waking a sleeping thread takes longer
 * than handling most of them.
 *
 * The polling window adapts as in the kernel's halt polling (kvm:
 * Documentation/virt/kvm/halt-polling.rst). When polling finds nothing and the
 * loop goes to sleep, the window doubles if the next event comes soon, and
 * halves if it does not. It stays between POOL_BUSY_LEAST_US and the limit.
 * While other threads want this CPU (the kernel preempted this thread less than
 * POOL_BUSY_CALM_US ago), the window is POOL_BUSY_LEAST_US: polling must not
 * take CPU time from engines.
 *
 * The thread that will send the next request may itself be waiting for this
 * CPU, even if other CPUs are idle. Polling then finds nothing and delays the
 * request. To detect this, the loop skips polling once after a window without
 * an event. If the next event then comes sooner than that one, or within
 * POOL_BUSY_LEAST_US, polling is skipped for POOL_BUSY_SKIP_US. Each time that
 * this happens again, the duration doubles, up to POOL_BUSY_CALM_US. When
 * polling finds an event, the duration is reset.
 *
 *   pool_busy_open -> pool_busy_touch (from callbacks, at each event) ->
 *   pool_busy_close
 *
 * pool_busy_look_for polls the most frequent source of events directly, which
 * is quicker than a loop iteration.
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
#define POOL_BUSY_SKIP_US 500u

struct pool_busy {
	uv_idle_t looking; /* active: polling; the loop does not sleep */
	unsigned int max_us, window_us;
	uint64_t touched_us; /* last event */
	uint64_t missed_us; /* gap before the last event that polling missed */
	uint64_t until_us;   /* end of the current window */
	long preemptions; /* of the thread, when last read */
	uint64_t preempted_us;
	bool looked; /* polls, or has polled, since the last event */
	bool trial;  /* skip polling once: the last window found nothing */
	uint64_t skip_us, skip_until_us; /* duration and end of skipping */
	struct pool_counter found, slept, skipped;
	void (*look)(void *arg); /* or NULL */
	void *arg;
};

/*
 * max_us: longest window; 0: never poll. With one CPU the loop never polls,
 * because the requesters need that CPU. metrics: registry for the counters, or
 * NULL. loop->data is b until pool_busy_close. 0 or -ENOMEM (only with
 * metrics).
 */
int pool_busy_open(struct pool_busy *b, uv_loop_t *loop, unsigned int max_us,
		   struct pool_metrics *metrics);
/* cb gets the handle b->looking, in a later loop iteration. */
void pool_busy_close(struct pool_busy *b, uv_close_cb cb);
/* An event was handled; poll for the next. No-op on a loop without pool_busy.
 */
void pool_busy_touch(uv_loop_t *loop);

/* Call look(arg), which handles an event if there is one, repeatedly while the
 * loop polls. NULL: stop. No-op on a loop without pool_busy. */
void pool_busy_look_for(uv_loop_t *loop, void (*look)(void *arg), void *arg);

/* The new window, given that the last two events were gap_us apart. */
unsigned int pool_busy_window(unsigned int window_us, unsigned int max_us,
			      uint64_t gap_us, bool preempted);
/* An event came gap_us after the last one, without polling, and the one before
 * missed_us after its last, which polling had missed: had polling delayed it?
 */
bool pool_busy_delayed(uint64_t gap_us, uint64_t missed_us);
/* How long to skip polling, given the last duration; at most
 * POOL_BUSY_CALM_US. */
uint64_t pool_busy_skip(uint64_t skip_us);

#endif
