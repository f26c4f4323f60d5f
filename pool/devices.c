#include <assert.h>
#include <infiniband/verbs.h>
#include <stdio.h>
#include <string.h>

#include "pool/devices.h"

static const char *state_name(enum ibv_port_state state)
{
	switch (state) {
	case IBV_PORT_DOWN:
		return "down";
	case IBV_PORT_INIT:
		return "init";
	case IBV_PORT_ARMED:
		return "armed";
	case IBV_PORT_ACTIVE:
		return "active";
	default:
		return "unknown";
	}
}

static const char *link_name(uint8_t layer)
{
	switch (layer) {
	case IBV_LINK_LAYER_INFINIBAND:
		return "infiniband";
	case IBV_LINK_LAYER_ETHERNET:
		return "ethernet";
	default:
		return "unknown";
	}
}

static void device_init(struct pool_device *d, struct ibv_device *dev,
			const char *state)
{
	memset(d, 0, sizeof(*d));
	snprintf(d->name, sizeof(d->name), "%s", ibv_get_device_name(dev));
	d->state = state;
	d->link = "unknown";
}

static size_t list_ports(struct ibv_context *ctx, struct ibv_device *dev,
			 struct pool_device *devs, size_t max)
{
	struct ibv_device_attr attr;
	struct ibv_port_attr port;
	size_t n;

	if (ibv_query_device(ctx, &attr) != 0)
		return 0;
	for (n = 0; n < max && n < attr.phys_port_cnt; n++) {
		device_init(&devs[n], dev, "unknown");
		devs[n].port = (unsigned int)n + 1;
		if (ibv_query_port(ctx, (uint8_t)(n + 1), &port) == 0) {
			devs[n].state = state_name(port.state);
			devs[n].link = link_name(port.link_layer);
		}
	}
	return n;
}

/* One entry without a port if there is none to ask. max > 0. */
static size_t list_device(struct ibv_device *dev, struct pool_device *devs,
			  size_t max)
{
	struct ibv_context *ctx = ibv_open_device(dev);
	size_t n = 0;

	if (ctx != NULL) {
		n = list_ports(ctx, dev, devs, max);
		ibv_close_device(ctx);
	}
	if (n > 0)
		return n;
	device_init(&devs[0], dev, ctx == NULL ? "cannot be opened" :
						 "unknown");
	return 1;
}

size_t pool_devices_list(struct pool_device *devs, size_t max)
{
	/* NULL: no memory, or no support in the kernel (ENOSYS). */
	struct ibv_device **list = ibv_get_device_list(NULL);
	size_t n = 0;

	if (list == NULL)
		return 0;
	for (size_t i = 0; list[i] != NULL && n < max; i++)
		n += list_device(list[i], &devs[n], max - n);
	ibv_free_device_list(list);
	return n;
}

static int format_one(const struct pool_device *d, char *buf, size_t cap)
{
	if (d->port == 0)
		return snprintf(buf, cap, "%s %s", d->name, d->state);
	return snprintf(buf, cap, "%s/%u %s %s", d->name, d->port, d->state,
			d->link);
}

char *pool_devices_format(const struct pool_device *devs, size_t n, char *buf,
			  size_t cap)
{
	size_t at = 0;

	assert(cap >= 8);
	strcpy(buf, "none");
	for (size_t i = 0; i < n; i++) {
		char one[POOL_DEVICE_NAME_MAX + 64];
		int len = format_one(&devs[i], one, sizeof(one));

		if (at + (size_t)len + 3 > cap) {
			strcpy(buf + (at > cap - 4 ? cap - 4 : at), "...");
			return buf;
		}
		at += (size_t)snprintf(buf + at, cap - at, "%s%s",
				       i > 0 ? ", " : "", one);
	}
	return buf;
}
