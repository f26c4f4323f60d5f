/* Handles: what OPEN and CREATE answer, and RELEASE ends. */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int handle_new(struct fs *fs, const struct fs_inode *i,
		      struct fs_handle **ret_handle)
{
	struct fs_handle *h = calloc(1, sizeof(*h));
	struct node_object *o = i->obj;
	int kept = fs_inode_past(i)->kept;

	if (!h)
		return -ENOMEM;
	h->fd = kept ? fcntl(kept - 1, F_DUPFD_CLOEXEC, 0) :
		       node_object_open(fs->node, o, O_RDONLY);
	if (h->fd < 0) {
		int err = kept ? -errno : h->fd;

		if (err == -ENOENT) /* from under us: had elsewhere next time */
			pool_node_doubt(fs->node, o);
		free(h);
		return err;
	}
	if (fs_open_add(fs, &h->o, FS_OPEN_FILE)) {
		close(h->fd);
		free(h);
		return -ENOMEM;
	}
	h->obj = node_object_ref(o);
	h->inode = i;
	/* Published objects never change: answered out of a mapping. */
	if (o->state == NODE_HELD && o->size > 0)
		fs_handle_map(h, o->size);
	*ret_handle = h;
	return 0;
}

void fs_handle_map(struct fs_handle *h, size_t len)
{
	void *map = mmap(NULL, len, PROT_READ, MAP_SHARED, h->fd, 0);

	if (map == MAP_FAILED)
		return;
	h->map = map;
	h->map_len = len;
}

struct node_object *fs_handle_obj(struct fs *fs, const struct fs_inode *i,
				  uint64_t fh)
{
	struct fs_handle *h = fs_open_of(fs, fh);

	return h && h->obj ? h->obj : i->obj;
}

bool fs_handle_writes(struct fs *fs, uint64_t fh)
{
	struct fs_handle *h = fs_open_of(fs, fh);

	return h ? h->writer : fh == FS_PASSTHROUGH_WRITER;
}

void fs_handle_free(struct fs *fs, struct fs_handle *h)
{
	if (!h)
		return;
	fs_open_remove(fs, &h->o);
	if (h->map)
		munmap((void *)(uintptr_t)h->map, h->map_len);
	if (h->fd >= 0)
		close(h->fd);
	if (h->obj)
		node_object_unref(fs->node, h->obj);
	else
		fs->unnamed--;
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
			out->fh = fs_wants_write(flags) ?
					  FS_PASSTHROUGH_WRITER : 0;
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
	rc = handle_new(fs, i, &h);
	if (rc)
		return rc;
	h->writer = fs_wants_write(flags);
	i->cached = true;
	out->fh = h->o.fh;
	out->open_flags |= FOPEN_DIRECT_IO | FS_FOPEN_PARALLEL_DIRECT_WRITES;
	return 0;
}
