/*
 * Happy path: MHD's epoll descriptor becomes readable, or MHD's next timeout is
 * due; the loop calls MHD_run, which calls on_request() for each header, part
 * of a body, and complete request; a complete one is answered.
 *
 * One turn of the loop spends at most TURN_NS on answers. Later requests are
 * suspended, and served in order in the next turns. With opts.paced, the server
 * reads nothing after a turn for REST times the duration of that turn.
 *
 * Failure modes: a header larger than HEADER_MAX is refused (414 or 431) and
 * the connection closed. To close a connection, we shut down its socket; MHD
 * then reads the end of the stream and closes it.
 */
#include "daemon/admin_http.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "daemon/admin_guard.h"
#include "pool/base/clock.h"
#include "pool/base/list.h"
#include "pool/base/log.h"

#define HEADER_MAX ((size_t)16384) /* bytes per connection for the header */
#define IDLE_S 15u
#define TURN_NS 5000000u /* of answers in one turn */
#define REST 7u /* times as long as the work */
#define REST_MS_MAX 1000u
/* After EMFILE, MHD accepts again only in a later MHD_run. So it is called this
 * often, even if nothing happens on the open connections. */
#define RUN_MS 1000u

struct visitor {
	struct pool_list link; /* in http->visitors; self-linked: shut down */
	struct pool_list wait; /* in http->waiting; self-linked: not there */
	struct MHD_Connection *conn;
	bool turn; /* its request is the next to be answered */
	uint64_t since_ms;     /* start of its exchange */
	int fd;		       /* MHD's */
	struct sockaddr_storage from;
};

struct admin_http {
	struct admin_http_opts opts;
	struct MHD_Daemon *mhd;	   /* owns; it owns the listening socket */
	struct pool_list visitors; /* longest exchange first */
	struct pool_list waiting;  /* suspended, in order of arrival */
	uint64_t turn_ends_ns;
	uv_poll_t poll;		   /* MHD's epoll descriptor */
	uv_timer_t timer; /* the next turn, if no event comes earlier */
	unsigned int open_handles;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* ---- connections and their limits ---- */

static bool is_trusted(const struct admin_http *h, const struct visitor *v)
{
	uid_t uid;

	return h->opts.trust &&
	       admin_is_loopback((const struct sockaddr *)&v->from) &&
	       pool_trust_peer(h->opts.trust, v->fd, &uid) == 0;
}

static bool is_crowded(struct admin_http *h, const struct visitor *v)
{
	struct pool_list *it, *tmp;
	unsigned int n = 0;

	pool_list_each(it, tmp, &h->visitors) {
		const struct visitor *other =
			pool_list_entry(it, struct visitor, link);

		n += admin_same_address((const struct sockaddr *)&other->from,
					(const struct sockaddr *)&v->from);
	}
	return n >= ADMIN_HTTP_ADDRESS_MAX && !is_trusted(h, v);
}

static struct visitor *on_arrival(struct admin_http *h,
				  struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *fd = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_CONNECTION_FD);
	const union MHD_ConnectionInfo *from = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	struct visitor *v = calloc(1, sizeof(*v));

	if (!v) {
		shutdown(fd->connect_fd, SHUT_RDWR);
		return NULL;
	}
	pool_list_init(&v->link);
	pool_list_init(&v->wait);
	v->conn = conn;
	v->since_ms = pool_now_ms();
	v->fd = fd->connect_fd;
	memcpy(&v->from, from->client_addr,
	       from->client_addr->sa_family == AF_INET6 ?
		       sizeof(struct sockaddr_in6) :
	       from->client_addr->sa_family == AF_INET ?
		       sizeof(struct sockaddr_in) :
		       sizeof(sa_family_t));
	if (h->opts.listen_fd >= 0 && is_crowded(h, v)) {
		pool_count(h->opts.crowded);
		shutdown(v->fd, SHUT_RDWR);
		return v;
	}
	pool_list_add_tail(&h->visitors, &v->link);
	return v;
}

static void on_connection(void *arg, struct MHD_Connection *conn,
			  void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	struct visitor *v = *socket_context;

	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		*socket_context = on_arrival(arg, conn);
		return;
	}
	if (v) {
		pool_list_del(&v->link);
		pool_list_del(&v->wait);
	}
	free(v);
	*socket_context = NULL;
}

static struct visitor *visitor_of(struct MHD_Connection *conn)
{
	return MHD_get_connection_info(conn,
				       MHD_CONNECTION_INFO_SOCKET_CONTEXT)
		->socket_context;
}

static void on_completed(void *arg, struct MHD_Connection *conn, void **state,
			 enum MHD_RequestTerminationCode how)
{
	struct visitor *v = visitor_of(conn);
	struct admin_http *h = arg;

	(void)state;
	(void)how;
	if (!v || pool_list_empty(&v->link))
		return;
	v->since_ms = pool_now_ms();
	pool_list_del(&v->link);
	pool_list_add_tail(&h->visitors, &v->link);
}

/* ---- requests ---- */

struct header_counts {
	unsigned int hosts, lengths, codings, spaced;
};

static enum MHD_Result on_header(void *arg, enum MHD_ValueKind kind,
				 const char *name, const char *value)
{
	struct header_counts *n = arg;

	(void)kind;
	(void)value;
	n->hosts += strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0;
	n->lengths += strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH) == 0;
	n->codings += strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING) == 0;
	n->spaced += strpbrk(name, " \t") != NULL;
	return MHD_YES;
}

/* MHD accepts these requests, but a proxy in front of it may read another host,
 * or another end of the request, than MHD does. */
static bool is_ambiguous(struct MHD_Connection *conn, const char *version)
{
	struct header_counts n = { 0 };

	MHD_get_connection_values(conn, MHD_HEADER_KIND, on_header, &n);
	return n.hosts > 1 || n.lengths + n.codings > 1 || n.spaced ||
	       (!n.hosts && strcmp(version, MHD_HTTP_VERSION_1_0) != 0);
}

/* Bytes after the header may not be a request, so the connection is closed. */
static enum MHD_Result refuse_ambiguous(struct admin_http *h,
					struct MHD_Connection *conn)
{
	static char text[] =
		"accepted: one Host (HTTP/1.0: none, too), at most one of "
		"Content-Length and Transfer-Encoding, no space before a "
		"colon\n";
	struct MHD_Response *r = MHD_create_response_from_buffer(
		sizeof(text) - 1, text, MHD_RESPMEM_PERSISTENT);
	enum MHD_Result ok;

	pool_count(h->opts.refused);
	if (!r)
		return MHD_NO;
	ok = MHD_queue_response(conn, MHD_HTTP_BAD_REQUEST, r);
	MHD_destroy_response(r);
	return ok;
}

/* May the request be answered now? If not, it is suspended until its turn. */
static bool may_answer(struct admin_http *h, struct MHD_Connection *conn)
{
	struct visitor *v = visitor_of(conn);

	if (!v || v->turn || (pool_list_empty(&h->waiting) &&
			      pool_now_ns() < h->turn_ends_ns)) {
		if (v)
			v->turn = false;
		return true;
	}
	pool_count(h->opts.waited);
	pool_list_add_tail(&h->waiting, &v->wait);
	MHD_suspend_connection(conn);
	return false;
}

static enum MHD_Result on_request(void *arg, struct MHD_Connection *conn,
				  const char *path, const char *method,
				  const char *version, const char *body,
				  size_t *body_len, void **state)
{
	static char header_seen;
	struct admin_http *h = arg;

	(void)body;
	/* The first call is for the header. An answer to it would close the
	 * connection. */
	if (!*state && is_ambiguous(conn, version))
		return refuse_ambiguous(h, conn);
	if (!*state || *body_len) {
		*state = &header_seen;
		*body_len = 0; /* ignored */
		return MHD_YES;
	}
	if (!may_answer(h, conn))
		return MHD_YES;
	return h->opts.answer(h->opts.arg, conn, path, method);
}

static void let_in(struct visitor *v)
{
	pool_list_del(&v->wait);
	v->turn = true;
	MHD_resume_connection(v->conn);
}

/* ---- on the loop ---- */

/* Shuts down connections whose exchange takes too long. Returns the ms until
 * the next is due; UINT64_MAX: there is none. */
static uint64_t close_slow(struct admin_http *h)
{
	uint64_t now = pool_now_ms();

	while (!pool_list_empty(&h->visitors)) {
		struct visitor *v = pool_list_first(&h->visitors,
						    struct visitor, link);

		if (v->since_ms + h->opts.exchange_ms > now)
			return v->since_ms + h->opts.exchange_ms - now;
		pool_count(h->opts.slow);
		pool_list_del(&v->link);
		shutdown(v->fd, SHUT_RDWR);
	}
	return UINT64_MAX;
}

/* MHD_run fails only if the MHD daemon is stopped, and ours is not. */
static void take_turn(struct admin_http *h)
{
	h->turn_ends_ns = pool_now_ns() + TURN_NS;
	MHD_run(h->mhd);
	while (!pool_list_empty(&h->waiting) &&
	       pool_now_ns() < h->turn_ends_ns) {
		let_in(pool_list_first(&h->waiting, struct visitor, wait));
		MHD_run(h->mhd);
	}
}

/* Ms until run() must be called, if no event comes earlier. */
static uint64_t next_ms(struct admin_http *h)
{
	MHD_UNSIGNED_LONG_LONG ms;
	uint64_t next = close_slow(h);

	if (!pool_list_empty(&h->waiting))
		next = 0;
	if (MHD_get_timeout(h->mhd, &ms) == MHD_YES && ms < next)
		next = ms;
	return next < RUN_MS ? next : RUN_MS;
}

static void run(struct admin_http *h);

static void on_due(uv_timer_t *timer)
{
	run(pool_container_of(timer, struct admin_http, timer));
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	run(pool_container_of(poll, struct admin_http, poll));
}

static void wait_for_events(struct admin_http *h)
{
	int rc = uv_poll_start(&h->poll, UV_READABLE, on_poll);
	uint64_t next = next_ms(h);

	assert(rc == 0); /* fails only for a closing handle */
	/* A timer of 0 ms started by its own callback is due at once: the loop
	 * would never look at its descriptors. */
	uv_timer_start(&h->timer, on_due, next ? next : 1, 0);
}

static void on_rested(uv_timer_t *timer)
{
	wait_for_events(pool_container_of(timer, struct admin_http, timer));
}

uint64_t admin_http_rest_ms(uint64_t worked_ns)
{
	uint64_t ms = worked_ns * REST / 1000000 + 1;

	return ms < REST_MS_MAX ? ms : REST_MS_MAX;
}

static void run(struct admin_http *h)
{
	uint64_t start_ns = pool_now_ns();

	take_turn(h);
	if (!h->opts.paced) {
		wait_for_events(h);
		return;
	}
	uv_poll_stop(&h->poll);
	uv_update_time(h->opts.loop); /* timers count from it */
	uv_timer_start(&h->timer, on_rested,
		       admin_http_rest_ms(pool_now_ns() - start_ns), 0);
}

void admin_http_add(struct admin_http *h, int fd, const struct sockaddr *from,
		    socklen_t len)
{
	/* MHD takes over fd, also on an error. */
	(void)MHD_add_connection(h->mhd, fd, from, len);
	if (uv_is_active((uv_handle_t *)&h->poll)) /* not at rest */
		run(h);
}

/* ---- opening and closing ---- */

static int start_mhd(struct admin_http *h)
{
	int fd = h->opts.listen_fd;
	struct MHD_OptionItem socket[] = {
		{ fd < 0 ? MHD_OPTION_END : MHD_OPTION_LISTEN_SOCKET, fd,
		  NULL },
		{ MHD_OPTION_END, 0, NULL },
	};

	h->mhd = MHD_start_daemon(
		MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME |
			(fd < 0 ? MHD_USE_NO_LISTEN_SOCKET : 0),
		0, NULL, NULL, on_request, h,
		MHD_OPTION_ARRAY, socket,
		MHD_OPTION_CONNECTION_LIMIT,
		(unsigned int)ADMIN_HTTP_CONNECTIONS_MAX,
		MHD_OPTION_CONNECTION_MEMORY_LIMIT, HEADER_MAX,
		MHD_OPTION_CONNECTION_TIMEOUT, IDLE_S,
		MHD_OPTION_NOTIFY_CONNECTION, on_connection, h,
		MHD_OPTION_NOTIFY_COMPLETED, on_completed, h, MHD_OPTION_END);
	if (h->mhd)
		return 0;
	if (fd >= 0)
		close(fd);
	return -EIO;
}

int admin_http_open(const struct admin_http_opts *opts,
		    struct admin_http **ret_http)
{
	struct admin_http *h = calloc(1, sizeof(*h));
	int rc;

	if (!h) {
		if (opts->listen_fd >= 0)
			close(opts->listen_fd);
		return -ENOMEM;
	}
	h->opts = *opts;
	if (!h->opts.exchange_ms)
		h->opts.exchange_ms = ADMIN_HTTP_EXCHANGE_MS;
	pool_list_init(&h->visitors);
	pool_list_init(&h->waiting);
	rc = start_mhd(h);
	if (rc) {
		free(h);
		return rc;
	}
	rc = uv_poll_init(opts->loop, &h->poll,
			  MHD_get_daemon_info(h->mhd, MHD_DAEMON_INFO_EPOLL_FD)
				  ->epoll_fd);
	if (rc) {
		MHD_stop_daemon(h->mhd);
		free(h);
		return rc;
	}
	uv_timer_init(opts->loop, &h->timer);
	h->open_handles = 2;
	wait_for_events(h);
	*ret_http = h;
	return 0;
}

static void on_handle_closed(uv_handle_t *handle)
{
	struct admin_http *h = handle->data;

	if (--h->open_handles)
		return;
	void (*closed)(void *arg) = h->closed;
	void *arg = h->closed_arg;

	free(h);
	closed(arg);
}

void admin_http_close(struct admin_http *h, void (*closed)(void *arg),
		      void *arg)
{
	if (!h) {
		closed(arg);
		return;
	}
	h->closed = closed;
	h->closed_arg = arg;
	h->poll.data = h->timer.data = h;
	/* Stop watching MHD's descriptor before MHD closes it. */
	uv_close((uv_handle_t *)&h->poll, on_handle_closed);
	uv_close((uv_handle_t *)&h->timer, on_handle_closed);
	/* MHD aborts if a connection is suspended. */
	while (!pool_list_empty(&h->waiting))
		let_in(pool_list_first(&h->waiting, struct visitor, wait));
	MHD_stop_daemon(h->mhd);
}
