/*
 * Threads that were answered with ESTALE. The kernel then repeats path walk and
 * request in the same thread, with LOOKUP_REVAL, and returns a second ESTALE to
 * the program (do_filp_open in fs/namei.c; retry_estale in
 * include/linux/namei.h). A record of the thread distinguishes the second
 * request, the retry, from a first one:
 *
 *   OPEN -> ESTALE   fs_stale_sent adds the record
 *   LOOKUP           fs_stale_lookup, of a writer: pins what it finds, so that
 *                    the second OPEN can be served (struct fs_pin)
 *   OPEN             fs_stale_take removes it: retry = true; ESTALE is not
 *                    sent again (the table in open.c)
 *
 * A record can be wrong in two ways:
 *   - Lost, because another thread has the same slot, or the thread is in a PID
 *     namespace that the daemon does not see (tid 0): the retry counts as a
 *     first request and the program may get ESTALE.
 *   - Left over: a thread that opens another file within STALE_MS instead of
 *     repeating the request is treated as a retry. It is served, perhaps with a
 *     version that was replaced just now.
 */
#include "fs/fs_priv.h"

#include <string.h>

/* From the ESTALE to the LOOKUP, and from that to the second OPEN. Both usually
 * take microseconds, but the thread may be waiting for a CPU. */
#define STALE_MS 1000

static struct fs_stale *record_of(struct fs *fs, uint32_t tid)
{
	return &fs->stale[tid % FS_STALE_MAX];
}

static bool is_record_of(const struct fs_stale *s, uint32_t tid)
{
	return tid && s->tid == tid && pool_now_ms() - s->ms < STALE_MS;
}

bool fs_stale_is_live(const struct fs_stale *s)
{
	return is_record_of(s, s->tid);
}

static struct fs_pin take_pin(struct fs *fs, struct fs_stale *s)
{
	struct fs_pin pin = s->pin;

	if (pin.obj || pin.inode)
		fs->npins--;
	memset(&s->pin, 0, sizeof(s->pin));
	return pin;
}

void fs_stale_unpin(struct fs *fs, struct fs_pin *pin)
{
	struct fs_pin h = *pin;

	memset(pin, 0, sizeof(*pin));
	if (h.obj) {
		pool_node_writer_closed(fs->node, h.obj);
		node_object_unref(fs->node, h.obj);
	}
	if (h.inode) {
		h.inode->writers_due--;
		fs_inode_forget(fs, h.inode, 1);
	}
	if (h.obj || h.inode)
		fs->ndeferred[FS_DEFERRED_RETRY]--;
}

void fs_stale_sent(struct fs *fs, uint32_t tid, bool writes,
		   struct fs_refused refused)
{
	pool_count(&fs->stale_opens);
	fs_stale_add(fs, tid, writes, refused);
}

void fs_stale_add(struct fs *fs, uint32_t tid, bool writes,
		  struct fs_refused refused)
{
	struct fs_stale *s = record_of(fs, tid);
	struct fs_pin pin = take_pin(fs, s);

	fs_stale_unpin(fs, &pin);
	s->tid = tid;
	s->writes = writes;
	s->ms = pool_now_ms();
	s->refused = refused;
}

bool fs_stale_take(struct fs *fs, uint32_t tid, struct fs_pin *ret_pin)
{
	struct fs_stale *s = record_of(fs, tid);
	bool retry = is_record_of(s, tid);

	memset(ret_pin, 0, sizeof(*ret_pin));
	if (!tid || s->tid != tid)
		return false;
	*ret_pin = take_pin(fs, s);
	ret_pin->since_ns = s->refused.since_ns;
	s->tid = 0;
	return retry;
}

void fs_stale_cancel(struct fs *fs, uint32_t tid)
{
	struct fs_pin pin;

	(void)fs_stale_take(fs, tid, &pin);
	fs_stale_unpin(fs, &pin);
}

/* Makes sure that the thread's second OPEN of e, to write, can be served: an
 * own file in state WRITING is not sealed until then; otherwise e gets a nodeid
 * that is not open in passthrough mode, and readers wait. */
static void pin_name(struct fs *fs, struct fs_pin *pin, struct node_entry *e)
{
	struct pool_entry *pe = node_file_entry(e);
	struct node_object *own = pool_node_writing(e);
	struct fs_inode *i = pool_node_inode(pe);

	pin->name = e;
	if (own) {
		pin->obj = node_object_ref(own);
		pool_node_writer_opened(fs->node, pin->obj);
		return;
	}
	if (i && i->opens > 0 && !i->served)
		fs_inode_unbind(fs, i); /* (this LOOKUP replaces the dentry) */
	i = fs_inode_bind(fs, pe);
	if (!i)
		return;
	i->nlookup++;
	i->writers_due++;
	pin->inode = i;
}

bool fs_stale_expects(struct fs *fs, uint32_t tid, uint32_t uid,
		      const struct node_entry *e, uint64_t *ret_since_ns)
{
	const struct fs_stale *s = record_of(fs, tid);

	*ret_since_ns = s->refused.since_ns;
	return is_record_of(s, tid) && s->writes &&
	       s->refused.cookie == fs_cookie(e) && s->refused.uid == uid;
}

void fs_stale_lookup(struct fs *fs, uint32_t tid, struct node_entry *e)
{
	struct fs_stale *s = record_of(fs, tid);
	struct fs_pin before;

	/* There may be a pin already: revalidation of the dentry is a first
	 * LOOKUP, and if it finds another nodeid the kernel sends a second. */
	before = take_pin(fs, s);
	pin_name(fs, &s->pin, e);
	if (s->pin.obj || s->pin.inode) {
		s->ms = pool_now_ms();
		fs->npins++;
		fs->ndeferred[FS_DEFERRED_RETRY]++;
		fs_waiting_schedule(fs);
	}
	fs_stale_unpin(fs, &before);
}

bool fs_stale_pinned(const struct fs *fs, const struct node_entry *e)
{
	unsigned int k;

	for (k = 0; e && fs->npins && k < FS_STALE_MAX; k++)
		if (fs->stale[k].pin.name == e)
			return true;
	return false;
}

void fs_stale_expire(struct fs *fs, bool all)
{
	uint64_t now = pool_now_ms();
	struct fs_pin pin;
	unsigned int k;

	for (k = 0; fs->npins && k < FS_STALE_MAX; k++) {
		if (!all && now - fs->stale[k].ms <= STALE_MS)
			continue;
		pin = take_pin(fs, &fs->stale[k]);
		fs_stale_unpin(fs, &pin);
	}
}
