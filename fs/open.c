/*
 * OPEN: which version a nodeid shows, and waiting for it. Also SETATTR of a
 * size, which is an OPEN to write that answers with attributes (resize.c).
 *
 * ESTALE, ONCE. A nodeid that is open may be unable to switch to another object
 * (fs_inode_can_switch). Its OPEN is then answered with ESTALE; the kernel
 * looks the name up again, gets another nodeid, and repeats the OPEN in the
 * same thread. It does that once: a second ESTALE would reach the program, so
 * the repeated OPEN (`retry`, from stale.c) is never answered with ESTALE.
 *
 * The first row that applies decides. "X / Y": X to the first OPEN, Y to the
 * retry. Writing includes O_TRUNC and SETATTR of a size. Waiting in this file
 * ends after 2 s (deadline_ms).
 *
 *   nodeid                          OPEN to read         OPEN to write
 *
 *   any
 *    1 a writer that got ESTALE     waits for that       -
 *      is due (open_gives_way)      writer
 *    2 its name shows an object     -                    ETXTBSY
 *      that is being executed
 *   bound (open_step)
 *    3 own file that it shows or    served; a growing    served if WRITING, or
 *      can switch to (open_own)     file grows           unsealed for this; see
 *                                                        (a)
 *    4 other own file (open_own):   ESTALE / the older   ESTALE / ETXTBSY
 *      unbound now                  version
 *    5 published, copy here         served; see (b)      new version
 *      (open_fast, open_have)                            (open_rewrite), then
 *                                                        row 3 or 4
 *    6 published, no copy here      waits for the fetch, as 5; the content is
 *      (open_published)             ENOENT if it fails   fetched unless emptied
 *    7 no visible content           ENOENT               ESTALE, so O_CREAT can
 *                                                        make it / ENOENT
 *   unbound (open_unbound), name visible
 *    8 the caller may not open      open in passthrough  ESTALE / served as in
 *      what the name shows          mode: the older      14, else EACCES
 *                                   version; else
 *                                   ESTALE / the older
 *                                   one if open, else
 *                                   EACCES
 *    9 can be bound to its name     as 3 to 7            as 3 to 7
 *      again (fs_inode_rebind)
 *   10 shows the name's own file,   as 3                 as 3
 *      which another nodeid has
 *   11 open in passthrough mode     the older version    ESTALE / ETXTBSY, (c)
 *   12 not open, or daemon-served   the name's version   ESTALE / ETXTBSY, (c)
 *                                   (open_shared), else
 *                                   ESTALE / the older
 *   unbound, name gone
 *   13 a dentry was moved just now  ESTALE / as 14       as 14
 *      (moved_ms), and not open
 *   14 otherwise (open_nameless)    the older version if served, if it was
 *                                   it is open, else     unlinked while being
 *                                   ENOENT               written and this is no
 *                                                        SETATTR; else
 *                                                        ESTALE / ENOENT
 *
 * (a) While the file is being sealed, its PUBLISH is in flight, or its bytes
 *     must not change (readers have them): waits, then EBUSY. But an OPEN that
 *     empties the file replaces it by a new one: at once if the bytes must not
 *     change, after waiting if its PUBLISH is still in flight. It also replaces
 *     a file that is not empty and that others write to in passthrough mode
 *     (fs_write_locks). If two nodeids would write to the file in passthrough
 *     mode, or one in passthrough mode and one daemon-served: waits, then
 *     ETXTBSY (fs_writers_clash).
 * (b) If it is open with another object and cannot switch: ESTALE / the older
 *     version.
 * (c) Before the ESTALE, a new version of the name is made, unless it has an
 *     own file already: the retry finds it. Its LOOKUP pins the name (stale.c),
 *     so the retry usually comes with a nodeid of rows 3 to 6. If it comes with
 *     this one, it joins the name's own file while that is being written
 *     (open_joins); or, as in 14, the file that it shows; else ETXTBSY.
 *
 * Thread: loop.
 */
#include "fs/fs_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long the invalidation of a moved dentry may take to reach the kernel; see
 * fs->moved_ms. */
#define MOVED_MS 1000

/* The errno of an OPEN. A reader gets ENOENT for every failure of the pool,
 * because engines handle a cache miss. */
static int open_errno(int flags, int err)
{
	if (fs_wants_write(flags) || err == ENOENT || err == ESTALE ||
	    err == EINTR)
		return err;
	pool_warn_limited("a file cannot be opened: %s", strerror(err));
	return ENOENT;
}

/* ---- executed objects ---- */

static struct fs_executed *executed_of(struct fs *fs,
				       const struct node_object *o)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &fs->executed) {
		struct fs_executed *x =
			pool_list_entry(it, struct fs_executed, link);

		if (x->obj == o)
			return x;
	}
	return NULL;
}

static int executed_begin(struct fs *fs, struct node_object *o)
{
	struct fs_executed *x = executed_of(fs, o);

	if (node_object_state(o) == NODE_WRITING && node_object_writers(o) > 0)
		return -ETXTBSY;
	if (!x) {
		x = calloc(1, sizeof(*x));
		if (!x)
			return -ENOMEM;
		x->obj = node_object_ref(o);
		pool_list_add_tail(&fs->executed, &x->link);
	}
	x->handles++;
	return 0;
}

void fs_executed_end(struct fs *fs, struct node_object *o)
{
	struct fs_executed *x = executed_of(fs, o);

	/* NULL: the OPEN was before a take-over, which hands over only objects
	 * that have a name. */
	if (!x || --x->handles > 0)
		return;
	pool_list_del(&x->link);
	node_object_unref(fs->node, x->obj);
	free(x);
}

/* The local file that e shows; NULL: none is here. */
static struct node_object *file_of(const struct node_entry *e)
{
	struct node_object *own = pool_node_own(e);

	return own ? own : pool_node_copy(e);
}

/* Is the object that i's name shows being executed, by any nodeid? */
static bool is_executed(struct fs *fs, const struct fs_inode *i)
{
	const struct node_entry *e = i->entry;

	if (pool_list_empty(&fs->executed))
		return false;
	if (!e)
		e = fs_inode_path_entry(fs, i);
	return e && executed_of(fs, file_of(e));
}

/* ---- handles ---- */

static int begin_use(struct fs *fs, const struct fs_inode *i, int flags)
{
	struct node_object *o = i->obj;

	if (fs_wants_write(flags) && fs_writers_clash(i))
		return -ETXTBSY;
	if (fs_wants_write(flags))
		pool_node_writer_opened(fs->node, o);
	return flags & FS_O_EXEC ? executed_begin(fs, o) : 0;
}

static void end_use(struct fs *fs, struct node_object *o, int flags)
{
	if (fs_wants_write(flags))
		pool_node_writer_closed(fs->node, o);
	if (flags & FS_O_EXEC)
		fs_executed_end(fs, o);
}

static void open_failed(fuse_req_t req, struct fs *fs, int err)
{
	pool_count(&fs->opens_failed);
	fuse_reply_err(req, err);
}

/* Reads in passthrough mode do not reach the daemon: what counts is the size
 * when the file is opened. */
static void count_loaded(struct fs *fs, struct node_object *o)
{
	uint64_t size, blocks;

	if (pool_node_object_size(fs->node, o, &size, &blocks) == 0)
		pool_node_loaded(fs->node, o, size);
}

/* Opens a handle on i->obj, answers and counts. */
static void reply_open(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		       int flags, bool fetched)
{
	struct node_object *o = i->obj;
	struct fuse_open_out out;
	int err = begin_use(fs, i, flags);

	if (err) {
		open_failed(req, fs, -err);
		return;
	}
	err = fs_handle_open(fs, i, flags, &out);
	if (err) {
		end_use(fs, o, flags);
		open_failed(req, fs, open_errno(flags, -err));
		return;
	}
	pool_count(fetched ? &fs->opens_remote : &fs->opens_local);
	fs_inode_opened(fs, i, o);
	if (fs_wants_write(flags))
		fs_inode_written(fs, i);
	else
		count_loaded(fs, o);
	pool_node_used(fs->node, o);
	/* Not fuse_reply_open: libfuse 3.14 has no field for the backing id.
	 * Not fuse_reply_iov: it allocates and does not report ENOMEM. */
	if (fuse_reply_buf(req, (const char *)&out, sizeof(out)) != -ENOENT)
		return;
	/* ENOENT: the request was interrupted, so no RELEASE will come. */
	node_object_ref(o);
	fs_handle_free(fs, fs_fh_get(fs, out.fh));
	if (out.fh == FS_PASSTHROUGH_WRITER)
		fs_direct_end(fs, o);
	end_use(fs, o, flags);
	fs_inode_closed(fs, i, o);
	node_object_unref(fs->node, o);
}

/* One OPEN, or SETATTR of a size, until it is answered and nothing of the node
 * refers to it any more. */
struct open_req {
	struct pool_list link; /* in fs->waiting, or self-linked */
	struct fs *fs;
	fuse_req_t req; /* NULL once answered */
	struct fs_inode *inode; /* holds a lookup count */
	/* The nodeid of the request, to compare: another one than `inode` for
	 * some SETATTR (resize.c) */
	const struct fs_inode *asked;
	struct node_want want;
	int flags;
	uint64_t deadline_ms, start_ns;
	uint64_t unique; /* of the request; 0: no keeper */
	uint32_t tid; /* of the caller */
	bool retry; /* repeated after ESTALE */
	struct fs_pin pin; /* of the caller's LOOKUP, until this is freed */
	struct node_object *resized; /* ref, and a writer of it: SETATTR is
					answered once it has set its size */
	bool fetched; /* has waited for the content to come from another node */
	bool want_started; /* `want` is in flight: can be cancelled */
	bool change_started; /* a rewrite is in flight: cannot */
	int64_t resize; /* >= 0: a SETATTR of the size, not an OPEN */
};

static void open_step(struct open_req *r);
static void on_rewritten(void *arg, int status);

static bool open_writes(const struct open_req *r)
{
	return fs_wants_write(r->flags) || (r->flags & O_TRUNC) ||
	       r->resize >= 0;
}

static void open_free(struct open_req *r)
{
	pool_list_del(&r->link);
	pool_hist_add(&r->fs->open_time, pool_now_ns() - r->start_ns);
	if (r->retry && open_writes(r))
		r->inode->writers_due--;
	fs_stale_unpin(r->fs, &r->pin);
	fs_inode_forget(r->fs, r->inode, 1);
	r->fs->ndeferred[FS_DEFERRED_OPEN]--;
	free(r);
}

static void open_fail(struct open_req *r, int err)
{
	fuse_req_t req = r->req;

	r->req = NULL;
	if (req && r->resize < 0 && err != ESTALE)
		pool_count(err == EINTR ? &r->fs->opens_interrupted :
					  &r->fs->opens_failed);
	if (req)
		fuse_reply_err(req, open_errno(r->flags, err));
	open_free(r);
}

static void stale_sent(struct open_req *r)
{
	const struct fs_inode *i = r->inode;
	const struct node_entry *e = i->entry ? i->entry :
						fs_inode_path_entry(r->fs, i);
	struct fs_refused what = { fs_cookie(e), 0,
				   fuse_req_ctx(r->req)->uid };

	if (r->resize < 0)
		pool_count(&r->fs->opens_stale);
	if (r->resize < 0 && r->flags & O_TRUNC)
		what.since_ns = r->start_ns;
	fs_stale_sent(r->fs, r->tid, open_writes(r), what);
}

/*
 * Answers with ESTALE, so that the kernel looks the name up again. A retry gets
 * another error: a reader ENOENT, which is a miss; a writer ETXTBSY, because
 * its nodeid is open in passthrough mode and cannot switch.
 */
static void open_stale(struct open_req *r)
{
	if (r->retry) {
		open_fail(r, open_writes(r) ? ETXTBSY : ENOENT);
		return;
	}
	if (r->req)
		stale_sent(r);
	open_fail(r, ESTALE);
}

static void on_interrupt(fuse_req_t req, void *data)
{
	struct open_req *r = data;

	pool_count(&r->fs->interrupts);
	/* Until the answer, the kernel blocks all writes to the file. */
	if (r->resized)
		return;
	if (r->change_started) { /* its callback frees r, at its deadline */
		r->req = NULL;
		if (r->resize < 0)
			pool_count(&r->fs->opens_interrupted);
		fuse_reply_err(req, EINTR);
		return;
	}
	if (r->want_started)
		pool_node_want_cancel(r->fs->node, &r->want);
	open_fail(r, EINTR);
}

/* The name's content changed while this OPEN waited: decide again. (Not by
 * ESTALE, which works only once.) */
static void open_restart(struct open_req *r)
{
	if (pool_now_ms() < r->deadline_ms)
		open_step(r);
	else
		open_fail(r, ENOENT);
}

/* Before an answer: takes the request, so that on_interrupt cannot run. */
static fuse_req_t open_take_req(struct open_req *r)
{
	fuse_req_t req = r->req;

	r->req = NULL;
	if (req)
		fuse_req_interrupt_func(req, NULL, NULL);
	return req;
}

void fs_resize_reply(fuse_req_t req, struct fs *fs, struct fs_inode *i)
{
	struct stat st;

	fs_inode_stat(fs, i, &st);
	fuse_reply_attr(req, &st, 0);
}

/* Opens the object that the nodeid shows, perhaps an older version. */
static void open_as_is(struct open_req *r)
{
	fuse_req_t req = open_take_req(r);
	uint64_t before = fs_kept_handling(r->fs, r->unique);

	if (req)
		reply_open(req, r->fs, r->inode, r->flags, r->fetched);
	(void)fs_kept_handling(r->fs, before);
	open_free(r);
}

/* Does a SETATTR of o's size count as a passthrough writer? Then no other
 * nodeid may write to o while it waits. */
static bool may_be_direct(const struct fs *fs, const struct node_object *o)
{
	return fs->passthrough && node_object_has_writer(o) &&
	       !node_object_served(o);
}

/* truncate(2) needs no handle: it counts as a writer that opens the file and
 * closes it, which publishes the result. Also after a failure: the content is
 * unchanged, and a pending publication must continue (a rewrite that changed
 * nothing is recognised as such). */
static void resize_begin(struct open_req *r, struct node_object *own)
{
	r->resized = node_object_ref(own);
	pool_node_writer_opened(r->fs->node, own);
	if (may_be_direct(r->fs, own))
		fs_direct_begin(r->fs, own, r->asked);
}

static void resize_end(struct open_req *r)
{
	struct node_object *o = r->resized;
	struct pool_node *n = r->fs->node;

	r->resized = NULL;
	if (may_be_direct(r->fs, o))
		fs_direct_end(r->fs, o);
	pool_node_writer_flushed(n, o);
	pool_node_writer_closed(n, o);
	node_object_unref(n, o);
}

static void on_resized(void *arg, int status)
{
	struct open_req *r = arg;
	struct fs *fs = r->fs;
	struct fs_inode *i = r->inode;
	fuse_req_t req;

	if (!status && i->obj && node_object_has_writer(i->obj))
		pool_node_modified(fs->node, i->obj, fs_write_ns());
	resize_end(r);
	req = open_take_req(r);
	if (req && status)
		fuse_reply_err(req, -status);
	else if (req)
		fs_resize_reply(req, fs, i);
	open_free(r);
}

/* Retries r after FS_WAITING_MS. False: its deadline has passed. */
static bool open_wait(struct open_req *r)
{
	if (pool_now_ms() >= r->deadline_ms)
		return false;
	if (pool_list_empty(&r->link)) {
		pool_list_add_tail(&r->fs->waiting, &r->link);
		fs_waiting_schedule(r->fs);
	}
	return true;
}

/* Does this OPEN, or SETATTR of a size, empty the file? */
static bool open_empties(const struct open_req *r)
{
	return r->resize == 0 || (r->resize < 0 && r->flags & O_TRUNC);
}

static bool is_empty(const struct fs *fs, struct node_object *own)
{
	uint64_t size, blocks;

	return pool_node_object_size(fs->node, own, &size, &blocks) == 0 &&
	       size == 0;
}

/* Is r a retry, and was o empty at some time since the first OPEN came? Then r
 * counts as having emptied it: its bytes were written later. */
static bool emptied_since(const struct open_req *r, const struct node_object *o)
{
	return r->pin.since_ns &&
	       node_object_emptied_since(o, r->pin.since_ns);
}

/* Is o not empty, and may its lock be held? Then it cannot be emptied. */
static bool is_locked(const struct fs *fs, struct node_object *o)
{
	return fs_write_locks(o, NULL) && !is_empty(fs, o);
}

/* Sets the size to 0; ends at once. */
static int empty_own(struct fs *fs, struct node_object *own)
{
	int rc = pool_node_resize_start(fs->node, own, 0, NULL, NULL);

	assert(rc != 0);
	if (rc < 0)
		return rc;
	pool_node_emptied(fs->node, own, fs_write_ns());
	return 0;
}

void fs_open_empty(struct fs *fs, struct node_entry *e, uint64_t since_ns)
{
	struct node_object *own = pool_node_own(e);

	if (executed_of(fs, file_of(e)))
		return;
	if (!own && pool_node_published(e))
		(void)pool_node_rewrite_start(fs->node, e, 0, NULL, NULL);
	else if (!own || !node_object_writable(own) ||
		 node_object_emptied_since(own, since_ns))
		return;
	else if (is_locked(fs, own))
		(void)pool_node_own_replace(fs->node, e);
	else
		(void)empty_own(fs, own);
}

static bool is_pending(const struct node_object *o)
{
	return node_object_state(o) == NODE_PENDING;
}

/*
 * 0: r may write to the name's own file, or set its size. -EAGAIN: it is being
 * sealed or published. -EROFS: its bytes must stay for handles that read it
 * since it was sealed, or that may hold its lock (fs_write_locks). -ETXTBSY:
 * fs_writers_clash.
 */
static int own_unseal(struct open_req *r, struct node_object *own)
{
	struct fs *fs = r->fs;
	int rc;

	if (open_empties(r) && is_pending(own) && node_object_in_use(own))
		return -EROFS;
	rc = pool_node_unseal(fs->node, own);
	if (rc == -EAGAIN && node_object_state(own) == NODE_WRITING &&
	    pool_now_ms() >= r->deadline_ms)
		rc = 0; /* a writable mapping keeps it from being sealed: it
			   is still WRITING, so join the writer */
	if (rc)
		return rc;
	if (r->resize < 0 && r->flags & O_TRUNC && is_locked(fs, own) &&
	    !emptied_since(r, own))
		return -EROFS;
	if (r->resize >= 0)
		return fs_write_locks(own, r->asked) ? -ETXTBSY : 0;
	return fs_wants_write(r->flags) && fs_writers_clash(r->inode) ?
		       -ETXTBSY : 0;
}

/* Gives the name another file, an empty one. False: not possible, or the nodeid
 * could not show that file; r is not answered. */
static bool own_replace(struct open_req *r, const struct node_object *own,
			int why)
{
	struct fs_inode *i = r->inode;

	if (!open_empties(r) || !i->entry ||
	    (why != -EROFS && (why != -EAGAIN || !is_pending(own))) ||
	    (r->retry && i->opens > 0 && !i->served))
		return false;
	on_rewritten(r, pool_node_own_replace(r->fs->node, i->entry));
	return true;
}

static void own_resize(struct open_req *r, struct node_object *own)
{
	int rc;

	resize_begin(r, own);
	rc = pool_node_resize_start(r->fs->node, own, (uint64_t)r->resize,
				    on_resized, r);
	if (rc != 0)
		on_resized(r, rc == 1 ? 0 : rc);
}

/* Opens the name's own file, or sets its size. A writer waits while the file is
 * being sealed or published. */
static void open_own(struct open_req *r, struct node_object *own)
{
	struct fs *fs = r->fs;
	bool resizes = r->resize >= 0 || (r->flags & O_TRUNC);
	int rc;

	if (r->inode->obj != own &&
	    !fs_inode_follow(fs, r->inode, r->retry)) {
		/* This nodeid keeps its older object; the next LOOKUP makes one
		 * for `own`. truncate(2) follows ESTALE as open(2) does. */
		fs_inode_unbind(fs, r->inode);
		if (r->retry && !open_writes(r))
			open_as_is(r);
		else
			open_stale(r);
		return;
	}
	if (!fs_wants_write(r->flags) && !resizes) {
		open_as_is(r);
		return;
	}
	rc = own_unseal(r, own);
	if (rc == -EAGAIN && open_wait(r))
		return;
	/* The PUBLISH may wait long for a master; an emptied file need not. */
	if (rc && own_replace(r, own, rc))
		return;
	if ((rc == -EROFS || rc == -ETXTBSY) && !r->retry &&
	    !r->inode->entry) { /* the name's own nodeid may do it */
		open_stale(r);
		return;
	}
	if (rc && open_wait(r))
		return;
	if (rc) {
		open_fail(r, rc == -EAGAIN || rc == -EROFS ? EBUSY : -rc);
		return;
	}
	pool_list_del(&r->link);
	if (r->resize >= 0) {
		own_resize(r, own);
		return;
	}
	if (resizes && !is_locked(fs, own)) /* else: emptied_since */
		rc = empty_own(fs, own);
	if (rc)
		open_fail(r, -rc);
	else
		open_as_is(r);
}

/* ---- a new generation ---- */

static void on_rewritten(void *arg, int status)
{
	struct open_req *r = arg;
	struct node_entry *e = r->inode->entry;
	struct node_object *own = e ? pool_node_own(e) : NULL;
	bool gone = !e || !pool_node_visible(node_file_entry(e));

	r->change_started = false;
	if (status == -EAGAIN && r->req && open_wait(r))
		return;
	if (status == -ESTALE && r->req && pool_now_ms() < r->deadline_ms) {
		open_step(r); /* another version was published: decide again */
		return;
	}
	if (status == -ENOENT && gone && !r->retry) {
		open_stale(r); /* with O_CREAT the kernel then sends CREATE */
		return;
	}
	if (status) {
		open_fail(r, status == -EAGAIN ? ENOENT : -status);
		return;
	}
	if (!own) { /* unbound, before the rewrite or during it */
		if (r->retry && r->req && pool_now_ms() < r->deadline_ms)
			open_step(r);
		else
			open_stale(r);
		return;
	}
	if (!r->req) { /* interrupted during the rewrite */
		open_free(r);
		return;
	}
	open_own(r, own);
}

static void open_rewrite(struct open_req *r, struct node_entry *e)
{
	uint64_t keep = r->resize >= 0 ? (uint64_t)r->resize :
			r->flags & O_TRUNC ? 0 :
					     pool_node_version(e).size;
	int rc;

	if (keep > 0 && !pool_node_copy(e))
		r->fetched = true; /* the rewrite begins with a fetch */
	r->change_started = true;
	rc = pool_node_rewrite_start(r->fs->node, e, keep, on_rewritten, r);
	if (rc != 0)
		on_rewritten(r, rc == 1 ? 0 : rc);
}

/* ---- reading what is published ---- */

static void open_have(struct open_req *r, struct node_object *o)
{
	struct fs *fs = r->fs;
	struct fs_inode *i = r->inode;

	if (!i->entry || pool_node_copy(i->entry) != o) {
		node_object_unref(fs->node, o);
		open_restart(r);
		return;
	}
	if (i->obj != o && i->opens > 0 &&
	    !fs_inode_can_switch(fs, i, r->retry)) {
		/* The kernel rejects another backing file for an open nodeid.
		 */
		node_object_unref(fs->node, o);
		fs_notify_entry(fs, fs_inode_entry(i));
		fs_inode_unbind(fs, i);
		if (r->retry)
			open_as_is(r);
		else
			open_stale(r);
		return;
	}
	fs_inode_set_obj(fs, i, o);
	node_object_unref(fs->node, o);
	open_as_is(r);
}

static void on_wanted(struct node_want *w, struct node_object *o, int status)
{
	struct open_req *r = pool_container_of(w, struct open_req, want);

	r->want_started = false;
	r->fetched = w->fetched;
	if (status == -ESTALE)
		open_restart(r);
	else if (status)
		open_fail(r, ENOENT);
	else
		open_have(r, o);
}

static void open_published(struct open_req *r)
{
	struct node_object *o;
	int rc;

	r->want_started = true;
	rc = pool_node_want_start(r->fs->node, r->inode->entry, &r->want, &o,
				  on_wanted);
	if (rc == 0)
		return; /* the callback may have freed r */
	r->want_started = false;
	if (rc == 1)
		open_have(r, o);
	else if (rc != -EAGAIN || !open_wait(r))
		open_fail(r, rc == -EAGAIN ? ENOENT : -rc);
}

/*
 * A reader's OPEN of an unbound nodeid, while another nodeid is bound to f, the
 * file of the name, and in use: this nodeid shows f, too. Without a local copy
 * f is fetched first. False: this nodeid cannot switch, or the fetch cannot
 * start; r is not answered.
 */
static bool open_shared(struct open_req *r, struct node_entry *f)
{
	struct node_object *own = pool_node_own(f);
	struct node_object *o = own ? own : pool_node_readable(f);
	int rc;

	if (!fs_inode_can_switch(r->fs, r->inode, r->retry))
		return false;
	if (!o) {
		r->want_started = true;
		rc = pool_node_want_start(r->fs->node, f, &r->want, &o,
					  on_wanted);
		if (rc == 0)
			return true; /* the callback may have freed r */
		r->want_started = false;
		if (rc != 1)
			return rc == -EAGAIN && open_wait(r);
		node_object_unref(r->fs->node, o); /* the node refs it */
	}
	if (!fs_inode_show(r->fs, r->inode, f, o, r->retry))
		return false;
	open_as_is(r);
	return true;
}

/* Empties o, which has no name and is being written. */
static bool empty_nameless(struct fs *fs, struct node_object *o)
{
	int fd = pool_node_writer_fd(fs->node, o);
	struct stat st;

	if (fd < 0 || fstat(fd, &st) < 0)
		return false;
	return st.st_size == 0 ||
	       (!fs_write_locks(o, NULL) && ftruncate(fd, 0) == 0);
}

/* May this OPEN get the older object that the nodeid shows, although the name
 * does not show it? Only while other handles have it open. Empties it for
 * O_TRUNC. */
static bool open_nameless(struct open_req *r, bool writes, bool visible)
{
	const struct fs_inode *i = r->inode;

	if (i->opens == 0 || !i->obj)
		return false;
	/* The reader's LOOKUP was before the replacement, or it has no name to
	 * look up (/proc/PID/fd): the older version is a correct answer. (An
	 * fsync of the directory returns only when no LOOKUP finds the older
	 * version any more.) */
	if (!writes)
		return !visible || r->retry ||
		       (r->fs->passthrough && !i->served);
	if (!(!visible || r->retry) || r->resize >= 0 ||
	    !node_object_unlinked(i->obj) ||
	    node_object_writers(i->obj) == 0)
		return false;
	return !(r->flags & O_TRUNC) || emptied_since(r, i->obj) ||
	       empty_nameless(r->fs, i->obj);
}

/* A writer's retry: joins the writers of f's own file. If they have it open in
 * passthrough mode, it cannot (fs_writers_clash): gets the older one, or waits.
 */
static bool open_joins(struct open_req *r, struct node_entry *f)
{
	struct node_object *own = pool_node_writing(f);

	if (!r->retry || !own)
		return false;
	if (fs_write_locks(own, r->inode)) {
		if (open_nameless(r, true, true)) {
			open_as_is(r);
		} else if (open_empties(r) &&
			   pool_node_own_replace(r->fs->node, f) == 0) {
			open_step(r); /* the other nodeid has gone */
		} else if (!open_wait(r)) {
			open_fail(r, ETXTBSY);
		}
		return true;
	}
	if (!fs_inode_show(r->fs, r->inode, f, own, true))
		return false;
	open_own(r, own);
	return true;
}

/* May the caller open f? The kernel checked the older file. */
static bool may_follow(const struct open_req *r, const struct node_entry *f)
{
	int want = r->flags & FS_O_EXEC ? X_OK :
		   (r->flags & O_ACCMODE) == O_WRONLY ? W_OK :
		   fs_wants_write(r->flags) ? R_OK | W_OK : R_OK;

	return r->req &&
	       fs_may(r->req, f, want | (open_writes(r) ? W_OK : 0));
}

/* After ESTALE the kernel checks permission itself, on the new nodeid. A retry
 * with the same nodeid has no name (/proc/PID/fd). */
static void open_refuse(struct open_req *r)
{
	fuse_req_t req;

	if (!r->retry) {
		open_stale(r);
		return;
	}
	req = open_take_req(r);
	if (req && r->resize < 0)
		pool_count(&r->fs->opens_failed);
	if (req)
		fuse_reply_err(req, EACCES);
	open_free(r);
}

/* Rows 8 to 14 of the table: the kernel's dentry is out of date. A writer's new
 * version is made before the ESTALE, so that the retry finds it writable. */
static void open_unbound(struct open_req *r)
{
	const char *path = fs_inode_path(r->inode);
	bool writes = open_writes(r);
	struct pool_entry *e = path ?
		pool_tree_lookup(r->fs->tree, path, strlen(path)) : NULL;
	struct node_entry *f = node_file(e);
	bool visible = f && pool_node_visible(e);
	struct node_object *own = f ? pool_node_own(f) : NULL;
	bool moved = pool_now_ms() - r->fs->moved_ms < MOVED_MS;

	if (visible && !may_follow(r, f)) {
		if (open_nameless(r, writes, visible))
			open_as_is(r);
		else
			open_refuse(r);
	} else if (fs_inode_rebind(r->fs, r->inode, r->retry,
				   r->retry && writes))
		open_step(r);
	else if (visible && own && own == r->inode->obj)
		open_own(r, own); /* another nodeid is bound to it */
	else if (writes && visible && open_joins(r, f))
		return;
	else if (open_nameless(r, writes, visible))
		open_as_is(r);
	else if (writes && !r->retry && visible && !own &&
		 pool_node_published(f))
		open_rewrite(r, f);
	else if (writes || !visible || !open_shared(r, f))
		visible || (!r->retry && (writes || moved)) ?
			open_stale(r) : open_fail(r, ENOENT);
}

/* Must this reader wait for a writer that got ESTALE and is about to repeat its
 * OPEN? A reader that opened the same nodeid in passthrough mode first would
 * keep it from switching to the writer's new version. */
static bool open_gives_way(const struct open_req *r)
{
	const struct fs_inode *i = r->inode;

	if (open_writes(r))
		return false;
	return i->writers_due > 0 ||
	       fs_stale_pinned(r->fs, i->entry ? i->entry :
				      fs_inode_path_entry(r->fs, i));
}

static void open_step(struct open_req *r)
{
	struct fs_inode *i = r->inode;
	bool writes = open_writes(r);
	struct node_object *own;

	if (open_gives_way(r) && open_wait(r))
		return;
	if (writes && is_executed(r->fs, i)) {
		open_fail(r, ETXTBSY);
		return;
	}
	own = i->entry ? pool_node_own(i->entry) : NULL;
	if (!i->entry)
		open_unbound(r);
	else if (own)
		open_own(r, own);
	else if (!pool_node_published(i->entry))
		writes && !r->retry ? open_stale(r) : open_fail(r, ENOENT);
	else if (writes)
		open_rewrite(r, i->entry);
	else
		open_published(r);
}

void fs_open_begin(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		       const struct fs_inode *asked, int flags, int64_t resize,
		       bool retry, struct fs_pin pin)
{
	struct open_req *r = calloc(1, sizeof(*r));

	if (!r) {
		if (resize < 0)
			pool_count(&fs->opens_failed);
		fs_stale_unpin(fs, &pin);
		fuse_reply_err(req, open_errno(flags, ENOMEM));
		return;
	}
	pool_list_init(&r->link);
	r->fs = fs;
	r->req = req;
	r->inode = i;
	r->asked = asked;
	i->nlookup++;
	fs->ndeferred[FS_DEFERRED_OPEN]++;
	r->flags = flags;
	r->resize = resize;
	r->unique = fs->kept ? fs->kept->head->handling : 0;
	r->tid = (uint32_t)fuse_req_ctx(req)->pid;
	r->retry = retry;
	r->pin = pin;
	if (retry && open_writes(r))
		i->writers_due++;
	r->start_ns = pool_now_ns();
	r->deadline_ms = pool_now_ms() + 2000;
	fuse_req_interrupt_func(req, on_interrupt, r);
	open_step(r);
}

/* The usual case, without allocating: a reader, and a verified local copy. */
static bool open_fast(fuse_req_t req, struct fs *fs, struct fs_inode *i,
		      int flags)
{
	struct node_object *o = i->entry && !pool_node_own(i->entry) ?
					pool_node_readable(i->entry) : NULL;
	uint64_t start;

	if (!o || fs_wants_write(flags) || (flags & O_TRUNC) ||
	    (i->obj != o && i->opens > 0) || i->writers_due > 0 ||
	    fs->npins)
		return false;
	start = pool_now_ns();
	fs_inode_set_obj(fs, i, o);
	reply_open(req, fs, i, flags, false);
	pool_hist_add(&fs->open_time, pool_now_ns() - start);
	return true;
}

void fs_file_open(fuse_req_t req, fuse_ino_t ino, struct fuse_file_info *fi)
{
	struct fs *fs = fs_count(req, OP_OPEN);
	struct fs_pin pin;
	struct fs_inode *i;
	bool retry;

	if (fs_is_proc(ino)) {
		fs_proc_open(req, ino, fi);
		return;
	}
	i = fs_inode_find(fs, ino);
	retry = fs_stale_take(fs, (uint32_t)fuse_req_ctx(req)->pid, &pin);
	if (!open_fast(req, fs, i, fi->flags))
		fs_open_begin(req, fs, i, i, fi->flags, -1, retry, pin);
	else
		fs_stale_unpin(fs, &pin);
}

void fs_waiting_run(struct fs *fs)
{
	struct pool_list *it, *tmp, todo;

	fs_stale_expire(fs, false);
	pool_list_init(&todo);
	pool_list_splice(&todo, &fs->waiting);
	pool_list_each(it, tmp, &todo) {
		pool_list_del(it);
		open_step(pool_list_entry(it, struct open_req, link));
	}
	if (pool_list_empty(&fs->waiting) && pool_list_empty(&fs->listings) &&
	    !fs->npins)
		uv_timer_stop(&fs->waiting_timer);
}

void fs_waiting_fini(struct fs *fs)
{
	fs_stale_expire(fs, true);
	while (!pool_list_empty(&fs->waiting))
		open_fail(pool_list_first(&fs->waiting, struct open_req, link),
			  EIO);
}
