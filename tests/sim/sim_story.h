/*
 * What is done to a simulated pool, phase by phase: all nodes join at once,
 * work goes on, a tenth of the nodes dies at once, the leader changes, the dead
 * come back, leader and nodes are lost together. After each phase the pool comes
 * to rest and is checked (sim_world.h).
 */
#ifndef TESTS_SIM_STORY_H
#define TESTS_SIM_STORY_H

#include "tests/sim/sim_world.h"

struct sim_phase {
	const char *name;
	uint64_t virtual_ns, happened, real_ns;
	size_t turns, turns_end; /* of the masters, in the log */
	uint64_t copies, drops;	 /* that the nodes made */
	struct sim_census census;
	uint64_t digest;
	const char *wrong; /* NULL: all is as it should be */
};

struct sim_story_opts {
	struct sim_world_opts world;
	unsigned int deaths;
	uint64_t load_ns;  /* between two requests */
	uint64_t busy_ns;  /* so long there is load */
	uint64_t limit_ns; /* to come to rest */
};

/* Tells of each phase; ends after one that went wrong. true: none did. */
bool sim_story_run(const struct sim_story_opts *o,
		   void (*told)(void *arg, struct sim_world *w,
				const struct sim_phase *p),
		   void *arg);

#endif
