/*
 * A node: the part of the pool that this machine holds, and a copy of the
 * pool's namespace (the mirror), which its mount shows. The files of pool/node/
 * are listed in node_priv.h.
 *
 * THREADS. Everything here belongs to the loop thread. A module may hand work
 * to libuv's workers; its callback runs on the loop again. Two exceptions:
 *
 * While other threads hold pool_node_opts.names for reading, they may call
 *   pool_node_tree with pool_tree_find and pool_tree_find_many, pool_node_root,
 *   node_file, node_dir, node_file_entry, node_dir_tree, pool_node_visible,
 *   pool_node_shown_size, pool_node_where, and pool_node_xattrs of a
 *   directory.
 * These functions read the tree, and these fields: of a file `gen`,
 * `hidden_gen`, `size`, `own`, and the state, size and id of `own`; of a
 * directory `gone` and `xattrs`. The loop holds the lock for writing while it
 * changes one of these, and never across a system call. So readers block only
 * while the loop holds the lock, never for a whole turn of the loop.
 *
 * While other threads keep the loop from running (libkvpool's `lock`), they may
 * also call
 *   pool_node_version, pool_node_read_from, pool_node_open_here and
 *   pool_node_borrowed.
 * pool_node_open_here records in the object that it was looked up (`looked`),
 * and that its descriptor was given away (`given`). Several threads may do so
 * at once: these two fields are accessed atomically everywhere.
 *
 * The structs of names and local files are opaque (entry.h and object.h are for
 * this layer). Functions of the node are pool_node_*. Functions of one file,
 * directory, object, writer or descriptor are node_file_*, node_dir_*,
 * node_object_*, node_writer_*, node_fd_*.
 *
 * NAMESPACES. If the node's certificate is limited to directories, it shows
 * only these, what is in them, and the directories above (pool/tls/tls_id.h).
 * The master sends it no other names, except those of copies that its store is
 * ordered to keep: they are in the tree, but hidden (pool_node_visible). Calls
 * that would change a name outside fail with -EACCES: creation, renaming (of
 * either name), removal, changes of attributes. A namespace itself can be
 * created and its attributes can be changed; it cannot be removed. The limit is
 * that of the certificate read at the start; a process that takes over must
 * have the same limit.
 *
 * A NAME (struct node_entry) can have, at the same time:
 *   - a published state (gen != 0), as the master's feed describes it;
 *   - `obj`, the local copy of the published generation;
 *   - `own`, a newer local file that only this mount sees: it is being written,
 *     or is sealed and waits for the master's ack. It hides the published state
 *     here.
 *
 * A LOCAL FILE (struct node_object) changes its state only by node_object_to
 * (object.h), along these edges:
 *
 *           +-- retry -----+  +-- written again -----+
 *           v              |  v                      |
 *   new -> WRITING --seal--> SEALING --> PENDING --ack--> HELD
 *           ^  |               |         |  ^         |    |
 *           |  |               |         |  +- rename +    |
 *           |  +---------------+---------+----------------+--> DROPPED
 *           +-- (PENDING, too, goes back to WRITING when it is written again)
 *   new -> FETCHING --verified--> HELD
 *   found at a start: HELD (its metadata has a generation) or PENDING
 *
 *   state      own  obj  pages      gen  read by                 evictable
 *   WRITING     x        growing     0   this mount              no
 *   SEALING     x        complete    0   this mount              no
 *   PENDING     x        complete    0   this mount              no
 *   FETCHING         -   arriving   !0   nobody                  no
 *   HELD             x   complete   !0   this mount, peers       if unused
 *   DROPPED     -    -   unlinked    -   open descriptors        -
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
#include "pool/peer/peer.h"
#include "pool/model/rules.h"
#include "pool/store/store.h"
#include "pool/model/tree.h"
#include "pool/model/xattrs.h"

struct pool_node;
struct verbs;
struct node_entry;  /* a name that is a file */
struct node_dirent; /* a directory */
struct node_object; /* a local file */
struct pool_handover;

/* What stat(2) shows of a name besides its size. Packed: there is one per name.
 */
struct node_attr {
	uint32_t mode; /* permission bits */
	uint32_t uid, gid;
	uint64_t mtime_ns;
	uint64_t gen; /* Meta.attr_gen */
} __attribute__((packed, aligned(4)));

/* States of a local file, as drawn above. */
enum node_state {
	NODE_WRITING,
	NODE_SEALING,
	NODE_PENDING,
	NODE_FETCHING,
	NODE_HELD,
	NODE_DROPPED,
};

/* A descriptor of an object's file that is kept for the next use (fds.c). */
struct node_fd {
	struct pool_list link; /* in node->fds. Self-linked if `fd` is -1, or if
				  it must stay open because its file cannot be
				  opened again */
	int fd;		       /* owns; -1: none */
	const char *map;       /* owns, or NULL: the first map_len bytes */
	size_t map_len;	       /* bytes to map when it is opened; 0: none */
};

/* Callbacks into the mount, on the loop. object_gone may run inside a call that
 * the mount makes (a claim that evicts); the others never do. */
struct pool_node_ops {
	/* The name has other content now, or none: unbind its inode
	 * (pool_node_set_inode NULL) and invalidate the dentry. */
	void (*changed)(void *arg, struct node_entry *e);
	/* Attributes or xattrs changed. */
	void (*attr_changed)(void *arg, struct pool_entry *e);
	/* e's own file has become the copy of the published generation. */
	void (*published)(void *arg, struct node_entry *e);
	/* A name has appeared: cached negative dentries are wrong. */
	void (*appeared)(void *arg, struct pool_entry *e);
	/* A directory is removed: unbind its inode, end its listings. */
	void (*dir_gone)(void *arg, struct node_dirent *dir);
	/* Call pool_node_notified(n, mark), now or later, once the kernel has
	 * received every notification made so far. Marks grow. */
	void (*when_notified)(void *arg, uint64_t mark);
	/* Expire all dentries in the kernel, at once and without waiting. */
	void (*expire)(void *arg);
	/* Is the queue of notifications full? Then the feed waits. May be NULL.
	 */
	bool (*behind)(void *arg);
	/* obj is being dropped: release what pins it. */
	void (*object_gone)(void *arg, struct node_object *obj);
};

struct pool_node_opts {
	uv_loop_t *loop;
	/* Dialled in turn until one answers as the master. None: wait for
	 * pool_node_master_found. */
	struct pool_hostports masters;
	struct pool_hostport listen;
	const char *advertise; /* "host:port"; NULL: `listen` as bound */
	const char *unix_path; /* peers' Unix socket; NULL: none */
	const char *name;      /* shown to operators */
	const char *program;   /* its version, constant text; NULL: unknown */
	const char *store_dir;
	uint64_t store_size;  /* 0: client */
	uint64_t memory_max;  /* as in pool_store_opts */
	uint64_t buffer_size; /* of a client */
	bool store_plain;     /* mount nothing at store_dir */
	bool mount;	      /* subscribe to the namespace */
	bool fd_passing;
	bool reserve; /* reserve pages for new files; false: daemon-served */
	/*
	 * A file that is created with a size is written completely, to that
	 * size, before anybody reads it (libkvpool). So the pages of an evicted
	 * object may be reused without zeroing, and the node itself counts the
	 * bytes in use (pool_store_opts.owner_counts).
	 */
	bool puts_whole;
	struct verbs *verbs; /* borrows; NULL: TCP only */
	/* Which local users may own the other end of a connection. Borrows;
	 * NULL: any. */
	struct pool_trust *trust;
	/* TLS on TCP connections, which `trust` then does not check; it still
	 * checks Unix sockets. Borrows; NULL: no TLS. */
	struct pool_tls *tls;
	bool foreign_memory; /* as in struct pool_conn_opts */
	unsigned int movers;
	unsigned int prefetch_max; /* background fetches at once; 0: none */
	/* Of waits for other nodes or the master, as --deadline; 0: 2000. */
	unsigned int deadline_ms;
	/* > 0: bound of the descriptors kept of files that the mount has open
	 * (struct node_fd), and of the objects borrowed from peers (further
	 * ones are copied; never more than POOL_LENT_MAX).
	 * 0 (libkvpool): all descriptors are kept, as a caller may use several
	 * at once, and up to POOL_LENT_MAX objects are borrowed. */
	unsigned int fds_max;
	/* GETs in 10 s that make an object hot; 0: never */
	unsigned int hot_gets;
	unsigned int cold_ms;  /* time without a GET after which it is cold */
	/* Take-over: the state of the running process, which stays the node
	 * until pool_node_begin. Borrows until then. NULL: scan store_dir. */
	struct pool_handover *handover;
	/* Ids of store files, ascending, that the mount of a killed daemon had
	 * open: they stay until pool_node_reopened. Borrows until then. */
	const uint64_t *were_open;
	size_t nwere_open;
	bool check; /* assert the invariants at each tick, for tests */
	struct pool_metrics *metrics;
	struct pool_shortlock *names; /* borrows; NULL: no other thread reads */
};

/* 0 or -errno, logged. ops may be set later by pool_node_set_ops. */
int pool_node_open(const struct pool_node_opts *opts,
		   struct pool_node **ret_node);
/* Take-over: the other process has ended; this one is the node from now on. 0
 * or -errno, logged; after an error no process is the node. */
int pool_node_begin(struct pool_node *n);

/*
 * ---- take-over: the old process ----
 *
 * First the mount stops reading requests and answers those that it has read.
 * From then on nothing may change the node, until this process ends or the
 * take-over has failed.
 */

/* Names one thing in flight that cannot be handed over, as text for the log;
 * NULL: there is none. It ends by itself: call again later. */
const char *pool_node_busy(struct pool_node *n);
/* Writes names, files and changes that are not acked into h. Errors: h->err. */
void pool_node_hand_over(struct pool_node *n, struct pool_handover *h);
void node_attr_from_meta(const Kvpool__Meta *m, struct node_attr *ret);
/* The id of o's file in the store, by which the new process finds o under its
 * name (pool_node_file_of_id). 0: o is an orphan: unlinked, or borrowed. */
uint64_t node_named_id(const struct node_object *o);
/* The local file of e with this id. NULL: there is none, or id is 0. */
struct node_object *pool_node_file_of_id(const struct node_entry *e,
					 uint64_t id);
/* Of an orphan: the id of its file in the store (0: it has none there), and an
 * open descriptor, borrowed (-1: none). */
uint64_t node_orphan_id(const struct node_object *o);
int node_orphan_fd(const struct node_object *o);
/*
 * Take-over of an unlinked file that the mount still has open (DROPPED).
 *
 * node_orphan_hand_over returns its writer part, which the caller frees with
 * node_writer_msg_free; NULL: it has none, or ENOMEM.
 *
 * node_orphan_take_over makes the object again and returns a ref for the caller
 * (NULL: ENOMEM). w: the writer part; NULL: it is open for reading only. id: of
 * its file in the store, 0: it has none there; a second call with the same id
 * returns the same object. fd: a descriptor of the file, or -1; the node owns
 * it from then on. whole: w counts all writable handles of the object, not only
 * the one of this message.
 */
Kvpool__HandoverWriter *
node_orphan_hand_over(struct pool_node *n, const struct node_object *o);
void node_writer_msg_free(Kvpool__HandoverWriter *m);
struct node_object *
node_orphan_take_over(struct pool_node *n,
		      const Kvpool__HandoverWriter *w, uint64_t id, int fd,
		      bool whole);
/*
 * A file that the mount of a killed daemon had open, by its id in the store. A
 * published file's bytes never change. Another one's may have: it must have
 * this checksum.
 */
struct node_was_open {
	uint64_t id, size;
	XXH128_hash_t sum;
	bool published;
};
/* The object of one of opts.were_open, whether it has a name or not: a ref for
 * the caller. NULL: these bytes are not here any more, or ENOMEM. */
struct node_object *pool_node_reopen(struct pool_node *n,
				     const struct node_was_open *was);
/* After the last pool_node_reopen: those files of opts.were_open that have
 * neither a name nor a user are removed. */
void pool_node_reopened(struct pool_node *n);
/* The mount's callbacks, called with arg; both are borrowed until
 * pool_node_close has ended. data_mode (copied, at most 23 characters): how the
 * mount serves data, shown to operators: "passthrough" or "daemon-served".
 */
void pool_node_set_ops(struct pool_node *n, const struct pool_node_ops *ops,
		       void *arg, const char *data_mode);
/* Instead of pool_node_close, if the start of something else has failed and the
 * process is about to end: removes the store's tmpfs if this process made it.
 */
void pool_node_undo(struct pool_node *n);
/*
 * Stop: publish what is pending (for at most timeout_ms), leave the master,
 * close everything. closed(arg) runs when nothing is left on the loop.
 */
void pool_node_close(struct pool_node *n, unsigned int timeout_ms,
		     void (*closed)(void *arg), void *arg);

bool pool_node_connected(const struct pool_node *n);
/* Is there a session, and have all changes that the master had made before it
 * been received? (With a master of 0.1 this is true too early.) */
bool pool_node_caught_up(const struct pool_node *n);
/* Has a complete picture of the namespace been received since the start? */
bool pool_node_complete(const struct pool_node *n);
/* A master was found at this address: it is dialled next if there is no
 * session. */
void pool_node_master_found(struct pool_node *n,
			    const struct pool_hostport *at);

struct pool_tree *pool_node_tree(struct pool_node *n);
struct pool_store *pool_node_store(struct pool_node *n);
struct node_dirent *pool_node_root(struct pool_node *n);

/* ---- names: none of these waits; the change is sent to the master later ----
 */

#define NODE_NO_CALLER UINT32_MAX

/*
 * Sets the user for whom the following calls change names and attributes, until
 * it is set back to NODE_NO_CALLER. Each user has a bounded share of the
 * unacked changes (pool/model/quota.h), and changes count in the caller's
 * share; without a caller, in that of the file's or directory's owner.
 */
void pool_node_caller(struct pool_node *n, uint32_t uid);

/* The file or the directory that e is; NULL if e is NULL or of the other kind.
 * The next two convert back. */
struct node_entry *node_file(struct pool_entry *e);
struct node_dirent *node_dir(struct pool_entry *e);
struct pool_entry *node_file_entry(const struct node_entry *e);
struct pool_dir *node_dir_tree(const struct node_dirent *d);
/* NULL: e is the root. */
struct node_dirent *pool_node_parent(const struct pool_entry *e);
/* The mount's inode of a file or directory, or NULL. The node only stores the
 * pointer, and does not remove an entry that has one. */
void *pool_node_inode(const struct pool_entry *e);
void pool_node_set_inode(struct pool_entry *e, void *inode);

/* Counts an engine's look-up of a file that it wants to read, in the status's
 * windows of time. hit: dir has the name. */
void pool_node_asked(struct pool_node *n, const struct node_dirent *dir,
		     const char *name, size_t len, bool hit);
/* The same of an open to read: o's size. */
void pool_node_loaded(struct pool_node *n, const struct node_object *o,
		      uint64_t bytes);
/* The visible entry of a name, or NULL. */
struct pool_entry *pool_node_lookup(struct pool_node *n,
				    struct node_dirent *dir, const char *name,
				    size_t len);
/* Counts the mount's answer to an engine's look-up: e, or NULL for a miss. Hits
 * of directories are not counted. */
void pool_node_looked_up(struct pool_node *n, struct pool_entry *e);
/* Does this mount show the name? A directory is shown unless `gone`. Nothing
 * outside of the node's namespaces is shown. */
bool pool_node_visible(const struct pool_entry *e);
/* NODE_NOWHERE: it is no file that this mount shows. NODE_HERE: it has an `own`
 * or a `copy` (below). `copy` is read atomically: another thread may find it a
 * moment too late, or find that of an earlier generation. */
enum node_where { NODE_NOWHERE, NODE_AT_PEER, NODE_HERE };
enum node_where pool_node_where(const struct pool_entry *e);
/* This node's identity, as its certificate says; NULL: no certificate.
 * Borrowed.
 */
const struct pool_tls_id *pool_node_self(const struct pool_node *n);
/* Does the name have a published state that no unlink hides? */
bool pool_node_published(const struct node_entry *e);
/* Its published version. gen 0: none; it may also be hidden by an unlink. */
struct node_version {
	uint64_t gen, size;
	XXH128_hash_t sum;
	const struct node_attr *attr; /* borrowed */
};
struct node_version pool_node_version(const struct node_entry *e);
/* The size in bytes that a file's name shows: while the file is being written,
 * its current size in the store. 0 or -errno. */
int pool_node_shown_size(const struct pool_node *n,
			 const struct pool_entry *e, uint64_t *ret_size);
/*
 * Local files of a name. Borrowed; NULL: there is none.
 *   own       the version that only this mount sees: it is not published yet,
 *             and hides the published one
 *   writing   the same, while it is in state WRITING
 *   copy      the copy of a published version, HELD; perhaps not verified, or
 *             of an earlier generation
 *   readable  what a reader gets without waiting: `own` if it is complete
 *             (SEALING, PENDING); without any `own`, the verified copy of the
 *             published version
 */
struct node_object *pool_node_own(const struct node_entry *e);
struct node_object *pool_node_writing(const struct node_entry *e);
struct node_object *pool_node_copy(const struct node_entry *e);
struct node_object *pool_node_readable(const struct node_entry *e);
/* Is what a reader gets without waiting lent by a store of this host? */
bool pool_node_borrowed(const struct node_entry *e);
/* Does the name show the bytes of o? It does if o is its `own`; without an
 * `own`, if o is a file of the published version. */
bool pool_node_shows(const struct node_entry *e, const struct node_object *o);
/* The rules in force for a file or directory, inherited ones included. */
void pool_node_rules(struct pool_node *n, struct pool_entry *e,
		     struct pool_rules *ret);

/* -ENAMETOOLONG, here and below: a name longer than POOL_NAME_MAX, or a path
 * longer than POOL_PATH_MAX. -EDQUOT, -ENOSPC: the owner, or all, have too many
 * directories (pool/model/quota.h). */
int pool_node_mkdir(struct pool_node *n, struct node_dirent *dir,
		    const char *name, size_t len, const struct node_attr *attr,
		    struct node_dirent **ret_dir);
/* Removes the entry if nothing refers to it any more. The caller, the mount,
 * has unbound the entry's inode. */
void pool_node_tidy(struct pool_node *n, struct pool_entry *e);
/* -ENOTEMPTY, -ENOENT, -EBUSY (the root). */
int pool_node_rmdir(struct pool_node *n, struct node_dirent *dir);
/* Removes the name from the pool, or only hides it on this mount, as the rule
 * `unlink` says. */
int pool_node_unlink(struct pool_node *n, struct node_entry *e);
/*
 * Rename. noreplace: -EEXIST if the target is visible. -EXDEV if it would have
 * to wait (a published object without a local copy, a directory with content):
 * mv(1) copies then. A poisoned file returns its error and stays unpublished.
 * *ret_to: the entry of the new name. ops.changed is not called for it: the
 * caller unbinds its inode, as the kernel moves the dentry itself.
 */
int pool_node_rename(struct pool_node *n, struct pool_entry *from,
		     struct node_dirent *dir, const char *name, size_t len,
		     bool noreplace, struct pool_entry **ret_to);
/* set: POOL_SET_* bits, but not _XATTR_EACH. With POOL_SET_XATTRS the node owns
 * xattrs afterwards. Here and below, attributes that take more bytes than
 * before may be refused: -EDQUOT, -ENOSPC (pool/model/quota.h). */
int pool_node_setattr(struct pool_node *n, struct pool_entry *e,
		      unsigned int set, const struct node_attr *attr,
		      struct pool_xattrs *xattrs);
/*
 * Sets one extended attribute, or removes it (value NULL). Errors as
 * pool_xattrs_set, judged by the attributes that this mount knows; -EAGAIN: too
 * many changes are in flight.
 */
int pool_node_setxattr(struct pool_node *n, struct pool_entry *e,
		       const char *name, const void *value, size_t len,
		       int flags);
const struct node_attr *pool_node_attr(const struct pool_entry *e);
/*
 * Each mount has its own times of directories. mtime is attr's until an entry
 * is made or removed (pool_node_dir_touch, wall clock); ctime is the last
 * change of any kind (pool_node_dir_changed; 0: as mtime). pool_node_dir_dirs:
 * number of visible subdirectories, for st_nlink.
 */
void pool_node_dir_touch(struct node_dirent *d, uint64_t wall_ns);
void pool_node_dir_changed(struct node_dirent *d, uint64_t wall_ns);
uint64_t pool_node_dir_mtime(const struct node_dirent *d);
uint64_t pool_node_dir_ctime(const struct node_dirent *d);
uint64_t pool_node_dir_dirs(const struct node_dirent *d);
struct pool_xattrs *pool_node_xattrs(const struct pool_entry *e);
/*
 * Computed attributes user.kvpool.*: generation, checksum, state, holders
 * (number of nodes with a copy), nodes (their names), and replicas if only an
 * inherited rule sets it. Length or -ENODATA.
 */
int pool_node_info(struct pool_node *n, struct pool_entry *e, const char *name,
		   char *buf, size_t cap);
extern const char *const pool_node_info_names[];

/* ---- writing ---- */

/*
 * Makes a new local file the `own` of a name, which is added if it is missing.
 * size_hint: the size in bytes, or 0 if it is not known. Chooses between a
 * reserved file (passthrough) and a daemon-served one: node_object_served.
 * *ret_obj is borrowed. -EEXIST: the name has an `own`.
 */
int pool_node_create(struct pool_node *n, struct node_dirent *dir,
		     const char *name, size_t len,
		     const struct node_attr *attr, uint64_t size_hint,
		     struct node_object **ret_obj);
/* Largest size in bytes that a file may have here. */
uint64_t pool_node_size_max(struct pool_node *n);

typedef void (*node_done_cb)(void *arg, int status);

/*
 * Begins a new generation of a published name: `own` appears, empty or with the
 * first `keep` bytes of the published content, which is fetched first if it is
 * not here. 1: done. 0: cb(arg, 0 or -errno) runs once, possibly before this
 * returns. -errno: cb never runs; -EAGAIN: another caller is doing it, retry in
 * a moment.
 */
int pool_node_rewrite_start(struct pool_node *n, struct node_entry *e,
			    uint64_t keep, node_done_cb cb, void *arg);

/* A writable handle was opened; closed (RELEASE); flushed (a FLUSH: one of the
 * descriptors that share a handle was closed). */
void pool_node_writer_opened(struct pool_node *n, struct node_object *o);
void pool_node_writer_closed(struct pool_node *n, struct node_object *o);
/* Returns the -errno of a write that failed (pool_node_poison), or 0. */
int pool_node_writer_flushed(struct pool_node *n, struct node_object *o);
/* Sets how many handles of the mount write to o in passthrough mode, and their
 * nodeid (NULL if none). */
void pool_node_writer_direct(struct pool_node *n, struct node_object *o,
			     const void *direct, uint32_t ndirect);
/* A daemon-served handle that can write to o was opened or closed. No-op
 * without a writer part. */
void pool_node_writer_served(struct pool_node *n, struct node_object *o,
			     bool opened);
/* The mount has written to o: the time of abandonment begins anew. */
void pool_node_writer_wrote(struct pool_node *n, struct node_object *o);
/*
 * Makes a sealed file writable again (PENDING -> WRITING). -EAGAIN: it is being
 * sealed, or its PUBLISH is in flight; it will be published or dropped soon.
 * -EROFS: its bytes must never change (was_held); wait until it is published or
 * dropped, or replace it.
 */
int pool_node_unseal(struct pool_node *n, struct node_object *o);
/* Replaces e->own by a new empty file. 0, or -errno: nothing has changed. */
int pool_node_own_replace(struct pool_node *n, struct node_entry *e);
/* The O_RDWR descriptor of a daemon-served writer, borrowed until the next call
 * for another file (opts.fds_max 0: while a handle is open); or -errno. */
int pool_node_writer_fd(struct pool_node *n, struct node_object *o);
/* The caller wrote all `size` bytes and computed their checksum meanwhile:
 * sealing does not read the file again if it has this size. */
void pool_node_writer_summed(struct pool_node *n, struct node_object *o,
			     uint64_t size, XXH128_hash_t sum);
/* A write failed: never publish. status: -errno. */
void pool_node_poison(struct pool_node *n, struct node_object *o, int status);
/*
 * Gets room for a daemon-served write of [offset, offset + len). 1: write now.
 * 0: cb(arg, 0 or -errno) runs later. -ENOSPC, -EFBIG, -ENOMEM: cb never runs.
 */
int pool_node_extend_start(struct pool_node *n, struct node_object *o,
			   uint64_t offset, uint64_t len, node_done_cb cb,
			   void *arg);
/* o was truncated: sets its mtime to wall_ns. _emptied: truncated to 0 bytes
 * while its name shows it. */
void pool_node_modified(struct pool_node *n, struct node_object *o,
			uint64_t wall_ns);
void pool_node_emptied(struct pool_node *n, struct node_object *o,
		       uint64_t wall_ns);
/* The object's size and 512-byte blocks now. While it is being written, also
 * updates its mtime. */
int pool_node_object_size(struct pool_node *n, struct node_object *o,
			  uint64_t *ret_size, uint64_t *ret_blocks);
/*
 * Truncates or extends a file that is being written, and reserves its new size.
 * May wait for space. Returns and cb as pool_node_rewrite_start.
 */
int pool_node_resize_start(struct pool_node *n, struct node_object *o,
			   uint64_t size, node_done_cb cb, void *arg);
/* fallocate(2), with or without FALLOC_FL_KEEP_SIZE. Returns and cb as above.
 */
int pool_node_allocate_start(struct pool_node *n, struct node_object *o,
			     uint64_t offset, uint64_t len, bool keep_size,
			     node_done_cb cb, void *arg);

/* ---- space ---- */

/*
 * A claim on free bytes of the store (the table in space.c). The start returns
 * 1: granted. 0: cb runs once, with 0 (granted) or -ENOSPC (nothing can be
 * evicted for it, or timeout_ms has passed; 0: five times deadline_ms).
 * -ENOSPC: larger than the store, or cache_only and no room. Granted bytes stay
 * reserved until pool_node_claim_end(bytes), which says that they are
 * allocated, or not needed.
 */
struct node_claim {
	struct pool_list link;
	uint64_t bytes;
	uint64_t deadline_ms;
	bool cache_only; /* evict cached copies only, never wait (a prefetch) */
	/* A read: use the headroom, or wait, rather than evict a counted copy.
	 */
	bool transient;
	/* A write: may use the headroom if nothing here can be evicted and
	 * another store has room. Once it is published, it or an older object
	 * is moved there. */
	bool put;
	/* private: the time at which half of its time is over. After it:
	 * transient: counted copies may be evicted for it;
	 * put: it may use the headroom, although something here can be evicted
	 */
	uint64_t patient_ms;
	void (*cb)(struct node_claim *c, int status);
};
int pool_node_claim_start(struct pool_node *n, struct node_claim *c,
			  uint64_t bytes, unsigned int timeout_ms,
			  void (*cb)(struct node_claim *c, int status));
/* No-op on a claim that was granted at once, or whose cb has run. */
void pool_node_claim_cancel(struct pool_node *n, struct node_claim *c);
void pool_node_claim_end(struct pool_node *n, uint64_t bytes);

/* statfs(2) of the whole pool, from what this node knows. */
void pool_node_statvfs(struct pool_node *n, struct statvfs *st);

/* ---- reading ---- */

/*
 * Makes e's published object local and verified.
 *   1        it is already: *ret_obj, a ref for the caller
 *   0        it is being fetched, or a local copy is being verified: cb runs
 *            once, possibly before this returns, with a ref for the callee, or
 *            with -ENOENT (deleted, or no holder delivered it before the
 *            deadline) or -ESTALE (another version was published)
 *   -ENOENT  it is not published
 *   -EAGAIN  the fetch of an earlier version is ending: retry in a moment
 */
struct node_want {
	struct pool_list link;
	bool fetched; /* set before cb: obj came from another node for it ... */
	bool by_rdma; /* ... and some of it by RDMA */
	void (*cb)(struct node_want *w, struct node_object *obj, int status);
};
int pool_node_want_start(struct pool_node *n, struct node_entry *e,
			 struct node_want *w, struct node_object **ret_obj,
			 void (*cb)(struct node_want *w,
				    struct node_object *obj, int status));
void pool_node_want_cancel(struct pool_node *n, struct node_want *w);
/*
 * Reads e's published object into mem (e->size bytes), verified; no local copy
 * is kept. 0: cb(arg, status) runs once: 0; NODE_READ_RDMA (the same, and RDMA
 * has moved some of it); or -EAGAIN: mem may hold anything, and nothing writes
 * to it any more. -EAGAIN, returned or passed to cb: use pool_node_want_start.
 */
#define NODE_READ_RDMA 1
int pool_node_read_start(struct pool_node *n, struct node_entry *e, void *mem,
			 node_done_cb cb, void *arg);
/*
 * The holder that a caller may ask for e without the node's help. Thread: loop,
 * or any that keeps the loop from running. 0, or -EAGAIN: use
 * pool_node_want_start. lent: a holder that would lend a descriptor qualifies,
 * too (then ret_from->unix_path is set).
 */
struct pool_peer_addr;
int pool_node_read_from(struct pool_node *n, const struct node_entry *e,
			bool lent, struct pool_peer_addr *ret_from);
/*
 * Call it after a look-up hit, because a read usually follows. For
 * NODE_LEASE_MS the local copy is evicted last of its class. If there is no
 * local copy, the object is prefetched, within the bounds.
 */
void pool_node_prefetch(struct pool_node *n, struct node_entry *e);
/*
 * The local copy may be damaged: it is verified soon, unless a check began in
 * the last NODE_DOUBT_S seconds. A damaged copy is quarantined and reported to
 * the master.
 */
void pool_node_doubt(struct pool_node *n, struct node_object *o);
/* o was opened: a use for the counters of copies evicted unread and of useful
 * prefetches, and, if o is HELD, for the eviction order. */
void pool_node_used(struct pool_node *n, struct node_object *o);

/* The last unref frees it, and removes its file if o->remains (n NULL: the node
 * is closed). */
struct node_object *node_object_ref(struct node_object *o);
void node_object_unref(struct pool_node *n, struct node_object *o);
/* A descriptor of the object's file (flags as open(2)), or -errno. */
int node_object_open(struct pool_node *n, const struct node_object *o,
		     int flags);
/* Opens the object's file for reading. Returns the descriptor, which the caller
 * closes, or -errno. *ret_size: in bytes, set on success only. give: the
 * descriptor leaves the caller's control, so pipes and sockets may refer to the
 * file's pages forever. */
int pool_node_open_file(struct pool_node *n, struct node_object *o, bool give,
			uint64_t *ret_size);
/* The same for e's readable local file (pool_node_readable), which is evicted
 * last of its class for NODE_LEASE_MS, as after a look-up hit. -EAGAIN: there
 * is none. */
int pool_node_open_here(struct pool_node *n, const struct node_entry *e,
			bool give, uint64_t *ret_size);

void node_fd_init(struct node_fd *f);
/* The descriptor of o's file, opened (flags as open(2)) and mapped if need be:
 * valid until the next call for another file. Or -errno. o may be NULL. */
int node_fd_get(struct pool_node *n, struct node_fd *f,
		const struct node_object *o, int flags);
/* Keeps fd, a descriptor of o's file, in f, which owns it from then on. */
void node_fd_keep(struct pool_node *n, struct node_fd *f,
		  const struct node_object *o, int fd);
void node_fd_close(struct pool_node *n, struct node_fd *f);

/* ---- local files: what they are ---- */

enum node_state node_object_state(const struct node_object *o);
/* Is it complete and not published: SEALING or PENDING? */
bool node_object_sealed(const struct node_object *o);
/* Has a store of this host lent it? */
bool node_object_borrowed(const struct node_object *o);
/* Its name; NULL once it is DROPPED. */
struct node_entry *node_object_name(const struct node_object *o);
/* In bytes; meaningless while it is WRITING (pool_node_object_size). */
uint64_t node_object_final_size(const struct node_object *o);
/* Of its bytes, once it is PENDING or HELD. */
XXH128_hash_t node_object_sum(const struct node_object *o);
/* The mount's inode that shows it, as pool_node_inode. */
void *node_object_inode(const struct node_object *o);
void node_object_set_inode(struct node_object *o, void *inode);
/* The object's users: adds `users`, removes one, tells whether there are any.
 * While it has users, its file stays and can be opened, even if the object is
 * DROPPED. */
void node_object_use(struct node_object *o, uint32_t users);
void node_object_unuse(struct node_object *o);
bool node_object_in_use(const struct node_object *o);

/*
 * Does o have a writer part? Yes until it is published (on a client: until a
 * store has it), and while an unlinked or replaced file is open for writing
 * (node_object_unlinked). Without one the functions below return false or 0.
 */
bool node_object_has_writer(const struct node_object *o);
bool node_object_unlinked(const struct node_object *o);
/* Does its data pass through the daemon? */
bool node_object_served(const struct node_object *o);
/* May it be written to as it is, without pool_node_unseal? False, too, if it is
 * closed and about to be sealed. */
bool node_object_writable(const struct node_object *o);
/* Number of writable handles (pool_node_writer_opened); of these, those in
 * passthrough mode with their nodeid (_direct), and the daemon-served ones. */
uint32_t node_object_writers(const struct node_object *o);
uint32_t node_object_direct(const struct node_object *o,
			    const void **ret_direct);
uint32_t node_object_served_writers(const struct node_object *o);
/* Was it empty under its name after since_ns (pool_now_ns)? */
bool node_object_emptied_since(const struct node_object *o, uint64_t since_ns);

/* ---- fsync of a directory ---- */

struct node_barrier {
	struct pool_list link;
	uint64_t ticket, seq, deadline_ms;
	uint8_t phase;
	bool patient;
	void (*cb)(struct node_barrier *b, int status);
};
/*
 * cb(0): the master has acked all files closed and all changes made here
 * before, and every connected mount has received them. cb(-ETIMEDOUT): after
 * deadline_ms without a master, or five times as long with one. Returns 0; cb
 * runs later.
 */
int pool_node_barrier_start(struct pool_node *n, struct node_barrier *b,
			    void (*cb)(struct node_barrier *b, int status));
/* From now on b's deadline begins anew whenever one of the changes that b waits
 * for completes. Call it only where the kernel holds no lock while b waits
 * (kvpool_sync). */
void pool_node_barrier_patient(struct node_barrier *b);
/* The kernel has received every notification made before this mark
 * (ops.when_notified). */
void pool_node_notified(struct pool_node *n, uint64_t mark);
void pool_node_barrier_cancel(struct pool_node *n, struct node_barrier *b);
/* Is everything that was made or changed here published or acked? */
bool pool_node_settled(const struct pool_node *n);
/* The same without the files that are open for writing. */
bool pool_node_acked(const struct pool_node *n);
/* Returns dir's `lost`, and resets it to 0: it is reported once. */
int pool_node_lost(struct node_dirent *dir);
/* Ends all barriers with -ECANCELED. */
void pool_node_barriers_end(struct pool_node *n);

/* ---- inspection: the caller owns the JSON; NULL: no memory ---- */

bool pool_node_ready(const struct pool_node *n);
json_t *pool_node_status_json(struct pool_node *n);
json_t *pool_node_nodes_json(struct pool_node *n);
/*
 * The counted copies that were evicted here last, oldest first: path,
 * generation, and whether without a master ("alone"); and how many earlier ones
 * were "forgotten" (the list is bounded, evicted.c).
 */
json_t *pool_node_evicted_json(struct pool_node *n);
/*
 * A page of at most limit objects at or below the path prefix
 * (pool/model/pages.h), with "next", the token of the following page, or null.
 * 0, -EINVAL (token), -ENOMEM.
 */
int pool_node_objects_json(struct pool_node *n, const char *prefix,
			   const char *token, unsigned int limit,
			   json_t **ret_json);

#endif
