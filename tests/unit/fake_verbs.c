/* The fake's devices, faults and events. */
#include "tests/unit/fake_verbs.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "tests/unit/fake_verbs_priv.h"

#undef ibv_query_port

#define DEVICES 40
#define FAULTS 16
#define CALLS 64

static struct fake_device devices[DEVICES];
static unsigned int ndevices;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of faults, calls */
static struct {
	const char *call;
	unsigned int nth;
	int err;
} faults[FAULTS];
static struct {
	const char *call;
	unsigned int n;
} calls[CALLS];
static _Atomic int left;

void fake_die(const char *why)
{
	fprintf(stderr, "fake_verbs: %s\n", why);
	abort();
}

/* ---- what goes wrong ---- */

static void count_locked(const char *call)
{
	for (int i = 0; i < CALLS; i++) {
		if (calls[i].call && strcmp(calls[i].call, call) != 0)
			continue;
		calls[i].call = call;
		calls[i].n++;
		return;
	}
}

static bool fault_locked(const char *call, int *err)
{
	bool fires = false;

	for (int i = 0; i < FAULTS; i++) {
		if (!faults[i].nth || strcmp(faults[i].call, call) != 0)
			continue;
		if (--faults[i].nth == 0) {
			*err = faults[i].err;
			fires = true;
		}
	}
	return fires;
}

bool fake_fault(const char *call, const struct ibv_context *ctx, int *err)
{
	bool fails;

	pthread_mutex_lock(&lock);
	count_locked(call);
	fails = fault_locked(call, err);
	pthread_mutex_unlock(&lock);
	if (!fails && ctx && fake_device_of(ctx)->gone) {
		*err = EIO;
		fails = true;
	}
	return fails;
}

bool fake_fault_errno(const char *call, const struct ibv_context *ctx)
{
	int err;

	if (!fake_fault(call, ctx, &err))
		return false;
	errno = err;
	return true;
}

int fake_fault_late(const char *call, const struct ibv_context *ctx)
{
	int err;

	return fake_fault(call, ctx, &err) ? err : 0;
}

void fake_verbs_fail(const char *call, unsigned int nth, int err)
{
	for (int i = 0; i < FAULTS; i++) {
		if (faults[i].nth)
			continue;
		faults[i].call = call;
		faults[i].nth = nth;
		faults[i].err = err;
		return;
	}
	fake_die("too many faults");
}

unsigned int fake_verbs_calls(const char *call)
{
	for (int i = 0; i < CALLS && calls[i].call; i++)
		if (strcmp(calls[i].call, call) == 0)
			return calls[i].n;
	return 0;
}

void fake_made(struct ibv_context *ctx, int n)
{
	atomic_fetch_add(&left, n);
	if (ctx)
		__atomic_fetch_add(&((struct fake_context *)ctx)->users, n,
				   __ATOMIC_RELAXED);
}

int fake_verbs_left(void)
{
	return atomic_load(&left);
}

/* ---- devices ---- */

struct fake_device *fake_device_of(const struct ibv_context *ctx)
{
	return ((const struct fake_context *)ctx)->d;
}

static void context_free(struct fake_context *c)
{
	if (c->users)
		fake_die("a context is closed with something made of it");
	close(c->ctx.async_fd);
	free(c);
}

void fake_verbs_reset(void)
{
	if (fake_verbs_left())
		fake_die("objects were not given back");
	for (unsigned int i = 0; i < ndevices; i++)
		if (devices[i].cm_ctx)
			context_free(devices[i].cm_ctx);
	memset(devices, 0, sizeof(devices));
	memset(faults, 0, sizeof(faults));
	memset(calls, 0, sizeof(calls));
	ndevices = 0;
	fake_memory_reset();
	fake_traffic_reset();
}

struct fake_device *fake_verbs_device(const char *name,
				      enum ibv_transport_type transport,
				      bool cm)
{
	struct fake_device *d = &devices[ndevices++];

	assert(ndevices <= DEVICES);
	snprintf(d->dev.name, sizeof(d->dev.name), "%s", name);
	d->dev.transport_type = transport;
	d->dev.node_type = transport == IBV_TRANSPORT_IWARP ? IBV_NODE_RNIC :
							      IBV_NODE_CA;
	d->cm = cm;
	d->attr = (struct ibv_device_attr){
		.max_mr_size = UINT64_MAX,
		.max_qp = 1024,
		.max_qp_wr = 1024,
		.max_cqe = 1 << 20,
		.max_qp_rd_atom = 16,
		.max_qp_init_rd_atom = 16,
	};
	return d;
}

struct ibv_device_attr *fake_verbs_attr(struct fake_device *d)
{
	return &d->attr;
}

void fake_verbs_inline(struct fake_device *d, uint32_t bytes)
{
	assert(bytes <= FAKE_INLINE_MAX);
	d->inline_max = bytes;
}

struct ibv_port_attr *fake_verbs_port(struct fake_device *d,
				      enum ibv_port_state state, uint8_t layer)
{
	struct ibv_port_attr *p = &d->ports[d->attr.phys_port_cnt++];

	assert(d->attr.phys_port_cnt <= FAKE_PORTS);
	p->state = state;
	p->link_layer = layer;
	p->max_mtu = p->active_mtu = IBV_MTU_4096;
	p->max_msg_sz = 1u << 31;
	p->gid_tbl_len = FAKE_GIDS;
	p->lid = layer == IBV_LINK_LAYER_INFINIBAND ? 7 : 0;
	return p;
}

void fake_verbs_gid(struct fake_device *d, uint32_t port, uint32_t type,
		    const char *address)
{
	struct ibv_gid_entry *g = &d->gids[d->ngids++];

	assert(d->ngids <= FAKE_GIDS);
	g->port_num = port;
	g->gid_type = type;
	for (unsigned int i = 0; i + 1 < d->ngids; i++)
		g->gid_index += d->gids[i].port_num == port;
	if (strchr(address, ':')) {
		assert(inet_pton(AF_INET6, address, g->gid.raw) == 1);
	} else {
		g->gid.raw[10] = g->gid.raw[11] = 0xff;
		assert(inet_pton(AF_INET, address, g->gid.raw + 12) == 1);
	}
}

void fake_verbs_path(struct fake_device *d, const char *path)
{
	snprintf(d->dev.dev_path, sizeof(d->dev.dev_path), "%s", path);
}

void fake_verbs_clear_gids(struct fake_device *d)
{
	memset(d->gids, 0, sizeof(d->gids));
	d->ngids = 0;
}

struct fake_device *fake_verbs_roce(const char *name)
{
	struct fake_device *d = fake_verbs_device(name, IBV_TRANSPORT_IB, true);

	fake_verbs_port(d, IBV_PORT_ACTIVE, IBV_LINK_LAYER_ETHERNET);
	fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "fe80::1");
	fake_verbs_gid(d, 1, IBV_GID_TYPE_ROCE_V2, "10.0.0.1");
	return d;
}

struct ibv_device **ibv_get_device_list(int *num)
{
	struct ibv_device **list;

	if (fake_fault_errno("ibv_get_device_list", NULL))
		return NULL;
	list = calloc(ndevices + 1, sizeof(struct ibv_device *));
	for (unsigned int i = 0; i < ndevices; i++)
		list[i] = &devices[i].dev;
	if (num)
		*num = (int)ndevices;
	fake_made(NULL, 1);
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	fake_made(NULL, -1);
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

static struct fake_context *context_new(struct fake_device *d)
{
	struct fake_context *c = calloc(1, sizeof(*c));

	c->ctx.device = &d->dev;
	c->ctx.async_fd = eventfd(0, EFD_SEMAPHORE | EFD_CLOEXEC);
	c->d = d;
	d->ctx = c;
	fake_set_ops(&c->ctx);
	return c;
}

struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (fake_fault_errno("ibv_open_device", NULL))
		return NULL;
	fake_made(NULL, 1);
	return &context_new((struct fake_device *)device)->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	int err = fake_fault_late("ibv_close_device", ctx);

	fake_made(NULL, -1);
	context_free((struct fake_context *)ctx);
	errno = err;
	return err ? -1 : 0;
}

struct ibv_context **rdma_get_devices(int *num)
{
	struct ibv_context **list;
	unsigned int n = 0;

	if (fake_fault_errno("rdma_get_devices", NULL))
		return NULL;
	list = calloc(ndevices + 1, sizeof(struct ibv_context *));
	for (unsigned int i = 0; i < ndevices; i++) {
		if (!devices[i].cm)
			continue;
		if (!devices[i].cm_ctx)
			devices[i].cm_ctx = context_new(&devices[i]);
		list[n++] = &devices[i].cm_ctx->ctx;
	}
	if (num)
		*num = (int)n;
	fake_made(NULL, 1);
	return list;
}

void rdma_free_devices(struct ibv_context **list)
{
	fake_made(NULL, -1);
	free(list);
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *attr)
{
	int err;

	if (fake_fault("ibv_query_device", ctx, &err))
		return err;
	*attr = fake_device_of(ctx)->attr;
	return 0;
}

int ibv_query_port(struct ibv_context *ctx, uint8_t port,
		   struct _compat_ibv_port_attr *attr)
{
	int err;

	if (fake_fault("ibv_query_port", ctx, &err))
		return err;
	memcpy(attr, &fake_device_of(ctx)->ports[port - 1],
	       sizeof(struct ibv_port_attr));
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *ctx,
			     struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t entry_size)
{
	struct fake_device *d = fake_device_of(ctx);
	int err;

	assert(flags == 0 && entry_size == sizeof(*entries));
	if (fake_fault("ibv_query_gid_table", ctx, &err))
		return -err;
	if (d->ngids > max)
		return -EINVAL;
	memcpy(entries, d->gids, d->ngids * sizeof(*entries));
	return (ssize_t)d->ngids;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index,
		  union ibv_gid *gid)
{
	struct fake_device *d = fake_device_of(ctx);

	if (fake_fault_errno("ibv_query_gid", ctx))
		return -1;
	memset(gid, 0, sizeof(*gid));
	for (unsigned int i = 0; i < d->ngids; i++)
		if (d->gids[i].port_num == port &&
		    d->gids[i].gid_index == (uint32_t)index)
			*gid = d->gids[i].gid;
	return 0;
}

/* ---- asynchronous events ---- */

void fake_verbs_event(struct fake_device *d, enum ibv_event_type type,
		      void *element, int port)
{
	struct fake_context *c = d->ctx;
	struct ibv_async_event *ev = &c->events[c->nevents++];
	uint64_t one = 1;

	assert(c->nevents <= FAKE_EVENTS);
	memset(ev, 0, sizeof(*ev));
	ev->event_type = type;
	if (element)
		ev->element.qp = element; /* a union of pointers */
	else
		ev->element.port_num = port;
	assert(write(c->ctx.async_fd, &one, sizeof(one)) == sizeof(one));
}

void fake_verbs_remove(struct fake_device *d, bool tell)
{
	d->gone = true;
	if (tell)
		fake_verbs_event(d, IBV_EVENT_DEVICE_FATAL, NULL, 0);
}

static bool is_of_qp(const struct ibv_async_event *ev)
{
	return ev->event_type == IBV_EVENT_QP_FATAL ||
	       ev->event_type == IBV_EVENT_QP_REQ_ERR ||
	       ev->event_type == IBV_EVENT_QP_ACCESS_ERR;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	struct fake_context *c = (struct fake_context *)ctx;
	uint64_t one;
	int err;

	if (fake_fault("ibv_get_async_event", NULL, &err)) {
		errno = err;
		return -1;
	}
	if (read(ctx->async_fd, &one, sizeof(one)) < 0)
		return -1;
	*ev = c->events[0];
	memmove(c->events, c->events + 1, --c->nevents * sizeof(*ev));
	c->unacked++;
	if (is_of_qp(ev))
		((struct fake_qp *)ev->element.qp)->unacked++;
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	if (is_of_qp(ev))
		((struct fake_qp *)ev->element.qp)->unacked--;
}
