/* Writes and reads the records for the next daemon. See fs/kept.h.
 *
 * Records are consistent whenever the daemon dies: the field that makes a
 * record valid (its nodeid, or the length of its path) is written last. (No
 * other process reads records before the daemon's death, so a compiler barrier
 * suffices.) */
#include "fs/fs_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fs/guard.h"
#include "pool/store/store.h"

#define MAGIC 0x324b564bu /* "KVK2" */
#define HEAD_BYTES 4096
#define BYTES (HEAD_BYTES + (size_t)FS_KEPT_MAX * sizeof(struct fs_kept_rec))

#define barrier() __asm__ volatile("" ::: "memory")

static_assert(sizeof(struct fs_kept_head) <= HEAD_BYTES, "one page");

int fs_kept_create(void)
{
	int fd = memfd_create("kvpool kept", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	int err = 0;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, BYTES) < 0 ||
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL))
		err = -errno;
	if (err)
		close(fd);
	return err ? err : fd;
}

int fs_kept_map(int fd, struct fs_kept_head **ret_head)
{
	struct fs_kept_head *h;
	struct stat st;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size != (off_t)BYTES) /* beyond its end is SIGBUS */
		return -EINVAL;
	h = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
		 MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (h == MAP_FAILED)
		return -errno;
	if (!h->magic) {
		h->magic = MAGIC;
		h->size = sizeof(struct fs_kept_rec);
	}
	if (h->magic != MAGIC || h->size != sizeof(struct fs_kept_rec) ||
	    h->used > FS_KEPT_MAX) {
		(void)munmap(h, BYTES);
		return -EINVAL;
	}
	*ret_head = h;
	return 0;
}

void fs_kept_unmap(struct fs_kept_head *head)
{
	(void)munmap(head, BYTES);
}

static struct fs_kept_rec *records(struct fs_kept_head *h)
{
	return (void *)((char *)h + HEAD_BYTES);
}

static bool is_handle(const struct fs_kept_rec *r)
{
	return r->nodeid & FS_KEPT_HANDLE && r->nodeid != FS_KEPT_ORPHAN;
}

int fs_kept_files(int fd, uint64_t **ret_ids, size_t *ret_n)
{
	struct fs_kept_head *h;
	int err = fs_kept_map(fd, &h);
	uint64_t *ids;
	size_t n = 0;

	if (err)
		return err;
	ids = calloc(h->used + 1, sizeof(*ids));
	for (uint32_t i = 0; ids && i < h->used; i++)
		if (is_handle(&records(h)[i]))
			ids[n++] = records(h)[i].file.id;
	fs_kept_unmap(h);
	if (!ids)
		return -ENOMEM;
	qsort(ids, n, sizeof(*ids), pool_store_by_id);
	*ret_ids = ids;
	*ret_n = n;
	return 0;
}

/* ---- opening ---- */

static int by_nodeid(const void *a, const void *b)
{
	const struct fs_kept_ghost *x = a, *y = b;

	return x->nodeid < y->nodeid ? -1 : x->nodeid > y->nodeid;
}

static int sort_records(struct fs_kept *k)
{
	uint32_t n;

	k->spare = malloc(FS_KEPT_MAX * sizeof(*k->spare));
	k->ghosts = malloc((k->head->used + 1) * sizeof(*k->ghosts));
	if (!k->spare || !k->ghosts)
		return -ENOMEM;
	for (n = 0; n < k->head->used; n++) {
		if (k->recs[n].nodeid == FS_KEPT_ORPHAN) {
			if (k->norphans < FS_KEPT_ORPHANS)
				k->orphans[k->norphans++] = n;
		} else if (k->recs[n].nodeid)
			k->ghosts[k->nghosts++] = (struct fs_kept_ghost){
				k->recs[n].nodeid, n };
		else
			k->spare[k->nspare++] = n;
	}
	qsort(k->ghosts, k->nghosts, sizeof(*k->ghosts), by_nodeid);
	return 0;
}

/* The last daemon died. If it was handling a request, counts that as a death of
 * this request. */
static void suspect(struct fs_kept_head *h)
{
	if (!h->handling || h->handling != h->suspect)
		h->deaths = 0;
	h->suspect = h->handling;
	h->deaths += h->handling != 0;
	h->handling = 0;
}

/* Sets `lost` in the records of directories that may have lost something with
 * the last daemon. */
static void judge(struct fs *fs)
{
	struct fs_kept_head *h = fs->kept->head;
	struct fs_kept_rec *r, *dir;
	bool all = false;
	uint32_t n;

	for (n = 0; n < h->used; n++) {
		r = &fs->kept->recs[n];
		dir = r->nodeid && r->written ?
			      fs_kept_find(fs, r->changed) : NULL;
		if (r->nodeid && r->written && r->changed == FUSE_ROOT_ID)
			h->root_lost = true;
		else if (dir)
			dir->lost = true;
		else if (r->nodeid && r->written)
			all = true; /* its directory is not known */
		r->written = false;
	}
	h->root_lost |= all || h->root_changed > h->safe;
	for (n = 0; n < h->used; n++) {
		r = &fs->kept->recs[n];
		if (r->is_dir && (all || r->changed > h->safe))
			r->lost = true;
	}
	barrier();
	h->safe = h->changes;
}

int fs_kept_open(struct fs *fs, int fd)
{
	struct fs_kept *k = calloc(1, sizeof(*k));
	int err = k ? fs_kept_map(fd, &k->head) : -ENOMEM;

	if (!err) {
		k->recs = records(k->head);
		err = sort_records(k);
	}
	if (err) {
		pool_error("the kept state of the mount is not usable: %s",
			   strerror(-err));
		return err;
	}
	suspect(k->head);
	fs->kept = k;
	judge(fs);
	if (fs->incarnation < k->head->incarnation + 1)
		fs->incarnation = k->head->incarnation + 1;
	k->head->incarnation = fs->incarnation;
	return 0;
}

void fs_kept_close(struct fs *fs)
{
	if (!fs->kept)
		return;
	fs_kept_unmap(fs->kept->head);
	free(fs->kept->spare);
	free(fs->kept->ghosts);
	free(fs->kept);
	fs->kept = NULL;
}

struct fs_init_kept fs_kept_init(const struct fs *fs)
{
	const struct fs_kept_head *h = fs->kept->head;

	return (struct fs_init_kept){
		.req = h->init,
		.req_len = h->init_len,
		.reply = h->reply,
		.reply_len = h->reply_len,
		.passthrough = h->passthrough,
	};
}

void fs_kept_mounted(struct fs *fs)
{
	struct fs_kept_head *h = fs->kept ? fs->kept->head : NULL;

	static_assert(sizeof(h->init) == sizeof(fs->init_req) &&
		      sizeof(h->reply) == sizeof(fs->init_reply), "INIT");
	if (!h)
		return;
	memcpy(h->init, fs->init_req, sizeof(h->init));
	memcpy(h->reply, fs->init_reply, sizeof(h->reply));
	h->init_len = (uint32_t)fs->init_len;
	h->reply_len = (uint32_t)fs->init_reply_len;
	h->passthrough = fs->passthrough;
	h->mount_id = fs->mount_id;
	h->dev = fs->dev;
	h->begun_ms = pool_now_ms();
}

/* ---- records ---- */

static struct fs_kept_rec *rec_of(const struct fs *fs, const struct fs_inode *i)
{
	const struct fs_inode_kept *k = fs_inode_kept(i);

	return k && k->rec ? &fs->kept->recs[k->rec - 1] : NULL;
}

/* 1 + the number of a new record; 0: there are too many. */
static uint32_t rec_new(struct fs *fs)
{
	struct fs_kept *k = fs->kept;
	uint32_t n;

	if (k->nspare > 0) {
		n = k->spare[--k->nspare];
	} else if (k->head->used < FS_KEPT_MAX) {
		n = k->head->used;
		k->recs[n].nodeid = 0;
		barrier();
		k->head->used++;
	} else {
		pool_count(&fs->left_out);
		return 0;
	}
	return n + 1;
}

/* i's record, or a new one; NULL: there are too many. */
static struct fs_kept_rec *rec_make(struct fs *fs, struct fs_inode *i)
{
	if (!rec_of(fs, i))
		fs_inode_kept(i)->rec = rec_new(fs);
	return rec_of(fs, i);
}

static bool may_be_lost(const struct fs_kept *k, const struct fs_kept_rec *r)
{
	return r->is_dir && r->path_len &&
	       (r->lost || r->changed > k->head->safe);
}

static void rec_spare(struct fs_kept *k, uint32_t n)
{
	k->recs[n].nodeid = 0;
	k->spare[k->nspare++] = n;
}

static void rec_free(struct fs *fs, struct fs_kept_rec *r)
{
	struct fs_kept *k = fs->kept;
	uint32_t n = (uint32_t)(r - k->recs);

	if (may_be_lost(k, r) && k->norphans < FS_KEPT_ORPHANS) {
		r->nodeid = FS_KEPT_ORPHAN;
		k->orphans[k->norphans++] = n;
		return;
	}
	if (may_be_lost(k, r))
		pool_count(&fs->left_out);
	rec_spare(k, n);
}

/* The directory at this path has a nodeid again. */
static void take_orphan(struct fs_kept *k, struct fs_inode *i,
			const char *path, size_t len)
{
	uint32_t n;

	for (n = 0; n < k->norphans && !fs_inode_kept(i)->rec; n++) {
		const struct fs_kept_rec *r = &k->recs[k->orphans[n]];

		if (r->path_len != len || memcmp(r->path, path, len) != 0)
			continue;
		fs_inode_kept(i)->rec = k->orphans[n] + 1;
		k->orphans[n] = k->orphans[--k->norphans];
	}
}

/* Frees the orphans whose changes are safe. */
static void prune_orphans(struct fs_kept *k)
{
	uint32_t n = 0;

	while (n < k->norphans) {
		if (may_be_lost(k, &k->recs[k->orphans[n]])) {
			n++;
			continue;
		}
		rec_spare(k, k->orphans[n]);
		k->orphans[n] = k->orphans[--k->norphans];
	}
}

void fs_kept_drop(struct fs *fs, struct fs_inode *i)
{
	struct fs_kept_rec *r = rec_of(fs, i);

	if (!r)
		return;
	fs_inode_kept(i)->rec = 0;
	rec_free(fs, r);
}

void fs_kept_dir(struct fs *fs, struct fs_inode *i, const struct pool_entry *e)
{
	char path[POOL_PATH_MAX + 1];
	struct fs_kept_rec *r;
	int len;

	if (!fs->kept || i == &fs->root)
		return;
	len = pool_tree_path(e, path, sizeof(path));
	if (len <= 0 || (uint32_t)len > FS_KEPT_PATH) {
		pool_count(&fs->left_out);
		fs_kept_drop(fs, i);
		return;
	}
	if (!rec_of(fs, i))
		take_orphan(fs->kept, i, path, (size_t)len);
	r = rec_make(fs, i);
	if (!r)
		return;
	r->path_len = 0;
	barrier();
	memcpy(r->path, path, (size_t)len);
	r->nlookup = i->nlookup;
	if (!r->nodeid)
		r->changed = r->lost = 0;
	r->is_dir = true;
	r->written = false;
	barrier();
	r->path_len = (uint16_t)len;
	r->nodeid = fs_inode_id(i);
}

void fs_kept_count(struct fs *fs, const struct fs_inode *i)
{
	struct fs_kept_rec *r = rec_of(fs, i);

	if (r)
		r->nlookup = i->nlookup;
}

void fs_kept_dir_gone(struct fs *fs, const struct fs_inode *i)
{
	struct fs_kept_rec *r = rec_of(fs, i);

	if (r)
		r->path_len = 0;
}

static void attr_of(const struct stat *st, struct fuse_attr *a)
{
	*a = (struct fuse_attr){
		.ino = st->st_ino,
		.size = (uint64_t)st->st_size,
		.blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec,
		.mtime = (uint64_t)st->st_mtim.tv_sec,
		.ctime = (uint64_t)st->st_ctim.tv_sec,
		.atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode,
		.nlink = (uint32_t)st->st_nlink,
		.uid = st->st_uid,
		.gid = st->st_gid,
		.blksize = (uint32_t)st->st_blksize,
	};
}

/* dir: nodeid of its directory, if the file is open for writing; else 0. */
static void rec_file(struct fs_kept_rec *r, uint64_t nodeid, uint64_t dir)
{
	r->is_dir = false;
	r->path_len = 0;
	r->written = dir != 0;
	r->changed = dir;
	barrier();
	r->nodeid = nodeid;
}

void fs_kept_file(struct fs *fs, struct fs_inode *i, const struct stat *st)
{
	struct fs_kept_rec *r = rec_make(fs, i);

	if (!r)
		return;
	attr_of(st, &r->attr);
	rec_file(r, fs_inode_id(i), 0);
}

void fs_kept_writer(struct fs *fs, struct fs_inode *i,
		    const struct fs_inode *dir)
{
	struct fs_kept_rec *r = fs->kept ? rec_make(fs, i) : NULL;

	if (!r)
		return;
	r->nodeid = 0;
	barrier();
	memset(&r->attr, 0, sizeof(r->attr)); /* not known any more */
	rec_file(r, fs_inode_id(i),
		 dir ? fs_inode_id(dir) : UINT64_MAX);
}

void fs_kept_handle(struct fs *fs, struct fs_handle *h)
{
	enum node_state state = node_object_state(h->obj);
	bool published = state == NODE_HELD || h->fd.map_len > 0;
	uint64_t id = node_named_id(h->obj);
	struct fs_kept_rec *r;

	if (!fs->kept || h->writer || (!published && state != NODE_PENDING))
		return;
	if (!id)
		id = node_orphan_id(h->obj);
	if (!id) /* lent by a peer */
		pool_count(&fs->left_out);
	h->rec = id ? rec_new(fs) : 0;
	if (!h->rec)
		return;
	r = &fs->kept->recs[h->rec - 1];
	r->file.id = id;
	r->file.size = h->fd.map_len ? h->fd.map_len :
				       node_object_final_size(h->obj);
	r->file.sum = node_object_sum(h->obj);
	r->file.published = published;
	r->file.unique = fs->kept->head->handling;
	rec_file(r, FS_KEPT_HANDLE | h->o.fh, 0);
}

void fs_kept_handle_end(struct fs *fs, const struct fs_handle *h)
{
	if (h->rec)
		rec_spare(fs->kept, h->rec - 1);
}

/* ---- changes ---- */

void fs_kept_changed(struct fs *fs, const struct fs_inode *i)
{
	struct fs_kept_head *h = fs->kept ? fs->kept->head : NULL;
	struct fs_kept_rec *r = i ? rec_of(fs, i) : NULL;

	if (!h || !i)
		return;
	if (i == &fs->root)
		h->root_changed = h->changes + 1;
	else if (r)
		r->changed = h->changes + 1;
	barrier();
	h->changes++;
	/* (fs_kept_due; while the mount is adopted, or before it is begun, this
	 * does nothing) */
	if (!uv_is_active((uv_handle_t *)&fs->keeping))
		uv_timer_again(&fs->keeping);
}

bool fs_kept_due(const struct fs *fs)
{
	const struct fs_kept_head *h = fs->kept->head;

	return h->safe < h->changes || h->close_ms;
}

uint64_t fs_kept_mark(const struct fs *fs)
{
	return fs->kept ? fs->kept->head->changes : 0;
}

void fs_kept_safe(struct fs *fs, uint64_t mark)
{
	if (!fs->kept || fs->kept->head->safe >= mark)
		return;
	fs->kept->head->safe = mark;
	prune_orphans(fs->kept);
}

bool fs_kept_lost(struct fs *fs, const struct fs_inode *i)
{
	struct fs_kept_rec *r = rec_of(fs, i);
	bool lost = false;

	if (fs->kept && i == &fs->root) {
		lost = fs->kept->head->root_lost;
		fs->kept->head->root_lost = false;
	} else if (r) {
		lost = r->lost;
		r->lost = false;
	}
	return lost;
}

uint64_t fs_kept_handling(struct fs *fs, uint64_t unique)
{
	uint64_t before = fs->kept ? fs->kept->head->handling : 0;

	if (fs->kept)
		fs->kept->head->handling = unique & ~FS_RESENT;
	return before;
}

/* ---- earlier incarnations ---- */

struct fs_kept_rec *fs_kept_find(const struct fs *fs, uint64_t nodeid)
{
	const struct fs_kept_ghost key = { .nodeid = nodeid }, *g;
	struct fs_kept_rec *r;

	if (!fs->kept || !fs->kept->nghosts)
		return NULL;
	g = bsearch(&key, fs->kept->ghosts, fs->kept->nghosts, sizeof(key),
		    by_nodeid);
	r = g ? &fs->kept->recs[g->rec] : NULL;
	return r && r->nodeid == nodeid ? r : NULL;
}

void fs_kept_forget(struct fs *fs, struct fs_kept_rec *r)
{
	if (r)
		rec_free(fs, r);
}

/* Ids are handed out in ascending order. */
void fs_kept_backings(struct fs *fs)
{
	struct fs_kept_head *h = fs->kept->head;
	uint32_t from = (uint32_t)fs->backings_from;
	uint64_t now = pool_now_ms();

	if (h->close_ms && now < h->close_ms)
		return;
	for (; h->close_ms && h->backings < h->closing; h->backings++)
		if (h->backings > 0)
			fs_backing_close(fs->dev_fd, (int)h->backings);
	h->closing = from;
	barrier();
	h->close_ms = h->backings < from ? now + FS_KEPT_BACKINGS_MS : 0;
}
