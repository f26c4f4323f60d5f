/*
 * Going into the background, log files and pid files.
 *
 *   start   forks; the child logs to a file
 *   ready   the child reports that it serves, and goes on in a session of its
 *           own; the parent exits with 0
 *   (exit)  if the child ends before that, the parent prints what the child
 *           logged and exits with the child's status
 *
 * The working directory is kept, so that relative paths stay valid.
 *
 * Thread: main. start must come before any other thread, loop or connection.
 */
#ifndef DAEMON_DAEMONIZE_H
#define DAEMON_DAEMONIZE_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Goes into the background. log_file NULL: /var/log/kvpool/<log_name>.log; if
 * that cannot be written, a warning is logged, and messages are discarded once
 * the daemon is ready. Returns 0 in the child only; -errno (printed) if there
 * is no child.
 */
int daemon_background_start(const char *log_file, const char *log_name);
/* For a process that was in the background already when it executed this
 * program: only opens the log, as above. 0 or -errno (printed). */
int daemon_background_again(const char *log_file, const char *log_name);
/* Stays in the foreground; log_file NULL: stderr. 0 or -errno (printed). */
int daemon_foreground_start(const char *log_file);
/* Start-up has failed: prints which log file has the reason, if one is used. */
void daemon_foreground_failed(void);
/* The daemon serves: the waiting parent exits. No-op in the foreground. */
void daemon_background_ready(void);
/* For a keeper, which has forked the daemon: leaves the report to the daemon,
 * and goes on in a session of its own. */
void daemon_background_forked(void);
/* Reopens the log file by its name (SIGHUP, after a rotation). */
void daemon_log_reopen(void);

/*
 * The pid file of the daemon that serves the mount at the absolute path
 * `mount`: RUN_DIR/<path, escaped as systemd does>.pid. It has the pid and, on
 * a line of its own, the daemon's name.
 */
/* 0, or -ENAMETOOLONG. */
int daemon_pidfile_path(const char *run_dir, const char *mount, char *buf,
			size_t cap);
/* 0 or -errno; not logged, because `kvpool down` also asks the mount itself. */
int daemon_pidfile_write(const char *run_dir, const char *mount,
			 const char *name);
/* Removes the file if it has this process's pid. */
void daemon_pidfile_remove(const char *run_dir, const char *mount);
/* The pid in the file, or -errno. The process may have ended. */
pid_t daemon_pidfile_read(const char *run_dir, const char *mount);
/* Removes the pid files of earlier daemons of this name that have ended; a
 * killed daemon leaves its file behind. */
void daemon_pidfile_sweep(const char *run_dir, const char *name);

#endif
