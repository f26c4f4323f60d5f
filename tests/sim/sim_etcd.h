/*
 * The state of several masters without etcd: implements master/etcd_state.h.
 * Records become durable some milliseconds after they were flushed, in order,
 * in transactions of ETCD_STATE_BATCH. If a leader is lost, so are its
 * unwritten records; no node has received an answer that depends on them.
 *
 * There is no election: the caller opens the state for the next leader, whose
 * epoch is one higher.
 */
#ifndef TESTS_SIM_ETCD_H
#define TESTS_SIM_ETCD_H

#include "master/etcd_state.h"
#include "tests/sim/sim.h"

struct sim_etcd {
	uint64_t epoch; /* of the last leader */
	uint64_t slow_ns;
	struct pool_list records;
};

void sim_etcd_open(struct sim_etcd *e);
void sim_etcd_close(struct sim_etcd *e);
/* The state for a new leader on that host (master_opts.etcd_state);
 * etcd_state_close ends it. */
struct etcd_state *sim_etcd_elect(struct sim_etcd *e, struct sim_host *host,
				  void (*settled)(void *arg), void *arg);
/* Generation of the path's newest unwritten tombstone, if that is gen or more
 * and no written one is; else 0. */
uint64_t sim_etcd_owed_tomb(struct etcd_state *s, const char *path, size_t len,
			    uint64_t gen);
/* From now on, a transaction takes up to ns longer. */
void sim_etcd_slow(struct sim_etcd *e, uint64_t ns);
/* The leader has died. written: its transaction in flight succeeds. */
void sim_etcd_die(struct etcd_state *s, bool written);

#endif
