/*
 * Local files (struct node_object): states, eviction class, end; their writer
 * part; and the metadata that is stored with the file.
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/pages.h"

/* ---- objects ---- */

/* Is the edge in the drawing in node.h? */
static bool may_become(enum node_state from, enum node_state to)
{
#define TO(state) (1u << NODE_##state)
	static const unsigned int edges[] = {
		[NODE_WRITING] = TO(SEALING) | TO(DROPPED),
		[NODE_SEALING] = TO(PENDING) | TO(WRITING) | TO(DROPPED),
		[NODE_PENDING] = TO(HELD) | TO(WRITING) | TO(DROPPED),
		[NODE_FETCHING] = TO(HELD),
		[NODE_HELD] = TO(PENDING) | TO(DROPPED),
		[NODE_DROPPED] = 0,
	};
#undef TO
	return edges[from] >> to & 1;
}

void node_object_to(struct node_object *o, enum node_state to)
{
	assert(may_become((enum node_state)o->state, to));
	o->state = (uint8_t)to;
}

struct node_object *node_object_new(struct node_entry *e,
				    enum node_state state)
{
	struct node_object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	pool_evict_node_init(&o->ev);
	o->entry = e;
	o->state = (uint8_t)state;
	o->refs = 1;
	o->lent_fd = -1;
	return o;
}

void node_object_set_inode(struct node_object *o, void *inode)
{
	o->fs = inode;
}

void node_object_use(struct node_object *o, uint32_t users)
{
	o->users += users;
}

void node_object_unuse(struct node_object *o)
{
	o->users--;
}

void node_object_uses(struct pool_node *n, struct node_object *o,
		      uint64_t bytes)
{
	uint64_t pages = pool_whole_pages(bytes);

	if (n->store)
		pool_store_use(n->store, (int64_t)(pages - o->uses));
	else /* found while the store is still being opened */
		n->found_bytes += pages - o->uses;
	o->uses = pages;
}

struct node_object *node_object_ref(struct node_object *o)
{
	o->refs++;
	return o;
}

void node_object_unref(struct pool_node *n, struct node_object *o)
{
	assert(o->refs > 0);
	if (--o->refs > 0)
		return;
	assert(!pool_evict_inserted(&o->ev) && !o->w && !o->heat);
	if (o->remains && n)
		pool_store_remove(n->store, o->id);
	if (o->lent_fd >= 0)
		close(o->lent_fd);
	free(o);
}

bool node_object_remains(struct pool_node *n, struct node_object *o)
{
	o->remains = o->users > 0 || (o->w && o->w->opens > 0);
	/* Removes the metadata, so that a start after a crash removes the file.
	 * Not if a store has linked the file and so needs its metadata. Not
	 * while the file is written either: it has none yet, and the call would
	 * block until the write ends. */
	if (o->remains && !(o->w && o->w->opens > 0) &&
	    !pool_store_linked(n->store, o->id))
		(void)pool_store_detach(n->store, o->id);
	return o->remains;
}

static void return_lent(struct pool_node *n, struct node_object *o)
{
	char path[POOL_PATH_MAX + 1];
	struct node_member *m;
	int len;

	n->borrowed--;
	if (!o->entry)
		return;
	len = node_entry_path(&o->entry->e, path);
	m = node_member(n, o->lender);
	if (len > 0 && m)
		pool_peers_return(n->peers, m->addr.id, path, (size_t)len,
				  o->gen);
}

/* Releases RDMA registrations of its pages. (Small objects are sent inline and
 * never have one.) */
static void end_registrations(struct pool_node *n, const struct node_object *o)
{
	int fd = n->opts.verbs && o->size > POOL_INLINE_MAX ?
			 pool_store_fd(n->store, o->id, O_PATH) : -1;

	if (fd >= 0) {
		pool_peers_forget(n->peers, fd);
		close(fd);
	}
}

/* Ends all of o except its file. */
static void end_copy(struct pool_node *n, struct node_object *o, bool evicted)
{
	struct node_entry *e = o->entry;

	assert(o->state == NODE_HELD && e && e->obj == o);
	if (o->prefetched) {
		pool_gauge_add(&n->c.prefetch_unread, -1);
		pool_count(&n->c.prefetch_wasted);
	}
	pool_count(evicted ? &n->c.copies_evicted : &n->c.copies_removed);
	if (evicted && !o->read)
		pool_count(&n->c.evicted_unread);
	if (n->ops)
		n->ops->object_gone(n->ops_arg, o);
	node_heat_forget(n, o);
	pool_evict_remove(n->evict, &o->ev, evicted);
	if (o->w)
		node_writer_free(n, o); /* of an object that no store has */
	if (o->lent_fd >= 0)
		return_lent(n, o);
	else
		end_registrations(n, o);
	node_object_to(o, NODE_DROPPED);
	o->entry = NULL;
	node_set_obj(e, NULL);
}

void node_object_drop(struct pool_node *n, struct node_object *o,
		      bool evicted)
{
	end_copy(n, o, evicted);
	node_object_uses(n, o, 0);
	if (o->lent_fd < 0 && !node_object_remains(n, o))
		pool_store_remove_sealed(n->store, o->id, o->size,
					 evicted);
	node_object_unref(n, o);
}

int node_object_reuse(struct pool_node *n, struct node_object *o,
		      uint64_t size, struct pool_file *ret_file)
{
	int err;

	assert(o->lent_fd < 0);
	end_copy(n, o, true);
	node_object_uses(n, o, 0);
	err = pool_store_reuse(n->store, o->id, size, ret_file);
	node_object_unref(n, o);
	return err;
}

void node_object_held(struct pool_node *n, struct node_entry *e,
		      struct node_object *o)
{
	char path[POOL_PATH_MAX + 1];
	int len;

	if (e->obj && e->obj != o)
		node_object_drop(n, e->obj, false);
	node_set_obj(e, o);
	o->entry = e;
	if (o->state != NODE_HELD)
		pool_count(&n->c.copies);
	node_object_to(o, NODE_HELD);
	len = node_entry_path(&e->e, path);
	o->ev.key = XXH3_64bits(path, len > 0 ? (size_t)len : 0);
	/* A borrowed object uses no bytes of this store. */
	o->ev.size = o->lent_fd >= 0 ? 0 : pool_whole_pages(o->size);
	pool_evict_insert(n->evict, &o->ev,
			  o->counted ? POOL_EVICT_COUNTED : POOL_EVICT_CACHE);
	node_judge(n, o);
}

void node_object_count(struct pool_node *n, struct node_object *o,
		       bool counted)
{
	o->counted = counted;
	if (counted)
		node_heat_forget(n, o);
	node_judge(n, o);
}

/* ---- entries ---- */

const struct node_content *node_base(const struct node_object *o)
{
	const struct node_entry *e = o->entry;
	struct node_writer *w = o->w;

	if (w->base_gen && e->gen == w->base_gen) {
		w->base.sum = e->sum;
		w->base.size = e->size;
		w->base_of = w->base_gen;
	}
	return w->base_gen && w->base_of == w->base_gen ? &w->base : NULL;
}

ptrdiff_t node_blob_pack(const char *path, size_t path_len, uint64_t gen,
			 uint64_t base_gen, const struct node_content *base,
			 uint64_t seen_gen, uint64_t size, XXH128_hash_t sum,
			 const struct node_attr *attr,
			 const struct pool_xattrs *xattrs, void *buf,
			 size_t cap)
{
	Kvpool__Meta m = KVPOOL__META__INIT;
	XXH128_canonical_t canon, base_canon;
	size_t len;
	int err;

	XXH128_canonicalFromHash(&canon, sum);
	if (base) {
		XXH128_canonicalFromHash(&base_canon, base->sum);
		m.base_sum.data = base_canon.digest;
		m.base_sum.len = sizeof(base_canon.digest);
		m.base_size = base->size;
	}
	m.path.data = (uint8_t *)(uintptr_t)path;
	m.path.len = path_len;
	m.gen = gen;
	m.base_gen = base_gen;
	m.seen_gen = seen_gen;
	m.size = size;
	m.sum.data = canon.digest;
	m.sum.len = sizeof(canon.digest);
	m.mode = attr->mode;
	m.uid = attr->uid;
	m.gid = attr->gid;
	m.mtime_ns = attr->mtime_ns;
	m.attr_gen = attr->gen;
	err = pool_xattrs_to_pb(xattrs, &m.xattrs, &m.n_xattrs);
	if (err)
		return err;
	len = kvpool__meta__get_packed_size(&m);
	if (len > cap) {
		free(m.xattrs);
		return -ENOSPC;
	}
	kvpool__meta__pack(&m, buf);
	free(m.xattrs);
	return (ptrdiff_t)len;
}

static ptrdiff_t object_blob(const struct node_object *o, void *buf, size_t cap)
{
	const struct node_entry *e = o->entry;
	/* Once published, the entry has the attributes. */
	const struct node_writer *w = o->state == NODE_HELD ? NULL : o->w;
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&e->e, path);

	if (len < 0)
		return len;
	return node_blob_pack(path, (size_t)len, o->gen,
			      w ? w->base_gen : 0, w ? node_base(o) : NULL,
			      w ? w->seen_gen : o->from, o->size, o->sum,
			      w ? &w->attr : &e->attr,
			      w ? w->xattrs : e->xattrs, buf, cap);
}

static void warn_blob(const struct node_object *o, int err)
{
	char path[POOL_PATH_MAX + 1] = "";

	(void)node_entry_path(&o->entry->e, path);
	pool_warn_limited("metadata of \"%s\": %s", path, strerror(-err));
}

int node_write_blob(struct pool_node *n, struct node_object *o)
{
	uint8_t blob[POOL_BLOB_MAX];
	ptrdiff_t len;
	int err;

	if (o->lent_fd >= 0)
		return 0;
	len = object_blob(o, blob, sizeof(blob));
	if (len < 0)
		return (int)len;
	err = pool_store_set_blob(n->store, o->id, o->size, blob,
				  (size_t)len);
	/* No warning for a cached copy: it may have no metadata, and then a
	 * restart drops it. */
	if (err && o->counted)
		warn_blob(o, err);
	return err;
}

struct fetched_seal {
	struct pool_seal seal;
	const struct node_object *o;
};

static ptrdiff_t fetched_blob(struct pool_seal *ps, void *buf, size_t cap)
{
	return object_blob(pool_container_of(ps, struct fetched_seal, seal)->o,
			   buf, cap);
}

int node_seal_fetched(struct pool_node *n, struct node_object *o, int fd)
{
	struct fetched_seal f = { .o = o };
	int err;

	f.seal.id = o->id;
	f.seal.fd = fd;
	f.seal.have_sum = true;
	f.seal.sum = o->sum;
	f.seal.blob = fetched_blob;
	err = pool_seal_now(n->store, &f.seal);
	if (err)
		warn_blob(o, err);
	return err;
}

bool node_guarded(const struct pool_node *n, const struct node_object *o)
{
	return o->counted && (n->opts.store_size > 0 || o->w);
}

void node_judge(struct pool_node *n, struct node_object *o)
{
	enum pool_evict_class class = o->counted ? POOL_EVICT_COUNTED :
						   POOL_EVICT_CACHE;
	struct pool_rules r;

	if (o->state == NODE_HELD && n->opts.store_size == 0 && o->w) {
		class = POOL_EVICT_UNSTORED;
	} else if (o->state == NODE_HELD && node_guarded(n, o)) {
		pool_node_rules(n, &o->entry->e, &r);
		if (r.class == POOL_CLASS_NOEVICT || r.pin == POOL_PIN_HARD)
			class = POOL_EVICT_KEPT;
	}
	pool_evict_set_class(n->evict, &o->ev, class);
}

struct node_writer *node_writer_new(struct node_object *o)
{
	struct node_writer *w = calloc(1, sizeof(*w));

	if (!w)
		return NULL;
	pool_list_init(&w->link);
	pool_list_init(&w->candidate);
	w->obj = o;
	node_fd_init(&w->fd);
	return w;
}

void node_writer_close_fd(struct pool_node *n, struct node_writer *w)
{
	if (w->fd_kept)
		n->nkept_fds--;
	w->fd_kept = false;
	node_fd_close(n, &w->fd);
}

void node_writer_free(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;

	if (!w)
		return;
	o->w = NULL;
	n->nsealed -= w->phase == WRITER_SEALED;
	pool_list_del(&w->link);
	pool_list_del(&w->candidate);
	if (w->ticket)
		node_barriers_progress(n, w->ticket);
	node_writer_close_fd(n, w);
	if (w->sampling && n->store)
		(void)pool_store_sampling(n->store, false);
	if (w->claimed)
		pool_node_claim_end(n, w->claimed);
	pool_xattrs_free(w->xattrs);
	free(w->before);
	free(w);
}
