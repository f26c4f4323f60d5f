/*
 * Requests about names and attributes. The kernel holds the directory's lock
 * during most of them, so every handler answers at once, from the node's copy
 * of the namespace.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/statvfs.h>

static void reply_missing(fuse_req_t req, struct fs *fs,
			  const struct node_dirent *dir, const char *name,
			  size_t len)
{
	struct fuse_entry_param p = { .entry_timeout = FS_TIMEOUT_LONG };

	fs_miss_add(fs, dir, name, len);
	fuse_reply_entry(req, &p);
}

/* A LOOKUP found e. Its thread may have got ESTALE before. */
static void found_again(fuse_req_t req, struct fs *fs, struct node_entry *e)
{
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	uint32_t tid = (uint32_t)ctx->pid;
	uint64_t since_ns;

	if (!fs_stale_expects(fs, tid, ctx->uid, e, &since_ns) ||
	    !fs_may(req, e, W_OK))
		return;
	if (since_ns)
		fs_open_empty(fs, e, since_ns);
	fs_stale_lookup(fs, tid, e);
}

void fs_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_count(req, OP_LOOKUP);
	uint64_t start = pool_now_ns();
	struct node_dirent *dir = fs_dir_of(fs, parent);
	struct fuse_entry_param p;
	struct pool_entry *e;
	struct fs_inode *i;
	size_t len = strlen(name);

	if (parent == FS_PROC_DIR ||
	    (parent == FUSE_ROOT_ID && strcmp(name, FS_PROC_NAME) == 0)) {
		fs_proc_lookup(req, name);
		return;
	}
	if (!dir) {
		fuse_reply_err(req, ENOENT);
		return;
	}
	if (len > POOL_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	e = pool_node_lookup(fs->node, dir, name, len);
	pool_node_looked_up(fs->node, e);
	if (!e || !e->is_dir)
		pool_node_asked(fs->node, dir, name, len, e != NULL);
	if (!e) {
		fs_stale_cancel(fs, (uint32_t)fuse_req_ctx(req)->pid);
		reply_missing(req, fs, dir, name, len);
		pool_hist_add(&fs->lookup_time, pool_now_ns() - start);
		return;
	}
	if (!e->is_dir)
		found_again(req, fs, node_file(e));
	i = fs_inode_bind(fs, e);
	if (!i) {
		/* ENOMEM. A miss, without a negative dentry. */
		fuse_reply_err(req, ENOENT);
		return;
	}
	fs_fill_entry(fs, i, &p);
	if (fuse_reply_entry(req, &p) == -ENOENT)
		fs_inode_forget(fs, i, 1); /* interrupted: no FORGET comes */
	else if (i->kind == FS_FILE && i->entry)
		pool_node_prefetch(fs->node, i->entry);
	pool_hist_add(&fs->lookup_time, pool_now_ns() - start);
}

void fs_forget(fuse_req_t req, fuse_ino_t ino, uint64_t n)
{
	struct fs *fs = fs_count(req, OP_FORGET);

	if (!fs_is_proc(ino))
		fs_inode_forget(fs, fs_inode_find(fs, ino), n);
	fuse_reply_none(req);
}

void fs_forget_multi(fuse_req_t req, size_t count,
		     struct fuse_forget_data *forgets)
{
	struct fs *fs = fs_count(req, OP_FORGET);
	struct fs_inode *i;
	size_t k;

	for (k = 0; k < count; k++) {
		if (fs_is_proc(forgets[k].ino))
			continue;
		i = fs_inode_find(fs, forgets[k].ino);
		if (i)
			fs_inode_forget(fs, i, forgets[k].nlookup);
		else
			fs_kept_forget(fs, fs_kept_find(fs, forgets[k].ino));
	}
	fuse_reply_none(req);
}

/* ---- attributes ---- */

static void reply_attr(fuse_req_t req, struct fs *fs, struct fs_inode *i)
{
	struct stat st;

	fs_inode_stat(fs, i, &st);
	fuse_reply_attr(req, &st, fs_attr_timeout(fs, i));
}

void fs_getattr(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_GETATTR);
	struct stat st;

	(void)fi;
	if (fs_is_proc(ino)) {
		fs_proc_stat(ino, &st);
		fuse_reply_attr(req, &st, FS_TIMEOUT_LONG);
		return;
	}
	reply_attr(req, fs, fs_inode_find(fs, ino));
}

static uint64_t to_ns(const struct timespec *ts, bool now)
{
	return now ? pool_wall_ns() :
		     (uint64_t)ts->tv_sec * 1000000000ull +
			     (uint64_t)ts->tv_nsec;
}

/* Changes the frozen attributes of an unbound nodeid. */
static void set_past(struct node_attr *a, unsigned int bits,
		     const struct node_attr *to)
{
	if (bits & POOL_SET_MODE)
		a->mode = to->mode;
	if (bits & POOL_SET_UID)
		a->uid = to->uid;
	if (bits & POOL_SET_GID)
		a->gid = to->gid;
	if (bits & POOL_SET_MTIME)
		a->mtime_ns = to->mtime_ns;
}

/* Set-ID bits are refused: the mount is nosuid, and a new file belongs to the
 * caller's group, whatever its directory. */
static bool has_sid(mode_t mode)
{
	return mode & (S_ISUID | S_ISGID);
}

/* May the caller change the attributes of f? The kernel checked the older
 * file. */
static bool may_follow(fuse_req_t req, const struct node_entry *f, int set)
{
	const int times = FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_MTIME |
			  FUSE_SET_ATTR_CTIME;
	const int now = FUSE_SET_ATTR_ATIME_NOW | FUSE_SET_ATTR_MTIME_NOW;

	/* Setting the times to now needs write permission only (utimensat(2)).
	 */
	return fs_may_change(req, f) ||
	       ((set & now) == now && !(set & ~(times | now)) &&
		fs_may(req, f, W_OK));
}

void fs_setattr(fuse_req_t req, fuse_ino_t ino, struct stat *attr, int set,
		struct fuse_file_info *fi)
{
	struct fs *fs = fs_change(req, OP_SETATTR);
	struct fs_inode *i, *next;
	struct node_entry *f;
	struct pool_entry *e;
	struct node_attr a = { 0 };
	unsigned int bits = 0;
	int err = 0;

	if (fs_is_proc(ino)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (set & FUSE_SET_ATTR_MODE && has_sid(attr->st_mode)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	i = fs_inode_find(fs, ino);
	fs_inode_changes(fs, i);
	if (set & FUSE_SET_ATTR_SIZE) {
		fs_resize(req, i, (uint64_t)attr->st_size, fi);
		return;
	}
	f = i->entry ? i->entry : fs_inode_successor(fs, i);
	if (f && !i->entry && !may_follow(req, f, set)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (set & (FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW)) {
		i->atime_ns = to_ns(&attr->st_atim,
				    set & FUSE_SET_ATTR_ATIME_NOW);
		next = f ? fs_inode_bind(fs, node_file_entry(f)) : NULL;
		if (next)
			next->atime_ns = i->atime_ns;
	}
	if (set & FUSE_SET_ATTR_MODE)
		bits |= POOL_SET_MODE;
	if (set & FUSE_SET_ATTR_UID)
		bits |= POOL_SET_UID;
	if (set & FUSE_SET_ATTR_GID)
		bits |= POOL_SET_GID;
	if (set & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW))
		bits |= POOL_SET_MTIME;
	a.mode = attr->st_mode & 01777;
	a.uid = attr->st_uid;
	a.gid = attr->st_gid;
	a.mtime_ns = to_ns(&attr->st_mtim, set & FUSE_SET_ATTR_MTIME_NOW);
	e = f ? node_file_entry(f) : fs_inode_entry(i);
	if (bits && e)
		err = pool_node_setattr(fs->node, e, bits, &a, NULL);
	else if (bits && i->past)
		set_past(&i->past->attr, bits, &a);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	fs_inode_changed(fs, i);
	reply_attr(req, fs, i);
}

/* ---- making and removing ---- */

/* Answers with the new entry. -ENOMEM: answered, too, and the caller removes
 * the entry. */
static int reply_new(fuse_req_t req, struct fs *fs, struct pool_entry *e)
{
	struct fs_inode *i = fs_inode_bind(fs, e);
	struct fuse_entry_param p;

	if (!i) {
		fuse_reply_err(req, ENOMEM);
		return -ENOMEM;
	}
	fs_fill_entry(fs, i, &p);
	if (fuse_reply_entry(req, &p) == -ENOENT)
		fs_inode_forget(fs, i, 1);
	return 0;
}

void fs_mkdir(fuse_req_t req, fuse_ino_t parent, const char *name,
	      mode_t mode)
{
	struct fs *fs = fs_change(req, OP_MKDIR);
	struct node_dirent *dir = fs_dir_of(fs, parent), *d;
	struct node_attr a = fs_attr_new(req, mode);
	int err;

	fs_dir_changes(fs, dir);
	if (parent == FUSE_ROOT_ID && strcmp(name, FS_PROC_NAME) == 0)
		err = -EEXIST;
	else
		err = dir ? pool_node_mkdir(fs->node, dir, name, strlen(name),
					    &a, &d) : -ENOENT;
	if (err == -EEXIST && fs->resent && dir) {
		struct pool_entry *e = pool_node_lookup(fs->node, dir, name,
							strlen(name));

		if (e && e->is_dir) { /* made by the killed daemon */
			(void)reply_new(req, fs, e);
			return;
		}
	}
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	pool_node_dir_touch(dir, pool_wall_ns());
	if (reply_new(req, fs, &node_dir_tree(d)->e))
		(void)pool_node_rmdir(fs->node, d);
}

/* mknod(2) of a regular file: an empty object. Nothing else is supported. */
void fs_mknod(fuse_req_t req, fuse_ino_t parent, const char *name, mode_t mode,
	      dev_t rdev)
{
	struct fs *fs = fs_count(req, OP_MKNOD);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	struct node_attr a = fs_attr_new(req, mode);
	struct node_object *o;
	int err;

	(void)rdev;
	if (!S_ISREG(mode) || has_sid(mode) || !dir) {
		fuse_reply_err(req, dir ? EPERM : ENOENT);
		return;
	}
	if (pool_node_lookup(fs->node, dir, name, strlen(name))) {
		fuse_reply_err(req, EEXIST);
		return;
	}
	err = fs_new_file(fs, dir, name, &a, &o);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	if (reply_new(req, fs, node_file_entry(node_object_name(o)))) {
		fs_uncreate(fs, o);
		return;
	}
	pool_node_writer_opened(fs->node, o);
	pool_node_writer_flushed(fs->node, o);
	pool_node_writer_closed(fs->node, o);
}

/* The file e loses its name by UNLINK or RENAME: its nodeid, if it has one, is
 * unbound, and the ctime changes. */
static void leave_name(struct fs *fs, struct pool_entry *e)
{
	struct fs_inode *i = pool_node_inode(e);

	if (!i)
		return;
	i->u.ctime_ns = pool_wall_ns();
	fs_inode_unbind(fs, i);
}

/* A name to remove or rename is not there. If the request was resent, a killed
 * daemon may have executed it, without an answer: that is success. */
static int gone_errno(const struct fs *fs)
{
	return fs->resent ? 0 : ENOENT;
}

void fs_unlink(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_change(req, OP_UNLINK);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	struct pool_entry *e;
	int err;

	if (!dir) {
		fuse_reply_err(req, fs_is_proc(parent) ? EPERM : ENOENT);
		return;
	}
	e = pool_node_lookup(fs->node, dir, name, strlen(name));
	if (!e || e->is_dir) {
		fuse_reply_err(req, e ? EISDIR : gone_errno(fs));
		return;
	}
	if (!fs_may_remove(req, dir, e)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fs_dir_changes(fs, dir);
	err = pool_node_unlink(fs->node, node_file(e));
	if (!err) {
		leave_name(fs, e);
		pool_node_dir_touch(dir, pool_wall_ns());
	}
	pool_node_tidy(fs->node, e);
	fuse_reply_err(req, -err);
}

void fs_rmdir(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	struct fs *fs = fs_change(req, OP_RMDIR);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	struct pool_entry *e;
	int err;

	if (parent == FUSE_ROOT_ID && strcmp(name, FS_PROC_NAME) == 0) {
		fuse_reply_err(req, EPERM);
		return;
	}
	e = dir ? pool_node_lookup(fs->node, dir, name, strlen(name)) : NULL;
	if (!e || !e->is_dir) {
		fuse_reply_err(req, e ? ENOTDIR : gone_errno(fs));
		return;
	}
	if (!fs_may_remove(req, dir, e)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fs_dir_changes(fs, dir);
	err = pool_node_rmdir(fs->node, node_dir(e));
	fuse_reply_err(req, -err);
}

void fs_link(fuse_req_t req, fuse_ino_t ino, fuse_ino_t newparent,
	     const char *newname)
{
	(void)ino;
	(void)newparent;
	(void)newname;
	fs_count(req, OP_LINK);
	fuse_reply_err(req, EPERM);
}

void fs_symlink(fuse_req_t req, const char *link, fuse_ino_t parent,
		const char *name)
{
	(void)link;
	(void)parent;
	(void)name;
	fs_count(req, OP_SYMLINK);
	fuse_reply_err(req, EPERM);
}

/* ---- rename ---- */

/* After a RENAME the kernel's dentry keeps its nodeid: bind that to `to`. */
static void move_inode(struct fs *fs, struct pool_entry *from,
		       struct pool_entry *to)
{
	struct fs_inode *i = pool_node_inode(from);
	struct node_object *own;

	pool_node_set_inode(from, NULL);
	pool_node_set_inode(to, i);
	if (from->is_dir) {
		if (i) {
			i->u.dir = node_dir(to);
			fs_kept_dir(fs, i, to);
		}
		return;
	}
	if (!i || i->nlookup == 0) {
		/* The kernel has no nodeid of `from`: the dentry that it moves
		 * shows an unbound one. Invalidate it. */
		fs->moved_ms = pool_now_ms();
		fs_notify_entry(fs, to);
	}
	if (!i)
		return;
	i->entry = node_file(to);
	own = pool_node_own(i->entry);
	if (own)
		fs_inode_set_obj(fs, i, own);
}

static void renamed(struct fs *fs, struct node_dirent *dir,
		    struct node_dirent *newdir, struct pool_entry *to)
{
	struct fs_inode *i = to->is_dir ? NULL : pool_node_inode(to);
	uint64_t now = pool_wall_ns();

	pool_node_dir_touch(dir, now);
	pool_node_dir_touch(newdir, now);
	if (i)
		fs_inode_changed(fs, i);
}

void fs_rename(fuse_req_t req, fuse_ino_t parent, const char *name,
	       fuse_ino_t newparent, const char *newname, unsigned int flags)
{
	struct fs *fs = fs_change(req, OP_RENAME);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	struct node_dirent *newdir = fs_dir_of(fs, newparent);
	struct pool_entry *from, *old, *to;
	size_t len = strlen(newname);
	int err;

	if (flags & ~1u) { /* only RENAME_NOREPLACE is supported */
		fuse_reply_err(req, EINVAL);
		return;
	}
	if (!dir || !newdir) {
		fuse_reply_err(req, fs_is_proc(parent) ||
					    fs_is_proc(newparent) ? EPERM :
								    ENOENT);
		return;
	}
	from = pool_node_lookup(fs->node, dir, name, strlen(name));
	if (!from) {
		to = pool_node_lookup(fs->node, newdir, newname, len);
		fuse_reply_err(req, to ? gone_errno(fs) : ENOENT);
		return;
	}
	old = pool_tree_find(fs->tree, node_dir_tree(newdir), newname, len);
	if (!fs_may_remove(req, dir, from) ||
	    (old && pool_node_visible(old) &&
	     !fs_may_remove(req, newdir, old))) {
		fuse_reply_err(req, EPERM);
		return;
	}
	fs_dir_changes(fs, dir);
	fs_dir_changes(fs, newdir);
	err = pool_node_rename(fs->node, from, newdir, newname, len,
			       flags & 1u, &to);
	if (err || to == from) {
		fuse_reply_err(req, -err);
		return;
	}
	if (old && !old->is_dir)
		leave_name(fs, old);
	move_inode(fs, from, to);
	renamed(fs, dir, newdir, to);
	if (from->is_dir)
		(void)pool_node_rmdir(fs->node, node_dir(from));
	else
		pool_node_tidy(fs->node, from);
	fuse_reply_err(req, 0);
}

/* ---- */

void fs_statfs(fuse_req_t req, fuse_ino_t ino)
{
	struct fs *fs = fs_count(req, OP_STATFS);
	struct statvfs st;

	(void)ino;
	pool_node_statvfs(fs->node, &st);
	fuse_reply_statfs(req, &st);
}
