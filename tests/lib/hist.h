/* How many values a histogram has. Thread: any. */
#ifndef TESTS_LIB_HIST_H
#define TESTS_LIB_HIST_H

#include "pool/base/metric.h"

static inline uint64_t hist_count(const struct pool_hist *h)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i <= POOL_HIST_BUCKETS; i++)
		n += h->bucket[i];
	return n;
}

#endif
