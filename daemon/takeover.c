#include "daemon/takeover.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/notify.h"
#include "pool/base/attach.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/unix.h"
#include "pool/conn/conn.h"
#include "pool/conn/wire.h"

#define MAGIC 0x4f544b4bu /* "KKTO" */
#define FDS_A_MESSAGE 250 /* the kernel takes 253 */
#define QUIET_MS 5000	  /* for requests in flight to complete */
#define LOOK_MS 5
#define SEND_MS 1000	  /* for socket buffer space for one message */
#define WAIT_MS 10000	  /* for the new daemon, while paused */

enum { HELLO = 1, REFUSED, OFFER, FDS, TAKEN, GO };

struct message {
	uint32_t magic, type;
	uint32_t version; /* HELLO, OFFER: of the wire format */
	union {
		uint32_t nfds;	   /* OFFER: in total; FDS: in this message */
		uint32_t main_pid; /* TAKEN: the service's main process; 0: the
				      sender (from versions without keepers) */
	};
	char text[240];	  /* REFUSED */
};

struct daemon_takeover {
	uv_loop_t *loop;
	const struct daemon_takeover_ops *ops;
	void *arg;
	struct pool_listener *listener;
	uv_poll_t *poll;   /* of fd; freed when it is closed */
	uv_timer_t look;
	int fd;		   /* owns; -1: no take-over in progress */
	bool paused;
	uint64_t since_ms;
	bool closed;
};

/* ---- messages ---- */

static int send_message(int fd, const struct message *m, const int *fds,
			size_t nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_A_MESSAGE * sizeof(int))];
	} control;
	struct iovec iov = { (void *)(uintptr_t)m, sizeof(*m) };
	struct msghdr mh = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct pollfd pfd = { .fd = fd, .events = POLLOUT };
	ssize_t r;

	if (fds)
		pool_attach_fds(&mh, control.buf, fds, nfds);
	do
		r = sendmsg(fd, &mh, MSG_NOSIGNAL);
	while (r < 0 && (errno == EINTR ||
			 (errno == EAGAIN && poll(&pfd, 1, SEND_MS) > 0)));
	return r < 0 ? -errno : r == sizeof(*m) ? 0 : -EIO;
}

static void close_all(struct cmsghdr *c, size_t n)
{
	int fd;

	for (size_t i = 0; i < n; i++) {
		memcpy(&fd, CMSG_DATA(c) + i * sizeof(fd), sizeof(fd));
		close(fd);
	}
}

/* *nfds: in: most descriptors to receive; out: number received. If there are
 * more, all are closed. */
static int recv_message(int fd, unsigned int timeout_ms, struct message *m,
			int *fds, size_t *nfds)
{
	union {
		struct cmsghdr align;
		char buf[CMSG_SPACE(FDS_A_MESSAGE * sizeof(int))];
	} control;
	struct iovec iov = { m, sizeof(*m) };
	struct msghdr mh = { .msg_iov = &iov,
			     .msg_iovlen = 1,
			     .msg_control = control.buf,
			     .msg_controllen = sizeof(control.buf) };
	struct pollfd pfd = { .fd = fd, .events = POLLIN };
	struct cmsghdr *c;
	size_t room = nfds ? *nfds : 0, n;
	ssize_t r;

	do
		r = poll(&pfd, 1, (int)timeout_ms);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ETIMEDOUT;
	do
		r = recvmsg(fd, &mh, MSG_CMSG_CLOEXEC | MSG_WAITALL);
	while (r < 0 && errno == EINTR);
	if (r <= 0)
		return r < 0 ? -errno : -ECONNRESET;
	c = CMSG_FIRSTHDR(&mh);
	n = c && c->cmsg_type == SCM_RIGHTS ?
		    (c->cmsg_len - CMSG_LEN(0)) / sizeof(int) : 0;
	if (n > 0 && n <= room)
		memcpy(fds, CMSG_DATA(c), n * sizeof(int));
	else if (n > 0)
		close_all(c, n);
	if (nfds)
		*nfds = n;
	if (n > room || (mh.msg_flags & MSG_CTRUNC) || r != sizeof(*m) ||
	    m->magic != MAGIC)
		return -EBADMSG;
	m->text[sizeof(m->text) - 1] = '\0';
	return 0;
}

/* ---- the old daemon ---- */

static void on_look_closed(uv_handle_t *h)
{
	free(h->data);
}

static void on_poll_closed(uv_handle_t *h)
{
	free(h);
}

/* Ends the take-over and resumes. why: sent to the new daemon; or NULL. */
static void give_up(struct daemon_takeover *t, const char *why)
{
	struct message m = { .magic = MAGIC, .type = REFUSED };

	if (why) {
		pool_warn("not handed over: %s", why);
		snprintf(m.text, sizeof(m.text), "%s", why);
		(void)send_message(t->fd, &m, NULL, 0);
	}
	uv_timer_stop(&t->look);
	uv_close((uv_handle_t *)t->poll, on_poll_closed);
	close(t->fd);
	t->fd = -1;
	if (t->paused)
		t->ops->resume(t->arg);
	t->paused = false;
}

static int send_offer(struct daemon_takeover *t, struct pool_handover *h)
{
	struct message m = { .magic = MAGIC, .type = OFFER,
			     .version = pool_wire_version, .nfds = h->nfds };
	int err = send_message(t->fd, &m, NULL, 0), null = -1;
	unsigned int i, n;

	m.type = FDS;
	for (i = 0; i < h->nfds; i++) /* a placeholder for missing ones */
		if (h->fds[i] < 0) {
			if (null < 0)
				null = open("/dev/null", O_RDONLY | O_CLOEXEC);
			h->fds[i] = null;
		}
	for (i = 0; i < h->nfds && !err; i += n) {
		n = h->nfds - i < FDS_A_MESSAGE ? h->nfds - i : FDS_A_MESSAGE;
		m.nfds = n;
		err = send_message(t->fd, &m, h->fds + i, n);
	}
	if (null >= 0)
		close(null);
	return err;
}

/* Sends GO; then the new daemon, or its keeper, is the service. main_pid: from
 * its TAKEN. */
static int send_go(struct daemon_takeover *t, uint32_t main_pid)
{
	struct message m = { .magic = MAGIC, .type = GO };
	socklen_t len = sizeof(struct ucred);
	struct ucred peer;
	int err;

	if (main_pid > INT_MAX)
		return -EBADMSG;
	if (getsockopt(t->fd, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return -errno;
	daemon_notify_main(main_pid ? (pid_t)main_pid : peer.pid);
	err = send_message(t->fd, &m, NULL, 0);
	if (err)
		daemon_notify_main(t->ops->main_pid(t->arg));
	return err;
}

/* Blocks the loop until the take-over has failed, or this process exits. */
static void hand_over(struct daemon_takeover *t)
{
	uint64_t start = pool_now_ms();
	struct pool_handover h;
	struct message m;
	int err = pool_handover_create(&h);

	if (!err) {
		pool_handover_set_fd(&h, POOL_HANDOVER_FD_TAKEOVER,
				     pool_listener_fd(t->listener));
		t->ops->hand_over(t->arg, &h);
		err = pool_handover_finish(&h);
		if (!err)
			err = send_offer(t, &h);
		pool_handover_close(&h);
	}
	if (err) {
		give_up(t, strerror(-err));
		return;
	}
	err = recv_message(t->fd, WAIT_MS, &m, NULL, NULL);
	if (!err && m.type != TAKEN)
		err = -EBADMSG;
	if (!err)
		err = send_go(t, m.main_pid);
	if (err) {
		pool_warn("the other daemon did not take over (%s): continuing",
			  strerror(-err));
		give_up(t, NULL);
		return;
	}
	t->ops->leave(t->arg);
	pool_info("handed over in %llu ms",
		  (unsigned long long)(pool_now_ms() - start));
	if (t->ops->end)
		t->ops->end(t->arg);
	_exit(0); /* sockets, files and the mount are the new daemon's */
}

static void on_look(uv_timer_t *timer)
{
	struct daemon_takeover *t = timer->data;
	const char *busy = t->ops->busy(t->arg);
	char why[200];

	if (!busy) {
		hand_over(t);
	} else if (pool_now_ms() - t->since_ms >= QUIET_MS) {
		snprintf(why, sizeof(why), "%s, for %d s now", busy,
			 QUIET_MS / 1000);
		give_up(t, why);
	}
}

static void begin(struct daemon_takeover *t, const struct message *m)
{
	const char *why = t->ops->refuse(t->arg);
	char text[POOL_WIRE_REFUSAL];

	if (!pool_wire_speaks(m->version)) {
		pool_wire_refusal(m->version, text);
		why = text;
	}
	if (why) {
		give_up(t, why);
		return;
	}
	pool_info("another daemon takes over");
	t->ops->pause(t->arg);
	t->paused = true;
	t->since_ms = pool_now_ms();
	uv_timer_start(&t->look, on_look, 0, LOOK_MS);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct daemon_takeover *t = poll->data;
	struct message m;
	int err = recv_message(t->fd, 0, &m, NULL, NULL);

	(void)status;
	(void)events;
	if (err || m.type != HELLO || t->paused) {
		if (t->paused)
			pool_warn("the other daemon has ended: continuing");
		give_up(t, NULL);
		return;
	}
	begin(t, &m);
}

static void on_accept(void *arg, int fd)
{
	struct daemon_takeover *t = arg;
	uv_poll_t *poll;

	if (t->fd >= 0 && !t->paused) /* it may never send HELLO */
		give_up(t, NULL);
	poll = t->fd < 0 ? malloc(sizeof(*poll)) : NULL;
	if (!poll || uv_poll_init(t->loop, poll, fd)) {
		free(poll); /* one take-over at a time */
		close(fd);
		return;
	}
	/* libuv sets fd non-blocking; the blocking calls later use poll(2). */
	t->fd = fd;
	t->poll = poll;
	poll->data = t;
	uv_poll_start(poll, UV_READABLE | UV_DISCONNECT, on_readable);
}

int daemon_takeover_open(uv_loop_t *loop, const char *dir, int fd,
			 const struct daemon_takeover_ops *ops, void *arg,
			 struct daemon_takeover **ret_takeover)
{
	struct daemon_takeover *t = calloc(1, sizeof(*t));
	char path[PATH_MAX];
	int err;

	if (!t)
		return -ENOMEM;
	snprintf(path, sizeof(path), "%s/%s", dir, DAEMON_TAKEOVER_SOCKET);
	t->loop = loop;
	t->ops = ops;
	t->arg = arg;
	t->fd = -1;
	err = fd > 0 ? pool_listener_from_fd(loop, fd, path, on_accept, t,
					     &t->listener) :
		       pool_listener_open_unix(loop, path, on_accept, t,
					       &t->listener);
	if (err) {
		free(t);
		return err;
	}
	uv_timer_init(loop, &t->look);
	t->look.data = t;
	*ret_takeover = t;
	return 0;
}

void daemon_takeover_close(struct daemon_takeover *t)
{
	if (!t)
		return;
	t->closed = true;
	pool_listener_close(t->listener);
	if (t->fd >= 0)
		give_up(t, "the daemon is ending");
	uv_close((uv_handle_t *)&t->look, on_look_closed);
}

/* ---- the new daemon ---- */

static int recv_fds(struct daemon_taken *t, unsigned int total)
{
	struct message m;
	size_t n;
	int err;

	if (total < POOL_HANDOVER_FD_MORE || total > POOL_HANDOVER_FDS_MAX)
		return -EBADMSG;
	t->h.fds = malloc(total * sizeof(int));
	if (!t->h.fds)
		return -ENOMEM;
	while (t->h.nfds < total) {
		n = total - t->h.nfds;
		err = recv_message(t->fd, WAIT_MS, &m, t->h.fds + t->h.nfds,
				   &n);
		if (err || m.type != FDS || n == 0)
			return err ? err : -EBADMSG;
		t->h.nfds += (unsigned int)n;
	}
	return pool_handover_open(&t->h);
}

int daemon_takeover_ask(const char *dir, struct daemon_taken *t)
{
	struct message m = { .magic = MAGIC, .type = HELLO,
			     .version = pool_wire_version };
	char path[PATH_MAX];
	int err;

	memset(t, 0, sizeof(*t));
	snprintf(path, sizeof(path), "%s/%s", dir, DAEMON_TAKEOVER_SOCKET);
	t->fd = pool_unix_connect(path, SOCK_STREAM, 0);
	if (t->fd < 0) {
		pool_error("%s: no daemon to take over from (%s): is it "
			   "running, with the same --name and --run-dir?",
			   path, strerror(-t->fd));
		return t->fd;
	}
	err = send_message(t->fd, &m, NULL, 0);
	if (!err)
		err = recv_message(t->fd, QUIET_MS + WAIT_MS, &m, NULL, NULL);
	if (!err && m.type == REFUSED) {
		pool_error("the running daemon does not hand over: %s", m.text);
		return -EBUSY;
	}
	if (!err)
		err = m.type == OFFER ? recv_fds(t, m.nfds) : -EBADMSG;
	if (err)
		pool_error("taking over failed: %s", strerror(-err));
	return err;
}

int daemon_takeover_commit(struct daemon_taken *t, pid_t main_pid)
{
	struct message m = { .magic = MAGIC, .type = TAKEN,
			     .main_pid = (uint32_t)main_pid };
	int err = send_message(t->fd, &m, NULL, 0);

	if (!err)
		err = recv_message(t->fd, 2 * WAIT_MS, &m, NULL, NULL);
	if (!err && m.type != GO)
		err = -EBADMSG;
	if (err)
		pool_error("taking over failed: the other daemon continued or "
			   "was killed (%s)", strerror(-err));
	close(t->fd);
	t->fd = -1;
	return err;
}
