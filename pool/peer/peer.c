/* Opening and closing, the pool_fetch_* calls, deadlines. */
#include "pool/peer/peer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/peer/peer_priv.h"

static void on_mail(struct pool_mailbox *box)
{
	peers_finish(pool_container_of(box, struct pool_peers, box));
}

/* ---- deadlines ---- */

static void due_insert(struct pool_peers *p, struct pool_fetch_priv *x)
{
	struct pool_list *at = p->due.prev;

	/* From the tail, as most fetches have the same timeout. */
	while (at != &p->due && pool_list_entry(at, struct pool_fetch_priv,
						due_link)->deadline_ms >
					x->deadline_ms)
		at = at->prev;
	pool_list_add(at, &x->due_link);
}

/* Has the lane of x received anything since since_ms? */
static bool lane_has_received(const struct pool_fetch_priv *x,
			      uint64_t since_ms)
{
	const struct peer_conns *conns = x->chan->conns;
	const struct pool_lane *lane =
		conns->lanes[lane_index(x->expect.number)].lane;

	return lane && lane->received_ms >= since_ms;
}

/*
 * A fetch has timed out. If neither its control connection nor its lane
 * received anything during the whole timeout, closes the former, so that the
 * next fetch dials a new one. TCP alone takes about 15 minutes to detect a dead
 * peer.
 */
static void close_if_silent(struct pool_fetch_priv *x)
{
	struct chan *ch = x->chan;
	uint64_t ms = x->f->timeout_ms;

	if (!ch->conn || pool_conn_silent_ms(ch->conn) < ms)
		return;
	if (x->expecting && (pool_fetch_progress(x->f) > 0 ||
			     lane_has_received(x, pool_now_ms() - ms)))
		return; /* the holder answers this GET, or others */
	ch->err = -ETIMEDOUT;
	pool_conn_close(ch->conn);
}

static void on_timer(uv_timer_t *t)
{
	struct pool_peers *p = pool_container_of(t, struct pool_peers, timer);
	uint64_t now = uv_now(p->loop);

	/* Results that the movers have already posted count as in time. */
	pool_mailbox_drain(&p->box);
	while (!pool_list_empty(&p->due)) {
		struct pool_fetch_priv *x = pool_list_first(
			&p->due, struct pool_fetch_priv, due_link);

		if (x->deadline_ms > now)
			break;
		if (x->state == PEER_FETCH_ASKED) {
			chan_orphan(x->chan, x);
			close_if_silent(x);
		}
		fetch_end(x, -ETIMEDOUT);
	}
	p->answers_due_ms = answer_expire(p, now);
	peers_timer_arm(p);
	peers_finish(p);
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
	uint64_t got = x->expect.landing.got;
	uint64_t peer_written = x->expect.peer_written;

	if (!x->expecting)
		return x->landing.got;
	return peer_written > got ? peer_written : got;
}

void pool_fetch_cancel(struct pool_peers *p, struct pool_fetch *f)
{
	struct pool_fetch_priv *x = f->priv;

	if (!x)
		return;
	if (x->state == PEER_FETCH_DRAINING || x->state == PEER_FETCH_ENDED) {
		x->status = -ECANCELED;
		if (f->lent_fd >= 0) { /* received in this turn of the loop */
			close(f->lent_fd);
			f->lent_fd = -1;
			pool_peers_return(p, f->from.id, f->path, f->path_len,
					  f->gen);
		}
		return;
	}
	if (x->state == PEER_FETCH_ASKED)
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
		.tls = p->opts.tls,
		.foreign_memory = p->opts.foreign_memory,
		.verbs = p->opts.verbs,
		.cache = p->cache,
	};

	memcpy(opts.id, p->opts.id, POOL_ID_SIZE);
	p->movers = calloc(p->opts.movers, sizeof(struct pool_mover *));
	p->mover_busy = calloc(p->opts.movers, sizeof(*p->mover_busy));
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
	return err ? err : peers_metrics(p);
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
	p->on_timer = on_timer;
	pool_share_open(&p->shakes, p->loop, POOL_CONN_SHAKES);
	pool_share_open(&p->requests, p->loop, REQUESTS_TURN);
	p->refs = 4;
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

static void on_shakes_closed(uv_handle_t *h)
{
	struct pool_share *s =
		pool_container_of((uv_prepare_t *)h, struct pool_share, next);

	peers_unref(pool_container_of(s, struct pool_peers, shakes));
}

static void on_requests_closed(uv_handle_t *h)
{
	struct pool_share *s =
		pool_container_of((uv_prepare_t *)h, struct pool_share, next);

	peers_unref(pool_container_of(s, struct pool_peers, requests));
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
	/* Results that the movers have posted: ends their fetches. */
	pool_mailbox_drain(&p->box);
	while (!pool_list_empty(&p->due))
		fetch_end(pool_list_first(&p->due, struct pool_fetch_priv,
					  due_link),
			  -ECANCELED);
	peers_finish(p);
	peers_ask_close(p);
	answer_close(p);
	movers_free(p);
	pool_mailbox_close(&p->box, on_box_closed);
	pool_share_close(&p->shakes, on_shakes_closed);
	pool_share_close(&p->requests, on_requests_closed);
	uv_close((uv_handle_t *)&p->timer, on_timer_closed);
}
