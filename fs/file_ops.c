/*
 * Files: OPEN and CREATE decide how data flows; READ, WRITE and FALLOCATE come
 * only for daemon-served files (FALLOCATE for all).
 *
 * The handle (fi->fh) is 0 (a reader) or PASSTHROUGH_WRITER in passthrough
 * mode, else a struct handle.
 */
#include "fs/priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PASSTHROUGH_WRITER 1

/* A daemon-served open file. */
struct handle {
	bool writer;
	const char *map; /* whole published object, or NULL */
	size_t map_len;
	int fd; /* O_RDONLY, for one that is being written, or -1 */
};

static bool wants_write(int flags)
{
	return (flags & O_ACCMODE) != O_RDONLY;
}

/* ---- replying to OPEN and CREATE ---- */

static int handle_new(struct fs *fs, struct node_object *o,
		      struct handle **ret_handle)
{
	struct handle *h = calloc(1, sizeof(*h));
	void *map;

	if (!h)
		return -ENOMEM;
	h->fd = node_object_open(fs->node, o, O_RDONLY);
	if (h->fd < 0) {
		int err = h->fd;

		free(h);
		return err;
	}
	/* Published objects never change: answered out of a mapping. */
	if (o->state == NODE_HELD && o->size > 0) {
		map = mmap(NULL, o->size, PROT_READ, MAP_SHARED, h->fd, 0);
		if (map != MAP_FAILED) {
			h->map = map;
			h->map_len = o->size;
			close(h->fd);
			h->fd = -1;
		}
	}
	*ret_handle = h;
	return 0;
}

static struct handle *handle_of(uint64_t fh)
{
	return fh > PASSTHROUGH_WRITER ? (void *)(uintptr_t)fh : NULL;
}

static bool is_writer(uint64_t fh)
{
	struct handle *h = handle_of(fh);

	return h ? h->writer : fh == PASSTHROUGH_WRITER;
}

static void handle_free(struct handle *h)
{
	if (!h)
		return;
	if (h->map)
		munmap((void *)(uintptr_t)h->map, h->map_len);
	if (h->fd >= 0)
		close(h->fd);
	free(h);
}

static int fill_open(struct fs *fs, struct fs_inode *i, int flags,
		     struct fuse_open_out *out)
{
	struct handle *h = NULL;
	int rc;

	memset(out, 0, sizeof(*out));
	if (!wants_write(flags))
		out->open_flags |= FS_FOPEN_NOFLUSH;
	if (!i->served) {
		rc = fs_inode_backing(fs, i);
		if (rc > 0) {
			out->open_flags |= FS_FOPEN_PASSTHROUGH;
			out->padding = (uint32_t)rc; /* backing_id */
			out->fh = wants_write(flags) ? PASSTHROUGH_WRITER : 0;
			return 0;
		}
		if (i->opens > 0)
			return rc;
		pool_warn_limited("passthrough refused (%s): daemon-served",
				  strerror(-rc));
		i->served = true;
	}
	if (wants_write(flags)) {
		rc = pool_node_writer_fd(fs->node, i->obj);
		if (rc < 0)
			return rc;
	}
	rc = handle_new(fs, i->obj, &h);
	if (rc)
		return rc;
	h->writer = wants_write(flags);
	out->fh = (uint64_t)(uintptr_t)h;
	out->open_flags |= FOPEN_DIRECT_IO | FS_FOPEN_PARALLEL_DIRECT_WRITES;
	return 0;
}

/* i->obj is set and will be used: count the handle, answer. */
static void reply_open(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		       int flags)
{
	struct fuse_open_out out;
	struct iovec iov = { &out, sizeof(out) };
	int err;

	if (wants_write(flags))
		pool_node_writer_opened(fs->node, i->obj);
	err = fill_open(fs, i, flags, &out);
	if (err) {
		if (wants_write(flags))
			pool_node_writer_closed(fs->node, i->obj);
		fuse_reply_err(req, -err);
		return;
	}
	fs_inode_opened(fs, i);
	if (i->obj->state == NODE_HELD)
		pool_node_used(fs->node, i->obj);
	if (fuse_reply_iov(req, &iov, 1) != -ENOENT)
		return;
	/* Interrupted: the kernel never heard of this handle. */
	handle_free(handle_of(out.fh));
	if (wants_write(flags))
		pool_node_writer_closed(fs->node, i->obj);
	fs_inode_closed(fs, i);
}

/* ---- OPEN ---- */

struct open_req {
	struct pool_list link; /* in fs->waiting, or self-linked */
	struct fs *fs;
	fuse_req_t req; /* NULL once answered */
	struct fs_inode *inode; /* kept by a look-up count of ours */
	struct node_want want;
	int flags;
	uint64_t deadline_ms, start_ns;
	bool wanting, rewriting;
	int64_t resize; /* >= 0: a SETATTR of the size, not an OPEN */
};

static void open_step(struct open_req *r);

static void open_free(struct open_req *r)
{
	pool_list_del(&r->link);
	pool_hist_add(&r->fs->open_time, pool_now_ns() - r->start_ns);
	fs_inode_forget(r->fs, r->inode, 1);
	free(r);
}

static void open_fail(struct open_req *r, int err)
{
	fuse_req_t req = r->req;

	r->req = NULL;
	if (req)
		fuse_reply_err(req, err);
	open_free(r);
}

static void on_interrupt(fuse_req_t req, void *data)
{
	struct open_req *r = data;

	pool_count(&r->fs->interrupts);
	if (r->rewriting) { /* ends by itself, to a deadline */
		r->req = NULL;
		fuse_reply_err(req, EINTR);
		return;
	}
	if (r->wanting)
		pool_node_want_cancel(r->fs->node, &r->want);
	open_fail(r, EINTR);
}

/* About to answer: no interrupt callback may come any more. */
static fuse_req_t open_take_req(struct open_req *r)
{
	fuse_req_t req = r->req;

	r->req = NULL;
	if (req)
		fuse_req_interrupt_func(req, NULL, NULL);
	return req;
}

static void resize_reply(fuse_req_t req, struct fs *fs, struct fs_inode *i)
{
	struct stat st;

	fs_inode_stat(fs, i, &st);
	fuse_reply_attr(req, &st, 0);
}

static void on_resized(void *arg, int status)
{
	struct open_req *r = arg;
	struct fs *fs = r->fs;
	fuse_req_t req = open_take_req(r);
	struct fs_inode *i = r->inode;

	r->rewriting = false;
	/* A truncate(2) with no handle open is a write of its own. If it failed
	 * nothing has changed: what was to be published still is, and a copy
	 * of the published content is found to be the same. */
	if (r->resize >= 0 && i->obj && i->obj->w && i->obj->w->opens == 0) {
		pool_node_writer_opened(fs->node, i->obj);
		pool_node_writer_flushed(fs->node, i->obj);
		pool_node_writer_closed(fs->node, i->obj);
	}
	if (status) {
		if (req)
			fuse_reply_err(req, -status);
	} else if (r->resize >= 0) {
		if (req)
			resize_reply(req, fs, i);
	} else if (req) {
		reply_open(req, fs, i, r->flags);
	}
	open_free(r);
}

/* A local file of this mount: open it, or set its size, at once if it may be
 * written now; one that is being published is waited for. */
static void open_own(struct open_req *r, struct node_object *own)
{
	struct fs *fs = r->fs;
	bool resizes = r->resize >= 0 || (r->flags & O_TRUNC);
	uint64_t size, blocks;
	int rc;

	if (!wants_write(r->flags) && !resizes) {
		reply_open(open_take_req(r), fs, r->inode, r->flags);
		open_free(r);
		return;
	}
	rc = pool_node_unseal(fs->node, own);
	if (rc == -EAGAIN && own->state == NODE_WRITING &&
	    pool_now_ms() >= r->deadline_ms)
		rc = 0; /* a writable mapping lives on: it is still open */
	if (rc == -EAGAIN) {
		if (pool_now_ms() >= r->deadline_ms) {
			open_fail(r, EBUSY);
		} else if (pool_list_empty(&r->link)) {
			pool_list_add_tail(&fs->waiting, &r->link);
			fs_waiting_schedule(fs);
		}
		return;
	}
	if (rc) {
		open_fail(r, -rc);
		return;
	}
	pool_list_del(&r->link);
	if (!resizes || (r->resize < 0 &&
			 pool_node_object_size(fs->node, own, &size,
					       &blocks) == 0 && size == 0)) {
		reply_open(open_take_req(r), fs, r->inode, r->flags);
		open_free(r);
		return;
	}
	r->rewriting = true;
	rc = pool_node_resize_start(fs->node, own,
				    r->resize >= 0 ? (uint64_t)r->resize : 0,
				    on_resized, r);
	if (rc != 0)
		on_resized(r, rc == 1 ? 0 : rc);
}

/* ---- a new generation ---- */

static void on_rewritten(void *arg, int status)
{
	struct open_req *r = arg;
	struct fs *fs = r->fs;
	struct node_entry *e = r->inode->entry;

	r->rewriting = false;
	if (status) {
		open_fail(r, status == -ENOENT || status == -ESTALE ? ESTALE :
								-status);
		return;
	}
	if (!e || !e->own) { /* unbound before, or meanwhile */
		open_fail(r, ESTALE);
		return;
	}
	/* The name shows the new file from now on; this nodeid keeps the old
	 * content. The kernel looks the name up again (truncate(2), too). */
	fs_inode_unbind(fs, r->inode);
	pool_count(&fs->stale_opens);
	open_fail(r, ESTALE);
}

static void open_rewrite(struct open_req *r, struct node_entry *e)
{
	uint64_t keep = r->resize >= 0 ? (uint64_t)r->resize :
			r->flags & O_TRUNC ? 0 : e->size;
	int rc;

	r->rewriting = true;
	rc = pool_node_rewrite_start(r->fs->node, e, keep, on_rewritten, r);
	if (rc != 0)
		on_rewritten(r, rc == 1 ? 0 : rc);
}

/* ---- reading what is published ---- */

static void open_have(struct open_req *r, struct node_object *o)
{
	struct fs *fs = r->fs;
	struct fs_inode *i = r->inode;

	if (!i->entry || i->entry->obj != o) {
		node_object_unref(fs->node, o);
		open_fail(r, ESTALE);
		return;
	}
	if (i->obj != o && i->opens > 0) {
		/* Another file for the same nodeid would be refused. */
		node_object_unref(fs->node, o);
		fs_notify_entry(fs, &i->entry->e);
		fs_inode_unbind(fs, i);
		open_fail(r, ESTALE);
		return;
	}
	fs_inode_set_obj(fs, i, o);
	node_object_unref(fs->node, o);
	reply_open(open_take_req(r), fs, i, r->flags);
	open_free(r);
}

static void on_wanted(struct node_want *w, struct node_object *o, int status)
{
	struct open_req *r = pool_container_of(w, struct open_req, want);

	r->wanting = false;
	if (status)
		open_fail(r, status == -ESTALE ? ESTALE : ENOENT);
	else
		open_have(r, o);
}

static void open_published(struct open_req *r)
{
	struct node_object *o;
	int rc;

	r->wanting = true;
	rc = pool_node_want_start(r->fs->node, r->inode->entry, &r->want, &o,
				  on_wanted);
	if (rc == 0)
		return; /* r may be gone already */
	r->wanting = false;
	if (rc == 1)
		open_have(r, o);
	else
		open_fail(r, -rc);
}

/* The kernel's dentry is out of date. What it will find instead must be
 * writable at once if that is what it wants: ESTALE works only once. */
static void open_unbound(struct open_req *r)
{
	const char *path = r->inode->path;
	bool writes = wants_write(r->flags) || (r->flags & O_TRUNC);
	struct pool_entry *e = path && writes && r->resize < 0 ?
		pool_tree_lookup(r->fs->tree, path, strlen(path)) : NULL;
	struct node_entry *f = e && !e->is_dir ? (void *)e : NULL;

	if (f && !f->own && pool_node_published(f))
		open_rewrite(r, f);
	else
		open_fail(r, ESTALE);
}

static void open_step(struct open_req *r)
{
	struct fs_inode *i = r->inode;

	if (!i->entry)
		open_unbound(r);
	else if (i->entry->own)
		open_own(r, i->entry->own);
	else if (!pool_node_published(i->entry))
		open_fail(r, ENOENT);
	else if (wants_write(r->flags) || (r->flags & O_TRUNC) ||
		 r->resize >= 0)
		open_rewrite(r, i->entry);
	else
		open_published(r);
}

static void open_begin(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		       int flags, int64_t resize)
{
	struct open_req *r = calloc(1, sizeof(*r));

	if (!r) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	pool_list_init(&r->link);
	r->fs = fs;
	r->req = req;
	r->inode = i;
	i->nlookup++;
	r->flags = flags;
	r->resize = resize;
	r->start_ns = pool_now_ns();
	r->deadline_ms = pool_now_ms() + 2000;
	fuse_req_interrupt_func(req, on_interrupt, r);
	open_step(r);
}

/* The usual case, without any allocation: a read of what is here. */
static bool open_fast(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		      int flags)
{
	struct node_object *o = i->entry && !i->entry->own ? i->entry->obj :
							     NULL;
	uint64_t start;

	if (!o || wants_write(flags) || (flags & O_TRUNC) ||
	    o->state != NODE_HELD || !o->verified ||
	    o->gen != i->entry->gen || !pool_node_published(i->entry) ||
	    (i->obj != o && i->opens > 0))
		return false;
	start = pool_now_ns();
	fs_inode_set_obj(fs, i, o);
	reply_open(req, fs, i, flags);
	pool_hist_add(&fs->open_time, pool_now_ns() - start);
	return true;
}

void fs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_OPEN);
	struct fs_inode *i;

	if (fs_is_proc(ino)) {
		fs_proc_open(req, ino, fi);
		return;
	}
	i = fs_inode_find(fs, ino);
	if (!i->entry && i->kind == FS_FILE)
		pool_count(&fs->stale_opens);
	if (!open_fast(req, fs, i, fi->flags))
		open_begin(req, fs, i, fi->flags, -1);
}

void fs_resize(fuse_req_t req, struct fs_inode *i, uint64_t size)
{
	struct fs *fs = fs_of(req);

	if (i->kind != FS_FILE) {
		fuse_reply_err(req, EISDIR);
		return;
	}
	if (!i->entry) {
		/* An unlinked file that is still written: its handle's. */
		int fd = i->obj && i->obj->w ? i->obj->w->fd : -1;

		if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
			fuse_reply_err(req, fd < 0 ? ESTALE : errno);
		else
			resize_reply(req, fs, i);
		return;
	}
	if (size > INT64_MAX) {
		fuse_reply_err(req, EFBIG);
		return;
	}
	open_begin(req, fs, i, O_WRONLY, (int64_t)size);
}

/* Opens that wait for a publication look again. */
void fs_waiting_run(struct fs *fs)
{
	struct pool_list *it, *tmp, todo;

	pool_list_init(&todo);
	pool_list_splice(&todo, &fs->waiting);
	pool_list_each(it, tmp, &todo) {
		pool_list_del(it);
		open_step(pool_list_entry(it, struct open_req, link));
	}
	if (pool_list_empty(&fs->waiting))
		uv_timer_stop(&fs->retry);
}

void fs_waiting_fini(struct fs *fs)
{
	while (!pool_list_empty(&fs->waiting))
		open_fail(pool_list_first(&fs->waiting, struct open_req, link),
			  EIO);
}

/* ---- CREATE ---- */

static void reply_create(fuse_req_t req, struct fs *fs, struct fs_inode *i,
			 int flags)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	struct iovec iov = { &out, sizeof(out) };
	struct stat st;
	int err;

	pool_node_writer_opened(fs->node, i->obj);
	err = fill_open(fs, i, flags, &out.open);
	if (err) {
		pool_node_writer_closed(fs->node, i->obj);
		fuse_reply_err(req, -err);
		return;
	}
	fs_inode_opened(fs, i);
	i->nlookup++;
	fs_inode_stat(fs, i, &st);
	memset(&out.entry, 0, sizeof(out.entry));
	out.entry.nodeid = fs_inode_id(fs, i);
	out.entry.entry_valid = (uint64_t)FS_TIMEOUT_LONG;
	out.entry.attr.ino = st.st_ino;
	out.entry.attr.mode = st.st_mode;
	out.entry.attr.nlink = 1;
	out.entry.attr.uid = st.st_uid;
	out.entry.attr.gid = st.st_gid;
	out.entry.attr.blksize = 4096;
	out.entry.attr.mtime = out.entry.attr.ctime = out.entry.attr.atime =
		(uint64_t)st.st_mtim.tv_sec;
	out.entry.attr.mtimensec = out.entry.attr.ctimensec =
		out.entry.attr.atimensec = (uint32_t)st.st_mtim.tv_nsec;
	if (fuse_reply_iov(req, &iov, 1) != -ENOENT)
		return;
	handle_free(handle_of(out.open.fh));
	pool_node_writer_closed(fs->node, i->obj);
	fs_inode_closed(fs, i);
	fs_inode_forget(fs, i, 1);
}

void fs_create(fuse_req_t req, fuse_ino_t parent, const char *name,
	       mode_t mode, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_CREATE);
	struct node_dirent *dir = fs_dir_of(fs, parent);
	const struct fuse_ctx *ctx = fuse_req_ctx(req);
	struct node_attr a = { mode & 01777, ctx->uid, ctx->gid,
			       pool_wall_ns() };
	struct node_object *o;
	struct pool_entry *e;
	struct fs_inode *i;
	int err;

	if (!dir) {
		fuse_reply_err(req, fs_is_proc(parent) ? EPERM : ENOENT);
		return;
	}
	if (strlen(name) > POOL_NAME_MAX) {
		fuse_reply_err(req, ENAMETOOLONG);
		return;
	}
	/* The kernel thought it was missing; it has come meanwhile. */
	e = pool_node_lookup(fs->node, dir, name, strlen(name));
	if (e) {
		fuse_reply_err(req, fi->flags & O_EXCL ? EEXIST : ESTALE);
		return;
	}
	err = pool_node_create(fs->node, dir, name, strlen(name), &a, 0, &o);
	if (err) {
		fuse_reply_err(req, -err);
		return;
	}
	i = fs_inode_bind(fs, &o->entry->e);
	if (!i) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	/* The handle of a CREATE counts as a writer even if it is read-only:
	 * its close is what publishes an empty file. */
	reply_create(req, fs, i, fi->flags | O_RDWR);
}

/* ---- daemon-served data ---- */

void fs_read(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
	     struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_READ);
	struct handle *h = handle_of(fi->fh);
	ssize_t n;
	char *buf;

	(void)fs;
	if (fs_is_proc(ino)) {
		fs_proc_read(req, size, off, fi);
		return;
	}
	if (!h) {
		fuse_reply_err(req, EBADF);
		return;
	}
	if (h->map) {
		size_t at = (size_t)off;

		if (off < 0 || at >= h->map_len)
			fuse_reply_buf(req, NULL, 0);
		else
			fuse_reply_buf(req, h->map + at,
				       size < h->map_len - at ?
					       size : h->map_len - at);
		return;
	}
	buf = malloc(size ? size : 1);
	if (!buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	n = pread(h->fd, buf, size, off);
	if (n < 0)
		fuse_reply_err(req, errno);
	else
		fuse_reply_buf(req, buf, (size_t)n);
	free(buf);
}

/* A write that waits for space keeps its bytes. */
struct write_req {
	struct fs *fs;
	fuse_req_t req;
	struct fs_inode *inode; /* by a look-up count of ours */
	off_t off;
	size_t size;
	char data[];
};

/* Everything or an error: a short write would be taken for success by those
 * who do not look. */
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

static void write_now(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		      const char *buf, size_t size, off_t off)
{
	int fd = i->obj && i->obj->w ? pool_node_writer_fd(fs->node, i->obj) :
				       -EBADF;
	int err = fd < 0 ? fd : write_all(fd, buf, size, off);

	if (err) {
		if (i->obj)
			pool_node_poison(fs->node, i->obj, err);
		fuse_reply_err(req, -err);
		return;
	}
	i->obj->w->touched_ms = pool_now_ms();
	fuse_reply_write(req, size);
}

static void on_room(void *arg, int status)
{
	struct write_req *w = arg;
	struct fs_inode *i = w->inode;

	if (status) {
		if (i->obj)
			pool_node_poison(w->fs->node, i->obj, status);
		fuse_reply_err(w->req, -status);
	} else {
		write_now(w->req, w->fs, i, w->data, w->size, w->off);
	}
	fs_inode_forget(w->fs, i, 1);
	free(w);
}

void fs_write(fuse_req_t req, fuse_ino_t ino, const char *buf, size_t size,
	      off_t off, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_WRITE);
	struct fs_inode *i = fs_inode_find(fs, ino);
	struct write_req *w;
	int rc;

	(void)fi;
	if (fs_is_proc(ino) || !i->obj || !i->obj->w ||
	    i->obj->state == NODE_SEALING || i->obj->state == NODE_PENDING ||
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
	w->inode = i;
	w->off = off;
	w->size = size;
	rc = pool_node_extend_start(fs->node, i->obj, (uint64_t)off, size,
				    on_room, w);
	if (rc == 0) {
		/* Nobody else runs before we return: the copy is in time. */
		memcpy(w->data, buf, size);
		i->nlookup++;
		pool_count(&fs->write_waits);
		return;
	}
	free(w);
	if (rc == 1) {
		write_now(req, fs, i, buf, size, off);
		return;
	}
	pool_node_poison(fs->node, i->obj, rc);
	fuse_reply_err(req, -rc);
}

/* ---- FLUSH, RELEASE, FSYNC ---- */

void fs_flush(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_FLUSH);
	struct fs_inode *i;
	int err = 0;

	(void)fi;
	if (!fs_is_proc(ino)) {
		i = fs_inode_find(fs, ino);
		if (i->obj && i->obj->w) {
			pool_node_writer_flushed(fs->node, i->obj);
			err = i->obj->w->poison;
		}
	}
	fuse_reply_err(req, -err);
}

void fs_release(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_RELEASE);
	struct fs_inode *i;
	struct node_object *o;
	bool writer;

	if (fs_is_proc(ino)) {
		fs_proc_release(req, fi);
		return;
	}
	i = fs_inode_find(fs, ino);
	o = node_object_ref(i->obj);
	writer = is_writer(fi->fh);
	handle_free(handle_of(fi->fh));
	fuse_reply_err(req, 0);
	i->nlookup++;
	fs_inode_closed(fs, i);
	if (writer && o->w)
		pool_node_writer_closed(fs->node, o);
	fs_inode_forget(fs, i, 1);
	node_object_unref(fs->node, o);
}

/* Its bytes are in memory: that is all an fsync of a file promises. */
void fs_fsync(fuse_req_t req, fuse_ino_t ino, int datasync,
	      struct fuse_file_info *fi)
{
	(void)ino;
	(void)datasync;
	(void)fi;
	fs_count(req, OP_FSYNC);
	fuse_reply_err(req, 0);
}

/* ---- FALLOCATE, IOCTL ---- */

struct alloc_req {
	struct fs *fs;
	fuse_req_t req;
};

static void on_allocated(void *arg, int status)
{
	struct alloc_req *a = arg;

	fuse_reply_err(a->req, -status);
	free(a);
}

void fs_fallocate(fuse_req_t req, fuse_ino_t ino, int mode, off_t offset,
		  off_t length, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_FALLOCATE);
	struct fs_inode *i = fs_inode_find(fs, ino);
	struct alloc_req *a;
	int rc;

	(void)fi;
	if (mode & ~FALLOC_FL_KEEP_SIZE) {
		fuse_reply_err(req, EOPNOTSUPP);
		return;
	}
	if (fs_is_proc(ino) || !i->obj || !i->obj->w || !i->entry) {
		fuse_reply_err(req, fs_is_proc(ino) ? EPERM : EOPNOTSUPP);
		return;
	}
	a = malloc(sizeof(*a));
	if (!a) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	a->fs = fs;
	a->req = req;
	rc = pool_node_allocate_start(fs->node, i->obj, (uint64_t)offset,
				      (uint64_t)length,
				      mode & FALLOC_FL_KEEP_SIZE,
				      on_allocated, a);
	if (rc != 0)
		on_allocated(a, rc == 1 ? 0 : rc);
}

/* Python asks TCGETS of every file it opens. */
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
