/*
 * Accounting of resources that take memory on every node and on the master, and
 * that no store's size bounds: directories, and bytes of extended attributes.
 * Both are counted in total and for each owner (uid). Files are not: the store
 * bounds them. How many names a directory has: pool_dir.nchildren (tree.h).
 *
 * The master and every mirror have the same counts. A node refuses at once what
 * exceeds a limit. The master decides: it also refuses requests that several
 * nodes granted at the same time but that exceed a limit together. Existing
 * directories and attributes (in a state, an inventory or a feed) and changes
 * of owner are counted, but never refused.
 *
 * Root and the user of this process are privileged. Directories have a limit,
 * and so have bytes. A limit of `max` means
 *
 *   the total, for requests of privileged users   max         else -ENOSPC
 *   the total, for requests of other users        7/8 of max  else -ENOSPC
 *   what one of these other users owns            1/4 of max  else -EDQUOT
 *
 * so that an eighth is left for repair by hand.
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
/* No further call of pool_quota_add or pool_quota_sub may follow. */
void pool_quota_fini(struct pool_quota *q);
/* Set the maxima; 0: the defaults above. If more is used already, nothing is
 * removed. */
void pool_quota_limit(struct pool_quota *q, uint64_t dirs, uint64_t bytes);

/* May uid use this much more? 0, -EDQUOT, -ENOSPC. A request for 0 is always
 * granted. */
int pool_quota_check(const struct pool_quota *q, uint32_t uid, uint64_t dirs,
		     uint64_t bytes);
/* Is it root, or the user of this process? */
bool pool_quota_privileged(const struct pool_quota *q, uint32_t uid);
/* The total up to which uid's requests are granted under a limit `max` (one of
 * q's or another): max if uid is privileged, else 7/8 of it. */
uint64_t pool_quota_bound(const struct pool_quota *q, uint32_t uid,
			  uint64_t max);
/* O(1). If a new owner's account cannot be allocated, only the total counts. */
void pool_quota_add(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes);
void pool_quota_sub(struct pool_quota *q, uint32_t uid, uint64_t dirs,
		    uint64_t bytes);
struct pool_usage pool_quota_of(const struct pool_quota *q, uint32_t uid);

/* For tests: are the totals and the counts of each owner equal? */
bool pool_quota_equal(struct pool_quota *a, struct pool_quota *b);

#endif
