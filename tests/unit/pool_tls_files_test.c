#include "tests/unit/tls_make.h"

#include <grp.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <openssl/err.h>
#include <openssl/pem.h>

#include "pool/tls/tls_files.h"

static char *dir;
static EVP_PKEY *ca_key, *key;
static X509 *ca, *cert;
static struct tls_san sans[] = { TLS_URI("kvpool://c/node/a"),
				 TLS_DNS("gpu1") };

/* ---- writing files ---- */

static const char *path_of(const char *name)
{
	static char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	return path;
}

static FILE *begin(const char *name, mode_t mode)
{
	FILE *f;

	(void)unlink(path_of(name));
	f = fopen(path_of(name), "w");
	assert_non_null(f);
	assert_int_equal(0, fchmod(fileno(f), mode));
	return f;
}

static void write_text(const char *name, mode_t mode, const char *text)
{
	FILE *f = begin(name, mode);

	fputs(text, f);
	assert_int_equal(0, fclose(f));
}

static void write_certs(const char *name, X509 *first, X509 *second)
{
	FILE *f = begin(name, 0644);

	fputs("Some text that people have put before it.\n", f);
	assert_int_equal(1, PEM_write_X509(f, first));
	if (second)
		assert_int_equal(1, PEM_write_X509(f, second));
	assert_int_equal(0, fclose(f));
}

static void write_key(EVP_PKEY *k, mode_t mode)
{
	FILE *f = begin("tls.key", mode);

	assert_int_equal(1, PEM_write_PrivateKey(f, k, NULL, NULL, 0, NULL,
						 NULL));
	assert_int_equal(0, fclose(f));
}

static int setup(void **state)
{
	(void)state;
	dir = unit_dir_make("/tmp/pool_tls_files_test");
	ca_key = tls_make_key();
	key = tls_make_key();
	ca = tls_make_cert(ca_key, "CA", NULL, 0, NULL, NULL);
	cert = tls_make_cert(key, "gpu1", sans, 2, ca, ca_key);
	write_certs("ca.crt", ca, NULL);
	write_certs("tls.crt", cert, NULL);
	write_key(key, 0600);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	X509_free(ca);
	X509_free(cert);
	EVP_PKEY_free(ca_key);
	EVP_PKEY_free(key);
	unit_dir_remove(dir);
	return 0;
}

/* ---- reading them ---- */

static void are_good(int nchain, int ncas)
{
	struct pool_tls_files f;
	char why[POOL_TLS_WHY] = "";

	if (pool_tls_files_read(dir, &f, why))
		fail_msg("refused: %s", why);
	assert_int_equal(nchain, sk_X509_num(f.chain));
	assert_int_equal(ncas, sk_X509_num(f.cas));
	assert_int_equal(1, X509_check_private_key(f.cert, f.key));
	assert_string_equal("gpu1", f.id.name);
	pool_tls_files_fini(&f);
	pool_tls_files_fini(&f);
	assert_int_equal(0, ERR_peek_error());
}

/* part, another: expected in the error text. */
static void refused(int err, const char *part, const char *another)
{
	struct pool_tls_files f = { .cert = (X509 *)&f };
	char why[POOL_TLS_WHY] = "";
	int rc = pool_tls_files_read(dir, &f, why);

	if (rc != err || !strstr(why, part) || !strstr(why, another))
		fail_msg("%d: \"%s\" and \"%s\" are not both in \"%s\"", rc,
			 part, another, why);
	assert_non_null(strstr(why, dir));
	assert_ptr_equal(&f, f.cert);
	assert_int_equal(0, ERR_peek_error());
}

static void files_that_belong_together_are_read(void **state)
{
	(void)state;
	are_good(0, 1);
	write_key(key, 0400);
	are_good(0, 1);
}

static void files_may_be_symbolic_links(void **state)
{
	char real[256];

	(void)state;
	strcpy(real, path_of("real"));
	assert_int_equal(0, rename(path_of("tls.key"), real));
	assert_int_equal(0, symlink("real", path_of("tls.key")));
	are_good(0, 1);
	assert_int_equal(0, unlink(real));
	refused(-ENOENT, "tls.key", "no such file");
}

static void a_missing_file_is_named(void **state)
{
	static const char *const names[] = { "tls.key", "tls.crt", "ca.crt" };

	(void)state;
	for (int i = 0; i < 3; i++) {
		assert_int_equal(0, unlink(path_of(names[i])));
		refused(-ENOENT, names[i], "kvpool certs issue");
	}
}

static void a_key_that_others_may_read_is_refused(void **state)
{
	static const mode_t wide[] = { 0640, 0604, 0620, 0601, 0644, 0660 };

	(void)state;
	for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
		char mode[16];

		snprintf(mode, sizeof(mode), "mode is %04o", wide[i]);
		write_key(key, wide[i]);
		refused(-EPERM, mode, "chmod 600 /tmp/");
	}
}

/* A Kubernetes secret with an fsGroup, read by a daemon that is not root. */
static void a_key_of_root_may_be_for_a_group(void **state)
{
	gid_t group = 65534;

	(void)state;
	if (getuid() != 0) {
		print_message("SKIPPED: needs root\n");
		skip();
	}
	assert_int_equal(0, chmod(dir, 0711));
	write_key(key, 0440);
	refused(-EPERM, "mode is 0440", "chmod 600 /tmp/");
	assert_int_equal(0, chown(path_of("tls.key"), 0, group));
	assert_int_equal(0, setgroups(1, &group));
	assert_int_equal(0, seteuid(65534));
	are_good(0, 1);
	assert_int_equal(0, seteuid(0));
	write_key(key, 0460);
	assert_int_equal(0, chown(path_of("tls.key"), 0, group));
	assert_int_equal(0, seteuid(65534));
	refused(-EPERM, "mode is 0460", "chmod 600 /tmp/");
	assert_int_equal(0, seteuid(0));
	assert_int_equal(0, setgroups(0, NULL));
}

static void what_is_no_regular_file_is_refused(void **state)
{
	(void)state;
	assert_int_equal(0, unlink(path_of("tls.crt")));
	assert_int_equal(0, mkfifo(path_of("tls.crt"), 0600));
	refused(-EINVAL, "tls.crt", "not a regular file");
	assert_int_equal(0, unlink(path_of("tls.crt")));
	assert_int_equal(0, mkdir(path_of("tls.crt"), 0700));
	refused(-EINVAL, "tls.crt", "not a regular file");
}

static void sizes_are_bounded(void **state)
{
	(void)state;
	assert_int_equal(0, truncate(path_of("ca.crt"), POOL_TLS_FILE_MAX + 1));
	refused(-EFBIG, "ca.crt", "1048577 bytes");
	write_text("ca.crt", 0644, "");
	refused(-EINVAL, "ca.crt", "no certificate in it");
}

static void what_is_not_pem_is_refused(void **state)
{
	static const char broken[] = "-----BEGIN CERTIFICATE-----\nMIIB\n"
				     "-----END CERTIFICATE-----\n";

	(void)state;
	write_text("tls.crt", 0644, "\x30\x82 DER");
	refused(-EINVAL, "tls.crt", "no certificate in it");
	write_text("tls.crt", 0644, broken);
	refused(-EINVAL, "tls.crt", "number 1 is damaged");
	write_certs("tls.crt", cert, NULL);
	write_text("tls.key", 0600, "x");
	refused(-EINVAL, "tls.key", "no private key in it");
	write_text("tls.key", 0600, "");
	refused(-EINVAL, "tls.key", "no private key in it");
}

static void damage_behind_a_good_certificate_is_seen(void **state)
{
	FILE *f;

	(void)state;
	f = fopen(path_of("ca.crt"), "a");
	assert_non_null(f);
	fputs("-----BEGIN CERTIFICATE-----\nMIIB\n", f);
	fclose(f);
	refused(-EINVAL, "ca.crt", "number 2 is damaged");
}

static void an_encrypted_key_is_refused_and_nobody_is_asked(void **state)
{
	FILE *f = begin("tls.key", 0600);

	(void)state;
	assert_int_equal(1, PEM_write_PKCS8PrivateKey(f, key,
						      EVP_aes_256_cbc(), "pw",
						      2, NULL, NULL));
	fclose(f);
	refused(-EINVAL, "tls.key", "is encrypted");
}

static void the_key_of_another_certificate_is_refused(void **state)
{
	(void)state;
	write_key(ca_key, 0600);
	refused(-EKEYREJECTED, "tls.key is not the key of tls.crt", "");
}

static void a_certificate_of_another_ca_is_refused(void **state)
{
	EVP_PKEY *other_key = tls_make_key();
	X509 *other = tls_make_cert(other_key, "CA 2", NULL, 0, NULL, NULL);

	(void)state;
	write_certs("ca.crt", other, NULL);
	refused(-EKEYREJECTED, "not signed by a CA of ca.crt", "");
	write_certs("ca.crt", other, ca);
	are_good(0, 2);
	X509_free(other);
	EVP_PKEY_free(other_key);
}

static void an_intermediate_ca_is_read_from_the_certificate_file(void **state)
{
	EVP_PKEY *mid_key = tls_make_key();
	X509 *self = tls_make_cert(mid_key, "mid", NULL, 0, NULL, NULL), *mid;
	X509 *leaf = tls_make_cert(key, "gpu1", sans, 2, self, mid_key);

	(void)state;
	mid = X509_dup(self);
	X509_set_issuer_name(mid, X509_get_subject_name(ca));
	tls_sign(mid, ca_key);
	write_certs("tls.crt", leaf, NULL);
	refused(-EKEYREJECTED, "not signed by a CA of ca.crt", "");
	write_certs("tls.crt", leaf, mid);
	are_good(1, 1);
	/* An intermediate CA may be trusted without its root. */
	write_certs("ca.crt", mid, NULL);
	write_certs("tls.crt", leaf, NULL);
	are_good(0, 1);
	X509_free(self);
	X509_free(mid);
	X509_free(leaf);
	EVP_PKEY_free(mid_key);
}

static void a_trusted_certificate_must_be_of_a_ca(void **state)
{
	(void)state;
	write_certs("ca.crt", ca, cert);
	refused(-EINVAL, "ca.crt", "number 2 is not that of a CA");
}

static void a_certificate_of_no_pool_is_refused(void **state)
{
	X509 *leaf = tls_make_cert(key, "gpu1", sans + 1, 1, ca, ca_key);

	(void)state;
	write_certs("tls.crt", leaf, NULL);
	refused(-EINVAL, "tls.crt: the certificate has no URI", "");
	X509_free(leaf);
}

static X509 *with_usage(const struct tls_san *who, int nid)
{
	X509 *leaf = tls_make_cert(key, "gpu1", who, 1, ca, ca_key);
	EXTENDED_KEY_USAGE *eku = sk_ASN1_OBJECT_new_null();

	sk_ASN1_OBJECT_push(eku, OBJ_nid2obj(nid));
	assert_int_equal(1, X509_add1_ext_i2d(leaf, NID_ext_key_usage, eku, 0,
					      X509V3_ADD_APPEND));
	sk_ASN1_OBJECT_pop_free(eku, ASN1_OBJECT_free);
	tls_sign(leaf, ca_key);
	write_certs("tls.crt", leaf, NULL);
	return leaf;
}

static void its_usage_must_be_that_of_its_role(void **state)
{
	struct tls_san client = TLS_URI("kvpool://c/client");

	(void)state;
	X509_free(with_usage(sans, NID_server_auth));
	refused(-EKEYREJECTED, "clients and servers", "serverAuth");
	X509_free(with_usage(sans, NID_client_auth));
	refused(-EKEYREJECTED, "clients and servers", "serverAuth");
	X509_free(with_usage(&client, NID_client_auth));
	are_good(0, 1);
	X509_free(with_usage(&client, NID_server_auth));
	refused(-EKEYREJECTED, "TLS clients;", "clientAuth");
}

static void an_expired_certificate_is_read(void **state)
{
	(void)state;
	tls_set_dates(cert, -9, -8);
	tls_sign(cert, ca_key);
	write_certs("tls.crt", cert, NULL);
	are_good(0, 1);
}

static void dates_are(const char *part)
{
	struct pool_tls_files f;
	char why[POOL_TLS_WHY] = "";
	int rc;

	write_certs("ca.crt", ca, NULL);
	write_certs("tls.crt", cert, NULL);
	assert_int_equal(0, pool_tls_files_read(dir, &f, why));
	rc = pool_tls_files_check_dates(&f, why);
	if (rc != (part ? -EKEYEXPIRED : 0) || (part && !strstr(why, part)))
		fail_msg("%d: \"%s\" is not in \"%s\"", rc, part, why);
	pool_tls_files_fini(&f);
}

static void dates_are_checked_apart(void **state)
{
	(void)state;
	dates_are(NULL);
	tls_set_dates(cert, -9, -8);
	tls_sign(cert, ca_key);
	dates_are("the certificate has expired on 20");
	tls_set_dates(cert, 8, 9);
	tls_sign(cert, ca_key);
	dates_are("the certificate is valid from 20");
	tls_set_dates(cert, -1, 1);
	tls_sign(cert, ca_key);
	tls_set_dates(ca, -9, -8);
	tls_sign(ca, ca_key);
	dates_are("the CA that signed the certificate has expired");
}

static void a_path_that_is_too_long_is_refused(void **state)
{
	struct pool_tls_files f;
	char why[POOL_TLS_WHY], *long_dir = malloc(5001);

	(void)state;
	memset(long_dir, 'a', 5000);
	long_dir[5000] = '\0';
	assert_int_equal(-ENAMETOOLONG, pool_tls_files_read(long_dir, &f, why));
	assert_non_null(strstr(why, "too long"));
	free(long_dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(files_that_belong_together_are_read),
		T(files_may_be_symbolic_links),
		T(a_missing_file_is_named),
		T(a_key_that_others_may_read_is_refused),
		T(a_key_of_root_may_be_for_a_group),
		T(what_is_no_regular_file_is_refused),
		T(sizes_are_bounded),
		T(what_is_not_pem_is_refused),
		T(damage_behind_a_good_certificate_is_seen),
		T(an_encrypted_key_is_refused_and_nobody_is_asked),
		T(the_key_of_another_certificate_is_refused),
		T(a_certificate_of_another_ca_is_refused),
		T(an_intermediate_ca_is_read_from_the_certificate_file),
		T(a_trusted_certificate_must_be_of_a_ca),
		T(a_certificate_of_no_pool_is_refused),
		T(its_usage_must_be_that_of_its_role),
		T(an_expired_certificate_is_read),
		T(dates_are_checked_apart),
		T(a_path_that_is_too_long_is_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
