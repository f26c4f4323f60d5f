/*
 * A mover: a thread with a loop of its own that owns bulk connections ("lanes")
 * and moves ranges over them, so that the node's loop never copies or sums
 * large ones. This is the TCP half of what a transport does for peer.c: "bytes
 * of this file to that lane" and "the answer to this request lands here". Where
 * both sides have RDMA, a lane has a link (pool/lane/link.h) by which its
 * ranges come and go; everything said here holds for those as well.
 *
 * Two kinds of lanes: dialled (we ask for ranges; bytes come in) and adopted (a
 * peer dialled us and asks; bytes go out). All bytes of a dialled lane that
 * answer a request are expected first (pool_mover_expect, before the request is
 * sent); others are thrown away.
 *
 * Thread: the functions are called on the node's loop; callbacks of the structs
 * below come on it too, through `home`. Work is passed in order, so a lane may
 * be used as soon as it was adopted.
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
 * A lane on which nothing has come since a range was asked for, so long ago and
 * given up now, is broken off: another is dialled for the next. (TCP itself
 * would go on hoping for a quarter of an hour.)
 */
#define POOL_LANE_SILENT_MS 500

struct pool_mover;

/* What movers count; the owner's storage, outlives them. */
struct pool_mover_counters {
	struct pool_counter bytes_in, bytes_out;
	struct pool_counter stray_bytes; /* came for a request that is over */
	struct pool_counter lanes_refused;
	struct pool_counter bad_messages; /* on any connection */
	struct pool_counter lanes_silent; /* broken off */
	/* Links: pool/lane/link.h. Bytes are counted above as well. */
	struct pool_counter rdma_in, rdma_out;
	struct pool_counter rdma_pulled; /* of rdma_in */
	struct pool_counter rdma_again; /* ranges sent over TCP after all */
	struct pool_counter links_up, links_broken, map_failures;
	/* Of ranges that came by RDMA: registering where they go; moving;
	 * summing, beside that; and what of summing was left when all was
	 * there. */
	struct pool_hist rdma_register, rdma_move, rdma_sum, rdma_tail;
};

struct verbs;
struct verbs_cache;

struct pool_mover_opts {
	struct pool_mailbox *home; /* of the node's loop */
	uint8_t id[POOL_ID_SIZE];
	struct pool_mover_counters *counters;
	struct pool_trust *trust; /* borrows; NULL: everybody */
	/* Borrow; NULL: over TCP only. Both or none. */
	struct verbs *verbs;
	struct verbs_cache *cache;
};

/* 0 or -errno. */
int pool_mover_open(const struct pool_mover_opts *opts,
		    struct pool_mover **ret_mover);
/*
 * Closes all lanes and joins the thread; every expectation and every send is
 * over then, but their callbacks (and on_down of lanes) still wait in `home`:
 * drain it before pool_mover_free.
 */
void pool_mover_stop(struct pool_mover *m);
void pool_mover_free(struct pool_mover *m);

/* ---- asking ---- */

/* A dialled lane; allocated by pool_lane_dial. */
struct pool_lane {
	struct pool_mover *mover;
	uint32_t number;
	uint8_t peer_id[POOL_ID_SIZE]; /* that the other side must have */
	void *arg;
	/* Ready for use; with a link, if there is to be one. */
	void (*on_up)(struct pool_lane *lane);
	/* Refused or lost; what was expected on it ends (some of it after this
	 * call). The lane is gone after it. */
	void (*on_down)(struct pool_lane *lane, int err);

	/* the mover's */
	struct pool_hostport to;
	struct pool_conn *conn; /* NULL: down */
	struct pool_list expected; /* struct pool_expect */
	struct pool_expect *cur;   /* whose bytes are coming */
	bool up;
	/* by enum link_kind, now; any thread may look */
	_Atomic bool linked[2];
	_Atomic uint64_t heard_ms; /* when something last came; pool_now_ms */
	struct lane_link *links[2]; /* the links'; NULL: none */
	int err;
	struct pool_list link; /* in the mover's lanes */
	struct pool_mail dial_mail, up_mail, down_mail, free_mail;
};

/* The fields of the first group are copied from `like`. NULL on ENOMEM. */
struct pool_lane *pool_lane_dial(const struct pool_lane *like,
				 const struct pool_hostport *to);

/* One range that was asked for; the caller's storage until done. */
struct pool_expect {
	struct pool_lane *lane; /* may be gone before the expectation is done */
	uint64_t req;
	/*
	 * As the GET says. buffer: a BUFFER follows (the lane was linked): the
	 * peer is told where the range may be written, or that it may not.
	 * pull: the range is read from where the peer says. want_pull: it would
	 * be.
	 */
	bool buffer, pull, want_pull;
	/* fd, mem, offset, length set by the caller; status and sum are the
	 * result. Its `done` is the mover's. */
	struct pool_landing landing;
	/* Once: the range is here, or the lane broke, or it was cancelled; no
	 * byte lands any more. */
	void (*done)(struct pool_expect *x);

	struct pool_mover *mover;   /* the lane's; valid until done */
	uint32_t number;	    /* the lane's; same */
	struct pool_hash_node node; /* in the mover's table */
	struct pool_list link;	    /* in lane->expected */
	struct pool_mail mail;	    /* there, and back */
	int fd; /* of the landing, while it is in mapped memory instead */
	void *mem;
	struct expect_map *map; /* the links'; NULL: the peer cannot write */
	/* Bytes that the peer says it has written; any thread may look. */
	_Atomic uint64_t told;
	int leaving;		/* given up, with that */
	uint64_t begun_ms;
};

/* 0 or -ENOMEM (then done never runs). */
int pool_mover_expect(struct pool_expect *x);
/*
 * Ends the expectation of req soon (-ECANCELED), if it is not over; and its
 * lane with it, if that is silent. The mail is allocated by
 * pool_mover_cancel_new, so that this cannot fail.
 */
struct pool_mover_cancel;
struct pool_mover_cancel *pool_mover_cancel_new(void);
void pool_mover_cancel(struct pool_mover *m, struct pool_mover_cancel *mail,
		       uint64_t req);

/* ---- answering ---- */

/*
 * Take over the socket of a peer's lane, whose HELLO has been read. The peer
 * is told that it may use it.
 */
int pool_mover_adopt(struct pool_mover *m, int fd,
		     const uint8_t peer_id[POOL_ID_SIZE], uint32_t number);

/* One range to send; the caller's storage until done. */
struct pool_mover_send {
	uint8_t peer_id[POOL_ID_SIZE];
	uint32_t lane;
	int fd; /* borrows */
	uint64_t offset, length, req;
	bool buffer; /* a BUFFER for it comes on the lane */
	bool pull;   /* it is to be read by the peer */
	/* status: 0 sent; -ENOTCONN there is no such lane; -errno */
	void (*done)(struct pool_mover_send *s);
	int status;

	struct pool_mover *mover;
	struct pool_mail mail;
};
void pool_mover_send(struct pool_mover *m, struct pool_mover_send *s);

#endif
