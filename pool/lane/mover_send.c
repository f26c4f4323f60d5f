#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/conn/hello.h"
#include "pool/lane/link.h"
#include "pool/lane/mover_priv.h"

/* A lane that a peer dialled. */
struct adopted {
	struct pool_list link;
	struct pool_mover *mover;
	uint8_t peer_id[POOL_ID_SIZE];
	/* Owns both, until the mover has its mail. */
	int fd;
	struct pool_tls_stream *stream; /* or NULL: plain */
	bool plain; /* the peer allows ending TLS; after HELLO: it has ended */
	struct link_lane lane;
	struct pool_mail mail;
};

static struct adopted *adopted_find(struct pool_mover *m,
				    const uint8_t id[POOL_ID_SIZE],
				    uint32_t number)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->adopted) {
		struct adopted *a = pool_list_entry(it, struct adopted, link);

		if (a->lane.number == number &&
		    memcmp(a->peer_id, id, POOL_ID_SIZE) == 0)
			return a;
	}
	return NULL;
}

static void refuse(struct pool_conn *c, const struct pool_frame *f)
{
	pool_warn_limited("%s: unexpected %s on a bulk connection",
			  pool_conn_peer_name(c), pool_msg_name(f->type));
	pool_count(&((struct adopted *)pool_conn_user(c))
			    ->mover->counters->bad_messages);
	pool_conn_close(c);
}

/* HELLO was read before the adoption. Only LINK and BUFFER may follow; on a
 * plain lane nothing may, because a third party could have written it. */
static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct adopted *a = pool_conn_user(c);

	if (fd >= 0)
		close(fd);
	if (a->plain || !adopted_link_frame(&a->lane, f, payload))
		refuse(c, f);
}

static void *on_bulk_begin(struct pool_conn *c, const struct pool_frame *f,
			   const uint8_t *payload)
{
	(void)payload;
	refuse(c, f);
	return NULL;
}

static void on_close(struct pool_conn *c, int err)
{
	struct adopted *a = pool_conn_user(c);

	(void)err;
	adopted_link_end(&a->lane);
	pool_list_del(&a->link);
	a->mover->nadopted--;
	free(a);
}

static const struct pool_conn_ops adopted_ops = {
	.on_frame = on_frame,
	.on_bulk_begin = on_bulk_begin,
	.on_close = on_close,
};

void mover_adopted_close_all(struct pool_mover *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->adopted)
		pool_conn_close(
			pool_list_entry(it, struct adopted, link)->lane.conn);
}

bool mover_allows_plain(const struct pool_mover *m)
{
	/* Links exchange their tokens and addresses on the lane. */
	return pool_tls_allows_plain(m->tls) && !link_ports_any(m->links);
}

/* A lane that sends bulk is encrypted by the kernel where that is possible. */
static void use_kernel(struct adopted *a)
{
	struct pool_tls *tls = a->mover->tls;
	int err = pool_tls_allows_kernel(tls) ?
			  pool_tls_to_kernel(tls, a->stream) : 0;

	if (err)
		pool_warn_limited("kTLS: %s: OpenSSL encrypts instead",
				  strerror(-err));
}

static void greet(struct adopted *a)
{
	struct pool_mover *m = a->mover;
	int err;

	err = pool_hello_send(a->lane.conn, m->id, a->lane.number, a->plain);
	/* The socket of a new connection has room for HELLO, so nothing is
	 * unsent here. */
	if (!err && a->plain)
		err = pool_conn_end_tls(a->lane.conn);
	if (!err && a->plain)
		pool_tls_ended(m->tls);
	if (a->plain)
		a->lane.ports = NULL; /* no links */
	if (err)
		pool_conn_close(a->lane.conn);
}

static void adopt_run(struct pool_mail *mail)
{
	struct adopted *a = pool_container_of(mail, struct adopted, mail);
	struct pool_mover *m = a->mover;
	struct pool_conn_opts opts = {
		.ops = &adopted_ops,
		.user = a,
		.refused = &m->counters->bad_messages,
		.stream = a->stream,
	};
	struct adopted *before = adopted_find(m, a->peer_id, a->lane.number);

	if (before) /* the peer has redialled, so its old lane is broken */
		pool_conn_close(before->lane.conn);
	if (m->stopping || m->nadopted >= POOL_MOVER_ADOPTED_MAX) {
		pool_count(&m->counters->lanes_refused);
		close(a->fd);
		pool_tls_free(a->stream);
		free(a);
		return;
	}
	a->plain = a->plain && mover_allows_plain(m);
	if (a->stream && !a->plain)
		use_kernel(a);
	if (pool_conn_from_fd(&m->loop, a->fd, &opts, &a->lane.conn)) {
		free(a);
		return;
	}
	a->lane.ports = m->links;
	pool_list_add(&m->adopted, &a->link);
	m->nadopted++;
	greet(a);
}

int pool_mover_adopt(struct pool_mover *m, int fd,
		     struct pool_tls_stream *stream,
		     const uint8_t peer_id[POOL_ID_SIZE], uint32_t number,
		     bool plain)
{
	struct adopted *a = calloc(1, sizeof(*a));

	if (!a) {
		close(fd);
		pool_tls_free(stream);
		return -ENOMEM;
	}
	a->mover = m;
	a->fd = fd;
	a->stream = stream;
	a->plain = plain;
	a->lane.number = number;
	memcpy(a->peer_id, peer_id, POOL_ID_SIZE);
	pool_mailbox_post(&m->box, &a->mail, adopt_run);
	return 0;
}

static void send_run(struct pool_mail *mail)
{
	struct pool_mover_send *s =
		pool_container_of(mail, struct pool_mover_send, mail);
	struct adopted *a = adopted_find(s->mover, s->peer_id, s->lane);

	if (a && (s->buffer || s->pull))
		adopted_link_send(&a->lane, s);
	else
		mover_send_by_tcp(s, a ? a->lane.conn : NULL);
}

void pool_mover_send(struct pool_mover *m, struct pool_mover_send *s)
{
	s->mover = m;
	pool_mailbox_post(&m->box, &s->mail, send_run);
}
