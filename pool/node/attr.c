/*
 * Attributes: changed here at once, sent to the master afterwards.
 *
 * The master decides a name's attributes. The feed has a local change only
 * after its ack (both use the same connection, and the ack is sent first). So
 * unacked local changes are applied on top of the attributes that the feed
 * brings. Each extended attribute is a change of its own, so two mounts can set
 * different ones of the same name; for the same one, the later change wins.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <string.h>
#include <sys/xattr.h>

/* ---- times ---- */

void pool_node_modified(struct pool_node *n, struct node_object *o,
			uint64_t wall_ns)
{
	node_own_stamp(n, o);
	o->w->attr.mtime_ns = wall_ns;
}

void pool_node_emptied(struct pool_node *n, struct node_object *o,
		       uint64_t wall_ns)
{
	pool_node_modified(n, o, wall_ns);
	o->w->emptied_ns = pool_now_ns();
}

/* Sets the times after a local change c. */
static void set_times(struct pool_node *n, struct pool_entry *pe,
		      const struct node_change *c)
{
	struct node_dirent *d = node_dir(pe);
	struct node_entry *e = node_file(pe);

	if (d && c->set & POOL_SET_MTIME)
		d->mtime_ns = 0;
	if (d)
		d->ctime_ns = pool_wall_ns();
	else if (e->own && c->set & POOL_SET_MTIME)
		node_own_stamp(n, e->own);
}

/* ---- attributes from the master ---- */

int node_attr_update(struct pool_node *n, struct node_attr *a,
		     struct pool_xattrs **x, const Kvpool__Meta *m)
{
	struct node_attr new;
	struct pool_xattrs *nx = NULL;
	bool changed;
	int err = pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &nx);

	if (err == -EINVAL) /* keep the current ones */
		err = pool_xattrs_dup(*x, &nx);
	if (err)
		return err;
	node_attr_from_meta(m, &new);
	err = node_ops_overlay(n, (const char *)m->path.data, m->path.len,
			       &new, &nx);
	if (err) {
		pool_xattrs_free(nx);
		return err;
	}
	changed = a->mode != new.mode || a->uid != new.uid ||
		  a->gid != new.gid || a->mtime_ns != new.mtime_ns ||
		  !pool_xattrs_equal(*x, nx);
	*a = new;
	pool_xattrs_free(*x);
	*x = nx;
	return changed;
}

/* ---- changes from the mount ---- */

/* Queues the change for the master, and stores it in the file's metadata for a
 * restart. */
static int queue_change(struct pool_node *n, struct pool_entry *pe,
		const struct node_change *c)
{
	struct node_entry *e = node_file(pe);
	int err;

	if (!e || !e->own)
		return c->set ? node_op_setattr(n, pe, c) : 0;
	/* The file's PUBLISH carries them, unless it is in flight. */
	e->own->w->stale_blob = true;
	if (e->own->state != NODE_PENDING)
		return 0;
	err = node_write_blob(n, e->own);
	if (err || e->own->w->phase == WRITER_SEALED)
		return err;
	return node_op_setattr(n, pe, c);
}

static void show_xattrs(struct pool_node *n, struct pool_xattrs **x,
			struct pool_xattrs *xattrs)
{
	node_names_begin(n);
	*x = xattrs;
	node_names_end(n);
}

/* Applies c and queues it. xattrs: the whole new set, if it changes (owned from
 * now on). */
static int change(struct pool_node *n, struct pool_entry *pe,
		  const struct node_change *c, struct pool_xattrs *xattrs)
{
	bool sets = c->set & (POOL_SET_XATTRS | POOL_SET_XATTR_EACH);
	struct node_dirent *d = node_dir(pe);
	struct node_entry *e = node_file(pe);
	struct pool_xattrs **x = d ? &d->xattrs :
				 e->own ? &e->own->w->xattrs : &e->xattrs;
	struct node_attr *a = d ? &d->attr :
			      e->own ? &e->own->w->attr : &e->attr;
	struct pool_xattrs *old = *x;
	struct node_attr was = *a;
	int err = node_may_set(pe);

	if (!err && c->set & (POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID))
		err = node_may_own(n, a->uid);
	if (!err && c->set & POOL_SET_UID)
		err = node_may_own(n, c->attr.uid);
	if (!err && sets)
		err = node_admit(n, a->uid, 0, old, xattrs);
	if (err) {
		if (sets)
			pool_xattrs_free(xattrs);
		return err;
	}
	node_change_set(a, c);
	if (sets)
		show_xattrs(n, x, xattrs);
	err = queue_change(n, pe, c);
	if (err) {
		*a = was;
		if (sets) {
			show_xattrs(n, x, old);
			pool_xattrs_free(xattrs);
		}
		if (e && e->own && e->own->state == NODE_PENDING)
			(void)node_write_blob(n, e->own);
		return err;
	}
	node_account(n, pe);
	set_times(n, pe, c);
	if (sets) {
		pool_xattrs_free(old);
		if (d && node_dir_rules(d))
			node_judge_below(n, d);
		if (e && !e->own && e->obj && e->obj->state == NODE_HELD)
			node_judge(n, e->obj);
	}
	/* Stored with the local copy, for a restart. */
	if (c->set && e && !e->own && e->obj && e->obj->gen == e->gen)
		(void)node_write_blob(n, e->obj);
	return 0;
}

int pool_node_setattr(struct pool_node *n, struct pool_entry *pe,
		      unsigned int set, const struct node_attr *attr,
		      struct pool_xattrs *xattrs)
{
	struct node_change c = { .set = set, .attr = *attr, .xattrs = xattrs };

	return change(n, pe, &c, xattrs);
}

int pool_node_setxattr(struct pool_node *n, struct pool_entry *pe,
		       const char *name, const void *value, size_t len,
		       int flags)
{
	struct node_change c = { .set = POOL_SET_XATTR_EACH,
				 .remove = value ? NULL : name };
	struct pool_xattrs *all, *one = NULL;
	int err = pool_xattrs_dup(pool_node_xattrs(pe), &all);

	if (err)
		return err;
	err = pool_xattrs_set(&all, name, value, len, flags);
	if (!err && value)
		err = pool_xattrs_set(&one, name, value, len, 0);
	if (err) {
		pool_xattrs_free(all);
		return err;
	}
	c.xattrs = one;
	err = change(n, pe, &c, all);
	pool_xattrs_free(one);
	return err;
}
