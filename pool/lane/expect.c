/* Expectations of a mover: found by request number, each ended once. */
#include "pool/lane/mover.h"
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/lane/link.h"
#include "pool/lane/mover_priv.h"
#include "pool/conn/unpack.h"

uint32_t expect_hash(uint64_t req)
{
	return (uint32_t)(req * 0x9e3779b97f4a7c15ull >> 32);
}

struct pool_expect *expect_find(struct pool_mover *m, uint64_t req)
{
	struct pool_hash_node *n;

	for (n = pool_hash_first(&m->expected, expect_hash(req)); n;
	     n = pool_hash_next(n)) {
		struct pool_expect *x =
			pool_container_of(n, struct pool_expect, node);

		if (x->req == req)
			return x;
	}
	return NULL;
}

static void expect_done_home(struct pool_mail *mail)
{
	struct pool_expect *x =
		pool_container_of(mail, struct pool_expect, mail);

	pool_landing_fini(&x->landing);
	x->done(x);
}

void expect_landed(struct pool_landing *l)
{
	struct pool_expect *x =
		pool_container_of(l, struct pool_expect, landing);

	pool_mailbox_post(x->mover->home, &x->mail, expect_done_home);
}

/* Removes x from all tables; done follows when no write is in flight. */
static void expect_finish(struct pool_expect *x, int status)
{
	pool_list_del(&x->link);
	pool_hash_remove(&x->mover->expected, &x->node);
	if (x->lane->cur == x) {
		x->lane->cur = NULL;
		if (status && x->lane->conn)
			pool_conn_bulk_drop(x->lane->conn);
	}
	expect_map_end(x);
	pool_landing_stop(&x->landing, status);
}

void expect_drained(struct pool_expect *x)
{
	expect_finish(x, x->draining);
}

void expect_end(struct pool_expect *x, int status)
{
	if (pool_list_empty(&x->link))
		return; /* has ended; done will be called */
	if (x->draining && x->lane->conn)
		return; /* expect_drained ends it */
	if (status && !x->draining && expect_drain(x))
		x->draining = status;
	else
		expect_finish(x, x->draining ? x->draining : status);
}

static void lane_up_home(struct pool_mail *mail)
{
	struct pool_lane *lane =
		pool_container_of(mail, struct pool_lane, up_mail);

	lane->on_up(lane);
}

void lane_settled(struct pool_lane *lane)
{
	pool_mailbox_post(lane->mover->home, &lane->up_mail, lane_up_home);
}
