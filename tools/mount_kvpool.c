/*
 * mount.kvpool: mount(8) runs it for "mount -t kvpool HOST:PORT DIR" and for
 * lines of /etc/fstab. It executes kvpoold, which returns when DIR is mounted.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/mount_args.h"
#include "daemon/options.h"
#include "daemon/sibling.h"

#define MOUNT_FAILED 32 /* exit status "mount failure" of mount(8) */

static const char usage[] =
	"usage: mount -t kvpool HOST:PORT DIR [-o OPTION[=VALUE],...]\n"
	"       mount.kvpool HOST:PORT DIR [-fnsv] [-o OPTION[=VALUE],...]\n"
	"\n"
	"Mounts the pool whose master is at HOST:PORT. The options are those "
	"of\n"
	"kvpoold --help, with _ or - between words: -o "
	"store_size=50G,insecure.\n"
	"Without store_size this node gives no memory to the pool (a client).\n"
	"A line of /etc/fstab:\n"
	"\n"
	"  master:7070 /mnt/kv kvpool store_size=50G,_netdev,nofail 0 0\n";

/* Like mount(8), does not create mount points. ENOTCONN of stat(2) means a
 * stale mount, which kvpoold removes. */
static int check_point(const char *dir)
{
	struct stat st;
	int err = stat(dir, &st) ? errno : S_ISDIR(st.st_mode) ? 0 : ENOTDIR;

	if (err != ENOENT && err != ENOTDIR)
		return 0;
	fprintf(stderr,
		"mount.kvpool: mount point %s: %s; it must be a directory\n",
		dir, strerror(err));
	return -err;
}

int main(int argc, char **argv)
{
	struct daemon_mount_args m;
	char path[4096];
	int rc = daemon_mount_args_init(&m, argc, argv, stderr);

	if (rc > 0)
		fputs(usage, stdout);
	if (rc == -ENOMEM)
		fprintf(stderr, "mount.kvpool: out of memory\n");
	if (rc || m.fake) {
		daemon_mount_args_fini(&m);
		return rc < 0 ? 2 : 0;
	}
	if (check_point(m.dir) ||
	    daemon_sibling_path("kvpoold", path, sizeof(path))) {
		daemon_mount_args_fini(&m);
		return MOUNT_FAILED;
	}
	if (m.verbose)
		for (int i = 0; i < m.argc; i++)
			fprintf(stderr, "%s%c", i ? m.argv[i] : path,
				i + 1 < m.argc ? ' ' : '\n');
	(void)setenv(DAEMON_FROM_MOUNT, "1", 1);
	execv(path, m.argv);
	fprintf(stderr, "mount.kvpool: %s: %s\n", path, strerror(errno));
	return MOUNT_FAILED;
}
