/*
 * A pool under simulation: masters with their etcd, a crowd of played nodes
 * (sim_crowd.h), and mirrors - real nodes (pool/node/node.h) that give no memory and
 * keep the whole index. What happens to it, and whether it is as it should be.
 *
 * Truth is what the crowd holds (sim_keys.h). When everything has come to rest,
 *   - the map is exactly that: names, generations, holders, and nothing else;
 *   - each key that is there has its two copies, on two machines;
 *   - a key whose copies were all lost is gone, so is one that was deleted;
 *   - no node holds a generation that is not the newest, none more than it may;
 *   - copies are spread evenly;
 *   - each mirror is exactly the map, and every mount has been told all of it;
 *   - nobody has seen an epoch fall.
 */
#ifndef TESTS_SIM_WORLD_H
#define TESTS_SIM_WORLD_H

#include "master/server.h"
#include "pool/node/node.h"
#include "tests/sim/sim_crowd.h"
#include "tests/sim/sim_etcd.h"

#define SIM_MASTERS_MAX 8 /* one after the other */
#define SIM_MIRRORS_MAX 4
#define SIM_REPLICAS 2

struct sim_world_opts {
	uint64_t seed;
	unsigned int nodes, mounts, mirrors;
	uint32_t keys; /* all that there will ever be */
	uint32_t born; /* of them, those there from the start */
	const char *dir; /* for the mirrors; empty */
};

struct sim_master {
	struct sim_host host;
	struct sim_call call;
	struct master *m; /* owns */
	struct etcd_state *state;
	uint16_t port;
	uint64_t epoch;
	struct sim_world *w;
};

struct sim_mirror {
	struct sim_host host;
	struct pool_node *node; /* owns */
	struct pool_metrics *metrics;
	char dir[128];
	bool closed;
};

struct sim_world {
	struct sim_world_opts o;
	struct sim_keys keys;
	struct sim_crowd crowd;
	struct sim_etcd etcd;
	struct sim_master master[SIM_MASTERS_MAX];
	unsigned int nmasters; /* the last one leads */
	struct sim_mirror mirror[SIM_MIRRORS_MAX];
	struct sim_event load;
	uint64_t load_ns; /* between two requests; 0: none */
	uint32_t nborn;
	uint64_t asked;
};

void sim_world_open(struct sim_world *w, const struct sim_world_opts *opts);
void sim_world_close(struct sim_world *w);
struct sim_master *sim_world_leader(struct sim_world *w);

/* ---- what happens to it ---- */

/* A new leader is elected. */
void sim_world_elect(struct sim_world *w);
/* It is leader no more: everybody is cut off, and what it knew is gone. */
void sim_world_lose_leader(struct sim_world *w);
/* All nodes that are off start within so much time. */
void sim_world_start_nodes(struct sim_world *w, uint64_t within_ns);
/* So many die at once: half of them with their machines. */
void sim_world_kill_nodes(struct sim_world *w, unsigned int n);
/* Nodes publish, rewrite, delete and evict; period 0: no more. */
void sim_world_load(struct sim_world *w, uint64_t period_ns);

/* Until nothing is under way any more, at most so long. */
bool sim_world_settle(struct sim_world *w, uint64_t limit_ns);
/* What is still under way, or NULL. */
const char *sim_world_busy(struct sim_world *w);

/* ---- sim_check.c ---- */

/* At rest: NULL, or what is wrong (a static text). */
const char *sim_world_check(struct sim_world *w);

struct sim_census {
	uint64_t keys, copies; /* that live nodes hold */
	uint64_t lost;	       /* not deleted, and nobody holds it */
	uint64_t short_of;     /* fewer copies than wanted */
	uint64_t deleted, unsure;
	uint64_t used_max, used_mean;
};
void sim_world_count(const struct sim_world *w, struct sim_census *ret);

#endif
