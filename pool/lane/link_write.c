/* Links of adopted lanes (the holder): pushed ranges, which this side writes.
 */
#include <errno.h>

#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* Nothing is in flight any more: ends the send. */
static void send_end(struct link_send *ls)
{
	struct pool_mover *m = ls->s->mover;

	verbs_cache_put(m->links->cache, ls->cached);
	if (ls->cancelled) {
		link_ack_cancel(ls->k, ls->s->req);
		link_send_finish(ls, -ECANCELED);
	} else if (ls->status) {
		pool_count(&m->counters->rdma_fallbacks);
		link_send_by_tcp(ls);
	} else {
		link_send_count(ls, LINK_PUSH);
		link_send_finish(ls, 0);
	}
}

static void send_pump(struct link_send *ls);

static void write_done(struct verbs_work *w, int status)
{
	struct link_send *ls =
		pool_container_of(w, struct link_piece, write)->ls;

	if (status && !ls->status)
		ls->status = status;
}

static void note_done(struct verbs_work *w, int status)
{
	struct link_piece *p = pool_container_of(w, struct link_piece, note);
	struct link_send *ls = p->ls;

	if (status && !ls->status)
		ls->status = status;
	ls->free |= 1u << (p - ls->pieces);
	ls->posted--;
	send_pump(ls);
}

/* Posts the next bytes and their note. 0 or -errno. */
static int piece_post(struct link_send *ls, struct link_piece *p)
{
	struct link *l = ls->k->halves[LINK_PUSH].link;
	const struct verbs_region *from = &ls->cached->region;
	uint64_t at = ls->s->offset + ls->next, to, upto;
	uint32_t len = l->port->message_max, rkey;
	int err;

	to = link_remote_at(&ls->to, ls->next, &rkey, &upto);
	if (len > upto - ls->next)
		len = (uint32_t)(upto - ls->next);
	if (ls->corrupt && at + len < from->length)
		at++;
	ls->corrupt = false;
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
	/* The queue pair accepted the WRITE, so it accepts the note. */
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

/* The link on which the send started is closed, or replaced. */
static bool link_was_closed(const struct link_send *ls)
{
	const struct adopted_half *h = &ls->k->halves[LINK_PUSH];

	return !h->up || h->attempt != ls->attempt;
}

static void delay_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);

	ls->delayed = false;
	if (link_was_closed(ls))
		ls->status = -ENOTCONN;
	if (!ls->cancelled && !ls->status)
		post_next(ls);
	send_pump(ls);
}

/* Applies the injected fault, if there is one. true: the next piece waits. */
static bool inject_fault(struct link_send *ls)
{
	struct adopted_half *h = &ls->k->halves[LINK_PUSH];
	enum pool_fault_kind kind;
	uint32_t ms = 0;

	kind = link_fault(h->link, ls->k->lane->conn, &ms);
	ls->corrupt = kind == POOL_FAULT_CORRUPT;
	ls->delayed = kind == POOL_FAULT_DELAY;
	ls->tick.due = delay_due;
	if (ls->delayed)
		link_tick_set(ls->k->lane->ports, &ls->tick, ms);
	return ls->delayed;
}

static void part_due(struct link_tick *t)
{
	struct link_send *ls = pool_container_of(t, struct link_send, tick);

	ls->status = -ETIMEDOUT;
	send_pump(ls);
}

void link_write_resume(struct link_send *ls)
{
	ls->delayed = false;
	pool_list_del(&ls->tick.link);
	send_pump(ls);
}

static void send_pump(struct link_send *ls)
{
	while (ls->free && ls->next < ls->to.upto && !ls->status &&
	       !ls->cancelled && !ls->delayed) {
		if (link_was_closed(ls))
			ls->status = -ENOTCONN;
		else if (!inject_fault(ls))
			post_next(ls);
	}
	if (ls->posted > 0 || ls->delayed)
		return;
	if (ls->status || ls->cancelled || ls->next == ls->s->length) {
		send_end(ls);
	} else { /* waits for the next BUFFER */
		ls->tick.due = part_due;
		link_tick_set(ls->s->mover->links, &ls->tick, LINK_BUFFER_MS);
	}
}

bool link_write_more(struct link_send *ls, const struct link_buffer *b)
{
	if (b->gone) {
		ls->cancelled = true; /* ends when nothing is in flight */
	} else if (b->length == 0) {
		if (!ls->status)
			ls->status = -ENOBUFS;
	} else if (!link_remote_add(&ls->to, b, ls->s->length)) {
		return false;
	} else if (ls->delayed) {
		return true;
	}
	link_write_resume(ls);
	return true;
}

/* Registers the whole object (cached). -ERANGE: it is shorter than the range.
 */
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

/* Is `to` within the range, and all of it if the peer does not know parts? */
static bool is_remote_good(const struct link_send *ls,
			   const struct link_remote *to)
{
	const struct adopted_half *h = &ls->k->halves[LINK_PUSH];

	return h->up && to->upto > 0 && to->upto <= ls->s->length &&
	       (h->link->parts || to->upto == ls->s->length);
}

void link_write_begin(struct link_send *ls, const struct link_remote *to)
{
	pool_list_del(&ls->link);
	pool_list_del(&ls->tick.link);
	ls->to = *to;
	if (!is_remote_good(ls, to) || source_open(ls)) {
		link_send_by_tcp(ls);
	} else {
		pool_list_add_tail(&ls->k->sending, &ls->link);
		send_pump(ls);
	}
}
