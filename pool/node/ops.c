/*
 * Unacked changes, in the order in which they were made: each has a ticket from
 * one counter (barrier.c).
 *
 * The life of a change:
 *
 *   event            outbox                        what the master does
 *   made             appended to ops_waiting       nothing yet
 *   sent             moved to ops_sent, numbered,  executes it, keeps its
 *                    seen_gen stamped              result
 *   ack (OPS_DONE)   applied and freed             frees the result when the
 *                                                  next OPS confirms the ack
 *   connection lost  in_doubt, moved to the front  keeps the results that were
 *                    of ops_waiting                not confirmed
 *
 * WELCOME then says what happened to each change in doubt (node_ops_welcome).
 * A master with all results (ops_exact: as a rule the same one) brings the lost
 * acks (answers_lost):
 *
 *   it has a result  applied, as an ack            executed it, once
 *   it has none      resent as if new, with a new  did not execute it: executes
 *                    number                        it now
 *
 * A new master has no results. Its state tells the number of the last change of
 * this run that it surely contains (`executed`), and a generation below those
 * of all later changes (`gen`; settle_all):
 *
 *   up to executed   completed as a success        has it in its state
 *     but a PUBLISH or UNLINK of any generation: resent with Op.again, because
 *     only an ack says which generation it got or hid
 *   later            resent with Op.again and      executes it only if no other
 *                    seen_gen (at least `gen`)     node has changed the name
 *                                                  since; else refuses it
 *   cancelled        freed: the inventory does     finds no holder here
 *   PUBLISH          not list the file
 *
 * If the master does not know this run, all changes count as later, with `gen`
 * 0. A change that an even earlier master may have executed keeps `again` and
 * its seen_gen, whatever WELCOME brings.
 *
 * A cancelled PUBLISH that may have been executed stays in its list, without an
 * object, until its result is known.
 */
#include "pool/node/ops.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

struct node_object *node_op_take_object(struct node_op *op)
{
	struct node_object *o = op->obj;

	op->obj = NULL;
	if (o && o->w && o->w->op == op)
		o->w->op = NULL;
	return o;
}

void node_op_free(struct pool_node *n, struct node_op *op)
{
	struct node_object *o = node_op_take_object(op);

	node_changes_remove(n, op);
	if (op->charged)
		pool_quota_sub(&n->changers, op->payer, 1, 0);
	pool_list_del(&op->link);
	n->nops--;
	if (o)
		node_object_unref(n, o);
	node_change_free(&op->c);
	free(op->sent_path);
	free(op->before);
	free(op);
}

static void on_batch(uv_timer_t *h)
{
	node_ops_send(h->data);
}

/* A single change is sent almost at once; in a burst, several share a message,
 * because a message costs both sides more than a change. */
void node_ops_schedule(struct pool_node *n)
{
	uint64_t since = pool_now_ms() - n->batch_ms;

	if (!uv_is_active((uv_handle_t *)&n->batch))
		uv_timer_start(&n->batch, on_batch,
			       since > 4 * NODE_BATCH_BUSY_MS ?
				       NODE_BATCH_MS : NODE_BATCH_BUSY_MS,
			       0);
}

struct node_op *node_op_new(struct pool_node *n, int kind,
			    const char *path, size_t path_len)
{
	struct node_op *op = calloc(1, sizeof(*op) + path_len + 1);

	if (!op)
		return NULL;
	op->kind = kind;
	pool_list_init(&op->same);
	memcpy(op->path, path, path_len);
	op->path_len = path_len;
	op->queued = !node_session_up(n);
	op->ticket = op->made = ++n->ticket;
	if (kind == KVPOOL__OP__KIND__SETATTR ||
	    kind == KVPOOL__OP__KIND__MKDIR)
		n->rules_ticket = op->ticket;
	if (kind != KVPOOL__OP__KIND__SETATTR && path_len)
		node_changes_close(n, path, path_len);
	if (kind != KVPOOL__OP__KIND__SETATTR)
		n->access_ticket = op->ticket;
	pool_list_add_tail(&n->ops_waiting, &op->link);
	n->nops++;
	node_not_idle(n);
	node_ops_schedule(n);
	return op;
}

bool node_ops_in_order(const struct pool_node *n)
{
	const struct pool_list *lists[] = { &n->ops_sent, &n->ops_waiting };
	uint64_t last = 0;

	for (size_t i = 0; i < 2; i++)
		for (const struct pool_list *it = lists[i]->next;
		     it != lists[i]; it = it->next) {
			const struct node_op *op = pool_list_entry(
				(struct pool_list *)(uintptr_t)it,
				struct node_op, link);

			if (op->ticket < last)
				return false;
			last = op->ticket;
		}
	return true;
}

void pool_node_caller(struct pool_node *n, uint32_t uid)
{
	n->caller = uid;
}

uint32_t node_op_by(const struct pool_node *n)
{
	return n->caller == NODE_NO_CALLER ? 0 : n->caller + 1;
}

/* Is the queue full for a change or publication of uid? */
static bool is_full(const struct pool_node *n, uint32_t uid)
{
	return n->nops >= pool_quota_bound(&n->changers, uid, NODE_OPS_MAX);
}

/*
 * Records the content (or NULL) from which the change was made. If the node
 * that published that content lost its ack and resends the PUBLISH, the content
 * gets a newer generation. The master compares contents, and so sees that it is
 * not newer than this change.
 */
static void made_from(struct node_op *op, const struct node_content *base)
{
	if (!base)
		return;
	op->base = *base;
	op->has_base = true;
}

/* Sets o as the object of op, a PUBLISH. */
static void op_of(struct node_op *op, struct node_object *o)
{
	op->obj = node_object_ref(o);
	o->w->op = op;
}

int node_op_publish(struct pool_node *n, struct node_object *o)
{
	struct node_op *op;

	if (is_full(n, o->w->attr.uid)) {
		pool_count(&n->c.publish_waits);
		return -EAGAIN;
	}
	op = node_op_new(n, KVPOOL__OP__KIND__PUBLISH, "", 0);
	if (!op)
		return -ENOMEM;
	op_of(op, o);
	made_from(op, node_base(o));
	if (o->w->again) {
		op->again = op->in_doubt = true;
		op->seen_gen = o->w->seen_gen;
	}
	return 0;
}

/* The user to whose share of the queue a change of e is charged. */
static uint32_t payer_of(const struct pool_node *n, const struct pool_entry *e)
{
	return n->caller != NODE_NO_CALLER ? n->caller : pool_node_attr(e)->uid;
}

/* Is there no room for another change of this path, or of this payer? */
static bool is_refused(struct pool_node *n, int kind, const char *path,
		       size_t len, uint32_t uid)
{
	if (!is_full(n, uid) && !pool_quota_check(&n->changers, uid, 1, 0) &&
	    (kind != KVPOOL__OP__KIND__SETATTR ||
	     node_changes_of(n, path, len) <
		     pool_quota_bound(&n->changers, uid,
				      NODE_PATH_CHANGES_MAX)))
		return false;
	pool_count(&n->c.ops_refused);
	return true;
}

static int op_on_path(struct pool_node *n, int kind, struct pool_entry *e,
		      const char *path, size_t len, struct node_op **ret_op)
{
	uint32_t uid = payer_of(n, e);
	struct node_op *op;

	if (is_refused(n, kind, path, len, uid))
		return -EAGAIN;
	op = node_op_new(n, kind, path, len);
	if (!op)
		return -ENOMEM;
	op->payer = uid;
	op->by = node_op_by(n);
	op->charged = true;
	pool_quota_add(&n->changers, uid, 1, 0);
	*ret_op = op;
	return 0;
}

/* Fills op with c. 0, or -ENOMEM: op is freed. */
static int op_change(struct pool_node *n, struct node_op *op,
		     const struct node_change *c)
{
	int err = node_change_dup(c, &op->c);

	if (!err && op->kind == KVPOOL__OP__KIND__SETATTR)
		err = node_changes_add(n, op);
	if (err)
		node_op_free(n, op);
	return err;
}

/* For an UNLINK of any generation: limits it to the generations that this node
 * has published or seen. The master refuses it if another node has published a
 * newer one. */
static void of_any(struct pool_node *n, struct node_op *op,
		   const struct node_object *own)
{
	op->seen_gen = n->seen_gen;
	if (own)
		node_op_before(n, own, &op->before);
}

int node_op_name(struct pool_node *n, int kind, struct pool_entry *e,
		 uint64_t gen)
{
	struct node_content base;
	struct node_change c = { 0 };
	char path[POOL_PATH_MAX + 1];
	struct node_op *op;
	int err, len = node_entry_path(e, path);

	if (len < 0)
		return len;
	err = op_on_path(n, kind, e, path, (size_t)len, &op);
	if (err)
		return err;
	op->gen = gen;
	if (!e->is_dir && !gen)
		of_any(n, op, node_file(e)->own);
	if (!e->is_dir) {
		op->c.attr.uid = pool_node_attr(e)->uid;
		base.sum = node_file(e)->sum;
		base.size = node_file(e)->size;
		if (gen && gen == node_file(e)->gen)
			made_from(op, &base);
		return 0;
	}
	c.attr = node_dir(e)->attr;
	c.xattrs = node_dir(e)->xattrs;
	return op_change(n, op, &c);
}

int node_op_setattr(struct pool_node *n, struct pool_entry *e,
		    const struct node_change *c)
{
	struct node_change shown = *c;
	char path[POOL_PATH_MAX + 1];
	struct node_op *op;
	int err, len = node_entry_path(e, path);

	if (len < 0)
		return len;
	shown.attr = *pool_node_attr(e);
	if (node_changes_merge(n, path, (size_t)len, &shown)) {
		pool_count(&n->c.ops_merged);
		return 0;
	}
	err = op_on_path(n, KVPOOL__OP__KIND__SETATTR, e, path, (size_t)len,
			 &op);
	return err ? err : op_change(n, op, &shown);
}

void node_op_forget(struct pool_node *n, struct node_object *o)
{
	struct node_op *op = o->state == NODE_PENDING ? o->w->op : NULL;

	if (!op)
		return;
	node_object_unref(n, node_op_take_object(op));
	if (!op->sent && !op->in_doubt)
		node_op_free(n, op);
}

bool node_op_sent(struct pool_node *n, const struct node_object *o)
{
	(void)n;
	return o->w && o->w->op && o->w->op->sent;
}

void node_op_before(struct pool_node *n, const struct node_object *o,
		    struct node_before **b)
{
	struct node_content c = { o->sum, o->size };

	if (o->w)
		node_before_join(n, b, o->w->before);
	if (o->state == NODE_PENDING && node_op_maybe_executed(n, o))
		node_before_add(n, b, &c);
}

bool node_op_maybe_executed(struct pool_node *n, const struct node_object *o)
{
	return node_op_sent(n, o) || (o->w && o->w->op && o->w->op->in_doubt);
}

/* ---- sending ---- */

struct batch {
	Kvpool__Ops ops;
	Kvpool__Op *list[POOL_BATCH_MAX];
	Kvpool__Op op[POOL_BATCH_MAX];
	Kvpool__Meta meta[POOL_BATCH_MAX];
	XXH128_canonical_t sum[POOL_BATCH_MAX];
	struct node_before_pb *before[POOL_BATCH_MAX]; /* owns, or NULL */
	size_t n, bytes, state; /* cost: POOL_OPS_STATE */
};

static int fill_publish(struct batch *b, struct node_op *op, Kvpool__Meta *m)
{
	struct node_object *o = op->obj;
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&o->entry->e, path);

	if (len < 0)
		return len;
	free(op->sent_path);
	op->sent_path = strdup(path);
	if (!op->sent_path)
		return -ENOMEM;
	m->path.data = (uint8_t *)op->sent_path;
	m->path.len = (size_t)len;
	XXH128_canonicalFromHash(&b->sum[b->n], o->sum);
	m->sum.data = b->sum[b->n].digest;
	m->sum.len = sizeof(b->sum[b->n].digest);
	m->size = o->size;
	m->base_gen = o->w->base_gen;
	op->c.attr = o->w->attr;
	return pool_xattrs_to_pb(o->w->xattrs, &m->xattrs, &m->n_xattrs);
}

/* All xattrs of the name, for a master that cannot set or remove a single one.
 * NULL: the name no longer exists. */
static const struct pool_entry *whole_set(struct pool_node *n,
					  const struct node_op *op,
					  const struct pool_xattrs **ret_x)
{
	struct pool_entry *pe = pool_tree_lookup(&n->tree, op->path,
						 op->path_len);
	struct node_entry *e = pe ? node_file(pe) : NULL;

	if (pe)
		*ret_x = e && !(e->own && e->own->state == NODE_PENDING) ?
				 e->xattrs : pool_node_xattrs(pe);
	return pe;
}

static int fill_change(struct pool_node *n, const struct node_op *op,
		       Kvpool__Op *po, Kvpool__Meta *m)
{
	const struct pool_xattrs *x = op->c.xattrs;
	unsigned int version = node_session_version(n);

	po->set = op->c.set;
	if (op->c.set & POOL_SET_XATTR_EACH && version && version < 2) {
		po->set &= ~POOL_SET_XATTR_EACH;
		if (whole_set(n, op, &x))
			po->set |= POOL_SET_XATTRS;
	} else if (op->c.remove) {
		po->remove = (char *)(uintptr_t)op->c.remove;
	}
	return pool_xattrs_to_pb(x, &m->xattrs, &m->n_xattrs);
}

/* Sets the fields by which the master decides whether to execute op. */
static int fill_condition(struct batch *b, const struct node_op *op,
			  Kvpool__Op *po)
{
	const struct node_before *before = op->obj ? op->obj->w->before :
						     op->before;
	bool judged = op->kind != KVPOOL__OP__KIND__PUBLISH || op->queued ||
		      op->again;
	const struct node_content *base =
		op->has_base && judged ? &op->base : NULL;

	po->queued = op->queued;
	po->again = op->again;
	po->ticket = op->made;
	if (op->kind == KVPOOL__OP__KIND__UNLINK)
		po->by = op->by;
	else if (op->obj)
		po->by = op->obj->w->by;
	if (op->again || (op->kind == KVPOOL__OP__KIND__UNLINK && !op->gen))
		po->meta->seen_gen = op->seen_gen;
	else if (op->queued && op->obj)
		po->meta->seen_gen = op->obj->w->seen_gen;
	b->before[b->n] = NULL;
	if (!before && !base)
		return 0;
	b->before[b->n] = malloc(sizeof(*b->before[0]));
	if (!b->before[b->n])
		return -ENOMEM;
	po->before = b->before[b->n]->list;
	po->n_before = node_before_to_pb(before, base, b->before[b->n]);
	/* A change that may have been executed must not list its base in
	 * `before`: another node may have restored the same bytes since. */
	if (base && op->again)
		po->made_from = po->before[--po->n_before];
	return 0;
}

/* Of the record that the change makes, which has the name twice. */
static size_t state_cost(const struct node_op *op)
{
	if (op->kind == KVPOOL__OP__KIND__PUBLISH)
		return 0;
	return 1 + (2 * op->path_len + pool_xattrs_size(op->c.xattrs)) /
			   POOL_OPS_STATE_UNIT;
}

static int fill(struct pool_node *n, struct batch *b, struct node_op *op)
{
	Kvpool__Op *po = &b->op[b->n];
	Kvpool__Meta *m = &b->meta[b->n];
	int err;

	kvpool__op__init(po);
	kvpool__meta__init(m);
	if (op->kind == KVPOOL__OP__KIND__PUBLISH) {
		err = fill_publish(b, op, m);
	} else {
		m->path.data = (uint8_t *)op->path;
		m->path.len = op->path_len;
		m->gen = op->gen;
		m->is_dir = op->kind == KVPOOL__OP__KIND__MKDIR ||
			    op->kind == KVPOOL__OP__KIND__RMDIR;
		err = fill_change(n, op, po, m);
	}
	if (err)
		return err;
	m->mode = op->c.attr.mode;
	m->uid = op->c.attr.uid;
	m->gid = op->c.attr.gid;
	m->mtime_ns = op->c.attr.mtime_ns;
	po->kind = (Kvpool__Op__Kind)op->kind;
	po->meta = m;
	err = fill_condition(b, op, po);
	if (err) {
		free(m->xattrs);
		return err;
	}
	b->list[b->n] = po;
	b->n++;
	b->state += state_cost(op);
	b->bytes += m->path.len + 64 + (m->n_xattrs ? POOL_XATTRS_MAX : 0);
	return 0;
}

static void batch_reset(struct batch *b)
{
	size_t i;

	for (i = 0; i < b->n; i++) {
		free(b->meta[i].xattrs);
		free(b->before[i]);
	}
	b->n = b->bytes = b->state = 0;
}

/* Numbers the changes just sent, and records node->seen_gen. */
static void number(struct pool_node *n, struct pool_list *sent)
{
	struct pool_list *it, *tmp;
	struct node_op *op;

	pool_list_each(it, tmp, sent) {
		op = pool_list_entry(it, struct node_op, link);
		if (!op->seen_gen)
			op->seen_gen = n->seen_gen;
		op->number = ++n->ops_given;
	}
}

static bool is_batch_full(const struct batch *b)
{
	return b->n == POOL_OPS_QUANTUM || b->state >= POOL_OPS_STATE ||
	       b->bytes >= POOL_BATCH_BYTES;
}

static bool send_batch(struct pool_node *n, struct batch *b)
{
	struct pool_list *it, *tmp, sent;
	struct node_op *op;
	int err;

	b->n = b->bytes = b->state = 0;
	pool_list_init(&sent);
	pool_list_each(it, tmp, &n->ops_waiting) {
		if (is_batch_full(b))
			break;
		op = pool_list_entry(it, struct node_op, link);
		if (op->kind == KVPOOL__OP__KIND__PUBLISH && !op->obj) {
			node_op_free(n, op); /* cancelled */
			continue;
		}
		if (fill(n, b, op) < 0)
			break;
		pool_list_del(&op->link);
		pool_list_add_tail(&sent, &op->link);
	}
	if (b->n == 0)
		return false;
	kvpool__ops__init(&b->ops);
	b->ops.n_ops = b->n;
	b->ops.ops = b->list;
	b->ops.first = n->ops_given;
	b->ops.done = n->ops_done;
	err = node_session_send(n, POOL_MSG_OPS, b->n, &b->ops.base);
	batch_reset(b);
	if (err) { /* retry later, in order */
		pool_list_splice(&sent, &n->ops_waiting);
		pool_list_splice(&n->ops_waiting, &sent);
		return false;
	}
	number(n, &sent);
	pool_list_each(it, tmp, &sent)
		pool_list_entry(it, struct node_op, link)->sent = true;
	pool_list_splice(&n->ops_sent, &sent);
	n->batches++;
	n->batch_ms = pool_now_ms();
	return true;
}

void node_ops_send(struct pool_node *n)
{
	struct batch *b;

	if (pool_list_empty(&n->ops_waiting) || !node_session_up(n))
		return;
	b = malloc(sizeof(*b));
	if (!b)
		return; /* retried at the next tick */
	while (n->batches < NODE_OPS_INFLIGHT && send_batch(n, b))
		;
	free(b);
}

bool node_ops_rules_sent(struct pool_node *n)
{
	return pool_list_empty(&n->ops_waiting) ||
	       pool_list_first(&n->ops_waiting, struct node_op, link)->ticket >
		       n->rules_ticket;
}

/* ---- handing over ---- */

static bool hand_over_op(struct pool_node *n, struct batch *b,
			 struct node_op *op)
{
	/* Cancelled: the next inventory does not list the file. */
	if (op->kind == KVPOOL__OP__KIND__PUBLISH &&
	    (!op->obj || op->obj->state != NODE_PENDING))
		return true;
	if (fill(n, b, op))
		return false;
	b->op[b->n - 1].number = op->number;
	b->meta[b->n - 1].seen_gen = op->seen_gen;
	return true;
}

static void put_batch(struct batch *b, struct pool_handover *h)
{
	kvpool__ops__init(&b->ops);
	b->ops.n_ops = b->n;
	b->ops.ops = b->list;
	pool_handover_put(h, POOL_HANDOVER_OPS, &b->ops.base);
	batch_reset(b);
}

void node_ops_hand_over(struct pool_node *n, struct pool_handover *h)
{
	struct pool_list *lists[] = { &n->ops_sent, &n->ops_waiting };
	struct batch *b = malloc(sizeof(*b));
	struct pool_list *it, *tmp;
	size_t i;

	if (!b) {
		h->err = -ENOMEM;
		return;
	}
	b->n = b->bytes = b->state = 0;
	for (i = 0; i < 2; i++) {
		pool_list_each(it, tmp, lists[i]) {
			if (!hand_over_op(n, b,
					  pool_list_entry(it, struct node_op,
							  link)))
				h->err = -ENOMEM;
			if (b->n == POOL_BATCH_MAX ||
			    b->bytes >= POOL_BATCH_BYTES)
				put_batch(b, h);
		}
	}
	put_batch(b, h);
	free(b);
}

static int take_over_op(struct pool_node *n, const Kvpool__Op *po)
{
	const Kvpool__Meta *m = po->meta;
	const char *path = m ? (const char *)m->path.data : NULL;
	struct pool_entry *pe =
		path ? pool_tree_lookup(&n->tree, path, m->path.len) : NULL;
	struct node_entry *e = pe ? node_file(pe) : NULL;
	struct node_change c = { 0 };
	struct node_op *op;
	int err;

	if (!path || m->path.len > POOL_PATH_MAX)
		return -EBADMSG;
	if (po->kind == KVPOOL__OP__KIND__PUBLISH &&
	    !(e && e->own && e->own->state == NODE_PENDING))
		return -EBADMSG;
	op = node_op_new(n, (int)po->kind, path, m->path.len);
	if (!op)
		return -ENOMEM;
	if (po->kind == KVPOOL__OP__KIND__PUBLISH) {
		op_of(op, e->own);
		e->own->w->by = po->by;
	}
	/* Copied from the old process. If `queued` were set anew, the master
	 * would take its own execution of this change for a newer version. */
	op->queued = po->queued;
	op->in_doubt = true;
	op->again = po->again;
	op->number = po->number;
	if (po->ticket)
		op->made = po->ticket;
	op->by = po->by;
	op->seen_gen = m->seen_gen;
	op->gen = m->gen;
	if (po->kind == KVPOOL__OP__KIND__UNLINK && !m->gen)
		node_before_from_pb(n, &op->before, po->before,
				    po->n_before);
	if (po->kind == KVPOOL__OP__KIND__MKDIR && pe && pe->is_dir)
		node_dir(pe)->making++;
	c.set = po->set;
	c.remove = po->remove && po->remove[0] ? po->remove : NULL;
	node_attr_from_meta(m, &c.attr);
	err = pool_xattrs_from_pb(m->xattrs, m->n_xattrs, &c.xattrs);
	if (err) {
		node_op_free(n, op);
		return err;
	}
	err = op_change(n, op, &c);
	pool_xattrs_free(c.xattrs);
	return err;
}

int node_ops_take_over(struct pool_node *n, const Kvpool__Ops *ops)
{
	size_t i;
	int err = 0;

	for (i = 0; i < ops->n_ops && !err; i++)
		err = take_over_op(n, ops->ops[i]);
	return err < 0 ? err : 0;
}

void node_ops_free(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_splice(&n->ops_waiting, &n->ops_sent);
	pool_list_each(it, tmp, &n->ops_waiting)
		node_op_free(n, pool_list_entry(it, struct node_op, link));
	pool_hash_fini(&n->changes);
}

uint64_t node_ops_oldest(const struct pool_node *n)
{
	const struct pool_list *lists[] = { &n->ops_sent, &n->ops_waiting };
	uint64_t oldest = UINT64_MAX;

	for (size_t i = 0; i < 2; i++) {
		const struct node_op *op;

		if (pool_list_empty(lists[i]))
			continue;
		op = pool_list_first(lists[i], struct node_op, link);
		if (op->ticket < oldest)
			oldest = op->ticket;
	}
	return oldest;
}
