#include "daemon/run_dir.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/log.h"

static bool name_char(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
	       (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

bool daemon_name_valid(const char *name)
{
	size_t len = 0;

	while (name[len] && name_char(name[len]))
		len++;
	return len > 0 && len <= DAEMON_NAME_MAX && !name[len] &&
	       name[0] != '.';
}

void daemon_name_default(const char *host, uint16_t port, char *buf)
{
	snprintf(buf, DAEMON_NAME_MAX + 1, "%.64s-%u", host, port);
	for (char *p = buf; *p; p++)
		if (!name_char(*p) || (p == buf && *p == '.'))
			*p = '_';
}

int daemon_run_dir_default(char *buf, size_t cap)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	uid_t uid = geteuid();
	int n;

	if (uid == 0)
		n = snprintf(buf, cap, "/run/kvpool");
	else if (runtime && runtime[0] == '/')
		n = snprintf(buf, cap, "%s/kvpool", runtime);
	else
		n = snprintf(buf, cap, "/tmp/kvpool-%u", (unsigned int)uid);
	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

/* sticky: others may create files in it, but not remove or rename ours. */
static int make_dir(const char *path, mode_t mode, bool sticky_ok)
{
	struct stat st;
	int rc = 0;

	if ((mkdir(path, mode) < 0 && errno != EEXIST) || lstat(path, &st) < 0)
		rc = -errno;
	else if (!S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	else if (st.st_uid != geteuid() && st.st_uid != 0)
		rc = -EPERM;
	else if ((st.st_mode & 022) && !(sticky_ok && (st.st_mode & S_ISVTX)))
		rc = -EPERM;
	if (rc == -EPERM)
		pool_error("%s: belongs to another user, or others may write "
			   "there - choose a directory of your own with "
			   "--run-dir", path);
	else if (rc)
		pool_error("cannot create %s: %s - run as root, or choose a "
			   "directory of your own with --run-dir",
			   path, strerror(-rc));
	return rc;
}

int daemon_run_dir_ensure(const char *run_dir)
{
	return make_dir(run_dir, geteuid() ? 0700 : 0755, true);
}

int daemon_run_dir_make(const char *run_dir, const char *name, char *buf,
			size_t cap)
{
	int rc = daemon_run_dir_ensure(run_dir);
	int n = snprintf(buf, cap, "%s/%s", run_dir, name);

	if (rc)
		return rc;
	if (n < 0 || (size_t)n >= cap) {
		pool_error("%s/%s: the path is too long - choose another "
			   "--run-dir", run_dir, name);
		return -ENAMETOOLONG;
	}
	return make_dir(buf, 0700, false);
}
