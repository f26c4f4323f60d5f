/* Operations on a mount, and the scenarios. See tests/sweep.h. */
#include "tests/sweep/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

#define PATH_CAP 700
#define KIB 1024u
#define MIB (1024u * 1024)
#define SIZE_MAX_HERE (16 * MIB)

static uint8_t want[SIZE_MAX_HERE], got[SIZE_MAX_HERE + 1];

static const uint8_t *bytes_of(size_t size, uint32_t seed)
{
	uint32_t *w = (uint32_t *)(void *)want, x = seed * 2654435761u + 1;
	size_t i;

	for (i = 0; i < (size + 3) / 4; i++) {
		x = x * 1664525u + 1013904223u;
		w[i] = x;
	}
	return want;
}

static void path_of(char *buf, size_t cap, const char *dir, const char *name)
{
	snprintf(buf, cap, "%s/%s", dir, name);
}

/* ---- operations ---- */

static int write_all(int fd, const struct key *k)
{
	const uint8_t *p = bytes_of(k->size, k->seed);
	size_t done = 0;
	ssize_t n;

	while (done < k->size) {
		n = write(fd, p + done, k->size - done);
		if (n < 0)
			return -errno;
		done += (size_t)n;
	}
	return 0;
}

int op_put(const char *dir, const struct key *k, bool rename_it)
{
	char at[PATH_CAP], to[PATH_CAP - 8];
	int fd, err;

	path_of(to, sizeof(to), dir, k->name);
	snprintf(at, sizeof(at), "%s%s", to, rename_it ? ".tmp" : "");
	fd = open(at, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0)
		return -errno;
	err = write_all(fd, k);
	if (err)
		/* before close: half of it is not to be published */
		unlink(at);
	if (close(fd) && !err)
		err = -errno;
	if (!err && rename_it && rename(at, to))
		err = -errno;
	if (err && rename_it)
		unlink(at);
	return err;
}

int op_get(const char *dir, const struct key *k)
{
	char at[PATH_CAP];
	size_t n = 0;
	ssize_t rc = 1;
	int fd;

	path_of(at, sizeof(at), dir, k->name);
	fd = open(at, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while (n < sizeof(got) && rc > 0) {
		rc = read(fd, got + n, sizeof(got) - n);
		if (rc < 0)
			sweep_fail("reading %s: %s", at, strerror(errno));
		n += (size_t)rc;
	}
	close(fd);
	if (n != k->size)
		sweep_fail("%s has %zu bytes, not %zu", at, n, k->size);
	if (memcmp(got, bytes_of(n, k->seed), n) &&
	    (!k->older_seed || memcmp(got, bytes_of(n, k->older_seed), n)))
		sweep_fail("%s has wrong bytes", at);
	return 0;
}

int op_sync(const char *dir)
{
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;

	if (fd < 0)
		return -errno;
	if (fsync(fd))
		err = -errno;
	close(fd);
	return err;
}

int op_unlink(const char *dir, const char *name)
{
	char at[PATH_CAP];

	path_of(at, sizeof(at), dir, name);
	return unlink(at) ? -errno : 0;
}

/* ---- what scenarios are made of ---- */

static int say(struct play *p, const char *op, int err)
{
	if (p->nresults < RESULTS_MAX) {
		p->results[p->nresults].op = op;
		p->results[p->nresults++].err = err;
	}
	return err;
}

static int say_errno(struct play *p, const char *op, int rc)
{
	return say(p, op, rc < 0 ? -errno : 0);
}

static struct key *key(struct play *p, const char *what, size_t size)
{
	struct key *k = &p->keys[p->nkeys++];

	snprintf(k->name, sizeof(k->name), "%s.%u", what, p->n);
	k->size = size;
	k->seed = p->n * KEYS_MAX + p->nkeys;
	return k;
}

static void must(const char *what, int err)
{
	if (err)
		sweep_fail("%s, undisturbed: %s", what, strerror(-err));
}

static bool has_copies(const char *dir, const struct key *k, int n)
{
	char at[PATH_CAP], value[16] = "";

	path_of(at, sizeof(at), dir, k->name);
	return getxattr(at, "user.kvpool.holders", value, sizeof(value) - 1) >
		       0 && atoi(value) >= n;
}

static void pause_ms(long ms)
{
	struct timespec ts = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&ts, NULL);
}

/* ---- put, get, evict ---- */

static void put_act(struct play *p)
{
	say(p, "put", op_put(p->a, key(p, "small", 3000), true));
	say(p, "put", op_put(p->a, key(p, "large", 600 * KIB), true));
	say(p, "put", op_put(p->a, key(p, "inplace", 40 * KIB), false));
	say(p, "sync", op_sync(p->a));
}

static void get_prepare(struct play *p)
{
	must("put", op_put(p->a, key(p, "small", 3000), true));
	must("put", op_put(p->a, key(p, "large", 3 * MIB), true));
	must("sync", op_sync(p->a));
}

static void get_act(struct play *p)
{
	say(p, "get", op_get(p->b, &p->keys[0]));
	say(p, "get", op_get(p->b, &p->keys[1]));
}

/* The store has room for a few of these: each makes another one go. */
static void evict_prepare(struct play *p)
{
	struct key k = { .size = 12 * MIB, .seed = p->n };

	snprintf(k.name, sizeof(k.name), "stays.%u", p->n);
	must("put", op_put(p->a, &k, true));
}

static void evict_act(struct play *p)
{
	say(p, "put", op_put(p->a, key(p, "fills", 12 * MIB), true));
	say(p, "sync", op_sync(p->a));
}

/* ---- copies ---- */

static bool copied(struct play *p)
{
	return has_copies(p->a, &p->keys[0], 2);
}

static void copy_prepare(struct play *p)
{
	must("put", op_put(p->a, key(p, "copied", 300 * KIB), true));
	must("sync", op_sync(p->a));
}

/* The rule is raised over what the key has: the master orders a copy. */
static void copy_act(struct play *p)
{
	char at[PATH_CAP];
	int i, err;

	path_of(at, sizeof(at), p->a, p->keys[0].name);
	err = say_errno(p, "setxattr",
			setxattr(at, "user.kvpool.replicas", "2", 1, 0));
	for (i = 0; !err && i < 150 && !copied(p); i++)
		pause_ms(2);
}

static bool copy_settled(struct play *p)
{
	char at[PATH_CAP];

	path_of(at, sizeof(at), p->a, p->keys[0].name);
	return copied(p) ||
	       (setxattr(at, "user.kvpool.replicas", "2", 1, 0) == 0 &&
		copied(p));
}

/* ---- names ---- */

static void list_act(struct play *p, const char *dir)
{
	DIR *d = opendir(dir);

	if (say(p, "opendir", d ? 0 : -errno))
		return;
	errno = 0;
	while (readdir(d))
		;
	say(p, "readdir", -errno);
	closedir(d);
}

/* A file may be lost after its close, by the very call that fails: op names of
 * files say so. */
static void attrs_act(struct play *p, const char *at, bool file)
{
	char buf[256];

	say_errno(p, file ? "file setxattr" : "setxattr",
		  setxattr(at, "user.note", "hello", 5, 0));
	say_errno(p, file ? "file setxattr" : "setxattr",
		  setxattr(at, "user.kvpool.pin", "soft", 4, 0));
	say_errno(p, file ? "file listxattr" : "listxattr",
		  (int)listxattr(at, buf, sizeof(buf)));
	say_errno(p, file ? "file chmod" : "chmod",
		  chmod(at, 0600));
	say_errno(p, file ? "file utimens" : "utimens",
		  utimensat(AT_FDCWD, at, NULL, 0));
	say_errno(p, file ? "file removexattr" : "removexattr",
		  removexattr(at, "user.note"));
}

static void names_act(struct play *p)
{
	struct key *k = key(p, "named", 20 * KIB);
	char dir[512], from[PATH_CAP], to[PATH_CAP];
	struct statvfs sv;

	snprintf(dir, sizeof(dir), "%s/dir.%u", p->a, p->n);
	path_of(from, sizeof(from), dir, k->name);
	path_of(to, sizeof(to), p->a, k->name);
	if (say_errno(p, "mkdir", mkdir(dir, 0755)) == 0) {
		attrs_act(p, dir, false);
		if (say(p, "put", op_put(dir, k, true)) == 0) {
			attrs_act(p, from, true);
			list_act(p, dir);
			say_errno(p, "file rename", rename(from, to));
		}
		unlink(from);
		say_errno(p, "rmdir", rmdir(dir));
		rmdir(dir);
	}
	say_errno(p, "statvfs", statvfs(p->a, &sv));
	say(p, "sync", op_sync(p->a));
}

static bool names_settled(struct play *p)
{
	char dir[512], at[PATH_CAP];

	snprintf(dir, sizeof(dir), "%s/dir.%u", p->a, p->n);
	path_of(at, sizeof(at), dir, p->keys[0].name);
	unlink(at);
	rmdir(dir);
	snprintf(dir, sizeof(dir), "%s/dir.%u", p->b, p->n);
	return access(dir, F_OK) && errno == ENOENT;
}

/* ---- new generations ---- */

static void rewrite_prepare(struct play *p)
{
	must("put", op_put(p->a, key(p, "anew", 200 * KIB), true));
	must("put", op_put(p->a, key(p, "appended", 4 * KIB), true));
	must("put", op_put(p->a, key(p, "gone", 4 * KIB), true));
	must("sync", op_sync(p->a));
}

static void rewrite_act(struct play *p)
{
	struct key *k = &p->keys[0];
	char at[PATH_CAP];
	int fd, err;

	k->older_seed = k->seed;
	k->seed += 1000000;
	say(p, "put", op_put(p->a, k, true));
	path_of(at, sizeof(at), p->a, p->keys[1].name);
	fd = open(at, O_RDWR | O_CLOEXEC);
	if (say(p, "file open to write", fd < 0 ? -errno : 0) == 0) {
		say_errno(p, "pwrite",
			  (int)pwrite(fd, bytes_of(1000, p->keys[1].seed), 1000,
				      0));
		close(fd);
	}
	err = say(p, "unlink", op_unlink(p->a, p->keys[2].name));
	p->keys[2].removed = !say(p, "sync", op_sync(p->a)) && !err;
}

const struct scenario scenarios[] = {
	{ "put", "files written, renamed, published", NULL, put_act, NULL,
	  false },
	{ "get", "files fetched from another node", get_prepare, get_act, NULL,
	  false },
	{ "evict", "a file put into a full store", evict_prepare, evict_act,
	  NULL, true },
	{ "copy", "a copy made on the master's order", copy_prepare, copy_act,
	  copy_settled, false },
	{ "names", "directories, attributes, renames", NULL, names_act,
	  names_settled, false },
	{ "rewrite", "new generations, and a deletion", rewrite_prepare,
	  rewrite_act, NULL, false },
};
const size_t nscenarios = sizeof(scenarios) / sizeof(scenarios[0]);
