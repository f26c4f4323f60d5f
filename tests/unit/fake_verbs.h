/*
 * libibverbs and librdmacm, played: devices as a test describes them, queue
 * pairs that really move bytes between buffers of this process (with the checks
 * of keys, ranges and access that a device makes), and every call failing in its
 * own convention when told to.
 *
 * Strict where a device is not: what is destroyed while in use, and events that
 * nobody acknowledged, end the test.
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

/* ---- what there is ---- */

/* No devices, no faults. What is left of the test before ends this one. */
void fake_verbs_reset(void);
/* Without ports. cm: librdmacm has it, too. attr: to be changed before it is
 * opened. */
struct fake_device *fake_verbs_device(const char *name,
				      enum ibv_transport_type transport,
				      bool cm);
struct ibv_device_attr *fake_verbs_attr(struct fake_device *d);
/* What a request may take along; at most 64, at first none. */
void fake_verbs_inline(struct fake_device *d, uint32_t bytes);
struct ibv_port_attr *fake_verbs_port(struct fake_device *d,
				      enum ibv_port_state state, uint8_t layer);
/* type: enum ibv_gid_type. Indices of a port are given in order. */
void fake_verbs_gid(struct fake_device *d, uint32_t port, uint32_t type,
		    const char *address);
/* Where its directory in sysfs is said to be; else nowhere. */
void fake_verbs_path(struct fake_device *d, const char *path);
void fake_verbs_clear_gids(struct fake_device *d);
/* One RoCE device with one port at 10.0.0.1. */
struct fake_device *fake_verbs_roce(const char *name);

/* ---- what goes wrong ---- */

/* The nth call of this name from now on (1: the next) fails with err (positive),
 * as that call does; the others do not. */
void fake_verbs_fail(const char *call, unsigned int nth, int err);
unsigned int fake_verbs_calls(const char *call);
/* The nth work request from now on ends so. */
void fake_verbs_status(unsigned int nth, enum ibv_wc_status status);
/* The next message arrives so, though it was sent as usual. */
void fake_verbs_receive(enum ibv_wc_opcode opcode, uint32_t byte_len);
/* Posted work stays with the device, but for what fake_verbs_step lets go. */
void fake_verbs_hold(bool hold);
void fake_verbs_step(unsigned int n);
/* Nothing completes any more, also not what is flushed. */
void fake_verbs_mute(bool mute);
void fake_verbs_event(struct fake_device *d, enum ibv_event_type type,
		      void *element, int port);
/* It is mute, every call fails with EIO, and IBV_EVENT_DEVICE_FATAL comes (tell:
 * false, and descriptors say nothing either). */
void fake_verbs_remove(struct fake_device *d, bool tell);
/* A completion that nobody has asked for. */
void fake_verbs_complete(struct ibv_cq *cq, const struct ibv_wc *wc);

/* ---- what it saw ---- */

/* Objects made and not given back. */
int fake_verbs_left(void);
unsigned int fake_verbs_regions(void);
uint64_t fake_verbs_region_bytes(void);
const struct ibv_mr *fake_verbs_last_region(void);
unsigned int fake_verbs_access(const struct ibv_mr *mr);
/* Messages that went along with their request. */
unsigned int fake_verbs_inlined(void);
/* Of the last queue pair made, and of the one with this number. */
struct ibv_qp *fake_verbs_last_qp(void);
const struct ibv_qp_attr *fake_verbs_qp_attr(uint32_t qpn);
/* After ibv_poll_cq has looked and left nothing: something completes just then. */
extern void (*fake_verbs_after_poll)(void);
/* While a region is being registered. */
extern void (*fake_verbs_registering)(void);

#endif
