/*
 * A daemon ends and leaves its mount to the next one, which its keeper starts
 * (daemon/keeper.h). `kvpool restart` uses this where no take-over is possible:
 * it sends SIGUSR2 to the keeper, which sends it on to the daemon (or, if the
 * service manager is the keeper, to the daemon directly).
 *
 * It stops reading requests, completes those in flight, waits until every
 * change is acked by the master, and exits. Nothing is lost but files that are
 * open for writing. If it cannot exit within RESTART_QUIET_MS, it continues,
 * and logs why.
 *
 * Thread: loop.
 */
#ifndef DAEMON_RESTART_H
#define DAEMON_RESTART_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define RESTART_QUIET_MS 5000
#define RESTART_STATUS 75 /* of its exit; EX_TEMPFAIL: start the next one */

struct daemon_restart_ops {
	/* Stops reading requests. */
	void (*pause)(void *arg);
	/* While paused: NULL, or what would be lost now; it ends by itself. */
	const char *(*busy)(void *arg);
	/* It is not restarted: continue serving. */
	void (*resume)(void *arg);
	/* Last, before the exit. */
	void (*leave)(void *arg);
};

struct daemon_restart {
	uv_signal_t sig;
	uv_timer_t look;
	const struct daemon_restart_ops *ops;
	void *arg;
	uint64_t since_ms; /* paused since; 0: not paused */
	bool open;
};

/* ops and arg are borrowed. 0 or -errno, logged. */
int daemon_restart_open(uv_loop_t *loop, const struct daemon_restart_ops *ops,
			void *arg, struct daemon_restart *r);
/* No-op if it is not open. */
void daemon_restart_close(struct daemon_restart *r);

#endif
