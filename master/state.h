/*
 * The state file: what no inventory brings back after a start: the epoch, who
 * was a member, directories, tombstones.
 *
 *   "kvpool-master-state 1\n"  then records:
 *   u32 length | u32 ~length | u32 checksum | payload     (little endian)
 *
 * Append only; a later record about the same thing replaces the earlier one.
 * When what is out of date outweighs the rest, the caller writes everything
 * that still holds to a second file, in slices, while new records go to both;
 * that file then takes the first one's place.
 *
 * Durability: appended records are in the kernel after master_state_flush (they
 * survive the process), on the disk after the next fdatasync, which the caller
 * has done about once a second, in a worker (master_state_sync_fd).
 *
 * Failure modes: a record torn by a crash at the very end is cut off, with a
 * warning. Damage anywhere else, another version, a record that only a newer
 * version knows, or a file that is no state is -EPROTO (logged, saying which of
 * these it is), and nothing is written: so upgrade is free, and the way back is
 * until something has been recorded that the version before does not know. A
 * write that fails (disk full) is undone and repeated with the next flush; what
 * waits is bounded.
 *
 * Thread: loop, blocking only on the page cache (master_state_open and
 * _compact_commit: on the disk too).
 */
#ifndef MASTER_STATE_H
#define MASTER_STATE_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/conn/kvpool.pb-c.h"

struct master_state;

enum master_record_type {
	MASTER_REC_EPOCH = 1, /* u64: this epoch has begun */
	MASTER_REC_MEMBER,    /* id, name, left_wall_ns (0: it is connected),
				 what it asked for and was executed */
	MASTER_REC_DIR,	      /* meta: a directory with its attributes;
				 base_gen: when its soft pin ends */
	MASTER_REC_RMDIR,     /* meta.path */
	MASTER_REC_TOMB,      /* meta.path, gen; mtime_ns: when; base_gen,
				 seq, seen_gen, deleted, size, set: the
				 grave's by_run, by_ticket, left_gen,
				 given_up, left_sum, blind */
	MASTER_REC_LOST,      /* u64: a tombstone of that time was forgotten */
	MASTER_REC_DRAIN,     /* id; u64: 1 being drained, 0 no longer */
};

struct master_record {
	enum master_record_type type;
	uint64_t u64;	     /* EPOCH, LOST, MEMBER (left), DRAIN */
	const uint8_t *id;   /* MEMBER, DRAIN: 16 bytes */
	const char *name;    /* MEMBER */
	uint64_t ops_run, ops_done, ops_gen; /* MEMBER: as Welcome's */
	Kvpool__Meta *meta;  /* DIR, RMDIR, TOMB */
};

/*
 * Load path (made if it is not there), calling load for each record in order
 * (borrowed until return; non-zero ends the loading with that error); then
 * raise the epoch and have it on the disk before returning. The file is locked
 * against a second master (-EBUSY). 0 or -errno, logged with the remedy.
 */
int master_state_open(const char *path,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg, uint64_t *ret_epoch,
		      struct master_state **ret_state);
/* Begin this epoch, higher than the one that has begun, durably. 0 or -errno,
 * logged: the old one goes on. Blocks for the disk. */
int master_state_raise_epoch(struct master_state *s, uint64_t epoch);
/* Flushes, syncs, closes. NULL is a no-op. */
void master_state_close(struct master_state *s);

/* Buffer a record. -ENOMEM, or -ENOBUFS while the disk refuses: counted in
 * master_state_lost, and a compaction is due. */
int master_state_append(struct master_state *s, const struct master_record *r);
/* Hand what is buffered to the kernel. 0 or -errno (logged). */
int master_state_flush(struct master_state *s);
/* A duplicate of the descriptor to fdatasync(2) and close, in a worker; -EAGAIN
 * if nothing was written since the last call; other -errno. */
int master_state_sync_fd(struct master_state *s);

/* Has the file outgrown what holds (live records)? */
bool master_state_compact_due(const struct master_state *s, uint64_t live);
/* Begin a second file. 0 or -errno (logged). */
int master_state_compact_begin(struct master_state *s);
bool master_state_compacting(const struct master_state *s);
/* A record for the second file only. */
int master_state_compact_add(struct master_state *s,
			     const struct master_record *r);
/* A duplicate of the second file's descriptor, to fdatasync before commit. */
int master_state_compact_fd(struct master_state *s);
/* Put it in place. 0, or -errno (logged; the first file goes on). */
int master_state_compact_commit(struct master_state *s);
void master_state_compact_abort(struct master_state *s);

uint64_t master_state_records(const struct master_state *s);
uint64_t master_state_bytes(const struct master_state *s);
uint64_t master_state_lost(const struct master_state *s);

#endif
