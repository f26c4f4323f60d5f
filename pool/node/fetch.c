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
#include "pool/node/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fetch_go(struct node_fetch *f)
{
	if (!node_fetch_try_borrow(f))
		node_fetch_bytes(f);
}

/* ---- ending ---- */

void node_fetch_discard_file(struct node_fetch *f)
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

static void fetch_free(struct node_fetch *f)
{
	assert(!f->seal_fd);
	pool_list_del(&f->link);
	f->n->nfetches--;
	if (f->kind == FETCH_PREFETCH)
		f->n->nprefetch--;
	free(f);
}

void node_fetch_keep(struct node_fetch *f, int lent_fd, uint16_t lender)
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
		node_fetch_end(f, stale ? -ESTALE : -ENOMEM);
		return;
	}
	o->gen = f->gen;
	o->size = f->size;
	o->sum = f->sum;
	o->verified = true;
	o->prefetched = f->kind == FETCH_PREFETCH;
	o->looked = o->prefetched ? node_stamp(pool_now_ms()) : 0;
	o->counted = f->kind == FETCH_REPLICA && !f->extra;
	o->lent_fd = lent_fd;
	if (lent_fd >= 0) {
		o->lender = lender;
		n->borrowed++;
	} else {
		o->id = f->file.id;
		node_object_uses(n, o, o->size);
		if (o->counted && f->file.fd > 0)
			f->seal_fd = f->file.fd;
		else
			close(f->file.fd);
		f->file.fd = -1;
	}
	pool_hist_add(&n->c.fetch, pool_now_ns() - f->start_ns);
	pool_count(&n->c.fetches);
	pool_count_add(&n->c.fetch_bytes, lent_fd >= 0 ? 0 : f->size);
	node_object_held(n, e, o);
	node_fetch_end(f, 0);
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

	if (f->status != -ENOENT || f->kind == FETCH_REPLICA ||
	    f->e->gen != f->gen || (!moves && !node_fetch_holder_away(f)))
		return false;
	f->ended = false;
	f->parked = true;
	f->alive = node_fetch_holders_alive(f);
	return true;
}

/* The order that f was is over, but who opens it meanwhile only wants to read:
 * a cached copy, which finds room where one that counts does not. */
static bool read_on(struct node_fetch *f)
{
	if (f->kind != FETCH_REPLICA || !f->status || f->n->closing ||
	    pool_list_empty(&f->wants) || f->e->gen != f->gen)
		return false;
	node_fetch_replica_end(f, f->status);
	f->kind = FETCH_WANTED;
	f->start_ns = pool_now_ns(); /* it has not been parked yet */
	f->extra = f->ended = f->alone = false;
	f->again = 0;
	node_fetch_take_holders(f);
	node_fetch_ask_anew(f);
	fetch_go(f);
	return true;
}

void node_fetch_end(struct node_fetch *f, int status)
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
	node_fetch_discard_file(f);
	if (park(f) || read_on(f))
		return;
	e->fetch = NULL;
	if (status) {
		pool_count(&n->c.fetch_failures);
		/* Replaced: its holders have dropped it; the new one may do. */
		status = status == -ESTALE || e->gen > f->gen ? -ESTALE :
								-ENOENT;
	}
	if (f->kind == FETCH_REPLICA)
		node_fetch_replica_end(f, status);
	tell_wants(f, status ? NULL : e->obj, status);
	fetch_free(f);
	node_entry_tidy(n, e);
}

void node_fetch_set_deadline(struct node_fetch *f)
{
	f->deadline_ms = pool_now_ms() + f->n->opts.deadline_ms +
			 f->size * 1000 / NODE_FLOOR_BPS;
}

struct node_fetch *node_fetch_new(struct pool_node *n,
				    struct node_entry *e, enum fetch_kind kind)
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
	node_fetch_set_deadline(f);
	node_fetch_take_holders(f);
	pool_list_init(&f->wants);
	pool_list_add_tail(&n->fetches, &f->link);
	e->fetch = f;
	n->nfetches++;
	if (kind == FETCH_PREFETCH)
		n->nprefetch++;
	return f;
}

/* Again, if the feed has named other holders meanwhile, or one is back; else
 * when it is time to give up. */
static void unpark(struct node_fetch *f)
{
	f->parked = false;
	if (f->nholders == f->e->nholders &&
	    memcmp(f->holders, f->e->holders,
		   f->nholders * sizeof(f->holders[0])) == 0 &&
	    node_fetch_holders_alive(f) <= f->alive) {
		node_fetch_end(f, -ENOENT);
		return;
	}
	node_fetch_take_holders(f);
	node_fetch_ask_anew(f);
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
		if (f->kind == FETCH_PREFETCH) {
			f->kind = FETCH_WANTED;
			n->nprefetch--;
			pool_count(&n->c.prefetch_useful);
		} else if (f->kind == FETCH_REPLICA && f->claiming) {
			node_fetch_set_deadline(f);
			node_fetch_end(f, -ENOSPC); /* read_on */
		}
		return 0;
	}
	if (e->nholders == 0)
		return -ENOENT;
	f = node_fetch_new(n, e, FETCH_WANTED);
	if (!f)
		return -ENOMEM;
	/* The want must be there before anything can end the fetch. */
	pool_list_add_tail(&f->wants, &w->link);
	fetch_go(f);
	return 0;
}

int node_fetch_ahead(struct pool_node *n, struct node_entry *e)
{
	struct node_fetch *f = node_fetch_new(n, e, FETCH_PREFETCH);

	if (!f)
		return -ENOMEM;
	fetch_go(f);
	return 0;
}

/* ---- housekeeping ---- */

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
		node_fetch_check_stalls(f, now, late);
		if (now >= f->deadline_ms)
			node_fetch_end(f, -ETIMEDOUT);
		else if (f->e->gen != f->gen)
			node_fetch_end(f, -ESTALE);
		else if (f->parked)
			unpark(f);
	}
}

void node_fetch_fini(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->fetches)
		node_fetch_end(pool_list_entry(it, struct node_fetch, link),
			  -ECANCELED);
}
