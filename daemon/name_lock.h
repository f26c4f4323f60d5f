/*
 * One daemon per name: a running daemon holds RUN_DIR/NAME/lock (flock). The
 * file contains the daemon's pid, its mount, and whether it is ending. When
 * umount(8) returns, the daemon may still be publishing pending files. Then the
 * lock makes the next daemon wait until the old one has ended, instead of
 * failing because ports and store are in use.
 *
 * Thread: main. One lock per process, held until the process ends.
 */
#ifndef DAEMON_NAME_LOCK_H
#define DAEMON_NAME_LOCK_H

#include <uv.h>

#define DAEMON_NAME_LOCK_FILE "lock" /* in the node's run directory */

/*
 * Takes the lock in dir. If another daemon holds it, waits: up to END_WAIT_MS
 * (logged) if that daemon is ending or its mount is gone; else only up to
 * SERVE_WAIT_MS, in case it is about to receive a SIGTERM. 0 or -errno, logged
 * with the remedy.
 */
int daemon_name_lock(const char *dir, const char *name);
/*
 * After a take-over: takes the lock from the old daemon, and records that this
 * one serves, with a mount at `mount` (as below). The old daemon is ending; but
 * it may be blocked in the kernel until this daemon answers a request. So this
 * function does not block: the loop retries until the lock is free. dir and
 * mount are borrowed until the process ends.
 */
void daemon_name_lock_taken(uv_loop_t *loop, const char *dir,
			    const char *mount);
/* Records that this daemon serves, with a mount at this absolute path (NULL: no
 * mount). */
void daemon_name_lock_serving(const char *mount);
/* Records that this daemon is ending. */
void daemon_name_lock_ending(void);

#endif
