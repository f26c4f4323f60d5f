/* What a file on tmpfs uses: whole pages. Thread: any, no state. */
#ifndef POOL_BASE_PAGES_H
#define POOL_BASE_PAGES_H

#include <stdint.h>

#define POOL_PAGE 4096u

static inline uint64_t pool_whole_pages(uint64_t bytes)
{
	return (bytes + POOL_PAGE - 1) / POOL_PAGE * POOL_PAGE;
}

#endif
