/*
 * Fakes of libibverbs and librdmacm: devices as a test describes them; queue
 * pairs that really move bytes between buffers of this process, with a device's
 * checks of keys, ranges and access; and injected failures, each in the call's
 * own error convention.
 *
 * Stricter than a device: destroying an object that is in use, or leaving an
 * event unacknowledged, aborts the test.
 *
 * Thread: memory regions from any; all else from one.
 */
#ifndef TESTS_FAKE_VERBS_H
#define TESTS_FAKE_VERBS_H

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>
#include <stdbool.h>
#include <stdint.h>

struct fake_device;

/* ---- devices ---- */

/* Removes all devices and faults. Aborts if the previous test has leaked
 * objects. */
void fake_verbs_reset(void);
/* Adds a device without ports. cm: librdmacm lists it, too. Its attributes may
 * be changed until it is opened. */
struct fake_device *fake_verbs_device(const char *name,
				      enum ibv_transport_type transport,
				      bool cm);
struct ibv_device_attr *fake_verbs_attr(struct fake_device *d);
/* Sets the device's max_inline_data: at most 64 bytes; default 0. */
void fake_verbs_inline(struct fake_device *d, uint32_t bytes);
struct ibv_port_attr *fake_verbs_port(struct fake_device *d,
				      enum ibv_port_state state, uint8_t layer);
/* Adds a GID at the port's next index. type: enum ibv_gid_type. */
void fake_verbs_gid(struct fake_device *d, uint32_t port, uint32_t type,
		    const char *address);
/* Sets the path of its directory in sysfs; default: none. */
void fake_verbs_path(struct fake_device *d, const char *path);
void fake_verbs_clear_gids(struct fake_device *d);
/* One RoCE device with one port at 10.0.0.1. */
struct fake_device *fake_verbs_roce(const char *name);

/* ---- faults ---- */

/* Only the nth call of this name from now on (1: the next) fails, with err
 * (positive), reported in that call's own convention. */
void fake_verbs_fail(const char *call, unsigned int nth, int err);
unsigned int fake_verbs_calls(const char *call);
/* The nth work request from now on completes with this status. */
void fake_verbs_status(unsigned int nth, enum ibv_wc_status status);
/* The next receive completion has this opcode and length, whatever was sent. */
void fake_verbs_receive(enum ibv_wc_opcode opcode, uint32_t byte_len);
/* Holds back posted work; fake_verbs_step executes the next n requests. */
void fake_verbs_hold(bool hold);
void fake_verbs_step(unsigned int n);
/* No completions are generated any more, not even flush errors. */
void fake_verbs_mute(bool mute);
void fake_verbs_event(struct fake_device *d, enum ibv_event_type type,
		      void *element, int port);
/* Unplugs the device: no completions, and every call fails with EIO. tell: also
 * raises IBV_EVENT_DEVICE_FATAL; otherwise no descriptor becomes readable. */
void fake_verbs_remove(struct fake_device *d, bool tell);
/* Adds a completion that belongs to no request. */
void fake_verbs_complete(struct ibv_cq *cq, const struct ibv_wc *wc);

/* ---- observations ---- */

/* Objects created and not destroyed. */
int fake_verbs_left(void);
unsigned int fake_verbs_regions(void);
uint64_t fake_verbs_region_bytes(void);
const struct ibv_mr *fake_verbs_last_region(void);
unsigned int fake_verbs_access(const struct ibv_mr *mr);
/* Messages sent inline. */
unsigned int fake_verbs_inlined(void);
/* The queue pair created last; the attributes of the one with this number. */
struct ibv_qp *fake_verbs_last_qp(void);
const struct ibv_qp_attr *fake_verbs_qp_attr(uint32_t qpn);
/* Hook: called after ibv_poll_cq has left a CQ empty, so that a test can make
 * work complete just then. */
extern void (*fake_verbs_after_poll)(void);
/* Hook: called while a region is being registered. */
extern void (*fake_verbs_registering)(void);

#endif
