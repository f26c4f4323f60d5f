#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "daemon/daemonize.h"
#include "daemon/run_dir.h"
#include "pool/base/memory.h"
#include "pool/base/mountinfo.h"
#include "tools/cmd.h"

#define DAEMON_COMM "kvpoold"
#define SIZE_MAX_DEFAULT ((uint64_t)16 << 30)

int cmd_mount_path(const char *dir, char *buf, size_t cap)
{
	char real[PATH_MAX], copy[PATH_MAX];
	size_t len = strlen(dir);
	const char *name, *parent = ".";
	char *slash;

	if (realpath(dir, real)) {
		snprintf(buf, cap, "%s", real);
		return strlen(real) < cap ? 0 : -ENAMETOOLONG;
	}
	/* The mount of a dead daemon returns ENOTCONN: resolve its parent. */
	while (len > 1 && dir[len - 1] == '/')
		len--;
	if (len >= sizeof(copy))
		return -ENAMETOOLONG;
	memcpy(copy, dir, len);
	copy[len] = '\0';
	slash = strrchr(copy, '/');
	name = slash ? slash + 1 : copy;
	if (slash) {
		*slash = '\0';
		parent = slash == copy ? "/" : copy;
	}
	if (!realpath(parent, real))
		return -errno;
	if ((size_t)snprintf(buf, cap, "%s/%s", real[1] ? real : "", name) >=
	    cap)
		return -ENAMETOOLONG;
	return 0;
}

static bool is_pool(const struct pool_mountinfo *m)
{
	return strcmp(m->type, "fuse.kvpool") == 0;
}

bool cmd_mounted_in(FILE *mountinfo, const char *path)
{
	struct pool_mountinfo m;
	char *line = NULL;
	size_t cap = 0;
	bool found = false;

	while (getline(&line, &cap, mountinfo) > 0)
		if (pool_mountinfo_parse(line, &m) &&
		    strcmp(m.point, path) == 0)
			found = is_pool(&m); /* the last mount is on top */
	free(line);
	return found;
}

/* Is path the directory dir, or in it? */
static bool is_in(const char *path, const char *dir)
{
	size_t len = strlen(dir);

	if (len == 1)
		return true;
	return strncmp(path, dir, len) == 0 && (!path[len] || path[len] == '/');
}

int cmd_mount_key_in(FILE *mountinfo, const char *path, char *mount, char *key)
{
	struct pool_mountinfo m;
	char *line = NULL;
	size_t cap = 0, best = 0;
	bool found = false;

	/* The deepest mount wins; of several at one point, the last. */
	while (getline(&line, &cap, mountinfo) > 0) {
		if (!pool_mountinfo_parse(line, &m) ||
		    strlen(m.point) < best || !is_in(path, m.point) ||
		    strlen(m.point) >= PATH_MAX)
			continue;
		best = strlen(m.point);
		found = is_pool(&m);
		strcpy(mount, m.point);
	}
	free(line);
	if (!found || strlen(path) >= PATH_MAX)
		return -ENOTSUP;
	path += best;
	strcpy(key, path + strspn(path, "/"));
	return 0;
}

int cmd_mount_key(const char *path, char *mount, char *key)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	int rc;

	if (!f)
		return -ENOTSUP;
	rc = cmd_mount_key_in(f, path, mount, key);
	fclose(f);
	return rc;
}

bool cmd_mounted(const char *path)
{
	FILE *f = fopen("/proc/self/mountinfo", "re");
	bool found;

	if (!f)
		return false;
	found = cmd_mounted_in(f, path);
	fclose(f);
	return found;
}

bool cmd_mount_stale(const char *path)
{
	struct statfs sf;
	int rc;

	do
		rc = statfs(path, &sf);
	while (rc < 0 && (errno == EINTR || errno == ECONNABORTED));
	return rc < 0 && errno == ENOTCONN && cmd_mounted(path);
}

/* Is pid a live node daemon? A pid read from a file may have been reused, or
 * may be a zombie. */
static bool is_daemon(pid_t pid)
{
	char path[64], line[256] = "", *end;
	FILE *f;

	/* "PID (COMM) STATE ..." */
	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "re");
	if (!f)
		return false;
	if (!fgets(line, sizeof(line), f))
		line[0] = '\0';
	fclose(f);
	end = strstr(line, " (" DAEMON_COMM ") ");
	return end && end[strlen(" (" DAEMON_COMM ") ")] != 'Z';
}

/* The status page of a mount (a new reference), or NULL. */
static json_t *mount_status(const char *path)
{
	char name[PATH_MAX + 32];

	snprintf(name, sizeof(name), "%s/.kvpool/status", path);
	return json_load_file(name, 0, NULL);
}

void cmd_mount_admin(const char *mount, struct pool_hostport *admin)
{
	json_t *json = mount_status(mount);
	const char *text = json_string_value(json_object_get(json, "admin"));

	if (text)
		(void)pool_parse_hostport(text, 0, admin);
	json_decref(json);
}

/* The pid that the mount reports. This needs an answer of the daemon, so the
 * pid file is tried first. */
static pid_t status_pid(const char *path)
{
	json_t *json = mount_status(path);
	pid_t pid;

	pid = (pid_t)json_integer_value(json_object_get(json, "pid"));
	json_decref(json);
	return pid;
}

/* The pid in the pid file, in the run directory of this user and
 * environment. */
static pid_t pidfile_pid(const char *path)
{
	const char *given = getenv("KVPOOL_RUN_DIR");
	char run_dir[PATH_MAX];

	if (given && given[0])
		return daemon_pidfile_read(given, path);
	if (daemon_run_dir_default(run_dir, sizeof(run_dir)))
		return -ENAMETOOLONG;
	return daemon_pidfile_read(run_dir, path);
}

pid_t cmd_mount_pid(const char *path)
{
	pid_t pid = pidfile_pid(path);

	if (pid > 1 && is_daemon(pid))
		return pid;
	if (!cmd_mounted(path))
		return 0;
	pid = status_pid(path);
	return pid > 1 && is_daemon(pid) ? pid : 0;
}

uint64_t cmd_default_store_size(void)
{
	const char *source;
	uint64_t bytes;

	/* On an error: kvpoold will report it. */
	if (pool_memory_limit(&bytes, &source) < 0)
		return SIZE_MAX_DEFAULT;
	bytes = bytes / 4 & ~(uint64_t)0xfffff;
	return bytes < SIZE_MAX_DEFAULT ? bytes : SIZE_MAX_DEFAULT;
}
