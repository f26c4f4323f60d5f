#include "daemon/surge.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "daemon/name_lock.h"
#include "pool/base/log.h"

/* Not in --help: only daemon_surge_wait() gives it. */
#define WAIT_ARG "--surge-wait"

/* Looks at its lock and does not connect: while a daemon serves one connection
 * of its take-over socket, it does not serve the next, the take-over itself. */
bool daemon_surge_is_running(const char *dir)
{
	char path[PATH_MAX];
	bool running;
	int fd, n = snprintf(path, sizeof(path), "%s/%s", dir,
			     DAEMON_NAME_LOCK_FILE);

	if (n < 0 || (size_t)n >= sizeof(path))
		return false; /* too long for any daemon */
	fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	if (fd < 0)
		return false;
	running = flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
	close(fd);
	return running;
}

static void ends(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGINT);
}

void daemon_surge_wait(void)
{
	sigset_t set;

	/* Blocked, they stay pending until the new program waits for them. The
	 * kernel would discard them for process 1 of a container. */
	ends(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	(void)syscall(SYS_close_range, STDERR_FILENO + 1, UINT_MAX,
		      CLOSE_RANGE_CLOEXEC);
	execl("/proc/self/exe", "kvpoold", WAIT_ARG, (char *)NULL);
	pool_error("--surge: this process cannot wait (errno %d): it ends",
		   errno);
	_exit(0); /* as without --surge */
}

bool daemon_surge_waits(int argc, char **argv)
{
	return argc == 2 && strcmp(argv[1], WAIT_ARG) == 0;
}

int daemon_surge_wait_main(void)
{
	sigset_t set;
	int sig;

	ends(&set);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	pool_info("--surge: another daemon serves; waiting for SIGTERM");
	sigwait(&set, &sig);
	return 0;
}
