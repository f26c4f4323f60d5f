/*
 * The door of a master that is not the leader: whoever connects is told so, and
 * where the leader is, if that is known (ERROR, -EAGAIN), and sent away.
 *
 * Thread: loop.
 */
#ifndef MASTER_STANDBY_H
#define MASTER_STANDBY_H

#include <uv.h>

#include "pool/base/list.h"
#include "pool/base/metric.h"

#define STANDBY_VISITORS_MAX 1088 /* at once; beyond, sockets are closed */

struct standby {
	uv_loop_t *loop;
	const char *(*leader)(void *arg); /* "HOST:PORT", or "" */
	void *arg;
	struct pool_list visitors;
	unsigned int nvisitors;
	struct pool_counter turned_away;
	void (*closed)(void *arg);
	void *closed_arg;
};

void standby_init(struct standby *s, uv_loop_t *loop,
		  const char *(*leader)(void *arg), void *arg);
/* fd is the standby's from here on. */
void standby_accept(struct standby *s, int fd);
/* Ends all connections; closed(arg) when none is left, at once if none is. */
void standby_fini(struct standby *s, void (*closed)(void *arg), void *arg);

#endif
