#include "tools/certs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "pool/tls/tls_files.h"

#define CA_CERT "ca.crt"
#define CA_KEY "ca.key"
#define NEXT_CERT "ca.next.crt"
#define NEXT_KEY "ca.next.key"
#define OLD_CERT "ca.old.crt"
#define OLD_KEY "ca.old.key"
#define ISSUED "issued"
#define RENEWED "renewed"
#define RECORD_MAX 80 /* "issued/SERIAL.crt" */

/* ---- making ---- */

static int write_pem(const char *dir, const char *name, X509 *cert,
		     EVP_PKEY *key)
{
	BIO *pem = BIO_new(BIO_s_mem());
	struct certs_file f;
	int rc = 0;

	if (!pem || (cert && !PEM_write_bio_X509(pem, cert)) ||
	    (key && !PEM_write_bio_PrivateKey(pem, key, NULL, NULL, 0, NULL,
					      NULL)))
		rc = certs_failed(name);
	if (!rc)
		rc = certs_file_prepare(&f, dir, name, key ? 0600 : 0644, pem);
	if (!rc)
		rc = certs_file_publish(&f);
	BIO_free(pem);
	return rc;
}

/* The certificate last: with it the CA exists. */
static int make_ca(const char *dir, const char *cluster, unsigned int days,
		   const char *cert_name, const char *key_name)
{
	EVP_PKEY *key = certs_make_key();
	X509 *cert = key ? certs_make_ca(key, cluster, days) : NULL;
	int rc = cert ? 0 : -EINVAL;

	if (!rc)
		rc = write_pem(dir, key_name, NULL, key);
	if (!rc)
		rc = write_pem(dir, cert_name, cert, NULL);
	X509_free(cert);
	EVP_PKEY_free(key);
	return rc;
}

static bool is_empty(const char *dir)
{
	DIR *d = opendir(dir);
	const struct dirent *e = NULL;

	while (d && (e = readdir(d)))
		if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			break;
	if (d)
		closedir(d);
	return d && !e;
}

int certs_ca_init(const char *dir, const char *cluster, unsigned int days)
{
	int rc = certs_dir_make(dir);

	if (rc)
		return rc;
	if (certs_exists(dir, CA_KEY))
		return certs_error(
			"%s: there is a CA in it, and without its key no "
			"certificate could be renewed; choose another "
			"directory, or replace it: kvpool certs roll", dir);
	if (!is_empty(dir))
		return certs_error("%s: is not an empty directory; accepted: "
				   "one that is, or that does not exist", dir);
	if (chmod(dir, 0700))
		return certs_error("%s: its mode cannot be set: %s", dir,
				   strerror(errno));
	return make_ca(dir, cluster, days, CA_CERT, CA_KEY);
}

/* ---- the steps of a roll-over ---- */

static int move(const char *dir, const char *from, const char *to)
{
	char old[PATH_MAX], new[PATH_MAX];

	if (certs_path(old, dir, from) || certs_path(new, dir, to))
		return -EINVAL;
	if (rename(old, new))
		return certs_error("%s: cannot become %s: %s", old, to,
				   strerror(errno));
	return 0;
}

/* Can be interrupted after any of its steps and repeated. */
static int switch_files(const char *dir)
{
	int rc = 0;

	if (!certs_exists(dir, OLD_CERT))
		rc = move(dir, CA_CERT, OLD_CERT);
	if (!rc && !certs_exists(dir, OLD_KEY))
		rc = move(dir, CA_KEY, OLD_KEY);
	if (!rc && certs_exists(dir, NEXT_KEY))
		rc = move(dir, NEXT_KEY, CA_KEY);
	if (!rc)
		rc = move(dir, NEXT_CERT, CA_CERT);
	return rc;
}

int certs_roll_begin(struct certs_ca *ca, unsigned int days)
{
	if (ca->next)
		return certs_error("%s: a roll-over has begun already; its "
				   "next step is kvpool certs roll --switch",
				   ca->dir);
	if (ca->old)
		return certs_error("%s: the roll-over before this one is not "
				   "finished; kvpool certs roll --finish does "
				   "that", ca->dir);
	return make_ca(ca->dir, ca->cluster, days, NEXT_CERT, NEXT_KEY);
}

int certs_roll_switch(struct certs_ca *ca)
{
	if (!ca->next && !ca->old)
		return certs_error("%s: no roll-over has begun; kvpool certs "
				   "roll begins one", ca->dir);
	return ca->next ? switch_files(ca->dir) : 0;
}

struct in_use {
	const X509 *old;
	unsigned int n;
};

static void report_in_use(X509 *cert)
{
	char *serial = certs_serial(cert);
	struct pool_tls_id id;
	const char *why;

	if (serial && !pool_tls_id_read(cert, &id, &why)) {
		(void)certs_error("%s %s: its certificate " ISSUED "/%s.crt is "
				  "of the old CA", pool_role_name(id.role),
				  id.name, serial);
		pool_tls_id_fini(&id);
	}
	OPENSSL_free(serial);
}

static void count_in_use(X509 *cert, void *arg)
{
	struct in_use *u = arg;

	if (X509_NAME_cmp(X509_get_issuer_name(cert),
			  X509_get_subject_name(u->old)) != 0 ||
	    X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
		return;
	u->n++;
	report_in_use(cert);
}

int certs_roll_finish(struct certs_ca *ca, bool force)
{
	struct in_use u = { .old = ca->old };
	int rc;

	if (!ca->old)
		return certs_error("%s: there is no old CA; %s", ca->dir,
				   ca->next ? "kvpool certs roll --switch "
					      "comes first" :
					      "no roll-over has begun");
	rc = force ? 0 : certs_ca_each(ca, count_in_use, &u);
	if (rc)
		return rc;
	if (u.n)
		return certs_error("%u certificate%s would no longer be "
				   "accepted; renew (kvpool certs renew) what "
				   "is in use, and remove the files of what is "
				   "not; or accept that: --force", u.n,
				   u.n == 1 ? "" : "s");
	/* The certificate last, so that an interrupted call can be repeated. */
	if ((unlinkat(ca->lock, OLD_KEY, 0) && errno != ENOENT) ||
	    unlinkat(ca->lock, OLD_CERT, 0))
		return certs_error("%s: the old CA cannot be removed: %s",
				   ca->dir, strerror(errno));
	return 0;
}

/* ---- opening ---- */

static int lock(struct certs_ca *ca)
{
	ca->lock = open(ca->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (ca->lock < 0)
		return certs_error("--dir: %s: %s; kvpool certs init makes a "
				   "CA", ca->dir, strerror(errno));
	if (flock(ca->lock, LOCK_EX))
		return certs_error("%s: cannot be locked: %s", ca->dir,
				   strerror(errno));
	return 0;
}

static int read_cert(const struct certs_ca *ca, const char *name, X509 **ret)
{
	STACK_OF(X509) *certs;
	char why[POOL_TLS_WHY];

	if (pool_tls_certs_read(ca->dir, name, &certs, why))
		return certs_error("%s", why);
	*ret = sk_X509_shift(certs);
	sk_X509_pop_free(certs, X509_free);
	if (X509_check_ca(*ret) == 1)
		return 0;
	return certs_error("%s/%s: is not the certificate of a CA "
			   "(basicConstraints CA:TRUE)", ca->dir, name);
}

static int read_cluster(struct certs_ca *ca)
{
	int len = X509_NAME_get_text_by_NID(X509_get_subject_name(ca->cert),
					    NID_organizationName, ca->cluster,
					    sizeof(ca->cluster));

	if (len > 0 && pool_cluster_is_valid(ca->cluster))
		return 0;
	return certs_error("%s/" CA_CERT ": the O of its subject is not the "
			   "name of a cluster; accepted: 1 to %d of a-z A-Z "
			   "0-9 . _ -", ca->dir, POOL_CLUSTER_MAX);
}

static int read_signer(struct certs_ca *ca)
{
	char why[POOL_TLS_WHY];
	int rc;

	if (!certs_exists(ca->dir, CA_CERT) || !certs_exists(ca->dir, CA_KEY))
		return certs_error("--dir: %s has no " CA_CERT " with its "
				   CA_KEY "; kvpool certs init makes a CA in a "
				   "new directory", ca->dir);
	rc = read_cert(ca, CA_CERT, &ca->cert);
	if (!rc)
		rc = read_cluster(ca);
	if (rc)
		return rc;
	if (pool_tls_key_read(ca->dir, CA_KEY, &ca->key, why))
		return certs_error("%s", why);
	if (X509_check_private_key(ca->cert, ca->key) != 1)
		return certs_error("%s: " CA_KEY " is not the key of " CA_CERT,
				   ca->dir);
	return 0;
}

static int read_ca(struct certs_ca *ca)
{
	int rc = 0;

	if (certs_exists(ca->dir, NEXT_CERT) && certs_exists(ca->dir, OLD_CERT))
		rc = switch_files(ca->dir); /* it was interrupted */
	if (!rc)
		rc = read_signer(ca);
	if (!rc && certs_exists(ca->dir, NEXT_CERT))
		rc = read_cert(ca, NEXT_CERT, &ca->next);
	if (!rc && certs_exists(ca->dir, OLD_CERT))
		rc = read_cert(ca, OLD_CERT, &ca->old);
	return rc;
}

int certs_ca_open(const char *dir, struct certs_ca *ret)
{
	struct certs_ca ca = { .dir = dir };
	int rc = lock(&ca);

	if (!rc)
		rc = read_ca(&ca);
	if (rc)
		certs_ca_close(&ca);
	else
		*ret = ca;
	return rc;
}

void certs_ca_close(struct certs_ca *ca)
{
	X509_free(ca->cert);
	X509_free(ca->next);
	X509_free(ca->old);
	EVP_PKEY_free(ca->key);
	if (ca->lock >= 0)
		close(ca->lock);
}

/* ---- using it ---- */

BIO *certs_ca_bundle(const struct certs_ca *ca)
{
	BIO *pem = BIO_new(BIO_s_mem());

	if (pem && PEM_write_bio_X509(pem, ca->cert) &&
	    (!ca->next || PEM_write_bio_X509(pem, ca->next)) &&
	    (!ca->old || PEM_write_bio_X509(pem, ca->old)))
		return pem;
	BIO_free(pem);
	(void)certs_failed(CA_CERT);
	return NULL;
}

static bool has_signed(X509 *ca, X509 *cert)
{
	bool yes = ca && X509_check_issued(ca, cert) == X509_V_OK &&
		   X509_verify(cert, X509_get0_pubkey(ca)) == 1;

	ERR_clear_error();
	return yes;
}

int certs_ca_check_own(const struct certs_ca *ca, X509 *cert,
		       const char *origin)
{
	struct pool_tls_id id;
	const char *why = "cannot be read: no memory";
	bool same;

	if (!has_signed(ca->cert, cert) && !has_signed(ca->next, cert) &&
	    !has_signed(ca->old, cert))
		return certs_error("%s: is not signed by the CA in %s; it can "
				   "be renewed by its own CA only", origin,
				   ca->dir);
	if (pool_tls_id_read(cert, &id, &why))
		return certs_error("%s: the certificate %s", origin, why);
	same = strcmp(id.cluster, ca->cluster) == 0;
	pool_tls_id_fini(&id);
	if (same)
		return 0;
	return certs_error("%s: is not of the cluster %s", origin, ca->cluster);
}

/* ---- records ---- */

/* "issued/SERIAL.crt" */
static int record_name(const X509 *cert, const char *where, char *to)
{
	char *serial = certs_serial(cert);
	int n;

	if (!serial)
		return -EINVAL;
	n = snprintf(to, RECORD_MAX, "%s/%s.crt", where, serial);
	OPENSSL_free(serial);
	return n < RECORD_MAX ? 0 : certs_error("a serial number is too long");
}

int certs_ca_record(const struct certs_ca *ca, X509 *cert)
{
	char name[RECORD_MAX], dir[PATH_MAX];
	int rc = certs_path(dir, ca->dir, ISSUED);

	if (!rc)
		rc = certs_dir_make(dir);
	if (!rc)
		rc = record_name(cert, ISSUED, name);
	if (!rc)
		rc = write_pem(dir, strrchr(name, '/') + 1, cert, NULL);
	return rc;
}

int certs_ca_record_renewed(const struct certs_ca *ca, X509 *cert)
{
	char from[RECORD_MAX], to[RECORD_MAX], dir[PATH_MAX];

	if (record_name(cert, ISSUED, from) || record_name(cert, RENEWED, to) ||
	    certs_path(dir, ca->dir, RENEWED) || certs_dir_make(dir))
		return -EINVAL;
	if (!certs_exists(ca->dir, from))
		return 0;
	return move(ca->dir, from, to);
}

void certs_ca_unrecord(const struct certs_ca *ca, X509 *cert)
{
	char name[RECORD_MAX];

	if (!record_name(cert, ISSUED, name))
		(void)unlinkat(ca->lock, name, 0);
}

static int pass_record(const char *dir, const char *name,
		       void (*fn)(X509 *cert, void *arg), void *arg)
{
	STACK_OF(X509) *certs;
	char why[POOL_TLS_WHY];

	if (pool_tls_certs_read(dir, name, &certs, why))
		return certs_error("%s", why);
	fn(sk_X509_value(certs, 0), arg);
	sk_X509_pop_free(certs, X509_free);
	return 0;
}

static bool is_record(const char *name)
{
	const char *end = strrchr(name, '.');

	/* Temporary files begin with a dot. */
	return name[0] != '.' && end && strcmp(end, ".crt") == 0;
}

int certs_ca_each(const struct certs_ca *ca, void (*fn)(X509 *cert, void *arg),
		  void *arg)
{
	const struct dirent *e;
	char dir[PATH_MAX];
	int rc = certs_path(dir, ca->dir, ISSUED);
	DIR *d = rc ? NULL : opendir(dir);

	if (!d && !rc && errno != ENOENT) /* ENOENT: none was issued */
		rc = certs_error("%s: %s", dir, strerror(errno));
	while (d && (e = readdir(d)))
		if (is_record(e->d_name) && pass_record(dir, e->d_name, fn,
							arg))
			rc = -EINVAL;
	if (d)
		closedir(d);
	return rc;
}
