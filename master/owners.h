/*
 * Accounts of tombstones by the owner of the deleted file.
 *
 * A tombstone that is forgotten to bound memory may be needed: a node that was
 * away when the name was deleted could bring it back. So what such a node has
 * of names that the map lacks is not accepted (master_owners_lost). If that
 * were decided for all names at once, any user could delete so many of his own
 * files that everybody lost what an absent node alone holds. It is decided for
 * each owner, and the owner with the most tombstones loses his oldest first.
 *
 * root and the user of this process are privileged: theirs go only once they
 * take more than half of the bound, or nobody else has any. A user who may act
 * as many (subordinate uids) can still outnumber other users, but not these.
 *
 * The most: to the power of two, so that no call depends on how many owners
 * there are. No I/O. Thread: loop.
 */
#ifndef MASTER_OWNERS_H
#define MASTER_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/hash.h"
#include "pool/base/list.h"
#include "pool/model/quota.h"

/* No uid: of an earlier version's state, or of an owner beyond the bound. What
 * is forgotten of this account is forgotten of everybody's. */
#define MASTER_UID_ANYONE UINT32_MAX
/* Some 200 bytes each. Others are counted as MASTER_UID_ANYONE. */
#define MASTER_OWNERS_MAX 262144u
#define MASTER_OWNER_CLASSES 64

enum master_owner_kind {
	MASTER_OWNER_USER,
	MASTER_OWNER_ROOT, /* or the user of this process */
	MASTER_OWNER_ANYONE, /* the last to lose a tombstone: all lose it */
	MASTER_OWNER_KINDS,
};

struct master_owner {
	struct pool_hash_node hash;
	struct pool_list link; /* in a class of master_owners, if n > 0 */
	struct pool_list tombs; /* of master_grave.own, oldest first */
	uint64_t n, bytes;
	/* Maxima over all forgotten tombstones; 0: none was. */
	uint64_t lost_wall_ns, lost_seq;
	uint64_t kept_wall_ns; /* lost_wall_ns as recorded in the state */
	struct pool_list unkept; /* in master_owners.unkept, or empty */
	struct pool_list lost;	 /* in master_owners.lost, if lost_wall_ns */
	uint32_t uid;
};

struct master_owners {
	struct pool_hash by_uid;
	struct master_owner anyone;
	/* by the log2 of the owner's weight */
	struct pool_list classes[MASTER_OWNER_KINDS][MASTER_OWNER_CLASSES];
	uint64_t weight[MASTER_OWNER_KINDS];
	struct pool_list unkept; /* owners whose lost_wall_ns is not recorded */
	struct pool_list lost;
	const struct pool_quota *quota; /* borrows: who is privileged */
};

/* quota outlives o. */
void master_owners_init(struct master_owners *o,
			const struct pool_quota *quota);
/* There are no tombstones any more. */
void master_owners_fini(struct master_owners *o);

/* The account of this uid, made if it has none; that of anyone if there is no
 * memory, or there are too many. */
struct master_owner *master_owners_of(struct master_owners *o, uint32_t uid);
/* `own` goes to the end of the owner's list; leaves it. */
void master_owner_add(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes);
void master_owner_sub(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes);
/* The oldest tombstone of the owner who is to lose one. There is one. */
struct pool_list *master_owners_victim(const struct master_owners *o,
				       uint64_t max_weight);
/* A tombstone of that time and place in the feed was forgotten. */
void master_owner_lost(struct master_owners *o, struct master_owner *w,
		       uint64_t wall_ns, uint64_t seq);
/* The maxima of what was forgotten of this owner, or of anyone. */
void master_owners_lost(const struct master_owners *o, uint32_t uid,
			uint64_t *ret_wall_ns, uint64_t *ret_seq);
/* The next owner whose lost_wall_ns is not 0 in a walk during which nothing
 * changes; after NULL: the first. NULL: no more. */
struct master_owner *master_owners_next_lost(const struct master_owners *o,
					     const struct master_owner *after);

#endif
