/*
 * Memory with bytes of objects, which core dumps leave out: a dump would be as
 * large as the store, and have what users keep in it.
 *
 * Thread: any, no state.
 */
#ifndef POOL_BASE_MAP_H
#define POOL_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* As mmap(2) of an object's file: MAP_SHARED | flags. MAP_FAILED and errno. The
 * caller unmaps it. */
void *pool_map_object(size_t len, int prot, int flags, int fd, off_t at);

/* The same for whole pages of other memory, which the caller shows again before
 * it frees them. Best effort. */
void pool_map_hide(void *at, size_t len, bool hidden);

#endif
