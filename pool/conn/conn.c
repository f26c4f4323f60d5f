#include "pool/conn/conn.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/sockios.h>

#include "pool/base/log.h"
#include "pool/base/unix.h"
#include "pool/conn/conn_priv.h"

#define CONNECT_TIMEOUT_MS 2000
#define SEND_QUEUE_MAX (64u << 20)
/* A dead host is detected after 10 + 3 * 5 s even on an idle connection. */
#define KEEPALIVE_IDLE_S 10
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES 3

static void on_poll(uv_poll_t *h, int status, int events);
static void on_timer(uv_timer_t *t);
static void on_turn(struct pool_share_user *u);

bool conn_callbacks_on(const struct pool_conn *c)
{
	return c->state == CONN_OPEN ||
	       (c->state == CONN_CONNECTING && !c->drain_when_open);
}

/* ---- creation and teardown ---- */

/* sendfile(2) has no MSG_NOSIGNAL: writing to a closed connection would kill
 * the process. */
static void sigpipe_ignore(void)
{
	struct sigaction sa;

	if (sigaction(SIGPIPE, NULL, &sa) == 0 && sa.sa_handler == SIG_DFL)
		signal(SIGPIPE, SIG_IGN);
}

void conn_unref(struct pool_conn *c)
{
	assert(c->refs > 0);
	if (--c->refs > 0)
		return;
	assert(c->state == CONN_CLOSING);
	conn_queue_clear(c, c->err ? c->err : -ECANCELED);
	conn_rx_clear(c);
	pool_tls_free(c->stream);
	if (!c->detached)
		c->ops->on_close(c, c->err);
	free(c->faults);
	free(c->tls_host);
	free(c->name);
	free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
	conn_unref(pool_container_of((uv_timer_t *)h, struct pool_conn,
				     timer));
}

static void on_poll_closed(uv_handle_t *h)
{
	struct conn_poll *p =
		pool_container_of((uv_poll_t *)h, struct conn_poll, handle);
	struct pool_conn *c = p->c;

	free(p);
	conn_unref(c);
}

static void poll_close(struct pool_conn *c)
{
	if (!c->poll)
		return;
	uv_close((uv_handle_t *)&c->poll->handle, on_poll_closed);
	c->poll = NULL;
}

static void socket_close(struct pool_conn *c)
{
	poll_close(c); /* first: it takes fd out of the loop's epoll set */
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
}

static void addrs_free(struct pool_conn *c)
{
	if (c->addrs)
		uv_freeaddrinfo(c->addrs);
	c->addrs = c->addr_next = NULL;
}

void conn_fail(struct pool_conn *c, int err)
{
	if (c->state == CONN_CLOSING)
		return;
	c->err = c->state == CONN_DRAINING || c->drain_when_open ? c->refusal :
								   err;
	c->state = CONN_CLOSING;
	socket_close(c);
	pool_share_leave(&c->turn);
	addrs_free(c);
	uv_cancel((uv_req_t *)&c->resolve); /* works if it has not started */
	conn_faults_close(c);
	uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

/* A connection without a socket. Its timers hold the only references. */
static int conn_new(uv_loop_t *loop, const struct pool_conn_opts *opts,
		    const char *name, struct pool_conn **ret_conn)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	struct pool_conn *c = calloc(1, sizeof(*c));

	pthread_once(&once, sigpipe_ignore);
	if (!c)
		return -ENOMEM;
	c->name = strdup(name);
	if (!c->name) {
		free(c);
		return -ENOMEM;
	}
	c->loop = loop;
	c->ops = opts->ops;
	c->user = opts->user;
	c->fd = c->rx.fd = -1;
	c->queue_max = opts->send_queue_max ? opts->send_queue_max :
					      SEND_QUEUE_MAX;
	c->idle_ms = opts->idle_timeout_ms;
	c->unread_max = opts->unread_max;
	c->unread_timeout_ms = opts->unread_timeout_ms;
	c->share = opts->share;
	c->trust = opts->trust;
	c->tls = opts->tls;
	c->tls_roles = opts->tls_roles;
	c->tls_bulk = opts->tls_bulk;
	c->foreign_memory = opts->foreign_memory;
	c->shakes = opts->shakes;
	c->first = opts->first;
	c->refused = opts->refused;
	pool_share_user_init(&c->turn, on_turn);
	pool_list_init(&c->queue);
	if (conn_faults_open(c)) {
		free(c->name);
		free(c);
		return -ENOMEM;
	}
	uv_timer_init(loop, &c->timer);
	c->refs++;
	*ret_conn = c;
	return 0;
}

/* Undo conn_new before the caller knows the connection: without on_close. */
static void conn_discard(struct pool_conn *c, int err)
{
	c->detached = true;
	conn_fail(c, err);
}

void pool_conn_close(struct pool_conn *c)
{
	conn_fail(c, 0);
}

/* Turn callbacks off. conn_flush sends the queue, then shuts our direction
 * down; the peer's end, or the timer, ends the connection. */
static void drain_start(struct pool_conn *c)
{
	c->state = CONN_DRAINING;
	c->rx.state = RX_HEADER;
	pool_conn_bulk_drop(c);
	conn_rx_clear(c);
	c->write_more = true;
	conn_watch(c);
}

void pool_conn_drain_close(struct pool_conn *c, unsigned int timeout_ms)
{
	if (!conn_callbacks_on(c))
		return;
	uv_timer_start(&c->timer, on_timer, timeout_ms, 0);
	if (c->state == CONN_CONNECTING)
		c->drain_when_open = true;
	else
		drain_start(c);
}

/* Nothing is to be sent, nor received in part. */
static bool is_between_frames(const struct pool_conn *c)
{
	return c->state == CONN_OPEN && pool_list_empty(&c->queue) &&
	       c->rx.state == RX_HEADER && c->rx.have == 0 &&
	       c->rx.pos == c->rx.end && c->rx.fd < 0 &&
	       !(c->stream && pool_tls_unsent(c->stream));
}

int pool_conn_end_tls(struct pool_conn *c)
{
	if (!is_between_frames(c) || !c->stream ||
	    pool_tls_has_input(c->stream))
		return -EBUSY;
	pool_tls_free(c->stream);
	c->stream = NULL;
	c->more_in = false;
	return 0;
}

int pool_conn_detach(struct pool_conn *c, struct pool_tls_stream **ret_stream)
{
	int fd = c->fd;

	if (!is_between_frames(c))
		return -EBUSY;
	conn_wake_at(c, 1);
	poll_close(c);
	c->fd = -1;
	*ret_stream = c->stream;
	c->stream = NULL;
	c->detached = true;
	conn_fail(c, 0);
	return fd;
}

/* ---- timeouts: one timer ---- */

static bool input_waiting(const struct pool_conn *c)
{
	char byte;

	return recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static bool is_silent(const struct pool_conn *c, uint64_t now)
{
	return c->idle_ms && now - c->last_rx_ms >= c->idle_ms;
}

/* Bytes on their way to the peer: of the stream, and in the socket. */
static size_t not_taken(const struct pool_conn *c)
{
	int in_socket = 0;

	(void)ioctl(c->fd, SIOCOUTQ, &in_socket);
	return (size_t)in_socket +
	       (c->stream ? pool_tls_unsent(c->stream) : 0);
}

void conn_taken(struct pool_conn *c)
{
	c->taken_ms = uv_now(c->loop);
	c->not_taken = not_taken(c);
}

/* Has the peer taken nothing for too long? The loop is woken for a part of the
 * socket's buffer only, and not before timers after a long iteration: look what
 * the socket still has. */
static bool is_deaf(struct pool_conn *c, uint64_t now)
{
	if (!c->unread || !c->unread_timeout_ms ||
	    now - c->taken_ms < c->unread_timeout_ms)
		return false;
	if (not_taken(c) >= c->not_taken)
		return true;
	conn_taken(c);
	return false;
}

/* Start the timer for the earlier timeout, if there is any. */
static void idle_arm(struct pool_conn *c)
{
	uint64_t now = uv_now(c->loop), due = UINT64_MAX;

	c->idle_armed_ms = c->last_rx_ms;
	if (c->idle_ms)
		due = c->last_rx_ms + c->idle_ms;
	if (c->unread && c->unread_timeout_ms &&
	    c->taken_ms + c->unread_timeout_ms < due)
		due = c->taken_ms + c->unread_timeout_ms;
	if (due != UINT64_MAX)
		uv_timer_start(&c->timer, on_timer, due > now ? due - now : 1,
			       0);
}

void conn_received(struct pool_conn *c)
{
	c->last_rx_ms = uv_now(c->loop);
	if (c->idle_ms && c->state == CONN_OPEN &&
	    c->last_rx_ms - c->idle_armed_ms >= c->idle_ms / 4)
		idle_arm(c);
}

static void on_timer(uv_timer_t *t)
{
	struct pool_conn *c = pool_container_of(t, struct pool_conn, timer);
	uint64_t now = uv_now(c->loop);

	if (c->state != CONN_OPEN) {
		if (c->shaking) {
			pool_tls_count(c->tls, c->stream, -ETIMEDOUT);
			pool_warn_limited("%s: TLS: the handshake did not end "
					  "in time", c->name);
		}
		conn_fail(c, -ETIMEDOUT);
		return;
	}
	/* Timers run before input is read: after a long loop iteration, input
	 * may be waiting in the socket although none was read in time. */
	if (is_deaf(c, now))
		conn_fail(c, -ENOBUFS);
	else if (is_silent(c, now) && !input_waiting(c))
		conn_fail(c, -ETIMEDOUT);
	else
		idle_arm(c);
}

/* ---- events ---- */

bool conn_waits(const struct pool_conn *c)
{
	return conn_faults_in_delayed(c) ||
	       ((c->held || c->unread) && c->state == CONN_OPEN);
}

void pool_conn_hold(struct pool_conn *c, bool hold)
{
	if (c->held == hold)
		return;
	c->held = hold;
	if (c->state == CONN_OPEN)
		conn_watch(c);
}

/* Does the peer leave too much unread? (Once broken, nothing is sent any more,
 * but the rest of the input is delivered.) */
static void check_unread(struct pool_conn *c)
{
	bool unread = c->unread_max && c->queued > c->unread_max && !c->broken;

	if (c->unread == unread)
		return;
	c->unread = unread;
	if (!unread || c->state != CONN_OPEN)
		return;
	conn_taken(c);
	idle_arm(c);
}

void conn_watch(struct pool_conn *c)
{
	bool connecting = c->state == CONN_CONNECTING && !c->shaking;
	int events, err;

	check_unread(c);
	events = connecting	 ? UV_WRITABLE :
		 conn_waits(c)	 ? 0 :
				   UV_READABLE;
	if (c->shaking && pool_tls_unsent(c->stream))
		events |= UV_WRITABLE;
	if (c->write_more && c->state != CONN_CONNECTING)
		events |= UV_WRITABLE;
	if (c->more_in && events & UV_READABLE) /* wake at once */
		events |= UV_WRITABLE;
	if (c->broken) /* wake at once to read the rest, unless delayed */
		events = events & UV_READABLE ? UV_READABLE | UV_WRITABLE : 0;
	if (!c->poll || c->poll->events == events)
		return;
	c->poll->events = events;
	err = uv_poll_start(&c->poll->handle, events, on_poll);
	if (err)
		conn_fail(c, err);
}

static int poll_open(struct pool_conn *c)
{
	struct conn_poll *p = calloc(1, sizeof(*p));
	int err;

	if (!p)
		return -ENOMEM;
	err = uv_poll_init(c->loop, &p->handle, c->fd);
	if (err) {
		free(p);
		return err;
	}
	p->c = c;
	c->refs++;
	c->poll = p;
	conn_watch(c);
	return 0;
}

static void set_options(struct pool_conn *c)
{
	static const int on = 1, idle = KEEPALIVE_IDLE_S,
			 interval = KEEPALIVE_INTERVAL_S,
			 probes = KEEPALIVE_PROBES;

	if (c->is_unix)
		return;
	/* Best effort: the connection works without them. */
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(c->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
	setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval,
		   sizeof(interval));
	setsockopt(c->fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

/* Two ends with the same address are on the same host. */
static bool on_same_host(const struct pool_conn *c)
{
	struct sockaddr_storage us, them;
	socklen_t us_len = sizeof(us), them_len = sizeof(them);

	if (c->is_unix || getsockname(c->fd, (void *)&us, &us_len) < 0 ||
	    getpeername(c->fd, (void *)&them, &them_len) < 0 ||
	    us.ss_family != them.ss_family)
		return false;
	if (us.ss_family == AF_INET)
		return ((struct sockaddr_in *)(void *)&us)->sin_addr.s_addr ==
		       ((struct sockaddr_in *)(void *)&them)->sin_addr.s_addr;
	return memcmp(&((struct sockaddr_in6 *)(void *)&us)->sin6_addr,
		      &((struct sockaddr_in6 *)(void *)&them)->sin6_addr,
		      sizeof(struct in6_addr)) == 0;
}

static void set_open(struct pool_conn *c)
{
	c->state = CONN_OPEN;
	c->same_host = on_same_host(c);
	uv_timer_stop(&c->timer);
	c->last_rx_ms = uv_now(c->loop);
	if (c->unread)
		conn_taken(c);
	idle_arm(c);
}

static int socket_error(const struct pool_conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len))
		return -errno;
	return -err;
}

static void connect_next(struct pool_conn *c);

/* ---- is the peer's owner trusted ---- */

/* Log and count why, and return the error for on_close. */
static int distrust(struct pool_conn *c, int err, uid_t uid)
{
	if (err == -EAGAIN)
		return -ECONNRESET;
	if (err == -EPERM)
		pool_warn_limited(
			"%s: a process of user %u has this address, and this "
			"one (user %u) does not trust that user; disconnected. "
			"To trust it: --allow-user %u",
			c->name, (unsigned int)uid, (unsigned int)geteuid(),
			(unsigned int)uid);
	else if (err == -ENOTSUP)
		pool_warn_limited(
			"%s: which user has this address is unknown (neither "
			"sock_diag nor /proc/self/net/tcp shows it, or the "
			"user has no number in this user namespace); "
			"disconnected. --insecure accepts all peers",
			c->name);
	if (err == -EPERM || err == -ENOTSUP)
		pool_count(&c->trust->impostors);
	return err;
}

/* Runs before anything is sent. If the peer has not accepted the connection
 * yet, check the listening socket's owner now, and the connection's own when
 * input arrives (conn_is_trusted). */
static int check_dialled(struct pool_conn *c)
{
	uid_t uid = 0;
	int err;

	if (conn_is_secure(c)) /* its certificate is checked instead */
		c->trust = NULL;
	err = c->trust ? pool_trust_peer(c->trust, c->fd, &uid) : 0;
	if (err == -EAGAIN)
		err = pool_trust_listener(c->trust, c->fd, &uid);
	else if (!err)
		c->trust = NULL;
	return err ? distrust(c, err, uid) : 0;
}

bool conn_is_trusted(struct pool_conn *c)
{
	uid_t uid = 0;
	int err = c->trust ? pool_trust_peer(c->trust, c->fd, &uid) : 0;

	if (err)
		conn_fail(c, distrust(c, err, uid));
	else
		c->trust = NULL;
	return !err;
}

/* The peer is trusted, or needs no check: frames may be sent. */
static void opened(struct pool_conn *c)
{
	addrs_free(c);
	if (c->drain_when_open) {
		drain_start(c);
		return;
	}
	set_open(c);
	conn_watch(c);
	if (c->state == CONN_OPEN && c->dialled && c->ops->on_open)
		c->ops->on_open(c);
	if (c->state == CONN_OPEN && !pool_list_empty(&c->queue))
		conn_flush(c);
	if (c->state == CONN_OPEN && c->stream) /* it may have read ahead */
		conn_receive_turn(c);
}

/* The next step of the handshake, if there is budget left for one. */
static void shake(struct pool_conn *c)
{
	int err;

	if (c->shakes && !pool_share_take(c->shakes, &c->turn))
		return;
	if (c->shakes)
		pool_share_spend(c->shakes, 1);
	err = conn_shake(c);
	if (!err) {
		c->shaking = false;
		opened(c);
	} else if (err == -EAGAIN) {
		conn_watch(c);
	} else {
		conn_fail(c, err);
	}
}

/* A share has units for c. Input beyond a slice keeps the socket readable,
 * which wakes the loop. */
static void on_turn(struct pool_share_user *u)
{
	struct pool_conn *c = pool_container_of(u, struct pool_conn, turn);

	if (c->shaking)
		shake(c);
	else
		conn_receive(c);
}

static void on_connected(struct pool_conn *c)
{
	int err = socket_error(c);

	if (!err)
		err = check_dialled(c);
	if (!err && conn_is_secure(c))
		err = conn_shake_start(c);
	if (err) {
		c->addr_err = err;
		connect_next(c);
	} else if (c->shaking) {
		shake(c);
	} else {
		opened(c);
	}
}

/*
 * A write failed (err), or poll reported an error (0). Input that the peer sent
 * before that is still in the socket; conn_receive ends the connection when it
 * has read all of it, with err or else the socket's error.
 */
void conn_break(struct pool_conn *c, int err)
{
	if (c->state != CONN_OPEN) {
		conn_fail(c, err ? err : -ECONNRESET);
		return;
	}
	if (!c->broken || err)
		c->break_err = err;
	c->broken = true;
	conn_watch(c);
}

void conn_broken_end(struct pool_conn *c)
{
	int err = c->break_err ? c->break_err : socket_error(c);

	conn_fail(c, err ? err : -ECONNRESET);
}

static void on_poll(uv_poll_t *h, int status, int events)
{
	struct pool_conn *c =
		pool_container_of(h, struct conn_poll, handle)->c;

	if (c->state == CONN_CONNECTING) {
		if (c->shaking)
			shake(c);
		else
			on_connected(c);
		return;
	}
	if (status < 0) {
		/* libuv has stopped watching. Reading delivers the remaining
		 * input and then returns the error. */
		c->poll->events = 0;
		conn_break(c, 0);
	}
	if (events & UV_READABLE || c->broken || c->more_in)
		conn_receive_turn(c);
	if ((events & UV_WRITABLE) && c->state != CONN_CLOSING)
		conn_flush(c);
}

/* ---- dialling ---- */

/* Start connecting to one address: 0 (in progress) or -errno. */
static int connect_start(struct pool_conn *c, const struct sockaddr *sa,
			 socklen_t len)
{
	int r;

	c->is_unix = sa->sa_family == AF_UNIX;
	c->fd = socket(sa->sa_family,
		       SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return -errno;
	set_options(c);
	do
		r = connect(c->fd, sa, len);
	while (r < 0 && errno == EINTR);
	if (r < 0 && errno != EINPROGRESS)
		return -errno;
	return poll_open(c);
}

/* Try the name's addresses in turn until connecting is in progress. */
static void connect_next(struct pool_conn *c)
{
	socket_close(c);
	while (c->addr_next) {
		struct addrinfo *a = c->addr_next;

		c->addr_next = a->ai_next;
		c->addr_err = connect_start(c, a->ai_addr, a->ai_addrlen);
		if (c->addr_err == 0 || c->state == CONN_CLOSING)
			return;
		socket_close(c);
	}
	conn_fail(c, c->addr_err ? c->addr_err : -EHOSTUNREACH);
}

static int resolve_errno(int status)
{
	switch (status) {
	case UV_EAI_MEMORY:
		return -ENOMEM;
	case UV_ECANCELED:
		return -ECANCELED;
	default:
		return -EHOSTUNREACH;
	}
}

static void on_resolved(uv_getaddrinfo_t *req, int status,
			struct addrinfo *res)
{
	struct pool_conn *c = pool_container_of(req, struct pool_conn, resolve);

	if (c->state == CONN_CLOSING) {
		uv_freeaddrinfo(res);
	} else if (status < 0) {
		conn_fail(c, resolve_errno(status));
	} else {
		c->addrs = c->addr_next = res;
		connect_next(c);
	}
	conn_unref(c);
}

static int resolve_start(struct pool_conn *c, const struct pool_hostport *to)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_NUMERICSERV,
	};
	char port[8];
	int err;

	snprintf(port, sizeof(port), "%u", to->port);
	err = uv_getaddrinfo(c->loop, &c->resolve, on_resolved, to->host, port,
			     &hints);
	if (err == 0)
		c->refs++;
	return err;
}

/* Address literals need no worker thread. */
static socklen_t parse_literal(const struct pool_hostport *to,
			       struct sockaddr_storage *ss)
{
	struct sockaddr_in *in4 = (void *)ss;
	struct sockaddr_in6 *in6 = (void *)ss;

	memset(ss, 0, sizeof(*ss));
	if (inet_pton(AF_INET, to->host, &in4->sin_addr) == 1) {
		in4->sin_family = AF_INET;
		in4->sin_port = htons(to->port);
		return sizeof(*in4);
	}
	if (inet_pton(AF_INET6, to->host, &in6->sin6_addr) == 1) {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = htons(to->port);
		return sizeof(*in6);
	}
	return 0;
}

static void connect_timer_start(struct pool_conn *c,
				const struct pool_conn_opts *opts)
{
	uv_timer_start(&c->timer, on_timer,
		       opts->connect_timeout_ms ? opts->connect_timeout_ms :
						  CONNECT_TIMEOUT_MS,
		       0);
}

int pool_conn_connect(uv_loop_t *loop, const struct pool_hostport *to,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn)
{
	char name[POOL_HOST_MAX + 16];
	struct sockaddr_storage ss;
	struct pool_conn *c;
	socklen_t len;
	int err;

	snprintf(name, sizeof(name), strchr(to->host, ':') ? "[%s]:%u" :
							     "%s:%u",
		 to->host, to->port);
	err = conn_new(loop, opts, name, &c);
	if (err)
		return err;
	c->dialled = true;
	if (c->tls && !(c->tls_host = strdup(to->host))) {
		conn_discard(c, -ENOMEM);
		return -ENOMEM;
	}
	connect_timer_start(c, opts);
	len = parse_literal(to, &ss);
	if (len)
		err = connect_start(c, (struct sockaddr *)&ss, len);
	else
		err = resolve_start(c, to);
	*ret_conn = c;
	if (err)
		conn_fail(c, err);
	return 0;
}

int pool_conn_connect_unix(uv_loop_t *loop, const char *path,
			   const struct pool_conn_opts *opts,
			   struct pool_conn **ret_conn)
{
	struct sockaddr_un un;
	struct pool_conn *c;
	int err = conn_new(loop, opts, path, &c);

	if (err)
		return err;
	c->dialled = true;
	connect_timer_start(c, opts);
	*ret_conn = c;
	err = pool_unix_address(path, &un);
	if (!err)
		err = connect_start(c, (struct sockaddr *)&un, sizeof(un));
	if (err)
		conn_fail(c, err);
	return 0;
}

static void name_of_peer(const struct sockaddr_storage *ss, char *buf,
			 size_t cap)
{
	const struct sockaddr_in *in4 = (const void *)ss;
	const struct sockaddr_in6 *in6 = (const void *)ss;
	char host[INET6_ADDRSTRLEN] = "?";

	if (ss->ss_family == AF_INET) {
		inet_ntop(AF_INET, &in4->sin_addr, host, sizeof(host));
		snprintf(buf, cap, "%s:%u", host, ntohs(in4->sin_port));
	} else if (ss->ss_family == AF_INET6) {
		inet_ntop(AF_INET6, &in6->sin6_addr, host, sizeof(host));
		snprintf(buf, cap, "[%s]:%u", host, ntohs(in6->sin6_port));
	} else {
		snprintf(buf, cap, "unix socket");
	}
}

int pool_conn_from_fd(uv_loop_t *loop, int fd,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn)
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);
	char name[INET6_ADDRSTRLEN + 16];
	struct pool_conn *c;
	int err;

	getpeername(fd, (struct sockaddr *)&ss, &len);
	name_of_peer(&ss, name, sizeof(name));
	err = conn_new(loop, opts, name, &c);
	if (err) {
		close(fd);
		pool_tls_free(opts->stream);
		return err;
	}
	c->fd = fd;
	c->stream = opts->stream;
	/* Use our own address: getpeername fails if the peer has closed. */
	len = sizeof(ss);
	if (getsockname(fd, (struct sockaddr *)&ss, &len) == 0)
		c->is_unix = ss.ss_family == AF_UNIX;
	set_options(c);
	if (!c->stream && conn_is_secure(c)) {
		connect_timer_start(c, opts);
		err = conn_shake_start(c);
	} else {
		set_open(c);
	}
	if (!err)
		err = poll_open(c);
	if (!err && c->state == CONN_CLOSING)
		err = c->err;
	if (err) {
		conn_discard(c, err);
		return err;
	}
	*ret_conn = c;
	return 0;
}

/* ---- accessors ---- */

void *pool_conn_user(const struct pool_conn *c)
{
	return c->user;
}

const char *pool_conn_peer_name(const struct pool_conn *c)
{
	return c->name;
}

const struct pool_tls_id *pool_conn_peer_id(const struct pool_conn *c)
{
	return c->stream ? pool_tls_peer(c->stream) : NULL;
}

bool pool_conn_peer_has_host(const struct pool_conn *c, const char *host)
{
	return c->stream && pool_tls_peer_has_host(c->stream, host);
}

bool pool_conn_own_user(const struct pool_conn *c)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	return c->is_unix && c->fd >= 0 &&
	       getsockopt(c->fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) == 0 &&
	       cred.uid == geteuid() && cred.uid != POOL_UID_LOST;
}

uint64_t pool_conn_silent_ms(const struct pool_conn *c)
{
	return uv_now(c->loop) - c->last_rx_ms;
}

uint16_t pool_conn_version(const struct pool_conn *c)
{
	return c->version;
}

size_t pool_conn_queued(const struct pool_conn *c)
{
	return c->queued;
}

size_t pool_conn_memory(const struct pool_conn *c)
{
	return c->queued + (c->rx.payload ? c->rx.frame.payload_len : 0);
}

bool pool_conn_is_over(const struct pool_conn *c)
{
	return !conn_callbacks_on(c) || c->broken;
}
