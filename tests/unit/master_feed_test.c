/*
 * The feed, the map and subscribers' mirrors, without any I/O.
 */
#include "tests/lib/unit.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master/map.h"

static const struct master_attrs attrs = { .mode = 0644 };

static struct master_file *put(struct master_map *m, const char *path,
			       uint64_t gen)
{
	struct master_file *f;
	bool made;

	assert_int_equal(0, master_map_make_file(m, path, strlen(path), &attrs,
						 &f, &made));
	f->gen = gen;
	master_map_touch_file(m, f);
	return f;
}

static void del(struct master_map *m, const char *path, uint64_t tomb)
{
	struct master_file *f = master_map_file(m, path, strlen(path));

	assert_non_null(f);
	assert_int_equal(0, master_map_remove_file(m, f, tomb, 1));
}

/* ---- cursors ---- */

static void a_cursor_sees_items_in_the_order_of_their_last_change(void **state)
{
	struct master_cursor c = { 0 };
	struct master_map m;
	struct master_file *a, *b;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	a = put(&m, "a", 1);
	b = put(&m, "b", 2);
	master_map_touch_file(&m, a);
	master_cursor_open(&m.feed, &c);
	assert_ptr_equal(&b->item, master_cursor_peek(&m.feed, &c));
	master_cursor_advance(&m.feed, &c);
	assert_ptr_equal(&a->item, master_cursor_peek(&m.feed, &c));
	master_cursor_advance(&m.feed, &c);
	assert_null(master_cursor_peek(&m.feed, &c));
	assert_int_equal(m.feed.seq, master_cursor_upto(&m.feed, &c));
	/* At the end of the list, a cursor sees later changes. */
	master_map_touch_file(&m, b);
	assert_ptr_equal(&b->item, master_cursor_peek(&m.feed, &c));
	master_cursor_close(&c);
	master_map_fini(&m);
}

static void a_cursor_steps_on_when_its_item_moves_or_goes(void **state)
{
	struct master_cursor c = { 0 };
	struct master_map m;
	struct master_file *a, *b;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	a = put(&m, "a", 1);
	b = put(&m, "b", 2);
	master_cursor_open(&m.feed, &c);
	master_map_touch_file(&m, a);
	assert_ptr_equal(&b->item, master_cursor_peek(&m.feed, &c));
	del(&m, "b", 0);
	assert_ptr_equal(&a->item, master_cursor_peek(&m.feed, &c));
	master_cursor_close(&c);
	master_map_fini(&m);
}

/* ---- acks and waits ---- */

static void a_sub_gets_some(struct master_map *m, struct master_sub *s,
			    unsigned int max)
{
	unsigned int scan = 100000;
	bool begin, complete;
	uint64_t upto;

	for (; max && master_sub_next(&m->feed, s, &scan); max--)
		master_cursor_advance(&m->feed, &s->cursor);
	master_sub_batch_end(&m->feed, s, true, 0, &begin, &complete, &upto);
}

static void a_sub_gets(struct master_map *m, struct master_sub *s)
{
	a_sub_gets_some(m, s, UINT_MAX);
}

static void behind_is_what_was_not_acked(void **state)
{
	struct master_sub s = { 0 }, back = { 0 };
	struct master_map m;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	put(&m, "a", 1);
	put(&m, "b", 1);
	/* A picture: all of it, until its end is acked. */
	master_sub_open(&m.feed, &s, true, 0);
	assert_int_equal(2, master_sub_behind(&m.feed, &s));
	a_sub_gets_some(&m, &s, 1);
	master_sub_ack(&m.feed, &s, 1);
	assert_int_equal(2, master_sub_behind(&m.feed, &s));
	a_sub_gets(&m, &s);
	assert_int_equal(2, master_sub_behind(&m.feed, &s));
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_int_equal(0, master_sub_behind(&m.feed, &s));
	/* Each change, sent or not. */
	put(&m, "c", 1);
	put(&m, "d", 1);
	a_sub_gets(&m, &s);
	put(&m, "e", 1);
	assert_int_equal(3, master_sub_behind(&m.feed, &s));
	master_sub_ack(&m.feed, &s, m.feed.seq - 1);
	assert_int_equal(1, master_sub_behind(&m.feed, &s));
	/* One that continues has what it says that it has. */
	master_sub_open(&m.feed, &back, false, m.feed.seq - 2);
	assert_int_equal(2, master_sub_behind(&m.feed, &back));
	master_sub_close(&m.feed, &back);
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void a_wait_is_over_when_all_have_acknowledged(void **state)
{
	struct master_sub s1 = { 0 }, s2 = { 0 };
	struct master_wait w = { 0 };
	struct master_map m;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	master_sub_open(&m.feed, &s1, true, 0);
	master_sub_open(&m.feed, &s2, true, 0);
	put(&m, "a", 1);
	a_sub_gets(&m, &s1);
	a_sub_gets(&m, &s2);
	master_wait_add(&m.feed, &w);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s1, m.feed.seq);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s2, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	/* A subscriber that leaves is not waited for. */
	put(&m, "b", 1);
	master_wait_add(&m.feed, &w);
	master_sub_close(&m.feed, &s1);
	assert_null(master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s2);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_map_fini(&m);
}

/* Number of deletions sent to a subscriber that knows the feed up to
 * `since`. */
static unsigned int deletions_sent(struct master_map *m, uint64_t since)
{
	struct master_sub s = { 0 };
	struct master_item *i;
	unsigned int scan = 100, n = 0;

	master_sub_open(&m->feed, &s, true, 0);
	master_sub_since(&s, since);
	while ((i = master_sub_next(&m->feed, &s, &scan))) {
		n += i->kind == MASTER_GRAVE;
		master_cursor_advance(&m->feed, &s.cursor);
	}
	master_sub_close(&m->feed, &s);
	return n;
}

static void a_picture_tells_what_went_since_its_session_began(void **state)
{
	struct master_map m;
	uint64_t joined;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	assert_int_equal(0, master_map_remove_file(&m, put(&m, "a", 1), 2, 0));
	joined = m.feed.seq;
	assert_int_equal(0, master_map_remove_file(&m, put(&m, "b", 3), 4, 0));
	assert_int_equal(0, deletions_sent(&m, m.feed.seq));
	assert_int_equal(1, deletions_sent(&m, joined));
	master_map_fini(&m);
}

static void a_wait_follows_an_untold_name_that_changes_again(void **state)
{
	struct master_sub s = { 0 };
	struct master_wait w = { 0 };
	struct master_map m;
	struct master_file *a;
	uint64_t point;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	master_sub_open(&m.feed, &s, true, 0);
	put(&m, "notified", 1);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	a = put(&m, "a", 1);
	put(&m, "b", 1);
	master_wait_add(&m.feed, &w);
	point = m.feed.seq;
	/* b, the last item before the point, is sent; a has moved beyond it. */
	put(&m, "notified", 2);
	assert_int_equal(point, w.point);
	master_map_touch_file(&m, a);
	assert_true(w.point > point);
	assert_int_equal(a->item.seq, w.point);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void a_wait_follows_the_name_that_was_changed_last(void **state)
{
	struct master_sub s = { 0 };
	struct master_wait w = { 0 };
	struct master_map m;
	struct master_file *a;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	master_sub_open(&m.feed, &s, true, 0);
	a = put(&m, "a", 1);
	master_wait_add(&m.feed, &w);
	assert_int_equal(a->item.seq, w.point); /* the wait follows a */
	master_map_touch_file(&m, a);
	assert_int_equal(a->item.seq, w.point);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, w.point - 1);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, w.point);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void k_goes(struct master_map *m)
{
	del(m, "d/k", 9);
}

static void k_comes(struct master_map *m)
{
	put(m, "d/k", 10);
}

static void d_goes(struct master_map *m)
{
	assert_int_equal(0, master_map_remove_dir(m, master_map_dir(m, "d", 1),
						  1));
}

/* `first` changes a name, and a wait begins. Another name changes, then `then`
 * changes the first again. An ack of the other name alone does not end the
 * wait. */
static void is_waited_for(struct master_map *m, struct master_sub *s,
			  void (*first)(struct master_map *m),
			  void (*then)(struct master_map *m))
{
	struct master_wait w = { 0 };
	unsigned int scan = 1;
	bool begin, complete;
	uint64_t upto;

	a_sub_gets(m, s);
	master_sub_ack(&m->feed, s, m->feed.seq);
	first(m);
	put(m, "other", m->feed.seq);
	master_wait_add(&m->feed, &w);
	then(m);
	assert_non_null(master_sub_next(&m->feed, s, &scan));
	master_cursor_advance(&m->feed, &s->cursor);
	master_sub_batch_end(&m->feed, s, true, 0, &begin, &complete, &upto);
	master_sub_ack(&m->feed, s, upto);
	assert_null(master_wait_over(&m->feed));
	a_sub_gets(m, s);
	master_sub_ack(&m->feed, s, m->feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m->feed));
}

static void a_wait_follows_an_untold_name_that_goes_or_comes_back(void **state)
{
	struct master_sub s = { 0 };
	struct master_map m;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	master_sub_open(&m.feed, &s, true, 0);
	k_comes(&m);
	k_goes(&m);
	is_waited_for(&m, &s, k_comes, k_goes);
	k_comes(&m);
	is_waited_for(&m, &s, k_goes, k_comes);
	k_goes(&m);
	is_waited_for(&m, &s, d_goes, k_comes);
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static unsigned int nheads(const struct master_map *m)
{
	const struct pool_list *it;
	unsigned int n = 0;

	for (it = m->feed.wait_heads.next; it != &m->feed.wait_heads;
	     it = it->next)
		n++;
	return n;
}

/* Waits that a change moves to the same point share one head, so that a later
 * change visits them once. */
static void waits_that_a_change_raises_are_one_from_then_on(void **state)
{
	struct master_wait w[6];
	struct master_sub s = { 0 };
	struct master_file *f[6];
	struct master_map m;
	char name[16];
	int i;

	(void)state;
	memset(w, 0, sizeof(w));
	assert_int_equal(0, master_map_init(&m, 10, 10));
	master_sub_open(&m.feed, &s, true, 0);
	for (i = 0; i < 6; i++) {
		snprintf(name, sizeof(name), "k%d", i);
		f[i] = put(&m, name, 1);
		master_wait_add(&m.feed, &w[i]);
	}
	assert_int_equal(6, nheads(&m));
	master_map_touch_file(&m, f[2]);
	assert_int_equal(3, nheads(&m)); /* 0; 1; 2 to 5 */
	master_wait_remove(&m.feed, &w[2]); /* 3 is the head */
	master_wait_remove(&m.feed, &w[2]);
	master_wait_remove(&m.feed, &w[4]);
	master_wait_remove(&m.feed, &w[0]);
	assert_int_equal(2, nheads(&m));
	assert_int_equal(m.feed.seq, w[3].point);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w[1], master_wait_over(&m.feed));
	assert_ptr_equal(&w[3], master_wait_over(&m.feed));
	assert_ptr_equal(&w[5], master_wait_over(&m.feed));
	assert_null(master_wait_over(&m.feed));
	assert_int_equal(0, nheads(&m));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* ---- subscribers ---- */

/* The grave of a former owner is sent to no subscriber, and may be forgotten
 * before a slow subscriber's cursor has passed it. */
static void is_acked_although_it_is_gone(bool waited_for_before)
{
	const struct master_account a = master_account_of_owner(7);
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	struct master_map m;

	assert_int_equal(0, master_map_init(&m, 10, 10));
	put(&m, "a", 1);
	master_sub_open(&m.feed, &s, true, 0);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_false(master_sub_due(&m.feed, &s, true));
	assert_non_null(master_map_add_former(&m, "a", 1, 7, a, 5, false,
					      10));
	assert_non_null(master_map_add_former(&m, "b", 1, 7, a, 5, false,
					      10));
	if (waited_for_before)
		master_wait_add(&m.feed, &w);
	assert_int_equal(2, master_map_forget(&m, 20, 10));
	if (!waited_for_before)
		master_wait_add(&m.feed, &w);
	assert_true(master_sub_due(&m.feed, &s, true));
	a_sub_gets(&m, &s);
	assert_false(master_sub_due(&m.feed, &s, true));
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void a_wait_ends_when_what_came_after_all_that_is_sent_is_dropped(
	void **state)
{
	(void)state;
	is_acked_although_it_is_gone(true);
	is_acked_although_it_is_gone(false);
}

/* Giving a file away is a deletion for the former owner, whose grave changes
 * together with the file. */
static void a_wait_for_a_file_that_was_given_away_is_for_its_deletion(
	void **state)
{
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	unsigned int scan = 1;
	struct master_file *f;
	struct master_map m;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	f = put(&m, "k", 5);
	f->uid = 8;
	assert_non_null(master_map_disown(&m, f, 7, 1));
	master_sub_open(&m.feed, &s, true, 0);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	master_map_touch_file(&m, f);
	master_wait_add(&m.feed, &w);
	del(&m, "k", 6);
	assert_null(master_sub_next(&m.feed, &s, &scan)); /* his grave */
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	master_sub_ack(&m.feed, &s, upto);
	assert_null(master_wait_over(&m.feed));
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* The name changes again before each ack. */
static void a_name_that_always_changes_does_not_prolong_a_wait(void **state)
{
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	struct master_file *f;
	struct master_map m;
	uint64_t seq;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	f = put(&m, "a", 1);
	master_sub_open(&m.feed, &s, true, 0);
	master_wait_add(&m.feed, &w);
	master_map_touch_file(&m, f); /* not sent yet: the wait follows it */
	a_sub_gets(&m, &s);
	seq = m.feed.seq;
	master_map_touch_file(&m, f);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, seq - 1);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* Batches in flight when the connection breaks may be lost; their names are
 * sent again, at a later place of the feed. */
static void reconnect_while_a_wait(bool touched_after)
{
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	struct master_file *a, *b;
	struct master_map m;
	uint64_t seq;

	assert_int_equal(0, master_map_init(&m, 10, 10));
	a = put(&m, "a", 1);
	master_sub_open(&m.feed, &s, true, 0);
	a_sub_gets(&m, &s);
	seq = m.feed.seq;
	master_sub_ack(&m.feed, &s, seq);
	master_map_touch_file(&m, a);
	b = put(&m, "b", 1);
	master_wait_add(&m.feed, &w);
	a_sub_gets(&m, &s);
	master_map_touch_file(&m, touched_after ? b : a); /* sent before */
	master_sub_close(&m.feed, &s);
	master_sub_open(&m.feed, &s, false, seq);
	if (touched_after)
		master_map_touch_file(&m, a); /* not sent yet */
	a_sub_gets_some(&m, &s, 1); /* b */
	master_sub_ack(&m.feed, &s, m.feed.seq - 1);
	a_sub_gets(&m, &s);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void a_reconnected_mount_is_waited_for_up_to_now(void **state)
{
	(void)state;
	reconnect_while_a_wait(false);
	reconnect_while_a_wait(true);
}

static void a_picture_is_completed_only_when_the_master_is_ready(void **state)
{
	struct master_sub s = { 0 };
	struct master_map m;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	put(&m, "a", 1);
	master_sub_open(&m.feed, &s, true, 0);
	assert_true(master_sub_due(&m.feed, &s, false));
	master_cursor_advance(&m.feed, &s.cursor);
	master_sub_batch_end(&m.feed, &s, false, 0, &begin, &complete, &upto);
	assert_true(begin);
	assert_false(complete);
	master_sub_ack(&m.feed, &s, upto);
	assert_false(master_sub_due(&m.feed, &s, false));
	assert_true(master_sub_due(&m.feed, &s, true));
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_false(begin);
	assert_true(complete);
	assert_false(master_sub_due(&m.feed, &s, true));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* The subscriber shows a deleted name, whose grave was forgotten, until its
 * picture is complete. */
static void a_wait_for_a_forgotten_deletion_is_for_the_pictures_end(
	void **state)
{
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	unsigned int scan = 1;
	struct master_map m;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 0));
	put(&m, "a", 1);
	put(&m, "b", 1);
	master_sub_open(&m.feed, &s, true, 0);
	a_sub_gets(&m, &s);
	master_sub_ack(&m.feed, &s, m.feed.seq);
	del(&m, "a", 0);
	master_wait_add(&m.feed, &w);
	assert_int_equal(1, master_map_forget(&m, 0, 10));
	put(&m, "c", 1);
	put(&m, "d", 1);
	assert_non_null(master_sub_next(&m.feed, &s, &scan)); /* b */
	master_cursor_advance(&m.feed, &s.cursor);
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(begin && !complete && upto >= w.point);
	a_sub_gets(&m, &s); /* the end */
	master_sub_ack(&m.feed, &s, upto);
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, m.feed.seq);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* A batch in flight already extends to the end, but does not say that the
 * picture is complete. A second batch up to the same place would share its
 * ack. */
static void the_end_of_a_picture_has_an_ack_of_its_own(void **state)
{
	struct master_wait w = { 0 };
	struct master_sub s = { 0 };
	struct master_map m;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 10));
	put(&m, "a", 1);
	master_sub_open(&m.feed, &s, true, 0);
	master_wait_add(&m.feed, &w);
	master_cursor_advance(&m.feed, &s.cursor);
	assert_false(master_sub_repeats(&m.feed, &s));
	master_sub_batch_end(&m.feed, &s, false, 0, &begin, &complete, &upto);
	assert_false(master_sub_due(&m.feed, &s, true));
	assert_true(master_sub_repeats(&m.feed, &s));
	master_sub_ack(&m.feed, &s, upto);
	assert_null(master_wait_over(&m.feed));
	assert_true(master_sub_due(&m.feed, &s, true));
	assert_false(master_sub_repeats(&m.feed, &s));
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(complete);
	assert_false(master_sub_repeats(&m.feed, &s)); /* the last batch */
	assert_null(master_wait_over(&m.feed));
	master_sub_ack(&m.feed, &s, upto);
	assert_ptr_equal(&w, master_wait_over(&m.feed));
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* The newer batch, the picture's first, ends at a lower place; only it is
 * acked. */
static void one_ack_is_for_a_pictures_begin_and_what_was_before(void **state)
{
	struct master_sub s = { 0 };
	unsigned int scan = 1;
	struct master_map m;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 0));
	put(&m, "a", 1);
	put(&m, "b", 1);
	put(&m, "c", 1);
	master_sub_open(&m.feed, &s, true, 0);
	a_sub_gets(&m, &s);
	del(&m, "a", 0);
	assert_int_equal(1, master_map_forget(&m, 0, 10));
	assert_non_null(master_sub_next(&m.feed, &s, &scan)); /* b */
	master_cursor_advance(&m.feed, &s.cursor);
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(begin && upto < s.sent[0]);
	assert_false(master_sub_open_window(&s));
	master_sub_ack(&m.feed, &s, upto);
	assert_int_equal(0, s.nsent);
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* A subscriber to which only "b" was sent. "a" was sent in no batch, because it
 * moved behind the picture's start. */
static struct master_file *one_not_sent(struct master_map *m,
					struct master_sub *s,
					struct master_file **ret_b)
{
	struct master_file *a;
	bool begin, complete;
	uint64_t upto;

	assert_int_equal(0, master_map_init(m, 10, 10));
	a = put(m, "a", 1);
	*ret_b = put(m, "b", 1);
	master_sub_open(&m->feed, s, true, 0);
	master_map_touch_file(m, a);
	master_cursor_advance(&m->feed, &s->cursor); /* b */
	master_sub_batch_end(&m->feed, s, true, 0, &begin, &complete, &upto);
	assert_true(begin);
	assert_false(complete);
	master_sub_ack(&m->feed, s, upto);
	return a;
}

static void a_picture_is_complete_after_names_that_moved_are_sent(
	void **state)
{
	struct master_sub s = { 0 };
	struct master_map m;
	struct master_file *b;
	bool begin, complete;
	uint64_t upto;

	(void)state;
	(void)one_not_sent(&m, &s, &b);
	master_cursor_advance(&m.feed, &s.cursor); /* a */
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(complete);
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

/* The name moves each time before the cursor reaches it. */
static void a_picture_waits_for_what_moves_in_its_last_lap(void **state)
{
	struct master_sub s = { 0 };
	struct master_map m;
	struct master_file *a, *b;
	bool begin, complete;
	uint64_t upto;
	unsigned int i;

	(void)state;
	a = one_not_sent(&m, &s, &b);
	for (i = 0; i < 10; i++) {
		master_map_touch_file(&m, a);
		master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete,
				     &upto);
		assert_false(complete);
		master_sub_ack(&m.feed, &s, upto);
	}
	put(&m, "c", 1); /* a new name is no part of the picture */
	master_map_touch_file(&m, b); /* b was sent already */
	master_cursor_advance(&m.feed, &s.cursor); /* a */
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(complete);
	assert_int_equal(0, m.feed.nlaps);
	master_sub_close(&m.feed, &s);
	master_map_fini(&m);
}

static void a_picture_does_not_wait_for_ever(void **state)
{
	struct master_sub s = { 0 };
	struct master_map m;
	struct master_file *a, *b;
	bool begin, complete;
	uint64_t upto;
	unsigned int i;

	(void)state;
	a = one_not_sent(&m, &s, &b);
	for (i = 0; i < MASTER_LAP_MOVES; i++)
		master_map_touch_file(&m, a);
	assert_true(s.goal > master_cursor_upto(&m.feed, &s.cursor));
	master_map_touch_file(&m, a);
	master_sub_batch_end(&m.feed, &s, true, 0, &begin, &complete, &upto);
	assert_true(complete);
	assert_true(s.moved > MASTER_LAP_MOVES);
	master_sub_close(&m.feed, &s);
	assert_int_equal(0, m.feed.nlaps);
	master_map_fini(&m);
}

static void a_forgotten_deletion_causes_a_whole_picture(void **state)
{
	struct master_sub slow = { 0 }, back = { 0 };
	struct master_map m;
	uint64_t seq;

	(void)state;
	assert_int_equal(0, master_map_init(&m, 10, 0));
	put(&m, "a", 1);
	put(&m, "b", 1);
	seq = m.feed.seq;
	master_sub_open(&m.feed, &slow, false, seq);
	assert_false(slow.begin);
	del(&m, "a", 0);
	assert_int_equal(1, master_map_forget(&m, 0, 10));
	assert_true(slow.begin);
	master_sub_open(&m.feed, &back, false, seq);
	assert_true(back.begin);
	master_sub_close(&m.feed, &back);
	master_sub_open(&m.feed, &back, false, m.feed.seq);
	assert_false(back.begin);
	master_sub_close(&m.feed, &back);
	master_sub_close(&m.feed, &slow);
	master_map_fini(&m);
}

/* ---- the model: mirrors equal the map, whatever happens ---- */

#define NAMES 64
#define SUBS 4

/* State of a mirror after a batch. */
struct shown {
	uint64_t gen[NAMES]; /* 0: not there */
	uint64_t at[NAMES];  /* time at which the name had this state */
	bool seen[NAMES], picture;
	uint64_t upto;
};

/* When a picture begins, one ack covers batches of before as well, so more than
 * MASTER_SUB_WINDOW may be in flight. */
#define IN_FLIGHT (4 * MASTER_SUB_WINDOW)

struct mirror {
	struct master_sub sub;
	struct shown now;		       /* after all batches received */
	struct shown acked;		       /* after the last batch acked */
	struct shown sent[IN_FLIGHT]; /* after each later batch */
	unsigned int nsent;
	unsigned int pictures, resumes;
};

/* An fsync, which ends when every mirror has each name's state of that time, or
 * a newer one. */
struct fsync {
	struct master_wait w;
	uint64_t at[NAMES];
	bool waits;
};

#define FSYNCS 6

static struct fsync fsyncs[FSYNCS];
static uint64_t changed_at[NAMES], gone_at[NAMES], now;

static uint64_t rng;

static unsigned int roll(unsigned int n)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (unsigned int)((rng >> 20) % n);
}

static void name_of(unsigned int i, char *buf)
{
	sprintf(buf, "d%u/e%u/n%u", i % 3, i % 7, i);
}

static unsigned int index_of(const char *path, size_t len)
{
	char copy[64];

	memcpy(copy, path, len);
	copy[len] = 0;
	return (unsigned int)atoi(strrchr(copy, 'n') + 1);
}

static void apply(struct shown *r, struct master_item *i)
{
	char path[POOL_PATH_MAX + 1];
	unsigned int n;
	int len;

	if (i->kind == MASTER_DIR)
		return;
	if (i->kind == MASTER_GRAVE) {
		struct master_grave *g = master_item_grave(i);

		n = index_of(g->path, g->path_len);
		r->gen[n] = 0;
	} else {
		len = pool_tree_path(&master_item_file(i)->e, path,
				     sizeof(path));
		n = index_of(path, (size_t)len);
		r->gen[n] = master_item_file(i)->gen;
	}
	r->seen[n] = true;
	r->at[n] = changed_at[n];
}

/* Names that the picture does not list are removed. (A name may have been
 * created again, which a later batch reports.) */
static void complete_picture(struct shown *r)
{
	unsigned int n;

	assert_true(r->picture);
	r->picture = false;
	for (n = 0; n < NAMES; n++) {
		if (r->seen[n])
			continue;
		r->gen[n] = 0;
		if (r->at[n] < gone_at[n])
			r->at[n] = gone_at[n];
	}
}

static void step(struct master_map *m, struct mirror *r, unsigned int max,
		 bool ready)
{
	unsigned int scan = roll(50) + 1;
	bool begin, complete, was_begin = r->sub.begin;
	struct master_item *it;
	uint64_t upto;

	bool news = !roll(4) && !master_sub_repeats(&m->feed, &r->sub);

	if (!master_sub_open_window(&r->sub) || r->nsent == IN_FLIGHT ||
	    (!news && !master_sub_due(&m->feed, &r->sub, ready)))
		return;
	if (was_begin) {
		memset(r->now.seen, 0, sizeof(r->now.seen));
		r->now.picture = true;
		r->pictures++;
	}
	while (max-- && (it = master_sub_next(&m->feed, &r->sub, &scan))) {
		apply(&r->now, it);
		master_cursor_advance(&m->feed, &r->sub.cursor);
	}
	master_sub_batch_end(&m->feed, &r->sub, ready, 0, &begin, &complete,
			     &upto);
	assert_int_equal(was_begin, begin);
	if (complete)
		complete_picture(&r->now);
	r->now.upto = upto;
	r->sent[r->nsent++] = r->now;
}

/* The subscriber acks one or more of the batches in flight, oldest first. */
static void ack(struct master_map *m, struct mirror *r)
{
	unsigned int n = 1 + roll(2);

	if (n > r->nsent)
		n = r->nsent;
	if (!n)
		return;
	r->acked = r->sent[n - 1];
	r->nsent -= n;
	memmove(r->sent, r->sent + n, r->nsent * sizeof(r->sent[0]));
	master_sub_ack(&m->feed, &r->sub, r->acked.upto);
}

/* Some of the batches in flight are lost. */
static void reconnect(struct master_map *m, struct mirror *r)
{
	bool whole;

	r->nsent = roll(r->nsent + 1);
	r->now = r->acked = r->nsent ? r->sent[r->nsent - 1] : r->acked;
	r->nsent = 0;
	whole = r->now.picture || !r->now.upto || !roll(4);
	master_sub_close(&m->feed, &r->sub);
	assert_ptr_not_equal(m->feed.slowest, &r->sub);
	master_sub_open(&m->feed, &r->sub, whole, r->now.upto);
	r->resumes += !r->sub.begin;
}

static void begin_fsync(struct master_map *m, struct fsync *y)
{
	if (y->waits && !roll(4)) { /* its node has disconnected */
		master_wait_remove(&m->feed, &y->w);
		y->waits = false;
	}
	if (y->waits)
		return;
	memcpy(y->at, changed_at, sizeof(y->at));
	master_wait_add(&m->feed, &y->w);
	y->waits = true;
}

/* When an fsync ends, every mirror must have the names' states of its start. */
static unsigned int end_fsyncs(struct master_map *m, const struct mirror *r)
{
	unsigned int s, n, ended = 0;
	struct master_wait *w;

	while ((w = master_wait_over(&m->feed))) {
		struct fsync *y = pool_container_of(w, struct fsync, w);

		for (s = 0; s < SUBS; s++)
			for (n = 0; n < NAMES; n++)
				assert_true(r[s].acked.at[n] >= y->at[n]);
		y->waits = false;
		ended++;
	}
	return ended;
}

static void change(struct master_map *m, uint64_t *gen)
{
	unsigned int n = roll(NAMES);
	struct master_file *f;
	char path[64];
	bool was, is;

	name_of(n, path);
	f = master_map_file(m, path, strlen(path));
	was = f;
	now++;
	switch (roll(6)) {
	case 0:
	case 1:
	case 2:
		put(m, path, ++*gen);
		break;
	case 3:
		if (f)
			del(m, path, ++*gen);
		break;
	case 4:
		if (f)
			del(m, path, 0);
		break;
	case 5:
		if (f)
			master_map_touch_file(m, f);
		break;
	}
	is = master_map_file(m, path, strlen(path));
	if (was || is) /* otherwise nothing has changed */
		changed_at[n] = now;
	if (was && !is)
		gone_at[n] = now;
}

static void compare(struct master_map *m, const struct mirror *r)
{
	unsigned int i;
	char path[64];

	for (i = 0; i < NAMES; i++) {
		struct master_file *f;

		name_of(i, path);
		f = master_map_file(m, path, strlen(path));
		assert_int_equal(f ? f->gen : 0, r->acked.gen[i]);
	}
}

static unsigned int pictures, resumes, forgotten, synced;

/* sent_min: every subscriber's cursor is at least there. */
static void check_sent(const struct master_map *m, const struct mirror *r)
{
	for (unsigned int s = 0; s < SUBS; s++)
		assert_true(m->feed.sent_min <=
			    master_cursor_upto(&m->feed, &r[s].sub.cursor));
}

static void run_model(uint64_t seed, bool few)
{
	static struct mirror r[SUBS];
	struct master_map m;
	uint64_t gen = 0;
	unsigned int i, s;

	rng = seed;
	memset(r, 0, sizeof(r));
	memset(fsyncs, 0, sizeof(fsyncs));
	memset(changed_at, 0, sizeof(changed_at));
	memset(gone_at, 0, sizeof(gone_at));
	/* With few graves pictures are frequent, and few waits end. */
	assert_int_equal(0, master_map_init(&m, few ? 12 : 32, few ? 8 : 32));
	for (s = 0; s < SUBS; s++)
		master_sub_open(&m.feed, &r[s].sub, true, 0);
	for (i = 0; i < 20000; i++) {
		change(&m, &gen);
		s = roll(SUBS);
		/* Subscribers advance at different rates, the last one very
		 * rarely. */
		if (!roll(1 + (few ? 5 : 1) * s))
			step(&m, &r[s], roll(few ? 9 : 33), i > 2000);
		if (!roll(1 + (few ? 5 : 1) * s))
			ack(&m, &r[s]);
		if (!roll(300))
			reconnect(&m, &r[s]);
		if (!roll(20))
			master_map_forget(&m, 0, roll(20));
		check_sent(&m, r);
		if (!roll(50))
			begin_fsync(&m, &fsyncs[roll(FSYNCS)]);
		synced += end_fsyncs(&m, r);
		if (!roll(1000))
			master_map_check(&m);
	}
	for (s = 0; s < SUBS; s++) {
		while (master_sub_due(&m.feed, &r[s].sub, true) ||
		       r[s].nsent) {
			step(&m, &r[s], 16, true);
			ack(&m, &r[s]);
		}
		compare(&m, &r[s]);
		pictures += r[s].pictures;
		resumes += r[s].resumes;
	}
	synced += end_fsyncs(&m, r);
	for (s = 0; s < FSYNCS; s++)
		assert_false(fsyncs[s].waits);
	for (s = 0; s < SUBS; s++)
		master_sub_close(&m.feed, &r[s].sub);
	forgotten += (unsigned int)m.nforgotten;
	master_map_check(&m);
	master_map_fini(&m);
}

static void every_mirror_equals_the_map_in_the_end(void **state)
{
	uint64_t seed;

	(void)state;
	for (seed = 1; seed <= 20; seed++) {
		print_message("seed %u\n", (unsigned int)seed);
		run_model(seed * 0x9e3779b97f4a7c15ull, seed % 2);
	}
	print_message("%u pictures, %u fsyncs\n", pictures, synced);
	/* The runs must have covered the cases that they are for. */
	assert_true(pictures > 200 && resumes > 200 && forgotten > 1000 &&
		    synced > 500);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			a_cursor_sees_items_in_the_order_of_their_last_change),
		cmocka_unit_test(a_cursor_steps_on_when_its_item_moves_or_goes),
		cmocka_unit_test(behind_is_what_was_not_acked),
		cmocka_unit_test(a_wait_is_over_when_all_have_acknowledged),
		cmocka_unit_test(
			a_picture_tells_what_went_since_its_session_began),
		cmocka_unit_test(
			a_wait_follows_an_untold_name_that_changes_again),
		cmocka_unit_test(
			a_name_that_always_changes_does_not_prolong_a_wait),
		cmocka_unit_test(a_reconnected_mount_is_waited_for_up_to_now),
		cmocka_unit_test(a_wait_follows_the_name_that_was_changed_last),
		cmocka_unit_test(
			a_wait_follows_an_untold_name_that_goes_or_comes_back),
		cmocka_unit_test(
			waits_that_a_change_raises_are_one_from_then_on),
		cmocka_unit_test(
			a_picture_is_completed_only_when_the_master_is_ready),
		cmocka_unit_test(
			a_wait_ends_when_what_came_after_all_that_is_sent_is_dropped),
		cmocka_unit_test(
			a_wait_for_a_file_that_was_given_away_is_for_its_deletion),
		cmocka_unit_test(
			a_picture_waits_for_what_moves_in_its_last_lap),
		cmocka_unit_test(a_picture_does_not_wait_for_ever),
		cmocka_unit_test(
			a_picture_is_complete_after_names_that_moved_are_sent),
		cmocka_unit_test(a_forgotten_deletion_causes_a_whole_picture),
		cmocka_unit_test(
			a_wait_for_a_forgotten_deletion_is_for_the_pictures_end),
		cmocka_unit_test(the_end_of_a_picture_has_an_ack_of_its_own),
		cmocka_unit_test(
			one_ack_is_for_a_pictures_begin_and_what_was_before),
		cmocka_unit_test(every_mirror_equals_the_map_in_the_end),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
