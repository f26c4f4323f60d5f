/*
 * A small simulated pool of real masters (master/) and real nodes (pool/node/),
 * each a process on a host of its own. Only the users of the mounts are played.
 * What is simulated below them: tests/sim/sim.h.
 *
 *   sim_nodes.c        processes: start, stop, crash; faults; coming to rest
 *   sim_nodes_ops.c    users' operations at a mount, as fs/ would request them
 *   sim_nodes_model.c  checks of the names afterwards
 *   sim_nodes_mirror.c checks of the nodes' copies of the namespace
 *   sim_nodes_trace.c  prints what happened
 *
 * THE RULE. An operation KNOWS the operations whose outcome its mount showed
 * when it began, and all that these knew. It is ACKNOWLEDGED if an fsync of its
 * directory, begun after it, returned 0. When everything has come to rest
 *   - a name shows the outcome of one operation, which no acknowledged one
 *     knew. It shows nothing only if there is a removal of it that no
 *     acknowledged write knew, or if no write of it was acknowledged;
 *   - all mounts and the master agree on each name and its attributes, and its
 *     bytes can be read;
 *   - an attribute has the value acknowledged last, or a later one;
 * and at any time
 *   - a master reveals no removal that etcd does not have;
 *   - a copy that a node reports as made on the master's order is right;
 *   - without the master, a store evicts no copy of an acknowledged file with
 *     two replicas; with or without it, not the last copy of a noevict one.
 * Eviction of its last copy counts as a removal of a file. So does the creation
 * of a directory with its name while the pool does not have the file.
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
#define SN_OPS 60 /* operations per name */
#define SN_UNLINKED 16 /* generations remembered per name and kind */

/* Kinds of operations and faults; a run has only those that it is given. */
enum {
	SN_WITH_RENAMES = 1,
	SN_WITH_UNLINKS = 2,
	SN_WITH_EVICTION = 4,
	SN_WITH_DIRS = 8, /* mkdir and rmdir, also of names of files */
	SN_WITH_ETCD = 16, /* a slow etcd, and masters that die with it */
	SN_WITH_CUTS = 32, /* connections that end */
	SN_WITH_STOPS = 64,
	SN_WITH_CRASHES = 128, /* of nodes */
	SN_WITH_ROT = 256, /* flipped bits in the files of a dead node */
	SN_WITH_ETCD_FIRST = 512, /* check: etcd has a removal before nodes */
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
	uint32_t busy;		/* bit mask: names that a user works on */
	uint64_t alone, granted; /* evictions checked so far */
};

enum sn_kind { SN_WRITE, SN_REMOVE };

/* An operation on one name. */
struct sn_op {
	enum sn_kind kind;
	bool is_dir;
	bool void_; /* failed, changed nothing */
	bool acked, lost, evicted;
	bool taken; /* reopened for writing before it was acknowledged */
	bool cut;   /* taken, and then its node died: it may be gone */
	bool in_pool; /* SN_WRITE: it was in the master's map */
	bool sent;  /* SN_REMOVE: an UNLINK has reached the master */
	unsigned int node;
	uint64_t bytes, size;
	XXH128_hash_t sum;
	uint64_t knows; /* bit mask: operations on the same name, by index */
	uint64_t number; /* in order of time, over all names */
};

struct sn_name {
	char path[32];
	unsigned int dir; /* in sn_dirs */
	unsigned int nops;
	bool rotten; /* a file of it was damaged: bytes may be lost */
	bool is_dir;	   /* in the master's map */
	uint64_t dir_made; /* last operation (number) before is_dir was set */
	struct sn_op op[SN_OPS];
	/* The last generations that UNLINKs named. */
	uint64_t unlinked[SN_UNLINKED];
	unsigned int nunlinked;
	/* The last generations of the file in feeds. */
	uint64_t put[SN_UNLINKED];
	unsigned int nput;
	/* The last generations that nodes asked to evict. */
	uint64_t given_up[SN_UNLINKED];
	unsigned int ngiven_up;
	/* by node: operation whose outcome it shows (index + 1; 0: nothing);
	 * bit mask of the operations that it knows */
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
	unsigned int last[SN_NODES]; /* the name its user worked on last */
	uint64_t noperations, nbytes;
	/* changes of attributes: see sn_check_counts */
	uint64_t count, acked[SN_NODES][SN_DIRS];
	unsigned int tasks;
	uint64_t nacks, nfaults, digest;
	bool calm;
	char wrong[256]; /* "": nothing */
};

extern const char *const sn_dirs[];

/* One run; false: s->wrong says why. */
bool sn_run(struct sn *s, uint64_t seed, unsigned int with, bool trace);

/* ---- sim_nodes.c ---- */

/* Records an error; only the first one is kept. */
void sn_wrong(struct sn *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Prints a line of the trace, if there is one. */
void sn_say(struct sn *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- sim_nodes_ops.c ---- */

/* The user of that node begins a random operation. */
void sn_user_acts(struct sn *s, struct sn_proc *p);
/* Creates the directories and their rules at p, the first node. Done when
 * s->tasks is 0. */
void sn_prepare(struct sn *s, struct sn_proc *p);
/* Reads all names that exist; sn_wrong if that fails. */
void sn_read_all(struct sn *s, struct sn_proc *p);
/* p's node dies: marks the operations that may be lost by that. */
void sn_users_lose(struct sn_proc *p);
/* p's node is about to be closed: ends its users' operations. */
void sn_users_leave(struct sn_proc *p);

/* ---- sim_nodes_model.c ---- */

void sn_model_open(struct sn *s);
/* Records what each mount shows now. */
void sn_observe(struct sn *s);
/* The removal op has succeeded at its mount, and adds only itself to what the
 * mount knows. */
void sn_removed(struct sn *s, unsigned int name, const struct sn_op *op);
void sn_forget_shown(struct sn *s, unsigned int node);
struct sn_op *sn_op_new(struct sn *s, unsigned int name, unsigned int node,
			enum sn_kind kind, uint64_t knows);
uint64_t sn_size_of(uint64_t bytes, unsigned int dir);
/* An fsync of the directory at that node has ended with status. 0: acknowledges
 * the operations there up to `number`. An error other than a timeout or
 * cancellation: all operations there count as lost. */
void sn_acked(struct sn *s, unsigned int node, unsigned int dir,
	      uint64_t number, int status);
/* Check a frame before it is delivered; when it is sent. */
void sn_check_frame(struct sn *s, const struct sn_proc *from,
		    const struct pool_frame *f, const uint8_t *payload);
void sn_check_sent(struct sn *s, const struct sn_proc *from,
		   const struct pool_frame *f, const uint8_t *payload);
/* Flips a bit in a file of that node, which is dead. */
void sn_rot(struct sn *s, unsigned int node);
/* At rest only. */
void sn_check(struct sn *s);

/* ---- sim_nodes_mirror.c ---- */

/* Both at rest only. */
void sn_check_mirrors(struct sn *s);
void sn_check_counts(struct sn *s);

/* ---- sim_nodes_trace.c ---- */

void sn_trace_frame(const struct sim_host *from, const struct sim_host *to,
		    const struct pool_frame *f, const uint8_t *payload,
		    const char *lost);
void sn_trace_open(struct sn *s);

#endif
