#include "daemon/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "daemon/notify.h"
#include "daemon/pass.h"
#include "pool/base/unix.h"

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */
#define RETRY_MS 100
#define ANSWER_S 5

static int conn = -1; /* to `kvpool keep` */

static int connect_once(const char *path)
{
	int fd = pool_unix_connect(path, SOCK_SEQPACKET, ANSWER_S);

	if (fd < 0)
		return fd;
	/* Otherwise a process of another user could get the mount. */
	if (!daemon_peer_is_own(fd, NULL)) {
		close(fd);
		return -EPERM;
	}
	return fd;
}

int daemon_fdstore_connect(const char *path, int wait_ms)
{
	const struct timespec pause = { .tv_nsec = RETRY_MS * 1000000L };
	int fd;

	for (;;) {
		fd = connect_once(path);
		if ((fd != -ENOENT && fd != -ECONNREFUSED) || wait_ms <= 0)
			break;
		nanosleep(&pause, NULL);
		wait_ms -= RETRY_MS;
	}
	if (fd < 0)
		return fd;
	if (conn < 0) {
		conn = fd;
		return 0;
	}
	/* It keeps its number, which the loop knows. */
	if (dup3(fd, conn, O_CLOEXEC) < 0) {
		int err = -errno;

		close(fd);
		return err;
	}
	close(fd);
	return 0;
}

int daemon_fdstore_socket(void)
{
	return conn;
}

/* ---- systemd's ---- */

static long number_of(const char *env)
{
	const char *text = getenv(env);
	char *end;
	long n;

	if (!text || !*text)
		return 0;
	n = strtol(text, &end, 10);
	return *end ? 0 : n;
}

bool daemon_fdstore_offered(void)
{
	const char *to = getenv("NOTIFY_SOCKET");

	return conn >= 0 || (to && *to && number_of("FDSTORE") > 0);
}

static int inherited(const char *name)
{
	const char *at = getenv("LISTEN_FDNAMES");
	size_t len = strlen(name);
	long left = number_of("LISTEN_FDS");
	int fd = FIRST_FD;

	/* (Child processes inherit the environment, but it is not for them.) */
	if (!at || number_of("LISTEN_PID") != getpid())
		return -ENOENT;
	for (; left > 0; left--, fd++) {
		size_t n = strcspn(at, ":");

		if (n == len && strncmp(at, name, n) == 0)
			return fcntl(fd, F_SETFD, FD_CLOEXEC) ? -ENOENT : fd;
		if (!at[n])
			break;
		at += n + 1;
	}
	return -ENOENT;
}

/* ---- both ---- */

static int request(const char *what, const char *name, int fd)
{
	char text[sizeof(FDSTORE_REMOVE) + FDSTORE_NAME_MAX];

	snprintf(text, sizeof(text), "%s%s", what, name);
	return conn >= 0 ? daemon_pass(conn, text, strlen(text), fd) :
			   daemon_notify_send(text, fd);
}

int daemon_fdstore_take(const char *name)
{
	char answer[16] = "";
	int fd, err;
	ssize_t n;

	if (conn < 0)
		return inherited(name);
	err = request(FDSTORE_TAKE, name, -1);
	if (err)
		return err == -EAGAIN ? -ETIMEDOUT : err;
	do
		n = daemon_receive(conn, answer, sizeof(answer) - 1, &fd);
	while (n == -EINTR);
	if (n <= 0)
		return n == 0	    ? -ECONNRESET :
		       n == -EAGAIN ? -ETIMEDOUT : (int)n;
	return fd >= 0 ? fd :
	       strcmp(answer, FDSTORE_BUSY) == 0 ? -EBUSY : -ENOENT;
}

int daemon_fdstore_put(const char *name, int fd)
{
	/* kvpool keep replaces it. */
	int err = conn >= 0 ? 0 : daemon_fdstore_remove(name);

	return err ? err : request(FDSTORE_PUT, name, fd);
}

int daemon_fdstore_remove(const char *name)
{
	return request(FDSTORE_REMOVE, name, -1);
}
