/*
 * Memory with bytes of objects, which is left out of core dumps. Otherwise a
 * dump would be as large as the store, and would contain the users' data.
 *
 * Thread: any, no state.
 */
#ifndef POOL_BASE_MAP_H
#define POOL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* mmap(2) of an object's file, with MAP_SHARED | flags. MAP_FAILED on error,
 * with errno set. The caller unmaps it. */
void *pool_map_object(size_t len, int prot, int flags, int fd, off_t at);

/* Leaves whole pages of other memory out of core dumps (hidden), or includes
 * them again, as the caller must before it frees them. Best effort. */
void pool_map_hide(void *at, size_t len, bool hidden);

/* Faults in all pages that the range touches, to be read or (writable) to be
 * written. 0 or -errno of madvise(2); -EINVAL also from Linux before 5.14. */
int pool_map_populate(const void *at, size_t len, bool writable);

#endif
