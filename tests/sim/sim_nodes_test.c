/*
 * Nodes and masters under simulation, with faults: tests/sim/sim_nodes.h.
 *
 *   sim_nodes_test                2,000 seeds (sanitized: 200)
 *   sim_nodes_test SEEDS=100000   100,000 seeds; FROM=N: from N on
 *   sim_nodes_test SEED=17        one seed, and prints a trace
 *
 * WITH=number: kinds of operations and faults (a sum of SN_WITH_...). ALL=1:
 * goes on after a seed that failed.
 */
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"
#include "tests/sim/sim_nodes.h"

/* The mixes that must pass. To be added when their bugs are fixed: DIRS with
 * CRASHES, ROT, and ALL. */
static const unsigned int clean[] = {
	SN_WITH_RENAMES | SN_WITH_UNLINKS | SN_WITH_EVICTION,
	SN_WITH_ETCD,
	SN_WITH_UNLINKS | SN_WITH_ETCD | SN_WITH_ETCD_FIRST,
	SN_WITH_RENAMES | SN_WITH_UNLINKS | SN_WITH_EVICTION | SN_WITH_ETCD |
		SN_WITH_ETCD_FIRST,
	SN_WITH_EVICTION | SN_WITH_ETCD,
	SN_WITH_CUTS,
	SN_WITH_CUTS | SN_WITH_ETCD,
	SN_WITH_STOPS,
	SN_WITH_STOPS | SN_WITH_EVICTION,
	SN_WITH_CRASHES,
	SN_WITH_CRASHES | SN_WITH_UNLINKS,
	SN_WITH_CRASHES | SN_WITH_EVICTION,
	SN_WITH_CRASHES | SN_WITH_ETCD,
	SN_WITH_CRASHES | SN_WITH_ETCD | SN_WITH_UNLINKS,
	SN_WITH_CUTS | SN_WITH_ETCD | SN_WITH_STOPS,
	SN_WITH_CUTS | SN_WITH_EVICTION,
	SN_WITH_CUTS | SN_WITH_UNLINKS | SN_WITH_RENAMES,
	SN_WITH_CUTS | SN_WITH_UNLINKS | SN_WITH_STOPS,
	SN_WITH_CUTS | SN_WITH_UNLINKS | SN_WITH_ETCD | SN_WITH_RENAMES,
	SN_WITH_CUTS | SN_WITH_UNLINKS | SN_WITH_ETCD | SN_WITH_STOPS,
	SN_WITH_CUTS | SN_WITH_CRASHES | SN_WITH_ETCD,
	SN_WITH_STOPS | SN_WITH_EVICTION | SN_WITH_ETCD,
	SN_WITH_STOPS | SN_WITH_UNLINKS | SN_WITH_RENAMES,
	SN_WITH_CRASHES | SN_WITH_UNLINKS | SN_WITH_RENAMES,
	SN_WITH_DIRS,
	SN_WITH_DIRS | SN_WITH_RENAMES | SN_WITH_UNLINKS,
	SN_WITH_DIRS | SN_WITH_RENAMES | SN_WITH_UNLINKS | SN_WITH_CUTS,
	SN_WITH_DIRS | SN_WITH_RENAMES | SN_WITH_UNLINKS | SN_WITH_ETCD |
		SN_WITH_CUTS,
	SN_WITH_DIRS | SN_WITH_RENAMES | SN_WITH_UNLINKS | SN_WITH_STOPS,
};

#ifdef __SANITIZE_ADDRESS__
#define SEEDS 200
#else
#define SEEDS 2000
#endif

static struct {
	uint64_t seed, seeds, from;
	unsigned int with; /* 0: `clean` in turn, with ATTRS and without */
	bool go_on; /* after a seed that failed */
} opts = { .seeds = SEEDS, .from = 1 };

static struct sn run;

static unsigned int with(uint64_t seed)
{
	const size_t n = sizeof(clean) / sizeof(clean[0]);
	unsigned int mix = clean[seed % n];

	if (opts.with)
		return opts.with;
	if (seed / n % 2)
		mix |= SN_WITH_ATTRS;
	return mix;
}

static void what_was_acknowledged_stays(void **state)
{
	uint64_t i, acks = 0, faults = 0, wrong = 0;

	(void)state;
	for (i = opts.from; i < opts.from + opts.seeds; i++) {
		if (!sn_run(&run, i, with(i), false)) {
			print_message("SEED=%llu WITH=%u: %s\n",
				      (unsigned long long)i, with(i),
				      run.wrong);
			wrong++;
		}
		acks += run.nacks;
		faults += run.nfaults;
		if (wrong && !opts.go_on)
			break;
	}
	print_message("%llu acknowledged operations, %llu crashes and stops, "
		      "%llu seeds wrong\n",
		      (unsigned long long)acks, (unsigned long long)faults,
		      (unsigned long long)wrong);
	assert_int_equal(0, wrong);
	/* The seeds did enough work to find something. */
	assert_true(acks >= opts.seeds * 4);
	assert_true(opts.with || faults >= opts.seeds / 8);
}

static void one_seed_is_one_course_of_events(void **state)
{
	uint64_t digest;

	(void)state;
	(void)sn_run(&run, opts.from, SN_WITH_ALL, false);
	digest = run.digest;
	(void)sn_run(&run, opts.from, SN_WITH_ALL, false);
	assert_int_equal(digest, run.digest);
	(void)sn_run(&run, opts.from + 1, SN_WITH_ALL, false);
	assert_int_not_equal(digest, run.digest);
}

static int one_seed(void)
{
	bool good = sn_run(&run, opts.seed, with(opts.seed), true);

	printf("SEED=%llu: %s\n", (unsigned long long)opts.seed,
	       good ? "good" : run.wrong);
	return good ? 0 : 1;
}

static void parse(const char *arg)
{
	const char *value = strchr(arg, '=');
	uint64_t n = value ? strtoull(value + 1, NULL, 10) : 0;

	if (!strncmp(arg, "SEED=", 5))
		opts.seed = n;
	else if (!strncmp(arg, "SEEDS=", 6))
		opts.seeds = n;
	else if (!strncmp(arg, "FROM=", 5))
		opts.from = n;
	else if (!strncmp(arg, "WITH=", 5))
		opts.with = (unsigned int)n;
	else if (!strncmp(arg, "ALL=", 4))
		opts.go_on = n;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_seed_is_one_course_of_events),
		cmocka_unit_test(what_was_acknowledged_stays),
	};
	int i;

	pool_log_set_level((enum pool_log_level)(POOL_LOG_ERROR - 1));
	for (i = 1; i < argc; i++)
		parse(argv[i]);
	if (opts.seed)
		return one_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
