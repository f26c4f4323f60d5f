/* A connection's accounting: names of the counters, and kvpool_stats. */
#include "pool/client/client_priv.h"

#include <errno.h>
#include <string.h>

#include "pool/base/clock.h"

#define LOOKUPS "kvpool_client_lookup_results_total"
#define GETS "kvpool_client_get_results_total"
#define GOT "kvpool_client_got_bytes_total"
#define PUTS "kvpool_client_put_results_total"

/* In the order of enum client_count. */
static const struct figure {
	size_t shown; /* offset in struct kvpool_stats */
	const char *name, *labels, *help;
} figures[CLIENT_COUNTS] = {
#define FIGURE(count, member, ...) \
	[count] = { offsetof(struct kvpool_stats, member), __VA_ARGS__ }
	FIGURE(COUNT_HITS_HERE, hits_here, LOOKUPS, "result=\"here\"",
	       "Keys looked up, by result."),
	FIGURE(COUNT_HITS_PEER, hits_peer, LOOKUPS, "result=\"peer\"", ""),
	FIGURE(COUNT_MISSES, misses, LOOKUPS, "result=\"missed\"", ""),
	FIGURE(COUNT_LOOKUPS_SKIPPED, lookups_skipped, LOOKUPS,
	       "result=\"skipped\"", ""),
	FIGURE(COUNT_LOOKUPS_INVALID, lookups_invalid, LOOKUPS,
	       "result=\"invalid\"", ""),
	FIGURE(COUNT_LOOKUPS_AWAY, lookups_away,
	       "kvpool_client_lookups_away_total", NULL,
	       "Keys looked up while no master was connected."),
	FIGURE(COUNT_LOOKUPS, lookups, "kvpool_client_lookups_total", NULL,
	       "Keys looked up."),
	FIGURE(COUNT_GETS_HERE, gets_here, GETS, "result=\"here\"",
	       "Keys that were got, by where the bytes came from, or why "
	       "that failed."),
	FIGURE(COUNT_GETS_LENT, gets_lent, GETS, "result=\"lent\"", ""),
	FIGURE(COUNT_GETS_TCP, gets_tcp, GETS, "result=\"tcp\"", ""),
	FIGURE(COUNT_GETS_RDMA, gets_rdma, GETS, "result=\"rdma\"", ""),
	FIGURE(COUNT_GETS_MISSED, gets_missed, GETS, "result=\"missed\"", ""),
	FIGURE(COUNT_GETS_UNDELIVERED, gets_undelivered, GETS,
	       "result=\"undelivered\"", ""),
	FIGURE(COUNT_GETS_UNFIT, gets_unfit, GETS, "result=\"unfit\"", ""),
	FIGURE(COUNT_GETS_INVALID, gets_invalid, GETS, "result=\"invalid\"",
	       ""),
	FIGURE(COUNT_GETS_FAILED, gets_failed, GETS, "result=\"failed\"", ""),
	FIGURE(COUNT_BYTES_HERE, bytes_here, GOT, "source=\"here\"",
	       "Bytes of objects that were got, by where they came from."),
	FIGURE(COUNT_BYTES_LENT, bytes_lent, GOT, "source=\"lent\"", ""),
	FIGURE(COUNT_BYTES_TCP, bytes_tcp, GOT, "source=\"tcp\"", ""),
	FIGURE(COUNT_BYTES_RDMA, bytes_rdma, GOT, "source=\"rdma\"", ""),
	FIGURE(COUNT_BYTES_GOT, bytes_got, "kvpool_client_all_got_bytes_total",
	       NULL, "Bytes of objects that were got."),
	FIGURE(COUNT_GETS, gets, "kvpool_client_gets_total", NULL,
	       "Keys that gets asked for."),
	FIGURE(COUNT_PUTS_STORED, puts_stored, PUTS, "result=\"stored\"",
	       "Keys that were put, by result."),
	FIGURE(COUNT_PUTS_EXISTED, puts_existed, PUTS, "result=\"existed\"",
	       ""),
	FIGURE(COUNT_PUTS_FULL, puts_full, PUTS, "result=\"full\"", ""),
	FIGURE(COUNT_PUTS_INVALID, puts_invalid, PUTS, "result=\"invalid\"",
	       ""),
	FIGURE(COUNT_PUTS_FAILED, puts_failed, PUTS, "result=\"failed\"", ""),
	FIGURE(COUNT_BYTES_PUT, bytes_put, "kvpool_client_put_bytes_total",
	       NULL, "Bytes of objects that were put."),
	FIGURE(COUNT_PUTS, puts, "kvpool_client_puts_total", NULL,
	       "Keys that puts were called with."),
	FIGURE(COUNT_RETRIES, retries, "kvpool_client_retries_total", NULL,
	       "Retries inside calls."),
#undef FIGURE
};

static const struct timed {
	size_t calls, p50, p99; /* offsets in struct kvpool_stats */
	const char *labels;
} timed[CLIENT_TIMED] = {
#define TIMED(what, label)                                      \
	{ offsetof(struct kvpool_stats, what##_timed),          \
	  offsetof(struct kvpool_stats, what##_p50_ns),         \
	  offsetof(struct kvpool_stats, what##_p99_ns), label }
	[TIMED_LOOKUPS] = TIMED(lookup_calls, "call=\"lookup\""),
	[TIMED_GETS] = TIMED(get_calls, "call=\"get\""),
	[TIMED_PUTS] = TIMED(put_calls, "call=\"put\""),
#undef TIMED
};

uint64_t client_timed_begin(enum client_timed kind)
{
	static _Thread_local unsigned int calls[CLIENT_TIMED];

	return calls[kind]++ % CLIENT_TIMED_EACH ? 0 : pool_now_ns();
}

void client_timed_end(struct client_stats *s, enum client_timed kind,
		      uint64_t began)
{
	if (began)
		pool_hist_add(&s->took[kind], pool_now_ns() - began);
}

int client_stats_register(struct client_stats *s, struct pool_metrics *m)
{
	int err = 0;

	for (unsigned int i = 0; !err && i < CLIENT_TIMED; i++)
		err = pool_metrics_hist(m, &s->took[i],
					"kvpool_client_call_seconds",
					timed[i].labels,
					"Time of one of 64 calls, by kind.");

	for (unsigned int i = 0; !err && i < CLIENT_COUNTS; i++)
		err = pool_metrics_counter(m, &s->at[i], figures[i].name,
					   figures[i].labels, figures[i].help);
	return err;
}

/* ---- the headings of gets and puts ---- */

static enum client_count heading_of_get(const struct client_op *op)
{
	if (op->result >= 0)
		return COUNT_GETS_HERE + (enum client_count)op->source;
	switch (op->result) {
	case -ENOENT:
		return op->found ? COUNT_GETS_UNDELIVERED : COUNT_GETS_MISSED;
	case -EMSGSIZE:
		return COUNT_GETS_UNFIT;
	case -EFAULT:
	case -EINVAL:
	case -EISDIR:
	case -ENAMETOOLONG:
	case -ENOTDIR:
		return COUNT_GETS_INVALID;
	default:
		return COUNT_GETS_FAILED;
	}
}

static enum client_count heading_of_put(const struct client_op *op)
{
	if (op->result >= 0)
		return COUNT_PUTS_STORED;
	switch (op->result) {
	case -EEXIST:
		return COUNT_PUTS_EXISTED;
	case -ENOSPC:
	case -EDQUOT:
		return COUNT_PUTS_FULL;
	case -EFAULT:
	case -EFBIG:
	case -EINVAL:
	case -EISDIR:
	case -ENAMETOOLONG:
	case -ENOTDIR:
		return COUNT_PUTS_INVALID;
	default:
		return COUNT_PUTS_FAILED;
	}
}

static void add_get(uint64_t *sums, const struct client_op *op)
{
	sums[heading_of_get(op)]++;
	if (op->result < 0)
		return;
	sums[COUNT_BYTES_GOT] += op->size;
	sums[COUNT_BYTES_HERE + op->source] += op->size;
}

static void add_put(uint64_t *sums, const struct client_op *op)
{
	sums[heading_of_put(op)]++;
	if (op->result >= 0)
		sums[COUNT_BYTES_PUT] += op->len;
}

void client_count_asked(struct client_window *w)
{
	struct client_stats *s = &w->ns->pool->stats;

	if (w->kind->counted == CLIENT_GETS)
		client_count(s, COUNT_GETS, w->n);
	else if (w->kind->counted == CLIENT_PUTS)
		client_count(s, COUNT_PUTS, w->n);
}

void client_count_results(struct client_window *w)
{
	struct client_stats *s = &w->ns->pool->stats;
	uint64_t sums[CLIENT_COUNTS] = { 0 };

	if (w->kind->counted == CLIENT_UNCOUNTED)
		return;
	for (size_t i = 0; i < w->n; i++)
		w->kind->counted == CLIENT_GETS ? add_get(sums, &w->op[i]) :
						  add_put(sums, &w->op[i]);
	/* Sums before what they are made of: see client_count. */
	for (unsigned int i = CLIENT_COUNTS; i-- > 0;)
		client_count(s, (enum client_count)i, sums[i]);
}

/* ---- kvpool.h ---- */

/* Size of the struct in its first version: callers must have at least these
 * members. */
#define FIRST_SIZE \
	(offsetof(struct kvpool_stats, retries) + sizeof(uint64_t))

static uint64_t *figure_at(struct kvpool_stats *s, size_t offset)
{
	return (uint64_t *)(void *)((char *)s + offset);
}

int kvpool_stats(const struct kvpool *p, struct kvpool_stats *ret_stats)
{
	struct kvpool_stats s = { 0 };
	size_t size;
	int err = client_check(p);

	if (err)
		return err;
	if (!ret_stats || ret_stats->struct_size < FIRST_SIZE)
		return client_fail(-EINVAL, "ret_stats is NULL, or its "
				   "struct_size is too small");
	for (unsigned int i = 0; i < CLIENT_COUNTS; i++)
		*figure_at(&s, figures[i].shown) =
			atomic_load_explicit(&p->stats.at[i].v,
					     memory_order_acquire);
	for (unsigned int i = 0; i < CLIENT_TIMED; i++) {
		const struct pool_hist *h = &p->stats.took[i];

		*figure_at(&s, timed[i].calls) = pool_hist_count(h);
		*figure_at(&s, timed[i].p50) = pool_hist_quantile(h, 0.5);
		*figure_at(&s, timed[i].p99) = pool_hist_quantile(h, 0.99);
	}
	size = s.struct_size = ret_stats->struct_size;
	memset((char *)ret_stats, 0, size);
	memcpy(ret_stats, &s, size < sizeof(s) ? size : sizeof(s));
	return 0;
}
