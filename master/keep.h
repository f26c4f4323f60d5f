/*
 * What outlives this master: records in a state file or in etcd, and the epoch.
 * The map and the members are changed by others; these files read them, and
 * change them only while a state is loaded.
 *
 * Thread: loop; the file is synced by a worker.
 */
#ifndef MASTER_KEEP_H
#define MASTER_KEEP_H

#include "master/map.h"
#include "master/members.h"
#include "master/state.h"
#include "pool/conn/kvpool.pb-c.h"

struct master;

struct master_compaction {
	struct master_cursor cursor;
	bool walking, syncing;
	uint64_t goal;
};

/* ---- keep.c ---- */

/* Apply a record of the state to the map and members: callback of
 * master_state_open and etcd_state_replay. arg is the master. 0, -ENOMEM,
 * -EPROTO. */
int master_load_record(void *arg, const struct master_record *r);
/* Does this master have a state (file or etcd)? Otherwise master_keep* are
 * no-ops. */
bool master_keeps(const struct master *m);
/* Append a record. */
void master_keep(struct master *m, const struct master_record *r);
void master_keep_dir(struct master *m, struct master_dir *d);
/* Record for each account the time of its newest forgotten tombstone, unless
 * that is recorded already. */
void master_keep_lost(struct master *m);
void master_keep_rmdir(struct master *m, const char *path, size_t len);
void master_keep_tomb(struct master *m, const struct master_grave *g);
/*
 * Record a blind write: node `by` published the name without knowing of its
 * version replaced_gen, which had been published after a deletion.
 *
 * Why: if this master dies before `by` has the ack, `by` publishes again. The
 * next master, which knows of the deletion, would refuse that as older than the
 * deletion (-ESTALE), although perhaps no node has replaced_gen any more. The
 * record exempts the changes of `by` from that (deleted_after in ops.c). It is
 * a tombstone for generations below replaced_gen only, so a copy of
 * replaced_gen may return.
 */
void master_keep_blind(struct master *m, const char *path, size_t len,
		       uint32_t uid, const struct master_member *by,
		       uint64_t replaced_gen);
/* The node's id as by_run of a blind write's tombstone. */
uint64_t master_blind_id(const struct master_member *mb);
/* Fills all fields of g's TOMB record except the path. */
void master_keep_tomb_meta(const struct master_grave *g, Kvpool__Meta *ret);
void master_keep_member(struct master *m, const struct master_member *mb);
/* Its record; borrows from mb. */
struct master_record master_member_record(const struct master_member *mb);
void master_keep_drain(struct master *m, const struct master_member *mb);
/* Pass buffered records to the kernel, or start writing them to etcd. */
void master_keep_flush(struct master *m);
/*
 * A mark is the number of records queued for etcd so far. It is settled when
 * all these records are in etcd, and so survive this master. With a state file
 * every mark counts as settled: flushed records are in the kernel and survive
 * the process.
 */
uint64_t master_keep_mark(const struct master *m);
/* Records appended so far, to etcd or the file. */
uint64_t master_keep_changes(const struct master *m);
/* (master_keep_settled, _cost and _crowded are in impl.h.) */

/* ---- compaction.c ---- */

/* One slice; false: the walk is done. */
bool master_compaction_slice(struct master *m);
void master_compaction_start(struct master *m);

/* ---- recover.c ---- */

/* Start collecting epochs, for ms milliseconds. 0: the operator did not request
 * it; no-op. */
void master_recover_begin(struct master *m, unsigned int ms);
void master_recover_tick(struct master *m, uint64_t now_ms);
/* Is the master collecting epochs? Meanwhile JOINs are noted and refused. */
bool master_recovering(const struct master *m);
void master_recover_note(struct master *m, const Kvpool__Join *j);
/* A node has seen epoch `seen`, above ours. True: our epoch is higher now, and
 * all joined sessions have been ended. False: the operator did not allow it, or
 * it failed. */
bool master_recover_raise(struct master *m, uint64_t seen);
/* The highest epoch that the node has seen. */
uint64_t master_join_epoch(const Kvpool__Join *j);
#define MASTER_REMEDY_MAX 320
/* Why a node that has seen epoch `seen` is refused, and the remedy. */
void master_recover_remedy(const struct master *m, uint64_t seen,
			   char text[MASTER_REMEDY_MAX]);

#endif
