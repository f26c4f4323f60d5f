/*
 * Names and generations of the last NODE_EVICTED_MAX counted copies that were
 * evicted here, in a ring. They are numbered from 0 in each process, so that a
 * program that polls them can detect what it missed. The last NODE_EVICTED_SENT
 * evicted without a master are sent at each join (session.c).
 */
#include "pool/node/node_priv.h"

#include <stdlib.h>
#include <string.h>

#include "pool/model/pages.h"

struct evicted {
	char *path; /* NULL: no memory for it */
	uint64_t gen;
	uint32_t uid; /* of its owner */
	bool alone;
};

struct node_evicted {
	uint64_t next; /* number of the next entry */
	struct evicted ring[NODE_EVICTED_MAX];
};

void node_evicted_note(struct pool_node *n, const struct node_object *o,
		       bool alone)
{
	char path[POOL_PATH_MAX + 1];
	struct evicted *at;

	if (!n->evicted)
		n->evicted = calloc(1, sizeof(*n->evicted));
	if (!n->evicted)
		return;
	if (n->evicted->next >= NODE_EVICTED_MAX)
		pool_count(&n->c.evicted_forgotten);
	at = &n->evicted->ring[n->evicted->next++ % NODE_EVICTED_MAX];
	free(at->path);
	at->path = node_entry_path(&o->entry->e, path) < 0 ? NULL :
							     strdup(path);
	at->gen = o->gen;
	at->uid = o->entry->attr.uid;
	at->alone = alone;
}

/* The number of the oldest entry. */
static uint64_t first_of(uint64_t next)
{
	return next > NODE_EVICTED_MAX ? next - NODE_EVICTED_MAX : 0;
}

size_t node_evicted_alone(struct pool_node *n, Kvpool__Meta *list)
{
	uint64_t next = n->evicted ? n->evicted->next : 0;
	size_t count = 0;

	for (uint64_t i = next; i > first_of(next) &&
				count < NODE_EVICTED_SENT; i--) {
		const struct evicted *at =
			&n->evicted->ring[(i - 1) % NODE_EVICTED_MAX];

		if (!at->path || !at->alone)
			continue;
		kvpool__meta__init(&list[count]);
		list[count].path.data = (uint8_t *)at->path;
		list[count].path.len = strlen(at->path);
		list[count].uid = at->uid;
		list[count++].gen = at->gen;
	}
	return count;
}

void node_evicted_fini(struct pool_node *n)
{
	for (size_t i = 0; n->evicted && i < NODE_EVICTED_MAX; i++)
		free(n->evicted->ring[i].path);
	free(n->evicted);
	n->evicted = NULL;
}

static json_t *evicted_json(const struct evicted *at)
{
	return json_pack("{s:o, s:o, s:b}", "path",
			 at->path ? pool_pages_text(at->path,
						    strlen(at->path)) :
				    json_null(),
			 "generation", pool_pages_generation(at->gen), "alone",
			 at->alone);
}

/* The number of the oldest entry that an answer with all later ones has room
 * for. */
static uint64_t first_shown(const struct node_evicted *ev, uint64_t next)
{
	uint64_t first = next;
	size_t paths = 0;

	for (; first > first_of(next) && paths < POOL_PAGES_PATHS; first--)
		paths += pool_pages_printed(
			ev->ring[(first - 1) % NODE_EVICTED_MAX].path);
	return first;
}

json_t *pool_node_evicted_json(struct pool_node *n)
{
	uint64_t next = n->evicted ? n->evicted->next : 0;
	uint64_t first = first_shown(n->evicted, next);
	json_t *list = json_array();

	for (uint64_t i = first; i < next; i++) {
		const struct evicted *at =
			&n->evicted->ring[i % NODE_EVICTED_MAX];

		if (!at->path || pool_tls_id_reach(n->self, at->path,
						   strlen(at->path)) ==
					 POOL_INSIDE)
			json_array_append_new(list, evicted_json(at));
	}
	return json_pack("{s:I, s:o}", "forgotten", (json_int_t)first,
			 "evicted", list);
}
