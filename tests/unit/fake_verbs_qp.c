/* The fake's queue pairs: creation, state transitions, destruction. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "tests/unit/fake_verbs_priv.h"

static uint32_t next_qpn;
static struct fake_qp *last;

void fake_qp_reset(void)
{
	next_qpn = 17;
	last = NULL;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *attr)
{
	struct fake_qp *q;

	if (fake_fault_errno("ibv_create_qp", pd->context))
		return NULL;
	assert(attr->qp_type == IBV_QPT_RC);
	assert(pd->context == attr->send_cq->context);
	if (attr->cap.max_inline_data >
	    fake_device_of(pd->context)->inline_max) {
		errno = EINVAL;
		return NULL;
	}
	attr->cap.max_inline_data = fake_device_of(pd->context)->inline_max;
	q = calloc(1, sizeof(*q));
	q->qp.context = pd->context;
	q->qp.qp_context = attr->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = attr->send_cq;
	q->qp.recv_cq = attr->recv_cq;
	q->qp.qp_num = next_qpn++;
	q->qp.state = IBV_QPS_RESET;
	q->cap = attr->cap;
	pool_list_init(&q->sends);
	pool_list_init(&q->receives);
	pool_list_add_tail(&fake_qps, &q->link);
	((struct fake_cq *)attr->send_cq)->users++;
	((struct fake_pd *)pd)->users++;
	fake_made(pd->context, 1);
	last = q;
	return &q->qp;
}

/* The attributes and the previous state that each transition requires. */
static int check_step(const struct fake_qp *q, enum ibv_qp_state to, int mask)
{
	static const int masks[] = {
		[IBV_QPS_INIT] = IBV_QP_PKEY_INDEX | IBV_QP_PORT |
				 IBV_QP_ACCESS_FLAGS,
		[IBV_QPS_RTR] = IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
				IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
				IBV_QP_MIN_RNR_TIMER,
		[IBV_QPS_RTS] = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
				IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
				IBV_QP_MAX_QP_RD_ATOMIC,
	};

	if (to == IBV_QPS_ERR)
		return mask == IBV_QP_STATE ? 0 : EINVAL;
	if (to > IBV_QPS_RTS || (int)q->qp.state != (int)to - 1 ||
	    mask != (masks[to] | IBV_QP_STATE))
		return EINVAL;
	return 0;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	int err;

	if (fake_fault("ibv_modify_qp", qp->context, &err))
		return err;
	err = check_step(q, a->qp_state, mask);
	if (err)
		return err;
	if (a->qp_state == IBV_QPS_INIT) {
		q->attr.port_num = a->port_num;
		q->attr.qp_access_flags = a->qp_access_flags;
	} else if (a->qp_state == IBV_QPS_RTR) {
		q->attr.ah_attr = a->ah_attr;
		q->attr.path_mtu = a->path_mtu;
		q->attr.dest_qp_num = a->dest_qp_num;
		q->attr.rq_psn = a->rq_psn;
		q->attr.max_dest_rd_atomic = a->max_dest_rd_atomic;
		q->attr.min_rnr_timer = a->min_rnr_timer;
	} else if (a->qp_state == IBV_QPS_RTS) {
		q->attr.timeout = a->timeout;
		q->attr.retry_cnt = a->retry_cnt;
		q->attr.rnr_retry = a->rnr_retry;
		q->attr.sq_psn = a->sq_psn;
		q->attr.max_rd_atomic = a->max_rd_atomic;
	}
	qp->state = a->qp_state;
	fake_run();
	return 0;
}

static void drop(struct pool_list *list)
{
	while (!pool_list_empty(list)) {
		struct fake_work *w =
			pool_list_first(list, struct fake_work, link);

		pool_list_del(&w->link);
		free(w);
	}
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	int err = fake_fault_late("ibv_destroy_qp", qp->context);

	if (q->unacked)
		fake_die("a queue pair is destroyed with events that nobody "
			 "acknowledged: this hangs");
	drop(&q->sends);
	drop(&q->receives);
	pool_list_del(&q->link);
	((struct fake_cq *)qp->send_cq)->users--;
	((struct fake_pd *)qp->pd)->users--;
	fake_made(qp->context, -1);
	if (last == q)
		last = NULL;
	free(q);
	return err;
}

struct ibv_qp *fake_verbs_last_qp(void)
{
	return &last->qp;
}

const struct ibv_qp_attr *fake_verbs_qp_attr(uint32_t qpn)
{
	return &fake_qp_by_number(qpn)->attr;
}

/* ---- librdmacm ---- */

int rdma_create_qp(struct rdma_cm_id *id, struct ibv_pd *pd,
		   struct ibv_qp_init_attr *attr)
{
	if (fake_fault_errno("rdma_create_qp", pd->context))
		return -1;
	id->qp = ibv_create_qp(pd, attr);
	if (!id->qp)
		return -1;
	id->qp->state = IBV_QPS_INIT;
	((struct fake_qp *)id->qp)->attr.qp_access_flags =
		IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
	return 0;
}

void rdma_destroy_qp(struct rdma_cm_id *id)
{
	(void)ibv_destroy_qp(id->qp);
	id->qp = NULL;
}
