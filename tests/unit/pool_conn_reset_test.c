/* A peer that sends and then resets the connection, before we have read or
 * while we send. All that it sent is delivered, then the connection ends. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/conn/conn.h"

#define FRAME 1000u
#define TIME_LIMIT_S 30

struct fixture {
	uv_loop_t loop;
	struct pool_conn *c; /* NULL: closed */
	int peer;	     /* the other end; -1: closed */
	unsigned int frames, sent;
	int err, file_err;
	bool in_call;
};

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct fixture *x = pool_conn_user(c);

	(void)payload;
	assert_false(x->in_call);
	assert_int_equal(-1, fd);
	assert_int_equal(x->frames, f->req);
	assert_int_equal(FRAME - POOL_WIRE_HEADER, f->payload_len);
	x->frames++;
}

static void on_close(struct pool_conn *c, int err)
{
	struct fixture *x = pool_conn_user(c);

	assert_false(x->in_call);
	assert_non_null(x->c);
	x->c = NULL;
	x->err = err;
}

static const struct pool_conn_ops ops = {
	.on_frame = on_frame,
	.on_close = on_close,
};

static int setup(void **state)
{
	struct fixture *x = calloc(1, sizeof(*x));

	assert_non_null(x);
	alarm(TIME_LIMIT_S);
	x->peer = -1;
	x->file_err = 1;
	*state = x;
	return uv_loop_init(&x->loop);
}

static int teardown(void **state)
{
	struct fixture *x = *state;
	int r = uv_loop_close(&x->loop);

	free(x);
	alarm(0);
	return r;
}

static void tcp_pair(int sv[2])
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(0, bind(l, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, listen(l, 1));
	assert_int_equal(0, getsockname(l, (void *)&sa, &len));
	sv[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_int_equal(0, connect(sv[1], (void *)&sa, sizeof(sa)));
	sv[0] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	assert_true(sv[0] >= 0);
	close(l);
}

static void begin(struct fixture *x, int family, struct pool_share *share)
{
	struct pool_conn_opts o = { .ops = &ops, .user = x, .share = share };
	int sv[2];

	if (family == AF_INET)
		tcp_pair(sv);
	else
		assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM |
							SOCK_CLOEXEC, 0, sv));
	x->peer = sv[1];
	assert_int_equal(0, fcntl(x->peer, F_SETFL, O_NONBLOCK));
	assert_int_equal(0, pool_conn_from_fd(&x->loop, sv[0], &o, &x->c));
}

/* The peer sends up to n whole frames, as many as the sockets hold. */
static void peer_sends(struct fixture *x, unsigned int n)
{
	uint8_t b[FRAME] = { 0 };
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_SYNC,
				.payload_len = FRAME - POOL_WIRE_HEADER };

	for (; x->sent < n; x->sent++) {
		f.req = x->sent;
		pool_frame_encode(&f, b);
		if (send(x->peer, b, sizeof(b), MSG_NOSIGNAL) !=
		    (ssize_t)sizeof(b))
			break;
	}
	assert_true(x->sent > 0);
}

/* Closes TCP at once and with a reset. A Unix socket that is closed with unread
 * input resets as well. */
static void peer_resets(struct fixture *x)
{
	struct linger now = { .l_onoff = 1 };

	assert_int_equal(0, setsockopt(x->peer, SOL_SOCKET, SO_LINGER, &now,
				       sizeof(now)));
	close(x->peer);
	x->peer = -1;
}

static void until_closed(struct fixture *x)
{
	uint64_t end = pool_now_ms() + 15000;

	while (x->c) {
		if (pool_now_ms() > end)
			fail_msg("not closed, with %u of %u frames received",
				 (unsigned int)x->frames,
				 (unsigned int)x->sent);
		uv_run(&x->loop, UV_RUN_NOWAIT);
	}
}

static void all_of_it_came(struct fixture *x)
{
	until_closed(x);
	assert_int_equal(x->sent, x->frames);
	assert_true(x->err == -ECONNRESET || x->err == -EPIPE);
	assert_int_equal(0, uv_run(&x->loop, UV_RUN_DEFAULT));
}

static void send_to_peer(struct fixture *x)
{
	x->in_call = true;
	assert_int_equal(0, pool_conn_send(x->c, POOL_MSG_SYNC, 0, NULL));
	x->in_call = false;
}

static void what_came_before_a_reset_is_delivered(void **state)
{
	struct fixture *x = *state;

	begin(x, AF_INET, NULL);
	peer_sends(x, 3);
	peer_resets(x);
	all_of_it_came(x);
}

static void a_unix_peer_that_left_something_unread_as_well(void **state)
{
	struct fixture *x = *state;

	begin(x, AF_UNIX, NULL);
	send_to_peer(x);
	peer_sends(x, 3);
	peer_resets(x);
	all_of_it_came(x);
}

/* More than one turn of the loop reads. */
static void all_the_slices_before_it_are(void **state)
{
	struct fixture *x = *state;
	int size = 4 << 20;

	begin(x, AF_UNIX, NULL);
	assert_int_equal(0, setsockopt(x->peer, SOL_SOCKET, SO_SNDBUF, &size,
				       sizeof(size)));
	send_to_peer(x);
	peer_sends(x, 3 * POOL_CONN_SLICE / FRAME);
	peer_resets(x);
	all_of_it_came(x);
}

static void also_where_others_have_the_turn(void **state)
{
	struct fixture *x = *state;
	struct pool_share share;

	pool_share_open(&share, &x->loop, 1);
	begin(x, AF_UNIX, &share);
	send_to_peer(x);
	peer_sends(x, 100);
	peer_resets(x);
	until_closed(x);
	pool_share_close(&share, NULL);
	assert_true(x->sent > POOL_CONN_SHARE_SLICE / FRAME);
	assert_int_equal(x->sent, x->frames);
	assert_int_equal(0, uv_run(&x->loop, UV_RUN_DEFAULT));
}

/* A write fails before the input is read. */
static void what_came_before_a_write_failed_is_delivered(void **state)
{
	static const int families[] = { AF_INET, AF_UNIX };
	struct fixture *x = *state;

	for (unsigned int i = 0; i < 2; i++) {
		x->sent = x->frames = 0;
		begin(x, families[i], NULL);
		peer_sends(x, 5);
		peer_resets(x);
		send_to_peer(x);
		send_to_peer(x);
		all_of_it_came(x);
	}
}

static void on_file_sent(void *arg, int err)
{
	struct fixture *x = arg;

	assert_false(x->in_call);
	x->file_err = err;
}

static void a_change_of_a_file_being_sent_is_sent_after_it(void **state)
{
	struct fixture *x = *state;
	int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);

	assert_true(fd >= 0);
	begin(x, AF_UNIX, NULL);
	peer_sends(x, 5);
	peer_resets(x);
	x->in_call = true;
	assert_int_equal(0, pool_conn_send_file(x->c, POOL_MSG_DATA, 1, NULL,
						fd, 0, 4096, on_file_sent, x));
	x->in_call = false;
	all_of_it_came(x);
	assert_true(x->file_err < 0);
	close(fd);
}

/* The peer stops reading but stays connected: only a write shows that. */
static void a_peer_that_stops_reading_does_not_keep_it(void **state)
{
	struct fixture *x = *state;

	begin(x, AF_UNIX, NULL);
	peer_sends(x, 5);
	assert_int_equal(0, shutdown(x->peer, SHUT_RD));
	assert_false(pool_conn_is_over(x->c));
	send_to_peer(x);
	assert_true(pool_conn_is_over(x->c)); /* before on_close */
	all_of_it_came(x);
	close(x->peer);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(what_came_before_a_reset_is_delivered),
		T(a_unix_peer_that_left_something_unread_as_well),
		T(all_the_slices_before_it_are),
		T(also_where_others_have_the_turn),
		T(what_came_before_a_write_failed_is_delivered),
		T(a_change_of_a_file_being_sent_is_sent_after_it),
		T(a_peer_that_stops_reading_does_not_keep_it),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
