/*
 * Write-ahead rule: no message leaves the master before etcd has the records
 * that the message follows from. This holds even if the session that requested
 * the change, the lease or the process ends meanwhile. The next leader knows
 * only what is in etcd, and must not contradict a result that a node or a user
 * has received.
 *
 * Messages that depend on records not in etcd yet are held back. Each type of
 * message, and why it is safe:
 *
 *   OPS_DONE    held until all records appended so far are settled, because a
 *               result may follow from another session's change (UNLINK of a
 *               name that is already gone, ESTALE). Exception: OPS with nothing
 *               but successful publications, none of which appended a record.
 *               The publisher's inventory brings these back together with the
 *               bytes, and no fsync returns before SYNCED.
 *   WELCOME     held likewise: it contains results of the node's previous
 *               session.
 *   SYNCED      held until the records appended before its SYNC are settled.
 *               All that it confirms was made before, and of what was made
 *               since, mounts were sent only what is settled.
 *   DROP        held likewise, because a removal, a tombstone or a rule made
 *               the copy unnecessary. Records are appended before the DROPs
 *               that follow from them are queued (ops.c, evict.c).
 *   REPLICATE   held likewise, because the rules of directories, which are in
 *               the state, decide how many copies are wanted.
 *   FEED        entries are held back by gates (below). The list of nodes is
 *               not held back: their presence is not in the state, and mounts
 *               only display whether they are draining.
 *   HEARTBEAT,  never held back: they contain only the epoch, which is in etcd
 *   ERROR       before this master exists, or what is wrong with a message. But
 *               no HEARTBEAT is sent before WELCOME.
 *
 * All but FEED, HEARTBEAT and ERROR keep their order within a session: once a
 * message is held, later ones wait behind it. When a session ends, its held
 * messages are discarded; the node joins again and receives the current state.
 * Metrics and JSON pages show the memory of this master. They may run ahead of
 * etcd: no node depends on them.
 *
 * FEED does not wait behind held messages: a mount whose changes come faster
 * than etcd stores them always has some, and without its acks no fsync of other
 * mounts returns. But no change is sent to the session that made it before its
 * OPS_DONE (master_session_feed_limit).
 *
 * Gates of the feed belong to the master and outlive sessions. update_gates
 * notes the feed sequence and the mark at each call. If the mark has grown to M
 * since the previous call, at feed sequence S, then changes after S may depend
 * on the new records. The gate (S, M) keeps changes after S from being sent
 * before M is settled. This relies on a change and its records being made in
 * the same turn, and on update_gates being called in other turns.
 *
 * After the lease has ended (master_acting), the master neither reads nor
 * sends. With a state file, all records are passed to the kernel before a
 * message is sent.
 */
#include <stdlib.h>

#include "master/impl.h"

struct held {
	struct pool_list link; /* in session.held */
	enum pool_msg type;
	uint64_t req, mark;
	uint64_t feed_seq; /* OPS_DONE: of the feed before its changes */
	const ProtobufCMessageDescriptor *desc; /* NULL: no payload */
	size_t len;
	uint8_t payload[]; /* packed */
};

/* ---- gates of the feed ---- */

/* If the ring is full, the newest gate is extended instead: it holds back more
 * than necessary. */
static void add_gate(struct master_gates *b, uint64_t feed_seq, uint64_t mark)
{
	if (b->n < MASTER_GATES_MAX)
		b->gate[(b->first + b->n++) % MASTER_GATES_MAX].feed_seq =
			feed_seq;
	b->gate[(b->first + b->n - 1) % MASTER_GATES_MAX].mark = mark;
}

/* Add a gate if records have been appended since the last update. */
static void update_gates(struct master *m)
{
	uint64_t mark = master_keep_mark(m);

	if (mark != m->gates.mark)
		add_gate(&m->gates, m->gates.feed_seq, mark);
	m->gates.mark = mark;
	m->gates.feed_seq = m->map.feed.seq;
	master_keep_flush(m);
}

/* Feed sequence up to which changes may be sent to any session. */
static uint64_t feed_limit(struct master *m)
{
	struct master_gates *b = &m->gates;

	update_gates(m);
	while (b->n && master_keep_settled(m, b->gate[b->first].mark)) {
		b->first = (b->first + 1) % MASTER_GATES_MAX;
		b->n--;
	}
	return b->n ? b->gate[b->first].feed_seq : UINT64_MAX;
}

/* ---- held messages ---- */

void master_held_free(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->held)
		free(pool_list_entry(it, struct held, link));
	pool_list_init(&s->held);
	s->held_bytes = 0;
}

static bool has_held(const struct master_session *s)
{
	return !pool_list_empty(&s->held);
}

bool master_session_holds_drop(const struct master_session *s)
{
	return has_held(s) &&
	       pool_list_entry(s->held.prev, struct held, link)->type ==
		       POOL_MSG_DROP;
}

/* The feed's sequence before the first change whose result has not been sent to
 * the session that made it. */
static uint64_t first_unanswered(const struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->held) {
		const struct held *h = pool_list_entry(it, struct held, link);

		if (h->type == POOL_MSG_OPS_DONE)
			return h->feed_seq;
	}
	return s->nresults ? s->ops_feed_seq : UINT64_MAX;
}

uint64_t master_session_feed_limit(const struct master_session *s)
{
	uint64_t limit = feed_limit(s->m), own = first_unanswered(s);

	return own < limit ? own : limit;
}

bool master_feed_gated(struct master *m)
{
	struct pool_list *it, *tmp;

	if (feed_limit(m) != UINT64_MAX)
		return true;
	pool_list_each(it, tmp, &m->sessions) {
		const struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (s->subscribed && !s->ended &&
		    first_unanswered(s) != UINT64_MAX)
			return true;
	}
	return false;
}

static void hold(struct master_session *s, enum pool_msg type, uint64_t req,
		 const ProtobufCMessage *msg, uint64_t mark)
{
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	size_t size = sizeof(struct held) + len;
	struct held *h = s->held_bytes + size <= MASTER_HELD_BYTES ?
				 malloc(size) :
				 NULL;

	if (!h)
		return master_session_end(s, "too many messages wait for etcd");
	h->type = type;
	h->req = req;
	h->mark = mark;
	h->feed_seq = s->ops_feed_seq;
	h->desc = msg ? msg->descriptor : NULL;
	h->len = len;
	if (msg)
		protobuf_c_message_pack(msg, h->payload);
	pool_list_add_tail(&s->held, &h->link);
	s->held_bytes += size;
	master_count(s->m, MC_HELD);
}

void master_session_send_after(struct master_session *s, enum pool_msg type,
			       uint64_t req, const ProtobufCMessage *msg,
			       uint64_t mark)
{
	if (s->ended)
		return;
	master_keep_flush(s->m);
	if (has_held(s) || !master_keep_settled(s->m, mark))
		hold(s, type, req, msg, mark);
	else
		master_session_send(s, type, req, msg);
}

static void send_held(struct master_session *s, const struct held *h)
{
	ProtobufCMessage *msg = NULL;

	if (h->desc)
		msg = protobuf_c_message_unpack(h->desc, NULL, h->len,
						h->payload);
	if (h->desc && !msg)
		return master_session_end(s, "no memory for an answer");
	master_session_send(s, h->type, h->req, msg);
	if (msg)
		protobuf_c_message_free_unpacked(msg, NULL);
}

static void send_settled(struct master_session *s)
{
	while (has_held(s)) {
		struct held *h = pool_list_first(&s->held, struct held, link);

		if (!master_keep_settled(s->m, h->mark))
			return;
		pool_list_del(&h->link);
		s->held_bytes -= sizeof(*h) + h->len;
		send_held(s, h);
		free(h);
	}
}

void master_settled(struct master *m)
{
	struct pool_list *it, *tmp;

	if (m->closing || !master_acting(m))
		return;
	pool_list_each(it, tmp, &m->sessions)
		send_settled(pool_list_entry(it, struct master_session, link));
	master_kick(m);
}
