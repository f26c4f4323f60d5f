/*
 * Connections to a master that is not the leader: each is answered with an
 * ERROR (-EAGAIN) that names the leader, if it is known, and closed.
 *
 * Thread: loop.
 */
#ifndef MASTER_STANDBY_H
#define MASTER_STANDBY_H

#include <uv.h>

#include "pool/base/list.h"
#include "pool/base/metric.h"

#define STANDBY_VISITORS_MAX 1088 /* connections; more are closed at once */

struct standby {
	uv_loop_t *loop;
	const char *(*leader)(void *arg); /* "HOST:PORT", or "" */
	struct pool_tls *tls; /* borrows; NULL: plain */
	void *arg;
	struct pool_list visitors;
	unsigned int nvisitors;
	struct pool_counter turned_away; /* ERRORs sent */
	void (*closed)(void *arg);
	void *closed_arg;
};

void standby_init(struct standby *s, uv_loop_t *loop,
		  struct pool_tls *tls, const char *(*leader)(void *arg),
		  void *arg);
/* Takes ownership of fd. */
void standby_accept(struct standby *s, int fd);
/* Closes all connections, then calls closed(arg): inside this call if there are
 * none. */
void standby_fini(struct standby *s, void (*closed)(void *arg), void *arg);

#endif
