/* The inside of a mover: pool/mover.c (thread, dialled lanes) and
 * pool/mover_send.c (adopted lanes). Thread: the mover's. */
#ifndef POOL_MOVER_PRIV_H
#define POOL_MOVER_PRIV_H

#include "pool/kvpool.pb-c.h"
#include "pool/mover.h"

struct pool_mover {
	uv_thread_t thread;
	uv_loop_t loop;
	struct pool_mailbox box, *home; /* home: borrows */
	uint8_t id[POOL_ID_SIZE];
	struct pool_mover_counters *counters; /* borrows */
	struct pool_chunks chunks;
	struct pool_hash expected; /* struct pool_expect by req */
	struct pool_list lanes;	   /* dialled: struct pool_lane */
	struct pool_list adopted;  /* struct adopted, newest first */
	unsigned int nadopted;
	bool stopping;
	struct pool_mail stop_mail;
};

/* Lane numbers and ids, said at the start of every connection. */
int mover_send_hello(struct pool_mover *m, struct pool_conn *c, uint32_t lane);
void mover_adopted_close_all(struct pool_mover *m);

#endif
