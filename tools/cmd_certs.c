/*
 * kvpool certs: a small CA for pools that have none. It also shows and checks
 * the certificates in a directory, those of other CAs, too.
 */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "pool/tls/tls_files.h"
#include "tools/certs.h"
#include "tools/cmd.h"

#define DIR_ACCEPTED "the directory of the CA"
#define OUT_ACCEPTED "the directory for ca.crt, tls.crt and tls.key"
#define UID_ACCEPTED "1 to 16 numbers of users, with commas between: 1000,1001"
#define CN_ACCEPTED "1 to 64 printable ASCII characters"

/* The values of all subcommands' options. */
struct certs {
	const char *dir, *cluster, *role, *host, *uid, *name, *out, *tls_dir;
	struct daemon_strings namespaces;
	uint64_t days;
	bool json, ca_only, next, finish, force;
};

/* no_env: KVPOOL_NAME, for example, is an option of kvpoold. */
#define OPT_DIR(c)                                                       \
	{ .name = "dir", .type = OPT_STRING, .value = &(c)->dir,         \
	  .arg = "CA", .help = "The directory of the CA.", .no_env = true }
#define OPT_OUT(c, text)                                                 \
	{ .name = "out", .type = OPT_STRING, .value = &(c)->out,         \
	  .arg = "DIR", .help = text, .no_env = true }
#define OPT_DAYS(c, text)                                                \
	{ .name = "days", .type = OPT_COUNT, .value = &(c)->days,        \
	  .arg = "N", .min = 1, .max = CERTS_DAYS_MAX, .no_env = true,   \
	  .help = "Days until it expires; default: " text "." }

/* 0; -1: exit with *ret_status. */
static int parse(struct daemon_option *opts, int argc, char **argv,
		 const char *usage, int *ret_status)
{
	char **ops;
	int nops, rc = daemon_options_parse(opts, argc, argv, usage, &nops,
					    &ops, stdout, stderr);

	*ret_status = rc > 0 ? 0 : 2;
	if (rc)
		return -1;
	if (!nops)
		return 0;
	(void)certs_error("%s: \"%s\" given; accepted: options only, see "
			  "kvpool certs %s --help", argv[0], ops[0], argv[0]);
	return -1;
}

/* Is the option given? */
static bool wants(struct daemon_option *opts, const char *name,
		  const char *accepted)
{
	struct daemon_option *o = daemon_option_find(opts, name);

	return o->seen || !daemon_option_reject(o, accepted, stderr);
}

static bool rejects(struct daemon_option *opts, const char *name,
		    const char *accepted)
{
	(void)daemon_option_reject(daemon_option_find(opts, name), accepted,
				   stderr);
	return false;
}

/* --out must not be the CA's directory, where ca.crt is something else. */
static int check_out(const struct certs *c)
{
	struct stat ca, out;

	if (stat(c->dir, &ca) || stat(c->out, &out))
		return 0;
	if (!S_ISDIR(out.st_mode))
		return certs_error("--out: %s is not a directory", c->out);
	if (ca.st_dev != out.st_dev || ca.st_ino != out.st_ino)
		return 0;
	return certs_error("--out: \"%s\" given; accepted: another directory "
			   "than that of the CA", c->out);
}

static void print_made(const char *what, X509 *cert, const char *dir)
{
	json_t *d = certs_describe(cert);

	printf("%s: %s, %s of %s, until %s (%d days); its files are in %s\n",
	       what, json_string_value(json_object_get(d, "name")),
	       json_string_value(json_object_get(d, "role")),
	       json_string_value(json_object_get(d, "cluster")),
	       json_string_value(json_object_get(d, "expires")),
	       certs_days_left(cert), dir);
	json_decref(d);
}

/* Signs, records and writes a certificate with a new key. earlier: the
 * certificate that it replaces; NULL: none. */
static int make(const struct certs_ca *ca, const struct certs *c,
		const X509_NAME *subject, X509_EXTENSION *sans, X509 *earlier)
{
	BIO *cas = certs_ca_bundle(ca);
	EVP_PKEY *key = cas ? certs_make_key() : NULL;
	X509 *cert = key ? certs_make_leaf(ca, key, subject, sans,
					   (unsigned int)c->days) :
			   NULL;
	int rc = cert ? certs_ca_record(ca, cert) : -EINVAL;

	if (!rc) {
		rc = certs_set_write(c->out, cas, cert, key);
		if (rc)
			certs_ca_unrecord(ca, cert);
	}
	if (!rc && earlier)
		rc = certs_ca_record_renewed(ca, earlier);
	if (!rc)
		print_made(earlier ? "renewed" : "issued", cert, c->out);
	X509_free(cert);
	EVP_PKEY_free(key);
	BIO_free(cas);
	return rc;
}

/* ---- init ---- */

static const char init_usage[] =
	"usage: kvpool certs init --dir CA --cluster NAME [--days N]\n"
	"\n"
	"Makes a CA in a new directory: its key (ca.key) and certificate "
	"(ca.crt).\n"
	"Keep that directory where no daemon runs, and a copy of it.";

static int run_init(int argc, char **argv)
{
	struct certs c = { .days = CERTS_CA_DAYS };
	struct daemon_option opts[] = {
		OPT_DIR(&c),
		{ .name = "cluster", .type = OPT_STRING, .value = &c.cluster,
		  .arg = "NAME", .no_env = true,
		  .help = "The pool's name; certificates of another one are\n"
			  "not accepted in it." },
		OPT_DAYS(&c, "3650"),
		{ .name = NULL },
	};
	int status;

	if (parse(opts, argc, argv, init_usage, &status))
		return status;
	if (!wants(opts, "dir", DIR_ACCEPTED) ||
	    !wants(opts, "cluster", "the name of the pool"))
		return 2;
	if (!pool_cluster_is_valid(c.cluster)) {
		rejects(opts, "cluster",
			"1 to 63 of the characters a-z A-Z 0-9 . _ -");
		return 2;
	}
	if (certs_ca_init(c.dir, c.cluster, (unsigned int)c.days))
		return 1;
	printf("made: the CA of %s in %s; kvpool certs issue makes "
	       "certificates\n", c.cluster, c.dir);
	return 0;
}

/* ---- issue ---- */

static const char issue_usage[] =
	"usage: kvpool certs issue --dir CA --role ROLE --host NAME[,ADDRESS]"
	"...\n"
	"           [--namespace DIR]... [--uid N[,N]...] [--name CN] "
	"[--days N]\n"
	"           --out DIR\n"
	"\n"
	"Makes a key and a certificate for a daemon, a client or an operator, "
	"and\n"
	"writes DIR/ca.crt, DIR/tls.crt and DIR/tls.key, for its --tls-dir. "
	"ROLE:\n"
	"master, node (kvpoold), client (libkvpool) or admin (kvpool).";

static bool cn_is_valid(const char *cn)
{
	size_t len = strlen(cn);

	if (len < 1 || len > CERTS_CN_MAX)
		return false;
	for (; *cn; cn++)
		if (*cn < ' ' || *cn > '~')
			return false;
	return true;
}

/* Reports a wrong --host or --namespace before the CA is opened; any cluster
 * will do. */
static bool sans_are_valid(const struct certs *c, struct certs_who *who)
{
	X509_EXTENSION *sans;

	who->hosts = c->host;
	who->dirs = c->namespaces.at;
	who->ndirs = c->namespaces.n;
	sans = certs_make_sans("any", who);
	X509_EXTENSION_free(sans);
	return sans != NULL;
}

static bool issue_is_valid(struct daemon_option *opts, const struct certs *c,
			   struct certs_who *who)
{
	bool is_dialled;

	if (!wants(opts, "dir", DIR_ACCEPTED) ||
	    !wants(opts, "role", POOL_ROLES_ACCEPTED) ||
	    !wants(opts, "out", OUT_ACCEPTED))
		return false;
	if (!pool_role_parse(c->role, &who->role))
		return rejects(opts, "role", POOL_ROLES_ACCEPTED);
	is_dialled = who->role == POOL_ROLE_MASTER ||
		     who->role == POOL_ROLE_NODE;
	if (is_dialled &&
	    !wants(opts, "host", "the names and addresses by which others "
				 "dial a master or node, with commas between"))
		return false;
	if (c->namespaces.n && who->role != POOL_ROLE_CLIENT &&
	    who->role != POOL_ROLE_NODE)
		return rejects(opts, "namespace",
			       "only with --role client or node: a master and "
			       "an admin are not limited");
	if (c->uid && who->role != POOL_ROLE_CLIENT &&
	    who->role != POOL_ROLE_NODE)
		return rejects(opts, "uid",
			       "only with --role client or node: a master and "
			       "an admin are not limited");
	if (c->uid && !pool_tls_uids_parse(c->uid, who->uids, &who->nuids))
		return rejects(opts, "uid", UID_ACCEPTED);
	if (c->name && !cn_is_valid(c->name))
		return rejects(opts, "name", CN_ACCEPTED);
	return sans_are_valid(c, who);
}

/* The default of --name: the first host, or the role. */
static void default_cn(const struct certs *c, char cn[CERTS_CN_MAX + 1])
{
	if (c->name)
		snprintf(cn, CERTS_CN_MAX + 1, "%s", c->name);
	else if (c->host)
		snprintf(cn, CERTS_CN_MAX + 1, "%.*s",
			 (int)strcspn(c->host, ","), c->host);
	else
		snprintf(cn, CERTS_CN_MAX + 1, "%s", c->role);
}

static int issue_from(const struct certs_ca *ca, const struct certs *c,
		      const struct certs_who *who)
{
	X509_EXTENSION *sans = certs_make_sans(ca->cluster, who);
	X509_NAME *subject =
		sans ? certs_make_subject(ca->cluster, who->name) : NULL;
	int rc = subject ? certs_dir_make(c->out) : -EINVAL;

	if (!rc && (certs_exists(c->out, POOL_TLS_KEY) ||
		    certs_exists(c->out, POOL_TLS_CERT)))
		rc = certs_error("--out: there is a certificate in %s; kvpool "
				 "certs renew replaces it; for another one "
				 "choose another directory", c->out);
	if (!rc)
		rc = make(ca, c, subject, sans, NULL);
	X509_NAME_free(subject);
	X509_EXTENSION_free(sans);
	return rc;
}

static int run_issue(int argc, char **argv)
{
	struct certs c = { .days = CERTS_DAYS };
	struct daemon_option opts[] = {
		OPT_DIR(&c),
		{ .name = "role", .type = OPT_STRING, .value = &c.role,
		  .arg = "ROLE", .help = "master, node, client or admin.",
		  .no_env = true },
		{ .name = "host", .type = OPT_STRING, .value = &c.host,
		  .arg = "NAME[,ADDRESS]...", .no_env = true,
		  .help = "All names and addresses by which it is dialled; of\n"
			  "a client or admin: none need be." },
		{ .name = "namespace", .type = OPT_STRINGS,
		  .value = &c.namespaces, .arg = "DIR", .no_env = true,
		  .help = "Limit a client or node to this directory of the\n"
			  "pool, and to others if it is given again." },
		{ .name = "uid", .type = OPT_STRING, .value = &c.uid,
		  .arg = "N[,N]...", .no_env = true,
		  .help = "Limit a client or node to these users: what it\n"
			  "makes can belong to no other." },
		{ .name = "name", .type = OPT_STRING, .value = &c.name,
		  .arg = "CN", .no_env = true,
		  .help = "A name for logs; default: the first host, or the\n"
			  "role." },
		OPT_DAYS(&c, "365"),
		OPT_OUT(&c, "The directory to write; made if it is not there."),
		{ .name = NULL },
	};
	struct certs_who who = { .hosts = NULL };
	char cn[CERTS_CN_MAX + 1];
	struct certs_ca ca;
	int status;

	if (parse(opts, argc, argv, issue_usage, &status))
		return status;
	if (!issue_is_valid(opts, &c, &who))
		return 2;
	default_cn(&c, cn);
	who.name = cn;
	if (check_out(&c) || certs_ca_open(c.dir, &ca))
		return 1;
	status = issue_from(&ca, &c, &who) ? 1 : 0;
	certs_ca_close(&ca);
	return status;
}

/* ---- renew ---- */

static const char renew_usage[] =
	"usage: kvpool certs renew --dir CA --out DIR [--days N | --ca-only]\n"
	"\n"
	"Replaces DIR/tls.key and DIR/tls.crt: a new key, the same identity. "
	"Daemons\n"
	"notice it. Of the earlier files only tls.crt is needed.";

static int renew_from(const struct certs_ca *ca, const struct certs *c,
		      X509 *earlier)
{
	int at = X509_get_ext_by_NID(earlier, NID_subject_alt_name, -1);
	BIO *cas;
	int rc;

	if (!c->ca_only)
		return make(ca, c, X509_get_subject_name(earlier),
			    X509_get_ext(earlier, at), earlier);
	cas = certs_ca_bundle(ca);
	rc = cas ? certs_set_write(c->out, cas, NULL, NULL) : -EINVAL;
	BIO_free(cas);
	if (!rc)
		printf("trusts %d CA%s now: %s\n",
		       1 + (ca->next != NULL) + (ca->old != NULL),
		       ca->next || ca->old ? "s" : "", c->out);
	return rc;
}

static int renew(const struct certs *c)
{
	char path[PATH_MAX], why[POOL_TLS_WHY];
	STACK_OF(X509) *certs = NULL;
	struct certs_ca ca;
	int rc = check_out(c);

	if (!rc)
		rc = certs_path(path, c->out, POOL_TLS_CERT);
	if (!rc && pool_tls_certs_read(c->out, POOL_TLS_CERT, &certs, why))
		rc = certs_error("%s", why);
	if (!rc)
		rc = certs_ca_open(c->dir, &ca);
	if (!rc) {
		rc = certs_ca_check_own(&ca, sk_X509_value(certs, 0), path);
		if (!rc)
			rc = renew_from(&ca, c, sk_X509_value(certs, 0));
		certs_ca_close(&ca);
	}
	sk_X509_pop_free(certs, X509_free);
	return rc;
}

static int run_renew(int argc, char **argv)
{
	struct certs c = { .days = CERTS_DAYS };
	struct daemon_option opts[] = {
		OPT_DIR(&c),
		OPT_OUT(&c, "The directory whose files are replaced."),
		OPT_DAYS(&c, "365"),
		{ .name = "ca-only", .type = OPT_FLAG, .value = &c.ca_only,
		  .no_env = true,
		  .help = "Replace only ca.crt, in a roll-over." },
		{ .name = NULL },
	};
	int status;

	if (parse(opts, argc, argv, renew_usage, &status))
		return status;
	if (!wants(opts, "dir", DIR_ACCEPTED) ||
	    !wants(opts, "out", OUT_ACCEPTED))
		return 2;
	if (c.ca_only && daemon_option_find(opts, "days")->seen) {
		rejects(opts, "days", "without --ca-only");
		return 2;
	}
	return renew(&c) ? 1 : 0;
}

/* ---- list ---- */

static const char list_usage[] =
	"usage: kvpool certs list --dir CA [--json]\n"
	"\n"
	"Lists the certificates that the CA has issued, without those that "
	"were\n"
	"renewed; the next to expire comes first.";

static void add_row(X509 *cert, void *rows)
{
	json_array_append_new(rows, certs_describe(cert));
}

static int run_list(int argc, char **argv)
{
	struct certs c = { .days = 0 };
	struct daemon_option opts[] = {
		OPT_DIR(&c),
		{ .name = "json", .type = OPT_FLAG, .value = &c.json,
		  .help = "Print JSON, for programs." },
		{ .name = NULL },
	};
	struct certs_ca ca;
	json_t *rows;
	int status;

	if (parse(opts, argc, argv, list_usage, &status))
		return status;
	if (!wants(opts, "dir", DIR_ACCEPTED))
		return 2;
	if (certs_ca_open(c.dir, &ca))
		return 1;
	rows = json_array();
	status = certs_ca_each(&ca, add_row, rows) ? 1 : 0;
	if (c.json)
		cmd_print_json(rows, stdout);
	else
		certs_print_table(rows);
	json_decref(rows);
	certs_ca_close(&ca);
	return status;
}

/* ---- roll ---- */

static const char roll_usage[] =
	"usage: kvpool certs roll --dir CA [--days N]\n"
	"       kvpool certs roll --dir CA --switch\n"
	"       kvpool certs roll --dir CA --finish [--force]\n"
	"\n"
	"Replaces the CA, in three steps, so that no connection fails. After "
	"each of\n"
	"them do what it prints, for all hosts, and only then the next one.";

static const char roll_begun[] =
	"The next CA is made; the present one still signs. Now:\n"
	"  1. for each DIR: kvpool certs renew --ca-only --dir %s --out DIR\n"
	"  2. copy each DIR to its host, and wait until all have it\n"
	"  3. kvpool certs roll --switch --dir %s\n";
static const char roll_switched[] =
	"The next CA signs from now on. Now:\n"
	"  1. for each DIR: kvpool certs renew --dir %s --out DIR\n"
	"  2. copy each DIR to its host, and wait until all have it\n"
	"  3. kvpool certs roll --finish --dir %s\n";
static const char roll_finished[] =
	"The old CA is removed. Now:\n"
	"  1. for each DIR: kvpool certs renew --ca-only --dir %s --out DIR\n"
	"  2. copy each DIR to its host: then no peer trusts the old CA\n";

static int roll(const struct certs *c)
{
	struct certs_ca ca;
	int rc = certs_ca_open(c->dir, &ca);

	if (rc)
		return 1;
	if (c->next) {
		rc = certs_roll_switch(&ca);
		if (!rc)
			printf(roll_switched, c->dir, c->dir);
	} else if (c->finish) {
		rc = certs_roll_finish(&ca, c->force);
		if (!rc)
			printf(roll_finished, c->dir);
	} else {
		rc = certs_roll_begin(&ca, (unsigned int)c->days);
		if (!rc)
			printf(roll_begun, c->dir, c->dir);
	}
	certs_ca_close(&ca);
	return rc ? 1 : 0;
}

static int run_roll(int argc, char **argv)
{
	struct certs c = { .days = CERTS_CA_DAYS };
	struct daemon_option opts[] = {
		OPT_DIR(&c),
		OPT_DAYS(&c, "3650"),
		{ .name = "switch", .type = OPT_FLAG, .value = &c.next,
		  .no_env = true,
		  .help = "Let the next CA sign: all peers trust it." },
		{ .name = "finish", .type = OPT_FLAG, .value = &c.finish,
		  .no_env = true,
		  .help = "Remove the old CA: no certificate of it is used." },
		{ .name = "force", .type = OPT_FLAG, .value = &c.force,
		  .no_env = true,
		  .help = "Finish although some are still valid." },
		{ .name = NULL },
	};
	int status;

	if (parse(opts, argc, argv, roll_usage, &status))
		return status;
	if (!wants(opts, "dir", DIR_ACCEPTED))
		return 2;
	if (c.next && c.finish)
		return rejects(opts, "finish", "without --switch") ? 0 : 2;
	if (c.force && !c.finish)
		return rejects(opts, "force", "with --finish") ? 0 : 2;
	if ((c.next || c.finish) && daemon_option_find(opts, "days")->seen)
		return rejects(opts, "days", "without --switch and --finish") ?
			       0 : 2;
	return roll(&c);
}

/* ---- check ---- */

static const char check_usage[] =
	"usage: kvpool certs check --tls-dir DIR [--host NAME]\n"
	"\n"
	"Prints whose certificate is in DIR, and whether a daemon would accept "
	"the\n"
	"files and peers would accept the daemon: exit status 1 if not.";

/* Prints what there is, even if the rest is wrong. */
static void print_cert(const char *dir)
{
	STACK_OF(X509) *certs;
	char why[POOL_TLS_WHY];
	json_t *d;

	if (pool_tls_certs_read(dir, POOL_TLS_CERT, &certs, why))
		return; /* pool_tls_files_read reports it */
	d = certs_describe(sk_X509_value(certs, 0));
	certs_print_one(d);
	json_decref(d);
	sk_X509_pop_free(certs, X509_free);
}

static int check_files(const struct certs *c, const struct pool_tls_files *f)
{
	int left = certs_days_left(f->cert), rc = 0;
	char why[POOL_TLS_WHY];

	if (pool_tls_files_check_dates(f, why))
		rc = certs_error("%s: %s", c->tls_dir, why);
	else if (left < CERTS_SOON_DAYS)
		(void)certs_error("%s: the certificate expires in %d days; "
				  "renew it", c->tls_dir, left);
	if (c->host && !pool_tls_has_host(f->cert, c->host))
		rc = certs_error("%s: the certificate is not for the host %s; "
				 "issue one that has it in --host", c->tls_dir,
				 c->host);
	return rc;
}

static int check(const struct certs *c)
{
	struct pool_tls_files f;
	char why[POOL_TLS_WHY];
	int rc;

	print_cert(c->tls_dir);
	fflush(stdout);
	if (pool_tls_files_read(c->tls_dir, &f, why))
		return certs_error("%s", why);
	rc = check_files(c, &f);
	if (!rc)
		printf("%s is good\n", c->tls_dir);
	pool_tls_files_fini(&f);
	return rc;
}

static int run_check(int argc, char **argv)
{
	struct certs c = { .days = 0 };
	struct daemon_option opts[] = {
		{ .name = "tls-dir", .type = OPT_STRING, .value = &c.tls_dir,
		  .arg = "DIR",
		  .help = "The directory with ca.crt, tls.crt and tls.key." },
		{ .name = "host", .type = OPT_STRING, .value = &c.host,
		  .arg = "NAME", .no_env = true,
		  .help = "Is it for this host, a name or an address?" },
		{ .name = NULL },
	};
	int status;

	if (parse(opts, argc, argv, check_usage, &status))
		return status;
	if (!wants(opts, "tls-dir", OUT_ACCEPTED))
		return 2;
	return check(&c) ? 1 : 0;
}

/* ---- all of them ---- */

static const struct {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *help;
} steps[] = {
	{ "init", run_init, "make a CA" },
	{ "issue", run_issue, "make a key and a certificate" },
	{ "list", run_list, "list the certificates of a CA" },
	{ "renew", run_renew, "replace a key and its certificate" },
	{ "roll", run_roll, "replace the CA" },
	{ "check", run_check, "print and check what is in a directory" },
};
#define STEPS (sizeof(steps) / sizeof(steps[0]))

static void print_usage(FILE *out)
{
	fprintf(out, "usage: kvpool certs init|issue|list|renew|roll|check "
		     "[OPTION]...\n\n");
	for (size_t i = 0; i < STEPS; i++)
		fprintf(out, "  %-8s  %s\n", steps[i].name, steps[i].help);
	fprintf(out, "\nkvpool certs NAME --help lists the options of each.\n");
}

int cmd_certs(int argc, char **argv)
{
	if (argc < 2) {
		print_usage(stderr);
		return 2;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		print_usage(stdout);
		return 0;
	}
	for (size_t i = 0; i < STEPS; i++)
		if (strcmp(argv[1], steps[i].name) == 0)
			return steps[i].run(argc - 1, argv + 1);
	fprintf(stderr,
		"kvpool: certs: \"%s\" given; accepted: init, issue, list, "
		"renew, roll or check, see kvpool certs --help\n",
		argv[1]);
	return 2;
}
