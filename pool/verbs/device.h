/*
 * The RDMA ports that this node moves bytes over: found at the start, one
 * address (GID) chosen for each, opened once.
 *
 * Used is every port that is active and has an address, of the devices named by
 * --rdma-device or of all; of the addresses of an Ethernet port, RoCE v2 comes
 * before v1, one that carries an IPv4 address before an IPv6 one, and a
 * link-local one last. What is not used stays in the list, with the reason.
 *
 * Contexts are librdmacm's (rdma_get_devices) where it has the device, since a
 * connection made by it can only use those; else our own.
 *
 * Every call of libibverbs and librdmacm is made in pool/verbs/, and comes out
 * of it as 0 or -errno: theirs return an errno, or -1 and set errno, or NULL,
 * each in its own way (tests/fake_verbs.h does all of it).
 *
 * What happens to the devices later is heard on a loop (verbs_watch): a port
 * goes down and comes up again, a device is removed, a queue pair breaks. A
 * port that was not used at the start stays so.
 *
 * Thread: open, close, watch, json: the node's loop. A port is constant
 * between, but for what is _Atomic.
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
/* Bytes moved by one work request: so much is sent again when a packet is lost
 * on a device without selective repeat, and so fine is progress told. */
#define VERBS_MESSAGE_MAX (1u << 20)

enum verbs_link {
	VERBS_INFINIBAND, /* by LID, within a subnet */
	VERBS_ROCE,	  /* by GID */
	VERBS_IWARP,	  /* by librdmacm only */
};

enum verbs_state {
	VERBS_ACTIVE,
	VERBS_DOWN, /* for now: no link, or its address has gone */
	VERBS_GONE, /* for good: the device was removed, or failed */
};

struct verbs_port {
	char device[64]; /* "mlx5_0" */
	uint8_t number;	 /* from 1 */
	/* constant text; NULL: used. The rest is set only then. */
	const char *why_not;
	enum verbs_link link;
	struct ibv_context *ctx; /* borrows from struct verbs */
	bool cm; /* ctx is librdmacm's */
	bool by_cm; /* connect by it: needed, or wished for */
	struct ibv_pd *pd; /* owns: what no peer may touch is registered here */
	union ibv_gid gid;
	uint8_t gid_index;
	uint16_t lid;
	enum ibv_mtu mtu; /* active */
	/* Of the device's and port's attributes, bounded by what is sensible:
	 */
	uint32_t send_depth, recv_depth; /* work requests of one QP */
	uint32_t message_max; /* bytes of one; <= VERBS_MESSAGE_MAX */
	uint64_t region_max;  /* bytes of one registration */
	uint32_t cqe_max;     /* completions of one queue */
	uint8_t reads_in, reads_out; /* RDMA READs under way at once: answered,
				      * asked */
	_Atomic int state; /* enum verbs_state */
	_Atomic unsigned int failures; /* QPs that broke, since one worked */
	_Atomic uint64_t failed_ms; /* when the last one did */
	/* Bytes of objects, counted by who moves them. */
	struct pool_counter sent, received;
	char labels[96]; /* of these: device="mlx5_0",port="1" */

	/* private */
	pthread_mutex_t lock; /* of cqs */
	struct pool_list cqs; /* who has to hear of its end */
};

struct verbs;

#define VERBS_NAMES_ACCEPTED \
	"names of RDMA devices with commas between, such as mlx5_0,mlx5_1"
/* Is this a list for verbs_open? */
bool verbs_names_valid(const char *names);
/*
 * names: "mlx5_0,mlx5_1", or NULL for all. 0 also if there are none;
 * -ENODEV: a name that is not there, or none of those named can be used: logged
 * with what there is; -EINVAL: names is no such list; -ENOMEM.
 */
int verbs_open(const char *names, struct verbs **ret_verbs);
/* Connections are made by librdmacm on all ports that it has. */
void verbs_connect_by_cm(struct verbs *v);
/* So long, at most, movers look for completions instead of sleeping
 * (pool/base/busy.h). 0, as at first: not at all. */
void verbs_busy_poll(struct verbs *v, unsigned int us);
unsigned int verbs_busy_us(const struct verbs *v);
/* Nothing made of its ports is left, and it is not watched. NULL is allowed. */
void verbs_close(struct verbs *v);

/* Hear on this loop of what happens to the devices. 0 or -errno. */
int verbs_watch(struct verbs *v, uv_loop_t *loop);
/* After a verbs_watch that succeeded: closed(arg) from a later turn, when
 * nothing of it is left on the loop. */
void verbs_unwatch(struct verbs *v, void (*closed)(void *arg), void *arg);

/* Ports that are used; i < verbs_nports. */
unsigned int verbs_nports(const struct verbs *v);
struct verbs_port *verbs_port_at(struct verbs *v, unsigned int i);
/* Somebody else has heard that its device goes (librdmacm, of which a device
 * without hot removal only tells): VERBS_GONE, and what is on it ends. Thread:
 * any. */
void verbs_port_gone(struct verbs_port *p);

/* A connection by it broke, or moved something. Thread: any. */
void verbs_port_failed(struct verbs_port *p);
void verbs_port_worked(struct verbs_port *p);

/* The counters of the ports that are used; v outlives metrics. 0 or -ENOMEM. */
int verbs_metrics(struct verbs *v, struct pool_metrics *metrics);
/* All, used or not: an array of {device, port, link, address, state, used,
 * why_not, mtu, failures, sent_bytes, received_bytes}; the caller's. NULL on
 * ENOMEM. v NULL: none. */
json_t *verbs_json(const struct verbs *v);
/* "mlx5_0/1 active roce 10.0.0.1, mlx5_1/1 down roce (the port is down)" or
 * "none" into buf, cut with "..." at the end if it does not fit; cap >= 8.
 * Returns buf. v NULL: none. */
char *verbs_format(const struct verbs *v, char *buf, size_t cap);

/* The remedy for a registration that failed with -err: a constant text that
 * ends a message, such as "raise the memlock limit (ulimit -l, LimitMEMLOCK=)".
 */
const char *verbs_remedy(int err);

#endif
