/*
 * Can other nodes reach this one by the address that it advertises?
 *
 * Thread: main.
 */
#ifndef DAEMON_ADVERTISE_H
#define DAEMON_ADVERTISE_H

#include <stdio.h>

#include "daemon/options.h"

/*
 * Checks the options listen (OPT_HOSTPORT) and advertise (OPT_STRING): no peer
 * can connect to 0.0.0.0 or [::], so a node that listens there must advertise
 * another address. 0 or -EINVAL (printed to err, with the remedy).
 */
int daemon_advertise_check(const struct daemon_option *listen,
			   const struct daemon_option *advertise, FILE *err);
/*
 * Logs a warning if the advertised address (NULL: listen) can be reached from
 * this host only, although the master is on another host: then there are
 * probably nodes on other hosts, which need to reach this one.
 */
void daemon_advertise_warn(const struct pool_hostport *listen,
			   const char *advertise,
			   const struct pool_hostport *master);

#endif
