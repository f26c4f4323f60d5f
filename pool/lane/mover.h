/*
 * A mover: a thread with a loop of its own that owns bulk connections ("lanes")
 * and moves ranges over them, so that the node's loop never copies or checksums
 * large ranges. pool/peer/ asks it for two things: "send these bytes of this
 * file on that lane" and "receive the response to this request here". This
 * header describes both for TCP. Where both nodes have RDMA, a lane also has a
 * link (pool/lane/link.h) that moves its ranges; the contracts are the same.
 *
 * A lane is dialled (this node is the requester and receives bytes) or adopted
 * (a peer dialled it, and this node sends bytes as the holder). The requester
 * registers each expected response (pool_mover_expect) before it sends the
 * request; bytes that no expectation covers are discarded and counted.
 *
 * Transports. TCP is in mover.c, expect.c, mover_send.c and sent.c. RDMA is in
 * link*.c, over pool/verbs/, and the mover calls it only by link.h:
 *
 *   link_ports_*      the state of one mover
 *   lane_link_*       a dialled lane is up, receives a LINK or BUFFER, is down
 *   expect_map, expect_unmap, expect_map_end, expect_drain
 *                     an expected range: prepare its memory, fall back to TCP,
 *                     end, cancel
 *   adopted_link_*    an adopted lane receives a LINK or BUFFER, sends a range,
 *                     is down
 *
 * Another transport beside a lane provides such functions under names of its
 * own, called at the same places. (A lane over another kind of stream socket
 * needs no such functions, but an address, and code in pool/conn/ and
 * pool/peer/.) The requester chooses the transport of a range
 * (pool/peer/fetch.c), and the GET names it (`buffer`, `pull`). A range that
 * cannot be moved must fall back to TCP: expect_unmap, mover_send_by_tcp.
 * pool/CHANGING.md, "Transport", lists the other places.
 *
 * The node sets a file's size before RDMA may write to it, and releases
 * registrations before it removes a file.
 *
 * Thread: the node's loop, for all functions; the callbacks of the structs
 * below run there too, by way of the mailbox `home`. The mover processes calls
 * in order, so a lane may be used as soon as pool_mover_adopt has returned.
 */
#ifndef POOL_LANE_MOVER_H
#define POOL_LANE_MOVER_H

#include "pool/base/hash.h"
#include "pool/base/metric.h"
#include "pool/conn/conn.h"
#include "pool/lane/landing.h"
#include "pool/base/mailbox.h"
#include "pool/conn/peer_addr.h"

#define POOL_MOVER_ADOPTED_MAX 4096 /* lanes; more are refused */
/*
 * When a request of at least this age is cancelled and its lane has received
 * nothing since the request was sent, the lane is closed, and the next request
 * dials a new one. (TCP alone takes about 15 minutes to detect a dead peer.)
 */
#define POOL_LANE_SILENT_MS 500

struct pool_mover;

/* Counters of all movers; the owner's storage, outlives the movers. */
struct pool_mover_counters {
	struct pool_counter bytes_in, bytes_out;
	struct pool_counter stray_bytes; /* received for an ended request */
	struct pool_counter lanes_refused;
	struct pool_counter bad_messages; /* on any connection */
	struct pool_counter lanes_silent; /* closed: POOL_LANE_SILENT_MS */
	/* Links (pool/lane/link.h); bytes are also in the counters above. */
	struct pool_counter rdma_in, rdma_out;
	struct pool_counter rdma_pulled; /* part of rdma_in */
	struct pool_counter rdma_fallbacks; /* ranges resent over TCP */
	struct pool_counter links_up, links_broken, map_failures;
	/* Of ranges received by RDMA: time to register the destination; from
	 * the first registration to the last byte; for the checksum, which
	 * overlaps the transfer; and for the checksum of the last bytes. */
	struct pool_hist rdma_register, rdma_move, rdma_sum, rdma_tail;
};

struct verbs;
struct verbs_cache;

struct pool_mover_opts {
	struct pool_mailbox *home; /* of the node's loop */
	uint8_t id[POOL_ID_SIZE];
	struct pool_mover_counters *counters;
	struct pool_trust *trust; /* borrows; NULL: trust every user */
	struct pool_tls *tls; /* borrows; replaces `trust`. NULL: plain */
	bool foreign_memory; /* as in struct pool_conn_opts */
	/* Borrow; both NULL: TCP only. */
	struct verbs *verbs;
	struct verbs_cache *cache;
};

/* 0 or -errno. */
int pool_mover_open(const struct pool_mover_opts *opts,
		    struct pool_mover **ret_mover);
/*
 * Closes all lanes and joins the thread. Every expectation and send has ended
 * when this returns, but their callbacks (and on_down of the lanes) are still
 * queued in `home`: drain it before pool_mover_free.
 */
void pool_mover_stop(struct pool_mover *m);
void pool_mover_free(struct pool_mover *m);

/* ---- the requester ---- */

/* A dialled lane; allocated by pool_lane_dial. */
struct pool_lane {
	struct pool_mover *mover;
	uint32_t number;
	uint8_t peer_id[POOL_ID_SIZE]; /* the peer's HELLO must have it */
	unsigned int roles; /* that its certificate may have */
	void *arg;
	/* Ready for use: HELLO was exchanged, and the push link is up, has
	 * failed, or is not possible. */
	void (*on_up)(struct pool_lane *lane);
	/* Refused or lost. Its expectations end, some of them after this call.
	 * The lane must not be used after this returns. */
	void (*on_down)(struct pool_lane *lane, int err);

	/* the mover's */
	struct pool_hostport to;
	struct pool_conn *conn; /* NULL: down */
	struct pool_list expected; /* struct pool_expect */
	struct pool_expect *cur;   /* receiving bulk now */
	bool up, plain; /* plain: TLS has ended; no links */
	/* by enum link_kind: is that link up? Any thread may read. */
	_Atomic bool linked[2];
	_Atomic uint64_t received_ms; /* last receipt, as pool_now_ms */
	struct lane_link *links[2]; /* owned by link_ask.c; NULL: none */
	int err;
	struct pool_list link; /* in the mover's lanes */
	struct pool_mail dial_mail, up_mail, down_mail, free_mail, close_mail;
};

/* Copies the fields of the first group from `like`. NULL on ENOMEM. */
struct pool_lane *pool_lane_dial(const struct pool_lane *like,
				 const struct pool_hostport *to);
/* Closes a lane that nothing is requested on any more; on_down follows. At most
 * once, before on_down. */
void pool_lane_close(struct pool_lane *lane);

/* One requested range; the caller's storage until done. */
struct pool_expect {
	struct pool_lane *lane; /* may be freed before done is called */
	uint64_t req;
	/*
	 * How the range is to move; buffer and pull are sent in the GET.
	 * buffer: the lane had a push link. The requester sends BUFFERs. Each
	 * names memory that the holder may write to, or asks for TCP instead.
	 * pull: the lane had a pull link. The holder sends BUFFERs, which name
	 * the memory that the requester reads.
	 * want_pull: a pull was wanted; `pull` says whether there was a link.
	 * Neither buffer nor pull: TCP.
	 */
	bool buffer, pull, want_pull;
	bool by_rdma; /* result: some of it was moved by RDMA */
	/* The caller sets fd, mem, offset, length; status and sum are the
	 * result. `done` belongs to the mover. */
	struct pool_landing landing;
	/* Called once: the range is complete, the lane broke, or it was
	 * cancelled. No byte lands after this. */
	void (*done)(struct pool_expect *x);

	struct pool_mover *mover;   /* the lane's; valid until done */
	uint32_t number;	    /* the lane's; same */
	struct pool_hash_node node; /* in the mover's table */
	struct pool_list link;	    /* in lane->expected */
	struct pool_mail mail;	    /* to the mover, and back */
	/* landing.fd and .mem as the caller set them: while the range is
	 * registered (`map`), the landing writes to the mapping instead */
	int fd;
	void *mem;
	struct expect_map *map; /* link_range.c; NULL: not registered */
	/* Bytes written according to the peer; any thread may read. */
	_Atomic uint64_t peer_written;
	int draining;	   /* != 0: ends with this when nothing is in flight */
	uint64_t begun_ms; /* when the mover received it */
};

/* 0, or -ENOMEM (done is not called). */
int pool_mover_expect(struct pool_expect *x);
/*
 * Ends the expectation of req with -ECANCELED, unless it has ended; done is
 * called later. Also closes its lane if that is silent (POOL_LANE_SILENT_MS).
 * pool_mover_cancel_new allocates `mail` beforehand, so that this cannot fail;
 * pool_mover_cancel takes ownership of it.
 */
struct pool_mover_cancel;
struct pool_mover_cancel *pool_mover_cancel_new(void);
void pool_mover_cancel(struct pool_mover *m, struct pool_mover_cancel *mail,
		       uint64_t req);

/* ---- the holder ---- */

/*
 * Takes over the socket of a lane that a peer dialled, and whose HELLO the
 * caller has read; the mover answers it with HELLO. Owns fd and stream (NULL:
 * no TLS), also on failure. plain: HELLO permits ending TLS
 * (pool_tls_allow_plain). 0 or -ENOMEM.
 */
int pool_mover_adopt(struct pool_mover *m, int fd,
		     struct pool_tls_stream *stream,
		     const uint8_t peer_id[POOL_ID_SIZE], uint32_t number,
		     bool plain);

/* One range to send; the caller's storage until done. */
struct pool_mover_send {
	uint8_t peer_id[POOL_ID_SIZE];
	uint32_t lane;
	int fd; /* borrows */
	uint64_t offset, length, req;
	bool buffer; /* the requester sends a BUFFER for it on the lane */
	bool pull;   /* the requester reads it by RDMA */
	/* status: 0: sent; -ENOTCONN: there is no such lane; -errno */
	void (*done)(struct pool_mover_send *s);
	int status;

	struct pool_mover *mover;
	struct pool_mail mail;
};
void pool_mover_send(struct pool_mover *m, struct pool_mover_send *s);

#endif
