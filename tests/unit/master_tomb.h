/* Generation of a name's tombstone; 0: it has none. */
#ifndef TESTS_UNIT_MASTER_TOMB_H
#define TESTS_UNIT_MASTER_TOMB_H

#include "master/map.h"

static inline uint64_t tomb_gen(struct master_map *m, const char *path,
				size_t len)
{
	const struct master_grave *g = master_map_grave(m, path, len);

	return g && g->tomb ? g->gen : 0;
}

#endif
