/*
 * A client of etcd: its v3 API as JSON over HTTP (the gateway that every etcd
 * has, by /v3/...). Nobody else knows how etcd is spoken to.
 *
 * Several URLs are one cluster: a request starts at the one that answered last,
 * and goes to the next if that one cannot be reached, is too slow or says that
 * it has no leader; each gets its share of the request's time. What is asked
 * may so be done twice: requests must bear that.
 *
 * All of libcurl runs on one thread, "kv-etcd", where answers are parsed, too;
 * they come to the loop through a mailbox. At most ETCD_REQS_MAX requests are
 * under way.
 *
 * Errors: -ETIMEDOUT, -EHOSTUNREACH (no URL answers, or none has a leader),
 * -ENOENT (a lease that is not there), -EREMOTEIO (etcd refuses), -EPROTO (what
 * answers does not speak like etcd), -EMSGSIZE, -ENOMEM, -ECANCELED (closed).
 * etcd_error has the text of the last one.
 *
 * Thread: loop.
 */
#ifndef MASTER_ETCD_H
#define MASTER_ETCD_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "pool/base/metric.h"
#include "pool/base/mailbox.h"

#define ETCD_URLS_MAX 8
#define ETCD_REQS_MAX 64
#define ETCD_PORT 2379
#define ETCD_URLS_ACCEPTED \
	"http://HOST:PORT or https://HOST:PORT, up to 8 of them with commas between; port 2379 if none is given"

struct etcd;

enum etcd_method {
	ETCD_RANGE,
	ETCD_TXN,
	ETCD_GRANT,
	ETCD_KEEPALIVE,
	ETCD_REVOKE,
};

/* Embedded by who asks; in use until cb has been called. */
struct etcd_req {
	/* answer: borrowed until return, NULL after an error. */
	void (*cb)(struct etcd_req *r, int err, json_t *answer);

	/* the client's: */
	struct pool_mail mail;
	struct pool_list link;
	struct etcd *e;
	enum etcd_method method;
	char *body; /* owns */
	uint64_t end_ms;
	unsigned int url, tries;
	void *curl; /* owns */
	char *text; /* owns: what is received */
	size_t len;
	int err;
	json_t *answer; /* owns */
	char error[256];
	uv_sem_t *done; /* borrows: of who waits in etcd_call, or NULL */
};

/* Is the list as ETCD_URLS_ACCEPTED says? 0 or -EINVAL. */
int etcd_urls_check(const char *urls);
/* Connects to nothing yet. metrics may be NULL. 0 or -errno, logged. */
int etcd_open(uv_loop_t *loop, const char *urls, struct pool_metrics *metrics,
	      struct etcd **ret_etcd);
/* Requests under way end with -ECANCELED, before closed(arg). */
void etcd_close(struct etcd *e, void (*closed)(void *arg), void *arg);

/*
 * Ask. body is taken over, also after an error; NULL counts as ENOMEM. 0: cb
 * runs once, later. -ENOMEM or -ENOBUFS: it never runs.
 */
int etcd_start(struct etcd *e, struct etcd_req *r, enum etcd_method method,
	       json_t *body, unsigned int timeout_ms);
/* The same, waiting for the answer (a new reference): before the loop runs. */
int etcd_call(struct etcd *e, enum etcd_method method, json_t *body,
	      unsigned int timeout_ms, json_t **ret_answer);

const char *etcd_urls(const struct etcd *e);
/* Did the last request succeed? True before the first one. */
bool etcd_healthy(const struct etcd *e);
/* What went wrong last, "" if nothing has. */
const char *etcd_error(const struct etcd *e);

/* ---- messages; NULL is ENOMEM, and taken for it by what it is put into ----
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
/* The key's revision of that name ("create_revision", "mod_revision") is that;
 * 0: there is no such key. */
json_t *etcd_compare(struct etcd_slice key, const char *what, int64_t revision);
/* Arrays; all are taken over. failure may be NULL if there is none. */
json_t *etcd_txn(json_t *compare, json_t *success, json_t *failure);
/* Keys from..to (without to), in order, at most limit. */
json_t *etcd_range(struct etcd_slice from, struct etcd_slice to,
		   unsigned int limit);

/* Numbers are texts in JSON, and left out if 0. */
int64_t etcd_int(const json_t *object, const char *key);
/* The kv of the i-th operation of a txn's answer, a get of one key; borrowed.
 * NULL: there is no such key. */
json_t *etcd_got(const json_t *answer, size_t i);
/* Of a kv: "key" or "value"; *ret_data is the caller's, NUL behind it. 0,
 * -ENOMEM, or -EPROTO. */
int etcd_bytes(const json_t *kv, const char *what, char **ret_data,
	       size_t *ret_len);

#endif
