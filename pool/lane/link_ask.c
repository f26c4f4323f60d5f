/* Links of dialled lanes (the requester): offers, retries, choice of port. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

static void offer(struct lane_link *k);

static struct link_ports *ports_of(const struct lane_link *k)
{
	return k->lane->mover->links;
}

static void settle(struct lane_link *k)
{
	if (k->settled)
		return;
	k->settled = true;
	if (k->kind == LINK_PUSH)
		lane_settled(k->lane);
}

static void drop(struct lane_link *k)
{
	k->lane->linked[k->kind] = false;
	if (k->link)
		link_close(k->link);
	k->link = NULL;
}

static void retry_due(struct link_tick *t)
{
	offer(pool_container_of(t, struct lane_link, tick));
}

/* Closes the link: the lane uses TCP until the next offer, which is made after
 * a backoff. */
static void failed(struct lane_link *k)
{
	unsigned int ms = LINK_RETRY_MS << (k->failures < 5 ? k->failures : 5);

	drop(k);
	k->failures++;
	k->tick.due = retry_due;
	link_tick_set(ports_of(k), &k->tick,
		      ms < LINK_RETRY_MAX_MS ? ms : LINK_RETRY_MAX_MS);
	settle(k);
}

void lane_link_give_up(struct lane_link *k, const char *why)
{
	struct pool_conn *c = k->lane->conn;

	pool_info_paced("%s: lane %u falls back to TCP: %s",
			pool_conn_peer_name(c), k->lane->number, why);
	(void)link_msg_send(c, LINK_DOWN, k->kind, k->attempt, why);
	failed(k);
}

static void offer_due(struct link_tick *t)
{
	lane_link_give_up(pool_container_of(t, struct lane_link, tick),
			  "the peer did not answer the offer");
}

static void on_broken(void *user, int err)
{
	struct lane_link *k = user;

	pool_count(&ports_of(k)->mover->counters->links_broken);
	lane_link_give_up(k, strerror(-err));
}

static void on_note(void *user, const struct link_note *note)
{
	struct lane_link *k = user;

	if (k->kind == LINK_PUSH)
		lane_link_note(k, note);
	else
		lane_link_give_up(k, "the peer sent a note on a pull link");
}

/* ---- the switch back to the lane's own port ---- */

/* Waits for ranges in flight; new ranges use TCP meanwhile. */
static void switch_due(struct link_tick *t)
{
	struct lane_link *k = pool_container_of(t, struct lane_link, tick);

	if (!pool_list_empty(&k->link->mapped) && k->drain_ticks > 0) {
		k->drain_ticks--;
		link_tick_set(ports_of(k), t, LINK_TICK_MS);
		return;
	}
	drop(k);
	k->failures = 0;
	offer(k);
}

static void own_port_due(struct link_tick *t)
{
	struct lane_link *k = pool_container_of(t, struct lane_link, tick);

	if (link_port(ports_of(k), k->lane->number - 1, NULL) ==
	    k->link->port) {
		link_tick_set(ports_of(k), t, LINK_OWN_PORT_MS);
		return;
	}
	k->lane->linked[k->kind] = false;
	k->drain_ticks = LINK_SWITCH_TICKS;
	t->due = switch_due;
	link_tick_set(ports_of(k), t, LINK_TICK_MS);
}

static void await_own_port(struct lane_link *k)
{
	pool_list_del(&k->tick.link);
	k->tick.due = own_port_due;
	if (verbs_nports(ports_of(k)->verbs) > 1)
		link_tick_set(ports_of(k), &k->tick, LINK_OWN_PORT_MS);
}

static void on_connected(void *user)
{
	struct lane_link *k = user;

	if (link_msg_send(k->lane->conn, LINK_UP, k->kind, k->attempt, NULL)) {
		failed(k);
		return;
	}
	k->lane->linked[k->kind] = true;
	pool_count(&ports_of(k)->mover->counters->links_up);
	await_own_port(k);
	settle(k);
}

static const struct link_user link_user = {
	.on_connected = on_connected,
	.on_note = on_note,
	.on_broken = on_broken,
};

static void offer(struct lane_link *k)
{
	struct link_ports *ports = ports_of(k);
	struct verbs_port *port = link_port(
		ports, k->lane->number - 1 + k->failures, NULL);

	k->attempt++;
	k->accepted = false;
	if (!port || link_open(ports, port, k->kind, true, link_by_cm(port),
			       &link_user, k, &k->link)) {
		failed(k);
		return;
	}
	k->tick.due = offer_due;
	link_tick_set(ports, &k->tick, LINK_OFFER_MS);
	if (link_msg_send_address(k->lane->conn, LINK_OFFER, k->attempt,
				  k->link, NULL))
		failed(k);
}

static void start(struct pool_lane *lane, enum link_kind kind)
{
	struct lane_link *k = calloc(1, sizeof(*k));

	if (!k) {
		if (kind == LINK_PUSH)
			lane_settled(lane);
		return;
	}
	k->lane = lane;
	k->kind = kind;
	pool_list_init(&k->tick.link);
	lane->links[kind] = k;
	offer(k);
}

static bool may_link(const struct pool_lane *lane)
{
	return lane->mover->links && !lane->plain &&
	       pool_conn_version(lane->conn) >= POOL_WIRE_LINK;
}

void lane_link_start(struct pool_lane *lane)
{
	if (may_link(lane))
		start(lane, LINK_PUSH);
	else
		lane_settled(lane);
}

void lane_link_want_pull(struct pool_lane *lane)
{
	if (!lane->links[LINK_PULL] && may_link(lane))
		start(lane, LINK_PULL);
}

static void accepted(struct lane_link *k, const struct link_msg *msg)
{
	struct link *l = k->link;
	const char *wrong = NULL;
	int err;

	if (msg->by_cm != l->by_cm) {
		lane_link_give_up(k, "the peer accepted another kind of link");
		return;
	}
	l->parts = msg->parts;
	if (l->by_cm) {
		err = link_make_call(l, &msg->call);
	} else {
		wrong = verbs_address_wrong(&msg->address, l->port);
		err = wrong ? 0 : verbs_qp_connect(l->qp, &msg->address);
	}
	if (wrong || err)
		lane_link_give_up(k, wrong ? wrong : strerror(-err));
	else if (!l->by_cm)
		on_connected(k);
}

static bool on_msg(struct pool_lane *lane, const struct link_msg *msg)
{
	struct lane_link *k = lane->links[msg->kind];

	if (!k)
		return false;
	if (msg->attempt != k->attempt || !k->link)
		return true; /* about an earlier link */
	if (msg->word == LINK_ACCEPT && !k->accepted) {
		k->accepted = true;
		accepted(k, msg);
	} else if (msg->word == LINK_DOWN) {
		if (lane->linked[msg->kind]) /* either end failed */
			verbs_port_failed(k->link->port);
		pool_info_paced("%s: lane %u falls back to TCP: %s",
			  pool_conn_peer_name(lane->conn), lane->number,
			  msg->text);
		failed(k);
	} else {
		return false;
	}
	return true;
}

bool lane_link_frame(struct pool_lane *lane, const struct pool_frame *f,
		     const uint8_t *payload)
{
	struct link_buffer buffer;
	struct link_msg msg;

	if (f->type == POOL_MSG_BUFFER)
		return link_buffer_receive(lane->conn, f, payload, &buffer) &&
		       lane_link_pull(lane, &buffer);
	return link_msg_receive(lane->conn, f, payload, &msg) &&
	       on_msg(lane, &msg);
}

void lane_link_end(struct pool_lane *lane)
{
	for (int kind = 0; kind < LINK_KINDS; kind++) {
		struct lane_link *k = lane->links[kind];

		if (!k)
			continue;
		lane->links[kind] = NULL;
		pool_list_del(&k->tick.link);
		drop(k);
		free(k);
	}
}
