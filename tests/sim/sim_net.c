/*
 * pool/conn/conn.h in memory. See tests/sim/sim.h.
 *
 * A sent frame is an item in the receiver's queue, with the time at which its
 * last byte arrives: after a delay, and after everything that is in flight to
 * that host, because a host's connections share one line. `arrival` wakes the
 * connection when its first item arrives. It is then `readable`, until a turn
 * of its host has received everything that has arrived.
 */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/conn/conn.h"
#include "tests/sim/sim.h"
#include "tests/sim/sim_faults.h"

#define FD_BASE (1 << 24) /* above all real descriptors */
#define LISTENERS_MAX 32
#define PORT_BASE 20000
#define ACCEPTS_PER_TURN 16 /* as pool/conn/listener.c */
#define QUEUE_MAX (64u << 20)

enum kind { ITEM_OPEN, ITEM_FRAME, ITEM_END };

struct item {
	struct pool_list link;
	uint64_t at_ns;
	enum kind kind;
	int err; /* ITEM_END */
	struct pool_frame frame;
	uint8_t payload[];
};

enum state { WAITING, CONNECTING, OPEN, CLOSING };

struct pool_conn {
	struct sim_host *host;
	const struct sim_host *from; /* the other end's */
	struct pool_conn *peer; /* borrows; NULL: closed */
	const struct pool_conn_ops *ops;
	void *user;
	enum state state;
	int err;
	int fd;	    /* WAITING: its number for pool_conn_from_fd */
	bool mute;  /* draining: no callback but on_close */
	bool cut;   /* what it sends is lost */
	bool held;  /* pool_conn_hold */
	uint32_t number;
	struct pool_list all;  /* in host.conns */
	uint64_t late_ns;      /* nothing arrives here earlier */
	/* in listener.waiting, net.accepted, host.readable or host.closing */
	struct pool_list link;
	struct pool_list rx;   /* items */
	size_t rx_bytes, queue_max;
	size_t taken; /* bytes of the first item received in earlier turns */
	struct sim_event arrival, idle;
	uint64_t last_rx_ns;
	unsigned int idle_ms;
	struct pool_share *share; /* borrows, or NULL */
	struct pool_share_user turn;
	char name[32];
};

struct pool_listener {
	struct sim_host *host;
	uint16_t port;
	pool_accept_cb cb;
	void *arg;
	struct pool_list link;	  /* in host.doors */
	struct pool_list waiting; /* connections */
};

static struct {
	struct pool_listener *listeners[LISTENERS_MAX];
	uint16_t last_port;
	uint32_t last_number;
	struct pool_list accepted; /* WAITING for pool_conn_from_fd */
	void (*on_frame)(const struct sim_host *from, const struct sim_host *to,
			 const struct pool_frame *f, const uint8_t *payload,
			 const char *lost);
	void (*on_send)(const struct sim_host *from, const struct pool_frame *f,
			const uint8_t *payload);
} net;

void sim_net_open(void)
{
	memset(&net, 0, sizeof(net));
	net.last_port = PORT_BASE;
	pool_list_init(&net.accepted);
}

void sim_net_on_frame(void (*cb)(const struct sim_host *from,
				 const struct sim_host *to,
				 const struct pool_frame *f,
				 const uint8_t *payload, const char *lost))
{
	net.on_frame = cb;
}

void sim_net_on_send(void (*cb)(const struct sim_host *from,
				const struct pool_frame *f,
				const uint8_t *payload))
{
	net.on_send = cb;
}

void sim_net_close(void)
{
	assert(pool_list_empty(&net.accepted));
}

/* ---- items ---- */

static void wake(struct pool_conn *c)
{
	struct item *i;

	if (pool_list_empty(&c->rx) || !pool_list_empty(&c->link) ||
	    c->arrival.pos || c->state == WAITING || c->state == CLOSING ||
	    c->held)
		return;
	i = pool_list_first(&c->rx, struct item, link);
	sim_at(&c->arrival, i->at_ns);
}

/* From c's peer to c. */
static void send_item(struct pool_conn *c, struct item *i, size_t len)
{
	uint64_t at = sim_now_ns() + SIM_DELAY_NS + sim_random(SIM_DELAY_NS);

	if (at < c->host->nic_ns)
		at = c->host->nic_ns;
	at += len * SIM_BYTE_PS / 1000;
	c->host->nic_ns = at;
	i->at_ns = at > c->late_ns ? at : c->late_ns;
	c->late_ns = i->at_ns; /* in order */
	pool_list_add_tail(&c->rx, &i->link);
	c->rx_bytes += len;
	wake(c);
}

static int send_plain(struct pool_conn *c, enum kind kind, int err)
{
	struct item *i = calloc(1, sizeof(*i));

	if (!i)
		return -ENOMEM;
	i->kind = kind;
	i->err = err;
	send_item(c, i, 0);
	return 0;
}

static size_t item_len(const struct item *i)
{
	return i->kind == ITEM_FRAME ? POOL_WIRE_HEADER + i->frame.payload_len :
				       0;
}

static void item_free(struct pool_conn *c, struct item *i)
{
	c->rx_bytes -= item_len(i);
	pool_list_del(&i->link);
	free(i);
}

/* ---- connections ---- */

static void on_arrival(struct sim_event *e);
static void on_idle(struct sim_event *e);
static void on_go(struct pool_share_user *u);

static struct pool_conn *conn_new(struct sim_host *h, const char *name)
{
	struct pool_conn *c = calloc(1, sizeof(*c));

	assert(c);
	c->host = h;
	c->number = ++net.last_number;
	c->arrival.run = on_arrival;
	c->idle.run = on_idle;
	pool_list_init(&c->link);
	pool_list_init(&c->rx);
	pool_list_add_tail(&h->conns, &c->all);
	pool_share_user_init(&c->turn, on_go);
	snprintf(c->name, sizeof(c->name), "%s:%u", name, c->number);
	return c;
}

static void set_opts(struct pool_conn *c, const struct pool_conn_opts *opts)
{
	c->ops = opts->ops;
	c->user = opts->user;
	c->idle_ms = opts->idle_timeout_ms;
	c->share = opts->share;
	c->queue_max = opts->send_queue_max ? opts->send_queue_max : QUEUE_MAX;
}

static void conn_free(struct pool_conn *c)
{
	pool_share_leave(&c->turn);
	sim_cancel(&c->arrival);
	sim_cancel(&c->idle);
	pool_list_del(&c->link);
	pool_list_del(&c->all);
	while (!pool_list_empty(&c->rx))
		item_free(c, pool_list_first(&c->rx, struct item, link));
	if (c->peer)
		c->peer->peer = NULL;
	free(c);
}

static void end_now(struct pool_conn *c)
{
	c->ops->on_close(c, c->err);
	conn_free(c);
}

static void on_end_event(struct sim_event *e)
{
	end_now(pool_container_of(e, struct pool_conn, arrival));
}

/* Calls on_close in a later turn, and resets the other end. */
static void conn_fail(struct pool_conn *c, int err)
{
	if (c->state == CLOSING)
		return;
	c->state = CLOSING;
	c->err = c->mute ? 0 : err;
	sim_cancel(&c->arrival);
	sim_cancel(&c->idle);
	pool_list_del(&c->link);
	pool_share_leave(&c->turn);
	if (c->peer && !c->cut)
		send_plain(c->peer, ITEM_END, -ECONNRESET);
	if (c->peer)
		c->peer->peer = NULL;
	c->peer = NULL;
	if (!c->host->script) {
		pool_list_add_tail(&c->host->closing, &c->link);
		return;
	}
	c->arrival.run = on_end_event;
	sim_at(&c->arrival, sim_now_ns());
}

void sim_conn_vanish(struct pool_conn *c)
{
	if (c->peer) {
		c->peer->cut = true;
		while (!pool_list_empty(&c->peer->rx))
			item_free(c->peer, pool_list_first(&c->peer->rx,
							   struct item, link));
		sim_cancel(&c->peer->arrival);
		if (c->peer->state == OPEN)
			pool_list_del(&c->peer->link);
	}
	conn_free(c);
}

/* Loses all frames sent from now on by either end; neither notices. */
static void mute(struct pool_conn *c)
{
	c->cut = true;
	if (c->peer)
		c->peer->cut = true;
}

bool sim_net_cut(const struct sim_host *h, const struct sim_host *to)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &h->conns) {
		const struct pool_conn *c =
			pool_list_entry(it, struct pool_conn, all);

		if (c->cut && c->from == to && c->state != CLOSING)
			return true;
	}
	return false;
}

void sim_net_die(struct sim_host *h, bool silent)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &h->conns) {
		struct pool_conn *c =
			pool_list_entry(it, struct pool_conn, all);

		if (c->state == WAITING)
			continue; /* pool_listener_close resets it */
		if (silent)
			mute(c);
		conn_fail(c, -ECONNRESET);
	}
}

void sim_net_forget(struct sim_host *h, const struct sim_host *gone)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &h->conns) {
		struct pool_conn *c =
			pool_list_entry(it, struct pool_conn, all);

		if (c->from == gone)
			c->from = NULL;
	}
}

static void on_idle(struct sim_event *e)
{
	struct pool_conn *c = pool_container_of(e, struct pool_conn, idle);
	uint64_t due = c->last_rx_ns + c->idle_ms * SIM_MS;

	if (due <= sim_now_ns() && pool_list_empty(&c->rx))
		conn_fail(c, -ETIMEDOUT);
	else
		sim_at(e, due > sim_now_ns() ? due : sim_now_ns() + SIM_MS);
}

static void set_open(struct pool_conn *c)
{
	c->state = OPEN;
	c->last_rx_ns = sim_now_ns();
	if (c->idle_ms)
		sim_at(&c->idle, c->last_rx_ns + c->idle_ms * SIM_MS);
}

/* ---- receiving ---- */

static void deliver(struct pool_conn *c, struct item *i)
{
	struct sim_host *h = c->host;

	sim_note(sim_now_ns() ^ (uint64_t)c->number << 40);
	sim_note((uint64_t)i->kind << 56 ^ (uint64_t)i->frame.type << 48 ^
		 i->frame.req << 24 ^ i->frame.payload_len);
	switch (i->kind) {
	case ITEM_OPEN:
		set_open(c);
		if (c->ops->on_open && !c->mute)
			c->ops->on_open(c);
		break;
	case ITEM_FRAME:
		h->got_frames++;
		if (c->share)
			pool_share_spend(c->share, item_len(i));
		if (net.on_frame && c->from)
			net.on_frame(c->from, h, &i->frame, i->payload, NULL);
		if (!c->mute)
			c->ops->on_frame(c, &i->frame, i->payload, -1);
		break;
	case ITEM_END:
		conn_fail(c, i->err);
		break;
	}
}

static void received(struct pool_conn *c, size_t n)
{
	c->host->got_bytes += n;
	c->last_rx_ns = sim_now_ns();
	if (c->share)
		pool_share_spend(c->share, n / POOL_CONN_SHARE_RECEIVED + 1);
}

/* Receives at most `slice` bytes of what has arrived. As in pool/conn/in.c, a
 * frame is delivered with its last byte. */
static void receive(struct pool_conn *c, size_t slice)
{
	size_t left;

	if (c->held)
		return;
	while (!pool_list_empty(&c->rx) && c->state != CLOSING) {
		struct item *i = pool_list_first(&c->rx, struct item, link);

		if (i->at_ns > sim_now_ns())
			return;
		left = item_len(i) - c->taken;
		if (left > slice) {
			c->taken += slice;
			received(c, slice);
			return;
		}
		slice -= left;
		received(c, left);
		c->taken = 0;
		/* on_frame may use the payload until it returns. */
		pool_list_del(&i->link);
		c->rx_bytes -= item_len(i);
		deliver(c, i);
		free(i);
	}
}

static void on_arrival(struct sim_event *e)
{
	struct pool_conn *c = pool_container_of(e, struct pool_conn, arrival);

	if (!c->host->script) {
		pool_list_add_tail(&c->host->readable, &c->link);
		return;
	}
	receive(c, SIZE_MAX);
	wake(c);
}

static bool has_come(const struct pool_conn *c)
{
	return !pool_list_empty(&c->rx) &&
	       pool_list_first(&c->rx, struct item, link)->at_ns <=
		       sim_now_ns();
}

/* c has had its turn: queues it again if more has arrived. */
static void after_turn(struct pool_conn *c)
{
	if (c->state == CLOSING || c->held)
		return;
	if (has_come(c))
		pool_list_add_tail(&c->host->readable, &c->link);
	else
		wake(c);
}

static void on_go(struct pool_share_user *u)
{
	struct pool_conn *c = pool_container_of(u, struct pool_conn, turn);

	pool_list_del(&c->link);
	receive(c, POOL_CONN_SHARE_SLICE);
	after_turn(c);
}

static void readable(struct pool_conn *c)
{
	if (!c->share) {
		receive(c, POOL_CONN_SLICE);
		after_turn(c);
	} else if (pool_share_take(c->share, &c->turn)) {
		receive(c, POOL_CONN_SHARE_SLICE);
		after_turn(c);
	} else {
		/* It waits for its share, and stays readable. */
		pool_list_add_tail(&c->host->readable, &c->link);
	}
}

static void accept_some(struct pool_listener *l)
{
	unsigned int n = ACCEPTS_PER_TURN;

	while (n-- && !pool_list_empty(&l->waiting)) {
		struct pool_conn *c = pool_list_first(&l->waiting,
						      struct pool_conn, link);

		pool_list_del(&c->link);
		pool_list_add_tail(&net.accepted, &c->link);
		l->cb(l->arg, c->fd);
	}
	if (pool_list_empty(&l->waiting))
		pool_list_del(&l->link);
}

bool sim_net_waiting(const struct sim_host *h)
{
	return !pool_list_empty(&h->doors) || !pool_list_empty(&h->readable) ||
	       !pool_list_empty(&h->closing);
}

void sim_net_input(struct sim_host *h)
{
	struct pool_list now, *it, *tmp;

	pool_list_each(it, tmp, &h->doors)
		accept_some(pool_list_entry(it, struct pool_listener, link));
	pool_list_init(&now);
	pool_list_splice(&now, &h->closing);
	while (!pool_list_empty(&now)) {
		struct pool_conn *c =
			pool_list_first(&now, struct pool_conn, link);

		pool_list_del(&c->link);
		end_now(c);
	}
	pool_list_splice(&now, &h->readable);
	while (!pool_list_empty(&now)) {
		struct pool_conn *c =
			pool_list_first(&now, struct pool_conn, link);

		pool_list_del(&c->link);
		readable(c);
	}
}

/* ---- pool/conn/conn.h ---- */

static struct sim_host *host_of(uv_loop_t *loop)
{
	return pool_container_of(loop, struct sim_host, loop);
}

static struct pool_listener *listener_at(uint16_t port)
{
	unsigned int i;

	for (i = 0; i < LISTENERS_MAX; i++)
		if (net.listeners[i] && net.listeners[i]->port == port &&
		    !net.listeners[i]->host->dead)
			return net.listeners[i];
	return NULL;
}

int pool_conn_connect(uv_loop_t *loop, const struct pool_hostport *to,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn)
{
	struct pool_listener *l = listener_at(to->port);
	struct pool_conn *c = conn_new(host_of(loop), "to"), *other;

	set_opts(c, opts);
	c->state = CONNECTING;
	*ret_conn = c;
	if (!l || c->host->dead)
		return send_plain(c, ITEM_END, -ECONNREFUSED);
	other = conn_new(l->host, "from");
	other->from = c->host;
	c->from = l->host;
	other->state = WAITING;
	other->fd = FD_BASE + (int)other->number;
	other->peer = c;
	c->peer = other;
	if (pool_list_empty(&l->link))
		pool_list_add_tail(&l->host->doors, &l->link);
	pool_list_add_tail(&l->waiting, &other->link);
	return send_plain(c, ITEM_OPEN, 0);
}

int pool_conn_connect_unix(uv_loop_t *loop, const char *path,
			   const struct pool_conn_opts *opts,
			   struct pool_conn **ret_conn)
{
	struct pool_conn *c = conn_new(host_of(loop), path);

	set_opts(c, opts);
	c->state = CONNECTING;
	*ret_conn = c;
	return send_plain(c, ITEM_END, -ECONNREFUSED);
}

int pool_conn_from_fd(uv_loop_t *loop, int fd,
		      const struct pool_conn_opts *opts,
		      struct pool_conn **ret_conn)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &net.accepted) {
		struct pool_conn *c =
			pool_list_entry(it, struct pool_conn, link);

		if (c->fd != fd)
			continue;
		assert(c->host == host_of(loop));
		pool_list_del(&c->link);
		set_opts(c, opts);
		set_open(c);
		wake(c);
		*ret_conn = c;
		return 0;
	}
	return -EBADF;
}

int pool_conn_detach(struct pool_conn *c, struct pool_tls_stream **ret_stream)
{
	(void)c;
	*ret_stream = NULL;
	return -EBUSY;
}

void pool_conn_bulk_drop(struct pool_conn *c)
{
	(void)c;
}

void pool_conn_hold(struct pool_conn *c, bool hold)
{
	bool was = c->held;

	c->held = hold;
	if (was && !hold && c->state == OPEN && pool_list_empty(&c->link))
		after_turn(c);
}

void pool_conn_close(struct pool_conn *c)
{
	conn_fail(c, 0);
}

void pool_conn_drain_close(struct pool_conn *c, unsigned int timeout_ms)
{
	(void)timeout_ms; /* all that was sent is in flight already */
	c->mute = true;
	conn_fail(c, 0);
}

void *pool_conn_user(const struct pool_conn *c)
{
	return c->user;
}

const struct pool_tls_id *pool_conn_peer_id(const struct pool_conn *c)
{
	(void)c;
	return NULL;
}

bool pool_conn_peer_has_host(const struct pool_conn *c, const char *host)
{
	(void)c;
	(void)host;
	return false;
}

int pool_address_parse(const char *host, uint8_t ret_addr[POOL_ADDRESS_SIZE])
{
	(void)host;
	(void)ret_addr;
	return -EINVAL;
}

const char *pool_conn_peer_name(const struct pool_conn *c)
{
	return c->name;
}

size_t pool_conn_queued(const struct pool_conn *c)
{
	return c->peer ? c->peer->rx_bytes : 0;
}

size_t pool_conn_memory(const struct pool_conn *c)
{
	return pool_conn_queued(c);
}

void pool_fd_address(int fd, uint8_t ret_addr[POOL_ADDRESS_SIZE])
{
	(void)fd;
	memset(ret_addr, 0, POOL_ADDRESS_SIZE);
}

uint16_t pool_conn_version(const struct pool_conn *c)
{
	(void)c;
	return pool_wire_version;
}

bool pool_conn_is_over(const struct pool_conn *c)
{
	return c->state == CLOSING || c->mute;
}

bool pool_conn_own_user(const struct pool_conn *c)
{
	(void)c;
	return true; /* one process */
}

uint64_t pool_conn_silent_ms(const struct pool_conn *c)
{
	return (sim_now_ns() - c->last_rx_ns) / SIM_MS;
}

/* ---- faults ---- */

static bool happens(uint32_t ppm)
{
	return ppm && sim_random(1000000) < ppm;
}

static struct sim_host *either_end(const struct pool_conn *c)
{
	return sim_random(2) ? c->host : c->peer->host;
}

static void lost(const struct pool_conn *c, const struct item *i,
		 const char *why)
{
	if (net.on_frame)
		net.on_frame(c->host, c->peer->host, &i->frame, i->payload,
			     why);
}

/* Faults before c sends i. False: i is lost. */
static bool fault_before(struct pool_conn *c, struct item *i)
{
	if (happens(sim_faults.late))
		c->peer->late_ns =
			sim_now_ns() + sim_random(sim_faults.late_ns);
	if (happens(sim_faults.mute)) {
		lost(c, i, "silence");
		mute(c);
		return false;
	}
	if (!happens(sim_faults.cut / 3))
		return true;
	lost(c, i, "cut");
	conn_fail(c, -ECONNRESET);
	return false;
}

/* Faults while i is in flight. */
static void fault_after(struct pool_conn *c, struct item *i)
{
	if (happens(sim_faults.stop))
		sim_host_stop(either_end(c), sim_random(sim_faults.stop_ns));
	if (happens(sim_faults.crash))
		sim_faults.on_crash(either_end(c));
	if (happens(sim_faults.cut / 3)) {
		conn_fail(c, -ECONNRESET);
	} else if (happens(sim_faults.cut / 3) && c->peer->state == OPEN) {
		lost(c, i, "cut, with all that was unread");
		conn_fail(c->peer, -ECONNRESET);
	}
}

int pool_conn_send_soon(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg)
{
	return pool_conn_send(c, type, req, msg);
}

int pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
		   const ProtobufCMessage *msg)
{
	size_t len = msg ? protobuf_c_message_get_packed_size(msg) : 0;
	struct item *i;

	if (c->state == CLOSING || c->mute)
		return -ENOTCONN;
	if (len > POOL_PAYLOAD_MAX)
		return -EMSGSIZE;
	if (pool_conn_queued(c) + len > c->queue_max)
		return -ENOBUFS;
	if (c->cut || !c->peer)
		return 0; /* lost */
	i = malloc(sizeof(*i) + len);
	if (!i)
		return -ENOMEM;
	*i = (struct item){ .kind = ITEM_FRAME };
	i->frame.version = POOL_WIRE_VERSION;
	i->frame.type = type;
	i->frame.req = req;
	i->frame.payload_len = (uint32_t)len;
	if (msg)
		protobuf_c_message_pack(msg, i->payload);
	if (net.on_send)
		net.on_send(c->host, &i->frame, i->payload);
	if (!fault_before(c, i)) {
		free(i);
		return 0;
	}
	send_item(c->peer, i, POOL_WIRE_HEADER + len);
	fault_after(c, i);
	return 0;
}

int pool_conn_send_fd(struct pool_conn *c, uint16_t type, uint64_t req,
		      const ProtobufCMessage *msg, int fd)
{
	(void)c, (void)type, (void)req, (void)msg, (void)fd;
	return -ENOTSUP;
}

int pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			const ProtobufCMessage *msg, int fd, uint64_t offset,
			uint64_t len, void (*done)(void *arg, int err),
			void *arg)
{
	(void)c, (void)type, (void)req, (void)msg, (void)fd, (void)offset;
	(void)len, (void)done, (void)arg;
	return -ENOTSUP;
}

/* ---- listening ---- */

int pool_listener_open(uv_loop_t *loop, const struct pool_hostport *at,
		       pool_accept_cb cb, void *arg,
		       struct pool_listener **ret_listener)
{
	struct pool_listener *l = calloc(1, sizeof(*l));
	unsigned int i = 0;

	while (net.listeners[i])
		assert(++i < LISTENERS_MAX);
	assert(l && !(at->port && listener_at(at->port)));
	l->host = host_of(loop);
	l->port = at->port ? at->port : ++net.last_port;
	l->cb = cb;
	l->arg = arg;
	pool_list_init(&l->link);
	pool_list_init(&l->waiting);
	net.listeners[i] = l;
	*ret_listener = l;
	return 0;
}

int pool_listener_open_unix(uv_loop_t *loop, const char *path,
			    pool_accept_cb cb, void *arg,
			    struct pool_listener **ret_listener)
{
	struct pool_hostport any = { .host = "" };

	(void)path;
	return pool_listener_open(loop, &any, cb, arg, ret_listener);
}

int pool_listener_from_fd(uv_loop_t *loop, int fd, const char *path,
			  pool_accept_cb cb, void *arg,
			  struct pool_listener **ret_listener)
{
	(void)loop, (void)fd, (void)path, (void)cb, (void)arg;
	(void)ret_listener;
	return -ENOTSUP;
}

void pool_listener_trust(struct pool_listener *l, struct pool_trust *t)
{
	(void)l;
	(void)t; /* all are of one process */
}

int pool_listener_fd(const struct pool_listener *l)
{
	(void)l;
	return -1;
}

uint16_t pool_listener_port(const struct pool_listener *l)
{
	return l->port;
}

void pool_listener_close(struct pool_listener *l)
{
	unsigned int i;

	if (!l)
		return;
	while (!pool_list_empty(&l->waiting)) {
		struct pool_conn *c = pool_list_first(&l->waiting,
						      struct pool_conn, link);

		if (c->peer)
			send_plain(c->peer, ITEM_END, -ECONNRESET);
		conn_free(c);
	}
	pool_list_del(&l->link);
	for (i = 0; i < LISTENERS_MAX; i++)
		if (net.listeners[i] == l)
			net.listeners[i] = NULL;
	free(l);
}
