/* Copies that the master orders. Each order's result is reported (HELD). */
#include "pool/node/fetch.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A counted copy is sealed, so that a restart finds it. An extra copy is a
 * cached copy, which the feed names while it is hot. */
void node_fetch_replica_end(struct node_fetch *f, int status)
{
	struct node_object *o = f->e->obj;
	int fd = f->seal_fd;

	f->seal_fd = 0;
	if (status) {
		status = f->status;
	} else if (o->lent_fd >= 0) {
		status = -EAGAIN; /* it began as a read, and borrowed */
	} else if (!f->extra && node_session_in_inventory(f->n)) {
		status = -EAGAIN; /* the inventory may have passed this name */
	} else if (f->extra) {
		status = o->counted ? 0 : node_heat_extra(f->n, o);
	} else {
		status = node_seal_fetched(f->n, o, fd);
		fd = 0;
	}
	if (fd)
		close(fd);
	/* After a failure the bytes stay as a cached copy. */
	if (!f->extra && o && o->gen == f->gen && o->lent_fd < 0)
		node_object_count(f->n, o, !status);
	node_report_held(f->n, f->path, f->path_len, f->gen, f->extra, status);
	if (!status)
		o->held_number = f->n->helds_sent;
}

/* 0: started; its result will be reported. */
static int replicate_start(struct pool_node *n, const Kvpool__Meta *m,
			   bool extra)
{
	struct node_entry *e = node_feed_ahead(n, m);
	struct node_fetch *f;
	size_t i;
	int err;

	if (!e)
		return -EINVAL;
	if (e->obj && e->obj->gen < m->gen && e->obj->state == NODE_HELD)
		node_object_drop(n, e->obj, false);
	e->nholders = 0;
	for (i = 0; i < m->n_holders && e->nholders < NODE_HOLDERS_INLINE; i++)
		e->holders[e->nholders++] = (uint16_t)m->holders[i];
	if (e->fetch && e->fetch->gen == m->gen &&
	    !node_fetch_ended(e->fetch)) {
		if (e->fetch->kind == FETCH_PREFETCH) {
			n->nprefetch--;
			pool_count(&n->c.prefetch_dropped);
		}
		e->fetch->extra = extra && (e->fetch->kind != FETCH_REPLICA ||
					    e->fetch->extra);
		e->fetch->kind = FETCH_REPLICA;
		return 0;
	}
	if (e->fetch)
		return -EAGAIN; /* a fetch of an earlier version is ending */
	if (e->obj && e->obj->gen == m->gen && e->obj->lent_fd < 0 &&
	    !e->obj->verified) {
		/* Must be verified first. The master will repeat the order. */
		err = node_recheck(n, e->obj);
		return err ? err : -EAGAIN;
	}
	f = node_fetch_new(n, e, FETCH_REPLICA);
	if (!f)
		return -ENOMEM;
	f->extra = extra;
	if (e->obj && e->obj->gen == m->gen && e->obj->lent_fd < 0) {
		node_fetch_end(f, 0); /* a cached copy is promoted */
		return 0;
	}
	if (e->obj)
		node_object_drop(n, e->obj, false);
	if (!node_fetch_try_link(f))
		node_fetch_bytes(f);
	return 0;
}

/* Reports a result in each case, because the master waits for it. */
static void replicate_one(struct pool_node *n, const Kvpool__Meta *m,
			  bool extra)
{
	int err;

	if (m->sum.len != 16 || !m->gen || m->is_dir)
		return;
	err = replicate_start(n, m, extra);
	if (err)
		node_report_held(n, (const char *)m->path.data, m->path.len,
				 m->gen, extra, err);
}

void node_replicate(struct pool_node *n, const Kvpool__Replicate *r)
{
	size_t i;

	for (i = 0; i < r->n_nodes; i++)
		node_member_apply(n, r->nodes[i]);
	for (i = 0; i < r->n_entries; i++)
		replicate_one(n, r->entries[i], r->extra);
}
