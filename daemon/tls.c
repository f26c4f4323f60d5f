#include "daemon/tls.h"

#include <errno.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/tls/tls_kernel.h"

#define DAY_S 86400

static void on_timer(uv_timer_t *h)
{
	pool_tls_check(h->data);
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
	t->timer.data = t->tls;
	uv_unref((uv_handle_t *)&t->timer);
	return uv_timer_start(&t->timer, on_timer, POOL_TLS_CHECK_MS,
			      POOL_TLS_CHECK_MS);
}

int daemon_tls_use_kernel(struct daemon_tls *t, enum daemon_ktls how)
{
	struct tls_kernel_cost cost;
	bool use;
	int err;

	if (!t->tls || how == KTLS_OFF)
		return 0;
	err = tls_kernel_measure(&cost);
	if (err && how == KTLS_ON) {
		pool_error("--ktls on: the kernel cannot encrypt: %s%s",
			   strerror(-err),
			   err == -ENOENT ? " (modprobe tls)" : "");
		return err;
	}
	use = !err && (how == KTLS_ON || cost.kernel < cost.openssl);
	pool_tls_allow_kernel(t->tls, use);
	if (err)
		pool_debug("kTLS: the kernel cannot: %s", strerror(-err));
	else
		pool_info("bulk: encrypted by %s: CPU time for 16 KiB: the "
			  "kernel (kTLS) %.1f us, OpenSSL %.1f us",
			  use ? "the kernel" : "OpenSSL",
			  (double)cost.kernel / 1e3,
			  (double)cost.openssl / 1e3);
	return 0;
}

static const char *const links_names[LINKS_KINDS] = { "tls", "users",
						      "insecure" };

static void log_links(const struct daemon_tls *t)
{
	if (t->links == LINKS_TLS)
		pool_info("links: TLS 1.3; certificate of a %s of cluster %s, "
			  "for %lld more days",
			  pool_role_name(pool_tls_role(t->tls)),
			  pool_tls_cluster(t->tls),
			  (long long)(pool_tls_expires_s(t->tls) / DAY_S));
	else if (t->links == LINKS_USERS)
		pool_info("links: on loopback, for trusted local users "
			  "(--tls-dir allows other addresses)");
	else
		pool_warn("links: not protected (--insecure): anyone who "
			  "reaches the ports can read and change the pool");
}

int daemon_links_show(struct daemon_tls *t, bool insecure,
		      struct pool_metrics *metrics)
{
	/* The registry borrows them. */
	static const char *const labels[LINKS_KINDS] = { "how=\"tls\"",
							 "how=\"users\"",
							 "how=\"insecure\"" };
	int err = 0;

	t->links = t->tls ? LINKS_TLS : insecure ? LINKS_INSECURE : LINKS_USERS;
	log_links(t);
	for (unsigned int i = 0; i < LINKS_KINDS && !err; i++) {
		pool_gauge_set(&t->links_are[i], i == t->links);
		err = pool_metrics_gauge(
			metrics, &t->links_are[i], "kvpool_links_protected",
			labels[i],
			"1: how links are protected: by tls, by the check of "
			"local users, or not at all (insecure).");
	}
	return err;
}

json_t *daemon_links_json(const struct daemon_tls *t)
{
	if (t->links != LINKS_TLS)
		return json_pack("{s:s}", "protected", links_names[t->links]);
	return json_pack("{s:s, s:s, s:s, s:I}", "protected", "tls", "cluster",
			 pool_tls_cluster(t->tls), "role",
			 pool_role_name(pool_tls_role(t->tls)), "expires_days",
			 (json_int_t)(pool_tls_expires_s(t->tls) / DAY_S));
}

void daemon_tls_stop(struct daemon_tls *t)
{
	if (t->tls)
		uv_close((uv_handle_t *)&t->timer, NULL);
}
