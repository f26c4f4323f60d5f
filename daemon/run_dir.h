/*
 * Names of daemons, and the directory for what lives while the machine runs:
 *
 *   RUN_DIR/NAME/   a node's: its socket, its store, an embedded master's state
 *   RUN_DIR/....pid of a mount (daemon/daemonize.h)
 *   RUN_DIR/admin-....sock of an admin address (daemon/admin_socket.h)
 *
 * RUN_DIR is /run/kvpool for root. For others it is $XDG_RUNTIME_DIR/kvpool or,
 * without one, /tmp/kvpool-UID.
 *
 * Thread: main.
 */
#ifndef DAEMON_RUN_DIR_H
#define DAEMON_RUN_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define DAEMON_NAME_MAX 80 /* paths of sockets have 107 bytes */
#define DAEMON_NAME_ACCEPTED                                        \
	"1 to 80 of the characters A-Z a-z 0-9 . _ -, the first of " \
	"which is no dot"

/* A name is a file's: it must not lead elsewhere. */
bool daemon_name_valid(const char *name);
/* "HOST-PORT", with _ for what a name cannot have. buf holds
 * DAEMON_NAME_MAX + 1 bytes. */
void daemon_name_default(const char *host, uint16_t port, char *buf);

/* Where RUN_DIR is for this user if it is not said: 0 or -ENAMETOOLONG. */
int daemon_run_dir_default(char *buf, size_t cap);
/* Make RUN_DIR alone; as daemon_run_dir_make. */
int daemon_run_dir_ensure(const char *run_dir);
/*
 * Make RUN_DIR (if missing; its parent must be there) and the directory NAME in
 * it, mode 0700. Refused (-EPERM) is what others may write to or put something
 * else in place of. 0 and the path of the latter in buf, or -errno, logged with
 * the remedy.
 */
int daemon_run_dir_make(const char *run_dir, const char *name, char *buf,
			size_t cap);

#endif
