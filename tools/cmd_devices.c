/* kvpool devices: shows the RDMA ports of this machine, or of a node. */
#include <errno.h>
#include <limits.h>
#include <string.h>

#include "pool/base/log.h"
#include "pool/verbs/device.h"
#include "tools/cmd.h"

static const char usage[] =
	"usage: kvpool devices [MOUNT] [--admin HOST:PORT] [--json]\n\n"
	"Lists RDMA ports: link, address, state, and whether they are used, or "
	"why\n"
	"not. Of the node that serves MOUNT or is given by --admin, else of "
	"this\n"
	"machine, as a node without --rdma-device would find them.";

/* The admin address of a mount's daemon. 0 or -errno, printed. */
static int find_admin(const char *text, struct pool_hostport *admin)
{
	char path[PATH_MAX], mount[PATH_MAX], key[PATH_MAX];
	int rc = cmd_mount_path(text, path, sizeof(path));

	if (!rc)
		rc = cmd_mount_key(path, mount, key);
	if (!rc && !admin->host[0]) {
		cmd_mount_admin(mount, admin);
		rc = admin->host[0] ? 0 : -EHOSTUNREACH;
	}
	if (rc)
		fprintf(stderr, "kvpool: devices: %s: %s\n", text,
			rc == -ENOTSUP ? "not in the mount of a pool" :
					 strerror(-rc));
	return rc;
}

/* This machine's ports, in the form of a node's page. NULL: failed, printed. */
static json_t *find_here(void)
{
	struct verbs *v;
	json_t *json;
	int err = verbs_open(NULL, &v);

	if (err) {
		fprintf(stderr, "kvpool: devices: %s\n", strerror(-err));
		return NULL;
	}
	json = json_pack("{s:o}", "devices", verbs_json(v));
	verbs_close(v);
	if (!json)
		fprintf(stderr, "kvpool: out of memory\n");
	return json;
}

static json_t *text_or(const json_t *row, const char *key, const char *none)
{
	const char *text = json_string_value(json_object_get(row, key));

	return json_string(text ? text : none);
}

static json_t *used_text(const json_t *row)
{
	const char *why_not =
		json_string_value(json_object_get(row, "why_not"));

	return why_not ? json_sprintf("no: %s", why_not) : json_string("yes");
}

/* The members of a row that the table shows. */
static json_t *row_short(json_t *row)
{
	json_t *port = json_object_get(row, "port");

	return json_pack("{s:o, s:O?, s:o, s:o, s:o, s:o}", "device",
			 text_or(row, "device", "?"), "port", port, "link",
			 text_or(row, "link", "?"), "address",
			 text_or(row, "address", "-"), "state",
			 text_or(row, "state", "?"), "used", used_text(row));
}

static int print_table(const json_t *json)
{
	const json_t *rows = json_object_get(json, "devices");
	const char *transport =
		json_string_value(json_object_get(json, "transport"));
	const char *bulk = json_string_value(json_object_get(json, "bulk"));
	json_t *row, *table = json_array();
	size_t i;

	if (transport && strcmp(transport, "tcp") == 0)
		printf("RDMA is not used: the node has --transport tcp\n");
	else if (json_array_size(rows) == 0)
		printf("no RDMA devices\n");
	json_array_foreach(rows, i, row)
		if (json_array_append_new(table, row_short(row))) {
			fprintf(stderr, "kvpool: out of memory\n");
			json_decref(table);
			return 1;
		}
	if (json_array_size(table)) {
		cmd_print_table(table, stdout);
		printf("(RDMA moves bytes of objects unencrypted, with "
		       "--tls-dir, too.)\n");
	}
	if (bulk)
		printf("bytes of objects over TCP: --bulk %s%s\n", bulk,
		       strcmp(bulk, "tls") == 0 &&
				       json_is_true(json_object_get(json,
								    "ktls")) ?
			       ", encrypted by the kernel (kTLS)" : "");
	json_decref(table);
	return 0;
}

int cmd_devices(int argc, char **argv)
{
	struct pool_hostport admin = { 0 };
	bool as_json = false;
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &admin,
		  .arg = "HOST:PORT", .help = "The node to ask.",
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "json", .type = OPT_FLAG, .value = &as_json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	json_t *json = NULL;
	char **ops;
	int nops, rc;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops > 1) {
		fprintf(stderr, "kvpool: devices: \"%s\" given; %s\n", ops[1],
			usage);
		return 2;
	}
	pool_log_set_level(POOL_LOG_ERROR);
	if (nops && find_admin(ops[0], &admin))
		return 1;
	if (!admin.host[0])
		json = find_here();
	else if (cmd_get(&admin, "/api/devices", &json))
		return 1;
	if (!json)
		return 1;
	rc = 0;
	if (as_json)
		cmd_print_json(json, stdout);
	else
		rc = print_table(json);
	json_decref(json);
	return rc;
}
