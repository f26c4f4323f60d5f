/*
 * A reliable connection (queue pair) on a loop: work requests that move bytes,
 * small messages both ways, and its end.
 *
 *   verbs_cq_open (one a port and loop) -> verbs_qp_open -> verbs_qp_address,
 *   told to the peer; the peer's: verbs_qp_connect -> verbs_qp_post ... ->
 *   verbs_qp_close -> closed(arg)
 *
 * Completions enter the loop through the completion channel's descriptor. A
 * work request's done is called exactly once, in the order of posting, from the
 * loop and never from inside verbs_qp_post. The first that fails breaks the
 * queue pair: every other ends with -ECANCELED, on_broken is called once, after
 * them, and verbs_qp_post says -ENOTCONN from then on.
 *
 * Messages (of VERBS_NOTE_MAX bytes at most) are for telling that what was
 * written before them is there: a peer receives them in order, and after the
 * bytes. Receives are posted ahead, recv_depth of them; a peer that sends
 * faster is held back by the device (RNR).
 *
 * Thread: the loop's.
 */
#ifndef POOL_VERBS_QUEUE_H
#define POOL_VERBS_QUEUE_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/list.h"
#include "pool/verbs/device.h"

#define VERBS_NOTE_MAX 64u
/* A packet not acknowledged for 4.096 us << this is sent again, VERBS_RETRIES
 * times (7 means for ever on some devices); then the peer is taken for dead. */
#define VERBS_TIMEOUT 16u /* 268 ms */
#define VERBS_RETRIES 5u
#define VERBS_RNR_RETRIES 6u
#define VERBS_RNR_TIMER 26u /* of enum: 82 ms between these */
#define VERBS_FLUSH_MS 2000u

/* ---- completion queues ---- */

struct verbs_cq;

/* Room for completions of `qps` queue pairs at once (1..65535), fewer where the
 * device has none for so many. 0 or -errno; -ENODEV: the port is VERBS_GONE. */
int verbs_cq_open(struct verbs_port *port, uv_loop_t *loop, unsigned int qps,
		  struct verbs_cq **ret_cq);
/* Every queue pair on it is closed. closed(arg) when nothing is left on the
 * loop; then it is freed. */
void verbs_cq_close(struct verbs_cq *cq, void (*closed)(void *arg), void *arg);
struct verbs_port *verbs_cq_port(const struct verbs_cq *cq);
/* Take what has come, without waiting for the descriptor to tell: callbacks run
 * inside. For busy-polling (pool_busy_look_for); not from one of them. */
void verbs_cq_poll(struct verbs_cq *cq);

/* ---- queue pairs ---- */

/* What a peer has to know of one, as it goes over the wire. */
struct verbs_address {
	enum verbs_link link;
	uint8_t gid[16];
	uint32_t qpn; /* 24 bits */
	uint32_t psn; /* 24 bits, random */
	uint16_t lid;
	uint8_t mtu;  /* enum ibv_mtu: 1..5 */
	uint8_t reads_in, reads_out;
};

/* NULL or what is wrong with an address from outside, for one of port: constant
 * text with what is accepted. */
const char *verbs_address_wrong(const struct verbs_address *a,
				const struct verbs_port *port);

enum verbs_op { VERBS_WRITE, VERBS_READ, VERBS_SEND };

/* One work request; the caller's storage until done. */
struct verbs_work {
	enum verbs_op op;
	const void *addr; /* local; of a SEND: copied by verbs_qp_post */
	uint32_t lkey;	  /* not of a SEND */
	uint32_t length;  /* <= port's message_max; of a SEND VERBS_NOTE_MAX */
	uint64_t remote_addr; /* not of a SEND */
	uint32_t rkey;	      /* same */
	/* 0; -EREMOTEIO: the peer's memory refused it; -ETIMEDOUT: the peer
	 * does not answer; -ECANCELED: flushed, after another failed or by the
	 * end; -EIO: the device, or what we asked of it. */
	void (*done)(struct verbs_work *w, int status);

	/* the queue's */
	struct pool_list link; /* waiting or posted */
	uint8_t note[VERBS_NOTE_MAX];
};

struct verbs_qp_ops {
	/* msg: borrowed until return. */
	void (*on_note)(void *arg, const void *msg, uint32_t length);
	/* Why: as of the work request that failed; -ECONNRESET: it was ended
	 * from outside (the peer, by librdmacm); -EPROTO: the peer sent what it
	 * may not; -EIO: the device. Not after verbs_qp_close. It may call
	 * that. */
	void (*on_broken)(void *arg, int err);
};

struct verbs_qp_opts {
	struct verbs_cq *cq;
	struct ibv_pd *pd; /* of the cq's port's context */
	/* IBV_ACCESS_REMOTE_WRITE, _READ: what the peer may do to memory of pd
	 * that is registered for it; 0: nothing. */
	int access;
	const struct verbs_qp_ops *ops; /* borrows for ever */
	void *arg;
	/* Made by librdmacm (pool/verbs/cm.h), which connects it: takes the
	 * place of verbs_qp_connect, and access is what librdmacm gives.
	 * Outlives the queue pair. NULL: by ourselves. */
	struct rdma_cm_id *cm_id;
};

struct verbs_qp;

/* 0 or -errno; -ENOSPC: the completion queue has all it has room for; -ENODEV:
 * the device has gone. */
int verbs_qp_open(const struct verbs_qp_opts *opts, struct verbs_qp **ret_qp);
void verbs_qp_address(const struct verbs_qp *qp, struct verbs_address *ret);
/* The peer's, which has been checked (verbs_address_wrong). 0 or -errno: it can
 * only be closed then. Work may be posted from here on, and what the peer sends
 * is received. On Ethernet the kernel finds the peer's hardware address
 * meanwhile, for a second at most: so not on the node's loop. */
int verbs_qp_connect(struct verbs_qp *qp, const struct verbs_address *peer);
/* Connected by librdmacm: work may be posted from here on. (What the peer sends
 * may have come before.) */
void verbs_qp_connected(struct verbs_qp *qp);
/* Queues w; more than the device takes at once wait here. 0 or -ENOTCONN (not
 * connected, broken or closed: done is not called). */
int verbs_qp_post(struct verbs_qp *qp, struct verbs_work *w);
bool verbs_qp_usable(const struct verbs_qp *qp);
/* Is there work that the device has not ended? How much has ended, ever: who
 * sees the same twice, with a while and true between, sees that nothing moves.
 */
bool verbs_qp_in_flight(const struct verbs_qp *qp, uint64_t *ret_completed);
/* For tests: its device breaks it, which is then noticed. */
void verbs_qp_inject_error(struct verbs_qp *qp);
/*
 * Ends it: what is under way ends with -ECANCELED, later; after that nothing
 * can be written by the peer any more, and closed(arg) is called, and it is
 * freed. If the device says nothing for VERBS_FLUSH_MS, it is not waited for:
 * no work is reported as ended before the queue pair is destroyed.
 */
void verbs_qp_close(struct verbs_qp *qp, void (*closed)(void *arg), void *arg);

#endif
