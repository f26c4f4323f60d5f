/*
 * The state in etcd: what master/state.h keeps in a file, for masters that take
 * over from each other.
 *
 *   <prefix>state/tomb/PATH, dir/PATH, member/ID, drain/ID, lost
 *
 * Each value is a whole record as the file has it (master/state_rec.h), so that
 * damage is noticed. What is newer replaces what it is about; a removed
 * directory and a forgotten tombstone are deleted: there is nothing to compact.
 *
 * Loading comes first, page by page. Then records are queued and written in
 * their order, in transactions of at most ETCD_STATE_BATCH operations, one at a
 * time, each guarded by the leader's fence: one that is leader no more writes
 * nothing. One that failed is repeated until it is done or the lease is over.
 *
 * The queue holds at most ETCD_STATE_QUEUE_MAX bytes. If something cannot be
 * queued, `failed` is called: the leader has to resign. Nothing of it was
 * answered (etcd_state_settled), so the nodes ask the next leader.
 *
 * Thread: loop.
 */
#ifndef MASTER_ETCD_STATE_H
#define MASTER_ETCD_STATE_H

#include "master/etcd.h"
#include "master/state.h"

#define ETCD_STATE_BATCH 100u /* etcd's own limit is 128 */
#define ETCD_STATE_BATCH_BYTES (512u << 10) /* of 1.5 MiB, in base64 */
#define ETCD_STATE_PAGE 1000u
#define ETCD_STATE_QUEUE_MAX (8u << 20)

struct etcd_state;

struct etcd_state_stats {
	struct pool_counter written, failed;
	struct pool_gauge queued, queued_bytes;
};

struct etcd_state_opts {
	struct etcd *etcd;  /* borrows */
	const char *prefix; /* borrows */
	int64_t fence;	    /* create revision of <prefix>leader */
	struct etcd_state_stats *stats; /* borrows */
	/* 0: etcd_state_replay may be called; or -errno */
	void (*loaded)(void *arg, int err);
	/* etcd_state_settled has grown. */
	void (*settled)(void *arg);
	/* See above; borrowed text. From a later turn, or inside append. */
	void (*failed)(void *arg, const char *why);
	void *arg;
};

int etcd_state_stats_register(struct etcd_state_stats *st,
			      struct pool_metrics *m);
/* Begins to load: loaded is called once, later. 0 or -ENOMEM. */
int etcd_state_open(const struct etcd_state_opts *opts,
		    struct etcd_state **ret_state);
/* No callback after it returns; what is queued is forgotten. NULL: no-op. */
void etcd_state_close(struct etcd_state *s);

/* Each loaded record: tombstones, directories, members. What load returns ends
 * it; -EPROTO also for a damaged one (logged, naming its key). */
int etcd_state_replay(struct etcd_state *s,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg);

/* Queue a record. */
void etcd_state_append(struct etcd_state *s, const struct master_record *r);
/* The map has forgotten this tombstone. */
void etcd_state_forget(struct etcd_state *s, const char *path, size_t len);
/* Write what is queued, if nothing is being written. */
void etcd_state_flush(struct etcd_state *s);
/* How many have been queued, and how many of them, from the first on, will
 * outlive this master. */
uint64_t etcd_state_mark(const struct etcd_state *s);
uint64_t etcd_state_settled(const struct etcd_state *s);

#endif
