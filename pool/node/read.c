/*
 * Reads a published object directly into a reader's memory, without a local
 * copy.
 *
 * Happy path: one holder on another host -> all pieces at once, over all lanes,
 * into memory -> the checksum is compared. This is only the fast path. In every
 * other case (a local copy or a fetch exists, a holder on this host may lend
 * it, there is no holder, one fails or is slow, the bytes are wrong) the caller
 * falls back to fetch.c.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct piece {
	struct pool_fetch f;
	struct node_read *owner;
};

struct node_read {
	struct pool_node *n;
	void *mem;
	uint64_t size;
	XXH128_hash_t sum;
	unsigned int busy; /* pieces */
	int status;
	bool right;
	bool by_rdma; /* some of it */
	uv_work_t work;
	node_done_cb cb;
	void *arg;
	struct piece pieces[NODE_PIECES_MAX];
	char path[];
};

static bool lends(const struct pool_node *n, const struct node_member *m)
{
	return n->opts.fd_passing && m->addr.unix_path[0] &&
	       strcmp(m->host_id, n->host_id) == 0;
}

/* The holder to read from; NULL: none, use fetch.c. lent: holders that would
 * lend a descriptor qualify, too. */
static const struct node_member *
holder_of(struct pool_node *n, const struct node_entry *e, bool lent)
{
	const struct node_member *m, *found = NULL;
	uint64_t now = pool_now_ms();
	unsigned int k, first;

	if (e->nholders == 0)
		return NULL;
	/* Spreads readers as fetch_holders.c does. */
	first = (unsigned int)((n->index + e->sum.low64 % 251) % e->nholders);
	for (k = 0; k < e->nholders; k++) {
		m = node_member(n, e->holders[(first + k) % e->nholders]);
		if (!m || !m->alive ||
		    e->holders[(first + k) % e->nholders] == n->index)
			continue;
		if (!lent && lends(n, m))
			return NULL;
		if (!found && !(m->stalled_ms &&
				now - m->stalled_ms < NODE_BACKOFF_MS))
			found = m;
	}
	return found;
}

static void read_end(struct node_read *r, bool right)
{
	if (right) {
		pool_count(&r->n->c.fetches);
		pool_count(&r->n->c.fetched_copied);
		pool_count_add(&r->n->c.fetch_bytes, r->size);
	}
	r->cb(r->arg, !right ? -EAGAIN : r->by_rdma ? NODE_READ_RDMA : 0);
	free(r);
}

static void sum_all(uv_work_t *work)
{
	struct node_read *r = pool_container_of(work, struct node_read, work);

	r->right = XXH128_isEqual(XXH3_128bits(r->mem, r->size), r->sum);
}

static void on_summed(uv_work_t *work, int status)
{
	struct node_read *r = pool_container_of(work, struct node_read, work);

	read_end(r, status == 0 && r->right);
}

static void on_piece(struct pool_fetch *f, int status)
{
	struct node_read *r = pool_container_of(f, struct piece, f)->owner;

	if (status)
		r->status = status;
	r->by_rdma = r->by_rdma || f->by_rdma;
	if (--r->busy > 0)
		return;
	if (r->status)
		read_end(r, false);
	else if (f->length == r->size)
		read_end(r, XXH128_isEqual(f->sum, r->sum));
	else if (uv_queue_work(r->n->loop, &r->work, sum_all, on_summed))
		read_end(r, false);
}

static int piece_start(struct node_read *r, struct piece *p,
		       const struct node_member *from, uint64_t gen,
		       uint64_t offset, uint64_t length)
{
	uint64_t fair = r->n->opts.deadline_ms / 2 +
			length * 1000 / NODE_FLOOR_BPS;
	int err;

	p->owner = r;
	p->f.from = from->addr;
	p->f.from.unix_path[0] = '\0';
	p->f.path = r->path;
	p->f.path_len = strlen(r->path);
	p->f.gen = gen;
	p->f.offset = offset;
	p->f.length = length;
	p->f.fd = -1;
	p->f.lent_fd = -1;
	p->f.mem = (char *)r->mem + offset;
	p->f.timeout_ms = (unsigned int)fair;
	err = pool_fetch_start(r->n->peers, &p->f, on_piece);
	if (!err)
		r->busy++;
	return err;
}

/* Starts all pieces. 0; or -errno: the first one cannot be started. If a later
 * one cannot, the read fails (cb). */
static int pieces_start(struct node_read *r, const struct node_member *from,
			uint64_t gen)
{
	uint64_t step = r->size, at;
	unsigned int i = 0;
	int err = 0;

	if (r->size > NODE_WHOLE) {
		step = r->size / NODE_PIECES_MAX + 1;
		step = step < NODE_PIECE ? NODE_PIECE : step;
	}
	for (at = 0; !err && at < r->size; at += step, i++)
		err = piece_start(r, &r->pieces[i], from, gen, at,
				  r->size - at < step ? r->size - at : step);
	if (r->busy > 0)
		r->status = err;
	return r->busy > 0 ? 0 : err;
}

static const struct node_member *
read_from(struct pool_node *n, const struct node_entry *e, bool lent)
{
	if (!pool_node_published(e) || e->own || e->fetch || e->size == 0 ||
	    (e->obj && e->obj->gen == e->gen))
		return NULL;
	return holder_of(n, e, lent);
}

int pool_node_read_from(struct pool_node *n, const struct node_entry *e,
			bool lent, struct pool_peer_addr *ret_from)
{
	const struct node_member *m = read_from(n, e, lent);

	if (!m)
		return -EAGAIN;
	*ret_from = m->addr;
	if (!lends(n, m))
		ret_from->unix_path[0] = '\0';
	return 0;
}

int pool_node_read_start(struct pool_node *n, struct node_entry *e, void *mem,
			 node_done_cb cb, void *arg)
{
	char path[POOL_PATH_MAX + 1];
	const struct node_member *from;
	struct node_read *r;
	int len;

	from = read_from(n, e, false);
	len = from ? node_entry_path(&e->e, path) : -ENOENT;
	if (len < 0)
		return -EAGAIN;
	r = calloc(1, sizeof(*r) + (size_t)len + 1);
	if (!r)
		return -EAGAIN;
	memcpy(r->path, path, (size_t)len);
	r->n = n;
	r->mem = mem;
	r->size = e->size;
	r->sum = e->sum;
	r->cb = cb;
	r->arg = arg;
	if (pieces_start(r, from, e->gen)) {
		free(r);
		return -EAGAIN;
	}
	return 0;
}
