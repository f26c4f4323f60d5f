/*
 * Events of devices after the start. Their asynchronous events are handled; a
 * timer also checks that each device is still in sysfs. A driver without hot
 * removal (rxe) sends no event when its device is removed: the device keeps
 * working, and the removal blocks until every process has closed it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/verbs/verbs_priv.h"

#define EVENTS_PER_TURN 64
#define CHECK_MS 1000u

static void notify_queues(struct verbs_port *p)
{
	struct pool_list *it, *tmp;

	pthread_mutex_lock(&p->lock);
	pool_list_each(it, tmp, &p->cqs)
		verbs_cq_device_gone(
			pool_list_entry(it, struct verbs_cq, link));
	pthread_mutex_unlock(&p->lock);
}

void verbs_port_gone(struct verbs_port *p)
{
	if (atomic_exchange(&p->state, VERBS_GONE) == VERBS_GONE)
		return;
	pool_warn("RDMA device %s/%u was removed or failed: no longer used",
		  p->device, p->number);
	notify_queues(p);
}

static void device_gone(struct verbs_dev *dev)
{
	struct verbs *v = dev->verbs;

	for (unsigned int i = 0; i < v->n; i++)
		if (v->entries[i].dev == dev && !v->entries[i].port.why_not)
			verbs_port_gone(&v->entries[i].port);
}

/* Is the port active, and does it still have its address? */
static bool port_works(const struct verbs_port *p)
{
	struct ibv_port_attr attr;
	union ibv_gid gid;

	if (ibv_query_port(p->ctx, p->number, &attr) ||
	    attr.state != IBV_PORT_ACTIVE)
		return false;
	if (p->link == VERBS_IWARP)
		return true;
	if (p->link == VERBS_INFINIBAND && attr.lid != p->lid)
		return false;
	return ibv_query_gid(p->ctx, p->number, p->gid_index, &gid) == 0 &&
	       memcmp(&gid, &p->gid, sizeof(gid)) == 0;
}

/* Updates the state of a port; number 0: of all ports of the device. */
static void ports_check(struct verbs_dev *dev, int number)
{
	struct verbs *v = dev->verbs;

	for (unsigned int i = 0; i < v->n; i++) {
		struct verbs_port *p = &v->entries[i].port;
		int now, was = atomic_load(&p->state);

		if (v->entries[i].dev != dev || p->why_not ||
		    was == VERBS_GONE || (number && p->number != number))
			continue;
		now = port_works(p) ? VERBS_ACTIVE : VERBS_DOWN;
		if (now == was)
			continue;
		atomic_store(&p->state, now);
		pool_info("RDMA port %s/%u is %s", p->device, p->number,
			  now == VERBS_ACTIVE ?
				  "active again" :
				  "down, or its address was removed");
	}
}

static void queue_overrun(struct verbs_dev *dev, const struct ibv_cq *cq)
{
	struct verbs *v = dev->verbs;
	struct pool_list *it, *tmp;

	for (unsigned int i = 0; i < v->n; i++) {
		struct verbs_port *p = &v->entries[i].port;

		pthread_mutex_lock(&p->lock);
		pool_list_each(it, tmp, &p->cqs) {
			struct verbs_cq *q = pool_list_entry(
				it, struct verbs_cq, link);

			if (q->cq == cq)
				verbs_cq_device_gone(q);
		}
		pthread_mutex_unlock(&p->lock);
	}
}

static void handle(struct verbs_dev *dev, const struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_DEVICE_FATAL:
		device_gone(dev);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_GID_CHANGE:
		ports_check(dev, ev->element.port_num);
		break;
	case IBV_EVENT_CQ_ERR:
		queue_overrun(dev, ev->element.cq);
		break;
	/* The queue pair cannot be destroyed before the event is acknowledged.
	 */
	case IBV_EVENT_QP_FATAL:
		verbs_qp_break_async(ev->element.qp->qp_context, -EIO);
		break;
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		verbs_qp_break_async(ev->element.qp->qp_context, -EPROTO);
		break;
	default:
		break;
	}
}

static void on_event(uv_poll_t *h, int status, int events)
{
	struct verbs_dev *dev = h->data;
	struct ibv_async_event ev;

	(void)events;
	for (int i = 0; status == 0 && i < EVENTS_PER_TURN; i++) {
		if (ibv_get_async_event(dev->ctx, &ev)) { /* -1 and errno */
			if (errno != EAGAIN && errno != EINTR)
				status = verbs_errno();
			break;
		}
		handle(dev, &ev);
		ibv_ack_async_event(&ev);
	}
	if (status) {
		uv_poll_stop(h);
		device_gone(dev);
	}
}

/* Identifies a directory: a device that was removed and added again has another
 * inode. 0: there is none. */
static uint64_t ino_of(const char *path)
{
	struct stat st;

	return stat(path, &st) ? 0 : st.st_ino;
}

/* The path from libibverbs (v44) does not exist for a device without a bus. */
static void find_path(struct verbs_dev *dev)
{
	const struct ibv_device *d = dev->ctx->device;

	snprintf(dev->path, sizeof(dev->path), "%s", d->dev_path);
	dev->ino = ino_of(dev->path);
	if (dev->ino)
		return;
	snprintf(dev->path, sizeof(dev->path),
		 "/sys/class/infiniband_verbs/%s", d->dev_name);
	dev->ino = d->dev_name[0] ? ino_of(dev->path) : 0;
}

static void on_check(uv_timer_t *t)
{
	struct verbs *v = t->data;

	for (unsigned int i = 0; i < v->ndevs; i++) {
		struct verbs_dev *dev = &v->devs[i];

		if (dev->ino && ino_of(dev->path) != dev->ino)
			device_gone(dev);
	}
}

static int watch_one(struct verbs_dev *dev, uv_loop_t *loop)
{
	int fd = dev->ctx->async_fd, flags = fcntl(fd, F_GETFL), err;

	if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK))
		return -errno;
	err = uv_poll_init(loop, &dev->poll, fd);
	if (err)
		return err;
	dev->poll.data = dev;
	dev->watched = true;
	dev->verbs->handles++;
	find_path(dev);
	return uv_poll_start(&dev->poll, UV_READABLE, on_event);
}

static void no_closed(void *arg)
{
	(void)arg;
}

int verbs_watch(struct verbs *v, uv_loop_t *loop)
{
	int err = 0;

	uv_timer_init(loop, &v->check);
	if (v->ndevs > 0)
		uv_timer_start(&v->check, on_check, CHECK_MS, CHECK_MS);
	uv_unref((uv_handle_t *)&v->check);
	v->check.data = v;
	v->handles = 1;
	for (unsigned int i = 0; i < v->ndevs && !err; i++)
		err = watch_one(&v->devs[i], loop);
	if (err) {
		pool_error("cannot watch RDMA devices: %s",
			   strerror(-err));
		verbs_unwatch(v, no_closed, NULL);
	}
	return err;
}

static void handle_closed(struct verbs *v)
{
	if (--v->handles == 0)
		v->closed(v->closed_arg);
}

static void on_poll_closed(uv_handle_t *h)
{
	handle_closed(((struct verbs_dev *)h->data)->verbs);
}

static void on_check_closed(uv_handle_t *h)
{
	handle_closed(h->data);
}

void verbs_unwatch(struct verbs *v, void (*closed)(void *arg), void *arg)
{
	v->closed = closed;
	v->closed_arg = arg;
	for (unsigned int i = 0; i < v->ndevs; i++) {
		if (v->devs[i].watched)
			uv_close((uv_handle_t *)&v->devs[i].poll,
				 on_poll_closed);
		v->devs[i].watched = false;
	}
	uv_close((uv_handle_t *)&v->check, on_check_closed);
}
