#include "fs/guard.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/mountinfo.h"

#define MOUNTINFO_MAX (1u << 20)

/* The device of what is mounted at path. Writes into text, a mountinfo. */
static int device_in(char *text, const char *path, char *ret)
{
	char *line, *save = NULL;
	struct pool_mountinfo m;
	int err = -ENOENT;

	for (line = strtok_r(text, "\n", &save); line;
	     line = strtok_r(NULL, "\n", &save)) {
		if (!pool_mountinfo_parse(line, &m) || strcmp(m.point, path) ||
		    strlen(m.device) >= FS_GUARD_DEVICE)
			continue;
		strcpy(ret, m.device);
		err = 0; /* later lines are mounted on top */
	}
	return err;
}

/* Also called in the guard: the child of a process with several threads may
 * call async-signal-safe functions only, so `text` (MOUNTINFO_MAX bytes) was
 * allocated before the fork. */
static int device_now(const char *path, char *text, char *ret)
{
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t have = 0;
	ssize_t n;

	if (fd < 0)
		return -errno;
	do {
		n = read(fd, text + have, MOUNTINFO_MAX - 1 - have);
		have += n > 0 ? (size_t)n : 0;
	} while (n > 0 && have < MOUNTINFO_MAX - 1);
	close(fd);
	text[have] = '\0';
	return device_in(text, path, ret);
}

int fs_guard_device_now(const char *path, char *ret)
{
	char *text = malloc(MOUNTINFO_MAX);
	int err = text ? device_now(path, text, ret) : -ENOMEM;

	free(text);
	return err;
}

static void guard(pid_t daemon, const char *path, char *text,
		  const char *device)
{
	char now[FS_GUARD_DEVICE];
	sigset_t wait_for;
	int sig;

	sigemptyset(&wait_for);
	sigaddset(&wait_for, SIGUSR1);
	(void)prctl(PR_SET_NAME, "kvpool-guard");
	(void)close_range(0, UINT_MAX, 0);
	if (prctl(PR_SET_PDEATHSIG, SIGUSR1) == 0 && getppid() == daemon)
		while (sigwait(&wait_for, &sig))
			;
	/* Another mount may be at this path by now: leave that alone. */
	if (device_now(path, text, now) == 0 && strcmp(now, device) == 0) {
		/* The open descriptor makes the mount busy: MNT_FORCE aborts
		 * the connection but does not unmount. The mount then fails
		 * with ENOTCONN, and nobody writes into the directory below. */
		(void)open(path, O_PATH | O_DIRECTORY);
		(void)umount2(path, MNT_FORCE);
	}
	_exit(0);
}

pid_t fs_guard_start(const char *mountpoint)
{
	sigset_t all, before;
	char device[FS_GUARD_DEVICE];
	pid_t pid, self = getpid();
	char *text = malloc(MOUNTINFO_MAX);
	int err;

	if (!text)
		return -ENOMEM;
	err = device_now(mountpoint, text, device);
	if (err) {
		free(text);
		return err;
	}
	/* The guard must survive the daemon's signals, which terminals and
	 * service managers send to both: block all. */
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	pid = fork();
	if (pid == 0)
		guard(self, mountpoint, text, device);
	err = -errno;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	free(text);
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
