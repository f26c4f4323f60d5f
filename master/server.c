/*
 * The master's life: loading the state, listening, ticking, closing.
 */
#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master/etcd_state.h"
#include "master/impl.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define SORT_BYTES (64u << 10) /* below malloc's mmap threshold */
#define FORGET_MAX 2000u /* graves forgotten in one turn */
#define LOST_NS 1000000000ull
#define SYNC_MS 1000	 /* between two fdatasync */
#define INVENTORY_MAX_MS 60000u /* grace for inventories being received */

uint64_t master_next_gen(struct master *m)
{
	return m->epoch << POOL_GEN_SEQ_BITS | ++m->gen_seq;
}

/* Each may be a record in the state. */
static void forget(struct master *m, uint64_t before_wall_ns)
{
	if (!master_keep_crowded(m))
		master_map_forget(&m->map, before_wall_ns, FORGET_MAX);
}

static void tick_state(struct master *m, uint64_t now_ms)
{
	uint64_t before = pool_wall_ns();
	int fd;

	before = before > MASTER_TOMB_AGE_NS ? before - MASTER_TOMB_AGE_NS : 0;
	forget(m, before);
	if (!master_keeps(m))
		return;
	master_keep_lost(m);
	master_keep_flush(m);
	if (!m->state || now_ms < m->next_sync_ms || m->sync_busy)
		return;
	m->next_sync_ms = now_ms + SYNC_MS;
	if (master_state_compact_due(m->state, m->ndirs_made + m->map.ntombs +
						       m->map.nbelow +
						       m->map.nremade +
						       m->members.n))
		master_compaction_start(m);
	fd = master_state_sync_fd(m->state);
	if (fd >= 0)
		master_sync_start(m, fd, false);
}

/* ---- ticks ---- */

/*
 * last_ms: when the last message of the node arrived. Messages sent to it in
 * the grace before that may not have been executed, so it counts as absent from
 * the beginning of that grace.
 */
static void member_gone(struct master *m, struct master_member *mb,
			uint64_t last_ms)
{
	uint64_t grace_ms = (uint64_t)m->heartbeat_ms * MASTER_GRACE;
	uint64_t ago_ns = (pool_now_ms() - last_ms + grace_ms) * 1000000u;
	uint64_t wall_ns = pool_wall_ns();

	master_member_gone(&m->members, mb,
			   wall_ns > ago_ns ? wall_ns - ago_ns : 1);
	master_keep_member(m, mb);
}

static void set_ready(struct master *m, const char *why)
{
	uint64_t ms = pool_now_ms() - m->start_ms;
	unsigned int i;

	m->ready = true;
	pool_info("epoch %llu: ready after %llu ms (%s), %llu keys",
		  (unsigned long long)m->epoch, (unsigned long long)ms, why,
		  (unsigned long long)m->map.nfiles);
	master_event(m->events, "ready", "epoch %llu, %llu keys (%s)",
		     (unsigned long long)m->epoch,
		     (unsigned long long)m->map.nfiles, why);
	for (i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];

		if (!mb->expected)
			continue;
		mb->expected = false;
		if (mb->session)
			continue;
		pool_warn_paced("node %s has not come back", mb->name);
		master_event(m->events, "gone", "%s has not come back",
			     mb->name);
		member_gone(m, mb, m->start_ms);
	}
	/* Now do what had to wait: deferred OPS, missing copies, completing
	 * pictures. */
	master_ops_run_deferred(m);
	master_inventory_again(m);
	master_patrol_start(m);
	master_kick(m);
}

/* Has the loop stood still since the last tick? Then messages of live nodes are
 * still unread, and are read in the next heartbeat's time. */
static bool is_stalled(const struct master *m, uint64_t now_ms)
{
	return now_ms - m->last_tick_ms > m->heartbeat_ms;
}

void master_check_ready(struct master *m)
{
	uint64_t now_ms = pool_now_ms();
	uint64_t ms = now_ms - m->start_ms - m->stalled_ms;

	if (m->ready || master_recovering(m))
		return;
	if (!master_members_recovering(&m->members))
		set_ready(m, "all inventories are in");
	else if (!is_stalled(m, now_ms) &&
		 ms >= (uint64_t)m->heartbeat_ms * MASTER_GRACE &&
		 (!master_members_joining(&m->members) ||
		  ms >= INVENTORY_MAX_MS))
		set_ready(m, "three heartbeats are over");
}

static void update_figures(struct master *m, uint64_t now_ms)
{
	uint64_t before = m->members.changes;

	master_members_round(&m->members, m->nsubscribers, now_ms);
	if (m->members.changes != before)
		master_kick(m);
}

/* Is the node dead? A long message, or many sessions sharing the turns, may
 * delay its next whole message; then bytes that arrive count, for
 * MASTER_WHOLE_GRACE times the limit. */
static bool is_silent(const struct master_member *mb, uint64_t now_ms,
		      uint64_t limit_ms)
{
	/* A node sends nothing before WELCOME, which may be held back. */
	if (!mb->session || !mb->session->sent_ms ||
	    now_ms - mb->received_ms <= limit_ms)
		return false;
	if (!pool_list_empty(&mb->session->inventory))
		return false; /* it is not read */
	return pool_conn_silent_ms(mb->session->conn) > limit_ms ||
	       now_ms - mb->received_ms > MASTER_WHOLE_GRACE * limit_ms;
}

/* Heartbeats of a node may queue behind its long inventory. If the master did
 * not send one without being asked, the node would consider it dead, join again
 * and start from the beginning. */
static void beat_quiet_sessions(struct master *m, uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		/* Not before WELCOME, which may be held back. */
		if (s->member && s->sent_ms &&
		    now_ms - s->sent_ms >= m->heartbeat_ms)
			master_session_beat(s);
	}
}

static void check_members(struct master *m, uint64_t now_ms)
{
	uint64_t limit = (uint64_t)m->heartbeat_ms * MASTER_GRACE;
	unsigned int i;

	for (i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];

		if (is_silent(mb, now_ms, limit)) {
			struct master_session *s = mb->session;

			master_count(m, MC_CUT_OFF);
			master_session_end(s, "no heartbeat");
			/* It has been silent for the whole grace already. */
			mb->away_ms = mb->received_ms;
		}
		if (mb->session || mb->gone || mb->expected ||
		    now_ms - mb->away_ms <= limit)
			continue;
		pool_warn_paced(
			"node %s is gone: objects that only it held have left "
			"the pool",
			mb->name[0] ? mb->name : "?");
		master_event(m->events, "gone",
			     "%s: objects that only it held have left the pool",
			     mb->name[0] ? mb->name : "?");
		member_gone(m, mb, mb->received_ms);
		master_patrol_start(m);
		master_kick(m);
	}
}

/* End connections that have not joined in time. */
static void check_unjoined(struct master *m, uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (s->member || s->ended ||
		    now_ms - s->opened_ms <=
			    (uint64_t)m->heartbeat_ms * MASTER_GRACE)
			continue;
		master_count(m, MC_UNJOINED);
		master_session_end(s, "it did not join");
	}
}

/* ---- events that are not caused by a message ---- */

#define REPAIRED_MS 5000 /* nothing to repair for so long: it has ended */
#define FULL_PERCENT 5	 /* free or evictable; less: full */
#define ROOM_PERCENT 10	 /* more: no longer */
#define EXPIRES_S (7 * 24 * 3600)
#define DAY_MS (24u * 3600 * 1000)

static void note_losses(struct master *m)
{
	uint64_t lost = pool_counter_value(&m->stats.c[MC_LOST_KEYS]);

	if (lost > m->noted.lost)
		master_event(m->events, "lost",
			     "%llu objects lost their last copy",
			     (unsigned long long)(lost - m->noted.lost));
	m->noted.lost = lost;
}

static void note_repair(struct master *m, uint64_t now_ms)
{
	uint64_t left = m->repair.bytes_left;
	char size[32];

	if (left > 0) {
		m->noted.repair_ms = now_ms;
		if (!m->noted.repairing)
			master_event(m->events, "repair",
				     "begun: %s are short of copies",
				     pool_format_size(left, size,
						      sizeof(size)));
		m->noted.repairing = true;
	} else if (m->noted.repairing &&
		   now_ms - m->noted.repair_ms >= REPAIRED_MS) {
		master_event(m->events, "repair",
			     "ended: all copies that can be made are there");
		m->noted.repairing = false;
	}
}

static void note_space(struct master *m)
{
	struct master_totals t;
	uint64_t room;
	unsigned int percent;

	master_members_totals(&m->members, &t);
	if (!t.capacity)
		return;
	room = t.evictable + (t.capacity > t.used ? t.capacity - t.used : 0);
	percent = (unsigned int)(room / (t.capacity / 100 + 1));
	if (!m->noted.full && percent < FULL_PERCENT) {
		master_event(m->events, "full",
			     "%u %% of the pool are free or evictable",
			     percent);
		m->noted.full = true;
	} else if (m->noted.full && percent > ROOM_PERCENT) {
		master_event(m->events, "room",
			     "%u %% of the pool are free or evictable",
			     percent);
		m->noted.full = false;
	}
}

static void note_expiry(struct master *m, const char *whose, int64_t left_s)
{
	if (left_s < 0)
		master_event(m->events, "expiring",
			     "%s certificate has expired", whose);
	else
		master_event(m->events, "expiring",
			     "%s certificate expires in %lld hours", whose,
			     (long long)(left_s / 3600));
}

static void note_certificate(struct master *m)
{
	int64_t left = m->tls ? pool_tls_expires_s(m->tls) : INT64_MAX;
	bool expires = left < EXPIRES_S;

	if (expires && !m->noted.expires)
		note_expiry(m, "the master's", left);
	m->noted.expires = expires;
}

/* Once for each certificate, and once a day for a node that keeps changing what
 * it tells. */
static void note_nodes_certificates(struct master *m, uint64_t now_ms)
{
	uint64_t now_s = pool_wall_ns() / 1000000000u;
	char whose[sizeof(m->members.by_index[0]->name) + 2];

	for (unsigned int i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];
		bool expires = mb->session && mb->cert_expires &&
			       mb->cert_expires < now_s + EXPIRES_S;

		if (expires && !mb->expiry_noted &&
		    (!mb->expiry_ms || now_ms - mb->expiry_ms >= DAY_MS)) {
			snprintf(whose, sizeof(whose), "%s's", mb->name);
			note_expiry(m, whose,
				    (int64_t)(mb->cert_expires - now_s));
			mb->expiry_ms = now_ms;
		}
		if (mb->session)
			mb->expiry_noted = expires;
	}
}

static void note_changes(struct master *m, uint64_t now_ms)
{
	note_losses(m);
	note_repair(m, now_ms);
	if (m->ready)
		note_space(m);
	note_certificate(m);
	note_nodes_certificates(m, now_ms);
}

static void on_tick(uv_timer_t *t)
{
	struct master *m = t->data;
	uint64_t now_ms = pool_now_ms();
	bool stalled = is_stalled(m, now_ms);

	if (!master_acting(m))
		return;

	if (stalled) {
		m->stalled_ms += now_ms - m->last_tick_ms;
		m->stalled_at_ms = now_ms;
	}
	m->last_tick_ms = now_ms;
	master_recover_tick(m, now_ms);
	/* soon after a stall, silence does not mean that a node is dead */
	if (now_ms - m->stalled_at_ms > m->heartbeat_ms) {
		check_members(m, now_ms);
		check_unjoined(m, now_ms);
		master_check_acks(m, now_ms);
	}
	if (!stalled)
		master_limits_check(m);
	beat_quiet_sessions(m, now_ms);
	update_figures(m, now_ms);
	master_check_ready(m);
	if (now_ms >= m->patrol.next_ms && !m->patrol.active && m->ready)
		master_patrol_start(m);
	master_repair_run(m, now_ms);
	note_changes(m, now_ms);
	tick_state(m, now_ms);
	if (m->summary_s && now_ms >= m->next_summary_ms) {
		m->next_summary_ms = now_ms + (uint64_t)m->summary_s * 1000;
		master_summary(m);
	}
}

static void on_pump(uv_timer_t *t)
{
	struct master *m = t->data;

	m->pump_armed = false;
	if (!master_acting(m))
		return;
	forget(m, 0);
	master_repair_run(m, pool_now_ms());
	master_pump(m);
	master_ops_quanta(m);
	master_inventory_quanta(m);
}

static void on_slices(uv_idle_t *h)
{
	struct master *m = h->data;
	bool more = master_acting(m) && master_patrol_slice(m);

	more |= master_compaction_slice(m);
	if (!more)
		uv_idle_stop(h);
}

/* ---- open and close ---- */

static void on_handles_gone(struct master *m);

static void start_handles(struct master *m)
{
	uint64_t period = m->heartbeat_ms / 4;

	pool_share_open(&m->recv_share, m->loop, MASTER_TURN_BYTES);
	pool_share_open(&m->feed_share, m->loop, MASTER_TURN_ENTRIES);
	pool_share_open(&m->shakes, m->loop, POOL_CONN_SHAKES);
	m->recv_share.next.data = m->feed_share.next.data = m;
	m->shakes.next.data = m;
	uv_timer_init(m->loop, &m->tick);
	uv_timer_init(m->loop, &m->pump);
	m->on_pump = on_pump;
	m->on_handles_gone = on_handles_gone;
	m->on_session_end = master_session_detach;
	uv_idle_init(m->loop, &m->slices);
	m->on_slices = on_slices;
	m->tick.data = m->pump.data = m->slices.data = m;
	m->nhandles = 6;
	if (period > 250)
		period = 250;
	if (period < 5)
		period = 5;
	uv_timer_start(&m->tick, on_tick, period, period);
}

static void free_master(struct master *m)
{
	if (m->metrics)
		pool_metrics_remove(m->metrics, m, sizeof(*m));
	while (master_repair_fini_some(m, UINT_MAX))
		;
	master_state_close(m->state);
	master_map_fini(&m->map);
	master_members_fini(&m->members);
	master_events_fini(&m->own_events);
	free(m->state_path);
	free(m->issued.ring);
	free(m->buffers);
	free(m);
}

/*
 * Before a tombstone is deleted from etcd, a LOST record notes its time: else
 * the next leader would assume that it knows all deletions of that time. The
 * time is rounded up, so that one record covers the tombstones of a second.
 */
static void on_forgetting(void *arg, const struct master_grave *g)
{
	struct master_record r = { .type = MASTER_REC_LOST,
				   .account = g->owner->account };
	struct master *m = arg;

	if (g->wall_ns > g->owner->kept_wall_ns) {
		r.u64 = (g->wall_ns / LOST_NS + 1) * LOST_NS;
		g->owner->kept_wall_ns = r.u64;
		master_keep(m, &r);
	}
	etcd_state_forget(m->etcd_state, g);
}

static void on_disowned(void *arg, const struct master_grave *g)
{
	master_keep_tomb(arg, g);
}

static int load_state(struct master *m, const struct master_opts *opts)
{
	const char *path = opts->state_file;

	m->epoch = 1;
	m->map.arg = m;
	if (opts->etcd_state) {
		m->epoch = opts->epoch;
		m->etcd_state = opts->etcd_state;
		m->map.forgetting = on_forgetting;
		return etcd_state_replay(m->etcd_state, master_load_record, m);
	}
	if (!path)
		return 0;
	m->state_path = strdup(path);
	if (!m->state_path)
		return -ENOMEM;
	return master_state_open(path, master_load_record, m, &m->epoch,
				 &m->state);
}

static int open_listener(struct master *m, const struct master_opts *opts)
{
	const struct pool_hostport *at = &opts->listen;
	int err;

	if (!at->host[0])
		return 0;
	err = pool_listener_open(m->loop, at, master_session_accept, m,
				 &m->listener);
	if (err)
		return err;
	if (!opts->tls)
		pool_listener_trust(m->listener, opts->trust);
	m->port = pool_listener_port(m->listener);
	return 0;
}

int master_open(const struct master_opts *opts, struct master **ret_master)
{
	struct master *m = calloc(1, sizeof(*m));
	int err;

	if (m)
		m->buffers = calloc(1, sizeof(*m->buffers));
	if (!m || !m->buffers) {
		free(m);
		return -ENOMEM;
	}
	m->loop = opts->loop;
	m->tls = opts->tls;
	m->heartbeat_ms = opts->heartbeat_ms ? opts->heartbeat_ms : 1000;
	m->sessions_addr_max = opts->sessions_addr_max ?
				       opts->sessions_addr_max :
				       MASTER_SESSIONS_ADDR;
	m->sessions_bytes_max = opts->sessions_bytes_max ?
					opts->sessions_bytes_max :
					MASTER_SESSIONS_BYTES;
	m->summary_s = opts->summary_s;
	m->acting = opts->acting;
	m->acting_arg = opts->acting_arg;
	m->metrics = opts->metrics;
	m->program = opts->program ? opts->program : "";
	m->start_ms = m->last_tick_ms = pool_now_ms();
	m->next_summary_ms = m->start_ms + (uint64_t)m->summary_s * 1000;
	pool_list_init(&m->sessions);
	master_repair_init(&m->repair, opts->repair_rate, opts->repair_copies);
	master_members_init(&m->members);
	m->events = opts->events ? opts->events : &m->own_events;
	err = opts->events ? 0 : master_events_init(&m->own_events);
	if (!err)
		err = master_map_init(&m->map, MASTER_TOMBS_MAX,
				      MASTER_GHOSTS_MAX);
	if (err) {
		master_events_fini(&m->own_events);
		free(m->buffers);
		free(m);
		return err;
	}
	pool_quota_limit(&m->map.quota, opts->dirs_max, opts->attr_bytes_max);
	err = load_state(m, opts);
	if (err)
		goto err_free;
	m->map.disowned = on_disowned; /* not of what was loaded */
	err = open_listener(m, opts);
	if (err)
		goto err_free;
	err = opts->metrics ? master_stats_register(m, opts->metrics) : 0;
	if (err)
		goto err_listener;
	start_handles(m);
	master_recover_begin(m, opts->recover_ms);
	master_check_ready(m);
	*ret_master = m;
	return 0;

err_listener:
	pool_listener_close(m->listener);
err_free:
	free_master(m);
	return err;
}

static void on_handles_gone(struct master *m)
{
	void (*closed)(void *arg) = m->closed;
	void *arg = m->closed_arg;

	assert(m->closing);
	free_master(m);
	if (closed)
		closed(arg);
}

static void on_handle_closed(uv_handle_t *h)
{
	master_handle_gone(h->data);
}

/*
 * free() only puts chunks on malloc's unsorted list; a malloc() that no sorted
 * chunk satisfies sorts up to 10,000 of them. Such a malloc() after each slice
 * sorts that slice's. Otherwise millions would be sorted in one turn, when this
 * process leads again and allocates its members (measured: 130 to 180 ms).
 */
static void sort_freed(void)
{
	void *volatile large = malloc(SORT_BYTES);

	free(large);
}

/* Frees the map in slices: meanwhile a former leader must serve nodes as a
 * standby, and use etcd. */
static void on_ending(uv_idle_t *h)
{
	struct master *m = h->data;

	sort_freed();
	if (!master_repair_fini_some(m, MASTER_SLICE) &&
	    !master_map_fini_some(&m->map, MASTER_SLICE))
		uv_close((uv_handle_t *)h, on_handle_closed);
}

void master_close(struct master *m, void (*closed)(void *arg), void *arg)
{
	struct pool_list *it, *tmp;

	m->closing = true;
	m->closed = closed;
	m->closed_arg = arg;
	pool_listener_close(m->listener);
	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		master_session_end(s, "the master is stopping");
	}
	master_cursor_close(&m->patrol.cursor);
	master_cursor_close(&m->compaction.cursor);
	m->patrol.active = m->compaction.walking = false;
	master_keep_flush(m);
	uv_close((uv_handle_t *)&m->tick, on_handle_closed);
	uv_close((uv_handle_t *)&m->pump, on_handle_closed);
	uv_idle_stop(&m->slices); /* starting an active handle is a no-op */
	uv_idle_start(&m->slices, on_ending);
	pool_share_close(&m->recv_share, on_handle_closed);
	pool_share_close(&m->feed_share, on_handle_closed);
	pool_share_close(&m->shakes, on_handle_closed);
}

uint16_t master_port(const struct master *m)
{
	return m->port;
}

bool master_ready(const struct master *m)
{
	return m->ready;
}
