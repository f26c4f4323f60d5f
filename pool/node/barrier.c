/*
 * Barriers: what an fsync of a directory waits for.
 *
 * Every change gets a ticket from one counter; publications get theirs when
 * their sealing starts (they sit in node->sealing, by ticket, until they are
 * acknowledged). A barrier is a ticket: it has passed phase 1 when nothing with
 * a lower or equal ticket is left, and phase 2 when the master says (SYNCED)
 * that all mounts have been told. A cut takes it back to phase 1. A patient one
 * ends in vain only if nothing of what it waits for is done for as long as
 * others wait at all.
 */
#include "pool/node/node_priv.h"

#include <errno.h>

enum { PHASE_OPS, PHASE_SYNC };

/* They are nearly by ticket: as long as there is one, it is among the first. */
static bool is_pending(struct pool_node *n, uint64_t ticket)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->pending)
		if (pool_list_entry(it, struct node_writer, link)->ticket <=
		    ticket)
			return true;
	return false;
}

static bool is_left(struct pool_node *n, uint64_t ticket)
{
	return (!pool_list_empty(&n->sealing) &&
		pool_list_first(&n->sealing, struct node_writer, link)
				->ticket <= ticket) ||
	       is_pending(n, ticket) || node_ops_oldest(n) <= ticket;
}

static void barrier_end(struct node_barrier *b, int status)
{
	pool_list_del(&b->link);
	b->cb(b, status);
}

static void barrier_sync(struct pool_node *n, struct node_barrier *b)
{
	Kvpool__Sync sync = KVPOOL__SYNC__INIT;

	sync.seq = n->op_seq;
	if (node_link_send(n, POOL_MSG_SYNC, b->ticket, &sync.base) == 0)
		b->phase = PHASE_SYNC;
}

/* Longer than a master takes to be started again, or another one to be found:
 * the kernel holds the lock of the directory all the while. */
static bool masterless(const struct pool_node *n, uint64_t now)
{
	return n->cut_off_ms && now - n->cut_off_ms >= n->opts.deadline_ms;
}

void node_barriers_check(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t now = pool_now_ms();
	bool hopeless = masterless(n, now);

	pool_list_each(it, tmp, &n->barriers) {
		struct node_barrier *b =
			pool_list_entry(it, struct node_barrier, link);

		if (b->phase == PHASE_OPS &&
		    !is_left(n, b->ticket) && node_link_up(n))
			barrier_sync(n, b);
		if (hopeless || now >= b->deadline_ms) {
			pool_count(&n->c.barrier_timeouts);
			barrier_end(b, -ETIMEDOUT);
		}
	}
}

void node_barriers_cut_off(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->barriers)
		pool_list_entry(it, struct node_barrier, link)->phase =
			PHASE_OPS;
}

void pool_node_barriers_end(struct pool_node *n)
{
	while (!pool_list_empty(&n->barriers))
		barrier_end(pool_list_first(&n->barriers, struct node_barrier,
					    link), -ECANCELED);
}

void node_synced(struct pool_node *n, uint64_t req)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->barriers) {
		struct node_barrier *b =
			pool_list_entry(it, struct node_barrier, link);

		if (b->phase == PHASE_SYNC && b->ticket == req)
			barrier_end(b, 0);
	}
}

int pool_node_barrier_start(struct pool_node *n, struct node_barrier *b,
			    void (*cb)(struct node_barrier *b, int status))
{
	node_seal_candidates(n);
	b->ticket = ++n->ticket;
	b->phase = PHASE_OPS;
	b->patient = false;
	node_barrier_begin_time(n, b);
	b->cb = cb;
	pool_list_add_tail(&n->barriers, &b->link);
	if (n->untold)
		node_feed_ack(n, n->untold_seq);
	node_kick(n);
	return 0;
}

void pool_node_barrier_patient(struct node_barrier *b)
{
	b->patient = true;
}

int pool_node_lost(struct node_dirent *dir)
{
	int lost = dir->lost;

	dir->lost = 0;
	return lost;
}

void pool_node_barrier_cancel(struct pool_node *n, struct node_barrier *b)
{
	(void)n;
	pool_list_del(&b->link);
}
