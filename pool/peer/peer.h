/*
 * Transfers between nodes: one range of one object, from one peer, into a file
 * or memory of ours. Which peer to ask, striping over several and failing over
 * is the caller's (pool/node/fetch.c); this module moves bytes.
 *
 *   requester (loop) --GET--> holder (loop) --job--> holder's mover
 *        ^                                               | sendfile
 *        +-- requester's mover <---- DATA + bulk --------+
 *
 * The holder drives the bulk: GET names a range and a lane, the bytes come back
 * on that lane. Lane 0 is the control connection itself, on the loop: for
 * ranges up to POOL_INLINE_MAX. Lanes 1.. are bulk connections owned by
 * "movers", threads with a loop of their own, so that neither a large copy nor
 * its checksum ever holds up the node's loop (where FUSE requests are
 * answered). With RDMA (pool/lane/link.h) a lane's bulk is written by the
 * holder into the range that the requester named; that takes two more threads
 * and memory registered for it, so small ranges stay where they are: 4 KiB by
 * TCP 0.6 ms, written by RDMA 4.5 ms, in the guest, where a plain socket takes
 * 0.17 ms to answer as much and ib_read_lat 0.09 ms.
 *
 * On one host, and if both sides allow it, the holder answers with LENT and a
 * read-only descriptor of the whole object over a Unix socket: no bytes move.
 * What is lent is counted per peer (at most POOL_LENT_MAX, beyond it bytes are
 * sent), given back with RETURN, asked back with RECALL, and counts as given
 * back when the peer's connection ends.
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
#define POOL_PEER_INFLIGHT_MAX 256 /* GETs under way to one peer; more wait */
#define POOL_SESSIONS_ADDR 1024 /* connections from one address; of 4,096 */
#define POOL_SESSION_IDLE_MS 300000 /* closed; who has something to ask dials */
#define POOL_EARLY_MAX 1024	   /* GETs that came too early, of all peers */
#define POOL_EARLY_MS 1000

struct pool_peers;
struct pool_trust;
struct verbs;

/* The holder's side: how the node answers its peers. */
struct pool_peers_ops {
	/*
	 * A peer wants path@gen. Return a new O_RDONLY descriptor of the whole
	 * object (this module's to close) with its size, or -ENOENT; or
	 * *ret_lendable: its bytes have been verified (a borrower will not).
	 * -EINPROGRESS if it may be here in a moment: asked again by
	 * pool_peers_again, or -ENOENT after POOL_EARLY_MS.
	 */
	int (*get)(void *arg, const char *path, size_t path_len, uint64_t gen,
		   uint64_t *ret_size, bool *ret_lendable);
	/* A descriptor was lent / is back. */
	void (*lent)(void *arg, const char *path, size_t path_len,
		     uint64_t gen);
	void (*returned)(void *arg, const char *path, size_t path_len,
			 uint64_t gen);
	/* A peer asks back what it lent to us: pool_peers_return when unused.
	 */
	void (*recall)(void *arg, const char *path, size_t path_len,
		       uint64_t gen);
	/* What a peer has got of it from here did not match its checksum, or so
	 * the peer says. */
	void (*doubt)(void *arg, const char *path, size_t path_len,
		      uint64_t gen);
	/* The connection over which we had borrowed from this peer is gone: the
	 * descriptors stay good, but it no longer counts them. */
	void (*lender_gone)(void *arg, const uint8_t id[POOL_ID_SIZE]);
};

struct pool_peers_opts {
	uv_loop_t *loop;
	uint8_t id[POOL_ID_SIZE];
	struct pool_hostport listen; /* port 0: any */
	const char *unix_path;	     /* NULL: none */
	/* > 0: sockets that listen there already (this module's, also after an
	 * error). */
	int listen_fd, unix_fd;
	bool fd_passing;
	/* Of connections that peers have dialled (0: POOL_SESSIONS_ADDR,
	 * POOL_SESSION_IDLE_MS). */
	unsigned int sessions_addr_max, session_idle_ms;
	struct verbs *verbs; /* borrows; NULL: TCP only */
	/* Of local users, who may be a peer: asked of each connection, dialled
	 * or accepted. Borrows; NULL: everybody. */
	struct pool_trust *trust;
	unsigned int movers; /* threads, and bulk lanes per peer; 1.. */
	const struct pool_peers_ops *ops;
	void *arg;
	/* Borrows; NULL: none. Not printed any more once pool_peers_close has
	 * been called: what is registered ends with it. */
	struct pool_metrics *metrics;
};

/* 0 or -errno (an address that cannot be listened on is logged). */
int pool_peers_open(const struct pool_peers_opts *opts,
		    struct pool_peers **ret_peers);
/* Fetches under way end with -ECANCELED first (their callbacks run inside);
 * threads are joined; closed(arg) runs from a later turn when nothing is left
 * on the loop. */
void pool_peers_close(struct pool_peers *p, void (*closed)(void *arg),
		      void *arg);
/* Bytes sent to peers, since the start. */
uint64_t pool_peers_sent(const struct pool_peers *p);
/* The listening sockets; borrowed. unix: -1 if there is none. */
void pool_peers_fds(const struct pool_peers *p, int *ret_tcp, int *ret_unix);
/* The port really listened on. */
uint16_t pool_peers_port(const struct pool_peers *p);

struct pool_fetch;
typedef void (*pool_fetch_cb)(struct pool_fetch *f, int status);

/*
 * One transfer; the caller's storage, zeroed before the fields of the first
 * group are set, and valid until cb.
 * Statuses: 0; -ENOENT (the holder has it no more); -ETIMEDOUT; -ECONNRESET,
 * -EHOSTDOWN and other connect errors; -EBADMSG (the answer made no sense);
 * -EIO, -ENOSPC (writing to fd); -ECANCELED.
 */
struct pool_fetch {
	/* what and from whom; borrowed until cb */
	struct pool_peer_addr from;
	const char *path;
	size_t path_len;
	uint64_t gen;
	uint64_t offset, length;
	/* where to: at `offset` of fd (O_RDWR), or if fd < 0 to mem; with
	 * neither (and fd_ok) a descriptor or nothing: -EAGAIN if it is not
	 * lent */
	int fd;
	void *mem;
	unsigned int timeout_ms;
	/* read it, where there is RDMA, instead of having it written: for
	 * what nobody is waiting for */
	bool pull;
	bool fd_ok; /* a lent descriptor is welcome (whole objects only) */

	/* results, with status 0 */
	int lent_fd;	   /* >= 0: nothing was moved; the caller's, O_RDONLY */
	XXH128_hash_t sum; /* of the range, if it was moved */
	struct pool_fetch_priv *priv;
	pool_fetch_cb cb;
};

/* 0, or -ENOMEM / -EINVAL (then cb never runs). */
int pool_fetch_start(struct pool_peers *p, struct pool_fetch *f,
		     pool_fetch_cb cb);
/* Bytes of it that have come so far. */
uint64_t pool_fetch_progress(const struct pool_fetch *f);
/* cb runs with -ECANCELED from a later turn, once no byte can land any more. */
void pool_fetch_cancel(struct pool_peers *p, struct pool_fetch *f);

/* The file of an object (fd: borrows) goes, or its room is wanted: nothing
 * keeps it open for the sake of sending it again. */
void pool_peers_forget(struct pool_peers *p, int fd);

/* Something has come that a GET may have been too early for. */
void pool_peers_again(struct pool_peers *p);

/* Give back / ask back. Unknown peers are ignored. */
void pool_peers_return(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE],
		       const char *path, size_t path_len, uint64_t gen);
/* Ask every peer that has path@gen borrowed. Returns how many were asked. */
unsigned int pool_peers_recall(struct pool_peers *p, const char *path,
			       size_t path_len, uint64_t gen);

/* Tell a holder that what came of path@gen from it was not right. Not repeated
 * if it gets lost. */
void pool_peers_doubt(struct pool_peers *p, const struct pool_peer_addr *holder,
		      const char *path, size_t path_len, uint64_t gen);

#endif
