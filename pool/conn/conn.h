/*
 * A framed connection on a libuv loop: TCP, plain or with TLS, or Unix stream.
 *
 * Thread: the loop's, for all functions. Callbacks run on the loop thread,
 * never from inside pool_conn_connect or pool_conn_send*.
 *
 * Happy path: pool_conn_connect -> on_open -> frames both ways -> peer closes
 * or pool_conn_close -> on_close, exactly once, last of all callbacks; the
 * connection is freed after it returns.
 *
 * Failure modes, each of which ends in on_close with the error: the name does
 * not resolve, connect is refused or times out, the peer resets, a frame does
 * not decode, nothing is received for idle_timeout_ms. Also:
 *
 *   -EPROTONOSUPPORT  the peer's version is neither ours nor adjacent to it.
 *                     Logged; one ERROR tells the peer our version.
 *   -EMSGSIZE         a payload exceeds the bound of its type
 *                     (pool/conn/unpack.h), or bulk POOL_BULK_MAX
 *   -EPROTO           the first frame is not opts.first; or, with TLS, a record
 *                     is invalid, or the peer sent an alert (for example,
 *                     because it does not accept our certificate)
 *   -EACCES           TLS: a peer of this role may not send this type
 *   -EKEYREJECTED     TLS: we do not accept the peer's certificate, or it does
 *                     not speak TLS
 *
 * When a frame is refused for its header (-EMSGSIZE, -EPROTO, -EACCES), the
 * peer is sent an ERROR, and its further input is read and discarded for up to
 * a second, because closing with unread input would reset the connection and
 * destroy the ERROR. Until opts.first has arrived, the only other frames
 * accepted are an ERROR and types that only a newer version knows, of at most
 * POOL_CONN_FIRST_MAX bytes and without bulk.
 *
 * A message type that only a newer neighbour version knows is skipped, with its
 * bulk and descriptor.
 *
 * Receiving bulk: for a frame with bulk_len > 0, on_bulk_begin may return
 * memory for all of it. The bytes are received directly into that memory, which
 * must stay valid until on_bulk_end, pool_conn_bulk_drop or the connection's
 * end. If it returns NULL, on_bulk_room (optional) is asked for memory piece by
 * piece. Without memory the bytes pass through the loop's staging buffer. In
 * all cases on_bulk_data is called with each slice as it arrives, while the
 * slice is in the CPU's cache, and on_bulk_end once at the end. on_frame is
 * called only for frames without bulk.
 *
 * Fairness: in one loop iteration a connection receives about POOL_CONN_SLICE
 * bytes at most; with opts.share, POOL_CONN_SHARE_SLICE. Together, the
 * connections of a share spend about share->turn units per iteration: one unit
 * for each POOL_CONN_SHARE_RECEIVED bytes received, and one for each byte of
 * header and payload delivered, because handling a message costs more than
 * receiving it.
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
#include "pool/tls/tls.h"

#define POOL_CONN_SLICE (256u << 10)
#define POOL_CONN_SHARE_SLICE (16u << 10)
#define POOL_CONN_SHARE_RECEIVED 16u /* received bytes per unit */
#define POOL_CONN_FIRST_MAX 4096u
/* Per loop iteration: a step of a TLS handshake takes up to half a millisecond
 * (signatures). */
#define POOL_CONN_SHAKES 32u

struct pool_conn;

struct pool_conn_ops {
	/* Connected. Only connections that were dialled call it. */
	void (*on_open)(struct pool_conn *c);
	/* payload: borrowed until return. fd: the descriptor that came with the
	 * frame, owned by the callee from here on; or -1. */
	void (*on_frame)(struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, int fd);
	/* Optional: memory for the whole bulk, or NULL. */
	void *(*on_bulk_begin)(struct pool_conn *c, const struct pool_frame *f,
			       const uint8_t *payload);
	/*
	 * Optional: memory for up to *ret_len (> 0) bytes from `offset` on,
	 * valid as long as that of on_bulk_begin. Called when the previous
	 * piece is full. NULL: use staging now, ask again at the next read.
	 */
	void *(*on_bulk_room)(struct pool_conn *c, const struct pool_frame *f,
			      uint64_t offset, size_t *ret_len);
	/* Both optional. */
	void (*on_bulk_data)(struct pool_conn *c, const struct pool_frame *f,
			     const void *data, size_t len, uint64_t offset);
	void (*on_bulk_end)(struct pool_conn *c, const struct pool_frame *f);
	/* err: 0 after pool_conn_close and pool_conn_drain_close, else -errno
	 * (-ECONNRESET also when the peer closed in order). */
	void (*on_close)(struct pool_conn *c, int err);
};

struct pool_conn_opts {
	const struct pool_conn_ops *ops; /* borrows; constant data */
	void *user;
	unsigned int connect_timeout_ms; /* 0: 2000 */
	/* end with -ETIMEDOUT if nothing arrives for this time; 0: never */
	unsigned int idle_timeout_ms;
	size_t send_queue_max; /* bytes of queued frames; 0: 64 MiB. Bulk from
				  files is not counted. */
	/* Backpressure: read nothing while more bytes than this are queued (0:
	 * no limit), and end with -ENOBUFS if the peer takes none of them for
	 * unread_timeout_ms (0: never). */
	size_t unread_max;
	unsigned int unread_timeout_ms;
	struct pool_share *share; /* borrows, or NULL */
	/* Dialled connections: if a process of this machine has the other end,
	 * it must be trusted before anything is sent or delivered (else -EPERM,
	 * logged, counted). Borrows; NULL: any peer is accepted. */
	struct pool_trust *trust;
	/* TCP: use TLS with these certificates, and ignore `trust`. Borrows;
	 * NULL: plain. If the peer is not accepted (-EKEYREJECTED, logged,
	 * counted), or the handshake takes longer than connect_timeout_ms
	 * (-ETIMEDOUT), no frame is sent or delivered. */
	struct pool_tls *tls;
	unsigned int tls_roles; /* POOL_ROLE_BITs: what the peer may be */
	bool tls_bulk; /* see struct pool_tls_want */
	/* TLS: the budget of handshake steps (POOL_CONN_SHAKES) that all
	 * connections of one listener share. Borrows; NULL: no limit. */
	struct pool_share *shakes;
	/* Memory for bulk may belong to the application, which may unmap it at
	 * any time (pool/base/guard.h): OpenSSL must not write to it. */
	bool foreign_memory;
	/* pool_conn_from_fd: the TLS stream on fd, after its handshake (see
	 * pool_conn_detach). The connection owns it from the call on, even if
	 * that fails. */
	struct pool_tls_stream *stream;
	/* enum pool_msg: the type that the peer must send first; 0: any */
	uint16_t first;
	/* Counts frames refused for their header, which no callback sees.
	 * Borrows, or NULL. */
	struct pool_counter *refused;
};

/*
 * Dial host:port; each call resolves the name again, in a worker thread.
 * Frames sent before on_open are queued. Returns 0 or -ENOMEM; on_close reports
 * all other failures.
 */
int pool_conn_connect(uv_loop_t *loop, const struct pool_hostport *to,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn);
int pool_conn_connect_unix(uv_loop_t *loop, const char *path,
			   const struct pool_conn_opts *opts,
			   struct pool_conn **ret_conn);
/* Use a connected stream socket. The connection owns fd from the call on, even
 * if that fails. */
int pool_conn_from_fd(uv_loop_t *loop, int fd,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn);
/*
 * Free the connection but keep its socket, to move it to another thread's loop.
 * Returns the descriptor (>= 0), which the caller owns, or -EBUSY if frames are
 * queued or bytes beyond the current frame have been received. Call it only
 * inside on_frame. on_close is not called. *ret_stream: the TLS stream, which
 * the caller owns, too; NULL: the connection is plain.
 */
int pool_conn_detach(struct pool_conn *c, struct pool_tls_stream **ret_stream);
/* Ends TLS: what follows is not encrypted in either direction. The peer does
 * the same at this place of the stream. Call it between two frames: inside
 * on_frame, or before the first one. 0; -EBUSY: bytes are unsent, or input
 * follows the frame already: the connection can only be closed. */
int pool_conn_end_tls(struct pool_conn *c);

/* Read nothing until hold is false. Frames of the current turn still come: with
 * opts.share those within POOL_CONN_SHARE_SLICE bytes. The end of the peer is
 * not noticed meanwhile. */
void pool_conn_hold(struct pool_conn *c, bool hold);
/* Stop writing to the memory given for the bulk being received; the rest of the
 * bulk uses on_bulk_room or staging. No-op when no bulk is being received. */
void pool_conn_bulk_drop(struct pool_conn *c);

/* End the connection. No callback is called after this but on_close, in a later
 * loop iteration. */
void pool_conn_close(struct pool_conn *c);
/* The same, but the connection ends only when the queue has been sent and the
 * peer has closed its end, or after timeout_ms. */
void pool_conn_drain_close(struct pool_conn *c, unsigned int timeout_ms);

void *pool_conn_user(const struct pool_conn *c);
/* "10.0.0.1:7071" or the Unix path; for log messages. */
const char *pool_conn_peer_name(const struct pool_conn *c);
/* Identity in the peer's certificate. Valid from the first callback on, until c
 * is freed. NULL: the connection is plain. */
const struct pool_tls_id *pool_conn_peer_id(const struct pool_conn *c);
/* Does the peer's certificate name this host? False for a plain connection. */
bool pool_conn_peer_has_host(const struct pool_conn *c, const char *host);
/* Protocol version in use: the lower of ours and the peer's. 0: the peer has
 * not sent a frame yet. */
uint16_t pool_conn_version(const struct pool_conn *c);
/* Unix sockets: does the process that dialled or listened belong to our own
 * user? Always false for TCP, and for POOL_UID_LOST. */
bool pool_conn_own_user(const struct pool_conn *c);
size_t pool_conn_queued(const struct pool_conn *c);
/* Bytes of memory in use: queued frames and a partly received payload. */
size_t pool_conn_memory(const struct pool_conn *c);
/* Is it closing, draining, or broken by the peer? Nothing can be sent any more,
 * and on_close has not been called yet. */
bool pool_conn_is_over(const struct pool_conn *c);
/* Time since bytes were last received, or since the connection opened. */
uint64_t pool_conn_silent_ms(const struct pool_conn *c);

/*
 * Queue a frame with msg (may be NULL) as payload. It is written now as far as
 * the socket takes it, the rest later. Returns 0, or an error with nothing
 * queued: -ENOMEM, -EMSGSIZE (payload beyond its type's bound), -ENOBUFS (queue
 * beyond send_queue_max), -ENOTCONN (closing or draining).
 */
int pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg);
/* The same, but written in one system call with other frames: of a callback for
 * a frame, once all frames received in this turn have been delivered; of other
 * code, in the next loop iteration. */
int pool_conn_send_soon(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg);
/* As pool_conn_send, with a descriptor (Unix sockets only, else -ENOTSUP). fd
 * is duplicated and stays the caller's. */
int pool_conn_send_fd(struct pool_conn *c, uint16_t type, uint64_t req,
		      const ProtobufCMessage *msg, int fd);
/*
 * Queue a frame whose bulk is [offset, offset+len) of a file. It is sent by
 * sendfile(2), or copied: if it is small, with TLS, or to a peer on this host.
 * fd stays the caller's; it and the range must stay valid until done(arg, err).
 * done is called exactly once, on the loop, with 0 or -errno, also on close,
 * never from inside this call. On error nothing is queued and done never runs.
 * If the file turns out to be shorter the connection ends (-EIO), because the
 * frame cannot be completed.
 */
int pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg, int fd, uint64_t offset,
			uint64_t len, void (*done)(void *arg, int err),
			void *arg);

/* ---- listening ---- */

#define POOL_ADDRESS_SIZE 16
/* The peer's address as IPv6; all 0: it has none (a Unix socket). */
void pool_fd_address(int fd, uint8_t ret_addr[POOL_ADDRESS_SIZE]);

/* A non-blocking socket that listens on host:port (port 0: any), or -errno,
 * logged. options: the program's options that choose another address, named in
 * that log message. Name resolution blocks: call it at start-up. */
int pool_listen_tcp(const struct pool_hostport *at, const char *options);
/* The port that a TCP socket is bound to; 0: none. */
uint16_t pool_fd_port(int fd);

struct pool_listener;
/* Called for each accepted connection; the callee owns fd. */
typedef void (*pool_accept_cb)(void *arg, int fd);
/*
 * Listen on host:port (port 0: any; see pool_listener_port). Name resolution
 * blocks: call it at start-up. 0 or -errno (logged with the address).
 */
int pool_listener_open(uv_loop_t *loop, const struct pool_hostport *at,
		       pool_accept_cb cb, void *arg,
		       struct pool_listener **ret_listener);
/* A Unix socket, mode 0600; a stale socket file is replaced. */
int pool_listener_open_unix(uv_loop_t *loop, const char *path,
			    pool_accept_cb cb, void *arg,
			    struct pool_listener **ret_listener);
/* Use a socket that listens already. The listener owns fd from here on, also
 * after an error. path: that of a Unix socket, else NULL. */
int pool_listener_from_fd(uv_loop_t *loop, int fd, const char *path,
			  pool_accept_cb cb, void *arg,
			  struct pool_listener **ret_listener);
/*
 * Accept only trusted peers from now on (pool/conn/trust.h). Others get an
 * ERROR, -EPERM, which names the remedy, and never reach the callback. Borrows
 * t; NULL: all peers are accepted.
 */
void pool_listener_trust(struct pool_listener *l, struct pool_trust *t);
/* An address literal, in the form of pool_fd_address. 0, or -EINVAL: host is a
 * name. */
int pool_address_parse(const char *host, uint8_t ret_addr[POOL_ADDRESS_SIZE]);
/* Borrowed. */
int pool_listener_fd(const struct pool_listener *l);
uint16_t pool_listener_port(const struct pool_listener *l);
/* No callback runs after it returns. Unlinks the path of a Unix socket. */
void pool_listener_close(struct pool_listener *l);

#endif
