/*
 * Files that clients of this host have written below POOL_STORE_CLIENTS, on the
 * store's filesystem. The store makes one its own by linking it under an object
 * name.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/store/store_priv.h"

bool pool_store_has_clients(const struct pool_store *s)
{
	return s->clients;
}

void store_make_clients(struct pool_store *s)
{
	s->clients = mkdirat(s->dirfd, POOL_STORE_CLIENTS, 0700) == 0 ||
		     errno == EEXIST;
}

/* Can fd be linked: on our filesystem, of that size, with one name, and not
 * open for writing? 0 or -errno, as pool_store_link. */
static int check(const struct pool_store *s, int fd, uint64_t size)
{
	struct stat st, dir;

	if (fstat(fd, &st) < 0 || fstat(s->dirfd, &dir) < 0)
		return -errno;
	if (st.st_dev != dir.st_dev)
		return -EXDEV;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != size ||
	    st.st_nlink != 1)
		return -EBADMSG;
	return pool_file_has_writer(fd);
}

int pool_store_link(struct pool_store *s, int fd, uint64_t size,
		    struct pool_file *ret_file)
{
	char from[32], name[STORE_NAME_LEN + 1];
	uint64_t id;
	int err = check(s, fd, size);

	if (err)
		return err;
	id = store_ids(s, 1);
	if (id == 0)
		return -EIO;
	store_name(id, name);
	snprintf(from, sizeof(from), "/proc/self/fd/%d", fd);
	if (linkat(AT_FDCWD, from, s->dirfd, name, AT_SYMLINK_FOLLOW) < 0)
		return -errno;
	ret_file->id = id;
	ret_file->reserved = 0;
	ret_file->fd = pool_store_fd(s, id, O_RDONLY);
	if (ret_file->fd >= 0)
		return 0;
	err = ret_file->fd;
	store_unlink(s, id);
	return err;
}

bool pool_store_linked(const struct pool_store *s, uint64_t id)
{
	char name[STORE_NAME_LEN + 1];
	struct stat st;

	store_name(id, name);
	return fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
	       st.st_nlink > 1;
}
