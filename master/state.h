/*
 * The state file holds what inventories cannot restore after a start: the
 * epoch, members and drains, directories, tombstones.
 *
 *   "kvpool-master-state 1\n"  then records:
 *   u32 length | u32 ~length | u32 checksum | payload     (little endian)
 *
 * Append only; a later record about the same thing replaces the earlier one.
 * When most records are out of date, the caller compacts: it writes all current
 * ones to a second file, in slices, while new records go to both files. The
 * second file then replaces the first.
 *
 * Durability: after master_state_flush the kernel has the appended records, so
 * they survive the process. The disk has them after the next fdatasync, which
 * the caller runs about once a second in a worker (master_state_sync_fd).
 *
 * Failure modes: a record at the very end that a crash has torn is cut off,
 * with a warning. Damage anywhere else, another version, a record type of a
 * newer version, or a file that is not a state file is -EPROTO (the log says
 * which), and nothing is written. An upgrade therefore needs no conversion, and
 * a downgrade works until a record has been written whose type the older
 * version does not know. A write that fails (disk full) is undone and repeated
 * with the next flush; buffered records are bounded.
 *
 * Thread: loop, blocking only on the page cache (master_state_open and
 * _compact_commit: on the disk too).
 */
#ifndef MASTER_STATE_H
#define MASTER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "master/owners.h"
#include "pool/conn/kvpool.pb-c.h"

struct master_state;

enum master_record_type {
	MASTER_REC_EPOCH = 1, /* u64: this epoch has begun */
	MASTER_REC_MEMBER,    /* id, name, left_wall_ns (0: it has not
				 left), ops_run, ops_done, ops_gen; with
				 certificates: role, advertise */
	MASTER_REC_DIR,	      /* meta: a directory with its attributes;
				 base_gen: when its soft pin ends */
	MASTER_REC_RMDIR,     /* meta.path */
	MASTER_REC_TOMB,      /* meta: a tombstone, in fields that mean other
				 things elsewhere (master_keep_tomb_meta):
				   path, gen   the same
				   mtime_ns    wall_ns
				   base_gen    by_run
				   seq         by_ticket
				   seen_gen    last_gen
				   size        last_sum
				   deleted     evicted
				   set         blind
				   uid         uid + 1; MASTER_UID_ANYONE: 0
				   gid         former + given
				   mode        account.kind
				   attr_gen    account.id; of MASTER_BY_OWNER:
					       id + 1, or 0 if id is uid */
	MASTER_REC_LOST,      /* account: a tombstone of it was forgotten; u64:
				 the tombstone's time (ns since 1970) */
	MASTER_REC_DRAIN,     /* id; u64: 1 being drained, 0 no longer */
};

struct master_record {
	enum master_record_type type;
	uint64_t u64;	     /* EPOCH, LOST, MEMBER (left), DRAIN */
	struct master_account account; /* LOST */
	const uint8_t *id;   /* MEMBER, DRAIN: 16 bytes */
	const char *name;    /* MEMBER */
	uint64_t ops_run, ops_done, ops_gen; /* MEMBER: see Welcome */
	uint8_t role; /* MEMBER: enum pool_role, or 0: no certificate */
	const char *advertise; /* MEMBER with a role */
	Kvpool__Meta *meta;  /* DIR, RMDIR, TOMB */
};

/*
 * Load path (created if it does not exist): calls load for each record in order
 * (borrowed until it returns; non-zero ends the loading with that error). Then
 * raises the epoch and syncs it to the disk. Locks the file against a second
 * master (-EBUSY). 0 or -errno, logged with the remedy.
 */
int master_state_open(const char *path,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg, uint64_t *ret_epoch,
		      struct master_state **ret_state);
/* Record a higher epoch durably; blocks for the disk. 0, or -errno (logged):
 * the old epoch stays in force. */
int master_state_raise_epoch(struct master_state *s, uint64_t epoch);
/* Flushes, syncs, closes. NULL is a no-op. */
void master_state_close(struct master_state *s);

/* Buffer a record. -ENOMEM, or -ENOBUFS (writes have failed until the buffer
 * was full): a compaction is due then. */
int master_state_append(struct master_state *s, const struct master_record *r);
/* Hand what is buffered to the kernel. 0 or -errno (logged). */
int master_state_flush(struct master_state *s);
/* A duplicate of the descriptor, for a worker to fdatasync(2) and close;
 * -EAGAIN if nothing was written since the last call; other -errno. */
int master_state_sync_fd(struct master_state *s);

/* Does the file have too many out-of-date records beside `live` current ones,
 * or lack one that could not be buffered? */
bool master_state_compact_due(const struct master_state *s, uint64_t live);
/* Begin a second file. 0 or -errno (logged). */
int master_state_compact_begin(struct master_state *s);
bool master_state_compacting(const struct master_state *s);
/* A record for the second file only. */
int master_state_compact_add(struct master_state *s,
			     const struct master_record *r);
/* A duplicate of the second file's descriptor, to fdatasync before commit. */
int master_state_compact_fd(struct master_state *s);
/* Replace the first file. 0, or -errno (logged): the first file stays in
 * use. */
int master_state_compact_commit(struct master_state *s);
void master_state_compact_abort(struct master_state *s);

uint64_t master_state_records(const struct master_state *s);
uint64_t master_state_bytes(const struct master_state *s);

#endif
