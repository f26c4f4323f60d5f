/* SETATTR of a size: chooses the file that is resized. The resize itself
 * proceeds like an OPEN to write (open.c). */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* ftruncate(2) by a handle whose object the name does not show any more. */
static void resize_handle(fuse_req_t req, struct fs *fs, struct fs_inode *i,
			  struct node_object *o, uint64_t size)
{
	int fd = !o || !node_object_has_writer(o) ? -ESTALE :
		 fs_write_locks(o, i) ? -ETXTBSY :
					pool_node_writer_fd(fs->node, o);
	uint64_t now;

	if (fd < 0 || ftruncate(fd, (off_t)size) < 0) {
		fuse_reply_err(req, fd < 0 ? -fd : errno);
		return;
	}
	now = fs_write_ns();
	pool_node_modified(fs->node, o, now);
	if (i->past)
		i->past->attr.mtime_ns = now;
	fs_inode_changed(fs, i);
	fs_resize_reply(req, fs, i);
}

/*
 * The retry of truncate(2), which got ESTALE: the nodeid to truncate through.
 * That is i if it can switch to the file that the name shows; else another one
 * of that file, and the handles of i keep its object. NULL: the name is gone.
 */
static struct fs_inode *resize_instead(struct fs *fs, struct fs_inode *i)
{
	struct node_entry *e = i->entry;
	struct pool_entry *pe;
	struct fs_inode *now;

	if (fs_inode_can_switch(fs, i, true) &&
	    (e || fs_inode_rebind(fs, i, true, true)))
		return i;
	if (!e)
		e = fs_inode_path_entry(fs, i);
	if (!e)
		return NULL;
	pe = node_file_entry(e);
	now = pool_node_inode(pe);
	fs_notify_entry(fs, pe); /* the kernel's dentry has i's nodeid */
	if (now && !(now->obj && pool_node_own(e) == now->obj) &&
	    !fs_inode_can_switch(fs, now, true))
		fs_inode_unbind(fs, now);
	return fs_inode_bind(fs, pe);
}

/* May the caller write the file that the name shows? The kernel checked the
 * older one. */
static bool may_follow(fuse_req_t req, struct fs *fs, const struct fs_inode *i)
{
	const struct node_entry *e = fs_inode_path_entry(fs, i);

	return !e || fs_may(req, e, W_OK);
}

void fs_resize(fuse_req_t req, struct fs_inode *i, uint64_t size,
	       const struct fuse_file_info *fi)
{
	uint32_t tid = (uint32_t)fuse_req_ctx(req)->pid;
	struct fs *fs = fs_of(req);
	struct node_object *o = fi ? fs_handle_obj(fs, i, fi->fh) : NULL;
	struct fs_pin pin = { .name = NULL };
	const struct fs_inode *asked = i;
	const struct node_entry *e;
	bool retry = !fi && fs_stale_take(fs, tid, &pin);

	if (i->kind != FS_FILE || size > INT64_MAX) {
		fs_stale_unpin(fs, &pin);
		fuse_reply_err(req, i->kind != FS_FILE ? EISDIR : EFBIG);
		return;
	}
	fs_inode_changes(fs, i);
	if (fi && (!i->entry || o != i->obj)) {
		resize_handle(req, fs, i, o, size);
		return;
	}
	if (!i->entry && !retry) {
		e = fs_inode_path_entry(fs, i);
		fs_stale_sent(fs, tid, true,
			      (struct fs_refused){ fs_cookie(e), 0,
						   fuse_req_ctx(req)->uid });
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (retry && !may_follow(req, fs, i)) {
		fs_stale_unpin(fs, &pin);
		fuse_reply_err(req, EACCES);
		return;
	}
	if (retry)
		i = resize_instead(fs, i);
	if (i) {
		fs_open_begin(req, fs, i, asked, O_WRONLY, (int64_t)size,
			      retry, pin);
		return;
	}
	fs_stale_unpin(fs, &pin);
	fuse_reply_err(req, ENOENT);
}
