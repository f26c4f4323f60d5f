/*
 * Walks over the map, a slice a turn: the patrol, and the rewriting of the
 * state file. Both are cursors in the feed, so that names may come and go
 * meanwhile; what changes after they have begun has been dealt with at the
 * change.
 */
#include <errno.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define PATROL_MS 60000	      /* for pins that end, and what went wrong */
#define PATROL_DRAIN_MS 500   /* while a node is emptied */
#define PATROL_SHARE 4	      /* if more often than that: a fifth of the time */

/* ---- review ---- */

static bool drop_fallen(struct master *m, struct master_file *f)
{
	bool changed = false;
	unsigned int i = 0;

	while (i < f->nholders) {
		if (master_holder_stands(&m->members,
					 master_file_holders(f)[i])) {
			i++;
		} else {
			master_file_remove_holder(f, i);
			changed = true;
		}
	}
	/* The stores that a put again made doubtful are all there is now. */
	if (changed && master_file_extras(f) == f->nholders)
		f->unsure = 0;
	return changed;
}

/* Enough stores have it: copies of nodes that are none are cache. */
static bool drop_clients(struct master *m, struct master_file *f)
{
	bool changed = false;
	unsigned int i = 0;

	while (i < f->nholders) {
		const struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (mb->is_store) {
			i++;
		} else {
			master_file_remove_holder(f, i);
			changed = true;
		}
	}
	return changed;
}

static enum master_reviewed remove_unheld(struct master *m,
					  struct master_file *f)
{
	uint64_t wall_ns = pool_wall_ns();
	uint64_t older = f->had_older ? f->gen - 1 : 0;
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));

	master_repair_cancel(m, f);
	if (master_map_remove_file(&m->map, f, 0, wall_ns))
		return MASTER_KEPT; /* ENOMEM: the next patrol tries again */
	if (older)
		master_keep_tomb(m, master_map_grave(&m->map, path,
						     (size_t)len));
	master_kick(m);
	return MASTER_GONE;
}

static void count_danger(struct master *m, struct master_file *f,
			 const struct master_want *w)
{
	unsigned int danger = MASTER_SAFE;

	if (w->left < w->wanted)
		danger = w->left < MASTER_DANGERS - 2 ? w->left + 1 :
							MASTER_DANGERS - 1;
	if (danger != f->danger)
		master_file_set_danger(&m->map, f, danger);
}

static enum master_reviewed review(struct master *m, struct master_file *f,
				   const struct master_member *putter)
{
	struct pool_rules rules;
	struct master_want want = { .put = putter != NULL };
	bool changed = drop_fallen(m, f);

	if (!f->nholders)
		return remove_unheld(m, f);
	master_file_rules(f, pool_wall_ns(), &rules);
	if (rules.pin != f->pin)
		master_file_set_pin(&m->map, f, rules.pin);
	want.wanted = rules.replicas;
	want.kept = rules.class == POOL_CLASS_NOEVICT ||
		    rules.pin == POOL_PIN_HARD;
	want.left = master_place_left(&m->members, f);
	count_danger(m, f, &want);
	if (master_place_copies(&m->members, f, MASTER_NOBODY) >=
	    want.wanted) {
		changed |= drop_clients(m, f);
		master_repair_satisfied(m, f);
		if (m->ready)
			changed |= master_give_up_surplus(m, f, want.wanted,
							  putter);
	} else if (m->ready) {
		master_repair_want(m, f, &want);
	}
	master_drain_reviewed(m, f);
	if (changed) {
		master_map_touch_file(&m->map, f);
		master_kick(m);
	}
	return MASTER_KEPT;
}

enum master_reviewed master_review(struct master *m, struct master_file *f)
{
	return review(m, f, NULL);
}

void master_review_put(struct master *m, struct master_file *f,
		       const struct master_member *from)
{
	review(m, f, from); /* the sender holds it, so it stays */
}

/* ---- the patrol ---- */

static void begin(struct master *m)
{
	struct master_patrol *p = &m->patrol;

	p->active = true;
	p->again = false;
	p->goal = m->map.feed.seq;
	p->begun_ms = pool_now_ms();
	m->repair.unmet = false;
	master_members_sweep_begin(&m->members);
	master_drain_pass_begin(m);
	master_repair_pass_begin(m);
	master_cursor_open(&m->map.feed, &p->cursor);
	master_slices_start(m);
}

void master_patrol_start(struct master *m)
{
	if (m->patrol.active)
		m->patrol.again = true;
	else
		begin(m);
}

void master_patrol_by(struct master *m, uint64_t ms)
{
	struct master_patrol *p = &m->patrol;
	uint64_t at_ms = pool_now_ms() + ms;

	if (at_ms < p->rest_ms)
		at_ms = p->rest_ms;
	if (p->next_ms > at_ms)
		p->next_ms = at_ms;
}

static void end(struct master *m)
{
	struct master_patrol *p = &m->patrol;
	uint64_t now_ms = pool_now_ms();

	p->rest_ms = now_ms + (now_ms - p->begun_ms) * PATROL_SHARE;
	p->next_ms = now_ms + PATROL_MS;
	p->active = false;
	master_cursor_close(&p->cursor);
	master_members_sweep_end(&m->members);
	master_drain_pass_end(m);
	master_repair_pass_end(m);
	if (master_drain_busy(m))
		master_patrol_by(m, PATROL_DRAIN_MS);
	if (m->repair.unmet)
		master_patrol_by(m, MASTER_UNMET_MS);
	if (p->again)
		begin(m);
}

bool master_patrol_slice(struct master *m)
{
	struct master_patrol *p = &m->patrol;
	unsigned int left = MASTER_SLICE;
	struct master_file *f;
	struct master_item *i;

	if (!p->active)
		return false;
	while (left--) {
		i = master_cursor_peek(&m->map.feed, &p->cursor);
		if (!i || i->seq > p->goal) {
			end(m);
			break;
		}
		master_cursor_advance(&m->map.feed, &p->cursor);
		if (i->kind != MASTER_FILE)
			continue;
		f = master_item_file(i);
		if (master_review(m, f) == MASTER_GONE)
			master_count(m, MC_LOST_KEYS);
		else
			master_repair_pass(m, f, master_drain_pass(m, f));
	}
	return p->active;
}

/* ---- rewriting the state file ---- */

static int add_members(struct master *m)
{
	struct master_record r = { 0 };
	unsigned int i;
	int err = 0;

	for (i = 0; i < m->members.n && !err; i++) {
		const struct master_member *mb = m->members.by_index[i];

		r.id = mb->id;
		r.name = mb->name;
		r.type = MASTER_REC_MEMBER;
		r.u64 = mb->left_wall_ns;
		err = master_state_compact_add(m->state, &r);
		r.type = MASTER_REC_DRAIN;
		r.u64 = mb->drain.on;
		if (!err && mb->drain.on)
			err = master_state_compact_add(m->state, &r);
	}
	r.type = MASTER_REC_LOST;
	r.u64 = m->map.lost_wall_ns;
	if (!err && r.u64)
		err = master_state_compact_add(m->state, &r);
	return err;
}

static int add_item(struct master *m, struct master_item *i)
{
	struct master_record r = { 0 };
	struct master_batch *b;
	struct master_dir *d;
	int err;

	if (i->kind == MASTER_FILE)
		return 0;
	b = master_batch_start();
	err = master_batch_add(b, i);
	r.meta = &b->metas[0];
	if (i->kind == MASTER_DIR) {
		d = master_item_dir(i);
		r.type = MASTER_REC_DIR;
		if (d->extra)
			r.meta->base_gen = d->extra->rules.pin_until_ns;
		if (!err && d->made)
			err = master_state_compact_add(m->state, &r);
	} else {
		r.type = MASTER_REC_TOMB;
		master_keep_tomb_meta(master_item_grave(i), r.meta);
		if (!err && master_item_grave(i)->tomb)
			err = master_state_compact_add(m->state, &r);
	}
	master_batch_reset(b);
	return err;
}

void master_compaction_start(struct master *m)
{
	struct master_compaction *c = &m->compaction;

	if (c->walking || c->syncing || master_state_compact_begin(m->state))
		return;
	if (add_members(m)) {
		master_state_compact_abort(m->state);
		return;
	}
	c->walking = true;
	c->goal = m->map.feed.seq;
	master_cursor_open(&m->map.feed, &c->cursor);
	master_slices_start(m);
}

/* All is written; or it failed and the file is gone. */
static bool walked(struct master *m)
{
	struct master_compaction *c = &m->compaction;
	int fd;

	c->walking = false;
	master_cursor_close(&c->cursor);
	if (!master_state_compacting(m->state))
		return false;
	fd = master_state_compact_fd(m->state);
	if (fd < 0) {
		master_state_compact_abort(m->state);
		return false;
	}
	c->syncing = true;
	master_sync_start(m, fd, true);
	return false;
}

bool master_compaction_slice(struct master *m)
{
	struct master_compaction *c = &m->compaction;
	unsigned int left = MASTER_SLICE;
	struct master_item *i;

	if (!c->walking)
		return false;
	while (left-- && master_state_compacting(m->state)) {
		i = master_cursor_peek(&m->map.feed, &c->cursor);
		if (!i || i->seq > c->goal) {
			/* The worker is busy syncing the first file: soon. */
			if (m->sync_busy)
				return true;
			master_state_flush(m->state);
			return walked(m);
		}
		master_cursor_advance(&m->map.feed, &c->cursor);
		if (add_item(m, i))
			master_state_compact_abort(m->state);
	}
	master_state_flush(m->state);
	return master_state_compacting(m->state) ? true : walked(m);
}

void master_compaction_synced(struct master *m, int err)
{
	m->compaction.syncing = false;
	if (!master_state_compacting(m->state))
		return;
	if (err) {
		pool_warn_limited("state file: cannot sync its new version: %s",
				  strerror(-err));
		master_state_compact_abort(m->state);
		return;
	}
	if (!master_state_compact_commit(m->state))
		pool_info("state file rewritten: %llu records, %llu bytes",
			  (unsigned long long)master_state_records(m->state),
			  (unsigned long long)master_state_bytes(m->state));
}
