/*
 * Work on one file: seal, verify, copy, reserve, in libuv's workers; seals also
 * on the loop, at once or in slices; and its metadata.
 *
 * Happy path of a seal: trim the file, compute its checksum, attach the
 * metadata, set the mode. The order matters after a crash: a file with metadata
 * is complete, and a file with the mode of a sealed one (STORE_MODE_*) has had
 * metadata.
 *
 * Failure modes: no memory for the xattr (-ENOSPC), no such file (-ENOENT), the
 * caller's blob function fails (its -errno), the store is closing (-ECANCELED).
 * The file stays, unsealed, and the caller removes it.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define COPY_SLICE (256u << 10) /* stays in the cache between read and write */
#define EINTR_TRIES 100

/* ---- metadata ---- */

static uint64_t blob_sum(const struct store_blob_buf *b, size_t len)
{
	return store_sum64(b, sizeof(b->head) + len);
}

/* Fill in b's header for a blob of len bytes that is in place. */
static void store_blob_seal(struct store_blob_buf *b, size_t len, uint64_t size)
{
	memset(&b->head, 0, sizeof(b->head));
	b->head.magic = STORE_BLOB_MAGIC;
	b->head.version = STORE_BLOB_VERSION;
	b->head.header_len = sizeof(b->head);
	b->head.blob_len = (uint32_t)len;
	b->head.size = size;
	b->head.sum = blob_sum(b, len);
}

bool store_blob_valid(const struct store_blob_buf *b, size_t n)
{
	struct store_blob_buf *rw = (struct store_blob_buf *)b;
	uint64_t sum, want;

	if (n < sizeof(b->head) || b->head.magic != STORE_BLOB_MAGIC ||
	    b->head.version != STORE_BLOB_VERSION ||
	    b->head.header_len != sizeof(b->head) ||
	    b->head.blob_len != n - sizeof(b->head))
		return false;
	want = b->head.sum;
	rw->head.sum = 0;
	sum = blob_sum(b, b->head.blob_len);
	rw->head.sum = want;
	return sum == want;
}

int pool_store_set_blob(struct pool_store *s, uint64_t id, uint64_t size,
			const void *blob, size_t len)
{
	struct store_blob_buf b;
	char path[PATH_MAX];

	if (len > POOL_BLOB_MAX)
		return -E2BIG;
	store_path(s, id, path);
	memcpy(b.blob, blob, len);
	store_blob_seal(&b, len, size);
	/* XATTR_REPLACE: fails for a file that is not sealed. */
	if (lsetxattr(path, s->xattr, &b, sizeof(b.head) + len,
		      XATTR_REPLACE) < 0)
		return -errno;
	return 0;
}

int pool_store_detach(struct pool_store *s, uint64_t id)
{
	char path[PATH_MAX];

	store_path(s, id, path);
	if (chmod(path, STORE_MODE_OPEN) < 0) /* before the metadata: see top */
		return -errno;
	return lremovexattr(path, s->xattr) < 0 ? -errno : 0;
}

/* ---- seal ---- */

mode_t store_mode_sealed(const struct pool_store *s)
{
	return strncmp(s->xattr, "user.", 5) == 0 ? STORE_MODE_SEALED_USER :
						    STORE_MODE_SEALED;
}

/* Does the file have bytes that were never written? */
static bool has_holes(int fd, uint64_t size)
{
	return size > 0 && lseek(fd, 0, SEEK_HOLE) < (off_t)size;
}

/*
 * Free what is reserved beyond the end, by ftruncate to the same size. Skipped
 * if nothing is reserved, because it would split the last large folio of a file
 * that does not end on a page. With holes, the block count cannot tell whether
 * something is reserved.
 */
static int trim(struct pool_store *s, uint64_t id, const struct stat *st,
		bool holes)
{
	uint64_t size = (uint64_t)st->st_size;
	int fd, rc;

	if ((uint64_t)st->st_blocks * 512 <= pool_whole_pages(size) && !holes)
		return 0;
	fd = pool_store_fd(s, id, O_RDWR);
	if (fd < 0)
		return fd;
	rc = ftruncate(fd, st->st_size) < 0 ? -errno : 0;
	close(fd);
	return rc;
}

static int attach(struct pool_seal *seal, int fd)
{
	struct store_blob_buf b;
	ptrdiff_t n = seal->blob(seal, b.blob, sizeof(b.blob));

	if (n < 0)
		return (int)n;
	assert((size_t)n <= sizeof(b.blob));
	store_blob_seal(&b, (size_t)n, seal->size);
	if (fsetxattr(fd, seal->store->xattr, &b, sizeof(b.head) + (size_t)n,
		      0) < 0)
		return -errno;
	return 0;
}

/* Before the checksum. *ret_dense: as in store_sum. */
static int seal_begin(struct pool_seal *seal, int fd, bool *ret_dense)
{
	struct stat st;
	bool holes;

	if (fstat(fd, &st) < 0)
		return -errno;
	seal->size = (uint64_t)st.st_size;
	holes = !seal->have_sum && has_holes(fd, seal->size);
	*ret_dense = seal->store->huge && !holes;
	return trim(seal->store, seal->id, &st, holes);
}

/* After the checksum. */
static int seal_end(struct pool_seal *seal, int fd)
{
	int rc = attach(seal, fd);

	if (rc < 0)
		return rc;
	return fchmod(fd, store_mode_sealed(seal->store)) < 0 ? -errno : 0;
}

static int seal_fd(struct pool_seal *seal, int fd)
{
	bool dense;
	int rc = seal_begin(seal, fd, &dense);

	if (rc == 0 && !seal->have_sum)
		rc = store_sum(fd, seal->size, dense, &seal->store->stop_ms,
			       &seal->sum);
	return rc == 0 ? seal_end(seal, fd) : rc;
}

static int seal_open(const struct pool_seal *seal)
{
	return seal->fd > 0 ? seal->fd :
			      pool_store_fd(seal->store, seal->id, O_RDONLY);
}

static void seal_work(uv_work_t *work)
{
	struct pool_seal *seal = pool_container_of(work, struct pool_seal,
						   work);
	struct pool_store *s = seal->store;
	uint64_t start = pool_now_ns();
	int fd = seal_open(seal);

	if (fd < 0) {
		seal->status = fd;
		return;
	}
	seal->status = seal_fd(seal, fd);
	close(fd);
	pool_hist_add(&s->n.seal_time, pool_now_ns() - start);
}

static void seal_done(uv_work_t *work, int status)
{
	struct pool_seal *seal = pool_container_of(work, struct pool_seal,
						   work);
	struct pool_store *s = seal->store;

	if (status < 0)
		seal->status = status;
	pool_count(seal->status == 0 ? &s->n.seals : &s->n.seals_failed);
	seal->cb(seal, seal->status);
	store_work_end(s);
}

void pool_seal_start(struct pool_store *s, struct pool_seal *seal,
		     void (*cb)(struct pool_seal *seal, int status))
{
	seal->store = s;
	seal->cb = cb;
	seal->status = 0;
	store_work_begin(s);
	uv_queue_work(s->loop, &seal->work, seal_work, seal_done);
}

int pool_seal_now(struct pool_store *s, struct pool_seal *seal)
{
	seal->store = s;
	seal->status = 0;
	seal_work(&seal->work);
	pool_count(seal->status == 0 ? &s->n.seals : &s->n.seals_failed);
	return seal->status;
}

/* ---- a seal in slices ---- */

struct store_slices {
	struct store_sum sum;
	int fd; /* owns */
	uint64_t begun_ns;
};

static int slices_begin(struct pool_store *s, struct pool_seal *seal)
{
	struct store_slices *sl;
	int fd, rc;
	bool dense;

	seal->store = s;
	fd = seal_open(seal);
	if (fd < 0)
		return fd;
	rc = seal_begin(seal, fd, &dense);
	sl = rc == 0 ? aligned_alloc(_Alignof(struct store_slices),
				     sizeof(*sl)) : NULL;
	if (!sl) {
		close(fd);
		return rc < 0 ? rc : -ENOMEM;
	}
	sl->fd = fd;
	sl->begun_ns = pool_now_ns();
	store_sum_begin(&sl->sum, fd, seal->size, dense);
	seal->slices = sl;
	return -EAGAIN;
}

static int slices_end(struct pool_seal *seal, int rc)
{
	struct pool_store *s = seal->store;
	struct store_slices *sl = seal->slices;

	if (sl) {
		store_sum_end(&sl->sum);
		if (rc == 0)
			rc = seal_end(seal, sl->fd);
		close(sl->fd);
		pool_hist_add(&s->n.seal_time, pool_now_ns() - sl->begun_ns);
		free(sl);
		seal->slices = NULL;
	}
	pool_count(rc == 0 ? &s->n.seals : &s->n.seals_failed);
	seal->status = rc;
	return rc;
}

int pool_seal_slice(struct pool_store *s, struct pool_seal *seal)
{
	int rc = seal->slices ? store_sum_next(&seal->slices->sum, &seal->sum) :
				slices_begin(s, seal);

	return rc == -EAGAIN ? rc : slices_end(seal, rc);
}

int pool_seal_cancel(struct pool_store *s, struct pool_seal *seal)
{
	seal->store = s;
	if (!seal->slices && seal->fd > 0)
		close(seal->fd);
	return slices_end(seal, -ECANCELED);
}

/* ---- verify ---- */

static int verify(struct pool_verify *v)
{
	struct pool_store *s = v->store;
	int fd = v->fd > 0 ? v->fd : pool_store_fd(s, v->id, O_RDONLY);
	XXH128_hash_t sum;
	struct stat st;
	int rc;

	if (fd < 0)
		return fd;
	rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0)
		rc = store_sum(fd, (uint64_t)st.st_size,
			       s->huge && !has_holes(fd, (uint64_t)st.st_size),
			       &s->stop_ms, &sum);
	if (v->fd > 0) /* has_holes moved the offset */
		(void)lseek(fd, 0, SEEK_SET);
	else
		close(fd);
	if (rc == 0 && !XXH128_isEqual(sum, v->sum))
		rc = -EBADMSG;
	return rc;
}

static void verify_work(uv_work_t *work)
{
	struct pool_verify *v = pool_container_of(work, struct pool_verify,
						  work);

	v->status = verify(v);
}

static void verify_done(uv_work_t *work, int status)
{
	struct pool_verify *v = pool_container_of(work, struct pool_verify,
						  work);
	struct pool_store *s = v->store;

	if (status < 0)
		v->status = status;
	if (v->status == -EBADMSG)
		pool_count(&s->n.verify_bad);
	v->cb(v, v->status);
	store_work_end(s);
}

void pool_verify_start(struct pool_store *s, struct pool_verify *v,
		       void (*cb)(struct pool_verify *v, int status))
{
	v->store = s;
	v->cb = cb;
	v->status = 0;
	store_work_begin(s);
	uv_queue_work(s->loop, &v->work, verify_work, verify_done);
}

/* ---- reserve ---- */

int store_allocate(int fd, uint64_t size)
{
	for (int i = 0; i < EINTR_TRIES; i++) {
		if (fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)size) == 0)
			return 0;
		if (errno != EINTR)
			return -errno;
	}
	return -EINTR;
}

/* Reservations never use the headroom: it is for writes that go to the file
 * directly and cannot be stopped in time. */
int store_reserve(const struct pool_store *s, int fd, uint64_t size)
{
	uint64_t have, page = POOL_PAGE;
	struct stat st;

	if (size == 0)
		return 0;
	if (size > s->size)
		return -ENOSPC;
	if (fstat(fd, &st) < 0)
		return -errno;
	have = (uint64_t)st.st_blocks * 512;
	size = (size + page - 1) / page * page;
	if (size > have && size - have > store_space_free(s))
		return -ENOSPC;
	return store_allocate(fd, size);
}

static void reserve_work(uv_work_t *work)
{
	struct pool_reserve *r = pool_container_of(work, struct pool_reserve,
						   work);

	r->status = store_reserve(r->store, r->fd, r->size);
}

static void reserve_done(uv_work_t *work, int status)
{
	struct pool_reserve *r = pool_container_of(work, struct pool_reserve,
						   work);
	struct pool_store *s = r->store;

	if (status < 0)
		r->status = status;
	r->cb(r, r->status);
	store_work_end(s);
}

void pool_store_reserve_start(struct pool_store *s, struct pool_reserve *r,
			      void (*cb)(struct pool_reserve *r, int status))
{
	r->store = s;
	r->cb = cb;
	r->status = 0;
	store_work_begin(s);
	uv_queue_work(s->loop, &r->work, reserve_work, reserve_done);
}

/* ---- copy ---- */

static int write_all(int fd, const unsigned char *buf, size_t n, uint64_t off)
{
	while (n > 0) {
		ssize_t done = pwrite(fd, buf, n, (off_t)off);

		if (done < 0 && errno == EINTR)
			continue;
		if (done < 0)
			return -errno;
		buf += done;
		off += (uint64_t)done;
		n -= (size_t)done;
	}
	return 0;
}

static int copy_bytes(int from, int to, uint64_t size,
		      const _Atomic uint64_t *stop_ms)
{
	unsigned char *buf = malloc(COPY_SLICE);
	uint64_t off = 0;
	int rc = buf == NULL ? -ENOMEM : 0;

	while (rc == 0 && off < size) {
		size_t want = size - off < COPY_SLICE ? (size_t)(size - off) :
							COPY_SLICE;
		ssize_t n = pread(from, buf, want, (off_t)off);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			rc = -errno;
		else if (n == 0)
			rc = -EBADMSG;
		else if (store_must_stop(stop_ms))
			rc = -ECANCELED;
		else
			rc = write_all(to, buf, (size_t)n, off);
		if (rc == 0)
			off += (uint64_t)n;
	}
	free(buf);
	return rc;
}

/* Reserves the space first: the file gets large folios although the slices are
 * small, and no headroom is used. */
static int copy(struct pool_copy *c)
{
	struct stat st;
	uint64_t size;
	int rc;

	rc = fstat(c->from, &st) < 0 ? -errno : 0;
	if (rc == 0) {
		size = (uint64_t)st.st_size;
		if (size > c->limit)
			size = c->limit;
		rc = store_reserve(c->store, c->fd, size);
	}
	if (rc == 0)
		rc = copy_bytes(c->from, c->fd, size, &c->store->stop_ms);
	return rc;
}

static void copy_work(uv_work_t *work)
{
	struct pool_copy *c = pool_container_of(work, struct pool_copy, work);

	c->status = copy(c);
}

static void copy_done(uv_work_t *work, int status)
{
	struct pool_copy *c = pool_container_of(work, struct pool_copy, work);
	struct pool_store *s = c->store;

	if (status < 0)
		c->status = status;
	c->cb(c, c->status);
	store_work_end(s);
}

void pool_copy_start(struct pool_store *s, struct pool_copy *c,
		     void (*cb)(struct pool_copy *c, int status))
{
	c->store = s;
	c->cb = cb;
	c->status = 0;
	store_work_begin(s);
	uv_queue_work(s->loop, &c->work, copy_work, copy_done);
}
