/*
 * The keeper: a process that outlives the daemon and keeps its mount
 * (`kvpoold --keeper`). A container with an rprivate bind mount of it would
 * never see a new mount in its place.
 *
 *   keeper                               daemon
 *   forks, before there are threads ---> starts, mounts
 *   has a copy of /dev/fuse         <--- PUT
 *   waits                                serves; is killed
 *   forks the next one, which has   ---> adopts the mount (fs/kept.h), serves
 *   the same descriptors
 *   closes its copy                 <--- LET_GO: before the daemon unmounts, or
 *                                        after it has handed over
 *   exits with the daemon's status       exits
 *
 * While no daemon serves, the kernel queues requests: files open in passthrough
 * can be read and written all the time, all else waits. The keeper starts the
 * next daemon at once, but at most one every SPAWN_MS. If, WAIT_MS after the
 * last serving daemon died, none serves yet, the keeper aborts the connection
 * (waiting requests fail with ECONNABORTED, later ones with ENOTCONN), as the
 * guard does (fs/guard.h), and exits with 1. It also does that if the mount is
 * removed while no daemon serves.
 *
 * If the keeper is killed, the daemon continues and starts a guard: from then
 * on the daemon's death ends the mount. If both are killed at once, the
 * keeper's guard aborts the FUSE connection. It has one end of a socket pair,
 * whose other end is open in the keeper and the daemon; when both are dead, it
 * is closed. (This is not the guard of fs/guard.h, which says why the kernel
 * may not abort.)
 *
 * What is kept: the descriptor of /dev/fuse, and a memfd (fs/kept.h), which the
 * daemon writes and the keeper only passes on. The two talk over a socketpair
 * that no other process has: nobody can connect. The keeper detects the death
 * of the daemon by the end of that connection, not by wait(2), which does not
 * return as long as a thread of the daemon is blocked in the kernel. (The
 * notifier's thread may be blocked by a request that only the next daemon will
 * answer. It has its own descriptor table, so all other threads are dead when
 * the connection ends.)
 *
 * The next daemon is a fork of the keeper, so it is the same program with the
 * same options, and the INIT exchange stays valid. On SIGUSR2 (`kvpool
 * restart`) the daemon ends without losing anything (daemon/restart.h), and the
 * keeper first executes the program now installed at its own path, by execve(2)
 * with the same arguments. It inherits the descriptors, whose numbers are in
 * KEPT_ENV. The last of them is the old program, which is executed again if the
 * new one cannot read the memfd. A daemon that takes over (--takeover) has a
 * keeper of its own; the old one ends with the old daemon.
 *
 * SIGTERM, SIGINT and SIGHUP are passed on to the daemon; if there is none, the
 * first two unmount.
 *
 * The two descriptors may be kept elsewhere instead (daemon/fdstore.h): by the
 * service manager, or by `kvpool keep` in another container. Then there is no
 * keeper process: the next daemon is started by whatever started this one, and
 * the daemon's own guard (fs/guard.h) aborts the connection if none serves in
 * time.
 *
 * Thread: main.
 */
#ifndef DAEMON_KEEPER_H
#define DAEMON_KEEPER_H

#include <stdbool.h>
#include <uv.h>

/* A daemon's end of the keeper. */
struct daemon_keeper {
	const char *socket; /* of `kvpool keep`; borrowed; NULL: none */
	bool takeover; /* another daemon may have the mount */
	bool stored; /* descriptors are kept elsewhere */
	bool adopted; /* stored: dev_fd and kept_fd are from there */
	int sock;    /* to the keeper; owns; -1: there is no such process */
	int kept_fd; /* the memfd; owns; -1: no keeper */
	int dev_fd;  /* the mount to adopt; the mount owns it; -1: mount anew */
	int put_fd;  /* daemon_keeper_put's; borrowed */
	int guard;   /* to the keeper's guard; owns; -1: no keeper */
	pid_t pid;   /* of the keeper, while it lives; else 0 */
	uv_poll_t poll; /* of sock, from watch until let_go */
	uv_timer_t again; /* stored: until it can be connected again */
	bool watched;
	void (*lost)(void *arg);
	void *arg;
};

/*
 * k->socket and takeover are set; the rest is filled in. Makes this process the
 * keeper and forks daemons, unless descriptors are kept elsewhere. Returns 0 in
 * each daemon; in the keeper it never returns. mountpoint: absolute, copied.
 * -errno, logged: there is no daemon.
 */
int daemon_keeper_start(const char *mountpoint, struct daemon_keeper *k);
/* Did a keeper execute this program in its place (SIGUSR2)? Then it must not go
 * into the background, and daemon_keeper_start continues as that keeper. */
bool daemon_keeper_renewed(void);
/* Gives the keeper a copy of dev_fd: from now on the mount survives this
 * daemon. 0 or -errno, logged. */
int daemon_keeper_put(struct daemon_keeper *k, int dev_fd);
/* Calls lost(arg) on the loop if the keeper is killed. Another `kvpool keep` at
 * the same path is then given the mount. No-op without a keeper. 0 or -errno.
 */
int daemon_keeper_watch(struct daemon_keeper *k, uv_loop_t *loop,
			void (*lost)(void *arg), void *arg);
/* The pid that the service manager must watch: the keeper's, or without a
 * keeper this process's. */
pid_t daemon_keeper_main_pid(const struct daemon_keeper *k);
/* Does the mount survive this daemon, once it has been put? */
static inline bool daemon_keeper_keeps(const struct daemon_keeper *k)
{
	return k->kept_fd >= 0;
}
/* The mount will be removed: the keeper closes its descriptor, and exits when
 * this process does. No-op without a keeper. */
void daemon_keeper_let_go(struct daemon_keeper *k);
/* The same, when another daemon has the mount and has put it. */
void daemon_keeper_handed_over(struct daemon_keeper *k);

#endif
