#include "master/feed.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void master_feed_init(struct master_feed *f)
{
	memset(f, 0, sizeof(*f));
	pool_list_init(&f->items);
	pool_list_init(&f->cursors);
	pool_list_init(&f->subs);
	pool_list_init(&f->waits);
	pool_list_init(&f->wait_heads);
}

void master_item_init(struct master_item *i, enum master_kind kind)
{
	pool_list_init(&i->link);
	i->seq = 0;
	i->kind = (uint8_t)kind;
	i->watched = 0;
}

/* A cursor now stands at pos, an item's link or the head: set its flag. */
static void watch(struct master_feed *f, struct pool_list *pos)
{
	if (pos == &f->items)
		f->end_watched = true;
	else
		pool_list_entry(pos, struct master_item, link)->watched = 1;
}

/* Move the cursors that stand on `from` to `to`. */
static void move_cursors(struct master_feed *f, const struct pool_list *from,
			 struct pool_list *to)
{
	struct pool_list *it, *tmp;
	bool any = false;

	pool_list_each(it, tmp, &f->cursors) {
		struct master_cursor *c =
			pool_list_entry(it, struct master_cursor, link);

		if (c->next == from) {
			c->next = to;
			any = true;
		}
	}
	if (any)
		watch(f, to);
}

static void unlink_item(struct master_feed *f, struct master_item *i)
{
	if (i->watched) {
		move_cursors(f, &i->link, i->link.next);
		i->watched = 0;
	}
	pool_list_del(&i->link);
}

static struct master_wait *wait_of_head(struct pool_list *head)
{
	return pool_list_entry(head, struct master_wait, head);
}

/* Waits with a point >= `from` now wait for `new`, the newest change. */
static void raise_waits(struct master_feed *f, uint64_t from, uint64_t new)
{
	struct pool_list *it = f->wait_heads.prev, *prev;
	struct master_wait *first = NULL;

	for (; it != &f->wait_heads && wait_of_head(it)->point >= from;
	     it = prev) {
		prev = it->prev;
		if (first)
			pool_list_del(&first->head);
		first = wait_of_head(it);
	}
	if (first)
		first->point = new;
}

static bool is_sent_to_all(struct master_feed *f, uint64_t seq)
{
	struct pool_list *it, *tmp;

	if (seq <= f->sent_min)
		return true;
	if (f->slowest && master_cursor_upto(f, &f->slowest->cursor) < seq)
		return false;
	f->sent_min = f->seq;
	f->slowest = NULL;
	pool_list_each(it, tmp, &f->subs) {
		const struct master_sub *s =
			pool_list_entry(it, struct master_sub, link);
		uint64_t upto = master_cursor_upto(f, &s->cursor);

		if (upto < f->sent_min) {
			f->sent_min = upto;
			f->slowest = s;
		}
	}
	return seq <= f->sent_min;
}

/* An item is about to move from this place to a later one: waits for it follow
 * (see struct master_wait). */
static void move_waits(struct master_feed *f, uint64_t old)
{
	if (!pool_list_empty(&f->waits) && !is_sent_to_all(f, old))
		raise_waits(f, old, f->seq + 1);
}

/* An item moves from old to new. Pictures in their last lap that have not sent
 * it yet must include it: their goal moves along. */
static void move_goals(struct master_feed *f, uint64_t old, uint64_t new)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &f->subs) {
		struct master_sub *s =
			pool_list_entry(it, struct master_sub, link);

		if (s->last_lap && old <= s->goal &&
		    old > master_cursor_upto(f, &s->cursor) &&
		    s->moved++ < MASTER_LAP_MOVES)
			s->goal = new;
	}
}

void master_feed_touch(struct master_feed *f, struct master_item *i)
{
	uint64_t old = i->seq;

	if (old && f->nlaps)
		move_goals(f, old, f->seq + 1);
	if (old) {
		move_waits(f, old);
		unlink_item(f, i);
	}
	i->seq = ++f->seq;
	pool_list_add_tail(&f->items, &i->link);
	if (f->end_watched) {
		f->end_watched = false;
		move_cursors(f, &f->items, &i->link);
	}
}

void master_feed_remove(struct master_feed *f, struct master_item *i)
{
	if (i->seq) {
		move_waits(f, i->seq);
		unlink_item(f, i);
	}
	i->seq = 0;
}

void master_feed_drop(struct master_feed *f, struct master_item *i)
{
	unlink_item(f, i);
	i->seq = 0;
}

/* ---- cursors ---- */

static void stand(struct master_feed *f, struct master_cursor *c,
		  struct pool_list *pos)
{
	c->next = pos;
	watch(f, pos);
}

void master_cursor_open(struct master_feed *f, struct master_cursor *c)
{
	pool_list_add_tail(&f->cursors, &c->link);
	stand(f, c, f->items.next);
}

/* Opens it at the first item newer than seq. Looks at no more than `scan_max`
 * items: -ERANGE beyond (then it is open at the oldest item). */
static int master_cursor_open_at(struct master_feed *f, struct master_cursor *c,
			  uint64_t seq, unsigned int scan_max)
{
	struct pool_list *pos = &f->items;

	while (pos->prev != &f->items &&
	       pool_list_entry(pos->prev, struct master_item, link)->seq >
		       seq) {
		if (!scan_max--) {
			master_cursor_open(f, c);
			return -ERANGE;
		}
		pos = pos->prev;
	}
	pool_list_add_tail(&f->cursors, &c->link);
	stand(f, c, pos);
	return 0;
}

void master_cursor_close(struct master_cursor *c)
{
	if (c->link.next)
		pool_list_del(&c->link);
	c->next = NULL;
}

struct master_item *master_cursor_peek(const struct master_feed *f,
				       const struct master_cursor *c)
{
	if (c->next == &f->items)
		return NULL;
	return pool_list_entry(c->next, struct master_item, link);
}

void master_cursor_advance(struct master_feed *f, struct master_cursor *c)
{
	assert(c->next != &f->items);
	/* `watched` of the item left may stay set: that costs only a search. */
	stand(f, c, c->next->next);
}

uint64_t master_cursor_upto(const struct master_feed *f,
			    const struct master_cursor *c)
{
	const struct master_item *i = master_cursor_peek(f, c);

	return i ? i->seq - 1 : f->seq;
}

/* ---- subscribers ---- */

static void set_lap(struct master_feed *f, struct master_sub *s, bool last)
{
	if (s->last_lap != last)
		f->nlaps += last ? 1 : -1u;
	s->last_lap = last;
}

static void begin_picture(struct master_feed *f, struct master_sub *s)
{
	s->begin = s->picture = true;
	set_lap(f, s, false);
	s->moved = 0;
	s->from = s->goal = f->seq;
}

void master_feed_forget(struct master_feed *f, struct master_item *i)
{
	struct pool_list *it, *tmp;

	if (i->seq > f->forgotten)
		f->forgotten = i->seq;
	/* Subscribers that have not been sent it begin a new picture. */
	pool_list_each(it, tmp, &f->subs) {
		struct master_sub *s =
			pool_list_entry(it, struct master_sub, link);

		if (i->seq <= s->from ||
		    i->seq <= master_cursor_upto(f, &s->cursor))
			continue;
		begin_picture(f, s);
		stand(f, &s->cursor, f->items.next);
		f->sent_min = 0;
	}
	/* Waits keep their points: nothing replaces i, and a subscriber that
	 * has not been sent it starts a picture, whose end is waited for. */
	if (i->seq)
		unlink_item(f, i);
	i->seq = 0;
}

/* Items to search back for the place where a subscriber resumes. */
#define RESUME_SCAN 65536u

void master_sub_open(struct master_feed *f, struct master_sub *s, bool whole,
		     uint64_t seq)
{
	memset(s, 0, sizeof(*s));
	if (!whole && seq >= f->forgotten && seq <= f->seq) {
		if (!master_cursor_open_at(f, &s->cursor, seq, RESUME_SCAN))
			s->acked = seq;
		else
			whole = true;
	} else {
		whole = true;
		master_cursor_open(f, &s->cursor);
	}
	if (whole)
		begin_picture(f, s);
	pool_list_add_tail(&f->subs, &s->link);
	f->has_min_stale = true;
	f->sent_min = 0;
	/* Changes that were sent to its former session may not have been
	 * received, and may have moved to a later place since. */
	raise_waits(f, 0, f->seq);
}

void master_sub_since(struct master_sub *s, uint64_t seq)
{
	if (s->picture && seq < s->from)
		s->from = seq;
}

void master_sub_close(struct master_feed *f, struct master_sub *s)
{
	if (!s->link.next)
		return;
	set_lap(f, s, false);
	if (f->slowest == s)
		f->slowest = NULL;
	master_cursor_close(&s->cursor);
	pool_list_del(&s->link);
	s->link.next = s->link.prev = NULL;
	f->has_min_stale = true;
}

bool master_sub_open_window(const struct master_sub *s)
{
	return s->nsent < MASTER_SUB_WINDOW;
}

struct master_item *master_sub_next(struct master_feed *f,
				    struct master_sub *s, unsigned int *scan)
{
	struct master_item *i;

	while ((i = master_cursor_peek(f, &s->cursor))) {
		if (!*scan)
			return NULL;
		--*scan;
		if (i->kind != MASTER_FORMER &&
		    (i->kind != MASTER_GRAVE || i->seq > s->from))
			return i;
		master_cursor_advance(f, &s->cursor);
	}
	return NULL;
}

bool master_sub_repeats(const struct master_feed *f, const struct master_sub *s)
{
	return s->picture && s->nsent &&
	       s->sent[s->nsent - 1] == master_cursor_upto(f, &s->cursor);
}

bool master_sub_due(const struct master_feed *f, const struct master_sub *s,
		    bool ready)
{
	uint64_t sent_upto = s->nsent ? s->sent[s->nsent - 1] : s->acked;

	if (master_cursor_peek(f, &s->cursor) || s->begin)
		return true;
	/* No item has the newest sequence number any more (that item is not
	 * sent to any subscriber), but waits need an ack of it. */
	if (sent_upto < f->seq)
		return true;
	/* It continues: a batch requests its first ack. */
	if (!s->picture && !s->nsent && s->has < s->acked)
		return true;
	return s->picture && ready && !master_sub_repeats(f, s);
}

void master_sub_batch_end(struct master_feed *f, struct master_sub *s,
			  bool ready, uint64_t now_ns, bool *ret_begin,
			  bool *ret_complete, uint64_t *ret_upto)
{
	uint64_t upto = master_cursor_upto(f, &s->cursor);

	*ret_begin = s->begin;
	s->begin = false;
	*ret_complete = false;
	if (s->picture && upto >= s->goal && !s->last_lap && ready) {
		/* All items that have not moved since the picture began are
		 * sent; those that have moved, and those that inventories have
		 * brought, are at or before f->seq. */
		s->goal = f->seq;
		set_lap(f, s, true);
	}
	if (s->picture && s->last_lap && upto >= s->goal &&
	    !master_sub_repeats(f, s)) {
		*ret_complete = true;
		s->end = upto;
		s->picture = false;
		set_lap(f, s, false);
	}
	*ret_upto = upto;
	assert(s->nsent < MASTER_SUB_WINDOW);
	s->sent[s->nsent] = upto;
	s->sent_ns[s->nsent++] = now_ns;
}

void master_sub_ack(struct master_feed *f, struct master_sub *s, uint64_t seq)
{
	unsigned int n = s->nsent;

	while (n && s->sent[n - 1] != seq)
		n--;
	if (!n)
		return; /* not sent, or covered by the ack of a later batch */
	s->acked = seq;
	s->nsent -= n;
	memmove(s->sent, s->sent + n, s->nsent * sizeof(s->sent[0]));
	memmove(s->sent_ns, s->sent_ns + n, s->nsent * sizeof(s->sent_ns[0]));
	if (!s->picture && s->acked >= s->end)
		s->has = s->acked;
	f->has_min_stale = true;
}

uint64_t master_sub_behind(const struct master_feed *f,
			   const struct master_sub *s)
{
	bool whole = s->picture || s->acked < s->end;

	return f->seq - (whole ? s->has : s->acked);
}

/* ---- waits ---- */

uint64_t master_feed_has(struct master_feed *f)
{
	struct pool_list *it, *tmp;

	if (pool_list_empty(&f->subs))
		return f->seq;
	if (f->has_min_stale) {
		f->has_min = UINT64_MAX;
		pool_list_each(it, tmp, &f->subs) {
			const struct master_sub *s =
				pool_list_entry(it, struct master_sub, link);

			if (s->has < f->has_min)
				f->has_min = s->has;
		}
		f->has_min_stale = false;
	}
	return f->has_min;
}

void master_wait_add(struct master_feed *f, struct master_wait *w)
{
	pool_list_init(&w->head);
	w->point = f->seq;
	if (pool_list_empty(&f->wait_heads) ||
	    wait_of_head(f->wait_heads.prev)->point < f->seq)
		pool_list_add_tail(&f->wait_heads, &w->head);
	pool_list_add_tail(&f->waits, &w->link);
}

/* w leaves. If it is a head, the next wait of the same point becomes one. */
static void leave_next(struct master_feed *f, struct master_wait *w)
{
	struct master_wait *next =
		pool_list_entry(w->link.next, struct master_wait, link);

	if (pool_list_empty(&w->head))
		return;
	if (&next->link != &f->waits && pool_list_empty(&next->head)) {
		next->point = w->point;
		pool_list_add(&w->head, &next->head);
	}
	pool_list_del(&w->head);
}

void master_wait_remove(struct master_feed *f, struct master_wait *w)
{
	if (!w->link.next || pool_list_empty(&w->link))
		return;
	leave_next(f, w);
	pool_list_del(&w->link);
}

struct master_wait *master_wait_over(struct master_feed *f)
{
	struct master_wait *w;

	if (pool_list_empty(&f->waits))
		return NULL;
	w = pool_list_first(&f->waits, struct master_wait, link);
	if (w->point > master_feed_has(f))
		return NULL;
	master_wait_remove(f, w);
	return w;
}
