/*
 * What several masters keep in etcd, without etcd: the other side of
 * master/etcd_state.h. Records become durable some milliseconds after they were
 * flushed, in order, in transactions of its size; a leader that is lost takes
 * with it what was not written, as nothing of that was answered.
 *
 * The election is the caller's: it asks for the state, and the epoch is one
 * higher.
 */
#ifndef TESTS_SIM_ETCD_H
#define TESTS_SIM_ETCD_H

#include "master/etcd_state.h"
#include "tests/sim/sim.h"

struct sim_etcd {
	uint64_t epoch; /* of the leader elected last */
	uint64_t slow_ns;
	struct pool_list records;
};

void sim_etcd_open(struct sim_etcd *e);
void sim_etcd_close(struct sim_etcd *e);
/* A leader on that host, for master_opts; etcd_state_close ends it. */
struct etcd_state *sim_etcd_elect(struct sim_etcd *e, struct sim_host *host,
				  void (*settled)(void *arg), void *arg);
/* The generation of the newest tombstone of that path that is appended and not
 * written, if none of `gen` or above is written; or 0. */
uint64_t sim_etcd_owed_tomb(struct etcd_state *s, const char *path, size_t len,
			    uint64_t gen);
/* A transaction takes up to so much longer, of late; 0. */
void sim_etcd_slow(struct sim_etcd *e, uint64_t ns);
/* The leader has died: what is being written is there, or is not. */
void sim_etcd_die(struct etcd_state *s, bool written);

#endif
