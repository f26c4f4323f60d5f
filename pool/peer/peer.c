#include "pool/peer/peer.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/lane/link.h"
#include "pool/peer/peer_priv.h"
#include "pool/conn/unpack.h"

/* ---- small things ---- */

bool id_equal(const uint8_t a[POOL_ID_SIZE], const uint8_t b[POOL_ID_SIZE])
{
	return memcmp(a, b, POOL_ID_SIZE) == 0;
}

uint32_t id_hash(const uint8_t id[POOL_ID_SIZE])
{
	return (uint32_t)XXH3_64bits(id, POOL_ID_SIZE);
}

int peers_send_hello(struct pool_peers *p, struct pool_conn *c)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;

	hello.version = pool_wire_version;
	hello.id.data = p->opts.id;
	hello.id.len = POOL_ID_SIZE;
	return pool_conn_send(c, POOL_MSG_HELLO, 0, &hello.base);
}

void *peers_unpack(struct pool_peers *p, const struct pool_conn *c,
		   const struct pool_frame *f, const uint8_t *payload)
{
	return pool_frame_unpack(c, f, payload,
				 &p->metrics.mover.bad_messages);
}

Kvpool__Hello *peers_read_hello(struct pool_peers *p, const struct pool_conn *c,
				const struct pool_frame *f,
				const uint8_t *payload)
{
	Kvpool__Hello *hello;

	if (f->type != POOL_MSG_HELLO)
		return NULL;
	hello = peers_unpack(p, c, f, payload);
	if (hello && hello->id.len == POOL_ID_SIZE)
		return hello;
	if (hello)
		kvpool__hello__free_unpacked(hello, NULL);
	return NULL;
}

static int add_failures(struct pool_peers *p)
{
	struct peer_metrics *m = &p->metrics;
	const struct {
		struct pool_counter *c;
		const char *labels;
	} kinds[] = {
		{ &m->fail_gone, "reason=\"gone\"" },
		{ &m->fail_timeout, "reason=\"timeout\"" },
		{ &m->fail_conn, "reason=\"connection\"" },
		{ &m->fail_bad, "reason=\"bad_answer\"" },
		{ &m->fail_local, "reason=\"local_write\"" },
		{ &m->fail_cancel, "reason=\"cancelled\"" },
	};
	int err = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !err; i++)
		err = pool_metrics_counter(p->opts.metrics, kinds[i].c,
					   "kvpool_peer_fetch_failures_total",
					   kinds[i].labels,
					   "Fetches from peers that failed.");
	return err;
}

static int metrics_register(struct pool_peers *p)
{
	struct peer_metrics *m = &p->metrics;
	const struct {
		struct pool_counter *c;
		const char *name, *help;
	} counters[] = {
		{ &m->mover.bytes_in, "kvpool_peer_received_bytes_total",
		  "Object bytes received from peers." },
		{ &m->mover.bytes_out, "kvpool_peer_sent_bytes_total",
		  "Object bytes sent to peers." },
		{ &m->mover.stray_bytes, "kvpool_peer_stray_bytes_total",
		  "Bytes received for fetches that were over." },
		{ &m->mover.lanes_silent, "kvpool_peer_lanes_silent_total",
		  "Bulk connections broken off because nothing came." },
		{ &m->mover.lanes_refused, "kvpool_peer_lanes_refused_total",
		  "Bulk connections beyond the limit." },
		{ &m->mover.bad_messages, "kvpool_peer_bad_messages_total",
		  "Messages of peers that were out of place, beyond their "
		  "bounds or not decoded." },
		{ &m->mover.rdma_in, "kvpool_rdma_received_bytes_total",
		  "Object bytes received by RDMA." },
		{ &m->mover.rdma_pulled, "kvpool_rdma_pulled_bytes_total",
		  "Of these, bytes that this node read from peers." },
		{ &m->mover.rdma_out, "kvpool_rdma_sent_bytes_total",
		  "Object bytes sent by RDMA." },
		{ &m->mover.rdma_again, "kvpool_rdma_fallbacks_total",
		  "Ranges that RDMA failed for, sent over TCP." },
		{ &m->mover.links_up, "kvpool_rdma_links_total",
		  "Queue pairs that were connected to peers." },
		{ &m->mover.links_broken, "kvpool_rdma_links_broken_total",
		  "Queue pairs that broke." },
		{ &m->mover.map_failures, "kvpool_rdma_map_failures_total",
		  "Ranges that could not be registered for a peer." },
		{ &m->cache.hits, "kvpool_rdma_sources_hits_total",
		  "Objects sent that were registered already." },
		{ &m->cache.misses, "kvpool_rdma_sources_misses_total",
		  "Objects registered to be sent." },
		{ &m->cache.failed, "kvpool_rdma_sources_failed_total",
		  "Objects that could not be registered to be sent." },
		{ &m->cache.dropped, "kvpool_rdma_sources_dropped_total",
		  "Registrations given up for others or with their object." },
		{ &m->fetched, "kvpool_peer_fetches_total",
		  "Ranges fetched from peers, as bytes." },
		{ &m->borrowed, "kvpool_peer_borrowed_total",
		  "Objects taken over from peers as descriptors." },
		{ &m->answered, "kvpool_peer_answers_total",
		  "Ranges sent to peers." },
		{ &m->early, "kvpool_peer_early_total",
		  "Requests of peers for what was about to be published." },
		{ &m->lent, "kvpool_peer_lent_total",
		  "Descriptors lent to peers." },
		{ &m->lent_refused, "kvpool_peer_lent_refused_total",
		  "Descriptors not lent because of the limit." },
		{ &m->lent_unsafe, "kvpool_peer_lent_unsafe_total",
		  "Descriptors that were not passed, or not taken, because "
		  "others could write the file, or it is not on a tmpfs." },
		{ &m->other_users, "kvpool_peer_other_users_total",
		  "Unix sockets not used because the other end is another "
		  "user's." },
		{ &m->sessions_refused, "kvpool_peer_sessions_refused_total",
		  "Connections from peers refused." },
		{ &m->sessions_idle, "kvpool_peer_sessions_idle_total",
		  "Connections from peers closed because nothing was asked." },
		{ &m->answers_refused, "kvpool_peer_answers_refused_total",
		  "Requests of peers refused because too many were being "
		  "answered." },
		{ &m->waiting_full, "kvpool_peer_waiting_full_total",
		  "Fetches refused because too many waited." },
	};
	const struct {
		struct pool_gauge *g;
		const char *name, *help;
	} gauges[] = {
		{ &m->lent_now, "kvpool_peer_lent",
		  "Descriptors that peers have now." },
		{ &m->borrowed_now, "kvpool_peer_borrowed",
		  "Descriptors of peers that this node has now." },
		{ &m->inflight, "kvpool_peer_fetches_inflight",
		  "Fetches under way." },
		{ &m->waiting, "kvpool_peer_fetches_waiting",
		  "Fetches waiting for their turn." },
		{ &m->cache.count, "kvpool_rdma_sources",
		  "Objects that are registered to be sent." },
		{ &m->cache.bytes, "kvpool_rdma_sources_bytes",
		  "Bytes of objects that are registered to be sent." },
	};
	const struct {
		struct pool_hist *h;
		const char *name, *help;
	} hists[] = {
		{ &m->mover.rdma_register, "kvpool_rdma_register_seconds",
		  "Registering where a range is to go." },
		{ &m->mover.rdma_move, "kvpool_rdma_move_seconds",
		  "From there until all of the range had come." },
		{ &m->mover.rdma_sum, "kvpool_rdma_sum_seconds",
		  "Checksum of a range, as it came." },
		{ &m->mover.rdma_tail, "kvpool_rdma_tail_seconds",
		  "What was left of the checksum when all had come." },
	};
	int err = 0;

	if (!p->opts.metrics)
		return 0;
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]) && !err;
	     i++)
		err = pool_metrics_counter(p->opts.metrics, counters[i].c,
					   counters[i].name, NULL,
					   counters[i].help);
	for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]) && !err; i++)
		err = pool_metrics_gauge(p->opts.metrics, gauges[i].g,
					 gauges[i].name, NULL, gauges[i].help);
	for (size_t i = 0; i < sizeof(hists) / sizeof(hists[0]) && !err; i++)
		err = pool_metrics_hist(p->opts.metrics, hists[i].h,
					hists[i].name, NULL, hists[i].help);
	return err ? err : add_failures(p);
}

/* ---- the end of a fetch ---- */

static void count_end(struct pool_peers *p, const struct pool_fetch_priv *x)
{
	struct peer_metrics *m = &p->metrics;

	switch (x->status) {
	case 0:
		pool_count(x->f->lent_fd >= 0 ? &m->borrowed : &m->fetched);
		break;
	case -ENOENT:
		pool_count(&m->fail_gone);
		break;
	case -ETIMEDOUT:
		pool_count(&m->fail_timeout);
		break;
	case -EBADMSG:
		pool_count(&m->fail_bad);
		break;
	case -EIO:
	case -ENOSPC:
	case -ENOMEM:
		pool_count(&m->fail_local);
		break;
	case -ECANCELED:
		pool_count(&m->fail_cancel);
		break;
	default:
		pool_count(&m->fail_conn);
		break;
	}
}

/* Off whatever list holds it. */
static void fetch_unlink(struct pool_fetch_priv *x)
{
	struct pool_peers *p = x->peer->p;

	pool_list_del(&x->link);
	pool_list_del(&x->due_link);
	if (x->state == FETCH_WAITING) {
		x->peer->nwaiting--;
		pool_gauge_add(&p->metrics.waiting, -1);
	}
	if (x->state != FETCH_ASKED)
		return;
	pool_hash_remove(&p->by_req, &x->node);
	if (x->chan->landing == x)
		x->chan->landing = NULL;
}

static void fetch_ended(struct pool_fetch_priv *x)
{
	struct pool_peers *p = x->peer->p;

	x->state = FETCH_ENDED;
	pool_list_add_tail(&p->finished, &x->link);
	pool_mailbox_wake(&p->box);
}

static void on_expect_done(struct pool_expect *e)
{
	struct pool_fetch_priv *x =
		pool_container_of(e, struct pool_fetch_priv, expect);

	x->expecting = false;
	x->peer->p->mover_busy[e->number - 1]--;
	if (x->state == FETCH_LEAVING) {
		fetch_ended(x);
		return;
	}
	if (e->landing.status == 0)
		x->f->sum = e->landing.sum;
	fetch_end(x, e->landing.status);
}

int fetch_expect(struct pool_fetch_priv *x, struct pool_lane *lane)
{
	int err;

	x->expect.lane = lane;
	x->expect.req = x->req;
	x->expect.want_pull = x->f->pull;
	x->expect.pull = x->f->pull && lane->linked[LINK_PULL];
	x->expect.buffer = !x->expect.pull && lane->linked[LINK_PUSH];
	x->expect.done = on_expect_done;
	x->expect.landing.fd = x->f->fd;
	x->expect.landing.mem = x->f->mem;
	x->expect.landing.offset = x->f->offset;
	x->expect.landing.length = x->f->length;
	err = pool_mover_expect(&x->expect);
	if (err)
		return err;
	x->expecting = true;
	x->peer->p->mover_busy[lane->number - 1]++;
	return 0;
}

void fetch_end(struct pool_fetch_priv *x, int status)
{
	if (x->state == FETCH_ENDED || x->state == FETCH_LEAVING)
		return;
	fetch_unlink(x);
	x->status = status;
	if (!x->expecting) {
		fetch_ended(x);
		return;
	}
	x->state = FETCH_LEAVING;
	pool_mover_cancel(x->expect.mover, x->cancel, x->req);
	x->cancel = NULL;
}

static void fetch_callback(struct pool_fetch_priv *x)
{
	struct peer *peer = x->peer;
	struct pool_fetch *f = x->f;
	int status = x->status;

	count_end(peer->p, x);
	peer->nfetches--;
	if (x->admitted) {
		peer->inflight--;
		pool_gauge_add(&peer->p->metrics.inflight, -1);
	}
	if (x->landing.hash)
		pool_landing_fini(&x->landing);
	free(x->cancel);
	free(x);
	f->priv = NULL;
	if (!peer->p->closing)
		peer_pump(peer);
	peer_tidy(peer);
	f->cb(f, status);
}

void peers_finish(struct pool_peers *p)
{
	while (!pool_list_empty(&p->finished)) {
		struct pool_fetch_priv *x = pool_list_first(
			&p->finished, struct pool_fetch_priv, link);

		pool_list_del(&x->link);
		fetch_callback(x);
	}
}

static void on_mail(struct pool_mailbox *box)
{
	peers_finish(pool_container_of(box, struct pool_peers, box));
}

/* ---- deadlines ---- */

static void due_insert(struct pool_peers *p, struct pool_fetch_priv *x)
{
	struct pool_list *at = p->due.prev;

	/* From the tail: most have the same timeout. */
	while (at != &p->due && pool_list_entry(at, struct pool_fetch_priv,
						due_link)->deadline_ms >
					x->deadline_ms)
		at = at->prev;
	pool_list_add(at, &x->due_link);
}

/* Has anything come on the lane of x since then? */
static bool lane_heard(const struct pool_fetch_priv *x, uint64_t since_ms)
{
	const struct pool_lane *lane =
		x->peer->lanes[x->expect.number - 1].lane;

	return lane && lane->heard_ms >= since_ms;
}

/*
 * What is to come over the control connection, or because of it, did not, and
 * nothing else either, in all that time: whoever asks next had better dial
 * anew. TCP itself would go on hoping for a quarter of an hour.
 */
static void leave_silent(struct pool_fetch_priv *x)
{
	struct chan *ch = x->chan;
	uint64_t ms = x->f->timeout_ms;

	if (!ch->conn || pool_conn_silent_ms(ch->conn) < ms)
		return;
	if (x->expecting && (pool_fetch_progress(x->f) > 0 ||
			     lane_heard(x, pool_now_ms() - ms)))
		return; /* the GET has arrived, or others have */
	ch->err = -ETIMEDOUT;
	pool_conn_close(ch->conn);
}

static void on_timer(uv_timer_t *t)
{
	struct pool_peers *p = pool_container_of(t, struct pool_peers, timer);
	uint64_t now = uv_now(p->loop);

	/* Answers that are here already count. */
	pool_mailbox_drain(&p->box);
	while (!pool_list_empty(&p->due)) {
		struct pool_fetch_priv *x = pool_list_first(
			&p->due, struct pool_fetch_priv, due_link);

		if (x->deadline_ms > now)
			break;
		if (x->state == FETCH_ASKED) {
			chan_orphan(x->chan, x);
			leave_silent(x);
		}
		fetch_end(x, -ETIMEDOUT);
	}
	peers_timer_arm(p);
	peers_finish(p);
}

void peers_timer_arm(struct pool_peers *p)
{
	uint64_t now = uv_now(p->loop), due = 0;

	if (p->closing)
		return;
	due = answer_expire(p, now);
	if (!pool_list_empty(&p->due)) {
		uint64_t first = pool_list_first(&p->due,
						 struct pool_fetch_priv,
						 due_link)->deadline_ms;

		if (!due || first < due)
			due = first;
	}
	if (!due)
		uv_timer_stop(&p->timer);
	else
		uv_timer_start(&p->timer, on_timer, due > now ? due - now : 0,
			       0);
}

/* ---- the fetch calls ---- */

static bool fetch_is_valid(const struct pool_fetch *f)
{
	return f->path && f->path_len > 0 && f->path_len <= PATH_LEN_MAX &&
	       f->length > 0 && f->length <= POOL_BULK_MAX &&
	       f->offset <= INT64_MAX - f->length &&
	       (f->fd >= 0 || f->mem || f->fd_ok);
}

int pool_fetch_start(struct pool_peers *p, struct pool_fetch *f,
		     pool_fetch_cb cb)
{
	struct pool_fetch_priv *x;
	struct peer *peer;

	if (!fetch_is_valid(f) || p->closing)
		return -EINVAL;
	peer = peer_get(p, &f->from);
	if (!peer)
		return -ENOMEM;
	x = calloc(1, sizeof(*x));
	if (!x || peer->nwaiting >= PEER_WAITING_MAX) {
		if (x)
			pool_count(&p->metrics.waiting_full);
		free(x);
		peer_tidy(peer);
		return -ENOMEM;
	}
	if (f->length > POOL_INLINE_MAX) {
		x->cancel = pool_mover_cancel_new();
		if (!x->cancel) {
			free(x);
			peer_tidy(peer);
			return -ENOMEM;
		}
	}
	f->lent_fd = -1;
	f->cb = cb;
	f->priv = x;
	x->f = f;
	x->peer = peer;
	x->req = ++p->last_req;
	x->deadline_ms = uv_now(p->loop) + f->timeout_ms;
	x->no_fd = !f->fd_ok || f->offset != 0;
	pool_list_add_tail(&peer->waiting, &x->link);
	peer->nwaiting++;
	peer->nfetches++;
	pool_gauge_add(&p->metrics.waiting, 1);
	due_insert(p, x);
	if (p->due.next == &x->due_link)
		peers_timer_arm(p);
	peer_pump(peer);
	return 0;
}

uint64_t pool_fetch_progress(const struct pool_fetch *f)
{
	const struct pool_fetch_priv *x = f->priv;
	uint64_t got = x->expect.landing.got, told = x->expect.told;

	if (!x->expecting)
		return x->landing.got;
	return told > got ? told : got;
}

void pool_fetch_cancel(struct pool_peers *p, struct pool_fetch *f)
{
	struct pool_fetch_priv *x = f->priv;

	if (!x)
		return;
	if (x->state == FETCH_LEAVING || x->state == FETCH_ENDED) {
		x->status = -ECANCELED;
		if (f->lent_fd >= 0) { /* came in this very turn */
			close(f->lent_fd);
			f->lent_fd = -1;
			pool_peers_return(p, f->from.id, f->path, f->path_len,
					  f->gen);
		}
		return;
	}
	if (x->state == FETCH_ASKED)
		chan_orphan(x->chan, x);
	fetch_end(x, -ECANCELED);
}

/* ---- opening and closing ---- */

static void movers_free(struct pool_peers *p)
{
	for (unsigned int i = 0; i < p->nmovers; i++)
		pool_mover_free(p->movers[i]);
	free(p->movers);
	free(p->mover_busy);
	p->movers = NULL;
	p->mover_busy = NULL;
	p->nmovers = 0;
	verbs_cache_close(p->cache);
	p->cache = NULL;
}

static void peers_free(struct pool_peers *p)
{
	pool_hash_fini(&p->peers);
	pool_hash_fini(&p->by_req);
	free(p->unix_path);
	free(p);
}

void peers_unref(struct pool_peers *p)
{
	void (*closed)(void *arg) = p->closed;
	void *arg = p->closed_arg;

	assert(p->refs > 0);
	if (--p->refs > 0)
		return;
	peers_free(p);
	if (closed)
		closed(arg);
}

static void on_timer_closed(uv_handle_t *h)
{
	peers_unref(pool_container_of((uv_timer_t *)h, struct pool_peers,
				      timer));
}

static void on_box_closed(uv_handle_t *h)
{
	struct pool_mailbox *box = pool_container_of(
		(uv_async_t *)h, struct pool_mailbox, async);

	peers_unref(pool_container_of(box, struct pool_peers, box));
}

static int movers_open(struct pool_peers *p)
{
	struct pool_mover_opts opts = {
		.home = &p->box,
		.counters = &p->metrics.mover,
		.trust = p->opts.trust,
		.verbs = p->opts.verbs,
		.cache = p->cache,
	};

	memcpy(opts.id, p->opts.id, POOL_ID_SIZE);
	p->movers = calloc(p->opts.movers, sizeof(struct pool_mover *));
	p->mover_busy = calloc(p->opts.movers, sizeof(unsigned int));
	if (!p->movers || !p->mover_busy)
		return -ENOMEM;
	while (p->nmovers < p->opts.movers) {
		int err = pool_mover_open(&opts, &p->movers[p->nmovers]);

		if (err)
			return err;
		p->nmovers++;
	}
	return 0;
}

static int peers_start(struct pool_peers *p)
{
	int err = 0;

	if (p->opts.verbs)
		err = verbs_cache_open(SOURCES_MAX, SOURCES_BYTES_MAX,
				       &p->metrics.cache, &p->cache);
	if (!err)
		err = movers_open(p);
	if (!err)
		err = answer_open(p);
	return err ? err : metrics_register(p);
}

int pool_peers_open(const struct pool_peers_opts *opts,
		    struct pool_peers **ret_peers)
{
	struct pool_peers *p;
	int err;

	if (opts->movers < 1 || !opts->ops)
		return -EINVAL;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->opts = *opts;
	p->loop = opts->loop;
	pool_hash_init(&p->peers);
	pool_hash_init(&p->by_req);
	pool_list_init(&p->due);
	pool_list_init(&p->finished);
	pool_list_init(&p->sessions);
	pool_list_init(&p->greeting);
	pool_list_init(&p->early);
	if (opts->unix_path) {
		p->unix_path = strdup(opts->unix_path);
		if (!p->unix_path) {
			peers_free(p);
			return -ENOMEM;
		}
	}
	err = pool_mailbox_init(&p->box, p->loop, on_mail);
	if (err) {
		peers_free(p);
		return err;
	}
	uv_timer_init(p->loop, &p->timer);
	p->refs = 2;
	err = peers_start(p);
	if (err) {
		pool_peers_close(p, NULL, NULL);
		return err;
	}
	*ret_peers = p;
	return 0;
}

void pool_peers_forget(struct pool_peers *p, int fd)
{
	struct stat st;

	if (p->cache && fstat(fd, &st) == 0)
		verbs_cache_forget(p->cache, st.st_dev, st.st_ino);
}

uint64_t pool_peers_sent(const struct pool_peers *p)
{
	return pool_counter_value(&p->metrics.mover.bytes_out);
}

void pool_peers_close(struct pool_peers *p, void (*closed)(void *arg),
		      void *arg)
{
	p->closing = true;
	p->closed = closed;
	p->closed_arg = arg;
	answer_listeners_close(p);
	for (unsigned int i = 0; i < p->nmovers; i++)
		pool_mover_stop(p->movers[i]);
	/* What the movers left to say: ends the fetches that they had. */
	pool_mailbox_drain(&p->box);
	while (!pool_list_empty(&p->due))
		fetch_end(pool_list_first(&p->due, struct pool_fetch_priv,
					  due_link),
			  -ECANCELED);
	/* Callers see that their fetches were cancelled, not how. */
	peers_finish(p);
	peers_ask_close(p);
	answer_close(p);
	movers_free(p);
	pool_mailbox_close(&p->box, on_box_closed);
	uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}
