/*
 * The inside of a connection, shared by conn.c (its life: dialling,
 * timeouts, end), in.c and out.c (frames) and faults.c
 * (what goes wrong on purpose). Nobody else's.
 *
 * Thread: the loop's.
 *
 *   CONNECTING --> OPEN --> CLOSING --> (on_close, freed)
 *        |           |         ^
 *        |           +-> DRAINING (callbacks off, queue going out)
 *        +-----------------^---+
 *
 * Every libuv handle and request of a connection holds a reference; the last
 * one to go runs on_close and frees. So a callback may close the connection it
 * was called for: the memory stays until the handles' own close callbacks.
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
	int ride_fd;	  /* owns; -1: none (or already sent) */
	int file_fd;	  /* borrows until done; -1: no file bulk */
	uint64_t file_offset, file_left;
	/* owns: of the file, map_len bytes at map_offset; or NULL */
	uint8_t *map;
	uint64_t map_offset;
	size_t map_len;
	bool unmappable;
	void (*done)(void *arg, int err); /* NULL: none */
	void *arg;
	bool judged; /* by the rules of c->faults */
	enum pool_fault_kind fault;
	uint64_t fault_left; /* comes when so much of the file is left */
	uint8_t bytes[]; /* header and payload */
};

enum rx_state { RX_HEADER, RX_PAYLOAD, RX_BULK };

/* The frame being received. */
struct conn_rx {
	enum rx_state state;
	bool after_bulk; /* the frame before had bulk: expect another */
	uint8_t header[POOL_WIRE_HEADER];
	size_t have;	  /* bytes of header or payload so far */
	uint8_t *payload; /* owns; only for one that arrives in pieces */
	bool skip;	  /* the bulk is of a message that we do not know */
	uint8_t *bulk;	  /* borrows; where the next byte of bulk goes */
	uint64_t room;	  /* bytes that may go there; 0: ask, or staging */
	uint64_t bulk_have;
	struct pool_frame frame;
	int fd;		 /* owns; received, its frame not complete. Or -1 */
	uint64_t fd_end; /* stream position at the end of that recvmsg */
	uint64_t pos;	 /* stream position: bytes consumed */
	uint64_t end;	 /* stream position: bytes received */
};

/* A uv_poll_t cannot change its socket, and each address tried needs one. */
struct conn_poll {
	uv_poll_t handle;
	struct pool_conn *c;
	int events; /* asked for */
};

/* What is going wrong on purpose. */
struct conn_faults {
	struct pool_faults *rules; /* borrows */
	uv_timer_t out_timer, in_timer;
	bool out_held, in_held; /* until the timer fires */
	bool out_lost, in_lost; /* all that comes vanishes */
	bool in_flip;		/* the next byte of bulk */
};

struct pool_conn {
	uv_loop_t *loop;
	const struct pool_conn_ops *ops;
	void *user;
	enum conn_state state;
	int fd; /* owns, or -1 */
	bool is_unix;
	bool same_host; /* TCP, and the peer has an address of ours */
	bool flushing;	 /* in conn_flush: what is sent meanwhile is queued */
	bool write_more; /* the socket was full, or a turn's share used up */
	bool drain_when_open;
	bool shut;	 /* draining: our direction is shut down */
	bool detached;	 /* ends without on_close */
	bool broken;	 /* ends when what has been received is read */
	int break_err;	 /* with this; 0: the socket knows */
	int err;	 /* for on_close */
	unsigned int refs;
	struct conn_poll *poll; /* owns, or NULL */
	uv_timer_t timer;
	uv_getaddrinfo_t resolve;
	struct addrinfo *addrs, *addr_next; /* owns / borrows from addrs */
	int addr_err; /* why the address before failed */
	char *name;   /* owns */
	uint16_t version; /* see pool_conn_version */
	uint64_t last_rx_ms;
	unsigned int idle_ms;
	size_t queue_max, queued;
	struct pool_list queue; /* struct conn_out */
	struct conn_rx rx;
	int wake_at; /* the socket's SO_RCVLOWAT; 0: as it was */
	struct pool_trust *trust; /* borrows; NULL: whoever has the other end */
	uint16_t first; /* still due */
	struct pool_counter *refused; /* borrows, or NULL */
	int refusal; /* while draining: what it ends with */
	struct pool_share *share; /* borrows, or NULL */
	struct pool_share_user turn; /* of share */
	struct conn_faults *faults; /* owns; NULL: none are allowed */
};

void conn_unref(struct pool_conn *c);
/* The end, from anywhere inside: on_close(err) follows from a later turn. */
void conn_fail(struct pool_conn *c, int err);
/* The same, but what has been received by the socket is delivered first;
 * nothing is sent any more. */
void conn_break(struct pool_conn *c, int err);
/* Broken, and there is nothing left to read. */
void conn_broken_dry(struct pool_conn *c);
/* Ask for the events that the state and the queue need. */
void conn_want(struct pool_conn *c);
bool conn_callbacks_on(const struct pool_conn *c);

/* Is it trusted (or need not be)? Else the connection has been ended. Asked
 * when something has come: somebody has accepted it then. */
bool conn_is_trusted(struct pool_conn *c);

/* Write what the socket takes, a slice at most; may end the connection. */
void conn_flush(struct pool_conn *c);
/* Read and deliver what there is, a slice at most; may end the connection. */
void conn_receive(struct pool_conn *c);
/* POOL_CONN_SLICE bytes for sending, in use only within one call. NULL on
 * ENOMEM. */
uint8_t *conn_staging(void);
uint8_t *conn_staging_out(void);
/* The same if its share allows, else later. */
void conn_receive_turn(struct pool_conn *c);
void conn_receive_go(struct pool_share_user *u);
/* Ends every queued frame, telling the owners of file bulk. */
void conn_queue_clear(struct pool_conn *c, int err);
void conn_rx_clear(struct pool_conn *c);
/* The loop is woken when `bytes` have come, or the end (TCP only). */
void conn_wake_at(struct pool_conn *c, int bytes);

/* ---- faults.c ---- */

/* 0 or -ENOMEM. */
int conn_faults_open(struct pool_conn *c);
void conn_faults_close(struct pool_conn *c);
/* Before anything of o, the first in the queue, is written (faults != NULL):
 * 0: go on; 1: it vanishes; -EAGAIN: not yet; -errno: the end. */
int conn_faults_out(struct pool_conn *c, struct conn_out *o);
bool conn_faults_out_held(const struct pool_conn *c);
/* Before *want bytes of o's file are sent, which may become fewer. As
 * conn_faults_out. */
int conn_faults_bulk(struct pool_conn *c, struct conn_out *o, size_t *want);
/* A header has come (faults != NULL): 0 or -errno, the end. */
int conn_faults_in(struct pool_conn *c);
bool conn_faults_in_held(const struct pool_conn *c);
bool conn_faults_in_lost(const struct pool_conn *c);
/* Bytes of bulk have come. */
void conn_faults_in_bulk(struct pool_conn *c, uint8_t *data);

#endif
