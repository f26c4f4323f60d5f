#include "master/etcd_access.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <openssl/err.h>
#include <openssl/x509.h>

#include "pool/base/parse.h"
#include "pool/tls/tls_files.h"

#define HTTP "http://"
#define HTTPS "https://"

/* ---- URLs ---- */

static size_t scheme_len(const char *url)
{
	if (!strncmp(url, HTTPS, strlen(HTTPS)))
		return strlen(HTTPS);
	return strncmp(url, HTTP, strlen(HTTP)) ? 0 : strlen(HTTP);
}

/* Parses "http://host:port"; one trailing slash is allowed and not in *ret_len.
 */
static int parse_url(const char *url, size_t len, size_t *ret_len,
		     struct pool_hostport *ret_hp)
{
	char text[POOL_HOST_MAX + 16];
	size_t head = scheme_len(url);

	if (len > head && url[len - 1] == '/')
		len--;
	if (!head || len <= head || len - head >= sizeof(text))
		return -EINVAL;
	memcpy(text, url + head, len - head);
	text[len - head] = 0;
	*ret_len = len;
	if (pool_parse_hostport(text, ETCD_PORT, ret_hp) || !ret_hp->port)
		return -EINVAL;
	return 0;
}

int etcd_urls_check(const char *urls)
{
	size_t len, url_len, scheme = scheme_len(urls);
	struct pool_hostport hp;
	unsigned int n = 0;

	do {
		len = strcspn(urls, ",");
		if (++n > ETCD_URLS_MAX || scheme_len(urls) != scheme ||
		    parse_url(urls, len, &url_len, &hp))
			return -EINVAL;
		urls += len + 1;
	} while (urls[-1]);
	return 0;
}

/* Adds the default port, as curl's is another one. */
int etcd_urls_split(const char *urls, const char *ret_url[ETCD_URLS_MAX],
		    char **ret_buf)
{
	static const char port[] = ":2379";
	size_t cap = strlen(urls) + ETCD_URLS_MAX * sizeof(port), len, url_len;
	char *at = malloc(cap);
	struct pool_hostport hp;
	int n = 0;

	if (!at)
		return -ENOMEM;
	*ret_buf = at;
	do {
		len = strcspn(urls, ",");
		if (parse_url(urls, len, &url_len, &hp))
			break; /* never: the list is valid */
		ret_url[n++] = at;
		memcpy(at, urls, url_len);
		at += url_len;
		if (!memchr(urls + 6, ':', url_len - 6) || at[-1] == ']') {
			memcpy(at, port, sizeof(port) - 1);
			at += sizeof(port) - 1;
		}
		*at++ = 0;
		urls += len + 1;
	} while (urls[-1]);
	return n;
}

bool etcd_urls_tls(const char *urls)
{
	return scheme_len(urls) == strlen(HTTPS);
}

bool etcd_urls_private(const char *urls)
{
	struct pool_hostport hp;
	size_t len, url_len;

	if (etcd_urls_tls(urls))
		return true;
	do {
		len = strcspn(urls, ",");
		if (parse_url(urls, len, &url_len, &hp) ||
		    !pool_host_is_loopback(hp.host))
			return false;
		urls += len + 1;
	} while (urls[-1]);
	return true;
}

bool etcd_user_valid(const char *user)
{
	const char *c = user;
	json_t *json;

	while (*c && !iscntrl((unsigned char)*c))
		c++;
	if (*c || c == user || c - user > ETCD_USER_MAX)
		return false;
	json = json_string(user); /* NULL if it is not UTF-8 */
	json_decref(json);
	return json;
}

/* ---- files ---- */

/* Truncates a text that is too long, because of a very long path. */
static void explain(char why[ETCD_WHY], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void explain(char why[ETCD_WHY], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, ETCD_WHY, fmt, args);
	va_end(args);
}

static int no_memory(char *why)
{
	explain(why, "out of memory");
	return -ENOMEM;
}

static int explain_open(const char *option, const char *path, int err,
			char *why)
{
	if (err == EACCES)
		explain(why,
			"%s: %s: this process's user, %u, may not read it; "
			"change its owner: chown %u %s",
			option, path, geteuid(), geteuid(), path);
	else
		explain(why, "%s: %s: cannot be opened: %s", option, path,
			strerror(err));
	return -err;
}

static int check_kind(const char *option, const char *path, bool private,
		      const struct stat *st, char *why)
{
	if (!S_ISREG(st->st_mode)) {
		explain(why, "%s: %s: is not a regular file", option, path);
		return -EINVAL;
	}
	if (private && (st->st_mode & (S_IRWXG | S_IRWXO))) {
		explain(why,
			"%s: %s: its mode is %04o; accepted: a file that its "
			"owner alone may read: chmod 600 %s (of a Kubernetes "
			"secret: defaultMode: 0400)",
			option, path, st->st_mode & 07777, path);
		return -EPERM;
	}
	return 0;
}

/* The descriptor, or -errno and why. O_NONBLOCK: it may be a FIFO. */
static int open_file(const char *option, const char *path, bool private,
		     char *why)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	int rc;

	if (fd < 0)
		return explain_open(option, path, errno, why);
	rc = fstat(fd, &st) ? explain_open(option, path, errno, why) :
			      check_kind(option, path, private, &st, why);
	if (rc)
		close(fd);
	return rc ? rc : fd;
}

/* The functions of pool/tls take a directory and a name. */
static void split_path(const char *path, char dir[PATH_MAX],
		       const char **ret_name)
{
	const char *slash = strrchr(path, '/');

	*ret_name = slash ? slash + 1 : path;
	snprintf(dir, PATH_MAX, "%.*s", slash ? (int)(slash - path) : 1,
		 slash ? path : ".");
}

/* The option comes first, as a path of two options may be the same. */
static int of_option(const char *option, const char *text, int rc, char *why)
{
	if (rc)
		explain(why, "%s: %s", option, text);
	return rc;
}

static int read_certs(const char *option, const char *path,
		      STACK_OF(X509) **ret, char *why)
{
	char dir[PATH_MAX], text[POOL_TLS_WHY];
	const char *name;
	int fd = open_file(option, path, false, why);

	if (fd < 0)
		return fd;
	close(fd);
	split_path(path, dir, &name);
	return of_option(option, text,
			 pool_tls_certs_read(dir, name, ret, text), why);
}

static int read_key(const char *path, EVP_PKEY **ret, char *why)
{
	static const char option[] = "--etcd-key";
	char dir[PATH_MAX], text[POOL_TLS_WHY];
	const char *name;
	int fd = open_file(option, path, true, why);

	if (fd < 0)
		return fd;
	close(fd);
	split_path(path, dir, &name);
	return of_option(option, text, pool_tls_key_read(dir, name, ret, text),
			 why);
}

/* ---- TLS ---- */

/* Replaces the CAs of this machine, which curl has set. */
static int set_cas(const struct etcd_access *a, SSL_CTX *ctx, char *why)
{
	X509_STORE *store = X509_STORE_new();
	STACK_OF(X509) *cas = NULL;
	int rc = store ? read_certs("--etcd-ca", a->ca, &cas, why) :
			 no_memory(why);

	for (int i = 0; !rc && i < sk_X509_num(cas); i++)
		if (!X509_STORE_add_cert(store, sk_X509_value(cas, i)))
			rc = no_memory(why);
	sk_X509_pop_free(cas, X509_free);
	if (rc) {
		X509_STORE_free(store);
		return rc;
	}
	X509_STORE_set_flags(store, POOL_TLS_STORE_FLAGS);
	SSL_CTX_set_cert_store(ctx, store);
	return 0;
}

static int64_t expires_at(const X509 *cert)
{
	struct tm tm;

	if (!ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm))
		return 0;
	return timegm(&tm);
}

/* certs: our own, then those of intermediate CAs. */
static int use_certs(const struct etcd_access *a, SSL_CTX *ctx,
		     STACK_OF(X509) *certs, EVP_PKEY *key, char *why)
{
	X509 *cert = sk_X509_value(certs, 0);

	if (X509_check_private_key(cert, key) != 1) {
		explain(why,
			"--etcd-key: %s: is not the key of %s (--etcd-cert); "
			"if they are being replaced just now, this will pass; "
			"otherwise give a certificate and its key",
			a->key, a->cert);
		return -EKEYREJECTED;
	}
	if (SSL_CTX_use_certificate(ctx, cert) != 1 ||
	    SSL_CTX_use_PrivateKey(ctx, key) != 1) {
		explain(why, "--etcd-cert: %s: OpenSSL refuses it: %s", a->cert,
			ERR_reason_error_string(ERR_peek_last_error()));
		return -EKEYREJECTED;
	}
	for (int i = 1; i < sk_X509_num(certs); i++)
		if (SSL_CTX_add1_chain_cert(ctx, sk_X509_value(certs, i)) != 1)
			return no_memory(why);
	return 0;
}

static int set_cert(const struct etcd_access *a, SSL_CTX *ctx,
		    int64_t *ret_expires, char *why)
{
	STACK_OF(X509) *certs = NULL;
	EVP_PKEY *key = NULL;
	int rc = read_certs("--etcd-cert", a->cert, &certs, why);

	if (!rc)
		rc = read_key(a->key, &key, why);
	if (!rc)
		rc = use_certs(a, ctx, certs, key, why);
	if (!rc)
		*ret_expires = expires_at(sk_X509_value(certs, 0));
	sk_X509_pop_free(certs, X509_free);
	EVP_PKEY_free(key);
	return rc;
}

int etcd_access_ctx(const struct etcd_access *a, SSL_CTX *ctx,
		    int64_t *ret_expires, char why[ETCD_WHY])
{
	int64_t expires = 0;
	int rc = 0;

	ERR_clear_error();
	if (a->ca)
		rc = set_cas(a, ctx, why);
	if (!rc && a->cert)
		rc = set_cert(a, ctx, &expires, why);
	ERR_clear_error();
	if (!rc)
		*ret_expires = expires;
	return rc;
}

/* ---- the password ---- */

/* The bytes of the file, at most cap; or -errno and why. */
static ssize_t read_all(int fd, const char *path, char *to, size_t cap,
			char *why)
{
	size_t len = 0;
	ssize_t n = 1;

	while (len < cap && n) {
		n = read(fd, to + len, cap - len);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return explain_open("--etcd-password-file", path,
					    errno, why);
		len += (size_t)n;
	}
	return (ssize_t)len;
}

static size_t without_newline(const char *text, size_t len)
{
	if (len < 1 || text[len - 1] != '\n')
		return len;
	len--;
	return len && text[len - 1] == '\r' ? len - 1 : len;
}

int etcd_password_read(const struct etcd_access *a,
		       char to[ETCD_PASSWORD_MAX + 1], char why[ETCD_WHY])
{
	static const char option[] = "--etcd-password-file";
	char text[ETCD_PASSWORD_MAX + 3]; /* with "\r\n", and one too many */
	int fd = open_file(option, a->password_file, true, why);
	ssize_t n;
	size_t len;

	if (fd < 0)
		return fd;
	n = read_all(fd, a->password_file, text, sizeof(text), why);
	close(fd);
	if (n < 0)
		return (int)n;
	len = without_newline(text, (size_t)n);
	if (!len || len > ETCD_PASSWORD_MAX || memchr(text, 0, len)) {
		explain(why,
			"%s: %s: %s; accepted: a password of 1 to %d bytes "
			"without NUL, with or without a final newline",
			option, a->password_file,
			!len ? "is empty" :
			len > ETCD_PASSWORD_MAX ? "is too long" :
						  "has a NUL in it",
			ETCD_PASSWORD_MAX);
		explicit_bzero(text, sizeof(text));
		return -EINVAL;
	}
	memcpy(to, text, len);
	to[len] = 0;
	explicit_bzero(text, sizeof(text));
	return 0;
}

/* ---- all of it ---- */

static int check_password(const struct etcd_access *a, char *why)
{
	char password[ETCD_PASSWORD_MAX + 1];
	int rc = etcd_password_read(a, password, why);

	explicit_bzero(password, sizeof(password));
	return rc;
}

int etcd_access_check(const struct etcd_access *a, char why[ETCD_WHY])
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	int64_t expires;
	int rc;

	if (!ctx)
		return no_memory(why);
	rc = etcd_access_ctx(a, ctx, &expires, why);
	SSL_CTX_free(ctx);
	if (!rc && a->password_file)
		rc = check_password(a, why);
	return rc;
}
