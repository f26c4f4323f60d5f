/*
 * Sending changes to the mounts: FEED in batches, and SYNC, which waits for the
 * acks of all subscribers.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "master/may.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define SCAN_MAX 8192u /* items looked at for one batch, skipped ones, too */
#define BATCH_COST 16u /* of MASTER_TURN_ENTRIES, for a batch beside entries */

/* ---- FEED ---- */

/* The members that have changed since the session's last FEED. */
static size_t collect_nodes(struct master_session *s)
{
	const struct master_members *ms = &s->m->members;
	struct master_buffers *b = s->m->buffers;
	size_t n = 0;
	unsigned int i;

	if (s->nodes_sent == ms->changes)
		return 0;
	for (i = 0; i < ms->n; i++) {
		if (ms->by_index[i]->changed <= s->nodes_sent)
			continue;
		master_member_info(ms->by_index[i], &b->nodes[n]);
		b->node_list[n] = &b->nodes[n];
		n++;
	}
	s->nodes_sent = ms->changes;
	return n;
}

static void collect_entries(struct master_session *s, struct master_batch *b)
{
	struct master_feed *feed = &s->m->map.feed;
	uint64_t upto = master_session_feed_limit(s);
	unsigned int scan = SCAN_MAX;
	struct master_item *i;

	while (!master_batch_full(b)) {
		i = master_sub_next(feed, &s->sub, &scan);
		if (!i || i->seq > upto)
			return;
		if (master_may_see_item(s, i) && master_batch_add_feed(b, i))
			return; /* ENOMEM: the cursor stays at this item */
		master_cursor_advance(feed, &s->sub.cursor);
	}
}

static bool due(const struct master_session *s)
{
	const struct master_feed *feed = &s->m->map.feed;
	const struct master_item *i;

	/* (sent_ms: after WELCOME.) */
	if (!s->subscribed || s->ended || !s->sent_ms ||
	    !master_sub_open_window(&s->sub))
		return false;
	if (s->nodes_sent != s->m->members.changes &&
	    !master_sub_repeats(feed, &s->sub))
		return true;
	i = master_cursor_peek(feed, &s->sub.cursor);
	return (!i || i->seq <= master_session_feed_limit(s)) &&
	       master_sub_due(feed, &s->sub, s->m->ready);
}

static void send_batch(struct master_session *s)
{
	Kvpool__Feed msg = KVPOOL__FEED__INIT;
	struct master_batch *b = master_batch_start(s->m);
	bool begin, complete;
	uint64_t upto;

	msg.nodes = s->m->buffers->node_list;
	msg.n_nodes = collect_nodes(s);
	collect_entries(s, b);
	msg.entries = b->list;
	msg.n_entries = b->n;
	master_sub_batch_end(&s->m->map.feed, &s->sub, s->m->ready,
			     pool_now_ns(), &begin, &complete, &upto);
	msg.begin = begin;
	msg.complete = complete;
	if (complete && s->sub.moved > MASTER_LAP_MOVES)
		master_count(s->m, MC_PICTURES_SHORT);
	msg.upto_seq = upto;
	master_count(s->m, MC_FEED_BATCHES);
	pool_count_add(&s->m->stats.c[MC_FEED_ENTRIES], b->n);
	pool_share_spend(&s->m->feed_share, BATCH_COST + b->n + msg.n_nodes);
	master_session_send(s, POOL_MSG_FEED, 0, &msg.base);
	master_batch_reset(b);
}

/* Send as many batches as the window and the turn's budget allow. */
static void send_due(struct master_session *s)
{
	while (due(s)) {
		if (!pool_share_take(&s->m->feed_share, &s->feed_user)) {
			master_kick(s->m); /* continue in the next turn */
			return;
		}
		send_batch(s);
	}
}

void master_feed_turn(struct pool_share_user *u)
{
	struct master_session *s =
		pool_container_of(u, struct master_session, feed_user);

	if (master_acting(s->m))
		send_due(s);
}

/* Answer the SYNCs that every subscriber has acked. */
static void answer_syncs(struct master *m)
{
	struct master_wait *w;

	while ((w = master_wait_over(&m->map.feed))) {
		struct master_sync *y =
			pool_container_of(w, struct master_sync, wait);
		struct master_session *s = y->s;
		uint64_t req = y->req, mark = y->mark;

		pool_hist_add(&m->stats.sync, pool_now_ns() - y->started_ns);
		pool_list_del(&y->link);
		s->nwaits--;
		free(y);
		master_session_send_after(s, POOL_MSG_SYNCED, req, NULL, mark);
	}
}

/*
 * A wait includes an item until all subscribers have been sent it. One that
 * changes again before its last change is in etcd is sent to nobody, for as
 * long as it goes on. So a wait that takes MASTER_PAUSE_MS pauses the changes:
 * no message of them is begun until the feed could be sent to its end.
 */
static bool needs_pause(struct master *m)
{
	struct master_wait *w;
	const struct master_sync *y;

	if (!m->ready || pool_list_empty(&m->map.feed.waits))
		return false;
	w = pool_list_first(&m->map.feed.waits, struct master_wait, link);
	y = pool_container_of(w, struct master_sync, wait);
	return pool_now_ns() - y->started_ns >= MASTER_PAUSE_MS * 1000000ull &&
	       master_feed_gated(m);
}

static void update_pause(struct master *m)
{
	bool pause = needs_pause(m);

	if (pause && !m->paused)
		master_count(m, MC_PAUSES);
	m->paused = pause;
}

void master_pump(struct master *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		/* Otherwise collects further DROPs, while the last ones are
		 * held back. */
		if (!master_session_holds_drop(s))
			master_session_flush_drops(s);
		send_due(s);
	}
	answer_syncs(m);
	update_pause(m);
}

void master_on_subscribe(struct master_session *s,
			 const Kvpool__Subscribe *msg)
{
	struct master *m = s->m;

	if (s->subscribed) {
		master_count(m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO, "a second SUBSCRIBE");
	}
	master_sub_open(&m->map.feed, &s->sub,
			msg->epoch != m->epoch || !msg->seq, msg->seq);
	/* REPLICATE may have made names visible there since it joined: the
	 * picture must include their deletions. */
	master_sub_since(&s->sub, s->joined_seq);
	if (s->sub.begin)
		master_count(m, MC_PICTURES);
	s->subscribed = true;
	s->nodes_sent = 0;
	m->nsubscribers++;
	master_kick(m);
}

void master_on_feed_ack(struct master_session *s, const Kvpool__FeedAck *msg,
			uint64_t now_ns)
{
	uint64_t sent_ns[MASTER_SUB_WINDOW];
	unsigned int acked = s->sub.nsent;

	if (!s->subscribed)
		return;
	memcpy(sent_ns, s->sub.sent_ns, sizeof(sent_ns));
	master_sub_ack(&s->m->map.feed, &s->sub, msg->seq);
	acked -= s->sub.nsent;
	for (unsigned int i = 0; i < acked; i++)
		pool_hist_add(&s->m->stats.feed, now_ns - sent_ns[i]);
	send_due(s);
	answer_syncs(s->m);
}

void master_check_acks(struct master *m, uint64_t now_ms)
{
	uint64_t limit = (uint64_t)m->heartbeat_ms * MASTER_GRACE;
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (!s->subscribed || s->ended || !s->sub.nsent ||
		    now_ms - s->sub.sent_ns[0] / 1000000 <= limit)
			continue;
		master_count(m, MC_CUT_OFF);
		master_session_end(s, "it does not acknowledge the feed");
	}
}

void master_unsubscribe(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_share_leave(&s->feed_user);
	if (s->subscribed) {
		master_sub_close(&s->m->map.feed, &s->sub);
		s->subscribed = false;
		s->m->nsubscribers--;
	}
	pool_list_each(it, tmp, &s->waits) {
		struct master_sync *y =
			pool_list_entry(it, struct master_sync, link);

		master_wait_remove(&s->m->map.feed, &y->wait);
		pool_list_del(&y->link);
		free(y);
	}
	s->nwaits = 0;
	/* SYNCs of other sessions may have waited for this one's ack only. */
	master_kick(s->m);
}

/* ---- SYNC ---- */

/*
 * Waits for all changes made so far, instead of those up to msg->seq: the
 * changes meant may have a greater sequence by now (see struct master_wait).
 */
void master_on_sync(struct master_session *s, uint64_t req,
		    const Kvpool__Sync *msg)
{
	struct master_sync *y;

	(void)msg;
	master_count(s->m, MC_WAITS);
	/* Without an answer, the node's own deadline ends the fsync. */
	y = s->nwaits < MASTER_WAITS_MAX ? calloc(1, sizeof(*y)) : NULL;
	if (!y) {
		master_count(s->m, MC_WAITS_REFUSED);
		return;
	}
	y->s = s;
	y->req = req;
	y->mark = master_keep_mark(s->m);
	y->started_ns = pool_now_ns();
	pool_list_add_tail(&s->waits, &y->link);
	s->nwaits++;
	master_wait_add(&s->m->map.feed, &y->wait);
	answer_syncs(s->m);
}
