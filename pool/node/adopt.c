/*
 * Files that an earlier run left in the store: published objects are HELD again
 * until the master reports otherwise; sealed files without an ack are published
 * again.
 */
#include "pool/node/node_priv.h"
#include "pool/conn/unpack.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool meta_valid(const Kvpool__Meta *m, uint64_t size)
{
	return !m->is_dir && m->sum.len == 16 && m->size == size &&
	       pool_path_check((const char *)m->path.data, m->path.len) == 0;
}

static void adopt_base(struct node_writer *w, const Kvpool__Meta *m)
{
	XXH128_canonical_t canon;

	w->base_gen = m->base_gen;
	if (m->base_sum.len != sizeof(canon.digest))
		return;
	memcpy(canon.digest, m->base_sum.data, sizeof(canon.digest));
	w->base.sum = XXH128_hashFromCanonical(&canon);
	w->base.size = m->base_size;
	w->base_of = m->base_gen;
}

/* A file that was sealed before the restart but not acked: publishes it again.
 */
static int adopt_pending(struct pool_node *n, struct node_entry *e,
			 struct node_object *o, const Kvpool__Meta *m)
{
	struct node_writer *w = node_writer_new(o);
	int err;

	if (!w)
		return -ENOMEM;
	adopt_base(w, m);
	w->seen_gen = m->seen_gen;
	w->again = m->seen_gen != 0;
	node_attr_from_meta(m, &w->attr);
	err = pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &w->xattrs);
	if (err) {
		free(w);
		return err == -ENOMEM ? err : -EBADMSG;
	}
	o->w = w;
	e->own = o;
	node_publish(n, o);
	return 0;
}

/* After a crash the store may hold two versions of a name. The older one was
 * found first: forgets it, and has its file removed once the store is open, or
 * when the handles that an earlier daemon had on it are closed. */
static void forget_older(struct pool_node *n, struct node_entry *e)
{
	struct node_object *old = e->obj;
	uint64_t *ids;

	if (!old)
		return;
	old->remains = node_was_open(n, old->id);
	ids = old->remains ? NULL :
		realloc(n->leftovers, (n->nleftovers + 1) * sizeof(*ids));
	if (ids) {
		ids[n->nleftovers++] = old->id;
		n->leftovers = ids;
	}
	pool_evict_remove(n->evict, &old->ev, false);
	node_object_uses(n, old, 0);
	node_object_to(old, NODE_DROPPED);
	pool_count(&n->c.copies_removed);
	old->entry = NULL;
	node_set_obj(e, NULL);
	node_object_unref(n, old);
}

static int adopt_published(struct pool_node *n, struct node_entry *e,
			   struct node_object *o, const Kvpool__Meta *m)
{
	struct pool_xattrs *xattrs = NULL;

	/* Invalid attributes must not lose the object. */
	if (pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &xattrs) == -ENOMEM)
		return -ENOMEM;
	o->counted = true;
	o->from = m->seen_gen;
	forget_older(n, e);
	node_object_held(n, e, o);
	e->gen = m->gen;
	e->size = o->size;
	e->sum = o->sum;
	node_attr_from_meta(m, &e->attr);
	pool_xattrs_free(e->xattrs);
	e->xattrs = xattrs;
	return 0;
}

/* Raises node->seen_gen to the generations that the earlier run had seen. */
static void note_generations(struct pool_node *n, const Kvpool__Meta *m)
{
	uint64_t attr = pool_gen_epoch(m->attr_gen),
		 epoch = pool_gen_epoch(m->gen);

	if (n->held_epoch < epoch)
		n->held_epoch = epoch;
	if (n->held_epoch < attr)
		n->held_epoch = attr;
	node_seen(n, m->gen);
	node_seen(n, m->attr_gen);
	node_seen(n, m->base_gen);
	node_seen(n, m->seen_gen);
}

static int adopt_file(struct pool_node *n, uint64_t id, const Kvpool__Meta *m)
{
	XXH128_canonical_t canon;
	struct pool_entry *pe;
	struct node_entry *e;
	struct node_object *o;
	int err = node_tree_make(n, (const char *)m->path.data,
				 m->path.len, false, NULL, NULL, &pe);

	if (err)
		return err == -ENOMEM ? err : -ESTALE;
	e = node_file(pe);
	note_generations(n, m);
	if (m->gen == 0 ? e->own != NULL : e->obj && e->obj->gen >= m->gen)
		return -ESTALE;
	o = node_object_new(e, m->gen ? NODE_FETCHING : NODE_PENDING);
	if (!o)
		return -ENOMEM;
	memcpy(canon.digest, m->sum.data, 16);
	o->sum = XXH128_hashFromCanonical(&canon);
	o->id = id;
	o->size = m->size;
	o->gen = m->gen;
	node_object_give(o); /* the earlier run may have sent it to peers */
	err = m->gen ? adopt_published(n, e, o, m) : adopt_pending(n, e, o, m);
	if (err) {
		node_object_unref(n, o);
		return err;
	}
	node_object_uses(n, o, o->size);
	if (m->mtime_ns > pool_node_dir_mtime(node_dir(&e->e.parent->e)))
		pool_node_dir_touch(node_dir(&e->e.parent->e), m->mtime_ns);
	return node_was_open(n, id) ? node_was_open_found(n, o) : 0;
}

int node_adopt(void *arg, uint64_t id, uint64_t size, const void *blob,
	       size_t blob_len)
{
	ProtobufCMessage *msg;
	const Kvpool__Meta *m;
	int err = pool_unpack(&pool_kept_bound, blob, blob_len, &msg, NULL);

	if (err)
		return err == -ENOMEM ? err : -EBADMSG;
	m = (const Kvpool__Meta *)msg;
	err = meta_valid(m, size) ? adopt_file(arg, id, m) : -EBADMSG;
	protobuf_c_message_free_unpacked(msg, NULL);
	return err;
}
