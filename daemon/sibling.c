#include "daemon/sibling.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Is DIR/name an executable? dir is not NUL-terminated. */
static bool try(const char *dir, size_t dir_len, const char *name, char *buf,
		size_t cap)
{
	int n = snprintf(buf, cap, "%.*s/%s", (int)dir_len, dir, name);

	return n > 0 && (size_t)n < cap && access(buf, X_OK) == 0;
}

static bool try_beside(const char *name, char *buf, size_t cap)
{
	char self[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
	const char *slash;

	if (n <= 0)
		return false;
	self[n] = '\0';
	slash = strrchr(self, '/');
	return slash && try(self, (size_t)(slash - self), name, buf, cap);
}

static bool try_list(const char *list, const char *name, char *buf, size_t cap)
{
	while (list && *list) {
		size_t len = strcspn(list, ":");

		if (len && try(list, len, name, buf, cap))
			return true;
		list += len + (list[len] == ':');
	}
	return false;
}

int daemon_sibling_path(const char *name, char *buf, size_t cap)
{
	if (try_beside(name, buf, cap) ||
	    try_list(getenv("PATH"), name, buf, cap) ||
	    try_list("/usr/local/bin:/usr/bin", name, buf, cap))
		return 0;
	fprintf(stderr,
		"%s: the program %s is neither beside this one nor in PATH\n",
		program_invocation_short_name, name);
	return -ENOENT;
}
