/* The fake's completion queues, and the execution of posted work. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/fake_verbs_priv.h"

struct pool_list fake_qps;
static bool held, muted;
static unsigned int ninline;
static unsigned int steps; /* work requests that may execute while `held` */
static unsigned int status_nth;
static enum ibv_wc_status status_forced;
static bool receive_forced;
static enum ibv_wc_opcode receive_opcode;
static uint32_t receive_len;
void (*fake_verbs_after_poll)(void);

void fake_traffic_reset(void)
{
	ninline = 0;
	pool_list_init(&fake_qps);
	held = muted = receive_forced = false;
	steps = status_nth = 0;
	fake_qp_reset();
	fake_verbs_after_poll = NULL;
}

/* ---- completion queues ---- */

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct fake_channel *ch;

	if (fake_fault_errno("ibv_create_comp_channel", ctx))
		return NULL;
	ch = calloc(1, sizeof(*ch));
	ch->ch.context = ctx;
	ch->ch.fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	fake_made(ctx, 1);
	return &ch->ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	int err = fake_fault_late("ibv_destroy_comp_channel", ch->context);

	if (ch->refcnt)
		fake_die("a channel is destroyed before its queues");
	close(ch->fd);
	fake_made(ch->context, -1);
	free(ch);
	return err;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context,
			     struct ibv_comp_channel *ch, int vector)
{
	struct fake_cq *cq;

	assert(vector == 0);
	if (fake_fault_errno("ibv_create_cq", ctx))
		return NULL;
	if (cqe < 1 || cqe > fake_device_of(ctx)->attr.max_cqe) {
		errno = EINVAL;
		return NULL;
	}
	cq = calloc(1, sizeof(*cq));
	cq->cq.context = ctx;
	cq->cq.channel = ch;
	cq->cq.cq_context = context;
	cq->cap = (unsigned int)cqe;
	cq->wcs = calloc(cq->cap, sizeof(*cq->wcs));
	ch->refcnt++;
	fake_made(ctx, 1);
	return &cq->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	int err = fake_fault_late("ibv_destroy_cq", cq->context);

	if (f->users)
		fake_die("a completion queue is destroyed before its queue "
			 "pairs");
	if (f->unacked)
		fake_die("a completion queue is destroyed with events that "
			 "nobody acknowledged: this hangs");
	cq->channel->refcnt--;
	fake_made(cq->context, -1);
	free(f->wcs);
	free(f);
	return err;
}

int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq,
		     void **context)
{
	struct fake_channel *f = (struct fake_channel *)ch;
	uint64_t one;

	if (fake_fault_errno("ibv_get_cq_event", NULL))
		return -1;
	if (read(ch->fd, &one, sizeof(one)) < 0)
		return -1;
	*cq = f->events[0];
	*context = (*cq)->cq_context;
	memmove(f->events, f->events + 1,
		--f->nevents * sizeof(struct ibv_cq *));
	((struct fake_cq *)*cq)->unacked++;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n)
{
	struct fake_cq *f = (struct fake_cq *)cq;

	if (n > f->unacked)
		fake_die("more events acknowledged than there were");
	f->unacked -= n;
}

static void complete(struct fake_cq *cq, const struct ibv_wc *wc)
{
	struct fake_channel *ch = (struct fake_channel *)cq->cq.channel;
	uint64_t one = 1;

	if (cq->n == cq->cap)
		fake_die("a completion queue overruns");
	cq->wcs[cq->n++] = *wc;
	if (!cq->armed)
		return;
	cq->armed = false;
	assert(ch->nevents < FAKE_EVENTS);
	ch->events[ch->nevents++] = &cq->cq;
	assert(write(ch->ch.fd, &one, sizeof(one)) == sizeof(one));
}

void fake_verbs_complete(struct ibv_cq *cq, const struct ibv_wc *wc)
{
	complete((struct fake_cq *)cq, wc);
}

static int poll_cq(struct ibv_cq *cq, int max, struct ibv_wc *wc)
{
	struct fake_cq *f = (struct fake_cq *)cq;
	unsigned int n = f->n < (unsigned int)max ? f->n : (unsigned int)max;
	int err;

	if (fake_fault("ibv_poll_cq", NULL, &err))
		return -err;
	memcpy(wc, f->wcs, n * sizeof(*wc));
	f->n -= n;
	memmove(f->wcs, f->wcs + n, f->n * sizeof(*wc));
	if (n < (unsigned int)max && fake_verbs_after_poll)
		fake_verbs_after_poll();
	return (int)n;
}

static int req_notify_cq(struct ibv_cq *cq, int solicited_only)
{
	int err;

	assert(!solicited_only);
	if (fake_fault("ibv_req_notify_cq", cq->context, &err))
		return err;
	((struct fake_cq *)cq)->armed = true;
	return 0;
}

/* ---- traffic ---- */

struct fake_qp *fake_qp_by_number(uint32_t qpn)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &fake_qps) {
		struct fake_qp *q = pool_list_entry(it, struct fake_qp, link);

		if (q->qp.qp_num == qpn)
			return q;
	}
	return NULL;
}

/* Completes the oldest send or receive of q. */
static void finish(struct fake_qp *q, bool send, enum ibv_wc_status status,
		   enum ibv_wc_opcode opcode, uint32_t len)
{
	struct pool_list *list = send ? &q->sends : &q->receives;
	struct fake_work *w = pool_list_first(list, struct fake_work, link);
	struct ibv_wc wc = { .wr_id = w->wr_id, .status = status,
			     .qp_num = q->qp.qp_num };

	/* After a failure, all fields but wr_id, status and qp_num are
	 * undefined. */
	wc.opcode = status ? (enum ibv_wc_opcode)0x5a : opcode;
	wc.byte_len = status ? 0x5a5a5a5a : len;
	pool_list_del(&w->link);
	free(w);
	if (send)
		q->nsends--;
	else
		q->nreceives--;
	complete((struct fake_cq *)(send ? q->qp.send_cq : q->qp.recv_cq), &wc);
}

static bool is_mute(const struct fake_qp *q)
{
	return muted || fake_device_of(q->qp.context)->gone;
}

static void flush(struct fake_qp *q)
{
	q->qp.state = IBV_QPS_ERR;
	while (!is_mute(q) && !pool_list_empty(&q->sends))
		finish(q, true, IBV_WC_WR_FLUSH_ERR, IBV_WC_SEND, 0);
	while (!is_mute(q) && !pool_list_empty(&q->receives))
		finish(q, false, IBV_WC_WR_FLUSH_ERR, IBV_WC_RECV, 0);
}

/* Delivers a SEND into the first posted receive of peer. */
static enum ibv_wc_status deliver(struct fake_qp *peer,
				  const struct fake_work *w)
{
	struct fake_work *r = pool_list_first(&peer->receives,
					      struct fake_work, link);
	enum ibv_wc_opcode opcode = IBV_WC_RECV;
	uint32_t len = w->sge.length;

	if (len > r->sge.length) {
		finish(peer, false, IBV_WC_LOC_LEN_ERR, opcode, 0);
		flush(peer);
		return IBV_WC_REM_INV_REQ_ERR;
	}
	if (!fake_region(r->sge.lkey, peer->qp.pd, r->sge.addr, len,
			 IBV_ACCESS_LOCAL_WRITE))
		fake_die("a receive into memory that is not registered");
	memcpy((void *)(uintptr_t)r->sge.addr,
	       (const void *)(uintptr_t)w->sge.addr, len);
	if (receive_forced) {
		opcode = receive_opcode;
		len = receive_len;
		receive_forced = false;
	}
	finish(peer, false, IBV_WC_SUCCESS, opcode, len);
	return IBV_WC_SUCCESS;
}

static enum ibv_wc_status copy(struct fake_qp *peer, const struct fake_work *w)
{
	bool read = w->opcode == IBV_WR_RDMA_READ;
	unsigned int access = read ? IBV_ACCESS_REMOTE_READ :
				     IBV_ACCESS_REMOTE_WRITE;
	void *there = (void *)(uintptr_t)w->remote_addr;
	void *here = (void *)(uintptr_t)w->sge.addr;

	if (!(peer->attr.qp_access_flags & access) ||
	    !fake_region(w->rkey, peer->qp.pd, w->remote_addr, w->sge.length,
			 access)) {
		flush(peer);
		return IBV_WC_REM_ACCESS_ERR;
	}
	memcpy(read ? here : there, read ? there : here, w->sge.length);
	return IBV_WC_SUCCESS;
}

/* Executes the oldest send of q. False: it must wait. */
static bool perform(struct fake_qp *q)
{
	struct fake_work *w =
		pool_list_first(&q->sends, struct fake_work, link);
	struct fake_qp *peer = fake_qp_by_number(q->attr.dest_qp_num);
	bool up = peer && !is_mute(peer) &&
		  (peer->qp.state == IBV_QPS_RTR ||
			   peer->qp.state == IBV_QPS_RTS) &&
		  peer->attr.dest_qp_num == q->qp.qp_num &&
		  peer->attr.rq_psn == q->attr.sq_psn;
	unsigned int local = w->opcode == IBV_WR_RDMA_READ ?
				     IBV_ACCESS_LOCAL_WRITE : 0;
	enum ibv_wc_status status;

	if (is_mute(q) || (held && !steps))
		return false;
	if (status_nth && --status_nth == 0)
		status = status_forced;
	else if (!w->is_inline &&
		 !fake_region(w->sge.lkey, q->qp.pd, w->sge.addr,
			      w->sge.length, local))
		status = IBV_WC_LOC_PROT_ERR;
	else if (!up)
		status = IBV_WC_RETRY_EXC_ERR;
	else if (w->opcode != IBV_WR_SEND)
		status = copy(peer, w);
	else if (pool_list_empty(&peer->receives))
		return false; /* RNR: retried when a receive is posted */
	else
		status = deliver(peer, w);
	if (steps)
		steps--;
	finish(q, true, status, IBV_WC_SEND, 0);
	if (status)
		flush(q);
	return true;
}

void fake_run(void)
{
	bool again = true;
	struct pool_list *it, *tmp;

	while (again) {
		again = false;
		pool_list_each(it, tmp, &fake_qps) {
			struct fake_qp *q = pool_list_entry(it, struct fake_qp,
							    link);

			if (q->qp.state == IBV_QPS_ERR)
				flush(q);
			else if (!pool_list_empty(&q->sends) && perform(q))
				again = true;
		}
	}
}

void fake_verbs_hold(bool hold)
{
	held = hold;
	fake_run();
}

void fake_verbs_step(unsigned int n)
{
	steps = n;
	fake_run();
	steps = 0;
}

void fake_verbs_mute(bool mute)
{
	muted = mute;
	fake_run();
}

void fake_verbs_status(unsigned int nth, enum ibv_wc_status status)
{
	status_nth = nth;
	status_forced = status;
}

void fake_verbs_receive(enum ibv_wc_opcode opcode, uint32_t byte_len)
{
	receive_forced = true;
	receive_opcode = opcode;
	receive_len = byte_len;
}

/* Inline data: copies the bytes, because the caller may reuse their memory at
 * once. */
static void take_along(const struct fake_qp *q, struct fake_work *w)
{
	assert(w->opcode == IBV_WR_SEND &&
	       w->sge.length <= q->cap.max_inline_data);
	memcpy(w->bytes, (const void *)(uintptr_t)w->sge.addr, w->sge.length);
	w->sge.addr = (uintptr_t)w->bytes;
	w->is_inline = true;
	ninline++;
}

unsigned int fake_verbs_inlined(void)
{
	return ninline;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr,
		     struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	struct fake_work *w;
	int err;

	*bad = wr;
	if (fake_fault("ibv_post_send", qp->context, &err))
		return err;
	if (qp->state != IBV_QPS_RTS && qp->state != IBV_QPS_ERR)
		return EINVAL;
	if (q->nsends == q->cap.max_send_wr)
		return ENOMEM;
	assert(!wr->next && wr->num_sge == 1 &&
	       (wr->send_flags & ~(unsigned int)IBV_SEND_INLINE) ==
		       IBV_SEND_SIGNALED);
	w = calloc(1, sizeof(*w));
	w->wr_id = wr->wr_id;
	w->opcode = wr->opcode;
	w->sge = wr->sg_list[0];
	w->remote_addr = wr->wr.rdma.remote_addr;
	w->rkey = wr->wr.rdma.rkey;
	if (wr->send_flags & IBV_SEND_INLINE)
		take_along(q, w);
	pool_list_add_tail(&q->sends, &w->link);
	q->nsends++;
	fake_run();
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr,
		     struct ibv_recv_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	struct fake_work *w;
	int err;

	*bad = wr;
	if (fake_fault("ibv_post_recv", qp->context, &err))
		return err;
	if (qp->state == IBV_QPS_RESET)
		return EINVAL;
	if (q->nreceives == q->cap.max_recv_wr)
		return ENOMEM;
	assert(!wr->next && wr->num_sge == 1);
	w = calloc(1, sizeof(*w));
	w->wr_id = wr->wr_id;
	w->sge = wr->sg_list[0];
	pool_list_add_tail(&q->receives, &w->link);
	q->nreceives++;
	fake_run();
	return 0;
}

void fake_set_ops(struct ibv_context *ctx)
{
	ctx->ops.poll_cq = poll_cq;
	ctx->ops.req_notify_cq = req_notify_cq;
	ctx->ops.post_send = post_send;
	ctx->ops.post_recv = post_recv;
}
