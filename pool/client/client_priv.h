/*
 * libkvpool (pool/kvpool.h): what its files share.
 *
 *   error    the text of the last error
 *   client   connections: the loop thread, connect, close, sync
 *   dir      where a connection's buffer is; whom a mount belongs to
 *   ns       namespaces: keys to names, layouts
 *   ask      questions, answered on the caller's thread
 *   calls    batches that the loop works on, and who waits for them
 *   direct   gets of others' objects by the caller's thread; line: how it asks
 *   move     of these, put and get; change: the others
 *   buffer   registered buffers
 *   submit   requests: threads of their own, the eventfd
 *   api      what needs no connection
 *
 * Thread: the node (pool/node/node.h) belongs to the loop's. Others may look at it
 * while they hold one of two locks for reading, and change nothing; what changes
 * something is posted to the loop.
 *
 *   names   at what questions are about (pool/node/node.h says what that is). The
 *           loop takes it for moments: a question never waits for a turn of it.
 *   lock    at everything: gets see here whom to ask, or open what is here. The
 *           loop has it whenever it does not sleep: for up to some 10 ms where
 *           a busy machine has no CPU for it.
 *
 * Who wants both takes `lock` first, as the loop does.
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
#include "pool/kvpool.h"
#include "pool/base/mailbox.h"
#include "pool/node/node.h"
#include "pool/conn/trust.h"

#define CLIENT_BUFFERS_MAX 4096
#define CLIENT_ASK_MAX 256 /* keys whose names are made at once */
#define CLIENT_WINDOW 128   /* keys of a batch that are moved at once */
#define CLIENT_INLINE (64u << 10) /* copied on the loop: less than a wake-up */
#define CLIENT_SEEN 4096 /* generations remembered */
#define CLIENT_TIMEOUT_MS 10000
#define CLIENT_DEADLINE_MS 2000 /* as kvpoold's --deadline */
#define CLIENT_RETRY_MS 1
#define CLIENT_LATER_MS 2 /* a touch leaves the machine to what is waited for */
#define CLIENT_NAME_MAX 600 /* text of a layout */

struct client_buffer; /* buffer.c */

/* The buffers, by address. */
struct client_buffers {
	pthread_rwlock_t lock;
	struct client_buffer *at[CLIENT_BUFFERS_MAX];
	size_t n;
};

/* What was submitted, and who does it. */
struct client_requests {
	pthread_mutex_t lock;
	pthread_cond_t more;   /* one was submitted, or it is the end */
	struct pool_list todo; /* struct request, oldest first */
	struct pool_list later; /* those that wait for CLIENT_LATER_MS; same */
	bool watched; /* a thread waits for the first of them */
	struct pool_list done;
	size_t n; /* submitted, completion not taken */
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
	struct pool_node_opts opts; /* strings: the members below */
	char *advertise, *name, *dir; /* own */
	char *store_dir; /* of the mount that `at` is in; owns, or NULL */
	char *sock; /* where others on this host borrow; owns, or NULL */
	struct verbs *verbs; /* owns; NULL: TCP only. Watched while `node` is */
	int dir_fd; /* of `dir`, locked; owns */
	unsigned int forks; /* as when it was made */
	struct pool_trust trust;

	uv_loop_t loop;
	pthread_t thread;
	pthread_rwlock_t lock;
	struct pool_shortlock names;
	struct pool_mailbox box;
	struct pool_metrics *metrics;
	struct pool_turns turns; /* of the loop: readers wait for these */
	struct pool_node *node; /* loop, or a lock for reading */

	/* loop: what looks again in a moment */
	struct pool_list waiting;
	uv_timer_t retry;
	uint64_t tmp_seq;

	pthread_mutex_t mutex;
	pthread_cond_t changed;
	enum client_state state; /* under mutex */
	int error;

	struct client_buffers buffers;
	struct client_requests requests;
	struct client_lines lines;
	/* Generations that were got from a store of this host that would lend
	 * them, by any thread: without the upper two bits, and how often. */
	_Atomic uint64_t seen[CLIENT_SEEN];
};

struct kvpool_ns {
	struct kvpool *pool; /* borrows */
	char *path; /* owns; "": the root */
	size_t path_len;
	bool root;
	char *layout; /* owns; NULL: any */
};

/* ---- client.c ---- */

/* Keeps the text for kvpool_last_error; returns err. */
int client_fail(int err, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* 0, -EINVAL (NULL), or -ECHILD, said. */
int client_check(const struct kvpool *p);
static inline int client_check_ns(const struct kvpool_ns *ns)
{
	return client_check(ns ? ns->pool : NULL);
}
/* These, and the arguments of a batch. */
int client_check_batch(const struct kvpool_ns *ns,
		       const struct kvpool_key *keys, size_t n,
		       const int64_t *ret);

/* A caller's struct, of another version perhaps: what it has not is zero, what it
 * has more has to be (else -EINVAL, said). `least`: of the first version. */
int client_copy_struct(void *to, size_t size, const void *from, size_t from_size,
		       size_t least, const char *what);

/* ---- dir.c ---- */

/* Take a directory below base (NULL: the default one) that no other connection
 * uses: p->dir, p->dir_fd. 0 or -errno, said. */
int client_dir_take(struct kvpool *p, const char *base);
/* Nothing of it is needed any more: files go, the directory stays, with the
 * node's identity. */
void client_dir_give(struct kvpool *p, bool remove_files);
/* Whose mount is this path in? Its masters, and where its store is (NULL: not
 * told; the caller's). 0 or -errno, said. */
int client_mount_find(const char *path, struct pool_hostports *ret_masters,
		      char **ret_store);

/* ---- ns.c ---- */

/* A key as a path below the namespace: borrowed from the key, or in `own`. */
struct client_path {
	const char *at;
	size_t len;
	char *own;
	bool plain; /* one name */
};
/* 0, -ENAMETOOLONG, -EINVAL, -ENOMEM. */
int client_path_set(const struct kvpool_ns *ns, const struct kvpool_key *key,
		    struct client_path *ret);
void client_path_free(struct client_path *path);
/* names or lock held: the namespace's directory (*ret_dir NULL: there is none). 0 or
 * -EMEDIUMTYPE, -ENOTDIR; said. */
int client_ns_dir(const struct kvpool_ns *ns, struct node_dirent **ret_dir);
/* names or lock held: the visible entry, or NULL. dir: NULL is allowed. */
struct pool_entry *client_find(const struct kvpool *p, struct node_dirent *dir,
			       const char *path, size_t len);
/* Loop: the same directory, and what of path is directories; made if need be,
 * with the layout. *ret_name: the rest, a name. 0 or -errno; -EAGAIN. */
int client_make_dirs(const struct kvpool_ns *ns, const struct client_path *path,
		     struct node_dirent **ret_dir, const char **ret_name);

/* ---- buffer.c ---- */

void client_buffers_init(struct client_buffers *b);
void client_buffers_fini(struct client_buffers *b);
/* The buffer that [addr, addr + len) lies in, which stays until it is given
 * back; NULL if there is none. */
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

	/* get: where it is asked for directly; -1: it is not */
	int trip;
	uint64_t gen;
	XXH128_hash_t sum; /* put: same, of what was written */

	/* loop's, until it is handed back */
	struct pool_list link; /* p->waiting; or win->back, under win->mutex */
	struct pool_mail mail;
	struct node_want want;
	struct node_object *o; /* put: ref */
	uint64_t deadline_ms;
	bool ended;
	bool indirect; /* get: straight into the buffer did not work */

	/* results; handed back: fd >= 0: a file to be read or written */
	int fd;
	bool fd_borrowed; /* the node's */
	uint64_t size;
	int64_t result;
};

/* What is done with an op. */
struct client_kind {
	/* Loop. Ends with client_hand_back, or client_end. */
	void (*begin)(struct client_op *op);
	/* The caller's thread: op has been handed back with fd >= 0. True: `end`
	 * is still to run, on the loop. */
	bool (*copy)(struct client_op *op);
	void (*end)(struct client_op *op);
	bool moves; /* bytes: there are buffers */
};
extern const struct client_kind client_put, client_get, client_get_fd;
extern const struct client_kind client_remove, client_touch, client_pin;

/* The keys of one batch that are under way. */
struct client_window {
	const struct kvpool_ns *ns;
	const struct client_kind *kind;
	unsigned int flags;
	uint64_t arg;
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	struct pool_list back; /* under mutex: ops handed back, to be copied */
	size_t left;	       /* the same: those that have not ended */
	struct pool_mail mail;
	size_t n;
	struct client_op op[];
};

static inline struct kvpool *client_pool(const struct client_op *op)
{
	return op->win->ns->pool;
}

/* Loop: the caller's thread is to copy, or op has ended. */
void client_hand_back(struct client_op *op);
void client_end(struct client_op *op, int64_t result);
/* Loop: op begins again in a moment, or ends with err if it is too late. */
void client_again(struct client_op *op, int err);
void client_on_retry(uv_timer_t *timer);

/* A batch. As the calls of kvpool.h: how many results are >= 0, or -errno. ret:
 * of ops, fds too: of client_get_fd. */
ssize_t client_run(const struct kvpool_ns *ns, const struct client_kind *kind,
		   const struct kvpool_key *keys,
		   const struct kvpool_buf *bufs, size_t n, unsigned int flags,
		   uint64_t arg, int64_t *ret);

/* ---- move.c ---- */

/* lock held: e as a local copy, to be read without the loop. 0 and op's fd and
 * size, or -EAGAIN: there is none. */
int client_open_here(struct client_op *op, const struct node_entry *e);
/* get: has the buffer the size that op->size asks for? */
bool client_fits(const struct client_op *op);

/* ---- submit.c ---- */

int client_requests_init(struct client_requests *r, unsigned int threads);
/* Waits for what is under way; completions nobody took go. */
void client_requests_fini(struct client_requests *r);

#endif
