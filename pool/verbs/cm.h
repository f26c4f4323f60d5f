/*
 * Connections made by librdmacm, for devices that can connect in no other way
 * (iWARP) and for networks where only its addressing works. The nodes exchange
 * only an IP address, a port and a token over TCP (pool/lane/link.h).
 *
 *   listening side                      connecting side
 *   verbs_cm_await
 *                                       verbs_cm_call: resolves address, route
 *                                       made(id): opens a queue pair on it
 *   request; the token  <-------------  connects, with the token
 *   identifies the connection
 *   made(id), accepts  -------------->
 *   connected                           connected
 *   ... verbs_cm_end, before the queue pair is closed; verbs_cm_free, after ...
 *
 * The event channel is polled by the loop; nothing here blocks. A resolving
 * step that takes longer than CM_STEP_MS fails.
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
/* Every connection must have ended. Calls closed(arg) when nothing is left on
 * the loop and cm is freed. */
void verbs_cm_close(struct verbs_cm *cm, void (*closed)(void *arg), void *arg);

/* One connection; the caller's storage until verbs_cm_free. */
struct verbs_cm_conn {
	/*
	 * id is now bound to its device: open a queue pair on it
	 * (verbs_qp_opts.cm_id). Return 0, or a -errno, which is passed to
	 * `failed`.
	 */
	int (*made)(struct verbs_cm_conn *c, struct rdma_cm_id *id);
	/* Work may be posted. */
	void (*connected)(struct verbs_cm_conn *c);
	/* The connection could not be made, or has ended. Called at most once;
	 * the owner calls verbs_cm_end, inside or later. */
	void (*failed)(struct verbs_cm_conn *c, int err);

	/* this module's */
	struct pool_list link;
	struct verbs_cm *cm;
	struct verbs_port *port;
	struct rdma_cm_id *id; /* owns */
	uint64_t token;
	bool ended;
};

/* Waits for a connection on that port. Returns the address that the peer must
 * connect to, and the (random) token that it must send. 0 or -errno;
 * -EADDRNOTAVAIL: the port has no IP address. */
int verbs_cm_await(struct verbs_cm *cm, struct verbs_port *port,
		   struct verbs_cm_conn *c, char ret_host[CM_HOST_MAX],
		   uint16_t *ret_port, uint64_t *ret_token);
/* Connects to a peer that waits (verbs_cm_await), over that port. 0 or -errno.
 */
int verbs_cm_call(struct verbs_cm *cm, struct verbs_port *port,
		  struct verbs_cm_conn *c, const char *host,
		  uint16_t tcp_port, uint64_t token);
/* Disconnects; none of c's callbacks is called any more. Close the queue pair,
 * if there is one, after this; then verbs_cm_free destroys the id. */
void verbs_cm_end(struct verbs_cm_conn *c);
void verbs_cm_free(struct verbs_cm_conn *c);

#endif
