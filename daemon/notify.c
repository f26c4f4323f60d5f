#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "pool/base/log.h"

static int send_to(const char *path, const char *text)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	size_t n = strlen(path);
	int fd, err = 0;

	if (n >= sizeof(un.sun_path))
		return -ENAMETOOLONG;
	memcpy(un.sun_path, path, n);
	if (path[0] == '@') /* an abstract one */
		un.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, text, strlen(text), MSG_NOSIGNAL,
		   (struct sockaddr *)&un,
		   (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) < 0)
		err = -errno;
	close(fd);
	return err;
}

static void notify(const char *text)
{
	const char *path = getenv("NOTIFY_SOCKET");
	int err;

	if (!path || !*path)
		return;
	err = send_to(path, text);
	if (err)
		pool_warn("cannot send %s to systemd (NOTIFY_SOCKET is %s): %s",
			  text, path, strerror(-err));
}

void daemon_notify_ready(void)
{
	notify("READY=1");
}

void daemon_notify_main(pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "MAINPID=%d", (int)pid);
	notify(text);
}
