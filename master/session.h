/*
 * One node's connection, and what the master has to tell it: results, DROPs,
 * the feed, answers to SYNC. Which file changes which fields of a session:
 *
 *   session.c    all that is not named below
 *   outbox.c     sent_ms
 *   held.c       held, held_bytes, and the master's gates
 *   drops.c      drops, ndrops, drops_cap, drops_bytes, granted
 *   pump.c       subscribed, sub, feed_user, nodes_sent, waits, nwaits
 *   stats.c      lag
 *   answers.c    deferred, ndeferred, deferred_bytes, ndeferred_ops
 *   ops.c        results, nresults, ops_feed_seq; issued (through functions of
 *                answers.c)
 *   repair.c     nheld
 *   inventory.c  nrefused, nunjudged, inventory, inventory_bytes
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
 * Thread: loop.
 */
#ifndef MASTER_SESSION_H
#define MASTER_SESSION_H

#include "master/map.h"
#include "master/members.h"
#include "master/state.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

struct master;

#define MASTER_SESSIONS_MAX (MASTER_NODES_MAX + 64)
#define MASTER_SESSIONS_ADDR 512    /* default: sessions from one address */
#define MASTER_SESSIONS_BYTES (1ull << 30) /* default: of all: limits.c */
#define MASTER_WHOLE_GRACE 10	    /* time to receive one whole message, in
				       units of the grace (MASTER_GRACE) */
#define MASTER_WAITS_MAX 1024	    /* SYNCs per session; more: not answered */
#define MASTER_HELD_BYTES (8u << 20) /* held back per session: held.c */
#define MASTER_GATES_MAX 64	    /* of the feed; then they merge: held.c */
#define MASTER_PAUSE_MS 100	    /* a SYNC that waits for etcd so long stops
				       changes for a moment: pump.c */
#define MASTER_DEFERRED_MAX 8	    /* deferred OPS per session; a node has
				       4 in flight (NODE_OPS_INFLIGHT) */
#define MASTER_ISSUED_MAX 8192u	    /* entries of struct master_issued */

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

/* Metrics of one subscriber, in the registry while it is one. */
struct master_lag {
	struct pool_gauge changes, oldest_ns;
	char labels[192];
};

struct master_session {
	struct pool_list link;
	struct master *m;
	struct pool_conn *conn;	      /* owns until on_close */
	struct master_member *member; /* borrows; NULL: not joined, or ended */
	bool ended;
	uint8_t addr[POOL_ADDRESS_SIZE]; /* of the node's host */
	/* at JOIN: which deletions the node knows of */
	bool only_source;      /* no other node has sent its inventory */
	uint64_t left_wall_ns; /* 0: unknown; UINT64_MAX: it never left */
	uint64_t saw_seq;      /* of this epoch's feed; 0: unknown */
	uint64_t nrefused;     /* items that may have been deleted meanwhile */
	/* items outside of its namespaces that the map lacked before the master
	 * was ready */
	uint64_t nunjudged;
	/* parts of the inventory that wait for etcd; meanwhile no more is read
	 * from the session */
	struct pool_list inventory;
	size_t inventory_bytes;
	uint64_t joined_seq; /* feed sequence at WELCOME */
	bool subscribed;
	struct master_sub sub;
	struct pool_share_user feed_user; /* of master.feed_share */
	uint64_t nodes_sent; /* changes of members up to this value of
				members.changes have been sent to it */
	struct master_lag lag;
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
	/* OPS whose conditions can be checked only once the master is ready, or
	 * that wait for the member's quantum, and all OPS after them */
	struct pool_list deferred;
	unsigned int ndeferred; /* messages */
	size_t deferred_bytes;
	uint64_t ndeferred_ops; /* changes in these OPS */
	/* owns; of a message whose parts are being run. NULL: none */
	Kvpool__OpResult *results;
	size_t nresults; /* changes of the message that were executed */
	uint64_t ops_feed_seq; /* of the feed before the message's changes */
	/* generations issued to this session's conditional changes */
	struct master_issued issued;
};

struct master_sync {
	struct master_wait wait;
	struct pool_list link; /* in session.waits */
	struct master_session *s;
	uint64_t req;
	uint64_t mark; /* of the state's records when it came */
	uint64_t started_ns;
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

/* ---- session.c, outbox.c, drops.c ---- */

/* Takes ownership of fd: a new connection. arg: the master. */
void master_session_accept(void *arg, int fd);
/* End the connection. If the member is still this session's, it is away from
 * now on. */
void master_session_end(struct master_session *s, const char *why);
/* Send an ERROR, then end the connection. */
void master_session_fail(struct master_session *s, int status,
			 const char *text);
/* Send at once (held.c says which messages may be). Ends the session if the
 * message cannot be queued. */
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
/* Is a DROP the last message that the session holds back? */
bool master_session_holds_drop(const struct master_session *s);
/* Feed sequence up to which changes may be sent to the session. Must not be
 * called in the same turn as a change. */
uint64_t master_session_feed_limit(const struct master_session *s);
/* Is a part of the feed kept from some session, because changes are not in etcd
 * yet, or not answered? Must not be called in the same turn as a change. */
bool master_feed_gated(struct master *m);
/* Free the session's held messages, unsent. */
void master_held_free(struct master_session *s);

/* ---- answers.c ---- */

/* The node joins: sets ret_welcome's ops_*; the caller frees `ops`. -ENOMEM:
 * the results are missing, and ops_exact is false. */
int master_answers_join(struct master_member *mb, const Kvpool__Join *j,
			Kvpool__Welcome *ret_welcome);
/* The node has received a WELCOME of this master. From now on, changes that a
 * former master may have executed come as conditional ones. */
void master_answers_welcomed(struct master_member *mb);
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
 * `than` of the current run? All changes of its earlier runs count as earlier,
 * even if the current run publishes a file that an earlier run left: that run
 * had deleted the name before it wrote the file. False for an unknown run.
 */
bool master_answers_earlier(const struct master_answers *a, uint64_t run,
			    uint64_t ticket, uint64_t than);
/* Takes a copy of msg to run later, if it is conditional and the master is not
 * ready, if the member's quantum is used up or too small, or if it follows a
 * deferred message. A message of more than POOL_OPS_QUANTUM changes, or with
 * etcd MASTER_UNSETTLED_MAX, is run in parts, so that others' changes come in
 * between. True: the caller must not run it (it was deferred and perhaps run,
 * or refused and the session ended). */
bool master_ops_defer(struct master_session *s, uint64_t req,
		      const Kvpool__Ops *msg, bool conditional);
/* The master is ready: run all deferred OPS. */
void master_ops_run_deferred(struct master *m);
/* Run deferred OPS of members whose next quantum has begun. */
void master_ops_quanta(struct master *m);
/* The member made this many changes, which the feed must carry. */
void master_quantum_spend(struct master *m, struct master_member *mb,
		       size_t changes);
/* The member has caused records of this cost (keep.h), up to that mark. */
void master_quantum_records(struct master_member *mb, uint64_t cost,
			    uint64_t mark);
/* Have the member's records cost less than this since etcd had all of them? */
bool master_quantum_has(struct master *m, struct master_member *mb,
			unsigned int max);
/* Runs the message's changes from the `done`th on later, before all others of
 * the session. False: no memory. */
bool master_ops_put_back(struct master_session *s, uint64_t req,
			 const Kvpool__Ops *msg, size_t done, bool more);
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
/* Is mb's id in use by a node at another address than s's? */
bool master_limits_taken(const struct master *m,
			 const struct master_member *mb,
			 const struct master_session *s, uint64_t now_ms);
/* Does s's address have so many nodes, including absent ones that may come
 * back, that another one is refused? */
bool master_limits_crowded(const struct master *m,
			   const struct master_session *s);
/* Bytes of memory that all sessions use. */
uint64_t master_limits_bytes(const struct master *m);
/* Ends the largest sessions until the rest are within the bound. */
void master_limits_check(struct master *m);

/* May the user have this many more directories and bytes of attributes? 0, or
 * -EDQUOT, -ENOSPC (logged and counted). */
int master_limits_names(struct master *m, uint32_t uid, uint64_t dirs,
			uint64_t bytes);

/* ---- handlers; msg is borrowed ---- */

void master_on_ops(struct master_session *s, uint64_t req,
		   const Kvpool__Ops *msg);
/* Executes the changes and sends OPS_DONE; with `more`, after the message's
 * last part only. */
void master_ops_run(struct master_session *s, uint64_t req,
		    const Kvpool__Ops *msg, bool more);
void master_on_inventory(struct master_session *s,
			 const Kvpool__Inventory *msg);
/* Judge what has waited for etcd, as far as it goes. */
void master_inventory_quanta(struct master *m);
void master_inventory_free(struct master_session *s);
/* The master is ready: ends the sessions whose inventory had objects that could
 * not be judged before (may.h). */
void master_inventory_again(struct master *m);
void master_on_subscribe(struct master_session *s,
			 const Kvpool__Subscribe *msg);
/* now_ns: when it was received. */
void master_on_feed_ack(struct master_session *s, const Kvpool__FeedAck *msg,
			uint64_t now_ns);
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
/* The session has ended: close its subscription and free its SYNCs. */
void master_unsubscribe(struct master_session *s);
/* End the sessions of subscribers that do not ack the feed in time. */
void master_check_acks(struct master *m, uint64_t now_ms);

#endif
