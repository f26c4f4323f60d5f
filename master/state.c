#include "master/state.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "master/state_rec.h"
#include "pool/base/log.h"

#define BUFFER_MAX (8u << 20) /* bytes of records while writes fail */
#define COMPACT_SLACK 10000u  /* out-of-date records always tolerated */

/* One file being appended to. */
struct out {
	int fd;	       /* owns, or -1 */
	uint64_t size; /* whole records, in the file */
	uint64_t records;
	uint8_t *buf; /* owns */
	size_t len, cap;
	uint64_t buf_records;
};

struct master_state {
	char path[PATH_MAX];
	char new_path[PATH_MAX + 8];
	struct out cur, next; /* next.fd < 0: not compacting */
	uint64_t epoch;
	uint64_t lost; /* records that could not be buffered */
	bool dirty; /* written since the last sync */
};

/* ---- appending ---- */

static int out_put(struct out *o, const void *data, size_t len)
{
	size_t cap = o->cap ? o->cap : 64u << 10;
	uint8_t *buf;

	if (o->len + len > BUFFER_MAX)
		return -ENOBUFS;
	while (cap < o->len + len)
		cap *= 2;
	if (cap != o->cap) {
		buf = realloc(o->buf, cap);
		if (!buf)
			return -ENOMEM;
		o->buf = buf;
		o->cap = cap;
	}
	memcpy(o->buf + o->len, data, len);
	o->len += len;
	return 0;
}

static int out_record(struct out *o, const void *bytes, size_t len)
{
	int err = out_put(o, bytes, len);

	if (!err)
		o->buf_records++;
	return err;
}

static int out_flush(struct out *o)
{
	size_t done = 0;
	ssize_t n;
	int err;

	while (done < o->len) {
		n = pwrite(o->fd, o->buf + done, o->len - done,
			   (off_t)(o->size + done));
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0) {
			err = n < 0 ? -errno : -EIO;
			/* Half a record must not stay: after further ones are
			 * appended it would count as damage. */
			if (ftruncate(o->fd, (off_t)o->size))
				pool_warn_limited(
					"state file: cannot undo a write: %s",
					strerror(errno));
			return err;
		}
		done += (size_t)n;
	}
	o->size += o->len;
	o->records += o->buf_records;
	o->len = 0;
	o->buf_records = 0;
	return 0;
}

static void out_close(struct out *o)
{
	if (o->fd >= 0)
		close(o->fd);
	free(o->buf);
	memset(o, 0, sizeof(*o));
	o->fd = -1;
}

int master_state_append(struct master_state *s, const struct master_record *r)
{
	uint8_t bytes[STATE_REC_MAX];
	ptrdiff_t len = state_rec_encode(r, bytes, sizeof(bytes));
	int err;

	if (len < 0)
		return (int)len;
	err = out_record(&s->cur, bytes, (size_t)len);
	if (err)
		s->lost++;
	if (s->next.fd >= 0 && out_record(&s->next, bytes, (size_t)len))
		master_state_compact_abort(s);
	return err;
}

int master_state_flush(struct master_state *s)
{
	int err;

	if (s->cur.len) {
		err = out_flush(&s->cur);
		if (err) {
			pool_warn_limited(
				"%s: cannot write: %s (free space on its disk; "
				"directories and deletions made meanwhile may "
				"not outlive the master)",
				s->path, strerror(-err));
			return err;
		}
		s->dirty = true;
	}
	if (s->next.fd >= 0 && s->next.len) {
		err = out_flush(&s->next);
		if (err) {
			pool_warn_limited("%s: cannot write: %s", s->new_path,
					  strerror(-err));
			master_state_compact_abort(s);
		}
	}
	return 0;
}

int master_state_sync_fd(struct master_state *s)
{
	int fd;

	if (!s->dirty)
		return -EAGAIN;
	fd = fcntl(s->cur.fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	s->dirty = false;
	return fd;
}

/* ---- opening ---- */

static int sync_dir_of(const char *path)
{
	char copy[PATH_MAX];
	int fd, err = 0;

	snprintf(copy, sizeof(copy), "%s", path);
	fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	if (fsync(fd))
		err = -errno;
	close(fd);
	return err;
}

static int open_locked(const char *path, int *ret_fd)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int err;

	if (fd < 0) {
		err = -errno;
		pool_error("state file %s: cannot open: %s (its directory must "
			   "exist and be writable)",
			   path, strerror(-err));
		return err;
	}
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		err = errno == EWOULDBLOCK ? -EBUSY : -errno;
		pool_error("state file %s: %s (stop the other master, or give "
			   "this one a file of its own)",
			   path,
			   err == -EBUSY ? "in use by another master" :
					   strerror(-err));
		close(fd);
		return err;
	}
	*ret_fd = fd;
	return 0;
}

int master_state_raise_epoch(struct master_state *s, uint64_t epoch)
{
	struct master_record r = { .type = MASTER_REC_EPOCH, .u64 = epoch };
	int err = 0;

	if (epoch > STATE_EPOCH_MAX) {
		pool_error("state file %s: epoch %llu is the last one there is",
			   s->path, (unsigned long long)s->epoch);
		return -EOVERFLOW;
	}
	if (!s->cur.size)
		err = out_put(&s->cur, STATE_HEADER, STATE_HEADER_LEN);
	if (!err)
		err = master_state_append(s, &r);
	if (!err)
		err = out_flush(&s->cur);
	if (!err && fdatasync(s->cur.fd))
		err = -errno;
	if (!err)
		err = sync_dir_of(s->path);
	if (err)
		pool_error("state file %s: cannot write the epoch: %s (its "
			   "disk must have room and be writable)",
			   s->path, strerror(-err));
	else
		s->epoch = epoch;
	return err;
}

int master_state_open(const char *path,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg, uint64_t *ret_epoch,
		      struct master_state **ret_state)
{
	struct master_state *s;
	struct state_loaded got = { 0 };
	int err;

	if (strlen(path) >= PATH_MAX)
		return -ENAMETOOLONG;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->cur.fd = s->next.fd = -1;
	snprintf(s->path, sizeof(s->path), "%s", path);
	snprintf(s->new_path, sizeof(s->new_path), "%s.new", path);
	err = open_locked(path, &s->cur.fd);
	if (err)
		goto err_free;
	err = state_load(s->cur.fd, path, load, arg, &got);
	if (err)
		goto err_free;
	s->cur.size = got.size;
	s->cur.records = got.records;
	s->epoch = got.epoch;
	err = master_state_raise_epoch(s, s->epoch + 1);
	if (err)
		goto err_free;
	*ret_epoch = s->epoch;
	*ret_state = s;
	return 0;

err_free:
	out_close(&s->cur);
	free(s);
	return err;
}

void master_state_close(struct master_state *s)
{
	if (!s)
		return;
	master_state_compact_abort(s);
	if (!master_state_flush(s))
		fdatasync(s->cur.fd);
	out_close(&s->cur);
	free(s);
}

/* ---- compaction ---- */

bool master_state_compact_due(const struct master_state *s, uint64_t live)
{
	return s->next.fd < 0 &&
	       (s->lost || s->cur.records > 2 * live + COMPACT_SLACK);
}

int master_state_compact_begin(struct master_state *s)
{
	struct master_record r = { .type = MASTER_REC_EPOCH,
				   .u64 = s->epoch };
	struct out *o = &s->next;
	int err;

	o->fd = open(s->new_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (o->fd < 0) {
		err = -errno;
		pool_warn_limited("%s: cannot open: %s", s->new_path,
				  strerror(-err));
		return err;
	}
	/* Lock it before the rename, so that it never has the state file's name
	 * without a lock. */
	if (flock(o->fd, LOCK_EX | LOCK_NB)) {
		err = -errno;
		goto err_abort;
	}
	s->lost = 0;
	err = out_put(o, STATE_HEADER, STATE_HEADER_LEN);
	if (!err)
		err = master_state_compact_add(s, &r);
	if (!err)
		return 0;
err_abort:
	master_state_compact_abort(s);
	return err;
}

bool master_state_compacting(const struct master_state *s)
{
	return s->next.fd >= 0;
}

int master_state_compact_add(struct master_state *s,
			     const struct master_record *r)
{
	uint8_t bytes[STATE_REC_MAX];
	ptrdiff_t len = state_rec_encode(r, bytes, sizeof(bytes));

	if (len < 0)
		return (int)len;
	return out_record(&s->next, bytes, (size_t)len);
}

int master_state_compact_fd(struct master_state *s)
{
	int fd = fcntl(s->next.fd, F_DUPFD_CLOEXEC, 0);

	return fd < 0 ? -errno : fd;
}

int master_state_compact_commit(struct master_state *s)
{
	int err = out_flush(&s->next);

	if (!err && fdatasync(s->next.fd))
		err = -errno;
	if (!err && rename(s->new_path, s->path))
		err = -errno;
	if (err) {
		pool_warn_limited("%s: cannot replace %s: %s", s->new_path,
				  s->path, strerror(-err));
		master_state_compact_abort(s);
		return err;
	}
	err = sync_dir_of(s->path);
	if (err)
		pool_warn_limited("%s: cannot sync its directory: %s", s->path,
				  strerror(-err));
	out_close(&s->cur);
	s->cur = s->next;
	memset(&s->next, 0, sizeof(s->next));
	s->next.fd = -1;
	return 0;
}

void master_state_compact_abort(struct master_state *s)
{
	if (s->next.fd < 0)
		return;
	out_close(&s->next);
	unlink(s->new_path);
}

uint64_t master_state_records(const struct master_state *s)
{
	return s->cur.records;
}

uint64_t master_state_bytes(const struct master_state *s)
{
	return s->cur.size;
}
