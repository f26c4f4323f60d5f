#include "pool/base/unix.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

int pool_unix_address(const char *path, struct sockaddr_un *ret)
{
	memset(ret, 0, sizeof(*ret));
	ret->sun_family = AF_UNIX;
	if (strlen(path) >= sizeof(ret->sun_path))
		return -ENAMETOOLONG;
	strcpy(ret->sun_path, path);
	return 0;
}

/* Closes fd; returns -errno from before. */
static int close_failed(int fd)
{
	int err = -errno;

	close(fd);
	return err;
}

/* A socket, and the address of path for it. The socket or -errno. */
static int open_for(const char *path, int type, struct sockaddr_un *ret)
{
	int fd, err = pool_unix_address(path, ret);

	if (err)
		return err;
	fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

int pool_unix_connect(const char *path, int type, unsigned int timeout_s)
{
	const struct timeval tv = { .tv_sec = timeout_s };
	struct sockaddr_un un;
	int fd = open_for(path, type, &un);

	if (fd < 0)
		return fd;
	/* connect(2) waits for as long as it may take to send. */
	if ((timeout_s &&
	     (setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) ||
	      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof(tv)))) ||
	    connect(fd, (struct sockaddr *)&un, sizeof(un)))
		return close_failed(fd);
	return fd;
}

int pool_unix_listen(const char *path, int type, int backlog)
{
	struct sockaddr_un un;
	int fd = open_for(path, type, &un);

	if (fd < 0)
		return fd;
	/* Before bind, which gives the file this mode (less the umask): other
	 * users can never connect. */
	if (fchmod(fd, 0600) || bind(fd, (struct sockaddr *)&un, sizeof(un)) ||
	    listen(fd, backlog))
		return close_failed(fd);
	return fd;
}

int pool_unix_clear(const char *path, int type)
{
	struct stat st;
	int fd;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = pool_unix_connect(path, type | SOCK_NONBLOCK, 0);
	if (fd >= 0)
		close(fd);
	if (fd != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) ? -errno : 0;
}
