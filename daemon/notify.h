/*
 * Notifications to systemd, for a service with Type=notify: it is ready; its
 * main process has changed (take-over). See sd_notify(3). No-ops if
 * NOTIFY_SOCKET is not set, because something else started the daemon.
 *
 * A failure is logged and otherwise ignored.
 *
 * Thread: main.
 */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <sys/types.h>

/* Sends text, with a copy of fd unless that is -1. 0 or -errno, logged. */
int daemon_notify_send(const char *text, int fd);
void daemon_notify_ready(void);
/* From now on pid is the service's main process. The old main process must call
 * this before it exits: systemd would take its exit for the service's end. */
void daemon_notify_main(pid_t pid);

#endif
