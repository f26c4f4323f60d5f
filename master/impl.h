/*
 * The inside of the master, shared by the files that make it up:
 *
 *   loop.c       what every file may ask of the loop: a kick, slices
 *   outbox.c     sending to a session, and ending one
 *   held.c       messages that wait until the state is in etcd
 *   drops.c      DROP: copies that a node must give up
 *   keep.c       the state's records to and from the map; file or etcd
 *   meta.c       validation and encoding of Meta
 *   repair.c     REPLICATE, HELD: copies made
 *   evict.c      EVICT, surplus: copies given up
 *   drain.c      emptying a node before it is switched off
 *   review.c     one file: its holders, missing copies, surplus ones
 *   patrol.c     a walk that reviews every file
 *   compaction.c rewriting the state file
 *   heat.c       extra copies of objects that are read often
 *   pump.c       FEED, FEED_ACK, SYNC
 *   answers.c    results that a node may not have received; OPS sent again
 *   ops.c        OPS: changes that nodes ask for
 *   inventory.c  INVENTORY: what a node holds, after a join
 *   limits.c     bounds on sessions and memory, by address and in all; on
 *                what names cost, by user
 *   recover.c    a master whose state was lost
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
 * A session that is to end (a bad message, too slow, replaced) is detached from
 * its member at once; its memory goes with the connection's on_close.
 *
 * No turn of the loop is long, however much there is to do: what is heard and
 * what is told is shared out among the sessions (pool/conn/share.h), walks go
 * in slices, repair looks at so many needs, and even the end is in slices.
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
#define MASTER_SESSIONS_ADDR 512    /* of one address */
#define MASTER_SESSIONS_BYTES (1ull << 30) /* kept for all: limits.c */
#define MASTER_WHOLE_GRACE 10	    /* MASTER_GRACEs without a whole message */
#define MASTER_WAITS_MAX 1024	    /* SYNCs of one session; beyond: no answer */
#define MASTER_HELD_BYTES (8u << 20) /* of one session, that waits for etcd */
#define MASTER_BARS_MAX 64	    /* of the feed; beyond: coarser ones */
#define MASTER_LATER_MAX 8	    /* OPS of one session that wait for that */
#define MASTER_OWN_MAX 8192u	    /* generations that a session was given */
#define MASTER_TOMBS_MAX 1000000u
#define MASTER_GHOSTS_MAX 250000u
#define MASTER_TOMB_AGE_NS (24ull * 3600 * 1000000000ull)
#define MASTER_SLICE 2000	    /* entries walked in one turn */
#define MASTER_COALESCE_MS 1	    /* changes are told together */
/* Of all sessions in one turn: bytes of messages handled, and entries told. */
#define MASTER_TURN_BYTES (256u << 10)
#define MASTER_TURN_TOLD 16384u
#define MASTER_GRACE 3		    /* heartbeats */

/* What changes were given that came with a condition: the last MASTER_OWN_MAX.
 */
struct master_given {
	struct {
		uint64_t path; /* hash */
		uint64_t gen, from; /* given; it was made knowing of that */
	} *ring; /* owns, or NULL */
	uint64_t n; /* ever */
};

struct master_session {
	struct pool_list link;
	struct master *m;
	struct pool_conn *conn;	      /* owns until on_close */
	struct master_member *member; /* borrows; NULL: not joined, or ended */
	bool ended;
	uint8_t addr[POOL_ADDRESS_SIZE]; /* whence it came */
	bool trusted; /* names the map does not know are accepted from it */
	uint64_t joined_seq; /* of the feed, when it was welcomed */
	bool subscribed;
	struct master_sub sub;
	struct pool_share_user telling; /* of master.told */
	uint64_t nodes_told; /* members.changes it has been told of */
	struct pool_list waits;
	unsigned int nwaits;
	struct pool_list held; /* what waits for the state, in order: held.c */
	size_t held_bytes;
	uint64_t opened_ms, sent_ms; /* sent: 0 before WELCOME */
	/* DROPs to go out together */
	Kvpool__Drop__Item **drops; /* owns, and each with its path */
	size_t ndrops, drops_cap, drops_bytes;
	uint64_t granted; /* bytes that it was told to drop for room, ever */
	uint64_t heard;	  /* HELD items */
	/* OPS with conditions that cannot be judged before the map is whole,
	 * and those behind them */
	struct pool_list later;
	unsigned int nlater;
	size_t later_bytes;
	uint64_t noff; /* changes in these */
	/* What conditional changes of this session were given, for the
	 * conditions of those after them */
	struct master_given own;
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
	MC_OPS_PUT_OFF,
	MC_OPS_PUT_OFF_REFUSED,
	MC_OWN_FORGOTTEN,
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
	struct pool_gauge keys, dirs, attr_bytes, bytes, tombs, nodes, nodes_alive,
		capacity, used, evictable, sessions, session_bytes, subscribers, needs, unmet,
		soft, hard, ready, epoch, state_bytes, feed_seq, uptime,
		endangered[MASTER_DANGERS], repairs, repair_left, repair_rate,
		repair_limit, repair_eta, stuck_keys, stuck_bytes, draining;
};

#define MASTER_UNMET_MS 10000 /* until copies that found no room are tried */
#define MASTER_URGENCIES 10u /* queues; their order is said in repair.c */

struct master_repair {
	/* struct master_need, oldest first */
	struct pool_list waiting[MASTER_URGENCIES];
	struct pool_list later;	  /* failed, and not due yet */
	struct pool_list ordered; /* under way */
	unsigned int nwaiting, nordered; /* waiting has those of later, too */
	bool unmet; /* copies are wanted that no store has room for */
	/* Of how much, that is kept by who is to be emptied, too: as counted by
	 * the patrol under way, and by the last one. */
	uint64_t pass_keys, pass_bytes, stuck_keys, stuck_bytes;
	struct master_throttle throttle;
	uint64_t bytes_left; /* of copies that repair wants, or has ordered */
};

struct master_patrol {
	struct master_cursor cursor;
	bool active, again;
	uint64_t goal;	  /* sequence at which it ends */
	uint64_t begun_ms;
	uint64_t next_ms; /* when the next one begins by itself */
	uint64_t rest_ms; /* and not before that, unless it is started */
};

/* Of the feed: a ring, the oldest at first. */
struct master_bars {
	struct master_bar {
		uint64_t feed_seq; /* what is behind this is not told before */
		uint64_t mark;	   /* all up to this is settled */
	} bar[MASTER_BARS_MAX];
	unsigned int first, n;
	uint64_t feed_seq, mark; /* at the last look */
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
	bool (*acting)(void *arg);
	void *acting_arg;
	struct pool_metrics *metrics; /* borrows, or NULL */
	uint64_t epoch, gen_seq;
	bool recovers;		   /* it may raise the epoch: recover.c */
	uint64_t recover_until_ms; /* 0: all that can be known is */
	uint64_t recover_seen;	   /* the highest epoch that nodes told */
	uint64_t stale_said_ms;	   /* when refusing for its sake was logged */
	uint64_t ndirs_made;   /* directories kept in the state */
	uint64_t nkept;	       /* records appended, ever */
	uint64_t lost_kept_ns; /* map.lost_wall_ns as kept in the state */
	uint64_t start_ms, last_tick_ms, next_summary_ms, next_sync_ms;
	bool ready, closing;
	unsigned int nhandles; /* open uv handles, works, sessions */
	struct pool_listener *listener;
	uint16_t port;
	struct pool_share heard, told; /* by, to the sessions */
	uv_timer_t tick, pump;
	uv_idle_t slices;
	/* What stands above the files that ask for it; set by server.c. */
	uv_timer_cb on_pump;
	uv_idle_cb on_slices;
	void (*on_handles_gone)(struct master *m);
	void (*on_session_end)(struct master_session *s); /* session.c */
	bool pump_armed;
	uv_work_t sync_work;
	bool sync_busy, sync_is_compaction;
	int sync_fd, sync_err;
	struct pool_list sessions;
	struct master_given given; /* to all sessions, ended ones, too */
	struct master_bars bars;
	unsigned int nsessions, nsubscribers;
	unsigned int sessions_addr_max;
	uint64_t sessions_bytes_max;
	struct master_repair repair;
	struct master_patrol patrol;
	struct master_compaction compaction;
	struct master_stats stats;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* Nothing may be told to anybody after the lease of a leader has ended. */
static inline bool master_acting(const struct master *m)
{
	return !m->acting || m->acting(m->acting_arg);
}

static inline void master_count(struct master *m, enum master_counter c)
{
	pool_count(&m->stats.c[c]);
}

/* ---- server.c ---- */

uint64_t master_next_gen(struct master *m);
/* Something changed: tell the subscribers within MASTER_COALESCE_MS. */
void master_kick(struct master *m);
/* Run slices (patrol, compaction) until they say they are done. */
void master_slices_start(struct master *m);
/* One of m->nhandles is gone. */
void master_handle_gone(struct master *m);
/* Ready if nobody of the last epoch is missing any more, or time is over. */
void master_check_ready(struct master *m);
/* fdatasync(2) fd in a worker and close it. compaction: then commit it. */
void master_sync_start(struct master *m, int fd, bool compaction);

/* ---- recover.c ---- */

/* ms: 0, not asked for. */
void master_recover_begin(struct master *m, unsigned int ms);
void master_recover_tick(struct master *m, uint64_t now_ms);
/* Are JOINs noted and turned away? */
bool master_recovering(const struct master *m);
void master_recover_note(struct master *m, const Kvpool__Join *j);
/* Somebody has seen this epoch, above ours, after that. true: ours is higher
 * now, and all are to join again. */
bool master_recover_later(struct master *m, uint64_t seen);
/* The highest epoch that the node has seen. */
uint64_t master_join_epoch(const Kvpool__Join *j);
#define MASTER_REMEDY_MAX 320
/* Why such a node is refused, and what to do. */
void master_recover_remedy(const struct master *m, uint64_t seen,
			   char text[MASTER_REMEDY_MAX]);

/* ---- keep.c ---- */

/* For master_state_open; arg is the master. */
int master_load_record(void *arg, const struct master_record *r);
/* Is anything kept? If not, what follows does nothing. */
bool master_keeps(const struct master *m);
/* Append a record. */
void master_keep(struct master *m, const struct master_record *r);
void master_keep_dir(struct master *m, struct master_dir *d);
void master_keep_rmdir(struct master *m, const char *path, size_t len);
void master_keep_tomb(struct master *m, const struct master_grave *g);
/*
 * A blind change: `by` published the name without knowing of replaced_gen, which
 * had been published after a deletion. If `by` and this master die before the
 * answer, `by` publishes again, and the next master, which knows of the deletion,
 * would take that for older: but perhaps nobody has replaced_gen any more. So the
 * state says whose later versions are not older. To the next master the name is
 * one that left; a copy of replaced_gen may come back.
 */
void master_keep_blind(struct master *m, const char *path, size_t len,
		       const struct master_member *by, uint64_t replaced_gen);
uint64_t master_blind_id(const struct master_member *mb);
/* What such a record says of g, besides its path. */
void master_keep_tomb_meta(const struct master_grave *g, Kvpool__Meta *ret);
void master_keep_member(struct master *m, const struct master_member *mb);
void master_keep_drain(struct master *m, const struct master_member *mb);
/* Hand what was appended on, to the kernel or to etcd. */
void master_keep_flush(struct master *m);
/* What has been appended until now; and does all up to a mark outlive this
 * master? (What the kernel has does.) */
uint64_t master_keep_mark(const struct master *m);
/* Records appended until now. */
uint64_t master_keep_changes(const struct master *m);
bool master_keep_settled(const struct master *m, uint64_t mark);

/* ---- session.c ---- */

void master_session_accept(void *arg, int fd);
/* End the connection; the member (if still this session's) is away from now. */
void master_session_end(struct master_session *s, const char *why);
/* The same, after an ERROR. */
void master_session_fail(struct master_session *s, int status,
			 const char *text);
/* Ends the session if it cannot be queued. */
void master_session_send(struct master_session *s, enum pool_msg type,
			 uint64_t req, const ProtobufCMessage *msg);
/* A HEARTBEAT: the answer to one, or so that it hears something. */
void master_session_beat(struct master_session *s);
/* Queue a DROP. s may be NULL: nobody is there to be told. */
void master_session_drop(struct master_session *s, const char *path, size_t len,
			 uint64_t gen, Kvpool__Drop__Reason reason);
void master_session_flush_drops(struct master_session *s);
void master_session_free_drops(struct master_session *s);
/* m->on_session_end: what ends with a session. */
void master_session_detach(struct master_session *s);
/* EVICTED, of `size` bytes: it has more room when it hears of it. */
void master_session_grant(struct master_session *s, const char *path,
			  size_t len, uint64_t gen, uint64_t size);
/* DROPs to everybody who holds f, but `except` (may be NULL). */
void master_drop_holders(struct master *m, const struct master_file *f,
			 const struct master_member *except,
			 Kvpool__Drop__Reason reason);
/* The same of a file that had these holders. */
void master_drop_copies(struct master *m, const char *path, size_t len,
			uint64_t gen, const master_holder *held, unsigned int n,
			Kvpool__Drop__Reason reason);

/* ---- held.c ---- */

/*
 * master_session_send, once what was appended up to mark is settled, and behind
 * what waits already. All but HEARTBEAT, ERROR and FEED is sent by it.
 */
void master_session_answer(struct master_session *s, enum pool_msg type,
			   uint64_t req, const ProtobufCMessage *msg,
			   uint64_t mark);
/* Does anything wait? Then a FEED has to, too. */
bool master_session_waits(const struct master_session *s);
/* The newest change that may be told. Not in the turn of a change. */
uint64_t master_may_tell(struct master *m);
/* Forget what the session waits for. */
void master_held_free(struct master_session *s);

/* ---- answers.c ---- */

/* The node joins: sets ret_welcome's ops_*, whose `ops` the caller frees.
 * -ENOMEM: they are missing, and it is told so. */
int master_answers_join(struct master_member *mb, const Kvpool__Join *j,
			Kvpool__Welcome *ret_welcome);
/* Is this what follows the changes that were executed? Forgets what the node
 * has received. */
bool master_answers_follow(struct master_session *s, const Kvpool__Ops *msg);
/* A change was executed. */
void master_answers_add(struct master *m, struct master_member *mb,
			const Kvpool__OpResult *r);
/* From a MEMBER record. */
void master_answers_load(struct master_member *mb,
			 const struct master_record *r);
/*
 * Was the change `ticket` of `run` made by this node, before `than` of the
 * present run? A file that an earlier run put and this one found was put after
 * all that that run deleted under its name. Of runs that are not known: false.
 */
bool master_answers_earlier(const struct master_answers *a, uint64_t run,
			    uint64_t ticket, uint64_t than);
/* Puts msg off until the map is whole, if it, or one before it, has to wait for
 * that. */
bool master_ops_later(struct master_session *s, uint64_t req,
		      const Kvpool__Ops *msg);
/* The map is whole. */
void master_ops_now(struct master *m);
void master_later_free(struct master_session *s);
/* A conditional change, made knowing of `from`, gave this path gen. False:
 * that one, or an older, is forgotten. */
bool master_given_add(struct master_given *g, const char *path, size_t len,
		      uint64_t gen, uint64_t from);
/* Did one? */
bool master_given_find(const struct master_given *g, const char *path,
		       size_t len, uint64_t gen, uint64_t *ret_from);

/* ---- what who connects may cost: limits.c ---- */

/* May another connection come from there? Logged and counted if not. */
bool master_limits_admit(struct master *m,
			 const uint8_t addr[POOL_ADDRESS_SIZE]);
/* Is the id of mb another address's than that of s? */
bool master_limits_taken(const struct master *m,
			 const struct master_member *mb,
			 const struct master_session *s, uint64_t now_ms);
/* Bytes kept for all sessions. */
uint64_t master_limits_bytes(const struct master *m);
/* Ends those who keep too much, until the rest is within the bound. */
void master_limits_check(struct master *m);

/* May the user have so many more directories, and bytes of attributes? 0,
 * -EDQUOT, -ENOSPC; these are logged and counted. */
int master_limits_names(struct master *m, uint32_t uid, uint64_t dirs,
			uint64_t bytes);

/* ---- handlers; msg is borrowed ---- */

void master_on_ops(struct master_session *s, uint64_t req,
		   const Kvpool__Ops *msg);
/* Executes them. */
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
/* What a HEARTBEAT says of objects that are hot or cold. */
void master_on_heat(struct master_session *s, const Kvpool__Heartbeat *msg);

/* ---- pump.c ---- */

/* Send to everybody what is due, DROPs too. */
void master_pump(struct master *m);
/* The same to one who had to wait for its turn. */
void master_tell_go(struct pool_share_user *u);
/* Answer the SYNCs that are over. */
void master_answer_syncs(struct master *m);
/* The session has ended: no subscriber and no waits any more. */
void master_unsubscribe(struct master_session *s);
/* Cut off who does not acknowledge. */
void master_check_acks(struct master *m, uint64_t now_ms);

/* ---- repair.c ---- */

/* A copy of file on target is wanted, or on its way. */
struct master_need {
	struct pool_list link; /* repair.waiting, .later or .ordered */
	struct master_file *file;
	uint64_t due_ms;       /* later: not before; ordered: given up then */
	uint64_t bytes;	       /* its size; ordered: promised to target */
	uint16_t target;       /* ordered: index */
	uint16_t from;	       /* a move: who wants to drop it; or NOBODY */
	uint16_t avoid;	       /* where it failed last, or NOBODY */
	uint8_t tries;
	uint8_t urgency;
	bool ordered;
	bool extra;   /* not to be counted */
	bool tallied; /* in repair.bytes_left */
	bool displaces; /* what may be evicted makes room for it */
};

struct master_want {
	unsigned int left, wanted; /* copies */
	bool put; /* it was published just now: not throttled */
	bool kept; /* must not be evicted */
};

void master_repair_init(struct master_repair *r, uint64_t rate,
			unsigned int copies_max);
/* Forget at most `max` of the copies wanted; true: there are more. */
bool master_repair_fini_some(struct master *m, unsigned int max);
/* A copy of f is wanted by its rules. If one is on its way already, only its
 * urgency changes. */
void master_repair_want(struct master *m, struct master_file *f,
			const struct master_want *want);
/* No further copy is wanted by the rules. */
void master_repair_satisfied(struct master *m, struct master_file *f);
/* Forget about f's copy, whatever for (before it is removed or rewritten). */
void master_repair_cancel(struct master *m, struct master_file *f);
/* f's attributes have changed: stores without a mount, which have no feed, are
 * told (`except` may be NULL), because they bring them back after a restart of
 * the master. */
void master_repair_tell_attrs(struct master *m, struct master_file *f,
			      const struct master_member *except);
/* Copy f to `to` so that `from` may drop it; nothing if one is on its way. */
void master_repair_move(struct master *m, struct master_file *f, uint16_t from,
			struct master_member *to);
/* Order an extra copy of f. false: not now, or nobody has room. */
bool master_repair_extra(struct master *m, struct master_file *f);
/* Figures of mb have come. */
void master_repair_figures(struct master *m, struct master_member *mb,
			   const Kvpool__NodeInfo *info);
/* mb is away: what it was to copy is ordered again. */
void master_repair_cut_off(struct master *m, const struct master_member *mb);
/* Order what is due, within the bounds. */
void master_repair_run(struct master *m, uint64_t now_ms);
/* Until repair is done at its present speed; -1: unknown, or it cannot end, as
 * copies have nowhere to go. */
int64_t master_repair_seconds_left(const struct master_repair *r);
/* A patrol begins, has reviewed f (leaves: it is with a node that is to be
 * emptied), has been over the whole map. */
void master_repair_pass_begin(struct master *m);
void master_repair_pass(struct master *m, const struct master_file *f,
			bool leaves);
void master_repair_pass_end(struct master *m);

/* ---- evict.c ---- */

/* Copies beyond `wanted` become cache of their nodes, not that of `keep` (NULL:
 * any). Did any? */
bool master_give_up_surplus(struct master *m, struct master_file *f,
			    unsigned int wanted,
			    const struct master_member *keep);

/* ---- drain.c ---- */

/* A patrol begins, has reviewed f (true: it is with such a node), has been over
 * the whole map. */
void master_drain_pass_begin(struct master *m);
bool master_drain_pass(struct master *m, const struct master_file *f);
void master_drain_pass_end(struct master *m);
/* f has been reviewed, by whomever. */
void master_drain_reviewed(struct master *m, const struct master_file *f);
/* Does anything remain to be moved (that has room)? */
bool master_drain_busy(const struct master *m);

/* ---- patrol.c ---- */

enum master_reviewed { MASTER_KEPT, MASTER_GONE };
/*
 * Bring f in line with its holders and rules: holders that do not stand go,
 * copies that are wanted are asked for, surplus ones and those on clients stop
 * counting. The feed is told if something changed. MASTER_GONE: nobody held it
 * any more, f is freed.
 */
enum master_reviewed master_review(struct master *m, struct master_file *f);
/* The same for what `from` published just now: its copies are not throttled,
 * and its own is kept. */
void master_review_put(struct master *m, struct master_file *f,
		       const struct master_member *from);
void master_patrol_start(struct master *m);
/* One is to begin by itself in so many ms, if none does before; but patrols
 * have a fifth of the time only. */
void master_patrol_by(struct master *m, uint64_t ms);
/* One slice; false: nothing left to do. */
bool master_patrol_slice(struct master *m);
bool master_compaction_slice(struct master *m);
void master_compaction_start(struct master *m);
void master_compaction_synced(struct master *m, int err);

/* ---- meta.c ---- */

/* What a node says of a name: 0 or -EINVAL. whole: size, sum (16 bytes). */
int master_meta_check(const Kvpool__Meta *meta, bool whole);
void master_meta_attrs(const Kvpool__Meta *meta, struct master_attrs *ret);
/*
 * The xattrs of a Meta and the rules among them. strict: a bad rule is -EINVAL
 * or -ENOTSUP; else it is passed over. 0 or -errno; *ret_xattrs is the
 * caller's, NULL if empty.
 */
int master_meta_xattrs(const Kvpool__Meta *meta, bool is_dir, bool strict,
		       uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
		       struct pool_rules *ret_rules);
/* The same of what POOL_SET_XATTR_EACH makes of `old`: meta's xattrs are set,
 * strictly, and `remove` ("": none) goes. Also -ENOSPC. */
int master_meta_xattr_each(const Kvpool__Meta *meta, const char *remove,
			   const struct pool_xattrs *old, bool is_dir,
			   uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
			   struct pool_rules *ret_rules);

/* Entries being put together for one message. Its metas borrow from the map,
 * which must not change before master_batch_reset. */
struct master_batch {
	size_t n, bytes;
	size_t used; /* of arena */
	Kvpool__Meta metas[POOL_BATCH_MAX];
	Kvpool__Meta *list[POOL_BATCH_MAX];
	void *xattrs[POOL_BATCH_MAX]; /* owns */
	uint8_t arena[512u << 10];
};
/* The one batch there is (the loop thread's), empty. */
struct master_batch *master_batch_start(void);
bool master_batch_full(const struct master_batch *b);
/* 0 or -ENOMEM. There must be room (not full). */
int master_batch_add(struct master_batch *b, struct master_item *i);
/* The same for mirrors: a name that was a directory and is now a file, or the
 * reverse, is preceded by the deletion of what it was. */
int master_batch_add_feed(struct master_batch *b, struct master_item *i);
void master_batch_reset(struct master_batch *b);

/* ---- stats.c ---- */

int master_stats_register(struct master *m, struct pool_metrics *metrics);
void master_summary(struct master *m);

#endif
