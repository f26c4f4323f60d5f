#include "pool/base/map.h"

#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

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

int pool_map_populate(const void *at, size_t len, bool writable)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t begin = (uintptr_t)at & ~(page - 1);
	uintptr_t end = ((uintptr_t)at + len + page - 1) & ~(page - 1);

	return madvise((void *)begin, end - begin,
		       writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ) ?
		       -errno : 0;
}
