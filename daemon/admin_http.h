/*
 * ADMIN_HTTP: libmicrohttpd on the program's loop. Whoever connects may be hostile:
 * the number of connections is limited, in all and from one address, and so is the
 * time of one exchange, however it is spent.
 *
 * Thread: the loop's.
 */
#ifndef DAEMON_ADMIN_HTTP_H
#define DAEMON_ADMIN_HTTP_H

#include <microhttpd.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/conn/trust.h"

/* Connections at a time; further ones wait in the listen backlog. */
#define ADMIN_HTTP_CONNECTIONS_MAX 64
/* From one address; further ones are closed. Loopback is one address, but users
 * whom the daemon trusts may have them all. */
#define ADMIN_HTTP_ADDRESS_MAX 32
/* From a connection's begin, or the end of its last answer, to the end of the next
 * one: then it is closed. One that is silent is closed before (IDLE_S). */
#define ADMIN_HTTP_EXCHANGE_MS 30000

struct admin_http;

struct admin_http_opts {
	uv_loop_t *loop;
	int listen_fd; /* its own from here on; -1: only what is given to it */
	uint64_t exchange_ms; /* 0: ADMIN_HTTP_EXCHANGE_MS */
	const struct pool_trust *trust; /* borrows; NULL: no local user */
	MHD_AccessHandlerCallback answer;
	void *arg; /* of answer */
	struct pool_counter *crowded, *slow; /* borrows: connections closed */
};

/* 0 or -errno: then listen_fd is closed, if it was given. */
int admin_http_open(const struct admin_http_opts *opts,
		    struct admin_http **ret_http);
/* An accepted connection, limited in all only. fd is its own, also after an
 * error. */
void admin_http_add(struct admin_http *h, int fd, const struct sockaddr *from,
		    socklen_t len);
/* NULL is allowed: closed runs at once. Connections are closed before it returns. */
void admin_http_close(struct admin_http *h, void (*closed)(void *arg),
		      void *arg);

#endif
