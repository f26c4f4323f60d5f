/*
 * Shared by the files of fetches: fetch.c (beginning and end), fetch_room.c (a
 * lent descriptor, or space and a file), fetch_link.c (a file that is in this
 * filesystem already), fetch_move.c (pieces, checksums, stalls),
 * fetch_holders.c (choice of holders), fetch_space.c (bytes in use),
 * replicate.c (orders of the master).
 *
 * Fetches begin in two files: opens and prefetches in fetch.c (node_fetch_for,
 * node_fetch_ahead; called by want.c), the master's orders in replicate.c,
 * which does not pass through fetch.c:fetch_go.
 *
 * Thread: loop. Functions that begin, continue or end a fetch may free it.
 */
#ifndef POOL_NODE_FETCH_H
#define POOL_NODE_FETCH_H

#include "pool/node/node_priv.h"

enum fetch_kind { FETCH_WANTED, FETCH_PREFETCH, FETCH_REPLICA };

/*
 *   ASKING --> CLAIMING --> MOVING --> VERIFYING --> ENDED --> (freed)
 *
 *   ASKING -----> VERIFYING  a holder lent its file, or it was linked
 *   VERIFYING --> MOVING     the bytes were wrong: once more, from one holder
 *   VERIFYING --> CLAIMING   lent bytes were wrong: get bytes instead
 *   any --------> ENDED
 *   ENDED ------> PARKED     no holder delivered it, but one soon may (park)
 *   PARKED -----> ASKING     other holders are named, or more are alive
 *   PARKED -----> ENDED      a tick finds neither. It may park again
 *   ENDED ------> ASKING     an order failed, but opens wait: goes on as a read
 *
 * ENDED lasts until no transfer and no worker uses it.
 */
enum fetch_phase {
	FETCH_ASKING,	 /* asks a holder on this host for the file itself */
	FETCH_CLAIMING,	 /* waits for space */
	FETCH_MOVING,	 /* pieces are in flight */
	FETCH_VERIFYING, /* a worker compares the checksum */
	FETCH_PARKED,	 /* waits for other holders, or for one to rejoin */
	FETCH_ENDED,
};

struct fetch_piece {
	struct pool_fetch f;
	struct node_fetch *owner;
	uint16_t holder;
	bool busy;
	/* bytes at the last check, and when they last grew */
	uint64_t seen, seen_ms;
};

struct node_fetch {
	struct pool_list link; /* node->fetches */
	struct pool_node *n;
	struct node_entry *e; /* e->fetch == this */
	uint64_t gen, size;
	XXH128_hash_t sum;
	struct node_attr attr;
	enum fetch_kind kind;
	enum fetch_phase phase; /* changed by node_fetch_to */
	bool extra; /* FETCH_REPLICA: an extra copy, not counted */
	struct pool_list wants;
	uint64_t start_ns, deadline_ms;

	uint16_t holders[NODE_HOLDERS_INLINE];
	/* first: the holder that the next piece asks first */
	uint8_t nholders, first;
	bool bad[NODE_HOLDERS_INLINE];
	bool gave[NODE_HOLDERS_INLINE]; /* the file has pieces from it */
	bool alone;   /* ask one holder for the whole object */
	uint8_t again; /* number of mismatches of the whole object's sum */
	uint8_t cuts[NODE_HOLDERS_INLINE]; /* broken connections, per holder */

	struct node_claim claim;
	bool claimed;
	uint64_t landed; /* of the claimed bytes: already allocated */
	bool linked; /* the file is linked to the holder's: same content */
	bool by_rdma; /* some of the bytes were moved by RDMA */
	struct pool_file file; /* fd >= 0 while the file is the fetch's */
	/* descriptor of a complete replica, for its seal: owns; 0: none */
	int seal_fd;
	struct pool_verify verify; /* fd: a lent descriptor, owned */
	uint64_t next_offset; /* first byte that no piece has asked for */
	unsigned int busy;
	bool working; /* a worker uses it */
	bool stale;  /* a holder that the feed names has no copy */
	uint8_t alive; /* number of holders alive when it was parked */
	int status;
	struct fetch_piece pieces[NODE_PIECES_MAX];
	size_t path_len;
	char path[];
};

/* ---- fetch.c ---- */

/* A new fetch of e, which has none; not started. NULL: ENOMEM. */
struct node_fetch *node_fetch_new(struct pool_node *n, struct node_entry *e,
			     enum fetch_kind kind);
/* Asserts that the drawing above has that edge. */
void node_fetch_to(struct node_fetch *f, enum fetch_phase to);
static inline bool node_fetch_ended(const struct node_fetch *f)
{
	return f->phase == FETCH_ENDED;
}
/* The object is complete and verified: in f->file, or in lent_fd (>= 0, owned
 * by the object from then on), lent by the node with that index. */
void node_fetch_keep(struct node_fetch *f, int lent_fd, uint16_t lender);
/* That holder's bytes did not match: notifies it, and does not ask it again. */
void node_fetch_bad_bytes(struct node_fetch *f, unsigned int holder);
/* Ends f with 0 or -errno, as soon as no transfer or worker uses it. */
void node_fetch_end(struct node_fetch *f, int status);
/* Removes the file, if there is one. */
void node_fetch_discard_file(struct node_fetch *f);

/* ---- fetch_room.c ---- */

/* Asks one holder on this host for a descriptor, then for bytes. false: there
 * is no such holder. */
bool node_fetch_try_borrow(struct node_fetch *f);
/* Claims space, makes a file, transfers. */
void node_fetch_bytes(struct node_fetch *f);

/* ---- fetch_link.c ---- */

#define NODE_LINK_MIN (64u << 10) /* sending a smaller object is as fast */

/* Links the file of a client on this host into the store, or fetches its bytes.
 * false: there is no such holder. */
bool node_fetch_try_link(struct node_fetch *f);

/* ---- fetch_move.c ---- */

/* Forgets all requested ranges, so that node_fetch_move starts from byte 0. */
void node_fetch_ask_anew(struct node_fetch *f);
/* Asks for the next ranges; verifies when all have arrived. */
void node_fetch_move(struct node_fetch *f);
/* One piece from the next holder. 0; or -errno, and cb never runs. */
int node_fetch_piece_start(struct node_fetch *f, struct fetch_piece *p,
		      uint64_t offset, uint64_t length, pool_fetch_cb cb);
/* The time that a transfer of len bytes may take. Shorter than the time until
 * f's deadline if that leaves time for another holder. */
unsigned int node_fetch_remaining_ms(const struct node_fetch *f, uint64_t len);
/* late: the last check was long ago, so this node itself may have stalled: then
 * no holder counts as stalled. */
void node_fetch_check_stalls(struct node_fetch *f, uint64_t now, bool late);

/* ---- fetch_holders.c ---- */

/* Copies the holders that the feed names now. */
void node_fetch_take_holders(struct node_fetch *f);
/* May holder i be asked? */
bool node_fetch_usable(struct node_fetch *f, unsigned int i);
unsigned int node_fetch_usable_count(struct node_fetch *f);
/* The next usable holder after the last one asked, preferably one that has not
 * stalled recently; or -1. */
int node_fetch_next_holder(struct node_fetch *f);
/* Is there a usable holder, other than this one, that has not stalled recently?
 */
bool node_fetch_another_runs(struct node_fetch *f, unsigned int holder);
bool node_fetch_same_host(const struct pool_node *n,
			  const struct node_member *m);
bool node_fetch_any_on_this_host(struct node_fetch *f);
uint8_t node_fetch_holders_alive(struct node_fetch *f);
/* Has a holder left in the last NODE_REJOIN_MS? */
bool node_fetch_holder_may_rejoin(struct node_fetch *f);

/* ---- replicate.c ---- */

/* Reports the result of an order to the master. */
void node_fetch_replica_end(struct node_fetch *f, int status);

#endif
