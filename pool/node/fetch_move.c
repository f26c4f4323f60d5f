/* Fetches: pieces from holders, and their checksums. */
#include "pool/node/fetch.h"

#include <errno.h>
#include <string.h>

#include "pool/verbs/device.h"

unsigned int node_fetch_remaining_ms(const struct node_fetch *f, uint64_t len)
{
	uint64_t now = pool_now_ms();
	uint64_t left = f->deadline_ms > now ? f->deadline_ms - now : 1;
	/* Less than the whole time, so that another holder can be asked if this
	 * one stalls. */
	uint64_t fair = f->n->opts.deadline_ms / 2 +
			len * 1000 / NODE_FLOOR_BPS;

	return (unsigned int)(left < fair ? left : fair);
}

void node_fetch_ask_anew(struct node_fetch *f)
{
	unsigned int i;

	f->next_offset = 0;
	f->by_rdma = false;
	for (i = 0; i < NODE_PIECES_MAX; i++)
		f->pieces[i].f.length = 0;
}

static void bad_bytes(struct node_fetch *f)
{
	pool_count(&f->n->c.bad_sums);
	pool_warn_limited("\"%.*s\" arrived with a wrong checksum: discarded",
			  (int)f->path_len, f->path);
}

/* The holder's copy may be damaged: the holder will check it, and the master
 * replace it. */
static void report_doubt(struct node_fetch *f, unsigned int holder)
{
	pool_count(&f->n->c.doubts_reported);
	pool_peers_doubt(f->n->peers,
			 &node_member(f->n, f->holders[holder])->addr, f->path,
			 f->path_len, f->gen);
}

void node_fetch_bad_bytes(struct node_fetch *f, unsigned int holder)
{
	bad_bytes(f);
	report_doubt(f, holder);
	f->bad[holder] = true;
}

/* After pieces from several holders it is unknown whose were wrong: asks one
 * holder for the whole object. False: none is left, or too many mismatches. */
static bool again_alone(struct node_fetch *f)
{
	unsigned int i, gave = 0, last = 0;
	bool left = false;

	for (i = 0; i < f->nholders; i++) {
		if (!f->gave[i])
			continue;
		report_doubt(f, i);
		f->gave[i] = false;
		last = i;
		gave++;
	}
	if (gave == 1)
		f->bad[last] = true;
	for (i = 0; i < f->nholders; i++)
		left = left || node_fetch_usable(f, i);
	if (!left || ++f->again > 2 * NODE_HOLDERS_INLINE)
		return false;
	f->alone = true;
	node_fetch_to(f, FETCH_MOVING);
	node_fetch_ask_anew(f);
	pool_count(&f->n->c.fetch_retries);
	node_fetch_move(f);
	return true;
}

static void on_verified(struct pool_verify *v, int status)
{
	struct node_fetch *f = pool_container_of(v, struct node_fetch, verify);

	f->working = false;
	if (status == -EBADMSG) {
		bad_bytes(f);
		if (!node_fetch_ended(f) && again_alone(f))
			return;
	}
	if (status || node_fetch_ended(f))
		node_fetch_end(f, status);
	else
		node_fetch_keep(f, -1, 0);
}

static void verify_all(struct node_fetch *f)
{
	f->verify.fd = 0;
	f->verify.id = f->file.id;
	f->verify.sum = f->sum;
	pool_verify_start(f->n->store, &f->verify, on_verified);
	node_fetch_to(f, FETCH_VERIFYING);
	f->working = true;
}

static void piece_failed(struct node_fetch *f, struct fetch_piece *p,
			 int status)
{
	/* The errors of a broken connection, from a read or a write. */
	bool cut = status == -ECONNRESET || status == -EPIPE;

	if (status == -ENOSPC || status == -EIO) {
		node_fetch_end(f, status);
		return;
	}
	/* A stalled holder (-ECANCELED) stays usable, in case there is no
	 * other. So does one whose connection broke, and with it all pieces:
	 * its process may have been taken over. After NODE_PIECES_MAX breaks it
	 * is not asked again. */
	f->bad[p->holder] = status != -ECANCELED &&
			    (!cut || ++f->cuts[p->holder] > NODE_PIECES_MAX);
	f->stale = f->stale || status == -ENOENT;
	if (f->bad[p->holder] && (status == -EBADMSG || status == -EINVAL ||
				  cut))
		report_doubt(f, p->holder);
	pool_count(&f->n->c.fetch_retries);
	node_fetch_move(f);
}

static void on_piece(struct pool_fetch *pf, int status)
{
	struct fetch_piece *p = pool_container_of(pf, struct fetch_piece, f);
	struct node_fetch *f = p->owner;
	bool whole = pf->length == f->size;

	p->busy = false;
	f->busy--;
	if (pf->length > NODE_WHOLE)
		f->n->whole_bytes -= pf->length;
	if (node_fetch_ended(f)) {
		node_fetch_end(f, f->status);
		return;
	}
	if (status) {
		piece_failed(f, p, status);
		return;
	}
	pf->length = 0; /* this piece is complete */
	f->by_rdma = f->by_rdma || pf->by_rdma;
	f->gave[p->holder] = true;
	if (whole) {
		if (XXH128_isEqual(pf->sum, f->sum)) {
			node_fetch_keep(f, -1, 0);
		} else {
			bad_bytes(f);
			pf->length = f->size; /* retries the whole range */
			piece_failed(f, p, -EBADMSG);
		}
		return;
	}
	node_fetch_move(f);
}

int node_fetch_piece_start(struct node_fetch *f, struct fetch_piece *p,
		      uint64_t offset, uint64_t length, pool_fetch_cb cb)
{
	int h = node_fetch_next_holder(f);
	struct node_member *m;
	int err;

	if (h < 0)
		return -ENOENT;
	m = node_member(f->n, f->holders[h]);
	p->owner = f;
	p->holder = (uint16_t)h;
	memset(&p->f, 0, sizeof(p->f));
	p->f.from = m->addr;
	if (!node_fetch_same_host(f->n, m))
		p->f.from.unix_path[0] = '\0';
	p->f.path = f->path;
	p->f.path_len = f->path_len;
	p->f.gen = f->gen;
	p->f.offset = offset;
	p->f.length = length;
	p->f.fd = f->file.fd;
	p->f.fd_ok = f->file.fd < 0;
	p->f.pull = f->kind == FETCH_REPLICA;
	p->f.copy = f->kind == FETCH_REPLICA;
	p->f.lent_fd = -1;
	p->f.timeout_ms = node_fetch_remaining_ms(f, length);
	err = pool_fetch_start(f->n->peers, &p->f, cb);
	if (err) {
		p->f.length = 0;
		return err;
	}
	p->busy = true;
	p->seen = 0;
	p->seen_ms = pool_now_ms();
	f->busy++;
	return 0;
}

/* Pieces move over several devices at once. */
static bool has_rdma(const struct pool_node *n)
{
	return n->opts.verbs && verbs_nports(n->opts.verbs) > 0;
}

/* Bytes of the next range; see NODE_WHOLE. */
static uint64_t range_size(struct node_fetch *f)
{
	struct pool_node *n = f->n;
	bool one = f->size <= NODE_WHOLE ||
		   (f->size <= NODE_WHOLE_ALONE && !has_rdma(n) &&
		    n->whole_bytes + f->size <= NODE_WHOLE_SUM &&
		    (f->alone || node_fetch_usable_count(f) < 2));

	return one ? f->size : NODE_PIECE;
}

/* A failed piece keeps its range (length > 0, not busy) and is retried first.
 */
static bool next_range(struct node_fetch *f, struct fetch_piece *p,
		       uint64_t *off, uint64_t *len)
{
	uint64_t step;

	if (p->f.length > 0) {
		*off = p->f.offset;
		*len = p->f.length;
		return true;
	}
	if (f->next_offset >= f->size)
		return false;
	step = range_size(f);
	*off = f->next_offset;
	*len = f->size - *off < step ? f->size - *off : step;
	f->next_offset += *len;
	return true;
}

void node_fetch_move(struct node_fetch *f)
{
	uint64_t off, len;
	unsigned int i;
	int err;

	for (i = 0; i < NODE_PIECES_MAX; i++) {
		struct fetch_piece *p = &f->pieces[i];

		if (p->busy || !next_range(f, p, &off, &len))
			continue;
		err = node_fetch_piece_start(f, p, off, len, on_piece);
		if (err) {
			node_fetch_end(f, err);
			return;
		}
		if (len > NODE_WHOLE)
			f->n->whole_bytes += len;
	}
	if (f->busy == 0 && !node_fetch_ended(f))
		verify_all(f);
}

/* A stalled piece is cancelled long before its deadline, then retried at
 * another holder. Never at two at once: a holder that resumes must not write
 * into verified bytes. */
static void check_stall(struct node_fetch *f, struct fetch_piece *p,
			uint64_t now)
{
	uint64_t got = pool_fetch_progress(&p->f);

	if (got != p->seen) {
		p->seen = got;
		p->seen_ms = now;
		return;
	}
	if (now - p->seen_ms < NODE_STALL_MS ||
	    !node_fetch_another_runs(f, p->holder))
		return;
	node_member(f->n, f->holders[p->holder])->stalled_ms = now;
	pool_count(&f->n->c.fetch_stalls);
	p->seen_ms = now; /* cancel it once */
	pool_fetch_cancel(f->n->peers, &p->f);
}

void node_fetch_check_stalls(struct node_fetch *f, uint64_t now, bool late)
{
	unsigned int i;

	for (i = 0; i < NODE_PIECES_MAX && !node_fetch_ended(f); i++) {
		if (!f->pieces[i].busy)
			continue;
		if (late) /* this loop has not read its input meanwhile */
			f->pieces[i].seen_ms = now;
		else
			check_stall(f, &f->pieces[i], now);
	}
}
