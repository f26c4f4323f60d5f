#include "pool/base/slots.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define SLOTS_FIRST 64
#define SLOTS_MAX (1ull << 31)

static void *tagged(size_t next)
{
	return (void *)(uintptr_t)(next << 1 | 1);
}

static bool is_free(const void *at)
{
	return (uintptr_t)at & 1;
}

void pool_slots_init(struct pool_slots *s)
{
	memset(s, 0, sizeof(*s));
}

void pool_slots_fini(struct pool_slots *s)
{
	free(s->at);
	pool_slots_init(s);
}

static int grow(struct pool_slots *s, size_t cap)
{
	void **at = reallocarray(s->at, cap, sizeof(*at));
	size_t i;

	if (!at)
		return -ENOMEM;
	for (i = s->cap; i < cap; i++)
		at[i] = tagged(0);
	s->at = at;
	s->cap = cap;
	s->stale = true;
	return 0;
}

/* Rebuild the free list, in ascending order. */
static void relink(struct pool_slots *s)
{
	size_t i, next = s->cap;

	for (i = s->cap; i > 0; i--)
		if (is_free(s->at[i - 1])) {
			s->at[i - 1] = tagged(next);
			next = i - 1;
		}
	s->free = next;
	s->stale = false;
}

int pool_slots_add(struct pool_slots *s, void *item, uint64_t *ret_n)
{
	int err;

	assert(item && !is_free(item));
	if (s->stale)
		relink(s);
	if (s->free == s->cap) {
		err = grow(s, s->cap ? 2 * s->cap : SLOTS_FIRST);
		if (err)
			return err;
		relink(s);
	}
	*ret_n = s->free;
	s->free = (uintptr_t)s->at[s->free] >> 1;
	s->at[*ret_n] = item;
	return 0;
}

int pool_slots_add_at(struct pool_slots *s, uint64_t n, void *item)
{
	size_t cap = s->cap ? s->cap : SLOTS_FIRST;
	int err;

	assert(item && !is_free(item));
	if (n >= SLOTS_MAX)
		return -ERANGE;
	while (cap <= n)
		cap *= 2;
	if (cap > s->cap) {
		err = grow(s, cap);
		if (err)
			return err;
	}
	if (!is_free(s->at[n]))
		return -EEXIST;
	s->at[n] = item;
	s->stale = true;
	return 0;
}

void *pool_slots_get(const struct pool_slots *s, uint64_t n)
{
	return n < s->cap && !is_free(s->at[n]) ? s->at[n] : NULL;
}

void pool_slots_remove(struct pool_slots *s, uint64_t n)
{
	assert(pool_slots_get(s, n));
	s->at[n] = tagged(s->free);
	s->free = n;
}

uint64_t pool_slots_next(const struct pool_slots *s, uint64_t n)
{
	while (n < s->cap && is_free(s->at[n]))
		n++;
	return n < s->cap ? n : s->cap;
}
