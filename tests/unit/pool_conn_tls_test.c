/* Connections with TLS, over loopback. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/unpack.h"
#include "tests/unit/tls_pki.h"

#define BULK (5u << 20)

static struct {
	struct pki_ca ca;
	char *holder, *node;
} pki;

struct end {
	struct pool_conn *c;
	bool opened, closed;
	int err;
	unsigned int frames;
	uint64_t bulk;
	bool wrong; /* a byte of bulk */
	void (*on_frame)(struct end *e);
	int fd;
	struct pool_tls_stream *stream;
};

static struct {
	uv_loop_t loop;
	struct end dials, accepts;
	struct pool_listener *l;
	struct pool_hostport at;
	struct pool_conn_opts opts; /* of accepted connections */
	struct pool_tls *holder, *node;
} t;

static int group_setup(void **state)
{
	(void)state;
	pki_ca_make(&pki.ca);
	pki.holder = pki_dir(&pki.ca, "node");
	pki.node = pki_dir(&pki.ca, "node");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	pki_dir_free(pki.holder);
	pki_dir_free(pki.node);
	pki_ca_free(&pki.ca);
	return 0;
}

/* ---- the two ends ---- */

static uint8_t byte_at(uint64_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

static void on_open(struct pool_conn *c)
{
	struct end *e = pool_conn_user(c);

	e->opened = true;
}

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct end *e = pool_conn_user(c);

	(void)f;
	(void)payload;
	assert_int_equal(-1, fd);
	e->frames++;
	if (e->on_frame)
		e->on_frame(e);
}

static void on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			 const void *data, size_t len, uint64_t offset)
{
	struct end *e = pool_conn_user(c);
	const uint8_t *p = data;

	(void)f;
	assert_int_equal(e->bulk, offset);
	for (size_t i = 0; i < len; i++)
		if (p[i] != byte_at(offset + i))
			e->wrong = true;
	e->bulk += len;
}

static int closed; /* number of on_close */

static void on_close(struct pool_conn *c, int err)
{
	struct end *e = pool_conn_user(c);

	closed++;
	e->closed = true;
	e->err = err;
	e->c = NULL;
}

static const struct pool_conn_ops ops = {
	.on_open = on_open,
	.on_frame = on_frame,
	.on_bulk_data = on_bulk_data,
	.on_close = on_close,
};

static void on_accept(void *arg, int fd)
{
	int small = 4096; /* size of the socket's buffer */

	(void)arg;
	assert_int_equal(0, setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small,
				       sizeof(small)));
	assert_int_equal(0, pool_conn_from_fd(&t.loop, fd, &t.opts,
					      &t.accepts.c));
}

static struct pool_tls *open_tls(const char *dir)
{
	char why[POOL_TLS_WHY];
	struct pool_tls *tls;
	int err = pool_tls_open(dir, &tls, why);

	if (err)
		fail_msg("%s", why);
	return tls;
}

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof(t));
	closed = 0;
	assert_int_equal(0, uv_loop_init(&t.loop));
	t.holder = open_tls(pki.holder);
	t.node = open_tls(pki.node);
	t.at = (struct pool_hostport){ .host = "127.0.0.1" };
	assert_int_equal(0, pool_listener_open(&t.loop, &t.at, on_accept, NULL,
					       &t.l));
	t.at.port = pool_listener_port(t.l);
	t.opts = (struct pool_conn_opts){ .ops = &ops,
					  .user = &t.accepts,
					  .tls = t.holder,
					  .tls_roles = POOL_ROLES_USERS };
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	if (t.dials.c)
		pool_conn_close(t.dials.c);
	if (t.accepts.c)
		pool_conn_close(t.accepts.c);
	pool_listener_close(t.l);
	while (uv_run(&t.loop, UV_RUN_DEFAULT))
		;
	assert_int_equal(0, uv_loop_close(&t.loop));
	pool_tls_close(t.holder);
	pool_tls_close(t.node);
	return 0;
}

static void dial(struct pool_tls *tls)
{
	const struct pool_conn_opts o = {
		.ops = &ops,
		.user = &t.dials,
		.tls = tls,
		.tls_roles = POOL_ROLE_BIT(POOL_ROLE_NODE),
	};

	assert_int_equal(0, pool_conn_connect(&t.loop, &t.at, &o, &t.dials.c));
}

static void send_frame(struct pool_conn *c)
{
	Kvpool__Sync sync = KVPOOL__SYNC__INIT;

	assert_int_equal(0, pool_conn_send(c, POOL_MSG_SYNC, 1, &sync.base));
}

static void share_closed(uv_handle_t *h)
{
	(void)h;
}

static int dial_raw(void)
{
	struct sockaddr_in in = { .sin_family = AF_INET,
				  .sin_port = htons(t.at.port) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	inet_pton(AF_INET, "127.0.0.1", &in.sin_addr);
	assert_int_equal(0, connect(fd, (struct sockaddr *)&in, sizeof(in)));
	return fd;
}

/* ---- tests ---- */

static void frames_go_both_ways(void **state)
{
	(void)state;
	dial(t.node);
	send_frame(t.dials.c); /* queued before on_open */
	unit_run_until(&t.loop, t.accepts.frames == 1);
	assert_true(t.dials.opened);
	assert_false(t.accepts.opened);
	send_frame(t.accepts.c);
	unit_run_until(&t.loop, t.dials.frames == 1);
	assert_int_equal(POOL_ROLE_NODE, pool_conn_peer_id(t.accepts.c)->role);
	assert_int_equal(POOL_ROLE_NODE, pool_conn_peer_id(t.dials.c)->role);
	assert_true(pool_conn_peer_has_host(t.accepts.c, "localhost"));
	assert_false(pool_conn_peer_has_host(t.accepts.c, "10.0.0.1"));
}

static void sent(void *arg, int err)
{
	*(int *)arg = err;
}

static int file_of(uint64_t len)
{
	int fd = memfd_create("bulk", MFD_CLOEXEC);
	uint8_t *p;

	assert_int_equal(0, ftruncate(fd, (off_t)len));
	p = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	for (uint64_t i = 0; i < len; i++)
		p[i] = byte_at(i);
	munmap(p, len);
	return fd;
}

/* More than a slice, a batch and the socket's buffers. Nothing is sent
 * afterwards that would flush its end. */
static void bulk_of_a_file_arrives(void **state)
{
	int fd = file_of(BULK), done = 1;

	(void)state;
	dial(t.node);
	unit_run_until(&t.loop, t.dials.opened);
	assert_int_equal(0, pool_conn_send_file(t.accepts.c, POOL_MSG_DATA, 1,
						NULL, fd, 0, BULK, sent,
						&done));
	unit_run_until(&t.loop, t.dials.bulk == BULK);
	assert_int_equal(0, done);
	assert_false(t.dials.wrong);
	close(fd);
}

/* Both ends do it between the same two frames. */
static void after_the_end_of_tls_bytes_are_plain(void **state)
{
	int fd = file_of(BULK), done = 1;

	(void)state;
	t.opts.tls_bulk = true;
	dial(t.node);
	unit_run_until(&t.loop, t.dials.opened);
	assert_int_equal(0, pool_conn_send_file(t.accepts.c, POOL_MSG_DATA, 1,
						NULL, fd, 0, BULK, sent,
						&done));
	assert_int_equal(-EBUSY, pool_conn_end_tls(t.accepts.c));
	unit_run_until(&t.loop, t.dials.bulk == BULK);
	assert_int_equal(0, pool_conn_end_tls(t.dials.c));
	assert_int_equal(0, pool_conn_end_tls(t.accepts.c));
	assert_null(pool_conn_peer_id(t.dials.c));
	t.dials.bulk = 0;
	assert_int_equal(0, pool_conn_send_file(t.accepts.c, POOL_MSG_DATA, 2,
						NULL, fd, 0, BULK, sent,
						&done));
	unit_run_until(&t.loop, t.dials.bulk == BULK);
	assert_int_equal(0, done);
	assert_false(t.dials.wrong);
	close(fd);
}

/* The stream reads ahead more than the receiver takes in one turn. The rest is
 * in the stream, and the socket does not become readable for it. */
static void what_was_read_ahead_is_taken_in_the_next_turn(void **state)
{
	uint64_t len = 3 * POOL_CONN_SHARE_SLICE;
	int fd = file_of(len), done = 1;
	struct pool_share share;

	(void)state;
	pool_share_open(&share, &t.loop, 1u << 20);
	t.opts.share = &share;
	t.opts.tls_bulk = true;
	dial(t.node);
	unit_run_until(&t.loop, t.dials.opened);
	assert_int_equal(0, pool_conn_send_file(t.dials.c, POOL_MSG_DATA, 1,
						NULL, fd, 0, len, sent, &done));
	unit_run_until(&t.loop, t.accepts.bulk == len);
	assert_false(t.accepts.wrong);
	close(fd);
	pool_conn_close(t.accepts.c);
	unit_run_until(&t.loop, t.accepts.closed);
	pool_share_close(&share, share_closed);
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

/* A dialler may send as soon as its own half of the handshake is complete. */
static void what_comes_with_the_end_of_the_handshake_is_taken(void **state)
{
	const struct pool_tls_want want = {
		.dialled = true,
		.roles = POOL_ROLE_BIT(POOL_ROLE_NODE),
	};
	struct pool_tls_stream *s;
	uint8_t frame[POOL_WIRE_HEADER], wire[16 << 10];
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_SYNC };
	struct iovec iov = { .iov_base = frame, .iov_len = sizeof(frame) };
	int fd = dial_raw(), pair[2], err;
	ssize_t n;

	(void)state;
	/* Over a socket pair, so that both are sent by one write. */
	assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
				       pair));
	assert_int_equal(0, pool_tls_start(t.node, pair[0], &want, &s));
	assert_int_equal(-EAGAIN, pool_tls_shake(s));
	n = recv(pair[1], wire, sizeof(wire), 0);
	assert_int_equal(n, send(fd, wire, (size_t)n, 0));
	do {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		n = recv(fd, wire, sizeof(wire), MSG_DONTWAIT);
		if (n > 0)
			assert_int_equal(n, send(pair[1], wire, (size_t)n, 0));
		err = pool_tls_shake(s);
	} while (err == -EAGAIN);
	assert_int_equal(0, err);
	pool_frame_encode(&f, frame);
	assert_int_equal(sizeof(frame), pool_tls_write(s, &iov, 1));
	n = recv(pair[1], wire, sizeof(wire), 0);
	assert_int_equal(n, send(fd, wire, (size_t)n, 0));
	unit_run_until(&t.loop, t.accepts.frames == 1);
	pool_tls_free(s);
	close(pair[0]);
	close(pair[1]);
	close(fd);
}

static void detaching(struct end *e)
{
	e->fd = pool_conn_detach(e->c, &e->stream);
	assert_true(e->fd >= 0);
	e->c = NULL;
}

static void a_detached_stream_goes_on(void **state)
{
	(void)state;
	t.accepts.on_frame = detaching;
	dial(t.node);
	send_frame(t.dials.c);
	unit_run_until(&t.loop, t.accepts.frames == 1);
	assert_non_null(t.accepts.stream);
	send_frame(t.dials.c);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	t.accepts.on_frame = NULL;
	t.opts.stream = t.accepts.stream;
	t.opts.tls = NULL;
	on_accept(NULL, t.accepts.fd);
	unit_run_until(&t.loop, t.accepts.frames == 2);
	send_frame(t.accepts.c);
	unit_run_until(&t.loop, t.dials.frames == 1);
}

/* No frame is delivered, and on_open is not called. */
static void refused(struct pool_tls *tls, int err)
{
	dial(tls);
	send_frame(t.dials.c);
	unit_run_until(&t.loop, t.dials.closed && t.accepts.closed);
	assert_int_equal(err, t.accepts.err);
	assert_int_equal(0, t.accepts.frames);
	assert_int_equal(0, t.dials.frames);
}

static void a_role_that_is_not_accepted_is_refused(void **state)
{
	(void)state;
	t.opts.tls_roles = POOL_ROLE_BIT(POOL_ROLE_ADMIN);
	refused(t.node, -EKEYREJECTED);
}

static void plain_text_is_not_accepted(void **state)
{
	(void)state;
	refused(NULL, -EKEYREJECTED);
}

static void a_dialler_in_plain_text_is_refused(void **state)
{
	(void)state;
	t.opts.tls = NULL;
	dial(t.node);
	send_frame(t.dials.c);
	unit_run_until(&t.loop, t.dials.closed);
	assert_false(t.dials.opened);
	assert_int_equal(0, t.accepts.frames);
}

static uint64_t handshakes(const char *result)
{
	struct pool_metrics *m = pool_metrics_open();
	char *text, *at, key[64];
	size_t len;
	uint64_t n;

	assert_int_equal(0, pool_tls_metrics(t.holder, m));
	assert_int_equal(0, pool_metrics_print(m, &text, &len));
	snprintf(key, sizeof(key), "{result=\"%s\"} ", result);
	at = strstr(text, key);
	assert_non_null(at);
	n = strtoull(at + strlen(key), NULL, 10);
	free(text);
	pool_metrics_close(m);
	return n;
}

static void a_handshake_that_takes_too_long_ends(void **state)
{
	int fd;

	(void)state;
	t.opts.connect_timeout_ms = 50;
	fd = dial_raw();
	assert_int_equal(3, write(fd, "\x16\x03\x01", 3));
	unit_run_until(&t.loop, t.accepts.closed);
	assert_int_equal(-ETIMEDOUT, t.accepts.err);
	assert_true(handshakes("failed") == 1);
	close(fd);
}

/* A peer whose records the test makes; returns after its handshake. */
static struct pool_tls_stream *shake_raw(int fd)
{
	const struct pool_tls_want want = {
		.dialled = true,
		.roles = POOL_ROLE_BIT(POOL_ROLE_NODE),
	};
	struct pool_tls_stream *s;
	int err;

	fcntl(fd, F_SETFL, O_NONBLOCK);
	assert_int_equal(0, pool_tls_start(t.node, fd, &want, &s));
	while ((err = pool_tls_shake(s)) == -EAGAIN)
		uv_run(&t.loop, UV_RUN_NOWAIT);
	assert_int_equal(0, err);
	return s;
}

/* Nothing follows, and the peer stays connected. */
static void an_invalid_record_behind_a_frame_ends_the_connection(void **state)
{
	static const uint8_t wrong[37] = { 23, 3, 3, 0, 32 };
	const struct pool_frame f = { .version = POOL_WIRE_VERSION,
				      .type = POOL_MSG_SYNC,
				      .req = 1 };
	uint8_t header[POOL_WIRE_HEADER];
	struct iovec iov = { .iov_base = header, .iov_len = sizeof(header) };
	struct pool_tls_stream *s;
	int fd;

	(void)state;
	fd = dial_raw();
	s = shake_raw(fd);
	pool_frame_encode(&f, header);
	/* The receiver gets both with one read. */
	assert_int_equal(sizeof(header), pool_tls_write(s, &iov, 1));
	assert_int_equal(sizeof(wrong), write(fd, wrong, sizeof(wrong)));
	unit_run_until(&t.loop, t.accepts.closed);
	assert_int_equal(-EPROTO, t.accepts.err);
	assert_int_equal(1, t.accepts.frames);
	pool_tls_free(s);
	close(fd);
}

/* By the table in pool/conn/msg.c, a node may not send its master this type. */
static void what_a_role_may_not_send_ends_the_connection(void **state)
{
	Kvpool__Feed feed = KVPOOL__FEED__INIT;

	(void)state;
	dial(t.node);
	unit_run_until(&t.loop, t.dials.opened);
	assert_int_equal(0, pool_conn_send(t.dials.c, POOL_MSG_FEED, 0,
					   &feed.base));
	unit_run_until(&t.loop, t.dials.frames == 1); /* ERROR */
	pool_conn_close(t.dials.c);
	unit_run_until(&t.loop, t.accepts.closed);
	assert_int_equal(-EACCES, t.accepts.err);
	assert_int_equal(0, t.accepts.frames);
}

/* The table again: one role too many in it would let a node give orders. */
static void each_message_has_the_roles_that_may_send_it(void **state)
{
	const unsigned int master = POOL_ROLE_BIT(POOL_ROLE_MASTER),
			   users = POOL_ROLE_BIT(POOL_ROLE_NODE) |
				   POOL_ROLE_BIT(POOL_ROLE_CLIENT);

	(void)state;
	for (uint16_t type = 0; type < POOL_MSG_MAX; type++) {
		unsigned int from = users;

		if (!pool_msg_known(type))
			continue;
		if (type == POOL_MSG_WELCOME || type == POOL_MSG_FEED ||
		    type == POOL_MSG_OPS_DONE || type == POOL_MSG_DROP ||
		    type == POOL_MSG_REPLICATE || type == POOL_MSG_SYNCED)
			from = master;
		else if (type == POOL_MSG_EVICT || type == POOL_MSG_HEARTBEAT)
			from = master | users;
		else if (type == POOL_MSG_ERROR)
			from = master | users | POOL_ROLE_BIT(POOL_ROLE_ADMIN);
		if (pool_msg_bound(type)->from != from)
			fail_msg("%s: roles %x, not %x", pool_msg_name(type),
				 pool_msg_bound(type)->from, from);
	}
}

#define CROWD 6
#define CROWD_TURN 2

static struct {
	struct pool_tls_stream *s;
	int fd;
} crowd[CROWD];

/* Number of connections whose first handshake message was answered. */
static int answered(void)
{
	int n = 0;
	char byte;

	for (int i = 0; i < CROWD; i++)
		n += recv(crowd[i].fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
	return n;
}

static void handshakes_of_a_crowd_make_no_turn_long(void **state)
{
	const struct pool_tls_want want = {
		.dialled = true,
		.roles = POOL_ROLE_BIT(POOL_ROLE_NODE),
	};
	struct pool_share shakes;
	int before = 0, now;

	(void)state;
	pool_share_open(&shakes, &t.loop, CROWD_TURN);
	t.opts.shakes = &shakes;
	t.opts.connect_timeout_ms = 100;
	for (int i = 0; i < CROWD; i++) {
		crowd[i].fd = dial_raw();
		assert_int_equal(0, pool_tls_start(t.node, crowd[i].fd, &want,
						   &crowd[i].s));
		assert_int_equal(-EAGAIN, pool_tls_shake(crowd[i].s));
	}
	for (int i = 0; i < 100 && before < CROWD; i++) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		now = answered();
		assert_in_range(now - before, 0, CROWD_TURN);
		before = now;
	}
	assert_int_equal(CROWD, before);
	/* No handshake ends, so all connections time out. */
	unit_run_until(&t.loop, closed == CROWD);
	for (int i = 0; i < CROWD; i++) {
		pool_tls_free(crowd[i].s);
		close(crowd[i].fd);
	}
	pool_share_close(&shakes, share_closed);
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

/* Frames queued before a drain are sent encrypted. */
static void draining_sends_what_is_queued(void **state)
{
	(void)state;
	dial(t.node);
	unit_run_until(&t.loop, t.dials.opened);
	for (int i = 0; i < 1000; i++)
		send_frame(t.dials.c);
	pool_conn_drain_close(t.dials.c, 5000);
	unit_run_until(&t.loop, t.accepts.closed);
	assert_int_equal(1000, t.accepts.frames);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(frames_go_both_ways),
		T(bulk_of_a_file_arrives),
		T(after_the_end_of_tls_bytes_are_plain),
		T(what_was_read_ahead_is_taken_in_the_next_turn),
		T(what_comes_with_the_end_of_the_handshake_is_taken),
		T(a_detached_stream_goes_on),
		T(a_role_that_is_not_accepted_is_refused),
		T(plain_text_is_not_accepted),
		T(a_dialler_in_plain_text_is_refused),
		T(a_handshake_that_takes_too_long_ends),
		T(an_invalid_record_behind_a_frame_ends_the_connection),
		T(what_a_role_may_not_send_ends_the_connection),
		T(each_message_has_the_roles_that_may_send_it),
		T(handshakes_of_a_crowd_make_no_turn_long),
		T(draining_sends_what_is_queued),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
