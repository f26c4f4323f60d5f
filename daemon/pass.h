/*
 * Messages with a descriptor over a Unix socket, and who is at its other end.
 *
 * Thread: any.
 */
#ifndef DAEMON_PASS_H
#define DAEMON_PASS_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Sends len bytes, with a copy of fd unless that is -1. 0 or -errno. */
int daemon_pass(int sock, const void *data, size_t len, int fd);
/* Receives one message. *ret_fd: the caller's, close-on-exec; -1: none came;
 * further ones are closed. Its length, 0 at the end, or -errno. */
ssize_t daemon_receive(int sock, void *data, size_t cap, int *ret_fd);
/* Is the other end of this process's user, or root's? ret_uid: NULL, or its
 * user (-1: not known). */
bool daemon_peer_is_own(int sock, uid_t *ret_uid);

#endif
