/*
 * Remote objects made local.
 *
 * Happy path: somebody wants a published object (an OPEN, a replica order, a
 * look-up hit) -> choose a holder -> same host: borrow its descriptor; else
 * claim space, take a file, transfer (large objects in parallel pieces from
 * all holders), compare the XXH3-128 -> HELD -> everyone who waited is told.
 * All who want one object share one fetch.
 * Failure modes: a holder is gone, slow, or its bytes do not match: it is left
 * for the next one, as soon as no byte has come for NODE_STALL_MS if there is
 * one; none left, no space or deadline over: -ENOENT for all. Who sent what did
 * not match is told (doubt.c); if several did, one of them is asked for all
 * of it, then the next one.
 * The name is deleted or rewritten meanwhile: -ESTALE. A holder has gone just
 * now, perhaps to be back at once (a take-over, a cut): waited for, a little.
 *
 *   borrow --no--> claim --> MOVING --(several pieces)--> VERIFY --> done
 */
#include "pool/node/priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOO_LARGE_SAID_MS 60000
#define ONE_PIECE (2 * NODE_PIECE) /* up to here in one, checked on the way */

enum kind { WANTED, PREFETCH, REPLICA };

struct piece {
	struct pool_fetch f;
	struct node_fetch *owner;
	uint16_t holder;
	bool busy;
	uint64_t seen, seen_ms; /* progress, and when it was last made */
};

struct node_fetch {
	struct pool_list link; /* node->fetches */
	struct pool_node *n;
	struct node_entry *e; /* e->fetch == this */
	uint64_t gen, size;
	XXH128_hash_t sum;
	struct node_attr attr;
	enum kind kind;
	bool extra; /* a REPLICA that is not to be counted */
	struct pool_list wants;
	uint64_t start_ns, deadline_ms;

	uint16_t holders[NODE_HOLDERS_INLINE];
	uint8_t nholders, first; /* first: where the next piece begins asking */
	bool bad[NODE_HOLDERS_INLINE];
	bool gave[NODE_HOLDERS_INLINE]; /* pieces of what is in the file */
	bool alone;   /* one holder at a time */
	uint8_t again; /* so often all of it was wrong */
	uint8_t cuts[NODE_HOLDERS_INLINE]; /* connections to it that broke */

	struct node_claim claim;
	bool claiming, claimed;
	uint64_t landed; /* of what was claimed: allocated by now */
	struct pool_file file; /* fd >= 0 while we have it */
	struct pool_verify verify;
	uint64_t next_offset; /* first byte not asked for yet */
	unsigned int busy;
	bool waiting_worker, ended;
	bool stale;  /* a holder named by the feed has no copy (any more) */
	bool parked; /* waits for the feed to name others, or one to be back */
	uint8_t alive; /* holders, when it was parked */
	int status;
	struct piece pieces[NODE_PIECES_MAX];
	size_t path_len;
	char path[];
};

static void fetch_move(struct node_fetch *f);
static void fetch_end(struct node_fetch *f, int status);
static void take_holders(struct node_fetch *f);
static void ask_anew(struct node_fetch *f);
static void fetch_go(struct node_fetch *f);

/* ---- choosing holders ---- */

static bool usable(struct node_fetch *f, unsigned int i)
{
	struct node_member *m = node_member(f->n, f->holders[i]);

	return !f->bad[i] && m && m->known && m->alive &&
	       f->holders[i] != f->n->index;
}

static bool shy(struct node_fetch *f, unsigned int i)
{
	uint64_t ms = node_member(f->n, f->holders[i])->stalled_ms;

	return ms && pool_now_ms() - ms < NODE_SHY_MS;
}

/* The next usable holder after the last one asked, best one that has not
 * stood still of late; or -1. */
static int next_holder(struct node_fetch *f)
{
	unsigned int k, i;
	int found = -1;

	for (k = 0; k < f->nholders; k++) {
		i = (f->first + k) % f->nholders;
		if (!usable(f, i) || (found >= 0 && shy(f, i)))
			continue;
		found = (int)i;
		if (!shy(f, i))
			break;
	}
	if (found >= 0)
		f->first = (uint8_t)((found + !f->alone) % f->nholders);
	return found;
}

static bool same_host(const struct pool_node *n, const struct node_member *m)
{
	return m->addr.unix_path[0] && strcmp(m->host_id, n->host_id) == 0;
}

static unsigned int remaining_ms(const struct node_fetch *f, uint64_t len)
{
	uint64_t now = pool_now_ms();
	uint64_t left = f->deadline_ms > now ? f->deadline_ms - now : 1;
	/* A stalled holder is left while there is time for another. */
	uint64_t fair = f->n->opts.deadline_ms / 2 +
			len * 1000 / NODE_FLOOR_BPS;

	return (unsigned int)(left < fair ? left : fair);
}

/* ---- ending ---- */

static void discard_file(struct node_fetch *f)
{
	if (f->file.fd < 0)
		return;
	close(f->file.fd);
	f->file.fd = -1;
	pool_store_remove(f->n->store, f->file.id);
}

static void tell_wants(struct node_fetch *f, struct node_object *o,
		       int status)
{
	struct node_want *w;

	while (!pool_list_empty(&f->wants)) {
		w = pool_list_first(&f->wants, struct node_want, link);
		pool_list_del(&w->link);
		w->cb(w, o ? node_object_ref(o) : NULL, status);
	}
}

void node_report_held(struct pool_node *n, const char *path, size_t path_len,
		      uint64_t gen, bool extra, int status)
{
	Kvpool__Held held = KVPOOL__HELD__INIT;
	Kvpool__Held__Item item = KVPOOL__HELD__ITEM__INIT, *list = &item;
	Kvpool__NodeInfo info;

	item.path.data = (uint8_t *)(uintptr_t)path;
	item.path.len = path_len;
	item.gen = gen;
	item.status = status;
	item.extra = extra;
	held.n_items = 1;
	held.items = &list;
	node_link_info(n, &info);
	held.node = &info;
	pool_count(status ? &n->c.replicate_failures : &n->c.replicated);
	(void)node_link_send(n, POOL_MSG_HELD, 0, &held.base);
	n->said++;
}

static void fetch_free(struct node_fetch *f)
{
	pool_list_del(&f->link);
	f->n->nfetches--;
	if (f->kind == PREFETCH)
		f->n->nprefetch--;
	free(f);
}

/* The object is whole, right and here. */
static void fetch_keep(struct node_fetch *f, int lent_fd, uint16_t lender)
{
	struct pool_node *n = f->n;
	struct node_entry *e = f->e;
	bool stale = e->gen != f->gen || (e->obj && e->obj->gen >= f->gen);
	struct node_object *o =
		stale ? NULL : node_object_new(e, NODE_FETCHING);

	if (!o) { /* overtaken, by a publication of our own perhaps */
		if (lent_fd >= 0) {
			close(lent_fd);
			pool_peers_return(n->peers,
					  n->members[lender].addr.id, f->path,
					  f->path_len, f->gen);
		}
		fetch_end(f, stale ? -ESTALE : -ENOMEM);
		return;
	}
	o->gen = f->gen;
	o->size = f->size;
	o->sum = f->sum;
	o->verified = true;
	o->prefetched = f->kind == PREFETCH;
	o->looked_ms = o->prefetched ? pool_now_ms() : 0;
	o->counted = f->kind == REPLICA && !f->extra;
	o->lent_fd = lent_fd;
	if (lent_fd >= 0) {
		o->lender = lender;
		n->borrowed++;
	} else {
		o->id = f->file.id;
		close(f->file.fd);
		f->file.fd = -1;
	}
	pool_hist_add(&n->c.fetch, pool_now_ns() - f->start_ns);
	pool_count(&n->c.fetches);
	pool_count_add(&n->c.fetch_bytes, lent_fd >= 0 ? 0 : f->size);
	node_object_held(n, e, o);
	fetch_end(f, 0);
}

static uint8_t holders_alive(struct node_fetch *f)
{
	uint8_t alive = 0;
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct node_member *m = node_member(f->n, f->holders[i]);

		if (m && m->alive)
			alive++;
	}
	return alive;
}

/* Has one of them gone just now? */
static bool holder_away(struct node_fetch *f)
{
	uint64_t now = pool_now_ms();
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct node_member *m = node_member(f->n, f->holders[i]);

		if (m && !m->alive && m->gone_ms &&
		    now - m->gone_ms < NODE_AWAY_MS)
			return true;
	}
	return false;
}

/*
 * An object that was moved is nowhere for the moment between its old holder's
 * DROP and the feed that names the new one: wait for that, a little. So is one
 * whose holder is taken over, or was cut off from the master.
 */
static bool park(struct node_fetch *f)
{
	bool moves = f->stale && pool_now_ns() - f->start_ns <=
					 NODE_PARK_MS * 1000000ull;

	if (f->status != -ENOENT || f->kind == REPLICA ||
	    f->e->gen != f->gen || (!moves && !holder_away(f)))
		return false;
	f->ended = false;
	f->parked = true;
	f->alive = holders_alive(f);
	return true;
}

/* The master counts on what we say we hold: a restart must find it again. An
 * extra copy is cache, named to readers while it is hot. */
static void replica_end(struct node_fetch *f, int status)
{
	struct node_object *o = f->e->obj;

	if (status)
		status = f->status;
	else if (o->lent_fd >= 0) /* begun as a read that borrows */
		status = -EAGAIN;
	else if (f->extra)
		status = o->counted ? 0 : node_heat_extra(f->n, o);
	else
		status = node_seal_fetched(f->n, o);
	/* What failed to count is a cached copy, that is all. */
	if (!f->extra && o && o->gen == f->gen && o->lent_fd < 0)
		node_object_count(f->n, o, !status);
	node_report_held(f->n, f->path, f->path_len, f->gen, f->extra, status);
	if (!status)
		o->said = f->n->said;
}

/* The order that f was is over, but who opens it meanwhile only wants to read: a
 * cached copy, which finds room where one that counts does not. */
static bool read_on(struct node_fetch *f)
{
	if (f->kind != REPLICA || !f->status || f->n->closing ||
	    pool_list_empty(&f->wants) || f->e->gen != f->gen)
		return false;
	replica_end(f, f->status);
	f->kind = WANTED;
	f->start_ns = pool_now_ns(); /* it has not been parked yet */
	f->extra = f->ended = f->alone = false;
	f->again = 0;
	take_holders(f);
	ask_anew(f);
	fetch_go(f);
	return true;
}

/* Ends once no transfer or worker can touch f any more. */
static void fetch_end(struct node_fetch *f, int status)
{
	struct pool_node *n = f->n;
	struct node_entry *e = f->e;
	unsigned int i;

	if (!f->ended) {
		f->ended = true;
		f->status = status;
		if (f->claiming)
			pool_node_claim_cancel(n, &f->claim);
		f->claiming = false;
		for (i = 0; i < NODE_PIECES_MAX; i++)
			if (f->pieces[i].busy)
				pool_fetch_cancel(n->peers, &f->pieces[i].f);
	}
	if (f->busy > 0 || f->waiting_worker)
		return;
	status = f->status;
	if (f->claimed)
		pool_node_claim_end(n, f->size - f->landed);
	f->claimed = false;
	f->landed = 0;
	discard_file(f);
	if (park(f) || read_on(f))
		return;
	e->fetch = NULL;
	if (status) {
		pool_count(&n->c.fetch_failures);
		/* Replaced: its holders have dropped it; the new one may do. */
		status = status == -ESTALE || e->gen > f->gen ? -ESTALE :
								-ENOENT;
	}
	if (f->kind == REPLICA)
		replica_end(f, status);
	tell_wants(f, status ? NULL : e->obj, status);
	fetch_free(f);
	node_entry_tidy(n, e);
}

/* ---- verifying ---- */

/* All of it, from the start. */
static void ask_anew(struct node_fetch *f)
{
	unsigned int i;

	f->next_offset = 0;
	for (i = 0; i < NODE_PIECES_MAX; i++)
		f->pieces[i].f.length = 0;
}

static void bad_bytes(struct node_fetch *f)
{
	pool_count(&f->n->c.bad_sums);
	pool_warn_limited("\"%.*s\" arrived with a wrong checksum: discarded",
			  (int)f->path_len, f->path);
}

/* It may be damaged there: it looks, and if so has it copied anew. */
static void tell_doubt(struct node_fetch *f, unsigned int holder)
{
	pool_count(&f->n->c.doubts_told);
	pool_peers_doubt(f->n->peers,
			 &node_member(f->n, f->holders[holder])->addr, f->path,
			 f->path_len, f->gen);
}

/* Pieces of several holders do not tell which of them was wrong. False: there is
 * nobody left who may have it right. */
static bool again_alone(struct node_fetch *f)
{
	unsigned int i, gave = 0, last = 0;
	bool left = false;

	for (i = 0; i < f->nholders; i++) {
		if (!f->gave[i])
			continue;
		tell_doubt(f, i);
		f->gave[i] = false;
		last = i;
		gave++;
	}
	if (gave == 1)
		f->bad[last] = true;
	for (i = 0; i < f->nholders; i++)
		left = left || usable(f, i);
	if (!left || ++f->again > 2 * NODE_HOLDERS_INLINE)
		return false;
	f->alone = true;
	ask_anew(f);
	pool_count(&f->n->c.fetch_retries);
	fetch_move(f);
	return true;
}

static void on_verified(struct pool_verify *v, int status)
{
	struct node_fetch *f = pool_container_of(v, struct node_fetch, verify);

	f->waiting_worker = false;
	if (status == -EBADMSG) {
		bad_bytes(f);
		if (!f->ended && again_alone(f))
			return;
	}
	if (status || f->ended)
		fetch_end(f, status);
	else
		fetch_keep(f, -1, 0);
}

static void verify_all(struct node_fetch *f)
{
	int err;

	f->verify.id = f->file.id;
	f->verify.sum = f->sum;
	err = pool_verify_start(f->n->store, &f->verify, on_verified);
	if (err)
		fetch_end(f, err);
	else
		f->waiting_worker = true;
}

/* ---- moving ---- */

static void piece_failed(struct node_fetch *f, struct piece *p, int status)
{
	/* As a read of the connection says it, or a write. */
	bool cut = status == -ECONNRESET || status == -EPIPE;

	if (status == -ENOSPC || status == -EIO) {
		fetch_end(f, status);
		return;
	}
	/* One that stood still is asked again if there is nobody else; so is one
	 * whose connection was cut, with all the pieces that were on it: its
	 * daemon may have been replaced. (One that died does not answer.) */
	f->bad[p->holder] = status != -ECANCELED &&
			    (!cut || ++f->cuts[p->holder] > NODE_PIECES_MAX);
	f->stale = f->stale || status == -ENOENT;
	if (f->bad[p->holder] && (status == -EBADMSG || status == -EINVAL ||
				  cut))
		tell_doubt(f, p->holder);
	pool_count(&f->n->c.fetch_retries);
	fetch_move(f);
}

static void on_piece(struct pool_fetch *pf, int status)
{
	struct piece *p = pool_container_of(pf, struct piece, f);
	struct node_fetch *f = p->owner;
	bool whole = pf->length == f->size;

	p->busy = false;
	f->busy--;
	if (f->ended) {
		fetch_end(f, f->status);
		return;
	}
	if (status) {
		piece_failed(f, p, status);
		return;
	}
	pf->length = 0; /* this piece is done */
	f->gave[p->holder] = true;
	if (whole) {
		if (XXH128_isEqual(pf->sum, f->sum)) {
			fetch_keep(f, -1, 0);
		} else {
			bad_bytes(f);
			pf->length = f->size; /* all of it once more */
			piece_failed(f, p, -EBADMSG);
		}
		return;
	}
	fetch_move(f);
}

static int piece_start(struct node_fetch *f, struct piece *p, uint64_t offset,
		       uint64_t length, pool_fetch_cb cb)
{
	int h = next_holder(f);
	struct node_member *m;
	int err;

	if (h < 0)
		return -ENOENT;
	m = node_member(f->n, f->holders[h]);
	p->owner = f;
	p->holder = (uint16_t)h;
	memset(&p->f, 0, sizeof(p->f));
	p->f.from = m->addr;
	if (!same_host(f->n, m))
		p->f.from.unix_path[0] = '\0';
	p->f.path = f->path;
	p->f.path_len = f->path_len;
	p->f.gen = f->gen;
	p->f.offset = offset;
	p->f.length = length;
	p->f.fd = f->file.fd;
	p->f.fd_ok = f->file.fd < 0;
	p->f.pull = f->kind == REPLICA;
	p->f.lent_fd = -1;
	p->f.timeout_ms = remaining_ms(f, length);
	err = pool_fetch_start(f->n->peers, &p->f, cb);
	if (err) {
		p->f.length = 0;
		return err;
	}
	p->busy = true;
	p->seen = 0;
	p->seen_ms = pool_now_ms();
	f->busy++;
	return 0;
}

/* A piece that failed keeps its range (length > 0, not busy): it goes first. */
static bool next_range(struct node_fetch *f, struct piece *p, uint64_t *off,
		       uint64_t *len)
{
	uint64_t step = f->size <= ONE_PIECE ? f->size : NODE_PIECE;

	if (p->f.length > 0) {
		*off = p->f.offset;
		*len = p->f.length;
		return true;
	}
	if (f->next_offset >= f->size)
		return false;
	*off = f->next_offset;
	*len = f->size - *off < step ? f->size - *off : step;
	f->next_offset += *len;
	return true;
}

static void fetch_move(struct node_fetch *f)
{
	uint64_t off, len;
	unsigned int i;
	int err;

	for (i = 0; i < NODE_PIECES_MAX; i++) {
		struct piece *p = &f->pieces[i];

		if (p->busy || !next_range(f, p, &off, &len))
			continue;
		err = piece_start(f, p, off, len, on_piece);
		if (err) {
			fetch_end(f, err);
			return;
		}
	}
	if (f->busy == 0 && !f->ended)
		verify_all(f);
}

/* Space is ours: a file to land in. Its pages are allocated as they arrive,
 * in whole large folios (pool/landing.h); reserving them ahead would cost a
 * round trip to a worker. A device can only be given pages within its size. */
static void fetch_claimed(struct node_fetch *f)
{
	int err = pool_store_take(f->n->store, 0, &f->file);

	if (!err && f->n->opts.verbs &&
	    ftruncate(f->file.fd, (off_t)f->size) < 0) {
		err = -errno;
		discard_file(f);
	}
	if (err) {
		f->file.fd = -1;
		fetch_end(f, err);
	} else if (f->size == 0) {
		fetch_keep(f, -1, 0);
	} else {
		fetch_move(f);
	}
}

static void on_claim(struct node_claim *c, int status)
{
	struct node_fetch *f = pool_container_of(c, struct node_fetch, claim);

	f->claiming = false;
	if (status) {
		fetch_end(f, status);
		return;
	}
	f->claimed = true;
	fetch_claimed(f);
}

static bool any_on_this_host(struct node_fetch *f)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++)
		if (usable(f, i) &&
		    same_host(f->n, node_member(f->n, f->holders[i])))
			return true;
	return false;
}

/* To who reads it is a miss, each time: once a minute somebody should know. */
static void warn_too_large(const struct node_fetch *f)
{
	struct pool_node *n = f->n;
	uint64_t now = pool_now_ms(), most = pool_store_size(n->store);
	bool client = n->opts.store_size == 0;
	char size[32], room[32];

	if (f->size <= most || (n->too_large_ms &&
				now - n->too_large_ms < TOO_LARGE_SAID_MS))
		return;
	n->too_large_ms = now;
	pool_warn("%.*s has %s, more than this node's %s of %s: it cannot be "
		  "read here; use a larger --%s-size", (int)f->path_len,
		  f->path, pool_format_size(f->size, size, sizeof(size)),
		  client ? "buffer" : "store",
		  pool_format_size(most, room, sizeof(room)),
		  client ? "buffer" : "store");
}

static void fetch_bytes(struct node_fetch *f)
{
	int rc;

	f->file.fd = -1;
	f->claim.cache_only = f->kind == PREFETCH || f->extra;
	f->claim.passing = f->kind == WANTED;
	rc = pool_node_claim_start(f->n, &f->claim, f->size,
				   remaining_ms(f, f->size), on_claim);
	if (rc < 0) {
		warn_too_large(f);
		fetch_end(f, rc);
	} else if (rc == 0) {
		f->claiming = true;
	} else {
		on_claim(&f->claim, 0);
	}
}

static void on_lent(struct pool_fetch *pf, int status)
{
	struct piece *p = pool_container_of(pf, struct piece, f);
	struct node_fetch *f = p->owner;

	p->busy = false;
	f->busy--;
	if (!status && pf->lent_fd >= 0 && !f->ended) {
		fetch_keep(f, pf->lent_fd, f->holders[p->holder]);
		return;
	}
	if (!status && pf->lent_fd >= 0) {
		close(pf->lent_fd);
		pool_peers_return(f->n->peers, pf->from.id, f->path,
				  f->path_len, f->gen);
	}
	pf->length = 0;
	if (f->ended) {
		fetch_end(f, f->status);
		return;
	}
	if (status == -ENOENT)
		f->bad[p->holder] = f->stale = true;
	f->first = (uint8_t)p->holder;
	fetch_bytes(f);
}

/* Ask one holder on this host for a descriptor; its bytes if it will not. */
static bool try_borrow(struct node_fetch *f)
{
	struct piece *p = &f->pieces[0];

	if (!f->n->opts.fd_passing || f->kind == REPLICA || f->size == 0 ||
	    f->n->borrowed >= POOL_LENT_MAX || !any_on_this_host(f))
		return false;
	f->file.fd = -1;
	return piece_start(f, p, 0, f->size, on_lent) == 0;
}

/* We fetch because we have no copy: if the feed names us, it is behind. */
static void take_holders(struct node_fetch *f)
{
	unsigned int i;

	f->nholders = f->e->nholders;
	f->stale = false;
	for (i = 0; i < f->nholders; i++) {
		f->holders[i] = f->e->holders[i];
		f->bad[i] = f->gave[i] = false;
		f->cuts[i] = 0;
		f->stale = f->stale || f->holders[i] == f->n->index;
	}
	/* Readers of one object, whose indices follow each other, take turns;
	 * one reader's objects differ. */
	f->first = 0;
	if (f->nholders > 1)
		f->first = (uint8_t)((f->n->index + f->sum.low64 % 251) %
				     f->nholders);
}

static void set_deadline(struct node_fetch *f)
{
	f->deadline_ms = pool_now_ms() + f->n->opts.deadline_ms +
			 f->size * 1000 / NODE_FLOOR_BPS;
}

static struct node_fetch *fetch_new(struct pool_node *n,
				    struct node_entry *e, enum kind kind)
{
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&e->e, path);
	struct node_fetch *f;

	if (len < 0)
		return NULL;
	f = calloc(1, sizeof(*f) + (size_t)len + 1);
	if (!f)
		return NULL;
	memcpy(f->path, path, (size_t)len);
	f->path_len = (size_t)len;
	f->n = n;
	f->e = e;
	f->kind = kind;
	f->gen = e->gen;
	f->size = e->size;
	f->sum = e->sum;
	f->file.fd = -1;
	f->start_ns = pool_now_ns();
	set_deadline(f);
	take_holders(f);
	pool_list_init(&f->wants);
	pool_list_add_tail(&n->fetches, &f->link);
	e->fetch = f;
	n->nfetches++;
	if (kind == PREFETCH)
		n->nprefetch++;
	return f;
}

static void fetch_go(struct node_fetch *f)
{
	if (!try_borrow(f))
		fetch_bytes(f);
}

/* Again, if the feed has named other holders meanwhile, or one is back; else
 * when it is time to give up. */
static void unpark(struct node_fetch *f)
{
	f->parked = false;
	if (f->nholders == f->e->nholders &&
	    memcmp(f->holders, f->e->holders,
		   f->nholders * sizeof(f->holders[0])) == 0 &&
	    holders_alive(f) <= f->alive) {
		fetch_end(f, -ENOENT);
		return;
	}
	take_holders(f);
	ask_anew(f);
	fetch_go(f);
}

/* ---- who begins a fetch: node/want.c, the master ---- */

int node_fetch_for(struct pool_node *n, struct node_entry *e,
		   struct node_want *w)
{
	struct node_fetch *f = e->fetch;

	if (f && (f->gen != e->gen || f->ended))
		return -EAGAIN; /* one of a version that is going */
	if (f) {
		pool_list_add_tail(&f->wants, &w->link);
		if (f->kind == PREFETCH) {
			f->kind = WANTED;
			n->nprefetch--;
			pool_count(&n->c.prefetch_useful);
		} else if (f->kind == REPLICA && f->claiming) {
			set_deadline(f);
			fetch_end(f, -ENOSPC); /* read_on */
		}
		return 0;
	}
	if (e->nholders == 0)
		return -ENOENT;
	f = fetch_new(n, e, WANTED);
	if (!f)
		return -ENOMEM;
	/* The want must be there before anything can end the fetch. */
	pool_list_add_tail(&f->wants, &w->link);
	fetch_go(f);
	return 0;
}

int node_fetch_ahead(struct pool_node *n, struct node_entry *e)
{
	struct node_fetch *f = fetch_new(n, e, PREFETCH);

	if (!f)
		return -ENOMEM;
	fetch_go(f);
	return 0;
}


/* 0: it is under way, and will be reported. */
static int replicate_start(struct pool_node *n, const Kvpool__Meta *m,
			   bool extra)
{
	struct node_entry *e = node_feed_ahead(n, m);
	struct node_fetch *f;
	size_t i;

	if (!e)
		return -EINVAL;
	if (e->obj && e->obj->gen < m->gen && e->obj->state == NODE_HELD)
		node_object_drop(n, e->obj, false);
	e->nholders = 0;
	for (i = 0; i < m->n_holders && e->nholders < NODE_HOLDERS_INLINE; i++)
		e->holders[e->nholders++] = (uint16_t)m->holders[i];
	if (e->fetch && e->fetch->gen == m->gen && !e->fetch->ended) {
		if (e->fetch->kind == PREFETCH)
			n->nprefetch--;
		e->fetch->extra = extra && (e->fetch->kind != REPLICA ||
					    e->fetch->extra);
		e->fetch->kind = REPLICA;
		return 0;
	}
	if (e->fetch)
		return -EAGAIN; /* one of a version that is going */
	f = fetch_new(n, e, REPLICA);
	if (!f)
		return -ENOMEM;
	f->extra = extra;
	if (e->obj && e->obj->gen == m->gen && e->obj->lent_fd < 0) {
		fetch_end(f, 0); /* a cached copy is promoted */
		return 0;
	}
	if (e->obj)
		node_object_drop(n, e->obj, false);
	fetch_bytes(f);
	return 0;
}

/* Whatever becomes of it is reported: the master waits for that. */
static void replicate_one(struct pool_node *n, const Kvpool__Meta *m,
			  bool extra)
{
	int err;

	if (m->sum.len != 16 || !m->gen || m->is_dir)
		return;
	err = replicate_start(n, m, extra);
	if (err)
		node_report_held(n, (const char *)m->path.data, m->path.len,
				 m->gen, extra, err);
}

void node_replicate(struct pool_node *n, const Kvpool__Replicate *r)
{
	size_t i;

	for (i = 0; i < r->n_nodes; i++)
		node_member_apply(n, r->nodes[i]);
	for (i = 0; i < r->n_entries; i++)
		replicate_one(n, r->entries[i], r->extra);
}

/* ---- housekeeping ---- */

static bool another_runs(struct node_fetch *f, unsigned int holder)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++)
		if (i != holder && usable(f, i) && !shy(f, i))
			return true;
	return false;
}

/* What stands still is started elsewhere, long before its deadline. (Not both at
 * once: a holder that wakes up later must not write into what was verified.) */
static void check_stall(struct node_fetch *f, struct piece *p, uint64_t now)
{
	uint64_t got = pool_fetch_progress(&p->f);

	if (got != p->seen) {
		p->seen = got;
		p->seen_ms = now;
		return;
	}
	if (now - p->seen_ms < NODE_STALL_MS || !another_runs(f, p->holder))
		return;
	node_member(f->n, f->holders[p->holder])->stalled_ms = now;
	pool_count(&f->n->c.fetch_stalls);
	p->seen_ms = now; /* asked once to end */
	pool_fetch_cancel(f->n->peers, &p->f);
}

static void check_stalls(struct node_fetch *f, uint64_t now, bool late)
{
	unsigned int i;

	for (i = 0; i < NODE_PIECES_MAX && !f->ended; i++) {
		if (!f->pieces[i].busy)
			continue;
		if (late) /* what came meanwhile has not been looked at */
			f->pieces[i].seen_ms = now;
		else
			check_stall(f, &f->pieces[i], now);
	}
}

uint64_t node_fetch_cache(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0;

	pool_list_each(it, tmp, &n->fetches) {
		struct node_fetch *f =
			pool_list_entry(it, struct node_fetch, link);

		if (f->claimed && (f->kind != REPLICA || f->extra))
			sum += f->size;
	}
	return sum;
}

/* How much of f's claim has turned into pages since the last look. */
static uint64_t settle(struct node_fetch *f)
{
	uint64_t have, more;
	struct stat st;

	if (!f->claimed || f->file.fd < 0 || fstat(f->file.fd, &st) < 0)
		return 0;
	have = (uint64_t)st.st_blocks * 512;
	if (have > f->size)
		have = f->size; /* the rest of the last page */
	more = have > f->landed ? have - f->landed : 0;
	f->landed += more;
	return more;
}

uint64_t node_fetch_settle(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0, more = 0;

	pool_list_each(it, tmp, &n->fetches) {
		struct node_fetch *f =
			pool_list_entry(it, struct node_fetch, link);

		more += settle(f);
		sum += f->landed;
	}
	n->claimed -= more < n->claimed ? more : n->claimed;
	return sum;
}

void node_fetch_tick(struct pool_node *n, uint64_t now)
{
	bool late = now - n->fetch_ms > NODE_STALL_MS / 2;
	struct pool_list *it, *tmp;

	n->fetch_ms = now;
	pool_list_each(it, tmp, &n->fetches) {
		struct node_fetch *f =
			pool_list_entry(it, struct node_fetch, link);

		if (f->ended)
			continue;
		check_stalls(f, now, late);
		if (now >= f->deadline_ms)
			fetch_end(f, -ETIMEDOUT);
		else if (f->e->gen != f->gen)
			fetch_end(f, -ESTALE);
		else if (f->parked)
			unpark(f);
	}
}

void node_fetch_fini(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->fetches)
		fetch_end(pool_list_entry(it, struct node_fetch, link),
			  -ECANCELED);
}
