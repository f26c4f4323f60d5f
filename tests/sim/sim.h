/*
 * A whole cluster in one process, under virtual time and on a network that is
 * simulated: what the simulations (sim_cluster_test.c, bench_sim.c) stand on.
 *
 * Nothing in the product is made for it. The seams are interfaces that it has
 * anyway, and whoever links these files gets their other side:
 *
 *   pool/conn/conn.h          sim_net.c: frames from memory to memory, after a delay
 *   pool/store/store.h         sim_disk.c: files that are a size and 64 bits
 *   pool/peer/peer.h          sim_peers.c: transfers between nodes of this process
 *   master/etcd_state.h  sim_etcd.c: a list of records, written after a delay
 *   pool/base/clock.h    sim.c: pool_clock_set
 *   libuv's own clock    sim.c: clock_gettime(2), so that the product's timers
 *                        fire in virtual time, and uv_queue_work, whose work is
 *                        done at once (workers would come back when they like)
 *
 * A vtable for transport and timers inside the product would be the same once
 * more, with a call through a pointer for every frame. What is not simulated is
 * the inside of pool/conn/ (system calls, bytes in pieces): pool_conn_test and
 * the fuzzers are for that.
 *
 * A host is a machine with one event loop. A turn of it is one uv_run(NOWAIT),
 * in which everything is taken that has come by then, as much from each
 * connection as pool/conn/conn.h allows; its thread CPU time can be logged. The
 * virtual clock stands still during a turn; after it the host is busy for a
 * time that depends on what it was sent, never on the CPU time: so a flood
 * piles up as it does before a real master, and a run can be repeated.
 *
 * A script is a host without a loop: its connections' callbacks run as soon as
 * what they tell of is there. For nodes that are played.
 *
 * Order is by virtual time, then by the order of asking: a run is a function of
 * its seed. sim_digest tells two of them apart.
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
/* Goes into the digest. */
void sim_note(uint64_t what);
uint64_t sim_digest(void);
/* All that has happened: deliveries, turns, events. */
uint64_t sim_happened(void);
/* Of this thread; the only clock here that is real. */
uint64_t sim_cpu_ns(void);

/* ---- things to come ---- */

struct sim_event {
	uint64_t at_ns, order;
	void (*run)(struct sim_event *e);
	void *user;
	size_t pos; /* private; 0: not set */
};
/* Run e->run once, at that time (not before now). Set anew if it was set. */
void sim_at(struct sim_event *e, uint64_t at_ns);
void sim_cancel(struct sim_event *e);

/* Let time pass until then. */
void sim_run_until(uint64_t at_ns);

/* ---- hosts ---- */

/* The turns of hosts that are `logged`, one after the other. */
struct sim_turn {
	uint32_t cpu_ns; /* UINT32_MAX: longer */
	uint32_t frames, bytes; /* that it was sent */
};
/* Room for so many, the caller's; what comes when it is full is not noted. */
void sim_log_turns(struct sim_turn *log, size_t max);
size_t sim_logged(void);

struct sim_host {
	uv_loop_t loop; /* what the product is given */
	bool script;
	struct pool_list link;
	/* how fast it is: of a turn, of a byte that it is sent, of a turn with
	 * more to do (idle handles) */
	uint64_t turn_ns, byte_ps, idle_ns;
	bool logged;
	bool dead; /* by sim_host_die */
	/* private */
	struct pool_list conns;	   /* all of them */
	uv_check_t input;
	struct pool_list calls;	   /* struct sim_call */
	struct pool_list works;	   /* uv_queue_work, done */
	struct pool_list doors;	   /* listeners with somebody before them */
	struct pool_list readable; /* connections */
	struct pool_list closing;  /* connections */
	uint64_t free_ns;	   /* busy until then */
	uint64_t nic_ns;	   /* what comes later comes after that */
	uint64_t got_bytes, got_frames; /* in this turn */
};

void sim_host_open(struct sim_host *h, bool script);
/* Nothing must be left on its loop. */
void sim_host_close(struct sim_host *h);

/* It stands still for so long, as by SIGSTOP: what comes waits. */
void sim_host_stop(struct sim_host *h, uint64_t ns);
/* The process has died: its connections end, as the kernel ends them (with all
 * that it had sent), nothing comes or goes any more. Its loop still turns, to
 * free its memory. silent: the machine has, and nobody is told. */
void sim_host_die(struct sim_host *h, bool silent);

/* Called in the next turn of its host. */
struct sim_call {
	struct pool_list link;
	void (*run)(struct sim_call *c);
};
void sim_call(struct sim_host *h, struct sim_call *c);

/* ---- the network (sim_net.c) ---- */

struct pool_conn;

#define SIM_DELAY_NS 50000u    /* of a frame, at least, and up to so much more */
#define SIM_BYTE_PS 800u       /* 10 Gbit/s */

/* The machine at this end has lost its power: nothing comes or goes any more,
 * and the other end is not told. Its own end is freed without a word. */
void sim_conn_vanish(struct pool_conn *c);
/* h has a connection to `to` of which it does not know that it is silent. */
bool sim_net_cut(const struct sim_host *h, const struct sim_host *to);
/* Called before a frame is delivered, and (`lost`: why) if it never will be. NULL:
 * nobody. */
struct pool_frame;
void sim_net_on_frame(void (*cb)(const struct sim_host *from,
				 const struct sim_host *to,
				 const struct pool_frame *f,
				 const uint8_t *payload, const char *lost));
/* The same when it is sent, whatever becomes of it. */
void sim_net_on_send(void (*cb)(const struct sim_host *from,
				const struct pool_frame *f,
				const uint8_t *payload));
/* For sim.c: a host dies; a turn's input; is there any? */
void sim_net_die(struct sim_host *h, bool silent);
/* h's connections outlive `gone`, which is freed. */
void sim_net_forget(struct sim_host *h, const struct sim_host *gone);
void sim_net_input(struct sim_host *h);
bool sim_net_waiting(const struct sim_host *h);
void sim_net_open(void);
void sim_net_close(void);

#endif
