/*
 * The master's life: loading what was kept, listening, ticking, closing.
 */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "master/impl.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define FORGET_MAX 2000u /* graves forgotten in one turn */
#define SYNC_MS 1000	 /* between two fdatasync */

uint64_t master_next_gen(struct master *m)
{
	return m->epoch << POOL_GEN_SEQ_BITS | ++m->gen_seq;
}

/* ---- loading ---- */

static int load_dir(struct master *m, const Kvpool__Meta *meta)
{
	struct pool_xattrs *xattrs = NULL;
	struct pool_rules rules;
	struct master_attrs attrs;
	struct master_dir *d;
	bool made;
	int err;

	master_meta_attrs(meta, &attrs);
	err = master_map_make_dir(&m->map, (const char *)meta->path.data,
				  meta->path.len, &attrs, &d, &made);
	if (err == -ENOMEM)
		return err;
	if (err)
		return -EPROTO;
	err = master_meta_xattrs(meta, true, false, pool_wall_ns(), &xattrs,
				 &rules);
	if (err)
		return err == -ENOMEM ? err : -EPROTO;
	if (rules.pin_until_ns)
		rules.pin_until_ns = meta->base_gen;
	err = master_extra_set(&d->extra, xattrs, &rules);
	if (err) {
		pool_xattrs_free(xattrs);
		return err;
	}
	d->mode = attrs.mode;
	d->uid = attrs.uid;
	d->gid = attrs.gid;
	d->mtime_ns = attrs.mtime_ns;
	m->ndirs_made += !d->made;
	d->made = 1;
	master_map_touch_dir(&m->map, d);
	return 0;
}

static int load_rmdir(struct master *m, const Kvpool__Meta *meta)
{
	struct master_dir *d = master_map_dir(
		&m->map, (const char *)meta->path.data, meta->path.len);
	bool was_made;
	int err;

	if (!d)
		return 0;
	was_made = d->made;
	err = master_map_remove_dir(&m->map, d, pool_wall_ns());
	if (!err)
		m->ndirs_made -= was_made;
	return err == -ENOMEM ? err : 0;
}

static int load_member(struct master *m, const struct master_record *r)
{
	struct master_member *mb;
	int err = master_members_make(&m->members, r->id, &mb);

	if (err == -ENOSPC)
		return 0;
	if (err)
		return err;
	strncpy(mb->name, r->name, sizeof(mb->name) - 1);
	mb->left_wall_ns = r->u64;
	mb->expected = !r->u64;
	return 0;
}

static int load_record(void *arg, const struct master_record *r)
{
	struct master *m = arg;
	const Kvpool__Meta *meta = r->meta;

	if (meta && meta->path.len &&
	    pool_path_check((const char *)meta->path.data, meta->path.len))
		return -EPROTO;
	switch (r->type) {
	case MASTER_REC_EPOCH:
		return 0;
	case MASTER_REC_LOST:
		if (r->u64 > m->map.lost_wall_ns)
			m->map.lost_wall_ns = m->lost_kept_ns = r->u64;
		return 0;
	case MASTER_REC_MEMBER:
		return load_member(m, r);
	case MASTER_REC_DIR:
		return load_dir(m, meta);
	case MASTER_REC_RMDIR:
		return load_rmdir(m, meta);
	case MASTER_REC_TOMB:
		return master_map_bury(&m->map, (const char *)meta->path.data,
				       meta->path.len, meta->gen,
				       meta->mtime_ns);
	}
	return -EPROTO;
}

/* ---- keeping ---- */

static void keep(struct master *m, const struct master_record *r)
{
	if (m->state && master_state_append(m->state, r))
		pool_warn_limited("state file: a record was lost; the file is rewritten when its disk takes it");
}

void master_keep_dir(struct master *m, struct master_dir *d)
{
	struct master_record r = { .type = MASTER_REC_DIR };
	struct master_batch *b;

	if (!m->state)
		return;
	b = master_batch_start();
	if (!master_batch_add(b, &d->item)) {
		r.meta = b->list[0];
		if (d->extra)
			r.meta->base_gen = d->extra->rules.pin_until_ns;
		keep(m, &r);
	}
	master_batch_reset(b);
}

static void keep_path(struct master *m, enum master_record_type type,
		      const char *path, size_t len, uint64_t gen,
		      uint64_t wall_ns)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;
	struct master_record r = { .type = type, .meta = &meta };

	meta.path.data = (uint8_t *)path;
	meta.path.len = len;
	meta.gen = gen;
	meta.mtime_ns = wall_ns;
	keep(m, &r);
}

void master_keep_rmdir(struct master *m, const char *path, size_t len)
{
	keep_path(m, MASTER_REC_RMDIR, path, len, 0, 0);
}

void master_keep_tomb(struct master *m, const char *path, size_t len,
		      uint64_t gen, uint64_t wall_ns)
{
	keep_path(m, MASTER_REC_TOMB, path, len, gen, wall_ns);
}

void master_keep_member(struct master *m, const struct master_member *mb)
{
	struct master_record r = { .type = MASTER_REC_MEMBER,
				   .id = mb->id,
				   .name = mb->name,
				   .u64 = mb->left_wall_ns };

	keep(m, &r);
}

/* ---- syncing ---- */

static void sync_work(uv_work_t *w)
{
	struct master *m = w->data;

	m->sync_err = fdatasync(m->sync_fd) ? -errno : 0;
	close(m->sync_fd);
}

static void sync_done(uv_work_t *w, int status)
{
	struct master *m = w->data;

	(void)status;
	m->sync_busy = false;
	if (m->sync_is_compaction)
		master_compaction_synced(m, m->sync_err);
	else if (m->sync_err)
		pool_warn_limited("state file: cannot sync: %s",
				  strerror(-m->sync_err));
	master_handle_gone(m);
}

void master_sync_start(struct master *m, int fd, bool compaction)
{
	assert(!m->sync_busy);
	m->sync_fd = fd;
	m->sync_is_compaction = compaction;
	m->sync_work.data = m;
	if (uv_queue_work(m->loop, &m->sync_work, sync_work, sync_done)) {
		close(fd);
		if (compaction)
			master_compaction_synced(m, -EAGAIN);
		return;
	}
	m->sync_busy = true;
	m->nhandles++;
}

static void tick_state(struct master *m, uint64_t now_ms)
{
	uint64_t before = pool_wall_ns();
	struct master_record r = { .type = MASTER_REC_LOST };
	int fd;

	before = before > MASTER_TOMB_AGE_NS ? before - MASTER_TOMB_AGE_NS : 0;
	master_map_forget(&m->map, before, FORGET_MAX);
	if (!m->state)
		return;
	if (m->map.lost_wall_ns != m->lost_kept_ns) {
		r.u64 = m->lost_kept_ns = m->map.lost_wall_ns;
		keep(m, &r);
	}
	master_state_flush(m->state);
	if (now_ms < m->next_sync_ms || m->sync_busy)
		return;
	m->next_sync_ms = now_ms + SYNC_MS;
	if (master_state_compact_due(m->state, m->ndirs_made + m->map.ntombs +
						       m->members.n))
		master_compaction_start(m);
	fd = master_state_sync_fd(m->state);
	if (fd >= 0)
		master_sync_start(m, fd, false);
}

/* ---- ticks ---- */

static void set_ready(struct master *m, const char *why)
{
	uint64_t ms = pool_now_ms() - m->start_ms;
	unsigned int i;

	m->ready = true;
	pool_info("epoch %llu: ready after %llu ms (%s), %llu keys",
		  (unsigned long long)m->epoch, (unsigned long long)ms, why,
		  (unsigned long long)m->map.nfiles);
	for (i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];

		if (!mb->expected)
			continue;
		mb->expected = false;
		if (mb->session)
			continue;
		pool_warn("node %s has not come back", mb->name);
		master_member_gone(&m->members, mb, pool_wall_ns());
		master_keep_member(m, mb);
	}
	/* What was put off: copies that are wanted, pictures to complete. */
	master_patrol_start(m);
	master_kick(m);
}

void master_check_ready(struct master *m)
{
	if (m->ready)
		return;
	if (!master_members_recovering(&m->members))
		set_ready(m, "all inventories are in");
	else if (pool_now_ms() - m->start_ms >=
		 (uint64_t)m->heartbeat_ms * MASTER_GRACE)
		set_ready(m, "three heartbeats are over");
}

static void check_members(struct master *m, uint64_t now_ms)
{
	uint64_t limit = (uint64_t)m->heartbeat_ms * MASTER_GRACE;
	unsigned int i;

	for (i = 0; i < m->members.n; i++) {
		struct master_member *mb = m->members.by_index[i];

		if (mb->session && now_ms - mb->heard_ms > limit) {
			struct master_session *s = mb->session;

			master_count(m, MC_CUT_OFF);
			master_session_end(s, "no heartbeat");
			/* It has been silent for the whole grace already. */
			mb->away_ms = mb->heard_ms;
		}
		if (mb->session || mb->gone || mb->expected ||
		    now_ms - mb->away_ms <= limit)
			continue;
		pool_warn("node %s is gone: what it alone held has left the pool",
			  mb->name[0] ? mb->name : "?");
		master_member_gone(&m->members, mb, pool_wall_ns());
		master_keep_member(m, mb);
		master_patrol_start(m);
		master_kick(m);
	}
}

/* Who connects and does not join. */
static void check_strangers(struct master *m, uint64_t now_ms)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		if (!s->member && !s->ended &&
		    now_ms - s->opened_ms >
			    (uint64_t)m->heartbeat_ms * MASTER_GRACE)
			master_session_end(s, "it did not join");
	}
}

static void on_tick(uv_timer_t *t)
{
	struct master *m = t->data;
	uint64_t now_ms = pool_now_ms();
	/* If this loop stood still, what the nodes sent is yet unread. */
	bool stalled = now_ms - m->last_tick_ms > m->heartbeat_ms;

	m->last_tick_ms = now_ms;
	if (!stalled) {
		check_members(m, now_ms);
		check_strangers(m, now_ms);
		master_check_acks(m, now_ms);
	}
	master_check_ready(m);
	if (now_ms >= m->patrol.next_ms && !m->patrol.active && m->ready)
		master_patrol_start(m);
	master_repair_run(m, now_ms);
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
	master_map_forget(&m->map, 0, FORGET_MAX);
	master_repair_run(m, pool_now_ms());
	master_pump(m);
}

void master_kick(struct master *m)
{
	if (m->pump_armed || m->closing)
		return;
	m->pump_armed = true;
	uv_timer_start(&m->pump, on_pump, MASTER_COALESCE_MS, 0);
}

static void on_slices(uv_idle_t *h)
{
	struct master *m = h->data;
	bool more = master_patrol_slice(m);

	more |= master_compaction_slice(m);
	if (!more)
		uv_idle_stop(h);
}

void master_slices_start(struct master *m)
{
	if (!m->closing)
		uv_idle_start(&m->slices, on_slices);
}

/* ---- open and close ---- */

static void start_handles(struct master *m)
{
	uint64_t period = m->heartbeat_ms / 4;

	uv_timer_init(m->loop, &m->tick);
	uv_timer_init(m->loop, &m->pump);
	uv_idle_init(m->loop, &m->slices);
	m->tick.data = m->pump.data = m->slices.data = m;
	m->nhandles = 3;
	if (period > 250)
		period = 250;
	if (period < 5)
		period = 5;
	uv_timer_start(&m->tick, on_tick, period, period);
}

static void free_master(struct master *m)
{
	master_repair_fini(m);
	master_state_close(m->state);
	master_map_fini(&m->map);
	master_members_fini(&m->members);
	free(m->state_path);
	free(m);
}

static int load_state(struct master *m, const char *path)
{
	m->epoch = 1;
	if (!path)
		return 0;
	m->state_path = strdup(path);
	if (!m->state_path)
		return -ENOMEM;
	return master_state_open(path, load_record, m, &m->epoch, &m->state);
}

int master_open(const struct master_opts *opts, struct master **ret_master)
{
	struct master *m = calloc(1, sizeof(*m));
	int err;

	if (!m)
		return -ENOMEM;
	m->loop = opts->loop;
	m->heartbeat_ms = opts->heartbeat_ms ? opts->heartbeat_ms : 1000;
	m->summary_s = opts->summary_s;
	m->start_ms = m->last_tick_ms = pool_now_ms();
	m->next_summary_ms = m->start_ms + (uint64_t)m->summary_s * 1000;
	pool_list_init(&m->sessions);
	master_repair_init(&m->repair);
	master_members_init(&m->members);
	err = master_map_init(&m->map, MASTER_TOMBS_MAX, MASTER_GHOSTS_MAX);
	if (err) {
		free(m);
		return err;
	}
	err = load_state(m, opts->state_file);
	if (err)
		goto err_free;
	err = pool_listener_open(m->loop, &opts->listen, master_session_accept,
				 m, &m->listener);
	if (err)
		goto err_free;
	m->port = pool_listener_port(m->listener);
	err = opts->metrics ? master_stats_register(m, opts->metrics) : 0;
	if (err)
		goto err_listener;
	start_handles(m);
	master_check_ready(m);
	*ret_master = m;
	return 0;

err_listener:
	pool_listener_close(m->listener);
err_free:
	free_master(m);
	return err;
}

void master_handle_gone(struct master *m)
{
	void (*closed)(void *arg) = m->closed;
	void *arg = m->closed_arg;

	if (--m->nhandles)
		return;
	assert(m->closing);
	free_master(m);
	if (closed)
		closed(arg);
}

static void on_handle_closed(uv_handle_t *h)
{
	master_handle_gone(h->data);
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
	if (m->state)
		master_state_flush(m->state);
	uv_close((uv_handle_t *)&m->tick, on_handle_closed);
	uv_close((uv_handle_t *)&m->pump, on_handle_closed);
	uv_close((uv_handle_t *)&m->slices, on_handle_closed);
}

uint16_t master_port(const struct master *m)
{
	return m->port;
}

bool master_ready(const struct master *m)
{
	return m->ready;
}
