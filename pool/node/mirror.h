/*
 * The mirror: the master's change feed, which names files and members, and the
 * barriers (fsync of a directory) that wait for it.
 */
#ifndef POOL_NODE_MIRROR_H
#define POOL_NODE_MIRROR_H

#include "pool/node/entry.h"

#define NODE_NODES_MAX 4096	/* members of a pool */

/* A member of the pool, by its index. */
struct node_member {
	bool known, alive, is_store, is_mount;
	struct pool_peer_addr addr;
	char name[64];
	char advertise[POOL_HOST_MAX + 8];
	char host_id[64];
	char data_mode[24];
	char program[POOL_PROGRAM_SIZE]; /* its version; "": unknown */
	uint64_t capacity, used, evictable, objects, sent_bytes;
	bool draining;
	unsigned int drained_percent;
	uint64_t stalled_ms; /* when it last let a transfer stall; 0: never */
	uint64_t left_ms; /* when it last left (alive became false); 0: never */
};

/* ---- member.c: the pool's members ---- */

/* NULL: unknown. */
struct node_member *node_member(struct pool_node *n, uint32_t index);
struct node_member *node_member_by_id(struct pool_node *n,
				      const uint8_t id[POOL_ID_SIZE]);
void node_member_apply(struct pool_node *n, const Kvpool__NodeInfo *info);
/* The largest free space of another store that is alive and not draining, less
 * a fiftieth of its capacity. */
uint64_t node_room_elsewhere(const struct pool_node *n);

/* ---- feed.c: the master's change feed ---- */

/* 0, or -ENOMEM: f must be received again (applying it twice does no harm). */
int node_feed_apply(struct pool_node *n, const Kvpool__Feed *f);
/* Applies a file's generation that an order of the master names, as the feed
 * would: the order may be ahead of the feed. NULL: its path cannot exist here,
 * or no memory. */
struct node_entry *node_feed_ahead(struct pool_node *n, const Kvpool__Meta *m);
/* A session or a picture begins: entries that were `ahead` of the earlier feed
 * are not ahead of the new one. */
void node_stage_begins(struct pool_node *n);
void node_drop_apply(struct pool_node *n, const Kvpool__Drop *d);
/*
 * Has a complete picture been received, while names that it lacked are still
 * being removed? The feed is acked only after they are: an fsync elsewhere must
 * not end while this mount shows a removed name.
 */
bool node_feed_sweeping(const struct pool_node *n);
bool node_sweep_slice(struct pool_node *n); /* is there more to do? */
/* The session has ended: if a sweep was running, the picture is requested
 * again.
 */
void node_sweep_cut_off(struct pool_node *n);

/* ---- barrier.c: fsync of a directory ---- */

/* Begins the barriers started since the last turn: seals the files that they
 * wait for, then takes their tickets. */
void node_barriers_begin(struct pool_node *n);
/* Moves barriers to their next phase, or ends them at their deadline. */
void node_barriers_check(struct pool_node *n);
void node_barriers_cut_off(struct pool_node *n);
/* SYNCED: every mount has received the changes of the barriers with ticket req.
 */
void node_synced(struct pool_node *n, uint64_t req);

#endif
