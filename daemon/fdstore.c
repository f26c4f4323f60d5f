#include "daemon/fdstore.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/notify.h"

#define FIRST_FD 3 /* SD_LISTEN_FDS_START */
#define NAME_MAX_LEN 64

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

	return to && *to && number_of("FDSTORE") > 0;
}

int daemon_fdstore_take(const char *name)
{
	const char *at = getenv("LISTEN_FDNAMES");
	size_t len = strlen(name);
	int fd = FIRST_FD, end;

	/* (What it starts inherits the environment.) */
	if (!at || number_of("LISTEN_PID") != getpid())
		return -1;
	end = FIRST_FD + (int)number_of("LISTEN_FDS");
	for (; fd < end; fd++) {
		size_t n = strcspn(at, ":");

		if (n == len && strncmp(at, name, n) == 0)
			return fcntl(fd, F_SETFD, FD_CLOEXEC) ? -1 : fd;
		if (!at[n])
			break;
		at += n + 1;
	}
	return -1;
}

int daemon_fdstore_put(const char *name, int fd)
{
	char text[sizeof("FDSTORE=1\nFDNAME=") + NAME_MAX_LEN];
	int err = daemon_fdstore_remove(name);

	if (err)
		return err;
	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);
	return daemon_notify_send(text, fd);
}

int daemon_fdstore_remove(const char *name)
{
	char text[sizeof("FDSTOREREMOVE=1\nFDNAME=") + NAME_MAX_LEN];

	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return daemon_notify_send(text, -1);
}
