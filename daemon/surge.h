/*
 * A daemon in a container whose successor starts before it ends, as with
 * maxSurge of a Kubernetes DaemonSet (kvpoold --surge). Both share the host's
 * network and --run-dir.
 *
 *   old container                     new container
 *   serves                            starts, takes over if a daemon runs
 *   has handed over, waits            serves
 *   SIGTERM: ends with 0
 *
 * If the old daemon ended after the hand-over, its container would be started
 * again, and would take the mount back.
 *
 * Thread: main.
 */
#ifndef DAEMON_SURGE_H
#define DAEMON_SURGE_H

#include <stdbool.h>

/* Does a daemon run? dir: of the node, in --run-dir. */
bool daemon_surge_is_running(const char *dir);
/* After the hand-over: replaces this process by one with the same pid that has
 * nothing of it but standard error, and ends with 0 at SIGTERM or SIGINT. Does
 * not return. */
void daemon_surge_wait(void) __attribute__((noreturn));
/* Was this process started by daemon_surge_wait? Call it first in main(). */
bool daemon_surge_waits(int argc, char **argv);
/* If so, this is all of main(). Returns the exit status. */
int daemon_surge_wait_main(void);

#endif
