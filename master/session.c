/*
 * One node's connection: joining, dispatch of messages, end.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master/asked.h"
#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/conn/unpack.h"

/* ---- ending ---- */

/* After this nothing but m->sessions refers to the session. */
void master_session_detach(struct master_session *s)
{
	struct master *m = s->m;
	struct master_member *mb = s->member;

	s->ended = true;
	if (s->subscribed)
		master_stats_unsubscribed(s);
	master_unsubscribe(s);
	master_session_free_drops(s);
	master_held_free(s);
	master_deferred_free(s);
	master_inventory_free(s);
	s->member = NULL;
	if (!mb || mb->session != s)
		return;
	master_member_away(&m->members, mb, pool_now_ms());
	master_repair_cut_off(m, mb);
	master_kick(m);
}

static void bad_message(struct master_session *s, const char *text)
{
	master_count(s->m, MC_BAD_MESSAGES);
	master_session_fail(s, -EPROTO, text);
}

static void on_close(struct pool_conn *c, int err)
{
	struct master_session *s = pool_conn_user(c);
	struct master *m = s->m;

	if (!s->ended) {
		if (s->member && !m->closing) {
			const char *why = err ? strerror(-err) : "closed";

			pool_info_paced("node %s (%s): connection lost: %s",
				  s->member->name, pool_conn_peer_name(c), why);
			master_event(m->events, "left", "%s: %s",
				     s->member->name, why);
		}
		master_session_detach(s);
	}
	pool_list_del(&s->link);
	m->nsessions--;
	free(s->drops);
	free(s->issued.ring);
	free(s->results);
	free(s);
	master_handle_gone(m);
}

/* ---- joining ---- */

/* Notes which deletions the node may have missed, for may_be_dead in
 * inventory.c. */
static void note_absence(struct master_session *s,
			 const struct master_member *mb,
			 const Kvpool__Join *j, bool known)
{
	const struct master *m = s->m;
	unsigned int i;

	s->saw_seq = j->epoch == m->epoch ? j->seq : 0;
	s->left_wall_ns = !known	    ? 0 :
			  mb->left_wall_ns ? mb->left_wall_ns :
					      UINT64_MAX;
	s->only_source = true;
	for (i = 0; i < m->members.n; i++)
		if (m->members.by_index[i] != mb &&
		    m->members.by_index[i]->inventoried)
			s->only_source = false;
}

/* May the peer claim `host`? A node's must be in its certificate; a client's
 * may also be the address that it dialled from. */
static bool is_its_host(const struct master_session *s, const char *host)
{
	uint8_t addr[POOL_ADDRESS_SIZE];

	if (pool_conn_peer_has_host(s->conn, host))
		return true;
	if (pool_conn_peer_id(s->conn)->role != POOL_ROLE_CLIENT)
		return false;
	/* Loopback: a library that only reads need not be reached. */
	return pool_host_is_loopback(host) ||
	       (pool_address_parse(host, addr) == 0 &&
		memcmp(addr, s->addr, sizeof(addr)) == 0);
}

/* With TLS: why the peer's certificate does not permit its JOIN (in `text`); or
 * NULL. */
static const char *not_allowed(const struct master_session *s,
			       const Kvpool__Join *j,
			       char text[MASTER_REMEDY_MAX])
{
	const struct pool_tls_id *peer = pool_conn_peer_id(s->conn);
	const struct master_member *mb;
	struct pool_hostport at;

	if (!peer)
		return NULL;
	if (peer->role == POOL_ROLE_CLIENT && j->node->is_store)
		return "a client may not be a store: it needs the certificate "
		       "of a node";
	if (pool_parse_hostport(j->node->advertise, 0, &at))
		return "its address is not HOST:PORT";
	if (!is_its_host(s, at.host)) {
		snprintf(text, MASTER_REMEDY_MAX, "the certificate of %.40s is "
			 "not for %.60s, the address of its JOIN: issue one "
			 "with --host %.60s", peer->name, at.host, at.host);
		return text;
	}
	mb = master_members_find(&s->m->members, j->node->id.data);
	if (mb && mb->role && mb->role != peer->role)
		return "this id belongs to a member of another role";
	if (!mb || pool_parse_hostport(mb->advertise, 0, &at) ||
	    is_its_host(s, at.host))
		return NULL;
	snprintf(text, MASTER_REMEDY_MAX, "this node's id belongs to %.60s: a "
		 "node that has moved needs a certificate for both hosts",
		 at.host);
	return text;
}

/* May the epoch be raised above the one that the peer has seen? A limited
 * client could use up all epochs. */
static bool may_raise(const struct master_session *s)
{
	const struct pool_tls_id *peer = pool_conn_peer_id(s->conn);

	return !peer || peer->role != POOL_ROLE_CLIENT || !peer->ndirs;
}

/* The reason for refusing the JOIN, with *ret_status; NULL: it is accepted. The
 * reason may be in `text`. */
static const char *join_refused(struct master_session *s, const Kvpool__Join *j,
				int *ret_status, char text[MASTER_REMEDY_MAX])
{
	struct master *m = s->m;
	const char *why;

	*ret_status = -EPROTONOSUPPORT;
	if (!pool_wire_speaks(j->version)) {
		pool_wire_refusal(j->version, text);
		return text;
	}
	*ret_status = -EINVAL;
	if (master_member_check(j->node))
		return "the node's description is not valid";
	*ret_status = -EACCES;
	why = not_allowed(s, j, text);
	if (why)
		return why;
	*ret_status = -EAGAIN;
	if (master_recovering(m)) {
		if (may_raise(s))
			master_recover_note(m, j);
		return "the master collects the epochs that nodes have seen";
	}
	if (master_join_epoch(j) <= m->epoch)
		return NULL;
	if (may_raise(s) && master_recover_raise(m, master_join_epoch(j)))
		return "the epoch has been raised";
	*ret_status = -ESTALE;
	master_recover_remedy(m, master_join_epoch(j), text);
	return text;
}

static void welcome(struct master_session *s, const Kvpool__Join *j)
{
	Kvpool__Welcome msg = KVPOOL__WELCOME__INIT;

	msg.version = pool_wire_version;
	msg.epoch = s->m->epoch;
	msg.index = s->member->index;
	msg.heartbeat_ms = s->m->heartbeat_ms;
	msg.program = (char *)(uintptr_t)s->m->program;
	msg.dirs_max = s->m->map.quota.max.dirs;
	msg.attr_bytes_max = s->m->map.quota.max.bytes;
	s->joined_seq = msg.feed_seq = s->m->map.feed.seq;
	if (master_answers_join(s->member, j, &msg))
		pool_warn_limited(
			"node %s: no memory for results that it may have lost",
			s->member->name);
	master_session_send_after(s, POOL_MSG_WELCOME, 0, &msg.base,
			      master_keep_mark(s->m));
	free(msg.ops);
}

static void on_join(struct master_session *s, const Kvpool__Join *j)
{
	struct master *m = s->m;
	struct master_member *mb = NULL;
	char text[MASTER_REMEDY_MAX];
	struct master_session *old;
	const char *why;
	int status = 0;
	bool known;

	if (s->member)
		return bad_message(s, "second JOIN");
	why = join_refused(s, j, &status, text);
	if (why) {
		master_count(m, MC_SESSIONS_REFUSED);
		return master_session_fail(s, status, why);
	}
	mb = master_members_find(&m->members, j->node->id.data);
	known = mb != NULL;
	if (mb && master_limits_taken(m, mb, s, pool_now_ms())) {
		master_count(m, MC_IDS_REFUSED);
		return master_session_fail(
			s, -EADDRINUSE,
			"a node of this id has joined from another address, "
			"and is not gone yet");
	}
	if (!mb && master_limits_crowded(m, s)) {
		master_count(m, MC_SESSIONS_REFUSED);
		return master_session_fail(s, -ENOSPC,
					   "too many nodes of its address");
	}
	status = master_members_make(&m->members, j->node->id.data, &mb);
	if (status)
		return master_session_fail(s, status, "too many nodes");
	note_absence(s, mb, j, known);
	old = mb->session;
	status = master_member_join(&m->members, mb, s, pool_now_ms());
	if (status)
		return master_session_fail(s, status, "joined too often");
	if (old) {
		master_session_end(old, "the node has joined again");
		master_repair_cut_off(m, mb); /* orders sent to `old` */
	}
	s->member = mb;
	memcpy(mb->addr, s->addr, sizeof(mb->addr));
	if (pool_conn_peer_id(s->conn))
		mb->role = pool_conn_peer_id(s->conn)->role;
	if (!master_member_describe(&m->members, mb, j->node))
		master_figures_impossible(m, mb);
	mb->left_wall_ns = 0;
	master_keep_member(m, mb);
	master_keep_flush(m);
	pool_info_paced("node %s (%s) joined as %u%s%s", mb->name,
		  pool_conn_peer_name(s->conn), mb->index,
		  mb->is_store ? ", store" : "", mb->is_mount ? ", mount" : "");
	master_event(m->events, "joined", "%s (%s)%s%s", mb->name,
		     pool_conn_peer_name(s->conn),
		     mb->is_store ? ", store" : "",
		     mb->is_mount ? ", mount" : "");
	welcome(s, j);
	master_kick(m);
}

void master_session_beat(struct master_session *s)
{
	Kvpool__Heartbeat msg = KVPOOL__HEARTBEAT__INIT;

	msg.epoch = s->m->epoch;
	msg.asked_seed = s->m->asked_seed;
	msg.wall_ms = pool_wall_ns() / 1000000;
	master_session_send(s, POOL_MSG_HEARTBEAT, 0, &msg.base);
}

static void on_heartbeat(struct master_session *s, Kvpool__Heartbeat *hb)
{
	struct master *m = s->m;

	if (hb->epoch != m->epoch)
		return master_session_fail(s, -ESTALE,
					   "heartbeat of another epoch");
	if (hb->node)
		master_repair_figures(m, s->member, hb->node);
	master_on_asked(s, hb);
	master_on_heat(s, hb);
	if (s->ended)
		return;
	master_session_beat(s);
	master_kick(m);
}

static void on_subscribe(struct master_session *s, const Kvpool__Subscribe *msg)
{
	bool was = s->subscribed;

	master_on_subscribe(s, msg);
	if (!was && s->subscribed)
		master_stats_subscribed(s);
}

/* ---- dispatch ---- */

static bool for_masters(uint16_t type)
{
	switch (type) {
	case POOL_MSG_JOIN:
	case POOL_MSG_INVENTORY:
	case POOL_MSG_SUBSCRIBE:
	case POOL_MSG_FEED_ACK:
	case POOL_MSG_OPS:
	case POOL_MSG_EVICT:
	case POOL_MSG_HELD:
	case POOL_MSG_SYNC:
	case POOL_MSG_HEARTBEAT:
		return true;
	default:
		return false;
	}
}

static void bad_payload(struct master_session *s, uint16_t type,
			const char *why)
{
	char text[32 + POOL_UNPACK_WHY];

	snprintf(text, sizeof(text), "%s %s", pool_msg_name(type), why);
	bad_message(s, text);
}

static void handle(struct master_session *s, const struct pool_frame *f,
		   void *msg, uint64_t now_ns)
{
	switch (f->type) {
	case POOL_MSG_JOIN:
		return on_join(s, msg);
	case POOL_MSG_INVENTORY:
		return master_on_inventory(s, msg);
	case POOL_MSG_SUBSCRIBE:
		return on_subscribe(s, msg);
	case POOL_MSG_FEED_ACK:
		return master_on_feed_ack(s, msg, now_ns);
	case POOL_MSG_OPS:
		return master_on_ops(s, f->req, msg);
	case POOL_MSG_EVICT:
		return master_on_evict(s, msg);
	case POOL_MSG_HELD:
		return master_on_held(s, msg);
	case POOL_MSG_SYNC:
		return master_on_sync(s, f->req, msg);
	case POOL_MSG_HEARTBEAT:
		return on_heartbeat(s, msg);
	default:
		return;
	}
}

static void dispatch(struct master_session *s, const struct pool_frame *f,
		     void *msg)
{
	struct pool_hist *took = &s->m->stats.took[f->type];
	uint64_t now_ns = pool_now_ns();

	if (s->member)
		s->member->received_ms = now_ns / 1000000;
	handle(s, f, msg, now_ns);
	pool_hist_add(took, pool_now_ns() - now_ns);
}

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct master_session *s = pool_conn_user(c);
	char why[POOL_UNPACK_WHY];
	ProtobufCMessage *msg;

	if (fd >= 0)
		close(fd);
	if (s->ended || !master_acting(s->m))
		return;
	pool_count(&s->m->stats.requests[f->type]);
	if (!for_masters(f->type))
		return bad_message(s, "not a message for a master");
	if (!s->member && f->type != POOL_MSG_JOIN)
		return bad_message(s, "JOIN must come first");
	if (pool_unpack(pool_msg_bound(f->type), payload, f->payload_len, &msg,
			why))
		return bad_payload(s, f->type, why);
	dispatch(s, f, msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

/* No message to a master has bulk bytes. */
static void *on_bulk_begin(struct pool_conn *c, const struct pool_frame *f,
			   const uint8_t *payload)
{
	struct master_session *s = pool_conn_user(c);

	(void)f;
	(void)payload;
	if (!s->ended)
		bad_message(s, "bulk bytes");
	return NULL;
}

static const struct pool_conn_ops conn_ops = {
	.on_frame = on_frame,
	.on_bulk_begin = on_bulk_begin,
	.on_close = on_close,
};

void master_accept(struct master *m, int fd)
{
	master_session_accept(m, fd);
}

void master_session_accept(void *arg, int fd)
{
	struct master *m = arg;
	struct pool_conn_opts opts = { .ops = &conn_ops };
	uint8_t addr[POOL_ADDRESS_SIZE];
	struct master_session *s = NULL;

	pool_fd_address(fd, addr);
	if (!m->closing && master_limits_admit(m, addr))
		s = calloc(1, sizeof(*s));
	if (!s) {
		close(fd);
		return;
	}
	s->m = m;
	memcpy(s->addr, addr, sizeof(addr));
	s->opened_ms = pool_now_ms();
	pool_list_init(&s->waits);
	pool_list_init(&s->held);
	pool_list_init(&s->deferred);
	pool_list_init(&s->inventory);
	pool_share_user_init(&s->feed_user, master_feed_turn);
	opts.user = s;
	opts.share = &m->recv_share;
	opts.first = POOL_MSG_JOIN;
	opts.tls = m->tls;
	opts.tls_roles = POOL_ROLES_USERS;
	opts.shakes = &m->shakes;
	opts.refused = &m->stats.c[MC_BAD_MESSAGES];
	if (pool_conn_from_fd(m->loop, fd, &opts, &s->conn)) {
		free(s);
		return;
	}
	pool_list_add_tail(&m->sessions, &s->link);
	m->nsessions++;
	m->nhandles++;
}
