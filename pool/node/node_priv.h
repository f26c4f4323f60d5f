/*
 * What the files of a node share. node.h has the architecture; below, names and
 * local files, the node's state by the file that owns it, then each file's
 * functions, lowest first.
 */
#ifndef POOL_NODE_NODE_PRIV_H
#define POOL_NODE_NODE_PRIV_H

#include "pool/base/clock.h"
#include "pool/base/hash.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/dial.h"
#include "pool/conn/handover.h"
#include "pool/model/evict.h"
#include "pool/node/node.h"
#include "pool/conn/wire.h"

#define NODE_NODES_MAX 4096	/* members of a pool */
/* Unacked changes. The last eighth is reserved for root and this process's user
 * (pool_quota_bound). A publication that finds no room waits. Another change is
 * refused then, or when its user's share is used up (pool_quota_check). */
#define NODE_OPS_MAX (1u << 20)
#define NODE_PATH_CHANGES_MAX 1000 /* SETATTRs of one path among them, the last
				      eighth reserved likewise. Bounded because
				      all are applied to each feed entry of the
				      path */
#define NODE_OPS_INFLIGHT 4	/* unacked batches of changes */
#define NODE_SLICE 2000	/* names that all walks visit in a turn, together */
#define NODE_BATCH_MS 1	/* a change waits for others to share its message */
#define NODE_BATCH_BUSY_MS 4 /* the same soon after another batch */
#define NODE_TICK_MS 20		/* housekeeping */
#define NODE_RETRY_MS 1	/* until a seal that found a writer is retried */
#define NODE_RETRY_FAST 20	/* such retries; later ones: at each tick */
#define NODE_KEPT_FDS 256	/* descriptors kept from write to seal */
#define NODE_ABANDON_MS (10 * 60 * 1000) /* drop a closed, unpublished file
					    that nobody has used for so long */
#define NODE_UNOPENED_MS 10000	/* drop a file made for a writer that did not
				   open it for so long */
#define NODE_MASTERLESS_MS 1500 /* without a master; then evict alone */
#define NODE_ASK_MS 250		/* until the same eviction is requested again */
#define NODE_REFUSED_MS 1000	/* the same after a refusal */
#define NODE_LEASE_MS 5000	/* an open is expected so long after a hit */
#define NODE_PARK_MS 500	/* a fetch waits for the feed after a move */
#define NODE_AWAY_MS 1000	/* or for a holder that has just left */
#define NODE_HEATS_MAX 4096	/* objects whose heat is known */
#define NODE_DOUBTS_MAX 256	/* local copies that wait to be checked */
#define NODE_DOUBT_S 10		/* between two checks of a copy */
#define NODE_PIECE (4u << 20)	/* bytes in one of several parallel transfers */
#define NODE_PIECES_MAX 8	/* parallel transfers of one object */
#define NODE_STALL_MS 250	/* no byte for so long: ask another holder */
#define NODE_SHY_MS 2000	/* then prefer other holders for so long */
#define NODE_FLOOR_BPS (50ull << 20) /* floor bandwidth of deadlines, B/s */

/* ---- names and local files ---- */

#define NODE_HOLDERS_INLINE 4 /* holders remembered per name */
#define NODE_HIDES_ANY (UINT64_MAX - UINT16_MAX) /* see hidden_gen */

struct node_entry {
	struct pool_entry e;
	uint64_t gen; /* published generation, 0: not published */
	uint64_t size;
	XXH128_hash_t sum;
	struct node_attr attr;
	uint8_t nholders;	    /* in `holders` */
	uint8_t sweep;		    /* n->sweep of the last picture with it */
	uint8_t replicas;	    /* number of holders, as the feed says */
	/* Not 0: the mirror has it from an ack or an order, ahead of the feed,
	 * since node->stage was this. A picture of that stage that lacks it
	 * does not remove it. 0: the feed has named it */
	uint8_t ahead;
	/* Generations <= this are hidden (unlinked here). Values >=
	 * NODE_HIDES_ANY hide all generations, and count the UNLINKs of any
	 * generation in flight: UINT64_MAX is one, UINT64_MAX - 1 two, ... */
	uint64_t hidden_gen;
	struct pool_xattrs *xattrs; /* owns */
	struct node_object *obj;    /* owns a ref, or NULL */
	struct node_object *own;    /* owns a ref, or NULL */
	struct node_fetch *fetch;   /* in flight, or NULL; borrows */
	void *fs;		    /* the mount's inode of the name; borrows */
	uint16_t holders[NODE_HOLDERS_INLINE]; /* node indices */
};

/* Sizes of files written below a directory: they predict what to reserve. */
struct node_learn {
	uint64_t last, largest;
	uint32_t count;
	uint32_t varied; /* > 0: the last few sizes differed */
};

struct node_dirent {
	struct pool_dir d;
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* owns */
	struct pool_rules rules;    /* parsed from xattrs; not inherited ones */
	struct node_learn learn;
	void *fs;
	/* Set when an entry is made or removed here, and shown instead of
	 * attr.mtime_ns; 0: attr's. */
	uint64_t mtime_ns;
	uint64_t ctime_ns; /* last change here; 0: as mtime */
	uint32_t ngone; /* subdirectories with `gone` set */
	uint8_t sweep;	/* as node_entry.sweep */
	uint8_t ahead;	/* as node_entry.ahead; set by the ack of an MKDIR */
	bool known;	/* the master knows it, or a name below it */
	bool gone; /* removed, but kept until the last hidden name below goes */
	/* removed in the pool, so not known, and shown until the last file of
	 * this mount below it has gone or is published */
	bool leaving;
	/* the last pass of node_publish_sealed (node->pass) that found a file
	 * of this directory still being sealed: its later files wait */
	uint32_t pass;
	bool counted;	/* in pool_node.quota, in the account of `payer` */
	uint8_t reach;	  /* enum pool_reach of its path: node->self */
	uint8_t removing; /* RMDIRs in flight: it counts as removed */
	uint8_t making;	  /* MKDIRs in flight: it counts as existing */
	uint32_t payer;
	/* -errno: a file in it was lost after its close, or it was refused room
	 * by the master; the next fsync reports that and clears it */
	int lost;
};

struct node_object {
	struct pool_evict_node ev; /* inserted while HELD */
	struct node_entry *entry;  /* the name, NULL once DROPPED */
	uint64_t id;		   /* store file; 0 if borrowed */
	uint64_t gen;
	uint64_t from; /* its PUBLISH was sent with Op.again: the highest
			  generation that its issuer had seen; else 0 */
	uint64_t size; /* final once sealed */
	XXH128_hash_t sum;
	uint32_t refs;
	uint32_t users;	   /* open handles of the mount */
	uint16_t lent;	   /* descriptors lent to peers */
	uint16_t lender;   /* borrowed: index of the node that lent it */
	uint8_t state;	   /* enum node_state */
	/* GETs that peers began for this copy; saturates at 2 */
	uint8_t gets;
	uint8_t given;	   /* a descriptor was given away: its pages may be in
			      pipes and sockets (splice, sendfile), so they must
			      never be reused for another file */
	bool made : 1;	   /* written here, not fetched */
	bool counted : 1;  /* HELD: the master counts it as a replica */
	bool verified : 1; /* checksum compared since the daemon's start, and
			      nobody has reported a mismatch since */
	bool prefetched : 1; /* fetched after a look-up, not opened yet */
	bool refused : 1;  /* the master refused to release it (see `asked`) */
	bool remains : 1;  /* DROPPED: the last unref removes its file */
	uint32_t doubted_s; /* when its last check was requested; 0: never */
	int lent_fd;	   /* >= 0: borrowed from a peer on this host; owns */
	uint32_t asked;	   /* node_stamp of the last EVICT for it; 0: none */
	uint32_t looked;   /* node_stamp of the last look-up hit; 0: none */
	/* number of the HELD item that reported it (node->helds_sent); 0: none
	 */
	uint64_t held_number;
	struct node_heat *heat; /* recent GETs by peers, or NULL; owns */
	/* the mount's inode that serves it, or NULL; borrows */
	void *fs;
	uint64_t uses; /* bytes of the store, set by node_object_uses */
	/* WRITING to PENDING; on a client also HELD, until a store has a copy.
	 * Else NULL. Owns. */
	struct node_writer *w;
};

/* Identifies the content of a version, whatever its generation. */
struct node_content {
	XXH128_hash_t sum;
	uint64_t size;
};

/*
 * How far a writer is, in more detail than its object's state. It changes only
 * by node_writer_to, which asserts the edges:
 *
 *             +-------------- written again --------+---------+
 *             v                                     |         |
 *   new --> OPEN --> CLOSED ---------> SEALING --> SEALED <--> QUEUED
 *             |       |   ^              ^   |       ^         ^
 *             |       |   +--- failed ---|---+       |         |
 *             |       +--> RETRYING -----+           |         |
 *             +-- its bytes are complete: found at a start, ---+
 *                 or a published file that is renamed
 *   each of them --> ENDED
 *
 * OPEN, CLOSED and RETRYING are WRITING; SEALED and QUEUED are PENDING.
 */
enum writer_phase {
	WRITER_OPEN,	 /* not closed since it was created or unsealed */
	WRITER_CLOSED,	 /* a close or a rename made it publishable */
	WRITER_RETRYING, /* the same; a seal has failed and is to be retried.
			    It cannot be written any more */
	WRITER_SEALING,
	WRITER_SEALED, /* its PUBLISH is not queued yet */
	/* its PUBLISH is in the outbox; on a client also HELD, until a store
	 * has a copy */
	WRITER_QUEUED,
	WRITER_ENDED, /* DROPPED: open handles keep it */
};

/* What a local file needs until it is published. */
struct node_writer {
	enum writer_phase phase;
	struct pool_list link; /* in node->writers, oldest first */
	/* in node->candidates if node_is_candidate, else self-linked */
	struct pool_list candidate;
	struct node_object *obj;
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* owns */
	uint64_t base_gen;   /* newest published generation of the name that it
				was made from or replaces; 0: none */
	uint64_t base_of;    /* generation whose content is in `base`; it may
				differ from base_gen: use node_base */
	struct node_content base;
	uint64_t seen_gen;   /* node->seen_gen when it was sealed */
	struct node_before *before; /* owns, or NULL: earlier versions that this
				mount may have published under the name */
	/* Generation of an earlier file that this one replaced while the
	 * PUBLISH of the earlier one was in flight. If this file is dropped,
	 * too, an UNLINK removes that generation. */
	uint64_t phantom_gen;
	uint64_t reserved;   /* bytes fallocated ahead */
	uint64_t claimed;    /* bytes granted by space.c and not written yet */
	uint64_t breaches;   /* pool_store_breaches at creation */
	uint64_t touched_ms; /* last use */
	/* pool_now_ns() when it was last empty under its name; 0: never */
	uint64_t emptied_ns;
	/* mtime of the store file when attr.mtime_ns was set; 0: at its
	 * creation. If the file has another mtime now, it was written since */
	uint64_t stamp_ns;
	uint64_t ticket;     /* order of sealing, for fsync barriers */
	uint32_t opens;	     /* writable handles of the mount */
	/* Of these: how many are in passthrough mode, with their nodeid or
	 * NULL, and how many are daemon-served. The mount maintains both
	 * (fs/fs_priv.h, fs_writers_clash). */
	const void *direct;
	uint32_t ndirect, nserved;
	/* -errno of a failed write; never published then */
	int poison;
	struct node_fd fd;   /* O_RDWR, for served writers */
	/* What it is for; set when it is created. */
	bool served;	     /* data passes through the daemon */
	bool scratch;	     /* never published */
	/* Where its name and its bytes come from. */
	bool renamed;	     /* its name came from a rename */
	bool was_held;	     /* published before under another name: readers may
				have it open, so its bytes must not change */
	bool pristine_copy;  /* began as a copy of the published object, and
				nobody is known to have changed it */
	bool again;	     /* an earlier process may have sent its PUBLISH: it
				is sent with Op.again */
	/* What it has at present. */
	bool fd_kept;	     /* all handles are closed; `fd` is kept for the
				seal */
	bool sampling;	     /* holds pool_store_sampling on */
	bool stale_blob;     /* renamed or changed while a worker sealed it */
	bool summed;	     /* `sum` is that of its first sum_size bytes */
	uint8_t tries;	     /* number of seal retries */
	uint64_t sum_size;
	XXH128_hash_t sum;
	/* its PUBLISH until it is acked, or NULL; borrows */
	struct node_op *op;
	uint32_t by; /* 1 + uid of the renaming user; 0: none, unknown */
};

/* pool_now_ms() in four bytes, never 0. Ages up to 49 days are right; the
 * callers compare with some seconds. */
static inline uint32_t node_stamp(uint64_t now_ms)
{
	return (uint32_t)now_ms ? (uint32_t)now_ms : UINT32_MAX;
}

static inline uint32_t node_stamp_age(uint32_t stamp, uint64_t now_ms)
{
	return (uint32_t)now_ms - stamp;
}

/* ---- the node ---- */

/* A member of the pool, by its index. */
struct node_member {
	bool known, alive, is_store, is_mount;
	struct pool_peer_addr addr;
	char name[64];
	char advertise[POOL_HOST_MAX + 8];
	char host_id[64];
	char data_mode[24];
	uint64_t capacity, used, evictable, objects, sent_bytes;
	bool draining;
	unsigned int drained_percent;
	uint64_t stalled_ms; /* when it last let a transfer stall; 0: never */
	uint64_t gone_ms; /* when it last ceased to be alive; 0: never */
};

struct node_counters {
	struct pool_counter lookup_hits, lookup_misses;
	struct pool_counter opens_local, opens_remote, opens_failed;
	struct pool_counter fetches, fetch_failures, fetch_bytes, fetch_retries;
	struct pool_counter bad_sums, fetch_stalls;
	struct pool_counter doubts, doubts_skipped, doubts_unfounded;
	struct pool_counter doubts_reported, damaged;
	struct pool_counter prefetched, prefetch_useful, prefetch_wasted;
	struct pool_counter prefetch_skipped;
	struct pool_counter published, same_content, stale_puts, unlinked;
	struct pool_counter before_forgotten;
	struct pool_counter put_bytes;
	struct pool_counter reserved_creates, served_creates;
	struct pool_counter evicted_cache, evicted_last, evicted_alone,
		evicted_forgotten;
	struct pool_counter evicted_bytes;
	struct pool_counter poisoned, outgrown, abandoned;
	struct pool_counter seal_tries, seal_retries;
	struct pool_counter fds_closed;
	struct pool_counter claims_waited, claims_refused, claims_passing;
	struct pool_counter claims_through;
	struct pool_counter ops_refused, ops_merged, ops_failed, publish_waits;
	struct pool_counter quota_refused;
	struct pool_counter feed_entries, feed_batches, feed_resyncs;
	struct pool_counter master_requests, master_connects, master_standbys;
	struct pool_counter bad_messages;
	struct pool_counter replicated, linked, replicate_failures;
	struct pool_counter surplus, hot;
	struct pool_counter inventory_sent, barrier_timeouts;
	struct pool_gauge store_size, store_used, store_free, store_ready;
	struct pool_gauge objects, object_bytes, cached, cached_bytes;
	struct pool_gauge pending, writing, borrowed, connected, epoch, names;
	struct pool_gauge claimed, extras, fds;
	struct pool_gauge evictable, cut_off;
	struct pool_gauge dirs, attr_bytes;
	struct pool_counter walked;
	struct pool_gauge walked_max;
	struct pool_hist put, fetch, publish;
};

/* States of the session with the master, as drawn in session.c. */
enum node_session_state {
	SESSION_AWAY,
	SESSION_DIALLING,
	SESSION_JOINING,
	SESSION_INVENTORY,
	SESSION_UP,
	SESSION_CLOSED,
};

struct node_session {
	struct pool_conn *conn; /* NULL while AWAY */
	/* Replaces conn, which is old: joins once it is open and conn has
	 * closed. NULL: none. */
	struct pool_conn *next;
	bool next_open;
	uint64_t due_ms; /* conn is replaced from then on */
	enum node_session_state state;
	struct pool_dial dial;
	char master[POOL_HOSTPORT_TEXT]; /* dial.at, as text */
	uint64_t joining_ms;		 /* JOINING: since when */
	bool standby;			 /* the peer answered as a standby */
	uint64_t beat_ms, heartbeat_ms;
	bool logged; /* the current failure has been logged */
	int refused; /* status of the last refusal that was logged */
	uint64_t refused_logged_ms;
};

#define NODE_HELDS_MAX 256

/* HELD items of this turn (outbox.c). */
struct node_helds {
	/* owns; each is followed by its path */
	Kvpool__Held__Item *items[NODE_HELDS_MAX];
	size_t n, bytes;
};

struct pool_node {
	uv_loop_t *loop;
	struct pool_node_opts opts; /* strings: owned copies below */
	char *name, *store_dir, *unix_path, *advertise;
	char host_id[64];
	char data_mode[24];
	uint8_t id[POOL_ID_SIZE];
	struct pool_metrics *metrics;
	struct node_counters c;

	const struct pool_node_ops *ops;
	void *ops_arg;

	/* Who we are to others: the namespaces that this node is limited to.
	 * Borrows; NULL: no certificate. */
	const struct pool_tls_id *self;
	struct pool_tree tree;
	/* All directories that are not `gone`, and all xattrs in the tree; the
	 * maxima are the master's. */
	struct pool_quota quota;
	unsigned int changing; /* depth of node_names_begin */
	struct pool_store *store;
	struct pool_peers *peers;
	struct pool_evict *evict;
	uint64_t found_bytes; /* used by files found at the start, while the
				 store is being opened */
	uint64_t *leftovers; /* store ids to remove once it is open; owns */
	size_t nleftovers;
	uint64_t *kept; /* taken over: ids of store files, which must survive
			   the sweep in pool_node_begin; owns */
	size_t nkept;
	struct pool_hash orphans; /* taken over: files without a name, by id */
	int listen_fd, unix_fd; /* taken over, > 0: for pool_peers_open */

	/* own.c, write.c, seal.c */
	struct pool_list writers;  /* WRITING, least recently used first */
	struct pool_list candidates; /* those of `writers` that
					node_is_candidate; the one tried last is
					at the end */
	struct pool_list sealing;  /* SEALING; or sealed, PUBLISH not queued */
	struct pool_list pending; /* PENDING, PUBLISH queued or in flight; on a
				     client also HELD until a store has it */
	uint32_t pass; /* of node_publish_sealed */
	unsigned int nsealed; /* in `sealing` and WRITER_SEALED */
	struct pool_list small_seals; /* struct seal: sealed on the loop */
	unsigned int nsmall_seals;
	unsigned int nkept_fds; /* descriptors kept for seals */
	struct pool_list fds;	/* struct node_fd, least recently used first */
	unsigned int nfds;	/* in `fds` */
	struct node_learn learn;   /* sizes in the whole mount */
	uint64_t ticket;	   /* the last one assigned */

	/* ops.c, ops_done.c */
	struct pool_list ops_waiting, ops_sent; /* node_op, by ticket */
	size_t nops; /* in both */
	struct pool_hash changes; /* the SETATTRs in both, by path */
	struct pool_quota changers; /* its `dirs` counts, by user, the changes
				       in both other than publications */
	uint32_t caller; /* of pool_node_caller */
	unsigned int batches; /* in flight */
	uint64_t batch_ms;    /* when the last batch was sent */
	uint64_t rules_ticket; /* of the last change that may affect rules */
	uint64_t access_ticket; /* of the last change of a name, mode or owner,
				   which may affect who may read what */
	uint64_t op_seq;      /* highest feed sequence of an acked change */
	uint64_t ops_run;     /* random: identifies this process to masters */
	uint64_t ops_done;    /* changes of this run that were acked */
	uint64_t ops_given;   /* changes of this run that were numbered */
	uint64_t seen_gen;    /* highest generation the master has named */
	struct pool_list barriers;

	/* space.c, evicted.c, outbox.c */
	struct pool_list claims; /* waiting ones, oldest first */
	uint64_t claimed;	 /* bytes granted and not allocated yet */
	uint64_t claimed_ever;	 /* bytes granted since the start */
	struct node_evicted *evicted; /* NULL: none so far */
	uint64_t asked_bytes, asked_reset_ms; /* EVICTs in flight */
	/* Drop.granted of the last DROP: bytes that the master has permitted to
	 * evict in this session. Sent as Evict.seen */
	uint64_t granted;
	uint64_t helds_sent;   /* HELD items since the start */
	uint64_t helds_before; /* of these, in earlier sessions */
	struct node_helds helds;
	uint64_t keep_free;
	uint64_t space_ms; /* when node_space_run looked last */

	/* fetch*.c, want.c, rewrite.c */
	struct pool_list rewrites; /* copies in flight */
	struct pool_list fetches;
	struct node_recheck *rechecks;
	unsigned int nprefetch, nfetches;
	uint64_t fetch_ms; /* last check of their progress */
	uint64_t borrowed; /* objects */

	/* doubt.c */
	struct node_object *doubted[NODE_DOUBTS_MAX]; /* refs, oldest first */
	unsigned int ndoubted;
	bool checking; /* the first of them */

	/* heat.c */
	struct pool_list heats;
	unsigned int nheats, nextras;

	/* member.c, feed.c */
	struct node_member *members; /* NODE_NODES_MAX of them, sparse */
	unsigned int nmembers;	     /* highest index + 1 */
	uint8_t sweep;		     /* counts pictures; marks their names */
	uint8_t stage;		     /* counts sessions and pictures; never 0 */
	bool feed_begun;	     /* a FEED was received since WELCOME */
	bool feed_skipped; /* a feed entry was skipped, because its name or a
			      parent is of the other kind here; the whole
			      picture is requested again at resync_ms */
	uint64_t resync_ms, resync_wait_ms;
	bool in_picture;	     /* a picture is being received, or names
					that it lacked are being removed */
	bool complete;		     /* a picture has been received */
	uint64_t feed_epoch, feed_seq; /* the mirror has all changes up to this;
					  unchanged during a picture */
	uint64_t swept_seq; /* while sweeping: received up to here */
	/* The feed ack up to ack_seq waits until the kernel is notified. */
	bool ack_waits;
	uint64_t ack_seq;
	uint64_t mark; /* of ops.tell, never the same twice */

	/* outbox.c, session.c */
	struct node_session *session; /* owns; NULL: closed */
	uint64_t epoch; /* of the session; 0: none yet */
	uint32_t index; /* ours in that epoch */
	uint64_t held_epoch; /* the highest epoch of files found at the start */
	uint64_t too_large_ms; /* when an object larger than the store was
				  logged last */
	uint64_t cut_off_ms; /* when the session ended; 0: it is up */

	/* An idle handle runs once before the next poll, without a sleep. (With
	 * a prepare handle the loop could sleep first.) */
	uv_idle_t kick;
	uv_idle_cb on_kick; /* node.c */

	/* walk.c */
	uv_idle_t slices;
	uv_idle_cb on_slices; /* walk.c */
	/* Walks that send the inventory, remove names that a picture lacked,
	 * and judge objects again; closed when there is none. */
	struct pool_tree_walk inventory, sweeping, judging;
	bool judge_again; /* after this walk, judge all from the root */
	unsigned int walked; /* names visited in this turn */

	uv_timer_t tick;
	uv_timer_t soon; /* seal retries */
	uv_timer_t batch; /* sends waiting changes */
	bool kicked;
	bool closing;
	uint64_t close_deadline_ms;
	unsigned int handles; /* open ones, for closed() */
	void (*on_handles_closed)(struct pool_node *n); /* node.c */
	void (*closed)(void *arg);
	void *closed_arg;
};

/*
 * ---- the files, lowest first: each calls those above it (tests/layers.list)
 * ----
 */

/* Between these two the loop changes what other threads may read (node.h), or
 * what must not be seen half changed. They nest. */
static inline void node_names_begin(struct pool_node *n)
{
	if (n->opts.names && n->changing++ == 0)
		pool_shortlock_write(n->opts.names);
}
static inline void node_names_end(struct pool_node *n)
{
	if (n->opts.names && --n->changing == 0)
		pool_shortlock_give(n->opts.names);
}

/* ---- entry.c: names and their rules ---- */

/* The path from the root into buf (POOL_PATH_MAX + 1 bytes); its length, or
 * -ENAMETOOLONG. */
int node_entry_path(const struct pool_entry *e, char *buf);
/* Can dir have an entry of this name? 0, -EINVAL, or -ENAMETOOLONG (the name,
 * or its path). */
int node_name_check(const struct node_dirent *dir, const char *name,
		    size_t len);
/* pool_tree_add and pool_tree_make, under the lock of other threads' reads. */
struct pool_entry *node_tree_add(struct pool_node *n, struct node_dirent *dir,
				 const char *name, size_t len, bool is_dir);
int node_tree_make(struct pool_node *n, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry);
/* Is the name in this node's namespaces, one of these, or above one? The node
 * has other names only by orders of the master: as in a store without a mount,
 * they are not shown, and no feed has them. */
bool node_is_ours(const struct pool_entry *e);
/* Does this node's feed report changes of it? */
static inline bool node_is_fed(const struct pool_node *n,
			       const struct pool_entry *e)
{
	return n->opts.mount && node_is_ours(e);
}
/* May names in dir be made, changed and removed? 0 or -EACCES. */
int node_may_change_in(const struct node_dirent *dir);
/* May attributes of e be changed? Also of a namespace itself. 0 or -EACCES. */
int node_may_set(const struct pool_entry *e);
/* Hides published generations <= gen; 0 hides none. */
void node_hide(struct pool_node *n, struct node_entry *e, uint64_t gen);
/* e has no published state any more. */
void node_unpublish(struct pool_node *n, struct node_entry *e);
void node_dir_gone(struct pool_node *n, struct node_dirent *d, bool gone);
/* Charges e (if a directory) and its xattrs to its owner's quota. Call it after
 * each change of what e shows, of its owner or its xattrs; an extra call does
 * no harm. */
void node_account(struct pool_node *n, struct pool_entry *e);
/* May uid have this many more directories, and `xattrs` instead of `old`? 0,
 * -EDQUOT, -ENOSPC. */
int node_admit(struct pool_node *n, uint32_t uid, unsigned int dirs,
	       const struct pool_xattrs *old, const struct pool_xattrs *xattrs);
/* The master knows d, or a name in it: marks d and the directories above as
 * known to it. */
void node_make_dirs_known(struct pool_node *n, struct pool_dir *d);
/* Sets d->rules from its attributes. Returns whether a rule that node_judge
 * uses has changed. */
bool node_dir_rules(struct node_dirent *d);
/* Removes the entry if nothing refers to it; then its directory and those above
 * if they are gone and empty, or leaving and show nothing. */
void node_entry_tidy(struct pool_node *n, struct node_entry *e);
void node_dir_tidy(struct pool_node *n, struct node_dirent *d);
/* Is nothing visible below? Hidden names are being removed by the master. */
bool node_dir_empty(struct node_dirent *dir);
/* The master does not have d any more: removes d, unless something below is
 * visible. If hidden names or unpublished files of this mount are left in it, d
 * is removed with the last of these. */
void node_dir_remove(struct pool_node *n, struct node_dirent *d);

/* ---- member.c: the pool's members ---- */

/* NULL: unknown. */
struct node_member *node_member(struct pool_node *n, uint32_t index);
void node_member_apply(struct pool_node *n, const Kvpool__NodeInfo *info);
/* The largest room that one other store has, in bytes. */
uint64_t node_room_elsewhere(const struct pool_node *n);

/* ---- loop.c ---- */

/* Schedules one pass over everything that waits (node.c), before the next poll.
 */
void node_kick(struct pool_node *n);
/* One of pool_node.handles is closed; the last one ends the node. */
void node_handle_closed(struct pool_node *n);
/* Calls node_*_slice in the coming turns until all of them are done. */
void node_walks_start(struct pool_node *n);
/* The next entry of a walk, as pool_tree_walk_step. NULL also when this turn's
 * share of names is used up: w->at says which. */
struct pool_entry *node_walk_step(struct pool_node *n,
				  struct pool_tree_walk *w, bool *ret_leaving);
/* A barrier's deadline begins anew. */
void node_barrier_begin_time(struct pool_node *n, struct node_barrier *b);
/* The change or publication with this ticket has completed. */
void node_barriers_progress(struct pool_node *n, uint64_t ticket);

/* ---- change.c: one change of attributes ---- */

/* As a SETATTR carries it. */
struct node_change {
	unsigned int set; /* POOL_SET_* bits */
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* POOL_SET_XATTRS: all; _EACH: these */
	const char *remove; /* POOL_SET_XATTR_EACH: this one; or NULL */
};
/* node_change_set applies mode, owner and times of c, node_change_apply all of
 * c: 0 or -ENOMEM. */
void node_change_set(struct node_attr *a, const struct node_change *c);
int node_change_apply(const struct node_change *c, struct node_attr *a,
		      struct pool_xattrs **x);
/* Makes a copy that owns what it points to: 0 or -ENOMEM. _free frees that. */
int node_change_dup(const struct node_change *c, struct node_change *ret_copy);
void node_change_free(struct node_change *c);

/* ---- before.c: earlier contents that a master may have published ---- */

/* Contents of one name that were sent before a cut and not acked. */
#define NODE_BEFORE_MAX 4 /* as batches in flight; beyond, drops the oldest */
struct node_before {
	unsigned int n;
	struct node_content list[NODE_BEFORE_MAX];
};
/* A node_before in the form of a message, which borrows this storage; and one
 * more content: the one that the change was made from. */
struct node_before_pb {
	Kvpool__Content *list[NODE_BEFORE_MAX + 1];
	Kvpool__Content content[NODE_BEFORE_MAX + 1];
	XXH128_canonical_t sum[NODE_BEFORE_MAX + 1];
};
/* *b is allocated if it is NULL. Without memory the content is forgotten: the
 * master then refuses a change that it believes another node has overtaken. */
void node_before_add(struct pool_node *n, struct node_before **b,
		     const struct node_content *c);
void node_before_join(struct pool_node *n, struct node_before **b,
		      const struct node_before *more);
/* Returns the number of entries: those of b, and base. Both may be NULL. */
size_t node_before_to_pb(const struct node_before *b,
			 const struct node_content *base,
			 struct node_before_pb *ret_pb);
void node_before_from_pb(struct pool_node *n, struct node_before **b,
			 Kvpool__Content *const *list, size_t len);

/* ---- learn.c: sizes to expect ---- */

void node_learn_size(struct pool_node *n, struct node_entry *e, uint64_t size);
/* Bytes to reserve for a new file in dir; 0: unknown. */
uint64_t node_learn_predict(struct pool_node *n, struct node_dirent *dir);
/* A name under which engines write before they rename (ENGINES of kvpool(7)).
 */
bool node_name_is_temporary(const char *name, size_t len);

/* ---- evicted.c: what was evicted here, by name ---- */

#define NODE_EVICTED_MAX 4096 /* remembered */
#define NODE_EVICTED_SENT 256 /* evicted without a master: sent at a join */
/* o, a counted copy, is about to be evicted; alone: without a master. */
void node_evicted_note(struct pool_node *n, const struct node_object *o,
		       bool alone);
/* Writes path (borrowed until the next call) and generation of the last copies
 * evicted without a master to list, which has room for NODE_EVICTED_SENT.
 * Returns how many. */
size_t node_evicted_alone(struct pool_node *n, Kvpool__Meta *list);
void node_evicted_fini(struct pool_node *n);

/* ---- fetch_space.c: bytes of fetches in flight ---- */

/* Bytes that fetches have written so far; they are no longer claimed from now
 * on, as the store counts them as used. */
uint64_t node_fetch_settle(struct pool_node *n);
/* Bytes claimed by fetches that will be cached copies, written or not. */
uint64_t node_fetch_cache(struct pool_node *n);

/* ---- outbox.c: sending to the master ---- */

bool node_session_up(const struct pool_node *n);
/* Is the inventory being sent? Changes wait until it is complete. */
bool node_session_in_inventory(const struct pool_node *n);
/* Sends in any state of the session. 0 or -errno, logged: the connection then
 * ends. */
int node_session_send_any(struct pool_node *n, uint16_t type, uint64_t req,
		       const ProtobufCMessage *msg);
/* The same; -ENOTCONN unless the session is up. */
int node_session_send(struct pool_node *n, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg);
/* The session's protocol version; 0: there is no session. */
unsigned int node_session_version(const struct pool_node *n);
/* This node's figures for the master. Bytes of copies in flight do not count as
 * used: the master has ordered them. Borrows from n until the next turn. */
void node_session_info(struct pool_node *n, Kvpool__NodeInfo *info);
/* HELD: the result of an order to copy; with -EBADMSG also: a counted copy was
 * damaged and is gone. Sent at the end of the turn, before any other message.
 */
void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status);
void node_helds_send(struct pool_node *n);
/* Is the queue of notifications to the kernel full? */
bool node_kernel_behind(const struct pool_node *n);
/* The feed is applied up to seq: ack it once the kernel has been notified. */
void node_feed_ack(struct pool_node *n, uint64_t seq);

/* ---- heat.c: how often peers ask ---- */

void node_heat_asked(struct pool_node *n, struct node_object *o);
/* o becomes an extra copy. 0, or -ENOBUFS: there are too many. */
int node_heat_extra(struct pool_node *n, struct node_object *o);
/* o is dropped, becomes a counted copy, or has become cold. */
void node_heat_forget(struct pool_node *n, struct node_object *o);
void node_heat_tick(struct pool_node *n, uint64_t now);
void node_heat_cut_off(struct pool_node *n);

/* ---- object.c: local files and their metadata ---- */

struct node_object *node_object_new(struct node_entry *e,
				    enum node_state state);
/* `given` and `looked`, which other threads may set (node.h). Relaxed suffices:
 * any of several concurrent stores may win, and no other data depends on their
 * order. */
static inline void node_object_give(struct node_object *o)
{
	__atomic_store_n(&o->given, true, __ATOMIC_RELAXED);
}
static inline bool node_object_given(const struct node_object *o)
{
	return __atomic_load_n(&o->given, __ATOMIC_RELAXED);
}
static inline void node_object_look(struct node_object *o)
{
	__atomic_store_n(&o->looked, node_stamp(pool_now_ms()),
			 __ATOMIC_RELAXED);
}
static inline uint32_t node_object_looked(const struct node_object *o)
{
	return __atomic_load_n(&o->looked, __ATOMIC_RELAXED);
}
/* The only way to change o->state: asserts that the edge is in node.h's table.
 * For an `own`, between node_names_begin and node_names_end. */
void node_object_to(struct node_object *o, enum node_state to);
/* o's file uses so many bytes of the store (rounded up to pages); 0: it is
 * gone. */
void node_object_uses(struct pool_node *n, struct node_object *o,
		      uint64_t bytes);
/* HELD -> DROPPED: unlinks the file, calls ops.object_gone, and releases the
 * entry's ref. The entry stays. evicted: for want of space. */
void node_object_drop(struct pool_node *n, struct node_object *o,
		      bool evicted);
/* Evicts o, which is not borrowed. If possible (pool_store_reuse), its pages
 * become those of a new file of size bytes: 0 and *ret_file; else -errno. */
int node_object_reuse(struct pool_node *n, struct node_object *o,
		      uint64_t size, struct pool_file *ret_file);
/* Makes o (o->gen set) the local copy of e's published generation. */
void node_object_held(struct pool_node *n, struct node_entry *e,
		      struct node_object *o);
/* Does the master count o, HELD, as a replica? */
void node_object_count(struct pool_node *n, struct node_object *o,
		       bool counted);
/* Sets o's eviction class from its rules. */
void node_judge(struct pool_node *n, struct node_object *o);
/* Can rules forbid its eviction? Not for a client's copy that a store has. */
bool node_guarded(const struct pool_node *n, const struct node_object *o);
/* An empty writer part for o; the caller sets o->w. NULL: ENOMEM. */
struct node_writer *node_writer_new(struct node_object *o);
void node_writer_close_fd(struct pool_node *n, struct node_writer *w);
/* o is DROPPED: does its file stay until the last handle is closed? */
bool node_object_remains(struct pool_node *n, struct node_object *o);
/* The descriptor is the caller's; -1: there is none. */
int node_fd_take(struct pool_node *n, struct node_fd *f);
void node_writer_free(struct pool_node *n, struct node_object *o);
/* Metadata as it is kept with a file. base may be NULL. Its length or -errno.
 */
ptrdiff_t node_blob_pack(const char *path, size_t path_len, uint64_t gen,
			 uint64_t base_gen, const struct node_content *base,
			 uint64_t seen_gen, uint64_t size, XXH128_hash_t sum,
			 const struct node_attr *attr,
			 const struct pool_xattrs *xattrs, void *buf,
			 size_t cap);
/* Replaces the metadata of o's sealed file. 0 or -errno. */
int node_write_blob(struct pool_node *n, struct node_object *o);
/* Attaches metadata to a fetched copy, so that a restart finds it. fd: its
 * file, O_RDWR, closed by this call; or 0. 0 or -errno. */
int node_seal_fetched(struct pool_node *n, struct node_object *o, int fd);
/* The content of its writer's base_gen; NULL: none, or not known. Borrowed from
 * the writer. */
const struct node_content *node_base(const struct node_object *o);
/* Is it known, without a system call, that nobody has or had a descriptor or
 * another name of its file? */
static inline bool node_is_ours_alone(const struct pool_node *n,
				      const struct node_object *o)
{
	return n->opts.puts_whole && !node_object_given(o);
}

/* ---- ops_path.c: changes of attributes that are not acked, by path ---- */

/* Applies this path's unacked changes to what the master says. 0 or -ENOMEM. */
int node_ops_overlay(struct pool_node *n, const char *path, size_t path_len,
		     struct node_attr *a, struct pool_xattrs **x);

/* ---- ops.c: changes that are not acked: queue and sending ---- */

struct node_op; /* ops.h */
/* The master has named this generation. */
static inline void node_seen(struct pool_node *n, uint64_t gen)
{
	if (gen > n->seen_gen)
		n->seen_gen = gen;
}
/* An invariant, for tests: tickets ascend. */
bool node_ops_in_order(const struct pool_node *n);
/* Queues the PUBLISH of o (PENDING). 0, -ENOMEM, or -EAGAIN: the queue is full,
 * retry at a later tick. (Changes are refused then.) */
int node_op_publish(struct pool_node *n, struct node_object *o);
/* Op.by of a change that the caller makes. */
uint32_t node_op_by(const struct pool_node *n);
/* kind: UNLINK (gen 0: any generation), MKDIR, RMDIR. 0 or -errno. */
int node_op_name(struct pool_node *n, int kind, struct pool_entry *e,
		 uint64_t gen);
/* Copies c; the attributes sent are those that e shows. Merges it into an
 * earlier change if possible (ops_path.c). 0 or -errno. */
int node_op_setattr(struct pool_node *n, struct pool_entry *e,
		    const struct node_change *c);
/* Adds to *b the content of o, if a master may have been sent it, and what o's
 * writer has in `before`. */
void node_op_before(struct pool_node *n, const struct node_object *o,
		    struct node_before **b);
/* o's publication is not wanted any more. */
void node_op_forget(struct pool_node *n, struct node_object *o);
/* Is o's PUBLISH in flight? */
bool node_op_sent(struct pool_node *n, const struct node_object *o);
/* May a master have executed it? It is in flight, or in doubt after a cut. */
bool node_op_maybe_executed(struct pool_node *n, const struct node_object *o);
void node_ops_send(struct pool_node *n);
void node_ops_batched(uv_timer_t *h);
/* Has every change of rules been sent, so that the master knows it before any
 * message that is sent now? */
bool node_ops_rules_sent(struct pool_node *n);
/* The lowest ticket of an unacked change; UINT64_MAX: there is none. */
uint64_t node_ops_oldest(const struct pool_node *n);
/* Take-over: unacked changes as records, and back (the objects of publications
 * must be there). 0 or -errno. */
void node_ops_hand_over(struct pool_node *n, struct pool_handover *h);
int node_ops_take_over(struct pool_node *n, const Kvpool__Ops *ops);
void node_ops_free(struct pool_node *n);

/* ---- own.c: a name's own file ---- */

/* May it be published once its last writer is gone? */
bool node_publishable(const struct node_object *o);
/*
 * Might node_try_seal with `force` seal it now? Not while it has daemon-served
 * or passthrough handles, because the kernel may be about to open the file for
 * one. With other handles (pins of the mount), only a lease can prove that
 * nobody writes.
 */
bool node_is_candidate(const struct node_object *o);
/* Updates n->candidates. Call it after a change that node_is_candidate depends
 * on. */
void node_candidate_update(struct pool_node *n, struct node_object *o);
/* As pool_node_size_max, of the file that w writes. */
uint64_t node_size_max(struct pool_node *n, const struct node_writer *w);
/* The state of an object whose writer is in this phase. (On a client the object
 * may also be HELD while its writer is QUEUED.) */
enum node_state node_state_in(enum writer_phase phase);
/* The only way to change w->phase. Its object's state, n->nsealed and
 * n->candidates follow. */
void node_writer_to(struct pool_node *n, struct node_writer *w,
		    enum writer_phase to);
void node_own_discard(struct pool_node *n, struct node_object *o);
/* o, from node_own_make, has the name e and is in node->writers from now on;
 * _show: it is e->own, too. */
void node_own_begin(struct pool_node *n, struct node_entry *e,
		    struct node_object *o);
void node_own_show(struct pool_node *n, struct node_entry *e,
		   struct node_object *o);
/* Records the mtime of o's store file now (stamp_ns), so that only later writes
 * change attr.mtime_ns. */
void node_own_stamp(struct pool_node *n, struct node_object *o);
/* e->own is unlinked, poisoned or abandoned: removes its file. */
void node_own_drop(struct pool_node *n, struct node_entry *e);
/*
 * Makes o the `own` of e, and no longer that of `from` (NULL: of no name).
 * Removes an earlier `own` of e. If the master has published that one, o's
 * publication replaces it, so that the name never disappears on other mounts.
 */
void node_own_supersede(struct pool_node *n, struct node_entry *e,
			struct node_object *o, struct node_entry *from);
/* A file closed under this name will never be published: the next fsync of its
 * directory returns status (-errno), once. */
void node_own_lost(struct node_entry *e, int status);
/* Hides what is published under the name, and sends the UNLINK. 0 or -errno. */
int node_name_remove(struct pool_node *n, struct node_entry *e);

/* ---- victim.c: what may be evicted (for space.c: victim.h) ---- */

/* Judges everything below d, whose rules changed, in slices. */
void node_judge_below(struct pool_node *n, struct node_dirent *d);
bool node_judge_slice(struct pool_node *n); /* is there more to do? */
uint64_t node_evictable(struct pool_node *n); /* bytes */

/* ---- space.c: claims and evictions ---- */

void node_space_init(struct pool_node *n);
void node_space_run(struct pool_node *n);
void node_space_fini(struct pool_node *n);
/*
 * Evicts the next cached copy and reuses its pages for a file of size bytes
 * that will be written completely. 0, or -errno: none fits, or there is room
 * anyway.
 */
int node_space_reuse(struct pool_node *n, uint64_t size,
		     struct pool_file *ret_file);
/* The master has answered the EVICT for o. */
void node_space_answered(struct pool_node *n, const struct node_object *o);

/* ---- seal.c: from the last close to the publication ---- */

/* May a write beyond the reservation have failed, unnoticed by the daemon?
 * Counts it. */
bool node_outgrew(struct pool_node *n, struct node_object *o);
/* 0, also if it must wait; -errno: o is lost, and perhaps freed. force: seal it
 * even while handles are open (fsync). */
int node_try_seal(struct pool_node *n, struct node_object *o, bool force);
/* Tries to seal each candidate once, even while handles are open (fsync). */
void node_seal_candidates(struct pool_node *n);
/* Is there a closed file that the kernel, or a mapping, still refers to? */
bool node_seals_due(const struct pool_node *n);
void node_seal_small(struct pool_node *n);
void node_soon(uv_timer_t *h);
void node_writers_tick(struct pool_node *n, uint64_t now);
/* Queues the PUBLISH of each sealed file: within a directory in the order in
 * which they were closed. */
void node_publish_sealed(struct pool_node *n);
/* Queues o (PENDING) as the latest change; without memory, at a later tick. */
void node_publish(struct pool_node *n, struct node_object *o);
/* The ack of o's PUBLISH (gen != 0), or its refusal (status < 0). */
void node_publish_done(struct pool_node *n, struct node_object *o, int status,
		       uint64_t gen);
/* A client's object has reached a store. named: the master still counts the
 * client's copy. */
void node_client_stored(struct pool_node *n, struct node_object *o, bool named);
/* Has a store linked this file of a client? Then its pages are freed only when
 * both have dropped it. */
bool node_client_linked(const struct pool_node *n, const struct node_object *o);

/* ---- write.c: creation ---- */

/* A WRITING object for e that nobody sees yet, with a ref for the caller, which
 * then calls node_own_discard, or node_own_show (which takes the ref). */
int node_own_make(struct pool_node *n, struct node_entry *e,
		  const struct node_attr *attr, uint64_t size_hint,
		  struct node_object **ret_obj);
/* Makes and shows it. */
int node_own_new(struct pool_node *n, struct node_entry *e,
		 const struct node_attr *attr, uint64_t size_hint,
		 struct node_object **ret_obj);

/* ---- attr.c ---- */

/* Sets both from m, with unacked changes applied on top. 1: what is shown has
 * changed; 0; or -ENOMEM: nothing was changed. */
int node_attr_update(struct pool_node *n, struct node_attr *a,
		     struct pool_xattrs **x, const Kvpool__Meta *m);

/* ---- ops_done.c: acks of changes ---- */

void node_ops_done(struct pool_node *n, const Kvpool__OpsDone *done);
/*
 * A session begins. Changes of earlier sessions whose result the master knows
 * are completed; the others are sent again. Call it before the inventory is
 * sent, because the results change the inventory.
 */
void node_ops_welcome(struct pool_node *n, const Kvpool__Welcome *w);
void node_ops_cut_off(struct pool_node *n);

/* ---- fetch*.c: remote objects made local (inside: fetch.h) ---- */

/* Fetches e's published object, or joins the fetch in flight; w->cb runs as for
 * pool_node_want_start. 0 or -errno. */
int node_fetch_for(struct pool_node *n, struct node_entry *e,
		   struct node_want *w);
/* Prefetches it. 0 or -ENOMEM. */
int node_fetch_ahead(struct pool_node *n, struct node_entry *e);
void node_fetch_tick(struct pool_node *n, uint64_t now);
void node_fetch_fini(struct pool_node *n);

/* ---- doubt.c: copies that may be damaged ---- */

void node_doubt_tick(struct pool_node *n);
/* The check of o has ended with this status. */
void node_doubt_checked(struct pool_node *n, const struct node_object *o,
			int status);
/* e->obj == o is damaged (-EBADMSG) or missing (-ENOENT): reported, dropped,
 * and quarantined. The entry stays. */
void node_object_damaged(struct pool_node *n, struct node_object *o,
			 int status);
void node_doubt_fini(struct pool_node *n);

/* ---- want.c ---- */

/* Compares the checksum of the local copy in a worker. 0 or -ENOMEM. */
int node_recheck(struct pool_node *n, struct node_object *o);

/* ---- feed.c: the master's change feed ---- */

/* 0, or -ENOMEM: it must be sent again (applying it twice does no harm). */
int node_feed_apply(struct pool_node *n, const Kvpool__Feed *f);
/* An order of the master names a file's generation, possibly before the feed
 * does: applies it as the feed would. NULL: its path cannot exist, or no
 * memory. */
struct node_entry *node_feed_ahead(struct pool_node *n, const Kvpool__Meta *m);
/* A session or a picture begins: entries that were `ahead` of the former feed
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
/* The session has ended: the picture will be sent again. */
void node_sweep_cut_off(struct pool_node *n);

/* ---- replicate.c: copies that the master orders ---- */

void node_replicate(struct pool_node *n, const Kvpool__Replicate *r);

/* ---- barrier.c: fsync of a directory ---- */

/* Begins the barriers started since the last turn: seals what they wait for. */
void node_barriers_begin(struct pool_node *n);
void node_barriers_check(struct pool_node *n);
void node_barriers_cut_off(struct pool_node *n);
void node_synced(struct pool_node *n, uint64_t req);

/* ---- serve.c: what peers ask ---- */

extern const struct pool_peers_ops node_peers_ops;

/* ---- session.c: the session with the master; dispatch ---- */

int node_session_open(struct pool_node *n);
void node_session_close(struct pool_node *n);
void node_session_tick(struct pool_node *n, uint64_t now);
bool node_inventory_slice(struct pool_node *n); /* is there more to do now? */
/* The address of the current or last master, or the one being dialled; "": none
 * yet. */
const char *node_session_master(const struct pool_node *n);

/* ---- status.c ---- */

int node_metrics_register(struct pool_node *n);
void node_gauges(struct pool_node *n);

/* ---- walk.c: walks in slices ---- */

void node_walks_stop(struct pool_node *n);
void node_on_slices(uv_idle_t *h); /* n->on_slices */

/* ---- adopt.c: files found at the start ---- */

/* A pool_store_found_cb; arg: the node. */
int node_adopt(void *arg, uint64_t id, uint64_t size, const void *blob,
	       size_t blob_len);

/* ---- handover.c ---- */

/* 0 or -errno, logged. */
int node_take_over(struct pool_node *n, struct pool_handover *h);
/* There will be no further call of node_orphan_take_over: forgets `orphans`. */
void node_orphans_known(struct pool_node *n);

/* ---- check.c ---- */

/* Asserts what holds between two turns of the loop. O(names). For tests. */
void node_check(struct pool_node *n);

#endif
