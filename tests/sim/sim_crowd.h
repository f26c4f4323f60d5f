/*
 * Nodes that are played, for simulations: stores without a disk, which say what
 * pool/node*.c would say to a master and believe what it answers. A thousand of
 * them fit where a thousand real ones would not. Some are mounts, too, which
 * acknowledge the feed and keep nothing of it.
 *
 *   OFF --start--> AWAY --dial--> DIALLING --JOIN--> JOINING
 *    ^              ^                                   | WELCOME
 *    +--- kill      +---- connection lost ---- UP <-- TELLING (inventory)
 *
 * What they hold is in sim_keys. A copy that is ordered takes its time, and
 * comes from a node that really has it, or fails. A copy that no longer counts
 * (SURPLUS) is dropped at once.
 */
#ifndef TESTS_SIM_CROWD_H
#define TESTS_SIM_CROWD_H

#include "pool/conn/conn.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_keys.h"

#define SIM_OPS_MAX 8 /* in one message of a node */

enum sim_node_state { NODE_OFF, NODE_AWAY, NODE_DIALLING, NODE_JOINING,
		      NODE_TELLING, NODE_UP };

struct sim_op {
	Kvpool__Op__Kind kind;
	uint32_t key;
	uint16_t version;
};

struct sim_crowd;

struct sim_node {
	struct sim_crowd *crowd;
	uint16_t nr;
	uint8_t id[16];
	char name[16], host_id[16], advertise[32];
	bool is_mount;
	enum sim_node_state state;
	struct pool_conn *conn; /* owns, or NULL */
	struct sim_event beat, tell, ack;
	uint64_t dial_delay_ns;
	uint64_t epoch;
	uint64_t capacity, used;
	uint32_t *list; /* owns; keys it may hold a copy of */
	uint32_t n, cap, told;
	struct pool_list copying; /* struct copy */
	struct sim_op ops[SIM_OPS_MAX]; /* not answered */
	unsigned int nops;
	/* of a mount */
	uint64_t feed_epoch, feed_seq;
	bool complete;
};

struct sim_crowd {
	struct sim_host host;
	struct sim_keys *keys; /* borrows */
	struct sim_node *node; /* owns */
	unsigned int n;
	uint16_t leader_port; /* 0: there is none */
	/* what has happened */
	uint64_t joins, refused, drops, copies, copies_failed, ops_done,
		ops_failed, batches;
	uint64_t epochs_fell; /* must not happen */
};

struct sim_crowd_opts {
	unsigned int nodes, mounts, nodes_per_machine;
	uint64_t capacity;
};
void sim_crowd_open(struct sim_crowd *c, const struct sim_crowd_opts *opts,
		    struct sim_keys *keys);
void sim_crowd_close(struct sim_crowd *c);

/* It has this copy (now: another one it had of the key is replaced). */
void sim_node_give(struct sim_node *n, uint32_t key, uint64_t gen);
/* Dials within so much time. */
void sim_node_start(struct sim_node *n, uint64_t within_ns);
/* It dies, with its connection reset, or (silent) with its machine. What it
 * holds is there when it is started again. */
void sim_node_kill(struct sim_node *n, bool silent);
/* Ask the master for this; false: it is busy, or not there. */
bool sim_node_ask(struct sim_node *n, const struct sim_op *ops,
		  unsigned int nops);
/* It would like to drop its copy. */
void sim_node_evict(struct sim_node *n, uint32_t key);
/* Directory "kv" with so many replicas for what is in it. */
void sim_node_set_replicas(struct sim_node *n, unsigned int replicas);

/* Is every one that is not OFF up, with nothing under way? */
bool sim_crowd_quiet(const struct sim_crowd *c);

#endif
