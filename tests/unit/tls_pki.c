#include "tests/unit/tls_pki.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "tests/lib/unit.h"

#define DAY 86400L

static void add(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509V3_CTX ctx;
	X509_EXTENSION *ext;

	X509V3_set_ctx_nodb(&ctx);
	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	assert_non_null(ext);
	assert_int_equal(1, X509_add_ext(cert, ext, -1));
	X509_EXTENSION_free(ext);
}

static X509 *cert_new(EVP_PKEY *key, const char *cn, long from_s, long to_s)
{
	static long serial;
	X509 *cert = X509_new();
	X509_NAME *name;

	assert_non_null(cert);
	X509_set_version(cert, 2);
	ASN1_INTEGER_set(X509_get_serialNumber(cert),
			 getpid() * 1000L + ++serial);
	X509_gmtime_adj(X509_getm_notBefore(cert), from_s);
	X509_gmtime_adj(X509_getm_notAfter(cert), to_s);
	X509_set_pubkey(cert, key);
	name = X509_get_subject_name(cert);
	X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
				   (const unsigned char *)cn, -1, -1, 0);
	return cert;
}

void pki_ca_make(struct pki_ca *ca)
{
	static unsigned int n;
	char cn[32];

	snprintf(cn, sizeof(cn), "CA %u of a test", ++n);
	ca->key = EVP_EC_gen("P-256");
	assert_non_null(ca->key);
	ca->cert = cert_new(ca->key, cn, -DAY, DAY);
	X509_set_issuer_name(ca->cert, X509_get_subject_name(ca->cert));
	add(ca->cert, ca->cert, NID_basic_constraints, "critical,CA:TRUE");
	add(ca->cert, ca->cert, NID_key_usage, "critical,keyCertSign");
	assert_true(X509_sign(ca->cert, ca->key, EVP_sha256()) > 0);
}

void pki_ca_free(struct pki_ca *ca)
{
	EVP_PKEY_free(ca->key);
	X509_free(ca->cert);
}

static void push(GENERAL_NAMES *names, int type, const char *text)
{
	GENERAL_NAME *name = a2i_GENERAL_NAME(NULL, NULL, NULL, type, text, 0);

	assert_true(name && sk_GENERAL_NAME_push(names, name) > 0);
}

static void add_names(X509 *cert, const struct pki_want *w)
{
	GENERAL_NAMES *names = GENERAL_NAMES_new();

	for (int i = 0; i < 4 && w->uri[i]; i++)
		push(names, GEN_URI, w->uri[i]);
	for (int i = 0; i < 4 && w->host[i]; i++)
		push(names, w->host[i][0] >= '0' && w->host[i][0] <= '9' ?
				    GEN_IPADD : GEN_DNS, w->host[i]);
	if (sk_GENERAL_NAME_num(names) > 0)
		assert_int_equal(1, X509_add1_ext_i2d(cert,
						      NID_subject_alt_name,
						      names, 0, 0));
	GENERAL_NAMES_free(names);
}

static FILE *create(const char *dir, const char *name)
{
	char path[256];
	FILE *f;

	/* A new inode and mtime, as a renewal makes them. */
	snprintf(path, sizeof(path), "%s/%s", dir, name);
	unlink(path);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(0, chmod(path, 0600));
	return f;
}

void pki_dir_write(const char *dir, const struct pki_ca *ca,
		   const struct pki_ca *trusted, const struct pki_ca *also,
		   const struct pki_want *w)
{
	bool dated = w->from_s || w->to_s;
	EVP_PKEY *key = EVP_EC_gen("P-256");
	X509 *cert = cert_new(key, "a test", dated ? w->from_s : -DAY,
			      dated ? w->to_s : DAY);
	X509 *issuer = ca ? ca->cert : cert;
	FILE *f;

	X509_set_issuer_name(cert, X509_get_subject_name(issuer));
	add(cert, issuer, NID_basic_constraints, "critical,CA:FALSE");
	add(cert, issuer, NID_ext_key_usage, "serverAuth,clientAuth");
	add_names(cert, w);
	assert_true(X509_sign(cert, ca ? ca->key : key, EVP_sha256()) > 0);
	f = create(dir, "ca.crt");
	assert_int_equal(1, PEM_write_X509(f, trusted->cert));
	if (also)
		assert_int_equal(1, PEM_write_X509(f, also->cert));
	fclose(f);
	f = create(dir, "tls.crt");
	assert_int_equal(1, PEM_write_X509(f, cert));
	fclose(f);
	f = create(dir, "tls.key");
	assert_int_equal(1, PEM_write_PrivateKey(f, key, NULL, NULL, 0, NULL,
						 NULL));
	fclose(f);
	X509_free(cert);
	EVP_PKEY_free(key);
}

char *pki_dir_make(const struct pki_ca *ca, const struct pki_ca *trusted,
		   const struct pki_ca *also, const struct pki_want *want)
{
	char *dir = strdup("/tmp/kvtest-tls.XXXXXX");

	assert_non_null(mkdtemp(dir));
	pki_dir_write(dir, ca, trusted, also, want);
	return dir;
}

char *pki_dir(const struct pki_ca *ca, const char *role)
{
	struct pki_want want = { .host = { "127.0.0.1", "localhost" } };
	char uri[64];

	snprintf(uri, sizeof(uri), "kvpool://test/%s", role);
	want.uri[0] = uri;
	return pki_dir_make(ca, ca, NULL, &want);
}

void pki_dir_free(char *dir)
{
	static const char *const names[] = { "ca.crt", "tls.crt", "tls.key" };
	char path[256];

	for (int i = 0; i < 3; i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	free(dir);
}
