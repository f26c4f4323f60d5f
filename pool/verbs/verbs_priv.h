/*
 * What the files of pool/verbs/ share.
 *
 *   device.c   which ports there are, and which are used (gid.c: by which
 *              address; show.c: as text)
 *   watch.c    what happens to them later
 *   region.c   memory registered; cache.c: kept registered
 *   cq.c       a completion queue on a loop: its turns
 *   qp.c       a queue pair: work, messages, its end (qp_state.c: connecting)
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

/* Of a call that returns an errno (a few providers: -1 and errno): 0 or -errno,
 * never 0 for a failure. */
int verbs_err(int rc);
/* Of a call that has failed and left its reason in errno. */
int verbs_errno(void);

/* ---- devices ---- */

struct verbs_dev {
	struct verbs *verbs;
	struct ibv_context *ctx; /* owns, unless cm; NULL: not opened */
	bool cm;		 /* librdmacm's, which keeps it */
	uv_poll_t poll;		 /* of its asynchronous events */
	bool watched;		 /* poll is on the loop */
	char path[IBV_SYSFS_PATH_MAX + 32]; /* its directory in sysfs, */
	uint64_t ino; /* and that at the start; 0: there is none */
};

/* A port as found, used or not. */
struct verbs_entry {
	struct verbs_port port;
	struct verbs_dev *dev; /* NULL: it could not be opened */
	const char *link;      /* constant */
	enum ibv_port_state state;
	bool has_gid;
};

struct verbs {
	struct verbs_dev devs[VERBS_PORTS_MAX];
	unsigned int ndevs;
	struct verbs_entry entries[VERBS_PORTS_MAX];
	unsigned int n;
	struct ibv_context **cm; /* librdmacm's list, or NULL */
	unsigned int busy_us;

	uv_timer_t look; /* for devices that have gone and told nobody */
	unsigned int handles;
	void (*closed)(void *arg);
	void *closed_arg;
};

#define VERBS_GID_TEXT 48
/* The best of the addresses of a port; NULL: none is any good. */
const struct ibv_gid_entry *verbs_gid_choose(const struct ibv_gid_entry *gids,
					     size_t n, uint32_t port,
					     enum verbs_link link);
bool verbs_gid_unicast(const uint8_t gid[16]);
/* "10.0.0.1" or "fe80::1" into buf of VERBS_GID_TEXT; returns buf. */
char *verbs_gid_format(const uint8_t gid[16], char *buf);

/* ---- completion queues ---- */

struct verbs_cq {
	struct verbs_port *port; /* borrows */
	uv_loop_t *loop;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	uv_poll_t poll;	  /* channel's descriptor */
	/* active: there is something to do in the next turn */
	uv_idle_t more;
	uv_timer_t timer; /* active: somebody waits for what may never come */
	uv_async_t async; /* other threads': see below */
	unsigned int handles;
	struct verbs_qp **qps; /* owns the array; by slot */
	unsigned int qps_max, nqps;
	uint32_t serial;	 /* of the last queue pair */
	struct pool_list ending; /* broken or closing ones; verbs_qp.link */
	bool turning;		 /* inside callbacks */
	bool dead;		 /* nothing will complete any more */
	_Atomic bool device_gone; /* any thread: it is to be */
	struct pool_list link;	 /* in port->cqs, under its lock */
	bool closing;
	void (*closed)(void *arg);
	void *closed_arg;
};

/* Another turn of the loop looks after it. */
void verbs_cq_soon(struct verbs_cq *cq);
/* Any thread, while it is in port->cqs (that lock held): the device is gone. */
void verbs_cq_device_gone(struct verbs_cq *cq);

/* ---- queue pairs ---- */

enum verbs_qp_state {
	VERBS_QP_OPENED, /* not connected */
	VERBS_QP_READY,
	/* or closing: what is posted comes back, nothing goes */
	VERBS_QP_BROKEN,
};

/*
 * A broken or closing one is in cq->ending until it is drained (all that the
 * device had is back), or its deadline has passed and it was destroyed:
 *
 *   READY --break--> BROKEN --drained--> told --close--> (in ending) --> freed
 *     +-----close--> BROKEN, closing --drained-------------------------> freed
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
	/* why the device did not take the first that waits, or 0 */
	int refused;
	bool break_reported; /* on_broken was called */
	bool closing;
	uint8_t *notes; /* owns; recv_depth, then send_depth of NOTE_MAX */
	struct ibv_mr *notes_mr;
	/* bytes that a request takes along, not registered */
	uint32_t inline_max;
	uint32_t nposted, nreceives; /* with the device */
	uint64_t ncompleted; /* work requests, ever */
	uint32_t next_note;
	struct pool_list posted, waiting; /* verbs_work.link */
	struct pool_list link; /* in cq->ending */
	uint64_t deadline_ms;
	_Atomic int async_err; /* -errno from another thread */
	void (*closed)(void *arg);
	void *closed_arg;
};

/* The queue pair of a completion; NULL if it was destroyed before. */
struct verbs_qp *verbs_qp_of(const struct verbs_cq *cq, uint64_t wr_id);
void verbs_qp_completed(struct verbs_qp *qp, const struct ibv_wc *wc);
void verbs_qp_break(struct verbs_qp *qp, int err);
/* Of one in cq->ending: on as far as it goes. closed(arg) may run inside. */
void verbs_qp_settle(struct verbs_qp *qp, uint64_t now_ms);
/* Any thread, between getting and acknowledging an event of it. */
void verbs_qp_break_async(struct verbs_qp *qp, int err);

/* qp_state.c: 0 or -errno */
int verbs_qp_make(struct verbs_qp *qp);
int verbs_qp_ready(struct verbs_qp *qp, const struct verbs_address *peer);
int verbs_qp_error(struct verbs_qp *qp);

#endif
