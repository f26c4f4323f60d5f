/*
 * Quarantine: damaged files are renamed to "bad-ID" and stay in the directory
 * for inspection. No other file has such a name, and later starts leave these
 * alone. They take memory, so their number and size are limited.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/store/store_priv.h"

#define PREFIX "bad-"

bool store_bad_name(const char *name)
{
	uint64_t id;

	return strncmp(name, PREFIX, strlen(PREFIX)) == 0 &&
	       store_name_parse(name + strlen(PREFIX), &id);
}

int store_bad_scan(struct pool_store *s)
{
	DIR *dir = opendir(s->path);
	struct dirent *e;
	struct stat st;
	int rc;

	if (dir == NULL) {
		rc = -errno;
		pool_error("store: scanning %s: %s", s->path, strerror(-rc));
		return rc;
	}
	while ((e = readdir(dir)) != NULL) {
		if (!store_bad_name(e->d_name) ||
		    fstatat(s->dirfd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		s->nbad++;
		s->bad_bytes += (uint64_t)st.st_blocks * 512;
	}
	closedir(dir);
	return 0;
}

static bool fits(const struct pool_store *s, uint64_t bytes)
{
	return s->nbad < POOL_BAD_FILES &&
	       s->bad_bytes + bytes <= s->size / POOL_BAD_SHARE;
}

void pool_store_quarantine(struct pool_store *s, uint64_t id, const char *why)
{
	char name[STORE_NAME_LEN + 1], bad[sizeof(PREFIX) + STORE_NAME_LEN];
	struct stat st;
	uint64_t bytes;

	store_name(id, name);
	snprintf(bad, sizeof(bad), PREFIX "%s", name);
	if (fstatat(s->dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
	    errno == ENOENT)
		return;
	bytes = (uint64_t)st.st_blocks * 512;
	pool_count(&s->n.quarantined);
	if (!fits(s, bytes) || renameat(s->dirfd, name, s->dirfd, bad) < 0) {
		pool_count(&s->n.quarantine_full);
		pool_warn("store %s: %s: %s: removed (the quarantine is full)",
			  s->path, name, why);
		store_unlink(s, id);
		return;
	}
	s->nbad++;
	s->bad_bytes += bytes;
	pool_warn("store %s: %s: %s: quarantined as %s", s->path, name, why,
		  bad);
}
