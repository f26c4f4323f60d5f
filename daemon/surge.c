#include "daemon/surge.h"

#include <errno.h>
#include <limits.h>
#include <linux/close_range.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/takeover.h"
#include "pool/base/log.h"

/* Not in --help: only daemon_surge_wait() gives it. */
#define WAIT_ARG "--surge-wait"

bool daemon_surge_is_running(const char *dir)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	bool running;
	int fd, n = snprintf(at.sun_path, sizeof(at.sun_path), "%s/%s", dir,
			     DAEMON_TAKEOVER_SOCKET);

	if (n < 0 || (size_t)n >= sizeof(at.sun_path))
		return false; /* the daemon could not listen there either */
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	running = connect(fd, (struct sockaddr *)&at, sizeof(at)) == 0;
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

	/* Until the new program waits for them, too: as process 1 of its
	 * container it would not get them otherwise. */
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
