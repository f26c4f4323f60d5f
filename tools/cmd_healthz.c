/* kvpool healthz: is a daemon alive, or ready? For probes of containers, whose
 * images need no other HTTP client. */
#include <errno.h>
#include <sys/stat.h>

#include "pool/base/log.h"
#include "tools/cmd.h"

static const char usage[] =
	"usage: kvpool healthz [--ready] [--joined] [--own] "
	"[--admin HOST:PORT]\n\n"
	"Exit status 0: the daemon is alive; 1: it is not, or not what is "
	"asked for,\n"
	"and the reason is printed.";

/* 0 or -errno, printed. */
static int check_joined(struct pool_hostport *admin)
{
	const json_t *master;
	json_t *json = NULL;
	int rc = cmd_get(admin, "/api/status", &json);

	if (rc)
		return rc;
	master = json_object_get(json, "master");
	if (!json_is_true(json_object_get(master, "connected"))) {
		fprintf(stderr, "kvpool: healthz: not connected to the master, "
				"\"%s\"\n",
			json_is_object(master) ?
				json_string_value(json_object_get(master,
								  "address")) :
				"none");
		rc = -EHOSTDOWN;
	}
	json_decref(json);
	return rc;
}

/* 0 or -errno, printed. */
static int check_own(struct pool_hostport *admin)
{
	struct stat own, its;
	json_t *json = NULL;
	char path[64];
	int rc = cmd_get(admin, "/api/status", &json);

	if (rc)
		return rc;
	snprintf(path, sizeof(path), "/proc/%lld/ns/mnt",
		 json_integer_value(json_object_get(json, "pid")));
	json_decref(json);
	if (stat(path, &its) == 0 && stat("/proc/self/ns/mnt", &own) == 0 &&
	    its.st_dev == own.st_dev && its.st_ino == own.st_ino)
		return 0;
	fprintf(stderr, "kvpool: healthz: the daemon at %s:%u runs in another "
			"container than this\n",
		admin->host, admin->port);
	return -EHOSTDOWN;
}

int cmd_healthz(int argc, char **argv)
{
	struct pool_hostport admin = { 0 };
	bool ready = false, joined = false, own = false;
	int err;
	struct daemon_option opts[] = {
		{ .name = "ready", .type = OPT_FLAG, .value = &ready,
		  .help = "Is it ready to serve?", .no_env = true },
		{ .name = "joined", .type = OPT_FLAG, .value = &joined,
		  .help = "Is it a node that is connected to the master?",
		  .no_env = true },
		{ .name = "own", .type = OPT_FLAG, .value = &own,
		  .help = "Does it run in this container (mount namespace)?",
		  .no_env = true },
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &admin,
		  .arg = "HOST:PORT", .help = CMD_ADMIN_HELP,
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = NULL },
	};
	char **ops;
	int nops, rc;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops) {
		fprintf(stderr, "kvpool: healthz: \"%s\" given; %s\n", ops[0],
			usage);
		return 2;
	}
	pool_log_set_level(POOL_LOG_ERROR);
	err = cmd_check(&admin, ready ? "/readyz" : "/healthz");
	if (!err && joined)
		err = check_joined(&admin);
	if (!err && own)
		err = check_own(&admin);
	return err ? 1 : 0;
}
