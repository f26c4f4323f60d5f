#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tests/chaos/chaos.h"

/* What one mount shows of a key. */
struct sight {
	long len; /* or -errno */
	uint64_t id;
};

static uint8_t buf[CHAOS_SIZE_MAX + 8];

static struct sight look(struct chaos_key *key, int mount)
{
	struct sight s = { .id = 0 };
	struct chaos_view view;
	char path[CHAOS_PATH];
	bool opened;

	chaos_path(path, mount, key);
	chaos_view_take(key, mount, &view);
	s.len = chaos_read(path, buf, &opened);
	if (s.len >= 16) {
		chaos_judge(key, &view, buf, (size_t)s.len);
		memcpy(&s.id, buf + 8, sizeof(s.id));
	} else if (s.len != -ENOENT || opened) {
		chaos_fail(key, "mount %d: after healing: %s", mount,
			   s.len < 0 ? strerror((int)-s.len) : "too short");
	}
	return s;
}

static bool listed(struct chaos_key *key, int mount)
{
	char path[CHAOS_PATH];
	const char *base = strchr(key->name, '/') + 1;
	struct dirent *e;
	bool found = false;
	DIR *d;

	snprintf(path, sizeof(path), "%s/%s", chaos.mounts[mount].dir,
		 key->dir->name);
	d = opendir(path);
	while (d && !found && (e = readdir(d)))
		found = strcmp(e->d_name, base) == 0;
	if (d)
		closedir(d);
	return found;
}

/* 0 copies: the key does not exist. */
static unsigned int copies(struct chaos_key *key, int mount)
{
	char path[CHAOS_PATH], text[16] = "";

	chaos_path(path, mount, key);
	if (getxattr(path, "user.kvpool.holders", text, sizeof(text) - 1) < 0)
		return 0;
	return (unsigned int)atoi(text);
}

/* True: something is not right with the key yet; `why` describes it. False:
 * *ret_id is the content that all mounts show. */
static bool wrong(struct chaos_key *key, uint64_t *ret_id, char *why,
		  size_t cap)
{
	struct sight first = look(key, 0), s;
	unsigned int n;

	if (chaos_owed(key) && first.len < 0) {
		snprintf(why, cap,
			 "version %u was acknowledged and is lost (%s)",
			 chaos_owed(key), strerror((int)-first.len));
		return true;
	}
	for (unsigned int m = 1; m < chaos.nmounts; m++) {
		s = look(key, (int)m);
		if (s.len != first.len || s.id != first.id) {
			snprintf(why, cap, "mount 0 has %ld bytes of %" PRIx64
				 ", mount %u %ld of %" PRIx64, first.len,
				 first.id, m, s.len, s.id);
			return true;
		}
	}
	for (unsigned int m = 0; m < chaos.nmounts; m++)
		if (listed(key, (int)m) != (first.len >= 0)) {
			snprintf(why, cap, "mount %u %s it, but it is %s", m,
				 first.len >= 0 ? "does not list" : "lists",
				 first.len >= 0 ? "there" : "not there");
			return true;
		}
	n = copies(key, 0);
	if (first.len >= 0 && n < key->dir->replicas) {
		snprintf(why, cap, "%u copies, not %u", n, key->dir->replicas);
		return true;
	}
	*ret_id = first.id;
	return false;
}

/* Repeats the check if it failed while the machine stalled. */
static int sync_dir_of(int mount, const struct chaos_dir *d)
{
	uint32_t stills;
	uint64_t ms;
	int err;

	do {
		stills = chaos_stills(&ms);
		err = chaos_fsync_dir(mount, d);
	} while (err && chaos_stills(&ms) != stills);
	return err;
}

static void sync_all(void)
{
	for (unsigned int m = 0; m < chaos.nmounts; m++)
		for (const struct chaos_dir *d = chaos_dirs; d->name; d++) {
			int err = sync_dir_of((int)m, d);

			if (err)
				chaos_fail(NULL, "mount %u: after healing: "
						 "fsync of %s: %s",
					   m, d->name, strerror(err));
		}
}

unsigned int chaos_whole(unsigned int limit_s)
{
	uint64_t end = chaos_now_ms() + limit_s * 1000ull, id = 0;
	unsigned int there = 0, owed = 0;
	char why[160];

	sync_all();
	for (unsigned int i = 0; i < chaos.nkeys && !chaos.failed; i++) {
		struct chaos_key *key = &chaos.keys[i];

		while (wrong(key, &id, why, sizeof(why)) && !chaos.failed) {
			if (chaos_now_ms() > end) {
				chaos_fail(key, "%u s after healing: %s",
					   limit_s, why);
				return owed;
			}
			usleep(100000);
		}
		there += copies(key, 0) > 0;
		owed += chaos_owed(key) > 0;
		chaos_version_rebase(key, id);
	}
	fprintf(stderr, "whole: %u of %u names are there, on all mounts with "
			"the same bytes; %u had to be\n",
		there, chaos.nkeys, owed);
	return owed;
}
