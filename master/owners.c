#include "master/owners.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "master/map.h"

static void owner_init(struct master_owner *w, struct master_account a)
{
	memset(w, 0, sizeof(*w));
	pool_list_init(&w->link);
	pool_list_init(&w->tombs);
	pool_list_init(&w->unkept);
	pool_list_init(&w->lost);
	w->account = a;
}

void master_owners_init(struct master_owners *o,
			const struct pool_quota *quota)
{
	int i;

	memset(o, 0, sizeof(*o));
	pool_hash_init(&o->by_account);
	pool_list_init(&o->unkept);
	pool_list_init(&o->lost);
	for (i = 0; i < MASTER_OWNER_KINDS * MASTER_OWNER_CLASSES; i++)
		pool_list_init(&o->classes[0][0] + i);
	owner_init(&o->anyone, master_account_of_owner(MASTER_UID_ANYONE));
	o->quota = quota;
}

static struct master_owner *owner_of(struct pool_hash_node *n)
{
	return pool_container_of(n, struct master_owner, hash);
}

static void free_owner(struct pool_hash_node *n, void *arg)
{
	pool_hash_remove(&((struct master_owners *)arg)->by_account, n);
	free(owner_of(n));
}

void master_owners_fini(struct master_owners *o)
{
	pool_hash_each(&o->by_account, free_owner, o);
	pool_hash_fini(&o->by_account);
}

static uint32_t hash_of(struct master_account a)
{
	uint64_t key = (uint64_t)a.kind << 32 | a.id;

	return (uint32_t)XXH3_64bits(&key, sizeof(key));
}

static struct master_owner *find(const struct master_owners *o,
				 struct master_account a)
{
	struct pool_hash_node *n = pool_hash_first(&o->by_account, hash_of(a));

	while (n && !master_account_same(owner_of(n)->account, a))
		n = pool_hash_next(n);
	return n ? owner_of(n) : NULL;
}

struct master_owner *master_owners_of(struct master_owners *o,
				      struct master_account a)
{
	struct master_owner *w = find(o, a);

	if (w || master_account_same(a, o->anyone.account) ||
	    o->by_account.count >= MASTER_OWNERS_MAX)
		return w ? w : &o->anyone;
	w = malloc(sizeof(*w));
	if (!w)
		return &o->anyone;
	owner_init(w, a);
	if (pool_hash_insert(&o->by_account, &w->hash, hash_of(a))) {
		free(w);
		return &o->anyone;
	}
	return w;
}

static enum master_owner_kind kind_of(const struct master_owners *o,
				      const struct master_owner *w)
{
	if (w == &o->anyone)
		return MASTER_OWNER_ANYONE;
	return w->account.kind == MASTER_BY_OWNER &&
			       pool_quota_privileged(o->quota, w->account.id) ?
		       MASTER_OWNER_ROOT :
		       MASTER_OWNER_USER;
}

/* The weight in the unit of the map's bounds: MASTER_GRAVE_BYTES for each
 * tombstone, or the bytes of all, whichever is more. */
static uint64_t weight(const struct master_owner *w)
{
	uint64_t n = w->n * MASTER_GRAVE_BYTES;

	return n > w->bytes ? n : w->bytes;
}

static void weigh(struct master_owners *o, struct master_owner *w, int64_t n,
		  uint64_t bytes)
{
	enum master_owner_kind k = kind_of(o, w);
	uint64_t was = weight(w), is;

	w->n += (uint64_t)n;
	w->bytes += bytes;
	is = weight(w);
	o->weight[k] += is - was;
	if (was && is && __builtin_clzll(was) == __builtin_clzll(is))
		return;
	pool_list_del(&w->link);
	if (is)
		pool_list_add_tail(
			&o->classes[k][63 - __builtin_clzll(is)], &w->link);
}

void master_owner_add(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes)
{
	pool_list_add_tail(&w->tombs, own);
	weigh(o, w, 1, bytes);
}

void master_owner_sub(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes)
{
	pool_list_del(own);
	weigh(o, w, -1, -bytes);
	if (!w->n && !w->lost_wall_ns && w != &o->anyone)
		free_owner(&w->hash, o);
}

static struct master_owner *heaviest(const struct master_owners *o,
				     enum master_owner_kind k)
{
	int i;

	for (i = MASTER_OWNER_CLASSES - 1; i >= 0; i--)
		if (!pool_list_empty(&o->classes[k][i]))
			return pool_list_first(&o->classes[k][i],
					       struct master_owner, link);
	return NULL;
}

/* The kind of owner that loses a tombstone: root if it has more than half of
 * the bound; else users, if they have any; else root. */
static enum master_owner_kind victims(const struct master_owners *o,
				      uint64_t max_weight)
{
	uint64_t roots = o->weight[MASTER_OWNER_ROOT];

	if (roots > max_weight / 2)
		return MASTER_OWNER_ROOT;
	if (o->weight[MASTER_OWNER_USER])
		return MASTER_OWNER_USER;
	return roots ? MASTER_OWNER_ROOT : MASTER_OWNER_ANYONE;
}

struct pool_list *master_owners_victim(const struct master_owners *o,
				       uint64_t max_weight)
{
	struct master_owner *w = heaviest(o, victims(o, max_weight));

	assert(w && !pool_list_empty(&w->tombs));
	return w->tombs.next;
}

void master_owner_lost(struct master_owners *o, struct master_owner *w,
		       uint64_t wall_ns, uint64_t seq)
{
	if (seq > w->lost_seq)
		w->lost_seq = seq;
	if (wall_ns <= w->lost_wall_ns)
		return;
	w->lost_wall_ns = wall_ns;
	if (pool_list_empty(&w->lost))
		pool_list_add_tail(&o->lost, &w->lost);
	if (pool_list_empty(&w->unkept))
		pool_list_add_tail(&o->unkept, &w->unkept);
}

static void raise_to(const struct master_owner *w, uint64_t *wall_ns,
		     uint64_t *seq)
{
	if (w->lost_wall_ns > *wall_ns)
		*wall_ns = w->lost_wall_ns;
	if (w->lost_seq > *seq)
		*seq = w->lost_seq;
}

void master_owners_lost(const struct master_owners *o, struct master_account a,
			uint64_t *wall_ns, uint64_t *seq)
{
	const struct master_owner *w = find(o, a);

	raise_to(&o->anyone, wall_ns, seq);
	if (w)
		raise_to(w, wall_ns, seq);
}

struct master_owner *master_owners_next_lost(const struct master_owners *o,
					     const struct master_owner *after)
{
	const struct pool_list *next = after ? after->lost.next : o->lost.next;

	return next == &o->lost ?
		       NULL :
		       pool_list_entry((struct pool_list *)(uintptr_t)next,
				       struct master_owner, lost);
}
