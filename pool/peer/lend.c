/*
 * When is it safe to read an object through a passed descriptor, instead of a
 * copy?
 *
 * The receiver cannot trust a descriptor. It may refer to a file that the
 * sender may not read itself (O_PATH; the receiver, with more rights, would
 * show it to everybody), to a file that changes while it is read, or to one
 * whose read never returns. Hence a descriptor is passed and accepted only if
 *
 *   - the kernel reports that the process at the other end runs as our user.
 *     Such a process could also write into our store, or trace this process, so
 *     a descriptor gains it nothing. (A borrower of another user could keep an
 *     object's pages for ever.) Both ends check this: pool_conn_own_user;
 *   - it can be read, and nothing else: O_RDONLY, not O_PATH;
 *   - it is a regular file on a tmpfs: reading neither blocks nor fails;
 *   - our user owns the file, and nobody else may write it (an ACL that permits
 *     that shows in the group bits): only our user can open it for writing;
 *   - nobody has it open or mapped for writing now. A write lease proves that.
 *
 * The requester then reads the file once and compares its checksum before any
 * reader gets it (pool/node/fetch_room.c). The holder has verified it too, but
 * a holder may be a program that uses libkvpool and can change its own memory.
 * The order matters: after the lease there is no writer, so later readers see
 * the bytes that were checksummed.
 *
 * A descriptor that fails a check is no error: the holder sends the bytes, and
 * the requester checksums them as they arrive. This happens where a store
 * directory is on a disk, or where daemons of several users share a host.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pool/peer/peer_priv.h"
#include "pool/store/store.h"

bool peers_fd_is_safe(int fd, uint64_t size)
{
	int flags = fcntl(fd, F_GETFL);
	struct statfs fs;
	struct stat st;

	return flags >= 0 && (flags & (O_ACCMODE | O_PATH)) == O_RDONLY &&
	       fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       (uint64_t)st.st_size == size && st.st_uid == geteuid() &&
	       !(st.st_mode & (S_IWGRP | S_IWOTH)) && fstatfs(fd, &fs) == 0 &&
	       fs.f_type == TMPFS_MAGIC && pool_file_has_writer(fd) == 0;
}
