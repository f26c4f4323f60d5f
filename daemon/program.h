/*
 * Shared by both daemons: the loop, signals, the metrics registry, and the life
 * of the process.
 *
 *   daemon_program_open -> (the program opens its parts) -> daemon_program_run
 *   SIGTERM, SIGINT or daemon_program_stop -> stop(p), once: the program closes
 *   its parts and calls daemon_program_closed after the last -> run returns
 *
 * Thread: main. One per process, in static storage of the caller.
 */
#ifndef DAEMON_PROGRAM_H
#define DAEMON_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "daemon/admin.h"
#include "daemon/tls.h"
#include "pool/base/metric.h"
#include "pool/base/turns.h"

struct daemon_program {
	uv_loop_t loop;
	struct pool_turns turns; /* each program registers its metrics */
	uv_signal_t term, intr, hup;
	struct pool_metrics *metrics;
	struct daemon_tls tls; /* each program opens it, with its own role */
	void (*stop)(struct daemon_program *p);
	bool closing;
};

/* Sets up loop, metrics and signals (SIGPIPE is ignored, SIGHUP reopens the
 * log and reads changed certificates). 0 or -errno, logged. */
int daemon_program_open(struct daemon_program *p,
			void (*stop)(struct daemon_program *p));
/* Begins the shutdown, like SIGTERM. */
void daemon_program_stop(struct daemon_program *p);
/* A step of the start has failed with err. The step has logged why, except for
 * a lack of memory, descriptors or threads, which is logged here. Returns the
 * program's exit status, 1. */
int daemon_start_failed(int err);
/* Every part is closed: the loop may end. */
void daemon_program_closed(struct daemon_program *p);
/* Lets the waiting parent exit, and runs until shutdown. Returns the exit
 * status. */
int daemon_program_run(struct daemon_program *p);

/* Lists one page of objects: 0, -EINVAL (bad token), -ENOMEM. */
typedef int (*daemon_objects_fn)(void *arg, const char *prefix,
				 const char *token, unsigned int limit,
				 json_t **ret_json);
/* /api/objects of both daemons: parses the query and calls list. Returns as
 * daemon_admin_json_fn. */
#define DAEMON_OBJECTS_PARAMS "prefix, limit, token"
json_t *daemon_objects_page(const struct daemon_admin_query *q,
			    daemon_objects_fn list, void *arg,
			    unsigned int *ret_status, const char **ret_text);

#endif
