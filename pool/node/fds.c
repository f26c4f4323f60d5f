/*
 * Descriptors of files that the mount has open. Users may have any number of
 * files open, but this process may not. So a descriptor is opened when it is
 * first used, and beyond opts.fds_max the least recently used one is closed.
 * Its file can be opened again as long as it has users (node_object_remains).
 */
#include "pool/base/map.h"
#include "pool/node/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

int node_object_open(struct pool_node *n, const struct node_object *o,
		     int flags)
{
	char path[32];
	int fd;

	if (o->lent_fd < 0)
		return pool_store_fd(n->store, o->id, flags);
	if ((flags & O_ACCMODE) == O_RDONLY && !(flags & O_PATH)) {
		fd = fcntl(o->lent_fd, F_DUPFD_CLOEXEC, 0);
		return fd < 0 ? -errno : fd;
	}
	snprintf(path, sizeof(path), "/proc/self/fd/%d", o->lent_fd);
	fd = open(path, flags | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

int pool_node_open_file(struct pool_node *n, struct node_object *o, bool give,
			uint64_t *ret_size)
{
	int fd = node_object_open(n, o, O_RDONLY);

	if (fd < 0)
		return fd;
	if (give)
		node_object_give(o);
	*ret_size = o->size;
	return fd;
}

int pool_node_open_here(struct pool_node *n, const struct node_entry *e,
			bool give, uint64_t *ret_size)
{
	struct node_object *o = pool_node_readable(e);
	int fd = o ? pool_node_open_file(n, o, give, ret_size) : -EAGAIN;

	if (fd >= 0)
		node_object_look(o);
	return fd;
}

void node_fd_init(struct node_fd *f)
{
	*f = (struct node_fd){ .fd = -1 };
	pool_list_init(&f->link);
}

int node_fd_take(struct pool_node *n, struct node_fd *f)
{
	int fd = f->fd;

	if (!pool_list_empty(&f->link)) {
		pool_list_del(&f->link);
		n->nfds--;
	}
	f->fd = -1;
	return fd;
}

void node_fd_close(struct pool_node *n, struct node_fd *f)
{
	int fd = node_fd_take(n, f);

	if (f->map)
		munmap((void *)(uintptr_t)f->map, f->map_len);
	f->map = NULL;
	if (fd >= 0)
		close(fd);
}

void node_fd_keep(struct pool_node *n, struct node_fd *f,
		  const struct node_object *o, int fd)
{
	f->fd = fd;
	if (fd < 0 || !o || (o->id == 0 && o->lent_fd < 0))
		return; /* taken over without an id: cannot be opened again */
	pool_list_add_tail(&n->fds, &f->link);
	if (++n->nfds <= n->opts.fds_max || n->opts.fds_max == 0)
		return;
	pool_count(&n->c.fds_closed);
	node_fd_close(n, pool_list_first(&n->fds, struct node_fd, link));
}

static void map_file(struct node_fd *f)
{
	void *map = pool_map_object(f->map_len, PROT_READ, 0, f->fd, 0);

	f->map = map == MAP_FAILED ? NULL : map;
}

int node_fd_get(struct pool_node *n, struct node_fd *f,
		const struct node_object *o, int flags)
{
	int fd;

	if (f->fd < 0) {
		fd = o ? node_object_open(n, o, flags) : -EBADF;
		if (fd < 0)
			return fd;
		node_fd_keep(n, f, o, fd);
	} else if (!pool_list_empty(&f->link)) {
		pool_list_del(&f->link);
		pool_list_add_tail(&n->fds, &f->link);
	}
	if (f->map_len > 0 && !f->map)
		map_file(f);
	return f->fd;
}
