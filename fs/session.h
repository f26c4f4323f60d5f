/*
 * The mount: a FUSE session (libfuse's low-level API) on a node's loop, which
 * shows the node's names as files.
 *
 *   session    mounting, the request loop, INIT, unmounting
 *   mountpoint checks and prepares the directory that is mounted on
 *   passthrough the parts of the kernel's ABI that libfuse 3.14 lacks
 *   inode      nodeids: binding to names, attributes, data mode, backing
 *   notify     invalidations, sent by a thread of their own
 *   name_ops   LOOKUP FORGET GETATTR SETATTR, MKDIR .. RENAME
 *   open       OPEN: which version a nodeid shows; waiting
 *   waiting    the timer that retries OPENs and listings
 *   stale      threads that got ESTALE and will repeat their OPEN
 *   resize     SETATTR of a size
 *   handle     file handles, as OPEN and CREATE make them
 *   may        permission checks where a nodeid switches to another file
 *   ids        owners and modes that the mount's options set
 *   file_ops   CREATE FLUSH RELEASE FSYNC
 *   data_ops   READ WRITE FALLOCATE IOCTL
 *   dir_ops    OPENDIR READDIR READDIRPLUS FSYNCDIR
 *   xattr_ops  the user.* attributes, rules and computed ones
 *   proc       /.kvpool: status files, as in /proc
 *   handover   take-over: passes inodes, handles and queues to a new process
 *   guard      a child process that ends the mount if the daemon is killed
 *   kept, ghost  with a keeper instead of a guard: the next daemon adopts the
 *              mount
 *
 * Data modes, chosen at INIT: passthrough (the kernel reads and writes the
 * object's file itself; no READ or WRITE reaches the daemon) where the kernel
 * and the daemon's privileges allow it, else daemon-served.
 *
 * Thread: loop, except the notifier's own. Handlers answer from local state at
 * once, because the kernel holds the directory's lock during LOOKUP, CREATE,
 * MKDIR, UNLINK and RENAME. Only OPEN, SETATTR of a size, FALLOCATE, WRITE and
 * FSYNCDIR may wait, each with a deadline; of these only FSYNCDIR holds a
 * directory's lock (see notify.c). READDIR and READDIRPLUS are answered in
 * later turns of the loop if there is much to look at (fs_listings_run).
 */
#ifndef FS_SESSION_H
#define FS_SESSION_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/conn/handover.h"
#include "pool/node/node.h"

struct fs;

/*
 * Options of this mount: owners and modes to be shown instead of the stored
 * ones (kvpool(7), PERMISSIONS). Each is FS_AS_STORED or a value.
 */
#define FS_AS_STORED UINT32_MAX
struct fs_ids {
	uint32_t uid, gid; /* of every file and directory, also of new ones */
	uint32_t umask; /* permissions to take away; all others are given */
	uint32_t dmode; /* permissions of directories, 0 to 01777 */
};
#define FS_ALL_AS_STORED \
	{ FS_AS_STORED, FS_AS_STORED, FS_AS_STORED, FS_AS_STORED }

struct fs_opts {
	uv_loop_t *loop;
	struct pool_node *node;
	/* Copied. Made if missing; a stale mount is removed, a live one is an
	 * error. */
	const char *mountpoint;
	/* Shown by df(1) and findmnt(8). Borrowed for the call. */
	const char *source;
	bool passthrough;	 /* if possible */
	bool noexec, noatime;	 /* mount flags */
	struct fs_ids ids;
	struct pool_metrics *metrics; /* borrows */
	/* Content of /.kvpool/status and /.kvpool/nodes: JSON that the caller
	 * owns. */
	json_t *(*status)(void *arg);
	json_t *(*nodes)(void *arg);
	/* The keeper's memfd (fs/kept.h), borrowed; 0: there is no keeper. */
	int kept_fd;
	/* The keeper has a guard: start none here. */
	bool guarded;
	/* For fs_adopt only: the mount's descriptor of /dev/fuse, which
	 * becomes the new struct fs's. */
	int dev_fd;
	/* The mount was removed by another process (umount(8)). Loop thread. */
	void (*gone)(void *arg);
	void *arg;
};

/*
 * Mounts and starts to answer requests. 0 or -errno, logged with the remedy
 * ("/dev/fuse: permission denied - run as root or install fuse3"). After an
 * error the process must end: not everything is freed.
 */
int fs_mount(const struct fs_opts *opts, struct fs **ret_fs);
/*
 * Instead of fs_mount, goes on with the mount of a daemon that was killed,
 * whose keeper gave us opts->dev_fd and kept_fd. Requests are read once the
 * node has a picture of the namespace, or after FS_ADOPT_MS. 0 or -errno,
 * logged.
 */
int fs_adopt(const struct fs_opts *opts, struct fs **ret_fs);
/* The descriptor of /dev/fuse. Borrowed. */
int fs_device(const struct fs *fs);
/* The keeper has ended or gives the mount up: starts a guard in its place. */
void fs_unkept(struct fs *fs);
/*
 * Answers the requests that the kernel has queued, unmounts (lazily, so an open
 * file does not prevent it) and removes the node's callbacks. closed(arg) runs
 * when nothing of the mount is left on the loop. Closing the node ends requests
 * that still wait for it, and these use fs. Order: fs_close, pool_node_close,
 * fs_free.
 */
void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg);
/* Frees the rest, after the node was closed. NULL is a no-op. */
void fs_free(struct fs *fs);
/*
 * ---- take-over: the old process ----
 *
 * fs_pause; when fs_busy and pool_node_busy return NULL: fs_hand_over; then
 * either fs_resume (the new process failed; nothing has changed), or fs_leave
 * and exit without fs_close.
 */

/* Stops reading requests. Those that were read are answered as usual. */
void fs_pause(struct fs *fs);
void fs_resume(struct fs *fs);
/* What is in flight and cannot be handed over, as text for the log; NULL:
 * nothing. It ends by itself: ask again. */
const char *fs_busy(struct fs *fs);
/* With a keeper: if everything that was made or changed through the mount
 * survives this process, records that. Without this record, the next daemon
 * fails an fsync of each changed directory. */
void fs_keep_now(struct fs *fs);
/* Writes nodeids, handles and the /dev/fuse descriptor into h. Errors: h->err.
 */
void fs_hand_over(struct fs *fs, struct pool_handover *h);
/* The new process has the mount: ends this one's guard. */
void fs_leave(struct fs *fs);

/*
 * ---- take-over: the new process ----
 *
 * In this order: fs_take, after the node was taken over and while the old
 * process still has the mount; fs_guarded, which starts our guard; the old
 * process exits; pool_node_begin; fs_begin, which starts to read requests once
 * the node has caught up with the master, at the latest after FS_TAKE_MS.
 */

#define FS_TAKE_MS 1000

/* 0 or -errno, logged. opts: those of the existing mount. */
int fs_take(const struct fs_opts *opts, struct pool_handover *h,
	    struct fs **ret_fs);
void fs_guarded(struct fs *fs);
void fs_begin(struct fs *fs);
/* "passthrough" or "daemon-served". */
const char *fs_data_mode(const struct fs *fs);

#endif
