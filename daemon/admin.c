/*
 * The admin pages, and access to them. TCP and the Unix socket each have an
 * HTTP server with its own limits (admin_http.h), so clients on TCP cannot keep
 * the daemon's user from the socket.
 *
 * Happy path: answer() runs for each complete request header and builds the
 * whole answer in memory. Failure mode: without memory for it the answer is
 * 500, or the connection is closed.
 */
#include "daemon/admin.h"

#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/admin_guard.h"
#include "daemon/admin_http.h"
#include "daemon/admin_socket.h"
#include "daemon/admin_tls.h"
#include "pool/base/list.h"
#include "pool/base/log.h"
#include "pool/conn/conn.h"

#define OTHER_USER                                                     \
	"not from this user; accepted: the daemon's own, root, and users " \
	"named by --allow-user"
#define OTHER_ROLE                                                     \
	"not with this certificate; accepted: one of role admin "      \
	"(kvpool certs issue --role admin)"
/* Content-Security-Policy of the files. */
#define FILES_POLICY                                                     \
	"default-src 'none'; script-src 'self'; style-src 'self'; "      \
	"connect-src 'self'; base-uri 'none'; form-action 'none'; "      \
	"frame-ancestors 'none'; require-trusted-types-for 'script'; "   \
	"trusted-types 'none'"

struct daemon_admin {
	struct daemon_admin_opts opts;
	struct admin_http *tcp, *unix_http; /* owns; the latter may be NULL */
	struct admin_tls *front; /* owns; TLS in front of tcp, or NULL */
	int fd;		  /* the TCP socket that listens; tcp's or front's */
	uint16_t port;
	struct pool_listener *local; /* owns; the Unix socket, or NULL */
	struct pool_counter refused; /* for headers, user or role */
	struct pool_counter crowded, slow; /* connections that were closed */
	struct pool_counter waited; /* requests, for another turn */
	unsigned int open_servers; /* while closing */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* ---- answers ---- */

struct reply_header {
	const char *name, *value; /* name NULL ends a list */
};

/* more: further headers, or NULL. */
static enum MHD_Result reply_with(struct MHD_Connection *conn,
				  unsigned int status, const char *type,
				  char *text, size_t len,
				  enum MHD_ResponseMemoryMode mode,
				  const struct reply_header *more)
{
	struct MHD_Response *r;
	enum MHD_Result ok;

	r = MHD_create_response_from_buffer(len, text, mode);
	if (!r) {
		if (mode == MHD_RESPMEM_MUST_FREE)
			free(text);
		return MHD_NO;
	}
	ok = MHD_add_response_header(r, "Content-Type", type);
	if (ok == MHD_YES)
		ok = MHD_add_response_header(r, "Cache-Control", "no-store");
	if (ok == MHD_YES)
		ok = MHD_add_response_header(r, "X-Content-Type-Options",
					     "nosniff");
	for (; ok == MHD_YES && more && more->name; more++)
		ok = MHD_add_response_header(r, more->name, more->value);
	if (ok == MHD_YES)
		ok = MHD_queue_response(conn, status, r);
	MHD_destroy_response(r);
	return ok;
}

static enum MHD_Result reply(struct MHD_Connection *conn, unsigned int status,
			     const char *type, char *text, size_t len,
			     enum MHD_ResponseMemoryMode mode)
{
	return reply_with(conn, status, type, text, len, mode, NULL);
}

/* text must be constant: it is read after this returns. */
static enum MHD_Result reply_text(struct MHD_Connection *conn,
				  unsigned int status, const char *text)
{
	return reply(conn, status, "text/plain; charset=utf-8",
		     (char *)(uintptr_t)text, strlen(text),
		     MHD_RESPMEM_PERSISTENT);
}

/* Sends a copy of line, with '\n' appended. */
static enum MHD_Result reply_line(struct MHD_Connection *conn,
				  unsigned int status, const char *line)
{
	char *text;
	int len = asprintf(&text, "%s\n", line);

	if (len < 0)
		return reply_text(conn, 500, "out of memory\n");
	return reply(conn, status, "text/plain; charset=utf-8", text,
		     (size_t)len, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result reply_method(struct MHD_Connection *conn, bool post)
{
	static const char text[] = "this method does not apply here\n";
	const struct reply_header allow[] = {
		{ "Allow", post ? "GET, HEAD, POST" : "GET, HEAD" },
		{ NULL, NULL },
	};

	return reply_with(conn, MHD_HTTP_METHOD_NOT_ALLOWED,
			  "text/plain; charset=utf-8", (char *)(uintptr_t)text,
			  sizeof(text) - 1, MHD_RESPMEM_PERSISTENT, allow);
}

/* Consumes the reference to the JSON. */
static enum MHD_Result reply_json(struct MHD_Connection *conn,
				  unsigned int status, json_t *json)
{
	size_t len;
	char *text, *longer;

	text = json_dumps(json, JSON_INDENT(1));
	json_decref(json);
	if (!text)
		return reply_text(conn, 500, "out of memory\n");
	len = strlen(text);
	longer = realloc(text, len + 2);
	if (longer) {
		text = longer;
		text[len++] = '\n';
		text[len] = '\0';
	}
	return reply(conn, status, "application/json", text, len,
		     MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result reply_metrics(struct daemon_admin *a,
				     struct MHD_Connection *conn)
{
	char *text;
	size_t len;

	if (pool_metrics_print(a->opts.metrics, &text, &len))
		return reply_text(conn, 500, "out of memory\n");
	return reply(conn, 200, "text/plain; version=0.0.4; charset=utf-8",
		     text, len, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result reply_ready(struct daemon_admin *a,
				   struct MHD_Connection *conn)
{
	const char *why = "not ready";

	if (!a->opts.ready || a->opts.ready(a->opts.arg))
		return reply_text(conn, 200, "ready\n");
	if (a->opts.why_not)
		why = a->opts.why_not(a->opts.arg);
	return reply_line(conn, 503, why);
}

static const char *query_get(const struct daemon_admin_query *q,
			     const char *key)
{
	return MHD_lookup_connection_value(q->priv, MHD_GET_ARGUMENT_KIND, key);
}

struct params_check {
	const char *known; /* "prefix, limit" or NULL */
	bool nul, unknown;
};

/* Is key, which has no NUL in it, a word of the list? */
static bool is_known(const char *list, const char *key, size_t len)
{
	while (list && *list) {
		size_t word = strcspn(list, ",");

		if (word == len && memcmp(list, key, len) == 0)
			return true;
		list += word;
		list += strspn(list, ", ");
	}
	return false;
}

static enum MHD_Result check_param(void *arg, enum MHD_ValueKind kind,
				   const char *key, size_t key_len,
				   const char *value, size_t value_len)
{
	struct params_check *c = arg;

	(void)kind;
	if (!is_known(c->known, key, key_len))
		c->unknown = true;
	else if (value && memchr(value, 0, value_len))
		c->nul = true;
	return MHD_YES;
}

/* Checks the query: an error as JSON text (a new reference), or NULL. */
static json_t *refuse_query(const char *known, struct MHD_Connection *conn)
{
	struct params_check c = { .known = known };

	MHD_get_connection_values_n(conn, MHD_GET_ARGUMENT_KIND, check_param,
				    &c);
	if (c.unknown)
		return json_sprintf("unknown query parameter; accepted: %s",
				    known ? known : "none");
	return c.nul ? json_string("a value with a NUL byte; accepted: text "
				   "without one") :
		       NULL;
}

static enum MHD_Result reply_page(struct daemon_admin *a,
				  daemon_admin_json_fn fn, const char *params,
				  struct MHD_Connection *conn)
{
	struct daemon_admin_query q = { .get = query_get, .priv = conn };
	unsigned int status = 500;
	const char *text = "out of memory";
	json_t *json, *refusal = refuse_query(params, conn);

	if (refusal) {
		json = json_pack("{s:o}", "error", refusal);
		return json ? reply_json(conn, 400, json) :
			      reply_text(conn, 500, "out of memory\n");
	}
	json = fn(a->opts.arg, &q, &status, &text);
	if (json)
		return reply_json(conn, 200, json);
	json = json_pack("{s:s}", "error", text);
	if (!json)
		return reply_text(conn, 500, "out of memory\n");
	return reply_json(conn, status, json);
}

/* The files are constant, so no copy is made. */
static enum MHD_Result reply_file(struct MHD_Connection *conn,
				  const struct daemon_admin_file *f)
{
	static const struct reply_header headers[] = {
		{ "Content-Security-Policy", FILES_POLICY },
		{ "Referrer-Policy", "no-referrer" },
		{ NULL, NULL },
	};

	return reply_with(conn, 200, f->type, (char *)(uintptr_t)f->data,
			  f->len, MHD_RESPMEM_PERSISTENT, headers);
}

/* The list of pages. */
static enum MHD_Result reply_contents(struct daemon_admin *a,
				      struct MHD_Connection *conn)
{
	const struct daemon_admin_page *p = a->opts.pages;
	char *text = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return reply_text(conn, 500, "out of memory\n");
	fputs("/healthz\n/readyz\n/metrics\n/api\n", f);
	for (; p && p->path; p++)
		fprintf(f, "%s\n", p->path);
	if (fclose(f)) {
		free(text);
		return reply_text(conn, 500, "out of memory\n");
	}
	return reply(conn, 200, "text/plain; charset=utf-8", text, len,
		     MHD_RESPMEM_MUST_FREE);
}

/* ---- access ---- */

static enum MHD_Result refuse(struct daemon_admin *a,
			      struct MHD_Connection *conn, const char *line)
{
	pool_count(&a->refused);
	return reply_line(conn, 403, line);
}

/* Did the request come over the Unix socket, so from this user or root? */
static bool is_local(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);

	return info && info->client_addr->sa_family == AF_UNIX;
}

static int socket_of(struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_CONNECTION_FD);

	return info ? info->connect_fd : -1;
}

static bool is_tls(const struct daemon_admin *a, struct MHD_Connection *conn)
{
	return a->front && !is_local(conn);
}

/* The identity in the certificate of a TLS connection. NULL: unknown. */
static const struct pool_tls_id *id_of(const struct daemon_admin *a,
				       struct MHD_Connection *conn)
{
	const struct admin_tls_peer *peer =
		admin_tls_peer(a->front, socket_of(conn));

	return peer ? peer->id : NULL;
}

static int tcp_socket_of(const struct daemon_admin *a,
			 struct MHD_Connection *conn)
{
	const struct admin_tls_peer *peer;

	if (!a->front)
		return socket_of(conn);
	peer = admin_tls_peer(a->front, socket_of(conn));
	return peer ? peer->fd : -1;
}

static const char *header(struct MHD_Connection *conn, const char *name)
{
	return MHD_lookup_connection_value(conn, MHD_HEADER_KIND, name);
}

/* A request without Host (HTTP/1.0) is accepted: no browser sends one. */
static bool host_is_ours(struct daemon_admin *a, struct MHD_Connection *conn)
{
	const char *host = header(conn, "Host");
	struct sockaddr_storage own;
	socklen_t len = sizeof(own);

	if (!host || is_local(conn))
		return true;
	if (getsockname(tcp_socket_of(a, conn), (struct sockaddr *)&own,
			&len))
		return false;
	return admin_host_is_ours(host, (struct sockaddr *)&own,
				  a->opts.listen.host, a->opts.names);
}

static enum MHD_Result refuse_host(struct daemon_admin *a,
				   struct MHD_Connection *conn)
{
	char line[512];

	snprintf(line, sizeof(line),
		 "Host \"%.200s\" given; accepted: localhost, an IP address or "
		 "the name of this machine, the host of --admin, and names "
		 "given by --admin-name",
		 header(conn, "Host"));
	return refuse(a, conn, line);
}

/* Loopback can be reached by any local user, so the peer's user is checked.
 * (That of the Unix socket is trusted.) */
static bool user_may(const struct daemon_admin *a, struct MHD_Connection *conn)
{
	uid_t uid;

	return !a->opts.trust ||
	       pool_trust_peer(a->opts.trust, socket_of(conn), &uid) == 0;
}

/* NULL, or why a TLS peer may not see the page. */
static const char *role_refused(const struct daemon_admin *a,
				const struct daemon_admin_page *page,
				struct MHD_Connection *conn)
{
	const struct pool_tls_id *id = id_of(a, conn);

	if (!id || (page->admin && id->role != POOL_ROLE_ADMIN))
		return OTHER_ROLE;
	if (page->names && id->ndirs > 0)
		return "not with a certificate that is limited to directories; "
		       "accepted: one without a limit, because this page shows "
		       "names of the whole pool";
	return NULL;
}

/* NULL, or why the page is not shown. */
static const char *get_refused(const struct daemon_admin *a,
			       const struct daemon_admin_page *page,
			       struct MHD_Connection *conn)
{
	if (is_tls(a, conn))
		return role_refused(a, page, conn);
	return page->names && !user_may(a, conn) ? OTHER_USER : NULL;
}

/* Plain TCP has no authentication. So changes are accepted from this machine
 * only, and not from a browser on it that a web page controls. NULL, or why
 * not. */
static const char *post_refused(const struct daemon_admin *a,
				const struct daemon_admin_page *page,
				struct MHD_Connection *conn)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(
		conn, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
	const char *origin = header(conn, "Origin");
	const char *host = header(conn, "Host");
	const struct pool_tls_id *id;

	if (origin &&
	    (!host || !admin_origin_is(origin, is_tls(a, conn), host)))
		return "not from a web page of another origin; accepted: no "
		       "Origin, or this address's own";
	if (is_local(conn))
		return NULL;
	if (a->front) {
		id = id_of(a, conn);
		return id && id->role == POOL_ROLE_ADMIN ? NULL : OTHER_ROLE;
	}
	if (!user_may(a, conn))
		return OTHER_USER;
	if ((page->post_insecure && a->opts.insecure) ||
	    (info && admin_is_loopback(info->client_addr)))
		return NULL;
	return page->post_insecure ? "only from the daemon's own machine, or "
				     "with its option --insecure" :
				     "only from the daemon's own machine";
}

/* NULL: there is no such page. */
static const struct daemon_admin_page *find_page(const struct daemon_admin *a,
						 const char *path)
{
	const struct daemon_admin_page *p = a->opts.pages;

	while (p && p->path && strcmp(path, p->path) != 0)
		p++;
	return p && p->path ? p : NULL;
}

static const struct daemon_admin_file *find_file(const struct daemon_admin *a,
						 const char *path)
{
	const struct daemon_admin_file *f = a->opts.files;
	const char *at = a->opts.files_at ? a->opts.files_at : "";

	if (strncmp(path, at, strlen(at)) != 0)
		return NULL;
	path += strlen(at);
	while (f && f->path && strcmp(path, f->path) != 0)
		f++;
	return f && f->path ? f : NULL;
}

static enum MHD_Result route(struct daemon_admin *a,
			     struct MHD_Connection *conn, const char *path)
{
	const struct daemon_admin_page *p = find_page(a, path);
	const struct daemon_admin_file *f = find_file(a, path);
	const char *refused;

	if (strcmp(path, "/healthz") == 0)
		return reply_text(conn, 200, "ok\n");
	if (strcmp(path, "/readyz") == 0)
		return reply_ready(a, conn);
	if (strcmp(path, "/metrics") == 0)
		return reply_metrics(a, conn);
	if (f)
		return reply_file(conn, f);
	if (strcmp(path, "/") == 0 || strcmp(path, "/api") == 0)
		return reply_contents(a, conn);
	if (!p)
		return reply_text(conn, 404, "no such page; /api lists them\n");
	refused = get_refused(a, p, conn);
	return refused ? refuse(a, conn, refused) :
			 reply_page(a, p->fn, p->params, conn);
}

static enum MHD_Result route_post(struct daemon_admin *a,
				  struct MHD_Connection *conn,
				  const char *path)
{
	const struct daemon_admin_page *p = find_page(a, path);
	const char *refused;

	if (!p || !p->post)
		return reply_method(conn, false);
	refused = post_refused(a, p, conn);
	return refused ? refuse(a, conn, refused) :
			 reply_page(a, p->post, p->post_params, conn);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *conn,
			      const char *path, const char *method)
{
	bool post = strcmp(method, "POST") == 0;

	if (!post && strcmp(method, "GET") != 0 && strcmp(method, "HEAD") != 0)
		return reply_method(conn, false);
	if (!host_is_ours(arg, conn))
		return refuse_host(arg, conn);
	return post ? route_post(arg, conn, path) : route(arg, conn, path);
}

/* ---- the Unix socket ---- */

/* Is the peer this user or root? (An empty trust accepts only these.) */
static bool is_own(int fd)
{
	static const struct pool_trust nobody_else;
	uid_t uid;

	return pool_trust_peer(&nobody_else, fd, &uid) == 0;
}

static void on_local(void *arg, int fd)
{
	struct daemon_admin *a = arg;
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	if (!is_own(fd)) {
		pool_count(&a->refused);
		close(fd);
		return;
	}
	admin_http_add(a->unix_http, fd, (struct sockaddr *)&un, sizeof(un));
}

static int open_http(struct daemon_admin *a, int listen_fd, bool paced,
		     struct admin_http **ret_http)
{
	struct admin_http_opts o = { .loop = a->opts.loop,
				     .listen_fd = listen_fd,
				     .paced = paced,
				     .exchange_ms = a->opts.exchange_ms,
				     .trust = a->opts.trust,
				     .answer = answer,
				     .arg = a,
				     .crowded = &a->crowded,
				     .slow = &a->slow,
				     .waited = &a->waited,
				     .refused = &a->refused };

	return admin_http_open(&o, ret_http);
}

void daemon_admin_open_local(struct daemon_admin *a, const char *run_dir)
{
	struct sockaddr_storage tcp;
	socklen_t len = sizeof(tcp);
	char path[PATH_MAX];
	int fd, err;

	if (getsockname(a->fd, (struct sockaddr *)&tcp, &len))
		return;
	err = admin_socket_path(run_dir, (struct sockaddr *)&tcp, path,
				sizeof(path));
	err = err ? err : open_http(a, -1, false, &a->unix_http);
	fd = err ? err : admin_socket_listen(path);
	if (fd >= 0)
		err = pool_listener_from_fd(a->opts.loop, fd, path, on_local, a,
					    &a->local);
	else
		err = fd;
	if (err)
		pool_warn("the admin address has no Unix socket in %s: %s; it "
			  "answers over TCP only",
			  run_dir, strerror(-err));
}

/* ---- opening ---- */

static void on_handed(void *arg, int fd, const struct sockaddr *from,
		      socklen_t len)
{
	struct daemon_admin *a = arg;

	admin_http_add(a->tcp, fd, from, len);
}

static void on_unused_closed(void *arg)
{
	(void)arg;
}

/* Takes over fd. */
static int open_tls(struct daemon_admin *a, int fd)
{
	struct admin_tls_opts o = { .loop = a->opts.loop,
				    .tls = a->opts.tls,
				    .listen_fd = fd,
				    .trust = a->opts.trust,
				    .handed = on_handed,
				    .arg = a,
				    .shake_ms = a->opts.shake_ms,
				    .crowded = &a->crowded,
				    .slow = &a->slow };
	int err = open_http(a, -1, true, &a->tcp);

	if (err) {
		close(fd);
		return err;
	}
	err = admin_tls_open(&o, &a->front);
	if (err)
		admin_http_close(a->tcp, on_unused_closed, NULL);
	return err;
}

static int start(struct daemon_admin *a)
{
	int err, fd = a->opts.listen_fd > 0 ?
			      a->opts.listen_fd :
			      pool_listen_tcp(&a->opts.listen, "--admin");

	if (fd < 0)
		return fd;
	a->fd = fd;
	a->port = pool_fd_port(fd);
	err = a->opts.tls ? open_tls(a, fd) : open_http(a, fd, true, &a->tcp);
	if (err)
		pool_error("admin address: the HTTP server did not start: %s",
			   strerror(-err));
	return err;
}

int daemon_admin_open(const struct daemon_admin_opts *opts,
		      struct daemon_admin **ret_admin)
{
	struct daemon_admin *a = calloc(1, sizeof(*a));
	int err;

	if (!a)
		return -ENOMEM;
	a->opts = *opts;
	(void)pool_metrics_counter(
		opts->metrics, &a->refused, "kvpool_admin_refused_total", NULL,
		"HTTP requests refused for their headers, user or role.");
	(void)pool_metrics_counter(
		opts->metrics, &a->crowded, "kvpool_admin_crowded_total", NULL,
		"HTTP connections closed: too many from one address.");
	(void)pool_metrics_counter(opts->metrics, &a->slow,
				   "kvpool_admin_slow_total", NULL,
				   "HTTP connections closed: a request and its "
				   "answer took too long.");
	(void)pool_metrics_counter(
		opts->metrics, &a->waited, "kvpool_admin_waited_total", NULL,
		"HTTP requests answered in a later turn of the loop.");
	err = start(a);
	if (err) {
		pool_metrics_remove(opts->metrics, a, sizeof(*a));
		free(a);
		return err;
	}
	*ret_admin = a;
	return 0;
}

int daemon_admin_fd(const struct daemon_admin *a)
{
	return a->fd;
}

uint16_t daemon_admin_port(const struct daemon_admin *a)
{
	return a->port;
}

static void on_http_closed(void *arg)
{
	struct daemon_admin *a = arg;

	if (--a->open_servers)
		return;
	void (*closed)(void *arg) = a->closed;
	void *closed_arg = a->closed_arg;

	pool_metrics_remove(a->opts.metrics, a, sizeof(*a));
	free(a);
	if (closed)
		closed(closed_arg);
}

void daemon_admin_close(struct daemon_admin *a, void (*closed)(void *arg),
			void *arg)
{
	a->closed = closed;
	a->closed_arg = arg;
	a->open_servers = 3;
	pool_listener_close(a->local);
	admin_tls_close(a->front, on_http_closed, a);
	admin_http_close(a->unix_http, on_http_closed, a);
	admin_http_close(a->tcp, on_http_closed, a);
}
