#include "daemon/keeper.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "daemon/daemonize.h"
#include "daemon/fdstore.h"
#include "daemon/pass.h"
#include "fs/guard.h"
#include "fs/kept.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"

#define SPAWN_MS 200  /* between two starts */
#define AGAIN_MS 1000 /* between two attempts to connect to `kvpool keep` */
#define WAIT_MS 30000 /* from a death until a daemon serves again */

enum { PUT = 1, LET_GO };

#define KEPT_ENV "KVPOOL_KEPT_FDS" /* DEVICE,MEMFD,GUARD,PROGRAM */
#define ARGS_MAX 65536 /* bytes of the command line */

/* In the service manager's store */
#define STORED_DEVICE "kvpool-device"
#define STORED_KEPT "kvpool-kept"

static struct {
	char *mountpoint; /* owns */
	int sock, sig_fd, kept_fd;
	int guard; /* to the guard; all daemons have it, too */
	int dev_fd; /* -1: not passed by the daemon yet, or withdrawn */
	pid_t pid;  /* of the present or last daemon */
	bool alive; /* it has not closed its end of sock */
	bool ending; /* SIGTERM came */
	bool renew; /* SIGUSR2 came: when the daemon has ended, become the
		       program that is installed now */
	int status; /* of waitpid, of pid; -1: not known yet */
	uint64_t spawn_ms;
	uint64_t dead_ms; /* since when no daemon serves; 0: one does, or
			     none ever has */
	struct fs_kept_head *head;
	sigset_t before; /* signal mask of the daemon */
} kp;

/* ---- ending ---- */

static int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Ends the mount as a guard does: closing our descriptor is not enough, because
 * a daemon's thread that is blocked in the kernel may have another one. why:
 * logged, unless "" (requested by a signal). */
static void give_up(const char *why, int flags, int rc)
	__attribute__((noreturn));
static void give_up(const char *why, int flags, int rc)
{
	if (*why)
		pool_error("%s: %s", kp.mountpoint, why);
	if (kp.alive)
		kill(kp.pid, SIGKILL);
	if (kp.head->mount_id)
		(void)fs_guard_unmount(kp.mountpoint, kp.head->mount_id, flags);
	_exit(rc);
}

/* Waits for a signal, and passes on all but SIGCHLD. */
static void pass_signal(void)
{
	struct pollfd p = { .fd = kp.sig_fd, .events = POLLIN };
	struct signalfd_siginfo si;

	if (poll(&p, 1, -1) > 0 &&
	    read(kp.sig_fd, &si, sizeof(si)) == sizeof(si) &&
	    si.ssi_signo != SIGCHLD)
		kill(kp.pid, (int)si.ssi_signo);
}

/* The daemon has withdrawn the mount, or never had one: exits when it does.
 * (With --surge, that waits for SIGTERM first.) */
static void follow(void) __attribute__((noreturn));
static void follow(void)
{
	while (kp.status < 0 && waitpid(kp.pid, &kp.status, WNOHANG) == 0)
		pass_signal();
	_exit(exit_code(kp.status));
}

/* ---- becoming the program that is installed now ---- */

static void inherit(int fd)
{
	(void)fcntl(fd, F_SETFD, 0);
}

/* The command line of this process, with the caller's memory; -errno. */
static int own_args(char *text, size_t cap, char **argv, int max)
{
	int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC), n = 0;
	ssize_t len = fd < 0 ? -1 : read(fd, text, cap - 1);

	if (fd >= 0)
		close(fd);
	if (len <= 0 || (size_t)len == cap - 1)
		return -E2BIG;
	text[len] = '\0';
	for (char *p = text; p < text + len && n < max - 1; p += strlen(p) + 1)
		argv[n++] = p;
	argv[n] = NULL;
	return n;
}

/* Executes path, or, if it is "", the file `old` (O_PATH), as this keeper.
 * Returns -errno. */
static int become(const char *path, int old)
{
	static char text[ARGS_MAX], *argv[ARGS_MAX / 2];
	char fds[64];
	int rc = own_args(text, sizeof(text), argv,
			  sizeof(argv) / sizeof(argv[0]));

	if (rc < 0)
		return rc;
	snprintf(fds, sizeof(fds), "%d,%d,%d,%d", kp.dev_fd, kp.kept_fd,
		 kp.guard, old);
	if (setenv(KEPT_ENV, fds, 1))
		return -ENOMEM;
	inherit(kp.dev_fd);
	inherit(kp.kept_fd);
	inherit(kp.guard);
	(void)execveat(path[0] ? AT_FDCWD : old, path, argv, environ,
		       path[0] ? 0 : AT_EMPTY_PATH);
	rc = -errno;
	(void)unsetenv(KEPT_ENV);
	return rc;
}

/* Returns if that is not possible: this program continues. */
static void renew(void)
{
	static const char deleted[] = " (deleted)";
	const size_t len = strlen(deleted);
	int old = open("/proc/self/exe", O_PATH), err;
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

	kp.renew = false;
	path[n > 0 ? n : 0] = '\0';
	/* Another file has its name now. */
	if (n > (ssize_t)len && strcmp(path + (size_t)n - len, deleted) == 0)
		path[(size_t)n - len] = '\0';
	pool_info("%s: the keeper becomes %s", kp.mountpoint, path);
	err = old < 0 || n <= 0 ? -errno : become(path, old);
	pool_error("%s: the keeper cannot execute %s (%s): it is not replaced",
		   kp.mountpoint, path, strerror(-err));
	if (old >= 0)
		close(old);
}

/* ---- the daemon ---- */

static bool serves(void)
{
	return kp.alive && kp.head->begun_ms;
}

static void on_death(void)
{
	close(kp.sock);
	kp.sock = -1;
	kp.alive = false;
	if (kp.dev_fd < 0)
		follow();
	/* A daemon closes its end only by dying. Make sure, because two readers
	 * of one device would be the worst case. */
	kill(kp.pid, SIGKILL);
	if (kp.ending)
		give_up("", MNT_FORCE, exit_code(kp.status));
	if (kp.head->begun_ms || !kp.dead_ms)
		kp.dead_ms = pool_now_ms();
	if (kp.renew)
		renew();
	else
		pool_warn("%s: kvpoold (pid %d) has died: the next one adopts "
			  "the mount", kp.mountpoint, (int)kp.pid);
}

/* One message, with the descriptor of PUT. */
static void on_message(void)
{
	uint8_t type = 0;
	int fd;
	ssize_t n = daemon_receive(kp.sock, &type, 1, &fd);

	if (n == -EINTR)
		return;
	if (n <= 0) {
		on_death();
		return;
	}
	if (kp.dev_fd >= 0)
		close(kp.dev_fd);
	kp.dev_fd = type == PUT ? fd : -1;
}

static bool mount_gone(void)
{
	struct pollfd p = { .fd = kp.dev_fd };

	return poll(&p, 1, 0) > 0 && (p.revents & POLLERR);
}

/* ---- signals ---- */

static void reap(void)
{
	int status;
	pid_t pid;

	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == kp.pid)
			kp.status = status;
}

static void on_signal(void)
{
	struct signalfd_siginfo si;

	if (read(kp.sig_fd, &si, sizeof(si)) != sizeof(si))
		return;
	if (si.ssi_signo == SIGCHLD) {
		reap();
		return;
	}
	if (si.ssi_signo == SIGUSR2) {
		if (kp.alive && !serves())
			return; /* it does not handle it yet */
		if (kp.alive)
			kp.renew = kill(kp.pid, SIGUSR2) == 0;
		else
			renew();
		return;
	}
	if (si.ssi_signo == SIGHUP)
		daemon_log_reopen();
	else
		kp.ending = true;
	if (kp.alive)
		kill(kp.pid, (int)si.ssi_signo);
	else if (kp.ending)
		give_up("", MNT_DETACH, 0);
}

/* ---- starting daemons ---- */

/* True in the daemon. */
static bool spawn(struct daemon_keeper *k)
{
	int sv[2] = { -1, -1 };
	pid_t keeper = getpid(), pid;

	kp.spawn_ms = pool_now_ms();
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return false;
	kp.head->begun_ms = 0;
	pid = fork();
	if (pid == 0) {
		close(sv[0]);
		close(kp.sig_fd);
		*k = (struct daemon_keeper){ .sock = sv[1],
					     .kept_fd = kp.kept_fd,
					     .dev_fd = kp.dev_fd,
					     .guard = kp.guard,
					     .pid = keeper };
		(void)prctl(PR_SET_NAME, "kvpoold");
		pthread_sigmask(SIG_SETMASK, &kp.before, NULL);
		return true;
	}
	close(sv[1]);
	if (pid < 0) {
		close(sv[0]);
		return false;
	}
	kp.sock = sv[0];
	kp.pid = pid;
	kp.alive = true;
	kp.status = -1;
	return false;
}

/* How long to wait for events, in ms; -1: for ever. */
static int patience(void)
{
	uint64_t now = pool_now_ms();
	uint64_t due = kp.alive ? kp.dead_ms + WAIT_MS : kp.spawn_ms + SPAWN_MS;

	if (serves() || (kp.alive && !kp.dead_ms))
		return -1;
	/* No event reports that a daemon has begun to serve: poll. */
	return due <= now ? 0 : due - now < SPAWN_MS ? (int)(due - now) :
						       SPAWN_MS;
}

static void wait_for_events(void)
{
	struct pollfd p[] = {
		{ .fd = kp.sig_fd, .events = POLLIN },
		{ .fd = kp.sock, .events = POLLIN },
	};

	if (poll(p, 2, patience()) <= 0)
		return;
	if (p[1].revents)
		on_message();
	if (p[0].revents)
		on_signal();
}

/* Returns in each daemon. */
static void keep(struct daemon_keeper *k)
{
	if (spawn(k))
		return;
	if (!kp.alive)
		give_up("no daemon can be forked", 0, 1);
	daemon_background_forked();
	(void)prctl(PR_SET_NAME, "kvpool-keeper");
	for (;;) {
		wait_for_events();
		if (serves())
			kp.dead_ms = 0;
		if (kp.dead_ms && mount_gone())
			give_up("the mount was unmounted", MNT_DETACH, 1);
		if (kp.dead_ms && pool_now_ms() - kp.dead_ms > WAIT_MS)
			give_up("no daemon has adopted the mount in time: it "
				"ends", MNT_FORCE, 1);
		if (!kp.alive && pool_now_ms() - kp.spawn_ms >= SPAWN_MS &&
		    spawn(k))
			return;
	}
}

/* ---- the guard ---- */

/* Waits until the keeper and every daemon are dead. Then aborts the connection
 * if the mount was theirs: if the last message was PUT. */
static void guard(int fd) __attribute__((noreturn));
static void guard(int fd)
{
	uint8_t last = LET_GO;
	sigset_t all;
	ssize_t n;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	(void)prctl(PR_SET_NAME, "kvpool-guard");
	if (fd > 0)
		(void)close_range(0, (unsigned int)fd - 1, 0);
	(void)close_range((unsigned int)fd + 1, UINT_MAX, 0);
	do
		n = recv(fd, &last, 1, 0);
	while (n > 0 || (n < 0 && errno == EINTR));
	if (last == PUT && kp.head->mount_id)
		(void)fs_guard_unmount(kp.mountpoint, kp.head->mount_id,
				       MNT_FORCE);
	_exit(0);
}

static int start_guard(void)
{
	int sv[2];
	pid_t pid;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	pid = fork();
	if (pid == 0)
		guard(sv[0]); /* closes sv[1] */
	if (pid < 0) {
		close(sv[1]);
		sv[1] = -errno;
	}
	close(sv[0]);
	kp.guard = sv[1];
	return kp.guard < 0 ? kp.guard : 0;
}

static int open_signals(void)
{
	static const int handled[] = { SIGTERM, SIGINT, SIGHUP, SIGCHLD,
				       SIGUSR2 };
	sigset_t signals;

	sigemptyset(&signals);
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigaddset(&signals, handled[i]);
	pthread_sigmask(SIG_BLOCK, &signals, &kp.before);
	/* (After execve(2) this process has them blocked already.) */
	for (size_t i = 0; i < sizeof(handled) / sizeof(handled[0]); i++)
		sigdelset(&kp.before, handled[i]);
	kp.sig_fd = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
	return kp.sig_fd < 0 ? -errno : 0;
}

static int open_keeper(void)
{
	int err;

	kp.kept_fd = fs_kept_create();
	if (kp.kept_fd < 0)
		return kp.kept_fd;
	err = fs_kept_map(kp.kept_fd, &kp.head);
	if (!err)
		err = open_signals();
	return err ? err : start_guard();
}

bool daemon_keeper_renewed(void)
{
	return getenv(KEPT_ENV) != NULL;
}

/* After execve(2): continues with the descriptors of the previous program. */
static int open_renewed(void)
{
	int *fds[] = { &kp.dev_fd, &kp.kept_fd, &kp.guard, NULL }, old, err;
	char end;

	if (sscanf(getenv(KEPT_ENV), "%d,%d,%d,%d%c", fds[0], fds[1], fds[2],
		   &old, &end) != 4)
		return -EINVAL;
	(void)unsetenv(KEPT_ENV);
	for (int **fd = fds; *fd; fd++)
		if (fcntl(**fd, F_SETFD, FD_CLOEXEC) < 0)
			return -errno;
	err = fs_kept_map(kp.kept_fd, &kp.head);
	if (err) {
		pool_error("%s: the keeper's memory is another version's: the "
			   "keeper is not replaced", kp.mountpoint);
		return become("", old);
	}
	close(old);
	kp.dead_ms = pool_now_ms();
	return open_signals();
}

#define KEEP_WAIT_MS 30000 /* for `kvpool keep` to begin */

static bool is_fuse(int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) &&
	       st.st_rdev == makedev(10, 229);
}

static void close_taken(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* 0: both were kept; -ENOENT: not both were; else -errno: unknown. */
static int take_both(struct daemon_keeper *k)
{
	int dev = daemon_fdstore_take(STORED_DEVICE), kept = -ENOENT, err;

	/* (After a timeout no second request is sent: the late answer would be
	 * taken for its answer.) */
	if (dev >= 0 || dev == -ENOENT)
		kept = daemon_fdstore_take(STORED_KEPT);
	k->dev_fd = dev;
	k->kept_fd = kept;
	if (dev >= 0 && kept >= 0)
		return 0;
	err = dev < 0 && dev != -ENOENT ? dev : kept < 0 ? kept : dev;
	close_taken(&k->dev_fd);
	close_taken(&k->kept_fd);
	return err;
}

static int start_stored(struct daemon_keeper *k)
{
	struct fs_kept_head *head;
	int err;

	k->stored = true;
	k->sock = daemon_fdstore_socket();
	err = take_both(k);
	if (err == -ENOENT || (err == -EBUSY && k->takeover)) {
		k->kept_fd = fs_kept_create();
		return k->kept_fd < 0 ? k->kept_fd : 0;
	}
	if (err == -EBUSY)
		pool_error("--keeper-socket %s: another daemon has the mount "
			   "that is kept there; accepted: a kvpool keep for "
			   "each daemon", k->socket);
	if (err)
		return err;
	err = is_fuse(k->dev_fd) ? fs_kept_map(k->kept_fd, &head) : -EINVAL;
	if (err) {
		/* Unusable: the next daemon makes a new mount. */
		(void)daemon_fdstore_remove(STORED_DEVICE);
		(void)daemon_fdstore_remove(STORED_KEPT);
		return err;
	}
	head->begun_ms = 0;
	fs_kept_unmap(head);
	k->adopted = true;
	return 0;
}

int daemon_keeper_start(const char *mountpoint, struct daemon_keeper *k)
{
	int err;

	if (k->socket) {
		err = daemon_fdstore_connect(k->socket, KEEP_WAIT_MS);
		if (err) {
			pool_error("--keeper-socket %s: %s; accepted: the "
				   "--socket of a kvpool keep", k->socket,
				   strerror(-err));
			return err;
		}
	}
	if (daemon_fdstore_offered()) {
		err = start_stored(k);
		if (err)
			pool_error("%s: what is kept of its mount cannot be "
				   "used: %s", mountpoint, strerror(-err));
		return err;
	}
	kp.sock = kp.dev_fd = kp.sig_fd = -1;
	kp.mountpoint = strdup(mountpoint);
	err = !kp.mountpoint		 ? -ENOMEM :
	      daemon_keeper_renewed() ? open_renewed() :
					open_keeper();
	if (err) {
		pool_error("no keeper for %s: %s", mountpoint, strerror(-err));
		return err;
	}
	keep(k);
	return 0;
}

/* ---- in the daemon ---- */

/* (It fails if the guard was killed: then there is none.) */
static void tell_guard(const struct daemon_keeper *k, uint8_t type)
{
	if (k->guard >= 0)
		(void)send(k->guard, &type, 1, MSG_NOSIGNAL);
}

int daemon_keeper_put(struct daemon_keeper *k, int dev_fd)
{
	const uint8_t put = PUT;
	int err = 0;

	/* Descriptors that are kept already are not put again: they would be
	 * missing for a moment. (But a new `kvpool keep` does not have them.)
	 */
	if (k->stored && !(k->adopted && k->sock < 0)) {
		err = daemon_fdstore_put(STORED_KEPT, k->kept_fd);
		if (!err)
			err = daemon_fdstore_put(STORED_DEVICE, dev_fd);
	} else if (!k->stored && k->sock >= 0) {
		err = daemon_pass(k->sock, &put, 1, dev_fd);
	}
	if (!err)
		tell_guard(k, PUT);
	k->put_fd = dev_fd;
	if (err)
		pool_error("the keeper cannot keep the mount: %s",
			   strerror(-err));
	return err;
}

static void on_keeper(uv_poll_t *poll, int status, int events);

/* Has a new `kvpool keep` started? */
static void on_again(uv_timer_t *t)
{
	struct daemon_keeper *k = t->data;

	if (daemon_fdstore_connect(k->socket, 0))
		return;
	uv_timer_stop(t);
	if (daemon_keeper_put(k, k->put_fd) == 0 &&
	    uv_poll_start(&k->poll, UV_READABLE | UV_DISCONNECT,
			  on_keeper) == 0)
		pool_info("%s keeps the mount again", k->socket);
}

static void on_keeper(uv_poll_t *poll, int status, int events)
{
	struct daemon_keeper *k = poll->data;

	(void)status;
	(void)events; /* it sends only answers, so it has ended */
	uv_poll_stop(poll);
	k->pid = 0;
	k->lost(k->arg);
	if (k->stored)
		uv_timer_start(&k->again, on_again, AGAIN_MS, AGAIN_MS);
}

int daemon_keeper_watch(struct daemon_keeper *k, uv_loop_t *loop,
			void (*lost)(void *arg), void *arg)
{
	int err = k->sock < 0 ? 0 : uv_poll_init(loop, &k->poll, k->sock);

	if (k->sock < 0 || err)
		return err;
	k->watched = true;
	k->lost = lost;
	k->arg = arg;
	k->poll.data = k->again.data = k;
	uv_timer_init(loop, &k->again);
	return uv_poll_start(&k->poll, UV_READABLE | UV_DISCONNECT, on_keeper);
}

pid_t daemon_keeper_main_pid(const struct daemon_keeper *k)
{
	return k->pid ? k->pid : getpid();
}

static void leave(struct daemon_keeper *k, bool remove)
{
	const uint8_t let_go = LET_GO;

	if (k->watched) {
		uv_close((uv_handle_t *)&k->poll, NULL);
		uv_close((uv_handle_t *)&k->again, NULL);
	}
	k->watched = false;
	tell_guard(k, LET_GO);
	if (k->stored && remove) {
		(void)daemon_fdstore_remove(STORED_DEVICE);
		(void)daemon_fdstore_remove(STORED_KEPT);
	} else if (!k->stored && k->sock >= 0) {
		(void)daemon_pass(k->sock, &let_go, 1, -1);
	}
}

void daemon_keeper_let_go(struct daemon_keeper *k)
{
	leave(k, true);
}

void daemon_keeper_handed_over(struct daemon_keeper *k)
{
	/* The service manager now keeps the descriptors of the other daemon. */
	leave(k, k->socket != NULL);
}
