/* Sends of adopted lanes: by TCP, and how each ends. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/lane/link.h"
#include "pool/lane/mover_priv.h"

static void send_done_home(struct pool_mail *mail)
{
	struct pool_mover_send *s =
		pool_container_of(mail, struct pool_mover_send, mail);

	s->done(s);
}

void mover_sent(struct pool_mover_send *s, int status)
{
	s->status = status;
	if (!status)
		pool_count_add(&s->mover->counters->bytes_out, s->length);
	pool_mailbox_post(s->mover->home, &s->mail, send_done_home);
}

static void on_sent(void *arg, int err)
{
	mover_sent(arg, err);
}

void mover_send_by_tcp(struct pool_mover_send *s, struct pool_conn *c)
{
	int err = -ENOTCONN;

	if (c)
		err = pool_conn_send_file(c, POOL_MSG_DATA, s->req, NULL,
					  s->fd, s->offset, s->length, on_sent,
					  s);
	if (err)
		mover_sent(s, err);
}
