/*
 * Placement policy: targets of copies, and which copies may be evicted. It
 * reads the members' figures and one file, and changes neither (except the
 * accepting flag).
 *
 * Copies on clients (is_store = 0) and extra copies never count. A draining
 * node is about to leave: its copies exist, but do not count as replicas, and
 * it receives no more.
 *
 * Room: a store takes another copy if 2 % of its capacity stay free afterwards
 * (free: capacity - used - promised). Once it has fallen below 2 %, it takes no
 * more until 4 % are free, so that two nearly full stores do not pass the same
 * objects to and fro. `used` excludes cached copies, so these count as room.
 *
 * If no store has room, the following copies may displace evictable objects: a
 * store's first copy of an object that only clients hold; copies of objects
 * that must not be evicted; and the replicas of a put, like the put itself.
 * Other missing replicas may not: when a node of a full pool dies, second
 * copies of some objects would otherwise evict the only copies of others.
 *
 * Thread: loop.
 */
#ifndef MASTER_PLACE_H
#define MASTER_PLACE_H

#include "master/members.h"

/*
 * Bounds of copies in flight to, and of moves away from, one node. The number
 * lets orders, transfers and confirmations of small copies overlap, and is what
 * a node requests from one peer at a time (POOL_PEER_INFLIGHT_MAX).
 */
#define MASTER_COMING_MAX 256
#define MASTER_COMING_BYTES (256ull << 20)

/* Bring mb->accepting up to date with its figures. */
void master_place_accepting(struct master_member *mb);
/* Does it have room for one more copy of this size? */
bool master_place_room(const struct master_member *mb, uint64_t size);

/* Valid copies on stores that are not draining, without that of `except`
 * (MASTER_NOBODY: no exception). */
unsigned int master_place_copies(const struct master_members *ms,
				 const struct master_file *f,
				 unsigned int except);
/* Valid copies on stores, draining ones included. */
unsigned int master_place_left(const struct master_members *ms,
			       const struct master_file *f);
/*
 * Position of a surplus holder, or -1. First choice: a draining node, if
 * `wanted` copies are on other nodes. Otherwise, if more than `wanted` copies
 * are on nodes that are not draining: one of these that shares its host with
 * another holder, else the store with the least free space. Only copies that
 * connected nodes have confirmed are counted or returned. The copy of `keep`
 * (may be NULL), which has just put the file, is never returned: the others may
 * be dead without the master knowing yet.
 */
int master_place_surplus(const struct master_members *ms,
			 const struct master_file *f, unsigned int wanted,
			 const struct master_member *keep);

/*
 * The target of one more copy. Candidates: connected stores that are not
 * draining, do not hold the file (except as an extra copy), and have room. If
 * there are none, and `displaces` is set or no store holds the file, stores
 * that can make room by eviction are candidates. Preferred in this order: not
 * `avoid`; on another host than the holders; having an extra copy; most free
 * space. 0; -EBUSY: all candidates are at their bounds of copies in flight, or
 * still sending their inventories; -ENOSPC: no candidates.
 */
int master_place_target(const struct master_members *ms,
			const struct master_file *f, unsigned int avoid,
			bool displaces, struct master_member **ret);
/* The same for an extra copy: a store with room and without any copy. */
int master_place_extra(const struct master_members *ms,
		       const struct master_file *f,
		       struct master_member **ret);

enum master_verdict {
	MASTER_GRANT,	/* drop it: enough copies remain */
	MASTER_MOVE,	/* drop it once *ret_target has a copy */
	MASTER_LAST,	/* drop it, although its copy is wanted: no store has
			   room for another */
	MASTER_REFUSE,	/* not now: the node asks again */
	MASTER_KEEP,	/* must not be evicted, and no store has room */
};
/*
 * May `from`, a holder of f, evict its copy? rules are f's effective ones.
 * Before the master is ready, only surplus copies may be evicted. A copy is
 * surplus if connected nodes have confirmed enough others. A client's copy may
 * be evicted only when a store holds the file.
 */
enum master_verdict master_place_evict(const struct master_members *ms,
				       const struct master_file *f,
				       const struct master_member *from,
				       const struct pool_rules *rules,
				       bool ready,
				       struct master_member **ret_target);

#endif
