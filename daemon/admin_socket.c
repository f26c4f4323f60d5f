#include "daemon/admin_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/unix.h"

#define BACKLOG 64

static int format(const char *run_dir, const char *address, uint16_t port,
		  char *buf, size_t cap)
{
	struct stat net;
	int n;

	if (stat("/proc/self/ns/net", &net))
		net.st_ino = 0;
	n = snprintf(buf, cap, "%s/admin-%llu-%s-%u.sock", run_dir,
		     (unsigned long long)net.st_ino, address, port);
	if (n < 0 || (size_t)n >= cap ||
	    (size_t)n >= sizeof(((struct sockaddr_un *)0)->sun_path))
		return -ENAMETOOLONG;
	return 0;
}

/* An IPv4-mapped address of an IPv6 socket counts as IPv4. */
static int read_tcp(const struct sockaddr *tcp, char *text, socklen_t cap,
		    uint16_t *ret_port)
{
	const struct sockaddr_in *in4 = (const void *)tcp;
	const struct sockaddr_in6 *in6 = (const void *)tcp;
	bool v4 = tcp->sa_family == AF_INET;
	const void *addr = v4 ? (const void *)&in4->sin_addr :
				(const void *)&in6->sin6_addr;

	if (!v4 && tcp->sa_family != AF_INET6)
		return -EAFNOSUPPORT;
	*ret_port = ntohs(v4 ? in4->sin_port : in6->sin6_port);
	if (!v4 && IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
		v4 = true;
		addr = &in6->sin6_addr.s6_addr[12];
	}
	return inet_ntop(v4 ? AF_INET : AF_INET6, addr, text, cap) ? 0 : -errno;
}

int admin_socket_path(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap)
{
	char text[INET6_ADDRSTRLEN];
	uint16_t port;
	int err = read_tcp(tcp, text, sizeof(text), &port);

	return err ? err : format(run_dir, text, port, buf, cap);
}

int admin_socket_listen(const char *path)
{
	char temporary[sizeof(((struct sockaddr_un *)0)->sun_path)];
	int n = snprintf(temporary, sizeof(temporary), "%s.%d", path,
			 (int)getpid());
	int fd, err;

	if (n < 0 || (size_t)n >= sizeof(temporary))
		return -ENAMETOOLONG;
	unlink(temporary);
	fd = pool_unix_listen(temporary, SOCK_STREAM | SOCK_NONBLOCK, BACKLOG);
	if (fd >= 0 && rename(temporary, path)) {
		err = -errno;
		unlink(temporary);
		close(fd);
		return err;
	}
	return fd;
}

static bool is_ours(const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && S_ISSOCK(st.st_mode) &&
	       (st.st_uid == geteuid() || st.st_uid == 0);
}

int admin_socket_find(const char *run_dir, const struct sockaddr *tcp,
		      char *buf, size_t cap)
{
	const char *of[] = { NULL, "0.0.0.0", "::" };
	char text[INET6_ADDRSTRLEN];
	uint16_t port;
	int err = read_tcp(tcp, text, sizeof(text), &port);

	of[0] = text;
	for (size_t i = 0; i < 3 && !err; i++)
		if (format(run_dir, of[i], port, buf, cap) == 0 && is_ours(buf))
			return 0;
	return -ENOENT;
}
