/*
 * One daemon a name: while one runs it holds RUN_DIR/NAME/lock (flock), and the
 * file says who it is, where it mounted, and whether it is ending. So that a
 * start right after umount(8), which waits for nobody, waits for the daemon that
 * still publishes what is pending, instead of finding its ports and its store in
 * use.
 *
 * Thread: main. One a process; the lock is held until the process ends.
 */
#ifndef DAEMON_NAME_LOCK_H
#define DAEMON_NAME_LOCK_H

#include <uv.h>

#define DAEMON_NAME_LOCK_FILE "lock" /* in the node's run directory */

/*
 * Take the lock in dir. One that is ending, or whose mount is gone, is waited
 * for (END_WAIT_MS; said in the log); one that serves is an error after a
 * moment, in which it may yet hear of its SIGTERM. 0 or -errno, logged with
 * the remedy.
 */
int daemon_name_lock(const char *dir, const char *name);
/*
 * The same, of a daemon that has handed over to this one, which serves with a
 * mount at `mount` (as below), and ends just now: or once the kernel has done
 * what it was asked for, which may need an answer of this one first. So nothing
 * waits for it, the loop tries again; meanwhile all goes on. dir and mount are
 * borrowed until the process ends.
 */
void daemon_name_lock_taken(uv_loop_t *loop, const char *dir,
			    const char *mount);
/* This one serves, with a mount at the absolute path mount (NULL: without). */
void daemon_name_lock_serving(const char *mount);
/* This one is ending. */
void daemon_name_lock_ending(void);

#endif
