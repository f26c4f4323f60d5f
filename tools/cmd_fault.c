/* kvpool fault: injects faults into a daemon's connections. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/cmd.h"

static const char usage[] =
	"usage: kvpool fault [--admin HOST:PORT]            (lists faults)\n"
	"       kvpool fault KIND [OPTION]...               (adds one)\n"
	"       kvpool fault clear [--admin HOST:PORT]      (removes all)\n"
	"\n"
	"Disturbs the connections of a daemon that was started with "
	"--allow-faults\n"
	"on this machine. KIND: delay, drop (bytes disappear, the connection "
	"stalls),\n"
	"reset, or corrupt (one bit of an object).";

struct fault {
	struct pool_hostport admin;
	const char *peer, *direction, *delay, *nth, *probability;
};

/* Appends "&key=value", escaped; nothing if value is NULL. add_kind has written
 * the first parameter. */
static void add(FILE *f, const char *key, const char *value)
{
	char *text = value ? cmd_url_escape(value) : NULL;

	if (text)
		fprintf(f, "&%s=%s", key, text);
	free(text);
}

/* Writes the first parameter without '&': an empty parameter would be refused
 * as unknown. */
static void add_kind(FILE *f, const char *kind)
{
	char *text = cmd_url_escape(kind);

	if (strcmp(kind, "clear") == 0)
		fputs("clear=yes", f);
	else
		fprintf(f, "kind=%s", text ? text : "");
	free(text);
}

static int post(struct fault *o, const char *kind)
{
	char *page = NULL;
	size_t len;
	FILE *f = open_memstream(&page, &len);
	json_t *json = NULL;
	int rc;

	if (!f)
		return 1;
	fputs("/api/faults?", f);
	add_kind(f, kind);
	add(f, "peer", o->peer);
	add(f, "direction", o->direction);
	add(f, "delay", o->delay);
	add(f, "nth", o->nth);
	add(f, "probability", o->probability);
	if (fclose(f)) {
		free(page);
		return 1;
	}
	rc = cmd_post(&o->admin, page, &json);
	free(page);
	if (!rc)
		cmd_print_table(json_object_get(json, "faults"), stdout);
	json_decref(json);
	return rc ? 1 : 0;
}

static int list(struct fault *o)
{
	json_t *json;

	if (cmd_get(&o->admin, "/api/faults", &json))
		return 1;
	cmd_print_table(json_object_get(json, "faults"), stdout);
	json_decref(json);
	return 0;
}

int cmd_fault(int argc, char **argv)
{
	struct fault o = { .peer = NULL };
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &o.admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "peer", .type = OPT_STRING, .value = &o.peer,
		  .arg = "HOST[:PORT]",
		  .help = "Only connections with this host; default: all." },
		{ .name = "direction", .type = OPT_STRING,
		  .value = &o.direction, .arg = "send|receive|both|rdma",
		  .help = "Default: send. rdma: only RDMA work requests." },
		{ .name = "delay", .type = OPT_STRING, .value = &o.delay,
		  .arg = "DURATION", .help = "With delay: how long." },
		{ .name = "nth", .type = OPT_STRING, .value = &o.nth,
		  .arg = "N", .help = "Only the Nth message." },
		{ .name = "probability", .type = OPT_STRING,
		  .value = &o.probability, .arg = "P",
		  .help = "Each message with this probability; default: 1." },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc = daemon_options_parse(opts, argc, argv, usage, &nops,
					    &ops, stdout, stderr);

	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops > 1) {
		fprintf(stderr,
			"kvpool: fault: \"%s\" given; accepted: one KIND, see "
			"kvpool fault --help\n",
			ops[1]);
		return 2;
	}
	return nops ? post(&o, ops[0]) : list(&o);
}
