#include "master/etcd_auth.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/base/log.h"

void etcd_auth_init(struct etcd_auth *auth, const struct etcd_access *access)
{
	memset(auth, 0, sizeof(*auth));
	auth->access = access;
}

static void forget(struct etcd_auth *auth)
{
	if (auth->token)
		explicit_bzero(auth->token, strlen(auth->token));
	free(auth->token);
	auth->token = NULL;
}

void etcd_auth_fini(struct etcd_auth *auth)
{
	forget(auth);
}

int etcd_auth_metrics(struct etcd_auth *auth, struct pool_metrics *m)
{
	int err = pool_metrics_counter(m, &auth->granted,
				       "kvpool_etcd_logins_total", NULL,
				       "Tokens that etcd has granted for "
				       "--etcd-user.");

	return err ? err :
		     pool_metrics_counter(m, &auth->failed,
					  "kvpool_etcd_logins_failed_total",
					  NULL,
					  "Failed attempts to get a token.");
}

int etcd_auth_due(const struct etcd_auth *auth, uint64_t now_ms,
		  char why[ETCD_ERROR_MAX])
{
	if (now_ms >= auth->due_ms)
		return 0;
	snprintf(why, ETCD_ERROR_MAX, "%s", auth->why);
	return auth->err;
}

int etcd_auth_body(const struct etcd_auth *auth, char **ret_body,
		   char why[ETCD_ERROR_MAX])
{
	const struct etcd_access *a = auth->access;
	char password[ETCD_PASSWORD_MAX + 1], text[ETCD_WHY];
	json_t *json;
	int rc = etcd_password_read(a, password, text);

	if (rc) {
		snprintf(why, ETCD_ERROR_MAX, "%s", text);
		return rc;
	}
	json = json_pack("{ss ss}", "name", a->user, "password", password);
	explicit_bzero(password, sizeof(password));
	*ret_body = json ? json_dumps(json, JSON_COMPACT) : NULL;
	json_decref(json);
	if (*ret_body)
		return 0;
	/* JSON must be UTF-8. (Or there was no memory.) */
	snprintf(why, ETCD_ERROR_MAX,
		 "--etcd-user, --etcd-password-file: %s: is not UTF-8",
		 a->password_file);
	return -EINVAL;
}

void etcd_auth_free_body(char *body)
{
	if (body)
		explicit_bzero(body, strlen(body));
	free(body);
}

/* Can it be sent in a line of a header? */
static bool is_token(const char *text)
{
	const char *c = text;

	while (isgraph((unsigned char)*c))
		c++;
	return !*c && c > text && c - text <= ETCD_TOKEN_MAX;
}

static int hold(struct etcd_auth *auth, const char *token)
{
	char *copy = strdup(token);

	if (!copy)
		return -ENOMEM;
	forget(auth);
	auth->token = copy;
	auth->serial++;
	auth->err = 0;
	return 0;
}

int etcd_auth_granted(struct etcd_auth *auth, const json_t *answer,
		      uint64_t now_ms, char why[ETCD_ERROR_MAX])
{
	const char *token = json_string_value(json_object_get(answer, "token"));

	if (!token || !is_token(token) || hold(auth, token)) {
		snprintf(why, ETCD_ERROR_MAX,
			 "etcd has accepted user %s, but sent no token of 1 to "
			 "%d printable characters",
			 auth->access->user, ETCD_TOKEN_MAX);
		return -EPROTO;
	}
	pool_count(&auth->granted);
	auth->granted_ms = now_ms;
	auth->warned = false;
	return 0;
}

void etcd_auth_not_enabled(struct etcd_auth *auth)
{
	if (hold(auth, ""))
		return;
	if (!auth->warned)
		pool_warn("etcd: --etcd-user is given, but etcd has no users: "
			  "anyone who reaches it can change the pool's state "
			  "(etcdctl auth enable)");
	auth->warned = true;
}

static void pause_for(struct etcd_auth *auth, int err, uint64_t now_ms,
		      const char *why)
{
	auth->err = err;
	snprintf(auth->why, sizeof(auth->why), "%s", why);
	auth->due_ms = now_ms + ETCD_AUTH_PAUSE_MS;
}

void etcd_auth_failed(struct etcd_auth *auth, int err, uint64_t now_ms,
		      const char *why)
{
	pool_count(&auth->failed);
	if (err != -EHOSTUNREACH && err != -ETIMEDOUT)
		pause_for(auth, err, now_ms, why);
}

unsigned int etcd_auth_serial(const struct etcd_auth *auth)
{
	return auth->token ? auth->serial : 0;
}

bool etcd_auth_header(const struct etcd_auth *auth, char *to, size_t cap)
{
	if (!auth->token || !auth->token[0])
		return false;
	snprintf(to, cap, "Authorization: %s", auth->token);
	return true;
}

void etcd_auth_accepted(struct etcd_auth *auth)
{
	auth->quick = 0;
}

void etcd_auth_refused(struct etcd_auth *auth, unsigned int serial,
		       uint64_t now_ms)
{
	if (!serial || serial != etcd_auth_serial(auth))
		return;
	forget(auth);
	if (now_ms - auth->granted_ms >= ETCD_AUTH_PAUSE_MS)
		auth->quick = 0;
	else if (++auth->quick >= 2)
		pause_for(auth, -EKEYREJECTED, now_ms,
			  "etcd refuses tokens that it has just granted: it is "
			  "stopping, or its members differ in --auth-token");
}
