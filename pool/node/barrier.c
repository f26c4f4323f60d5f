/*
 * Barriers: what fsync of a directory waits for.
 *
 * Every change gets a ticket from one counter. A publication gets it when
 * sealing starts, and is in node->sealing or node->pending, in order of
 * tickets, until it is acked. A barrier has a ticket, too, and waits for all
 * lower ones:
 *
 *   BEGUN Until the next turn of the loop, which first seals all files that can
 *   be sealed, then takes the ticket. One pass of seals serves all barriers of
 *   a turn, because many files may be closed but still mapped.
 *   OPS    Until no change with a lower or equal ticket is left.
 *   SYNC Until the master reports (SYNCED) that all mounts have received these
 *   changes. If the connection breaks, back to OPS.
 *
 * The deadline of a patient barrier is restarted whenever a change that it
 * waits for completes.
 */
#include "pool/node/node_priv.h"

#include <errno.h>

enum { PHASE_BEGUN, PHASE_OPS, PHASE_SYNC };

/* The list is nearly in order of tickets, so a lower one is found early. */
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
	if (node_session_send(n, POOL_MSG_SYNC, b->ticket, &sync.base) == 0)
		b->phase = PHASE_SYNC;
}

/* Has there been no master for longer than a restart or a fail-over takes?
 * Then barriers fail at once, because the kernel holds the directory's lock
 * while one waits. */
static bool is_masterless(const struct pool_node *n, uint64_t now)
{
	return n->cut_off_ms && now - n->cut_off_ms >= n->opts.deadline_ms;
}

void node_barriers_check(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t now = pool_now_ms();
	bool masterless = is_masterless(n, now);

	pool_list_each(it, tmp, &n->barriers) {
		struct node_barrier *b =
			pool_list_entry(it, struct node_barrier, link);

		if (b->phase == PHASE_OPS &&
		    !is_left(n, b->ticket) && node_session_up(n))
			barrier_sync(n, b);
		if (b->phase != PHASE_BEGUN &&
		    (masterless || now >= b->deadline_ms)) {
			pool_count(&n->c.barrier_timeouts);
			barrier_end(b, -ETIMEDOUT);
		}
	}
}

void node_barriers_cut_off(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->barriers) {
		struct node_barrier *b =
			pool_list_entry(it, struct node_barrier, link);

		if (b->phase == PHASE_SYNC)
			b->phase = PHASE_OPS;
	}
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

void node_barriers_begin(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	struct node_barrier *b;

	/* The newest barrier is last: if it is past BEGUN, all are. */
	if (pool_list_empty(&n->barriers) ||
	    pool_list_entry(n->barriers.prev, struct node_barrier, link)
			    ->phase != PHASE_BEGUN)
		return;
	node_seal_candidates(n);
	pool_list_each(it, tmp, &n->barriers) {
		b = pool_list_entry(it, struct node_barrier, link);
		if (b->phase == PHASE_BEGUN) {
			b->ticket = ++n->ticket;
			b->phase = PHASE_OPS;
		}
	}
}

int pool_node_barrier_start(struct pool_node *n, struct node_barrier *b,
			    void (*cb)(struct node_barrier *b, int status))
{
	b->ticket = UINT64_MAX;
	b->phase = PHASE_BEGUN;
	b->patient = false;
	node_barrier_begin_time(n, b);
	b->cb = cb;
	pool_list_add_tail(&n->barriers, &b->link);
	if (n->ack_waits)
		node_feed_ack(n, n->ack_seq);
	node_kick(n);
	return 0;
}

void pool_node_barrier_patient(struct node_barrier *b)
{
	b->patient = true;
}

bool pool_node_acked(const struct pool_node *n)
{
	return pool_list_empty(&n->sealing) && pool_list_empty(&n->pending) &&
	       node_ops_oldest(n) == UINT64_MAX;
}

bool pool_node_settled(const struct pool_node *n)
{
	return pool_list_empty(&n->writers) && pool_node_acked(n);
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
