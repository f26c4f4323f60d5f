/*
 * Names of daemons, and the directory for run-time files (gone after a reboot):
 *
 *   RUN_DIR/NAME/         a node's: its sockets, its store, the state of an
 *                         embedded master
 *   RUN_DIR/PATH.pid      of a mount (daemon/daemonize.h)
 *   RUN_DIR/admin-X.sock  of an admin address (daemon/admin_socket.h)
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

/* Names become file names: they must not be paths. */
bool daemon_name_valid(const char *name);
/* Writes "HOST-PORT", with _ for characters that a name cannot have, to buf
 * (DAEMON_NAME_MAX + 1 bytes). */
void daemon_name_default(const char *host, uint16_t port, char *buf);

/* Writes this user's default RUN_DIR to buf: 0 or -ENAMETOOLONG. */
int daemon_run_dir_default(char *buf, size_t cap);
/* Creates RUN_DIR only, like daemon_run_dir_make. */
int daemon_run_dir_ensure(const char *run_dir);
/*
 * Creates RUN_DIR (if missing; its parent must exist) and the directory NAME in
 * it with mode 0700. Fails with -EPERM if other users may write to a directory
 * or replace it. 0, and the path of NAME in buf; or -errno, logged with the
 * remedy.
 */
int daemon_run_dir_make(const char *run_dir, const char *name, char *buf,
			size_t cap);

#endif
