/*
 * Take-over of the mount: the old process writes records of everything that
 * the kernel refers to, and the new process reads them (pool/conn/handover.h).
 *
 * Nodeids, file handles and backing ids are known to the kernel and stay the
 * same. The node hands over the objects that have a name in the store; the
 * others (borrowed from a peer, unlinked, or an older version that is still
 * open) are "orphans". An inode that shows an orphan is unbound in the new
 * process; the object's descriptor, if there is one, is in its record or in
 * that of its handle. Passthrough reads need none: the kernel has the file.
 *
 * Pairs: put_X writes in the old process what get_X reads in the new one.
 *
 * Thread: loop, with no request in flight.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MISS_BYTES (((size_t)1 << FS_MISS_BITS) / 8)

/* ---- handing over ---- */

static void attr_put(const struct node_attr *a, Kvpool__Meta *m)
{
	kvpool__meta__init(m);
	m->mode = a->mode;
	m->uid = a->uid;
	m->gid = a->gid;
	m->mtime_ns = a->mtime_ns;
	m->attr_gen = a->gen;
}

/* The notifications that are queued, or being sent. */
struct notes {
	Kvpool__HandoverNote **list; /* owns, also the names */
	size_t n;
	int err;
};

static void note_put(void *arg, uint64_t nodeid, const char *name, size_t len)
{
	struct notes *t = arg;
	Kvpool__HandoverNote *m = malloc(sizeof(*m) + len + 1);
	Kvpool__HandoverNote **list =
		realloc(t->list, (t->n + 1) * sizeof(*list));

	if (list)
		t->list = list;
	if (!m || !list) {
		free(m);
		t->err = -ENOMEM;
		return;
	}
	kvpool__handover_note__init(m);
	m->nodeid = nodeid;
	m->name.data = memcpy(m + 1, name, len);
	m->name.len = len;
	t->list[t->n++] = m;
}

/* The threads whose second request is expected. Pins are not handed over:
 * fs_busy waits for them. tids, refused: storage for the lists in m. */
static void put_stale(const struct fs *fs, uint32_t tids[3][FS_STALE_MAX],
		      uint64_t refused[2][FS_STALE_MAX], Kvpool__HandoverFs *m)
{
	unsigned int k;

	m->stale_readers = tids[0];
	m->stale_writers = tids[1];
	m->stale_uid = tids[2];
	m->stale_cookie = refused[0];
	m->stale_since_ns = refused[1];
	for (k = 0; k < FS_STALE_MAX; k++) {
		const struct fs_stale *s = &fs->stale[k];

		if (!fs_stale_is_live(s))
			continue;
		if (s->writes) {
			m->stale_writers[m->n_stale_writers++] = s->tid;
			refused[0][m->n_stale_cookie++] = s->refused.cookie;
			refused[1][m->n_stale_since_ns++] =
				s->refused.since_ns;
			tids[2][m->n_stale_uid++] = s->refused.uid;
		} else {
			m->stale_readers[m->n_stale_readers++] = s->tid;
		}
	}
}

static void get_stale(struct fs *fs, const Kvpool__HandoverFs *m)
{
	const struct fs_refused none = { 0, 0, 0 };
	size_t i;

	for (i = 0; i < m->n_stale_readers; i++)
		fs_stale_add(fs, m->stale_readers[i], false, none);
	for (i = 0; i < m->n_stale_writers; i++)
		fs_stale_add(fs, m->stale_writers[i], true,
			     i < m->n_stale_cookie &&
					     i < m->n_stale_since_ns &&
					     i < m->n_stale_uid ?
				     (struct fs_refused){
					     m->stale_cookie[i],
					     m->stale_since_ns[i],
					     m->stale_uid[i] } : none);
}

/* The executed objects that have a name; no OPEN can find the others. The list
 * is freed by free_executed. */
static int put_executed(struct fs *fs, Kvpool__HandoverFs *m)
{
	size_t len = POOL_PATH_MAX + 1;
	Kvpool__HandoverExecuted *x;
	struct pool_list *it, *tmp;
	int n;

	pool_list_each(it, tmp, &fs->executed) {
		struct fs_executed *e =
			pool_list_entry(it, struct fs_executed, link);
		struct node_entry *name = node_object_name(e->obj);
		void *list = realloc(m->executed, (m->n_executed + 1) *
							  sizeof(x));

		if (list)
			m->executed = list;
		if (!name)
			continue;
		x = list ? malloc(sizeof(*x) + len) : NULL;
		if (!x)
			return -ENOMEM;
		kvpool__handover_executed__init(x);
		x->path.data = (uint8_t *)(x + 1);
		n = pool_tree_path(node_file_entry(name), (char *)(x + 1), len);
		x->path.len = n > 0 ? (size_t)n : 0;
		x->obj = node_named_id(e->obj);
		x->handles = e->handles;
		m->executed[m->n_executed++] = x;
	}
	return 0;
}

static void free_executed(Kvpool__HandoverFs *m)
{
	size_t i;

	for (i = 0; i < m->n_executed; i++)
		free(m->executed[i]);
	free(m->executed);
}

static void put_carried(const struct fs *fs,
			uint64_t list[2][FS_CARRIED_MAX],
			Kvpool__HandoverFs *m)
{
	unsigned int k;

	for (k = 0; k < FS_CARRIED_MAX && k < fs->ncarried; k++) {
		list[0][k] = fs->carried[k].ino;
		list[1][k] = fs->carried[k].ctime_ns;
	}
	m->carried_ino = list[0];
	m->carried_ctime_ns = list[1];
	m->n_carried_ino = m->n_carried_ctime_ns = k;
}

static void put_fs(struct fs *fs, struct pool_handover *h)
{
	uint64_t carried[2][FS_CARRIED_MAX];
	Kvpool__HandoverFs m = KVPOOL__HANDOVER_FS__INIT;
	ProtobufCBinaryData misses[2];
	uint32_t stale[3][FS_STALE_MAX];
	uint64_t refused[2][FS_STALE_MAX];
	struct notes notes = { 0 };
	size_t i;

	fs_notify_each(fs, note_put, &notes);
	if (notes.err)
		h->err = notes.err;
	if (put_executed(fs, &m))
		h->err = -ENOMEM;
	for (i = 0; i < 2; i++) {
		misses[i].data = (uint8_t *)fs->misses[i];
		misses[i].len = MISS_BYTES;
	}
	m.init.data = fs->init_req;
	m.init.len = fs->init_len;
	m.init_reply.data = fs->init_reply;
	m.init_reply.len = fs->init_reply_len;
	m.passthrough = fs->passthrough;
	m.mountpoint = fs->mountpoint;
	m.dev = fs->dev;
	m.misses = misses;
	m.n_misses = 2;
	m.miss_turn_ms = pool_now_ms() - fs->miss_turn_ms;
	m.root_atime_ns = fs->root.atime_ns;
	m.notes = notes.list;
	m.n_notes = notes.n;
	put_stale(fs, stale, refused, &m);
	put_carried(fs, carried, &m);
	pool_handover_put(h, POOL_HANDOVER_FS, &m.base);
	for (i = 0; i < notes.n; i++)
		free(notes.list[i]);
	free(notes.list);
	free_executed(&m);
}

/* The path that i is bound to, or was. Its length; 0: none. */
static size_t inode_path(const struct fs_inode *i, char path[POOL_PATH_MAX + 1])
{
	const struct pool_entry *e = fs_inode_entry(i);
	int len = e ? pool_tree_path(e, path, POOL_PATH_MAX + 1) : 0;

	if (!e && fs_inode_path(i)) {
		len = (int)strlen(fs_inode_path(i));
		memcpy(path, fs_inode_path(i), (size_t)len + 1);
	}
	return len > 0 ? (size_t)len : 0;
}

/* Hands over a descriptor of an orphan. 1 + its index; 0: it has no open one.
 * Then, if it is being written, the new process must open it by its store id
 * (by_id: versions that cannot do that refuse the take-over). */
static unsigned int put_orphan_fd(const struct node_object *o,
				  struct pool_handover *h)
{
	int fd = node_orphan_fd(o);

	h->by_id = h->by_id || (fd < 0 && node_object_has_writer(o));
	return fd < 0 ? 0 : 1 + pool_handover_add_fd(h, fd);
}

static void put_inode(struct fs *fs, const struct fs_inode *i,
		      struct pool_handover *h)
{
	Kvpool__HandoverInode m = KVPOOL__HANDOVER_INODE__INIT;
	const struct node_object *o = i->obj;
	char path[POOL_PATH_MAX + 1];
	const void *direct = NULL;
	uint32_t ndirect = o ? node_object_direct(o, &direct) : 0;
	Kvpool__Meta attr;

	/* Also of a bound one: it may be unbound in the new process. */
	attr_put(i->entry ? pool_node_attr(fs_inode_entry(i)) :
			    &fs_inode_past(i)->attr, &attr);
	m.attr = &attr;
	m.nodeid = fs_inode_id(i);
	m.nlookup = i->nlookup;
	m.ino = i->ino;
	m.is_dir = i->kind == FS_DIR;
	m.served = i->served;
	m.cached = i->was_served;
	m.bound = i->entry || fs_inode_dir(i);
	m.path.data = (uint8_t *)path;
	m.path.len = inode_path(i, path);
	m.obj = o ? node_named_id(o) : 0;
	m.opens = i->opens;
	m.direct = direct == i ? ndirect : 0;
	m.backing = i->backing;
	m.size = i->entry && !pool_node_own(i->entry) ?
			 pool_node_version(i->entry).size :
			 fs_inode_past(i)->size;
	m.atime_ns = i->atime_ns;
	m.ctime_ns = i->kind == FS_FILE ? i->u.ctime_ns : 0;
	if (o && node_object_unlinked(o)) {
		m.orphan = node_orphan_hand_over(fs->node, o);
		if (!m.orphan)
			h->err = -ENOMEM;
	}
	if (o && !m.obj) {
		m.orphan_obj = node_orphan_id(o);
		m.orphan_fd = put_orphan_fd(o, h);
	}
	pool_handover_put(h, POOL_HANDOVER_INODE, &m.base);
	node_writer_msg_free(m.orphan);
}

/* The object of a handle whose nodeid has switched to another one since. */
static void put_other(struct fs *fs, const struct fs_handle *f, char *path,
		      Kvpool__HandoverOpen *m, struct pool_handover *h)
{
	const struct node_object *o = f->obj;
	int len;

	m->other = true;
	m->obj = node_named_id(o);
	if (m->obj) {
		len = pool_tree_path(node_file_entry(node_object_name(o)),
				     path, POOL_PATH_MAX + 1);
		m->path.data = (uint8_t *)path;
		m->path.len = len > 0 ? (size_t)len : 0;
		return;
	}
	m->orphan_obj = node_orphan_id(o);
	m->orphan_fd = put_orphan_fd(o, h);
	if (!node_object_has_writer(o))
		return;
	m->orphan = node_orphan_hand_over(fs->node, o);
	if (!m->orphan) {
		h->err = -ENOMEM;
		return;
	}
	m->orphan->opens = f->writer;
}

static void put_open(struct fs *fs, struct fs_fh *o, struct pool_handover *h)
{
	Kvpool__HandoverOpen m = KVPOOL__HANDOVER_OPEN__INIT;
	struct fs_handle *f = (void *)o;
	struct fs_dir_handle *d = (void *)o;
	struct fs_text *t = (void *)o;
	struct node_dirent *dir;
	char path[POOL_PATH_MAX + 1];
	int len;

	m.fh = o->fh;
	m.kind = o->kind;
	switch (o->kind) {
	case FS_FH_FILE:
		m.writer = f->writer;
		m.map_len = f->fd.map_len;
		if (f->fd.fd >= 0)
			m.fd = 1 + pool_handover_add_fd(h, f->fd.fd);
		else
			h->by_id = true;
		m.nodeid = f->obj && f->inode ?
				   fs_inode_id(f->inode) : 0;
		/* (Without an inode: ghost.c) */
		if (f->obj && (!f->inode || f->obj != f->inode->obj))
			put_other(fs, f, path, &m, h);
		break;
	case FS_FH_DIR:
		dir = fs_listed_dir(fs, d);
		m.gone = !dir;
		len = dir ? pool_tree_path(&node_dir_tree(dir)->e, path,
					   sizeof(path)) : 0;
		m.path.data = (uint8_t *)path;
		m.path.len = len > 0 ? (size_t)len : 0;
		m.last_cookie = m.gone ? 0 : d->reader.last_cookie;
		break;
	case FS_FH_TEXT:
		m.text.data = (uint8_t *)t->data;
		m.text.len = t->len;
		break;
	}
	pool_handover_put(h, POOL_HANDOVER_OPEN, &m.base);
	node_writer_msg_free(m.orphan);
}

void fs_hand_over(struct fs *fs, struct pool_handover *h)
{
	uint64_t n;

	fs_touched_notify(fs);
	pool_handover_set_fd(h, POOL_HANDOVER_FD_FUSE, fs->dev_fd);
	put_fs(fs, h);
	for (n = pool_slots_next(&fs->inodes, 0); n < fs->inodes.cap;
	     n = pool_slots_next(&fs->inodes, n + 1))
		put_inode(fs, pool_slots_get(&fs->inodes, n), h);
	for (n = pool_slots_next(&fs->handles, 0); n < fs->handles.cap;
	     n = pool_slots_next(&fs->handles, n + 1))
		put_open(fs, pool_slots_get(&fs->handles, n), h);
	if (h->by_id)
		pool_handover_put(h, POOL_HANDOVER_BY_ID, NULL);
}

/* ---- taking over ---- */

int fs_handover_init(struct fs *fs, struct pool_handover *h,
		     struct fs_init_kept *ret)
{
	ProtobufCMessage *msg;
	Kvpool__HandoverFs *m;
	int err = pool_handover_get(h, POOL_HANDOVER_FS,
				    &kvpool__handover_fs__descriptor, &msg);

	if (err)
		return err;
	m = (Kvpool__HandoverFs *)msg;
	fs->taken = m;
	if (strcmp(m->mountpoint, fs->mountpoint) != 0) {
		pool_error("the running daemon's mount is at %s, not at %s",
			   m->mountpoint, fs->mountpoint);
		return -EINVAL;
	}
	fs->dev = m->dev;
	*ret = (struct fs_init_kept){
		.req = m->init.data,
		.req_len = m->init.len,
		.reply = m->init_reply.data,
		.reply_len = m->init_reply.len,
		.passthrough = m->passthrough,
	};
	return 0;
}

/* The object of pe with this store id, or NULL: it was not handed over. */
static struct node_object *find_object(struct pool_entry *pe, uint64_t id)
{
	struct node_entry *e = node_file(pe);

	return e ? pool_node_file_of_id(e, id) : NULL;
}

static int get_executed(struct fs *fs, const Kvpool__HandoverExecuted *m)
{
	struct fs_executed *x = calloc(1, sizeof(*x));
	struct pool_entry *pe = pool_tree_lookup(
		fs->tree, (const char *)m->path.data, m->path.len);
	struct node_object *o = find_object(pe, m->obj);

	if (!x)
		return -ENOMEM;
	if (!o || !m->handles) {
		free(x);
		return 0;
	}
	x->obj = node_object_ref(o);
	x->handles = m->handles;
	pool_list_add_tail(&fs->executed, &x->link);
	return 0;
}

static int get_fs(struct fs *fs, const Kvpool__HandoverFs *m)
{
	size_t i;
	int err = 0;

	for (i = 0; i < m->n_misses && i < 2; i++)
		if (m->misses[i].len == MISS_BYTES)
			memcpy(fs->misses[i], m->misses[i].data, MISS_BYTES);
		else /* another filter size: any name may be in it */
			memset(fs->misses[i], 0xff, MISS_BYTES);
	fs->miss_turn_ms = pool_now_ms() - m->miss_turn_ms;
	fs->root.atime_ns = m->root_atime_ns;
	get_stale(fs, m);
	for (i = 0; i < m->n_notes; i++)
		fs_notify_queue(fs, m->notes[i]->nodeid,
				(char *)m->notes[i]->name.data,
				m->notes[i]->name.len);
	for (i = 0; i < m->n_carried_ino && i < m->n_carried_ctime_ns &&
		    i < FS_CARRIED_MAX; i++) {
		fs->carried[i].ino = m->carried_ino[i];
		fs->carried[i].ctime_ns = m->carried_ctime_ns[i];
		fs->ncarried++;
	}
	for (i = 0; !err && i < m->n_executed; i++)
		err = get_executed(fs, m->executed[i]);
	return err;
}

static void bind_dir(struct fs_inode *i, struct pool_entry *pe)
{
	if (!pool_node_inode(pe)) {
		pool_node_set_inode(pe, i);
		i->u.dir = node_dir(pe);
	}
}

static int get_object(struct fs *fs, struct fs_inode *i,
		      const Kvpool__HandoverInode *m, struct node_object *o,
		      struct pool_handover *h)
{
	int fd = m->orphan_fd ? pool_handover_take_fd(h, m->orphan_fd - 1) : -1;
	struct node_object *orphan = NULL;

	if (m->orphan_fd && fd < 0)
		return fd;
	if (!o && m->opens > 0) {
		orphan = o = node_orphan_take_over(fs->node, m->orphan,
						   m->orphan_obj, fd, true);
		if (!o)
			return -ENOMEM;
	}
	if (!o)
		return 0;
	fs_inode_set_obj(fs, i, o);
	node_object_use(o, m->opens);
	if (orphan)
		node_object_unref(fs->node, orphan);
	return 0;
}

static bool get_past(struct fs_inode *i, const Kvpool__HandoverInode *m)
{
	struct fs_past *past = fs_inode_make_past(i);

	if (!past)
		return false;
	past->size = m->size;
	if (m->attr)
		node_attr_from_meta(m->attr, &past->attr);
	if (m->path.len && !m->is_dir)
		past->path = strndup((const char *)m->path.data, m->path.len);
	return true;
}

static int get_inode(void *arg, struct pool_handover *h, const void *msg)
{
	const Kvpool__HandoverInode *m = msg;
	struct fs *fs = arg;
	const char *path = (const char *)m->path.data;
	struct pool_entry *pe = m->path.len ?
		pool_tree_lookup(fs->tree, path, m->path.len) : NULL;
	struct node_object *o = find_object(pe, m->obj);
	struct fs_inode *i = fs_inode_new_at(fs, m->nodeid);
	struct node_entry *e = node_file(pe);

	if (!i)
		return -EBADMSG;
	if (fs->incarnation < m->nodeid >> 32)
		fs->incarnation = (uint32_t)(m->nodeid >> 32);
	i->kind = m->is_dir ? FS_DIR : FS_FILE;
	i->nlookup = m->nlookup;
	i->ino = m->ino;
	i->served = m->served;
	i->was_served = m->cached;
	i->opens = m->opens;
	i->backing = m->backing;
	i->atime_ns = m->atime_ns;
	if (i->kind == FS_FILE)
		i->u.ctime_ns = m->ctime_ns;
	pool_gauge_add(&fs->nopen, m->opens);
	pool_gauge_add(&fs->gbackings, m->backing ? 1 : 0);
	if (m->bound && pe && pe->is_dir && m->is_dir) {
		bind_dir(i, pe);
	} else if (m->bound && e && !m->is_dir && !pool_node_inode(pe) &&
		   (o || (m->opens == 0 && !m->backing))) {
		i->entry = e;
		pool_node_set_inode(pe, i);
	} else if (!get_past(i, m)) {
		return -ENOMEM;
	}
	if (get_object(fs, i, m, o, h))
		return -ENOMEM;
	if (m->direct > 0 && i->obj && node_object_has_writer(i->obj))
		pool_node_writer_direct(fs->node, i->obj, i, m->direct);
	if (i->backing && i->obj && i->opens == 0) {
		pool_list_add_tail(&fs->backings, &i->lru);
		fs->nbackings++;
	}
	return 0;
}

/* The object of put_other: a ref, or NULL. */
static struct node_object *get_other(struct fs *fs,
				     const Kvpool__HandoverOpen *m,
				     struct pool_handover *h)
{
	int fd = m->orphan_fd ? pool_handover_take_fd(h, m->orphan_fd - 1) : -1;
	struct pool_entry *pe = m->path.len ?
		pool_tree_lookup(fs->tree, (const char *)m->path.data,
				 m->path.len) : NULL;
	struct node_object *o = find_object(pe, m->obj);

	return o ? node_object_ref(o) :
		   node_orphan_take_over(fs->node, m->orphan, m->orphan_obj,
					 fd, false);
}

/* Sets the handle's object. It stays NULL if it is not known: the record has no
 * nodeid (an older daemon wrote it, or did not know it either), or ENOMEM. */
static void get_handle_obj(struct fs *fs, struct fs_handle *f,
			   const Kvpool__HandoverOpen *m,
			   struct pool_handover *h)
{
	struct fs_inode *i = fs_inode_find(fs, m->nodeid);

	if (i && i->obj && !m->other) {
		f->obj = node_object_ref(i->obj);
	} else if (i && i->obj) {
		f->obj = get_other(fs, m, h);
		if (f->obj) { /* get_object counted it as i->obj's user */
			node_object_unuse(i->obj);
			node_object_use(f->obj, 1);
		}
	}
	if (!m->nodeid && m->other) {
		f->obj = get_other(fs, m, h);
		if (f->obj)
			fs_ghost_opened(fs, f);
	}
	if (f->obj)
		f->inode = i;
	else
		fs->handles_without_obj++;
}

static struct fs_fh *get_file(struct fs *fs, const Kvpool__HandoverOpen *m,
			      struct pool_handover *h)
{
	struct fs_handle *f = calloc(1, sizeof(*f));

	if (!f)
		return NULL;
	f->writer = m->writer;
	node_fd_init(&f->fd);
	f->fd.map_len = m->map_len;
	get_handle_obj(fs, f, m, h);
	if (f->writer && f->obj && node_object_has_writer(f->obj))
		pool_node_writer_served(fs->node, f->obj, true);
	node_fd_keep(fs->node, &f->fd, f->obj,
		     m->fd ? pool_handover_take_fd(h, m->fd - 1) : -1);
	return &f->o;
}

static struct fs_fh *get_dir(struct fs *fs, const Kvpool__HandoverOpen *m)
{
	struct fs_dir_handle *d = calloc(1, sizeof(*d));
	struct pool_entry *pe = m->gone ? NULL :
		pool_tree_lookup(fs->tree, (const char *)m->path.data,
				 m->path.len);
	struct node_dirent *dir = node_dir(pe);
	const struct fs_inode *i = dir ? pool_node_inode(pe) : NULL;

	if (!d)
		return NULL;
	if (i) {
		d->nodeid = fs_inode_id(i);
		d->cookie = pe->cookie;
		pool_tree_reader_open(fs->tree, node_dir_tree(dir), &d->reader);
		d->reader.last_cookie = m->last_cookie;
	}
	return &d->o;
}

static struct fs_fh *get_text(const Kvpool__HandoverOpen *m)
{
	struct fs_text *t = calloc(1, sizeof(*t));

	if (!t)
		return NULL;
	t->data = malloc(m->text.len + 1);
	if (!t->data) {
		free(t);
		return NULL;
	}
	if (m->text.len)
		memcpy(t->data, m->text.data, m->text.len);
	t->len = m->text.len;
	return &t->o;
}

static int get_open(void *arg, struct pool_handover *h, const void *msg)
{
	const Kvpool__HandoverOpen *m = msg;
	struct fs *fs = arg;
	struct fs_fh *o = m->kind == FS_FH_FILE ? get_file(fs, m, h) :
			    m->kind == FS_FH_DIR  ? get_dir(fs, m) :
			    m->kind == FS_FH_TEXT ? get_text(m) : NULL;

	if (!o)
		return -ENOMEM;
	fs->ntexts += m->kind == FS_FH_TEXT;
	o->kind = (enum fs_fh_kind)m->kind;
	o->fh = m->fh;
	if (fs->incarnation < m->fh >> 32)
		fs->incarnation = (uint32_t)(m->fh >> 32);
	return (uint32_t)m->fh < FS_FH_MIN ? -EBADMSG :
	       pool_slots_add_at(&fs->handles, (uint32_t)m->fh - FS_FH_MIN, o);
}

int fs_handover_read(struct fs *fs, struct pool_handover *h)
{
	int err = get_fs(fs, fs->taken);

	kvpool__handover_fs__free_unpacked(fs->taken, NULL);
	fs->taken = NULL;
	if (!err)
		err = pool_handover_each(h, POOL_HANDOVER_INODE,
					 &kvpool__handover_inode__descriptor,
					 get_inode, fs);
	if (!err)
		err = pool_handover_each(h, POOL_HANDOVER_OPEN,
					 &kvpool__handover_open__descriptor,
					 get_open, fs);
	if (err)
		return err;
	(void)pool_handover_get(h, POOL_HANDOVER_BY_ID, NULL, NULL);
	/* A record of an unknown type is from a newer version, and one that
	 * must not be ignored: refuse. */
	return pool_handover_get(h, POOL_HANDOVER_END, NULL, NULL);
}
