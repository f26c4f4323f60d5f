/*
 * How many names were asked in recent windows of time, beside how often: the
 * rest of the look-ups repeated one, and would have hit whatever was put after
 * the first, had nothing been evicted. Kept in memory alone, so that it begins
 * anew with the process.
 */
#include "pool/node/node_priv.h"

#include <xxhash.h>

static const struct {
	const char *name, *labels;
	uint64_t span_ms;
} windows[NODE_WINDOWS] = {
	{ "15m", "window=\"15m\"", 15 * 60 * 1000ull },
	{ "1h", "window=\"1h\"", 60 * 60 * 1000ull },
	{ "24h", "window=\"24h\"", 24 * 60 * 60 * 1000ull },
};

int node_asked_open(struct pool_node *n)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < NODE_WINDOWS; i++) {
		struct node_asked *a = &n->asked[i];

		a->window.span_ms = windows[i].span_ms;
		err = pool_metrics_gauge(
			n->metrics, &a->lookups, "kvpool_node_window_lookups",
			windows[i].labels,
			"Look-ups of files by the mount in the window");
		if (!err)
			err = pool_metrics_gauge(
				n->metrics, &a->names,
				"kvpool_node_window_names", windows[i].labels,
				"Different names among these look-ups "
				"(estimate)");
	}
	node_asked_tick(n, pool_now_ms());
	return err;
}

void node_asked_tick(struct pool_node *n, uint64_t now)
{
	for (unsigned int i = 0; i < NODE_WINDOWS; i++)
		pool_window_turn(&n->asked[i].window, now);
}

void node_asked_gauges(struct pool_node *n)
{
	uint64_t lookups, names;

	for (unsigned int i = 0; i < NODE_WINDOWS; i++) {
		struct node_asked *a = &n->asked[i];

		pool_window_count(&a->window, &lookups, &names);
		pool_gauge_set(&a->lookups, (int64_t)lookups);
		pool_gauge_set(&a->names, (int64_t)names);
	}
}

json_t *node_asked_json(const struct pool_node *n)
{
	json_t *all = json_object();

	for (unsigned int i = 0; all && i < NODE_WINDOWS; i++) {
		const struct node_asked *a = &n->asked[i];

		json_object_set_new(
			all, windows[i].name,
			json_pack("{s:I, s:I}", "lookups",
				  (json_int_t)pool_gauge_value(&a->lookups),
				  "names",
				  (json_int_t)pool_gauge_value(&a->names)));
	}
	return all;
}

/* The names of all ancestors go in, each hashed with what its children have:
 * the same name in two directories is two. */
void pool_node_asked(struct pool_node *n, const struct node_dirent *dir,
		     const char *name, size_t len)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, pool_hash_seed());
	const struct pool_dir *d;

	for (d = &dir->d; d->e.parent; d = d->e.parent)
		hash = XXH3_64bits_withSeed(pool_entry_name(&d->e),
					    d->e.name_len, hash);
	for (unsigned int i = 0; i < NODE_WINDOWS; i++)
		pool_window_add(&n->asked[i].window, hash);
}
