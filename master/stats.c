/*
 * Metrics, and the summary line in the log.
 */
#include <stdio.h>
#include <string.h>

#include "master/asked.h"
#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

struct named {
	const char *name, *labels, *help;
};

#define OP(kind) \
	{ "kvpool_master_ops_total", "kind=\"" kind "\"", \
	  "Changes that nodes requested, by kind." }
#define EVICT(verdict) \
	{ "kvpool_master_evictions_total", "verdict=\"" verdict "\"", \
	  "Counted copies that nodes asked to drop, by verdict." }

#define QUOTA(limit) \
	{ "kvpool_master_quota_refused_total", "limit=\"" limit "\"", \
	  "Changes refused for the quota of directories or attributes, by " \
	  "limit: of one user, of the pool." }

static const struct named counters[MC_NCOUNTERS] = {
	[MC_PUBLISH] = OP("publish"),
	[MC_UNLINK] = OP("unlink"),
	[MC_MKDIR] = OP("mkdir"),
	[MC_RMDIR] = OP("rmdir"),
	[MC_SETATTR] = OP("setattr"),
	[MC_OPS_FAILED] = { "kvpool_master_ops_failed_total", NULL,
			    "Changes answered with an error." },
	[MC_FEED_ENTRIES] = { "kvpool_master_feed_entries_total", NULL,
			      "Names sent to subscribers." },
	[MC_FEED_BATCHES] = { "kvpool_master_feed_batches_total", NULL,
			      "Feed messages sent to subscribers." },
	[MC_PICTURES_SHORT] = { "kvpool_master_feed_pictures_short_total", NULL,
				"Snapshots of the map without names that kept "
				"changing while it was sent." },
	[MC_PICTURES] = { "kvpool_master_feed_pictures_total", NULL,
			  "Snapshots of the map sent to subscribers." },
	[MC_INVENTORY] = { "kvpool_master_inventory_entries_total", NULL,
			   "Objects listed by joining nodes." },
	[MC_INVENTORY_DROPPED] = { "kvpool_master_inventory_dropped_total",
				   NULL,
				   "Objects that joining nodes had to drop." },
	[MC_NOT_ALLOWED] = { "kvpool_master_not_allowed_total", NULL,
			     "Changes and copies refused because the sender's "
			     "certificate is not for their directory." },
	[MC_OTHER_USERS] = { "kvpool_master_other_users_total", NULL,
			     "Changes refused because the sender's certificate "
			     "does not speak for their user." },
	[MC_INVENTORY_REFUSED] = { "kvpool_master_inventory_refused_total",
				   NULL,
				   "Objects that joining nodes had to drop "
				   "because they may have been deleted: "
				   "tombstones were forgotten." },
	[MC_INVENTORY_CONFLICT] = { "kvpool_master_inventory_conflicts_total",
				    NULL,
				    "Objects of one generation whose content "
				    "differed." },
	[MC_EVICT_GRANTED] = EVICT("granted"),
	[MC_EVICT_LAST] = EVICT("last"),
	[MC_EVICT_REFUSED] = EVICT("refused"),
	[MC_SURPLUS] = { "kvpool_master_surplus_total", NULL,
			 "Copies beyond what rules want, now cache." },
	[MC_REPAIR_BYTES] = { "kvpool_master_repaired_bytes_total", NULL,
			      "Bytes of copies made by repair." },
	[MC_EXTRAS] = { "kvpool_master_extra_copies_total", NULL,
			"Extra copies ordered because an object is read "
			"often." },
	[MC_EXTRAS_REFUSED] = { "kvpool_master_extra_copies_refused_total",
				NULL,
				"Reports of hot objects that ordered no extra "
				"copy." },
	[MC_EXTRAS_COLD] = { "kvpool_master_extra_copies_ended_total", NULL,
			     "Extra copies given up because they were no "
			     "longer read." },
	[MC_MOVES] = { "kvpool_master_moves_total", NULL,
		       "Copies ordered so that another one may be dropped." },
	[MC_REPLICATIONS] = { "kvpool_master_replications_total", NULL,
			      "Copies ordered because rules want them." },
	[MC_COPIES_FAILED] = { "kvpool_master_copies_failed_total", NULL,
			       "Ordered copies that failed or timed out." },
	[MC_COPIES_PUT_OFF] = { "kvpool_master_copies_put_off_total", NULL,
				"Copies not ordered yet, because their only "
				"source gave none of the last ones." },
	[MC_COPIES_DAMAGED] = { "kvpool_master_copies_damaged_total", NULL,
				"Copies that their nodes found to be "
				"damaged." },
	[MC_COPIES_GIVEN_UP] = { "kvpool_master_copies_given_up_total", NULL,
				 "Ordered copies given up until a patrol." },
	[MC_WAITS] = { "kvpool_master_syncs_total", NULL,
		       "SYNC requests: wait for the acks of all mounts." },
	[MC_WAITS_REFUSED] = { "kvpool_master_syncs_refused_total", NULL,
			       "SYNC requests beyond the bound of a session." },
	[MC_BAD_MESSAGES] = { "kvpool_master_bad_messages_total", NULL,
			      "Messages that ended their session." },
	[MC_BAD_ITEMS] = { "kvpool_master_bad_items_total", NULL,
			   "Invalid items of messages, ignored." },
	[MC_UNJOINED] = { "kvpool_master_sessions_unjoined_total", NULL,
			  "Connections ended because no JOIN came in time." },
	[MC_CUT_OFF] = { "kvpool_master_sessions_cut_off_total", NULL,
			 "Sessions ended for missing heartbeats or feed "
			 "acks, or unread messages." },
	[MC_HELD] = { "kvpool_master_answers_held_total", NULL,
		      "Messages held back until the state was in etcd." },
	[MC_RESULTS_FORGOTTEN] = { "kvpool_master_results_forgotten_total",
				   NULL,
				   "Results dropped at their bound before the "
				   "node had received them." },
	[MC_OPS_DEFERRED] = { "kvpool_master_ops_put_off_total", NULL,
			     "OPS that waited for inventories." },
	[MC_OPS_TURNS] = { "kvpool_master_ops_turns_total", NULL,
			   "OPS that waited until all mounts had acked the "
			   "node's earlier changes." },
	[MC_INVENTORY_PARTS] = { "kvpool_master_inventory_turns_total", NULL,
				 "INVENTORY messages that waited for etcd." },
	[MC_PAUSES] = { "kvpool_master_pauses_total", NULL,
			"Times that changes were paused, because a SYNC waited "
			"long for changes that were not in etcd." },
	[MC_OPS_DEFERRED_REFUSED] = { "kvpool_master_ops_put_off_refused_total",
				     NULL,
				     "OPS beyond the bound of waiting ones; "
				     "each ended its session." },
	[MC_ISSUED_FORGOTTEN] = { "kvpool_master_own_changes_forgotten_total",
			       NULL,
			       "Generations issued to conditional changes, "
			       "forgotten at their bound." },
	[MC_SESSIONS_REFUSED] = { "kvpool_master_sessions_refused_total", NULL,
				  "Connections and joins refused." },
	[MC_IDS_REFUSED] = { "kvpool_master_ids_refused_total", NULL,
			     "Joins refused: a node at another address has the "
			     "id." },
	[MC_FIGURES] = { "kvpool_master_impossible_figures_total", NULL,
			 "Reports of nodes whose figures cannot be, and were "
			 "bounded or ignored." },
	[MC_MEMORY_ENDED] = { "kvpool_master_sessions_ended_for_memory_total",
			      NULL,
			      "Sessions ended because all together used too "
			      "much memory." },
	[MC_LOST_KEYS] = { "kvpool_master_lost_keys_total", NULL,
			   "Keys whose last holder is gone." },
	[MC_QUOTA_USER] = QUOTA("user"),
	[MC_QUOTA_POOL] = QUOTA("pool"),
};

#define REQUEST(type) "type=\"" type "\""
static const char *const request_labels[POOL_MSG_MAX] = {
	[POOL_MSG_JOIN] = REQUEST("join"),
	[POOL_MSG_INVENTORY] = REQUEST("inventory"),
	[POOL_MSG_SUBSCRIBE] = REQUEST("subscribe"),
	[POOL_MSG_FEED_ACK] = REQUEST("feed_ack"),
	[POOL_MSG_OPS] = REQUEST("ops"),
	[POOL_MSG_EVICT] = REQUEST("evict"),
	[POOL_MSG_HELD] = REQUEST("held"),
	[POOL_MSG_SYNC] = REQUEST("sync"),
	[POOL_MSG_HEARTBEAT] = REQUEST("heartbeat"),
};

static int register_counters(struct master_stats *st, struct pool_metrics *pm)
{
	int err = 0;
	unsigned int i;

	for (i = 0; i < MC_NCOUNTERS && !err; i++)
		err = pool_metrics_counter(pm, &st->c[i], counters[i].name,
					   counters[i].labels,
					   counters[i].help);
	for (i = 0; i < POOL_MSG_MAX && !err; i++)
		if (request_labels[i])
			err = pool_metrics_counter(
				pm, &st->requests[i],
				"kvpool_master_requests_total",
				request_labels[i],
				"Messages handled, by type.");
	for (i = 0; i < POOL_MSG_MAX && !err; i++)
		if (request_labels[i])
			err = pool_metrics_hist(
				pm, &st->took[i],
				"kvpool_master_request_seconds",
				request_labels[i],
				"Time in which the loop handled a message, by "
				"type.");
	if (!err)
		err = pool_metrics_counter(
			pm, &st->graves_forgotten,
			"kvpool_master_deletions_forgotten_total", NULL,
			"Records of deletions dropped at their bounds.");
	if (!err)
		err = pool_metrics_counter(
			pm, &st->holders_full,
			"kvpool_master_holders_full_total", NULL,
			"Holders not recorded because a key has too many.");
	if (!err)
		err = pool_metrics_hist(
			pm, &st->sync, "kvpool_master_sync_seconds", NULL,
			"Time of a SYNC, until all mounts have acked.");
	if (!err)
		err = pool_metrics_hist(
			pm, &st->feed, "kvpool_master_feed_seconds", NULL,
			"From sending changes to a mount until it has acked "
			"them.");
	return err;
}

#define ENDANGERED(left) \
	{ "kvpool_master_endangered_keys", "left=\"" left "\"", \
	  "Keys with fewer copies than wanted, by copies left (3: or more)." }

struct named_gauge {
	struct pool_gauge *g;
	struct named n;
};

static int register_gauges(struct master_stats *st, struct pool_metrics *pm)
{
	const struct named_gauge list[] = {
		{ &st->keys, { "kvpool_master_keys", NULL, "Keys." } },
		{ &st->dirs,
		  { "kvpool_master_directories", NULL, "Directories." } },
		{ &st->attr_bytes,
		  { "kvpool_master_attribute_bytes", NULL,
		    "Bytes of extended attributes." } },
		{ &st->bytes,
		  { "kvpool_master_bytes", NULL, "Total size of all keys." } },
		{ &st->tombs,
		  { "kvpool_master_tombstones", NULL,
		    "Deletions remembered, so that older copies stay "
		    "deleted." } },
		{ &st->grave_bytes,
		  { "kvpool_master_deletion_bytes", NULL,
		    "Bytes of the records of deletions and evictions." } },
		{ &st->nodes, { "kvpool_master_nodes", NULL, "Nodes known." } },
		{ &st->nodes_alive,
		  { "kvpool_master_nodes_alive", NULL, "Nodes connected." } },
		{ &st->other_version,
		  { "kvpool_master_nodes_other_version", NULL,
		    "Nodes connected whose program has another version than "
		    "this master." } },
		{ &st->capacity,
		  { "kvpool_master_capacity_bytes", NULL,
		    "Capacity of the connected stores." } },
		{ &st->used,
		  { "kvpool_master_used_bytes", NULL,
		    "Bytes used in the connected stores." } },
		{ &st->evictable,
		  { "kvpool_master_evictable_bytes", NULL,
		    "Bytes that the connected stores could free now." } },
		{ &st->sessions,
		  { "kvpool_master_sessions", NULL, "Connections." } },
		{ &st->session_bytes,
		  { "kvpool_master_session_bytes", NULL,
		    "Memory of connections: messages queued, held back, "
		    "deferred, partly received." } },
		{ &st->subscribers,
		  { "kvpool_master_subscribers", NULL,
		    "Mounts that receive the change feed." } },
		{ &st->needs,
		  { "kvpool_master_pending_replications", NULL,
		    "Copies wanted or in flight." } },
		{ &st->unmet,
		  { "kvpool_master_copies_unmet", NULL,
		    "1 if copies are wanted that no store has room for." } },
		{ &st->endangered[1], ENDANGERED("0") },
		{ &st->endangered[2], ENDANGERED("1") },
		{ &st->endangered[3], ENDANGERED("2") },
		{ &st->endangered[4], ENDANGERED("3") },
		{ &st->repairs,
		  { "kvpool_master_repairs_under_way", NULL,
		    "Copies that repair has ordered." } },
		{ &st->repair_left,
		  { "kvpool_master_repair_bytes_left", NULL,
		    "Bytes of copies that repair has yet to make." } },
		{ &st->repair_rate,
		  { "kvpool_master_repair_bytes_per_second", NULL,
		    "Recent speed of repair." } },
		{ &st->repair_limit,
		  { "kvpool_master_repair_limit_bytes_per_second", NULL,
		    "Speed limit of repair; 0: none." } },
		{ &st->repair_eta,
		  { "kvpool_master_repair_seconds_left", NULL,
		    "Time until repair is done at this speed; -1: unknown, or "
		    "no store has room." } },
		{ &st->stuck_keys,
		  { "kvpool_master_repair_no_room_keys", NULL,
		    "Keys with a missing copy that no store has room for." } },
		{ &st->stuck_bytes,
		  { "kvpool_master_repair_no_room_bytes", NULL,
		    "Bytes of keys with a missing copy that no store has "
		    "room for." } },
		{ &st->draining,
		  { "kvpool_master_nodes_draining", NULL,
		    "Nodes being drained." } },
		{ &st->soft,
		  { "kvpool_master_pinned_keys", "pin=\"soft\"",
		    "Keys with a pin." } },
		{ &st->hard,
		  { "kvpool_master_pinned_keys", "pin=\"hard\"",
		    "Keys with a pin." } },
		{ &st->ready,
		  { "kvpool_master_ready", NULL,
		    "1 once the inventories are complete." } },
		{ &st->epoch, { "kvpool_master_epoch", NULL, "Epoch." } },
		{ &st->state_bytes,
		  { "kvpool_master_state_bytes", NULL,
		    "Size of the state file." } },
		{ &st->feed_seq,
		  { "kvpool_master_feed_sequence", NULL,
		    "Number of the latest change." } },
		{ &st->uptime,
		  { "kvpool_master_uptime_seconds", NULL,
		    "Time since the master started." } },
	};
	size_t i;
	int err = 0;

	for (i = 0; i < sizeof(list) / sizeof(list[0]) && !err; i++)
		err = pool_metrics_gauge(pm, list[i].g, list[i].n.name,
					 list[i].n.labels, list[i].n.help);
	return err;
}

static int register_windows(struct master_stats *st, struct pool_metrics *pm)
{
	static const char *const labels[POOL_ASKED_WINDOWS] = {
		"window=\"15m\"", "window=\"1h\"", "window=\"24h\""
	};
	int err = 0;

	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS && !err; i++) {
		struct master_window_gauges *w = &st->asked[i];

		err = pool_metrics_gauge(
			pm, &w->lookups, "kvpool_master_window_lookups",
			labels[i],
			"Look-ups of files by the pool's mounts in the "
			"window.");
		if (!err)
			err = pool_metrics_gauge(
				pm, &w->hits, "kvpool_master_window_hits",
				labels[i],
				"Look-ups in the window that found a file.");
		if (!err)
			err = pool_metrics_gauge(
				pm, &w->best_hits,
				"kvpool_master_window_best_hits", labels[i],
				"Look-ups in the window that could have found "
				"a file, had nothing been evicted (estimate).");
		if (!err)
			err = pool_metrics_gauge(
				pm, &w->names, "kvpool_master_window_names",
				labels[i],
				"Distinct names among the look-ups in the "
				"window (estimate).");
	}
	return err;
}

static void set(struct pool_gauge *g, uint64_t v)
{
	pool_gauge_set(g, (int64_t)v);
}

static void raise_to(struct pool_counter *c, uint64_t v)
{
	pool_count_add(c, v - pool_counter_value(c));
}

static void set_repair(struct master *m, struct master_stats *st)
{
	unsigned int i;

	for (i = 1; i < MASTER_DANGERS; i++)
		set(&st->endangered[i], m->map.endangered[i]);
	set(&st->repairs, m->repair.throttle.copies);
	set(&st->repair_left, m->repair.bytes_left);
	set(&st->repair_rate, m->repair.throttle.bytes_per_s);
	set(&st->repair_limit, m->repair.throttle.rate);
	pool_gauge_set(&st->repair_eta, master_repair_seconds_left(&m->repair));
	set(&st->stuck_keys, m->repair.stuck_keys);
	set(&st->stuck_bytes, m->repair.stuck_bytes);
	set(&st->draining, m->members.ndraining);
}

static void set_windows(struct master *m, struct master_stats *st)
{
	struct pool_seen s[POOL_ASKED_WINDOWS];

	master_asked_totals(m, s);
	for (unsigned int i = 0; i < POOL_ASKED_WINDOWS; i++) {
		set(&st->asked[i].lookups, s[i].seen);
		set(&st->asked[i].hits, s[i].hits);
		set(&st->asked[i].best_hits, pool_seen_best(&s[i]));
		set(&st->asked[i].names, s[i].keys);
	}
}

static unsigned int count_other_versions(const struct master *m)
{
	unsigned int n = 0;

	for (unsigned int i = 0; i < m->members.n; i++) {
		const struct master_member *mb = m->members.by_index[i];

		n += master_member_alive(mb) &&
		     strcmp(mb->program, m->program) != 0;
	}
	return n;
}

/* Names in the map, and records of removed ones. */
static uint64_t feed_items(const struct master_map *map)
{
	return map->nfiles + map->ndirs + map->ntombs + map->nghosts;
}

static void set_lags(struct master *m)
{
	uint64_t now_ns = pool_now_ns(), all = feed_items(&m->map);
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);
		uint64_t behind;

		if (!s->subscribed)
			continue;
		behind = master_sub_behind(&m->map.feed, &s->sub);
		set(&s->lag.changes, behind < all ? behind : all);
		set(&s->lag.oldest_ns,
		    s->sub.nsent ? now_ns - s->sub.sent_ns[0] : 0);
	}
}

void master_stats_subscribed(struct master_session *s)
{
	struct pool_metrics *pm = s->m->metrics;
	int n;

	if (!pm)
		return;
	n = pool_metrics_label(s->lag.labels, sizeof(s->lag.labels), "node",
			       s->member->name);
	snprintf(s->lag.labels + n, sizeof(s->lag.labels) - (size_t)n,
		 ",index=\"%u\"", s->member->index);
	if (pool_metrics_gauge(pm, &s->lag.changes,
			       "kvpool_master_feed_lag_changes", s->lag.labels,
			       "Changes that the mount of this node has not "
			       "acked.") ||
	    pool_metrics_gauge_ns(pm, &s->lag.oldest_ns,
				  "kvpool_master_feed_lag_seconds",
				  s->lag.labels,
				  "Age of the oldest changes that were sent to "
				  "this node and are not acked."))
		pool_warn_limited("no memory for metrics of a node's feed");
}

void master_stats_unsubscribed(struct master_session *s)
{
	if (s->m->metrics)
		pool_metrics_remove(s->m->metrics, &s->lag, sizeof(s->lag));
}

static void on_print(void *arg)
{
	struct master *m = arg;
	struct master_stats *st = &m->stats;
	struct master_totals t;

	master_members_totals(&m->members, &t);
	set(&st->keys, m->map.nfiles);
	set(&st->dirs, m->map.ndirs);
	set(&st->attr_bytes, m->map.quota.used.bytes);
	set(&st->bytes, m->map.bytes);
	set(&st->tombs, m->map.ntombs);
	set(&st->grave_bytes, m->map.tomb_bytes + m->map.ghost_bytes);
	set(&st->nodes, t.nodes);
	set(&st->nodes_alive, t.alive);
	set(&st->other_version, count_other_versions(m));
	set(&st->capacity, t.capacity);
	set(&st->used, t.used);
	set(&st->evictable, t.evictable);
	set(&st->sessions, m->nsessions);
	set(&st->session_bytes, master_limits_bytes(m));
	set(&st->subscribers, m->nsubscribers);
	set(&st->needs, m->repair.nwaiting + m->repair.nordered);
	set(&st->unmet, m->repair.unmet);
	set_repair(m, st);
	set_windows(m, st);
	set_lags(m);
	set(&st->soft, m->map.pinned[POOL_PIN_SOFT]);
	set(&st->hard, m->map.pinned[POOL_PIN_HARD]);
	set(&st->ready, m->ready);
	set(&st->epoch, m->epoch);
	set(&st->feed_seq, m->map.feed.seq);
	set(&st->uptime, (pool_now_ms() - m->start_ms) / 1000);
	set(&st->state_bytes, m->state ? master_state_bytes(m->state) : 0);
	raise_to(&st->graves_forgotten, m->map.nforgotten);
	raise_to(&st->holders_full, m->map.holders_full);
}

int master_stats_register(struct master *m, struct pool_metrics *metrics)
{
	int err = register_counters(&m->stats, metrics);

	if (!err)
		err = register_gauges(&m->stats, metrics);
	if (!err)
		err = register_windows(&m->stats, metrics);
	if (!err)
		err = pool_metrics_on_print(metrics, on_print, m);
	return err;
}

void master_summary(struct master *m)
{
	struct master_totals t;
	char used[16], capacity[16];

	master_members_totals(&m->members, &t);
	pool_info("pool: %s of %s used (%.1f %%), %llu keys, %llu soft-pinned, "
		  "%llu hard-pinned, %u of %u nodes",
		  pool_format_size(t.used, used, sizeof(used)),
		  pool_format_size(t.capacity, capacity, sizeof(capacity)),
		  t.capacity ? 100.0 * (double)t.used / (double)t.capacity : 0,
		  (unsigned long long)m->map.nfiles,
		  (unsigned long long)m->map.pinned[POOL_PIN_SOFT],
		  (unsigned long long)m->map.pinned[POOL_PIN_HARD], t.alive,
		  t.nodes);
}
