/*
 * /.kvpool: read-only status files, as in /proc. The text is made at OPEN and
 * lives as long as the handle. The root's listings leave the directory out,
 * because engines that scan the root would take it for their data.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PROC_STATUS = FS_PROC_DIR + 1, PROC_NODES, PROC_METRICS };

static const struct {
	const char *name;
	fuse_ino_t ino;
} files[] = {
	{ "status", PROC_STATUS },
	{ "nodes", PROC_NODES },
	{ "metrics", PROC_METRICS },
};
#define NFILES (sizeof(files) / sizeof(files[0]))

void fs_proc_stat(fuse_ino_t ino, struct stat *st)
{
	memset(st, 0, sizeof(*st));
	st->st_ino = ino;
	st->st_mode = ino == FS_PROC_DIR ? S_IFDIR | 0555 : S_IFREG | 0444;
	st->st_nlink = ino == FS_PROC_DIR ? 2 : 1;
	st->st_blksize = 4096;
	clock_gettime(CLOCK_REALTIME, &st->st_mtim);
	st->st_atim = st->st_ctim = st->st_mtim;
}

void fs_proc_lookup(fuse_req_t req, const char *name)
{
	struct fuse_entry_param p = {
		.entry_timeout = FS_TIMEOUT_LONG,
		.attr_timeout = FS_TIMEOUT_LONG,
	};
	size_t k;

	if (strcmp(name, FS_PROC_NAME) == 0)
		p.ino = FS_PROC_DIR;
	for (k = 0; k < NFILES; k++)
		if (strcmp(name, files[k].name) == 0)
			p.ino = files[k].ino;
	if (p.ino)
		fs_proc_stat(p.ino, &p.attr);
	fuse_reply_entry(req, &p);
}

static char *json_text(json_t *j)
{
	char *text = j ? json_dumps(j, JSON_INDENT(2)) : NULL;

	json_decref(j);
	return text;
}

static int make_text(struct fs *fs, fuse_ino_t ino, struct fs_text *t)
{
	char *nl;

	if (ino == PROC_METRICS)
		return pool_metrics_print(fs->opts.metrics, &t->data, &t->len);
	t->data = json_text(ino == PROC_STATUS ?
				    fs->opts.status(fs->opts.arg) :
				    fs->opts.nodes(fs->opts.arg));
	if (!t->data)
		return -ENOMEM;
	t->len = strlen(t->data);
	nl = realloc(t->data, t->len + 2);
	if (nl) {
		t->data = nl;
		strcpy(t->data + t->len++, "\n");
	}
	return 0;
}

static void text_free(struct fs *fs, struct fs_text *t)
{
	fs->ntexts--;
	fs_fh_remove(fs, &t->o);
	free(t->data);
	free(t);
}

void fs_proc_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);
	struct fs_text *t = NULL;
	int err = -EMFILE;

	/* Each open file has a text of its own. */
	if (fs->ntexts < FS_TEXTS_MAX || fuse_req_ctx(req)->uid == 0) {
		t = calloc(1, sizeof(*t));
		err = t ? make_text(fs, ino, t) : -ENOMEM;
	} else {
		pool_count(&fs->texts_refused);
	}
	if (!err && (fi->flags & O_ACCMODE) != O_RDONLY)
		err = -EACCES;
	if (!err)
		err = fs_fh_add(fs, &t->o, FS_FH_TEXT);
	if (err) {
		if (t)
			free(t->data);
		free(t);
		fuse_reply_err(req, -err);
		return;
	}
	fs->ntexts++;
	fi->fh = t->o.fh;
	fi->direct_io = 1;
	if (fuse_reply_open(req, fi) == -ENOENT)
		text_free(fs, t);
}

void fs_proc_read(fuse_req_t req, size_t size, off_t off,
		  struct fuse_file_info *fi)
{
	struct fs_text *t = fs_fh_get(fs_of(req), fi->fh);
	size_t at = (size_t)off;

	if (!t) /* of an earlier incarnation */
		fuse_reply_err(req, ESTALE);
	else if (off < 0 || at >= t->len)
		fuse_reply_buf(req, NULL, 0);
	else
		fuse_reply_buf(req, t->data + at,
			       size < t->len - at ? size : t->len - at);
}

void fs_proc_release(fuse_req_t req, struct fuse_file_info *fi)
{
	struct fs *fs = fs_of(req);

	struct fs_text *t = fs_fh_get(fs, fi->fh);

	if (t)
		text_free(fs, t);
	fuse_reply_err(req, 0);
}

void fs_proc_readdir(fuse_req_t req, size_t size, off_t off, bool plus)
{
	struct fuse_entry_param p = { .ino = 0 }; /* no nodeids: the kernel
						     sends LOOKUPs */
	char buf[1024];
	size_t len = 0, need, k;

	if (size > sizeof(buf))
		size = sizeof(buf);
	for (k = (size_t)off; k < NFILES; k++) {
		fs_proc_stat(files[k].ino, &p.attr);
		need = plus ? fuse_add_direntry_plus(req, buf + len, size - len,
						     files[k].name, &p,
						     (off_t)k + 1) :
			      fuse_add_direntry(req, buf + len, size - len,
						files[k].name, &p.attr,
						(off_t)k + 1);
		if (need > size - len)
			break;
		len += need;
	}
	fuse_reply_buf(req, buf, len);
}
