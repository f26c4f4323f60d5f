/*
 * Accounts of what a name costs every node and the master in memory, and no
 * store bounds: directories, and bytes of extended attributes. In all, and of
 * each owner (uid).
 *
 * The master and every mirror count the same. A node refuses at once; the
 * master, which decides, refuses what nodes granted side by side. What exists
 * is never refused: a state, an inventory and a feed are counted only, and so
 * is what changes its owner.
 *
 *   max    in all. Beyond it: -ENOSPC
 *   7/8    of max for those who are not privileged (root, and the user of this
 *          process): the rest is for repair by hand. Beyond it: -ENOSPC
 *   1/4    of max for one of these. Beyond it: -EDQUOT
 *
 * Thread: any; the caller serialises access to one quota (here: loop).
 */
#ifndef POOL_MODEL_QUOTA_H
#define POOL_MODEL_QUOTA_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/hash.h"

/*
 * Directories: an engine that spreads objects over directories (vLLM's fs tier)
 * makes up to 1,052,672 a model, which is within a user's share. A directory
 * takes some 300 bytes of memory, and its name.
 */
#define POOL_QUOTA_DIRS 5000000u
#define POOL_QUOTA_BYTES (256ull << 20) /* of attributes */

struct pool_usage {
	uint64_t dirs, bytes;
};

struct pool_quota {
	struct pool_usage max, used;
	struct pool_hash owners;
	uint32_t self; /* uid of this process */
};

/* Nothing is used; the maxima are those above. */
void pool_quota_init(struct pool_quota *q);
/* Nothing may be charged to it any more. */
void pool_quota_fini(struct pool_quota *q);
/* 0: as above. Less than what is used takes nothing away. */
void pool_quota_limit(struct pool_quota *q, uint64_t dirs, uint64_t bytes);

/* May uid use this much more? 0, -EDQUOT, -ENOSPC. A request for 0 is always
 * granted. */
int pool_quota_check(const struct pool_quota *q, uint32_t uid, uint64_t dirs,
		     uint64_t bytes);
/* Is it root, or the user of this process? */
bool pool_quota_privileged(const struct pool_quota *q, uint32_t uid);
/* Of another bound, `max`: the part that all users together may use when uid
 * asks: 7/8, or all of it for the privileged. */
uint64_t pool_quota_bound(const struct pool_quota *q, uint32_t uid,
			  uint64_t max);
/* O(1). An owner that there is no memory for is counted in all only. */
void pool_quota_add(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes);
void pool_quota_sub(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes);
struct pool_usage pool_quota_of(const struct pool_quota *q, uint32_t uid);

/* For tests: do the two count the same, in all and of each? */
bool pool_quota_equal(struct pool_quota *a, struct pool_quota *b);

#endif
