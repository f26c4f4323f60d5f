/*
 * Whole nodes, without a mount, for the tests of pool/node/: real stores in a
 * directory of the test's own, a real master in this process, all on one loop.
 * What the mount would do (open, write, flush, close) is done here by hand.
 *
 *   start_pool(f, 2);
 *   publish(f, 0, "k", 1000, 1);          // at node 0: name, size, seed
 *   run_until(f, find(f, 1, "k"));        // node 1's mirror has it
 *   assert_readable(f, 1, "k", 1000, 1);
 *
 * A program that includes this is linked with pool_node_fixture.c. Its tests
 * are between setup() and teardown(), T() of tests/lib/unit.h.
 */
#ifndef TESTS_POOL_NODE_FIXTURE_H
#define TESTS_POOL_NODE_FIXTURE_H

#include "tests/lib/unit.h"

#include "master/impl.h"
#include "pool/node/ops.h"

#define NNODES 3
#define KIB 1024ull
#define MIB (1024ull * 1024)
#define STORE_SIZE (32 * MIB)

#define HEARTBEAT_MS 200

/* Calls that a mount would have received (struct pool_node_ops), counted. */
struct mount_calls {
	unsigned int changed, attr_changed, published, appeared, dir_gone;
	unsigned int object_gone, expired, kept_waiting;
	struct pool_node *node;
	bool slow;     /* the test calls pool_node_notified itself, ... */
	uint64_t mark; /* ... for this mark; 0: none is due */
};

struct member {
	struct pool_node *node; /* NULL: closed */
	struct pool_metrics *metrics;
	char dir[128], sock[128], name[16];
	struct mount_calls calls;
};

#define WORKERS 4 /* libuv's default */

struct busy {
	uv_work_t work;
	uv_sem_t may_end;
};

struct fixture {
	char *top; /* owns */
	struct busy busy[WORKERS];
	bool workers_busy;
	uv_loop_t loop;
	struct pool_node_opts opts; /* of nodes started from now on */
	const char *sock_name;	    /* the same; NULL: POOL_PEER_SOCKET */
	struct master *master;	    /* NULL: nobody listens on its port */
	struct pool_metrics *master_metrics;
	int port_fd; /* holds the master's port, and never listens */
	struct member m[NNODES];
};

/* Turns the loop until cond is true, then checks the nodes' invariants: each
 * step of a test ends so. */
#define run_until(f, cond)                                              \
	do {                                                            \
		unit_run_until(&(f)->loop, cond);                       \
		check_nodes(f);                                         \
	} while (0)

/* Turns the loop for ms: to see that something does not happen. */
void run_for(struct fixture *f, unsigned int ms);

/* ---- starting and stopping ---- */

int setup(void **state);
/* Checks the invariants of the running nodes, and closes everything. */
int teardown(void **state);

void start_master(struct fixture *f);
void stop_master(struct fixture *f);
void start_node(struct fixture *f, int i);
void stop_node(struct fixture *f, int i);
/* Callback for closing a node or the master; arg: bool *, set to true. */
void on_closed(void *arg);
/* Has node i joined, and received the whole namespace? */
bool is_up(struct fixture *f, int i);
/* Starts a master and n nodes, and waits until they know each other. */
void start_pool(struct fixture *f, int n);
/* Asserts the nodes' invariants (node_check). */
void check_nodes(struct fixture *f);

/* Sending OPS fails on this node, as if its send queue were full. */
extern struct pool_node *refuses_ops;

/* Keeps all of libuv's workers busy until workers_end. */
void workers_begin(struct fixture *f);
void workers_end(struct fixture *f);

/* Skips the test unless the store has a tmpfs of its own: in a shared /tmp its
 * free space is not exact. */
void need_own_tmpfs(struct fixture *f, int i);

/* ---- names ---- */

struct pool_node *node(struct fixture *f, int i);

/* The visible file of that name, or NULL. */
struct node_entry *find_in(struct fixture *f, int i, struct node_dirent *dir,
			   const char *name);
/* The same in the root. */
struct node_entry *find(struct fixture *f, int i, const char *name);
/* The visible file or directory of that name in the root, or NULL. */
struct pool_entry *there(struct fixture *f, int i, const char *name);
/* Does the name have an entry, even a hidden one? */
bool known(struct fixture *f, int i, const char *name);
int rename_to(struct fixture *f, int i, const char *from, const char *to,
	      bool noreplace);
/* Makes a directory that belongs to USER. */
int mkdir_in(struct fixture *f, int i, struct node_dirent *up, const char *name,
	     struct node_dirent **ret_dir);
int mkdir_top(struct fixture *f, int i, const char *name,
	      struct node_dirent **ret_dir);
/* Has the master answered all changes of node i? */
bool all_answered(struct fixture *f, int i);

#define USER 4711u

extern const struct node_attr users;   /* a directory of USER's */
extern const struct node_attr writers; /* of the user of create_in */

/* ---- files ---- */

/* Creates a file of user 1000, open for writing. */
struct node_object *create_in(struct fixture *f, int i, struct node_dirent *dir,
			      const char *name, uint64_t hint);
void write_bytes(struct fixture *f, int i, struct node_object *o, uint64_t len,
		 uint32_t seed);
/* Flushes and closes it. */
void close_whole(struct fixture *f, int i, struct node_object *o);
/* Creates, writes, flushes and closes a file; does not wait for its seal. */
void put_in(struct fixture *f, int i, struct node_dirent *dir,
	    const char *name, uint64_t len, uint32_t seed);
void put(struct fixture *f, int i, const char *name, uint64_t len,
	 uint32_t seed);
bool is_published(struct fixture *f, int i, const char *name);
bool is_pending(struct fixture *f, int i, const char *name);
/* The same in the root; waits until the master has acked it. */
void publish(struct fixture *f, int i, const char *name, uint64_t len,
	     uint32_t seed);
/* publish at node 0; waits until node 1 shows it. */
void publish_and_see(struct fixture *f, const char *name, uint64_t len,
		     uint32_t seed);

void assert_bytes(struct fixture *f, int i, const struct node_object *o,
		  uint64_t len, uint32_t seed);
void assert_info(struct fixture *f, int i, const char *name, const char *key,
		 const char *value);
#define assert_count(n, f, i, counter) \
	assert_int_equal(n, pool_counter_value(&node(f, i)->c.counter))

/* One byte of the file becomes another, as a bad DIMM would do it. */
void damage(struct fixture *f, int i, const struct node_object *o);

/* ---- attributes ---- */

/* value NULL: remove it. */
int set_xattr(struct fixture *f, int i, struct pool_entry *e, const char *name,
	      const char *value);
bool has_xattr(const struct pool_entry *e, const char *name,
	       const char *value);
void set_replicas(struct fixture *f, int i, const char *name,
		  const char *replicas, uint32_t mode);
void pin(struct fixture *f, int i, const char *name);

/* ---- the feed ---- */

/* Applies a feed entry to node i: a file of this generation and size 0. */
void feed_names(struct fixture *f, int i, char *name, uint64_t gen);
/* The same: a deletion. */
void feed_deleted(struct fixture *f, int i, const char *path, bool is_dir);

/* ---- requests ---- */

struct test_want {
	struct node_want w;
	struct node_object *obj;
	int status;
	bool done;
	bool use; /* as an OPEN does, at once */
};

int want_start(struct fixture *f, int i, const char *name,
	       struct test_want *t);
/* Returns 0 and a ref, or -errno. */
int want(struct fixture *f, int i, const char *name,
	 struct node_object **ret_obj);
void assert_readable(struct fixture *f, int i, const char *name, uint64_t len,
		     uint32_t seed);

struct test_barrier {
	struct node_barrier b;
	int status;
	bool done;
};

void on_barrier(struct node_barrier *b, int status);

struct test_claim {
	struct node_claim c;
	int status;
	bool done;
};

void on_claim(struct node_claim *c, int status);
/* Claims space at node 0. */
int claim(struct fixture *f, struct test_claim *t, uint64_t bytes,
	  unsigned int timeout_ms);
/* Callback for pool_node_extend_start; arg: struct test_claim *. */
void on_extended(void *arg, int status);
/* arg: int *, which gets the status. */
void on_done(void *arg, int status);

/* Orders node i (as by REPLICATE) to copy the object from node `from`. */
void order_copy(struct fixture *f, int i, int from, const char *name);

#endif
