/*
 * The admin address: /healthz, /readyz, /metrics and read-only JSON pages over
 * HTTP (libmicrohttpd, external epoll, so that it runs on the loop thread and
 * handlers may look at any state without a lock).
 *
 * GET and HEAD; POST of the pages that have it, and then only from loopback (403)
 * and without a body that matters: arguments are in the query. A page that is not
 * there is 404, another method 405.
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
	daemon_admin_json_fn post; /* NULL: 405 */
};

struct daemon_admin_opts {
	uv_loop_t *loop;
	struct pool_hostport listen; /* port 0: any */
	struct pool_metrics *metrics;
	const struct daemon_admin_page *pages; /* borrows */
	void *arg;
	bool (*ready)(void *arg); /* /readyz: 200 or 503 */
};

/* 0 or -errno, logged with the address. */
int daemon_admin_open(const struct daemon_admin_opts *opts,
		      struct daemon_admin **ret_admin);
uint16_t daemon_admin_port(const struct daemon_admin *a);
void daemon_admin_close(struct daemon_admin *a, void (*closed)(void *arg),
			void *arg);

#endif
