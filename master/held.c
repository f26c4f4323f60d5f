/*
 * Answers that wait for what they say to be in etcd (struct master_session's
 * held, struct master's held).
 */
#include <stdlib.h>

#include "master/impl.h"

struct held {
	struct pool_list link, all; /* in session.held, in master.held */
	uint64_t feed_seq;
	enum pool_msg type;
	uint64_t req, mark;
	const ProtobufCMessageDescriptor *desc; /* NULL: no payload */
	size_t len;
	uint8_t payload[];
};

void master_held_free(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->held) {
		struct held *h = pool_list_entry(it, struct held, link);

		pool_list_del(&h->all);
		free(h);
	}
	pool_list_init(&s->held);
	s->nheld = 0;
}

uint64_t master_may_tell(const struct master *m)
{
	return pool_list_empty(&m->held) ?
		       UINT64_MAX :
		       pool_list_first(&m->held, struct held, all)->feed_seq;
}

static void hold(struct master_session *s, enum pool_msg type, uint64_t req,
		 const ProtobufCMessage *msg, uint64_t mark, uint64_t feed_seq)
{
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	struct held *h = s->nheld < MASTER_HELD_MAX ? malloc(sizeof(*h) + len) :
						      NULL;

	if (!h)
		return master_session_end(s, "too many answers wait for etcd");
	h->type = type;
	h->req = req;
	h->mark = mark;
	h->feed_seq = feed_seq;
	h->desc = msg ? msg->descriptor : NULL;
	h->len = len;
	if (msg)
		protobuf_c_message_pack(msg, h->payload);
	pool_list_add_tail(&s->held, &h->link);
	pool_list_init(&h->all);
	if (feed_seq != UINT64_MAX)
		pool_list_add_tail(&s->m->held, &h->all);
	s->nheld++;
	master_count(s->m, MC_HELD);
}

void master_session_answer(struct master_session *s, enum pool_msg type,
			   uint64_t req, const ProtobufCMessage *msg,
			   uint64_t mark, uint64_t feed_seq)
{
	if (s->ended)
		return;
	if (s->nheld || !master_keep_settled(s->m, mark))
		hold(s, type, req, msg, mark, feed_seq);
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
	while (!pool_list_empty(&s->held)) {
		struct held *h = pool_list_first(&s->held, struct held, link);

		if (!master_keep_settled(s->m, h->mark))
			return;
		pool_list_del(&h->link);
		pool_list_del(&h->all);
		s->nheld--;
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
