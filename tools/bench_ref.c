/*
 * The references: two tmpfs mounts of the bench's own, a FUSE daemon that does
 * nothing but answer, and a process that sends bytes. bench_refs_close removes
 * them; the processes are killed if their parent dies.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fuse_lowlevel.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/bench.h"

#define TMPFS_SIZE "size=1g"
#define FUSE_START_S 5.0

/* ------------------------------------------- a FUSE daemon doing nothing */

static void null_lookup(fuse_req_t req, fuse_ino_t parent, const char *name)
{
	(void)parent;
	(void)name;
	fuse_reply_err(req, ENOENT);
}

static void null_getattr(fuse_req_t req, fuse_ino_t ino,
			 struct fuse_file_info *fi)
{
	struct stat st = { .st_ino = ino, .st_mode = S_IFDIR | 0755,
			   .st_nlink = 2 };

	(void)fi;
	fuse_reply_attr(req, &st, 3600);
}

static const struct fuse_lowlevel_ops null_ops = {
	.lookup = null_lookup,
	.getattr = null_getattr,
};

static void die_with_parent(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGINT, SIG_IGN); /* the parent stops us */
	if (getppid() != parent)
		_exit(1);
}

/* The child: never returns. */
static void null_main(const char *dir)
{
	char *argv[] = { "kvpool_bench", "-o",
			 "allow_other,default_permissions,fsname=kvpool_bench",
			 NULL };
	struct fuse_args args = FUSE_ARGS_INIT(3, argv);
	struct fuse_session *se =
		fuse_session_new(&args, &null_ops, sizeof(null_ops), NULL);

	if (!se || fuse_session_mount(se, dir) != 0)
		_exit(1);
	int rc = fuse_session_loop(se);
	fuse_session_unmount(se);
	fuse_session_destroy(se);
	_exit(rc != 0);
}

static int nofuse_open(struct bench *b)
{
	struct stat before, now;
	pid_t parent = getpid();

	snprintf(b->nofuse, sizeof(b->nofuse), "%s/nofuse", b->base);
	if (mkdir(b->nofuse, 0755) < 0 || stat(b->nofuse, &before) < 0)
		return bench_error("mkdir", b->nofuse);
	b->fuse_pid = fork();
	if (b->fuse_pid < 0) {
		b->fuse_pid = 0;
		return bench_error("fork for", b->nofuse);
	}
	if (b->fuse_pid == 0) {
		die_with_parent(parent);
		null_main(b->nofuse);
	}
	double end = bench_now() + FUSE_START_S;
	do {
		if (waitpid(b->fuse_pid, NULL, WNOHANG) == b->fuse_pid) {
			b->fuse_pid = 0;
			break;
		}
		if (stat(b->nofuse, &now) == 0 && now.st_dev != before.st_dev)
			return 0;
		usleep(1000);
	} while (bench_now() < end);
	errno = EIO;
	return bench_error("FUSE mount", b->nofuse);
}

/* --------------------------------------------------- a process that sends */

/* The child: answers each 8-byte length with that many bytes. Never returns. */
static void socket_main(int fd, const unsigned char *buf)
{
	uint64_t n;

	while (recv(fd, &n, sizeof(n), MSG_WAITALL) == sizeof(n)) {
		for (size_t at = 0; at < n;) {
			ssize_t sent = send(fd, buf + at, n - at,
					    MSG_NOSIGNAL);
			if (sent <= 0)
				_exit(1);
			at += (size_t)sent;
		}
	}
	_exit(0);
}

static int connected_pair(int fds[2])
{
	struct sockaddr_in addr = { .sin_family = AF_INET };
	socklen_t len = sizeof(addr);
	int one = 1;
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	fds[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || fds[0] < 0 ||
	    bind(listener, (struct sockaddr *)&addr, sizeof(addr)) < 0 ||
	    listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&addr, &len) < 0 ||
	    connect(fds[0], (struct sockaddr *)&addr, sizeof(addr)) < 0)
		return bench_error("loopback", "socket");
	fds[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fds[1] < 0)
		return bench_error("accept on", "loopback");
	close(listener);
	setsockopt(fds[0], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	setsockopt(fds[1], IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return 0;
}

static int socket_open(struct bench *b)
{
	pid_t parent = getpid();
	int fds[2] = { -1, -1 };
	int rc = connected_pair(fds);

	if (rc < 0)
		return rc;
	b->socket_pid = fork();
	if (b->socket_pid < 0) {
		b->socket_pid = 0;
		return bench_error("fork for", "socket");
	}
	if (b->socket_pid == 0) {
		die_with_parent(parent);
		close(fds[0]);
		socket_main(fds[1], b->buf);
	}
	close(fds[1]);
	b->socket_fd = fds[0];
	return 0;
}

int bench_socket_read(const struct bench *b, void *buf, size_t n)
{
	uint64_t want = n;

	errno = 0;
	if (send(b->socket_fd, &want, sizeof(want), MSG_NOSIGNAL) !=
		    sizeof(want) ||
	    recv(b->socket_fd, buf, n, MSG_WAITALL) != (ssize_t)n)
		return bench_error("read from", "socket");
	return 0;
}

/* ------------------------------------------------------------------ tmpfs */

static int tmpfs_open(struct bench *b, enum bench_side side, const char *name,
		      const char *options)
{
	char *dir = b->dirs[side];

	snprintf(dir, BENCH_DIR, "%s/%s", b->base, name);
	if (mkdir(dir, 0755) < 0)
		return bench_error("mkdir", dir);
	if (mount("kvpool_bench", dir, "tmpfs", MS_NOSUID | MS_NODEV,
		  options) < 0) {
		int rc = bench_error("mount tmpfs on", dir);
		dir[0] = 0;
		return rc;
	}
	return 0;
}

int bench_refs_open(struct bench *b)
{
	int rc;

	b->socket_fd = -1;
	snprintf(b->base, sizeof(b->base), "/tmp/kvpool_bench_XXXXXX");
	if (!mkdtemp(b->base)) {
		b->base[0] = 0;
		return bench_error("mkdtemp", "/tmp");
	}
	rc = tmpfs_open(b, BENCH_HUGE, "huge", TMPFS_SIZE ",huge=always");
	if (rc == 0)
		rc = tmpfs_open(b, BENCH_PLAIN, "plain", TMPFS_SIZE);
	if (rc == 0)
		rc = socket_open(b);
	if (rc == 0)
		rc = nofuse_open(b);
	return rc;
}

static void unmount(const char *dir)
{
	if (!dir[0])
		return;
	umount2(dir, MNT_DETACH);
	rmdir(dir);
}

static void end_child(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}

void bench_refs_close(struct bench *b)
{
	if (b->socket_fd > 0)
		close(b->socket_fd);
	b->socket_fd = -1;
	end_child(&b->socket_pid);
	unmount(b->nofuse);
	end_child(&b->fuse_pid);
	unmount(b->dirs[BENCH_HUGE]);
	unmount(b->dirs[BENCH_PLAIN]);
	if (b->base[0])
		rmdir(b->base);
}
