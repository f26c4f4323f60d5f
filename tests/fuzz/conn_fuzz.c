/*
 * Fuzz target: arbitrary bytes, in arbitrary pieces and with descriptors on
 * some of them, into a connection on a real loop; its bulk goes to staging,
 * straight to memory or to rooms, and its owner closes, drains, detaches or
 * answers as the input says.
 *
 *   clang -fsanitize=fuzzer,address ... tests/fuzz/conn_fuzz.c pool/conn/conn.c ...
 *
 * The first byte is the plan, the rest the stream; each piece is preceded by a
 * byte of length and flags. Besides not crashing: callbacks come in order, no
 * slice goes beyond its bulk, on_close comes once, no descriptor is lost.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/conn/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define BULK_MAX 65536u /* that gets memory of its own */

enum { PLAN_SINK = 3, PLAN_ANSWER = 4, PLAN_CLOSE = 8, PLAN_DRAIN = 16,
       PLAN_DETACH = 32, PLAN_DROP = 64, PLAN_GLUE = 128 };

struct fuzz {
	uv_loop_t loop;
	struct pool_conn *c;
	uint8_t plan;
	uint8_t *bulk; /* owns */
	uint64_t bulk_at, bulk_len;
	bool in_bulk, closed, detached;
	int kept; /* a detached socket */
};

static void require(int cond)
{
	if (!cond)
		abort();
}

static void act(struct fuzz *z)
{
	if (z->plan & PLAN_ANSWER)
		pool_conn_send(z->c, POOL_MSG_ERROR, 1, NULL);
	if (z->plan & PLAN_CLOSE)
		pool_conn_close(z->c);
	if (z->plan & PLAN_DRAIN)
		pool_conn_drain_close(z->c, 5);
}

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct fuzz *z = pool_conn_user(c);
	volatile uint8_t sink = 0;

	require(!z->closed && !z->detached && !z->in_bulk);
	require(f->bulk_len == 0);
	for (uint32_t i = 0; i < f->payload_len; i++)
		sink ^= payload[i];
	if (fd >= 0)
		require(close(fd) == 0);
	if (z->plan & PLAN_DETACH) {
		struct pool_tls_stream *none;
		int r = pool_conn_detach(c, &none);

		if (r >= 0) {
			z->detached = true;
			z->kept = r;
			return;
		}
	}
	act(z);
}

static void *on_bulk_begin(struct pool_conn *c, const struct pool_frame *f,
			   const uint8_t *payload)
{
	struct fuzz *z = pool_conn_user(c);

	(void)payload;
	require(!z->closed && !z->in_bulk && f->bulk_len > 0);
	z->in_bulk = true;
	z->bulk_at = 0;
	z->bulk_len = f->bulk_len;
	free(z->bulk);
	z->bulk = NULL;
	if (f->bulk_len > BULK_MAX || !(z->plan & PLAN_SINK))
		return NULL;
	z->bulk = malloc(f->bulk_len); /* exactly: a byte beyond is seen */
	return (z->plan & PLAN_SINK) == 1 ? z->bulk : NULL;
}

static void *on_bulk_room(struct pool_conn *c, const struct pool_frame *f,
			  uint64_t offset, size_t *ret_len)
{
	struct fuzz *z = pool_conn_user(c);

	require(z->in_bulk && offset == z->bulk_at && offset < f->bulk_len);
	if (!z->bulk || (z->plan & PLAN_SINK) != 2)
		return NULL;
	*ret_len = 1 + offset % 100; /* may pass the end: it must be cut */
	return z->bulk + offset;
}

static void on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			 const void *data, size_t len, uint64_t offset)
{
	struct fuzz *z = pool_conn_user(c);
	volatile uint8_t sink = 0;

	require(z->in_bulk && offset == z->bulk_at);
	require(len > 0 && len <= f->bulk_len - offset);
	for (size_t i = 0; i < len; i++)
		sink ^= ((const uint8_t *)data)[i];
	z->bulk_at += len;
	if ((z->plan & PLAN_DROP) && z->bulk) {
		pool_conn_bulk_drop(c);
		free(z->bulk);
		z->bulk = NULL;
	}
}

static void on_bulk_end(struct pool_conn *c, const struct pool_frame *f)
{
	struct fuzz *z = pool_conn_user(c);

	require(z->in_bulk && z->bulk_at == f->bulk_len);
	z->in_bulk = false;
	act(z);
}

static void on_close(struct pool_conn *c, int err)
{
	struct fuzz *z = pool_conn_user(c);

	(void)err;
	require(!z->closed && !z->detached);
	z->closed = true;
}

static const struct pool_conn_ops ops = {
	.on_frame = on_frame,
	.on_bulk_begin = on_bulk_begin,
	.on_bulk_room = on_bulk_room,
	.on_bulk_data = on_bulk_data,
	.on_bulk_end = on_bulk_end,
	.on_close = on_close,
};

static void send_piece(int sock, const uint8_t *p, size_t len, unsigned int nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(3 * sizeof(int))];
	} control = { 0 };
	struct iovec iov = { .iov_base = (void *)(uintptr_t)p,
			     .iov_len = len };
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	int rider = STDERR_FILENO; /* not sock: it would keep itself open */

	if (nfds > 0) {
		struct cmsghdr *h;

		m.msg_control = control.buf;
		m.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
		h = CMSG_FIRSTHDR(&m);
		h->cmsg_level = SOL_SOCKET;
		h->cmsg_type = SCM_RIGHTS;
		h->cmsg_len = CMSG_LEN(nfds * sizeof(int));
		for (unsigned int i = 0; i < nfds; i++)
			memcpy(CMSG_DATA(h) + i * sizeof(int), &rider,
			       sizeof(int));
	}
	/* Refused once the connection is closed: fine. */
	if (sendmsg(sock, &m, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		return;
}

/* The input as pieces: a byte of length, then so many bytes; the highest
 * lengths mean "the same with descriptors". */
static void feed(struct fuzz *z, int sock, const uint8_t *p, size_t size)
{
	while (size > 0) {
		unsigned int nfds = *p >= 250 ? *p - 250u : 0;
		size_t len = nfds ? 40 : *p;

		p++;
		size--;
		if (len > size)
			len = size;
		if (len > 0)
			send_piece(sock, p, len, nfds > 3 ? 1 : nfds);
		p += len;
		size -= len;
		if (!(z->plan & PLAN_GLUE))
			uv_run(&z->loop, UV_RUN_NOWAIT);
	}
}

static int lowest_free_fd(void)
{
	int fd = open("/dev/null", O_RDONLY);

	close(fd);
	return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct fuzz z = { .kept = -1 };
	struct pool_conn_opts opts = { .ops = &ops, .user = &z };
	int before = lowest_free_fd(), sv[2];

	if (size < 1)
		return 0;
	z.plan = data[0];
	require(uv_loop_init(&z.loop) == 0);
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	require(pool_conn_from_fd(&z.loop, sv[0], &opts, &z.c) == 0);
	feed(&z, sv[1], data + 1, size - 1);
	close(sv[1]);
	uv_run(&z.loop, UV_RUN_DEFAULT); /* until the connection is gone */
	require(z.closed || z.detached);
	require(uv_loop_close(&z.loop) == 0);
	if (z.kept >= 0)
		close(z.kept);
	free(z.bulk);
	require(lowest_free_fd() == before);
	return 0;
}
