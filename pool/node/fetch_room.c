/* Fetches: a descriptor lent by a holder on this host; else space and a file.
 */
#include "pool/node/fetch.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

#define TOO_LARGE_LOG_MS 60000

static void lent_return(struct node_fetch *f)
{
	close(f->verify.fd);
	f->verify.fd = 0;
	pool_peers_return(f->n->peers, f->pieces[0].f.from.id, f->path,
			  f->path_len, f->gen);
}

static void on_lent_verified(struct pool_verify *v, int status)
{
	struct node_fetch *f = pool_container_of(v, struct node_fetch, verify);
	struct fetch_piece *p = &f->pieces[0];
	int fd = f->verify.fd;

	f->working = false;
	if (!status && !node_fetch_ended(f)) {
		f->verify.fd = 0;
		node_fetch_keep(f, fd, f->holders[p->holder]);
		return;
	}
	lent_return(f);
	if (node_fetch_ended(f)) {
		node_fetch_end(f, f->status);
		return;
	}
	if (status == -EBADMSG)
		node_fetch_bad_bytes(f, p->holder);
	node_fetch_bytes(f);
}

/* A worker checks its sum before any reader gets it (pool/peer/lend.c). */
static void lent_verify(struct node_fetch *f, int fd)
{
	f->verify.fd = fd;
	f->verify.sum = f->sum;
	pool_verify_start(f->n->store, &f->verify, on_lent_verified);
	node_fetch_to(f, FETCH_VERIFYING);
	f->working = true;
}

static void on_lent(struct pool_fetch *pf, int status)
{
	struct fetch_piece *p = pool_container_of(pf, struct fetch_piece, f);
	struct node_fetch *f = p->owner;

	p->busy = false;
	f->busy--;
	pf->length = 0;
	if (!status && pf->lent_fd >= 0 && !node_fetch_ended(f)) {
		lent_verify(f, pf->lent_fd);
		return;
	}
	if (!status && pf->lent_fd >= 0) {
		close(pf->lent_fd);
		pool_peers_return(f->n->peers, pf->from.id, f->path,
				  f->path_len, f->gen);
	}
	if (node_fetch_ended(f)) {
		node_fetch_end(f, f->status);
		return;
	}
	if (status == -ENOENT)
		f->bad[p->holder] = f->stale = true;
	f->first = (uint8_t)p->holder;
	node_fetch_bytes(f);
}

/* Each borrowed object needs a descriptor. Beyond the limit, objects are
 * copied.
 */
static uint64_t borrowed_max(const struct pool_node *n)
{
	unsigned int max = n->opts.fds_max;

	return max > 0 && max < POOL_LENT_MAX ? max : POOL_LENT_MAX;
}

bool node_fetch_try_borrow(struct node_fetch *f)
{
	struct fetch_piece *p = &f->pieces[0];

	if (!f->n->opts.fd_passing || f->kind == FETCH_REPLICA ||
	    f->size == 0 || f->n->borrowed >= borrowed_max(f->n) ||
	    !node_fetch_any_on_this_host(f))
		return false;
	f->file.fd = -1;
	return node_fetch_piece_start(f, p, 0, f->size, on_lent) == 0;
}

/*
 * Space is granted: makes the file. Its pages are allocated as bytes arrive, in
 * large folios (pool/lane/landing.c); reserving them would cost a round trip to
 * a worker. RDMA can only write within the file's size.
 */
static void fetch_claimed(struct node_fetch *f)
{
	int err = pool_store_take(f->n->store, 0, &f->file);

	if (!err && f->n->opts.verbs && f->size > POOL_INLINE_MAX &&
	    ftruncate(f->file.fd, (off_t)f->size) < 0) {
		err = -errno;
		node_fetch_discard_file(f);
	}
	if (err) {
		f->file.fd = -1;
		node_fetch_end(f, err);
	} else if (f->size == 0) {
		node_fetch_keep(f, -1, 0);
	} else {
		node_fetch_move(f);
	}
}

static void on_claim(struct node_claim *c, int status)
{
	struct node_fetch *f = pool_container_of(c, struct node_fetch, claim);

	if (status) {
		node_fetch_end(f, status);
		return;
	}
	node_fetch_to(f, FETCH_MOVING);
	f->claimed = true;
	fetch_claimed(f);
}

/* An object larger than the store: readers only see a miss, so log it, once a
 * minute. */
static void warn_too_large(const struct node_fetch *f)
{
	struct pool_node *n = f->n;
	uint64_t now = pool_now_ms(), most = pool_store_size(n->store);
	bool client = n->opts.store_size == 0;
	char size[32], room[32];

	if (f->size <= most || (n->too_large_ms &&
				now - n->too_large_ms < TOO_LARGE_LOG_MS))
		return;
	n->too_large_ms = now;
	pool_warn("%.*s has %s, more than this node's %s of %s: it cannot be "
		  "read here; use a larger --%s-size", (int)f->path_len,
		  f->path, pool_format_size(f->size, size, sizeof(size)),
		  client ? "buffer" : "store",
		  pool_format_size(most, room, sizeof(room)),
		  client ? "buffer" : "store");
}

void node_fetch_bytes(struct node_fetch *f)
{
	int rc;

	f->file.fd = -1;
	f->claim.cache_only = f->kind == FETCH_PREFETCH || f->extra;
	f->claim.transient = f->kind == FETCH_WANTED;
	node_fetch_to(f, FETCH_CLAIMING);
	rc = pool_node_claim_start(f->n, &f->claim, f->size,
				   node_fetch_remaining_ms(f, f->size),
				   on_claim);
	if (rc < 0) {
		warn_too_large(f);
		node_fetch_end(f, rc);
	} else if (rc > 0) {
		on_claim(&f->claim, 0);
	}
}
