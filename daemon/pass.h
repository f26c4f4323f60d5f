/*
 * A message with a descriptor, over a Unix socket.
 *
 * Thread: any.
 */
#ifndef DAEMON_PASS_H
#define DAEMON_PASS_H

#include <stddef.h>

/* Sends len bytes, with a copy of fd unless that is -1. 0 or -errno. */
int daemon_pass(int sock, const void *data, size_t len, int fd);

#endif
