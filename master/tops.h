/*
 * How much is below each directory of the root. Those beyond the bound share
 * one entry, for as long as they exist.
 *
 * Thread: loop.
 */
#ifndef MASTER_TOPS_H
#define MASTER_TOPS_H

#include "pool/model/tree.h"

#define MASTER_TOPS_MAX 256u
#define MASTER_TOP_OTHERS 0 /* number of the shared entry */
#define MASTER_TOP_ROOT 1   /* of the files in the root itself */

struct master_top {
	const struct pool_entry *dir; /* borrows; NULL: free, or 0 or 1 */
	uint64_t files, bytes;
	uint64_t mtimes_s; /* sum of the files' mtimes, in seconds */
	/* Files whose last copy was evicted, since the directory was made or
	 * the master began. */
	uint64_t evicted, evicted_bytes;
};

struct master_tops {
	struct master_top list[MASTER_TOPS_MAX];
	unsigned int n; /* of them in use, without 0 and 1 */
};

/* A directory of the root was made: its number. */
uint16_t master_tops_add(struct master_tops *t, const struct pool_entry *dir);
/* It is empty, and is about to be removed. */
void master_tops_remove(struct master_tops *t, uint16_t number);

#endif
