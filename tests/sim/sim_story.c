#include "tests/sim/sim_story.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define STORM_NS (200 * SIM_MS)
#define ELECTION_NS SIM_S

static void join_storm(struct sim_world *w, const struct sim_story_opts *o)
{
	(void)o;
	sim_world_elect(w);
	sim_world_start_nodes(w, STORM_NS);
}

static void work(struct sim_world *w, const struct sim_story_opts *o)
{
	sim_world_load(w, o->load_ns);
	sim_run_until(sim_now_ns() + o->busy_ns);
	sim_world_load(w, 0);
}

static void deaths(struct sim_world *w, const struct sim_story_opts *o)
{
	sim_world_load(w, o->load_ns);
	sim_run_until(sim_now_ns() + o->busy_ns / 4);
	sim_world_kill_nodes(w, o->deaths);
	sim_run_until(sim_now_ns() + o->busy_ns / 4);
	sim_world_load(w, 0);
}

static void leader_change(struct sim_world *w, const struct sim_story_opts *o)
{
	sim_world_load(w, o->load_ns);
	sim_run_until(sim_now_ns() + o->busy_ns / 4);
	sim_world_lose_leader(w);
	sim_run_until(sim_now_ns() + ELECTION_NS);
	sim_world_elect(w);
	sim_run_until(sim_now_ns() + o->busy_ns / 4);
	sim_world_load(w, 0);
}

static void the_dead_return(struct sim_world *w, const struct sim_story_opts *o)
{
	(void)o;
	sim_world_start_nodes(w, STORM_NS);
}

static void both(struct sim_world *w, const struct sim_story_opts *o)
{
	sim_world_lose_leader(w);
	sim_world_kill_nodes(w, o->deaths / 2);
	sim_run_until(sim_now_ns() + ELECTION_NS);
	sim_world_elect(w);
}

static const struct {
	const char *name;
	void (*run)(struct sim_world *w, const struct sim_story_opts *o);
} phases[] = {
	{ "join storm", join_storm },
	{ "work", work },
	{ "nodes die at once", deaths },
	{ "leader change", leader_change },
	{ "the dead return", the_dead_return },
	{ "leader and nodes lost", both },
};

static uint64_t real_ns(void)
{
	struct timespec ts;

	syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * SIM_S + (uint64_t)ts.tv_nsec;
}

static void run_phase(struct sim_world *w, const struct sim_story_opts *o,
		      unsigned int i, struct sim_phase *p)
{
	uint64_t virtual = sim_now_ns(), happened = sim_happened();
	uint64_t real = real_ns();

	memset(p, 0, sizeof(*p));
	p->name = phases[i].name;
	p->turns = sim_logged();
	p->copies = w->crowd.copies;
	p->drops = w->crowd.drops;
	phases[i].run(w, o);
	if (!sim_world_settle(w, o->limit_ns))
		p->wrong = sim_world_busy(w);
	p->turns_end = sim_logged();
	p->copies = w->crowd.copies - p->copies;
	p->drops = w->crowd.drops - p->drops;
	p->virtual_ns = sim_now_ns() - virtual;
	p->happened = sim_happened() - happened;
	p->digest = sim_digest();
	if (!p->wrong)
		p->wrong = sim_world_check(w);
	sim_world_count(w, &p->census);
	p->real_ns = real_ns() - real;
}

bool sim_story_run(const struct sim_story_opts *o,
		   void (*done)(void *arg, struct sim_world *w,
				const struct sim_phase *p),
		   void *arg)
{
	struct sim_world *w = malloc(sizeof(*w));
	struct sim_phase p = { .wrong = NULL };
	unsigned int i;

	assert(w);
	sim_world_open(w, &o->world);
	for (i = 0; i < sizeof(phases) / sizeof(phases[0]) && !p.wrong; i++) {
		run_phase(w, o, i, &p);
		done(arg, w, &p);
	}
	sim_world_close(w);
	free(w);
	return !p.wrong;
}
