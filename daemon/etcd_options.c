#include "daemon/etcd_options.h"

#include <errno.h>

static const char *const extras[] = { "etcd-ca", "etcd-cert", "etcd-key",
				      "etcd-user", "etcd-password-file" };
#define NTLS 3 /* of these: only for https */
#define NEXTRAS (sizeof(extras) / sizeof(extras[0]))

/* Rejects the first of n extras that is given. */
static int none_of(struct daemon_option *options, size_t n,
		   const char *accepted, FILE *err)
{
	for (size_t i = 0; i < n; i++) {
		struct daemon_option *o = daemon_option_find(options,
							     extras[i]);

		if (o->seen)
			return daemon_option_reject(o, accepted, err);
	}
	return 0;
}

/* Rejects one of the two without the other. */
static int both_of(struct daemon_option *options, const char *one,
		   const char *other, FILE *err)
{
	struct daemon_option *a = daemon_option_find(options, one);
	struct daemon_option *b = daemon_option_find(options, other);
	char accepted[64];

	if (a->seen == b->seen)
		return 0;
	snprintf(accepted, sizeof(accepted), "together with --%s",
		 a->seen ? other : one);
	return daemon_option_reject(a->seen ? a : b, accepted, err);
}

static int check_user(struct daemon_option *options,
		      const struct etcd_access *a, FILE *err)
{
	if (!a->user)
		return 0;
	if (!etcd_user_valid(a->user))
		return daemon_option_reject(daemon_option_find(options,
							       "etcd-user"),
					    ETCD_USER_ACCEPTED, err);
	if (etcd_urls_private(a->urls))
		return 0;
	return daemon_option_reject(
		daemon_option_find(options, "etcd-user"),
		"with --etcd https://..., or http://... of a loopback address: "
		"else it crosses the network unencrypted", err);
}

static int check_files(const struct etcd_access *a, FILE *err)
{
	char why[ETCD_WHY];

	if (!etcd_access_check(a, why))
		return 0;
	fprintf(err, "%s: %s\n", program_invocation_short_name, why);
	return -EINVAL;
}

int daemon_etcd_options_check(struct daemon_option *options,
			      const struct etcd_access *a, FILE *err)
{
	int rc;

	if (!a->urls)
		return none_of(options, NEXTRAS, "together with --etcd", err);
	if (etcd_urls_check(a->urls))
		return daemon_option_reject(daemon_option_find(options, "etcd"),
					    ETCD_URLS_ACCEPTED, err);
	rc = etcd_urls_tls(a->urls) ?
		     0 :
		     none_of(options, NTLS, "with --etcd https://...", err);
	if (!rc)
		rc = both_of(options, "etcd-cert", "etcd-key", err);
	if (!rc)
		rc = both_of(options, "etcd-user", "etcd-password-file", err);
	if (!rc)
		rc = check_user(options, a, err);
	return rc ? rc : check_files(a, err);
}
