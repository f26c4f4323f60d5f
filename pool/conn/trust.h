/*
 * Whose process is at the other end of a connection on this machine? The port
 * of a daemon that is down may be taken, and a daemon's port dialled, by any
 * local user; the kernel knows who has the other socket (SO_PEERCRED of a Unix
 * socket; sock_diag(7), or /proc/self/net/tcp, of TCP on loopback). So nothing
 * has to be said on the wire, and no version of a peer matters.
 *
 * Trusted are this process's own user, root, and those that were added. A
 * connection none of whose ends is a loopback address is another machine's:
 * there is nothing to ask, and it passes.
 *
 * Thread: any; pool_trust_add before the others.
 */
#ifndef POOL_CONN_TRUST_H
#define POOL_CONN_TRUST_H

#include <stdbool.h>
#include <sys/types.h>

#include "pool/base/metric.h"

#define POOL_TRUST_MAX 64
#define POOL_TRUST_ACCEPTED "users' names or numbers with commas, at most 64"

struct pool_trust {
	unsigned int n;
	uid_t uids[POOL_TRUST_MAX];
	struct pool_counter strangers; /* connections of theirs, refused */
	/* ours, given up: theirs the other end */
	struct pool_counter impostors;
};

/* list: "vllm,1001". 0; -ENOENT: a user that is not known; -E2BIG; -EINVAL. On
 * an error t is as it was. */
int pool_trust_add(struct pool_trust *t, const char *list);
bool pool_trusts(const struct pool_trust *t, uid_t uid);

/*
 * Of a connected socket: 0; -EPERM: *ret_uid has the other end, who is not
 * trusted; -EAGAIN: no process has it, since it is not accepted yet, or closed;
 * -ENOTSUP: this kernel does not say. (TCP: some 10 us, without sock_diag the
 * time to read all of the machine's connections.)
 */
int pool_trust_peer(const struct pool_trust *t, int fd, uid_t *ret_uid);
/* The same of who listens at the address that fd is connected to, for as long
 * as pool_trust_peer says -EAGAIN. -ECONNRESET: nobody does. */
int pool_trust_listener(const struct pool_trust *t, int fd, uid_t *ret_uid);

/* The counters; 0 or -ENOMEM. */
int pool_trust_metrics(struct pool_trust *t, struct pool_metrics *metrics);

/* ---- inside, for tests ---- */

/* One line of /proc/net/tcp or tcp6. */
struct trust_line {
	unsigned char local[16], remote[16]; /* IPv4: mapped */
	unsigned short local_port, remote_port;
	unsigned int state, uid;
	unsigned long inode;
};
/* False: none of such a line. */
bool trust_line_read(const char *text, struct trust_line *ret);
/* Do as if there were no sock_diag. */
extern bool trust_without_diag;

#endif
