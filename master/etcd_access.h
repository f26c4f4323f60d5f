/*
 * The operator's options for etcd, checked here: URLs, the certificates of
 * https, a user and the password.
 *
 * Files are read again for each new connection and each new token, so that they
 * can be replaced without a restart. The private key and the password must be
 * readable by their owner alone. https is TLS 1.2 or newer (1.3 where etcd has
 * it), and etcd's certificate must name the host of the URL; nothing turns
 * that off.
 *
 * Failure modes: each is an error with a text for the operator, which names the
 * option and the file, and the remedy.
 *
 * Thread: any; no state. Clears OpenSSL's queue of errors.
 */
#ifndef MASTER_ETCD_ACCESS_H
#define MASTER_ETCD_ACCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <openssl/ssl.h>

#define ETCD_URLS_MAX 8
#define ETCD_PORT 2379
#define ETCD_URLS_ACCEPTED                                                   \
	"http://HOST:PORT or https://HOST:PORT, up to 8 of them, all http or " \
	"all https, with commas between; port 2379 if none is given"
#define ETCD_USER_MAX 255     /* bytes */
#define ETCD_PASSWORD_MAX 1023 /* bytes */
#define ETCD_WHY 512	      /* bytes of a text that says why */

/* All strings are borrowed, from argv or the environment. */
struct etcd_access {
	const char *urls;	/* valid: etcd_urls_check; NULL: no etcd */
	const char *ca;		/* file; NULL: the CAs of this machine */
	const char *cert, *key; /* files; both or none */
	const char *user, *password_file; /* both or none */
	/* Seconds until a connection is replaced; 0: ETCD_CONN_LIFE_S. */
	unsigned int conn_life_s;
};

/* Seconds that a connection may be used after its files were replaced. */
#define ETCD_CONN_LIFE_S 3600

/* Is the list valid (ETCD_URLS_ACCEPTED)? 0 or -EINVAL. */
int etcd_urls_check(const char *urls);
/* Copies the URLs of a valid list, with ports and without slashes at the end,
 * into one buffer, which the caller frees. Returns their number or -ENOMEM. */
int etcd_urls_split(const char *urls, const char *ret_url[ETCD_URLS_MAX],
		    char **ret_buf);
/* Of a valid list: is it https? */
bool etcd_urls_tls(const char *urls);
/* Of a valid list: https, or this machine alone? Else others can read what is
 * sent. */
bool etcd_urls_private(const char *urls);
/* Is the name of a user valid: 1 to ETCD_USER_MAX bytes, no control
 * characters? */
bool etcd_user_valid(const char *user);
#define ETCD_USER_ACCEPTED \
	"1 to 255 bytes of UTF-8 without control characters"

/* Reads all files that are given, to report errors before they are needed. 0,
 * or -errno and why. */
int etcd_access_check(const struct etcd_access *a, char why[ETCD_WHY]);
/* Sets up ctx, which is new: the CAs, our certificate and key. *ret_expires:
 * when our certificate expires, in seconds of the wall clock; 0: there is none.
 * 0, or -errno and why. */
int etcd_access_ctx(const struct etcd_access *a, SSL_CTX *ctx,
		    int64_t *ret_expires, char why[ETCD_WHY]);
/* The password, without the newline at the end of the file. The caller clears
 * it. 0, or -errno and why. */
int etcd_password_read(const struct etcd_access *a,
		       char to[ETCD_PASSWORD_MAX + 1], char why[ETCD_WHY]);

#endif
