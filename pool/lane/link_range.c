/* Links of dialled lanes (the requester): pushed ranges, which the peer writes
 * into our memory, and pulled ranges, which we read from the peer's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* A READ in flight. */
struct pull {
	struct expect_map *em;
	struct verbs_work work;
	uint64_t upto;
	bool corrupt; /* injected fault */
};

/* An expectation whose range is registered. */
struct expect_map {
	struct link_map map;
	struct pool_expect *x; /* NULL: it has ended */
	struct link_tick tick;
	uint64_t start_ns; /* when the first part was registered */
	uint64_t register_ns, sum_ns; /* spent registering, checksumming */
	/* pulled */
	struct link_remote from;
	uint64_t next; /* bytes posted so far */
	int status;
	bool delayed, corrupt; /* injected faults of the next piece */
	struct pull pulls[LINK_PIECES];
	unsigned int free; /* bit mask of unused pulls */
	unsigned int posted; /* READs in flight */
};

/* ---- registering ---- */

/* Frees em, unless work in flight still refers to it. */
static void map_free_if_done(struct expect_map *em)
{
	if (em->posted == 0)
		free(em);
}

static void map_ended(struct link_map *lm)
{
	struct expect_map *em = pool_container_of(lm, struct expect_map, map);
	struct pool_expect *x = em->x;

	pool_list_del(&em->tick.link);
	em->x = NULL;
	map_free_if_done(em);
	if (!x)
		return;
	x->map = NULL;
	x->peer_written = 0;
	if (x->draining)
		expect_drained(x);
	else
		pool_landing_restart(&x->landing, x->fd, x->mem);
}

/* Registers the next part, which is slow. 0 or -errno. */
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

/* Registers the first part; the landing then writes there. false: failed. */
static bool map_open(struct pool_expect *x, struct link *l, uint64_t part)
{
	struct expect_map *em = calloc(1, sizeof(*em));

	if (!em) {
		pool_count(&x->mover->counters->map_failures);
		return false;
	}
	em->x = x;
	em->map.l = l;
	em->map.ended = map_ended;
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

/* Errors are ignored: a failed connection ends the lane, and x with it. */
static void send_buffer(struct pool_expect *x, const struct link_buffer *b)
{
	(void)link_buffer_send(x->lane->conn, b);
}

/* Bytes were checksummed, starting at `begun`. last: the range is complete. */
static void record_times(struct expect_map *em, uint64_t begun, bool last)
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

/* Checksums the bytes up to `upto`. The caller has made sure that the peer
 * cannot change them any more. */
static void sum_landed(struct pool_expect *x, uint64_t upto)
{
	uint64_t begun = pool_now_ns();
	uint64_t got = x->landing.got;
	const uint8_t *addr = link_map_base(&x->map->map);
	struct link *l = x->map->map.l;
	struct pool_mover_counters *n = x->mover->counters;

	x->lane->received_ms = pool_now_ms();
	x->lane->links[l->kind]->failures = 0;
	x->by_rdma = true;
	pool_count_add(&n->bytes_in, upto - got);
	pool_count_add(&n->rdma_in, upto - got);
	pool_count_add(&l->port->received, upto - got);
	if (l->kind == LINK_PULL)
		pool_count_add(&n->rdma_pulled, upto - got);
	pool_landing_data(&x->landing, addr + got, upto - got);
	record_times(x->map, begun, upto == x->landing.length);
}

/* ---- pushed ranges ---- */

/* Announces each part as soon as it is registered, so that the peer writes it
 * while the next is being registered. */
static void send_parts(struct pool_expect *x)
{
	struct link_map *map = &x->map->map;
	uint64_t at = 0, length = x->landing.length;
	struct link_buffer b;

	for (;;) {
		b = link_map_buffer(map, at, x->req);
		send_buffer(x, &b);
		at = map->upto;
		if (at == length)
			return;
		if (map_more(x->map, link_part(map->l, at, length)))
			break;
	}
	b = (struct link_buffer){ .req = x->req, .at = at };
	send_buffer(x, &b);
}

void expect_map(struct pool_expect *x)
{
	struct lane_link *k = x->lane->links[LINK_PUSH];
	struct link_buffer by_tcp = { .req = x->req };

	if (x->want_pull)
		lane_link_want_pull(x->lane);
	if (!x->buffer)
		return;
	if (x->lane->linked[LINK_PUSH] &&
	    map_open(x, k->link, link_part(k->link, 0, x->landing.length)))
		send_parts(x);
	else
		send_buffer(x, &by_tcp);
}

void lane_link_note(struct lane_link *k, const struct link_note *note)
{
	struct pool_expect *x = expect_find(k->lane->mover, note->req);

	if (!x || !x->map || x->map->map.l != k->link)
		return; /* it has ended */
	if (x->draining) {
		if (note->status || note->upto == x->landing.length)
			expect_drained(x);
	} else if (note->status) {
		expect_unmap(x);
	} else if (note->upto <= x->peer_written ||
		   note->upto > x->map->map.upto) {
		lane_link_give_up(k, "the peer reported impossible progress");
	} else {
		x->peer_written = note->upto;
		sum_landed(x, link_map_deregister(&x->map->map, note->upto));
		if (note->upto == x->landing.length)
			expect_end(x, 0);
	}
}

/* ---- pulled ranges ---- */

static void pull_pump(struct expect_map *em);

/* No READ is in flight, and none will be posted: notifies the holder and ends
 * x. */
static void pull_end(struct expect_map *em)
{
	struct pool_expect *x = em->x;
	struct link_buffer b = { .req = x->req, .gone = !em->status };

	if (x->draining)
		b.gone = true;
	send_buffer(x, &b);
	if (x->draining)
		expect_drained(x);
	else if (em->status)
		expect_unmap(x); /* the holder sends it over TCP */
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
	if (p->corrupt)
		link_map_base(&em->map)[p->upto - 1] ^= 1;
	if (!em->status && !em->x->draining)
		sum_landed(em->x, p->upto);
	pull_pump(em);
}

static int pull_post(struct expect_map *em, struct pull *p)
{
	struct link *l = em->map.l;
	uint64_t upto, from_upto;
	uint32_t rkey, lkey = link_map_at(&em->map, em->next, &upto);
	uint64_t from = link_remote_at(&em->from, em->next, &rkey, &from_upto);
	uint32_t len = l->port->message_max;
	int err;

	if (upto > from_upto)
		upto = from_upto;
	if (len > upto - em->next)
		len = (uint32_t)(upto - em->next);
	p->em = em;
	p->upto = em->next + len;
	p->corrupt = em->corrupt;
	em->corrupt = false;
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

static void delay_due(struct link_tick *t)
{
	struct expect_map *em = pool_container_of(t, struct expect_map, tick);

	em->delayed = false;
	if (!em->status)
		pull_next(em);
	pull_pump(em);
}

/* Applies the injected fault, if there is one. true: the next piece waits. */
static bool inject_fault(struct expect_map *em)
{
	enum pool_fault_kind kind;
	uint32_t ms = 0;

	kind = link_fault(em->map.l, em->x->lane->conn, &ms);
	em->corrupt = kind == POOL_FAULT_CORRUPT;
	em->delayed = kind == POOL_FAULT_DELAY;
	em->tick.due = delay_due;
	if (em->delayed)
		link_tick_set(em->map.l->ports, &em->tick, ms);
	return em->delayed;
}

/* Reads the parts announced so far. With nothing in flight, the range has
 * ended, or waits for the next BUFFER. */
static void pull_pump(struct expect_map *em)
{
	uint64_t length = em->x->landing.length;

	while (em->free && em->next < em->from.upto && !em->status &&
	       !em->x->draining && !em->delayed)
		if (!inject_fault(em))
			pull_next(em);
	if (em->posted == 0 && !em->delayed &&
	    (em->next == length || em->status || em->x->draining))
		pull_end(em);
}

/* A further part of a range that is being read. false: invalid. */
static bool pull_more(struct expect_map *em, const struct link_buffer *b)
{
	struct link_remote from = em->from;

	if (b->length > 0 && !link_remote_add(&from, b, em->x->landing.length))
		return false;
	if (em->status)
		return true;
	em->status = b->length > 0 ? map_more(em, b->length) : -ENOBUFS;
	if (!em->status)
		em->from = from;
	pull_pump(em);
	return true;
}

/* Starts reading, with the first part. false: not possible. */
static bool pull_begin(struct pool_expect *x, const struct link_buffer *b)
{
	struct lane_link *k = x->lane->links[LINK_PULL];
	struct link_remote from = { .nparts = 0 };

	if (!k || !x->lane->linked[LINK_PULL] ||
	    !link_remote_add(&from, b, x->landing.length) ||
	    (!k->link->parts && from.upto < x->landing.length) ||
	    !map_open(x, k->link, b->length))
		return false;
	x->map->from = from;
	pull_pump(x->map);
	return true;
}

bool lane_link_pull(struct pool_lane *lane, const struct link_buffer *b)
{
	struct link_buffer answer = { .req = b->req };
	struct pool_expect *x = expect_find(lane->mover, b->req);

	if (!x) { /* the BUFFER may have overtaken the expectation's mail */
		pool_mailbox_drain(&lane->mover->box);
		x = expect_find(lane->mover, b->req);
	}
	if (x && (x->lane != lane || !x->pull || (x->map && b->at == 0)))
		return false;
	if (b->at > 0) /* a further part; ignored if the range has ended */
		return !x || !x->map || x->draining || pull_more(x->map, b);
	if (b->length == 0)
		return true; /* the holder sends over TCP */
	answer.gone = !x || x->draining;
	if (answer.gone || !pull_begin(x, b))
		(void)link_buffer_send(lane->conn, &answer);
	return true;
}

/* ---- cancelled ranges ---- */

/* Work is still in flight after LINK_DRAIN_MS. Pushed: deregisters the range,
 * so that a peer which still writes breaks the link. Pulled: closes the link,
 * which ends the READs. */
static void drain_due(struct link_tick *t)
{
	struct expect_map *em = pool_container_of(t, struct expect_map, tick);
	struct lane_link *k = em->x->lane->links[LINK_PULL];

	if (em->map.l->kind == LINK_PUSH)
		expect_drained(em->x);
	else if (k && k->link == em->map.l)
		lane_link_give_up(k, "READs of a cancelled range did not end");
}

bool expect_drain(struct pool_expect *x)
{
	struct link_buffer b = { .req = x->req, .gone = true };

	if (!x->lane->conn || !(x->buffer || x->pull))
		return false;
	if (!x->map || x->map->posted == 0)
		if (link_buffer_send(x->lane->conn, &b))
			return false;
	if (!x->map || (x->pull && x->map->posted == 0))
		return false;
	x->map->delayed = false;
	x->map->tick.due = drain_due;
	link_tick_set(x->map->map.l->ports, &x->map->tick, LINK_DRAIN_MS);
	return true;
}
