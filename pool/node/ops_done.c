/*
 * Acks of changes. Changes whose ack was lost are settled by the next WELCOME:
 * the tables are in ops.c.
 */
#include "pool/node/ops.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Is the local copy (HELD, not borrowed) of generation gen, which the master
 * has just published? Then makes it a counted copy. */
static bool has_same_version(struct pool_node *n, const struct node_entry *e,
		      uint64_t gen)
{
	struct node_object *o = e->obj;

	if (!o || o->state != NODE_HELD || o->gen != gen || o->lent_fd >= 0)
		return false;
	if (!o->counted) {
		(void)node_seal_fetched(n, o, 0);
		node_object_count(n, o, true);
	}
	return true;
}

/*
 * The file was replaced or dropped here while its PUBLISH was in flight. The
 * master now names this node as the holder of bytes that no longer exist, so an
 * UNLINK of exactly that generation is queued.
 */
static void undo_publish(struct pool_node *n, struct node_op *op, uint64_t gen)
{
	size_t len = strlen(op->sent_path);
	struct pool_entry *pe = pool_tree_lookup(&n->tree, op->sent_path, len);
	struct node_entry *e = pe ? node_file(pe) : NULL;
	struct node_op *undo;

	if (e && has_same_version(n, e, gen))
		return; /* the local copy has the same bytes */
	if (e && e->hidden_gen >= NODE_HIDES_ANY)
		return; /* an UNLINK of any generation is in flight */
	if (e && e->own) {
		/* The file that replaced it removes this generation: by its own
		 * PUBLISH, or when it is dropped (node_own_drop). */
		e->own->w->phantom_gen = gen;
		if (e->own->w->base_gen < gen)
			e->own->w->base_gen = gen;
		return;
	}
	undo = node_op_new(n, KVPOOL__OP__KIND__UNLINK, op->sent_path, len);
	if (undo)
		undo->gen = gen;
}

/* A file that the name has here now was created after the UNLINK, so it
 * replaces generation gen, too. */
static void unlink_answered(struct node_entry *e, uint64_t gen)
{
	if (e->own && e->own->w && e->own->w->base_gen < gen)
		e->own->w->base_gen = gen;
}

/* The generation up to which the name stays hidden until the feed reports the
 * deletion. Without a deletion (no seq), later versions are not hidden. */
static uint64_t unlink_hides(const struct node_entry *e,
			     const Kvpool__OpResult *r)
{
	if (r->status)
		return 0;
	if (r->gen && r->seq)
		return r->gen;
	return r->gen && e->gen > r->gen ? 0 : e->gen;
}

/*
 * After a success the master knows the directory: the feed reports its removal,
 * or the next picture lacks it and the sweep removes it (known ones only). That
 * also corrects a success that settle_in_doubt only assumed: a former master
 * may have refused the MKDIR.
 */
static void mkdir_answered(struct pool_node *n, struct node_dirent *d,
			   int status)
{
	d->making--;
	if (!status) {
		d->ahead = n->stage;
		node_make_dirs_known(n, &d->d);
	} else if (!d->known) { /* no feed entry will remove it */
		node_dir_remove(n, d);
	}
}

/* The ack of MKDIR, RMDIR or UNLINK: from now on the feed alone decides whether
 * the name is visible. */
static void name_answered(struct pool_node *n, struct node_op *op,
			  const Kvpool__OpResult *r)
{
	int status = r->status;
	struct pool_entry *pe = pool_tree_lookup(&n->tree, op->path,
						 op->path_len);
	struct node_dirent *d = pe ? node_dir(pe) : NULL;
	struct node_entry *e = pe ? node_file(pe) : NULL;

	if (op->kind == KVPOOL__OP__KIND__MKDIR && d && d->making)
		mkdir_answered(n, d, status);
	if (op->kind == KVPOOL__OP__KIND__RMDIR && d && d->removing) {
		d->removing--;
		/* -ENOTDIR: another node's file has its name now. */
		if (status && status != -ENOENT && status != -ENOTDIR &&
		    !d->removing) {
			node_dir_gone(n, d, false);
			if (n->ops)
				n->ops->appeared(n->ops_arg, pe);
		}
		node_dir_tidy(n, d);
	}
	if (op->kind == KVPOOL__OP__KIND__UNLINK && e && !status && r->seq)
		unlink_answered(e, r->gen);
	if (op->kind == KVPOOL__OP__KIND__UNLINK && !op->gen && e &&
	    e->hidden_gen >= NODE_HIDES_ANY) {
		node_hide(n, e, e->hidden_gen < UINT64_MAX ?
					e->hidden_gen + 1 :
					unlink_hides(e, r));
		/* The UNLINK was refused, or a newer version exists already. */
		if (n->ops && !e->own && pool_node_published(e))
			n->ops->appeared(n->ops_arg, &e->e);
		node_entry_tidy(n, e);
	}
}

/* Stores the new attribute generation in the copy's metadata now: when the feed
 * brings it, this process may have ended. */
static void attrs_answered(struct pool_node *n, struct node_op *op,
			   uint64_t gen)
{
	struct pool_entry *pe = pool_tree_lookup(&n->tree, op->path,
						 op->path_len);
	struct node_entry *e = pe ? node_file(pe) : NULL;

	if (!e || e->own || !e->obj || e->attr.gen >= gen)
		return;
	e->attr.gen = gen;
	(void)node_write_blob(n, e->obj);
}

/* The next fsync of the directory reports that the master refused the change.
 * -EDQUOT, -ENOSPC: no room for what it set or made. -EIO: the file that it
 * removed may exist again, and the master does not know whether that is a newer
 * one. */
static void change_lost(struct pool_node *n, const struct node_op *op,
			int status)
{
	const char *slash = memrchr(op->path, '/', op->path_len);
	size_t len = slash ? (size_t)(slash - op->path) : 0;
	struct pool_entry *dir = pool_tree_lookup(&n->tree, op->path, len);

	if (dir && node_dir(dir))
		node_dir(dir)->lost = status;
}

/* The newest generation that was known when the publication was made. */
static uint64_t known_gen(const struct node_op *op,
			  const struct node_object *o)
{
	return o->w && o->w->base_gen > op->seen_gen ? o->w->base_gen :
						       op->seen_gen;
}

static void op_answered(struct pool_node *n, struct node_op *op,
			const Kvpool__OpResult *r)
{
	struct node_object *o = node_op_take_object(op);

	if (r->seq > n->op_seq)
		n->op_seq = r->seq;
	node_seen(n, r->gen);
	if (op->kind == KVPOOL__OP__KIND__PUBLISH) {
		if (!o) {
			if (r->status == 0 && r->gen && op->sent_path)
				undo_publish(n, op, r->gen);
			return;
		}
		o->from = op->again ? known_gen(op, o) : 0;
		if (o->state == NODE_PENDING)
			node_publish_done(n, o,
					  r->status || r->gen ? r->status :
								-EPROTO,
					  r->gen);
		node_object_unref(n, o);
		return;
	}
	if (op->kind == KVPOOL__OP__KIND__SETATTR && !r->status)
		attrs_answered(n, op, r->gen);
	name_answered(n, op, r);
	if (r->status == -EDQUOT || r->status == -ENOSPC || r->status == -EIO)
		change_lost(n, op, r->status);
	if (r->status && r->status != -ENOENT) {
		pool_count(&n->c.ops_failed);
		if (r->status == -ESTALE)
			return; /* expected: another node's change was first */
		pool_warn_limited("the master refused %s of \"%s\": %s",
				  op->kind == KVPOOL__OP__KIND__UNLINK ?
					  "unlink" :
				  op->kind == KVPOOL__OP__KIND__MKDIR ?
					  "mkdir" :
				  op->kind == KVPOOL__OP__KIND__RMDIR ?
					  "rmdir" : "setattr",
				  op->path, strerror(-r->status));
	}
}

void node_ops_done(struct pool_node *n, const Kvpool__OpsDone *done)
{
	struct node_op *op;
	size_t i;

	n->acked_ns = pool_now_ns();
	if (n->batches > 0)
		n->batches--;
	for (i = 0; i < done->n_results; i++) {
		if (pool_list_empty(&n->ops_sent)) {
			pool_warn_limited("the master acked more changes than "
					  "are in flight: ignored");
			return;
		}
		op = pool_list_first(&n->ops_sent, struct node_op, link);
		/* Removed first: op_answered may walk the list. */
		pool_list_del(&op->link);
		n->ops_done++;
		op_answered(n, op, done->results[i]);
		node_barriers_progress(n, op->ticket);
		node_op_free(n, op);
	}
	pool_peers_again(n->peers);
	if (!pool_list_empty(&n->ops_waiting))
		node_ops_schedule(n); /* barriers may have waited for this */
	node_kick(n);
}

void node_ops_cut_off(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	struct node_op *op;

	n->batches = 0;
	pool_list_each(it, tmp, &n->ops_sent) {
		op = pool_list_entry(it, struct node_op, link);
		op->in_doubt = true;
		op->sent = false;
	}
	pool_list_splice(&n->ops_sent, &n->ops_waiting);
	pool_list_splice(&n->ops_waiting, &n->ops_sent);
}

/* The first change in doubt, if the queue begins with one; or NULL. */
static struct node_op *first_in_doubt(struct pool_node *n)
{
	struct node_op *op;

	if (pool_list_empty(&n->ops_waiting))
		return NULL;
	op = pool_list_first(&n->ops_waiting, struct node_op, link);
	return op->in_doubt ? op : NULL;
}

static void answer_in_doubt(struct pool_node *n, struct node_op *op,
			const Kvpool__OpResult *r)
{
	pool_list_del(&op->link);
	op_answered(n, op, r);
	node_barriers_progress(n, op->ticket);
	node_op_free(n, op);
}

/* Applies the results whose acks were lost. Results without a change here are
 * skipped: a take-over does not hand over cancelled changes. */
static void answers_lost(struct pool_node *n, const Kvpool__Welcome *w)
{
	struct node_op *op;
	size_t i;

	for (i = 0; i < w->n_ops; i++) {
		op = first_in_doubt(n);
		n->ops_done++;
		if (op && op->number == n->ops_done)
			answer_in_doubt(n, op, w->ops[i]);
	}
}

/* Is op resent even if the new master has executed it? A PUBLISH is, because
 * the ack brings its generation; an UNLINK of any generation is, because it
 * hides all generations until its ack says which were removed, and because it
 * may have been refused. */
static bool must_resend(const struct node_op *op)
{
	return op->kind == KVPOOL__OP__KIND__PUBLISH ||
	       (op->kind == KVPOOL__OP__KIND__UNLINK && !op->gen);
}

/*
 * One change in doubt at a new master, as the table in ops.c says. true: it is
 * completed or cancelled, and freed; false: it will be resent.
 */
static bool settle_in_doubt(struct pool_node *n, struct node_op *op,
			uint64_t executed, uint64_t gen)
{
	Kvpool__OpResult done = KVPOOL__OP_RESULT__INIT;

	if (op->kind == KVPOOL__OP__KIND__PUBLISH && !op->obj) {
		pool_list_del(&op->link);
		node_op_free(n, op);
		return true;
	}
	if (!op->number)
		return false;
	if (op->number > executed) {
		/* Not if an even earlier master may have executed it: then its
		 * generation may be below `gen`. */
		if (!op->again && op->seen_gen < gen)
			op->seen_gen = gen;
	} else if (!must_resend(op)) {
		done.gen = op->kind == KVPOOL__OP__KIND__UNLINK ? gen : 0;
		answer_in_doubt(n, op, &done);
		return true;
	}
	op->again = op->seen_gen != 0;
	return false;
}

static void settle_all(struct pool_node *n, uint64_t executed, uint64_t gen)
{
	struct pool_list *it, *tmp, kept;
	struct node_op *op;

	pool_list_init(&kept);
	while ((op = first_in_doubt(n))) {
		if (settle_in_doubt(n, op, executed, gen))
			continue;
		pool_list_del(&op->link);
		pool_list_add_tail(&kept, &op->link);
	}
	pool_list_each(it, tmp, &kept)
		pool_list_entry(it, struct node_op, link)->number = 0;
	pool_list_splice(&kept, &n->ops_waiting);
	pool_list_splice(&n->ops_waiting, &kept);
}

/* This master has all results, and none of the remaining changes. */
static void not_executed(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	struct node_op *op;

	pool_list_each(it, tmp, &n->ops_waiting) {
		op = pool_list_entry(it, struct node_op, link);
		if (!op->in_doubt)
			return;
		op->in_doubt = op->again;
		op->number = 0;
		if (op->kind == KVPOOL__OP__KIND__PUBLISH && !op->obj)
			node_op_free(n, op);
	}
}

void node_ops_welcome(struct pool_node *n, const Kvpool__Welcome *w)
{
	bool known = w->ops_run == n->ops_run && w->ops_done >= n->ops_done &&
		     w->ops_done <= n->ops_given;

	n->acked_ns = pool_now_ns();
	node_seen(n, w->epoch << POOL_GEN_SEQ_BITS);
	if (known && w->ops_exact && w->n_ops == w->ops_done - n->ops_done) {
		answers_lost(n, w);
		not_executed(n);
	} else {
		settle_all(n, known ? w->ops_done : 0, known ? w->ops_gen : 0);
	}
	if (known)
		n->ops_done = w->ops_done;
	n->ops_given = n->ops_done;
	pool_peers_again(n->peers); /* results may have published files */
	node_kick(n);
}
