/*
 * The parts of kvpoold: kvpoold.c starts and stops them, node_pages.c shows
 * them.
 *
 * Thread: loop.
 */
#ifndef DAEMON_NODE_PROGRAM_H
#define DAEMON_NODE_PROGRAM_H

#include <limits.h>
#include <stdbool.h>

#include "daemon/admin.h"
#include "daemon/keeper.h"
#include "daemon/node_conf.h"
#include "daemon/program.h"
#include "daemon/restart.h"
#include "daemon/takeover.h"
#include "fs/session.h"
#include "master/ha.h"
#include "master/server.h"
#include "pool/base/busy.h"
#include "pool/node/node.h"
#include "pool/verbs/device.h"

struct node_program {
	struct daemon_program base; /* first */
	const struct daemon_node_conf *conf;
	struct pool_trust trust; /* conf's, with counters */
	struct pool_busy busy;
	struct pool_gauge bulk; /* 1; its label is the value of --bulk */
	struct verbs *verbs; /* NULL with --transport tcp */
	struct master *master; /* embedded, else NULL */
	struct pool_node *node;
	struct master_finder *finder; /* NULL without --etcd */
	struct fs *fs; /* NULL without --mount */
	struct daemon_admin *admin;
	struct daemon_takeover *takeover; /* NULL: cannot be handed over */
	struct daemon_keeper keeper;
	struct daemon_restart restart; /* by the keeper */
	uint64_t *were_open; /* pool_node_opts.were_open, until the mount was
				adopted; owns */
	struct daemon_taken taken; /* with --takeover, until it serves */
	char *mount; /* absolute */
	char dir[PATH_MAX]; /* of this node, in --run-dir */
	bool serving;
};

/* node_pages.c. arg: struct node_program *. The caller owns the result; NULL:
 * no memory. */
json_t *daemon_node_status_json(void *arg);
json_t *daemon_node_nodes_json(void *arg);
extern const struct daemon_admin_page daemon_node_pages[];

#endif
