/*
 * Reusing the pages of a removed file for a new one that will be overwritten
 * completely. This saves freeing, allocating and zeroing pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/store/store_priv.h"

/* Is the file otherwise unused, with as many pages as `size` needs? A process
 * that has it open could link it (pool_store_link): check the link count after
 * the lease. */
static int check(int fd, uint64_t size)
{
	struct stat st;
	int err = pool_file_in_use(fd);

	if (err)
		return err;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_nlink != 1)
		return -EBUSY;
	return (uint64_t)st.st_size == size &&
			       (uint64_t)st.st_blocks * 512 ==
				       pool_whole_pages(size) ?
		       0 : -EAGAIN;
}

/* Remove the metadata and give the file the id `to`: fd (O_RDWR) or -errno. */
static int rename_open(struct pool_store *s, uint64_t from, uint64_t to)
{
	char old[STORE_NAME_LEN + 1], new[STORE_NAME_LEN + 1];
	int err = pool_store_detach(s, from), fd;

	if (err && err != -ENODATA)
		return err;
	fd = pool_store_fd(s, from, O_RDWR);
	if (fd < 0)
		return fd;
	store_name(from, old);
	store_name(to, new);
	if (renameat(s->dirfd, old, s->dirfd, new) == 0)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static int reuse(struct pool_store *s, uint64_t id, uint64_t size,
		 struct pool_file *ret_file)
{
	int fd = pool_store_fd(s, id, O_RDONLY), err;

	if (fd < 0)
		return fd;
	ret_file->reserved = size;
	ret_file->id = store_ids(s, 1);
	err = ret_file->id ? check(fd, size) : -EIO;
	if (!err) {
		ret_file->fd = rename_open(s, id, ret_file->id);
		err = ret_file->fd < 0 ? ret_file->fd : 0;
	}
	close(fd);
	return err;
}

int pool_store_reuse(struct pool_store *s, uint64_t id, uint64_t size,
		     struct pool_file *ret_file)
{
	int err = reuse(s, id, size, ret_file);

	if (err)
		pool_store_remove(s, id);
	else
		pool_count(&s->n.takes_reused);
	return err;
}
