/*
 * At rest, every mirror equals the master's map: names, kinds, generations,
 * attributes, xattrs. A node's local state is not compared: unpublished files,
 * and directories kept for hidden names below them. See tests/sim/sim_nodes.h.
 */
#include "tests/sim/sim_nodes.h"

#include <stdio.h>
#include <string.h>

#include "master/impl.h"

/* What both the map and a mirror have of a name. */
struct looks {
	uint64_t gen, size, mtime_ns;
	uint32_t mode, uid, gid;
	uint8_t sum[16];
	const struct pool_xattrs *xattrs;
};

static struct looks master_looks(struct pool_entry *pe)
{
	struct looks l = { 0 };

	if (pe->is_dir) {
		const struct master_dir *d = master_entry_dir(pe);

		l.mode = d->mode;
		l.uid = d->uid;
		l.gid = d->gid;
		l.mtime_ns = d->mtime_ns;
		l.xattrs = d->extra ? d->extra->xattrs : NULL;
	} else {
		const struct master_file *f = master_entry_file(pe);

		l.gen = f->gen;
		l.size = f->size;
		l.mode = f->mode;
		l.uid = f->uid;
		l.gid = f->gid;
		l.mtime_ns = f->mtime_ns;
		memcpy(l.sum, f->sum, sizeof(l.sum));
		l.xattrs = f->extra ? f->extra->xattrs : NULL;
	}
	return l;
}

static struct looks node_looks(struct pool_entry *pe)
{
	const struct node_attr *a = pe->is_dir ? &node_dir(pe)->attr :
						 &node_file(pe)->attr;
	struct looks l = { .mode = a->mode, .uid = a->uid, .gid = a->gid,
			   .mtime_ns = a->mtime_ns };
	XXH128_canonical_t c;

	l.xattrs = pe->is_dir ? node_dir(pe)->xattrs : node_file(pe)->xattrs;
	if (pe->is_dir)
		return l;
	l.gen = node_file(pe)->gen;
	l.size = node_file(pe)->size;
	XXH128_canonicalFromHash(&c, node_file(pe)->sum);
	memcpy(l.sum, c.digest, sizeof(l.sum));
	return l;
}

/* What is different, or NULL. */
static const char *differs(const struct looks *a, const struct looks *b)
{
	if (a->gen != b->gen)
		return "its generation";
	if (a->size != b->size || memcmp(a->sum, b->sum, sizeof(a->sum)))
		return "its bytes";
	if (a->mode != b->mode || a->uid != b->uid || a->gid != b->gid)
		return "its mode or owner";
	if (a->mtime_ns != b->mtime_ns)
		return "its time";
	return pool_xattrs_equal(a->xattrs, b->xattrs) ? NULL : "its xattrs";
}

/* Does the node have it from the master? */
static bool is_mirrored(const struct pool_node *n, struct pool_entry *pe)
{
	(void)n;
	return pe->is_dir ? !node_dir(pe)->gone && node_dir(pe)->known :
			    node_file(pe)->gen != 0;
}

static struct pool_entry *same_path(struct pool_tree *t,
				    const struct pool_entry *e)
{
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(e, path);

	return len < 0 ? NULL : pool_tree_lookup(t, path, (size_t)len);
}

static void wrong_of(struct sn *s, unsigned int i, const struct pool_entry *e,
		     const char *what)
{
	char path[POOL_PATH_MAX + 1] = "";

	(void)node_entry_path(e, path);
	sn_wrong(s, "node %u and the master differ at rest: \"%s\", %s", i,
		 path, what);
}

/* Does not compare attributes of the root: a mount has its own until a user
 * sets them. */
static void check_of_master(struct sn *s, unsigned int i, struct pool_entry *e)
{
	struct pool_node *n = s->node[i]->node;
	struct pool_entry *pe = same_path(&n->tree, e);
	struct looks a, b;
	const char *what;

	if (!pe || pe->is_dir != e->is_dir || !is_mirrored(n, pe)) {
		wrong_of(s, i, e, "which the node does not have");
		return;
	}
	if (!pe->is_dir && node_file(pe)->hidden_gen >= node_file(pe)->gen) {
		wrong_of(s, i, e, "which the node hides");
		return;
	}
	a = master_looks(e);
	b = node_looks(pe);
	what = e->parent ? differs(&a, &b) :
	       pool_xattrs_equal(a.xattrs, b.xattrs) ? NULL : "its xattrs";
	if (what)
		wrong_of(s, i, e, what);
}

static void check_of_node(struct sn *s, unsigned int i, struct pool_entry *pe)
{
	struct pool_tree *t = &s->master->master->map.tree;
	const struct pool_entry *e = same_path(t, pe);

	if (is_mirrored(s->node[i]->node, pe) &&
	    (!e || e->is_dir != pe->is_dir))
		wrong_of(s, i, pe, "which the master does not have");
}

void sn_check_mirrors(struct sn *s)
{
	struct pool_tree *t = &s->master->master->map.tree;
	struct pool_entry *e;
	unsigned int i;

	for (i = 0; i < SN_NODES; i++) {
		struct pool_tree *own = &s->node[i]->node->tree;

		for (e = &t->root->e; e; e = pool_tree_next(t, e))
			check_of_master(s, i, e);
		for (e = &own->root->e; e; e = pool_tree_next(own, e))
			check_of_node(s, i, e);
	}
}

/* Each node writes ascending numbers to its own xattr of each directory. The
 * map must have the number that the last fsync acknowledged, or a later one. */
void sn_check_counts(struct sn *s)
{
	unsigned int i, k;

	for (k = 1; k < SN_DIRS - 1; k++)
		for (i = 0; i < SN_NODES; i++) {
			struct pool_entry *e = pool_tree_lookup(
				&s->master->master->map.tree, sn_dirs[k],
				strlen(sn_dirs[k]));
			char name[16];
			size_t len = 0;
			const void *v;
			uint64_t count = 0;

			snprintf(name, sizeof(name), "user.n%u", i);
			v = e ? pool_xattrs_get(master_looks(e).xattrs, name,
						&len) : NULL;
			if (v && len == sizeof(count))
				memcpy(&count, v, sizeof(count));
			if (count < s->acked[i][k])
				sn_wrong(s,
					 "\"%s\" has %llu of node %u, whose "
					 "fsync acknowledged %llu",
					 sn_dirs[k], (unsigned long long)count,
					 i, (unsigned long long)s->acked[i][k]);
		}
}
