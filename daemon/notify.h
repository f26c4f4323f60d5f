/*
 * What systemd is told of a service with Type=notify: that it is ready, and
 * which process it is after a take-over. See sd_notify(3). Started by anything
 * else (NOTIFY_SOCKET is not set), these do nothing.
 *
 * Never an error: the daemon serves whether or not it is heard. A failure is
 * logged.
 *
 * Thread: main.
 */
#ifndef DAEMON_NOTIFY_H
#define DAEMON_NOTIFY_H

#include <sys/types.h>

void daemon_notify_ready(void);
/* From now on pid is the service. Sent by the process that was it until now and
 * has not ended: afterwards the service would have ended, too. */
void daemon_notify_main(pid_t pid);

#endif
