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
#include "pool/base/turns.h"

struct daemon_program {
	uv_loop_t loop;
	struct pool_turns turns; /* the program registers them */
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
/* A step of the start has failed with err and has said so; but for a lack of
 * memory and the like, which is said here. Returns the program's status: 1. */
int daemon_start_failed(int err);
/* Every part is closed: the loop may end. */
void daemon_program_closed(struct daemon_program *p);
/* Tell the waiting parent that we serve; run until the end. The exit status. */
int daemon_program_run(struct daemon_program *p);

/* One page of a listing: 0, -EINVAL (token), -ENOMEM. */
typedef int (*daemon_objects_fn)(void *arg, const char *prefix,
				 const char *token, unsigned int limit,
				 json_t **ret_json);
/* /api/objects of either daemon: list what the query asks for. As
 * daemon_admin_json_fn. */
#define DAEMON_OBJECTS_PARAMS "prefix, limit, token"
json_t *daemon_objects_page(const struct daemon_admin_query *q,
			    daemon_objects_fn list, void *arg,
			    unsigned int *ret_status, const char **ret_text);

#endif
