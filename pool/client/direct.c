/*
 * Gets of remote objects by the caller's thread, over lines (line.h). It
 * chooses a holder from the mirror, asks for all objects of a window at once,
 * and receives each into the caller's buffer. The checksum is computed slice by
 * slice, while the slice is in the CPU's cache.
 *
 * This is a fast path without a fallback of its own, like pool/node/read.c: an
 * object that does not arrive or fails its checksum is left to the loop. So are
 * large objects, which are moved over several connections in parallel, objects
 * that a store of this host lends, and objects that RDMA moves.
 */
#include "pool/client/direct.h"

#include <errno.h>
#include <string.h>

#include "pool/lane/landing.h"

#define LARGE (8u << 20) /* larger objects are left to the loop's movers */

/* ---- the plan ---- */

/* Borrowing a small object takes longer than receiving it once, but later reads
 * need no message. So only objects that are read often are borrowed. (A race
 * between threads only makes the count wrong.) */
static bool is_wanted_often(struct kvpool *p, uint64_t gen)
{
	_Atomic uint64_t *seen = &p->seen[gen % CLIENT_SEEN];
	uint64_t times = *seen >> 2 == gen << 2 >> 2 ? (*seen & 3) + 1 : 1;

	*seen = gen << 2 | (times & 3);
	return times > 3;
}

static int trip_to(struct client_direct *d, const struct pool_peer_addr *to)
{
	unsigned int i;

	for (i = 0; i < d->n; i++)
		if (memcmp(d->trip[i].to.id, to->id, POOL_ID_SIZE) == 0)
			return (int)i;
	if (i == CLIENT_TRIPS_MAX)
		return -1;
	d->trip[i].to = *to;
	d->n++;
	return (int)i;
}

void client_direct_plan(struct client_direct *d, struct client_op *op,
			const struct node_entry *e)
{
	struct kvpool *p = client_pool(op);
	struct node_version v = pool_node_version(e);
	bool small = v.size <= CLIENT_INLINE;
	struct pool_peer_addr to;

	op->trip = -1;
	op->size = v.size;
	if (op->win->kind != &client_get || !client_fits(op) ||
	    v.size > LARGE || (p->verbs && v.size > POOL_INLINE_MAX) ||
	    pool_node_read_from(p->node, e, small, &to))
		return;
	if (small && to.unix_path[0] && is_wanted_often(p, v.gen))
		return;
	op->trip = trip_to(d, &to);
	op->asked = op->trip >= 0;
	op->gen = v.gen;
	op->sum = v.sum;
}

/* ---- one holder ---- */

struct asking {
	struct client_window *w;
	struct client_line *line;
	int trip;
	size_t left; /* answers to come */
};

static bool is_asked(const struct asking *a, const struct client_op *op)
{
	return op->trip == a->trip;
}

static uint64_t least_bulk(const struct asking *a)
{
	uint64_t least = 0;

	for (size_t i = 0; i < a->w->n; i++) {
		const struct client_op *op = &a->w->op[i];

		if (is_asked(a, op) && op->size > POOL_INLINE_MAX &&
		    (!least || op->size < least))
			least = op->size;
	}
	return least;
}

static int ask_one(struct asking *a, const struct client_op *op, size_t i)
{
	const struct kvpool_ns *ns = a->w->ns;
	char path[POOL_PATH_MAX + 1];
	size_t len = 0;

	if (!ns->root) {
		if (ns->path_len + 1 + op->path.len > POOL_PATH_MAX)
			return -ENAMETOOLONG;
		memcpy(path, ns->path, ns->path_len);
		path[ns->path_len] = '/';
		len = ns->path_len + 1;
	}
	memcpy(path + len, op->path.at, op->path.len);
	return client_line_ask(a->line, i, path, len + op->path.len, op->gen,
			       op->size);
}

static int ask_all(struct asking *a)
{
	int err = 0;

	for (size_t i = 0; !err && i < a->w->n; i++) {
		if (!is_asked(a, &a->w->op[i]))
			continue;
		err = ask_one(a, &a->w->op[i], i);
		a->left++;
	}
	return err ? err : client_line_send(a->line);
}

/* Receives op's bytes, which come next on the line; ends op if the checksum is
 * right. 0, or -errno: the line is broken. */
static int receive(struct asking *a, struct client_op *op,
		   const struct client_answer *answer)
{
	struct pool_landing l = { .fd = -1, .mem = op->buf,
				  .length = op->size };
	int err = pool_landing_init(&l);
	size_t room;
	ssize_t n;
	void *to;

	if (err)
		return err;
	while (!err && (to = pool_landing_room(&l, &room))) {
		n = client_line_bytes(a->line, answer, to, room);
		if (n < 0)
			err = (int)n;
		else
			pool_landing_data(&l, to, (size_t)n);
	}
	pool_landing_stop(&l, err);
	if (!err && XXH128_isEqual(l.sum, op->sum)) {
		op->result = (int64_t)op->size;
		op->source = CLIENT_TCP;
		op->ended = true;
		pool_count(&a->w->ns->pool->lines.objects);
	}
	pool_landing_fini(&l);
	return err;
}

static int take_answer(struct asking *a)
{
	struct client_answer answer;
	struct client_op *op;
	int err = client_line_answer(a->line, least_bulk(a), &answer);

	if (err)
		return err;
	op = answer.req < a->w->n ? &a->w->op[answer.req] : NULL;
	if (!op || !is_asked(a, op) || (answer.data && answer.size != op->size))
		return -EPROTO;
	op->trip = -1;
	a->left--;
	return answer.data ? receive(a, op, &answer) : 0;
}

static void make_trip(struct client_window *w, const struct client_direct *d,
		      int trip)
{
	struct kvpool *p = w->ns->pool;
	struct asking a = { .w = w, .trip = trip };
	int err;

	a.line = client_line_take(&p->lines, &d->trip[trip].to,
				  least_bulk(&a) > 0);
	if (!a.line)
		return;
	err = ask_all(&a);
	while (!err && a.left > 0)
		err = take_answer(&a);
	client_line_give(a.line, !err);
}

void client_direct_run(struct client_window *w, const struct client_direct *d)
{
	for (unsigned int i = 0; i < d->n; i++)
		make_trip(w, d, (int)i);
}
