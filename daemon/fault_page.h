/*
 * /api/faults: shows and changes the injected faults (pool/conn/fault_rules.h)
 * of a running daemon that was started with --allow-faults.
 *
 *   GET                                  the rules, and how often each acted
 *   POST ?clear=yes                      removes all rules
 *   POST ?kind=delay|drop|reset|corrupt  adds a rule:
 *        &peer=all|HOST|HOST:PORT        (default all)
 *        &direction=send|receive|both    (default send)
 *        &delay=DURATION                 with kind=delay
 *        &nth=N | &probability=P         which messages (default: all)
 *
 * Without --allow-faults the answer is 403. POST is accepted from loopback
 * only; with TLS, GET and POST are for admins only (daemon/admin.h).
 *
 * Thread: loop; daemon_faults_allow: main, before the first connection.
 */
#ifndef DAEMON_FAULT_PAGE_H
#define DAEMON_FAULT_PAGE_H

#include "daemon/admin.h"

/* 0 or -ENOMEM (logged). */
int daemon_faults_allow(struct pool_metrics *metrics);

#define DAEMON_FAULTS_POST_PARAMS \
	"clear, kind, peer, direction, delay, nth, probability"
json_t *daemon_faults_get(void *arg, const struct daemon_admin_query *q,
			  unsigned int *ret_status, const char **ret_text);
json_t *daemon_faults_post(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text);

#endif
