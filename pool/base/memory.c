/*
 * The limit of a memory cgroup is the least of those from the process's own
 * group up to the root of the mounted hierarchy. /proc/self/cgroup names the
 * group ("9:memory:/a/b" is v1, "0::/a/b" v2); /proc/self/mountinfo has the
 * mount. In a container the mount's root is often the group itself (root
 * /docker/x, group /docker/x), or, with a cgroup namespace, the group is "/". A
 * group outside of the mount is replaced by the mount's top. Groups above the
 * mount's root, such as that of a Kubernetes pod, are hidden there; v1 shows
 * their least limit in memory.stat, v2 does not.
 *
 * "No limit" is "max" in v2 and a huge number in v1. Neither is less than the
 * machine's memory, so that no special case is needed.
 */
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/memory.h"
#include "pool/base/mountinfo.h"

enum cgroup_kind { CGROUP_V1, CGROUP_V2 };

static const struct cgroup_type {
	const char *fstype;
	const char *file;
	const char *source;
} cgroup_types[] = {
	[CGROUP_V1] = { "cgroup", "memory.limit_in_bytes",
			"the memory cgroup (v1)" },
	[CGROUP_V2] = { "cgroup2", "memory.max", "the memory cgroup (v2)" },
};

static FILE *open_in(const char *root, const char *path)
{
	char full[PATH_MAX];
	int n = snprintf(full, sizeof(full), "%s%s", root, path);

	if (n < 0 || (size_t)n >= sizeof(full))
		return NULL;
	return fopen(full, "re");
}

/* Is word one of the comma-separated words of list? */
static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);

	while (list != NULL && *list != '\0') {
		if (strncmp(list, word, n) == 0 &&
		    (list[n] == ',' || list[n] == '\0'))
			return true;
		list = strchr(list, ',');
		if (list != NULL)
			list++;
	}
	return false;
}

/* ---- the machine ---- */

static int machine_memory(const char *root, uint64_t *ret_bytes)
{
	FILE *f = open_in(root, "/proc/meminfo");
	uint64_t total = 0, hugetlb = 0, kb;
	char line[256];

	if (f == NULL)
		return errno != 0 ? -errno : -EIO;
	while (fgets(line, sizeof(line), f) != NULL) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kb) == 1)
			total = kb;
		else if (sscanf(line, "Hugetlb: %" SCNu64 " kB", &kb) == 1)
			hugetlb = kb;
	}
	fclose(f);
	if (total == 0 || total > UINT64_MAX / 1024 || hugetlb >= total)
		return -EINVAL;
	*ret_bytes = (total - hugetlb) * 1024;
	return 0;
}

/* ---- the cgroup ---- */

/* This process's group in the hierarchy of that kind; false if it has none. */
static bool cgroup_group(const char *root, enum cgroup_kind kind, char *out,
			 size_t cap)
{
	FILE *f = open_in(root, "/proc/self/cgroup");
	char *line = NULL, *controllers, *group;
	size_t line_cap = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &line_cap, f) > 0) {
		line[strcspn(line, "\n")] = '\0';
		controllers = strchr(line, ':');
		if (controllers == NULL)
			continue;
		*controllers++ = '\0';
		group = strchr(controllers, ':');
		if (group == NULL)
			continue;
		*group++ = '\0';
		if (kind == CGROUP_V1)
			found = has_word(controllers, "memory");
		else
			found = strcmp(line, "0") == 0 && *controllers == '\0';
		if (found && (*group != '/' || strlen(group) >= cap))
			found = false;
		else if (found)
			strcpy(out, group);
	}
	free(line);
	fclose(f);
	return found;
}

static bool is_hierarchy(const struct pool_mountinfo *m, enum cgroup_kind kind)
{
	return strcmp(m->type, cgroup_types[kind].fstype) == 0 &&
	       (kind != CGROUP_V1 || has_word(m->options, "memory"));
}

/* The mount point of the hierarchy of that kind, and the group at its top. */
static bool cgroup_mount(const char *root, enum cgroup_kind kind, char *top,
			 char *point, size_t cap)
{
	FILE *f = open_in(root, "/proc/self/mountinfo");
	struct pool_mountinfo m;
	char *line = NULL;
	size_t line_cap = 0;
	bool found = false;

	if (f == NULL)
		return false;
	while (!found && getline(&line, &line_cap, f) > 0) {
		if (!pool_mountinfo_parse(line, &m) ||
		    !is_hierarchy(&m, kind) || strlen(m.root) >= cap ||
		    strlen(m.point) >= cap)
			continue;
		strcpy(top, m.root);
		strcpy(point, m.point);
		found = true;
	}
	free(line);
	fclose(f);
	return found;
}

static FILE *open_cgroup(const char *root, const char *point,
			 const char *group, const char *file)
{
	char path[3 * PATH_MAX];
	int n = snprintf(path, sizeof(path), "%s%s/%s", point, group, file);

	return n < 0 || (size_t)n >= sizeof(path) ? NULL : open_in(root, path);
}

/* A line with a number; UINT64_MAX if it is anything else. */
static uint64_t parse_limit(const char *text)
{
	uint64_t limit;
	char *end;

	if (!isdigit((unsigned char)text[0]))
		return UINT64_MAX;
	errno = 0;
	limit = strtoull(text, &end, 10);
	return errno || (*end != '\n' && *end != '\0') ? UINT64_MAX : limit;
}

/* The limit in the file at point/group; UINT64_MAX if there is none. */
static uint64_t cgroup_read(const char *root, const char *point,
			    const char *group, const char *file)
{
	uint64_t limit = UINT64_MAX;
	char text[64];
	FILE *f = open_cgroup(root, point, group, file);

	if (f == NULL)
		return limit;
	if (fgets(text, sizeof(text), f) != NULL)
		limit = parse_limit(text);
	fclose(f);
	return limit;
}

/* v1: the least limit of the group and of all groups above, hidden ones
 * included; UINT64_MAX if there is none. */
static uint64_t cgroup_read_stat(const char *root, const char *point,
				 const char *group)
{
	static const char name[] = "hierarchical_memory_limit ";
	uint64_t limit = UINT64_MAX;
	char line[128];
	FILE *f = open_cgroup(root, point, group, "memory.stat");

	if (f == NULL)
		return limit;
	while (fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, name, sizeof(name) - 1) == 0)
			limit = parse_limit(line + sizeof(name) - 1);
	fclose(f);
	return limit;
}

static uint64_t cgroup_limit(const char *root, enum cgroup_kind kind)
{
	char group[PATH_MAX], top[PATH_MAX], point[PATH_MAX];
	const char *file = cgroup_types[kind].file;
	uint64_t least = UINT64_MAX, limit;
	char *rel = group, *slash;
	size_t n;

	if (!cgroup_group(root, kind, group, sizeof(group)) ||
	    !cgroup_mount(root, kind, top, point, sizeof(top)))
		return least;
	n = strcmp(top, "/") == 0 ? 0 : strlen(top);
	if (strncmp(group, top, n) == 0 &&
	    (group[n] == '/' || group[n] == '\0'))
		rel += n;
	else
		*rel = '\0';
	if (strstr(rel, "/..") != NULL) /* above our cgroup namespace */
		*rel = '\0';
	if (kind == CGROUP_V1)
		least = cgroup_read_stat(root, point, rel);
	for (;;) {
		limit = cgroup_read(root, point, rel, file);
		if (limit < least)
			least = limit;
		slash = strrchr(rel, '/');
		if (slash == NULL)
			return least;
		*slash = '\0';
	}
}

int pool_memory_limit_in(const char *root, uint64_t *ret_bytes,
			 const char **ret_source)
{
	const char *source = "the machine's memory";
	uint64_t bytes, limit;
	int rc;

	errno = 0;
	rc = machine_memory(root, &bytes);
	if (rc < 0)
		return rc;
	for (int kind = CGROUP_V1; kind <= CGROUP_V2; kind++) {
		limit = cgroup_limit(root, (enum cgroup_kind)kind);
		if (limit < bytes) {
			bytes = limit;
			source = cgroup_types[kind].source;
		}
	}
	*ret_bytes = bytes;
	*ret_source = source;
	return 0;
}

int pool_memory_limit(uint64_t *ret_bytes, const char **ret_source)
{
	return pool_memory_limit_in("", ret_bytes, ret_source);
}
