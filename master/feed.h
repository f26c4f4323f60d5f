/*
 * The change feed: everything in the map, and what has left it lately, linked
 * in the order of its last change. A subscriber is a cursor in that list.
 * Sending the next batch is walking on from the cursor: nothing is queued per
 * subscriber, and a slow one is told newest states only.
 *
 *   oldest                                                    newest
 *   item(3) -> item(4) -> item(9) -> item(17) -> item(18) -> [end]
 *                 ^ slow                                       ^ up to date
 *
 * An item that changes gets the next sequence number and moves to the end; a
 * cursor that stood on it steps to the next one. What the cursor passed has
 * been told, what is at or behind it has not: so a cursor that has reached the
 * end has told the newest state of everything.
 *
 * Failure modes: the record of a deletion may be forgotten (the map bounds
 * them); who had not heard of it yet must be given the whole picture again.
 *
 * No I/O, no allocation. Thread: loop.
 */
#ifndef MASTER_FEED_H
#define MASTER_FEED_H

#include <stdbool.h>
#include <stdint.h>

#include "pool/base/list.h"

/* What an item is embedded in (master/map.h). */
enum master_kind {
	MASTER_FILE = 1,
	MASTER_DIR,
	MASTER_GRAVE, /* a name that is gone */
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
	uint64_t forgotten; /* a deletion of this sequence was the newest one
			       forgotten */
	bool end_watched;   /* a cursor may stand at the end */
	struct pool_list cursors;
	struct pool_list subs;
	unsigned int nlaps; /* of them in the last lap of a picture */
	struct pool_list waits;
	uint64_t told;	 /* cache: least acknowledged of all subscribers */
	bool told_stale; /* must be computed anew */
};

void master_feed_init(struct master_feed *f);
void master_item_init(struct master_item *i, enum master_kind kind);

/* i has changed (or is new): next sequence number, to the end of the list. */
void master_feed_touch(struct master_feed *f, struct master_item *i);
/* i is about to be freed, and what takes its place to be touched, in this turn;
 * no-op if it was never touched. */
void master_feed_remove(struct master_feed *f, struct master_item *i);
/* The same for a deletion that not everybody may have heard of: subscribers
 * that have not are given the whole picture again. */
void master_feed_forget(struct master_feed *f, struct master_item *i);

/* ---- cursors ---- */

struct master_cursor {
	struct pool_list link;
	struct pool_list *next; /* borrows; the item to tell next, or the head:
				   at the end */
};

/* Stands on the oldest item. */
void master_cursor_open(struct master_feed *f, struct master_cursor *c);
/* Stands on the first item newer than seq. Looks at no more than `scan_max`
 * items: -ERANGE beyond (then it stands on the oldest item). */
int master_cursor_open_at(struct master_feed *f, struct master_cursor *c,
			  uint64_t seq, unsigned int scan_max);
/* No-op on one that is closed or zeroed. */
void master_cursor_close(struct master_cursor *c);
/* The next item to tell, or NULL: at the end. */
struct master_item *master_cursor_peek(const struct master_feed *f,
				       const struct master_cursor *c);
/* Steps over the item that peek returned. */
void master_cursor_advance(struct master_feed *f, struct master_cursor *c);
/* Everything up to this sequence number has been passed. */
uint64_t master_cursor_upto(const struct master_feed *f,
			    const struct master_cursor *c);

/* ---- subscribers ---- */

#define MASTER_SUB_WINDOW 2 /* batches sent and not acknowledged */
/* What changes before it has been told puts the end of a picture off, so often;
 * after that it is missing there, and told behind it. */
#define MASTER_LAP_MOVES 65536

struct master_sub {
	struct pool_list link;
	struct master_cursor cursor;
	bool begin;	  /* the next batch starts a whole picture */
	bool picture;	  /* ... which has not been completed */
	bool last_lap;	  /* see master_sub_batch_end */
	/* the picture is of this change, or newer; no deletion before it is
	 * told */
	uint64_t from;
	uint64_t goal;	  /* complete when this is reached */
	unsigned int moved; /* how often it was put off: see MASTER_LAP_MOVES */
	uint64_t acked;
	uint64_t sent[MASTER_SUB_WINDOW]; /* upto of each, oldest first */
	uint64_t sent_ms[MASTER_SUB_WINDOW];
	unsigned int nsent;
};

/* Continue behind seq if nothing newer has been forgotten; else, or with
 * whole, a whole picture. */
void master_sub_open(struct master_feed *f, struct master_sub *s, bool whole,
		     uint64_t seq);
/* A picture tells deletions since seq, too: of what the subscriber was told of
 * otherwise before it subscribed. */
void master_sub_since(struct master_sub *s, uint64_t seq);
/* No-op on one that is closed or zeroed. */
void master_sub_close(struct master_feed *f, struct master_sub *s);
/* Could a batch be sent (the window is open)? */
bool master_sub_open_window(const struct master_sub *s);
/*
 * The next item to put in a batch, or NULL; take it with
 * master_cursor_advance(&s->cursor). Deletions older than a whole picture are
 * passed over; looks at no more than *scan items and counts it down.
 */
struct master_item *master_sub_next(struct master_feed *f,
				    struct master_sub *s, unsigned int *scan);
/* Is there anything to send: an item, a begin, or a complete that is due? */
bool master_sub_due(const struct master_feed *f, const struct master_sub *s,
		    bool ready);
/*
 * A batch has been put together: what must be said with it. complete is not
 * said before ready. now_ms: when it is sent.
 */
void master_sub_batch_end(struct master_feed *f, struct master_sub *s,
			  bool ready, uint64_t now_ms, bool *ret_begin,
			  bool *ret_complete, uint64_t *ret_upto);
/* The subscriber has applied everything up to seq. */
void master_sub_ack(struct master_feed *f, struct master_sub *s, uint64_t seq);

/* ---- waiting until everybody knows ---- */

/*
 * Waits until every subscriber has acknowledged all that had changed when the
 * wait began. A name that is not yet told to all and changes again, goes, or is
 * back takes the point along: its news would otherwise count as told to those
 * who heard neither state.
 */
struct master_wait {
	struct pool_list link;
	uint64_t point;
};
void master_wait_add(struct master_feed *f, struct master_wait *w);
/* No-op on one that is not added (but initialised or zeroed). */
void master_wait_remove(struct master_wait *w);
/* One that is over, removed; or NULL. */
struct master_wait *master_wait_over(struct master_feed *f);
/* Least acknowledged sequence of all subscribers; none: the newest change. */
uint64_t master_feed_told(struct master_feed *f);

#endif
