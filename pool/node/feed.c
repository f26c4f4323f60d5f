/*
 * Applies the master's change feed to the mirror, and its DROP orders.
 *
 * A picture of the whole namespace (begin ... complete) is applied by mark and
 * sweep. `sweep` is the mark of the picture being received. Names with another
 * mark at its end no longer exist, and are removed by a walk in slices
 * (walk.c); until then they are shown.
 *
 * Acks and orders (REPLICATE) may be ahead of the feed, which waits until other
 * nodes' changes are durable. What the sweep does with a version that is not in
 * the picture:
 *
 *   an ack or order named it     sweep
 *   after the picture began      keeps it (`ahead`): the feed will bring it
 *   before the picture began     removes it: if it existed, the picture had it
 *     but in the session,        keeps it: with that picture, the master also
 *     before its first picture   sends what was deleted since WELCOME
 *   (outside our namespaces)     keeps it: no picture or feed has it; a DROP
 *                                removes it
 */
#include "pool/node/node_priv.h"
#include "pool/model/root.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- entries ---- */

static void set_holders(struct pool_node *n, struct node_entry *e,
			const Kvpool__Meta *m)
{
	bool stored = false, named = false;
	uint64_t k;
	size_t i;

	e->nholders = 0;
	for (i = 0; i < m->n_holders; i++) {
		struct node_member *who = node_member(n, m->holders[i]);

		if (who && who->is_store)
			stored = true;
		if (m->holders[i] == n->index)
			named = true;
		if (m->holders[i] >= NODE_NODES_MAX)
			continue;
		if (e->nholders < NODE_HOLDERS_INLINE) {
			e->holders[e->nholders++] = (uint16_t)m->holders[i];
			continue;
		}
		/* More holders than fit (a hot object): keeps a random sample,
		 * so that readers spread over all of them. */
		k = pool_random_u64() % (i + 1);
		if (k < NODE_HOLDERS_INLINE)
			e->holders[k] = (uint16_t)m->holders[i];
	}
	e->replicas = m->n_holders > 255 ? 255 : (uint8_t)m->n_holders;
	if (stored && n->opts.store_size == 0 && e->obj &&
	    e->obj->gen == e->gen && e->obj->state == NODE_HELD)
		node_client_stored(n, e->obj, named);
}

static int apply_dir(struct pool_node *n, struct node_dirent *d,
		     const Kvpool__Meta *m, bool added)
{
	bool back = d->gone && !d->removing;
	uint64_t mtime_ns = d->attr.mtime_ns;
	int changed;

	node_names_begin(n);
	changed = node_attr_update(n, &d->attr, &d->xattrs, m);
	node_names_end(n);
	if (changed < 0)
		return changed;
	node_account(n, &d->d.e);
	/* An mtime that a user has set replaces the one of changes made here.
	 * The first one that the feed brings does so only if it is newer. */
	if (d->attr.mtime_ns != mtime_ns &&
	    (mtime_ns || d->attr.mtime_ns > d->mtime_ns))
		d->mtime_ns = 0;
	if (changed && n->complete)
		d->ctime_ns = pool_wall_ns();
	d->known = true;
	d->ahead = 0;
	d->leaving = false;
	if (back)
		node_dir_gone(n, d, false);
	d->sweep = n->sweep;
	if (node_dir_rules(d))
		node_judge_below(n, d);
	if (n->ops && (added || back))
		n->ops->appeared(n->ops_arg, &d->d.e);
	else if (n->ops && changed)
		n->ops->attr_changed(n->ops_arg, &d->d.e);
	return 0;
}

/* Attributes of the root that no user has set stay as this mount has them. (An
 * older master does not say which were set; it sends an mtime only if set.) */
static int apply_root(struct pool_node *n, const Kvpool__Meta *m)
{
	struct node_dirent *d = pool_node_root(n);
	Kvpool__Meta root = *m;
	bool all = !m->set;

	if (!all && !(m->set & POOL_SET_MODE))
		root.mode = d->attr.mode;
	if (!all && !(m->set & POOL_SET_UID))
		root.uid = d->attr.uid;
	if (!all && !(m->set & POOL_SET_GID))
		root.gid = d->attr.gid;
	if (all ? !m->mtime_ns : !(m->set & POOL_SET_MTIME))
		root.mtime_ns = d->attr.mtime_ns;
	return apply_dir(n, d, &root, false);
}

/* evicted: this node asked to evict o, and the master permits it: by DROP, or
 * because the feed no longer has the name, whichever arrives first. */
static void drop_copy(struct pool_node *n, struct node_object *o, bool evicted)
{
	if (evicted) {
		pool_count(&n->c.evicted_last);
		node_evicted_note(n, o, false);
		pool_count_add(&n->c.evicted_bytes, o->size);
		node_space_answered(n, o);
	}
	node_object_drop(n, o, evicted);
}

/* The name's generations up to gen are deleted, or not in the picture. */
static void unpublish(struct pool_node *n, struct node_entry *e, uint64_t gen)
{
	bool shown = pool_node_visible(&e->e);

	if (e->gen > gen)
		return;
	node_names_begin(n);
	e->gen = 0;
	if (e->hidden_gen < NODE_HIDES_ANY)
		e->hidden_gen = 0;
	node_names_end(n);
	e->nholders = e->replicas = 0;
	if (e->obj && e->obj->state == NODE_HELD && e->obj->gen <= gen)
		drop_copy(n, e->obj, e->obj->asked != 0);
	if (n->ops && shown && !e->own)
		n->ops->changed(n->ops_arg, e);
	node_entry_tidy(n, e);
}

/* The name has generation gen now. Must o be dropped? Yes if o is older. Yes,
 * too, if o is newer but not counted: a new master may have an older version,
 * after all holders of the newer one have left. A newer counted copy is in the
 * inventory, so the master decides about it. */
static bool is_outdated(const struct node_object *o, uint64_t gen)
{
	return o->gen < gen || (o->gen > gen && !o->counted);
}

static int apply_file(struct pool_node *n, struct node_entry *e,
		      const Kvpool__Meta *m)
{
	bool shown = pool_node_visible(&e->e);
	uint64_t attr_gen = e->attr.gen;
	XXH128_canonical_t canon;
	bool other = m->gen != e->gen;
	int attr;

	e->sweep = n->sweep;
	if (m->gen < e->gen && !n->in_picture)
		return 0; /* an ack or order has named a newer one */
	attr = node_attr_update(n, &e->attr, &e->xattrs, m);
	if (attr < 0)
		return attr;
	node_account(n, &e->e);
	node_names_begin(n);
	e->gen = m->gen;
	e->size = m->size;
	if (e->hidden_gen && e->gen > e->hidden_gen)
		e->hidden_gen = 0;
	node_names_end(n);
	memcpy(canon.digest, m->sum.data, 16);
	e->sum = XXH128_hashFromCanonical(&canon);
	if (other && e->obj && e->obj->state == NODE_HELD &&
	    is_outdated(e->obj, e->gen))
		node_object_drop(n, e->obj, false);
	set_holders(n, e, m);
	if ((attr || attr_gen != e->attr.gen) && e->obj) {
		node_judge(n, e->obj);
		(void)node_write_blob(n, e->obj); /* for a restart */
	}
	if (!n->ops || e->own)
		return 0;
	if (!shown && pool_node_published(e))
		n->ops->appeared(n->ops_arg, &e->e);
	else if (shown && other)
		n->ops->changed(n->ops_arg, e);
	else if (shown && attr)
		n->ops->attr_changed(n->ops_arg, &e->e);
	return 0;
}

/* d was empty when it was removed. So the names still shown below are deleted,
 * too, but the feed may bring these deletions later. */
static void dir_deleted(struct pool_node *n, struct node_dirent *d)
{
	struct pool_list *it, *tmp;
	struct pool_entry *pe;

	if (!d->d.e.parent || d->gone || d->making)
		return;
	d->leaving = false; /* else the loop's last removal would free d */
	pool_list_each(it, tmp, &d->d.children) {
		pe = pool_list_entry(it, struct pool_entry, sibling);
		if (pe->is_dir)
			dir_deleted(n, node_dir(pe));
		else if (node_file(pe)->gen)
			unpublish(n, node_file(pe), UINT64_MAX);
	}
	node_dir_remove(n, d);
}

static void apply_deleted(struct pool_node *n, const Kvpool__Meta *m)
{
	struct pool_entry *pe = pool_tree_lookup(
		&n->tree, (const char *)m->path.data, m->path.len);

	if (!pe)
		return;
	if (pe->is_dir != m->is_dir)
		return;
	if (pe->is_dir)
		dir_deleted(n, node_dir(pe));
	else
		unpublish(n, node_file(pe), m->gen ? m->gen : UINT64_MAX);
}

struct added {
	struct pool_entry *last;
	struct pool_node *n;
};

static void on_add(struct pool_entry *e, void *arg)
{
	struct added *a = arg;

	a->last = e;
	if (e->is_dir) {
		node_dir(e)->attr.mode = 0755;
		node_dir(e)->known = true;
		node_dir(e)->sweep = a->n->sweep;
		node_account(a->n, e);
		if (a->n->ops)
			a->n->ops->appeared(a->n->ops_arg, e);
	}
}

static void mark_parents(struct pool_node *n, struct pool_entry *e)
{
	struct node_dirent *dir;
	struct pool_dir *d;

	for (d = e->parent; d; d = d->e.parent) {
		dir = node_dir(&d->e);
		dir->sweep = n->sweep;
		if (dir->leaving)
			dir->known = true;
		dir->leaving = false;
		if (dir->removing)
			continue;
		if (dir->gone && n->ops)
			n->ops->appeared(n->ops_arg, &d->e);
		if (dir->gone)
			node_dir_gone(n, dir, false);
	}
}

struct node_entry *node_feed_ahead(struct pool_node *n, const Kvpool__Meta *m)
{
	struct added added = { NULL, n };
	struct pool_entry *pe;
	struct node_entry *e;
	int err = 0;

	node_seen(n, m->gen);
	node_seen(n, m->attr_gen);
	if (node_tree_make(n, (const char *)m->path.data, m->path.len, false,
			   on_add, &added, &pe) < 0)
		return NULL;
	mark_parents(n, pe);
	e = node_file(pe);
	if (e->gen < m->gen ||
	    (e->gen == m->gen && e->attr.gen < m->attr_gen))
		err = apply_file(n, e, m);
	if (err)
		node_entry_tidy(n, e);
	else
		e->ahead = n->stage;
	return err ? NULL : e;
}

/*
 * The feed has a directory at m's path, or above it, where this node has a
 * file. If the file is unpublished, it is lost, and the next fsync of its
 * directory reports that. If its name is only hidden (unlinked here, not
 * published), it is forgotten. True: then m can be applied. False: there is no
 * such file; or the master may have executed its PUBLISH, after the removal of
 * that directory. The file may then have replaced another node's, so it is kept
 * until the ack.
 */
static bool give_way(struct pool_node *n, const Kvpool__Meta *m)
{
	const char *path = (const char *)m->path.data;
	size_t len = m->path.len, i;

	for (i = 1; i < len + (m->is_dir ? 1 : 0); i++) {
		struct pool_entry *pe;
		struct node_entry *e;

		if (i < len && path[i] != '/')
			continue;
		pe = pool_tree_lookup(&n->tree, path, i);
		if (!pe)
			return false;
		if (pe->is_dir)
			continue;
		e = node_file(pe);
		if (!e->own && !e->gen && e->hidden_gen < NODE_HIDES_ANY) {
			node_hide(n, e, 0);
			node_entry_tidy(n, e);
			return true;
		}
		if (!e->own || pool_node_published(e) ||
		    node_op_maybe_executed(n, e->own))
			return false;
		node_own_lost(e, -ENOTDIR);
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		node_entry_tidy(n, e);
		return true;
	}
	return false;
}

/* 0 or -ENOMEM. Invalid entries are skipped. */
static int apply_entry(struct pool_node *n, const Kvpool__Meta *m)
{
	struct added added = { NULL, n };
	struct pool_entry *pe;
	int err;

	pool_count(&n->c.feed_entries);
	node_seen(n, m->gen);
	node_seen(n, m->attr_gen);
	if (m->deleted) {
		apply_deleted(n, m);
		return 0;
	}
	if (!m->is_dir && (m->sum.len != 16 || m->gen == 0)) {
		pool_warn_limited("the feed carried an entry without a sum "
				  "or generation: ignored");
		return 0;
	}
	if (m->path.len == 0)
		return apply_root(n, m);
	err = node_tree_make(n, (const char *)m->path.data, m->path.len,
			     m->is_dir, on_add, &added, &pe);
	if (err == -ENOTDIR && give_way(n, m))
		err = node_tree_make(n, (const char *)m->path.data,
				     m->path.len, m->is_dir, on_add, &added,
				     &pe);
	/* The name here is of the other kind, and is probably being removed:
	 * the whole picture is requested again later (resync in session.c). */
	if (err == -ENOTDIR || err == -EISDIR)
		n->feed_skipped = true;
	if (err) {
		pool_warn_limited("the feed's \"%.*s\" cannot be shown: %s",
				  (int)m->path.len, (char *)m->path.data,
				  strerror(-err));
		return err == -ENOMEM ? err : 0;
	}
	mark_parents(n, pe);
	if (pe->is_dir)
		return apply_dir(n, node_dir(pe), m, added.last == pe);
	node_file(pe)->ahead = 0;
	err = apply_file(n, node_file(pe), m);
	if (err)
		node_entry_tidy(n, node_file(pe));
	return err;
}

/* ---- the end of a whole picture ---- */

static void sweep_one(struct pool_node *n, struct pool_entry *pe, bool leaving)
{
	struct node_dirent *d = node_dir(pe);
	struct node_entry *e = node_file(pe);

	if (e && e->ahead != n->stage)
		e->ahead = 0;
	if (e && e->gen && e->sweep != n->sweep && !e->ahead &&
	    node_is_ours(pe))
		unpublish(n, e, UINT64_MAX);
	if (!leaving)
		return;
	if (d->ahead != n->stage)
		d->ahead = 0;
	if (d->known && d->sweep != n->sweep && !d->ahead && !d->gone &&
	    node_is_ours(pe))
		node_dir_remove(n, d);
	else
		node_dir_tidy(n, d);
}

/* The mirror has everything up to seq. */
static void arrived(struct pool_node *n, uint64_t seq)
{
	n->feed_epoch = n->epoch;
	n->feed_seq = seq;
}

/*
 * Sweeps this turn's share of names. Entries that the feed brings meanwhile
 * have the picture's mark, and acked ones are `ahead`, so neither is removed.
 * Returns whether there is more to do.
 */
static bool sweep_some(struct pool_node *n)
{
	struct pool_entry *pe;
	bool leaving;

	while ((pe = node_walk_step(n, &n->sweeping, &leaving)))
		sweep_one(n, pe, leaving);
	if (n->sweeping.at)
		return true;
	pool_tree_walk_close(&n->sweeping);
	n->complete = true;
	return false;
}

bool node_feed_sweeping(const struct pool_node *n)
{
	return pool_tree_walk_is_open(&n->sweeping);
}

bool node_sweep_slice(struct pool_node *n)
{
	if (!node_feed_sweeping(n))
		return false;
	if (node_kernel_behind(n))
		return false; /* node_session_tick continues */
	if (sweep_some(n))
		return true;
	arrived(n, n->swept_seq);
	node_feed_ack(n, n->swept_seq);
	node_kick(n);
	return false;
}

void node_sweep_cut_off(struct pool_node *n)
{
	if (node_feed_sweeping(n))
		n->in_picture = true;
	pool_tree_walk_close(&n->sweeping);
}

void node_stage_begins(struct pool_node *n)
{
	n->stage = n->stage == UINT8_MAX ? 1 : n->stage + 1;
}

static void picture_begins(struct pool_node *n)
{
	pool_count(&n->c.feed_resyncs);
	n->sweep++;
	if (n->feed_begun)
		node_stage_begins(n);
	n->in_picture = true;
	pool_tree_walk_close(&n->sweeping);
}

static void picture_ends(struct pool_node *n)
{
	n->in_picture = false;
	pool_tree_walk_open(&n->tree, n->tree.root, &n->sweeping);
}

int node_feed_apply(struct pool_node *n, const Kvpool__Feed *f)
{
	size_t i;
	int err = 0;

	pool_count(&n->c.feed_batches);
	for (i = 0; i < f->n_nodes; i++)
		node_member_apply(n, f->nodes[i]);
	if (f->begin)
		picture_begins(n);
	n->feed_begun = true;
	for (i = 0; !err && i < f->n_entries; i++)
		err = apply_entry(n, f->entries[i]);
	if (err)
		return err;
	n->swept_seq = f->upto_seq;
	if (f->complete && n->in_picture)
		picture_ends(n);
	if (!n->in_picture && !(node_feed_sweeping(n) && sweep_some(n)))
		arrived(n, f->upto_seq);
	return 0;
}

/* ---- the master's orders ---- */

/* There are enough other copies: o becomes a cached copy. A restart must not
 * find it, because the master no longer reports its deletion to this node. */
static void make_cache(struct pool_node *n, struct node_object *o)
{
	node_space_answered(n, o);
	if (!o->counted)
		return;
	pool_count(&n->c.surplus);
	o->counted = false;
	o->refused = false;
	o->asked = 0;
	node_judge(n, o);
	(void)pool_store_detach(n->store, o->id);
}

/* Did the master send this DROP before it received the HELD that reported o?
 * Then the DROP is for an earlier copy, and the master counts o. */
static bool crossed(const struct pool_node *n, const struct node_object *o,
		    const Kvpool__Drop__Item *it)
{
	return (it->reason == KVPOOL__DROP__REASON__EVICTED ||
		it->reason == KVPOOL__DROP__REASON__SURPLUS) &&
	       it->helds && n->helds_before + it->helds - 1 < o->held_number;
}

void node_drop_apply(struct pool_node *n, const Kvpool__Drop *d)
{
	struct pool_entry *pe;
	struct node_entry *e;
	struct node_object *o;
	size_t i;

	for (i = 0; i < d->n_items; i++) {
		const Kvpool__Drop__Item *it = d->items[i];

		pe = pool_tree_lookup(&n->tree, (const char *)it->path.data,
				      it->path.len);
		e = pe ? node_file(pe) : NULL;
		o = e ? e->obj : NULL;
		if (!o || o->state != NODE_HELD || o->gen > it->gen ||
		    crossed(n, o, it))
			continue;
		if (it->reason == KVPOOL__DROP__REASON__KEEP) {
			node_space_answered(n, o);
			o->refused = true;
			continue;
		}
		if (it->reason == KVPOOL__DROP__REASON__SURPLUS &&
		    !node_client_linked(n, o)) {
			make_cache(n, o);
			continue;
		}
		drop_copy(n, o, it->reason == KVPOOL__DROP__REASON__EVICTED);
		if (!node_is_fed(n, &e->e) && e->gen <= it->gen)
			node_unpublish(n, e);
		node_entry_tidy(n, e);
	}
	n->granted = d->granted;
	node_kick(n);
}
