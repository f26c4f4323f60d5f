/*
 * kvpool restart: replaces the daemon of a mount by the program that is
 * installed now, with the same options. The mount continues.
 *
 *   as a unit kvpoold@NAME     systemctl reload
 *   a take-over, else          kvpoold OPTION... --takeover
 *   where that cannot be:      SIGUSR2 to the keeper (daemon/keeper.h): with an
 *                              embedded master, or in the foreground, where its
 *                              parent waits for the process
 *
 * The running daemon's options, environment and working directory are read from
 * /proc.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "daemon/sibling.h"
#include "pool/base/clock.h"
#include "tools/cmd.h"

#define POLL_MS 100
#define TEXT_MAX 65536 /* bytes of a command line, or of an environment */
#define KEEPER_COMM "kvpool-keeper"

static const char usage[] =
	"usage: kvpool restart --mount DIR [--by-keeper] [--timeout DURATION]\n"
	"\n"
	"Replaces the daemon that serves DIR by the program that is installed "
	"now, with\n"
	"the same options. The mount and its open files continue: by a "
	"take-over, or,\n"
	"where that is not possible, by the keeper; then files that are being "
	"written\n"
	"are lost. See UPGRADING in kvpoold(8).";

/* A daemon, as /proc shows it. */
struct running {
	pid_t pid;
	char path[PATH_MAX]; /* of the mount */
	char args[TEXT_MAX], env[TEXT_MAX];
	char *argv[TEXT_MAX / 2]; /* with room for one more; in args */
	char *envp[TEXT_MAX / 2];
	int argc;
};

/* Reads /proc/PID/name, up to cap - 1 bytes; returns their number, or
 * -errno. */
static ssize_t read_proc(pid_t pid, const char *name, char *buf, size_t cap)
{
	char path[64];
	ssize_t n, len = 0;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = read(fd, buf + len, cap - 1 - (size_t)len)) > 0)
		len += n;
	n = n < 0 ? -errno : (size_t)len == cap - 1 ? -E2BIG : len;
	close(fd);
	buf[n > 0 ? n : 0] = '\0';
	return n;
}

/* Splits len bytes of texts that end with 0. Returns their number. */
static int split(char *text, ssize_t len, char **out, int max)
{
	int n = 0;

	for (char *p = text; p < text + len && n < max - 2; p += strlen(p) + 1)
		out[n++] = p;
	out[n] = NULL;
	return n;
}

/* Does the process run as our user? Otherwise we might execute the LD_PRELOAD
 * of another user. (The owner of /proc/PID may not be the process's user.) */
static bool is_ours(pid_t pid)
{
	char text[4096], *line;
	unsigned int real, effective;

	if (read_proc(pid, "status", text, sizeof(text)) <= 0)
		return false;
	line = strstr(text, "\nUid:");
	return line &&
	       sscanf(line, "\nUid: %u %u", &real, &effective) == 2 &&
	       real == geteuid() && effective == geteuid();
}

static int read_running(struct running *r)
{
	ssize_t args = read_proc(r->pid, "cmdline", r->args, TEXT_MAX);
	ssize_t env = read_proc(r->pid, "environ", r->env, TEXT_MAX);

	if (!is_ours(r->pid) || args <= 0 || env < 0) {
		fprintf(stderr,
			"kvpool: restart: pid %d: its options cannot be used; "
			"accepted: a daemon of this user (%u), with at most "
			"%d bytes of them\n",
			(int)r->pid, (unsigned int)geteuid(), TEXT_MAX);
		return -EINVAL;
	}
	r->argc = split(r->args, args, r->argv, TEXT_MAX / 2);
	(void)split(r->env, env, r->envp, TEXT_MAX / 2);
	return 0;
}

/* Is the flag --NAME or KVPOOL_NAME set for the daemon? */
static bool is_set(const struct running *r, const char *name, const char *env)
{
	const char *value = "no";

	for (char *const *e = r->envp; *e; e++)
		if (strncmp(*e, env, strlen(env)) == 0 &&
		    (*e)[strlen(env)] == '=' && (*e)[strlen(env) + 1])
			value = *e + strlen(env) + 1;
	for (int i = 1; i < r->argc; i++) {
		if (strncmp(r->argv[i], name, strlen(name)) != 0)
			continue;
		if (!r->argv[i][strlen(name)])
			value = "yes";
		else if (r->argv[i][strlen(name)] == '=')
			value = r->argv[i] + strlen(name) + 1;
	}
	return strchr("yYtT1", value[0]) || strcmp(value, "on") == 0;
}

/* Runs argv in the daemon's environment and directory, or in ours (r NULL).
 * Returns its exit status. */
static int run(const struct running *r, const char *program, char **argv,
	       bool quiet)
{
	char cwd[64];
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		if (r) {
			snprintf(cwd, sizeof(cwd), "/proc/%d/cwd",
				 (int)r->pid);
			(void)!chdir(cwd);
		}
		if (quiet)
			(void)!freopen("/dev/null", "w", stdout);
		execvpe(program, argv, r ? r->envp : environ);
		fprintf(stderr, "kvpool: %s: %s\n", program, strerror(errno));
		_exit(1);
	}
	if (pid < 0)
		return 1;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return 1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Runs the installed kvpoold with the daemon's options and one more. */
static int run_with(struct running *r, const char *option, bool quiet)
{
	char program[PATH_MAX];
	int rc;

	if (daemon_sibling_path("kvpoold", program, sizeof(program)))
		return 1;
	r->argv[r->argc] = (char *)(uintptr_t)option;
	r->argv[r->argc + 1] = NULL;
	rc = run(r, program, r->argv, quiet);
	r->argv[r->argc] = NULL;
	return rc;
}

/* The keeper of the daemon, or 0. */
static pid_t keeper_of(pid_t pid)
{
	char text[4096], comm[32];
	const char *end;
	int parent;

	if (read_proc(pid, "stat", text, sizeof(text)) <= 0)
		return 0;
	end = strrchr(text, ')');
	if (!end || sscanf(end, ") %*c %d", &parent) != 1 || parent <= 1 ||
	    read_proc(parent, "comm", comm, sizeof(comm)) <= 0)
		return 0;
	return strcmp(comm, KEEPER_COMM "\n") == 0 ? parent : 0;
}

/* The name of the daemon's unit, if it is a kvpoold@NAME.service; or NULL. */
static char *unit_of(pid_t pid, char *buf, size_t cap)
{
	char *unit;

	if (read_proc(pid, "cgroup", buf, cap) <= 0)
		return NULL;
	buf[strcspn(buf, "\n")] = '\0';
	unit = strrchr(buf, '/');
	return unit && strncmp(unit + 1, "kvpoold@", 8) == 0 ? unit + 1 : NULL;
}

/* The version of the daemon that serves the mount; waits for its answer. "":
 * not known. */
static void version_of(const char *path, char *buf, size_t cap)
{
	char name[PATH_MAX + 32];
	const char *text;
	json_t *json;

	snprintf(name, sizeof(name), "%s/.kvpool/status", path);
	json = json_load_file(name, 0, NULL);
	text = json_string_value(json_object_get(json, "version"));
	snprintf(buf, cap, "%s", text ? text : "");
	json_decref(json);
}

/* Another daemon than r's has the mount. */
static int wait_for_next(const struct running *r, uint64_t timeout_ms)
{
	const struct timespec pause = { 0, POLL_MS * 1000000L };
	uint64_t start = pool_now_ms();

	for (;;) {
		pid_t pid = cmd_mount_pid(r->path);

		if (pid && pid != r->pid)
			return 0;
		if (!pid && !cmd_mounted(r->path)) {
			fprintf(stderr, "kvpool: restart: nothing is mounted "
					"at %s any more: its log says why\n",
				r->path);
			return 1;
		}
		if (pool_now_ms() - start > timeout_ms)
			break;
		nanosleep(&pause, NULL);
	}
	fprintf(stderr,
		"kvpool: restart: pid %d still serves %s after %llu s: its log "
		"says why\n",
		(int)r->pid, r->path, (unsigned long long)timeout_ms / 1000);
	return 1;
}

static int by_keeper(const struct running *r, uint64_t timeout_ms)
{
	pid_t keeper = keeper_of(r->pid);

	if (!keeper) {
		fprintf(stderr,
			"kvpool: restart: pid %d has no keeper, and a "
			"take-over is not possible with --embedded or "
			"--foreground; accepted: a daemon with "
			"--keeper; or stop it and start it\n",
			(int)r->pid);
		return 1;
	}
	if (kill(keeper, SIGUSR2)) {
		fprintf(stderr, "kvpool: restart: keeper %d: %s\n", (int)keeper,
			strerror(errno));
		return 1;
	}
	return wait_for_next(r, timeout_ms);
}

static int by_unit(const struct running *r, char *unit, uint64_t timeout_ms)
{
	char *argv[] = { (char *)(uintptr_t)"systemctl",
			 (char *)(uintptr_t)"reload", unit, NULL };
	int rc = run(NULL, argv[0], argv, false);

	return rc ? rc : wait_for_next(r, timeout_ms);
}

static int restart(struct running *r, bool keeper, uint64_t timeout_ms)
{
	char cgroup[PATH_MAX], was[64], is[64];
	char *unit;
	int rc = read_running(r);

	if (rc)
		return 1;
	/* Checked while the old daemon still runs unchanged. */
	if (run_with(r, "--version", true)) {
		fprintf(stderr, "kvpool: restart: the installed kvpoold does "
				"not start with the options of pid %d, which "
				"continues\n",
			(int)r->pid);
		return 1;
	}
	version_of(r->path, was, sizeof(was));
	unit = unit_of(r->pid, cgroup, sizeof(cgroup));
	if (keeper || is_set(r, "--embedded", "KVPOOL_EMBEDDED"))
		rc = by_keeper(r, timeout_ms);
	else if (unit)
		rc = by_unit(r, unit, timeout_ms);
	else if (is_set(r, "--foreground", "KVPOOL_FOREGROUND"))
		rc = by_keeper(r, timeout_ms);
	else
		rc = run_with(r, "--takeover", false);
	if (rc)
		return 1;
	version_of(r->path, is, sizeof(is));
	printf("%s: kvpoold %s (pid %d) replaces %s (pid %d)\n", r->path, is,
	       (int)cmd_mount_pid(r->path), was, (int)r->pid);
	return 0;
}

int cmd_restart(int argc, char **argv)
{
	static struct running r;
	const char *mount = NULL;
	uint64_t timeout_ms = 60000;
	bool keeper = false;
	struct daemon_option opts[] = {
		{ .name = "mount", .type = OPT_STRING, .value = &mount,
		  .arg = "DIR", .help = "The mount." },
		{ .name = "by-keeper", .type = OPT_FLAG, .value = &keeper,
		  .help = "By the keeper, not a take-over.", .no_env = true },
		{ .name = "timeout", .type = OPT_DURATION, .value = &timeout_ms,
		  .arg = "DURATION",
		  .help = "How long to wait for the next daemon.",
		  .min = 1000 },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (!mount && nops == 1)
		mount = ops[0];
	else if (!mount || nops)
		return daemon_option_reject(&opts[0], "one directory", stderr),
		       2;
	rc = cmd_mount_path(mount, r.path, sizeof(r.path));
	if (!rc)
		r.pid = cmd_mount_pid(r.path);
	if (rc || !r.pid) {
		fprintf(stderr, "kvpool: restart: %s: %s\n", mount,
			rc ? strerror(-rc) :
			     "no daemon serves it that can be seen from here");
		return 1;
	}
	return restart(&r, keeper, timeout_ms);
}
