#include "pool/verbs/device.h"

#include <assert.h>
#include <errno.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/verbs/verbs_priv.h"

#define GIDS_MAX 65536
#define READS_MAX 16
#define NAME_CHARS                                                           \
	"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

int verbs_err(int rc)
{
	if (rc >= 0)
		return -rc;
	return rc == -1 ? verbs_errno() : rc;
}

int verbs_errno(void)
{
	return errno > 0 ? -errno : -EIO;
}

const char *verbs_remedy(int err)
{
	switch (err) {
	case -ENOMEM:
	case -EPERM:
		return "raise the memlock limit (ulimit -l, LimitMEMLOCK=)";
	case -EACCES:
		return "allow access to /dev/infiniband (run as root, or by a "
		       "udev rule)";
	case -ENOSPC:
		return "the device has no free memory regions: register less "
		       "at once";
	case -ENODEV:
	case -EIO:
		return "the device was removed or failed: restart the daemon "
		       "when it is back";
	default:
		return "see the kernel's log (dmesg)";
	}
}

/* ---- --rdma-device ---- */

/* Takes the first name off *list. Returns its length; 0: the list is empty or
 * starts with a comma; -1: invalid. */
static int next_name(const char **list, const char **ret_name)
{
	size_t len = strspn(*list, NAME_CHARS);

	*ret_name = *list;
	*list += len;
	if (**list == ',' && (*list)[1])
		(*list)++;
	else if (**list)
		return -1;
	return len < sizeof(((struct verbs_port *)0)->device) ? (int)len : -1;
}

bool verbs_names_valid(const char *names)
{
	const char *name;
	int len;

	do {
		len = next_name(&names, &name);
		if (len <= 0)
			return false;
	} while (*names);
	return true;
}

static bool is_named(const char *names, const char *device)
{
	const char *name;

	if (!names)
		return true;
	while (*names) {
		int len = next_name(&names, &name);

		if ((size_t)len == strlen(device) &&
		    memcmp(name, device, (size_t)len) == 0)
			return true;
	}
	return false;
}

/* ---- one port ---- */

static struct verbs_entry *entry_new(struct verbs *v, struct ibv_device *device,
				     unsigned int number)
{
	struct verbs_entry *e;

	if (v->n == VERBS_PORTS_MAX) {
		pool_warn_limited(
			"more than %d RDMA ports: ignoring the others; "
			"name the devices to use (--rdma-device)",
			VERBS_PORTS_MAX);
		return NULL;
	}
	e = &v->entries[v->n++];
	snprintf(e->port.device, sizeof(e->port.device), "%s",
		 ibv_get_device_name(device));
	e->port.number = (uint8_t)number;
	e->link = "unknown";
	pool_list_init(&e->port.cqs);
	pthread_mutex_init(&e->port.lock, NULL);
	return e;
}

static const char *open_wrong(int err)
{
	return err == -EACCES || err == -EPERM ?
		       "it may not be opened: run as root, or allow access to "
		       "/dev/infiniband" :
		       "it cannot be opened";
}

/* Sets the port's network type. NULL, or why the port cannot be used. */
static const char *link_set(struct verbs_entry *e, const struct ibv_device *d,
			    uint8_t layer)
{
	if (d->transport_type == IBV_TRANSPORT_IWARP) {
		e->port.by_cm = true;
		e->port.link = VERBS_IWARP;
		e->link = "iwarp";
		return e->dev->cm ? NULL :
				    "librdmacm does not have it: load the "
				    "module rdma_ucm";
	}
	if (d->transport_type != IBV_TRANSPORT_IB)
		return "it has no reliable connections (RC)";
	e->port.link = layer == IBV_LINK_LAYER_ETHERNET ? VERBS_ROCE :
							  VERBS_INFINIBAND;
	e->link = layer == IBV_LINK_LAYER_ETHERNET ? "roce" : "infiniband";
	return NULL;
}

static uint32_t at_most(uint64_t limit, uint64_t value)
{
	return (uint32_t)(value < limit ? value : limit);
}

/* Some devices report 0 or less for an attribute: assumes 1. */
static uint32_t bound(int value, uint32_t limit)
{
	return value < 1 ? 1 : at_most(limit, (uint64_t)value);
}

static void set_limits(struct verbs_port *p, const struct ibv_device_attr *dev,
		       const struct ibv_port_attr *port)
{
	p->lid = port->lid;
	p->mtu = port->active_mtu;
	p->send_depth = bound(dev->max_qp_wr, VERBS_SEND_DEPTH);
	p->recv_depth = bound(dev->max_qp_wr, VERBS_RECV_DEPTH);
	p->message_max = at_most(VERBS_MESSAGE_MAX, port->max_msg_sz);
	if (p->message_max == 0)
		p->message_max = VERBS_MESSAGE_MAX;
	p->region_max = dev->max_mr_size ? dev->max_mr_size : UINT64_MAX;
	p->cqe_max = bound(dev->max_cqe, INT32_MAX);
	p->reads_in = (uint8_t)bound(dev->max_qp_rd_atom, READS_MAX);
	p->reads_out = (uint8_t)bound(dev->max_qp_init_rd_atom, READS_MAX);
}

struct found {
	struct ibv_device *device;
	struct ibv_device_attr attr;
	struct ibv_gid_entry *gids; /* owns; of all ports */
	size_t ngids;
	bool named; /* by --rdma-device */
};

/* Fills in e. NULL: the port is used; or why not. */
static const char *port_set(struct verbs_entry *e, const struct found *f)
{
	struct verbs_port *p = &e->port;
	const struct ibv_gid_entry *gid;
	struct ibv_port_attr attr;
	const char *wrong;

	if (ibv_query_port(e->dev->ctx, p->number, &attr))
		return "its attributes cannot be read";
	e->state = attr.state;
	wrong = link_set(e, f->device, attr.link_layer);
	gid = verbs_gid_choose(f->gids, f->ngids, p->number, p->link);
	if (gid) {
		e->has_gid = true;
		p->gid = gid->gid;
		p->gid_index = (uint8_t)gid->gid_index;
	}
	set_limits(p, &f->attr, &attr);
	if (!f->named)
		return "it is not named by --rdma-device";
	if (wrong)
		return wrong;
	if (attr.state != IBV_PORT_ACTIVE)
		return "the port is not active: is it connected, and its "
		       "network interface up?";
	if (!gid && p->link != VERBS_IWARP)
		return "it has no address (GID): give its network interface an "
		       "IP address";
	if (p->link == VERBS_INFINIBAND && p->lid == 0)
		return "it has no LID: is there a subnet manager?";
	p->pd = ibv_alloc_pd(e->dev->ctx);
	return p->pd ? NULL :
		       "it has no protection domain left, or there is no "
		       "memory";
}

static void add_port(struct verbs *v, struct verbs_dev *dev,
		     const struct found *f, unsigned int number)
{
	struct verbs_entry *e = entry_new(v, f->device, number);

	if (!e)
		return;
	e->dev = dev;
	e->port.ctx = dev->ctx;
	e->port.cm = dev->cm;
	e->port.why_not = port_set(e, f);
}

/* ---- one device ---- */

/* Reads the addresses of all ports; none if that fails. 0 or -ENOMEM. */
static int read_gids(struct found *f, struct ibv_context *ctx)
{
	struct ibv_port_attr port;
	size_t max = 0;
	ssize_t n;

	for (unsigned int i = 1; i <= f->attr.phys_port_cnt; i++)
		if (ibv_query_port(ctx, (uint8_t)i, &port) == 0 &&
		    port.gid_tbl_len > 0)
			max += (size_t)port.gid_tbl_len;
	if (max == 0)
		return 0;
	if (max > GIDS_MAX)
		max = GIDS_MAX;
	f->gids = calloc(max, sizeof(*f->gids));
	if (!f->gids)
		return -ENOMEM;
	n = ibv_query_gid_table(ctx, f->gids, max, 0); /* or -errno */
	f->ngids = n > 0 ? (size_t)n : 0;
	if (n < 0)
		pool_warn("RDMA device %s: cannot read its addresses: %s",
			  ibv_get_device_name(f->device), strerror((int)-n));
	return 0;
}

static struct ibv_context *cm_context(const struct verbs *v, const char *name)
{
	for (size_t i = 0; v->cm && v->cm[i]; i++)
		if (strcmp(ibv_get_device_name(v->cm[i]->device), name) == 0)
			return v->cm[i];
	return NULL;
}

/* 0 or -errno */
static int open_context(struct verbs *v, struct verbs_dev *dev,
			struct ibv_device *device)
{
	dev->verbs = v;
	dev->ctx = cm_context(v, ibv_get_device_name(device));
	dev->cm = dev->ctx != NULL;
	if (dev->cm)
		return 0;
	errno = 0;
	dev->ctx = ibv_open_device(device);
	return dev->ctx ? 0 : verbs_errno();
}

static void close_context(struct verbs_dev *dev)
{
	if (dev->ctx && !dev->cm && ibv_close_device(dev->ctx))
		pool_warn("cannot close an RDMA device: %s",
			  strerror(errno));
	dev->ctx = NULL;
}

/* Closes the device if none of its ports (from `first` on) is used. */
static void drop_unused(struct verbs *v, struct verbs_dev *dev,
			unsigned int first)
{
	unsigned int i;

	for (i = first; i < v->n; i++)
		if (!v->entries[i].port.why_not)
			return;
	for (i = first; i < v->n; i++) {
		v->entries[i].dev = NULL;
		v->entries[i].port.ctx = NULL;
	}
	close_context(dev);
	v->ndevs--;
}

static void add_unknown(struct verbs *v, struct ibv_device *device,
			const char *why)
{
	struct verbs_entry *e = entry_new(v, device, 0);

	if (e)
		e->port.why_not = why;
}

/* 0 or -ENOMEM */
static int add_device(struct verbs *v, struct ibv_device *device, bool named)
{
	struct found f = { .device = device, .named = named };
	struct verbs_dev *dev;
	unsigned int first = v->n;
	int err;

	if (v->ndevs == VERBS_PORTS_MAX)
		return 0;
	dev = &v->devs[v->ndevs];
	err = open_context(v, dev, device);
	if (err) {
		add_unknown(v, device, open_wrong(err));
		return err == -ENOMEM ? err : 0;
	}
	v->ndevs++;
	if (ibv_query_device(dev->ctx, &f.attr))
		add_unknown(v, device, "its attributes cannot be read");
	else
		err = read_gids(&f, dev->ctx);
	for (unsigned int i = 1; !err && i <= f.attr.phys_port_cnt; i++)
		add_port(v, dev, &f, i);
	free(f.gids);
	drop_unused(v, dev, first);
	return err;
}

/* ---- all devices ---- */

/* Checks that all named devices exist and one can be used. 0, or -ENODEV,
 * logged. */
static int check_names(const struct verbs *v, const char *names)
{
	const char *name, *rest = names;
	char there[512];

	verbs_format(v, there, sizeof(there));
	while (rest && *rest) {
		int len = next_name(&rest, &name);
		bool found = false;

		for (unsigned int i = 0; i < v->n && !found; i++)
			found = strlen(v->entries[i].port.device) ==
					(size_t)len &&
				memcmp(v->entries[i].port.device, name,
				       (size_t)len) == 0;
		if (!found) {
			pool_error("--rdma-device: there is no %.*s; there "
				   "are: %s",
				   len, name, there);
			return -ENODEV;
		}
	}
	if (names && verbs_nports(v) == 0) {
		pool_error("--rdma-device: none of %s can be used: %s", names,
			   there);
		return -ENODEV;
	}
	return 0;
}

/* 0 or -ENOMEM. Without support in the kernel (ENOSYS) there are no devices. */
static int find_devices(struct verbs *v, const char *names)
{
	struct ibv_device **list;
	int err = 0;

	errno = 0;
	list = ibv_get_device_list(NULL);
	if (!list)
		return errno == ENOMEM ? -ENOMEM : 0;
	/* rdma_get_devices prints to stderr if there is no device. */
	if (list[0])
		v->cm = rdma_get_devices(NULL);
	for (size_t i = 0; list[i] && !err; i++)
		err = add_device(v, list[i],
				 is_named(names, ibv_get_device_name(list[i])));
	ibv_free_device_list(list);
	return err;
}

int verbs_open(const char *names, struct verbs **ret_verbs)
{
	struct verbs *v;
	int err;

	if (names && !verbs_names_valid(names))
		return -EINVAL;
	v = calloc(1, sizeof(*v));
	if (!v)
		return -ENOMEM;
	err = find_devices(v, names);
	if (!err)
		err = check_names(v, names);
	if (err)
		verbs_close(v);
	else
		*ret_verbs = v;
	return err;
}

void verbs_close(struct verbs *v)
{
	if (!v)
		return;
	for (unsigned int i = 0; i < v->n; i++) {
		struct verbs_port *p = &v->entries[i].port;
		int err = p->pd ? verbs_err(ibv_dealloc_pd(p->pd)) : 0;

		assert(pool_list_empty(&p->cqs));
		if (err)
			pool_warn("RDMA device %s: cannot free its protection "
				  "domain: %s",
				  p->device, strerror(-err));
		pthread_mutex_destroy(&p->lock);
	}
	for (unsigned int i = 0; i < v->ndevs; i++)
		close_context(&v->devs[i]);
	if (v->cm)
		rdma_free_devices(v->cm);
	free(v);
}

void verbs_connect_by_cm(struct verbs *v)
{
	for (unsigned int i = 0; i < v->n; i++) {
		struct verbs_port *p = &v->entries[i].port;

		if (p->why_not)
			continue;
		p->by_cm = p->cm;
		if (!p->cm)
			pool_warn("RDMA device %s: librdmacm does not have it; "
				  "connecting without librdmacm: load the "
				  "module rdma_ucm",
				  p->device);
	}
}

void verbs_busy_poll(struct verbs *v, unsigned int us)
{
	v->busy_us = us;
}

unsigned int verbs_busy_us(const struct verbs *v)
{
	return v->busy_us;
}

unsigned int verbs_nports(const struct verbs *v)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < v->n; i++)
		n += !v->entries[i].port.why_not;
	return n;
}

struct verbs_port *verbs_port_at(struct verbs *v, unsigned int i)
{
	for (unsigned int k = 0; k < v->n; k++)
		if (!v->entries[k].port.why_not && i-- == 0)
			return &v->entries[k].port;
	assert(!"no such port");
	return NULL;
}

void verbs_port_failed(struct verbs_port *p)
{
	atomic_store(&p->failed_ms, pool_now_ms());
	atomic_fetch_add(&p->failures, 1u);
}

void verbs_port_worked(struct verbs_port *p)
{
	if (atomic_load(&p->failures))
		atomic_store(&p->failures, 0);
}

int verbs_metrics(struct verbs *v, struct pool_metrics *metrics)
{
	int err = 0;

	for (unsigned int i = 0; i < verbs_nports(v) && !err; i++) {
		struct verbs_port *p = verbs_port_at(v, i);

		snprintf(p->labels, sizeof(p->labels),
			 "device=\"%s\",port=\"%u\"", p->device, p->number);
		err = pool_metrics_counter(
			metrics, &p->sent, "kvpool_rdma_port_sent_bytes_total",
			p->labels, "Object bytes sent by this RDMA port.");
		if (!err)
			err = pool_metrics_counter(
				metrics, &p->received,
				"kvpool_rdma_port_received_bytes_total",
				p->labels,
				"Object bytes received by this RDMA port.");
	}
	return err;
}
