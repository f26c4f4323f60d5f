/*
 * A queue of work from any thread to one loop's thread.
 *
 * A mail is embedded in its owner, so that posting cannot fail. Its run
 * function is called on the loop, in the order of posting, in a later iteration
 * or by pool_mailbox_drain.
 *
 * Thread: post and wake from any; the rest on the loop's.
 */
#ifndef POOL_BASE_MAILBOX_H
#define POOL_BASE_MAILBOX_H

#include <uv.h>

#include "pool/base/list.h"

struct pool_mail {
	struct pool_list link; /* in box->posted until run */
	void (*run)(struct pool_mail *mail);
};

struct pool_mailbox {
	uv_async_t async;
	uv_mutex_t lock;
	struct pool_list posted;	 /* under lock */
	void (*after)(struct pool_mailbox *box); /* see init */
};

/* after: called each time that the loop has run the posted mails; or NULL. 0 or
 * -errno. */
int pool_mailbox_init(struct pool_mailbox *box, uv_loop_t *loop,
		      void (*after)(struct pool_mailbox *box));
/* mail must not be posted already. */
void pool_mailbox_post(struct pool_mailbox *box, struct pool_mail *mail,
		       void (*run)(struct pool_mail *mail));
/* Make the loop call `after` in a later iteration, even without mail. */
void pool_mailbox_wake(struct pool_mailbox *box);
/* Run the posted mails now. */
void pool_mailbox_drain(struct pool_mailbox *box);
/* No thread may post any more. cb as for uv_close; box must live until then. */
void pool_mailbox_close(struct pool_mailbox *box, uv_close_cb cb);

#endif
