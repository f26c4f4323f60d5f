/*
 * Links of adopted lanes (the holder): the lists of ranges and of early
 * BUFFERs, and how a send ends.
 */
#include <errno.h>
#include <stdlib.h>

#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

struct adopted_link *adopted_link_of(struct link_lane *a)
{
	struct adopted_link *k = a->link;

	if (k || !a->ports)
		return k;
	k = calloc(1, sizeof(*k));
	if (!k)
		return NULL;
	k->lane = a;
	for (int kind = 0; kind < LINK_KINDS; kind++)
		k->halves[kind] = (struct adopted_half){ .k = k,
						 .kind = (enum link_kind)kind };
	pool_list_init(&k->early);
	pool_list_init(&k->waiting);
	pool_list_init(&k->sending);
	a->link = k;
	return k;
}

void adopted_link_tidy(struct adopted_link *k)
{
	if (!k->lane && pool_list_empty(&k->sending))
		free(k);
}

struct link_send *link_send_find(struct pool_list *list, uint64_t req)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, list) {
		struct link_send *ls =
			pool_list_entry(it, struct link_send, link);

		if (ls->s->req == req)
			return ls;
	}
	return NULL;
}

struct link_early *link_early_find(struct adopted_link *k, uint64_t req)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &k->early) {
		struct link_early *e =
			pool_list_entry(it, struct link_early, link);

		if (e->req == req)
			return e;
	}
	return NULL;
}

void link_early_free(struct adopted_link *k, struct link_early *e)
{
	pool_list_del(&e->link);
	k->early_count--;
	free(e);
}

/* For some the GET never comes (it was refused, or the range was sent over
 * TCP): beyond LINK_BUFFERS_MAX the oldest is dropped. */
static struct link_early *early_new(struct adopted_link *k, uint64_t req)
{
	struct link_early *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	if (k->early_count == LINK_BUFFERS_MAX)
		link_early_free(k, pool_list_first(&k->early, struct link_early,
						   link));
	e->req = req;
	pool_list_add_tail(&k->early, &e->link);
	k->early_count++;
	return e;
}

bool link_early_add(struct adopted_link *k, const struct link_buffer *b)
{
	struct link_early *e = link_early_find(k, b->req);

	if (b->at == 0 && e)
		return false; /* a duplicate */
	if (b->at > 0 && !e)
		return true; /* its range has ended */
	if (!e)
		e = early_new(k, b->req);
	if (!e)
		return false;
	if (b->length == 0)
		e->by_tcp = true;
	return e->by_tcp || link_remote_add(&e->to, b, POOL_BULK_MAX);
}

struct cancel_ack {
	struct verbs_work work;
	struct link_note text;
};

static void cancel_ack_done(struct verbs_work *w, int status)
{
	(void)status;
	free(pool_container_of(w, struct cancel_ack, work));
}

void link_ack_cancel(struct adopted_link *k, uint64_t req)
{
	struct adopted_half *h = &k->halves[LINK_PUSH];
	struct cancel_ack *g = h->up ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return;
	g->text = (struct link_note){ .req = req, .status = -ECANCELED };
	g->work = (struct verbs_work){ .op = VERBS_SEND,
				       .addr = &g->text,
				       .length = sizeof(g->text),
				       .done = cancel_ack_done };
	if (link_post(h->link, &g->work))
		free(g);
}

static void send_free(struct link_send *ls)
{
	struct adopted_link *k = ls->k;

	pool_list_del(&ls->link);
	pool_list_del(&ls->tick.link);
	free(ls);
	adopted_link_tidy(k);
}

void link_send_by_tcp(struct link_send *ls)
{
	struct link_lane *a = ls->k->lane;

	mover_send_by_tcp(ls->s, a ? a->conn : NULL);
	send_free(ls);
}

void link_send_finish(struct link_send *ls, int status)
{
	mover_sent(ls->s, status);
	send_free(ls);
}

/* The link may have been closed since; the port still exists. */
void link_send_count(struct link_send *ls, enum link_kind kind)
{
	ls->k->halves[kind].failures = 0;
	pool_count_add(&ls->port->sent, ls->s->length);
	pool_count_add(&ls->s->mover->counters->rdma_out, ls->s->length);
}

void adopted_link_abort(struct adopted_link *k)
{
	struct pool_list *it, *tmp;

	while (!pool_list_empty(&k->early))
		link_early_free(k, pool_list_first(&k->early, struct link_early,
						   link));
	while (!pool_list_empty(&k->waiting))
		link_send_finish(pool_list_first(&k->waiting, struct link_send,
						 link), -ECONNRESET);
	pool_list_each(it, tmp, &k->sending) {
		struct link_send *ls =
			pool_list_entry(it, struct link_send, link);

		ls->status = ls->status ? ls->status : -ENOTCONN;
		if (!ls->mapped)
			link_write_resume(ls);
	}
}
