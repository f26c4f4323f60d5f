/*
 * Inodes: binding to names, attributes, data mode and backing; and the node's
 * callbacks (fs_node_ops), which unbind inodes and invalidate dentries when the
 * feed changes a name. The invariants are in fs_priv.h (struct fs_inode).
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct fs_inode *fs_inode_find(struct fs *fs, fuse_ino_t ino)
{
	struct fs_inode *i;

	if (ino == FUSE_ROOT_ID)
		return &fs->root;
	i = (uint32_t)ino < FS_PROC_MAX ? NULL :
		pool_slots_get(&fs->inodes, (uint32_t)ino - FS_PROC_MAX);
	return i && fs_inode_id(i) == ino ? i : NULL;
}

/* Allocates an inode without a nodeid. */
static struct fs_inode *inode_alloc(const struct fs *fs, uint32_t incarnation)
{
	struct fs_inode_kept *k;
	struct fs_inode *i;

	if (fs->opts.kept_fd <= 0 && !incarnation) {
		i = calloc(1, sizeof(*i));
	} else {
		k = calloc(1, sizeof(*k));
		if (k)
			k->incarnation = incarnation;
		i = k ? &k->i : NULL;
		if (i)
			i->has_kept_part = true;
	}
	if (i)
		pool_list_init(&i->lru);
	return i;
}

int fs_fh_add(struct fs *fs, struct fs_fh *o, enum fs_fh_kind kind)
{
	int err = pool_slots_add(&fs->handles, o, &o->fh);

	o->kind = kind;
	o->fh += FS_FH_MIN + ((uint64_t)fs->incarnation << 32);
	return err;
}

void fs_fh_remove(struct fs *fs, struct fs_fh *o)
{
	pool_slots_remove(&fs->handles, (uint32_t)o->fh - FS_FH_MIN);
}

static void past_unuse_obj(struct fs_inode *i)
{
	if (!i->past || !i->past->uses_obj)
		return;
	i->past->uses_obj = false;
	node_object_unuse(i->obj);
}

void fs_inode_set_obj(struct fs *fs, struct fs_inode *i,
		      struct node_object *o)
{
	if (i->obj == o)
		return;
	past_unuse_obj(i);
	if (i->obj) {
		if (node_object_inode(i->obj) == i)
			node_object_set_inode(i->obj, NULL);
		node_object_unref(fs->node, i->obj);
	}
	i->obj = o ? node_object_ref(o) : NULL;
	if (o)
		node_object_set_inode(o, i);
}

static void inode_show_own(struct fs *fs, struct fs_inode *i,
			   struct node_object *own)
{
	fs_inode_set_obj(fs, i, own);
	if (i->opens == 0)
		i->served = !fs->passthrough || node_object_served(own);
}

bool fs_inode_can_switch(const struct fs *fs, const struct fs_inode *i,
			 bool retry)
{
	/* Daemon-served handles have their own object, unless it is not known
	 * after a take-over. */
	if (i->opens > 0)
		return retry && i->served && !fs->handles_without_obj;
	/* An OPEN without FOPEN_KEEP_CACHE drops the nodeid's cached pages. */
	return retry || !i->was_served || !fs->passthrough;
}

/* The record of the ctime that a file had at its last nodeid, or NULL. */
static struct fs_carried *find_carried(struct fs *fs, uint64_t ino)
{
	unsigned int k;

	for (k = 0; k < FS_CARRIED_MAX; k++)
		if (fs->carried[k].ino == ino)
			return &fs->carried[k];
	return NULL;
}

/* Keeps the ctime for the nodeid that the next LOOKUP of e makes. Best effort:
 * the oldest of FS_CARRIED_MAX records is overwritten. */
static void carry_ctime(struct fs *fs, const struct pool_entry *e,
			uint64_t ctime_ns)
{
	uint64_t ino = e->cookie + FS_PROC_MAX;
	struct fs_carried *c = find_carried(fs, ino);

	if (!ctime_ns)
		return;
	if (!c)
		c = &fs->carried[fs->ncarried++ % FS_CARRIED_MAX];
	c->ino = ino;
	c->ctime_ns = ctime_ns;
}

struct fs_inode *fs_inode_bind(struct fs *fs, struct pool_entry *pe)
{
	struct node_entry *e = node_file(pe);
	struct node_object *own = e ? pool_node_own(e) : NULL;
	struct fs_inode *i = pool_node_inode(pe);
	struct fs_carried *c;
	uint64_t slot;

	if (i && own && !i->obj)
		inode_show_own(fs, i, own);
	if (i && own && i->obj != own && !fs_inode_follow(fs, i, false)) {
		fs_inode_unbind(fs, i); /* its handles keep its object */
		i = NULL;
	}
	if (i)
		return i;
	i = inode_alloc(fs, fs->incarnation);
	if (!i || pool_slots_add(&fs->inodes, i, &slot)) {
		free(i);
		return NULL;
	}
	i->low_id = (uint32_t)slot + FS_PROC_MAX;
	pool_gauge_add(&fs->ninodes, 1);
	i->ino = pe->cookie + FS_PROC_MAX;
	pool_node_set_inode(pe, i);
	if (!e) {
		i->kind = FS_DIR;
		i->u.dir = node_dir(pe);
		fs_kept_dir(fs, i, pe);
		return i;
	}
	i->kind = FS_FILE;
	i->entry = e;
	c = find_carried(fs, i->ino);
	i->u.ctime_ns = c ? c->ctime_ns : 0;
	i->served = !fs->passthrough;
	if (own)
		inode_show_own(fs, i, own);
	return i;
}

struct fs_inode *fs_inode_new_at(struct fs *fs, uint64_t id)
{
	struct fs_inode *i = inode_alloc(fs, (uint32_t)(id >> 32));

	if (!i || (uint32_t)id < FS_PROC_MAX ||
	    pool_slots_add_at(&fs->inodes, (uint32_t)id - FS_PROC_MAX, i)) {
		free(i);
		return NULL;
	}
	i->low_id = (uint32_t)id;
	pool_gauge_add(&fs->ninodes, 1);
	return i;
}

struct pool_entry *fs_inode_entry(const struct fs_inode *i)
{
	struct node_dirent *dir = fs_inode_dir(i);

	if (dir)
		return &node_dir_tree(dir)->e;
	return i->entry ? node_file_entry(i->entry) : NULL;
}

static void backing_drop(struct fs *fs, struct fs_inode *i)
{
	if (!i->backing)
		return;
	fs_backing_close(fs->dev_fd, i->backing);
	i->backing = 0;
	pool_gauge_add(&fs->gbackings, -1);
	if (!pool_list_empty(&i->lru)) {
		pool_list_del(&i->lru);
		fs->nbackings--;
	}
}

/* ---- struct fs_past ---- */

const struct fs_past *fs_inode_past(const struct fs_inode *i)
{
	static const struct fs_past nothing;

	return i->past ? i->past : &nothing;
}

struct fs_past *fs_inode_make_past(struct fs_inode *i)
{
	if (!i->past)
		i->past = calloc(1, sizeof(*i->past));
	return i->past;
}

const char *fs_inode_path(const struct fs_inode *i)
{
	return fs_inode_past(i)->path;
}

static void past_free(struct fs_inode *i)
{
	past_unuse_obj(i);
	if (i->past)
		free(i->past->path);
	free(i->past);
	i->past = NULL;
}

static void inode_free(struct fs *fs, struct fs_inode *i)
{
	struct pool_entry *pe = fs_inode_entry(i);
	bool tidy = i->entry;

	if (i->entry)
		carry_ctime(fs, pe, i->u.ctime_ns);
	if (pe)
		pool_node_set_inode(pe, NULL);
	backing_drop(fs, i);
	fs_inode_set_obj(fs, i, NULL);
	pool_list_del(&i->lru);
	fs_kept_drop(fs, i);
	pool_slots_remove(&fs->inodes, i->low_id - FS_PROC_MAX);
	pool_gauge_add(&fs->ninodes, -1);
	if (tidy)
		pool_node_tidy(fs->node, pe);
	past_free(i);
	free(i);
}

/* Frees i if neither a lookup count nor an open handle refers to it. */
static void inode_maybe_free(struct fs *fs, struct fs_inode *i)
{
	if (i != &fs->root && i->nlookup == 0 && i->opens == 0)
		inode_free(fs, i);
}

void fs_inode_forget(struct fs *fs, struct fs_inode *i, uint64_t n)
{
	if (i == &fs->root)
		return;
	i->nlookup -= n < i->nlookup ? n : i->nlookup;
	fs_kept_count(fs, i);
	inode_maybe_free(fs, i);
}

/* Keeps the path of a name that is being unbound. Not needed if no lookup count
 * is left: no OPEN of the nodeid can come then. */
static void past_set_path(struct fs_inode *i)
{
	char path[POOL_PATH_MAX + 1];

	if (i->nlookup == 0 || !i->past || i->past->path ||
	    pool_tree_path(fs_inode_entry(i), path, sizeof(path)) < 0)
		return;
	i->past->path = strdup(path);
}

struct node_entry *fs_inode_successor(struct fs *fs, const struct fs_inode *i)
{
	struct node_entry *f = fs_inode_path_entry(fs, i);

	if (!f || i->opens == 0)
		return f;
	return i->obj && pool_node_copy(f) == i->obj && !pool_node_own(f) ?
		       f : NULL;
}

/* Counts the nodeid itself as a user of its object, which keeps the object's
 * file: an OPEN by /proc/PID/fd opens it again. (The open handles count as
 * users of their own objects, which may be others.) */
static void past_use_obj(struct fs_inode *i)
{
	if (!i->served || i->opens == 0 || !i->obj || !i->past ||
	    i->past->uses_obj)
		return;
	i->past->uses_obj = true;
	node_object_use(i->obj, 1);
}

static bool is_writing(const struct node_object *o)
{
	return node_object_state(o) == NODE_WRITING;
}

void fs_inode_unbind(struct fs *fs, struct fs_inode *i)
{
	struct pool_entry *pe = fs_inode_entry(i);
	struct stat st;

	if (fs_inode_dir(i) && i != &fs->root) {
		if (fs_inode_make_past(i)) {
			i->past->attr = *pool_node_attr(pe);
			i->past->attr.mtime_ns = pool_node_dir_mtime(i->u.dir);
		}
		pool_node_set_inode(pe, NULL);
		i->u.dir = NULL;
		fs_kept_dir_gone(fs, i);
	}
	if (!i->entry)
		return;
	fs_inode_stat(fs, i, &st);
	if (fs_inode_make_past(i)) {
		i->past->size = i->obj && !is_writing(i->obj) ?
			node_object_final_size(i->obj) : (uint64_t)st.st_size;
		i->past->attr = *pool_node_attr(pe);
	}
	past_set_path(i);
	past_use_obj(i);
	pool_node_set_inode(pe, NULL);
	i->entry = NULL;
	if (i->opens > 0)
		fs_notify_attr(fs, i); /* the kernel has cached the name's */
	if (i->opens == 0) {
		backing_drop(fs, i);
		fs_inode_set_obj(fs, i, NULL);
	}
	inode_maybe_free(fs, i);
}

struct node_entry *fs_inode_path_entry(struct fs *fs, const struct fs_inode *i)
{
	const char *path = fs_inode_path(i);
	struct pool_entry *e = i->entry || !path ? NULL :
		pool_tree_lookup(fs->tree, path, strlen(path));

	return e && pool_node_visible(e) ? node_file(e) : NULL;
}

/* May i lose its name to another nodeid? take: see fs_inode_rebind. */
static bool can_unbind(const struct fs *fs, const struct fs_inode *i, bool take)
{
	if (i->opens == 0 && (!i->was_served || !fs->passthrough))
		return true;
	return take && !(i->obj && pool_node_writing(i->entry) == i->obj);
}

bool fs_inode_rebind(struct fs *fs, struct fs_inode *i, bool retry, bool take)
{
	struct node_entry *e = fs_inode_path_entry(fs, i);
	struct pool_entry *pe = e ? node_file_entry(e) : NULL;
	struct fs_inode *now = e ? pool_node_inode(pe) : NULL;
	struct node_object *own;

	if (!e || !fs_inode_can_switch(fs, i, retry) ||
	    (now && !can_unbind(fs, now, take)))
		return false;
	if (now) {
		fs_notify_entry(fs, pe);
		fs_inode_unbind(fs, now);
	}
	i->entry = e;
	pool_node_set_inode(pe, i);
	past_free(i);
	if (i->opens == 0)
		i->served = !fs->passthrough;
	own = pool_node_own(e);
	if (own)
		inode_show_own(fs, i, own);
	fs_notify_attr_now(fs, i);
	return true;
}

bool fs_inode_show(struct fs *fs, struct fs_inode *i,
		   const struct node_entry *e, struct node_object *o,
		   bool retry)
{
	void *bound = node_object_inode(o);

	if (i->entry || !fs_inode_can_switch(fs, i, retry) ||
	    !fs_inode_make_past(i))
		return false;
	inode_show_own(fs, i, o);
	node_object_set_inode(o, bound);
	i->past->size = node_object_final_size(o);
	i->past->attr = *pool_node_attr(node_file_entry(e));
	fs_notify_attr_now(fs, i);
	return true;
}

bool fs_inode_follow(struct fs *fs, struct fs_inode *i, bool retry)
{
	struct node_object *own = i->entry ? pool_node_own(i->entry) : NULL;

	if (!own || !fs_inode_can_switch(fs, i, retry))
		return false;
	if (i->opens == 0)
		backing_drop(fs, i);
	inode_show_own(fs, i, own);
	fs_notify_attr_now(fs, i);
	return true;
}

static void set_time(struct timespec *ts, uint64_t ns)
{
	ts->tv_sec = (time_t)(ns / 1000000000ull);
	ts->tv_nsec = (long)(ns % 1000000000ull);
}

/* Does any visible name show the content that the unbound file i shows? */
static bool has_name(struct fs *fs, const struct fs_inode *i)
{
	const struct node_object *o = i->obj;
	const struct node_entry *e = o ? node_object_name(o) : NULL;

	if (e && pool_node_shows(e, o))
		return pool_node_visible(node_file_entry(e));
	/* o may have been evicted and have no name any more. */
	e = o ? fs_inode_path_entry(fs, i) : NULL;
	return e && pool_node_shows(e, o);
}

static nlink_t count_links(struct fs *fs, const struct fs_inode *i,
			   const struct node_entry *same)
{
	const struct node_dirent *dir = fs_inode_dir(i);

	if (i->kind == FS_DIR)
		return dir ? 2 + pool_node_dir_dirs(dir) : 0;
	return i->entry || same || has_name(fs, i);
}

/* The ctime to show. A later mtime is from a write after the last recorded
 * ctime, so it is the ctime, too; but not an mtime in the future, which
 * utimensat(2) set. */
static uint64_t change_ns(const struct fs_inode *i, uint64_t mtime_ns)
{
	const struct node_dirent *dir = fs_inode_dir(i);
	uint64_t ns = dir ? pool_node_dir_ctime(dir) : i->kind == FS_DIR ? 0 :
		      i->u.ctime_ns;

	if (!ns || (mtime_ns > ns && mtime_ns <= pool_wall_ns()))
		return mtime_ns;
	return ns;
}

void fs_inode_changed(struct fs *fs, struct fs_inode *i)
{
	struct node_entry *same = fs_inode_successor(fs, i);
	struct pool_entry *pe = same ? node_file_entry(same) : NULL;
	struct fs_inode *other = pe ? pool_node_inode(pe) : NULL;
	uint64_t now = pool_wall_ns();

	if (fs_inode_dir(i))
		pool_node_dir_changed(i->u.dir, now);
	else if (i->kind == FS_FILE)
		i->u.ctime_ns = now;
	if (other)
		other->u.ctime_ns = now;
	else if (same)
		carry_ctime(fs, pe, now);
}

void fs_inode_stat(struct fs *fs, struct fs_inode *i, struct stat *st)
{
	const struct node_entry *same = fs_inode_successor(fs, i);
	const struct fs_past *past = fs_inode_past(i);
	const struct node_attr *a = same ? pool_node_version(same).attr :
					   &past->attr;
	uint64_t size = past->size, blocks = (size + 511) / 512, mtime_ns;
	struct pool_entry *pe = fs_inode_entry(i);
	struct node_attr shown;
	struct node_object *own;

	memset(st, 0, sizeof(*st));
	if (pe)
		a = pool_node_attr(pe);
	i->attr_expired = false;
	if (i->entry) {
		size = pool_node_version(i->entry).size;
		blocks = (size + 511) / 512;
		own = pool_node_own(i->entry);
		if (own)
			(void)pool_node_object_size(fs->node, own, &size,
						    &blocks);
	} else if (i->obj && is_writing(i->obj)) {
		/* Another nodeid is bound to the name. */
		(void)pool_node_object_size(fs->node, i->obj, &size, &blocks);
	} else if (i->obj && node_object_unlinked(i->obj)) {
		int fd = pool_node_writer_fd(fs->node, i->obj);
		struct stat file;

		/* It was unlinked while being written. */
		if (fd >= 0 && fstat(fd, &file) == 0)
			size = (uint64_t)file.st_size;
	} else if (i->obj && !i->past) {
		/* ENOMEM for `past`: the size at least must be right, or
		 * readers would stop early. */
		size = node_object_final_size(i->obj);
		blocks = (size + 511) / 512;
	}
	st->st_ino = i->ino;
	shown = fs_attr_shown(fs, a, i->kind == FS_DIR);
	st->st_mode = (i->kind == FS_DIR ? S_IFDIR : S_IFREG) | shown.mode;
	st->st_nlink = count_links(fs, i, same);
	st->st_uid = shown.uid;
	st->st_gid = shown.gid;
	st->st_blksize = 4096;
	if (i->kind == FS_FILE) {
		st->st_size = (off_t)size;
		st->st_blocks = (blkcnt_t)blocks;
	}
	mtime_ns = fs_inode_dir(i) ? pool_node_dir_mtime(i->u.dir) :
				     a->mtime_ns;
	set_time(&st->st_mtim, mtime_ns);
	set_time(&st->st_ctim, change_ns(i, mtime_ns));
	set_time(&st->st_atim, i->atime_ns ? i->atime_ns : mtime_ns);
}

static bool being_written(const struct fs_inode *i)
{
	return i->entry && pool_node_writing(i->entry);
}

static bool is_local(const struct node_entry *e)
{
	return pool_node_own(e) || pool_node_copy(e);
}

/* For how many seconds the kernel may cache the dentry. */
static double fs_entry_timeout(struct fs *fs, struct fs_inode *i)
{
	(void)fs;
	if (i->kind == FS_FILE && i->entry && !is_local(i->entry))
		return FS_TIMEOUT_REMOTE;
	return FS_TIMEOUT_LONG;
}

double fs_attr_timeout(struct fs *fs, struct fs_inode *i)
{
	(void)fs;
	return being_written(i) || (i->kind == FS_FILE && !i->entry) ?
		       0 : FS_TIMEOUT_LONG;
}

/* ---- backing ---- */

int fs_inode_backing(struct fs *fs, struct fs_inode *i)
{
	int fd, id;

	if (i->backing)
		return i->backing;
	/* The kernel keeps this open file. With O_RDONLY it would count as a
	 * reader, and the object as in use for ever (pool_file_in_use). */
	fd = node_object_open(fs->node, i->obj, O_PATH);
	if (fd < 0)
		return fd;
	id = fs_backing_open(fs->dev_fd, fd);
	close(fd);
	if (id > 0) {
		i->backing = id;
		pool_gauge_add(&fs->gbackings, 1);
	}
	return id == 0 ? -EIO : id;
}

/* (The next daemon cannot know the attributes of a file that is being written.)
 */
static void keep_file(struct fs *fs, struct fs_inode *i)
{
	struct stat st;

	if (!i->obj || is_writing(i->obj))
		return;
	fs_inode_stat(fs, i, &st);
	fs_kept_file(fs, i, &st);
}

void fs_inode_opened(struct fs *fs, struct fs_inode *i, struct node_object *o)
{
	if (i->opens++ == 0 && fs->kept)
		keep_file(fs, i);
	node_object_use(o, 1);
	pool_gauge_add(&fs->nopen, 1);
	if (!pool_list_empty(&i->lru)) {
		pool_list_del(&i->lru);
		fs->nbackings--;
	}
}

/* The backing of a bound file stays registered after the last close; beyond
 * FS_BACKINGS_MAX the least recently used one is closed. */
void fs_inode_closed(struct fs *fs, struct fs_inode *i, struct node_object *o)
{
	i->opens--;
	node_object_unuse(o);
	pool_gauge_add(&fs->nopen, -1);
	if (i->opens > 0)
		return;
	fs_kept_drop(fs, i);
	if (!i->entry) {
		backing_drop(fs, i);
		fs_inode_set_obj(fs, i, NULL);
	} else if (i->backing) {
		pool_list_add_tail(&fs->backings, &i->lru);
		if (++fs->nbackings > FS_BACKINGS_MAX) {
			struct fs_inode *old = pool_list_first(
				&fs->backings, struct fs_inode, lru);

			backing_drop(fs, old);
			if (!old->entry || !pool_node_own(old->entry))
				fs_inode_set_obj(fs, old, NULL);
		}
	} else if (!pool_node_own(i->entry)) {
		fs_inode_set_obj(fs, i, NULL);
	}
	inode_maybe_free(fs, i);
}

/* Entries and directories are freed already, with the node; objects live by our
 * refs. */
void fs_inodes_fini(struct fs *fs)
{
	uint64_t n;

	while (!pool_list_empty(&fs->executed)) {
		struct fs_executed *x = pool_list_first(
			&fs->executed, struct fs_executed, link);

		x->handles = 1;
		fs_executed_end(fs, x->obj);
	}

	for (n = pool_slots_next(&fs->inodes, 0); n < fs->inodes.cap;
	     n = pool_slots_next(&fs->inodes, n + 1)) {
		struct fs_inode *i = pool_slots_get(&fs->inodes, n);

		past_free(i);
		if (i->obj)
			node_object_unref(fs->node, i->obj);
		free(i);
	}
	pool_slots_fini(&fs->inodes);
}

void fs_inodes_settle(struct fs *fs)
{
	uint64_t n;

	for (n = pool_slots_next(&fs->inodes, 0); n < fs->inodes.cap;
	     n = pool_slots_next(&fs->inodes, n + 1)) {
		struct fs_inode *i = pool_slots_get(&fs->inodes, n);

		if (i->backing && !i->obj)
			backing_drop(fs, i);
		inode_maybe_free(fs, i);
	}
}

static const struct fs_inode *dir_of(const struct pool_entry *pe)
{
	return pe && pe->parent ? pool_node_inode(&pe->parent->e) : NULL;
}

void fs_dir_changes(struct fs *fs, struct node_dirent *dir)
{
	if (fs->kept && dir)
		fs_kept_changed(fs, pool_node_inode(&node_dir_tree(dir)->e));
}

void fs_inode_changes(struct fs *fs, const struct fs_inode *i)
{
	if (!fs->kept)
		return;
	if (i->kind == FS_DIR) /* an fsync of itself covers it, too */
		fs_kept_changed(fs, i);
	fs_kept_changed(fs, dir_of(fs_inode_entry(i)));
}

void fs_inode_written(struct fs *fs, struct fs_inode *i)
{
	if (!fs->kept)
		return;
	fs_inode_changes(fs, i);
	fs_kept_writer(fs, i, dir_of(fs_inode_entry(i)));
}

void fs_inodes_keep(struct fs *fs)
{
	bool settled = pool_node_settled(fs->node);
	uint64_t n;

	for (n = pool_slots_next(&fs->inodes, 0); n < fs->inodes.cap;
	     n = pool_slots_next(&fs->inodes, n + 1)) {
		struct fs_inode *i = pool_slots_get(&fs->inodes, n);

		if (fs_inode_dir(i)) {
			fs_kept_dir(fs, i, fs_inode_entry(i));
			if (!settled)
				fs_kept_changed(fs, i);
		} else if (i->opens > 0 && i->obj && is_writing(i->obj)) {
			fs_inode_written(fs, i);
		} else if (i->opens > 0) {
			keep_file(fs, i);
		}
	}
	for (n = pool_slots_next(&fs->handles, 0); n < fs->handles.cap;
	     n = pool_slots_next(&fs->handles, n + 1)) {
		struct fs_handle *h = pool_slots_get(&fs->handles, n);

		if (h->o.kind == FS_FH_FILE && h->obj)
			fs_kept_handle(fs, h);
	}
}

/* ---- callbacks of the node ---- */

void fs_touched_notify(struct fs *fs)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &fs->touched) {
		struct fs_inode *i = pool_list_entry(it, struct fs_inode, lru);

		pool_list_del(it);
		i->attr_expired = true;
		fs_notify_attr(fs, i);
	}
	uv_timer_stop(&fs->touch);
	fs->touch_ms = pool_now_ms();
}

static void touched_run(uv_timer_t *t)
{
	fs_touched_notify(t->data);
}

/*
 * e appeared, was removed, or shows another file, not by a request of this
 * mount: the times of its directory change. While the first picture of the
 * namespace arrives, the time of that change is not known: the directory gets
 * the latest mtime of its entries.
 */
static void dir_touched(struct fs *fs, const struct pool_entry *e)
{
	struct node_dirent *d = pool_node_parent(e);
	struct fs_inode *i = d ? pool_node_inode(&e->parent->e) : NULL;
	uint64_t ns = pool_node_complete(fs->node) ?
			      pool_wall_ns() : pool_node_attr(e)->mtime_ns;

	if (!d || (!pool_node_complete(fs->node) &&
		   ns <= pool_node_dir_mtime(d)))
		return;
	pool_node_dir_touch(d, ns);
	if (!i || i->attr_expired || !pool_list_empty(&i->lru))
		return;
	pool_list_add_tail(&fs->touched, &i->lru);
	if (!uv_is_active((uv_handle_t *)&fs->touch))
		uv_timer_start(&fs->touch, touched_run, FS_TOUCH_MS, 0);
}

/* The name e is gone, or shows another file: its nodeid is unbound. false: it
 * had none. */
static bool unbind_name(struct fs *fs, struct pool_entry *e)
{
	struct fs_inode *i = pool_node_inode(e);

	dir_touched(fs, e);
	if (!i)
		return false;
	fs_notify_entry(fs, e);
	fs_inode_unbind(fs, i);
	return true;
}

static void on_changed(void *arg, struct node_entry *e)
{
	struct fs *fs = arg;

	if (unbind_name(fs, node_file_entry(e)))
		fs_waiting_run(fs);
}

static void on_published(void *arg, struct node_entry *e)
{
	struct fs *fs = arg;
	struct pool_entry *pe = node_file_entry(e);
	struct fs_inode *i = pool_node_inode(pe);
	uint64_t atime_ns, ctime_ns;

	if (i && i->served && fs->passthrough) {
		/* The writer's nodeid is daemon-served: readers get another,
		 * in passthrough mode. */
		atime_ns = i->atime_ns; /* keep what utimensat(2) set */
		ctime_ns = i->u.ctime_ns;
		fs_notify_entry(fs, pe);
		fs_inode_unbind(fs, i);
		carry_ctime(fs, pe, ctime_ns);
		i = atime_ns ? fs_inode_bind(fs, pe) : NULL;
		if (i)
			i->atime_ns = atime_ns;
	} else if (i && i->obj != pool_node_copy(e) && i->opens == 0) {
		backing_drop(fs, i);
		fs_inode_set_obj(fs, i, NULL);
	} else if (i && i->opens == 0 && !i->backing) {
		fs_inode_set_obj(fs, i, NULL);
	}
	fs_waiting_run(fs);
}

static void on_attr_changed(void *arg, struct pool_entry *pe)
{
	struct fs *fs = arg;
	struct fs_inode *i = pool_node_inode(pe);

	if (i && i->kind == FS_FILE)
		i->u.ctime_ns = pool_wall_ns();
	if (i)
		fs_notify_attr(fs, i);
}

static void on_appeared(void *arg, struct pool_entry *e)
{
	struct fs *fs = arg;

	dir_touched(fs, e);
	if (fs_miss_maybe(fs, e))
		fs_notify_entry(fs, e);
}

static void on_dir_gone(void *arg, struct node_dirent *dir)
{
	(void)unbind_name(arg, &node_dir_tree(dir)->e);
}

static void on_object_gone(void *arg, struct node_object *o)
{
	struct fs *fs = arg;
	struct fs_inode *i = node_object_inode(o);

	if (!i)
		return;
	if (i->opens > 0) {
		/* Handles keep the object; the next LOOKUP makes a new nodeid.
		 */
		if (i->entry) {
			fs_notify_entry(fs, fs_inode_entry(i));
			fs_inode_unbind(fs, i);
		}
		return;
	}
	backing_drop(fs, i);
	fs_inode_set_obj(fs, i, NULL);
}

static void on_when_notified(void *arg, uint64_t mark)
{
	struct fs *fs = arg;

	if (pool_now_ms() - fs->touch_ms >= FS_TOUCH_MS)
		fs_touched_notify(fs);
	fs_notify_mark(fs, mark);
}

static void on_expire(void *arg)
{
	fs_notify_expire(arg);
}

static bool on_behind(void *arg)
{
	return fs_notify_behind(arg);
}

const struct pool_node_ops fs_node_ops = {
	.when_notified = on_when_notified,
	.expire = on_expire,
	.behind = on_behind,
	.changed = on_changed,
	.published = on_published,
	.attr_changed = on_attr_changed,
	.appeared = on_appeared,
	.dir_gone = on_dir_gone,
	.object_gone = on_object_gone,
};

struct node_dirent *fs_dir_of(struct fs *fs, fuse_ino_t ino)
{
	const struct fs_inode *i =
		fs_is_proc(ino) ? NULL : fs_inode_find(fs, ino);

	return i ? fs_inode_dir(i) : NULL;
}

void fs_fill_entry(struct fs *fs, struct fs_inode *i,
		   struct fuse_entry_param *p)
{
	memset(p, 0, sizeof(*p));
	p->ino = fs_inode_id(i);
	p->entry_timeout = fs_entry_timeout(fs, i);
	p->attr_timeout = fs_attr_timeout(fs, i);
	fs_inode_stat(fs, i, &p->attr);
	i->nlookup++;
	fs_kept_count(fs, i);
}
