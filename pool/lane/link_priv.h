/*
 * The inside of links: link.c, link_ports.c (both sides); of dialled lanes,
 * link_ask.c (offers) and link_range.c (ranges); of adopted ones, link_answer.c
 * (offers) and link_send.c (ranges: link_write.c, link_read.c). link_parts.c:
 * what of a range is open, on either side.
 *
 * Thread: the mover's.
 */
#ifndef POOL_LANE_LINK_PRIV_H
#define POOL_LANE_LINK_PRIV_H

#include "pool/base/busy.h"
#include "pool/conn/fault_rules.h"
#include "pool/conn/kvpool.pb-c.h"
#include "pool/lane/link.h"

#define LINK_CQ_PAIRS 64u /* queue pairs that a completion queue has room for */

struct link_ports {
	struct pool_mover *mover;
	struct verbs *verbs;	   /* borrows */
	struct verbs_cache *cache; /* borrows */
	struct verbs_cq *cqs[VERBS_PORTS_MAX]; /* owns; by port, when needed */
	struct verbs_cm *cm; /* owns; when needed */
	unsigned int nlinks;
	bool stopping;
	struct pool_busy busy; /* the loop's; open if there are ports */
	uv_timer_t tick; /* runs while something is ticked */
	struct pool_list ticked; /* struct link_tick */
};

/* at is what a is on the wire; its GID is a's. */
void link_address_fill(struct verbs_address *a, Kvpool__LinkAddress *at);

/* struct link_tick is due at a time, give or take LINK_TICK_MS. */
void link_tick_set(struct link_ports *ports, struct link_tick *k,
		   unsigned int ms);
/* The completion queue of a port. 0 or -errno. */
int link_port_cq(struct link_ports *ports, struct verbs_port *port,
		 struct verbs_cq **ret_cq);
/* A link has gone. */
void link_ports_tidy(struct link_ports *ports);

/* What is to be done to the next piece for the peer of c: it waits
 * (POOL_FAULT_DELAY), or is to be wrong (POOL_FAULT_CORRUPT); a reset has been
 * done. */
enum pool_fault_kind link_fault(struct link *l, const struct pool_conn *c,
				uint32_t *ret_delay_ms);

/* ---- link_parts.c: ranges, opened part by part ---- */

struct link_range {
	int fd;	   /* borrows; or, if < 0, */
	void *mem; /* borrows */
	uint64_t offset, length; /* bytes, of the file */
};

/* A range that is registered, from its first byte on, as far as `upto`. */
struct link_map {
	struct pool_list link; /* l->mapped */
	struct link *l;
	/* own; one behind the other */
	struct verbs_region parts[LINK_PARTS_MAX];
	unsigned int nparts;
	uint64_t upto;
	unsigned int nshut;  /* of the parts: out of reach again, */
	uint64_t shut_upto;  /* as far as that */
	/* It is not mapped any more; frees it. */
	void (*gone)(struct link_map *map);
};

/*
 * The length of the part of a range of `length` bytes that begins at byte `at`:
 * the first is short, the others are as long as all before them; of what is
 * written, and closed part by part, no more than LINK_PART_MOST or an eighth of
 * the range. To a peer that does not know of parts all is one.
 */
uint64_t link_part(const struct link *l, uint64_t at, uint64_t length);
/* Registers the next `part` bytes of r. 0, or -errno, with nothing changed. */
int link_map_add(struct link_map *map, const struct link_range *r,
		 uint64_t part, int access);
/* The range's first byte here; something of it is registered. */
uint8_t *link_map_base(const struct link_map *map);
/* The key of what is registered at byte `at` < upto, and where that ends. */
uint32_t link_map_at(const struct link_map *map, uint64_t at,
		     uint64_t *ret_upto);
/* The part that begins at `at`, for the peer. */
struct link_buffer link_map_buffer(const struct link_map *map, uint64_t at,
				   uint64_t req);
/*
 * The peer says that the range is there up to byte `at` <= upto: the parts that
 * are there as a whole can be touched by nobody else from here on, so what is
 * read of them stays. Up to where that is.
 */
uint64_t link_map_shut(struct link_map *map, uint64_t at);
/* Closes what is registered; map->gone(map). */
void link_map_end(struct link_map *map);

/* What the peer has told of where its side of a range is. */
struct link_reach {
	struct {
		uint64_t addr, upto;
		uint32_t rkey;
	} parts[LINK_PARTS_MAX];
	unsigned int nparts;
	uint64_t upto;
};

/* One part more of a range of `length` bytes. false: it is not the next one. */
bool link_reach_add(struct link_reach *r, const struct link_buffer *b,
		    uint64_t length);
/* Byte `at` < upto: its address and key, and where that part ends. */
uint64_t link_reach_at(const struct link_reach *r, uint64_t at,
		       uint32_t *ret_rkey, uint64_t *ret_upto);

/* The link of a lane of one kind, as long as the lane is up. */
struct lane_link {
	struct pool_lane *lane;
	enum link_kind kind;
	struct link *link; /* NULL: none for now */
	uint32_t attempt;  /* of the last offer */
	unsigned int vain; /* links since one moved something */
	bool settled, accepted;
	struct link_tick tick; /* for an answer, the next offer, or a move */
	unsigned int patience; /* ticks, for what is under way before a move */
};
/* It is of no use: its lane goes on over TCP, and it is tried again. */
void lane_link_give_up(struct lane_link *k, const char *why);
/* The next range that is to be pulled had better find a link. */
void lane_link_wish(struct pool_lane *lane);

/* ---- link_range.c: what a dialled lane has asked for ---- */

void lane_link_note(struct lane_link *k, const struct link_note *note);
/* Where a range may be read. false: nonsense. */
bool lane_link_source(struct pool_lane *lane, const struct link_buffer *b);

/* ---- adopted lanes ---- */

/* One kind of link of an adopted lane. */
struct half {
	struct adopted_link *k;
	enum link_kind kind;
	struct link *link; /* NULL: none for now */
	uint32_t attempt;
	unsigned int vain; /* links since one moved something */
	bool up;
};

/* Of an adopted lane; freed when the lane is down and its last send over. */
struct adopted_link {
	struct link_lane *lane; /* NULL: down */
	struct half halves[LINK_KINDS];
	struct pool_list early;	  /* struct early: BUFFERs before their GET */
	unsigned int nearly;
	struct pool_list waiting; /* struct link_send: without a BUFFER */
	struct pool_list sending; /* struct link_send */
};
/* A new one, at first. NULL: none here, or ENOMEM. */
struct adopted_link *adopted_link_of(struct link_lane *a);

/* A piece of a range: its bytes, and the note that tells of them. */
struct link_piece {
	struct link_send *ls;
	struct verbs_work write, note;
	struct link_note text;
};

/* A range that an adopted lane was asked for. */
struct link_send {
	struct pool_list link; /* waiting or sending */
	struct adopted_link *k;
	struct pool_mover_send *s;
	struct link_tick tick; /* for a BUFFER */
	struct verbs_port *port; /* that it goes over */
	/* to be pulled */
	struct link_map map;
	bool mapped;
	/* to be written */
	struct verbs_cached *cached;
	struct link_reach to;
	bool gone; /* nobody wants it any more */
	uint64_t next; /* bytes that were posted */
	int status;
	uint32_t attempt; /* of the link */
	bool held; /* the next piece waits: a fault */
	bool wrong; /* it has other bytes: a fault */
	struct link_piece pieces[LINK_PIECES];
	unsigned int free, posted; /* pieces: bits of those unused; count */
};

/* ---- link_send.c: what an adopted lane sends ---- */

/* It goes over TCP, if the lane is there. Frees ls. */
void link_send_by_tcp(struct link_send *ls);
/* It is over: 0 or -errno. Frees ls. */
void link_send_over(struct link_send *ls, int status);
/* It has gone by RDMA. */
void link_send_count(struct link_send *ls, enum link_kind kind);
/* The peer gave a range up, and waits (not for ever) to be told that nothing of
 * it is under way. */
void link_let_go(struct adopted_link *k, uint64_t req);

/* ---- link_write.c: ranges that we write; ls may be freed ---- */

/* From waiting to sending, if it can be written to `to`; else over TCP. */
void link_write_begin(struct link_send *ls, const struct link_reach *to);
/* What is told of one that is sending. false: nonsense. */
bool link_write_more(struct link_send *ls, const struct link_buffer *b);
/* It goes on, or ends with ls->status, now. */
void link_write_resume(struct link_send *ls);

/* ---- link_read.c: ranges that the peer reads; ls may be freed ---- */

void link_read_offer(struct link_send *ls);
/* It has been read, or is not wanted (gone); or it cannot be read. */
void link_read_over(struct link_send *ls, bool gone);

/* ---- link_send.c, for link_answer.c ---- */

/* false: nonsense. */
bool adopted_link_buffer(struct adopted_link *k, const struct link_buffer *b);
/* The lane is down: what had not begun ends. */
void adopted_link_forget(struct adopted_link *k);
/* Frees k if nothing needs it. */
void adopted_link_tidy(struct adopted_link *k);

/* ---- link_sends.c ---- */

/* A BUFFER that came before its GET. */
struct link_early {
	struct pool_list link;
	uint64_t req;
	struct link_reach to;
	bool nowhere; /* (any more): over TCP */
};

struct link_send *link_send_find(struct pool_list *list, uint64_t req);
struct link_early *link_early_find(struct adopted_link *k, uint64_t req);
void link_early_free(struct adopted_link *k, struct link_early *e);
/* false: nonsense, or ENOMEM. */
bool link_early_add(struct adopted_link *k, const struct link_buffer *b);

#endif
