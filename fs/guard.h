/*
 * The guard of a mount: a child process that ends the FUSE connection when the
 * daemon is killed.
 *
 * The kernel would do so by itself when the daemon's last descriptor of
 * /dev/fuse is closed; but a killed process keeps its descriptors until the
 * last of its threads is gone, and the notifier may be waiting in the kernel
 * (where no signal reaches it) for a directory's lock, which a request holds
 * that nobody will answer any more: process, mount and everybody who looks
 * there would hang for ever. Aborting the connection ends that request.
 *
 * Thread: main (the guard is told of the end of the thread that made it).
 */
#ifndef FS_GUARD_H
#define FS_GUARD_H

#include <sys/types.h>

/* Watch over the mount that is at this absolute path now. Its pid (> 0), or
 * -errno. */
pid_t fs_guard_start(const char *mountpoint);
/* No more: before an orderly end. pid <= 0: no-op. */
void fs_guard_stop(pid_t pid);
/* The device number ("0:63") of the mount on top at path, in a text of
 * /proc/self/mountinfo; 0 or -ENOENT. ret: at least 32 bytes. */
int fs_guard_device(const char *mountinfo, const char *path, char *ret);
/* The same, as things are now: 0 or -errno. */
int fs_guard_device_now(const char *path, char *ret);

#endif
