/*
 * What the files of a node share. node.h has the architecture. Each part has a
 * header; together they are one loop and one struct pool_node, below.
 *
 *   entry.h    names: the entries and directories of the mirror
 *   object.h   local files, and those who write them
 *   space.h    claims and evictions
 *   outbox.h   changes until the master has acked them
 *   copies.h   fetches, checks of copies, copies that the master orders
 *   mirror.h   the master's feed, members, fsync of a directory
 *   session.h  the session with the master
 *
 * Which file may call which: tests/layers.list.
 */
#ifndef POOL_NODE_NODE_PRIV_H
#define POOL_NODE_NODE_PRIV_H

#include "pool/base/clock.h"
#include "pool/base/distinct.h"
#include "pool/base/hash.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/dial.h"
#include "pool/conn/handover.h"
#include "pool/conn/wire.h"
#include "pool/model/evict.h"
#include "pool/node/copies.h"
#include "pool/node/entry.h"
#include "pool/node/mirror.h"
#include "pool/node/node.h"
#include "pool/node/object.h"
#include "pool/node/outbox.h"
#include "pool/node/session.h"
#include "pool/node/space.h"

#define NODE_SLICE 2000	/* names that all walks together visit in a turn */
#define NODE_TICK_MS 20		/* housekeeping */
#define NODE_TICK_IDLE_MS 100	/* the same without work (node_has_work) */

/*
 * Figures that add up (tests/it/it_accounting.sh; of opens: fs/fs_priv.h):
 *
 *   look-ups = lookup_local + lookup_peer + lookup_misses
 *   fetches = fetched_copied + fetched_lent + fetched_linked (their times:
 *     fetch_copied, fetch_lent, fetch_linked)
 *   published <= publications timed (`publish`) <= published + same_content
 *   copies = objects and cached copies that are here + copies_evicted +
 *     copies_removed + copies_rewritten
 *   evicted_cache + evicted_last + evicted_alone <= copies_evicted; the rest
 *     are borrowed copies that their lender recalled
 *   prefetched = prefetch_useful + prefetch_wasted + prefetch_dropped +
 *     prefetch_unread, while none runs
 */
struct node_counters {
	struct pool_counter lookup_local, lookup_peer, lookup_misses;
	struct pool_counter fetched_copied, fetched_lent, fetched_linked;
	struct pool_counter copies, copies_evicted, copies_removed;
	struct pool_counter copies_rewritten, evicted_unread;
	struct pool_counter fetches, fetch_failures, fetch_bytes, fetch_retries;
	struct pool_counter bad_sums, fetch_stalls;
	struct pool_counter doubts, doubts_skipped, doubts_unfounded;
	struct pool_counter doubts_reported, damaged;
	struct pool_counter prefetched, prefetch_useful, prefetch_wasted;
	struct pool_counter prefetch_dropped, prefetch_skipped;
	struct pool_counter published, same_content, stale_puts, unlinked;
	struct pool_counter before_forgotten;
	struct pool_counter put_bytes, loaded_bytes, asked_others;
	struct pool_counter reserved_creates, served_creates;
	struct pool_counter evicted_cache, evicted_last, evicted_alone,
		evicted_recalled, evicted_forgotten;
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
	struct pool_gauge claimed, extras, fds, prefetch_unread;
	struct pool_gauge evictable, cut_off, clock_ahead_ns;
	struct pool_gauge dirs, attr_bytes;
	struct pool_counter walked;
	struct pool_gauge walked_max;
	struct pool_hist put, publish, fetch_copied, fetch_lent, fetch_linked;
};

/* asked.c: what was looked up in one window of time */
struct node_asked {
	struct pool_window window;
	/* set by node_asked_gauges */
	struct pool_gauge lookups, hits, best_hits, names;
};

struct node_asked_part {
	uint64_t part; /* of its window; the rest is of that time */
	uint64_t seen, hits, loaded;
	uint8_t names[POOL_SMALL_SIZE];
};

/* ... and below one directory of the root */
struct node_asked_dir {
	uint8_t name_len; /* 0: files in the root itself */
	char name[POOL_NAME_MAX];
	uint64_t last; /* part of the longest window that was added to last */
	/* Not added to the windows yet: a look-up counts once. */
	struct node_asked_part recent;
	struct node_asked_part at[POOL_ASKED_WINDOWS][POOL_WINDOW_PARTS];
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
	struct node_asked asked[POOL_ASKED_WINDOWS];
	uint64_t asked_seed; /* of its sketches; the master may set another */
	/* [0] is for all directories that find no place. */
	struct node_asked_dir asked_dirs[POOL_ASKED_DIRS];
	uint64_t asked_cookies[POOL_ASKED_DIRS]; /* of their pool_entry */
	unsigned int nasked_dirs; /* with the first; 0: no look-up yet */
	uint64_t asked_changes;	  /* of what a report has */

	const struct pool_node_ops *ops;
	void *ops_arg;

	/* This node's identity, with the namespaces to which it is limited.
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
	struct pool_hash orphans; /* taken over: files without a name, by id;
				     adopted: those of opts.were_open */
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
	struct seal *sliced; /* sealed on the loop in slices; or NULL */
	uint64_t sliced_ns;  /* end of the last slices */
	unsigned int nworker_seals; /* sealed by workers now */
	unsigned int nkept_fds; /* descriptors kept for seals */
	struct pool_list fds;	/* struct node_fd, least recently used first */
	unsigned int nfds;	/* in `fds` */
	struct node_learn learn;   /* sizes in the whole mount */
	uint64_t ticket;	   /* the last one assigned */

	/* ops.c, ops_done.c */
	struct pool_list ops_waiting, ops_sent; /* node_op, by ticket */
	size_t nops; /* in both */
	struct pool_hash changes; /* the SETATTRs in both, by path */
	struct pool_quota changers; /* each user's changes in both lists, except
				       publications; the count is `dirs` */
	uint32_t caller; /* uid set by pool_node_caller */
	unsigned int batches; /* in flight */
	uint64_t batch_ms;    /* when the last batch was sent */
	uint64_t acked_ns;    /* when the acks being applied were received */
	uint64_t rules_ticket; /* of the last change that may affect rules */
	uint64_t access_ticket; /* of the last change of a name, mode or owner,
				   which may affect who may read what */
	uint64_t op_seq;      /* highest feed sequence of an acked change */
	uint64_t ops_run;     /* random: identifies this process to masters */
	uint64_t ops_done;    /* changes of this run that were acked */
	uint64_t ops_given;   /* changes of this run that were numbered */
	uint64_t seen_gen;    /* highest generation from any master */
	struct pool_list barriers;

	/* space.c, evicted.c, outbox.c */
	struct pool_list claims; /* waiting ones, oldest first */
	uint64_t claimed;	 /* bytes granted and not allocated yet */
	uint64_t claimed_ever;	 /* bytes granted since the start */
	struct node_evicted *evicted; /* NULL: none so far */
	/* bytes of EVICTs in flight; and when that was last set to 0 */
	uint64_t asked_bytes, asked_reset_ms;
	/* Drop.granted of the last DROP: bytes whose eviction the master has
	 * permitted in this session. Sent as Evict.seen */
	uint64_t granted;
	uint64_t helds_sent;   /* HELD items since the start */
	uint64_t helds_before; /* of these, in earlier sessions */
	struct node_helds helds;
	uint64_t keep_free; /* half of the bytes kept free (space.c) */
	uint64_t space_ms; /* when node_space_run last ran */
	struct pool_space space_seen; /* cached by node_space_lately */
	uint64_t space_seen_ms;	      /* when it was measured */

	/* fetch*.c, want.c, rewrite.c */
	struct pool_list rewrites; /* copies in flight */
	struct pool_list fetches;
	struct node_recheck *rechecks;
	unsigned int nprefetch, nfetches;
	uint64_t whole_bytes; /* in flight, in ranges larger than NODE_WHOLE */
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
	uint8_t sweep;		     /* number of the picture; its names are
					marked with it */
	uint8_t stage;		     /* number of the session or picture; never
					0 (feed.c) */
	uint64_t welcome_seq;	     /* of the last change before WELCOME */
	bool feed_begun;	     /* a FEED was received since WELCOME */
	bool feed_skipped; /* a feed entry was skipped: here its name is a
			      directory instead of a file, or the reverse,
			      or a parent is a file. The whole picture is
			      requested again at resync_ms */
	uint64_t resync_ms, resync_wait_ms;
	bool in_picture;	     /* a picture is being received, or must be
					requested again */
	bool complete;		     /* a picture has been received */
	uint64_t feed_epoch, feed_seq; /* the mirror has all changes up to this;
					  unchanged during a picture */
	uint64_t swept_seq; /* while sweeping: received up to here */
	/* The feed ack up to ack_seq waits until the kernel is notified. */
	bool ack_waits;
	uint64_t ack_seq;
	uint64_t mark; /* of the last ops.when_notified; grows */

	/* outbox.c, session.c */
	struct node_session *session; /* owns; NULL: closed */
	uint64_t epoch; /* of the session; 0: none yet */
	uint32_t index; /* this node's in that epoch */
	uint64_t held_epoch; /* the highest epoch of files found at the start */
	uint64_t too_large_ms; /* when an object larger than the store was
				  logged last */
	uint64_t cut_off_ms; /* when the session ended; 0: it is up */

	/* Idle, not prepare: the loop runs it before the next poll, and then
	 * does not sleep in that poll. */
	uv_idle_t kick;
	uv_idle_cb on_kick; /* node.c */

	/* walk.c */
	uv_idle_t slicing; /* seal.c: active while `sliced` */
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
	unsigned int handles; /* open; when 0, closed() runs */
	void (*on_handles_closed)(struct pool_node *n); /* node.c */
	void (*closed)(void *arg);
	void *closed_arg;
};

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

/* Does this node's feed report changes of it? */
static inline bool node_is_fed(const struct pool_node *n,
			       const struct pool_entry *e)
{
	return n->opts.mount && node_is_ours(e);
}

/* A master has sent this generation. */
static inline void node_seen(struct pool_node *n, uint64_t gen)
{
	if (gen > n->seen_gen)
		n->seen_gen = gen;
}

/* Is it known, without a system call, that nobody has or had a descriptor or
 * another name of its file? */
static inline bool node_is_ours_alone(const struct pool_node *n,
				      const struct node_object *o)
{
	return n->opts.puts_whole && !node_object_given(o);
}

/* ---- loop.c ---- */

/* Schedules one pass over everything that waits (node.c), before the next poll.
 */
void node_kick(struct pool_node *n);
/* The time between ticks: NODE_TICK_MS or NODE_TICK_IDLE_MS. */
void node_tick_every(struct pool_node *n, unsigned int ms);
/* Is there a file that may grow, a transfer, a waiting caller, or an unacked
 * change? Only then are ticks NODE_TICK_MS apart. */
bool node_has_work(const struct pool_node *n);
/* Such work begins: ticks are NODE_TICK_MS apart from now on. node_kick
 * includes it. */
void node_not_idle(struct pool_node *n);
/* One of pool_node.handles has closed. After the last one the node ends. */
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

/* ---- serve.c: requests of peers ---- */

extern const struct pool_peers_ops node_peers_ops;

/* ---- status.c ---- */

int node_metrics_register(struct pool_node *n);

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
/* Is it one of opts.were_open? (pool_store_opts.keep; arg: the node) */
bool node_was_open(void *arg, uint64_t id);
/* The file of o, one of these, was found: it stays until pool_node_reopened. 0
 * or -ENOMEM. */
int node_was_open_found(struct pool_node *n, struct node_object *o);

/* ---- check.c ---- */

/* Asserts what holds between two turns of the loop. O(names). For tests. */
void node_check(struct pool_node *n);
/* The same without what an allocation that failed may have falsified (the
 * quota's accounts). Allocates nothing. */
void node_check_files(struct pool_node *n);

#endif
