#include "master/place.h"

#include <errno.h>
#include <string.h>

/* Free bytes, without those promised to copies in flight. */
static uint64_t master_place_free(const struct master_member *mb)
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

/* Would it have room after evicting what it may evict? */
static bool master_place_evictable(const struct master_member *mb,
				   uint64_t size)
{
	uint64_t can = mb->capacity + mb->evictable;
	uint64_t taken = mb->used + mb->promised + mb->capacity / 50;

	return can > taken && can - taken > size;
}

/* The store whose copy at that position counts, or NULL. */
static const struct master_member *
holder_member(const struct master_members *ms, const struct master_file *f,
	      unsigned int pos)
{
	master_holder h = master_file_holders(f)[pos];
	const struct master_member *mb;

	if (master_holder_extra(h) || !master_holder_stands(ms, h))
		return NULL;
	mb = master_member_at(ms, master_holder_index(h));
	return mb->is_store ? mb : NULL;
}

unsigned int master_place_copies(const struct master_members *ms,
				 const struct master_file *f,
				 unsigned int except)
{
	unsigned int i, n = 0;

	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = holder_member(ms, f, i);

		n += mb && !mb->drain.on && mb->index != except;
	}
	return n;
}

unsigned int master_place_left(const struct master_members *ms,
			       const struct master_file *f)
{
	unsigned int i, n = 0;

	for (i = 0; i < f->nholders; i++)
		n += holder_member(ms, f, i) != NULL;
	return n;
}

/* ---- surplus ---- */

/* As holder_member, if the node is connected and has confirmed the copy since
 * it joined. */
static const struct master_member *sure_holder(const struct master_members *ms,
					       const struct master_file *f,
					       unsigned int pos)
{
	const struct master_member *mb = holder_member(ms, f, pos);

	if (!master_member_alive(mb) ||
	    master_holder_phase(master_file_holders(f)[pos]) != mb->phase)
		return NULL;
	return mb;
}

/* As master_place_copies, but counts only what sure_holder returns. */
static unsigned int sure_copies(const struct master_members *ms,
				const struct master_file *f,
				unsigned int except)
{
	unsigned int i, n = 0;

	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = sure_holder(ms, f, i);

		n += mb && !mb->drain.on && mb->index != except;
	}
	return n;
}

static bool shares_host(const struct master_members *ms,
			const struct master_file *f, unsigned int pos)
{
	const struct master_member *mb = sure_holder(ms, f, pos), *other;
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		other = sure_holder(ms, f, i);
		if (other && other != mb && mb->host_id[0] &&
		    !strcmp(mb->host_id, other->host_id))
			return true;
	}
	return false;
}

/* Is the copy at a less worth keeping than the one at b? */
static bool less_worth(const struct master_members *ms,
		       const struct master_file *f, unsigned int a,
		       unsigned int b)
{
	bool shares_a = shares_host(ms, f, a), shares_b = shares_host(ms, f, b);

	if (shares_a != shares_b)
		return shares_a;
	return master_place_free(sure_holder(ms, f, a)) <
	       master_place_free(sure_holder(ms, f, b));
}

int master_place_surplus(const struct master_members *ms,
			 const struct master_file *f, unsigned int wanted,
			 const struct master_member *keep)
{
	int worst = -1, drained = -1;
	unsigned int i, stay = 0;

	if (f->nholders <= wanted)
		return -1;
	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = sure_holder(ms, f, i);

		if (!mb)
			continue;
		if (mb->drain.on) {
			if (mb != keep)
				drained = (int)i;
			continue;
		}
		stay++;
		if (mb == keep)
			continue;
		if (worst < 0 || less_worth(ms, f, i, (unsigned int)worst))
			worst = (int)i;
	}
	if (stay >= wanted && drained >= 0)
		return drained;
	return stay > wanted ? worst : -1;
}

/* ---- targets ---- */

static bool same_host(const struct master_members *ms,
		      const struct master_file *f,
		      const struct master_member *candidate)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = holder_member(ms, f, i);

		if (mb && candidate->host_id[0] &&
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
	return (mb->index == avoid ? 4u : 0u) +
	       (same_host(ms, f, mb) ? 2u : 0u) +
	       (master_file_find_holder(f, mb->index) < 0 ? 1u : 0u);
}

/* Cannot take a copy now, but can soon. Before the inventory is complete,
 * WELCOME may still be held back (held.c), and the node's HELD would not
 * arrive. */
static bool is_busy(const struct master_member *mb)
{
	return !mb->inventoried || mb->coming >= MASTER_COMING_MAX ||
	       (mb->coming && mb->promised >= MASTER_COMING_BYTES);
}

enum purpose {
	COPY,	  /* needs room; a store with an extra copy qualifies */
	MUST_KEEP, /* as COPY, but evictable objects count as room */
	EXTRA,	  /* needs room, and a store without any copy */
};

static bool fits(const struct master_member *mb, uint64_t size,
		 enum purpose purpose)
{
	return master_place_room(mb, size) ||
	       (purpose == MUST_KEEP && master_place_evictable(mb, size));
}

static bool may_take(const struct master_file *f,
		     const struct master_member *mb, enum purpose purpose)
{
	int pos;

	if (!master_member_alive(mb) || !mb->is_store || mb->drain.on ||
	    !fits(mb, f->size, purpose))
		return false;
	pos = master_file_find_holder(f, mb->index);
	return pos < 0 ||
	       (purpose != EXTRA &&
		master_holder_extra(master_file_holders(f)[pos]));
}

static int find_target(const struct master_members *ms,
		       const struct master_file *f, unsigned int avoid,
		       enum purpose purpose, struct master_member **ret)
{
	struct master_member *best = NULL;
	unsigned int i, best_rank = 0, r;
	bool busy = false;

	for (i = 0; i < ms->n; i++) {
		struct master_member *mb = ms->by_index[i];

		if (!may_take(f, mb, purpose))
			continue;
		if (is_busy(mb)) {
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
			bool displaces, struct master_member **ret)
{
	int err = find_target(ms, f, avoid, COPY, ret);

	if (err == -ENOSPC && (displaces || master_place_left(ms, f) == 0))
		err = find_target(ms, f, avoid, MUST_KEEP, ret);
	return err;
}

int master_place_extra(const struct master_members *ms,
		       const struct master_file *f, struct master_member **ret)
{
	return find_target(ms, f, MASTER_NOBODY, EXTRA, ret);
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

	if (sure_copies(ms, f, from->index) >= rules->replicas)
		return MASTER_GRANT;
	if (!ready)
		return MASTER_REFUSE;
	/* A client may evict its copy once a store holds the file. */
	if (!from->is_store)
		return master_place_left(ms, f) > 0 ? MASTER_GRANT :
						      MASTER_REFUSE;
	/* Together with the copies of absent nodes there are enough: wait until
	 * these nodes rejoin, or count as gone. */
	if (master_place_copies(ms, f, from->index) >= rules->replicas)
		return MASTER_REFUSE;
	kept = rules->class == POOL_CLASS_NOEVICT ||
	       rules->pin == POOL_PIN_HARD;
	err = find_target(ms, f, MASTER_NOBODY, COPY, ret_target);
	if (err == -ENOSPC && kept)
		err = find_target(ms, f, MASTER_NOBODY, MUST_KEEP, ret_target);
	if (err == -EBUSY)
		return MASTER_REFUSE;
	if (!err)
		return leaving_bound(from) ? MASTER_REFUSE : MASTER_MOVE;
	/* Its moves in flight will free space. If not enough, the node repeats
	 * the EVICT. */
	if (from->leaving)
		return MASTER_REFUSE;
	return kept ? MASTER_KEEP : MASTER_LAST;
}
