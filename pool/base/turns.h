/*
 * Measures the turns of an event loop. A turn is one loop iteration without its
 * sleep: events that arrive during a turn wait until its end. Time in which the
 * scheduler does not run the thread is included.
 *
 *   pool_turns_open, before the loop runs -> ... -> pool_turns_close
 *
 * A loop that does not sleep in uv_run reports its turns with pool_turns_add
 * instead.
 *
 * Thread: the loop's. It does not keep the loop alive.
 */
#ifndef POOL_BASE_TURNS_H
#define POOL_BASE_TURNS_H

#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"

struct pool_turns {
	uv_prepare_t sleeps; /* runs at the end of each turn */
	/* time, and total sleep of the loop, at the end of the last turn */
	uint64_t begun_ns, idle_ns;
	struct pool_hist hist;
	struct pool_gauge longest_ns;
};

/* Register two metrics with this prefix, such as "kvpool_node_loop_turn". */
#define POOL_TURNS_REGISTER(m, t, prefix)                                    \
	pool_turns_register((m), (t), prefix "_seconds",                     \
			    prefix "_longest_seconds")
/* hist, longest: the metrics' names, constant text. 0 or -ENOMEM. */
int pool_turns_register(struct pool_metrics *m, struct pool_turns *t,
			const char *hist, const char *longest);

/* The loop must not have run yet: this configures it to measure its sleep. */
void pool_turns_open(struct pool_turns *t, uv_loop_t *loop);
/* cb (or NULL) gets the handle t->sleeps, in a later loop iteration. */
void pool_turns_close(struct pool_turns *t, uv_close_cb cb);

void pool_turns_add(struct pool_turns *t, uint64_t ns);

#endif
