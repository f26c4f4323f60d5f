/* The holder: connections that peers dialled, and the answers on them. */
#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/peer/peer_priv.h"

#define LANES_MAX 256 /* numbers that a peer may use */

/* A control connection that a peer dialled. Freed when it is closed and no
 * answer is in flight. */
struct session {
	struct pool_list link, greeting_link;
	struct pool_peers *p;
	struct pool_conn *conn; /* NULL: closed */
	bool is_unix, greeted;
	uint8_t addr[POOL_ADDRESS_SIZE]; /* the peer's, as IPv6; Unix: 0 */
	/* A hash of the id in HELLO and of addr: lanes with the same id from
	 * another address do not belong to this peer. */
	uint8_t id[POOL_ID_SIZE];
	uint64_t deadline_ms;	/* for HELLO */
	uint64_t used_ms;	/* last message received */
	unsigned int answers;	/* ranges being sent */
	struct pool_hash lents; /* struct lent */
	unsigned int nlent;
};

/* An object that a peer has borrowed, perhaps several times. */
struct lent {
	struct pool_hash_node node;
	uint64_t gen;
	unsigned int count;
	size_t path_len;
	char path[];
};

/* A range being sent. */
struct answer {
	struct session *s;
	int fd; /* owns */
	uint64_t length;
	struct pool_mover_send send; /* large ranges */
};

/* A GET that waits for its object to arrive. */
struct early {
	struct pool_list link; /* peers->early */
	struct session *s;
	uint64_t req, deadline_ms;
	Kvpool__Get *get; /* owns */
};

/* All peers prefer low lane numbers, so the peer's id is added to spread the
 * lanes over movers. */
static struct pool_mover *mover_of(const struct session *s, uint32_t lane)
{
	struct pool_peers *p = s->p;

	return p->movers[(lane + id_hash(s->id)) % p->nmovers];
}

static void arm(struct pool_peers *p)
{
	p->answers_due_ms = answer_expire(p, uv_now(p->loop));
	peers_timer_arm(p);
}

/* ---- sessions ---- */

static void session_used(struct session *s)
{
	s->used_ms = uv_now(s->p->loop);
	pool_list_del(&s->link);
	pool_list_add_tail(&s->p->sessions, &s->link);
}

/* Binds the id to the address and, if there is one, to the certificate, so that
 * a peer that claims another's id cannot close or use the other's lanes. Of the
 * certificate it binds what a renewal does not change. */
static void id_bind(struct session *s, const uint8_t claimed[POOL_ID_SIZE])
{
	const struct pool_tls_id *peer = pool_conn_peer_id(s->conn);
	struct {
		uint8_t id[POOL_ID_SIZE], addr[POOL_ADDRESS_SIZE];
		uint8_t role;
		char name[POOL_TLS_NAME_MAX + 1];
		uint64_t limits;
	} all;
	XXH128_canonical_t canon;

	memset(&all, 0, sizeof(all)); /* also between the fields */
	memcpy(all.id, claimed, sizeof(all.id));
	memcpy(all.addr, s->addr, sizeof(all.addr));
	if (peer) {
		all.role = (uint8_t)(1 + peer->role);
		memcpy(all.name, peer->name, strlen(peer->name));
		all.limits = pool_tls_id_limits(peer);
	}
	XXH128_canonicalFromHash(&canon,
				 XXH3_128bits_withSeed(&all, sizeof(all),
						       pool_hash_seed()));
	memcpy(s->id, canon.digest, POOL_ID_SIZE);
}

static bool address_full(const struct pool_peers *p,
			 const uint8_t addr[POOL_ADDRESS_SIZE])
{
	unsigned int n = 0, max = p->opts.sessions_addr_max;
	const struct pool_list *it;

	for (it = p->sessions.next; it != &p->sessions; it = it->next)
		n += memcmp(pool_list_entry(it, struct session, link)->addr,
			    addr, POOL_ADDRESS_SIZE) == 0;
	return n >= (max ? max : POOL_SESSIONS_ADDR);
}

static void session_tidy(struct session *s)
{
	struct pool_peers *p = s->p;

	if (s->conn || s->answers > 0)
		return;
	assert(s->nlent == 0);
	pool_list_del(&s->link);
	pool_list_del(&s->greeting_link);
	pool_hash_fini(&s->lents);
	p->nsessions--;
	free(s);
	peers_unref(p);
}

static void note_unread(struct session *s)
{
	pool_count(&s->p->metrics.sessions_unread);
	pool_warn_limited("peer %s: it does not read its answers",
			  pool_conn_peer_name(s->conn));
}

static void send_error(struct session *s, uint64_t req, int status)
{
	Kvpool__Error e = KVPOOL__ERROR__INIT;
	int err;

	if (!s->conn)
		return;
	e.status = status;
	/* Together with those of other requests received in this turn. */
	err = pool_conn_send_soon(s->conn, POOL_MSG_ERROR, req, &e.base);
	if (err == -ENOBUFS)
		note_unread(s);
	if (err)
		pool_conn_close(s->conn);
}

/* ---- lending ---- */

static uint32_t key_hash(const void *path, size_t len, uint64_t gen)
{
	return (uint32_t)XXH3_64bits_withSeed(path, len, gen);
}

static struct lent *lent_find(struct session *s, const void *path, size_t len,
			      uint64_t gen)
{
	struct pool_hash_node *n;

	for (n = pool_hash_first(&s->lents, key_hash(path, len, gen)); n;
	     n = pool_hash_next(n)) {
		struct lent *l = pool_container_of(n, struct lent, node);

		if (l->gen == gen && l->path_len == len &&
		    memcmp(l->path, path, len) == 0)
			return l;
	}
	return NULL;
}

static int lent_add(struct session *s, const Kvpool__Get *get)
{
	struct pool_peers *p = s->p;
	size_t len = get->path.len;
	struct lent *l = lent_find(s, get->path.data, len, get->gen);

	if (!l) {
		l = calloc(1, sizeof(*l) + len);
		if (!l)
			return -ENOMEM;
		l->gen = get->gen;
		l->path_len = len;
		memcpy(l->path, get->path.data, len);
		if (pool_hash_insert(&s->lents, &l->node,
				     key_hash(l->path, len, l->gen))) {
			free(l);
			return -ENOMEM;
		}
	}
	l->count++;
	s->nlent++;
	pool_gauge_add(&p->metrics.lent_now, 1);
	if (p->opts.ops->lent)
		p->opts.ops->lent(p->opts.arg, l->path, len, l->gen);
	return 0;
}

static void lent_returned(struct session *s, struct lent *l)
{
	struct pool_peers *p = s->p;
	bool last = --l->count == 0;

	s->nlent--;
	pool_gauge_add(&p->metrics.lent_now, -1);
	if (last)
		pool_hash_remove(&s->lents, &l->node);
	if (p->opts.ops->returned)
		p->opts.ops->returned(p->opts.arg, l->path, l->path_len,
				      l->gen);
	if (last)
		free(l);
}

static void lent_end(struct pool_hash_node *n, void *arg)
{
	struct lent *l = pool_container_of(n, struct lent, node);
	unsigned int count = l->count;

	while (count-- > 0)
		lent_returned(arg, l);
}

/* Lends fd. 0, or -EAGAIN: not lent. */
static int lend(struct session *s, uint64_t req, const Kvpool__Get *get,
		int fd, uint64_t size)
{
	struct pool_peers *p = s->p;
	Kvpool__Lent msg = KVPOOL__LENT__INIT;
	int err;

	if (!get->fd_ok || !p->opts.fd_passing || get->offset != 0 ||
	    get->length != size)
		return -EAGAIN;
	if (s->nlent >= POOL_LENT_MAX) {
		pool_count(&p->metrics.lent_refused);
		return -EAGAIN;
	}
	if (!peers_fd_is_safe(fd, size)) {
		pool_count(&p->metrics.lent_unsafe);
		return -EAGAIN;
	}
	err = lent_add(s, get);
	if (err)
		return -EAGAIN;
	msg.size = size;
	err = pool_conn_send_fd(s->conn, POOL_MSG_LENT, req, &msg.base, fd);
	if (err) {
		lent_returned(s, lent_find(s, get->path.data, get->path.len,
					   get->gen));
		return -EAGAIN;
	}
	pool_count(&p->metrics.lent);
	return 0;
}

static void got_return(struct session *s, const struct pool_frame *f,
		       const uint8_t *payload)
{
	Kvpool__Key *key = peers_unpack(s->p, s->conn, f, payload);
	struct lent *l = NULL;

	if (key)
		l = lent_find(s, key->path.data, key->path.len, key->gen);
	if (l)
		lent_returned(s, l);
	if (key)
		kvpool__key__free_unpacked(key, NULL);
}

/* A client limited to namespaces never needs other objects. (A limited node may
 * have been ordered to keep them.) */
static bool may_ask_about(const struct session *s,
			  const ProtobufCBinaryData *path)
{
	const struct pool_tls_id *id = pool_conn_peer_id(s->conn);

	return !id || id->role != POOL_ROLE_CLIENT ||
	       pool_tls_id_reach(id, (const char *)path->data, path->len) ==
		       POOL_INSIDE;
}

static void got_doubt(struct session *s, const struct pool_frame *f,
		      const uint8_t *payload)
{
	const struct pool_peers_opts *o = &s->p->opts;
	Kvpool__Key *key = peers_unpack(s->p, s->conn, f, payload);

	if (!key)
		return;
	if (key->path.len == 0 || !may_ask_about(s, &key->path))
		pool_count(&s->p->metrics.answers_denied);
	else if (key->path.len <= PATH_LEN_MAX && o->ops->doubt)
		o->ops->doubt(o->arg, (char *)key->path.data, key->path.len,
			      key->gen);
	kvpool__key__free_unpacked(key, NULL);
}

unsigned int pool_peers_recall(struct pool_peers *p, const char *path,
			       size_t path_len, uint64_t gen)
{
	Kvpool__Key key = KVPOOL__KEY__INIT;
	struct pool_list *it, *tmp;
	unsigned int asked = 0;

	key.path.data = (uint8_t *)(uintptr_t)path;
	key.path.len = path_len;
	key.gen = gen;
	pool_list_each(it, tmp, &p->sessions) {
		struct session *s = pool_list_entry(it, struct session, link);

		if (s->conn && lent_find(s, path, path_len, gen) &&
		    pool_conn_send(s->conn, POOL_MSG_RECALL, 0, &key.base) ==
			    0)
			asked++;
	}
	return asked;
}

/* ---- sending ranges ---- */

static void answer_end(struct answer *a, int err)
{
	struct session *s = a->s;

	if (!err)
		pool_count(&s->p->metrics.answered);
	close(a->fd);
	free(a);
	s->answers--;
	s->p->nanswers--;
	session_tidy(s);
}

static void on_small_sent(void *arg, int err)
{
	struct answer *a = arg;

	if (!err)
		pool_count_add(&a->s->p->metrics.mover.bytes_out, a->length);
	answer_end(a, err);
}

static void on_large_sent(struct pool_mover_send *send)
{
	struct answer *a = pool_container_of(send, struct answer, send);

	if (send->status)
		send_error(a->s, send->req, -ECONNRESET);
	answer_end(a, send->status);
}

/* Sends a range on the GET's lane. Takes ownership of fd, unless it fails. */
static int send_range(struct session *s, uint64_t req, const Kvpool__Get *get,
		      int fd)
{
	struct answer *a;
	int err = 0;

	if (get->lane == 0 && get->length > POOL_INLINE_MAX)
		return -EINVAL;
	if (get->lane > LANES_MAX)
		return -EINVAL;
	a = calloc(1, sizeof(*a));
	if (!a)
		return -ENOMEM;
	a->s = s;
	a->fd = fd;
	a->length = get->length;
	s->answers++;
	s->p->nanswers++;
	if (get->lane == 0) {
		err = pool_conn_send_file(s->conn, POOL_MSG_DATA, req, NULL, fd,
					  get->offset, get->length,
					  on_small_sent, a);
		if (err) {
			s->answers--;
			s->p->nanswers--;
			free(a);
		}
		return err;
	}
	a->send = (struct pool_mover_send){
		.lane = get->lane,
		.fd = fd,
		.offset = get->offset,
		.length = get->length,
		.req = req,
		.buffer = get->buffer,
		.pull = get->pull,
		.done = on_large_sent,
	};
	memcpy(a->send.peer_id, s->id, POOL_ID_SIZE);
	pool_mover_send(mover_of(s, get->lane), &a->send);
	return 0;
}

static bool get_is_valid(const Kvpool__Get *get)
{
	return get->path.len > 0 && get->path.len <= PATH_LEN_MAX &&
	       get->length > 0 && get->length <= POOL_BULK_MAX &&
	       get->offset <= INT64_MAX - get->length;
}

/* Answers a GET. 0, or the status for an ERROR message. */
static int answer(struct session *s, uint64_t req, const Kvpool__Get *get)
{
	struct pool_peers *p = s->p;
	bool lendable = false;
	uint64_t size = 0;
	int fd, err;

	if (!get_is_valid(get))
		return -EINVAL;
	if (!may_ask_about(s, &get->path)) {
		pool_count(&p->metrics.answers_denied);
		return -ENOENT;
	}
	if (s->answers >= SESSION_ANSWERS_MAX || p->nanswers >= ANSWERS_MAX) {
		pool_count(&p->metrics.answers_refused);
		return -EBUSY;
	}
	fd = p->opts.ops->get(p->opts.arg, (char *)get->path.data,
			      get->path.len, get->gen, get->length, get->copy,
			      &size, &lendable);
	if (fd < 0)
		return fd;
	if (get->offset + get->length > size) {
		err = -EINVAL;
	} else if (s->is_unix) {
		err = lendable ? lend(s, req, get, fd, size) : -EAGAIN;
		if (!err)
			close(fd); /* the connection has a duplicate */
	} else {
		err = send_range(s, req, get, fd);
	}
	if (err)
		close(fd);
	return err;
}

/* ---- GETs that wait for their object ---- */

static void early_free(struct pool_peers *p, struct early *w)
{
	pool_list_del(&w->link);
	p->early_count--;
	kvpool__get__free_unpacked(w->get, NULL);
	free(w);
}

/* Takes ownership of get, unless it fails. 0 or -ENOENT. */
static int early_add(struct session *s, uint64_t req, Kvpool__Get *get)
{
	struct pool_peers *p = s->p;
	struct early *w = NULL;

	if (p->early_count < POOL_EARLY_MAX)
		w = calloc(1, sizeof(*w));
	if (!w)
		return -ENOENT;
	w->s = s;
	w->req = req;
	w->get = get;
	w->deadline_ms = uv_now(p->loop) + POOL_EARLY_MS;
	pool_list_add_tail(&p->early, &w->link);
	p->early_count++;
	pool_count(&p->metrics.early);
	if (p->early.next == &w->link)
		arm(p);
	return 0;
}

static void early_end(struct pool_peers *p, struct early *w, int err)
{
	if (err)
		send_error(w->s, w->req, err);
	early_free(p, w);
}

void pool_peers_again(struct pool_peers *p)
{
	struct pool_list *it, *tmp;

	/* Connections are closed in a later turn, so answer() removes no other
	 * entry from the list. */
	pool_list_each(it, tmp, &p->early) {
		struct early *w = pool_list_entry(it, struct early, link);
		int err = answer(w->s, w->req, w->get);

		if (err != -EINPROGRESS)
			early_end(p, w, err);
	}
}

static void early_drop_session(struct session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->p->early) {
		struct early *w = pool_list_entry(it, struct early, link);

		if (w->s == s)
			early_free(s->p, w);
	}
}

static void got_get(struct session *s, const struct pool_frame *f,
		    const uint8_t *payload)
{
	Kvpool__Get *get = peers_unpack(s->p, s->conn, f, payload);
	int err = get ? answer(s, f->req, get) : -EINVAL;

	if (err == -EINPROGRESS) {
		err = early_add(s, f->req, get);
		if (!err)
			return;
	}
	if (err)
		send_error(s, f->req, err);
	if (get)
		kvpool__get__free_unpacked(get, NULL);
}

/* ---- HELLO ---- */

static void hand_to_mover(struct session *s, uint32_t lane, bool plain)
{
	struct pool_tls_stream *stream;
	int fd;

	if (lane > LANES_MAX || s->is_unix) {
		pool_conn_close(s->conn);
		return;
	}
	fd = pool_conn_detach(s->conn, &stream);
	if (fd < 0) {
		pool_conn_close(s->conn);
		return;
	}
	s->conn = NULL;
	pool_mover_adopt(mover_of(s, lane), fd, stream, s->id, lane, plain);
	session_tidy(s);
}

/* Does the claimed id belong to a living member, although the certificate is
 * not that member's? A node's certificate names the member's address, which the
 * master has checked. A client's certificate is never that of a store. An id
 * that this node does not know is accepted: the peer may have joined just now.
 */
static bool is_another_member(const struct session *s,
			      const uint8_t id[POOL_ID_SIZE])
{
	const struct pool_tls_id *peer = pool_conn_peer_id(s->conn);
	const struct pool_peers_opts *o = &s->p->opts;
	bool is_store = false;
	struct pool_hostport at;
	const char *where;

	if (!peer || !o->ops->member)
		return false;
	where = o->ops->member(o->arg, id, &is_store);
	if (!where)
		return false;
	if (peer->role == POOL_ROLE_CLIENT)
		return is_store;
	return !pool_parse_hostport(where, 0, &at) &&
	       !pool_conn_peer_has_host(s->conn, at.host);
}

static void got_hello(struct session *s, const struct pool_frame *f,
		      const uint8_t *payload)
{
	Kvpool__Hello *hello = pool_hello_unpack(
		s->conn, f, payload, &s->p->metrics.mover.bad_messages);
	uint32_t lane;
	bool plain;

	if (!hello) {
		pool_warn_limited("%s: no valid HELLO from a peer",
				  pool_conn_peer_name(s->conn));
		pool_conn_close(s->conn);
		return;
	}
	if (is_another_member(s, hello->id.data)) {
		pool_count(&s->p->metrics.ids_refused);
		pool_warn_limited("peer %s: its HELLO has a node's id, but not "
				  "that node's certificate",
				  pool_conn_peer_name(s->conn));
		kvpool__hello__free_unpacked(hello, NULL);
		pool_conn_close(s->conn);
		return;
	}
	id_bind(s, hello->id.data);
	lane = hello->lane;
	plain = hello->plain;
	kvpool__hello__free_unpacked(hello, NULL);
	s->greeted = true;
	pool_list_del(&s->greeting_link);
	arm(s->p);
	if (lane > 0)
		hand_to_mover(s, lane, plain);
	else if (pool_hello_send(s->conn, s->p->opts.id, 0, false))
		pool_conn_close(s->conn);
}

static void session_on_frame(struct pool_conn *c, const struct pool_frame *f,
			     const uint8_t *payload, int fd)
{
	struct session *s = pool_conn_user(c);

	if (fd >= 0)
		close(fd);
	session_used(s);
	if (!s->greeted) {
		got_hello(s, f, payload);
	} else if (f->type == POOL_MSG_GET) {
		got_get(s, f, payload);
	} else if (f->type == POOL_MSG_RETURN) {
		got_return(s, f, payload);
	} else if (f->type == POOL_MSG_DOUBT) {
		got_doubt(s, f, payload);
	} else {
		pool_count(&s->p->metrics.mover.bad_messages);
		pool_warn_limited("peer %s: unexpected %s",
				  pool_conn_peer_name(c),
				  pool_msg_name(f->type));
		pool_conn_close(c);
	}
}

/* Requesters send no bulk. */
static void *session_on_bulk_begin(struct pool_conn *c,
				   const struct pool_frame *f,
				   const uint8_t *payload)
{
	struct session *s = pool_conn_user(c);

	(void)payload;
	pool_count(&s->p->metrics.mover.bad_messages);
	pool_warn_limited("peer %s: unexpected bulk of %s",
			  pool_conn_peer_name(c), pool_msg_name(f->type));
	pool_conn_close(c);
	return NULL;
}

static void session_on_close(struct pool_conn *c, int err)
{
	struct session *s = pool_conn_user(c);

	if (err == -ENOBUFS) /* opts.unread_timeout_ms */
		note_unread(s);
	early_drop_session(s);
	s->conn = NULL;
	pool_hash_each(&s->lents, lent_end, s);
	session_tidy(s);
}

static const struct pool_conn_ops session_ops = {
	.on_frame = session_on_frame,
	.on_bulk_begin = session_on_bulk_begin,
	.on_close = session_on_close,
};

static void accepted(struct pool_peers *p, int fd, bool is_unix)
{
	struct session *s = NULL;
	uint8_t addr[POOL_ADDRESS_SIZE];
	struct pool_conn_opts opts = {
		.ops = &session_ops,
		.first = POOL_MSG_HELLO,
		.refused = &p->metrics.mover.bad_messages,
		.tls = p->opts.tls,
		.tls_roles = POOL_ROLES_USERS,
		.shakes = &p->shakes,
		.share = &p->requests,
		.send_queue_max = SESSION_UNREAD_MAX,
		.unread_max = SESSION_UNREAD_PAUSE,
	};

	opts.unread_timeout_ms = p->opts.session_unread_ms ?
					 p->opts.session_unread_ms :
					 POOL_SESSION_UNREAD_MS;
	pool_fd_address(fd, addr);
	if (p->nsessions < SESSIONS_MAX && !address_full(p, addr))
		s = calloc(1, sizeof(*s));
	if (!s) {
		pool_count(&p->metrics.sessions_refused);
		close(fd);
		return;
	}
	s->p = p;
	s->is_unix = is_unix;
	memcpy(s->addr, addr, sizeof(addr));
	s->used_ms = uv_now(p->loop);
	s->deadline_ms = uv_now(p->loop) + GREETING_MS;
	pool_hash_init(&s->lents);
	opts.user = s;
	if (pool_conn_from_fd(p->loop, fd, &opts, &s->conn)) {
		free(s);
		return;
	}
	if (is_unix && !pool_conn_own_user(s->conn)) {
		pool_count(&p->metrics.other_users);
		pool_conn_close(s->conn);
	}
	p->refs++;
	p->nsessions++;
	pool_list_add_tail(&p->sessions, &s->link);
	pool_list_add_tail(&p->greeting, &s->greeting_link);
	if (p->greeting.next == &s->greeting_link)
		arm(p);
}

static void on_accept_tcp(void *arg, int fd)
{
	accepted(arg, fd, false);
}

static void on_accept_unix(void *arg, int fd)
{
	accepted(arg, fd, true);
}

static uint64_t early_expire(struct pool_peers *p, uint64_t now_ms)
{
	while (!pool_list_empty(&p->early)) {
		struct early *w = pool_list_first(&p->early, struct early,
						  link);

		if (w->deadline_ms > now_ms)
			return w->deadline_ms;
		early_end(p, w, -ENOENT);
	}
	return 0;
}

static uint64_t greeting_expire(struct pool_peers *p, uint64_t now_ms)
{
	while (!pool_list_empty(&p->greeting)) {
		struct session *s = pool_list_first(&p->greeting,
						    struct session,
						    greeting_link);

		if (s->deadline_ms > now_ms)
			return s->deadline_ms;
		pool_list_del(&s->greeting_link);
		pool_count(&p->metrics.sessions_silent);
		pool_conn_close(s->conn);
	}
	return 0;
}

/* A peer that has borrowed keeps its connection, as closing it would return the
 * descriptors. */
static bool session_is_idle(const struct session *s)
{
	return s->conn && s->greeted && s->answers == 0 && s->nlent == 0;
}

static uint64_t idle_expire(struct pool_peers *p, uint64_t now_ms)
{
	uint64_t idle_ms = p->opts.session_idle_ms ? p->opts.session_idle_ms :
						     POOL_SESSION_IDLE_MS;

	while (!pool_list_empty(&p->sessions)) {
		struct session *s = pool_list_first(&p->sessions,
						    struct session, link);

		if (s->used_ms + idle_ms > now_ms)
			return s->used_ms + idle_ms;
		if (session_is_idle(s)) {
			pool_count(&p->metrics.sessions_idle);
			pool_conn_close(s->conn);
		}
		session_used(s); /* checked again after idle_ms */
	}
	return 0;
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
	return a && (!b || a < b) ? a : b;
}

uint64_t answer_expire(struct pool_peers *p, uint64_t now_ms)
{
	uint64_t a = greeting_expire(p, now_ms);
	uint64_t b = early_expire(p, now_ms);

	return earlier(earlier(a, b), idle_expire(p, now_ms));
}

/* ---- opening and closing ---- */

static int listen_unix(struct pool_peers *p)
{
	int fd = p->opts.unix_fd;

	return fd > 0 ? pool_listener_from_fd(p->loop, fd, p->unix_path,
					      on_accept_unix, p,
					      &p->unix_listener) :
			pool_listener_open_unix(p->loop, p->unix_path,
						on_accept_unix, p,
						&p->unix_listener);
}

int answer_open(struct pool_peers *p)
{
	int tcp = p->opts.listen_fd, local = p->opts.unix_fd, err;

	if (tcp > 0)
		err = pool_listener_from_fd(p->loop, tcp, NULL, on_accept_tcp,
					    p, &p->tcp_listener);
	else
		err = pool_listener_open(p->loop, &p->opts.listen,
					 on_accept_tcp, p, &p->tcp_listener);
	if (local > 0 && (err || !p->unix_path))
		close(local);
	if (err)
		return err;
	if (!p->opts.tls)
		pool_listener_trust(p->tcp_listener, p->opts.trust);
	if (p->unix_path)
		err = listen_unix(p);
	if (!err && p->unix_path)
		pool_listener_trust(p->unix_listener, p->opts.trust);
	return err;
}

void pool_peers_fds(const struct pool_peers *p, int *ret_tcp, int *ret_unix)
{
	*ret_tcp = pool_listener_fd(p->tcp_listener);
	*ret_unix = p->unix_listener ? pool_listener_fd(p->unix_listener) : -1;
}

void answer_listeners_close(struct pool_peers *p)
{
	pool_listener_close(p->tcp_listener);
	pool_listener_close(p->unix_listener);
	p->tcp_listener = p->unix_listener = NULL;
}

uint16_t pool_peers_port(const struct pool_peers *p)
{
	return p->tcp_listener ? pool_listener_port(p->tcp_listener) : 0;
}

void answer_close(struct pool_peers *p)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &p->sessions) {
		struct session *s = pool_list_entry(it, struct session, link);

		/* Now, while the node still accepts the callback. */
		pool_hash_each(&s->lents, lent_end, s);
		if (s->conn)
			pool_conn_close(s->conn);
	}
}
