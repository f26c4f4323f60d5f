/*
 * Ready files: created and reserved ahead by workers, so that writers do not
 * spend time on page allocation.
 *
 * The owner announces sizes. Each of the last STORE_READY_CLASSES sizes is a
 * class with a few ready files. The classes share 2 % of the store equally. If
 * a share is less than one file, the class may still have one (of up to 1/16 of
 * the store), while all ready files together stay within 1/8 of the store. A
 * take may get a file of up to twice its size; sealing frees what is not used.
 *
 * A fill is one work item that creates up to STORE_FILL_FILES files: enough
 * that a stream of small files does not wait for round trips to the worker, and
 * few enough bytes (STORE_FILL_BYTES) that the files are ready soon. Reserving
 * 16 MiB takes about 0.1 ms with large folios and 4 ms with small pages. Where
 * reserving is quick, the loop itself creates files for a burst that has used
 * up the ready ones (pool_store_make): with sixteen busy writers a worker may
 * not be scheduled for tens of milliseconds.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define RETRY_MS 100 /* pause after a failed fill */
#define DROPPED_MS 1000 /* pause after pool_store_drop_ready */

struct fill {
	uv_work_t work;
	struct pool_store *store;
	uint64_t epoch;
	uint64_t size;
	uint64_t first_id;
	unsigned int want, got;
	int status;
	int fds[STORE_FILL_FILES]; /* owns the first `got` */
};

/* ---- classes ---- */

static struct store_class *class_find(struct pool_store *s, uint64_t size)
{
	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		if (s->ready.classes[i].size == size)
			return &s->ready.classes[i];
	}
	return NULL;
}

static unsigned int class_count(const struct pool_store *s)
{
	unsigned int n = 0;

	for (int i = 0; i < STORE_READY_CLASSES; i++)
		n += s->ready.classes[i].size != 0;
	return n;
}

static void class_drop_one(struct pool_store *s, struct store_class *c)
{
	struct store_ready_file *f = &c->files[--c->nready];

	s->ready.nfiles--;
	s->ready.bytes -= c->size;
	store_discard(s, f->id, f->fd, c->size);
}

static void class_free(struct pool_store *s, struct store_class *c)
{
	while (c->nready > 0)
		class_drop_one(s, c);
	memset(c, 0, sizeof(*c));
}

static struct store_class *class_oldest(struct pool_store *s)
{
	struct store_class *oldest = &s->ready.classes[0];

	for (int i = 1; i < STORE_READY_CLASSES; i++) {
		if (s->ready.classes[i].used_ms < oldest->used_ms)
			oldest = &s->ready.classes[i];
	}
	return oldest;
}

static struct store_class *class_make(struct pool_store *s, uint64_t size)
{
	struct store_class *c = class_find(s, 0);

	if (c == NULL) {
		c = class_oldest(s);
		class_free(s, c);
	}
	c->size = size;
	return c;
}

/* Number of files that this class should have ready. */
static unsigned int class_target(const struct pool_store *s,
				 const struct store_class *c)
{
	uint64_t share = s->size / 50 / class_count(s);
	uint64_t n = share / c->size;

	if (n == 0 && c->size <= s->size / 16)
		n = 1;
	if (n > STORE_READY_CLASS_FILES)
		n = STORE_READY_CLASS_FILES;
	return (unsigned int)n;
}

/* ---- filling ---- */

/* Makes a file with size bytes reserved. Reservations never use the headroom:
 * the caller has looked. */
static int fill_one(struct pool_store *s, uint64_t id, uint64_t size,
		    int *ret_fd)
{
	char name[STORE_NAME_LEN + 1];
	int fd, rc;

	store_name(id, name);
	fd = openat(s->dirfd, name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC,
		    STORE_MODE_OPEN);
	if (fd < 0)
		return -errno;
	rc = store_allocate(fd, size);
	if (rc == 0) {
		*ret_fd = fd;
		return 0;
	}
	close(fd);
	unlinkat(s->dirfd, name, 0);
	return rc;
}

static void fill_work(uv_work_t *work)
{
	struct fill *f = pool_container_of(work, struct fill, work);
	uint64_t room = store_space_free(f->store);

	while (f->got < f->want && f->status == 0) {
		if ((f->got + 1) * f->size > room) {
			f->status = -ENOSPC;
			return;
		}
		f->status = fill_one(f->store, f->first_id + f->got, f->size,
				     &f->fds[f->got]);
		if (f->status == 0)
			f->got++;
	}
}

/* Add the files of a fill to its class, or discard them if the class was
 * dropped meanwhile. */
static void fill_deliver(struct pool_store *s, struct fill *f)
{
	struct store_class *c = class_find(s, f->size);
	bool wanted = c != NULL && !s->closing && f->epoch == s->ready.epoch;

	for (unsigned int i = 0; i < f->got; i++) {
		uint64_t id = f->first_id + i;

		if (!wanted || c->nready == STORE_READY_CLASS_FILES) {
			store_discard(s, id, f->fds[i], f->size);
			continue;
		}
		c->files[c->nready++] = (struct store_ready_file){ id,
								   f->fds[i] };
		s->ready.nfiles++;
		s->ready.bytes += f->size;
		pool_count(&s->n.fills);
	}
}

static void fill_start_all(struct pool_store *s, bool top_up);

static void fill_done(uv_work_t *work, int status)
{
	struct fill *f = pool_container_of(work, struct fill, work);
	struct pool_store *s = f->store;
	struct store_class *c = class_find(s, f->size);

	if (status < 0 && f->status == 0)
		f->status = status;
	s->ready.nfills--;
	s->ready.nfiles -= f->want;
	s->ready.filling -= f->want * f->size;
	if (c != NULL && c->nfilling >= f->want)
		c->nfilling -= f->want;
	if (f->status < 0) {
		pool_count(&s->n.fills_failed);
		if (f->status != -ENOSPC)
			pool_warn_limited("store %s: making a file ready: %s",
					  s->path, strerror(-f->status));
		if (c != NULL)
			c->retry_ms = pool_now_ms() + RETRY_MS;
	}
	fill_deliver(s, f);
	free(f);
	fill_start_all(s, false);
	store_work_end(s);
}

/* May n more files of c be made, given the limits of all classes together? */
static bool fits_budget(const struct pool_store *s,
			const struct store_class *c, unsigned int n)
{
	uint64_t sum = s->ready.bytes + s->ready.filling + n * c->size;

	if (s->ready.nfiles + n > STORE_READY_FILES)
		return false;
	if (sum <= s->size / 50)
		return true;
	return n == 1 && c->nready + c->nfilling == 0 && sum <= s->size / 8;
}

static bool fits_space(const struct pool_store *s, uint64_t space,
		       const struct store_class *c, unsigned int n)
{
	return space >= s->ready.keep_free + s->ready.filling + n * c->size;
}

/*
 * Is it time to fill c? A take wakes a worker only when more than a quarter of
 * the files is missing, because waking it costs more than the rest of the take.
 * top_up: called by the tick or an announcement, which fill c completely.
 */
static bool class_short(const struct pool_store *s, const struct store_class *c,
			bool top_up)
{
	unsigned int target = class_target(s, c);
	unsigned int slack = top_up ? 0 : target / 4;

	return c->nfilling == 0 && c->nready + slack < target;
}

/* Number of files that the next fill of c should make; 0: no fill now. */
static unsigned int fill_size(struct pool_store *s, const struct store_class *c,
			      uint64_t space, bool top_up)
{
	unsigned int have = c->nready;
	unsigned int target = class_target(s, c);
	uint64_t n = STORE_FILL_BYTES / c->size;

	if (!class_short(s, c, top_up) || pool_now_ms() < c->retry_ms)
		return 0;
	if (n < 1)
		n = 1;
	if (n > STORE_FILL_FILES)
		n = STORE_FILL_FILES;
	if (n > target - have)
		n = target - have;
	while (n > 0 && !fits_budget(s, c, (unsigned int)n))
		n--;
	if (n > 0 && !fits_space(s, space, c, (unsigned int)n)) {
		pool_count(&s->n.fills_short);
		while (n > 0 && !fits_space(s, space, c, (unsigned int)n))
			n--;
	}
	return (unsigned int)n;
}

static void fill_start(struct pool_store *s, struct store_class *c,
		       unsigned int n)
{
	struct fill *f = calloc(1, sizeof(*f));

	if (f == NULL)
		return; /* retried at the next tick */
	f->first_id = store_ids(s, n);
	if (f->first_id == 0) {
		free(f);
		return;
	}
	f->store = s;
	f->epoch = s->ready.epoch;
	f->size = c->size;
	f->want = n;
	c->nfilling += n;
	s->ready.nfills++;
	s->ready.nfiles += n;
	s->ready.filling += n * c->size;
	store_work_begin(s);
	uv_queue_work(s->loop, &f->work, fill_work, fill_done);
}

/* The class with the least files relative to its target. */
static struct store_class *class_neediest(struct pool_store *s, uint64_t space,
					  bool top_up, unsigned int *ret_n)
{
	struct store_class *best = NULL;
	double best_level = 2, level;

	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		struct store_class *c = &s->ready.classes[i];
		unsigned int n = 0;

		if (c->size != 0)
			n = fill_size(s, c, space, top_up);
		if (n == 0)
			continue;
		level = (double)c->nready / class_target(s, c);
		if (level < best_level) {
			best_level = level;
			best = c;
			*ret_n = n;
		}
	}
	return best;
}

static bool any_short(struct pool_store *s, bool top_up)
{
	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		struct store_class *c = &s->ready.classes[i];

		if (c->size != 0 && class_short(s, c, top_up))
			return true;
	}
	return false;
}

static void fill_start_all(struct pool_store *s, bool top_up)
{
	store_tick_soon(s); /* it tops up, and retries what fails here */
	while (!s->closing && s->ready.nfills < STORE_READY_FILLS &&
	       any_short(s, top_up)) {
		unsigned int n = 0, before = s->ready.nfills;
		struct store_class *c =
			class_neediest(s, store_space_free(s), top_up, &n);

		if (c == NULL)
			return;
		fill_start(s, c, n);
		if (s->ready.nfills == before)
			return;
	}
}

/* ---- interface ---- */

void pool_store_announce(struct pool_store *s, uint64_t size)
{
	struct store_class *c;

	if (size == 0 || size > s->size / 16 || s->closing)
		return;
	size = pool_whole_pages(size);
	c = class_find(s, size);
	if (c == NULL) {
		c = class_make(s, size);
		/* The new class makes the other classes' shares smaller. */
		for (int i = 0; i < STORE_READY_CLASSES; i++) {
			struct store_class *o = &s->ready.classes[i];

			while (o->size != 0 && o->nready > class_target(s, o))
				class_drop_one(s, o);
		}
	}
	c->used_ms = pool_now_ms();
	fill_start_all(s, true);
}

/* The smallest class with a ready file of size to 2 * size bytes. */
static struct store_class *class_for(struct pool_store *s, uint64_t size)
{
	struct store_class *best = NULL;

	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		struct store_class *c = &s->ready.classes[i];

		if (c->size < size || c->size / 2 > size || c->nready == 0)
			continue;
		if (best == NULL || c->size < best->size)
			best = c;
	}
	return best;
}

int store_ready_take(struct pool_store *s, uint64_t size,
		     struct pool_file *ret_file)
{
	struct store_class *exact, *c;
	struct store_ready_file *f;

	size = pool_whole_pages(size);
	exact = class_find(s, size);
	if (exact != NULL)
		exact->used_ms = pool_now_ms();
	c = class_for(s, size);
	if (c == NULL) {
		pool_count(&s->n.takes_missed);
		fill_start_all(s, true);
		return -EAGAIN;
	}
	f = &c->files[--c->nready];
	s->ready.nfiles--;
	s->ready.bytes -= c->size;
	c->used_ms = pool_now_ms();
	ret_file->id = f->id;
	ret_file->fd = f->fd;
	ret_file->reserved = c->size;
	pool_count(&s->n.takes_ready);
	fill_start_all(s, false);
	return 0;
}

int pool_store_make(struct pool_store *s, uint64_t size,
		    struct pool_file *ret_file)
{
	uint64_t id;
	int rc;

	size = pool_whole_pages(size);
	if (size > (s->huge ? POOL_MAKE_MAX : POOL_MAKE_SMALL_MAX))
		return -EAGAIN;
	/* When space is low, waiting claims may need what is left. */
	if (store_space_free(s) < s->size / 8 + s->ready.filling + size)
		return -ENOSPC;
	id = store_ids(s, 1);
	if (id == 0)
		return -ENOSPC;
	rc = fill_one(s, id, size, &ret_file->fd);
	if (rc)
		return rc;
	ret_file->id = id;
	ret_file->reserved = size;
	pool_count(&s->n.makes);
	return 0;
}

void pool_store_set_keep_free(struct pool_store *s, uint64_t bytes)
{
	s->ready.keep_free = bytes;
}

uint64_t pool_store_drop_ready(struct pool_store *s)
{
	uint64_t bytes = s->ready.bytes;

	s->ready.epoch++;
	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		struct store_class *c = &s->ready.classes[i];

		while (c->nready > 0)
			class_drop_one(s, c);
		c->retry_ms = pool_now_ms() + DROPPED_MS;
	}
	store_tick_soon(s);
	return bytes;
}

void store_ready_tick(struct pool_store *s)
{
	uint64_t now = pool_now_ms();

	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		struct store_class *c = &s->ready.classes[i];

		if (c->size != 0 && now - c->used_ms >= STORE_READY_IDLE_MS)
			class_free(s, c);
	}
	fill_start_all(s, true);
}

uint64_t store_ready_rest_ms(struct pool_store *s)
{
	uint64_t now = pool_now_ms(), oldest = UINT64_MAX, due;

	if (any_short(s, true))
		return STORE_READY_TICK_MS;
	for (int i = 0; i < STORE_READY_CLASSES; i++) {
		const struct store_class *c = &s->ready.classes[i];

		if (c->size != 0 && c->used_ms < oldest)
			oldest = c->used_ms;
	}
	if (oldest == UINT64_MAX)
		return UINT64_MAX;
	due = oldest + STORE_READY_IDLE_MS;
	return due > now ? due - now : 0;
}
