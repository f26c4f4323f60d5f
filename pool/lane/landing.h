/*
 * A landing: the range of bytes that a peer sends us, on its way into a file or
 * memory, summed while it is hot. The bytes come in order, from a connection on
 * the landing's loop.
 *
 * How bytes get into a file was chosen by measurement (one TCP connection over
 * loopback, two CPUs, a fresh 4 MiB / 32 MiB tmpfs file reserved by fallocate
 * on a huge=within_size mount, GB/s, checksum included; a plain socket moves
 * 4.5 / 2.8):
 *	recv 256 KiB, pwrite it				2.0 / 1.5
 *	recv into an mmap of the file			1.9 / 1.6
 *	recv 2 MiB, pwrite it				2.3 / 1.9
 *	the same, pwrite on another thread (this)	2.9 / 2.1
 * Whole fetches (pool_fetch_start to its callback), against a plain socket in
 * the same minutes: 2.8 of 4.2 at 4 MiB, 3.4 of 4.2 into pages written before,
 * 2.9 of 3.6 at 32 MiB.
 * A page that was reserved but never written is zeroed by the first access
 * unless that is one write of the whole (here: huge) page; so bytes are
 * gathered in chunks of 2 MiB, aligned in the file, and while the thread pool
 * writes one the next is being received. Into pages written before, mmap is
 * faster (3.8 against 3.3 at 4 MiB), but those are not the pages of a first
 * read. XXH3's vector paths, chosen at run time, take it from 12 to 30-44 GB/s.
 *
 * Thread: the loop of the connection that brings the bytes.
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
/* Chunks that the landings of one loop have together. */
#define POOL_LANDING_CHUNKS_MAX 8

/* The chunks of one loop. */
struct pool_chunks {
	uv_loop_t *loop;
	struct pool_list free; /* owns */
	unsigned int count;    /* that exist, free or in use */
};

void pool_chunks_init(struct pool_chunks *cs, uv_loop_t *loop);
/* None is in use. */
void pool_chunks_fini(struct pool_chunks *cs);

struct pool_chunk;

struct pool_landing {
	/* set by the owner */
	int fd;	   /* borrows; at `offset` of it, or if < 0 to mem */
	void *mem; /* borrows */
	uint64_t offset, length;
	/* NULL or called once after pool_landing_stop (or inside it), when
	 * nothing writes to fd or mem any more. The landing may be freed in it.
	 */
	void (*done)(struct pool_landing *l);
	/* results */
	int status;
	XXH128_hash_t sum; /* with status 0 */

	/* this module's */
	XXH3_state_t *hash;
	/* Borrows; set by the owner; NULL: write at once, so that it is over
	 * when pool_landing_stop returns. */
	struct pool_chunks *chunks;

	struct pool_chunk *chunk;   /* being filled */
	unsigned int writing;	    /* chunks in the thread pool */
	_Atomic uint64_t got; /* any thread may look */
	bool stopped;
};

/* 0 or -ENOMEM. fini may be called on a zeroed or done landing. */
int pool_landing_init(struct pool_landing *l);
void pool_landing_fini(struct pool_landing *l);

/* Nothing of it has come, after all, and it goes elsewhere (as fd, mem above).
 * Nothing is being written. */
void pool_landing_restart(struct pool_landing *l, int fd, void *mem);

/* Room for what comes next (as on_bulk_room), NULL for "hand it to me". */
void *pool_landing_room(struct pool_landing *l, size_t *ret_len);
/* The next len bytes, at data, which is in the room just given if there was
 * room. */
void pool_landing_data(struct pool_landing *l, const void *data, size_t len);
/* No more bytes will come: done with status (0: only if all have come) once the
 * writes under way have ended, or with the error that one of them met. */
void pool_landing_stop(struct pool_landing *l, int status);

#endif
