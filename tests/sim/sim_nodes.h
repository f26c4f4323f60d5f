/*
 * A small pool under simulation, in which nothing of the pool is played: masters
 * (master/) and nodes (pool/node/), each a process on a host of its own; only the
 * users of the mounts are. What is simulated below them: tests/sim.h.
 *
 *   sim_nodes.c        processes: start, stop, crash; what goes wrong; rest
 *   sim_nodes_ops.c    what users do at a mount, as fs/ would ask the node
 *   sim_nodes_model.c  what has to be true of names afterwards
 *   sim_nodes_mirror.c what the nodes' copies of the namespace have to be then
 *   sim_nodes_trace.c  what happened to them, for people
 *
 * THE RULE. An operation KNOWS those whose outcome its mount showed when it began,
 * and all that these knew. It is ACKNOWLEDGED if an fsync of its directory, begun
 * after it, ended with 0. When everything has come to rest
 *   - a name shows what one operation made of it, and no acknowledged one knew
 *     that; it shows nothing only if somebody has removed it, and no acknowledged
 *     write knew of that, or if no write was ever acknowledged;
 *   - all mounts and the master agree, in all that a name has, and the bytes can
 *     be read;
 *   - an attribute has the value that was acknowledged last, or a later one;
 * and at any time
 *   - a master tells nobody of a removal that etcd does not have;
 *   - what a node says it holds, on the master's order, is right;
 *   - a store gives up no copy of an acknowledged file that is to have two without
 *     the master, nor the last copy of one that may not be evicted.
 * A file whose last copy was evicted counts as removed by that, and a file that was
 * not in the pool by a directory that was made of its name then.
 */
#ifndef TESTS_SIM_NODES_H
#define TESTS_SIM_NODES_H

#include "pool/node/node_priv.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_etcd.h"
#include "tests/sim/sim_faults.h"

#define SN_NODES 3
#define SN_NAMES 12
#define SN_DIRS 6
#define SN_OPS 60 /* of one name */
#define SN_UNLINKED 16 /* the same */

/* Faults that the mended code still has, and what they need to show: left out
 * of the workload unless asked for. */
enum {
	SN_WITH_RENAMES = 1,
	SN_WITH_UNLINKS = 2,
	SN_WITH_EVICTION = 4,
	SN_WITH_DIRS = 8, /* made and removed; of names that are files elsewhere */
	SN_WITH_ETCD = 16, /* a slow etcd, and masters that die with it */
	SN_WITH_CUTS = 32, /* connections that end */
	SN_WITH_STOPS = 64,
	SN_WITH_CRASHES = 128, /* of nodes */
	SN_WITH_ROT = 256, /* bits that turn in the files of a dead node */
	SN_WITH_ETCD_FIRST = 512, /* nothing is told before etcd has it */
	SN_WITH_ATTRS = 1024, /* modes, times, xattrs are changed */
	SN_WITH_ALL = 2047,
};

struct sn;

/* A process, until its memory has been freed. */
struct sn_proc {
	struct pool_list link; /* in sn.procs */
	struct sim_host host;
	struct sim_call call;
	struct sn *sn;
	unsigned int index; /* of the node; SN_NODES: a master */
	bool dead, closed;
	struct pool_node *node;
	struct pool_metrics *metrics;
	struct master *master;
	struct etcd_state *state;
	struct pool_list tasks; /* of users: struct task */
	uint32_t busy;		/* names that somebody is at */
	uint64_t alone, granted; /* evictions that have been looked at */
};

enum sn_kind { SN_WRITE, SN_REMOVE };

/* Of one name. */
struct sn_op {
	enum sn_kind kind;
	bool is_dir;
	bool void_; /* it failed, and changed nothing */
	bool acked, lost, evicted;
	bool taken; /* back to be written, before it was acknowledged */
	bool cut;   /* ... by who died then: it may be gone */
	bool in_pool; /* SN_WRITE: the master has had it */
	bool told;  /* SN_REMOVE: the master has been asked for it */
	unsigned int node;
	uint64_t bytes, size;
	XXH128_hash_t sum;
	uint64_t knows; /* of the same name, by index */
	uint64_t number; /* by time */
};

struct sn_name {
	char path[32];
	unsigned int dir; /* in sn_dirs */
	unsigned int nops;
	bool rotten; /* a file of it is, or was: bytes may be lost */
	bool is_dir;	   /* in the master's map */
	uint64_t dir_made; /* the last operation before it became that */
	struct sn_op op[SN_OPS];
	/* The last generations of which it was to be unlinked. */
	uint64_t unlinked[SN_UNLINKED];
	unsigned int nunlinked;
	/* The last ones that the feed had of files. */
	uint64_t put[SN_UNLINKED];
	unsigned int nput;
	/* The last ones that somebody asked to give up. */
	uint64_t given_up[SN_UNLINKED];
	unsigned int ngiven_up;
	/* at each node, now: the outcome of one, and what was known by it */
	uint64_t shown[SN_NODES];
	uint64_t known[SN_NODES];
};

struct sn {
	uint64_t seed;
	unsigned int with;
	bool trace;
	struct sn_name name[SN_NAMES];
	struct sn_proc *node[SN_NODES], *master; /* NULL: not running */
	struct pool_list procs;
	struct sim_etcd etcd;
	struct sim_event poll, trouble, crash, user[SN_NODES];
	struct sim_event back[SN_NODES + 1]; /* and the master */
	unsigned int crashing;
	unsigned int last[SN_NODES]; /* the name that its user was at */
	uint64_t noperations, nbytes;
	uint64_t count, acked[SN_NODES][SN_DIRS]; /* of attributes, see sn_check_counts */
	unsigned int tasks;
	uint64_t nacks, nfaults, digest;
	bool calm;
	char wrong[256]; /* "": nothing */
};

extern const char *const sn_dirs[];

/* One run; false: s->wrong says why. */
bool sn_run(struct sn *s, uint64_t seed, unsigned int with, bool trace);

/* ---- sim_nodes.c ---- */

/* The first thing that is found wrong. */
void sn_wrong(struct sn *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* For the trace; only of names that are looked at. */
void sn_say(struct sn *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- sim_nodes_ops.c ---- */

/* One user's next operation at that node, by chance. */
void sn_user_acts(struct sn *s, struct sn_proc *p);
/* The directories, and their rules, at the first node; s->tasks falls to 0. */
void sn_prepare(struct sn *s, struct sn_proc *p);
/* Read all names that are there: wrong if that fails. */
void sn_read_all(struct sn *s, struct sn_proc *p);
/* p's node dies now: what nobody can know to be kept. */
void sn_users_lose(struct sn_proc *p);
/* p's node is about to be closed: nobody waits for anything there. */
void sn_users_leave(struct sn_proc *p);

/* ---- sim_nodes_model.c ---- */

void sn_model_open(struct sn *s);
/* What each mount shows now is noted. */
void sn_observe(struct sn *s);
/* op's mount has removed it, and has not been told of any other removal. */
void sn_removed(struct sn *s, unsigned int name, const struct sn_op *op);
void sn_forget_shown(struct sn *s, unsigned int node);
struct sn_op *sn_op_new(struct sn *s, unsigned int name, unsigned int node,
			enum sn_kind kind, uint64_t knows);
uint64_t sn_size_of(uint64_t bytes, unsigned int dir);
/* All before `number` at that node in that directory: acknowledged, or lost. */
void sn_acked(struct sn *s, unsigned int node, unsigned int dir,
	      uint64_t number, int status);
/* A frame is about to be read; to be sent. */
void sn_check_frame(struct sn *s, const struct sn_proc *from,
		    const struct pool_frame *f, const uint8_t *payload);
void sn_check_sent(struct sn *s, const struct sn_proc *from,
		   const struct pool_frame *f, const uint8_t *payload);
/* A bit of some file of that node turns, while it is dead. */
void sn_rot(struct sn *s, unsigned int node);
/* At rest. */
void sn_check(struct sn *s);

/* ---- sim_nodes_mirror.c ---- */

/* Both at rest. */
void sn_check_mirrors(struct sn *s);
void sn_check_counts(struct sn *s);

/* ---- sim_nodes_trace.c ---- */

void sn_trace_frame(const struct sim_host *from, const struct sim_host *to,
		    const struct pool_frame *f, const uint8_t *payload,
		    const char *lost);
void sn_trace_open(struct sn *s);

#endif
