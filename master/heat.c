/*
 * Extra copies of hot objects. When a holder reports that peers request an
 * object often, the master orders an extra copy on another store, one at a
 * time, until no holder reports it or there are EXTRAS_MAX. The holder of an
 * extra copy reports when it is no longer requested (cold). The feed names
 * extra copies to readers, but they do not count as replicas. A reader skips a
 * holder that no longer has one.
 */
#include <errno.h>

#include "master/impl.h"

#define EXTRAS_MAX 7u

static void hot(struct master *m, struct master_file *f)
{
	/* Copies that the rules want come first. */
	if (f->danger != MASTER_SAFE || master_file_extras(f) >= EXTRAS_MAX ||
	    !master_repair_extra(m, f))
		master_count(m, MC_EXTRAS_REFUSED);
}

static void cold(struct master *m, struct master_file *f, unsigned int pos)
{
	master_count(m, MC_EXTRAS_COLD);
	master_file_remove_holder(f, pos);
	master_map_touch_file(&m->map, f);
	master_review(m, f);
}

static void item(struct master_session *s, const Kvpool__Heat *it)
{
	const char *path = (const char *)it->path.data;
	struct master *m = s->m;
	struct master_file *f;
	int pos;

	if (pool_path_check(path, it->path.len) || !it->gen) {
		master_count(m, MC_BAD_ITEMS);
		return;
	}
	f = master_map_file(&m->map, path, it->path.len);
	pos = f && f->gen == it->gen ?
		      master_file_find_holder(f, s->member->index) :
		      -1;
	if (pos < 0)
		return; /* it has changed since the node sent this */
	if (!it->cold)
		hot(m, f);
	else if (master_holder_extra(master_file_holders(f)[pos]))
		cold(m, f, (unsigned int)pos);
}

void master_on_heat(struct master_session *s, const Kvpool__Heartbeat *msg)
{
	size_t i;

	if (msg->n_heat > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO,
					   "too many objects in one HEARTBEAT");
	}
	for (i = 0; i < msg->n_heat && !s->ended; i++)
		item(s, msg->heat[i]);
}
