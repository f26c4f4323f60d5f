/*
 * Nothing leaves the master before etcd has what it follows from, whatever ends
 * meanwhile: the session that asked for the change, the lease, the process. Who
 * leads next has only what is in etcd, and it must not take back what a node,
 * or a user, was told.
 *
 * What a session is sent, and why it is safe:
 *
 *   OPS_DONE    held until all that was appended by then is settled: a result may
 *               follow from another session's change (an UNLINK of what is gone,
 *               ESTALE). Not for publications alone that were done: they are with
 *               the bytes, in the publisher's inventory, and no fsync ends before
 *               SYNCED.
 *   SYNCED,     held like that. WELCOME has results of the session before it.
 *   WELCOME
 *   DROP        held like that, as what makes a copy needless is a removal, a
 *               tombstone or a rule. Records are appended before the DROPs that
 *               follow from them are queued (ops.c, evict.c).
 *   REPLICATE   held like that: rules of directories say how many copies are
 *               wanted.
 *   FEED        entries: bars, below. Nodes: that they are there, which is in no
 *               state, and whether they are being emptied, which mounts only show.
 *   HEARTBEAT,  say the epoch, which is in etcd before this master is, and what
 *   ERROR       is wrong with a message. No HEARTBEAT before WELCOME.
 *
 * All but the last two keep their order in a session: behind what is held, the
 * rest waits, too. A session that ends takes with it what it alone is owed: the
 * node joins again, and is told anew. Metrics and pages show the memory of this
 * master: nothing is promised by them, and no node reads them.
 *
 * Bars are the master's, and outlive sessions. Between two looks at the feed
 * and at the state, changes up to feed sequence S were made and records up to
 * mark M appended: so nothing behind the sequence of the first look is told
 * before M is settled. A change and its records are made in one turn, and looks
 * are in turns of their own.
 *
 * When the lease is over (master_acting), nothing is read and nothing is sent.
 * With a state file, the kernel is handed all records before anything is sent.
 */
#include <stdlib.h>

#include "master/impl.h"

struct held {
	struct pool_list link; /* in session.held */
	enum pool_msg type;
	uint64_t req, mark;
	const ProtobufCMessageDescriptor *desc; /* NULL: no payload */
	size_t len;
	uint8_t payload[];
};

/* ---- bars of the feed ---- */

/* If there is no room, the newest one stands for more. */
static void add_bar(struct master_bars *b, uint64_t feed_seq, uint64_t mark)
{
	if (b->n < MASTER_BARS_MAX)
		b->bar[(b->first + b->n++) % MASTER_BARS_MAX].feed_seq =
			feed_seq;
	b->bar[(b->first + b->n - 1) % MASTER_BARS_MAX].mark = mark;
}

static void look(struct master *m)
{
	uint64_t mark = master_keep_mark(m);

	if (mark != m->bars.mark)
		add_bar(&m->bars, m->bars.feed_seq, mark);
	m->bars.mark = mark;
	m->bars.feed_seq = m->map.feed.seq;
	master_keep_flush(m);
}

uint64_t master_may_tell(struct master *m)
{
	struct master_bars *b = &m->bars;

	look(m);
	while (b->n && master_keep_settled(m, b->bar[b->first].mark)) {
		b->first = (b->first + 1) % MASTER_BARS_MAX;
		b->n--;
	}
	return b->n ? b->bar[b->first].feed_seq : UINT64_MAX;
}

/* ---- what a session is owed ---- */

void master_held_free(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->held)
		free(pool_list_entry(it, struct held, link));
	pool_list_init(&s->held);
	s->held_bytes = 0;
}

bool master_session_waits(const struct master_session *s)
{
	return !pool_list_empty(&s->held);
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
		return master_session_end(s, "too much waits for etcd");
	h->type = type;
	h->req = req;
	h->mark = mark;
	h->desc = msg ? msg->descriptor : NULL;
	h->len = len;
	if (msg)
		protobuf_c_message_pack(msg, h->payload);
	pool_list_add_tail(&s->held, &h->link);
	s->held_bytes += size;
	master_count(s->m, MC_HELD);
}

void master_session_answer(struct master_session *s, enum pool_msg type,
			   uint64_t req, const ProtobufCMessage *msg,
			   uint64_t mark)
{
	if (s->ended)
		return;
	master_keep_flush(s->m);
	if (master_session_waits(s) || !master_keep_settled(s->m, mark))
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

static void answer_held(struct master_session *s)
{
	while (master_session_waits(s)) {
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
		answer_held(pool_list_entry(it, struct master_session, link));
	master_kick(m);
}
