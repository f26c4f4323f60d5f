/*
 * Links: the RDMA half of lanes. A lane is a TCP connection between two movers.
 * Where both nodes have a usable RDMA port, the lane also has a queue pair, its
 * "link", that carries the ranges requested on the lane. A link that fails
 * never ends its lane: ranges in flight are resent over TCP, and after
 * LINK_RETRY_MS the requester offers a new link, over the next port.
 *
 *   dialled side (requester)                   adopted side (holder)
 *     lane up, HELLO both ways; then, for a push link:
 *     opens a queue pair   --- LINK offer -->    opens a queue pair in the PD
 *     in a PD of its own                         that no peer can access
 *     connected            <-- LINK accept --    connected
 *     linked               --- LINK up ----->    linked
 *   (If the device needs librdmacm, the accept has an address to connect to,
 *   and librdmacm connects both queue pairs before "up".)
 *
 * Push: the holder writes the range into the requester's memory.
 *     GET (.buffer; on the
 *     control connection)  --------------->      opens the object; its mover
 *     registers exactly                          registers it (cached)
 *     the range            --- BUFFER ---->      WRITE 1 MiB, note, WRITE, ...
 *     deregisters the      <-- note -------
 *     parts written, and
 *     checksums them
 *   To cancel, the requester sends a BUFFER with .gone. It deregisters the
 *   range when a note confirms that nothing is in flight, or after
 *   LINK_DRAIN_MS, which breaks the link if the holder still writes.
 *
 * Pull: the requester reads. Used for replication: a store that makes a further
 * copy reads at its own pace, and no peer can write to its memory.
 *     GET (.pull)          --------------->      registers exactly the range
 *     registers the range  <-- BUFFER -----
 *     READ 1 MiB, checksum, READ, ...
 *     BUFFER (.gone)       --------------->      deregisters it (without this
 *                                                message, after LINK_READ_MS)
 *
 * Registering allocates and pins pages, which is slow. Hence a range is
 * registered in parts, each announced by its own BUFFER, and the first bytes
 * move while later parts are being registered. A pushed part is checksummed
 * after it is complete and deregistered, so that the peer cannot change bytes
 * that were verified.
 *
 * Either side sends LINK down when the link breaks, or when posted work made no
 * progress for LINK_STALL_TICKS; the other side then closes its queue pair.
 *
 * Each lane has an "own port", which it prefers: that of lane N is RDMA port N,
 * modulo the number of ports. While that port is down, or its links failed
 * recently, the lane uses the next port, and returns to its own when that may
 * work again. Only a transfer proves that a port works: without librdmacm,
 * connecting a queue pair sends no packets.
 *
 * Pushed and pulled ranges use separate links (enum link_kind). The side whose
 * memory the peer accesses has a protection domain of its own for each link,
 * which contains nothing but the ranges in flight on that lane. A peer can
 * therefore write only into ranges requested from it and not yet complete
 * (which are then verified), and read only ranges that it requested. The
 * holder's registrations for sending are in none of these domains.
 *
 * Thread: the mover's, except link_ports_open and link_ports_free.
 */
#ifndef POOL_LANE_LINK_H
#define POOL_LANE_LINK_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/conn/conn.h"
#include "pool/lane/mover.h"
#include "pool/verbs/cm.h"
#include "pool/verbs/queue.h"
#include "pool/verbs/region.h"

#define LINK_OFFER_MS 2000u   /* an offer waits for its answer */
#define LINK_RETRY_MS 1000u   /* before the next offer; doubled each time ... */
#define LINK_RETRY_MAX_MS 30000u /* ... up to this */
#define LINK_DRAIN_MS 250u    /* a cancelled range waits for its last work */
#define LINK_BUFFER_MS 2000u  /* a GET waits for its BUFFER */
#define LINK_READ_MS 10000u   /* a range stays readable; plus 1 s per MiB */
#define LINK_TICK_MS 50u      /* resolution of struct link_tick */
/* Posted work that makes no progress for this many ticks breaks the link,
 * before the device gives up (VERBS_TIMEOUT, VERBS_RETRIES): readers that wait
 * have deadlines. */
#define LINK_STALL_TICKS 6u
/* How often a lane checks whether its own port works again, and how many ticks
 * it then waits for work in flight before it switches. */
#define LINK_OWN_PORT_MS 10000u
#define LINK_SWITCH_TICKS 20u
/* A port that failed is the last choice for this time; doubled each time. */
#define LINK_PORT_BACKOFF_MS 5000u
#define LINK_BUFFERS_MAX 512u /* of one lane, received before their GET */
#define LINK_PIECES 4u	      /* of a range, in flight at once */
#define LINK_PART_FIRST (1ull << 20) /* bytes; see link_part */
#define LINK_PART_MOST (1ull << 20)  /* or 1/8 of the range, if more */
#define LINK_PARTS_MAX 24u	     /* of a range */

/* Sent by the holder after the WRITEs that it reports; little endian. */
struct link_note {
	uint64_t req;
	uint64_t upto;	/* bytes written, from the range's start */
	int32_t status; /* -errno: the holder stopped; nothing is in flight */
	uint32_t zero; /* padding */
};

enum link_kind {
	LINK_PUSH, /* the holder writes */
	LINK_PULL, /* the requester reads */
	LINK_KINDS,
};

/* ---- one for each mover ---- */

struct link_ports;

/* Borrows verbs and cache. 0 or -ENOMEM. */
int link_ports_open(struct pool_mover *m, struct verbs *verbs,
		    struct verbs_cache *cache, struct link_ports **ret_ports);
/* The mover stops. Once the last link is freed, no handle is left on the loop.
 */
void link_ports_stop(struct link_ports *ports);
void link_ports_free(struct link_ports *ports);
/* Is there a port that links may use? ports NULL: false. */
bool link_ports_any(const struct link_ports *ports);

/* A one-shot timer. */
struct link_tick {
	struct pool_list link; /* self-linked: not armed */
	uint64_t due_ms;
	void (*due)(struct link_tick *k);
};

/* ---- a queue pair beside a lane ---- */

struct link_user {
	/* librdmacm has connected it: work may be posted. */
	void (*on_connected)(void *user);
	void (*on_note)(void *user, const struct link_note *note);
	/* The link broke; close it. No other callback follows. */
	void (*on_broken)(void *user, int err);
};

struct link {
	struct link_ports *ports;
	struct verbs_port *port;
	struct verbs_qp *qp; /* NULL: librdmacm has not made it yet */
	struct ibv_pd *pd; /* exposed: owns; else borrows the port's */
	bool exposed; /* the peer may access what is registered in pd */
	enum link_kind kind;
	bool by_cm; /* connected by librdmacm */
	bool parts; /* the peer understands BUFFERs of parts */
	struct verbs_cm_conn conn; /* by_cm */
	const struct link_user *ops;
	void *user;		 /* NULL: closing */
	struct pool_list mapped; /* struct link_map: regions in pd */
	struct link_tick watch;	 /* armed: work is in flight */
	uint64_t completed;	 /* work requests, at the last watch tick */
	unsigned int stalled_ticks; /* since that number changed */
};

/* Must links over that port be connected by librdmacm? */
bool link_by_cm(const struct verbs_port *port);
/* Opens a link over that port, not yet connected. dialled: this side offers. If
 * by_cm, librdmacm makes its queue pair later, when link_await (the accepting
 * side) or link_make_call (the offering side) has led to a connection. 0 or
 * -errno. */
int link_open(struct link_ports *ports, struct verbs_port *port,
	      enum link_kind kind, bool dialled, bool by_cm,
	      const struct link_user *ops, void *user, struct link **ret_link);
/* Where librdmacm of the offering side connects to, and the token that it sends
 * to identify the link. */
struct link_call {
	char host[CM_HOST_MAX];
	uint16_t port;
	uint64_t token;
};
/* Listens for that connection. 0 or -errno. */
int link_await(struct link *l, struct link_call *ret_call);
/* Starts connecting to `call`. 0 or -errno. */
int link_make_call(struct link *l, const struct link_call *call);
/* Posts w to the queue pair. If no posted work completes for LINK_STALL_TICKS,
 * on_broken is called. 0 or -ENOTCONN. */
int link_post(struct link *l, struct verbs_work *w);
/* Closes the queue pair; when it is closed, ends the maps that are left and
 * frees the link. */
void link_close(struct link *l);
/* The port for attempt n: attempts rotate over the active ports and prefer
 * those that did not fail recently. like: only ports of this network type;
 * NULL: of any. Returns NULL if there is none. */
struct verbs_port *link_port(struct link_ports *ports, unsigned int n,
			     const enum verbs_link *like);

/* ---- LINK and BUFFER messages on the lane ---- */

enum link_word { LINK_OFFER = 1, LINK_ACCEPT, LINK_UP, LINK_DOWN };

struct link_msg {
	enum link_word word;
	enum link_kind kind;
	uint32_t attempt;	      /* of the offer; all replies repeat it */
	bool by_cm;		      /* offer, accept */
	bool parts;		      /* same: understands BUFFERs of parts */
	struct verbs_address address; /* same; by_cm: only .link is valid */
	struct link_call call;	      /* accept by_cm */
	char text[96];		      /* down: the reason, for the log */
};

/* Sends an offer or accept of l. call: for an accept by_cm, else NULL. 0, or an
 * error of pool_conn_send. */
int link_msg_send_address(struct pool_conn *c, enum link_word word,
			  uint32_t attempt, const struct link *l,
			  const struct link_call *call);
/* Sends up or down. text: the reason, or NULL. */
int link_msg_send(struct pool_conn *c, enum link_word word, enum link_kind kind,
		  uint32_t attempt, const char *text);
/* Decodes a LINK. false: invalid. */
bool link_msg_read(const uint8_t *payload, size_t len, struct link_msg *ret);
/* The same, and logs an invalid one. */
bool link_msg_receive(const struct pool_conn *c, const struct pool_frame *f,
		      const uint8_t *payload, struct link_msg *ret_msg);

/*
 * The memory for the part of a range that starts at byte `at`, to be written or
 * read. length 0: none can be registered, send the rest over TCP. gone: the
 * requester has the range, or no longer wants it; send nothing.
 */
struct link_buffer {
	uint64_t req, at, addr, length;
	uint32_t rkey;
	bool gone;
};
int link_buffer_send(struct pool_conn *c, const struct link_buffer *b);
/* Decodes a BUFFER, all but `req`, which is in the frame header. false:
 * invalid. */
bool link_buffer_read(const uint8_t *payload, size_t len,
		      struct link_buffer *ret);
/* The same with `req`, and logs an invalid one. */
bool link_buffer_receive(const struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, struct link_buffer *ret);

/* ---- the dialled side (pool/lane/link_ask.c) ---- */

/* HELLO was exchanged: offers a push link, if possible. lane_settled(lane) is
 * called once, perhaps inside: the link is up, has failed, or is not possible.
 */
void lane_link_start(struct pool_lane *lane);
/* Handles a LINK or BUFFER on a dialled lane. false: invalid. */
bool lane_link_frame(struct pool_lane *lane, const struct pool_frame *f,
		     const uint8_t *payload);
/* The lane is down, and its expectations have ended: frees its links. */
void lane_link_end(struct pool_lane *lane);

/*
 * x has been added to its lane. If the holder is to write its range
 * (x->buffer), registers the range and sends its BUFFERs, or a BUFFER that asks
 * for TCP. If a pull was wanted and the lane has no pull link, offers one for
 * later ranges.
 */
void expect_map(struct pool_expect *x);
/* x falls back to TCP: deregisters its range and restarts its landing. No-op if
 * nothing is registered. */
void expect_unmap(struct pool_expect *x);
/* x has ended: deregisters its range, so that no byte lands after this. No-op
 * if nothing is registered. */
void expect_map_end(struct pool_expect *x);
/* x is cancelled. true: work is in flight; expect_drained(x) is called when
 * there is none. */
bool expect_drain(struct pool_expect *x);

/* ---- the adopted side (pool/lane/link_answer.c) ---- */

struct adopted_link;

/* The part of an adopted lane that the link code uses. */
struct link_lane {
	struct link_ports *ports; /* NULL: no links here */
	struct pool_conn *conn;	  /* NULL: down */
	uint32_t number;
	struct adopted_link *link; /* link_answer.c's; NULL: none yet */
};

/* Handles a LINK or BUFFER. false: invalid. */
bool adopted_link_frame(struct link_lane *a, const struct pool_frame *f,
			const uint8_t *payload);
/* The lane is down. The caller may free `a` after this. */
void adopted_link_end(struct link_lane *a);
/* Sends s by RDMA: writes it when its BUFFER arrives, or (s->pull) registers it
 * for the peer to read. Falls back to TCP (mover_send_by_tcp). */
void adopted_link_send(struct link_lane *a, struct pool_mover_send *s);

#endif
