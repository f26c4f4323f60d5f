/*
 * The three files of a TLS directory (tls.h), read and checked: they exist, are
 * of sane size and PEM; the key belongs to the certificate, and only its owner
 * may read it; the certificate is signed by one of the CAs, has a pool identity
 * (tls_id.h), and may be used to dial or to be dialled, as its role requires.
 *
 * Failure modes: each is an error with a text for the user. During a renewal,
 * key and certificate may not match for a moment: a process that has read the
 * earlier files keeps these and retries later.
 *
 * Thread: any; no state. Clears OpenSSL's queue of errors.
 */
#ifndef POOL_TLS_TLS_FILES_H
#define POOL_TLS_TLS_FILES_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#include "pool/tls/tls.h"

#define POOL_TLS_FILE_MAX (1u << 20) /* bytes of a file */
/* For X509_STORE_set_flags, here and for connections. Every CA in ca.crt is
 * trusted, even an intermediate one whose root is not there. */
#define POOL_TLS_STORE_FLAGS X509_V_FLAG_PARTIAL_CHAIN

struct pool_tls_files {
	X509 *cert; /* all are owned */
	EVP_PKEY *key;
	STACK_OF(X509) *chain; /* intermediate CAs; may be empty, not NULL */
	STACK_OF(X509) *cas;
	struct pool_tls_id id; /* of cert */
};

/* 0, and the caller must call fini on *ret; or -errno and `why`: the file, what
 * is wrong with it, and the remedy. Dates are not checked: a daemon with an
 * expired certificate still starts and logs that; its peers refuse it until the
 * files are replaced. */
int pool_tls_files_read(const char *dir, struct pool_tls_files *ret,
			char why[POOL_TLS_WHY]);
void pool_tls_files_fini(struct pool_tls_files *f);
/* Are the certificate and the CAs that signed it valid now? 0; or -EKEYEXPIRED
 * and `why`, which names the one that is not. */
int pool_tls_files_check_dates(const struct pool_tls_files *f,
			       char why[POOL_TLS_WHY]);

/* Reads the certificates of one file, at least one. 0, or -errno and `why`. The
 * caller frees *ret with sk_X509_pop_free. */
int pool_tls_certs_read(const char *dir, const char *name,
			STACK_OF(X509) **ret, char why[POOL_TLS_WHY]);
/* Reads the private key in a file that no other user may read. 0, or -errno and
 * `why`. The caller frees *ret with EVP_PKEY_free. */
int pool_tls_key_read(const char *dir, const char *name, EVP_PKEY **ret,
		      char why[POOL_TLS_WHY]);

#endif
