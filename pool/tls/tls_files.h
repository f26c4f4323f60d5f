/*
 * The three files of a TLS directory (tls.h), read and checked: present, of
 * sane size, PEM; the key readable by its owner alone and that of the
 * certificate; the certificate signed by one of the CAs, one of a pool
 * (tls_id.h), and usable for the links that its role has.
 *
 * Failure modes: each is an error with a text for the user. During a renewal
 * the key and the certificate may not belong together for a moment: whoever
 * has read them before keeps what it has and tries again later.
 *
 * Thread: any; no state. Clears OpenSSL's queue of errors.
 */
#ifndef POOL_TLS_TLS_FILES_H
#define POOL_TLS_TLS_FILES_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "pool/tls/tls.h"

#define POOL_TLS_FILE_MAX (1u << 20) /* bytes of a file */
/* For X509_STORE_set_flags, here and of connections. All in ca.crt are trusted,
 * also an intermediate CA whose root is not there. */
#define POOL_TLS_STORE_FLAGS X509_V_FLAG_PARTIAL_CHAIN

struct pool_tls_files {
	X509 *cert; /* all are owned */
	EVP_PKEY *key;
	STACK_OF(X509) *chain; /* intermediate CAs; may be empty, not NULL */
	STACK_OF(X509) *cas;
	struct pool_tls_id id; /* of cert */
};

/* 0, and *ret is the caller's to fini; or -errno and why: the file, what is
 * wrong with it, and the remedy. Dates are not checked: a daemon with an
 * expired certificate still starts, says so, and is refused by its peers until
 * the files are replaced. */
int pool_tls_files_read(const char *dir, struct pool_tls_files *ret,
			char why[POOL_TLS_WHY]);
void pool_tls_files_fini(struct pool_tls_files *f);
/* Is now within the dates of the certificate and of the CAs that signed it? 0;
 * or -EKEYEXPIRED and why, which says whose dates are not. */
int pool_tls_files_check_dates(const struct pool_tls_files *f,
			       char why[POOL_TLS_WHY]);

/* One of the files, the certificates of which *ret becomes, at least one.
 * 0 or -errno and why. Free it with sk_X509_pop_free. */
int pool_tls_certs_read(const char *dir, const char *name,
			STACK_OF(X509) **ret, char why[POOL_TLS_WHY]);
/* The private key in a file that no other user may read. The same. */
int pool_tls_key_read(const char *dir, const char *name, EVP_PKEY **ret,
		      char why[POOL_TLS_WHY]);

#endif
