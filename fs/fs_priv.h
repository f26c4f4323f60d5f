/* What the files of fs/ share; see fs/session.h for the whole picture. */
#ifndef FS_FS_PRIV_H
#define FS_FS_PRIV_H

#include <fcntl.h>
#include <fuse_lowlevel.h>
#include <pthread.h>
#include <time.h>

#include "fs/passthrough.h"
#include "fs/session.h"
#include "pool/base/clock.h"
#include "pool/base/list.h"
#include "pool/base/log.h"
#include "pool/base/slots.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/model/root.h"
#include "pool/conn/wire.h"

#define FS_TIMEOUT_LONG 60.0  /* dentries and attributes; notified otherwise */
#define FS_TIMEOUT_REMOTE 1.0 /* hits on what is not here: ask again, so that
				 look-ups can start a fetch */
#define FS_TIMEOUT_CREATED 1 /* s, attributes: open(2) checks them once more
				at once; a write makes the kernel ask again */
#define FS_BACKINGS_MAX 16384 /* registrations kept for unused files */
#define FS_MISS_BITS 22	      /* size of the filter of told misses */
#define FS_TOUCH_MS 200	      /* the kernel is told of the times of directories
				 not more often: each look-up below would wait
				 for them */
#define FS_CARRIED_MAX 64     /* ctimes kept from one nodeid to the next */
#define FS_RETRY_MS 2	      /* an OPEN that waits for a publication */
#define FS_TURN_MAX 64	      /* requests handled before others have a turn */

enum fs_kind { FS_DIR, FS_FILE, FS_PROC };

/*
 * What the kernel knows by a nodeid (1 is the root).
 *
 * An open nodeid shows one content: when its name gets another one, it is
 * unbound (entry == NULL, attributes frozen in `past`), the dentry is
 * invalidated, and the next look-up makes another. An OPEN of an unbound
 * nodeid is answered with ESTALE: the kernel looks the name up again - once
 * only, and a CREATE that found the name taken may have used that up; or
 * there is no name (/proc/PID/fd). So a rewrite through a nodeid that nobody
 * has open is followed by it; else an OPEN for writing has made the new
 * generation before it says ESTALE, of an unbound nodeid too (by its path).
 * SETATTR of an unbound nodeid goes to what the name shows now. All that only
 * if who asks may do so to that file (may.c).
 *
 * Who was told ESTALE and asks again (stale.c) gets a file, whatever it takes:
 *   - a nodeid that nobody has open, or whose handles are all daemon-served
 *     (each of them has a file of its own), is bound to what the name shows,
 *     or shows it beside the nodeid that is in use for it;
 *   - one that is open in passthrough mode cannot show another file as long
 *     as it is (the kernel refuses any other backing, and none): whoever reads
 *     gets the version that it stands for. Only who writes cannot have that.
 *
 * invariant             bound file          unbound file       dir
 *   entry->fs == this   yes                 entry NULL         dir->fs
 *   obj                 own, or while open, or obj kept while   -
 *                       backing != 0        open
 *   backing != 0        passthrough only    while open         -
 */
struct fs_inode {
	struct pool_list lru;  /* in fs->backings while opens == 0; of a
				  directory: in fs->touched */
	uint64_t nlookup;
	uint64_t ino; /* st_ino */
	struct node_entry *entry;
	union {
		struct node_dirent *dir; /* FS_DIR: fs_inode_dir */
		uint64_t ctime_ns;	 /* FS_FILE: 0: as mtime */
	} u;
	struct node_object *obj; /* ref */
	uint64_t atime_ns; /* 0: never set; then mtime */
	struct fs_past *past; /* owns; of an unbound one, else NULL */
	uint32_t id; /* nodeid; fs->inodes has no more */
	uint32_t opens;
	int32_t backing; /* id, 0: none */
	uint8_t kind;
	bool served : 1; /* data mode of this nodeid: daemon-served */
	bool cached : 1; /* was opened in that mode; never in the other, then */
	bool asks : 1;	 /* a directory: the kernel was told to ask for its
			    attributes, and has not */
	uint16_t coming; /* who write, were told ESTALE, and have looked the
			    name up again: who reads waits for them */
};

/* What an unbound nodeid shows. (Apart, as there may be very many of the
 * others.) */
struct fs_past {
	struct node_attr attr;
	uint64_t size;
	char *path; /* owns; of a file: the name it had; or NULL */
	bool kept; /* counts as a user of obj: its file stays */
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

/* What is kept as it is for who writes, until that has been served: a file that
 * is being written goes on being written, a nodeid is not opened to read, nor
 * any other that the name may get until it comes. */
struct fs_hold {
	const void *name; /* the entry that was looked up; only compared */
	struct node_object *obj; /* ref, or NULL */
	struct fs_inode *inode;	 /* by a look-up count, or NULL */
};

/* The ctime of a file that has no nodeid now, or gets another one. */
struct fs_carried {
	uint64_t ino, ctime_ns;
};

/* A thread that was told ESTALE, and when. */
struct fs_stale {
	uint32_t tid; /* 0: nobody */
	bool writes;
	uint64_t ms;
	struct fs_hold held;
};
#define FS_STALE_MAX 256

/* Requests that are answered later, by what they wait for. */
enum fs_later {
	FS_LATER_OPEN,
	FS_LATER_ROOM,	/* WRITE, FALLOCATE */
	FS_LATER_SYNC,	/* FSYNCDIR */
	FS_LATER_AGAIN, /* stale.c holds a file for a thread's next open */
	FS_LATER
};

struct fs {
	struct fs_opts opts;
	uv_loop_t *loop;
	struct pool_node *node;
	struct pool_tree *tree;
	char *mountpoint;
	char device[32]; /* of the mount, as in mountinfo; "": not known */
	struct fuse_session *se;
	int dev_fd;
	struct fuse_buf buf; /* the request being handled */
	struct fs_init init;
	/* For a successor: the kernel's INIT and our answer, as sent. */
	uint8_t init_req[256], init_reply[128];
	size_t init_len, init_reply_len;
	Kvpool__HandoverFs *taken; /* owns; only while taking over */
	bool replaying; /* ours is the successor: nothing reaches the kernel */
	unsigned int under_way[FS_LATER]; /* requests that are answered later */
	bool initialised, unmounted, closing;
	bool passthrough;

	uv_poll_t poll;
	uv_timer_t retry; /* runs while `waiting` is not empty */
	uv_timer_cb on_retry; /* session.c */
	struct pool_list waiting; /* opens that wait for a publication */
	struct pool_slots inodes; /* struct fs_inode by nodeid - FS_PROC_MAX */
	struct pool_slots opens;  /* struct fs_open by fh - FS_FH_MIN */
	struct pool_list backings; /* unused inodes with a backing, LRU */
	unsigned int nbackings;
	struct pool_list dirs; /* open directory handles */
	struct pool_list executed; /* struct fs_executed */
	/* directories that the kernel is to ask for */
	struct pool_list touched;
	uv_timer_t touch; /* runs while `touched` is not empty */
	uint64_t touch_ms; /* when it was told of such last */
	struct fs_carried carried[FS_CARRIED_MAX];
	unsigned int ncarried; /* ever */
	struct fs_inode root;
	/* Names that the kernel was told are missing: two generations. */
	uint64_t *misses[2];
	uint64_t miss_turn_ms;
	uint64_t moved_ms; /* when a dentry with an older nodeid was renamed */
	struct fs_stale stale[FS_STALE_MAX]; /* by tid */
	unsigned int nheld; /* of these, that hold something */
	unsigned int unnamed; /* handles of whose file we do not know */
	struct fs_notifier *notifier;
	pid_t guard; /* <= 0: none */

	struct pool_counter requests[OP_COUNT];
	struct pool_counter stale_opens, interrupts, write_waits;
	struct pool_gauge ninodes, gbackings, nopen;
	struct pool_hist lookup_time, open_time;
	unsigned int handles;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* As the kernel stamps what is written: never after the store's own mtime. */
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

/* session.c: run fs_waiting_run every FS_RETRY_MS until `waiting` is empty. */
void fs_waiting_schedule(struct fs *fs);

/* inode.c */
struct fs_inode *fs_inode_find(struct fs *fs, fuse_ino_t ino);
fuse_ino_t fs_inode_id(struct fs *fs, const struct fs_inode *i);
/* The inode bound to a visible entry; made if there is none. NULL: ENOMEM.
 * The caller counts a look-up if the kernel learns of it. */
struct fs_inode *fs_inode_bind(struct fs *fs, struct pool_entry *e);
void fs_inode_forget(struct fs *fs, struct fs_inode *i, uint64_t n);
/* The name shows something else from now on. */
void fs_inode_unbind(struct fs *fs, struct fs_inode *i);
/* May it show another file from now on, without a look-up? again: there will
 * be none. */
bool fs_inode_movable(const struct fs *fs, const struct fs_inode *i,
		      bool again);
/* An unbound file is bound again to what its name shows now. False: it is not
 * movable, or another nodeid is in use for that; take: which gives it up then,
 * but not for a file that is being written. */
bool fs_inode_rebind(struct fs *fs, struct fs_inode *i, bool again, bool take);
/* An unbound file shows o, whose name e another nodeid has, to who opens it
 * now; its attributes become e's. False: it is not movable. */
bool fs_inode_show(struct fs *fs, struct fs_inode *i,
		   const struct node_entry *e, struct node_object *o,
		   bool again);
/* Show the name's own file from now on, if it is movable. */
bool fs_inode_follow(struct fs *fs, struct fs_inode *i, bool again);
/* What the name of an unbound file shows now, or NULL. */
struct node_entry *fs_inode_named(struct fs *fs, const struct fs_inode *i);
/* The same: whoever asks came by the name, or
 * (if it is open) perhaps not, and only the same object will do. Or NULL. */
struct node_entry *fs_inode_successor(struct fs *fs, const struct fs_inode *i);
/* The name that an unbound file had, or NULL. */
const char *fs_inode_path(const struct fs_inode *i);
/* Of one that is bound, or for which there was no memory: of nothing. */
const struct fs_past *fs_inode_past(const struct fs_inode *i);
/* Made if there is none, all zero; NULL: ENOMEM. */
struct fs_past *fs_inode_make_past(struct fs_inode *i);
void fs_inode_stat(struct fs *fs, struct fs_inode *i, struct stat *st);
static inline struct node_dirent *fs_inode_dir(const struct fs_inode *i)
{
	return i->kind == FS_DIR ? i->u.dir : NULL;
}
/* The ctime is now: something of it, or of its name, was changed here. */
void fs_inode_changed(struct fs *fs, struct fs_inode *i);
/* Tell the kernel now what directories have other times. */
void fs_touched_tell(struct fs *fs);
void fs_touched_run(uv_timer_t *t);
void fs_inode_set_obj(struct fs *fs, struct fs_inode *i,
		      struct node_object *o);
/* The backing id of i->obj, registered if need be; or -errno. */
int fs_inode_backing(struct fs *fs, struct fs_inode *i);
/* o: the file of the handle. */
void fs_inode_opened(struct fs *fs, struct fs_inode *i, struct node_object *o);
void fs_inode_closed(struct fs *fs, struct fs_inode *i, struct node_object *o);
void fs_inodes_fini(struct fs *fs);
/* A new one, with this nodeid; NULL: ENOMEM, or it is taken. */
struct fs_inode *fs_inode_new_at(struct fs *fs, uint64_t id);
/* The inodes have been taken over: give up the registrations of files that
 * were not. */
void fs_inodes_settle(struct fs *fs);
double fs_entry_timeout(struct fs *fs, struct fs_inode *i);
double fs_attr_timeout(struct fs *fs, struct fs_inode *i);
extern const struct pool_node_ops fs_node_ops;

/* handover.c */
struct fs_init_kept { /* borrowed from the record, until fs_handover_read */
	const uint8_t *req, *reply;
	size_t req_len, reply_len;
	bool passthrough;
};
int fs_handover_init(struct fs *fs, struct pool_handover *h,
		     struct fs_init_kept *ret);
int fs_handover_read(struct fs *fs, struct pool_handover *h);

/* notify.c */
int fs_notifier_open(struct fs *fs);
/* No more than what is queued: then its thread ends, which may take until
 * requests that hold the locks of directories have been answered. */
void fs_notifier_stop(struct fs *fs);
/* Has it? Asked until it has, and once only. */
bool fs_notifier_ended(struct fs *fs);
void fs_notifier_close(struct fs *fs);
void fs_notify_entry(struct fs *fs, struct pool_entry *e);
void fs_notify_attr(struct fs *fs, struct fs_inode *i);
/* At once: the kernel takes no lock for this. */
void fs_notify_attr_now(struct fs *fs, struct fs_inode *i);
/* By its number; name_len 0: the inode itself. */
void fs_notify_queue(struct fs *fs, uint64_t nodeid, const char *name,
		     size_t name_len);
/* What is queued or being sent, in order, but marks. The callback is called
 * under the notifier's lock. */
void fs_notify_each(struct fs *fs,
		    void (*cb)(void *arg, uint64_t nodeid, const char *name,
			       size_t name_len), void *arg);
/* pool_node_told(mark) when all queued so far has been sent. */
void fs_notify_mark(struct fs *fs, uint64_t mark);
/* Does so much wait that the kernel is not told of names one by one any more?
 * Before Linux 6.16 it is: then whatever causes them is to wait. */
bool fs_notify_behind(struct fs *fs);
/* What is queued holds from now on, though it may be told later: the kernel
 * asks again for every name. (Before Linux 6.16, no.) */
void fs_notify_expire(struct fs *fs);
/* Remember that the kernel was told that a name is missing; is it? */
void fs_miss_told(struct fs *fs, const struct node_dirent *dir,
		  const char *name, size_t len);
bool fs_miss_maybe_told(struct fs *fs, const struct pool_entry *e);

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
/* Fill an entry reply for i and count the look-up. */
void fs_fill_entry(struct fs *fs, struct fs_inode *i,
		   struct fuse_entry_param *p);
struct node_dirent *fs_dir_of(struct fs *fs, fuse_ino_t ino);

/*
 * fi->fh of an open file: 0 (a reader) or FS_PASSTHROUGH_WRITER in passthrough
 * mode, else the number of one of these.
 */
#define FS_PASSTHROUGH_WRITER 1
#define FS_FH_MIN 2
enum fs_open_kind { FS_OPEN_FILE, FS_OPEN_DIR, FS_OPEN_TEXT };
struct fs_open {
	enum fs_open_kind kind;
	uint64_t fh;
};
/* 0 or -ENOMEM; o->fh is set. */
int fs_open_add(struct fs *fs, struct fs_open *o, enum fs_open_kind kind);
void fs_open_remove(struct fs *fs, struct fs_open *o);
static inline void *fs_open_of(struct fs *fs, uint64_t fh)
{
	return fh < FS_FH_MIN ? NULL :
				pool_slots_get(&fs->opens, fh - FS_FH_MIN);
}

/* FS_OPEN_FILE: daemon-served. */
struct fs_handle {
	struct fs_open o; /* first */
	struct node_object *obj; /* ref; NULL: the inode's (fs->unnamed) */
	const struct fs_inode *inode; /* borrows: kept by being open; or NULL */
	bool writer;
	struct node_fd fd; /* O_RDONLY; mapped: a whole published object */
};

/* FS_OPEN_DIR */
struct fs_dir_handle {
	struct fs_open o;	 /* first */
	struct pool_list link;	 /* fs->dirs */
	struct node_dirent *dir; /* NULL: it is gone */
	struct pool_tree_reader reader;
	off_t last; /* offset behind which the reader stands; -1: not known */
};

/* FS_OPEN_TEXT */
struct fs_text {
	struct fs_open o; /* first */
	size_t len;
	char *data; /* owns */
};

static inline bool fs_wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* handle.c */
/* A handle on i->obj, as OPEN and CREATE answer it. 0 or -errno. */
int fs_handle_open(struct fs *fs, struct fs_inode *i, int flags,
		   struct fuse_open_out *out);
/* What of it is here; NULL: nothing. */
void fs_handle_free(struct fs *fs, struct fs_handle *h);
/* The file that an open handle of i's has. */
struct node_object *fs_handle_obj(struct fs *fs, const struct fs_inode *i,
				  uint64_t fh);
bool fs_handle_writes(struct fs *fs, uint64_t fh);

/*
 * Programs. The kernel lets nobody write to the nodeid that it executes, nor
 * execute one that is open for writing; a file may have had several. These are
 * the flags of an OPEN and a RELEASE of execve(2).
 */
#define FS_O_EXEC 0x20 /* __FMODE_EXEC */
struct fs_executed {
	struct pool_list link; /* fs->executed */
	struct node_object *obj; /* ref */
	unsigned int handles;
};

/* open.c */
/* A handle of execve(2)'s on o has gone. */
void fs_executed_end(struct fs *fs, struct node_object *o);
void fs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi);
/* An OPEN that may have to wait; or, with resize >= 0, a SETATTR of the size to
 * that. again: the kernel was told ESTALE, and held is kept for this. */
void fs_open_begin(fuse_req_t req, struct fs *fs, struct fs_inode *i, int flags,
		   int64_t resize, bool again, struct fs_hold held);
void fs_resize_reply(fuse_req_t req, struct fs *fs, struct fs_inode *i);
/* Opens that wait for a publication look again. */
void fs_waiting_run(struct fs *fs);
void fs_waiting_fini(struct fs *fs);

/*
 * may.c: who asks, and whether he may. A nodeid that follows its name to a file
 * that another one has put there (and an unlink of a name that another file
 * has by now) is not what the kernel has asked permission of.
 */
/* R_OK, W_OK, X_OK as for open(2), search of the directories above too? */
bool fs_may(fuse_req_t req, const struct node_entry *e, int want);
/* Its mode, owner and times? */
bool fs_may_change(fuse_req_t req, const struct node_entry *e);
/* Unlink or rename it, by the rule of sticky directories? */
bool fs_may_remove(fuse_req_t req, const struct node_dirent *dir,
		   const struct pool_entry *e);

/* resize.c */
/* Truncate or extend i's file (SETATTR), then answer with its attributes. fi:
 * of ftruncate(2), or NULL. */
void fs_resize(fuse_req_t req, struct fs_inode *i, uint64_t size,
	       const struct fuse_file_info *fi);

/* file_ops.c */
/* The kernel will not hear of what was just created: nothing of it stays. */
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
void fs_dirs_gone(struct fs *fs, struct node_dirent *dir);

/* stale.c */
/* This request is about to be answered with ESTALE: the kernel asks again. */
void fs_stale_told(struct fs *fs, uint32_t tid, bool writes);
/* The same, by the process that handed over to this one. */
void fs_stale_note(struct fs *fs, uint32_t tid, bool writes);
/* Is it a note of one that is about to come? */
bool fs_stale_coming(const struct fs_stale *s);
/* Is it one that asks again? It is not any more. *ret_held is to be let go of
 * when it has been served. */
bool fs_stale_again(struct fs *fs, uint32_t tid, struct fs_hold *ret_held);
void fs_stale_let(struct fs *fs, struct fs_hold *held);
/* Is somebody to come who was promised this name? */
bool fs_stale_awaited(const struct fs *fs, const struct node_entry *e);
/* What the thread asked for has ended in another way. */
void fs_stale_over(struct fs *fs, uint32_t tid);
/* e is looked up: if by a thread that is to open it for writing and was told
 * ESTALE, the nodeid that it gets can be opened so. */
void fs_stale_lookup(struct fs *fs, uint32_t tid, struct node_entry *e);
/* Let go of what nobody came back for, or (all) of everything. */
void fs_stale_expire(struct fs *fs, bool all);

/* xattr_ops.c */
void fs_setxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 const char *value, size_t size, int flags);
void fs_getxattr(fuse_req_t req, fuse_ino_t ino, const char *name,
		 size_t size);
void fs_listxattr(fuse_req_t req, fuse_ino_t ino, size_t size);
void fs_removexattr(fuse_req_t req, fuse_ino_t ino, const char *name);

/* mountpoint.c */
/* Make dir ready to be mounted on: a mount that a killed daemon left is taken
 * away, one that is served refused (-EBUSY), a directory made. 0 or -errno,
 * logged with the remedy. */
int fs_mountpoint_prepare(const char *dir);

/* proc.c: nodeids 2 .. FS_PROC_MAX - 1 */
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
