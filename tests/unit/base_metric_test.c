#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/metric.h"

static char *page(struct pool_metrics *m)
{
	char *text;
	size_t len;

	assert_int_equal(pool_metrics_print(m, &text, &len), 0);
	assert_int_equal(strlen(text), len);
	return text;
}

static unsigned int occurrences(const char *text, const char *what)
{
	unsigned int n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text += strlen(what);
	}
	return n;
}

static void an_operation_falls_into_the_bucket_that_bounds_it(void **state)
{
	static const struct {
		uint64_t ns;
		unsigned int bucket;
	} cases[] = {
		{ 0, 0 },	 { 1, 0 },	  { 1000, 0 },
		{ 1001, 1 },	 { 2000, 1 },	  { 2001, 2 },
		{ 4000, 2 },	 { 4001, 3 },	  { 1000u << 10, 10 },
		{ (1000u << 10) + 1, 11 },
		{ UINT64_C(1000) << 25, 25 },
		{ (UINT64_C(1000) << 25) + 1, POOL_HIST_BUCKETS },
		{ UINT64_MAX, POOL_HIST_BUCKETS },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct pool_hist h = { 0 };

		pool_hist_add(&h, cases[i].ns);
		assert_int_equal(h.bucket[cases[i].bucket], 1);
		assert_int_equal(pool_hist_count(&h), 1);
	}
}

static void quantiles_are_upper_bounds(void **state)
{
	struct pool_hist h = { 0 };

	(void)state;
	assert_int_equal(pool_hist_quantile(&h, 0.5), 0);
	for (int i = 0; i < 90; i++)
		pool_hist_add(&h, 3000);
	for (int i = 0; i < 10; i++)
		pool_hist_add(&h, 900000);
	assert_int_equal(pool_hist_quantile(&h, 0), 4000);
	assert_int_equal(pool_hist_quantile(&h, 0.5), 4000);
	assert_int_equal(pool_hist_quantile(&h, 0.9), 4000);
	assert_int_equal(pool_hist_quantile(&h, 0.91), 1024000);
	assert_int_equal(pool_hist_quantile(&h, 1), 1024000);
	pool_hist_add(&h, UINT64_MAX / 2);
	assert_true(pool_hist_quantile(&h, 1) == UINT64_MAX);
}

static struct pool_counter gets = { 3 }, puts_ = { 4 };
static struct pool_gauge used = { -5 };
static struct pool_hist took, took_bulk;

static struct pool_metrics *registry(void)
{
	struct pool_metrics *m = pool_metrics_open();

	assert_non_null(m);
	took = (struct pool_hist){ 0 };
	assert_int_equal(pool_metrics_counter(m, &gets, "kvpool_ops_total",
					      "op=\"get\"", "Operations."), 0);
	assert_int_equal(pool_metrics_hist(m, &took, "kvpool_open_seconds",
					   NULL, "Time to open."), 0);
	assert_int_equal(pool_metrics_gauge(m, &used, "kvpool_used_bytes", "",
					    "Back\\slash\nand line."), 0);
	/* registered apart from the other metric of this name */
	assert_int_equal(pool_metrics_counter(m, &puts_, "kvpool_ops_total",
					      "op=\"put\"", "Operations."), 0);
	assert_int_equal(pool_metrics_hist(m, &took_bulk,
					   "kvpool_open_seconds",
					   "lane=\"bulk\"", "Time to open."),
			 0);
	pool_hist_add(&took, 1500);
	pool_hist_add(&took, 2500000000u);
	pool_hist_add(&took, 60000000000u);
	return m;
}

static void a_page_groups_metrics_by_name(void **state)
{
	struct pool_metrics *m = registry();
	char *text = page(m);

	(void)state;
	assert_non_null(strstr(text, "# HELP kvpool_ops_total Operations.\n"
				     "# TYPE kvpool_ops_total counter\n"
				     "kvpool_ops_total{op=\"get\"} 3\n"
				     "kvpool_ops_total{op=\"put\"} 4\n"));
	assert_non_null(strstr(text,
			       "# HELP kvpool_used_bytes Back\\\\slash\\nand "
			       "line.\n"
			       "# TYPE kvpool_used_bytes gauge\n"
			       "kvpool_used_bytes -5\n"));
	assert_int_equal(occurrences(text, "# HELP"), 3);
	assert_int_equal(occurrences(text, "# TYPE"), 3);
	free(text);
	pool_metrics_close(m);
}

static void a_histogram_is_cumulative_in_seconds(void **state)
{
	struct pool_metrics *m = registry();
	char *text = page(m);

	(void)state;
	assert_non_null(strstr(text, "# TYPE kvpool_open_seconds histogram\n"
				     "kvpool_open_seconds_bucket{le=\"0.000001"
				     "\"} 0\n"
				     "kvpool_open_seconds_bucket{le=\"0.000002"
				     "\"} 1\n"));
	assert_non_null(strstr(text, "_bucket{le=\"2.097152\"} 1\n"));
	assert_non_null(strstr(text, "_bucket{le=\"4.194304\"} 2\n"));
	assert_non_null(strstr(text, "_bucket{le=\"33.554432\"} 2\n"
				     "kvpool_open_seconds_bucket{le=\"+Inf\"} "
				     "3\n"
				     "kvpool_open_seconds_sum 62.500001500\n"
				     "kvpool_open_seconds_count 3\n"));
	assert_non_null(strstr(text, "_bucket{lane=\"bulk\",le=\"+Inf\"} 0\n"));
	assert_non_null(strstr(text, "_sum{lane=\"bulk\"} 0.000000000\n"));
	assert_non_null(strstr(text, "_count{lane=\"bulk\"} 0\n"));
	free(text);
	pool_metrics_close(m);
}

static void set_gauge(void *arg)
{
	pool_gauge_add(arg, 1);
}

static void hooks_run_before_each_printing(void **state)
{
	struct pool_metrics *m = pool_metrics_open();
	struct pool_gauge g = { 0 };
	char *text;

	(void)state;
	assert_int_equal(pool_metrics_gauge(m, &g, "kvpool_g", NULL, "G."), 0);
	assert_int_equal(pool_metrics_on_print(m, set_gauge, &g), 0);
	assert_int_equal(pool_metrics_on_print(m, set_gauge, &g), 0);
	text = page(m);
	assert_non_null(strstr(text, "kvpool_g 2\n"));
	free(text);
	text = page(m);
	assert_non_null(strstr(text, "kvpool_g 4\n"));
	free(text);
	pool_metrics_close(m);
	pool_metrics_close(NULL);
}

static void
what_is_removed_is_not_printed_and_its_hooks_do_not_run(void **state)
{
	struct {
		struct pool_counter c;
		struct pool_gauge g;
	} owner = { { 8 }, { 9 } };
	struct pool_metrics *m = registry();
	char *with, *without;

	(void)state;
	without = page(m);
	assert_int_equal(pool_metrics_counter(m, &owner.c, "kvpool_a_total",
					      NULL, "A."), 0);
	assert_int_equal(pool_metrics_gauge(m, &owner.g, "kvpool_b", NULL,
					    "B."), 0);
	assert_int_equal(pool_metrics_on_print(m, set_gauge, &owner), 0);
	pool_metrics_remove(m, &owner, sizeof(owner));
	with = page(m);
	assert_string_equal(with, without);
	assert_int_equal(8, pool_counter_value(&owner.c));
	free(with);
	free(without);
	pool_metrics_close(m);
}

static void a_label_cannot_end_early_or_be_too_long(void **state)
{
	char buf[32], small[10];

	(void)state;
	assert_int_equal(8, pool_metrics_label(buf, sizeof(buf), "node", "a"));
	assert_string_equal("node=\"a\"", buf);
	pool_metrics_label(buf, sizeof(buf), "n", "\"\\\n\t\x7f\xc3\xa9 ~");
	assert_string_equal("n=\"\\\"\\\\????? ~\"", buf);
	assert_int_equal(8, pool_metrics_label(small, sizeof(small), "n",
					       "abcdefghijkl"));
	assert_string_equal("n=\"abcd\"", small);
	/* Not half of an escape. */
	pool_metrics_label(small, sizeof(small), "n", "abc\"defghi");
	assert_string_equal("n=\"abc\\\"\"", small);
	pool_metrics_label(small, sizeof(small), "n", "abcd\"efghi");
	assert_string_equal("n=\"abcd\"", small);
}

static void an_empty_registry_prints_an_empty_page(void **state)
{
	struct pool_metrics *m = pool_metrics_open();
	char *text = page(m);

	(void)state;
	assert_string_equal(text, "");
	free(text);
	pool_metrics_close(m);
}

static void promtool_finds_nothing_to_complain_about(void **state)
{
	struct pool_metrics *m = registry();
	char *text = page(m);
	FILE *p;
	int status;

	(void)state;
	if (system("command -v promtool >/dev/null") != 0) {
		print_message("SKIPPED: promtool is not installed\n");
		free(text);
		pool_metrics_close(m);
		skip();
	}
	p = popen("promtool check metrics >&2", "w");
	assert_non_null(p);
	fputs(text, p);
	status = pclose(p);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
	free(text);
	pool_metrics_close(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			an_operation_falls_into_the_bucket_that_bounds_it),
		cmocka_unit_test(quantiles_are_upper_bounds),
		cmocka_unit_test(a_page_groups_metrics_by_name),
		cmocka_unit_test(a_histogram_is_cumulative_in_seconds),
		cmocka_unit_test(hooks_run_before_each_printing),
		cmocka_unit_test(
			what_is_removed_is_not_printed_and_its_hooks_do_not_run),
		cmocka_unit_test(a_label_cannot_end_early_or_be_too_long),
		cmocka_unit_test(an_empty_registry_prints_an_empty_page),
		cmocka_unit_test(promtool_finds_nothing_to_complain_about),
	};

	alarm(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
