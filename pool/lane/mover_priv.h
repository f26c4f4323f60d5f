/*
 * The inside of a mover: mover.c (thread, dialled lanes), expect.c (ranges
 * requested on them), mover_send.c (adopted lanes), sent.c (ranges sent on
 * them).
 *
 * Thread: the mover's.
 */
#ifndef POOL_LANE_MOVER_PRIV_H
#define POOL_LANE_MOVER_PRIV_H

#include "pool/conn/kvpool.pb-c.h"
#include "pool/lane/mover.h"

struct pool_mover {
	uv_thread_t thread;
	uv_loop_t loop;
	struct pool_mailbox box;   /* calls from the node's loop */
	struct pool_mailbox *home; /* borrows; callbacks to the node's loop */
	uint8_t id[POOL_ID_SIZE];
	struct pool_mover_counters *counters; /* borrows */
	struct pool_trust *trust; /* borrows, or NULL */
	struct pool_tls *tls; /* the same */
	bool foreign_memory;
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
/* Ends x with status: now, or when nothing is in flight (expect_drain). */
void expect_end(struct pool_expect *x, int status);
/* Nothing of x is in flight any more, after expect_drain: ends x. */
void expect_drained(struct pool_expect *x);
/* May lanes end TLS (pool_tls_allow_plain)? */
bool mover_allows_plain(const struct pool_mover *m);
/* The lane is ready for use: calls on_up. */
void lane_settled(struct pool_lane *lane);

/* Ends s with status. */
void mover_sent(struct pool_mover_send *s, int status);
/* Sends s over c; c NULL: the lane is down, s fails. */
void mover_send_by_tcp(struct pool_mover_send *s, struct pool_conn *c);

void mover_adopted_close_all(struct pool_mover *m);

/* ---- expect.c ---- */

uint32_t expect_hash(uint64_t req);
void expect_landed(struct pool_landing *l); /* pool_landing.done */

#endif
