#include "daemon/tls.h"

#include <errno.h>

#include "pool/base/log.h"

void daemon_tls_check(struct daemon_tls *t)
{
	pool_tls_check(t->tls);
}

static void on_timer(uv_timer_t *h)
{
	daemon_tls_check(h->data);
}

int daemon_tls_open(struct daemon_tls *t, const char *dir, enum pool_role role,
		    uv_loop_t *loop, struct pool_metrics *metrics)
{
	char why[POOL_TLS_WHY];
	int err;

	if (!dir)
		return 0;
	err = pool_tls_open(dir, &t->tls, why);
	if (err) {
		pool_error("--tls-dir: %s", why);
		return err;
	}
	if (pool_tls_role(t->tls) != role) {
		pool_error("--tls-dir: %s/" POOL_TLS_CERT " is the certificate "
			   "of a %s; this needs that of a %s: kvpool certs "
			   "issue --role %s", dir,
			   pool_role_name(pool_tls_role(t->tls)),
			   pool_role_name(role), pool_role_name(role));
		return -EINVAL;
	}
	pool_tls_check(t->tls);
	err = pool_tls_metrics(t->tls, metrics);
	if (err)
		return err;
	uv_timer_init(loop, &t->timer);
	t->timer.data = t;
	uv_unref((uv_handle_t *)&t->timer);
	return uv_timer_start(&t->timer, on_timer, POOL_TLS_CHECK_MS,
			      POOL_TLS_CHECK_MS);
}

void daemon_tls_stop(struct daemon_tls *t)
{
	if (t->tls)
		uv_close((uv_handle_t *)&t->timer, NULL);
}
