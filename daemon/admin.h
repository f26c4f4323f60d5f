/*
 * The admin address: /healthz, /readyz, /metrics and JSON pages over HTTP
 * (libmicrohttpd, external epoll, so that it runs on the loop thread and
 * handlers may look at any state without a lock).
 *
 * GET and HEAD change nothing. POST does, on the pages that have it: only from
 * this machine (403 for others; some pages allow them under --insecure), there
 * only from a user who is trusted, and not from a browser's page of another
 * origin. What names a host that is not this one is 403 (daemon/admin_guard.h). A
 * page that is not there is 404, another method 405. Bodies are read past.
 *
 * The same is served on a Unix socket (daemon/admin_socket.h), to this process's
 * user and root, of whom neither Host nor address is asked.
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

/* Returns a new reference, or NULL with *ret_status (HTTP) and *ret_text set. */
typedef json_t *(*daemon_admin_json_fn)(void *arg,
					const struct daemon_admin_query *q,
					unsigned int *ret_status,
					const char **ret_text);

struct daemon_admin_page {
	const char *path; /* "/api/nodes"; NULL ends the table */
	daemon_admin_json_fn fn;
	/* "prefix, limit": parameters it knows, NULL: none. Another, or a value
	 * with a NUL in it, is answered with 400. */
	const char *params;
	daemon_admin_json_fn post; /* NULL: read-only */
	const char *post_params; /* as params, of post */
	bool post_insecure; /* from anywhere, if opts.insecure */
};

struct daemon_admin_opts {
	uv_loop_t *loop;
	struct pool_hostport listen; /* port 0: any */
	int listen_fd; /* > 0: listens there already (ours, also after an
			  error) */
	struct pool_metrics *metrics; /* outlives it */
	const struct daemon_admin_page *pages; /* borrows */
	void *arg;
	bool (*ready)(void *arg); /* /readyz: 200 or 503 */
	bool insecure; /* --insecure */
	/* Of local users, who may POST. Borrows; NULL: everybody. */
	struct pool_trust *trust;
	uint64_t exchange_ms; /* 0: ADMIN_HTTP_EXCHANGE_MS */
	const char *names; /* --admin-name: further hosts; borrows, or NULL */
	/* What a 503 of /readyz says, without a newline; NULL: "not ready". */
	const char *(*why_not)(void *arg);
};

/* 0 or -errno, logged with the address. */
int daemon_admin_open(const struct daemon_admin_opts *opts,
		      struct daemon_admin **ret_admin);
/* The Unix socket in run_dir, which must be there, too: once the address is this
 * process's alone. A failure is logged; TCP is served all the same. */
void daemon_admin_open_local(struct daemon_admin *a, const char *run_dir);
/* The listening socket; borrowed. */
int daemon_admin_fd(const struct daemon_admin *a);
uint16_t daemon_admin_port(const struct daemon_admin *a);
void daemon_admin_close(struct daemon_admin *a, void (*closed)(void *arg),
			void *arg);

#endif
