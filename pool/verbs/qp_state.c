/* A queue pair at its device: creating it, and its state transitions. */
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <string.h>

#include "pool/verbs/verbs_priv.h"

#define HOPS 64
#define PKEY_INDEX 0 /* the default partition */

static uint8_t lower(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

static int init(struct verbs_qp *qp)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT,
		.pkey_index = PKEY_INDEX,
		.port_num = qp->port->number,
		.qp_access_flags = (unsigned int)qp->access,
	};

	return verbs_err(ibv_modify_qp(qp->qp, &a,
				       IBV_QP_STATE | IBV_QP_PKEY_INDEX |
					       IBV_QP_PORT |
					       IBV_QP_ACCESS_FLAGS));
}

/* 0 or -errno */
static int create(struct verbs_qp *qp, uint32_t inline_max)
{
	struct ibv_qp_init_attr attr = {
		.qp_context = qp,
		.send_cq = qp->cq->cq,
		.recv_cq = qp->cq->cq,
		.cap = {
			.max_send_wr = qp->port->send_depth,
			.max_recv_wr = qp->port->recv_depth,
			.max_send_sge = 1,
			.max_recv_sge = 1,
			.max_inline_data = inline_max,
		},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};

	errno = 0;
	if (!qp->cm_id)
		qp->qp = ibv_create_qp(qp->pd, &attr);
	else if (rdma_create_qp(qp->cm_id, qp->pd, &attr) == 0)
		qp->qp = qp->cm_id->qp; /* in the state INIT */
	if (!qp->qp)
		return verbs_errno();
	qp->inline_max = attr.cap.max_inline_data;
	return 0;
}

/* No device attribute tells how many bytes a request can carry inline: tries a
 * note's size, and falls back to none. */
int verbs_qp_make(struct verbs_qp *qp)
{
	int err = create(qp, VERBS_NOTE_MAX);

	if (err == -EINVAL || err == -ENOMEM || err == -EOPNOTSUPP)
		err = create(qp, 0);
	return err || qp->cm_id ? err : init(qp);
}

static void set_route(struct ibv_ah_attr *ah, const struct verbs_qp *qp,
		      const struct verbs_address *peer)
{
	ah->port_num = qp->port->number;
	ah->dlid = peer->lid;
	if (qp->port->link != VERBS_ROCE)
		return;
	ah->dlid = 0;
	ah->is_global = 1;
	memcpy(ah->grh.dgid.raw, peer->gid, sizeof(peer->gid));
	ah->grh.sgid_index = qp->port->gid_index;
	ah->grh.hop_limit = HOPS;
}

/* Ready to receive. */
static int to_rtr(struct verbs_qp *qp, const struct verbs_address *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = lower((uint8_t)qp->port->mtu, peer->mtu),
		.dest_qp_num = peer->qpn,
		.rq_psn = peer->psn,
		.max_dest_rd_atomic = lower(qp->port->reads_in,
					    peer->reads_out),
		.min_rnr_timer = VERBS_RNR_TIMER,
	};

	set_route(&a.ah_attr, qp, peer);
	return verbs_err(ibv_modify_qp(qp->qp, &a,
				       IBV_QP_STATE | IBV_QP_AV |
					       IBV_QP_PATH_MTU |
					       IBV_QP_DEST_QPN |
					       IBV_QP_RQ_PSN |
					       IBV_QP_MAX_DEST_RD_ATOMIC |
					       IBV_QP_MIN_RNR_TIMER));
}

/* Ready to send. */
static int to_rts(struct verbs_qp *qp, const struct verbs_address *peer)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_RTS,
		.timeout = VERBS_TIMEOUT,
		.retry_cnt = VERBS_RETRIES,
		.rnr_retry = VERBS_RNR_RETRIES,
		.sq_psn = qp->psn,
		.max_rd_atomic = lower(qp->port->reads_out, peer->reads_in),
	};

	return verbs_err(ibv_modify_qp(qp->qp, &a,
				       IBV_QP_STATE | IBV_QP_TIMEOUT |
					       IBV_QP_RETRY_CNT |
					       IBV_QP_RNR_RETRY |
					       IBV_QP_SQ_PSN |
					       IBV_QP_MAX_QP_RD_ATOMIC));
}

int verbs_qp_ready(struct verbs_qp *qp, const struct verbs_address *peer)
{
	int err = to_rtr(qp, peer);

	return err ? err : to_rts(qp, peer);
}

int verbs_qp_error(struct verbs_qp *qp)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_ERR };

	return verbs_err(ibv_modify_qp(qp->qp, &a, IBV_QP_STATE));
}
