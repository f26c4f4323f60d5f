/*
 * What both daemons share: the loop, the signals, the registry of metrics, and
 * the way from start to end.
 *
 *   daemon_program_open -> (the program opens its parts) -> daemon_program_run
 *   SIGTERM, SIGINT or daemon_program_stop -> stop(p), once: the program closes
 *   its parts, and calls daemon_program_closed when the last is -> run returns
 *
 * Thread: main. One per process: the storage is the caller's, static.
 */
#ifndef DAEMON_PROGRAM_H
#define DAEMON_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/admin.h"
#include "pool/base/metric.h"

struct daemon_program {
	uv_loop_t loop;
	uv_signal_t term, intr, hup;
	struct pool_metrics *metrics;
	void (*stop)(struct daemon_program *p);
	bool closing;
};

/* Loop, metrics, signals (SIGPIPE ignored, SIGHUP opens the log again). 0 or
 * -errno, logged. */
int daemon_program_open(struct daemon_program *p,
			void (*stop)(struct daemon_program *p));
/* Ask for the end, as SIGTERM does. */
void daemon_program_stop(struct daemon_program *p);
/* Every part is closed: the loop may end. */
void daemon_program_closed(struct daemon_program *p);
/* Tell the waiting parent that we serve; run until the end. The exit status. */
int daemon_program_run(struct daemon_program *p);

/* ?limit= of a paged page: 0, or -EINVAL with *ret_status and *ret_text set. */
int daemon_page_limit(const struct daemon_admin_query *q,
		      unsigned int *ret_limit, unsigned int *ret_status,
		      const char **ret_text);

#endif
