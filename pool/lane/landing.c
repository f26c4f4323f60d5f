/*
 * How bytes are written to a file was chosen by measurement. GB/s with
 * checksum, for a new 4 MiB / 32 MiB tmpfs file (reserved by fallocate,
 * huge=within_size); one TCP connection over loopback, two CPUs; a plain socket
 * moves 4.5 / 2.8:
 *	recv 256 KiB, pwrite it				2.0 / 1.5
 *	recv into an mmap of the file			1.9 / 1.6
 *	recv 2 MiB, pwrite it				2.3 / 1.9
 *	the same, pwrite on another thread (this)	2.9 / 2.1
 * A whole fetch (pool_fetch_start to its callback) moved 2.8 GB/s at 4 MiB (3.4
 * into pages written before) while a plain socket moved 4.2; at 32 MiB 2.9,
 * while a plain socket moved 3.6.
 * The kernel zeroes a reserved page on its first access, unless that access is
 * one write of the whole (here: huge) page. Hence bytes are gathered in chunks
 * of 2 MiB, aligned in the file, and the thread pool writes one chunk while
 * the next is received. For pages written before, mmap is faster (3.8 against
 * 3.3 at 4 MiB), but the pages of a first read are new. XXH3's vector code,
 * selected at run time, raises the checksum from 12 to 30-44 GB/s.
 */
#include "pool/base/map.h"
#include "pool/lane/landing.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "pool/base/guard.h"

#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h> /* the widest vectors this CPU has */
#endif

struct pool_chunk {
	struct pool_list link;	   /* in free */
	uint8_t *buf;		   /* owns */
	struct pool_landing *user; /* borrows; NULL: free */
	uint64_t offset;	   /* in user's file */
	size_t len, cap;	   /* bytes received, and to receive */
	int err;
	uv_work_t work;
};

void pool_chunks_init(struct pool_chunks *cs, uv_loop_t *loop)
{
	cs->loop = loop;
	cs->count = 0;
	pool_list_init(&cs->free);
}

void pool_chunks_fini(struct pool_chunks *cs)
{
	while (!pool_list_empty(&cs->free)) {
		struct pool_chunk *ch = pool_list_first(
			&cs->free, struct pool_chunk, link);

		pool_list_del(&ch->link);
		pool_map_hide(ch->buf, POOL_LANDING_CHUNK, false);
		free(ch->buf);
		free(ch);
		cs->count--;
	}
	assert(cs->count == 0);
}

static struct pool_chunk *chunk_new(struct pool_chunks *cs)
{
	struct pool_chunk *ch;

	if (cs->count >= POOL_LANDING_CHUNKS_MAX)
		return NULL;
	ch = calloc(1, sizeof(*ch));
	if (!ch)
		return NULL;
	ch->buf = aligned_alloc(POOL_LANDING_CHUNK, POOL_LANDING_CHUNK);
	if (!ch->buf) {
		free(ch);
		return NULL;
	}
	madvise(ch->buf, POOL_LANDING_CHUNK, MADV_HUGEPAGE);
	pool_map_hide(ch->buf, POOL_LANDING_CHUNK, true);
	pool_list_init(&ch->link);
	cs->count++;
	return ch;
}

/* NULL if all are in use. */
static struct pool_chunk *chunk_take(struct pool_chunks *cs)
{
	struct pool_chunk *ch;

	if (pool_list_empty(&cs->free))
		return chunk_new(cs);
	ch = pool_list_first(&cs->free, struct pool_chunk, link);
	pool_list_del(&ch->link);
	return ch;
}

static void chunk_give(struct pool_chunks *cs, struct pool_chunk *ch)
{
	ch->user = NULL;
	pool_list_add(&cs->free, &ch->link);
}

static int write_all(int fd, const uint8_t *p, size_t len, uint64_t offset)
{
	while (len > 0) {
		ssize_t r = pwrite(fd, p, len, (off_t)offset);

		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return r < 0 && errno == ENOSPC ? -ENOSPC : -EIO;
		p += r;
		len -= (size_t)r;
		offset += (uint64_t)r;
	}
	return 0;
}

/* ---- landings ---- */

int pool_landing_init(struct pool_landing *l)
{
	l->hash = XXH3_createState();
	if (!l->hash)
		return -ENOMEM;
	XXH3_128bits_reset(l->hash);
	return 0;
}

void pool_landing_fini(struct pool_landing *l)
{
	assert(l->writing == 0 && !l->chunk);
	XXH3_freeState(l->hash);
	l->hash = NULL;
}

void pool_landing_restart(struct pool_landing *l, int fd, void *mem)
{
	assert(l->writing == 0 && !l->chunk && !l->stopped);
	XXH3_128bits_reset(l->hash);
	l->got = 0;
	l->fd = fd;
	l->mem = mem;
}

static void landing_failed(struct pool_landing *l, int err)
{
	if (err && !l->status)
		l->status = err;
}

/* Calls `done` if the landing has ended. Last in its callers: l may be freed.
 */
static void landing_check(struct pool_landing *l)
{
	if (!l->stopped || l->writing > 0)
		return;
	if (l->status == 0) {
		assert(l->got == l->length);
		l->sum = XXH3_128bits_digest(l->hash);
	}
	if (l->done)
		l->done(l);
}

/* Thread: the thread pool's. */
static void chunk_write(uv_work_t *w)
{
	struct pool_chunk *ch = pool_container_of(w, struct pool_chunk, work);

	ch->err = write_all(ch->user->fd, ch->buf, ch->len, ch->offset);
}

static void chunk_written(uv_work_t *w, int status)
{
	struct pool_chunk *ch = pool_container_of(w, struct pool_chunk, work);
	struct pool_landing *l = ch->user;

	l->writing--;
	landing_failed(l, status < 0 ? -EIO : ch->err);
	chunk_give(l->chunks, ch);
	landing_check(l);
}

/* Writes the chunk, which is full or completes the range. */
static void chunk_land(struct pool_landing *l)
{
	struct pool_chunk *ch = l->chunk;

	l->chunk = NULL;
	l->writing++;
	/* The last chunk is written here: no bytes arrive meanwhile. */
	if (l->got < l->length &&
	    uv_queue_work(l->chunks->loop, &ch->work, chunk_write,
			  chunk_written) == 0)
		return;
	chunk_write(&ch->work);
	l->writing--;
	landing_failed(l, ch->err);
	chunk_give(l->chunks, ch);
}

void *pool_landing_room(struct pool_landing *l, size_t *ret_len)
{
	struct pool_chunk *ch = l->chunk;
	uint64_t got = l->got, at = l->offset + got, left = l->length - got;

	if (l->stopped || l->status || left == 0)
		return NULL;
	if (l->fd < 0) {
		*ret_len = left < SIZE_MAX ? (size_t)left : SIZE_MAX;
		return (uint8_t *)l->mem + got;
	}
	if (!ch) {
		ch = l->chunks ? chunk_take(l->chunks) : NULL;
		if (!ch)
			return NULL;
		ch->user = l;
		ch->offset = at;
		ch->len = 0;
		ch->cap = POOL_LANDING_CHUNK - at % POOL_LANDING_CHUNK;
		if (ch->cap > left)
			ch->cap = (size_t)left;
		l->chunk = ch;
	}
	*ret_len = ch->cap - ch->len;
	return ch->buf + ch->len;
}

/* The memory belongs to the reader, who may unmap it: hence the guard. */
static void land_memory(struct pool_landing *l, const void *data, size_t len)
{
	uint8_t *to = (uint8_t *)l->mem + l->got;

	if (data != to)
		landing_failed(l, pool_guard_copy(to, data, len));
}

void pool_landing_data(struct pool_landing *l, const void *data, size_t len)
{
	assert(len <= l->length - l->got);
	if (l->stopped || l->status)
		return;
	XXH3_128bits_update(l->hash, data, len);
	if (l->fd < 0)
		land_memory(l, data, len);
	else if (!l->chunk)
		landing_failed(l, write_all(l->fd, data, len,
					    l->offset + l->got));
	l->got += len;
	if (l->chunk) {
		l->chunk->len += len;
		if (l->chunk->len == l->chunk->cap)
			chunk_land(l);
	}
}

void pool_landing_stop(struct pool_landing *l, int status)
{
	if (l->stopped)
		return;
	l->stopped = true;
	landing_failed(l, status);
	if (l->chunk)
		chunk_give(l->chunks, l->chunk);
	l->chunk = NULL;
	landing_check(l);
}
