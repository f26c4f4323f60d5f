#include "master/place.h"

#include <errno.h>
#include <string.h>

uint64_t master_place_free(const struct master_member *mb)
{
	uint64_t taken = mb->used + mb->promised;

	return taken < mb->capacity ? mb->capacity - taken : 0;
}

void master_place_accepting(struct master_member *mb)
{
	uint64_t two = mb->capacity / 50;
	uint64_t room = mb->used < mb->capacity ? mb->capacity - mb->used : 0;

	if (room <= two)
		mb->accepting = false;
	else if (room >= 2 * two)
		mb->accepting = true;
}

bool master_place_room(const struct master_member *mb, uint64_t size)
{
	uint64_t room = master_place_free(mb);

	return mb->accepting && room >= size &&
	       room - size > mb->capacity / 50;
}

bool master_place_evictable(const struct master_member *mb, uint64_t size)
{
	uint64_t can = mb->capacity + mb->evictable;
	uint64_t taken = mb->used + mb->promised + mb->capacity / 50;

	return can > taken && can - taken > size;
}

static const struct master_member *holder_member(const struct master_members *ms,
						 const struct master_file *f,
						 unsigned int pos)
{
	master_holder h = master_file_holders(f)[pos];

	if (!master_holder_stands(ms, h))
		return NULL;
	return master_member_at(ms, master_holder_index(h));
}

unsigned int master_place_copies(const struct master_members *ms,
				 const struct master_file *f,
				 unsigned int except)
{
	unsigned int i, n = 0;

	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = holder_member(ms, f, i);

		n += mb && mb->is_store && mb->index != except;
	}
	return n;
}

static bool same_host(const struct master_members *ms,
		      const struct master_file *f,
		      const struct master_member *candidate)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = holder_member(ms, f, i);

		if (mb && mb->is_store && candidate->host_id[0] &&
		    !strcmp(mb->host_id, candidate->host_id))
			return true;
	}
	return false;
}

/* Lower is better. */
static unsigned int rank(const struct master_members *ms,
			 const struct master_file *f,
			 const struct master_member *mb, unsigned int avoid)
{
	return (mb->index == avoid ? 2u : 0u) +
	       (same_host(ms, f, mb) ? 1u : 0u);
}

static bool at_bounds(const struct master_member *mb)
{
	return mb->coming >= MASTER_COMING_MAX ||
	       (mb->coming && mb->promised >= MASTER_COMING_BYTES);
}

static bool fits(const struct master_member *mb, uint64_t size, bool evicting)
{
	return master_place_room(mb, size) ||
	       (evicting && master_place_evictable(mb, size));
}

static int choose(const struct master_members *ms, const struct master_file *f,
		  unsigned int avoid, bool evicting,
		  struct master_member **ret)
{
	struct master_member *best = NULL;
	unsigned int i, best_rank = 0, r;
	bool busy = false;

	for (i = 0; i < ms->n; i++) {
		struct master_member *mb = ms->by_index[i];

		if (!master_member_alive(mb) || !mb->is_store)
			continue;
		if (!fits(mb, f->size, evicting) ||
		    master_file_find_holder(f, mb->index) >= 0)
			continue;
		if (at_bounds(mb)) {
			busy = true;
			continue;
		}
		r = rank(ms, f, mb, avoid);
		if (!best || r < best_rank ||
		    (r == best_rank &&
		     master_place_free(mb) > master_place_free(best))) {
			best = mb;
			best_rank = r;
		}
	}
	if (!best)
		return busy ? -EBUSY : -ENOSPC;
	*ret = best;
	return 0;
}

int master_place_target(const struct master_members *ms,
			const struct master_file *f, unsigned int avoid,
			struct master_member **ret)
{
	int err = choose(ms, f, avoid, false, ret);

	if (err == -ENOSPC && master_place_copies(ms, f, MASTER_NOBODY) == 0)
		err = choose(ms, f, avoid, true, ret);
	return err;
}

static bool leaving_bound(const struct master_member *from)
{
	return from->leaving >= MASTER_COMING_MAX ||
	       (from->leaving && from->leaving_bytes >= MASTER_COMING_BYTES);
}

enum master_verdict master_place_evict(const struct master_members *ms,
				       const struct master_file *f,
				       const struct master_member *from,
				       const struct pool_rules *rules,
				       bool ready,
				       struct master_member **ret_target)
{
	bool kept;
	int err;

	if (master_place_copies(ms, f, from->index) >= rules->replicas)
		return MASTER_GRANT;
	if (!ready)
		return MASTER_REFUSE;
	kept = rules->class == POOL_CLASS_NOEVICT ||
	       rules->pin == POOL_PIN_HARD;
	err = choose(ms, f, MASTER_NOBODY, false, ret_target);
	if (err == -ENOSPC && kept)
		err = choose(ms, f, MASTER_NOBODY, true, ret_target);
	if (err == -EBUSY)
		return MASTER_REFUSE;
	if (!err)
		return leaving_bound(from) ? MASTER_REFUSE : MASTER_MOVE;
	/* Slow moves make it ask again: what is on its way will be room. */
	if (from->leaving)
		return MASTER_REFUSE;
	return kept ? MASTER_KEEP : MASTER_LAST;
}
