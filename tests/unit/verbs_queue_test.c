/* Queue pairs on a loop: work, notes, failures of all kinds, closing. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/verbs/queue.h"
#include "pool/verbs/region.h"
#include "pool/verbs/verbs_priv.h"
#include "tests/unit/fake_verbs.h"

#define BYTES 4096u
#define REMOTE                                              \
	(IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | \
	 IBV_ACCESS_REMOTE_READ)
#define SETTLED 1000 /* turns, at most */

/* ---- two sides, one loop ---- */

struct side {
	struct verbs_port *port;
	struct verbs_cq *cq;
	struct verbs_qp *qp;
	uint8_t mem[BYTES];
	struct verbs_region region;
	int nbroken, err, nclosed, ncq_closed;
	unsigned int nnotes;
	char note[VERBS_NOTE_MAX + 1];
	bool close_in_note, close_in_broken;
};

struct item {
	struct verbs_work w;
	int n, status;
	bool close;
};

static uv_loop_t loop;
static struct verbs *v;
static struct fake_device *devices[2];
static struct side a, b;
static int order[4096], ndone;
static bool inside_post;
static uint32_t inline_max; /* of the devices */
static uint64_t clock_ms;

static uint64_t fake_now(void)
{
	return clock_ms * 1000000;
}

static void fake_random(void *buf, size_t n)
{
	static uint8_t next;

	for (size_t i = 0; i < n; i++)
		((uint8_t *)buf)[i] = (uint8_t)(0xa0 + next++);
}

static const struct pool_clock test_clock = { fake_now, fake_now, fake_random };

static void on_closed(void *arg)
{
	struct side *s = arg;

	s->nclosed++;
	s->qp = NULL;
}

static void close_side(struct side *s)
{
	verbs_qp_close(s->qp, on_closed, s);
	assert_int_equal(s->nclosed, 0);
}

static void on_note(void *arg, const void *msg, uint32_t length)
{
	struct side *s = arg;

	assert_true(length <= VERBS_NOTE_MAX);
	memcpy(s->note, msg, length);
	s->note[length] = '\0';
	s->nnotes++;
	assert_int_equal(s->nbroken, 0);
	if (s->close_in_note)
		close_side(s);
}

static bool is_ready(const struct verbs_qp *qp)
{
	return qp->state == VERBS_QP_READY;
}

static void on_broken(void *arg, int err)
{
	struct side *s = arg;

	s->nbroken++;
	s->err = err;
	assert_false(is_ready(s->qp));
	if (s->close_in_broken)
		close_side(s);
}

static const struct verbs_qp_ops ops = { on_note, on_broken };

static void on_done(struct verbs_work *w, int status)
{
	struct item *it = pool_container_of(w, struct item, w);

	assert_false(inside_post);
	assert_int_equal(it->status, 1);
	it->status = status;
	order[ndone++] = it->n;
	if (it->close)
		close_side(&a);
}

static void turns(int n)
{
	while (n--)
		uv_run(&loop, UV_RUN_NOWAIT);
}

static void until(const int *value, int wanted)
{
	for (int i = 0; i < SETTLED && *value != wanted; i++)
		turns(1);
	assert_int_equal(*value, wanted);
}

static int open_qp(struct side *s, int access)
{
	struct verbs_qp_opts o = { .cq = s->cq, .pd = s->port->pd,
				   .access = access, .ops = &ops, .arg = s };

	return verbs_qp_open(&o, &s->qp);
}

static void open_side(struct side *s, unsigned int i)
{
	memset(s, 0, sizeof(*s));
	s->port = verbs_port_at(v, i);
	assert_int_equal(verbs_cq_open(s->port, &loop, 4, &s->cq), 0);
	assert_int_equal(open_qp(s, IBV_ACCESS_REMOTE_WRITE |
				    IBV_ACCESS_REMOTE_READ), 0);
	assert_false(is_ready(s->qp));
	assert_int_equal(verbs_region_open_memory(s->port, s->port->pd, s->mem,
						  BYTES, REMOTE, &s->region),
			 0);
}

static void connect_to(struct side *s, struct side *peer)
{
	struct verbs_address addr;

	verbs_qp_address(peer->qp, &addr);
	assert_null(verbs_address_wrong(&addr, s->port));
	assert_int_equal(verbs_qp_connect(s->qp, &addr), 0);
	assert_true(is_ready(s->qp));
}

static void on_cq_closed(void *arg)
{
	((struct side *)arg)->ncq_closed++;
}

static void close_cq(struct side *s)
{
	if (s->qp && !s->nclosed) {
		close_side(s);
		until(&s->nclosed, 1);
	}
	verbs_region_close(&s->region);
	verbs_cq_close(s->cq, on_cq_closed, s);
	until(&s->ncq_closed, 1);
}

static int setup_with(int max_wr)
{
	fake_verbs_reset();
	clock_ms = 1000;
	pool_clock_set(&test_clock);
	ndone = 0;
	inside_post = false;
	for (int i = 0; i < 2; i++) {
		devices[i] = fake_verbs_roce(i ? "rxe1" : "rxe0");
		fake_verbs_attr(devices[i])->max_qp_wr = max_wr;
		fake_verbs_inline(devices[i], inline_max);
	}
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(verbs_open(NULL, &v), 0);
	open_side(&a, 0);
	open_side(&b, 1);
	connect_to(&a, &b);
	connect_to(&b, &a);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return setup_with(1024);
}

static int setup_inline(void **state)
{
	(void)state;
	inline_max = 8;
	setup_with(1024);
	inline_max = 0;
	return 0;
}

static int setup_shallow(void **state)
{
	(void)state;
	return setup_with(4);
}

static int teardown(void **state)
{
	(void)state;
	fake_verbs_after_poll = NULL;
	close_cq(&a);
	close_cq(&b);
	verbs_close(v);
	turns(3);
	assert_int_equal(uv_loop_close(&loop), 0);
	assert_int_equal(fake_verbs_left(), 0);
	pool_clock_set(NULL);
	return 0;
}

/* ---- work ---- */

static void prepare(struct item *it, enum verbs_op op, int n)
{
	memset(it, 0, sizeof(*it));
	it->n = n;
	it->status = 1;
	it->w.op = op;
	it->w.addr = a.mem;
	it->w.lkey = a.region.mr->lkey;
	it->w.length = 100;
	it->w.remote_addr = (uintptr_t)b.mem;
	it->w.rkey = b.region.mr->rkey;
	it->w.done = on_done;
}

static int post(struct item *it)
{
	int err;

	inside_post = true;
	err = verbs_qp_post(a.qp, &it->w);
	inside_post = false;
	return err;
}

static void post_all(struct item *items, int n)
{
	for (int i = 0; i < n; i++) {
		prepare(&items[i], VERBS_WRITE, i);
		assert_int_equal(post(&items[i]), 0);
	}
}

static void send_note(const char *text, struct item *it, int n)
{
	prepare(it, VERBS_SEND, n);
	it->w.addr = text;
	it->w.length = (uint32_t)strlen(text);
	assert_int_equal(post(it), 0);
}

static void bytes_are_written_and_read(void **state)
{
	struct item w, r;

	(void)state;
	memset(a.mem, 'a', 200);
	memset(b.mem, 'b', 200);
	prepare(&w, VERBS_WRITE, 0);
	w.w.remote_addr += 50;
	assert_int_equal(post(&w), 0);
	assert_int_equal(ndone, 0);
	until(&ndone, 1);
	assert_int_equal(w.status, 0);
	assert_int_equal(b.mem[49], 'b');
	assert_int_equal(b.mem[50], 'a');
	assert_int_equal(b.mem[149], 'a');
	assert_int_equal(b.mem[150], 'b');
	prepare(&r, VERBS_READ, 1);
	r.w.addr = a.mem + 1000;
	assert_int_equal(post(&r), 0);
	until(&ndone, 2);
	assert_int_equal(r.status, 0);
	assert_memory_equal(a.mem + 1000, b.mem, 100);
}

static void messages_come_in_order_and_after_the_bytes(void **state)
{
	static struct item writes[500], notes[500];
	char text[VERBS_NOTE_MAX + 1];

	(void)state;
	for (int i = 0; i < 500; i++) {
		a.mem[i] = (uint8_t)(i % 250 + 1);
		prepare(&writes[i], VERBS_WRITE, 2 * i);
		writes[i].w.addr = a.mem + i;
		writes[i].w.length = 1;
		writes[i].w.remote_addr += (uint64_t)i;
		assert_int_equal(post(&writes[i]), 0);
		/* Copied when posted: the buffer may be reused although the
		 * work waits. */
		snprintf(text, sizeof(text), "byte %d", i);
		send_note(text, &notes[i], 2 * i + 1);
	}
	for (unsigned int seen = 0, tries = 0; seen < 500;) {
		turns(1);
		assert_true(++tries < SETTLED);
		for (; seen < b.nnotes; seen++)
			assert_int_equal(b.mem[seen], seen % 250 + 1);
	}
	assert_string_equal(b.note, "byte 499");
	until(&ndone, 1000);
	for (int i = 0; i < 1000; i++)
		assert_int_equal(order[i], i);
	memset(text, 'x', VERBS_NOTE_MAX);
	text[VERBS_NOTE_MAX] = '\0';
	send_note(text, &notes[0], 0);
	until(&ndone, 1001);
	turns(2);
	assert_string_equal(b.note, text);
}

/* Longer messages are not sent inline, even by the same device. */
static void short_messages_go_along_with_their_request(void **state)
{
	struct item notes[2];

	(void)state;
	send_note("it fits.", &notes[0], 0);
	until(&ndone, 1);
	turns(2);
	assert_string_equal(b.note, "it fits.");
	assert_int_equal(fake_verbs_inlined(), 1);
	send_note("it is too long", &notes[1], 1);
	until(&ndone, 2);
	turns(2);
	assert_string_equal(b.note, "it is too long");
	assert_int_equal(fake_verbs_inlined(), 1);
}

static void what_the_device_has_no_room_for_waits(void **state)
{
	static struct item items[40];

	(void)state;
	fake_verbs_hold(true);
	post_all(items, 40);
	assert_int_equal(fake_verbs_calls("ibv_post_send"), 4);
	fake_verbs_step(3);
	until(&ndone, 3);
	assert_int_equal(fake_verbs_calls("ibv_post_send"), 7);
	fake_verbs_hold(false);
	until(&ndone, 40);
	for (int i = 0; i < 40; i++) {
		assert_int_equal(order[i], i);
		assert_int_equal(items[i].status, 0);
	}
}

static void a_turn_of_the_loop_takes_a_bounded_number(void **state)
{
	static struct item items[1024];
	int seen = 0, before;

	(void)state;
	fake_verbs_hold(true);
	post_all(items, 64);
	for (int i = 0; i < 300; i++) {
		send_note("x", &items[64 + i], 64 + i);
	}
	fake_verbs_hold(false);
	while (ndone < 364) {
		before = ndone;
		turns(1);
		/* Once by the descriptor, and once by the idle handle. */
		assert_true(ndone - before <= 2 * 64);
		assert_true(++seen < SETTLED);
	}
	assert_true(seen >= 364 / 128);
}

static struct item late;
static int nlate;

static void complete_late(void)
{
	if (nlate++ == 0)
		fake_verbs_step(1);
}

static void what_completes_after_the_last_look_is_not_missed(void **state)
{
	struct item first;

	(void)state;
	nlate = 0;
	fake_verbs_hold(true);
	prepare(&first, VERBS_WRITE, 0);
	prepare(&late, VERBS_WRITE, 1);
	assert_int_equal(post(&first), 0);
	assert_int_equal(post(&late), 0);
	fake_verbs_step(1);
	fake_verbs_after_poll = complete_late;
	until(&ndone, 1);
	fake_verbs_after_poll = NULL;
	assert_true(nlate > 0);
	until(&ndone, 2);
}

static void polling_takes_what_has_come_without_the_loop(void **state)
{
	struct item it;

	(void)state;
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), 0);
	verbs_cq_poll(a.cq);
	assert_int_equal(ndone, 1);
	turns(3);
	assert_int_equal(ndone, 1);
}

/* ---- attributes ---- */

static void a_connection_has_what_both_sides_can(void **state)
{
	struct verbs_address mine, addr;
	const struct ibv_qp_attr *attr;

	(void)state;
	close_side(&a);
	until(&a.nclosed, 1);
	a.nclosed = 0;
	a.port->reads_in = 4;
	a.port->reads_out = 9;
	assert_int_equal(open_qp(&a, IBV_ACCESS_REMOTE_WRITE), 0);
	verbs_qp_address(a.qp, &mine);
	assert_int_equal(mine.link, VERBS_ROCE);
	assert_int_equal(mine.reads_in, 4);
	assert_int_equal(mine.reads_out, 9);
	assert_true(mine.psn <= 0xffffff);
	verbs_qp_address(b.qp, &addr);
	addr.mtu = IBV_MTU_1024;
	addr.reads_in = 200;
	addr.reads_out = 2;
	assert_int_equal(verbs_qp_connect(a.qp, &addr), 0);
	attr = fake_verbs_qp_attr(mine.qpn);
	assert_int_equal(attr->port_num, 1);
	assert_int_equal(attr->qp_access_flags, IBV_ACCESS_REMOTE_WRITE);
	assert_int_equal(attr->path_mtu, IBV_MTU_1024);
	assert_int_equal(attr->dest_qp_num, addr.qpn);
	assert_int_equal(attr->rq_psn, addr.psn);
	assert_int_equal(attr->sq_psn, mine.psn);
	assert_int_equal(attr->max_dest_rd_atomic, 2);
	assert_int_equal(attr->max_rd_atomic, 9);
	assert_int_equal(attr->timeout, VERBS_TIMEOUT);
	assert_int_equal(attr->retry_cnt, VERBS_RETRIES);
	assert_true(attr->retry_cnt < 7);
	assert_int_equal(attr->rnr_retry, VERBS_RNR_RETRIES);
	assert_int_equal(attr->ah_attr.is_global, 1);
	assert_int_equal(attr->ah_attr.grh.sgid_index, 1);
	assert_memory_equal(attr->ah_attr.grh.dgid.raw, addr.gid, 16);
	assert_int_equal(attr->ah_attr.port_num, 1);
	/* A second connect is refused. */
	assert_int_equal(verbs_qp_connect(a.qp, &addr), -ENOTCONN);
}

static void over_infiniband_the_lid_is_the_way(void **state)
{
	struct verbs_address addr;
	const struct ibv_qp_attr *attr;

	(void)state;
	close_side(&a);
	until(&a.nclosed, 1);
	a.nclosed = 0;
	a.port->link = VERBS_INFINIBAND;
	assert_int_equal(open_qp(&a, 0), 0);
	verbs_qp_address(b.qp, &addr);
	addr.lid = 12;
	assert_int_equal(verbs_qp_connect(a.qp, &addr), 0);
	attr = fake_verbs_qp_attr(fake_verbs_last_qp()->qp_num);
	assert_int_equal(attr->ah_attr.is_global, 0);
	assert_int_equal(attr->ah_attr.dlid, 12);
	assert_int_equal(attr->qp_access_flags, 0);
}

static void set_gid(struct verbs_address *addr, const char *bytes, size_t n)
{
	memset(addr->gid, 0, 16);
	memcpy(addr->gid + 16 - n, bytes, n);
}

static void hostile_addresses_are_refused(void **state)
{
	struct verbs_address good, addr;
	struct verbs_port ib = *a.port;

	(void)state;
	verbs_qp_address(b.qp, &good);
	assert_null(verbs_address_wrong(&good, a.port));
#define WRONG(field, value)                                            \
	do {                                                           \
		addr = good;                                           \
		addr.field = (value);                                  \
		assert_non_null(verbs_address_wrong(&addr, a.port));   \
	} while (0)
#define RIGHT(field, value)                                            \
	do {                                                           \
		addr = good;                                           \
		addr.field = (value);                                  \
		assert_null(verbs_address_wrong(&addr, a.port));       \
	} while (0)
	WRONG(link, VERBS_INFINIBAND);
	WRONG(link, VERBS_IWARP);
	WRONG(link, (enum verbs_link)77);
	WRONG(qpn, 0);
	WRONG(qpn, 1);
	WRONG(qpn, 0xffffff);
	WRONG(qpn, 0x1000000);
	WRONG(qpn, UINT32_MAX);
	RIGHT(qpn, 2);
	RIGHT(qpn, 0xfffffe);
	WRONG(psn, 0x1000000);
	RIGHT(psn, 0xffffff);
	RIGHT(psn, 0);
	WRONG(mtu, 0);
	WRONG(mtu, 6);
	WRONG(mtu, 255);
	RIGHT(mtu, 1);
	WRONG(reads_in, 0);
	WRONG(reads_out, 0);
	RIGHT(reads_in, 255);
	addr = good;
	set_gid(&addr, "", 0);
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\1", 1);
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xff\xff\x7f\0\0\1", 6); /* 127.0.0.1 */
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xff\xff\0\0\0\0", 6);
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xff\xff\xe0\0\0\1", 6); /* 224.0.0.1 */
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xff\xff\xff\xff\xff\xff", 6);
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xff\2\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16); /* ff02::1 */
	assert_non_null(verbs_address_wrong(&addr, a.port));
	set_gid(&addr, "\xfe\x80\0\0\0\0\0\0\0\0\0\0\0\0\0\1", 16);
	assert_null(verbs_address_wrong(&addr, a.port));
	/* InfiniBand: by LID, in the same subnet. */
	ib.link = addr.link = VERBS_INFINIBAND;
	memcpy(ib.gid.raw, addr.gid, 16);
	assert_non_null(verbs_address_wrong(&addr, &ib));
	addr.lid = 1;
	assert_null(verbs_address_wrong(&addr, &ib));
	addr.lid = 0xc000;
	assert_non_null(verbs_address_wrong(&addr, &ib));
	addr.lid = 1;
	addr.gid[7] = 9;
	assert_non_null(verbs_address_wrong(&addr, &ib));
	/* iWARP: no address to exchange. */
	ib.link = addr.link = VERBS_IWARP;
	assert_non_null(verbs_address_wrong(&addr, &ib));
}

/* ---- what breaks it ---- */

static void the_first_failure_cancels_the_rest(void **state)
{
	static struct item items[10];

	(void)state;
	fake_verbs_hold(true);
	post_all(items, 10); /* 4 are posted, 6 wait */
	fake_verbs_status(3, IBV_WC_LOC_QP_OP_ERR);
	fake_verbs_hold(false);
	until(&a.nbroken, 1);
	assert_int_equal(ndone, 10);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(order[i], i);
		assert_int_equal(items[i].status,
				 i < 2 ? 0 : i == 2 ? -EIO : -ECANCELED);
	}
	assert_int_equal(a.err, -EIO);
	assert_int_equal(a.port->failures, 1);
	assert_int_equal(post(&items[0]), -ENOTCONN);
	turns(10);
	assert_int_equal(a.nbroken, 1);
	assert_int_equal(ndone, 10);
}

static void every_status_of_a_device_has_its_meaning(void **state)
{
	static const int meaning[] = {
		[IBV_WC_LOC_LEN_ERR] = -EIO,
		[IBV_WC_LOC_PROT_ERR] = -EIO,
		[IBV_WC_BAD_RESP_ERR] = -EIO,
		[IBV_WC_REM_INV_REQ_ERR] = -EREMOTEIO,
		[IBV_WC_REM_ACCESS_ERR] = -EREMOTEIO,
		[IBV_WC_REM_OP_ERR] = -EREMOTEIO,
		[IBV_WC_RETRY_EXC_ERR] = -ETIMEDOUT,
		[IBV_WC_RNR_RETRY_EXC_ERR] = -ETIMEDOUT,
		[IBV_WC_RESP_TIMEOUT_ERR] = -ETIMEDOUT,
		[IBV_WC_FATAL_ERR] = -EIO,
		[IBV_WC_GENERAL_ERR] = -EIO,
		[IBV_WC_TM_RNDV_INCOMPLETE + 9] = -EIO,
	};
	struct item it;

	for (unsigned int s = 0; s < sizeof(meaning) / sizeof(int); s++) {
		if (!meaning[s])
			continue;
		fake_verbs_status(1, (enum ibv_wc_status)s);
		prepare(&it, VERBS_WRITE, 0);
		assert_int_equal(post(&it), 0);
		until(&a.nbroken, 1);
		assert_int_equal(it.status, meaning[s]);
		assert_int_equal(a.err, meaning[s]);
		teardown(state);
		setup(state);
	}
	/* Flushed without another reason. */
	fake_verbs_status(1, IBV_WC_WR_FLUSH_ERR);
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), 0);
	until(&a.nbroken, 1);
	assert_int_equal(it.status, -ECANCELED);
	assert_int_equal(a.err, -ECONNRESET);
}

static void a_peers_memory_is_only_what_it_registered(void **state)
{
	static const struct {
		int64_t offset;
		uint32_t length, rkey;
	} cases[] = {
		{ BYTES - 99, 100, 0 }, { -1, 100, 0 }, { 0, BYTES + 1, 0 },
		{ BYTES, 1, 0 }, { INT64_MIN, 8, 0 }, { 0, 100, 5 },
	};
	struct item it;

	for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
		prepare(&it, i % 2 ? VERBS_READ : VERBS_WRITE, 0);
		memset(b.mem, 'b', BYTES);
		it.w.remote_addr += (uint64_t)cases[i / 2].offset;
		it.w.length = cases[i / 2].length;
		it.w.rkey += cases[i / 2].rkey;
		it.w.lkey = a.region.mr->lkey;
		it.w.addr = a.mem;
		if (it.w.length > BYTES)
			continue; /* too short for our own path, too */
		assert_int_equal(post(&it), 0);
		until(&a.nbroken, 1);
		assert_int_equal(it.status, -EREMOTEIO);
		assert_int_equal(b.mem[0], 'b');
		assert_int_equal(b.mem[BYTES - 1], 'b');
		/* The peer's queue pair has broken, too. */
		until(&b.nbroken, 1);
		assert_int_equal(b.err, -ECONNRESET);
		teardown(state);
		setup(state);
	}
	/* Deregistered memory cannot be used. */
	prepare(&it, VERBS_WRITE, 0);
	verbs_region_close(&b.region);
	assert_int_equal(post(&it), 0);
	until(&a.nbroken, 1);
	assert_int_equal(it.status, -EREMOTEIO);
}

static void a_peer_that_is_gone_times_out(void **state)
{
	struct item it;

	(void)state;
	prepare(&it, VERBS_WRITE, 0);
	close_side(&b);
	until(&b.nclosed, 1);
	assert_int_equal(post(&it), 0);
	until(&a.nbroken, 1);
	assert_int_equal(it.status, -ETIMEDOUT);
	assert_int_equal(a.err, -ETIMEDOUT);
}

static void failures_are_counted_until_one_works(void **state)
{
	struct item it;

	(void)state;
	a.port->failures = 3;
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), 0);
	until(&ndone, 1);
	assert_int_equal(a.port->failures, 0);
	close_side(&a);
	until(&a.nclosed, 1);
	assert_int_equal(a.port->failures, 0);
}

static void messages_that_are_none_break_it(void **state)
{
	static const struct {
		enum ibv_wc_opcode opcode;
		uint32_t len;
	} cases[] = {
		{ IBV_WC_RECV_RDMA_WITH_IMM, 5 },
		{ IBV_WC_RECV_RDMA_WITH_IMM, 1 << 30 },
		{ IBV_WC_RECV, VERBS_NOTE_MAX + 1 },
		{ IBV_WC_RECV, UINT32_MAX },
	};
	struct item it;

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		fake_verbs_receive(cases[i].opcode, cases[i].len);
		send_note("hello", &it, 0);
		until(&b.nbroken, 1);
		assert_int_equal(b.err, -EPROTO);
		assert_int_equal(b.nnotes, 0);
		teardown(state);
		setup(state);
	}
}

static void a_message_that_is_too_long_breaks_only_its_pair(void **state)
{
	struct ibv_sge sge = { .addr = (uintptr_t)a.mem, .length = 65,
			       .lkey = a.region.mr->lkey };
	struct ibv_send_wr *bad, wr = { .wr_id = 99, .sg_list = &sge,
					.num_sge = 1, .opcode = IBV_WR_SEND,
					.send_flags = IBV_SEND_SIGNALED };
	struct ibv_qp *qp;

	(void)state;
	/* A peer that violates the protocol. */
	close_side(&a);
	until(&a.nclosed, 1);
	a.nclosed = 0;
	assert_int_equal(open_qp(&a, 0), 0);
	qp = fake_verbs_last_qp();
	close_side(&b);
	until(&b.nclosed, 1);
	b.nclosed = 0;
	assert_int_equal(open_qp(&b, 0), 0);
	connect_to(&a, &b);
	connect_to(&b, &a);
	assert_int_equal(ibv_post_send(qp, &wr, &bad), 0);
	until(&b.nbroken, 1);
	assert_int_equal(b.err, -EPROTO);
	assert_int_equal(b.nnotes, 0);
}

static void completions_nobody_asked_for_are_passed_over(void **state)
{
	struct ibv_cq *cq = fake_verbs_last_qp()->send_cq; /* b's */
	const uint64_t ids[] = {
		0, 1, UINT64_MAX, 99ull << 32, 1ull << 32 | 3 << 16,
		1ull << 32, 1ull << 32 | 1, 1ull << 32 | 0xffff,
	};
	struct item it;

	(void)state;
	close_side(&b);
	until(&b.nclosed, 1);
	b.nclosed = 0;
	assert_int_equal(open_qp(&b, 0), 0); /* in the same slot */
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct ibv_wc wc = { .wr_id = ids[i],
				     .status = IBV_WC_SUCCESS,
				     .opcode = IBV_WC_RECV, .byte_len = 4 };

		fake_verbs_complete(cq, &wc);
	}
	turns(3);
	assert_int_equal(b.nnotes, 0);
	/* A second completion of the same work request. */
	{
		struct ibv_wc wc = { .wr_id = 2ull << 32 };

		fake_verbs_complete(cq, &wc);
	}
	turns(3);
	assert_int_equal(ndone, 0);
	(void)it;
}

static void a_device_that_takes_no_work_breaks_it(void **state)
{
	static struct item items[6];

	(void)state;
	fake_verbs_hold(true);
	fake_verbs_fail("ibv_post_send", 3, ENOMEM);
	for (int i = 0; i < 6; i++) {
		prepare(&items[i], VERBS_WRITE, i);
		assert_int_equal(post(&items[i]), i < 3 ? 0 : -ENOTCONN);
	}
	until(&a.nbroken, 1);
	assert_int_equal(ndone, 3);
	assert_int_equal(items[0].status, -ECANCELED);
	assert_int_equal(items[1].status, -ECANCELED);
	assert_int_equal(items[2].status, -EIO);
	assert_int_equal(a.err, -EIO);
}

static void a_device_that_takes_no_receive_breaks_it(void **state)
{
	struct item it;

	(void)state;
	fake_verbs_fail("ibv_post_recv", 1, EINVAL);
	send_note("hello", &it, 0);
	until(&b.nbroken, 1);
	assert_int_equal(b.nnotes, 1);
	assert_int_equal(b.err, -EIO);
}

static void a_queue_that_cannot_be_read_or_armed_ends_all_on_it(void **state)
{
	static const char *const calls[] = {
		"ibv_poll_cq", "ibv_req_notify_cq", "ibv_get_cq_event",
	};
	struct item it;

	for (size_t i = 0; i < 3; i++) {
		fake_verbs_hold(true);
		prepare(&it, VERBS_WRITE, 0);
		assert_int_equal(post(&it), 0);
		fake_verbs_fail(calls[i], 1, EIO);
		fake_verbs_step(1);
		until(&a.nbroken, 1);
		assert_int_equal(ndone, 1);
		assert_int_equal(a.err, -EIO);
		assert_int_equal(b.nbroken, 0);
		close_side(&a);
		until(&a.nclosed, 1);
		assert_int_equal(open_qp(&a, 0), -ENODEV);
		teardown(state);
		setup(state);
	}
	fake_verbs_fail("ibv_get_cq_event", 1, EINTR);
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), 0);
	until(&ndone, 1);
	assert_int_equal(it.status, 0);
}

/* ---- events of the device ---- */

static int nunwatched;

static void on_unwatched(void *arg)
{
	(void)arg;
	nunwatched++;
}

static void watched(void (*fn)(void))
{
	nunwatched = 0;
	assert_int_equal(verbs_watch(v, &loop), 0);
	fn();
	verbs_unwatch(v, on_unwatched, NULL);
	until(&nunwatched, 1);
}

static void qp_event(void)
{
	fake_verbs_event(devices[1], IBV_EVENT_QP_FATAL, fake_verbs_last_qp(),
			 0);
	until(&b.nbroken, 1);
	assert_int_equal(b.err, -EIO);
	assert_int_equal(a.nbroken, 0);
}

static void access_event(void)
{
	fake_verbs_event(devices[1], IBV_EVENT_QP_ACCESS_ERR,
			 fake_verbs_last_qp(), 0);
	until(&b.nbroken, 1);
	assert_int_equal(b.err, -EPROTO);
}

static void cq_event(void)
{
	fake_verbs_event(devices[1], IBV_EVENT_CQ_ERR,
			 fake_verbs_last_qp()->recv_cq, 0);
	until(&b.nbroken, 1);
	assert_int_equal(b.err, -EIO);
	assert_int_equal(a.nbroken, 0);
}

static void events_of_a_queue_break_what_they_name(void **state)
{
	watched(qp_event);
	teardown(state);
	setup(state);
	watched(access_event);
	teardown(state);
	setup(state);
	watched(cq_event);
}

static struct item removed_items[10];

static void removal(void)
{
	fake_verbs_hold(true);
	post_all(removed_items, 10);
	fake_verbs_remove(devices[0], true);
	until(&a.nbroken, 1);
	assert_int_equal(ndone, 10);
	assert_int_equal(a.err, -EIO);
	for (int i = 0; i < 10; i++)
		assert_int_equal(removed_items[i].status, -ECANCELED);
	close_side(&a);
	until(&a.nclosed, 1);
}

static void a_removed_device_ends_everything_at_once(void **state)
{
	(void)state;
	watched(removal);
}

static void a_device_that_is_silently_gone_is_waited_for_a_while(void **state)
{
	static struct item items[10];

	(void)state;
	fake_verbs_hold(true);
	post_all(items, 10);
	fake_verbs_remove(devices[0], false);
	/* The device rejects the error state as well: nothing to wait for. */
	close_side(&a);
	until(&a.nclosed, 1);
	assert_int_equal(ndone, 10);
}

/* ---- closing ---- */

static void closing_ends_what_is_under_way(void **state)
{
	static struct item items[10];

	(void)state;
	fake_verbs_hold(true);
	post_all(items, 10);
	fake_verbs_step(2);
	close_side(&a);
	assert_int_equal(ndone, 0);
	assert_int_equal(post(&items[9]), -ENOTCONN);
	until(&a.nclosed, 1);
	assert_int_equal(ndone, 10);
	for (int i = 0; i < 10; i++) {
		assert_int_equal(order[i], i);
		assert_int_equal(items[i].status, i < 2 ? 0 : -ECANCELED);
	}
	assert_int_equal(a.nbroken, 0);
	assert_int_equal(a.port->failures, 0);
}

static bool destroyed_first;

static void on_done_mute(struct verbs_work *w, int status)
{
	destroyed_first = fake_verbs_calls("ibv_destroy_qp") == 1;
	on_done(w, status);
}

static void a_mute_device_is_waited_for_and_then_destroyed_first(void **state)
{
	struct item it;

	(void)state;
	fake_verbs_mute(true);
	prepare(&it, VERBS_WRITE, 0);
	it.w.done = on_done_mute;
	assert_int_equal(post(&it), 0);
	close_side(&a);
	turns(20);
	assert_int_equal(a.nclosed, 0);
	assert_int_equal(ndone, 0);
	clock_ms += VERBS_FLUSH_MS;
	unit_run_until(&loop, a.nclosed); /* the timer's period is real time */
	assert_int_equal(it.status, -ECANCELED);
	assert_true(destroyed_first);
	fake_verbs_mute(false);
}

static void a_break_on_a_mute_device_is_reported_in_time(void **state)
{
	static struct item items[3];

	(void)state;
	fake_verbs_hold(true);
	fake_verbs_fail("ibv_post_send", 3, EIO);
	post_all(items, 3);
	fake_verbs_mute(true);
	turns(20);
	assert_int_equal(a.nbroken, 1); /* flushed before fake_verbs_mute */
	a.nbroken = 0;
	close_side(&a);
	until(&a.nclosed, 1);
	fake_verbs_mute(false);
	fake_verbs_hold(false);
}

static void it_may_be_closed_from_each_of_its_callbacks(void **state)
{
	struct item it, more;

	prepare(&it, VERBS_WRITE, 0);
	it.close = true;
	assert_int_equal(post(&it), 0);
	send_note("after", &more, 1);
	until(&a.nclosed, 1);
	assert_int_equal(ndone, 2);
	teardown(state);
	setup(state);
	/* Closed inside on_note: no further note is delivered. */
	b.close_in_note = true;
	send_note("one", &it, 0);
	send_note("two", &more, 1);
	until(&b.nclosed, 1);
	assert_int_equal(b.nnotes, 1);
	teardown(state);
	setup(state);
	a.close_in_broken = true;
	fake_verbs_status(1, IBV_WC_GENERAL_ERR);
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), 0);
	until(&a.nclosed, 1);
	teardown(state);
	setup(state);
	/* Closed inside the failing `done`: on_broken is not called. */
	fake_verbs_status(1, IBV_WC_GENERAL_ERR);
	prepare(&it, VERBS_WRITE, 0);
	it.close = true;
	assert_int_equal(post(&it), 0);
	until(&a.nclosed, 1);
	assert_int_equal(a.nbroken, 0);
}

static void failures_of_closing_are_survived(void **state)
{
	struct item it;

	(void)state;
	prepare(&it, VERBS_WRITE, 0);
	fake_verbs_hold(true);
	assert_int_equal(post(&it), 0);
	fake_verbs_fail("ibv_modify_qp", 1, EINVAL); /* to the error state */
	fake_verbs_fail("ibv_destroy_qp", 1, EBUSY);
	fake_verbs_fail("ibv_dereg_mr", 1, EBUSY);
	fake_verbs_fail("ibv_destroy_cq", 1, EBUSY);
	close_side(&a);
	until(&a.nclosed, 1);
	assert_int_equal(it.status, -ECANCELED);
}

/* ---- opening ---- */

static void what_fails_in_opening_leaves_nothing(void **state)
{
	static const struct {
		const char *call;
		unsigned int nth;
	} cq_calls[] = {
		{ "ibv_create_comp_channel", 1 },
		{ "ibv_create_cq", 1 },
		{ "ibv_req_notify_cq", 1 },
	}, qp_calls[] = {
		{ "ibv_reg_mr", 1 }, { "ibv_create_qp", 1 },
		{ "ibv_modify_qp", 1 }, { "ibv_post_recv", 1 },
		{ "ibv_post_recv", 5 },
	};
	struct verbs_qp *qp = b.qp;
	struct verbs_cq *cq;
	int before = fake_verbs_left();

	(void)state;
	for (size_t i = 0; i < sizeof(cq_calls) / sizeof(cq_calls[0]); i++) {
		fake_verbs_fail(cq_calls[i].call, cq_calls[i].nth, ENOMEM);
		assert_int_equal(verbs_cq_open(b.port, &loop, 4, &cq), -ENOMEM);
		assert_int_equal(fake_verbs_left(), before);
	}
	for (size_t i = 0; i < sizeof(qp_calls) / sizeof(qp_calls[0]); i++) {
		fake_verbs_fail(qp_calls[i].call, qp_calls[i].nth, EPERM);
		assert_int_equal(open_qp(&b, 0), -EPERM);
		assert_int_equal(fake_verbs_left(), before);
	}
	b.qp = qp;
}

static void what_fails_in_connecting_can_be_closed(void **state)
{
	struct verbs_address addr;

	(void)state;
	for (unsigned int nth = 1; nth <= 2; nth++) {
		close_side(&a);
		until(&a.nclosed, 1);
		a.nclosed = 0;
		assert_int_equal(open_qp(&a, 0), 0);
		verbs_qp_address(b.qp, &addr);
		fake_verbs_fail("ibv_modify_qp", nth, ETIMEDOUT);
		assert_int_equal(verbs_qp_connect(a.qp, &addr), -ETIMEDOUT);
		assert_false(is_ready(a.qp));
	}
}

static void a_queue_has_a_bound_of_pairs(void **state)
{
	struct side more[4];
	struct verbs_cq *cq;

	(void)state;
	for (int i = 0; i < 4; i++) {
		memset(&more[i], 0, sizeof(more[i]));
		more[i].port = b.port;
		more[i].cq = b.cq;
		assert_int_equal(open_qp(&more[i], 0), i < 3 ? 0 : -ENOSPC);
	}
	for (int i = 0; i < 3; i++) {
		close_side(&more[i]);
		until(&more[i].nclosed, 1);
	}
	/* A completion queue longer than the device's limit is not created,
	 * either. */
	b.port->cqe_max = b.port->send_depth + b.port->recv_depth - 1;
	assert_int_equal(verbs_cq_open(b.port, &loop, 1, &cq), -ENOSPC);
}

static void one_made_by_librdmacm_works_the_same(void **state)
{
	struct rdma_cm_id id = { .verbs = a.port->ctx };
	struct verbs_qp_opts o = { .cq = a.cq, .pd = a.port->pd, .ops = &ops,
				   .arg = &a, .cm_id = &id };
	struct item it;

	(void)state;
	close_side(&a);
	until(&a.nclosed, 1);
	a.nclosed = 0;
	fake_verbs_fail("rdma_create_qp", 1, EPERM);
	assert_int_equal(verbs_qp_open(&o, &a.qp), -EPERM);
	assert_int_equal(verbs_qp_open(&o, &a.qp), 0);
	assert_non_null(id.qp);
	prepare(&it, VERBS_WRITE, 0);
	assert_int_equal(post(&it), -ENOTCONN);
	verbs_qp_connected(a.qp);
	assert_true(is_ready(a.qp));
	close_side(&a);
	until(&a.nclosed, 1);
	assert_null(id.qp);
}

#define SHALLOW(test) \
	cmocka_unit_test_setup_teardown(test, setup_shallow, teardown)
#define INLINE(test) \
	cmocka_unit_test_setup_teardown(test, setup_inline, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(bytes_are_written_and_read),
		T(messages_come_in_order_and_after_the_bytes),
		INLINE(short_messages_go_along_with_their_request),
		SHALLOW(messages_come_in_order_and_after_the_bytes),
		SHALLOW(what_the_device_has_no_room_for_waits),
		T(a_turn_of_the_loop_takes_a_bounded_number),
		T(what_completes_after_the_last_look_is_not_missed),
		T(polling_takes_what_has_come_without_the_loop),
		T(a_connection_has_what_both_sides_can),
		T(over_infiniband_the_lid_is_the_way),
		T(hostile_addresses_are_refused),
		SHALLOW(the_first_failure_cancels_the_rest),
		T(every_status_of_a_device_has_its_meaning),
		T(a_peers_memory_is_only_what_it_registered),
		T(a_peer_that_is_gone_times_out),
		T(failures_are_counted_until_one_works),
		T(messages_that_are_none_break_it),
		T(a_message_that_is_too_long_breaks_only_its_pair),
		T(completions_nobody_asked_for_are_passed_over),
		T(a_device_that_takes_no_work_breaks_it),
		T(a_device_that_takes_no_receive_breaks_it),
		T(a_queue_that_cannot_be_read_or_armed_ends_all_on_it),
		T(events_of_a_queue_break_what_they_name),
		SHALLOW(a_removed_device_ends_everything_at_once),
		SHALLOW(a_device_that_is_silently_gone_is_waited_for_a_while),
		SHALLOW(closing_ends_what_is_under_way),
		T(a_mute_device_is_waited_for_and_then_destroyed_first),
		T(a_break_on_a_mute_device_is_reported_in_time),
		T(it_may_be_closed_from_each_of_its_callbacks),
		T(failures_of_closing_are_survived),
		T(what_fails_in_opening_leaves_nothing),
		T(what_fails_in_connecting_can_be_closed),
		T(a_queue_has_a_bound_of_pairs),
		T(one_made_by_librdmacm_works_the_same),
	};

	alarm(60);
	pool_log_set_level(POOL_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
