/*
 * Which master to dial next, and when: one of a list, in turn, or the one that
 * a standby or etcd has named. No I/O: the session's owner (node_link) does
 * what this says and tells how it went.
 *
 * One master alone is tried again after a delay that doubles. Of several, the
 * next one is tried at once, and there is a short delay only after each round;
 * each gets less time, as a machine that is gone does not even refuse, and one
 * that has just failed is left out while there are others.
 *
 * Thread: any, its owner's.
 */
#ifndef POOL_CONN_DIAL_H
#define POOL_CONN_DIAL_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/parse.h"

#define POOL_DIAL_MIN_MS 50
#define POOL_DIAL_ALONE_MAX_MS 250 /* it is to know all 2 s after its start */
#define POOL_DIAL_ROUND_MAX_MS 200
#define POOL_DIAL_CONNECT_MS 500 /* of several: to connect */
#define POOL_DIAL_JOIN_MS 1000	 /* of several: to be welcomed; doubles */
#define POOL_DIAL_JOIN_MAX_MS 8000
#define POOL_DIAL_FAILED_MS 2000 /* so long it is left out, whoever names it */

struct pool_dial {
	struct pool_hostports list;
	struct pool_hostport at;     /* dialled last; host "": none was */
	struct pool_hostport named;  /* host "": nobody was */
	struct pool_hostport failed; /* host "": none did */
	bool others;		     /* somebody was named who is not listed */
	unsigned int next, tried;    /* of the list; in this round */
	uint64_t failed_ms, due_ms, delay_ms;
	struct pool_hostport slow;   /* gets join_ms; host "": nobody */
	unsigned int join_ms;
};

void pool_dial_init(struct pool_dial *d, const struct pool_hostports *list);
/* Whom to dial now, which is then d->at; false: not yet, or nobody is known. */
bool pool_dial_next(struct pool_dial *d, uint64_t now_ms);
/* It could not be reached, said nothing in time, refused, or was lost. */
void pool_dial_failed(struct pool_dial *d, uint64_t now_ms);
/* It is a standby; leader is "HOST:PORT", or empty or nonsense: not known. */
void pool_dial_standby(struct pool_dial *d, const char *leader,
		       uint64_t now_ms);
/* Somebody who should know says that the master is there: it is next. Is it
 * another one than that dialled last? */
bool pool_dial_named(struct pool_dial *d, const struct pool_hostport *at,
		     uint64_t now_ms);
/* It did not welcome us in time: it gets more the next time. */
void pool_dial_slow(struct pool_dial *d);
void pool_dial_joined(struct pool_dial *d);

/* Time to connect, and to be welcomed after that; 0: the usual, no limit. */
unsigned int pool_dial_connect_ms(const struct pool_dial *d);
unsigned int pool_dial_join_ms(const struct pool_dial *d);

#endif
