/*
 * The token of a user of etcd. etcd gives one for name and password, and
 * refuses it after some minutes without use, after a restart of its own, and
 * when users have changed; then a new one is requested.
 *
 *   none --due--> asked --granted--> held --refused--> none
 *                   +------failed--> none; not due for ETCD_AUTH_PAUSE_MS if
 *                                    name, password or token are wrong
 *
 * Happy path: init, due, body (the caller sends it), granted; then header for
 * each request, until etcd refuses one: refused, due, ...
 *
 * An etcd that has no users yet ("authentication is not enabled") is used
 * without a token, so that users can be introduced while masters run.
 *
 * Thread: kv-etcd, except init, fini and the counters.
 */
#ifndef MASTER_ETCD_AUTH_H
#define MASTER_ETCD_AUTH_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "master/etcd_access.h"
#include "pool/base/metric.h"

#define ETCD_AUTH_PAUSE_MS 1000
#define ETCD_TOKEN_MAX 8192 /* bytes; a JWT may be long */
#define ETCD_ERROR_MAX 768  /* bytes of a text for the operator */

struct etcd_auth {
	/* private: */
	const struct etcd_access *access; /* borrows */
	char *token;	     /* owns; NULL: none; "": etcd has no users */
	unsigned int serial; /* number of the token */
	uint64_t granted_ms;
	unsigned int quick;  /* tokens in a row that were refused at once, never
				accepted */
	uint64_t due_ms;     /* no attempt before that */
	int err;	     /* of the last attempt; 0: none has failed */
	char why[ETCD_ERROR_MAX];
	bool warned; /* that etcd has no users */
	struct pool_counter granted, failed;
};

/* access must live as long as auth. */
void etcd_auth_init(struct etcd_auth *auth, const struct etcd_access *access);
void etcd_auth_fini(struct etcd_auth *auth);
/* The counters. 0 or -ENOMEM. */
int etcd_auth_metrics(struct etcd_auth *auth, struct pool_metrics *m);

/* Can a request be sent now, with or without a token? */
static inline bool etcd_auth_ready(const struct etcd_auth *auth)
{
	return !auth->access->user || auth->token;
}
/* There is no token: may one be requested at now_ms? 0; or the last attempt's
 * -errno and why, because it failed less than ETCD_AUTH_PAUSE_MS ago. */
int etcd_auth_due(const struct etcd_auth *auth, uint64_t now_ms,
		  char why[ETCD_ERROR_MAX]);
/* The body of the request for a token, with the password in it. 0 and
 * *ret_body, which the caller frees with etcd_auth_free_body; or -errno and
 * why. */
int etcd_auth_body(const struct etcd_auth *auth, char **ret_body,
		   char why[ETCD_ERROR_MAX]);
void etcd_auth_free_body(char *body);
/* etcd's answer to that request. 0, or -EPROTO and why. */
int etcd_auth_granted(struct etcd_auth *auth, const json_t *answer,
		      uint64_t now_ms, char why[ETCD_ERROR_MAX]);
/* etcd has no users. Logged once. */
void etcd_auth_not_enabled(struct etcd_auth *auth);
/* There is no answer, or etcd has refused (-EKEYREJECTED). */
void etcd_auth_failed(struct etcd_auth *auth, int err, uint64_t now_ms,
		      const char *why);

/* The token's number; 0: there is none. */
unsigned int etcd_auth_serial(const struct etcd_auth *auth);
/* Writes the header that has the token. False: no header is needed. */
bool etcd_auth_header(const struct etcd_auth *auth, char *to, size_t cap);
#define ETCD_AUTH_HEADER_MAX (sizeof("Authorization: ") + ETCD_TOKEN_MAX)
/* etcd has accepted a request that had a token. */
void etcd_auth_accepted(struct etcd_auth *auth);
/* etcd has refused a request that had the token of that serial; a later token
 * may have been granted meanwhile. If two tokens in a row are refused without
 * having been accepted, a pause follows. */
void etcd_auth_refused(struct etcd_auth *auth, unsigned int serial,
		       uint64_t now_ms);

#endif
