/* The dialled side of links: offers, and what becomes of them. */
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

/* This one is not to be: over TCP until the next. */
static void failed(struct lane_link *k)
{
	unsigned int ms = LINK_RETRY_MS << (k->vain < 5 ? k->vain : 5);

	drop(k);
	k->vain++;
	k->tick.due = retry_due;
	link_tick_set(ports_of(k), &k->tick,
		      ms < LINK_RETRY_MAX_MS ? ms : LINK_RETRY_MAX_MS);
	settle(k);
}

void lane_link_give_up(struct lane_link *k, const char *why)
{
	struct pool_conn *c = k->lane->conn;

	pool_info_paced("%s: lane %u goes on over TCP: %s",
			pool_conn_peer_name(c), k->lane->number, why);
	(void)link_say(c, LINK_DOWN, k->kind, k->attempt, why);
	failed(k);
}

static void offer_due(struct link_tick *t)
{
	lane_link_give_up(pool_container_of(t, struct lane_link, tick),
			  "no answer to the offer of a link");
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
		lane_link_give_up(k, "a note from who is read");
}

/* ---- back to the port that is the lane's own ---- */

/* What is under way ends first; new ranges go over TCP meanwhile. */
static void move_due(struct link_tick *t)
{
	struct lane_link *k = pool_container_of(t, struct lane_link, tick);

	if (!pool_list_empty(&k->link->mapped) && k->patience > 0) {
		k->patience--;
		link_tick_set(ports_of(k), t, LINK_TICK_MS);
		return;
	}
	drop(k);
	k->vain = 0;
	offer(k);
}

static void home_due(struct link_tick *t)
{
	struct lane_link *k = pool_container_of(t, struct lane_link, tick);

	if (link_port(ports_of(k), k->lane->number - 1, NULL) ==
	    k->link->port) {
		link_tick_set(ports_of(k), t, LINK_HOME_MS);
		return;
	}
	k->lane->linked[k->kind] = false;
	k->patience = LINK_MOVE_TICKS;
	t->due = move_due;
	link_tick_set(ports_of(k), t, LINK_TICK_MS);
}

static void await_home(struct lane_link *k)
{
	pool_list_del(&k->tick.link);
	k->tick.due = home_due;
	if (verbs_nports(ports_of(k)->verbs) > 1)
		link_tick_set(ports_of(k), &k->tick, LINK_HOME_MS);
}

static void on_connected(void *user)
{
	struct lane_link *k = user;

	if (link_say(k->lane->conn, LINK_UP, k->kind, k->attempt, NULL)) {
		failed(k);
		return;
	}
	k->lane->linked[k->kind] = true;
	pool_count(&ports_of(k)->mover->counters->links_up);
	await_home(k);
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
		ports, k->lane->number - 1 + k->vain, NULL);

	k->attempt++;
	k->accepted = false;
	if (!port || link_open(ports, port, k->kind, true, link_by_cm(port),
			       &link_user, k, &k->link)) {
		failed(k);
		return;
	}
	k->tick.due = offer_due;
	link_tick_set(ports, &k->tick, LINK_OFFER_MS);
	if (link_say_address(k->lane->conn, LINK_OFFER, k->attempt, k->link,
			     NULL))
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
	return lane->mover->links &&
	       pool_conn_version(lane->conn) >= POOL_WIRE_LINK;
}

void lane_link_start(struct pool_lane *lane)
{
	if (may_link(lane))
		start(lane, LINK_PUSH);
	else
		lane_settled(lane);
}

void lane_link_wish(struct pool_lane *lane)
{
	if (!lane->links[LINK_PULL] && may_link(lane))
		start(lane, LINK_PULL);
}

static void accepted(struct lane_link *k, const struct link_said *said)
{
	struct link *l = k->link;
	const char *wrong = NULL;
	int err;

	if (said->by_cm != l->by_cm) {
		lane_link_give_up(k, "not the kind of connection offered");
		return;
	}
	l->parts = said->parts;
	if (l->by_cm) {
		err = link_make_call(l, &said->call);
	} else {
		wrong = verbs_address_wrong(&said->address, l->port);
		err = wrong ? 0 : verbs_qp_connect(l->qp, &said->address);
	}
	if (wrong || err)
		lane_link_give_up(k, wrong ? wrong : strerror(-err));
	else if (!l->by_cm)
		on_connected(k);
}

static bool heard(struct pool_lane *lane, const struct link_said *said)
{
	struct lane_link *k = lane->links[said->kind];

	if (!k)
		return false;
	if (said->attempt != k->attempt || !k->link)
		return true; /* about one that is gone */
	if (said->word == LINK_ACCEPT && !k->accepted) {
		k->accepted = true;
		accepted(k, said);
	} else if (said->word == LINK_DOWN) {
		if (lane->linked[said->kind]) /* either end is the reason */
			verbs_port_failed(k->link->port);
		pool_info_paced("%s: lane %u goes on over TCP: %s",
			  pool_conn_peer_name(lane->conn), lane->number,
			  said->text);
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
	struct link_said said;

	if (f->type == POOL_MSG_BUFFER)
		return link_heard_buffer(lane->conn, f, payload, &buffer) &&
		       lane_link_source(lane, &buffer);
	return link_heard(lane->conn, f, payload, &said) &&
	       heard(lane, &said);
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
