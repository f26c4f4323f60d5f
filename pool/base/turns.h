/*
 * How long the turns of an event loop take: from when it has something to do
 * until it looks for what has come, or sleeps. Whatever comes meanwhile waits.
 * (So it does when the scheduler puts off the thread, which is in these
 * figures.)
 *
 *   pool_turns_open, before the loop runs -> ... -> pool_turns_close
 *
 * A loop that sleeps by other means than uv_run has its turns told by
 * pool_turns_add, and needs neither.
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
	uint64_t begun_ns, idle_ns;
	struct pool_hist hist;
	struct pool_gauge longest_ns;
};

/* Two metrics of this prefix, such as "kvpool_node_loop_turn". */
#define POOL_TURNS_REGISTER(m, t, prefix)                                    \
	pool_turns_register((m), (t), prefix "_seconds",                     \
			    prefix "_longest_seconds")
/* 0 or -ENOMEM. The names are constant text. */
int pool_turns_register(struct pool_metrics *m, struct pool_turns *t,
			const char *hist, const char *longest);

/* The loop must not have run: it is made to note how long it sleeps. */
void pool_turns_open(struct pool_turns *t, uv_loop_t *loop);
/* cb(the handle, t->sleeps) from a later turn; or NULL. */
void pool_turns_close(struct pool_turns *t, uv_close_cb cb);

/* A turn took ns nanoseconds. */
void pool_turns_add(struct pool_turns *t, uint64_t ns);

#endif
