#include "master/asked.h"

#include <stdlib.h>
#include <string.h>

#include "master/may.h"
#include "pool/base/clock.h"
#include "pool/model/pages.h"

#define LOOKUPS_MAX (1ull << 50) /* the sum of all nodes is a JSON integer */

static const char *const windows[POOL_ASKED_WINDOWS] = { "15m", "1h", "24h" };
#define HOUR 1
#define LONGEST (POOL_ASKED_WINDOWS - 1)

/* ---- reports ---- */

static bool counts_valid(uint64_t lookups, uint64_t hits)
{
	return hits <= lookups && lookups <= LOOKUPS_MAX;
}

/* An estimate may be above the truth, but not by so much. */
static bool names_valid(uint64_t names, uint64_t lookups)
{
	return names <= lookups + lookups / 2 + 16;
}

static bool window_valid(const Kvpool__AskedWindow *w)
{
	return counts_valid(w->lookups, w->hits) &&
	       (!w->lookups ||
		(pool_folded_check(w->names.data, w->names.len) &&
		 names_valid(pool_folded_count(w->names.data), w->lookups)));
}

static bool dir_window_valid(const Kvpool__AskedWindow *w)
{
	return counts_valid(w->lookups, w->hits) &&
	       w->loaded <= POOL_ASKED_LOADED_MAX &&
	       (!w->lookups ||
		(pool_small_check(w->names.data, w->names.len) &&
		 names_valid(pool_small_count(w->names.data), w->lookups)));
}

/* Do the directories together have no more of a window than all look-ups? */
static bool dirs_valid(const Kvpool__Asked *a, unsigned int window)
{
	uint64_t lookups = 0, hits = 0, loaded = 0;

	for (size_t i = 0; i < a->n_dirs; i++) {
		const Kvpool__AskedDir *d = a->dirs[i];

		if (!d->n_windows)
			continue;
		if (d->n_windows != POOL_ASKED_WINDOWS ||
		    !dir_window_valid(d->windows[window]))
			return false;
		lookups += d->windows[window]->lookups;
		hits += d->windows[window]->hits;
		loaded += d->windows[window]->loaded;
	}
	return lookups <= a->windows[window]->lookups &&
	       hits <= a->windows[window]->hits &&
	       loaded <= POOL_ASKED_LOADED_MAX;
}

static bool is_valid(const Kvpool__Asked *a)
{
	uint64_t hour = 0;

	if (!a->seed || a->n_windows != POOL_ASKED_WINDOWS ||
	    a->n_dirs > POOL_ASKED_DIRS ||
	    kvpool__asked__get_packed_size(a) > MASTER_ASKED_BYTES)
		return false;
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		if (!window_valid(a->windows[i]) || !dirs_valid(a, i))
			return false;
	for (size_t i = 0; i < a->n_dirs; i++) {
		const Kvpool__AskedDir *d = a->dirs[i];

		if (!counts_valid(d->lookups, d->hits) ||
		    d->name.len > POOL_NAME_MAX)
			return false;
		hour += d->lookups;
	}
	return hour <= LOOKUPS_MAX;
}

void master_on_asked(struct master_session *s, Kvpool__Heartbeat *hb)
{
	struct master_member *mb = s->member;
	struct master *m = s->m;

	if (!hb->asked)
		return;
	if (!is_valid(hb->asked)) {
		master_count(m, MC_BAD_ITEMS);
		return master_figures_impossible(m, mb);
	}
	if (!m->asked_seed)
		m->asked_seed = hb->asked->seed;
	if (hb->asked->seed != m->asked_seed)
		return; /* the answer carries the right seed */
	if (mb->asked)
		kvpool__asked__free_unpacked(mb->asked, NULL);
	mb->asked = hb->asked;
	hb->asked = NULL;
}

/* ---- windows ---- */

static const Kvpool__Asked *report_of(const struct master *m, unsigned int i)
{
	const struct master_member *mb = m->members.by_index[i];

	return master_member_alive(mb) ? mb->asked : NULL;
}

static void window_total(const struct master *m, unsigned int window,
			 struct pool_seen *ret)
{
	uint8_t names[POOL_FOLDED_SIZE] = { 0 };
	uint64_t keys;

	memset(ret, 0, sizeof(*ret));
	for (unsigned int i = 0; i < m->members.n; i++) {
		const Kvpool__Asked *a = report_of(m, i);
		const Kvpool__AskedWindow *w = a ? a->windows[window] : NULL;

		if (!w || !w->lookups)
			continue;
		ret->seen += w->lookups;
		ret->hits += w->hits;
		pool_folded_merge(names, w->names.data);
	}
	keys = pool_folded_count(names);
	ret->keys = keys < ret->seen ? keys : ret->seen;
}

void master_asked_totals(const struct master *m,
			 struct pool_seen ret[POOL_ASKED_WINDOWS])
{
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++)
		window_total(m, i, &ret[i]);
}

static json_t *window_json(const struct pool_seen *s)
{
	return json_pack("{s:I, s:I, s:I, s:I}", "lookups",
			 (json_int_t)s->seen, "hits", (json_int_t)s->hits,
			 "best_hits", (json_int_t)pool_seen_best(s), "names",
			 (json_int_t)s->keys);
}

json_t *master_asked_json(const struct master *m)
{
	struct pool_seen s[POOL_ASKED_WINDOWS];
	json_t *all = json_object();

	master_asked_totals(m, s);
	for (unsigned int i = 0; all && i < POOL_ASKED_WINDOWS; i++)
		json_object_set_new(all, windows[i], window_json(&s[i]));
	return all;
}

/* ---- directories of the root ---- */

/* What was asked for below one of map.tops. */
struct top_asked {
	struct pool_seen seen[POOL_ASKED_WINDOWS];
	uint64_t loaded[POOL_ASKED_WINDOWS];
	/* An older node does not report the windows: unknown but for the hour's
	 * look-ups and hits. */
	bool unknown;
	uint8_t names[POOL_ASKED_WINDOWS][POOL_SMALL_SIZE];
};

/* Index in map.tops. A name that is not in the map, or that the node may not
 * see, counts as MASTER_TOP_OTHERS. */
static unsigned int top_of(struct master *m, const struct master_member *mb,
			   const ProtobufCBinaryData *name)
{
	const char *text = (const char *)name->data;
	const struct pool_entry *e;

	if (!name->len)
		return MASTER_TOP_ROOT;
	e = pool_tree_find(&m->map.tree, m->map.tree.root, text, name->len);
	if (!e || !e->is_dir ||
	    (mb->session && !master_may_see(mb->session, text, name->len)))
		return MASTER_TOP_OTHERS;
	return ((const struct master_dir *)(const void *)e)->top;
}

static void add_dir(struct top_asked *t, const Kvpool__AskedDir *d)
{
	if (!d->n_windows) {
		t->unknown = true;
		t->seen[HOUR].seen += d->lookups;
		t->seen[HOUR].hits += d->hits;
	}
	for (size_t i = 0; i < d->n_windows; i++) {
		const Kvpool__AskedWindow *w = d->windows[i];

		t->seen[i].seen += w->lookups;
		t->seen[i].hits += w->hits;
		t->loaded[i] += w->loaded;
		if (w->lookups)
			pool_small_merge(t->names[i], w->names.data);
	}
}

static void add_dirs(struct master *m, struct top_asked *by_top)
{
	for (unsigned int i = 0; i < m->members.n; i++) {
		const struct master_member *mb = m->members.by_index[i];
		const Kvpool__Asked *a = report_of(m, i);

		for (size_t k = 0; a && k < a->n_dirs; k++)
			add_dir(&by_top[top_of(m, mb, &a->dirs[k]->name)],
				a->dirs[k]);
	}
}

static json_t *top_windows_json(struct top_asked *t)
{
	json_t *all = json_object();

	for (unsigned int i = 0; all && i < POOL_ASKED_WINDOWS; i++) {
		json_t *w = window_json(&t->seen[i]);

		if (json_object_set_new(all, windows[i], w) ||
		    json_object_set_new(w, "loaded_bytes",
					json_integer((json_int_t)
							     t->loaded[i]))) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

static json_t *figure_json(const struct top_asked *t, uint64_t figure)
{
	return t->unknown ? json_null() : json_integer((json_int_t)figure);
}

static json_t *top_name_json(const struct master_top *t, unsigned int number)
{
	if (number == MASTER_TOP_OTHERS)
		return json_null();
	return number == MASTER_TOP_ROOT ?
		       json_string("") :
		       pool_pages_text(pool_entry_name(t->dir),
				       t->dir->name_len);
}

static json_t *top_json(const struct master_top *t, unsigned int number,
			struct top_asked *a)
{
	json_int_t now_s = (json_int_t)(pool_wall_ns() / 1000000000u);
	const struct pool_seen *hour = &a->seen[HOUR];
	uint64_t keys;

	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		keys = pool_small_count(a->names[i]);
		a->seen[i].keys = keys < a->seen[i].seen ? keys :
							   a->seen[i].seen;
	}
	return json_pack(
		"{so sI sI sI sI sI so so sI sI so}", "name",
		top_name_json(t, number), "objects", (json_int_t)t->files,
		"bytes", (json_int_t)t->bytes, "age_seconds",
		t->files ? now_s - (json_int_t)(t->mtimes_s / t->files) : 0,
		"lookups", (json_int_t)hour->seen, "hits",
		(json_int_t)hour->hits, "best_hits",
		figure_json(a, pool_seen_best(hour)), "loaded_bytes",
		figure_json(a, a->loaded[HOUR]), "evicted",
		(json_int_t)t->evicted, "evicted_bytes",
		(json_int_t)t->evicted_bytes, "asked",
		a->unknown ? json_null() : top_windows_json(a));
}

json_t *master_directories_json(struct master *m)
{
	struct top_asked *asked = calloc(MASTER_TOPS_MAX, sizeof(*asked));
	json_t *list = asked ? json_array() : NULL;

	if (asked)
		add_dirs(m, asked);
	for (unsigned int i = 0; list && i < MASTER_TOPS_MAX; i++) {
		const struct master_top *t = &m->map.tops.list[i];
		struct top_asked *a = &asked[i];

		if ((t->dir || t->files || t->evicted ||
		     a->seen[LONGEST].seen || a->seen[HOUR].seen ||
		     a->loaded[LONGEST]) &&
		    json_array_append_new(list, top_json(t, i, a))) {
			json_decref(list);
			list = NULL;
		}
	}
	free(asked);
	return list ? json_pack("{so}", "directories", list) : NULL;
}
