/*
 * Which master to dial next, and when: the masters of a list in turn, or the
 * one that a standby or etcd has named. No I/O: the owner, a node's session,
 * dials and reports the outcome.
 *
 * A single master is retried with exponential backoff. Of several, the next one
 * is dialled at once, with a backoff only after each round; a master that has
 * just failed is skipped while there are others. Timeouts are shorter with
 * several masters, because a machine that is down does not refuse a connection:
 * the attempt only times out.
 *
 * Thread: the owner's.
 */
#ifndef POOL_CONN_DIAL_H
#define POOL_CONN_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/parse.h"

#define POOL_DIAL_MIN_MS 50 /* first backoff */
/* Longest backoff with one master: all nodes should have joined within 2 s of
 * its start. */
#define POOL_DIAL_ALONE_MAX_MS 250
#define POOL_DIAL_ROUND_MAX_MS 200 /* longest backoff with several */
#define POOL_DIAL_CONNECT_MS 500 /* several: time to connect */
#define POOL_DIAL_JOIN_MS 1000	 /* several: JOIN to WELCOME; doubles */
#define POOL_DIAL_JOIN_MAX_MS 8000
#define POOL_DIAL_FAILED_MS 2000 /* a failed master is skipped for this time */

struct pool_dial {
	struct pool_hostports list;
	struct pool_hostport at;     /* dialled last; host "": none */
	struct pool_hostport named;  /* dialled next; host "": none */
	struct pool_hostport failed; /* failed last; host "": none */
	bool others;		     /* masters exist that are not listed */
	unsigned int next, tried;    /* next of list; dialled in this round */
	uint64_t failed_ms, due_ms, delay_ms;
	struct pool_hostport slow;   /* join_ms is for it; host "": none */
	unsigned int join_ms;
};

void pool_dial_init(struct pool_dial *d, const struct pool_hostports *list);
/* True: dial d->at now. False: wait, or no master is known. */
bool pool_dial_next(struct pool_dial *d, uint64_t now_ms);
/* d->at was unreachable, timed out, refused, or the session broke. */
void pool_dial_failed(struct pool_dial *d, uint64_t now_ms);
/* d->at is a standby. leader: "HOST:PORT" that it named; ignored if empty or
 * malformed. */
void pool_dial_standby(struct pool_dial *d, const char *leader,
		       uint64_t now_ms);
/* A standby or etcd names the master: dial it next, unless it has just failed.
 * True if it is not the one dialled last. */
bool pool_dial_named(struct pool_dial *d, const struct pool_hostport *at,
		     uint64_t now_ms);
/* d->at did not send WELCOME in time: double its time for the next attempt. */
void pool_dial_slow(struct pool_dial *d);
void pool_dial_joined(struct pool_dial *d);

/* Time to connect (0: the connection's default) and from then to WELCOME (0: no
 * limit). */
unsigned int pool_dial_connect_ms(const struct pool_dial *d);
unsigned int pool_dial_join_ms(const struct pool_dial *d);

#endif
