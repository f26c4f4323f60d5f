/* Finding the leader's address in etcd, for nodes. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "master/etcd.h"
#include "master/ha.h"
#include "master/leader.h"
#include "pool/base/log.h"

#define CALL_MS 1000

struct master_finder {
	struct master_finder_opts o;
	struct etcd *etcd; /* owns */
	struct etcd_req req;
	char prefix[128];
	uv_timer_t timer;
	bool asking, closing;
	void (*closed)(void *arg);
	void *closed_arg;
};

static void on_answer(struct etcd_req *r, int err, json_t *answer)
{
	struct master_finder *f = pool_container_of(r, struct master_finder,
						    req);
	char address[LEADER_ADDRESS_MAX];
	struct pool_hostport hp;

	f->asking = false;
	if (f->closing)
		return;
	if (err) {
		pool_warn_limited(
			"etcd: cannot look up the master's address: %s",
			etcd_error(f->etcd));
		return;
	}
	/* Without a leader there is no address. */
	if (!leader_answer(answer, address) &&
	    !pool_parse_hostport(address, 0, &hp) && hp.port)
		f->o.found(f->o.arg, &hp);
}

static void on_timer(uv_timer_t *t)
{
	struct master_finder *f = t->data;

	if (f->asking || !f->o.wanted(f->o.arg))
		return;
	f->req.cb = on_answer;
	f->asking = !etcd_start(f->etcd, &f->req, ETCD_TXN,
				leader_query(f->prefix), CALL_MS);
}

int master_finder_open(const struct master_finder_opts *opts,
		       struct master_finder **ret_finder)
{
	struct master_finder *f = calloc(1, sizeof(*f));
	int err;

	if (!f)
		return -ENOMEM;
	f->o = *opts;
	snprintf(f->prefix, sizeof(f->prefix), "/kvpool/%s/", opts->cluster);
	err = etcd_open(opts->loop, &opts->etcd, opts->metrics, &f->etcd);
	if (err) {
		free(f);
		return err;
	}
	uv_timer_init(opts->loop, &f->timer);
	f->timer.data = f;
	uv_timer_start(&f->timer, on_timer, 0, MASTER_FINDER_MS);
	*ret_finder = f;
	return 0;
}

static void on_etcd_closed(void *arg)
{
	struct master_finder *f = arg;
	void (*closed)(void *arg) = f->closed;
	void *closed_arg = f->closed_arg;

	free(f);
	if (closed)
		closed(closed_arg);
}

static void on_timer_closed(uv_handle_t *h)
{
	struct master_finder *f = h->data;

	etcd_close(f->etcd, on_etcd_closed, f);
}

void master_finder_close(struct master_finder *f, void (*closed)(void *arg),
			 void *arg)
{
	f->closing = true;
	f->closed = closed;
	f->closed_arg = arg;
	uv_close((uv_handle_t *)&f->timer, on_timer_closed);
}
