/*
 * Gets of remote objects by the caller's thread, without the loop (direct.c).
 */
#ifndef POOL_CLIENT_DIRECT_H
#define POOL_CLIENT_DIRECT_H

#include "pool/client/client_priv.h"

#define CLIENT_TRIPS_MAX 8 /* holders per window; the loop asks the rest */

/* A plan: the holders to be asked, one trip for each. Caller's thread. */
struct client_direct {
	struct {
		struct pool_peer_addr to;
	} trip[CLIENT_TRIPS_MAX];
	unsigned int n;
};

/* `lock` held: adds op to the plan if e, which has no local copy, is suited:
 * sets op->trip, or -1. */
void client_direct_plan(struct client_direct *d, struct client_op *op,
			const struct node_entry *e);
/* Executes the plan, blocking, without a lock. Ops that have not ended after it
 * are left to the loop. */
void client_direct_run(struct client_window *w, const struct client_direct *d);

#endif
