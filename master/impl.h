/*
 * The master's internals. These files share it (tests/layers.list has all):
 *
 *   loop.c       wake-ups of the loop for other files: kicks and slices
 *   outbox.c     sending to a session, and ending one
 *   held.c       messages held back until the state they report is in etcd
 *   drops.c      DROP: copies that a node must give up
 *   keep.c       the state's records to and from the map; file or etcd
 *   meta.c       validation and encoding of Meta
 *   may.c        the namespaces of a session's certificate
 *   repair.c     REPLICATE, HELD: making copies
 *   evict.c      EVICT, surplus: giving up copies
 *   drain.c      emptying a node before it is switched off
 *   review.c     one file: its holders, missing and surplus copies
 *   patrol.c     a scrub walk that reviews every file
 *   compaction.c rewriting the state file
 *   heat.c       extra copies of objects that are read often
 *   pump.c       FEED, FEED_ACK, SYNC
 *   answers.c    results that a node may not have received; repeated OPS
 *   ops.c        OPS: changes that nodes request
 *   inventory.c  INVENTORY: the objects that a node holds when it joins
 *   limits.c     bounds on sessions and memory, by address and in total; on
 *                directories and attributes, by user and in total
 *   recover.c    starting a master whose state was lost
 *   session.c    one node's connection: joining, dispatch
 *   server.c     open, close, ticks, readiness
 *   asked.c      what the nodes' mounts asked for
 *   pages.c      JSON; stats.c: metrics
 *
 * Thread: loop, for everything here.
 *
 * No turn of the loop is long, however much work is queued: sessions share each
 * turn's budget of receiving and of sending (pool/conn/share.h), walks over the
 * map run in slices, repair looks at a bounded number of needs, and closing the
 * master frees its memory in slices.
 */
#ifndef MASTER_IMPL_H
#define MASTER_IMPL_H

#include "master/copies.h"
#include "master/etcd_state.h"
#include "master/keep.h"
#include "master/events.h"
#include "master/map.h"
#include "master/members.h"
#include "master/server.h"
#include "master/session.h"
#include "master/stats.h"
#include "pool/conn/conn.h"

#define MASTER_GRACE 3		    /* heartbeats missed until a node is dead */
#define MASTER_TOMBS_MAX 1000000u /* and 512 MB: MASTER_GRAVE_BYTES */
#define MASTER_GHOSTS_MAX 250000u /* and 128 MB */
#define MASTER_TOMB_AGE_NS (24ull * 3600 * 1000000000ull)
#define MASTER_SLICE 2000	    /* entries walked in one turn */
#define MASTER_COALESCE_MS 1	    /* batch changes for that long */
/* Budgets of one turn, for all sessions together: bytes of messages handled,
 * and feed entries sent. */
#define MASTER_TURN_BYTES (256u << 10)
#define MASTER_TURN_ENTRIES 16384u

struct master {
	uv_loop_t *loop;
	struct pool_tls *tls; /* borrows; NULL: plain */
	char *state_path; /* owns, or NULL */
	unsigned int heartbeat_ms, summary_s;
	struct master_map map;
	struct master_members members;
	struct master_events own_events; /* without those of ha.c */
	struct master_events *events;
	struct { /* what server.c:note_changes has noted as events */
		bool repairing, full, expires;
		uint64_t repair_ms; /* when repairs were last needed */
		uint64_t lost;	    /* MC_LOST_KEYS */
	} noted;
	struct master_state *state; /* owns, or NULL */
	struct etcd_state *etcd_state; /* borrows; then state is NULL */
	bool (*acting)(void *arg); /* NULL: always */
	void *acting_arg;
	struct pool_metrics *metrics; /* borrows, or NULL */
	const char *program;	      /* its version, or "" */
	uint64_t epoch, gen_seq;
	uint64_t asked_seed; /* of the nodes' sketches (asked.c); 0: none yet */
	bool recovers;		   /* it may raise the epoch: recover.c */
	uint64_t recover_until_ms; /* end of collecting epochs; 0: ended */
	uint64_t recover_seen;	   /* highest epoch reported by nodes */
	uint64_t stale_logged_ms;  /* last log line about -ESTALE refusals */
	uint64_t ndirs_made;   /* directories with a record in the state */
	uint64_t nkept;	       /* records appended so far */
	uint64_t start_ms, last_tick_ms, next_summary_ms, next_sync_ms;
	/* time since start_ms in which the loop was stalled; not counted
	 * towards the grace for nodes to join */
	uint64_t stalled_ms;
	uint64_t stalled_at_ms; /* last tick that noticed a stall; 0: none */
	bool ready, closing;
	unsigned int nhandles; /* open uv handles, works, sessions */
	struct pool_listener *listener;
	uint16_t port;
	/* budgets of a turn: bytes received, feed entries sent */
	struct pool_share recv_share, feed_share, shakes;
	uv_timer_t tick, pump;
	uv_idle_t slices;
	/* Callbacks into higher files (tests/layers), set by server.c. */
	uv_timer_cb on_pump;
	uv_idle_cb on_slices;
	void (*on_handles_gone)(struct master *m);
	void (*on_session_end)(struct master_session *s); /* session.c */
	bool pump_armed;
	uv_work_t sync_work;
	bool sync_busy, sync_is_compaction;
	int sync_fd, sync_err;
	struct pool_list sessions;
	struct master_issued issued; /* to all sessions, ended ones included */
	struct master_gates gates;
	bool paused; /* no message of changes is begun: pump.c */
	unsigned int nsessions, nsubscribers;
	unsigned int sessions_addr_max;
	uint64_t sessions_bytes_max;
	struct master_repair repair;
	struct master_patrol patrol;
	struct master_compaction compaction;
	struct master_stats stats;
	struct master_buffers *buffers; /* owns */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* May the master read and send messages? A leader's lease must be valid. */
static inline bool master_acting(const struct master *m)
{
	return !m->acting || m->acting(m->acting_arg);
}

/* Is the mark settled (keep.h)? */
static inline bool master_keep_settled(const struct master *m, uint64_t mark)
{
	return !m->etcd_state || etcd_state_settled(m->etcd_state) >= mark;
}

/* etcd_state_cost; 0: without etcd. */
static inline uint64_t master_keep_cost(const struct master *m)
{
	return m->etcd_state ? etcd_state_cost(m->etcd_state) : 0;
}

/* Do so many bytes wait for etcd that nothing that can wait may add to them? */
static inline bool master_keep_crowded(const struct master *m)
{
	return m->etcd_state && etcd_state_is_crowded(m->etcd_state);
}

static inline void master_count(struct master *m, enum master_counter c)
{
	pool_count(&m->stats.c[c]);
}

/* ---- server.c, loop.c ---- */

uint64_t master_next_gen(struct master *m);
/* Run the pump (repair, DROPs, feed, SYNCED) within MASTER_COALESCE_MS. */
void master_kick(struct master *m);
/* Run slices of patrol and compaction, one a turn, until both are done. */
void master_slices_start(struct master *m);
/* One of m->nhandles has closed. */
void master_handle_gone(struct master *m);
/* Sets m->ready once all members of the last epoch have sent their inventories,
 * or the grace for them is over. */
void master_check_ready(struct master *m);
/* fdatasync(2) fd in a worker and close it; for compaction, then commit. */
void master_sync_start(struct master *m, int fd, bool compaction);

#endif
