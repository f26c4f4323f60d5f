/* LRU and FIFO differ in one line: whether a hit moves to the front. */
#include <errno.h>
#include <stdlib.h>

#include "pool/base/hash.h"
#include "pool/base/list.h"
#include "tools/replay.h"

struct sim_block {
	struct pool_hash_node node;
	struct pool_list order;
	uint64_t id;
};

struct replay_sim {
	struct pool_hash blocks;
	struct pool_list order; /* newest first */
	uint64_t capacity;
	bool lru;
};

static uint32_t hash_id(uint64_t id)
{
	return (uint32_t)(id * 0x9e3779b97f4a7c15ull >> 32);
}

struct replay_sim *replay_sim_open(bool lru, uint64_t capacity)
{
	struct replay_sim *s = calloc(1, sizeof(*s));

	if (!s)
		return NULL;
	s->lru = lru;
	s->capacity = capacity;
	pool_hash_init(&s->blocks);
	pool_list_init(&s->order);
	return s;
}

void replay_sim_close(struct replay_sim *s)
{
	struct pool_list *it, *tmp;

	if (!s)
		return;
	pool_list_each(it, tmp, &s->order)
		free(pool_list_entry(it, struct sim_block, order));
	pool_hash_fini(&s->blocks);
	free(s);
}

static struct sim_block *find(struct replay_sim *s, uint64_t id)
{
	struct pool_hash_node *n = pool_hash_first(&s->blocks, hash_id(id));

	for (; n; n = pool_hash_next(n)) {
		struct sim_block *b =
			pool_container_of(n, struct sim_block, node);
		if (b->id == id)
			return b;
	}
	return NULL;
}

/* Evicts the oldest block; its memory is reused for the new one. */
static struct sim_block *take_oldest(struct replay_sim *s)
{
	struct sim_block *b =
		pool_list_entry(s->order.prev, struct sim_block, order);

	pool_hash_remove(&s->blocks, &b->node);
	pool_list_del(&b->order);
	return b;
}

int replay_sim_access(struct replay_sim *s, uint64_t id)
{
	struct sim_block *b = find(s, id);

	if (b) {
		if (s->lru) {
			pool_list_del(&b->order);
			pool_list_add(&s->order, &b->order);
		}
		return 1;
	}
	if (s->capacity == 0)
		return 0;
	b = s->blocks.count < s->capacity ? malloc(sizeof(*b)) :
					    take_oldest(s);
	if (!b)
		return -ENOMEM;
	b->id = id;
	if (pool_hash_insert(&s->blocks, &b->node, hash_id(id)) < 0) {
		free(b);
		return -ENOMEM;
	}
	pool_list_add(&s->order, &b->order);
	return 0;
}
