/*
 * Begins a new generation of a published name: `own` is empty, or a copy of the
 * published content, which is fetched first if there is no local copy.
 *
 * The copy is not visible before it is complete: until then the name shows the
 * published version, and other writers retry (-EAGAIN).
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

struct rewrite {
	struct pool_list link; /* node->rewrites */
	struct pool_node *n;
	struct node_entry *e; /* kept alive by its fetch */
	uint64_t keep, gen;
	struct node_want want;
	struct node_object *from; /* ref; its entry is the name */
	struct node_object *to;	  /* ref until it is shown */
	struct node_claim claim;
	struct pool_copy copy;
	node_done_cb cb;
	void *arg;
	bool claimed;
};

/* Makes a file with the published attributes. No name shows it yet. */
static int own_like(struct pool_node *n, struct node_entry *e,
		    uint64_t size_hint, struct node_object **ret_obj)
{
	struct node_object *o;
	int err = node_own_make(n, e, &e->attr, size_hint, &o);

	if (err)
		return err;
	err = pool_xattrs_dup(e->xattrs, &o->w->xattrs);
	if (err)
		node_own_discard(n, o);
	else
		*ret_obj = o;
	return err;
}

static void rewrite_done(struct rewrite *r, int status)
{
	struct pool_node *n = r->n;

	if (r->claimed)
		pool_node_claim_end(n, r->keep);
	if (r->copy.from >= 0)
		close(r->copy.from);
	if (r->copy.fd >= 0)
		close(r->copy.fd);
	if (r->to)
		node_own_discard(n, r->to);
	if (r->from) {
		r->from->users--;
		node_object_unref(n, r->from);
	}
	pool_list_del(&r->link);
	r->cb(r->arg, status);
	free(r);
}

/* The name, if it still shows the copied version; else NULL. */
static struct node_entry *rewrite_entry(const struct rewrite *r)
{
	struct node_entry *e = r->from->entry;

	return e && !e->own && e->gen == r->gen ? e : NULL;
}

/* The copy is complete: the name shows it from now on. */
static void rewrite_copied(struct pool_copy *c, int status)
{
	struct rewrite *r = pool_container_of(c, struct rewrite, copy);
	struct node_entry *e = rewrite_entry(r);

	if (!status && !e)
		status = -ESTALE; /* another version was published */
	if (!status) {
		/* Kept open, a writable descriptor would delay its sealing. */
		close(r->copy.fd);
		r->copy.fd = -1;
		if (!r->to->w->served)
			node_writer_close_fd(r->n, r->to->w);
		node_own_stamp(r->n, r->to);
		node_own_show(r->n, e, r->to);
		r->to = NULL;
	}
	rewrite_done(r, status);
}

static int rewrite_begin_copy(struct rewrite *r, struct node_entry *e)
{
	struct pool_node *n = r->n;
	int err = own_like(n, e, 0, &r->to);

	if (err)
		return err;
	r->to->w->pristine_copy = true;
	r->to->w->emptied_ns = 0;
	r->copy.limit = r->keep;
	r->copy.from = node_object_open(n, r->from, O_RDONLY);
	if (r->copy.from < 0)
		return r->copy.from;
	/* A descriptor that only the worker uses. */
	r->copy.fd = pool_store_fd(n->store, r->to->id, O_RDWR);
	if (r->copy.fd < 0)
		return r->copy.fd;
	pool_copy_start(n->store, &r->copy, rewrite_copied);
	return 0;
}

static void rewrite_copy(struct rewrite *r)
{
	struct node_entry *e = rewrite_entry(r);
	int err = e ? rewrite_begin_copy(r, e) : -ESTALE;

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
	r->claim.put = true;
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

/* Is a copy in progress? */
static bool rewriting(struct pool_node *n, const struct node_entry *e)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->rewrites) {
		struct rewrite *r = pool_list_entry(it, struct rewrite, link);

		if ((r->from ? r->from->entry : r->e) == e)
			return true;
	}
	return false;
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
		rc = own_like(n, e, e->size, &o);
		if (rc)
			return rc;
		node_own_show(n, e, o);
		return 1;
	}
	if (rewriting(n, e))
		return -EAGAIN;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->n = n;
	r->e = e;
	r->gen = e->gen;
	r->copy.from = r->copy.fd = -1;
	r->keep = keep;
	r->cb = cb;
	r->arg = arg;
	pool_list_add_tail(&n->rewrites, &r->link);
	node_not_idle(n);
	rc = pool_node_want_start(n, e, &r->want, &o, rewrite_wanted);
	if (rc < 0) {
		pool_list_del(&r->link);
		free(r);
		return rc;
	}
	if (rc == 1)
		rewrite_have(r, o);
	return 0;
}
