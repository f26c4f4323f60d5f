/*
 * The mount: a FUSE session (libfuse's low-level API) on a node's loop, that
 * shows the node's names as files.
 *
 *   session    mounting, the request loop, INIT, unmounting
 *   mountpoint what is there before
 *   passthrough the kernel's ABI that libfuse 3.14 has no calls for
 *   inode      what the kernel knows by a nodeid; data mode and backing
 *   notify     invalidations, from a thread of their own
 *   name_ops   LOOKUP FORGET GETATTR SETATTR, MKDIR .. RENAME
 *   open       OPEN (resize: SETATTR of a size; handle: what both answer)
 *   file_ops   CREATE FLUSH RELEASE FSYNC
 *   data_ops   READ WRITE FALLOCATE IOCTL
 *   dir_ops    OPENDIR READDIR READDIRPLUS FSYNCDIR
 *   xattr_ops  the user.* attributes, rules and computed ones
 *   proc       /.kvpool: status files in the manner of /proc
 *   handover   all of that for another process, and from one
 *
 * Data modes, chosen at INIT: passthrough (the kernel reads and writes the
 * object's file itself; no READ or WRITE reaches us) where the kernel and our
 * privileges allow it, else daemon-served.
 *
 * Thread: loop, but for the notifier. A handler answers from local state at
 * once; only OPEN, SETATTR of a size, FALLOCATE, WRITE and FSYNCDIR may wait
 * (each with a deadline), because no other request leaves a directory locked
 * in the kernel meanwhile.
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

struct fs_opts {
	uv_loop_t *loop;
	struct pool_node *node;
	const char *mountpoint;	 /* made if missing; a stale mount is removed, a
				  * live one refused */
	/* shown by df(1) and findmnt(8); for fs_open */
	const char *source;
	bool passthrough;	 /* if possible */
	bool noexec, noatime;	 /* flags of the mount */
	struct pool_metrics *metrics;
	/* Text of /.kvpool/status and nodes. */
	json_t *(*status)(void *arg);
	json_t *(*nodes)(void *arg);
	/* The mount is gone (umount(8) by somebody). Loop thread. */
	void (*gone)(void *arg);
	void *arg;
};

/*
 * Mount and start answering. 0 or -errno, logged with the remedy
 * ("/dev/fuse: permission denied - run as root or install fuse3").
 */
int fs_open(const struct fs_opts *opts, struct fs **ret_fs);
/*
 * Answer what has been asked, unmount (lazily if it is busy), tell the node
 * that nobody looks any more; closed(arg) when nothing is left on the loop.
 * What still waits for the node is answered when the node is closed: so
 * fs_close, pool_node_close, fs_free, in this order.
 */
void fs_close(struct fs *fs, void (*closed)(void *arg), void *arg);
/* The node is closed: free the rest. NULL is allowed. */
void fs_free(struct fs *fs);
/*
 * ---- handing over ----
 *
 * fs_pause; when fs_busy and pool_node_busy say NULL: fs_hand_over; then either
 * fs_resume (the other failed: nothing has happened) or fs_leave and the end of
 * the process, without fs_close.
 */

/* No request is read any more; those that were are answered as ever. */
void fs_pause(struct fs *fs);
void fs_resume(struct fs *fs);
/* What has not ended, for people, or NULL. It ends by itself. */
const char *fs_busy(struct fs *fs);
/* What the kernel knows, and the device. Errors are h's. */
void fs_hand_over(struct fs *fs, struct pool_handover *h);
/* The mount is another process's. */
void fs_leave(struct fs *fs);

/*
 * ---- taking over ----
 *
 * fs_take (the node has been taken over, the other still holds the mount);
 * fs_guarded (it is watched over for us from now on), the other leaves;
 * pool_node_begin; fs_begin.
 */

/* 0 or -errno, logged. opts as of the mount. */
int fs_take(const struct fs_opts *opts, struct pool_handover *h,
	    struct fs **ret_fs);
void fs_guarded(struct fs *fs);
void fs_begin(struct fs *fs);
/* "passthrough" or "daemon-served". */
const char *fs_data_mode(const struct fs *fs);

#endif
