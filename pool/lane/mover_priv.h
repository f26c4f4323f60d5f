/* The inside of a mover: mover.c (thread, dialled lanes) and
 * mover_send.c (adopted lanes). Thread: the mover's. */
#ifndef POOL_LANE_MOVER_PRIV_H
#define POOL_LANE_MOVER_PRIV_H

#include "pool/conn/kvpool.pb-c.h"
#include "pool/lane/mover.h"

struct pool_mover {
	uv_thread_t thread;
	uv_loop_t loop;
	struct pool_mailbox box, *home; /* home: borrows */
	uint8_t id[POOL_ID_SIZE];
	struct pool_mover_counters *counters; /* borrows */
	struct pool_trust *trust; /* borrows, or NULL */
	struct pool_chunks chunks;
	struct pool_hash expected; /* struct pool_expect by req */
	struct pool_list lanes;	   /* dialled: struct pool_lane */
	struct pool_list adopted;  /* struct adopted, newest first */
	unsigned int nadopted;
	bool stopping;
	struct pool_mail stop_mail;
	struct link_ports *links; /* NULL: TCP only */
};

struct pool_expect *expect_find(struct pool_mover *m, uint64_t req);
/* x is over, with what came or without. */
void expect_end(struct pool_expect *x, int status);
/* x was being left (expect_leave): now it is over. */
void expect_left(struct pool_expect *x);
/* The lane may be used. */
void lane_settled(struct pool_lane *lane);

/* s was sent or not. */
void mover_sent(struct pool_mover_send *s, int status);
/* Over c, NULL if it is gone. */
void mover_send_by_tcp(struct pool_mover_send *s, struct pool_conn *c);

void mover_adopted_close_all(struct pool_mover *m);

/* ---- expect.c ---- */

uint32_t expect_hash(uint64_t req);
void expect_landed(struct pool_landing *l); /* pool_landing.done */

#endif
