/*
 * The part of the kernel's FUSE ABI that libfuse 3.14 has no calls for:
 * passthrough (Linux 6.9) and its negotiation, epochs (Linux 6.16), and
 * look-ups of one directory at once: before 3.17, libfuse never tells the
 * kernel that they are wanted (FUSE_CAP_PARALLEL_DIROPS), which then sends them
 * one by one. Source: the kernel's include/uapi/linux/fuse.h, 7.40. Where
 * libfuse is 3.17 or newer its own API could be used instead.
 *
 * Thread: any, no state but what fs_init_* is given.
 */
#ifndef FS_PASSTHROUGH_H
#define FS_PASSTHROUGH_H

#include <assert.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

#define FS_INIT_EXT (1u << 30)
#define FS_HANDLE_KILLPRIV_V2 (1u << 28)
#define FS_DIRECT_IO_ALLOW_MMAP (1u << 4) /* flags2, Linux 6.6 */
#define FS_PASSTHROUGH (1u << 5)	  /* flags2, Linux 6.9 */

#define FS_FOPEN_NOFLUSH (1u << 5)
#define FS_FOPEN_PARALLEL_DIRECT_WRITES (1u << 6)
#define FS_FOPEN_PASSTHROUGH (1u << 7)

struct fs_backing_map {
	int32_t fd;
	uint32_t flags;
	uint64_t padding;
};
#define FS_BACKING_OPEN _IOW(229, 1, struct fs_backing_map)
#define FS_BACKING_CLOSE _IOW(229, 2, uint32_t)
#define FS_NOTIFY_INC_EPOCH 8

/* The end of fuse_init_out as of 7.40; libfuse 3.14 sends zeros there. */
#define FS_INIT_OUT_FLAGS 12
#define FS_INIT_OUT_FLAGS2 32
#define FS_INIT_OUT_STACK_DEPTH 36

static_assert(sizeof(struct fs_backing_map) == 16, "kernel ABI");
static_assert(sizeof(struct fuse_open_out) == 16, "kernel ABI");
static_assert(offsetof(struct fuse_open_out, padding) == 12,
	      "backing_id of the kernel's ABI");
static_assert(offsetof(struct fuse_init_out, flags) == FS_INIT_OUT_FLAGS,
	      "kernel ABI");
static_assert(offsetof(struct fuse_init_out, flags2) == FS_INIT_OUT_FLAGS2,
	      "kernel ABI");
static_assert(sizeof(struct fuse_init_out) == 64, "kernel ABI");
static_assert(offsetof(struct fuse_init_in, flags2) == 16, "kernel ABI");

/* What the kernel offered (flags2 of its INIT) and what we take of it. */
struct fs_init {
	uint64_t unique; /* of the INIT request; 0 once it was answered */
	uint32_t flags, flags2;
	int want_passthrough;
	int one_by_one; /* look-ups: of a mount that was made so */
	int passthrough, allow_mmap; /* the outcome */
};

/* Look at a request read from the device: is it the INIT? */
void fs_init_request(struct fs_init *in, const void *buf, size_t len);
/* Rewrite the INIT reply in iov (header, fuse_init_out) on its way out. */
void fs_init_reply(struct fs_init *in, const struct iovec *iov, int count);
/* Does this reply, as it was sent, leave look-ups one by one? */
int fs_init_one_by_one(const void *reply, size_t len);

/* An id for the file behind fd (O_PATH will do), or -errno. */
int fs_backing_open(int dev_fd, int fd);
void fs_backing_close(int dev_fd, int id);
/* Every name that the kernel remembers is looked up again when it is next used.
 * Takes no lock, unlike an invalidation. 0; -EINVAL before Linux 6.16. */
int fs_epoch_next(int dev_fd);

#endif
