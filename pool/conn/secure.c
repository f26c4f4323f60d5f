/* TLS on a connection: the handshake, and reads and writes afterwards. */
#include <errno.h>

#include "pool/base/log.h"
#include "pool/conn/conn_priv.h"

bool conn_is_secure(const struct pool_conn *c)
{
	return c->tls && !c->is_unix;
}

int conn_shake_start(struct pool_conn *c)
{
	const struct pool_tls_want want = {
		.dialled = c->dialled,
		.roles = c->tls_roles,
		.host = c->tls_host,
		.bulk = c->tls_bulk,
	};
	int err = pool_tls_start(c->tls, c->fd, &want, &c->stream);

	c->shaking = !err;
	return err;
}

int conn_shake(struct pool_conn *c)
{
	int err = pool_tls_shake(c->stream);

	if (err == -EKEYREJECTED && pool_tls_is_news(c->tls, c->stream))
		pool_warn_paced("%s: TLS: not accepted: %s", c->name,
				  pool_tls_why(c->stream));
	if (err != -EAGAIN)
		pool_tls_count(c->tls, c->stream, err);
	return err;
}

/* The reason may be an alert: the peer does not accept our certificate. */
static void log_broken(const struct pool_conn *c, ssize_t r)
{
	if (r == -EPROTO)
		pool_warn_limited("%s: TLS: %s", c->name,
				  pool_tls_why(c->stream));
}

ssize_t conn_secure_read(struct pool_conn *c, void *to, size_t cap)
{
	ssize_t r = pool_tls_read(c->stream, to, cap);

	log_broken(c, r);
	if (pool_tls_unsent(c->stream))
		c->write_more = true;
	return r;
}

ssize_t conn_secure_write(struct pool_conn *c, const struct iovec *iov, int n)
{
	ssize_t r = pool_tls_write(c->stream, iov, n);

	log_broken(c, r);
	return r;
}
