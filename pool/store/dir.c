/*
 * The store's directory: examining it, and making it a tmpfs of our own.
 *
 *   directory found                       used as
 *   a whole tmpfs without other files:
 *     mounted by a kvpoold                that tmpfs, remounted to the size;
 *                                         at its size if we may not remount
 *     mounted by others                   that tmpfs, at its size
 *   missing or empty, may mount           a tmpfs that we mount
 *   the only entry of a whole tmpfs       that tmpfs, at its size
 *   anything else                         a plain directory; our files are
 *                                         counted (space.c)
 *
 * A tmpfs that others mounted is theirs: in Kubernetes an emptyDir of medium
 * Memory, whose size is the volume's sizeLimit, and which outlives the
 * container as a tmpfs of ours would not.
 *
 * With huge=within_size, kernels since about 6.14 give a file folios as large
 * as its writes and fallocates; older kernels charge 2 MiB for a 128 KiB file.
 * A test file shows which: if it costs that much, the mount is changed to small
 * pages.
 *
 * Locks: the directory's own flock, held while it is examined and mounted,
 * keeps two starts from mounting over each other. The identity file's flock,
 * held as long as the store is open, keeps other processes out.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/mountinfo.h"
#include "pool/base/parse.h"
#include "pool/base/memory.h"
#include "pool/store/store_priv.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define TMPFS_ID 0x01021994
#define RAMFS_ID 0x858458f6
#define MOUNT_SOURCE "kvpool"
#define MOUNT_FLAGS (MS_NOSUID | MS_NODEV | MS_NOATIME)
/* Inodes for each object: itself, and up to 2 KiB of xattr, which tmpfs charges
 * at 1 KiB an inode. */
#define INODES_PER_OBJECT 3
#define INODES_SPARE 65536
#define HUGE_PROBE (128u << 10)

struct dir_state {
	bool mount_root; /* it is a mount point */
	bool whole;	 /* the mount shows the whole filesystem, not a part */
	bool kvpool;	 /* a kvpoold mounted it */
	bool alone;	 /* it is the only entry at the root of a whole tmpfs */
	bool tmpfs;
	bool empty;
	bool identity;	 /* it has a store's identity file */
	bool ids;	 /* it has files named like objects */
	bool others;	 /* it has files with other names */
};

struct identity {
	char magic[8];
	uint8_t id[16];
	uint64_t id_end; /* no id from here up has been used */
	uint64_t sum;	 /* XXH3-64 of the fields above */
};
static const char identity_magic[8] = "KVSTORE1";

/* Returns rc; records that its reason has been logged. */
static int refused(struct pool_store *s, int rc)
{
	s->logged = true;
	return rc;
}

/* ---- sizes ---- */

/*
 * Space is sampled every 10 ms while a file may outgrow its reservation. Even
 * at 50 GB/s, more than a machine's memory sustains, writers use half a GiB in
 * that time: 1 GiB of headroom is enough. Small stores have few writers and
 * cannot spare that much.
 */
static uint64_t headroom_least(uint64_t size)
{
	uint64_t room = size / 16;

	if (room > GIB)
		room = GIB;
	if (room < 16 * MIB)
		room = 16 * MIB;
	return room / POOL_PAGE * POOL_PAGE;
}

/* More than the minimum, so that a small store can absorb a large file. */
uint64_t store_headroom(uint64_t size)
{
	uint64_t least = headroom_least(size), room = size / 4;

	if (room > 64 * MIB)
		room = 64 * MIB;
	return room > least ? room / POOL_PAGE * POOL_PAGE : least;
}

/* Do size and headroom fit? May reduce s->headroom, down to the minimum. */
static bool fits_into(struct pool_store *s, uint64_t bytes)
{
	uint64_t left = bytes > s->size ? bytes - s->size : 0;

	if (left < s->headroom && left >= headroom_least(s->size))
		s->headroom = left / POOL_PAGE * POOL_PAGE;
	return s->headroom <= left;
}

/* The remaining 1/20 (64 MiB at least) is for inodes, dentries and xattrs
 * (about 1.2 KiB an object: 1 % of 128 KiB), page tables, buffers and the
 * daemon. */
uint64_t store_allowed(uint64_t limit)
{
	uint64_t rest = limit / 20;

	if (rest < 64 * MIB)
		rest = 64 * MIB;
	return limit > rest ? limit - rest : 0;
}

/* The largest size that fits into `bytes` with its headroom. */
static uint64_t largest_size(uint64_t bytes)
{
	if (bytes >= 17 * GIB)
		return bytes - GIB;
	if (bytes >= 17 * 16 * MIB)
		return bytes / 17 * 16;
	return bytes > 16 * MIB ? bytes - 16 * MIB : 0;
}

static int check_memory(struct pool_store *s)
{
	char size[32], room[32], allows[32], most[32];
	uint64_t limit, allowed, can;
	const char *source;
	int rc;

	rc = pool_memory_limit(&limit, &source);
	if (rc < 0) {
		pool_warn("store: the memory limit cannot be read (errno %d): "
			  "--store-size is not checked", -rc);
		return 0;
	}
	if (s->memory_max && s->memory_max < limit) {
		limit = s->memory_max;
		source = "--memory-limit";
	}
	allowed = store_allowed(limit);
	if (fits_into(s, allowed))
		return 0;
	can = largest_size(allowed) / MIB * MIB;
	pool_error("store: a size of %s (and %s of headroom) does not fit: %s "
		   "allows %s; use a --store-size of at most %s, or raise the "
		   "limit",
		   pool_format_size(s->size, size, sizeof(size)),
		   pool_format_size(headroom_least(s->size), room,
				    sizeof(room)),
		   source, pool_format_size(limit, allows, sizeof(allows)),
		   pool_format_size(can, most, sizeof(most)));
	return refused(s, -EDOM);
}

/* Is there room on a filesystem whose size we cannot set? */
static int check_room(struct pool_store *s)
{
	char size[32], room[32], has[32];
	uint64_t total, bsize;
	struct statfs st;

	if (fstatfs(s->dirfd, &st) < 0)
		return -errno;
	if (st.f_blocks == 0) {
		pool_error("store: %s has no size limit, so its free space is "
			   "unknown: mount it with size=", s->path);
		return refused(s, -EINVAL);
	}
	bsize = (uint64_t)st.f_bsize;
	if (s->own)
		total = st.f_blocks * bsize;
	else
		total = st.f_bavail * bsize + atomic_load(&s->usage.counted);
	if (fits_into(s, total))
		return 0;
	pool_error("store: a size of %s (and %s of headroom) does not fit into "
		   "%s, which has room for %s: use a smaller --store-size, or "
		   "make that filesystem larger",
		   pool_format_size(s->size, size, sizeof(size)),
		   pool_format_size(headroom_least(s->size), room,
				    sizeof(room)),
		   s->path, pool_format_size(total, has, sizeof(has)));
	return refused(s, -ENOSPC);
}

/* ---- examining the directory ---- */

static bool is_ours(const struct stat *st)
{
	return st->st_uid == geteuid() || st->st_uid == 0;
}

/* Other users must not be able to remove files, or to put other files or links
 * in their place. */
static int check_rights(struct pool_store *s, const char *dir)
{
	struct stat st;

	if (stat(dir, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return -ENOTDIR;
	if (!is_ours(&st)) {
		pool_error("store: %s belongs to user %u, who could change its "
			   "files: choose a directory of your own with "
			   "--store-dir, or remove that one", dir,
			   (unsigned int)st.st_uid);
		return refused(s, -EPERM);
	}
	if (!(st.st_mode & 022))
		return 0;
	if (st.st_uid == geteuid() && chmod(dir, st.st_mode & 0755) == 0) {
		pool_info("store: other users may no longer write to %s", dir);
		return 0;
	}
	pool_error("store: other users may write to %s: choose a directory of "
		   "your own with --store-dir, or take that permission away "
		   "(chmod go-w)", dir);
	return refused(s, -EPERM);
}

/*
 * In a directory where all users may create names, such as /dev/shm, another
 * user may have created this name, as a directory or as a link to any other.
 * Call this for each part of a path, from the left. *shared: is the part before
 * such a directory? Updated for the next part.
 */
static int check_maker(struct pool_store *s, const char *path, bool *shared)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return -errno;
	if (*shared && !is_ours(&st)) {
		pool_error("store: %s was made by user %u: choose another "
			   "--store-dir, or remove it", path,
			   (unsigned int)st.st_uid);
		return refused(s, -EPERM);
	}
	if (stat(path, &st) < 0)
		return -errno;
	*shared = (st.st_mode & S_ISVTX) && (st.st_mode & 022);
	return 0;
}

static int make_dir(struct pool_store *s, const char *path, mode_t mode,
		    bool *shared)
{
	if (mkdir(path, mode) < 0 && errno != EEXIST)
		return -errno;
	return check_maker(s, path, shared);
}

static int make_dirs(struct pool_store *s, const char *dir)
{
	bool shared = false;
	char path[PATH_MAX];
	int rc;

	if (strlen(dir) >= sizeof(path))
		return -ENAMETOOLONG;
	strcpy(path, dir);
	rc = check_maker(s, *dir == '/' ? "/" : ".", &shared);
	for (char *p = strchr(path + 1, '/'); !rc && p;
	     p = strchr(p + 1, '/')) {
		*p = '\0';
		rc = make_dir(s, path, 0755, &shared);
		*p = '/';
	}
	if (!rc)
		rc = make_dir(s, path, 0700, &shared);
	return rc ? rc : check_rights(s, dir);
}

/* Is the mount the whole filesystem, not a part of it bound here? */
static bool is_whole(const struct pool_mountinfo *m)
{
	return strcmp(m->root, "/") == 0;
}

static bool is_kvpools(const struct pool_mountinfo *m)
{
	return strcmp(m->source, MOUNT_SOURCE) == 0;
}

static int look_mount(int fd, struct dir_state *d)
{
	struct statx here, up;

	if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID,
		  &here) < 0 ||
	    statx(fd, "..", 0, STATX_BASIC_STATS, &up) < 0)
		return -errno;
	if (here.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT)
		d->mount_root = here.stx_attributes & STATX_ATTR_MOUNT_ROOT;
	else
		d->mount_root = here.stx_dev_major != up.stx_dev_major ||
				here.stx_dev_minor != up.stx_dev_minor;
	d->whole = d->kvpool = d->mount_root;
	if (d->mount_root && (here.stx_mask & STATX_MNT_ID)) {
		d->whole = pool_mountinfo_is(here.stx_mnt_id, is_whole);
		d->kvpool = pool_mountinfo_is(here.stx_mnt_id, is_kvpools);
	}
	return 0;
}

static bool is_tmpfs(int fd)
{
	struct statfs st;

	return fstatfs(fd, &st) == 0 && ((uint32_t)st.f_type == TMPFS_ID ||
					 (uint32_t)st.f_type == RAMFS_ID);
}

/* Has the directory exactly one entry? */
static bool has_one_entry(int fd)
{
	int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = again < 0 ? NULL : fdopendir(again);
	unsigned int n = 0;

	if (dir == NULL) {
		if (again >= 0)
			close(again);
		return false;
	}
	while (n < 4 && readdir(dir) != NULL)
		n++;
	closedir(dir);
	return n == 3; /* with . and .. */
}

/* A sticky parent, such as /dev/shm, is one where all users create files, so
 * that the directory would not stay the only entry. */
static bool is_alone(int fd)
{
	int up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct dir_state d;
	struct stat st;
	bool alone;

	if (up < 0)
		return false;
	alone = is_tmpfs(up) && look_mount(up, &d) == 0 && d.mount_root &&
		d.whole && fstat(up, &st) == 0 && !(st.st_mode & S_ISVTX) &&
		has_one_entry(up);
	close(up);
	return alone;
}

static int look_entries(const char *path, struct dir_state *d)
{
	DIR *dir = opendir(path);
	struct dirent *e;
	uint64_t id;

	if (dir == NULL)
		return -errno;
	d->empty = true;
	while ((e = readdir(dir)) != NULL) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		d->empty = false;
		if (strcmp(e->d_name, STORE_ID_FILE) == 0)
			d->identity = true;
		else if (store_name_parse(e->d_name, &id))
			d->ids = true;
		else if (!store_bad_name(e->d_name) &&
			 strcmp(e->d_name, POOL_STORE_CLIENTS) != 0)
			d->others = true;
	}
	closedir(dir);
	return 0;
}

/* Opens the directory by its path again: another process may have mounted there
 * since store_dir_open opened it. */
static int look(const char *path, struct dir_state *d)
{
	int fd, rc;

	memset(d, 0, sizeof(*d));
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	rc = look_mount(fd, d);
	d->tmpfs = is_tmpfs(fd);
	d->alone = !d->mount_root && is_alone(fd);
	close(fd);
	if (rc < 0)
		return rc;
	return look_entries(path, d);
}

/* ---- identity ---- */

int store_identity_write(struct pool_store *s, uint64_t id_end)
{
	struct identity rec;

	memcpy(rec.magic, identity_magic, sizeof(rec.magic));
	memcpy(rec.id, s->id, sizeof(rec.id));
	rec.id_end = id_end;
	rec.sum = store_sum64(&rec, offsetof(struct identity, sum));
	if (pwrite(s->idfd, &rec, sizeof(rec), 0) != sizeof(rec)) {
		int rc = errno != 0 ? -errno : -EIO;

		pool_error("store: %s/%s cannot be written: errno %d", s->path,
			   STORE_ID_FILE, -rc);
		return refused(s, rc);
	}
	s->id_end = id_end;
	return 0;
}

static int identity_read(struct pool_store *s)
{
	struct identity rec;
	ssize_t n = pread(s->idfd, &rec, sizeof(rec), 0);

	if (n < 0)
		return -errno;
	if (n == 0) {
		pool_random(s->id, sizeof(s->id));
		return store_identity_write(s, 0);
	}
	if (n != sizeof(rec) ||
	    memcmp(rec.magic, identity_magic, sizeof(rec.magic)) != 0 ||
	    rec.sum != store_sum64(&rec, offsetof(struct identity, sum))) {
		pool_error("store: %s/%s is damaged: remove it to have the "
			   "store start empty", s->path, STORE_ID_FILE);
		return refused(s, -EBADMSG);
	}
	memcpy(s->id, rec.id, sizeof(s->id));
	s->id_end = rec.id_end;
	return 0;
}

/* Pid of the process that locked the file, from /proc/locks ("N: FLOCK ADVISORY
 * WRITE PID MAJOR:MINOR:INODE ..."); 0: unknown. */
static int locked_by(int fd)
{
	FILE *f = fopen("/proc/locks", "re");
	unsigned int major, minor;
	unsigned long long ino;
	char line[160];
	struct stat st;
	int pid, found = 0;

	if (f == NULL)
		return 0;
	if (fstat(fd, &st) < 0)
		st.st_ino = 0;
	while (!found && fgets(line, sizeof(line), f) != NULL)
		if (sscanf(line, "%*s FLOCK %*s %*s %d %x:%x:%llu", &pid,
			   &major, &minor, &ino) == 4 && ino == st.st_ino &&
		    makedev(major, minor) == st.st_dev)
			found = pid;
	fclose(f);
	/* After a take-over the lock still names the old process, which has
	 * exited. */
	return found > 0 && kill(found, 0) == 0 ? found : 0;
}

static int identity_open(struct pool_store *s)
{
	char who[32] = "";
	struct stat st;
	int by;

	if (s->idfd >= 0) /* take-over: opts.lock_fd, locked already */
		return identity_read(s);
	s->idfd = openat(s->dirfd, STORE_ID_FILE,
			 O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (s->idfd < 0 || fstat(s->idfd, &st) < 0)
		return -errno;
	if (!is_ours(&st)) {
		pool_error("store: %s/%s was made by user %u: choose another "
			   "--store-dir, or remove that file", s->path,
			   STORE_ID_FILE, (unsigned int)st.st_uid);
		return refused(s, -EPERM);
	}
	if (flock(s->idfd, LOCK_EX | LOCK_NB) < 0) {
		if (errno != EWOULDBLOCK)
			return -errno;
		by = locked_by(s->idfd);
		if (by > 0)
			snprintf(who, sizeof(who), " (pid %d)", by);
		pool_error("store: %s is in use by another process%s: stop "
			   "that, or give each node a --store-dir of its own",
			   s->path, who);
		return refused(s, -EBUSY);
	}
	return identity_read(s);
}

/* ---- mounting ---- */

static int mount_tmpfs(struct pool_store *s, unsigned long more_flags,
		       const char *huge)
{
	char opts[256];
	uint64_t inodes = s->size / s->object_min;

	if (inodes > UINT32_MAX)
		inodes = UINT32_MAX;
	inodes = inodes * INODES_PER_OBJECT + INODES_SPARE;
	snprintf(opts, sizeof(opts),
		 "size=%" PRIu64 ",nr_inodes=%" PRIu64 ",mode=0700%s%s",
		 s->size + s->headroom, inodes, *huge != '\0' ? ",huge=" : "",
		 huge);
	if (mount(MOUNT_SOURCE, s->path, "tmpfs", MOUNT_FLAGS | more_flags,
		  opts) < 0)
		return -errno;
	return 0;
}

/* With large folios, or without if the kernel does not know the option. */
static int mount_huge(struct pool_store *s, unsigned long more_flags)
{
	int rc = mount_tmpfs(s, more_flags, "within_size");

	s->huge = rc == 0;
	if (rc == -EINVAL)
		rc = mount_tmpfs(s, more_flags, "");
	return rc;
}

static bool may_not(int rc)
{
	return rc == -EPERM || rc == -EACCES || rc == -ENOSYS;
}

static int mount_new(struct pool_store *s)
{
	int rc = mount_huge(s, 0);

	if (rc == 0) {
		s->own = s->tmpfs = s->mounted = true;
		return 0;
	}
	if (may_not(rc)) {
		pool_info("store: no tmpfs may be mounted at %s: the directory "
			  "is used as it is", s->path);
		return 0;
	}
	pool_error("store: mounting a tmpfs at %s: errno %d", s->path, -rc);
	return refused(s, rc);
}

/* Remount a tmpfs found here to the requested size. *ret_done: was it? */
static int remount(struct pool_store *s, bool *ret_done)
{
	char has[32], want[32];
	struct statfs st;
	uint64_t used;
	int rc;

	if (fstatfs(s->dirfd, &st) < 0)
		return -errno;
	used = (st.f_blocks - st.f_bfree) * (uint64_t)st.f_bsize;
	if (used > s->size + s->headroom) {
		pool_error("store: %s holds %s, more than the size asked for "
			   "(%s): use a larger --store-size, or empty it first",
			   s->path, pool_format_size(used, has, sizeof(has)),
			   pool_format_size(s->size, want, sizeof(want)));
		return refused(s, -ENOSPC);
	}
	rc = mount_huge(s, MS_REMOUNT);
	*ret_done = rc == 0;
	if (rc == 0 || may_not(rc))
		return 0;
	pool_error("store: the tmpfs at %s cannot be given %s: errno %d",
		   s->path, pool_format_size(s->size, want, sizeof(want)), -rc);
	return refused(s, rc);
}

/* Bytes that one write of HUGE_PROBE costs; 0 if it fails. */
static uint64_t probe_write(int dirfd)
{
	char *buf = calloc(1, HUGE_PROBE);
	struct statfs before, after;
	uint64_t cost = 0;
	int fd;

	fd = openat(dirfd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd >= 0 && buf != NULL && fstatfs(dirfd, &before) == 0 &&
	    write(fd, buf, HUGE_PROBE) == HUGE_PROBE &&
	    fstatfs(dirfd, &after) == 0)
		cost = (before.f_bfree - after.f_bfree) *
		       (uint64_t)after.f_bsize;
	if (fd >= 0)
		close(fd);
	free(buf);
	return cost;
}

static bool small_is_small(int dirfd)
{
	uint64_t cost = probe_write(dirfd);

	return cost > 0 && cost <= 2 * HUGE_PROBE;
}

/* Switch to small pages if large folios waste memory. The warning is for
 * machines that force huge pages on every tmpfs. */
static void check_huge(struct pool_store *s)
{
	int rc;

	if (small_is_small(s->dirfd))
		return;
	s->huge = false;
	rc = mount_tmpfs(s, MS_REMOUNT, "never");
	if (rc < 0 || !small_is_small(s->dirfd))
		pool_warn("store: small files in %s cost 2 MiB each, or it is "
			  "full; see /sys/kernel/mm/transparent_hugepage/"
			  "shmem_enabled", s->path);
}

/* Choose the name space of extended attributes. Only a refusal selects the next
 * one; any other error fails the open, because with the wrong name space no
 * file would be recognised as sealed. */
static int choose_xattr(struct pool_store *s)
{
	static const char *const names[] = { "trusted.kvpool", "user.kvpool" };

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (fsetxattr(s->idfd, names[i], "1", 1, 0) == 0) {
			s->xattr = names[i];
			return 0;
		}
		if (errno != EPERM && errno != EOPNOTSUPP)
			return -errno;
	}
	pool_error(
		"store: %s has no extended attributes (errno %d); it needs "
		"CAP_SYS_ADMIN, or user.* attributes: on tmpfs Linux 6.6",
		s->path, errno);
	return refused(s, -ENOTSUP);
}

/* ---- open and close ---- */

static int set_up(struct pool_store *s)
{
	struct dir_state d;
	bool sized;
	int rc;

	rc = look(s->path, &d);
	if (rc < 0)
		return rc;
	if (d.ids && !d.identity) {
		pool_error("store: %s is no store, but holds files that would "
			   "be taken for objects and removed: give an empty "
			   "directory", s->path);
		return refused(s, -ENOTEMPTY);
	}
	if (d.others && !d.identity)
		pool_warn(
			"store: %s holds other files, which stay as they are; "
			"if it is the wrong directory, stop this and give "
			"another --store-dir",
			s->path);
	s->tmpfs = d.tmpfs;
	if (!d.mount_root && d.empty && !s->plain)
		rc = check_memory(s) < 0 ? -EDOM : mount_new(s);
	else if (d.tmpfs)
		rc = check_memory(s);
	if (rc < 0)
		return rc;
	sized = s->mounted;
	s->dirfd = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->dirfd < 0)
		return -errno;
	rc = identity_open(s);
	if (rc < 0)
		return rc;
	if (d.tmpfs && !d.others && !s->plain && !s->mounted) {
		s->own = d.alone || (d.mount_root && d.whole);
		s->given = s->own && !d.kvpool;
	}
	if (s->own && !s->given && !s->mounted) {
		rc = remount(s, &sized);
		if (rc < 0)
			return rc;
	}
	if (s->huge)
		check_huge(s);
	if (!s->own)
		store_count(s);
	return sized ? 0 : check_room(s);
}

int store_dir_open(struct pool_store *s, const char *dir)
{
	int base, rc;

	rc = make_dirs(s, dir);
	if (rc < 0)
		goto err;
	s->path = realpath(dir, NULL);
	if (s->path == NULL) {
		rc = -errno;
		goto err;
	}
	if (strlen(s->path) + 2 + STORE_NAME_LEN >= PATH_MAX) {
		rc = -ENAMETOOLONG;
		goto err;
	}
	base = open(s->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (base < 0) {
		rc = -errno;
		goto err;
	}
	rc = flock(base, LOCK_EX | LOCK_NB) < 0 ? -errno : set_up(s);
	close(base);
	if (rc == 0)
		rc = choose_xattr(s);
	if (rc == 0)
		return 0;
	if (rc == -EWOULDBLOCK)
		rc = -EBUSY;
err:
	if (!s->logged)
		pool_error("store: %s cannot be used: %s", dir, strerror(-rc));
	return rc;
}

void store_dir_close(struct pool_store *s, bool unmount)
{
	if (s->idfd >= 0)
		close(s->idfd);
	if (s->dirfd >= 0)
		close(s->dirfd);
	s->idfd = s->dirfd = -1;
	if (!unmount)
		return;
	/* MNT_DETACH: files that are still open stay usable. */
	if (umount2(s->path, MNT_DETACH) < 0)
		pool_warn("store: unmounting %s: errno %d", s->path, errno);
}

uint64_t store_ids(struct pool_store *s, uint64_t n)
{
	uint64_t first = s->next_id;

	if (n > s->id_end - first &&
	    store_identity_write(s, first + n + STORE_IDS_AHEAD) < 0)
		return 0;
	s->next_id += n;
	return first;
}
