/*
 * The RDMA ports of this node. verbs_open finds and opens them once, at the
 * start of the process, and chooses one address (GID) for each.
 *
 * A port is used if it is active and has an address, and its device is named by
 * --rdma-device (by default all devices are used). Of an Ethernet port's
 * addresses, RoCE v2 is preferred to v1, then IPv4 to IPv6 and IPv6 to
 * link-local. Unused ports stay in the list, with the reason.
 *
 * A connection made by librdmacm can only use the device context that librdmacm
 * has opened (rdma_get_devices). That context is therefore used for everything;
 * verbs_open opens a context itself only if librdmacm has none for the device.
 *
 * The other headers: queue.h, queue pairs; region.h, registered memory; cm.h,
 * connections by librdmacm. Only pool/lane/link*.c uses these (pool/peer/ owns
 * the cache of region.h). All others only open the ports, pass them on and show
 * them.
 *
 * Only pool/verbs/ calls libibverbs and librdmacm. It converts their error
 * conventions (an errno, -1 with errno, or NULL) to 0 or -errno.
 * tests/unit/fake_verbs.h imitates each convention.
 *
 * Later events are handled on a loop (verbs_watch): a port goes down or comes
 * up, a device is removed, a queue pair breaks. A port that was not used at the
 * start is never used.
 *
 * Thread: the node's loop, unless a function says otherwise. Between open and
 * close, only the _Atomic fields of a port change.
 */
#ifndef POOL_VERBS_DEVICE_H
#define POOL_VERBS_DEVICE_H

#include <infiniband/verbs.h>
#include <jansson.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/list.h"
#include "pool/base/metric.h"

#define VERBS_PORTS_MAX 32
#define VERBS_SEND_DEPTH 64u
#define VERBS_RECV_DEPTH 128u
/* Bytes of one work request. A device without selective repeat resends them all
 * when it loses a packet; notes report progress in these steps. */
#define VERBS_MESSAGE_MAX (1u << 20)

enum verbs_link {
	VERBS_INFINIBAND, /* by LID, within a subnet */
	VERBS_ROCE,	  /* by GID */
	VERBS_IWARP,	  /* connected by librdmacm only */
};

enum verbs_state {
	VERBS_ACTIVE,
	VERBS_DOWN, /* temporary: no link, or its address was removed */
	VERBS_GONE, /* final: the device was removed, or failed */
};

struct verbs_port {
	char device[64]; /* "mlx5_0" */
	uint8_t number;	 /* from 1 */
	/* constant text; NULL: the port is used, and the rest is valid. */
	const char *why_not;
	enum verbs_link link;
	struct ibv_context *ctx; /* borrows from struct verbs */
	bool cm; /* ctx is librdmacm's */
	bool by_cm; /* librdmacm must connect: iWARP, or configured */
	struct ibv_pd *pd; /* owns; for memory that no peer may access */
	union ibv_gid gid;
	uint8_t gid_index;
	uint16_t lid;
	enum ibv_mtu mtu; /* active */
	/* Limits: the device's and port's attributes, bounded by our own. */
	uint32_t send_depth, recv_depth; /* work requests of one QP */
	uint32_t message_max; /* bytes of one; <= VERBS_MESSAGE_MAX */
	uint64_t region_max;  /* bytes of one registration */
	uint32_t cqe_max;     /* entries of one completion queue */
	uint8_t reads_in, reads_out; /* RDMA READs in flight at once: served,
				      * issued */
	_Atomic int state; /* enum verbs_state */
	_Atomic unsigned int failures; /* broken QPs since the last success */
	_Atomic uint64_t failed_ms; /* last failure, as pool_now_ms */
	/* Object bytes; pool/lane/ counts them. */
	struct pool_counter sent, received;
	char labels[96]; /* of these counters: device="mlx5_0",port="1" */

	/* private */
	pthread_mutex_t lock; /* of cqs */
	struct pool_list cqs; /* struct verbs_cq: notified of VERBS_GONE */
};

struct verbs;

#define VERBS_NAMES_ACCEPTED \
	"names of RDMA devices with commas between, such as mlx5_0,mlx5_1"
/* Is this a valid list for verbs_open? */
bool verbs_names_valid(const char *names);
/*
 * names: "mlx5_0,mlx5_1", or NULL for all. 0, also if there is no device;
 * -ENODEV: a named device does not exist, or none of those named can be used
 * (logged with the list of ports); -EINVAL: names is not a valid list; -ENOMEM.
 */
int verbs_open(const char *names, struct verbs **ret_verbs);
/* Lets librdmacm make the connections of all ports whose device it has. */
void verbs_connect_by_cm(struct verbs *v);
/* Longest time that movers poll for completions instead of sleeping
 * (pool/base/busy.h). 0, the default: never. */
void verbs_busy_poll(struct verbs *v, unsigned int us);
unsigned int verbs_busy_us(const struct verbs *v);
/* Every object made from its ports must have been closed, and verbs_unwatch, if
 * verbs_watch was called, must have called closed(arg). NULL: no-op. */
void verbs_close(struct verbs *v);

/* Handles events of the devices on this loop. 0 or -errno. */
int verbs_watch(struct verbs *v, uv_loop_t *loop);
/* Ends a successful verbs_watch. closed(arg) runs from a later turn of the
 * loop, when nothing of v is left on it. */
void verbs_unwatch(struct verbs *v, void (*closed)(void *arg), void *arg);

/* The used ports; i < verbs_nports. */
unsigned int verbs_nports(const struct verbs *v);
struct verbs_port *verbs_port_at(struct verbs *v, unsigned int i);
/* Sets VERBS_GONE and breaks the port's queue pairs. For librdmacm's report
 * that the device is removed, which may be the only one. Thread: any. */
void verbs_port_gone(struct verbs_port *p);

/* Report that a connection over the port broke, or moved bytes. Thread: any. */
void verbs_port_failed(struct verbs_port *p);
void verbs_port_worked(struct verbs_port *p);

/* Registers the counters of the used ports; v outlives metrics. 0 or -ENOMEM.
 */
int verbs_metrics(struct verbs *v, struct pool_metrics *metrics);
/* All ports, used or not: an array of {device, port, link, address, state,
 * used, why_not, mtu, failures, sent_bytes, received_bytes}, which the caller
 * owns. NULL on ENOMEM. v NULL: an empty array. */
json_t *verbs_json(const struct verbs *v);
/* Writes "mlx5_0/1 active roce 10.0.0.1, mlx5_1/1 down roce (the port is down)"
 * or "none" to buf, shortened with "..." if it does not fit; cap >= 8. Returns
 * buf. v NULL: "none". */
char *verbs_format(const struct verbs *v, char *buf, size_t cap);

/* Advice for a call that failed with err (-errno): a constant text to end a
 * message with, such as "raise the memlock limit (ulimit -l, LimitMEMLOCK=)".
 */
const char *verbs_remedy(int err);

#endif
