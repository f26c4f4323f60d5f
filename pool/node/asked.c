/*
 * Estimates the best possible hit rate in recent windows of time, from the
 * number of look-ups and the number of distinct names among them. A look-up
 * that repeats a name could have hit, had the object been put after the first
 * look-up and nothing been evicted. Kept in memory only: a restart begins with
 * empty windows.
 *
 * The master merges the sketches of all nodes, so all nodes use the same hash
 * seed: that of the node that reported first. It differs from the process's
 * hash seed, which must stay secret.
 */
#include "pool/node/node_priv.h"

#include <xxhash.h>

static const struct {
	const char *name, *labels;
	uint64_t span_ms;
} windows[POOL_ASKED_WINDOWS] = {
	{ "15m", "window=\"15m\"", 15 * 60 * 1000ull },
	{ "1h", "window=\"1h\"", 60 * 60 * 1000ull },
	{ "24h", "window=\"24h\"", 24 * 60 * 60 * 1000ull },
};
#define HOUR 1 /* the window that directories share */

int node_asked_open(struct pool_node *n)
{
	int err = 0;

	n->asked_seed = pool_random_u64() | 1; /* 0: none */
	for (unsigned int i = 0; !err && i < POOL_ASKED_WINDOWS; i++) {
		struct node_asked *a = &n->asked[i];

		a->window.span_ms = windows[i].span_ms;
		err = pool_metrics_gauge(
			n->metrics, &a->lookups, "kvpool_node_window_lookups",
			windows[i].labels,
			"Look-ups of files by the mount in the window");
		if (!err)
			err = pool_metrics_gauge(
				n->metrics, &a->hits, "kvpool_node_window_hits",
				windows[i].labels,
				"Look-ups in the window that found a file");
		if (!err)
			err = pool_metrics_gauge(
				n->metrics, &a->best_hits,
				"kvpool_node_window_best_hits",
				windows[i].labels,
				"Look-ups in the window that could have found "
				"a file, had nothing been evicted (estimate)");
		if (!err)
			err = pool_metrics_gauge(
				n->metrics, &a->names,
				"kvpool_node_window_names", windows[i].labels,
				"Distinct names among the look-ups in the "
				"window (estimate)");
	}
	node_asked_tick(n, pool_now_ms());
	return err;
}

void node_asked_tick(struct pool_node *n, uint64_t now)
{
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		pool_window_turn(&n->asked[i].window, now);
}

void node_asked_gauges(struct pool_node *n)
{
	struct pool_seen s;

	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		struct node_asked *a = &n->asked[i];

		pool_window_count(&a->window, &s);
		pool_gauge_set(&a->lookups, (int64_t)s.seen);
		pool_gauge_set(&a->hits, (int64_t)s.hits);
		pool_gauge_set(&a->best_hits, (int64_t)pool_seen_best(&s));
		pool_gauge_set(&a->names, (int64_t)s.keys);
	}
}

json_t *node_asked_json(const struct pool_node *n)
{
	json_t *all = json_object();

	for (unsigned int i = 0; all && i < POOL_ASKED_WINDOWS; i++) {
		const struct node_asked *a = &n->asked[i];

		json_object_set_new(
			all, windows[i].name,
			json_pack("{s:I, s:I, s:I, s:I}", "lookups",
				  (json_int_t)pool_gauge_value(&a->lookups),
				  "hits",
				  (json_int_t)pool_gauge_value(&a->hits),
				  "best_hits",
				  (json_int_t)pool_gauge_value(&a->best_hits),
				  "names",
				  (json_int_t)pool_gauge_value(&a->names)));
	}
	return all;
}

/* ---- by directory ---- */

/* The slot of a directory whose look-ups are older than the window, or 0. */
static unsigned int unused_dir(const struct pool_node *n, uint64_t part)
{
	for (unsigned int i = 1; i < n->nasked_dirs; i++)
		if (n->asked_dirs[i].last + POOL_WINDOW_PARTS <= part)
			return i;
	return 0;
}

static struct node_asked_dir *dir_of(struct pool_node *n,
				     const struct pool_entry *top,
				     uint64_t part)
{
	struct node_asked_dir *d;
	unsigned int i;

	if (!n->nasked_dirs)
		n->nasked_dirs = 1;
	for (i = 1; i < n->nasked_dirs; i++)
		if (n->asked_cookies[i] == top->cookie)
			return &n->asked_dirs[i];
	i = n->nasked_dirs < POOL_ASKED_DIRS ? n->nasked_dirs++ :
					       unused_dir(n, part);
	d = &n->asked_dirs[i];
	if (!i)
		return d;
	memset(d, 0, sizeof(*d));
	d->name_len = top->name_len;
	memcpy(d->name, pool_entry_name(top), top->name_len);
	n->asked_cookies[i] = top->cookie;
	return d;
}

static void count_dir(struct pool_node *n, const struct pool_entry *top,
		      bool hit)
{
	uint64_t part = n->asked[HOUR].window.part;
	struct node_asked_dir *d = dir_of(n, top, part);
	unsigned int i = (unsigned int)(part % POOL_WINDOW_PARTS);

	if (d->part[i] != part)
		d->seen[i] = d->hits[i] = 0;
	d->last = d->part[i] = part;
	d->seen[i]++;
	d->hits[i] += hit;
}

/* Hashes the whole path, from the name up to the root, so that equal names in
 * different directories are distinct. */
void pool_node_asked(struct pool_node *n, const struct node_dirent *dir,
		     const char *name, size_t len, bool hit)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, n->asked_seed);
	const struct pool_dir *d, *top = &dir->d;

	for (d = &dir->d; d->e.parent; d = d->e.parent) {
		hash = XXH3_64bits_withSeed(pool_entry_name(&d->e),
					    d->e.name_len, hash);
		top = d;
	}
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		pool_window_add(&n->asked[i].window, hash, hit);
	count_dir(n, &top->e, hit);
}

/* ---- for the master ---- */

static void report_dirs(struct pool_node *n, struct node_asked_report *r)
{
	uint64_t part = n->asked[HOUR].window.part;

	for (unsigned int i = 0; i < n->nasked_dirs; i++) {
		struct node_asked_dir *d = &n->asked_dirs[i];
		Kvpool__AskedDir *to = &r->dirs[r->msg.n_dirs];

		if (!d->last || d->last + POOL_WINDOW_PARTS <= part)
			continue;
		kvpool__asked_dir__init(to);
		for (unsigned int k = 0; k < POOL_WINDOW_PARTS; k++) {
			if (d->part[k] + POOL_WINDOW_PARTS <= part)
				continue;
			to->lookups += d->seen[k];
			to->hits += d->hits[k];
		}
		to->name.data = i ? (uint8_t *)d->name : (uint8_t *)"/";
		to->name.len = i ? d->name_len : 1;
		r->dir_list[r->msg.n_dirs++] = to;
	}
	r->msg.dirs = r->dir_list;
}

void node_asked_report(struct pool_node *n, struct node_asked_report *ret)
{
	struct pool_seen s;

	kvpool__asked__init(&ret->msg);
	ret->msg.seed = n->asked_seed;
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		Kvpool__AskedWindow *w = &ret->windows[i];

		kvpool__asked_window__init(w);
		pool_window_count(&n->asked[i].window, &s);
		pool_window_fold(&n->asked[i].window, ret->names[i]);
		w->lookups = s.seen;
		w->hits = s.hits;
		w->names.data = ret->names[i];
		w->names.len = s.seen ? POOL_FOLDED_SIZE : 0;
		ret->window_list[i] = w;
	}
	ret->msg.windows = ret->window_list;
	ret->msg.n_windows = POOL_ASKED_WINDOWS;
	report_dirs(n, ret);
}

void node_asked_seed(struct pool_node *n, uint64_t seed)
{
	if (!seed || seed == n->asked_seed)
		return;
	n->asked_seed = seed;
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		struct pool_window *w = &n->asked[i].window;

		*w = (struct pool_window){ .span_ms = w->span_ms,
					   .part = w->part };
	}
}
