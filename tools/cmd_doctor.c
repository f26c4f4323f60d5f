/* kvpool doctor: queries a node, examines its machine, prints the findings. */
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "tools/cmd.h"
#include "tools/doctor.h"

static const char *const costs[] = { [DOCTOR_SPEED] = "speed",
				     [DOCTOR_SAFETY] = "safety" };

/* Answers of the node, and findings. */
struct visit {
	struct pool_hostport admin;
	struct pool_hostport master; /* host "": not given */
	struct doctor d;
	json_t *status, *devices, *nodes; /* own */
	struct doctor_finding found[DOCTOR_FINDINGS_MAX];
	size_t n;
};

/* The interface that has the host's address; "": none of this machine. */
static void find_interface(const char *host, char *ret, size_t cap)
{
	struct addrinfo hints = { .ai_flags = AI_NUMERICHOST }, *want = NULL;
	struct ifaddrs *all = NULL, *i;

	ret[0] = '\0';
	if (getaddrinfo(host, NULL, &hints, &want) || getifaddrs(&all))
		goto out;
	for (i = all; i && !ret[0]; i = i->ifa_next) {
		char text[NI_MAXHOST];

		if (!i->ifa_addr || i->ifa_addr->sa_family != want->ai_family)
			continue;
		if (getnameinfo(i->ifa_addr, want->ai_addrlen, text,
				sizeof(text), NULL, 0, NI_NUMERICHOST) == 0 &&
		    strcmp(text, host) == 0)
			snprintf(ret, cap, "%s", i->ifa_name);
	}
out:
	if (all)
		freeifaddrs(all);
	if (want)
		freeaddrinfo(want);
}

/* 0 or -errno, printed. */
static int visit(struct visit *v, const char *root)
{
	struct pool_hostport at;
	const char *advertise;
	int rc = cmd_get(&v->admin, "/api/status", &v->status);

	if (rc)
		return rc;
	if (strcmp(json_string_value(json_object_get(v->status, "role")) ?: "",
		   "node")) {
		fprintf(stderr, "kvpool: doctor: this is a master; accepted: "
				"--admin HOST:PORT of a node\n");
		return -EINVAL;
	}
	rc = cmd_get(&v->admin, "/api/devices", &v->devices);
	if (rc)
		return rc;
	rc = cmd_get(&v->admin, "/api/nodes", &v->nodes);
	if (rc)
		return rc;
	v->d = (struct doctor){ .root = root, .status = v->status,
				.devices = v->devices, .nodes = v->nodes };
	advertise = json_string_value(json_object_get(v->status, "advertise"));
	if (advertise && pool_parse_hostport(advertise, 0, &at) == 0)
		find_interface(at.host, v->d.interface,
			       sizeof(v->d.interface));
	v->n = doctor_look(&v->d, v->found);
	return 0;
}

static void visit_end(struct visit *v)
{
	json_decref(v->status);
	json_decref(v->devices);
	json_decref(v->nodes);
}

static void print_text(const struct visit *v)
{
	char address[POOL_HOSTPORT_TEXT];

	printf("node %s (%s), %zu checks: ",
	       json_string_value(json_object_get(v->status, "name")),
	       pool_format_hostport(&v->admin, address, sizeof(address)),
	       doctor_checks());
	if (v->n == 0)
		printf("nothing costs speed or safety\n");
	else
		printf("%zu found\n", v->n);
	for (size_t i = 0; i < v->n; i++) {
		const struct doctor_finding *f = &v->found[i];

		printf("\n%s, %s: %s\n  remedy: %s\n", costs[f->cost], f->check,
		       f->what, f->mend);
	}
}

static json_t *findings_json(const struct visit *v)
{
	json_t *rows = json_array();

	for (size_t i = 0; i < v->n && rows; i++) {
		const struct doctor_finding *f = &v->found[i];

		if (json_array_append_new(
			    rows, json_pack("{s:s, s:s, s:s, s:s}", "check",
					    f->check, "costs", costs[f->cost],
					    "what", f->what, "mend",
					    f->mend))) {
			json_decref(rows);
			rows = NULL;
		}
	}
	return json_pack("{s:I, s:o*}", "checks", (json_int_t)doctor_checks(),
			 "findings", rows);
}

void cmd_doctor_brief(struct pool_hostport *admin, FILE *out)
{
	struct visit v = { .admin = *admin };

	if (visit(&v, "") == 0 && v.n > 0) {
		fprintf(out, "kvpool doctor finds %zu:", v.n);
		for (size_t i = 0; i < v.n; i++)
			fprintf(out, " %s", v.found[i].check);
		fputc('\n', out);
	}
	visit_end(&v);
}

/* ---- a bundle ---- */

/*
 * The contents of a bundle, listed by name: answers of the daemon, none of
 * which has a secret, and facts about the machine. The daemon's command line
 * and environment, which may have passwords, do not.
 */
static const char *const pages[] = { "/api/status", "/api/nodes",
				     "/api/devices", "/metrics" };
static const char *const machine[] = {
	"/proc/version", "/proc/meminfo", "/proc/loadavg", "/proc/swaps",
	"/sys/kernel/mm/transparent_hugepage/shmem_enabled",
	"/sys/module/haltpoll/parameters/guest_halt_poll_ns",
	"/sys/module/page_reporting/parameters/page_reporting_order",
};
static const char *const process[] = { "limits", "cgroup", "status" };

static int put_text(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX], *p;
	FILE *f;
	int err;

	snprintf(path, sizeof(path), "%s/%s", dir, name[0] == '/' ? name + 1 :
								    name);
	for (p = path + strlen(dir) + 1; *p; p++)
		if (*p == '/')
			*p = '-';
	f = fopen(path, "we");
	if (!f)
		return -errno;
	fputs(text, f);
	err = ferror(f) ? -EIO : 0;
	return fclose(f) && !err ? -errno : err;
}

static void put_file(const char *dir, const char *root, const char *name)
{
	static char text[1 << 18];
	char path[PATH_MAX];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s%s", root, name);
	f = fopen(path, "re");
	if (!f)
		return; /* this machine does not have it */
	n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	put_text(dir, name, text);
}

/* Runs a program, its output to the file `to` (NULL: nowhere). 0 or -errno. */
static int run(char *const argv[], const char *to)
{
	int status, fd;
	pid_t pid = fork();

	if (pid < 0)
		return -errno;
	if (pid == 0) {
		fd = open(to ? to : "/dev/null",
			  O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		if (fd >= 0 && dup2(fd, STDOUT_FILENO) >= 0 &&
		    (!to || dup2(fd, STDERR_FILENO) >= 0))
			execvp(argv[0], argv);
		_exit(127);
	}
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EREMOTEIO;
}

/* What the daemon logged last: to the file that is its stderr (kvpool up), or
 * to the journal; a machine without systemd has none. */
static void put_log(const struct visit *v, const char *dir, const char *pid)
{
	char from[PATH_MAX], to[PATH_MAX], match[48];
	char *file[] = { "tail", "--bytes=262144", "--", from, NULL };
	char *journal[] = { "journalctl", "--quiet", "--lines=2000", match,
			    NULL };
	struct stat st;

	snprintf(from, sizeof(from), "%s/proc/%s/fd/2", v->d.root, pid);
	snprintf(match, sizeof(match), "_PID=%s", pid);
	snprintf(to, sizeof(to), "%s/log", dir);
	(void)run(!stat(from, &st) && S_ISREG(st.st_mode) ? file : journal, to);
}

/* What happened to the pool: of the master, which may be in the node's process.
 * A bundle without it is of use as well. */
static void put_events(struct visit *v, const char *dir)
{
	bool given = v->master.host[0] != '\0';
	char *text;

	if (cmd_get_text(given ? &v->master : &v->admin,
			 "/api/events?limit=10000", &text)) {
		fprintf(stderr, "kvpool: doctor: the bundle has no events of "
				"the pool%s\n",
			given ? "" : "; accepted: --master HOST:PORT, the "
				     "master's admin address");
		return;
	}
	put_text(dir, "api-events", text);
	free(text);
}

static int fill(struct visit *v, const char *dir)
{
	json_t *json = findings_json(v);
	char *text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
	int rc = text ? put_text(dir, "doctor.json", text) : -ENOMEM;
	char name[PATH_MAX], pid[32];

	json_decref(json);
	free(text);
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages) && !rc; i++) {
		rc = cmd_get_text(&v->admin, pages[i], &text);
		if (rc)
			break;
		rc = put_text(dir, pages[i], text);
		free(text);
	}
	for (size_t i = 0; i < sizeof(machine) / sizeof(*machine); i++)
		put_file(dir, v->d.root, machine[i]);
	snprintf(pid, sizeof(pid), "%lld",
		 json_integer_value(json_object_get(v->status, "pid")));
	for (size_t i = 0; i < sizeof(process) / sizeof(*process); i++) {
		snprintf(name, sizeof(name), "/proc/%s/%s", pid, process[i]);
		put_file(dir, v->d.root, name);
	}
	if (!rc) {
		put_log(v, dir, pid);
		put_events(v, dir);
	}
	return rc;
}

/* Makes the file, or empties it: for its owner only. */
static int make_private(const char *path)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	int err;

	if (fd < 0)
		return -errno;
	err = fchmod(fd, 0600) ? -errno : 0;
	close(fd);
	return err;
}

/* 0 or -errno, printed. */
static int write_bundle(struct visit *v, const char *path)
{
	char dir[] = "/tmp/kvpool-bundle.XXXXXX";
	/* --force-local: a name with a colon is a file as well */
	char *tar[] = { "tar", "--force-local", "-czf", (char *)path, "-C", dir,
			".", NULL };
	char *rm[] = { "rm", "-rf", "--", dir, NULL };
	mode_t mask = umask(077);
	int rc = mkdtemp(dir) ? make_private(path) : -errno;

	if (!rc)
		rc = fill(v, dir);
	if (!rc && run(tar, NULL))
		rc = -EIO;
	if (rc)
		fprintf(stderr, "kvpool: doctor: --bundle %s: %s\n", path,
			strerror(-rc));
	(void)run(rm, NULL);
	umask(mask);
	return rc;
}

int cmd_doctor(int argc, char **argv)
{
	const char *root = "", *bundle = NULL;
	struct visit v = { 0 };
	bool as_json = false;
	struct daemon_option opts[] = {
		{ .name = "admin", .type = OPT_HOSTPORT, .value = &v.admin,
		  .arg = "HOST:PORT",
		  .help = "The node to ask, on this machine. Default: "
			  CMD_NODE_ADMIN ".",
		  .default_port = 7073 },
		CMD_TLS_OPTION,
		{ .name = "root", .type = OPT_STRING, .value = &root,
		  .arg = "DIR",
		  .help = "Where the machine's /proc and /sys are: in a\n"
			  "container that has them elsewhere. Default: /." },
		{ .name = "bundle", .type = OPT_STRING, .value = &bundle,
		  .arg = "FILE",
		  .help = "Also write FILE (tar.gz) for a report of a fault:\n"
			  "state, metrics, log, facts about the machine; no\n"
			  "keys, command lines or environments." },
		{ .name = "master", .type = OPT_HOSTPORT, .value = &v.master,
		  .arg = "HOST:PORT",
		  .help = "The master's admin address: the bundle then has\n"
			  "the pool's events. Default: the master in the\n"
			  "node's process, if there is one.",
		  .default_port = 7071, .no_env = true },
		{ .name = "json", .type = OPT_FLAG, .value = &as_json,
		  .help = "Print JSON." },
		{ .name = NULL },
	};
	json_t *json;
	char **ops;
	int nops, rc;

	rc = daemon_options_parse(
		opts, argc, argv,
		"usage: kvpool doctor [--admin HOST:PORT] [--root DIR] "
		"[--bundle FILE] [--master HOST:PORT]\n"
		"                     [--json]\n\n"
		"Finds what costs a node and its machine speed or safety, "
		"and names remedies.\n"
		"Exit status 0: nothing; 1: something was found, or it failed.",
		&nops, &ops, stdout, stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops) {
		fprintf(stderr, "kvpool: doctor: \"%s\" given; accepted: no "
				"operand\n",
			ops[0]);
		return 2;
	}
	pool_log_set_level(POOL_LOG_ERROR);
	rc = visit(&v, root);
	if (!rc && as_json) {
		json = findings_json(&v);
		cmd_print_json(json, stdout);
		json_decref(json);
	} else if (!rc) {
		print_text(&v);
	}
	if (!rc && bundle)
		rc = write_bundle(&v, bundle);
	rc = rc || v.n > 0;
	visit_end(&v);
	return rc;
}
