#include "daemon/daemonize.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/base/log.h"
#include "pool/base/parse.h"

#define LOG_DIR "/var/log/kvpool"
#define PIDFILE_MAX 256
#define REPORT_MAX 65536 /* bytes of a child's log shown by its parent */

static struct {
	char *log_file;	  /* owns; NULL: stderr as it was, or nowhere */
	int ready_fd;	  /* pipe to the waiting parent */
	int terminal;	  /* foreground: the original stderr; -1: unchanged */
	bool background;
} self = { .ready_fd = -1, .terminal = -1 };

/* ---- log files ---- */

static int open_log(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0640);

	return fd < 0 ? -errno : fd;
}

/* Opens the log file and keeps its absolute name: fd or -errno. */
static int set_log(const char *path)
{
	char cwd[4096] = "";
	int fd = open_log(path);

	if (fd < 0)
		return fd;
	if (path[0] != '/' && !getcwd(cwd, sizeof(cwd)))
		cwd[0] = '\0';
	if (asprintf(&self.log_file, "%s%s%s", cwd, cwd[0] ? "/" : "", path) <
	    0) {
		self.log_file = NULL;
		close(fd);
		return -ENOMEM;
	}
	return fd;
}

static int default_log(const char *name)
{
	char path[256];

	if (mkdir(LOG_DIR, 0755) && errno != EEXIST)
		return -errno;
	snprintf(path, sizeof(path), LOG_DIR "/%s.log", name);
	return set_log(path);
}

/* An unnamed log, used only for the parent's report. */
static int no_log(void)
{
	int fd = memfd_create("kvpool log", MFD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

static int print_log_error(const char *path, int err)
{
	fprintf(stderr, "%s: --log-file: \"%s\" given, %s\n",
		program_invocation_short_name, path, strerror(-err));
	return err;
}

void daemon_log_reopen(void)
{
	int fd;

	if (!self.log_file)
		return;
	fd = open_log(self.log_file);
	if (fd < 0) {
		pool_error("log file %s: %s; the old one stays in use",
			   self.log_file, strerror(-fd));
		return;
	}
	dup2(fd, STDERR_FILENO);
	if (self.background)
		dup2(fd, STDOUT_FILENO);
	close(fd);
}

int daemon_foreground_start(const char *log_file)
{
	int fd;

	if (!log_file)
		return 0;
	fd = set_log(log_file);
	if (fd < 0)
		return print_log_error(log_file, fd);
	self.terminal =
		fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	dup2(fd, STDERR_FILENO);
	close(fd);
	return 0;
}

void daemon_foreground_failed(void)
{
	if (self.terminal >= 0)
		dprintf(self.terminal, "%s did not start: %s says why\n",
			program_invocation_short_name, self.log_file);
}

/* ---- the parent ---- */

/* Is this line ("<time> warn <text>") shown even after a successful start? */
static bool is_warning(const char *line)
{
	const char *level = strchr(line, ' ');

	return level && (strncmp(level, " warn", 5) == 0 ||
			 strncmp(level, " error", 6) == 0);
}

/* Prints what the child has logged since `from`: all, or only warnings. */
static void report(int log_fd, off_t from, bool all)
{
	char *text = calloc(1, REPORT_MAX + 1), *save = NULL;
	ssize_t n = text ? pread(log_fd, text, REPORT_MAX, from) : -1;

	if (n > 0)
		for (char *line = strtok_r(text, "\n", &save); line;
		     line = strtok_r(NULL, "\n", &save))
			if (all || is_warning(line))
				fprintf(stderr, "%s\n", line);
	free(text);
}

static void wait_for(pid_t child, int ready_fd, int log_fd, off_t from)
	__attribute__((noreturn));
static void wait_for(pid_t child, int ready_fd, int log_fd, off_t from)
{
	char byte;
	ssize_t n;
	int status;

	do
		n = read(ready_fd, &byte, 1);
	while (n < 0 && errno == EINTR);
	report(log_fd, from, n != 1);
	if (n == 1)
		_exit(0);
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (WIFSIGNALED(status))
		fprintf(stderr, "%s: killed by signal %d (%s)\n",
			program_invocation_short_name, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	if (WIFEXITED(status) && WEXITSTATUS(status))
		_exit(WEXITSTATUS(status));
	_exit(1);
}

/* ---- the child ---- */

static void become_child(int ready_fd, int log_fd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	if (null >= 0) {
		dup2(null, STDIN_FILENO);
		close(null);
	}
	dup2(log_fd, STDOUT_FILENO);
	dup2(log_fd, STDERR_FILENO);
	self.ready_fd = ready_fd;
	self.background = true;
}

int daemon_background_start(const char *log_file, const char *log_name)
{
	int log_fd = log_file ? set_log(log_file) : default_log(log_name);
	int pipe_fd[2], err;
	off_t from;
	pid_t child;

	if (log_fd < 0 && log_file)
		return print_log_error(log_file, log_fd);
	if (log_fd < 0)
		log_fd = no_log();
	if (log_fd < 0 || pipe2(pipe_fd, O_CLOEXEC)) {
		err = log_fd < 0 ? log_fd : -errno;
		fprintf(stderr, "%s: %s\n", program_invocation_short_name,
			strerror(-err));
		return err;
	}
	from = lseek(log_fd, 0, SEEK_END);
	child = fork();
	if (child < 0) {
		err = -errno;
		fprintf(stderr, "%s: fork: %s\n", program_invocation_short_name,
			strerror(errno));
		return err;
	}
	if (child) {
		close(pipe_fd[1]);
		wait_for(child, pipe_fd[0], log_fd, from);
	}
	close(pipe_fd[0]);
	become_child(pipe_fd[1], log_fd);
	close(log_fd);
	if (!self.log_file)
		pool_warn("%s cannot be written, so there will be no log; "
			  "choose a place with --log-file",
			  LOG_DIR);
	return 0;
}

int daemon_background_again(const char *log_file, const char *log_name)
{
	int log_fd = log_file ? set_log(log_file) : default_log(log_name);

	if (log_fd < 0 && log_file)
		return print_log_error(log_file, log_fd);
	if (log_fd >= 0) {
		become_child(-1, log_fd);
		close(log_fd);
	}
	self.background = true;
	return 0;
}

/*
 * Leaves the parent's session. Not before the daemon has mounted: a process
 * that touches an automount's directory waits until something is mounted there,
 * unless it is in the process group in which the automounter runs mount(8)
 * (autofs(5); systemd: "same_pgrp"). Outside of it, the daemon would wait for
 * itself. Not after the parent has ended: its terminal may end with it.
 */
static void leave_session(void)
{
	(void)setsid();
}

/* The report is complete: without a log file nothing is logged from now on. */
static void end_report(void)
{
	int null;

	close(self.ready_fd);
	self.ready_fd = -1;
	if (self.log_file)
		return;
	null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (null >= 0) {
		dup2(null, STDOUT_FILENO);
		dup2(null, STDERR_FILENO);
		close(null);
	}
}

void daemon_background_ready(void)
{
	ssize_t n;

	if (self.ready_fd < 0)
		return;
	leave_session();
	/* Ignore errors: the parent may have been killed meanwhile. */
	do
		n = write(self.ready_fd, "r", 1);
	while (n < 0 && errno == EINTR);
	end_report();
}

void daemon_background_forked(void)
{
	if (self.ready_fd < 0)
		return;
	leave_session();
	end_report();
}

/* ---- pid files ---- */

int daemon_pidfile_path(const char *run_dir, const char *mount, char *buf,
			size_t cap)
{
	char name[256];
	size_t n = 0;
	int len;

	while (*mount == '/')
		mount++;
	for (; *mount; mount++) {
		if (n + 5 > sizeof(name))
			return -ENAMETOOLONG;
		if (*mount == '-' || *mount == '\\')
			n += (size_t)sprintf(name + n, "\\x%02x", *mount);
		else if (*mount == '/' && (mount[1] == '/' || !mount[1]))
			continue;
		else
			name[n++] = *mount == '/' ? '-' : *mount;
	}
	len = snprintf(buf, cap, "%s/%.*s.pid", run_dir, (int)n, name);
	return len < 0 || (size_t)len >= cap ? -ENAMETOOLONG : 0;
}

int daemon_pidfile_write(const char *run_dir, const char *mount,
			 const char *name)
{
	char path[PATH_MAX], text[PIDFILE_MAX];
	int fd, len, err;

	err = daemon_pidfile_path(run_dir, mount, path, sizeof(path));
	if (err)
		return err;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW,
		  0644);
	if (fd < 0)
		return -errno;
	len = snprintf(text, sizeof(text), "%d\n%s\n", (int)getpid(), name);
	if (write(fd, text, (size_t)len) != len)
		err = -EIO;
	close(fd);
	return err;
}

/* Reads a pid file: returns the pid, and the daemon's name in `name`
 * (PIDFILE_MAX bytes); or -errno. */
static pid_t read_pidfile(int dirfd, const char *path, char *name)
{
	int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	char text[PIDFILE_MAX], *end;
	uint64_t pid;
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return -EINVAL;
	text[n] = '\0';
	end = text + strcspn(text, "\n");
	strcpy(name, *end ? end + 1 : "");
	name[strcspn(name, "\n")] = '\0';
	*end = '\0';
	if (pool_parse_u64(text, 2, INT32_MAX, &pid))
		return -EINVAL;
	return (pid_t)pid;
}

pid_t daemon_pidfile_read(const char *run_dir, const char *mount)
{
	char path[PATH_MAX], name[PIDFILE_MAX];
	int err = daemon_pidfile_path(run_dir, mount, path, sizeof(path));

	return err ? err : read_pidfile(AT_FDCWD, path, name);
}

void daemon_pidfile_remove(const char *run_dir, const char *mount)
{
	char path[PATH_MAX];

	if (daemon_pidfile_path(run_dir, mount, path, sizeof(path)) == 0 &&
	    daemon_pidfile_read(run_dir, mount) == getpid())
		unlink(path);
}

void daemon_pidfile_sweep(const char *run_dir, const char *name)
{
	char of[PIDFILE_MAX];
	DIR *dir = opendir(run_dir);
	struct dirent *e;
	pid_t pid;

	while (dir && (e = readdir(dir))) {
		const char *suffix = strrchr(e->d_name, '.');

		if (!suffix || strcmp(suffix, ".pid") != 0)
			continue;
		pid = read_pidfile(dirfd(dir), e->d_name, of);
		if (pid > 1 && strcmp(of, name) == 0 && kill(pid, 0) < 0 &&
		    errno == ESRCH)
			(void)unlinkat(dirfd(dir), e->d_name, 0);
	}
	if (dir)
		closedir(dir);
}
