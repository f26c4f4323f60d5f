#ifndef TESTS_FAKE_VERBS_PRIV_H
#define TESTS_FAKE_VERBS_PRIV_H

#include "pool/base/list.h"
#include "tests/unit/fake_verbs.h"

#define FAKE_PORTS 4
#define FAKE_GIDS 32
#define FAKE_EVENTS 64

struct fake_device {
	struct ibv_device dev; /* first */
	struct ibv_device_attr attr;
	struct ibv_port_attr ports[FAKE_PORTS];
	struct ibv_gid_entry gids[FAKE_GIDS];
	unsigned int ngids;
	bool cm, gone;
	uint32_t inline_max;
	struct fake_context *cm_ctx; /* librdmacm's own */
	struct fake_context *ctx;    /* the last opened */
};

struct fake_context {
	struct ibv_context ctx; /* first */
	struct fake_device *d;
	struct ibv_async_event events[FAKE_EVENTS];
	unsigned int nevents, unacked;
	int users; /* objects created from it */
};

struct fake_pd {
	struct ibv_pd pd; /* first */
	_Atomic int users;
};

struct fake_mr {
	struct ibv_mr mr; /* first */
	unsigned int access;
	struct pool_list link;
};

struct fake_channel {
	struct ibv_comp_channel ch; /* first */
	struct ibv_cq *events[FAKE_EVENTS];
	unsigned int nevents;
};

struct fake_cq {
	struct ibv_cq cq; /* first */
	struct ibv_wc *wcs;
	unsigned int n, cap;
	bool armed;
	unsigned int unacked;
	int users;
};

#define FAKE_INLINE_MAX 64u

struct fake_work {
	struct pool_list link;
	uint64_t wr_id;
	enum ibv_wr_opcode opcode; /* of a send */
	struct ibv_sge sge;
	uint64_t remote_addr;
	uint32_t rkey;
	bool is_inline; /* then sge is of: */
	uint8_t bytes[FAKE_INLINE_MAX];
};

struct fake_qp {
	struct ibv_qp qp; /* first */
	struct ibv_qp_cap cap;
	struct ibv_qp_attr attr;
	struct pool_list sends, receives;
	unsigned int nsends, nreceives, unacked;
	struct pool_list link;
};

/* Must this call fail, with *err (positive)? Also true for all calls on an
 * unplugged device. */
bool fake_fault(const char *call, const struct ibv_context *ctx, int *err);
/* The same for calls that return NULL or -1, and set errno. */
bool fake_fault_errno(const char *call, const struct ibv_context *ctx);
/* For calls that destroy an object. Returns the errno to report, or 0; the
 * object is destroyed in any case. */
int fake_fault_late(const char *call, const struct ibv_context *ctx);
void fake_die(const char *why) __attribute__((noreturn));
void fake_made(struct ibv_context *ctx, int n);
struct fake_device *fake_device_of(const struct ibv_context *ctx);
struct fake_mr *fake_region(uint32_t key, const struct ibv_pd *pd,
			    uint64_t addr, uint64_t length,
			    unsigned int access);
void fake_memory_reset(void);
void fake_traffic_reset(void);
void fake_qp_reset(void);
extern struct pool_list fake_qps;
struct fake_qp *fake_qp_by_number(uint32_t qpn);
/* Executes all work that is not held back. */
void fake_run(void);
void fake_set_ops(struct ibv_context *ctx);

#endif
