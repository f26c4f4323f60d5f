/*
 * The admin address: /healthz, /readyz, /metrics and JSON pages over HTTP. It
 * uses libmicrohttpd with an external epoll, so it runs on the loop thread, and
 * handlers may read any state without a lock.
 *
 * GET and HEAD change nothing. POST may, on the pages that have it. POST is
 * accepted only from this machine (some pages accept any under --insecure),
 * only from a trusted user of it, and not from a browser's page of another
 * origin; otherwise the answer is 403. A request whose Host is not this host is
 * answered with 403, too (daemon/admin_guard.h). An unknown page is answered
 * with 404, another method with 405. Request bodies are ignored.
 *
 * With opts.tls the port speaks TLS only, and peers need a certificate of the
 * pool (daemon/admin_tls.h). Its role counts, not the peer's machine and user:
 * any role may GET, only an admin may POST and see the pages of faults. A peer
 * whose certificate is limited to directories does not get the pages of names.
 *
 * Files (a web page) are part of the program, and so the same for everybody who
 * may connect. A browser runs and loads nothing but them.
 *
 * The same pages are served on a Unix socket (daemon/admin_socket.h), to root
 * and this process's user only; Host and address are not checked there.
 *
 * Thread: loop.
 */
#ifndef DAEMON_ADMIN_H
#define DAEMON_ADMIN_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/base/parse.h"
#include "pool/conn/trust.h"

struct daemon_admin;

struct daemon_admin_query {
	/* Value of ?key=..., URL-decoded, or NULL; borrowed until return. */
	const char *(*get)(const struct daemon_admin_query *q, const char *key);
	void *priv;
};

/* Returns a new reference, or NULL with *ret_status (HTTP) and *ret_text
 * set. */
typedef json_t *(*daemon_admin_json_fn)(void *arg,
					const struct daemon_admin_query *q,
					unsigned int *ret_status,
					const char **ret_text);

struct daemon_admin_page {
	const char *path; /* "/api/nodes"; NULL ends the table */
	daemon_admin_json_fn fn;
	/* "prefix, limit": accepted query parameters; NULL: none. Any other, or
	 * a value with a NUL in it, is answered with 400. */
	const char *params;
	daemon_admin_json_fn post; /* NULL: read-only */
	const char *post_params; /* as params, for POST */
	bool post_insecure; /* with opts.insecure: POST is accepted from any
			       host */
	/* The page shows names, even in directories that the local user may not
	 * list: on loopback it is served only to users who may POST. */
	bool names;
	bool admin; /* with TLS, GET is for admins only, too */
};

/* A file that is served as it is. */
struct daemon_admin_file {
	const char *path; /* "/app.js"; NULL ends the table */
	const char *type; /* Content-Type */
	const unsigned char *data;
	size_t len;
};

struct daemon_admin_opts {
	uv_loop_t *loop;
	struct pool_hostport listen; /* port 0: any */
	int listen_fd; /* > 0: a socket that listens already; taken over, also
			  if open fails */
	struct pool_metrics *metrics; /* borrows; outlives the admin */
	const struct daemon_admin_page *pages; /* borrows */
	/* Borrows; NULL: none. "/api" shows the list of pages, and so does "/"
	 * unless it is one of the files. */
	const struct daemon_admin_file *files;
	const char *files_at; /* "/pool": before the files' paths; NULL: "" */
	void *arg;
	bool (*ready)(void *arg); /* /readyz: 200 or 503 */
	bool insecure; /* --insecure */
	/* Local users who may POST, and see names. Borrows; NULL: all. */
	struct pool_trust *trust;
	struct pool_tls *tls; /* borrows; NULL: plain HTTP */
	uint64_t exchange_ms; /* 0: ADMIN_HTTP_EXCHANGE_MS */
	uint64_t shake_ms; /* 0: ADMIN_TLS_SHAKE_MS */
	const char *names; /* --admin-name: more host names; borrows, or NULL */
	/* The text of a 503 of /readyz, without a newline; NULL: "not
	 * ready". */
	const char *(*why_not)(void *arg);
};

/* 0 or -errno, logged with the address. */
int daemon_admin_open(const struct daemon_admin_opts *opts,
		      struct daemon_admin **ret_admin);
/* Also serves on the Unix socket in run_dir, which must exist. Call it only
 * when no other process uses the TCP address any more. A failure is logged; TCP
 * is served regardless. */
void daemon_admin_open_local(struct daemon_admin *a, const char *run_dir);
/* The listening socket; borrowed. */
int daemon_admin_fd(const struct daemon_admin *a);
/* The TCP port in use, in host byte order. */
uint16_t daemon_admin_port(const struct daemon_admin *a);
/* Closes it; closed(arg) runs later, on the loop. */
void daemon_admin_close(struct daemon_admin *a, void (*closed)(void *arg),
			void *arg);

#endif
