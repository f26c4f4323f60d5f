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
 * hosts is the one dialled (tls_id.h) or its role is client.
 *
 * Happy path: open -> start -> shake until 0 -> read and write -> free.
 *
 * Failure modes: a file is missing, unreadable, or (the key) readable by other
 * users, or the files do not belong together (open and reload say which, and
 * the remedy); the peer does not speak TLS, or is not accepted (shake returns
 * -EKEYREJECTED, pool_tls_why the reason). An expired certificate of our own is
 * no error here, but peers refuse it.
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
#define POOL_TLS_WHY 512 /* bytes of an error text */

struct pool_tls;
struct pool_tls_stream;

/* Reads the files of dir. 0, or -errno and `why`, a text for the user. */
int pool_tls_open(const char *dir, struct pool_tls **ret,
		  char why[POOL_TLS_WHY]);
/* Reads the files again, for streams that start later. Errors as open; after an
 * error the earlier certificates stay in use. */
int pool_tls_reload(struct pool_tls *t, char why[POOL_TLS_WHY]);
/* Streams may outlive it. NULL: no-op. */
void pool_tls_close(struct pool_tls *t);

/* Call it about every POOL_TLS_CHECK_MS. Reads the files again if they have
 * changed. Logs new certificates, why they cannot be used, and (once each) that
 * ours expires soon or has expired. NULL: no-op. */
void pool_tls_check(struct pool_tls *t);
#define POOL_TLS_CHECK_MS 5000
/* Have the files changed since they were read? Three calls of stat(2). */
bool pool_tls_is_outdated(struct pool_tls *t);
/* Seconds until our own certificate expires; negative: it has. */
int64_t pool_tls_expires_s(struct pool_tls *t);
const char *pool_tls_cluster(const struct pool_tls *t);
enum pool_role pool_tls_role(const struct pool_tls *t);
/* Who we are, by the first certificate read. A later one of another cluster,
 * role or namespaces is not used. NULL for t NULL. Valid as long as t. */
const struct pool_tls_id *pool_tls_self(const struct pool_tls *t);

/* For a caller whose library (such as libcurl) makes the handshake itself and
 * has found that a trusted CA signed cert: may its holder be our peer? roles,
 * host: as in struct pool_tls_want. False: no, and `why` says why not. */
bool pool_tls_accepts(const struct pool_tls *t, X509 *cert, unsigned int roles,
		      const char *host, char why[POOL_TLS_WHY]);

/*
 * Renewal. A connection uses the certificates of its handshake as long as it
 * lives. So when it is `ms` old, the side that dialled replaces it: it makes a
 * new connection, then closes the old one. Default: POOL_TLS_RENEW_MS. Call
 * pool_tls_set_renew before the first stream.
 */
void pool_tls_set_renew(struct pool_tls *t, uint64_t ms);
#define POOL_TLS_RENEW_MS 86400000u
/* When (pool_now_ms) a connection made now is to be replaced. It varies by an
 * eighth, so that nodes do not all rejoin at once. t NULL: UINT64_MAX. */
uint64_t pool_tls_due_ms(const struct pool_tls *t);
/* The side that dialled also replaces a connection when the other may have sent
 * this many records on it: AES-GCM may encrypt 2^24.5 by one key (RFC 8446,
 * 5.5), and nobody updates keys. */
#define POOL_TLS_KEY_RECORDS (1u << 24)
/* Records of an answer with so many bytes, at most. */
static inline uint64_t pool_tls_records(uint64_t bytes)
{
	return 2 + bytes / 16384;
}
/* A connection has been replaced. For the counters. NULL: no-op. */
void pool_tls_renewed(struct pool_tls *t);

/*
 * Bulk without encryption (--bulk auth). If both sides allow it, a lane ends
 * TLS after the handshake and HELLO (pool_conn_end_tls), so that the bytes of
 * objects move as fast as without TLS. Whoever is on the path can then read and
 * change them, and the headers of their frames: there is no MAC. Who they come
 * from was checked when the lane was made. Call pool_tls_allow_plain before the
 * first stream.
 */
void pool_tls_allow_plain(struct pool_tls *t, bool allowed);
/* t NULL: false, as there is no TLS to end. */
bool pool_tls_allows_plain(const struct pool_tls *t);
/* TLS has ended on a lane. For the counters. Any thread. */
void pool_tls_ended(struct pool_tls *t);

/* Bulk that the kernel encrypts (kTLS): see pool_tls_to_kernel. Call it before
 * the first stream. */
void pool_tls_allow_kernel(struct pool_tls *t, bool allowed);
/* t NULL: false. */
bool pool_tls_allows_kernel(const struct pool_tls *t);

/* Counts the handshake of s, which ended with err, and its duration. */
void pool_tls_count(struct pool_tls *t, const struct pool_tls_stream *s,
		    int err);
/* Registers the counters, and the time until our certificate expires. 0 or
 * -ENOMEM. */
int pool_tls_metrics(struct pool_tls *t, struct pool_metrics *metrics);

/* What a stream is for. */
struct pool_tls_want {
	bool dialled;	    /* by us; else accepted */
	unsigned int roles; /* POOL_ROLE_BITs: what the peer may be */
	const char *host;   /* borrows: what was dialled; NULL: any */
	bool blocking;	    /* read, write and shake wait for the socket, up to
			       its SO_RCVTIMEO and SO_SNDTIMEO */
	bool bulk;	    /* reads POOL_TLS_BULK_AHEAD ahead, not 16 KiB */
};
#define POOL_TLS_BULK_AHEAD (128u << 10)

/* A stream on a connected socket, which stays the caller's and must stay open
 * as long as the stream. 0 or -ENOMEM. */
int pool_tls_start(struct pool_tls *t, int fd, const struct pool_tls_want *want,
		   struct pool_tls_stream **ret);
/* Continues the handshake. 0: the peer is accepted, and pool_tls_peer says who
 * it is. -EAGAIN: call again when the socket is readable (or writable, if
 * pool_tls_unsent). Other -errno: the handshake failed. */
int pool_tls_shake(struct pool_tls_stream *s);
/* Why the stream failed, for logs; "" if it did not. Valid as long as s. */
const char *pool_tls_why(const struct pool_tls_stream *s);
/* Should the refusal of this peer be logged? Peers retry, so false if this
 * function saw the certificate in the last hour. */
bool pool_tls_is_news(struct pool_tls *t, const struct pool_tls_stream *s);
/* The peer's identity. Valid after shake has returned 0, as long as s. */
const struct pool_tls_id *pool_tls_peer(const struct pool_tls_stream *s);
/* As pool_tls_has_host, for the peer's certificate. */
bool pool_tls_peer_has_host(const struct pool_tls_stream *s, const char *host);

/* Reads as many bytes as there are, at most cap; a blocking stream waits for
 * the first, and for the rest of a record that has begun to arrive. 0: the peer
 * has closed. -EAGAIN: none; wait for the socket. Other -errno: the connection
 * is broken. If cap bytes were read, the stream may hold
 * more although the socket is empty: wait for the socket only after a shorter
 * read. A read may leave bytes to be sent (pool_tls_unsent). */
ssize_t pool_tls_read(struct pool_tls_stream *s, void *to, size_t cap);
/* Has a read found an error behind the bytes that it returned? The next read
 * returns it. Do not wait for the socket first, which may stay unreadable. */
bool pool_tls_is_broken(const struct pool_tls_stream *s);
/* Has the stream read bytes that pool_tls_read has not returned? If they are
 * only a part of a record, a read still waits for the rest. */
bool pool_tls_has_input(const struct pool_tls_stream *s);
/* Encrypts and sends. Returns how many bytes it took, at least 1; they may not
 * have been sent yet (pool_tls_unsent). -EAGAIN: earlier ones have not been
 * sent. Other -errno: the connection is broken. */
ssize_t pool_tls_write(struct pool_tls_stream *s, const struct iovec *iov,
		       int n);
/* Sends the bytes that pool_tls_write took. 0: all are sent; -EAGAIN: wait for
 * the socket. */
int pool_tls_flush(struct pool_tls_stream *s);
/* Bytes that are to be sent. */
size_t pool_tls_unsent(const struct pool_tls_stream *s);

/*
 * From now on the kernel encrypts what an accepted stream sends, so that no
 * copy of a file's bytes is made in user space (pool_tls_send_file). Call it
 * before the first write. t: the one that s was started with. 0; else the
 * stream is as before: -EBUSY: t did not allow it when s was started, or
 * something was written; others: the kernel cannot (tls_kernel.h).
 */
int pool_tls_to_kernel(struct pool_tls *t, struct pool_tls_stream *s);
bool pool_tls_is_in_kernel(const struct pool_tls_stream *s);
/* As sendfile(2) on the socket, of a stream that is in the kernel. */
ssize_t pool_tls_send_file(struct pool_tls_stream *s, int file, off_t *at,
			   size_t len);

/* Does not close the socket. NULL: no-op. */
void pool_tls_free(struct pool_tls_stream *s);

#endif
