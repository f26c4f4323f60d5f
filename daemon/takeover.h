/*
 * One daemon takes the place of another while the mount and open files stay:
 * `kvpoold --takeover`, for a newer program.
 *
 *   new                                  old
 *   connect to NAME/takeover.sock ---->  reads no request of the kernel any
 *                                        more, ends those under way (QUIET_MS)
 *   builds the same state    <---- OFFER + records + descriptors
 *   is ready, guards the mount    TAKEN ---->
 *   serves                   <---- GO    ends at once, as if it had been killed
 *
 * Between OFFER and GO the old one stands still, WAIT_MS at most: what it hands
 * over stays true. Until it says GO nothing of it has changed, and it goes on
 * whatever happens to the new one: an error there, its end, silence. The new one
 * ends (with 1) whatever happens to the old one before GO. After GO the mount
 * is the new one's, and its guard's if that is killed. The kernel keeps
 * requests waiting meanwhile; files open in passthrough are read and written
 * all the time.
 *
 * Thread: loop (old), main before the loop runs (new).
 */
#ifndef DAEMON_TAKEOVER_H
#define DAEMON_TAKEOVER_H

#include <uv.h>

#include "pool/conn/handover.h"

#define DAEMON_TAKEOVER_SOCKET "takeover.sock" /* in the node's run directory */

/* ---- the old one ---- */

struct daemon_takeover;

struct daemon_takeover_ops {
	/* Why not at all, for people, or NULL. */
	const char *(*refuse)(void *arg);
	void (*pause)(void *arg);
	/* Paused: what has yet to end, or NULL. */
	const char *(*busy)(void *arg);
	void (*hand_over)(void *arg, struct pool_handover *h);
	void (*resume)(void *arg);
	/* It has gone: the process ends when this returns. */
	void (*leave)(void *arg);
};

/* Listen in dir, or on fd if that is > 0 (ours also after an error). 0 or
 * -errno, logged. */
int daemon_takeover_open(uv_loop_t *loop, const char *dir, int fd,
			 const struct daemon_takeover_ops *ops, void *arg,
			 struct daemon_takeover **ret_takeover);
/* Nothing is called any more. NULL: no-op. */
void daemon_takeover_close(struct daemon_takeover *t);

/* ---- the new one ---- */

struct daemon_taken {
	int fd;
	struct pool_handover h;
};

/* 0 or -errno, logged with the other's reason. */
int daemon_takeover_ask(const char *dir, struct daemon_taken *t);
/* 0: the other one has gone. -errno, logged: it goes on, or is dead. */
int daemon_takeover_commit(struct daemon_taken *t);

#endif
