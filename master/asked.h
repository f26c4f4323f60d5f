/*
 * What the mounts of the pool asked for: reports of the nodes, merged. A name
 * that several nodes asked for counts once, because all sketches use one seed:
 * that of the first report, which the master sends to all nodes in heartbeats.
 *
 * A report is hostile input. Its counts and its size are bounded. It is refused
 * if its sketches are invalid or have more names than look-ups, or if its
 * directories have more look-ups than all: these are impossible figures. A
 * directory that its node may not see counts among the others. A node can still
 * lie about its look-ups.
 *
 * Memory: at most MASTER_ASKED_BYTES for each connected node, 2 KiB for each
 * directory that its mount uses.
 *
 * Thread: loop.
 */
#ifndef MASTER_ASKED_H
#define MASTER_ASKED_H

#include <jansson.h>

#include "master/impl.h"
#include "pool/base/distinct.h"

#define MASTER_ASKED_BYTES (160u << 10) /* of a report, packed */

/* hb->asked: takes it over if it is valid. */
void master_on_asked(struct master_session *s, Kvpool__Heartbeat *hb);
/* Of the connected nodes. */
void master_asked_totals(const struct master *m,
			 struct pool_seen ret[POOL_ASKED_WINDOWS]);
/* A new reference, or NULL: ENOMEM. */
json_t *master_asked_json(const struct master *m);

#endif
