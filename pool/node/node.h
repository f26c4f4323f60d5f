/*
 * A node: what this machine holds of the pool, and the mirror of the pool's
 * namespace that its mount shows.
 *
 *   node_name   names: look up, make, move, remove
 *   node_attr   attributes: what the master says, and what was changed since
 *   node_write  a local file while it is written (node_learn: how large will it
 *               be, node_resize: room for it, node_rewrite: new generations)
 *   node_seal   the last writer is gone: checksum, metadata, publication
 *   node_want   who wants an object: opens, prefetch, checks after a restart
 *   node_read   an object of another host straight into a reader's memory
 *   node_doubt  local copies that may be damaged: checked, and withdrawn
 *   node_fetch  remote objects made local; replicas on the master's order
 *   node_serve  what peers ask of us; node_heat: how much, and extra copies
 *   node_space  who gets the store's free bytes; node_victim: and who has to go
 *   node_ops    changes waiting for the master's word
 *   node_barrier  what an fsync of a directory waits for
 *   node_feed   the master's change feed applied to the mirror
 *   node_link   the session with the master: join, inventory, heartbeats
 *   node_walk   walks over the mirror, a slice a turn
 *
 * Thread: loop, for every function, callback and struct here, but where a
 * request is handed to libuv's workers inside a module; and but for questions.
 *
 * QUESTIONS (is there such a name, of which size?) may be asked by any thread
 * while it holds pool_node_opts.names for reading. It may then look at the tree;
 * at a file's gen, hidden_gen, size and own, and that one's state, size and id;
 * at a directory's gone and xattrs: so call pool_tree_find and
 * pool_node_visible. The loop holds it for writing while it changes these, for
 * a moment each, and across nothing that takes long: nobody who asks waits for
 * what the loop does beyond that; for its being put off by the scheduler only if
 * that is in such a moment.
 *
 * A NAME (struct node_entry) may have, at once:
 *   - a published state (gen != 0), as the feed says;
 *   - `obj`, the local copy of that published generation, if there is one;
 *   - `own`, a newer local file that only this mount sees (being written, or
 *     sealed and waiting for the master). It hides the published state here.
 *
 * A LOCAL FILE (struct node_object) goes through
 *
 *   WRITING --seal--> SEALING --> PENDING --master's ack--> HELD --> DROPPED
 *      |                 |           |                        ^         ^
 *      +-- poisoned, unlinked, abandoned, not needed ----------+---------+
 *   FETCHING --verified--> HELD
 *
 *   state      own  obj  has pages  gen  may be read by          evictable
 *   WRITING     x        growing     0   this mount              no
 *   SEALING     x        whole       0   this mount              no
 *   PENDING     x        whole       0   this mount              no
 *   FETCHING         -   landing    !0   nobody                  no
 *   HELD             x   whole      !0   this mount, peers       if unused
 *   DROPPED     -    -   unlinked    -   who has it open         -
 */
#ifndef POOL_NODE_NODE_H
#define POOL_NODE_NODE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/statvfs.h>
#include <uv.h>
#include <xxhash.h>

#include "pool/base/metric.h"
#include "pool/base/parse.h"
#include "pool/base/shortlock.h"
#include "pool/model/evict.h"
#include "pool/peer/peer.h"
#include "pool/model/rules.h"
#include "pool/store/store.h"
#include "pool/model/tree.h"
#include "pool/model/xattrs.h"

struct pool_node;
struct verbs;
struct node_object;
struct pool_handover;

/* What stat(2) shows of a name besides its size. */
/* Of every name: without the four bytes that would be between its members. */
struct node_attr {
	uint32_t mode; /* permission bits */
	uint32_t uid, gid;
	uint64_t mtime_ns;
	uint64_t gen; /* Meta.attr_gen */
} __attribute__((packed, aligned(4)));

#define NODE_HOLDERS_INLINE 4
#define NODE_HIDES_ANY (UINT64_MAX - UINT16_MAX)

struct node_entry {
	struct pool_entry e;
	uint64_t gen; /* published generation, 0: not published */
	uint64_t size;
	XXH128_hash_t sum;
	struct node_attr attr;
	uint8_t nholders;	    /* known ones; at most NODE_HOLDERS_INLINE */
	uint8_t seen;		    /* sweep mark of the feed */
	uint8_t replicas;	    /* how many holders the feed named */
	uint8_t ahead; /* node->stage when the master named it in an answer or
			  an order, until the feed does; 0: it has */
	uint64_t hidden_gen; /* unlinked here: generations <= this are hidden;
				from NODE_HIDES_ANY on: all, until so many UNLINKs
				of any are answered as it takes to UINT64_MAX */
	struct pool_xattrs *xattrs; /* owns */
	struct node_object *obj;    /* owns a ref, or NULL */
	struct node_object *own;    /* owns a ref, or NULL */
	struct node_fetch *fetch;   /* under way, or NULL */
	void *fs;		    /* fs's inode now bound to the name */
	uint16_t holders[NODE_HOLDERS_INLINE]; /* node indices */
};

/* Sizes written below a directory, to know what to reserve. */
struct node_learn {
	uint64_t last, largest;
	uint32_t count;
	uint32_t varied; /* > 0: sizes differed among the last few */
};

struct node_dirent {
	struct pool_dir d;
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* owns */
	struct pool_rules rules;    /* parsed from xattrs; not inherited ones */
	struct node_learn learn;
	void *fs;
	uint64_t mtime_ns; /* shown instead of attr's: a name of it came or went
			      here since that was set; or 0 */
	uint64_t ctime_ns; /* anything of it changed here; or 0: as mtime */
	uint32_t ngone; /* directories below that are gone, and stay yet */
	uint8_t seen;
	bool known; /* the master has it (or a name below it) */
	bool gone;  /* removed; stays until the last hidden name below goes */
	uint32_t pass; /* node_publish_sealed: something below is being sealed */
	uint8_t removing; /* RMDIRs the master has not answered: gone till then */
	uint8_t making; /* MKDIRs it has not answered: there till then */
	int lost; /* -errno: a file in it was lost after its close, and no
		     fsync has told of that */
};

enum node_state {
	NODE_WRITING,
	NODE_SEALING,
	NODE_PENDING,
	NODE_FETCHING,
	NODE_HELD,
	NODE_DROPPED,
};

struct node_object {
	struct pool_evict_node ev; /* inserted while HELD */
	struct node_entry *entry;  /* the name, NULL once DROPPED */
	uint64_t id;		   /* store file; 0 if borrowed */
	uint64_t gen;
	uint64_t size; /* final once sealed */
	XXH128_hash_t sum;
	uint32_t refs;
	uint32_t users;	   /* open handles of the mount */
	uint16_t lent;	   /* descriptors with peers */
	uint16_t lender;   /* of a borrowed one: its node index */
	uint8_t state;	   /* enum node_state */
	uint8_t gets;	   /* that peers began, of this copy; 2: or more */
	uint8_t given;	   /* somebody had a descriptor of it: its pages may be
			      anywhere (splice, sendfile), and never change */
	bool made : 1;	   /* here, not fetched */
	bool counted : 1;  /* HELD: the master counts it as a replica */
	bool verified : 1; /* sum checked since the daemon's start, and not
			      doubted since */
	bool prefetched : 1; /* fetched for a look-up, not opened since */
	bool refused : 1;  /* the master said KEEP when it was asked_ms */
	uint32_t doubted_s; /* when it was to be checked last; 0: never */
	int lent_fd;	   /* >= 0: borrowed from a peer on this host */
	uint32_t asked;	   /* when the master was asked to let it go; and the */
	uint32_t looked;   /* last look-up hit that is known: node_stamp; 0: none */
	uint64_t said;	   /* node->said once the master was told that it is
			      here; 0: it was not (HELD) */
	struct node_heat *heat; /* peers asked for it of late; or NULL */
	void *fs;	   /* fs's inode that serves it, or NULL */
	uint64_t uses; /* bytes of the store, by node_object_uses */
	struct node_writer *w; /* WRITING .. PENDING, else NULL; owned */
};

/* A pool_now_ms() in four bytes, never 0. Its age is right for 49 days, and
 * what asks for it looks back some seconds. */
static inline uint32_t node_stamp(uint64_t now_ms)
{
	return (uint32_t)now_ms ? (uint32_t)now_ms : UINT32_MAX;
}

static inline uint32_t node_stamp_age(uint32_t stamp, uint64_t now_ms)
{
	return (uint32_t)now_ms - stamp;
}

struct node_content {
	XXH128_hash_t sum;
	uint64_t size;
};

/* The part of a local file that matters until it is published. */
struct node_writer {
	struct pool_list link; /* in node->writers, oldest first */
	struct node_object *obj;
	struct node_attr attr;
	struct pool_xattrs *xattrs; /* owns */
	uint64_t base_gen;   /* published generation it replaces */
	uint64_t base_of;    /* `base` is the content of this generation */
	struct node_content base;
	uint64_t seen_gen;   /* highest generation seen when it was sealed */
	struct node_before *before; /* owns, or NULL: what this mount may have
				published under the name before it */
	uint64_t phantom_gen; /* the master gave it to a file that this one
				 replaced: to be taken back if this goes too */
	uint64_t reserved;   /* bytes fallocated ahead */
	uint64_t claimed;    /* bytes granted by node_space and not yet written */
	uint64_t breaches;   /* pool_store_breaches at creation */
	uint64_t touched_ms; /* last sign of life */
	uint64_t stamp_ns;   /* mtime of its store file when that of attr was set;
				0: when it was made. Another one: written since */
	uint64_t ticket;     /* order of sealing, for fsync barriers */
	uint32_t opens;	     /* writable handles of the mount */
	int poison;	     /* -errno of a failed write; never published then */
	int fd;		     /* O_RDWR while served writers have it open, or -1 */
	bool fd_kept;	     /* nobody has it open any more: `fd` is for the seal */
	bool served;	     /* data passes through the daemon */
	bool scratch;	     /* never published */
	bool flushed;	     /* a close or a rename made it a candidate */
	bool renamed;	     /* its name came from a rename */
	bool pristine_copy;  /* began as a copy of the published object, and
				nobody is known to have changed it */
	bool queued;	     /* a seal retry is scheduled */
	uint8_t tries;	     /* how many there were */
	bool sampling;	     /* holds pool_store_sampling on */
	bool stale_blob;     /* renamed or changed while it was being sealed */
	bool summed;	     /* `sum` is that of its first sum_size bytes */
	uint64_t sum_size;
	XXH128_hash_t sum;
	bool sealed;	     /* PENDING, not queued: its turn has not come */
	bool again;	     /* an earlier process may have published it */
	struct node_op *op;  /* its publication, as long as it is not answered;
				borrows, or NULL */
	bool was_held;	     /* its bytes were published, under another name:
				who has them open or borrowed must not see
				them change */
};

/* What fs is told, on the loop. object_gone may come from inside a call of fs's
 * (a claim that evicts); the others never do. */
struct pool_node_ops {
	/* The name's content is another (or none) than the one shown so far:
	 * unbind the inode e->fs (set it to NULL) and forget the dentry. */
	void (*changed)(void *arg, struct node_entry *e);
	/* Attributes or xattrs changed. */
	void (*attr_changed)(void *arg, struct pool_entry *e);
	/* e->own has become e->obj, the published generation. */
	void (*published)(void *arg, struct node_entry *e);
	/* A name is there that was not. */
	void (*appeared)(void *arg, struct pool_entry *e);
	/* A directory goes: unbind dir->fs, close its readers. */
	void (*dir_gone)(void *arg, struct node_dirent *dir);
	/* Everything notified so far has to reach the kernel; then call
	 * pool_node_told(n, mark), at once or later. Marks grow. */
	void (*tell)(void *arg, uint64_t mark);
	/* The kernel must not go by what it remembers of names any more, at
	 * once and without waiting for anything. */
	void (*expire)(void *arg);
	/* Does too much wait to be notified? The feed waits then. May be NULL. */
	bool (*behind)(void *arg);
	/* The local copy obj is being dropped: let go of what pins it. */
	void (*object_gone)(void *arg, struct node_object *obj);
};

struct pool_node_opts {
	uv_loop_t *loop;
	/* Tried in turn until one says that it is the master; none: wait for
	 * pool_node_master_found. */
	struct pool_hostports masters;
	struct pool_hostport listen;
	const char *advertise; /* "host:port"; NULL: listen's, port as bound */
	const char *unix_path; /* peers' Unix socket; NULL: none */
	const char *name;      /* for people */
	const char *store_dir;
	uint64_t store_size;  /* 0: client */
	uint64_t buffer_size; /* of a client */
	bool store_plain;     /* mount nothing at store_dir */
	bool mount;	      /* subscribe to the namespace */
	bool fd_passing;
	bool reserve; /* false: never reserve (daemon-served mode) */
	/* What is created with a size is written whole, to that size, before
	 * anybody reads it (libkvpool): the pages of what goes for it will do. */
	bool puts_whole;
	struct verbs *verbs; /* borrows; NULL: TCP only */
	/* Of local users, who may be the master or a peer. Borrows; NULL:
	 * everybody. */
	struct pool_trust *trust;
	unsigned int movers;
	unsigned int prefetch_max; /* background fetches at once; 0: none */
	unsigned int deadline_ms;  /* metadata operations; 0: 2000 */
	unsigned int hot_gets; /* so many GETs in 10 s: hot; 0: never */
	unsigned int cold_ms;  /* without one for so long: cold */
	/* What another process had, which goes on being the node until
	 * pool_node_begin (borrows until then); NULL: find what is there. */
	struct pool_handover *handover;
	struct pool_metrics *metrics;
	struct pool_shortlock *names; /* borrows; NULL: only the loop asks */
};

/* 0 or -errno, logged. ops may be set later by pool_node_set_ops. */
int pool_node_open(const struct pool_node_opts *opts,
		   struct pool_node **ret_node);
/* Taken over: the other process has ended, this is the node from now on. 0 or
 * -errno, logged: it is nobody's then. */
int pool_node_begin(struct pool_node *n);
/* ---- handing over ----
 *
 * Whatever is asked of the node has been answered (fs has seen to that), and
 * nothing of it is called until it has ended or the other has failed. */

/* Is something under way that cannot be handed over? What, for people, or
 * NULL. It ends by itself. */
const char *pool_node_busy(struct pool_node *n);
/* Names, files, changes that the master has not answered. Errors are h's. */
void pool_node_hand_over(struct pool_node *n, struct pool_handover *h);
void node_attr_from_meta(const Kvpool__Meta *m, struct node_attr *ret);
/* Of an object that the mount has open after its name has gone (DROPPED): its
 * writer's part, or NULL, to be freed by node_writer_msg_free; and back: a new
 * one, with a ref for the caller (NULL: ENOMEM). w: NULL: a reader's. fd: the
 * file, taken over, or -1. */
Kvpool__HandoverWriter *
node_orphan_hand_over(struct pool_node *n, const struct node_object *o);
void node_writer_msg_free(Kvpool__HandoverWriter *m);
struct node_object *
node_orphan_take_over(struct pool_node *n,
		      const Kvpool__HandoverWriter *w, int fd);
void pool_node_set_ops(struct pool_node *n, const struct pool_node_ops *ops,
		       void *arg, const char *data_mode);
/* Instead of pool_node_close where the start of something else has failed and
 * the process is about to end: the store's tmpfs goes if it was made now. */
void pool_node_undo(struct pool_node *n);
/*
 * Stop: publishes what is pending (at most timeout_ms), leaves the master,
 * closes everything; closed(arg) when nothing is left on the loop.
 */
void pool_node_close(struct pool_node *n, unsigned int timeout_ms,
		     void (*closed)(void *arg), void *arg);

bool pool_node_connected(const struct pool_node *n);
/* Has the mirror been whole since the start? */
bool pool_node_complete(const struct pool_node *n);
/* The master is there: without one, it is dialled next. */
void pool_node_master_found(struct pool_node *n,
			    const struct pool_hostport *at);

struct pool_tree *pool_node_tree(struct pool_node *n);
struct pool_store *pool_node_store(struct pool_node *n);
struct node_dirent *pool_node_root(struct pool_node *n);

/* ---- names (none of these waits; the master is told afterwards) ---- */

/* The visible entry of a name, or NULL. Counts hits and misses. */
struct pool_entry *pool_node_lookup(struct pool_node *n,
				    struct node_dirent *dir, const char *name,
				    size_t len);
/* Does the entry show anything now? (Directories always do.) */
bool pool_node_visible(const struct pool_entry *e);
/* Published state visible (not hidden by an unlink)? */
bool pool_node_published(const struct node_entry *e);
/* The rules in force for a name or directory. */
void pool_node_rules(struct pool_node *n, struct pool_entry *e,
		     struct pool_rules *ret);

/* Names are made, here and by the functions below, if they and their paths are
 * no longer than POOL_NAME_MAX and POOL_PATH_MAX: else -ENAMETOOLONG. */
int pool_node_mkdir(struct pool_node *n, struct node_dirent *dir,
		    const char *name, size_t len, const struct node_attr *attr,
		    struct node_dirent **ret_dir);
/* Remove the entry if nothing is left of it (fs has unbound its inode). */
void pool_node_tidy(struct pool_node *n, struct pool_entry *e);
/* -ENOTEMPTY, -ENOENT, -EBUSY (the root). */
int pool_node_rmdir(struct pool_node *n, struct node_dirent *dir);
/* By the rule `unlink`: from the pool, or for this mount only. */
int pool_node_unlink(struct pool_node *n, struct node_entry *e);
/*
 * Move a name. noreplace: -EEXIST if the target is visible. -EXDEV for what
 * could not be done at once (a published object that is not here, a directory
 * with content): mv(1) copies then. The poison of a file that failed is
 * returned (and the file stays, unpublished). *ret_to: the entry it has now;
 * what the target showed before has been told to ops.changed only if fs asked
 * by itself (fs unbinds it: it knows that the kernel moves the dentry).
 */
int pool_node_rename(struct pool_node *n, struct pool_entry *from,
		     struct node_dirent *dir, const char *name, size_t len,
		     bool noreplace, struct pool_entry **ret_to);
/* set: POOL_SET_* bits, not _XATTR_EACH; xattrs are taken over when
 * POOL_SET_XATTRS is set. */
int pool_node_setattr(struct pool_node *n, struct pool_entry *e,
		      unsigned int set, const struct node_attr *attr,
		      struct pool_xattrs *xattrs);
/* One extended attribute, and no other; value NULL: removed. As
 * pool_xattrs_set, which is judged by what this mount knows; -EAGAIN. */
int pool_node_setxattr(struct pool_node *n, struct pool_entry *e,
		       const char *name, const void *value, size_t len,
		       int flags);
const struct node_attr *pool_node_attr(const struct pool_entry *e);
/*
 * Times of directories are each mount's own: mtime is that of attr, until a name
 * below comes or goes (pool_node_dir_touch, wall clock), ctime what anything of
 * it changed last. Directories below it that are shown: pool_node_dir_dirs.
 */
void pool_node_dir_touch(struct node_dirent *d, uint64_t wall_ns);
uint64_t pool_node_dir_mtime(const struct node_dirent *d);
uint64_t pool_node_dir_dirs(const struct node_dirent *d);
struct pool_xattrs *pool_node_xattrs(const struct pool_entry *e);
/* user.kvpool.* computed ones: generation, checksum, state, holders (how many
 * nodes have a copy), nodes (which), and the rule replicas where none is set
 * (what is inherited). Length or -ENODATA. */
int pool_node_info(struct pool_node *n, struct pool_entry *e, const char *name,
		   char *buf, size_t cap);
extern const char *const pool_node_info_names[];

/* ---- writing ---- */

/*
 * A new local file as `own` of a name (added if need be). size_hint: 0, or what
 * the caller knows of its size. Decides between a reserved file (passthrough)
 * and a daemon-served one: (*ret_obj)->w->served. -EEXIST if `own` is there.
 */
int pool_node_create(struct pool_node *n, struct node_dirent *dir,
		     const char *name, size_t len,
		     const struct node_attr *attr, uint64_t size_hint,
		     struct node_object **ret_obj);
/* Largest size a file may get here. */
uint64_t pool_node_size_max(struct pool_node *n, const struct node_writer *w);

typedef void (*node_done_cb)(void *arg, int status);

/*
 * Begin a new generation of a published name: `own` appears, empty or with the
 * first `keep` bytes of the published content (fetched first if need be).
 * Returns 1 if that is done already, -errno if it cannot be (cb never runs;
 * -EAGAIN: it is being done for somebody else, try again in a moment), or 0:
 * cb(arg, 0 or -errno) runs once, perhaps before this returns.
 */
int pool_node_rewrite_start(struct pool_node *n, struct node_entry *e,
			    uint64_t keep, node_done_cb cb, void *arg);

/* A writable handle was opened / is gone; somebody has closed one, which others
 * may still share. */
void pool_node_writer_opened(struct pool_node *n, struct node_object *o);
void pool_node_writer_closed(struct pool_node *n, struct node_object *o);
void pool_node_writer_flushed(struct pool_node *n, struct node_object *o);
/*
 * It is to be written again although it has been sealed: back to WRITING.
 * -EAGAIN if that must wait (it is closed and about to be sealed, or a worker
 * or the master has it): it will be published or dropped soon. -EROFS if its
 * bytes may never change: waited for as well, or replaced.
 */
int pool_node_unseal(struct pool_node *n, struct node_object *o);
/* An empty file, as new, instead of e->own. 0 or -errno: nothing has changed. */
int pool_node_own_replace(struct pool_node *n, struct node_entry *e);
/* A daemon-served writer's descriptor (borrowed while it has handles open), or
 * -errno. */
int pool_node_writer_fd(struct pool_node *n, struct node_object *o);
/* Who has written all of it has summed it on the way: nobody reads it again when
 * it is sealed, if it has that size. */
void pool_node_writer_summed(struct pool_node *n, struct node_object *o,
			     uint64_t size, XXH128_hash_t sum);
/* A write failed: never publish. status: -errno. */
void pool_node_poison(struct pool_node *n, struct node_object *o, int status);
/*
 * A daemon-served write of [offset, offset+len) is about to happen: room for
 * it. Returns 1 (write now), 0 (cb runs later), -ENOSPC, -EFBIG.
 */
int pool_node_extend_start(struct pool_node *n, struct node_object *o,
			   uint64_t offset, uint64_t len, node_done_cb cb,
			   void *arg);
/* It was truncated: so its mtime is this (wall clock). */
void pool_node_modified(struct pool_node *n, struct node_object *o,
			uint64_t wall_ns);
/* Size as it is now (fstat); of one that is being written, the mtime, too. */
int pool_node_object_size(struct pool_node *n, struct node_object *o,
			  uint64_t *ret_size, uint64_t *ret_blocks);
/*
 * Truncate or extend a file being written, and reserve again; may have to wait
 * for space: cb as in pool_node_rewrite_start.
 */
int pool_node_resize_start(struct pool_node *n, struct node_object *o,
			   uint64_t size, node_done_cb cb, void *arg);
/* fallocate(2): keep_size or not. cb as above. */
int pool_node_allocate_start(struct pool_node *n, struct node_object *o,
			     uint64_t offset, uint64_t len, bool keep_size,
			     node_done_cb cb, void *arg);

/* ---- space ---- */

/*
 * A claim on free bytes of the store: granted at once (returns 1), or later
 * (0: cb runs), or refused: -ENOSPC when nothing can be evicted, which also cb
 * gets when the deadline passes. A grant is a promise until
 * pool_node_claim_end(bytes) says that the bytes are allocated or not needed.
 */
struct node_claim {
	struct pool_list link;
	uint64_t bytes;
	uint64_t deadline_ms;
	bool cache_only; /* may evict cached copies only (a prefetch) */
	bool passing; /* rather into the headroom, or a while later, than that
			 a counted copy goes: for what goes as soon as nobody
			 uses it */
	bool put; /* into the headroom, where nothing here may go and another
		     store has room: it is moved there, or something for it,
		     as soon as it is published */
	uint64_t patient_ms; /* private: so long */
	void (*cb)(struct node_claim *c, int status);
};
int pool_node_claim_start(struct pool_node *n, struct node_claim *c,
			  uint64_t bytes, unsigned int timeout_ms,
			  void (*cb)(struct node_claim *c, int status));
void pool_node_claim_cancel(struct pool_node *n, struct node_claim *c);
void pool_node_claim_end(struct pool_node *n, uint64_t bytes);

/* Of the whole pool, for statfs(2); answered locally. */
void pool_node_statvfs(struct pool_node *n, struct statvfs *st);

/* ---- reading ---- */

/*
 * Make e's published object local and verified. Returns 1 and takes a ref
 * (*ret_obj) if it is; 0 if it is being fetched: cb runs (once; a failure
 * found at once may run it before this returns) with the object (a ref for the
 * callee) or -errno (-ENOENT: gone or nobody could give it within the
 * deadline; -ESTALE: another version is there); -ENOENT if it is not published;
 * -EAGAIN: the fetch of a version before it is ending, again in a moment.
 */
struct node_want {
	struct pool_list link;
	void (*cb)(struct node_want *w, struct node_object *obj, int status);
};
int pool_node_want_start(struct pool_node *n, struct node_entry *e,
			 struct node_want *w, struct node_object **ret_obj,
			 void (*cb)(struct node_want *w,
				    struct node_object *obj, int status));
void pool_node_want_cancel(struct pool_node *n, struct node_want *w);
/*
 * e's published object into memory of e->size bytes, verified, and into no file:
 * nothing is kept here. 0: cb(arg, 0) runs once it is there; or cb(arg,
 * -EAGAIN): mem may hold anything, and nobody writes to it any more. -EAGAIN, of
 * this call too: not in this way, have it by pool_node_want_start.
 */
int pool_node_read_start(struct pool_node *n, struct node_entry *e, void *mem,
			 node_done_cb cb, void *arg);
/* Whom to ask for that by oneself (whoever holds the loop may call it, too): 0, or
 * -EAGAIN: not in this way. lent: also who would lend it, ret_from->unix_path says
 * whether. */
struct pool_peer_addr;
int pool_node_read_from(struct pool_node *n, const struct node_entry *e,
			bool lent, struct pool_peer_addr *ret_from);
/* A look-up hit, which a read follows as a rule: what is here goes after all
 * others of its class for NODE_LEASE_MS, what is not is fetched in the background
 * if bounds allow. */
void pool_node_prefetch(struct pool_node *n, struct node_entry *e);
/* The local copy cannot be right: it is checked, soon, and at most once in
 * NODE_DOUBT_S. What is damaged is withdrawn. */
void pool_node_doubt(struct pool_node *n, struct node_object *o);
/* It was opened: eviction order, hit counters. */
void pool_node_used(struct pool_node *n, struct node_object *o);

struct node_object *node_object_ref(struct node_object *o);
void node_object_unref(struct pool_node *n, struct node_object *o);
/* A descriptor of the object's file (flags as open(2)), or -errno. */
int node_object_open(struct pool_node *n, const struct node_object *o,
		     int flags);

/* ---- fsync of a directory ---- */

struct node_barrier {
	struct pool_list link;
	uint64_t ticket, seq, deadline_ms;
	uint8_t phase;
	bool patient;
	void (*cb)(struct node_barrier *b, int status);
};
/* cb(0) when everything published before is known to the master and told to
 * the connected mounts; -ETIMEDOUT, after deadline_ms without a master or five
 * times as long with one. Returns 1 if that holds already. */
int pool_node_barrier_start(struct pool_node *n, struct node_barrier *b,
			    void (*cb)(struct node_barrier *b, int status));
/* Started: its time begins anew with each change before it that is done (nobody's
 * kernel holds a lock for it). */
void pool_node_barrier_patient(struct node_barrier *b);
/* The kernel knows everything that was notified before this mark (ops.tell). */
void pool_node_told(struct pool_node *n, uint64_t mark);
void pool_node_barrier_cancel(struct pool_node *n, struct node_barrier *b);
/* -errno, once, if a file in dir was lost after its close; else 0. */
int pool_node_lost(struct node_dirent *dir);
/* Ends all that wait, with -ECANCELED. */
void pool_node_barriers_end(struct pool_node *n);

/* ---- looking inside ---- */

bool pool_node_ready(const struct pool_node *n);
json_t *pool_node_status_json(struct pool_node *n);
json_t *pool_node_nodes_json(struct pool_node *n);
/* The counted copies that were evicted here last, at most 256, oldest first: each
 * with path, generation and whether without a master ("alone"), and how many
 * before them this process has "forgotten". NULL: no memory. */
json_t *pool_node_evicted_json(struct pool_node *n);
/* A page of at most limit objects at or below the path prefix (pool/model/pages.h),
 * with "next", the token of the following page, or null. 0, -EINVAL (token),
 * -ENOMEM. */
int pool_node_objects_json(struct pool_node *n, const char *prefix,
			   const char *token, unsigned int limit,
			   json_t **ret_json);

#endif
