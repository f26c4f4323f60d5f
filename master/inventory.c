/*
 * INVENTORY: the objects that a node holds, listed after each join. The map
 * takes objects that are new to it, and newer versions. The node must drop
 * deleted and superseded ones. On ENOMEM the session ends, and the node joins
 * and lists its objects again. Invalid entries are ignored; the node keeps
 * these objects.
 *
 * For names outside of its namespaces, and for files of users for whom its
 * certificate does not speak (may.h), a node may only confirm entries of the
 * map.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/account.h"
#include "master/impl.h"
#include "master/may.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

struct item {
	struct master_session *s;
	struct master *m;
	const Kvpool__Meta *meta;
	const char *path;
	size_t len;
	uint64_t wall_ns;
};

static void drop(struct item *it, Kvpool__Drop__Reason reason)
{
	master_count(it->m, MC_INVENTORY_DROPPED);
	master_session_drop(it->s, it->path, it->len, it->meta->gen, reason);
}

static int add_sender(struct item *it, struct master_file *f)
{
	const struct master_member *mb = it->s->member;

	return master_file_add_holder(&it->m->map, f,
				      master_holder_make(mb->index, mb->phase));
}

/* 0 or -ENOMEM. */
static int adopt_attrs(struct item *it, struct master_file *f)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules = { 0 };
	bool given = it->meta->gen == f->gen;
	uint32_t was = f->uid;
	struct master_attrs attrs;

	/* Not strict: rules that this version does not know are ignored. */
	if (master_meta_xattrs(it->meta, false, false, it->wall_ns, &xattrs,
			       &rules) == -ENOMEM)
		return -ENOMEM;
	if (master_extra_set(&f->extra, xattrs, &rules)) {
		pool_xattrs_free(xattrs);
		return -ENOMEM;
	}
	master_meta_attrs(it->meta, &attrs);
	f->mode = attrs.mode;
	f->uid = attrs.uid;
	f->gid = attrs.gid;
	master_file_set_mtime(&it->m->map, f, attrs.mtime_ns);
	f->attr_gen = it->meta->attr_gen;
	if (given)
		(void)master_map_disown(&it->m->map, f, was, it->wall_ns);
	else
		master_account_replaced(&it->m->map, f, was, f->gen, f->uid,
					it->wall_ns);
	master_map_account(&it->m->map, &f->e);
	return 0;
}

/* If a former master issued the item's generation to a repeated publication
 * (which has seen_gen), stores it in `issued`. Then may_be_repeated in ops.c
 * can distinguish that repetition from a conflict. */
static void note_repeated(struct item *it)
{
	if (it->meta->seen_gen &&
	    pool_gen_epoch(it->meta->gen) < it->m->epoch)
		(void)master_issued_add(&it->m->issued, it->path, it->len,
					it->meta->gen, it->meta->seen_gen);
}

/* f is new, or older than the item: f becomes the item's version, with the
 * sender as its only holder. 0 or -ENOMEM. */
static int adopt(struct item *it, struct master_file *f)
{
	if (adopt_attrs(it, f))
		return -ENOMEM;
	if (f->gen) {
		master_repair_cancel(it->m, f);
		master_drop_holders(it->m, f, it->s->member,
				    KVPOOL__DROP__REASON__SUPERSEDED);
		master_file_clear_holders(f);
		f->had_older = 1;
	}
	f->gen = it->meta->gen;
	master_file_set_size(&it->m->map, f, it->meta->size);
	memcpy(f->sum, it->meta->sum.data, MASTER_SUM_SIZE);
	(void)add_sender(it, f); /* the first holder needs no memory */
	note_repeated(it);
	return 0;
}

/* The item is f's version: adds the sender as a holder. If the attributes
 * differ, the newer ones win. 0 or -ENOMEM. */
static int same_object(struct item *it, struct master_file *f)
{
	int rc = add_sender(it, f);

	if (rc == -ENOMEM)
		return rc;
	if (rc == 1)
		master_map_touch_file(&it->m->map, f);
	note_repeated(it);
	if (it->meta->attr_gen == f->attr_gen)
		return 0;
	if (it->meta->attr_gen < f->attr_gen) {
		master_repair_tell_attrs(it->m, f, NULL);
		return 0;
	}
	if (adopt_attrs(it, f))
		return -ENOMEM;
	master_map_touch_file(&it->m->map, f);
	master_repair_tell_attrs(it->m, f, it->s->member);
	return 0;
}

static bool same_content(const struct item *it, const struct master_file *f)
{
	return f->size == it->meta->size &&
	       !memcmp(f->sum, it->meta->sum.data, MASTER_SUM_SIZE);
}

static int item_known(struct item *it, struct master_file *f)
{
	int err = 0;

	if (it->meta->gen < f->gen) {
		f->had_older = 1;
		master_account_replaced(&it->m->map, f, it->meta->uid,
					it->meta->gen, f->uid, it->wall_ns);
		drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
		return 0;
	}
	if (it->meta->gen > f->gen) {
		err = adopt(it, f);
		if (!err)
			master_map_touch_file(&it->m->map, f);
	} else if (!same_content(it, f)) {
		/* A generation has one content. Only a damaged store, or two
		 * masters on one pool, can cause this. */
		master_count(it->m, MC_INVENTORY_CONFLICT);
		pool_warn_limited("node %s: %.*s: same generation, different "
				  "content: dropped there",
				  it->s->member->name, (int)it->len, it->path);
		drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
		return 0;
	} else {
		err = same_object(it, f);
	}
	if (!err)
		master_review(it->m, f);
	return err;
}

/* Was the item deleted, or replaced by a version that has been removed since?
 */
static bool is_dead(const struct item *it)
{
	struct master_map *map = &it->m->map;
	const struct master_grave *g =
		master_map_grave(map, it->path, it->len);

	return (g && (g->gen >= it->meta->gen ||
		      g->last_gen > it->meta->gen)) ||
	       master_map_former_dead(map, it->path, it->len, it->meta->uid,
				      it->meta->gen);
}

/*
 * Could the name have been deleted while the sender was away, and the tombstone
 * be forgotten? Exception: if no other node has sent an inventory (the whole
 * pool restarts), there is no better source.
 */
static bool may_be_dead(const struct item *it)
{
	const struct master_session *s = it->s;
	uint64_t wall_ns, seq;

	master_account_lost(&it->m->map, it->path, it->len, it->meta->uid,
			    &wall_ns, &seq);
	if (!wall_ns || s->only_source || s->left_wall_ns > wall_ns)
		return false;
	return !s->saw_seq || !seq || s->saw_seq < seq;
}

static int item_unknown(struct item *it)
{
	struct master_map *map = &it->m->map;
	struct master_attrs attrs;
	struct master_file *f;
	bool made;
	int err;

	if (is_dead(it)) {
		drop(it, KVPOOL__DROP__REASON__DELETED);
		return 0;
	}
	if (may_be_dead(it)) {
		it->s->nrefused++;
		master_count(it->m, MC_INVENTORY_REFUSED);
		drop(it, KVPOOL__DROP__REASON__DELETED);
		return 0;
	}
	master_meta_attrs(it->meta, &attrs);
	attrs.gen = it->meta->gen;
	err = master_map_make_file(map, it->path, it->len, &attrs, &f, &made);
	if (err == -ENOMEM)
		return err;
	if (err) { /* a parent is a file, or the name is a directory now */
		drop(it, KVPOOL__DROP__REASON__SUPERSEDED);
		return 0;
	}
	err = adopt(it, f);
	if (err) {
		master_map_remove_file(map, f, 0, it->wall_ns);
		return err;
	}
	master_map_touch_file(map, f);
	master_review(it->m, f);
	return 0;
}

/* The sender has evicted a newer version than f: no node may read f any more.
 * Removing f leaves a tombstone for the versions below the evicted one. */
static void make_obsolete(struct item *it, struct master_file *f)
{
	master_repair_cancel(it->m, f);
	master_drop_holders(it->m, f, NULL, KVPOOL__DROP__REASON__SUPERSEDED);
	master_file_clear_holders(f);
	f->gen = it->meta->gen;
	f->had_older = f->evicted = 1;
	(void)master_review(it->m, f);
}

/* An entry of Inventory.gone: the sender held this version, and evicted it
 * while there was no master. 0 or -ENOMEM. */
static int sender_evicted(struct item *it, struct master_file *f)
{
	int err = 0;

	if (f && f->gen < it->meta->gen) {
		make_obsolete(it, f);
	} else if (f && f->gen == it->meta->gen) {
		/* Another node holds it. The sender did not know that and does
		 * not show the name: have the feed send it. */
		master_map_touch_file(&it->m->map, f);
	} else if (!f && !is_dead(it)) {
		err = master_map_add_evicted(&it->m->map, it->path, it->len,
					     it->meta->uid, it->meta->gen,
					     it->wall_ns);
		if (!err)
			master_keep_tomb(it->m, master_map_grave_below(
							&it->m->map, it->path,
							it->len));
	}
	return err;
}

/* The entry is of an epoch above ours. JOIN reports that already (seen_epoch),
 * except from a node of an older version. */
static void epoch_ahead(struct master_session *s, const Kvpool__Meta *meta)
{
	uint64_t of = pool_gen_epoch(meta->gen),
		 attr = pool_gen_epoch(meta->attr_gen);
	char text[MASTER_REMEDY_MAX];

	of = attr > of ? attr : of;
	master_recover_remedy(s->m, of, text);
	if (!master_recover_raise(s->m, of)) /* which ends all sessions */
		master_session_fail(s, -ESTALE, text);
}

/*
 * An object outside of the sender's namespaces, or of a user for whom it does
 * not speak: another session must have listed or published it. 0 or -ENOMEM.
 */
static int item_outside(struct item *it, struct master_file *f, bool held)
{
	int rc;

	if (!held)
		return 0;
	if (!f || f->gen != it->meta->gen || !same_content(it, f)) {
		if (!it->m->ready) {
			it->s->nunjudged++;
			return 0;
		}
		master_count(it->m, MC_NOT_ALLOWED);
		drop(it, KVPOOL__DROP__REASON__DELETED);
		return 0;
	}
	rc = add_sender(it, f);
	if (rc == -ENOMEM)
		return rc;
	if (rc == 1)
		master_map_touch_file(&it->m->map, f);
	if (it->meta->attr_gen != f->attr_gen)
		master_repair_tell_attrs(it->m, f, NULL);
	master_review(it->m, f);
	return 0;
}

void master_inventory_again(struct master *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (s->nunjudged && !s->ended)
			master_session_end(s, "it must list its copies again, "
					      "now that the master knows those "
					      "of other nodes");
	}
}

/* No master issues as many generations in one epoch. A forged one must not use
 * up the others: generations would begin again, below those issued. */
#define SEQ_UNISSUED (UINT64_C(1) << (POOL_GEN_SEQ_BITS - 1))

static bool is_forged(const struct item *it, uint64_t gen)
{
	uint64_t first = it->m->epoch << POOL_GEN_SEQ_BITS;

	return gen > (first | it->m->gen_seq) && gen >= (first | SEQ_UNISSUED);
}

/* One entry of the inventory. held: of Inventory.entries, else of .gone. 0;
 * -ESTALE: it is of an epoch above ours; -ENOMEM. */
static int judge(struct item *it, bool held)
{
	uint64_t now = it->m->epoch << POOL_GEN_SEQ_BITS | it->m->gen_seq;
	struct master_file *f;

	master_count(it->m, MC_INVENTORY);
	if (master_meta_check(it->meta, held) || !it->meta->gen) {
		master_count(it->m, MC_BAD_ITEMS);
		pool_warn_limited("node %s: invalid entry in its inventory: "
				  "ignored",
				  it->s->member->name);
		return 0;
	}
	f = master_map_file(&it->m->map, it->path, it->len);
	if (!master_may_change(it->s, it->path, it->len) ||
	    !master_may_speak_for(it->s, it->meta->uid))
		return item_outside(it, f, held);
	if (pool_gen_epoch(it->meta->gen) > it->m->epoch ||
	    pool_gen_epoch(it->meta->attr_gen) > it->m->epoch)
		return -ESTALE;
	if (is_forged(it, it->meta->gen) || is_forged(it, it->meta->attr_gen)) {
		master_count(it->m, MC_BAD_ITEMS);
		return 0;
	}
	if (it->meta->gen > now)
		it->m->gen_seq += it->meta->gen - now;
	now = it->m->epoch << POOL_GEN_SEQ_BITS | it->m->gen_seq;
	if (it->meta->attr_gen > now)
		it->m->gen_seq += it->meta->attr_gen - now;
	return !held ? sender_evicted(it, f) :
	       f     ? item_known(it, f) : item_unknown(it);
}

/* The last INVENTORY has been received. */
static void complete(struct master_session *s)
{
	struct master *m = s->m;
	struct master_member *mb = s->member;

	if (s->nrefused)
		pool_warn("node %s: %llu files that only it held are dropped: "
			  "they may have been deleted while it was away, by "
			  "users who deleted more than the master can remember",
			  mb->name,
			  (unsigned long long)s->nrefused);
	mb->inventoried = true;
	mb->expected = false;
	/* Copies that it has not listed are invalid now, and it may be a target
	 * of copies. */
	master_patrol_start(m);
	master_check_ready(m);
}

static void take(struct master_session *s, const Kvpool__Inventory *msg)
{
	struct item it = { .s = s, .m = s->m, .wall_ns = pool_wall_ns() };
	size_t i, n = msg->n_gone + msg->n_entries;
	int err;

	if (s->member->inventoried || n > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO,
					   s->member->inventoried ?
						   "a second INVENTORY" :
						   "INVENTORY too long");
	}
	master_answers_welcomed(s->member); /* INVENTORY follows WELCOME */
	for (i = 0; i < n; i++) {
		it.meta = i < msg->n_gone ? msg->gone[i] :
					    msg->entries[i - msg->n_gone];
		it.path = (const char *)it.meta->path.data;
		it.len = it.meta->path.len;
		err = judge(&it, i >= msg->n_gone);
		if (err == -ESTALE)
			return epoch_ahead(s, it.meta);
		if (err)
			return master_session_fail(
				s, err, "not enough memory for the inventory");
		if (s->ended)
			return;
	}
	if (msg->last)
		complete(s);
	master_kick(s->m);
}

static void take_charged(struct master_session *s, const Kvpool__Inventory *msg)
{
	struct master_member *mb = s->member;
	uint64_t cost = master_keep_cost(s->m);

	take(s, msg);
	master_quantum_records(mb, master_keep_cost(s->m) - cost,
			       master_keep_mark(s->m));
}

/* ---- what waits for etcd ---- */

/* Each entry of Inventory.gone may be a record in the state. A message of many
 * is judged in parts, and the rest of the inventory waits in the socket. */
struct part {
	struct pool_list link; /* session.inventory */
	size_t len;
	uint8_t payload[];
};

static bool defer_part(struct master_session *s, const Kvpool__Inventory *part)
{
	size_t len = kvpool__inventory__get_packed_size(part);
	struct part *p = malloc(sizeof(*p) + len);

	if (!p)
		return false;
	p->len = len;
	kvpool__inventory__pack(part, p->payload);
	pool_list_add_tail(&s->inventory, &p->link);
	s->inventory_bytes += len;
	return true;
}

static bool defer(struct master_session *s, const Kvpool__Inventory *msg)
{
	Kvpool__Inventory part = KVPOOL__INVENTORY__INIT, last = *msg;

	while (last.n_gone > MASTER_UNSETTLED_MAX) {
		part.gone = last.gone;
		part.n_gone = MASTER_UNSETTLED_MAX;
		if (!defer_part(s, &part))
			return false;
		last.gone += part.n_gone;
		last.n_gone -= part.n_gone;
	}
	return defer_part(s, &last);
}

static void take_first(struct master_session *s)
{
	struct part *p = pool_list_first(&s->inventory, struct part, link);
	Kvpool__Inventory *msg =
		kvpool__inventory__unpack(NULL, p->len, p->payload);

	pool_list_del(&p->link);
	s->inventory_bytes -= p->len;
	free(p);
	if (!msg)
		return master_session_fail(
			s, -ENOMEM, "not enough memory for the inventory");
	take_charged(s, msg);
	kvpool__inventory__free_unpacked(msg, NULL);
}

static void take_quantum(struct master_session *s)
{
	while (!s->ended && !pool_list_empty(&s->inventory) &&
	       master_quantum_has(s->m, s->member, MASTER_UNSETTLED_MAX))
		take_first(s);
	if (!s->ended)
		pool_conn_hold(s->conn, !pool_list_empty(&s->inventory));
}

void master_on_inventory(struct master_session *s, const Kvpool__Inventory *msg)
{
	if (pool_list_empty(&s->inventory) &&
	    (!s->m->etcd_state ||
	     (msg->n_gone <= MASTER_UNSETTLED_MAX &&
	      master_quantum_has(s->m, s->member, MASTER_UNSETTLED_MAX))))
		return take_charged(s, msg);
	master_count(s->m, MC_INVENTORY_PARTS);
	if (!defer(s, msg))
		return master_session_fail(
			s, -ENOMEM, "not enough memory for the inventory");
	take_quantum(s);
}

void master_inventory_quanta(struct master *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (!pool_list_empty(&s->inventory))
			take_quantum(s);
	}
}

void master_inventory_free(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->inventory)
		free(pool_list_entry(it, struct part, link));
	pool_list_init(&s->inventory);
	s->inventory_bytes = 0;
}
