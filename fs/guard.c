#include "fs/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "fs/kept.h"

#ifndef STATX_MNT_ID_UNIQUE
#define STATX_MNT_ID_UNIQUE 0x4000u
#endif
#ifndef SYS_statmount
#define SYS_statmount 457 /* since Linux 6.8 */
#endif

#define POLL_MS 100

/* struct mnt_id_req of <linux/mount.h>, first version */
struct mount_request {
	uint32_t size, spare;
	uint64_t id, what;
};

/* (A kernel without STATX_MNT_ID_UNIQUE returns an id that may be reused.) */
static int mount_of(int dir_fd, const char *path, int flags, uint64_t *ret_id)
{
	struct statx at;

	if (statx(dir_fd, path, flags | AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC,
		  STATX_MNT_ID | STATX_MNT_ID_UNIQUE, &at) < 0)
		return -errno;
	if (!(at.stx_attributes & STATX_ATTR_MOUNT_ROOT))
		return -ENOENT;
	*ret_id = at.stx_mnt_id;
	return 0;
}

int fs_guard_mount_now(const char *path, uint64_t *ret_id)
{
	return mount_of(AT_FDCWD, path, 0, ret_id);
}

uint64_t fs_guard_dev(const char *path)
{
	struct statx at;

	if (statx(AT_FDCWD, path, AT_NO_AUTOMOUNT | AT_STATX_DONT_SYNC, 0, &at))
		return 0;
	return makedev(at.stx_dev_major, at.stx_dev_minor);
}

bool fs_guard_gone(uint64_t id)
{
	struct mount_request req = { .size = sizeof(req), .id = id };
	char buf[512]; /* a struct statmount without strings */

	return syscall(SYS_statmount, &req, buf, sizeof(buf), 0) < 0 &&
	       errno == ENOENT;
}

int fs_guard_unmount(const char *path, uint64_t id, int flags)
{
	char root[32];
	uint64_t now;
	int fd, err;

	if (fs_guard_gone(id))
		return -ENOENT;
	/* With O_DIRECTORY this would trigger an automount there. */
	fd = open(path, O_PATH | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	err = mount_of(fd, "", AT_EMPTY_PATH, &now);
	if (!err && now != id)
		err = -ENOENT;
	/* (glibc's snprintf does not allocate for a number) */
	snprintf(root, sizeof(root), "/proc/self/fd/%d", fd);
	if (!err && umount2(root, flags) < 0)
		err = -errno;
	close(fd);
	return err;
}

/* Has another daemon adopted the mount in time? */
static bool adopted(const struct fs_kept_head *kept, uint32_t incarnation)
{
	const struct timespec pause = { .tv_nsec = POLL_MS * 1000000L };
	const volatile struct fs_kept_head *now = kept;
	int ms = 0;

	for (; kept && ms < FS_GUARD_WAIT_MS; ms += POLL_MS) {
		if (now->incarnation != incarnation && now->begun_ms)
			return true;
		nanosleep(&pause, NULL);
	}
	return false;
}

static void guard(pid_t daemon, const char *path, uint64_t id,
		  const struct fs_kept_head *kept)
{
	uint32_t incarnation = kept ? kept->incarnation : 0;
	sigset_t wait_for;
	int sig;

	sigemptyset(&wait_for);
	sigaddset(&wait_for, SIGUSR1);
	/* A kill of the daemon's process group must not reach the guard. */
	(void)setsid();
	(void)prctl(PR_SET_NAME, "kvpool-guard");
	(void)close_range(0, UINT_MAX, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && getppid() == daemon)
		while (sigwait(&wait_for, &sig))
			;
	if (adopted(kept, incarnation))
		_exit(0);
	/* MNT_FORCE aborts the connection, but does not unmount: the root is
	 * open. The mount then fails with ENOTCONN, so no program writes to the
	 * directory below it. */
	(void)fs_guard_unmount(path, id, MNT_FORCE);
	_exit(0);
}

pid_t fs_guard_start(const char *mountpoint, uint64_t id,
		     const struct fs_kept_head *kept)
{
	sigset_t all, before;
	pid_t pid, self = getpid();
	int err;

	/* The guard must survive the daemon's signals, which terminals and
	 * service managers send to both: block all. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pid = fork();
	if (pid == 0)
		guard(self, mountpoint, id, kept);
	err = -errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pid > 0 ? pid : err;
}

void fs_guard_stop(pid_t pid)
{
	if (pid <= 0)
		return;
	kill(pid, SIGKILL);
	while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
		;
}
