/* Links of adopted lanes (the holder): matches requested ranges with their
 * BUFFERs. Either may arrive first. */
#include <errno.h>
#include <stdlib.h>

#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* The BUFFER that ls waited for has arrived. */
static void buffer_received(struct link_send *ls, const struct link_buffer *b)
{
	struct link_remote to = { .nparts = 0 };

	if (b->gone) {
		link_ack_cancel(ls->k, ls->s->req);
		link_send_finish(ls, -ECANCELED);
		return;
	}
	(void)link_remote_add(&to, b, POOL_BULK_MAX);
	link_write_begin(ls, &to);
}

static void buffer_due(struct link_tick *t)
{
	link_send_by_tcp(pool_container_of(t, struct link_send, tick));
}

static void send_await(struct link_send *ls)
{
	struct adopted_link *k = ls->k;
	struct link_early *e = link_early_find(k, ls->s->req);

	pool_list_add_tail(&k->waiting, &ls->link);
	if (e) {
		struct link_remote to = e->to;

		if (e->by_tcp)
			to.upto = 0;
		link_early_free(k, e);
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
	struct link_send *waiting = link_send_find(&k->waiting, b->req);
	struct link_send *sending = link_send_find(&k->sending, b->req);
	struct link_early *e = link_early_find(k, b->req);

	if (waiting) {
		buffer_received(waiting, b);
	} else if (sending && sending->mapped) {
		link_read_finish(sending, b->gone);
	} else if (sending) {
		return link_write_more(sending, b);
	} else if (b->gone) {
		if (e)
			link_early_free(k, e);
		link_ack_cancel(k, b->req);
	} else {
		return link_early_add(k, b);
	}
	return true;
}
