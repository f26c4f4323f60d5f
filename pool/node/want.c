/*
 * Requests of the mount: an OPEN waits for an object; a look-up hit protects
 * the local copy from eviction for a while, or prefetches the object. A copy
 * that was found at the start, or that may be damaged (doubt.c), is verified
 * before it is served.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PREFETCH_BYTES_MAX (256ull << 20)

/* A local copy that is being checked. */
struct node_recheck {
	struct pool_verify v;
	struct pool_node *n;
	struct node_object *o; /* ref */
	struct pool_list wants;
	struct node_recheck *next; /* in node->rechecks */
};

/* The local copy of e cannot be served. If it was damaged, another holder may
 * have the object: fetches it. Else, or if that fails, w gets -ENOENT. */
static void want_again(struct pool_node *n, struct node_entry *e,
		       struct node_want *w, bool damaged)
{
	if (!damaged || n->closing || !pool_node_published(e) ||
	    node_fetch_for(n, e, w))
		w->cb(w, NULL, -ENOENT);
}

static void on_rechecked(struct pool_verify *v, int status)
{
	struct node_recheck *r = pool_container_of(v, struct node_recheck, v),
			    **at;
	struct node_object *o = r->o;
	struct pool_node *n = r->n;
	struct node_entry *e = o->entry;
	struct node_want *w;
	bool damaged = false;

	for (at = &n->rechecks; *at != r; at = &(*at)->next)
		;
	*at = r->next;
	o->users--;
	if (status == 0) {
		o->verified = true;
	} else if (n->closing) {
		/* The next start verifies the copy again. */
	} else if (status == -EBADMSG || status == -ENOENT) {
		damaged = e && e->obj == o;
		if (damaged)
			node_object_damaged(n, o, status);
	} else {
		pool_warn_limited("store file %016llx cannot be checked: %s",
				  (unsigned long long)o->id, strerror(-status));
	}
	while (!pool_list_empty(&r->wants)) {
		w = pool_list_first(&r->wants, struct node_want, link);
		pool_list_del(&w->link);
		if (status == 0)
			w->cb(w, node_object_ref(o), 0);
		else
			want_again(n, e, w, damaged);
	}
	if (damaged)
		node_entry_tidy(n, e);
	node_doubt_checked(n, o, status);
	node_object_unref(n, o);
	free(r);
}

/* w may be NULL. */
static int recheck_start(struct pool_node *n, struct node_object *o,
			 struct node_want *w)
{
	struct node_recheck *r;

	for (r = n->rechecks; r; r = r->next) {
		if (r->o == o) {
			if (w)
				pool_list_add_tail(&r->wants, &w->link);
			return 0;
		}
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->n = n;
	r->v.id = o->id;
	r->v.sum = o->sum;
	pool_verify_start(n->store, &r->v, on_rechecked);
	pool_list_init(&r->wants);
	if (w)
		pool_list_add_tail(&r->wants, &w->link);
	r->o = node_object_ref(o);
	o->users++;
	r->next = n->rechecks;
	n->rechecks = r;
	return 0;
}

int node_recheck(struct pool_node *n, struct node_object *o)
{
	return recheck_start(n, o, NULL);
}

int pool_node_want_start(struct pool_node *n, struct node_entry *e,
			 struct node_want *w, struct node_object **ret_obj,
			 void (*cb)(struct node_want *w,
				    struct node_object *obj, int status))
{
	struct node_object *o = e->obj;

	pool_list_init(&w->link);
	w->fetched = false;
	w->cb = cb;
	if (!pool_node_published(e))
		return -ENOENT;
	if (o && o->state == NODE_HELD && o->gen == e->gen) {
		if (!o->verified)
			return recheck_start(n, o, w);
		*ret_obj = node_object_ref(o);
		return 1;
	}
	return node_fetch_for(n, e, w);
}

void pool_node_want_cancel(struct pool_node *n, struct node_want *w)
{
	(void)n;
	pool_list_del(&w->link);
}

void pool_node_prefetch(struct pool_node *n, struct node_entry *e)
{
	if (e->obj)
		node_object_look(e->obj);
	if (n->opts.prefetch_max == 0 || e->own || e->fetch ||
	    e->nholders == 0 || (e->obj && e->obj->gen == e->gen) ||
	    !pool_node_published(e))
		return;
	if (n->nprefetch >= n->opts.prefetch_max ||
	    e->size > PREFETCH_BYTES_MAX)
		pool_count(&n->c.prefetch_skipped);
	else if (node_fetch_ahead(n, e) == 0)
		pool_count(&n->c.prefetched);
}

void pool_node_used(struct pool_node *n, struct node_object *o)
{
	o->read = true;
	if (o->state != NODE_HELD)
		return;
	if (o->prefetched) {
		o->prefetched = false;
		pool_gauge_add(&n->c.prefetch_unread, -1);
		pool_count(&n->c.prefetch_useful);
	}
	if (pool_evict_inserted(&o->ev))
		pool_evict_touch(n->evict, &o->ev);
}
