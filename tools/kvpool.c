/* kvpool, the CLI: a table of subcommands. */
#include <errno.h>
#include <string.h>

#include "pool/kvpool.h"
#include "tools/cmd.h"

static int cmd_version(int argc, char **argv)
{
	(void)argc;
	(void)argv;
	printf("kvpool %s\n", kvpool_version());
	return 0;
}

static const struct subcommand {
	const char *name;
	int (*run)(int argc, char **argv); /* NULL: not in this build */
	const char *help;
} subcommands[] = {
	{ "up", cmd_up, "start a pool of one node and mount it" },
	{ "down", cmd_down, "stop the node that serves a mount" },
	{ "restart", cmd_restart, "replace the node that serves a mount by the "
				  "installed program" },
	{ "status", cmd_status, "show the state of a node or of the master" },
	{ "nodes", cmd_nodes, "list the nodes of the pool" },
	{ "top", cmd_top, "show the nodes of the pool, refreshed" },
	{ "devices", cmd_devices, "list RDMA devices" },
	{ "ls", cmd_ls, "list objects" },
	{ "stat", cmd_stat, "show one object" },
	{ "fault", cmd_fault, "inject faults into connections, for tests" },
	{ "events", cmd_events, "what happened to the pool" },
	{ "doctor", cmd_doctor, "find what costs speed or safety" },
	{ "healthz", cmd_healthz, "is a daemon alive, or ready?" },
	{ "keep", cmd_keep, "keep the mount of a daemon in another container" },
	{ "mountpoint", cmd_mountpoint, "make a directory to mount at" },
	{ "drain", cmd_drain, "prepare a node for being switched off" },
	{ "certs", cmd_certs, "make certificates, and check them" },
	{ "bench", cmd_bench, "compare a mount with tmpfs and a plain socket" },
	{ "replay", cmd_replay, "replay a recorded trace on mounts" },
	{ "version", cmd_version, "print the version" },
	{ NULL, NULL, NULL },
};

static void print_usage(FILE *out)
{
	fprintf(out, "usage: kvpool SUBCOMMAND [OPTION]...\n\n");
	for (const struct subcommand *c = subcommands; c->name; c++)
		fprintf(out, "  %-10s  %s\n", c->name, c->help);
	fprintf(out, "\nkvpool SUBCOMMAND --help lists the options of each.\n");
}

static int run(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
	    strcmp(argv[1], "help") == 0) {
		print_usage(stdout);
		return 0;
	}
	if (strcmp(argv[1], "--version") == 0)
		return cmd_version(argc, argv);
	for (const struct subcommand *c = subcommands; c->name; c++)
		if (strcmp(argv[1], c->name) == 0)
			return c->run(argc - 1, argv + 1);
	fprintf(stderr,
		"kvpool: \"%s\" given; accepted: a subcommand, see kvpool "
		"--help\n",
		argv[1]);
	return 2;
}

int main(int argc, char **argv)
{
	int status = run(argc, argv), err = 0;

	if (fflush(stdout))
		err = errno;
	else if (ferror(stdout)) /* an earlier write failed */
		err = EIO;
	if (!err)
		return status;
	fprintf(stderr, "kvpool: the output cannot be written: %s\n",
		strerror(err));
	return status ? status : 1;
}
