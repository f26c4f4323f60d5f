/*
 * Descriptors that another process keeps for the next daemon, under names:
 *
 *   the service manager   its file descriptor store: FileDescriptorStoreMax=
 *                         in systemd.service(5), FDSTORE=1 in sd_notify(3)
 *   kvpool keep           the same in a container of its own, with the same
 *                         messages (tools/cmd_keep.c)
 *
 * `kvpool keep` gives a descriptor to one daemon at a time: it belongs to the
 * connection that took or put it, until that ends or another one puts it.
 * Others cannot remove it.
 *
 * Both close a descriptor that reports an error, as /dev/fuse does once its
 * mount is gone, and all descriptors if no further daemon takes them.
 *
 * Thread: main.
 */
#ifndef DAEMON_FDSTORE_H
#define DAEMON_FDSTORE_H

#include <stdbool.h>

#define FDSTORE_NAME_MAX 63 /* bytes of a name */
#define FDSTORE_PUT "FDSTORE=1\nFDNAME="
#define FDSTORE_REMOVE "FDSTOREREMOVE=1\nFDNAME="
#define FDSTORE_TAKE "FDTAKE=1\nFDNAME=" /* kvpool keep only; the answer has
					     the descriptor, or none */
#define FDSTORE_BUSY "BUSY=1" /* answer to FDTAKE: another connection has it */

/* Connects to the socket of `kvpool keep`; waits up to wait_ms for it to
 * listen. It is the store from now on, and replaces one that has ended. 0 or
 * -errno; -EPERM: the listener is neither this user's nor root's. */
int daemon_fdstore_connect(const char *path, int wait_ms);
/* Its connection, to learn of its end; -1: there is none. Borrowed, always the
 * same descriptor. */
int daemon_fdstore_socket(void);
/* Is there a store? systemd says so by NOTIFY_SOCKET and FDSTORE; the latter
 * only since version 254, and not to ExecReload, so our unit sets it. */
bool daemon_fdstore_offered(void);
/* The descriptor that an earlier daemon had kept under this name: the caller's,
 * close-on-exec. -ENOENT: there is none; -EBUSY: a daemon that lives has it;
 * other -errno: there may be one. Call it once for each name. */
int daemon_fdstore_take(const char *name);
/* Stores a copy of fd under this name, in place of an earlier one. 0 or -errno.
 * (For a moment the service manager has neither.) */
int daemon_fdstore_put(const char *name, int fd);
/* No-op if nothing is kept under this name. 0 or -errno. */
int daemon_fdstore_remove(const char *name);

#endif
