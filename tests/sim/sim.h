/*
 * A whole cluster in one process, in virtual time and on a simulated network:
 * the base of the simulations (sim_cluster_test.c, bench_sim.c).
 *
 * The product has no code for this. The simulation replaces implementations
 * behind interfaces that the product has anyway:
 *
 *   pool/conn/conn.h     sim_net.c: frames copied in memory, after a delay
 *   pool/store/store.h   sim_disk.c: files that are a size and 64 bits
 *   pool/peer/peer.h     sim_peers.c: transfers between nodes in this process
 *   master/etcd_state.h  sim_etcd.c: a list of records, written after a delay
 *   pool/base/clock.h    sim.c: pool_clock_set
 *   libuv's own clock    sim.c: clock_gettime(2), so that the product's timers
 *                        fire in virtual time, and uv_queue_work, which does
 *                        the work at once (threads would finish in any order)
 *
 * A vtable for transport and timers inside the product would duplicate these
 * interfaces and cost an indirect call per frame. The inside of pool/conn/
 * (system calls, partial reads) is not simulated: pool_conn_test and the
 * fuzzers test it.
 *
 * A host is a machine with one event loop. A turn is one uv_run(NOWAIT), which
 * receives all that has arrived, as much from each connection as
 * pool/conn/conn.h allows; its thread CPU time can be logged. The virtual clock
 * stands still during a turn. After it the host is busy for a time that depends
 * on what it received, never on CPU time. So a flood queues up as it does at a
 * real master, and a run can be repeated.
 *
 * A script is a host without a loop, for played nodes: the callbacks of its
 * connections run as soon as a frame or event arrives.
 *
 * Events run in order of virtual time; those of the same time, in the order in
 * which they were scheduled. So a run depends on its seed only. Two runs with
 * the same sim_digest did the same.
 *
 * One simulation at a time, on one thread.
 */
#ifndef TESTS_SIM_H
#define TESTS_SIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/list.h"

#define SIM_MS 1000000ull
#define SIM_S (1000 * SIM_MS)

void sim_open(uint64_t seed);
void sim_close(void);
uint64_t sim_now_ns(void);
/* 0 .. bound - 1. */
uint64_t sim_random(uint64_t bound);
/* Adds `what` to the digest. */
void sim_note(uint64_t what);
uint64_t sim_digest(void);
/* Number of deliveries, turns and events so far. */
uint64_t sim_happened(void);
/* CPU time of this thread; the only real clock here. */
uint64_t sim_cpu_ns(void);

/* ---- events ---- */

struct sim_event {
	uint64_t at_ns, order;
	void (*run)(struct sim_event *e);
	void *user;
	size_t pos; /* private; 0: not set */
};
/* Calls e->run once, at that time, or now if that is past. If e is scheduled
 * already, moves it. */
void sim_at(struct sim_event *e, uint64_t at_ns);
void sim_cancel(struct sim_event *e);

/* Runs all turns and events until then. */
void sim_run_until(uint64_t at_ns);

/* ---- hosts ---- */

/* The turns of hosts that are `logged`, one after the other. */
struct sim_turn {
	uint32_t cpu_ns; /* UINT32_MAX: longer */
	uint32_t frames, bytes; /* received */
};
/* Logs turns in log, the caller's, until it has max of them. */
void sim_log_turns(struct sim_turn *log, size_t max);
size_t sim_logged(void);

struct sim_host {
	uv_loop_t loop; /* for the product */
	bool script;
	struct pool_list link;
	/* busy time: per turn, per byte received, and in addition for a turn
	 * that leaves more to do (idle handles) */
	uint64_t turn_ns, byte_ps, idle_ns;
	bool logged;
	bool dead; /* by sim_host_die */
	/* private */
	struct pool_list conns;	   /* all of them */
	uv_check_t input;
	struct pool_list calls;	   /* struct sim_call */
	struct pool_list works;	   /* uv_queue_work, done */
	struct pool_list doors;	   /* listeners with connections to accept */
	struct pool_list readable; /* connections */
	struct pool_list closing;  /* connections */
	uint64_t free_ns;	   /* busy until then */
	uint64_t nic_ns;	   /* when its last frame has arrived */
	uint64_t got_bytes, got_frames; /* in this turn */
};

void sim_host_open(struct sim_host *h, bool script);
/* Nothing must be left on its loop. */
void sim_host_close(struct sim_host *h);

/* Stops the host for so long, as SIGSTOP does: frames to it wait. */
void sim_host_stop(struct sim_host *h, uint64_t ns);
/* The process dies: its connections end as the kernel ends them (what it had
 * sent still arrives), and nothing is sent or received any more. Its loop still
 * turns, to free its memory. silent: the machine dies, and no peer notices. */
void sim_host_die(struct sim_host *h, bool silent);

/* Called in the next turn of its host. */
struct sim_call {
	struct pool_list link;
	void (*run)(struct sim_call *c);
};
void sim_call(struct sim_host *h, struct sim_call *c);

/* ---- the network (sim_net.c) ---- */

struct pool_conn;

#define SIM_DELAY_NS 50000u    /* a frame takes once to twice as long */
#define SIM_BYTE_PS 800u       /* 10 Gbit/s */

/* The machine at this end has lost its power: nothing is sent or received any
 * more, and the other end does not notice. This end is freed, no callbacks. */
void sim_conn_vanish(struct pool_conn *c);
/* Has h a connection to `to` that is dead, which h has not noticed yet? */
bool sim_net_cut(const struct sim_host *h, const struct sim_host *to);
/* cb is called before a frame is delivered, and also if it is lost: then `lost`
 * says why. NULL: no callback. */
struct pool_frame;
void sim_net_on_frame(void (*cb)(const struct sim_host *from,
				 const struct sim_host *to,
				 const struct pool_frame *f,
				 const uint8_t *payload, const char *lost));
/* The same when a frame is sent, delivered later or not. */
void sim_net_on_send(void (*cb)(const struct sim_host *from,
				const struct pool_frame *f,
				const uint8_t *payload));
/* For sim.c. A host dies (sim_host_die). */
void sim_net_die(struct sim_host *h, bool silent);
/* `gone` is about to be freed: h's connections drop their pointers to it. */
void sim_net_forget(struct sim_host *h, const struct sim_host *gone);
/* Delivers a turn's input. */
void sim_net_input(struct sim_host *h);
/* Is there input for a turn? */
bool sim_net_waiting(const struct sim_host *h);
void sim_net_open(void);
void sim_net_close(void);

#endif
