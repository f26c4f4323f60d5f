/*
 * Walks over the mirror, together NODE_SLICE names in a turn of the loop: the
 * inventory (session.c), the end of a picture (feed.c), and new eviction
 * classes after a change of rules (victim.c). Each walk has a cursor, which the
 * tree keeps valid while names change between the slices.
 *
 * A walk begins in the turn that starts it, with the rest of that turn's share,
 * so a small tree is done at once.
 */
#include "pool/node/node_priv.h"

static void turn_over(struct pool_node *n)
{
	if ((int64_t)n->walked > pool_gauge_value(&n->c.walked_max))
		pool_gauge_set(&n->c.walked_max, (int64_t)n->walked);
	n->walked = 0;
}

void node_on_slices(uv_idle_t *h)
{
	struct pool_node *n = h->data;
	bool more;

	turn_over(n);
	more = node_inventory_slice(n);
	more |= node_sweep_slice(n);
	more |= node_judge_slice(n);
	/* Runs once more after the last slice, to reset the count. */
	if (!more && !n->walked)
		uv_idle_stop(h);
}

void node_walks_stop(struct pool_node *n)
{
	uv_idle_stop(&n->slices);
	pool_tree_walk_close(&n->inventory);
	pool_tree_walk_close(&n->sweeping);
	pool_tree_walk_close(&n->judging);
}
