/*
 * A small CA in a directory, for kvpool certs:
 *
 *   ca.crt, ca.key     the CA that signs
 *   ca.next.crt, .key  during a roll-over: the one that will sign
 *   ca.old.crt, .key   after the switch: the one that has signed
 *   issued/SERIAL.crt  a copy of each certificate
 *   renewed/SERIAL.crt a copy of each that was replaced by a later one
 *
 * The cluster is the O of the CA's subject. The ca.crt of each issued directory
 * has the certificates of all these CAs, up to three.
 *
 * A roll-over must not break a connection. So first all peers learn to trust
 * the next CA (begin); then that CA signs (switch); and once no certificate of
 * the old CA is in use any more, the old CA is removed (finish). To complete an
 * interrupted switch, repeat it.
 *
 * Errors: 0 or -EINVAL, whatever the cause, printed to stderr with the remedy.
 *
 * Thread: main. The directory is locked (flock) from open to close.
 */
#ifndef TOOLS_CERTS_H
#define TOOLS_CERTS_H

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <openssl/bio.h>
#include <openssl/x509v3.h>

#include "pool/tls/tls_id.h"

#define CERTS_CA_DAYS 3650
#define CERTS_DAYS 365
#define CERTS_DAYS_MAX 36500
#define CERTS_SOON_DAYS 30 /* an expiry that check warns of */
#define CERTS_SKEW_S 300   /* clocks may differ by this much */
#define CERTS_HOSTS_MAX 32
#define CERTS_CN_MAX 64 /* RFC 5280's ub-common-name */

/* Prints "kvpool: certs: TEXT"; returns -EINVAL. */
int certs_error(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* The same, with the first error of OpenSSL, or errno: for failures that are
 * not due to an option. */
int certs_failed(const char *what);

/* ---- files (certs_files.c) ---- */

struct certs_file {
	char path[PATH_MAX]; /* its final name */
	char temporary[PATH_MAX];
};

/* Writes content to a temporary file beside dir/name, and to disk. Its mode is
 * 0600 until all is written, then mode. It gets the owner of the file that it
 * will replace, if there is one. */
int certs_file_prepare(struct certs_file *f, const char *dir, const char *name,
		       mode_t mode, BIO *content);
int certs_file_publish(struct certs_file *f);

/* What issue and renew write. */
struct certs_set {
	struct certs_file ca, cert, key;
};
/*
 * Replaces the files of a directory; without key and cert (NULL), only the CAs.
 * The new files are all on disk before the first is renamed, so only two calls
 * of rename(2) lie between a key and its certificate. A daemon that reads in
 * between sees a pair that does not match, keeps the one that it has, and reads
 * again. If this program ends in between, the next renew repairs that: it needs
 * only the certificate.
 */
int certs_set_write(const char *dir, BIO *cas, X509 *cert, EVP_PKEY *key);

int certs_path(char *to, const char *dir, const char *name);
bool certs_exists(const char *dir, const char *name);
/* Makes a directory with mode 0700 if it is missing. Its parent must exist. */
int certs_dir_make(const char *dir);

/* ---- the CA (certs_ca.c) ---- */

struct certs_ca {
	const char *dir; /* borrows */
	int lock;	 /* fd of dir */
	X509 *cert;	 /* owns, as all below */
	EVP_PKEY *key;
	X509 *next, *old; /* NULL: none */
	char cluster[POOL_CLUSTER_MAX + 1];
};

int certs_ca_init(const char *dir, const char *cluster, unsigned int days);
int certs_ca_open(const char *dir, struct certs_ca *ret);
void certs_ca_close(struct certs_ca *ca);

/* The certificates of all CAs, in PEM; the caller frees it. NULL: printed. */
BIO *certs_ca_bundle(const struct certs_ca *ca);
/* Has one of them signed cert, and is it of the cluster? origin: where it was
 * read, for the message. */
int certs_ca_check_own(const struct certs_ca *ca, X509 *cert,
		       const char *origin);

/* Records that cert exists. */
int certs_ca_record(const struct certs_ca *ca, X509 *cert);
/* Records that cert was replaced; an unknown one is no error. */
int certs_ca_record_renewed(const struct certs_ca *ca, X509 *cert);
/* Removes the record of a certificate that could not be written. */
void certs_ca_unrecord(const struct certs_ca *ca, X509 *cert);
/* Calls fn for each certificate in issued/ (borrowed). A damaged file is
 * reported and passed over; then -EINVAL. */
int certs_ca_each(const struct certs_ca *ca, void (*fn)(X509 *cert, void *arg),
		  void *arg);

/* The steps of a roll-over. */
int certs_roll_begin(struct certs_ca *ca, unsigned int days);
int certs_roll_switch(struct certs_ca *ca);
/* Refuses while a certificate of the old CA is recorded and valid, unless
 * force. */
int certs_roll_finish(struct certs_ca *ca, bool force);

/* ---- certificates (certs_make.c) ---- */

/* NULL: printed. The caller frees the results. */
EVP_PKEY *certs_make_key(void);
X509 *certs_make_ca(EVP_PKEY *key, const char *cluster, unsigned int days);
/* A certificate for this subject, with alternative names (sans). It expires no
 * later than ca; if that shortens it, a message says so. */
X509 *certs_make_leaf(const struct certs_ca *ca, EVP_PKEY *key,
		      const X509_NAME *subject, X509_EXTENSION *sans,
		      unsigned int days);

/* Who a certificate is for, from the options. */
struct certs_who {
	enum pool_role role;
	const char *name;  /* the CN */
	const char *hosts; /* "NAME[,ADDRESS]..."; NULL: none */
	const char *const *dirs;
	unsigned int ndirs;
	uint32_t uids[POOL_TLS_UIDS_MAX];
	unsigned int nuids;
};
/* The alternative names. NULL: an error, printed, such as a wrong --host. */
X509_EXTENSION *certs_make_sans(const char *cluster,
				const struct certs_who *who);
X509_NAME *certs_make_subject(const char *cluster, const char *cn);
/* Serial number in hex, as `openssl x509 -serial` prints it. The caller frees
 * it with OPENSSL_free; NULL: printed. */
char *certs_serial(const X509 *cert);

/* ---- printing (certs_show.c) ---- */

/* role, cluster, name, hosts, namespaces, expires, ... of a certificate: a new
 * reference. If it is not of a pool: those members that it has. */
json_t *certs_describe(X509 *cert);
/* Whole days until it expires, rounded down; negative: it has. */
int certs_days_left(const X509 *cert);
/* A table of such descriptions, soonest expiry first. */
void certs_print_table(json_t *rows);
/* Prints one description, a line for each member. */
void certs_print_one(const json_t *description);

#endif
