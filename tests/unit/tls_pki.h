/* Certificates for tests, made with OpenSSL's functions: they may be wrong in
 * any way. Each failure is an assertion. */
#ifndef TESTS_UNIT_TLS_PKI_H
#define TESTS_UNIT_TLS_PKI_H

#include <openssl/evp.h>
#include <openssl/x509.h>

struct pki_ca {
	EVP_PKEY *key;
	X509 *cert;
};

/* Contents of a certificate; NULL: left out. */
struct pki_want {
	const char *uri[4];  /* "kvpool://test/node" */
	const char *host[4]; /* "localhost", "127.0.0.1" */
	long from_s, to_s; /* its dates, from now; both 0: a day around now */
};

void pki_ca_make(struct pki_ca *ca);
void pki_ca_free(struct pki_ca *ca);
/* A temporary directory with ca.crt (of trusted; and of also, if not NULL),
 * tls.crt (signed by ca; NULL: by itself) and tls.key. */
char *pki_dir_make(const struct pki_ca *ca, const struct pki_ca *trusted,
		   const struct pki_ca *also, const struct pki_want *want);
/* Writes them into an existing directory. */
void pki_dir_write(const char *dir, const struct pki_ca *ca,
		   const struct pki_ca *trusted, const struct pki_ca *also,
		   const struct pki_want *want);
/* A valid one: kvpool://test/ROLE, for 127.0.0.1 and localhost. */
char *pki_dir(const struct pki_ca *ca, const char *role);
/* Removes the directory and frees the string. */
void pki_dir_free(char *dir);

#endif
