/*
 * Copies: ordered where they are wanted or where one may be dropped for them,
 * confirmed by HELD, and given up on EVICT.
 *
 *   want --> waiting --order--> ordered --HELD 0--> done (a move: DROP)
 *               ^                  |
 *               +--failed, late----+--too often--> given up, until a patrol
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"

#define TRIES_MAX 8
#define RETRY_MS 250		 /* doubled with each try */
#define RUN_MAX 256u		 /* needs looked at in one turn */
#define COPY_MS 30000u		 /* to a copy's end, and by size: */
#define COPY_BYTES_PER_MS 10000u /* 10 MB/s */

void master_repair_init(struct master_repair *r)
{
	memset(r, 0, sizeof(*r));
	pool_list_init(&r->waiting);
	pool_list_init(&r->ordered);
}

static struct master_need *need_of(const struct master_file *f)
{
	return f->extra ? f->extra->need : NULL;
}

/* ---- needs ---- */

static struct master_need *need_new(struct master *m, struct master_file *f,
				    uint16_t from)
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
	n->from = from;
	n->target = n->avoid = MASTER_NOBODY;
	pool_list_add_tail(&m->repair.waiting, &n->link);
	m->repair.nwaiting++;
	return n;
}

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
	pool_list_del(&n->link);
	pool_list_add_tail(&m->repair.waiting, &n->link);
	m->repair.nwaiting++;
}

static void need_free(struct master *m, struct master_need *n)
{
	if (n->ordered)
		unorder(m, n);
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

void master_repair_fini(struct master *m)
{
	while (!pool_list_empty(&m->repair.ordered))
		need_free(m, pool_list_first(&m->repair.ordered,
					     struct master_need, link));
	while (!pool_list_empty(&m->repair.waiting))
		need_free(m, pool_list_first(&m->repair.waiting,
					     struct master_need, link));
}

void master_repair_want(struct master *m, struct master_file *f)
{
	struct master_member *to;

	if (need_of(f))
		return;
	if (master_place_target(&m->members, f, MASTER_NOBODY, &to) ==
	    -ENOSPC) {
		/* A patrol comes back to it. */
		m->repair.unmet = true;
		return;
	}
	if (need_new(m, f, MASTER_NOBODY))
		master_kick(m);
}

/* ---- ordering ---- */

static void mark_ordered(struct master *m, struct master_need *n,
			 struct master_member *to, uint64_t now_ms)
{
	struct master_member *from = master_member_at(&m->members, n->from);

	n->ordered = true;
	n->target = to->index;
	n->bytes = n->file->size;
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
	master_count(m, from ? MC_MOVES : MC_REPLICATIONS);
}

/* One message per order: targets differ, and a store has no feed to know the
 * holders from. */
static void send_replicate(struct master *m, struct master_file *f,
			   struct master_member *to)
{
	Kvpool__Replicate msg = KVPOOL__REPLICATE__INIT;
	struct master_batch *b = master_batch_start();
	Kvpool__NodeInfo infos[MASTER_HOLDERS_MAX], *list[MASTER_HOLDERS_MAX];
	unsigned int i;

	if (master_batch_add(b, &f->item))
		return; /* as if it were lost: ordered again when late */
	for (i = 0; i < f->nholders; i++) {
		const struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (!mb)
			continue;
		list[msg.n_nodes] = &infos[msg.n_nodes];
		master_member_info(mb, list[msg.n_nodes++]);
	}
	msg.nodes = list;
	msg.entries = b->list;
	msg.n_entries = b->n;
	master_session_send(to->session, POOL_MSG_REPLICATE, 0, &msg.base);
	master_batch_reset(b);
}

void master_repair_tell_attrs(struct master *m, struct master_file *f,
			      const struct master_member *except)
{
	unsigned int i;

	for (i = 0; i < f->nholders; i++) {
		struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (mb && mb != except && mb->session && mb->is_store &&
		    !mb->is_mount)
			send_replicate(m, f, mb);
	}
}

static void retry_later(struct master *m, struct master_need *n,
			uint64_t now_ms)
{
	n->avoid = n->target;
	if (n->ordered)
		unorder(m, n);
	master_count(m, MC_COPIES_FAILED);
	/* A move is asked for again by who needs the space. */
	if (++n->tries >= TRIES_MAX || n->from != MASTER_NOBODY) {
		master_count(m, MC_COPIES_GIVEN_UP);
		m->repair.unmet = true;
		need_free(m, n);
		return;
	}
	n->due_ms = now_ms + ((uint64_t)RETRY_MS << (n->tries - 1));
}

/* false: nobody can take this one now, so leave the others waiting, too. */
static bool order(struct master *m, struct master_need *n, uint64_t now_ms)
{
	struct master_member *to = NULL;
	int err = master_place_target(&m->members, n->file, n->avoid, &to);

	if (err == -ENOSPC) {
		m->repair.unmet = true;
		need_free(m, n);
		return true;
	}
	if (err)
		return false;
	mark_ordered(m, n, to, now_ms);
	send_replicate(m, n->file,
		       master_member_at(&m->members, n->target));
	return true;
}

static void give_up_late(struct master *m, uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->repair.ordered) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);
		const struct master_member *to =
			master_member_at(&m->members, n->target);

		if (!to->session || now_ms >= n->due_ms)
			retry_later(m, n, now_ms);
	}
}

void master_repair_run(struct master *m, uint64_t now_ms)
{
	unsigned int left = RUN_MAX;
	struct pool_list *it, *tmp;

	if (!m->ready || m->closing)
		return;
	give_up_late(m, now_ms);
	pool_list_each(it, tmp, &m->repair.waiting) {
		struct master_need *n =
			pool_list_entry(it, struct master_need, link);

		if (!left--)
			break;
		if (n->due_ms > now_ms) {
			/* Not to stand before those that are due. */
			pool_list_del(&n->link);
			pool_list_add_tail(&m->repair.waiting, &n->link);
			continue;
		}
		if (!order(m, n, now_ms))
			break;
	}
}

/* ---- HELD ---- */

/* `from` may drop its copy of f at last, if it is still there. */
static void finish_move(struct master *m, struct master_file *f, uint16_t from)
{
	struct master_member *mb = master_member_at(&m->members, from);
	int pos = master_file_find_holder(f, from);
	char path[POOL_PATH_MAX + 1];
	int len;

	if (pos < 0 || !mb)
		return;
	len = pool_tree_path(&f->e, path, sizeof(path));
	master_file_remove_holder(f, (unsigned int)pos);
	master_session_drop(mb->session, path, (size_t)len, f->gen,
			    KVPOOL__DROP__REASON__EVICTED);
	master_count(m, MC_EVICT_GRANTED);
}

static void held(struct master_session *s, struct master_file *f)
{
	struct master *m = s->m;
	struct master_member *mb = s->member;
	struct master_need *n = need_of(f);
	uint16_t from = MASTER_NOBODY;

	if (n && n->target == mb->index) {
		from = n->from;
		/* `used` tells of it with the next heartbeat; until then it
		 * must not look free. */
		mb->used += n->bytes;
		need_free(m, n);
	}
	if (master_file_add_holder(&m->map, f,
				   master_holder_make(mb->index, mb->phase)) < 0)
		return;
	if (from != MASTER_NOBODY)
		finish_move(m, f, from);
	master_map_touch_file(&m->map, f);
	master_review(m, f);
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
	if (f && f->gen == item->gen) {
		struct master_need *n = need_of(f);

		if (!item->status)
			held(s, f);
		else if (n && n->target == s->member->index)
			retry_later(m, n, pool_now_ms());
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
		return master_session_fail(s, -EPROTO, "too much in one HELD");
	}
	for (i = 0; i < msg->n_items && !s->ended; i++)
		held_item(s, msg->items[i]);
	master_kick(s->m);
}

/* ---- EVICT ---- */

static void grant(struct master_session *s, struct master_file *f,
		  const Kvpool__Meta *meta)
{
	struct master *m = s->m;
	int pos = master_file_find_holder(f, s->member->index);

	master_file_remove_holder(f, (unsigned int)pos);
	master_count(m, MC_EVICT_GRANTED);
	master_session_drop(s, (const char *)meta->path.data, meta->path.len,
			    meta->gen, KVPOOL__DROP__REASON__EVICTED);
	master_map_touch_file(&m->map, f);
	master_review(m, f);
}

static void move(struct master_session *s, struct master_file *f,
		 struct master_member *to)
{
	struct master *m = s->m;
	struct master_need *n = need_new(m, f, s->member->index);

	if (!n)
		return;
	mark_ordered(m, n, to, pool_now_ms());
	send_replicate(m, n->file,
		       master_member_at(&m->members, n->target));
}

static void evict_held(struct master_session *s, struct master_file *f,
		       const Kvpool__Meta *meta)
{
	struct master *m = s->m;
	struct master_member *to = NULL;
	struct pool_rules rules;

	master_file_rules(f, pool_wall_ns(), &rules);
	switch (master_place_evict(&m->members, f, s->member, &rules, m->ready,
				   &to)) {
	case MASTER_GRANT:
		return grant(s, f, meta);
	case MASTER_MOVE:
		/* A copy on its way is waited for, not doubled. */
		if (!need_of(f))
			move(s, f, to);
		return;
	case MASTER_LAST:
		master_count(m, MC_EVICT_LAST);
		master_repair_cancel(m, f);
		return grant(s, f, meta);
	case MASTER_KEEP:
		master_session_drop(s, (const char *)meta->path.data,
				    meta->path.len, meta->gen,
				    KVPOOL__DROP__REASON__KEEP);
		/* fallthrough */
	case MASTER_REFUSE:
		master_count(m, MC_EVICT_REFUSED);
		return;
	}
}

static void evict_item(struct master_session *s, const Kvpool__Meta *meta)
{
	const char *path = (const char *)meta->path.data;
	struct master *m = s->m;
	struct master_file *f;

	if (pool_path_check(path, meta->path.len) || !meta->gen) {
		master_count(m, MC_BAD_ITEMS);
		return;
	}
	f = master_map_file(&m->map, path, meta->path.len);
	if (f && f->gen == meta->gen &&
	    master_file_find_holder(f, s->member->index) >= 0)
		return evict_held(s, f, meta);
	/* Nobody counts on this copy. */
	master_session_drop(s, path, meta->path.len, meta->gen,
			    f && f->gen > meta->gen ?
				    KVPOOL__DROP__REASON__SUPERSEDED :
				    KVPOOL__DROP__REASON__EVICTED);
}

void master_on_evict(struct master_session *s, const Kvpool__Evict *msg)
{
	size_t i;

	if (msg->n_entries > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO, "too much in one EVICT");
	}
	for (i = 0; i < msg->n_entries && !s->ended; i++)
		evict_item(s, msg->entries[i]);
	master_kick(s->m);
}
