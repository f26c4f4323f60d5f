#include "pool/tls/tls_files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

/* A text that does not fit, for a very long path, is truncated. */
static void explain(char why[POOL_TLS_WHY], const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

static void explain(char why[POOL_TLS_WHY], const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(why, POOL_TLS_WHY, fmt, args);
	va_end(args);
}

static int no_memory(char *why)
{
	explain(why, "out of memory");
	return -ENOMEM;
}

/* ---- bytes ---- */

struct file {
	char path[PATH_MAX];
	char *bytes; /* owns */
	size_t len;
};

static void file_fini(struct file *f)
{
	if (f->bytes)
		OPENSSL_cleanse(f->bytes, f->len); /* it may be a key */
	free(f->bytes);
	f->bytes = NULL;
}

static int explain_open(const struct file *f, int err, char *why)
{
	if (err == ENOENT)
		explain(why,
			"%s: there is no such file; kvpool certs issue --out "
			"DIR writes all files required",
			f->path);
	else if (err == EACCES)
		explain(why,
			"%s: this process's user, %u, may not read it; change "
			"its owner: chown %u %s",
			f->path, geteuid(), geteuid(), f->path);
	else
		explain(why, "%s: cannot be opened: %s", f->path,
			strerror(err));
	return -err;
}

static int check_kind(const struct file *f, const struct stat *st, char *why)
{
	if (!S_ISREG(st->st_mode)) {
		explain(why, "%s: is not a regular file", f->path);
		return -EINVAL;
	}
	if (st->st_size > POOL_TLS_FILE_MAX) {
		explain(why,
			"%s: has %lld bytes; accepted: at most %u",
			f->path, (long long)st->st_size, POOL_TLS_FILE_MAX);
		return -EFBIG;
	}
	return 0;
}

static int check_private(const struct file *f, const struct stat *st, char *why)
{
	if (!(st->st_mode & (S_IRWXG | S_IRWXO)))
		return 0;
	/* A file of root that another user reads by its group: a Kubernetes
	 * secret with an fsGroup. */
	if (st->st_uid == 0 && geteuid() != 0 &&
	    !(st->st_mode & (S_IWGRP | S_IXGRP | S_IRWXO)))
		return 0;
	explain(why,
		"%s: its mode is %04o; accepted: a private key that its owner "
		"alone may read: chmod 600 %s (of a Kubernetes secret: "
		"defaultMode: 0400)",
		f->path, st->st_mode & 07777, f->path);
	return -EPERM;
}

static int read_bytes(struct file *f, int fd, size_t size, char *why)
{
	f->bytes = malloc(size + 1);
	if (!f->bytes)
		return no_memory(why);
	while (f->len < size) {
		ssize_t n = read(fd, f->bytes + f->len, size - f->len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0) {
			int err = errno;

			explain(why, "%s: cannot be read: %s", f->path,
				strerror(err));
			return -err;
		}
		if (!n)
			break;
		f->len += (size_t)n;
	}
	return 0;
}

/* O_NONBLOCK: opening a FIFO must not block. */
static int file_read(struct file *f, const char *dir, const char *name,
		     bool private, char *why)
{
	struct stat st;
	int fd, rc;

	f->bytes = NULL;
	f->len = 0;
	if ((size_t)snprintf(f->path, sizeof(f->path), "%s/%s", dir, name) >=
	    sizeof(f->path)) {
		explain(why, "%.64s...: the path is too long", dir);
		return -ENAMETOOLONG;
	}
	fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return explain_open(f, errno, why);
	rc = fstat(fd, &st) ? explain_open(f, errno, why) : 0;
	if (!rc)
		rc = check_kind(f, &st, why);
	if (!rc && private)
		rc = check_private(f, &st, why);
	if (!rc)
		rc = read_bytes(f, fd, (size_t)st.st_size, why);
	close(fd);
	if (rc)
		file_fini(f);
	return rc;
}

/* ---- certificates ---- */

/* Did reading stop because no further certificate begins? If not, one is
 * damaged. */
static bool at_end(void)
{
	unsigned long err = ERR_peek_last_error();

	return ERR_GET_LIB(err) == ERR_LIB_PEM &&
	       ERR_GET_REASON(err) == PEM_R_NO_START_LINE;
}

static int push(STACK_OF(X509) *certs, X509 *cert, char *why)
{
	if (sk_X509_push(certs, cert) > 0)
		return 0;
	X509_free(cert);
	return no_memory(why);
}

static int parse_certs(const struct file *f, BIO *bio, STACK_OF(X509) *certs,
		       char *why)
{
	X509 *cert;

	ERR_clear_error();
	while ((cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)))
		if (push(certs, cert, why))
			return -ENOMEM;
	if (!at_end()) {
		explain(why,
			"%s: its certificate number %d is damaged; accepted: "
			"certificates in PEM",
			f->path, sk_X509_num(certs) + 1);
		return -EINVAL;
	}
	if (!sk_X509_num(certs)) {
		explain(why,
			"%s: there is no certificate in it; accepted: "
			"certificates in PEM (-----BEGIN CERTIFICATE-----)",
			f->path);
		return -EINVAL;
	}
	return 0;
}

int pool_tls_certs_read(const char *dir, const char *name,
			STACK_OF(X509) **ret, char why[POOL_TLS_WHY])
{
	STACK_OF(X509) *certs;
	struct file f;
	BIO *bio;
	int rc = file_read(&f, dir, name, false, why);

	if (rc)
		return rc;
	certs = sk_X509_new_null();
	bio = BIO_new_mem_buf(f.bytes, (int)f.len);
	rc = certs && bio ? parse_certs(&f, bio, certs, why) : no_memory(why);
	BIO_free(bio);
	file_fini(&f);
	ERR_clear_error();
	if (rc)
		sk_X509_pop_free(certs, X509_free);
	else
		*ret = certs;
	return rc;
}

/* ---- the key ---- */

/* Without this, OpenSSL would ask for the passphrase on the terminal. */
static int no_passphrase(char *buf, int size, int writing, void *asked)
{
	(void)buf, (void)size, (void)writing;
	*(bool *)asked = true;
	return -1;
}

static int explain_key(const struct file *f, bool encrypted, char *why)
{
	if (encrypted)
		explain(why,
			"%s: is encrypted; accepted: a private key without a "
			"passphrase: openssl pkey -in FILE -out NEW",
			f->path);
	else
		explain(why,
			"%s: there is no private key in it; accepted: one in "
			"PEM (-----BEGIN PRIVATE KEY-----)",
			f->path);
	return -EINVAL;
}

int pool_tls_key_read(const char *dir, const char *name, EVP_PKEY **ret,
		      char why[POOL_TLS_WHY])
{
	bool asked = false;
	EVP_PKEY *key = NULL;
	struct file f;
	BIO *bio;
	int rc = file_read(&f, dir, name, true, why);

	if (rc)
		return rc;
	bio = BIO_new_mem_buf(f.bytes, (int)f.len);
	if (bio)
		key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &asked);
	if (key)
		*ret = key;
	else
		rc = bio ? explain_key(&f, asked, why) : no_memory(why);
	BIO_free(bio);
	file_fini(&f);
	ERR_clear_error();
	return rc;
}

/* ---- whether they belong together ---- */

static int check_cas(const char *dir, const struct pool_tls_files *f, char *why)
{
	for (int i = 0; i < sk_X509_num(f->cas); i++) {
		if (X509_check_ca(sk_X509_value(f->cas, i)) == 1)
			continue;
		explain(why,
			"%s/" POOL_TLS_CA ": its certificate number %d is not "
			"that of a CA (basicConstraints CA:TRUE)",
			dir, i + 1);
		return -EINVAL;
	}
	return 0;
}

static int check_pair(const char *dir, const struct pool_tls_files *f,
		      char *why)
{
	if (X509_check_private_key(f->cert, f->key) == 1)
		return 0;
	explain(why,
		"%s: " POOL_TLS_KEY " is not the key of " POOL_TLS_CERT
		"; if they are being replaced, try again; else kvpool certs "
		"renew",
		dir);
	return -EKEYREJECTED;
}

/* Returns X509_V_OK or an X509_V_ERR_*. *ret_at (ret_at may be NULL): a new
 * reference to the certificate that it concerns. */
static int verify(const struct pool_tls_files *f, unsigned long flags,
		  X509 **ret_at)
{
	X509_STORE *store = X509_STORE_new();
	X509_STORE_CTX *ctx = X509_STORE_CTX_new();
	int err = X509_V_ERR_OUT_OF_MEM;

	if (!store || !ctx)
		goto out;
	for (int i = 0; i < sk_X509_num(f->cas); i++)
		if (!X509_STORE_add_cert(store, sk_X509_value(f->cas, i)))
			goto out;
	X509_STORE_set_flags(store, POOL_TLS_STORE_FLAGS | flags);
	if (!X509_STORE_CTX_init(ctx, store, f->cert, f->chain))
		goto out;
	(void)X509_verify_cert(ctx);
	err = X509_STORE_CTX_get_error(ctx);
	if (ret_at && X509_STORE_CTX_get_current_cert(ctx)) {
		*ret_at = X509_STORE_CTX_get_current_cert(ctx);
		X509_up_ref(*ret_at);
	}
out:
	X509_STORE_CTX_free(ctx);
	X509_STORE_free(store);
	return err;
}

static int check_chain(const char *dir, const struct pool_tls_files *f,
		       char *why)
{
	int err = verify(f, X509_V_FLAG_NO_CHECK_TIME, NULL);

	if (err == X509_V_OK)
		return 0;
	if (err == X509_V_ERR_OUT_OF_MEM)
		return no_memory(why);
	explain(why,
		"%s: " POOL_TLS_CERT " is not signed by a CA of " POOL_TLS_CA
		" (%s); all files must be of one CA, and " POOL_TLS_CERT
		" must contain the certificates of intermediate CAs",
		dir, X509_verify_cert_error_string(err));
	return -EKEYREJECTED;
}

static int read_id(const char *dir, struct pool_tls_files *f, char *why)
{
	const char *text;
	int rc = pool_tls_id_read(f->cert, &f->id, &text);

	if (rc == -ENOMEM)
		return no_memory(why);
	if (rc)
		explain(why,
			"%s/" POOL_TLS_CERT ": the certificate %s; kvpool "
			"certs issue makes one that is accepted",
			dir, text);
	return rc;
}

/* All roles dial; only masters and nodes are dialled. */
static int check_usage(const char *dir, const struct pool_tls_files *f,
		       char *why)
{
	bool is_dialled = f->id.role == POOL_ROLE_MASTER ||
			  f->id.role == POOL_ROLE_NODE;

	if (X509_check_purpose(f->cert, X509_PURPOSE_SSL_CLIENT, 0) == 1 &&
	    (!is_dialled ||
	     X509_check_purpose(f->cert, X509_PURPOSE_SSL_SERVER, 0) == 1))
		return 0;
	explain(why,
		"%s/" POOL_TLS_CERT ": the certificate is not for TLS %s; "
		"accepted: key usage digitalSignature, and if there is an "
		"extended key usage, clientAuth%s",
		dir, is_dialled ? "clients and servers" : "clients",
		is_dialled ? " and serverAuth" : "");
	return -EKEYREJECTED;
}

static int check(const char *dir, struct pool_tls_files *f, char *why)
{
	int rc = check_cas(dir, f, why);

	if (!rc)
		rc = check_pair(dir, f, why);
	if (!rc)
		rc = check_chain(dir, f, why);
	if (!rc)
		rc = read_id(dir, f, why);
	if (!rc)
		rc = check_usage(dir, f, why);
	ERR_clear_error();
	return rc;
}

/* Files that do not match may be a mix from before and after a renewal, because
 * a file was replaced while they were read. */
#define TRIES 3

static int read_once(const char *dir, struct pool_tls_files *ret, char *why)
{
	struct pool_tls_files f = { .cert = NULL };
	int rc = pool_tls_certs_read(dir, POOL_TLS_CA, &f.cas, why);

	if (!rc)
		rc = pool_tls_certs_read(dir, POOL_TLS_CERT, &f.chain, why);
	if (!rc)
		f.cert = sk_X509_shift(f.chain);
	if (!rc)
		rc = pool_tls_key_read(dir, POOL_TLS_KEY, &f.key, why);
	if (!rc)
		rc = check(dir, &f, why);
	if (rc)
		pool_tls_files_fini(&f);
	else
		*ret = f;
	return rc;
}

int pool_tls_files_read(const char *dir, struct pool_tls_files *ret,
			char why[POOL_TLS_WHY])
{
	int rc = -EKEYREJECTED;

	for (int i = 0; rc == -EKEYREJECTED && i < TRIES; i++)
		rc = read_once(dir, ret, why);
	return rc;
}

static void explain_dates(const struct pool_tls_files *f, int err, X509 *at,
			  char *why)
{
	bool early = err == X509_V_ERR_CERT_NOT_YET_VALID;
	char when[32] = "?";
	struct tm tm;

	if (ASN1_TIME_to_tm(early ? X509_get0_notBefore(at) :
				    X509_get0_notAfter(at), &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M UTC", &tm);
	explain(why,
		"the %s %s %s; %s",
		X509_cmp(at, f->cert) ? "CA that signed the certificate" :
					"certificate",
		early ? "is valid from" : "has expired on", when,
		early ? "see whether the clock is right" :
		X509_cmp(at, f->cert) ? "make another (kvpool certs roll)" :
					"renew it (kvpool certs renew)");
}

int pool_tls_files_check_dates(const struct pool_tls_files *f,
			       char why[POOL_TLS_WHY])
{
	X509 *at = NULL;
	int err = verify(f, 0, &at);

	if (err == X509_V_ERR_CERT_HAS_EXPIRED ||
	    err == X509_V_ERR_CERT_NOT_YET_VALID)
		explain_dates(f, err, at, why);
	else if (err != X509_V_OK)
		explain(why, "the certificate: %s",
			X509_verify_cert_error_string(err));
	X509_free(at);
	ERR_clear_error();
	return err == X509_V_OK ? 0 : -EKEYEXPIRED;
}

void pool_tls_files_fini(struct pool_tls_files *f)
{
	X509_free(f->cert);
	EVP_PKEY_free(f->key);
	sk_X509_pop_free(f->chain, X509_free);
	sk_X509_pop_free(f->cas, X509_free);
	pool_tls_id_fini(&f->id);
	*f = (struct pool_tls_files){ .cert = NULL };
}
