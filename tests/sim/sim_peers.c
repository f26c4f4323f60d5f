/*
 * pool/peer/peer.h under simulation: transfers between nodes of one process.
 * The holder answers in a turn of its own. The bytes arrive in a later turn of
 * the reader; or they are wrong, or never arrive (tests/sim/sim_faults.h).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pool/peer/peer.h"
#include "tests/sim/sim_disk.h"
#include "tests/sim/sim_faults.h"

#define WAY_NS (200000u)
#define PORT_BASE 30000

struct pool_peers {
	struct pool_list link; /* in peers */
	struct sim_host *host;
	uint8_t id[POOL_ID_SIZE];
	const struct pool_peers_ops *ops;
	void *arg;
	uint16_t port;
	struct pool_list fetches; /* by this node */
	struct pool_list asked;	  /* received from others, by `asking` */
	struct sim_call closed_call;
	void (*closed)(void *arg);
	void *closed_arg;
};

struct pool_fetch_priv {
	struct pool_list link; /* peers.fetches */
	struct pool_list asking; /* in holder->asked, or self-linked */
	struct pool_fetch *f;
	/* holder: NULL until it receives the request */
	struct pool_peers *from, *holder;
	struct sim_event way, limit;
	struct sim_call turn;
	bool early;
	int status;
	uint64_t bytes, size;
};

static struct pool_list all;
static uint16_t last_port;

static struct pool_list *peers(void)
{
	if (!all.next)
		pool_list_init(&all);
	return &all;
}

static uint64_t way(void)
{
	uint64_t ns = WAY_NS + sim_random(WAY_NS);

	if (sim_random(1000000) < sim_faults.fetch_late)
		ns += sim_random(3 * SIM_S);
	return sim_now_ns() + ns;
}

int pool_peers_open(const struct pool_peers_opts *opts,
		    struct pool_peers **ret_peers)
{
	struct pool_peers *p = calloc(1, sizeof(*p));

	assert(p);
	p->host = pool_container_of(opts->loop, struct sim_host, loop);
	memcpy(p->id, opts->id, sizeof(p->id));
	p->ops = opts->ops;
	p->arg = opts->arg;
	p->port = (uint16_t)(PORT_BASE + ++last_port % 20000);
	pool_list_init(&p->fetches);
	pool_list_init(&p->asked);
	pool_list_init(&p->closed_call.link);
	pool_list_add_tail(peers(), &p->link);
	*ret_peers = p;
	return 0;
}

static void finish(struct pool_fetch_priv *v, int status)
{
	struct pool_fetch *f = v->f;

	sim_cancel(&v->way);
	sim_cancel(&v->limit);
	pool_list_del(&v->turn.link);
	pool_list_del(&v->asking);
	pool_list_del(&v->link);
	free(v);
	f->priv = NULL;
	f->cb(f, status);
}

/* ---- back at the reader ---- */

static void on_come(struct sim_call *c)
{
	struct pool_fetch_priv *v =
		pool_container_of(c, struct pool_fetch_priv, turn);
	struct sim_file *to = sim_file_of_fd(v->f->fd);

	if (v->status) {
		finish(v, v->status);
		return;
	}
	if (to) {
		to->bytes = v->bytes;
		to->size = v->f->offset + v->f->length;
	}
	v->f->sum = sim_bytes_sum(v->bytes, v->f->length);
	finish(v, 0);
}

static void come_back(struct sim_event *e)
{
	struct pool_fetch_priv *v =
		pool_container_of(e, struct pool_fetch_priv, way);

	v->turn.run = on_come;
	sim_call(v->from->host, &v->turn);
}

/* Ends the fetch with status, in a turn of the reader at at_ns. */
static void answer(struct pool_fetch_priv *v, int status, uint64_t at_ns)
{
	sim_cancel(&v->limit);
	pool_list_del(&v->turn.link);
	pool_list_del(&v->asking);
	v->status = status;
	v->way.run = come_back;
	sim_at(&v->way, at_ns);
}

/* ---- at the holder ---- */

static void ask(struct pool_fetch_priv *v)
{
	struct pool_fetch *f = v->f;
	struct sim_file *file;
	uint64_t size = 0;
	bool lendable;
	int fd = v->holder->ops->get(v->holder->arg, f->path, f->path_len,
				     f->gen, f->length, f->copy, &size,
				     &lendable);

	v->early = fd == -EINPROGRESS;
	if (v->early)
		return;
	file = sim_file_of_fd(fd);
	if (!file) {
		answer(v, fd < 0 ? fd : -ENOENT, way());
		return;
	}
	assert(f->offset == 0);
	v->bytes = file->bytes;
	if (sim_random(1000000) < sim_faults.fetch_wrong)
		v->bytes = ~v->bytes;
	answer(v, f->length == size ? 0 : -EBADMSG, way());
}

static void on_asked(struct sim_call *c)
{
	ask(pool_container_of(c, struct pool_fetch_priv, turn));
}

void pool_peers_again(struct pool_peers *p)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &p->asked) {
		struct pool_fetch_priv *v =
			pool_list_entry(it, struct pool_fetch_priv, asking);

		if (v->early)
			ask(v);
	}
}

static void on_limit(struct sim_event *e)
{
	struct pool_fetch_priv *v =
		pool_container_of(e, struct pool_fetch_priv, limit);

	answer(v, v->early ? -ENOENT : -ETIMEDOUT, sim_now_ns());
}

static struct pool_peers *find(const struct pool_peer_addr *a)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, peers()) {
		struct pool_peers *p =
			pool_list_entry(it, struct pool_peers, link);

		if (p->port == a->tcp.port && !p->host->dead)
			return memcmp(p->id, a->id, POOL_ID_SIZE) ? NULL : p;
	}
	return NULL;
}

static void arrive(struct sim_event *e)
{
	struct pool_fetch_priv *v =
		pool_container_of(e, struct pool_fetch_priv, way);

	v->holder = find(&v->f->from);
	if (!v->holder) {
		answer(v, -ECONNREFUSED, way());
		return;
	}
	pool_list_add_tail(&v->holder->asked, &v->asking);
	v->turn.run = on_asked;
	sim_call(v->holder->host, &v->turn);
}

/* ---- asking ---- */

int pool_fetch_start(struct pool_peers *p, struct pool_fetch *f,
		     pool_fetch_cb cb)
{
	struct pool_fetch_priv *v = calloc(1, sizeof(*v));

	assert(v);
	f->cb = cb;
	f->priv = v;
	f->lent_fd = -1;
	v->f = f;
	v->from = p;
	v->way.run = arrive;
	v->limit.run = on_limit;
	pool_list_init(&v->asking);
	pool_list_init(&v->turn.link);
	pool_list_add_tail(&p->fetches, &v->link);
	sim_at(&v->limit, sim_now_ns() + f->timeout_ms * SIM_MS);
	if (p->host->dead)
		answer(v, -ECONNREFUSED, way());
	else if (sim_random(1000000) < sim_faults.fetch_fails)
		answer(v, -ECONNRESET, way());
	else
		sim_at(&v->way, way());
	return 0;
}

uint64_t pool_fetch_progress(const struct pool_fetch *f)
{
	(void)f;
	return 0;
}

void pool_fetch_cancel(struct pool_peers *p, struct pool_fetch *f)
{
	(void)p;
	if (f->priv)
		answer(f->priv, -ECANCELED, sim_now_ns());
}

/* ---- the end ---- */

static void on_closed(struct sim_call *c)
{
	struct pool_peers *p =
		pool_container_of(c, struct pool_peers, closed_call);
	void (*closed)(void *arg) = p->closed;
	void *arg = p->closed_arg;

	free(p);
	closed(arg);
}

void pool_peers_close(struct pool_peers *p, void (*closed)(void *arg),
		      void *arg)
{
	pool_list_del(&p->link);
	while (!pool_list_empty(&p->fetches))
		finish(pool_list_first(&p->fetches, struct pool_fetch_priv,
				       link), -ECANCELED);
	while (!pool_list_empty(&p->asked))
		answer(pool_list_first(&p->asked, struct pool_fetch_priv,
				       asking), -ECONNRESET, way());
	p->closed = closed;
	p->closed_arg = arg;
	p->closed_call.run = on_closed;
	sim_call(p->host, &p->closed_call);
}

uint64_t pool_peers_sent(const struct pool_peers *p)
{
	(void)p;
	return 0;
}

void pool_peers_fds(const struct pool_peers *p, int *ret_tcp, int *ret_unix)
{
	(void)p;
	*ret_tcp = *ret_unix = -1;
}

uint16_t pool_peers_port(const struct pool_peers *p)
{
	return p->port;
}

/* Not simulated: lent descriptors and files kept open. */
void pool_peers_forget(struct pool_peers *p, int fd)
{
	(void)p, (void)fd;
}

void pool_peers_return(struct pool_peers *p, const uint8_t id[POOL_ID_SIZE],
		       const char *path, size_t path_len, uint64_t gen)
{
	(void)p, (void)id, (void)path, (void)path_len, (void)gen;
}

void pool_peers_renew(struct pool_peers *p)
{
	(void)p;
}

unsigned int pool_peers_recall(struct pool_peers *p, const char *path,
			       size_t path_len, uint64_t gen)
{
	(void)p, (void)path, (void)path_len, (void)gen;
	return 0;
}

/* Without delay, because the check that it starts takes time anyway. */
void pool_peers_doubt(struct pool_peers *p, const struct pool_peer_addr *holder,
		      const char *path, size_t path_len, uint64_t gen)
{
	struct pool_peers *h = find(holder);

	if (h && !p->host->dead)
		h->ops->doubt(h->arg, path, path_len, gen);
}
