/*
 * /api/drain?node=NAME: GET reports the progress of draining a node. POST
 * starts a drain, or cancels it with &cancel=1. master/server.h says what a
 * drain does.
 *
 * Thread: loop.
 */
#ifndef DAEMON_DRAIN_PAGE_H
#define DAEMON_DRAIN_PAGE_H

#include "daemon/admin.h"
#include "master/server.h"

#define DAEMON_DRAIN_PARAMS "node"
#define DAEMON_DRAIN_POST_PARAMS "node, cancel"
json_t *daemon_drain_page(struct master *m, const struct daemon_admin_query *q,
			  bool post, unsigned int *ret_status,
			  const char **ret_text);

#endif
