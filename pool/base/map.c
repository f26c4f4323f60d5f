#include "pool/base/map.h"

#include <sys/mman.h>

void pool_map_hide(void *at, size_t len, bool hidden)
{
	(void)madvise(at, len, hidden ? MADV_DONTDUMP : MADV_DODUMP);
}

void *pool_map_object(size_t len, int prot, int flags, int fd, off_t at)
{
	void *map = mmap(NULL, len, prot, MAP_SHARED | flags, fd, at);

	if (map != MAP_FAILED)
		pool_map_hide(map, len, true);
	return map;
}
