/*
 * The patrol: a scrub walk over the map, a slice a turn, that reviews each
 * file. Its position is a cursor in the feed, so names may be added and removed
 * during the walk. Files that change after it has begun move behind its goal
 * and are not visited: each change reviews its file itself.
 */
#include <errno.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define PATROL_MS 60000	      /* for pins that expire, and failed actions */
#define PATROL_DRAIN_MS 500   /* while a node is draining */
#define PATROL_SHARE 4	      /* master_patrol_by: pause at least 4 times the
				 last patrol's duration */

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

/* (Not the extra copies: to their nodes they are cache.) */
static void count_kept(struct master *m, struct master_file *f)
{
	const master_holder *held = master_file_holders(f);
	struct pool_rules rules;

	master_file_rules(f, pool_wall_ns(), &rules);
	if (rules.class != POOL_CLASS_NOEVICT && rules.pin != POOL_PIN_HARD)
		return;
	for (unsigned int i = 0; i < f->nholders; i++)
		if (!master_holder_extra(held[i]))
			master_member_keeps(
				master_member_at(&m->members,
						 master_holder_index(held[i])),
				f->size);
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
		if (master_review(m, f) == MASTER_GONE) {
			master_count(m, MC_LOST_KEYS);
		} else {
			count_kept(m, f);
			master_repair_pass(m, f, master_drain_pass(m, f));
		}
	}
	return p->active;
}
