/*
 * Which local user owns the peer's socket of a connection on this machine? Any
 * local user can dial a daemon's port, or listen on it while the daemon is
 * down. The kernel knows the owner of the other socket: SO_PEERCRED for Unix
 * sockets; sock_diag(7), or else /proc/self/net/tcp, for TCP on loopback. The
 * protocol needs no message for this.
 *
 * Trusted are root, this process's own user, and users that were added. A
 * connection with no loopback address at either end is taken to come from
 * another machine, and passes: the kernel does not know its owner. A socket
 * that is neither IP nor Unix does not pass.
 *
 * Thread: any; pool_trust_add before all others.
 */
#ifndef POOL_CONN_TRUST_H
#define POOL_CONN_TRUST_H

#include <stdbool.h>
#include <sys/types.h>

#include "pool/base/metric.h"

/* All users without a mapping in this user namespace appear as this uid. */
#define POOL_UID_LOST 65534
#define POOL_TRUST_MAX 64
#define POOL_TRUST_ACCEPTED "users' names or numbers with commas, at most 64"

struct pool_trust {
	unsigned int n;
	uid_t uids[POOL_TRUST_MAX];
	/* connections refused because an untrusted user dialled ... */
	struct pool_counter strangers;
	/* ... or given up because an untrusted user listened */
	struct pool_counter impostors;
};

/* list: "vllm,1001". 0; -ENOENT: no such user; -E2BIG: too many; -EINVAL. On an
 * error t is unchanged. */
int pool_trust_add(struct pool_trust *t, const char *list);
bool pool_trusts(const struct pool_trust *t, uid_t uid);

/*
 * Check the owner of the other end of a connected socket. 0: trusted; -EPERM:
 * *ret_uid owns it and is not trusted; -EAGAIN: no process owns it, because it
 * is not accepted yet or was closed; -ENOTSUP: the kernel does not report
 * owners, or not this one (POOL_UID_LOST in a user namespace). Takes some 10 us
 * for TCP; without sock_diag, the time to read the list of all of the machine's
 * connections.
 */
int pool_trust_peer(const struct pool_trust *t, int fd, uid_t *ret_uid);
/* For a connection that is not accepted yet (-EAGAIN above): check the owner of
 * the socket that listens at the peer's address. -ECONNRESET: no process
 * listens there. */
int pool_trust_listener(const struct pool_trust *t, int fd, uid_t *ret_uid);

/* The counters; 0 or -ENOMEM. */
int pool_trust_metrics(struct pool_trust *t, struct pool_metrics *metrics);

/* ---- internal; here for the tests ---- */

/* One line of /proc/net/tcp or tcp6. */
struct trust_line {
	unsigned char local[16], remote[16]; /* IPv4 as mapped IPv6 */
	unsigned short local_port, remote_port;
	unsigned int state, uid;
	unsigned long inode;
};
/* False: text is no such line. */
bool trust_line_read(const char *text, struct trust_line *ret);
/* Pretend that the kernel has no sock_diag. */
extern bool trust_without_diag;

#endif
