#include "daemon/notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/pass.h"
#include "pool/base/log.h"

static int send_to(const char *path, const char *text, int with)
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
	if (connect(fd, (struct sockaddr *)&un,
		    (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)))
		err = -errno;
	if (!err)
		err = daemon_pass(fd, text, strlen(text), with);
	close(fd);
	return err;
}

int daemon_notify_send(const char *text, int fd)
{
	const char *path = getenv("NOTIFY_SOCKET");
	int err;

	if (!path || !*path)
		return 0;
	err = send_to(path, text, fd);
	if (err)
		pool_warn("cannot send %s to systemd (NOTIFY_SOCKET is %s): %s",
			  text, path, strerror(-err));
	return err;
}

void daemon_notify_ready(void)
{
	(void)daemon_notify_send("READY=1", -1);
}

void daemon_notify_main(pid_t pid)
{
	char text[32];

	snprintf(text, sizeof(text), "MAINPID=%d", (int)pid);
	(void)daemon_notify_send(text, -1);
}
