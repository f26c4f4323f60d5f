/*
 * A new daemon replaces a running one while the mount and open files stay:
 * `kvpoold --takeover`, for upgrades.
 *
 *   new                                  old
 *   connect to NAME/takeover.sock ---->  quiesces: stops reading requests from
 *                                        the kernel, completes those in flight
 *                                        (QUIET_MS)
 *   builds the same state    <---- OFFER + records + descriptors
 *   is ready, guards the mount    TAKEN ---->
 *   serves                   <---- GO    exits at once, as if killed
 *
 * Between OFFER and GO the old daemon is paused, WAIT_MS at most, so that the
 * state in OFFER stays valid. Until it sends GO it has given up nothing: if the
 * new daemon fails, exits or is silent, the old one continues. If the old one
 * fails before GO, the new one exits with 1. After GO the mount belongs to the
 * new daemon; if that is killed, its guard ends the mount. During a take-over
 * the kernel queues requests; files open in passthrough can be read and written
 * all the time.
 *
 * Thread: loop (old), main before the loop runs (new).
 */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include <sys/types.h>
#include <uv.h>

#include "pool/conn/handover.h"

#define DAEMON_TAKEOVER_SOCKET "takeover.sock" /* in the node's run directory */

/* ---- the old daemon ---- */

struct daemon_takeover;

struct daemon_takeover_ops {
	/* NULL, or why this daemon cannot be taken over; shown to users. */
	const char *(*refuse)(void *arg);
	/* Stops reading requests. */
	void (*pause)(void *arg);
	/* While paused: NULL, or what is still in flight. */
	const char *(*busy)(void *arg);
	/* Adds the state to h. */
	void (*hand_over)(void *arg, struct pool_handover *h);
	/* The take-over failed: continue serving. */
	void (*resume)(void *arg);
	/* The process that stands for the service: this one, or its keeper. */
	pid_t (*main_pid)(void *arg);
	/* After GO: the process exits when this returns. */
	void (*leave)(void *arg);
	/* Last, before _exit(0); NULL: nothing. */
	void (*end)(void *arg);
};

/* Listens in dir, or on fd if that is > 0 (taken over, also on an error). ops,
 * arg and loop are borrowed. 0 or -errno, logged. */
int daemon_takeover_open(uv_loop_t *loop, const char *dir, int fd,
			 const struct daemon_takeover_ops *ops, void *arg,
			 struct daemon_takeover **ret_takeover);
/* Closes it; ops are not called any more. NULL: no-op. */
void daemon_takeover_close(struct daemon_takeover *t);

/* ---- the new daemon ---- */

struct daemon_taken {
	int fd; /* connection to the old daemon; owns; -1: closed */
	struct pool_handover h; /* its state */
};

/* Connects to the old daemon of dir and receives its state. Blocks. 0, or
 * -errno, logged with the old daemon's reason. */
int daemon_takeover_ask(const char *dir, struct daemon_taken *t);
/* Sends TAKEN and waits for GO. main_pid: the process that stands for the
 * service from then on (this one, or its keeper); the old daemon tells systemd.
 * 0: the old daemon is gone. -errno, logged: it continues, or was killed. */
int daemon_takeover_commit(struct daemon_taken *t, pid_t main_pid);

#endif
