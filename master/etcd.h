/*
 * A client of etcd: its v3 API as JSON over HTTP (the gateway that every etcd
 * serves at /v3/...). The only caller of libcurl, and the only place that knows
 * etcd's wire format.
 *
 * Several URLs name the members of one cluster. A request starts at the URL
 * that answered last, and goes on to the next one if that member cannot be
 * reached, is too slow, does not answer like etcd, or has no leader. The
 * remaining time is divided among the URLs not tried yet. etcd may execute a
 * request twice, so requests must be idempotent.
 *
 * libcurl runs on one thread, "kv-etcd", which also parses the answers; they
 * reach the loop through a mailbox. At most ETCD_REQS_MAX requests are in
 * flight.
 *
 * With a user (etcd_access.h), requests wait for a token (etcd_auth.h). A
 * request whose token etcd has refused was not executed, and is sent again with
 * another one, ETCD_LOGINS_MAX times.
 *
 * Errors: -ETIMEDOUT, -EHOSTUNREACH (no URL answers, or no member has a
 * leader), -EKEYREJECTED (a certificate, or user or password, is not accepted,
 * by us or by etcd), -ENOENT (no such lease), -EREMOTEIO (etcd refused),
 * -EPROTO (the answer is not etcd's), -EMSGSIZE, -ENOMEM, -ECANCELED (closed).
 * etcd_error describes the last one, with the remedy.
 *
 * Thread: loop.
 */
#ifndef MASTER_ETCD_H
#define MASTER_ETCD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "master/etcd_access.h"
#include "master/etcd_auth.h"
#include "pool/base/metric.h"
#include "pool/base/mailbox.h"

#define ETCD_REQS_MAX 64
#define ETCD_LOGINS_MAX 2
#define ETCD_LOGIN_MS 5000 /* time for a token: etcd hashes passwords slowly */

struct etcd;

enum etcd_method {
	ETCD_RANGE,
	ETCD_TXN,
	ETCD_GRANT,
	ETCD_KEEPALIVE,
	ETCD_REVOKE,
	ETCD_LOGIN, /* used only inside the client */
};

/* Embedded by the caller; must stay valid until cb has been called. */
struct etcd_req {
	/* On the loop. answer: borrowed until return, NULL after an error. */
	void (*cb)(struct etcd_req *r, int err, json_t *answer);

	/* private: */
	struct pool_mail mail;
	struct pool_list link;
	struct etcd *e;
	enum etcd_method method;
	char *body; /* owns */
	uint64_t end_ms;
	unsigned int url, tries;
	unsigned int logins; /* made because a token was refused */
	unsigned int serial; /* of its token; 0: none */
	void *curl, *headers; /* owns */
	char *text; /* owns: the answer as received */
	size_t len;
	int err;
	json_t *answer; /* owns */
	bool bad_files; /* `error` says what is wrong with our files */
	char detail[256]; /* of libcurl (CURL_ERROR_SIZE) */
	char error[ETCD_ERROR_MAX];
	uv_sem_t *done; /* borrows: posted for etcd_call, instead of cb; or
			   NULL */
};

/* Does not connect yet. access is copied, its strings must stay until closed;
 * metrics may be NULL. 0 or -errno, logged. */
int etcd_open(uv_loop_t *loop, const struct etcd_access *access,
	      struct pool_metrics *metrics, struct etcd **ret_etcd);
/* Requests in flight end with -ECANCELED, before closed(arg). */
void etcd_close(struct etcd *e, void (*closed)(void *arg), void *arg);

/*
 * Start a request. Takes ownership of body, even after an error; NULL counts as
 * ENOMEM. 0: cb runs once, later. -ENOMEM or -ENOBUFS: it never runs.
 */
int etcd_start(struct etcd *e, struct etcd_req *r, enum etcd_method method,
	       json_t *body, unsigned int timeout_ms);
/* Blocks until the answer (a new reference) has come, at most for timeout_ms.
 * Only before the loop runs. Takes ownership of body, as etcd_start does. */
int etcd_call(struct etcd *e, enum etcd_method method, json_t *body,
	      unsigned int timeout_ms, json_t **ret_answer);

/* The access given to etcd_open. */
const struct etcd_access *etcd_access(const struct etcd *e);
/* Did the last request succeed? True before the first one. */
bool etcd_healthy(const struct etcd *e);
/* Text of the last error, "" if there was none. */
const char *etcd_error(const struct etcd *e);

/* ---- messages: NULL means ENOMEM; a NULL argument makes the result NULL ----
 */

struct etcd_slice {
	const void *p;
	size_t len;
};
static inline struct etcd_slice etcd_slice(const void *p, size_t len)
{
	return (struct etcd_slice){ p, len };
}

/* Operations of a txn. lease 0: none. */
json_t *etcd_op_put(struct etcd_slice key, struct etcd_slice value,
		    int64_t lease);
json_t *etcd_op_delete(struct etcd_slice key);
json_t *etcd_op_get(struct etcd_slice key);
/* A condition of a txn: the key's `what` ("create_revision" or "mod_revision")
 * equals revision; 0: the key does not exist. */
json_t *etcd_compare(struct etcd_slice key, const char *what, int64_t revision);
/* Takes ownership of three arrays. failure may be NULL if there is none. */
json_t *etcd_txn(json_t *compare, json_t *success, json_t *failure);
/* Keys from..to (without to), in order, at most limit. */
json_t *etcd_range(struct etcd_slice from, struct etcd_slice to,
		   unsigned int limit);

/* A member that is a number; etcd sends these as strings, and omits zeros. */
int64_t etcd_int(const json_t *object, const char *key);
/* The kv that operation i of a txn, a get of one key, found; borrowed. NULL:
 * the key does not exist. */
json_t *etcd_txn_kv(const json_t *answer, size_t i);
/* "key" or "value" of a kv; *ret_data is the caller's, with a NUL appended. 0,
 * -ENOMEM, or -EPROTO. */
int etcd_bytes(const json_t *kv, const char *what, char **ret_data,
	       size_t *ret_len);

#endif
