/* kvpool events: what happened to the pool, from the master's /api/events. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/base/log.h"
#include "tools/cmd.h"

#define FOLLOW_MS 1000

static void print_event(const json_t *e)
{
	const char *time = json_string_value(json_object_get(e, "time"));
	const char *kind = json_string_value(json_object_get(e, "kind"));
	char text[256];

	cmd_format_leaf("text", json_object_get(e, "text"), text, sizeof(text));
	printf("%s  %-8s  %s\n", time ? time : "?", kind ? kind : "?", text);
}

/* Prints the events from number *since on, and sets *since to the next one to
 * ask for. With follow, no events print nothing. Returns how many there were,
 * or -errno, printed. */
static ssize_t print_page(struct pool_hostport *admin, uint64_t *since,
			  bool as_json, bool follow)
{
	const json_t *list;
	json_t *json;
	char page[64];
	ssize_t count;
	int rc;

	snprintf(page, sizeof(page), "/api/events?since=%llu&limit=10000",
		 (unsigned long long)*since);
	rc = cmd_get(admin, page, &json);
	if (rc)
		return rc;
	list = json_object_get(json, "events");
	count = (ssize_t)json_array_size(list);
	if (as_json && (count > 0 || !follow))
		cmd_print_json(json, stdout);
	for (ssize_t i = 0; !as_json && i < count; i++)
		print_event(json_array_get(list, (size_t)i));
	*since = (uint64_t)json_integer_value(json_object_get(json, "next"));
	json_decref(json);
	return count;
}

int cmd_events(int argc, char **argv)
{
	const struct timespec pause = { .tv_sec = FOLLOW_MS / 1000 };
	struct pool_hostport admin = { 0 };
	bool as_json = false, follow = false;
	uint64_t since = 0;
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &admin,
		  .arg = "HOST:PORT",
		  .help = "The master to ask. Default: " CMD_MASTER_ADMIN ".",
		  .default_port = 7071 },
		CMD_TLS_OPTION,
		{ .name = "since", .type = OPT_COUNT, .value = &since,
		  .arg = "NUMBER", .max = INT64_MAX,
		  .help = "Begin with this event (\"number\" of --json)." },
		{ .name = "follow", .type = OPT_FLAG, .value = &follow,
		  .help = "Keep running, and print events as they happen." },
		{ .name = "json", .type = OPT_FLAG, .value = &as_json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	char **ops;
	ssize_t n;
	int nops, rc;

	rc = daemon_options_parse(
		opts, argc, argv,
		"usage: kvpool events [--admin HOST:PORT] [--since NUMBER] "
		"[--follow] [--json]\n\n"
		"What happened to the pool: nodes that came and went, drains, "
		"losses,\nelections. The master keeps the last 10,000 in "
		"memory. What happened before\nit led, or started, is in the "
		"logs of the masters of that time.",
		&nops, &ops, stdout, stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops) {
		fprintf(stderr, "kvpool: events: \"%s\" given; accepted: no "
				"operand\n",
			ops[0]);
		return 2;
	}
	pool_log_set_level(POOL_LOG_ERROR);
	if (!admin.host[0])
		pool_parse_hostport(CMD_MASTER_ADMIN, 0, &admin);
	do {
		n = print_page(&admin, &since, as_json, follow);
		if (n == 0 && follow) {
			fflush(stdout);
			nanosleep(&pause, NULL);
		}
	} while (n >= 0 && follow);
	return n < 0;
}
