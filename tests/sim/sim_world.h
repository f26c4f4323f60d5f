/*
 * A simulated pool: masters with their etcd, a crowd of played nodes
 * (sim_crowd.h), and mirrors: real nodes (pool/node/node.h) that give no memory
 * and keep the whole namespace. Functions that disturb it, and its checks.
 *
 * Truth is what the crowd holds (sim_keys.h). When everything has come to rest,
 *   - the map has exactly these names, generations and holders;
 *   - each key that exists has two copies, on two machines;
 *   - keys that were deleted, or lost all copies, do not exist;
 *   - no node holds an older generation, or more bytes than its capacity;
 *   - copies are spread evenly;
 *   - each mirror equals the map, and every mount has received all of the feed;
 *   - no node has seen the epoch decrease.
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
	uint32_t keys; /* that may ever exist */
	uint32_t born; /* of these, that exist from the start */
	const char *dir; /* an empty directory, for the mirrors */
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

/* ---- disturbances ---- */

/* A new leader is elected. */
void sim_world_elect(struct sim_world *w);
/* The leader is lost: its connections end, and its memory is freed. */
void sim_world_lose_leader(struct sim_world *w);
/* Starts all nodes that are off, each within within_ns. */
void sim_world_start_nodes(struct sim_world *w, uint64_t within_ns);
/* Kills n nodes at once, half of them with their machines. */
void sim_world_kill_nodes(struct sim_world *w, unsigned int n);
/* Has nodes publish, rewrite, delete and evict, once a period; 0: stops. */
void sim_world_load(struct sim_world *w, uint64_t period_ns);

/* Runs until nothing is in flight. False: limit_ns was reached. */
bool sim_world_settle(struct sim_world *w, uint64_t limit_ns);
/* What is still in flight, or NULL. */
const char *sim_world_busy(struct sim_world *w);

/* ---- sim_check.c ---- */

/* At rest only. NULL, or what is wrong (a static text). */
const char *sim_world_check(struct sim_world *w);

struct sim_census {
	uint64_t keys, copies; /* that live nodes hold */
	uint64_t lost;	       /* keys not deleted that no live node holds */
	uint64_t short_of;     /* keys with fewer copies than wanted */
	uint64_t deleted, unsure;
	uint64_t used_max, used_mean;
};
void sim_world_count(const struct sim_world *w, struct sim_census *ret);

#endif
