/*
 * libmicrohttpd on the program's loop. Clients may be hostile: the number of
 * connections is limited, in total and per address, and so is the duration of
 * one exchange, whatever the client does. A turn of the loop starts no further
 * answer after 5 ms; the other requests wait, in the order of their arrival.
 *
 * Thread: the loop's.
 */
#ifndef DAEMON_ADMIN_HTTP_H
#define DAEMON_ADMIN_HTTP_H

#include <microhttpd.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/conn/trust.h"

/* Open connections; further ones wait in the listen backlog. */
#define ADMIN_HTTP_CONNECTIONS_MAX 64
/* Open connections per address; further ones are closed. Loopback is one
 * address, but the limit does not apply to local users whom the daemon
 * trusts. */
#define ADMIN_HTTP_ADDRESS_MAX 32
/* Most time from a connection's start, or from the end of its last answer, to
 * the end of the next answer; then the connection is closed. An idle one is
 * closed earlier (IDLE_S). */
#define ADMIN_HTTP_EXCHANGE_MS 30000

struct admin_http;

struct admin_http_opts {
	uv_loop_t *loop;
	int listen_fd; /* taken over; -1: none, only admin_http_add */
	uint64_t exchange_ms; /* 0: ADMIN_HTTP_EXCHANGE_MS */
	/* Strangers may connect: they get at most an eighth of the loop's time
	 * together, however many requests they send. */
	bool paced;
	const struct pool_trust *trust; /* borrows; NULL: no local user */
	/* Once per complete request; its body has been ignored. */
	enum MHD_Result (*answer)(void *arg, struct MHD_Connection *conn,
				  const char *path, const char *method);
	void *arg; /* of answer */
	/* Borrowed. Connections closed because of ADMIN_HTTP_ADDRESS_MAX, and
	 * because of exchange_ms; requests that waited for another turn;
	 * requests refused because two readers may understand them
	 * differently. */
	struct pool_counter *crowded, *slow, *waited, *refused;
};

/* 0 or -errno; on an error listen_fd is closed. */
int admin_http_open(const struct admin_http_opts *opts,
		    struct admin_http **ret_http);
/* opts.paced: how long to rest after working that long for strangers. */
uint64_t admin_http_rest_ms(uint64_t worked_ns);
/* Serves an accepted connection, to which only the total limit applies. Takes
 * over fd, also on an error. */
void admin_http_add(struct admin_http *h, int fd, const struct sockaddr *from,
		    socklen_t len);
/* Closes the connections at once; closed(arg) runs later, on the loop. h NULL:
 * closed runs at once. */
void admin_http_close(struct admin_http *h, void (*closed)(void *arg),
		      void *arg);

#endif
