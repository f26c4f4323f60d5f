/*
 * The session with the master.
 *
 *   DISCONNECTED --dial--> DIALLING --on_open: JOIN--> JOINING
 *    ^                                                    | WELCOME
 *    |                                                INVENTORY, in slices
 *    |                                                    | the last one sent
 *    +-- from every state when the connection closes --- UP
 *
 * pool/conn/dial.h says when and which address to dial next.
 *
 * With TLS, a connection is replaced before it is too old (pool/tls/tls.h). In
 * state UP, a second one is dialled. When its handshake has ended, the first
 * one is closed, and JOIN is sent on the second at once.
 *
 * A standby answers the JOIN with an ERROR, -EAGAIN. The master's host name is
 * resolved anew at each dial. Heartbeats go out from JOINING on; silence of
 * three periods ends the connection.
 */
#include "pool/conn/dial.h"
#include "pool/node/node_priv.h"
#include "pool/conn/unpack.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REFUSED_LOG_MS 60000
#define ASKED_BEATS 20 /* from one report of look-ups to the next: 10 periods */
#define RENEW_RETRY_MS 10000 /* after a new connection failed */
#define RESYNC_MIN_MS 1000u
#define RESYNC_MAX_MS 60000u
#define QUEUE_MAX (1u << 30)
#define INVENTORY_QUEUED (8u << 20) /* bytes of inventory that may be queued */

/* ---- our identity ---- */

static void send_join(struct pool_node *n)
{
	Kvpool__Join join = KVPOOL__JOIN__INIT;
	Kvpool__NodeInfo info;

	node_session_info(n, &info);
	join.version = pool_wire_version;
	join.node = &info;
	join.epoch = n->feed_epoch;
	join.seq = n->feed_seq;
	join.seen_epoch = n->epoch > n->held_epoch ? n->epoch : n->held_epoch;
	join.ops_run = n->ops_run;
	join.ops_done = n->ops_done;
	(void)node_session_send_any(n, POOL_MSG_JOIN, 0, &join.base);
}

static void send_heartbeat(struct pool_node *n)
{
	struct node_session *s = n->session;
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	struct node_asked_report *asked = NULL;
	Kvpool__NodeInfo info;

	node_session_info(n, &info);
	hb.epoch = n->epoch;
	hb.node = &info;
	if (n->opts.mount && s->beats++ % ASKED_BEATS == 0)
		asked = node_asked_report(n, &s->asked_sent);
	if (asked)
		hb.asked = &asked->msg;
	(void)node_session_send_any(n, POOL_MSG_HEARTBEAT, 0, &hb.base);
	free(asked);
}

/* ---- inventory: a walk over the tree ---- */

struct inventory {
	Kvpool__Inventory msg;
	Kvpool__Meta *list[POOL_BATCH_MAX];
	Kvpool__Meta meta[POOL_BATCH_MAX];
	XXH128_canonical_t sum[POOL_BATCH_MAX];
	char *paths[POOL_BATCH_MAX];
	size_t n, bytes;
};

static int add_held(struct inventory *inv, struct node_entry *e)
{
	struct node_object *o = e->obj;
	Kvpool__Meta *m = &inv->meta[inv->n];
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&e->e, path);

	if (len < 0)
		return len;
	inv->paths[inv->n] = strdup(path);
	if (!inv->paths[inv->n])
		return -ENOMEM;
	kvpool__meta__init(m);
	m->path.data = (uint8_t *)inv->paths[inv->n];
	m->path.len = (size_t)len;
	m->gen = o->gen;
	m->seen_gen = o->from;
	m->size = o->size;
	XXH128_canonicalFromHash(&inv->sum[inv->n], o->sum);
	m->sum.data = inv->sum[inv->n].digest;
	m->sum.len = 16;
	m->mode = e->attr.mode;
	m->uid = e->attr.uid;
	m->gid = e->attr.gid;
	m->mtime_ns = e->attr.mtime_ns;
	m->attr_gen = e->attr.gen;
	if (pool_xattrs_to_pb(e->xattrs, &m->xattrs, &m->n_xattrs) < 0)
		return -ENOMEM;
	inv->list[inv->n++] = m;
	inv->bytes += (size_t)len + 64 + (m->n_xattrs ? POOL_XATTRS_MAX : 0);
	return 0;
}

static void become_up(struct pool_node *n)
{
	struct node_session *s = n->session;
	Kvpool__Subscribe sub = KVPOOL__SUBSCRIBE__INIT;

	s->state = SESSION_UP;
	pool_info_paced(
		"joined the master at %s (epoch %llu, as node %u, protocol "
		"version %u)",
		pool_conn_peer_name(s->conn), (unsigned long long)n->epoch,
		n->index, pool_conn_version(s->conn));
	if (n->opts.mount) {
		sub.epoch = n->in_picture ? 0 : n->feed_epoch;
		sub.seq = n->in_picture ? 0 : n->feed_seq;
		(void)node_session_send_any(n, POOL_MSG_SUBSCRIBE, 0,
					    &sub.base);
	}
	node_kick(n);
}

/* The next entries, within this turn's share of names. */
static int fill_inventory(struct pool_node *n, struct inventory *inv)
{
	struct pool_entry *e;
	struct node_entry *f;
	bool leaving;
	int err = 0;

	inv->n = inv->bytes = 0;
	while (!err && inv->n < POOL_BATCH_MAX &&
	       inv->bytes < POOL_BATCH_BYTES &&
	       (e = node_walk_step(n, &n->inventory, &leaving))) {
		f = node_file(e);
		if (f && f->obj && f->obj->state == NODE_HELD &&
		    f->obj->counted)
			err = add_held(inv, f);
	}
	return err;
}

static int send_inventory(struct pool_node *n, struct inventory *inv)
{
	bool last = !n->inventory.at;
	size_t i;
	int err = 0;

	kvpool__inventory__init(&inv->msg);
	inv->msg.n_entries = inv->n;
	inv->msg.entries = inv->list;
	inv->msg.last = last;
	if (inv->n || last)
		err = node_session_send_any(n, POOL_MSG_INVENTORY, 0,
					 &inv->msg.base);
	pool_count_add(&n->c.inventory_sent, inv->n);
	for (i = 0; i < inv->n; i++) {
		free(inv->paths[i]);
		free(inv->meta[i].xattrs);
	}
	return err;
}

/*
 * Names may change between the slices, after they were sent. That is harmless,
 * because until the last message
 *
 *   - a change of a name waits in the outbox and is sent after it, as if made
 *     after it: for the master, the inventory describes the moment of WELCOME;
 *   - no counted copy is evicted: that takes the master's permission, which is
 *     requested after it;
 *   - a copy dropped by the master's order is already known to the master;
 *   - a damaged copy is reported by HELD at once, after the message that named
 *     it;
 *   - a replica that was ordered in an earlier session stays a cached copy.
 *
 * Other nodes' changes and the master's orders may arrive between the messages:
 * the master handles each message by itself.
 */
bool node_inventory_slice(struct pool_node *n)
{
	struct node_session *s = n->session;
	struct inventory *inv;
	int err;

	if (!pool_tree_walk_is_open(&n->inventory) ||
	    pool_conn_queued(s->conn) > INVENTORY_QUEUED)
		return false; /* node_session_tick continues */
	inv = malloc(sizeof(*inv));
	err = inv ? 0 : -ENOMEM;
	while (!err && n->inventory.at && n->walked < NODE_SLICE) {
		err = fill_inventory(n, inv);
		if (err)
			pool_error_limited("the inventory failed: %s",
					   strerror(-err));
		else
			err = send_inventory(n, inv);
	}
	free(inv);
	if (err) { /* the next join sends all of it */
		pool_tree_walk_close(&n->inventory);
		pool_conn_close(s->conn);
		return false;
	}
	if (n->inventory.at)
		return true;
	pool_tree_walk_close(&n->inventory);
	become_up(n);
	return false;
}

/* Sends the list of copies evicted here without a master: nodes that rejoin
 * must not bring older versions of these back. 0 or -errno. */
static int send_evicted_alone(struct pool_node *n)
{
	Kvpool__Meta *list[NODE_EVICTED_SENT], *meta;
	Kvpool__Inventory msg = KVPOOL__INVENTORY__INIT;
	size_t i;
	int err;

	meta = malloc(NODE_EVICTED_SENT * sizeof(*meta));
	if (!meta)
		return -ENOMEM;
	msg.n_gone = node_evicted_alone(n, meta);
	msg.gone = list;
	for (i = 0; i < msg.n_gone; i++)
		list[i] = &meta[i];
	err = 0;
	if (i > 0)
		err = node_session_send_any(n, POOL_MSG_INVENTORY, 0,
					    &msg.base);
	free(meta);
	return err;
}

static void begin_inventory(struct pool_node *n)
{
	struct node_session *s = n->session;

	s->state = SESSION_INVENTORY;
	s->logged = false;
	pool_dial_joined(&s->dial);
	n->cut_off_ms = 0;
	if (send_evicted_alone(n)) {
		pool_conn_close(s->conn);
		return;
	}
	pool_tree_walk_open(&n->tree, n->tree.root, &n->inventory);
	if (node_inventory_slice(n))
		node_walks_start(n);
}

/* ---- messages ---- */

static void on_welcome(struct pool_node *n, const Kvpool__Welcome *w)
{
	struct node_session *s = n->session;

	if (w->epoch < n->epoch || w->index >= NODE_NODES_MAX) {
		pool_warn_limited(
			"the master at %s has an old epoch (%llu < %llu): "
			"left",
			pool_conn_peer_name(s->conn),
			(unsigned long long)w->epoch,
			(unsigned long long)n->epoch);
		pool_conn_close(s->conn);
		return;
	}
	n->epoch = w->epoch;
	n->index = w->index;
	n->welcome_seq = w->feed_seq;
	n->granted = 0;
	n->helds_before = n->helds_sent;
	pool_quota_limit(&n->quota, w->dirs_max, w->attr_bytes_max);
	/*
	 * Before node_stage_begins, because these results are not ahead of the
	 * feed that follows; before the inventory, because it must include what
	 * they publish. No ack can arrive during the inventory's walk: changes
	 * are sent after it.
	 */
	node_ops_welcome(n, w);
	node_stage_begins(n);
	n->feed_begun = false;
	pool_wire_program(s->program, w->program);
	s->clocks.n = 0;
	s->heartbeat_ms = w->heartbeat_ms ? w->heartbeat_ms : 1000;
	s->beats = 0;
	s->asked_sent = 0;
	begin_inventory(n);
}

static void on_feed(struct pool_node *n, const Kvpool__Feed *f)
{
	int err = node_feed_apply(n, f);

	if (err) { /* the next subscription resends it */
		pool_warn_limited("the master's feed: %s", strerror(-err));
		pool_conn_close(n->session->conn);
		return;
	}
	if (!node_feed_sweeping(n))
		node_feed_ack(n, f->upto_seq);
	node_kick(n);
}

/* At most one line in REFUSED_LOG_MS while the refusal, which comes at each
 * dial, stays the same. */
static bool should_log_refusal(struct node_session *s, int status)
{
	uint64_t now = pool_now_ms();

	if (s->refused == status && now - s->refused_logged_ms < REFUSED_LOG_MS)
		return false;
	s->refused = status;
	s->refused_logged_ms = now;
	return true;
}

static void on_error(struct pool_node *n, const Kvpool__Error *e)
{
	if (e->status == -EAGAIN) {
		n->session->standby = true;
		pool_count(&n->c.master_standbys);
		pool_dial_standby(&n->session->dial, e->leader, pool_now_ms());
		pool_conn_close(n->session->conn);
		return;
	}
	if (should_log_refusal(n->session, e->status))
		pool_error_limited("the master at %s refused this node: %s "
			   "(%s)", pool_conn_peer_name(n->session->conn),
			   e->text, strerror(e->status < 0 ? -e->status :
							     e->status));
	pool_conn_close(n->session->conn);
}

static void h_welcome(struct pool_node *n, const ProtobufCMessage *m)
{
	if (n->session->state == SESSION_JOINING)
		on_welcome(n, (const Kvpool__Welcome *)m);
}
static void h_feed(struct pool_node *n, const ProtobufCMessage *m)
{
	on_feed(n, (const Kvpool__Feed *)m);
}
static void h_ops_done(struct pool_node *n, const ProtobufCMessage *m)
{
	node_ops_done(n, (const Kvpool__OpsDone *)m);
}
static void h_drop(struct pool_node *n, const ProtobufCMessage *m)
{
	node_drop_apply(n, (const Kvpool__Drop *)m);
}
static void h_replicate(struct pool_node *n, const ProtobufCMessage *m)
{
	node_replicate(n, (const Kvpool__Replicate *)m);
}
static void h_error(struct pool_node *n, const ProtobufCMessage *m)
{
	on_error(n, (const Kvpool__Error *)m);
}
static void h_heartbeat(struct pool_node *n, const ProtobufCMessage *m)
{
	const Kvpool__Heartbeat *hb = (const Kvpool__Heartbeat *)m;

	/* Its arrival resets the connection's idle timeout. */
	node_asked_seed(n, hb->asked_seed);
	node_session_note_clock(n, hb->wall_ms);
}

/* Messages from the master, by type. */
static const struct handler {
	uint16_t type;
	void (*fn)(struct pool_node *n, const ProtobufCMessage *msg);
} handlers[] = {
	{ POOL_MSG_WELCOME, h_welcome },
	{ POOL_MSG_FEED, h_feed },
	{ POOL_MSG_OPS_DONE, h_ops_done },
	{ POOL_MSG_DROP, h_drop },
	{ POOL_MSG_REPLICATE, h_replicate },
	{ POOL_MSG_HEARTBEAT, h_heartbeat },
	{ POOL_MSG_ERROR, h_error },
};

static void on_frame(struct pool_conn *c, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	struct pool_node *n = pool_conn_user(c);
	ProtobufCMessage *msg;
	size_t i;

	if (fd >= 0)
		close(fd);
	if (f->type == POOL_MSG_SYNCED) {
		node_synced(n, f->req);
		return;
	}
	for (i = 0; i < sizeof(handlers) / sizeof(handlers[0]); i++)
		if (handlers[i].type == f->type)
			break;
	if (i == sizeof(handlers) / sizeof(handlers[0])) {
		pool_warn_limited("the master sent %s: ignored",
				  pool_msg_name(f->type));
		return;
	}
	msg = pool_frame_unpack(c, f, payload, &n->c.bad_messages);
	if (!msg) {
		pool_conn_close(c);
		return;
	}
	handlers[i].fn(n, msg);
	protobuf_c_message_free_unpacked(msg, NULL);
}

static void join(struct pool_node *n)
{
	struct node_session *s = n->session;

	s->state = SESSION_JOINING;
	s->joining_ms = pool_now_ms();
	s->due_ms = pool_tls_due_ms(n->opts.tls);
	pool_count(&n->c.master_connects);
	send_join(n);
}

static void on_open(struct pool_conn *c)
{
	struct pool_node *n = pool_conn_user(c);
	struct node_session *s = n->session;

	if (c == s->conn)
		return join(n);
	s->next_open = true;
	s->logged = true; /* closed on purpose: not logged */
	pool_conn_close(s->conn);
}

/* The old connection has closed: continues with its replacement. */
static void use_next(struct pool_node *n)
{
	struct node_session *s = n->session;

	s->conn = s->next;
	s->next = NULL;
	s->state = SESSION_DIALLING;
	if (!s->next_open)
		return;
	pool_info("the connection to the master at %s is renewed", s->master);
	pool_tls_renewed(n->opts.tls);
	join(n);
}

static void free_closed(struct pool_node *n)
{
	struct node_session *s = n->session;

	if (s->conn || s->next)
		return;
	free(s);
	n->session = NULL;
	node_handle_closed(n);
}

static void next_closed(struct pool_node *n, int err)
{
	struct node_session *s = n->session;

	s->next = NULL;
	s->due_ms = pool_now_ms() + RENEW_RETRY_MS;
	if (s->state == SESSION_CLOSED)
		return free_closed(n);
	pool_warn_limited("the connection to the master at %s cannot be "
			  "renewed: %s", s->master, strerror(-err));
}

static void on_close(struct pool_conn *c, int err)
{
	struct pool_node *n = pool_conn_user(c);
	struct node_session *s = n->session;
	uint64_t now = pool_now_ms();

	if (c == s->next)
		return next_closed(n, err);
	s->conn = NULL;
	n->ack_waits = false; /* the next session begins with a new feed */
	if (s->state == SESSION_CLOSED)
		return free_closed(n);
	if (!s->logged) {
		pool_warn_paced("no master at %s (%s): serving locally, "
			  "retrying", s->master, s->standby ? "a standby" :
			  strerror(err < 0 ? -err : ECONNRESET));
		s->logged = true;
	}
	if (s->state == SESSION_UP || s->state == SESSION_INVENTORY)
		n->cut_off_ms = now;
	pool_tree_walk_close(&n->inventory);
	node_sweep_cut_off(n);
	node_heat_cut_off(n);
	s->state = SESSION_DISCONNECTED;
	if (!s->standby && !s->next)
		pool_dial_failed(&s->dial, now);
	node_ops_cut_off(n);
	node_barriers_cut_off(n);
	if (s->next)
		use_next(n);
}

static const struct pool_conn_ops conn_ops = {
	.on_open = on_open,
	.on_frame = on_frame,
	.on_close = on_close,
};

/* 0 or -ENOMEM. */
static int connect_to(struct pool_node *n, struct pool_conn **ret_conn)
{
	struct node_session *s = n->session;
	struct pool_conn_opts co = {
		.ops = &conn_ops,
		.user = n,
		.connect_timeout_ms = pool_dial_connect_ms(&s->dial),
		.idle_timeout_ms = (unsigned int)(3 * s->heartbeat_ms),
		.send_queue_max = QUEUE_MAX,
		.trust = n->opts.trust,
		.tls = n->opts.tls,
		.tls_roles = POOL_ROLE_BIT(POOL_ROLE_MASTER),
		.first = POOL_MSG_WELCOME,
		.refused = &n->c.bad_messages,
	};

	return pool_conn_connect(n->loop, &s->dial.at, &co, ret_conn);
}

static void dial(struct pool_node *n)
{
	struct node_session *s = n->session;

	s->standby = false;
	pool_format_hostport(&s->dial.at, s->master, sizeof(s->master));
	if (connect_to(n, &s->conn) == 0)
		s->state = SESSION_DIALLING;
	else
		pool_dial_failed(&s->dial, pool_now_ms());
}

static void renew(struct pool_node *n, uint64_t now)
{
	struct node_session *s = n->session;

	if (s->next || now < s->due_ms)
		return;
	s->next_open = false;
	if (connect_to(n, &s->next))
		s->due_ms = now + RENEW_RETRY_MS;
}

/* A master that accepts connections but does not answer (stopped, or no longer
 * the leader) must not keep this node from the leader. */
static void check_joining(struct pool_node *n, uint64_t now)
{
	struct node_session *s = n->session;
	unsigned int limit = pool_dial_join_ms(&s->dial);

	if (!limit || now - s->joining_ms < limit)
		return;
	pool_dial_slow(&s->dial);
	pool_conn_close(s->conn);
}

bool pool_node_connected(const struct pool_node *n)
{
	return node_session_up(n);
}

bool pool_node_caught_up(const struct pool_node *n)
{
	return node_session_up(n) && n->feed_epoch == n->epoch &&
	       n->feed_seq >= n->welcome_seq;
}

void pool_node_master_found(struct pool_node *n, const struct pool_hostport *at)
{
	struct node_session *s = n->session;

	if (!s || s->state == SESSION_INVENTORY || s->state == SESSION_UP ||
	    s->state == SESSION_CLOSED)
		return;
	/* A dial that has no answer yet is abandoned in favour of `at`. */
	if (pool_dial_named(&s->dial, at, pool_now_ms()) && s->conn)
		pool_conn_close(s->conn);
}

const char *node_session_master(const struct pool_node *n)
{
	return n->session ? n->session->master : "";
}

const char *node_session_program(const struct pool_node *n)
{
	return node_session_up(n) ? n->session->program : "";
}

void node_session_note_clock(struct pool_node *n, uint64_t wall_ms)
{
	struct node_clocks *c = &n->session->clocks;
	int64_t ahead = (int64_t)(pool_wall_ns() / 1000000);

	if (!wall_ms)
		return;
	ahead -= wall_ms < INT64_MAX ? (int64_t)wall_ms : INT64_MAX;
	if (ahead > NODE_CLOCK_MAX_MS)
		ahead = NODE_CLOCK_MAX_MS;
	if (ahead < -NODE_CLOCK_MAX_MS)
		ahead = -NODE_CLOCK_MAX_MS;
	c->ahead_ms[c->n++ % NODE_CLOCKS] = ahead;
}

bool node_session_clock(const struct pool_node *n, int64_t *ret_ms)
{
	const struct node_clocks *c;

	if (!node_session_up(n) || !n->session->clocks.n)
		return false;
	c = &n->session->clocks;
	*ret_ms = c->ahead_ms[0];
	for (unsigned int i = 1; i < NODE_CLOCKS && i < c->n; i++)
		if (llabs(c->ahead_ms[i]) < llabs(*ret_ms))
			*ret_ms = c->ahead_ms[i];
	return true;
}

/* A feed entry was skipped: starts a new session to receive the whole picture
 * again. While that repeats, the interval doubles, up to RESYNC_MAX_MS. */
static void resync(struct pool_node *n, uint64_t now)
{
	uint64_t wait = n->resync_wait_ms * 2;

	if (!n->feed_skipped || now < n->resync_ms)
		return;
	if (wait < RESYNC_MIN_MS || now > n->resync_ms + RESYNC_MAX_MS)
		wait = RESYNC_MIN_MS;
	n->resync_wait_ms = wait < RESYNC_MAX_MS ? wait : RESYNC_MAX_MS;
	n->resync_ms = now + n->resync_wait_ms;
	n->feed_skipped = false;
	n->in_picture = true; /* SUBSCRIBE then asks for it */
	pool_conn_close(n->session->conn);
}

void node_session_tick(struct pool_node *n, uint64_t now)
{
	struct node_session *s = n->session;

	if (s->state == SESSION_DISCONNECTED && pool_dial_next(&s->dial, now))
		dial(n);
	if (s->state == SESSION_JOINING)
		check_joining(n, now);
	if (s->state == SESSION_INVENTORY || node_feed_sweeping(n))
		node_walks_start(n);
	if ((s->state == SESSION_INVENTORY || s->state == SESSION_UP) &&
	    now >= s->beat_ms) {
		s->beat_ms = now + s->heartbeat_ms / 2;
		send_heartbeat(n);
	}
	if (s->state == SESSION_UP && !node_feed_sweeping(n)) {
		resync(n, now);
		renew(n, now);
	}
}

int node_session_open(struct pool_node *n)
{
	struct node_session *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->heartbeat_ms = 1000;
	pool_dial_init(&s->dial, &n->opts.masters);
	n->session = s;
	if (pool_dial_next(&s->dial, pool_now_ms()))
		dial(n);
	return 0;
}

void node_session_close(struct pool_node *n)
{
	struct node_session *s = n->session;

	s->state = SESSION_CLOSED;
	if (s->conn)
		pool_conn_close(s->conn);
	if (s->next)
		pool_conn_close(s->next);
	free_closed(n);
}
