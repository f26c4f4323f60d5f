#include "master/asked.h"

#include <string.h>

#include "pool/base/clock.h"
#include "pool/model/pages.h"

#define LOOKUPS_MAX (1ull << 50) /* the sum of all nodes is a JSON integer */

static const char *const windows[POOL_ASKED_WINDOWS] = { "15m", "1h", "24h" };

/* ---- reports ---- */

static bool counts_valid(uint64_t lookups, uint64_t hits)
{
	return hits <= lookups && lookups <= LOOKUPS_MAX;
}

static bool is_valid(const Kvpool__Asked *a)
{
	size_t i;

	if (!a->seed || a->n_windows != POOL_ASKED_WINDOWS ||
	    a->n_dirs > POOL_ASKED_DIRS ||
	    kvpool__asked__get_packed_size(a) > MASTER_ASKED_BYTES)
		return false;
	for (i = 0; i < a->n_windows; i++) {
		const Kvpool__AskedWindow *w = a->windows[i];

		if (!counts_valid(w->lookups, w->hits) ||
		    (w->lookups &&
		     !pool_folded_check(w->names.data, w->names.len)))
			return false;
	}
	for (i = 0; i < a->n_dirs; i++)
		if (!counts_valid(a->dirs[i]->lookups, a->dirs[i]->hits) ||
		    a->dirs[i]->name.len > POOL_NAME_MAX)
			return false;
	return true;
}

void master_on_asked(struct master_session *s, Kvpool__Heartbeat *hb)
{
	struct master_member *mb = s->member;
	struct master *m = s->m;

	if (!hb->asked)
		return;
	if (!is_valid(hb->asked))
		return master_count(m, MC_BAD_ITEMS);
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

json_t *master_asked_json(const struct master *m)
{
	struct pool_seen s[POOL_ASKED_WINDOWS];
	json_t *all = json_object();

	master_asked_totals(m, s);
	for (unsigned int i = 0; all && i < POOL_ASKED_WINDOWS; i++)
		json_object_set_new(
			all, windows[i],
			json_pack("{s:I, s:I, s:I, s:I}", "lookups",
				  (json_int_t)s[i].seen, "hits",
				  (json_int_t)s[i].hits, "best_hits",
				  (json_int_t)pool_seen_best(&s[i]), "names",
				  (json_int_t)s[i].keys));
	return all;
}

/* ---- directories of the root ---- */

struct hits {
	uint64_t lookups, hits;
};

/* Index in map.tops. A name that is not in the map counts as MASTER_TOP_OTHERS.
 */
static unsigned int top_of(struct master *m, const ProtobufCBinaryData *name)
{
	const struct pool_entry *e;

	if (!name->len)
		return MASTER_TOP_ROOT;
	e = pool_tree_find(&m->map.tree, m->map.tree.root,
			   (const char *)name->data, name->len);
	return e && e->is_dir ?
		       ((const struct master_dir *)(const void *)e)->top :
		       MASTER_TOP_OTHERS;
}

static void add_hits(struct master *m, struct hits *by_top)
{
	for (unsigned int i = 0; i < m->members.n; i++) {
		const Kvpool__Asked *a = report_of(m, i);

		for (size_t k = 0; a && k < a->n_dirs; k++) {
			struct hits *h = &by_top[top_of(m, &a->dirs[k]->name)];

			h->lookups += a->dirs[k]->lookups;
			h->hits += a->dirs[k]->hits;
		}
	}
}

static json_t *top_json(const struct master_top *t, unsigned int number,
			const struct hits *h)
{
	json_int_t now_s = (json_int_t)(pool_wall_ns() / 1000000000u);
	json_t *name = number == MASTER_TOP_OTHERS ? json_null() :
		       number == MASTER_TOP_ROOT ?
						     json_string("") :
						     pool_pages_text(
							     pool_entry_name(
								     t->dir),
							     t->dir->name_len);

	return json_pack("{so sI sI sI sI sI sI sI}", "name", name, "objects",
			 (json_int_t)t->files, "bytes", (json_int_t)t->bytes,
			 "age_seconds",
			 t->files ? now_s - (json_int_t)(t->mtimes_s /
							 t->files) :
				    0,
			 "lookups", (json_int_t)h->lookups, "hits",
			 (json_int_t)h->hits, "evicted", (json_int_t)t->evicted,
			 "evicted_bytes", (json_int_t)t->evicted_bytes);
}

json_t *master_directories_json(struct master *m)
{
	struct hits hits[MASTER_TOPS_MAX] = { { 0, 0 } };
	json_t *list = json_array();

	add_hits(m, hits);
	for (unsigned int i = 0; list && i < MASTER_TOPS_MAX; i++) {
		const struct master_top *t = &m->map.tops.list[i];

		if ((t->dir || t->files || t->evicted || hits[i].lookups) &&
		    json_array_append_new(list, top_json(t, i, &hits[i]))) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{so}", "directories", list);
}
