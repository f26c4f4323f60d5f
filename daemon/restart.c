#include "daemon/restart.h"

#include <signal.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"

#define LOOK_MS 5

static void on_look(uv_timer_t *timer)
{
	struct daemon_restart *r = timer->data;
	const char *busy = r->ops->busy(r->arg);

	if (!busy) {
		pool_info("ending: the next daemon adopts the mount");
		r->ops->leave(r->arg);
		_exit(RESTART_STATUS);
	}
	if (pool_now_ms() - r->since_ms < RESTART_QUIET_MS)
		return;
	pool_warn("not restarted: %s, for %d s now", busy,
		  RESTART_QUIET_MS / 1000);
	uv_timer_stop(&r->look);
	r->since_ms = 0;
	r->ops->resume(r->arg);
}

static void on_signal(uv_signal_t *sig, int signum)
{
	struct daemon_restart *r = sig->data;

	(void)signum;
	if (r->since_ms)
		return;
	pool_info("the keeper restarts this daemon");
	r->ops->pause(r->arg);
	r->since_ms = pool_now_ms();
	uv_timer_start(&r->look, on_look, 0, LOOK_MS);
}

int daemon_restart_open(uv_loop_t *loop, const struct daemon_restart_ops *ops,
			void *arg, struct daemon_restart *r)
{
	int err;

	*r = (struct daemon_restart){ .ops = ops, .arg = arg, .open = true };
	(void)uv_timer_init(loop, &r->look);
	(void)uv_signal_init(loop, &r->sig);
	r->look.data = r;
	r->sig.data = r;
	err = uv_signal_start(&r->sig, on_signal, SIGUSR2);
	if (err)
		pool_error("signals: %s", uv_strerror(err));
	return err;
}

void daemon_restart_close(struct daemon_restart *r)
{
	if (!r->open)
		return;
	r->open = false;
	uv_close((uv_handle_t *)&r->sig, NULL);
	uv_close((uv_handle_t *)&r->look, NULL);
}
