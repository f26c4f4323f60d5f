/*
 * The keeper: a process that outlives the daemon and keeps its mount
 * (`kvpoold --keeper`). Containers that have bound the mount (rprivate) would
 * never see another one that replaces it.
 *
 *   keeper                               daemon
 *   forks, before there are threads ---> starts, mounts
 *   has a copy of /dev/fuse         <--- PUT
 *   waits                                serves; is killed
 *   forks the next one, which has   ---> adopts the mount (fs/kept.h), serves
 *   the same descriptors
 *                                        ends, or has handed over to another
 *                                   <--- LET_GO, and ends
 *   ends with the same status
 *
 * While no daemon serves, the kernel queues requests: files open in passthrough
 * can be read and written all the time, all else waits. The keeper starts the
 * next daemon at once, but not more than one in SPAWN_MS. If none serves
 * WAIT_MS after the first of them died, the keeper aborts the connection
 * (waiting requests fail with ECONNABORTED, later ones with ENOTCONN), as the
 * guard does (fs/guard.h), and ends with 1. So it does if the mount is removed
 * meanwhile.
 *
 * If the keeper is killed, nothing changes but that the daemon starts its
 * guard: from then on its death ends the mount. If both are killed at once, the
 * keeper's guard aborts the connection: a third process, which waits for the
 * end of a connection that only those two have. (The kernel would not, if the
 * notifier is blocked: see fs/guard.h.)
 *
 * What is kept: the descriptor of /dev/fuse, and a memfd (fs/kept.h), which the
 * daemon writes and the keeper only passes on. The two talk over a socketpair
 * that no other process has: nobody can connect. The daemon's death is seen by
 * the end of that connection, not by wait(2): a process stays in the table for
 * as long as one of its threads is blocked in the kernel. (The notifier's may
 * be, for a request that only the next daemon answers; it has a table of
 * descriptors of its own, and all others are dead when the connection ends.)
 *
 * The next daemon is a fork of the keeper, so it is the same program with the
 * same options, and INIT stays equal. A daemon that takes over (--takeover) has
 * a keeper of its own; the old one ends with the old daemon.
 *
 * SIGTERM, SIGINT and SIGHUP are passed on to the daemon; if there is none, the
 * first two unmount.
 *
 * Thread: main.
 */
#ifndef DAEMON_KEEPER_H
#define DAEMON_KEEPER_H

#include <stdbool.h>
#include <uv.h>

/* What a daemon has of its keeper. */
struct daemon_keeper {
	int sock;    /* to the keeper; owns; -1: there is none */
	int kept_fd; /* the memfd; owns; -1: no keeper */
	int dev_fd;  /* the mount to adopt; the mount owns it; -1: mount anew */
	int guard;   /* to the keeper's guard; owns; -1: no keeper */
	pid_t pid;   /* of the keeper, while it lives; else 0 */
	uv_poll_t poll; /* of sock, from watch until let_go */
	bool watched;
	void (*lost)(void *arg);
	void *arg;
};

/*
 * Forks: returns 0 in the daemon, once for each daemon, which has `k` filled;
 * never returns in the keeper. mountpoint: absolute, copied. -errno, logged:
 * there is no keeper, and this process is the caller.
 */
int daemon_keeper_start(const char *mountpoint, struct daemon_keeper *k);
/* Gives the keeper the mount: from now on it survives this daemon. 0 or -errno,
 * logged. */
int daemon_keeper_put(const struct daemon_keeper *k, int dev_fd);
/* lost(arg), on the loop: the keeper was killed. No-op without a keeper. */
int daemon_keeper_watch(struct daemon_keeper *k, uv_loop_t *loop,
			void (*lost)(void *arg), void *arg);
/* The process that stands for the service, to whoever started it: the keeper,
 * or else this one. */
pid_t daemon_keeper_main_pid(const struct daemon_keeper *k);
/* The mount will be removed, or another daemon has it now: the keeper closes
 * it, and ends when this process does. No-op without a keeper. */
void daemon_keeper_let_go(struct daemon_keeper *k);

#endif
