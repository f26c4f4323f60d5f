/*
 * The election: which of several masters is the leader. Keys in etcd:
 *
 *   <prefix>version  "1": format of everything below the prefix
 *   <prefix>leader   the leader's address, bound to its lease. Its create
 *                    revision is the fence: each write of the leader is
 *                    conditional on that revision, so it fails once another
 *                    leader has made the key anew
 *   <prefix>epoch    the number of the last election, raised by each
 *
 *   STANDBY --no leader: grant--> CANDIDATE --txn: leader and epoch--> LEADER
 *    ^  ^                             |                                  |
 *    |  +------ another was first ----+                 lease over, resigned,
 *    |                                                       or fenced
 *    +---------------- leader_stopped ---------------- LEAVING <---------+
 *
 * `leader` and `epoch` are written in one transaction, so epochs only grow.
 *
 * This master counts a lease from just before its request, on a clock that
 * keeps running while the process is stopped or the machine suspended. It
 * considers the lease over LEADER_MARGIN_MS before etcd can end it. Before
 * reading or sending a message, the master checks leader_acting.
 *
 * Thread: loop.
 */
#ifndef MASTER_LEADER_H
#define MASTER_LEADER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "master/etcd.h"

#define LEADER_TTL_S 3	      /* etcd's minimum is 2 */
#define LEADER_MARGIN_MS 300  /* for clock drift, and a turn of the loop */
#define LEADER_POLL_MS 200    /* interval of a standby's queries */
#define LEADER_ADDRESS_MAX 288
#define LEADER_VERSION "1"

struct leader;

struct leader_opts {
	uv_loop_t *loop;
	struct etcd *etcd;     /* borrows */
	const char *prefix;    /* borrows */
	const char *address;   /* borrows: where nodes reach this master */
	unsigned int ttl_s;    /* 0: LEADER_TTL_S */
	uint64_t epoch_max;
	struct pool_metrics *metrics; /* may be NULL */
	/* This master has become the leader. */
	void (*elected)(void *arg, uint64_t epoch, int64_t fence);
	/* It is no longer the leader: stop, then call leader_stopped. */
	void (*lost)(void *arg);
	/* The data in etcd is of another version, or damaged (logged): the
	 * program must exit. */
	void (*unusable)(void *arg);
	void *arg;
};

/*
 * Does etcd answer, and is its data of our version? Blocks for up to
 * timeout_ms; before the loop runs. 0, -EPROTO (another version) or another
 * -errno, logged with the remedy.
 */
int leader_check(struct etcd *etcd, const char *prefix,
		 unsigned int timeout_ms);

int leader_open(const struct leader_opts *opts, struct leader **ret_leader);
/* Revokes the lease, if there is one, so that another master is elected at
 * once. */
void leader_close(struct leader *l, void (*closed)(void *arg), void *arg);

/* Is this master the leader, with a lease that etcd cannot have ended yet? */
bool leader_acting(const struct leader *l);
/* Resign; lost is called before this returns. No-op if not the leader. */
void leader_resign(struct leader *l, const char *why);
/* After lost: the master has closed all sessions. It is a standby again. */
void leader_stopped(struct leader *l);

bool leader_is_leader(const struct leader *l);
/* Address of the current leader, as last seen; "" if none is known. */
const char *leader_address(const struct leader *l);
uint64_t leader_since_ms(const struct leader *l); /* pool_now_ms */

/* ---- for nodes that only look for the leader ---- */

/* The body of a txn that reads the election's keys; and the leader's address
 * from its answer: 0, -ENOENT, -EPROTO or -ENOMEM. */
json_t *leader_query(const char *prefix);
int leader_answer(const json_t *answer, char ret_address[LEADER_ADDRESS_MAX]);

#endif
