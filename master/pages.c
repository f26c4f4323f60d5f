/*
 * The JSON pages. Names on the wire are bytes; JSON wants UTF-8: what is none
 * is shown with '?' in place of each such byte.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "master/impl.h"
#include "pool/base/clock.h"

#define PAGE_MAX 10000u
#define DEPTH_MAX (POOL_PATH_MAX / 2 + 1)

static json_t *u64(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *text(const char *s, size_t len)
{
	json_t *j = json_stringn(s, len);
	char *copy;
	size_t i;

	if (j)
		return j;
	copy = malloc(len);
	if (!copy)
		return NULL;
	for (i = 0; i < len; i++)
		copy[i] = s[i] & (char)0x80 ? '?' : s[i];
	j = json_stringn(copy, len);
	free(copy);
	return j;
}

static json_t *text0(const char *s)
{
	return text(s, strlen(s));
}

json_t *master_status_json(struct master *m)
{
	struct master_totals t;

	master_members_totals(&m->members, &t);
	return json_pack(
		"{so sb si si so so so so so so so so so so si si sb so}",
		"epoch", u64(m->epoch), "ready", m->ready, "nodes",
		(int)t.nodes, "nodes_alive", (int)t.alive, "keys",
		u64(m->map.nfiles), "directories", u64(m->map.ndirs), "bytes",
		u64(m->map.bytes), "capacity", u64(t.capacity), "used",
		u64(t.used), "evictable", u64(t.evictable), "tombstones",
		u64(m->map.ntombs), "soft_pinned",
		u64(m->map.pinned[POOL_PIN_SOFT]), "hard_pinned",
		u64(m->map.pinned[POOL_PIN_HARD]), "feed_seq",
		u64(m->map.feed.seq), "subscribers", (int)m->nsubscribers,
		"pending_replications",
		(int)(m->repair.nwaiting + m->repair.nordered),
		"unmet_replications", m->repair.unmet, "uptime_ms",
		u64(pool_now_ms() - m->start_ms));
}

static void to_hex(const uint8_t *p, size_t len, char *out)
{
	size_t i;

	for (i = 0; i < len; i++)
		sprintf(out + 2 * i, "%02x", p[i]);
}

static const char *state_of(const struct master_member *mb)
{
	if (mb->session)
		return mb->inventoried ? "alive" : "joining";
	if (mb->expected)
		return "expected";
	return mb->gone ? "gone" : "away";
}

static json_t *node_json(const struct master_member *mb)
{
	char id[2 * POOL_ID_SIZE + 1];

	to_hex(mb->id, POOL_ID_SIZE, id);
	return json_pack(
		"{si ss so so so so so ss sb sb sb so so so so si si}",
		"index", (int)mb->index, "id", id, "name", text0(mb->name),
		"advertise", text0(mb->advertise), "unix_path",
		text0(mb->unix_path), "host_id", text0(mb->host_id),
		"data_mode", text0(mb->data_mode), "state", state_of(mb),
		"alive", master_member_alive(mb), "is_store", mb->is_store,
		"is_mount", mb->is_mount, "capacity", u64(mb->capacity), "used",
		u64(mb->used), "evictable", u64(mb->evictable), "objects",
		u64(mb->objects), "copies_coming", (int)mb->coming,
		"copies_leaving", (int)mb->leaving);
}

json_t *master_nodes_json(struct master *m)
{
	json_t *list = json_array();
	unsigned int i;

	if (!list)
		return NULL;
	for (i = 0; i < m->members.n; i++) {
		if (json_array_append_new(list,
					  node_json(m->members.by_index[i]))) {
			json_decref(list);
			return NULL;
		}
	}
	return json_pack("{so}", "nodes", list);
}

/* ---- objects ---- */

static json_t *holder_names(const struct master *m, const struct master_file *f)
{
	json_t *list = json_array();
	unsigned int i;

	for (i = 0; list && i < f->nholders; i++) {
		const struct master_member *mb = master_member_at(
			&m->members,
			master_holder_index(master_file_holders(f)[i]));

		if (json_array_append_new(list, text0(mb ? mb->name : "?"))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *object_json(const struct master *m, const struct master_file *f)
{
	static const char *const classes[] = { "", "shared", "noevict",
					       "scratch" };
	static const char *const pins[] = { "", "none", "soft", "hard" };
	char path[POOL_PATH_MAX + 1], sum[2 * MASTER_SUM_SIZE + 1];
	int len = pool_tree_path(&f->e, path, sizeof(path));
	struct pool_rules rules;

	master_file_rules(f, pool_wall_ns(), &rules);
	to_hex(f->sum, MASTER_SUM_SIZE, sum);
	return json_pack(
		"{so so so ss si si so so ss ss}", "path",
		text(path, (size_t)len), "size", u64(f->size), "generation",
		u64(f->gen), "checksum", sum, "replicas", (int)f->nholders,
		"replicas_wanted", (int)rules.replicas, "nodes",
		holder_names(m, f), "mtime_ns", u64(f->mtime_ns), "class",
		classes[rules.class], "pin", pins[rules.pin]);
}

/* The entry behind e and all that is below it; NULL: the end of top. */
static struct pool_entry *after(struct pool_entry *e, struct pool_entry *top)
{
	while (e != top) {
		struct pool_dir *dir = e->parent;

		if (e->sibling.next != &dir->children)
			return pool_list_entry(e->sibling.next,
					       struct pool_entry, sibling);
		e = &dir->e;
	}
	return NULL;
}

/* The entry behind e, going down first. */
static struct pool_entry *next(struct pool_entry *e, struct pool_entry *top)
{
	struct pool_dir *dir = pool_entry_dir(e);

	if (dir && dir->nchildren)
		return pool_list_first(&dir->children, struct pool_entry,
				       sibling);
	return after(e, top);
}

/*
 * A token says where the next page starts, behind an entry E: the cookies of
 * the directories from the root's child to E, and E's own, then E's path in
 * hex, "1f.20.3a:6d2f...". By its path E is found at once. If it has gone since,
 * the cookies tell its place, as they grow along each directory.
 */
static json_t *token_of(const struct pool_entry *e)
{
	char path[POOL_PATH_MAX + 1];
	int len = pool_tree_path(e, path, sizeof(path));
	uint64_t cookies[DEPTH_MAX];
	size_t n = 0, used = 0;
	char *buf;
	json_t *j;

	for (; e->parent && n < DEPTH_MAX; e = &e->parent->e)
		cookies[n++] = e->cookie;
	buf = malloc(n * 17 + 2 + 2 * (size_t)len);
	if (!buf)
		return NULL;
	while (n--)
		used += (size_t)sprintf(buf + used, "%s%" PRIx64,
					used ? "." : "", cookies[n]);
	buf[used++] = ':';
	buf[used] = 0;
	to_hex((const uint8_t *)path, (size_t)len, buf + used);
	j = json_string(buf);
	free(buf);
	return j;
}

/* The entry that a token names by path, if it is the same one still. */
static struct pool_entry *named(struct master *m, const char *hex,
				uint64_t cookie)
{
	char path[POOL_PATH_MAX];
	struct pool_entry *e;
	unsigned int byte;
	size_t len = 0;

	for (; hex[0] && hex[1] && len < sizeof(path); hex += 2) {
		if (sscanf(hex, "%2x", &byte) != 1)
			return NULL;
		path[len++] = (char)byte;
	}
	e = pool_tree_lookup(&m->map.tree, path, len);
	return e && e->cookie == cookie ? e : NULL;
}

/* First child with at least this cookie; NULL: none. */
static struct pool_entry *child_from(struct pool_dir *dir, uint64_t cookie)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &dir->children) {
		struct pool_entry *e =
			pool_list_entry(it, struct pool_entry, sibling);

		if (e->cookie >= cookie)
			return e;
	}
	return NULL;
}

static bool below(const struct pool_entry *e, const struct pool_entry *top)
{
	for (; e; e = e->parent ? &e->parent->e : NULL)
		if (e == top)
			return true;
	return false;
}

/* First entry behind the place that the cookies tell; NULL: the end. */
static struct pool_entry *behind(struct master *m, const uint64_t *cookies,
				 size_t n)
{
	struct pool_entry *root = &m->map.tree.root->e, *e = root, *child;
	size_t i;

	for (i = 0; i < n && e->is_dir; i++) {
		child = child_from(pool_entry_dir(e), cookies[i]);
		if (!child)
			return after(e, root);
		if (child->cookie != cookies[i])
			return child;
		e = child;
	}
	return next(e, root);
}

/* First entry of the page behind token; NULL: the end (or no token at all). */
static struct pool_entry *resume(struct master *m, const char *token,
				 struct pool_entry *top)
{
	uint64_t cookies[DEPTH_MAX];
	struct pool_entry *e;
	size_t n = 0;
	char *end;

	do {
		cookies[n++] = strtoull(token, &end, 16);
		if (end == token)
			return NULL;
		token = end + 1;
	} while (*end == '.' && n < DEPTH_MAX);
	if (*end != ':')
		return NULL;
	e = named(m, token, cookies[n - 1]);
	e = e ? next(e, &m->map.tree.root->e) : behind(m, cookies, n);
	return e && below(e, top) ? e : NULL;
}

static json_t *page(struct master *m, struct pool_entry *top,
		    struct pool_entry *e, unsigned int limit)
{
	/* Empty directories, too, cost time. */
	unsigned int steps = 8 * limit + 1000;
	json_t *list = json_array(), *token = NULL;
	struct pool_entry *last = NULL;

	for (; list && e && limit && steps--; e = next(e, top)) {
		last = e;
		if (e->is_dir)
			continue;
		limit--;
		if (json_array_append_new(list,
					  object_json(m, master_entry_file(e)))) {
			json_decref(list);
			return NULL;
		}
	}
	if (!list)
		return NULL;
	if (e && last)
		token = token_of(last);
	return json_pack("{so so}", "objects", list, "next",
			 token ? token : json_null());
}

json_t *master_objects_json(struct master *m, const char *prefix,
			    const char *token, unsigned int limit)
{
	struct pool_entry *top, *e;
	size_t len;

	prefix = prefix ? prefix : "";
	while (*prefix == '/')
		prefix++;
	len = strlen(prefix);
	while (len && prefix[len - 1] == '/')
		len--;
	if (limit < 1)
		limit = 1;
	if (limit > PAGE_MAX)
		limit = PAGE_MAX;
	top = pool_tree_lookup(&m->map.tree, prefix, len);
	e = top && token && *token ? resume(m, token, top) : top;
	return page(m, top, e, limit);
}
