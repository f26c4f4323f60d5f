/* Names and help texts of the metrics of transfers between nodes. */
#include "pool/peer/peer_priv.h"

static int add_failures(struct pool_peers *p)
{
	struct peer_metrics *m = &p->metrics;
	const struct {
		struct pool_counter *c;
		const char *labels;
	} kinds[] = {
		{ &m->fail_gone, "reason=\"gone\"" },
		{ &m->fail_timeout, "reason=\"timeout\"" },
		{ &m->fail_conn, "reason=\"connection\"" },
		{ &m->fail_bad, "reason=\"bad_answer\"" },
		{ &m->fail_local, "reason=\"local_write\"" },
		{ &m->fail_cancel, "reason=\"cancelled\"" },
	};
	int err = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && !err; i++)
		err = pool_metrics_counter(p->opts.metrics, kinds[i].c,
					   "kvpool_peer_fetch_failures_total",
					   kinds[i].labels,
					   "Fetches from peers that failed.");
	return err;
}

int peers_metrics(struct pool_peers *p)
{
	struct peer_metrics *m = &p->metrics;
	const struct {
		struct pool_counter *c;
		const char *name, *help;
	} counters[] = {
		{ &m->mover.bytes_in, "kvpool_peer_received_bytes_total",
		  "Object bytes received from peers." },
		{ &m->mover.bytes_out, "kvpool_peer_sent_bytes_total",
		  "Object bytes sent to peers." },
		{ &m->mover.stray_bytes, "kvpool_peer_stray_bytes_total",
		  "Bytes received for fetches that had ended." },
		{ &m->mover.lanes_silent, "kvpool_peer_lanes_silent_total",
		  "Bulk connections closed because they were silent." },
		{ &m->mover.lanes_refused, "kvpool_peer_lanes_refused_total",
		  "Bulk connections refused because of the limit." },
		{ &m->mover.bad_messages, "kvpool_peer_bad_messages_total",
		  "Messages of peers that were unexpected, out of bounds or "
		  "not decodable." },
		{ &m->mover.rdma_in, "kvpool_rdma_received_bytes_total",
		  "Object bytes received by RDMA." },
		{ &m->mover.rdma_pulled, "kvpool_rdma_pulled_bytes_total",
		  "Object bytes that this node read from peers by RDMA." },
		{ &m->mover.rdma_out, "kvpool_rdma_sent_bytes_total",
		  "Object bytes sent by RDMA." },
		{ &m->mover.rdma_fallbacks, "kvpool_rdma_fallbacks_total",
		  "Ranges sent over TCP because RDMA failed." },
		{ &m->mover.links_up, "kvpool_rdma_links_total",
		  "Queue pairs that were connected to peers." },
		{ &m->mover.links_broken, "kvpool_rdma_links_broken_total",
		  "Queue pairs that broke." },
		{ &m->mover.map_failures, "kvpool_rdma_map_failures_total",
		  "Ranges that could not be registered for a peer." },
		{ &m->cache.hits, "kvpool_rdma_sources_hits_total",
		  "Sends of objects that were already registered." },
		{ &m->cache.misses, "kvpool_rdma_sources_misses_total",
		  "Objects registered for sending." },
		{ &m->cache.failed, "kvpool_rdma_sources_failed_total",
		  "Objects that could not be registered for sending." },
		{ &m->cache.dropped, "kvpool_rdma_sources_dropped_total",
		  "Registrations dropped to make room, or because their "
		  "object was removed." },
		{ &m->fetched, "kvpool_peer_fetches_total",
		  "Ranges fetched from peers, as bytes." },
		{ &m->borrowed, "kvpool_peer_borrowed_total",
		  "Objects borrowed from peers as descriptors." },
		{ &m->answered, "kvpool_peer_answers_total",
		  "Ranges sent to peers." },
		{ &m->early, "kvpool_peer_early_total",
		  "Requests of peers that waited for their object." },
		{ &m->lent, "kvpool_peer_lent_total",
		  "Descriptors lent to peers." },
		{ &m->lent_refused, "kvpool_peer_lent_refused_total",
		  "Descriptors not lent because of the limit." },
		{ &m->lent_unsafe, "kvpool_peer_lent_unsafe_total",
		  "Descriptors not passed, or not accepted, because others "
		  "could write the file, or it is not on a tmpfs." },
		{ &m->other_users, "kvpool_peer_other_users_total",
		  "Unix sockets not used because the other end belongs to "
		  "another user." },
		{ &m->sessions_refused, "kvpool_peer_sessions_refused_total",
		  "Connections from peers refused." },
		{ &m->sessions_idle, "kvpool_peer_sessions_idle_total",
		  "Connections from peers closed because they were idle." },
		{ &m->sessions_silent, "kvpool_peer_sessions_silent_total",
		  "Connections from peers closed because no HELLO came in "
		  "time." },
		{ &m->ids_refused, "kvpool_peer_ids_refused_total",
		  "Connections from peers refused because the id is that of "
		  "a member elsewhere." },
		{ &m->sessions_unread, "kvpool_peer_sessions_unread_total",
		  "Connections from peers closed because they did not read "
		  "their answers." },
		{ &m->answers_denied, "kvpool_peer_answers_denied_total",
		  "Requests of clients for objects outside of their "
		  "certificate's namespaces." },
		{ &m->answers_refused, "kvpool_peer_answers_refused_total",
		  "Requests of peers refused because too many were in "
		  "flight." },
		{ &m->waiting_full, "kvpool_peer_waiting_full_total",
		  "Fetches refused because too many were waiting." },
	};
	const struct {
		struct pool_gauge *g;
		const char *name, *help;
	} gauges[] = {
		{ &m->lent_now, "kvpool_peer_lent",
		  "Descriptors lent to peers now." },
		{ &m->borrowed_now, "kvpool_peer_borrowed",
		  "Descriptors borrowed from peers now." },
		{ &m->inflight, "kvpool_peer_fetches_inflight",
		  "Fetches in flight." },
		{ &m->waiting, "kvpool_peer_fetches_waiting",
		  "Fetches waiting for a connection to their peer, or "
		  "because too many are in flight to it." },
		{ &m->cache.count, "kvpool_rdma_sources",
		  "Objects registered for sending now." },
		{ &m->cache.bytes, "kvpool_rdma_sources_bytes",
		  "Bytes of objects registered for sending now." },
	};
	const struct {
		struct pool_hist *h;
		const char *name, *help;
	} hists[] = {
		{ &m->mover.rdma_register, "kvpool_rdma_register_seconds",
		  "Time to register the destination of a range." },
		{ &m->mover.rdma_move, "kvpool_rdma_move_seconds",
		  "Time from registration until the range was complete." },
		{ &m->mover.rdma_sum, "kvpool_rdma_sum_seconds",
		  "Time for the checksum of a range while it arrived." },
		{ &m->mover.rdma_tail, "kvpool_rdma_tail_seconds",
		  "Time for the checksum after the last byte arrived." },
	};
	int err = 0;

	if (!p->opts.metrics)
		return 0;
	for (size_t i = 0; i < sizeof(counters) / sizeof(counters[0]) && !err;
	     i++)
		err = pool_metrics_counter(p->opts.metrics, counters[i].c,
					   counters[i].name, NULL,
					   counters[i].help);
	for (size_t i = 0; i < sizeof(gauges) / sizeof(gauges[0]) && !err; i++)
		err = pool_metrics_gauge(p->opts.metrics, gauges[i].g,
					 gauges[i].name, NULL, gauges[i].help);
	for (size_t i = 0; i < sizeof(hists) / sizeof(hists[0]) && !err; i++)
		err = pool_metrics_hist(p->opts.metrics, hists[i].h,
					hists[i].name, NULL, hists[i].help);
	return err ? err : add_failures(p);
}
