/*
 * A completion queue on a loop. turn() polls it: when the channel's descriptor
 * becomes readable; in the next turn of the loop, while there are more
 * completions; and on a timer, while a queue pair waits to be drained.
 *
 * The queue is re-armed (ibv_req_notify_cq) before it is polled for the last
 * time, so that a completion after that poll raises an event.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/busy.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/verbs/verbs_priv.h"

#define PER_TURN 64u /* completions before the loop serves others */
#define PER_POLL 16u
#define EVENTS_PER_TURN 64u
#define WAIT_MS 100u /* between checks of queue pairs that drain */

/* ---- completions ---- */

static void cq_fail(struct verbs_cq *cq, const char *what, int err)
{
	if (cq->dead)
		return;
	cq->dead = true;
	pool_warn("RDMA device %s/%u: %s: %s; closing its connections",
		  cq->port->device, cq->port->number, what, strerror(-err));
	uv_poll_stop(&cq->poll);
	for (unsigned int i = 0; i < cq->qps_max; i++)
		if (cq->qps[i])
			verbs_qp_break(cq->qps[i], -EIO);
}

/* Handles at most PER_TURN completions. Returns whether there may be more. */
static bool take(struct verbs_cq *cq)
{
	struct ibv_wc wc[PER_POLL];
	unsigned int left = PER_TURN;

	while (left >= PER_POLL && !cq->dead && !cq->closing) {
		int n = ibv_poll_cq(cq->cq, PER_POLL, wc);

		if (n < 0) {
			cq_fail(cq, "cannot poll the completion queue", -EIO);
			return false;
		}
		for (int i = 0; i < n; i++) {
			struct verbs_qp *qp = verbs_qp_of(cq, wc[i].wr_id);

			if (qp)
				verbs_qp_completed(qp, &wc[i]);
		}
		if (n > 0)
			pool_busy_touch(cq->loop);
		if (n < (int)PER_POLL)
			return false;
		left -= (unsigned int)n;
	}
	return !cq->dead && !cq->closing;
}

/* Settles each queue pair in cq->ending. Uses a separate list, because
 * callbacks may close queue pairs, and open and break others. */
static void reap(struct verbs_cq *cq)
{
	struct pool_list now;

	pool_list_init(&now);
	pool_list_splice(&now, &cq->ending);
	while (!pool_list_empty(&now)) {
		struct verbs_qp *qp =
			pool_list_first(&now, struct verbs_qp, link);

		pool_list_del(&qp->link);
		pool_list_add_tail(&cq->ending, &qp->link);
		verbs_qp_settle(qp, pool_now_ms());
	}
}

static void on_timer(uv_timer_t *t);

static void turn(struct verbs_cq *cq)
{
	bool more;

	if (cq->turning || cq->closing)
		return;
	cq->turning = true;
	more = take(cq);
	reap(cq);
	cq->turning = false;
	if (cq->closing)
		return;
	if (more)
		verbs_cq_soon(cq);
	if (pool_list_empty(&cq->ending))
		uv_timer_stop(&cq->timer);
	else if (!uv_is_active((uv_handle_t *)&cq->timer))
		uv_timer_start(&cq->timer, on_timer, WAIT_MS, WAIT_MS);
}

void verbs_cq_poll(struct verbs_cq *cq)
{
	turn(cq);
}

/* ---- events ---- */

/* 0 or -errno */
static int take_events(struct verbs_cq *cq)
{
	struct ibv_cq *event_cq;
	unsigned int n = 0;
	void *context;
	int err = 0;

	while (n < EVENTS_PER_TURN && !err) {
		if (ibv_get_cq_event(cq->channel, &event_cq, &context))
			err = verbs_errno();
		else
			n++;
	}
	if (n > 0)
		ibv_ack_cq_events(cq->cq, n);
	if (err && err != -EAGAIN && err != -EINTR)
		return err;
	return n > 0 ? verbs_err(ibv_req_notify_cq(cq->cq, 0)) : 0;
}

static void on_readable(uv_poll_t *h, int status, int events)
{
	struct verbs_cq *cq = h->data;
	int err = status ? status : take_events(cq);

	(void)events;
	if (err)
		cq_fail(cq, "cannot read completion events", err);
	turn(cq);
}

static void on_more(uv_idle_t *h)
{
	uv_idle_stop(h);
	turn(h->data);
}

static void on_timer(uv_timer_t *t)
{
	turn(t->data);
}

void verbs_cq_soon(struct verbs_cq *cq)
{
	if (!cq->closing)
		uv_idle_start(&cq->more, on_more);
}

static void on_async(uv_async_t *h)
{
	struct verbs_cq *cq = h->data;

	if (atomic_load(&cq->device_gone))
		cq_fail(cq, "the device was removed or failed", -ENODEV);
	for (unsigned int i = 0; i < cq->qps_max; i++) {
		struct verbs_qp *qp = cq->qps[i];
		int err = qp ? atomic_exchange(&qp->async_err, 0) : 0;

		if (err)
			verbs_qp_break(qp, err);
	}
	turn(cq);
}

void verbs_cq_device_gone(struct verbs_cq *cq)
{
	atomic_store(&cq->device_gone, true);
	uv_async_send(&cq->async);
}

/* ---- open and close ---- */

static void cq_free(struct verbs_cq *cq)
{
	int err = cq->cq ? verbs_err(ibv_destroy_cq(cq->cq)) : 0;
	int also = cq->channel ?
			   verbs_err(ibv_destroy_comp_channel(cq->channel)) : 0;

	if (err || also)
		pool_warn("RDMA device %s: cannot destroy a completion "
			  "queue: %s",
			  cq->port->device, strerror(err ? -err : -also));
	free(cq->qps);
	free(cq);
}

static int make_queue(struct verbs_cq *cq)
{
	struct verbs_port *p = cq->port;
	uint32_t each = p->send_depth + p->recv_depth;
	int flags;

	if (cq->qps_max > p->cqe_max / each)
		cq->qps_max = p->cqe_max / each;
	if (cq->qps_max == 0)
		return -ENOSPC;
	errno = 0;
	cq->channel = ibv_create_comp_channel(p->ctx);
	if (!cq->channel)
		return verbs_errno();
	flags = fcntl(cq->channel->fd, F_GETFL);
	if (flags < 0 || fcntl(cq->channel->fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	cq->cq = ibv_create_cq(p->ctx, (int)(cq->qps_max * each), cq,
			       cq->channel, 0);
	if (!cq->cq)
		return verbs_errno();
	return verbs_err(ibv_req_notify_cq(cq->cq, 0));
}

static void on_handle_closed(uv_handle_t *h)
{
	struct verbs_cq *cq = h->data;
	void (*closed)(void *arg) = cq->closed;
	void *arg = cq->closed_arg;

	if (--cq->handles)
		return;
	cq_free(cq);
	closed(arg);
}

static void close_handles(struct verbs_cq *cq)
{
	cq->closing = true;
	uv_close((uv_handle_t *)&cq->more, on_handle_closed);
	uv_close((uv_handle_t *)&cq->timer, on_handle_closed);
	if (cq->async.loop)
		uv_close((uv_handle_t *)&cq->async, on_handle_closed);
	if (cq->poll.loop)
		uv_close((uv_handle_t *)&cq->poll, on_handle_closed);
}

/* 0 or -errno; after an error, close_handles must be called as well. */
static int make_handles(struct verbs_cq *cq)
{
	int err;

	uv_idle_init(cq->loop, &cq->more);
	uv_timer_init(cq->loop, &cq->timer);
	cq->handles = 2;
	err = uv_async_init(cq->loop, &cq->async, on_async);
	if (err) {
		cq->async.loop = NULL;
		return err;
	}
	cq->handles++;
	err = uv_poll_init(cq->loop, &cq->poll, cq->channel->fd);
	if (err) {
		cq->poll.loop = NULL;
		return err;
	}
	cq->handles++;
	return uv_poll_start(&cq->poll, UV_READABLE, on_readable);
}

static void no_closed(void *arg)
{
	(void)arg;
}

int verbs_cq_open(struct verbs_port *port, uv_loop_t *loop, unsigned int qps,
		  struct verbs_cq **ret_cq)
{
	struct verbs_cq *cq;
	int err;

	assert(qps > 0 && qps <= UINT16_MAX);
	if (atomic_load(&port->state) == VERBS_GONE)
		return -ENODEV;
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return -ENOMEM;
	cq->port = port;
	cq->loop = loop;
	cq->qps_max = qps;
	cq->async.data = cq->poll.data = cq->more.data = cq->timer.data = cq;
	pool_list_init(&cq->ending);
	pool_list_init(&cq->link);
	err = make_queue(cq);
	if (!err) {
		cq->qps = calloc(cq->qps_max, sizeof(struct verbs_qp *));
		err = cq->qps ? 0 : -ENOMEM;
	}
	if (err) {
		pool_warn_limited("RDMA device %s: cannot create a completion "
				  "queue: %s; %s",
				  port->device, strerror(-err),
				  verbs_remedy(err));
		cq_free(cq);
		return err;
	}
	err = make_handles(cq);
	if (err) {
		cq->closed = no_closed;
		close_handles(cq);
		return err;
	}
	pthread_mutex_lock(&port->lock);
	pool_list_add_tail(&port->cqs, &cq->link);
	/* The device may have gone before this cq was in the list. */
	if (atomic_load(&port->state) == VERBS_GONE)
		verbs_cq_device_gone(cq);
	pthread_mutex_unlock(&port->lock);
	*ret_cq = cq;
	return 0;
}

void verbs_cq_close(struct verbs_cq *cq, void (*closed)(void *arg), void *arg)
{
	assert(cq->nqps == 0 && !cq->closing);
	cq->closed = closed;
	cq->closed_arg = arg;
	pthread_mutex_lock(&cq->port->lock);
	pool_list_del(&cq->link); /* no thread sends to `async` after this */
	pthread_mutex_unlock(&cq->port->lock);
	close_handles(cq);
}
