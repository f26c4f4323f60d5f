/*
 * Estimates the best possible hit rate in recent windows of time, from the
 * number of look-ups and the number of distinct names among them. A look-up
 * that repeats a name could have hit, had the object been put after the first
 * look-up and nothing been evicted. Kept in memory only: a restart begins with
 * empty windows.
 *
 * The same for each directory of the root, with small sketches, and the bytes
 * of files opened there: POOL_ASKED_DIRS - 1 that were used in the longest
 * window, all others together in [0]. A look-up changes one small sketch, which
 * is added to those of the windows when a part of one ends, and at a report.
 *
 * The master merges the sketches of all nodes, so all nodes use the same hash
 * seed: that of the node that reported first. It differs from the process's
 * hash seed, which must stay secret.
 */
#include "pool/node/node_priv.h"

#include <stdlib.h>
#include <xxhash.h>

static const struct {
	const char *name, *labels;
	uint64_t span_ms;
} windows[POOL_ASKED_WINDOWS] = {
	{ "15m", "window=\"15m\"", 15 * 60 * 1000ull },
	{ "1h", "window=\"1h\"", 60 * 60 * 1000ull },
	{ "24h", "window=\"24h\"", 24 * 60 * 60 * 1000ull },
};
#define HOUR 1
#define LONGEST (POOL_ASKED_WINDOWS - 1)

int node_asked_open(struct pool_node *n)
{
	int err = 0;

	n->asked_seed = pool_random_u64() | 1; /* 0: none */
	n->asked_changes = 1; /* so that the master learns the seed */
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
	if (!err)
		node_asked_tick(n, pool_now_ms());
	return err;
}

static bool is_empty(const struct node_asked_part *p)
{
	return !p->seen && !p->loaded;
}

/* Adds what directories counted recently to these parts of the windows. */
static void add_recent(struct pool_node *n,
		       const uint64_t parts[POOL_ASKED_WINDOWS])
{
	for (unsigned int i = 0; i < n->nasked_dirs; i++) {
		struct node_asked_dir *d = &n->asked_dirs[i];

		if (is_empty(&d->recent))
			continue;
		for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++) {
			struct node_asked_part *to =
				&d->at[w][parts[w] % POOL_WINDOW_PARTS];

			if (to->part != parts[w])
				memset(to, 0, sizeof(*to));
			to->part = parts[w];
			to->seen += d->recent.seen;
			to->hits += d->recent.hits;
			to->loaded += d->recent.loaded;
			pool_small_merge(to->names, d->recent.names);
		}
		d->last = parts[LONGEST];
		memset(&d->recent, 0, sizeof(d->recent));
		n->asked_changes++;
	}
}

/* What directories counted recently belongs to the parts before the turn. */
void node_asked_tick(struct pool_node *n, uint64_t now)
{
	uint64_t parts[POOL_ASKED_WINDOWS];
	bool turned = false;

	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		struct pool_window *w = &n->asked[i].window;

		parts[i] = w->part;
		turned |= pool_window_turn(w, now);
	}
	if (turned) {
		add_recent(n, parts);
		n->asked_changes++;
	}
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

/* The slot of a directory of which no window has anything, or 0. */
static unsigned int unused_dir(const struct pool_node *n)
{
	uint64_t part = n->asked[LONGEST].window.part;

	for (unsigned int i = 1; i < n->nasked_dirs; i++) {
		const struct node_asked_dir *d = &n->asked_dirs[i];

		if (d->last + POOL_WINDOW_PARTS <= part && is_empty(&d->recent))
			return i;
	}
	return 0;
}

static struct node_asked_dir *dir_of(struct pool_node *n,
				     const struct pool_entry *top)
{
	struct node_asked_dir *d;
	unsigned int i;

	if (!n->nasked_dirs)
		n->nasked_dirs = 1;
	for (i = 1; i < n->nasked_dirs; i++)
		if (n->asked_cookies[i] == top->cookie)
			return &n->asked_dirs[i];
	i = n->nasked_dirs < POOL_ASKED_DIRS ? n->nasked_dirs++ :
					       unused_dir(n);
	d = &n->asked_dirs[i];
	if (!i) {
		pool_count(&n->c.asked_others);
		return d;
	}
	memset(d, 0, sizeof(*d));
	d->name_len = top->name_len;
	memcpy(d->name, pool_entry_name(top), top->name_len);
	n->asked_cookies[i] = top->cookie;
	return d;
}

/* A file that has lost its name counts among the others. */
void pool_node_loaded(struct pool_node *n, const struct node_object *o,
		      uint64_t bytes)
{
	const struct pool_dir *d = o->entry ? o->entry->e.parent : NULL;

	while (d && d->e.parent && d->e.parent->e.parent)
		d = d->e.parent;
	if (!n->nasked_dirs)
		n->nasked_dirs = 1;
	(d ? dir_of(n, &d->e) : &n->asked_dirs[0])->recent.loaded += bytes;
	pool_count_add(&n->c.loaded_bytes, bytes);
}

/* Hashes the whole path, from the name up to the root, so that equal names in
 * different directories are distinct. */
void pool_node_asked(struct pool_node *n, const struct node_dirent *dir,
		     const char *name, size_t len, bool hit)
{
	uint64_t hash = XXH3_64bits_withSeed(name, len, n->asked_seed);
	const struct pool_dir *d, *top = &dir->d;
	struct node_asked_part *recent;

	for (d = &dir->d; d->e.parent; d = d->e.parent) {
		hash = XXH3_64bits_withSeed(pool_entry_name(&d->e),
					    d->e.name_len, hash);
		top = d;
	}
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		pool_window_add(&n->asked[i].window, hash, hit);
	recent = &dir_of(n, &top->e)->recent;
	recent->seen++;
	recent->hits += hit;
	pool_small_add(recent->names, hash);
}

/* ---- for the master ---- */

static void report_dir_window(const struct node_asked_dir *d,
			      unsigned int window, uint64_t part,
			      struct node_asked_report_dir *to)
{
	Kvpool__AskedWindow *w = &to->windows[window];

	kvpool__asked_window__init(w);
	to->window_list[window] = w;
	for (unsigned int i = 0; i < POOL_WINDOW_PARTS; i++) {
		const struct node_asked_part *p = &d->at[window][i];

		if (p->part + POOL_WINDOW_PARTS <= part)
			continue;
		w->lookups += p->seen;
		w->hits += p->hits;
		w->loaded += p->loaded;
		pool_small_merge(to->names[window], p->names);
	}
	w->names.data = to->names[window];
	w->names.len = w->lookups ? POOL_SMALL_SIZE : 0;
}

static void bound_loaded(uint64_t *loaded, uint64_t *all)
{
	if (*loaded > POOL_ASKED_LOADED_MAX - *all)
		*loaded = POOL_ASKED_LOADED_MAX - *all;
	*all += *loaded;
}

static void report_dirs(const struct pool_node *n, struct node_asked_report *r)
{
	uint64_t all[POOL_ASKED_WINDOWS] = { 0 };

	for (unsigned int i = 0; i < n->nasked_dirs; i++) {
		const struct node_asked_dir *d = &n->asked_dirs[i];
		struct node_asked_report_dir *to = &r->dirs[r->msg.n_dirs];
		const Kvpool__AskedWindow *longest =
			&to->windows[LONGEST];

		kvpool__asked_dir__init(&to->msg);
		for (unsigned int w = 0; w < POOL_ASKED_WINDOWS; w++) {
			report_dir_window(d, w, n->asked[w].window.part, to);
			bound_loaded(&to->windows[w].loaded, &all[w]);
		}
		if (!longest->lookups && !longest->loaded)
			continue; /* so `names` are still empty */
		to->msg.name.data = i ? (uint8_t *)(uintptr_t)d->name :
					(uint8_t *)(uintptr_t)"/";
		to->msg.name.len = i ? d->name_len : 1;
		to->msg.lookups = to->windows[HOUR].lookups;
		to->msg.hits = to->windows[HOUR].hits;
		to->msg.windows = to->window_list;
		to->msg.n_windows = POOL_ASKED_WINDOWS;
		r->dir_list[r->msg.n_dirs++] = &to->msg;
	}
	r->msg.dirs = r->dir_list;
}

struct node_asked_report *node_asked_report(struct pool_node *n, uint64_t *sent)
{
	uint64_t parts[POOL_ASKED_WINDOWS];
	struct node_asked_report *ret;
	struct pool_seen s;

	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		parts[i] = n->asked[i].window.part;
	add_recent(n, parts);
	ret = *sent == n->asked_changes ? NULL : calloc(1, sizeof(*ret));
	if (!ret)
		return NULL;
	*sent = n->asked_changes;
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
	return ret;
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
	n->nasked_dirs = 0;
	memset(&n->asked_dirs[0], 0, sizeof(n->asked_dirs[0]));
	n->asked_changes++;
}
