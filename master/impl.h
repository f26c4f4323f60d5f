/*
 * The master's internals, shared by the files of this directory:
 *
 *   loop.c       wake-ups of the loop for other files: kicks and slices
 *   outbox.c     sending to a session, and ending one
 *   held.c       messages held back until the state they follow from is in etcd
 *   drops.c      DROP: copies that a node must give up
 *   keep.c       the state's records to and from the map; file or etcd
 *   meta.c       validation and encoding of Meta
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
 *   pages.c      JSON; stats.c: metrics
 *
 * Thread: loop, for everything here.
 *
 * Life of a session:
 *
 *   accepted --JOIN--> joined --INVENTORY last--> inventoried
 *       \________________\______________________________\--> ended
 *
 * The master ends a session, for example, after a bad message, when its node
 * reads too slowly, or when the node joins again. The session is detached from
 * its member at once; its memory is freed in the connection's on_close.
 *
 * No turn of the loop is long, however much work is queued: sessions share each
 * turn's budget of receiving and of sending (pool/conn/share.h), walks over the
 * map run in slices, repair looks at a bounded number of needs, and closing the
 * master frees its memory in slices.
 */
#ifndef MASTER_IMPL_H
#define MASTER_IMPL_H

#include "master/map.h"
#include "master/members.h"
#include "master/place.h"
#include "master/server.h"
#include "master/state.h"
#include "master/throttle.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

#define MASTER_SESSIONS_MAX (MASTER_NODES_MAX + 64)
#define MASTER_SESSIONS_ADDR 512    /* default: sessions from one address */
#define MASTER_SESSIONS_BYTES (1ull << 30) /* default: of all: limits.c */
#define MASTER_WHOLE_GRACE 10	    /* graces until a message must be whole */
#define MASTER_WAITS_MAX 1024	    /* SYNCs per session; more: not answered */
#define MASTER_HELD_BYTES (8u << 20) /* held back per session: held.c */
#define MASTER_GATES_MAX 64	    /* of the feed; then they merge: held.c */
#define MASTER_DEFERRED_MAX 8	    /* OPS per session deferred until ready */
#define MASTER_ISSUED_MAX 8192u	    /* entries of struct master_issued */
#define MASTER_TOMBS_MAX 1000000u /* and 512 MB: MASTER_GRAVE_BYTES */
#define MASTER_GHOSTS_MAX 250000u /* and 128 MB */
#define MASTER_TOMB_AGE_NS (24ull * 3600 * 1000000000ull)
#define MASTER_SLICE 2000	    /* entries walked in one turn */
#define MASTER_COALESCE_MS 1	    /* batch changes for that long */
/* Budgets of one turn, for all sessions together: bytes of messages handled,
 * and feed entries sent. */
#define MASTER_TURN_BYTES (256u << 10)
#define MASTER_TURN_ENTRIES 16384u
#define MASTER_GRACE 3		    /* heartbeats missed until a node is dead */

/*
 * Generations issued to conditional changes (Op.queued, Op.again): a ring of
 * the last MASTER_ISSUED_MAX. Later changes are compared with these, so that a
 * node's own earlier change does not count as a conflict (ops.c).
 */
struct master_issued {
	struct {
		uint64_t path; /* hash of the path */
		/* issued to the change; newest that its issuer knew of */
		uint64_t gen, from;
	} *ring; /* owns; NULL until first used */
	uint64_t n; /* added so far, overwritten ones included */
};

struct master_session {
	struct pool_list link;
	struct master *m;
	struct pool_conn *conn;	      /* owns until on_close */
	struct master_member *member; /* borrows; NULL: not joined, or ended */
	bool ended;
	uint8_t addr[POOL_ADDRESS_SIZE]; /* of the node's host */
	/* at JOIN: which deletions the node knows of */
	bool only_source;      /* nobody else has sent an inventory */
	uint64_t left_wall_ns; /* 0: unknown; UINT64_MAX: it never left */
	uint64_t saw_seq;      /* of this epoch's feed; 0: unknown */
	uint64_t nrefused;     /* items that may have been deleted meanwhile */
	uint64_t joined_seq; /* feed sequence at WELCOME */
	bool subscribed;
	struct master_sub sub;
	struct pool_share_user feed_user; /* of master.feed_share */
	uint64_t nodes_sent; /* value of members.changes last sent to it */
	struct pool_list waits; /* struct master_sync */
	unsigned int nwaits;
	struct pool_list held; /* messages held back, in order: held.c */
	size_t held_bytes;
	uint64_t opened_ms, sent_ms; /* sent: 0 before WELCOME */
	/* items of the next DROP */
	Kvpool__Drop__Item **drops; /* owns, and each with its path */
	size_t ndrops, drops_cap, drops_bytes;
	uint64_t granted; /* bytes of copies it was allowed to evict so far */
	uint64_t nheld;	  /* HELD items received so far */
	/* OPS whose conditions can be checked only once the master is ready,
	 * and all OPS after them */
	struct pool_list deferred;
	unsigned int ndeferred;
	size_t deferred_bytes;
	uint64_t ndeferred_ops; /* changes in these OPS */
	/* generations issued to this session's conditional changes */
	struct master_issued issued;
};

struct master_sync {
	struct master_wait wait;
	struct pool_list link; /* in session.waits */
	struct master_session *s;
	uint64_t req;
	uint64_t started_ns;
};

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
	MC_COPIES_DAMAGED,
	MC_COPIES_GIVEN_UP,
	MC_WAITS,
	MC_WAITS_REFUSED,
	MC_BAD_MESSAGES,
	MC_BAD_ITEMS,
	MC_CUT_OFF,
	MC_HELD,
	MC_RESULTS_FORGOTTEN,
	MC_OPS_DEFERRED,
	MC_OPS_DEFERRED_REFUSED,
	MC_ISSUED_FORGOTTEN,
	MC_SESSIONS_REFUSED,
	MC_IDS_REFUSED,
	MC_MEMORY_ENDED,
	MC_LOST_KEYS,
	MC_QUOTA_USER,
	MC_QUOTA_POOL,
	MC_NCOUNTERS,
};

struct master_stats {
	struct pool_counter c[MC_NCOUNTERS];
	struct pool_counter requests[POOL_MSG_MAX];
	struct pool_counter graves_forgotten, holders_full;
	struct pool_hist sync;
	struct pool_gauge keys, dirs, attr_bytes, bytes, tombs, grave_bytes;
	struct pool_gauge nodes, nodes_alive, capacity, used, evictable,
		sessions, session_bytes, subscribers, needs, unmet, soft,
		hard, ready, epoch, state_bytes, feed_seq, uptime,
		endangered[MASTER_DANGERS], repairs, repair_left, repair_rate,
		repair_limit, repair_eta, stuck_keys, stuck_bytes, draining;
};

#define MASTER_UNMET_MS 10000 /* until copies without a target are retried */
#define MASTER_URGENCIES 10u /* queues; repair.c defines their order */

struct master_repair {
	/* struct master_need, oldest first */
	struct pool_list waiting[MASTER_URGENCIES];
	struct pool_list later;	  /* failed; retried when due */
	struct pool_list ordered; /* in flight */
	unsigned int nwaiting, nordered; /* nwaiting counts `later`, too */
	bool unmet; /* some wanted copies have no target, or were given up */
	/* Objects and bytes without a target, draining nodes included: counted
	 * so far by the current pass (patrol), and by the last complete one. */
	uint64_t pass_keys, pass_bytes, stuck_keys, stuck_bytes;
	struct master_throttle throttle;
	uint64_t bytes_left; /* of copies that repair wants, or has ordered */
};

struct master_patrol {
	struct master_cursor cursor;
	bool active, again; /* again: start another one when this one ends */
	uint64_t goal;	  /* feed sequence at which it ends */
	uint64_t begun_ms;
	uint64_t next_ms; /* the next one starts by itself then */
	uint64_t rest_ms; /* lower bound of next_ms: master_patrol_by */
};

/* Gates hold back the feed until the state is in etcd (held.c): a ring,
 * oldest first. */
struct master_gates {
	struct master_gate {
		uint64_t feed_seq; /* later changes may be sent ... */
		uint64_t mark;	   /* ... once records up to this are settled */
	} gate[MASTER_GATES_MAX];
	unsigned int first, n;
	uint64_t feed_seq, mark; /* when the gates were last updated */
};

struct master_compaction {
	struct master_cursor cursor;
	bool walking, syncing;
	uint64_t goal;
};

struct master {
	uv_loop_t *loop;
	char *state_path; /* owns, or NULL */
	unsigned int heartbeat_ms, summary_s;
	struct master_map map;
	struct master_members members;
	struct master_state *state; /* owns, or NULL */
	struct etcd_state *etcd_state; /* borrows; then state is NULL */
	bool (*acting)(void *arg); /* NULL: always */
	void *acting_arg;
	struct pool_metrics *metrics; /* borrows, or NULL */
	uint64_t epoch, gen_seq;
	bool recovers;		   /* it may raise the epoch: recover.c */
	uint64_t recover_until_ms; /* end of collecting epochs; 0: ended */
	uint64_t recover_seen;	   /* highest epoch reported by nodes */
	uint64_t stale_logged_ms;  /* last log line about -ESTALE refusals */
	uint64_t ndirs_made;   /* directories with a record in the state */
	uint64_t nkept;	       /* records appended so far */
	uint64_t start_ms, last_tick_ms, next_summary_ms, next_sync_ms;
	bool ready, closing;
	unsigned int nhandles; /* open uv handles, works, sessions */
	struct pool_listener *listener;
	uint16_t port;
	/* budgets of a turn: bytes received, feed entries sent */
	struct pool_share recv_share, feed_share;
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

static inline void master_count(struct master *m, enum master_counter c)
{
	pool_count(&m->stats.c[c]);
}

/* ---- server.c, loop.c, compaction.c ---- */

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

/* ---- recover.c ---- */

/* Start collecting epochs for so long. ms 0: the operator did not request it;
 * no-op. */
void master_recover_begin(struct master *m, unsigned int ms);
void master_recover_tick(struct master *m, uint64_t now_ms);
/* Is the master collecting epochs: JOINs are noted and refused? */
bool master_recovering(const struct master *m);
void master_recover_note(struct master *m, const Kvpool__Join *j);
/* A node has seen epoch `seen`, above ours. True: our epoch is higher now, and
 * all joined sessions have been ended. False: the operator did not allow it, or
 * it failed. */
bool master_recover_raise(struct master *m, uint64_t seen);
/* The highest epoch that the node has seen. */
uint64_t master_join_epoch(const Kvpool__Join *j);
#define MASTER_REMEDY_MAX 320
/* Why a node that has seen epoch `seen` is refused, and the remedy. */
void master_recover_remedy(const struct master *m, uint64_t seen,
			   char text[MASTER_REMEDY_MAX]);

/* ---- keep.c ---- */

/* Apply a record of the state to the map and members: callback of
 * master_state_open and etcd_state_replay. arg is the master. 0, -ENOMEM,
 * -EPROTO. */
int master_load_record(void *arg, const struct master_record *r);
/* Does this master have a state (file or etcd)? Otherwise master_keep* are
 * no-ops. */
bool master_keeps(const struct master *m);
/* Append a record. */
void master_keep(struct master *m, const struct master_record *r);
void master_keep_dir(struct master *m, struct master_dir *d);
/* The file belonged to uid, up to generation gen (0: no-op). */
void master_disown(struct master *m, const struct master_file *f, uint32_t uid,
		   uint64_t gen);
/* Record of which owners tombstones have been forgotten since. */
void master_keep_lost(struct master *m);
void master_keep_rmdir(struct master *m, const char *path, size_t len);
void master_keep_tomb(struct master *m, const struct master_grave *g);
/*
 * Record a blind write: node `by` published the name without knowing of its
 * version replaced_gen, which had been published after a deletion.
 *
 * Why: if this master dies before `by` has the ack, `by` publishes again. The
 * next master, which knows of the deletion, would refuse that with -ESTALE as
 * older, although perhaps no node has replaced_gen any more. The record exempts
 * the changes of `by` from that (deleted_after in ops.c). It is a tombstone for
 * generations below replaced_gen only, so a copy of replaced_gen may return.
 */
void master_keep_blind(struct master *m, const char *path, size_t len,
		       uint32_t uid, const struct master_member *by,
		       uint64_t replaced_gen);
/* The node's id as by_run of a blind write's tombstone. */
uint64_t master_blind_id(const struct master_member *mb);
/* Fills the fields of a TOMB record for g, all but the path. */
void master_keep_tomb_meta(const struct master_grave *g, Kvpool__Meta *ret);
void master_keep_member(struct master *m, const struct master_member *mb);
void master_keep_drain(struct master *m, const struct master_member *mb);
/* Pass buffered records to the kernel, or start writing them to etcd. */
void master_keep_flush(struct master *m);
/*
 * A mark is the number of records queued for etcd so far. It is settled when
 * all these records are in etcd, and so survive this master. With a state file
 * every mark counts as settled: flushed records are in the kernel and survive
 * the process.
 */
uint64_t master_keep_mark(const struct master *m);
/* Records appended so far, to etcd or the file. */
uint64_t master_keep_changes(const struct master *m);
bool master_keep_settled(const struct master *m, uint64_t mark);

/* ---- session.c ---- */

/* Takes ownership of fd: a new connection. arg: the master. */
void master_session_accept(void *arg, int fd);
/* End the connection. If the member is still this session's, it is away from
 * now on. */
void master_session_end(struct master_session *s, const char *why);
/* Send an ERROR, then end the connection. */
void master_session_fail(struct master_session *s, int status,
			 const char *text);
/* Send at once (held.c says what may be). Ends the session if the message
 * cannot be queued. */
void master_session_send(struct master_session *s, enum pool_msg type,
			 uint64_t req, const ProtobufCMessage *msg);
/* Send a HEARTBEAT: in reply to one, or to show the node that we are alive. */
void master_session_beat(struct master_session *s);
/* Queue a DROP. s NULL (the node is not connected): no-op. */
void master_session_drop(struct master_session *s, const char *path, size_t len,
			 uint64_t gen, Kvpool__Drop__Reason reason);
void master_session_flush_drops(struct master_session *s);
void master_session_free_drops(struct master_session *s);
/* m->on_session_end: unsubscribes the session, detaches it from its member,
 * frees its queues. */
void master_session_detach(struct master_session *s);
/* DROP with reason EVICTED, for a copy of `size` bytes that the node wanted to
 * evict; adds to Drop.granted. s may be NULL. */
void master_session_grant(struct master_session *s, const char *path,
			  size_t len, uint64_t gen, uint64_t size);
/* DROPs to all holders of f but `except` (may be NULL). */
void master_drop_holders(struct master *m, const struct master_file *f,
			 const struct master_member *except,
			 Kvpool__Drop__Reason reason);
/* The same for a file no longer in the map, whose holders `held` lists. */
void master_drop_copies(struct master *m, const char *path, size_t len,
			uint64_t gen, const master_holder *held, unsigned int n,
			Kvpool__Drop__Reason reason);

/* ---- held.c ---- */

/*
 * Send once records up to mark are settled, and behind all messages that the
 * session already holds back. Everything but HEARTBEAT, ERROR and FEED is sent
 * this way.
 */
void master_session_send_after(struct master_session *s, enum pool_msg type,
			       uint64_t req, const ProtobufCMessage *msg,
			       uint64_t mark);
/* Does the session hold back messages? Then FEED must wait behind them. */
bool master_session_has_held(const struct master_session *s);
/* Feed sequence up to which changes may be sent. Must not be called in the
 * same turn as a change. */
uint64_t master_feed_limit(struct master *m);
/* Free the session's held messages, unsent. */
void master_held_free(struct master_session *s);

/* ---- answers.c ---- */

/* The node joins: sets ret_welcome's ops_*; the caller frees `ops`. -ENOMEM:
 * the results are missing, and ops_exact is false. */
int master_answers_join(struct master_member *mb, const Kvpool__Join *j,
			Kvpool__Welcome *ret_welcome);
/* Do these OPS continue the sequence of executed and deferred changes? Frees
 * the results that the node has received. */
bool master_answers_follow(struct master_session *s, const Kvpool__Ops *msg);
/* Store the result of a change that was executed. */
void master_answers_add(struct master *m, struct master_member *mb,
			const Kvpool__OpResult *r);
/* Restore from a MEMBER record. */
void master_answers_load(struct master_member *mb,
			 const struct master_record *r);
/*
 * Did this node make the change (run, ticket) before its change with ticket
 * `than` of the current run? Changes of the node's earlier runs are earlier: a
 * file that an earlier run left behind and this run publishes was written after
 * all deletions of its name by that run. False for an unknown run.
 */
bool master_answers_earlier(const struct master_answers *a, uint64_t run,
			    uint64_t ticket, uint64_t than);
/* Before the master is ready: takes a copy of msg to run later, if it is
 * conditional or follows a deferred message. True: the caller must not
 * run it (it was deferred, or refused and the session ended). */
bool master_ops_defer(struct master_session *s, uint64_t req,
		      const Kvpool__Ops *msg, bool conditional);
/* The master is ready: run all deferred OPS. */
void master_ops_run_deferred(struct master *m);
void master_deferred_free(struct master_session *s);
/* A conditional change of path, whose issuer knew of generations up to `from`,
 * was issued `gen`. False: not stored for lack of memory, or it overwrote the
 * oldest entry. */
bool master_issued_add(struct master_issued *g, const char *path, size_t len,
		       uint64_t gen, uint64_t from);
/* Is (path, gen) in the ring? *ret_from: as added. */
bool master_issued_find(const struct master_issued *g, const char *path,
			size_t len, uint64_t gen, uint64_t *ret_from);

/* ---- limits.c ---- */

/* May another connection from this address be accepted? Logged and counted if
 * not. */
bool master_limits_admit(struct master *m,
			 const uint8_t addr[POOL_ADDRESS_SIZE]);
/* Is mb's id in use by a node at another address than that of s? */
bool master_limits_taken(const struct master *m,
			 const struct master_member *mb,
			 const struct master_session *s, uint64_t now_ms);
/* Bytes of memory that all sessions use. */
uint64_t master_limits_bytes(const struct master *m);
/* Ends the largest sessions until the rest are within the bound. */
void master_limits_check(struct master *m);

/* May the user have so many more directories, and bytes of attributes? 0, or
 * -EDQUOT, -ENOSPC (logged and counted). */
int master_limits_names(struct master *m, uint32_t uid, uint64_t dirs,
			uint64_t bytes);

/* ---- handlers; msg is borrowed ---- */

void master_on_ops(struct master_session *s, uint64_t req,
		   const Kvpool__Ops *msg);
/* Executes the changes and sends OPS_DONE. */
void master_ops_run(struct master_session *s, uint64_t req,
		    const Kvpool__Ops *msg);
void master_on_inventory(struct master_session *s,
			 const Kvpool__Inventory *msg);
void master_on_subscribe(struct master_session *s,
			 const Kvpool__Subscribe *msg);
void master_on_feed_ack(struct master_session *s, const Kvpool__FeedAck *msg);
void master_on_sync(struct master_session *s, uint64_t req,
		    const Kvpool__Sync *msg);
void master_on_evict(struct master_session *s, const Kvpool__Evict *msg);
void master_on_held(struct master_session *s, const Kvpool__Held *msg);
/* The HEARTBEAT's list of hot and cold objects. */
void master_on_heat(struct master_session *s, const Kvpool__Heartbeat *msg);

/* ---- pump.c ---- */

/* Send due DROPs, FEEDs and SYNCED to all sessions. */
void master_pump(struct master *m);
/* Callback of feed_share: the session's turn to send its feed has come. */
void master_feed_turn(struct pool_share_user *u);
/* Answer the SYNCs that every subscriber has acked. */
void master_answer_syncs(struct master *m);
/* The session has ended: close its subscription and free its SYNCs. */
void master_unsubscribe(struct master_session *s);
/* End the sessions of subscribers that do not ack the feed in time. */
void master_check_acks(struct master *m, uint64_t now_ms);

/* ---- repair.c ---- */

/* One more copy of `file` that is wanted, or in flight. A file has at most one
 * need at a time. */
struct master_need {
	struct pool_list link; /* repair.waiting, .later or .ordered */
	struct master_file *file;
	uint64_t due_ms; /* in `later`: when it is retried; ordered: timeout */
	uint64_t bytes;	 /* file's size; ordered: in the target's promised */
	uint16_t target; /* ordered: node index */
	uint16_t from;	 /* a move: node that wants to drop it; or NOBODY */
	uint16_t avoid;	 /* node where it failed last, or NOBODY */
	uint8_t tries;
	uint8_t urgency;
	bool ordered;
	bool extra;   /* an extra copy (heat.c), which does not count */
	bool tallied; /* in repair.bytes_left */
	bool displaces; /* evictable objects may be evicted to make room */
};

struct master_want {
	unsigned int left, wanted; /* copies */
	bool put; /* it was published just now: not throttled */
	bool kept; /* must not be evicted: noevict, or pin=hard */
};

void master_repair_init(struct master_repair *r, uint64_t rate,
			unsigned int copies_max);
/* Free at most `max` needs; true: there are more. */
bool master_repair_fini_some(struct master *m, unsigned int max);
/* f's rules want another copy. If f has a need already, only its urgency (while
 * it waits) and `displaces` are updated. */
void master_repair_want(struct master *m, struct master_file *f,
			const struct master_want *want);
/* f has as many copies as its rules want: cancels the need for one more. */
void master_repair_satisfied(struct master *m, struct master_file *f);
/* Cancels f's need of any kind (before f is removed or overwritten). */
void master_repair_cancel(struct master *m, struct master_file *f);
/*
 * f's attributes have changed: sends them to those of its holders that are
 * stores without a mount, but not to `except` (may be NULL). These stores
 * receive no feed, and list the attributes in their inventories after a restart
 * of the master.
 */
void master_repair_tell_attrs(struct master *m, struct master_file *f,
			      const struct master_member *except);
/* Copy f to `to` so that `from` may drop it. No-op if f has a need already. */
void master_repair_move(struct master *m, struct master_file *f, uint16_t from,
			struct master_member *to);
/* Order an extra copy of f. False: throttled, or no store can take it now. */
bool master_repair_extra(struct master *m, struct master_file *f);
/* Update mb's figures (capacity, used, ...), and patrol soon if it has room
 * again. */
void master_repair_figures(struct master *m, struct master_member *mb,
			   const Kvpool__NodeInfo *info);
/* mb's connection is lost: retry the copies that it was ordered to make. */
void master_repair_cut_off(struct master *m, const struct master_member *mb);
/* Retry what is due, and order copies within the bounds. */
void master_repair_run(struct master *m, uint64_t now_ms);
/* Seconds until repair is done at its present speed; -1: unknown, or never,
 * because copies have no target. */
int64_t master_repair_seconds_left(const struct master_repair *r);
/* A patrol begins; has reviewed f (leaves: a draining node holds it); has
 * reviewed the whole map. */
void master_repair_pass_begin(struct master *m);
void master_repair_pass(struct master *m, const struct master_file *f,
			bool leaves);
void master_repair_pass_end(struct master *m);

/* ---- evict.c ---- */

/* Turns copies beyond `wanted` into cached ones (DROP with SURPLUS), but not
 * that of `keep` (NULL: no exception). True: there were any. */
bool master_give_up_surplus(struct master *m, struct master_file *f,
			    unsigned int wanted,
			    const struct master_member *keep);

/* ---- drain.c ---- */

/* A patrol begins; has reviewed f (true: a draining node holds it); has
 * reviewed the whole map. */
void master_drain_pass_begin(struct master *m);
bool master_drain_pass(struct master *m, const struct master_file *f);
void master_drain_pass_end(struct master *m);
/* f has been reviewed, by a patrol or after a change. */
void master_drain_reviewed(struct master *m, const struct master_file *f);
/* Does a draining node hold copies that can still be moved? */
bool master_drain_busy(const struct master *m);

/* ---- review.c ---- */

enum master_reviewed { MASTER_KEPT, MASTER_GONE };
/*
 * Bring f in line with its holders and rules: removes invalid holders (see
 * master_holder_stands), requests missing copies, and once there are enough
 * turns surplus copies and those on clients into cached ones. Touches f in the
 * feed if its holders changed. MASTER_GONE: f had no holder left and was freed.
 */
enum master_reviewed master_review(struct master *m, struct master_file *f);
/* The same for a file that `from` has just published: its copies are not
 * throttled, and that of `from` is not surplus. */
void master_review_put(struct master *m, struct master_file *f,
		       const struct master_member *from);

/* ---- patrol.c ---- */

/* Start a patrol; if one is running, another follows it. */
void master_patrol_start(struct master *m);
/* Have a patrol start within `ms`; later if that is needed to keep patrols
 * below a fifth of the time. */
void master_patrol_by(struct master *m, uint64_t ms);
/* One slice; false: the patrol is done. */
bool master_patrol_slice(struct master *m);

/* ---- compaction.c ---- */

/* One slice; false: the walk is done. */
bool master_compaction_slice(struct master *m);
void master_compaction_start(struct master *m);
/* The worker has synced the new file; err: 0 or -errno. */
void master_compaction_synced(struct master *m, int err);

/* ---- meta.c ---- */

/* Validate a node's Meta: 0 or -EINVAL. whole: it describes an object, so it
 * needs a sum of 16 bytes. */
int master_meta_check(const Kvpool__Meta *meta, bool whole);
void master_meta_attrs(const Kvpool__Meta *meta, struct master_attrs *ret);
/*
 * The xattrs of a Meta and the rules among them. A bad rule is -EINVAL or
 * -ENOTSUP if strict, else ignored. 0 or -errno; *ret_xattrs is the caller's,
 * NULL if empty.
 */
int master_meta_xattrs(const Kvpool__Meta *meta, bool is_dir, bool strict,
		       uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
		       struct pool_rules *ret_rules);
/* POOL_SET_XATTR_EACH: `old` with meta's xattrs set, strictly, and `remove`
 * ("": none) removed. Errors as above, and -ENOSPC. */
int master_meta_xattr_each(const Kvpool__Meta *meta, const char *remove,
			   const struct pool_xattrs *old, bool is_dir,
			   uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
			   struct pool_rules *ret_rules);

/* Entries collected for one message. The metas borrow from the map, which must
 * not change before master_batch_reset. */
struct master_batch {
	size_t n, bytes;
	size_t used; /* of arena */
	Kvpool__Meta metas[POOL_BATCH_MAX];
	Kvpool__Meta *list[POOL_BATCH_MAX];
	void *xattrs[POOL_BATCH_MAX]; /* owns */
	uint8_t arena[512u << 10];
};
/* The only batch, empty. */
struct master_batch *master_batch_start(struct master *m);
bool master_batch_full(const struct master_batch *b);
/* 0 or -ENOMEM. The batch must not be full. */
int master_batch_add(struct master_batch *b, struct master_item *i);
/* The same for a FEED: if the name was a directory and is now a file, or the
 * reverse, an entry that deletes the old one comes first. */
int master_batch_add_feed(struct master_batch *b, struct master_item *i);
void master_batch_reset(struct master_batch *b);

/* For the one message that is being built: until it has been sent. */
struct master_buffers {
	struct master_batch batch;
	Kvpool__OpResult results[POOL_BATCH_MAX];
	Kvpool__OpResult *result_list[POOL_BATCH_MAX];
	Kvpool__NodeInfo nodes[MASTER_NODES_MAX];
	Kvpool__NodeInfo *node_list[MASTER_NODES_MAX];
};

/* ---- stats.c ---- */

int master_stats_register(struct master *m, struct pool_metrics *metrics);
void master_summary(struct master *m);

#endif
