/*
 * Pages of a master, which kvpool-master and a node with an embedded master
 * serve.
 *
 * Thread: loop.
 */
#ifndef DAEMON_MASTER_PAGES_H
#define DAEMON_MASTER_PAGES_H

#include "daemon/admin.h"
#include "daemon/drain_page.h"
#include "daemon/fault_page.h"
#include "daemon/tls.h"
#include "master/server.h"

#define DAEMON_EVENTS_PARAMS "since, limit"
/* The pages that all daemons have besides status and nodes; their handlers are
 * functions of the file that has the table. */
#define DAEMON_PAGES_COMMON                                                   \
	{ .path = "/api/objects",                                             \
	  .fn = objects_page,                                                 \
	  .params = DAEMON_OBJECTS_PARAMS,                                    \
	  .names = true },                                                    \
	{ .path = "/api/directories",                                         \
	  .fn = directories_page,                                             \
	  .names = true },                                                    \
	{ .path = "/api/events",                                              \
	  .fn = events_page,                                                  \
	  .params = DAEMON_EVENTS_PARAMS },                                   \
	{ .path = "/api/faults",                                              \
	  .fn = daemon_faults_get,                                            \
	  .admin = true,                                                      \
	  .post = daemon_faults_post,                                         \
	  .post_params = DAEMON_FAULTS_POST_PARAMS },                         \
	{ .path = "/api/drain",                                               \
	  .fn = drain_page,                                                   \
	  .params = DAEMON_DRAIN_PARAMS,                                      \
	  .post = drain_post,                                                 \
	  .post_params = DAEMON_DRAIN_POST_PARAMS,                            \
	  .post_insecure = true }
/* {"role": "master", "version", "pid", "links", "privileges"}, `election` if it
 * is not NULL (takes it), and the figures of m (NULL: a standby). */
json_t *daemon_master_status_page(struct master *m, const struct daemon_tls *t,
				  json_t *election);
/* /api/objects */
json_t *daemon_master_objects_page(struct master *m,
				   const struct daemon_admin_query *q,
				   unsigned int *ret_status,
				   const char **ret_text);
/* /api/events (master/events.h), /api/directories (master/server.h) */
json_t *daemon_events_page(struct master *m, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text);
json_t *daemon_directories_page(struct master *m, unsigned int *ret_status,
				const char **ret_text);

#endif
