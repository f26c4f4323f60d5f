/* The node's invariants, for tests: names, local files and the lists they are
 * on. */
#include "pool/node/ops.h"

#include <assert.h>

static void check_own(const struct node_entry *e)
{
	const struct node_object *o = e->own;

	assert(o->entry == e && o->refs > 0 && o->w && o->w->obj == o);
	assert(o->state == NODE_WRITING || o->state == NODE_SEALING ||
	       o->state == NODE_PENDING);
	assert(!pool_evict_inserted(&o->ev) && o->lent_fd < 0);
	assert(o->state == node_state_in(o->w->phase));
	assert(o->gen == 0 && !pool_list_empty(&o->w->link));
	assert(!o->w->op || o->w->op->obj == o);
	assert(node_is_candidate(o) == !pool_list_empty(&o->w->candidate));
}

static void check_obj(const struct pool_node *n, const struct node_entry *e)
{
	const struct node_object *o = e->obj;

	assert(o->state == NODE_HELD && o->entry == e && o->refs > 0);
	assert(o->gen != 0);
	assert(pool_evict_inserted(&o->ev));
	/* On a client it has a writer part until a store has a copy. */
	assert(!o->w || n->opts.store_size == 0);
	assert(!o->counted || o->lent_fd < 0);
}

static void check_entry(struct pool_node *n, struct node_entry *e)
{
	assert(e->nholders <= NODE_HOLDERS_INLINE);
	if (e->own)
		check_own(e);
	if (e->obj)
		check_obj(n, e);
}

static void check_quota(struct pool_node *n)
{
	struct pool_quota q;
	struct pool_entry *pe;

	pool_quota_init(&q);
	for (pe = &n->tree.root->e; pe; pe = pool_tree_next(&n->tree, pe)) {
		const struct node_entry *e = node_file(pe);
		const struct node_dirent *d = node_dir(pe);
		const struct node_writer *w = e && e->own ? e->own->w : NULL;

		if (d && !d->gone)
			pool_quota_add(&q, d->attr.uid, pe->parent != NULL,
				       pool_xattrs_size(d->xattrs));
		if (e)
			pool_quota_add(&q, e->attr.uid, 0,
				       pool_xattrs_size(e->xattrs));
		if (w)
			pool_quota_add(&q, w->attr.uid, 0,
				       pool_xattrs_size(w->xattrs));
	}
	assert(pool_quota_equal(&q, &n->quota));
	pool_quota_fini(&q);
}

static void check_tick(const struct pool_node *n)
{
	if (uv_timer_get_repeat(&n->tick) == NODE_TICK_IDLE_MS &&
	    uv_is_active((const uv_handle_t *)&n->tick))
		assert(!node_has_work(n));
}

void node_check_files(struct pool_node *n)
{
	struct pool_entry *e;
	unsigned int nsealed = 0, nsealing = 0, nsmall = 0;
	const struct pool_list *it;

	assert(n->caller == NODE_NO_CALLER);
	if (n->closing || n->changing)
		return;
	for (e = &n->tree.root->e; e; e = pool_tree_next(&n->tree, e))
		if (node_file(e))
			check_entry(n, node_file(e));
	for (it = n->sealing.next; it != &n->sealing; it = it->next) {
		const struct node_writer *w = pool_container_of(
			it, const struct node_writer, link);

		nsealed += w->phase == WRITER_SEALED;
		/* ENDED: dropped while it is sealed */
		nsealing += w->phase == WRITER_SEALING ||
			    w->phase == WRITER_ENDED;
	}
	for (it = n->small_seals.next; it != &n->small_seals; it = it->next)
		nsmall++;
	for (it = n->candidates.next; it != &n->candidates; it = it->next)
		assert(node_is_candidate(pool_container_of(
			it, const struct node_writer, candidate)->obj));
	assert(nsealed == n->nsealed && nsmall == n->nsmall_seals);
	assert(nsealing == nsmall + n->nworker_seals + (n->sliced != NULL));
	assert(n->nfetches > 0 || n->whole_bytes == 0);
	assert(n->nkept_fds <= NODE_KEPT_FDS);
	assert(n->opts.fds_max == 0 || n->nfds <= n->opts.fds_max);
	assert(n->ndoubted <= NODE_DOUBTS_MAX && n->nheats <= NODE_HEATS_MAX);
	assert(node_ops_in_order(n));
	check_tick(n);
}

void node_check(struct pool_node *n)
{
	node_check_files(n);
	if (!n->closing && !n->changing)
		check_quota(n);
}
