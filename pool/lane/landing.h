/*
 * A landing: writes a range that arrives from a peer to a file or to memory,
 * and computes its checksum while the bytes are in the CPU's cache. The bytes
 * arrive in order. The holder sends no checksum: if the range is the whole
 * object, the caller compares the result with the object's checksum. A put of
 * libkvpool (pool/client/move.c) also computes that by a landing.
 *
 * Bytes are gathered in 2 MiB chunks aligned in the file, which a worker writes
 * while the next chunk arrives (measurements: landing.c).
 *
 * Thread: the loop of the connection that delivers the bytes.
 */
#ifndef POOL_LANE_LANDING_H
#define POOL_LANE_LANDING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>
#include <xxhash.h>

#include "pool/base/list.h"

#define POOL_LANDING_CHUNK ((size_t)2 << 20)
/* Chunks that all landings of one loop share. */
#define POOL_LANDING_CHUNKS_MAX 8

/* The chunks of one loop. */
struct pool_chunks {
	uv_loop_t *loop;
	struct pool_list free; /* owns */
	unsigned int count;    /* allocated, free or in use */
};

void pool_chunks_init(struct pool_chunks *cs, uv_loop_t *loop);
/* No chunk may be in use. */
void pool_chunks_fini(struct pool_chunks *cs);

struct pool_chunk;

struct pool_landing {
	/* set by the owner */
	int fd;	   /* borrows; writes at `offset`; < 0: writes to mem */
	void *mem; /* borrows */
	uint64_t offset, length;
	/* NULL, or called once, inside pool_landing_stop or later, when nothing
	 * writes to fd or mem any more. May free the landing. */
	void (*done)(struct pool_landing *l);
	/* results */
	int status;
	XXH128_hash_t sum; /* valid if status is 0 */

	/* this module's */
	XXH3_state_t *hash;
	/* Borrows; set by the owner. NULL: write each piece at once, so that
	 * `done` is called inside pool_landing_stop. */
	struct pool_chunks *chunks;

	struct pool_chunk *chunk;   /* being filled */
	unsigned int writing;	    /* chunks in the thread pool */
	_Atomic uint64_t got; /* bytes received; any thread may read */
	bool stopped;
};

/* init: 0 or -ENOMEM. fini: l is zeroed, or done. */
int pool_landing_init(struct pool_landing *l);
void pool_landing_fini(struct pool_landing *l);

/* Discards what was received and starts again with another target (fd, mem as
 * above). No write may be in flight. */
void pool_landing_restart(struct pool_landing *l, int fd, void *mem);

/* Where to receive the next bytes (as on_bulk_room); NULL: into a buffer of the
 * connection, to be passed to pool_landing_data. */
void *pool_landing_room(struct pool_landing *l, size_t *ret_len);
/* Lands the next len bytes. data points into the room that pool_landing_room
 * returned, if it returned any. */
void pool_landing_data(struct pool_landing *l, const void *data, size_t len);
/* Ends the landing with status (0 only if all bytes arrived), or with the error
 * of a write that failed. `done` is called when no write is in flight. */
void pool_landing_stop(struct pool_landing *l, int status);

#endif
