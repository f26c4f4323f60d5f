/*
 * Descriptors that somebody else keeps for the next daemon, under names: the
 * service manager, in its file descriptor store (see FileDescriptorStoreMax= in
 * systemd.service(5), FDSTORE=1 in sd_notify(3)).
 *
 * It closes them when the service has ended for good, and by itself when one
 * reports an error, as /dev/fuse does after its mount has gone.
 *
 * Thread: main.
 */
#ifndef DAEMON_FDSTORE_H
#define DAEMON_FDSTORE_H

#include <stdbool.h>

/* Does the service manager keep descriptors for this process? (NOTIFY_SOCKET
 * and FDSTORE say so; systemd sets the latter since version 254.) */
bool daemon_fdstore_offered(void);
/* The one kept under this name since an earlier daemon: becomes the caller's,
 * close-on-exec; -1: there is none. Once for each name. */
int daemon_fdstore_take(const char *name);
/* Has a copy of fd kept, in place of what was kept under this name. 0 or
 * -errno. */
int daemon_fdstore_put(const char *name, int fd);
/* No-op if nothing is kept under this name. 0 or -errno. */
int daemon_fdstore_remove(const char *name);

#endif
