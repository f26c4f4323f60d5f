/*
 * How often peers request objects that this node holds.
 *
 * Each object that peers request has a record of recent GETs. Each time they
 * have requested opts.hot_gets times its size within HEAT_WINDOW_MS, the object
 * is reported to the master as hot. The master orders an extra copy from
 * another store: the feed names it to readers, but it does not count as a
 * replica. The node with the extra copy reports it as cold when no peer has
 * requested it for opts.cold_ms, or when it is dropped; then it is an ordinary
 * cached copy.
 *
 * When the session ends, extra copies become cached copies at once: at the next
 * join, the master no longer knows them.
 */
#include "pool/node/node_priv.h"

#include <errno.h>
#include <stdlib.h>

#define HEAT_WINDOW_MS 10000

struct node_heat {
	/* node->heats, most recently requested last */
	struct pool_list link;
	struct node_object *o; /* o->heat == this */
	uint64_t since_ms, last_ms;
	uint64_t bytes; /* requested since since_ms, or since the last report */
	bool extra;
};

static void heat_free(struct pool_node *n, struct node_heat *h)
{
	h->o->heat = NULL;
	pool_list_del(&h->link);
	n->nheats--;
	if (h->extra)
		n->nextras--;
	free(h);
}

static void report_heat(struct pool_node *n, const struct node_object *o,
			bool cold)
{
	Kvpool__Heartbeat msg = KVPOOL__HEARTBEAT__INIT;
	Kvpool__Heat item = KVPOOL__HEAT__INIT, *list = &item;
	char path[POOL_PATH_MAX + 1];
	int len = node_entry_path(&o->entry->e, path);

	if (len < 0)
		return;
	item.path.data = (uint8_t *)path;
	item.path.len = (size_t)len;
	item.gen = o->gen;
	item.cold = cold;
	msg.epoch = n->epoch;
	msg.heat = &list;
	msg.n_heat = 1;
	(void)node_session_send(n, POOL_MSG_HEARTBEAT, 0, &msg.base);
}

/* Frees the least recently used record if there are too many. False: it is that
 * of an extra copy, which must be reported as cold first. */
static bool make_room(struct pool_node *n)
{
	struct node_heat *h;

	if (n->nheats < NODE_HEATS_MAX)
		return true;
	h = pool_list_first(&n->heats, struct node_heat, link);
	if (h->extra)
		return false;
	heat_free(n, h);
	return true;
}

/* o's record, allocated if there is none; or NULL. */
static struct node_heat *heat_of(struct pool_node *n, struct node_object *o)
{
	struct node_heat *h = o->heat;

	if (h || !make_room(n))
		return h;
	h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->o = o;
	h->since_ms = h->last_ms = pool_now_ms();
	o->heat = h;
	pool_list_add_tail(&n->heats, &h->link);
	n->nheats++;
	return h;
}

void node_heat_asked(struct pool_node *n, struct node_object *o,
		     uint64_t length)
{
	uint64_t now = pool_now_ms();
	uint64_t hot = n->opts.hot_gets * o->size;
	/* A range beyond the end will be refused. */
	struct node_heat *h = hot && length <= o->size ? heat_of(n, o) : NULL;

	if (!h)
		return;
	pool_list_del(&h->link);
	pool_list_add_tail(&n->heats, &h->link);
	h->last_ms = now;
	if (now - h->since_ms > HEAT_WINDOW_MS) {
		h->since_ms = now;
		h->bytes = 0;
	}
	h->bytes += length;
	if (h->bytes < hot)
		return;
	h->bytes -= hot;
	if (o->counted || h->extra) {
		pool_count(&n->c.hot);
		report_heat(n, o, false);
	}
}

int node_heat_extra(struct pool_node *n, struct node_object *o)
{
	struct node_heat *h = heat_of(n, o);

	if (!h)
		return -ENOBUFS;
	if (!h->extra) {
		h->extra = true;
		h->last_ms = pool_now_ms();
		n->nextras++;
		pool_list_del(&h->link);
		pool_list_add_tail(&n->heats, &h->link);
	}
	return 0;
}

void node_heat_forget(struct pool_node *n, struct node_object *o)
{
	if (!o->heat)
		return;
	if (o->heat->extra && !o->counted)
		report_heat(n, o, true);
	heat_free(n, o->heat);
}

void node_heat_tick(struct pool_node *n, uint64_t now)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->heats) {
		struct node_heat *h =
			pool_list_entry(it, struct node_heat, link);
		uint64_t idle = now - h->last_ms;

		if (idle <= (h->extra ? n->opts.cold_ms : HEAT_WINDOW_MS)) {
			if (idle <= n->opts.cold_ms && idle <= HEAT_WINDOW_MS)
				break; /* the list is in order of use */
			continue;
		}
		node_heat_forget(n, h->o);
	}
}

void node_heat_cut_off(struct pool_node *n)
{
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &n->heats)
		heat_free(n, pool_list_entry(it, struct node_heat, link));
}
