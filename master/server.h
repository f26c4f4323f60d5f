/*
 * The master: cluster map, namespace, placement, the change feed. Holds no
 * data and moves none; no read ever asks it anything.
 *
 *   server  connections and messages, one struct per node session
 *   map     the namespace: a pool_tree whose entries know generation, holders
 *           and their place in the feed
 *   feed    the entries linked in order of their last change; a subscriber is a
 *           cursor in that list, so a slow one costs no queue
 *   members nodes, heartbeats, recovery after a start
 *   place   which node a copy goes to; who may drop what
 *   state   what no inventory holds (epoch, directories, rules, tombstones,
 *           members), in a local file or, of several masters, in etcd
 *   ha      one of several masters: leader or standby
 *
 * Thread: loop, for everything.
 */
#ifndef MASTER_SERVER_H
#define MASTER_SERVER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/base/parse.h"

struct master;

struct etcd_state;
struct pool_trust;

/* Defaults of repair, for the programs' options. */
#define MASTER_REPAIR_RATE (512ull << 20)
#define MASTER_REPAIR_COPIES 64u
/* Enough for nodes, which try again each second. */
#define MASTER_RECOVER_MS 5000u

struct master_opts {
	uv_loop_t *loop;
	struct pool_hostport listen; /* port 0: any; host "": master_accept */
	const char *state_file;	     /* NULL: nothing survives (tests only) */
	/* Of the leader among several masters (master/ha.h), instead of a file:
	 * what was loaded from etcd (borrows, until closed), and its epoch. */
	struct etcd_state *etcd_state;
	uint64_t epoch;
	/* May it still tell anybody anything? NULL: always. */
	bool (*acting)(void *arg);
	void *acting_arg;
	/* Of local users, who may connect. Borrows; NULL: everybody. */
	struct pool_trust *trust;
	unsigned int heartbeat_ms;   /* 0: 1000 */
	/* The state was lost: ask the nodes for so long for the epoch that they
	 * have seen, and begin a higher one. 0: no. */
	unsigned int recover_ms;
	uint64_t repair_rate;	     /* bytes a second; 0: any */
	unsigned int repair_copies;  /* under way; 0: MASTER_REPAIR_COPIES */
	unsigned int summary_s;	     /* one-line summary in the log; 0: never */
	unsigned int sessions_addr_max; /* of one address; 0: 512 */
	uint64_t sessions_bytes_max; /* kept for all sessions; 0: 1 GiB */
	uint64_t dirs_max;	     /* as pool_quota_limit; nodes are told */
	uint64_t attr_bytes_max;
	struct pool_metrics *metrics; /* borrows */
};

/*
 * Load the state, raise the epoch durably, listen. 0 or -errno, logged with the
 * remedy; a state file that is damaged or of another version is never
 * overwritten (-EPROTO).
 */
int master_open(const struct master_opts *opts, struct master **ret_master);
/* Closes all sessions, writes the state; closed(arg) runs from a later turn
 * when no handle is left on the loop. */
void master_close(struct master *m, void (*closed)(void *arg), void *arg);

/* A node's connection, which is the master's from here on. */
void master_accept(struct master *m, int fd);
/* More of what was queued is in etcd: what waited for it is answered. */
void master_settled(struct master *m);

uint16_t master_port(const struct master *m);
/* The inventories are complete, or their time is over: answers are final. */
bool master_ready(const struct master *m);

/* For the admin pages; new references, NULL on ENOMEM. */
json_t *master_status_json(struct master *m);
json_t *master_nodes_json(struct master *m);
/* One page of names below prefix, in path order as the tree lists them: at most
 * limit (1..10000), from `token` (NULL: the start; else ret's "next"). 0,
 * -EINVAL (token), -ENOMEM. */
int master_objects_json(struct master *m, const char *prefix,
			const char *token, unsigned int limit,
			json_t **ret_json);

enum master_drain_do {
	MASTER_DRAIN_SHOW,
	MASTER_DRAIN_BEGIN,
	MASTER_DRAIN_CANCEL,
};
/*
 * Empty a store, so that it may be switched off: what it alone holds is copied
 * to others, its own copies become cache, and it gets no more. It stays so,
 * over restarts too, until that is cancelled. node: a name or an id (hex). 0
 * and *ret_json, a new reference: how far it is ("state": none, draining,
 * drained, stuck - nobody has room for the rest -, away), and whether that is
 * "recorded": until it is, the next master may know nothing of it. -ENOENT,
 * -ENOTUNIQ, -EINVAL (no store), -ENOMEM: *ret_text, a constant, says why.
 */
int master_drain(struct master *m, const char *node, enum master_drain_do what,
		 json_t **ret_json, const char **ret_text);

#endif
