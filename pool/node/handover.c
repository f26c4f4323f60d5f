/*
 * Hands a node over to another process, and takes one over: see
 * pool/conn/handover.h.
 *
 * Names are handed over with all that the feed brought, so that the feed
 * continues where it was and no name is missing for a moment. Local files stay
 * in the store; their ids are handed over, those of unpublished files, too. Not
 * handed over: transfers in flight (requested again), descriptors borrowed from
 * peers (the node forgets that copy; open handles keep it), ready files, the
 * order of eviction, heat.
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- handing over ---- */

const char *pool_node_busy(struct pool_node *n)
{
	if (!pool_list_empty(&n->sealing) || !pool_list_empty(&n->small_seals))
		return "files are being sealed";
	if (!pool_list_empty(&n->claims))
		return "a write or a fetch waits for space";
	if (!pool_list_empty(&n->barriers))
		return "an fsync waits";
	if (!pool_list_empty(&n->rewrites))
		return "a file that is opened for writing is being copied";
	if (pool_store_busy(n->store))
		return "workers have files of the store";
	return n->closing ? "the daemon is ending" : NULL;
}

static void put_learn(const struct node_learn *l, Kvpool__HandoverLearn *m)
{
	kvpool__handover_learn__init(m);
	m->last = l->last;
	m->largest = l->largest;
	m->count = l->count;
	m->varied = l->varied;
}

static void put_attr(const struct node_attr *a, Kvpool__Meta *m)
{
	m->mode = a->mode;
	m->uid = a->uid;
	m->gid = a->gid;
	m->mtime_ns = a->mtime_ns;
	m->attr_gen = a->gen;
}

static void put_node(struct pool_node *n, struct pool_handover *h)
{
	Kvpool__HandoverNode m = KVPOOL__HANDOVER_NODE__INIT;
	Kvpool__NodeInfo *info = calloc(n->nmembers + 1, sizeof(*info));
	Kvpool__NodeInfo **list = calloc(n->nmembers + 1, sizeof(*list));
	Kvpool__HandoverLearn learn;
	unsigned int i;
	bool whole;

	if (!info || !list) {
		h->err = -ENOMEM;
		goto out;
	}
	for (i = 0; i < n->nmembers; i++) {
		const struct node_member *mb = &n->members[i];
		Kvpool__NodeInfo *x = &info[m.n_members];

		if (!mb->known)
			continue;
		kvpool__node_info__init(x);
		x->index = i;
		x->id.data = (uint8_t *)(uintptr_t)mb->addr.id;
		x->id.len = POOL_ID_SIZE;
		x->name = (char *)(uintptr_t)mb->name;
		x->advertise = (char *)(uintptr_t)mb->advertise;
		x->unix_path = (char *)(uintptr_t)mb->addr.unix_path;
		x->host_id = (char *)(uintptr_t)mb->host_id;
		x->data_mode = (char *)(uintptr_t)mb->data_mode;
		x->program = (char *)(uintptr_t)mb->program;
		x->is_store = mb->is_store;
		x->is_mount = mb->is_mount;
		x->alive = mb->alive;
		x->capacity = mb->capacity;
		x->used = mb->used;
		x->evictable = mb->evictable;
		x->objects = mb->objects;
		x->sent_bytes = mb->sent_bytes;
		x->draining = mb->draining;
		x->drained_percent = mb->drained_percent;
		list[m.n_members++] = x;
	}
	m.members = list;
	m.store_dir = (char *)(uintptr_t)pool_store_path(n->store);
	m.store_size = pool_store_size(n->store);
	m.client = n->opts.store_size == 0;
	if (n->self) {
		m.namespaces = (char **)(uintptr_t)n->self->dirs;
		m.n_namespaces = n->self->ndirs;
	}
	m.epoch = n->epoch;
	m.index = n->index;
	/* After an incomplete picture or sweep, the whole picture is requested
	 * again. */
	whole = !n->in_picture && !node_feed_sweeping(n);
	m.feed_epoch = whole ? n->feed_epoch : 0;
	m.feed_seq = whole ? n->feed_seq : 0;
	m.complete = n->complete;
	m.op_seq = n->op_seq;
	m.ops_run = n->ops_run;
	m.ops_done = n->ops_done;
	m.ops_given = n->ops_given;
	m.ticket = n->ticket;
	m.seen_gen = n->seen_gen;
	m.next_cookie = n->tree.next_cookie;
	put_learn(&n->learn, &learn);
	m.learn = &learn;
	pool_handover_put(h, POOL_HANDOVER_NODE, &m.base);
out:
	free(info);
	free(list);
}

/* Sets m->before. Its storage is one allocation, which begins with the list. */
static void put_before(const struct node_before *b, Kvpool__HandoverWriter *m)
{
	struct node_before_pb *pb = b ? malloc(sizeof(*pb)) : NULL;

	if (!pb)
		return;
	m->before = pb->list;
	m->n_before = node_before_to_pb(b, NULL, pb);
}

Kvpool__HandoverWriter *
node_orphan_hand_over(struct pool_node *n, const struct node_object *o)
{
	const struct node_writer *w = o->w;
	Kvpool__HandoverWriter *m = w ? calloc(1, sizeof(*m)) : NULL;
	Kvpool__Meta *attr = m ? calloc(1, sizeof(*attr)) : NULL;

	if (!attr) {
		free(m);
		return NULL;
	}
	kvpool__handover_writer__init(m);
	kvpool__meta__init(attr);
	m->attr = attr;
	put_attr(&w->attr, attr);
	attr->base_gen = w->base_gen;
	(void)pool_xattrs_to_pb(w->xattrs, &attr->xattrs, &attr->n_xattrs);
	m->phantom_gen = w->phantom_gen;
	m->reserved = w->reserved;
	m->claimed = w->claimed;
	m->breached = pool_store_breaches(n->store) != w->breaches;
	m->opens = w->opens;
	m->poison = w->poison;
	m->served = w->served;
	m->scratch = w->scratch;
	m->flushed = w->phase != WRITER_OPEN;
	m->renamed = w->renamed;
	m->pristine_copy = w->pristine_copy;
	m->queued = w->phase == WRITER_RETRYING;
	m->was_held = w->was_held;
	m->seen_gen = w->seen_gen;
	m->again = w->again;
	put_before(w->before, m);
	m->stamp_ns = w->stamp_ns;
	m->emptied_ns = w->emptied_ns;
	m->begun_ns = w->begun_ns;
	m->idle_ms = pool_now_ms() - w->touched_ms;
	return m;
}

void node_writer_msg_free(Kvpool__HandoverWriter *m)
{
	if (!m)
		return;
	free(m->attr->xattrs); /* its elements are the writer's */
	free(m->before);
	free(m->attr);
	free(m);
}

static Kvpool__HandoverFile *put_file(struct pool_node *n,
				      const struct node_object *o,
				      Kvpool__HandoverFile *m,
				      XXH128_canonical_t *sum)
{
	if (!o || o->lent_fd >= 0 || o->state == NODE_FETCHING)
		return NULL;
	assert(o->state == NODE_WRITING || o->state == NODE_PENDING ||
	       o->state == NODE_HELD);
	kvpool__handover_file__init(m);
	XXH128_canonicalFromHash(sum, o->sum);
	m->id = o->id;
	m->gen = o->gen;
	m->from = o->from;
	m->size = o->size;
	m->sum.data = sum->digest;
	m->sum.len = sizeof(sum->digest);
	m->sealed = o->state == NODE_PENDING;
	m->counted = o->counted;
	m->verified = o->verified;
	m->writer = node_orphan_hand_over(n, o);
	return m;
}

static void put_name(struct pool_node *n, struct pool_entry *pe,
		     struct pool_handover *h)
{
	struct node_entry *e = node_file(pe);
	struct node_dirent *d = node_dir(pe);
	Kvpool__HandoverName m = KVPOOL__HANDOVER_NAME__INIT;
	Kvpool__HandoverLearn learn;
	Kvpool__HandoverFile files[2];
	XXH128_canonical_t sums[3];
	Kvpool__Meta meta = KVPOOL__META__INIT;
	uint32_t holders[NODE_HOLDERS_INLINE];
	char path[POOL_PATH_MAX + 1];
	int i, len = node_entry_path(pe, path);

	if (len < 0 || pool_xattrs_to_pb(d ? d->xattrs : e->xattrs,
					 &meta.xattrs, &meta.n_xattrs) < 0) {
		h->err = -ENOMEM;
		return;
	}
	m.meta = &meta;
	meta.path.data = (uint8_t *)path;
	meta.path.len = (size_t)len;
	meta.is_dir = d != NULL;
	m.cookie = pe->cookie;
	if (d) {
		put_attr(&d->attr, &meta);
		m.known = d->known;
		m.gone = d->gone;
		m.leaving = d->leaving;
		m.removing = d->removing;
		m.mtime_ns = d->mtime_ns;
		m.ctime_ns = d->ctime_ns;
		put_learn(&d->learn, &learn);
		m.learn = &learn;
	} else {
		put_attr(&e->attr, &meta);
		meta.gen = e->gen;
		meta.size = e->size;
		XXH128_canonicalFromHash(&sums[2], e->sum);
		meta.sum.data = sums[2].digest;
		meta.sum.len = sizeof(sums[2].digest);
		for (i = 0; i < e->nholders; i++)
			holders[i] = e->holders[i];
		meta.holders = holders;
		meta.n_holders = e->nholders;
		m.replicas = e->replicas;
		m.hidden_gen = e->hidden_gen;
		m.obj = put_file(n, e->obj, &files[0], &sums[0]);
		m.own = put_file(n, e->own, &files[1], &sums[1]);
	}
	pool_handover_put(h, POOL_HANDOVER_NAME, &m.base);
	free(meta.xattrs);
	node_writer_msg_free(m.obj ? m.obj->writer : NULL);
	node_writer_msg_free(m.own ? m.own->writer : NULL);
}

void pool_node_hand_over(struct pool_node *n, struct pool_handover *h)
{
	struct pool_entry *e;
	int tcp, local;

	pool_peers_fds(n->peers, &tcp, &local);
	pool_handover_set_fd(h, POOL_HANDOVER_FD_PEERS, tcp);
	pool_handover_set_fd(h, POOL_HANDOVER_FD_LOCAL, local);
	pool_handover_set_fd(h, POOL_HANDOVER_FD_STORE,
			     pool_store_lock_fd(n->store));
	put_node(n, h);
	for (e = &n->tree.root->e; e && !h->err;
	     e = pool_tree_next(&n->tree, e))
		put_name(n, e, h);
	if (!h->err)
		node_ops_hand_over(n, h);
}

/* ---- taking over ---- */

static void get_learn(const Kvpool__HandoverLearn *m, struct node_learn *l)
{
	if (!m)
		return;
	l->last = m->last;
	l->largest = m->largest;
	l->count = m->count;
	l->varied = m->varied;
}

/* Are the node's namespaces those of the running daemon? They must be, because
 * the kernel may have cached names by them. */
static bool same_namespaces(const struct pool_node *n,
			    const Kvpool__HandoverNode *m)
{
	static const struct pool_tls_id no_limit;
	struct pool_tls_id had = { .ndirs = (unsigned int)m->n_namespaces };

	if (m->n_namespaces > POOL_TLS_DIRS_MAX)
		return false;
	for (size_t i = 0; i < m->n_namespaces; i++)
		had.dirs[i] = m->namespaces[i];
	return pool_tls_id_same_dirs(&had, n->self ? n->self : &no_limit);
}

static int get_node(struct pool_node *n, const Kvpool__HandoverNode *m)
{
	size_t i;

	if (strcmp(m->store_dir, pool_store_path(n->store)) != 0 ||
	    m->client != (n->opts.store_size == 0)) {
		pool_error("the running daemon's store is %s%s: take over with "
			   "the same --store-dir and --store-size",
			   m->store_dir, m->client ? ", of a client" : "");
		return -EINVAL;
	}
	if (m->store_size != pool_store_size(n->store)) {
		pool_error("the running daemon's store has %llu bytes: take "
			   "over with the same --store-size (or --buffer-size)",
			   (unsigned long long)m->store_size);
		return -EINVAL;
	}
	if (!same_namespaces(n, m)) {
		pool_error("the running daemon's certificate has other "
			   "namespaces: end it, and start a new one");
		return -EINVAL;
	}
	n->epoch = m->epoch;
	n->index = m->index;
	n->feed_epoch = m->feed_epoch;
	n->feed_seq = m->feed_seq;
	n->complete = m->complete;
	n->op_seq = m->op_seq;
	if (m->ops_run)
		n->ops_run = m->ops_run;
	n->ops_done = m->ops_done;
	n->ops_given = m->ops_given;
	if (m->ticket > n->ticket)
		n->ticket = m->ticket;
	n->seen_gen = m->seen_gen;
	get_learn(m->learn, &n->learn);
	for (i = 0; i < m->n_members; i++)
		node_member_apply(n, m->members[i]);
	return 0;
}

static enum writer_phase phase_of(const struct node_object *o,
				  const Kvpool__HandoverWriter *m)
{
	if (o->state == NODE_DROPPED)
		return WRITER_ENDED;
	if (o->state != NODE_WRITING)
		return WRITER_QUEUED;
	if (m->queued)
		return WRITER_RETRYING;
	return m->flushed ? WRITER_CLOSED : WRITER_OPEN;
}

static int get_writer(struct pool_node *n, struct node_object *o,
		      const Kvpool__HandoverWriter *m)
{
	struct node_writer *w = node_writer_new(o);

	if (!w)
		return -ENOMEM;
	if (m->attr) {
		node_attr_from_meta(m->attr, &w->attr);
		w->base_gen = m->attr->base_gen;
		if (pool_xattrs_from_pb(m->attr->xattrs, m->attr->n_xattrs,
					&w->xattrs) < 0) {
			free(w);
			return -EBADMSG;
		}
	}
	w->phantom_gen = m->phantom_gen;
	w->reserved = m->reserved;
	w->claimed = m->claimed;
	n->claimed += m->claimed;
	w->opens = m->opens;
	w->poison = m->poison;
	w->served = m->served;
	w->scratch = m->scratch;
	w->renamed = m->renamed;
	w->pristine_copy = m->pristine_copy;
	w->was_held = m->was_held;
	w->seen_gen = m->seen_gen;
	w->again = m->again;
	node_before_from_pb(n, &w->before, m->before, m->n_before);
	w->stamp_ns = m->stamp_ns;
	w->emptied_ns = m->emptied_ns;
	w->begun_ns = m->begun_ns;
	w->touched_ms = pool_now_ms() - m->idle_ms;
	w->ticket = ++n->ticket;
	w->breaches = pool_store_breaches(n->store) - (m->breached ? 1 : 0);
	w->sampling = !m->served;
	if (w->sampling)
		(void)pool_store_sampling(n->store, true);
	w->phase = phase_of(o, m);
	o->w = w;
	return 0;
}

/* The other process has this file, so the sweep must not remove it. */
static int keep_file(struct pool_node *n, uint64_t id)
{
	uint64_t *ids;

	if (n->nkept % 1024 == 0) {
		ids = reallocarray(n->kept, n->nkept + 1024, sizeof(*ids));
		if (!ids)
			return -ENOMEM;
		n->kept = ids;
	}
	n->kept[n->nkept++] = id;
	return 0;
}

static int get_file(struct pool_node *n, struct node_entry *e,
		    const Kvpool__HandoverFile *m, enum node_state state,
		    struct node_object **ret_o)
{
	struct node_object *o = node_object_new(e, state);
	XXH128_canonical_t canon;
	int err;

	if (!o)
		return -ENOMEM;
	err = m->sum.len == sizeof(canon.digest) ? keep_file(n, m->id) :
						   -EBADMSG;
	if (!err && m->writer)
		err = get_writer(n, o, m->writer);
	if (err) {
		node_object_unref(n, o);
		return err;
	}
	memcpy(canon.digest, m->sum.data, sizeof(canon.digest));
	o->sum = XXH128_hashFromCanonical(&canon);
	o->id = m->id;
	o->gen = m->gen;
	o->from = m->from;
	o->size = m->size;
	o->counted = m->counted;
	o->verified = m->verified;
	*ret_o = o;
	return 0;
}

static int get_dir(struct node_dirent *d, const Kvpool__HandoverName *m)
{
	node_attr_from_meta(m->meta, &d->attr);
	if (pool_xattrs_from_pb(m->meta->xattrs, m->meta->n_xattrs,
				&d->xattrs) < 0)
		return -EBADMSG;
	node_dir_rules(d);
	d->known = m->known;
	d->gone = m->gone && d->d.e.parent;
	d->leaving = m->leaving && !d->gone && d->d.e.parent;
	if (d->gone)
		node_dir(&d->d.e.parent->e)->ngone++;
	d->mtime_ns = m->mtime_ns;
	d->ctime_ns = m->ctime_ns;
	d->removing = m->removing;
	get_learn(m->learn, &d->learn);
	return 0;
}

static int get_files(struct pool_node *n, struct node_entry *e,
		     const Kvpool__HandoverName *m)
{
	struct node_object *o;
	int err;

	if (m->obj) {
		err = get_file(n, e, m->obj, NODE_FETCHING, &o);
		if (err)
			return err;
		node_object_held(n, e, o);
	}
	if (!m->own)
		return 0;
	err = get_file(n, e, m->own,
		       m->own->sealed ? NODE_PENDING : NODE_WRITING, &o);
	if (err)
		return err;
	if (!o->w) {
		node_object_unref(n, o);
		return -EBADMSG;
	}
	e->own = o;
	pool_list_add_tail(m->own->sealed ? &n->pending : &n->writers,
			   &o->w->link);
	node_candidate_update(n, o);
	return 0;
}

static int get_entry(struct pool_node *n, struct node_entry *e,
		     const Kvpool__HandoverName *m)
{
	const Kvpool__Meta *meta = m->meta;
	XXH128_canonical_t canon;
	size_t i;

	if (meta->sum.len != sizeof(canon.digest) ||
	    pool_xattrs_from_pb(meta->xattrs, meta->n_xattrs, &e->xattrs) < 0)
		return -EBADMSG;
	memcpy(canon.digest, meta->sum.data, sizeof(canon.digest));
	e->sum = XXH128_hashFromCanonical(&canon);
	e->gen = meta->gen;
	e->size = meta->size;
	node_attr_from_meta(meta, &e->attr);
	for (i = 0; i < meta->n_holders && i < NODE_HOLDERS_INLINE; i++)
		e->holders[e->nholders++] = (uint16_t)meta->holders[i];
	e->replicas = (uint8_t)m->replicas;
	e->hidden_gen = m->hidden_gen;
	return get_files(n, e, m);
}

static int get_name(void *arg, struct pool_handover *h, const void *msg)
{
	const Kvpool__HandoverName *m = msg;
	struct pool_node *n = arg;
	struct pool_entry *pe = &n->tree.root->e;
	uint64_t next = n->tree.next_cookie;
	int err = 0;

	(void)h;
	if (!m->meta)
		return -EBADMSG;
	if (m->meta->path.len > 0)
		err = node_tree_make(n,
				     (const char *)m->meta->path.data,
				     m->meta->path.len, m->meta->is_dir, NULL,
				     NULL, &pe);
	if (err)
		return err;
	/* Set first, because directories are ordered by cookie. */
	if (pe->parent) {
		if (pe->cookie != next)
			return -EBADMSG; /* twice, or before its directory */
		pe->cookie = m->cookie;
	}
	return pe->is_dir ? get_dir(node_dir(pe), m) :
			    get_entry(n, node_file(pe), m);
}

static int get_ops(void *arg, struct pool_handover *h, const void *msg)
{
	(void)h;
	return node_ops_take_over(arg, msg);
}

int node_take_over(struct pool_node *n, struct pool_handover *h)
{
	Kvpool__HandoverNode *head;
	ProtobufCMessage *msg;
	int err = pool_handover_get(h, POOL_HANDOVER_NODE,
				    &kvpool__handover_node__descriptor, &msg);

	if (!err) {
		head = (Kvpool__HandoverNode *)msg;
		err = get_node(n, head);
		if (!err)
			err = pool_handover_each(
				h, POOL_HANDOVER_NAME,
				&kvpool__handover_name__descriptor, get_name,
				n);
		if (head->next_cookie > n->tree.next_cookie)
			n->tree.next_cookie = head->next_cookie;
		protobuf_c_message_free_unpacked(msg, NULL);
	}
	if (!err)
		err = pool_handover_each(h, POOL_HANDOVER_OPS,
					 &kvpool__ops__descriptor, get_ops, n);
	if (err) {
		pool_error("the state that the running daemon handed over "
			   "cannot be used: %s",
			   strerror(-err));
		return err;
	}
	return 0;
}

/* A file without a name, by its store id: several handles may have it open. */
struct orphan {
	struct pool_hash_node node;
	struct node_object *o; /* borrows: open handles hold refs */
	bool whole;	       /* all writable handles are counted */
	bool found;	       /* of opts.were_open: holds a ref, and is a
				  user, until pool_node_reopened */
};

static struct orphan *orphan_find(struct pool_node *n, uint64_t id)
{
	struct pool_hash_node *h = pool_hash_first(&n->orphans, (uint32_t)id);

	while (h && pool_container_of(h, struct orphan, node)->o->id != id)
		h = pool_hash_next(h);
	return h ? pool_container_of(h, struct orphan, node) : NULL;
}

static int orphan_add(struct pool_node *n, struct node_object *o, bool whole)
{
	struct orphan *x = calloc(1, sizeof(*x));

	if (!x || keep_file(n, o->id) ||
	    pool_hash_insert(&n->orphans, &x->node, (uint32_t)o->id)) {
		free(x);
		return -ENOMEM;
	}
	x->o = o;
	x->whole = whole;
	return 0;
}

static void orphan_free(struct pool_hash_node *h, void *arg)
{
	struct pool_node *n = arg;

	pool_hash_remove(&n->orphans, h);
	free(pool_container_of(h, struct orphan, node));
}

void node_orphans_known(struct pool_node *n)
{
	pool_hash_each(&n->orphans, orphan_free, n);
	pool_hash_fini(&n->orphans);
	if (n->nkept)
		qsort(n->kept, n->nkept, sizeof(*n->kept), pool_store_by_id);
}

struct node_object *node_orphan_take_over(struct pool_node *n,
					  const Kvpool__HandoverWriter *w,
					  uint64_t id, int fd, bool whole)
{
	struct orphan *known = id ? orphan_find(n, id) : NULL;
	struct node_object *o;

	if (known) {
		o = node_object_ref(known->o);
		if (!known->whole && o->w && w)
			o->w->opens += w->opens;
		if (fd >= 0)
			close(fd);
		return o;
	}
	o = node_object_new(NULL, NODE_DROPPED);
	if (o)
		o->id = id;
	if (o && ((id && orphan_add(n, o, whole)) ||
		  (w && get_writer(n, o, w)))) {
		node_object_unref(n, o);
		o = NULL;
	}
	if (o)
		o->remains = id != 0;
	if (o && o->w)
		node_fd_keep(n, &o->w->fd, o, fd);
	else if (o && !id)
		o->lent_fd = fd;
	else if (fd >= 0)
		close(fd);
	return o;
}

/* ---- files that the mount of a killed daemon had open ---- */

bool node_was_open(void *arg, uint64_t id)
{
	const struct pool_node_opts *o = &((struct pool_node *)arg)->opts;

	return o->nwere_open > 0 && bsearch(&id, o->were_open, o->nwere_open,
					    sizeof(id), pool_store_by_id);
}

static void stay(struct pool_node *n, struct node_object *o)
{
	orphan_find(n, o->id)->found = true;
	node_object_use(node_object_ref(o), 1);
}

int node_was_open_found(struct pool_node *n, struct node_object *o)
{
	int err = orphan_add(n, o, true);

	if (!err)
		stay(n, o);
	return err;
}

struct node_object *pool_node_reopen(struct pool_node *n,
				     const struct node_was_open *was)
{
	const struct orphan *x = orphan_find(n, was->id);
	uint64_t size, blocks, mtime_ns;
	struct node_object *o;

	if (x)
		return x->o->size == was->size &&
				       (was->published ||
					XXH128_isEqual(x->o->sum, was->sum)) ?
			       node_object_ref(x->o) : NULL;
	if (!was->published || !node_was_open(n, was->id) ||
	    pool_store_stat(n->store, was->id, &size, &blocks, &mtime_ns) ||
	    size != was->size)
		return NULL;
	o = node_orphan_take_over(n, NULL, was->id, -1, true);
	if (o) {
		o->size = was->size;
		o->sum = was->sum;
		stay(n, o);
	}
	return o;
}

static void found_end(struct pool_hash_node *h, void *arg)
{
	const struct orphan *x = pool_container_of(h, struct orphan, node);

	if (!x->found)
		return;
	/* An older version may have its metadata yet: a next start, when the
	 * newer one may be gone, must not give it its name again. */
	if (x->o->state == NODE_DROPPED)
		(void)node_object_remains(arg, x->o);
	node_object_unuse(x->o);
	node_object_unref(arg, x->o);
}

void pool_node_reopened(struct pool_node *n)
{
	for (size_t i = 0; i < n->opts.nwere_open; i++)
		if (!orphan_find(n, n->opts.were_open[i]))
			pool_store_remove(n->store, n->opts.were_open[i]);
	pool_hash_each(&n->orphans, found_end, n);
	node_orphans_known(n);
	pool_hash_init(&n->orphans);
	free(n->kept);
	n->kept = NULL;
	n->nkept = 0;
	n->opts.were_open = NULL;
	n->opts.nwere_open = 0;
}
