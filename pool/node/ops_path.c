/*
 * Unacked changes of attributes (SETATTR), by path.
 *
 * A program that keeps changing one name must not make the queue long, because
 * an fsync of any directory waits for all changes queued before it. So a
 * change is merged into an earlier one of the same path that was never sent and
 * is of the same kind: mode, owner and times together are one kind, each xattr
 * is a kind of its own. (The master refuses a change as a whole: an xattr that
 * finds no room must not make others fail.) The merged change keeps its place
 * and its ticket: a barrier for the later change waits for all tickets up to
 * its own, and so for this one.
 *
 * The later change is then executed before those queued between the two, so
 * these must not depend on it, nor it on them:
 *   - a change of the name itself (UNLINK, MKDIR, RMDIR): the attributes before
 *     it belong to another file. So it closes the changes queued before it:
 *     nothing is merged into them any more. (RMDIR closes no changes of names
 *     in the directory: these are removed before it. A PUBLISH closes nothing:
 *     it is sent with the attributes that its file has by then, later changes
 *     included.)
 *   - a change of mode or owner, if another change that affects access lies in
 *     between: a user may remove a file, then open its directory to all. So it
 *     is merged only if none of that kind was queued in between
 *     (access_ticket).
 *   - an xattr that grows may need the room of another that was removed in
 *     between, and is charged to the owner, who may have changed in between.
 * At the limit of a user's quota, the master may still refuse an xattr for
 * which the user made room by a change of another name, because it is now
 * executed first. The next fsync reports that, as it does if two nodes admit
 * xattrs at the same time that exceed the quota together.
 */
#include "pool/node/ops.h"

#include <string.h>

#include <xxhash.h>

#define ACCESS (POOL_SET_MODE | POOL_SET_UID | POOL_SET_GID)
#define ATTRS (ACCESS | POOL_SET_MTIME)
#define LOOK_BACK 64 /* changes of one path */

static uint32_t path_hash(const char *path, size_t len)
{
	return (uint32_t)XXH3_64bits_withSeed(path, len, pool_hash_seed());
}

/* The first change of this path, or NULL. */
static struct node_op *change_first(struct pool_node *n, const char *path,
				    size_t len)
{
	struct pool_hash_node *h =
		pool_hash_first(&n->changes, path_hash(path, len));
	struct node_op *op;

	for (; h; h = pool_hash_next(h)) {
		op = pool_container_of(h, struct node_op, by_path);
		if (op->path_len == len &&
		    (len == 0 || memcmp(op->path, path, len) == 0))
			return op;
	}
	return NULL;
}

/* The one before op in its ring; of the first one: the last one. */
static struct node_op *before(struct node_op *op)
{
	return pool_list_entry(op->same.prev, struct node_op, same);
}

int node_changes_add(struct pool_node *n, struct node_op *op)
{
	struct node_op *first = change_first(n, op->path, op->path_len);
	int err;

	if (op->c.set & ACCESS)
		n->access_ticket = op->ticket;
	if (first) {
		pool_list_add_tail(&first->same, &op->same);
		first->nsame++;
		return 0;
	}
	err = pool_hash_insert(&n->changes, &op->by_path,
			       path_hash(op->path, op->path_len));
	op->first = !err;
	op->nsame = 1;
	return err;
}

void node_changes_remove(struct pool_node *n, struct node_op *op)
{
	struct node_op *next;

	if (!op->first && !pool_list_empty(&op->same))
		change_first(n, op->path, op->path_len)->nsame--;
	if (op->first && !pool_list_empty(&op->same)) {
		next = pool_list_first(&op->same, struct node_op, same);
		/* Cannot fail: the table is not empty. */
		(void)pool_hash_insert(&n->changes, &next->by_path,
				       op->by_path.hash);
		next->first = true;
		next->nsame = op->nsame - 1;
	}
	if (op->first)
		pool_hash_remove(&n->changes, &op->by_path);
	pool_list_del(&op->same);
}

size_t node_changes_of(struct pool_node *n, const char *path, size_t len)
{
	const struct node_op *first = change_first(n, path, len);

	return first ? first->nsame : 0;
}

void node_changes_close(struct pool_node *n, const char *path, size_t len)
{
	struct node_op *first = change_first(n, path, len);

	if (first)
		before(first)->closed = true;
}

int node_ops_overlay(struct pool_node *n, const char *path, size_t path_len,
		     struct node_attr *a, struct pool_xattrs **x)
{
	struct node_op *op = change_first(n, path, path_len), *first = op;
	int err = 0;

	while (op && !err) {
		err = node_change_apply(&op->c, a, x);
		op = pool_list_entry(op->same.next, struct node_op, same);
		if (op == first)
			break;
	}
	return err;
}

/* ---- merging ---- */

/* May a later change be merged into op? Only if op was never sent: otherwise a
 * master may have executed it as it was. */
static bool is_open(const struct pool_node *n, const struct node_op *op)
{
	return !op->closed && !op->sent && !op->in_doubt && !op->number &&
	       !op->seen_gen && op->queued == !node_session_up(n);
}

enum kind { OTHER, OF_ATTRS, OF_XATTR };

static enum kind kind_of(const struct node_change *c)
{
	if (c->set == POOL_SET_XATTR_EACH)
		return OF_XATTR;
	return c->set & ~ATTRS ? OTHER : OF_ATTRS;
}

/* The one xattr that c sets (ret_len: its bytes) or removes (0); NULL: there
 * are several. */
static const char *xattr_of(const struct node_change *c, size_t *ret_len)
{
	size_t cursor = 0, len;
	const char *name, *other;
	const void *value;

	*ret_len = 0;
	if (!pool_xattrs_next(c->xattrs, &cursor, &name, &value, ret_len))
		return c->remove;
	return c->remove || pool_xattrs_next(c->xattrs, &cursor, &other, &value,
					     &len) ? NULL : name;
}

static bool sets_same(const struct node_change *a, const struct node_change *b)
{
	const char *name, *other;
	size_t len;

	if (kind_of(a) != kind_of(b) || kind_of(a) == OTHER)
		return false;
	if (kind_of(a) == OF_ATTRS)
		return true;
	name = xattr_of(a, &len);
	other = xattr_of(b, &len);
	return name && other && strcmp(name, other) == 0;
}

static bool grows(const struct node_change *from, const struct node_change *to)
{
	size_t had, has;

	(void)xattr_of(from, &had);
	(void)xattr_of(to, &has);
	return has > had;
}

/* May c be executed before `passed`, a change of other attributes? */
static bool may_pass(const struct node_change *passed,
		     const struct node_change *c)
{
	return kind_of(passed) != OTHER &&
	       !((passed->set | c->set) & POOL_SET_UID);
}

/* The change that c may be merged into, or NULL. */
static struct node_op *open_for(struct pool_node *n, const char *path,
				size_t len, const struct node_change *c)
{
	struct node_op *first = change_first(n, path, len);
	struct node_op *op = first ? before(first) : NULL;
	bool others = false; /* c would pass a change of another xattr */
	unsigned int i;

	for (i = 0; op && i < LOOK_BACK && is_open(n, op); i++) {
		if (sets_same(&op->c, c))
			return others && grows(&op->c, c) ? NULL : op;
		if (op == first || !may_pass(&op->c, c))
			return NULL;
		others |= kind_of(&op->c) == OF_XATTR;
		op = before(op);
	}
	return NULL;
}

/* op also sets what c sets. 0, or -ENOMEM: op is unchanged. */
static int merge(struct node_op *op, const struct node_change *c)
{
	struct node_change copy;
	int err;

	if (kind_of(c) == OF_ATTRS) {
		node_change_set(&op->c.attr, c);
		op->c.set |= c->set;
		return 0;
	}
	err = node_change_dup(c, &copy);
	if (err)
		return err;
	node_change_free(&op->c);
	op->c = copy;
	return 0;
}

bool node_changes_merge(struct pool_node *n, const char *path, size_t len,
			const struct node_change *c)
{
	struct node_op *op = open_for(n, path, len, c);

	if (!op || (c->set & ACCESS && n->access_ticket > op->ticket) ||
	    merge(op, c))
		return false;
	if (c->set & ACCESS)
		n->access_ticket = op->ticket;
	return true;
}
