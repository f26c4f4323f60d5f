/*
 * Certificates made in memory, for tests of pool/tls, including some that no CA
 * should sign.
 *
 *   struct tls_san sans[] = { TLS_URI("kvpool://c/node"), TLS_DNS("gpu1") };
 *   X509 *cert = tls_make_cert(key, "CN", sans, 2, NULL, NULL);
 *
 * Thread: the test's own.
 */
#ifndef TESTS_TLS_MAKE_H
#define TESTS_TLS_MAKE_H

#include "tests/lib/unit.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/x509v3.h>

struct tls_san {
	int type; /* GEN_URI, GEN_DNS, GEN_IPADD */
	const char *bytes;
	int len;
};
#define TLS_SAN(type, text) { (type), (text), (int)sizeof(text) - 1 }
#define TLS_URI(text) TLS_SAN(GEN_URI, text)
#define TLS_DNS(text) TLS_SAN(GEN_DNS, text)
#define TLS_IP(bytes) TLS_SAN(GEN_IPADD, bytes)

static inline EVP_PKEY *tls_make_key(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");

	assert_non_null(key);
	return key;
}

static inline GENERAL_NAME *tls_make_san(const struct tls_san *san)
{
	GENERAL_NAME *name = GENERAL_NAME_new();
	ASN1_STRING *s = ASN1_STRING_type_new(san->type == GEN_IPADD ?
						      V_ASN1_OCTET_STRING :
						      V_ASN1_IA5STRING);

	assert_non_null(name);
	assert_true(s && ASN1_STRING_set(s, san->bytes, san->len));
	GENERAL_NAME_set0_value(name, san->type, s);
	return name;
}

static inline void tls_add_sans(X509 *cert, const struct tls_san *sans,
				size_t n)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();

	for (size_t i = 0; i < n; i++)
		assert_true(
			sk_GENERAL_NAME_push(names, tls_make_san(&sans[i])));
	assert_int_equal(1, X509_add1_ext_i2d(cert, NID_subject_alt_name, names,
					      0, X509V3_ADD_APPEND));
	GENERAL_NAMES_free(names);
}

/* now + days; in the past if negative. */
static inline void tls_set_dates(X509 *cert, int from_days, int to_days)
{
	assert_non_null(X509_time_adj_ex(X509_getm_notBefore(cert), from_days,
					 0, NULL));
	assert_non_null(X509_time_adj_ex(X509_getm_notAfter(cert), to_days, 0,
					 NULL));
}

static inline void tls_sign(X509 *cert, EVP_PKEY *key)
{
	assert_true(X509_sign(cert, key, EVP_sha256()) > 0);
}

/* A certificate of key for a day from yesterday on, signed by ca (NULL: by
 * itself, as a CA). cn: NULL: none. */
static inline X509 *tls_make_cert(EVP_PKEY *key, const char *cn,
				  const struct tls_san *sans, size_t nsans,
				  X509 *ca, EVP_PKEY *ca_key)
{
	X509 *cert = X509_new();
	X509_NAME *subject = X509_get_subject_name(cert);
	BASIC_CONSTRAINTS bc = { .ca = ca ? 0 : 0xff };

	assert_int_equal(1, X509_set_version(cert, X509_VERSION_3));
	ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
	tls_set_dates(cert, -1, 1);
	if (cn)
		assert_int_equal(1, X509_NAME_add_entry_by_NID(
					    subject, NID_commonName,
					    MBSTRING_UTF8,
					    (const unsigned char *)cn, -1, -1,
					    0));
	X509_set_issuer_name(cert, ca ? X509_get_subject_name(ca) : subject);
	X509_set_pubkey(cert, key);
	assert_int_equal(1, X509_add1_ext_i2d(cert, NID_basic_constraints, &bc,
					      1, X509V3_ADD_APPEND));
	if (nsans)
		tls_add_sans(cert, sans, nsans);
	tls_sign(cert, ca ? ca_key : key);
	return cert;
}

#endif
