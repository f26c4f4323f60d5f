/*
 * Finding files at start: sealed files are reported, lowest id first. Files
 * whose name is no id (16 hex digits) are not touched, so that a directory
 * given by mistake loses nothing.
 *
 *   no metadata                    never sealed, a cached copy, or unlinked
 *                                  while it was open: removed
 *   no metadata, but the mode of   the metadata was lost: quarantined
 *   a sealed file
 *   metadata damaged               quarantined
 *   size differs from the one in   truncated, such as by a crash of a disk
 *   the metadata                   filesystem: quarantined
 *
 * pool_store_opts.keep prevents a removal.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define BLOB_FIRST 1024

struct id_list {
	uint64_t *ids; /* owns */
	size_t n, cap;
};

static int id_list_add(struct id_list *l, uint64_t id)
{
	if (l->n == l->cap) {
		size_t cap = l->cap == 0 ? 1024 : l->cap * 2;
		uint64_t *ids = reallocarray(l->ids, cap, sizeof(*ids));

		if (ids == NULL)
			return -ENOMEM;
		l->ids = ids;
		l->cap = cap;
	}
	l->ids[l->n++] = id;
	return 0;
}

static int list_ids(const struct pool_store *s, struct id_list *l)
{
	DIR *dir = opendir(s->path);
	struct dirent *e;
	uint64_t id;
	int rc = 0;

	if (dir == NULL)
		return -errno;
	while (rc == 0) {
		errno = 0;
		e = readdir(dir);
		if (e == NULL) {
			rc = -errno;
			break;
		}
		if (store_name_parse(e->d_name, &id))
			rc = id_list_add(l, id);
	}
	closedir(dir);
	return rc;
}

/* Tries a small buffer first: the kernel allocates and clears one of that size,
 * and 16 KiB for each file would take half of the scan's time. */
static ssize_t read_blob(const struct pool_store *s, const char *path,
			 struct store_blob_buf *b)
{
	ssize_t n = lgetxattr(path, s->xattr, b, BLOB_FIRST);

	if (n < 0 && errno == ERANGE)
		n = lgetxattr(path, s->xattr, b, sizeof(*b));
	return n;
}

/* Is this process out of memory or descriptors? Then the file may be intact. */
static bool is_shortage(int err)
{
	return err == ENOMEM || err == EMFILE || err == ENFILE;
}

/* A file without metadata: -ESTALE, or -EBADMSG if it has had some. */
static int examine_bare(const struct pool_store *s, const char *path)
{
	struct stat st;

	if (lstat(path, &st) < 0)
		return is_shortage(errno) ? -errno : -ESTALE;
	return S_ISREG(st.st_mode) &&
	       (st.st_mode & 0777) == store_mode_sealed(s) ? -EBADMSG : -ESTALE;
}

/* 0: an intact sealed file; -ESTALE: never sealed; -EBADMSG: damaged, and
 * *ret_why says how; other -errno: it could not be examined. */
static int examine(const struct pool_store *s, const char *path,
		   struct store_blob_buf *b, const char **ret_why)
{
	ssize_t n = read_blob(s, path, b);
	struct stat st;

	*ret_why = "its metadata is missing";
	if (n < 0 && errno == ENODATA)
		return examine_bare(s, path);
	*ret_why = "its metadata cannot be read";
	if (n < 0)
		return is_shortage(errno) ? -errno : -EBADMSG;
	*ret_why = "its metadata is damaged";
	if (!store_blob_valid(b, (size_t)n))
		return -EBADMSG;
	*ret_why = "its size has changed";
	if (lstat(path, &st) < 0)
		return is_shortage(errno) ? -errno : -EBADMSG;
	if (!S_ISREG(st.st_mode) || (uint64_t)st.st_size != b->head.size)
		return -EBADMSG;
	*ret_why = "another user owns it";
	return st.st_uid == geteuid() || st.st_uid == 0 ? 0 : -EBADMSG;
}

static int scan_one(struct pool_store *s, uint64_t id,
		    struct store_blob_buf *b, pool_store_found_cb found,
		    bool (*keep)(void *arg, uint64_t id), void *arg)
{
	char path[PATH_MAX];
	const char *why;
	int rc;

	store_path(s, id, path);
	rc = examine(s, path, b, &why);
	if (rc == -ESTALE && keep != NULL && keep(arg, id))
		return 0;
	if (rc == -ESTALE) {
		pool_count(&s->n.gone_unsealed);
		store_unlink(s, id);
		return 0;
	}
	if (rc == 0 && found != NULL) {
		why = "its metadata is invalid";
		rc = found(arg, id, b->head.size, b->blob, b->head.blob_len);
	}
	if (rc == 0) {
		pool_count(&s->n.found);
	} else if (rc == -ESTALE) {
		if (keep != NULL && keep(arg, id))
			return 0;
		pool_count(&s->n.gone_refused);
		store_unlink(s, id);
	} else if (rc == -EBADMSG) {
		pool_store_quarantine(s, id, why);
	} else {
		pool_error("store: reading %s: %s", path, strerror(-rc));
		return rc;
	}
	return 0;
}

void pool_store_sweep(struct pool_store *s, const uint64_t *ids, size_t n)
{
	struct id_list l = { NULL, 0, 0 };
	char path[PATH_MAX];
	int rc = list_ids(s, &l);

	for (size_t i = 0; rc == 0 && i < l.n; i++) {
		if (bsearch(&l.ids[i], ids, n, sizeof(*ids),
			    pool_store_by_id) != NULL)
			continue;
		store_path(s, l.ids[i], path);
		pool_count(&s->n.gone_unsealed);
		if (unlink(path) < 0)
			pool_warn_limited("store: removing %s: errno %d", path,
					  errno);
	}
	if (rc < 0)
		pool_warn("store: scanning %s: %s: unused files may stay until "
			  "the next start", s->path, strerror(-rc));
	free(l.ids);
}

int store_scan(struct pool_store *s, pool_store_found_cb found,
	       bool (*keep)(void *arg, uint64_t id), void *arg)
{
	struct store_blob_buf *b = malloc(sizeof(*b));
	struct id_list l = { NULL, 0, 0 };
	int rc = b == NULL ? -ENOMEM : list_ids(s, &l);

	if (rc == 0 && l.n > 0) {
		qsort(l.ids, l.n, sizeof(*l.ids), pool_store_by_id);
		if (l.ids[l.n - 1] >= s->id_end)
			s->id_end = l.ids[l.n - 1] + 1;
		for (size_t i = 0; rc == 0 && i < l.n; i++)
			rc = scan_one(s, l.ids[i], b, found, keep, arg);
	}
	if (rc < 0)
		pool_error("store: scanning %s: %s", s->path, strerror(-rc));
	free(l.ids);
	free(b);
	return rc;
}
