/*
 * kvpool down: sends SIGTERM to the daemon of a mount, then waits until the
 * daemon and the mount are gone. The daemon first publishes what is pending,
 * which takes a while.
 */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/pidfd.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "tools/cmd.h"

#define POLL_MS 100

static const char usage[] =
	"usage: kvpool down --mount DIR [--timeout DURATION]\n"
	"\n"
	"Stops the daemon that serves DIR, and waits until it has published "
	"what was\n"
	"pending, unmounted and exited.";

/* Waits at most ms until the process has ended; true: it has. A zombie counts
 * as ended, so kill(pid, 0) does not suffice. */
static bool wait_pid(int pidfd, int ms)
{
	struct pollfd p = { .fd = pidfd, .events = POLLIN };

	return poll(&p, 1, ms) == 1;
}

static int wait_end(const char *path, pid_t pid, int pidfd, uint64_t timeout_ms)
{
	uint64_t start = pool_now_ms(), logged_ms = start;

	while (!wait_pid(pidfd, POLL_MS)) {
		uint64_t now = pool_now_ms();

		if (now - start > timeout_ms) {
			fprintf(stderr,
				"kvpool: down: pid %d has not ended after %llu "
				"s. "
				"To give up what it has not published: "
				"kill -9 %d; umount -l %s\n",
				(int)pid, (unsigned long long)timeout_ms / 1000,
				(int)pid, path);
			return 1;
		}
		if (now - logged_ms >= 1000) {
			fprintf(stderr,
				"waiting for pid %d to publish and unmount, "
				"%llu s\n",
				(int)pid,
				(unsigned long long)(now - start) / 1000);
			logged_ms = now;
		}
	}
	/* If the daemon was killed, its mount is left, and stale. A mount that
	 * answers belongs to another daemon. */
	if (cmd_mount_stale(path) && umount2(path, MNT_DETACH)) {
		fprintf(stderr,
			"kvpool: down: the daemon ended, but %s is still "
			"mounted: %s\n",
			path, strerror(errno));
		return 1;
	}
	if (cmd_mounted(path)) {
		fprintf(stderr,
			"kvpool: down: stopped pid %d; another daemon's pool "
			"is mounted at %s: run it again to stop that, too\n",
			(int)pid, path);
		return 1;
	}
	printf("stopped pid %d, nothing is mounted at %s\n", (int)pid, path);
	return 0;
}

static int stop(const char *path, pid_t pid, uint64_t timeout_ms)
{
	int pidfd = pidfd_open(pid, 0), rc;

	if (pidfd < 0 && errno == ESRCH)
		return 0;
	if (pidfd < 0 || pidfd_send_signal(pidfd, SIGTERM, NULL, 0)) {
		fprintf(stderr, "kvpool: down: pid %d: %s\n", (int)pid,
			strerror(errno));
		rc = 1;
	} else {
		rc = wait_end(path, pid, pidfd, timeout_ms);
	}
	if (pidfd >= 0)
		close(pidfd);
	return rc;
}

/* There is no daemon: there is no mount, or a killed daemon's. */
static int clean(const char *path)
{
	if (!cmd_mounted(path)) {
		printf("nothing is mounted at %s\n", path);
		return 0;
	}
	if (!cmd_mount_stale(path)) {
		fprintf(stderr,
			"kvpool: down: %s: its daemon answers, but cannot be "
			"seen from here (in another container?): stop it "
			"there, or umount %s\n",
			path, path);
		return 1;
	}
	if (umount2(path, MNT_DETACH)) {
		fprintf(stderr, "kvpool: down: %s: %s\n", path,
			strerror(errno));
		return 1;
	}
	printf("unmounted %s, whose daemon was gone\n", path);
	return 0;
}

int cmd_down(int argc, char **argv)
{
	const char *mount = NULL;
	uint64_t timeout_ms = 60000;
	struct daemon_option opts[] = {
		{ .name = "mount", .type = OPT_STRING, .value = &mount,
		  .arg = "DIR", .help = "The mount." },
		{ .name = "timeout", .type = OPT_DURATION, .value = &timeout_ms,
		  .arg = "DURATION", .help = "How long to wait for the daemon.",
		  .min = 1000 },
		{ .name = NULL },
	};
	char path[PATH_MAX], **ops;
	int nops, rc;
	pid_t pid;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (!mount && nops == 1)
		mount = ops[0];
	else if (!mount || nops)
		return daemon_option_reject(&opts[0], "one directory", stderr),
		       2;
	rc = cmd_mount_path(mount, path, sizeof(path));
	if (rc) {
		fprintf(stderr, "kvpool: down: %s: %s\n", mount, strerror(-rc));
		return 1;
	}
	pid = cmd_mount_pid(path);
	return pid ? stop(path, pid, timeout_ms) : clean(path);
}
