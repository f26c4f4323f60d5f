#include "pool/base/busy.h"

#include <sched.h>
#include <sys/resource.h>

#include "pool/base/clock.h"
#include "pool/base/list.h"

static bool one_cpu(void)
{
	cpu_set_t cpus;

	return sched_getaffinity(0, sizeof(cpus), &cpus) == 0 &&
	       CPU_COUNT(&cpus) == 1;
}

/* Number of involuntary context switches of this thread. */
static long preemptions(void)
{
	struct rusage u;

	return getrusage(RUSAGE_THREAD, &u) == 0 ? u.ru_nivcsw : 0;
}

unsigned int pool_busy_window(unsigned int window_us, unsigned int max_us,
			      uint64_t gap_us, bool preempted)
{
	unsigned int least = max_us < POOL_BUSY_LEAST_US ? max_us :
							   POOL_BUSY_LEAST_US;

	if (preempted)
		return least;
	if (gap_us <= window_us) /* polling found the event */
		return window_us;
	if (gap_us <= max_us)
		window_us *= 2;
	else
		window_us /= 2;
	if (window_us > max_us)
		return max_us;
	return window_us < least ? least : window_us;
}

uint64_t pool_busy_skip(uint64_t skip_us)
{
	if (!skip_us)
		return POOL_BUSY_SKIP_US;
	return skip_us * 2 < POOL_BUSY_CALM_US ? skip_us * 2 :
						  POOL_BUSY_CALM_US;
}

bool pool_busy_delayed(uint64_t gap_us, uint64_t missed_us)
{
	return gap_us <= POOL_BUSY_LEAST_US ||
	       gap_us + POOL_BUSY_LEAST_US / 2 <= missed_us;
}

static void on_look(uv_idle_t *h)
{
	struct pool_busy *b = pool_container_of(h, struct pool_busy, looking);

	if (b->look)
		b->look(b->arg);
	if (pool_now_us() < b->until_us)
		return;
	pool_count(&b->slept);
	uv_idle_stop(h);
}

int pool_busy_open(struct pool_busy *b, uv_loop_t *loop, unsigned int max_us,
		   struct pool_metrics *metrics)
{
	static const char name[] = "kvpool_busy_polls_total";
	static const char help[] = "Times that the loop polled before "
				   "sleeping, by whether an event came.";

	*b = (struct pool_busy){ .max_us = one_cpu() ? 0 : max_us };
	b->window_us = pool_busy_window(0, b->max_us, UINT64_MAX, false);
	b->preemptions = preemptions();
	uv_idle_init(loop, &b->looking);
	uv_unref((uv_handle_t *)&b->looking);
	loop->data = b;
	if (!metrics)
		return 0;
	if (pool_metrics_counter(metrics, &b->found, name, "came=\"yes\"",
				 help) ||
	    pool_metrics_counter(metrics, &b->slept, name, "came=\"no\"",
				 help) ||
	    pool_metrics_counter(metrics, &b->skipped,
				 "kvpool_busy_polls_spared_total", NULL,
				 "Times that polling was skipped because it "
				 "had found nothing."))
		return -ENOMEM;
	return 0;
}

void pool_busy_close(struct pool_busy *b, uv_close_cb cb)
{
	b->looking.loop->data = NULL;
	uv_close((uv_handle_t *)&b->looking, cb);
}

static bool was_preempted(struct pool_busy *b, uint64_t now)
{
	long n = preemptions();

	if (n != b->preemptions) {
		b->preemptions = n;
		b->preempted_us = now;
	}
	return b->preempted_us && now - b->preempted_us < POOL_BUSY_CALM_US;
}

/* Adapt to an event that came gap_us after the last one. found: by polling. */
static void learn(struct pool_busy *b, uint64_t now, uint64_t gap_us,
		  bool found)
{
	bool tried = b->trial;
	bool soon = tried && pool_busy_delayed(gap_us, b->missed_us);

	if (b->looked && !found)
		b->missed_us = gap_us;

	b->trial = b->looked && !found && gap_us <= b->max_us;
	b->window_us = pool_busy_window(b->window_us, b->max_us, gap_us,
					was_preempted(b, now) || soon);
	if (found) {
		b->skip_us = 0;
	} else if (soon) {
		/* Polling would have delayed this event: skip more of it. */
		b->skip_us = pool_busy_skip(b->skip_us);
		b->skip_until_us = now + b->skip_us;
	}
}

void pool_busy_touch(uv_loop_t *loop)
{
	struct pool_busy *b = loop->data;
	uint64_t now;
	bool looking;

	if (!b || !b->max_us)
		return;
	now = pool_now_us();
	looking = uv_is_active((uv_handle_t *)&b->looking);
	learn(b, now, now - b->touched_us, looking);
	b->touched_us = now;
	b->until_us = now + b->window_us;
	b->looked = looking || (!b->trial && now >= b->skip_until_us);
	if (looking)
		pool_count(&b->found);
	else if (b->looked)
		uv_idle_start(&b->looking, on_look);
	else
		pool_count(&b->skipped);
}

void pool_busy_look_for(uv_loop_t *loop, void (*look)(void *arg), void *arg)
{
	struct pool_busy *b = loop->data;

	if (!b)
		return;
	b->look = look;
	b->arg = arg;
}
