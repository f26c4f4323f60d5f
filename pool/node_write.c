/*
 * A local file from its creation to its publication.
 *
 * Happy path: create (a reserved file, or a daemon-served one) -> the engine
 * writes -> FLUSH or rename makes it a candidate -> the last writer is gone ->
 * sealed by a worker (trimmed, checksummed, metadata attached) -> PENDING:
 * queued for the master -> acknowledged with its generation: HELD.
 * Failure modes: a write failed or may have failed (poison): dropped when the
 * last writer is gone. A writable mapping lives on: retried. The content is
 * what is published already: dropped, nothing changes. Nobody touches it for
 * ten minutes: dropped. The master refuses it (-ESTALE: a newer generation won
 * while we were cut off): dropped, the newer one shows.
 */
#include "pool/node_priv.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LEARN_VARIED 8 /* equal sizes in a row that end "sizes vary" */
#define LEARN_DEPTH 16

/* ---- learning sizes ---- */

static void learn_one(struct node_learn *l, uint64_t size)
{
	if (l->count > 0 && size != l->last)
		l->varied = LEARN_VARIED;
	else if (l->varied > 0)
		l->varied--;
	if (size >= l->largest || l->varied == 0)
		l->largest = size;
	else if (l->count % 16 == 0)
		l->largest -= (l->largest - size) / 4;
	l->last = size;
	l->count++;
}

static void learn(struct pool_node *n, struct node_entry *e, uint64_t size)
{
	struct pool_dir *d = e->e.parent;
	int depth;

	if (size == 0)
		return;
	for (depth = 0; d && depth < LEARN_DEPTH; d = d->e.parent, depth++)
		learn_one(&node_dir(&d->e)->learn, size);
	learn_one(&n->learn, size);
}

static uint64_t predict(struct pool_node *n, struct node_dirent *dir)
{
	const struct node_learn *l = &dir->learn;
	struct pool_dir *d;

	if (l->count > 0)
		return l->varied ? 2 * l->largest : l->last;
	/* Nothing of its own: from above, if that is of one mind (reserving for
	 * the largest of a mixed lot would waste what is kept ready). */
	for (d = dir->d.e.parent; d; d = d->e.parent)
		if (node_dir(&d->e)->learn.count > 0) {
			l = &node_dir(&d->e)->learn;
			return l->varied ? 0 : l->last;
		}
	return n->learn.varied ? 0 : n->learn.last;
}

/* ---- names that only a rename publishes ---- */

static bool ends_with(const char *s, size_t len, const char *tail)
{
	size_t k = strlen(tail);

	return len >= k && memcmp(s + len - k, tail, k) == 0;
}

static bool digits_before_tmp(const char *s, size_t len)
{
	size_t i = len - 4; /* of ".tmp" */

	while (i > 0 && isdigit((unsigned char)s[i - 1]))
		i--;
	return i < len - 4 && i > 0 && s[i - 1] == '_';
}

bool node_name_is_temporary(const char *s, size_t len)
{
	/* "*.tmp" covers ".<uuid>.tmp" and "*_<digits>.tmp" as well. */
	if (ends_with(s, len, ".tmp"))
		return true;
	if (len >= 4 && memcmp(s, ".tmp", 4) == 0)
		return true;
	if (memmem(s, len, ".tmp.", 5) != NULL)
		return true;
	return len > 4 && digits_before_tmp(s, len) && ends_with(s, len,
								 ".tmp");
}

/* ---- creation ---- */

uint64_t pool_node_size_max(struct pool_node *n, const struct node_writer *w)
{
	struct pool_space sp;

	if (w && w->scratch)
		return INT64_MAX;
	pool_store_space(n->store, &sp);
	return sp.size;
}

static int take_file(struct pool_node *n, struct node_object *o,
		     uint64_t size)
{
	struct node_writer *w = o->w;
	struct pool_file f;
	int err = -EAGAIN;

	if (n->opts.reserve && size > 0 && !w->scratch &&
	    size <= pool_node_size_max(n, w)) {
		pool_store_announce(n->store, size);
		err = pool_store_take(n->store, size, &f);
	}
	if (!err) {
		/* Passthrough keeps no writable descriptor (the lease proves
		 * that nobody else does). */
		close(f.fd);
		w->reserved = f.reserved;
		w->breaches = pool_store_breaches(n->store);
		w->sampling = true;
		pool_store_sampling(n->store, true);
		pool_count(&n->c.reserved_creates);
	} else {
		err = pool_store_take(n->store, 0, &f);
		if (err)
			return err;
		w->fd = f.fd;
		w->served = true;
		pool_count(&n->c.served_creates);
	}
	o->id = f.id;
	return 0;
}

static int own_new(struct pool_node *n, struct node_entry *e,
		   const struct node_attr *attr, uint64_t size_hint,
		   struct node_object **ret_obj)
{
	struct node_object *o = node_object_new(e, NODE_WRITING);
	struct node_writer *w = calloc(1, sizeof(*w));
	struct pool_rules rules;
	int err;

	if (!o || !w) {
		free(o);
		free(w);
		return -ENOMEM;
	}
	pool_list_init(&w->link);
	w->obj = o;
	w->fd = -1;
	w->attr = *attr;
	w->attr.mode &= 01777;
	w->base_gen = e->gen;
	w->touched_ms = pool_now_ms();
	pool_node_rules(n, &e->e, &rules);
	w->scratch = rules.class == POOL_CLASS_SCRATCH;
	o->w = w;
	err = take_file(n, o, size_hint ? size_hint :
			predict(n, node_dir(&e->e.parent->e)));
	if (err) {
		o->w = NULL;
		free(w);
		node_object_unref(n, o);
		return err;
	}
	pool_list_add_tail(&n->writers, &w->link);
	e->own = o;
	*ret_obj = o;
	return 0;
}

int pool_node_create(struct pool_node *n, struct node_dirent *dir,
		     const char *name, size_t len,
		     const struct node_attr *attr, uint64_t size_hint,
		     struct node_object **ret_obj)
{
	struct pool_entry *pe = pool_tree_find(&n->tree, &dir->d, name, len);
	bool added = false;
	int err = pool_name_check(name, len);

	if (err)
		return err;
	if (pe && pe->is_dir)
		return -EISDIR;
	if (pe && node_file(pe)->own)
		return -EEXIST;
	if (!pe) {
		pe = pool_tree_add(&n->tree, &dir->d, name, len, false);
		if (!pe)
			return -ENOMEM;
		added = true;
	}
	err = own_new(n, node_file(pe), attr, size_hint, ret_obj);
	if (err && added)
		node_entry_tidy(n, node_file(pe));
	return err;
}

static void close_writer_fd(struct node_writer *w)
{
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

/* ---- a new generation of a published name ---- */

struct rewrite {
	struct pool_node *n;
	struct node_entry *e; /* kept by its fetch or object while we wait */
	uint64_t keep, gen;
	struct node_want want;
	struct node_object *from; /* ref */
	struct node_object *to;	  /* ref */
	struct node_claim claim;
	struct pool_copy copy;
	node_done_cb cb;
	void *arg;
	bool claimed;
};

static void rewrite_done(struct rewrite *r, int status)
{
	struct pool_node *n = r->n;

	if (r->claimed)
		pool_node_claim_end(n, r->keep);
	if (r->from) {
		r->from->users--;
		node_object_unref(n, r->from);
	}
	if (r->to) {
		if (status && r->to->entry && r->to->entry->own == r->to)
			node_own_drop(n, r->to->entry);
		node_object_unref(n, r->to);
	}
	r->cb(r->arg, status);
	free(r);
}

static void rewrite_copied(struct pool_copy *c, int status)
{
	struct rewrite *r = pool_container_of(c, struct rewrite, copy);

	if (r->to->w) {
		r->to->w->touched_ms = pool_now_ms();
		/* A writable descriptor of ours would delay its sealing. */
		if (!r->to->w->served)
			close_writer_fd(r->to->w);
	}
	rewrite_done(r, status);
}

static void rewrite_copy(struct rewrite *r)
{
	struct pool_node *n = r->n;
	struct node_entry *e = r->from->entry;
	int err;

	if (!e || e->own || e->gen != r->gen) {
		rewrite_done(r, -ESTALE); /* another version has come */
		return;
	}
	err = own_new(n, e, &e->attr, 0, &r->to);
	if (err) {
		rewrite_done(r, err);
		return;
	}
	node_object_ref(r->to);
	pool_xattrs_free(r->to->w->xattrs);
	r->to->w->xattrs = pool_xattrs_dup(e->xattrs);
	r->to->w->pristine_copy = true;
	r->copy.from = r->from->id;
	r->copy.limit = r->keep;
	r->copy.fd = pool_node_writer_fd(n, r->to);
	err = r->copy.fd < 0 ? r->copy.fd :
			       pool_copy_start(n->store, &r->copy,
					       rewrite_copied);
	if (err)
		rewrite_done(r, err);
}

static void rewrite_claimed(struct node_claim *c, int status)
{
	struct rewrite *r = pool_container_of(c, struct rewrite, claim);

	if (status) {
		rewrite_done(r, status);
		return;
	}
	r->claimed = true;
	rewrite_copy(r);
}

static void rewrite_have(struct rewrite *r, struct node_object *from)
{
	int rc;

	r->from = from;
	from->users++;
	if (r->keep > from->size)
		r->keep = from->size;
	rc = pool_node_claim_start(r->n, &r->claim, r->keep, 0,
				   rewrite_claimed);
	if (rc != 0)
		rewrite_claimed(&r->claim, rc == 1 ? 0 : rc);
}

static void rewrite_wanted(struct node_want *w, struct node_object *obj,
			   int status)
{
	struct rewrite *r = pool_container_of(w, struct rewrite, want);

	if (status)
		rewrite_done(r, status);
	else
		rewrite_have(r, obj);
}

int pool_node_rewrite_start(struct pool_node *n, struct node_entry *e,
			    uint64_t keep, node_done_cb cb, void *arg)
{
	struct node_object *o;
	struct rewrite *r;
	int rc;

	if (e->own)
		return 1;
	if (!pool_node_published(e))
		return -ENOENT;
	if (keep == 0) {
		rc = own_new(n, e, &e->attr, e->size, &o);
		if (rc)
			return rc;
		o->w->xattrs = pool_xattrs_dup(e->xattrs);
		return 1;
	}
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->n = n;
	r->e = e;
	r->gen = e->gen;
	r->keep = keep;
	r->cb = cb;
	r->arg = arg;
	rc = pool_node_want_start(n, e, &r->want, &o, rewrite_wanted);
	if (rc < 0) {
		free(r);
		return rc;
	}
	if (rc == 1)
		rewrite_have(r, o);
	return 0;
}

/* ---- writers coming and going ---- */

void pool_node_writer_opened(struct pool_node *n, struct node_object *o)
{
	(void)n;
	o->w->opens++;
	o->w->touched_ms = pool_now_ms();
}

int pool_node_writer_fd(struct pool_node *n, struct node_object *o)
{
	if (o->w->fd < 0)
		o->w->fd = pool_store_fd(n->store, o->id, O_RDWR);
	return o->w->fd;
}

int pool_node_unseal(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;
	int err;

	if (o->state == NODE_WRITING)
		return w->queued ? -EAGAIN : 0; /* closed: about to seal */
	if (o->state != NODE_PENDING || node_op_sent(n, o))
		return -EAGAIN;
	/* Without its metadata it is not taken for whole after a crash. */
	err = pool_store_set_blob(n->store, o->id, "", 0);
	if (err)
		return err;
	node_op_forget(n, o);
	o->state = NODE_WRITING;
	w->flushed = false;
	w->touched_ms = pool_now_ms();
	pool_list_del(&w->link);
	pool_list_add_tail(&n->writers, &w->link);
	return 0;
}

/* ---- room for daemon-served writes ---- */

#define EXTEND_STEP (4u << 20)

struct extend {
	struct node_claim claim;
	struct pool_node *n;
	struct node_object *o; /* ref */
	node_done_cb cb;
	void *arg;
};

static void on_extended(struct node_claim *c, int status)
{
	struct extend *x = pool_container_of(c, struct extend, claim);

	if (!status && x->o->w)
		x->o->w->claimed += c->bytes;
	else if (!status)
		pool_node_claim_end(x->n, c->bytes);
	x->cb(x->arg, status);
	node_object_unref(x->n, x->o);
	free(x);
}

/* How much of [offset, offset+len) is beyond the pages it may have already. */
static uint64_t beyond(const struct node_writer *w, uint64_t offset,
		       uint64_t len)
{
	uint64_t end = offset + len, have = w->reserved;

	return end <= have ? 0 : offset >= have ? len : end - have;
}

int pool_node_extend_start(struct pool_node *n, struct node_object *o,
			   uint64_t offset, uint64_t len, node_done_cb cb,
			   void *arg)
{
	struct node_writer *w = o->w;
	uint64_t need = beyond(w, offset, len), step;
	struct extend *x;
	int rc;

	if (offset + len > pool_node_size_max(n, w))
		return -EFBIG;
	if (need <= w->claimed) {
		w->claimed -= need;
		n->claimed -= need < n->claimed ? need : n->claimed;
		return 1;
	}
	x = calloc(1, sizeof(*x));
	if (!x)
		return -ENOMEM;
	x->n = n;
	x->o = node_object_ref(o);
	x->cb = cb;
	x->arg = arg;
	/* Ahead in steps, so that small writes ask seldom. */
	step = need < EXTEND_STEP && offset >= EXTEND_STEP ? EXTEND_STEP :
							     need;
	rc = pool_node_claim_start(n, &x->claim, step, 0, on_extended);
	if (rc == 0)
		return 0;
	if (rc == 1)
		w->claimed += step;
	node_object_unref(n, o);
	free(x);
	if (rc < 0)
		return rc;
	w->claimed -= need;
	n->claimed -= need < n->claimed ? need : n->claimed;
	return 1;
}

void pool_node_writer_flushed(struct pool_node *n, struct node_object *o)
{
	(void)n;
	if (o->state != NODE_WRITING)
		return;
	o->w->flushed = true;
	o->w->touched_ms = pool_now_ms();
}

void pool_node_writer_closed(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;

	if (!w || w->opens == 0)
		return;
	w->opens--;
	w->touched_ms = pool_now_ms();
	if (w->opens > 0)
		return;
	if (o->state == NODE_DROPPED)
		node_writer_free(n, o);
	if (o->state != NODE_WRITING)
		return;
	close_writer_fd(w);
	if (w->claimed) {
		pool_node_claim_end(n, w->claimed);
		w->claimed = 0;
	}
	/* By age of the last sign of life. */
	pool_list_del(&w->link);
	pool_list_add_tail(&n->writers, &w->link);
	if (w->poison && o->entry && o->entry->own == o) {
		struct node_entry *e = o->entry;

		node_own_drop(n, e);
		return;
	}
	node_try_seal(n, o, false);
}

void pool_node_poison(struct pool_node *n, struct node_object *o, int status)
{
	if (!o->w || o->w->poison)
		return;
	o->w->poison = status;
	pool_count(&n->c.poisoned);
}

int pool_node_object_size(struct pool_node *n, struct node_object *o,
			  uint64_t *ret_size, uint64_t *ret_blocks)
{
	struct stat st;
	int fd, err = 0;

	if (o->state != NODE_WRITING) {
		*ret_size = o->size;
		*ret_blocks = (o->size + 511) / 512;
		return 0;
	}
	fd = o->w->fd >= 0 ? o->w->fd : node_object_open(n, o, O_PATH);
	if (fd < 0)
		return fd;
	if (fstat(fd, &st) < 0)
		err = -errno;
	if (fd != o->w->fd)
		close(fd);
	if (err)
		return err;
	*ret_size = (uint64_t)st.st_size;
	*ret_blocks = (uint64_t)st.st_blocks;
	if ((*ret_size + 4095) / 4096 * 8 < *ret_blocks)
		*ret_blocks = (*ret_size + 4095) / 4096 * 8;
	o->w->touched_ms = pool_now_ms();
	return 0;
}

/* own -> nothing: unlinked, poisoned, abandoned, same content. */
void node_own_drop(struct pool_node *n, struct node_entry *e)
{
	struct node_object *o = e->own;

	if (o->w && o->w->phantom_gen &&
	    !(e->obj && e->obj->gen == o->w->phantom_gen))
		(void)node_op_name(n, KVPOOL__OP__KIND__UNLINK, &e->e,
				   o->w->phantom_gen);
	e->own = NULL;
	o->entry = NULL;
	node_op_forget(n, o);
	if (o->state == NODE_SEALING) {
		o->state = NODE_DROPPED; /* sealed() removes the file */
		node_object_unref(n, o);
		return;
	}
	o->state = NODE_DROPPED;
	if (n->ops)
		n->ops->object_gone(n->ops_arg, o);
	pool_store_remove(n->store, o->id);
	/* A handle may still write to it: the writer part stays for it. */
	if (!o->w || o->w->opens == 0)
		node_writer_free(n, o);
	else
		pool_list_del(&o->w->link);
	node_object_unref(n, o);
}

void node_writer_free(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;

	if (!w)
		return;
	o->w = NULL;
	pool_list_del(&w->link);
	close_writer_fd(w);
	if (w->sampling)
		pool_store_sampling(n->store, false);
	if (w->claimed)
		pool_node_claim_end(n, w->claimed);
	pool_xattrs_free(w->xattrs);
	free(w);
}

/* ---- sealing ---- */

struct seal {
	struct pool_seal seal;
	struct pool_node *n;
	struct node_object *o; /* ref */
	uint64_t start_ns;
	uint64_t base_gen;
	struct node_attr attr;
	struct pool_xattrs *xattrs;
	size_t path_len;
	char path[];
};

static ptrdiff_t seal_blob(struct pool_seal *ps, void *buf, size_t cap)
{
	struct seal *s = pool_container_of(ps, struct seal, seal);

	return node_blob_pack(s->path, s->path_len, 0, s->base_gen, ps->size,
			      ps->sum, &s->attr, s->xattrs, buf, cap);
}

static bool same_as_published(const struct node_entry *e,
			      const struct node_object *o)
{
	return pool_node_published(e) && e->size == o->size &&
	       XXH128_isEqual(e->sum, o->sum) &&
	       e->attr.mode == o->w->attr.mode &&
	       e->attr.uid == o->w->attr.uid &&
	       e->attr.gid == o->w->attr.gid &&
	       pool_xattrs_equal(e->xattrs, o->w->xattrs);
}

/* The file is what the pool has already: no new generation; if we had no copy
 * of it, this is one. */
static void same_content(struct pool_node *n, struct node_entry *e,
			 struct node_object *o)
{
	unsigned int i;

	pool_count(&n->c.same_content);
	if (e->obj || !n->complete) {
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		return;
	}
	e->own = NULL;
	node_writer_free(n, o);
	o->gen = e->gen;
	for (i = 0; i < e->nholders; i++)
		o->counted = o->counted || e->holders[i] == n->index;
	node_object_held(n, e, o);
	(void)node_write_blob(n, o);
	if (n->ops)
		n->ops->published(n->ops_arg, e);
}

static void sealed(struct pool_seal *ps, int status)
{
	struct seal *s = pool_container_of(ps, struct seal, seal);
	struct pool_node *n = s->n;
	struct node_object *o = s->o;
	struct node_entry *e = o->entry;

	pool_hist_add(&n->c.put, pool_now_ns() - s->start_ns);
	if (o->state == NODE_DROPPED) {
		if (n->ops)
			n->ops->object_gone(n->ops_arg, o);
		pool_store_remove(n->store, o->id);
		node_writer_free(n, o);
		goto out;
	}
	if (status) {
		pool_warn_limited("sealing a file failed: %s",
				  strerror(-status));
		pool_node_poison(n, o, status);
		o->state = NODE_WRITING;
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		goto out;
	}
	o->size = ps->size;
	o->sum = ps->sum;
	o->verified = true;
	pool_count_add(&n->c.put_bytes, o->size);
	learn(n, e, o->size);
	o->state = NODE_PENDING; /* the worker is done with it */
	if (same_as_published(e, o)) {
		same_content(n, e, o);
		goto out;
	}
	/* Renamed or changed while the worker ran: attach the truth. */
	(void)node_write_blob(n, o);
	if (node_op_publish(n, o) < 0)
		pool_error("out of memory: a publication is delayed");
out:
	pool_xattrs_free(s->xattrs);
	free(s);
	node_object_unref(n, o);
	node_kick(n);
}

static int seal_start(struct pool_node *n, struct node_object *o)
{
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&o->entry->e, path);
	struct node_writer *w = o->w;
	struct seal *s;
	uint64_t blocks;
	int err;

	if (len < 0)
		return len;
	err = pool_node_object_size(n, o, &o->size, &blocks);
	if (err)
		return err;
	s = calloc(1, sizeof(*s) + (size_t)len + 1);
	if (!s)
		return -ENOMEM;
	memcpy(s->path, path, (size_t)len);
	s->path_len = (size_t)len;
	s->n = n;
	s->o = node_object_ref(o);
	s->start_ns = pool_now_ns();
	s->base_gen = w->base_gen;
	w->attr.mtime_ns = w->attr.mtime_ns ? w->attr.mtime_ns :
					      pool_wall_ns();
	s->attr = w->attr;
	s->xattrs = pool_xattrs_dup(w->xattrs);
	s->seal.id = o->id;
	s->seal.blob = seal_blob;
	err = pool_seal_start(n->store, &s->seal, sealed);
	if (err) {
		pool_xattrs_free(s->xattrs);
		free(s);
		node_object_unref(n, o);
		return err;
	}
	o->state = NODE_SEALING;
	w->ticket = ++n->ticket;
	pool_list_del(&w->link);
	pool_list_add_tail(&n->sealing, &w->link);
	return 0;
}

static bool publishable(const struct node_object *o)
{
	const struct node_writer *w = o->w;
	const struct pool_entry *e = &o->entry->e;

	return o->state == NODE_WRITING && w->flushed && !w->scratch &&
	       !w->poison &&
	       (w->renamed ||
		!node_name_is_temporary(pool_entry_name(e), e->name_len));
}

/* Did a write beyond the reservation possibly fail unseen? */
static bool outgrew(struct pool_node *n, struct node_object *o)
{
	uint64_t size, blocks;

	if (o->w->served || pool_store_breaches(n->store) == o->w->breaches)
		return false;
	return pool_node_object_size(n, o, &size, &blocks) < 0 ||
	       size > o->w->reserved;
}

void node_try_seal(struct pool_node *n, struct node_object *o, bool force)
{
	struct node_writer *w = o->w;
	struct node_entry *e = o->entry;
	int fd, rc;

	if (!e || e->own != o || !publishable(o))
		return;
	/* Handles open: only where a lease can prove that nobody writes. */
	if (w->opens > 0 && (w->served || !force))
		return;
	if (!w->served) {
		fd = pool_store_fd(n->store, o->id, O_RDONLY);
		rc = fd < 0 ? fd : pool_file_has_writer(fd);
		if (fd >= 0)
			close(fd);
		if (rc == -EBUSY) {
			/* The kernel lets go of the file just after RELEASE: at
			 * once again, then (a mapping) at each tick. */
			w->queued = true;
			pool_count(&n->c.seal_retries);
			if (w->tries++ < NODE_RETRY_FAST)
				uv_timer_start(&n->soon, node_soon,
					       NODE_RETRY_MS, 0);
			return;
		}
		if (rc == 0 && outgrew(n, o)) {
			pool_count(&n->c.outgrown);
			pool_node_poison(n, o, -ENOSPC);
			rc = -ENOSPC;
		}
	} else {
		rc = 0;
	}
	w->queued = false;
	if (rc == 0)
		rc = seal_start(n, o);
	if (rc < 0) {
		pool_node_poison(n, o, rc);
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
	}
}

void node_seal_candidates(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->writers)
		node_try_seal(n, pool_list_entry(it, struct node_writer, link)
					 ->obj, true);
}

void node_soon(uv_timer_t *h)
{
	node_writers_tick(h->data, pool_now_ms());
}

void node_writers_tick(struct pool_node *n, uint64_t now)
{
	struct pool_list *it, *tmp;
	struct node_writer *w;
	struct node_entry *e;
	uint64_t age;

	pool_list_each(it, tmp, &n->writers) {
		w = pool_list_entry(it, struct node_writer, link);
		e = w->obj->entry;
		age = now - w->touched_ms;
		if (w->queued) {
			node_try_seal(n, w->obj, false);
			continue;
		}
		if (w->opens > 0 || w->scratch || !e || e->own != w->obj)
			continue;
		if (age < (w->flushed || w->renamed ? NODE_ABANDON_MS :
						      NODE_UNOPENED_MS))
			continue;
		pool_count(&n->c.abandoned);
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
	}
}

/* ---- the master's answer ---- */

void node_client_stored(struct pool_node *n, struct node_object *o)
{
	o->counted = false;
	pool_evict_set_class(n->evict, &o->ev, POOL_EVICT_CACHE);
	node_writer_free(n, o);
}

void node_publish_done(struct pool_node *n, struct node_object *o, int status,
		       uint64_t gen)
{
	struct node_entry *e = o->entry;
	struct node_writer *w = o->w;

	assert(o->state == NODE_PENDING && e && e->own == o && w);
	if (status) {
		if (status == -ESTALE)
			pool_count(&n->c.stale_puts);
		else
			pool_warn_limited("the master refused a publication: "
					  "%s", strerror(-status));
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		node_entry_tidy(n, e);
		return;
	}
	pool_count(&n->c.published);
	if (gen < e->gen) { /* overtaken already: the newer one shows */
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
		return;
	}
	o->gen = gen;
	e->own = NULL;
	if (gen > e->gen) {
		e->gen = gen;
		e->size = o->size;
		e->sum = o->sum;
		e->attr = w->attr;
		pool_xattrs_free(e->xattrs);
		e->xattrs = pool_xattrs_dup(w->xattrs);
		e->holders[0] = (uint16_t)n->index;
		e->nholders = e->replicas = 1;
		e->hidden_gen = 0;
	}
	o->counted = true;
	node_object_held(n, e, o);
	(void)node_write_blob(n, o);
	node_make_dirs_known(n, e);
	if (n->opts.store_size > 0)
		node_writer_free(n, o);
	if (n->ops)
		n->ops->published(n->ops_arg, e);
}

/* ---- resizing ---- */

struct resize {
	struct pool_node *n;
	struct node_object *o; /* ref */
	uint64_t size;	       /* to reserve */
	uint64_t need;	       /* claimed */
	int fd;
	struct node_claim claim;
	struct pool_reserve reserve;
	node_done_cb cb;
	void *arg;
	int64_t set_size; /* >= 0: ftruncate to it */
	bool inside;
};

static int resize_done(struct resize *r, int status)
{
	struct pool_node *n = r->n;
	bool inside = r->inside;

	if (r->need)
		pool_node_claim_end(n, r->need);
	if (r->fd >= 0)
		close(r->fd);
	if (r->o->w)
		r->o->w->touched_ms = pool_now_ms();
	node_object_unref(n, r->o);
	if (!inside)
		r->cb(r->arg, status);
	free(r);
	return status ? status : 1;
}

static void resize_reserved(struct pool_reserve *pr, int status)
{
	struct resize *r = pool_container_of(pr, struct resize, reserve);

	if (!status && r->o->w && r->size > r->o->w->reserved)
		r->o->w->reserved = r->size;
	r->inside = false;
	resize_done(r, status);
}

static int resize_apply(struct resize *r)
{
	int err;

	if (r->set_size >= 0 && ftruncate(r->fd, r->set_size) < 0)
		return resize_done(r, -errno);
	if (r->size == 0 || (r->o->w && r->o->w->scratch))
		return resize_done(r, 0);
	r->reserve.fd = r->fd;
	r->reserve.size = r->size;
	err = pool_store_reserve_start(r->n->store, &r->reserve,
				       resize_reserved);
	return err ? resize_done(r, err) : 0;
}

static void resize_claimed(struct node_claim *c, int status)
{
	struct resize *r = pool_container_of(c, struct resize, claim);

	r->inside = false;
	if (status) {
		r->need = 0;
		resize_done(r, status);
	} else {
		(void)resize_apply(r);
	}
}

/* Reserve [0, size) and set the file's size if set_size >= 0. */
static int resize(struct pool_node *n, struct node_object *o, uint64_t size,
		  int64_t set_size, node_done_cb cb, void *arg)
{
	struct resize *r;
	struct stat st;
	uint64_t have;
	int rc;

	if (size > pool_node_size_max(n, o->w))
		return -EFBIG;
	r = calloc(1, sizeof(*r));
	if (!r)
		return -ENOMEM;
	r->n = n;
	r->o = node_object_ref(o);
	r->set_size = set_size;
	r->size = size;
	r->cb = cb;
	r->arg = arg;
	r->inside = true;
	r->fd = pool_store_fd(n->store, o->id, O_RDWR);
	if (r->fd < 0)
		return resize_done(r, r->fd);
	if (fstat(r->fd, &st) < 0)
		return resize_done(r, -errno);
	if (set_size >= 0 && st.st_size == set_size && o->w->reserved >= size)
		return resize_done(r, 0);
	have = (uint64_t)st.st_blocks * 512;
	if (o->w->scratch || size <= have)
		return resize_apply(r);
	rc = pool_node_claim_start(n, &r->claim, size - have, 0,
				   resize_claimed);
	if (rc < 0)
		return resize_done(r, rc);
	r->need = size - have;
	if (rc == 0)
		return 0;
	return resize_apply(r);
}

int pool_node_resize_start(struct pool_node *n, struct node_object *o,
			   uint64_t size, node_done_cb cb, void *arg)
{
	/* A served file is claimed for as it is written. */
	return resize(n, o, size, (int64_t)size, cb, arg);
}

int pool_node_allocate_start(struct pool_node *n, struct node_object *o,
			     uint64_t offset, uint64_t len, bool keep_size,
			     node_done_cb cb, void *arg)
{
	uint64_t size, blocks, end;
	int err;

	if (len == 0 || offset + len < offset)
		return -EINVAL;
	end = offset + len;
	err = pool_node_object_size(n, o, &size, &blocks);
	if (err)
		return err;
	return resize(n, o, end, keep_size || end <= size ? -1 : (int64_t)end,
		      cb, arg);
}
