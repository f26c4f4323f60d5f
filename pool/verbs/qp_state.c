/* The states of a queue pair at its device. */
#include <errno.h>
#include <string.h>

#include "pool/verbs/priv.h"

#define HOPS 64
#define PKEY_INDEX 0 /* of the partition that all are in */

static uint8_t lower(uint8_t a, uint8_t b)
{
	return a < b ? a : b;
}

int verbs_qp_init(struct verbs_qp *qp)
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
