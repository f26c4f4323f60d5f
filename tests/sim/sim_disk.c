#include "tests/sim/sim_disk.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"

#define FD_BASE (1 << 25) /* above all real descriptors and sim_net.c's */
#define HEADROOM 16	  /* it is 1/16 of the size */
#define WORK_NS (10 * SIM_MS)
#define PAGE 4096u

struct sim_disk {
	struct pool_list link; /* in disks.list */
	char dir[256];
	uint8_t id[16];
	bool dead; /* its process has died: not found by its path */
	uint64_t last_id;
	struct pool_list files; /* not unlinked, by id */
};

/* A worker's task: its work is done at once, its callback runs later. */
struct work {
	struct pool_list link;
	struct pool_store *s;
	struct sim_event done;
	struct sim_call call;
	void (*run)(void *req);
	void *req;
};

struct pool_store {
	struct sim_disk *disk; /* borrows */
	struct sim_host *host;
	uint64_t size;
	struct pool_list works;
	bool closing;
	struct sim_call closed_call;
	void (*closed)(void *arg);
	void *closed_arg;
};

static struct {
	struct pool_list list;
	struct sim_file **files; /* owns; all ever made, by slot */
	size_t nfiles, cap;
	void (*on_remove)(const char *dir, const struct sim_file *f);
} disks;

/* ---- disks and files ---- */

void sim_disks_open(void)
{
	memset(&disks, 0, sizeof(disks));
	pool_list_init(&disks.list);
}

void sim_disks_close(void)
{
	struct pool_list *it, *tmp;
	size_t i;

	for (i = 0; i < disks.nfiles; i++) {
		free(disks.files[i]->blob);
		free(disks.files[i]);
	}
	free(disks.files);
	pool_list_each(it, tmp, &disks.list)
		free(pool_list_entry(it, struct sim_disk, link));
	sim_disks_open();
}

void sim_disk_on_remove(void (*cb)(const char *dir, const struct sim_file *f))
{
	disks.on_remove = cb;
}

static struct sim_disk *disk_find(const char *dir)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &disks.list) {
		struct sim_disk *d = pool_list_entry(it, struct sim_disk, link);

		if (!d->dead && !strcmp(d->dir, dir))
			return d;
	}
	return NULL;
}

static struct sim_disk *disk_new(const char *dir)
{
	struct sim_disk *d = calloc(1, sizeof(*d));

	assert(d && strlen(dir) < sizeof(d->dir));
	strcpy(d->dir, dir);
	pool_random(d->id, sizeof(d->id));
	pool_list_init(&d->files);
	pool_list_add_tail(&disks.list, &d->link);
	return d;
}

static struct sim_file *file_new(struct sim_disk *d, uint64_t id)
{
	struct sim_file *f = calloc(1, sizeof(*f));

	assert(f);
	if (disks.nfiles == disks.cap) {
		disks.cap = disks.cap ? 2 * disks.cap : 256;
		disks.files = realloc(disks.files,
				      disks.cap * sizeof(struct sim_file *));
		assert(disks.files);
	}
	f->disk = d;
	f->id = id;
	f->slot = disks.nfiles;
	disks.files[disks.nfiles++] = f;
	pool_list_add_tail(&d->files, &f->link);
	return f;
}

static struct sim_file *file_find(struct sim_disk *d, uint64_t id)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &d->files) {
		struct sim_file *f = pool_list_entry(it, struct sim_file, link);

		if (f->id == id)
			return f;
	}
	return NULL;
}

static void about_to_go(const struct sim_file *f)
{
	if (disks.on_remove && !f->disk->dead && f->blob_len)
		disks.on_remove(f->disk->dir, f);
}

static void file_remove(struct sim_file *f)
{
	about_to_go(f);
	pool_list_del(&f->link);
	f->gone = true;
}

static void file_set_blob(struct sim_file *f, const void *blob, size_t len)
{
	free(f->blob);
	f->blob = len ? malloc(len) : NULL;
	assert(f->blob || !len);
	if (len)
		memcpy(f->blob, blob, len);
	f->blob_len = len;
}

static void copy_files(struct sim_disk *to, const struct sim_disk *from)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &from->files) {
		struct sim_file *f = pool_list_entry(it, struct sim_file, link);
		struct sim_file *g = file_new(to, f->id);

		g->size = f->size;
		g->bytes = f->bytes;
		file_set_blob(g, f->blob, f->blob_len);
	}
}

void sim_disk_crash(const char *dir, bool lost)
{
	struct sim_disk *old = disk_find(dir), *d;

	assert(old);
	d = disk_new(dir);
	old->dead = true;
	d->last_id = old->last_id;
	if (lost)
		return;
	memcpy(d->id, old->id, sizeof(d->id));
	copy_files(d, old);
}

struct sim_file *sim_disk_file(const char *dir, uint64_t id)
{
	struct sim_disk *d = disk_find(dir);

	return d ? file_find(d, id) : NULL;
}

struct sim_file *sim_disk_next(const char *dir, struct sim_file *f)
{
	struct sim_disk *d = f ? f->disk : disk_find(dir);
	struct pool_list *next = d ? (f ? f->link.next : d->files.next) : NULL;

	return next && next != &d->files ?
		       pool_list_entry(next, struct sim_file, link) : NULL;
}

struct sim_file *sim_file_of_fd(int fd)
{
	size_t slot = fd >= FD_BASE ? (size_t)(fd - FD_BASE) : SIZE_MAX;

	return slot < disks.nfiles ? disks.files[slot] : NULL;
}

static int fd_of(const struct sim_file *f)
{
	return FD_BASE + (int)f->slot;
}

XXH128_hash_t sim_bytes_sum(uint64_t bytes, uint64_t size)
{
	uint64_t both[2] = { bytes, size };

	return XXH3_128bits(both, sizeof(both));
}

static uint64_t pages(const struct sim_file *f)
{
	uint64_t n = f->size > f->reserved ? f->size : f->reserved;

	return (n + PAGE - 1) / PAGE * PAGE;
}

/* ---- workers ---- */

static void on_work_result(struct sim_call *c)
{
	struct work *w = pool_container_of(c, struct work, call);

	pool_list_del(&w->link);
	w->run(w->req);
	free(w);
}

static void on_work_done(struct sim_event *e)
{
	struct work *w = pool_container_of(e, struct work, done);

	sim_call(w->s->host, &w->call);
}

static void work_start(struct pool_store *s, void (*run)(void *req), void *req)
{
	struct work *w = calloc(1, sizeof(*w));

	assert(w);
	w->s = s;
	w->run = run;
	w->req = req;
	w->done.run = on_work_done;
	w->call.run = on_work_result;
	pool_list_init(&w->call.link);
	pool_list_add_tail(&s->works, &w->link);
	sim_at(&w->done, sim_now_ns() + sim_random(WORK_NS));
}

bool pool_store_busy(const struct pool_store *s)
{
	return !pool_list_empty(&s->works);
}

/* ---- opening and closing ---- */

static void on_closed(struct sim_call *c)
{
	struct pool_store *s =
		pool_container_of(c, struct pool_store, closed_call);

	if (pool_store_busy(s)) {
		sim_call(s->host, c);
		return;
	}
	s->closed(s->closed_arg);
	free(s);
}

void pool_store_close(struct pool_store *s, bool unmount,
		      void (*closed)(void *arg), void *arg)
{
	(void)unmount;
	s->closing = true;
	s->closed = closed;
	s->closed_arg = arg;
	sim_call(s->host, &s->closed_call);
}

/* Offers each file with metadata to the node; removes the others, and those
 * that the node rejects. */
static int scan(struct sim_disk *d, pool_store_found_cb found, void *arg)
{
	struct pool_list *it, *tmp;
	int err;

	pool_list_each(it, tmp, &d->files) {
		struct sim_file *f = pool_list_entry(it, struct sim_file, link);

		err = f->blob_len ? found(arg, f->id, f->size, f->blob,
					  f->blob_len) : -ESTALE;
		if (err == -ESTALE || err == -EBADMSG)
			file_remove(f);
		else if (err)
			return err;
	}
	return 0;
}

int pool_store_open(const struct pool_store_opts *opts,
		    pool_store_found_cb found, void *arg,
		    struct pool_store **ret_store)
{
	struct pool_store *s = calloc(1, sizeof(*s));

	assert(s);
	s->host = pool_container_of(opts->loop, struct sim_host, loop);
	s->size = opts->size;
	s->disk = disk_find(opts->dir);
	if (!s->disk)
		s->disk = disk_new(opts->dir);
	s->closed_call.run = on_closed;
	pool_list_init(&s->closed_call.link);
	pool_list_init(&s->works);
	*ret_store = s;
	return scan(s->disk, found, arg);
}

void pool_store_undo(struct pool_store *s)
{
	(void)s;
}

int pool_store_lock_fd(const struct pool_store *s)
{
	(void)s;
	return -1;
}

const char *pool_store_path(const struct pool_store *s)
{
	return s->disk->dir;
}

const uint8_t *pool_store_id(const struct pool_store *s)
{
	return s->disk->id;
}

void pool_store_sweep(struct pool_store *s, const uint64_t *ids, size_t n)
{
	(void)s, (void)ids, (void)n;
}

/* ---- space ---- */

void pool_store_use(struct pool_store *s, int64_t bytes)
{
	(void)s, (void)bytes;
}

bool pool_store_in_memory(const struct pool_store *s)
{
	(void)s;
	return true;
}

uint64_t pool_store_size(const struct pool_store *s)
{
	return s->size;
}

void pool_store_space(struct pool_store *s, struct pool_space *ret)
{
	struct pool_list *it, *tmp;

	memset(ret, 0, sizeof(*ret));
	ret->size = s->size;
	ret->headroom = s->size / HEADROOM;
	pool_list_each(it, tmp, &s->disk->files)
		ret->used += pages(pool_list_entry(it, struct sim_file, link));
	if (ret->used < s->size)
		ret->free = s->size - ret->used;
	if (ret->used < s->size + ret->headroom - ret->headroom / 16)
		ret->reach = s->size + ret->headroom - ret->headroom / 16 -
			     ret->used;
}

bool pool_store_counted(struct pool_store *s)
{
	(void)s;
	return true;
}

void pool_store_on_counted(struct pool_store *s, void (*cb)(void *arg),
			   void *arg)
{
	(void)s, (void)cb, (void)arg;
}

uint64_t pool_store_breaches(struct pool_store *s)
{
	(void)s;
	return 0;
}

uint64_t pool_store_sampling(struct pool_store *s, bool on)
{
	(void)s, (void)on;
	return 0;
}

/* ---- making files ---- */

int pool_store_make(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file)
{
	struct pool_space sp;
	struct sim_file *f;

	pool_store_space(s, &sp);
	if (size && sp.free < size + s->size / 8)
		return -ENOSPC;
	f = file_new(s->disk, ++s->disk->last_id);
	f->reserved = size;
	*ret_file = (struct pool_file){ .id = f->id, .fd = fd_of(f),
					.reserved = size };
	return 0;
}

int pool_store_take(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file)
{
	return size ? -EAGAIN : pool_store_make(s, 0, ret_file);
}

int pool_store_reuse(struct pool_store *s, uint64_t id, uint64_t size,
		     struct pool_file *ret_file)
{
	(void)size, (void)ret_file;
	pool_store_remove(s, id);
	return -EAGAIN;
}

void pool_store_announce(struct pool_store *s, uint64_t size)
{
	(void)s, (void)size;
}

void pool_store_set_keep_free(struct pool_store *s, uint64_t bytes)
{
	(void)s, (void)bytes;
}

uint64_t pool_store_drop_ready(struct pool_store *s)
{
	(void)s;
	return 0;
}

static void run_reserve(void *req)
{
	struct pool_reserve *r = req;

	r->cb(r, 0);
}

void pool_store_reserve_start(struct pool_store *s, struct pool_reserve *r,
			      void (*cb)(struct pool_reserve *r, int status))
{
	r->cb = cb;
	work_start(s, run_reserve, r);
}

bool pool_store_has_clients(const struct pool_store *s)
{
	(void)s;
	return false;
}

int pool_store_link(struct pool_store *s, int fd, uint64_t size,
		    struct pool_file *ret_file)
{
	(void)s, (void)fd, (void)size, (void)ret_file;
	return -EXDEV;
}

bool pool_store_linked(const struct pool_store *s, uint64_t id)
{
	(void)s, (void)id;
	return false;
}

/* ---- sealing ---- */

int pool_seal_now(struct pool_store *s, struct pool_seal *seal)
{
	uint8_t blob[POOL_BLOB_MAX];
	struct sim_file *f = file_find(s->disk, seal->id);
	ptrdiff_t len;

	if (seal->fd > 0)
		close(seal->fd);
	if (!f)
		return -ENOENT;
	f->reserved = 0;
	seal->size = f->size;
	if (!seal->have_sum)
		seal->sum = sim_bytes_sum(f->bytes, f->size);
	len = seal->blob(seal, blob, sizeof(blob));
	if (len < 0)
		return (int)len;
	file_set_blob(f, blob, (size_t)len);
	return 0;
}

int pool_seal_slice(struct pool_store *s, struct pool_seal *seal)
{
	return pool_seal_now(s, seal);
}

int pool_seal_cancel(struct pool_store *s, struct pool_seal *seal)
{
	(void)s;
	if (seal->fd > 0)
		close(seal->fd);
	return -ECANCELED;
}

static void run_seal(void *req)
{
	struct pool_seal *seal = req;

	seal->cb(seal, seal->status);
}

void pool_seal_start(struct pool_store *s, struct pool_seal *seal,
		     void (*cb)(struct pool_seal *seal, int status))
{
	seal->cb = cb;
	seal->status = pool_seal_now(s, seal);
	work_start(s, run_seal, seal);
}

int pool_store_set_blob(struct pool_store *s, uint64_t id, uint64_t size,
			const void *blob, size_t len)
{
	struct sim_file *f = file_find(s->disk, id);

	if (!f)
		return -ENOENT;
	assert(size == f->size);
	file_set_blob(f, blob, len);
	return 0;
}

int pool_store_detach(struct pool_store *s, uint64_t id)
{
	struct sim_file *f = file_find(s->disk, id);

	if (!f)
		return -ENOENT;
	about_to_go(f);
	file_set_blob(f, NULL, 0);
	return 0;
}

static void run_verify(void *req)
{
	struct pool_verify *v = req;

	v->cb(v, v->status);
}

void pool_verify_start(struct pool_store *s, struct pool_verify *v,
		       void (*cb)(struct pool_verify *v, int status))
{
	struct sim_file *f = file_find(s->disk, v->id);

	v->cb = cb;
	v->status = -ENOENT;
	if (f)
		v->status = XXH128_isEqual(v->sum, sim_bytes_sum(f->bytes,
								 f->size)) ?
				    0 : -EBADMSG;
	work_start(s, run_verify, v);
}

static void run_copy(void *req)
{
	struct pool_copy *c = req;

	c->cb(c, 0);
}

void pool_copy_start(struct pool_store *s, struct pool_copy *c,
		     void (*cb)(struct pool_copy *c, int status))
{
	struct sim_file *from = sim_file_of_fd(c->from);
	struct sim_file *to = sim_file_of_fd(c->fd);

	to->bytes = from->bytes;
	to->size = from->size < c->limit ? from->size : c->limit;
	c->cb = cb;
	work_start(s, run_copy, c);
}

/* ---- using files ---- */

int pool_store_fd(struct pool_store *s, uint64_t id, int flags)
{
	struct sim_file *f = file_find(s->disk, id);

	(void)flags;
	return f ? fd_of(f) : -ENOENT;
}

int pool_store_stat(struct pool_store *s, uint64_t id, uint64_t *ret_size,
		    uint64_t *ret_blocks, uint64_t *ret_mtime_ns)
{
	struct sim_file *f = file_find(s->disk, id);

	if (!f)
		return -ENOENT;
	*ret_size = f->size;
	*ret_blocks = pages(f) / 512;
	*ret_mtime_ns = 0; /* not simulated: no file looks modified */
	return 0;
}

void pool_store_remove(struct pool_store *s, uint64_t id)
{
	struct sim_file *f = file_find(s->disk, id);

	if (f)
		file_remove(f);
}

void pool_store_remove_sealed(struct pool_store *s, uint64_t id, uint64_t size,
			      bool evicted)
{
	struct sim_file *f = file_find(s->disk, id);

	(void)evicted;
	assert(!f || size == f->size);
	pool_store_remove(s, id);
}

void pool_store_quarantine(struct pool_store *s, uint64_t id, const char *why)
{
	(void)why;
	pool_store_remove(s, id);
}

int pool_file_size(int fd, uint64_t *ret_size)
{
	struct sim_file *f = sim_file_of_fd(fd);

	if (!f)
		return -EBADF;
	*ret_size = f->size;
	return 0;
}

int pool_file_has_writer(int fd)
{
	struct sim_file *f = sim_file_of_fd(fd);

	return f && f->writers ? -EBUSY : 0;
}

int pool_file_in_use(int fd)
{
	return pool_file_has_writer(fd);
}
