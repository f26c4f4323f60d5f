/*
 * A name's own file (node_entry.own), from its appearance until it is
 * published, replaced, poisoned or abandoned. seal.c and write.c decide when it
 * is sealed and published.
 */
#include "pool/node/node_priv.h"

#include <assert.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/base/pages.h"

uint64_t pool_node_size_max(struct pool_node *n)
{
	return pool_store_size(n->store);
}

uint64_t node_size_max(struct pool_node *n, const struct node_writer *w)
{
	return w->scratch ? INT64_MAX : pool_node_size_max(n);
}

/* ---- candidates ---- */

bool node_publishable(const struct node_object *o)
{
	const struct node_writer *w = o->w;
	const struct pool_entry *e = &o->entry->e;

	return (w->phase == WRITER_CLOSED || w->phase == WRITER_RETRYING) &&
	       !w->scratch && !w->poison &&
	       (w->renamed ||
		!node_name_is_temporary(pool_entry_name(e), e->name_len));
}

bool node_is_candidate(const struct node_object *o)
{
	const struct node_writer *w = o->w;

	return w && o->entry && o->entry->own == o && node_publishable(o) &&
	       (w->opens == 0 || (!w->served && w->ndirect == 0));
}

void node_candidate_update(struct pool_node *n, struct node_object *o)
{
	bool is = node_is_candidate(o);

	if (o->w && is == pool_list_empty(&o->w->candidate)) {
		if (is)
			pool_list_add_tail(&n->candidates, &o->w->candidate);
		else
			pool_list_del(&o->w->candidate);
	}
}

/* ---- a file of this node ---- */

void node_own_discard(struct pool_node *n, struct node_object *o)
{
	pool_store_remove(n->store, o->id);
	node_writer_free(n, o);
	node_object_unref(n, o);
}

void node_own_begin(struct pool_node *n, struct node_entry *e,
		    struct node_object *o)
{
	assert(!o->entry);
	o->entry = e;
	o->w->touched_ms = pool_now_ms();
	pool_list_add_tail(&n->writers, &o->w->link);
	node_not_idle(n);
}

void node_own_show(struct pool_node *n, struct node_entry *e,
		   struct node_object *o)
{
	assert(!e->own);
	node_own_begin(n, e, o);
	node_names_begin(n);
	e->own = o;
	node_names_end(n);
	node_account(n, &e->e);
}

/* Is the edge in the drawing in object.h? */
static bool may_become(enum writer_phase from, enum writer_phase to)
{
#define TO(phase) (1u << WRITER_##phase)
	static const unsigned int edges[] = {
		[WRITER_OPEN] = TO(CLOSED) | TO(SEALED) | TO(QUEUED),
		[WRITER_CLOSED] = TO(RETRYING) | TO(SEALING),
		[WRITER_RETRYING] = TO(RETRYING) | TO(SEALING),
		[WRITER_SEALING] = TO(CLOSED) | TO(SEALED),
		[WRITER_SEALED] = TO(SEALED) | TO(QUEUED) | TO(OPEN),
		[WRITER_QUEUED] = TO(SEALED) | TO(QUEUED) | TO(OPEN),
		[WRITER_ENDED] = 0,
	};
#undef TO
	return to == WRITER_ENDED || edges[from] >> to & 1;
}

enum node_state node_state_in(enum writer_phase phase)
{
	static const enum node_state states[] = {
		[WRITER_OPEN] = NODE_WRITING,
		[WRITER_CLOSED] = NODE_WRITING,
		[WRITER_RETRYING] = NODE_WRITING,
		[WRITER_SEALING] = NODE_SEALING,
		[WRITER_SEALED] = NODE_PENDING,
		[WRITER_QUEUED] = NODE_PENDING,
		[WRITER_ENDED] = NODE_DROPPED,
	};

	return states[phase];
}

void node_writer_to(struct pool_node *n, struct node_writer *w,
		    enum writer_phase to)
{
	struct node_object *o = w->obj;

	assert(may_become(w->phase, to));
	n->nsealed -= w->phase == WRITER_SEALED;
	n->nsealed += to == WRITER_SEALED;
	w->phase = to;
	if (o->state != node_state_in(to)) {
		node_names_begin(n);
		node_object_to(o, node_state_in(to));
		node_names_end(n);
	}
	node_candidate_update(n, o);
}

int pool_node_writer_fd(struct pool_node *n, struct node_object *o)
{
	return node_fd_get(n, &o->w->fd, o, O_RDWR);
}

void pool_node_poison(struct pool_node *n, struct node_object *o, int status)
{
	if (!o->w || o->w->poison)
		return;
	o->w->poison = status;
	node_candidate_update(n, o);
	pool_count(&n->c.poisoned);
}

void node_own_stamp(struct pool_node *n, struct node_object *o)
{
	uint64_t size, blocks;

	(void)pool_store_stat(n->store, o->id, &size, &blocks,
			      &o->w->stamp_ns);
}

int pool_node_object_size(struct pool_node *n, struct node_object *o,
			  uint64_t *ret_size, uint64_t *ret_blocks)
{
	uint64_t mtime_ns;
	int err;

	if (o->state != NODE_WRITING) {
		*ret_size = o->size;
		*ret_blocks = (o->size + 511) / 512;
		return 0;
	}
	err = pool_store_stat(n->store, o->id, ret_size, ret_blocks,
			      &mtime_ns);
	if (err)
		return err;
	if (o->w->stamp_ns ? mtime_ns != o->w->stamp_ns :
			     mtime_ns > o->w->attr.mtime_ns)
		o->w->attr.mtime_ns = o->w->stamp_ns = mtime_ns;
	/* Reserved blocks beyond the size are not shown. */
	if (pool_whole_pages(*ret_size) / 512 < *ret_blocks)
		*ret_blocks = pool_whole_pages(*ret_size) / 512;
	o->w->touched_ms = pool_now_ms();
	return 0;
}

void node_own_lost(struct node_entry *e, int status)
{
	node_dir(&e->e.parent->e)->lost = status;
}

/* Learns the size of a file that is being dropped: it may have outgrown a
 * prediction that was too low. */
static void learn_outgrown(struct pool_node *n, struct node_entry *e,
			   const struct node_object *o)
{
	uint64_t size, blocks, mtime_ns;

	if (o->state == NODE_WRITING && o->w && !o->w->served &&
	    pool_store_stat(n->store, o->id, &size, &blocks, &mtime_ns) == 0 &&
	    size > o->w->reserved && size <= node_size_max(n, o->w))
		node_learn_size(n, e, size);
}

/* Ends o, which was e's own until now. */
static void own_end(struct pool_node *n, struct node_entry *e,
		   struct node_object *o)
{
	bool sealing = o->state == NODE_SEALING;

	learn_outgrown(n, e, o);
	pool_xattrs_charge(o->w->xattrs, NULL, 0);
	o->entry = NULL;
	node_op_forget(n, o);
	node_writer_to(n, o->w, WRITER_ENDED);
	if (sealing) { /* sealed() removes the file */
		node_object_unref(n, o);
		return;
	}
	if (n->ops)
		n->ops->object_gone(n->ops_arg, o);
	node_object_uses(n, o, 0);
	if (!node_object_remains(n, o))
		pool_store_remove(n->store, o->id);
	/* Open handles may still write, and need the writer part. */
	if (o->w->opens == 0)
		node_writer_free(n, o);
	else
		pool_list_del(&o->w->link);
	node_object_unref(n, o);
}

void node_own_drop(struct pool_node *n, struct node_entry *e)
{
	struct node_object *o = e->own;

	if (o->w && o->w->phantom_gen &&
	    !(e->obj && e->obj->gen == o->w->phantom_gen))
		(void)node_op_name(n, KVPOOL__OP__KIND__UNLINK, &e->e,
				   o->w->phantom_gen);
	node_names_begin(n);
	e->own = NULL;
	node_names_end(n);
	own_end(n, e, o);
}

void node_own_supersede(struct pool_node *n, struct node_entry *e,
			struct node_object *o, struct node_entry *from)
{
	struct node_object *old = e->own;

	if (old && old->w && old->w->phantom_gen) {
		o->w->phantom_gen = old->w->phantom_gen;
		old->w->phantom_gen = 0;
	}
	if (old && old->w)
		node_op_before(n, old, &o->w->before);
	node_names_begin(n);
	if (from)
		from->own = NULL;
	e->own = o;
	node_names_end(n);
	node_account(n, &e->e);
	if (old) /* after the lock: unlinking takes time */
		own_end(n, e, old);
}

int node_name_remove(struct pool_node *n, struct node_entry *e)
{
	int err;

	if (!pool_node_published(e))
		return 0;
	err = node_op_name(n, KVPOOL__OP__KIND__UNLINK, &e->e, e->gen);
	if (err)
		return err;
	pool_count(&n->c.unlinked);
	node_hide(n, e, e->gen);
	if (e->obj && e->obj->state == NODE_HELD)
		node_object_drop(n, e->obj, false);
	return 0;
}
