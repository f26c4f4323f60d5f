/*
 * The state in etcd instead of in a file (master/state.h), for several masters:
 * the next leader loads what the last one wrote.
 *
 *   <prefix>state/tomb/PATH, dir/PATH, member/ID, drain/ID, lost, lost/UID,
 *   and of a former owner of a name: tomb/PATH//UID
 *
 * Each value is a whole record in the file's format (master/state_rec.h), whose
 * checksum detects damage. A newer record overwrites the older one's key; keys
 * of removed directories and forgotten tombstones are deleted. So there is
 * nothing to compact.
 *
 * Loading comes first, page by page. Then records are queued and written in
 * order, in transactions of at most ETCD_STATE_BATCH operations, one at a time.
 * etcd accepts one operation per key in a transaction, so only the newest
 * record of each key is written: nobody sees the state between two records of
 * one transaction. Each is guarded by the leader's fence, so that a former
 * leader writes nothing. A failed one is retried until it succeeds or the lease
 * ends. Each also writes <prefix>state/last, and requires that its revision is
 * that of the transaction before: one that timed out, and reaches etcd after
 * its retry, changes nothing.
 *
 * The queue holds at most ETCD_STATE_QUEUE_MAX bytes. If a record cannot be
 * queued, `failed` is called and the leader must resign. Changes whose records
 * were not written have not been acked (etcd_state_settled), so the nodes send
 * them to the next leader.
 *
 * Thread: loop.
 */
#ifndef MASTER_ETCD_STATE_H
#define MASTER_ETCD_STATE_H

#include "master/etcd.h"
#include "master/state.h"
#include "pool/conn/wire.h"

struct master_grave;

#define ETCD_STATE_BATCH 100u /* etcd's own limit is 128 */
#define ETCD_STATE_BATCH_BYTES (512u << 10) /* before base64; etcd's limit is
					       1.5 MiB */
#define ETCD_STATE_MERGED 4096u /* records of a transaction, with older ones */
#define ETCD_STATE_PAGE 1000u
/* Queued bytes beyond which nothing that can wait appends records. */
#define ETCD_STATE_CROWDED (2u << 20)
#define ETCD_STATE_QUEUE_MAX (32u << 20)
#define ETCD_STATE_UNIT POOL_OPS_STATE_UNIT /* bytes of etcd_state_cost */

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
	/* err 0: etcd_state_replay may be called; or -errno */
	void (*loaded)(void *arg, int err);
	/* etcd_state_settled has grown. */
	void (*settled)(void *arg);
	/* A record cannot be written: the leader must resign. `why` is
	 * borrowed. Called in a later turn, or inside append or forget. */
	void (*failed)(void *arg, const char *why);
	void *arg;
};

int etcd_state_stats_register(struct etcd_state_stats *st,
			      struct pool_metrics *m);
/* Starts loading: loaded is called once, later. 0 or -errno of etcd_start. */
int etcd_state_open(const struct etcd_state_opts *opts,
		    struct etcd_state **ret_state);
/* No callback runs after it returns; queued records are discarded. NULL:
 * no-op. */
void etcd_state_close(struct etcd_state *s);

/* Calls load for each loaded record: tombstones, directories, the time of
 * forgotten tombstones, members, drains. Stops at the first error of load.
 * -EPROTO also for a damaged record (logged, naming its key). */
int etcd_state_replay(struct etcd_state *s,
		      int (*load)(void *arg, const struct master_record *r),
		      void *arg);

/* Queue a record. */
void etcd_state_append(struct etcd_state *s, const struct master_record *r);
/* Queue the deletion of this tombstone. */
void etcd_state_forget(struct etcd_state *s, const struct master_grave *g);
/* Start writing the queue, unless a transaction is in flight or a retry is not
 * due yet. */
void etcd_state_flush(struct etcd_state *s);
/* What the records so far have cost: each 1, and 1 for each ETCD_STATE_UNIT
 * bytes of it. */
uint64_t etcd_state_cost(const struct etcd_state *s);
bool etcd_state_is_crowded(const struct etcd_state *s);
/* How many records have been queued so far, and how many of these, in order,
 * are in etcd. */
uint64_t etcd_state_mark(const struct etcd_state *s);
uint64_t etcd_state_settled(const struct etcd_state *s);

#endif
