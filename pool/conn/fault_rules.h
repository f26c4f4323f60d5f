/*
 * Faults on purpose: what a test tells a transport to do wrong. A layer of the
 * programs that ship, so that what is tested is what runs; off unless the
 * program was told at its start that it may be asked for them
 * (pool_faults_install), and then no more than one pointer test a frame.
 *
 * A transport asks pool_faults_judge about each message, before it sends it
 * and when its header has arrived, and then does to the message what it is
 * told: that part is its own (conn/faults.c for streams, lane/link.c for
 * RDMA, each piece of a range being a message with bulk).
 *
 *   delay    the message, and all behind it, waits
 *   drop     its bytes vanish, and all behind it on this connection: a stall
 *            (of a message with bulk, half of the bulk still goes)
 *   reset    the connection is reset, in the middle of the bulk if there is any
 *   corrupt  one bit of the bulk is turned over; messages without bulk are
 *            left alone
 *
 * Thread: any, but open, install and close: main, before and after all others.
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
	POOL_FAULT_KINDS, /* how many; as a verdict: none */
};
/* "delay", ... */
extern const char *const pool_fault_kind_names[POOL_FAULT_KINDS];

#define POOL_FAULT_SEND 1u
#define POOL_FAULT_RECEIVE 2u
/* What is posted to an RDMA device for a peer (pool/lane/link.h): alone, and no
 * drop, which devices make up for. */
#define POOL_FAULT_RDMA 4u

struct pool_fault_rule {
	/* "all", or the host or HOST:PORT that a connection is known by */
	char peer[POOL_FAULT_PEER_MAX + 1];
	enum pool_fault_kind kind;
	/* POOL_FAULT_SEND | POOL_FAULT_RECEIVE; or _RDMA */
	unsigned int directions;
	uint32_t delay_ms;	 /* of DELAY: 1..POOL_FAULT_DELAY_MAX_MS */
	uint64_t nth;		 /* only this one, from 1; 0: by chance */
	double probability;	 /* 0 < p <= 1, if nth is 0 */

	uint64_t seen, done; /* messages that matched; faults made of them */
};

struct pool_faults;

/* No rules yet. seed: of the chances. metrics: borrows. 0 or -ENOMEM. */
int pool_faults_open(struct pool_metrics *metrics, uint64_t seed,
		     struct pool_faults **ret_faults);
void pool_faults_close(struct pool_faults *f);

/* Connections made from now on ask f (borrowed while there are any); NULL:
 * nobody. */
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
 * What is to be done to one message to or from peer (as its connection is
 * known, "10.0.0.2:7072")? The first rule that says something counts.
 * direction is one of the two. *ret_delay_ms is set with POOL_FAULT_DELAY.
 */
enum pool_fault_kind pool_faults_judge(struct pool_faults *f, const char *peer,
				       unsigned int direction, bool has_bulk,
				       uint32_t *ret_delay_ms);

#endif
