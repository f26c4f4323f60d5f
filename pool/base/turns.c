#include "pool/base/turns.h"

#include "pool/base/list.h"

int pool_turns_register(struct pool_metrics *m, struct pool_turns *t,
			const char *hist, const char *longest)
{
	int err = pool_metrics_hist(m, &t->hist, hist, NULL,
				    "Duration of event loop iterations, "
				    "without sleep");

	return err ? err : pool_metrics_gauge_ns(m, &t->longest_ns, longest,
						 NULL,
						 "Longest event loop iteration "
						 "so far, without sleep");
}

void pool_turns_add(struct pool_turns *t, uint64_t ns)
{
	pool_hist_add(&t->hist, ns);
	if ((int64_t)ns > pool_gauge_value(&t->longest_ns))
		pool_gauge_set(&t->longest_ns, (int64_t)ns);
}

/* Runs once per iteration, before the loop polls. The turn is the time since
 * the last call, without sleep. */
static void on_sleeps(uv_prepare_t *h)
{
	struct pool_turns *t =
		pool_container_of(h, struct pool_turns, sleeps);
	uint64_t now = uv_hrtime(), idle = uv_metrics_idle_time(h->loop);
	uint64_t slept = idle - t->idle_ns, all = now - t->begun_ns;

	pool_turns_add(t, all > slept ? all - slept : 0);
	t->begun_ns = now;
	t->idle_ns = idle;
}

void pool_turns_open(struct pool_turns *t, uv_loop_t *loop)
{
	/* Cannot fail: libuv knows the option. */
	(void)uv_loop_configure(loop, UV_METRICS_IDLE_TIME);
	uv_prepare_init(loop, &t->sleeps);
	uv_prepare_start(&t->sleeps, on_sleeps);
	uv_unref((uv_handle_t *)&t->sleeps);
	t->begun_ns = uv_hrtime();
	t->idle_ns = uv_metrics_idle_time(loop);
}

void pool_turns_close(struct pool_turns *t, uv_close_cb cb)
{
	uv_close((uv_handle_t *)&t->sleeps, cb);
}
