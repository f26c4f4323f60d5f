/* The RDMA ports of a mover: which one the next link uses, and what all links
 * share (completion queues, timers). */
#include "pool/lane/link.h"

#include <errno.h>
#include <stdlib.h>

#include "pool/base/clock.h"
#include "pool/lane/link_priv.h"
#include "pool/lane/mover_priv.h"

/* Busy-polling: takes completions without waiting for a wake-up. */
static void poll_queues(void *arg)
{
	struct link_ports *ports = arg;

	for (unsigned int i = 0; i < VERBS_PORTS_MAX; i++)
		if (ports->cqs[i])
			verbs_cq_poll(ports->cqs[i]);
}

int link_ports_open(struct pool_mover *m, struct verbs *verbs,
		    struct verbs_cache *cache, struct link_ports **ret_ports)
{
	struct link_ports *ports = calloc(1, sizeof(*ports));

	if (!ports)
		return -ENOMEM;
	ports->mover = m;
	ports->verbs = verbs;
	ports->cache = cache;
	pool_list_init(&ports->ticked);
	uv_timer_init(&m->loop, &ports->tick);
	uv_unref((uv_handle_t *)&ports->tick);
	if (verbs_nports(verbs) > 0 && verbs_busy_us(verbs) > 0) {
		(void)pool_busy_open(&ports->busy, &m->loop,
				     verbs_busy_us(verbs), NULL);
		pool_busy_look_for(&m->loop, poll_queues, ports);
	}
	*ret_ports = ports;
	return 0;
}

static void closed(void *arg)
{
	(void)arg;
}

void link_ports_tidy(struct link_ports *ports)
{
	if (!ports->stopping || ports->nlinks > 0)
		return;
	for (unsigned int i = 0; i < VERBS_PORTS_MAX; i++) {
		if (ports->cqs[i])
			verbs_cq_close(ports->cqs[i], closed, NULL);
		ports->cqs[i] = NULL;
	}
	if (ports->cm)
		verbs_cm_close(ports->cm, closed, NULL);
	ports->cm = NULL;
	if (uv_is_closing((uv_handle_t *)&ports->tick))
		return;
	uv_close((uv_handle_t *)&ports->tick, NULL);
	if (ports->mover->loop.data)
		pool_busy_close(&ports->busy, NULL);
}

void link_ports_stop(struct link_ports *ports)
{
	ports->stopping = true;
	link_ports_tidy(ports);
}

bool link_ports_any(const struct link_ports *ports)
{
	return ports && verbs_nports(ports->verbs) > 0;
}

void link_ports_free(struct link_ports *ports)
{
	free(ports);
}

/* The first expired timer. Searches from the start each time, because a `due`
 * may arm and disarm others. */
static struct link_tick *tick_due(struct link_ports *ports)
{
	uint64_t now = uv_now(ports->tick.loop);
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &ports->ticked) {
		struct link_tick *k = pool_list_entry(it, struct link_tick,
						      link);

		if (k->due_ms <= now)
			return k;
	}
	return NULL;
}

static void on_tick(uv_timer_t *t)
{
	struct link_ports *ports =
		pool_container_of(t, struct link_ports, tick);
	struct link_tick *k;

	while ((k = tick_due(ports))) {
		pool_list_del(&k->link);
		k->due(k);
	}
	if (pool_list_empty(&ports->ticked))
		uv_timer_stop(t);
}

void link_tick_set(struct link_ports *ports, struct link_tick *k,
		   unsigned int ms)
{
	pool_list_del(&k->link);
	if (ports->stopping)
		return;
	k->due_ms = uv_now(ports->tick.loop) + ms;
	pool_list_add_tail(&ports->ticked, &k->link);
	if (!uv_is_active((uv_handle_t *)&ports->tick))
		uv_timer_start(&ports->tick, on_tick, LINK_TICK_MS,
			       LINK_TICK_MS);
}

/* Exponential backoff over the failures since the port last worked. */
static bool in_backoff(const struct verbs_port *port)
{
	unsigned int n = atomic_load(&port->failures);
	uint64_t ms = LINK_PORT_BACKOFF_MS << (n < 6 ? n : 6);

	return n > 0 && pool_now_ms() - atomic_load(&port->failed_ms) < ms;
}

static bool is_better(const struct verbs_port *a, const struct verbs_port *b)
{
	bool backoff = in_backoff(a);

	if (backoff != in_backoff(b))
		return !backoff;
	return backoff && atomic_load(&a->failures) < atomic_load(&b->failures);
}

static bool fits(const struct verbs_port *port, const enum verbs_link *like)
{
	return !like || port->link == *like;
}

struct verbs_port *link_port(struct link_ports *ports, unsigned int n,
			     const enum verbs_link *like)
{
	unsigned int i, count = verbs_nports(ports->verbs), fit = 0, k = 0;
	struct verbs_port *best = NULL, *all[VERBS_PORTS_MAX];

	for (i = 0; i < count; i++) {
		struct verbs_port *port = verbs_port_at(ports->verbs, i);

		if (fits(port, like))
			all[fit++] = port;
	}
	for (; k < fit; k++) {
		struct verbs_port *port = all[(n + k) % fit];

		if (atomic_load(&port->state) == VERBS_ACTIVE &&
		    (!best || is_better(port, best)))
			best = port;
	}
	return best;
}

int link_port_cq(struct link_ports *ports, struct verbs_port *port,
		 struct verbs_cq **ret_cq)
{
	unsigned int i = 0;
	int err = 0;

	while (verbs_port_at(ports->verbs, i) != port)
		i++;
	if (!ports->cqs[i])
		err = verbs_cq_open(port, &ports->mover->loop, LINK_CQ_PAIRS,
				    &ports->cqs[i]);
	*ret_cq = ports->cqs[i];
	return err;
}
