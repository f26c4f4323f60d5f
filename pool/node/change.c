/* One change of attributes: applied to a name's attributes, copied, freed. */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void node_change_set(struct node_attr *a, const struct node_change *c)
{
	if (c->set & POOL_SET_MODE)
		a->mode = c->attr.mode & 01777;
	if (c->set & POOL_SET_UID)
		a->uid = c->attr.uid;
	if (c->set & POOL_SET_GID)
		a->gid = c->attr.gid;
	if (c->set & POOL_SET_MTIME)
		a->mtime_ns = c->attr.mtime_ns;
}

/* Skips an xattr that exceeds the limit together with those of other changes:
 * the master will refuse it, too. */
static int set_each(struct pool_xattrs **x, const struct node_change *c)
{
	size_t cursor = 0, len;
	const char *name;
	const void *value;
	int err = 0;

	while (err != -ENOMEM &&
	       pool_xattrs_next(c->xattrs, &cursor, &name, &value, &len))
		err = pool_xattrs_set(x, name, value, len, 0);
	if (err != -ENOMEM && c->remove)
		err = pool_xattrs_set(x, c->remove, NULL, 0, 0);
	return err == -ENOMEM ? err : 0;
}

int node_change_apply(const struct node_change *c, struct node_attr *a,
		      struct pool_xattrs **x)
{
	struct pool_xattrs *copy;
	int err;

	if (c->set & POOL_SET_XATTRS) {
		err = pool_xattrs_dup(c->xattrs, &copy);
		if (err)
			return err;
		pool_xattrs_free(*x);
		*x = copy;
	}
	err = c->set & POOL_SET_XATTR_EACH ? set_each(x, c) : 0;
	if (!err)
		node_change_set(a, c);
	return err;
}

int node_change_dup(const struct node_change *c, struct node_change *ret_copy)
{
	struct node_change copy = { .set = c->set, .attr = c->attr };
	int err = pool_xattrs_dup(c->xattrs, &copy.xattrs);

	if (!err && c->remove) {
		copy.remove = strdup(c->remove);
		err = copy.remove ? 0 : -ENOMEM;
	}
	if (err)
		pool_xattrs_free(copy.xattrs);
	else
		*ret_copy = copy;
	return err;
}

void node_change_free(struct node_change *c)
{
	pool_xattrs_free(c->xattrs);
	free((char *)(uintptr_t)c->remove);
}
