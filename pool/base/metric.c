#include "pool/base/metric.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind { COUNTER, GAUGE, GAUGE_NS, HISTOGRAM };

static const char *const kind_names[] = {
	[COUNTER] = "counter",
	[GAUGE] = "gauge",
	[GAUGE_NS] = "gauge",
	[HISTOGRAM] = "histogram",
};

struct metric {
	enum kind kind;
	const void *value; /* borrows until removed */
	const char *name, *labels, *help; /* borrow, constant text */
};

struct hook {
	void (*fn)(void *arg);
	void *arg;
};

/* Thread: loop. The program has a fixed number of metrics: no bound needed. */
struct pool_metrics {
	struct metric *all; /* owns; in order of registration */
	size_t n, cap;
	struct hook *hooks; /* owns */
	size_t nhooks;
};

/* ---- histograms ---- */

static unsigned int bucket_of(uint64_t ns)
{
	uint64_t us = ns / 1000 + (ns % 1000 != 0);
	unsigned int i;

	if (us <= 1)
		return 0;
	i = 64 - (unsigned int)__builtin_clzll(us - 1);
	return i < POOL_HIST_BUCKETS ? i : POOL_HIST_BUCKETS;
}

void pool_hist_add(struct pool_hist *h, uint64_t ns)
{
	atomic_fetch_add_explicit(&h->bucket[bucket_of(ns)], 1,
				  memory_order_relaxed);
	atomic_fetch_add_explicit(&h->sum_ns, ns, memory_order_relaxed);
}

static uint64_t bucket_value(const struct pool_hist *h, unsigned int i)
{
	return atomic_load_explicit(&h->bucket[i], memory_order_relaxed);
}

uint64_t pool_hist_count(const struct pool_hist *h)
{
	uint64_t n = 0;

	for (unsigned int i = 0; i <= POOL_HIST_BUCKETS; i++)
		n += bucket_value(h, i);
	return n;
}

uint64_t pool_hist_quantile(const struct pool_hist *h, double q)
{
	uint64_t count[POOL_HIST_BUCKETS + 1], total = 0, seen = 0;
	double rank;

	for (unsigned int i = 0; i <= POOL_HIST_BUCKETS; i++) {
		count[i] = bucket_value(h, i);
		total += count[i];
	}
	if (total == 0)
		return 0;
	rank = q * (double)total;
	for (unsigned int i = 0; i < POOL_HIST_BUCKETS; i++) {
		seen += count[i];
		if (seen > 0 && (double)seen >= rank)
			return (uint64_t)1000 << i;
	}
	/* Not found below +Inf: it is there, or rank was rounded up. */
	if (count[POOL_HIST_BUCKETS] == 0)
		return (uint64_t)1000 << (POOL_HIST_BUCKETS - 1);
	return UINT64_MAX;
}

/* ---- registry ---- */

struct pool_metrics *pool_metrics_open(void)
{
	return calloc(1, sizeof(struct pool_metrics));
}

void pool_metrics_close(struct pool_metrics *m)
{
	if (!m)
		return;
	free(m->all);
	free(m->hooks);
	free(m);
}

static int add(struct pool_metrics *m, struct metric add)
{
	/* Prometheus has one TYPE per name. */
	for (size_t i = 0; i < m->n; i++)
		assert(m->all[i].kind == add.kind ||
		       strcmp(m->all[i].name, add.name) != 0);
	if (m->n == m->cap) {
		size_t cap = m->cap ? 2 * m->cap : 32;
		struct metric *p = realloc(m->all, cap * sizeof(*p));

		if (!p)
			return -ENOMEM;
		m->all = p;
		m->cap = cap;
	}
	m->all[m->n++] = add;
	return 0;
}

int pool_metrics_counter(struct pool_metrics *m, struct pool_counter *c,
			 const char *name, const char *labels,
			 const char *help)
{
	return add(m, (struct metric){ COUNTER, c, name, labels, help });
}

int pool_metrics_gauge(struct pool_metrics *m, struct pool_gauge *g,
		       const char *name, const char *labels, const char *help)
{
	return add(m, (struct metric){ GAUGE, g, name, labels, help });
}

int pool_metrics_gauge_ns(struct pool_metrics *m, struct pool_gauge *g,
			  const char *name, const char *labels,
			  const char *help)
{
	return add(m, (struct metric){ GAUGE_NS, g, name, labels, help });
}

int pool_metrics_hist(struct pool_metrics *m, struct pool_hist *h,
		      const char *name, const char *labels, const char *help)
{
	return add(m, (struct metric){ HISTOGRAM, h, name, labels, help });
}

int pool_metrics_on_print(struct pool_metrics *m, void (*fn)(void *arg),
			  void *arg)
{
	struct hook *p = realloc(m->hooks, (m->nhooks + 1) * sizeof(*p));

	if (!p)
		return -ENOMEM;
	m->hooks = p;
	m->hooks[m->nhooks++] = (struct hook){ fn, arg };
	return 0;
}

void pool_metrics_remove(struct pool_metrics *m, const void *owner, size_t size)
{
	uintptr_t from = (uintptr_t)owner;
	size_t i, n = 0;

	for (i = 0; i < m->n; i++)
		if ((uintptr_t)m->all[i].value - from >= size)
			m->all[n++] = m->all[i];
	m->n = n;
	for (i = n = 0; i < m->nhooks; i++)
		if (m->hooks[i].arg != owner)
			m->hooks[n++] = m->hooks[i];
	m->nhooks = n;
}

int pool_metrics_label(char *buf, size_t cap, const char *name,
		       const char *value)
{
	size_t n = (size_t)snprintf(buf, cap, "%s=\"", name);

	assert(n + 2 <= cap);
	/* Room for an escaped byte, the quote and the NUL. */
	for (; *value && n + 4 <= cap; value++) {
		if (*value == '"' || *value == '\\')
			buf[n++] = '\\';
		buf[n++] = *value < ' ' || *value > '~' ? '?' : *value;
	}
	buf[n++] = '"';
	buf[n] = '\0';
	return (int)n;
}

/* ---- the page ---- */

static bool same_name(const struct metric *a, const struct metric *b)
{
	return strcmp(a->name, b->name) == 0;
}

static bool has_labels(const struct metric *m)
{
	return m->labels && *m->labels;
}

static void print_head(FILE *f, const struct metric *m)
{
	fprintf(f, "# HELP %s ", m->name);
	for (const char *p = m->help; *p; p++) {
		if (*p == '\\')
			fputs("\\\\", f);
		else if (*p == '\n')
			fputs("\\n", f);
		else
			putc(*p, f);
	}
	fprintf(f, "\n# TYPE %s %s\n", m->name, kind_names[m->kind]);
}

/* name{labels}, up to and including the blank before the value. */
static void print_name(FILE *f, const struct metric *m, const char *suffix)
{
	fprintf(f, "%s%s", m->name, suffix);
	if (has_labels(m))
		fprintf(f, "{%s}", m->labels);
	putc(' ', f);
}

static void print_bucket(FILE *f, const struct metric *m, const char *le,
			 uint64_t count)
{
	fprintf(f, "%s_bucket{%s%sle=\"%s\"} %" PRIu64 "\n", m->name,
		has_labels(m) ? m->labels : "", has_labels(m) ? "," : "", le,
		count);
}

static void print_seconds(FILE *f, uint64_t ns)
{
	fprintf(f, "%" PRIu64 ".%09" PRIu64 "\n", ns / 1000000000,
		ns % 1000000000);
}

static void print_signed_seconds(FILE *f, int64_t ns)
{
	if (ns < 0)
		putc('-', f);
	print_seconds(f, ns < 0 ? -(uint64_t)ns : (uint64_t)ns);
}

static void print_hist(FILE *f, const struct metric *m)
{
	const struct pool_hist *h = m->value;
	uint64_t sum = atomic_load_explicit(&h->sum_ns, memory_order_relaxed);
	uint64_t count = 0;
	char le[32];

	for (unsigned int i = 0; i < POOL_HIST_BUCKETS; i++) {
		uint64_t us = (uint64_t)1 << i;

		count += bucket_value(h, i);
		snprintf(le, sizeof(le), "%" PRIu64 ".%06" PRIu64,
			 us / 1000000, us % 1000000);
		print_bucket(f, m, le, count);
	}
	count += bucket_value(h, POOL_HIST_BUCKETS);
	print_bucket(f, m, "+Inf", count);
	print_name(f, m, "_sum");
	print_seconds(f, sum);
	print_name(f, m, "_count");
	/* Must equal the +Inf bucket even if other threads are adding. */
	fprintf(f, "%" PRIu64 "\n", count);
}

static void print_metric(FILE *f, const struct metric *m)
{
	switch (m->kind) {
	case COUNTER:
		print_name(f, m, "");
		fprintf(f, "%" PRIu64 "\n", pool_counter_value(m->value));
		break;
	case GAUGE:
		print_name(f, m, "");
		fprintf(f, "%" PRId64 "\n", pool_gauge_value(m->value));
		break;
	case GAUGE_NS:
		print_name(f, m, "");
		print_signed_seconds(f, pool_gauge_value(m->value));
		break;
	case HISTOGRAM:
		print_hist(f, m);
		break;
	}
}

static bool first_of_name(const struct pool_metrics *m, size_t i)
{
	for (size_t j = 0; j < i; j++)
		if (same_name(&m->all[j], &m->all[i]))
			return false;
	return true;
}

static void print_all(FILE *f, const struct pool_metrics *m)
{
	for (size_t i = 0; i < m->n; i++) {
		if (!first_of_name(m, i))
			continue;
		print_head(f, &m->all[i]);
		for (size_t j = i; j < m->n; j++)
			if (same_name(&m->all[j], &m->all[i]))
				print_metric(f, &m->all[j]);
	}
}

int pool_metrics_print(struct pool_metrics *m, char **ret_text,
		       size_t *ret_len)
{
	char *text = NULL;
	size_t len = 0;
	bool failed;
	FILE *f = open_memstream(&text, &len);

	if (!f)
		return -ENOMEM;
	for (size_t i = 0; i < m->nhooks; i++)
		m->hooks[i].fn(m->hooks[i].arg);
	print_all(f, m);
	failed = ferror(f);
	failed |= fclose(f) != 0;
	if (failed) {
		free(text);
		return -ENOMEM;
	}
	*ret_text = text;
	*ret_len = len;
	return 0;
}
