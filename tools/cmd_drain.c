/*
 * kvpool drain: makes the master drain a node, and waits until the node may be
 * stopped. The master executes the drain: it continues if this program ends.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "tools/cmd.h"

#define POLL_MS 500
#define RECORDED_MS 30000
#define LINE_MS 5000 /* between progress lines, if not on a terminal */
#define STUCK_POLLS 4 /* in a row, before we report that there is no space */

static const char usage[] =
	"usage: kvpool drain NODE [--admin HOST:PORT] [--no-wait] [--cancel]\n"
	"\n"
	"Prepares a node for being switched off: objects that only it holds "
	"are\n"
	"copied to other nodes, and it receives no new ones. Returns when the "
	"node\n"
	"can be stopped. Exit status 1: some objects have no room elsewhere. "
	"The\n"
	"node stays drained, also after a restart, until --cancel.";

struct drain {
	const char *node;
	struct pool_hostport master;
	bool wait, no_wait, cancel;
	bool terminal;
	uint64_t said_ms;
	unsigned int stuck; /* polls in a row */
};

static char *page_of(const struct drain *d, bool cancel)
{
	char *node = cmd_url_escape(d->node), *page = NULL;

	if (node && asprintf(&page, "/api/drain?node=%s%s", node,
			     cancel ? "&cancel=1" : "") < 0)
		page = NULL;
	free(node);
	if (!page)
		fprintf(stderr, "kvpool: out of memory\n");
	return page;
}

static json_int_t number(const json_t *json, const char *key)
{
	return json_integer_value(json_object_get(json, key));
}

static const char *bytes(const json_t *json, const char *key, char buf[32])
{
	json_int_t v = number(json, key);

	return pool_format_size(v > 0 ? (uint64_t)v : 0, buf, 32);
}

/* Prints progress: one line that is overwritten on a terminal; else a line
 * every LINE_MS. */
static void print_progress(struct drain *d, const json_t *json, bool last)
{
	uint64_t now = pool_now_ms();
	json_int_t eta = number(json, "seconds_left");
	char left[32], speed[32], when[48] = "";

	if (!d->terminal && !last && d->said_ms && now - d->said_ms < LINE_MS)
		return;
	d->said_ms = now;
	if (eta > 0)
		snprintf(when, sizeof(when), ", about %lld s",
			 (long long)eta);
	printf("%s%s: %lld %%, %lld objects, %s to move, %s/s%s%s",
	       d->terminal ? "\r\033[K" : "", d->node,
	       (long long)number(json, "percent"),
	       (long long)number(json, "left_keys"),
	       bytes(json, "left_bytes", left),
	       bytes(json, "bytes_per_second", speed), when,
	       d->terminal && !last ? "" : "\n");
	fflush(stdout);
}

static int print_stuck(const struct drain *d, const json_t *json)
{
	char left[32];

	fprintf(stderr,
		"kvpool: drain: %s: %s in %lld objects have no room on other "
		"nodes. "
		"Add a store or enlarge one (--store-size), delete objects, or "
		"lower "
		"their replicas; the drain then continues, or: kvpool drain "
		"%s --cancel\n",
		d->node, bytes(json, "no_room_bytes", left),
		(long long)number(json, "no_room_keys"), d->node);
	return 1;
}

/* -1: the drain is not over; else the exit status. */
static int judge(struct drain *d, const json_t *json)
{
	const char *state =
		json_string_value(json_object_get(json, "state"));

	if (!state)
		state = "?";
	d->stuck = strcmp(state, "stuck") ? 0 : d->stuck + 1;
	if (!strcmp(state, "draining") ||
	    (d->stuck && d->stuck < STUCK_POLLS)) {
		print_progress(d, json, false);
		return -1;
	}
	if (d->said_ms)
		print_progress(d, json, true);
	if (!strcmp(state, "drained")) {
		printf("%s is drained: it may be switched off\n", d->node);
		return 0;
	}
	if (d->stuck)
		return print_stuck(d, json);
	fprintf(stderr, "kvpool: drain: %s: %s\n", d->node,
		strcmp(state, "away") ?
			"the drain was cancelled" :
			"the node is not connected: objects that only it holds "
			"cannot be moved; start it");
	return 1;
}

static int wait_drained(struct drain *d)
{
	const struct timespec pause = { 0, POLL_MS * 1000000L };
	char *page = page_of(d, false);
	int status = page ? -1 : 1;
	json_t *json;

	while (status < 0) {
		if (cmd_get(&d->master, page, &json)) {
			status = 1;
			break;
		}
		status = judge(d, json);
		json_decref(json);
		if (status < 0)
			nanosleep(&pause, NULL);
	}
	free(page);
	return status;
}

/* Waits until the drain is in the master's durable state, so that the next
 * master would know it. json: the first answer; consumed. */
static int wait_recorded(struct drain *d, json_t *json)
{
	const struct timespec pause = { 0, POLL_MS * 1000000L };
	uint64_t end = pool_now_ms() + RECORDED_MS;
	char *page = page_of(d, false);
	int rc = page ? 0 : 1;

	while (!rc && json_is_false(json_object_get(json, "recorded"))) {
		if (pool_now_ms() > end) {
			fprintf(stderr,
				"kvpool: drain: %s: the master could not write "
				"that to its state within %d s: another master "
				"would not know of it. Look at its log "
				"(etcd?), then try again\n",
				d->node, RECORDED_MS / 1000);
			rc = 1;
			break;
		}
		nanosleep(&pause, NULL);
		json_decref(json);
		json = NULL;
		rc = cmd_get(&d->master, page, &json) ? 1 : 0;
	}
	json_decref(json);
	free(page);
	return rc;
}

static int begin(struct drain *d)
{
	char *page = page_of(d, d->cancel);
	json_t *json;
	int rc;

	if (!page)
		return 1;
	rc = cmd_post(&d->master, page, &json);
	free(page);
	if (rc || wait_recorded(d, json))
		return 1;
	if (d->cancel)
		printf("%s is no longer drained\n", d->node);
	else if (d->no_wait)
		printf("%s is being drained; kvpool nodes shows how far it "
		       "is\n",
		       d->node);
	return 0;
}

int cmd_drain(int argc, char **argv)
{
	struct drain d = { .terminal = isatty(STDOUT_FILENO) };
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &d.master,
		  .arg = "HOST:PORT", .default_port = 7071,
		  .help = "The master's admin address." },
		CMD_TLS_OPTION,
		/* no_env: KVPOOL_MASTER is kvpoold's option, another
		 * address. */
		{ .name = "master", .type = OPT_HOSTPORT, .value = &d.master,
		  .arg = "HOST:PORT", .default_port = 7071, .no_env = true,
		  .help = "Older name of --admin." },
		{ .name = "wait", .type = OPT_FLAG, .value = &d.wait,
		  .help = "Wait until the node can be stopped (the default)." },
		{ .name = "no-wait", .type = OPT_FLAG, .value = &d.no_wait,
		  .help = "Start draining and return." },
		{ .name = "cancel", .type = OPT_FLAG, .value = &d.cancel,
		  .help = "End the drain: the node receives objects again." },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc;

	pool_parse_hostport(CMD_MASTER_ADMIN, 0, &d.master);
	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops != 1) {
		fprintf(stderr,
			"kvpool: drain: %d operands given; accepted: one, the "
			"name of a node (kvpool nodes lists them)\n",
			nops);
		return 2;
	}
	if (d.wait && d.no_wait) {
		daemon_option_reject(daemon_option_find(opts, "no-wait"),
				     "without --wait", stderr);
		return 2;
	}
	d.node = ops[0];
	rc = begin(&d);
	if (rc && getenv("KVPOOL_MASTER") &&
	    !daemon_option_find(opts, "admin")->seen &&
	    !daemon_option_find(opts, "master")->seen)
		fprintf(stderr, "kvpool: drain: KVPOOL_MASTER says where nodes "
				"connect; the master's admin address is "
				"--admin, or KVPOOL_ADMIN\n");
	return rc || d.cancel || d.no_wait ? rc : wait_drained(&d);
}
