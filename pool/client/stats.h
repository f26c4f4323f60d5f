/*
 * A connection's accounting (kvpool_stats in kvpool.h). A call counts its keys
 * as asked for before it begins, and each under one heading when its result is
 * known. The second is a release, and kvpool_stats reads the headings first
 * (acquire), so that it never finds more results than keys.
 *
 * Thread: any.
 */
#ifndef POOL_CLIENT_STATS_H
#define POOL_CLIENT_STATS_H

#include "pool/base/metric.h"

/* Headings first: see above. */
enum client_count {
	COUNT_HITS_HERE,
	COUNT_HITS_PEER,
	COUNT_MISSES,
	COUNT_LOOKUPS_SKIPPED,
	COUNT_LOOKUPS_INVALID,
	COUNT_LOOKUPS_AWAY,
	COUNT_LOOKUPS,
	/* get: where the bytes came from, in the order of enum client_source */
	COUNT_GETS_HERE,
	COUNT_GETS_LENT,
	COUNT_GETS_TCP,
	COUNT_GETS_RDMA,
	COUNT_GETS_MISSED,
	COUNT_GETS_UNDELIVERED,
	COUNT_GETS_UNFIT,
	COUNT_GETS_INVALID,
	COUNT_GETS_FAILED,
	COUNT_BYTES_HERE,
	COUNT_BYTES_LENT,
	COUNT_BYTES_TCP,
	COUNT_BYTES_RDMA,
	COUNT_BYTES_GOT,
	COUNT_GETS,
	COUNT_PUTS_STORED,
	COUNT_PUTS_EXISTED,
	COUNT_PUTS_FULL,
	COUNT_PUTS_INVALID,
	COUNT_PUTS_FAILED,
	COUNT_BYTES_PUT,
	COUNT_PUTS,
	COUNT_RETRIES,
	CLIENT_COUNTS
};

enum client_source {
	CLIENT_HERE, /* a file of this process */
	CLIENT_LENT, /* a descriptor that a store of this host has lent */
	CLIENT_TCP,
	CLIENT_RDMA,
};

enum client_timed { TIMED_LOOKUPS, TIMED_GETS, TIMED_PUTS, CLIENT_TIMED };
#define CLIENT_TIMED_EACH 64u

struct client_stats {
	struct pool_counter at[CLIENT_COUNTS];
	struct pool_hist took[CLIENT_TIMED]; /* of one of 64 calls */
};

static inline void client_count(struct client_stats *s, enum client_count what,
				uint64_t n)
{
	if (n > 0)
		atomic_fetch_add_explicit(&s->at[what].v, n,
					  memory_order_release);
}

/* A call begins: its time, or 0 if it is not timed. Each thread times one of
 * CLIENT_TIMED_EACH of each kind, without a cache line shared with others. */
uint64_t client_timed_begin(enum client_timed kind);
/* It has ended. began 0: no-op. */
void client_timed_end(struct client_stats *s, enum client_timed kind,
		      uint64_t began);
/* 0 or -ENOMEM. */
int client_stats_register(struct client_stats *s, struct pool_metrics *m);

#endif
