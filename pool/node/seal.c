/*
 * Sealing: when the last writer has closed, the file is trimmed, checksummed
 * and given its metadata, then published. write.c describes the whole life of a
 * file.
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SEAL_SMALL (256u << 10) /* sealed on the loop: some 10 us of checksum */
#define SEAL_TURN 16		/* small seals in one turn */
/*
 * Up to this size, a file is sealed on the loop, in slices between its other
 * work, while no other is being sealed: with one writer, the loop would sleep
 * meanwhile, and a worker is often woken on the writer's CPU, so that the next
 * request waits for the whole checksum (figures: tests/bench/README.md). Files
 * of several writers are sealed by workers, in parallel.
 */
#define SEAL_SLICED (64u << 20)
/* Reserved bytes beyond the size, which a seal frees first. To free more takes
 * too long for the loop. */
#define SEAL_SLICED_TRIM (4u << 20)
/* Beyond this backlog, a turn seals for up to SEAL_TURN_NS. That slows a fast
 * writer down to the rate of sealing, before its buffer is full of files that
 * no peer can read. */
#define SEAL_BACKLOG 1024
#define SEAL_TURN_NS 1000000

struct seal {
	struct pool_seal seal;
	struct pool_list link; /* node->small_seals, else self-linked */
	struct pool_node *n;
	struct node_object *o; /* ref */
	uint64_t start_ns;
	bool fd_kept; /* seal.fd counts in nkept_fds */
	bool exact;   /* the writer wrote and summed all of it */
	uint64_t base_gen, seen_gen;
	struct node_content base;
	bool has_base;
	struct node_attr attr;
	struct pool_xattrs *xattrs;
	size_t path_len;
	char path[];
};

static ptrdiff_t seal_blob(struct pool_seal *ps, void *buf, size_t cap)
{
	struct seal *s = pool_container_of(ps, struct seal, seal);

	return node_blob_pack(s->path, s->path_len, 0, s->base_gen,
			      s->has_base ? &s->base : NULL, s->seen_gen,
			      ps->size, ps->sum, &s->attr, s->xattrs, buf, cap);
}

/*
 * Was it opened for writing in place, but not changed? Then it need not be
 * published. (A new file with the same bytes is: only the master knows whether
 * other holders are left.)
 */
static bool is_unchanged(const struct node_entry *e,
			 const struct node_object *o)
{
	const struct node_writer *w = o->w;

	return w->pristine_copy && !w->renamed && !w->phantom_gen &&
	       pool_node_published(e) && e->gen == w->base_gen &&
	       e->size == o->size && XXH128_isEqual(e->sum, o->sum) &&
	       e->attr.mode == w->attr.mode && e->attr.uid == w->attr.uid &&
	       e->attr.gid == w->attr.gid &&
	       pool_xattrs_equal(e->xattrs, w->xattrs);
}

/* Drops e's own file, and notifies the mount. */
static void drop_put(struct pool_node *n, struct node_entry *e)
{
	node_own_drop(n, e);
	if (n->ops)
		n->ops->changed(n->ops_arg, e);
}

/*
 * A file is lost after its close. It looks as if it had been published and
 * evicted, and the next fsync of its directory reports the error. The previous
 * version must not show again: an fsync may have confirmed its replacement.
 */
static void lose(struct pool_node *n, struct node_object *o, int status)
{
	struct node_entry *e = o->entry;

	pool_node_poison(n, o, status);
	node_own_lost(e, status);
	node_names_begin(n);
	node_own_drop(n, e);
	(void)node_name_remove(n, e);
	node_names_end(n);
	if (n->ops)
		n->ops->changed(n->ops_arg, e);
}

/* No memory or descriptors: worth a retry. */
static bool is_transient(int err)
{
	return err == -ENOMEM || err == -EMFILE || err == -ENFILE;
}

static void on_soon(uv_timer_t *h);

/* First retries each NODE_RETRY_MS, because the kernel drops its reference just
 * after RELEASE; later at each tick, because it is probably a mapping. */
static void seal_later(struct pool_node *n, struct node_writer *w)
{
	node_writer_to(n, w, WRITER_RETRYING);
	pool_count(&n->c.seal_retries);
	if (w->tries++ < NODE_RETRY_FAST)
		uv_timer_start(&n->soon, on_soon, NODE_RETRY_MS, 0);
}

static void sealed(struct pool_seal *ps, int status)
{
	struct seal *s = pool_container_of(ps, struct seal, seal);
	struct pool_node *n = s->n;
	struct node_object *o = s->o;
	struct node_entry *e = o->entry;

	pool_hist_add(&n->c.put, pool_now_ns() - s->start_ns);
	n->nkept_fds -= s->fd_kept;
	if (o->state == NODE_DROPPED) {
		if (n->ops)
			n->ops->object_gone(n->ops_arg, o);
		node_object_uses(n, o, 0);
		if (!node_object_remains(n, o))
			pool_store_remove(n->store, o->id);
		node_writer_free(n, o);
		goto out;
	}
	if (is_transient(status) || status == -ECANCELED) {
		node_writer_to(n, o->w, WRITER_CLOSED);
		pool_list_del(&o->w->link);
		pool_list_add_tail(&n->writers, &o->w->link);
		if (status != -ECANCELED) /* the store is closing */
			seal_later(n, o->w);
		goto out;
	}
	if (!status && s->exact && ps->size != o->size)
		status = -EIO; /* another descriptor has written to it */
	if (status) {
		pool_warn_limited("sealing a file failed: %s",
				  strerror(-status));
		node_writer_to(n, o->w, WRITER_CLOSED);
		lose(n, o, status);
		goto out;
	}
	node_names_begin(n);
	o->size = ps->size;
	node_names_end(n);
	node_writer_to(n, o->w, WRITER_SEALED);
	o->sum = ps->sum;
	o->verified = true;
	pool_count_add(&n->c.put_bytes, o->size);
	node_learn_size(n, e, o->size);
	if (is_unchanged(e, o)) {
		pool_count(&n->c.same_content);
		drop_put(n, e);
		goto out;
	}
	/* Renamed or changed while the worker ran: attach the current metadata.
	 */
	if (o->w->stale_blob)
		(void)node_write_blob(n, o);
out:
	pool_xattrs_free(s->xattrs);
	free(s);
	node_object_unref(n, o);
	node_kick(n);
}

static void worker_sealed(struct pool_seal *ps, int status)
{
	struct seal *s = pool_container_of(ps, struct seal, seal);

	s->n->nworker_seals--;
	sealed(ps, status);
}

void node_publish_sealed(struct pool_node *n)
{
	struct pool_list *it, *tmp;
	struct node_writer *w;
	struct node_dirent *dir;
	unsigned int left = n->nsealed;

	n->pass++;
	pool_list_each(it, tmp, &n->sealing) {
		if (!left) /* no later one is sealed yet */
			return;
		w = pool_list_entry(it, struct node_writer, link);
		dir = w->obj->entry ? node_dir(&w->obj->entry->e.parent->e) :
				      NULL;
		if (!dir)
			continue; /* dropped while it is sealed */
		if (w->phase != WRITER_SEALED) {
			dir->pass = n->pass;
			continue;
		}
		left--;
		if (dir->pass == n->pass)
			continue;
		if (node_op_publish(n, w->obj) < 0)
			return; /* later ones must not overtake it */
		node_writer_to(n, w, WRITER_QUEUED);
		pool_list_del(&w->link);
		pool_list_add_tail(&n->pending, &w->link);
	}
}

void node_publish(struct pool_node *n, struct node_object *o)
{
	struct node_writer *w = o->w;
	bool queued;

	w->ticket = ++n->ticket;
	if (!w->begun_ns)
		w->begun_ns = pool_now_ns();
	queued = node_op_publish(n, o) == 0;
	node_writer_to(n, w, queued ? WRITER_QUEUED : WRITER_SEALED);
	pool_list_del(&w->link);
	pool_list_add_tail(queued ? &n->pending : &n->sealing, &w->link);
}

static void seal_slice(struct pool_node *n)
{
	struct seal *s = n->sliced;
	int err = s->o->state == NODE_DROPPED ?
			  pool_seal_cancel(n->store, &s->seal) :
			  pool_seal_slice(n->store, &s->seal);

	if (err == -EAGAIN)
		return;
	n->sliced = NULL;
	uv_idle_stop(&n->slicing);
	sealed(&s->seal, err);
}

/* In each turn: one slice, or as many as take half as long as the rest of the
 * turn did. */
static void on_slicing(uv_idle_t *h)
{
	struct pool_node *n = h->data;
	uint64_t begin = pool_now_ns(), rest = begin - n->sliced_ns;

	if (rest > SEAL_TURN_NS)
		rest = SEAL_TURN_NS;
	do
		seal_slice(n);
	while (n->sliced && pool_now_ns() - begin < rest / 2);
	n->sliced_ns = pool_now_ns();
}

static void slices_begin(struct pool_node *n, struct seal *s)
{
	n->sliced = s;
	n->sliced_ns = pool_now_ns();
	uv_idle_start(&n->slicing, on_slicing);
}

void node_seals_end(struct pool_node *n)
{
	while (!pool_list_empty(&n->small_seals))
		node_seal_small(n);
	while (n->sliced)
		seal_slice(n);
}

/* Runs in the loop's next turn, never inside a request of the mount. */
void node_seal_small(struct pool_node *n)
{
	uint64_t begin = pool_now_ns();
	unsigned int left = SEAL_TURN;
	struct seal *s;

	while (!pool_list_empty(&n->small_seals)) {
		if (left == 0 && (n->nsmall_seals <= SEAL_BACKLOG ||
				  pool_now_ns() - begin >= SEAL_TURN_NS))
			break;
		left = left > 0 ? left - 1 : SEAL_TURN - 1;
		s = pool_list_first(&n->small_seals, struct seal, link);
		pool_list_del(&s->link);
		n->nsmall_seals--;
		sealed(&s->seal, pool_seal_now(n->store, &s->seal));
	}
	if (!pool_list_empty(&n->small_seals))
		node_kick(n);
}

/* fd: O_RDONLY, or -1. */
static int size_for_seal(struct pool_node *n, struct node_object *o, int fd)
{
	struct node_writer *w = o->w;
	uint64_t blocks;
	int err;

	if (w->fd_kept) {
		o->size = w->sum_size;
		w->attr.mtime_ns = pool_wall_ns();
		return 0;
	}
	if (fd < 0)
		return pool_node_object_size(n, o, &o->size, &blocks);
	err = pool_file_size(fd, &o->size);
	if (err)
		return err;
	return o->size > w->reserved && node_outgrew(n, o) ? -ENOSPC : 0;
}

/* Passes an open descriptor to the seal, within NODE_KEPT_FDS. Else the seal
 * opens the file again. */
static void keep_fd(struct seal *s, int *fd)
{
	struct node_writer *w = s->o->w;

	if (w->fd_kept && w->opens == 0) {
		s->seal.fd = node_fd_take(s->n, &w->fd);
		s->fd_kept = s->exact = true;
		w->fd_kept = false;
	} else if (*fd > 0 && s->n->nkept_fds < NODE_KEPT_FDS) {
		s->seal.fd = *fd;
		*fd = -1;
		s->fd_kept = true;
		s->n->nkept_fds++;
	}
}

static bool may_slice(const struct pool_node *n, const struct node_object *o)
{
	return o->size <= SEAL_SLICED && !n->sliced && !n->nworker_seals &&
	       o->w->reserved <= o->size + SEAL_SLICED_TRIM &&
	       pool_store_in_memory(n->store);
}

/* fd: of the file, O_RDONLY, or -1; set to -1 if the seal takes it. */
static int seal_start(struct pool_node *n, struct node_object *o, int *fd)
{
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&o->entry->e, path);
	struct node_writer *w = o->w;
	struct seal *s;
	int err;

	if (len < 0)
		return len;
	err = size_for_seal(n, o, *fd);
	if (err)
		return err;
	/* Passthrough writes cannot be refused, so the size is checked here. */
	if (o->size > node_size_max(n, w)) {
		pool_count(&n->c.outgrown);
		return -EFBIG;
	}
	s = calloc(1, sizeof(*s) + (size_t)len + 1);
	if (!s)
		return -ENOMEM;
	err = pool_xattrs_dup(w->xattrs, &s->xattrs);
	if (err) {
		free(s);
		return err;
	}
	memcpy(s->path, path, (size_t)len);
	s->path_len = (size_t)len;
	s->n = n;
	s->o = node_object_ref(o);
	s->start_ns = pool_now_ns();
	if (w->opens > 0 || !w->begun_ns)
		w->begun_ns = s->start_ns;
	s->base_gen = w->base_gen;
	s->has_base = node_base(o) != NULL;
	s->base = w->base;
	/* 1: it has seen no generation. 0 would mean: unknown. */
	s->seen_gen = w->seen_gen = n->seen_gen ? n->seen_gen : 1;
	w->attr.mtime_ns = w->attr.mtime_ns ? w->attr.mtime_ns :
					      pool_wall_ns();
	s->attr = w->attr;
	s->seal.id = o->id;
	keep_fd(s, fd);
	s->seal.blob = seal_blob;
	pool_list_init(&s->link);
	s->seal.have_sum = w->summed && w->sum_size == o->size;
	s->seal.sum = w->sum;
	if (o->size <= SEAL_SMALL || s->seal.have_sum) {
		pool_list_add_tail(&n->small_seals, &s->link);
		n->nsmall_seals++;
		node_kick(n);
	} else if (may_slice(n, o)) {
		slices_begin(n, s);
	} else {
		n->nworker_seals++;
		pool_seal_start(n->store, &s->seal, worker_sealed);
	}
	node_object_uses(n, o, o->size);
	node_writer_to(n, w, WRITER_SEALING);
	w->stale_blob = false;
	w->ticket = ++n->ticket;
	pool_list_del(&w->link);
	pool_list_add_tail(&n->sealing, &w->link);
	return 0;
}

bool node_outgrew(struct pool_node *n, struct node_object *o)
{
	uint64_t size, blocks;

	if (o->w->served || pool_store_breaches(n->store) == o->w->breaches ||
	    (pool_node_object_size(n, o, &size, &blocks) == 0 &&
	     size <= o->w->reserved))
		return false;
	pool_count(&n->c.outgrown);
	return true;
}

int node_try_seal(struct pool_node *n, struct node_object *o, bool force)
{
	struct node_writer *w = o->w;
	int fd = -1, rc = 0;

	pool_count(&n->c.seal_tries);
	if (!node_is_candidate(o) || (w->opens > 0 && !force))
		return 0;
	if (!w->served) {
		fd = pool_store_fd(n->store, o->id, O_RDONLY);
		rc = fd < 0 ? fd : pool_file_has_writer(fd);
	}
	if (rc == 0)
		rc = seal_start(n, o, &fd);
	if (fd >= 0)
		close(fd);
	if (rc == -EBUSY || is_transient(rc)) {
		seal_later(n, w);
		return 0;
	}
	if (rc < 0)
		lose(n, o, rc);
	return rc;
}

/* Tries to seal each candidate once. retries: only those in RETRYING, and not
 * while handles are open. A try may remove any candidate from the list; one
 * that stays is moved to its end. */
static void try_candidates(struct pool_node *n, bool retries)
{
	struct pool_list left;
	struct node_writer *w;

	pool_list_init(&left);
	pool_list_splice(&left, &n->candidates);
	while (!pool_list_empty(&left)) {
		w = pool_list_first(&left, struct node_writer, candidate);
		pool_list_del(&w->candidate);
		pool_list_add_tail(&n->candidates, &w->candidate);
		if (!retries || w->phase == WRITER_RETRYING)
			(void)node_try_seal(n, w->obj, !retries);
	}
}

void node_seal_candidates(struct pool_node *n)
{
	try_candidates(n, false);
}

bool node_seals_due(const struct pool_node *n)
{
	struct pool_list *it, *tmp;
	const struct node_writer *w;

	pool_list_each(it, tmp, &n->candidates) {
		w = pool_list_entry(it, struct node_writer, candidate);
		if (w->phase == WRITER_RETRYING && w->opens == 0)
			return true;
	}
	return false;
}

static void on_soon(uv_timer_t *h)
{
	try_candidates(h->data, true);
}

void node_writers_tick(struct pool_node *n, uint64_t now)
{
	struct pool_list *it, *tmp;
	struct node_writer *w;
	struct node_entry *e;
	uint64_t age;

	try_candidates(n, true);
	pool_list_each(it, tmp, &n->writers) {
		w = pool_list_entry(it, struct node_writer, link);
		e = w->obj->entry;
		age = now - w->touched_ms;
		if (w->phase == WRITER_RETRYING || w->opens > 0 || w->scratch ||
		    !e || e->own != w->obj)
			continue;
		if (age < (w->phase == WRITER_CLOSED || w->renamed ?
				   NODE_ABANDON_MS :
				   NODE_UNOPENED_MS))
			continue;
		pool_count(&n->c.abandoned);
		if (node_publishable(w->obj))
			node_own_lost(e, -ETIMEDOUT);
		node_own_drop(n, e);
		if (n->ops)
			n->ops->changed(n->ops_arg, e);
	}
}

/* ---- the master's answer ---- */

/* From now on barriers do not wait for o. While the master names this copy, it
 * stays counted, and is evicted only with permission. */
void node_client_stored(struct pool_node *n, struct node_object *o, bool named)
{
	if (!o->w && (named || !o->counted))
		return;
	node_writer_free(n, o);
	node_object_count(n, o, o->counted && named);
	if (!o->counted && node_client_linked(n, o))
		node_object_drop(n, o, false);
}

bool node_client_linked(const struct pool_node *n, const struct node_object *o)
{
	return n->opts.store_size == 0 && o->lent_fd < 0 &&
	       !node_is_ours_alone(n, o) &&
	       pool_store_linked(n->store, o->id);
}

/* Is o a counted, verified copy of gen in this store? Then a new put of the
 * same bytes is not needed. */
static bool relied_on(const struct node_object *o, uint64_t gen)
{
	return o && o->state == NODE_HELD && o->gen == gen && o->counted &&
	       o->verified && o->lent_fd < 0;
}

/* From the close to the ack. Uses the times noted at these events, so that no
 * clock is read per file. */
static uint64_t publish_ns(const struct pool_node *n,
			   const struct node_writer *w)
{
	bool known = w->begun_ns && w->begun_ns < n->acked_ns;

	return known ? n->acked_ns - w->begun_ns : 0;
}

/*
 * The master acks with the name's current generation if that has the same
 * bytes. A node cannot decide this by itself: all holders of the current
 * generation may be dead, so the put may be the only copy.
 */
void node_publish_done(struct pool_node *n, struct node_object *o, int status,
		       uint64_t gen)
{
	struct node_entry *e = o->entry;
	struct node_writer *w = o->w;

	assert(o->state == NODE_PENDING && e && e->own == o && w);
	/*
	 * The master no longer has phantom_gen: it has o, or refused o for
	 * another node's change. The next master may receive an UNLINK of it
	 * before that node's PUBLISH, and would refuse that one as deleted.
	 */
	if (!status || status == -ESTALE || status == -EIO)
		w->phantom_gen = 0;
	if (status) {
		if (status == -ESTALE) {
			pool_count(&n->c.stale_puts);
		} else {
			pool_warn_limited("the master refused a publication: "
					  "%s", strerror(-status));
			node_own_lost(e, status);
		}
		drop_put(n, e);
		node_entry_tidy(n, e);
		return;
	}
	pool_count(gen == e->gen ? &n->c.same_content : &n->c.published);
	pool_hist_add(&n->c.publish, publish_ns(n, w));
	if (gen >= e->gen) {
		node_hide(n, e, 0);
		e->ahead = n->stage;
	}
	/* Same bytes: still a new put, with a new mtime. */
	if (gen == e->gen && w->attr.mtime_ns > e->attr.mtime_ns)
		e->attr.mtime_ns = w->attr.mtime_ns;
	/* The name has a newer version, or this one, already. */
	if (gen < e->gen || relied_on(e->obj, gen)) {
		drop_put(n, e);
		return;
	}
	o->gen = gen;
	node_names_begin(n);
	e->own = NULL;
	if (gen > e->gen) {
		e->gen = gen;
		e->size = o->size;
		e->sum = o->sum;
		e->attr = w->attr;
		pool_xattrs_free(e->xattrs);
		e->xattrs = w->xattrs;
		w->xattrs = NULL;
		e->holders[0] = (uint16_t)n->index;
		e->nholders = e->replicas = 1;
	}
	node_names_end(n);
	/* A client keeps the writer: from now on its xattrs are not charged. */
	pool_xattrs_charge(w->xattrs, NULL, 0);
	o->counted = true;
	node_object_held(n, e, o);
	(void)node_write_blob(n, o);
	node_make_dirs_known(n, e->e.parent);
	if (n->opts.store_size > 0)
		node_writer_free(n, o);
	if (n->ops)
		n->ops->published(n->ops_arg, e);
}
