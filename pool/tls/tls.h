/*
 * TLS 1.3 with certificates on both sides, on connected TCP sockets.
 *
 * A process has one struct pool_tls, made from the files of a directory:
 *
 *   ca.crt   certificates of the CAs that are trusted, one or more
 *   tls.crt  this process's certificate, then those of intermediate CAs
 *   tls.key  its private key, which no other user may read
 *
 * (names as in a Kubernetes TLS secret). Each connection has one struct
 * pool_tls_stream. There is no fallback: no older version, no session tickets,
 * no renegotiation, no early data. Both sides check the other's certificate. It
 * is accepted if a trusted CA signed it, it is valid now, its cluster is ours,
 * its role is one of those wanted, and, on the side that dialled, one of its
 * hosts is the one dialled (tls_id.h).
 *
 * Happy path: open -> start -> shake until 0 -> read and write -> free.
 *
 * Failure modes: the files are missing, unreadable, too widely readable, or do
 * not belong together (open and reload say which, and the remedy); the peer
 * does not speak TLS, or is not accepted (shake: -EKEYREJECTED, and
 * pool_tls_why). That our own certificate has expired is no error here: the
 * peers refuse it.
 *
 * Thread: struct pool_tls: any. A stream belongs to one thread at a time, and
 * may be passed on.
 */
#ifndef POOL_TLS_TLS_H
#define POOL_TLS_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "pool/base/metric.h"
#include "pool/tls/tls_id.h"

#define POOL_TLS_CA "ca.crt"
#define POOL_TLS_CERT "tls.crt"
#define POOL_TLS_KEY "tls.key"
#define POOL_TLS_WHY 512 /* bytes of a text that says why */

struct pool_tls;
struct pool_tls_stream;

/* Reads the files of dir. 0, or -errno and why, for the user. */
int pool_tls_open(const char *dir, struct pool_tls **ret,
		  char why[POOL_TLS_WHY]);
/* Reads the files again; streams that start later use them. On an error, which
 * is returned as by open, the files read before stay in use. */
int pool_tls_reload(struct pool_tls *t, char why[POOL_TLS_WHY]);
/* Streams may outlive it. NULL: no-op. */
void pool_tls_close(struct pool_tls *t);

/* To be called every POOL_TLS_CHECK_MS or so: reads the files again if they
 * have changed, and logs what an operator has to know: new certificates, or why
 * they cannot be used, and once that ours expires soon, or has. NULL: no-op. */
void pool_tls_check(struct pool_tls *t);
#define POOL_TLS_CHECK_MS 5000
/* Have the files changed since they were read? Three calls of stat(2). */
bool pool_tls_is_outdated(struct pool_tls *t);
/* Seconds until our own certificate expires; negative: it has. */
int64_t pool_tls_expires_s(struct pool_tls *t);
const char *pool_tls_cluster(const struct pool_tls *t);
enum pool_role pool_tls_role(const struct pool_tls *t);

/* For a library that makes the handshake itself, with the files of the
 * directory: a trusted CA has signed cert; may its holder be our peer? roles,
 * host: as in struct pool_tls_want. False: not, and why. */
bool pool_tls_accepts(const struct pool_tls *t, X509 *cert, unsigned int roles,
		      const char *host, char why[POOL_TLS_WHY]);

/*
 * Renewal. A link uses the certificates of its handshake for as long as it
 * lives; so the side that dialled replaces it by a new one when it is that old:
 * it makes the new link before it closes the old one. Default:
 * POOL_TLS_RENEW_MS. Call pool_tls_set_renew before the first stream.
 */
void pool_tls_set_renew(struct pool_tls *t, uint64_t ms);
#define POOL_TLS_RENEW_MS 86400000u
/* When (pool_now_ms) a link that is made now is to be replaced. It varies by an
 * eighth, so that not all nodes join anew at once. t NULL: UINT64_MAX. */
uint64_t pool_tls_due_ms(const struct pool_tls *t);
/* A link has been replaced. For the counters. NULL: no-op. */
void pool_tls_renewed(struct pool_tls *t);

/* A handshake has ended with err. For the counters. */
void pool_tls_count(struct pool_tls *t, int err);
/* The counters, and when our certificate expires; 0 or -ENOMEM. */
int pool_tls_metrics(struct pool_tls *t, struct pool_metrics *metrics);

/* What a stream is for. */
struct pool_tls_want {
	bool dialled;	    /* by us; else accepted */
	unsigned int roles; /* POOL_ROLE_BITs: what the peer may be */
	const char *host;   /* borrows: what was dialled; NULL: any */
	bool blocking;	    /* read, write and shake wait for the socket, for
			       as long as its SO_RCVTIMEO and SO_SNDTIMEO */
	bool bulk;	    /* reads POOL_TLS_BULK_AHEAD ahead, not 16 KiB */
};
#define POOL_TLS_BULK_AHEAD (128u << 10)

/* A stream on a connected socket, which stays the caller's and must stay open
 * as long as the stream. 0 or -ENOMEM. */
int pool_tls_start(struct pool_tls *t, int fd, const struct pool_tls_want *want,
		   struct pool_tls_stream **ret);
/* 0: the peer is accepted, and pool_tls_peer says who it is. -EAGAIN: call
 * again when the socket is readable (or writable, if pool_tls_unsent). -errno:
 * it has failed. */
int pool_tls_shake(struct pool_tls_stream *s);
/* Why it has failed, for logs. "" or a text that lives as long as s. */
const char *pool_tls_why(const struct pool_tls_stream *s);
/* Valid after shake has returned 0, as long as s. */
const struct pool_tls_id *pool_tls_peer(const struct pool_tls_stream *s);
/* As pool_tls_has_host, of the peer's certificate. */
bool pool_tls_peer_has_host(const struct pool_tls_stream *s, const char *host);

/* Reads as many bytes as there are, at most cap; a blocking stream waits for
 * the first. 0: the peer has closed. -EAGAIN: none; wait for the socket. Other
 * -errno: the connection is broken. After cap bytes there may be more in the
 * stream and none in the socket: only a shorter read says that waiting for the
 * socket is right. A read may leave bytes to be sent (pool_tls_unsent). */
ssize_t pool_tls_read(struct pool_tls_stream *s, void *to, size_t cap);
/* Has it read bytes that pool_tls_read has not returned? Perhaps a part of a
 * record only, so that a read still has to wait for the rest. */
bool pool_tls_has_input(const struct pool_tls_stream *s);
/* Encrypts and sends. Returns how many bytes it took, at least 1; they may not
 * have been sent yet (pool_tls_unsent). -EAGAIN: earlier ones have not been
 * sent. Other -errno: the connection is broken. */
ssize_t pool_tls_write(struct pool_tls_stream *s, const struct iovec *iov,
		       int n);
/* Sends what was taken. 0: all of it; -EAGAIN: wait for the socket. */
int pool_tls_flush(struct pool_tls_stream *s);
bool pool_tls_unsent(const struct pool_tls_stream *s);

/* Does not close the socket. NULL: no-op. */
void pool_tls_free(struct pool_tls_stream *s);

#endif
