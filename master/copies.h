/*
 * Where copies are: review.c compares one file with its rules, patrol.c all
 * files, and the others make or give up copies. Holders are added where a node
 * reports a copy (ops.c, inventory.c, repair.c) and removed where a copy is
 * given up (evict.c, heat.c, review.c). Only repair.c changes needs and the
 * master's `repair` (except that a patrol clears `repair.unmet`), only review.c
 * a file's danger, and only patrol.c `patrol` (except that a drain may make the
 * next patrol begin earlier).
 *
 * Thread: loop.
 */
#ifndef MASTER_COPIES_H
#define MASTER_COPIES_H

#include "master/feed.h"
#include "master/map.h"
#include "master/members.h"
#include "master/throttle.h"
#include "pool/conn/kvpool.pb-c.h"

struct master;

#define MASTER_UNMET_MS 10000 /* until copies without a target are retried */
#define MASTER_URGENCIES 10u /* queues; repair.c defines their order */

struct master_repair {
	/* struct master_need, oldest first */
	struct pool_list waiting[MASTER_URGENCIES];
	struct pool_list later;	  /* failed; retried when due */
	struct pool_list ordered; /* in flight */
	unsigned int nwaiting, nordered; /* nwaiting counts `later`, too */
	bool unmet; /* some wanted copies have no target, or were given up */
	/* Objects that lack copies or are on a draining node, but have no need
	 * (struct master_need) because there is no target; and their bytes.
	 * pass_: counted so far by the current patrol; stuck_: by the last
	 * complete one. */
	uint64_t pass_keys, pass_bytes, stuck_keys, stuck_bytes;
	struct master_throttle throttle;
	uint64_t bytes_left; /* of copies that repair wants, or has ordered */
};

struct master_patrol {
	struct master_cursor cursor;
	bool active, again; /* again: start another one when this one ends */
	uint64_t goal;	  /* feed sequence at which it ends */
	uint64_t begun_ms;
	uint64_t next_ms; /* the next one starts by itself then */
	uint64_t rest_ms; /* lower bound of next_ms: master_patrol_by */
};

/* ---- repair.c ---- */

/* One more copy of `file` that is wanted, or in flight. A file has at most one
 * need at a time. */
struct master_need {
	struct pool_list link; /* repair.waiting, .later or .ordered */
	struct master_file *file;
	uint64_t due_ms; /* in `later`: when it is retried; ordered: timeout */
	uint64_t bytes;	 /* the file's size; once ordered, it is also counted in
			    the target's `promised` */
	uint16_t target; /* ordered: node index */
	uint16_t from;	 /* a move: node that wants to drop it; or NOBODY */
	uint16_t avoid;	 /* node where it failed last, or NOBODY */
	uint8_t tries;
	uint8_t urgency;
	bool ordered;
	bool extra;   /* an extra copy (heat.c), which does not count */
	bool tallied; /* in repair.bytes_left */
	bool displaces; /* evictable objects may be evicted to make room */
};

struct master_want {
	unsigned int left;   /* valid copies on stores */
	unsigned int wanted; /* copies that the rules want */
	bool put; /* it was published just now: not throttled */
	bool kept; /* must not be evicted: noevict, or pin=hard */
};

void master_repair_init(struct master_repair *r, uint64_t rate,
			unsigned int copies_max);
/* Free at most `max` needs; true: there are more. */
bool master_repair_fini_some(struct master *m, unsigned int max);
/* f's rules want another copy. If f has a need already, only its urgency (while
 * it waits) and `displaces` are updated. */
void master_repair_want(struct master *m, struct master_file *f,
			const struct master_want *want);
/* f has as many copies as its rules want: cancels the need for one more. */
void master_repair_satisfied(struct master *m, struct master_file *f);
/* Cancels f's need of any kind (before f is removed or overwritten). */
void master_repair_cancel(struct master *m, struct master_file *f);
/*
 * f's attributes have changed: sends them to those of its holders that are
 * stores without a mount, but not to `except` (may be NULL). These stores
 * receive no feed, and list the attributes in their inventories after a restart
 * of the master.
 */
void master_repair_tell_attrs(struct master *m, struct master_file *f,
			      const struct master_member *except);
/* Copy f to `to` so that `from` may drop it. No-op if f has a need already. */
void master_repair_move(struct master *m, struct master_file *f, uint16_t from,
			struct master_member *to);
/* Order an extra copy of f. False: throttled, or no store can take it now. */
bool master_repair_extra(struct master *m, struct master_file *f);
/* mb has reported figures that cannot be: counts it. */
void master_figures_impossible(struct master *m, struct master_member *mb);
/* Update mb's figures (capacity, used, ...), and patrol soon if it has room
 * again. */
void master_repair_figures(struct master *m, struct master_member *mb,
			   const Kvpool__NodeInfo *info);
/* mb's connection is lost: retry the copies that it was ordered to make. */
void master_repair_cut_off(struct master *m, const struct master_member *mb);
/* Retry what is due, and order copies within the bounds. */
void master_repair_run(struct master *m, uint64_t now_ms);
/* Seconds until repair is done at its present speed; -1: unknown, or never,
 * because copies have no target. */
int64_t master_repair_seconds_left(const struct master_repair *r);
/* Called when a patrol begins, after it has reviewed f (leaves: a draining node
 * holds it), and when it has reviewed the whole map. */
void master_repair_pass_begin(struct master *m);
void master_repair_pass(struct master *m, const struct master_file *f,
			bool leaves);
void master_repair_pass_end(struct master *m);

/* ---- evict.c ---- */

/* Turns copies beyond `wanted` into cached ones (DROP with SURPLUS), but not
 * that of `keep` (NULL: no exception). True: there were any. */
bool master_give_up_surplus(struct master *m, struct master_file *f,
			    unsigned int wanted,
			    const struct master_member *keep);

/* ---- drain.c ---- */

/* Called when a patrol begins, after it has reviewed f (returns true if a
 * draining node holds it), and when it has reviewed the whole map. */
void master_drain_pass_begin(struct master *m);
bool master_drain_pass(struct master *m, const struct master_file *f);
void master_drain_pass_end(struct master *m);
/* f has been reviewed, by a patrol or after a change. */
void master_drain_reviewed(struct master *m, const struct master_file *f);
/* Does a draining node hold copies that can still be moved? */
bool master_drain_busy(const struct master *m);

/* ---- review.c ---- */

enum master_reviewed { MASTER_KEPT, MASTER_GONE };
/*
 * Bring f in line with its holders and rules: removes invalid holders (see
 * master_holder_stands), and requests missing copies. Once there are enough,
 * turns surplus copies and those on clients into cached ones. Touches f in the
 * feed if its holders changed. MASTER_GONE: f had no holder left and was freed.
 */
enum master_reviewed master_review(struct master *m, struct master_file *f);
/* The same for a file that `from` has just published: its copies are not
 * throttled, and that of `from` is not surplus. */
void master_review_put(struct master *m, struct master_file *f,
		       const struct master_member *from);

/* ---- patrol.c ---- */

/* Start a patrol; if one is running, another follows it. */
void master_patrol_start(struct master *m);
/* Have a patrol start within `ms`; later if that is needed to keep patrols
 * below a fifth of the time. */
void master_patrol_by(struct master *m, uint64_t ms);
/* One slice; false: the patrol is done. */
bool master_patrol_slice(struct master *m);

#endif
