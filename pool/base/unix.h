/*
 * Unix sockets that have a path. `type` is that of socket(2): SOCK_STREAM or
 * SOCK_SEQPACKET, perhaps with SOCK_NONBLOCK.
 *
 * Thread: any, no state.
 */
#ifndef POOL_BASE_UNIX_H
#define POOL_BASE_UNIX_H

#include <sys/un.h>

/* 0 or -ENAMETOOLONG. */
int pool_unix_address(const char *path, struct sockaddr_un *ret);
/* A socket, or -errno. timeout_s: of connecting, and of each call that sends or
 * receives afterwards; 0: none. */
int pool_unix_connect(const char *path, int type, unsigned int timeout_s);
/* A socket that listens at path, which only this user can connect to, or
 * -errno. */
int pool_unix_listen(const char *path, int type, int backlog);
/* Removes a socket file without a listener. 0: nothing is at path; -EEXIST: no
 * socket; -EADDRINUSE: one that is listened at; -errno. */
int pool_unix_clear(const char *path, int type);

#endif
