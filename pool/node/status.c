/* Metrics and JSON pages of a node. Each figure of the status page is a metric.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "pool/model/pages.h"
#include "pool/verbs/device.h"

/* ---- metrics ---- */

#define COUNTER_OF(field, name, labels, help)                                 \
	{ offsetof(struct node_counters, field), "kvpool_node_" name, labels, \
	  help }
#define COUNTER(field, name, help) COUNTER_OF(field, name, NULL, help)

static const struct {
	size_t offset;
	const char *name, *labels, *help;
} counters[] = {
	COUNTER_OF(lookup_local, "lookup_hits_total", "bytes=\"local\"",
		   "Look-ups by the mount that found a file: its bytes are "
		   "here (local) or at other nodes (peer)"),
	COUNTER_OF(lookup_peer, "lookup_hits_total", "bytes=\"peer\"",
		   "Look-ups by the mount that found a file: its bytes are "
		   "here (local) or at other nodes (peer)"),
	COUNTER(lookup_misses, "lookup_misses_total",
		"Look-ups by the mount that found no name"),
	COUNTER(fetches, "fetches_total", "Objects fetched from other nodes"),
	COUNTER_OF(fetched_copied, "fetches_by_source_total",
		   "source=\"bytes\"",
		   "Fetched objects: copied (bytes), borrowed (descriptor), or "
		   "linked to the same file (link)"),
	COUNTER_OF(fetched_lent, "fetches_by_source_total",
		   "source=\"descriptor\"",
		   "Fetched objects: copied (bytes), borrowed (descriptor), or "
		   "linked to the same file (link)"),
	COUNTER_OF(fetched_linked, "fetches_by_source_total",
		   "source=\"link\"",
		   "Fetched objects: copied (bytes), borrowed (descriptor), or "
		   "linked to the same file (link)"),
	COUNTER(copies, "copies_total",
		"Copies of objects that this node got: stored, fetched, found"),
	COUNTER_OF(copies_evicted, "copies_ended_total", "cause=\"evicted\"",
		   "Copies that this node had: evicted, removed or replaced "
		   "(removed), or written again (rewritten)"),
	COUNTER_OF(copies_removed, "copies_ended_total", "cause=\"removed\"",
		   "Copies that this node had: evicted, removed or replaced "
		   "(removed), or written again (rewritten)"),
	COUNTER_OF(copies_rewritten, "copies_ended_total",
		   "cause=\"rewritten\"",
		   "Copies that this node had: evicted, removed or replaced "
		   "(removed), or written again (rewritten)"),
	COUNTER(evicted_unread, "evicted_unread_total",
		"Copies evicted that nobody had opened here, or fetched "
		"from here to read"),
	COUNTER(fetch_failures, "fetch_failures_total",
		"Fetches that no holder could satisfy"),
	COUNTER(fetch_bytes, "fetch_bytes_total",
		"Bytes fetched from other nodes"),
	COUNTER(fetch_retries, "fetch_retries_total",
		"Transfers retried, as a rule at another holder"),
	COUNTER(fetch_stalls, "fetch_stalls_total",
		"Transfers without progress, retried at another holder"),
	COUNTER(bad_sums, "checksum_errors_total",
		"Objects whose checksum did not match"),
	COUNTER(doubts_reported, "doubts_reported_total",
		"Corrupt transfers that were reported to their holder"),
	COUNTER(doubts, "doubts_total",
		"Reports of peers that a local copy may be damaged"),
	COUNTER(doubts_skipped, "doubts_skipped_total",
		"Such reports ignored: checked recently, or too many wait"),
	COUNTER(doubts_unfounded, "doubts_unfounded_total",
		"Reported copies that were found intact"),
	COUNTER(damaged, "damaged_total",
		"Local copies found damaged or missing, and dropped"),
	COUNTER(prefetched, "prefetch_started_total",
		"Fetches started after a look-up hit"),
	COUNTER(prefetch_useful, "prefetch_useful_total",
		"Prefetched objects that were opened"),
	COUNTER(prefetch_wasted, "prefetch_wasted_total",
		"Prefetched objects dropped without having been opened"),
	COUNTER(prefetch_dropped, "prefetch_dropped_total",
		"Prefetches that failed or were replaced by a REPLICATE order"),
	COUNTER(prefetch_skipped, "prefetch_skipped_total",
		"Look-up hits not fetched because of a bound"),
	COUNTER(published, "published_total", "Objects published"),
	COUNTER(put_bytes, "put_bytes_total", "Bytes sealed"),
	COUNTER(loaded_bytes, "loaded_bytes_total",
		"Bytes of the files that the mount opened to read"),
	COUNTER(asked_others, "other_directories_total",
		"Look-ups and opens of files counted together, as there are "
		"too many directories in the root"),
	COUNTER(same_content, "same_content_total",
		"Files closed with the content that their name already had"),
	COUNTER(before_forgotten, "unknown_contents_forgotten_total",
		"Contents in doubt (sent, not acked) that were forgotten at "
		"the bound per name"),
	COUNTER(stale_puts, "stale_puts_total",
		"Publications refused because a newer generation exists"),
	COUNTER(unlinked, "unlinked_total", "Published names unlinked here"),
	COUNTER(reserved_creates, "creates_reserved_total",
		"Files created with reserved pages (passthrough)"),
	COUNTER(served_creates, "creates_served_total",
		"Files created daemon-served"),
	COUNTER(surplus, "surplus_total",
		"Counted copies that became cached ones: there are enough "
		"others"),
	COUNTER(hot, "hot_total",
		"Reports to the master that peers request an object often"),
	COUNTER(evicted_cache, "evicted_cached_total", "Cached copies evicted"),
	COUNTER(evicted_last, "evicted_granted_total",
		"Counted copies evicted or moved with the master's permission"),
	COUNTER(evicted_alone, "evicted_alone_total",
		"Counted copies evicted without a master"),
	COUNTER(evicted_recalled, "evicted_recalled_total",
		"Borrowed copies returned because their store evicts them"),
	COUNTER(evicted_forgotten, "evicted_forgotten_total",
		"Names dropped from the bounded list of evicted ones"),
	COUNTER(evicted_bytes, "evicted_bytes_total", "Bytes evicted"),
	COUNTER(poisoned, "poisoned_total",
		"Files dropped because a write failed"),
	COUNTER(outgrown, "outgrown_total",
		"Files dropped because they outgrew the store, or their "
		"reservation while space ran out"),
	COUNTER(fds_closed, "kept_descriptors_closed_total",
		"Descriptors of open files closed at their bound"),
	COUNTER(abandoned, "abandoned_total",
		"Unpublished files dropped because nobody used them"),
	COUNTER(seal_tries, "seal_tries_total",
		"Attempts to seal a closed file"),
	COUNTER(seal_retries, "seal_retries_total",
		"Publications delayed by a writable mapping"),
	COUNTER(claims_waited, "space_waits_total",
		"Writes and fetches that waited for space"),
	COUNTER(claims_refused, "space_refused_total",
		"Writes and fetches refused for lack of space"),
	COUNTER(claims_passing, "space_passing_total",
		"Claims of cached copies granted from the headroom"),
	COUNTER(claims_through, "space_through_total",
		"Writes granted from the headroom, to be moved to another "
		"store"),
	COUNTER(ops_refused, "changes_refused_total",
		"Changes refused because too many wait for the master, or too "
		"many of one user or of one name's attributes"),
	COUNTER(ops_merged, "changes_merged_total",
		"Changes of attributes merged into one that had not been sent"),
	COUNTER(quota_refused, "quota_refused_total",
		"Directories and attributes refused: a user or all have too "
		"many"),
	COUNTER(publish_waits, "publish_waits_total",
		"Publications delayed: too many changes wait for the master"),
	COUNTER(ops_failed, "changes_failed_total",
		"Changes that the master refused"),
	COUNTER(feed_entries, "feed_entries_total", "Feed entries applied"),
	COUNTER(feed_batches, "feed_batches_total", "Feed batches applied"),
	COUNTER(feed_resyncs, "feed_resyncs_total", "Whole pictures received"),
	COUNTER(master_requests, "master_messages_total",
		"Messages sent to the master"),
	COUNTER(master_connects, "master_connects_total",
		"Connections made to a master"),
	COUNTER(bad_messages, "bad_messages_total",
		"Messages of a master that ended the connection: unexpected, "
		"too large, or malformed"),
	COUNTER(master_standbys, "master_standbys_total",
		"Answers of a standby that named the leader"),
	COUNTER(replicated, "replicated_total",
		"Replicas made here on the master's order"),
	COUNTER(linked, "linked_total",
		"Replicas that are links to a file of a client on this host: "
		"no bytes were moved"),
	COUNTER(replicate_failures, "replicate_failures_total",
		"Replicas that could not be made"),
	COUNTER(inventory_sent, "inventory_entries_total",
		"Objects reported in inventories"),
	COUNTER(walked, "walked_names_total",
		"Names visited by walks over the mirror"),
	COUNTER(barrier_timeouts, "fsync_timeouts_total",
		"Directory fsyncs that timed out"),
};

#define GAUGE(field, name, help) \
	{ offsetof(struct node_counters, field), "kvpool_node_" name, help }

static const struct {
	size_t offset;
	const char *name, *help;
} gauges[] = {
	GAUGE(store_size, "store_size_bytes", "Bytes the store may hold"),
	GAUGE(store_used, "store_used_bytes", "Bytes in the store"),
	GAUGE(store_free, "store_free_bytes", "Bytes free in the store"),
	GAUGE(store_ready, "store_ready_bytes", "Bytes reserved ahead"),
	GAUGE(claimed, "claimed_bytes", "Bytes granted and not written yet"),
	GAUGE(evictable, "evictable_bytes", "Bytes of evictable objects"),
	GAUGE(objects, "objects", "Objects that the master counts"),
	GAUGE(object_bytes, "object_bytes",
	      "Bytes of objects that the master counts"),
	GAUGE(cached, "cached_objects", "Cached copies"),
	GAUGE(prefetch_unread, "prefetch_unread_objects",
	      "Prefetched objects that were not opened yet"),
	GAUGE(cached_bytes, "cached_bytes", "Bytes of cached copies"),
	GAUGE(borrowed, "borrowed_objects",
	      "Objects borrowed from nodes on this host"),
	GAUGE(extras, "extra_copies",
	      "Copies kept for readers elsewhere while they are hot"),
	GAUGE(pending, "pending_changes",
	      "Changes that the master has not acked"),
	GAUGE(writing, "unpublished_files", "Local files not published"),
	GAUGE(fds, "kept_descriptors",
	      "Descriptors kept of files that the mount has open"),
	GAUGE(connected, "master_connected", "1 if joined"),
	GAUGE(cut_off, "cut_off_seconds",
	      "Time without a master; 0: connected"),
	GAUGE(epoch, "master_epoch", "The master's epoch"),
	GAUGE(walked_max, "walked_names_turn_max",
	      "Most names that walks visited in one turn of the loop"),
	GAUGE(names, "names", "Names in the mirror of the namespace"),
	GAUGE(dirs, "directories", "Directories"),
	GAUGE(attr_bytes, "attribute_bytes", "Bytes of extended attributes"),
};

static uint64_t count_list(const struct pool_list *l)
{
	const struct pool_list *it;
	uint64_t k = 0;

	for (it = l->next; it != l; it = it->next)
		k++;
	return k;
}

static uint64_t cut_off_ms(const struct pool_node *n)
{
	return n->cut_off_ms ? pool_now_ms() - n->cut_off_ms : 0;
}

static void node_gauges(struct pool_node *n)
{
	struct node_counters *c = &n->c;
	struct pool_space sp;
	int64_t ahead_ms;

	pool_store_space(n->store, &sp);
	pool_gauge_set(&c->store_size, (int64_t)sp.size);
	pool_gauge_set(&c->store_used, (int64_t)sp.used);
	pool_gauge_set(&c->store_free, (int64_t)sp.free);
	pool_gauge_set(&c->store_ready, (int64_t)sp.ready);
	pool_gauge_set(&c->claimed, (int64_t)n->claimed);
	pool_gauge_set(&c->evictable, (int64_t)node_evictable(n));
	pool_gauge_set(
		&c->objects,
		(int64_t)(pool_evict_count(n->evict, POOL_EVICT_COUNTED) +
			  pool_evict_count(n->evict, POOL_EVICT_KEPT) +
			  pool_evict_count(n->evict, POOL_EVICT_UNSTORED)));
	pool_gauge_set(
		&c->object_bytes,
		(int64_t)(pool_evict_bytes(n->evict, POOL_EVICT_COUNTED) +
			  pool_evict_bytes(n->evict, POOL_EVICT_KEPT) +
			  pool_evict_bytes(n->evict, POOL_EVICT_UNSTORED)));
	pool_gauge_set(&c->cached, (int64_t)pool_evict_count(
				n->evict, POOL_EVICT_CACHE));
	pool_gauge_set(&c->cached_bytes, (int64_t)pool_evict_bytes(
				n->evict, POOL_EVICT_CACHE));
	pool_gauge_set(&c->borrowed, (int64_t)n->borrowed);
	pool_gauge_set(&c->extras, n->nextras);
	pool_gauge_set(&c->fds, n->nfds);
	pool_gauge_set(&c->pending, (int64_t)(n->nops +
				count_list(&n->sealing)));
	pool_gauge_set(&c->writing, (int64_t)count_list(&n->writers));
	pool_gauge_set(&c->connected, node_session_up(n));
	pool_gauge_set(&c->cut_off, (int64_t)(cut_off_ms(n) / 1000));
	pool_gauge_set(&c->epoch, (int64_t)n->epoch);
	pool_gauge_set(&c->names, (int64_t)n->tree.hash.count);
	pool_gauge_set(&c->dirs, (int64_t)n->quota.used.dirs);
	pool_gauge_set(&c->attr_bytes, (int64_t)n->quota.used.bytes);
	if (!node_session_clock(n, &ahead_ms))
		ahead_ms = 0;
	pool_gauge_set(&c->clock_ahead_ns, ahead_ms * 1000000);
	node_asked_gauges(n);
}

static void on_print(void *arg)
{
	node_gauges(arg);
}

int node_metrics_register(struct pool_node *n)
{
	const struct {
		struct pool_hist *hist;
		const char *labels;
	} fetches[] = {
		{ &n->c.fetch_copied, "source=\"bytes\"" },
		{ &n->c.fetch_lent, "source=\"descriptor\"" },
		{ &n->c.fetch_linked, "source=\"link\"" },
	};
	char *base = (char *)&n->c;
	size_t i;
	int err = 0;

	for (i = 0; !err && i < sizeof(counters) / sizeof(counters[0]); i++)
		err = pool_metrics_counter(
			n->metrics,
			(struct pool_counter *)(void *)(base +
							counters[i].offset),
			counters[i].name, counters[i].labels,
			counters[i].help);
	for (i = 0; !err && i < sizeof(gauges) / sizeof(gauges[0]); i++)
		err = pool_metrics_gauge(
			n->metrics,
			(struct pool_gauge *)(void *)(base +
						      gauges[i].offset),
			gauges[i].name, NULL, gauges[i].help);
	if (!err)
		err = pool_metrics_hist(n->metrics, &n->c.put,
					"kvpool_node_put_seconds", NULL,
					"From the last close to the seal");
	if (!err)
		err = pool_metrics_hist(n->metrics, &n->c.publish,
					"kvpool_node_publish_seconds", NULL,
					"From a file's last close, or its "
					"rename, to the master's ack");
	for (i = 0; !err && i < sizeof(fetches) / sizeof(fetches[0]); i++)
		err = pool_metrics_hist(n->metrics, fetches[i].hist,
					"kvpool_node_get_seconds",
					fetches[i].labels,
					"Fetching an object from another node");
	if (!err)
		err = pool_metrics_gauge_ns(
			n->metrics, &n->c.clock_ahead_ns,
			"kvpool_node_clock_ahead_seconds", NULL,
			"How far the wall clock is ahead of the master's; 0: "
			"not known");
	if (!err)
		err = node_asked_open(n);
	if (!err)
		err = pool_metrics_on_print(n->metrics, on_print, n);
	return err;
}

/* ---- pages ---- */

bool pool_node_ready(const struct pool_node *n)
{
	return !n->closing && (!n->opts.mount || n->ops);
}

/* "2026-11-21T08:49:30Z", or null while there is a master. */
static json_t *degraded_since(const struct pool_node *n)
{
	time_t at = (time_t)(pool_wall_ns() / 1000000000ull -
			     cut_off_ms(n) / 1000);
	char text[32];
	struct tm tm;

	if (!n->cut_off_ms || !gmtime_r(&at, &tm))
		return json_null();
	strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &tm);
	return json_string(text);
}

/* null: there is no master, or it does not report its clock. */
static json_t *clock_ahead(const struct pool_node *n)
{
	int64_t ms;

	return node_session_clock(n, &ms) ? json_integer(ms) : json_null();
}

/* Names, paths and strings received from other nodes may not be valid UTF-8. */
static json_t *text_of(const char *s)
{
	return pool_pages_text(s, strlen(s));
}

json_t *pool_node_status_json(struct pool_node *n)
{
	char devices[1024];
	struct node_counters *c = &n->c;
	json_t *s;

	node_gauges(n);
#define G(f) (json_int_t)pool_gauge_value(&c->f)
#define C(f) (json_int_t)pool_counter_value(&c->f)
	s = json_pack("{s:s, s:o, s:i, s:o, s:s, s:o, s:b}",
		      "role", "node", "name", text_of(n->name), "pid",
		      (int)getpid(), "advertise", text_of(n->advertise),
		      "data_mode", n->data_mode, "store_dir",
		      text_of(n->store_dir), "degraded", n->cut_off_ms != 0);
	if (!s)
		return NULL;
	json_object_set_new(s, "degraded_since", degraded_since(n));
	json_object_set_new(s, "store", json_pack(
		"{s:I, s:I, s:I, s:I, s:I}", "size", G(store_size), "used",
		G(store_used), "free", G(store_free), "ready", G(store_ready),
		"evictable", G(evictable)));
	json_object_set_new(s, "master", json_pack(
		"{s:s, s:s, s:o, s:b, s:I, s:I, s:I}", "address",
		node_session_master(n), "version", node_session_program(n),
		"clock_ahead_ms", clock_ahead(n), "connected",
		node_session_up(n), "epoch", G(epoch), "index",
		(json_int_t)n->index, "cut_off_ms",
		(json_int_t)cut_off_ms(n)));
	json_object_set_new(s, "objects", json_integer(G(objects)));
	json_object_set_new(s, "bytes", json_integer(G(object_bytes)));
	json_object_set_new(s, "cached", json_integer(G(cached)));
	json_object_set_new(s, "cached_bytes", json_integer(G(cached_bytes)));
	json_object_set_new(s, "borrowed", json_integer(G(borrowed)));
	json_object_set_new(s, "extra_copies", json_integer(G(extras)));
	json_object_set_new(s, "sent_bytes", json_integer(
		(json_int_t)pool_peers_sent(n->peers)));
	json_object_set_new(s, "names", json_integer(G(names)));
	json_object_set_new(s, "pending", json_integer(G(pending)));
	json_object_set_new(s, "unpublished", json_integer(G(writing)));
	json_object_set_new(s, "hits", json_integer(C(lookup_local) +
						    C(lookup_peer)));
	json_object_set_new(s, "misses", json_integer(C(lookup_misses)));
	json_object_set_new(s, "asked", node_asked_json(n));
	json_object_set_new(s, "evictions",
			    json_integer(C(evicted_cache) + C(evicted_last) +
					 C(evicted_alone)));
#undef G
#undef C
	json_object_set_new(s, "rdma_devices",
			    json_string(verbs_format(n->opts.verbs, devices,
						     sizeof(devices))));
	return s;
}

static json_t *member_state(const struct node_member *m)
{
	if (!m->alive || !m->draining)
		return json_string(m->alive ? "alive" : "away");
	return m->drained_percent == 100 ?
		       json_string("drained") :
		       json_sprintf("draining %u %%", m->drained_percent);
}

static json_t *member_json(const struct node_member *m, unsigned int index)
{
	return json_pack(
		"{s:i, s:o, s:o, s:o, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, "
		"s:I, s:o}",
		"index", (int)index, "name", text_of(m->name), "advertise",
		text_of(m->advertise), "state", member_state(m), "alive",
		m->alive, "is_store", m->is_store, "is_mount", m->is_mount,
		"data_mode", text_of(m->data_mode), "capacity",
		(json_int_t)m->capacity, "used", (json_int_t)m->used,
		"evictable", (json_int_t)m->evictable, "objects",
		(json_int_t)m->objects, "sent_bytes",
		(json_int_t)m->sent_bytes, "version", text_of(m->program));
}

json_t *pool_node_nodes_json(struct pool_node *n)
{
	json_t *list = json_array();
	unsigned int i;

	for (i = 0; list && i < n->nmembers; i++)
		if (n->members[i].known)
			json_array_append_new(
				list, member_json(&n->members[i], i));
	return json_pack("{s:o}", "nodes", list);
}

/* Known holders of the published version; none for an unpublished file. */
static json_t *holder_names(struct pool_node *n, const struct node_entry *e)
{
	unsigned int i, count = e->own ? 0 : e->nholders;
	json_t *list = json_array();

	for (i = 0; list && i < count; i++) {
		struct node_member *m = node_member(n, e->holders[i]);
		const char *name = m ? m->name : "?";

		if (json_array_append_new(list, text_of(name))) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}

static json_t *object_json(struct pool_node *n, struct node_entry *e,
			   const char *path)
{
	const struct node_attr *attr = e->own && e->own->w ? &e->own->w->attr :
							     &e->attr;
	char sum[40] = "", state[32] = "";

	(void)pool_node_info(n, &e->e, "user.kvpool.checksum", sum,
			     sizeof(sum));
	(void)pool_node_info(n, &e->e, "user.kvpool.state", state,
			     sizeof(state));
	/* An unpublished file has neither generation nor checksum. */
	return json_pack("{s:o, s:I, s:o, s:s, s:o, s:s, s:i, s:I}", "path",
			 pool_pages_text(path, strlen(path)), "size",
			 (json_int_t)(e->own ? e->own->size : e->size),
			 "generation", sum[0] ? pool_pages_generation(e->gen) :
						json_string(""),
			 "checksum", sum, "nodes", holder_names(n, e), "state",
			 state, "replicas", (int)e->replicas, "mtime_ns",
			 (json_int_t)attr->mtime_ns);
}

static int object_item(void *arg, struct pool_entry *e, json_t **ret_json)
{
	char path[POOL_PATH_MAX + 1];

	if (!pool_node_visible(e) || node_entry_path(e, path) < 0)
		return 0;
	*ret_json = object_json(arg, node_file(e), path);
	return *ret_json ? 0 : -ENOMEM;
}

int pool_node_objects_json(struct pool_node *n, const char *prefix,
			   const char *token, unsigned int limit,
			   json_t **ret_json)
{
	return pool_pages_list(&n->tree, prefix, token, limit, object_item, n,
			       ret_json);
}
