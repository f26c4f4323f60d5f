/* The requester: connections that this node dialled, and the answers on them.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/peer/peer_priv.h"

static const struct pool_conn_ops chan_ops;

/* ---- peers ---- */

struct peer *peer_find(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE])
{
	struct pool_hash_node *n;

	for (n = pool_hash_first(&p->peers, id_hash(id)); n;
	     n = pool_hash_next(n)) {
		struct peer *peer = pool_container_of(n, struct peer, node);

		if (id_equal(peer->addr.id, id))
			return peer;
	}
	return NULL;
}

static void chan_init(struct chan *ch, struct peer *peer,
		      struct peer_conns *conns)
{
	ch->peer = peer;
	ch->conns = conns;
	ch->is_unix = !conns;
	pool_list_init(&ch->asked);
	pool_list_init(&ch->orphans);
}

static struct peer_conns *conns_new(struct peer *peer, uint32_t first)
{
	struct peer_conns *conns =
		calloc(1, sizeof(*conns) + peer->p->nmovers *
						   sizeof(struct peer_lane));

	if (!conns)
		return NULL;
	conns->peer = peer;
	conns->first = first;
	conns->due_ms = pool_tls_due_ms(peer->p->opts.tls);
	chan_init(&conns->tcp, peer, conns);
	return conns;
}

static void peer_free(struct peer *peer)
{
	free(peer->conns);
	free(peer);
}

static struct peer *peer_new(struct pool_peers *p,
			     const struct pool_peer_addr *addr)
{
	struct peer *peer;

	if (p->peers.count >= PEERS_MAX)
		return NULL;
	peer = calloc(1, sizeof(*peer));
	if (!peer)
		return NULL;
	peer->p = p;
	peer->addr = *addr;
	peer->conns = conns_new(peer, 1);
	chan_init(&peer->local, peer, NULL);
	pool_list_init(&peer->waiting);
	pool_list_init(&peer->lane_wait);
	if (!peer->conns ||
	    pool_hash_insert(&p->peers, &peer->node, id_hash(addr->id))) {
		peer_free(peer);
		return NULL;
	}
	return peer;
}

struct peer *peer_get(struct pool_peers *p, const struct pool_peer_addr *addr)
{
	struct peer *peer = peer_find(p, addr->id);

	if (!peer)
		return peer_new(p, addr);
	peer->addr = *addr; /* used by the next dial */
	return peer;
}

static bool conns_are_down(const struct peer_conns *conns)
{
	return !conns->tcp.conn && conns->nlanes == 0;
}

/* Their connections end later, and call peer_tidy again. */
static void conns_close(struct peer_conns *conns)
{
	if (conns->tcp.conn)
		pool_conn_close(conns->tcp.conn);
	for (unsigned int i = 0; i < conns->peer->p->nmovers; i++) {
		struct peer_lane *at = &conns->lanes[i];

		if (at->state != LANE_DIALING && at->state != LANE_UP)
			continue;
		at->state = LANE_CLOSING;
		pool_lane_close(at->lane);
	}
}

void peer_tidy(struct peer *peer)
{
	struct peer_conns *old = peer->old;

	if (old && pool_list_empty(&old->tcp.asked))
		conns_close(old);
	if (old && conns_are_down(old)) {
		free(old);
		peer->old = NULL;
	}
	if (peer->old || peer->local.conn || peer->nfetches > 0 ||
	    !conns_are_down(peer->conns))
		return;
	pool_hash_remove(&peer->p->peers, &peer->node);
	peer_free(peer);
}

/* ---- lanes ---- */

static struct peer_lane *lane_slot(struct pool_lane *lane)
{
	struct peer_conns *conns = lane->arg;

	return &conns->lanes[lane_index(lane->number)];
}

static void on_lane_up(struct pool_lane *lane)
{
	struct peer_conns *conns = lane->arg;

	if (lane_slot(lane)->state == LANE_CLOSING)
		return;
	lane_slot(lane)->state = LANE_UP;
	peer_pump(conns->peer);
}

static void fail_list(struct pool_list *list, int err)
{
	while (!pool_list_empty(list))
		fetch_end(pool_list_first(list, struct pool_fetch_priv, link),
			  err);
}

static void on_lane_down(struct pool_lane *lane, int err)
{
	struct peer_conns *conns = lane->arg;
	struct peer *peer = conns->peer;
	struct peer_lane *slot = lane_slot(lane);

	slot->state = LANE_NONE;
	slot->lane = NULL;
	slot->retry_ms = uv_now(peer->p->loop) + LANE_RETRY_MS;
	conns->nlanes--;
	if (conns == peer->conns && conns->nlanes == 0)
		fail_list(&peer->lane_wait, err);
	if (!peer->p->closing)
		peer_tidy(peer);
}

static int lane_dial(struct peer_conns *conns, unsigned int i)
{
	struct peer *peer = conns->peer;
	struct pool_lane like = {
		.mover = peer->p->movers[i],
		.number = conns->first + i,
		.roles = pool_peer_roles(&peer->addr),
		.arg = conns,
		.on_up = on_lane_up,
		.on_down = on_lane_down,
	};

	memcpy(like.peer_id, peer->addr.id, POOL_ID_SIZE);
	conns->lanes[i].lane = pool_lane_dial(&like, &peer->addr.tcp);
	if (!conns->lanes[i].lane)
		return -ENOMEM;
	conns->lanes[i].state = LANE_DIALING;
	conns->nlanes++;
	return 0;
}

/* The lane that is up and whose mover is least busy; -1: none is up. */
static int lane_best(const struct peer_conns *conns)
{
	const struct pool_peers *p = conns->peer->p;
	const uint64_t *busy = p->mover_busy;
	int best = -1;

	for (unsigned int i = 0; i < p->nmovers; i++)
		if (conns->lanes[i].state == LANE_UP &&
		    (best < 0 || busy[i] < busy[best]))
			best = (int)i;
	return best;
}

/* A lane worth dialling now, as its mover is less busy than the best lane's.
 * -1: none. */
static int lane_missing(const struct peer_conns *conns, int best)
{
	const struct pool_peers *p = conns->peer->p;
	const uint64_t *busy = p->mover_busy;
	uint64_t now = uv_now(p->loop);
	int missing = -1;

	for (unsigned int i = 0; i < p->nmovers; i++) {
		if (conns->lanes[i].state != LANE_NONE ||
		    (best >= 0 && busy[i] >= busy[best]) ||
		    (conns->nlanes > 0 && conns->lanes[i].retry_ms > now))
			continue;
		if (missing < 0 || busy[i] < busy[missing])
			missing = (int)i;
	}
	return missing;
}

/*
 * Picks the lane for the next range: the one of the least busy mover, and of
 * equals the lowest. Round robin is slower: a mover that gets every range keeps
 * its buffers in the CPU's cache (4 MiB ranges, one at a time: 2.5 GB/s against
 * 2.1 when two movers alternate). A lane is dialled when it would be the best;
 * until it is up, another is used. *ret_lane NULL: wait for a lane. 0 or
 * -ENOMEM.
 */
static int lane_pick(struct peer_conns *conns, struct pool_lane **ret_lane)
{
	int best = lane_best(conns);
	int missing = lane_missing(conns, best);
	int err = missing >= 0 ? lane_dial(conns, (unsigned int)missing) : 0;

	*ret_lane = best >= 0 ? conns->lanes[best].lane : NULL;
	return conns->nlanes > 0 ? 0 : err;
}

/* ---- requests ---- */

static int chan_dial(struct chan *ch)
{
	struct peer *peer = ch->peer;
	struct pool_conn_opts opts = {
		.ops = &chan_ops,
		.user = ch,
		.first = POOL_MSG_HELLO,
		.refused = &peer->p->metrics.mover.bad_messages,
		.trust = peer->p->opts.trust,
		.tls = peer->p->opts.tls,
		.foreign_memory = peer->p->opts.foreign_memory,
		.tls_roles = pool_peer_roles(&peer->addr),
	};
	int err;

	if (ch->conn)
		return 0;
	ch->greeted = false;
	ch->err = 0;
	if (ch->conns && conns_are_down(ch->conns)) {
		ch->conns->due_ms = pool_tls_due_ms(opts.tls);
		ch->conns->records = 0;
	}
	if (ch->is_unix)
		err = pool_conn_connect_unix(peer->p->loop,
					     peer->addr.unix_path, &opts,
					     &ch->conn);
	else
		err = pool_conn_connect(peer->p->loop, &peer->addr.tcp, &opts,
					&ch->conn);
	if (err)
		return err;
	peer->p->refs++;
	err = pool_hello_send(ch->conn, peer->p->opts.id, 0, false);
	if (err)
		pool_conn_close(ch->conn);
	return err;
}

static void count_records(struct peer_conns *conns, uint64_t length)
{
	conns->records += pool_tls_records(length);
	if (conns->records >= POOL_TLS_KEY_RECORDS)
		conns->due_ms = 0;
}

/* Sends the GET of x. It may follow HELLO at once, as the holder reads in
 * order. 0 or -errno. */
static int chan_ask(struct chan *ch, struct pool_fetch_priv *x, uint32_t lane)
{
	struct pool_peers *p = ch->peer->p;
	Kvpool__Get get;
	int err = chan_dial(ch);

	if (err)
		return err;
	pool_get_init(&get, x->f->path, x->f->path_len, x->f->gen,
		      x->f->offset, x->f->length, lane);
	get.fd_ok = ch->is_unix;
	get.buffer = x->expecting && x->expect.buffer;
	get.pull = x->expecting && x->expect.pull;
	get.copy = x->f->copy;
	err = pool_hash_insert(&p->by_req, &x->node, (uint32_t)x->req);
	if (err)
		return err;
	/* Replication sends many GETs, and no reader waits for one: batch. */
	err = x->f->pull ? pool_conn_send_soon(ch->conn, POOL_MSG_GET, x->req,
					       &get.base) :
			   pool_conn_send(ch->conn, POOL_MSG_GET, x->req,
					  &get.base);
	if (err) {
		pool_hash_remove(&p->by_req, &x->node);
		/* It is broken, and its on_close has not run yet. */
		return err == -ENOTCONN ? -ECONNRESET : err;
	}
	if (ch->conns)
		count_records(ch->conns, x->f->length);
	x->state = PEER_FETCH_ASKED;
	x->chan = ch;
	pool_list_del(&x->link);
	pool_list_add_tail(&ch->asked, &x->link);
	return 0;
}

static bool may_borrow(const struct peer *peer,
		       const struct pool_fetch_priv *x)
{
	return !x->no_fd && peer->p->opts.fd_passing &&
	       peer->addr.unix_path[0] &&
	       (peer->local.conn ||
		peer->local.retry_ms <= uv_now(peer->p->loop));
}

static int ask_small(struct pool_fetch_priv *x)
{
	int err;

	x->landing.fd = x->f->fd;
	x->landing.mem = x->f->mem;
	x->landing.offset = x->f->offset;
	x->landing.length = x->f->length;
	err = pool_landing_init(&x->landing);
	return err ? err : chan_ask(&x->peer->conns->tcp, x, 0);
}

/* The expectation must precede the GET. */
static int ask_large(struct pool_fetch_priv *x, struct pool_lane *lane)
{
	int err = fetch_expect(x, lane);

	return err ? err : chan_ask(&x->peer->conns->tcp, x, lane->number);
}

/* Requests an admitted fetch: a descriptor, a small range, or a large one on a
 * lane. 0 (also if it waits for a lane) or -errno. */
static int fetch_route(struct pool_fetch_priv *x)
{
	struct peer *peer = x->peer;
	struct pool_lane *lane;
	int err;

	if (may_borrow(peer, x)) {
		if (chan_ask(&peer->local, x, 0) == 0)
			return 0;
		x->no_fd = true;
	}
	if (x->f->fd < 0 && !x->f->mem)
		return -EAGAIN; /* only a descriptor is wanted */
	if (x->f->length <= POOL_INLINE_MAX)
		return ask_small(x);
	err = lane_pick(peer->conns, &lane);
	if (err)
		return err;
	if (lane)
		return ask_large(x, lane);
	x->state = PEER_FETCH_LANE_WAIT;
	pool_list_del(&x->link);
	pool_list_add_tail(&peer->lane_wait, &x->link);
	return 0;
}

/* The control connection is broken, but its on_close has not run. A GET would
 * fail at once; fetches wait for the next connection instead. */
static bool tcp_is_closing(const struct peer *peer)
{
	const struct chan *tcp = &peer->conns->tcp;

	return tcp->conn && pool_conn_is_over(tcp->conn);
}

static void pump_lane_wait(struct peer *peer)
{
	while (!pool_list_empty(&peer->lane_wait) && !tcp_is_closing(peer)) {
		struct pool_fetch_priv *x = pool_list_first(
			&peer->lane_wait, struct pool_fetch_priv, link);
		struct pool_lane *lane;
		int err = lane_pick(peer->conns, &lane);

		if (!err && !lane)
			return;
		if (!err)
			err = ask_large(x, lane);
		if (err)
			fetch_end(x, err);
	}
}

/* Takes x off the waiting list. The state is LANE_WAIT until fetch_route sets
 * another. */
static void admit(struct pool_fetch_priv *x)
{
	struct peer *peer = x->peer;

	pool_list_del(&x->link);
	peer->nwaiting--;
	pool_gauge_add(&peer->p->metrics.waiting, -1);
	x->state = PEER_FETCH_LANE_WAIT;
	if (x->admitted)
		return;
	x->admitted = true;
	peer->inflight++;
	pool_gauge_add(&peer->p->metrics.inflight, 1);
}

void peer_pump(struct peer *peer)
{
	pump_lane_wait(peer);
	while (!pool_list_empty(&peer->waiting) && !tcp_is_closing(peer)) {
		struct pool_fetch_priv *x = pool_list_first(
			&peer->waiting, struct pool_fetch_priv, link);
		int err;

		if (!x->admitted && peer->inflight >= POOL_PEER_INFLIGHT_MAX)
			return;
		admit(x);
		err = fetch_route(x);
		if (err)
			fetch_end(x, err);
	}
}

/* ---- cancelled GETs that a descriptor may still answer ---- */

void chan_orphan(struct chan *ch, const struct pool_fetch_priv *x)
{
	struct orphan *o = NULL;

	if (!ch->is_unix || !ch->conn)
		return;
	if (ch->norphans < ORPHANS_MAX)
		o = malloc(sizeof(*o) + x->f->path_len);
	if (!o) {
		/* Closing the connection returns all that was borrowed. */
		pool_conn_close(ch->conn);
		return;
	}
	o->req = x->req;
	o->gen = x->f->gen;
	o->path_len = x->f->path_len;
	memcpy(o->path, x->f->path, x->f->path_len);
	pool_list_add_tail(&ch->orphans, &o->link);
	ch->norphans++;
}

static void orphan_free(struct chan *ch, struct orphan *o)
{
	pool_list_del(&o->link);
	ch->norphans--;
	free(o);
}

static struct orphan *orphan_find(struct chan *ch, uint64_t req)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &ch->orphans) {
		struct orphan *o = pool_list_entry(it, struct orphan, link);

		if (o->req == req)
			return o;
	}
	return NULL;
}

/* If RETURN cannot be sent, closes the connection, which returns the object as
 * well. */
static void send_return(struct chan *ch, const void *path, size_t path_len,
			uint64_t gen)
{
	Kvpool__Key key = KVPOOL__KEY__INIT;

	key.path.data = (uint8_t *)(uintptr_t)path;
	key.path.len = path_len;
	key.gen = gen;
	if (pool_conn_send(ch->conn, POOL_MSG_RETURN, 0, &key.base))
		pool_conn_close(ch->conn);
}

static void orphan_answered(struct chan *ch, uint64_t req, bool lent)
{
	struct orphan *o = orphan_find(ch, req);

	if (!o)
		return;
	if (lent)
		send_return(ch, o->path, o->path_len, o->gen);
	orphan_free(ch, o);
}

void pool_peers_return(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE],
		       const char *path, size_t path_len, uint64_t gen)
{
	struct peer *peer = peer_find(p, id);

	if (!peer || !peer->local.conn || peer->local.borrowed == 0)
		return;
	peer->local.borrowed--;
	pool_gauge_add(&p->metrics.borrowed_now, -1);
	send_return(&peer->local, path, path_len, gen);
}

/* ---- checksum mismatches ---- */

void pool_peers_doubt(struct pool_peers *p, const struct pool_peer_addr *holder,
		      const char *path, size_t path_len, uint64_t gen)
{
	struct peer *peer = p->closing ? NULL : peer_get(p, holder);
	Kvpool__Key key = KVPOOL__KEY__INIT;
	struct chan *tcp;

	if (!peer)
		return;
	key.path.data = (uint8_t *)(uintptr_t)path;
	key.path.len = path_len;
	key.gen = gen;
	/* Skipped while the peer is being dialled, because its version is
	 * unknown: the next reader reports the mismatch. */
	tcp = &peer->conns->tcp;
	if (chan_dial(tcp) == 0 &&
	    pool_conn_version(tcp->conn) >= POOL_WIRE_DOUBT)
		(void)pool_conn_send(tcp->conn, POOL_MSG_DOUBT, 0, &key.base);
	peer_tidy(peer);
}

/* ---- answers ---- */

/* The fetch whose GET was sent on ch with this req, or NULL. */
static struct pool_fetch_priv *fetch_find(struct chan *ch, uint64_t req)
{
	struct pool_hash_node *n;

	for (n = pool_hash_first(&ch->peer->p->by_req, (uint32_t)req); n;
	     n = pool_hash_next(n)) {
		struct pool_fetch_priv *x =
			pool_container_of(n, struct pool_fetch_priv, node);

		if (x->req == req && x->chan == ch)
			return x;
	}
	return NULL;
}

static void chan_break(struct chan *ch, int err, const char *what)
{
	pool_warn_limited("peer %s: %s", pool_conn_peer_name(ch->conn), what);
	ch->err = err;
	pool_conn_close(ch->conn);
}

static void got_hello(struct chan *ch, const struct pool_frame *f,
		      const uint8_t *payload)
{
	Kvpool__Hello *hello = pool_hello_unpack(
		ch->conn, f, payload,
		&ch->peer->p->metrics.mover.bad_messages);

	if (!hello || !pool_hello_is_from(hello, ch->peer->addr.id))
		chan_break(ch, -EHOSTDOWN, "HELLO of another node");
	else
		ch->greeted = true;
	if (hello)
		kvpool__hello__free_unpacked(hello, NULL);
}

/* Returns x to the head of the queue, to request bytes. */
static void fetch_retry_bytes(struct pool_fetch_priv *x)
{
	struct peer *peer = x->peer;

	pool_list_del(&x->link);
	pool_hash_remove(&peer->p->by_req, &x->node);
	x->chan = NULL;
	x->no_fd = true;
	x->state = PEER_FETCH_WAITING;
	pool_list_add(&peer->waiting, &x->link);
	peer->nwaiting++;
	pool_gauge_add(&peer->p->metrics.waiting, 1);
}

static void got_error(struct chan *ch, const struct pool_frame *f,
		      const uint8_t *payload)
{
	Kvpool__Error *e = peers_unpack(ch->peer->p, ch->conn, f, payload);
	struct pool_fetch_priv *x = fetch_find(ch, f->req);
	int status = -EBADMSG;

	if (e && e->status < 0 && e->status > -4096)
		status = e->status;
	if (e)
		kvpool__error__free_unpacked(e, NULL);
	orphan_answered(ch, f->req, false);
	if (!x)
		return;
	if (ch->is_unix && status == -EAGAIN) { /* not lent */
		fetch_retry_bytes(x);
		peer_pump(ch->peer);
	} else {
		fetch_end(x, status);
	}
}

/* LENT is valid, but fd is not safe to read: returns it and requests bytes. */
static void lent_unsafe(struct chan *ch, struct pool_fetch_priv *x, int fd)
{
	close(fd);
	send_return(ch, x->f->path, x->f->path_len, x->f->gen);
	pool_count(&ch->peer->p->metrics.lent_unsafe);
	fetch_retry_bytes(x);
	peer_pump(ch->peer);
}

static void got_lent(struct chan *ch, const struct pool_frame *f,
		     const uint8_t *payload, int fd)
{
	Kvpool__Lent *lent;
	struct pool_fetch_priv *x = fetch_find(ch, f->req);

	orphan_answered(ch, f->req, true);
	if (!x) {
		if (fd >= 0)
			close(fd);
		return;
	}
	lent = peers_unpack(ch->peer->p, ch->conn, f, payload);
	if (!lent || fd < 0 || lent->size != x->f->length) {
		if (fd >= 0)
			close(fd);
		send_return(ch, x->f->path, x->f->path_len, x->f->gen);
		fetch_end(x, -EBADMSG);
	} else if (!peers_fd_is_safe(fd, lent->size)) {
		lent_unsafe(ch, x, fd);
	} else {
		ch->borrowed++;
		pool_gauge_add(&ch->peer->p->metrics.borrowed_now, 1);
		x->f->lent_fd = fd;
		fetch_end(x, 0);
	}
	if (lent)
		kvpool__lent__free_unpacked(lent, NULL);
}

static void got_recall(struct chan *ch, const struct pool_frame *f,
		       const uint8_t *payload)
{
	struct pool_peers *p = ch->peer->p;
	Kvpool__Key *key = peers_unpack(p, ch->conn, f, payload);

	if (key && key->path.len > 0 && p->opts.ops->recall)
		p->opts.ops->recall(p->opts.arg, (char *)key->path.data,
				    key->path.len, key->gen);
	if (key)
		kvpool__key__free_unpacked(key, NULL);
}

static void chan_on_frame(struct pool_conn *c, const struct pool_frame *f,
			  const uint8_t *payload, int fd)
{
	struct chan *ch = pool_conn_user(c);
	struct pool_peers *p = ch->peer->p;

	if (fd >= 0 && (f->type != POOL_MSG_LENT || !ch->greeted)) {
		close(fd);
		fd = -1;
	}
	if (!ch->greeted)
		got_hello(ch, f, payload);
	else if (f->type == POOL_MSG_ERROR)
		got_error(ch, f, payload);
	else if (f->type == POOL_MSG_LENT)
		got_lent(ch, f, payload, fd);
	else if (f->type == POOL_MSG_RECALL)
		got_recall(ch, f, payload);
	else
		chan_break(ch, -EBADMSG, "unexpected message");
	peers_finish(p);
}

/* Bulk on a control connection: a small range. The connection receives it into
 * its own buffer, so that the fetch can be cancelled at any moment. */
static void *chan_on_bulk_begin(struct pool_conn *c,
				const struct pool_frame *f,
				const uint8_t *payload)
{
	struct chan *ch = pool_conn_user(c);
	struct pool_fetch_priv *x = fetch_find(ch, f->req);

	(void)payload;
	ch->landing = NULL;
	if (!ch->greeted || f->type != POOL_MSG_DATA) {
		chan_break(ch, -EBADMSG, "unexpected bulk");
		return NULL;
	}
	if (!x)
		return NULL;
	if (!x->landing.hash || f->bulk_len != x->landing.length)
		fetch_end(x, -EBADMSG);
	else
		ch->landing = x;
	return NULL;
}

static void chan_on_bulk_data(struct pool_conn *c, const struct pool_frame *f,
			      const void *data, size_t len, uint64_t offset)
{
	struct chan *ch = pool_conn_user(c);
	struct pool_fetch_priv *x = ch->landing;
	struct pool_mover_counters *n = &ch->peer->p->metrics.mover;

	(void)f;
	(void)offset;
	pool_count_add(x ? &n->bytes_in : &n->stray_bytes, len);
	if (x)
		pool_landing_data(&x->landing, data, len);
}

static void chan_on_bulk_end(struct pool_conn *c, const struct pool_frame *f)
{
	struct chan *ch = pool_conn_user(c);
	struct pool_peers *p = ch->peer->p;
	struct pool_fetch_priv *x = ch->landing;

	(void)f;
	if (!x)
		return;
	/* Without chunks no write is in flight: the landing has ended. */
	pool_landing_stop(&x->landing, 0);
	if (x->landing.status == 0)
		x->f->sum = x->landing.sum;
	fetch_end(x, x->landing.status);
	peers_finish(p);
}

/* A Unix connection closed: its fetches fall back to TCP. */
static void local_gone(struct chan *ch)
{
	struct peer *peer = ch->peer;
	struct pool_peers *p = peer->p;
	uint64_t borrowed = ch->borrowed;

	/* Back off after a failure, but not after an idle timeout. */
	if (!ch->greeted || !pool_list_empty(&ch->asked))
		ch->retry_ms = uv_now(p->loop) + UNIX_RETRY_MS;
	ch->borrowed = 0;
	pool_gauge_add(&p->metrics.borrowed_now, -(int64_t)borrowed);
	while (!pool_list_empty(&ch->asked))
		fetch_retry_bytes(pool_list_entry(ch->asked.prev,
						  struct pool_fetch_priv,
						  link));
	while (!pool_list_empty(&ch->orphans))
		orphan_free(ch, pool_list_first(&ch->orphans, struct orphan,
						link));
	if (borrowed && !p->closing && p->opts.ops->lender_gone)
		p->opts.ops->lender_gone(p->opts.arg, peer->addr.id);
}

static void chan_on_close(struct pool_conn *c, int err)
{
	struct chan *ch = pool_conn_user(c);
	struct peer *peer = ch->peer;
	struct pool_peers *p = peer->p;

	ch->conn = NULL;
	ch->landing = NULL;
	if (ch->err)
		err = ch->err;
	if (ch->is_unix)
		local_gone(ch);
	else
		fail_list(&ch->asked, err ? err : -ECONNRESET);
	if (!p->closing)
		peer_pump(peer);
	peer_tidy(peer);
	peers_finish(p);
	peers_unref(p);
}

/* Checks the other end's user before anything is sent. */
static void chan_on_open(struct pool_conn *c)
{
	struct chan *ch = pool_conn_user(c);

	if (!ch->is_unix || pool_conn_own_user(c))
		return;
	pool_count(&ch->peer->p->metrics.other_users);
	pool_conn_close(c);
}

static const struct pool_conn_ops chan_ops = {
	.on_open = chan_on_open,
	.on_frame = chan_on_frame,
	.on_bulk_begin = chan_on_bulk_begin,
	.on_bulk_data = chan_on_bulk_data,
	.on_bulk_end = chan_on_bulk_end,
	.on_close = chan_on_close,
};

/* ---- renewing, closing ---- */

static void peer_renew(struct pool_hash_node *n, void *arg)
{
	struct peer *peer = pool_container_of(n, struct peer, node);
	struct peer_conns *now = peer->conns, *next;

	(void)arg;
	if (peer->old || pool_now_ms() < now->due_ms || conns_are_down(now))
		return;
	next = conns_new(peer, now->first == 1 ? RENEWED_LANES : 1);
	if (!next)
		return; /* retried at the next check */
	peer->old = now;
	peer->conns = next;
	pool_tls_renewed(peer->p->opts.tls);
	peer_pump(peer);
	peer_tidy(peer);
}

void peers_renew_due(struct pool_peers *p)
{
	pool_hash_each(&p->peers, peer_renew, NULL);
	peers_finish(p);
}

void pool_peers_renew(struct pool_peers *p)
{
	uint64_t now = pool_now_ms();

	if (!p->opts.tls || now < p->renew_ms)
		return;
	p->renew_ms = now + RENEW_MS;
	peers_renew_due(p);
}

static void peer_close(struct pool_hash_node *n, void *arg)
{
	struct peer *peer = pool_container_of(n, struct peer, node);

	(void)arg;
	if (peer->conns->tcp.conn)
		pool_conn_close(peer->conns->tcp.conn);
	if (peer->old && peer->old->tcp.conn)
		pool_conn_close(peer->old->tcp.conn);
	if (peer->local.conn)
		pool_conn_close(peer->local.conn);
	peer_tidy(peer);
}

void peers_ask_close(struct pool_peers *p)
{
	pool_hash_each(&p->peers, peer_close, NULL);
}
