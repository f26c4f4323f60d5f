/*
 * The machine's RDMA devices, for status pages: what is there and in which
 * state. libibverbs is met only in devices.c.
 *
 * Thread: any, no state. Opens each device to ask for its ports: some
 * milliseconds each, so ask at start and seldom, not for each page.
 */
#ifndef POOL_DEVICES_H
#define POOL_DEVICES_H

#include <stddef.h>

#define POOL_DEVICE_NAME_MAX 63

/* One port of one device. */
struct pool_device {
	char name[POOL_DEVICE_NAME_MAX + 1]; /* "mlx5_0" */
	unsigned int port;		     /* from 1; 0: no port known */
	const char *state; /* constant: "active", "down", "init", "armed",
			      "unknown", "cannot be opened" */
	const char *link;  /* constant: "infiniband", "ethernet", "unknown" */
};

/*
 * Fill in devs, of max entries, port by port. Returns how many were filled in;
 * 0 if there are no devices, or the kernel has no support for them.
 */
size_t pool_devices_list(struct pool_device *devs, size_t max);

/*
 * "mlx5_0/1 active ethernet, mlx5_1/1 down infiniband" or "none" into buf, cut
 * with "..." at the end if it does not fit; cap >= 8. Returns buf.
 */
char *pool_devices_format(const struct pool_device *devs, size_t n, char *buf,
			  size_t cap);

#endif
