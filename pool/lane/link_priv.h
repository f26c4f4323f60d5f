/*
 * The inside of links. Both sides: link.c (queue pairs, messages), link_ports.c
 * (ports, timers), link_parts.c (registering a range in parts). Dialled lanes:
 * link_ask.c (offers), link_range.c (ranges). Adopted lanes: link_answer.c
 * (answers to offers), link_send.c and link_sends.c (ranges and BUFFERs),
 * link_write.c (ranges this side writes), link_read.c (ranges the peer reads).
 *
 * Thread: the mover's.
 */
#ifndef POOL_LANE_LINK_PRIV_H
#define POOL_LANE_LINK_PRIV_H

#include "pool/base/busy.h"
#include "pool/conn/fault_rules.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/lane/link.h"

#define LINK_CQ_PAIRS 64u /* queue pairs that share a completion queue */

struct link_ports {
	struct pool_mover *mover;
	struct verbs *verbs;	   /* borrows */
	struct verbs_cache *cache; /* borrows */
	struct verbs_cq *cqs[VERBS_PORTS_MAX]; /* owns; by port; NULL: unused */
	struct verbs_cm *cm; /* owns; NULL: unused so far */
	unsigned int nlinks;
	bool stopping;
	struct pool_busy busy; /* busy-polling; open if it is enabled */
	uv_timer_t tick; /* runs while a link_tick is armed */
	struct pool_list ticked; /* struct link_tick: armed */
};

/* Converts a to its wire form; at->gid borrows from a. */
void link_address_fill(struct verbs_address *a, Kvpool__LinkAddress *at);

/* Arms k: k->due(k) is called in ms, within LINK_TICK_MS. Re-arms an armed one.
 */
void link_tick_set(struct link_ports *ports, struct link_tick *k,
		   unsigned int ms);
/* The completion queue of a port, opened if necessary. 0 or -errno. */
int link_port_cq(struct link_ports *ports, struct verbs_port *port,
		 struct verbs_cq **ret_cq);
/* If the mover stops and no link is left: closes the handles. */
void link_ports_tidy(struct link_ports *ports);

/* The injected fault for the next piece to or from the peer of c. The caller
 * delays it (POOL_FAULT_DELAY) or corrupts it (POOL_FAULT_CORRUPT);
 * POOL_FAULT_RESET has been carried out when this returns. */
enum pool_fault_kind link_fault(struct link *l, const struct pool_conn *c,
				uint32_t *ret_delay_ms);

/* ---- link_parts.c: ranges, registered part by part ---- */

struct link_range {
	int fd;	   /* borrows; < 0: mem is used */
	void *mem; /* borrows */
	uint64_t offset, length; /* bytes; offset: in the file */
};

/* This side's memory of a range: registered from its start up to `upto`. */
struct link_map {
	struct pool_list link; /* l->mapped */
	struct link *l;
	/* owns; contiguous */
	struct verbs_region parts[LINK_PARTS_MAX];
	unsigned int nparts;
	uint64_t upto;
	/* this many parts, from the first, are complete and deregistered */
	unsigned int nderegistered;
	uint64_t deregistered_upto; /* where the last of them ends */
	/* Called when nothing is registered any more; may free the map. */
	void (*ended)(struct link_map *map);
};

/*
 * The length of the part that starts at byte `at` of a range of `length` bytes.
 * The first part has LINK_PART_FIRST, each other is as long as all before it.
 * In a pushed range, which is checksummed part by part, no part is longer than
 * LINK_PART_MOST or an eighth of the range, whichever is more. For a peer that
 * does not know parts the whole range is one part.
 */
uint64_t link_part(const struct link *l, uint64_t at, uint64_t length);
/* Registers the next `part` bytes of r. 0, or -errno, with nothing changed. */
int link_map_add(struct link_map *map, const struct link_range *r,
		 uint64_t part, int access);
/* The address of the range's first byte. At least one part is registered. */
uint8_t *link_map_base(const struct link_map *map);
/* The local key for byte `at` < upto, and where that part ends. */
uint32_t link_map_at(const struct link_map *map, uint64_t at,
		     uint64_t *ret_upto);
/* The BUFFER for the part that starts at `at`. */
struct link_buffer link_map_buffer(const struct link_map *map, uint64_t at,
				   uint64_t req);
/*
 * The peer reports that it has written the range up to byte `at` <= upto.
 * Deregisters the parts that are complete, so that the peer cannot change them
 * after they are checksummed. Returns where the last of these parts ends.
 */
uint64_t link_map_deregister(struct link_map *map, uint64_t at);
/* Deregisters and unmaps all parts; calls map->ended(map). */
void link_map_end(struct link_map *map);

/* The peer's memory of a range, from the BUFFERs received so far. */
struct link_remote {
	struct {
		uint64_t addr, upto;
		uint32_t rkey;
	} parts[LINK_PARTS_MAX];
	unsigned int nparts;
	uint64_t upto;
};

/* Appends a part. length: of the whole range. false: b is not the next part, or
 * there are too many. */
bool link_remote_add(struct link_remote *r, const struct link_buffer *b,
		     uint64_t length);
/* The address of byte `at` < upto, the part's key, and where the part ends. */
uint64_t link_remote_at(const struct link_remote *r, uint64_t at,
			uint32_t *ret_rkey, uint64_t *ret_upto);

/* One kind of link of a dialled lane; exists until the lane is down. */
struct lane_link {
	struct pool_lane *lane;
	enum link_kind kind;
	struct link *link; /* NULL: none for now */
	uint32_t attempt;  /* number of the last offer */
	unsigned int failures; /* links in a row that moved no bytes */
	bool settled;	       /* the first attempt succeeded or failed */
	bool accepted;	       /* the peer accepted the current offer */
	/* for: the answer to the offer, the next offer, the check of the lane's
	 * own port, or the switch to it */
	struct link_tick tick;
	unsigned int drain_ticks; /* left before that switch */
};
/* Closes the link and sends LINK down: the lane falls back to TCP, and offers
 * the next link later. */
void lane_link_give_up(struct lane_link *k, const char *why);
/* Offers a pull link, if the lane has none, for the next range to be pulled. */
void lane_link_want_pull(struct pool_lane *lane);

/* ---- link_range.c: ranges that a dialled lane requested ---- */

/* The holder reports progress of a pushed range. */
void lane_link_note(struct lane_link *k, const struct link_note *note);
/* A BUFFER that names where a range may be read. false: invalid. */
bool lane_link_pull(struct pool_lane *lane, const struct link_buffer *b);

/* ---- adopted lanes ---- */

/* One kind of link of an adopted lane. */
struct adopted_half {
	struct adopted_link *k;
	enum link_kind kind;
	struct link *link; /* NULL: none for now */
	uint32_t attempt; /* number of the peer's last offer */
	unsigned int failures; /* links in a row that moved no bytes */
	bool up;
};

/* Both kinds, and the ranges to send. Freed when the lane is down and its last
 * send has ended. */
struct adopted_link {
	struct link_lane *lane; /* NULL: down */
	struct adopted_half halves[LINK_KINDS];
	struct pool_list early;	  /* struct link_early */
	unsigned int early_count;
	struct pool_list waiting; /* struct link_send: no BUFFER received yet */
	struct pool_list sending; /* struct link_send */
};
/* a->link, allocated at the first call. NULL: no RDMA here, or ENOMEM. */
struct adopted_link *adopted_link_of(struct link_lane *a);

/* A piece of a pushed range: a WRITE and the note that reports it. */
struct link_piece {
	struct link_send *ls;
	struct verbs_work write, note;
	struct link_note text;
};

/* A range that an adopted lane sends. */
struct link_send {
	struct pool_list link; /* waiting or sending */
	struct adopted_link *k;
	struct pool_mover_send *s;
	struct link_tick tick; /* waits for a BUFFER, or an injected delay */
	struct verbs_port *port; /* that sends it; borrows */
	/* pulled */
	struct link_map map;
	bool mapped;
	/* pushed */
	struct verbs_cached *cached; /* the object's registration */
	struct link_remote to;
	bool cancelled; /* by the requester */
	uint64_t next; /* bytes posted so far */
	int status;
	uint32_t attempt; /* number of the link it started on */
	bool delayed; /* injected fault: the next piece waits */
	bool corrupt; /* injected fault: the next piece has wrong bytes */
	struct link_piece pieces[LINK_PIECES];
	unsigned int free; /* bit mask of unused pieces */
	unsigned int posted; /* pieces in flight */
};

/* ---- link_sends.c: how a send ends ---- */

/* Falls back to TCP, if the lane is up; else the send fails. Frees ls. */
void link_send_by_tcp(struct link_send *ls);
/* Ends the send with status, 0 or -errno. Frees ls. */
void link_send_finish(struct link_send *ls, int status);
/* Counts a range that was sent by RDMA. */
void link_send_count(struct link_send *ls, enum link_kind kind);
/* Confirms a cancelled range to the requester: nothing is in flight. If the
 * note cannot be sent, the requester goes on after LINK_DRAIN_MS. */
void link_ack_cancel(struct adopted_link *k, uint64_t req);

/* ---- link_write.c: pushed ranges; each call may free ls ---- */

/* Starts writing to `to`; falls back to TCP if that is not possible. */
void link_write_begin(struct link_send *ls, const struct link_remote *to);
/* A further BUFFER for a range that is being written. false: invalid. */
bool link_write_more(struct link_send *ls, const struct link_buffer *b);
/* Posts what can be posted. Ends the send if ls->status or ls->cancelled is set
 * and nothing is in flight. */
void link_write_resume(struct link_send *ls);

/* ---- link_read.c: pulled ranges; each call may free ls ---- */

/* Registers the range and sends its BUFFERs. */
void link_read_offer(struct link_send *ls);
/* The requester has answered. done: it has read the range, or cancelled it.
 * Else it could not read it, and the range falls back to TCP. */
void link_read_finish(struct link_send *ls, bool done);

/* ---- link_send.c and link_sends.c, for link_answer.c ---- */

/* Handles a BUFFER. false: invalid. */
bool adopted_link_buffer(struct adopted_link *k, const struct link_buffer *b);
/* The lane is down: ends the sends that have not started. Each of the others
 * ends when nothing of it is in flight any more. */
void adopted_link_abort(struct adopted_link *k);
/* Frees k if its lane is down and no send is left. */
void adopted_link_tidy(struct adopted_link *k);

/* ---- link_sends.c ---- */

/* BUFFERs of one range that arrived before its GET did (the GET comes over
 * another connection). */
struct link_early {
	struct pool_list link;
	uint64_t req;
	struct link_remote to;
	bool by_tcp; /* a BUFFER asked for TCP */
};

struct link_send *link_send_find(struct pool_list *list, uint64_t req);
struct link_early *link_early_find(struct adopted_link *k, uint64_t req);
void link_early_free(struct adopted_link *k, struct link_early *e);
/* false: invalid, or ENOMEM. */
bool link_early_add(struct adopted_link *k, const struct link_buffer *b);

#endif
