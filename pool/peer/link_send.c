/* The adopted side of links: ranges written to a peer, or read by it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/peer/link_priv.h"
#include "pool/peer/mover_priv.h"

struct early {
	struct pool_list link;
	struct link_buffer buffer;
};

/* A piece of a range: its bytes, and the note that tells of them. */
struct piece {
	struct link_send *ls;
	struct verbs_work write, note;
	struct link_note text;
};

struct link_send {
	struct pool_list link; /* waiting or sending */
	struct adopted_link *k;
	struct pool_mover_send *s;
	struct link_tick tick; /* for the BUFFER */
	struct verbs_port *port; /* that it goes over */
	/* to be pulled */
	struct link_map map;
	bool mapped;
	/* to be written */
	struct verbs_cached *cached;
	struct link_buffer to;
	uint64_t next; /* bytes that were posted */
	int status;
	uint32_t attempt; /* of the link */
	bool held; /* the next piece waits: a fault */
	bool wrong; /* it has other bytes: a fault */
	struct piece pieces[LINK_PIECES];
	unsigned int free, posted; /* pieces: bits of those unused; count */
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

		if (e->buffer.req == req)
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

/* Some never get their GET (it was refused, or the range went over TCP already):
 * where there are too many, the oldest is forgotten. */
static bool early_add(struct adopted_link *k, const struct link_buffer *b)
{
	struct early *e = calloc(1, sizeof(*e));

	if (!e)
		return false;
	if (k->nearly == LINK_BUFFERS_MAX)
		early_free(k, pool_list_first(&k->early, struct early, link));
	e->buffer = *b;
	pool_list_add_tail(&k->early, &e->link);
	k->nearly++;
	return true;
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

/* The peer waits for it, but not for ever. */
static void let_go(struct adopted_link *k, uint64_t req)
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

/* Over TCP, if the lane is there. */
static void send_otherwise(struct link_send *ls)
{
	struct link_lane *a = ls->k->lane;

	mover_send_by_tcp(ls->s, a ? a->conn : NULL);
	send_free(ls);
}

static void send_over(struct link_send *ls, int status)
{
	mover_sent(ls->s, status);
	send_free(ls);
}

/* The link it went over may have gone since, the port has not. */
static void count_sent(struct link_send *ls, enum link_kind kind)
{
	ls->k->halves[kind].vain = 0;
	pool_count_add(&ls->port->sent, ls->s->length);
	pool_count_add(&ls->s->mover->counters->rdma_out, ls->s->length);
}

/* Nothing of it is under way any more. */
static void send_end(struct link_send *ls)
{
	struct pool_mover *m = ls->s->mover;

	verbs_cache_put(m->links->cache, ls->cached);
	if (ls->to.gone) {
		let_go(ls->k, ls->s->req);
		send_over(ls, -ECANCELED);
	} else if (ls->status) {
		pool_count(&m->counters->rdma_again);
		send_otherwise(ls);
	} else {
		count_sent(ls, LINK_PUSH);
		send_over(ls, 0);
	}
}

static void send_pump(struct link_send *ls);

static void write_done(struct verbs_work *w, int status)
{
	struct link_send *ls =
		pool_container_of(w, struct piece, write)->ls;

	if (status && !ls->status)
		ls->status = status;
}

static void note_done(struct verbs_work *w, int status)
{
	struct piece *p = pool_container_of(w, struct piece, note);
	struct link_send *ls = p->ls;

	if (status && !ls->status)
		ls->status = status;
	ls->free |= 1u << (p - ls->pieces);
	ls->posted--;
	send_pump(ls);
}

/* The next bytes, by that piece. */
static int piece_post(struct link_send *ls, struct piece *p)
{
	struct link *l = ls->k->halves[LINK_PUSH].link;
	const struct verbs_region *from = &ls->cached->region;
	uint64_t left = ls->s->length - ls->next;
	uint64_t at = ls->s->offset + ls->next;
	uint32_t len = l->port->message_max;
	int err;

	if (len > left)
		len = (uint32_t)left;
	if (ls->wrong && at + len < from->length)
		at++;
	ls->wrong = false;
	p->write = (struct verbs_work){
		.op = VERBS_WRITE,
		.addr = from->addr + at,
		.lkey = from->mr->lkey,
		.length = len,
		.remote_addr = ls->to.addr + ls->next,
		.rkey = ls->to.rkey,
		.done = write_done,
	};
	p->text = (struct link_note){ .req = ls->s->req,
				      .upto = ls->next + len };
	p->note = (struct verbs_work){ .op = VERBS_SEND,
				       .addr = &p->text,
				       .length = sizeof(p->text),
				       .done = note_done };
	err = link_post(l, &p->write);
	if (err)
		return err;
	/* Posted behind the other: it is refused only if that was. */
	(void)link_post(l, &p->note);
	ls->free &= ~(1u << (p - ls->pieces));
	ls->posted++;
	ls->next += len;
	return 0;
}

static void post_next(struct link_send *ls)
{
	ls->status = piece_post(ls, &ls->pieces[__builtin_ctz(ls->free)]);
}

static void held_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);
	const struct half *h = &ls->k->halves[LINK_PUSH];

	ls->held = false;
	if (!h->up || h->attempt != ls->attempt)
		ls->status = -ENOTCONN; /* another link by now, or none */
	if (!ls->to.gone && !ls->status)
		post_next(ls);
	send_pump(ls);
}

/* A fault that was asked for: the next piece waits, or is wrong. */
static bool hold(struct link_send *ls)
{
	struct half *h = &ls->k->halves[LINK_PUSH];
	enum pool_fault_kind kind;
	uint32_t ms = 0;

	kind = link_fault(h->link, ls->k->lane->conn, &ms);
	ls->wrong = kind == POOL_FAULT_CORRUPT;
	ls->held = kind == POOL_FAULT_DELAY;
	ls->tick.due = held_due;
	if (ls->held)
		link_tick_set(ls->k->lane->ports, &ls->tick, ms);
	return ls->held;
}

/* It goes on, or ends, now. */
static void unhold(struct link_send *ls)
{
	if (!ls->held)
		return;
	ls->held = false;
	pool_list_del(&ls->tick.link);
	send_pump(ls);
}

static void send_pump(struct link_send *ls)
{
	while (ls->free && ls->next < ls->s->length && !ls->status &&
	       !ls->to.gone && !ls->held) {
		if (!ls->k->halves[LINK_PUSH].up)
			ls->status = -ENOTCONN;
		else if (!hold(ls))
			post_next(ls);
	}
	if (ls->posted == 0 && !ls->held)
		send_end(ls);
}

/* The object, registered as a whole; it may be shorter than what was asked. */
static int source_open(struct link_send *ls)
{
	struct verbs_cache *cache = ls->s->mover->links->cache;
	struct link *l = ls->k->halves[LINK_PUSH].link;
	int err = verbs_cache_get(cache, l->port, ls->s->fd, &ls->cached);

	ls->port = l->port;
	ls->attempt = ls->k->halves[LINK_PUSH].attempt;
	if (!err && ls->s->offset + ls->s->length > ls->cached->region.length) {
		verbs_cache_put(cache, ls->cached);
		return -ERANGE;
	}
	if (err)
		pool_count(&ls->s->mover->counters->map_failures);
	return err;
}

static void send_begin(struct link_send *ls, const struct link_buffer *to)
{
	pool_list_del(&ls->link);
	pool_list_del(&ls->tick.link);
	ls->to = *to;
	if (to->gone) {
		let_go(ls->k, ls->s->req);
		send_over(ls, -ECANCELED);
	} else if (!ls->k->halves[LINK_PUSH].up ||
		   to->length != ls->s->length || source_open(ls)) {
		send_otherwise(ls);
	} else {
		pool_list_add_tail(&ls->k->sending, &ls->link);
		send_pump(ls);
	}
}

static void buffer_due(struct link_tick *t)
{
	send_otherwise(pool_container_of(t, struct link_send, tick));
}

static void send_await(struct link_send *ls)
{
	struct adopted_link *k = ls->k;
	struct early *e = early_find(k, ls->s->req);

	pool_list_add_tail(&k->waiting, &ls->link);
	if (e) {
		struct link_buffer to = e->buffer;

		early_free(k, e);
		send_begin(ls, &to);
		return;
	}
	ls->tick.due = buffer_due;
	link_tick_set(k->lane->ports, &ls->tick, LINK_BUFFER_MS);
}

/* ---- a range to be pulled ---- */

/* The link is closed under it. */
static void source_gone(struct link_map *map)
{
	struct link_send *ls = pool_container_of(map, struct link_send, map);

	ls->mapped = false;
	pool_count(&ls->s->mover->counters->rdma_again);
	send_otherwise(ls);
}

static void source_closed(struct link_map *map)
{
	pool_container_of(map, struct link_send, map)->mapped = false;
}

/* What the peer may read: exactly the range, for as long as it is asked for. */
static int source_expose(struct link_send *ls, struct link_buffer *b)
{
	struct half *h = &ls->k->halves[LINK_PULL];
	int err;

	if (!h->up)
		return -ENOTCONN;
	err = verbs_region_open(h->link->port, h->link->pd, ls->s->fd,
				ls->s->offset, ls->s->length,
				IBV_ACCESS_REMOTE_READ, &ls->map.region);
	if (err) {
		pool_count(&ls->s->mover->counters->map_failures);
		return err;
	}
	ls->port = h->link->port;
	ls->map.l = h->link;
	ls->map.gone = source_gone;
	ls->mapped = true;
	pool_list_add_tail(&h->link->mapped, &ls->map.link);
	b->addr = (uint64_t)(uintptr_t)ls->map.region.addr;
	b->rkey = ls->map.region.mr->rkey;
	b->length = ls->s->length;
	return 0;
}

static void send_offer(struct link_send *ls)
{
	struct link_buffer b = { .req = ls->s->req };
	struct adopted_link *k = ls->k;
	int err = source_expose(ls, &b);

	pool_list_add_tail(&k->sending, &ls->link);
	(void)link_say_buffer(k->lane->conn, &b);
	if (err)
		send_otherwise(ls);
}

/* It has been read, or is not wanted; or it cannot be read. */
static void send_pulled(struct link_send *ls, bool gone)
{
	ls->map.gone = source_closed;
	link_map_end(&ls->map);
	if (gone) {
		count_sent(ls, LINK_PULL);
		send_over(ls, 0);
	} else {
		pool_count(&ls->s->mover->counters->rdma_again);
		send_otherwise(ls);
	}
}

/* ---- either ---- */

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
		send_offer(ls);
	else
		send_await(ls);
}

bool adopted_link_buffer(struct adopted_link *k, const struct link_buffer *b)
{
	struct link_send *waiting = send_find(&k->waiting, b->req);
	struct link_send *sending = send_find(&k->sending, b->req);
	struct early *e = early_find(k, b->req);

	if (waiting) {
		send_begin(waiting, b);
	} else if (sending && sending->mapped) {
		send_pulled(sending, b->gone);
	} else if (sending) {
		sending->to.gone |= b->gone; /* ends with what is posted */
		unhold(sending);
	} else if (b->gone) {
		if (e)
			early_free(k, e);
		let_go(k, b->req);
	} else {
		return !e && early_add(k, b);
	}
	return true;
}

void adopted_link_forget(struct adopted_link *k)
{
	struct pool_list *it, *tmp;

	while (!pool_list_empty(&k->early))
		early_free(k, pool_list_first(&k->early, struct early, link));
	while (!pool_list_empty(&k->waiting))
		send_over(pool_list_first(&k->waiting, struct link_send,
					  link), -ECONNRESET);
	pool_list_each(it, tmp, &k->sending) {
		struct link_send *ls =
			pool_list_entry(it, struct link_send, link);

		ls->status = ls->status ? ls->status : -ENOTCONN;
		unhold(ls);
	}
}
