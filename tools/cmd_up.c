/*
 * kvpool up: starts kvpoold with an embedded master. All options are passed to
 * kvpoold; `up` reads the few that it needs.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/mount_args.h"
#include "daemon/sibling.h"
#include "tools/cmd.h"

static const char usage[] =
	"usage: kvpool up --mount DIR [--store-size N] [OPTION of kvpoold]...\n"
	"\n"
	"Starts a pool of one node in the background: master, store and mount "
	"in one\n"
	"process. Returns when DIR is mounted. Without --store-size the store "
	"gets a\n"
	"quarter of the memory, at most 16G. A keeper keeps the mount if the "
	"process is\n"
	"killed (--keeper=no: none). Other options are those of kvpoold.\n"
	"\"kvpool down --mount DIR\" stops it.\n";

/* The value of --name V or --name=V, or of the environment, or NULL. */
static const char *option(int argc, char **argv, const char *name,
			  const char *env)
{
	const char *value = getenv(env);
	size_t len = strlen(name);

	value = value && value[0] ? value : NULL;
	for (int i = 1; i < argc; i++) {
		if (strncmp(argv[i], name, len) != 0)
			continue;
		if (argv[i][len] == '=')
			value = argv[i] + len + 1;
		else if (!argv[i][len])
			value = i + 1 < argc ? argv[i + 1] : "";
	}
	return value;
}

static bool has(int argc, char **argv, const char *flag)
{
	for (int i = 1; i < argc; i++)
		if (strcmp(argv[i], flag) == 0)
			return true;
	return false;
}

/* Runs kvpoold, which returns when it serves. Returns its exit status. */
static int run(const char *program, char **argv, bool foreground)
{
	int status;
	pid_t pid = foreground ? 0 : fork();

	if (pid < 0) {
		fprintf(stderr, "kvpool: fork: %s\n", strerror(errno));
		return 1;
	}
	if (pid == 0) {
		execv(program, argv);
		fprintf(stderr, "kvpool: %s: %s\n", program, strerror(errno));
		_exit(1);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Returns kvpoold --embedded [--keeper] [--store-size N] ARGS..., for the
 * caller to free; NULL: no memory. size is borrowed. */
static char **make_argv(int argc, char **argv, const char *size)
{
	char **out = calloc((size_t)argc + 6, sizeof(*out));
	int n = 0;

	if (!out)
		return NULL;
	out[n++] = (char *)(uintptr_t)"kvpoold";
	out[n++] = (char *)(uintptr_t)"--embedded";
	if (!daemon_keeper_env())
		out[n++] = (char *)(uintptr_t)"--keeper";
	if (size) {
		out[n++] = (char *)(uintptr_t)"--store-size";
		out[n++] = (char *)(uintptr_t)size;
	}
	for (int i = 1; i < argc; i++)
		out[n++] = argv[i];
	return out;
}

/* Commands that work as they are printed: with another admin address than the
 * default, status needs it. */
static void print_next(const char *dir)
{
	char address[POOL_HOSTPORT_TEXT];
	struct pool_hostport admin;
	bool usual;

	pool_parse_hostport(CMD_NODE_ADMIN, 0, &admin);
	cmd_mount_admin(dir, &admin);
	pool_format_hostport(&admin, address, sizeof(address));
	usual = strcmp(address, CMD_NODE_ADMIN) == 0;
	printf("The pool is up at %s. Next:\n"
	       "  state    kvpool status%s%s\n"
	       "  objects  kvpool ls %s\n"
	       "  page     http://%s/pool/\n"
	       "  stop     kvpool down --mount %s\n"
	       "Point your engine's disk offload at %s (kvpool(7)).\n",
	       dir, usual ? "" : " --admin ", usual ? "" : address, dir,
	       address, dir, dir);
}

/* Checked before --mount, as the remedy is another command. kvpoold reports all
 * other errors of --listen. */
static int check_listen(const char *text)
{
	struct pool_hostport hp;
	struct daemon_option o = { .name = "listen", .value = &hp,
				   .seen = true, .given = text };

	if (!text || pool_parse_hostport(text, 1, &hp))
		return 0;
	return daemon_option_check_listen(&o, false, stderr);
}

int cmd_up(int argc, char **argv)
{
	const char *dir = option(argc, argv, "--mount", "KVPOOL_MOUNT");
	const char *size = option(argc, argv, "--store-size",
				  "KVPOOL_STORE_SIZE");
	const char *listen = option(argc, argv, "--listen", "KVPOOL_LISTEN");
	bool foreground = has(argc, argv, "--foreground");
	char path[PATH_MAX], program[PATH_MAX], bytes[32];
	char **args;
	pid_t pid;
	int rc;

	if (has(argc, argv, "--help") || has(argc, argv, "-h")) {
		fputs(usage, stdout);
		return 0;
	}
	if (!option(argc, argv, "--insecure", "KVPOOL_INSECURE") &&
	    check_listen(listen))
		return 2;
	if (!dir || !dir[0]) {
		fprintf(stderr, "kvpool: up: no --mount given; accepted: the "
				"directory to mount the pool at\n");
		return 2;
	}
	/* If the directory does not exist, kvpoold reports that. */
	if (cmd_mount_path(dir, path, sizeof(path)) == 0) {
		pid = cmd_mount_pid(path);
		if (pid && cmd_mounted(path)) {
			printf("already up at %s (pid %d), with the options it "
			       "was started with\n",
			       path, (int)pid);
			return 0;
		}
	}
	if (daemon_sibling_path("kvpoold", program, sizeof(program)))
		return 1;
	snprintf(bytes, sizeof(bytes), "%llu",
		 (unsigned long long)cmd_default_store_size());
	args = make_argv(argc, argv, size ? NULL : bytes);
	if (!args) {
		fprintf(stderr, "kvpool: up: out of memory\n");
		return 1;
	}
	rc = run(program, args, foreground);
	free(args);
	if (rc == 0)
		print_next(dir);
	return rc;
}
