/* The node as a whole: start, stop, objects and entries. See pool/node.h. */
#include "pool/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


/* ---- objects ---- */

struct node_object *node_object_new(struct node_entry *e, uint8_t state)
{
	struct node_object *o = calloc(1, sizeof(*o));

	if (!o)
		return NULL;
	pool_evict_node_init(&o->ev);
	o->entry = e;
	o->state = state;
	o->refs = 1;
	o->lent_fd = -1;
	return o;
}

struct node_object *node_object_ref(struct node_object *o)
{
	o->refs++;
	return o;
}

void node_object_unref(struct pool_node *n, struct node_object *o)
{
	(void)n;
	assert(o->refs > 0);
	if (--o->refs > 0)
		return;
	assert(!pool_evict_inserted(&o->ev) && !o->w && !o->heat);
	if (o->lent_fd >= 0)
		close(o->lent_fd);
	free(o);
}

int node_object_open(struct pool_node *n, const struct node_object *o,
		     int flags)
{
	char path[32];
	int fd;

	if (o->lent_fd < 0)
		return pool_store_fd(n->store, o->id, flags);
	if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_PATH)) {
		fd = fcntl(o->lent_fd, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? -errno : fd;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o->lent_fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static void give_back(struct pool_node *n, struct node_object *o)
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

static void file_remove(struct pool_node *n, uint64_t id)
{
	int fd = n->opts.verbs ? pool_store_fd(n->store, id, O_PATH) : -1;

	if (fd >= 0) {
		pool_peers_forget(n->peers, fd);
		close(fd);
	}
	pool_store_remove(n->store, id);
}

void node_object_drop(struct pool_node *n, struct node_object *o,
		      bool evicted)
{
	struct node_entry *e = o->entry;

	assert(o->state == NODE_HELD && e && e->obj == o);
	if (o->prefetched)
		pool_count(&n->c.prefetch_wasted);
	if (n->ops)
		n->ops->object_gone(n->ops_arg, o);
	node_heat_forget(n, o);
	pool_evict_remove(n->evict, &o->ev, evicted);
	if (o->w)
		node_writer_free(n, o); /* a client's, not stored yet */
	if (o->lent_fd >= 0)
		give_back(n, o);
	else
		file_remove(n, o->id);
	o->state = NODE_DROPPED;
	node_space_judge(n, o);
	o->entry = NULL;
	e->obj = NULL;
	node_object_unref(n, o);
}

void node_object_held(struct pool_node *n, struct node_entry *e,
		      struct node_object *o)
{
	char path[POOL_PATH_MAX + 1];
	int len;

	if (e->obj && e->obj != o)
		node_object_drop(n, e->obj, false);
	e->obj = o;
	o->entry = e;
	o->state = NODE_HELD;
	len = node_entry_path(&e->e, path);
	o->ev.key = XXH3_64bits(path, len > 0 ? (size_t)len : 0);
	/* Of our store: what is borrowed takes nothing of it. */
	o->ev.size = o->lent_fd >= 0 ? 0 : (o->size + 4095) & ~(uint64_t)4095;
	pool_evict_insert(n->evict, &o->ev,
			  o->counted ? POOL_EVICT_LAST : POOL_EVICT_CACHE);
	node_space_judge(n, o);
}

/* ---- entries ---- */

int node_entry_path(const struct pool_entry *e, char *buf)
{
	return pool_tree_path(e, buf, POOL_PATH_MAX + 1);
}

void node_entry_tidy(struct pool_node *n, struct node_entry *e)
{
	struct node_dirent *d = node_dir(&e->e.parent->e);

	if (e->gen || e->obj || e->own || e->fetch || e->fs || e->hidden_gen)
		return;
	pool_xattrs_free(e->xattrs);
	pool_tree_remove(&n->tree, &e->e);
	node_dir_tidy(n, d);
}

void node_dir_tidy(struct pool_node *n, struct node_dirent *d)
{
	struct node_dirent *up;

	while (d->gone && !d->removing && d->d.nchildren == 0 &&
	       d->d.e.parent && !d->fs) {
		up = node_dir(&d->d.e.parent->e);
		pool_xattrs_free(d->xattrs);
		pool_tree_remove(&n->tree, &d->d.e);
		d = up;
	}
}

void pool_node_tidy(struct pool_node *n, struct pool_entry *pe)
{
	struct node_dirent *d = node_dir(pe);

	if (d)
		node_dir_tidy(n, d);
	else
		node_entry_tidy(n, node_file(pe));
}

void node_attr_from_meta(const Kvpool__Meta *m, struct node_attr *ret)
{
	ret->mode = m->mode & 01777;
	ret->uid = m->uid;
	ret->gid = m->gid;
	ret->mtime_ns = m->mtime_ns;
	ret->gen = m->attr_gen;
}

ptrdiff_t node_blob_pack(const char *path, size_t path_len, uint64_t gen,
			 uint64_t base_gen, uint64_t size, XXH128_hash_t sum,
			 const struct node_attr *attr,
			 const struct pool_xattrs *xattrs, void *buf,
			 size_t cap)
{
	Kvpool__Meta m = KVPOOL__META__INIT;
	XXH128_canonical_t canon;
	size_t len;
	int err;

	XXH128_canonicalFromHash(&canon, sum);
	m.path.data = (uint8_t *)(uintptr_t)path;
	m.path.len = path_len;
	m.gen = gen;
	m.base_gen = base_gen;
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
	/* Published, it has given them to its name. */
	const struct node_writer *w = o->state == NODE_HELD ? NULL : o->w;
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&e->e, path);

	if (len < 0)
		return len;
	return node_blob_pack(path, (size_t)len, o->gen,
			      w ? w->base_gen : 0, o->size, o->sum,
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
	err = pool_store_set_blob(n->store, o->id, blob, (size_t)len);
	/* A cached copy has none: a restart drops it. */
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

int node_seal_fetched(struct pool_node *n, struct node_object *o)
{
	struct fetched_seal f = { .o = o };
	int err;

	f.seal.id = o->id;
	f.seal.have_sum = true;
	f.seal.sum = o->sum;
	f.seal.blob = fetched_blob;
	err = pool_seal_now(n->store, &f.seal);
	if (err)
		warn_blob(o, err);
	return err;
}

/* ---- what an earlier run left ---- */

static bool meta_valid(const Kvpool__Meta *m, uint64_t size)
{
	return !m->is_dir && m->sum.len == 16 && m->size == size &&
	       pool_path_check((const char *)m->path.data, m->path.len) == 0;
}

/* A file sealed before the restart but never acknowledged: publish it again. */
static int adopt_pending(struct pool_node *n, struct node_entry *e,
			 struct node_object *o, const Kvpool__Meta *m)
{
	struct node_writer *w = calloc(1, sizeof(*w));
	int err;

	if (!w)
		return -ENOMEM;
	pool_list_init(&w->link);
	w->obj = o;
	w->fd = -1;
	w->base_gen = m->base_gen;
	node_attr_from_meta(m, &w->attr);
	err = pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &w->xattrs);
	if (err) {
		free(w);
		return err == -ENOMEM ? err : -EBADMSG;
	}
	o->w = w;
	o->state = NODE_PENDING;
	e->own = o;
	node_publish(n, o);
	return 0;
}

/* An older generation was found first: a crash came between the new one's
 * publication and its removal. It is removed when the store is open. */
static void forget_older(struct pool_node *n, struct node_entry *e)
{
	struct node_object *old = e->obj;
	uint64_t *ids;

	if (!old)
		return;
	ids = realloc(n->leftovers, (n->nleftovers + 1) * sizeof(*ids));
	if (ids) {
		ids[n->nleftovers++] = old->id;
		n->leftovers = ids;
	}
	pool_evict_remove(n->evict, &old->ev, false);
	old->state = NODE_DROPPED;
	node_space_judge(n, old);
	old->entry = NULL;
	e->obj = NULL;
	node_object_unref(n, old);
}

static int adopt_published(struct pool_node *n, struct node_entry *e,
			   struct node_object *o, const Kvpool__Meta *m)
{
	struct pool_xattrs *xattrs = NULL;

	/* Attributes that make no sense must not cost the object. */
	if (pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &xattrs) == -ENOMEM)
		return -ENOMEM;
	o->counted = true;
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

static int adopt(struct pool_node *n, uint64_t id, const Kvpool__Meta *m)
{
	XXH128_canonical_t canon;
	struct pool_entry *pe;
	struct node_entry *e;
	struct node_object *o;
	int err = pool_tree_make(&n->tree, (const char *)m->path.data,
				 m->path.len, false, NULL, NULL, &pe);

	if (err)
		return err == -ENOMEM ? err : -ESTALE;
	e = node_file(pe);
	if (pool_gen_epoch(m->gen) > n->held_epoch)
		n->held_epoch = pool_gen_epoch(m->gen);
	if (pool_gen_epoch(m->attr_gen) > n->held_epoch)
		n->held_epoch = pool_gen_epoch(m->attr_gen);
	if (m->gen == 0 ? e->own != NULL : e->obj && e->obj->gen >= m->gen)
		return -ESTALE;
	o = node_object_new(e, NODE_HELD);
	if (!o)
		return -ENOMEM;
	memcpy(canon.digest, m->sum.data, 16);
	o->sum = XXH128_hashFromCanonical(&canon);
	o->id = id;
	o->size = m->size;
	o->gen = m->gen;
	err = m->gen ? adopt_published(n, e, o, m) : adopt_pending(n, e, o, m);
	if (err)
		node_object_unref(n, o);
	return err;
}

static int found(void *arg, uint64_t id, uint64_t size, const void *blob,
		 size_t blob_len)
{
	Kvpool__Meta *m;
	int err;

	errno = 0; /* an unpack says only that it failed */
	m = kvpool__meta__unpack(NULL, blob_len, blob);
	if (!m)
		return errno == ENOMEM ? -ENOMEM : -EBADMSG;
	err = meta_valid(m, size) ? adopt(arg, id, m) : -EBADMSG;
	kvpool__meta__free_unpacked(m, NULL);
	return err;
}

/* ---- the loop ---- */

static void on_kick(uv_prepare_t *h)
{
	struct pool_node *n = h->data;

	n->kicked = false;
	uv_prepare_stop(h);
	node_seal_small(n);
	node_publish_sealed(n);
	node_space_run(n);
	if (!pool_list_empty(&n->barriers))
		node_ops_send(n);
	node_barriers_check(n);
}

void node_kick(struct pool_node *n)
{
	if (n->kicked)
		return;
	n->kicked = true;
	uv_prepare_start(&n->kick, on_kick);
}

static void finish_close(struct pool_node *n);

static void on_tick(uv_timer_t *h)
{
	struct pool_node *n = h->data;
	uint64_t now = pool_now_ms();

	node_writers_tick(n, now);
	node_fetch_tick(n, now);
	node_doubt_tick(n);
	node_heat_tick(n, now);
	node_link_tick(n, now);
	node_publish_sealed(n);
	node_space_run(n);
	node_ops_send(n);
	node_barriers_check(n);
	if (n->closing &&
	    ((pool_list_empty(&n->sealing) && pool_list_empty(&n->pending) &&
	      pool_list_empty(&n->ops_waiting) &&
	      pool_list_empty(&n->ops_sent)) ||
	     now >= n->close_deadline_ms))
		finish_close(n);
}

/* ---- start ---- */

static void read_host_id(char *buf, size_t cap)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");

	buf[0] = '\0';
	if (!f)
		return;
	if (!fgets(buf, (int)cap, f))
		buf[0] = '\0';
	buf[strcspn(buf, "\n")] = '\0';
	fclose(f);
}

static int copy_names(struct pool_node *n)
{
	const struct pool_node_opts *o = &n->opts;

	n->name = strdup(o->name ? o->name : "node");
	n->store_dir = strdup(o->store_dir);
	n->unix_path = o->unix_path ? strdup(o->unix_path) : NULL;
	n->advertise = o->advertise ? strdup(o->advertise) : NULL;
	if (!n->name || !n->store_dir || (o->unix_path && !n->unix_path) ||
	    (o->advertise && !n->advertise))
		return -ENOMEM;
	return 0;
}

static int open_store(struct pool_node *n)
{
	bool client = n->opts.store_size == 0;
	struct pool_store_opts so = {
		.loop = n->loop,
		.dir = n->store_dir,
		.size = client ? n->opts.buffer_size : n->opts.store_size,
		.metrics = n->metrics,
	};
	int err;

	n->evict = pool_evict_open(so.size);
	if (!n->evict)
		return -ENOMEM;
	if (n->opts.handover)
		so.lock_fd = pool_handover_take_fd(n->opts.handover,
						   POOL_HANDOVER_FD_STORE);
	if (so.lock_fd < 0)
		return so.lock_fd;
	err = pool_store_open(&so, found, n, &n->store);
	if (err)
		return err;
	while (n->nleftovers > 0)
		pool_store_remove(n->store, n->leftovers[--n->nleftovers]);
	free(n->leftovers);
	n->leftovers = NULL;
	memcpy(n->id, pool_store_id(n->store), POOL_ID_SIZE);
	return 0;
}

static int open_peers(struct pool_node *n)
{
	struct pool_peers_opts po = {
		.loop = n->loop,
		.listen = n->opts.listen,
		.unix_path = n->opts.fd_passing ? n->unix_path : NULL,
		.listen_fd = n->listen_fd,
		.unix_fd = n->unix_fd,
		.fd_passing = n->opts.fd_passing,
		.verbs = n->opts.verbs,
		.movers = n->opts.movers,
		.ops = &node_peers_ops,
		.arg = n,
		.metrics = n->metrics,
	};
	char buf[POOL_HOST_MAX + 16];
	int err;

	memcpy(po.id, n->id, POOL_ID_SIZE);
	err = pool_peers_open(&po, &n->peers);
	if (err)
		return err;
	if (!n->advertise) {
		bool v6 = strchr(n->opts.listen.host, ':') != NULL;

		snprintf(buf, sizeof(buf), "%s%s%s:%u", v6 ? "[" : "",
			 n->opts.listen.host, v6 ? "]" : "",
			 pool_peers_port(n->peers));
		n->advertise = strdup(buf);
	}
	return n->advertise ? 0 : -ENOMEM;
}

/* Others see it from here on. */
static int node_begin(struct pool_node *n)
{
	int err = open_peers(n);

	if (!err)
		err = node_link_open(n);
	if (!err)
		uv_timer_start(&n->tick, on_tick, NODE_TICK_MS, NODE_TICK_MS);
	return err;
}

int pool_node_begin(struct pool_node *n)
{
	pool_store_sweep(n->store, n->kept, n->nkept);
	free(n->kept);
	n->kept = NULL;
	n->listen_fd = pool_handover_take_fd(n->opts.handover,
					     POOL_HANDOVER_FD_PEERS);
	n->unix_fd = pool_handover_take_fd(n->opts.handover,
					   POOL_HANDOVER_FD_LOCAL);
	n->opts.handover = NULL;
	return node_begin(n);
}

int pool_node_open(const struct pool_node_opts *opts,
		   struct pool_node **ret_node)
{
	struct pool_node *n = calloc(1, sizeof(*n));
	int err;

	if (!n)
		return -ENOMEM;
	n->opts = *opts;
	n->loop = opts->loop;
	n->metrics = opts->metrics;
	if (n->opts.deadline_ms == 0)
		n->opts.deadline_ms = 2000;
	pool_list_init(&n->writers);
	pool_list_init(&n->sealing);
	pool_list_init(&n->pending);
	pool_list_init(&n->small_seals);
	pool_list_init(&n->ops_waiting);
	pool_list_init(&n->ops_sent);
	pool_hash_init(&n->changes);
	pool_list_init(&n->barriers);
	pool_list_init(&n->claims);
	pool_list_init(&n->rewrites);
	pool_list_init(&n->fetches);
	pool_list_init(&n->heats);
	uv_prepare_init(n->loop, &n->kick);
	uv_timer_init(n->loop, &n->tick);
	uv_timer_init(n->loop, &n->soon);
	uv_timer_init(n->loop, &n->batch);
	n->kick.data = n->tick.data = n->soon.data = n->batch.data = n;
	n->members = calloc(NODE_NODES_MAX, sizeof(*n->members));
	n->cut_off_ms = pool_now_ms();
	strcpy(n->data_mode, "none");
	read_host_id(n->host_id, sizeof(n->host_id));
	err = -ENOMEM;
	if (!n->members || copy_names(n) < 0 ||
	    pool_tree_init(&n->tree, sizeof(struct node_entry),
			   sizeof(struct node_dirent)) < 0)
		goto err_free;
	pool_node_root(n)->attr.mode = 0777;
	pool_node_root(n)->attr.mtime_ns = pool_wall_ns();
	pool_node_root(n)->known = true;
	err = node_metrics_register(n);
	if (err)
		goto err_free;
	err = open_store(n);
	if (err)
		goto err_free;
	node_space_init(n);
	err = opts->handover ? node_take_over(n, opts->handover) :
			       node_begin(n);
	if (err)
		goto err_free;
	*ret_node = n;
	return 0;
err_free:
	/* Start-up failed: the process is about to exit with the message that
	 * the failing part logged. */
	pool_node_undo(n);
	return err;
}

void pool_node_undo(struct pool_node *n)
{
	if (n->store)
		pool_store_undo(n->store);
}

void pool_node_set_ops(struct pool_node *n, const struct pool_node_ops *ops,
		       void *arg, const char *data_mode)
{
	n->ops = ops;
	n->ops_arg = arg;
	snprintf(n->data_mode, sizeof(n->data_mode), "%s", data_mode);
}

struct pool_tree *pool_node_tree(struct pool_node *n)
{
	return &n->tree;
}

struct pool_store *pool_node_store(struct pool_node *n)
{
	return n->store;
}

struct node_dirent *pool_node_root(struct pool_node *n)
{
	return (struct node_dirent *)(void *)n->tree.root;
}

/* ---- stop ----
 *
 * publish what is pending -> leave the master, close peers -> store (workers)
 * -> free
 */

static void free_entry(struct pool_entry *pe, void *arg)
{
	struct pool_node *n = arg;
	struct node_entry *e = node_file(pe);

	if (!e) {
		pool_xattrs_free(node_dir(pe)->xattrs);
		return;
	}
	if (e->obj) {
		pool_evict_remove(n->evict, &e->obj->ev, false);
		if (e->obj->w)
			node_writer_free(n, e->obj);
		e->obj->entry = NULL;
		node_object_unref(n, e->obj);
	}
	if (e->own) {
		node_writer_free(n, e->own);
		e->own->entry = NULL;
		node_object_unref(n, e->own);
	}
	pool_xattrs_free(e->xattrs);
}

static void all_closed(struct pool_node *n)
{
	void (*closed)(void *arg) = n->closed;
	void *arg = n->closed_arg;

	pool_evict_close(n->evict);
	free(n->members);
	free(n->name);
	free(n->store_dir);
	free(n->unix_path);
	free(n->advertise);
	free(n);
	closed(arg);
}

static void handle_closed(struct pool_node *n)
{
	assert(n->handles > 0);
	if (--n->handles == 0)
		all_closed(n);
}

static void on_uv_closed(uv_handle_t *h)
{
	handle_closed(h->data);
}

void node_link_gone(struct pool_node *n)
{
	handle_closed(n);
}

static void on_store_closed(void *arg)
{
	struct pool_node *n = arg;

	n->store = NULL;
	node_ops_free(n);
	pool_tree_fini(&n->tree, free_entry, n);
	handle_closed(n);
}

/* The store's workers end, their callbacks find the tree as it was. */
static void on_peers_closed(void *arg)
{
	struct pool_node *n = arg;

	pool_store_close(n->store, false, on_store_closed, n);
}

static void finish_close(struct pool_node *n)
{
	uv_timer_stop(&n->tick);
	uv_prepare_stop(&n->kick);
	n->kicked = true;
	while (!pool_list_empty(&n->small_seals)) /* the kick's */
		node_seal_small(n);
	n->handles = 6; /* kick, tick, soon, batch, link, store (after peers) */
	node_fetch_fini(n);
	node_doubt_fini(n);
	node_heat_cut_off(n);
	node_space_fini(n);
	pool_node_barriers_end(n);
	uv_close((uv_handle_t *)&n->kick, on_uv_closed);
	uv_close((uv_handle_t *)&n->tick, on_uv_closed);
	uv_close((uv_handle_t *)&n->soon, on_uv_closed);
	uv_close((uv_handle_t *)&n->batch, on_uv_closed);
	node_link_close(n);
	pool_peers_close(n->peers, on_peers_closed, n);
}

void pool_node_close(struct pool_node *n, unsigned int timeout_ms,
		     void (*closed)(void *arg), void *arg)
{
	struct pool_list *it, *tmp;

	n->closed_arg = arg;
	n->ops = NULL;
	/* Files that are whole go out; the others die with the mount. */
	pool_list_each(it, tmp, &n->writers) {
		struct node_writer *w =
			pool_list_entry(it, struct node_writer, link);

		(void)node_try_seal(n, w->obj, true);
	}
	node_kick(n);
	n->closed = closed;
	n->close_deadline_ms = pool_now_ms() + timeout_ms;
	n->closing = true;
}
