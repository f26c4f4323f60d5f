/* The adopted side of links: ranges that were asked for, and BUFFERs that tell
 * how they go. */
#include <errno.h>
#include <stdlib.h>

#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* What was told before the GET came. */
struct early {
	struct pool_list link;
	uint64_t req;
	struct link_reach to;
	bool nowhere; /* (any more): over TCP */
};

/* ---- small things ---- */

void adopted_link_tidy(struct adopted_link *k)
{
	if (!k->lane && pool_list_empty(&k->sending))
		free(k);
}

static struct link_send *send_find(struct pool_list *list, uint64_t req)
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

static struct early *early_find(struct adopted_link *k, uint64_t req)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &k->early) {
		struct early *e = pool_list_entry(it, struct early, link);

		if (e->req == req)
			return e;
	}
	return NULL;
}

static void early_free(struct adopted_link *k, struct early *e)
{
	pool_list_del(&e->link);
	k->nearly--;
	free(e);
}

/* Some never get their GET (it was refused, or the range went over TCP
 * already): where there are too many, the oldest is forgotten. */
static struct early *early_new(struct adopted_link *k, uint64_t req)
{
	struct early *e = calloc(1, sizeof(*e));

	if (!e)
		return NULL;
	if (k->nearly == LINK_BUFFERS_MAX)
		early_free(k, pool_list_first(&k->early, struct early, link));
	e->req = req;
	pool_list_add_tail(&k->early, &e->link);
	k->nearly++;
	return e;
}

/* false: nonsense, or ENOMEM. */
static bool early_add(struct adopted_link *k, const struct link_buffer *b)
{
	struct early *e = early_find(k, b->req);

	if (b->at == 0 && e)
		return false; /* twice */
	if (b->at > 0 && !e)
		return true; /* of one that is over */
	if (!e)
		e = early_new(k, b->req);
	if (!e)
		return false;
	if (b->length == 0)
		e->nowhere = true;
	return e->nowhere || link_reach_add(&e->to, b, POOL_BULK_MAX);
}

/* ---- telling that a range is let go ---- */

struct let_go {
	struct verbs_work work;
	struct link_note text;
};

static void let_go_done(struct verbs_work *w, int status)
{
	(void)status;
	free(pool_container_of(w, struct let_go, work));
}

void link_let_go(struct adopted_link *k, uint64_t req)
{
	struct half *h = &k->halves[LINK_PUSH];
	struct let_go *g = h->up ? calloc(1, sizeof(*g)) : NULL;

	if (!g)
		return;
	g->text = (struct link_note){ .req = req, .status = -ECANCELED };
	g->work = (struct verbs_work){ .op = VERBS_SEND,
				       .addr = &g->text,
				       .length = sizeof(g->text),
				       .done = let_go_done };
	if (link_post(h->link, &g->work))
		free(g);
}

/* ---- one range ---- */

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

void link_send_over(struct link_send *ls, int status)
{
	mover_sent(ls->s, status);
	send_free(ls);
}

/* The link it went over may have gone since, the port has not. */
void link_send_count(struct link_send *ls, enum link_kind kind)
{
	ls->k->halves[kind].vain = 0;
	pool_count_add(&ls->port->sent, ls->s->length);
	pool_count_add(&ls->s->mover->counters->rdma_out, ls->s->length);
}

/* ---- ranges and BUFFERs, whichever comes first ---- */

/* The BUFFER that it waits for. */
static void send_told(struct link_send *ls, const struct link_buffer *b)
{
	struct link_reach to = { .nparts = 0 };

	if (b->gone) {
		link_let_go(ls->k, ls->s->req);
		link_send_over(ls, -ECANCELED);
		return;
	}
	(void)link_reach_add(&to, b, POOL_BULK_MAX);
	link_write_begin(ls, &to);
}

static void buffer_due(struct link_tick *t)
{
	link_send_by_tcp(pool_container_of(t, struct link_send, tick));
}

static void send_await(struct link_send *ls)
{
	struct adopted_link *k = ls->k;
	struct early *e = early_find(k, ls->s->req);

	pool_list_add_tail(&k->waiting, &ls->link);
	if (e) {
		struct link_reach to = e->to;

		if (e->nowhere)
			to.upto = 0;
		early_free(k, e);
		link_write_begin(ls, &to);
		return;
	}
	ls->tick.due = buffer_due;
	link_tick_set(k->lane->ports, &ls->tick, LINK_BUFFER_MS);
}

void adopted_link_send(struct link_lane *a, struct pool_mover_send *s)
{
	struct adopted_link *k = adopted_link_of(a);
	struct link_send *ls = k ? calloc(1, sizeof(*ls)) : NULL;

	if (!ls) {
		mover_send_by_tcp(s, a->conn);
		return;
	}
	ls->k = k;
	ls->s = s;
	ls->free = (1u << LINK_PIECES) - 1;
	for (unsigned int i = 0; i < LINK_PIECES; i++)
		ls->pieces[i].ls = ls;
	pool_list_init(&ls->link);
	pool_list_init(&ls->tick.link);
	if (s->pull)
		link_read_offer(ls);
	else
		send_await(ls);
}

bool adopted_link_buffer(struct adopted_link *k, const struct link_buffer *b)
{
	struct link_send *waiting = send_find(&k->waiting, b->req);
	struct link_send *sending = send_find(&k->sending, b->req);
	struct early *e = early_find(k, b->req);

	if (waiting) {
		send_told(waiting, b);
	} else if (sending && sending->mapped) {
		link_read_over(sending, b->gone);
	} else if (sending) {
		return link_write_more(sending, b);
	} else if (b->gone) {
		if (e)
			early_free(k, e);
		link_let_go(k, b->req);
	} else {
		return early_add(k, b);
	}
	return true;
}

void adopted_link_forget(struct adopted_link *k)
{
	struct pool_list *it, *tmp;

	while (!pool_list_empty(&k->early))
		early_free(k, pool_list_first(&k->early, struct early, link));
	while (!pool_list_empty(&k->waiting))
		link_send_over(pool_list_first(&k->waiting, struct link_send,
					  link), -ECONNRESET);
	pool_list_each(it, tmp, &k->sending) {
		struct link_send *ls =
			pool_list_entry(it, struct link_send, link);

		ls->status = ls->status ? ls->status : -ENOTCONN;
		if (!ls->mapped)
			link_write_resume(ls);
	}
}
