/* The adopted side of links: ranges written to a peer, or read by it. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/peer/link_priv.h"
#include "pool/peer/mover_priv.h"

/* What was told before the GET came. */
struct early {
	struct pool_list link;
	uint64_t req;
	struct link_reach to;
	bool nowhere; /* (any more): over TCP */
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
	struct link_tick tick; /* for a BUFFER */
	struct verbs_port *port; /* that it goes over */
	/* to be pulled */
	struct link_map map;
	bool mapped;
	/* to be written */
	struct verbs_cached *cached;
	struct link_reach to;
	bool gone; /* nobody wants it any more */
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

/* Some never get their GET (it was refused, or the range went over TCP already):
 * where there are too many, the oldest is forgotten. */
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
	if (ls->gone) {
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
	uint64_t at = ls->s->offset + ls->next, to, upto;
	uint32_t len = l->port->message_max, rkey;
	int err;

	to = link_reach_at(&ls->to, ls->next, &rkey, &upto);
	if (len > upto - ls->next)
		len = (uint32_t)(upto - ls->next);
	if (ls->wrong && at + len < from->length)
		at++;
	ls->wrong = false;
	p->write = (struct verbs_work){
		.op = VERBS_WRITE,
		.addr = from->addr + at,
		.lkey = from->mr->lkey,
		.length = len,
		.remote_addr = to,
		.rkey = rkey,
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

/* It has no link any more, or another one. */
static bool is_cut_off(const struct link_send *ls)
{
	const struct half *h = &ls->k->halves[LINK_PUSH];

	return !h->up || h->attempt != ls->attempt;
}

static void held_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);

	ls->held = false;
	if (is_cut_off(ls))
		ls->status = -ENOTCONN;
	if (!ls->gone && !ls->status)
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

static void part_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);

	ls->status = -ETIMEDOUT;
	send_pump(ls);
}

/* It goes on, or ends, now. */
static void resume(struct link_send *ls)
{
	ls->held = false;
	pool_list_del(&ls->tick.link);
	send_pump(ls);
}

static void send_pump(struct link_send *ls)
{
	while (ls->free && ls->next < ls->to.upto && !ls->status && !ls->gone &&
	       !ls->held) {
		if (is_cut_off(ls))
			ls->status = -ENOTCONN;
		else if (!hold(ls))
			post_next(ls);
	}
	if (ls->posted > 0 || ls->held)
		return;
	if (ls->status || ls->gone || ls->next == ls->s->length) {
		send_end(ls);
	} else { /* it has to be told of more */
		ls->tick.due = part_due;
		link_tick_set(ls->s->mover->links, &ls->tick, LINK_BUFFER_MS);
	}
}

/* Of a range that is being written. false: nonsense. */
static bool send_more(struct link_send *ls, const struct link_buffer *b)
{
	if (b->gone) {
		ls->gone = true; /* ends with what is posted */
	} else if (b->length == 0) {
		if (!ls->status)
			ls->status = -ENOBUFS;
	} else if (!link_reach_add(&ls->to, b, ls->s->length)) {
		return false;
	} else if (ls->held) {
		return true;
	}
	resume(ls);
	return true;
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

/* As far as the peer has told; what it does not tell of in parts is whole. */
static bool is_reach_good(const struct link_send *ls,
			  const struct link_reach *to)
{
	const struct half *h = &ls->k->halves[LINK_PUSH];

	return h->up && to->upto > 0 && to->upto <= ls->s->length &&
	       (h->link->parts || to->upto == ls->s->length);
}

static void send_begin(struct link_send *ls, const struct link_reach *to)
{
	pool_list_del(&ls->link);
	pool_list_del(&ls->tick.link);
	ls->to = *to;
	if (!is_reach_good(ls, to) || source_open(ls)) {
		send_otherwise(ls);
	} else {
		pool_list_add_tail(&ls->k->sending, &ls->link);
		send_pump(ls);
	}
}

/* The BUFFER that it waits for. */
static void send_told(struct link_send *ls, const struct link_buffer *b)
{
	struct link_reach to = { .nparts = 0 };

	if (b->gone) {
		let_go(ls->k, ls->s->req);
		send_over(ls, -ECANCELED);
		return;
	}
	(void)link_reach_add(&to, b, POOL_BULK_MAX);
	send_begin(ls, &to);
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
		struct link_reach to = e->to;

		if (e->nowhere)
			to.upto = 0;
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

/* The next part of what the peer may read: exactly the range in the end, and for
 * as long as it is asked for. 0 or -errno. */
static int source_expose(struct link_send *ls)
{
	struct half *h = &ls->k->halves[LINK_PULL];
	struct link_range r = { .fd = ls->s->fd,
				.offset = ls->s->offset,
				.length = ls->s->length };
	int err;

	if (!h->up)
		return -ENOTCONN;
	ls->port = h->link->port;
	ls->map.l = h->link;
	ls->map.gone = source_gone;
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

/* The next part of it. false: there is none. */
static bool offer_part(struct link_send *ls)
{
	uint64_t at = ls->map.upto;
	struct link_buffer b = { .req = ls->s->req, .at = at };
	int err = source_expose(ls);

	if (!err)
		b = link_map_buffer(&ls->map, at, ls->s->req);
	(void)link_say_buffer(ls->k->lane->conn, &b);
	return !err;
}

/* Each part as soon as it is registered: it is being read meanwhile. Where there
 * is no further one the peer says how to go on. */
static void send_offer(struct link_send *ls)
{
	bool good = offer_part(ls);

	pool_list_add_tail(&ls->k->sending, &ls->link);
	if (!good)
		send_otherwise(ls);
	else
		while (ls->map.upto < ls->s->length && offer_part(ls))
			;
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
		send_told(waiting, b);
	} else if (sending && sending->mapped) {
		send_pulled(sending, b->gone);
	} else if (sending) {
		return send_more(sending, b);
	} else if (b->gone) {
		if (e)
			early_free(k, e);
		let_go(k, b->req);
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
		send_over(pool_list_first(&k->waiting, struct link_send,
					  link), -ECONNRESET);
	pool_list_each(it, tmp, &k->sending) {
		struct link_send *ls =
			pool_list_entry(it, struct link_send, link);

		ls->status = ls->status ? ls->status : -ENOTCONN;
		if (!ls->mapped)
			resume(ls);
	}
}
