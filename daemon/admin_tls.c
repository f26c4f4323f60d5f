/*
 * Happy path: on_acceptable -> pump_new -> shake until 0 -> hand_over -> copy
 * until the HTTP server closes its end -> pump_free.
 *
 * A pump lives at least as long as the HTTP server's end of its pair: if the
 * peer closes first, the server reads the end of the stream, and what it still
 * writes is discarded. So each of the server's connections has a pump, and the
 * peer of a request is always known.
 *
 * Failure modes: the handshake fails or takes too long, or descriptors run out:
 * the TCP connection is closed. The server has closed and the peer does not
 * read the rest: closed after ADMIN_TLS_DRAIN_MS.
 */
#include "daemon/admin_tls.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/admin_guard.h"
#include "daemon/admin_http.h"
#include "pool/base/clock.h"
#include "pool/base/list.h"
#include "pool/base/log.h"

#define ACCEPTS_PER_TURN 16
#define BUFFER ((size_t)16384) /* bytes per direction */
#define NO_FDS_MS 1000u /* until accept is tried again after EMFILE */
#define ROLES_ALL ((1u << POOL_ROLES) - 1)

struct buffer {
	uint8_t data[BUFFER];
	size_t at, end; /* bytes to be passed on: data[at..end) */
	bool over;	/* end of the stream, or its reader has closed */
};

struct pump {
	struct pool_list link; /* in owner->pumps, the newest first */
	struct admin_tls *owner;
	struct admin_tls_peer peer; /* id NULL: in the handshake */
	struct pool_tls_stream *stream; /* owns */
	int pair;    /* owns: our end; -1: none yet */
	int http_fd; /* number of the server's end; -1: another pump has it */
	bool gone;   /* the peer: what the server writes is discarded */
	struct buffer in, out; /* to the server, to the peer */
	uv_poll_t net, http;
	uv_timer_t late;
	unsigned int open_handles;
	struct sockaddr_storage from;
	socklen_t from_len;
};

struct admin_tls {
	struct admin_tls_opts opts;
	struct pool_list pumps;
	unsigned int npumps;
	bool resting; /* no accepts and handshakes until `rest` is due */
	bool closing;
	uv_poll_t poll; /* opts.listen_fd */
	uv_timer_t rest;
	unsigned int refs; /* pumps that are not freed, and the two handles */
	void (*closed)(void *arg);
	void *closed_arg;
};

static void unref(struct admin_tls *t)
{
	if (--t->refs)
		return;
	void (*closed)(void *arg) = t->closed;
	void *arg = t->closed_arg;

	free(t);
	closed(arg);
}

/* ---- rests between accepts and handshakes ---- */

static void on_acceptable(uv_poll_t *poll, int status, int events);
static void on_net(uv_poll_t *poll, int status, int events);

static bool is_shaking(const struct pump *p)
{
	return !p->peer.id;
}

static void watch_shaking(struct pump *p)
{
	int events = UV_READABLE;

	if (p->owner->resting) {
		uv_poll_stop(&p->net);
		return;
	}
	if (pool_tls_unsent(p->stream))
		events |= UV_WRITABLE;
	uv_poll_start(&p->net, events, on_net);
}

static void watch_listener(struct admin_tls *t)
{
	if (t->closing)
		return;
	if (t->resting || t->npumps >= ADMIN_HTTP_CONNECTIONS_MAX)
		uv_poll_stop(&t->poll);
	else
		uv_poll_start(&t->poll, UV_READABLE, on_acceptable);
}

static void watch_strangers(struct admin_tls *t)
{
	struct pool_list *it, *tmp;

	watch_listener(t);
	pool_list_each(it, tmp, &t->pumps) {
		struct pump *p = pool_list_entry(it, struct pump, link);

		if (is_shaking(p))
			watch_shaking(p);
	}
}

static void on_rested(uv_timer_t *timer)
{
	struct admin_tls *t = pool_container_of(timer, struct admin_tls, rest);

	t->resting = false;
	watch_strangers(t);
}

static void rest(struct admin_tls *t, uint64_t ms)
{
	t->resting = true;
	uv_update_time(t->opts.loop); /* timers count from it */
	uv_timer_start(&t->rest, on_rested, ms, 0);
	watch_strangers(t);
}

/* ---- the life of a pump ---- */

static void on_pump_handle_closed(uv_handle_t *h)
{
	struct pump *p = h->data;
	struct admin_tls *t = p->owner;

	if (--p->open_handles)
		return;
	free(p);
	unref(t);
}

static void close_handle(struct pump *p, uv_handle_t *h)
{
	h->data = p;
	uv_close(h, on_pump_handle_closed);
}

static void pump_free(struct pump *p)
{
	struct admin_tls *t = p->owner;

	pool_list_del(&p->link);
	t->npumps--;
	close_handle(p, (uv_handle_t *)&p->late);
	close_handle(p, (uv_handle_t *)&p->net);
	pool_tls_free(p->stream);
	close(p->peer.fd);
	if (p->pair >= 0) {
		close_handle(p, (uv_handle_t *)&p->http);
		close(p->pair);
	}
	watch_listener(t);
}

static void on_late(uv_timer_t *timer)
{
	struct pump *p = pool_container_of(timer, struct pump, late);

	pool_count(p->owner->opts.slow);
	pump_free(p);
}

/* ---- copying ---- */

static void peer_gone(struct pump *p)
{
	p->gone = true;
	p->in.over = true;
	shutdown(p->pair, SHUT_WR);
}

/* Reads from the peer. False: there is nothing to pass on now. */
static bool fill_in(struct pump *p)
{
	struct buffer *b = &p->in;
	ssize_t n = pool_tls_read(p->stream, b->data, sizeof(b->data));

	if (n > 0) {
		b->at = 0;
		b->end = (size_t)n;
	} else if (n == 0) { /* the peer may still read the answer */
		b->over = true;
		shutdown(p->pair, SHUT_WR);
	} else if (n != -EAGAIN) {
		peer_gone(p);
	}
	return n > 0;
}

/* From the peer to the server, until one of the two would block. The server
 * does not read meanwhile, so this ends when the pair is full. */
static void move_in(struct pump *p)
{
	struct buffer *b = &p->in;
	ssize_t n;

	while (!b->over) {
		if (b->at == b->end && !fill_in(p))
			return;
		n = send(p->pair, b->data + b->at, b->end - b->at,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n > 0)
			b->at += (size_t)n;
		else if (errno == EAGAIN)
			return;
		else if (errno != EINTR)
			b->over = true; /* the server has closed */
	}
}

/* False: there is nothing to pass on now. */
static bool fill_out(struct pump *p)
{
	struct buffer *b = &p->out;
	ssize_t n;

	do
		n = recv(p->pair, b->data, sizeof(b->data), MSG_DONTWAIT);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		b->at = 0;
		b->end = (size_t)n;
	} else if (n == 0 || errno != EAGAIN) {
		b->over = true;
	}
	return n > 0;
}

/* False: wait until the peer reads. */
static bool write_out(struct pump *p)
{
	struct buffer *b = &p->out;
	struct iovec iov = { b->data + b->at, b->end - b->at };
	ssize_t n = p->gone ? (ssize_t)iov.iov_len :
			      pool_tls_write(p->stream, &iov, 1);

	if (n == -EAGAIN)
		return false;
	if (n < 0)
		peer_gone(p);
	else
		b->at += (size_t)n;
	return true;
}

static bool is_unsent(const struct pump *p)
{
	return !p->gone && pool_tls_unsent(p->stream);
}

/* From the server to the peer, likewise. */
static void move_out(struct pump *p)
{
	struct buffer *b = &p->out;
	int err = p->gone ? 0 : pool_tls_flush(p->stream);

	if (err == -EAGAIN)
		return;
	if (err)
		peer_gone(p);
	while (b->at < b->end || (!b->over && fill_out(p)))
		if (!write_out(p))
			return;
}

static void on_http(uv_poll_t *poll, int status, int events);

static void watch(uv_poll_t *poll, int events, uv_poll_cb cb)
{
	if (events)
		uv_poll_start(poll, events, cb);
	else
		uv_poll_stop(poll);
}

static void watch_both(struct pump *p)
{
	bool has_in = p->in.at < p->in.end && !p->in.over;
	bool has_out = p->out.at < p->out.end || is_unsent(p);

	watch(&p->net,
	      p->gone ? 0 :
			(p->in.over || has_in ? 0 : UV_READABLE) |
				(has_out ? UV_WRITABLE : 0),
	      on_net);
	watch(&p->http,
	      (p->out.over || has_out ? 0 : UV_READABLE) |
		      (has_in ? UV_WRITABLE : 0),
	      on_http);
}

static void copy(struct pump *p)
{
	move_in(p);
	move_out(p);
	if (p->out.over && p->out.at == p->out.end && !is_unsent(p)) {
		pump_free(p);
		return;
	}
	if (p->out.over && !uv_is_active((uv_handle_t *)&p->late))
		uv_timer_start(&p->late, on_late, ADMIN_TLS_DRAIN_MS, 0);
	watch_both(p);
}

static void on_http(uv_poll_t *poll, int status, int events)
{
	(void)status; /* errors show when reading or writing */
	(void)events;
	copy(pool_container_of(poll, struct pump, http));
}

/* ---- the handshake ---- */

/* The kernel may reuse the number of a descriptor that the server has closed
 * before its pump notices: the number then belongs to the newest pump. */
static void take_number(struct pump *p, int fd)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &p->owner->pumps) {
		struct pump *other = pool_list_entry(it, struct pump, link);

		if (other->http_fd == fd)
			other->http_fd = -1;
	}
	p->http_fd = fd;
}

static int hand_over(struct pump *p)
{
	struct admin_tls *t = p->owner;
	int err, pair[2];

	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0,
		       pair))
		return -errno;
	err = uv_poll_init(t->opts.loop, &p->http, pair[0]);
	if (err) {
		close(pair[0]);
		close(pair[1]);
		return err;
	}
	p->open_handles++;
	p->pair = pair[0];
	p->peer.id = pool_tls_peer(p->stream);
	take_number(p, pair[1]);
	uv_timer_stop(&p->late);
	t->opts.handed(t->opts.arg, pair[1],
		       (const struct sockaddr *)&p->from, p->from_len);
	return 0;
}

static void warn_refused(const struct pump *p)
{
	char address[64] = "?";

	(void)uv_ip_name((const struct sockaddr *)&p->from, address,
			 sizeof(address));
	pool_warn_paced("admin address: %s: TLS: not accepted: %s", address,
			  pool_tls_why(p->stream));
}

static void shake(struct pump *p)
{
	struct admin_tls *t = p->owner;
	uint64_t start_ns = pool_now_ns();
	int err = pool_tls_shake(p->stream);
	uint64_t took_ns = pool_now_ns() - start_ns;

	if (err != -EAGAIN)
		pool_tls_count(t->opts.tls, p->stream, err);
	if (err == -EKEYREJECTED && pool_tls_is_news(t->opts.tls, p->stream))
		warn_refused(p);
	if (!err)
		err = hand_over(p);
	if (!err)
		copy(p); /* a request may have come with the handshake */
	else if (err != -EAGAIN)
		pump_free(p);
	rest(t, admin_http_rest_ms(took_ns));
}

static void on_net(uv_poll_t *poll, int status, int events)
{
	struct pump *p = pool_container_of(poll, struct pump, net);

	(void)status;
	(void)events;
	if (is_shaking(p))
		shake(p);
	else
		copy(p);
}

/* ---- accepting ---- */

static bool is_crowded(const struct admin_tls *t, int fd,
		       const struct sockaddr *from)
{
	struct pool_list *it, *tmp;
	unsigned int n = 0;
	uid_t uid;

	pool_list_each(it, tmp, &t->pumps) {
		const struct pump *p = pool_list_entry(it, struct pump, link);

		n += admin_same_address((const struct sockaddr *)&p->from,
					from);
	}
	if (n < ADMIN_HTTP_ADDRESS_MAX)
		return false;
	return !t->opts.trust || !admin_is_loopback(from) ||
	       pool_trust_peer(t->opts.trust, fd, &uid) != 0;
}

/* Takes over fd. */
static void pump_new(struct admin_tls *t, int fd,
		     const struct sockaddr_storage *from, socklen_t from_len)
{
	const struct pool_tls_want want = { .roles = ROLES_ALL };
	struct pump *p = calloc(1, sizeof(*p));

	if (!p || pool_tls_start(t->opts.tls, fd, &want, &p->stream)) {
		free(p);
		close(fd);
		return;
	}
	if (uv_poll_init(t->opts.loop, &p->net, fd)) {
		pool_tls_free(p->stream);
		free(p);
		close(fd);
		return;
	}
	uv_timer_init(t->opts.loop, &p->late);
	p->open_handles = 2;
	p->owner = t;
	p->peer.fd = fd;
	p->pair = p->http_fd = -1;
	p->from = *from;
	p->from_len = from_len;
	t->refs++;
	t->npumps++;
	pool_list_add(&t->pumps, &p->link);
	uv_timer_start(&p->late, on_late, t->opts.shake_ms, 0);
	watch_shaking(p);
}

/* False: there is none to accept now. */
static bool accept_one(struct admin_tls *t)
{
	struct sockaddr_storage from = { 0 };
	socklen_t len = sizeof(from);
	int fd = accept4(t->opts.listen_fd, (struct sockaddr *)&from, &len,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);

	if (fd < 0) {
		/* The socket stays readable: do not spin. */
		if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
		    errno == ENOBUFS)
			rest(t, NO_FDS_MS);
		return errno == EINTR || errno == ECONNABORTED;
	}
	if (is_crowded(t, fd, (const struct sockaddr *)&from)) {
		pool_count(t->opts.crowded);
		close(fd);
	} else {
		pump_new(t, fd, &from, len);
	}
	return true;
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
	struct admin_tls *t = pool_container_of(poll, struct admin_tls, poll);

	(void)status;
	(void)events;
	for (int i = 0; i < ACCEPTS_PER_TURN; i++)
		if (t->npumps >= ADMIN_HTTP_CONNECTIONS_MAX || !accept_one(t))
			break;
	watch_listener(t);
}

/* ---- opening and closing ---- */

int admin_tls_open(const struct admin_tls_opts *opts,
		   struct admin_tls **ret_tls)
{
	struct admin_tls *t = calloc(1, sizeof(*t));
	int err = t ? uv_poll_init(opts->loop, &t->poll, opts->listen_fd) :
		      -ENOMEM;

	if (err) {
		close(opts->listen_fd);
		free(t);
		return err;
	}
	t->opts = *opts;
	if (!t->opts.shake_ms)
		t->opts.shake_ms = ADMIN_TLS_SHAKE_MS;
	pool_list_init(&t->pumps);
	uv_timer_init(opts->loop, &t->rest);
	t->refs = 2;
	watch_listener(t);
	*ret_tls = t;
	return 0;
}

const struct admin_tls_peer *admin_tls_peer(const struct admin_tls *t, int fd)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &t->pumps) {
		const struct pump *p = pool_list_entry(it, struct pump, link);

		if (p->http_fd == fd)
			return &p->peer;
	}
	return NULL;
}

static void on_handle_closed(uv_handle_t *h)
{
	unref(h->data);
}

void admin_tls_close(struct admin_tls *t, void (*closed)(void *arg), void *arg)
{
	if (!t) {
		closed(arg);
		return;
	}
	t->closed = closed;
	t->closed_arg = arg;
	t->closing = true;
	while (!pool_list_empty(&t->pumps))
		pump_free(pool_list_first(&t->pumps, struct pump, link));
	t->poll.data = t->rest.data = t;
	uv_close((uv_handle_t *)&t->poll, on_handle_closed);
	uv_close((uv_handle_t *)&t->rest, on_handle_closed);
	close(t->opts.listen_fd);
}
