/*
 * One daemon per name: a running daemon holds RUN_DIR/NAME/lock (flock). The
 * file contains its pid, its mount, and whether it is ending. umount(8) returns
 * while the daemon still publishes pending files. The lock makes the next
 * daemon wait until the old one has ended, instead of failing because ports and
 * store are in use.
 *
 * Thread: main. One lock per process, held until the process ends.
 */
#ifndef DAEMON_NAME_LOCK_H
#define DAEMON_NAME_LOCK_H

#include <uv.h>

#define DAEMON_NAME_LOCK_FILE "lock" /* in the node's run directory */

/*
 * Takes the lock in dir. If its holder is ending, or its mount is gone, waits
 * for it (END_WAIT_MS; logged). A holder that serves is an error after
 * SERVE_WAIT_MS, in which it may still receive its SIGTERM. 0 or -errno, logged
 * with the remedy.
 */
int daemon_name_lock(const char *dir, const char *name);
/*
 * Takes over the lock of a daemon that has handed over to this one, which
 * serves with a mount at `mount` (as below). The old daemon is ending; but it
 * may be blocked in the kernel until this daemon answers a request. So this
 * does not block: the loop retries until the lock is free. dir and mount are
 * borrowed until the process ends.
 */
void daemon_name_lock_taken(uv_loop_t *loop, const char *dir,
			    const char *mount);
/* Records that this daemon serves, with a mount at this absolute path (NULL: no
 * mount). */
void daemon_name_lock_serving(const char *mount);
/* Records that this daemon is ending. */
void daemon_name_lock_ending(void);

#endif
