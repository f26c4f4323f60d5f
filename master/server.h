/*
 * The master: cluster map, namespace, placement, change feed. It holds no
 * object data, and nodes read without asking it.
 *
 *   server  connections and messages, one struct per node session
 *   map     the namespace: a pool_tree whose entries have generation, holders
 *           and a position in the feed
 *   feed    the entries linked in order of their last change; a subscriber is a
 *           cursor in that list, so a slow one needs no queue
 *   members nodes, heartbeats, recovery after a start
 *   place   policy: targets of copies, which copies may be evicted
 *   state   what inventories cannot restore (epoch, directories, rules,
 *           tombstones, members), in a local file or, with several masters,
 *           in etcd
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
struct master_events;
struct pool_tls;
struct pool_trust;

/* Defaults of the programs' options: bytes a second; copies in flight. */
#define MASTER_REPAIR_RATE (512ull << 20)
#define MASTER_REPAIR_COPIES 64u
/* Long enough for all nodes: they reconnect each second. */
#define MASTER_RECOVER_MS 5000u

struct master_opts {
	uv_loop_t *loop;
	struct pool_hostport listen; /* port 0: any; host "": master_accept */
	const char *state_file;	     /* NULL: no state is kept (tests only) */
	/* Leader among several masters (master/ha.h): the state loaded from
	 * etcd (borrows, until closed) instead of a file, and its epoch. */
	struct etcd_state *etcd_state;
	uint64_t epoch;
	/* May the master read and send, because its lease is still valid?
	 * NULL: always. */
	bool (*acting)(void *arg);
	void *acting_arg;
	/* Local users that may connect. Borrows; NULL: all. */
	struct pool_trust *trust;
	/* TLS; connections are then not checked with `trust`. Borrows; NULL: no
	 * TLS. */
	struct pool_tls *tls;
	unsigned int heartbeat_ms;   /* 0: 1000 */
	/* The state was lost: how long to collect the epochs that nodes have
	 * seen, before beginning a higher one (recover.c). 0: not lost. */
	unsigned int recover_ms;
	uint64_t repair_rate;	     /* bytes a second; 0: unlimited */
	unsigned int repair_copies;  /* in flight; 0: MASTER_REPAIR_COPIES */
	unsigned int summary_s;	     /* interval of a log line; 0: never */
	unsigned int sessions_addr_max; /* from one address; 0: 512 */
	uint64_t sessions_bytes_max; /* memory of all sessions; 0: 1 GiB */
	/* See pool_quota_limit; WELCOME has both. */
	uint64_t dirs_max;
	uint64_t attr_bytes_max;
	/* Where to note events (events.h). Borrows; NULL: its own, which end
	 * with it. */
	struct master_events *events;
	struct pool_metrics *metrics; /* borrows */
	const char *program; /* its version, constant text; NULL: unknown */
};

/*
 * Load the state, raise the epoch durably, listen. 0 or -errno, logged with the
 * remedy; a state file that is damaged or of another version is never
 * overwritten (-EPROTO).
 */
int master_open(const struct master_opts *opts, struct master **ret_master);
/* Closes all sessions, writes the state; closed(arg) runs in a later turn, when
 * the master has no handle left on the loop. */
void master_close(struct master *m, void (*closed)(void *arg), void *arg);

/* Takes ownership of fd, a node's connection. */
void master_accept(struct master *m, int fd);
/* More queued records are in etcd: sends the messages held back for them. */
void master_settled(struct master *m);

uint16_t master_port(const struct master *m);
/* Are the inventories complete, or the grace for them over? Until then the
 * master does not treat a missing file as nonexistent. */
bool master_ready(const struct master *m);

/* For the admin pages; new references, NULL on ENOMEM. */
json_t *master_status_json(struct master *m);
json_t *master_nodes_json(struct master *m);
/* One page of the files at or below prefix, as pool_pages_list gives it (a new
 * reference), from `token` (NULL: the start; else "next" of the page before).
 * 0, -EINVAL (token), -ENOMEM. */
int master_objects_json(struct master *m, const char *prefix,
			const char *token, unsigned int limit,
			json_t **ret_json);

/* {"directories": [{"name", "objects", "bytes", "age_seconds": the mean,
 * "lookups", "hits": of the last hour}...]}: those of the root, at most 254.
 * Name "": files in the root itself; null: all other directories. */
json_t *master_directories_json(struct master *m);
/* What happened, as master_events_json. */
json_t *master_happened_json(struct master *m, uint64_t since,
			     unsigned int limit);

enum master_drain_do {
	MASTER_DRAIN_SHOW,
	MASTER_DRAIN_BEGIN,
	MASTER_DRAIN_CANCEL,
};
/*
 * Empty a store before it is switched off: objects without enough copies
 * elsewhere are copied to other stores, the store's own copies become cache,
 * and it receives no more. The drain stays in force, over restarts too, until
 * it is cancelled. node: a name or an id (hex).
 *
 * 0 and *ret_json, a new reference: "state" (none, draining, drained, stuck: no
 * store has room for the rest, or away), the progress, and "recorded": is the
 * request in the state, so that the next master knows it? -ENOENT, -ENOTUNIQ,
 * -EINVAL (no store), -ENOMEM: *ret_text, a constant, says why.
 */
int master_drain(struct master *m, const char *node, enum master_drain_do what,
		 json_t **ret_json, const char **ret_text);

#endif
