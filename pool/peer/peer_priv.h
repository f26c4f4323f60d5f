/*
 * The inside of pool/peer/peer.h, lowest file first:
 *
 *   metrics.c  the metrics' names
 *   lend.c     which descriptors are safe to pass
 *   shared.c   HELLO, decoding, the timer
 *   fetch.c    how a fetch ends
 *   ask.c      the requester: connections that this node dialled
 *   answer.c   the holder: connections that peers dialled
 *   peer.c     opening and closing, the fetch calls, deadlines
 *
 * The states of a fetch, and the list it is on:
 *
 *   WAITING ------> LANE_WAIT ------> ASKED ------------------> ENDED -> cb
 *   peer->waiting   peer->lane_wait   chan->asked                 ^
 *      |                |               |                         |
 *      |                |               +-----> DRAINING ---------+
 *      |                |               |       (until its mover stops
 *      |                |               |       writing to the destination)
 *      +----------------+---------------+-------------------------+
 *
 * An ASKED fetch whose Unix connection fails returns to WAITING, for TCP.
 *
 * Thread: the node's loop.
 */
#ifndef POOL_PEER_PEER_PRIV_H
#define POOL_PEER_PEER_PRIV_H

#include "pool/base/hash.h"
#include "pool/base/list.h"
#include "pool/conn/conn.h"
#include "pool/conn/hello.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/lane/landing.h"
#include "pool/base/mailbox.h"
#include "pool/lane/mover.h"
#include "pool/peer/peer.h"
#include "pool/verbs/region.h"

#define PEERS_MAX 4096	     /* peers that this node requests from at once */
#define PEER_WAITING_MAX 4096 /* fetches waiting for one peer */
#define SESSIONS_MAX 4096    /* control connections that peers dialled */
#define SESSION_ANSWERS_MAX (2 * POOL_PEER_INFLIGHT_MAX)
#define ANSWERS_MAX 8192 /* of all sessions; each uses a descriptor */
/* Bytes queued in memory for a peer that does not read: enough for
 * SESSION_ANSWERS_MAX small answers. Large answers stay in their files until
 * they are sent. */
#define SESSION_UNREAD_MAX (8u << 20)
/* Beyond this, no further requests of the peer are read until it has read: more
 * than POOL_PEER_INFLIGHT_MAX small answers, which a peer requests at once. */
#define SESSION_UNREAD_PAUSE (3u << 20)
/* Bytes of requests, of all peers, handled in one turn of the loop: some 250 of
 * them. What mounts and the master send meanwhile waits for the turn's end. */
#define REQUESTS_TURN (16u << 10)
#define GREETING_MS 5000     /* a new connection must send HELLO */
#define UNIX_RETRY_MS 5000   /* after a Unix socket failed */
#define RENEW_MS 1000 /* between checks for connections that are due */
#define LANE_RETRY_MS 1000   /* after a lane failed, if others are up */
/* Each renewal alternates between two ranges of lane numbers: from 1, and from
 * here. The numbers between belong to lines (pool/client/line.h). */
#define RENEWED_LANES 192u
#define ORPHANS_MAX POOL_PEER_INFLIGHT_MAX
#define PATH_LEN_MAX 4096
#define SOURCES_MAX 256u /* objects registered for sending, idle ones too */
#define SOURCES_BYTES_MAX (4ull << 30)

struct peer_metrics {
	struct pool_mover_counters mover;
	struct verbs_cache_metrics cache;
	struct pool_counter fetched, answered, lent, borrowed, early;
	struct pool_counter fail_gone, fail_timeout, fail_conn, fail_bad,
		fail_local, fail_cancel;
	struct pool_counter lent_refused, sessions_refused, waiting_full;
	struct pool_counter lent_unsafe, other_users;
	struct pool_counter sessions_idle, sessions_silent, sessions_unread;
	struct pool_counter answers_refused, answers_denied, ids_refused;
	struct pool_gauge lent_now, borrowed_now, inflight, waiting;
};

/* A control connection that this node dials: TCP or Unix. */
struct chan {
	struct peer *peer;
	struct peer_conns *conns; /* contains this channel; NULL: Unix */
	struct pool_conn *conn; /* NULL: not dialled */
	bool is_unix, greeted;
	int err;		/* set: why this side closed it */
	struct pool_list asked; /* struct pool_fetch_priv, GET sent */
	struct pool_fetch_priv *landing; /* receiving bulk now (lane 0) */
	struct pool_list orphans; /* struct orphan */
	unsigned int norphans;
	uint64_t borrowed; /* descriptors not returned yet */
	uint64_t retry_ms; /* do not dial before */
};

enum lane_state { LANE_NONE, LANE_DIALING, LANE_UP, LANE_CLOSING };

struct peer_lane {
	enum lane_state state;
	struct pool_lane *lane; /* the mover's; NULL with LANE_NONE */
	uint64_t retry_ms; /* do not dial before */
};

/* The TCP connections to a peer. During a renewal there are two of these: the
 * old one finishes the requests that were sent on it. */
struct peer_conns {
	struct peer *peer;
	struct chan tcp;
	uint64_t due_ms; /* renewed from then on */
	uint64_t records; /* of TLS, that the peer was asked to send */
	unsigned int nlanes; /* lanes whose state is not LANE_NONE */
	uint32_t first; /* number of lanes[0]: 1 or RENEWED_LANES */
	struct peer_lane lanes[]; /* p->nmovers */
};

/* The index of the lane with this number in `lanes`, and of its mover in
 * p->movers. */
static inline unsigned int lane_index(uint32_t number)
{
	return number - (number < RENEWED_LANES ? 1 : RENEWED_LANES);
}

/* A node that this node requests ranges from. */
struct peer {
	struct pool_hash_node node;
	struct pool_peers *p;
	struct pool_peer_addr addr;
	struct chan local;
	struct peer_conns *conns; /* owns: for new requests */
	struct peer_conns *old; /* owns: being replaced; NULL: none */
	struct pool_list waiting, lane_wait; /* struct pool_fetch_priv */
	unsigned int nwaiting, inflight;
	unsigned int nfetches; /* fetches whose cb has not run */
};

enum peer_fetch_state {
	PEER_FETCH_WAITING,
	PEER_FETCH_LANE_WAIT,
	PEER_FETCH_ASKED,
	PEER_FETCH_DRAINING,
	PEER_FETCH_ENDED,
};

struct pool_fetch_priv {
	struct pool_fetch *f; /* borrows until cb */
	struct peer *peer;
	enum peer_fetch_state state;
	int status;
	bool admitted;		/* counted in peer->inflight */
	bool no_fd;		/* request bytes, not a descriptor */
	uint64_t req, deadline_ms;
	struct pool_hash_node node;	 /* p->by_req, while ASKED */
	struct pool_list link, due_link; /* due_link: p->due */
	struct chan *chan;		 /* while ASKED: that of the GET */
	/* large ranges: received by a mover */
	struct pool_expect expect;
	bool expecting;
	struct pool_mover_cancel *cancel; /* owns; NULL once used */
	/* small ranges: received on the control connection */
	struct pool_landing landing;
};

/* A cancelled GET over a Unix socket. If the holder still answers with a
 * descriptor, it must get a RETURN. */
struct orphan {
	struct pool_list link;
	uint64_t req, gen;
	size_t path_len;
	uint8_t path[];
};

struct pool_peers {
	struct pool_peers_opts opts;
	char *unix_path; /* owns */
	uv_loop_t *loop;
	struct pool_mailbox box;
	struct verbs_cache *cache;  /* owns; NULL without RDMA */
	struct pool_mover **movers; /* owns */
	uint64_t *mover_busy; /* owns; bytes of each mover's expected ranges */
	unsigned int nmovers;
	struct pool_listener *tcp_listener, *unix_listener;
	struct pool_share shakes, requests; /* of accepted connections */
	uv_timer_t timer;
	uv_timer_cb on_timer; /* peer.c */
	uint64_t answers_due_ms; /* next call of answer_expire; 0: none */
	uint64_t renew_ms; /* next check for connections that are due */
	bool closing;
	unsigned int refs; /* open handles, connections; at 0: freed */
	void (*closed)(void *arg);
	void *closed_arg;
	struct peer_metrics metrics;

	struct pool_hash peers;	  /* struct peer by id */
	struct pool_hash by_req;  /* struct pool_fetch_priv */
	struct pool_list due;	  /* by deadline, the earliest first */
	struct pool_list finished; /* ENDED, cb not yet called */
	uint64_t last_req;

	/* struct session; sessions: least recently used first; greeting:
	 * waiting for HELLO */
	struct pool_list sessions, greeting;
	unsigned int nsessions, nanswers;
	struct pool_list early; /* struct early, oldest first */
	unsigned int early_count;
};

/* ---- metrics.c ---- */

/* 0 or -ENOMEM. */
int peers_metrics(struct pool_peers *p);

/* ---- shared.c ---- */

void peers_free(struct pool_peers *p);
void peers_unref(struct pool_peers *p);
/* Sets the timer to the first deadline of p->due and p->answers_due_ms. */
void peers_timer_arm(struct pool_peers *p);
/* As pool_frame_unpack. */
void *peers_unpack(struct pool_peers *p, const struct pool_conn *c,
		   const struct pool_frame *f, const uint8_t *payload);
bool id_equal(const uint8_t a[POOL_ID_SIZE], const uint8_t b[POOL_ID_SIZE]);
uint32_t id_hash(const uint8_t id[POOL_ID_SIZE]);

/* ---- fetch.c ---- */

/* Calls the callbacks of ended fetches. The last call of every event handler.
 */
void peers_finish(struct pool_peers *p);
/* Ends x with status: at once, or when its mover has stopped writing.
 * peers_finish calls cb. No-op if x has ended. */
void fetch_end(struct pool_fetch_priv *x, int status);
/* Registers x's range with the mover of lane (pool_mover_expect). 0 or -ENOMEM.
 */
int fetch_expect(struct pool_fetch_priv *x, struct pool_lane *lane);

/* ---- lend.c ---- */

/* Is it safe to read an object of that size through fd? Five system calls. */
bool peers_fd_is_safe(int fd, uint64_t size);

/* ---- ask.c ---- */

struct peer *peer_find(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE]);
/* Existing or new; NULL on ENOMEM or beyond PEERS_MAX. */
struct peer *peer_get(struct pool_peers *p, const struct pool_peer_addr *addr);
/* Dials and sends GETs, as far as the limits allow. */
void peer_pump(struct peer *peer);
/* Closes the old connections if nothing is requested on them, and frees them
 * when they are closed. Frees peer if it has no connection, lane or fetch. */
void peer_tidy(struct peer *peer);
/* Remembers a cancelled GET that may still be answered with a descriptor. */
void chan_orphan(struct chan *ch, const struct pool_fetch_priv *x);
/* Renews the connections that are due. */
void peers_renew_due(struct pool_peers *p);
void peers_ask_close(struct pool_peers *p);

/* ---- answer.c ---- */

int answer_open(struct pool_peers *p);
void answer_listeners_close(struct pool_peers *p);
void answer_close(struct pool_peers *p);
/* Closes connections that sent no HELLO in time, or are idle, and fails GETs
 * that waited too long. Returns when to call it again; 0: no need. */
uint64_t answer_expire(struct pool_peers *p, uint64_t now_ms);

#endif
