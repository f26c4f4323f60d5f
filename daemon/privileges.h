/*
 * The capabilities of a daemon: it keeps those that it will need and gives up
 * all others; no_new_privs prevents it from gaining them again.
 *
 * This happens before anything is opened, for two reasons. Capabilities belong
 * to a thread, so later only the main thread would give them up. And the daemon
 * opens some files again while it runs (log, certificates, state). If one of
 * these can be opened only with a capability that was given up, the daemon thus
 * fails at its start, and not later.
 *
 * Thread: main, before there are others; text and json: any, after keep.
 */
#ifndef DAEMON_PRIVILEGES_H
#define DAEMON_PRIVILEGES_H

#include <jansson.h>
#include <stdbool.h>

struct daemon_needs {
	bool mounts;   /* mounting, backing files, attributes trusted.* */
	bool helper;   /* run setuid fusermount3, if it may not mount itself */
	bool rdma;     /* memory beyond RLIMIT_MEMLOCK */
	bool priority; /* a nice value down to -10 */
	bool low_port; /* listens on a port below 1024 */
	bool again;    /* also for the program that it executes in its place
			  (keeper.h) */
};

/* Keeps the needed capabilities that this process has; a missing one is no
 * error here. 0 or -errno, logged: nothing is known then, and the program must
 * end. */
int daemon_privileges_keep(const struct daemon_needs *needs);

/* "user 0, capabilities sys_admin, no others can be gained". Constant; ""
 * before keep. */
const char *daemon_privileges_text(void);
/* {"user": 0, "capabilities": ["sys_admin"], "no_new_privileges": true}. A new
 * reference; NULL: no memory. */
json_t *daemon_privileges_json(void);

#endif
