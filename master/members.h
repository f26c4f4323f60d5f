/*
 * The nodes: who they are, whether they live, what they have told of
 * themselves; and when the picture after a start is complete.
 *
 *   expected --join--> joined --connection lost--> away --grace over--> gone
 *      |                 ^  ^-------- join ----------+                   |
 *      +--time over-> gone  +------------------- join -------------------+
 *
 * Holders of a file carry the phase in which their node confirmed them. Each
 * join begins a new phase of the node: what its inventory does not list is left
 * with an older phase and no longer stands once the inventory is whole. So no
 * walk over the map is needed at a join, only one behind it (the patrol), which
 * takes away what does not stand.
 *
 * No I/O. Thread: loop.
 */
#ifndef MASTER_MEMBERS_H
#define MASTER_MEMBERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "master/map.h"
#include "pool/base/list.h"
#include "pool/conn/conn.h" /* POOL_ADDRESS_SIZE */
#include "pool/conn/kvpool.pb-c.h"
#include "pool/conn/peer_addr.h"
#include "pool/conn/wire.h"

#define MASTER_NODES_MAX 1024
#define MASTER_NOBODY UINT16_MAX /* no node's index */

struct master_session;

/*
 * A node being emptied, before it is switched off (master/drain.c). What it
 * alone holds is counted by each patrol; in between, the figures are those of
 * the last one.
 */
struct master_drain {
	bool on;
	uint64_t mark; /* all up to this is in the state: so is `on` */
	bool counting; /* the patrol under way sees all that it holds */
	bool came;     /* something it holds changed meanwhile */
	bool known;    /* a patrol has counted since it began, or (re)joined */
	uint64_t total_bytes; /* the most there was to move */
	uint64_t keys, bytes; /* left to move */
	uint64_t stuck_keys, stuck_bytes; /* of these: nobody has room */
	uint64_t pass_keys, pass_bytes, pass_stuck_keys, pass_stuck_bytes;
};

struct master_answer {
	int32_t status;
	uint64_t gen, seq;
};
#define MASTER_ANSWERS_MAX (8u * POOL_BATCH_MAX) /* kept for one node */

#define MASTER_EARLIER_RUNS 3

/* What became of the changes that a node asked for (master/answers.c). */
struct master_answers {
	uint64_t run;  /* Join.ops_run; 0: it does not count them */
	/* The node's runs before that, newest first, or 0. Who is not among
	 * them any more is taken for another node. */
	uint64_t earlier[MASTER_EARLIER_RUNS];
	uint64_t done; /* executed */
	uint64_t kept; /* results of the last so many of them are kept */
	uint64_t gen;  /* not above this, those after them have been given */
	bool exact;    /* none after `done` was; not if another master did */
	unsigned int cap; /* of list, a power of 2; by number */
	struct master_answer *list; /* owns */
};

struct master_member {
	uint8_t id[POOL_ID_SIZE];
	uint16_t index;
	char name[64];
	char advertise[272];
	char unix_path[108];
	char host_id[64];
	char data_mode[32];
	bool is_store, is_mount;
	bool expected;	  /* a member of the last epoch, not heard of yet */
	bool gone;	  /* its holders do not stand */
	bool inventoried; /* its whole inventory has come since it joined */
	bool accepting;	  /* has room for moved copies (hysteresis: place.h) */
	uint8_t phase;
	uint8_t unswept;  /* joins since a patrol took all old holders away */
	bool sweeping;	  /* the patrol under way will have done so */
	uint64_t capacity, used, evictable, objects;
	struct master_session *session; /* borrows; NULL: not connected */
	uint8_t addr[POOL_ADDRESS_SIZE]; /* it last joined from; 0: not yet */
	uint64_t heard_ms;
	uint64_t away_ms;      /* when the connection was lost */
	uint64_t left_wall_ns; /* away since; 0: a member all the time */
	uint64_t changed;      /* members.changes when it last changed */
	/* copies ordered and not yet confirmed: to it, and away from it */
	uint64_t promised; /* bytes, as `used` does not know them */
	unsigned int coming, leaving;
	uint64_t leaving_bytes;
	uint64_t sent_bytes;   /* to peers, since its start */
	uint64_t sent_told_ms; /* when the mounts were told of that last */
	bool untold;	       /* figures have changed: with the next round */
	struct master_drain drain;
	struct master_answers answers;
};

struct master_members {
	struct master_member *by_index[MASTER_NODES_MAX]; /* owns */
	unsigned int n;	  /* all below are in use or NULL */
	uint64_t changes; /* grows with each change of a member */
	/* Figures change with each heartbeat of each node. In a large pool the
	 * mounts are told of them together, in rounds; 0: at once. */
	uint64_t round_ms, round_due_ms;
	unsigned int ndraining;
};

void master_members_init(struct master_members *ms);
void master_members_fini(struct master_members *ms);

static inline struct master_member *
master_member_at(const struct master_members *ms, unsigned int index)
{
	return index < ms->n ? ms->by_index[index] : NULL;
}
static inline bool master_member_alive(const struct master_member *mb)
{
	return mb && mb->session;
}
/* NULL if unknown. */
struct master_member *master_members_find(const struct master_members *ms,
					  const uint8_t id[POOL_ID_SIZE]);
/*
 * Known or new (then gone, nothing known of it). If the table is full, the slot
 * of the one gone longest whose holders have been swept is reused. Returns 0,
 * -ENOSPC or -ENOMEM.
 */
int master_members_make(struct master_members *ms,
			const uint8_t id[POOL_ID_SIZE],
			struct master_member **ret);
/* Is the description acceptable: id, lengths of the texts? 0 or -EINVAL. */
int master_member_check(const Kvpool__NodeInfo *info);
/* Take over what a JOIN says. */
void master_member_describe(struct master_members *ms,
			    struct master_member *mb,
			    const Kvpool__NodeInfo *info);
/* Take over the figures of a HEARTBEAT. */
void master_member_figures(struct master_members *ms,
			   struct master_member *mb,
			   const Kvpool__NodeInfo *info);
/* Often: sets the time between rounds, for so many mounts, and holds one if it
 * is due. */
void master_members_round(struct master_members *ms, unsigned int mounts,
			  uint64_t now_ms);
/* A new session; begins a new phase. -EAGAIN if it has joined too often for
 * the patrol to keep up (its phases would be mistaken). */
int master_member_join(struct master_members *ms, struct master_member *mb,
		       struct master_session *session, uint64_t now_ms);
/* Its connection is lost; its holders stand until it is gone. */
void master_member_away(struct master_members *ms, struct master_member *mb,
			uint64_t now_ms);
/* left_wall_ns: since when it may have missed what was told. */
void master_member_gone(struct master_members *ms, struct master_member *mb,
			uint64_t left_wall_ns);
/* The mounts are to be told of it. */
void master_member_changed(struct master_members *ms,
			   struct master_member *mb);
/* Begin or give up emptying it. */
void master_member_drain(struct master_members *ms, struct master_member *mb,
			 bool on);
/* How much of it has been moved; 100: it may be switched off. */
unsigned int master_member_drained(const struct master_member *mb);
/* For the feed and for REPLICATE: borrows from mb. */
void master_member_info(const struct master_member *mb, Kvpool__NodeInfo *ret);

/* Does this holder still count? */
static inline bool master_holder_stands(const struct master_members *ms,
					master_holder h)
{
	const struct master_member *mb =
		master_member_at(ms, master_holder_index(h));

	if (!mb || mb->gone)
		return false;
	return master_holder_phase(h) == mb->phase || !mb->inventoried;
}
/* A patrol begins / has been over the whole map. */
void master_members_sweep_begin(struct master_members *ms);
void master_members_sweep_end(struct master_members *ms);

struct master_totals {
	unsigned int nodes, alive;
	uint64_t capacity, used, evictable; /* of the living stores */
};
void master_members_totals(const struct master_members *ms,
			   struct master_totals *ret);
/* Is anybody of the last epoch still to come, or to end its inventory? */
bool master_members_recovering(const struct master_members *ms);
/* Has anybody of them come, and is in the midst of it? */
bool master_members_telling(const struct master_members *ms);

#endif
