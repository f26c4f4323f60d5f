/*
 * A budget of work per loop iteration, shared by several users of the loop
 * (connections), so that a thousand busy connections do not make one iteration
 * long. A user that finds the budget spent waits. Waiting users are called at
 * the start of the next iterations, before new ones and in order of arrival, so
 * that none starves.
 *
 * Thread: the loop's. A share does not keep the loop alive or awake: a waiting
 * user must have an event pending (a socket that is still readable).
 *
 * The share's prepare handle is active only while there are units to renew or
 * users waiting: a loop of libkvpool does not sleep while a prepare handle is
 * active (pool/client/client.c).
 */
#ifndef POOL_CONN_SHARE_H
#define POOL_CONN_SHARE_H

#include <stdbool.h>
#include <stddef.h>
#include <uv.h>

#include "pool/base/list.h"

struct pool_share {
	size_t turn; /* units per loop iteration, >= 1 */
	size_t left; /* units left in this one */
	struct pool_list waiting;
	uv_prepare_t next;
};

struct pool_share_user {
	struct pool_list link; /* in waiting; self-linked: not waiting */
	void (*go)(struct pool_share_user *u);
};

void pool_share_open(struct pool_share *s, uv_loop_t *loop, size_t turn);
/* Forgets waiting users. cb gets the handle s->next, in a later iteration. */
void pool_share_close(struct pool_share *s, uv_close_cb cb);

void pool_share_user_init(struct pool_share_user *u,
			  void (*go)(struct pool_share_user *u));
/* True: u may work now. False: u waits, and go(u) is called when it may. */
bool pool_share_take(struct pool_share *s, struct pool_share_user *u);
/* Deduct work done. It may exceed what is left; users after that wait. */
void pool_share_spend(struct pool_share *s, size_t units);
/* Stop waiting; no-op if u does not wait. */
void pool_share_leave(struct pool_share_user *u);

#endif
