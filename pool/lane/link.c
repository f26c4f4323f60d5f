/* Links, both sides: the queue pair, and the messages LINK and BUFFER. */
#include "pool/lane/link.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/conn/fault_rules.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"
#include "pool/conn/unpack.h"

/* ---- one link ---- */

static void link_free(struct link *l)
{
	struct link_ports *ports = l->ports;

	pool_list_del(&l->watch.link);
	if (l->exposed)
		verbs_pd_close(l->port, l->pd);
	free(l);
	ports->nlinks--;
	link_ports_tidy(ports);
}

static void on_qp_closed(void *arg)
{
	struct link *l = arg;

	/* The device can access no memory any more, so the maps may end. */
	while (!pool_list_empty(&l->mapped))
		link_map_end(pool_list_first(&l->mapped, struct link_map,
					     link));
	if (l->by_cm)
		verbs_cm_free(&l->conn);
	link_free(l);
}

void link_close(struct link *l)
{
	l->user = NULL;
	pool_list_del(&l->watch.link);
	if (l->by_cm && l->conn.cm)
		verbs_cm_end(&l->conn);
	if (l->qp)
		verbs_qp_close(l->qp, on_qp_closed, l);
	else
		on_qp_closed(l);
}

static void on_note(void *arg, const void *msg, uint32_t length)
{
	struct link *l = arg;
	struct link_note note;

	if (!l->user)
		return;
	if (length != sizeof(note)) {
		l->ops->on_broken(l->user, -EPROTO);
		return;
	}
	memcpy(&note, msg, sizeof(note));
	l->ops->on_note(l->user, &note);
}

static void on_broken(void *arg, int err)
{
	struct link *l = arg;

	if (l->user)
		l->ops->on_broken(l->user, err);
}

static const struct verbs_qp_ops qp_ops = {
	.on_note = on_note,
	.on_broken = on_broken,
};

static int qp_open(struct link *l, struct rdma_cm_id *id)
{
	struct verbs_qp_opts opts = {
		.pd = l->pd,
		.access = !l->exposed ? 0 : l->kind == LINK_PUSH ?
				       IBV_ACCESS_REMOTE_WRITE :
				       IBV_ACCESS_REMOTE_READ,
		.ops = &qp_ops,
		.arg = l,
		.cm_id = id,
	};
	int err = link_port_cq(l->ports, l->port, &opts.cq);

	return err ? err : verbs_qp_open(&opts, &l->qp);
}

int link_open(struct link_ports *ports, struct verbs_port *port,
	      enum link_kind kind, bool dialled, bool by_cm,
	      const struct link_user *ops, void *user, struct link **ret_link)
{
	struct link *l = calloc(1, sizeof(*l));
	int err = 0;

	if (!l)
		return -ENOMEM;
	l->ports = ports;
	l->port = port;
	l->kind = kind;
	l->exposed = dialled == (kind == LINK_PUSH);
	l->by_cm = by_cm;
	l->ops = ops;
	l->user = user;
	pool_list_init(&l->mapped);
	pool_list_init(&l->watch.link);
	if (l->exposed)
		err = verbs_pd_open(port, &l->pd);
	else
		l->pd = port->pd;
	if (!err && !by_cm)
		err = qp_open(l, NULL);
	if (err) {
		if (l->exposed && l->pd)
			verbs_pd_close(port, l->pd);
		free(l);
		return err;
	}
	ports->nlinks++;
	*ret_link = l;
	return 0;
}

/* ---- work ---- */

/*
 * Breaks the link if no work has completed for LINK_STALL_TICKS: the peer is
 * dead, although the device still retries. This counts ticks and not time, so
 * that a process that was stopped (SIGSTOP) does not find its links stalled.
 */
static void watch_due(struct link_tick *t)
{
	struct link *l = pool_container_of(t, struct link, watch);
	uint64_t completed;

	if (!verbs_qp_in_flight(l->qp, &completed))
		return;
	if (completed != l->completed)
		l->stalled_ticks = 0;
	l->completed = completed;
	if (l->stalled_ticks++ < LINK_STALL_TICKS) {
		link_tick_set(l->ports, t, LINK_TICK_MS);
		return;
	}
	verbs_port_failed(l->port);
	l->ops->on_broken(l->user, -ETIMEDOUT);
}

int link_post(struct link *l, struct verbs_work *w)
{
	int err = verbs_qp_post(l->qp, w);

	if (err || !pool_list_empty(&l->watch.link))
		return err;
	l->stalled_ticks = 0;
	l->watch.due = watch_due;
	link_tick_set(l->ports, &l->watch, LINK_TICK_MS);
	return 0;
}

enum pool_fault_kind link_fault(struct link *l, const struct pool_conn *c,
				uint32_t *ret_delay_ms)
{
	struct pool_faults *f = pool_faults_installed();
	enum pool_fault_kind kind = POOL_FAULT_KINDS;

	if (f && c)
		kind = pool_faults_judge(f, pool_conn_peer_name(c),
					 POOL_FAULT_RDMA, true, ret_delay_ms);
	if (kind == POOL_FAULT_RESET)
		verbs_qp_inject_error(l->qp);
	return kind;
}

/* ---- links connected by librdmacm ---- */

bool link_by_cm(const struct verbs_port *port)
{
	return port->by_cm;
}

static struct link *link_of(struct verbs_cm_conn *c)
{
	return pool_container_of(c, struct link, conn);
}

static int cm_made(struct verbs_cm_conn *c, struct rdma_cm_id *id)
{
	return qp_open(link_of(c), id);
}

static void cm_connected(struct verbs_cm_conn *c)
{
	struct link *l = link_of(c);

	verbs_qp_connected(l->qp);
	l->ops->on_connected(l->user);
}

static void cm_failed(struct verbs_cm_conn *c, int err)
{
	struct link *l = link_of(c);

	verbs_port_failed(l->port);
	l->ops->on_broken(l->user, err);
}

static int cm_conn(struct link *l)
{
	struct link_ports *ports = l->ports;

	l->conn.made = cm_made;
	l->conn.connected = cm_connected;
	l->conn.failed = cm_failed;
	if (!l->port->cm)
		return -EOPNOTSUPP;
	return ports->cm ? 0 : verbs_cm_open(&ports->mover->loop, &ports->cm);
}

int link_await(struct link *l, struct link_call *ret_call)
{
	int err = cm_conn(l);

	return err ? err : verbs_cm_await(l->ports->cm, l->port, &l->conn,
					  ret_call->host, &ret_call->port,
					  &ret_call->token);
}

int link_make_call(struct link *l, const struct link_call *call)
{
	int err = cm_conn(l);

	return err ? err : verbs_cm_call(l->ports->cm, l->port, &l->conn,
					 call->host, call->port, call->token);
}

/* ---- messages ---- */

static int send_msg(struct pool_conn *c, Kvpool__Link *msg)
{
	return pool_conn_send(c, POOL_MSG_LINK, 0, &msg->base);
}

int link_msg_send(struct pool_conn *c, enum link_word word, enum link_kind kind,
		  uint32_t attempt, const char *text)
{
	Kvpool__Link msg = KVPOOL__LINK__INIT;

	msg.word = word;
	msg.kind = kind;
	msg.attempt = attempt;
	msg.text = (char *)(uintptr_t)(text ? text : "");
	return send_msg(c, &msg);
}

void link_address_fill(struct verbs_address *a, Kvpool__LinkAddress *at)
{
	at->link = a->link;
	at->gid.data = a->gid;
	at->gid.len = sizeof(a->gid);
	at->qpn = a->qpn;
	at->psn = a->psn;
	at->lid = a->lid;
	at->mtu = a->mtu;
	at->reads_in = a->reads_in;
	at->reads_out = a->reads_out;
}

int link_msg_send_address(struct pool_conn *c, enum link_word word,
			  uint32_t attempt, const struct link *l,
			  const struct link_call *call)
{
	Kvpool__Link msg = KVPOOL__LINK__INIT;
	Kvpool__LinkAddress at = KVPOOL__LINK_ADDRESS__INIT;
	Kvpool__LinkCall where = KVPOOL__LINK_CALL__INIT;
	struct verbs_address a = { .link = l->port->link };

	if (l->qp)
		verbs_qp_address(l->qp, &a);
	link_address_fill(&a, &at);
	msg.word = word;
	msg.kind = l->kind;
	msg.attempt = attempt;
	msg.address = &at;
	msg.cm = l->by_cm;
	msg.parts = true;
	if (call) {
		where.host = (char *)(uintptr_t)call->host;
		where.port = call->port;
		where.token = call->token;
		msg.call = &where;
	}
	return send_msg(c, &msg);
}

/* Numbers out of range are invalid, not truncated. */
static bool address_read(const Kvpool__LinkAddress *at,
			 struct verbs_address *ret)
{
	if (at->gid.len != sizeof(ret->gid) || at->link > VERBS_IWARP ||
	    at->lid > UINT16_MAX || at->mtu > UINT8_MAX ||
	    at->reads_in > UINT8_MAX || at->reads_out > UINT8_MAX)
		return false;
	*ret = (struct verbs_address){ .link = (enum verbs_link)at->link,
				       .qpn = at->qpn,
				       .psn = at->psn,
				       .lid = (uint16_t)at->lid,
				       .mtu = (uint8_t)at->mtu,
				       .reads_in = (uint8_t)at->reads_in,
				       .reads_out = (uint8_t)at->reads_out };
	memcpy(ret->gid, at->gid.data, sizeof(ret->gid));
	return true;
}

static bool call_read(const Kvpool__LinkCall *call, struct link_call *ret)
{
	size_t len = strlen(call->host);

	if (len >= sizeof(ret->host) || call->port < 1 ||
	    call->port > UINT16_MAX)
		return false;
	memcpy(ret->host, call->host, len + 1);
	ret->port = (uint16_t)call->port;
	ret->token = call->token;
	return true;
}

static bool msg_parse(const Kvpool__Link *msg, struct link_msg *ret)
{
	if (msg->kind >= LINK_KINDS)
		return false;
	*ret = (struct link_msg){ .word = (enum link_word)msg->word,
				   .kind = (enum link_kind)msg->kind,
				   .attempt = msg->attempt,
				   .by_cm = msg->cm,
				   .parts = msg->parts };
	for (size_t i = 0; i < sizeof(ret->text) - 1 && msg->text[i]; i++)
		ret->text[i] = msg->text[i] >= ' ' && msg->text[i] < 127 ?
				       msg->text[i] : '?';
	if (msg->word == LINK_UP || msg->word == LINK_DOWN)
		return true;
	if ((msg->word != LINK_OFFER && msg->word != LINK_ACCEPT) ||
	    !msg->address || !address_read(msg->address, &ret->address))
		return false;
	return msg->word == LINK_OFFER || !msg->cm ||
	       (msg->call && call_read(msg->call, &ret->call));
}

bool link_msg_read(const uint8_t *payload, size_t len, struct link_msg *ret)
{
	ProtobufCMessage *msg;
	bool good;

	if (pool_unpack(pool_msg_bound(POOL_MSG_LINK), payload, len, &msg,
			NULL))
		return false;
	good = msg_parse((const Kvpool__Link *)msg, ret);
	protobuf_c_message_free_unpacked(msg, NULL);
	return good;
}

bool link_msg_receive(const struct pool_conn *c, const struct pool_frame *f,
		      const uint8_t *payload, struct link_msg *ret_msg)
{
	bool good = link_msg_read(payload, f->payload_len, ret_msg);

	if (!good)
		pool_warn_limited("%s: invalid LINK message",
				  pool_conn_peer_name(c));
	return good;
}

int link_buffer_send(struct pool_conn *c, const struct link_buffer *b)
{
	Kvpool__Buffer msg = KVPOOL__BUFFER__INIT;

	msg.at = b->at;
	msg.addr = b->addr;
	msg.rkey = b->rkey;
	msg.length = b->length;
	msg.gone = b->gone;
	return pool_conn_send(c, POOL_MSG_BUFFER, b->req, &msg.base);
}

bool link_buffer_read(const uint8_t *payload, size_t len,
		      struct link_buffer *ret)
{
	const Kvpool__Buffer *msg;
	ProtobufCMessage *any;
	bool good;

	if (pool_unpack(pool_msg_bound(POOL_MSG_BUFFER), payload, len, &any,
			NULL))
		return false;
	msg = (const Kvpool__Buffer *)any;
	good = msg->length <= POOL_BULK_MAX &&
	       msg->at <= POOL_BULK_MAX - msg->length &&
	       msg->addr <= UINT64_MAX - msg->length;
	if (good)
		*ret = (struct link_buffer){ .at = msg->at,
					     .addr = msg->addr,
					     .length = msg->length,
					     .rkey = msg->rkey,
					     .gone = msg->gone };
	protobuf_c_message_free_unpacked(any, NULL);
	return good;
}

bool link_buffer_receive(const struct pool_conn *c, const struct pool_frame *f,
			 const uint8_t *payload, struct link_buffer *ret)
{
	bool good = link_buffer_read(payload, f->payload_len, ret);

	if (!good)
		pool_warn_limited("%s: invalid BUFFER message",
				  pool_conn_peer_name(c));
	ret->req = f->req;
	return good;
}
