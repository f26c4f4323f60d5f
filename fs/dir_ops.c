/*
 * Directories: OPENDIR to FSYNCDIR. A listing is a tree reader that the handle
 * keeps. It streams names in order of creation; its offsets stay valid while
 * names are added and removed: 1 follows ".", 2 follows "..", cookie + 2
 * follows a name.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOTS 2 /* offset after ".." */

static void handle_free(struct fs *fs, struct fs_dir_handle *h)
{
	fs_fh_remove(fs, &h->o);
	if (h->dir)
		pool_tree_reader_close(&h->reader);
	pool_list_del(&h->link);
	free(h);
}

void fs_opendir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_OPENDIR);
	struct node_dirent *dir;
	struct fs_dir_handle *h;

	if (fs_is_proc(ino)) {
		if (fuse_reply_open(req, fi) == -ENOENT)
			return;
		return;
	}
	dir = fs_dir_of(fs, ino);
	h = dir ? calloc(1, sizeof(*h)) : NULL;
	if (!h || fs_fh_add(fs, &h->o, FS_FH_DIR)) {
		free(h);
		fuse_reply_err(req, dir ? ENOMEM : ENOENT);
		return;
	}
	h->dir = dir;
	pool_tree_reader_open(fs->tree, &dir->d, &h->reader);
	pool_list_add_tail(&fs->dirs, &h->link);
	fi->fh = h->o.fh;
	if (fuse_reply_open(req, fi) == -ENOENT)
		handle_free(fs, h);
}

void fs_listings_end(struct fs *fs, struct node_dirent *dir)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &fs->dirs) {
		struct fs_dir_handle *h =
			pool_list_entry(it, struct fs_dir_handle, link);

		if (!h->dir || (dir && h->dir != dir))
			continue;
		pool_tree_reader_close(&h->reader);
		h->dir = NULL;
	}
}

struct listing {
	struct fs *fs;
	fuse_req_t req;
	char *buf;
	size_t size, len;
	bool plus;
};

/* Adds one name; false if it does not fit. READDIRPLUS adds to the lookup count
 * of its nodeid. */
static bool add_entry(struct listing *l, const char *name,
		      struct pool_entry *e, off_t next)
{
	struct fuse_entry_param p;
	struct fs_inode *i;
	size_t need;

	if (!l->plus) {
		struct stat st = {
			.st_ino = e->cookie + FS_PROC_MAX,
			.st_mode = e->is_dir ? S_IFDIR : S_IFREG,
		};

		need = fuse_add_direntry(l->req, l->buf + l->len,
					 l->size - l->len, name, &st, next);
	} else {
		need = fuse_add_direntry_plus(l->req, NULL, 0, name, NULL, 0);
		if (need > l->size - l->len)
			return false;
		i = fs_inode_bind(l->fs, e);
		if (!i)
			return false;
		fs_fill_entry(l->fs, i, &p);
		need = fuse_add_direntry_plus(l->req, l->buf + l->len,
					      l->size - l->len, name, &p,
					      next);
	}
	if (need > l->size - l->len)
		return false;
	l->len += need;
	return true;
}

static bool add_dot(struct listing *l, const char *name, ino_t ino, off_t next)
{
	struct stat st = { .st_ino = ino, .st_mode = S_IFDIR };
	struct fuse_entry_param p = { .attr = st };
	size_t need;

	need = l->plus ? fuse_add_direntry_plus(l->req, l->buf + l->len,
						l->size - l->len, name, &p,
						next) :
			 fuse_add_direntry(l->req, l->buf + l->len,
					   l->size - l->len, name, &st, next);
	if (need > l->size - l->len)
		return false;
	l->len += need;
	return true;
}

static void fill_listing(struct listing *l, struct fs_dir_handle *h, off_t off)
{
	struct pool_entry *e;
	char name[POOL_NAME_MAX + 1];

	if (off < 1 && !add_dot(l, ".", h->dir->d.e.cookie + FS_PROC_MAX, 1))
		return;
	if (off < DOTS && !add_dot(l, "..", 1, DOTS))
		return;
	if (off <= DOTS)
		pool_tree_reader_seek(&h->reader, 0);
	else if (off != h->last)
		pool_tree_reader_seek(&h->reader, (uint64_t)(off - DOTS));
	h->last = off < DOTS ? DOTS : off;
	while ((e = pool_tree_reader_peek(&h->reader)) != NULL) {
		off_t next = (off_t)e->cookie + DOTS;

		if (pool_node_visible(e)) {
			memcpy(name, pool_entry_name(e), e->name_len);
			name[e->name_len] = '\0';
			if (!add_entry(l, name, e, next))
				return;
		}
		h->last = next;
		pool_tree_reader_advance(&h->reader);
	}
}

static void list(fuse_req_t req, struct fs *fs, fuse_ino_t ino, size_t size,
		 off_t off, struct fuse_file_info *fi, bool plus)
{
	struct fs_dir_handle *h = fs_fh_get(fs, fi->fh);
	struct listing l = { fs, req, NULL, size, 0, plus };

	if (fs_is_proc(ino)) {
		fs_proc_readdir(req, size, off, plus);
		return;
	}
	if (!h->dir) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	l.buf = malloc(size);
	if (!l.buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	fill_listing(&l, h, off);
	fuse_reply_buf(req, l.buf, l.len);
	free(l.buf);
}

void fs_readdir(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		struct fuse_file_info *fi)
{
	list(req, fs_count(req, OP_READDIR), ino, size, off, fi, false);
}

void fs_readdirplus(fuse_req_t req, fuse_ino_t ino, size_t size, off_t off,
		    struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_READDIRPLUS);

	list(req, fs, ino, size, off, fi, true);
}

void fs_releasedir(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_RELEASEDIR);

	if (!fs_is_proc(ino))
		handle_free(fs, fs_fh_get(fs, fi->fh));
	fuse_reply_err(req, 0);
}

/* ---- FSYNCDIR ---- */

struct sync_req {
	struct node_barrier barrier;
	struct fs *fs;
	fuse_req_t req;
	fuse_ino_t ino;
};

static void on_synced(struct node_barrier *b, int status)
{
	struct sync_req *s = pool_container_of(b, struct sync_req, barrier);
	struct node_dirent *dir = status ? NULL : fs_dir_of(s->fs, s->ino);

	if (dir)
		status = pool_node_lost(dir);
	fuse_req_interrupt_func(s->req, NULL, NULL);
	fuse_reply_err(s->req, -status);
	s->fs->ndeferred[FS_DEFERRED_FSYNCDIR]--;
	free(s);
}

static void on_sync_interrupt(fuse_req_t req, void *data)
{
	struct sync_req *s = data;

	pool_count(&s->fs->interrupts);
	pool_node_barrier_cancel(s->fs->node, &s->barrier);
	fuse_reply_err(req, EINTR);
	s->fs->ndeferred[FS_DEFERRED_FSYNCDIR]--;
	free(s);
}

void fs_fsyncdir(fuse_req_t req, fuse_ino_t ino, int datasync,
		 struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_FSYNCDIR);
	struct sync_req *s;

	(void)datasync;
	(void)fi;
	if (fs_is_proc(ino) || fs->closing) {
		fuse_reply_err(req, fs->closing ? ECANCELED : 0);
		return;
	}
	s = calloc(1, sizeof(*s));
	if (!s) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	s->fs = fs;
	s->req = req;
	s->ino = ino;
	fs->ndeferred[FS_DEFERRED_FSYNCDIR]++;
	pool_node_barrier_start(fs->node, &s->barrier, on_synced);
	fuse_req_interrupt_func(req, on_sync_interrupt, s);
}
