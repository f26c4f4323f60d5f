/*
 * kvpool mountpoint: makes a directory to mount a pool at, into which nothing
 * can be written while nothing is mounted; or, with --inside, one in a mounted
 * pool.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "tools/cmd.h"

#define POLL_US 100000

static const char usage[] =
	"usage: kvpool mountpoint [--inside [--wait DURATION]] DIR\n\n"
	"Makes DIR, where a pool is to be mounted: mode 0000 and immutable, so "
	"that a\n"
	"program that starts before the mount is there writes nothing below "
	"it. Its\n"
	"parent must exist; `chattr -i DIR` undoes it. Nothing is done if a "
	"pool is\n"
	"mounted there already.";

static int failed(const char *dir, const char *what, const char *remedy)
{
	fprintf(stderr, "kvpool: mountpoint: %s: %s: %s%s\n", dir, what,
		strerror(errno), remedy);
	return 1;
}

static bool is_empty(int fd)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	unsigned int n = 0;

	while (dir && n < 3 && readdir(dir))
		n++;
	if (dir)
		closedir(dir);
	return n == 2; /* . and .. */
}

static int seal(int fd, const char *dir)
{
	int flags = 0; /* the kernel's type here is int, not long */

	if (ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0 &&
	    (flags & FS_IMMUTABLE_FL))
		return 0;
	if (!is_empty(fd)) {
		fprintf(stderr,
			"kvpool: mountpoint: %s: it is not empty, or cannot be "
			"read: a mount would hide what is there; move it away, "
			"or choose another directory\n",
			dir);
		return 1;
	}
	flags |= FS_IMMUTABLE_FL;
	if (fchmod(fd, 0) < 0)
		return failed(dir, "its mode cannot be changed", "");
	if (ioctl(fd, FS_IOC_SETFLAGS, &flags) < 0)
		return failed(dir, "it cannot be made immutable",
			      errno == EPERM ?
				      "; that needs CAP_LINUX_IMMUTABLE" :
				      "; choose a directory on a filesystem "
				      "that can: ext4, xfs, btrfs, or tmpfs "
				      "since Linux 6.0");
	return 0;
}

static int make_below(const char *dir)
{
	int fd, rc;

	if (cmd_mounted(dir))
		return 0;
	if (mkdir(dir, 0) < 0 && errno != EEXIST)
		return failed(dir, "it cannot be made", "");
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return failed(dir, "it cannot be opened", "");
	rc = seal(fd, dir);
	close(fd);
	return rc;
}

/* Waits for the mount, which may still be starting. */
static int make_inside(const char *dir, uint64_t wait_ms)
{
	uint64_t end = pool_now_ms() + wait_ms;
	char mount[PATH_MAX], key[PATH_MAX];

	while (cmd_mount_key(dir, mount, key) || !key[0]) {
		if (pool_now_ms() >= end) {
			fprintf(stderr,
				"kvpool: mountpoint: %s: not below the mount "
				"of a pool\n", dir);
			return 1;
		}
		usleep(POLL_US);
	}
	umask(0);
	if (mkdir(dir, 0777) < 0 && errno != EEXIST)
		return failed(dir, "it cannot be made", "");
	return 0;
}

int cmd_mountpoint(int argc, char **argv)
{
	uint64_t wait_ms = 60000;
	bool inside = false;
	struct daemon_option opts[] = {
		{ .name = "inside", .type = OPT_FLAG, .value = &inside,
		  .help = "Make a directory in a mounted pool, which all may\n"
			  "write to.", .no_env = true },
		{ .name = "wait", .type = OPT_DURATION, .value = &wait_ms,
		  .arg = "DURATION",
		  .help = "With --inside: how long to wait for the mount.",
		  .no_env = true, .max = 3600000 },
		{ .name = NULL },
	};
	char path[PATH_MAX];
	char **ops;
	int nops, rc;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops != 1) {
		fprintf(stderr,
			"kvpool: mountpoint: %d directories given; %s\n", nops,
			usage);
		return 2;
	}
	pool_log_set_level(POOL_LOG_ERROR);
	rc = cmd_mount_path(ops[0], path, sizeof(path));
	if (rc) {
		errno = -rc;
		return failed(ops[0], "no such path", "");
	}
	return inside ? make_inside(path, wait_ms) : make_below(path);
}
