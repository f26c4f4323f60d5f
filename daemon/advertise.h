/*
 * Is the address that a node tells to others one by which they can reach it?
 *
 * Thread: main.
 */
#ifndef DAEMON_ADVERTISE_H
#define DAEMON_ADVERTISE_H

#include <stdio.h>

#include "daemon/options.h"

/*
 * listen (OPT_HOSTPORT) and advertise (OPT_STRING) as given: nobody can connect
 * to 0.0.0.0 or [::], so who listens there has to advertise something else.
 * 0 or -EINVAL (reported, with the remedy).
 */
int daemon_advertise_check(const struct daemon_option *listen,
			   const struct daemon_option *advertise, FILE *err);
/*
 * Log a warning if what is advertised (NULL: listen) is of this host alone, but
 * the master is not: then nodes of other hosts will join.
 */
void daemon_advertise_warn(const struct pool_hostport *listen,
			   const char *advertise,
			   const struct pool_hostport *master);

#endif
