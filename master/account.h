/*
 * Which account a tombstone is charged to, and which accounts could have
 * deleted a name (see master/owners.h). Both depend on the directory's mode and
 * owner at the time of the call. Known gap: a user deletes another user's
 * file; then the directory's mode or owner changes, or it is removed (rm -r);
 * then the file's tombstone is forgotten. A node that was away throughout may
 * bring that file back.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_ACCOUNT_H
#define MASTER_ACCOUNT_H

#include "master/map.h"

/* The account to charge for the tombstone of a file of uid that user `by` has
 * deleted (MASTER_UID_ANYONE: unknown). If `by` may not delete it (any more),
 * the account of `by` is charged: `by` cannot use up another user's. */
struct master_account master_account_of(struct master_map *m, const char *path,
					size_t len, uint32_t uid, uint32_t by);
/* User `by` has replaced generation gen of f's name, which uid owned, by the
 * version in f: adds a grave for uid as a former owner. No-op if uid owns that
 * version, too, or gen is 0. */
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
