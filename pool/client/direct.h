/*
 * Gets by the caller's thread (direct.c).
 */
#ifndef POOL_CLIENT_DIRECT_H
#define POOL_CLIENT_DIRECT_H

#include "pool/client/client_priv.h"

#define CLIENT_TRIPS_MAX 8 /* holders of one window; the loop asks others */

struct client_direct {
	struct {
		struct pool_peer_addr to;
	} trip[CLIENT_TRIPS_MAX];
	unsigned int n;
};

/* lock held. op, not ended, wants e, which is not here: is it to be had so? */
void client_direct_plan(struct client_direct *d, struct client_op *op,
			const struct node_entry *e);
/* What was planned; ops that have not ended then are the loop's. */
void client_direct_run(struct client_window *w, const struct client_direct *d);

#endif
