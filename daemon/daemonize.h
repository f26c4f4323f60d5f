/*
 * Going into the background, log files and pid files.
 *
 *   start   fork; the child goes on, in a session of its own, its log in a file
 *   ready   the child reports that it serves; the parent exits 0
 *   (exit)  a child that ends before that: the parent prints what the child
 *           logged and exits with the child's status
 *
 * The working directory is kept, so that relative paths go on meaning the same.
 *
 * Thread: main. start must come before any other thread, loop or connection.
 */
#ifndef DAEMON_DAEMONIZE_H
#define DAEMON_DAEMONIZE_H

#include <stddef.h>
#include <sys/types.h>

/*
 * Go into the background. log_file NULL: /var/log/kvpool/<log_name>.log, or, if
 * that cannot be written, nowhere once the daemon is ready (said in a warning).
 * Returns in the child only: 0; or, without a child, -errno (printed).
 */
int daemon_background_start(const char *log_file, const char *log_name);
/* Stay in the foreground; log_file NULL: stderr. 0 or -errno (printed). */
int daemon_foreground_start(const char *log_file);
/* The start has failed: said where the reason is, if it is in a file. */
void daemon_foreground_failed(void);
/* The program serves: let the waiting parent go. No-op in the foreground. */
void daemon_background_ready(void);
/* Open the log file again under its name (SIGHUP, after a rotation). */
void daemon_log_reopen(void);

/*
 * The pid file of the daemon that serves the mount at the absolute path
 * `mount`: RUN_DIR/<path, escaped as systemd does>.pid. It has the pid and, on
 * a line of its own, the daemon's name.
 */
/* 0, or -ENAMETOOLONG. */
int daemon_pidfile_path(const char *run_dir, const char *mount, char *buf,
			size_t cap);
/* 0 or -errno; not logged: `kvpool down` also asks the mount itself. */
int daemon_pidfile_write(const char *run_dir, const char *mount,
			 const char *name);
/* Removes it if it is this process's. */
void daemon_pidfile_remove(const char *run_dir, const char *mount);
/* The pid in it, or -errno. The process need not exist any more. */
pid_t daemon_pidfile_read(const char *run_dir, const char *mount);
/* Remove those of earlier daemons of this name that have ended: were they
 * killed, they could not. */
void daemon_pidfile_sweep(const char *run_dir, const char *name);

#endif
