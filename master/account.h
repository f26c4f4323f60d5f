/*
 * On whose account a tombstone is, and which accounts could have deleted a name
 * (see master/owners.h). The two agree as long as the directory's mode and
 * owner stay the same: if somebody changes them after a deletion that another
 * user made, and that user then deletes more than the master remembers, a node
 * that was away all the time may bring that file back.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_ACCOUNT_H
#define MASTER_ACCOUNT_H

#include "master/map.h"

/* The account of the tombstone of a name that was uid's, and which user `by`
 * has deleted (MASTER_UID_ANYONE: unknown). If he may not do that (any more),
 * it is his own: he may not spend what is another's. */
struct master_account master_account_of(struct master_map *m, const char *path,
					size_t len, uint32_t uid, uint32_t by);
/* `by` has replaced what was uid's, of this generation, by f. No-op if uid owns
 * that, too, or gen is 0. */
void master_account_replaced(struct master_map *m, const struct master_file *f,
			     uint32_t uid, uint64_t gen, uint32_t by,
			     uint64_t wall_ns);
/* The newest time and feed sequence of the tombstones forgotten of the accounts
 * that could have deleted this name of uid's; 0: none was. */
void master_account_lost(struct master_map *m, const char *path, size_t len,
			 uint32_t uid, uint64_t *ret_wall_ns,
			 uint64_t *ret_seq);

#endif
