/*
 * Replicas of objects in the buffer of a client on this host, which is in this
 * store's filesystem (POOL_STORE_CLIENTS): the file is linked, no byte is
 * copied.
 *
 * Happy path: the holder lends a descriptor -> the file gets a second name, in
 * the store -> the descriptor is returned -> a worker verifies the file -> HELD
 * (replicate.c seals it). The client unlinks its own name when the feed reports
 * a store as a holder. Failure modes (not lent, another filesystem, possibly
 * still writable, wrong checksum): fetched like any other object.
 */
#include "pool/node/fetch.h"

#include <errno.h>
#include <unistd.h>

static void on_link_verified(struct pool_verify *v, int status)
{
	struct node_fetch *f = pool_container_of(v, struct node_fetch, verify);

	f->working = false;
	if (node_fetch_ended(f)) {
		node_fetch_end(f, f->status);
	} else if (status) {
		node_fetch_discard_file(f);
		node_fetch_bytes(f);
	} else {
		pool_count(&f->n->c.linked);
		f->linked = true;
		node_fetch_keep(f, -1, 0);
	}
}

static void link_lent(struct node_fetch *f, struct pool_fetch *pf)
{
	int err = node_fetch_ended(f) ? -ECANCELED :
		  pool_store_link(f->n->store, pf->lent_fd, f->size, &f->file);

	close(pf->lent_fd);
	pool_peers_return(f->n->peers, pf->from.id, f->path, f->path_len,
			  f->gen);
	pf->length = 0;
	if (node_fetch_ended(f)) {
		node_fetch_end(f, f->status);
		return;
	}
	if (err) {
		node_fetch_discard_file(f);
		node_fetch_bytes(f);
		return;
	}
	f->verify.fd = 0;
	f->verify.id = f->file.id;
	f->verify.sum = f->sum;
	pool_verify_start(f->n->store, &f->verify, on_link_verified);
	node_fetch_to(f, FETCH_VERIFYING);
	f->working = true;
}

/* status 0: the holder has lent a descriptor. */
static void on_shown(struct pool_fetch *pf, int status)
{
	struct fetch_piece *p = pool_container_of(pf, struct fetch_piece, f);
	struct node_fetch *f = p->owner;

	p->busy = false;
	f->busy--;
	if (!status && pf->lent_fd >= 0) {
		link_lent(f, pf);
		return;
	}
	pf->length = 0;
	if (node_fetch_ended(f))
		node_fetch_end(f, f->status);
	else
		node_fetch_bytes(f);
}

bool node_fetch_try_link(struct node_fetch *f)
{
	if (!f->n->opts.fd_passing || f->size < NODE_LINK_MIN ||
	    !pool_store_has_clients(f->n->store) ||
	    !node_fetch_any_on_this_host(f))
		return false;
	f->file.fd = -1;
	return node_fetch_piece_start(f, &f->pieces[0], 0, f->size,
				      on_shown) == 0;
}
