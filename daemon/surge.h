/*
 * A daemon in a container that its successor replaces before it ends, as a
 * Kubernetes DaemonSet with maxSurge does (kvpoold --surge). Both share the
 * host's network and --run-dir.
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
/* Is that what this process was started for? Call it first in main(). */
bool daemon_surge_waits(int argc, char **argv);
/* Then this is all of main(): the exit status. */
int daemon_surge_wait_main(void);

#endif
