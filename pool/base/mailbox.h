/*
 * A queue of work from any thread to the thread of one loop.
 *
 * Mail is embedded in what it is about, so that posting cannot fail; its run
 * function is called on the loop, in the order of posting, from a later turn
 * (or from pool_mailbox_drain).
 *
 * Thread: post from any; the rest on the loop's.
 */
#ifndef POOL_BASE_MAILBOX_H
#define POOL_BASE_MAILBOX_H

#include <uv.h>

#include "pool/base/list.h"

struct pool_mail {
	struct pool_list link; /* in the box, while posted */
	void (*run)(struct pool_mail *mail);
};

struct pool_mailbox {
	uv_async_t async;
	uv_mutex_t lock;
	struct pool_list posted;	 /* under lock */
	void (*after)(struct pool_mailbox *box); /* when a batch has run */
};

/* after: NULL or called after each batch that the loop ran. 0 or -errno. */
int pool_mailbox_init(struct pool_mailbox *box, uv_loop_t *loop,
		      void (*after)(struct pool_mailbox *box));
/* Not posted already. */
void pool_mailbox_post(struct pool_mailbox *box, struct pool_mail *mail,
		       void (*run)(struct pool_mail *mail));
/* Have `after` run from a later turn, mail or not. */
void pool_mailbox_wake(struct pool_mailbox *box);
/* Runs what has been posted, now. */
void pool_mailbox_drain(struct pool_mailbox *box);
/* Nobody posts any more. cb as uv_close; the box must live until then. */
void pool_mailbox_close(struct pool_mailbox *box, uv_close_cb cb);

#endif
