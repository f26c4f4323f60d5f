/*
 * Requests about nodeids of earlier incarnations (fs/kept.h). They are answered
 * before libfuse sees them, so the handlers know every nodeid that they get.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* ---- directories ---- */

static bool revive(struct fs *fs, struct fs_kept_rec *r)
{
	struct pool_entry *pe = r->path_len ?
		pool_tree_lookup(fs->tree, r->path, r->path_len) : NULL;
	struct fs_inode *i;

	if (!pe || !pe->is_dir || pool_node_inode(pe) || !r->nlookup)
		return false;
	i = fs_inode_new_at(fs, r->nodeid);
	if (!i)
		return false;
	i->kind = FS_DIR;
	i->nlookup = r->nlookup;
	i->ino = pe->cookie + FS_PROC_MAX;
	i->u.dir = node_dir(pe);
	fs_inode_kept(i)->rec = (uint32_t)(r - fs->kept->recs) + 1;
	pool_node_set_inode(pe, i);
	fs_notify_attr(fs, i);
	return true;
}

void fs_ghosts_revive(struct fs *fs)
{
	uint32_t n;

	for (n = 0; n < fs->kept->nghosts; n++) {
		struct fs_kept_rec *r =
			&fs->kept->recs[fs->kept->ghosts[n].rec];

		if (r->is_dir)
			(void)revive(fs, r);
	}
}

/* ---- open files ---- */

/* The handle that record n is of; NULL: its bytes are not here any more, or its
 * number is in use. */
static struct fs_handle *reopen(struct fs *fs, uint32_t n)
{
	const struct fs_kept_rec *r = &fs->kept->recs[n];
	const struct node_was_open was = {
		.id = r->file.id,
		.size = r->file.size,
		.sum = r->file.sum,
		.published = r->file.published,
	};
	uint64_t fh = r->nodeid & ~FS_KEPT_HANDLE;
	struct node_object *o = pool_node_reopen(fs->node, &was);
	struct fs_handle *h = o ? calloc(1, sizeof(*h)) : NULL;

	if (!h || (uint32_t)fh < FS_FH_MIN ||
	    pool_slots_add_at(&fs->handles, (uint32_t)fh - FS_FH_MIN, h)) {
		if (o)
			node_object_unref(fs->node, o);
		free(h);
		return NULL;
	}
	h->o.kind = FS_FH_FILE;
	h->o.fh = fh;
	h->obj = o;
	h->rec = n + 1;
	node_fd_init(&h->fd);
	h->fd.map_len = was.published ? was.size : 0;
	fs_ghost_opened(fs, h);
	return h;
}

void fs_ghosts_reopen(struct fs *fs)
{
	struct fs_kept *k = fs->kept;

	for (uint32_t n = 0; n < k->nghosts; n++) {
		uint64_t id = k->ghosts[n].nodeid;

		if (!(id & FS_KEPT_HANDLE))
			continue;
		if (reopen(fs, k->ghosts[n].rec)) {
			pool_count(&fs->reopened);
		} else {
			pool_count(&fs->not_reopened);
			fs_kept_forget(fs, fs_kept_find(fs, id));
		}
	}
	pool_node_reopened(fs->node);
}

void fs_ghost_opened(struct fs *fs, struct fs_handle *h)
{
	node_object_use(h->obj, 1);
	pool_gauge_add(&fs->nopen, 1);
}

static void release(struct fs *fs, struct fs_handle *h)
{
	if (!h)
		return;
	node_object_unuse(h->obj);
	pool_gauge_add(&fs->nopen, -1);
	fs_handle_free(fs, h);
}

/* The handle of an earlier incarnation that a READ or RELEASE names. */
static struct fs_handle *handle_of(struct fs *fs, const void *arg, size_t len)
{
	struct fs_handle *h;
	uint64_t fh = 0;

	static_assert(offsetof(struct fuse_read_in, fh) == 0 &&
		      offsetof(struct fuse_release_in, fh) == 0, "fh");
	if (len >= sizeof(fh))
		memcpy(&fh, arg, sizeof(fh));
	h = fs_fh_get(fs, fh);
	return h && h->o.kind == FS_FH_FILE && h->obj && !h->inode ? h : NULL;
}

/* An OPEN is sent again, so the handle that the killed daemon had made for it
 * was not answered. The kernel will not release it. */
static void release_unanswered(struct fs *fs, uint64_t unique)
{
	const struct fs_kept *k = fs->kept;

	for (uint32_t n = 0; k && n < k->nghosts; n++) {
		uint64_t id = k->ghosts[n].nodeid;
		const struct fs_kept_rec *r = id & FS_KEPT_HANDLE ?
			fs_kept_find(fs, id) : NULL;

		if (r && r->file.unique == (unique & ~FS_RESENT))
			release(fs, fs_fh_get(fs, id & ~FS_KEPT_HANDLE));
	}
}

/* ---- answers ---- */

static void reply(const struct fs *fs, const struct fuse_in_header *in, int err,
		  const void *data, size_t len)
{
	struct fuse_out_header h = {
		.len = (uint32_t)(sizeof(h) + len),
		.error = -err,
		.unique = in->unique,
	};
	const struct iovec iov[] = {
		{ &h, sizeof(h) },
		{ (void *)(uintptr_t)data, len },
	};

	/* ENOENT: its caller was killed. */
	(void)!writev(fs->dev_fd, iov, len ? 2 : 1);
}

static void reply_attr(const struct fs *fs, const struct fuse_in_header *in,
		       const struct fs_kept_rec *r)
{
	struct fuse_attr_out out = {
		.attr_valid = (uint64_t)FS_TIMEOUT_LONG,
		.attr = r->attr,
	};

	reply(fs, in, 0, &out, sizeof(out));
}

/* The kernel repeats an OPEN after ESTALE, once: not a second one (open.c).
 * (Counted as a request of a ghost, not as op="open" nor among the results of
 * opens.) */
static void reply_open(struct fs *fs, const struct fuse_in_header *in,
		       const void *arg, size_t len)
{
	struct fuse_open_in open = { 0 };

	if (len >= sizeof(open))
		memcpy(&open, arg, sizeof(open));
	fs_stale_add(fs, in->pid, fs_wants_write((int)open.flags),
		     (struct fs_refused){ 0, 0, in->uid });
	reply(fs, in, ESTALE, NULL, 0);
}

static void answer(struct fs *fs, const struct fuse_in_header *in,
		   const void *arg, size_t len)
{
	struct fs_kept_rec *r = fs_kept_find(fs, in->nodeid);

	switch (in->opcode) {
	case FUSE_FORGET:
		fs_kept_forget(fs, r);
		break; /* it has no answer */
	case FUSE_RELEASE:
		release(fs, handle_of(fs, arg, len));
		/* fall through */
	case FUSE_RELEASEDIR:
		reply(fs, in, 0, NULL, 0);
		break;
	case FUSE_FLUSH:
	case FUSE_FSYNC:
		reply(fs, in, EIO, NULL, 0);
		break;
	case FUSE_OPEN:
		if (fs->resent)
			release_unanswered(fs, in->unique);
		reply_open(fs, in, arg, len);
		break;
	case FUSE_GETATTR:
		if (r && !r->is_dir && r->attr.mode) {
			reply_attr(fs, in, r);
			break;
		}
		/* fall through */
	default:
		reply(fs, in, ESTALE, NULL, 0);
		break;
	}
}

static bool is_deadly(const struct fs *fs, uint64_t unique)
{
	const struct fs_kept_head *h = fs->kept ? fs->kept->head : NULL;

	return h && (unique & FS_RESENT) && h->deaths >= FS_KEPT_DEATHS &&
	       h->suspect == (unique & ~FS_RESENT);
}

bool fs_ghost(struct fs *fs, const void *buf, size_t len)
{
	struct fuse_in_header in;
	struct fs_kept_rec *r;

	if (len < sizeof(in))
		return false;
	memcpy(&in, buf, sizeof(in));
	fs->resent = in.unique & FS_RESENT;
	if (fs->resent)
		pool_count(&fs->resends);
	if (is_deadly(fs, in.unique)) {
		pool_error("a request (opcode %u) during which %u daemons died "
			   "is answered with EIO", in.opcode, FS_KEPT_DEATHS);
		reply(fs, &in, EIO, NULL, 0);
		return true;
	}
	/* (0: INTERRUPT, BATCH_FORGET, DESTROY) */
	if (in.nodeid < FS_PROC_MAX || fs_inode_find(fs, in.nodeid))
		return false;
	r = fs_kept_find(fs, in.nodeid);
	if (r && r->is_dir && in.opcode != FUSE_FORGET && revive(fs, r))
		return false;
	if (in.opcode == FUSE_READ &&
	    handle_of(fs, (const char *)buf + sizeof(in), len - sizeof(in)))
		return false; /* fs_read needs only the handle */
	pool_count(&fs->ghosts);
	answer(fs, &in, (const char *)buf + sizeof(in), len - sizeof(in));
	return true;
}
