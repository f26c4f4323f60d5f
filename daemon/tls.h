/*
 * How a daemon's connections are protected: its certificates (--tls-dir), which
 * are read at its start, and again when their files have changed or SIGHUP
 * arrives; or else the check of local users, or nothing (--insecure).
 *
 * Thread: the loop's.
 */
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include <jansson.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/tls/tls.h"

/* Does the kernel encrypt the bytes of objects that this process sends? In the
 * order of --ktls. AUTO: if it costs less than OpenSSL. */
enum daemon_ktls { KTLS_AUTO, KTLS_ON, KTLS_OFF };

enum daemon_links { LINKS_TLS, LINKS_USERS, LINKS_INSECURE, LINKS_KINDS };

struct daemon_tls {
	struct pool_tls *tls; /* owns; NULL: no --tls-dir */
	uv_timer_t timer;
	enum daemon_links links;
	struct pool_gauge links_are[LINKS_KINDS]; /* 1: it is this kind */
};

/* t is zeroed. dir NULL: t->tls stays NULL, and the other functions are no-ops.
 * role: the role that the certificate must have. 0 or -errno, logged. */
int daemon_tls_open(struct daemon_tls *t, const char *dir, enum pool_role role,
		    uv_loop_t *loop, struct pool_metrics *metrics);
/* After open, before the first stream: decides it, for which it measures both,
 * and logs the decision. 0; with KTLS_ON, -errno if the kernel cannot, logged.
 */
int daemon_tls_use_kernel(struct daemon_tls *t, enum daemon_ktls how);
/* After open: logs how connections are protected, and adds the metric. 0 or
 * -ENOMEM. */
int daemon_links_show(struct daemon_tls *t, bool insecure,
		      struct pool_metrics *metrics);
/* The same for status pages: {"protected": "tls", "cluster": "prod", "role":
 * "node", "expires_days": 89}, all but the first only with TLS; "protected" may
 * also be "users" or "insecure". A new reference; NULL: ENOMEM. */
json_t *daemon_links_json(const struct daemon_tls *t);
/* Stops the timer. Must be called before the loop ends. */
void daemon_tls_stop(struct daemon_tls *t);

#endif
