/*
 * Metrics: counters, gauges and latency histograms. They are fields of the
 * module that owns them, which registers them with name and help. The /metrics
 * page is printed from the registry, so that it cannot drift from the code.
 *
 * Thread: updates from any thread (relaxed atomics); registration and printing
 * on the loop thread. Registered metrics must outlive the registry or be
 * removed.
 */
#ifndef POOL_BASE_METRIC_H
#define POOL_BASE_METRIC_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct pool_counter {
	_Atomic uint64_t v;
};
struct pool_gauge {
	_Atomic int64_t v;
};

/* Upper bounds of the buckets: 1 us * 2^i, i = 0..POOL_HIST_BUCKETS-1; +Inf. */
#define POOL_HIST_BUCKETS 26
struct pool_hist {
	_Atomic uint64_t bucket[POOL_HIST_BUCKETS + 1];
	_Atomic uint64_t sum_ns;
};

static inline void pool_count_add(struct pool_counter *c, uint64_t n)
{
	atomic_fetch_add_explicit(&c->v, n, memory_order_relaxed);
}
static inline void pool_count(struct pool_counter *c)
{
	pool_count_add(c, 1);
}
static inline uint64_t pool_counter_value(const struct pool_counter *c)
{
	return atomic_load_explicit(&c->v, memory_order_relaxed);
}
static inline void pool_gauge_set(struct pool_gauge *g, int64_t v)
{
	atomic_store_explicit(&g->v, v, memory_order_relaxed);
}
static inline void pool_gauge_add(struct pool_gauge *g, int64_t n)
{
	atomic_fetch_add_explicit(&g->v, n, memory_order_relaxed);
}
static inline int64_t pool_gauge_value(const struct pool_gauge *g)
{
	return atomic_load_explicit(&g->v, memory_order_relaxed);
}
/* Record one operation that took ns nanoseconds. */
void pool_hist_add(struct pool_hist *h, uint64_t ns);
uint64_t pool_hist_count(const struct pool_hist *h);
/* Upper bound, in ns, of the bucket that holds quantile q (0..1); 0 if empty,
 * UINT64_MAX if it lies in the +Inf bucket. */
uint64_t pool_hist_quantile(const struct pool_hist *h, double q);

struct pool_metrics; /* the registry */

/* Returns NULL on ENOMEM. */
struct pool_metrics *pool_metrics_open(void);
void pool_metrics_close(struct pool_metrics *m);

/*
 * Register a metric under a Prometheus name (promtool-clean: counters end in
 * _total, units are seconds and bytes) with one line of help. labels: NULL, or
 * text such as "class=\"shared\"". name, labels and help must be constant: they
 * are not copied. Several metrics may share a name with different labels; the
 * first one's help is printed. 0 or -ENOMEM.
 */
int pool_metrics_counter(struct pool_metrics *m, struct pool_counter *c,
			 const char *name, const char *labels,
			 const char *help);
int pool_metrics_gauge(struct pool_metrics *m, struct pool_gauge *g,
		       const char *name, const char *labels, const char *help);
/* A gauge in nanoseconds, printed in seconds: name ends in _seconds. */
int pool_metrics_gauge_ns(struct pool_metrics *m, struct pool_gauge *g,
			  const char *name, const char *labels,
			  const char *help);
/* name ends in _seconds. */
int pool_metrics_hist(struct pool_metrics *m, struct pool_hist *h,
		      const char *name, const char *labels, const char *help);
/* Writes name="value" for labels. In the value, each byte that is not printable
 * ASCII becomes '?'. What does not fit in cap is cut off, between characters.
 * Returns the length of the text. */
int pool_metrics_label(char *buf, size_t cap, const char *name,
		       const char *value);
/* fn is called on the loop thread before each printing, to set gauges. */
int pool_metrics_on_print(struct pool_metrics *m, void (*fn)(void *arg),
			  void *arg);

/* Remove the metrics in the memory [owner, owner + size), and the print hooks
 * whose arg is owner. Call it before that memory is freed. */
void pool_metrics_remove(struct pool_metrics *m, const void *owner,
			 size_t size);

/*
 * The whole page in Prometheus text format 0.0.4, grouped by name and
 * NUL-terminated. The caller frees *ret_text with free(). 0 or -ENOMEM.
 */
int pool_metrics_print(struct pool_metrics *m, char **ret_text,
		       size_t *ret_len);

#endif
