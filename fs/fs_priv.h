/*
 * Declarations shared by the files of fs/; fs/session.h lists these files.
 *
 * Thread: loop, unless a comment says otherwise.
 */
#ifndef FS_FS_PRIV_H
#define FS_FS_PRIV_H

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <time.h>

#include "fs/kept.h"
#include "fs/passthrough.h"
#include "fs/session.h"
#include "pool/base/clock.h"
#include "pool/base/list.h"
#include "pool/base/log.h"
#include "pool/base/slots.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/model/root.h"
#include "pool/conn/wire.h"

#define FS_TIMEOUT_LONG 60.0  /* s, dentries and attributes; a change
				 invalidates them earlier */
#define FS_TIMEOUT_REMOTE 1.0 /* s, dentries of files without a local copy:
				 expire soon, so that the next LOOKUP can start
				 a prefetch */
#define FS_TIMEOUT_CREATED 1 /* s, attributes in the reply to CREATE: open(2)
				checks them at once, and a write invalidates
				them in the kernel */
#define FS_BACKINGS_MAX 16384 /* backing ids kept for files that are not open */
#define FS_MISS_BITS 22	      /* log2 of the bits in the filter of misses */
#define FS_TOUCH_MS 200	      /* min. time between notifications of changed
				 directory times: after each one, the next path
				 walk below waits for a GETATTR */
#define FS_CARRIED_MAX 64     /* ctimes carried from one nodeid to the next */
#define FS_WAITING_MS 2	      /* interval at which waiting OPENs are retried */
#define FS_TURN_MAX 64	      /* requests handled in one turn of the loop */

enum fs_kind { FS_DIR, FS_FILE, FS_PROC };

/*
 * A nodeid of the kernel (1 is the root). A file's nodeid shows one object at a
 * time: an OPEN opens that object, and stat(2) shows its attributes.
 *
 * LOOKUP binds a nodeid to a name (entry != NULL). It is unbound when the name
 * is removed, when the feed brings other content, or when a rewrite here makes
 * an own file that the nodeid cannot switch to. Then entry is NULL, the
 * attributes are frozen in `past`, the dentry is invalidated, and the next
 * LOOKUP makes another nodeid for the name.
 *
 * An OPEN that the nodeid cannot serve is answered with ESTALE, which makes the
 * kernel look the name up again and repeat the OPEN, once: see the table at the
 * head of fs/open.c. SETATTR and the xattr requests on an unbound nodeid apply
 * to the file that its name shows now, if fs_inode_successor finds it and the
 * caller has permission (may.c).
 *
 * A nodeid that is open in passthrough mode cannot switch to another object:
 * the kernel rejects an OPEN with another backing file, or with none. A
 * daemon-served handle has a descriptor of its own, so it keeps its object
 * when the nodeid switches.
 *
 * invariant             bound file          unbound file       dir
 *   inode of its name   yes                 entry NULL         yes
 *     (pool_node_inode)
 *   obj != NULL         if it has an own,   while open         -
 *                       open, or backing
 *   backing != 0        passthrough only    while open         -
 */
struct fs_inode {
	struct pool_list lru;  /* file: in fs->backings while not open and
				  backing != 0; directory: in fs->touched */
	uint64_t nlookup; /* lookup count: the kernel's and our pointers' */
	uint64_t ino; /* st_ino */
	struct node_entry *entry; /* borrows; NULL: unbound, or a directory */
	union {
		struct node_dirent *dir; /* FS_DIR: see fs_inode_dir */
		uint64_t ctime_ns;	 /* FS_FILE; 0: same as mtime */
	} u;
	struct node_object *obj; /* the object shown: ref, or NULL */
	uint64_t atime_ns; /* as set; 0: never set, shown as mtime */
	struct fs_past *past; /* owns; NULL unless unbound */
	uint32_t low_id; /* lower half of the nodeid: FS_PROC_MAX + its number
			    in fs->inodes */
	uint32_t opens; /* handles, of either data mode */
	int32_t backing; /* backing id of obj in the kernel; 0: none */
	uint8_t kind; /* enum fs_kind */
	bool served : 1; /* data mode: daemon-served; else passthrough */
	bool was_served : 1; /* has been opened daemon-served, so the kernel may
				have cached pages of it: switches only for a
				retried OPEN (fs_inode_can_switch) */
	bool attr_expired : 1; /* directory: its attributes were invalidated
				  and the kernel has not asked for them since */
	bool has_kept_part : 1; /* allocated as a struct fs_inode_kept */
	uint16_t writers_due; /* writers that got ESTALE and whose second OPEN
				 of this nodeid is expected or waits: readers
				 wait for them */
};

/* Every inode but the root, if the mount has a keeper or if an earlier daemon
 * of it was killed. Other mounts use a plain struct fs_inode, because there may
 * be millions. */
struct fs_inode_kept {
	struct fs_inode i; /* first */
	uint32_t incarnation; /* upper half of the nodeid; else 0 */
	uint32_t rec; /* 1 + its record in fs->kept; 0: none */
};

static inline struct fs_inode_kept *fs_inode_kept(const struct fs_inode *i)
{
	return i->has_kept_part ? (struct fs_inode_kept *)(uintptr_t)i : NULL;
}

/* The nodeid of i. */
static inline fuse_ino_t fs_inode_id(const struct fs_inode *i)
{
	const struct fs_inode_kept *k = fs_inode_kept(i);

	return i->low_id | (k ? (uint64_t)k->incarnation << 32 : 0);
}

/* What an unbound nodeid shows. Allocated separately, because most nodeids are
 * bound and there may be millions. */
struct fs_past {
	struct node_attr attr;
	uint64_t size; /* bytes */
	char *path; /* owns; file: its former name; NULL: not known */
	bool uses_obj; /* counts as a user of obj (node_object_use), so that
			  obj keeps its file */
};

enum fs_op {
	OP_LOOKUP, OP_FORGET, OP_GETATTR, OP_SETATTR, OP_MKNOD, OP_MKDIR,
	OP_UNLINK, OP_RMDIR, OP_RENAME, OP_LINK, OP_SYMLINK, OP_OPEN,
	OP_CREATE, OP_READ, OP_WRITE, OP_FLUSH, OP_RELEASE, OP_FSYNC,
	OP_FALLOCATE, OP_OPENDIR, OP_READDIR, OP_READDIRPLUS, OP_RELEASEDIR,
	OP_FSYNCDIR, OP_STATFS, OP_SETXATTR, OP_GETXATTR, OP_LISTXATTR,
	OP_REMOVEXATTR, OP_IOCTL, OP_COUNT,
};

struct fs_notifier;

/*
 * State pinned for a writer that got ESTALE, from its LOOKUP until its second
 * OPEN is answered or STALE_MS (stale.c) have passed:
 *   - obj, an own file in state WRITING, counts one more writer and so is not
 *     sealed;
 *   - or inode, the nodeid that the LOOKUP returned, counts the writer in
 *     writers_due: readers' OPENs of that nodeid wait;
 *   - readers' OPENs of any nodeid of the same name wait.
 */
struct fs_pin {
	const void *name; /* the node_entry that was looked up; only compared,
			     never dereferenced */
	struct node_object *obj; /* ref, or NULL */
	struct fs_inode *inode;	 /* holds a lookup count, or NULL */
	uint64_t since_ns; /* as in struct fs_refused */
};

/* The last ctime of a file whose nodeid was freed or replaced, for its next
 * nodeid. */
struct fs_carried {
	uint64_t ino, ctime_ns;
};

/* The name that a thread wanted to write to when it got ESTALE. The thread's
 * next LOOKUP pins this name only, and only if the thread still has this uid:
 * it may have executed another user's program since. */
struct fs_refused {
	uint64_t cookie; /* of the name; 0: not a writer, or no name */
	uint64_t since_ns; /* pool_now_ns() at the OPEN, if with O_TRUNC */
	uint32_t uid;
};

/* A thread that was answered with ESTALE and has not repeated its request. */
struct fs_stale {
	uint32_t tid; /* 0: free */
	bool writes; /* the request was an OPEN to write, or a truncation */
	uint64_t ms; /* pool_now_ms() of the ESTALE, or of the LOOKUP since */
	struct fs_refused refused;
	struct fs_pin pin;
};
#define FS_STALE_MAX 256

/* Why fs_busy must wait: kinds of requests that are answered later, and pins.
 */
enum fs_deferred {
	FS_DEFERRED_OPEN,
	FS_DEFERRED_SPACE, /* WRITE, FALLOCATE */
	FS_DEFERRED_FSYNCDIR,
	FS_DEFERRED_LISTING, /* READDIR, READDIRPLUS */
	FS_DEFERRED_RETRY, /* a struct fs_pin is in force for a second OPEN */
	FS_NDEFERRED
};

struct fs {
	struct fs_opts opts;
	uv_loop_t *loop;
	struct pool_node *node;
	struct pool_tree *tree;
	char *mountpoint;
	uint64_t mount_id; /* fs_guard_mount_now's; 0: not known;
			      FS_NOT_SEEN: another mount covers it */
	uint64_t dev; /* fs_guard_dev's; 0: not known */
	unsigned int ntexts; /* open files of /.kvpool (struct fs_text) */
	struct fuse_session *se;
	int dev_fd; /* /dev/fuse; libfuse closes it */
	struct fuse_buf buf; /* the request being handled */
	struct fs_init init;
	/* The kernel's INIT and our reply, as sent: a take-over hands them on.
	 */
	uint8_t init_req[256], init_reply[128];
	size_t init_len, init_reply_len;
	Kvpool__HandoverFs *taken; /* owns; NULL except while taking over */
	bool replaying; /* taking over: the session is fed init_req, and its
			   reply is not written to the device */
	unsigned int ndeferred[FS_NDEFERRED]; /* in flight, of each kind */
	bool initialised, unmounted, closing;
	bool passthrough; /* data mode of the mount; else daemon-served */

	uv_poll_t poll; /* on dev_fd */
	uv_timer_t waiting_timer; /* runs while `waiting` or `listings` is not
				     empty or a pin may expire */
	uv_timer_cb on_waiting; /* of waiting_timer; set by session.c */
	struct pool_list waiting; /* struct open_req (open.c): OPENs that are
				     retried every FS_WAITING_MS */
	struct pool_slots inodes; /* struct fs_inode by nodeid - FS_PROC_MAX */
	struct pool_slots handles; /* struct fs_fh by fh - FS_FH_MIN */
	uint32_t incarnation; /* of new nodeids and handles; 0: no daemon
				 before this one was killed */
	struct fs_kept *kept; /* owns; NULL: no keeper */
	bool adopting; /* another daemon's mount: requests are not read yet */
	uint64_t adopt_ms; /* pool_now_ms() when that began */
	bool resent; /* the request being handled was read before, by a daemon
			that was killed: it may have been executed */
	struct pool_list backings; /* bound inodes with a backing that are not
				      open, least recently used first */
	unsigned int nbackings; /* length of `backings` */
	struct pool_list listings; /* struct listing (dir_ops.c): READDIRs that
				      are continued every FS_WAITING_MS */
	struct pool_list executed; /* struct fs_executed */
	/* Directories whose times changed since they were last notified. */
	struct pool_list touched;
	uv_timer_t touch; /* runs while `touched` is not empty */
	uint64_t touch_ms; /* pool_now_ms() of the last fs_touched_notify */
	struct fs_carried carried[FS_CARRIED_MAX]; /* ring */
	unsigned int ncarried; /* entries ever added */
	uv_timer_t keeping; /* with `kept`: runs while `adopting`, then every
			       FS_KEPT_MS while fs_kept_due */
	uv_timer_t taking; /* after a take-over, while `adopting` */
	int backings_from; /* lower ids are those of earlier incarnations;
			      0: there are none */
	struct fs_inode root;
	/* Filter of the names that have a negative dentry in the kernel
	 * (notify.c): [0] is filled, [1] is the previous period's. */
	uint64_t *misses[2];
	uint64_t miss_turn_ms; /* pool_now_ms() when [0] was begun */
	uint64_t moved_ms; /* pool_now_ms() of the last RENAME of a name that
			      had no bound nodeid. The kernel moved a dentry
			      that shows an unbound one, so for MOVED_MS an
			      OPEN of an unbound nodeid may be meant for the
			      new name (open.c) */
	struct fs_stale stale[FS_STALE_MAX]; /* index: tid % FS_STALE_MAX */
	unsigned int npins; /* entries of `stale` with a pin */
	unsigned int handles_without_obj; /* of a take-over: the object that
					     the handle opened is not known */
	struct fs_notifier *notifier; /* owns */
	bool notifier_lost; /* fs was closed while the notifier's thread was
			       blocked: `notifier` and `se`, which the thread
			       uses, are not freed */
	pid_t guard; /* the guard's process (guard.h); <= 0: none */

	struct pool_counter requests[OP_COUNT];
	/* Each OPEN of a file (not a CREATE, nor an OPEN below /.kvpool) counts
	 * in one of these four when it is answered; if with ESTALE, in
	 * stale_opens instead. One that the kernel refuses (permission) never
	 * arrives here: fs/README.md, Permissions */
	struct pool_counter opens_local, opens_remote, opens_failed;
	struct pool_counter opens_interrupted, opens_stale;
	struct pool_counter stale_opens, interrupts, write_waits;
	struct pool_counter listing_waits, texts_refused;
	struct pool_counter ghosts, resends, left_out, reopened, not_reopened;
	struct pool_gauge ninodes, gbackings, nopen;
	struct pool_hist lookup_time, open_time;
	unsigned int uv_closing; /* fs_close: libuv handles not closed yet */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* The wall clock as the kernel's filesystems stamp writes (the coarse clock):
 * never later than the mtime that tmpfs sets for a later write. */
static inline uint64_t fs_write_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_REALTIME_COARSE, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline struct fs *fs_of(fuse_req_t req)
{
	return fuse_req_userdata(req);
}
static inline struct fs *fs_count(fuse_req_t req, enum fs_op op)
{
	struct fs *fs = fs_of(req);

	pool_count(&fs->requests[op]);
	return fs;
}
/* ids.c: the user to whom the node and the master attribute req's changes: the
 * caller, or the user of the option uid; root is always root. */
uint32_t fs_caller(fuse_req_t req);
/* The same for a request that changes names or attributes. Until it has been
 * handled (handle_one), changes count in the share of its caller
 * (pool_node_caller). */
static inline struct fs *fs_change(fuse_req_t req, enum fs_op op)
{
	struct fs *fs = fs_count(req, op);

	pool_node_caller(fs->node, fs_caller(req));
	return fs;
}

/* waiting.c: calls fs_listings_run and fs_waiting_run every FS_WAITING_MS until
 * `listings` and `waiting` are empty and no pin is in force. */
void fs_waiting_schedule(struct fs *fs);

/* Identifies a name, whatever it shows (struct fs_refused). 0: e is NULL. */
static inline uint64_t fs_cookie(const struct node_entry *e)
{
	return e ? node_file_entry(e)->cookie : 0;
}

/* inode.c */
/* NULL: an unknown nodeid. Every request is of a known one, see fs_ghost. */
struct fs_inode *fs_inode_find(struct fs *fs, fuse_ino_t ino);
/*
 * The inode bound to the visible entry e; a new one if there is none, or if it
 * cannot show e's own file (it is unbound then). NULL: ENOMEM. The caller adds
 * to nlookup if it replies with the nodeid or keeps the pointer.
 */
struct fs_inode *fs_inode_bind(struct fs *fs, struct pool_entry *e);
/* Subtracts n from the lookup count; frees i if it is 0 and i is not open. */
void fs_inode_forget(struct fs *fs, struct fs_inode *i, uint64_t n);
/* Unbinds i from its name. It keeps its attributes and, while it is open, its
 * object; it is freed if its lookup count is 0 and it is not open. The caller
 * invalidates the dentry. */
void fs_inode_unbind(struct fs *fs, struct fs_inode *i);
/*
 * May the file nodeid i show another object from now on? More is allowed with
 * retry: the OPEN is repeated after ESTALE, and the kernel will not look the
 * name up once more.
 */
bool fs_inode_can_switch(const struct fs *fs, const struct fs_inode *i,
			 bool retry);
/*
 * Binds the unbound file i to the file that its name shows now. False: there is
 * none, i cannot switch, or another nodeid is bound to the name and in use.
 * take: unbinds that nodeid even if it is in use, unless it shows a file that
 * is being written.
 */
bool fs_inode_rebind(struct fs *fs, struct fs_inode *i, bool retry, bool take);
/* Makes the unbound file i show o, the object of e, while another nodeid is
 * bound to e; i gets e's attributes and stays unbound. False: i cannot switch,
 * or ENOMEM. */
bool fs_inode_show(struct fs *fs, struct fs_inode *i,
		   const struct node_entry *e, struct node_object *o,
		   bool retry);
/* Makes the bound file i show its name's own file. False: there is none, or i
 * cannot switch. */
bool fs_inode_follow(struct fs *fs, struct fs_inode *i, bool retry);
/* The visible file at the former path of an unbound i, or NULL. */
struct node_entry *fs_inode_path_entry(struct fs *fs, const struct fs_inode *i);
/*
 * As fs_inode_path_entry; but if i is open, the entry must show the same
 * published object, else NULL: the request may come from an open descriptor,
 * which must not reach another version.
 */
struct node_entry *fs_inode_successor(struct fs *fs, const struct fs_inode *i);
/* The former path of an unbound file, or NULL. Borrowed. */
const char *fs_inode_path(const struct fs_inode *i);
/* i->past; an all-zero one if that is NULL (bound, or ENOMEM at unbinding). */
const struct fs_past *fs_inode_past(const struct fs_inode *i);
/* i->past, allocated zeroed if NULL. NULL: ENOMEM. */
struct fs_past *fs_inode_make_past(struct fs_inode *i);
/* The attributes that the kernel gets; clears attr_expired. */
void fs_inode_stat(struct fs *fs, struct fs_inode *i, struct stat *st);
static inline struct node_dirent *fs_inode_dir(const struct fs_inode *i)
{
	return i->kind == FS_DIR ? i->u.dir : NULL;
}
/* The name that i is bound to, or NULL. */
struct pool_entry *fs_inode_entry(const struct fs_inode *i);
/* To be called before a change of the names in dir, or of the name, content or
 * attributes of i: records it for the keeper, if there is one (fs/kept.h). */
void fs_dir_changes(struct fs *fs, struct node_dirent *dir);
void fs_inode_changes(struct fs *fs, const struct fs_inode *i);
/* The same for i, which is opened for writing now. */
void fs_inode_written(struct fs *fs, struct fs_inode *i);
/* Sets the ctime to now: attributes or the name of i were changed here. */
void fs_inode_changed(struct fs *fs, struct fs_inode *i);
/* Notifies the kernel of the directories in fs->touched, now. */
void fs_touched_notify(struct fs *fs);
/* Refs o (NULL: none) and unrefs the former object. Not the backing. */
void fs_inode_set_obj(struct fs *fs, struct fs_inode *i,
		      struct node_object *o);
/* The backing id of i->obj, registered if it is not yet; or -errno. */
int fs_inode_backing(struct fs *fs, struct fs_inode *i);
/* A handle on i was opened; was closed (this may free i). o: the handle's
 * object, which may differ from i->obj. */
void fs_inode_opened(struct fs *fs, struct fs_inode *i, struct node_object *o);
void fs_inode_closed(struct fs *fs, struct fs_inode *i, struct node_object *o);
/* Frees all inodes, after the node was closed. */
void fs_inodes_fini(struct fs *fs);
/* Take-over: a new inode with this nodeid. NULL: ENOMEM, or the nodeid is out
 * of range or in use. */
struct fs_inode *fs_inode_new_at(struct fs *fs, uint64_t id);
/* End of a take-over: closes the backings of inodes whose object was not handed
 * over, and frees inodes that nothing refers to. */
void fs_inodes_settle(struct fs *fs);
/* Records the inodes of a take-over for the keeper (fs/kept.h). */
void fs_inodes_keep(struct fs *fs);
/* For how many seconds the kernel may cache the attributes. */
double fs_attr_timeout(struct fs *fs, struct fs_inode *i);
extern const struct pool_node_ops fs_node_ops;

/* handover.c */
struct fs_init_kept { /* borrows from fs->taken, until fs_handover_read */
	const uint8_t *req, *reply;
	size_t req_len, reply_len;
	bool passthrough;
};
/* Reads the FS record: the INIT exchange of the mount. 0 or -errno; a different
 * mount point is logged, -EINVAL. */
int fs_handover_init(struct fs *fs, struct pool_handover *h,
		     struct fs_init_kept *ret);
/* Reads the rest: inodes and handles. 0 or -errno. */
int fs_handover_read(struct fs *fs, struct pool_handover *h);

struct fs_handle;
/* kept.c: see fs/kept.h. Without a keeper nothing is written. */
/* Maps the memfd and begins an incarnation. 0 or -errno, logged. */
int fs_kept_open(struct fs *fs, int fd);
/* After the last inode was freed. */
void fs_kept_close(struct fs *fs);
/* The INIT exchange of the mount that is adopted. */
struct fs_init_kept fs_kept_init(const struct fs *fs);
/* Keeps the INIT exchange of this mount. */
void fs_kept_mounted(struct fs *fs);
/* Record of directory i: sets its path (that of e), sets its lookup count,
 * marks it as removed. */
void fs_kept_dir(struct fs *fs, struct fs_inode *i, const struct pool_entry *e);
void fs_kept_count(struct fs *fs, const struct fs_inode *i);
void fs_kept_dir_gone(struct fs *fs, const struct fs_inode *i);
/* Keeps the attributes of file i, which is open. */
void fs_kept_file(struct fs *fs, struct fs_inode *i, const struct stat *st);
/* File i of directory dir (NULL: not known) is opened for writing. */
void fs_kept_writer(struct fs *fs, struct fs_inode *i,
		    const struct fs_inode *dir);
/* Before a change in directory i (NULL: not known). */
void fs_kept_changed(struct fs *fs, const struct fs_inode *i);
/* The number of the last change. */
uint64_t fs_kept_mark(const struct fs *fs);
/* Changes up to mark would survive the daemon's death from now on. */
void fs_kept_safe(struct fs *fs, uint64_t mark);
/* May something in directory i have been lost with an earlier daemon? Clears
 * that: true only once for each loss. */
bool fs_kept_lost(struct fs *fs, const struct fs_inode *i);
/* Handle h is open: keeps which file of the store it reads. */
void fs_kept_handle(struct fs *fs, struct fs_handle *h);
void fs_kept_handle_end(struct fs *fs, const struct fs_handle *h);
/* i is freed, or has been closed. */
void fs_kept_drop(struct fs *fs, struct fs_inode *i);
/* Handling of the request with this unique begins; 0: it has ended. Returns the
 * unique of the one being handled so far, or 0. */
uint64_t fs_kept_handling(struct fs *fs, uint64_t unique);
/* Closes backings of earlier incarnations, if it is time. */
void fs_kept_backings(struct fs *fs);
/* Are there changes that are not safe, or backings to close? While there are,
 * fs->keeping runs. */
bool fs_kept_due(const struct fs *fs);

/* The record of a nodeid of an earlier incarnation, or NULL. */
struct fs_kept_rec *fs_kept_find(const struct fs *fs, uint64_t nodeid);
/* The kernel has forgotten its nodeid. NULL: no-op. */
void fs_kept_forget(struct fs *fs, struct fs_kept_rec *r);

/* ghost.c: requests about nodeids of earlier incarnations */
/* Makes inodes of the directories whose paths exist. */
void fs_ghosts_revive(struct fs *fs);
/* Makes handles of those that read a file that is still in the store. Before
 * the loop runs: nothing can be evicted before. */
void fs_ghosts_reopen(struct fs *fs);
/* Handle h, of a nodeid of an earlier incarnation, is open here. */
void fs_ghost_opened(struct fs *fs, struct fs_handle *h);
/* For a request as read from the device. True: it was answered here, because
 * its nodeid is not known, or because earlier daemons died while handling it.
 * False: the caller handles it. */
bool fs_ghost(struct fs *fs, const void *buf, size_t len);

/* notify.c. All on the loop. */
int fs_notifier_open(struct fs *fs);
/* The thread ends after the notification that it is sending; the rest of the
 * queue is dropped. Sending blocks for as long as anybody holds the directory's
 * lock in the kernel. */
void fs_notifier_stop(struct fs *fs);
/* Has the thread ended? Joins it: not to be called again after true. */
bool fs_notifier_ended(struct fs *fs);
/* Closes the notifier's libuv handles; its thread may still be blocked. */
void fs_notifier_close(struct fs *fs);
/* Frees the queue, after the thread has ended. */
void fs_notifier_free(struct fs *fs);
/* Queues an invalidation of e's dentry. If the kernel takes no invalidations at
 * present, or the queue is full, all dentries are expired instead, provided
 * that the kernel has epochs: see notify.c. No-op if the kernel has no nodeid
 * of the directory. */
void fs_notify_entry(struct fs *fs, struct pool_entry *e);
/* Queues an invalidation of i's attributes, or sends it at once if the queue is
 * full. */
void fs_notify_attr(struct fs *fs, struct fs_inode *i);
/* Sends an invalidation of i's attributes at once. The loop does not block: the
 * kernel takes no lock that a user can hold, neither the inode's nor a page's
 * (offset -1 invalidates no pages). */
void fs_notify_attr_now(struct fs *fs, struct fs_inode *i);
/* Queues an invalidation of a dentry by the directory's nodeid; name_len 0: of
 * the nodeid itself. Not bounded: for the queue of a take-over. */
void fs_notify_queue(struct fs *fs, uint64_t nodeid, const char *name,
		     size_t name_len);
/* Calls cb, under the notifier's lock, for the notification that is being sent
 * and for every queued one, in order; not for marks (fs_notify_mark). */
void fs_notify_each(struct fs *fs,
		    void (*cb)(void *arg, uint64_t nodeid, const char *name,
			       size_t name_len), void *arg);
/* Calls pool_node_notified(mark) when everything queued so far has been sent,
 * or all dentries have been expired instead; possibly before this returns. */
void fs_notify_mark(struct fs *fs, uint64_t mark);
/* Is the queue full on a kernel without epochs (before Linux 6.16)? Such a
 * kernel needs every single notification: the feed must wait. */
bool fs_notify_behind(struct fs *fs);
/* Makes all queued invalidations effective at once, by expiring every dentry
 * (FS_NOTIFY_INC_EPOCH). No-op before Linux 6.16, or if nothing is queued. */
void fs_notify_expire(struct fs *fs);
/* Records that the kernel has a negative dentry of the name. */
void fs_miss_add(struct fs *fs, const struct node_dirent *dir,
		 const char *name, size_t len);
/* May the kernel have a negative dentry of e's name? Never false if it has; may
 * be true if it has not. */
bool fs_miss_maybe(struct fs *fs, const struct pool_entry *e);

/* name_ops.c */
void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n);
void fs_forget_multi(fuse_req_t req, size_t count,
		     struct fuse_forget_data *forgets);
void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
		struct fuse_file_info *fi);
void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	      dev_t rdev);
void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
	      mode_t mode);
void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name);
void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
	       fuse_ino_t newparent, const char *newname, unsigned int flags);
void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent,
	     const char *newname);
void fs_symlink(fuse_req_t req, const char *link, fuse_ino_t parent,
		const char *name);
void fs_statfs(fuse_req_t req, fuse_ino_t ino);
/* inode.c: fills the entry part of a reply for i and adds 1 to its lookup
 * count: undo with fs_inode_forget if the reply does not arrive. */
void fs_fill_entry(struct fs *fs, struct fs_inode *i,
		   struct fuse_entry_param *p);
/* inode.c: the directory of a nodeid; NULL: removed, or below /.kvpool. */
struct node_dirent *fs_dir_of(struct fs *fs, fuse_ino_t ino);

/*
 * File handles (fi->fh). A passthrough handle needs no state here: 0 is a
 * reader, FS_PASSTHROUGH_WRITER a writer. Every other fh is the number of a
 * struct fs_fh, which the struct of its kind embeds.
 */
#define FS_PASSTHROUGH_WRITER 1
#define FS_FH_MIN 2
enum fs_fh_kind { FS_FH_FILE, FS_FH_DIR, FS_FH_TEXT };
struct fs_fh {
	enum fs_fh_kind kind;
	uint64_t fh;
};
/* inode.c: numbers o (sets o->fh). 0 or -ENOMEM. */
int fs_fh_add(struct fs *fs, struct fs_fh *o, enum fs_fh_kind kind);
void fs_fh_remove(struct fs *fs, struct fs_fh *o);
/* NULL: a passthrough handle, or one of an earlier incarnation. */
static inline void *fs_fh_get(struct fs *fs, uint64_t fh)
{
	struct fs_fh *o = (uint32_t)fh < FS_FH_MIN ? NULL :
		pool_slots_get(&fs->handles, (uint32_t)fh - FS_FH_MIN);

	return o && o->fh == fh ? o : NULL;
}

/* FS_FH_FILE: a daemon-served open file. */
struct fs_handle {
	struct fs_fh o; /* first */
	struct node_object *obj; /* ref; NULL: not known, use the inode's
				    (counted in fs->handles_without_obj) */
	const struct fs_inode *inode; /* borrows: it is not freed while it is
					 open; NULL if obj is NULL, or if the
					 nodeid is of an earlier incarnation
					 (ghost.c) */
	uint32_t rec; /* 1 + its record in fs->kept; 0: none */
	bool writer; /* counts in node_object_writers(obj) */
	struct node_fd fd; /* O_RDONLY; HELD objects are mapped whole */
};

/* FS_FH_DIR: an open directory. */
struct fs_dir_handle {
	struct fs_fh o;	 /* first */
	uint64_t nodeid; /* of the directory; the kernel keeps it till the
			    RELEASEDIR */
	uint64_t cookie; /* of the directory; 0: it is gone */
	struct pool_tree_reader reader; /* valid only while fs_listed_dir is
					   not NULL */
};

/* FS_FH_TEXT: an open file of /.kvpool. */
#define FS_TEXTS_MAX 256u /* open at once; beyond: for root only */

struct fs_text {
	struct fs_fh o; /* first */
	size_t len; /* bytes in data */
	char *data; /* owns */
};

static inline bool fs_wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* handle.c */
/* Opens a handle on i->obj in i's data mode and fills the reply to OPEN or
 * CREATE. May set i->served if no backing can be registered. 0 or -errno. */
int fs_handle_open(struct fs *fs, struct fs_inode *i, int flags,
		   struct fuse_open_out *out);
/* NULL (a passthrough handle) is a no-op. */
void fs_handle_free(struct fs *fs, struct fs_handle *h);
/* The object of the open handle fh of i. Borrowed. */
struct node_object *fs_handle_obj(struct fs *fs, const struct fs_inode *i,
				  uint64_t fh);
/* Is fh open for writing? */
bool fs_handle_writes(struct fs *fs, uint64_t fh);

/*
 * A passthrough write holds the lock of the store's file while it copies from
 * the caller's pages. Another file system or userfaultfd may withhold these
 * pages forever, so nothing here may wait for that lock. The kernel sends
 * SETATTR and FALLOCATE of a nodeid only between passthrough writes through
 * that nodeid. Hence all passthrough writers of an object use one nodeid
 * (pool_node_writer_direct), there are no daemon-served writers at the same
 * time, and code that changes the file first calls the checks below.
 */
/* A passthrough writer of o (a handle, or a SETATTR of the size) begins to use
 * nodeid i. */
void fs_direct_begin(struct fs *fs, struct node_object *o,
		     const struct fs_inode *i);
/* It ends. */
void fs_direct_end(struct fs *fs, struct node_object *o);
/* Do the present writers of i->obj forbid another one through i? */
bool fs_writers_clash(const struct fs_inode *i);
/* May a passthrough write through another nodeid than i hold the lock of o's
 * file? i NULL: a write through any nodeid. */
bool fs_write_locks(const struct node_object *o, const struct fs_inode *i);

/*
 * Executed objects. The kernel itself refuses to write to a nodeid that is
 * being executed, and to execute one that is open for writing (ETXTBSY); but
 * one object may be shown by several nodeids, so open.c counts per object. The
 * OPEN and the RELEASE of execve(2) carry FS_O_EXEC in their flags.
 */
#define FS_O_EXEC 0x20 /* __FMODE_EXEC, include/linux/fs.h */
struct fs_executed {
	struct pool_list link; /* fs->executed */
	struct node_object *obj; /* ref */
	unsigned int handles; /* opened by execve(2) */
};

/* open.c */
/* A handle of execve(2) on o was closed. */
void fs_executed_end(struct fs *fs, struct node_object *o);
void fs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/*
 * Answers an OPEN of i, now or later; or, with resize >= 0, a SETATTR that sets
 * the size to `resize`. asked: the nodeid of the request. retry: the thread
 * repeats its request after ESTALE. Takes ownership of pin.
 */
void fs_open_begin(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		   const struct fs_inode *asked, int flags, int64_t resize,
		   bool retry, struct fs_pin pin);
/* An OPEN with O_TRUNC that came at since_ns was answered with ESTALE, and the
 * LOOKUP after it found e: empties e now, if that can be done without waiting.
 * The repeated OPEN then does not truncate what others write in between. */
void fs_open_empty(struct fs *fs, struct node_entry *e, uint64_t since_ns);
/* Answers a SETATTR of the size with i's attributes, which the kernel must not
 * cache (timeout 0). */
void fs_resize_reply(fuse_req_t req, struct fs *fs, struct fs_inode *i);
/* Retries every OPEN in fs->waiting, and lets old pins expire. */
void fs_waiting_run(struct fs *fs);
/* Fails the OPENs in fs->waiting with EIO, and drops all pins. */
void fs_waiting_fini(struct fs *fs);

/* ids.c */
/* Attributes of a file or directory as this mount shows them. */
struct node_attr fs_attr_shown(const struct fs *fs, const struct node_attr *a,
			       bool is_dir);
/* The attributes to store for a file or directory that req makes. */
struct node_attr fs_attr_new(fuse_req_t req, mode_t mode);

/*
 * may.c: permission checks for the caller of req. The kernel checks with the
 * attributes that it has cached for the nodeid (default_permissions). These
 * functions check where a request is applied to another file, because the name
 * shows another one by now.
 */
/* May the caller open e (want: R_OK, W_OK, X_OK; 0: none)? It must also be
 * allowed to search all directories above. */
bool fs_may(fuse_req_t req, const struct node_entry *e, int want);
/* Is the caller the owner of e that this mount shows, or root? */
bool fs_owns(fuse_req_t req, const struct pool_entry *e);
/* May the caller change e's mode and times (the owner, or root)? */
bool fs_may_change(fuse_req_t req, const struct node_entry *e);
/* Does dir's sticky bit let the caller remove or rename e? */
bool fs_may_remove(fuse_req_t req, const struct node_dirent *dir,
		   const struct pool_entry *e);

/* resize.c */
/* Answers a SETATTR of the size, now or later. fi: of ftruncate(2); NULL:
 * truncate(2). */
void fs_resize(fuse_req_t req, struct fs_inode *i, uint64_t size,
	       const struct fuse_file_info *fi);

/* file_ops.c */
/* Creates the file of a CREATE or MKNOD in dir. 0 or -errno. */
int fs_new_file(struct fs *fs, struct node_dirent *dir, const char *name,
		const struct node_attr *a, struct node_object **ret_o);
/* Removes the file that was just created, because the reply could not be made
 * or did not arrive. */
void fs_uncreate(struct fs *fs, struct node_object *o);
void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name,
	       mode_t mode, struct fuse_file_info *fi);
void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
	      struct fuse_file_info *fi);

/* data_ops.c */
void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	     struct fuse_file_info *fi);
void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
	      off_t off, struct fuse_file_info *fi);
void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
		  off_t length, struct fuse_file_info *fi);
void fs_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags,
	      const void *in_buf, size_t in_bufsz, size_t out_bufsz);

/* dir_ops.c */
void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		struct fuse_file_info *fi);
void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi);
void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		 struct fuse_file_info *fi);
/* The directory that h lists; NULL: the listing has ended, because the
 * directory was removed or renamed. */
struct node_dirent *fs_listed_dir(struct fs *fs, const struct fs_dir_handle *h);
/* Continues the listings in fs->listings, for a bounded number of names. */
void fs_listings_run(struct fs *fs);
/* Fails the listings in fs->listings with EIO. */
void fs_listings_fini(struct fs *fs);

/* stale.c: which threads got ESTALE and will repeat their request */
/* The caller is about to answer the thread's request with ESTALE. */
void fs_stale_sent(struct fs *fs, uint32_t tid, bool writes,
		   struct fs_refused refused);
/* The same for an ESTALE that the old process of a take-over has sent; it is
 * not counted again. */
void fs_stale_add(struct fs *fs, uint32_t tid, bool writes,
		  struct fs_refused refused);
/* Is the thread's second request still expected? */
bool fs_stale_is_live(const struct fs_stale *s);
/*
 * The thread has sent a request: is it the request repeated after ESTALE?
 * Removes the record of the ESTALE. The caller owns *ret_pin (zeroed if there
 * is none): it calls fs_stale_unpin when the request is answered, whatever this
 * returned.
 */
bool fs_stale_take(struct fs *fs, uint32_t tid, struct fs_pin *ret_pin);
void fs_stale_unpin(struct fs *fs, struct fs_pin *pin);
/* Is e pinned for the second OPEN of a writer? */
bool fs_stale_pinned(const struct fs *fs, const struct node_entry *e);
/* The thread's second request came and is not an OPEN (CREATE, or a LOOKUP that
 * missed): removes record and pin. */
void fs_stale_cancel(struct fs *fs, uint32_t tid);
/* A LOOKUP found e, for which fs_stale_expects returned true: pins e, and makes
 * sure that the nodeid in the reply can be opened for writing. */
void fs_stale_lookup(struct fs *fs, uint32_t tid, struct node_entry *e);
/* A LOOKUP by thread tid of user uid has found e: is e the name that the thread
 * was refused to write to? *ret_since_ns: see struct fs_refused. */
bool fs_stale_expects(struct fs *fs, uint32_t tid, uint32_t uid,
		      const struct node_entry *e, uint64_t *ret_since_ns);
/* Drops the pins of threads that did not return within STALE_MS; all: of every
 * thread. */
void fs_stale_expire(struct fs *fs, bool all);

/* xattr_ops.c */
void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 const char *value, size_t size, int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* mountpoint.c */
/* Prepares dir to be mounted on: makes the directory if it is missing and
 * detaches a mount whose daemon is dead; a live KVPool mount is -EBUSY. 0 or
 * -errno, logged with the remedy. */
int fs_mountpoint_prepare(const char *dir);

/* proc.c: /.kvpool has the fixed nodeids 2 .. FS_PROC_MAX - 1 */
#define FS_PROC_DIR 2
#define FS_PROC_MAX POOL_ROOT_INO_MIN
#define FS_PROC_NAME ".kvpool"
void fs_proc_lookup(fuse_req_t req, const char *name);
void fs_proc_stat(fuse_ino_t ino, struct stat *st);
void fs_proc_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
void fs_proc_read(fuse_req_t req, size_t size, off_t off,
		  struct fuse_file_info *fi);
void fs_proc_release(fuse_req_t req, struct fuse_file_info *fi);
void fs_proc_readdir(fuse_req_t req, size_t size, off_t off, bool plus);
static inline bool fs_is_proc(fuse_ino_t ino)
{
	return ino >= FS_PROC_DIR && ino < FS_PROC_MAX;
}

#endif
