/* Links of adopted lanes (the holder): pulled ranges, which the peer reads. */
#include <errno.h>

#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* The link was closed while the range was registered. */
static void source_ended(struct link_map *map)
{
	struct link_send *ls = pool_container_of(map, struct link_send, map);

	ls->mapped = false;
	pool_count(&ls->s->mover->counters->rdma_fallbacks);
	link_send_by_tcp(ls);
}

static void source_closed(struct link_map *map)
{
	pool_container_of(map, struct link_send, map)->mapped = false;
}

/* Registers the next part for the peer to read. 0 or -errno. */
static int source_expose(struct link_send *ls)
{
	struct adopted_half *h = &ls->k->halves[LINK_PULL];
	struct link_range r = { .fd = ls->s->fd,
				.offset = ls->s->offset,
				.length = ls->s->length };
	int err;

	if (!h->up)
		return -ENOTCONN;
	ls->port = h->link->port;
	ls->map.l = h->link;
	ls->map.ended = source_ended;
	err = link_map_add(&ls->map, &r,
			   link_part(h->link, ls->map.upto, r.length),
			   IBV_ACCESS_REMOTE_READ);
	if (err) {
		pool_count(&ls->s->mover->counters->map_failures);
	} else if (!ls->mapped) {
		ls->mapped = true;
		pool_list_add_tail(&h->link->mapped, &ls->map.link);
	}
	return err;
}

/* Registers and announces the next part. false: that failed, and the BUFFER has
 * length 0. */
static bool offer_part(struct link_send *ls)
{
	uint64_t at = ls->map.upto;
	struct link_buffer b = { .req = ls->s->req, .at = at };
	int err = source_expose(ls);

	if (!err)
		b = link_map_buffer(&ls->map, at, ls->s->req);
	(void)link_buffer_send(ls->k->lane->conn, &b);
	return !err;
}

/* The peer did not finish in time: it must not keep the range pinned and
 * readable indefinitely. */
static void read_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);

	ls->map.ended = source_closed;
	link_map_end(&ls->map);
	link_send_finish(ls, -ETIMEDOUT);
}

static void read_await(struct link_send *ls)
{
	uint64_t mib = ls->s->length >> 20;

	ls->tick.due = read_due;
	link_tick_set(ls->k->lane->ports, &ls->tick,
		      LINK_READ_MS + (unsigned int)mib * 1000);
}

/* Announces each part as soon as it is registered, so that the peer reads it
 * while the next is being registered. If a later part fails, the peer answers
 * the BUFFER of length 0, and link_read_finish falls back to TCP. */
void link_read_offer(struct link_send *ls)
{
	bool good = offer_part(ls);

	pool_list_add_tail(&ls->k->sending, &ls->link);
	if (!good) {
		link_send_by_tcp(ls);
		return;
	}
	read_await(ls);
	while (ls->map.upto < ls->s->length && offer_part(ls))
		;
}

void link_read_finish(struct link_send *ls, bool done)
{
	ls->map.ended = source_closed;
	link_map_end(&ls->map);
	if (done) {
		link_send_count(ls, LINK_PULL);
		link_send_finish(ls, 0);
	} else {
		pool_count(&ls->s->mover->counters->rdma_fallbacks);
		link_send_by_tcp(ls);
	}
}
