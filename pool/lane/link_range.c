/* The dialled side of links: ranges that the peer writes here, or that we read
 * from there. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* A piece that is being read. */
struct pull {
	struct expect_map *em;
	struct verbs_work work;
	uint64_t upto;
	bool wrong; /* a fault */
};

/* An expectation whose range the device may touch. */
struct expect_map {
	struct link_map map;
	struct pool_expect *x; /* NULL: not its any more */
	struct link_tick tick;
	uint64_t start_ns; /* something of it is registered */
	uint64_t register_ns, sum_ns; /* spent on that */
	/* to be pulled */
	struct link_reach from;
	uint64_t next; /* bytes that were posted */
	int status;
	bool held, wrong; /* the next one: faults */
	struct pull pulls[LINK_PIECES];
	unsigned int free, posted; /* pulls: bits of those unused; count */
};

/* ---- registering ---- */

/* Work that is posted still names it; its memory is out of reach by then. */
static void map_free_if_done(struct expect_map *em)
{
	if (em->posted == 0)
		free(em);
}

static void map_gone(struct link_map *lm)
{
	struct expect_map *em = pool_container_of(lm, struct expect_map, map);
	struct pool_expect *x = em->x;

	pool_list_del(&em->tick.link);
	em->x = NULL;
	map_free_if_done(em);
	if (!x)
		return;
	x->map = NULL;
	x->told = 0;
	if (x->leaving)
		expect_left(x);
	else
		pool_landing_restart(&x->landing, x->fd, x->mem);
}

/* The next part, which takes time. 0 or -errno. */
static int map_more(struct expect_map *em, uint64_t part)
{
	struct pool_expect *x = em->x;
	struct link_range r = { .fd = x->fd,
				.mem = x->mem,
				.offset = x->landing.offset,
				.length = x->landing.length };
	int access = IBV_ACCESS_LOCAL_WRITE;
	uint64_t begun = pool_now_ns();
	int err;

	if (em->map.l->exposed)
		access |= IBV_ACCESS_REMOTE_WRITE;
	err = link_map_add(&em->map, &r, part, access);
	em->register_ns += pool_now_ns() - begun;
	if (err)
		pool_count(&x->mover->counters->map_failures);
	else if (em->map.upto == r.length)
		pool_hist_add(&x->mover->counters->rdma_register,
			      em->register_ns);
	return err;
}

/* Its first part. false: not possible. */
static bool map_open(struct pool_expect *x, struct link *l, uint64_t part)
{
	struct expect_map *em = calloc(1, sizeof(*em));

	if (!em) {
		pool_count(&x->mover->counters->map_failures);
		return false;
	}
	em->x = x;
	em->map.l = l;
	em->map.gone = map_gone;
	if (map_more(em, part)) {
		free(em);
		return false;
	}
	em->start_ns = pool_now_ns();
	em->free = (1u << LINK_PIECES) - 1;
	pool_list_init(&em->tick.link);
	pool_list_add_tail(&l->mapped, &em->map.link);
	x->map = em;
	pool_landing_restart(&x->landing, -1, link_map_base(&em->map));
	return true;
}

void expect_unmap(struct pool_expect *x)
{
	if (x->map)
		link_map_end(&x->map->map);
}

void expect_map_end(struct pool_expect *x)
{
	struct expect_map *em = x->map;

	if (!em)
		return;
	x->map = NULL;
	em->x = NULL;
	link_map_end(&em->map);
}

/* A connection that has failed says so by itself. */
static void say_buffer(struct pool_expect *x, const struct link_buffer *b)
{
	(void)link_say_buffer(x->lane->conn, b);
}

/* What began then has been summed. */
static void measured(struct expect_map *em, uint64_t begun, bool last)
{
	struct pool_mover_counters *n = em->x->mover->counters;
	uint64_t took = pool_now_ns() - begun;

	em->sum_ns += took;
	if (!last)
		return;
	pool_hist_add(&n->rdma_move, begun - em->start_ns);
	pool_hist_add(&n->rdma_sum, em->sum_ns);
	pool_hist_add(&n->rdma_tail, took);
}

/* What was moved up to there is summed: no peer can write it any more. */
static void landed(struct pool_expect *x, uint64_t upto)
{
	uint64_t begun = pool_now_ns();
	uint64_t got = x->landing.got;
	const uint8_t *addr = link_map_base(&x->map->map);
	struct link *l = x->map->map.l;
	struct pool_mover_counters *n = x->mover->counters;

	x->lane->heard_ms = pool_now_ms();
	x->lane->links[l->kind]->vain = 0;
	pool_count_add(&n->bytes_in, upto - got);
	pool_count_add(&n->rdma_in, upto - got);
	pool_count_add(&l->port->received, upto - got);
	if (l->kind == LINK_PULL)
		pool_count_add(&n->rdma_pulled, upto - got);
	pool_landing_data(&x->landing, addr + got, upto - got);
	measured(x->map, begun, upto == x->landing.length);
}

/* ---- written by the peer ---- */

/* Each part as soon as it is registered: it is being written meanwhile. */
static void say_parts(struct pool_expect *x)
{
	struct link_map *map = &x->map->map;
	uint64_t at = 0, length = x->landing.length;
	struct link_buffer b;

	for (;;) {
		b = link_map_buffer(map, at, x->req);
		say_buffer(x, &b);
		at = map->upto;
		if (at == length)
			return;
		if (map_more(x->map, link_part(map->l, at, length)))
			break;
	}
	b = (struct link_buffer){ .req = x->req, .at = at };
	say_buffer(x, &b);
}

void expect_map(struct pool_expect *x)
{
	struct lane_link *k = x->lane->links[LINK_PUSH];
	struct link_buffer nowhere = { .req = x->req };

	if (x->want_pull)
		lane_link_wish(x->lane);
	if (!x->buffer)
		return;
	if (x->lane->linked[LINK_PUSH] &&
	    map_open(x, k->link, link_part(k->link, 0, x->landing.length)))
		say_parts(x);
	else
		say_buffer(x, &nowhere);
}

void lane_link_note(struct lane_link *k, const struct link_note *note)
{
	struct pool_expect *x = expect_find(k->lane->mover, note->req);

	if (!x || !x->map || x->map->map.l != k->link)
		return; /* over */
	if (x->leaving) {
		if (note->status || note->upto == x->landing.length)
			expect_left(x);
	} else if (note->status) {
		expect_unmap(x);
	} else if (note->upto <= x->told || note->upto > x->map->map.upto) {
		lane_link_give_up(k, "the peer tells of bytes that cannot be");
	} else {
		x->told = note->upto;
		landed(x, link_map_shut(&x->map->map, note->upto));
		if (note->upto == x->landing.length)
			expect_end(x, 0);
	}
}

/* ---- pulled ---- */

static void pull_pump(struct expect_map *em);

/* Nothing of it is under way any more. */
static void pull_end(struct expect_map *em)
{
	struct pool_expect *x = em->x;
	struct link_buffer b = { .req = x->req, .gone = !em->status };

	if (x->leaving)
		b.gone = true;
	say_buffer(x, &b);
	if (x->leaving)
		expect_left(x);
	else if (em->status)
		expect_unmap(x); /* over TCP, please */
	else
		expect_end(x, 0);
}

static void pull_done(struct verbs_work *w, int status)
{
	struct pull *p = pool_container_of(w, struct pull, work);
	struct expect_map *em = p->em;

	em->posted--;
	em->free |= 1u << (p - em->pulls);
	if (!em->x) {
		map_free_if_done(em);
		return;
	}
	if (status && !em->status)
		em->status = status;
	if (p->wrong)
		link_map_base(&em->map)[p->upto - 1] ^= 1;
	if (!em->status && !em->x->leaving)
		landed(em->x, p->upto);
	pull_pump(em);
}

static int pull_post(struct expect_map *em, struct pull *p)
{
	struct link *l = em->map.l;
	uint64_t upto, from_upto;
	uint32_t rkey, lkey = link_map_at(&em->map, em->next, &upto);
	uint64_t from = link_reach_at(&em->from, em->next, &rkey, &from_upto);
	uint32_t len = l->port->message_max;
	int err;

	if (upto > from_upto)
		upto = from_upto;
	if (len > upto - em->next)
		len = (uint32_t)(upto - em->next);
	p->em = em;
	p->upto = em->next + len;
	p->wrong = em->wrong;
	em->wrong = false;
	p->work = (struct verbs_work){
		.op = VERBS_READ,
		.addr = link_map_base(&em->map) + em->next,
		.lkey = lkey,
		.length = len,
		.remote_addr = from,
		.rkey = rkey,
		.done = pull_done,
	};
	err = link_post(l, &p->work);
	if (err)
		return err;
	em->free &= ~(1u << (p - em->pulls));
	em->posted++;
	em->next += len;
	return 0;
}

static void pull_next(struct expect_map *em)
{
	em->status = pull_post(em, &em->pulls[__builtin_ctz(em->free)]);
}

static void held_due(struct link_tick *t)
{
	struct expect_map *em = pool_container_of(t, struct expect_map, tick);

	em->held = false;
	if (!em->status)
		pull_next(em);
	pull_pump(em);
}

/* A fault that was asked for: the next piece waits, or is wrong. */
static bool hold(struct expect_map *em)
{
	enum pool_fault_kind kind;
	uint32_t ms = 0;

	kind = link_fault(em->map.l, em->x->lane->conn, &ms);
	em->wrong = kind == POOL_FAULT_CORRUPT;
	em->held = kind == POOL_FAULT_DELAY;
	em->tick.due = held_due;
	if (em->held)
		link_tick_set(em->map.l->ports, &em->tick, ms);
	return em->held;
}

/* What is told of is read; without posted pieces it is over, or waits to be
 * told of more. */
static void pull_pump(struct expect_map *em)
{
	uint64_t length = em->x->landing.length;

	while (em->free && em->next < em->from.upto && !em->status &&
	       !em->x->leaving && !em->held)
		if (!hold(em))
			pull_next(em);
	if (em->posted == 0 && !em->held &&
	    (em->next == length || em->status || em->x->leaving))
		pull_end(em);
}

/* A further part of a range that is being read. false: nonsense. */
static bool source_more(struct expect_map *em, const struct link_buffer *b)
{
	struct link_reach from = em->from;

	if (b->length > 0 && !link_reach_add(&from, b, em->x->landing.length))
		return false;
	if (em->status)
		return true;
	em->status = b->length > 0 ? map_more(em, b->length) : -ENOBUFS;
	if (!em->status)
		em->from = from;
	pull_pump(em);
	return true;
}

/* The first part of one. false: not possible. */
static bool source_open(struct pool_expect *x, const struct link_buffer *b)
{
	struct lane_link *k = x->lane->links[LINK_PULL];
	struct link_reach from = { .nparts = 0 };

	if (!k || !x->lane->linked[LINK_PULL] ||
	    !link_reach_add(&from, b, x->landing.length) ||
	    (!k->link->parts && from.upto < x->landing.length) ||
	    !map_open(x, k->link, b->length))
		return false;
	x->map->from = from;
	pull_pump(x->map);
	return true;
}

bool lane_link_source(struct pool_lane *lane, const struct link_buffer *b)
{
	struct link_buffer answer = { .req = b->req };
	struct pool_expect *x = expect_find(lane->mover, b->req);

	if (!x) { /* it may have overtaken the expectation's mail */
		pool_mailbox_drain(&lane->mover->box);
		x = expect_find(lane->mover, b->req);
	}
	if (x && (x->lane != lane || !x->pull || (x->map && b->at == 0)))
		return false;
	if (b->at > 0) /* if it is not over */
		return !x || !x->map || x->leaving || source_more(x->map, b);
	if (b->length == 0)
		return true; /* over TCP */
	answer.gone = !x || x->leaving;
	if (answer.gone || !source_open(x, b))
		(void)link_say_buffer(lane->conn, &answer);
	return true;
}

/* ---- given up ---- */

/* Whoever still writes breaks the link; what we still read is broken off. */
static void leave_due(struct link_tick *t)
{
	struct expect_map *em = pool_container_of(t, struct expect_map, tick);
	struct lane_link *k = em->x->lane->links[LINK_PULL];

	if (em->map.l->kind == LINK_PUSH)
		expect_left(em->x);
	else if (k && k->link == em->map.l)
		lane_link_give_up(k, "a range that was given up goes on");
}

bool expect_leave(struct pool_expect *x)
{
	struct link_buffer b = { .req = x->req, .gone = true };

	if (!x->lane->conn || !(x->buffer || x->pull))
		return false;
	if (!x->map || x->map->posted == 0)
		if (link_say_buffer(x->lane->conn, &b))
			return false;
	if (!x->map || (x->pull && x->map->posted == 0))
		return false;
	x->map->held = false;
	x->map->tick.due = leave_due;
	link_tick_set(x->map->map.l->ports, &x->map->tick, LINK_LEAVE_MS);
	return true;
}
