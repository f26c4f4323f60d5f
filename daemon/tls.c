#include "daemon/tls.h"

#include <errno.h>

#include "pool/base/log.h"

#define CHECK_MS 5000 /* between looks at the files */
#define SOON_S (14 * 86400) /* warn when so little time is left */

static void warn_expiry(struct daemon_tls *t)
{
	int64_t left = pool_tls_expires_s(t->tls);

	if (left > SOON_S) {
		t->warned = false;
		return;
	}
	if (t->warned)
		return;
	t->warned = true;
	if (left <= 0)
		pool_error("%s/" POOL_TLS_CERT " has expired: no peer accepts "
			   "this process. `kvpool certs renew` makes a new "
			   "one; no restart is needed", t->dir);
	else
		pool_warn("%s/" POOL_TLS_CERT " expires in %lld days; `kvpool "
			  "certs renew` makes a new one", t->dir,
			  (long long)(left / 86400));
}

void daemon_tls_check(struct daemon_tls *t)
{
	char why[POOL_TLS_WHY];

	if (!t->tls)
		return;
	if (pool_tls_is_outdated(t->tls)) {
		if (pool_tls_reload(t->tls, why))
			pool_error("TLS: the earlier certificate stays in use: "
				   "%s", why);
		else
			pool_info("TLS: new certificates from %s", t->dir);
	}
	warn_expiry(t);
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
	t->dir = dir;
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
	warn_expiry(t);
	err = pool_tls_metrics(t->tls, metrics);
	if (err)
		return err;
	uv_timer_init(loop, &t->timer);
	t->timer.data = t;
	uv_unref((uv_handle_t *)&t->timer);
	return uv_timer_start(&t->timer, on_timer, CHECK_MS, CHECK_MS);
}

void daemon_tls_stop(struct daemon_tls *t)
{
	if (t->tls)
		uv_close((uv_handle_t *)&t->timer, NULL);
}
