/*
 * Fault injection: rules that a test gives a transport. It is part of the
 * programs that ship, so that tests run the same programs. It is off unless
 * the program's options enable it (pool_faults_install). While it is off, it
 * costs one pointer test a frame.
 *
 * A transport calls pool_faults_judge for each message, before sending it and
 * when its header has arrived, and applies the verdict itself (conn/faults.c
 * for streams; lane/link.c for RDMA, where each piece of a range is a message
 * with bulk).
 *
 *   delay    the message waits, and all behind it
 *   drop     the message is lost, and all behind it on this connection: a
 *            stall. (Of a message with bulk, half of the bulk is sent.)
 *   reset    the connection is reset, in the middle of the bulk if there is any
 *   corrupt  one bit of the bulk is flipped; messages without bulk are not
 *            affected
 *
 * Thread: any; but open, install and close on main, while no other thread uses
 * the rules.
 */
#ifndef POOL_CONN_FAULT_RULES_H
#define POOL_CONN_FAULT_RULES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/base/metric.h"

#define POOL_FAULT_RULES_MAX 64
#define POOL_FAULT_PEER_MAX 255
#define POOL_FAULT_DELAY_MAX_MS 600000u

enum pool_fault_kind {
	POOL_FAULT_DELAY,
	POOL_FAULT_DROP,
	POOL_FAULT_RESET,
	POOL_FAULT_CORRUPT,
	POOL_FAULT_KINDS, /* number of kinds; as a verdict: no fault */
};
/* "delay", ... */
extern const char *const pool_fault_kind_names[POOL_FAULT_KINDS];

#define POOL_FAULT_SEND 1u
#define POOL_FAULT_RECEIVE 2u
/* Work posted to an RDMA device for a peer (pool/lane/link.h). A rule has
 * either this direction or the two above. It cannot be of kind DROP: a device
 * retransmits what is lost. */
#define POOL_FAULT_RDMA 4u

struct pool_fault_rule {
	/* "all", or the host or HOST:PORT of pool_conn_peer_name */
	char peer[POOL_FAULT_PEER_MAX + 1];
	enum pool_fault_kind kind;
	/* POOL_FAULT_SEND | POOL_FAULT_RECEIVE; or _RDMA */
	unsigned int directions;
	uint32_t delay_ms;	 /* of DELAY: 1..POOL_FAULT_DELAY_MAX_MS */
	uint64_t nth;		 /* only the nth match, from 1; 0: random */
	double probability;	 /* 0 < p <= 1, if nth is 0 */

	uint64_t seen, done; /* matching messages; faults injected */
};

struct pool_faults;

/* A set without rules. seed: for probabilities. metrics: borrows. 0 or
 * -ENOMEM. */
int pool_faults_open(struct pool_metrics *metrics, uint64_t seed,
		     struct pool_faults **ret_faults);
void pool_faults_close(struct pool_faults *f);

/* Connections made from now on use f, and borrow it until they end. NULL:
 * none. */
void pool_faults_install(struct pool_faults *f);
/* The one installed, or NULL. */
struct pool_faults *pool_faults_installed(void);

/* 0; -EINVAL (a value out of its range); -ENOSPC (POOL_FAULT_RULES_MAX). */
int pool_faults_add(struct pool_faults *f, const struct pool_fault_rule *rule);
void pool_faults_clear(struct pool_faults *f);
/* Copies of the rules as they are; returns how many. */
size_t pool_faults_list(struct pool_faults *f,
			struct pool_fault_rule rules[POOL_FAULT_RULES_MAX]);

/*
 * The fault for one message to or from peer (pool_conn_peer_name, such as
 * "10.0.0.2:7072"): that of the first rule that applies. direction: one
 * POOL_FAULT_SEND, _RECEIVE or _RDMA. *ret_delay_ms is set with
 * POOL_FAULT_DELAY.
 */
enum pool_fault_kind pool_faults_judge(struct pool_faults *f, const char *peer,
				       unsigned int direction, bool has_bulk,
				       uint32_t *ret_delay_ms);

#endif
