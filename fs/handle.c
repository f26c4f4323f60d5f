/* File handles: made by OPEN and CREATE, freed by RELEASE. A passthrough handle
 * has no state here (fs_priv.h). */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

static int handle_new(struct fs *fs, const struct fs_inode *i, bool writer,
		      struct fs_handle **ret_handle)
{
	struct fs_handle *h = calloc(1, sizeof(*h));
	struct node_object *o = i->obj;
	int err = 0;

	if (!h)
		return -ENOMEM;
	node_fd_init(&h->fd);
	/* A published object never changes: READ copies from a mapping. */
	if (node_object_state(o) == NODE_HELD)
		h->fd.map_len = node_object_final_size(o);
	/* A writer seldom reads: its read descriptor is opened at its first
	 * READ. */
	if (!writer)
		err = node_fd_get(fs->node, &h->fd, o, O_RDONLY);
	if (err == -ENOENT) /* the store's file was removed: this check
			       drops the copy, and the next OPEN fetches it */
		pool_node_doubt(fs->node, o);
	if (err >= 0)
		err = fs_fh_add(fs, &h->o, FS_FH_FILE);
	if (err) {
		node_fd_close(fs->node, &h->fd);
		free(h);
		return err;
	}
	h->writer = writer;
	h->obj = node_object_ref(o);
	h->inode = i;
	fs_kept_handle(fs, h);
	*ret_handle = h;
	return 0;
}

struct node_object *fs_handle_obj(struct fs *fs, const struct fs_inode *i,
				  uint64_t fh)
{
	struct fs_handle *h = fs_fh_get(fs, fh);

	return h && h->obj ? h->obj : i->obj;
}

bool fs_handle_writes(struct fs *fs, uint64_t fh)
{
	struct fs_handle *h = fs_fh_get(fs, fh);

	return h ? h->writer : fh == FS_PASSTHROUGH_WRITER;
}

bool fs_write_locks(const struct node_object *o, const struct fs_inode *i)
{
	const void *direct;

	return node_object_direct(o, &direct) > 0 && direct != i;
}

bool fs_writers_clash(const struct fs_inode *i)
{
	return fs_write_locks(i->obj, i->served ? NULL : i) ||
	       (!i->served && node_object_served_writers(i->obj) > 0);
}

void fs_direct_begin(struct fs *fs, struct node_object *o,
		     const struct fs_inode *i)
{
	const void *direct;

	pool_node_writer_direct(fs->node, o, i,
				node_object_direct(o, &direct) + 1);
}

void fs_direct_end(struct fs *fs, struct node_object *o)
{
	const void *direct;
	uint32_t n = node_object_direct(o, &direct);

	if (n > 0)
		pool_node_writer_direct(fs->node, o, direct, n - 1);
}

void fs_handle_free(struct fs *fs, struct fs_handle *h)
{
	if (!h)
		return;
	fs_fh_remove(fs, &h->o);
	fs_kept_handle_end(fs, h);
	if (h->writer && h->obj)
		pool_node_writer_served(fs->node, h->obj, false);
	node_fd_close(fs->node, &h->fd);
	if (h->obj)
		node_object_unref(fs->node, h->obj);
	else
		fs->handles_without_obj--;
	free(h);
}

int fs_handle_open(struct fs *fs, struct fs_inode *i, int flags,
		     struct fuse_open_out *out)
{
	struct fs_handle *h = NULL;
	int rc;

	memset(out, 0, sizeof(*out));
	if (!fs_wants_write(flags))
		out->open_flags |= FS_FOPEN_NOFLUSH;
	if (!i->served) {
		rc = fs_inode_backing(fs, i);
		if (rc > 0) {
			out->open_flags |= FS_FOPEN_PASSTHROUGH |
					   FS_FOPEN_NOFLUSH;
			out->padding = (uint32_t)rc; /* backing_id */
			if (!fs_wants_write(flags))
				return 0;
			out->fh = FS_PASSTHROUGH_WRITER;
			fs_direct_begin(fs, i->obj, i);
			return 0;
		}
		if (i->opens > 0)
			return rc;
		pool_warn_limited("passthrough refused (%s): daemon-served",
				  strerror(-rc));
		i->served = true;
	}
	if (fs_wants_write(flags)) {
		rc = pool_node_writer_fd(fs->node, i->obj);
		if (rc < 0)
			return rc;
	}
	rc = handle_new(fs, i, fs_wants_write(flags), &h);
	if (rc)
		return rc;
	i->was_served = true;
	if (fs_wants_write(flags))
		pool_node_writer_served(fs->node, i->obj, true);
	out->fh = h->o.fh;
	out->open_flags |= FOPEN_DIRECT_IO | FS_FOPEN_PARALLEL_DIRECT_WRITES;
	return 0;
}
