/* What must not grow: descriptors and pages. See tests/sweep.h. */
#include "tests/sweep/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Files kept ready for writers come and go; they have pages and no size. */
static bool is_ready_file(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && st.st_size == 0 &&
	       st.st_blocks > 0;
}

/* Connections come and go, too; one that has ended and is still open does not:
 * is the socket connected, or listening? */
static bool is_live_socket(const char *path)
{
	char line[300], inode[32];
	unsigned int state;
	bool live = false;
	struct stat st;
	FILE *f;

	if (stat(path, &st) || !S_ISSOCK(st.st_mode))
		return false;
	f = fopen("/proc/net/tcp", "re");
	while (f && !live && fgets(line, sizeof(line), f))
		live = sscanf(line, " %*s %*s %*s %x %*s %*s %*s %*s %*s %31s",
			      &state, inode) == 2 &&
		       strtoull(inode, NULL, 10) == st.st_ino &&
		       (state == 1 || state == 10);
	if (f)
		fclose(f);
	return live;
}

static int count_fds(pid_t pid, bool print)
{
	char dir[64], path[512], to[300];
	struct dirent *e;
	ssize_t len;
	int n = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	if (!d)
		sweep_fail("%s: %s", dir, strerror(errno));
	while ((e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		if (e->d_name[0] == '.' || is_ready_file(path) ||
		    is_live_socket(path))
			continue;
		n++;
		len = print ? readlink(path, to, sizeof(to) - 1) : -1;
		if (len >= 0)
			printf("  descriptor %s: %.*s\n", e->d_name, (int)len,
			       to);
	}
	closedir(d);
	return n;
}

/* Bytes in use of the store behind a mount, but for ready files: of one moment.
 */
static long long bytes_used(const char *mount)
{
	static const char used[] = "kvpool_store_used_bytes ";
	static const char ready[] = "kvpool_store_ready_bytes ";
	char path[300], line[256];
	long long sum = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/.kvpool/metrics", mount);
	f = fopen(path, "re");
	if (!f)
		sweep_fail("%s: %s", path, strerror(errno));
	while (fgets(line, sizeof(line), f)) {
		if (!strncmp(line, used, strlen(used)))
			sum += atoll(line + strlen(used));
		if (!strncmp(line, ready, strlen(ready)))
			sum -= atoll(line + strlen(ready));
	}
	fclose(f);
	return sum;
}

void use_now(struct use *u, pid_t pid, const char *const mounts[2])
{
	int i;

	u->fds = count_fds(pid, false);
	for (i = 0; i < 2; i++)
		u->bytes[i] = bytes_used(mounts[i]);
}

void use_print_fds(pid_t pid)
{
	(void)count_fds(pid, true);
}
