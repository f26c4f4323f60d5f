/*
 * Meta messages: validation of received ones, encoding of those to send.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "master/meta.h"

int master_meta_check(const Kvpool__Meta *meta, bool whole)
{
	if (pool_path_check((const char *)meta->path.data, meta->path.len))
		return -EINVAL;
	if (meta->mode & ~07777u)
		return -EINVAL;
	if (whole && (meta->is_dir || meta->sum.len != MASTER_SUM_SIZE))
		return -EINVAL;
	return meta->size > INT64_MAX ? -EINVAL : 0;
}

void master_meta_attrs(const Kvpool__Meta *meta, struct master_attrs *ret)
{
	ret->gen = 0;
	ret->mode = (uint16_t)(meta->mode & 01777u);
	ret->uid = meta->uid;
	ret->gid = meta->gid;
	ret->mtime_ns = meta->mtime_ns;
}

static int read_rules(const struct pool_xattrs *x, bool is_dir, bool strict,
		      uint64_t wall_ns, struct pool_rules *rules)
{
	const char *name;
	const void *value;
	size_t cursor = 0, len;
	int err;

	while (pool_xattrs_next(x, &cursor, &name, &value, &len)) {
		if (strncmp(name, POOL_XATTR_PREFIX,
			    strlen(POOL_XATTR_PREFIX)) != 0)
			continue;
		err = pool_rules_set(rules, name, value, len, is_dir, wall_ns,
				     NULL);
		if (err && strict)
			return err;
	}
	return 0;
}

static bool user_names_only(const Kvpool__Meta *meta)
{
	size_t i;

	for (i = 0; i < meta->n_xattrs; i++)
		if (strncmp(meta->xattrs[i]->name, "user.", 5) != 0 ||
		    !meta->xattrs[i]->name[5])
			return false;
	return true;
}

int master_meta_xattrs(const Kvpool__Meta *meta, bool is_dir, bool strict,
		       uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
		       struct pool_rules *ret_rules)
{
	struct pool_xattrs *x = NULL;
	struct pool_rules rules = { 0 };
	int err;

	if (!user_names_only(meta))
		return -EINVAL;
	if (meta->n_xattrs) {
		err = pool_xattrs_from_pb(meta->xattrs, meta->n_xattrs, &x);
		if (err)
			return err;
		err = read_rules(x, is_dir, strict, wall_ns, &rules);
		if (err) {
			pool_xattrs_free(x);
			return err;
		}
	}
	*ret_xattrs = x;
	*ret_rules = rules;
	return 0;
}

/* Set those of `with` in x, then remove `remove`. */
static int merge(struct pool_xattrs **x, const struct pool_xattrs *with,
		 const char *remove)
{
	size_t cursor = 0, len;
	const char *name;
	const void *value;
	int err = 0;

	while (!err && pool_xattrs_next(with, &cursor, &name, &value, &len))
		err = pool_xattrs_set(x, name, value, len, 0);
	if (!err && remove[0])
		err = pool_xattrs_set(x, remove, NULL, 0, 0);
	return err == -ENODATA ? 0 : err;
}

int master_meta_xattr_each(const Kvpool__Meta *meta, const char *remove,
			   const struct pool_xattrs *old, bool is_dir,
			   uint64_t wall_ns, struct pool_xattrs **ret_xattrs,
			   struct pool_rules *ret_rules)
{
	struct pool_xattrs *each, *x = NULL;
	struct pool_rules rules;
	int err = master_meta_xattrs(meta, is_dir, true, wall_ns, &each,
				     &rules);

	if (err)
		return err;
	err = pool_xattrs_dup(old, &x);
	if (!err)
		err = merge(&x, each, remove);
	pool_xattrs_free(each);
	memset(&rules, 0, sizeof(rules));
	if (!err)
		err = read_rules(x, is_dir, false, wall_ns, &rules);
	if (err) {
		pool_xattrs_free(x);
		return err;
	}
	*ret_xattrs = x;
	*ret_rules = rules;
	return 0;
}

/* ---- batches ---- */

/* Arena bytes that one entry may need: its path twice, and all its holders. */
#define ENTRY_ARENA_MAX (2 * (POOL_PATH_MAX + 16) + MASTER_HOLDERS_MAX * 4 + 8)

struct master_batch *master_batch_start(struct master *m)
{
	assert(!m->buffers->batch.n);
	return &m->buffers->batch;
}

void master_batch_reset(struct master_batch *b)
{
	size_t i;

	for (i = 0; i < b->n; i++)
		free(b->xattrs[i]);
	b->n = b->bytes = b->used = 0;
}

bool master_batch_full(const struct master_batch *b)
{
	/* master_batch_add_feed may add two. */
	return b->n + 2 > POOL_BATCH_MAX || b->bytes >= POOL_BATCH_BYTES ||
	       sizeof(b->arena) - b->used < ENTRY_ARENA_MAX;
}

/* Memory for the current entry, aligned for uint32_t. */
static void *arena_take(struct master_batch *b, size_t len)
{
	void *p = b->arena + b->used;

	b->used += (len + 7) & ~(size_t)7;
	assert(b->used <= sizeof(b->arena));
	return p;
}

static void add_path(struct master_batch *b, const struct pool_entry *e,
		     Kvpool__Meta *out)
{
	char *buf = (char *)b->arena + b->used;
	int len = pool_tree_path(e, buf, POOL_PATH_MAX + 1);

	assert(len >= 0);
	arena_take(b, (size_t)len + 1);
	out->path.data = (uint8_t *)buf;
	out->path.len = (size_t)len;
	b->bytes += (size_t)len;
}

static int add_xattrs(struct master_batch *b, const struct master_extra *x,
		      Kvpool__Meta *out)
{
	Kvpool__Xattr **list = NULL;
	size_t n = 0, i;
	int err;

	if (!x || !x->xattrs)
		return 0;
	err = pool_xattrs_to_pb(x->xattrs, &list, &n);
	if (err)
		return err;
	b->xattrs[b->n] = list;
	out->xattrs = list;
	out->n_xattrs = n;
	for (i = 0; i < n; i++)
		b->bytes += strlen(list[i]->name) + list[i]->value.len + 8;
	return 0;
}

static int add_file(struct master_batch *b, struct master_file *f,
		    Kvpool__Meta *out)
{
	const master_holder *h = master_file_holders(f);
	unsigned int i;

	add_path(b, &f->e, out);
	out->gen = f->gen;
	out->attr_gen = f->attr_gen;
	out->size = f->size;
	out->sum.data = f->sum;
	out->sum.len = MASTER_SUM_SIZE;
	out->mode = f->mode;
	out->uid = f->uid;
	out->gid = f->gid;
	out->mtime_ns = f->mtime_ns;
	out->holders = arena_take(b, f->nholders * sizeof(uint32_t));
	for (i = 0; i < f->nholders; i++)
		if (!f->unsure || !master_holder_extra(h[i]))
			out->holders[out->n_holders++] =
				master_holder_index(h[i]);
	return add_xattrs(b, f->extra, out);
}

static int add_dir(struct master_batch *b, struct master_dir *d,
		   Kvpool__Meta *out)
{
	add_path(b, &d->d.e, out);
	out->is_dir = 1;
	out->mode = d->mode;
	out->uid = d->uid;
	out->gid = d->gid;
	out->mtime_ns = d->mtime_ns;
	out->set = d->set;
	return add_xattrs(b, d->extra, out);
}

static void add_grave(struct master_batch *b, struct master_grave *g,
		      Kvpool__Meta *out)
{
	out->path.data = (uint8_t *)g->path;
	out->path.len = g->path_len;
	out->is_dir = g->is_dir;
	out->gen = g->is_dir ? 0 : master_grave_upto(g);
	out->deleted = 1;
	b->bytes += g->path_len;
}

static Kvpool__Meta *start_meta(struct master_batch *b,
				const struct master_item *i)
{
	Kvpool__Meta *out = &b->metas[b->n];

	kvpool__meta__init(out);
	b->list[b->n] = out;
	b->xattrs[b->n] = NULL;
	out->seq = i->seq;
	b->bytes += 96; /* the fixed fields */
	return out;
}

/* Adds the deletion of the directory that was here before the file, or of the
 * file that was here before the directory. False: there was none. */
static bool add_former(struct master_batch *b, struct master_item *i)
{
	bool was_dir = i->kind == MASTER_FILE && master_item_file(i)->was_dir;
	bool was_file = i->kind == MASTER_DIR && master_item_dir(i)->file;
	struct master_grave *g =
		i->kind == MASTER_GRAVE ? master_item_grave(i) : NULL;
	Kvpool__Meta *out;

	if (!was_dir && !was_file &&
	    (!g || !g->is_dir || !master_grave_upto(g)))
		return false;
	out = start_meta(b, i);
	if (g) {
		add_grave(b, g, out);
		out->is_dir = 0;
		out->gen = master_grave_upto(g);
	} else {
		add_path(b, was_dir ? &master_item_file(i)->e :
				      &master_item_dir(i)->d.e, out);
		out->is_dir = was_dir;
	}
	out->deleted = 1;
	b->n++;
	return true;
}

int master_batch_add_feed(struct master_batch *b, struct master_item *i)
{
	int err;

	if (!add_former(b, i))
		return master_batch_add(b, i);
	err = master_batch_add(b, i);
	if (err)
		b->n--;
	return err;
}

int master_batch_add(struct master_batch *b, struct master_item *i)
{
	Kvpool__Meta *out = start_meta(b, i);
	int err = 0;

	switch ((enum master_kind)i->kind) {
	case MASTER_FILE:
		err = add_file(b, master_item_file(i), out);
		break;
	case MASTER_DIR:
		err = add_dir(b, master_item_dir(i), out);
		break;
	case MASTER_GRAVE:
		add_grave(b, master_item_grave(i), out);
		break;
	case MASTER_FORMER: /* never sent */
		return -EINVAL;
	}
	if (!err)
		b->n++;
	return err;
}
