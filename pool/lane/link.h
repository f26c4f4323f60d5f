/*
 * Links: the RDMA half of lanes. A lane is a TCP connection between two movers;
 * where both sides have a usable port it gets a queue pair beside it, its
 * "link", and ranges asked for on the lane come over that. Whatever happens to
 * a link, the lane goes on without it: what was under way is sent again over
 * TCP, and a link is tried again, over the next port.
 *
 *   dialled side (asks)                        adopted side (holds)
 *     lane up, HELLO both ways
 *     qp of its own PD  --- LINK offer -->       qp that nobody may touch
 *     connected         <-- LINK accept --       connected
 *     linked            --- LINK up ----->       linked
 *   one range:
 *     GET (control connection; .buffer) -->      opens the object, its mover
 *     region: exactly                            registers it (cached)
 *     the range         --- BUFFER ------>       WRITE 1 MiB, note, WRITE, ...
 *     closes what a     <-- note ---------
 *     note says is there
 *     and sums it
 *   (Where the device needs librdmacm, the accept says where to call instead,
 *   and both are connected by that before "up".)
 *   given up: BUFFER, gone; the region is closed when a note says that nothing is
 *   under way any more, or after LINK_LEAVE_MS, which breaks the link.
 *   one range that is to be a further copy of an object (the asking store pulls
 *   it, at its own pace, and lets nobody write into its memory):
 *     GET (.pull) ---------------------->        region: exactly the range
 *     region, its own   <-- BUFFER ------
 *     READ 1 MiB, sum, READ, ...
 *     BUFFER, gone ---------------------->       closes the region
 *                                              (or after LINK_READ_MS)
 *   Registering makes pages and pins them, which takes its time: a region is made
 *   in parts, and told of in as many BUFFERs, so that the first bytes move while
 *   what follows is registered. What is written is summed part by part, each when
 *   all of it is there and the peer cannot reach it any more: what was verified
 *   stays as it is.
 *   broken, or nothing that was posted ended for LINK_STILL_TICKS, either side:
 *   LINK down; the other closes its queue pair.
 *
 * A lane's own port is that of its number; the next one is taken when that is
 * down or its links broke of late, and its own again when it may work again.
 * Which one works only bytes can tell: connecting (but by librdmacm) sends
 * none.
 *
 * Ranges that are written and ranges that are pulled have links of their own
 * (enum link_kind): only the side whose memory a peer may touch has a
 * protection domain for it, with nothing in it but what is under way on that
 * lane. What a peer can do: write into the ranges that it was asked for while
 * it was asked for them, which are verified afterwards, and read the ranges it
 * has asked for. What is registered to be sent is in none of these domains.
 *
 * Thread: the mover's, but link_ports_open and _free.
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

#define LINK_OFFER_MS 2000u   /* for an answer to an offer */
#define LINK_RETRY_MS 1000u   /* before the next offer; doubled each time, to */
#define LINK_RETRY_MAX_MS 30000u
#define LINK_LEAVE_MS 250u    /* a range that was given up is let go */
#define LINK_BUFFER_MS 2000u  /* a GET waits for its BUFFER */
#define LINK_READ_MS 10000u   /* a range may be read, and 1 s for each MiB */
#define LINK_TICK_MS 50u
/* Work that does not move for so many ticks: sooner than a device gives up
 * (VERBS_TIMEOUT), as a reader waits that has a deadline. */
#define LINK_STILL_TICKS 6u
#define LINK_HOME_MS 10000u /* a lane looks whether its own port works again, */
#define LINK_MOVE_TICKS 20u /* and waits so long for what is under way */
#define LINK_SHY_MS 5000u /* a port that failed is the last choice; doubled */
#define LINK_BUFFERS_MAX 512u /* of one lane, that came before their GET */
#define LINK_PIECES 4u	      /* of a range, under way at once */
#define LINK_PART_FIRST (1ull << 20) /* bytes; see link_part */
#define LINK_PART_MOST (1ull << 20)  /* or an eighth of the range */
#define LINK_PARTS_MAX 24u	     /* of a range */

/* Told by the holder after what was written before; little endian. */
struct link_note {
	uint64_t req;
	uint64_t upto;	/* bytes of the range that are there */
	int32_t status; /* -errno: it ends here, and nothing is under way */
	uint32_t zero;
};

enum link_kind {
	LINK_PUSH, /* who holds writes */
	LINK_PULL, /* who asks reads */
	LINK_KINDS,
};

/* ---- of a mover ---- */

struct link_ports;

/* verbs, cache: borrowed. 0 or -ENOMEM. */
int link_ports_open(struct pool_mover *m, struct verbs *verbs,
		    struct verbs_cache *cache, struct link_ports **ret_ports);
/* The mover stops: when the last link has ended nothing of it is left on the
 * loop. */
void link_ports_stop(struct link_ports *ports);
void link_ports_free(struct link_ports *ports);

struct link_tick {
	struct pool_list link; /* self-linked: not set */
	uint64_t due_ms;
	void (*due)(struct link_tick *k);
};

/* ---- a queue pair beside a lane ---- */

struct link_user {
	/* By librdmacm: work may be posted. */
	void (*on_connected)(void *user);
	void (*on_note)(void *user, const struct link_note *note);
	/* It ends, by itself: user is not called any more. */
	void (*on_broken)(void *user, int err);
};

struct link {
	struct link_ports *ports;
	struct verbs_port *port;
	struct verbs_qp *qp; /* NULL: librdmacm is not so far */
	struct ibv_pd *pd; /* owns, if it is exposed; else the port's */
	bool exposed; /* the peer may touch what is registered in pd */
	enum link_kind kind;
	bool by_cm;
	bool parts; /* the peer understands BUFFERs of parts */
	struct verbs_cm_conn conn; /* by_cm */
	const struct link_user *ops;
	void *user;		 /* NULL: ending */
	struct pool_list mapped; /* struct link_map: regions in pd */
	struct link_tick watch;	 /* set: work is under way */
	uint64_t ended;		 /* of it, when last looked */
	unsigned int still;	 /* looks since it was less */
};

/* Is a link by that port to be made by librdmacm? */
bool link_by_cm(const struct verbs_port *port);
/* A link by that port. by_cm: it has a queue pair once it was called
 * (link_await) or calls (link_call). */
int link_open(struct link_ports *ports, struct verbs_port *port,
	      enum link_kind kind, bool dialled, bool by_cm,
	      const struct link_user *ops, void *user, struct link **ret_link);
/* Where and how a link by librdmacm is called. */
struct link_call {
	char host[CM_HOST_MAX];
	uint16_t port;
	uint64_t token;
};
int link_await(struct link *l, struct link_call *ret_call);
int link_make_call(struct link *l, const struct link_call *call);
/* Work for its queue pair; on_broken if nothing of what is posted ends for
 * LINK_STILL_TICKS. 0 or -ENOTCONN. */
int link_post(struct link *l, struct verbs_work *w);
/* Ends it, and frees it later; what is still mapped is then unmapped. */
void link_close(struct link *l);
/* The port for the n-th try: of those that are active, one that has not failed
 * of late if there is one; NULL: there is none. like: of the peer's kind. */
struct verbs_port *link_port(struct link_ports *ports, unsigned int n,
			     const enum verbs_link *like);

/* ---- what is said on the lane about it ---- */

enum link_word { LINK_OFFER = 1, LINK_ACCEPT, LINK_UP, LINK_DOWN };

struct link_said {
	enum link_word word;
	enum link_kind kind;
	uint32_t attempt;
	bool by_cm;		      /* offer, accept */
	bool parts;		      /* same: understands BUFFERs of parts */
	struct verbs_address address; /* same; by_cm: its link only */
	struct link_call call;	      /* accept by_cm */
	char text[96];		      /* down: why, for people */
};

/* An offer or accept of l; call: of one that is by_cm, accepted. 0 or as
 * pool_conn_send. */
int link_say_address(struct pool_conn *c, enum link_word word,
		     uint32_t attempt, const struct link *l,
		     const struct link_call *call);
/* Up, or down; text: why, or NULL. */
int link_say(struct pool_conn *c, enum link_word word, enum link_kind kind,
	     uint32_t attempt, const char *text);
/* false: it makes no sense. */
bool link_said_read(const uint8_t *payload, size_t len, struct link_said *ret);
/* The same, and logged. */
bool link_heard(const struct pool_conn *c, const struct pool_frame *f,
		const uint8_t *payload, struct link_said *ret_said);

/*
 * Where the part of a range that begins at byte `at` of it may be written or
 * read; length 0: nowhere, so over TCP; gone: nowhere (any more), and over
 * nothing.
 */
struct link_buffer {
	uint64_t req, at, addr, length;
	uint32_t rkey;
	bool gone;
};
int link_say_buffer(struct pool_conn *c, const struct link_buffer *b);
/* But for req, which is the frame's. */
bool link_buffer_read(const uint8_t *payload, size_t len,
		      struct link_buffer *ret);
bool link_heard_buffer(const struct pool_conn *c, const struct pool_frame *f,
		       const uint8_t *payload, struct link_buffer *ret);

/* ---- the dialled side (pool/lane/link_ask.c) ---- */

/* The lane has greeted: link it. lane_settled(lane) when that is decided, one
 * way or the other, once; perhaps at once. */
void lane_link_start(struct pool_lane *lane);
/* A LINK or BUFFER on a dialled lane. false: nonsense. */
bool lane_link_frame(struct pool_lane *lane, const struct pool_frame *f,
		     const uint8_t *payload);
/* The lane is down; its expectations have ended. */
void lane_link_end(struct pool_lane *lane);

/*
 * x is on its lane: if the peer is to write its range (x->buffer), registers it
 * and tells the peer, or tells it that it cannot; if it is to be pulled, sees
 * to it that the next one can.
 */
void expect_map(struct pool_expect *x);
/* Bytes of x come over TCP after all: it starts anew. No-op if not mapped. */
void expect_unmap(struct pool_expect *x);
/* x is over, or has to be: no byte lands from here on. No-op if not mapped. */
void expect_map_end(struct pool_expect *x);
/* x is given up. true: expect_left(x) follows when nothing is under way. */
bool expect_leave(struct pool_expect *x);

/* ---- the adopted side (pool/lane/link_answer.c) ---- */

struct adopted_link;

/* What of an adopted lane links have to know. */
struct link_lane {
	struct link_ports *ports; /* NULL: no links here */
	struct pool_conn *conn;	  /* NULL: down */
	uint32_t number;
	struct adopted_link *link; /* the links' */
};

/* A LINK or BUFFER. false: nonsense. */
bool adopted_link_frame(struct link_lane *a, const struct pool_frame *f,
			const uint8_t *payload);
/* The lane is down: a may be freed. */
void adopted_link_end(struct link_lane *a);
/* s waits for its BUFFER and is written, or offered to be pulled; or else it
 * goes over TCP (mover_send_by_tcp). */
void adopted_link_send(struct link_lane *a, struct pool_mover_send *s);

#endif
