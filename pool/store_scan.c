/*
 * What a start finds: sealed files are reported, oldest first, and all other
 * files of ours are removed. Only names that are ids (16 hex digits) are
 * touched: a directory given by mistake loses nothing.
 *
 *   no metadata                    never sealed: half-written or reserved
 *   metadata damaged               cannot be told what it is
 *   size differs from the one in   truncated, by a crash of a disk's
 *   the metadata                   filesystem, say
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
#include "pool/store_priv.h"

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

static int by_id(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* Most metadata is small, and the kernel allocates and clears as much as is
 * asked for: 16 KiB for each file would be half of the time. */
static ssize_t read_blob(const struct pool_store *s, const char *path,
			 struct store_blob_buf *b)
{
	ssize_t n = lgetxattr(path, s->xattr, b, BLOB_FIRST);

	if (n < 0 && errno == ERANGE)
		n = lgetxattr(path, s->xattr, b, sizeof(*b));
	return n;
}

/* NULL if the file is a whole, sealed one; otherwise what to count. */
static struct pool_counter *examine(struct pool_store *s, const char *path,
				    struct store_blob_buf *b)
{
	struct stat st;
	ssize_t n;

	n = read_blob(s, path, b);
	if (n < 0)
		return &s->n.gone_unsealed;
	if (!store_blob_valid(b, (size_t)n))
		return &s->n.gone_damaged;
	if (lstat(path, &st) < 0 || !S_ISREG(st.st_mode) ||
	    (uint64_t)st.st_size != b->head.size)
		return &s->n.gone_truncated;
	return NULL;
}

static void scan_one(struct pool_store *s, uint64_t id,
		     struct store_blob_buf *b, pool_store_found_cb found,
		     void *arg)
{
	char path[PATH_MAX];
	struct pool_counter *gone;

	store_path(s, id, path);
	gone = examine(s, path, b);
	if (gone == NULL && found != NULL &&
	    !found(arg, id, b->head.size, b->blob, b->head.blob_len))
		gone = &s->n.gone_refused;
	if (gone == NULL) {
		pool_count(&s->n.found);
		return;
	}
	pool_count(gone);
	if (unlink(path) < 0)
		pool_warn_limited("store: removing %s: errno %d", path, errno);
}

int store_scan(struct pool_store *s, pool_store_found_cb found, void *arg)
{
	struct store_blob_buf *b = malloc(sizeof(*b));
	struct id_list l = { NULL, 0, 0 };
	int rc = b == NULL ? -ENOMEM : list_ids(s, &l);

	if (rc == 0 && l.n > 0) {
		qsort(l.ids, l.n, sizeof(*l.ids), by_id);
		if (l.ids[l.n - 1] >= s->id_end)
			s->id_end = l.ids[l.n - 1] + 1;
		for (size_t i = 0; i < l.n; i++)
			scan_one(s, l.ids[i], b, found, arg);
	}
	if (rc < 0)
		pool_error("store: scanning %s: %s", s->path, strerror(-rc));
	free(l.ids);
	free(b);
	return rc;
}
