/* kvpool keep: keeps the mount of a daemon that runs in another container, for
 * the next daemon there, as systemd does for a service. daemon/fdstore.h has
 * the messages. It does not interpret what it keeps. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/fdstore.h"
#include "daemon/pass.h"
#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/unix.h"
#include "pool/kvpool.h"
#include "tools/cmd.h"

#define CLIENTS_MAX 4
#define KEPT_MAX 8
#define NO_CLIENT (-1)

static const char usage[] =
	"usage: kvpool keep --socket PATH [--wait DURATION]\n\n"
	"Keeps the mount of the kvpoold that is given the same path with "
	"--keeper-socket,\n"
	"while that is killed and started again; in Kubernetes, in a container "
	"beside it.";

static struct {
	int listener;
	int clients[CLIENTS_MAX]; /* connections; -1: free */
	struct kept {
		int fd; /* owns; -1: free */
		char name[FDSTORE_NAME_MAX + 1];
		int by; /* index of the client; NO_CLIENT: it has ended */
		uint64_t since_ms; /* it has ended */
	} kept[KEPT_MAX];
	uint64_t wait_ms;
} keep;

static void drop(struct kept *k, const char *why)
{
	pool_info("%s: closed: %s", k->name, why);
	close(k->fd);
	k->fd = -1;
}

static struct kept *find(const char *name)
{
	for (int i = 0; i < KEPT_MAX; i++)
		if (keep.kept[i].fd >= 0 &&
		    strcmp(keep.kept[i].name, name) == 0)
			return &keep.kept[i];
	return NULL;
}

static void put(int client, const char *name, int fd)
{
	struct kept *k = find(name);

	for (int i = 0; !k && i < KEPT_MAX; i++)
		if (keep.kept[i].fd < 0)
			k = &keep.kept[i];
	if (!k) {
		pool_warn("%s: not kept: accepted: %d descriptors", name,
			  KEPT_MAX);
		close(fd);
		return;
	}
	if (k->fd >= 0)
		close(k->fd);
	*k = (struct kept){ .fd = fd, .by = client };
	strcpy(k->name, name);
	pool_info("%s: kept", name);
}

/* The name, if text begins with what and has a valid one; or NULL. */
static const char *named(const char *text, const char *what)
{
	size_t n = strlen(what);
	const char *name = text + n;

	if (strncmp(text, what, n) != 0)
		return NULL;
	n = strlen(name);
	return n > 0 && n <= FDSTORE_NAME_MAX &&
			       name[strspn(name, "abcdefghijklmnopqrstuvwxyz-")]
				       == '\0' ?
		       name :
		       NULL;
}

static void end(int client, const char *why)
{
	close(keep.clients[client]);
	keep.clients[client] = -1;
	pool_info("connection %d has ended: %s", client, why);
	for (int i = 0; i < KEPT_MAX; i++)
		if (keep.kept[i].fd >= 0 && keep.kept[i].by == client) {
			keep.kept[i].by = NO_CLIENT;
			keep.kept[i].since_ms = pool_now_ms();
		}
}

/* Two daemons that read one device would be the worst case. */
static void take(int client, struct kept *k)
{
	int sock = keep.clients[client];

	if (k && k->by != NO_CLIENT && k->by != client) {
		(void)daemon_pass(sock, FDSTORE_BUSY, strlen(FDSTORE_BUSY), -1);
		return;
	}
	if (k)
		k->by = client;
	(void)daemon_pass(sock, "\n", 1, k ? k->fd : -1);
}

static void on_message(int client)
{
	char text[sizeof(FDSTORE_REMOVE) + FDSTORE_NAME_MAX + 1];
	const char *name;
	struct kept *k;
	int fd;
	ssize_t n = daemon_receive(keep.clients[client], text,
				   sizeof(text) - 1, &fd);

	if (n <= 0) {
		if (fd >= 0) /* with a message of no bytes */
			close(fd);
		end(client, n < 0 ? strerror((int)-n) : "closed by its peer");
		return;
	}
	text[n] = '\0';
	name = named(text, FDSTORE_PUT);
	if (name && fd >= 0) {
		put(client, name, fd);
		return;
	}
	if (fd >= 0)
		close(fd);
	if ((name = named(text, FDSTORE_REMOVE))) {
		/* (After a take-over, the other daemon's descriptor has
		 * replaced it.) */
		if ((k = find(name)) && k->by == client)
			drop(k, "removed by the daemon");
	} else if ((name = named(text, FDSTORE_TAKE))) {
		take(client, find(name));
	} else {
		end(client, "its message is not a request of kvpoold");
	}
}

static void on_connection(void)
{
	int fd = accept4(keep.listener, NULL, NULL,
			 SOCK_CLOEXEC | SOCK_NONBLOCK);
	uid_t peer;

	if (fd < 0)
		return;
	if (!daemon_peer_is_own(fd, &peer)) {
		pool_warn("a connection of user %u is refused; accepted: user "
			  "%u, root", peer, geteuid());
		close(fd);
		return;
	}
	for (int i = 0; i < CLIENTS_MAX; i++)
		if (keep.clients[i] < 0) {
			keep.clients[i] = fd;
			return;
		}
	pool_warn("a connection is refused: there are %d", CLIENTS_MAX);
	close(fd);
}

static void expire(void)
{
	for (int i = 0; i < KEPT_MAX; i++) {
		struct kept *k = &keep.kept[i];

		if (k->fd >= 0 && k->by == NO_CLIENT &&
		    pool_now_ms() - k->since_ms > keep.wait_ms)
			drop(k, "no daemon has connected in time");
	}
}

static void wait_for_events(void)
{
	struct pollfd p[1 + CLIENTS_MAX + KEPT_MAX];
	int i, n = 0;

	p[n++] = (struct pollfd){ .fd = keep.listener, .events = POLLIN };
	for (i = 0; i < CLIENTS_MAX; i++)
		p[n++] = (struct pollfd){ .fd = keep.clients[i],
					  .events = POLLIN };
	for (i = 0; i < KEPT_MAX; i++)
		p[n++] = (struct pollfd){ .fd = keep.kept[i].fd };
	if (poll(p, (nfds_t)n, 1000) <= 0)
		return;
	for (i = 0; i < KEPT_MAX; i++)
		if (p[1 + CLIENTS_MAX + i].revents & POLLERR)
			drop(&keep.kept[i], "its mount has ended");
	for (i = 0; i < CLIENTS_MAX; i++)
		if (p[1 + i].revents)
			on_message(i);
	if (p[0].revents)
		on_connection();
}

/* 0 or -errno, printed. */
static int listen_at(const char *path)
{
	struct sockaddr_un un;
	int err = pool_unix_address(path, &un);

	if (err) {
		fprintf(stderr, "kvpool: keep: --socket %s: accepted: at most "
				"%zu bytes\n", path, sizeof(un.sun_path) - 1);
		return err;
	}
	err = pool_unix_clear(path, SOCK_SEQPACKET);
	if (err) {
		fprintf(stderr, "kvpool: keep: --socket %s: %s; accepted: a "
				"path where there is nothing, or the socket of "
				"a kvpool keep that has ended\n", path,
			strerror(-err));
		return err;
	}
	keep.listener = pool_unix_listen(path, SOCK_SEQPACKET, CLIENTS_MAX);
	if (keep.listener >= 0)
		return 0;
	fprintf(stderr, "kvpool: keep: --socket %s: %s\n", path,
		strerror(-keep.listener));
	return keep.listener;
}

static void on_signal(int sig)
{
	(void)sig;
	_exit(0);
}

/* (Process 1 of a container ignores signals without a handler.) */
static void handle_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	(void)sigaction(SIGTERM, &sa, NULL);
	(void)sigaction(SIGINT, &sa, NULL);
	(void)signal(SIGPIPE, SIG_IGN);
}

int cmd_keep(int argc, char **argv)
{
	const char *path = NULL;
	uint64_t wait_ms = 30000;
	struct daemon_option opts[] = {
		{ .name = "socket", .type = OPT_STRING, .value = &path,
		  .arg = "PATH", .help = "Where kvpoold connects to.",
		  .no_env = true },
		{ .name = "wait", .type = OPT_DURATION, .value = &wait_ms,
		  .arg = "DURATION",
		  .help = "How long to keep the mount of an ended daemon.",
		  .no_env = true },
		{ .name = NULL },
	};
	char **ops;
	int nops, rc, i;

	rc = daemon_options_parse(opts, argc, argv, usage, &nops, &ops, stdout,
				  stderr);
	if (rc)
		return rc > 0 ? 0 : 2;
	if (nops || !path) {
		fprintf(stderr, "kvpool: keep: %s%s%s; %s\n",
			nops ? "\"" : "", nops ? ops[0] : "no --socket",
			nops ? "\" given" : "", usage);
		return 2;
	}
	handle_signals();
	if (listen_at(path))
		return 1;
	for (i = 0; i < CLIENTS_MAX; i++)
		keep.clients[i] = -1;
	for (i = 0; i < KEPT_MAX; i++)
		keep.kept[i].fd = -1;
	keep.wait_ms = wait_ms;
	pool_info("kvpool keep %s: %s", kvpool_version(), path);
	for (;;) {
		wait_for_events();
		expire();
	}
}
