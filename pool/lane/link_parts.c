/* Ranges registered part by part: this side's memory (link_map), and the peer's
 * (link_remote). */
#include <assert.h>
#include <errno.h>

#include "pool/lane/link_priv.h"

uint64_t link_part(const struct link *l, uint64_t at, uint64_t length)
{
	uint64_t part = at ? at : LINK_PART_FIRST, left = length - at;
	uint64_t most = length / 8;

	if (most < LINK_PART_MOST)
		most = LINK_PART_MOST;
	if (l->kind == LINK_PUSH && part > most)
		part = most;
	return l->parts && part < left ? part : left;
}

static int part_open(const struct link_map *map, const struct link_range *r,
		     uint64_t part, int access, struct verbs_region *ret)
{
	struct link *l = map->l;

	if (map->nparts == 0 && r->fd >= 0)
		return verbs_region_open_first(l->port, l->pd, r->fd, r->offset,
					       r->length, part, access, ret);
	return verbs_region_open_memory(l->port, l->pd,
					map->nparts == 0 ?
						r->mem :
						link_map_base(map) + map->upto,
					part, access, ret);
}

int link_map_add(struct link_map *map, const struct link_range *r,
		 uint64_t part, int access)
{
	int err;

	assert(part <= r->length - map->upto);
	if (map->nparts == LINK_PARTS_MAX)
		return -E2BIG;
	err = part_open(map, r, part, access, &map->parts[map->nparts]);
	if (err)
		return err;
	map->nparts++;
	map->upto += part;
	return 0;
}

uint8_t *link_map_base(const struct link_map *map)
{
	return map->parts[0].addr;
}

static const struct verbs_region *region_at(const struct link_map *map,
					    uint64_t at, uint64_t *ret_upto)
{
	const struct verbs_region *r = map->parts;
	uint64_t upto = r->length;

	assert(at < map->upto);
	while (at >= upto)
		upto += (++r)->length;
	*ret_upto = upto;
	return r;
}

uint32_t link_map_at(const struct link_map *map, uint64_t at,
		     uint64_t *ret_upto)
{
	return region_at(map, at, ret_upto)->mr->lkey;
}

struct link_buffer link_map_buffer(const struct link_map *map, uint64_t at,
				   uint64_t req)
{
	uint64_t upto;
	const struct verbs_region *r = region_at(map, at, &upto);

	return (struct link_buffer){ .req = req,
				     .at = at,
				     .addr = (uint64_t)(uintptr_t)r->addr,
				     .length = r->length,
				     .rkey = r->mr->rkey };
}

uint64_t link_map_deregister(struct link_map *map, uint64_t at)
{
	assert(at <= map->upto);
	while (map->nderegistered < map->nparts &&
	       map->parts[map->nderegistered].length <=
		       at - map->deregistered_upto) {
		struct verbs_region *r = &map->parts[map->nderegistered++];

		map->deregistered_upto += r->length;
		verbs_region_deregister(r);
	}
	return map->deregistered_upto;
}

/* In reverse order: the first part owns the mapping that contains them all. */
void link_map_end(struct link_map *map)
{
	pool_list_del(&map->link);
	while (map->nparts > 0)
		verbs_region_close(&map->parts[--map->nparts]);
	map->nderegistered = 0;
	map->upto = map->deregistered_upto = 0;
	map->ended(map);
}

/* ---- the peer's memory ---- */

bool link_remote_add(struct link_remote *r, const struct link_buffer *b,
		     uint64_t length)
{
	if (b->at != r->upto || b->length == 0 ||
	    b->length > length - r->upto || r->nparts == LINK_PARTS_MAX)
		return false;
	r->upto += b->length;
	r->parts[r->nparts].addr = b->addr;
	r->parts[r->nparts].rkey = b->rkey;
	r->parts[r->nparts].upto = r->upto;
	r->nparts++;
	return true;
}

uint64_t link_remote_at(const struct link_remote *r, uint64_t at,
			uint32_t *ret_rkey, uint64_t *ret_upto)
{
	uint64_t begin = 0;
	unsigned int i = 0;

	assert(at < r->upto);
	for (; at >= r->parts[i].upto; i++)
		begin = r->parts[i].upto;
	*ret_rkey = r->parts[i].rkey;
	*ret_upto = r->parts[i].upto;
	return r->parts[i].addr + (at - begin);
}
