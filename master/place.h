/*
 * Which node a copy goes to, and who may drop what. Policy only: it looks at
 * the members' figures and at one file, and changes neither (but for the
 * accepting flag).
 *
 * Copies on nodes that give the pool no memory (is_store = 0) never count, nor
 * do extra ones. A node that is being drained is about to leave: what it holds
 * is there, but nothing relies on it, and it gets no more.
 *
 * Room: a store takes a further copy if 2 % of its capacity stay free behind it
 * (free: capacity - used - promised); once it has fallen below the 2 %, only
 * from 4 % on again, so that two nearly full stores do not pass the same
 * objects to and fro. (Cached copies are room: `used` does not have them.)
 * Where no store has room, some copies go where enough can be evicted for them:
 * of what only a client has; of what must not be evicted; and the replicas of a
 * put, like the put itself. Not other missing replicas: when a node of a full
 * pool dies, what has one copy left would be evicted for second copies.
 *
 * Thread: loop.
 */
#ifndef MASTER_PLACE_H
#define MASTER_PLACE_H

#include "master/members.h"

/*
 * Copies under way to, or away from, one node: so many that orders, transfers
 * and confirmations of small ones overlap, and as many as a node asks one peer
 * for (POOL_PEER_INFLIGHT_MAX).
 */
#define MASTER_COMING_MAX 256
#define MASTER_COMING_BYTES (256ull << 20)

/* Bytes free for copies: what is promised to others is not. */
uint64_t master_place_free(const struct master_member *mb);
/* Bring mb->accepting up to date with its figures. */
void master_place_accepting(struct master_member *mb);
/* Has it room for one more copy of this size? */
bool master_place_room(const struct master_member *mb, uint64_t size);

/* Store holders that stand and stay, `except` (MASTER_NOBODY: none) not
 * counted. */
unsigned int master_place_copies(const struct master_members *ms,
				 const struct master_file *f,
				 unsigned int except);
/* The same with those on nodes being drained: what there is now. */
unsigned int master_place_left(const struct master_members *ms,
			       const struct master_file *f);
/*
 * A copy that is not needed, as its position among the holders, or -1: on a
 * node being drained if enough stay; else, of more than `wanted`, one that
 * shares its host with another, then the one on the store with least room. Only
 * copies confirmed by nodes that are there are relied on. `keep` (may be NULL)
 * has just put it, and stays: the others may have died without being missed
 * yet.
 */
int master_place_surplus(const struct master_members *ms,
			 const struct master_file *f, unsigned int wanted,
			 const struct master_member *keep);

/* Or after evicting for it? */
bool master_place_evictable(const struct master_member *mb, uint64_t size);

/*
 * The living store for one more copy: one that does not hold it, has room (or,
 * if displaces, or no store holds it, can make some), has said what it holds,
 * and is within its bounds of copies under way; on another host than the
 * holders if there is one; of these, one that has it as an extra copy, else the
 * one with most room. `avoid` only if there is no other. 0; -EBUSY: only ones
 * at their bounds, or still joining; -ENOSPC: none has room.
 */
int master_place_target(const struct master_members *ms,
			const struct master_file *f, unsigned int avoid,
			bool displaces, struct master_member **ret);
/* The same for an extra copy: one that has none of either kind. */
int master_place_extra(const struct master_members *ms,
		       const struct master_file *f,
		       struct master_member **ret);

enum master_verdict {
	MASTER_GRANT,	/* drop it: enough copies remain */
	MASTER_MOVE,	/* when *ret_target has it */
	MASTER_LAST,	/* drop it: a copy that was wanted, but no room */
	MASTER_REFUSE,	/* not now: ask again */
	MASTER_KEEP,	/* it must not be lost, and nobody has room */
};
/*
 * `from`, which holds f, would like to drop it. rules are f's effective ones;
 * ready: nothing but surplus copies goes before. Surplus is what is beside
 * enough copies confirmed by nodes that are there. What a client has put is not
 * given up before a store has it.
 */
enum master_verdict master_place_evict(const struct master_members *ms,
				       const struct master_file *f,
				       const struct master_member *from,
				       const struct pool_rules *rules,
				       bool ready,
				       struct master_member **ret_target);

#endif
