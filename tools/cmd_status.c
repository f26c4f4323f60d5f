/* kvpool status, nodes and ls: print the admin pages for people. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/cmd.h"

struct ask {
	struct pool_hostport admin; /* host "": the defaults */
	bool json;
	const char *operand; /* or NULL */
};

/* Parses the common options. -1: continue; else the exit status. */
static int parse(struct ask *ask, int argc, char **argv, const char *usage,
		 int operands_max)
{
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &ask->admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		{ .name = "json", .type = OPT_FLAG, .value = &ask->json,
		  .help = "Print JSON." },
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

static const char *text_of(const json_t *json, const char *key)
{
	const char *text = json_string_value(json_object_get(json, key));

	return text ? text : "?";
}

/* "store  1.2 GiB of 4.0 GiB used (30 %), 2.8 GiB free" */
static void print_store(const json_t *store)
{
	json_int_t size = json_integer_value(json_object_get(store, "size"));
	json_int_t used = json_integer_value(json_object_get(store, "used"));
	json_int_t unused = json_integer_value(json_object_get(store, "free"));
	char s[32], u[32], f[32];

	if (size <= 0)
		return;
	pool_format_size((uint64_t)size, s, sizeof(s));
	pool_format_size((uint64_t)used, u, sizeof(u));
	pool_format_size((uint64_t)unused, f, sizeof(f));
	printf("store %s of %s used (%.0f %%), %s free\n", u, s,
	       100.0 * (double)used / (double)size, f);
}

/* Prints since when there is no master, and what that means. */
static void print_degraded(const json_t *status)
{
	const char *since = json_string_value(
		json_object_get(status, "degraded_since"));

	if (since)
		printf("DEGRADED since %s: reads go on by what was known then; "
		       "%lld files wait to be published\n", since,
		       (long long)json_integer_value(
			       json_object_get(status, "pending")));
}

static long long figure(const json_t *json, const char *key)
{
	return (long long)json_integer_value(json_object_get(json, key));
}

/* Ends the line of print_repair, with what has no space if there is any. */
static void print_no_room(const json_t *repair)
{
	char bytes[32];

	if (figure(repair, "no_room_keys"))
		printf("; %lld objects (%s) %shave nowhere to go: no other "
		       "store has room",
		       figure(repair, "no_room_keys"),
		       pool_format_size((uint64_t)figure(repair,
							 "no_room_bytes"),
					bytes, sizeof(bytes)),
		       figure(repair, "endangered") ?
			       "" :
			       "of nodes being drained ");
	printf("\n");
}

/* A master's page: the keys with too few copies, and the repair's progress. */
static void print_repair(const json_t *repair)
{
	long long eta = figure(repair, "seconds_left");
	char left[32], speed[32];

	if (!figure(repair, "endangered") && !figure(repair, "bytes_left")) {
		printf("repair: every key has its copies");
		print_no_room(repair);
		return;
	}
	pool_format_size((uint64_t)figure(repair, "bytes_left"), left,
			 sizeof(left));
	pool_format_size((uint64_t)figure(repair, "bytes_per_second"), speed,
			 sizeof(speed));
	printf("repair: %lld keys lack copies (%lld have none on a store, %lld "
	       "one, %lld two, %lld more); "
	       "%lld copies under way, %s left, %s/s",
	       figure(repair, "endangered"), figure(repair, "left_0"),
	       figure(repair, "left_1"), figure(repair, "left_2"),
	       figure(repair, "left_3_or_more"),
	       figure(repair, "copies_under_way"), left, speed);
	if (eta > 0)
		printf(", about %lld s", eta);
	print_no_room(repair);
}

/* The few lines that matter most; all figures follow. */
static void print_summary(const json_t *status, const struct ask *ask)
{
	const json_t *master = json_object_get(status, "master");
	const char *name = json_string_value(json_object_get(status, "name"));

	printf("%s%s%s at %s:%u", text_of(status, "role"), name ? " " : "",
	       name ? name : "", ask->admin.host, ask->admin.port);
	if (json_is_string(json_object_get(status, "mount")))
		printf(", mounted at %s (%s)", text_of(status, "mount"),
		       text_of(status, "data_mode"));
	printf("\n");
	if (json_is_object(master))
		printf("master %s, %s\n", text_of(master, "address"),
		       json_is_true(json_object_get(master, "connected")) ?
			       "connected" :
			       "NOT connected");
	if (json_is_object(json_object_get(status, "store")))
		print_store(json_object_get(status, "store"));
	if (json_is_object(json_object_get(status, "repair")))
		print_repair(json_object_get(status, "repair"));
	print_degraded(status);
	printf("\n");
}

int cmd_status(int argc, char **argv)
{
	struct ask ask;
	json_t *json;
	int rc = parse(&ask, argc, argv,
		       "usage: kvpool status [--admin HOST:PORT] [--json]\n\n"
		       "Prints the state of a node or of the master.",
		       0);

	if (rc >= 0)
		return rc;
	if (cmd_get(&ask.admin, "/api/status", &json))
		return 1;
	if (ask.json) {
		cmd_print_json(json, stdout);
	} else {
		print_summary(json, &ask);
		cmd_print_flat(json, stdout);
	}
	json_decref(json);
	return 0;
}

int cmd_nodes(int argc, char **argv)
{
	struct ask ask;
	json_t *json;
	int rc = parse(&ask, argc, argv,
		       "usage: kvpool nodes [--admin HOST:PORT] [--json]\n\n"
		       "Lists the nodes of the pool.",
		       0);

	if (rc >= 0)
		return rc;
	if (cmd_get(&ask.admin, "/api/nodes", &json))
		return 1;
	if (ask.json)
		cmd_print_json(json, stdout);
	else
		cmd_print_table(json_object_get(json, "nodes"), stdout);
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
		"Lists the objects whose names begin with PREFIX: size, "
		"copies,\n"
		"path. PREFIX is a path in a mount, or relative to one. With\n"
		"--json, one object per line.",
		1);

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
