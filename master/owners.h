/*
 * Accounts of tombstones, by who could have deleted the file.
 *
 * A tombstone that is forgotten to bound memory may still be needed: a node
 * that was away when the name was deleted could bring it back. Once tombstones
 * have been forgotten, the master therefore refuses such a node's copies of
 * names that the map lacks (master_owners_lost). If it refused copies of all
 * names, one user could delete so many files that the files of other users were
 * lost if only an absent node holds them. So copies are refused by account, and
 * the account with the most tombstones loses its oldest first: a user who
 * deletes many files endangers only names that he is free to delete
 * (account.c).
 *
 * The accounts of root and of the user of this process are privileged: their
 * tombstones are forgotten only if they take more than half of the bound, or if
 * no other user has any. A user with many uids (subordinate uids) can still
 * crowd out other users, but not the privileged accounts.
 *
 * Accounts are compared by log2 of their weight, so that each call is O(1).
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_OWNERS_H
#define MASTER_OWNERS_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/hash.h"
#include "pool/base/list.h"
#include "pool/model/quota.h"

/* Not a user: the account of tombstones whose user is not known (the state of
 * an earlier version) or has no account (MASTER_OWNERS_MAX). If one of these is
 * forgotten, every account counts as having lost it. */
#define MASTER_UID_ANYONE UINT32_MAX
/* Accounts, of some 200 bytes each. Without memory for one, or beyond this
 * bound, tombstones go to the account of MASTER_UID_ANYONE. */
#define MASTER_OWNERS_MAX 262144u
#define MASTER_OWNER_CLASSES 64

/* What permitted a deletion. */
enum master_account_kind {
	MASTER_BY_OWNER, /* by the file's owner, or by root */
	MASTER_BY_DIR,	 /* by the directory's owner */
	MASTER_BY_GROUP, /* the directory is writable by its group */
	MASTER_BY_ALL,	 /* it is writable by everybody */
	MASTER_BY_GROUPS, /* as BY_GROUP, for users in each of several groups */
	MASTER_BY_KINDS,
};

struct master_account {
	uint32_t id; /* BY_OWNER: uid or MASTER_UID_ANYONE; BY_DIR: uid;
			BY_GROUP: gid; BY_ALL: 0; BY_GROUPS: hash of gids */
	uint8_t kind; /* enum master_account_kind */
};

static inline bool master_account_same(struct master_account a,
				       struct master_account b)
{
	return a.kind == b.kind && a.id == b.id;
}

static inline struct master_account master_account_of_owner(uint32_t uid)
{
	return (struct master_account){ uid, MASTER_BY_OWNER };
}

enum master_owner_kind {
	MASTER_OWNER_USER,
	MASTER_OWNER_ROOT, /* or the user of this process */
	MASTER_OWNER_ANYONE, /* loses tombstones last: this affects all */
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
	struct master_account account;
};

struct master_owners {
	struct pool_hash by_account;
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

/* The owner with this account, allocated if it is new; &o->anyone if there is
 * no memory, or there are MASTER_OWNERS_MAX. */
struct master_owner *master_owners_of(struct master_owners *o,
				      struct master_account a);
/* Adds a tombstone (`own` is its master_grave.own) of this size at the end of
 * w's list / removes it. */
void master_owner_add(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes);
/* Frees w if this was its last one, and none was forgotten. */
void master_owner_sub(struct master_owners *o, struct master_owner *w,
		      struct pool_list *own, uint64_t bytes);
/* The tombstone to forget next: the oldest one of the owner with the most, as
 * described above. There must be one. max_weight: the bound, in bytes. */
struct pool_list *master_owners_victim(const struct master_owners *o,
				       uint64_t max_weight);
/* A tombstone of w was forgotten. wall_ns: its time, since 1970; seq: its
 * feed sequence. */
void master_owner_lost(struct master_owners *o, struct master_owner *w,
		       uint64_t wall_ns, uint64_t seq);
/* Raises *wall_ns and *seq to their maxima over the forgotten tombstones of
 * this account and of MASTER_UID_ANYONE's. */
void master_owners_lost(const struct master_owners *o, struct master_account a,
			uint64_t *wall_ns, uint64_t *seq);
/* Walks the owners whose lost_wall_ns is not 0: the one after `after`; NULL:
 * the first. Returns NULL at the end. Nothing may change during the walk. */
struct master_owner *master_owners_next_lost(const struct master_owners *o,
					     const struct master_owner *after);

#endif
