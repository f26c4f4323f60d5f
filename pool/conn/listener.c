#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/base/list.h"
#include "pool/base/log.h"
#include "pool/base/unix.h"
#include "pool/conn/conn.h"
#include "pool/conn/kvpool.pb-c.h"

#define BACKLOG 512
#define ACCEPTS_PER_TURN 16
/* Refused connections that are being sent an ERROR; beyond that number they
 * are just closed. */
#define REFUSED_MAX 16u
#define REFUSED_MS 1000

struct pool_listener {
	uv_poll_t poll;
	int fd;	   /* owns */
	int spare; /* owns; closed briefly when descriptors run out */
	pool_accept_cb cb;
	void *arg;
	bool closed;
	struct pool_trust *trust; /* borrows; NULL: all peers are accepted */
	char *path; /* owns; NULL for TCP */
	dev_t dev;  /* of path: a successor's socket is not unlinked */
	ino_t ino;
};

void pool_fd_address(int fd, uint8_t ret_addr[POOL_ADDRESS_SIZE])
{
	struct sockaddr_storage ss = { 0 };
	socklen_t len = sizeof(ss);

	memset(ret_addr, 0, POOL_ADDRESS_SIZE);
	if (getpeername(fd, (struct sockaddr *)&ss, &len))
		return;
	if (ss.ss_family == AF_INET6) {
		memcpy(ret_addr, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
	} else if (ss.ss_family == AF_INET) {
		memset(ret_addr + 10, 0xff, 2);
		memcpy(ret_addr + 12, &((struct sockaddr_in *)&ss)->sin_addr,
		       4);
	}
}

int pool_address_parse(const char *host, uint8_t ret_addr[POOL_ADDRESS_SIZE])
{
	memset(ret_addr, 0, POOL_ADDRESS_SIZE);
	if (inet_pton(AF_INET6, host, ret_addr) == 1)
		return 0;
	memset(ret_addr + 10, 0xff, 2);
	return inet_pton(AF_INET, host, ret_addr + 12) == 1 ? 0 : -EINVAL;
}

static int spare_open(void)
{
	return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Without a free descriptor accept fails, the socket stays readable and the
 * loop would spin: accept with the spare descriptor, and close. */
static void accept_and_drop(struct pool_listener *l)
{
	int fd;

	pool_warn_limited("out of file descriptors: a connection was refused");
	if (l->spare >= 0)
		close(l->spare);
	fd = accept4(l->fd, NULL, NULL, SOCK_CLOEXEC);
	if (fd >= 0)
		close(fd);
	l->spare = spare_open();
}

/* ---- untrusted peers ---- */

static atomic_uint nrefused; /* being sent an ERROR; all listeners */

static void on_refused_close(struct pool_conn *c, int err)
{
	(void)c;
	(void)err;
	atomic_fetch_sub(&nrefused, 1);
}

static const struct pool_conn_ops refused_ops = { .on_close =
							  on_refused_close };

/* Send an ERROR and close. The peer's input is discarded. */
static void refuse(struct pool_listener *l, int fd, const char *text)
{
	struct pool_conn_opts opts = { .ops = &refused_ops };
	Kvpool__Error msg = KVPOOL__ERROR__INIT;
	struct pool_conn *c;

	if (atomic_fetch_add(&nrefused, 1) >= REFUSED_MAX) {
		atomic_fetch_sub(&nrefused, 1);
		close(fd);
		return;
	}
	if (pool_conn_from_fd(l->poll.loop, fd, &opts, &c)) {
		atomic_fetch_sub(&nrefused, 1);
		return;
	}
	msg.status = -EPERM;
	msg.text = (char *)(uintptr_t)text;
	(void)pool_conn_send(c, POOL_MSG_ERROR, 0, &msg.base);
	pool_conn_drain_close(c, REFUSED_MS);
}

static void turn_away(struct pool_listener *l, int fd, int err, uid_t uid)
{
	char text[256];

	pool_count(&l->trust->strangers);
	if (err == -EPERM)
		snprintf(text, sizeof(text),
			 "user %u is not trusted here; accepted: user %u, "
			 "root, and users named by --allow-user",
			 (unsigned int)uid, (unsigned int)geteuid());
	else
		snprintf(text, sizeof(text),
			 "the peer's user is unknown (neither sock_diag nor "
			 "/proc/self/net/tcp shows it, or it has no number in "
			 "this user namespace); --insecure accepts all peers");
	pool_warn_limited("a connection was refused: %s", text);
	refuse(l, fd, text);
}

/* False: not trusted; fd is closed, or will be after an ERROR. */
static bool accepts(struct pool_listener *l, int fd)
{
	uid_t uid = 0;
	int err = l->trust ? pool_trust_peer(l->trust, fd, &uid) : 0;

	if (err == -EAGAIN) /* the peer has closed already */
		close(fd);
	else if (err)
		turn_away(l, fd, err, uid);
	return !err;
}

void pool_listener_trust(struct pool_listener *l, struct pool_trust *t)
{
	l->trust = t;
}

static void on_acceptable(uv_poll_t *h, int status, int events)
{
	struct pool_listener *l =
		pool_container_of(h, struct pool_listener, poll);

	(void)events;
	if (status < 0) {
		pool_warn_limited("listening socket: %s", uv_strerror(status));
		return;
	}
	for (int i = 0; i < ACCEPTS_PER_TURN && !l->closed; i++) {
		int fd = accept4(l->fd, NULL, NULL,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd >= 0) {
			if (accepts(l, fd))
				l->cb(l->arg, fd);
		} else if (errno == EMFILE || errno == ENFILE) {
			accept_and_drop(l);
			return;
		} else if (errno != EINTR && errno != ECONNABORTED) {
			return; /* EAGAIN; others are retried next time */
		}
	}
}

static void on_closed(uv_handle_t *h)
{
	free(pool_container_of((uv_poll_t *)h, struct pool_listener, poll));
}

/* The listener owns fd from here on, also after an error. */
static int listener_new(uv_loop_t *loop, int fd, pool_accept_cb cb, void *arg,
			struct pool_listener **ret_listener)
{
	struct pool_listener *l = calloc(1, sizeof(*l));
	int err;

	if (!l) {
		close(fd);
		return -ENOMEM;
	}
	l->fd = fd;
	l->cb = cb;
	l->arg = arg;
	err = uv_poll_init(loop, &l->poll, fd);
	if (err) {
		close(fd);
		free(l);
		return err;
	}
	l->spare = spare_open();
	err = uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
	if (err) {
		pool_listener_close(l);
		return err;
	}
	*ret_listener = l;
	return 0;
}

void pool_listener_close(struct pool_listener *l)
{
	struct stat st;

	if (!l)
		return;
	l->closed = true;
	if (l->path && stat(l->path, &st) == 0 && st.st_dev == l->dev &&
	    st.st_ino == l->ino)
		unlink(l->path);
	free(l->path);
	if (l->spare >= 0)
		close(l->spare);
	uv_close((uv_handle_t *)&l->poll, on_closed);
	close(l->fd);
}

uint16_t pool_listener_port(const struct pool_listener *l)
{
	return pool_fd_port(l->fd);
}

/* ---- TCP ---- */

uint16_t pool_fd_port(int fd)
{
	struct sockaddr_storage ss;
	socklen_t len = sizeof(ss);

	if (getsockname(fd, (struct sockaddr *)&ss, &len))
		return 0;
	if (ss.ss_family == AF_INET)
		return ntohs(((struct sockaddr_in *)&ss)->sin_port);
	if (ss.ss_family == AF_INET6)
		return ntohs(((struct sockaddr_in6 *)&ss)->sin6_port);
	return 0;
}

/* A socket or -errno. */
static int listen_one(const struct addrinfo *a)
{
	static const int on = 1, off = 0;
	int fd = socket(a->ai_family,
			SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int err;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (a->ai_family == AF_INET6) /* "::" includes IPv4 */
		setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, BACKLOG)) {
		err = -errno;
		close(fd);
		return err;
	}
	return fd;
}

int pool_listen_tcp(const struct pool_hostport *at, const char *options)
{
	struct addrinfo hints = {
		.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *res, *a;
	int fd = -EADDRNOTAVAIL;
	char port[8];
	int r;

	snprintf(port, sizeof(port), "%u", at->port);
	r = getaddrinfo(at->host[0] ? at->host : NULL, port, &hints, &res);
	if (r) {
		pool_error("cannot listen on %s:%u: %s", at->host, at->port,
			   gai_strerror(r));
		return -EADDRNOTAVAIL;
	}
	for (a = res; a && fd < 0; a = a->ai_next)
		fd = listen_one(a);
	freeaddrinfo(res);
	if (fd == -EADDRINUSE)
		pool_error("cannot listen on %s:%u: it is in use by another "
			   "program; choose another address with %s",
			   at->host, at->port, options);
	else if (fd < 0)
		pool_error("cannot listen on %s:%u: %s", at->host, at->port,
			   strerror(-fd));
	return fd;
}

int pool_listener_open(uv_loop_t *loop, const struct pool_hostport *at,
		       pool_accept_cb cb, void *arg,
		       struct pool_listener **ret_listener)
{
	int fd = pool_listen_tcp(at, "--listen (for a master in a node's "
				     "process, with --master)");

	if (fd < 0)
		return fd;
	return listener_new(loop, fd, cb, arg, ret_listener);
}

/* ---- Unix ---- */

int pool_listener_fd(const struct pool_listener *l)
{
	return l->fd;
}

int pool_listener_from_fd(uv_loop_t *loop, int fd, const char *path,
			  pool_accept_cb cb, void *arg,
			  struct pool_listener **ret_listener)
{
	struct pool_listener *l;
	struct stat st;
	char *copy = path ? strdup(path) : NULL;
	int err = listener_new(loop, fd, cb, arg, &l);

	if (err || (path && !copy)) {
		free(copy);
		if (!err)
			pool_listener_close(l);
		return err ? err : -ENOMEM;
	}
	if (path && stat(path, &st) == 0) {
		l->dev = st.st_dev;
		l->ino = st.st_ino;
	}
	l->path = copy;
	*ret_listener = l;
	return 0;
}

int pool_listener_open_unix(uv_loop_t *loop, const char *path,
			    pool_accept_cb cb, void *arg,
			    struct pool_listener **ret_listener)
{
	int fd = -1, err = pool_unix_clear(path, SOCK_STREAM);

	if (!err) {
		fd = pool_unix_listen(path, SOCK_STREAM | SOCK_NONBLOCK,
				      BACKLOG);
		err = fd < 0 ? fd : 0;
	}
	if (!err) {
		err = pool_listener_from_fd(loop, fd, path, cb, arg,
					    ret_listener);
		if (err)
			unlink(path);
	}
	if (err)
		pool_error("cannot listen on %s: %s", path, strerror(-err));
	return err;
}
