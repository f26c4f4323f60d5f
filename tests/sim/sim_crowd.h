/*
 * Played nodes, for simulations: stores without a disk, which send a master the
 * messages that pool/node/ would send, and trust its answers. A thousand of
 * them fit in one process; a thousand real nodes would not. Some are also
 * mounts, which ack the feed and keep nothing of it.
 *
 *   OFF --start--> AWAY --dial--> DIALLING --JOIN--> JOINING
 *    ^              ^                                   | WELCOME
 *    +--- kill      +---- connection lost ---- UP <-- TELLING (inventory)
 *
 * sim_keys has what they hold. An ordered copy takes some time, and fails
 * unless a node really has the object. A surplus copy is dropped at once.
 */
#ifndef TESTS_SIM_CROWD_H
#define TESTS_SIM_CROWD_H

#include "pool/conn/conn.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_keys.h"

#define SIM_OPS_MAX 8 /* changes per message of a node */

enum sim_node_state { NODE_OFF, NODE_AWAY, NODE_DIALLING, NODE_JOINING,
		      NODE_LISTING, NODE_UP };

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
	struct sim_event beat, list_more, ack;
	uint64_t dial_delay_ns;
	uint64_t epoch;
	uint64_t capacity, used;
	uint32_t *list; /* owns; keys it may hold a copy of */
	uint32_t n, cap, sent; /* sent: in the inventory so far */
	struct pool_list copying; /* struct copy */
	struct sim_op ops[SIM_OPS_MAX]; /* in flight */
	unsigned int nops;
	/* mounts only */
	uint64_t feed_epoch, feed_seq;
	bool complete;
};

struct sim_crowd {
	struct sim_host host;
	struct sim_keys *keys; /* borrows */
	struct sim_node *node; /* owns */
	unsigned int n;
	uint16_t leader_port; /* 0: there is none */
	/* counters */
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

/* n gets this copy; it replaces n's earlier copy of the key. */
void sim_node_give(struct sim_node *n, uint32_t key, uint64_t gen);
/* Starts n, which dials after a random time of at most within_ns. */
void sim_node_start(struct sim_node *n, uint64_t within_ns);
/* n dies: its connection is reset; or (silent) its machine dies, too. It still
 * has its copies when it is started again. */
void sim_node_kill(struct sim_node *n, bool silent);
/* Sends these changes to the master. False: n is busy or not connected. */
bool sim_node_ask(struct sim_node *n, const struct sim_op *ops,
		  unsigned int nops);
/* Asks the master for permission to evict n's copy. */
void sim_node_evict(struct sim_node *n, uint32_t key);
/* Creates directory "kv" with this number of replicas. */
void sim_node_set_replicas(struct sim_node *n, unsigned int replicas);

/* Are all nodes that are not OFF up, with nothing in flight? */
bool sim_crowd_quiet(const struct sim_crowd *c);

#endif
