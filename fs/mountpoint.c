/* Prepares the mount point: a dead mount is detached, a live one refused. */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "pool/base/mountinfo.h"

static bool is_pool(const struct pool_mountinfo *m)
{
	return strcmp(m->type, "fuse.kvpool") == 0;
}

/* Is dir the root of a KVPool mount? (statx reports the mount that dir is in,
 * so STATX_ATTR_MOUNT_ROOT is needed, too.) */
static bool pool_is_mounted(const char *dir)
{
	struct statx at;

	return statx(AT_FDCWD, dir, AT_NO_AUTOMOUNT,
		     STATX_BASIC_STATS | STATX_MNT_ID, &at) == 0 &&
	       (at.stx_attributes & STATX_ATTR_MOUNT_ROOT) &&
	       (at.stx_mask & STATX_MNT_ID) &&
	       pool_mountinfo_is(at.stx_mnt_id, is_pool);
}

/* A second mount on top would hide a live one, and `kvpool down --mount` would
 * stop one daemon and remove the other's mount. */
static int refuse_live(const char *dir)
{
	char path[PATH_MAX + 32];
	json_t *status;
	const char *name;

	snprintf(path, sizeof(path), "%s/" FS_PROC_NAME "/status", dir);
	status = json_load_file(path, 0, NULL);
	name = json_string_value(json_object_get(status, "name"));
	pool_error("%s: a pool is mounted here already, by %s (pid %" PRId64
		   "): stop that with kvpool down --mount %s, or mount "
		   "elsewhere", dir, name ? name : "another daemon",
		   (int64_t)json_integer_value(json_object_get(status, "pid")),
		   dir);
	json_decref(status);
	return -EBUSY;
}

/* Detaches mounts whose daemon is dead: statfs(2) fails with ENOTCONN.
 * (stat(2) could succeed with cached attributes of the root. ECONNABORTED: the
 * daemon died during the call; the next call gets ENOTCONN.) */
static int clear_stale(const char *dir)
{
	struct statfs sf;

	while (statfs(dir, &sf) < 0) {
		if (errno == ECONNABORTED || errno == EINTR)
			continue;
		if (errno != ENOTCONN)
			break;
		pool_warn("%s: a mount without its daemon was left here: "
			  "removed", dir);
		if (umount2(dir, MNT_DETACH) < 0) {
			pool_error("%s: cannot remove the stale mount: %s - "
				   "run umount -l %s", dir, strerror(errno),
				   dir);
			return -errno;
		}
	}
	return 0;
}

int fs_mountpoint_prepare(const char *dir)
{
	struct stat st;
	int err = clear_stale(dir);

	if (err)
		return err;
	if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
		pool_error("%s: cannot make the mount point: %s", dir,
			   strerror(errno));
		return -errno;
	}
	if (stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) {
		pool_error("%s: not a directory that can be mounted on", dir);
		return -ENOTDIR;
	}
	return pool_is_mounted(dir) ? refuse_live(dir) : 0;
}
