/*
 * libkvpool (pool/kvpool.h): declarations shared by its files.
 *
 *   error    the text of each thread's last error
 *   check    arguments and forks, checked by every call
 *   api      calls that need no connection
 *   buffer   registered buffers
 *   dir      a connection's buffer directory; finding the pool of a mount
 *   stats    what a connection has done
 *   line     blocking connections to holders, used by the caller's thread
 *   client   connections: the loop thread, connect, close, sync
 *   ns       namespaces: keys as paths, layouts
 *   move     put and get
 *   direct   gets of remote objects by the caller's thread, over lines
 *   calls    batches: the caller's side and the loop's side
 *   change   remove, touch, pin
 *   ask      queries, answered on the caller's thread
 *   submit   asynchronous requests: their threads, the eventfd
 *
 * Thread: pool/README.md lists the threads. The node (pool/node/node.h) belongs
 * to the loop thread. Other threads may read it while they hold one of two
 * locks for reading; every change is posted to the loop.
 *
 *   names   protects what queries read (pool/node/node.h says what that is).
 *           The loop takes it for moments, never for a whole turn.
 *   lock    protects the whole node. Gets take it to choose a holder, or to
 *           open a local copy. The loop holds it whenever it does not sleep:
 *           up to some 10 ms if other processes keep the loop off the CPU.
 *
 * Lock order: `lock` before `names`.
 */
#ifndef POOL_CLIENT_CLIENT_PRIV_H
#define POOL_CLIENT_CLIENT_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <uv.h>

#include "pool/base/list.h"
#include "pool/base/metric.h"
#include "pool/base/shortlock.h"
#include "pool/base/turns.h"
#include "pool/client/line.h"
#include "pool/client/stats.h"
#include "pool/kvpool.h"
#include "pool/base/mailbox.h"
#include "pool/node/node.h"
#include "pool/conn/trust.h"
#include "pool/tls/tls.h"

#define CLIENT_BUFFERS_MAX 4096
#define CLIENT_ASK_MAX 256 /* keys of a query whose paths are made before it
			      takes the lock */
#define CLIENT_WINDOW 128   /* keys of a batch in flight at once */
#define CLIENT_INLINE (64u << 10) /* objects up to this are copied on the loop:
				     that costs less than a wake-up */
#define CLIENT_SEEN 4096 /* slots for generations, see kvpool.seen */
#define CLIENT_TIMEOUT_MS 10000
#define CLIENT_DEADLINE_MS 2000 /* as kvpoold's --deadline */
#define CLIENT_RETRY_MS 1
#define CLIENT_LATER_MS 2 /* delay of a touch, so that it does not slow down the
			     queries that callers wait for (submit.c) */

struct client_buffer; /* buffer.c */

/* Registered buffers. Thread: any, under `lock`. */
struct client_buffers {
	pthread_rwlock_t lock;
	struct client_buffer *at[CLIENT_BUFFERS_MAX]; /* own; by address */
	size_t n;
};

/* Requests and the threads that execute them. Thread: any, under `lock`. */
struct client_requests {
	pthread_mutex_t lock;
	pthread_cond_t more;   /* a request was submitted, or `ending` set */
	struct pool_list todo; /* struct request, oldest first */
	struct pool_list later; /* the same, delayed by CLIENT_LATER_MS */
	bool watched; /* a thread sleeps until the first of `later` is due */
	struct pool_list done; /* completions that were not taken */
	size_t n; /* requests whose completion was not taken */
	pthread_t thread[64];
	unsigned int nthreads, threads_max;
	bool ending;
	int event_fd; /* owns */
};

enum client_state {
	CLIENT_STARTING,
	CLIENT_READY,
	CLIENT_FAILED, /* the node could not be opened: `error` */
	CLIENT_CLOSED,
};

struct kvpool {
	/* set before the thread starts */
	struct pool_node_opts opts; /* its strings are the members below */
	char *advertise, *name, *dir; /* own */
	char *store_dir; /* of the mount that kvpool_options.at is in; owns, or
			    NULL */
	char *sock; /* socket for lending to this host's nodes; owns, or NULL */
	struct verbs *verbs; /* owns; NULL: TCP only. Watched while `node` is
				open */
	int dir_fd; /* of `dir`'s parent, locked; owns */
	unsigned int forks; /* the process's fork count at connect */
	struct pool_trust trust;
	struct pool_tls *tls; /* owns; NULL: plain */

	uv_loop_t loop;
	pthread_t thread;
	pthread_rwlock_t lock;
	struct pool_shortlock names;
	struct pool_mailbox box;
	struct pool_metrics *metrics;
	struct pool_turns turns; /* how long the loop holds `lock` */
	struct pool_node *node; /* owns. Loop, or a lock held for reading */

	/* loop: ops to be retried by the timer */
	struct pool_list waiting;
	uv_timer_t retry, renew;
	_Atomic bool away; /* no master is connected. Others read it */
	uint64_t tmp_seq;

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	enum client_state state; /* under mutex */
	int error;

	struct client_buffers buffers;
	struct client_requests requests;
	struct client_lines lines;
	/* How often a small object was received from a store of this host that
	 * could lend it. An object's slot is generation % CLIENT_SEEN; the
	 * value is generation << 2 (which drops its upper two bits), plus that
	 * number modulo 4. Thread: any. */
	_Atomic uint64_t seen[CLIENT_SEEN];
	struct client_stats stats;
};

struct kvpool_ns {
	struct kvpool *pool; /* borrows */
	char *path; /* owns; "": the root */
	size_t path_len;
	bool root;
	char *layout; /* owns; NULL: any */
};

/* ---- error.c ---- */

/* Sets this thread's text for kvpool_last_error; returns err. */
int client_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- check.c ---- */

/* How many forks lie between the process of the first call and this one. */
unsigned int client_forks(void);
/* May this process use p? 0; -EINVAL (NULL) or -ECHILD (a fork), with
 * client_fail. */
int client_check(const struct kvpool *p);
static inline int client_check_ns(const struct kvpool_ns *ns)
{
	return client_check(ns ? ns->pool : NULL);
}
/* The same; also checks the arguments of a batch. */
int client_check_batch(const struct kvpool_ns *ns,
		       const struct kvpool_key *keys, size_t n,
		       const int64_t *ret);

/* Copies a caller's struct, perhaps of another version of the library: members
 * that it lacks become zero; bytes beyond `size` must be zero. `least`: size of
 * the first version. 0, or -EINVAL with client_fail; `what` names the
 * struct. */
int client_copy_struct(void *to, size_t size, const void *from,
		       size_t from_size, size_t least, const char *what);

/* ---- dir.c ---- */

/* Locks a directory below base (NULL: the default one) that no other connection
 * uses; sets p->dir, p->dir_fd and p->sock. 0 or -errno, with client_fail. */
int client_dir_take(struct kvpool *p, const char *base);
/* Unlocks p->dir; no-op if none was taken. remove_files: also removes the
 * objects in it, which nobody needs any more. The directory and the node's
 * identity in it stay for the next connection. */
void client_dir_give(struct kvpool *p, bool remove_files);
/* Finds the pool in whose mount `path` is: its masters' addresses, and its
 * store's directory (the caller's to free; NULL: none is reported). 0 or
 * -errno, with client_fail. */
int client_mount_find(const char *path, struct pool_hostports *ret_masters,
		      char **ret_store);

/* ---- ns.c ---- */

/* A key as a path below the namespace. */
struct client_path {
	const char *at; /* borrows the key's bytes, or is `own`; no NUL */
	size_t len;
	char *own; /* owns, or NULL */
	bool plain; /* a single name, no directories */
};
/* 0, -ENAMETOOLONG, -EINVAL, -ENOMEM. `ret` is valid as long as the key. */
int client_path_set(const struct kvpool_ns *ns, const struct kvpool_key *key,
		    struct client_path *ret);
void client_path_free(struct client_path *path);
/* -EACCES, with client_fail: this connection's certificate does not permit
 * `what` (a path, or a part of one). */
int client_denied(const struct kvpool *p, const char *what);
/* `names` or `lock` held: the namespace's directory; *ret_dir NULL: none.
 * 0; -EMEDIUMTYPE or -ENOTDIR, with client_fail. */
int client_ns_dir(const struct kvpool_ns *ns, struct node_dirent **ret_dir);
/* `names` or `lock` held: the visible entry at path below dir, or NULL. dir may
 * be NULL. */
struct pool_entry *client_find(const struct kvpool *p, struct node_dirent *dir,
			       const char *path, size_t len);
/* Loop: creates the namespace's directory (with the layout) and the directories
 * of path, if missing. *ret_name: the last component, borrowed from path. 0 or
 * -errno; -EAGAIN: retry. */
int client_make_dirs(const struct kvpool_ns *ns, const struct client_path *path,
		     struct node_dirent **ret_dir, const char **ret_name);

/* ---- buffer.c ---- */

void client_buffers_init(struct client_buffers *b);
void client_buffers_fini(struct client_buffers *b);
/* The buffer that contains [addr, addr + len); NULL: there is none. It cannot
 * be unregistered until client_buffer_give. */
struct client_buffer *client_buffer_take(struct client_buffers *b,
					 const void *addr, size_t len);
void client_buffer_give(struct client_buffer *buffer);

/* ---- calls.c ---- */

struct client_window;

/* One key of a batch, while the loop works on it. */
struct client_op {
	/* set by the caller's thread */
	struct client_window *win;
	struct client_path path;
	struct client_buffer *buffer; /* ref, or NULL */
	void *buf;
	size_t len;
	size_t index; /* in the batch */

	/* get: the trip (direct.h) that asks for it; -1: none */
	int trip;
	uint64_t gen;
	XXH128_hash_t sum; /* expected; put: of the bytes written */

	/* the loop's, until the op is handed back */
	struct pool_list link; /* p->waiting; or win->back, under win->mutex */
	struct pool_mail mail;
	struct node_want want;
	struct node_object *o; /* put: ref */
	uint64_t deadline_ms;
	bool ended;
	bool indirect; /* get: receiving directly into buf failed */
	bool asked; /* get: of a holder, by a trip */
	bool found; /* get: the name was there, when the loop last looked for it
		       or a local copy was opened */
	enum client_source source; /* get: of the bytes */

	/* results. fd >= 0 when handed back: a file to copy from or to */
	int fd;
	uint64_t size;
	int64_t result;
};

/* The steps of an op. */
struct client_kind {
	/* Loop. Leads to client_hand_back or client_end, at once or later. */
	void (*begin)(struct client_op *op);
	/* The caller's thread, when op was handed back with fd >= 0. Returns
	 * true if `end` must still run, on the loop. */
	bool (*copy)(struct client_op *op);
	/* Loop. Calls client_end. */
	void (*end)(struct client_op *op);
	bool moves; /* reads or writes the caller's buffers */
	/* How its keys are counted (stats.c). */
	enum { CLIENT_UNCOUNTED, CLIENT_GETS, CLIENT_PUTS } counted;
};
extern const struct client_kind client_get, client_get_fd;

/* The keys of one batch that are in flight. Owned by the caller's thread. */
struct client_window {
	const struct kvpool_ns *ns;
	const struct client_kind *kind;
	unsigned int flags;
	uint64_t arg;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	struct pool_list back; /* under mutex: ops handed back, to be copied */
	size_t left;	       /* under mutex: ops that have not ended */
	struct pool_mail mail;
	size_t n;
	struct client_op op[];
};

static inline struct kvpool *client_pool(const struct client_op *op)
{
	return op->win->ns->pool;
}

/* Loop: returns op to the caller's thread, to copy, or because it has ended.
 * The op must not be used after that. */
void client_hand_back(struct client_op *op);
/* Loop: ends op with this result, and hands it back. */
void client_end(struct client_op *op, int64_t result);
/* Loop: retries op after CLIENT_RETRY_MS, or ends it with err if its deadline
 * has passed. */
void client_again(struct client_op *op, int err);

/* Runs a batch on the caller's thread, blocking. Returns how many results are
 * >= 0, or -errno, as the calls of kvpool.h. bufs: NULL unless kind->moves.
 * ret: one result per key; of client_get_fd a descriptor, the caller's to
 * close. */
ssize_t client_run(const struct kvpool_ns *ns, const struct client_kind *kind,
		   const struct kvpool_key *keys,
		   const struct kvpool_buf *bufs, size_t n, unsigned int flags,
		   uint64_t arg, int64_t *ret);

/* ---- stats.c ---- */

/* Counts w's keys as asked for; their results. No-ops unless they are gets or
 * puts. */
void client_count_asked(struct client_window *w);
void client_count_results(struct client_window *w);

/* ---- move.c ---- */

/* `lock` held: opens e's local copy, to be read without the loop. 0, and op->fd
 * and op->size are set; or -EAGAIN: there is no such copy. */
int client_open_here(struct client_op *op, const struct node_entry *e);
/* get: does an object of op->size fit the buffer, by the flags? */
bool client_fits(const struct client_op *op);

/* ---- submit.c ---- */

/* threads: the most that will be started. 0 or -errno, with client_fail. */
int client_requests_init(struct client_requests *r, unsigned int threads);
/* Waits until all submitted requests have been executed, and drops completions
 * that were not taken. */
void client_requests_fini(struct client_requests *r);

#endif
