/*
 * Parts of a file's entry: holders, attributes, rules.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/map.h"

/* ---- holders ---- */

static master_holder *holders(struct master_file *f)
{
	return f->holders_cap ? f->holders.heap : f->holders.in;
}

int master_file_find_holder(const struct master_file *f, unsigned int index)
{
	const master_holder *h = master_file_holders(f);
	int i;

	for (i = 0; i < f->nholders; i++)
		if (master_holder_index(h[i]) == index)
			return i;
	return -1;
}

unsigned int master_file_extras(const struct master_file *f)
{
	unsigned int i, n = 0;

	for (i = 0; i < f->nholders; i++)
		n += master_holder_extra(master_file_holders(f)[i]);
	return n;
}

void master_file_doubt_holder(struct master_file *f, unsigned int pos)
{
	holders(f)[pos] |= MASTER_HOLDER_EXTRA;
	f->unsure = 1;
}

static int grow_holders(struct master_file *f)
{
	unsigned int cap = f->holders_cap ? f->holders_cap * 2u :
					    MASTER_HOLDERS_INLINE * 2u;
	master_holder *heap;

	if (cap > MASTER_HOLDERS_MAX)
		cap = MASTER_HOLDERS_MAX;
	heap = malloc(cap * sizeof(*heap));
	if (!heap)
		return -ENOMEM;
	memcpy(heap, holders(f), f->nholders * sizeof(*heap));
	if (f->holders_cap)
		free(f->holders.heap);
	f->holders.heap = heap;
	f->holders_cap = (uint8_t)cap;
	return 0;
}

int master_file_add_holder(struct master_map *m, struct master_file *f,
			   master_holder h)
{
	int pos = master_file_find_holder(f, master_holder_index(h));
	unsigned int cap;
	int err;

	if (!master_holder_extra(h))
		f->unsure = 0;
	if (pos >= 0) {
		if (!master_holder_extra(holders(f)[pos]))
			h &= (master_holder)~MASTER_HOLDER_EXTRA;
		holders(f)[pos] = h;
		return 0;
	}
	if (f->nholders == MASTER_HOLDERS_MAX) {
		m->holders_full++;
		return -ENOSPC;
	}
	cap = f->holders_cap ? f->holders_cap : MASTER_HOLDERS_INLINE;
	if (f->nholders == cap) {
		err = grow_holders(f);
		if (err)
			return err;
	}
	holders(f)[f->nholders++] = h;
	return 1;
}

void master_file_remove_holder(struct master_file *f, unsigned int pos)
{
	master_holder *h = holders(f);

	h[pos] = h[--f->nholders];
	if (!f->nholders)
		master_file_clear_holders(f);
}

void master_file_clear_holders(struct master_file *f)
{
	if (f->holders_cap)
		free(f->holders.heap);
	f->holders_cap = 0;
	f->nholders = 0;
}

/* ---- attributes and rules ---- */

struct master_extra *master_extra_get(struct master_extra **slot)
{
	if (!*slot)
		*slot = calloc(1, sizeof(**slot));
	return *slot;
}

void master_extra_trim(struct master_extra **slot)
{
	struct master_extra *x = *slot;

	if (!x || x->need || x->xattrs || !pool_rules_empty(&x->rules))
		return;
	free(x);
	*slot = NULL;
}

int master_extra_set(struct master_extra **slot, struct pool_xattrs *xattrs,
		     const struct pool_rules *rules)
{
	struct master_extra *x;

	if (!xattrs && pool_rules_empty(rules) && !*slot)
		return 0;
	x = master_extra_get(slot);
	if (!x)
		return -ENOMEM;
	pool_xattrs_free(x->xattrs);
	x->xattrs = xattrs;
	x->rules = *rules;
	master_extra_trim(slot);
	return 0;
}

void master_file_rules(const struct master_file *f, uint64_t now_wall_ns,
		       struct pool_rules *ret_rules)
{
	const struct pool_dir *d;

	memset(ret_rules, 0, sizeof(*ret_rules));
	if (f->extra)
		*ret_rules = f->extra->rules;
	for (d = f->e.parent; d; d = d->e.parent) {
		const struct master_dir *md = (const void *)d;

		if (md->extra)
			pool_rules_inherit(ret_rules, &md->extra->rules);
	}
	pool_rules_default(ret_rules);
	if (ret_rules->pin == POOL_PIN_SOFT && ret_rules->pin_until_ns &&
	    ret_rules->pin_until_ns <= now_wall_ns)
		ret_rules->pin = POOL_PIN_NONE;
}
