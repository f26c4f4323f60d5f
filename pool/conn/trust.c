#include "pool/conn/trust.h"

#include <errno.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pwd.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK_INDEX 1 /* of the interface, in every network namespace */

bool trust_without_diag;

/* sock_diag has found a socket at least once. So an ENOENT from it means that
 * there is no such socket, not that the kernel lacks tcp_diag. */
static atomic_bool diag_answers;

/* ---- users ---- */

static int read_number(const char *word, uid_t *ret_uid)
{
	char *end;
	unsigned long n;

	if (word[0] < '0' || word[0] > '9')
		return -ENOENT;
	errno = 0;
	n = strtoul(word, &end, 10);
	if (errno || *end || n >= UINT32_MAX) /* (uid_t)-1 is no user */
		return -EINVAL;
	*ret_uid = (uid_t)n;
	return 0;
}

static int read_user(const char *word, uid_t *ret_uid)
{
	char buf[4096];
	struct passwd pw, *found = NULL;

	if (!word[0])
		return -EINVAL;
	if (getpwnam_r(word, &pw, buf, sizeof(buf), &found) == 0 && found) {
		*ret_uid = found->pw_uid;
		return 0;
	}
	return read_number(word, ret_uid);
}

int pool_trust_add(struct pool_trust *t, const char *list)
{
	unsigned int n = t->n;
	char word[256];

	for (;;) {
		size_t len = strcspn(list, ",");
		int err;

		if (len >= sizeof(word))
			return -EINVAL;
		if (n == POOL_TRUST_MAX)
			return -E2BIG;
		memcpy(word, list, len);
		word[len] = '\0';
		err = read_user(word, &t->uids[n]);
		if (err)
			return err;
		n++;
		if (!list[len])
			break;
		list += len + 1;
	}
	t->n = n;
	return 0;
}

bool pool_trusts(const struct pool_trust *t, uid_t uid)
{
	if (uid == 0 || uid == geteuid())
		return true;
	for (unsigned int i = 0; i < t->n; i++)
		if (t->uids[i] == uid)
			return true;
	return false;
}

/* ---- the ends of a connection ---- */

/* IPv4 addresses are mapped to IPv6. */
struct end {
	struct in6_addr addr;
	uint16_t port; /* network order */
};

struct owner {
	uid_t uid;
	uint64_t inode; /* 0: no process has the socket */
};

static bool end_read(const struct sockaddr_storage *ss, struct end *ret)
{
	const struct sockaddr_in *in4 = (const void *)ss;
	const struct sockaddr_in6 *in6 = (const void *)ss;

	if (ss->ss_family == AF_INET6) {
		ret->addr = in6->sin6_addr;
		ret->port = in6->sin6_port;
		return true;
	}
	memset(&ret->addr, 0, sizeof(ret->addr));
	memset(&ret->addr.s6_addr[10], 0xff, 2);
	memcpy(&ret->addr.s6_addr[12], &in4->sin_addr, 4);
	ret->port = in4->sin_port;
	return ss->ss_family == AF_INET;
}

static bool is_loopback(const struct end *e)
{
	if (IN6_IS_ADDR_V4MAPPED(&e->addr))
		return e->addr.s6_addr[12] == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&e->addr);
}

/* ---- sock_diag ---- */

static void diag_address(const struct end *e, bool mapped, __be32 to[4])
{
	if (mapped)
		memcpy(to, &e->addr.s6_addr[12], 4);
	else
		memcpy(to, &e->addr, 16);
}

static void diag_question(const struct end *local, const struct end *remote,
			  struct inet_diag_req_v2 *q)
{
	bool mapped = IN6_IS_ADDR_V4MAPPED(&local->addr);

	q->sdiag_family = mapped ? AF_INET : AF_INET6;
	q->sdiag_protocol = IPPROTO_TCP;
	q->idiag_states = UINT32_MAX;
	q->id.idiag_cookie[0] = q->id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	/* Only loopback connections are looked up. With the interface set, the
	 * kernel also finds a socket that is bound to it. */
	q->id.idiag_if = LOOPBACK_INDEX;
	q->id.idiag_sport = local->port;
	diag_address(local, mapped, q->id.idiag_src);
	if (!remote)
		return;
	q->id.idiag_dport = remote->port;
	diag_address(remote, mapped, q->id.idiag_dst);
}

/* If no socket has these ends, the kernel returns one that listens at `local`.
 * That is the answer only if a listener was asked for. */
static int diag_answer(const struct inet_diag_msg *m, bool listens,
		       struct owner *ret)
{
	if ((m->idiag_state == TCP_LISTEN) != listens)
		return -ENOENT;
	ret->uid = m->idiag_uid;
	ret->inode = m->idiag_inode;
	return 0;
}

static int diag_read(const void *buf, size_t len, bool listens,
		     struct owner *ret)
{
	const struct nlmsghdr *h = buf;
	const struct nlmsgerr *e;

	if (!NLMSG_OK(h, len))
		return -ENOTSUP;
	if (h->nlmsg_type == SOCK_DIAG_BY_FAMILY &&
	    h->nlmsg_len >= NLMSG_LENGTH(sizeof(struct inet_diag_msg))) {
		atomic_store(&diag_answers, true);
		return diag_answer(NLMSG_DATA(h), listens, ret);
	}
	e = NLMSG_DATA(h);
	if (h->nlmsg_type == NLMSG_ERROR &&
	    h->nlmsg_len >= NLMSG_LENGTH(sizeof(*e)) && e->error == -ENOENT)
		/* A kernel without tcp_diag answers the same. */
		return -ENOENT;
	return -ENOTSUP;
}

static int diag_ask(const struct end *local, const struct end *remote,
		    struct owner *ret)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 q;
	} ask = { .h = { .nlmsg_len = sizeof(ask),
			 .nlmsg_type = SOCK_DIAG_BY_FAMILY,
			 .nlmsg_flags = NLM_F_REQUEST } };
	union {
		struct nlmsghdr align;
		char bytes[4096];
	} buf;
	int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
	ssize_t n = -1;

	if (fd < 0)
		return -ENOTSUP;
	diag_question(local, remote, &ask.q);
	/* The kernel queues the answer before send returns. */
	if (send(fd, &ask, sizeof(ask), 0) == (ssize_t)sizeof(ask))
		n = recv(fd, buf.bytes, sizeof(buf), MSG_DONTWAIT);
	close(fd);
	return n < 0 ? -ENOTSUP : diag_read(buf.bytes, (size_t)n, !remote, ret);
}

/* ---- /proc ---- */

/* 8 or 32 hex digits: 32-bit words in host byte order, "0100007F". */
static bool hex_address(const char *text, unsigned char addr[16])
{
	size_t len = strlen(text);
	uint32_t words[4] = { 0, 0, htonl(0xffff), 0 };
	char one[9] = "";

	if (len != 8 && len != 32)
		return false;
	for (size_t i = 0; i < len; i += 8) {
		memcpy(one, text + i, 8);
		words[len == 8 ? 3 : i / 8] = (uint32_t)strtoul(one, NULL, 16);
	}
	memcpy(addr, words, 16);
	return true;
}

bool trust_line_read(const char *text, struct trust_line *ret)
{
	char local[33], remote[33];
	unsigned int lport, rport;

	if (sscanf(text,
		   " %*u: %32[0-9A-F]:%4X %32[0-9A-F]:%4X %2X %*s %*s %*s %u "
		   "%*d %lu",
		   local, &lport, remote, &rport, &ret->state, &ret->uid,
		   &ret->inode) != 7)
		return false;
	ret->local_port = (unsigned short)lport;
	ret->remote_port = (unsigned short)rport;
	return hex_address(local, ret->local) &&
	       hex_address(remote, ret->remote);
}

static bool line_is(const struct trust_line *l, const struct end *local,
		    const struct end *remote)
{
	static const unsigned char any[16],
		any4[16] = { [10] = 0xff, [11] = 0xff };

	if (l->local_port != ntohs(local->port))
		return false;
	if (remote)
		return l->remote_port == ntohs(remote->port) &&
		       memcmp(l->local, &local->addr, 16) == 0 &&
		       memcmp(l->remote, &remote->addr, 16) == 0;
	return l->state == TCP_LISTEN &&
	       (memcmp(l->local, &local->addr, 16) == 0 ||
		memcmp(l->local, any, 16) == 0 ||
		memcmp(l->local, any4, 16) == 0);
}

static int proc_search(const char *path, const struct end *local,
		       const struct end *remote, struct owner *ret)
{
	FILE *f = fopen(path, "re");
	struct trust_line l;
	char text[512];
	int err = -ENOENT;

	if (!f)
		return -ENOTSUP;
	while (err && fgets(text, sizeof(text), f)) {
		if (!trust_line_read(text, &l) || !line_is(&l, local, remote))
			continue;
		ret->uid = l.uid;
		ret->inode = l.inode;
		err = 0;
	}
	fclose(f);
	return err;
}

static int proc_ask(const struct end *local, const struct end *remote,
		    struct owner *ret)
{
	int err = proc_search("/proc/self/net/tcp", local, remote, ret);

	/* An IPv6 socket may carry an IPv4 connection. */
	if (err == -ENOENT)
		err = proc_search("/proc/self/net/tcp6", local, remote, ret);
	return err;
}

/* ---- by sock_diag, else by /proc ---- */

/*
 * The owner of the socket with these ends (`local` is the owner's), or, if
 * remote is NULL, of the one that listens at `local`. 0, -ENOENT, -ENOTSUP.
 *
 * /proc is only a fallback for kernels without sock_diag. It has a line for
 * each socket of the machine: a local user could stall the loop with many
 * sockets, and connections that are closed at once.
 */
static int find_owner(const struct end *local, const struct end *remote,
		      struct owner *ret)
{
	int err = trust_without_diag ? -ENOTSUP : diag_ask(local, remote, ret);

	if (!err || (err == -ENOENT && atomic_load(&diag_answers)))
		return err;
	return proc_ask(local, remote, ret);
}

/* Has every user a number in this user namespace? */
static bool has_all_users(void)
{
	FILE *f = fopen("/proc/self/uid_map", "re");
	unsigned int first, n;
	bool all;

	if (!f) /* ENOENT: a kernel without user namespaces */
		return errno == ENOENT;
	all = fscanf(f, "%u %*u %u", &first, &n) == 2 && !first &&
	      n == UINT32_MAX;
	fclose(f);
	return all;
}

static int judge_user(const struct pool_trust *t, uid_t uid, uid_t *ret_uid)
{
	*ret_uid = uid;
	if (uid == POOL_UID_LOST && !has_all_users())
		return -ENOTSUP;
	return pool_trusts(t, uid) ? 0 : -EPERM;
}

static int unix_peer(const struct pool_trust *t, int fd, uid_t *ret_uid)
{
	struct ucred cred;
	socklen_t len = sizeof(cred);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len))
		return -ENOTSUP;
	return judge_user(t, cred.uid, ret_uid);
}

/* 0: the peer is on this machine; 1: on another; -EAGAIN: it has closed. */
static int both_ends(int fd, struct end *ret_ours, struct end *ret_theirs)
{
	struct sockaddr_storage us, them;
	socklen_t us_len = sizeof(us), them_len = sizeof(them);

	if (getsockname(fd, (struct sockaddr *)&us, &us_len) ||
	    getpeername(fd, (struct sockaddr *)&them, &them_len))
		return -EAGAIN;
	if (!end_read(&us, ret_ours) || !end_read(&them, ret_theirs))
		return -EAGAIN;
	/* One loopback end is enough: a dialler may have bound its socket to
	 * another address of this machine. */
	return !is_loopback(ret_ours) && !is_loopback(ret_theirs);
}

static int judge(const struct pool_trust *t, const struct owner *o,
		 uid_t *ret_uid)
{
	/* For a socket without a process the kernel may report root. */
	if (!o->inode)
		return -EAGAIN;
	return judge_user(t, o->uid, ret_uid);
}

static bool is_unix(int fd)
{
	int domain = 0;
	socklen_t len = sizeof(domain);

	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len) == 0 &&
	       domain == AF_UNIX;
}

/* The owner of the other end, or (listener) of the socket that listens at its
 * address. Errors as pool_trust_peer. */
static int check(const struct pool_trust *t, int fd, bool listener,
		 uid_t *ret_uid)
{
	struct end ours, theirs;
	struct owner o;
	int err;

	if (is_unix(fd))
		return unix_peer(t, fd, ret_uid);
	err = both_ends(fd, &ours, &theirs);
	if (err)
		return err > 0 ? 0 : err;
	err = find_owner(&theirs, listener ? NULL : &ours, &o);
	if (err)
		return err == -ENOENT ? -EAGAIN : err;
	return judge(t, &o, ret_uid);
}

int pool_trust_peer(const struct pool_trust *t, int fd, uid_t *ret_uid)
{
	return check(t, fd, false, ret_uid);
}

int pool_trust_listener(const struct pool_trust *t, int fd, uid_t *ret_uid)
{
	int err = check(t, fd, true, ret_uid);

	return err == -EAGAIN ? -ECONNRESET : err;
}

int pool_trust_metrics(struct pool_trust *t, struct pool_metrics *metrics)
{
	int err = pool_metrics_counter(
		metrics, &t->strangers, "kvpool_strangers_refused_total", NULL,
		"Connections refused: their local user is not trusted.");

	if (!err)
		err = pool_metrics_counter(metrics, &t->impostors,
					   "kvpool_impostors_left_total", NULL,
					   "Connections given up: a user who "
					   "is not trusted listened there.");
	return err;
}
