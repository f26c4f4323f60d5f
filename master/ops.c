/*
 * OPS: changes that nodes request. Each is answered, in order; an invalid one
 * gets -EINVAL and the others are executed.
 *
 * On ENOMEM the session ends: the node joins again and sends this change and
 * those after it again, in order. An error instead would lose changes that have
 * already succeeded on the node's mount, such as an unlink.
 *
 * Conditions. A change may have been made while the node was cut off from the
 * master (Op.queued), or may have been executed by a former master already
 * (Op.again). Such a conditional change must not overwrite newer changes of
 * other nodes; if it would, it is refused with -ESTALE. It names the
 * generations that its issuer knew of (Meta.base_gen, Meta.seen_gen), and the
 * contents that are no conflict although they are newer (Op.before). UNLINK is
 * conditional whenever it carries a generation or seen_gen.
 *
 * A change outside of the sender's namespaces, or for a user for whom its
 * certificate does not speak, gets -EACCES (may.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/account.h"
#include "master/impl.h"
#include "master/may.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/model/root.h"

struct op {
	struct master_session *s;
	struct master *m;
	const Kvpool__Meta *meta;
	const char *path; /* of meta */
	size_t len;
	/* fields of Kvpool__Op */
	uint32_t set;
	const char *remove; /* "": none */
	bool queued;
	bool again;
	uint64_t ticket;
	uint32_t by; /* uid, or MASTER_UID_ANYONE */
	Kvpool__Content *const *before;
	size_t n_before;
	const Kvpool__Content *made_from; /* or NULL */
	uint64_t wall_ns;
	Kvpool__OpResult *result;
};

static void result_seq(struct op *op, const struct master_item *i)
{
	op->result->seq = i->seq;
}

/* ---- conditions ---- */

static bool has_content(const struct master_file *f, const Kvpool__Content *c)
{
	return c->sum.len == MASTER_SUM_SIZE && c->size == f->size &&
	       !memcmp(c->sum.data, f->sum, MASTER_SUM_SIZE);
}

static bool is_made_from(const struct op *op, const struct master_file *f)
{
	return op->made_from && has_content(f, op->made_from);
}

/* Is f's content in Op.before: what the change was made from, or what the
 * sender may have published itself without receiving the result? */
static bool is_expected(const struct op *op, const struct master_file *f)
{
	size_t i;

	for (i = 0; i < op->n_before; i++)
		if (has_content(f, op->before[i]))
			return true;
	return false;
}

/* Was gen issued to an earlier conditional change of this session? */
static bool issued_here(const struct op *op, uint64_t gen)
{
	uint64_t from;

	return master_issued_find(&op->s->issued, op->path, op->len, gen,
				  &from);
}

/*
 * Was the name deleted after `gen`, by a change other than the sender's earlier
 * ones? (A name that was evicted or lost, and not deleted, has a tombstone
 * below its last generation.)
 */
static bool deleted_after(const struct op *op, uint64_t gen)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	if (!g || !g->tomb || g->gen <= gen)
		return false;
	if (g->blind)
		return g->by_run != master_blind_id(op->s->member);
	if (g->gen < g->last_gen)
		return false;
	return !master_answers_earlier(&op->s->member->answers, g->by_run,
				       g->by_ticket, op->ticket) &&
	       !issued_here(op, g->gen);
}

/*
 * May `now`, the name's version, be a second execution of a change that the
 * sender knows of, since it knows of version gen? Then `now` is no conflict.
 * The first execution made gen or an older version: by a former master, or by
 * this one in a session of the issuer's former process.
 *
 * So the change that made `now` must be one that may have been executed before
 * (Op.again), and its issuer must have seen only versions older than gen (from
 * < gen). Otherwise the sender did not know of that change.
 */
static bool may_be_repeated(const struct op *op, uint64_t now, uint64_t gen)
{
	uint64_t from;

	return master_issued_find(&op->m->issued, op->path, op->len, now,
				  &from) &&
	       from < gen;
}

/* Is `now`, the name's last version, newer than gen, and neither from the
 * sender's own change nor from one that it knew of? */
static bool is_conflict(const struct op *op, uint64_t now, uint64_t gen)
{
	return now > gen && !issued_here(op, now) &&
	       !may_be_repeated(op, now, gen);
}

/*
 * Is the sender a holder of f since an earlier session, and its copy not
 * confirmed since it joined? Then f's version is taken for the sender's own,
 * published in that session without an ack: its inventory does not list it, and
 * the sender did not know of it when it made the change.
 */
static bool from_earlier_session(const struct op *op,
				 const struct master_file *f)
{
	const struct master_member *mb = op->s->member;
	int pos = master_file_find_holder(f, mb->index);

	return pos >= 0 && master_file_holders(f)[pos] !=
				   master_holder_make(mb->index, mb->phase);
}

/* Is f's version a conflict for a change made knowing of gen? */
static bool has_conflict(const struct op *op, const struct master_file *f,
			 uint64_t gen)
{
	return !is_expected(op, f) && !from_earlier_session(op, f) &&
	       is_conflict(op, f->gen, gen);
}

/* As is_expected, for the last content of a removed name. */
static bool last_was_expected(const struct op *op, const struct master_grave *g)
{
	size_t i;

	for (i = 0; i < op->n_before; i++) {
		const ProtobufCBinaryData *sum = &op->before[i]->sum;

		if (sum->len == MASTER_SUM_SIZE &&
		    !memcmp(sum->data, &g->last_sum, sizeof(g->last_sum)))
			return true;
	}
	return false;
}

/* Was the name evicted with a version that conflicts? (A version lost because
 * its holders died does not count: it may be the sender's own, whose result the
 * sender has not received.) */
static bool evicted_after(const struct op *op, uint64_t gen)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	return g && g->evicted && g->gen < g->last_gen &&
	       !last_was_expected(op, g) && is_conflict(op, g->last_gen, gen);
}

/* The error for a change that conflicts with f (or NULL). -EIO if f has the
 * content that the change was made from: that content has been published once
 * more, perhaps before and perhaps after the change. The order is unknown, and
 * the node's next fsync must report it. */
static int refusal(const struct op *op, const struct master_file *f)
{
	return f && is_made_from(op, f) ? -EIO : -ESTALE;
}

/* The newest generation that the issuer knew of; 0: not given. */
static uint64_t known_gen(const struct op *op)
{
	uint64_t base = op->meta->base_gen, seen = op->meta->seen_gen;

	return base > seen ? base : seen;
}

/*
 * Must a conditional change be refused, because there was a version or a
 * deletion newer than what it was made from, and than all that its node knew
 * of?
 *
 * A queued change that creates a name (no base_gen) is not affected by an
 * earlier deletion, as it overwrites nothing. A version that a node brings back
 * after it was away keeps its old generation, so it is not newer.
 */
static bool is_overtaken(const struct op *op)
{
	uint64_t known = known_gen(op);
	const struct master_file *f =
		master_map_file(&op->m->map, op->path, op->len);

	if (!op->queued && !op->again)
		return false;
	if (f)
		return has_conflict(op, f, known);
	return (known && evicted_after(op, known)) ||
	       ((op->meta->base_gen || op->again) && deleted_after(op, known));
}

/* Remember that gen was issued to this change, if it is conditional. */
static void record_issued(struct op *op, uint64_t gen)
{
	uint64_t from = known_gen(op);

	if (!op->again && !op->queued)
		return;
	/* A change that needed the lost entry may be refused later. */
	if (!master_issued_add(&op->s->issued, op->path, op->len, gen, from))
		master_count(op->m, MC_ISSUED_FORGOTTEN);
	if (op->again)
		(void)master_issued_add(&op->m->issued, op->path, op->len, gen,
					from);
}

/* ---- quota ---- */

/* May uid have so many more directories, and these xattrs instead of old's? */
static int admit(const struct op *op, uint32_t uid, size_t dirs,
		 const struct master_extra *old,
		 const struct pool_xattrs *xattrs)
{
	size_t had = old ? pool_xattrs_size(old->xattrs) : 0,
	       size = pool_xattrs_size(xattrs);

	return master_limits_names(op->m, uid, dirs,
				   size > had ? size - had : 0);
}

/* ---- PUBLISH ---- */

/* The user who published it: the one who renamed it, else the file's owner. */
static uint32_t publisher(const struct op *op)
{
	return op->by == MASTER_UID_ANYONE ? op->meta->uid : op->by;
}

/* Replace f's version by the sender's, which becomes the only holder. */
static int replace_version(struct op *op, struct master_file *f,
			   struct pool_xattrs *xattrs,
			   const struct pool_rules *rules)
{
	struct master_member *mb = op->s->member;
	uint32_t was = f->uid;
	struct master_attrs attrs;

	if (master_extra_set(&f->extra, xattrs, rules))
		return -ENOMEM;
	if (f->gen) {
		master_repair_cancel(op->m, f);
		master_drop_holders(op->m, f, mb,
				    KVPOOL__DROP__REASON__SUPERSEDED);
	}
	/* A node that is away may hold base_gen, unknown to this map. */
	f->had_older |= f->gen || op->meta->base_gen;
	master_file_clear_holders(f);
	/* Cannot fail: the entry has room for MASTER_HOLDERS_INLINE. */
	master_file_add_holder(&op->m->map, f,
			       master_holder_make(mb->index, mb->phase));
	master_meta_attrs(op->meta, &attrs);
	f->mode = attrs.mode;
	f->uid = attrs.uid;
	f->gid = attrs.gid;
	master_file_set_mtime(&op->m->map, f, attrs.mtime_ns);
	master_account_replaced(&op->m->map, f, was, f->gen, publisher(op),
				op->wall_ns);
	f->gen = master_next_gen(op->m);
	f->attr_gen = 0;
	master_file_set_size(&op->m->map, f, op->meta->size);
	memcpy(f->sum, op->meta->sum.data, MASTER_SUM_SIZE);
	master_map_account(&op->m->map, &f->e);
	return 0;
}

/* Does the name have this content already? An engine put it again, or a node
 * repeats a PUBLISH whose result it did not receive. */
static bool same_content(const struct op *op, const struct master_file *f,
			 const struct pool_xattrs *xattrs)
{
	struct master_attrs attrs;

	master_meta_attrs(op->meta, &attrs);
	return f->size == op->meta->size &&
	       !memcmp(f->sum, op->meta->sum.data, MASTER_SUM_SIZE) &&
	       f->mode == attrs.mode && f->uid == attrs.uid &&
	       f->gid == attrs.gid &&
	       pool_xattrs_equal(f->extra ? f->extra->xattrs : NULL, xattrs);
}

/*
 * Add the sender as a holder. The ack promises that the object is safe, but the
 * earlier holders may all have died within the last heartbeats. A store's own
 * copy counts, so it is safe. A client's does not: the copies of stores stop
 * counting until one of them confirms its copy, and the client keeps its own
 * until then. False: no further holder can be added.
 */
static bool add_holder(struct op *op, struct master_file *f)
{
	struct master_member *mb = op->s->member;
	unsigned int i;

	if (master_file_add_holder(&op->m->map, f,
				   master_holder_make(mb->index, mb->phase)) <
	    0)
		return false;
	for (i = 0; !mb->is_store && i < f->nholders; i++) {
		const struct master_member *other = master_member_at(
			&op->m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (other && other->is_store)
			master_file_doubt_holder(f, i);
	}
	/* A queued DROP is about an earlier copy: it must go out before the
	 * ack. */
	master_session_flush_drops(op->s);
	return true;
}

static void finish_publish(struct op *op, struct master_file *f)
{
	master_map_touch_file(&op->m->map, f);
	op->result->gen = f->gen;
	record_issued(op, f->gen);
	master_review_put(op->m, f, op->s->member);
	result_seq(op, &f->item);
}

static int op_publish(struct op *op)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	struct master_attrs attrs;
	struct master_file *f;
	uint64_t old_gen;
	size_t missing;
	bool made;
	int err;

	master_count(op->m, MC_PUBLISH);
	if (master_meta_check(op->meta, true))
		return -EINVAL;
	err = master_meta_xattrs(op->meta, false, false, op->wall_ns, &xattrs,
				 &rules);
	if (err)
		return err;
	f = master_map_file(&op->m->map, op->path, op->len);
	if (f && same_content(op, f, xattrs) && add_holder(op, f)) {
		pool_xattrs_free(xattrs);
		if (op->meta->mtime_ns > f->mtime_ns)
			master_file_set_mtime(&op->m->map, f,
					      op->meta->mtime_ns);
		finish_publish(op, f);
		return 0;
	}
	if (is_overtaken(op)) {
		pool_xattrs_free(xattrs);
		return refusal(op, f);
	}
	master_meta_attrs(op->meta, &attrs);
	/* The directories above it are made, too. */
	missing = f ? 1 : pool_tree_missing(&op->m->map.tree, op->path,
					    op->len);
	err = admit(op, attrs.uid, missing ? missing - 1 : 0,
		    f ? f->extra : NULL, xattrs);
	if (!err)
		err = master_map_make_file(&op->m->map, op->path, op->len,
					   &attrs, &f, &made);
	if (err) {
		pool_xattrs_free(xattrs);
		return err;
	}
	old_gen = f->gen;
	err = replace_version(op, f, xattrs, &rules);
	if (err) {
		pool_xattrs_free(xattrs);
		if (made)
			master_map_remove_file(&op->m->map, f, 0, op->wall_ns);
		return err;
	}
	if (f->was_deleted && known_gen(op) < old_gen)
		master_keep_blind(op->m, op->path, op->len, f->uid,
				  op->s->member, old_gen);
	finish_publish(op, f);
	return 0;
}

/* ---- UNLINK ---- */

/* The name's tombstone covers gen now: note who deleted it, put it in the state
 * and in the result. */
static void record_tomb(struct op *op, uint64_t gen)
{
	struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	if (g->gen == gen) {
		g->by_run = op->s->member->answers.run;
		g->by_ticket = op->ticket;
		master_map_charge(&op->m->map, g,
				  master_account_of(&op->m->map, op->path,
							op->len, g->uid,
							op->by));
	}
	master_keep_tomb(op->m, g);
	op->result->gen = gen;
	op->result->seq = op->m->map.feed.seq;
	record_issued(op, gen);
}

/*
 * The generation up to which an UNLINK of any generation deletes a name that is
 * not there: the newest that the sender knew of, or a newer one that it may
 * have published itself and that has been removed since. 0: a tombstone covers
 * it already.
 */
static uint64_t unlink_gen(const struct op *op)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);
	uint64_t gen = op->meta->seen_gen;

	if (g && g->last_gen > gen && last_was_expected(op, g))
		gen = g->last_gen;
	return g && g->tomb && g->gen >= gen ? 0 : gen;
}

/*
 * UNLINK of a name that is not in the map. Copies may exist nevertheless: on a
 * node that is away, or, after a start, on one whose inventory has not come
 * yet.
 */
static int unlink_missing(struct op *op)
{
	uint64_t gen = op->meta->gen;
	int err;

	if (master_map_dir(&op->m->map, op->path, op->len))
		return -EISDIR;
	if (!gen && op->m->ready)
		gen = unlink_gen(op);
	if (!gen && op->m->ready) {
		/* The result covers all generations issued so far. It must not
		 * cover later ones: the sender may receive one, by REPLICATE,
		 * before it has this result. */
		op->result->gen = op->m->epoch << POOL_GEN_SEQ_BITS |
				  op->m->gen_seq;
		return 0;
	}
	/* If gen has not been issued yet: the next generation instead. */
	if (!gen || gen > (op->m->epoch << POOL_GEN_SEQ_BITS |
			   op->m->gen_seq))
		gen = master_next_gen(op->m);
	err = master_map_add_tomb(&op->m->map, op->path, op->len,
				  op->meta->uid, gen, op->wall_ns);
	if (err)
		return err;
	record_tomb(op, gen);
	return 0;
}

/*
 * Is f newer than what the UNLINK deletes? With a generation, it deletes that
 * version and all before it. One of these may have a newer generation from this
 * master: its publisher did not get the former master's ack, and published it
 * again.
 */
static bool outlives_unlink(const struct op *op, const struct master_file *f)
{
	uint64_t gen = op->meta->gen;

	if (!gen)
		return op->meta->seen_gen &&
		       has_conflict(op, f, op->meta->seen_gen);
	return f->gen > gen && !is_expected(op, f) &&
	       !may_be_repeated(op, f->gen, gen);
}

static int op_unlink(struct op *op)
{
	master_holder held[MASTER_HOLDERS_MAX];
	struct master_file *f;
	uint64_t gen, held_gen;
	unsigned int nheld;
	int err;

	master_count(op->m, MC_UNLINK);
	if (master_meta_check(op->meta, false))
		return -EINVAL;
	f = master_map_file(&op->m->map, op->path, op->len);
	if (!f)
		return unlink_missing(op);
	if (outlives_unlink(op, f))
		return refusal(op, f);
	master_repair_cancel(op->m, f);
	held_gen = f->gen;
	nheld = f->nholders;
	memcpy(held, master_file_holders(f), nheld * sizeof(held[0]));
	gen = master_next_gen(op->m);
	err = master_map_remove_file(&op->m->map, f, gen, op->wall_ns);
	if (err)
		return err;
	record_tomb(op, gen);
	master_drop_copies(op->m, op->path, op->len, held_gen, held, nheld,
			   KVPOOL__DROP__REASON__DELETED);
	return 0;
}

/* ---- directories ---- */

static int set_dir_extra(struct op *op, struct master_dir *d)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	int err;

	err = master_meta_xattrs(op->meta, true, true, op->wall_ns, &xattrs,
				 &rules);
	if (err)
		return err;
	err = master_extra_set(&d->extra, xattrs, &rules);
	if (err)
		pool_xattrs_free(xattrs);
	/* Rules are inherited: review everything below. */
	else if (d->d.nchildren)
		master_patrol_start(op->m);
	return err;
}

/* Mark d as made explicitly, and put it in the state. */
static void keep_made(struct op *op, struct master_dir *d)
{
	if (!d->made)
		op->m->ndirs_made++;
	d->made = 1;
	master_keep_dir(op->m, d);
}

static int op_mkdir(struct op *op)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	struct master_attrs attrs;
	struct master_dir *d;
	bool made;
	int err;

	master_count(op->m, MC_MKDIR);
	if (master_meta_check(op->meta, false))
		return -EINVAL;
	err = master_meta_xattrs(op->meta, true, true, op->wall_ns, &xattrs,
				 &rules);
	if (err)
		return err;
	master_meta_attrs(op->meta, &attrs);
	d = master_map_dir(&op->m->map, op->path, op->len);
	if (!d || !d->made)
		err = admit(op, attrs.uid,
			    pool_tree_missing(&op->m->map.tree, op->path,
					      op->len),
			    d ? d->extra : NULL, xattrs);
	pool_xattrs_free(xattrs);
	if (err)
		return err;
	err = master_map_make_dir(&op->m->map, op->path, op->len, &attrs, &d,
				  &made);
	if (err)
		return err;
	/* If it was made explicitly before, that is success. If it exists only
	 * because of names below it, it takes the given attributes. */
	if (!made && d->made) {
		/* The sender shows its own attributes until the feed has
		 * corrected them. */
		master_map_touch_dir(&op->m->map, d);
		result_seq(op, &d->item);
		return 0;
	}
	err = set_dir_extra(op, d);
	if (err)
		return err;
	d->mode = attrs.mode;
	d->uid = attrs.uid;
	d->gid = attrs.gid;
	d->mtime_ns = attrs.mtime_ns;
	master_map_account(&op->m->map, &d->d.e);
	master_map_touch_dir(&op->m->map, d);
	keep_made(op, d);
	result_seq(op, &d->item);
	return 0;
}

static int op_rmdir(struct op *op)
{
	struct master_dir *d;
	bool kept;
	int err;

	master_count(op->m, MC_RMDIR);
	if (master_meta_check(op->meta, false))
		return -EINVAL;
	d = master_map_dir(&op->m->map, op->path, op->len);
	if (!d)
		return master_map_file(&op->m->map, op->path, op->len) ?
			       -ENOTDIR :
			       -ENOENT;
	kept = d->made;
	err = master_map_remove_dir(&op->m->map, d, op->wall_ns);
	if (err == -ENOTEMPTY) /* the feed restores it at the sender's mount */
		master_map_touch_dir(&op->m->map, d);
	if (err)
		return err;
	if (kept) {
		op->m->ndirs_made--;
		master_keep_rmdir(op->m, op->path, op->len);
	}
	op->result->seq = op->m->map.feed.seq;
	return 0;
}

/* ---- SETATTR ---- */

#define SET_KNOWN                                                          \
	(POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID | POOL_SET_MTIME | \
	 POOL_SET_XATTRS | POOL_SET_XATTR_EACH)

static void set_attrs(const struct op *op, uint16_t *mode, uint32_t *uid,
		      uint32_t *gid, uint64_t *mtime_ns)
{
	struct master_attrs a;

	master_meta_attrs(op->meta, &a);
	if (op->set & POOL_SET_MODE)
		*mode = a.mode;
	if (op->set & POOL_SET_UID)
		*uid = a.uid;
	if (op->set & POOL_SET_GID)
		*gid = a.gid;
	if (op->set & POOL_SET_MTIME)
		*mtime_ns = a.mtime_ns;
}

/* Apply the operation to `extra`'s xattrs, and the rules among them. */
static int set_xattrs(const struct op *op, struct master_extra **extra,
		      uint32_t uid, bool is_dir)
{
	const struct pool_xattrs *old = *extra ? (*extra)->xattrs : NULL;
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	int err;

	if (op->set & POOL_SET_XATTRS)
		err = master_meta_xattrs(op->meta, is_dir, true, op->wall_ns,
					 &xattrs, &rules);
	else if (op->set & POOL_SET_XATTR_EACH)
		err = master_meta_xattr_each(op->meta, op->remove, old, is_dir,
					     op->wall_ns, &xattrs, &rules);
	else
		return 0;
	if (err)
		return err;
	err = admit(op, uid, 0, *extra, xattrs);
	if (!err)
		err = master_extra_set(extra, xattrs, &rules);
	if (err)
		pool_xattrs_free(xattrs);
	return err;
}

static bool same_rules(const struct pool_rules *a, const struct pool_rules *b)
{
	return a->class == b->class && a->pin == b->pin &&
	       a->unlink == b->unlink && a->replicas == b->replicas &&
	       a->pin_until_ns == b->pin_until_ns;
}

/* The sender's mount already shows the new attributes. If they are refused, the
 * touched entry goes out in the feed and corrects that. */
static int setattr_dir(struct op *op, struct master_dir *d)
{
	struct pool_rules old = { 0 }, none = { 0 };
	int err;

	if (d->extra)
		old = d->extra->rules;
	err = set_xattrs(op, &d->extra, d->uid, true);

	if (err) {
		master_map_touch_dir(&op->m->map, d);
		return err;
	}
	/* Rules are inherited: review everything below. */
	if (d->d.nchildren &&
	    !same_rules(&old, d->extra ? &d->extra->rules : &none))
		master_patrol_start(op->m);
	set_attrs(op, &d->mode, &d->uid, &d->gid, &d->mtime_ns);
	master_map_account(&op->m->map, &d->d.e);
	if (!op->len)
		d->set |= op->set & POOL_ROOT_SETS;
	master_map_touch_dir(&op->m->map, d);
	keep_made(op, d);
	result_seq(op, &d->item);
	return 0;
}

/* Does f have the attributes that the operation sets? False if it sets xattrs,
 * which are not compared. */
static bool same_attrs(const struct op *op, const struct master_file *f)
{
	struct master_attrs a;

	master_meta_attrs(op->meta, &a);
	return !(op->set & (POOL_SET_XATTRS | POOL_SET_XATTR_EACH)) &&
	       (!(op->set & POOL_SET_MODE) || f->mode == a.mode) &&
	       (!(op->set & POOL_SET_UID) || f->uid == a.uid) &&
	       (!(op->set & POOL_SET_GID) || f->gid == a.gid) &&
	       (!(op->set & POOL_SET_MTIME) || f->mtime_ns == a.mtime_ns);
}

/*
 * A repeated SETATTR: was it executed by a former master already? 1: it was, or
 * f has these attributes anyway; the result is set. 0: execute it. -ESTALE: f
 * has a newer version, or newer attributes from another change.
 */
static int setattr_done(struct op *op, const struct master_file *f)
{
	if (!op->again)
		return 0;
	if (has_conflict(op, f, op->meta->seen_gen))
		return -ESTALE;
	if (f->attr_gen <= op->meta->seen_gen || issued_here(op, f->attr_gen))
		return 0;
	if (!same_attrs(op, f))
		return -ESTALE;
	op->result->gen = f->attr_gen;
	record_issued(op, f->attr_gen);
	return 1;
}

static int setattr_file(struct op *op, struct master_file *f)
{
	int err = setattr_done(op, f);
	uint64_t mtime_ns = f->mtime_ns;
	uint32_t was = f->uid;

	if (err < 0)
		master_map_touch_file(&op->m->map, f); /* see setattr_dir */
	if (err)
		return err < 0 ? err : 0;
	err = set_xattrs(op, &f->extra, f->uid, false);
	if (err) {
		master_map_touch_file(&op->m->map, f);
		return err;
	}
	set_attrs(op, &f->mode, &f->uid, &f->gid, &mtime_ns);
	master_file_set_mtime(&op->m->map, f, mtime_ns);
	(void)master_map_disown(&op->m->map, f, was, op->wall_ns);
	master_map_account(&op->m->map, &f->e);
	f->attr_gen = master_next_gen(op->m);
	master_map_touch_file(&op->m->map, f);
	master_repair_tell_attrs(op->m, f, NULL);
	op->result->gen = f->attr_gen;
	record_issued(op, f->attr_gen);
	op->result->seq = op->m->map.feed.seq;
	if (master_review(op->m, f) == MASTER_KEPT)
		result_seq(op, &f->item);
	return 0;
}

static int op_setattr(struct op *op)
{
	struct pool_entry *e;

	master_count(op->m, MC_SETATTR);
	/* "" is the root, which has attributes like any directory. */
	if ((op->len && master_meta_check(op->meta, false)) ||
	    op->meta->mode & ~07777u || op->set & ~SET_KNOWN)
		return -EINVAL;
	e = pool_tree_lookup(&op->m->map.tree, op->path, op->len);
	if (!e) /* an inventory that has not come yet may list it */
		return op->m->ready ? -ENOENT : -EAGAIN;
	return e->is_dir ? setattr_dir(op, master_entry_dir(e)) :
			   setattr_file(op, master_entry_file(e));
}

/* ---- the message ---- */

/* May the session make this change? */
static bool is_allowed(const struct op *op, Kvpool__Op__Kind kind)
{
	const struct pool_entry *e;

	if (kind == KVPOOL__OP__KIND__MKDIR)
		return master_may_set_dir(op->s, op->path, op->len);
	if (master_may_change(op->s, op->path, op->len))
		return true;
	if (kind != KVPOOL__OP__KIND__SETATTR ||
	    !master_may_set_dir(op->s, op->path, op->len))
		return false;
	/* A namespace is a directory: a file of that name is outside of it. */
	e = pool_tree_lookup(&op->m->map.tree, op->path, op->len);
	return !e || e->is_dir;
}

#define SETS_OWNED (POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID)

/* May the session set owner, group or mode of the name? If not, its mount may
 * show them already; the touched entry goes out in the feed and corrects that.
 */
static bool owns(const struct op *op)
{
	struct pool_entry *e =
		pool_tree_lookup(&op->m->map.tree, op->path, op->len);
	struct master_dir *d = e && e->is_dir ? master_entry_dir(e) : NULL;
	struct master_file *f = e && !d ? master_entry_file(e) : NULL;

	if (!e || master_may_speak_for(op->s, d ? d->uid : f->uid))
		return true;
	if (d)
		master_map_touch_dir(&op->m->map, d);
	else
		master_map_touch_file(&op->m->map, f);
	return false;
}

/* Does the session speak for all users whom the change names? (UNLINK names the
 * owner of a file, who may be another.) */
static bool is_its_user(const struct op *op, Kvpool__Op__Kind kind)
{
	bool names = kind == KVPOOL__OP__KIND__PUBLISH ||
		     kind == KVPOOL__OP__KIND__MKDIR,
	     sets = kind == KVPOOL__OP__KIND__SETATTR;

	if (op->by != MASTER_UID_ANYONE &&
	    !master_may_speak_for(op->s, op->by))
		return false;
	if ((names || (sets && op->set & POOL_SET_UID)) &&
	    !master_may_speak_for(op->s, op->meta->uid))
		return false;
	return !sets || !(op->set & SETS_OWNED) || owns(op);
}

static int run(struct op *op, const Kvpool__Op *msg)
{
	op->meta = msg->meta;
	op->path = (const char *)msg->meta->path.data;
	op->len = msg->meta->path.len;
	op->set = msg->set;
	op->remove = msg->remove;
	op->queued = msg->queued;
	op->again = msg->again;
	op->ticket = msg->ticket;
	op->by = msg->by - 1; /* absent: MASTER_UID_ANYONE */
	op->before = msg->before;
	op->n_before = msg->n_before;
	op->made_from = msg->made_from;
	if (!is_allowed(op, msg->kind)) {
		master_count(op->m, MC_NOT_ALLOWED);
		return -EACCES;
	}
	if (!is_its_user(op, msg->kind)) {
		master_count(op->m, MC_OTHER_USERS);
		return -EACCES;
	}
	if (msg->kind == KVPOOL__OP__KIND__UNLINK &&
	    op->by == MASTER_UID_ANYONE)
		op->by = master_may_user(op->s);
	switch (msg->kind) {
	case KVPOOL__OP__KIND__PUBLISH:
		return op_publish(op);
	case KVPOOL__OP__KIND__UNLINK:
		return op_unlink(op);
	case KVPOOL__OP__KIND__MKDIR:
		return op_mkdir(op);
	case KVPOOL__OP__KIND__RMDIR:
		return op_rmdir(op);
	case KVPOOL__OP__KIND__SETATTR:
		return op_setattr(op);
	default:
		return -EINVAL;
	}
}

/* Does it make a directory, perhaps above the name that it publishes? A file of
 * that name may be in an inventory that has not come yet. */
static bool makes_dir(struct master *m, const Kvpool__Op *op)
{
	bool publishes = op->kind == KVPOOL__OP__KIND__PUBLISH;

	return (publishes || op->kind == KVPOOL__OP__KIND__MKDIR) &&
	       op->meta && !master_meta_check(op->meta, publishes) &&
	       pool_tree_missing(&m->map.tree,
				 (const char *)op->meta->path.data,
				 op->meta->path.len) > (publishes ? 1 : 0);
}

/* Can some of them be judged only once the master is ready? */
static bool has_condition(struct master *m, const Kvpool__Ops *msg)
{
	size_t i;

	for (i = 0; !m->ready && i < msg->n_ops; i++)
		if (msg->ops[i]->again || msg->ops[i]->queued ||
		    makes_dir(m, msg->ops[i]))
			return true;
	return false;
}

void master_on_ops(struct master_session *s, uint64_t req,
		   const Kvpool__Ops *msg)
{
	if (msg->n_ops > POOL_BATCH_MAX) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(s, -EPROTO, "too many OPS");
	}
	if (!master_answers_follow(s, msg)) {
		master_count(s->m, MC_BAD_MESSAGES);
		return master_session_fail(
			s, -EPROTO, "OPS out of sequence");
	}
	if (!master_ops_defer(s, req, msg, has_condition(s->m, msg)))
		master_ops_run(s, req, msg, false);
}

/* Where the results of the next changes go. While parts of a message are run,
 * its results are the session's. NULL: no memory. */
static Kvpool__OpResult *results_of(struct master_session *s, bool more)
{
	if (more && !s->results)
		s->results = malloc(POOL_BATCH_MAX * sizeof(*s->results));
	if (more || s->results)
		return s->results;
	return s->m->buffers->results;
}

/* Sends the results of a message, n of which are in `results`. */
static void send_results(struct master_session *s, uint64_t req,
			 Kvpool__OpResult *results, size_t n, uint64_t mark)
{
	Kvpool__OpsDone done = KVPOOL__OPS_DONE__INIT;
	size_t i;

	done.results = s->m->buffers->result_list;
	done.n_results = n;
	for (i = 0; i < n; i++)
		done.results[i] = &results[i];
	/* This precedes any FEED with these changes (held.c). */
	master_session_send_after(s, POOL_MSG_OPS_DONE, req, &done.base, mark);
	s->nresults = 0;
	free(s->results);
	s->results = NULL;
}

/* The message's records are too large for one part: n of its changes have been
 * made, the others follow. */
static void put_back(struct master_session *s, uint64_t req,
		     const Kvpool__Ops *msg, size_t n, bool more,
		     const Kvpool__OpResult *results)
{
	Kvpool__OpResult *kept = results_of(s, true);

	if (kept && kept != results)
		memcpy(kept, results, n * sizeof(*results));
	if (!kept || !master_ops_put_back(s, req, msg, n, more))
		return master_session_fail(s, -ENOMEM,
					   "not enough memory for changes");
	master_kick(s->m);
}

void master_ops_run(struct master_session *s, uint64_t req,
		    const Kvpool__Ops *msg, bool more)
{
	struct master_member *mb = s->member;
	struct master *m = s->m;
	struct op op = { .s = s, .m = m, .wall_ns = pool_wall_ns() };
	Kvpool__OpResult *results = results_of(s, more);
	uint64_t changes = master_keep_changes(m), seq = m->map.feed.seq;
	uint64_t cost = master_keep_cost(m);
	bool memory = true, puts = !s->nresults;
	size_t i;

	if (!results)
		return master_session_fail(s, -ENOMEM,
					   "not enough memory for results");
	if (!s->nresults)
		s->ops_feed_seq = seq;
	/* run may end the session: a DROP to the sender cannot be sent. */
	for (i = 0; i < msg->n_ops && memory && !s->ended &&
		    master_keep_cost(m) - cost < MASTER_UNSETTLED_MAX; i++) {
		op.result = &results[s->nresults + i];
		kvpool__op_result__init(op.result);
		op.result->status = msg->ops[i]->meta ? run(&op, msg->ops[i]) :
							-EINVAL;
		if (op.result->status)
			master_count(m, MC_OPS_FAILED);
		puts &= !op.result->status &&
			msg->ops[i]->kind == KVPOOL__OP__KIND__PUBLISH;
		memory = op.result->status != -ENOMEM;
		if (memory)
			master_answers_add(m, mb, op.result);
	}
	if (m->map.feed.seq != seq)
		master_quantum_spend(m, mb, i);
	/* The results survive this master, and so must the number of executed
	 * changes: its record follows those of the changes. */
	if (master_keep_changes(m) != changes && mb->answers.run)
		master_keep_member(m, mb);
	master_quantum_records(mb, master_keep_cost(m) - cost,
			       master_keep_mark(m));
	s->nresults += memory ? i : i - 1;
	if (memory && !s->ended && i < msg->n_ops)
		return put_back(s, req, msg, i, more, results);
	/* Publications that appended no records have nothing to wait for
	 * (held.c): they are in inventories, and not in the state. */
	if (!more || !memory)
		send_results(s, req, results, s->nresults,
			     puts && master_keep_changes(m) == changes ?
				     0 :
				     master_keep_mark(m));
	if (!memory)
		master_session_fail(s, -ENOMEM,
				    "not enough memory for a change");
	master_kick(m);
}
