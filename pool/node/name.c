/*
 * Names: look-up, creation, rename, removal. Everything is answered from local
 * state; changes are queued for the master (ops.c).
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct pool_entry *pool_node_lookup(struct pool_node *n,
				    struct node_dirent *dir, const char *name,
				    size_t len)
{
	struct pool_entry *e = pool_tree_find(&n->tree, &dir->d, name, len);

	return e && pool_node_visible(e) ? e : NULL;
}

void pool_node_looked_up(struct pool_node *n, struct pool_entry *e)
{
	if (!e)
		pool_count(&n->c.lookup_misses);
	else if (!e->is_dir)
		pool_count(node_file(e)->obj ? &n->c.lookup_local :
						  &n->c.lookup_peer);
}

/* ---- directories ---- */

/* May this directory be made: is it in the node's namespaces, or one of these
 * itself? 0 or -EACCES. */
static int may_mkdir(const struct pool_node *n, const struct node_dirent *dir,
		     const char *name, size_t len)
{
	char path[POOL_PATH_MAX + 1];
	int at;

	if (dir->reach != POOL_ABOVE)
		return node_may_change_in(dir);
	at = node_entry_path(&dir->d.e, path);
	if (at > 0)
		path[at++] = '/';
	memcpy(path + at, name, len); /* node_name_check: it fits */
	return pool_tls_id_reach(n->self, path, (size_t)at + len) <= POOL_TOP ?
		       0 :
		       -EACCES;
}

int pool_node_mkdir(struct pool_node *n, struct node_dirent *dir,
		    const char *name, size_t len, const struct node_attr *attr,
		    struct node_dirent **ret_dir)
{
	struct pool_entry *e = pool_tree_find(&n->tree, &dir->d, name, len);
	struct node_dirent *d;
	int err = node_name_check(dir, name, len);

	if (err)
		return err;
	if (e && pool_node_visible(e))
		return -EEXIST;
	err = may_mkdir(n, dir, name, len);
	if (!err)
		err = node_may_own(n, attr->uid);
	if (err)
		return err;
	if (e && !e->is_dir)
		return -EBUSY; /* an unlinked file that the master still has */
	err = node_admit(n, attr->uid, 1, NULL, NULL);
	if (err)
		return err;
	if (!e)
		e = node_tree_add(n, dir, name, len, true);
	if (!e)
		return -ENOMEM;
	d = node_dir(e);
	d->attr = *attr;
	d->mtime_ns = d->ctime_ns = 0;
	/* An earlier directory of this name, being removed, may have left
	 * these. */
	node_names_begin(n);
	pool_xattrs_free(d->xattrs);
	d->xattrs = NULL;
	node_names_end(n);
	(void)node_dir_rules(d);
	err = node_op_name(n, KVPOOL__OP__KIND__MKDIR, e, 0);
	if (err) {
		node_dir_gone(n, d, true);
		node_dir_tidy(n, d);
		return err;
	}
	node_dir_gone(n, d, false);
	d->making++; /* ops_done.c decrements it at the ack */
	d->sweep = n->sweep;
	*ret_dir = d;
	return 0;
}

int pool_node_rmdir(struct pool_node *n, struct node_dirent *dir)
{
	int err;

	if (!dir->d.e.parent)
		return -EBUSY;
	err = node_may_change_in(pool_node_parent(&dir->d.e));
	if (err)
		return err;
	if (!node_dir_empty(dir))
		return -ENOTEMPTY;
	err = node_op_name(n, KVPOOL__OP__KIND__RMDIR, &dir->d.e, 0);
	if (err)
		return err;
	if (n->ops)
		n->ops->dir_gone(n->ops_arg, dir);
	node_dir_gone(n, dir, true);
	dir->removing++; /* ops_done.c decrements it at the ack */
	return 0;
}

/* ---- unlink, rename ---- */

/* Removes from the pool or hides on this mount, depending on the rule `unlink`.
 */
static int hide_published(struct pool_node *n, struct node_entry *e)
{
	struct pool_rules rules;

	if (!pool_node_published(e))
		return 0;
	pool_node_rules(n, &e->e, &rules);
	if (rules.unlink != POOL_UNLINK_NODE)
		return node_name_remove(n, e);
	node_hide(n, e, e->gen);
	if (e->obj && e->obj->state == NODE_HELD && !e->obj->counted)
		node_object_drop(n, e->obj, false);
	return 0;
}

/* e's PUBLISH may have been executed: queues the removal of whatever generation
 * it got or gets, and hides all until the ack. */
static int remove_any(struct pool_node *n, struct node_entry *e)
{
	int err = node_op_name(n, KVPOOL__OP__KIND__UNLINK, &e->e, 0);

	if (!err && e->hidden_gen < NODE_HIDES_ANY)
		node_hide(n, e, UINT64_MAX); /* until the ack */
	else if (!err && e->hidden_gen > NODE_HIDES_ANY)
		node_hide(n, e, e->hidden_gen - 1); /* one more is in flight */
	return err;
}

/*
 * e's own file, unpublished, was to replace an earlier version. That version
 * may have been evicted, and a node that rejoins may bring it back. So all
 * versions that this node has seen are deleted, as if the file had been
 * published before its unlink.
 */
static int remove_unpublished(struct pool_node *n, struct node_entry *e)
{
	const struct node_writer *w = e->own ? e->own->w : NULL;
	struct pool_rules rules;
	int err;

	if (!w || w->phase == WRITER_OPEN || w->scratch ||
	    w->phantom_gen || !n->seen_gen)
		return 0;
	if (!w->renamed &&
	    node_name_is_temporary(pool_entry_name(&e->e), e->e.name_len))
		return 0;
	pool_node_rules(n, &e->e, &rules);
	if (rules.unlink == POOL_UNLINK_NODE)
		return 0;
	err = node_op_name(n, KVPOOL__OP__KIND__UNLINK, &e->e, n->seen_gen);
	if (!err && e->hidden_gen < n->seen_gen)
		node_hide(n, e, n->seen_gen);
	return err;
}

int pool_node_unlink(struct pool_node *n, struct node_entry *e)
{
	bool published = pool_node_published(e);
	bool maybe_published =
		e->own && ((e->own->w && e->own->w->before) ||
			   (e->own->state == NODE_PENDING &&
			    node_op_maybe_executed(n, e->own)));
	int err = node_may_set(&e->e);

	if (!err)
		err = hide_published(n, e);
	if (!err && maybe_published)
		err = remove_any(n, e);
	else if (!err && !published)
		err = remove_unpublished(n, e);
	if (err)
		return err;
	if (e->own)
		node_own_drop(n, e);
	return 0;
}

static bool is_movable(const struct node_object *o)
{
	return o->state == NODE_WRITING || o->state == NODE_SEALING ||
	       o->state == NODE_PENDING;
}

static int move_own(struct pool_node *n, struct node_entry *from,
		    struct node_entry *to)
{
	struct node_object *o = from->own;
	struct node_writer *w = o->w;
	bool queued = w->phase == WRITER_QUEUED;
	bool published = pool_node_published(from);
	/* The master may have it under the old name. */
	bool maybe_published = queued && node_op_maybe_executed(n, o);
	int err;

	if (w->poison)
		return w->poison;
	if (!is_movable(o))
		return -EXDEV;
	err = hide_published(n, from);
	if (!err && maybe_published)
		err = remove_any(n, from);
	else if (!err && w->phantom_gen)
		err = node_op_name(n, KVPOOL__OP__KIND__UNLINK, &from->e,
				   w->phantom_gen);
	else if (!err && !published)
		err = remove_unpublished(n, from);
	if (err)
		return err;
	w->phantom_gen = 0; /* it belonged to the old name */
	free(w->before);
	w->before = NULL;
	w->again = false;
	o->entry = to;
	node_own_supersede(n, to, o, from);
	w->by = node_op_by(n);
	w->renamed = true;
	w->emptied_ns = 0;
	w->base_gen = to->gen;
	w->begun_ns = pool_now_ns();
	w->touched_ms = w->begun_ns / 1000000;
	w->stale_blob = true;
	if (w->phase == WRITER_OPEN)
		node_writer_to(n, w, WRITER_CLOSED);
	else
		node_candidate_update(n, o);
	if (queued) {
		node_op_forget(n, o);
		(void)node_write_blob(n, o);
		node_publish(n, o);
		return 0;
	}
	return node_try_seal(n, o, false);
}

/* Makes the local copy of the published object a new version of the new name,
 * without copying bytes, and removes the old name. -EXDEV: no such copy. */
static int move_held(struct pool_node *n, struct node_entry *from,
		     struct node_entry *to)
{
	struct node_object *o = from->obj;
	struct node_writer *w;
	int err;

	if (!o || o->state != NODE_HELD || o->gen != from->gen ||
	    o->lent_fd >= 0 || o->w)
		return -EXDEV;
	w = node_writer_new(o);
	if (!w)
		return -ENOMEM;
	w->attr = from->attr;
	w->base_gen = to->gen;
	w->seen_gen = n->seen_gen;
	w->by = node_op_by(n);
	w->renamed = w->was_held = true;
	w->ticket = ++n->ticket;
	err = pool_xattrs_dup(from->xattrs, &w->xattrs);
	if (!err)
		err = node_op_name(n, KVPOOL__OP__KIND__UNLINK, &from->e,
				   from->gen);
	if (err) {
		pool_xattrs_free(w->xattrs);
		free(w);
		return err;
	}
	node_hide(n, from, from->gen);
	/* Peers request and borrow it under the old name only. */
	node_heat_forget(n, o);
	o->lent = 0;
	node_set_obj(from, NULL);
	pool_evict_remove(n->evict, &o->ev, false);
	o->w = w;
	o->gen = o->from = 0;
	node_object_to(o, NODE_PENDING);
	pool_count(&n->c.copies_rewritten);
	o->entry = to;
	node_own_supersede(n, to, o, NULL);
	/* A cached copy has no metadata yet. */
	(void)(o->counted ? node_write_blob(n, o) : node_seal_fetched(n, o, 0));
	node_publish(n, o);
	return 0;
}

static int move_dir(struct pool_node *n, struct node_dirent *from,
		    struct node_dirent *dir, const char *name, size_t len,
		    struct pool_entry *target, struct pool_entry **ret_to)
{
	struct node_change all = { .set = POOL_SET_XATTRS };
	struct node_dirent *to;
	int err;

	if (!node_dir_empty(from) || from->d.nchildren > 0)
		return -EXDEV;
	if (target)
		return target->is_dir && !node_dir_empty(node_dir(target)) ?
			       -ENOTEMPTY : -EXDEV;
	err = pool_node_mkdir(n, dir, name, len, &from->attr, &to);
	if (err)
		return err;
	node_names_begin(n);
	to->xattrs = from->xattrs;
	from->xattrs = NULL;
	node_names_end(n);
	to->rules = from->rules;
	to->mtime_ns = from->mtime_ns;
	to->ctime_ns = pool_wall_ns();
	node_account(n, &to->d.e);
	all.xattrs = to->xattrs;
	if (to->xattrs)
		(void)node_op_setattr(n, &to->d.e, &all);
	*ret_to = &to->d.e;
	return 0; /* the caller rebinds its inode, then removes `from` */
}

/* Would the rename turn a scratch file, which is never published, into one that
 * is, or the reverse? That is refused: mv(1) then copies. */
static bool scratch_differs(struct pool_node *n, const struct node_entry *e,
			    struct node_dirent *dir)
{
	bool is = e->own && e->own->w && e->own->w->scratch;
	struct pool_rules rules;

	pool_node_rules(n, &dir->d.e, &rules);
	return is != (rules.class == POOL_CLASS_SCRATCH);
}

int pool_node_rename(struct pool_node *n, struct pool_entry *from,
		     struct node_dirent *dir, const char *name, size_t len,
		     bool noreplace, struct pool_entry **ret_to)
{
	struct pool_entry *to = pool_tree_find(&n->tree, &dir->d, name, len);
	struct node_entry *f, *t;
	bool added = false;
	int err = node_name_check(dir, name, len);

	if (!err)
		err = node_may_change_in(pool_node_parent(from));
	if (!err)
		err = node_may_change_in(dir);
	if (err)
		return err;
	if (to && pool_node_visible(to) && noreplace)
		return -EEXIST;
	if (to == from) {
		*ret_to = to;
		return 0;
	}
	err = node_may_own(n, pool_node_attr(from)->uid);
	if (err)
		return err;
	if (from->is_dir)
		return move_dir(n, node_dir(from), dir, name, len, to, ret_to);
	if (to && to->is_dir)
		return -EISDIR;
	if (from->parent != &dir->d &&
	    scratch_differs(n, node_file(from), dir))
		return -EXDEV;
	if (!to) {
		to = node_tree_add(n, dir, name, len, false);
		if (!to)
			return -ENOMEM;
		added = true;
	}
	f = node_file(from);
	t = node_file(to);
	err = f->own ? move_own(n, f, t) : move_held(n, f, t);
	if (err && added)
		node_entry_tidy(n, t);
	if (!err)
		*ret_to = to;
	return err;
}

/* ---- what is computed ---- */

const char *const pool_node_info_names[] = {
	"user.kvpool.generation", "user.kvpool.checksum",
	"user.kvpool.state",	  "user.kvpool.holders",
	"user.kvpool.nodes",	  "user.kvpool.replicas",
	NULL,
};

static const char *state_name(const struct node_entry *e)
{
	static const char *const names[] = { "writing", "sealing", "pending" };

	if (e->own)
		return e->own->w && e->own->w->scratch ? "scratch" :
						  names[e->own->state];
	if (!e->obj)
		return "remote";
	if (e->obj->lent_fd >= 0)
		return "borrowed";
	return e->obj->counted ? "held" : "cached";
}

static int node_names(struct pool_node *n, const struct node_entry *e,
		      char *buf, size_t cap)
{
	size_t len = 0;
	unsigned int i;

	buf[0] = '\0';
	for (i = 0; i < e->nholders; i++) {
		struct node_member *m = node_member(n, e->holders[i]);
		int k = snprintf(buf + len, cap - len, "%s%s",
				 len ? "," : "", m ? m->name : "?");

		if (k < 0 || (size_t)k >= cap - len)
			return -ERANGE;
		len += (size_t)k;
	}
	return (int)len;
}

int pool_node_info(struct pool_node *n, struct pool_entry *pe,
		   const char *name, char *buf, size_t cap)
{
	const struct node_entry *e = node_file(pe);
	struct pool_rules rules;
	XXH128_canonical_t c;
	XXH128_hash_t sum;
	size_t i;

	if (!e || strncmp(name, POOL_XATTR_PREFIX,
			  strlen(POOL_XATTR_PREFIX)) != 0)
		return -ENODATA;
	name += strlen(POOL_XATTR_PREFIX);
	if (strcmp(name, "state") == 0)
		return snprintf(buf, cap, "%s", state_name(e));
	/* A rule: shows the inherited value where none is set. */
	if (strcmp(name, "replicas") == 0) {
		pool_node_rules(n, pe, &rules);
		return snprintf(buf, cap, "%u", rules.replicas);
	}
	if (!pool_node_published(e) || e->own)
		return -ENODATA;
	if (strcmp(name, "generation") == 0)
		return snprintf(buf, cap, "%llu.%llu",
				(unsigned long long)pool_gen_epoch(e->gen),
				(unsigned long long)(e->gen &
				 ((1ull << POOL_GEN_SEQ_BITS) - 1)));
	if (strcmp(name, "holders") == 0)
		return snprintf(buf, cap, "%u", e->replicas);
	if (strcmp(name, "nodes") == 0)
		return node_names(n, e, buf, cap);
	if (strcmp(name, "checksum") != 0)
		return -ENODATA;
	if (cap < 33)
		return -ERANGE;
	sum = e->sum;
	XXH128_canonicalFromHash(&c, sum);
	for (i = 0; i < sizeof(c.digest); i++)
		snprintf(buf + 2 * i, 3, "%02x", c.digest[i]);
	return 32;
}
