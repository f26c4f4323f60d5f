#include "master/standby.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

#define VISIT_MS 2000

struct visitor {
	struct pool_list link;
	struct standby *s;
	struct pool_conn *conn; /* owns until on_close */
	bool answered;
};

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct visitor *v = pool_conn_user(c);
	const char *leader = v->s->leader(v->s->arg);
	Kvpool__Error msg = KVPOOL__ERROR__INIT;
	char text[384];

	(void)f;
	(void)payload;
	if (fd >= 0)
		close(fd);
	if (v->answered)
		return;
	v->answered = true;
	if (leader[0])
		snprintf(text, sizeof(text), "a standby; the leader is at %s",
			 leader);
	else
		snprintf(text, sizeof(text), "a standby; no leader is known");
	msg.status = -EAGAIN;
	msg.text = text;
	msg.leader = (char *)(uintptr_t)leader;
	pool_count(&v->s->turned_away);
	pool_conn_send(c, POOL_MSG_ERROR, 0, &msg.base);
	pool_conn_drain_close(c, VISIT_MS);
}

static void *on_bulk_begin(struct pool_conn *c, const struct pool_frame *f,
			   const uint8_t *payload)
{
	(void)f;
	(void)payload;
	pool_conn_close(c);
	return NULL;
}

static void on_close(struct pool_conn *c, int err)
{
	struct visitor *v = pool_conn_user(c);
	struct standby *s = v->s;

	(void)err;
	pool_list_del(&v->link);
	free(v);
	if (!--s->nvisitors && s->closed)
		s->closed(s->closed_arg);
}

static const struct pool_conn_ops conn_ops = {
	.on_frame = on_frame,
	.on_bulk_begin = on_bulk_begin,
	.on_close = on_close,
};

void standby_init(struct standby *s, uv_loop_t *loop,
		  struct pool_tls *tls, const char *(*leader)(void *arg),
		  void *arg)
{
	s->loop = loop;
	s->tls = tls;
	s->leader = leader;
	s->arg = arg;
	pool_list_init(&s->visitors);
}

void standby_accept(struct standby *s, int fd)
{
	struct pool_conn_opts opts = { .ops = &conn_ops,
				       .idle_timeout_ms = VISIT_MS,
				       .first = POOL_MSG_JOIN,
				       .tls = s->tls,
				       .tls_roles = POOL_ROLES_USERS };
	struct visitor *v = s->nvisitors < STANDBY_VISITORS_MAX ?
				    calloc(1, sizeof(*v)) : NULL;

	if (!v) {
		close(fd);
		return;
	}
	v->s = s;
	opts.user = v;
	if (pool_conn_from_fd(s->loop, fd, &opts, &v->conn)) {
		free(v);
		return;
	}
	pool_list_add_tail(&s->visitors, &v->link);
	s->nvisitors++;
}

void standby_fini(struct standby *s, void (*closed)(void *arg), void *arg)
{
	struct pool_list *it, *tmp;

	if (!s->nvisitors)
		return closed(arg);
	s->closed = closed;
	s->closed_arg = arg;
	pool_list_each(it, tmp, &s->visitors)
		pool_conn_close(
			pool_list_entry(it, struct visitor, link)->conn);
}
