#include <time.h>

#include "tests/chaos/chaos.h"

static struct {
	pthread_mutex_t lock;
	uint64_t seen_ms, run_ms; /* the clock; the same without stalls */
	uint64_t still_ms;
	_Atomic uint32_t stills;
} times = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void stood_still(uint64_t ms)
{
	times.stills++;
	times.still_ms += ms;
	chaos.tight = false;
	chaos.tight_changes++;
	for (unsigned int i = 0; i < chaos.nmounts; i++) {
		struct chaos_mount *m = &chaos.mounts[i];
		int up = CHAOS_UP;

		atomic_compare_exchange_strong(&m->state, &up, CHAOS_CUT);
		m->changes++;
	}
}

uint64_t chaos_now_ms(void)
{
	struct timespec ts;
	uint64_t now, ran;

	pthread_mutex_lock(&times.lock);
	clock_gettime(CLOCK_MONOTONIC, &ts);
	now = (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
	ran = times.seen_ms ? now - times.seen_ms : 0;
	if (ran > CHAOS_STILL_MS) {
		stood_still(ran - CHAOS_STILL_MS);
		ran = CHAOS_STILL_MS;
	}
	times.seen_ms = now;
	now = times.run_ms += ran;
	pthread_mutex_unlock(&times.lock);
	return now;
}

uint32_t chaos_stills(uint64_t *ret_ms)
{
	(void)chaos_now_ms();
	pthread_mutex_lock(&times.lock);
	*ret_ms = times.still_ms;
	pthread_mutex_unlock(&times.lock);
	return times.stills;
}

/* ---- marks ---- */

struct chaos_mark chaos_mark_take(const struct chaos_mount *m)
{
	/* `changes` is read first, so that a change meanwhile is noticed. */
	struct chaos_mark mark = { .mount = m };

	(void)chaos_now_ms(); /* notices a stall that has just ended */
	mark.changes = m->changes;
	mark.stills = times.stills;
	mark.deaths = m->deaths;
	mark.state = m->state;
	return mark;
}

bool chaos_mark_clean(const struct chaos_mark *mark)
{
	(void)chaos_now_ms();
	return mark->state == CHAOS_UP && mark->mount->changes == mark->changes;
}

bool chaos_mark_served(const struct chaos_mark *mark)
{
	(void)chaos_now_ms();
	return mark->state != CHAOS_DOWN &&
	       mark->mount->deaths == mark->deaths &&
	       times.stills == mark->stills;
}
