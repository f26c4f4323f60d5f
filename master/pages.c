/* The JSON pages; pool/model/pages.h defines the format of names and lists. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "master/asked.h"
#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/model/pages.h"

static json_t *u64(uint64_t v)
{
	return json_integer((json_int_t)v);
}

static json_t *text0(const char *s)
{
	return pool_pages_text(s, strlen(s));
}

/* Figures of keys that have fewer copies than wanted, by copies left. */
static json_t *repair_json(const struct master *m)
{
	const struct master_repair *r = &m->repair;
	const uint64_t *e = m->map.endangered;

	return json_pack("{so so so so so si so so so sI si so so}",
			 "endangered", u64(e[1] + e[2] + e[3] + e[4]), "left_0",
			 u64(e[1]), "left_1", u64(e[2]), "left_2", u64(e[3]),
			 "left_3_or_more", u64(e[4]), "copies_under_way",
			 (int)r->throttle.copies, "bytes_left",
			 u64(r->bytes_left), "bytes_per_second",
			 u64(r->throttle.bytes_per_s), "limit_bytes_per_second",
			 u64(r->throttle.rate), "seconds_left",
			 (json_int_t)master_repair_seconds_left(r), "draining",
			 (int)m->members.ndraining, "no_room_keys",
			 u64(r->stuck_keys), "no_room_bytes",
			 u64(r->stuck_bytes));
}

json_t *master_status_json(struct master *m)
{
	struct master_totals t;

	master_members_totals(&m->members, &t);
	return json_pack(
		"{so sb si si so so so so so so so so so so si si sb so so so "
		"so}",
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
		u64(pool_now_ms() - m->start_ms), "repair", repair_json(m),
		"asked", master_asked_json(m), "events", u64(m->events->next));
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

/* The node's state; while it is draining, the progress. */
static json_t *state_json(const struct master_member *mb)
{
	unsigned int percent = master_member_drained(mb);

	if (!mb->drain.on || !mb->session || !mb->inventoried)
		return json_string(state_of(mb));
	return percent == 100 ? json_string("drained") :
				json_sprintf("draining %u %%", percent);
}

static json_t *node_json(const struct master_member *mb)
{
	char id[2 * POOL_ID_SIZE + 1];

	to_hex(mb->id, POOL_ID_SIZE, id);
	return json_pack(
		"{si ss so so so so so so sb sb sb sb so so so so si si so ss "
		"sb}",
		"index", (int)mb->index, "id", id, "name", text0(mb->name),
		"advertise", text0(mb->advertise), "unix_path",
		text0(mb->unix_path), "host_id", text0(mb->host_id),
		"data_mode", text0(mb->data_mode), "state", state_json(mb),
		"alive", master_member_alive(mb), "is_store", mb->is_store,
		"is_mount", mb->is_mount, "draining", mb->drain.on, "capacity",
		u64(mb->capacity), "used", u64(mb->used), "evictable",
		u64(mb->evictable), "objects", u64(mb->objects),
		"copies_coming", (int)mb->coming, "copies_leaving",
		(int)mb->leaving, "sent_bytes", u64(mb->sent_bytes),
		"version", mb->program, "impossible_figures", mb->impossible);
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
	unsigned int extra = master_file_extras(f);
	struct pool_rules rules;

	master_file_rules(f, pool_wall_ns(), &rules);
	to_hex(f->sum, MASTER_SUM_SIZE, sum);
	return json_pack("{so so so ss si si si so so ss ss}", "path",
			 pool_pages_text(path, (size_t)len), "size",
			 u64(f->size), "generation",
			 pool_pages_generation(f->gen), "checksum", sum,
			 "replicas", (int)(f->nholders - extra),
			 "replicas_wanted", (int)rules.replicas, "extra_copies",
			 (int)extra, "nodes", holder_names(m, f), "mtime_ns",
			 u64(f->mtime_ns), "class", classes[rules.class], "pin",
			 pins[rules.pin]);
}

static int object_item(void *arg, struct pool_entry *e, json_t **ret_json)
{
	*ret_json = object_json(arg, master_entry_file(e));
	return *ret_json ? 0 : -ENOMEM;
}

int master_objects_json(struct master *m, const char *prefix,
			const char *token, unsigned int limit,
			json_t **ret_json)
{
	return pool_pages_list(&m->map.tree, prefix, token, limit, object_item,
			       m, ret_json);
}

json_t *master_happened_json(struct master *m, uint64_t since,
			     unsigned int limit)
{
	return master_events_json(m->events, since, limit);
}
