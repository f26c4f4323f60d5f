/*
 * kvpool stat: shows one object, by its path in a mount (from the file's
 * attributes) or by its key (from an admin page).
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "tools/cmd.h"

#define XATTR_PREFIX "user.kvpool."
#define LIST_MAX 65536
#define VALUE_MAX 4096

/* "a,b" as a JSON array of names. */
static json_t *split(const char *text)
{
	json_t *list = json_array();

	while (*text) {
		size_t len = strcspn(text, ",");

		json_array_append_new(list, json_stringn_nocheck(text, len));
		text += len + (text[len] == ',');
	}
	return list;
}

/* An attribute's value as JSON, in the form of the admin pages. */
static json_t *attr_json(const char *name, const char *value)
{
	uint64_t v;

	if (strcmp(name, "nodes") == 0)
		return split(value);
	if ((strcmp(name, "replicas") == 0 || strcmp(name, "holders") == 0) &&
	    pool_parse_u64(value, 0, INT64_MAX, &v) == 0)
		return json_integer((json_int_t)v);
	return json_stringn_nocheck(value, strlen(value));
}

/* The user.kvpool.* attributes of a file as JSON, {} if it has none; NULL:
 * -errno in *ret_err. */
static json_t *read_attrs(const char *path, int *ret_err)
{
	char *list = malloc(LIST_MAX);
	json_t *json = json_object();
	size_t skip = strlen(XATTR_PREFIX);
	ssize_t n = list ? listxattr(path, list, LIST_MAX) : -1;

	*ret_err = n < 0 ? -errno : 0;
	for (char *name = list; n > 0 && name < list + n;
	     name += strlen(name) + 1) {
		char value[VALUE_MAX];
		ssize_t len;

		if (strncmp(name, XATTR_PREFIX, skip) != 0)
			continue;
		len = getxattr(path, name, value, sizeof(value) - 1);
		if (len < 0)
			continue;
		value[len] = '\0';
		json_object_set_new(json, name + skip,
				    attr_json(name + skip, value));
	}
	free(list);
	return json;
}

static json_t *stat_file(const char *path, int *ret_err)
{
	char abs[PATH_MAX], mount[PATH_MAX], key[PATH_MAX];
	struct stat st;
	json_t *json, *attrs;

	if (cmd_mount_path(path, abs, sizeof(abs)) == 0 &&
	    access(path, F_OK) == 0 && cmd_mount_key(abs, mount, key)) {
		*ret_err = -ENOTSUP;
		return NULL;
	}
	if (stat(path, &st)) {
		*ret_err = -errno;
		return NULL;
	}
	attrs = read_attrs(path, ret_err);
	if (*ret_err) {
		json_decref(attrs);
		return NULL;
	}
	json = json_pack("{s:s, s:I, s:I}", "path", path, "size",
			 (json_int_t)st.st_size, "mtime_ns",
			 (json_int_t)st.st_mtim.tv_sec * 1000000000 +
				 st.st_mtim.tv_nsec);
	/* A directory has no size of its own; its attributes are its rules. */
	if (S_ISDIR(st.st_mode)) {
		json_object_del(json, "size");
		json_object_set_new(json, "dir", json_true());
	}
	json_object_update(json, attrs);
	json_decref(attrs);
	return json;
}

/* Searches the pages of objects that begin with key, usually few. */
static json_t *stat_key(const char *key, struct pool_hostport *admin)
{
	json_t *json, *rows, *obj, *found = NULL;
	char *token = NULL;
	int rc;
	size_t i;

	do {
		rc = cmd_get_objects(admin, key, &token, &json, &rows);
		if (rc)
			break;
		json_array_foreach(rows, i, obj) {
			const char *path = json_string_value(
				json_object_get(obj, "path"));

			if (!found && path && strcmp(path, key) == 0)
				found = json_incref(obj);
		}
		json_decref(json);
	} while (token && !found);
	free(token);
	if (!found && !rc)
		fprintf(stderr, "kvpool: stat: no object called %s\n", key);
	return found;
}

/* Finds a file if path is one in a mount; else the object with that key. */
static json_t *find(const char *path, struct pool_hostport *admin)
{
	int err = 0;
	json_t *json = stat_file(path, &err);

	if (json)
		return json;
	if (err == -ENOTSUP || path[0] == '/') {
		fprintf(stderr, "kvpool: stat: %s: %s\n", path,
			err == -ENOTSUP ? "not in the mount of a pool" :
					  strerror(-err));
		return NULL;
	}
	return stat_key(path, admin);
}

int cmd_stat(int argc, char **argv)
{
	struct pool_hostport admin = { "", 0 };
	bool as_json = false;
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "json", .type = OPT_FLAG, .value = &as_json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc;
	json_t *json;

	rc = daemon_options_parse(
		opts, argc, argv,
		"usage: kvpool stat PATH [--admin HOST:PORT] [--json]\n\n"
		"Shows one object. PATH is a file in a mount, or a path "
		"relative to the\n"
		"mount. For a directory in a mount: the rules that are set on "
		"it\n"
		"(inherited ones are not shown).",
		&nops, &ops, stdout, stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops != 1) {
		fprintf(stderr, "kvpool: stat: %d paths given; accepted: one\n",
			nops);
		return 2;
	}
	json = find(ops[0], &admin);
	if (!json)
		return 1;
	if (as_json)
		cmd_print_json(json, stdout);
	else
		cmd_print_flat(json, stdout);
	json_decref(json);
	return 0;
}
