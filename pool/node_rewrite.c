/*
 * A new generation of a published name: `own` begins empty, or as a copy of
 * what is published (fetched first if it is not here).
 */
#include "pool/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct rewrite {
	struct pool_node *n;
	struct node_entry *e; /* kept by its fetch or object while we wait */
	uint64_t keep, gen;
	struct node_want want;
	struct node_object *from; /* ref */
	struct node_object *to;	  /* ref */
	struct node_claim claim;
	struct pool_copy copy;
	node_done_cb cb;
	void *arg;
	bool claimed;
};

static void rewrite_done(struct rewrite *r, int status)
{
	struct pool_node *n = r->n;

	if (r->claimed)
		pool_node_claim_end(n, r->keep);
	if (r->copy.from >= 0)
		close(r->copy.from);
	if (r->from) {
		r->from->users--;
		node_object_unref(n, r->from);
	}
	if (r->to) {
		if (status && r->to->entry && r->to->entry->own == r->to)
			node_own_drop(n, r->to->entry);
		node_object_unref(n, r->to);
	}
	r->cb(r->arg, status);
	free(r);
}

static void rewrite_copied(struct pool_copy *c, int status)
{
	struct rewrite *r = pool_container_of(c, struct rewrite, copy);

	if (r->to->w) {
		r->to->w->touched_ms = pool_now_ms();
		/* A writable descriptor of ours would delay its sealing. */
		if (!r->to->w->served)
			node_writer_close_fd(r->to->w);
	}
	rewrite_done(r, status);
}

static void rewrite_copy(struct rewrite *r)
{
	struct pool_node *n = r->n;
	struct node_entry *e = r->from->entry;
	int err;

	if (!e || e->own || e->gen != r->gen) {
		rewrite_done(r, -ESTALE); /* another version has come */
		return;
	}
	err = node_own_new(n, e, &e->attr, 0, &r->to);
	if (err) {
		rewrite_done(r, err);
		return;
	}
	node_object_ref(r->to);
	pool_xattrs_free(r->to->w->xattrs);
	r->to->w->xattrs = pool_xattrs_dup(e->xattrs);
	r->to->w->pristine_copy = true;
	r->copy.limit = r->keep;
	r->copy.from = node_object_open(n, r->from, O_RDONLY);
	r->copy.fd = pool_node_writer_fd(n, r->to);
	err = r->copy.from < 0 ? r->copy.from :
	      r->copy.fd < 0   ? r->copy.fd :
				 pool_copy_start(n->store, &r->copy,
						 rewrite_copied);
	if (err)
		rewrite_done(r, err);
}

static void rewrite_claimed(struct node_claim *c, int status)
{
	struct rewrite *r = pool_container_of(c, struct rewrite, claim);

	if (status) {
		rewrite_done(r, status);
		return;
	}
	r->claimed = true;
	rewrite_copy(r);
}

static void rewrite_have(struct rewrite *r, struct node_object *from)
{
	int rc;

	r->from = from;
	from->users++;
	if (r->keep > from->size)
		r->keep = from->size;
	rc = pool_node_claim_start(r->n, &r->claim, r->keep, 0,
				   rewrite_claimed);
	if (rc != 0)
		rewrite_claimed(&r->claim, rc == 1 ? 0 : rc);
}

static void rewrite_wanted(struct node_want *w, struct node_object *obj,
			   int status)
{
	struct rewrite *r = pool_container_of(w, struct rewrite, want);

	if (status)
		rewrite_done(r, status);
	else
		rewrite_have(r, obj);
}

int pool_node_rewrite_start(struct pool_node *n, struct node_entry *e,
			    uint64_t keep, node_done_cb cb, void *arg)
{
	struct node_object *o;
	struct rewrite *r;
	int rc;

	if (e->own)
		return 1;
	if (!pool_node_published(e))
		return -ENOENT;
	if (keep == 0) {
		rc = node_own_new(n, e, &e->attr, e->size, &o);
		if (rc)
			return rc;
		o->w->xattrs = pool_xattrs_dup(e->xattrs);
		return 1;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->n = n;
	r->e = e;
	r->gen = e->gen;
	r->copy.from = -1;
	r->keep = keep;
	r->cb = cb;
	r->arg = arg;
	rc = pool_node_want_start(n, e, &r->want, &o, rewrite_wanted);
	if (rc < 0) {
		free(r);
		return rc;
	}
	if (rc == 1)
		rewrite_have(r, o);
	return 0;
}
