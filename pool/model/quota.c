#include "pool/model/quota.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <xxhash.h>

#include "pool/base/list.h"

struct owner {
	struct pool_hash_node hash;
	uint32_t uid;
	struct pool_usage used; /* not both 0 */
};

void pool_quota_init(struct pool_quota *q)
{
	memset(q, 0, sizeof(*q));
	pool_hash_init(&q->owners);
	pool_quota_limit(q, 0, 0);
	q->self = geteuid();
}

static struct owner *owner_of(struct pool_hash_node *n)
{
	return pool_container_of(n, struct owner, hash);
}

static void free_owner(struct pool_hash_node *n, void *arg)
{
	pool_hash_remove(&((struct pool_quota *)arg)->owners, n);
	free(owner_of(n));
}

void pool_quota_fini(struct pool_quota *q)
{
	pool_hash_each(&q->owners, free_owner, q);
	pool_hash_fini(&q->owners);
}

void pool_quota_limit(struct pool_quota *q, uint64_t dirs, uint64_t bytes)
{
	q->max.dirs = dirs ? dirs : POOL_QUOTA_DIRS;
	q->max.bytes = bytes ? bytes : POOL_QUOTA_BYTES;
}

static uint32_t hash_of(uint32_t uid)
{
	return (uint32_t)XXH3_64bits(&uid, sizeof(uid));
}

static struct owner *find(const struct pool_quota *q, uint32_t uid)
{
	struct pool_hash_node *n = pool_hash_first(&q->owners, hash_of(uid));

	while (n && owner_of(n)->uid != uid)
		n = pool_hash_next(n);
	return n ? owner_of(n) : NULL;
}

struct pool_usage pool_quota_of(const struct pool_quota *q, uint32_t uid)
{
	static const struct pool_usage none;
	const struct owner *o = find(q, uid);

	return o ? o->used : none;
}

bool pool_quota_privileged(const struct pool_quota *q, uint32_t uid)
{
	return uid == 0 || uid == q->self;
}

uint64_t pool_quota_bound(const struct pool_quota *q, uint32_t uid,
			  uint64_t max)
{
	return pool_quota_privileged(q, uid) ? max : max - max / 8;
}

/* Checks one resource: directories or bytes. */
static int check(const struct pool_quota *q, uint32_t uid, uint64_t max,
		 uint64_t used, uint64_t own, uint64_t more)
{
	if (!more)
		return 0;
	if (!pool_quota_privileged(q, uid) && own + more > max / 4)
		return -EDQUOT;
	return used + more > pool_quota_bound(q, uid, max) ? -ENOSPC : 0;
}

int pool_quota_check(const struct pool_quota *q, uint32_t uid, uint64_t dirs,
		     uint64_t bytes)
{
	struct pool_usage own;
	int err;

	if (!dirs && !bytes)
		return 0;
	own = pool_quota_of(q, uid);
	err = check(q, uid, q->max.dirs, q->used.dirs, own.dirs, dirs);
	return err ? err : check(q, uid, q->max.bytes, q->used.bytes, own.bytes,
				 bytes);
}

static struct owner *make(struct pool_quota *q, uint32_t uid)
{
	struct owner *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	o->uid = uid;
	if (pool_hash_insert(&q->owners, &o->hash, hash_of(uid))) {
		free(o);
		return NULL;
	}
	return o;
}

void pool_quota_add(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes)
{
	struct owner *o;

	if (!dirs && !bytes)
		return;
	q->used.dirs += dirs;
	q->used.bytes += bytes;
	o = find(q, uid);
	if (!o)
		o = make(q, uid);
	if (!o)
		return;
	o->used.dirs += dirs;
	o->used.bytes += bytes;
}

/* *from may be less than n: an addition that found no memory for the owner's
 * account was counted only in the total. */
static void take(uint64_t *from, uint64_t n)
{
	*from -= n < *from ? n : *from;
}

void pool_quota_sub(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes)
{
	struct owner *o = find(q, uid);

	assert(q->used.dirs >= dirs && q->used.bytes >= bytes);
	q->used.dirs -= dirs;
	q->used.bytes -= bytes;
	if (!o)
		return;
	take(&o->used.dirs, dirs);
	take(&o->used.bytes, bytes);
	if (o->used.dirs || o->used.bytes)
		return;
	pool_hash_remove(&q->owners, &o->hash);
	free(o);
}

/* ---- for tests ---- */

struct comparison {
	const struct pool_quota *with;
	bool equal;
};

static void compare(struct pool_hash_node *n, void *arg)
{
	const struct owner *o = owner_of(n);
	struct comparison *c = arg;
	struct pool_usage u = pool_quota_of(c->with, o->uid);

	c->equal &= u.dirs == o->used.dirs && u.bytes == o->used.bytes;
}

bool pool_quota_equal(struct pool_quota *a, struct pool_quota *b)
{
	struct comparison c = { b, a->used.dirs == b->used.dirs &&
				   a->used.bytes == b->used.bytes &&
				   a->owners.count == b->owners.count };

	pool_hash_each(&a->owners, compare, &c);
	return c.equal;
}
