/*
 * The change feed: all entries of the map, and the graves of recently removed
 * names, linked in the order of their last change. A subscriber is a cursor in
 * that list. Sending the next batch means walking on from the cursor: there is
 * no queue per subscriber, and a slow one receives only the newest states.
 *
 *   oldest                                                    newest
 *   item(3) -> item(4) -> item(9) -> item(17) -> item(18) -> [end]
 *                 ^ slow                                       ^ up to date
 *
 * An item that changes gets the next sequence number and moves to the end; a
 * cursor that stood on it steps to the next item. Items before the cursor have
 * been sent; the item at the cursor and those after it have not. A cursor at
 * the end has therefore sent the newest state of everything.
 *
 * A subscriber that cannot continue from where it was receives a picture: a
 * snapshot of the whole map (Feed.begin ... Feed.complete).
 *
 * Failure modes: the map bounds the number of graves. When it drops one that a
 * subscriber has not been sent, that subscriber gets a new picture.
 *
 * No I/O, no allocation. Thread: loop.
 */
#ifndef MASTER_FEED_H
#define MASTER_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/list.h"

/* The struct that embeds an item (master/map.h). */
enum master_kind {
	MASTER_FILE = 1,
	MASTER_DIR,
	MASTER_GRAVE, /* a removed name */
	MASTER_FORMER, /* a grave of a former owner; sent to nobody */
};

struct master_item {
	struct pool_list link; /* self-linked until first touched */
	uint64_t seq;
	uint8_t kind;	 /* enum master_kind */
	uint8_t watched; /* a cursor may stand on it */
};

struct master_feed {
	struct pool_list items;
	uint64_t seq;	    /* of the newest change */
	uint64_t forgotten; /* highest seq of a grave that was forgotten */
	bool end_watched;   /* a cursor may stand at the end */
	struct pool_list cursors;
	struct pool_list subs;
	unsigned int nlaps; /* subs with last_lap */
	struct pool_list waits, wait_heads; /* see struct master_wait */
	const struct master_sub *slowest; /* borrows; as of sent_min; or NULL */
	uint64_t has_min;   /* cache: least `has` of all subscribers */
	bool has_min_stale; /* has_min must be computed again */
	uint64_t sent_min; /* all subscribers have been sent all changes up to
			      this, and perhaps more */
};

void master_feed_init(struct master_feed *f);
void master_item_init(struct master_item *i, enum master_kind kind);

/* i has changed (or is new): next sequence number, to the end of the list. */
void master_feed_touch(struct master_feed *f, struct master_item *i);
/* Unlinks i, which the caller frees; in the same turn the caller touches the
 * item that replaces it (a grave or an entry). No-op if i was never touched. */
void master_feed_remove(struct master_feed *f, struct master_item *i);
/* Unlinks i, which is sent to nobody (MASTER_FORMER). */
void master_feed_drop(struct master_feed *f, struct master_item *i);
/* Unlinks i, a grave that nothing replaces. Subscribers that have not been sent
 * it begin a new picture. */
void master_feed_forget(struct master_feed *f, struct master_item *i);

/* ---- cursors ---- */

struct master_cursor {
	struct pool_list link;
	struct pool_list *next; /* borrows; the next item to send, or the list
				   head: at the end */
};

/* Opens it at the oldest item. */
void master_cursor_open(struct master_feed *f, struct master_cursor *c);
/* No-op on one that is closed or zeroed. */
void master_cursor_close(struct master_cursor *c);
/* The next item to send, or NULL: at the end. */
struct master_item *master_cursor_peek(const struct master_feed *f,
				       const struct master_cursor *c);
/* Steps over the item that peek returned. */
void master_cursor_advance(struct master_feed *f, struct master_cursor *c);
/* The cursor has passed all changes up to this sequence number. */
uint64_t master_cursor_upto(const struct master_feed *f,
			    const struct master_cursor *c);

/* ---- subscribers ---- */

#define MASTER_SUB_WINDOW 2 /* batches sent and not acknowledged */
/* Changes that may postpone the end of a picture (`moved`). After that many, an
 * item that changes before it was sent is left out of the picture and sent
 * after it. */
#define MASTER_LAP_MOVES 65536

struct master_sub {
	struct pool_list link;
	struct master_cursor cursor;
	bool begin;	  /* the next batch starts a picture */
	bool picture;	  /* a picture has begun and is not complete */
	/* The picture's last lap: the cursor has passed all items that have not
	 * changed since the picture began, and the master is ready. It sends
	 * those that have changed, and what the last inventories have brought.
	 */
	bool last_lap;
	/* Of a picture: graves up to this seq are not sent, because the
	 * subscriber drops every name that the picture does not list. */
	uint64_t from;
	uint64_t goal; /* the lap ends when the cursor has passed this */
	unsigned int moved; /* times that goal was raised: MASTER_LAP_MOVES */
	uint64_t acked;
	/* The subscriber and its kernel have applied everything up to this. It
	 * follows `acked`, but stands still from a picture's start until its
	 * end is acked, because the subscriber may still show deleted names. 0
	 * until the first ack, even of one that resumes at a seq: it has
	 * received all up to there, but has perhaps not acked it. */
	uint64_t has;
	uint64_t end; /* upto of the batch that ended the last picture */
	uint64_t sent[MASTER_SUB_WINDOW]; /* upto of each batch in flight,
					     oldest first */
	uint64_t sent_ns[MASTER_SUB_WINDOW];
	unsigned int nsent; /* batches in flight */
};

/* Continue after seq if no newer grave has been forgotten. Otherwise, or with
 * `whole`, begin a picture. */
void master_sub_open(struct master_feed *f, struct master_sub *s, bool whole,
		     uint64_t seq);
/* Make a picture include deletions since seq. The subscriber may have learned
 * of these names through other messages (REPLICATE) before it subscribed. */
void master_sub_since(struct master_sub *s, uint64_t seq);
/* No-op on one that is closed or zeroed. */
void master_sub_close(struct master_feed *f, struct master_sub *s);
/* Is the window open, so that a batch may be sent? */
bool master_sub_open_window(const struct master_sub *s);
/*
 * The next item for a batch, or NULL; take it with
 * master_cursor_advance(&s->cursor). Skips graves not newer than s->from. Looks
 * at no more than *scan items and counts it down.
 */
struct master_item *master_sub_next(struct master_feed *f,
				    struct master_sub *s, unsigned int *scan);
/*
 * Would a batch without items, in a picture, end at the same sequence number as
 * the newest batch in flight? Then it must wait: an ack names only that number,
 * so the ack of the earlier batch would count as that of the picture's end.
 */
bool master_sub_repeats(const struct master_feed *f,
			const struct master_sub *s);
/* Is there anything to send: an item, a begin, a complete that is due, or only
 * the newest sequence number? */
bool master_sub_due(const struct master_feed *f, const struct master_sub *s,
		    bool ready);
/*
 * A batch is full or has all items: sets the begin, complete and upto_seq of
 * its FEED, and counts it as in flight since now_ns. A picture completes only
 * once the master is ready, and contains everything that existed then.
 */
void master_sub_batch_end(struct master_feed *f, struct master_sub *s,
			  bool ready, uint64_t now_ns, bool *ret_begin,
			  bool *ret_complete, uint64_t *ret_upto);
/* The subscriber has applied the newest batch in flight that ends at seq, and
 * all batches sent before it. (An earlier batch may end at a higher seq: a
 * picture begins at the oldest item.) */
void master_sub_ack(struct master_feed *f, struct master_sub *s, uint64_t seq);
/* Upper bound of the changes that it has not acked: each change of an item
 * counts. During a picture: changes since `has`. */
uint64_t master_sub_behind(const struct master_feed *f,
			   const struct master_sub *s);

/* ---- waiting for the acks of all subscribers ---- */

/*
 * A wait ends when every subscriber has acked all changes made before the wait
 * began; one that receives a picture must have acked its end. If an item
 * changes again, is removed or is made again before all subscribers have been
 * sent it, its sequence number grows, and `point` grows with it. Otherwise the
 * wait could end although a subscriber has received neither the old state nor
 * the new one. If all subscribers have been sent the item, a further change of
 * it does not raise `point`: the ack of its old state is enough. So a name that
 * changes all the time does not prolong a wait. (If it always changes before
 * it can be sent: pump.c:needs_pause.)
 *
 * A later wait never has a lower point, so waits with the same point are
 * neighbours in the list; the first of them, the head, stores it for all. A
 * change that raises many waits merges their heads, at no cost per wait.
 */
struct master_wait {
	struct pool_list link; /* in feed.waits, oldest first */
	struct pool_list head; /* in feed.wait_heads, or empty: it follows */
	uint64_t point; /* heads: feed sequence that all must have */
};
void master_wait_add(struct master_feed *f, struct master_wait *w);
/* No-op on one that is not added (but initialised or zeroed). */
void master_wait_remove(struct master_feed *f, struct master_wait *w);
/* Removes and returns a wait that has ended; NULL: there is none. */
struct master_wait *master_wait_over(struct master_feed *f);
/* What all subscribers have (master_sub.has); the newest sequence number if
 * there are none. */
uint64_t master_feed_has(struct master_feed *f);

#endif
