/*
 * Releases counted copies: when their node requests it (EVICT), or when there
 * are more than the rules want (surplus). Surplus copies stay on their nodes,
 * as cache.
 */
#include <errno.h>
#include <string.h>

#include "master/impl.h"
#include "master/may.h"
#include "master/place.h"
#include "pool/base/clock.h"

/* ---- surplus ---- */

bool master_give_up_surplus(struct master *m, struct master_file *f,
			    unsigned int wanted,
			    const struct master_member *keep)
{
	char path[POOL_PATH_MAX + 1];
	bool changed = false;
	int pos, len;

	while ((pos = master_place_surplus(&m->members, f, wanted,
					   keep)) >= 0) {
		struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[pos]));

		len = pool_tree_path(&f->e, path, sizeof(path));
		master_file_remove_holder(f, (unsigned int)pos);
		master_session_drop(mb->session, path, (size_t)len, f->gen,
				    KVPOOL__DROP__REASON__SURPLUS);
		master_count(m, MC_SURPLUS);
		changed = true;
	}
	return changed;
}

/* ---- EVICT ---- */

/* Let the sender drop its copy of f. f may be freed. */
static void grant(struct master_session *s, struct master_file *f,
		  const Kvpool__Meta *meta)
{
	struct master *m = s->m;
	int pos = master_file_find_holder(f, s->member->index);
	uint64_t size = f->size;

	master_file_remove_holder(f, (unsigned int)pos);
	master_count(m, MC_EVICT_GRANTED);
	master_map_touch_file(&m->map, f);
	f->evicted = !f->nholders;
	if (f->evicted) {
		struct master_top *top = master_map_top(&m->map, &f->e);

		top->evicted++;
		top->evicted_bytes += size;
	}
	/* The review comes first: if this was the last copy, it appends the
	 * tombstone of older versions, which the DROP must wait for. */
	(void)master_review(m, f);
	master_session_grant(s, (const char *)meta->path.data, meta->path.len,
			     meta->gen, size);
}

/*
 * The last store evicts its copy: clients must drop theirs, too. Otherwise a
 * client's copy would be replicated to the store again, only to be evicted
 * again. (A client whose inventory is not complete keeps its copy.)
 */
static void drop_clients(struct master *m, struct master_file *f,
			 const Kvpool__Meta *meta)
{
	unsigned int i = f->nholders;

	if (master_place_left(&m->members, f) > 1)
		return;
	while (i-- > 0) {
		struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (!mb || mb->is_store || !mb->session || !mb->inventoried)
			continue;
		master_file_remove_holder(f, i);
		master_session_drop(mb->session, (const char *)meta->path.data,
				    meta->path.len, meta->gen,
				    KVPOOL__DROP__REASON__EVICTED);
	}
}

static void evict_held(struct master_session *s, struct master_file *f,
		       const Kvpool__Meta *meta)
{
	struct master *m = s->m;
	struct master_member *to = NULL;
	struct pool_rules rules;

	master_file_rules(f, pool_wall_ns(), &rules);
	switch (master_place_evict(&m->members, f, s->member, &rules, m->ready,
				   &to)) {
	case MASTER_GRANT:
		return grant(s, f, meta);
	case MASTER_MOVE:
		master_repair_move(m, f, s->member->index, to);
		return;
	case MASTER_LAST:
		master_count(m, MC_EVICT_LAST);
		master_repair_cancel(m, f);
		drop_clients(m, f, meta);
		return grant(s, f, meta);
	case MASTER_KEEP:
		master_session_drop(s, (const char *)meta->path.data,
				    meta->path.len, meta->gen,
				    KVPOOL__DROP__REASON__KEEP);
		/* fallthrough */
	case MASTER_REFUSE:
		master_count(m, MC_EVICT_REFUSED);
		return;
	}
}

/*
 * Will the moves in flight, and the DROPs that the sender had not received when
 * it sent msg, free as many bytes as it needs? Nodes request evictions again
 * without waiting for these. Granting more would waste other stores' room on
 * unneeded moves, so that copies moved later would find none.
 */
static bool enough_leaves(const struct master_session *s,
			  const Kvpool__Evict *msg)
{
	uint64_t unseen = s->granted > msg->seen ? s->granted - msg->seen : 0;

	return msg->need && s->member->leaving_bytes + unseen >= msg->need;
}

static void evict_item(struct master_session *s, const Kvpool__Evict *msg,
		       const Kvpool__Meta *meta)
{
	const char *path = (const char *)meta->path.data;
	struct master *m = s->m;
	struct master_file *f;

	if (pool_path_check(path, meta->path.len) || !meta->gen) {
		master_count(m, MC_BAD_ITEMS);
		return;
	}
	f = master_map_file(&m->map, path, meta->path.len);
	if (f && f->gen == meta->gen &&
	    master_file_find_holder(f, s->member->index) >= 0) {
		if (!enough_leaves(s, msg))
			return evict_held(s, f, meta);
		master_count(m, MC_EVICT_REFUSED);
		return;
	}
	/* The map does not count this copy. */
	master_session_drop(s, path, meta->path.len, meta->gen,
			    f && f->gen > meta->gen &&
					    master_may_see(s, path,
							   meta->path.len) ?
				    KVPOOL__DROP__REASON__SUPERSEDED :
				    KVPOOL__DROP__REASON__EVICTED);
}

/*
 * The last copy of a name that had older versions leaves a tombstone in the
 * state. With etcd such records are charged to the member, so that its next
 * changes wait for them; evictions do not, as a node may need the room now.
 */
void master_on_evict(struct master_session *s, const Kvpool__Evict *msg)
{
	uint64_t cost = master_keep_cost(s->m);
	size_t i;

	if (msg->n_entries > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO,
					   "too many entries in one EVICT");
	}
	for (i = 0; i < msg->n_entries && !s->ended; i++)
		evict_item(s, msg, msg->entries[i]);
	if (s->member)
		master_quantum_records(s->member, master_keep_cost(s->m) - cost,
				       master_keep_mark(s->m));
	master_kick(s->m);
}
