/*
 * Remote objects made local.
 *
 * Happy path: an OPEN, a look-up hit or an order of the master needs a
 * published object -> a holder is chosen -> on the same host it lends a
 * descriptor; else space is claimed, a file is made, the bytes are transferred
 * (large objects in parallel pieces, from all holders) and the XXH3-128 is
 * compared -> HELD -> all waiting callers are notified. All callers that need
 * one object share one fetch.
 *
 * Failure modes: a holder fails, its bytes do not match, or it sends nothing
 * for NODE_STALL_MS while there is another: the next holder is asked. No holder
 * is left, no space, or the deadline passes: -ENOENT for all callers. A holder
 * whose bytes did not match is notified (doubt.c); if the pieces came from
 * several holders, one of them is asked for the whole object, then the next
 * one. The name is deleted or rewritten meanwhile: -ESTALE. A holder that has
 * just left may rejoin soon (a take-over, a broken connection): the fetch waits
 * for it briefly (park).
 */
#include "pool/node/fetch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- phases ---- */

/* As drawn in fetch.h. */
static bool may_become(enum fetch_phase from, enum fetch_phase to)
{
#define TO(phase) (1u << FETCH_##phase)
	static const unsigned int edges[] = {
		[FETCH_ASKING] = TO(CLAIMING) | TO(VERIFYING) | TO(ENDED),
		[FETCH_CLAIMING] = TO(MOVING) | TO(ENDED),
		[FETCH_MOVING] = TO(VERIFYING) | TO(ENDED),
		[FETCH_VERIFYING] = TO(CLAIMING) | TO(MOVING) | TO(ENDED),
		[FETCH_PARKED] = TO(ASKING) | TO(ENDED),
		[FETCH_ENDED] = TO(PARKED) | TO(ASKING),
	};
#undef TO
	return edges[from] >> to & 1;
}

void node_fetch_to(struct node_fetch *f, enum fetch_phase to)
{
	assert(may_become(f->phase, to));
	f->phase = to;
}

/* Starts f, whose phase is ASKING. f may end before this returns. */
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

static void answer_wants(struct node_fetch *f, struct node_object *o,
		       int status)
{
	struct node_want *w;

	while (!pool_list_empty(&f->wants)) {
		w = pool_list_first(&f->wants, struct node_want, link);
		pool_list_del(&w->link);
		w->fetched = o;
		w->by_rdma = f->by_rdma;
		w->cb(w, o ? node_object_ref(o) : NULL, status);
	}
}

static void fetch_free(struct node_fetch *f)
{
	assert(!f->seal_fd);
	pool_list_del(&f->link);
	f->n->nfetches--;
	if (f->kind == FETCH_PREFETCH) {
		f->n->nprefetch--;
		if (f->status)
			pool_count(&f->n->c.prefetch_dropped);
	}
	free(f);
}

void node_fetch_keep(struct node_fetch *f, int lent_fd, uint16_t lender)
{
	struct pool_node *n = f->n;
	struct node_entry *e = f->e;
	bool stale = e->gen != f->gen || (e->obj && e->obj->gen >= f->gen);
	struct node_object *o =
		stale ? NULL : node_object_new(e, NODE_FETCHING);

	if (!o) { /* stale: the local copy or the name is newer */
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
	if (o->prefetched) {
		pool_gauge_add(&n->c.prefetch_unread, 1);
		node_object_look(o);
	}
	/* A read that borrows may have become a replica meanwhile. */
	o->counted = f->kind == FETCH_REPLICA && !f->extra && lent_fd < 0;
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
	pool_hist_add(lent_fd >= 0 ? &n->c.fetch_lent :
		      f->linked	   ? &n->c.fetch_linked :
				     &n->c.fetch_copied,
		      pool_now_ns() - f->start_ns);
	pool_count(&n->c.fetches);
	pool_count(lent_fd >= 0 ? &n->c.fetched_lent :
		   f->linked	? &n->c.fetched_linked :
				  &n->c.fetched_copied);
	pool_count_add(&n->c.fetch_bytes, lent_fd >= 0 ? 0 : f->size);
	node_object_held(n, e, o);
	node_fetch_end(f, 0);
}

/*
 * An ended fetch waits briefly for other holders instead of failing, if either
 *   - the object is being moved: the old holder has dropped it, and the feed
 *     has not named the new one here yet; or
 *   - a holder has just left: its process is being taken over, or lost its
 *     connection to the master.
 * Returns whether it waits.
 */
static bool park(struct node_fetch *f)
{
	bool moves = f->stale && pool_now_ns() - f->start_ns <=
					 NODE_PARK_MS * 1000000ull;

	if (f->status != -ENOENT || f->kind == FETCH_REPLICA ||
	    f->e->gen != f->gen ||
	    (!moves && !node_fetch_holder_may_rejoin(f)))
		return false;
	node_fetch_to(f, FETCH_PARKED);
	f->alive = node_fetch_holders_alive(f);
	return true;
}

/* An order to copy has failed, but opens wait for the object: reports the order
 * as failed and continues as a read, if f may. A cached copy may find room
 * where a counted one does not. */
static bool read_on(struct node_fetch *f)
{
	if (f->kind != FETCH_REPLICA || !f->status || f->n->closing ||
	    pool_list_empty(&f->wants) || f->e->gen != f->gen)
		return false;
	node_fetch_replica_end(f, f->status);
	f->kind = FETCH_WANTED;
	f->start_ns = pool_now_ns(); /* NODE_PARK_MS counts from here */
	f->extra = f->alone = false;
	f->again = 0;
	node_fetch_to(f, FETCH_ASKING);
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

	if (!node_fetch_ended(f)) {
		if (f->phase == FETCH_CLAIMING)
			pool_node_claim_cancel(n, &f->claim);
		node_fetch_to(f, FETCH_ENDED);
		f->status = status;
		for (i = 0; i < NODE_PIECES_MAX; i++)
			if (f->pieces[i].busy)
				pool_fetch_cancel(n->peers, &f->pieces[i].f);
	}
	if (f->busy > 0 || f->working)
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
		/* -ESTALE: the caller may retry for the newer version. */
		status = status == -ESTALE || e->gen > f->gen ? -ESTALE :
								-ENOENT;
	}
	if (f->kind == FETCH_REPLICA)
		node_fetch_replica_end(f, status);
	answer_wants(f, status ? NULL : e->obj, status);
	fetch_free(f);
	node_entry_tidy(n, e);
}

static void node_fetch_set_deadline(struct node_fetch *f)
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
	node_not_idle(n);
	e->fetch = f;
	n->nfetches++;
	if (kind == FETCH_PREFETCH)
		n->nprefetch++;
	return f;
}

/* Retries if the feed has named other holders, or more of them are alive; else
 * ends again, and may park again. */
static void unpark(struct node_fetch *f)
{
	if (f->nholders == f->e->nholders &&
	    memcmp(f->holders, f->e->holders,
		   f->nholders * sizeof(f->holders[0])) == 0 &&
	    node_fetch_holders_alive(f) <= f->alive) {
		node_fetch_end(f, -ENOENT);
		return;
	}
	node_fetch_to(f, FETCH_ASKING);
	node_fetch_take_holders(f);
	node_fetch_ask_anew(f);
	fetch_go(f);
}

/* ---- begin: called by want.c; replicate.c begins its own ---- */

int node_fetch_for(struct pool_node *n, struct node_entry *e,
		   struct node_want *w)
{
	struct node_fetch *f = e->fetch;

	if (f && (f->gen != e->gen || node_fetch_ended(f)))
		return -EAGAIN; /* a fetch of an earlier version is ending */
	if (f) {
		pool_list_add_tail(&f->wants, &w->link);
		if (f->kind == FETCH_PREFETCH) {
			f->kind = FETCH_WANTED;
			n->nprefetch--;
			pool_count(&n->c.prefetch_useful);
		} else if (f->kind == FETCH_REPLICA &&
			   f->phase == FETCH_CLAIMING) {
			node_fetch_set_deadline(f);
			node_fetch_end(f, -ENOSPC); /* read_on continues */
		}
		return 0;
	}
	if (e->nholders == 0)
		return -ENOENT;
	f = node_fetch_new(n, e, FETCH_WANTED);
	if (!f)
		return -ENOMEM;
	/* Queued first: the fetch may end inside fetch_go. */
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

		if (node_fetch_ended(f))
			continue;
		node_fetch_check_stalls(f, now, late);
		if (now >= f->deadline_ms)
			node_fetch_end(f, -ETIMEDOUT);
		else if (f->e->gen != f->gen)
			node_fetch_end(f, -ESTALE);
		else if (f->phase == FETCH_PARKED)
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
