/*
 * Which account a tombstone is charged to, and which accounts could have
 * deleted a name (see master/owners.h). Both depend on the directory's mode and
 * owner at the time of the call. Known gap: if these change after a user
 * deleted another user's file, or the directory is removed, as by rm -r, and
 * the file's tombstone is forgotten later, a node that was away all the time
 * may bring the file back.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_ACCOUNT_H
#define MASTER_ACCOUNT_H

#include "master/map.h"

/* The account to charge for the tombstone of a file of uid that user `by` has
 * deleted (MASTER_UID_ANYONE: unknown). If `by` has no permission to delete it
 * (any more), his own account is charged, so he cannot use up another's. */
struct master_account master_account_of(struct master_map *m, const char *path,
					size_t len, uint32_t uid, uint32_t by);
/* User `by` has replaced generation gen of the name, which uid owned, by f:
 * adds a grave for uid as a former owner. No-op if uid owns f, too, or gen is
 * 0. */
void master_account_replaced(struct master_map *m, const struct master_file *f,
			     uint32_t uid, uint64_t gen, uint32_t by,
			     uint64_t wall_ns);
/* For the accounts that could have deleted this name of uid: the newest time
 * (since 1970) and feed sequence of their forgotten tombstones; 0: none was
 * forgotten. */
void master_account_lost(struct master_map *m, const char *path, size_t len,
			 uint32_t uid, uint64_t *ret_wall_ns,
			 uint64_t *ret_seq);

#endif
