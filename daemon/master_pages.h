/*
 * Pages of a master, which kvpool-master and a node with an embedded master
 * serve: /api/events (master/events.h) and /api/directories (master/server.h).
 *
 * Thread: loop.
 */
#ifndef DAEMON_MASTER_PAGES_H
#define DAEMON_MASTER_PAGES_H

#include "daemon/admin.h"
#include "master/server.h"

#define DAEMON_EVENTS_PARAMS "since, limit"
json_t *daemon_events_page(struct master *m, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text);
json_t *daemon_directories_page(struct master *m, unsigned int *ret_status,
				const char **ret_text);

#endif
