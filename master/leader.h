/*
 * The election: which of several masters acts.
 *
 *   <prefix>version  "1": of all that is kept below the prefix
 *   <prefix>leader   the leader's address, bound to its lease; its create
 *                    revision is the fence: what the leader writes holds only
 *                    while that key is still the one it made
 *   <prefix>epoch    the number of the last election, raised by each
 *
 *   STANDBY --no leader: grant--> CANDIDATE --txn: leader and epoch--> LEADER
 *    ^  ^                             |                                  |
 *    |  +------ another was first ----+                 lease over, resigned,
 *    |                                                       or fenced
 *    +------------------ leader_left ------------------- LEAVING <-------+
 *
 * Both keys are written in one transaction, so epochs never repeat nor go back.
 *
 * A lease is counted from before it was asked for, in time that goes on while
 * the process is stopped or the machine suspended, and ends here
 * LEADER_MARGIN_MS before etcd can end it. Whoever is about to tell somebody
 * something asks leader_acting first.
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
#define LEADER_MARGIN_MS 300  /* clocks of different speed; being slow to stop */
#define LEADER_POLL_MS 200    /* a standby looks for a leader */
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
	/* This one is the leader. */
	void (*elected)(void *arg, uint64_t epoch, int64_t fence);
	/* It is not any more: leader_left when all has been put down. */
	void (*lost)(void *arg);
	/* What is in etcd is not for this program (logged): end. */
	void (*unusable)(void *arg);
	void *arg;
};

/*
 * Is etcd there, and what is kept in it ours to use? Waits up to timeout_ms,
 * before the loop runs. 0, -EPROTO (another version) or another -errno, logged
 * with the remedy.
 */
int leader_check(struct etcd *etcd, const char *prefix,
		 unsigned int timeout_ms);

int leader_open(const struct leader_opts *opts, struct leader **ret_leader);
/* Gives the lease back, if there is one, so that another need not wait. */
void leader_close(struct leader *l, void (*closed)(void *arg), void *arg);

/* Is the lease certainly still this master's, now? */
bool leader_acting(const struct leader *l);
/* Give it up; lost is called before this returns. No-op if not the leader. */
void leader_resign(struct leader *l, const char *why);
void leader_left(struct leader *l);

bool leader_is_leader(const struct leader *l);
/* Of the present leader, as last seen; "" if there is none. */
const char *leader_address(const struct leader *l);
uint64_t leader_since_ms(const struct leader *l); /* pool_now_ms */

/* ---- for who only looks for the leader ---- */

/* The request for it, and its address from the answer: 0, -ENOENT or -EPROTO.
 */
json_t *leader_query(const char *prefix);
int leader_answer(const json_t *answer, char ret_address[LEADER_ADDRESS_MAX]);

#endif
