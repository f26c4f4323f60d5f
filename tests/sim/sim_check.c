/* Checks of a simulated pool at rest: tests/sim/sim_world.h lists them. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "master/impl.h"
#include "pool/node/node_priv.h"
#include "tests/sim/sim_world.h"

static char text[256];

__attribute__((format(printf, 1, 2))) static const char *wrong(const char *fmt,
							      ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	return text;
}

/* ---- the truth ---- */

static bool lives(const struct sim_world *w, uint64_t copy)
{
	return w->crowd.node[sim_copy_node(copy)].state == NODE_UP;
}

static unsigned int live_copies(const struct sim_world *w,
				const struct sim_key *k)
{
	unsigned int i, n = 0;

	for (i = 0; i < k->ncopies; i++)
		n += lives(w, k->copies[i]);
	return n;
}

static void count_stores(const struct sim_world *w, struct sim_census *c)
{
	uint64_t sum = 0, up = 0;
	unsigned int i;

	for (i = 0; i < w->crowd.n; i++) {
		const struct sim_node *n = &w->crowd.node[i];

		if (n->state != NODE_UP)
			continue;
		up++;
		sum += n->used;
		if (n->used > c->used_max)
			c->used_max = n->used;
	}
	c->used_mean = up ? sum / up : 0;
}

void sim_world_count(const struct sim_world *w, struct sim_census *c)
{
	uint32_t i;

	memset(c, 0, sizeof(*c));
	for (i = 0; i < w->nborn; i++) {
		const struct sim_key *k = &w->keys.key[i];
		unsigned int n = live_copies(w, k);

		c->keys += n > 0;
		c->copies += n;
		c->deleted += k->deleted;
		c->unsure += k->unsure;
		c->lost += k->gen && !n && !k->deleted && !k->unsure;
		c->short_of += n && n < SIM_REPLICAS;
	}
	count_stores(w, c);
}

/* ---- the map ---- */

static unsigned int index_of(const struct master *m, const struct sim_node *n)
{
	const struct master_member *mb = master_members_find(&m->members,
							     n->id);

	return mb ? mb->index : MASTER_NOBODY;
}

static unsigned int node_index[SIM_NODES_MAX]; /* in the master's table */

/* All live copies have the map's generation, the map has exactly their nodes as
 * holders, and there are SIM_REPLICAS of them, on different machines. */
static const char *check_holders(struct sim_world *w, uint32_t id,
				 const struct master_file *f)
{
	const struct sim_key *k = &w->keys.key[id];
	unsigned int i, n = 0, machines = 0;
	const char *machine = NULL;

	for (i = 0; i < k->ncopies; i++) {
		unsigned int nr = sim_copy_node(k->copies[i]);
		const struct sim_node *node = &w->crowd.node[nr];

		if (!lives(w, k->copies[i]))
			continue;
		n++;
		if (sim_copy_gen(k->copies[i]) != f->gen)
			return wrong("key %u: node %u holds another generation "
				     "than the map's",
				     id, nr);
		if (master_file_find_holder(f, node_index[nr]) < 0)
			return wrong("key %u: the map does not know that node "
				     "%u holds it",
				     id, nr);
		if (!machine || strcmp(machine, node->host_id) != 0)
			machines++;
		machine = node->host_id;
	}
	if (f->nholders != n)
		return wrong("key %u: the map knows %u holders, there are %u",
			     id, f->nholders, n);
	if (n != SIM_REPLICAS)
		return wrong("key %u: %u copies", id, n);
	if (machines < SIM_REPLICAS)
		return wrong("key %u: both copies on one machine", id);
	return NULL;
}

static const char *check_key(struct sim_world *w, struct master *m, uint32_t id)
{
	struct sim_key *k = &w->keys.key[id];
	char path[SIM_PATH_LEN + 1];
	struct master_file *f;

	sim_key_path(id, path);
	f = master_map_file(&m->map, path, SIM_PATH_LEN);
	if (!f)
		return live_copies(w, k) ?
			       wrong("key %u is held, and not in the map", id) :
			       NULL;
	if (!live_copies(w, k))
		return wrong("key %u is in the map, and nobody holds it", id);
	if (k->deleted && !k->unsure)
		return wrong("key %u was deleted, and is in the map", id);
	if (k->unsure) {
		/* Executed or not: the map's state becomes the truth. */
		k->gen = f->gen;
		k->unsure = k->deleted = false;
	}
	if (f->gen != k->gen)
		return wrong("key %u: not the newest generation", id);
	if (f->size != sim_key_size(id))
		return wrong("key %u: wrong size", id);
	return check_holders(w, id, f);
}

static const char *check_map(struct sim_world *w, struct master *m)
{
	struct sim_census c;
	const char *bad = NULL;
	uint32_t i;

	master_map_check(&m->map);
	for (i = 0; i < w->crowd.n; i++)
		node_index[i] = index_of(m, &w->crowd.node[i]);
	for (i = 0; i < w->nborn && !bad; i++)
		bad = check_key(w, m, i);
	if (bad)
		return bad;
	sim_world_count(w, &c);
	if (c.keys != m->map.nfiles)
		return wrong("%llu keys are held, the map has %llu",
			     (unsigned long long)c.keys,
			     (unsigned long long)m->map.nfiles);
	return NULL;
}

/* ---- mirrors ---- */

static const char *check_name(struct master *m, struct node_entry *e)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(&e->e, path, sizeof(path));
	const struct master_file *f =
		master_map_file(&m->map, path, (size_t)len);
	unsigned int i;

	if (!f)
		return wrong("a mirror has %s, the map has not", path);
	if (e->gen != f->gen || e->size != f->size)
		return wrong("a mirror has another %s than the map", path);
	if (e->replicas != f->nholders)
		return wrong("a mirror has %u holders of %s, the map %u",
			     e->replicas, path, f->nholders);
	for (i = 0; i < e->nholders; i++)
		if (master_file_find_holder(f, e->holders[i]) < 0)
			return wrong("a mirror has a wrong holder of %s", path);
	return NULL;
}

static const char *check_mirror(struct master *m, struct pool_node *n)
{
	struct pool_entry *e = &n->tree.root->e;
	const char *bad = NULL;
	uint64_t names = 0;

	for (; e && !bad; e = pool_tree_next(&n->tree, e)) {
		struct node_entry *file = node_file(e);

		if (!file || !file->gen)
			continue;
		names++;
		bad = check_name(m, file);
	}
	if (bad)
		return bad;
	if (names != m->map.nfiles)
		return wrong("a mirror has %llu names, the map %llu",
			     (unsigned long long)names,
			     (unsigned long long)m->map.nfiles);
	return NULL;
}

/* ---- nodes ---- */

static const char *check_nodes(struct sim_world *w, struct master *m)
{
	struct sim_census c;
	unsigned int i;

	if (w->crowd.epochs_fell)
		return "a node was welcomed to an older epoch";
	for (i = 0; i < w->crowd.n; i++) {
		const struct sim_node *n = &w->crowd.node[i];

		if (n->state != NODE_UP)
			continue;
		if (n->epoch != m->epoch)
			return wrong("node %u is not of the leader's epoch", i);
		if (n->used > n->capacity)
			return wrong("node %u holds more than it may", i);
	}
	sim_world_count(w, &c);
	if (c.used_max > c.used_mean + c.used_mean / 2)
		return wrong(
			"the fullest node holds %llu bytes, the mean is %llu",
			(unsigned long long)c.used_max,
			(unsigned long long)c.used_mean);
	return NULL;
}

const char *sim_world_check(struct sim_world *w)
{
	struct master *m = sim_world_leader(w)->m;
	const char *bad = check_map(w, m);
	unsigned int i;

	if (!bad)
		bad = check_nodes(w, m);
	for (i = 0; i < w->o.mirrors && !bad; i++)
		bad = check_mirror(m, w->mirror[i].node);
	return bad;
}
