/*
 * Directories: OPENDIR to FSYNCDIR. A listing is a tree reader that the handle
 * keeps. It streams names in order of creation; its offsets stay valid while
 * names are added and removed: 1 follows ".", 2 follows "..", cookie + 2
 * follows a name. A directory does not know its handles, so that open handles
 * do not make its changes slower: each handle checks by itself whether its
 * directory still exists.
 *
 * Names that are not shown, such as a million that were just removed and that
 * the master has not acked, are walked over in slices. An answer without names
 * means to the kernel that the directory ends there, so a request that has
 * found none at the end of its slice waits in fs->listings for the next one.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define DOTS 2 /* offset after ".." */
#define SKIPS_MAX 256 /* hidden names that a request may walk over at once */
#define SKIPS_TURN_MAX 4096 /* the same for all in fs->listings in one turn */

static void handle_free(struct fs *fs, struct fs_dir_handle *h)
{
	fs_fh_remove(fs, &h->o);
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
	h->nodeid = ino;
	h->cookie = node_dir_tree(dir)->e.cookie;
	pool_tree_reader_open(fs->tree, node_dir_tree(dir), &h->reader);
	fi->fh = h->o.fh;
	if (fuse_reply_open(req, fi) == -ENOENT)
		handle_free(fs, h);
}

struct node_dirent *fs_listed_dir(struct fs *fs, const struct fs_dir_handle *h)
{
	struct fs_inode *i = h->cookie ? fs_inode_find(fs, h->nodeid) : NULL;
	struct node_dirent *dir = i ? fs_inode_dir(i) : NULL;

	return dir && node_dir_tree(dir)->e.cookie == h->cookie ? dir : NULL;
}

/* A READDIR or READDIRPLUS. */
struct listing {
	struct pool_list link; /* fs->listings, while it waits */
	struct fs *fs;
	fuse_req_t req;
	struct fs_dir_handle *h; /* borrows: no RELEASEDIR comes before the
				    answer */
	uint64_t passed; /* cookie: all names up to this one are done */
	char *buf; /* owns; NULL while it waits: nothing was found so far */
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

/*
 * Adds the names behind l->passed. *skips: how many hidden ones it may walk
 * over. False: there may be more names, and none was found so far.
 */
static bool add_names(struct listing *l, unsigned int *skips)
{
	struct pool_tree_reader *r = &l->h->reader;
	char name[POOL_NAME_MAX + 1];
	struct pool_entry *e;

	pool_tree_reader_seek(r, l->passed);
	for (; (e = pool_tree_reader_peek(r)); pool_tree_reader_advance(r)) {
		if (pool_node_visible(e)) {
			memcpy(name, pool_entry_name(e), e->name_len);
			name[e->name_len] = '\0';
			if (!add_entry(l, name, e, (off_t)e->cookie + DOTS))
				break;
		} else if (*skips == 0) {
			l->passed = r->passed;
			return l->len > 0;
		} else {
			--*skips;
		}
	}
	return true;
}

/* False: there is no room for them. */
static bool add_dots(struct listing *l, off_t off)
{
	ino_t ino = l->h->cookie + FS_PROC_MAX;

	return (off >= 1 || add_dot(l, ".", ino, 1)) &&
	       (off >= DOTS || add_dot(l, "..", 1, DOTS));
}

static void answer(struct listing *l)
{
	fuse_reply_buf(l->req, l->buf, l->len);
	free(l->buf);
}

/* l has found nothing so far: continued by fs_listings_run. */
static void wait_turn(const struct listing *l)
{
	struct listing *w = malloc(sizeof(*w));

	free(l->buf);
	if (!w) {
		fuse_reply_err(l->req, ENOMEM);
		return;
	}
	*w = *l;
	w->buf = NULL;
	pool_list_add_tail(&l->fs->listings, &w->link);
	l->fs->ndeferred[FS_DEFERRED_LISTING]++;
	pool_count(&l->fs->listing_waits);
	fs_waiting_schedule(l->fs);
}

static void list(fuse_req_t req, struct fs *fs, fuse_ino_t ino, size_t size,
		 off_t off, struct fuse_file_info *fi, bool plus)
{
	unsigned int skips = SKIPS_MAX;
	struct listing l = {
		.fs = fs, .req = req, .h = fs_fh_get(fs, fi->fh),
		.passed = off > DOTS ? (uint64_t)(off - DOTS) : 0,
		.size = size, .plus = plus,
	};

	if (fs_is_proc(ino)) {
		fs_proc_readdir(req, size, off, plus);
		return;
	}
	if (!l.h) { /* its offsets mean nothing to this incarnation */
		fuse_reply_err(req, ESTALE);
		return;
	}
	if (!fs_listed_dir(fs, l.h)) {
		fuse_reply_buf(req, NULL, 0);
		return;
	}
	l.buf = malloc(size);
	if (!l.buf) {
		fuse_reply_err(req, ENOMEM);
		return;
	}
	if (!add_dots(&l, off) || add_names(&l, &skips))
		answer(&l);
	else
		wait_turn(&l);
}

static void waited(struct listing *l, int err)
{
	l->fs->ndeferred[FS_DEFERRED_LISTING]--;
	pool_list_del(&l->link);
	if (err)
		fuse_reply_err(l->req, err);
	else
		answer(l);
	free(l);
}

static void run_listing(struct listing *l, unsigned int *skips)
{
	if (!fs_listed_dir(l->fs, l->h)) {
		waited(l, 0);
		return;
	}
	l->buf = malloc(l->size);
	if (!l->buf) {
		waited(l, ENOMEM);
	} else if (add_names(l, skips)) {
		waited(l, 0);
	} else {
		free(l->buf);
		l->buf = NULL;
		pool_list_del(&l->link);
		pool_list_add_tail(&l->fs->listings, &l->link);
	}
}

void fs_listings_run(struct fs *fs)
{
	unsigned int n = fs->ndeferred[FS_DEFERRED_LISTING];
	unsigned int skips = SKIPS_TURN_MAX;

	for (n = n < FS_TURN_MAX ? n : FS_TURN_MAX; n > 0 && skips > 0; n--)
		run_listing(pool_list_first(&fs->listings, struct listing,
					    link), &skips);
}

void fs_listings_fini(struct fs *fs)
{
	while (!pool_list_empty(&fs->listings))
		waited(pool_list_first(&fs->listings, struct listing, link),
		       EIO);
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
	struct fs_dir_handle *h = fs_is_proc(ino) ? NULL :
						    fs_fh_get(fs, fi->fh);

	if (h)
		handle_free(fs, h);
	fuse_reply_err(req, 0);
}

/* ---- FSYNCDIR ---- */

struct sync_req {
	struct node_barrier barrier;
	struct fs *fs;
	fuse_req_t req;
	fuse_ino_t ino;
	uint64_t mark; /* the last change before it (fs_kept_mark) */
};

static void on_synced(struct node_barrier *b, int status)
{
	struct sync_req *s = pool_container_of(b, struct sync_req, barrier);
	struct node_dirent *dir = status ? NULL : fs_dir_of(s->fs, s->ino);

	if (!status)
		fs_kept_safe(s->fs, s->mark);
	if (dir)
		status = pool_node_lost(dir);
	if (dir && fs_kept_lost(s->fs, fs_inode_find(s->fs, s->ino)) && !status)
		status = -EIO;
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
	s->mark = fs_kept_mark(fs);
	fs->ndeferred[FS_DEFERRED_FSYNCDIR]++;
	pool_node_barrier_start(fs->node, &s->barrier, on_synced);
	fuse_req_interrupt_func(req, on_sync_interrupt, s);
}
