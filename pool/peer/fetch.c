/* The end of a fetch: at once, or after its mover has stopped writing; then its
 * callback runs. */
#include <errno.h>
#include <stdlib.h>

#include "pool/lane/link.h"
#include "pool/peer/peer_priv.h"

static void count_end(struct pool_peers *p, const struct pool_fetch_priv *x)
{
	struct peer_metrics *m = &p->metrics;

	switch (x->status) {
	case 0:
		pool_count(x->f->lent_fd >= 0 ? &m->borrowed : &m->fetched);
		break;
	case -ENOENT:
		pool_count(&m->fail_gone);
		break;
	case -ETIMEDOUT:
		pool_count(&m->fail_timeout);
		break;
	case -EBADMSG:
		pool_count(&m->fail_bad);
		break;
	case -EIO:
	case -ENOSPC:
	case -ENOMEM:
		pool_count(&m->fail_local);
		break;
	case -ECANCELED:
		pool_count(&m->fail_cancel);
		break;
	default:
		pool_count(&m->fail_conn);
		break;
	}
}

static void fetch_unlink(struct pool_fetch_priv *x)
{
	struct pool_peers *p = x->peer->p;

	pool_list_del(&x->link);
	pool_list_del(&x->due_link);
	if (x->state == PEER_FETCH_WAITING) {
		x->peer->nwaiting--;
		pool_gauge_add(&p->metrics.waiting, -1);
	}
	if (x->state != PEER_FETCH_ASKED)
		return;
	pool_hash_remove(&p->by_req, &x->node);
	if (x->chan->landing == x)
		x->chan->landing = NULL;
}

static void fetch_ended(struct pool_fetch_priv *x)
{
	struct pool_peers *p = x->peer->p;

	x->state = PEER_FETCH_ENDED;
	pool_list_add_tail(&p->finished, &x->link);
	pool_mailbox_wake(&p->box);
}

static void on_expect_done(struct pool_expect *e)
{
	struct pool_fetch_priv *x =
		pool_container_of(e, struct pool_fetch_priv, expect);

	x->expecting = false;
	x->peer->p->mover_busy[lane_index(e->number)] -= e->landing.length;
	if (x->state == PEER_FETCH_DRAINING) {
		fetch_ended(x);
		return;
	}
	if (e->landing.status == 0)
		x->f->sum = e->landing.sum;
	x->f->by_rdma = e->by_rdma;
	fetch_end(x, e->landing.status);
}

int fetch_expect(struct pool_fetch_priv *x, struct pool_lane *lane)
{
	int err;

	x->expect.lane = lane;
	x->expect.req = x->req;
	x->expect.want_pull = x->f->pull;
	x->expect.pull = x->f->pull && lane->linked[LINK_PULL];
	x->expect.buffer = !x->expect.pull && lane->linked[LINK_PUSH];
	x->expect.done = on_expect_done;
	x->expect.landing.fd = x->f->fd;
	x->expect.landing.mem = x->f->mem;
	x->expect.landing.offset = x->f->offset;
	x->expect.landing.length = x->f->length;
	err = pool_mover_expect(&x->expect);
	if (err)
		return err;
	x->expecting = true;
	x->peer->p->mover_busy[lane_index(lane->number)] += x->f->length;
	return 0;
}

void fetch_end(struct pool_fetch_priv *x, int status)
{
	if (x->state == PEER_FETCH_ENDED || x->state == PEER_FETCH_DRAINING)
		return;
	fetch_unlink(x);
	x->status = status;
	if (!x->expecting) {
		fetch_ended(x);
		return;
	}
	x->state = PEER_FETCH_DRAINING;
	pool_mover_cancel(x->expect.mover, x->cancel, x->req);
	x->cancel = NULL;
}

static void fetch_callback(struct pool_fetch_priv *x)
{
	struct peer *peer = x->peer;
	struct pool_fetch *f = x->f;
	int status = x->status;

	count_end(peer->p, x);
	peer->nfetches--;
	if (x->admitted) {
		peer->inflight--;
		pool_gauge_add(&peer->p->metrics.inflight, -1);
	}
	if (x->landing.hash)
		pool_landing_fini(&x->landing);
	free(x->cancel);
	free(x);
	f->priv = NULL;
	if (!peer->p->closing)
		peer_pump(peer);
	peer_tidy(peer);
	f->cb(f, status);
}

void peers_finish(struct pool_peers *p)
{
	while (!pool_list_empty(&p->finished)) {
		struct pool_fetch_priv *x = pool_list_first(
			&p->finished, struct pool_fetch_priv, link);

		pool_list_del(&x->link);
		fetch_callback(x);
	}
}
