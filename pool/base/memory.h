/*
 * How much memory this process may use at most: the machine's, or what its
 * memory cgroup (v1 or v2, any level of it) allows, whichever is less.
 *
 * Thread: any, no state. Reads a handful of files in /proc and /sys; for
 * start-up, not for a loop.
 */
#ifndef POOL_BASE_MEMORY_H
#define POOL_BASE_MEMORY_H

#include <stdint.h>

/*
 * *ret_source, constant text, says where the limit comes from ("the machine's
 * memory", "the memory cgroup (v2)", ...). Memory set aside for huge pages
 * (hugetlb) does not count as the machine's. 0, or -errno if /proc/meminfo
 * cannot be read or understood; what cannot be read of the cgroups limits
 * nothing.
 */
int pool_memory_limit(uint64_t *ret_bytes, const char **ret_source);

/* The same, with root in front of every path ("" for the real ones; tests). */
int pool_memory_limit_in(const char *root, uint64_t *ret_bytes,
			 const char **ret_source);

#endif
