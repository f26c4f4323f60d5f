/*
 * Results of changes, stored until the node has received them, so that each
 * change is executed at most once.
 *
 * The result of an executed change may be lost with the connection. Executing
 * the change again could undo later changes of other nodes. Therefore the
 * changes of one run of a node are numbered; WELCOME says how many were
 * executed, and has the results that the node has not received. The node
 * repeats only the rest.
 *
 * The next master does not have the results. But after each change that changed
 * the state, a record of the member was appended: how many of its changes had
 * been executed by then, and a generation below those of all later ones. The
 * last such record counts. Whether later changes were executed is unknown: the
 * node repeats them as conditional changes (Op.again; ops.c). These can be
 * judged only once the master is ready, so OPS with conditional changes are
 * deferred until then, and so are the session's OPS after them. A MKDIR is
 * deferred, too: it must fail if the name is a file, and an inventory that has
 * not arrived yet may list that file.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "master/impl.h"
#include "pool/base/clock.h"

/* OPS, or a part of at most POOL_OPS_QUANTUM changes of them. */
struct deferred {
	struct pool_list link; /* session.deferred */
	uint64_t req;
	bool more; /* the next one is of the same message */
	bool conditional; /* not before the master is ready */
	size_t len;
	uint8_t payload[];
};

/* ---- results ---- */

static struct master_answer *answer_of(const struct master_answers *a,
				       uint64_t number)
{
	return &a->list[number & (a->cap - 1)];
}

/* Make room for the result of change `done` + 1. */
static int grow(struct master_answers *a)
{
	unsigned int cap = a->cap ? 2 * a->cap : 16;
	struct master_answer *list;
	uint64_t i;

	if (a->kept < a->cap)
		return 0;
	list = cap <= MASTER_ANSWERS_MAX ? calloc(cap, sizeof(*list)) : NULL;
	if (!list)
		return -ENOMEM;
	for (i = a->done - a->kept + 1; i <= a->done; i++)
		list[i & (cap - 1)] = *answer_of(a, i);
	free(a->list);
	a->list = list;
	a->cap = cap;
	return 0;
}

/* The node has received the results of its first `received` changes. */
static void forget_received(struct master_answers *a, uint64_t received)
{
	uint64_t left = a->done > received ? a->done - received : 0;

	if (a->kept > left)
		a->kept = left;
	if (a->kept)
		return;
	free(a->list);
	a->list = NULL;
	a->cap = 0;
}

void master_answers_add(struct master *m, struct master_member *mb,
			const Kvpool__OpResult *r)
{
	struct master_answers *a = &mb->answers;

	if (!a->run)
		return;
	/* Without room the oldest result is overwritten, or none is stored.
	 * WELCOME then reports only that these changes were executed. */
	if (grow(a)) {
		a->kept -= a->kept != 0;
		master_count(m, MC_RESULTS_FORGOTTEN);
	}
	a->done++;
	a->gen = m->epoch << POOL_GEN_SEQ_BITS | m->gen_seq;
	if (!a->cap)
		return;
	a->kept++;
	answer_of(a, a->done)->status = r->status;
	answer_of(a, a->done)->gen = r->gen;
	answer_of(a, a->done)->seq = r->seq;
}

bool master_answers_follow(struct master_session *s, const Kvpool__Ops *msg)
{
	struct master_answers *a = &s->member->answers;

	if (!a->run)
		return true;
	forget_received(a, msg->done);
	return msg->first == a->done + s->ndeferred_ops;
}

/* ---- joining ---- */

/* Results after the first `received`, in one allocation. */
static int fill_results(const struct master_answers *a, uint64_t received,
			Kvpool__Welcome *w)
{
	size_t n = (size_t)(a->done - received), i;
	Kvpool__OpResult *r;

	if (!n)
		return 0;
	w->ops = malloc(n * (sizeof(*w->ops) + sizeof(*r)));
	if (!w->ops)
		return -ENOMEM;
	r = (Kvpool__OpResult *)(void *)(w->ops + n);
	for (i = 0; i < n; i++) {
		const struct master_answer *is = answer_of(a, received + 1 + i);

		kvpool__op_result__init(&r[i]);
		r[i].status = is->status;
		r[i].gen = is->gen;
		r[i].seq = is->seq;
		w->ops[i] = &r[i];
	}
	w->n_ops = n;
	return 0;
}

/* A new run of the node: its numbers of changes begin again. */
static void begin_run(struct master_answers *a, const Kvpool__Join *j)
{
	forget_received(a, UINT64_MAX);
	if (a->run) {
		memmove(a->earlier + 1, a->earlier,
			sizeof(a->earlier) - sizeof(a->earlier[0]));
		a->earlier[0] = a->run;
	}
	a->run = j->ops_run;
	a->done = j->ops_done;
	a->gen = 0;
	a->exact = false; /* a former master may know this run */
}

bool master_answers_earlier(const struct master_answers *a, uint64_t run,
			    uint64_t ticket, uint64_t than)
{
	unsigned int i;

	if (run && run == a->run)
		return ticket < than;
	for (i = 0; run && i < MASTER_EARLIER_RUNS; i++)
		if (run == a->earlier[i])
			return true;
	return false;
}

int master_answers_join(struct master_member *mb, const Kvpool__Join *j,
			Kvpool__Welcome *ret_welcome)
{
	struct master_answers *a = &mb->answers;
	bool exact;
	int err = 0;

	if (!j->ops_run || a->run != j->ops_run) {
		begin_run(a, j);
		return 0;
	}
	exact = a->exact && j->ops_done <= a->done &&
		a->done - j->ops_done <= a->kept;
	if (a->done < j->ops_done) {
		a->done = j->ops_done;
		a->kept = 0;
	}
	if (exact)
		err = fill_results(a, j->ops_done, ret_welcome);
	ret_welcome->ops_run = a->run;
	ret_welcome->ops_done = a->done;
	ret_welcome->ops_gen = a->gen;
	ret_welcome->ops_exact = exact && !err;
	return err;
}

void master_answers_welcomed(struct master_member *mb)
{
	mb->answers.exact = true;
}

void master_answers_load(struct master_member *mb,
			 const struct master_record *r)
{
	mb->answers.run = r->ops_run;
	mb->answers.done = r->ops_done;
	mb->answers.gen = r->ops_gen;
}

/* ---- quanta ---- */

static bool is_quantum_over(struct master_quantum *q, struct master_feed *feed,
			    uint64_t now_ns)
{
	const unsigned int full = POOL_OPS_QUANTUM;
	unsigned int made = q->made > full ? q->made : full;
	uint64_t took_ns = now_ns - q->began_ns;

	if (took_ns / made >= MASTER_OPS_QUANTUM_MS * 1000000u / full)
		return true;
	if (q->made < full)
		return false;
	if (!q->acked_ns && master_feed_has(feed) >= q->seq)
		q->acked_ns = now_ns;
	return q->acked_ns && (now_ns - q->acked_ns) / made >=
				      (q->acked_ns - q->began_ns) / full;
}

bool master_quantum_has(struct master *m, struct master_member *mb,
			unsigned int max)
{
	if (master_keep_settled(m, mb->quantum.mark))
		mb->quantum.unsettled = 0;
	return mb->quantum.unsettled < max && !master_keep_crowded(m);
}

/* Has the session's member some of its quantum of changes left? Before the
 * master is ready, only records are bounded. */
static bool within_quantum(const struct master_session *s)
{
	struct master_quantum *q = &s->member->quantum;
	uint64_t now_ns = pool_now_ns();

	if (!master_quantum_has(s->m, s->member, MASTER_UNSETTLED_MAX))
		return false;
	if (!s->m->ready)
		return true;
	if (is_quantum_over(q, &s->m->map.feed, now_ns)) {
		q->made = 0;
		q->began_ns = now_ns;
		q->acked_ns = 0;
	}
	return q->made < POOL_OPS_QUANTUM;
}

void master_quantum_spend(struct master *m, struct master_member *mb,
		       size_t changes)
{
	mb->quantum.made += (unsigned int)changes;
	mb->quantum.seq = m->map.feed.seq;
}

void master_quantum_records(struct master_member *mb, uint64_t cost,
			    uint64_t mark)
{
	if (!cost)
		return;
	mb->quantum.unsettled += (unsigned int)cost;
	mb->quantum.mark = mark;
}

/* ---- deferred OPS ---- */

/* Changes that are executed at once. */
static unsigned int part_of(const struct master *m)
{
	return m->etcd_state ? MASTER_UNSETTLED_MAX : POOL_OPS_QUANTUM;
}

static struct deferred *new_deferred(struct master_session *s, uint64_t req,
				     const Kvpool__Ops *part, bool more,
				     bool conditional)
{
	size_t len = kvpool__ops__get_packed_size(part);
	struct deferred *l = malloc(sizeof(*l) + len);

	if (!l)
		return NULL;
	l->req = req;
	l->more = more;
	l->conditional = conditional;
	l->len = len;
	kvpool__ops__pack(part, l->payload);
	s->deferred_bytes += len;
	s->ndeferred_ops += part->n_ops;
	return l;
}

static bool defer_part(struct master_session *s, uint64_t req,
		       const Kvpool__Ops *part, bool more, bool conditional)
{
	struct deferred *l = new_deferred(s, req, part, more, conditional);

	if (!l)
		return false;
	pool_list_add_tail(&s->deferred, &l->link);
	return true;
}

bool master_ops_put_back(struct master_session *s, uint64_t req,
			 const Kvpool__Ops *msg, size_t done, bool more)
{
	Kvpool__Ops rest = *msg;
	struct deferred *l;

	rest.ops += done;
	rest.n_ops -= done;
	l = new_deferred(s, req, &rest, more, false);
	if (!l)
		return false;
	pool_list_add(&s->deferred, &l->link);
	s->ndeferred += !more;
	return true;
}

static bool defer_parts(struct master_session *s, uint64_t req,
			const Kvpool__Ops *msg, bool conditional)
{
	Kvpool__Ops part = *msg;
	size_t left = msg->n_ops, max = part_of(s->m);
	bool more;

	if (s->ndeferred >= MASTER_DEFERRED_MAX)
		return false;
	do {
		more = left > max;
		part.n_ops = more ? max : left;
		if (!defer_part(s, req, &part, more, conditional))
			return false;
		left -= part.n_ops;
		part.ops += part.n_ops;
	} while (more);
	s->ndeferred++;
	return true;
}

static void run_deferred(struct master_session *s, const struct deferred *l)
{
	Kvpool__Ops *msg = kvpool__ops__unpack(NULL, l->len, l->payload);

	if (!msg)
		return master_session_fail(s, -ENOMEM,
					   "not enough memory for changes");
	s->ndeferred_ops -= msg->n_ops;
	master_ops_run(s, l->req, msg, l->more);
	kvpool__ops__free_unpacked(msg, NULL);
}

static void run_first(struct master_session *s)
{
	struct deferred *l = pool_list_first(&s->deferred, struct deferred,
					     link);

	pool_list_del(&l->link);
	s->ndeferred -= !l->more;
	s->deferred_bytes -= l->len;
	run_deferred(s, l);
	free(l);
}

static bool waits_for_inventories(const struct master_session *s)
{
	const struct deferred *l = pool_list_first(&s->deferred,
						   struct deferred, link);

	return !s->m->ready && l->conditional;
}

/* While changes are paused, messages that have begun are run to their end. */
static bool may_run(const struct master_session *s)
{
	return (!s->m->paused || s->nresults) && !waits_for_inventories(s) &&
	       within_quantum(s);
}

/* Continues when the next quantum begins (master_ops_quanta). */
static void run_within_quantum(struct master_session *s)
{
	while (!s->ended && s->ndeferred && may_run(s))
		run_first(s);
	if (s->ndeferred && !waits_for_inventories(s))
		master_kick(s->m);
}

bool master_ops_defer(struct master_session *s, uint64_t req,
		      const Kvpool__Ops *msg, bool conditional)
{
	bool whole = msg->n_ops <= part_of(s->m);

	if (!s->ndeferred && !conditional && !s->m->paused &&
	    ((!s->m->ready && !s->m->etcd_state) ||
	     (whole && within_quantum(s))))
		return false;
	if (!defer_parts(s, req, msg, conditional)) {
		master_count(s->m, MC_OPS_DEFERRED_REFUSED);
		master_session_fail(s, -ENOBUFS,
				    "too many OPS wait for inventories, or "
				    "for mounts to ack the feed");
		return true;
	}
	master_count(s->m, s->m->ready ? MC_OPS_TURNS : MC_OPS_DEFERRED);
	run_within_quantum(s);
	return true;
}

void master_ops_run_deferred(struct master *m)
{
	struct pool_list *it, *tmp;

	if (m->etcd_state) /* its records would wait there: master_ops_quanta */
		return;
	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		while (!s->ended && s->ndeferred)
			run_first(s);
	}
}

void master_ops_quanta(struct master *m)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &m->sessions) {
		struct master_session *s =
			pool_list_entry(it, struct master_session, link);

		run_within_quantum(s);
	}
}

void master_deferred_free(struct master_session *s)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &s->deferred)
		free(pool_list_entry(it, struct deferred, link));
	pool_list_init(&s->deferred);
	s->ndeferred = 0;
	s->deferred_bytes = 0;
}

/* ---- generations issued to conditional changes ---- */

bool master_issued_add(struct master_issued *g, const char *path, size_t len,
		       uint64_t gen, uint64_t from)
{
	uint64_t k = g->n % MASTER_ISSUED_MAX;

	if (!g->ring)
		g->ring = calloc(MASTER_ISSUED_MAX, sizeof(*g->ring));
	if (!g->ring)
		return false;
	g->ring[k].path = XXH3_64bits(path, len);
	g->ring[k].gen = gen;
	g->ring[k].from = from;
	return g->n++ < MASTER_ISSUED_MAX;
}

bool master_issued_find(const struct master_issued *g, const char *path,
			size_t len, uint64_t gen, uint64_t *ret_from)
{
	uint64_t hash = XXH3_64bits(path, len), i;

	for (i = 0; i < g->n && i < MASTER_ISSUED_MAX; i++)
		if (g->ring[i].path == hash && g->ring[i].gen == gen) {
			*ret_from = g->ring[i].from;
			return true;
		}
	return false;
}
