/*
 * The inside of pool/verbs/.
 *
 *   device.c   finds and opens the ports (gid.c: chooses their addresses;
 *              show.c: prints them)
 *   watch.c    events of devices and ports
 *   region.c   registered memory; cache.c: registrations kept for reuse
 *   cm.c       connections by librdmacm
 *   cq.c       a completion queue on a loop
 *   qp.c       a queue pair: work, notes, teardown (qp_state.c: its states at
 *              the device)
 */
#ifndef POOL_VERBS_VERBS_PRIV_H
#define POOL_VERBS_VERBS_PRIV_H

#include <infiniband/verbs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/list.h"
#include "pool/verbs/device.h"
#include "pool/verbs/queue.h"

/* Converts the result of a call that returns 0 or an errno (a few providers: -1
 * and errno) to 0 or -errno; never to 0 for a failure. */
int verbs_err(int rc);
/* -errno after a failed call that sets errno; -EIO if it did not. */
int verbs_errno(void);

/* ---- devices ---- */

struct verbs_dev {
	struct verbs *verbs;
	struct ibv_context *ctx; /* owns, unless cm; NULL: not open */
	bool cm;		 /* ctx belongs to librdmacm */
	uv_poll_t poll;		 /* its asynchronous events */
	bool watched;		 /* poll is open */
	char path[IBV_SYSFS_PATH_MAX + 32]; /* its directory in sysfs */
	uint64_t ino; /* of that directory at the start; 0: none */
};

/* A port, used or not. */
struct verbs_entry {
	struct verbs_port port;
	struct verbs_dev *dev; /* NULL: not open */
	const char *link;      /* its type as constant text */
	enum ibv_port_state state;
	bool has_gid;
};

struct verbs {
	struct verbs_dev devs[VERBS_PORTS_MAX];
	unsigned int ndevs;
	struct verbs_entry entries[VERBS_PORTS_MAX];
	unsigned int n;
	struct ibv_context **cm; /* owns; librdmacm's list, or NULL */
	unsigned int busy_us;

	uv_timer_t check; /* checks for devices removed without an event */
	unsigned int handles; /* open on the loop */
	void (*closed)(void *arg);
	void *closed_arg;
};

#define VERBS_GID_TEXT 48
/* The best address of a port; NULL: none is usable. */
const struct ibv_gid_entry *verbs_gid_choose(const struct ibv_gid_entry *gids,
					     size_t n, uint32_t port,
					     enum verbs_link link);
/* Writes "10.0.0.1" or "fe80::1" to buf of VERBS_GID_TEXT bytes; returns buf.
 */
char *verbs_gid_format(const uint8_t gid[16], char *buf);

/* ---- completion queues ---- */

struct verbs_cq {
	struct verbs_port *port; /* borrows */
	uv_loop_t *loop;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uv_poll_t poll;	  /* channel's descriptor */
	uv_idle_t more;	  /* active: process the queue in the next turn */
	uv_timer_t timer; /* active: a queue pair waits to be drained */
	uv_async_t async; /* other threads set device_gone, async_err */
	unsigned int handles; /* open on the loop */
	struct verbs_qp **qps; /* owns the array; by slot */
	unsigned int qps_max, nqps;
	uint32_t serial;	 /* of the last queue pair */
	struct pool_list ending; /* broken or closing ones; verbs_qp.link */
	bool turning;		 /* inside turn(), which may call callbacks */
	bool dead;		 /* nothing will complete any more */
	_Atomic bool device_gone; /* set by any thread, with `async` */
	struct pool_list link;	 /* in port->cqs, under its lock */
	bool closing;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* Processes the queue in the next turn of the loop. */
void verbs_cq_soon(struct verbs_cq *cq);
/* The device is gone. Thread: any that holds port->lock; cq is in port->cqs. */
void verbs_cq_device_gone(struct verbs_cq *cq);

/* ---- queue pairs ---- */

enum verbs_qp_state {
	VERBS_QP_OPENED, /* not connected */
	VERBS_QP_READY,
	VERBS_QP_BROKEN, /* or closing: posted work is flushed, none is sent */
};

/*
 * A broken or closing queue pair is in cq->ending until it is drained (the
 * device has completed everything posted), or its deadline has passed and it
 * was destroyed:
 *
 *   READY --break--> BROKEN --drained--> break_reported --close--> freed
 *     +-----close--> BROKEN, closing --drained-------------------> freed
 */
struct verbs_qp {
	struct verbs_cq *cq;
	struct verbs_port *port;
	struct ibv_qp *qp; /* owns (cm_id: through it); NULL: destroyed */
	struct ibv_pd *pd;
	struct rdma_cm_id *cm_id;
	const struct verbs_qp_ops *ops;
	void *arg;
	int access;
	uint32_t serial, psn;
	unsigned int slot; /* in cq->qps */
	enum verbs_qp_state state;
	int err; /* why it is broken */
	int refused; /* -errno: the device refused the first of `waiting` */
	bool break_reported; /* on_broken was called */
	bool closing;
	uint8_t *notes; /* owns; recv_depth, then send_depth of NOTE_MAX */
	struct ibv_mr *notes_mr;
	uint32_t inline_max; /* bytes that a request can carry itself */
	uint32_t nposted, nreceives; /* owned by the device now */
	uint64_t ncompleted; /* work requests since it was opened */
	uint32_t next_note; /* next send buffer in `notes` */
	struct pool_list posted, waiting; /* verbs_work.link */
	struct pool_list link; /* in cq->ending */
	uint64_t deadline_ms;
	_Atomic int async_err; /* -errno set by another thread, or 0 */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* The queue pair of a completion; NULL if it has been freed. */
struct verbs_qp *verbs_qp_of(const struct verbs_cq *cq, uint64_t wr_id);
void verbs_qp_completed(struct verbs_qp *qp, const struct ibv_wc *wc);
void verbs_qp_break(struct verbs_qp *qp, int err);
/* For one in cq->ending: ends its work and reports it broken or closed, if it
 * is drained or its deadline has passed. closed(arg) may run inside. */
void verbs_qp_settle(struct verbs_qp *qp, uint64_t now_ms);
/* As verbs_qp_break, from any thread, while it handles an asynchronous event of
 * qp: until that event is acknowledged (ibv_ack_async_event), qp exists. */
void verbs_qp_break_async(struct verbs_qp *qp, int err);

/* qp_state.c: makes it, connects it, moves it to the error state. 0 or -errno
 */
int verbs_qp_make(struct verbs_qp *qp);
int verbs_qp_ready(struct verbs_qp *qp, const struct verbs_address *peer);
int verbs_qp_error(struct verbs_qp *qp);

#endif
