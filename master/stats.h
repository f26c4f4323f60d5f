/*
 * The master's counters and gauges: any file counts with master_count, stats.c
 * alone names them and sets the gauges.
 *
 * Thread: loop.
 */
#ifndef MASTER_STATS_H
#define MASTER_STATS_H

#include "master/map.h"
#include "pool/base/metric.h"
#include "pool/conn/wire.h"

struct master;
struct master_session;

enum master_counter {
	MC_PUBLISH,
	MC_UNLINK,
	MC_MKDIR,
	MC_RMDIR,
	MC_SETATTR,
	MC_OPS_FAILED,
	MC_FEED_ENTRIES,
	MC_FEED_BATCHES,
	MC_PICTURES,
	MC_PICTURES_SHORT,
	MC_INVENTORY,
	MC_INVENTORY_DROPPED,
	MC_INVENTORY_REFUSED,
	MC_INVENTORY_CONFLICT,
	MC_NOT_ALLOWED,
	MC_OTHER_USERS,
	MC_EVICT_GRANTED,
	MC_EVICT_LAST,
	MC_EVICT_REFUSED,
	MC_SURPLUS,
	MC_MOVES,
	MC_REPLICATIONS,
	MC_REPAIR_BYTES,
	MC_EXTRAS,
	MC_EXTRAS_REFUSED,
	MC_EXTRAS_COLD,
	MC_COPIES_FAILED,
	MC_COPIES_PUT_OFF,
	MC_COPIES_DAMAGED,
	MC_COPIES_GIVEN_UP,
	MC_WAITS,
	MC_WAITS_REFUSED,
	MC_BAD_MESSAGES,
	MC_BAD_ITEMS,
	MC_CUT_OFF,
	MC_UNJOINED,
	MC_HELD,
	MC_RESULTS_FORGOTTEN,
	MC_OPS_DEFERRED,
	MC_OPS_DEFERRED_REFUSED,
	MC_OPS_TURNS,
	MC_INVENTORY_PARTS,
	MC_PAUSES,
	MC_ISSUED_FORGOTTEN,
	MC_SESSIONS_REFUSED,
	MC_IDS_REFUSED,
	MC_FIGURES,
	MC_MEMORY_ENDED,
	MC_LOST_KEYS,
	MC_QUOTA_USER,
	MC_QUOTA_POOL,
	MC_NCOUNTERS,
};

struct master_stats {
	struct pool_counter c[MC_NCOUNTERS];
	struct pool_counter requests[POOL_MSG_MAX];
	struct pool_hist took[POOL_MSG_MAX]; /* those that are valid */
	struct pool_counter graves_forgotten, holders_full;
	struct pool_hist sync, feed;
	struct master_window_gauges {
		struct pool_gauge lookups, hits, best_hits, names;
	} asked[POOL_ASKED_WINDOWS];
	struct pool_gauge keys, dirs, attr_bytes, bytes, tombs, grave_bytes;
	struct pool_gauge nodes, nodes_alive, other_version, capacity, used,
		evictable, sessions, session_bytes, subscribers, needs, unmet,
		soft, hard, ready, epoch, state_bytes, feed_seq, uptime,
		endangered[MASTER_DANGERS], repairs, repair_left, repair_rate,
		repair_limit, repair_eta, stuck_keys, stuck_bytes, draining;
};

int master_stats_register(struct master *m, struct pool_metrics *metrics);
/* A session subscribes to the feed, or ceases to. The page has two gauges of
 * each subscriber, at most two for each of MASTER_NODES_MAX. Without memory
 * they are left out. */
void master_stats_subscribed(struct master_session *s);
void master_stats_unsubscribed(struct master_session *s);
void master_summary(struct master *m);

#endif
