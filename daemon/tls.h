/*
 * The certificates of a daemon (--tls-dir): read at its start, and again when
 * their files have changed or SIGHUP arrives.
 *
 * Thread: the loop's.
 */
#ifndef DAEMON_TLS_H
#define DAEMON_TLS_H

#include <uv.h>

#include "pool/base/metric.h"
#include "pool/tls/tls.h"

struct daemon_tls {
	struct pool_tls *tls; /* owns; NULL: no --tls-dir */
	uv_timer_t timer;
};

/* t is zeroed. dir NULL: t->tls stays NULL, and the other functions are no-ops.
 * role: the role that the certificate must have. 0 or -errno, logged. */
int daemon_tls_open(struct daemon_tls *t, const char *dir, enum pool_role role,
		    uv_loop_t *loop, struct pool_metrics *metrics);
/* pool_tls_check. */
void daemon_tls_check(struct daemon_tls *t);
/* Stops the timer. Must be called before the loop ends. */
void daemon_tls_stop(struct daemon_tls *t);

#endif
