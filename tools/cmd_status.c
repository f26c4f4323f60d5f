/* kvpool status, nodes and ls: print the admin pages for people. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

struct ask {
	struct pool_hostport admin; /* host "": the defaults */
	bool json, all; /* all: status --all, nodes --wide */
	const char *operand; /* or NULL */
};

/* Parses the common options, and the flag `all` (NULL: none) with its help. -1:
 * continue; else the exit status. */
static int parse(struct ask *ask, int argc, char **argv, const char *usage,
		 const char *all, const char *all_help, int operands_max)
{
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &ask->admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "json", .type = OPT_FLAG, .value = &ask->json,
		  .help = "Print JSON." },
		{ .name = all, .type = OPT_FLAG, .value = &ask->all,
		  .help = all_help },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc;

	memset(ask, 0, sizeof(*ask));
	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops > operands_max) {
		fprintf(stderr, "kvpool: %s: \"%s\" given; %s\n", argv[0],
			ops[operands_max], usage);
		return 2;
	}
	ask->operand = nops ? ops[0] : NULL;
	return -1;
}

int cmd_status(int argc, char **argv)
{
	struct ask ask;
	json_t *json;
	int rc = parse(&ask, argc, argv,
		       "usage: kvpool status [--admin HOST:PORT] [--json | "
		       "--all]\n\n"
		       "Prints the state of a node or of the master.",
		       "all", "Print all figures.", 0);
	char address[POOL_HOSTPORT_TEXT];

	if (rc >= 0)
		return rc;
	if (cmd_get(&ask.admin, "/api/status", &json))
		return 1;
	if (ask.json)
		cmd_print_json(json, stdout);
	else if (ask.all)
		cmd_print_flat(json, stdout);
	else
		cmd_print_summary(json,
				  pool_format_hostport(&ask.admin, address,
						       sizeof(address)),
				  stdout);
	json_decref(json);
	return 0;
}

/* The columns that fit a terminal. That a node drains is shown as its state. */
static json_t *narrow(const json_t *nodes)
{
	static const char *const columns[] = { "name", "advertise", "state",
					       "data_mode", "capacity", "used",
					       "evictable", "objects" };
	json_t *rows = json_array(), *row, *node;
	size_t i, c;

	json_array_foreach(nodes, i, node) {
		row = json_object();
		for (c = 0; c < sizeof(columns) / sizeof(columns[0]); c++)
			json_object_set(row, columns[c],
					json_object_get(node, columns[c]));
		if (json_is_true(json_object_get(node, "draining")))
			json_object_set_new(row, "state",
					    json_string("draining"));
		json_array_append_new(rows, row);
	}
	return rows;
}

int cmd_nodes(int argc, char **argv)
{
	struct ask ask;
	json_t *json;
	int rc = parse(&ask, argc, argv,
		       "usage: kvpool nodes [--admin HOST:PORT] [--json | "
		       "--wide]\n\n"
		       "Lists the nodes of the pool.",
		       "wide", "Print all columns.", 0);
	json_t *rows;

	if (rc >= 0)
		return rc;
	if (cmd_get(&ask.admin, "/api/nodes", &json))
		return 1;
	rows = json_object_get(json, "nodes");
	if (ask.json) {
		cmd_print_json(json, stdout);
	} else if (ask.all) {
		cmd_print_table(rows, stdout);
	} else {
		rows = narrow(rows);
		cmd_print_table(rows, stdout);
		json_decref(rows);
	}
	json_decref(json);
	return 0;
}

/* ---- ls ---- */

static void print_object(const json_t *obj)
{
	static const char *const columns[] = { "size", "replicas" };
	static const int widths[] = { 10, 3 };
	char leaf[4096 + 1];
	const json_t *value;

	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		value = json_object_get(obj, columns[i]);
		snprintf(leaf, sizeof(leaf), "-");
		if (value)
			cmd_format_leaf(columns[i], value, leaf, sizeof(leaf));
		printf("%*s  ", widths[i], leaf);
	}
	value = json_object_get(obj, "path");
	if (value)
		cmd_format_leaf("path", value, leaf, sizeof(leaf));
	printf("%s%s\n", value ? leaf : "?",
	       json_is_true(json_object_get(obj, "dir")) ? "/" : "");
}

/* JSON: one object per line, so that a listing of any length can be
 * streamed. */
static void print_objects(const json_t *rows, bool json)
{
	size_t i;
	json_t *obj;

	json_array_foreach(rows, i, obj) {
		if (json) {
			json_dumpf(obj, stdout, JSON_COMPACT);
			printf("\n");
		} else {
			print_object(obj);
		}
	}
}

/*
 * Interprets PREFIX. A path in a mount (absolute, or an existing relative one)
 * becomes its key, and that mount's daemon is asked unless --admin is given.
 * Anything else is a key. 0 or -errno (printed).
 */
static int find_key(struct ask *ask, char *key)
{
	char path[PATH_MAX], mount[PATH_MAX];
	const char *text = ask->operand ? ask->operand : "";
	int rc = -ENOTSUP;

	if (text[0] == '/' || (text[0] && access(text, F_OK) == 0)) {
		rc = cmd_mount_path(text, path, sizeof(path));
		if (!rc)
			rc = cmd_mount_key(path, mount, key);
	}
	if (!rc) {
		if (!ask->admin.host[0])
			cmd_mount_admin(mount, &ask->admin);
		return 0;
	}
	if (text[0] == '/') {
		fprintf(stderr, "kvpool: ls: %s: %s\n", text,
			rc == -ENOTSUP ? "not in the mount of a pool" :
					 strerror(-rc));
		return rc;
	}
	if (strlen(text) >= PATH_MAX) {
		fprintf(stderr, "kvpool: ls: the prefix is too long\n");
		return -ENAMETOOLONG;
	}
	strcpy(key, text);
	return 0;
}

int cmd_ls(int argc, char **argv)
{
	struct ask ask;
	char *token = NULL, key[PATH_MAX];
	json_t *json, *rows;
	int rc = parse(
		&ask, argc, argv,
		"usage: kvpool ls [PREFIX] [--admin HOST:PORT] [--json]\n\n"
		"Lists the object PREFIX, or the objects below it: size, "
		"copies,\n"
		"path. PREFIX is a path in a mount, or relative to one. With\n"
		"--json, one object per line.",
		NULL, NULL, 1);

	if (rc >= 0)
		return rc;
	if (find_key(&ask, key))
		return 1;
	do {
		rc = cmd_get_objects(&ask.admin, key, &token, &json, &rows);
		if (rc)
			break;
		print_objects(rows, ask.json);
		json_decref(json);
	} while (token);
	free(token);
	return rc ? 1 : 0;
}
