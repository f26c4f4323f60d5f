#include "pool/base/mailbox.h"

static void on_async(uv_async_t *a)
{
	struct pool_mailbox *box =
		pool_container_of(a, struct pool_mailbox, async);

	pool_mailbox_drain(box);
	if (box->after)
		box->after(box);
}

int pool_mailbox_init(struct pool_mailbox *box, uv_loop_t *loop,
		      void (*after)(struct pool_mailbox *box))
{
	int err = uv_mutex_init(&box->lock);

	if (err)
		return err;
	pool_list_init(&box->posted);
	box->after = after;
	err = uv_async_init(loop, &box->async, on_async);
	if (err)
		uv_mutex_destroy(&box->lock);
	return err;
}

void pool_mailbox_post(struct pool_mailbox *box, struct pool_mail *mail,
		       void (*run)(struct pool_mail *mail))
{
	mail->run = run;
	uv_mutex_lock(&box->lock);
	pool_list_add_tail(&box->posted, &mail->link);
	uv_mutex_unlock(&box->lock);
	uv_async_send(&box->async);
}

void pool_mailbox_wake(struct pool_mailbox *box)
{
	uv_async_send(&box->async);
}

/* One mail at a time, so that a drain from inside run() keeps the order. */
static struct pool_mail *take(struct pool_mailbox *box)
{
	struct pool_mail *mail = NULL;

	uv_mutex_lock(&box->lock);
	if (!pool_list_empty(&box->posted)) {
		mail = pool_list_first(&box->posted, struct pool_mail, link);
		pool_list_del(&mail->link);
	}
	uv_mutex_unlock(&box->lock);
	return mail;
}

void pool_mailbox_drain(struct pool_mailbox *box)
{
	struct pool_mail *mail;

	while ((mail = take(box)))
		mail->run(mail);
}

void pool_mailbox_close(struct pool_mailbox *box, uv_close_cb cb)
{
	uv_close((uv_handle_t *)&box->async, cb);
	uv_mutex_destroy(&box->lock);
}
