/*
 * A queue pair. Happy path: verbs_qp_post appends work to `waiting`; push()
 * posts as much as the device's send queue holds and moves it to `posted`; it
 * completes in that order (verbs_qp_completed). Receives are always posted;
 * each is posted again after its note was handled.
 *
 * Failure: every failure moves the device's queue pair to the error state, in
 * which the device flushes all posted work. Then the waiting work ends, and
 * on_broken is called (verbs_qp_settle). If the device does not flush in time,
 * the queue pair is destroyed first, after which the device accesses no memory.
 */
#include <assert.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/verbs/verbs_priv.h"

#define SLOT_BITS 16

/* wr_id identifies the queue pair and the receive (0: a send). The serial
 * number tells a queue pair from earlier ones in its slot. */
static uint64_t wr_id_of(const struct verbs_qp *qp, uint32_t receive)
{
	return (uint64_t)qp->serial << 32 | (uint64_t)qp->slot << SLOT_BITS |
	       receive;
}

struct verbs_qp *verbs_qp_of(const struct verbs_cq *cq, uint64_t wr_id)
{
	uint32_t slot = (uint32_t)wr_id >> SLOT_BITS;
	struct verbs_qp *qp = slot < cq->qps_max ? cq->qps[slot] : NULL;

	return qp && qp->serial == (uint32_t)(wr_id >> 32) ? qp : NULL;
}

static struct verbs_work *first_of(struct pool_list *list)
{
	return pool_list_empty(list) ?
		       NULL :
		       pool_list_first(list, struct verbs_work, link);
}

/* ---- posting ---- */

static uint8_t *note_at(const struct verbs_qp *qp, uint32_t i)
{
	return qp->notes + (size_t)i * VERBS_NOTE_MAX;
}

/* Posts receive i, from 1. 0 or -errno */
static int post_receive(struct verbs_qp *qp, uint32_t i)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)note_at(qp, i - 1),
		.length = VERBS_NOTE_MAX,
		.lkey = qp->notes_mr->lkey,
	};
	struct ibv_recv_wr *bad, wr = {
		.wr_id = wr_id_of(qp, i),
		.sg_list = &sge,
		.num_sge = 1,
	};
	int err = verbs_err(ibv_post_recv(qp->qp, &wr, &bad));

	if (!err)
		qp->nreceives++;
	return err;
}

static int post_receives(struct verbs_qp *qp)
{
	int err = 0;

	for (uint32_t i = 1; i <= qp->port->recv_depth && !err; i++)
		err = post_receive(qp, i);
	return err;
}

/* Copies a note to a registered buffer. There are send_depth buffers, and at
 * most send_depth requests are posted, so the next buffer is free. */
static void place_note(struct verbs_qp *qp, const struct verbs_work *w,
		       struct ibv_sge *sge)
{
	uint32_t i = qp->next_note++ % qp->port->send_depth;
	uint8_t *note = note_at(qp, qp->port->recv_depth + i);

	memcpy(note, w->note, w->length);
	sge->addr = (uintptr_t)note;
	sge->lkey = qp->notes_mr->lkey;
}

static int post_work(struct verbs_qp *qp, const struct verbs_work *w)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[VERBS_WRITE] = IBV_WR_RDMA_WRITE,
		[VERBS_READ] = IBV_WR_RDMA_READ,
		[VERBS_SEND] = IBV_WR_SEND,
	};
	struct ibv_sge sge = {
		.addr = (uintptr_t)w->addr,
		.length = w->length,
		.lkey = w->lkey,
	};
	struct ibv_send_wr *bad, wr = {
		.wr_id = wr_id_of(qp, 0),
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = opcodes[w->op],
		.send_flags = IBV_SEND_SIGNALED,
	};

	if (w->op == VERBS_SEND && w->length <= qp->inline_max) {
		sge.addr = (uintptr_t)w->note;
		wr.send_flags |= IBV_SEND_INLINE;
	} else if (w->op == VERBS_SEND) {
		place_note(qp, w, &sge);
	} else {
		wr.wr.rdma.remote_addr = w->remote_addr;
		wr.wr.rdma.rkey = w->rkey;
	}
	return verbs_err(ibv_post_send(qp->qp, &wr, &bad));
}

/* Posts waiting work, as much as the send queue holds. */
static void push(struct verbs_qp *qp)
{
	struct verbs_work *w;
	int err;

	while (qp->state == VERBS_QP_READY &&
	       qp->nposted < qp->port->send_depth &&
	       (w = first_of(&qp->waiting))) {
		err = post_work(qp, w);
		if (err) {
			pool_warn_limited(
				"RDMA device %s: cannot post work: %s; %s",
				qp->port->device, strerror(-err),
				verbs_remedy(err));
			qp->refused = -EIO;
			verbs_qp_break(qp, -EIO);
			return;
		}
		pool_list_del(&w->link);
		pool_list_add_tail(&qp->posted, &w->link);
		qp->nposted++;
	}
}

/* ---- completions ---- */

static int status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return 0;
	case IBV_WC_REM_INV_REQ_ERR:
	case IBV_WC_REM_ACCESS_ERR:
	case IBV_WC_REM_OP_ERR:
	case IBV_WC_REM_INV_RD_REQ_ERR:
	case IBV_WC_REM_ABORT_ERR:
		return -EREMOTEIO;
	case IBV_WC_RETRY_EXC_ERR:
	case IBV_WC_RNR_RETRY_EXC_ERR:
	case IBV_WC_RESP_TIMEOUT_ERR:
		return -ETIMEDOUT;
	case IBV_WC_WR_FLUSH_ERR:
		return -ECANCELED;
	default:
		return -EIO;
	}
}

/* Breaks qp. A flush as the first bad completion means that the connection was
 * ended from outside (-ECONNRESET), unless a later one shows another reason. */
static void break_by(struct verbs_qp *qp, int status)
{
	if (qp->state != VERBS_QP_BROKEN)
		verbs_qp_break(qp, status == -ECANCELED ? -ECONNRESET : status);
	else if (qp->err == -ECONNRESET && status != -ECANCELED)
		qp->err = status;
}

static void work_completed(struct verbs_qp *qp, const struct ibv_wc *wc)
{
	struct verbs_work *w = first_of(&qp->posted);
	int status = status_of(wc->status);

	if (!w)
		return; /* a completion of nothing posted: device bug */
	pool_list_del(&w->link);
	qp->nposted--;
	if (status)
		break_by(qp, status);
	else
		verbs_port_worked(qp->port);
	qp->ncompleted++;
	push(qp);
	w->done(w, status);
}

static void receive_completed(struct verbs_qp *qp, const struct ibv_wc *wc)
{
	uint32_t i = (uint16_t)wc->wr_id;

	if (qp->nreceives == 0 || i > qp->port->recv_depth)
		return;
	qp->nreceives--;
	/* The peer sent more than a note, or a WRITE with immediate data, which
	 * also consumes a receive (its byte_len counts the written bytes). */
	if (wc->status == IBV_WC_LOC_LEN_ERR ||
	    (wc->status == IBV_WC_SUCCESS &&
	     (wc->opcode != IBV_WC_RECV || wc->byte_len > VERBS_NOTE_MAX))) {
		break_by(qp, -EPROTO);
		return;
	}
	if (wc->status != IBV_WC_SUCCESS) {
		break_by(qp, status_of(wc->status));
		return;
	}
	verbs_port_worked(qp->port);
	if (!qp->closing)
		qp->ops->on_note(qp->arg, note_at(qp, i - 1), wc->byte_len);
	if (qp->state != VERBS_QP_BROKEN && post_receive(qp, i))
		verbs_qp_break(qp, -EIO);
}

void verbs_qp_completed(struct verbs_qp *qp, const struct ibv_wc *wc)
{
	if (!qp->qp)
		return; /* destroyed: its work has been ended */
	if ((uint16_t)wc->wr_id)
		receive_completed(qp, wc);
	else
		work_completed(qp, wc);
}

/* ---- teardown ---- */

/* Has the device flush all posted work, and puts qp into cq->ending. If the
 * device rejects that, the queue pair is destroyed without waiting. */
static void flush(struct verbs_qp *qp)
{
	struct verbs_cq *cq = qp->cq;
	int err = qp->qp ? verbs_qp_error(qp) : 0;

	qp->state = VERBS_QP_BROKEN;
	qp->deadline_ms = err ? 0 : pool_now_ms() + VERBS_FLUSH_MS;
	pool_list_del(&qp->link);
	pool_list_add_tail(&cq->ending, &qp->link);
	verbs_cq_soon(cq);
}

void verbs_qp_break(struct verbs_qp *qp, int err)
{
	if (qp->state == VERBS_QP_BROKEN)
		return;
	qp->err = err;
	verbs_port_failed(qp->port);
	flush(qp);
}

static void destroy(struct verbs_qp *qp)
{
	int err = 0;

	if (!qp->qp)
		return;
	if (qp->cm_id)
		rdma_destroy_qp(qp->cm_id);
	else
		err = verbs_err(ibv_destroy_qp(qp->qp));
	if (err)
		pool_warn_limited(
			"RDMA device %s: cannot destroy a queue pair: %s",
			qp->port->device, strerror(-err));
	qp->qp = NULL;
	qp->nposted = qp->nreceives = 0;
}

static bool drained(const struct verbs_qp *qp)
{
	return qp->nposted == 0 && qp->nreceives == 0;
}

static void end_work(struct pool_list *list, int status)
{
	struct verbs_work *w;

	while ((w = first_of(list))) {
		pool_list_del(&w->link);
		w->done(w, status);
		status = -ECANCELED;
	}
}

static void qp_free(struct verbs_qp *qp)
{
	destroy(qp);
	if (qp->notes_mr && ibv_dereg_mr(qp->notes_mr))
		pool_warn_limited(
			"RDMA device %s: cannot deregister the notes",
			qp->port->device);
	if (qp->cq->qps[qp->slot] == qp) {
		qp->cq->qps[qp->slot] = NULL;
		qp->cq->nqps--;
	}
	pool_list_del(&qp->link);
	free(qp->notes);
	free(qp);
}

void verbs_qp_settle(struct verbs_qp *qp, uint64_t now_ms)
{
	void (*closed)(void *arg);
	void *arg;

	if (!drained(qp)) {
		if (!qp->cq->dead && now_ms < qp->deadline_ms)
			return;
		destroy(qp);
	}
	end_work(&qp->posted, -ECANCELED);
	end_work(&qp->waiting, qp->refused ? qp->refused : -ECANCELED);
	if (!qp->closing && !qp->break_reported) {
		qp->break_reported = true;
		qp->ops->on_broken(qp->arg, qp->err);
	}
	if (!qp->closing) {
		pool_list_del(&qp->link); /* until it is closed */
		return;
	}
	closed = qp->closed;
	arg = qp->closed_arg;
	qp_free(qp);
	closed(arg);
}

void verbs_qp_close(struct verbs_qp *qp, void (*closed)(void *arg), void *arg)
{
	assert(!qp->closing);
	qp->closing = true;
	qp->closed = closed;
	qp->closed_arg = arg;
	if (qp->state != VERBS_QP_BROKEN) {
		flush(qp);
		return;
	}
	pool_list_del(&qp->link);
	pool_list_add_tail(&qp->cq->ending, &qp->link);
	verbs_cq_soon(qp->cq);
}

void verbs_qp_break_async(struct verbs_qp *qp, int err)
{
	atomic_store(&qp->async_err, err);
	uv_async_send(&qp->cq->async);
}

/* ---- open ---- */

/* 0 or -ENOSPC */
static int take_slot(struct verbs_cq *cq, struct verbs_qp *qp)
{
	unsigned int i = 0;

	while (i < cq->qps_max && cq->qps[i])
		i++;
	if (i == cq->qps_max)
		return -ENOSPC;
	qp->slot = i;
	qp->serial = ++cq->serial;
	cq->qps[i] = qp;
	cq->nqps++;
	return 0;
}

/* Allocates and registers the buffers for notes. 0 or -errno */
static int make_notes(struct verbs_qp *qp)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t size = ((size_t)qp->port->recv_depth + qp->port->send_depth) *
		      VERBS_NOTE_MAX;

	size = (size + page - 1) / page * page;
	qp->notes = aligned_alloc(page, size);
	if (!qp->notes)
		return -ENOMEM;
	memset(qp->notes, 0, size);
	errno = 0;
	qp->notes_mr = ibv_reg_mr(qp->pd, qp->notes, size,
				  IBV_ACCESS_LOCAL_WRITE);
	return qp->notes_mr ? 0 : verbs_errno();
}

static int verbs_qp_build(struct verbs_qp *qp)
{
	int err = take_slot(qp->cq, qp);

	if (!err)
		err = make_notes(qp);
	if (!err)
		err = verbs_qp_make(qp);
	if (!err)
		err = post_receives(qp);
	return err;
}

int verbs_qp_open(const struct verbs_qp_opts *opts, struct verbs_qp **ret_qp)
{
	struct verbs_qp *qp;
	int err;

	assert(!opts->cq->closing);
	if (opts->cq->dead)
		return -ENODEV;
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return -ENOMEM;
	qp->cq = opts->cq;
	qp->port = opts->cq->port;
	qp->pd = opts->pd;
	qp->cm_id = opts->cm_id;
	qp->ops = opts->ops;
	qp->arg = opts->arg;
	qp->access = opts->access;
	qp->psn = (uint32_t)pool_random_u64() & 0xffffff;
	pool_list_init(&qp->posted);
	pool_list_init(&qp->waiting);
	pool_list_init(&qp->link);
	err = verbs_qp_build(qp);
	if (err) {
		pool_warn_limited("RDMA device %s: cannot create a queue "
				  "pair: %s; %s",
				  qp->port->device, strerror(-err),
				  verbs_remedy(err));
		qp_free(qp);
		return err;
	}
	*ret_qp = qp;
	return 0;
}

void verbs_qp_address(const struct verbs_qp *qp, struct verbs_address *ret)
{
	const struct verbs_port *p = qp->port;

	memset(ret, 0, sizeof(*ret));
	ret->link = p->link;
	memcpy(ret->gid, p->gid.raw, sizeof(ret->gid));
	ret->qpn = qp->qp ? qp->qp->qp_num : 0;
	ret->psn = qp->psn;
	ret->lid = p->lid;
	ret->mtu = (uint8_t)p->mtu;
	ret->reads_in = p->reads_in;
	ret->reads_out = p->reads_out;
}

int verbs_qp_connect(struct verbs_qp *qp, const struct verbs_address *peer)
{
	int err;

	if (qp->state != VERBS_QP_OPENED)
		return -ENOTCONN;
	err = verbs_qp_ready(qp, peer);
	if (!err)
		qp->state = VERBS_QP_READY;
	return err;
}

void verbs_qp_connected(struct verbs_qp *qp)
{
	if (qp->state == VERBS_QP_OPENED)
		qp->state = VERBS_QP_READY;
}

bool verbs_qp_in_flight(const struct verbs_qp *qp, uint64_t *ret_completed)
{
	*ret_completed = qp->ncompleted;
	return qp->nposted > 0;
}

void verbs_qp_inject_error(struct verbs_qp *qp)
{
	if (qp->state == VERBS_QP_READY)
		(void)verbs_qp_error(qp);
}

int verbs_qp_post(struct verbs_qp *qp, struct verbs_work *w)
{
	if (qp->state != VERBS_QP_READY)
		return -ENOTCONN;
	if (w->op == VERBS_SEND) {
		assert(w->length <= VERBS_NOTE_MAX);
		memcpy(w->note, w->addr, w->length);
	} else {
		assert(w->length <= qp->port->message_max);
	}
	pool_list_add_tail(&qp->waiting, &w->link);
	push(qp);
	return 0;
}
