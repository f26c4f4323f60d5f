/*
 * INVENTORY: what a node holds, told after each join. The map takes what it
 * does not know, or knows older; what is dead or superseded is to be dropped.
 */
#include <errno.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

struct item {
	struct master_session *s;
	struct master *m;
	const Kvpool__Meta *meta;
	const char *path;
	size_t len;
	uint64_t wall_ns;
};

static void drop(struct item *it, Kvpool__Drop__Reason reason)
{
	master_count(it->m, MC_INVENTORY_DROPPED);
	master_session_drop(it->s, it->path, it->len, it->meta->gen, reason);
}

static int add_sender(struct item *it, struct master_file *f)
{
	const struct master_member *mb = it->s->member;

	return master_file_add_holder(&it->m->map, f,
				      master_holder_make(mb->index, mb->phase));
}

/* 0 or -ENOMEM. */
static int take_attrs(struct item *it, struct master_file *f)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules = { 0 };
	struct master_attrs attrs;

	/* Rules that this version does not know must not cost the object. */
	if (master_meta_xattrs(it->meta, false, false, it->wall_ns, &xattrs,
			       &rules) == -ENOMEM)
		return -ENOMEM;
	if (master_extra_set(&f->extra, xattrs, &rules)) {
		pool_xattrs_free(xattrs);
		return -ENOMEM;
	}
	master_meta_attrs(it->meta, &attrs);
	f->mode = attrs.mode;
	f->uid = attrs.uid;
	f->gid = attrs.gid;
	f->mtime_ns = attrs.mtime_ns;
	f->attr_gen = it->meta->attr_gen;
	return 0;
}

/* f is new, or older than the item: take it over. 0 or -ENOMEM. */
static int take(struct item *it, struct master_file *f)
{
	if (take_attrs(it, f))
		return -ENOMEM;
	if (f->gen) {
		master_repair_cancel(it->m, f);
		master_drop_holders(it->m, f, it->s->member,
				    KVPOOL__DROP__REASON__SUPERSEDED);
		master_file_clear_holders(f);
		f->had_older = 1;
	}
	f->gen = it->meta->gen;
	master_file_set_size(&it->m->map, f, it->meta->size);
	memcpy(f->sum, it->meta->sum.data, MASTER_SUM_SIZE);
	add_sender(it, f);
	return 0;
}

/* One of the two was away when the attributes changed. */
static void same_object(struct item *it, struct master_file *f)
{
	if (add_sender(it, f) == 1)
		master_map_touch_file(&it->m->map, f);
	if (it->meta->attr_gen == f->attr_gen)
		return;
	if (it->meta->attr_gen < f->attr_gen)
		return master_repair_tell_attrs(it->m, f, NULL);
	if (take_attrs(it, f))
		return;
	master_map_touch_file(&it->m->map, f);
	master_repair_tell_attrs(it->m, f, it->s->member);
}

static bool same_content(const struct item *it, const struct master_file *f)
{
	return f->size == it->meta->size &&
	       !memcmp(f->sum, it->meta->sum.data, MASTER_SUM_SIZE);
}

static void item_known(struct item *it, struct master_file *f)
{
	if (it->meta->gen < f->gen) {
		f->had_older = 1;
		return drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
	}
	if (it->meta->gen > f->gen) {
		if (take(it, f))
			return drop(it, KVPOOL__DROP__REASON__EVICTED);
		master_map_touch_file(&it->m->map, f);
	} else if (!same_content(it, f)) {
		/* One generation is one content; only a damaged store, or two
		 * masters on one pool, bring this about. */
		master_count(it->m, MC_INVENTORY_CONFLICT);
		pool_warn_limited("node %s: %.*s: same generation, other content; dropped there",
				  it->s->member->name, (int)it->len, it->path);
		return drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
	} else {
		same_object(it, f);
	}
	master_review(it->m, f);
}

static void item_unknown(struct item *it)
{
	struct master_map *map = &it->m->map;
	struct master_attrs attrs;
	struct master_file *f;
	bool made;

	if (master_map_tomb_gen(map, it->path, it->len) >= it->meta->gen)
		return drop(it, KVPOOL__DROP__REASON__DELETED);
	if (!it->s->trusted)
		return drop(it, KVPOOL__DROP__REASON__DELETED);
	master_meta_attrs(it->meta, &attrs);
	/* Not below a file, nor where a directory is now. */
	if (master_map_make_file(map, it->path, it->len, &attrs, &f, &made))
		return drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
	if (take(it, f)) {
		master_map_remove_file(map, f, 0, it->wall_ns);
		return drop(it, KVPOOL__DROP__REASON__EVICTED);
	}
	master_map_touch_file(map, f);
	master_review(it->m, f);
}

/* 0, or -ESTALE: the node has seen a newer master than this one. */
static int one(struct item *it)
{
	uint64_t now = it->m->epoch << POOL_GEN_SEQ_BITS | it->m->gen_seq;
	struct master_file *f;

	master_count(it->m, MC_INVENTORY);
	if (master_meta_check(it->meta, true) || !it->meta->gen) {
		master_count(it->m, MC_BAD_ITEMS);
		return 0;
	}
	if (pool_gen_epoch(it->meta->gen) > it->m->epoch ||
	    pool_gen_epoch(it->meta->attr_gen) > it->m->epoch)
		return -ESTALE;
	if (it->meta->gen > now)
		it->m->gen_seq += it->meta->gen - now;
	now = it->m->epoch << POOL_GEN_SEQ_BITS | it->m->gen_seq;
	if (it->meta->attr_gen > now)
		it->m->gen_seq += it->meta->attr_gen - now;
	f = master_map_file(&it->m->map, it->path, it->len);
	if (f)
		item_known(it, f);
	else
		item_unknown(it);
	return 0;
}

static void whole(struct master_session *s)
{
	struct master *m = s->m;
	struct master_member *mb = s->member;

	mb->inventoried = true;
	mb->expected = false;
	/* What it no longer lists, it no longer holds; and it may be where
	 * copies can go. */
	master_patrol_start(m);
	master_check_ready(m);
}

void master_on_inventory(struct master_session *s, const Kvpool__Inventory *msg)
{
	struct item it = { .s = s, .m = s->m, .wall_ns = pool_wall_ns() };
	size_t i;

	if (s->member->inventoried || msg->n_entries > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO,
					   s->member->inventoried ?
						   "a second INVENTORY" :
						   "too much in one INVENTORY");
	}
	for (i = 0; i < msg->n_entries; i++) {
		it.meta = msg->entries[i];
		it.path = (const char *)it.meta->path.data;
		it.len = it.meta->path.len;
		if (one(&it))
			return master_session_fail(
				s, -ESTALE,
				"the node holds objects of a newer epoch of the master");
		if (s->ended)
			return;
	}
	if (msg->last)
		whole(s);
	master_kick(s->m);
}
