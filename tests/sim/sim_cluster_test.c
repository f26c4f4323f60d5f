/*
 * A pool of some dozens of nodes under simulation (tests/sim/sim.h), with
 * several seeds; SIM_SEED=N runs that one alone.
 */
#include "tests/lib/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "tests/sim/sim_story.h"

#define SEEDS 4

static const struct sim_story_opts small = {
	.world = { .nodes = 40, .mounts = 3, .mirrors = 2, .keys = 6000,
		   .born = 5000 },
	.deaths = 4,
	.load_ns = 5 * SIM_MS,
	.busy_ns = 2 * SIM_S,
	.limit_ns = 120 * SIM_S,
};

struct outcome {
	uint64_t digest, keys, lost;
	unsigned int phases;
};

static void on_phase(void *arg, struct sim_world *w, const struct sim_phase *p)
{
	struct outcome *o = arg;

	(void)w;
	print_message("  %-22s %6.1f s, %llu keys, %llu lost%s%s\n", p->name,
		      (double)p->virtual_ns / 1e9,
		      (unsigned long long)p->census.keys,
		      (unsigned long long)p->census.lost,
		      p->wrong ? ": " : "", p->wrong ? p->wrong : "");
	o->digest = p->digest;
	o->keys = p->census.keys;
	o->lost = p->census.lost;
	o->phases++;
}

static bool run(uint64_t seed, struct outcome *ret)
{
	char *dir = unit_dir_make("/tmp/sim_cluster_test");
	struct sim_story_opts o = small;
	bool good;

	*ret = (struct outcome){ 0 };
	o.world.seed = seed;
	o.world.dir = dir;
	print_message("seed %llu\n", (unsigned long long)seed);
	good = sim_story_run(&o, on_phase, ret);
	unit_dir_remove(dir);
	return good;
}

static void
every_phase_leaves_the_map_and_the_mirrors_as_the_nodes_are(void **state)
{
	const char *seed = getenv("SIM_SEED");
	struct outcome o;
	uint64_t i;

	(void)state;
	if (seed) {
		assert_true(run(strtoull(seed, NULL, 10), &o));
		return;
	}
	for (i = 1; i <= SEEDS; i++) {
		assert_true(run(i, &o));
		assert_int_equal(6, o.phases);
		assert_true(o.keys > 4000);
	}
}

static void one_seed_is_one_course_of_events(void **state)
{
	struct outcome a, b, other;

	(void)state;
	assert_true(run(7, &a));
	assert_true(run(7, &b));
	assert_true(run(8, &other));
	assert_int_equal(a.digest, b.digest);
	assert_int_equal(a.keys, b.keys);
	assert_int_not_equal(a.digest, other.digest);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(
			every_phase_leaves_the_map_and_the_mirrors_as_the_nodes_are),
		cmocka_unit_test(one_seed_is_one_course_of_events),
	};

	pool_log_set_level(POOL_LOG_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
