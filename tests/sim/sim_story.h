/*
 * The phases of a simulation: all nodes join at once; they work; a tenth of
 * them dies at once; the leader changes; the dead return; leader and nodes die
 * together. After each phase the pool comes to rest and is checked
 * (sim_world.h).
 */
#ifndef TESTS_SIM_STORY_H
#define TESTS_SIM_STORY_H

#include "tests/sim/sim_world.h"

struct sim_phase {
	const char *name;
	uint64_t virtual_ns, happened, real_ns;
	size_t turns, turns_end; /* of the masters, in the log */
	uint64_t copies, drops;	 /* made by the nodes */
	struct sim_census census;
	uint64_t digest;
	const char *wrong; /* NULL: the check passed */
};

struct sim_story_opts {
	struct sim_world_opts world;
	unsigned int deaths;
	uint64_t load_ns;  /* between two requests */
	uint64_t busy_ns;  /* duration of the load */
	uint64_t limit_ns; /* to come to rest */
};

/* Calls done after each phase, and ends after a failed one. True: none
 * failed. */
bool sim_story_run(const struct sim_story_opts *o,
		   void (*done)(void *arg, struct sim_world *w,
				const struct sim_phase *p),
		   void *arg);

#endif
