/*
 * Connections made by librdmacm, for devices that know no other way (iWARP) and
 * for networks where only its addressing works. What our own way exchanges over
 * TCP (pool/lane/link.h) shrinks to where to call and a token.
 *
 *   called:  verbs_cm_await  ---------------------------------+
 *   caller:  verbs_cm_call -> resolves address and route      |
 *            made(id): a queue pair on it                     |
 *            connects, with the token ------> request: made(id), accepts
 *            connected                            connected
 *            ... verbs_cm_end (before the queue pair is closed) ...
 *
 * An event channel is on the loop; nothing here blocks. A step that takes
 * longer than CM_STEP_MS fails.
 *
 * Thread: the loop's.
 */
#ifndef POOL_VERBS_CM_H
#define POOL_VERBS_CM_H

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <sys/socket.h>
#include <uv.h>

#include "pool/base/list.h"
#include "pool/verbs/device.h"

#define CM_STEP_MS 2000
#define CM_BACKLOG 64
#define CM_HOST_MAX INET6_ADDRSTRLEN

struct verbs_cm;

/* 0 or -errno (-ENODEV: the kernel has no rdma_ucm). */
int verbs_cm_open(uv_loop_t *loop, struct verbs_cm **ret_cm);
/* Every connection has ended. closed(arg) when nothing is left on the loop;
 * then it is freed. */
void verbs_cm_close(struct verbs_cm *cm, void (*closed)(void *arg), void *arg);

/* One connection, from its beginning to verbs_cm_end; the caller's storage. */
struct verbs_cm_conn {
	/*
	 * id is there and has its device: make a queue pair on it
	 * (verbs_qp_opts.cm_id). 0, or -errno: it is not to be, and failed is
	 * not called.
	 */
	int (*made)(struct verbs_cm_conn *c, struct rdma_cm_id *id);
	/* Work may be posted. */
	void (*connected)(struct verbs_cm_conn *c);
	/* It could not be made, or has ended. Once; verbs_cm_end follows, or is
	 * called inside. */
	void (*failed)(struct verbs_cm_conn *c, int err);

	/* this module's */
	struct pool_list link;
	struct verbs_cm *cm;
	struct verbs_port *port;
	struct rdma_cm_id *id; /* owns */
	uint64_t token;
	bool over;
};

/* Be called by that port: where, and with which token (random). 0 or -errno:
 * -EADDRNOTAVAIL: the port has no IP address. */
int verbs_cm_await(struct verbs_cm *cm, struct verbs_port *port,
		   struct verbs_cm_conn *c, char ret_host[CM_HOST_MAX],
		   uint16_t *ret_port, uint64_t *ret_token);
/* Call, by that port. 0 or -errno. */
int verbs_cm_call(struct verbs_cm *cm, struct verbs_port *port,
		  struct verbs_cm_conn *c, const char *host,
		  uint16_t tcp_port, uint64_t token);
/* Ends it: none of c's functions is called any more. The queue pair, if there
 * is one, is closed afterwards, and then verbs_cm_free gives back the id. */
void verbs_cm_end(struct verbs_cm_conn *c);
void verbs_cm_free(struct verbs_cm_conn *c);

/* The IP address of a port's network device (sysfs gid_attrs/ndevs). 0 or
 * -EADDRNOTAVAIL. */
int verbs_port_ip(const struct verbs_port *port, struct sockaddr_storage *ret);

#endif
