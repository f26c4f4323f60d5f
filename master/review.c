/*
 * Reviewing one file of the map: removes invalid holders, orders missing
 * copies, gives up surplus ones. Called after each change of the file or its
 * holders, and by the patrol.
 */
#include <errno.h>

#include "master/impl.h"
#include "master/place.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

static bool drop_invalid(struct master *m, struct master_file *f)
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
	/* Only doubtful copies are left (add_holder in ops.c): name them to
	 * readers again. */
	if (changed && master_file_extras(f) == f->nholders)
		f->unsure = 0;
	return changed;
}

/* Enough stores hold f: copies on clients are cache from now on. */
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

/* f has no holder left: remove it from the map. */
static enum master_reviewed remove_unheld(struct master *m,
					  struct master_file *f)
{
	uint64_t wall_ns = pool_wall_ns();
	uint64_t older = f->had_older ? f->gen - 1 : 0;
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));

	master_repair_cancel(m, f);
	if (master_map_remove_file(&m->map, f, 0, wall_ns))
		return MASTER_KEPT; /* ENOMEM: the next patrol retries */
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
	bool changed = drop_invalid(m, f);

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
	review(m, f, from); /* never MASTER_GONE: `from` is a holder */
}
