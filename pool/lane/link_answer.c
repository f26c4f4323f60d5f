/* The adopted side of links: offers answered. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

static void drop(struct half *h)
{
	h->up = false;
	if (h->link)
		link_close(h->link);
	h->link = NULL;
}

static void refuse(struct half *h, const char *why)
{
	struct link_lane *a = h->k->lane;

	drop(h);
	h->vain++;
	pool_info_paced("%s: lane %u goes on over TCP: %s",
		  pool_conn_peer_name(a->conn), a->number, why);
	(void)link_say(a->conn, LINK_DOWN, h->kind, h->attempt, why);
}

/* What counts is that the peer says "up": it does so after the same. */
static void on_connected(void *user)
{
	(void)user;
}

static void on_broken(void *user, int err)
{
	struct half *h = user;

	pool_count(&h->k->lane->ports->mover->counters->links_broken);
	refuse(h, strerror(-err));
}

/* Who holds tells, it is not told. */
static void on_note(void *user, const struct link_note *note)
{
	(void)note;
	refuse(user, "a note from who asks");
}

static const struct link_user link_user = {
	.on_connected = on_connected,
	.on_note = on_note,
	.on_broken = on_broken,
};

static int answer_offer(struct half *h, const struct link_said *said,
			struct verbs_port *port, struct link_call *call)
{
	int err = link_open(h->k->lane->ports, port, h->kind, false,
			    said->by_cm, &link_user, h, &h->link);

	if (err)
		return err;
	h->link->parts = said->parts;
	return said->by_cm ? link_await(h->link, call) :
			     verbs_qp_connect(h->link->qp, &said->address);
}

static void offered(struct half *h, const struct link_said *said)
{
	struct link_lane *a = h->k->lane;
	struct verbs_port *port = link_port(a->ports, a->number - 1 + h->vain,
					    &said->address.link);
	const char *wrong = NULL;
	struct link_call call;
	int err;

	drop(h);
	h->attempt = said->attempt;
	if (!port)
		wrong = "no usable port of that kind";
	else if (!said->by_cm)
		wrong = verbs_address_wrong(&said->address, port);
	if (wrong) {
		refuse(h, wrong);
		return;
	}
	err = answer_offer(h, said, port, &call);
	if (err)
		refuse(h, strerror(-err));
	else
		(void)link_say_address(a->conn, LINK_ACCEPT, h->attempt,
				       h->link, said->by_cm ? &call : NULL);
}

static void heard(struct half *h, const struct link_said *said)
{
	if (said->word == LINK_OFFER) {
		offered(h, said);
	} else if (said->attempt != h->attempt || !h->link) {
		return; /* about one that is gone */
	} else if (said->word == LINK_UP && h->link->qp) {
		h->up = true;
		pool_count(&h->k->lane->ports->mover->counters->links_up);
	} else if (said->word == LINK_DOWN) {
		if (h->up) /* either end may be the reason */
			verbs_port_failed(h->link->port);
		drop(h);
		h->vain++;
	}
}

bool adopted_link_frame(struct link_lane *a, const struct pool_frame *f,
			const uint8_t *payload)
{
	struct adopted_link *k = adopted_link_of(a);
	struct link_buffer buffer;
	struct link_said said;

	if (f->type == POOL_MSG_BUFFER)
		return link_heard_buffer(a->conn, f, payload, &buffer) &&
		       (!k || adopted_link_buffer(k, &buffer));
	if (f->type != POOL_MSG_LINK ||
	    !link_heard(a->conn, f, payload, &said))
		return false;
	if (k)
		heard(&k->halves[said.kind], &said);
	else if (said.word == LINK_OFFER)
		(void)link_say(a->conn, LINK_DOWN, said.kind, said.attempt,
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
	adopted_link_forget(k);
	for (int kind = 0; kind < LINK_KINDS; kind++)
		drop(&k->halves[kind]);
	k->lane = NULL; /* what is being sent ends with the links */
	adopted_link_tidy(k);
}
