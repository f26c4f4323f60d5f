/*
 * Files: CREATE, FLUSH, RELEASE and FSYNC. FLUSH and RELEASE report to the node
 * that a writer has closed the file, which makes it a candidate for
 * publication. OPEN is in open.c, the data of daemon-served files in
 * data_ops.c.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <string.h>

/* ---- CREATE ---- */

int fs_new_file(struct fs *fs, struct node_dirent *dir, const char *name,
		const struct node_attr *a, struct node_object **ret_o)
{
	int err;

	fs_dir_changes(fs, dir);
	err = pool_node_create(fs->node, dir, name, strlen(name), a, 0, ret_o);
	if (!err)
		pool_node_dir_touch(dir, pool_wall_ns());
	return err;
}

void fs_uncreate(struct fs *fs, struct node_object *o)
{
	if (node_object_writers(o) == 0)
		pool_node_writer_opened(fs->node, o);
	pool_node_poison(fs->node, o, -ECANCELED);
	pool_node_writer_closed(fs->node, o);
}

static void reply_create(fuse_req_t req, struct fs *fs, struct fs_inode *i,
			 int flags)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	const struct node_attr a =
		fs_attr_shown(fs, pool_node_attr(fs_inode_entry(i)), false);
	int err;

	pool_node_writer_opened(fs->node, i->obj);
	err = fs_handle_open(fs, i, flags, &out.open);
	if (err) {
		fs_uncreate(fs, i->obj);
		fuse_reply_err(req, -err);
		return;
	}
	fs_inode_opened(fs, i, i->obj);
	fs_inode_written(fs, i);
	i->nlookup++;
	memset(&out.entry, 0, sizeof(out.entry));
	out.entry.nodeid = fs_inode_id(i);
	out.entry.entry_valid = (uint64_t)FS_TIMEOUT_LONG;
	out.entry.attr_valid = FS_TIMEOUT_CREATED;
	out.entry.attr.ino = i->ino;
	out.entry.attr.mode = S_IFREG | a.mode;
	out.entry.attr.nlink = 1;
	out.entry.attr.uid = a.uid;
	out.entry.attr.gid = a.gid;
	out.entry.attr.blksize = 4096;
	out.entry.attr.mtime = out.entry.attr.ctime = out.entry.attr.atime =
		a.mtime_ns / 1000000000ull;
	out.entry.attr.mtimensec = out.entry.attr.ctimensec =
		out.entry.attr.atimensec =
			(uint32_t)(a.mtime_ns % 1000000000ull);
	if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) != -ENOENT)
		return;
	fs_handle_free(fs, fs_fh_get(fs, out.open.fh));
	if (out.open.fh == FS_PASSTHROUGH_WRITER)
		fs_direct_end(fs, i->obj);
	fs_uncreate(fs, i->obj);
	fs_inode_closed(fs, i, i->obj);
	fs_inode_forget(fs, i, 1);
}

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name,
	       mode_t mode, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_CREATE);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct node_attr a = fs_attr_new(req, mode);
	struct fs_refused what = { 0, 0, ctx->uid };
	struct node_object *o;
	struct pool_entry *e;
	struct fs_inode *i;
	int err;

	if (!dir) {
		fuse_reply_err(req, fs_is_proc(parent) ? EPERM : ENOENT);
		return;
	}
	if (mode & (S_ISUID | S_ISGID)) {
		fuse_reply_err(req, EPERM);
		return;
	}
	if (strlen(name) > POOL_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	fs_stale_cancel(fs, (uint32_t)ctx->pid);
	/* The kernel has a negative dentry, but the name has appeared. */
	e = pool_node_lookup(fs->node, dir, name, strlen(name));
	if (e) {
		what.cookie = e->cookie;
		what.since_ns = fi->flags & O_TRUNC ? pool_now_ns() : 0;
		if (!(fi->flags & O_EXCL))
			fs_stale_sent(fs, (uint32_t)ctx->pid, true, what);
		fuse_reply_err(req, fi->flags & O_EXCL ? EEXIST : ESTALE);
		return;
	}
	err = fs_new_file(fs, dir, name, &a, &o);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	i = fs_inode_bind(fs, node_file_entry(node_object_name(o)));
	if (!i) {
		fs_uncreate(fs, o);
		fuse_reply_err(req, ENOMEM);
		return;
	}
	/* The handle of a CREATE counts as a writer even if it is read-only,
	 * because its close publishes the empty file. */
	reply_create(req, fs, i, fi->flags | O_RDWR);
}

/* ---- FLUSH, RELEASE, FSYNC ---- */

/*
 * FLUSH comes at each close(2) of a daemon-served writer, after the kernel has
 * written back the dirty pages of its mappings. Other handles save that round
 * trip (FOPEN_NOFLUSH): their last close is known from RELEASE. The kernel
 * queues RELEASE before close(2) returns (fuse_file_put in fs/fuse/file.c), so
 * RELEASE precedes any later request of the same thread; max_background
 * (on_init) is so large that a RELEASE is never held back.
 */
void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_FLUSH);
	struct node_object *o;
	struct fs_inode *i;
	int err = 0;

	if (!fs_is_proc(ino)) {
		i = fs_inode_find(fs, ino);
		o = fs_handle_obj(fs, i, fi->fh);
		err = o ? pool_node_writer_flushed(fs->node, o) : 0;
	}
	fuse_reply_err(req, -err);
}

void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_RELEASE);
	struct fs_inode *i;
	struct node_object *o;
	bool writer, passthrough_writer = fi->fh == FS_PASSTHROUGH_WRITER;

	if (fs_is_proc(ino)) {
		fs_proc_release(req, fi);
		return;
	}
	i = fs_inode_find(fs, ino);
	o = node_object_ref(fs_handle_obj(fs, i, fi->fh));
	writer = fs_handle_writes(fs, fi->fh);
	fs_handle_free(fs, fs_fh_get(fs, fi->fh));
	fuse_reply_err(req, 0);
	i->nlookup++;
	if (writer)
		fs_inode_changes(fs, i);
	fs_inode_closed(fs, i, o);
	if (fi->flags & FS_O_EXEC)
		fs_executed_end(fs, o);
	if (writer && node_object_has_writer(o)) {
		if (passthrough_writer) {
			fs_direct_end(fs, o);
			pool_node_writer_flushed(fs->node, o);
		}
		pool_node_writer_closed(fs->node, o);
		if (!pool_list_empty(&fs->waiting)) /* perhaps for this */
			fs_waiting_run(fs);
	}
	fs_inode_forget(fs, i, 1);
	node_object_unref(fs->node, o);
}

/* No-op: the bytes are in memory, and an fsync of a file promises no more. An
 * fsync of its directory does (fs_fsyncdir). */
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
	      struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fs_count(req, OP_FSYNC);
	fuse_reply_err(req, 0);
}
