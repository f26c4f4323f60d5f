/*
 * Making copies: REPLICATE orders one, HELD confirms it. A copy is ordered
 * because the rules want it, because a node wants to evict its own (a move), or
 * because an object is read often (an extra copy).
 *
 *   want --> waiting --order--> ordered --HELD 0--> done (a move: DROP)
 *               ^                  |
 *               +------ later <----+ failed, late
 *                                  +--too often--> given up, until a patrol
 *
 * Waiting needs are queued by urgency: first the replicas of a put, then files
 * with the fewest copies left, last those that lack copies only because a node
 * is draining. All but puts and moves are repair, which is throttled
 * (master/throttle.h).
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "master/may.h"
#include "master/meta.h"
#include "master/place.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define TRIES_MAX 8
#define RETRY_MS 250		 /* doubled with each try ... */
#define RETRY_MAX_MS 2000	 /* ... up to this */
#define PROBE_FAILED 16u	 /* failed copies until a source is probed */
#define ROOM_MS 250		 /* retry of an unstored file without room */
#define ROOMIER_MS 1000		 /* to a patrol, once a full store has room */
#define RUN_MAX 256u		 /* needs of a queue looked at in one turn */
#define BUSY_MAX 16u		 /* of these, all targets busy: then stop */
#define LEVELS 4u		 /* 0, 1, 2, 3 or more copies are left */
#define COPY_MS 30000u		 /* timeout of a copy, plus its size at ... */
#define COPY_BYTES_PER_MS 10000u /* ... 10 MB/s */

enum {
	URGENCY_PUT,
	URGENCY_DANGER,
	URGENCY_DRAIN = URGENCY_DANGER + 2 * LEVELS
};
_Static_assert(URGENCY_DRAIN + 1 == MASTER_URGENCIES, "queues");

void master_repair_init(struct master_repair *r, uint64_t rate,
			unsigned int copies_max)
{
	unsigned int i;

	memset(r, 0, sizeof(*r));
	for (i = 0; i < MASTER_URGENCIES; i++)
		pool_list_init(&r->waiting[i]);
	pool_list_init(&r->later);
	pool_list_init(&r->ordered);
	master_throttle_init(&r->throttle, rate, copies_max, pool_now_ms());
}

static struct master_need *need_of(const struct master_file *f)
{
	return f->extra ? f->extra->need : NULL;
}

/* Is it repair, which is throttled? Puts and evictions wait for their copies,
 * so these are not. */
static bool is_repair(const struct master_need *n)
{
	return n->urgency != URGENCY_PUT && n->from == MASTER_NOBODY;
}

/* Do only clients hold the file? An fsync on a client waits until a store holds
 * it. */
static bool is_unstored(const struct master *m, const struct master_file *f)
{
	return master_place_left(&m->members, f) == 0;
}

/* ---- sources that give no copies ---- */

/* The only node that f can be copied from; NULL: there are others. */
static struct master_member *only_source(const struct master *m,
					 const struct master_file *f)
{
	if (f->nholders != 1)
		return NULL;
	return master_member_at(&m->members,
				master_holder_index(master_file_holders(f)[0]));
}

/* The result of a copy whose target found no holder that gave it (-ENOENT), or
 * that succeeded (0). Other errors are the target's own. */
static void source_result(struct master *m, const struct master_need *n,
			  int status)
{
	struct master_member *mb = only_source(m, n->file);

	if (!mb || (status && status != -ENOENT))
		return;
	mb->copies_failed = !status			      ? 0 :
			    mb->copies_failed < PROBE_FAILED ?
						      mb->copies_failed + 1 :
						      PROBE_FAILED;
	mb->failed_at = n->target;
}

static bool is_probed(const struct master_member *source)
{
	return source && source->copies_failed == PROBE_FAILED;
}

/*
 * When may a copy of f be ordered? 0: now. Each order costs the target a file
 * and a connection, and there may be an order for each change of the source. So
 * a source that gave none of the last PROBE_FAILED copies is probed with one
 * order in RETRY_MS, until a copy succeeds.
 */
static uint64_t source_due_ms(const struct master *m,
			      const struct master_file *f, uint64_t now_ms)
{
	const struct master_member *mb = only_source(m, f);

	return is_probed(mb) && now_ms < mb->probe_ms ? mb->probe_ms : 0;
}

/* A copy of n's file is ordered now. */
static void source_asked(const struct master *m, const struct master_need *n,
			 uint64_t now_ms)
{
	struct master_member *mb = only_source(m, n->file);

	if (mb)
		mb->probe_ms = now_ms + RETRY_MS;
}

/* The target where a copy should not be tried first, or NOBODY. It may be the
 * target that does not reach the source, so each probe is by another one. */
static uint16_t avoid_of(const struct master *m, const struct master_need *n)
{
	const struct master_member *mb = only_source(m, n->file);

	return n->avoid == MASTER_NOBODY && is_probed(mb) ? mb->failed_at :
							    n->avoid;
}

/* A wanted copy has no target, or was given up: have a patrol retry it. */
static void set_unmet(struct master *m)
{
	m->repair.unmet = true;
	master_patrol_by(m, MASTER_UNMET_MS);
}

void master_figures_impossible(struct master *m, struct master_member *mb)
{
	master_count(m, MC_FIGURES);
	if (mb->impossible)
		return;
	mb->impossible = true;
	pool_warn_limited("node %s reports figures that cannot be: they are "
			  "bounded (is its program damaged, or not KVPool?)",
			  mb->name);
	master_event(m->events, "figures",
		     "%s reports figures that cannot be",
		     mb->name);
}

void master_repair_figures(struct master *m, struct master_member *mb,
			   const Kvpool__NodeInfo *info)
{
	bool full = !mb->accepting;

	if (!master_member_figures(&m->members, mb, info))
		master_figures_impossible(m, mb);
	if (full && mb->accepting && m->repair.unmet)
		master_patrol_by(m, ROOMIER_MS);
}

/* ---- needs ---- */

static struct master_need *need_new(struct master *m, struct master_file *f,
				    unsigned int urgency)
{
	struct master_need *n = calloc(1, sizeof(*n));
	struct master_extra *x;

	if (!n)
		return NULL;
	x = master_extra_get(&f->extra);
	if (!x) {
		free(n);
		return NULL;
	}
	assert(!x->need);
	x->need = n;
	n->file = f;
	n->bytes = f->size;
	n->urgency = (uint8_t)urgency;
	n->from = n->target = n->avoid = MASTER_NOBODY;
	pool_list_add_tail(&m->repair.waiting[urgency], &n->link);
	m->repair.nwaiting++;
	return n;
}

/* Put n in the queue of its urgency, or in `later` if it is to be retried. */
static void enqueue(struct master *m, struct master_need *n)
{
	pool_list_del(&n->link);
	pool_list_add_tail(n->due_ms ? &m->repair.later :
				       &m->repair.waiting[n->urgency],
			   &n->link);
}

/* n's copy is no longer in flight: release what it has reserved. */
static void unorder(struct master *m, struct master_need *n)
{
	struct master_member *to = master_member_at(&m->members, n->target);
	struct master_member *from = master_member_at(&m->members, n->from);

	to->promised -= n->bytes;
	to->coming--;
	if (from) {
		from->leaving--;
		from->leaving_bytes -= n->bytes;
	}
	n->ordered = false;
	n->target = MASTER_NOBODY;
	m->repair.nordered--;
	m->repair.nwaiting++;
	if (is_repair(n))
		master_throttle_end(&m->repair.throttle);
	enqueue(m, n);
}

static void need_free(struct master *m, struct master_need *n)
{
	if (n->ordered)
		unorder(m, n);
	if (n->tallied)
		m->repair.bytes_left -= n->bytes;
	pool_list_del(&n->link);
	m->repair.nwaiting--;
	n->file->extra->need = NULL;
	master_extra_trim(&n->file->extra);
	free(n);
}

void master_repair_cancel(struct master *m, struct master_file *f)
{
	struct master_need *n = need_of(f);

	if (n)
		need_free(m, n);
}

void master_repair_satisfied(struct master *m, struct master_file *f)
{
	struct master_need *n = need_of(f);

	if (n && n->from == MASTER_NOBODY && !n->extra)
		need_free(m, n);
}

/* Free up to max needs; returns the rest of max. */
static unsigned int free_list(struct master *m, struct pool_list *list,
			      unsigned int max)
{
	for (; max && !pool_list_empty(list); max--)
		need_free(m, pool_list_first(list, struct master_need, link));
	return max;
}

bool master_repair_fini_some(struct master *m, unsigned int max)
{
	unsigned int i;

	max = free_list(m, &m->repair.ordered, max);
	max = free_list(m, &m->repair.later, max);
	for (i = 0; i < MASTER_URGENCIES; i++)
		max = free_list(m, &m->repair.waiting[i], max);
	return !max;
}

/* Fewest copies left first; among equals, files that lack several copies. */
static unsigned int urgency_of(const struct master_want *w)
{
	unsigned int level = w->left < LEVELS ? w->left : LEVELS - 1;

	if (w->put)
		return URGENCY_PUT;
	if (w->left >= w->wanted)
		return URGENCY_DRAIN;
	return URGENCY_DANGER + 2 * level + (w->wanted - w->left > 1 ? 0 : 1);
}

void master_repair_want(struct master *m, struct master_file *f,
			const struct master_want *want)
{
	unsigned int urgency = urgency_of(want);
	bool displaces = want->put || want->kept;
	struct master_need *n = need_of(f);
	struct master_member *to;

	if (n) {
		n->displaces |= displaces;
		/* A put's copies keep that urgency. */
		if (n->ordered || n->urgency == URGENCY_PUT ||
		    n->urgency == urgency)
			return;
		n->urgency = (uint8_t)urgency;
		enqueue(m, n);
		return;
	}
	if (!is_unstored(m, f) &&
	    master_place_target(&m->members, f, MASTER_NOBODY, displaces,
				&to) == -ENOSPC)
		return set_unmet(m);
	n = need_new(m, f, urgency);
	if (!n)
		return;
	n->displaces = displaces;
	if (is_repair(n)) {
		n->tallied = true;
		m->repair.bytes_left += n->bytes;
	}
	master_kick(m);
}

int64_t master_repair_seconds_left(const struct master_repair *r)
{
	const struct master_throttle *t = &r->throttle;
	uint64_t bps = t->bytes_per_s ? t->bytes_per_s : t->rate;

	if (!r->bytes_left)
		return r->unmet || r->stuck_keys ? -1 : 0;
	return bps ? (int64_t)(r->bytes_left / bps + 1) : -1;
}

/* ---- counting files whose copies have no target ---- */

void master_repair_pass_begin(struct master *m)
{
	m->repair.pass_keys = m->repair.pass_bytes = 0;
}

void master_repair_pass(struct master *m, const struct master_file *f,
			bool leaves)
{
	if ((f->danger == MASTER_SAFE && !leaves) || need_of(f))
		return;
	m->repair.pass_keys++;
	m->repair.pass_bytes += f->size;
}

void master_repair_pass_end(struct master *m)
{
	m->repair.stuck_keys = m->repair.pass_keys;
	m->repair.stuck_bytes = m->repair.pass_bytes;
}

/* ---- ordering ---- */

static void mark_ordered(struct master *m, struct master_need *n,
			 struct master_member *to, uint64_t now_ms)
{
	struct master_member *from = master_member_at(&m->members, n->from);

	n->ordered = true;
	n->target = to->index;
	n->due_ms = now_ms + COPY_MS + n->bytes / COPY_BYTES_PER_MS;
	to->promised += n->bytes;
	to->coming++;
	if (from) {
		from->leaving++;
		from->leaving_bytes += n->bytes;
	}
	pool_list_del(&n->link);
	m->repair.nwaiting--;
	pool_list_add_tail(&m->repair.ordered, &n->link);
	m->repair.nordered++;
	if (is_repair(n))
		master_throttle_begin(&m->repair.throttle, n->bytes);
	master_count(m, from	  ? MC_MOVES :
			n->extra ? MC_EXTRAS :
				   MC_REPLICATIONS);
}

/* One message per order, as targets differ. It includes the holders' addresses,
 * because a store without a mount receives no feed. */
static int send_replicate(struct master *m, struct master_file *f,
			  struct master_member *to, bool extra)
{
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	struct master_session *s = to->session;
	struct master_batch *b = master_batch_start(m);
	Kvpool__NodeInfo infos[MASTER_HOLDERS_MAX], *list[MASTER_HOLDERS_MAX];
	unsigned int i;
	int err = master_batch_add(b, &f->item);

	if (err)
		return err;
	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (!mb)
			continue;
		list[msg.n_nodes] = &infos[msg.n_nodes];
		master_member_info(mb, list[msg.n_nodes++]);
	}
	msg.extra = extra;
	msg.nodes = list;
	msg.entries = b->list;
	msg.n_entries = b->n;
	/* A queued DROP is about an earlier copy: it must go out first. */
	master_session_flush_drops(s);
	master_session_send_after(s, POOL_MSG_REPLICATE, 0, &msg.base,
			      master_keep_mark(m));
	master_batch_reset(b);
	return 0;
}

void master_repair_tell_attrs(struct master *m, struct master_file *f,
			      const struct master_member *except)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		master_holder h = master_file_holders(f)[i];
		struct master_member *mb = master_member_at(
			&m->members, master_holder_index(h));

		if (mb && mb != except && mb->session && mb->is_store &&
		    !(mb->is_mount &&
		      master_may_see_item(mb->session, &f->item)))
			(void)send_replicate(m, f, mb, master_holder_extra(h));
	}
}

static void retry_later(struct master *m, struct master_need *n,
			uint64_t now_ms)
{
	uint64_t wait_ms;

	n->avoid = n->target;
	master_count(m, MC_COPIES_FAILED);
	/* Moves and extra copies are requested again by the nodes that need
	 * them. A file that no store holds is retried without limit. */
	if (n->from != MASTER_NOBODY || n->extra ||
	    (++n->tries >= TRIES_MAX && !is_unstored(m, n->file))) {
		master_count(m, MC_COPIES_GIVEN_UP);
		set_unmet(m);
		need_free(m, n);
		return;
	}
	if (n->tries >= TRIES_MAX)
		n->tries = TRIES_MAX - 1;
	wait_ms = (uint64_t)RETRY_MS << (n->tries - 1);
	n->due_ms = now_ms + (wait_ms < RETRY_MAX_MS ? wait_ms : RETRY_MAX_MS);
	unorder(m, n);
}

/* No store has room: retry an unstored file soon, leave others to a patrol. */
static void no_room(struct master *m, struct master_need *n, uint64_t now_ms)
{
	set_unmet(m);
	if (!is_unstored(m, n->file)) {
		need_free(m, n);
		return;
	}
	n->due_ms = now_ms + ROOM_MS;
	enqueue(m, n);
}

/* Order `to` to make n's copy. -ENOMEM: n is in `later`, or freed. */
static int order_from(struct master *m, struct master_need *n,
		      struct master_member *to, uint64_t now_ms)
{
	int err;

	mark_ordered(m, n, to, now_ms);
	err = send_replicate(m, n->file, to, n->extra);
	if (err)
		retry_later(m, n, now_ms);
	return err;
}

/* Choose a target and order n's copy. -EBUSY: all targets are busy. Otherwise n
 * may have been freed. */
static int order(struct master *m, struct master_need *n, uint64_t now_ms)
{
	struct master_member *to = NULL;
	int err;

	n->due_ms = source_due_ms(m, n->file, now_ms);
	if (n->due_ms) {
		master_count(m, MC_COPIES_PUT_OFF);
		enqueue(m, n);
		return 0;
	}
	err = master_place_target(&m->members, n->file, avoid_of(m, n),
				  n->displaces, &to);
	if (err == -ENOSPC) {
		no_room(m, n, now_ms);
		return 0;
	}
	if (err)
		return err;
	source_asked(m, n, now_ms);
	(void)order_from(m, n, to, now_ms);
	return 0;
}

/* Order a copy whose target is chosen already. NULL: f has a need already, or
 * ENOMEM. */
static struct master_need *order_now(struct master *m, struct master_file *f,
				     uint16_t from, bool extra,
				     struct master_member *to)
{
	struct master_need *n;

	if (need_of(f))
		return NULL; /* one copy at a time */
	n = need_new(m, f, URGENCY_DRAIN);
	if (!n)
		return NULL;
	n->from = from;
	n->extra = extra;
	return order_from(m, n, to, pool_now_ms()) ? NULL : n;
}

void master_repair_move(struct master *m, struct master_file *f, uint16_t from,
			struct master_member *to)
{
	order_now(m, f, from, false, to);
}

bool master_repair_extra(struct master *m, struct master_file *f)
{
	struct master_member *to;

	if (!m->ready || !master_throttle_open(&m->repair.throttle) ||
	    master_place_extra(&m->members, f, &to))
		return false;
	return order_now(m, f, MASTER_NOBODY, true, to) != NULL;
}

/* Retry copies that have timed out. */
static void give_up_late(struct master *m, uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->repair.ordered) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);

		if (now_ms >= n->due_ms)
			retry_later(m, n, now_ms);
	}
}

void master_repair_cut_off(struct master *m, const struct master_member *mb)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->repair.ordered) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);

		if (n->target == mb->index)
			retry_later(m, n, pool_now_ms());
	}
}

/* Move needs that are due from `later` to the queues. Looks at RUN_MAX a turn,
 * and requeues the others at the end of `later`. */
static void wake_later(struct master *m, uint64_t now_ms)
{
	unsigned int left = RUN_MAX;
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->repair.later) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);

		if (!left--)
			break;
		if (n->due_ms <= now_ms)
			n->due_ms = 0;
		enqueue(m, n);
	}
}

struct budget {
	unsigned int looks, busy;
};

static void run_queue(struct master *m, unsigned int urgency, struct budget *b,
		      uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->repair.waiting[urgency]) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);

		if (!b->looks || !b->busy ||
		    (is_repair(n) &&
		     !master_throttle_open(&m->repair.throttle)))
			return;
		b->looks--;
		if (order(m, n, now_ms) == -EBUSY)
			b->busy--;
	}
}

void master_repair_run(struct master *m, uint64_t now_ms)
{
	struct budget b = { .busy = BUSY_MAX };
	bool more = false;
	unsigned int i;

	if (!m->ready || m->closing)
		return;
	master_throttle_tick(&m->repair.throttle, now_ms);
	give_up_late(m, now_ms);
	wake_later(m, now_ms);
	for (i = 0; i < MASTER_URGENCIES; i++) {
		/* Those put off must not use up the looks of other queues. */
		b.looks = RUN_MAX;
		run_queue(m, i, &b, now_ms);
		more = more || !b.looks;
	}
	if (more) /* postponed ones bring no HELD */
		master_kick(m);
}

/* ---- HELD ---- */

/* The move is done: `from` may drop its copy of f, if it still holds it. If the
 * node has joined again since, its inventory decides about the copy. */
static void finish_move(struct master *m, struct master_file *f, uint16_t from)
{
	struct master_member *mb = master_member_at(&m->members, from);
	int pos = master_file_find_holder(f, from);
	char path[POOL_PATH_MAX + 1];
	int len;

	if (pos < 0 || !mb ||
	    master_holder_phase(master_file_holders(f)[pos]) != mb->phase)
		return;
	len = pool_tree_path(&f->e, path, sizeof(path));
	master_file_remove_holder(f, (unsigned int)pos);
	master_session_grant(mb->session, path, (size_t)len, f->gen, f->size);
	master_count(m, MC_EVICT_GRANTED);
}

/* mb has confirmed n's copy. */
static void end_need(struct master *m, struct master_need *n,
		     struct master_member *mb)
{
	/* The node's figures include the copy once they arrive, in the same
	 * message or (from a node of a neighbour version) in the next
	 * heartbeat. Until then the space must not count as free. */
	if (!n->extra)
		mb->used += n->bytes;
	if (is_repair(n)) {
		master_throttle_done(&m->repair.throttle, n->bytes);
		pool_count_add(&m->stats.c[MC_REPAIR_BYTES], n->bytes);
	}
	need_free(m, n);
}

static void copy_held(struct master_session *s, struct master_file *f,
		      bool extra)
{
	struct master *m = s->m;
	struct master_member *mb = s->member;
	struct master_need *n = need_of(f);
	master_holder h = master_holder_make(mb->index, mb->phase);
	uint16_t from = MASTER_NOBODY;

	if (n && n->target == mb->index) {
		from = n->from;
		extra = extra || n->extra;
		source_result(m, n, 0);
		end_need(m, n, mb);
	}
	if (extra)
		h |= MASTER_HOLDER_EXTRA;
	if (master_file_add_holder(&m->map, f, h) < 0)
		return;
	if (from != MASTER_NOBODY)
		finish_move(m, f, from);
	master_map_touch_file(&m->map, f);
	master_review(m, f);
}

/* A node has found its copy to be damaged, and dropped it. */
static void copy_damaged(struct master_session *s, struct master_file *f)
{
	int pos = master_file_find_holder(f, s->member->index);

	if (pos < 0)
		return;
	master_file_remove_holder(f, (unsigned int)pos);
	master_count(s->m, MC_COPIES_DAMAGED);
	master_map_touch_file(&s->m->map, f);
	master_review(s->m, f);
}

/* A copy outside of its namespaces counts if it was ordered. */
static bool was_ordered(const struct master_session *s,
			const struct master_file *f)
{
	const struct master_need *n = need_of(f);

	return (n && n->target == s->member->index) ||
	       master_file_find_holder(f, s->member->index) >= 0;
}

static void held_item(struct master_session *s,
		      const Kvpool__Held__Item *item)
{
	const char *path = (const char *)item->path.data;
	struct master *m = s->m;
	struct master_file *f;

	if (pool_path_check(path, item->path.len) || !item->gen) {
		master_count(m, MC_BAD_ITEMS);
		return;
	}
	f = master_map_file(&m->map, path, item->path.len);
	if (!master_may_see(s, path, item->path.len) &&
	    !(f && f->gen == item->gen && was_ordered(s, f))) {
		master_count(m, MC_NOT_ALLOWED);
		if (!item->status)
			master_session_drop(s, path, item->path.len, item->gen,
					    KVPOOL__DROP__REASON__DELETED);
		return;
	}
	if (f && f->gen == item->gen) {
		struct master_need *n = need_of(f);

		if (!item->status) {
			copy_held(s, f, item->extra);
		} else if (n && n->target == s->member->index) {
			source_result(m, n, item->status);
			retry_later(m, n, pool_now_ms());
		} else if (item->status == -EBADMSG) {
			copy_damaged(s, f);
		}
	} else if (!item->status) {
		master_session_drop(s, path, item->path.len, item->gen,
				    f ? KVPOOL__DROP__REASON__SUPERSEDED :
					KVPOOL__DROP__REASON__DELETED);
	}
}

void master_on_held(struct master_session *s, const Kvpool__Held *msg)
{
	size_t i;

	if (msg->n_items > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO,
					   "too many items in one HELD");
	}
	for (i = 0; i < msg->n_items && !s->ended; i++) {
		s->nheld++;
		held_item(s, msg->items[i]);
	}
	if (msg->node && !s->ended)
		master_repair_figures(s->m, s->member, msg->node);
	master_kick(s->m);
}
