/*
 * Helpers of the node's loop that files of all levels use: a kick (one pass
 * over everything that waits), a walk's next name, a new deadline for a
 * barrier, the end of a claim. The callbacks of a kick and of a slice are in
 * higher files (node.c, walk.c), so the node has pointers to them.
 */
#include "pool/node/node_priv.h"

#include <assert.h>

void node_kick(struct pool_node *n)
{
	if (n->kicked)
		return;
	n->kicked = true;
	uv_idle_start(&n->kick, n->on_kick);
	node_not_idle(n);
}

void node_tick_every(struct pool_node *n, unsigned int ms)
{
	uv_timer_set_repeat(&n->tick, ms);
	uv_timer_again(&n->tick);
}

bool node_has_work(const struct pool_node *n)
{
	return n->nops > 0 || n->ndoubted > 0 ||
	       !pool_list_empty(&n->writers) || !pool_list_empty(&n->claims) ||
	       !pool_list_empty(&n->barriers) ||
	       !pool_list_empty(&n->rewrites) || !pool_list_empty(&n->fetches);
}

void node_not_idle(struct pool_node *n)
{
	if (uv_timer_get_repeat(&n->tick) > NODE_TICK_MS &&
	    uv_is_active((uv_handle_t *)&n->tick))
		node_tick_every(n, NODE_TICK_MS);
}

void node_handle_closed(struct pool_node *n)
{
	assert(n->handles > 0);
	if (--n->handles == 0)
		n->on_handles_closed(n);
}

void node_walks_start(struct pool_node *n)
{
	if (!n->closing && n->loop)
		uv_idle_start(&n->slices, n->on_slices);
}

struct pool_entry *node_walk_step(struct pool_node *n,
				  struct pool_tree_walk *w, bool *ret_leaving)
{
	if (n->walked >= NODE_SLICE) {
		node_walks_start(n);
		return NULL;
	}
	if (!w->at)
		return NULL;
	if (!n->walked++)
		node_walks_start(n);
	pool_count(&n->c.walked);
	return pool_tree_walk_step(w, ret_leaving);
}

void node_barrier_begin_time(struct pool_node *n, struct node_barrier *b)
{
	b->deadline_ms = pool_now_ms() + 5ull * n->opts.deadline_ms;
}

void node_barriers_progress(struct pool_node *n, uint64_t ticket)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->barriers) {
		struct node_barrier *b =
			pool_list_entry(it, struct node_barrier, link);

		if (b->patient && ticket <= b->ticket)
			node_barrier_begin_time(n, b);
	}
}

void pool_node_claim_cancel(struct pool_node *n, struct node_claim *c)
{
	(void)n;
	pool_list_del(&c->link);
}

void pool_node_claim_end(struct pool_node *n, uint64_t bytes)
{
	n->claimed -= bytes < n->claimed ? bytes : n->claimed;
	node_kick(n);
}
