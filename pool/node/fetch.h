/*
 * The inside of fetches: fetch.c (beginning and end), fetch_room.c (a
 * descriptor, or room and a file), fetch_link.c (a file that is here, under
 * another name), fetch_move.c (pieces, checksums, stalls), fetch_holders.c
 * (whom to ask) and replicate.c (fetches that the master orders).
 *
 * Thread: the node's loop. What begins, moves or ends a fetch may free it.
 */
#ifndef POOL_NODE_FETCH_H
#define POOL_NODE_FETCH_H

#include "pool/node/node_priv.h"

enum fetch_kind { FETCH_WANTED, FETCH_PREFETCH, FETCH_REPLICA };

struct fetch_piece {
	struct pool_fetch f;
	struct node_fetch *owner;
	uint16_t holder;
	bool busy;
	uint64_t seen, seen_ms; /* progress, and when it was last made */
};

struct node_fetch {
	struct pool_list link; /* node->fetches */
	struct pool_node *n;
	struct node_entry *e; /* e->fetch == this */
	uint64_t gen, size;
	XXH128_hash_t sum;
	struct node_attr attr;
	enum fetch_kind kind;
	bool extra; /* a FETCH_REPLICA that is not to be counted */
	struct pool_list wants;
	uint64_t start_ns, deadline_ms;

	uint16_t holders[NODE_HOLDERS_INLINE];
	uint8_t nholders, first; /* first: where the next piece begins asking */
	bool bad[NODE_HOLDERS_INLINE];
	bool gave[NODE_HOLDERS_INLINE]; /* pieces of what is in the file */
	bool alone;   /* one holder at a time */
	uint8_t again; /* so often all of it was wrong */
	uint8_t cuts[NODE_HOLDERS_INLINE]; /* connections to it that broke */

	struct node_claim claim;
	bool claiming, claimed;
	uint64_t landed; /* of what was claimed: allocated by now */
	struct pool_file file; /* fd >= 0 while we have it */
	int seal_fd; /* of a replica that is here: owns; 0: none */
	struct pool_verify verify; /* its fd: owns, of what was lent */
	uint64_t next_offset; /* first byte not asked for yet */
	unsigned int busy;
	bool waiting_worker, ended;
	bool stale;  /* a holder named by the feed has no copy (any more) */
	bool parked; /* waits for the feed to name others, or one to be back */
	uint8_t alive; /* holders, when it was parked */
	int status;
	struct fetch_piece pieces[NODE_PIECES_MAX];
	size_t path_len;
	char path[];
};

/* ---- fetch.c ---- */

/* Of e, which has none; not begun. NULL: ENOMEM. */
struct node_fetch *node_fetch_new(struct pool_node *n, struct node_entry *e,
			     enum fetch_kind kind);
void node_fetch_set_deadline(struct node_fetch *f);
/* The object is whole, right and here: in f->file, or lent by the node with
 * that index (lent_fd >= 0, which it takes). */
void node_fetch_keep(struct node_fetch *f, int lent_fd, uint16_t lender);
/* What that holder gave did not match: it is told, and not asked again. */
void node_fetch_bad_bytes(struct node_fetch *f, unsigned int holder);
/* 0 or -errno. Ends once no transfer or worker can touch f any more. */
void node_fetch_end(struct node_fetch *f, int status);
/* The file goes, if there is one. */
void node_fetch_discard_file(struct node_fetch *f);

/* ---- fetch_room.c ---- */

/* Ask one holder on this host for a descriptor; its bytes if it will not.
 * false: nobody to be asked. */
bool node_fetch_try_borrow(struct node_fetch *f);
/* Room, a file, and what moves into it. */
void node_fetch_bytes(struct node_fetch *f);

/* ---- fetch_link.c ---- */

#define NODE_LINK_MIN (64u << 10) /* less is sent as quickly */

/* Take over the file that a client of this host has in our file system; its
 * bytes if that cannot be. false: nobody to be asked. */
bool node_fetch_try_link(struct node_fetch *f);

/* ---- fetch_move.c ---- */

/* All of it is to be asked for, from the start. */
void node_fetch_ask_anew(struct node_fetch *f);
/* What can be asked for is; when all is here it is verified. */
void node_fetch_move(struct node_fetch *f);
/* One piece from the next holder. 0 or -errno, cb not called. */
int node_fetch_piece_start(struct node_fetch *f, struct fetch_piece *p,
		      uint64_t offset, uint64_t length, pool_fetch_cb cb);
/* Before len bytes have to be here. */
unsigned int node_fetch_remaining_ms(const struct node_fetch *f, uint64_t len);
/* late: nobody has looked for long. */
void node_fetch_check_stalls(struct node_fetch *f, uint64_t now, bool late);

/* ---- fetch_holders.c ---- */

/* From the entry, as the feed names them now. */
void node_fetch_take_holders(struct node_fetch *f);
/* May holder i be asked? */
bool node_fetch_usable(struct node_fetch *f, unsigned int i);
/* The next usable holder after the last one asked, best one that has not stood
 * still of late; or -1. */
int node_fetch_next_holder(struct node_fetch *f);
/* May somebody else be asked, who has not stood still of late? */
bool node_fetch_another_runs(struct node_fetch *f, unsigned int holder);
bool node_fetch_same_host(const struct pool_node *n,
			  const struct node_member *m);
bool node_fetch_any_on_this_host(struct node_fetch *f);
uint8_t node_fetch_holders_alive(struct node_fetch *f);
/* Has one of them gone just now? */
bool node_fetch_holder_away(struct node_fetch *f);

/* ---- replicate.c ---- */

/* An order has been carried out, or not: the master is told. */
void node_fetch_replica_end(struct node_fetch *f, int status);

#endif
