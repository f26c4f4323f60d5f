/* Links to a peer that violates the protocol: it harms only its own
 * transfer. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "pool/lane/link_priv.h"
#include "tests/unit/fake_verbs_lanes.h"

#define MIB (1ull << 20)
#define SIZE 8192u /* small enough for the played side to send at once */

static struct lanes w;
static struct lanes_played *const p = &w.played;

static int setup(void **state)
{
	(void)state;
	lanes_open(&w, 1);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	lanes_close(&w);
	return 0;
}

static void turns(int n)
{
	while (n--)
		lanes_turn(&w);
}

/* ---- a played holder ---- */

/* The test plays the holder, with a link. */
static void hold_link(void)
{
	lanes_play_holder(&w);
	assert_int_equal(p->link.word, LINK_OFFER);
	lanes_qp_open(&w);
	lanes_qp_connect(&w);
	lanes_say_address(&w, LINK_ACCEPT, LINK_PUSH, p->link.attempt, NULL);
	lanes_until(&w, p->nlinks == 2 && p->link.word == LINK_UP);
	lanes_until(&w, w.ups == 1);
}

/* The same, with one range registered for it to write. */
static void hold(struct lanes_move *m)
{
	hold_link();
	lanes_expect(&w, m, 0, SIZE, false);
	lanes_until(&w, p->nbuffers == 1);
	assert_int_equal(p->buffer.req, m->x.req);
	assert_int_equal(p->buffer.length, SIZE);
}

static void note(uint64_t req, uint64_t upto, int32_t status)
{
	struct link_note n = { .req = req, .upto = upto, .status = status };

	lanes_work(&w, VERBS_SEND, &n, sizeof(n), 0, 0);
}

static void on_tcp_sent(void *arg, int err)
{
	(void)arg;
	assert_int_equal(err, 0);
}

/* Sends the range over TCP, as a holder must when its link has failed. */
static void finish_by_tcp(struct lanes_move *m)
{
	lanes_until(&w, !w.lane->linked[LINK_PUSH]);
	assert_int_equal(pool_conn_send_file(p->conn, POOL_MSG_DATA, m->x.req,
					     NULL, m->from, 0, SIZE,
					     on_tcp_sent, NULL), 0);
	m->sent = true;
	lanes_check(&w, m);
}

/* Fewer or more bytes than requested are refused. */
static void bytes_have_the_length_of_the_range(void **state)
{
	static const uint64_t lengths[] = { SIZE / 2, SIZE * 2 };

	(void)state;
	hold_link();
	for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
		struct lanes_move m;

		lanes_expect(&w, &m, 0, SIZE, false);
		assert_int_equal(ftruncate(m.from, SIZE * 2), 0);
		assert_int_equal(pool_conn_send_file(p->conn, POOL_MSG_DATA,
						     m.x.req, NULL, m.from, 0,
						     lengths[i], on_tcp_sent,
						     NULL), 0);
		lanes_until(&w, m.got);
		assert_int_equal(m.x.landing.status, -EBADMSG);
		lanes_drop(&m);
	}
}

static void a_note_may_not_go_beyond_the_range(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	note(m.x.req, SIZE + 1, 0);
	lanes_until(&w, p->link.word == LINK_DOWN);
	finish_by_tcp(&m);
}

static void notes_may_not_go_back(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	note(m.x.req, SIZE / 2, 0);
	note(m.x.req, SIZE / 2, 0);
	lanes_until(&w, p->link.word == LINK_DOWN);
	finish_by_tcp(&m);
}

static void a_note_of_another_length_breaks_the_link(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	lanes_work(&w, VERBS_SEND, "short", 5, 0, 0);
	lanes_until(&w, p->link.word == LINK_DOWN);
	finish_by_tcp(&m);
}

/* Notes about unknown ranges are ignored; the asker verifies its bytes. */
static void notes_of_what_nobody_asked_for_are_passed_over(void **state)
{
	uint8_t bytes[SIZE];
	struct lanes_move m;

	(void)state;
	hold(&m);
	note(m.x.req + 7, SIZE, 0);
	note(m.x.req + 7, 0, -EIO);
	turns(20);
	assert_true(w.lane->linked[LINK_PUSH]);
	assert_int_equal(pread(m.from, bytes, SIZE, 0), SIZE);
	lanes_work(&w, VERBS_WRITE, bytes, SIZE, p->buffer.addr,
		   p->buffer.rkey);
	assert_int_equal(p->status, 0);
	note(m.x.req, SIZE, 0);
	m.sent = true;
	lanes_check(&w, &m);
	note(m.x.req, SIZE, 0); /* over */
	turns(20);
	assert_true(w.lane->linked[LINK_PUSH]);
	/* Its memory is not registered any more. */
	lanes_work(&w, VERBS_WRITE, "late", 4, p->buffer.addr, p->buffer.rkey);
	assert_int_equal(p->status, -EREMOTEIO);
}

/* Another peer has a link of its own, and may guess the request's number. */
static void notes_about_a_range_of_another_link_are_passed_over(void **state)
{
	static struct link other;
	struct link_map *map; /* the first member of expect_map */
	struct lanes_move m;
	struct link *own;

	(void)state;
	hold(&m);
	map = (struct link_map *)m.x.map;
	own = map->l;
	map->l = &other;
	note(m.x.req, SIZE, 0);
	turns(20);
	assert_false(m.got);
	map->l = own;
	assert_true(w.lane->linked[LINK_PUSH]);
	lanes_say(&w, LINK_DOWN, LINK_PUSH, p->link.attempt);
	finish_by_tcp(&m);
}

static void nothing_but_the_range_may_be_written(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	lanes_work(&w, VERBS_WRITE, "beyond", 6, p->buffer.addr + SIZE - 5,
		   p->buffer.rkey);
	assert_int_equal(p->status, -EREMOTEIO);
	finish_by_tcp(&m);
}

static void expected_in_parts(bool parts)
{
	struct lanes_move m;

	p->parts = parts;
	hold_link();
	lanes_expect(&w, &m, 0, 3 * MIB, false);
	lanes_until(&w, p->nbuffers == (parts ? 3 : 1));
	turns(20);
	assert_int_equal(p->nbuffers, parts ? 3 : 1);
	assert_int_equal(p->buffer.at, parts ? 2 * MIB : 0);
	assert_int_equal(p->buffer.length, parts ? MIB : 3 * MIB);
	lanes_cancel(&w, &m);
	lanes_until(&w, m.got);
	lanes_drop(&m);
}

static void a_range_is_announced_in_parts(void **state)
{
	(void)state;
	expected_in_parts(true);
}

static void but_not_to_a_peer_without_parts(void **state)
{
	(void)state;
	expected_in_parts(false);
}

/* Bytes reported as written are checksummed only after they were
 * deregistered. */
static void bytes_that_change_later_do_not_pass(void **state)
{
	uint8_t bytes[SIZE] = { 0 };
	struct lanes_move m;

	(void)state;
	hold(&m);
	note(m.x.req, SIZE / 2, 0);
	lanes_work(&w, VERBS_WRITE, "late", 4, p->buffer.addr, p->buffer.rkey);
	assert_int_equal(p->status, 0);
	note(m.x.req, SIZE, 0);
	lanes_until(&w, m.got);
	assert_int_equal(m.x.landing.status, 0);
	assert_int_equal(pread(m.to, bytes, SIZE, 0), SIZE);
	assert_memory_equal(bytes, "late", 4);
	assert_true(XXH128_isEqual(XXH3_128bits(bytes, SIZE),
				   m.x.landing.sum));
	lanes_drop(&m);
}

static void a_part_that_is_there_is_out_of_reach(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	hold_link();
	lanes_expect(&w, &m, 0, 3 * MIB, false);
	lanes_until(&w, p->nbuffers == 3);
	note(m.x.req, MIB, 0);
	turns(20);
	assert_int_equal(m.x.landing.got, MIB);
	lanes_work(&w, VERBS_WRITE, "late", 4, p->first.addr, p->first.rkey);
	assert_int_equal(p->status, -EREMOTEIO);
	lanes_cancel(&w, &m);
	lanes_until(&w, m.got);
	lanes_drop(&m);
}

static void the_range_may_not_be_read(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	lanes_work(&w, VERBS_READ, "", 1, p->buffer.addr, p->buffer.rkey);
	assert_int_equal(p->status, -EREMOTEIO);
	finish_by_tcp(&m);
}

static void no_qpn(struct verbs_address *a)
{
	a->qpn = 0;
}

static void no_such_mtu(struct verbs_address *a)
{
	a->mtu = 9;
}

static void another_network(struct verbs_address *a)
{
	a->link = VERBS_INFINIBAND;
}

static void an_accept_of_nonsense_is_refused(void **state)
{
	static void (*const fixes[])(struct verbs_address *a) = {
		no_qpn, no_such_mtu, another_network
	};
	unsigned int before;

	(void)state;
	lanes_play_holder(&w);
	lanes_qp_open(&w);
	for (size_t i = 0; i < sizeof(fixes) / sizeof(fixes[0]); i++) {
		before = p->nlinks;
		assert_int_equal(p->link.word, LINK_OFFER);
		lanes_say_address(&w, LINK_ACCEPT, LINK_PUSH, p->link.attempt,
				  fixes[i]);
		lanes_until(&w, p->nlinks > before);
		assert_int_equal(p->link.word, LINK_DOWN);
		lanes_until(&w, w.ups == 1); /* the lane works without a link */
		if (i + 1 < sizeof(fixes) / sizeof(fixes[0]))
			lanes_until(&w, p->link.word == LINK_OFFER);
	}
}

static void a_holder_does_not_end_tls_unasked(void **state)
{
	(void)state;
	lanes_play_plain_holder(&w);
	lanes_until(&w, !p->conn && !w.lane);
	assert_int_equal(w.ups, 0);
}

static void the_holder_does_not_offer(void **state)
{
	(void)state;
	lanes_play_holder(&w);
	lanes_qp_open(&w);
	lanes_say_address(&w, LINK_OFFER, LINK_PUSH, p->link.attempt, NULL);
	lanes_until(&w, !p->conn && !w.lane);
}

static void an_accept_comes_once(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	lanes_say_address(&w, LINK_ACCEPT, LINK_PUSH, p->link.attempt, NULL);
	lanes_until(&w, !p->conn && m.got);
	assert_true(m.x.landing.status < 0);
	lanes_drop(&m);
}

static void a_link_of_no_kind_ends_the_lane(void **state)
{
	(void)state;
	lanes_play_holder(&w);
	lanes_say(&w, LINK_DOWN, (enum link_kind)7, p->link.attempt);
	lanes_until(&w, !p->conn && !w.lane);
}

static void say_buffer(uint64_t req, uint64_t addr, uint64_t length, bool gone)
{
	struct link_buffer b = { .req = req, .addr = addr, .length = length,
				 .rkey = p->region.mr ? p->region.mr->rkey : 1,
				 .gone = gone };

	assert_int_equal(link_buffer_send(p->conn, &b), 0);
}

/* Sends a BUFFER for half of a range, in the played side's memory. */
static void say_part(uint64_t req, uint64_t at, uint64_t length)
{
	struct link_buffer b = { .req = req, .at = at, .length = length,
				 .addr = (uintptr_t)p->mem + at,
				 .rkey = p->region.mr->rkey };

	assert_int_equal(link_buffer_send(p->conn, &b), 0);
}

static void what_was_not_asked_for_is_not_read(void **state)
{
	struct lanes_move m;

	(void)state;
	hold(&m);
	say_buffer(m.x.req + 9, 4096, SIZE, false);
	lanes_until(&w, p->nbuffers == 2);
	assert_int_equal(p->buffer.req, m.x.req + 9);
	assert_true(p->buffer.gone);
	/* A pushed range must not be pulled. */
	say_buffer(m.x.req, 4096, SIZE, false);
	lanes_until(&w, !p->conn && m.got);
	lanes_drop(&m);
}

/* The test plays the holder, with a pull link. */
static void pull(struct lanes_move *m)
{
	lanes_play_holder(&w);
	lanes_say(&w, LINK_DOWN, LINK_PUSH, p->link.attempt);
	lanes_until(&w, w.ups == 1);
	lanes_expect(&w, m, 0, SIZE, true); /* makes the asker offer a link */
	lanes_until(&w, p->link.word == LINK_OFFER &&
				p->link.kind == LINK_PULL);
	lanes_cancel(&w, m);
	lanes_until(&w, m->got);
	lanes_drop(m);
	lanes_qp_open(&w);
	lanes_qp_connect(&w);
	lanes_say_address(&w, LINK_ACCEPT, LINK_PULL, p->link.attempt, NULL);
	lanes_until(&w, w.lane->linked[LINK_PULL]);
	lanes_expect(&w, m, 0, SIZE, true);
	turns(20);
	p->nbuffers = 0;
}

static void the_source_of_a_pulled_range_has_its_length(void **state)
{
	struct lanes_move m;

	(void)state;
	pull(&m);
	say_buffer(m.x.req, (uintptr_t)p->mem, SIZE - 1, false);
	lanes_until(&w, p->nbuffers == 1);
	assert_false(p->buffer.gone); /* asks for TCP */
	assert_int_equal(p->buffer.length, 0);
	finish_by_tcp(&m);
}

static void a_pulled_range_is_read_once(void **state)
{
	struct lanes_move m;

	(void)state;
	pull(&m);
	assert_int_equal(pread(m.from, p->mem, SIZE, 0), SIZE);
	fake_verbs_hold(true);
	say_buffer(m.x.req, (uintptr_t)p->mem, SIZE, false);
	turns(20);
	say_buffer(m.x.req, (uintptr_t)p->mem, SIZE, false);
	lanes_until(&w, !p->conn && m.got);
	lanes_drop(&m);
}

static void what_cannot_be_read_is_asked_for_again(void **state)
{
	struct lanes_move m;

	(void)state;
	pull(&m);
	say_buffer(m.x.req, (uintptr_t)p->mem + 1, SIZE, false);
	lanes_until(&w, p->nbuffers == 1);
	assert_int_equal(p->buffer.length, 0);
	assert_false(p->buffer.gone);
	finish_by_tcp(&m);
}

static void a_pulled_range_is_read_part_by_part(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	pull(&m);
	assert_int_equal(pread(m.from, p->mem, SIZE, 0), SIZE);
	say_part(m.x.req, 0, SIZE / 2);
	turns(20);
	assert_int_equal(m.x.landing.got, SIZE / 2);
	assert_int_equal(p->nbuffers, 0);
	say_part(m.x.req, SIZE / 2, SIZE / 2);
	lanes_until(&w, p->nbuffers == 1);
	assert_true(p->buffer.gone); /* it has all */
	m.sent = true;
	lanes_check(&w, &m);
	say_part(m.x.req, SIZE, 1); /* over */
	turns(20);
	assert_non_null(p->conn);
}

static void the_parts_of_a_pulled_range_are_announced_in_order(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	pull(&m);
	say_part(m.x.req, 0, SIZE / 2);
	turns(20);
	say_part(m.x.req, SIZE / 2 + 1, SIZE / 4);
	lanes_until(&w, !p->conn && m.got);
	assert_true(m.x.landing.status < 0);
	lanes_drop(&m);
}

static void a_pulled_range_may_end_early(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	pull(&m);
	say_part(m.x.req, 0, SIZE / 2);
	turns(20);
	say_part(m.x.req, SIZE / 2, 0);
	lanes_until(&w, p->nbuffers == 1);
	assert_false(p->buffer.gone); /* asks for TCP */
	assert_int_equal(p->buffer.length, 0);
	finish_by_tcp(&m);
}

/* Here the asker reads: only it knows what has arrived. */
static void notes_about_a_pulled_range_break_the_link(void **state)
{
	struct lanes_move m;

	(void)state;
	pull(&m);
	note(m.x.req, SIZE, 0);
	lanes_until(&w, !w.lane->linked[LINK_PULL]);
	assert_false(m.got);
	finish_by_tcp(&m);
}

static void a_pulled_range_that_stays_half_is_let_go(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	pull(&m);
	say_part(m.x.req, 0, SIZE / 2);
	turns(20);
	lanes_cancel(&w, &m);
	lanes_until(&w, m.got && p->nbuffers == 1);
	assert_true(p->buffer.gone);
	lanes_drop(&m);
	assert_true(w.lane->linked[LINK_PULL]);
}

/* ---- a played asker ---- */

static void ask(void)
{
	lanes_play_asker(&w);
	lanes_qp_open(&w);
	lanes_say_address(&w, LINK_OFFER, LINK_PUSH, 1, NULL);
	lanes_until(&w, p->nlinks == 1);
	assert_int_equal(p->link.word, LINK_ACCEPT);
	lanes_qp_connect(&w);
	lanes_say(&w, LINK_UP, LINK_PUSH, 1);
	turns(20);
}

/* Handles the GET that was just sent, as the holder. */
static void get(struct lanes_move *m, uint64_t req)
{
	lanes_file(m, SIZE, req);
	lanes_send(&w, m);
}

static void is_sent_by_tcp(struct lanes_move *m)
{
	lanes_until(&w, m->sent);
	assert_int_equal(m->s.status, 0);
	lanes_until(&w, p->ndata == 1);
	lanes_drop(m);
}

static void an_offer_of_nonsense_is_refused(void **state)
{
	(void)state;
	lanes_play_asker(&w);
	lanes_qp_open(&w);
	lanes_say_address(&w, LINK_OFFER, LINK_PUSH, 1, no_qpn);
	lanes_until(&w, p->nlinks == 1);
	assert_int_equal(p->link.word, LINK_DOWN);
	lanes_say_address(&w, LINK_OFFER, LINK_PULL, 1, no_such_mtu);
	lanes_until(&w, p->nlinks == 2);
	assert_int_equal(p->link.word, LINK_DOWN);
	assert_int_equal(p->link.kind, LINK_PULL);
	lanes_say(&w, LINK_UP, LINK_PUSH, 1); /* of no offer */
	lanes_say(&w, LINK_UP, LINK_PULL, 77);
	turns(20);
	assert_non_null(p->conn);
	assert_int_equal(pool_counter_value(&w.holds.links_up), 0);
}

static void the_requester_may_offer_again(void **state)
{
	(void)state;
	ask();
	for (uint32_t i = 2; i < 40; i++) {
		lanes_say_address(&w, LINK_OFFER, LINK_PUSH, i, NULL);
		lanes_until(&w, p->nlinks == i);
		assert_int_equal(p->link.word, LINK_ACCEPT);
		assert_int_equal(p->link.attempt, i);
	}
}

static void where_it_may_not_be_written_it_goes_by_tcp(void **state)
{
	struct lanes_move m;

	(void)state;
	ask();
	say_buffer(1, (uintptr_t)p->mem + 1, SIZE, false);
	get(&m, 1);
	is_sent_by_tcp(&m);
}

static void a_buffer_has_the_length_of_its_range(void **state)
{
	struct lanes_move m;

	(void)state;
	ask();
	get(&m, 1);
	turns(20);
	say_buffer(1, (uintptr_t)p->mem, SIZE / 2, false);
	is_sent_by_tcp(&m);
}

/* A BUFFER longer than the range does not get bytes after the object. */
static void a_buffer_is_not_longer_than_its_range(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	ask();
	for (uint64_t req = 1; req <= 2; req++) {
		p->ndata = 0;
		if (req == 1)
			say_buffer(req, (uintptr_t)p->mem, SIZE + 1, false);
		turns(20);
		get(&m, req);
		if (req == 2)
			say_buffer(req, (uintptr_t)p->mem, SIZE + 1, false);
		is_sent_by_tcp(&m);
	}
	assert_int_equal(pool_counter_value(&w.holds.rdma_fallbacks), 0);
}

static void is_written_part_by_part(bool early)
{
	uint8_t bytes[SIZE];
	struct lanes_move m;

	p->parts = true;
	ask();
	if (early)
		say_part(1, 0, SIZE / 2);
	turns(20);
	get(&m, 1);
	if (!early)
		say_part(1, 0, SIZE / 2);
	lanes_until(&w, p->nnotes == 1);
	assert_int_equal(p->note.upto, SIZE / 2);
	say_part(1, SIZE / 2, SIZE / 2);
	lanes_until(&w, m.sent);
	assert_int_equal(m.s.status, 0);
	assert_int_equal(p->ndata, 0);
	assert_int_equal(pread(m.from, bytes, SIZE, 0), SIZE);
	assert_memory_equal(bytes, p->mem, SIZE);
	lanes_drop(&m);
	say_part(1, SIZE, 1); /* over */
	turns(20);
	assert_non_null(p->conn);
}

static void a_range_is_written_part_by_part(void **state)
{
	(void)state;
	is_written_part_by_part(false);
}

static void parts_may_come_before_their_range(void **state)
{
	(void)state;
	is_written_part_by_part(true);
}

static void half_a_range_goes_by_tcp(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	ask();
	get(&m, 1);
	say_part(1, 0, SIZE / 2);
	is_sent_by_tcp(&m);
	assert_int_equal(pool_counter_value(&w.holds.rdma_fallbacks), 1);
}

static void a_range_that_ends_early_goes_by_tcp(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	ask();
	get(&m, 1);
	say_part(1, 0, SIZE / 2);
	say_part(1, SIZE / 2, 0);
	is_sent_by_tcp(&m);
	/* The same, before the GET. */
	say_part(2, 0, SIZE / 2);
	say_part(2, SIZE / 2, 0);
	turns(20);
	p->ndata = 0;
	get(&m, 2);
	is_sent_by_tcp(&m);
}

static void parts_that_are_not_next(bool early, uint64_t at, uint64_t length)
{
	struct lanes_move m;

	p->parts = true;
	ask();
	if (!early)
		get(&m, 1);
	say_part(1, 0, SIZE / 2);
	turns(20);
	say_part(1, at, length);
	lanes_until(&w, !p->conn);
	if (!early) {
		lanes_until(&w, m.sent);
		lanes_drop(&m);
	}
}

static void parts_have_no_gaps(void **state)
{
	(void)state;
	parts_that_are_not_next(false, SIZE / 2 + 1, 1);
}

static void parts_do_not_overlap(void **state)
{
	(void)state;
	parts_that_are_not_next(false, SIZE / 2 - 1, 1);
}

static void parts_do_not_go_beyond_the_range(void **state)
{
	(void)state;
	parts_that_are_not_next(false, SIZE / 2, SIZE / 2 + 1);
}

static void nor_do_they_before_it_is_asked_for(void **state)
{
	(void)state;
	parts_that_are_not_next(true, SIZE / 2 + 1, 1);
}

static void parts_are_bounded(void **state)
{
	struct lanes_move m;

	(void)state;
	p->parts = true;
	ask();
	get(&m, 1);
	for (uint64_t i = 0; i < LINK_PARTS_MAX; i++)
		say_part(1, i, 1);
	turns(100);
	assert_non_null(p->conn);
	say_part(1, LINK_PARTS_MAX, 1);
	lanes_until(&w, !p->conn && m.sent);
	lanes_drop(&m);
}

static void the_requester_sends_no_notes(void **state)
{
	(void)state;
	ask();
	note(1, SIZE, 0);
	lanes_until(&w, p->nlinks == 2);
	assert_int_equal(p->link.word, LINK_DOWN);
}

static void the_requester_can_access_nothing(void **state)
{
	const struct ibv_qp_attr *qp;
	const struct ibv_mr *source;
	struct lanes_move m;

	(void)state;
	ask();
	say_buffer(1, (uintptr_t)p->mem, SIZE, false);
	get(&m, 1);
	lanes_until(&w, m.sent);
	assert_int_equal(m.s.status, 0);
	assert_int_equal(p->ndata, 0);
	lanes_drop(&m);
	/* The source's registration is cached for the next request. */
	assert_int_equal(pool_gauge_value(&w.cached.count), 1);
	source = fake_verbs_last_region();
	assert_int_equal(fake_verbs_access(source), 0);
	qp = fake_verbs_qp_attr(p->link.address.qpn);
	assert_int_equal(qp->qp_access_flags, 0);
	lanes_work(&w, VERBS_READ, "", 1, (uintptr_t)source->addr,
		   source->rkey);
	assert_int_equal(p->status, -EREMOTEIO);
}

static void buffers_for_nothing_are_bounded(void **state)
{
	struct lanes_move m;

	(void)state;
	ask();
	for (uint64_t req = 1; req <= 3 * LINK_BUFFERS_MAX; req++)
		say_buffer(req, (uintptr_t)p->mem, SIZE, false);
	say_buffer(1, 0, 0, true); /* dropped, yet confirmed */
	lanes_until(&w, p->nnotes == 1);
	assert_int_equal(p->note.req, 1);
	assert_int_equal(p->note.status, -ECANCELED);
	get(&m, 3 * LINK_BUFFERS_MAX);
	lanes_until(&w, m.sent);
	assert_int_equal(pool_counter_value(&w.holds.rdma_out), SIZE);
	lanes_drop(&m);
	/* Two BUFFERs for one part are invalid. */
	say_buffer(2 * LINK_BUFFERS_MAX + 5, (uintptr_t)p->mem, SIZE, false);
	lanes_until(&w, !p->conn);
}

/* As if the timers' time had passed. */
static void pass_time(struct link_ports *ports)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &ports->ticked)
		pool_list_entry(it, struct link_tick, link)->due_ms = 0;
}

static void a_range_may_not_be_read_for_ever(void **state)
{
	struct lanes_move m;

	(void)state;
	lanes_play_asker(&w);
	lanes_qp_open(&w);
	lanes_say_address(&w, LINK_OFFER, LINK_PULL, 1, NULL);
	lanes_until(&w, p->nlinks == 1);
	assert_int_equal(p->link.word, LINK_ACCEPT);
	lanes_qp_connect(&w);
	lanes_say(&w, LINK_UP, LINK_PULL, 1);
	turns(20);
	lanes_file(&m, SIZE, 1);
	m.x.buffer = false;
	m.x.pull = true;
	lanes_send(&w, &m);
	lanes_until(&w, p->nbuffers == 1);
	assert_int_equal(p->buffer.length, SIZE);
	turns(20);
	assert_false(m.sent);
	pass_time(w.hold->links);
	lanes_until(&w, m.sent);
	assert_int_equal(m.s.status, -ETIMEDOUT);
	lanes_drop(&m);
	lanes_work(&w, VERBS_READ, "", 1, p->buffer.addr, p->buffer.rkey);
	assert_int_equal(p->status, -EREMOTEIO);
}

static void a_range_that_nobody_comes_for_goes_by_tcp(void **state)
{
	struct lanes_move m;

	(void)state;
	ask();
	get(&m, 1);
	is_sent_by_tcp(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bytes_have_the_length_of_the_range),
		T(a_note_may_not_go_beyond_the_range),
		T(notes_may_not_go_back),
		T(a_note_of_another_length_breaks_the_link),
		T(notes_of_what_nobody_asked_for_are_passed_over),
		T(notes_about_a_range_of_another_link_are_passed_over),
		T(nothing_but_the_range_may_be_written),
		T(a_range_is_announced_in_parts),
		T(but_not_to_a_peer_without_parts),
		T(bytes_that_change_later_do_not_pass),
		T(a_part_that_is_there_is_out_of_reach),
		T(the_range_may_not_be_read),
		T(an_accept_of_nonsense_is_refused),
		T(a_holder_does_not_end_tls_unasked),
		T(the_holder_does_not_offer),
		T(an_accept_comes_once),
		T(a_link_of_no_kind_ends_the_lane),
		T(what_was_not_asked_for_is_not_read),
		T(the_source_of_a_pulled_range_has_its_length),
		T(a_pulled_range_is_read_once),
		T(what_cannot_be_read_is_asked_for_again),
		T(a_pulled_range_is_read_part_by_part),
		T(the_parts_of_a_pulled_range_are_announced_in_order),
		T(a_pulled_range_may_end_early),
		T(notes_about_a_pulled_range_break_the_link),
		T(a_pulled_range_that_stays_half_is_let_go),
		T(an_offer_of_nonsense_is_refused),
		T(the_requester_may_offer_again),
		T(where_it_may_not_be_written_it_goes_by_tcp),
		T(a_buffer_has_the_length_of_its_range),
		T(a_buffer_is_not_longer_than_its_range),
		T(a_range_is_written_part_by_part),
		T(parts_may_come_before_their_range),
		T(half_a_range_goes_by_tcp),
		T(a_range_that_ends_early_goes_by_tcp),
		T(parts_have_no_gaps),
		T(parts_do_not_overlap),
		T(parts_do_not_go_beyond_the_range),
		T(nor_do_they_before_it_is_asked_for),
		T(parts_are_bounded),
		T(the_requester_sends_no_notes),
		T(the_requester_can_access_nothing),
		T(buffers_for_nothing_are_bounded),
		T(a_range_may_not_be_read_for_ever),
		T(a_range_that_nobody_comes_for_goes_by_tcp),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
