#include "fs/passthrough.h"

#include <errno.h>
#include <unistd.h>
#include <string.h>

void fs_init_request(struct fs_init *in, const void *buf, size_t len)
{
	const struct fuse_in_header *h = buf;
	const struct fuse_init_in *init;

	if (len < sizeof(*h) + 16 || h->opcode != FUSE_INIT)
		return;
	init = (const void *)((const char *)buf + sizeof(*h));
	in->unique = h->unique;
	in->flags = init->flags;
	in->flags2 = (init->flags & FS_INIT_EXT) &&
				     len >= sizeof(*h) + sizeof(*init) ?
			     init->flags2 : 0;
}

static void put32(const struct iovec *iov, size_t offset, uint32_t v)
{
	memcpy((char *)iov->iov_base + offset, &v, sizeof(v));
}

static uint32_t get32(const struct iovec *iov, size_t offset)
{
	uint32_t v;

	memcpy(&v, (const char *)iov->iov_base + offset, sizeof(v));
	return v;
}

void fs_init_reply(struct fs_init *in, const struct iovec *iov, int count)
{
	const struct fuse_out_header *h = iov[0].iov_base;
	uint32_t flags, flags2 = 0;

	if (!in->unique || iov[0].iov_len < sizeof(*h) ||
	    h->unique != in->unique)
		return;
	in->unique = 0;
	if (count < 2 || iov[1].iov_len < sizeof(struct fuse_init_out) ||
	    h->error)
		return;
	in->allow_mmap = (in->flags2 & FS_DIRECT_IO_ALLOW_MMAP) != 0;
	in->passthrough = in->want_passthrough &&
			  (in->flags2 & FS_PASSTHROUGH) != 0;
	if (in->allow_mmap)
		flags2 |= FS_DIRECT_IO_ALLOW_MMAP;
	if (in->passthrough) {
		flags2 |= FS_PASSTHROUGH;
		put32(&iov[1], FS_INIT_OUT_STACK_DEPTH, 1);
	}
	flags = get32(&iov[1], FS_INIT_OUT_FLAGS) |
		(in->flags & (FS_INIT_EXT | FS_HANDLE_KILLPRIV_V2 |
			      FUSE_PARALLEL_DIROPS));
	if (in->one_by_one)
		flags &= ~(uint32_t)FUSE_PARALLEL_DIROPS;
	put32(&iov[1], FS_INIT_OUT_FLAGS, flags);
	put32(&iov[1], FS_INIT_OUT_FLAGS2, flags2);
}

int fs_init_one_by_one(const void *reply, size_t len)
{
	struct fuse_init_out out;

	if (len < sizeof(struct fuse_out_header) + sizeof(out))
		return 0;
	memcpy(&out, (const char *)reply + sizeof(struct fuse_out_header),
	       sizeof(out));
	return !(out.flags & FUSE_PARALLEL_DIROPS);
}

int fs_backing_open(int dev_fd, int fd)
{
	struct fs_backing_map map = { .fd = fd };
	int id = ioctl(dev_fd, FS_BACKING_OPEN, &map);

	return id < 0 ? -errno : id;
}

void fs_backing_close(int dev_fd, int id)
{
	uint32_t arg = (uint32_t)id;

	(void)ioctl(dev_fd, FS_BACKING_CLOSE, &arg);
}

static int notify(int dev_fd, int what)
{
	struct fuse_out_header h = { .len = sizeof(h), .error = what };

	return write(dev_fd, &h, sizeof(h)) < 0 ? -errno : 0;
}

int fs_epoch_next(int dev_fd)
{
	return notify(dev_fd, FS_NOTIFY_INC_EPOCH);
}

int fs_resend(int dev_fd)
{
	return notify(dev_fd, FS_NOTIFY_RESEND);
}
