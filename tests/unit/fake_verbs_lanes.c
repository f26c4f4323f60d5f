#include "tests/lib/unit.h"

#include "tests/unit/fake_verbs_lanes.h"

#include "pool/lane/link_priv.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/conn/hello.h"

static const uint8_t ask_id[POOL_ID_SIZE] = "asks",
		     hold_id[POOL_ID_SIZE] = "holds";

/* ---- movers without a thread, until they are stopped ---- */

static struct pool_mover *mover_make(struct lanes *w, const uint8_t *id,
				     struct pool_mover_counters *counters)
{
	struct pool_mover *m = calloc(1, sizeof(*m));

	m->home = &w->box;
	m->counters = counters;
	memcpy(m->id, id, POOL_ID_SIZE);
	pool_list_init(&m->lanes);
	pool_list_init(&m->adopted);
	pool_hash_init(&m->expected);
	assert_int_equal(uv_loop_init(&m->loop), 0);
	pool_chunks_init(&m->chunks, &m->loop);
	assert_int_equal(pool_mailbox_init(&m->box, &m->loop, NULL), 0);
	assert_int_equal(link_ports_open(m, w->verbs, w->cache, &m->links), 0);
	return m;
}

static void run_on(void *arg)
{
	uv_run(&((struct pool_mover *)arg)->loop, UV_RUN_DEFAULT);
}

void lanes_stop(struct lanes *w, struct pool_mover **m)
{
	if (!*m)
		return;
	assert_int_equal(uv_thread_create(&(*m)->thread, run_on, *m), 0);
	pool_mover_stop(*m);
	pool_mailbox_drain(&w->box);
	pool_mover_free(*m);
	*m = NULL;
}

void lanes_turn(struct lanes *w)
{
	uv_run(&w->home, UV_RUN_NOWAIT);
	if (w->ask)
		uv_run(&w->ask->loop, UV_RUN_NOWAIT);
	if (w->hold)
		uv_run(&w->hold->loop, UV_RUN_NOWAIT);
	usleep(LANES_TURN_US);
}

/* ---- the world ---- */

static void listen_somewhere(struct lanes *w)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	socklen_t len = sizeof(at);

	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	w->listening =
		socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	assert_int_equal(bind(w->listening, (struct sockaddr *)&at, len), 0);
	assert_int_equal(listen(w->listening, 8), 0);
	assert_int_equal(
		getsockname(w->listening, (struct sockaddr *)&at, &len), 0);
	w->port = ntohs(at.sin_port);
}

void lanes_open(struct lanes *w, unsigned int devices)
{
	char name[] = "rxe0";

	memset(w, 0, sizeof(*w));
	fake_verbs_reset();
	for (unsigned int i = 0; i < devices; i++, name[3]++)
		fake_verbs_roce(name);
	assert_int_equal(uv_loop_init(&w->home), 0);
	assert_int_equal(pool_mailbox_init(&w->box, &w->home, NULL), 0);
	assert_int_equal(verbs_open(NULL, &w->verbs), 0);
	assert_int_equal(verbs_cache_open(16, 1u << 30, &w->cached, &w->cache),
			 0);
	listen_somewhere(w);
}

static void set_closed(void *arg)
{
	*(bool *)arg = true;
}

static void close_played(struct lanes *w)
{
	struct lanes_played *p = &w->played;

	if (p->conn)
		pool_conn_close(p->conn);
	lanes_until(w, !p->conn);
	verbs_region_close(&p->region);
	if (p->qp) {
		p->closed = false;
		verbs_qp_close(p->qp, set_closed, &p->closed);
		lanes_until(w, p->closed);
	}
	if (p->cq) {
		p->closed = false;
		verbs_cq_close(p->cq, set_closed, &p->closed);
		lanes_until(w, p->closed);
	}
}

void lanes_close(struct lanes *w)
{
	fake_verbs_hold(false);
	lanes_stop(w, &w->ask);
	lanes_stop(w, &w->hold);
	close_played(w);
	verbs_cache_close(w->cache);
	verbs_close(w->verbs);
	pool_mailbox_close(&w->box, NULL);
	uv_run(&w->home, UV_RUN_DEFAULT);
	assert_int_equal(uv_loop_close(&w->home), 0);
	close(w->listening);
	assert_int_equal(fake_verbs_left(), 0);
}

static void on_up(struct pool_lane *lane)
{
	((struct lanes *)lane->arg)->ups++;
}

static void on_down(struct pool_lane *lane, int err)
{
	struct lanes *w = lane->arg;

	w->down = err;
	w->lane = NULL;
}

static void dial(struct lanes *w)
{
	struct pool_hostport to = { "127.0.0.1", w->port };
	struct pool_lane like = { .number = 1, .arg = w, .on_up = on_up,
				  .on_down = on_down };

	w->ask = mover_make(w, ask_id, &w->asks);
	like.mover = w->ask;
	memcpy(like.peer_id, hold_id, POOL_ID_SIZE);
	w->lane = pool_lane_dial(&like, &to);
	assert_non_null(w->lane);
}

/* Accepts the dialled connection and reads its HELLO. */
static int take_call(struct lanes *w)
{
	uint8_t head[POOL_WIRE_HEADER], payload[256];
	struct pool_frame f = { .type = 0 };
	int fd = -1, there = 0;

	lanes_until(w, (fd = accept(w->listening, NULL, NULL)) >= 0);
	lanes_until(w, ioctl(fd, FIONREAD, &there) == 0 &&
			       there > POOL_WIRE_HEADER);
	assert_int_equal(recv(fd, head, sizeof(head), MSG_WAITALL),
			 sizeof(head));
	assert_int_equal(pool_frame_decode(head, &f), 0);
	assert_int_equal(f.type, POOL_MSG_HELLO);
	assert_true(f.payload_len < sizeof(payload));
	assert_int_equal(recv(fd, payload, f.payload_len, MSG_WAITALL),
			 f.payload_len);
	return fd;
}

void lanes_join(struct lanes *w)
{
	dial(w);
	w->hold = mover_make(w, hold_id, &w->holds);
	assert_int_equal(pool_mover_adopt(w->hold, take_call(w), NULL,
						 ask_id, 1, false), 0);
	lanes_until(w, w->ups == 1);
}

/* ---- moves ---- */

static void on_expect_done(struct pool_expect *x)
{
	pool_container_of(x, struct lanes_move, x)->got = true;
}

static void on_send_done(struct pool_mover_send *s)
{
	pool_container_of(s, struct lanes_move, s)->sent = true;
}

static int file_of(uint64_t size, bool filled)
{
	int fd = memfd_create("object", MFD_CLOEXEC);
	uint64_t *mem;

	assert_true(fd >= 0);
	assert_int_equal(ftruncate(fd, (off_t)size), 0);
	if (!filled)
		return fd;
	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (uint64_t i = 0; i < size / 8; i++)
		mem[i] = i * 0x9e3779b97f4a7c15ull + size;
	munmap(mem, size);
	return fd;
}

void lanes_file(struct lanes_move *m, uint64_t length, uint64_t req)
{
	memset(m, 0, sizeof(*m));
	m->from = file_of(length, true);
	m->to = -1;
	m->x.req = req;
	m->x.landing.length = length;
	m->x.buffer = true;
}

void lanes_expect(struct lanes *w, struct lanes_move *m, uint64_t offset,
		  uint64_t length, bool pull)
{
	uint64_t size = (offset + length + 7) / 8 * 8;

	memset(m, 0, sizeof(*m));
	m->from = file_of(size, true);
	m->to = file_of(size, false);
	m->expected = true;
	m->x.lane = w->lane;
	m->x.req = ++w->last_req;
	m->x.want_pull = pull;
	m->x.pull = pull && w->lane->linked[LINK_PULL];
	m->x.buffer = !m->x.pull && w->lane->linked[LINK_PUSH];
	m->x.done = on_expect_done;
	m->x.landing.fd = m->to;
	m->x.landing.offset = offset;
	m->x.landing.length = length;
	assert_int_equal(pool_mover_expect(&m->x), 0);
}

void lanes_send(struct lanes *w, struct lanes_move *m)
{
	m->s = (struct pool_mover_send){ .lane = 1,
					 .fd = m->from,
					 .offset = m->x.landing.offset,
					 .length = m->x.landing.length,
					 .req = m->x.req,
					 .buffer = m->x.buffer,
					 .pull = m->x.pull,
					 .done = on_send_done };
	memcpy(m->s.peer_id, ask_id, POOL_ID_SIZE);
	pool_mover_send(w->hold, &m->s);
}

void lanes_start(struct lanes *w, struct lanes_move *m, uint64_t offset,
		 uint64_t length, bool pull)
{
	lanes_expect(w, m, offset, length, pull);
	lanes_send(w, m);
}

void lanes_cancel(struct lanes *w, struct lanes_move *m)
{
	pool_mover_cancel(w->ask, pool_mover_cancel_new(), m->x.req);
}

void lanes_drop(struct lanes_move *m)
{
	close(m->from);
	if (m->to >= 0)
		close(m->to);
}

void lanes_check(struct lanes *w, struct lanes_move *m)
{
	uint64_t offset = m->x.landing.offset, length = m->x.landing.length;
	uint8_t *from = malloc(length), *to = malloc(length);
	XXH128_hash_t sum;

	lanes_until(w, m->got && m->sent);
	assert_int_equal(m->x.landing.status, 0);
	assert_int_equal(m->s.status, 0);
	assert_int_equal(pread(m->from, from, length, (off_t)offset), length);
	assert_int_equal(pread(m->to, to, length, (off_t)offset), length);
	assert_memory_equal(from, to, length);
	sum = XXH3_128bits(from, length);
	assert_true(XXH128_isEqual(sum, m->x.landing.sum));
	free(from);
	free(to);
	lanes_drop(m);
}

/* ---- played ---- */

static void played_frame(struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, int fd)
{
	struct lanes *w = pool_conn_user(c);
	struct lanes_played *p = &w->played;

	assert(fd < 0);
	if (f->type == POOL_MSG_LINK) {
		assert_true(link_msg_read(payload, f->payload_len, &p->link));
		p->nlinks++;
	} else if (f->type == POOL_MSG_BUFFER) {
		assert_true(link_buffer_read(payload, f->payload_len,
					     &p->buffer));
		p->buffer.req = f->req;
		if (p->buffer.at == 0)
			p->first = p->buffer;
		p->nbuffers++;
	}
}

static void *played_bulk(struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload)
{
	struct lanes *w = pool_conn_user(c);

	(void)payload;
	w->played.ndata += f->type == POOL_MSG_DATA;
	return NULL;
}

static void played_bytes(struct pool_conn *c, const struct pool_frame *f,
			 const void *data, size_t len, uint64_t offset)
{
	(void)c, (void)f, (void)data, (void)len, (void)offset;
}

static void played_bulk_end(struct pool_conn *c, const struct pool_frame *f)
{
	(void)c, (void)f;
}

static void played_close(struct pool_conn *c, int err)
{
	struct lanes *w = pool_conn_user(c);

	(void)err;
	w->played.conn = NULL;
}

static const struct pool_conn_ops played_ops = {
	.on_frame = played_frame,
	.on_bulk_begin = played_bulk,
	.on_bulk_data = played_bytes,
	.on_bulk_end = played_bulk_end,
	.on_close = played_close,
};

static void play_on(struct lanes *w, int fd)
{
	struct pool_conn_opts opts = { .ops = &played_ops, .user = w };

	assert_int_equal(pool_conn_from_fd(&w->home, fd, &opts,
					   &w->played.conn), 0);
}

static void answer_hello(struct lanes *w, bool plain)
{
	dial(w);
	play_on(w, take_call(w));
	assert_int_equal(pool_hello_send(w->played.conn, hold_id, 1, plain),
			 0);
}

void lanes_play_holder(struct lanes *w)
{
	answer_hello(w, false);
	lanes_until(w, w->played.nlinks == 1);
}

void lanes_play_plain_holder(struct lanes *w)
{
	answer_hello(w, true);
}

void lanes_play_asker(struct lanes *w)
{
	int pair[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0,
				    pair), 0);
	w->hold = mover_make(w, hold_id, &w->holds);
	assert_int_equal(pool_mover_adopt(w->hold, pair[0], NULL, ask_id,
						 1, false), 0);
	play_on(w, pair[1]);
	for (int i = 0; i < 20; i++)
		lanes_turn(w);
}

static void played_note(void *arg, const void *msg, uint32_t length)
{
	struct lanes *w = arg;

	assert_int_equal(length, sizeof(w->played.note));
	memcpy(&w->played.note, msg, length);
	w->played.nnotes++;
}

static void played_broken(void *arg, int err)
{
	(void)err;
	((struct lanes *)arg)->played.nbroken++;
}

static const struct verbs_qp_ops played_qp_ops = { played_note, played_broken };

void lanes_qp_open(struct lanes *w)
{
	struct lanes_played *p = &w->played;
	struct verbs_port *port = verbs_port_at(w->verbs, 0);
	const int all = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	struct verbs_qp_opts opts = { .pd = port->pd, .access = all,
				      .ops = &played_qp_ops, .arg = w };

	assert_int_equal(verbs_cq_open(port, &w->home, 4, &p->cq), 0);
	opts.cq = p->cq;
	assert_int_equal(verbs_qp_open(&opts, &p->qp), 0);
	assert_int_equal(verbs_region_open_memory(port, port->pd, p->mem,
						  sizeof(p->mem),
						  all | IBV_ACCESS_LOCAL_WRITE,
						  &p->region), 0);
}

void lanes_qp_connect(struct lanes *w)
{
	assert_int_equal(
		verbs_qp_connect(w->played.qp, &w->played.link.address), 0);
}

void lanes_say_address(struct lanes *w, enum link_word word,
		       enum link_kind kind, uint32_t attempt,
		       void (*fix)(struct verbs_address *a))
{
	Kvpool__Link msg = KVPOOL__LINK__INIT;
	Kvpool__LinkAddress at = KVPOOL__LINK_ADDRESS__INIT;
	struct verbs_address a;

	verbs_qp_address(w->played.qp, &a);
	if (fix)
		fix(&a);
	link_address_fill(&a, &at);
	msg.word = word;
	msg.kind = kind;
	msg.attempt = attempt;
	msg.parts = w->played.parts;
	msg.address = &at;
	assert_int_equal(pool_conn_send(w->played.conn, POOL_MSG_LINK, 0,
					&msg.base), 0);
}

void lanes_say(struct lanes *w, enum link_word word, enum link_kind kind,
	       uint32_t attempt)
{
	assert_int_equal(link_msg_send(w->played.conn, word, kind, attempt,
				       "played"),
			 0);
}

static struct {
	struct verbs_work work;
	struct lanes *w;
} one;

static void on_work(struct verbs_work *work, int status)
{
	(void)work;
	one.w->played.status = status;
	one.w->played.ndone++;
}

void lanes_work(struct lanes *w, enum verbs_op op, const void *text,
		uint32_t length, uint64_t addr, uint32_t rkey)
{
	struct lanes_played *p = &w->played;
	unsigned int n = p->ndone;

	memcpy(p->mem, text, length);
	one.w = w;
	one.work = (struct verbs_work){ .op = op, .addr = p->mem,
					.lkey = p->region.mr->lkey,
					.length = length, .remote_addr = addr,
					.rkey = rkey, .done = on_work };
	assert_int_equal(verbs_qp_post(p->qp, &one.work), 0);
	lanes_until(w, p->ndone == n + 1);
}
