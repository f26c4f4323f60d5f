/* Links of adopted lanes (the holder): answers to offers. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

static void drop(struct adopted_half *h)
{
	h->up = false;
	if (h->link)
		link_close(h->link);
	h->link = NULL;
}

static void refuse(struct adopted_half *h, const char *why)
{
	struct link_lane *a = h->k->lane;

	drop(h);
	h->failures++;
	pool_info_paced("%s: lane %u falls back to TCP: %s",
		  pool_conn_peer_name(a->conn), a->number, why);
	(void)link_msg_send(a->conn, LINK_DOWN, h->kind, h->attempt, why);
}

/* The link is up when the peer sends "up", after its own on_connected. */
static void on_connected(void *user)
{
	(void)user;
}

static void on_broken(void *user, int err)
{
	struct adopted_half *h = user;

	pool_count(&h->k->lane->ports->mover->counters->links_broken);
	refuse(h, strerror(-err));
}

/* The holder sends notes and never receives one. */
static void on_note(void *user, const struct link_note *note)
{
	(void)note;
	refuse(user, "the requester sent a note");
}

static const struct link_user link_user = {
	.on_connected = on_connected,
	.on_note = on_note,
	.on_broken = on_broken,
};

static int answer_offer(struct adopted_half *h, const struct link_msg *msg,
			struct verbs_port *port, struct link_call *call)
{
	int err = link_open(h->k->lane->ports, port, h->kind, false,
			    msg->by_cm, &link_user, h, &h->link);

	if (err)
		return err;
	h->link->parts = msg->parts;
	return msg->by_cm ? link_await(h->link, call) :
			     verbs_qp_connect(h->link->qp, &msg->address);
}

static void offered(struct adopted_half *h, const struct link_msg *msg)
{
	struct link_lane *a = h->k->lane;
	struct verbs_port *port = link_port(
		a->ports, a->number - 1 + h->failures, &msg->address.link);
	const char *wrong = NULL;
	struct link_call call;
	int err;

	drop(h);
	h->attempt = msg->attempt;
	if (!port)
		wrong = "no usable port of that kind";
	else if (!msg->by_cm)
		wrong = verbs_address_wrong(&msg->address, port);
	if (wrong) {
		refuse(h, wrong);
		return;
	}
	err = answer_offer(h, msg, port, &call);
	if (err)
		refuse(h, strerror(-err));
	else
		(void)link_msg_send_address(a->conn, LINK_ACCEPT, h->attempt,
					    h->link, msg->by_cm ? &call : NULL);
}

static void on_msg(struct adopted_half *h, const struct link_msg *msg)
{
	if (msg->word == LINK_OFFER) {
		offered(h, msg);
	} else if (msg->attempt != h->attempt || !h->link) {
		return; /* about an earlier link */
	} else if (msg->word == LINK_UP && h->link->qp) {
		h->up = true;
		pool_count(&h->k->lane->ports->mover->counters->links_up);
	} else if (msg->word == LINK_DOWN) {
		if (h->up) /* either end may have failed */
			verbs_port_failed(h->link->port);
		drop(h);
		h->failures++;
	}
}

bool adopted_link_frame(struct link_lane *a, const struct pool_frame *f,
			const uint8_t *payload)
{
	struct adopted_link *k = adopted_link_of(a);
	struct link_buffer buffer;
	struct link_msg msg;

	if (f->type == POOL_MSG_BUFFER)
		return link_buffer_receive(a->conn, f, payload, &buffer) &&
		       (!k || adopted_link_buffer(k, &buffer));
	if (f->type != POOL_MSG_LINK ||
	    !link_msg_receive(a->conn, f, payload, &msg))
		return false;
	if (k)
		on_msg(&k->halves[msg.kind], &msg);
	else if (msg.word == LINK_OFFER)
		(void)link_msg_send(a->conn, LINK_DOWN, msg.kind, msg.attempt,
			       "no RDMA here");
	return true;
}

void adopted_link_end(struct link_lane *a)
{
	struct adopted_link *k = a->link;

	a->conn = NULL;
	if (!k)
		return;
	a->link = NULL;
	adopted_link_abort(k);
	for (int kind = 0; kind < LINK_KINDS; kind++)
		drop(&k->halves[kind]);
	k->lane = NULL; /* sends in flight end when the links close */
	adopted_link_tidy(k);
}
