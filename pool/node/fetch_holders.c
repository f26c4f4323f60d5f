/* Fetches: the choice of a holder. */
#include "pool/node/fetch.h"

#include <string.h>

bool node_fetch_usable(struct node_fetch *f, unsigned int i)
{
	struct node_member *m = node_member(f->n, f->holders[i]);

	return !f->bad[i] && m && m->known && m->alive &&
	       f->holders[i] != f->n->index;
}

unsigned int node_fetch_usable_count(struct node_fetch *f)
{
	unsigned int i, count = 0;

	for (i = 0; i < f->nholders; i++)
		count += node_fetch_usable(f, i);
	return count;
}

/* Did it stall recently? Then others are preferred. */
static bool is_stalled(struct node_fetch *f, unsigned int i)
{
	uint64_t ms = node_member(f->n, f->holders[i])->stalled_ms;

	return ms && pool_now_ms() - ms < NODE_BACKOFF_MS;
}

int node_fetch_next_holder(struct node_fetch *f)
{
	unsigned int k, i;
	int found = -1;

	for (k = 0; k < f->nholders; k++) {
		i = (f->first + k) % f->nholders;
		if (!node_fetch_usable(f, i) ||
		    (found >= 0 && is_stalled(f, i)))
			continue;
		found = (int)i;
		if (!is_stalled(f, i))
			break;
	}
	if (found >= 0)
		f->first = (uint8_t)((found + !f->alone) % f->nholders);
	return found;
}

bool node_fetch_same_host(const struct pool_node *n,
			  const struct node_member *m)
{
	return m->addr.unix_path[0] && strcmp(m->host_id, n->host_id) == 0;
}

bool node_fetch_any_on_this_host(struct node_fetch *f)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++)
		if (node_fetch_usable(f, i) &&
		    node_fetch_same_host(f->n,
					 node_member(f->n, f->holders[i])))
			return true;
	return false;
}

bool node_fetch_another_runs(struct node_fetch *f, unsigned int holder)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++)
		if (i != holder && node_fetch_usable(f, i) && !is_stalled(f, i))
			return true;
	return false;
}

/* Leaves this node out: it fetches because it has no copy, so a feed entry that
 * names it as a holder is stale. */
void node_fetch_take_holders(struct node_fetch *f)
{
	unsigned int i;

	f->nholders = f->e->nholders;
	f->stale = false;
	for (i = 0; i < f->nholders; i++) {
		f->holders[i] = f->e->holders[i];
		f->bad[i] = f->gave[i] = false;
		f->cuts[i] = 0;
		f->stale = f->stale || f->holders[i] == f->n->index;
	}
	/* Spreads readers of one object over its holders by node index, and one
	 * reader's objects by checksum. */
	f->first = 0;
	if (f->nholders > 1)
		f->first = (uint8_t)((f->n->index + f->sum.low64 % 251) %
				     f->nholders);
}

uint8_t node_fetch_holders_alive(struct node_fetch *f)
{
	uint8_t alive = 0;
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct node_member *m = node_member(f->n, f->holders[i]);

		if (m && m->alive)
			alive++;
	}
	return alive;
}

bool node_fetch_holder_may_rejoin(struct node_fetch *f)
{
	uint64_t now = pool_now_ms();
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct node_member *m = node_member(f->n, f->holders[i]);

		if (m && !m->alive && m->left_ms &&
		    now - m->left_ms < NODE_REJOIN_MS)
			return true;
	}
	return false;
}
