/* What the files of a node share; see pool/node/node.h for the whole picture.
 */
#ifndef POOL_NODE_NODE_PRIV_H
#define POOL_NODE_NODE_PRIV_H

#include "pool/base/clock.h"
#include "pool/base/hash.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/dial.h"
#include "pool/conn/handover.h"
#include "pool/node/node.h"
#include "pool/conn/wire.h"

#define NODE_NODES_MAX 4096	/* members of a pool */
#define NODE_OPS_MAX (1u << 20) /* changes that wait for the master's word */
#define NODE_OPS_INFLIGHT 4	/* batches the master has not answered */
#define NODE_SLICE 2000	/* names that walks look at in one turn */
#define NODE_BATCH_MS 1	/* changes wait so long for others, to go together */
#define NODE_BATCH_BUSY_MS 4 /* and so long after another batch of late */
#define NODE_TICK_MS 20		/* housekeeping */
#define NODE_RETRY_MS 1	/* a seal that found a writer */
#define NODE_RETRY_FAST 20	/* so often; then at each tick */
#define NODE_KEPT_FDS 256	/* descriptors kept from write to seal */
#define NODE_ABANDON_MS (10 * 60 * 1000) /* private, unused files */
#define NODE_UNOPENED_MS 10000	/* a new generation nobody came back for */
#define NODE_MASTERLESS_MS 1500 /* cut off so long: evict on our own */
#define NODE_ASK_MS 250		/* ask for the same eviction again */
#define NODE_REFUSED_MS 1000	/* and so long after a refusal */
#define NODE_LEASE_MS 5000	/* an open is expected after a look-up hit */
#define NODE_PARK_MS 500	/* a fetch waits for the feed after a move */
#define NODE_AWAY_MS 1000	/* and for a holder that has just gone */
#define NODE_HEATS_MAX 4096	/* objects whose heat is known */
#define NODE_DOUBTS_MAX 256	/* local copies that wait to be checked */
#define NODE_DOUBT_S 10		/* the same one not more often than that */
#define NODE_PIECE (4u << 20)	/* bytes a parallel transfer */
#define NODE_PIECES_MAX 8	/* under way for one object */
#define NODE_STALL_MS 250	/* no byte for so long: ask another holder */
#define NODE_SHY_MS 2000	/* and prefer others to that one for so long */
#define NODE_FLOOR_BPS (50ull << 20) /* floor bandwidth of deadlines, B/s */

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
	uint64_t stalled_ms; /* when a transfer from it last stood still; 0 */
	uint64_t gone_ms; /* since when it is not alive, if it was */
};

struct node_counters {
	struct pool_counter lookup_hits, lookup_misses;
	struct pool_counter opens_local, opens_remote, opens_failed;
	struct pool_counter fetches, fetch_failures, fetch_bytes, fetch_retries;
	struct pool_counter bad_sums, fetch_stalls;
	struct pool_counter doubts, doubts_skipped, doubts_unfounded;
	struct pool_counter doubts_told, damaged;
	struct pool_counter prefetched, prefetch_useful, prefetch_wasted;
	struct pool_counter prefetch_skipped;
	struct pool_counter published, same_content, stale_puts, unlinked;
	struct pool_counter before_forgotten;
	struct pool_counter put_bytes;
	struct pool_counter reserved_creates, served_creates;
	struct pool_counter evicted_cache, evicted_last, evicted_alone,
		evicted_forgotten;
	struct pool_counter evicted_bytes;
	struct pool_counter poisoned, outgrown, abandoned, seal_retries;
	struct pool_counter claims_waited, claims_refused, claims_passing;
	struct pool_counter claims_through;
	struct pool_counter ops_refused, ops_failed, publish_waits;
	struct pool_counter feed_entries, feed_batches, feed_resyncs;
	struct pool_counter master_requests, master_connects, master_standbys;
	struct pool_counter bad_messages;
	struct pool_counter replicated, linked, replicate_failures;
	struct pool_counter surplus, hot;
	struct pool_counter inventory_sent, barrier_timeouts;
	struct pool_gauge store_size, store_used, store_free, store_ready;
	struct pool_gauge objects, object_bytes, cached, cached_bytes;
	struct pool_gauge pending, writing, borrowed, connected, epoch, names;
	struct pool_gauge claimed, extras;
	struct pool_gauge evictable, cut_off;
	struct pool_counter walked;
	struct pool_gauge walked_max;
	struct pool_hist put, fetch, publish;
};

/* Of the session with the master: session.c draws it. */
enum node_link_state {
	LINK_AWAY,
	LINK_DIALLING,
	LINK_JOINING,
	LINK_TELLING,
	LINK_UP,
	LINK_CLOSED,
};

struct node_link {
	struct pool_conn *conn; /* NULL while AWAY */
	enum node_link_state state;
	struct pool_dial dial;
	char master[POOL_HOSTPORT_TEXT]; /* dial.at, as text */
	uint64_t joining_ms;		 /* JOINING: since when */
	bool standby;			 /* this one said so */
	uint64_t beat_ms, heartbeat_ms;
	bool told; /* the log has the present failure */
	int refused; /* status of the last refusal that was logged */
	uint64_t refused_said_ms;
};

#define NODE_HELDS_MAX 256

/* What HELD is to say at the end of the turn: replicate.c. */
struct node_helds {
	Kvpool__Held__Item *items[NODE_HELDS_MAX]; /* owns; a path behind each */
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

	struct pool_tree tree;
	unsigned int changing; /* node_names_begin without its end */
	struct pool_store *store;
	struct pool_peers *peers;
	struct pool_evict *evict;
	uint64_t found_bytes; /* node_object_uses before it is open */
	uint64_t *leftovers; /* store ids to remove once it is open */
	size_t nleftovers;
	uint64_t *kept; /* taken over: store ids, until pool_node_begin; owns */
	size_t nkept;
	int listen_fd, unix_fd; /* taken over, > 0: for pool_peers_open */

	/* node_write */
	struct pool_list writers;  /* WRITING, by last sign of life */
	struct pool_list sealing;  /* SEALING, or waiting for their turn */
	struct pool_list pending; /* of these, queued for the master */
	uint32_t pass;
	unsigned int nsealed; /* of `sealing`: only to be published */
	struct pool_list small_seals; /* to be sealed by the loop itself */
	unsigned int nsmall_seals;
	unsigned int nkept_fds; /* descriptors kept for these, see NODE_KEPT_FDS */
	struct node_learn learn;   /* of the whole mount */
	uint64_t ticket;	   /* last one given */

	/* node_ops */
	struct pool_list ops_waiting, ops_sent; /* node_op, by ticket */
	size_t nops; /* in both */
	struct pool_hash changes; /* SETATTRs of these, by path */
	unsigned int batches; /* in flight */
	uint64_t batch_ms;    /* the last was sent then */
	uint64_t rules_ticket; /* of the last change that may be of rules */
	uint64_t op_seq;      /* highest feed sequence of an answered op */
	uint64_t ops_run;     /* what the next two count in: a random number */
	uint64_t ops_done;    /* changes that were sent and answered */
	uint64_t ops_given;   /* changes that have a number */
	uint64_t seen_gen;    /* highest generation the master has named */
	struct pool_list barriers;

	/* node_space */
	struct pool_list claims;
	uint64_t claimed;
	uint64_t claimed_ever; /* whatever has become of it */
	struct node_evicted *evicted; /* evicted.c; NULL: none so far */
	uint64_t asked_bytes, asked_reset_ms;
	uint64_t granted; /* Drop.granted, as heard last */
	uint64_t said, said_before; /* HELD items: ever, before this session */
	struct node_helds helds;
	uint64_t keep_free;
	uint64_t space_ms; /* when node_space_run looked last */

	/* node_fetch */
	struct pool_list rewrites; /* of node_rewrite: copies under way */
	struct pool_list fetches;
	struct node_recheck *rechecks;
	unsigned int nprefetch, nfetches;
	uint64_t fetch_ms; /* last look at their progress */
	uint64_t borrowed;

	/* node_doubt */
	struct node_object *doubted[NODE_DOUBTS_MAX]; /* refs, oldest first */
	unsigned int ndoubted;
	bool checking; /* the first of them */

	/* node_heat */
	struct pool_list heats;
	unsigned int nheats, nextras;

	/* node_feed */
	struct node_member *members; /* NODE_NODES_MAX of them, sparse */
	unsigned int nmembers;	     /* highest index + 1 */
	uint8_t sweep;		     /* mark of the picture being received */
	uint8_t stage;		     /* sessions and pictures begun; never 0 */
	bool feed_begun;	     /* FEED has come since WELCOME */
	bool in_picture;	     /* between begin and complete, or cut off
					before what it did not name was gone */
	bool complete;		     /* a whole picture has been received */
	uint64_t feed_epoch, feed_seq; /* of the last state without a picture
					  under way */
	uint64_t swept_seq; /* while sweeping: heard up to here */
	/* The last batch of the feed waits to be acknowledged until the kernel
	 * has been told. */
	bool untold;
	uint64_t untold_seq;
	uint64_t mark; /* of ops.tell, never the same twice */

	/* node_link */
	struct node_link *link;
	uint64_t epoch; /* of the session, 0: none */
	uint64_t too_large_ms; /* when a fetch was given up for its size, and
				  that was logged */
	uint64_t held_epoch; /* the highest of what was found at the start */
	uint32_t index; /* ours in it */
	uint64_t cut_off_ms; /* since when without a master; 0: connected */

	/* Runs once before the next poll, when asked; and the loop does not
	 * sleep before that, which it would with a prepare handle that asks
	 * again. */
	uv_idle_t kick;
	uv_idle_cb on_kick; /* node.c */

	/* node_walk */
	uv_idle_t slices;
	uv_idle_cb on_slices; /* walk.c */
	struct pool_tree_walk telling, sweeping, judging; /* or closed */
	bool judge_again; /* from the root, after this one */
	unsigned int walked; /* names, in this turn of the loop */

	uv_timer_t tick;
	uv_timer_t soon; /* seal retries */
	uv_timer_t batch; /* sends the changes that wait */
	bool kicked;
	bool closing;
	uint64_t close_deadline_ms;
	unsigned int handles; /* open ones, for closed() */
	void (*on_handles_closed)(struct pool_node *n); /* node.c */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* What waits is looked at once, soon, from the loop (node.c). */
void node_kick(struct pool_node *n);
/* One of pool_node.handles is closed; the last one ends the node. */
void node_handle_closed(struct pool_node *n);
/* A barrier's time begins anew. */
void node_barrier_begin_time(struct pool_node *n, struct node_barrier *b);

/* Between these is changed what questions of other threads look at (node.h),
 * and whatever must not be seen half done. They nest. */
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

/* check.c */
/* Asserts what holds between two turns of the loop. O(names). For tests. */
void node_check(struct pool_node *n);

/* adopt.c */
/* A file found in the store (a pool_store_found_cb; arg: the node). */
int node_adopt(void *arg, uint64_t id, uint64_t size, const void *blob,
	       size_t blob_len);

/* object.c */
struct node_object *node_object_new(struct node_entry *e,
				    enum node_state state);
/* The only way to change o->state: asserts that the edge is one of node.h's
 * table. What other threads look at (o is somebody's `own`) is changed between
 * node_names_begin and node_names_end. */
void node_object_to(struct node_object *o, enum node_state to);
/* o's file takes so many bytes of the store, in whole pages: 0 once it is gone.
 */
void node_object_uses(struct pool_node *n, struct node_object *o,
		      uint64_t bytes);
/* HELD or FETCHING -> DROPPED: unlinks the file, tells fs. Takes the entry's
 * ref away; the entry stays. */
void node_object_drop(struct pool_node *n, struct node_object *o,
		      bool evicted);
/* The same, evicted, of one that is not borrowed; and if that can be
 * (pool_store_reuse), its pages are a new file's of size bytes. */
int node_object_reuse(struct pool_node *n, struct node_object *o,
		      uint64_t size, struct pool_file *ret_file);
/* Remove the entry if nothing is left of it. */
void node_entry_tidy(struct pool_node *n, struct node_entry *e);
/* The same for a directory that is gone, and those above it. */
void node_dir_tidy(struct pool_node *n, struct node_dirent *d);
int node_entry_path(const struct pool_entry *e, char *buf);
int node_write_blob(struct pool_node *n, struct node_object *o);
/* A fetched copy becomes one that a restart finds again: its metadata is
 * attached. fd: of its file, O_RDWR, taken over; or 0. 0 or -errno. */
int node_seal_fetched(struct pool_node *n, struct node_object *o, int fd);
/* What o, not published, was made from: the content of its writer's base_gen;
 * NULL: there was none, or it is not known. Borrowed from the writer. */
const struct node_content *node_base(const struct node_object *o);
/* Metadata as it is kept with a file. base may be NULL. */
ptrdiff_t node_blob_pack(const char *path, size_t path_len, uint64_t gen,
			 uint64_t base_gen, const struct node_content *base,
			 uint64_t seen_gen, uint64_t size, XXH128_hash_t sum, const struct node_attr *attr,
			 const struct pool_xattrs *xattrs, void *buf,
			 size_t cap);
/* Becomes the local copy of e's published generation (o->gen set). */
void node_object_held(struct pool_node *n, struct node_entry *e,
		      struct node_object *o);
/* o, HELD, counts from now on, or does not. */
void node_object_count(struct pool_node *n, struct node_object *o,
		       bool counted);
void node_make_dirs_known(struct pool_node *n, struct node_entry *e);

/* name.c */
/* pool_tree_add and pool_tree_make, for all to see. */
struct pool_entry *node_tree_add(struct pool_node *n, struct node_dirent *dir,
				 const char *name, size_t len, bool is_dir);
int node_tree_make(struct pool_node *n, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry);
/* Published generations <= gen are hidden; 0: none. */
void node_hide(struct pool_node *n, struct node_entry *e, uint64_t gen);
void node_unpublish(struct pool_node *n, struct node_entry *e); /* gen 0 */
void node_dir_gone(struct pool_node *n, struct node_dirent *d, bool gone);
/* May this name be in dir? 0, -EINVAL, or -ENAMETOOLONG, also of its path. */
int node_name_check(const struct node_dirent *dir, const char *name,
		    size_t len);
/* Hide what is published under the name, and have the master remove it. */
int node_name_remove(struct pool_node *n, struct node_entry *e);
/* d->rules from its attributes. Did those change that node_judge goes by? */
bool node_dir_rules(struct node_dirent *d);

/* handover.c */
/* 0 or -errno, logged. */
int node_take_over(struct pool_node *n, struct pool_handover *h);

/* write.c */
/* o's writer part, empty; o->w is the caller's to set. NULL: ENOMEM. */
struct node_writer *node_writer_new(struct node_object *o);
void node_writer_free(struct pool_node *n, struct node_object *o);
void node_writers_tick(struct pool_node *n, uint64_t now);
/* own disappears (unlinked, poisoned, abandoned): the file is removed. */
void node_own_drop(struct pool_node *n, struct node_entry *e);
/*
 * o is e->own from now on, and not from's any more (NULL: nobody's); the same
 * for the one before, if there is one: what the master has named and is gone
 * will be replaced by o's publication, so that the name is there for others all
 * the while.
 */
void node_own_supersede(struct pool_node *n, struct node_entry *e,
			struct node_object *o, struct node_entry *from);
/* seal.c */
/* A file that was closed under this name will never be published: the next
 * fsync of its directory fails with that status (-errno), once. */
void node_own_lost(struct node_entry *e, int status);
void node_seal_small(struct pool_node *n);
/* Does it wait to be published? */
static inline void node_writer_sealed(struct pool_node *n,
				      struct node_writer *w, bool sealed)
{
	n->nsealed += (unsigned int)sealed - (unsigned int)w->sealed;
	w->sealed = sealed;
}
/* Queue what is sealed, in order: of one directory, what was closed first is
 * published first. */
void node_publish_sealed(struct pool_node *n);
/* o is PENDING: queued as the latest change, at once or, without memory for
 * that, at a later tick. */
void node_publish(struct pool_node *n, struct node_object *o);
void node_soon(uv_timer_t *h);
/* Try to seal candidates although handles are open (fsync). */
void node_seal_candidates(struct pool_node *n);
/* May it be published once its last writer is gone? */
bool node_publishable(const struct node_object *o);
/* Did a write past the daemon, beyond the reservation, possibly fail unseen?
 * Counted. */
bool node_outgrew(struct pool_node *n, struct node_object *o);
/* 0, also if it has to wait, or -errno: o is lost (and maybe freed). */
int node_try_seal(struct pool_node *n, struct node_object *o, bool force);
/* The master's answer for o (gen != 0), or a refusal (status < 0). */
void node_publish_done(struct pool_node *n, struct node_object *o, int status,
		       uint64_t gen);
/* A client's: a store has the very file of o; its pages are free when both have
 * let go of it. */
bool node_client_linked(const struct pool_node *n, const struct node_object *o);
/* Nobody has, or had, a descriptor or another name of its file, and that is
 * known without a system call. */
static inline bool node_is_ours_alone(const struct pool_node *n,
				      const struct node_object *o)
{
	return n->opts.puts_whole && !o->given;
}
/* A client's object has reached a store; named: the master still counts on the
 * client's copy. */
void node_client_stored(struct pool_node *n, struct node_object *o, bool named);
/* A new WRITING object for e: not seen by anybody (the caller's ref), then
 * thrown away, or shown as e->own (the entry's ref). */
int node_own_make(struct pool_node *n, struct node_entry *e,
		  const struct node_attr *attr, uint64_t size_hint,
		  struct node_object **ret_obj);
void node_own_discard(struct pool_node *n, struct node_object *o);
void node_own_begin(struct pool_node *n, struct node_entry *e,
		    struct node_object *o);
void node_own_show(struct pool_node *n, struct node_entry *e,
		   struct node_object *o);
/* Both. */
int node_own_new(struct pool_node *n, struct node_entry *e,
		 const struct node_attr *attr, uint64_t size_hint,
		 struct node_object **ret_obj);
/* o, which may be shown, is in this state from now on. */
void node_own_state(struct pool_node *n, struct node_object *o,
		    enum node_state state);
void node_writer_close_fd(struct pool_node *n, struct node_writer *w);
/* What was written until now has its mtime, or is not to change it. */
void node_own_stamp(struct pool_node *n, struct node_object *o);

/* learn.c */
void node_learn_size(struct pool_node *n, struct node_entry *e, uint64_t size);
/* What to reserve for a new file in dir; 0: no idea. */
uint64_t node_learn_predict(struct pool_node *n, struct node_dirent *dir);
bool node_name_is_temporary(const char *name, size_t len);

/* attr.c */
/* A change of attributes, as SETATTR tells it. */
struct node_change {
	unsigned int set; /* POOL_SET_* bits */
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* POOL_SET_XATTRS: all; _EACH: these */
	const char *remove; /* POOL_SET_XATTR_EACH: this one; or NULL */
};
/* 0 or -ENOMEM. */
void node_change_set(struct node_attr *a, const struct node_change *c);
int node_change_apply(const struct node_change *c, struct node_attr *a,
		      struct pool_xattrs **x);
/* Both from m, with what was changed here and is not answered laid over it; did
 * anything change that shows (1, else 0)? Or -ENOMEM: they are what they were.
 */
int node_attr_update(struct pool_node *n, struct node_attr *a,
		     struct pool_xattrs **x, const Kvpool__Meta *m);

/* Contents of one name that the master may have been sent before a cut, and
 * may have executed. */
#define NODE_BEFORE_MAX 4 /* as many as batches in flight; the oldest go */
struct node_before {
	unsigned int n;
	struct node_content list[NODE_BEFORE_MAX];
};
/* Of a message that borrows it; with one more: what the change was made from.
 */
struct node_before_pb {
	Kvpool__Content *list[NODE_BEFORE_MAX + 1];
	Kvpool__Content content[NODE_BEFORE_MAX + 1];
	XXH128_canonical_t sum[NODE_BEFORE_MAX + 1];
};

/* before.c */
/* *b is made if need be. Without memory it is not noted: the master then
 * refuses what it takes for overtaken by another node. */
void node_before_add(struct pool_node *n, struct node_before **b,
		     const struct node_content *c);
void node_before_join(struct pool_node *n, struct node_before **b,
		      const struct node_before *more);
/* How many; b and base, one more, may be NULL. */
size_t node_before_to_pb(const struct node_before *b,
			 const struct node_content *base,
			 struct node_before_pb *ret_pb);
void node_before_from_pb(struct pool_node *n, struct node_before **b,
			 Kvpool__Content *const *list, size_t len);

/* ops.c */
struct node_op;
/* Do NODE_OPS_MAX changes wait? Others are refused, publications wait. */
bool node_ops_in_order(const struct pool_node *n); /* an invariant, for tests */
bool node_ops_full(const struct pool_node *n);
/* Queue the publication of o, PENDING. 0, -ENOMEM, or -EAGAIN: the queue is
 * full; try at a later tick. */
int node_op_publish(struct pool_node *n, struct node_object *o);
int node_op_name(struct pool_node *n, int kind, struct pool_entry *e,
		 uint64_t gen);
/* Of c->attr, what e shows is told. Copies c. */
int node_op_setattr(struct pool_node *n, struct pool_entry *e,
		    const struct node_change *c);
/* Lay the changes of this path that are not answered over what the master says.
 * 0 or -ENOMEM. */
int node_ops_overlay(struct pool_node *n, const char *path, size_t path_len,
		     struct node_attr *a, struct pool_xattrs **x);
/* Add to *b what the master may have been sent of o, and of what it replaced.
 */
void node_op_before(struct pool_node *n, const struct node_object *o,
		    struct node_before **b);
void node_op_forget(struct pool_node *n, struct node_object *o);
/* Has o's publication been sent and not answered? */
bool node_op_sent(struct pool_node *n, const struct node_object *o);
/* The same, or was it sent before a cut, and may have been executed? */
bool node_op_told(struct pool_node *n, const struct node_object *o);
/* What the master has not answered, as one record or several; and back. The
 * publications' objects have to be there. 0 or -errno. */
void node_ops_hand_over(struct pool_node *n, struct pool_handover *h);
int node_ops_take_over(struct pool_node *n, const Kvpool__Ops *ops);
void node_ops_send(struct pool_node *n);
/* Has every change of rules been sent, so that the master knows of it before it
 * hears of anything that is sent now? */
bool node_ops_rules_sent(struct pool_node *n);
void node_ops_batched(uv_timer_t *h);
void node_ops_done(struct pool_node *n, const Kvpool__OpsDone *done);
/*
 * A session begins: what was sent in those before and is not answered is now,
 * as far as the master knows the results; the rest is sent again. Call it
 * before the inventory, which the results change.
 */
void node_ops_welcome(struct pool_node *n, const Kvpool__Welcome *w);
/* The master has named this generation. */
static inline void node_seen(struct pool_node *n, uint64_t gen)
{
	if (gen > n->seen_gen)
		n->seen_gen = gen;
}
void node_ops_cut_off(struct pool_node *n);
void node_ops_free(struct pool_node *n);
/* The lowest ticket of a change that is not answered; UINT64_MAX: none is left.
 */
uint64_t node_ops_oldest(const struct pool_node *n);

/* barrier.c */
void node_barriers_check(struct pool_node *n);
/* The change, or the publication, with this ticket is done. */
void node_barriers_progress(struct pool_node *n, uint64_t ticket);
void node_barriers_cut_off(struct pool_node *n);
void node_synced(struct pool_node *n, uint64_t req);

/* space.c */
void node_space_run(struct pool_node *n);
void node_space_init(struct pool_node *n);
void node_space_fini(struct pool_node *n);
/* A file of size bytes, to be written whole, of the pages of what would go for
 * it next. 0, or -errno: there is none, or none is needed. */
int node_space_reuse(struct pool_node *n, uint64_t size,
		     struct pool_file *ret_file);
/* The master's DROP of a copy it was asked about. */
void node_space_answered(struct pool_node *n, const struct node_object *o);

/* evicted.c */
#define NODE_EVICTED_MAX 4096 /* that are remembered by name */
#define NODE_EVICTED_TOLD 256 /* of those that went alone, at a join */
/* o, a counted copy, is about to be evicted; alone: without a master. */
void node_evicted_note(struct pool_node *n, const struct node_object *o,
		       bool alone);
/*
 * The last ones that went alone: path (borrowed until the next call of these)
 * and generation, into list, which has room for NODE_EVICTED_TOLD. Their
 * number.
 */
size_t node_evicted_alone(struct pool_node *n, Kvpool__Meta *list);
void node_evicted_fini(struct pool_node *n);

/* victim.c (for space.c: victim.h) */
/* Which class of the policy o is in; the same for everything below d, whose
 * rules changed, in slices. */
void node_judge(struct pool_node *n, struct node_object *o);
/* May rules forbid to evict it? Not what a client has stored elsewhere. */
bool node_guarded(const struct pool_node *n, const struct node_object *o);
void node_judge_below(struct pool_node *n, struct node_dirent *d);
bool node_judge_slice(struct pool_node *n); /* is there more to do? */
uint64_t node_evictable(struct pool_node *n);

/* fetch.c (inside: fetch.h), replicate.c */
/* Fetch e's published object, or join the fetch under way; w->cb runs (see
 * pool_node_want_start). 0 or -errno. */
int node_fetch_for(struct pool_node *n, struct node_entry *e,
		   struct node_want *w);
/* In the background, for nobody yet. 0 or -ENOMEM. */
int node_fetch_ahead(struct pool_node *n, struct node_entry *e);
void node_replicate(struct pool_node *n, const Kvpool__Replicate *r);
/* HELD: what became of the master's order to copy; with -EBADMSG also that a
 * copy which it counts on was damaged, and is gone. */
void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status);
/* What was reported goes at the end of the turn, ahead of any other message. */
void node_helds_send(struct pool_node *n);
void node_fetch_tick(struct pool_node *n, uint64_t now);
/* What has landed of objects that are not whole yet is used, and from now on no
 * longer claimed: bytes of all of them. */
uint64_t node_fetch_settle(struct pool_node *n);
/* Bytes of what is being fetched and will be cache, landed or not. */
uint64_t node_fetch_cache(struct pool_node *n);
void node_fetch_fini(struct pool_node *n);

/* want.c */
/* Check the local copy in a worker: verified, or damaged. 0 or -ENOMEM. */
int node_recheck(struct pool_node *n, struct node_object *o);

/* doubt.c */
void node_doubt_tick(struct pool_node *n);
/* The check of o ended so. */
void node_doubt_checked(struct pool_node *n, const struct node_object *o,
			int status);
void node_doubt_fini(struct pool_node *n);
/* e->obj == o is damaged (-EBADMSG) or not there (-ENOENT): withdrawn, dropped,
 * kept aside. The entry stays. */
void node_object_damaged(struct pool_node *n, struct node_object *o,
			 int status);

/* serve.c */
extern const struct pool_peers_ops node_peers_ops;

/* heat.c */
/* A peer asked for o. */
void node_heat_asked(struct pool_node *n, struct node_object *o);
/* o is an extra copy now. 0, or -ENOBUFS: there are too many. */
int node_heat_extra(struct pool_node *n, struct node_object *o);
/* o goes, or counts, or nobody has asked for long. */
void node_heat_forget(struct pool_node *n, struct node_object *o);
void node_heat_tick(struct pool_node *n, uint64_t now);
void node_heat_cut_off(struct pool_node *n);

/* feed.c */
/* 0, or -ENOMEM: it has to come again (nothing is lost if it comes twice). */
int node_feed_apply(struct pool_node *n, const Kvpool__Feed *f);
/* An order names a file's generation, perhaps before the feed does (a store
 * without a mount has none): applied as the feed would, so that the mount
 * hears of it. NULL: its path cannot be shown, or no memory. */
struct node_entry *node_feed_ahead(struct pool_node *n, const Kvpool__Meta *m);
/* What was ahead of the feed so far is not ahead of what comes now. */
void node_stage_begins(struct pool_node *n);
void node_member_apply(struct pool_node *n, const Kvpool__NodeInfo *info);
void node_drop_apply(struct pool_node *n, const Kvpool__Drop *d);
/* Has all been received of a picture, and what it did not name is going? The
 * master is told that the feed was heard when that is over: an fsync elsewhere
 * must not end while a name that was removed shows here. */
bool node_feed_sweeping(const struct pool_node *n);
bool node_sweep_slice(struct pool_node *n); /* is there more to do? */
/* The session has ended: half a sweep is none, the picture comes again. */
void node_sweep_cut_off(struct pool_node *n);
/* The largest room that one other store has, in bytes. */
uint64_t node_room_elsewhere(const struct pool_node *n);
struct node_member *node_member(struct pool_node *n, uint32_t index);

/* link.c */
int node_link_open(struct pool_node *n);
void node_link_close(struct pool_node *n);
void node_link_tick(struct pool_node *n, uint64_t now);
bool node_link_up(const struct pool_node *n);
/* 0 or -errno; -ENOTCONN without a session. Counts as a request. */
/* In any state of the session. 0 or -errno, logged: then the connection ends.
 */
int node_link_send_any(struct pool_node *n, uint16_t type, uint64_t req,
		       const ProtobufCMessage *msg);
int node_link_send(struct pool_node *n, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg);
/* Of the protocol, in this session; 0: there is none. */
unsigned int node_link_version(const struct pool_node *n);
/* Who we are and how full, for the master. Copies on their way do not count as
 * used: it knows what it has ordered. Borrows of n, until its next turn. */
void node_link_info(struct pool_node *n, Kvpool__NodeInfo *info);
/* Does too much wait for the kernel to be notified of? */
bool node_kernel_behind(const struct pool_node *n);
/* Is the master being told the inventory? Changes wait for its end. */
bool node_link_telling(const struct pool_node *n);
bool node_inventory_slice(struct pool_node *n); /* is there more to do now? */
/* The feed is applied up to seq: acknowledge when the kernel has been told. */
void node_feed_ack(struct pool_node *n, uint64_t seq);
/* Where the master is, or was, or is looked for; "" if nobody has said. */
const char *node_link_master(const struct pool_node *n);

/* walk.c */
/* Have node_*_slice called in the turns to come, until all are done. */
void node_walks_start(struct pool_node *n);
/* The walk's next entry, as pool_tree_walk_step; NULL also when this turn's
 * names are used up (w->at tells). */
struct pool_entry *node_walk_step(struct pool_node *n,
				  struct pool_tree_walk *w, bool *ret_leaving);
void node_walks_stop(struct pool_node *n);
void node_on_slices(uv_idle_t *h); /* n->on_slices */

/* status.c */
int node_metrics_register(struct pool_node *n);
void node_gauges(struct pool_node *n);

static inline struct node_entry *node_file(struct pool_entry *e)
{
	return e->is_dir ? NULL : (struct node_entry *)(void *)e;
}
static inline struct node_dirent *node_dir(struct pool_entry *e)
{
	return e->is_dir ? (struct node_dirent *)(void *)e : NULL;
}

#endif
