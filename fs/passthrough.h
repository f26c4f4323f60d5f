/*
 * The parts of the kernel's FUSE ABI that libfuse 3.14 lacks:
 *   - passthrough (Linux 6.9) and its negotiation;
 *   - epochs (Linux 6.16);
 *   - concurrent LOOKUPs in one directory: libfuse before 3.17 does not pass
 *     FUSE_PARALLEL_DIROPS on to the kernel, even if FUSE_CAP_PARALLEL_DIROPS
 *     is wanted, and the kernel then sends them one at a time.
 * Source: the kernel's include/uapi/linux/fuse.h, 7.40. libfuse 3.17 has its
 * own API for these.
 *
 * Thread: any. The only state is struct fs_init, the caller's.
 */
#ifndef FS_PASSTHROUGH_H
#define FS_PASSTHROUGH_H

#include <assert.h>
#include <linux/fuse.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <sys/uio.h>

/* Flags of INIT: `flags`, and with FS_INIT_EXT also `flags2`. */
#define FS_INIT_EXT (1u << 30)
#define FS_HANDLE_KILLPRIV_V2 (1u << 28)
#define FS_DIRECT_IO_ALLOW_MMAP (1u << 4) /* flags2, Linux 6.6 */
#define FS_PASSTHROUGH (1u << 5)	  /* flags2, Linux 6.9 */

/* Flags of the reply to OPEN. */
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
#define FS_NOTIFY_RESEND 7
#define FS_NOTIFY_INC_EPOCH 8

/* Offsets in struct fuse_init_out of 7.40, which libfuse 3.14 fills with zeros
 * from FLAGS2 on. */
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

/* The negotiation of INIT. */
struct fs_init {
	uint64_t unique; /* of the INIT request; 0: none, or answered */
	uint32_t flags, flags2; /* what the kernel offers */
	int want_passthrough; /* input */
	int one_by_one; /* input: decline FUSE_PARALLEL_DIROPS, as the mount
			   that is taken over did */
	int passthrough, allow_mmap; /* result */
};

/* Records unique and flags if this request, read from the device, is INIT. */
void fs_init_request(struct fs_init *in, const void *buf, size_t len);
/* Adds our flags to the reply to INIT in iov (header, fuse_init_out) before it
 * is written. Leaves other replies alone. */
void fs_init_reply(struct fs_init *in, const struct iovec *iov, int count);
/* Does this complete INIT reply decline FUSE_PARALLEL_DIROPS? */
int fs_init_one_by_one(const void *reply, size_t len);

/* Registers the file of fd (O_PATH suffices) as a passthrough backing. The
 * backing id (> 0), or -errno. */
int fs_backing_open(int dev_fd, int fd);
void fs_backing_close(int dev_fd, int id);
/* Expires all dentries: each is revalidated when next used. Takes no lock,
 * unlike an invalidation. 0, or -EINVAL before Linux 6.16. */
int fs_epoch_next(int dev_fd);
/* Makes the kernel resend requests that were read and not answered; their
 * uniques then have bit 63. 0, or -EINVAL before Linux 6.9. */
int fs_resend(int dev_fd);

#endif
