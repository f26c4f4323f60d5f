/*
 * The nodes: identity, liveness and reported figures; after a start, which of
 * them the master still waits for.
 *
 *   expected --join--> joined --connection lost--> away --grace over--> gone
 *      |                 ^  ^-------- join ----------+                   |
 *      +--time over-> gone  +------------------- join -------------------+
 *
 * A file's holder carries the phase in which its node confirmed the copy. Each
 * join begins a new phase of the node. Copies that the inventory does not list
 * keep an older phase, and are invalid once the inventory is complete
 * (master_holder_stands). A join therefore needs no walk over the map; the next
 * patrol removes the invalid holders.
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
#define MASTER_CAPACITY_MAX (1ull << 52) /* of all nodes: no sum overflows */

struct master_session;

/*
 * A draining node (master/drain.c). Each patrol counts the files of which this
 * node has a counted copy. The figures are those of the last complete patrol.
 */
struct master_drain {
	bool on;
	uint64_t mark; /* `on` is recorded when this mark is settled */
	bool counting; /* it was inventoried when the current patrol began */
	bool touched;  /* a file it holds was reviewed since then */
	bool known;    /* a patrol has counted since the drain or the join */
	uint64_t total_bytes; /* maximum of `bytes` */
	uint64_t keys, bytes; /* left to move */
	uint64_t stuck_keys, stuck_bytes; /* of these: no store has room */
	uint64_t pass_keys, pass_bytes, pass_stuck_keys, pass_stuck_bytes;
};

struct master_answer {
	int32_t status;
	uint64_t gen, seq;
};
#define MASTER_ANSWERS_MAX (8u * POOL_BATCH_MAX) /* results per node */

#define MASTER_EARLIER_RUNS 3

/* Results of the changes that a node has sent (master/answers.c). */
struct master_answers {
	uint64_t run;  /* Join.ops_run; 0: the node does not number changes */
	/* The node's runs before that, newest first, or 0. Changes of a run
	 * that is no longer here count as those of another node. */
	uint64_t earlier[MASTER_EARLIER_RUNS];
	uint64_t done; /* changes of the run executed so far */
	uint64_t kept; /* results stored: those of the last `kept` changes */
	uint64_t gen;  /* changes after `done` have greater generations */
	/* Is it certain that no master has executed a change after `done`?
	 * (Conditional changes, which the node repeats, are excepted.) Not
	 * before the node has received a WELCOME of this master, because a
	 * former one may have executed more. */
	bool exact;
	unsigned int cap; /* of list, a power of 2 */
	struct master_answer *list; /* owns; index: change number % cap */
};

/*
 * A member's quantum of changes. Each change is work for all mounts, and an
 * fsync of any node waits until all mounts have acked the changes before it.
 * After POOL_OPS_QUANTUM changes a member must therefore wait: until all mounts
 * have acked these, and then for as long again, which is time for the changes
 * of others. A larger message is executed in parts of POOL_OPS_QUANTUM changes,
 * each as a whole: where it exceeds what is left of the quantum, the wait grows
 * in proportion. A mount may not ack, so the wait is bounded:
 * MASTER_OPS_QUANTUM_MS per POOL_OPS_QUANTUM changes, counted from the start of
 * the quantum.
 *
 * With etcd an fsync also waits for all records before it, of all members. So a
 * member with MASTER_UNSETTLED_MAX records waits until etcd has them, and parts
 * of a message have at most as many changes. Beside endless changes of
 * directories, the p99 of others' fsyncs was 7 times that of quiet ones with
 * 256 records, 2.4 to 3.7 with 32, and 1.6 to 2.4 with 12 (`etcd.dirs` of
 * tests/it/it_hostile_etcd.sh).
 */
#define MASTER_OPS_QUANTUM_MS 10u
#define MASTER_UNSETTLED_MAX POOL_OPS_STATE
struct master_quantum {
	unsigned int made; /* changes in this quantum */
	uint64_t seq;	   /* of the feed, after the last of them */
	uint64_t began_ns;
	uint64_t acked_ns; /* all mounts have acked seq; 0: not yet */
	unsigned int unsettled; /* cost of records (keep.h) since `mark` was
				   last settled */
	uint64_t mark;	   /* of the state, after the last record */
};

struct master_member {
	uint8_t id[POOL_ID_SIZE];
	uint16_t index;
	char name[64];
	char advertise[272];
	char unix_path[108];
	char host_id[64];
	char data_mode[32];
	char program[POOL_PROGRAM_SIZE]; /* its version; "": unknown */
	bool is_store, is_mount;
	uint8_t role; /* enum pool_role of its last certificate; 0: none yet */
	struct master_quantum quantum; /* answers.c */
	bool expected;	  /* a member of the last epoch that the master awaits:
			     no complete inventory yet */
	bool gone;	  /* its copies are invalid */
	bool inventoried; /* its inventory is complete since it joined */
	bool accepting;	  /* has room for copies (hysteresis: place.h) */
	uint8_t phase;
	uint8_t unswept;  /* joins since a patrol last removed all holders of
			     its older phases */
	bool sweeping;	  /* the current patrol removes these */
	bool impossible;  /* it has reported figures that cannot be */
	uint64_t capacity, used, evictable, objects;
	/* As the node reported it. Only mounts know the rules of directories,
	 * so a store without a mount reports too much: its `evictable` is at
	 * most `used` without `kept` */
	uint64_t reported_evictable;
	uint64_t kept;	    /* bytes of its copies that rules keep, as the last
			       patrol found */
	uint64_t kept_seen; /* those that the current patrol has found so far */
	struct master_session *session; /* borrows; NULL: not connected */
	uint8_t addr[POOL_ADDRESS_SIZE]; /* of its last join; 0: none yet */
	uint64_t received_ms;  /* last message received from it */
	uint64_t away_ms;      /* when the connection was lost */
	uint64_t left_wall_ns; /* since then it may have missed deletions; 0:
				  it has not left */
	uint64_t changed;      /* members.changes when it last changed */
	/* copies in flight: to it, and moves away from it */
	uint64_t promised; /* bytes of coming copies, not in `used` yet */
	unsigned int coming, leaving;
	uint64_t leaving_bytes;
	/* repair.c: copies, of files that only it holds, which have failed
	 * since one succeeded; the last one's target; and when the next one may
	 * be ordered if too many have failed */
	unsigned int copies_failed;
	uint16_t failed_at;
	uint64_t probe_ms;
	uint64_t sent_bytes;   /* to peers, since its start */
	uint64_t cert_expires; /* in s of the wall clock; 0: unknown */
	bool expiry_noted;     /* as an event (server.c), */
	uint64_t expiry_ms;    /* the last time then; 0: never */
	uint64_t sent_reported_ms; /* when a change of sent_bytes was last
				      announced to mounts */
	bool figures_unsent; /* figures have changed; sent in the next round */
	struct master_drain drain;
	struct master_answers answers;
	Kvpool__Asked *asked; /* owns; its last report (asked.c), or NULL */
};

struct master_members {
	struct master_member *by_index[MASTER_NODES_MAX]; /* owns */
	unsigned int n;	  /* entries in use, all below this index */
	uint64_t changes; /* grows with each change of a member */
	/* Figures change with each heartbeat of each node. In a large pool the
	 * mounts receive them in rounds; round_ms 0: at once. */
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
 * The member of that id, made if needed (gone, without a description). If the
 * table is full, a new one reuses the slot of the member that has been gone
 * longest, if no file or order refers to that slot and it is not draining. 0,
 * -ENOSPC or -ENOMEM.
 */
int master_members_make(struct master_members *ms,
			const uint8_t id[POOL_ID_SIZE],
			struct master_member **ret);
/* Is the description valid: id, lengths of the texts? 0 or -EINVAL. */
int master_member_check(const Kvpool__NodeInfo *info);
/*
 * Copy the description in a JOIN. False: its figures cannot be. Those are
 * bounded: used and evictable to the capacity; one beyond MASTER_CAPACITY_MAX
 * is 0, so that nothing is placed there.
 */
bool master_member_describe(struct master_members *ms,
			    struct master_member *mb,
			    const Kvpool__NodeInfo *info);
/* Copy the figures in a HEARTBEAT; the same. */
bool master_member_figures(struct master_members *ms,
			   struct master_member *mb,
			   const Kvpool__NodeInfo *info);
/* Marks members with unsent figures as changed if a round is due, and sets the
 * interval of rounds by the number of mounts; call it often. */
void master_members_round(struct master_members *ms, unsigned int mounts,
			  uint64_t now_ms);
/* A new session; begins a new phase. -EAGAIN if the node has joined so often
 * since the last sweep that a phase number would be reused. */
int master_member_join(struct master_members *ms, struct master_member *mb,
		       struct master_session *session, uint64_t now_ms);
/* Its connection is lost. Its copies stay valid until it is gone. */
void master_member_away(struct master_members *ms, struct master_member *mb,
			uint64_t now_ms);
/* left_wall_ns: since then it may have missed deletions. */
void master_member_gone(struct master_members *ms, struct master_member *mb,
			uint64_t left_wall_ns);
/* Have the next FEED of every mount include it. */
void master_member_changed(struct master_members *ms,
			   struct master_member *mb);
/* Begin or cancel its drain. */
void master_member_drain(struct master_members *ms, struct master_member *mb,
			 bool on);
/* Percent of its bytes that have been moved; 100: it may be switched off. */
unsigned int master_member_drained(const struct master_member *mb);
/* Fills the NodeInfo for FEED and REPLICATE; borrows from mb. */
void master_member_info(const struct master_member *mb, Kvpool__NodeInfo *ret);

/* Is this holder valid: its node is not gone, and either has confirmed the copy
 * since it joined, or has not sent its whole inventory yet? */
static inline bool master_holder_stands(const struct master_members *ms,
					master_holder h)
{
	const struct master_member *mb =
		master_member_at(ms, master_holder_index(h));

	if (!mb || mb->gone)
		return false;
	return master_holder_phase(h) == mb->phase || !mb->inventoried;
}
/* A patrol begins / has reviewed the whole map. */
void master_members_sweep_begin(struct master_members *ms);
/* mb has a copy of this many bytes that its rules keep. */
void master_member_keeps(struct master_member *mb, uint64_t bytes);
void master_members_sweep_end(struct master_members *ms);

struct master_totals {
	unsigned int nodes, alive;
	uint64_t capacity, used, evictable; /* of the connected stores */
};
void master_members_totals(const struct master_members *ms,
			   struct master_totals *ret);
/* Is a member of the last epoch still missing, or its inventory incomplete? */
bool master_members_recovering(const struct master_members *ms);
/* Is one of these connected, so that its inventory is being received? */
bool master_members_joining(const struct master_members *ms);

#endif
