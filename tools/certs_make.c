#include "tools/certs.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include <openssl/ec.h>
#include <openssl/evp.h>

#include "pool/base/parse.h"

#define HOST_ACCEPTED                                                     \
	"names and addresses as others dial them, with commas between: "  \
	"gpu1,gpu1.example.org,10.0.0.2,fd00::2; no ports, brackets or "  \
	"wildcards"
#define DNS_MAX 253 /* RFC 1035 */
#define LABEL_MAX 63
#define SERIAL_BITS 128

EVP_PKEY *certs_make_key(void)
{
	EVP_PKEY *key = EVP_EC_gen("P-256");

	if (!key)
		(void)certs_failed("the key cannot be made");
	return key;
}

char *certs_serial(const X509 *cert)
{
	BIGNUM *n = ASN1_INTEGER_to_BN(X509_get0_serialNumber(cert), NULL);
	char *text = n ? BN_bn2hex(n) : NULL;

	BN_free(n);
	if (!text)
		(void)certs_failed("a serial number cannot be printed");
	return text;
}

/* ---- parts of a certificate ---- */

static bool set_serial(X509 *cert)
{
	BIGNUM *n = BN_new();
	bool ok = n && BN_rand(n, SERIAL_BITS, BN_RAND_TOP_ANY,
			       BN_RAND_BOTTOM_ANY) &&
		  BN_to_ASN1_INTEGER(n, X509_get_serialNumber(cert));

	BN_free(n);
	return ok;
}

static bool set_dates(X509 *cert, unsigned int days)
{
	return X509_time_adj_ex(X509_getm_notBefore(cert), 0, -CERTS_SKEW_S,
				NULL) &&
	       X509_time_adj_ex(X509_getm_notAfter(cert), (int)days, 0, NULL);
}

static bool add_ext(X509 *cert, X509 *issuer, int nid, const char *value)
{
	X509_EXTENSION *ext;
	X509V3_CTX ctx;
	bool ok;

	X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
	ext = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
	ok = ext && X509_add_ext(cert, ext, -1);
	X509_EXTENSION_free(ext);
	return ok;
}

static bool add_text(X509_NAME *name, int nid, const char *text)
{
	return X509_NAME_add_entry_by_NID(name, nid, MBSTRING_UTF8,
					  (const unsigned char *)text, -1, -1,
					  0);
}

X509_NAME *certs_make_subject(const char *cluster, const char *cn)
{
	X509_NAME *name = X509_NAME_new();

	if (name && add_text(name, NID_organizationName, cluster) &&
	    add_text(name, NID_commonName, cn))
		return name;
	X509_NAME_free(name);
	(void)certs_failed("the subject cannot be made");
	return NULL;
}

/* Version, serial number, dates, subject and key. */
static X509 *begin(EVP_PKEY *key, const X509_NAME *subject, unsigned int days)
{
	X509 *cert = X509_new();

	if (cert && X509_set_version(cert, X509_VERSION_3) &&
	    set_serial(cert) && set_dates(cert, days) &&
	    X509_set_subject_name(cert, subject) && X509_set_pubkey(cert, key))
		return cert;
	X509_free(cert);
	return NULL;
}

static X509 *end(X509 *cert, bool ok, EVP_PKEY *key)
{
	if (ok && X509_sign(cert, key, EVP_sha256()))
		return cert;
	X509_free(cert);
	(void)certs_failed("the certificate cannot be made");
	return NULL;
}

/* ---- CAs ---- */

/* Two CAs of a cluster have different names, so that a peer which trusts both
 * tries the right one. */
static X509_NAME *ca_subject(const char *cluster)
{
	BIGNUM *n = BN_new();
	char cn[32], *hex = NULL;

	if (n && BN_rand(n, 32, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY))
		hex = BN_bn2hex(n);
	snprintf(cn, sizeof(cn), "kvpool CA %.8s", hex ? hex : "");
	OPENSSL_free(hex);
	BN_free(n);
	return certs_make_subject(cluster, cn);
}

X509 *certs_make_ca(EVP_PKEY *key, const char *cluster, unsigned int days)
{
	X509_NAME *subject = ca_subject(cluster);
	X509 *cert = subject ? begin(key, subject, days) : NULL;
	bool ok = cert && X509_set_issuer_name(cert, subject) &&
		  add_ext(cert, cert, NID_basic_constraints,
			  "critical,CA:TRUE,pathlen:0") &&
		  add_ext(cert, cert, NID_key_usage,
			  "critical,keyCertSign,cRLSign") &&
		  add_ext(cert, cert, NID_subject_key_identifier, "hash") &&
		  add_ext(cert, cert, NID_authority_key_identifier,
			  "keyid:always");

	X509_NAME_free(subject);
	return end(cert, ok, key);
}

/* ---- others ---- */

static bool bound_dates(X509 *cert, const X509 *ca)
{
	const ASN1_TIME *last = X509_get0_notAfter(ca);

	if (ASN1_TIME_compare(X509_get0_notAfter(cert), last) <= 0)
		return true;
	fprintf(stderr, "kvpool: certs: the certificate expires with its CA, "
			"in %d days; kvpool certs roll makes another CA\n",
		certs_days_left(ca));
	return X509_set1_notAfter(cert, last);
}

X509 *certs_make_leaf(const struct certs_ca *ca, EVP_PKEY *key,
		      const X509_NAME *subject, X509_EXTENSION *sans,
		      unsigned int days)
{
	X509 *cert;
	bool ok;

	if (X509_cmp_current_time(X509_get0_notAfter(ca->cert)) < 0) {
		(void)certs_error("the CA in %s has expired; make another: "
				  "kvpool certs roll", ca->dir);
		return NULL;
	}
	cert = begin(key, subject, days);
	ok = cert && bound_dates(cert, ca->cert) &&
	     X509_set_issuer_name(cert, X509_get_subject_name(ca->cert)) &&
	     add_ext(cert, ca->cert, NID_basic_constraints,
			  "critical,CA:FALSE") &&
	     add_ext(cert, ca->cert, NID_key_usage,
			  "critical,digitalSignature") &&
	     add_ext(cert, ca->cert, NID_ext_key_usage,
			  "serverAuth,clientAuth") &&
	     add_ext(cert, ca->cert, NID_subject_key_identifier,
			  "hash") &&
	     add_ext(cert, ca->cert, NID_authority_key_identifier,
			  "keyid:always") &&
	     X509_add_ext(cert, sans, -1);

	return end(cert, ok, ca->key);
}

/* ---- alternative names ---- */

static bool label_is_valid(const char *text, size_t len)
{
	if (len < 1 || len > LABEL_MAX || text[0] == '-' ||
	    text[len - 1] == '-')
		return false;
	for (size_t i = 0; i < len; i++)
		if (!strchr("abcdefghijklmnopqrstuvwxyz"
			    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_",
			    text[i]))
			return false;
	return true;
}

/* A last label of digits alone would be an address with a typo. */
static bool name_is_valid(const char *host)
{
	size_t len;

	if (strlen(host) > DNS_MAX)
		return false;
	for (;; host += len + 1) {
		len = strcspn(host, ".");
		if (!label_is_valid(host, len))
			return false;
		if (!host[len])
			return host[strspn(host, "0123456789")] != '\0';
	}
}

static bool push(GENERAL_NAMES *sans, int type, int string_type,
		 const void *bytes, int len)
{
	GENERAL_NAME *san = GENERAL_NAME_new();
	ASN1_STRING *s = ASN1_STRING_type_new(string_type);

	if (san && s && ASN1_STRING_set(s, bytes, len)) {
		GENERAL_NAME_set0_value(san, type, s);
		if (sk_GENERAL_NAME_push(sans, san) > 0)
			return true;
		s = NULL; /* san's */
	}
	ASN1_STRING_free(s);
	GENERAL_NAME_free(san);
	return !certs_failed("alternative names");
}

static bool push_text(GENERAL_NAMES *sans, int type, const char *text)
{
	return push(sans, type, V_ASN1_IA5STRING, text, (int)strlen(text));
}

static bool push_host(GENERAL_NAMES *sans, const char *host)
{
	unsigned char address[16];

	if (inet_pton(AF_INET, host, address) == 1)
		return push(sans, GEN_IPADD, V_ASN1_OCTET_STRING, address, 4);
	if (inet_pton(AF_INET6, host, address) == 1)
		return push(sans, GEN_IPADD, V_ASN1_OCTET_STRING, address, 16);
	if (name_is_valid(host))
		return push_text(sans, GEN_DNS, host);
	return !certs_error("--host: \"%s\" given; accepted: " HOST_ACCEPTED,
			    host);
}

static bool push_hosts(GENERAL_NAMES *sans, const char *list)
{
	char host[DNS_MAX + 2];
	unsigned int n = 0;
	size_t len;

	for (;; list += len + 1) {
		len = strcspn(list, ",");
		/* A name that is cut here is too long, and refused, anyway. */
		snprintf(host, sizeof(host), "%.*s", (int)len, list);
		if (n++ == CERTS_HOSTS_MAX)
			return !certs_error("--host: more than %d given",
					    CERTS_HOSTS_MAX);
		if (!push_host(sans, host))
			return false;
		if (!list[len])
			return true;
	}
}

static bool push_uri(GENERAL_NAMES *sans, const char *cluster,
		     const struct certs_who *who, const char *dir)
{
	char uri[POOL_TLS_URI_MAX + 1];

	if (!pool_tls_uri(cluster, who->role, dir, uri, sizeof(uri)) &&
	    !pool_tls_uri_uids(uri, sizeof(uri), who->uids, who->nuids))
		return push_text(sans, GEN_URI, uri);
	return !certs_error(
		"--namespace: \"%s\" given; accepted: a directory below the "
		"pool's root, such as models/llama, of at most %d bytes and "
		"without empty components, \".\" and \"..\"",
		dir ? dir : "", POOL_TLS_DIR_MAX);
}

static bool push_all(GENERAL_NAMES *sans, const char *cluster,
		     const struct certs_who *who)
{
	if (who->hosts && !push_hosts(sans, who->hosts))
		return false;
	if (!who->ndirs)
		return push_uri(sans, cluster, who, NULL);
	for (unsigned int i = 0; i < who->ndirs; i++)
		if (!push_uri(sans, cluster, who, who->dirs[i]))
			return false;
	return true;
}

X509_EXTENSION *certs_make_sans(const char *cluster,
				const struct certs_who *who)
{
	GENERAL_NAMES *sans = GENERAL_NAMES_new();
	X509_EXTENSION *ext = NULL;

	if (!sans) {
		(void)certs_failed("alternative names");
	} else if (push_all(sans, cluster, who)) {
		ext = X509V3_EXT_i2d(NID_subject_alt_name, 0, sans);
		if (!ext)
			(void)certs_failed("alternative names");
	}
	GENERAL_NAMES_free(sans);
	return ext;
}
