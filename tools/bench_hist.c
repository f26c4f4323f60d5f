#include "tools/bench_hist.h"

static unsigned bucket_of(uint64_t ns)
{
	if (ns < BENCH_HIST_SUB)
		return (unsigned)ns;
	unsigned log = 63 - (unsigned)__builtin_clzll(ns);
	unsigned sub = (unsigned)(ns >> (log - 4)) & (BENCH_HIST_SUB - 1);

	return (log - 3) * BENCH_HIST_SUB + sub;
}

/* The middle of a bucket. */
static double bucket_ns(unsigned i)
{
	if (i < BENCH_HIST_SUB)
		return i;
	unsigned log = i / BENCH_HIST_SUB + 3, sub = i % BENCH_HIST_SUB;

	return (double)(1ull << log) * (1 + (sub + 0.5) / BENCH_HIST_SUB);
}

void bench_hist_add(struct bench_hist *h, uint64_t ns)
{
	h->bucket[bucket_of(ns)]++;
	h->count++;
	h->sum_ns += ns;
	if (ns > h->max_ns)
		h->max_ns = ns;
}

void bench_hist_merge(struct bench_hist *to, const struct bench_hist *from)
{
	for (unsigned i = 0; i < BENCH_HIST_BUCKETS; i++)
		to->bucket[i] += from->bucket[i];
	to->count += from->count;
	to->sum_ns += from->sum_ns;
	if (from->max_ns > to->max_ns)
		to->max_ns = from->max_ns;
}

double bench_hist_us(const struct bench_hist *h, double q)
{
	uint64_t rank = (uint64_t)(q * (double)h->count), seen = 0;

	for (unsigned i = 0; i < BENCH_HIST_BUCKETS; i++) {
		seen += h->bucket[i];
		if (seen > rank)
			return bucket_ns(i) / 1e3;
	}
	return bench_hist_max_us(h);
}

double bench_hist_max_us(const struct bench_hist *h)
{
	return (double)h->max_ns / 1e3;
}
