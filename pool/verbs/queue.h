/*
 * A reliable connection (queue pair) on a loop: RDMA work requests and small
 * messages ("notes").
 *
 *   verbs_cq_open (one for each port and loop)
 *   verbs_qp_open
 *   verbs_qp_address, sent to the peer; verbs_qp_connect with the peer's
 *   verbs_qp_post ...
 *   verbs_qp_close -> closed(arg)
 *
 * The loop polls the completion channel's descriptor. The `done` of each work
 * request is called exactly once, in the order of posting, from the loop and
 * never inside verbs_qp_post. The first failure breaks the queue pair: all
 * other work ends with -ECANCELED, then on_broken is called once, and
 * verbs_qp_post returns -ENOTCONN from then on.
 *
 * A note (at most VERBS_NOTE_MAX bytes) reports that earlier writes are
 * complete: the peer receives notes in order, after the bytes written before
 * them. recv_depth receives are always posted; the device throttles a peer that
 * sends faster (RNR).
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
/* The device resends a packet that is not acked within 4.096 us << this,
 * VERBS_RETRIES times (7 means for ever on some devices); then the queue pair
 * breaks. */
#define VERBS_TIMEOUT 16u /* 268 ms */
#define VERBS_RETRIES 5u
#define VERBS_RNR_RETRIES 6u
#define VERBS_RNR_TIMER 26u /* IB encoding: 82 ms between RNR retries */
#define VERBS_FLUSH_MS 2000u /* see verbs_qp_close */

/* ---- completion queues ---- */

struct verbs_cq;

/* Opens one for `qps` queue pairs at once (1..65535), or for fewer if the
 * device's queues are shorter. 0 or -errno; -ENODEV: the port is VERBS_GONE. */
int verbs_cq_open(struct verbs_port *port, uv_loop_t *loop, unsigned int qps,
		  struct verbs_cq **ret_cq);
/* All its queue pairs must be closed. Calls closed(arg) when nothing is left on
 * the loop and cq is freed. */
void verbs_cq_close(struct verbs_cq *cq, void (*closed)(void *arg), void *arg);
/* Takes completions without waiting for the descriptor; callbacks run inside.
 * For busy-polling (pool_busy_look_for). Must not be called from a callback. */
void verbs_cq_poll(struct verbs_cq *cq);

/* ---- queue pairs ---- */

/* What the peer needs in order to connect, as sent to it. */
struct verbs_address {
	enum verbs_link link;
	uint8_t gid[16];
	uint32_t qpn; /* 24 bits */
	uint32_t psn; /* 24 bits, random */
	uint16_t lid;
	uint8_t mtu;  /* enum ibv_mtu: 1..5 */
	uint8_t reads_in, reads_out;
};

/* Validates a peer's address for a queue pair of port. NULL, or what is wrong
 * and what would be accepted: constant text. */
const char *verbs_address_wrong(const struct verbs_address *a,
				const struct verbs_port *port);

enum verbs_op { VERBS_WRITE, VERBS_READ, VERBS_SEND };

/* One work request; the caller's storage until done. */
struct verbs_work {
	enum verbs_op op;
	const void *addr; /* local; verbs_qp_post copies the bytes of a SEND */
	uint32_t lkey;	  /* unused by SEND */
	uint32_t length;  /* <= port's message_max; SEND: VERBS_NOTE_MAX */
	uint64_t remote_addr; /* unused by SEND */
	uint32_t rkey;	      /* same */
	/* status: 0; -EREMOTEIO: the peer's device rejected the access;
	 * -ETIMEDOUT: the peer does not answer; -ECANCELED: flushed after
	 * another failure or by verbs_qp_close; -EIO: the device failed, or
	 * rejected the request. */
	void (*done)(struct verbs_work *w, int status);

	/* private */
	struct pool_list link; /* waiting or posted */
	uint8_t note[VERBS_NOTE_MAX];
};

struct verbs_qp_ops {
	/* A note arrived. msg is valid until return. */
	void (*on_note)(void *arg, const void *msg, uint32_t length);
	/* err: the status of the work request that failed; -ECONNRESET: ended
	 * from outside (by the peer, through librdmacm); -EPROTO: the peer
	 * violated the protocol; -EIO: the device. It may call verbs_qp_close,
	 * and is not called after verbs_qp_close. */
	void (*on_broken)(void *arg, int err);
};

struct verbs_qp_opts {
	struct verbs_cq *cq;
	struct ibv_pd *pd; /* from the context of cq's port */
	/* IBV_ACCESS_REMOTE_WRITE, _READ: what the peer may do to memory that
	 * is registered for it in pd; 0: nothing. */
	int access;
	const struct verbs_qp_ops *ops; /* borrows for ever */
	void *arg;
	/* librdmacm's (pool/verbs/cm.h): it makes the queue pair, sets its
	 * access, and connects it instead of verbs_qp_connect. Outlives the
	 * queue pair. NULL: no librdmacm. */
	struct rdma_cm_id *cm_id;
};

struct verbs_qp;

/* 0 or -errno; -ENOSPC: the completion queue is full; -ENODEV: the device was
 * removed or failed. */
int verbs_qp_open(const struct verbs_qp_opts *opts, struct verbs_qp **ret_qp);
void verbs_qp_address(const struct verbs_qp *qp, struct verbs_address *ret);
/* Connects to the peer's address, which verbs_address_wrong has validated. 0:
 * work may be posted, and notes are received. -errno: only verbs_qp_close may
 * follow. On Ethernet this blocks while the kernel resolves the peer's hardware
 * address, for a second at most: do not call it on the node's loop. */
int verbs_qp_connect(struct verbs_qp *qp, const struct verbs_address *peer);
/* librdmacm has connected it: work may be posted from here on. (Notes may have
 * arrived before.) */
void verbs_qp_connected(struct verbs_qp *qp);
/* Posts w, or queues it while the device's send queue is full. 0, or -ENOTCONN
 * (not connected, broken or closed), and then done is not called. */
int verbs_qp_post(struct verbs_qp *qp, struct verbs_work *w);
/* Is work in flight? *ret_completed: work requests completed since the queue
 * pair was opened. If that does not change while true is returned, the work is
 * stalled. */
bool verbs_qp_in_flight(const struct verbs_qp *qp, uint64_t *ret_completed);
/* Injects a fault: moves the device's queue pair to the error state. */
void verbs_qp_inject_error(struct verbs_qp *qp);
/*
 * Closes it. Work in flight ends with -ECANCELED, later. Then closed(arg) is
 * called; the queue pair is freed, and the peer can access no memory through it
 * any more. If the device has not flushed the work within VERBS_FLUSH_MS, the
 * queue pair is destroyed first, and `done` is called after that: memory is
 * never reported free while the device may access it.
 */
void verbs_qp_close(struct verbs_qp *qp, void (*closed)(void *arg), void *arg);

#endif
