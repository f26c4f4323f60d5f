/*
 * Latency samples in log-linear buckets: 16 to each power of two, so that a
 * quantile is within 6 % of the truth, at a fixed size whatever the count.
 *
 * Thread: any; the caller serialises access to one histogram (programs keep
 * one per thread and merge them at the end).
 */
#ifndef TOOLS_BENCH_HIST_H
#define TOOLS_BENCH_HIST_H

#include <stdint.h>

#define BENCH_HIST_SUB 16
#define BENCH_HIST_BUCKETS (64 * BENCH_HIST_SUB)

struct bench_hist {
	uint64_t bucket[BENCH_HIST_BUCKETS];
	uint64_t count, max_ns, sum_ns;
};

void bench_hist_add(struct bench_hist *h, uint64_t ns);
void bench_hist_merge(struct bench_hist *to, const struct bench_hist *from);
/* Microseconds below which a share q (0..1) of the samples lies; 0 if none. */
double bench_hist_us(const struct bench_hist *h, double q);
double bench_hist_max_us(const struct bench_hist *h);

#endif
