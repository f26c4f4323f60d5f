/*
 * Names: entries of the mirror's tree, what they show, and the rules in force
 * for them. The lowest file of the node: it changes no object's state.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <string.h>

struct node_entry *node_file(struct pool_entry *e)
{
	return e && !e->is_dir ? (struct node_entry *)(void *)e : NULL;
}

struct node_dirent *node_dir(struct pool_entry *e)
{
	return e && e->is_dir ? (struct node_dirent *)(void *)e : NULL;
}

struct pool_entry *node_file_entry(const struct node_entry *e)
{
	return (struct pool_entry *)(uintptr_t)&e->e;
}

struct pool_dir *node_dir_tree(const struct node_dirent *d)
{
	return (struct pool_dir *)(uintptr_t)&d->d;
}

struct node_dirent *pool_node_parent(const struct pool_entry *e)
{
	return (struct node_dirent *)(void *)e->parent;
}

/* Static, so that it is inlined: queries call it for each key. */
static bool is_published(const struct node_entry *e)
{
	return e->gen != 0 && e->gen > e->hidden_gen;
}

bool pool_node_published(const struct node_entry *e)
{
	return is_published(e);
}

static unsigned int reach_of(const struct pool_entry *pe)
{
	return ((const struct node_dirent *)(const void *)pe)->reach;
}

bool node_is_ours(const struct pool_entry *pe)
{
	return pe->is_dir ? reach_of(pe) != POOL_OUTSIDE :
			    reach_of(&pe->parent->e) <= POOL_TOP;
}

int node_may_change_in(const struct node_dirent *dir)
{
	return dir->reach <= POOL_TOP ? 0 : -EACCES;
}

int node_may_set(const struct pool_entry *pe)
{
	return reach_of(pe->is_dir ? pe : &pe->parent->e) <= POOL_TOP ?
		       0 :
		       -EACCES;
}

int node_may_own(const struct pool_node *n, uint32_t uid)
{
	return pool_tls_id_speaks_for(n->self, uid) ? 0 : -EACCES;
}

bool pool_node_visible(const struct pool_entry *pe)
{
	const struct node_entry *e = (const void *)pe;

	if (!node_is_ours(pe))
		return false;
	if (pe->is_dir)
		return !((const struct node_dirent *)(const void *)pe)->gone;
	return e->own || pool_node_published(e);
}

enum node_where pool_node_where(const struct pool_entry *pe)
{
	const struct node_entry *e = (const void *)pe;

	if (pe->is_dir || reach_of(&pe->parent->e) > POOL_TOP ||
	    (!e->own && !is_published(e)))
		return NODE_NOWHERE;
	return e->own || __atomic_load_n(&e->obj, __ATOMIC_RELAXED) ?
		       NODE_HERE : NODE_AT_PEER;
}

const struct node_attr *pool_node_attr(const struct pool_entry *pe)
{
	const struct node_entry *e = (const void *)pe;

	if (pe->is_dir)
		return &((const struct node_dirent *)(const void *)pe)->attr;
	return e->own ? &e->own->w->attr : &e->attr;
}

struct pool_xattrs *pool_node_xattrs(const struct pool_entry *pe)
{
	const struct node_entry *e = (const void *)pe;

	if (pe->is_dir)
		return ((const struct node_dirent *)(const void *)pe)->xattrs;
	return e->own ? e->own->w->xattrs : e->xattrs;
}

struct pool_tree *pool_node_tree(struct pool_node *n)
{
	return &n->tree;
}

struct pool_store *pool_node_store(struct pool_node *n)
{
	return n->store;
}

struct node_dirent *pool_node_root(struct pool_node *n)
{
	return (struct node_dirent *)(void *)n->tree.root;
}

const struct pool_tls_id *pool_node_self(const struct pool_node *n)
{
	return n->self;
}

bool pool_node_complete(const struct pool_node *n)
{
	return n->complete;
}

int node_entry_path(const struct pool_entry *e, char *buf)
{
	return pool_tree_path(e, buf, POOL_PATH_MAX + 1);
}

static void rules_from_xattrs(const struct pool_xattrs *x, bool is_dir,
			      struct pool_rules *r)
{
	size_t cursor = 0, len;
	const char *name;
	const void *value;
	uint64_t now = 0;

	memset(r, 0, sizeof(*r));
	while (pool_xattrs_next(x, &cursor, &name, &value, &len)) {
		if (strncmp(name, POOL_XATTR_PREFIX,
			    strlen(POOL_XATTR_PREFIX)) != 0)
			continue;
		if (!now)
			now = pool_wall_ns();
		(void)pool_rules_set(r, name, value, len, is_dir, now, NULL);
	}
}

bool node_dir_rules(struct node_dirent *d)
{
	struct pool_rules was = d->rules;

	rules_from_xattrs(d->xattrs, true, &d->rules);
	return was.class != d->rules.class || was.pin != d->rules.pin;
}

void pool_node_rules(struct pool_node *n, struct pool_entry *e,
		     struct pool_rules *ret)
{
	struct pool_dir *d;

	(void)n;
	memset(ret, 0, sizeof(*ret));
	if (!e->is_dir && pool_node_xattrs(e))
		rules_from_xattrs(pool_node_xattrs(e), false, ret);
	for (d = e->is_dir ? pool_entry_dir(e) : e->parent; d;
	     d = d->e.parent)
		pool_rules_inherit(ret, &node_dir(&d->e)->rules);
	pool_rules_default(ret);
}

int node_name_check(const struct node_dirent *dir, const char *name, size_t len)
{
	char path[POOL_PATH_MAX + 1];
	int above = pool_tree_path(&dir->d.e, path, sizeof(path));
	int err = pool_name_check(name, len);

	if (err || above < 0)
		return err ? err : above;
	return (size_t)above + (above > 0) + len > POOL_PATH_MAX ?
		       -ENAMETOOLONG : 0;
}

void node_account(struct pool_node *n, struct pool_entry *pe)
{
	struct node_dirent *d = node_dir(pe);
	struct node_entry *e = node_file(pe);
	struct pool_quota *q = &n->quota;

	if (e) {
		pool_xattrs_charge(e->xattrs, q, e->attr.uid);
		if (e->own)
			pool_xattrs_charge(e->own->w->xattrs, q,
					   e->own->w->attr.uid);
		return;
	}
	if (d->counted)
		pool_quota_sub(q, d->payer, 1, 0);
	d->counted = pe->parent && !d->gone && node_is_ours(pe);
	d->payer = d->attr.uid;
	if (d->counted)
		pool_quota_add(q, d->payer, 1, 0);
	pool_xattrs_charge(d->xattrs, d->gone ? NULL : q, d->payer);
}

int node_admit(struct pool_node *n, uint32_t uid, unsigned int dirs,
	       const struct pool_xattrs *old, const struct pool_xattrs *xattrs)
{
	size_t had = pool_xattrs_size(old), size = pool_xattrs_size(xattrs);
	int err = pool_quota_check(&n->quota, uid, dirs,
				   size > had ? size - had : 0);

	if (err) {
		pool_count(&n->c.quota_refused);
		pool_warn_limited("%s of user %u refused: %s",
				  dirs ? "a directory" : "attributes", uid,
				  strerror(-err));
	}
	return err;
}

/* Sets d->reach of a new directory, before other threads can see it. */
static void set_reach(const struct pool_node *n, struct pool_entry *e)
{
	struct node_dirent *d = node_dir(e);
	unsigned int up = reach_of(&e->parent->e);
	char path[POOL_PATH_MAX + 1];
	int len;

	if (!d || up == POOL_INSIDE)
		return;
	if (up != POOL_ABOVE) {
		d->reach = up == POOL_TOP ? POOL_INSIDE : POOL_OUTSIDE;
		return;
	}
	len = node_entry_path(e, path);
	d->reach = len < 0 ? POOL_OUTSIDE :
			     (uint8_t)pool_tls_id_reach(n->self, path,
							(size_t)len);
}

struct pool_entry *node_tree_add(struct pool_node *n, struct node_dirent *dir,
				 const char *name, size_t len, bool is_dir)
{
	struct pool_entry *e;

	node_names_begin(n);
	e = pool_tree_add(&n->tree, &dir->d, name, len, is_dir);
	if (e)
		set_reach(n, e);
	node_names_end(n);
	return e;
}

struct making {
	const struct pool_node *n;
	void (*on_add)(struct pool_entry *e, void *arg);
	void *arg;
};

static void on_made(struct pool_entry *e, void *arg)
{
	const struct making *m = arg;

	set_reach(m->n, e);
	if (m->on_add)
		m->on_add(e, m->arg);
}

int node_tree_make(struct pool_node *n, const char *path, size_t len,
		   bool is_dir,
		   void (*on_add)(struct pool_entry *e, void *arg), void *arg,
		   struct pool_entry **ret_entry)
{
	struct making m = { n, on_add, arg };
	int err;

	node_names_begin(n);
	err = pool_tree_make(&n->tree, path, len, is_dir, on_made, &m,
			     ret_entry);
	node_names_end(n);
	return err;
}

void node_hide(struct pool_node *n, struct node_entry *e, uint64_t gen)
{
	node_names_begin(n);
	e->hidden_gen = gen;
	node_names_end(n);
}

void node_unpublish(struct pool_node *n, struct node_entry *e)
{
	node_names_begin(n);
	e->gen = 0;
	node_names_end(n);
}

void node_dir_gone(struct pool_node *n, struct node_dirent *d, bool gone)
{
	struct node_dirent *up = node_dir(&d->d.e.parent->e);

	if (d->gone != gone)
		up->ngone += gone ? 1u : -1u;
	d->leaving = false;
	node_names_begin(n);
	d->gone = gone;
	node_names_end(n);
	node_account(n, &d->d.e);
}

uint64_t pool_node_dir_dirs(const struct node_dirent *d)
{
	const struct pool_list *it;
	uint64_t count = 0;

	if (d->reach != POOL_ABOVE)
		return d->d.ndirs - d->ngone;
	/* Invisible ones are outside of the node's namespaces. */
	for (it = d->d.children.next; it != &d->d.children; it = it->next) {
		const struct pool_entry *e =
			pool_list_entry(it, struct pool_entry, sibling);

		count += e->is_dir && pool_node_visible(e);
	}
	return count;
}

void pool_node_set_inode(struct pool_entry *pe, void *inode)
{
	struct node_entry *e = node_file(pe);

	if (e)
		e->fs = inode;
	else
		node_dir(pe)->fs = inode;
}

void pool_node_dir_changed(struct node_dirent *d, uint64_t wall_ns)
{
	d->ctime_ns = wall_ns;
}

void pool_node_dir_touch(struct node_dirent *d, uint64_t wall_ns)
{
	d->mtime_ns = d->ctime_ns = wall_ns;
}

uint64_t pool_node_dir_mtime(const struct node_dirent *d)
{
	return d->mtime_ns ? d->mtime_ns : d->attr.mtime_ns;
}

bool node_dir_empty(struct node_dirent *dir)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &dir->d.children)
		if (pool_node_visible(
			    pool_list_entry(it, struct pool_entry, sibling)))
			return false;
	return true;
}

void node_dir_remove(struct pool_node *n, struct node_dirent *d)
{
	struct node_dirent *up;

	if (!d->d.e.parent || d->gone || d->making)
		return;
	if (!node_dir_empty(d)) { /* shows an unpublished file of this mount */
		d->known = false;
		d->leaving = true;
		return;
	}
	up = node_dir(&d->d.e.parent->e);
	if (n->ops)
		n->ops->dir_gone(n->ops_arg, d);
	node_dir_gone(n, d, true);
	node_dir_tidy(n, up); /* up itself stays while d is in it */
	node_dir_tidy(n, d);
}

void node_dir_tidy(struct pool_node *n, struct node_dirent *d)
{
	struct node_dirent *up;

	while (d->gone && !d->removing && d->d.nchildren == 0 &&
	       d->d.e.parent && !d->fs) {
		up = node_dir(&d->d.e.parent->e);
		node_names_begin(n);
		pool_xattrs_free(d->xattrs);
		up->ngone--;
		pool_tree_remove(&n->tree, &d->d.e);
		node_names_end(n);
		d = up;
	}
	if (d->leaving)
		node_dir_remove(n, d);
}

void node_entry_tidy(struct pool_node *n, struct node_entry *e)
{
	struct node_dirent *d = node_dir(&e->e.parent->e);

	if (!e->gen && !e->obj && !e->own && !e->fetch && !e->fs &&
	    !e->hidden_gen) {
		pool_xattrs_free(e->xattrs);
		node_names_begin(n);
		pool_tree_remove(&n->tree, &e->e);
		node_names_end(n);
	}
	node_dir_tidy(n, d);
}

void pool_node_tidy(struct pool_node *n, struct pool_entry *pe)
{
	struct node_dirent *d = node_dir(pe);

	if (d)
		node_dir_tidy(n, d);
	else
		node_entry_tidy(n, node_file(pe));
}

void node_attr_from_meta(const Kvpool__Meta *m, struct node_attr *ret)
{
	ret->mode = m->mode & 01777;
	ret->uid = m->uid;
	ret->gid = m->gid;
	ret->mtime_ns = m->mtime_ns;
	ret->gen = m->attr_gen;
}

void node_make_dirs_known(struct pool_node *n, struct pool_dir *d)
{
	(void)n;
	for (; d && !node_dir(&d->e)->known; d = d->e.parent) {
		node_dir(&d->e)->known = true;
		node_dir(&d->e)->leaving = false;
	}
}
