/*
 * A connection's buffer directory, and finding the pool of a mount.
 *
 * BASE is ".clients" in the store directory of this host's daemon, if the
 * connection was made by a path in its mount and may write there; else it is in
 * /dev/shm. The connection uses BASE/N, the first of 0, 1, .. that it can lock.
 *
 * The directory stays when the connection ends, so that the next connection
 * there is the same node, not one more for the pool to count. It also finds and
 * publishes what a killed process had put and no store had yet. BASE/N/pool
 * names the pool: a directory with objects for another pool is skipped.
 */
#include "pool/client/client_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "pool/model/root.h"
#include "pool/store/store.h"

#define DIRS_MAX 256
#define OBJECT_NAME_LEN 16 /* hex digits, of pool/store/store.h */
#define STATUS ".kvpool/status"
#define POOL_FILE "pool"
#define POOL_TEXT (POOL_HOSTPORTS_MAX * POOL_HOSTPORT_TEXT)

/* ---- directories ---- */

/* A directory that other users may write to could be read or replaced by
 * them. */
static int check_base(const char *base)
{
	struct stat st;

	if (mkdir(base, 0700) < 0 && errno != EEXIST)
		return client_fail(-errno, "cannot create buffer_dir %s: %s",
				   base, strerror(errno));
	/* In /dev/shm any user may have made a link of this name. */
	if (lstat(base, &st) == 0 && S_ISLNK(st.st_mode) && st.st_uid != 0 &&
	    st.st_uid != geteuid())
		return client_fail(-EPERM, "buffer_dir %s is a link made by "
				   "user %u: set buffer_dir to a directory of "
				   "your own, or have it removed", base,
				   (unsigned int)st.st_uid);
	if (stat(base, &st) < 0)
		return client_fail(-errno, "buffer_dir %s: %s", base,
				   strerror(errno));
	if (!S_ISDIR(st.st_mode))
		return client_fail(-ENOTDIR, "buffer_dir %s is not a directory",
				   base);
	if (st.st_uid != geteuid() || (st.st_mode & 022))
		return client_fail(-EPERM, "buffer_dir %s belongs to another "
				   "user, or others may write to it: set "
				   "buffer_dir to a directory of your own, or "
				   "have that one removed", base);
	return 0;
}

/* Creates path if it is missing, and locks it. 0 and the descriptor;
 * -EWOULDBLOCK: another process has locked it; or -errno. */
static int lock_dir(const char *path, int *ret_fd)
{
	int fd, err;

	if (mkdir(path, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
		err = -errno;
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

static bool is_object(const char *name)
{
	return strlen(name) == OBJECT_NAME_LEN &&
	       strspn(name, "0123456789abcdef") == OBJECT_NAME_LEN;
}

static bool has_objects(int dir_fd)
{
	int fd = openat(dir_fd, "store", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	bool has = false;

	if (!d) {
		if (fd >= 0)
			close(fd);
		return false;
	}
	while (!has && (e = readdir(d)))
		has = is_object(e->d_name);
	closedir(d);
	return has;
}

/* A pool is identified by its masters' addresses. */
static void pool_text(const struct kvpool *p, char *text)
{
	for (unsigned int i = 0; i < p->opts.masters.n; i++) {
		pool_format_hostport(&p->opts.masters.at[i], text,
				     POOL_HOSTPORT_TEXT);
		text += strlen(text);
		*text++ = '\n';
	}
	*text = '\0';
}

static bool is_of_pool(int dir_fd, const char *text)
{
	int fd = openat(dir_fd, POOL_FILE, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
	char has[POOL_TEXT + 1];
	ssize_t n;

	if (fd < 0)
		return false;
	n = read(fd, has, sizeof(has));
	close(fd);
	return n == (ssize_t)strlen(text) && memcmp(has, text, (size_t)n) == 0;
}

static int write_pool(int dir_fd, const char *text)
{
	int fd = openat(dir_fd, POOL_FILE ".new",
			O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
			0600);
	ssize_t n;
	int err;

	if (fd < 0)
		return -errno;
	n = write(fd, text, strlen(text));
	err = n == (ssize_t)strlen(text) ? 0 : n < 0 ? -errno : -ENOSPC;
	close(fd);
	if (!err && renameat(dir_fd, POOL_FILE ".new", dir_fd, POOL_FILE) < 0)
		err = -errno;
	return err;
}

/* Locks a directory and marks it as this pool's. 0 and the descriptor;
 * -EWOULDBLOCK: another connection uses it, or it has objects for another pool;
 * or -errno. */
static int take_dir(const char *path, const char *pool, int *ret_fd)
{
	int err = lock_dir(path, ret_fd);

	if (err || is_of_pool(*ret_fd, pool))
		return err;
	err = has_objects(*ret_fd) ? -EWOULDBLOCK : write_pool(*ret_fd, pool);
	if (err) {
		close(*ret_fd);
		*ret_fd = -1;
	}
	return err;
}

/* The store makes the same check of a shared filesystem. Made here too, before
 * a node is started, so that the error is clear. */
static int check_space(const char *base, uint64_t size)
{
	uint64_t headroom = size / 16 > 64u << 20 ? size / 16 : 64u << 20;
	char want[32], has[32];
	struct statvfs st;
	uint64_t room;

	if (headroom > size / 4)
		headroom = size / 4;
	if (statvfs(base, &st) < 0)
		return client_fail(-errno, "buffer_dir %s: %s", base,
				   strerror(errno));
	room = (uint64_t)st.f_bavail * st.f_frsize;
	if (size <= UINT64_MAX / 2 && size + headroom <= room)
		return 0;
	return client_fail(-ENOSPC, "buffer_size is %s, but %s has only %s "
			   "left", pool_format_size(size, want, sizeof(want)),
			   base, pool_format_size(room, has, sizeof(has)));
}

static int take_in(struct kvpool *p, const char *base)
{
	char path[PATH_MAX], store[PATH_MAX + 8], pool[POOL_TEXT + 1];
	int i, n, err = -EMFILE;

	pool_text(p, pool);
	for (i = 0; i < DIRS_MAX; i++) {
		n = snprintf(path, sizeof(path), "%s/%d", base, i);
		if (n < 0 || (size_t)n >= sizeof(path))
			return client_fail(-ENAMETOOLONG, "buffer_dir is too "
							  "long");
		err = take_dir(path, pool, &p->dir_fd);
		if (err != -EWOULDBLOCK)
			break;
	}
	if (err == -EWOULDBLOCK)
		err = -EMFILE;
	if (err)
		return client_fail(err, "cannot lock a directory in %s: %s",
				   base, strerror(-err));
	/* A directory below: the node locks its store directory itself. */
	snprintf(store, sizeof(store), "%s/store", path);
	p->dir = strdup(store);
	return p->dir ? 0 : client_fail(-ENOMEM, "no memory for a connection");
}

/* Can the buffer be in the store of this host's daemon, which then takes over
 * the files without copying? Only the daemon's user may write there. */
static bool store_has_room(const struct kvpool *p, char *base, size_t cap)
{
	return p->store_dir &&
	       (size_t)snprintf(base, cap, "%s/" POOL_STORE_CLIENTS,
				p->store_dir) < cap &&
	       access(base, W_OK) == 0 && check_base(base) == 0 &&
	       check_space(base, p->opts.buffer_size) == 0;
}

/* The socket for lending to nodes of this host. Optional: without it (its path
 * is too long) they receive bytes. */
static void set_sock(struct kvpool *p)
{
	size_t len = strlen(p->dir) - strlen("store");

	if (len + sizeof(POOL_PEER_SOCKET) <=
		    sizeof(((struct sockaddr_un *)0)->sun_path) &&
	    asprintf(&p->sock, "%.*s" POOL_PEER_SOCKET, (int)len, p->dir) < 0)
		p->sock = NULL;
}

int client_dir_take(struct kvpool *p, const char *base)
{
	char text[PATH_MAX];
	int err;

	if (!base && store_has_room(p, text, sizeof(text)))
		base = text;
	if (!base) {
		snprintf(text, sizeof(text), "/dev/shm/kvpool-%u",
			 (unsigned int)geteuid());
		base = text;
	}
	err = check_base(base);
	if (!err)
		err = check_space(base, p->opts.buffer_size);
	if (!err)
		err = take_in(p, base);
	if (!err)
		set_sock(p);
	return err;
}

static void remove_objects(const char *dir)
{
	DIR *d = opendir(dir);
	struct dirent *e;

	if (!d)
		return;
	while ((e = readdir(d)))
		if (is_object(e->d_name))
			unlinkat(dirfd(d), e->d_name, 0);
	closedir(d);
}

void client_dir_give(struct kvpool *p, bool remove_files)
{
	if (p->dir_fd < 0)
		return;
	if (remove_files && p->dir)
		remove_objects(p->dir);
	close(p->dir_fd);
	p->dir_fd = -1;
}

/* ---- mounts ---- */

/* Is fd a mount's own status file? Users may create files of that name, also
 * below the mount's root. */
static bool is_status(int fd)
{
	struct statfs fs;
	struct stat st;

	return fstatfs(fd, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC &&
	       fstat(fd, &st) == 0 && S_ISREG(st.st_mode) &&
	       st.st_ino < POOL_ROOT_INO_MIN;
}

static json_t *read_status(const char *name)
{
	int fd = open(name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	json_t *j = fd >= 0 && is_status(fd) ? json_loadfd(fd, 0, NULL) : NULL;

	if (fd >= 0)
		close(fd);
	return j;
}

static json_t *status_of(const char *path)
{
	char name[PATH_MAX + sizeof(STATUS) + 1], *slash;
	json_t *j = NULL;

	if (strlen(path) >= PATH_MAX)
		return NULL;
	strcpy(name, path);
	while (!j) {
		slash = name + strlen(name);
		snprintf(slash, sizeof(name) - (size_t)(slash - name),
			 "/" STATUS);
		j = read_status(name);
		*slash = '\0';
		slash = strrchr(name, '/');
		if (!slash || j)
			break;
		*slash = '\0';
	}
	return j;
}

int client_mount_find(const char *path, struct pool_hostports *ret_masters,
		      char **ret_store)
{
	json_t *j = status_of(path);
	const char *at = NULL, *store = NULL;
	int err = -ENOTSUP;

	json_unpack(j, "{s:{s:s}, s?s}", "master", "address", &at,
		    "store_dir", &store);
	if (at && at[0])
		err = pool_parse_hostports(at, 7070, ret_masters);
	if (err)
		client_fail(err, "`at`: %s is not in a mount of a pool with a "
				 "master", path);
	else
		*ret_store = store ? strdup(store) : NULL;
	json_decref(j);
	return err;
}
