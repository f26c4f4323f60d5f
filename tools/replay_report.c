/* The result of a replay: a table for people, JSON for programs. */
#include <jansson.h>
#include <stdio.h>

#include "pool/base/parse.h"
#include "tools/replay.h"

double replay_ratio(uint64_t part, uint64_t whole)
{
	return whole ? (double)part / (double)whole : 0;
}

static void print_latency(const char *what, const struct bench_hist *h)
{
	printf("  %-12s %9llu %10.1f %10.1f %10.1f %10.1f\n", what,
	       (unsigned long long)h->count, bench_hist_us(h, 0.5),
	       bench_hist_us(h, 0.9), bench_hist_us(h, 0.99),
	       bench_hist_max_us(h));
}

void replay_print_table(const struct replay_result *r)
{
	const struct replay_stats *s = &r->stats;
	char read[32], written[32], capacity[32];

	pool_format_size(s->bytes_read, read, sizeof(read));
	pool_format_size(s->bytes_written, written, sizeof(written));
	pool_format_size(r->capacity, capacity, sizeof(capacity));
	printf("requests       %llu in %.1f s\n",
	       (unsigned long long)r->requests, r->seconds);
	printf("blocks         %llu of %llu bytes\n",
	       (unsigned long long)s->blocks,
	       (unsigned long long)r->block_size);
	printf("hits           %llu\n", (unsigned long long)s->hits);
	printf("hit ratio      %.4f\n", replay_ratio(s->hits, s->blocks));
	printf("computed LRU   %.4f (capacity %s)\n",
	       replay_ratio(r->lru_hits, r->sim_blocks), capacity);
	printf("computed FIFO  %.4f\n",
	       replay_ratio(r->fifo_hits, r->sim_blocks));
	printf("wrong bytes    %llu blocks\n", (unsigned long long)s->wrong);
	printf("errors         %llu\n", (unsigned long long)s->errors);
	printf("vanished       %llu between look-up and open\n",
	       (unsigned long long)s->vanished);
	printf("moved          %s read, %s written\n", read, written);
	printf("\n  %-12s %9s %10s %10s %10s %10s\n", "latency, us", "count",
	       "p50", "p90", "p99", "max");
	print_latency("access hit", &s->access_hit);
	print_latency("access miss", &s->access_miss);
	print_latency("read", &s->read);
	print_latency("write", &s->write);
}

static json_t *latency_json(const struct bench_hist *h)
{
	return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count",
			 (json_int_t)h->count, "p50", bench_hist_us(h, 0.5),
			 "p90", bench_hist_us(h, 0.9), "p99",
			 bench_hist_us(h, 0.99), "max", bench_hist_max_us(h));
}

void replay_print_json(const struct replay_result *r)
{
	const struct replay_stats *s = &r->stats;
	json_t *j = json_pack(
		"{s:I, s:f, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:I, s:I, s:I,"
		" s:I, s:I, s:I, s:{s:o, s:o, s:o, s:o}}",
		"requests", (json_int_t)r->requests, "seconds", r->seconds,
		"blocks", (json_int_t)s->blocks, "block_size",
		(json_int_t)r->block_size, "hits", (json_int_t)s->hits,
		"hit_ratio", replay_ratio(s->hits, s->blocks), "lru_hit_ratio",
		replay_ratio(r->lru_hits, r->sim_blocks), "fifo_hit_ratio",
		replay_ratio(r->fifo_hits, r->sim_blocks), "capacity",
		(json_int_t)r->capacity, "wrong", (json_int_t)s->wrong,
		"errors", (json_int_t)s->errors, "vanished",
		(json_int_t)s->vanished, "bad_lines",
		(json_int_t)r->bad_lines, "bytes_read",
		(json_int_t)s->bytes_read, "bytes_written",
		(json_int_t)s->bytes_written, "latency_us", "access_hit",
		latency_json(&s->access_hit), "access_miss",
		latency_json(&s->access_miss), "read", latency_json(&s->read),
		"write", latency_json(&s->write));

	if (!j) {
		fputs("kvpool replay: no memory for the report\n", stderr);
		return;
	}
	json_dumpf(j, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
	putchar('\n');
	json_decref(j);
}
