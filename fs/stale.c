/*
 * Who was told ESTALE. The kernel then looks the name up anew and asks again,
 * in the same thread, and passes a second ESTALE on to the program.
 *
 *   OPEN -> ESTALE     told
 *   LOOKUP             who writes: what is being written stays so until it
 *                      comes, and what is published is shown by a nodeid
 *                      that nobody has open, or opens to read (`coming`)
 *                      until it has come (struct fs_hold)
 *   OPEN               again: served, whatever it takes
 *
 * A thread whose note another one has overwritten (they share a place), or that
 * is in a PID namespace that we do not see (0), is taken for one that asks for
 * the first time: it may see ESTALE. One that asks for another file within
 * STALE_MS after all is served as if it asked again: as well, but perhaps with
 * a version that has just been replaced.
 */
#include "fs/fs_priv.h"

#include <string.h>

#define STALE_MS 1000 /* asked again, or its open after the look-up: at once,
			 nearly, but the thread may wait for a CPU */

static struct fs_stale *note_of(struct fs *fs, uint32_t tid)
{
	return &fs->stale[tid % FS_STALE_MAX];
}

static bool is_note_of(const struct fs_stale *s, uint32_t tid)
{
	return tid && s->tid == tid && pool_now_ms() - s->ms < STALE_MS;
}

bool fs_stale_coming(const struct fs_stale *s)
{
	return is_note_of(s, s->tid);
}

static struct fs_hold take_held(struct fs *fs, struct fs_stale *s)
{
	struct fs_hold held = s->held;

	if (held.obj || held.inode)
		fs->nheld--;
	memset(&s->held, 0, sizeof(s->held));
	return held;
}

void fs_stale_let(struct fs *fs, struct fs_hold *held)
{
	struct fs_hold h = *held;

	memset(held, 0, sizeof(*held));
	if (h.obj) {
		pool_node_writer_closed(fs->node, h.obj);
		node_object_unref(fs->node, h.obj);
	}
	if (h.inode) {
		h.inode->coming--;
		fs_inode_forget(fs, h.inode, 1);
	}
	if (h.obj || h.inode)
		fs->under_way[FS_LATER_AGAIN]--; /* not to be handed over */
}

void fs_stale_told(struct fs *fs, uint32_t tid, bool writes)
{
	pool_count(&fs->stale_opens);
	fs_stale_note(fs, tid, writes);
}

void fs_stale_note(struct fs *fs, uint32_t tid, bool writes)
{
	struct fs_stale *s = note_of(fs, tid);
	struct fs_hold held = take_held(fs, s);

	fs_stale_let(fs, &held);
	s->tid = tid;
	s->writes = writes;
	s->ms = pool_now_ms();
}

bool fs_stale_again(struct fs *fs, uint32_t tid, struct fs_hold *ret_held)
{
	struct fs_stale *s = note_of(fs, tid);
	bool again = is_note_of(s, tid);

	memset(ret_held, 0, sizeof(*ret_held));
	if (!tid || s->tid != tid)
		return false;
	*ret_held = take_held(fs, s);
	s->tid = 0;
	return again;
}

void fs_stale_over(struct fs *fs, uint32_t tid)
{
	struct fs_hold held;

	(void)fs_stale_again(fs, tid, &held);
	fs_stale_let(fs, &held);
}

/* What the name shows can be opened for writing until the thread has come. */
static void hold(struct fs *fs, struct fs_hold *held, struct node_entry *e)
{
	struct fs_inode *i = e->fs;

	held->name = e;
	if (e->own && e->own->state == NODE_WRITING) {
		held->obj = node_object_ref(e->own);
		pool_node_writer_opened(fs->node, held->obj);
		return;
	}
	if (i && i->opens > 0 && !i->served)
		fs_inode_unbind(fs, i); /* this look-up replaces the dentry */
	i = fs_inode_bind(fs, &e->e);
	if (!i)
		return;
	i->nlookup++;
	i->coming++;
	held->inode = i;
}

void fs_stale_lookup(struct fs *fs, uint32_t tid, struct node_entry *e)
{
	struct fs_stale *s = note_of(fs, tid);
	struct fs_hold before;

	if (!is_note_of(s, tid) || !s->writes)
		return;
	/* The kernel looks it up twice if the first finds another nodeid. */
	before = take_held(fs, s);
	hold(fs, &s->held, e);
	if (s->held.obj || s->held.inode) {
		s->ms = pool_now_ms();
		fs->nheld++;
		fs->under_way[FS_LATER_AGAIN]++;
		fs_waiting_schedule(fs);
	}
	fs_stale_let(fs, &before);
}

bool fs_stale_awaited(const struct fs *fs, const struct node_entry *e)
{
	unsigned int k;

	for (k = 0; e && fs->nheld && k < FS_STALE_MAX; k++)
		if (fs->stale[k].held.name == e)
			return true;
	return false;
}

void fs_stale_expire(struct fs *fs, bool all)
{
	uint64_t now = pool_now_ms();
	struct fs_hold held;
	unsigned int k;

	for (k = 0; fs->nheld && k < FS_STALE_MAX; k++) {
		if (!all && now - fs->stale[k].ms <= STALE_MS)
			continue;
		held = take_held(fs, &fs->stale[k]);
		fs_stale_let(fs, &held);
	}
}
