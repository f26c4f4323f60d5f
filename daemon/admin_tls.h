/*
 * TLS in front of the admin pages (--tls-dir): accepts the connections of the
 * admin port, and copies the bytes of each peer that shows a certificate of the
 * pool, whatever its role, to the HTTP server and back, through a socket pair.
 *
 *   peer <- TCP, TLS -> admin_tls <- socket pair -> HTTP server
 *
 * Peers may be hostile: connections are limited in total and per address
 * (admin_http.h), a handshake in its duration, and all handshakes together get
 * at most an eighth of the loop's time. Each direction has one buffer; while it
 * is full, no more is read.
 *
 * Thread: the loop's.
 */
#ifndef DAEMON_ADMIN_TLS_H
#define DAEMON_ADMIN_TLS_H

#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/conn/trust.h"
#include "pool/tls/tls.h"

/* Most time from a connection's start to the end of its handshake. */
#define ADMIN_TLS_SHAKE_MS 5000
/* Most time for the rest of an answer after the HTTP server has closed its
 * end. */
#define ADMIN_TLS_DRAIN_MS 5000

struct admin_tls;

struct admin_tls_opts {
	uv_loop_t *loop;
	struct pool_tls *tls; /* borrows */
	int listen_fd; /* taken over, also on an error */
	/* Borrows; NULL: none. Local users to whom the limit per address does
	 * not apply. */
	const struct pool_trust *trust;
	/* A peer's handshake is over: fd is the HTTP server's end, which takes
	 * it over; from: the peer's address. */
	void (*handed)(void *arg, int fd, const struct sockaddr *from,
		       socklen_t len);
	void *arg; /* of handed */
	uint64_t shake_ms; /* 0: ADMIN_TLS_SHAKE_MS */
	/* Borrow; connections closed: too many from one address, and handshakes
	 * that took too long. */
	struct pool_counter *crowded, *slow;
};

struct admin_tls_peer {
	int fd; /* its TCP connection */
	const struct pool_tls_id *id;
};

/* 0 or -errno. */
int admin_tls_open(const struct admin_tls_opts *opts,
		   struct admin_tls **ret_tls);
/* The peer whose bytes come through fd, a descriptor that `handed` was called
 * with and that is still open. Borrowed until the loop's next turn. NULL: the
 * peer is not known; refuse it. */
const struct admin_tls_peer *admin_tls_peer(const struct admin_tls *t, int fd);
/* Closes the connections at once; closed(arg) runs later, on the loop. t NULL:
 * closed runs at once. */
void admin_tls_close(struct admin_tls *t, void (*closed)(void *arg), void *arg);

#endif
