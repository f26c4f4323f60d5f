/*
 * Local files: objects, and the writers of those not yet published. node.h
 * draws the states of an object; a writer's phases are below.
 */
#ifndef POOL_NODE_OBJECT_H
#define POOL_NODE_OBJECT_H

#include "pool/node/entry.h"

#define NODE_RETRY_MS 1	/* backoff after a seal that found a writer ... */
#define NODE_RETRY_FAST 20	/* ... for so many retries; then one a tick */
#define NODE_KEPT_FDS 256	/* descriptors kept from write to seal */
#define NODE_ABANDON_MS (10 * 60 * 1000) /* drop a closed, unpublished file
					    that was not used for so long */
#define NODE_UNOPENED_MS 10000	/* drop a new file whose writer has not opened
				   it after so long */

struct node_object {
	struct pool_evict_node ev; /* inserted while HELD */
	struct node_entry *entry;  /* the name, NULL once DROPPED */
	uint64_t id;		   /* store file; 0 if borrowed */
	uint64_t gen;
	/* If its PUBLISH was sent with Op.again: the highest generation that
	 * this node had seen before. Else 0. Sent in inventories as
	 * Meta.seen_gen */
	uint64_t from;
	uint64_t size; /* final once sealed */
	XXH128_hash_t sum;
	uint32_t refs;
	uint32_t users;	   /* open handles of the mount */
	uint16_t lent;	   /* descriptors lent to peers */
	uint16_t lender;   /* borrowed: index of the node that lent it */
	uint8_t state;	   /* enum node_state */
	/* GETs that peers have begun for this copy; counts no further than 2 */
	uint8_t gets;
	uint8_t given;	   /* a descriptor was given away: its pages may be in
			      pipes and sockets (splice, sendfile), so they must
			      never be reused for another file */
	bool made : 1;	   /* written here, not fetched */
	bool counted : 1;  /* HELD: the master counts it as a replica */
	bool verified : 1; /* checksum compared since the daemon's start, and
			      nobody has reported a mismatch since */
	bool prefetched : 1; /* fetched after a look-up, not opened yet */
	bool read : 1; /* opened here, or fetched from here to be read */
	bool refused : 1;  /* the master refused the EVICT of `asked` */
	bool remains : 1;  /* DROPPED: the last unref removes its file */
	uint32_t doubted_s; /* when its last check was requested; 0: never */
	int lent_fd;	   /* >= 0: borrowed from a peer on this host; owns */
	uint32_t asked;	   /* node_stamp of the last EVICT for it; 0: none */
	uint32_t looked;   /* node_stamp of the last look-up hit; 0: none */
	/* node->helds_sent when a HELD item reported it; 0: none did */
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
	WRITER_RETRYING, /* a seal has failed and will be retried. It cannot be
			    written any more */
	WRITER_SEALING,
	WRITER_SEALED, /* its PUBLISH is not queued yet */
	/* its PUBLISH is in the outbox; on a client also HELD, until a store
	 * has a copy */
	WRITER_QUEUED,
	WRITER_ENDED, /* DROPPED: kept while handles are open */
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
	uint64_t base_of;    /* generation whose content is in `base`. If it
				differs from base_gen, `base` is outdated: use
				node_base */
	struct node_content base;
	uint64_t seen_gen;   /* node->seen_gen when it was sealed */
	struct node_before *before; /* owns, or NULL: earlier versions that this
				mount may have published under the name */
	/* Generation of an earlier file that this one replaced while the
	 * PUBLISH of the earlier one was in flight. If this file is dropped,
	 * too, before the master has taken or refused it for another change of
	 * the name, an UNLINK removes that generation. 0: none */
	uint64_t phantom_gen;
	uint64_t reserved;   /* bytes fallocated ahead */
	uint64_t claimed;    /* bytes granted by space.c and not written yet */
	uint64_t breaches;   /* pool_store_breaches at creation */
	uint64_t touched_ms; /* last use */
	/* pool_now_ns() when its publication began: at its last close or
	 * rename, or the fsync that sealed it while it was open. 0: not yet;
	 * while it is PENDING: not known */
	uint64_t begun_ns;
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
	/* Its kind; set when it is created. */
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
	/* Its current resources. */
	bool fd_kept;	     /* all handles are closed; `fd` is kept for the
				seal */
	bool sampling;	     /* holds pool_store_sampling on */
	bool stale_blob;     /* renamed or changed during the seal: its metadata
				is written again after it */
	bool summed;	     /* `sum` is that of its first sum_size bytes */
	uint8_t tries;	     /* number of seal retries */
	uint64_t sum_size;
	XXH128_hash_t sum;
	/* its PUBLISH until it is acked, or NULL; borrows */
	struct node_op *op;
	uint32_t by; /* 1 + uid of the renaming user; 0: none, unknown */
};

/* pool_now_ms() in four bytes, never 0. Ages of up to 49 days are exact;
 * callers compare them with limits of a few seconds. */
static inline uint32_t node_stamp(uint64_t now_ms)
{
	return (uint32_t)now_ms ? (uint32_t)now_ms : UINT32_MAX;
}

static inline uint32_t node_stamp_age(uint32_t stamp, uint64_t now_ms)
{
	return (uint32_t)now_ms - stamp;
}

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
/* Records that o's file uses so many bytes of the store (rounded up to pages);
 * 0: it is removed. */
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
/* Sets whether the master counts o, HELD, as a replica. */
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
/* Packs the metadata that is stored with a file. base may be NULL. Returns its
 * length or -errno. */
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

/* ---- own.c: a name's own file ---- */

/* May it be published once its last writer has closed? */
bool node_publishable(const struct node_object *o);
/*
 * Should node_try_seal with `force` try to seal it now? Yes if it has no open
 * handles, or only ones without a data mode (pins of the mount): the seal takes
 * a lease, which fails if anybody writes. No if it has a daemon-served or
 * passthrough handle: the lease may succeed, and the kernel open the file for
 * that handle afterwards.
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
/* Hides the published version of the name, and queues its UNLINK. 0 or -errno.
 */
int node_name_remove(struct pool_node *n, struct node_entry *e);

/* ---- write.c: creation ---- */

/* A WRITING object for e that nobody sees yet, with a ref for the caller, which
 * then calls node_own_discard, or node_own_show (which takes the ref). */
int node_own_make(struct pool_node *n, struct node_entry *e,
		  const struct node_attr *attr, uint64_t size_hint,
		  struct node_object **ret_obj);

/* ---- seal.c: from the last close to the publication ---- */

/* May a write beyond the reservation have failed, unnoticed by the daemon?
 * Counts it. */
bool node_outgrew(struct pool_node *n, struct node_object *o);
/* 0, also if it must wait; -errno: o is lost, and perhaps freed. force: seal it
 * even while handles are open (fsync). */
int node_try_seal(struct pool_node *n, struct node_object *o, bool force);
/* Tries to seal each candidate once, even while handles are open (fsync). */
void node_seal_candidates(struct pool_node *n);
/* Is a retry due for a closed file whose seal failed because the kernel or a
 * mapping still used the file? */
bool node_seals_due(const struct pool_node *n);
void node_seal_small(struct pool_node *n);
/* Completes what is being sealed on the loop. */
void node_seals_end(struct pool_node *n);
void node_writers_tick(struct pool_node *n, uint64_t now);
/* Queues the PUBLISH of each sealed file: within a directory in the order in
 * which they were closed. */
void node_publish_sealed(struct pool_node *n);
/* Queues the PUBLISH of o (PENDING), with a new ticket. If that fails (no
 * memory, queue full), node_publish_sealed queues it later. */
void node_publish(struct pool_node *n, struct node_object *o);
/* The ack of o's PUBLISH (gen != 0), or its refusal (status < 0). */
void node_publish_done(struct pool_node *n, struct node_object *o, int status,
		       uint64_t gen);
/* A store has a copy of a client's object. named: the feed still names the
 * client as a holder. */
void node_client_stored(struct pool_node *n, struct node_object *o, bool named);
/* Has a store on this host linked this file of a client? Then its pages are
 * freed only when both have unlinked it. */
bool node_client_linked(const struct pool_node *n, const struct node_object *o);

#endif
