/*
 * The guard of a mount: a child process that aborts the FUSE connection when
 * the daemon is killed.
 *
 * The kernel aborts the connection itself when the last descriptor of /dev/fuse
 * is closed. But the notifier thread uses one, and may be in an uninterruptible
 * wait for a directory's lock, which a SIGKILL does not end. The lock's holder
 * waits for the answer to a request, which no process will give any more: the
 * mount, and every process that uses it, would hang forever. The abort ends
 * that request.
 *
 * Thread: main (PR_SET_PDEATHSIG signals the end of the thread that forked, not
 * of the process).
 */
#ifndef FS_GUARD_H
#define FS_GUARD_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct fs_kept_head;

#define FS_GUARD_WAIT_MS 30000

/* Starts a guard of the mount with this id at this absolute path. kept NULL: it
 * aborts the connection when this daemon is dead. Else it then waits up to
 * FS_GUARD_WAIT_MS for another daemon to adopt the mount with `kept`, and
 * aborts if none has. The guard's pid (> 0), or -errno. */
pid_t fs_guard_start(const char *mountpoint, uint64_t id,
		     const struct fs_kept_head *kept);
/* Kills the guard, before the daemon unmounts or leaves. pid <= 0: no-op. */
void fs_guard_stop(pid_t pid);

/* The topmost mount at path now: 0 or -errno (-ENOENT: path is not the root of
 * a mount). *ret_id identifies the mount. Since Linux 6.8 an id is never
 * reused; older kernels may reuse it once the mount is gone. Sends no request
 * to the filesystem. Async-signal-safe. */
int fs_guard_mount_now(const char *path, uint64_t *ret_id);
/* The device number of the filesystem at path, the same in all mount
 * namespaces; 0: not known. Sends no request to it. */
uint64_t fs_guard_dev(const char *path);
/* Is the mount with this id known to be gone? False on Linux before 6.8.
 * Touches no path: a path walk waits for an automount in progress, and
 * systemd's automount waits for the daemon of the previous mount to end.
 * Async-signal-safe. */
bool fs_guard_gone(uint64_t id);
/* umount2(2) of the mount with this id at path, never of another. 0 or -errno
 * (-ENOENT: it is not the topmost one there). Keeps the mount's root open
 * meanwhile. Async-signal-safe. */
int fs_guard_unmount(const char *path, uint64_t id, int flags);

#endif
