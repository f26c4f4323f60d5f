/*
 * OPS: changes that nodes ask for. Each is answered, in order; a bad one gets
 * -EINVAL and the others go on. Without memory the session ends: the node joins
 * again and asks for this one and what follows again, in the same order.
 * (Refused, an unlink that has succeeded at its mount would come to nothing.)
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/model/root.h"

struct op {
	struct master_session *s;
	struct master *m;
	const Kvpool__Meta *meta;
	const char *path; /* of meta */
	size_t len;
	uint32_t set;
	const char *remove; /* "": none */
	bool queued;
	bool again;
	uint64_t ticket;
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

/* Does f have what the change was made from, or what the sender may have
 * published itself, and has no answer for? */
static bool is_before(const struct op *op, const struct master_file *f)
{
	size_t i;

	for (i = 0; i < op->n_before; i++)
		if (has_content(f, op->before[i]))
			return true;
	return false;
}

static bool is_own(const struct op *op, uint64_t gen)
{
	uint64_t from;

	return master_given_find(&op->s->own, op->path, op->len, gen, &from);
}

/* Was the name deleted after `gen`, by another node's change? (A name that only
 * left has a tombstone below its own generation.) */
static bool deleted_after(const struct op *op, uint64_t gen)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	if (!g || !g->tomb || g->gen <= gen)
		return false;
	if (g->blind)
		return g->by_run != master_blind_id(op->s->member);
	if (g->gen < g->left_gen)
		return false;
	return !master_answers_earlier(&op->s->member->answers, g->by_run,
				       g->by_ticket, op->ticket) &&
	       !is_own(op, g->gen);
}

/*
 * An earlier master may have executed already what the name's version `now` was
 * made by, and gen, of those days, may be what it gave that. It may be if that
 * was made by who had seen nothing as new; else both were made without knowing
 * of each other.
 */
static bool may_have_been(const struct op *op, uint64_t now, uint64_t gen)
{
	uint64_t from;

	return gen >> POOL_GEN_SEQ_BITS < op->m->epoch &&
	       master_given_find(&op->m->given, op->path, op->len, now,
				 &from) &&
	       from < gen;
}

/* Is `now`, the name's last version, newer than gen, and not the sender's? */
static bool is_newer(const struct op *op, uint64_t now, uint64_t gen)
{
	return now > gen && !is_own(op, now) && !may_have_been(op, now, gen);
}

/* Does f's newest version come from the sender itself, before it joined this
 * time: which it does not say that it holds, and had not heard of? */
static bool was_senders(const struct op *op, const struct master_file *f)
{
	const struct master_member *mb = op->s->member;
	int pos = master_file_find_holder(f, mb->index);

	return pos >= 0 && master_file_holders(f)[pos] !=
				   master_holder_make(mb->index, mb->phase);
}

static bool newer_than(const struct op *op, const struct master_file *f,
		       uint64_t gen)
{
	return !is_before(op, f) && !was_senders(op, f) &&
	       is_newer(op, f->gen, gen);
}

/* Is what left such a content? */
static bool left_is_before(const struct op *op, const struct master_grave *g)
{
	size_t i;

	for (i = 0; i < op->n_before; i++) {
		const ProtobufCBinaryData *sum = &op->before[i]->sum;

		if (sum->len == MASTER_SUM_SIZE &&
		    !memcmp(sum->data, &g->left_sum, sizeof(g->left_sum)))
			return true;
	}
	return false;
}

/* It was there, and was evicted. (What its holders' death took was perhaps the
 * sender's own, whose answer died with it.) */
static bool left_after(const struct op *op, uint64_t gen)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	return g && g->given_up && g->gen < g->left_gen &&
	       !left_is_before(op, g) && is_newer(op, g->left_gen, gen);
}

/* The newest generation that it was made knowing of; 0: not said. */
static uint64_t known_gen(const struct op *op)
{
	uint64_t base = op->meta->base_gen, seen = op->meta->seen_gen;

	return base > seen ? base : seen;
}

/*
 * Made while cut off, or perhaps executed already: was there something newer
 * than what it was made from, and than all that its node knew of when it was
 * made? (A new name that was once deleted is no overwrite. What comes back,
 * brought by a node that was away, is not newer.)
 */
static bool overtaken(const struct op *op)
{
	uint64_t known = known_gen(op);
	const struct master_file *f =
		master_map_file(&op->m->map, op->path, op->len);

	if (!op->queued && !op->again)
		return false;
	if (f)
		return newer_than(op, f, known);
	return (known && left_after(op, known)) ||
	       ((op->meta->base_gen || op->again) && deleted_after(op, known));
}

/* It was given this, and it is known that it may come again or be queued. */
static void given(struct op *op, uint64_t gen)
{
	uint64_t from = known_gen(op);

	if (!op->again && !op->queued)
		return;
	/* What follows may be refused. */
	if (!master_given_add(&op->s->own, op->path, op->len, gen, from))
		master_count(op->m, MC_OWN_FORGOTTEN);
	(void)master_given_add(&op->m->given, op->path, op->len, gen, from);
}

/* ---- what names cost ---- */

/* May uid have so many more directories, and, where `old` was, xattrs? */
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

/* The name now means this content, and the sender alone holds it. */
static int replace(struct op *op, struct master_file *f,
		   struct pool_xattrs *xattrs, const struct pool_rules *rules)
{
	struct master_member *mb = op->s->member;
	struct master_attrs attrs;

	if (master_extra_set(&f->extra, xattrs, rules))
		return -ENOMEM;
	if (f->gen) {
		master_repair_cancel(op->m, f);
		master_drop_holders(op->m, f, mb,
				    KVPOOL__DROP__REASON__SUPERSEDED);
	}
	/* This map may not know of it: with a node that is away. */
	f->had_older |= f->gen || op->meta->base_gen;
	master_file_clear_holders(f);
	/* Cannot fail: the first ones are kept in the entry. */
	master_file_add_holder(&op->m->map, f,
			       master_holder_make(mb->index, mb->phase));
	master_meta_attrs(op->meta, &attrs);
	f->mode = attrs.mode;
	f->uid = attrs.uid;
	f->gid = attrs.gid;
	f->mtime_ns = attrs.mtime_ns;
	f->gen = master_next_gen(op->m);
	f->attr_gen = 0;
	master_file_set_size(&op->m->map, f, op->meta->size);
	memcpy(f->sum, op->meta->sum.data, MASTER_SUM_SIZE);
	master_map_account(&op->m->map, &f->e);
	return 0;
}

/* The name has this content already: an engine put it again, or a node repeats
 * what it was not told the answer of. */
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
 * The sender holds it, too. That is what it is told is safe, although all who
 * held it before may have died within the last heartbeats: a store's copy is
 * kept; a client's counts for nothing, and it keeps it until one of them has
 * answered. False: no further holder can be noted.
 */
static bool hold_too(struct op *op, struct master_file *f)
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
	/* A DROP that waits is of the copy that it had before. */
	master_session_flush_drops(op->s);
	return true;
}

static void published(struct op *op, struct master_file *f)
{
	master_map_touch_file(&op->m->map, f);
	op->result->gen = f->gen;
	given(op, f->gen);
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
	if (f && same_content(op, f, xattrs) && hold_too(op, f)) {
		pool_xattrs_free(xattrs);
		if (op->meta->mtime_ns > f->mtime_ns)
			f->mtime_ns = op->meta->mtime_ns;
		published(op, f);
		return 0;
	}
	if (overtaken(op)) {
		pool_xattrs_free(xattrs);
		/* It cannot be told which of the two is the newer one. */
		return f && op->made_from && has_content(f, op->made_from) ?
			       -EIO :
			       -ESTALE;
	}
	master_meta_attrs(op->meta, &attrs);
	/* Directories on the way, too. */
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
	err = replace(op, f, xattrs, &rules);
	if (err) {
		pool_xattrs_free(xattrs);
		if (made)
			master_map_remove_file(&op->m->map, f, 0, op->wall_ns);
		return err;
	}
	if (f->was_deleted && known_gen(op) < old_gen)
		master_keep_blind(op->m, op->path, op->len, op->s->member,
				  old_gen);
	published(op, f);
	return 0;
}

/* ---- UNLINK ---- */

static void buried(struct op *op, uint64_t gen)
{
	struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);

	if (g->gen == gen) {
		g->by_run = op->s->member->answers.run;
		g->by_ticket = op->ticket;
	}
	master_keep_tomb(op->m, g);
	op->result->gen = gen;
	op->result->seq = op->m->map.feed.seq;
	given(op, gen);
}

/* What an UNLINK of any generation means of a name that is not there: what the
 * sender knew of, and what it published itself and has left since. 0: nothing
 * that is not deleted already. */
static uint64_t meant(const struct op *op)
{
	const struct master_grave *g =
		master_map_grave(&op->m->map, op->path, op->len);
	uint64_t gen = op->meta->seen_gen;

	if (g && g->left_gen > gen && left_is_before(op, g))
		gen = g->left_gen;
	return g && g->tomb && g->gen >= gen ? 0 : gen;
}

/*
 * There is no such name. Copies may exist all the same: with a node that is
 * away, or, after a start, with one whose inventory is still to come.
 */
static int unlink_missing(struct op *op)
{
	uint64_t gen = op->meta->gen;
	int err;

	if (master_map_dir(&op->m->map, op->path, op->len))
		return -EISDIR;
	if (!gen && op->m->ready)
		gen = meant(op);
	if (!gen && op->m->ready) {
		/* What comes later is not meant: the sender may hear of that
		 * first, by an order to hold it. */
		op->result->gen = op->m->epoch << POOL_GEN_SEQ_BITS |
				  op->m->gen_seq;
		return 0;
	}
	/* No generation of another epoch than ours, or of the future. */
	if (!gen || gen > (op->m->epoch << POOL_GEN_SEQ_BITS |
			   op->m->gen_seq))
		gen = master_next_gen(op->m);
	err = master_map_bury(&op->m->map, op->path, op->len, gen, op->wall_ns);
	if (err)
		return err;
	buried(op, gen);
	return 0;
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
	if (op->meta->gen ? f->gen > op->meta->gen && !is_before(op, f) :
	    op->meta->seen_gen && newer_than(op, f, op->meta->seen_gen))
		return -ESTALE;
	master_repair_cancel(op->m, f);
	held_gen = f->gen;
	nheld = f->nholders;
	memcpy(held, master_file_holders(f), nheld * sizeof(held[0]));
	gen = master_next_gen(op->m);
	err = master_map_remove_file(&op->m->map, f, gen, op->wall_ns);
	if (err)
		return err;
	buried(op, gen);
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
	/* Rules reach down: everything below is looked at again. */
	else if (d->d.nchildren)
		master_patrol_start(op->m);
	return err;
}

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
	/* One that only the names below it implied takes the attributes of who
	 * makes it; else it exists, which is success. */
	if (!made && d->made) {
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
	if (err == -ENOTEMPTY) /* it shows there again, or as a new one */
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

/* The set that the operation makes of `extra`'s, and its rules. */
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

/* What was refused shows at the node that asked; the feed tells it better. */
static int setattr_dir(struct op *op, struct master_dir *d)
{
	bool sets = op->set & (POOL_SET_XATTRS | POOL_SET_XATTR_EACH);
	int err = set_xattrs(op, &d->extra, d->uid, true);

	if (err) {
		master_map_touch_dir(&op->m->map, d);
		return err;
	}
	/* Rules reach down: everything below is looked at again. */
	if (sets && d->d.nchildren)
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

/* Does f have what is to be set? */
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

/* It may have been executed, and something newer since: 1, it was, 0, or
 * -ESTALE. */
static int set_before(struct op *op, const struct master_file *f)
{
	if (!op->again)
		return 0;
	if (newer_than(op, f, op->meta->seen_gen))
		return -ESTALE;
	if (f->attr_gen <= op->meta->seen_gen || is_own(op, f->attr_gen))
		return 0;
	if (!same_attrs(op, f))
		return -ESTALE;
	op->result->gen = f->attr_gen;
	given(op, f->attr_gen);
	return 1;
}

static int setattr_file(struct op *op, struct master_file *f)
{
	int err = set_before(op, f);

	if (err < 0)
		master_map_touch_file(&op->m->map, f); /* it shows there */
	if (err)
		return err < 0 ? err : 0;
	err = set_xattrs(op, &f->extra, f->uid, false);
	if (err) {
		master_map_touch_file(&op->m->map, f);
		return err;
	}
	set_attrs(op, &f->mode, &f->uid, &f->gid, &f->mtime_ns);
	master_map_account(&op->m->map, &f->e);
	f->attr_gen = master_next_gen(op->m);
	master_map_touch_file(&op->m->map, f);
	master_repair_tell_attrs(op->m, f, NULL);
	op->result->gen = f->attr_gen;
	given(op, f->attr_gen);
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
	if (!e) /* "not yet", never "no", before all inventories are in */
		return op->m->ready ? -ENOENT : -EAGAIN;
	return e->is_dir ? setattr_dir(op, master_entry_dir(e)) :
			   setattr_file(op, master_entry_file(e));
}

/* ---- the message ---- */

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
	op->before = msg->before;
	op->n_before = msg->n_before;
	op->made_from = msg->made_from;
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

static Kvpool__OpResult results[POOL_BATCH_MAX];
static Kvpool__OpResult *result_list[POOL_BATCH_MAX];

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
			s, -EPROTO, "OPS that do not follow those before them");
	}
	if (!master_ops_later(s, req, msg))
		master_ops_run(s, req, msg);
}

void master_ops_run(struct master_session *s, uint64_t req,
		    const Kvpool__Ops *msg)
{
	struct master_member *mb = s->member;
	Kvpool__OpsDone done = KVPOOL__OPS_DONE__INIT;
	struct master *m = s->m;
	struct op op = { .s = s, .m = m, .wall_ns = pool_wall_ns() };
	uint64_t changes = master_keep_changes(m);
	bool memory = true, puts = true;
	size_t i;

	/* A DROP to the sender itself may find its connection gone. */
	for (i = 0; i < msg->n_ops && memory && !s->ended; i++) {
		op.result = &results[i];
		kvpool__op_result__init(op.result);
		op.result->status = msg->ops[i]->meta ? run(&op, msg->ops[i]) :
							-EINVAL;
		if (op.result->status)
			master_count(m, MC_OPS_FAILED);
		puts &= !op.result->status &&
			msg->ops[i]->kind == KVPOOL__OP__KIND__PUBLISH;
		memory = op.result->status != -ENOMEM;
		result_list[i] = op.result;
		if (memory)
			master_answers_add(m, mb, op.result);
	}
	/* What was answered outlives this process, and that it was executed. */
	if (master_keep_changes(m) != changes && mb->answers.run)
		master_keep_member(m, mb);
	done.results = result_list;
	done.n_results = memory ? i : i - 1;
	/* Before any FEED that has these changes: those go out later. Nothing
	 * of publications alone is in the state: inventories have them. */
	master_session_answer(s, POOL_MSG_OPS_DONE, req, &done.base,
			      puts && master_keep_changes(m) == changes ?
				      0 :
				      master_keep_mark(m));
	if (!memory)
		master_session_fail(s, -ENOMEM,
				    "not enough memory for a change");
	master_kick(m);
}
