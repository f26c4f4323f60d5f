/*
 * The admin address's Unix socket, for this user and root only:
 *
 *   RUN_DIR/admin-NETWORK-ADDRESS-PORT.sock
 *
 * NETWORK is the inode of the network namespace: daemons in several namespaces
 * may share RUN_DIR. A client that knows the TCP address can find the socket.
 *
 * Thread: any.
 */
#ifndef DAEMON_ADMIN_SOCKET_H
#define DAEMON_ADMIN_SOCKET_H

#include <stddef.h>
#include <sys/socket.h>

/* Writes the socket's path for this TCP address to buf (cap bytes). 0,
 * -ENAMETOOLONG (a socket's path has at most 107 bytes), -EAFNOSUPPORT,
 * -errno. */
int admin_socket_path(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap);
/* Listens at path, mode 0600. Replaces an existing socket: the TCP address has
 * one owner at a time, so it is stale. Returns a descriptor, or -errno. */
int admin_socket_listen(const char *path);
/*
 * For clients: finds the socket of the daemon that listens on this TCP address,
 * or on the wildcard address. 0; -ENOENT: there is none, or it belongs to
 * another user.
 */
int admin_socket_find(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap);

#endif
