/*
 * Transfers between nodes: moves one range of one object from one peer into a
 * local file or memory. The caller (pool/node/fetch.c) chooses the peer, splits
 * large objects into pieces for several holders and lanes, and fails over.
 *
 *   requester (loop) --GET--> holder (loop) --job--> holder's mover
 *        ^                                               | sendfile
 *        +-- requester's mover <---- DATA + bulk --------+
 *
 * A GET names a range and a lane, and the holder sends the bytes on that lane.
 * Lane 0 is the control connection itself, served by the node's loop, for
 * ranges up to POOL_INLINE_MAX. Lanes 1.. are bulk connections owned by
 * "movers", threads with a loop of their own, so that neither a large copy nor
 * its checksum delays the node's loop, which answers FUSE requests. (Which lane
 * belongs to which mover: pool/README.md.) With RDMA
 * (pool/lane/link.h) the holder writes a lane's bulk into the range that the
 * requester named. That involves two more threads and registers memory, so
 * small ranges use TCP: 4 KiB took 0.6 ms by TCP and 4.5 ms written by RDMA (in
 * a virtual machine where a request and 4 KiB of answer take 0.17 ms on a plain
 * socket, and ib_read_lat shows 0.09 ms).
 *
 * On one host, and if both sides allow it, the holder answers with LENT and a
 * read-only descriptor of the whole object over a Unix socket: no bytes move.
 * Once a peer has POOL_LENT_MAX descriptors, the holder answers it with bytes
 * instead. The peer returns a descriptor with RETURN, the holder asks for it
 * with RECALL, and all count as returned when the peer's connection ends.
 *
 * A client whose certificate is limited to namespaces (pool/tls/tls_id.h) gets
 * -ENOENT for other objects, as if they were not here. A limited node gets
 * them: it may have to keep copies of any name. So does a peer on the Unix
 * socket, where the peer's user is checked, not a certificate.
 *
 * Thread: loop, for every function and callback here.
 */
#ifndef POOL_PEER_PEER_H
#define POOL_PEER_PEER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>
#include <xxhash.h>

#include "pool/base/metric.h"
#include "pool/base/parse.h"
#include "pool/conn/peer_addr.h"

#define POOL_INLINE_MAX (256u << 10)
#define POOL_LENT_MAX 1024
#define POOL_PEER_INFLIGHT_MAX 256 /* GETs in flight to one peer; more wait */
#define POOL_SESSIONS_ADDR 1024 /* connections from one address; 4,096 in all */
#define POOL_SESSION_IDLE_MS 300000 /* an idle one is closed; peers redial */
#define POOL_SESSION_UNREAD_MS 5000 /* and one that reads no answers */
#define POOL_EARLY_MAX 1024 /* GETs waiting for their object, of all peers */
#define POOL_EARLY_MS 1000  /* how long each waits */

struct pool_peers;
struct pool_tls;
struct pool_trust;
struct verbs;

/* Callbacks into the node; all but `get` may be NULL. */
struct pool_peers_ops {
	/*
	 * A peer requests `length` bytes of path@gen, which may be more than
	 * it has; copy: to have a copy that the master ordered, not to read it.
	 * Returns a new O_RDONLY descriptor of the whole object, which this
	 * module closes, and its size; or -ENOENT. *ret_lendable: the bytes
	 * have been verified, so the descriptor may be lent. -EINPROGRESS: the
	 * object may arrive in a moment; pool_peers_again calls this again, and
	 * after POOL_EARLY_MS the peer gets -ENOENT.
	 */
	int (*get)(void *arg, const char *path, size_t path_len, uint64_t gen,
		   uint64_t length, bool copy, uint64_t *ret_size,
		   bool *ret_lendable);
	/* This node lent a descriptor; the peer returned it. */
	void (*lent)(void *arg, const char *path, size_t path_len,
		     uint64_t gen);
	void (*returned)(void *arg, const char *path, size_t path_len,
			 uint64_t gen);
	/* A holder recalls a descriptor that we borrowed: call
	 * pool_peers_return when it is unused. */
	void (*recall)(void *arg, const char *path, size_t path_len,
		       uint64_t gen);
	/* A peer reports that bytes of this object that it received from here
	 * do not match the checksum. */
	void (*doubt)(void *arg, const char *path, size_t path_len,
		      uint64_t gen);
	/* Where is the living member with this id? Its address, "HOST:PORT",
	 * borrowed until the next call of anything; NULL: not known. */
	const char *(*member)(void *arg, const uint8_t id[POOL_ID_SIZE],
			      bool *ret_is_store);
	/* The connection to a holder that we borrowed from is closed: the
	 * descriptors stay valid, but the holder counts them as returned. */
	void (*lender_gone)(void *arg, const uint8_t id[POOL_ID_SIZE]);
};

struct pool_peers_opts {
	uv_loop_t *loop;
	uint8_t id[POOL_ID_SIZE];
	struct pool_hostport listen; /* port 0: any */
	const char *unix_path;	     /* NULL: none */
	/* > 0: sockets that already listen there; owned from the call on, also
	 * if it fails. */
	int listen_fd, unix_fd;
	bool fd_passing;
	/* Limits for connections that peers dial; 0: POOL_SESSIONS_ADDR,
	 * POOL_SESSION_IDLE_MS, POOL_SESSION_UNREAD_MS. */
	unsigned int sessions_addr_max, session_idle_ms, session_unread_ms;
	struct verbs *verbs; /* borrows; NULL: TCP only */
	/* Which local users may be a peer; checked for each connection, dialled
	 * or accepted. Borrows; NULL: all. */
	struct pool_trust *trust;
	/* For TLS on TCP connections, which then do not use `trust`. Borrows;
	 * NULL: plain. */
	struct pool_tls *tls;
	bool foreign_memory; /* as in struct pool_conn_opts */
	unsigned int movers; /* threads, and bulk lanes per peer; 1.. */
	const struct pool_peers_ops *ops;
	void *arg;
	/* Borrows; NULL: none. Must not be printed after pool_peers_close,
	 * which frees the counters registered in it. */
	struct pool_metrics *metrics;
};

/* 0 or -errno (a failure to listen is logged). */
int pool_peers_open(const struct pool_peers_opts *opts,
		    struct pool_peers **ret_peers);
/* Ends all fetches with -ECANCELED (their callbacks run inside) and joins the
 * movers' threads. closed(arg) runs from a later turn, when the loop has no
 * handle of this left. */
void pool_peers_close(struct pool_peers *p, void (*closed)(void *arg),
		      void *arg);
/* Renews the connections to peers that are due (pool/tls/tls.h), without
 * disturbing fetches. Call it every second or more often. */
void pool_peers_renew(struct pool_peers *p);
/* Bytes sent to peers since pool_peers_open. */
uint64_t pool_peers_sent(const struct pool_peers *p);
/* The listening sockets; borrowed. *ret_unix is -1 if there is none. */
void pool_peers_fds(const struct pool_peers *p, int *ret_tcp, int *ret_unix);
/* The port actually listened on (opts.listen may have port 0). */
uint16_t pool_peers_port(const struct pool_peers *p);

struct pool_fetch;
typedef void (*pool_fetch_cb)(struct pool_fetch *f, int status);

/*
 * One transfer; the caller's storage, zeroed before the fields of the first
 * group are set, and valid until cb.
 * Statuses: 0; -ENOENT (the holder no longer has it); -ETIMEDOUT; -ECONNRESET,
 * -EHOSTDOWN and other connect errors; -EBADMSG (invalid answer); -EIO, -ENOSPC
 * (writing to fd); -EAGAIN (see fd below); -ECANCELED.
 */
struct pool_fetch {
	/* what and from whom; borrowed until cb */
	struct pool_peer_addr from;
	const char *path;
	size_t path_len;
	uint64_t gen;
	uint64_t offset, length;
	/* The destination: at `offset` of fd (O_RDWR), or, if fd < 0, mem. With
	 * neither, fd_ok must be set, and the status is -EAGAIN if the holder
	 * lends no descriptor. */
	int fd;
	void *mem;
	unsigned int timeout_ms;
	/* Low priority, such as replication: with RDMA this node reads the
	 * range, instead of the holder writing it. */
	bool pull;
	bool copy; /* ordered by the master: the holder counts no read */
	bool fd_ok; /* accepts a lent descriptor (whole objects only) */

	/* results, with status 0 */
	int lent_fd;	   /* >= 0: borrowed, O_RDONLY; the caller closes it */
	/* Of the bytes received, computed here; undefined with a lent_fd. The
	 * holder sends none: the caller compares it with the object's, if the
	 * range is the whole object. */
	XXH128_hash_t sum;
	bool by_rdma;	   /* some of the range was moved by RDMA */
	struct pool_fetch_priv *priv;
	pool_fetch_cb cb;
};

/* 0, or -ENOMEM or -EINVAL, and then cb never runs. */
int pool_fetch_start(struct pool_peers *p, struct pool_fetch *f,
		     pool_fetch_cb cb);
/* Bytes received so far. */
uint64_t pool_fetch_progress(const struct pool_fetch *f);
/* cb runs with -ECANCELED from a later turn, when no more byte can land. */
void pool_fetch_cancel(struct pool_peers *p, struct pool_fetch *f);

/* An object (fd: borrows) is evicted or deleted: drops its cached RDMA
 * registration, which would keep its pages. */
void pool_peers_forget(struct pool_peers *p, int fd);

/* An object has arrived: answers the GETs that waited for it (-EINPROGRESS). */
void pool_peers_again(struct pool_peers *p);

/* Returns a borrowed descriptor to its holder. Unknown peers are ignored. */
void pool_peers_return(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE],
		       const char *path, size_t path_len, uint64_t gen);
/* Asks every peer that has borrowed path@gen to return it. Returns how many
 * were asked. */
unsigned int pool_peers_recall(struct pool_peers *p, const char *path,
			       size_t path_len, uint64_t gen);

/* Tells a holder that bytes of path@gen received from it do not match the
 * checksum. Best effort: not repeated if the message is lost. */
void pool_peers_doubt(struct pool_peers *p, const struct pool_peer_addr *holder,
		      const char *path, size_t path_len, uint64_t gen);

#endif
