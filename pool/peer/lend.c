/*
 * What makes it safe to read an object through a descriptor that was passed, in
 * place of a copy.
 *
 * A descriptor is whatever its sender says it is: of a file that the sender may
 * not read itself (O_PATH; the receiver, with more rights, would show it to
 * everybody), of one that changes under its readers, or whose reading never
 * ends. So one is taken only if
 *
 *   - the kernel says that the process at the other end is of our own user: such a
 *     process could write into our store as well, and trace this process: it gains
 *     nothing. (Also the other way round: nothing is passed to other users, who could
 *     keep an object's pages for ever.) Both ends ask: peers_same_user;
 *   - it can be read, and only that: O_RDONLY, not O_PATH;
 *   - it is a regular file on a tmpfs: reading it neither waits nor fails;
 *   - the file is our user's, and nobody else may write it (an ACL that lets others
 *     do so shows in the group's bits): whoever opens it from now on is of our user;
 *   - nobody has it open for writing, or mapped so, at this moment: a lease.
 *
 * Who asked then reads it once and compares its checksum
 * (pool/node/fetch_room.c) before anybody else may: the holder has summed it,
 * too, but a holder may be a program that uses libkvpool, whose memory is its
 * own. That order matters: after the lease no writer is left, so what was
 * summed is what is read later.
 *
 * Whatever is not so is no failure: bytes are sent, and summed as they arrive.
 * So it is where a store directory is on a disk, or daemons of several users
 * share a host.
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
