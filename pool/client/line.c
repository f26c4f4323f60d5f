/*
 * Lines: connections to holders that belong to the caller's thread while it
 * uses them. That thread asks, waits and receives with blocking system calls: a
 * get through the loop and a mover would wake three more threads.
 *
 * A line is two connections of pool/peer/peer.h: one for requests and for
 * answers of up to POOL_INLINE_MAX; and a lane for larger answers, dialled when
 * it is first needed. Its number is above those of the movers' lanes.
 *
 * Happy path: take (an idle line, or dial) -> ask, several times -> send -> an
 * answer's header, its bytes, the next answer -> give.
 *
 * Failure modes: the peer cannot be dialled, or nothing arrives for
 * CLIENT_STALL_MS, or the answer is malformed. The line is given back as broken
 * and closed, and no line to that peer is taken for CLIENT_BACKOFF_MS.
 */
#include "pool/client/line.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/guard.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/hello.h"
#include "pool/conn/unpack.h"
#include "pool/tls/tls.h"

#define LINE_DIAL_MS 1000
#define LINE_ERROR_MAX 4096 /* bytes of an ERROR */
/* Bytes decrypted at a time; they fit the cache until they are copied. */
#define LINE_IN (64u << 10)

enum { ASK, BULK };

/* A connection of a line. */
struct wire {
	int fd; /* owns; -1: none */
	struct pool_tls_stream *tls; /* owns, or NULL: plain */
};

struct client_line {
	struct pool_list link; /* idle */
	struct client_lines *lines;
	struct pool_peer_addr to;
	struct wire wire[2]; /* BULK: fd -1 until it is needed */
	uint16_t version; /* the lower of both sides' */
	unsigned int slot;
	uint64_t due_ms; /* it is renewed from then on */
	uint64_t records; /* of TLS, that the peer was asked to send */
	int wake_at; /* SO_RCVLOWAT of BULK */
	uint8_t *out; /* owns: frames to be sent */
	uint8_t *in;  /* owns: LINE_IN bytes; NULL until TLS needs it */
	size_t out_len, out_cap;
};

/* ---- bytes ---- */

/* As send(2), but -errno. */
static ssize_t send_some(struct wire *w, const uint8_t *p, size_t len)
{
	struct iovec iov = { .iov_base = (uint8_t *)(uintptr_t)p,
			     .iov_len = len };
	ssize_t n;

	if (w->tls)
		return pool_tls_write(w->tls, &iov, 1);
	do
		n = send(w->fd, p, len, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : n;
}

static int send_all(struct wire *w, const uint8_t *p, size_t len)
{
	ssize_t n;

	while (len > 0) {
		n = send_some(w, p, len);
		if (n < 0)
			return n == -EAGAIN ? -ETIMEDOUT : (int)n;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Blocks for 1 to len bytes. Returns how many, or -errno. */
static ssize_t recv_some(struct wire *w, void *to, size_t len)
{
	ssize_t n;

	if (w->tls) {
		n = pool_tls_read(w->tls, to, len);
	} else {
		do
			n = recv(w->fd, to, len, 0);
		while (n < 0 && errno == EINTR);
		n = n < 0 ? -errno : n;
	}
	if (n < 0)
		return n == -EAGAIN ? -ETIMEDOUT : n;
	return n == 0 ? -ECONNRESET : n;
}

static int recv_all(struct wire *w, void *to, size_t len)
{
	uint8_t *p = to;
	ssize_t n;

	while (len > 0) {
		n = recv_some(w, p, len);
		if (n < 0)
			return (int)n;
		p += n;
		len -= (size_t)n;
	}
	return 0;
}

/* Appends a frame to l->out. */
static int add_frame(struct client_line *l, uint16_t type, uint64_t req,
		     const ProtobufCMessage *msg)
{
	size_t payload = protobuf_c_message_get_packed_size(msg);
	size_t len = POOL_WIRE_HEADER + payload;
	struct pool_frame f = { .version = l->version, .type = type,
				.req = req,
				.payload_len = (uint32_t)payload };

	if (l->out_len + len > l->out_cap) {
		size_t cap = 2 * (l->out_cap + len);
		uint8_t *grown = realloc(l->out, cap);

		if (!grown)
			return -ENOMEM;
		l->out = grown;
		l->out_cap = cap;
	}
	pool_frame_encode(&f, l->out + l->out_len);
	protobuf_c_message_pack(msg, l->out + l->out_len + POOL_WIRE_HEADER);
	l->out_len += len;
	return 0;
}

static int send_out(struct client_line *l, unsigned int which)
{
	int err = send_all(&l->wire[which], l->out, l->out_len);

	l->out_len = 0;
	return err;
}

static int recv_header(struct wire *w, struct pool_frame *ret_frame)
{
	uint8_t header[POOL_WIRE_HEADER];
	int err = recv_all(w, header, sizeof(header));

	return err ? err : pool_frame_decode(header, ret_frame);
}

/* ---- dialling ---- */

static void wait_ms(int fd, int which, unsigned int ms)
{
	struct timeval tv = { .tv_sec = ms / 1000,
			      .tv_usec = ms % 1000 * 1000 };

	setsockopt(fd, SOL_SOCKET, which, &tv, sizeof(tv));
}

static int dial(const struct pool_hostport *to, unsigned int stall_ms)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *list, *a;
	char port[8];
	int fd, one = 1, err = -EHOSTDOWN;

	snprintf(port, sizeof(port), "%u", to->port);
	if (getaddrinfo(to->host, port, &hints, &list))
		return -EHOSTDOWN;
	for (a = list; a; a = a->ai_next) {
		fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0) {
			err = -errno;
			continue;
		}
		wait_ms(fd, SO_SNDTIMEO, LINE_DIAL_MS);
		wait_ms(fd, SO_RCVTIMEO, stall_ms);
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
		if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			break;
		err = -errno;
		close(fd);
	}
	freeaddrinfo(list);
	return a ? fd : err;
}

/* Ends TLS on w: later bytes are not encrypted. */
static int end_tls(struct client_line *l, struct wire *w)
{
	if (!w->tls || pool_tls_has_input(w->tls))
		return -EPROTO;
	pool_tls_free(w->tls);
	w->tls = NULL;
	pool_tls_ended(l->lines->tls);
	return 0;
}

/* plain: TLS may end, if the peer allows it. 0; -EHOSTDOWN: another node
 * answers at this address. */
static int recv_hello(struct client_line *l, struct wire *w, bool plain)
{
	uint8_t payload[256];
	struct pool_frame f;
	const Kvpool__Hello *hello;
	ProtobufCMessage *msg;
	bool right, ends;
	int err = recv_header(w, &f);

	if (err)
		return err;
	if (f.type != POOL_MSG_HELLO || f.payload_len > sizeof(payload) ||
	    f.bulk_len > 0)
		return -EPROTO;
	err = recv_all(w, payload, f.payload_len);
	if (err)
		return err;
	if (pool_unpack(pool_msg_bound(POOL_MSG_HELLO), payload, f.payload_len,
			&msg, NULL))
		return -EPROTO;
	hello = (const Kvpool__Hello *)msg;
	right = pool_hello_is_from(hello, l->to.id);
	ends = hello->plain;
	protobuf_c_message_free_unpacked(msg, NULL);
	if (f.version < l->version)
		l->version = f.version;
	if (!right)
		return -EHOSTDOWN;
	if (ends)
		return plain ? end_tls(l, w) : -EPROTO;
	return 0;
}

static int check_owner(const struct client_line *l, int fd)
{
	struct pool_trust *t = l->lines->tls ? NULL : l->lines->trust;
	uid_t uid;
	int err = t ? pool_trust_peer(t, fd, &uid) : 0;

	if (err == -EPERM || err == -ENOTSUP)
		pool_count(&t->impostors);
	return err;
}

/* The handshake, if the pool has certificates. It blocks as long as a dial. */
static int secure(struct client_line *l, unsigned int which)
{
	struct pool_tls *tls = l->lines->tls;
	struct wire *w = &l->wire[which];
	const struct pool_tls_want want = {
		.dialled = true,
		.roles = pool_peer_roles(&l->to),
		.host = l->to.tcp.host,
		.blocking = true,
		.bulk = which == BULK,
	};
	int err = tls ? pool_tls_start(tls, w->fd, &want, &w->tls) : 0;

	if (err || !tls)
		return err;
	err = pool_tls_shake(w->tls);
	if (err == -EKEYREJECTED && pool_tls_is_news(tls, w->tls))
		pool_warn_paced("%s:%u: TLS: not accepted: %s",
				  l->to.tcp.host, l->to.tcp.port,
				  pool_tls_why(w->tls));
	pool_tls_count(tls, w->tls, err);
	return err == -EAGAIN ? -ETIMEDOUT : err;
}

static uint32_t lane_of(const struct client_line *l)
{
	return l->lines->first_lane + l->slot;
}

static int open_one(struct client_line *l, unsigned int which)
{
	struct wire *w = &l->wire[which];
	bool plain = which == BULK && pool_tls_allows_plain(l->lines->tls);
	Kvpool__Hello hello;
	int err;

	w->fd = dial(&l->to.tcp, l->lines->stall_ms);
	if (w->fd < 0)
		return w->fd;
	err = secure(l, which);
	if (err)
		return err;
	l->version = pool_wire_version;
	pool_hello_init(&hello, l->lines->id, which == BULK ? lane_of(l) : 0,
			plain);
	err = add_frame(l, POOL_MSG_HELLO, 0, &hello.base);
	if (!err)
		err = send_out(l, which);
	if (!err)
		err = recv_hello(l, w, plain);
	/* Only now: the socket has an owner once the peer has accepted. */
	if (!err)
		err = check_owner(l, w->fd);
	return err;
}

static void line_free(struct client_line *l)
{
	for (int i = 0; i < 2; i++) {
		pool_tls_free(l->wire[i].tls);
		if (l->wire[i].fd >= 0)
			close(l->wire[i].fd);
	}
	free(l->out);
	free(l->in);
	free(l);
}

/* ---- take and give ---- */

void client_lines_init(struct client_lines *s)
{
	pthread_mutex_init(&s->lock, NULL);
	pool_list_init(&s->idle);
	s->stall_ms = CLIENT_STALL_MS;
}

void client_lines_fini(struct client_lines *s)
{
	struct client_line *l;

	while (!pool_list_empty(&s->idle)) {
		l = pool_list_first(&s->idle, struct client_line, link);
		pool_list_del(&l->link);
		line_free(l);
	}
	pthread_mutex_destroy(&s->lock);
}

static bool same_peer(const struct pool_peer_addr *a,
		      const struct pool_peer_addr *b)
{
	return memcmp(a->id, b->id, POOL_ID_SIZE) == 0 &&
	       a->tcp.port == b->tcp.port &&
	       strcmp(a->tcp.host, b->tcp.host) == 0;
}

/* lock held. */
static bool is_backed_off(const struct client_lines *s,
		   const struct pool_peer_addr *to)
{
	uint64_t now = pool_now_ms();

	for (unsigned int i = 0; i < CLIENT_BACKOFF_MAX; i++)
		if (s->backoff[i].until_ms > now &&
		    memcmp(s->backoff[i].id, to->id, POOL_ID_SIZE) == 0)
			return true;
	return false;
}

/* lock held. */
static void back_off(struct client_lines *s, const struct pool_peer_addr *to)
{
	unsigned int i = s->next_backoff++ % CLIENT_BACKOFF_MAX;
	struct client_backoff *at = &s->backoff[i];

	memcpy(at->id, to->id, POOL_ID_SIZE);
	at->until_ms = pool_now_ms() + CLIENT_BACKOFF_MS;
}

/* lock held: the most recently used idle line to that peer. If there is none:
 * NULL, and *ret_slot is a slot for a new line, or -1. If all slots are in use,
 * the least recently used idle line is closed to free one. */
static struct client_line *take_idle(struct client_lines *s,
				     const struct pool_peer_addr *to,
				     int *ret_slot)
{
	struct client_line *l = NULL;
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->idle) {
		l = pool_list_entry(it, struct client_line, link);
		if (!same_peer(&l->to, to))
			continue;
		pool_list_del(&l->link);
		return l;
	}
	*ret_slot = ~s->slots ? __builtin_ctzll(~s->slots) : -1;
	if (*ret_slot >= 0) {
		s->slots |= 1ull << *ret_slot;
	} else if (l) { /* the loop above ended at the least recently used */
		pool_list_del(&l->link);
		*ret_slot = (int)l->slot;
		line_free(l);
	}
	return NULL;
}

static struct client_line *line_new(struct client_lines *s,
				    const struct pool_peer_addr *to, int slot)
{
	struct client_line *l = calloc(1, sizeof(*l));

	if (!l)
		return NULL;
	pool_list_init(&l->link);
	l->lines = s;
	l->to = *to;
	l->slot = (unsigned int)slot;
	l->due_ms = pool_tls_due_ms(s->tls);
	l->wire[ASK].fd = l->wire[BULK].fd = -1;
	l->wake_at = 1;
	return l;
}

/* Is it readable, or broken? */
static bool has_input(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 ||
	       (errno != EAGAIN && errno != EINTR);
}

/* Old (pool/tls/tls.h), or closed by the peer: then it is readable, although
 * nothing was asked for. */
static bool is_stale(const struct client_line *l)
{
	if (pool_now_ms() >= l->due_ms ||
	    (l->wire[ASK].tls && l->records >= POOL_TLS_KEY_RECORDS)) {
		pool_tls_renewed(l->lines->tls);
		return true;
	}
	for (int i = 0; i < 2; i++)
		if (l->wire[i].fd >= 0 && has_input(l->wire[i].fd))
			return true;
	return false;
}

static void forget(struct client_lines *s, unsigned int slot)
{
	pthread_mutex_lock(&s->lock);
	s->slots &= ~(1ull << slot);
	pthread_mutex_unlock(&s->lock);
}

static struct client_line *line_get(struct client_lines *s,
				    const struct pool_peer_addr *to)
{
	struct client_line *l;
	int slot = -1;

	for (;;) {
		pthread_mutex_lock(&s->lock);
		l = is_backed_off(s, to) ? NULL : take_idle(s, to, &slot);
		pthread_mutex_unlock(&s->lock);
		if (!l || !is_stale(l))
			break;
		forget(s, l->slot);
		line_free(l);
	}
	if (l || slot < 0)
		return l;
	l = line_new(s, to, slot);
	if (!l)
		forget(s, (unsigned int)slot);
	return l;
}

struct client_line *client_line_take(struct client_lines *s,
				     const struct pool_peer_addr *to, bool bulk)
{
	struct client_line *l = line_get(s, to);
	int err = 0;

	if (!l)
		return NULL;
	if (l->wire[ASK].fd < 0)
		err = open_one(l, ASK);
	if (!err && bulk && l->wire[BULK].fd < 0)
		err = open_one(l, BULK);
	if (!err)
		return l;
	client_line_give(l, false);
	return NULL;
}

void client_line_give(struct client_line *l, bool good)
{
	struct client_lines *s = l->lines;

	pthread_mutex_lock(&s->lock);
	if (good) {
		pool_list_add(&s->idle, &l->link);
	} else {
		back_off(s, &l->to);
		s->slots &= ~(1ull << l->slot);
	}
	pthread_mutex_unlock(&s->lock);
	if (!good)
		line_free(l);
}

/* ---- asking ---- */

int client_line_ask(struct client_line *l, uint64_t req, const char *path,
		    size_t path_len, uint64_t gen, uint64_t size)
{
	Kvpool__Get get;

	l->records += pool_tls_records(size);
	pool_get_init(&get, path, path_len, gen, 0, size,
		      size > POOL_INLINE_MAX ? lane_of(l) : 0);
	return add_frame(l, POOL_MSG_GET, req, &get.base);
}

int client_line_send(struct client_line *l)
{
	return send_out(l, ASK);
}

/* ---- answers ---- */

/* Wakes the caller for this many bytes of the lane, not for each segment. */
static void wake_at(struct client_line *l, uint64_t bytes)
{
	int at = bytes < POOL_CONN_SLICE ? (int)bytes : (int)POOL_CONN_SLICE;

	/* A record of TLS is complete only with its last byte. */
	if (at != l->wake_at && !l->wire[BULK].tls &&
	    setsockopt(l->wire[BULK].fd, SOL_SOCKET, SO_RCVLOWAT, &at,
		       sizeof(at)) == 0)
		l->wake_at = at;
}

/* If a slice is not complete after this time, read what has arrived: the sender
 * may be waiting for us to read. */
#define PATIENCE_MS 5

static int poll_for(struct pollfd *at, nfds_t n, unsigned int ms)
{
	int k;

	do
		k = poll(at, n, (int)ms);
	while (k < 0 && errno == EINTR);
	return k;
}

/* Waits until one of the two connections is readable: ASK, BULK or -errno. */
static int wait_both(struct client_line *l)
{
	struct pollfd at[2] = { { .fd = l->wire[ASK].fd, .events = POLLIN },
				{ .fd = l->wire[BULK].fd, .events = POLLIN } };
	int n;

	for (int i = ASK; i <= BULK; i++)
		if (l->wire[i].tls && pool_tls_has_input(l->wire[i].tls))
			return i;
	n = poll_for(at, 2, PATIENCE_MS);
	if (n == 0) {
		wake_at(l, 1);
		n = poll_for(at, 2, l->lines->stall_ms);
	}
	if (n <= 0)
		return n < 0 ? -errno : -ETIMEDOUT;
	return at[ASK].revents ? ASK : BULK;
}

/* Skips the payload of an ERROR: whatever the reason, the object is left to the
 * loop. */
static int pass_error(struct client_line *l, const struct pool_frame *f)
{
	uint8_t text[LINE_ERROR_MAX];

	return f->payload_len > sizeof(text) ?
		       -EPROTO :
		       recv_all(&l->wire[ASK], text, f->payload_len);
}

int client_line_answer(struct client_line *l, uint64_t least_bulk,
		       struct client_answer *ret)
{
	struct pool_frame f;
	int which = ASK, err;

	if (least_bulk > 0) {
		wake_at(l, POOL_WIRE_HEADER + least_bulk);
		which = wait_both(l);
	}
	err = which < 0 ? which : recv_header(&l->wire[which], &f);
	if (err)
		return err;
	ret->req = f.req;
	ret->size = f.bulk_len;
	ret->bulk = which == BULK;
	ret->data = f.type == POOL_MSG_DATA;
	if (ret->data)
		return f.payload_len > 0 ? -EPROTO : 0;
	return f.type == POOL_MSG_ERROR && which == ASK && f.bulk_len == 0 ?
		       pass_error(l, &f) : -EPROTO;
}

/*
 * A blocking recv would hang at the end of an object: it waits for SO_RCVLOWAT
 * bytes (a whole slice), and the rest of the object may be less.
 */
static ssize_t recv_lane(struct client_line *l, void *to, size_t len)
{
	struct pollfd at = { .fd = l->wire[BULK].fd, .events = POLLIN };
	uint64_t end = pool_now_ms() + l->lines->stall_ms;
	ssize_t n;

	for (;;) {
		(void)poll_for(&at, 1, PATIENCE_MS);
		n = recv(at.fd, to, len, MSG_DONTWAIT);
		if (n > 0)
			return n;
		if (n == 0)
			return -ECONNRESET;
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (pool_now_ms() >= end)
			return -ETIMEDOUT;
	}
}

/* By TLS. OpenSSL must not be given the application's memory (guard.h). */
static ssize_t recv_secure(struct client_line *l, struct wire *w, void *to,
			   size_t len)
{
	ssize_t n;
	int err;

	if (!l->in)
		l->in = malloc(LINE_IN);
	if (!l->in)
		return -ENOMEM;
	n = recv_some(w, l->in, len < LINE_IN ? len : LINE_IN);
	err = n > 0 ? pool_guard_copy(to, l->in, (size_t)n) : 0;
	return err ? err : n;
}

ssize_t client_line_bytes(struct client_line *l, const struct client_answer *a,
			  void *to, size_t len)
{
	size_t slice = len < POOL_CONN_SLICE ? len : POOL_CONN_SLICE;
	struct wire *w = &l->wire[a->bulk ? BULK : ASK];

	if (w->tls)
		return recv_secure(l, w, to, slice);
	if (!a->bulk)
		return recv_some(&l->wire[ASK], to, slice);
	wake_at(l, len);
	return recv_lane(l, to, slice);
}
