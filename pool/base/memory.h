/*
 * The memory that this process may use: the machine's, or the limit of its
 * memory cgroup (v1 or v2, at any level), whichever is less.
 *
 * Thread: any, no state. Reads several files in /proc and /sys: call it at
 * start-up, not in an event loop.
 */
#ifndef POOL_BASE_MEMORY_H
#define POOL_BASE_MEMORY_H

#include <stdint.h>

/*
 * *ret_source: constant text, the origin of the limit ("the machine's memory",
 * "the memory cgroup (v2)", ...). Memory reserved for huge pages (hugetlb) is
 * not counted. 0, or -errno if /proc/meminfo cannot be read or parsed. A cgroup
 * that cannot be read is taken to have no limit.
 */
int pool_memory_limit(uint64_t *ret_bytes, const char **ret_source);

/* The same for tests, with root prepended to every path. */
int pool_memory_limit_in(const char *root, uint64_t *ret_bytes,
			 const char **ret_source);

#endif
