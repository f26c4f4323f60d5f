#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"

/* Latencies by powers of two of a millisecond; results by errno. */
#define BUCKETS 17
#define ERRNO_MAX 134

static struct {
	const char *name;
	unsigned int weight;
	_Atomic uint64_t count, max_ms, bucket[BUCKETS], error[ERRNO_MAX];
} ops[OP_COUNT] = {
	[OP_PUT] = { .name = "put", .weight = 20 },
	[OP_PUT_OPEN] = { .name = "put-open", .weight = 4 },
	[OP_DIRECT] = { .name = "direct", .weight = 12 },
	[OP_ABANDON] = { .name = "abandon", .weight = 3 },
	[OP_READ] = { .name = "read", .weight = 45 },
	[OP_UNLINK] = { .name = "unlink", .weight = 6 },
	[OP_RENAME] = { .name = "rename", .weight = 4 },
	[OP_ACCESS] = { .name = "access", .weight = 8 },
	[OP_READDIR] = { .name = "readdir", .weight = 3 },
	[OP_SETTLE] = { .name = "settle", .weight = 5 },
	[OP_FSYNC] = { .name = "fsync-dir" },
};
static _Atomic uint64_t verified;

uint64_t chaos_ops_verified(void)
{
	return verified;
}

static void count(enum chaos_op op, uint64_t ms, int err)
{
	unsigned int b = 0;
	uint64_t max = ops[op].max_ms;

	while (b < BUCKETS - 1 && ms >> b)
		b++;
	ops[op].count++;
	ops[op].bucket[b]++;
	ops[op].error[err < ERRNO_MAX ? err : ERRNO_MAX - 1]++;
	while (ms > max &&
	       !atomic_compare_exchange_weak(&ops[op].max_ms, &max, ms))
		;
}

void chaos_ops_report(void)
{
	fprintf(stderr,
		"%-10s %8s %7s  of their longest calls so many ms or less; "
		"results\n",
		"operation", "count", "max ms");
	for (int op = 0; op < OP_COUNT; op++) {
		fprintf(stderr, "%-10s %8" PRIu64 " %7" PRIu64 " ",
			ops[op].name, ops[op].count, ops[op].max_ms);
		for (int b = 0; b < BUCKETS; b++)
			if (ops[op].bucket[b])
				fprintf(stderr, " %u:%" PRIu64, b ? 1u << b : 0,
					ops[op].bucket[b]);
		fprintf(stderr, ";");
		for (int e = 0; e < ERRNO_MAX; e++)
			if (ops[op].error[e])
				fprintf(stderr, " %s:%" PRIu64,
					e ? strerrorname_np(e) : "ok",
					ops[op].error[e]);
		fprintf(stderr, "\n");
	}
	fprintf(stderr, "%" PRIu64 " files were read and compared\n", verified);
}

void chaos_path(char path[CHAOS_PATH], int mount, const struct chaos_key *key)
{
	snprintf(path, CHAOS_PATH, "%s/%s", chaos.mounts[mount].dir, key->name);
}

/* ---- what may go wrong ---- */

/*
 * An operation that changes something has failed, which is right only if there
 * was no space or its daemon died meanwhile. True: it has certainly changed
 * nothing.
 */
static bool refused(struct chaos_key *key, const struct chaos_mark *mark,
		    const char *what, int err)
{
	if (!chaos_mark_served(mark))
		return false;
	if (err != ENOSPC)
		chaos_fail(key, "mount %ld: %s: %s",
			   (long)(mark->mount - chaos.mounts), what,
			   strerror(err));
	return true;
}

/*
 * The limits of one system call; that call of an operation which exceeds its
 * limit most is judged:
 *   7 s      (call_ms) an open waits up to 2 s for other nodes, and longer for
 *            large files; the kernel may send it twice if the name has changed;
 *            the rest allows for a loaded machine
 *   12 s     (fsync_ms) an fsync of a directory: 10 s, and the same allowance
 *   +fsync   a call in a directory that is being synced: the kernel has locked
 *            the directory
 *   +10 s    a put that waits for space: nothing can be evicted, or there is no
 *            master to permit the eviction of a last copy
 *   +7 s     its own daemon is stopped meanwhile, for no longer than that
 * The kernel executes one fsync of a directory at a time. The time that a
 * thread waits for its turn is not counted.
 */
#define ROOM_MS 10000
#define ASLEEP_MS 7000

static pthread_mutex_t fsync_turn[CHAOS_MOUNTS_MAX];

struct lap {
	const struct chaos_mount *mount;
	const struct chaos_dir *dir;
	bool puts;
	struct chaos_mark mark;
	uint32_t syncs, sleeps, fulls;
	uint64_t begin_ms;
};
static _Thread_local struct lap lap_now;
/* Of the operation: the longest call, and the most by which a call exceeded its
 * limit. */
static _Thread_local uint64_t longest_ms, beyond_ms;

static bool during(uint32_t then, uint32_t now)
{
	return then % 2 || then != now;
}

/* Timing of a call begins now. No-op outside of an operation (mount NULL). */
static void lap_begin(void)
{
	struct lap *l = &lap_now;

	if (!l->mount)
		return;
	l->syncs = l->mount->syncs[l->dir - chaos_dirs];
	l->sleeps = l->mount->sleeps;
	l->fulls = chaos.fulls;
	l->mark = chaos_mark_take(l->mount);
	l->begin_ms = chaos_now_ms();
}

static uint64_t limit_of(const struct lap *l, uint64_t limit_ms)
{
	return limit_ms +
	       (during(l->sleeps, l->mount->sleeps) ? ASLEEP_MS : 0);
}

/* A call has ended; the next one, if any, begins. */
static void lap(void)
{
	struct lap *l = &lap_now;
	uint64_t took, limit;

	if (!l->mount)
		return;
	took = chaos_now_ms() - l->begin_ms;
	limit = limit_of(l, chaos.call_ms);
	if (during(l->syncs, l->mount->syncs[l->dir - chaos_dirs]))
		limit += chaos.fsync_ms;
	if (l->puts &&
	    (during(l->fulls, chaos.fulls) || !chaos_mark_clean(&l->mark)))
		limit += ROOM_MS;
	if (took > longest_ms)
		longest_ms = took;
	if (took > limit && took - limit > beyond_ms)
		beyond_ms = took - limit;
	lap_begin();
}

static void op_begin(int mount, const struct chaos_dir *dir, enum chaos_op op)
{
	lap_now.puts = op == OP_PUT || op == OP_PUT_OPEN || op == OP_DIRECT ||
		       op == OP_ABANDON;
	lap_now.mount = &chaos.mounts[mount];
	lap_now.dir = dir;
	longest_ms = beyond_ms = 0;
	lap_begin();
}

static int sync_dir(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), err = 0;

	if (fd < 0 || fsync(fd))
		err = errno;
	if (fd >= 0)
		close(fd);
	return err;
}

int chaos_fsync_dir(int mount, const struct chaos_dir *dir)
{
	struct chaos_mount *m = &chaos.mounts[mount];
	struct lap l = { .mount = m };
	char path[CHAOS_PATH];
	uint64_t took;
	int err;

	lap();
	snprintf(path, sizeof(path), "%s/%s", m->dir, dir->name);
	pthread_mutex_lock(&fsync_turn[mount]);
	l.sleeps = m->sleeps;
	l.begin_ms = chaos_now_ms();
	m->syncs[dir - chaos_dirs]++;
	err = sync_dir(path);
	m->syncs[dir - chaos_dirs]++;
	took = chaos_now_ms() - l.begin_ms;
	pthread_mutex_unlock(&fsync_turn[mount]);
	count(OP_FSYNC, took, err);
	if (took > limit_of(&l, chaos.fsync_ms))
		chaos_fail(NULL, "mount %d: fsync of %s took %" PRIu64 " ms",
			   mount, dir->name, took);
	lap_begin();
	return err;
}

/*
 * Often syncs the directory. That acknowledges the version, if one daemon
 * served the whole operation, and the mount was not cut off or knew the latest
 * versions. For a change by a mount that was cut off may lose to one that it
 * had not received:
 *   A is cut off. B puts v1, and its fsync succeeds. A still shows v0, and puts
 *   v2 or unlinks the name. A joins again, and the master refuses this change,
 *   because it was made from v0. A's fsync succeeds, and v1 stays.
 * A mount always knows its own versions, so its changes of them count.
 */
static void publish(struct chaos_worker *w, struct chaos_key *key,
		    const struct chaos_mark *mark, uint32_t version)
{
	int err;

	if (chaos_random(&w->random) % 5 < 2)
		return;
	err = chaos_fsync_dir(w->mount, key->dir);
	if (!err && chaos_mark_served(mark) &&
	    (chaos_mark_clean(mark) || chaos_version_known(key, w->mount)))
		chaos_version_ack(key, version);
	chaos_note(key, w->mount, version, "fsync of directory", err);
	if (err && err != ETIMEDOUT && chaos_mark_served(mark))
		chaos_fail(key, "mount %d: fsync of its directory: %s",
			   w->mount, strerror(err));
}

/*
 * If two mounts change a name one after the other, the master receives the
 * changes in this order only if an fsync through the first mount ends before
 * the second change. If that fsync fails, both orders are possible.
 */
static bool settle(struct chaos_key *key, int other)
{
	uint32_t last = key->last; /* constant: key->writer is held */
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[other]);
	int err = mark.state == CHAOS_UP ? chaos_fsync_dir(other, key->dir) :
					   EHOSTDOWN;

	chaos_note(key, other, last, "fsync for another", err);
	/* Not acknowledged: whether the version was made by this very daemon
	 * is not known. */
	if (err || !chaos_mark_clean(&mark))
		return false;
	chaos_version_settle(key, other);
	return true;
}

/* All other mounts. (The mount that made the last change has settled the others
 * before it, but its own change may not be settled.) */
static void settle_others(struct chaos_worker *w, struct chaos_key *key)
{
	int other;

	while ((other = chaos_version_unsettled(key, w->mount)) >= 0)
		if (!settle(key, other)) {
			chaos_version_loosen(key);
			return;
		}
}

/* ---- putting ---- */

static int write_all(struct chaos_worker *w, int fd, size_t len)
{
	size_t piece = (size_t)1 << (12 + chaos_random(&w->random) % 11);

	for (size_t at = 0; at < len;) {
		ssize_t n = write(fd, w->buf + at,
				  len - at < piece ? len - at : piece);

		if (n < 0)
			return errno;
		at += (size_t)n;
		lap();
	}
	return 0;
}

/* 0, or the errno of the first call that failed, which is *ret_call. */
static int put_temporary(struct chaos_worker *w, enum chaos_op op,
			 const char *tmp, const char *path, size_t len,
			 const char **ret_call)
{
	int fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	int err;

	*ret_call = "create of a temporary";
	if (fd < 0)
		return errno;
	lap();
	*ret_call = "write to a temporary";
	err = write_all(w, fd, len);
	if (!err && op == OP_PUT_OPEN) {
		*ret_call = "rename of an open file";
		err = rename(tmp, path) ? errno : 0;
	}
	lap();
	if (close(fd) && !err) {
		*ret_call = "close of a temporary";
		err = errno;
	}
	lap();
	if (!err && op == OP_PUT) {
		*ret_call = "rename";
		err = rename(tmp, path) ? errno : 0;
	}
	lap();
	if (err || op == OP_ABANDON)
		unlink(tmp);
	lap();
	return err;
}

static int op_put(struct chaos_worker *w, struct chaos_key *key,
		  enum chaos_op op)
{
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[w->mount]);
	uint32_t version = chaos_version_begin(key, w->mount, false);
	uint64_t id = chaos_version_id(key, version);
	char path[CHAOS_PATH], tmp[CHAOS_PATH + 32];
	const char *call;
	int err;

	if (op == OP_ABANDON)
		chaos_version_abort(key, version);
	chaos_path(path, w->mount, key);
	snprintf(tmp, sizeof(tmp), "%s.%d.tmp", path, w->number);
	chaos_fill(id, w->buf);
	if (op == OP_PUT_OPEN) /* until it is closed */
		chaos_growing(key, w->mount);
	err = put_temporary(w, op, tmp, path, chaos_size(id), &call);
	if (err && refused(key, &mark, call, err))
		chaos_version_abort(key, version);
	if (op == OP_PUT_OPEN)
		chaos_growing(key, w->mount);
	chaos_note(key, w->mount, version, ops[op].name, err);
	if (!err && op != OP_ABANDON)
		publish(w, key, &mark, version);
	return err;
}

static int op_direct(struct chaos_worker *w, struct chaos_key *key)
{
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[w->mount]);
	uint32_t version = chaos_version_begin(key, w->mount, false);
	uint64_t id = chaos_version_id(key, version);
	char path[CHAOS_PATH];
	const char *call = "create";
	int fd, err;

	chaos_path(path, w->mount, key);
	chaos_fill(id, w->buf);
	chaos_growing(key, w->mount);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	err = fd < 0 ? errno : 0;
	lap();
	if (!err) {
		call = "write";
		err = write_all(w, fd, chaos_size(id));
		lap();
		if (close(fd) && !err) {
			call = "close";
			err = errno;
		}
	}
	if (err && refused(key, &mark, call, err))
		chaos_version_abort(key, version);
	chaos_growing(key, w->mount);
	chaos_note(key, w->mount, version, "direct", err);
	if (!err)
		publish(w, key, &mark, version);
	return err;
}

/* ---- removing, moving ---- */

static int op_unlink(struct chaos_worker *w, struct chaos_key *key)
{
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[w->mount]);
	uint32_t version = chaos_version_begin(key, w->mount, true);
	char path[CHAOS_PATH];
	int err;

	chaos_path(path, w->mount, key);
	err = unlink(path) ? errno : 0;
	chaos_note(key, w->mount, version, "unlink", err);
	if (!err)
		publish(w, key, &mark, version);
	else if (err == ENOENT || refused(key, &mark, "unlink", err))
		chaos_version_abort(key, version);
	return err;
}

/* Both writer locks are held. The content that `to` gets is certain only if
 * that of `from` is, and the mount is UP. */
static int move(struct chaos_worker *w, struct chaos_key *from,
		struct chaos_key *to)
{
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[w->mount]);
	bool certain = chaos_certain(from) && mark.state == CHAOS_UP;
	uint32_t came = chaos_version_move(to, w->mount, from, certain);
	uint32_t went = chaos_version_begin(from, w->mount, true);
	char a[CHAOS_PATH], b[CHAOS_PATH];
	int err;

	chaos_path(a, w->mount, from);
	chaos_path(b, w->mount, to);
	/* readers may see it before it is judged */
	chaos_growing(to, w->mount);
	err = rename(a, b) ? errno : 0;
	/* EXDEV: its bytes are not on this node now; mv(1) would copy. */
	if (err == ENOENT || err == EXDEV ||
	    (err && refused(to, &mark, "rename", err)))
		chaos_version_abort(to, came);
	chaos_growing(to, w->mount);
	chaos_note(from, w->mount, went, "renamed away", err);
	chaos_note(to, w->mount, came, "renamed here", err);
	if (!err) {
		publish(w, to, &mark, came);
		publish(w, from, &mark, went);
	}
	return err;
}

static int op_rename(struct chaos_worker *w, struct chaos_key *from)
{
	struct chaos_key *to = from + 1;
	int err = 0;

	if (from->index + 1 == (int)chaos.nkeys || to->dir != from->dir ||
	    pthread_mutex_trylock(&to->writer))
		return 0;
	settle_others(w, to);
	if (chaos_version_id(from, from->floor) != 0)
		err = move(w, from, to);
	pthread_mutex_unlock(&to->writer);
	return err;
}

/* ---- looking ---- */

static long read_rest(int fd, uint8_t *buf)
{
	struct stat st;
	size_t have = 0;

	if (fstat(fd, &st))
		return -errno;
	for (;;) {
		ssize_t n = read(fd, buf + have, CHAOS_SIZE_MAX + 1 - have);

		if (n < 0)
			return -errno;
		have += (size_t)n;
		if (n == 0 || have > CHAOS_SIZE_MAX)
			break;
	}
	if (have == (size_t)st.st_size)
		return (long)have;
	return -EUCLEAN;
}

long chaos_read(const char *path, uint8_t *buf, bool *ret_opened)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	long n;

	*ret_opened = fd >= 0;
	if (fd < 0)
		return -errno;
	lap();
	n = read_rest(fd, buf);
	close(fd);
	return n;
}

static int op_read(struct chaos_worker *w, struct chaos_key *key)
{
	struct chaos_view view;
	char path[CHAOS_PATH];
	bool opened;
	long n;

	chaos_path(path, w->mount, key);
	chaos_view_take(key, w->mount, &view);
	n = chaos_read(path, w->buf, &opened);
	if (n == -ENOENT && !opened)
		chaos_judge_missing(key, &view, "open");
	chaos_note(key, w->mount, view.floor,
		   n >= 0 ? "read" : opened ? "read failed" : "open",
		   n < 0 ? (int)n : 0);
	if (n >= 0) {
		chaos_judge(key, &view, w->buf, (size_t)n);
		verified++;
		return 0;
	}
	if (!chaos_mark_served(&view.mark) || (n == -ENOENT && !opened))
		return (int)-n;
	/* Its own mount may be writing it in place, which changes the size. */
	if (n == -EUCLEAN && (chaos_view_take(key, w->mount, &view), true) &&
	    view.growing > 0)
		return (int)-n;
	chaos_fail(key, "mount %d: %s: %s", w->mount,
		   opened ? "read after a successful open" : "open",
		   n == -EUCLEAN ? "not as many bytes as by fstat" :
				   strerror((int)-n));
	return (int)-n;
}

static int op_access(struct chaos_worker *w, struct chaos_key *key)
{
	struct chaos_view view;
	char path[CHAOS_PATH];
	int err;

	chaos_path(path, w->mount, key);
	chaos_view_take(key, w->mount, &view);
	err = access(path, R_OK) ? errno : 0;
	if (!err)
		chaos_judge_present(key, &view, "access");
	else if (err == ENOENT)
		chaos_judge_missing(key, &view, "access");
	else if (chaos_mark_served(&view.mark))
		chaos_fail(key, "mount %d: access: %s", w->mount,
			   strerror(err));
	return err;
}

/* Does a `kept` key have all its copies? If so, it must not be lost from now
 * on. */
static int op_settle(struct chaos_worker *w, struct chaos_key *key)
{
	char path[CHAOS_PATH], text[16] = "";
	uint32_t floor = key->floor;
	int err;

	if (!key->dir->kept || !chaos_newest(key, floor) ||
	    chaos_version_id(key, floor) == 0)
		return 0;
	chaos_path(path, w->mount, key);
	err = getxattr(path, "user.kvpool.holders", text, sizeof(text) - 1) <
			      0 ?
		      errno :
		      0;
	if (!err && (unsigned int)atoi(text) >= key->dir->replicas &&
	    chaos.mounts[w->mount].state == CHAOS_UP) {
		pthread_mutex_lock(&key->lock);
		if (floor > key->lossy)
			key->safe = floor;
		pthread_mutex_unlock(&key->lock);
	}
	return err;
}

/* The key of a listed name; NULL: a temporary name, or not of this program. */
static struct chaos_key *key_named(struct chaos_key *first, const char *name)
{
	unsigned int number;
	char rest;

	if (sscanf(name, "k%u%c", &number, &rest) != 1 ||
	    number >= first->dir->keys)
		return NULL;
	return first + number;
}

static int op_readdir(struct chaos_worker *w, struct chaos_key *key)
{
	struct chaos_key *first = key;
	struct chaos_view *views;
	bool *listed;
	char path[CHAOS_PATH];
	struct dirent *e;
	DIR *d;
	int err;

	while (first > chaos.keys && first[-1].dir == key->dir)
		first--;
	views = calloc(key->dir->keys, sizeof(*views) + sizeof(*listed));
	if (!views)
		return ENOMEM;
	listed = (bool *)(views + key->dir->keys);
	for (unsigned int i = 0; i < key->dir->keys; i++)
		chaos_view_take(first + i, w->mount, &views[i]);
	snprintf(path, sizeof(path), "%s/%s", chaos.mounts[w->mount].dir,
		 key->dir->name);
	d = opendir(path);
	err = d ? 0 : errno;
	while (d && (errno = 0, (e = readdir(d)))) {
		struct chaos_key *k = key_named(first, e->d_name);

		if (!k)
			continue;
		chaos_judge_present(k, &views[k - first], "readdir");
		listed[k - first] = true;
	}
	if (d && errno)
		err = errno;
	if (d)
		closedir(d);
	if (err && chaos_mark_served(&views[0].mark))
		chaos_fail(key, "mount %d: readdir: %s", w->mount,
			   strerror(err));
	for (unsigned int i = 0; !err && i < key->dir->keys; i++)
		if (!listed[i])
			chaos_judge_missing(first + i, &views[i], "readdir");
	free(views);
	return err;
}

/* ---- choosing ---- */

static enum chaos_op choose(uint64_t *random)
{
	unsigned int sum = 0, at;
	int op;

	for (op = 0; op < OP_COUNT; op++)
		sum += ops[op].weight;
	at = (unsigned int)(chaos_random(random) % sum);
	for (op = 0; at >= ops[op].weight; op++)
		at -= ops[op].weight;
	return (enum chaos_op)op;
}

static int change(struct chaos_worker *w, struct chaos_key *key,
		  enum chaos_op op)
{
	int err;

	if (pthread_mutex_trylock(&key->writer))
		return 0;
	if (op != OP_SETTLE)
		settle_others(w, key);
	switch (op) {
	case OP_DIRECT:
		err = op_direct(w, key);
		break;
	case OP_UNLINK:
		err = op_unlink(w, key);
		break;
	case OP_RENAME:
		err = op_rename(w, key);
		break;
	case OP_SETTLE:
		err = op_settle(w, key);
		break;
	default:
		err = op_put(w, key, op);
		break;
	}
	pthread_mutex_unlock(&key->writer);
	return err;
}

void chaos_op_run(struct chaos_worker *w)
{
	enum chaos_op op = choose(&w->random);
	struct chaos_key *key =
		&chaos.keys[chaos_random(&w->random) % chaos.nkeys];
	struct chaos_mark mark = chaos_mark_take(&chaos.mounts[w->mount]);
	int err;

	w->busy_with = (int)op;
	op_begin(w->mount, key->dir, op);
	w->busy_since = lap_now.begin_ms;
	switch (op) {
	case OP_READ:
		err = op_read(w, key);
		break;
	case OP_ACCESS:
		err = op_access(w, key);
		break;
	case OP_READDIR:
		err = op_readdir(w, key);
		break;
	default:
		err = change(w, key, op);
		break;
	}
	w->busy_since = 0;
	lap();
	count(op, longest_ms, err);
	if (beyond_ms)
		chaos_fail(key, "mount %d: a call of %s took %" PRIu64
				" ms, %" PRIu64 " more than it may",
			   w->mount, ops[op].name, longest_ms, beyond_ms);
	if (!chaos_mark_served(&mark))
		usleep(20000); /* no daemon: do not retry at once */
}
