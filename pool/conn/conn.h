/*
 * A framed connection on a libuv loop: TCP or Unix stream.
 *
 * Thread: the loop's, for everything; callbacks run on it too, and never from
 * inside pool_conn_connect or pool_conn_send*.
 *
 * Happy path: pool_conn_connect -> on_open -> frames both ways -> peer closes
 * or pool_conn_close -> on_close, exactly once, last of all callbacks; the
 * connection is freed after it returns. Failure modes: name not resolved,
 * connect refused or timed out, reset, a frame that does not decode, the send
 * queue beyond its limit, silence longer than idle_timeout_ms: each ends in
 * on_close with the error. A peer of a version that is not ours nor next to it
 * (-EPROTONOSUPPORT, logged) is answered with one ERROR, by which it sees ours.
 * Messages that only a newer neighbour knows are passed over, with their bulk
 * and descriptors. A payload beyond what its type may have (pool/conn/unpack.h;
 * -EMSGSIZE), and another frame where opts.first is due (-EPROTO), are refused
 * by their header: the peer is told in an ERROR, and what it goes on sending
 * for a second is not kept. Before opts.first nothing has more than
 * POOL_CONN_FIRST_MAX bytes: the message itself, an ERROR, one that only a
 * newer neighbour knows.
 *
 * Receiving bulk: for a frame with bulk_len > 0, on_bulk_begin may return where
 * the bytes go (they are then received straight into that memory, which must
 * stay valid until on_bulk_end, pool_conn_bulk_drop or the connection's end);
 * if it returns NULL, on_bulk_room (if there is one) is asked for room piece by
 * piece, and without room they pass through the loop's staging buffer. In all
 * cases on_bulk_data tells of each slice as it arrives, while it is hot in the
 * cache, and on_bulk_end of the end. on_frame is called for frames without bulk
 * only. No turn takes more than POOL_CONN_SLICE bytes from one connection. With
 * a share (opts.share), POOL_CONN_SHARE_SLICE; and no more than its units from
 * all that have it, a unit being a byte of a frame delivered, or some that were
 * only received: what frames are about costs more than their coming.
 */
#ifndef POOL_CONN_CONN_H
#define POOL_CONN_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <protobuf-c/protobuf-c.h>

#include "pool/base/metric.h"
#include "pool/base/parse.h"
#include "pool/conn/share.h"
#include "pool/conn/trust.h"
#include "pool/conn/wire.h"

#define POOL_CONN_SLICE (256u << 10)
#define POOL_CONN_SHARE_SLICE (16u << 10)
#define POOL_CONN_SHARE_RECEIVED 16u /* bytes received: a unit */
#define POOL_CONN_FIRST_MAX 4096u

struct pool_conn;

struct pool_conn_ops {
	/* Dialled connections only: connected. */
	void (*on_open)(struct pool_conn *c);
	/* payload: borrowed until return. fd: one that rode on the frame, now
	 * the callee's to close, or -1. */
	void (*on_frame)(struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, int fd);
	void *(*on_bulk_begin)(struct pool_conn *c, const struct pool_frame *f,
			       const uint8_t *payload);
	/*
	 * Optional: where the bytes from `offset` on go, *ret_len (> 0) of them
	 * at most; memory as for on_bulk_begin. Asked when the room before is
	 * full. NULL: staging for now; asked again at the next read.
	 */
	void *(*on_bulk_room)(struct pool_conn *c, const struct pool_frame *f,
			      uint64_t offset, size_t *ret_len);
	/* Both optional. */
	void (*on_bulk_data)(struct pool_conn *c, const struct pool_frame *f,
			     const void *data, size_t len, uint64_t offset);
	void (*on_bulk_end)(struct pool_conn *c, const struct pool_frame *f);
	/* err: 0 if pool_conn_close was called, else -errno (-ECONNRESET for an
	 * orderly end too). */
	void (*on_close)(struct pool_conn *c, int err);
};

struct pool_conn_opts {
	const struct pool_conn_ops *ops; /* borrows for ever */
	void *user;
	unsigned int connect_timeout_ms; /* 0: 2000 */
	/* nothing received for so long; 0: never */
	unsigned int idle_timeout_ms;
	size_t send_queue_max; /* bytes of frames queued; 0: 64 MiB. File bulk
				  is not counted. */
	struct pool_share *share; /* borrows; NULL: it has a turn's slice */
	/* Dialled: nothing is sent to, or delivered from, a process of this
	 * machine that is not trusted (-EPERM, logged, counted). Borrows; NULL:
	 * whoever answers will do. */
	struct pool_trust *trust;
	/* what the peer must say first, enum pool_msg; 0: any */
	uint16_t first;
	struct pool_counter *refused; /* borrows; or NULL. Frames that ended it
					 (before the callbacks heard of them) */
};

/*
 * Dial host:port; the name is resolved anew at each call (in a worker thread).
 * Frames sent before on_open are queued. Returns 0 or -ENOMEM; later failures
 * come by on_close.
 */
int pool_conn_connect(uv_loop_t *loop, const struct pool_hostport *to,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn);
/* Dial a Unix socket. */
int pool_conn_connect_unix(uv_loop_t *loop, const char *path,
			   const struct pool_conn_opts *opts,
			   struct pool_conn **ret_conn);
/* Take over a connected stream socket (fd is the connection's from here on,
 * also after an error). */
int pool_conn_from_fd(uv_loop_t *loop, int fd,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn);
/*
 * Give up the connection but keep its socket, which is returned (>= 0, the
 * caller's): only inside on_frame, with nothing queued and no byte received
 * beyond that frame (-EBUSY otherwise). on_close is not called; the connection
 * is gone. For handing a bulk lane to another thread's loop.
 */
int pool_conn_detach(struct pool_conn *c);

/* The memory given for the bulk being received is not touched any more; what is
 * left of it passes through staging (on_bulk_room is asked again). No-op when
 * no bulk is being received. */
void pool_conn_bulk_drop(struct pool_conn *c);

/* Ends it: on_close comes from a later turn; nothing else comes before. */
void pool_conn_close(struct pool_conn *c);
/* Same, after everything queued has been sent, or after timeout_ms. */
void pool_conn_drain_close(struct pool_conn *c, unsigned int timeout_ms);

void *pool_conn_user(const struct pool_conn *c);
/* "10.0.0.1:7071" or the Unix path; for messages. */
const char *pool_conn_peer_name(const struct pool_conn *c);
/* Of the protocol: the lower of ours and the peer's, what both speak. 0: the
 * peer has said nothing yet. */
uint16_t pool_conn_version(const struct pool_conn *c);
/*
 * Of a Unix socket: is the process that dialled it, or listened, of our own
 * user? (Where several users' names are lost in a user namespace they are all
 * one, POOL_UID_LOST: nobody's own.) False for TCP.
 */
bool pool_conn_own_user(const struct pool_conn *c);
#define POOL_UID_LOST 65534
size_t pool_conn_queued(const struct pool_conn *c);
/* Bytes that it keeps now: queued, and of a message that has come in part. */
size_t pool_conn_memory(const struct pool_conn *c);
/* Has it ended, or is it drained? Nothing can be sent any more; if it has
 * ended, on_close is still to come. */
bool pool_conn_is_over(const struct pool_conn *c);
/* Since something was last received, or it opened. */
uint64_t pool_conn_silent_ms(const struct pool_conn *c);

/*
 * Queue a frame with msg (may be NULL) as payload; what cannot be written at
 * once is sent as the socket allows. Returns 0, -ENOMEM, -EMSGSIZE (payload
 * beyond its type's bound), -ENOBUFS (queue beyond send_queue_max), -ENOTCONN
 * (closed): then nothing was queued.
 */
int pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg);
/* The same, written in the loop's next turn, together with what has been queued
 * by then. */
int pool_conn_send_soon(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg);
/* The same, with a descriptor riding on it (Unix only, else -ENOTSUP); fd stays
 * the caller's (it is duplicated). */
int pool_conn_send_fd(struct pool_conn *c, uint16_t type, uint64_t req,
		      const ProtobufCMessage *msg, int fd);
/*
 * A frame whose bulk is [offset, offset+len) of a file, sent by sendfile(2), or
 * copied if the peer is on this host.
 * The file must hold that range until done(arg, err) is called (exactly once,
 * from the loop, with 0 or -errno; also on close; never from inside this call).
 * fd is the caller's; close it in done. On error nothing was queued and done
 * never runs. A file found shorter ends the connection (the frame can no
 * longer be completed).
 */
int pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg, int fd, uint64_t offset,
			uint64_t len, void (*done)(void *arg, int err),
			void *arg);

/* ---- listening ---- */

#define POOL_ADDRESS_SIZE 16
/* The other end's address, as IPv6; all 0: it has none (a Unix socket). */
void pool_fd_address(int fd, uint8_t ret_addr[POOL_ADDRESS_SIZE]);

struct pool_listener;
/* Called with each accepted connection's socket, which is the callee's. */
typedef void (*pool_accept_cb)(void *arg, int fd);
/*
 * Listen on host:port (port 0: any; see pool_listener_port). Blocking name
 * resolution: for start-up. 0 or -errno (logged, naming the address).
 */
int pool_listener_open(uv_loop_t *loop, const struct pool_hostport *at,
		       pool_accept_cb cb, void *arg,
		       struct pool_listener **ret_listener);
/* A Unix socket, mode 0600; a stale socket file is replaced. */
int pool_listener_open_unix(uv_loop_t *loop, const char *path,
			    pool_accept_cb cb, void *arg,
			    struct pool_listener **ret_listener);
/* The same on a socket that listens already, which is the listener's from here
 * on, also after an error. path: of a Unix socket, else NULL. */
int pool_listener_from_fd(uv_loop_t *loop, int fd, const char *path,
			  pool_accept_cb cb, void *arg,
			  struct pool_listener **ret_listener);
/*
 * From now on: who is not trusted (pool/conn/trust.h) is answered with an
 * ERROR, -EPERM, which names the remedy, and never gets to the callback.
 * Borrows t; NULL: whoever comes will do.
 */
void pool_listener_trust(struct pool_listener *l, struct pool_trust *t);
/* Borrowed. */
int pool_listener_fd(const struct pool_listener *l);
uint16_t pool_listener_port(const struct pool_listener *l);
/* No callback after it returns; a Unix path is unlinked. */
void pool_listener_close(struct pool_listener *l);

#endif
