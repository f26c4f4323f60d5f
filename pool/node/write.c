/*
 * A local file from its creation to its publication.
 *
 * Happy path: created (reserved, or daemon-served) -> written by the engine ->
 * a close or a rename makes it a candidate -> the last writer closes -> sealed
 * (trimmed, checksummed, metadata attached) -> PENDING: its PUBLISH is queued
 * -> the master acks it with a generation: HELD.
 *
 * Failure modes:
 *   a write failed, or may have (poison)   dropped when the last writer closes
 *   a writable mapping still exists        the seal is retried
 *   the content is unchanged               dropped
 *   not used for ten minutes, unpublished  dropped
 *   the master refuses it (-ESTALE: the    dropped; the newer version shows
 *   name has a newer version)
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- creation ---- */

/*
 * May the file be reserved, for passthrough? Not if the store is already using
 * its headroom. Nor if the size is only predicted and nearly all objects here
 * are protected from eviction. For a passthrough file that outgrows its
 * reservation nothing is evicted, so it would use up the headroom; a
 * daemon-served one can wait until an object has been moved.
 */
static bool may_reserve(struct pool_node *n, bool exact)
{
	const struct pool_space *sp = node_space_lately(n);
	uint64_t kept = pool_evict_bytes(n->evict, POOL_EVICT_KEPT);

	return sp->free > 0 && (exact || kept + sp->headroom <= sp->size);
}

/* exact: the exact size, or 0; size: the predicted one. */
static int take_file(struct pool_node *n, struct node_object *o, uint64_t exact,
		     uint64_t size)
{
	struct node_writer *w = o->w;
	struct pool_file f;
	int err = -EAGAIN;

	if (exact > 0)
		size = exact;
	if (n->opts.reserve && size > 0 && !w->scratch &&
	    size <= node_size_max(n, w) && may_reserve(n, exact > 0)) {
		pool_store_announce(n->store, size);
		err = pool_store_take(n->store, size, &f);
		if (err)
			err = pool_store_make(n->store, size, &f);
	}
	if (!err) {
		/* No writable descriptor may stay open here: the lease in
		 * seal.c is to prove that there is none. */
		close(f.fd);
		w->reserved = f.reserved;
		w->breaches = pool_store_sampling(n->store, true);
		w->sampling = true;
		pool_count(&n->c.reserved_creates);
	} else {
		/* Reused pages are not zeroed: only for an exact size, because
		 * then all of them are written. */
		err = node_space_reuse(n, exact, &f);
		if (err)
			err = pool_store_take(n->store, 0, &f);
		if (err)
			return err;
		w->reserved = f.reserved;
		w->served = true;
		pool_count(&n->c.served_creates);
	}
	o->id = f.id;
	if (w->served)
		node_fd_keep(n, &w->fd, o, f.fd);
	return 0;
}

int node_own_make(struct pool_node *n, struct node_entry *e,
		  const struct node_attr *attr, uint64_t size_hint,
		  struct node_object **ret_obj)
{
	int err = node_may_own(n, attr->uid);
	struct node_object *o = err ? NULL : node_object_new(e, NODE_WRITING);
	struct node_writer *w = o ? node_writer_new(o) : NULL;
	struct pool_rules rules;

	if (err)
		return err;
	if (!w) {
		free(o);
		return -ENOMEM;
	}
	o->made = true;
	w->attr = *attr;
	w->attr.mode &= 01777;
	w->attr.gen = 0;
	w->base_gen = e->gen;
	w->touched_ms = pool_now_ms();
	w->emptied_ns = pool_now_ns();
	pool_node_rules(n, &e->e, &rules);
	w->scratch = rules.class == POOL_CLASS_SCRATCH;
	o->w = w;
	err = take_file(n, o, size_hint,
			node_learn_predict(n, node_dir(&e->e.parent->e)));
	if (err) {
		o->w = NULL;
		free(w);
		node_object_unref(n, o);
		return err;
	}
	o->entry = NULL;
	*ret_obj = o;
	return 0;
}

/* Makes and shows it. */
static int node_own_new(struct pool_node *n, struct node_entry *e,
		 const struct node_attr *attr, uint64_t size_hint,
		 struct node_object **ret_obj)
{
	int err = node_own_make(n, e, attr, size_hint, ret_obj);

	if (!err)
		node_own_show(n, e, *ret_obj);
	return err;
}

int pool_node_create(struct pool_node *n, struct node_dirent *dir,
		     const char *name, size_t len,
		     const struct node_attr *attr, uint64_t size_hint,
		     struct node_object **ret_obj)
{
	struct pool_entry *pe = pool_tree_find(&n->tree, &dir->d, name, len);
	bool added = false;
	int err = node_name_check(dir, name, len);

	if (!err)
		err = node_may_change_in(dir);
	if (err)
		return err;
	if (pe && pe->is_dir)
		return -EISDIR;
	if (pe && node_file(pe)->own)
		return -EEXIST;
	if (!pe) {
		pe = node_tree_add(n, dir, name, len, false);
		if (!pe)
			return -ENOMEM;
		added = true;
	}
	err = node_own_new(n, node_file(pe), attr, size_hint, ret_obj);
	if (err && added)
		node_entry_tidy(n, node_file(pe));
	return err;
}

/* Keeps the descriptor of a summed file for its seal: libkvpool renames the
 * file next, and that seals it. */
static void keep_or_close_fd(struct pool_node *n, struct node_writer *w)
{
	if (w->fd_kept)
		return;
	if (w->summed && w->fd.fd > 0 && n->nkept_fds < NODE_KEPT_FDS) {
		w->fd_kept = true;
		n->nkept_fds++;
	} else {
		node_writer_close_fd(n, w);
	}
}

/* ---- writers open and close ---- */

void pool_node_writer_opened(struct pool_node *n, struct node_object *o)
{
	o->w->opens++;
	o->w->touched_ms = pool_now_ms();
	node_candidate_update(n, o);
}

void pool_node_writer_direct(struct pool_node *n, struct node_object *o,
			     const void *direct, uint32_t ndirect)
{
	o->w->direct = ndirect > 0 ? direct : NULL;
	o->w->ndirect = ndirect;
	node_candidate_update(n, o);
}

void pool_node_writer_served(struct pool_node *n, struct node_object *o,
			     bool opened)
{
	(void)n;
	if (opened)
		o->w->nserved++;
	else if (o->w && o->w->nserved > 0)
		o->w->nserved--;
}

void pool_node_writer_wrote(struct pool_node *n, struct node_object *o)
{
	(void)n;
	o->w->touched_ms = pool_now_ms();
}

void pool_node_writer_summed(struct pool_node *n, struct node_object *o,
			     uint64_t size, XXH128_hash_t sum)
{
	(void)n;
	o->w->summed = true;
	o->w->sum_size = size;
	o->w->sum = sum;
}

int pool_node_unseal(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;
	int err;

	w->summed = false;
	if (o->state == NODE_WRITING)
		return w->phase == WRITER_RETRYING ? -EAGAIN : 0;
	if (o->state != NODE_PENDING || node_op_sent(n, o))
		return -EAGAIN;
	if (w->was_held)
		return -EROFS;
	/* Without metadata, a start after a crash removes the file. */
	err = pool_store_detach(n->store, o->id);
	if (err)
		return err;
	node_op_before(n, o, &w->before);
	node_op_forget(n, o);
	node_writer_to(n, w, WRITER_OPEN);
	w->again = false;
	w->touched_ms = pool_now_ms();
	node_own_stamp(n, o);
	pool_list_del(&w->link);
	pool_list_add_tail(&n->writers, &w->link);
	return 0;
}

int pool_node_own_replace(struct pool_node *n, struct node_entry *e)
{
	struct node_writer *w = e->own->w;
	struct node_object *o;
	int err = node_own_make(n, e, &w->attr, e->own->size, &o);

	if (err)
		return err;
	err = pool_xattrs_dup(w->xattrs, &o->w->xattrs);
	if (err) {
		node_own_discard(n, o);
		return err;
	}
	o->w->renamed = w->renamed;
	node_own_begin(n, e, o);
	node_own_supersede(n, e, o, NULL);
	return 0;
}

int pool_node_writer_flushed(struct pool_node *n, struct node_object *o)
{
	if (o->state == NODE_WRITING) {
		o->w->touched_ms = pool_now_ms();
		if (o->w->phase == WRITER_OPEN)
			node_writer_to(n, o->w, WRITER_CLOSED);
		else
			node_candidate_update(n, o);
	}
	return o->w ? o->w->poison : 0;
}

void pool_node_writer_closed(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;
	uint64_t now_ns;

	if (!w || w->opens == 0)
		return;
	now_ns = pool_now_ns();
	w->opens--;
	w->touched_ms = now_ns / 1000000;
	if (o->state == NODE_WRITING)
		w->begun_ns = now_ns;
	node_candidate_update(n, o);
	if (w->opens > 0)
		return;
	if (o->state == NODE_DROPPED)
		node_writer_free(n, o);
	if (o->state != NODE_WRITING)
		return;
	keep_or_close_fd(n, w);
	if (w->claimed) {
		pool_node_claim_end(n, w->claimed);
		w->claimed = 0;
	}
	/* Keeps the list in order of last use. */
	pool_list_del(&w->link);
	pool_list_add_tail(&n->writers, &w->link);
	/* A write may have failed unnoticed, and no rename has made it
	 * publishable: frees its space now. */
	if (!w->poison && !w->scratch && o->entry && o->entry->own == o &&
	    !node_publishable(o) && node_outgrew(n, o)) {
		pool_node_poison(n, o, -ENOSPC);
		node_own_lost(o->entry, -ENOSPC);
	}
	if (w->poison && o->entry && o->entry->own == o) {
		struct node_entry *e = o->entry;

		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		node_entry_tidy(n, e);
		return;
	}
	(void)node_try_seal(n, o, false);
}
