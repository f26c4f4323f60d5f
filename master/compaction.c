/*
 * Compaction of the state file: a walk over the map, a slice a turn, writes all
 * current records to a new file. A worker syncs it, then it replaces the old
 * one.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "master/impl.h"
#include "master/meta.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

static void sync_work(uv_work_t *w)
{
	struct master *m = w->data;

	m->sync_err = fdatasync(m->sync_fd) ? -errno : 0;
	close(m->sync_fd);
}

/* The worker has synced the new file; err: 0 or -errno. */
static void compaction_synced(struct master *m, int err)
{
	m->compaction.syncing = false;
	if (!master_state_compacting(m->state))
		return;
	if (err) {
		pool_warn_limited("state file: cannot sync its new version: %s",
				  strerror(-err));
		master_state_compact_abort(m->state);
		return;
	}
	if (!master_state_compact_commit(m->state))
		pool_info("state file rewritten: %llu records, %llu bytes",
			  (unsigned long long)master_state_records(m->state),
			  (unsigned long long)master_state_bytes(m->state));
}

static void sync_done(uv_work_t *w, int status)
{
	struct master *m = w->data;

	(void)status;
	m->sync_busy = false;
	if (m->sync_is_compaction)
		compaction_synced(m, m->sync_err);
	else if (m->sync_err)
		pool_warn_limited("state file: cannot sync: %s",
				  strerror(-m->sync_err));
	if (m->compaction.walking)
		master_slices_start(m);
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
			compaction_synced(m, -EAGAIN);
		return;
	}
	m->sync_busy = true;
	m->nhandles++;
}

/* For each account, the time of its newest forgotten tombstone. */
static int add_lost(struct master *m)
{
	struct master_record r = { .type = MASTER_REC_LOST };
	const struct master_owner *w = NULL;
	int err = 0;

	while (!err && (w = master_owners_next_lost(&m->map.owners, w))) {
		r.u64 = w->lost_wall_ns;
		r.account = w->account;
		err = master_state_compact_add(m->state, &r);
	}
	return err;
}

static int add_members(struct master *m)
{
	struct master_record r = { 0 };
	unsigned int i;
	int err = 0;

	for (i = 0; i < m->members.n && !err; i++) {
		const struct master_member *mb = m->members.by_index[i];

		r = master_member_record(mb);
		err = master_state_compact_add(m->state, &r);
		r.type = MASTER_REC_DRAIN;
		r.u64 = mb->drain.on;
		if (!err && mb->drain.on)
			err = master_state_compact_add(m->state, &r);
	}
	return err ? err : add_lost(m);
}

/* The map drops the tombstone of a name that is made again. The state keeps it:
 * if all copies of the new file are lost, those of older ones must not return.
 */
static int add_remade(struct master *m, const struct master_file *f)
{
	char path[POOL_PATH_MAX + 1];
	Kvpool__Meta meta = KVPOOL__META__INIT;
	struct master_record r = { .type = MASTER_REC_TOMB, .meta = &meta };
	int len;

	if (!f->was_deleted || !f->gen)
		return 0;
	len = pool_tree_path(&f->e, path, sizeof(path));
	assert(len > 0); /* a name's path fits */
	meta.path.data = (uint8_t *)path;
	meta.path.len = (size_t)len;
	meta.gen = f->gen - 1;
	meta.mtime_ns = pool_wall_ns();
	meta.uid = f->uid + 1;
	return master_state_compact_add(m->state, &r);
}

static int add_tomb(struct master *m, const struct master_grave *g)
{
	Kvpool__Meta meta = KVPOOL__META__INIT;
	struct master_record r = { .type = MASTER_REC_TOMB, .meta = &meta };

	if (!g || !g->tomb)
		return 0;
	meta.path.data = (uint8_t *)(uintptr_t)g->path;
	meta.path.len = g->path_len;
	master_keep_tomb_meta(g, &meta);
	return master_state_compact_add(m->state, &r);
}

/* A tombstone of the name comes first, as it was made before the directory. */
static int add_dir(struct master *m, struct master_dir *d)
{
	struct master_record r = { .type = MASTER_REC_DIR };
	struct master_batch *b;
	int err = add_tomb(m, d->file);

	if (err || !d->made)
		return err;
	b = master_batch_start(m);
	err = master_batch_add(b, &d->item);
	r.meta = &b->metas[0];
	if (d->extra)
		r.meta->base_gen = d->extra->rules.pin_until_ns;
	if (!err)
		err = master_state_compact_add(m->state, &r);
	master_batch_reset(b);
	return err;
}

static int add_item(struct master *m, struct master_item *i)
{
	if (i->kind == MASTER_FILE)
		return add_remade(m, master_item_file(i));
	if (i->kind == MASTER_DIR)
		return add_dir(m, master_item_dir(i));
	return add_tomb(m, master_item_grave(i));
}

void master_compaction_start(struct master *m)
{
	struct master_compaction *c = &m->compaction;

	if (c->walking || c->syncing || master_state_compact_begin(m->state))
		return;
	if (add_members(m)) {
		master_state_compact_abort(m->state);
		return;
	}
	c->walking = true;
	c->goal = m->map.feed.seq;
	master_cursor_open(&m->map.feed, &c->cursor);
	master_slices_start(m);
}

/* The walk has ended: sync the new file, unless writing it failed. */
static bool walked(struct master *m)
{
	struct master_compaction *c = &m->compaction;
	int fd;

	c->walking = false;
	master_cursor_close(&c->cursor);
	if (!master_state_compacting(m->state))
		return false;
	fd = master_state_compact_fd(m->state);
	if (fd < 0) {
		master_state_compact_abort(m->state);
		return false;
	}
	c->syncing = true;
	master_sync_start(m, fd, true);
	return false;
}

bool master_compaction_slice(struct master *m)
{
	struct master_compaction *c = &m->compaction;
	unsigned int left = MASTER_SLICE;
	struct master_item *i;

	if (!c->walking)
		return false;
	while (left-- && master_state_compacting(m->state)) {
		i = master_cursor_peek(&m->map.feed, &c->cursor);
		if (!i || i->seq > c->goal) {
			/* The worker is syncing the first file: sync_done goes
			 * on. */
			if (m->sync_busy)
				return false;
			/* Tombstones may have been forgotten meanwhile. */
			master_keep_lost(m);
			master_state_flush(m->state);
			return walked(m);
		}
		master_cursor_advance(&m->map.feed, &c->cursor);
		if (add_item(m, i))
			master_state_compact_abort(m->state);
	}
	master_state_flush(m->state);
	return master_state_compacting(m->state) ? true : walked(m);
}
