/*
 * Internals of a connection, only for conn.c (dialling, timeouts, teardown),
 * in.c and out.c (frames), secure.c (TLS), staging.c (buffers) and faults.c
 * (injected faults).
 *
 * Thread: the loop's.
 *
 *   CONNECTING ---> OPEN ---> DRAINING ---> CLOSING ---> (on_close, freed)
 *        |            |                        ^
 *        +------------+------------------------+
 *
 * DRAINING (pool_conn_drain_close): the queue is still being sent, and no
 * callback but on_close is called any more.
 *
 * Every libuv handle and request of a connection holds a reference; dropping
 * the last one runs on_close and frees the connection. A callback may therefore
 * close the connection that it was called for: the memory stays valid until
 * libuv has run the handles' close callbacks.
 */
#ifndef POOL_CONN_CONN_PRIV_H
#define POOL_CONN_CONN_PRIV_H

#include "pool/base/list.h"
#include "pool/conn/conn.h"
#include "pool/conn/fault_rules.h"

enum conn_state {
	CONN_CONNECTING,
	CONN_OPEN,
	CONN_DRAINING,
	CONN_CLOSING,
};

/* One queued frame. */
struct conn_out {
	struct pool_list link;
	size_t len, sent; /* of bytes[] */
	int ride_fd;	  /* owns; sent with the frame. -1: none, or sent */
	int file_fd;	  /* borrows until done; -1: no file bulk */
	uint64_t file_offset, file_left;
	/* owns: mapping of map_len bytes of the file at map_offset; or NULL */
	uint8_t *map;
	uint64_t map_offset;
	size_t map_len;
	bool unmappable;
	void (*done)(void *arg, int err); /* NULL: none */
	void *arg;
	bool judged; /* the rules of c->faults were consulted */
	enum pool_fault_kind fault;
	uint64_t fault_left; /* inject when this many bytes of file are left */
	uint8_t bytes[]; /* header and payload */
};

enum rx_state { RX_HEADER, RX_PAYLOAD, RX_BULK };

/* The frame being received. */
struct conn_rx {
	enum rx_state state;
	bool after_bulk; /* the previous frame had bulk: the next may, too */
	uint8_t header[POOL_WIRE_HEADER];
	size_t have;	  /* bytes of header or payload so far */
	uint8_t *payload; /* owns; only for one that arrives in pieces */
	bool skip;	  /* the type is unknown: discard its bulk */
	uint8_t *bulk;	  /* borrows; where the next byte of bulk goes */
	uint64_t room;	  /* bytes left at bulk; 0: on_bulk_room or staging */
	uint64_t bulk_have;
	struct pool_frame frame;
	int fd;		 /* owns; came with an incomplete frame. -1: none */
	uint64_t fd_end; /* stream position at the end of that recvmsg */
	uint64_t pos;	 /* stream position: bytes consumed */
	uint64_t end;	 /* stream position: bytes received */
};

/* Allocated per socket: a uv_poll_t cannot change its socket, and dialling may
 * try several addresses. */
struct conn_poll {
	uv_poll_t handle;
	struct pool_conn *c;
	int events; /* that libuv watches for */
};

/* Injected faults. */
struct conn_faults {
	struct pool_faults *rules; /* borrows */
	uv_timer_t out_timer, in_timer;
	bool out_delayed, in_delayed; /* delayed until the timer fires */
	bool out_lost, in_lost; /* everything from here on is dropped */
	bool in_flip;		/* flip a bit of the next byte of bulk */
};

struct pool_conn {
	uv_loop_t *loop;
	const struct pool_conn_ops *ops;
	void *user;
	enum conn_state state;
	int fd; /* owns, or -1 */
	bool is_unix;
	bool dialled;
	bool same_host; /* TCP, and both ends have the same address */
	bool flushing;	 /* in conn_flush: send functions only queue */
	bool write_more; /* wait for UV_WRITABLE to continue the queue */
	bool receiving;	 /* in conn_receive, which ends with a flush */
	bool flush_due;	 /* frames wait for that flush */
	bool drain_when_open;
	bool shut;	 /* draining: SHUT_WR was done */
	bool detached;	 /* end without on_close */
	bool broken;	 /* to be ended when the socket's input has been read */
	int break_err;	 /* ... with this error; 0: with the socket's */
	int err;	 /* for on_close */
	unsigned int refs;
	struct conn_poll *poll; /* owns, or NULL */
	uv_timer_t timer;
	uv_getaddrinfo_t resolve;
	struct addrinfo *addrs, *addr_next; /* owns / borrows from addrs */
	int addr_err; /* of the last address tried */
	char *name;   /* owns */
	uint16_t version; /* see pool_conn_version */
	uint64_t last_rx_ms;
	uint64_t idle_armed_ms; /* last_rx_ms when the timer was started */
	unsigned int idle_ms;
	size_t queue_max, queued;
	size_t unread_max; /* opts.unread_max; 0: none */
	unsigned int unread_timeout_ms;
	bool unread; /* more than unread_max is queued: nothing is read */
	uint64_t taken_ms; /* while unread: when the peer last took bytes */
	size_t not_taken;  /* bytes that it had not taken then */
	struct pool_list queue; /* struct conn_out */
	struct conn_rx rx;
	int wake_at; /* the socket's SO_RCVLOWAT; 0: never changed */
	struct pool_tls *tls; /* borrows; NULL: plain */
	unsigned int tls_roles;
	bool tls_bulk, foreign_memory;
	char *tls_host; /* owns; what was dialled, or NULL: accepted */
	struct pool_tls_stream *stream; /* owns, or NULL: plain */
	struct pool_share *shakes; /* borrows, or NULL */
	bool shaking; /* CONNECTING, and the handshake has begun */
	bool held;    /* pool_conn_hold */
	bool more_in; /* the stream may hold input that the socket does not */
	/* borrows; NULL: checked already, or any peer is accepted */
	struct pool_trust *trust;
	uint16_t first; /* the type that is still due; 0: none */
	struct pool_counter *refused; /* borrows, or NULL */
	int refusal; /* error for on_close after a drain; 0: none */
	struct pool_share *share; /* borrows, or NULL */
	struct pool_share_user turn; /* in `shakes`, later in `share` */
	struct conn_faults *faults; /* owns; NULL: injection is not allowed */
};

void conn_unref(struct pool_conn *c);
/* End the connection, from anywhere inside: on_close(err) follows in a later
 * loop iteration. */
void conn_fail(struct pool_conn *c, int err);
/* The peer has disconnected: send nothing more, deliver what the socket has
 * received, then end with err. */
void conn_break(struct pool_conn *c, int err);
/* After conn_break: the socket has no more input; end. */
void conn_broken_end(struct pool_conn *c);
/* Is nothing to be read for now? */
bool conn_waits(const struct pool_conn *c);
/* Make libuv watch for the events that state and queue require. */
void conn_watch(struct pool_conn *c);
/* Bytes have arrived. Pushes the idle timer on now and then, so that it wakes
 * the loop only for a connection that is silent. */
void conn_received(struct pool_conn *c);
/* While unread: the peer has taken bytes. */
void conn_taken(struct pool_conn *c);
bool conn_callbacks_on(const struct pool_conn *c);

/* Check c->trust, if set; on failure end the connection and return false.
 * Called once input has arrived: the peer has then accepted the connection, so
 * the kernel knows its owner. */
bool conn_is_trusted(struct pool_conn *c);

/* ---- secure.c: TLS ---- */

/* Is TLS wanted on this connection? */
bool conn_is_secure(const struct pool_conn *c);
/* Begins the handshake on the connected socket. 0 or -ENOMEM. */
int conn_shake_start(struct pool_conn *c);
/* Continues the handshake. 0: done; -EAGAIN: wait for the socket; other -errno:
 * it has failed, which is counted, and logged if it is -EKEYREJECTED. */
int conn_shake(struct pool_conn *c);
/* pool_tls_read and pool_tls_write, with a log line if the stream breaks. */
ssize_t conn_secure_read(struct pool_conn *c, void *to, size_t cap);
ssize_t conn_secure_write(struct pool_conn *c, const struct iovec *iov, int n);

/* Write what the socket takes, a slice at most; may end the connection. */
void conn_flush(struct pool_conn *c);
/* Read and deliver what there is, a slice at most; may end the connection. */
void conn_receive(struct pool_conn *c);
/* The thread's buffers for receiving and for sending, POOL_CONN_SLICE bytes
 * each; contents are valid within one call only. NULL on ENOMEM. */
uint8_t *conn_staging(void);
uint8_t *conn_staging_out(void);
/* conn_receive if the share has units left, else wait for the share. */
void conn_receive_turn(struct pool_conn *c);
/* Remove all queued frames; done callbacks get err. */
void conn_queue_clear(struct pool_conn *c, int err);
void conn_rx_clear(struct pool_conn *c);
/* TCP: wake the loop only when `bytes` have arrived, or at the end. */
void conn_wake_at(struct pool_conn *c, int bytes);

/* ---- faults.c ---- */

/* 0 or -ENOMEM. */
int conn_faults_open(struct pool_conn *c);
void conn_faults_close(struct pool_conn *c);
/* Called before each write, o being the head of the queue (c->faults is set).
 * 0: write; 1: drop o; -EAGAIN: delayed; other -errno: end with it. */
int conn_faults_out(struct pool_conn *c, struct conn_out *o);
bool conn_faults_out_delayed(const struct pool_conn *c);
/* Called before *want bytes of o's file are sent; may reduce *want. Returns as
 * conn_faults_out. */
int conn_faults_bulk(struct pool_conn *c, struct conn_out *o, size_t *want);
/* Called for each received header (c->faults is set). 0, or -errno to end. */
int conn_faults_in(struct pool_conn *c);
bool conn_faults_in_delayed(const struct pool_conn *c);
bool conn_faults_in_lost(const struct pool_conn *c);
/* Called for each received piece of bulk; may change its first byte. */
void conn_faults_in_bulk(struct pool_conn *c, uint8_t *data);

#endif
