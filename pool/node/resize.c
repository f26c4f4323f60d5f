/*
 * Space for files that are being written: daemon-served writes claim it as they
 * proceed, truncate and fallocate in advance.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

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

/* Bytes of [offset, offset+len) beyond its reserved pages. */
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

	w->pristine_copy = false;
	if (offset + len > node_size_max(n, w))
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
	/* Claims more than needed, so that small writes rarely claim. */
	step = need < EXTEND_STEP && offset >= EXTEND_STEP ? EXTEND_STEP :
							     need;
	x->claim.put = !w->scratch; /* scratch files are never moved */
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
	if (r->o->state != NODE_WRITING) /* sealed or dropped meanwhile */
		return resize_done(r, -EBUSY);
	r->fd = pool_store_fd(r->n->store, r->o->id, O_RDWR);
	if (r->fd < 0)
		return resize_done(r, r->fd);
	if (r->set_size >= 0 && ftruncate(r->fd, r->set_size) < 0)
		return resize_done(r, -errno);
	if (r->size == 0 || (r->o->w && r->o->w->scratch))
		return resize_done(r, 0);
	r->reserve.fd = r->fd;
	r->reserve.size = r->size;
	pool_store_reserve_start(r->n->store, &r->reserve, resize_reserved);
	return 0;
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
	uint64_t now, have, mtime_ns;
	struct resize *r;
	int rc = pool_store_stat(n->store, o->id, &now, &have, &mtime_ns);

	if (rc)
		return rc;
	if (size > node_size_max(n, o->w))
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
	r->fd = -1; /* opened when there is room: any number may wait */
	if (set_size >= 0 && now == size && o->w->reserved >= size)
		return resize_done(r, 0);
	have *= 512;
	if (o->w->scratch || size <= have)
		return resize_apply(r);
	r->claim.put = true;
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
	o->w->pristine_copy = false;
	/* A served file claims space as it is written. */
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
