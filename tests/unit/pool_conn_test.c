#include "tests/lib/unit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "pool/conn/conn_priv.h"
#include "pool/conn/kvpool.pb-c.h"

#define TIME_LIMIT_S 60
#define MIB ((size_t)1 << 20)

/* One end of a connection, and what its callbacks received. */
struct end {
	struct pool_conn *c;
	bool opened, closed;
	int err;
	unsigned int frames, bulks;
	uint16_t type;
	uint64_t req;
	size_t payload_len;
	int fd;
	uint8_t *bulk; /* where bulk is collected; owns */
	uint64_t bulk_len, bulk_got, slice_max;
	enum { STAGE, STRAIGHT, ROOM, UNMAPPED } sink;
	size_t room; /* size of the pieces of ROOM */
	void *unmapped; /* for UNMAPPED */
	unsigned int rooms;
	bool in_call; /* inside a call that must not call back */
	void (*on_frame)(struct end *e);
	int detached;
	struct pool_tls_stream *stream;
};

static struct {
	uv_loop_t loop;
	struct end a, b;
	char *dir; /* owns */
} t;

static void end_on_open(struct pool_conn *c)
{
	struct end *e = pool_conn_user(c);

	assert_false(e->in_call);
	e->opened = true;
}

static void end_on_frame(struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, int fd)
{
	struct end *e = pool_conn_user(c);

	(void)payload;
	assert_false(e->in_call);
	assert_false(e->closed);
	e->frames++;
	e->type = f->type;
	e->req = f->req;
	e->payload_len = f->payload_len;
	if (fd >= 0) {
		assert_int_equal(e->fd, -1);
		assert_int_equal(f->type, POOL_MSG_LENT);
		e->fd = fd;
	}
	if (e->on_frame)
		e->on_frame(e);
}

static void *end_on_bulk_begin(struct pool_conn *c, const struct pool_frame *f,
			       const uint8_t *payload)
{
	struct end *e = pool_conn_user(c);

	(void)payload;
	free(e->bulk);
	e->bulk = calloc(1, f->bulk_len);
	e->bulk_len = f->bulk_len;
	e->bulk_got = 0;
	e->req = f->req;
	if (e->sink == UNMAPPED)
		return e->unmapped;
	return e->sink == STRAIGHT ? e->bulk : NULL;
}

static void *end_on_bulk_room(struct pool_conn *c, const struct pool_frame *f,
			      uint64_t offset, size_t *ret_len)
{
	struct end *e = pool_conn_user(c);

	(void)f;
	if (e->sink != ROOM || e->rooms++ % 3 == 2)
		return NULL;
	assert_true(offset == e->bulk_got);
	*ret_len = e->room;
	return e->bulk + offset;
}

static void end_on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			     const void *data, size_t len, uint64_t offset)
{
	struct end *e = pool_conn_user(c);

	(void)f;
	assert_true(offset == e->bulk_got);
	assert_true(len <= POOL_CONN_SLICE);
	if (e->sink == STRAIGHT)
		assert_ptr_equal(data, e->bulk + offset);
	else if (data != e->bulk + offset)
		memcpy(e->bulk + offset, data, len);
	e->bulk_got += len;
}

static void end_on_bulk_end(struct pool_conn *c, const struct pool_frame *f)
{
	struct end *e = pool_conn_user(c);

	assert_true(e->bulk_got == f->bulk_len);
	e->bulks++;
}

static void end_on_close(struct pool_conn *c, int err)
{
	struct end *e = pool_conn_user(c);

	assert_false(e->in_call);
	assert_false(e->closed);
	e->closed = true;
	e->err = err;
	e->c = NULL;
}

static const struct pool_conn_ops ops = {
	.on_open = end_on_open,
	.on_frame = end_on_frame,
	.on_bulk_begin = end_on_bulk_begin,
	.on_bulk_room = end_on_bulk_room,
	.on_bulk_data = end_on_bulk_data,
	.on_bulk_end = end_on_bulk_end,
	.on_close = end_on_close,
};

/* Runs at least one turn. */
#define run_until(cond)                              \
	do {                                         \
		uv_run(&t.loop, UV_RUN_ONCE);        \
		unit_run_until(&t.loop, cond);       \
	} while (0)

static int setup(void **state)
{
	(void)state;
	alarm(TIME_LIMIT_S);
	memset(&t, 0, sizeof(t));
	t.a.fd = t.b.fd = -1;
	t.a.detached = t.b.detached = -1;
	t.dir = unit_dir_make("/tmp/kvpool-conn");
	return uv_loop_init(&t.loop);
}

static void end_fini(struct end *e)
{
	if (e->c)
		pool_conn_close(e->c);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	free(e->bulk);
	if (e->fd >= 0)
		close(e->fd);
}

static int teardown(void **state)
{
	(void)state;
	end_fini(&t.a);
	end_fini(&t.b);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	unit_dir_remove_empty(t.dir);
	return 0;
}

/* Connects a and b. !with_b: b's socket stays raw. */
static int connect_pair(int family, bool with_b)
{
	struct pool_conn_opts oa = { .ops = &ops, .user = &t.a };
	struct pool_conn_opts ob = { .ops = &ops, .user = &t.b };
	int sv[2];

	assert_int_equal(socketpair(family, SOCK_STREAM | SOCK_CLOEXEC, 0, sv),
			 0);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &oa, &t.a.c), 0);
	if (!with_b)
		return sv[1];
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[1], &ob, &t.b.c), 0);
	return -1;
}

static int send_path(struct pool_conn *c, uint64_t req, size_t path_len)
{
	Kvpool__Key key = KVPOOL__KEY__INIT;
	uint8_t *path = calloc(1, path_len + 1);
	int err;

	key.path.data = path;
	key.path.len = path_len;
	t.a.in_call = t.b.in_call = true;
	err = pool_conn_send(c, POOL_MSG_EVICT, req, &key.base);
	t.a.in_call = t.b.in_call = false;
	free(path);
	return err;
}

static void on_accept(void *arg, int fd)
{
	struct pool_conn_opts o = { .ops = &ops, .user = arg };

	assert_int_equal(pool_conn_from_fd(&t.loop, fd, &o,
					   &((struct end *)arg)->c),
			 0);
}

static void on_raw(void *arg, int fd)
{
	((struct end *)arg)->fd = fd;
}

/* ---- frames ---- */

static void frames_of_all_sizes_arrive_in_order(void **state)
{
	static const size_t sizes[] = { 0, 1, 100, 300000, 5, POOL_PAYLOAD_MAX -
							      16, 3 };

	(void)state;
	connect_pair(AF_UNIX, true);
	for (uint64_t i = 0; i < 7; i++) {
		assert_int_equal(send_path(t.a.c, i + 1, sizes[i]), 0);
		run_until(t.b.frames == i + 1);
		assert_int_equal(t.b.req, i + 1);
		assert_int_equal(t.b.type, POOL_MSG_EVICT);
		assert_true(t.b.payload_len >= sizes[i]);
	}
	for (uint64_t i = 0; i < 1000; i++)
		assert_int_equal(send_path(t.b.c, i, 50), 0);
	run_until(t.a.frames == 1000);
	assert_int_equal(t.a.req, 999);
}

static void one_that_is_held_delivers_nothing(void **state)
{
	(void)state;
	connect_pair(AF_UNIX, true);
	pool_conn_hold(t.b.c, true);
	assert_int_equal(send_path(t.a.c, 1, 50), 0);
	for (int i = 0; i < 10; i++)
		uv_run(&t.loop, UV_RUN_NOWAIT);
	assert_int_equal(t.b.frames, 0);
	pool_conn_hold(t.b.c, false);
	run_until(t.b.frames == 1);
}

#define SHARERS 3u
#define SHARED_FRAMES 100u /* of a little more than 1000 bytes */

/* Three pairs, with frames waiting for the receivers, which have one share. */
static void sharers_open(struct end *from, struct end *to,
			 struct pool_share *share)
{
	struct pool_conn_opts o = { .ops = &ops };
	unsigned int i, n;
	int sv[2];

	for (i = 0; i < SHARERS; i++) {
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
		o.user = &from[i];
		o.share = NULL;
		assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o,
						   &from[i].c), 0);
		o.user = &to[i];
		o.share = share;
		assert_int_equal(pool_conn_from_fd(&t.loop, sv[1], &o,
						   &to[i].c), 0);
		for (n = 0; n < SHARED_FRAMES; n++)
			assert_int_equal(send_path(from[i].c, n, 1000), 0);
	}
}

static void never(uv_timer_t *h)
{
	(void)h;
}

static void nobody_goes(struct pool_share_user *u)
{
	(void)u;
}

/* A loop of libkvpool does not sleep while a prepare handle is active. */
static void a_share_that_nobody_uses_lets_the_loop_sleep(void **state)
{
	struct pool_share share;
	struct pool_share_user u;
	uv_timer_t alive; /* without an active handle the loop runs no turn */

	(void)state;
	uv_timer_init(&t.loop, &alive);
	uv_timer_start(&alive, never, 1000000, 0);
	pool_share_open(&share, &t.loop, 1);
	pool_share_user_init(&u, nobody_goes);
	assert_false(uv_is_active((uv_handle_t *)&share.next));
	pool_share_spend(&share, 1);
	assert_false(pool_share_take(&share, &u));
	assert_true(uv_is_active((uv_handle_t *)&share.next));
	uv_run(&t.loop, UV_RUN_NOWAIT);
	assert_true(pool_share_take(&share, &u));
	assert_false(uv_is_active((uv_handle_t *)&share.next));
	pool_share_close(&share, NULL);
	pool_share_spend(&share, 1);
	uv_close((uv_handle_t *)&alive, NULL);
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

static void connections_that_share_a_turn_get_one_in_turn(void **state)
{
	struct end from[SHARERS] = { 0 }, to[SHARERS] = { 0 };
	unsigned int i, all = 0, before, most, least = 0;
	struct pool_share share;

	(void)state;
	pool_share_open(&share, &t.loop, 1); /* one unit a turn */
	sharers_open(from, to, &share);
	while (least < SHARED_FRAMES) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		before = all;
		for (i = all = most = 0, least = UINT_MAX; i < SHARERS; i++) {
			all += to[i].frames;
			most = to[i].frames > most ? to[i].frames : most;
			least = to[i].frames < least ? to[i].frames : least;
		}
		assert_true((all - before) * 1000 <= POOL_CONN_SHARE_SLICE);
		assert_true((most - least) * 1000 <=
			    POOL_CONN_SHARE_SLICE + 1000);
	}
	for (i = 0; i < SHARERS; i++) {
		pool_conn_close(from[i].c);
		pool_conn_close(to[i].c);
	}
	pool_share_close(&share, NULL);
	assert_int_equal(uv_run(&t.loop, UV_RUN_DEFAULT), 0);
}

static void a_stream_cut_into_single_bytes_is_understood(void **state)
{
	uint8_t b[POOL_WIRE_HEADER + 5] = { 0 };
	struct pool_frame f = { .version = 1, .type = POOL_MSG_GET,
				.payload_len = 5, .req = 9 };
	int fd = connect_pair(AF_UNIX, false);

	(void)state;
	pool_frame_encode(&f, b);
	for (size_t i = 0; i < 2 * sizeof(b); i++) {
		assert_int_equal(write(fd, b + i % sizeof(b), 1), 1);
		uv_run(&t.loop, UV_RUN_NOWAIT);
		assert_int_equal(t.a.frames, (i + 1) / sizeof(b));
	}
	assert_int_equal(t.a.req, 9);
	assert_int_equal(t.a.payload_len, 5);
	close(fd);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -ECONNRESET);
}

/* Bulk bytes that were received with the header must be copied to memory that
 * its owner has unmapped. */
static void bulk_for_memory_that_is_gone_is_an_error(void **state)
{
	uint8_t b[POOL_WIRE_HEADER + 1000] = { 0 };
	struct pool_frame f = { .version = 1, .type = POOL_MSG_DATA,
				.bulk_len = 1000 };
	int fd = connect_pair(AF_UNIX, false);

	(void)state;
	t.a.sink = UNMAPPED;
	t.a.unmapped = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
			    -1, 0);
	assert_ptr_not_equal(t.a.unmapped, MAP_FAILED);
	pool_frame_encode(&f, b);
	assert_int_equal(write(fd, b, sizeof(b)), sizeof(b));
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -EFAULT);
	assert_int_equal(t.a.bulk_got, 0);
	munmap(t.a.unmapped, 4096);
	close(fd);
}

static void garbage_ends_the_connection_with_eproto(void **state)
{
	int fd = connect_pair(AF_UNIX, false);
	uint8_t b[POOL_WIRE_HEADER] = { 1, 2, 3 };

	(void)state;
	assert_int_equal(write(fd, b, sizeof(b)), sizeof(b));
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -EPROTO);
	assert_int_equal(t.a.frames, 0);
	close(fd);
}

static void too_much_payload_is_refused_before_queueing(void **state)
{
	(void)state;
	connect_pair(AF_UNIX, true);
	assert_int_equal(send_path(t.a.c, 0, POOL_PAYLOAD_MAX), -EMSGSIZE);
	assert_int_equal(pool_conn_queued(t.a.c), 0);
}

static void a_queue_beyond_its_limit_refuses_frames(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a,
				    .send_queue_max = 300000 };
	unsigned int sent = 0;
	int sv[2];
	int err;

	(void)state;
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o, &t.a.c), 0);
	while ((err = send_path(t.a.c, 0, 10000)) == 0)
		sent++;
	assert_int_equal(err, -ENOBUFS);
	assert_true(sent >= 30);
	assert_true(pool_conn_queued(t.a.c) <= 300000);
	assert_true(pool_conn_queued(t.a.c) > 280000);
	/* All frames that were accepted arrive. */
	o.user = &t.b;
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[1], &o, &t.b.c), 0);
	run_until(t.b.frames == sent);
	assert_int_equal(pool_conn_queued(t.a.c), 0);
}

static void closing(struct end *e)
{
	pool_conn_close(e->c);
	assert_int_equal(send_path(e->c, 0, 1), -ENOTCONN);
}

static void a_connection_may_be_closed_in_its_own_callback(void **state)
{
	(void)state;
	connect_pair(AF_UNIX, true);
	t.b.on_frame = closing;
	send_path(t.a.c, 0, 1);
	send_path(t.a.c, 0, 1);
	run_until(t.b.closed && t.a.closed);
	assert_int_equal(t.b.frames, 1);
	assert_int_equal(t.b.err, 0);
	assert_int_equal(t.a.err, -ECONNRESET);
}

/* Answers; nothing is sent while more frames of the same read may come. */
static void answering(struct end *e)
{
	Kvpool__Key key = KVPOOL__KEY__INIT;
	uint8_t b[1];

	assert_int_equal(pool_conn_send_soon(e->c, POOL_MSG_EVICT, e->req,
					     &key.base),
			 0);
	assert_int_equal(recv(t.b.fd, b, sizeof(b), MSG_DONTWAIT | MSG_PEEK),
			 -1);
}

static void answers_are_sent_together_in_the_turn_of_their_requests(
	void **state)
{
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_EVICT };
	uint8_t b[3 * POOL_WIRE_HEADER];

	(void)state;
	t.b.fd = connect_pair(AF_UNIX, false);
	t.a.on_frame = answering;
	for (int i = 0; i < 3; i++)
		pool_frame_encode(&f, b + i * POOL_WIRE_HEADER);
	assert_int_equal(write(t.b.fd, b, sizeof(b)), sizeof(b));
	run_until(t.a.frames);
	/* One iteration was enough for all of it. */
	assert_int_equal(t.a.frames, 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(recv(t.b.fd, b, POOL_WIRE_HEADER,
				      MSG_DONTWAIT),
				 POOL_WIRE_HEADER);
		assert_int_equal(pool_frame_decode(b, &f), 0);
		if (f.payload_len)
			assert_int_equal(recv(t.b.fd, b, f.payload_len,
					      MSG_DONTWAIT),
					 f.payload_len);
	}
}

static void answering_each(struct end *e)
{
	assert_int_equal(send_path(e->c, e->req, 1000), 0);
}

/* t.a answers each frame; requests are sent for as long as it reads them. */
static void ask_until_paused(int fd)
{
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_EVICT };
	uint8_t b[POOL_WIRE_HEADER];
	unsigned int turns = 0, had;

	pool_frame_encode(&f, b);
	while (turns < 3) { /* without a frame, although there is input */
		had = t.a.frames;
		while (send(fd, b, sizeof(b), MSG_DONTWAIT) == sizeof(b))
			;
		uv_run(&t.loop, UV_RUN_NOWAIT);
		turns = t.a.frames == had ? turns + 1 : 0;
		assert_in_range(t.a.frames, 0, 100000);
	}
}

#define UNREAD_MAX (256u << 10)

static int open_paused(unsigned int timeout_ms)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a,
				    .unread_max = UNREAD_MAX,
				    .unread_timeout_ms = timeout_ms };
	int sv[2];

	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sv), 0);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o, &t.a.c), 0);
	t.a.on_frame = answering_each;
	ask_until_paused(sv[1]);
	assert_true(pool_conn_queued(t.a.c) > UNREAD_MAX);
	return sv[1];
}

static void requests_are_not_read_while_answers_are_unread(void **state)
{
	static uint8_t b[64 << 10];
	int fd = open_paused(0);
	unsigned int had = t.a.frames;

	(void)state;
	/* The peer reads: its other requests are answered. */
	while (t.a.frames == had) {
		while (recv(fd, b, sizeof(b), MSG_DONTWAIT) > 0)
			;
		uv_run(&t.loop, UV_RUN_NOWAIT);
	}
	close(fd);
	run_until(t.a.closed);
	assert_int_not_equal(t.a.err, -ENOBUFS);
}

static void a_peer_that_reads_nothing_is_disconnected(void **state)
{
	uint64_t began = uv_hrtime();
	int fd = open_paused(50);

	(void)state;
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -ENOBUFS);
	assert_true(uv_hrtime() - began >= 45 * 1000000ull);
	close(fd);
}

/* Far less than the socket holds: the loop does not hear of it. */
static void a_peer_that_reads_slowly_is_not_disconnected(void **state)
{
	static uint8_t b[16 << 10];
	int fd = open_paused(200);
	uint64_t end;

	(void)state;
	for (int i = 0; i < 14; i++) {
		assert_true(recv(fd, b, sizeof(b), MSG_DONTWAIT) > 0);
		end = uv_hrtime() + 50 * 1000000ull;
		unit_turn_until(&t.loop, t.a.closed || uv_hrtime() >= end);
		assert_false(t.a.closed);
	}
	run_until(t.a.closed); /* as it reads no longer */
	assert_int_equal(t.a.err, -ENOBUFS);
	close(fd);
}

static void a_peer_that_reads_while_we_are_busy_is_not_disconnected(
	void **state)
{
	static uint8_t b[64 << 10];
	int fd = open_paused(50);

	(void)state;
	while (recv(fd, b, sizeof(b), MSG_DONTWAIT) > 0)
		;
	usleep(100000);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	assert_false(t.a.closed);
	close(fd);
	run_until(t.a.closed);
}

static void one_that_is_closed_by_the_peer_meanwhile_ends(void **state)
{
	int fd = open_paused(0);

	(void)state;
	close(fd);
	run_until(t.a.closed);
}

/* ---- bulk ---- */

static int file_of(size_t len, uint8_t **ret_content)
{
	int fd = memfd_create("x", MFD_CLOEXEC);
	uint8_t *p = malloc(len);

	for (size_t i = 0; i < len; i++)
		p[i] = (uint8_t)(i * 2654435761u >> 13);
	assert_int_equal(write(fd, p, len), len);
	*ret_content = p;
	return fd;
}

struct sent {
	int calls, err;
	bool in_call;
};

static void on_sent(void *arg, int err)
{
	struct sent *s = arg;

	assert_false(s->in_call);
	s->calls++;
	s->err = err;
}

static void bulk_arrives_by(int sink, size_t room)
{
	struct sent sent[3] = { 0 };
	uint8_t *content;
	int fd = file_of(3 * MIB + 77, &content);

	connect_pair(AF_UNIX, true);
	t.b.sink = sink;
	t.b.room = room;
	for (int i = 0; i < 3; i++) {
		sent[i].in_call = true;
		assert_int_equal(pool_conn_send_file(
					 t.a.c, POOL_MSG_DATA, 5, NULL, fd,
					 (uint64_t)i, 3 * MIB + 7, on_sent,
					 &sent[i]),
				 0);
		sent[i].in_call = false;
		send_path(t.a.c, 6, 10);
	}
	run_until(t.b.bulks == 3 && t.b.frames == 3);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(sent[i].calls, 1);
		assert_int_equal(sent[i].err, 0);
	}
	assert_memory_equal(t.b.bulk, content + 2, 3 * MIB + 7);
	close(fd);
	free(content);
}

static void bulk_arrives_through_staging(void **state)
{
	(void)state;
	bulk_arrives_by(STAGE, 0);
}

static void bulk_arrives_straight_in_memory(void **state)
{
	(void)state;
	bulk_arrives_by(STRAIGHT, 0);
}

static void bulk_arrives_in_rooms(void **state)
{
	(void)state;
	bulk_arrives_by(ROOM, 100001);
}

/* Bulk that arrives in small pieces wakes the receiver only for whole slices.
 * What follows the bulk wakes it at once, however short it is. */
static void bulk_over_tcp_wakes_for_slices(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport at = { .host = "127.0.0.1" };
	struct pool_frame f = { .version = 1, .type = POOL_MSG_DATA,
				.bulk_len = 4 * POOL_CONN_SLICE + 3000 };
	uint8_t head[POOL_WIRE_HEADER], piece[1000] = { 0 };
	struct pool_listener *l;
	unsigned int turns = 0;
	uint64_t sent = 0;

	(void)state;
	assert_int_equal(pool_listener_open(&t.loop, &at, on_raw, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_int_equal(pool_conn_connect(&t.loop, &at, &o, &t.a.c), 0);
	run_until(t.a.opened && t.b.fd >= 0);
	t.a.sink = STRAIGHT;
	pool_frame_encode(&f, head);
	assert_int_equal(write(t.b.fd, head, sizeof(head)), sizeof(head));
	run_until(t.a.bulk);
	while (sent < f.bulk_len) {
		uint64_t got = t.a.bulk_got, left = f.bulk_len - sent;
		size_t n = left < sizeof(piece) ? (size_t)left : sizeof(piece);

		assert_int_equal(write(t.b.fd, piece, n), n);
		sent += n;
		uv_run(&t.loop, UV_RUN_NOWAIT);
		turns += t.a.bulk_got != got;
	}
	unit_run_until(&t.loop, t.a.bulks > 0);
	assert_true(turns > 0 && turns <= 8);
	f.type = POOL_MSG_SYNC;
	f.bulk_len = 0;
	pool_frame_encode(&f, head);
	for (size_t i = 0; i < 5 * sizeof(head); i++) {
		assert_int_equal(write(t.b.fd, head + i % sizeof(head), 1), 1);
		uv_run(&t.loop, UV_RUN_NOWAIT);
	}
	unit_run_until(&t.loop, t.a.frames >= 5);
	pool_listener_close(l);
}

/* Sends a file from `offset` over TCP on this host. Returns the bytes received,
 * up to len or the end of the connection. */
static size_t send_by_tcp(int fd, uint64_t offset, size_t len, uint8_t *to,
			  struct sent *sent)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport at = { .host = "127.0.0.1" };
	size_t got = 0, want = POOL_WIRE_HEADER + len;
	uint8_t *all = malloc(want);
	struct pool_listener *l;
	ssize_t n = 1;

	assert_int_equal(pool_listener_open(&t.loop, &at, on_raw, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_int_equal(pool_conn_connect(&t.loop, &at, &o, &t.a.c), 0);
	run_until(t.a.opened && t.b.fd >= 0);
	assert_int_equal(pool_conn_send_file(t.a.c, POOL_MSG_DATA, 5, NULL, fd,
					     offset, len, on_sent, sent), 0);
	while (n != 0 && got < want) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		n = recv(t.b.fd, all + got, want - got, MSG_DONTWAIT);
		got += n > 0 ? (size_t)n : 0;
	}
	unit_run_until(&t.loop, sent->calls);
	memcpy(to, all + POOL_WIRE_HEADER, got - POOL_WIRE_HEADER);
	free(all);
	pool_listener_close(l);
	return got - POOL_WIRE_HEADER;
}

static void files_go_by_tcp_to_this_host(void **state)
{
	uint8_t *content, *to = malloc(9 * MIB + 77);
	int fd = file_of(9 * MIB + 77, &content);
	struct sent sent = { 0 };

	(void)state;
	assert_int_equal(send_by_tcp(fd, 5, 9 * MIB, to, &sent), 9 * MIB);
	assert_int_equal(sent.err, 0);
	assert_memory_equal(to, content + 5, 9 * MIB);
	close(fd);
	free(content);
	free(to);
}

static void holes_go_as_zeroes_and_stay(void **state)
{
	uint8_t *content, *to = malloc(3 * MIB), *zeroes = calloc(1, MIB);
	int fd = file_of(3 * MIB, &content);
	struct sent sent = { 0 };
	struct stat before, after;

	(void)state;
	assert_int_equal(fallocate(fd, FALLOC_FL_PUNCH_HOLE |
				   FALLOC_FL_KEEP_SIZE, MIB, MIB), 0);
	assert_int_equal(fstat(fd, &before), 0);
	assert_int_equal(send_by_tcp(fd, 0, 3 * MIB, to, &sent), 3 * MIB);
	assert_memory_equal(to, content, MIB);
	assert_memory_equal(to + MIB, zeroes, MIB);
	assert_memory_equal(to + 2 * MIB, content + 2 * MIB, MIB);
	assert_int_equal(fstat(fd, &after), 0);
	assert_int_equal(before.st_blocks, after.st_blocks);
	close(fd);
	free(zeroes);
	free(content);
	free(to);
}

static void nothing_is_added_to_a_file_too_short(void **state)
{
	uint8_t *content, *to = malloc(2 * MIB);
	int fd = file_of(MIB + 10, &content);
	struct sent sent = { 0 };

	(void)state;
	assert_int_equal(send_by_tcp(fd, 0, MIB + 11, to, &sent), MIB + 10);
	assert_int_equal(sent.err, -EIO);
	assert_memory_equal(to, content, MIB + 10);
	close(fd);
	free(content);
	free(to);
}

static void dropped_bulk_memory_is_not_touched_again(void **state)
{
	uint8_t *content;
	int fd = file_of(2 * MIB, &content);
	uint64_t at;

	(void)state;
	connect_pair(AF_UNIX, true);
	t.b.sink = STRAIGHT;
	pool_conn_send_file(t.a.c, POOL_MSG_DATA, 5, NULL, fd, 0, 2 * MIB,
			    NULL, NULL);
	run_until(t.b.bulk_got > 0);
	at = t.b.bulk_got;
	assert_true(at < 2 * MIB);
	pool_conn_bulk_drop(t.b.c);
	t.b.sink = ROOM; /* zero bytes of room: on_bulk_data copies */
	t.b.rooms = 2;
	memset(t.b.bulk, 0, at);
	run_until(t.b.bulks == 1);
	for (size_t i = 0; i < at; i++)
		assert_int_equal(t.b.bulk[i], 0);
	assert_memory_equal(t.b.bulk + at, content + at, 2 * MIB - at);
	close(fd);
	free(content);
}

static void a_file_too_short_ends_the_connection_with_eio(void **state)
{
	struct sent sent = { 0 };
	uint8_t *content;
	int fd = file_of(1000, &content);

	(void)state;
	connect_pair(AF_UNIX, true);
	assert_int_equal(pool_conn_send_file(t.a.c, POOL_MSG_DATA, 5, NULL, fd,
					     0, 1001, on_sent, &sent),
			 0);
	run_until(t.a.closed && t.b.closed);
	assert_int_equal(sent.calls, 1);
	assert_int_equal(sent.err, -EIO);
	assert_int_equal(t.a.err, -EIO);
	assert_int_equal(t.b.bulks, 0);
	close(fd);
	free(content);
}

/* Many of them are sent in one write. Their bytes are those at the time of
 * queuing. */
static void small_files_are_read_when_they_are_queued(void **state)
{
	struct sent sent = { 0 };
	uint8_t *content;
	int fd = file_of(3000, &content);

	(void)state;
	connect_pair(AF_UNIX, true);
	for (int i = 0; i < 100; i++)
		assert_int_equal(0, pool_conn_send_file(t.a.c, POOL_MSG_DATA, 5,
							NULL, fd, 1000, 2000,
							on_sent, &sent));
	assert_int_equal(sent.calls, 0);
	assert_int_equal(0, ftruncate(fd, 0));
	run_until(t.b.bulks == 100);
	assert_int_equal(t.b.bulk_len, 2000);
	assert_memory_equal(t.b.bulk, content + 1000, 2000);
	assert_int_equal(sent.calls, 100);
	assert_int_equal(sent.err, 0);
	close(fd);
	free(content);
}

static void closing_calls_done_of_a_file_being_sent(void **state)
{
	struct sent sent = { 0 };
	uint8_t *content;
	int fd = file_of(8 * MIB, &content), raw;

	(void)state;
	raw = connect_pair(AF_UNIX, false);
	pool_conn_send_file(t.a.c, POOL_MSG_DATA, 5, NULL, fd, 0, 8 * MIB,
			    on_sent, &sent);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	pool_conn_close(t.a.c);
	assert_int_equal(sent.calls, 0);
	run_until(t.a.closed);
	assert_int_equal(sent.calls, 1);
	assert_int_equal(sent.err, -ECANCELED);
	close(raw);
	close(fd);
	free(content);
}

/* ---- descriptors ---- */

static void a_descriptor_rides_on_its_frame(void **state)
{
	uint8_t *content;
	int fd = file_of(10, &content);
	struct stat want, got;

	(void)state;
	connect_pair(AF_UNIX, true);
	for (int i = 0; i < 50; i++)
		send_path(t.a.c, 1, 1000);
	assert_int_equal(pool_conn_send_fd(t.a.c, POOL_MSG_LENT, 2, NULL, fd),
			 0);
	assert_int_equal(pool_conn_send_fd(t.a.c, POOL_MSG_LENT, 2, NULL, fd),
			 0);
	close(t.b.fd);
	run_until(t.b.frames == 51);
	assert_true(t.b.fd >= 0);
	assert_int_equal(t.b.req, 2);
	fstat(fd, &want);
	fstat(t.b.fd, &got);
	assert_true(want.st_ino == got.st_ino);
	assert_true(fcntl(t.b.fd, F_GETFD) & FD_CLOEXEC);
	close(t.b.fd);
	t.b.fd = -1;
	run_until(t.b.frames == 52);
	assert_true(t.b.fd >= 0);
	close(fd);
	free(content);
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void send_with_fds(int sock, const void *buf, size_t len, int fd,
			  unsigned int nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(4 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)buf,
			     .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1,
			    .msg_control = control.buf,
			    .msg_controllen = CMSG_SPACE(nfds * sizeof(int)) };
	struct cmsghdr *h = CMSG_FIRSTHDR(&m);

	h->cmsg_level = SOL_SOCKET;
	h->cmsg_type = SCM_RIGHTS;
	h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
	for (unsigned int i = 0; i < nfds; i++)
		memcpy(CMSG_DATA(h) + i * sizeof(int), &fd, sizeof(int));
	assert_int_equal(sendmsg(sock, &m, 0), len);
}

static void descriptors_beyond_one_a_frame_break_it_and_leak_nothing(
	void **state)
{
	uint8_t b[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = 1, .type = POOL_MSG_LENT };

	(void)state;
	pool_frame_encode(&f, b);
	for (int how = 0; how < 4; how++) {
		unsigned int before = open_fds();
		int raw = connect_pair(AF_UNIX, false);

		t.a.closed = false;
		switch (how) {
		case 0: /* two at once */
			send_with_fds(raw, b, sizeof(b), 0, 2);
			break;
		case 1: /* more descriptors than accepted */
			send_with_fds(raw, b, sizeof(b), 0, 4);
			break;
		case 2: /* one on each half of a frame */
			send_with_fds(raw, b, 10, 0, 1);
			send_with_fds(raw, b + 10, 10, 0, 1);
			break;
		case 3: /* on a frame with bulk */
			f.bulk_len = 100;
			pool_frame_encode(&f, b);
			send_with_fds(raw, b, sizeof(b), 0, 1);
			break;
		}
		run_until(t.a.closed);
		assert_int_equal(t.a.err, -EPROTO);
		close(raw);
		assert_int_equal(t.a.frames, 0);
		assert_int_equal(open_fds(), before);
	}
}

static void a_newer_neighbours_messages_are_passed_over(void **state)
{
	struct pool_frame f = { .version = POOL_WIRE_VERSION + 1,
				.type = 0x7777, .payload_len = 3 };
	unsigned int before = open_fds();
	int raw = connect_pair(AF_UNIX, false);
	uint8_t b[POOL_WIRE_HEADER + 3] = { 0 };
	static uint8_t bulk[100000];

	(void)state;
	pool_frame_encode(&f, b);
	send_with_fds(raw, b, sizeof(b), 0, 1);
	f.bulk_len = sizeof(bulk);
	pool_frame_encode(&f, b);
	assert_int_equal(write(raw, b, sizeof(b)), sizeof(b));
	assert_int_equal(write(raw, bulk, sizeof(bulk)), sizeof(bulk));
	/* After them, a message of a known type. */
	f = (struct pool_frame){ .version = POOL_WIRE_VERSION + 1,
				 .type = POOL_MSG_EVICT, .req = 7 };
	pool_frame_encode(&f, b);
	assert_int_equal(write(raw, b, POOL_WIRE_HEADER), POOL_WIRE_HEADER);
	run_until(t.a.frames);
	assert_int_equal(t.a.frames, 1);
	assert_int_equal(t.a.req, 7);
	assert_int_equal(t.a.bulks, 0);
	assert_int_equal(pool_conn_version(t.a.c), POOL_WIRE_VERSION);
	close(raw);
	run_until(t.a.closed);
	assert_true(open_fds() <= before + 1);
}

static void another_version_is_answered_with_ours(void **state)
{
	struct pool_frame f = { .version = POOL_WIRE_VERSION + 2,
				.type = POOL_MSG_JOIN };
	uint8_t b[512] = { 0 };
	int raw = connect_pair(AF_UNIX, false);

	(void)state;
	pool_frame_encode(&f, b);
	assert_int_equal(write(raw, b, POOL_WIRE_HEADER), POOL_WIRE_HEADER);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -EPROTONOSUPPORT);
	assert_int_equal(t.a.frames, 0);
	assert_true(read(raw, b, sizeof(b)) > POOL_WIRE_HEADER);
	assert_int_equal(pool_frame_decode(b, &f), 0);
	assert_int_equal(f.version, POOL_WIRE_VERSION);
	assert_int_equal(f.type, POOL_MSG_ERROR);
	close(raw);
}

static void a_descriptor_of_an_unfinished_frame_is_closed(void **state)
{
	uint8_t b[POOL_WIRE_HEADER] = { 'K', 'V', 'P', '1' };
	unsigned int before = open_fds();
	int raw = connect_pair(AF_UNIX, false);

	(void)state;
	send_with_fds(raw, b, 4, 0, 1);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	close(raw);
	run_until(t.a.closed);
	/* Only the loop's own descriptors are left. */
	assert_true(open_fds() <= before + 1);
}

/* ---- life ---- */

static void dialling_by_name_opens_and_sends_what_was_queued(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport at = { .host = "127.0.0.1" };
	struct pool_listener *l;

	(void)state;
	assert_int_equal(pool_listener_open(&t.loop, &at, on_accept, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_true(at.port > 0);
	strcpy(at.host, "localhost"); /* ::1 may be tried first */
	assert_int_equal(pool_conn_connect(&t.loop, &at, &o, &t.a.c), 0);
	assert_false(t.a.opened);
	assert_int_equal(send_path(t.a.c, 3, 10), 0);
	run_until(t.b.frames == 1);
	assert_true(t.a.opened);
	assert_int_equal(t.b.req, 3);
	pool_listener_close(l);
}

static void refused_and_unknown_hosts_end_in_on_close(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport to = { .host = "127.0.0.1", .port = 1 };

	(void)state;
	assert_int_equal(pool_conn_connect(&t.loop, &to, &o, &t.a.c), 0);
	assert_false(t.a.closed);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -ECONNREFUSED);
	assert_false(t.a.opened);
	t.a.closed = false;
	strcpy(to.host, "no-such-host.invalid");
	assert_int_equal(pool_conn_connect(&t.loop, &to, &o, &t.a.c), 0);
	run_until(t.a.closed);
	assert_true(t.a.err == -EHOSTUNREACH || t.a.err == -ETIMEDOUT);
	t.a.closed = false;
	assert_int_equal(pool_conn_connect_unix(&t.loop, "/nonexistent/x", &o,
						&t.a.c),
			 0);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -ENOENT);
}

static void closing_while_the_name_is_being_resolved_is_safe(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport to = { .host = "localhost", .port = 1 };

	(void)state;
	assert_int_equal(pool_conn_connect(&t.loop, &to, &o, &t.a.c), 0);
	pool_conn_close(t.a.c);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, 0);
}

static void silence_ends_the_connection_when_asked_for(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a,
				    .idle_timeout_ms = 50 };
	uint64_t began = uv_hrtime();
	int sv[2];

	(void)state;
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o, &t.a.c), 0);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, -ETIMEDOUT);
	assert_true(uv_hrtime() - began >= 45 * 1000000ull);
	close(sv[1]);
}

/* The timer wakes the loop only for a connection that is silent. */
static void input_pushes_the_idle_timer_on(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a,
				    .idle_timeout_ms = 10000 };
	uint8_t b[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = 1, .type = POOL_MSG_SYNC };
	uint64_t due;
	int sv[2];

	(void)state;
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o, &t.a.c), 0);
	t.a.c->idle_armed_ms -= 4000; /* as if it were so long ago */
	uv_timer_start(&t.a.c->timer, t.a.c->timer.timer_cb, 6000, 0);
	due = uv_timer_get_due_in(&t.a.c->timer);
	pool_frame_encode(&f, b);
	assert_int_equal(write(sv[1], b, sizeof(b)), sizeof(b));
	run_until(t.a.frames);
	assert_true(uv_timer_get_due_in(&t.a.c->timer) > due);
	pool_conn_close(t.a.c);
	run_until(t.a.closed);
	close(sv[1]);
}

static void input_that_waited_for_us_is_not_silence(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a,
				    .idle_timeout_ms = 50 };
	uint8_t b[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = 1, .type = POOL_MSG_SYNC };
	int sv[2];

	(void)state;
	socketpair(AF_UNIX, SOCK_STREAM, 0, sv);
	assert_int_equal(pool_conn_from_fd(&t.loop, sv[0], &o, &t.a.c), 0);
	pool_frame_encode(&f, b);
	assert_int_equal(write(sv[1], b, sizeof(b)), sizeof(b));
	usleep(80000); /* as if the loop were busy */
	run_until(t.a.frames || t.a.closed);
	assert_int_equal(t.a.frames, 1);
	assert_false(t.a.closed);
	close(sv[1]);
}

/* Over TCP, where closing with unread input resets the connection and loses
 * bytes in flight. */
static void draining_sends_everything_before_the_end(void **state)
{
	enum { N = 500 };
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport at = { .host = "127.0.0.1" };
	struct pool_listener *l;

	(void)state;
	assert_int_equal(pool_listener_open(&t.loop, &at, on_accept, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_int_equal(pool_conn_connect(&t.loop, &at, &o, &t.a.c), 0);
	run_until(t.a.opened && t.b.c);
	pool_listener_close(l);
	for (int i = 0; i < N; i++)
		assert_int_equal(send_path(t.a.c, 0, 10000), 0);
	send_path(t.b.c, 0, 100);
	pool_conn_drain_close(t.a.c, 5000);
	assert_int_equal(send_path(t.a.c, 0, 1), -ENOTCONN);
	for (int i = 0; i < 100; i++) /* input that will not be read */
		send_path(t.b.c, 0, 1000);
	run_until(t.a.closed && t.b.closed);
	assert_int_equal(t.b.frames, N);
	assert_int_equal(t.a.frames, 0);
	assert_int_equal(t.a.err, 0);
}

static void draining_gives_up_after_its_time(void **state)
{
	int raw = connect_pair(AF_UNIX, false);

	(void)state;
	for (int i = 0; i < 500; i++)
		send_path(t.a.c, 0, 10000);
	pool_conn_drain_close(t.a.c, 50);
	run_until(t.a.closed);
	assert_int_equal(t.a.err, 0);
	close(raw);
}

static void draining_a_dialled_connection_waits_until_it_is_open(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_hostport at = { .host = "127.0.0.1" };
	struct pool_listener *l;

	(void)state;
	assert_int_equal(pool_listener_open(&t.loop, &at, on_accept, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_int_equal(pool_conn_connect(&t.loop, &at, &o, &t.a.c), 0);
	send_path(t.a.c, 3, 10);
	pool_conn_drain_close(t.a.c, 5000);
	run_until(t.a.closed && t.b.closed);
	assert_int_equal(t.b.frames, 1);
	assert_false(t.a.opened);
	pool_listener_close(l);
}

static void detaching(struct end *e)
{
	e->detached = pool_conn_detach(e->c, &e->stream);
	if (e->detached >= 0)
		e->c = NULL;
}

static void a_detached_socket_lives_on_without_its_connection(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.b };

	(void)state;
	connect_pair(AF_UNIX, true);
	t.b.on_frame = detaching;
	send_path(t.a.c, 1, 10);
	run_until(t.b.frames == 1);
	assert_true(t.b.detached >= 0);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	assert_false(t.b.closed);
	t.b.on_frame = NULL;
	assert_int_equal(pool_conn_from_fd(&t.loop, t.b.detached, &o, &t.b.c),
			 0);
	send_path(t.a.c, 2, 10);
	run_until(t.b.frames == 2);
}

static void detaching_with_bytes_already_read_is_refused(void **state)
{
	uint8_t b[2 * POOL_WIRE_HEADER];
	struct pool_frame f = { .version = 1, .type = POOL_MSG_SYNC };
	int raw = connect_pair(AF_UNIX, false);

	(void)state;
	pool_frame_encode(&f, b);
	pool_frame_encode(&f, b + POOL_WIRE_HEADER);
	t.a.on_frame = detaching;
	assert_int_equal(write(raw, b, sizeof(b) - 1), sizeof(b) - 1);
	run_until(t.a.frames == 1);
	assert_int_equal(t.a.detached, -EBUSY);
	close(raw);
}

/* ---- listening ---- */

static void a_unix_listener_is_private_and_cleans_up(void **state)
{
	struct pool_conn_opts o = { .ops = &ops, .user = &t.a };
	struct pool_listener *l, *second;
	char path[64];
	struct stat st;

	(void)state;
	snprintf(path, sizeof(path), "%s/sock", t.dir);
	assert_int_equal(pool_listener_open_unix(&t.loop, path, on_accept,
						 &t.b, &l),
			 0);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_mode & 0777, 0600);
	assert_int_equal(pool_listener_open_unix(&t.loop, path, on_accept,
						 &t.b, &second),
			 -EADDRINUSE);
	run_until(t.b.closed); /* the check for a listener connects */
	t.b.closed = false;
	assert_int_equal(pool_conn_connect_unix(&t.loop, path, &o, &t.a.c), 0);
	send_path(t.a.c, 1, 1);
	run_until(t.b.frames == 1);
	pool_listener_close(l);
	assert_int_equal(stat(path, &st), -1);
}

static void a_stale_socket_is_replaced_and_another_file_is_not(void **state)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	struct pool_listener *l;
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	(void)state;
	snprintf(un.sun_path, sizeof(un.sun_path), "%s/sock", t.dir);
	assert_int_equal(bind(fd, (struct sockaddr *)&un, sizeof(un)), 0);
	close(fd);
	assert_int_equal(pool_listener_open_unix(&t.loop, un.sun_path,
						 on_accept, &t.b, &l),
			 0);
	pool_listener_close(l);
	fd = open(un.sun_path, O_CREAT | O_WRONLY, 0600);
	close(fd);
	assert_int_equal(pool_listener_open_unix(&t.loop, un.sun_path,
						 on_accept, &t.b, &l),
			 -EEXIST);
	assert_int_equal(unlink(un.sun_path), 0);
}

static void a_port_in_use_is_an_error(void **state)
{
	struct pool_hostport at = { .host = "127.0.0.1" };
	struct pool_listener *l, *second;

	(void)state;
	assert_int_equal(pool_listener_open(&t.loop, &at, on_accept, &t.b, &l),
			 0);
	at.port = pool_listener_port(l);
	assert_int_equal(pool_listener_open(&t.loop, &at, on_accept, &t.b,
					    &second),
			 -EADDRINUSE);
	pool_listener_close(l);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(frames_of_all_sizes_arrive_in_order),
		T(one_that_is_held_delivers_nothing),
		T(a_share_that_nobody_uses_lets_the_loop_sleep),
		T(connections_that_share_a_turn_get_one_in_turn),
		T(a_stream_cut_into_single_bytes_is_understood),
		T(garbage_ends_the_connection_with_eproto),
		T(too_much_payload_is_refused_before_queueing),
		T(a_queue_beyond_its_limit_refuses_frames),
		T(a_connection_may_be_closed_in_its_own_callback),
		T(answers_are_sent_together_in_the_turn_of_their_requests),
		T(bulk_arrives_through_staging),
		T(bulk_arrives_straight_in_memory),
		T(bulk_arrives_in_rooms),
		T(bulk_for_memory_that_is_gone_is_an_error),
		T(bulk_over_tcp_wakes_for_slices),
		T(files_go_by_tcp_to_this_host),
		T(holes_go_as_zeroes_and_stay),
		T(nothing_is_added_to_a_file_too_short),
		T(dropped_bulk_memory_is_not_touched_again),
		T(a_file_too_short_ends_the_connection_with_eio),
		T(small_files_are_read_when_they_are_queued),
		T(closing_calls_done_of_a_file_being_sent),
		T(a_descriptor_rides_on_its_frame),
		T(descriptors_beyond_one_a_frame_break_it_and_leak_nothing),
		T(a_newer_neighbours_messages_are_passed_over),
		T(another_version_is_answered_with_ours),
		T(a_descriptor_of_an_unfinished_frame_is_closed),
		T(dialling_by_name_opens_and_sends_what_was_queued),
		T(refused_and_unknown_hosts_end_in_on_close),
		T(closing_while_the_name_is_being_resolved_is_safe),
		T(requests_are_not_read_while_answers_are_unread),
		T(a_peer_that_reads_nothing_is_disconnected),
		T(a_peer_that_reads_slowly_is_not_disconnected),
		T(a_peer_that_reads_while_we_are_busy_is_not_disconnected),
		T(one_that_is_closed_by_the_peer_meanwhile_ends),
		T(silence_ends_the_connection_when_asked_for),
		T(input_pushes_the_idle_timer_on),
		T(input_that_waited_for_us_is_not_silence),
		T(draining_sends_everything_before_the_end),
		T(draining_gives_up_after_its_time),
		T(draining_a_dialled_connection_waits_until_it_is_open),
		T(a_detached_socket_lives_on_without_its_connection),
		T(detaching_with_bytes_already_read_is_refused),
		T(a_unix_listener_is_private_and_cleans_up),
		T(a_stale_socket_is_replaced_and_another_file_is_not),
		T(a_port_in_use_is_an_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
