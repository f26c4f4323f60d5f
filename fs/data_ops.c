/*
 * Data: the kernel sends READ and WRITE only for daemon-served files (and READ
 * for /.kvpool), FALLOCATE for files in both data modes.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/map.h"

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	     struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_READ);
	struct fs_handle *h = fs_is_proc(ino) ? NULL : fs_fh_get(fs, fi->fh);
	ssize_t n;
	char *buf;
	int fd;

	if (fs_is_proc(ino)) {
		fs_proc_read(req, size, off, fi);
		return;
	}
	if (!h) {
		fuse_reply_err(req, EBADF);
		return;
	}
	fd = node_fd_get(fs->node, &h->fd, h->obj, O_RDONLY);
	if (fd < 0) {
		fuse_reply_err(req, -fd);
		return;
	}
	if (h->fd.map) {
		size_t at = (size_t)off, len = h->fd.map_len;

		if (off < 0 || at >= len) {
			fuse_reply_buf(req, NULL, 0);
			return;
		}
		if (size > len - at)
			size = len - at;
		/* If a page were missing and the daemon were killed while the
		 * kernel copies from it, the kernel would answer with EIO, and
		 * not ask the next daemon. */
		if (fs->kept)
			(void)pool_map_populate(h->fd.map + at, size, false);
		fuse_reply_buf(req, h->fd.map + at, size);
		return;
	}
	buf = malloc(size ? size : 1);
	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	n = pread(fd, buf, size, off);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
	free(buf);
}

/* A WRITE that waits for space, with a copy of its data. */
struct write_req {
	struct fs *fs;
	fuse_req_t req;
	struct node_object *obj; /* ref */
	off_t off;
	size_t size;
	char data[];
};

/* Writes everything or fails: programs that ignore short writes would take one
 * for success. */
static int write_all(int fd, const char *buf, size_t size, off_t off)
{
	while (size > 0) {
		ssize_t n = pwrite(fd, buf, size, off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		buf += n;
		off += n;
		size -= (size_t)n;
	}
	return 0;
}

static void write_now(fuse_req_t req, struct fs *fs, struct node_object *o,
		      const char *buf, size_t size, off_t off)
{
	int fd = node_object_has_writer(o) ? pool_node_writer_fd(fs->node, o) :
					     -EBADF;
	int err = fd < 0 ? fd : write_all(fd, buf, size, off);

	if (err) {
		pool_node_poison(fs->node, o, err);
		fuse_reply_err(req, -err);
		return;
	}
	pool_node_writer_wrote(fs->node, o);
	fuse_reply_write(req, size);
}

static void on_room(void *arg, int status)
{
	struct write_req *w = arg;

	if (status) {
		pool_node_poison(w->fs->node, w->obj, status);
		fuse_reply_err(w->req, -status);
	} else {
		write_now(w->req, w->fs, w->obj, w->data, w->size, w->off);
	}
	node_object_unref(w->fs->node, w->obj);
	w->fs->ndeferred[FS_DEFERRED_SPACE]--;
	free(w);
}

void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
	      off_t off, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_WRITE);
	struct node_object *o = fs_is_proc(ino) ? NULL :
		fs_handle_obj(fs, fs_inode_find(fs, ino), fi->fh);
	struct write_req *w;
	int rc;

	if (!o || !node_object_has_writer(o) || node_object_sealed(o) ||
	    off < 0) {
		fuse_reply_err(req, EBADF);
		return;
	}
	w = malloc(sizeof(*w) + size);
	if (!w) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	w->fs = fs;
	w->req = req;
	w->obj = o;
	w->off = off;
	w->size = size;
	rc = pool_node_extend_start(fs->node, o, (uint64_t)off, size, on_room,
				    w);
	if (rc == 0) {
		/* on_room runs on this thread, after this function has
		 * returned, so it sees the copy. */
		memcpy(w->data, buf, size);
		node_object_ref(o);
		fs->ndeferred[FS_DEFERRED_SPACE]++;
		pool_count(&fs->write_waits);
		return;
	}
	free(w);
	if (rc == 1) {
		write_now(req, fs, o, buf, size, off);
		return;
	}
	pool_node_poison(fs->node, o, rc);
	fuse_reply_err(req, -rc);
}

/* ---- FALLOCATE, IOCTL ---- */

struct alloc_req {
	struct fs *fs;
	fuse_req_t req;
	struct fs_inode *inode; /* borrows: it is open */
};

static void on_allocated(void *arg, int status)
{
	struct alloc_req *a = arg;

	if (!status)
		fs_inode_changed(a->fs, a->inode);
	fuse_reply_err(a->req, -status);
	a->fs->ndeferred[FS_DEFERRED_SPACE]--;
	free(a);
}

void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
		  off_t length, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_FALLOCATE);
	struct node_object *o = fs_is_proc(ino) ? NULL :
		fs_handle_obj(fs, fs_inode_find(fs, ino), fi->fh);
	struct alloc_req *a;
	int rc;

	if (mode & ~FALLOC_FL_KEEP_SIZE) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (!o || !node_object_has_writer(o) || !node_object_name(o)) {
		fuse_reply_err(req, fs_is_proc(ino) ? EPERM : EOPNOTSUPP);
		return;
	}
	if (fs_write_locks(o, fs_inode_find(fs, ino))) {
		fuse_reply_err(req, ETXTBSY);
		return;
	}
	a = malloc(sizeof(*a));
	if (!a) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	a->fs = fs;
	a->req = req;
	a->inode = fs_inode_find(fs, ino);
	fs->ndeferred[FS_DEFERRED_SPACE]++;
	rc = pool_node_allocate_start(fs->node, o, (uint64_t)offset,
				      (uint64_t)length,
				      mode & FALLOC_FL_KEEP_SIZE,
				      on_allocated, a);
	if (rc != 0)
		on_allocated(a, rc == 1 ? 0 : rc);
}

/* ENOTTY: Python sends TCGETS to every file that it opens. */
void fs_ioctl(fuse_req_t req, fuse_ino_t ino, unsigned int cmd, void *arg,
	      struct fuse_file_info *fi, unsigned int flags,
	      const void *in_buf, size_t in_bufsz, size_t out_bufsz)
{
	(void)ino;
	(void)cmd;
	(void)arg;
	(void)fi;
	(void)flags;
	(void)in_buf;
	(void)in_bufsz;
	(void)out_bufsz;
	fs_count(req, OP_IOCTL);
	fuse_reply_err(req, ENOTTY);
}
