/*
 * The store's free bytes: claims on them, and evictions to satisfy claims.
 *
 *   0           size - watermark         size           size + headroom
 *   |--- in use -------|--- kept free ---|--- headroom ----|
 *
 * Bytes up to `watermark` (2 * keep_free) are kept free ahead of need, so that
 * most claims are granted at once. Beyond `size`, the headroom is for transient
 * claims and puts, and is emptied again as soon as possible.
 *
 * A claim takes the first of these that suffices:
 *
 *   claim        free  unused cached  headroom      waits, and counted copies
 *                      copies                       are evicted for it
 *   cache_only   yes   evicted        no            no: -ENOSPC
 *   transient    yes   evicted        yes           after half of its time
 *   put          yes   evicted        what can be   at once; may also use the
 *                                     reclaimed     headroom while another
 *                                                   store has room, see below
 *   (no flag)    yes   evicted        what can be   at once
 *                                     reclaimed
 *
 * "What can be reclaimed": as much headroom as cached copies (in use or not),
 * fetches that will be cached copies, and ready files take up; these leave the
 * headroom without the eviction of a counted copy. A put uses more if nothing
 * here may be evicted, or after half of its time: once it is published, it or
 * another object is moved to the other store. So a put does not fail because
 * all objects here are protected from eviction. Waiting claims are granted in
 * order, up to a deadline; small ones that fit, and transient ones that fit in
 * the headroom, overtake others, but large transient ones not each other.
 *
 * Evicted first to last:
 *
 *   1 cached copies at once, in the policy's order (pool/model/evict.h)
 *   2 ready files            if claims still wait
 *   3 counted copies         offered to the master (EVICT), evicted when it
 *                            answers DROP; while another store has room, it has
 *                            them copied there first. Without a master: alone
 *   4 noevict copies         only moved, if no other counted copy qualifies
 *   5 hard-pinned copies     only moved, if puts exceed size + watermark and
 *                            no other counted copy can be moved
 *
 * In 1, and in 3 and 4 together, soft-pinned and recently looked-up objects
 * come last. Never evicted: what is in use (open, mapped, lent). For claims, as
 * few counted copies as possible are evicted. For the watermark, what can be
 * reclaimed counts as free, and no counted copy larger than the watermark is
 * evicted: objects read from other nodes then use these bytes one after
 * another.
 *
 * A transient claim waits before it evicts a counted copy because cached copies
 * in use may become unused meanwhile, and because an object that is being read
 * is not the coldest one.
 */
#include "pool/node/victim.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SMALL (1u << 20) /* smaller claims overtake larger ones */
#define REUSE_MIN (64u << 10) /* below, new pages are cheaper than the search */

/* Bytes for claims: `now`; `soon` includes pages of removed files that a worker
 * is freeing. */
struct room {
	uint64_t now, soon;
};

/* Bytes that are kept free ahead of need. */
static uint64_t watermark(const struct pool_node *n)
{
	return 2 * n->keep_free;
}

static struct room room_in(const struct pool_node *n,
			   const struct pool_space *sp)
{
	uint64_t taken = n->claimed + sp->releasing;
	struct room r;

	r.soon = sp->free > n->claimed ? sp->free - n->claimed : 0;
	r.now = sp->free > taken ? sp->free - taken : 0;
	return r;
}

static struct room room_of(struct pool_node *n)
{
	struct pool_space sp;

	pool_store_space(n->store, &sp);
	return room_in(n, &sp);
}

const struct pool_space *node_space_lately(struct pool_node *n)
{
	uint64_t now = pool_now_ms();

	if (n->space_seen_ms != now)
		pool_store_space(n->store, &n->space_seen);
	n->space_seen_ms = now;
	return &n->space_seen;
}

static void on_counted(void *arg)
{
	node_kick(arg);
}

void node_space_init(struct pool_node *n)
{
	struct pool_space sp;

	pool_store_space(n->store, &sp);
	n->keep_free = sp.size / 100;
	pool_store_set_keep_free(n->store, n->keep_free / 2);
	pool_store_on_counted(n->store, on_counted, n);
}

/* ---- making room ---- */

static void count_cached(struct pool_node *n, const struct node_object *o)
{
	pool_count(&n->c.evicted_cache);
	pool_count_add(&n->c.evicted_bytes, o->size);
}

/*
 * Have all GETs of it surely completed? Pages passed to sendfile(2) may wait in
 * a socket after the file is closed. A single GET has completed if its
 * requester has become a holder.
 */
static bool gets_completed(const struct node_object *o,
			   const struct node_entry *e)
{
	return o->gets == 0 || (o->gets == 1 && o->made && e->gen == o->gen &&
				e->nholders > 0);
}

int node_space_reuse(struct pool_node *n, uint64_t size,
		     struct pool_file *ret_file)
{
	struct node_object *o;
	struct node_entry *e;
	int err = -EAGAIN;

	if (!n->opts.puts_whole || size < REUSE_MIN ||
	    room_of(n).soon >= size + watermark(n))
		return -EAGAIN;
	o = node_victim_cached(n);
	if (!o)
		return -EAGAIN;
	e = o->entry;
	count_cached(n, o);
	if (o->lent_fd < 0 && o->size == size && !node_object_given(o) &&
	    gets_completed(o, e))
		err = node_object_reuse(n, o, size, ret_file);
	else
		node_object_drop(n, o, true);
	node_entry_tidy(n, e);
	return err;
}

/* Evicts one cached copy. Returns its bytes in whole pages (an empty one: 1);
 * 0: none may be evicted. */
static uint64_t drop_one(struct pool_node *n)
{
	struct node_object *o = node_victim_cached(n);
	struct node_entry *e;
	uint64_t size;

	if (!o)
		return 0;
	e = o->entry;
	size = o->ev.size;
	count_cached(n, o);
	node_object_drop(n, o, true);
	node_entry_tidy(n, e);
	return size > 0 ? size : 1;
}

/* Evicts cached copies until `need` bytes are available, or will be soon.
 * False: they do not suffice. statfs(2) costs as much as an eviction, so it is
 * called only when the evicted bytes may suffice. */
static bool drop_cached(struct pool_node *n, uint64_t need)
{
	uint64_t have, size;

	if (room_of(n).soon >= need)
		return true;
	(void)node_fetch_settle(n);
	while ((have = room_of(n).soon) < need)
		for (; have < need; have += size) {
			size = drop_one(n);
			if (!size)
				return room_of(n).soon >= need;
		}
	return true;
}

/* Bytes that are missing, for which counted copies may be evicted. */
struct shortfall {
	uint64_t now; /* for waiting claims, and what puts took of headroom */
	uint64_t all; /* the same, and for the watermark */
	bool pinned;  /* hard-pinned copies may be moved, as a last resort */
};

/* A shared filesystem may have less room than the configured size. */
static uint64_t size_now(const struct pool_space *sp)
{
	return sp->used + sp->free < sp->size ? sp->used + sp->free : sp->size;
}

/* Bytes that can be freed without evicting a counted copy. */
static uint64_t reclaimable(struct pool_node *n, const struct pool_space *sp)
{
	return sp->ready + pool_evict_bytes(n->evict, POOL_EVICT_CACHE) +
	       node_fetch_cache(n);
}

/* Are there files that are not published yet? Objects in the headroom can be
 * moved only after that, so it is too early to move pinned ones instead. */
static bool has_unpublished(struct pool_node *n)
{
	return n->claimed > 0 || !pool_list_empty(&n->writers) ||
	       !pool_list_empty(&n->sealing) || !pool_list_empty(&n->pending);
}

static struct shortfall shortfall_of(struct pool_node *n, uint64_t waiting)
{
	struct shortfall l = { 0, 0, false };
	uint64_t have, taken, size;
	struct pool_space sp;

	pool_store_space(n->store, &sp);
	have = room_in(n, &sp).soon;
	taken = sp.used + n->claimed;
	size = size_now(&sp) + reclaimable(n, &sp);
	if (waiting > have)
		l.now = waiting - have;
	if (taken + waiting + watermark(n) > size)
		l.all = taken + waiting + watermark(n) - size;
	/* Puts use the headroom. */
	if (taken > size + watermark(n)) {
		l.pinned = waiting > 0 || !has_unpublished(n);
		if (l.now < taken - size)
			l.now = taken - size;
	}
	if (l.all < l.now)
		l.all = l.now;
	return l;
}

/* The next victim, if `got` bytes of others have been chosen. NULL: enough, or
 * none may be evicted. */
static struct node_object *victim_for(struct pool_node *n, struct shortfall l,
				      uint64_t got, bool to_move)
{
	uint64_t room = l.pinned && to_move ? node_room_elsewhere(n) : 0;
	struct node_object *o = NULL;

	if (got >= l.all)
		return NULL;
	/* An object that no store has room for would be evicted, not moved. */
	if (room > 0 && got < l.now)
		o = node_victim(n, true, room);
	if (!o && room > 0 && got < l.now)
		o = node_victim_pinned(n, room);
	if (!o)
		o = node_victim(n, to_move,
				got < l.now ? UINT64_MAX : watermark(n));
	return o;
}

/* Without a master: evicts copies that need no permission. */
static void evict_alone(struct pool_node *n, struct shortfall l)
{
	struct node_object *o;
	struct node_entry *e;
	uint64_t got = 0;

	while (got < l.all &&
	       (o = node_victim_alone(n, got < l.now ? UINT64_MAX :
						       watermark(n)))) {
		e = o->entry;
		got += o->ev.size;
		pool_count(&n->c.evicted_alone);
		node_evicted_note(n, o, true);
		pool_count_add(&n->c.evicted_bytes, o->size);
		if (e->gen == o->gen && e->nholders <= 1) {
			node_unpublish(n, e);
			e->nholders = e->replicas = 0;
		}
		node_object_drop(n, o, true);
		if (n->ops && !e->gen)
			n->ops->changed(n->ops_arg, e);
		node_entry_tidy(n, e);
	}
}

struct ask {
	Kvpool__Evict msg;
	Kvpool__Meta *list[POOL_BATCH_MAX];
	Kvpool__Meta meta[POOL_BATCH_MAX];
	char *paths[POOL_BATCH_MAX];
	size_t n, bytes;
};

static bool ask_add(struct ask *a, struct node_object *o)
{
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&o->entry->e, path);
	Kvpool__Meta *m = &a->meta[a->n];

	if (len < 0)
		return false;
	a->paths[a->n] = strdup(path);
	if (!a->paths[a->n])
		return false;
	kvpool__meta__init(m);
	m->path.data = (uint8_t *)a->paths[a->n];
	m->path.len = (size_t)len;
	m->gen = o->gen;
	a->list[a->n++] = m;
	a->bytes += (size_t)len + 16;
	return true;
}

/* A noevict object is offered only after the master has received that rule. */
static bool may_move(struct pool_node *n)
{
	if (node_room_elsewhere(n) == 0)
		return false;
	if (!node_ops_rules_sent(n))
		node_ops_send(n);
	return node_ops_rules_sent(n);
}

static void ask_master(struct pool_node *n, struct shortfall l, uint64_t now)
{
	bool room = may_move(n);
	struct ask *a;
	struct node_object *o;
	size_t i;

	if (now - n->asked_reset_ms >= NODE_ASK_MS) {
		n->asked_reset_ms = now;
		n->asked_bytes = 0;
	}
	if (n->asked_bytes >= l.all)
		return;
	a = calloc(1, sizeof(*a));
	if (!a)
		return;
	while (a->n < POOL_BATCH_MAX && a->bytes < POOL_BATCH_BYTES) {
		o = victim_for(n, l, n->asked_bytes, room);
		if (!o || !ask_add(a, o))
			break;
		o->asked = node_stamp(now);
		o->refused = false;
		n->asked_bytes += o->ev.size;
	}
	kvpool__evict__init(&a->msg);
	a->msg.n_entries = a->n;
	a->msg.entries = a->list;
	a->msg.need = l.all;
	a->msg.seen = n->granted;
	if (a->n > 0)
		(void)node_session_send(n, POOL_MSG_EVICT, 0, &a->msg.base);
	for (i = 0; i < a->n; i++)
		free(a->paths[i]);
	free(a);
}

/* The master has answered for o (DROP or KEEP), so its bytes are no longer in
 * flight: the next EVICT asks for what is still missing. */
void node_space_answered(struct pool_node *n, const struct node_object *o)
{
	uint64_t now = pool_now_ms();

	if (o->asked && n->asked_reset_ms &&
	    node_stamp_age(o->asked, now) <= now - n->asked_reset_ms)
		n->asked_bytes -= o->ev.size < n->asked_bytes ? o->ev.size :
								n->asked_bytes;
}

/*
 * Can c never be granted, because nothing can be evicted now or later? (A copy
 * that the master refused to release does not count.) False in a filesystem
 * shared with others, which may free some.
 */
static bool nothing_to_evict(struct pool_node *n, const struct node_claim *c)
{
	return !n->opts.store_plain && n->asked_bytes == 0 &&
	       pool_list_empty(&n->sealing) &&
	       pool_list_empty(&n->pending) && pool_list_empty(&n->fetches) &&
	       !node_victim_any(n, POOL_EVICT_COUNTED,
				shortfall_of(n, c->bytes).pinned) &&
	       !node_victim_any(n, POOL_EVICT_CACHE, false);
}

static void claim(struct pool_node *n, uint64_t bytes)
{
	n->claimed += bytes;
	n->claimed_ever += bytes;
}

static void grant(struct pool_node *n, struct node_claim *c)
{
	pool_list_del(&c->link);
	claim(n, c->bytes);
	c->cb(c, 0);
}

/* Grants claims in order while they fit. The room is measured once; bytes
 * claimed since, also by callbacks, are subtracted from it, whether or not they
 * are allocated by now. */
static void grant_first(struct pool_node *n)
{
	uint64_t room, before = n->claimed_ever;
	struct node_claim *c;

	if (pool_list_empty(&n->claims))
		return;
	room = room_of(n).now;
	while (!pool_list_empty(&n->claims)) {
		c = pool_list_first(&n->claims, struct node_claim, link);
		if (n->claimed_ever - before + c->bytes > room)
			return;
		grant(n, c);
	}
}

static void refuse(struct pool_node *n, struct node_claim *c)
{
	pool_list_del(&c->link);
	pool_count(&n->c.claims_refused);
	c->cb(c, -ENOSPC);
}

/* Is there space for c, with all of the headroom? */
static bool is_in_reach(const struct pool_node *n, const struct pool_space *sp,
			const struct node_claim *c)
{
	return sp->reach >= n->claimed + c->bytes;
}

/* No more cached copies can be evicted now. Does c fit in the headroom? If it
 * is not transient, only in the part that can be reclaimed. Counts it. */
static bool fits_headroom(struct pool_node *n, const struct pool_space *sp,
			  const struct node_claim *c)
{
	uint64_t taken = sp->used + n->claimed + c->bytes;

	if (!is_in_reach(n, sp, c) ||
	    (!c->transient && taken > size_now(sp) + reclaimable(n, sp)))
		return false;
	pool_count(&n->c.claims_passing);
	return true;
}

/* May c, a put, use the headroom? Yes if another store has room, and either
 * nothing here may be evicted (all is pinned), or c has waited for half of its
 * time (peers have the objects open). Not on a client, whose buffer is bounded.
 * Counts it. */
static bool put_fits_headroom(struct pool_node *n, const struct pool_space *sp,
			      const struct node_claim *c, uint64_t now)
{
	uint64_t over, size;

	if (!c->put || n->opts.store_size == 0)
		return false;
	/* Includes earlier puts that are still in the headroom. */
	over = sp->used + n->claimed + c->bytes;
	size = size_now(sp);
	over = over > size + c->bytes ? over - size : c->bytes;
	if (!is_in_reach(n, sp, c) ||
	    over >= node_room_elsewhere(n) ||
	    (now < c->patient_ms &&
	     (node_victim_any(n, POOL_EVICT_COUNTED, false) ||
	      node_victim_any(n, POOL_EVICT_CACHE, false))))
		return false;
	pool_count(&n->c.claims_through);
	return true;
}

/* The first claim that may overtake those before it; or NULL. The space is
 * measured once: it grows while workers free pages, and then the first claim
 * that fits would not be found. */
static struct node_claim *first_that_fits(struct pool_node *n, uint64_t now)
{
	struct pool_list *it, *tmp;
	struct pool_space sp;
	uint64_t room;

	pool_store_space(n->store, &sp);
	room = room_in(n, &sp).now;
	pool_list_each(it, tmp, &n->claims) {
		struct node_claim *c =
			pool_list_entry(it, struct node_claim, link);

		if ((c->bytes <= SMALL && c->bytes <= room) ||
		    (c->transient && fits_headroom(n, &sp, c)) ||
		    (now >= c->patient_ms &&
		     put_fits_headroom(n, &sp, c, now)))
			return c;
	}
	return NULL;
}

/* Would a transient claim that waits fit in the headroom now? */
static bool transient_is_due(struct pool_node *n, const struct pool_space *sp)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->claims) {
		struct node_claim *c =
			pool_list_entry(it, struct node_claim, link);

		if (c->transient && is_in_reach(n, sp, c))
			return true;
	}
	return false;
}

/* Grants claims that overtake the first one. */
static void serve_others(struct pool_node *n, uint64_t now)
{
	struct node_claim *c;

	/* A callback may cancel other claims. */
	while (!pool_list_empty(&n->claims) && (c = first_that_fits(n, now)))
		grant(n, c);
}

/* Grants claims in order while they fit; refuses those past their deadline. */
static void serve_claims(struct pool_node *n, uint64_t now)
{
	struct node_claim *c;
	struct pool_space sp;
	bool lacks;

	grant_first(n);
	while (!pool_list_empty(&n->claims)) {
		c = pool_list_first(&n->claims, struct node_claim, link);
		if (room_of(n).now >= c->bytes) {
			grant_first(n);
			continue;
		}
		if (now >= c->deadline_ms) {
			refuse(n, c);
			continue;
		}
		lacks = !drop_cached(n, c->bytes);
		pool_store_space(n->store, &sp);
		if (lacks && (fits_headroom(n, &sp, c) ||
			      put_fits_headroom(n, &sp, c, now)))
			grant(n, c);
		else if (room_of(n).soon < c->bytes && nothing_to_evict(n, c))
			refuse(n, c);
		else if (room_of(n).now < c->bytes)
			break;
	}
	serve_others(n, now);
}

/* Bytes of waiting claims for which counted copies may be evicted. */
static uint64_t waiting_bytes(struct pool_node *n, uint64_t now)
{
	struct pool_list *it, *tmp;
	uint64_t sum = 0;

	pool_list_each(it, tmp, &n->claims) {
		struct node_claim *c =
			pool_list_entry(it, struct node_claim, link);

		if (!c->transient || now >= c->patient_ms)
			sum += c->bytes;
	}
	return sum;
}

void node_space_run(struct pool_node *n)
{
	uint64_t now = pool_now_ms(), waiting;
	struct shortfall l;

	if (pool_list_empty(&n->claims) && now == n->space_ms)
		return; /* already done in this millisecond */
	n->space_ms = now;
	/* For all waiting claims at once, and for the watermark. */
	if (drop_cached(n, waiting_bytes(n, now) + watermark(n)) &&
	    pool_list_empty(&n->claims))
		return;
	serve_claims(n, now);
	waiting = waiting_bytes(n, now);
	if (drop_cached(n, waiting + watermark(n)))
		return;
	l = shortfall_of(n, waiting);
	if (l.all > 0 && !pool_store_counted(n->store))
		return;
	if (node_session_up(n))
		ask_master(n, l, now);
	else if (n->cut_off_ms && now - n->cut_off_ms > NODE_MASTERLESS_MS)
		evict_alone(n, l);
	if (!pool_list_empty(&n->claims)) {
		pool_store_drop_ready(n->store);
		serve_claims(n, now);
	}
}

/* ---- claims ---- */

int pool_node_claim_start(struct pool_node *n, struct node_claim *c,
			  uint64_t bytes, unsigned int timeout_ms,
			  void (*cb)(struct node_claim *c, int status))
{
	struct pool_space sp;

	pool_list_init(&c->link);
	c->bytes = bytes;
	c->cb = cb;
	if ((pool_list_empty(&n->claims) || bytes <= SMALL) &&
	    room_of(n).now >= bytes) {
		claim(n, bytes);
		node_kick(n);
		return 1;
	}
	if (bytes > pool_store_size(n->store))
		return -ENOSPC;
	if (drop_cached(n, bytes) && room_of(n).now >= bytes &&
	    pool_list_empty(&n->claims)) {
		claim(n, bytes);
		return 1;
	}
	if (c->cache_only)
		return -ENOSPC;
	pool_store_space(n->store, &sp);
	if ((pool_list_empty(&n->claims) ||
	     (c->transient && !transient_is_due(n, &sp))) &&
	    fits_headroom(n, &sp, c)) {
		claim(n, bytes);
		node_kick(n);
		return 1;
	}
	pool_count(&n->c.claims_waited);
	if (timeout_ms == 0)
		timeout_ms = 5 * n->opts.deadline_ms;
	c->patient_ms = pool_now_ms() + timeout_ms / 2;
	c->deadline_ms = pool_now_ms() + timeout_ms;
	pool_list_add_tail(&n->claims, &c->link);
	node_kick(n);
	return 0;
}

void node_space_fini(struct pool_node *n)
{
	pool_store_on_counted(n->store, NULL, NULL);
	while (!pool_list_empty(&n->claims))
		refuse(n, pool_list_first(&n->claims, struct node_claim,
					  link));
	node_evicted_fini(n);
}

/* ---- statfs ---- */

void pool_node_statvfs(struct pool_node *n, struct statvfs *st)
{
	uint64_t total = 0, avail = 0;
	struct pool_space sp;
	unsigned int i;

	pool_store_space(n->store, &sp);
	if (n->opts.store_size > 0) {
		uint64_t can = sp.free + sp.ready + node_evictable(n);

		total = sp.size;
		avail = can < sp.size ? can : sp.size;
	}
	for (i = 0; i < n->nmembers; i++) {
		struct node_member *m = &n->members[i];
		uint64_t can;

		if (!m->known || !m->alive || !m->is_store ||
		    memcmp(m->addr.id, n->id, POOL_ID_SIZE) == 0)
			continue;
		can = m->capacity - (m->used < m->capacity ? m->used :
							     m->capacity) +
		      m->evictable;
		total += m->capacity;
		avail += can < m->capacity ? can : m->capacity;
	}
	memset(st, 0, sizeof(*st));
	st->f_bsize = st->f_frsize = 4096;
	st->f_blocks = total / 4096;
	st->f_bfree = st->f_bavail = avail / 4096;
	st->f_files = n->tree.hash.count + st->f_bavail;
	st->f_ffree = st->f_favail = st->f_bavail;
	st->f_namemax = POOL_NAME_MAX;
}
