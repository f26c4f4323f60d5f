/*
 * Fuzz target: arbitrary bytes, in arbitrary pieces and with descriptors on
 * some of them, into a connection on a real loop; its bulk goes to staging,
 * straight to memory or to rooms, and its owner closes, drains, detaches or
 * answers as the input says. The peer has a certificate of the role that the
 * input says, or none.
 *
 *   clang -fsanitize=fuzzer,address ... tests/fuzz/conn_fuzz.c \
 *	pool/conn/conn.c ... -Wl,--wrap=pool_conn_peer_id
 *
 * The first byte is the plan, the second the role, the rest the stream; each
 * piece is preceded by a byte of length and flags, or is a header made of three
 * bytes. Besides not crashing: callbacks come in order, no slice goes beyond
 * its bulk, on_close comes once, no descriptor is lost, and nothing reaches a
 * callback that a peer of this role may not send.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/conn/conn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The pieces that are headers: type, payload_len and bulk_len follow. */
#define HEADER_FROM 240
#define HEADER_TO 249
#define BULK_MAX 65536u /* that gets memory of its own */

enum { PLAN_SINK = 3, PLAN_ANSWER = 4, PLAN_CLOSE = 8, PLAN_DRAIN = 16,
       PLAN_DETACH = 32, PLAN_DROP = 64, PLAN_GLUE = 128 };

/*
 * Who may send what: master, node, client, admin. Said here once more, and not
 * taken from pool/conn/msg.c, whose table is to be judged.
 */
static const char *const senders[POOL_MSG_MAX] = {
	[POOL_MSG_JOIN] = "nc",	      [POOL_MSG_WELCOME] = "m",
	[POOL_MSG_INVENTORY] = "nc",  [POOL_MSG_SUBSCRIBE] = "nc",
	[POOL_MSG_FEED] = "m",	      [POOL_MSG_FEED_ACK] = "nc",
	[POOL_MSG_OPS] = "nc",	      [POOL_MSG_OPS_DONE] = "m",
	[POOL_MSG_EVICT] = "mnc",     [POOL_MSG_DROP] = "m",
	[POOL_MSG_REPLICATE] = "m",   [POOL_MSG_HELD] = "nc",
	[POOL_MSG_SYNC] = "nc",	      [POOL_MSG_SYNCED] = "m",
	[POOL_MSG_HEARTBEAT] = "mnc", [POOL_MSG_ERROR] = "mnca",
	[POOL_MSG_HELLO] = "nc",      [POOL_MSG_GET] = "nc",
	[POOL_MSG_DATA] = "nc",	      [POOL_MSG_LENT] = "nc",
	[POOL_MSG_RETURN] = "nc",     [POOL_MSG_RECALL] = "nc",
	[POOL_MSG_DOUBT] = "nc",      [POOL_MSG_LINK] = "nc",
	[POOL_MSG_BUFFER] = "nc",
};
static const char letters[POOL_ROLES] = { 'm', 'n', 'c', 'a' };

/* The peer's certificate: of the input under way. */
static struct pool_tls_id peer;
static bool has_certificate;

const struct pool_tls_id *__wrap_pool_conn_peer_id(const struct pool_conn *c);
const struct pool_tls_id *__wrap_pool_conn_peer_id(const struct pool_conn *c)
{
	(void)c;
	return has_certificate ? &peer : NULL;
}

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

/* A type that has no row here reaches no callback, either. */
static void require_sender(uint16_t type)
{
	require(type < POOL_MSG_MAX && senders[type]);
	require(!has_certificate ||
		strchr(senders[type], letters[peer.role]));
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
	require_sender(f->type);
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
	require_sender(f->type);
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

static void send_piece(int sock, const uint8_t *p, size_t len,
		       unsigned int nfds)
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

/* A header made of up to three bytes, as random ones have no magic number.
 * Returns how many it took. */
static size_t send_header(int sock, const uint8_t *p, size_t size)
{
	struct pool_frame f = { .version = pool_wire_version };
	uint8_t header[POOL_WIRE_HEADER];
	size_t n = size < 3 ? size : 3;

	if (n > 0)
		f.type = p[0] % (POOL_MSG_MAX + 1);
	if (n > 1)
		f.payload_len = p[1];
	if (n > 2)
		f.bulk_len = p[2];
	pool_frame_encode(&f, header);
	send_piece(sock, header, sizeof(header), 0);
	return n;
}

/* The input as pieces: a byte of length, then so many bytes; the highest
 * lengths mean "the same with descriptors". */
static void feed(struct fuzz *z, int sock, const uint8_t *p, size_t size)
{
	while (size > 0) {
		unsigned int nfds = *p >= 250 ? *p - 250u : 0;
		size_t len = nfds ? 40 : *p;
		bool made = *p >= HEADER_FROM && *p <= HEADER_TO;

		p++;
		size--;
		if (len > size)
			len = size;
		if (made)
			len = send_header(sock, p, size);
		else if (len > 0)
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

	if (size < 2)
		return 0;
	z.plan = data[0];
	has_certificate = data[1] % (POOL_ROLES + 1) < POOL_ROLES;
	peer.role = has_certificate ? data[1] % (POOL_ROLES + 1) : 0;
	require(uv_loop_init(&z.loop) == 0);
	require(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) == 0);
	require(pool_conn_from_fd(&z.loop, sv[0], &opts, &z.c) == 0);
	feed(&z, sv[1], data + 2, size - 2);
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
