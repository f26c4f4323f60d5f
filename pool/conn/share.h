/*
 * What several users of one loop may do together in one turn of it, so that a
 * thousand of them who all have something to do do not make one long turn of
 * it. Whoever comes when the turn's share is used up waits, and is called in a
 * later turn before newcomers, in the order of coming: nobody starves.
 *
 * Thread: the loop's. It does not keep the loop awake: who waits must have a
 * reason to be called again (a socket that is still readable).
 */
#ifndef POOL_CONN_SHARE_H
#define POOL_CONN_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "pool/base/list.h"

struct pool_share {
	size_t turn; /* units a turn, 1 or more */
	size_t left; /* of this one */
	struct pool_list waiting;
	uv_prepare_t next;
};

struct pool_share_user {
	struct pool_list link; /* self-linked: not waiting */
	void (*go)(struct pool_share_user *u);
};

void pool_share_open(struct pool_share *s, uv_loop_t *loop, size_t turn);
/* Nobody waits any more. cb(the handle, s->next) from a later turn. */
void pool_share_close(struct pool_share *s, uv_close_cb cb);

void pool_share_user_init(struct pool_share_user *u,
			  void (*go)(struct pool_share_user *u));
/* May u do something now? false: it waits (if it did not already), and go is
 * called when it may. */
bool pool_share_take(struct pool_share *s, struct pool_share_user *u);
/* Somebody has done so much. More than is left is no mistake: whoever comes
 * next waits. */
void pool_share_spend(struct pool_share *s, size_t units);
/* u does not wait any more. */
void pool_share_leave(struct pool_share_user *u);

#endif
