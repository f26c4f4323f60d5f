/*
 * The admin address's Unix socket, for this user and root alone:
 *
 *   RUN_DIR/admin-NETWORK-ADDRESS-PORT.sock
 *
 * NETWORK is the inode of the network namespace, as daemons in several may share
 * RUN_DIR. So who knows the TCP address finds the socket.
 *
 * Thread: any.
 */
#ifndef DAEMON_ADMIN_SOCKET_H
#define DAEMON_ADMIN_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>

/* 0, -ENAMETOOLONG (sockets' paths have 107 bytes), -EAFNOSUPPORT, -errno. */
int admin_socket_path(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap);
/* Listens there, mode 0600; what was there before is replaced, as the TCP
 * address has one owner at a time. A descriptor, or -errno. */
int admin_socket_listen(const char *path);
/*
 * For who asks: the socket of the daemon with that TCP address, which also may
 * be listening on all of them. 0; -ENOENT: there is none, or it is somebody
 * else's.
 */
int admin_socket_find(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap);

#endif
