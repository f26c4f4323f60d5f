/*
 * The three files of a TLS directory (tls.h), read and checked: present, of
 * sane size, PEM; the key readable by its owner alone and that of the
 * certificate; the certificate signed by one of the CAs.
 *
 * Thread: any; no state.
 */
#ifndef POOL_TLS_TLS_FILES_H
#define POOL_TLS_TLS_FILES_H

#include <openssl/evp.h>
#include <openssl/x509.h>

#define POOL_TLS_FILE_MAX (1u << 20) /* bytes of a file */

struct pool_tls_files {
	X509 *cert; /* all four are owned */
	EVP_PKEY *key;
	STACK_OF(X509) *chain; /* intermediate CAs; may be empty, not NULL */
	STACK_OF(X509) *cas;
};

/* 0, and *ret is the caller's to fini; or -errno and why (POOL_TLS_WHY bytes of
 * tls.h): the file, what is wrong with it, and the command that mends it. An
 * expired certificate is accepted here: a daemon with one still starts, says
 * so, and is refused by its peers until the files are replaced. */
int pool_tls_files_read(const char *dir, struct pool_tls_files *ret, char *why);
void pool_tls_files_fini(struct pool_tls_files *f);

#endif
