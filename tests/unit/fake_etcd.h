/*
 * A fake etcd on a thread of its own, over HTTP or HTTPS: a few keys; leases,
 * which expire only when the test says so; users with tokens; injected faults.
 * Of transactions it supports what master/ uses: comparisons of create and mod
 * revisions for equality, gets of one key, puts, deletions.
 *
 * Thread: the functions here are for the test's. What it shares with the
 * server's thread is under `lock`.
 */
#ifndef TESTS_FAKE_ETCD_H
#define TESTS_FAKE_ETCD_H

#include <jansson.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "master/etcd.h"

#define FAKE_KEYS_MAX 512

enum fake_fault {
	FAKE_FINE,
	FAKE_GARBAGE,	 /* 200, but no valid JSON */
	FAKE_NO_LEADER,	 /* etcd's own 503 */
	FAKE_REFUSES,	 /* etcd's own 400 */
	FAKE_LOSES_WORD, /* executes the request, but answers too late */
	FAKE_SILENT,	 /* answers nothing in time */
	FAKE_LATE,	 /* executes the request too late, too */
};

struct fake_key {
	char *key, *value; /* as in JSON: base64; NULL: free */
	int64_t create, mod, lease;
};

struct fake_etcd {
	pthread_mutex_t lock;
	struct MHD_Daemon *mhd;
	char url[64];
	/* under lock */
	struct fake_key keys[FAKE_KEYS_MAX];
	int64_t revision, last_lease;
	bool lease_gone; /* all leases have expired: for keepalive */
	enum fake_fault fault;
	unsigned int fault_ms; /* of LOSES_WORD, SILENT, LATE */
	const char *fault_only; /* only requests with this text; NULL: all */
	unsigned int fault_times; /* 0: always */
	unsigned int asked, puts, txns; /* requests; of these, by kind */
	const char *before; /* base64 of a key that must be written before any
			       deletion; NULL: no such rule */
	unsigned int gaps;  /* deletions while `before` did not exist */
	unsigned int repeats; /* changes of a key that the same transaction has
				 changed: etcd refuses them */
	int64_t ttl; /* TTL to grant; 0: the requested one */
	/* Users: there is one, FAKE_USER. */
	const char *password;	 /* NULL: there are no users */
	unsigned int login_ms;	 /* delay of the answer to a login */
	bool tokens_die;	 /* a new token is invalid at once */
	unsigned int slow_ms;	 /* delay of the next refusal of a token */
	unsigned int token;	 /* number of the valid token */
	unsigned int logins;	 /* login requests, refused ones included */
	unsigned int no_token;	 /* requests refused, without a token */
};
#define FAKE_USER "kv \"pool\""

struct fake_body {
	char *text;
	size_t len;
};

static struct fake_key *fake_find_key(struct fake_etcd *f, const char *key)
{
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		if (f->keys[i].key && !strcmp(f->keys[i].key, key))
			return &f->keys[i];
	return NULL;
}

static inline void fake_drop(struct fake_key *k)
{
	if (!k)
		return;
	free(k->key);
	free(k->value);
	memset(k, 0, sizeof(*k));
}

static void fake_put_key(struct fake_etcd *f, const char *key,
			 const char *value, int64_t lease)
{
	struct fake_key *k = fake_find_key(f, key);

	for (int i = 0; !k && i < FAKE_KEYS_MAX; i++)
		if (!f->keys[i].key)
			k = &f->keys[i];
	if (!k)
		abort();
	if (!k->key) {
		k->key = strdup(key);
		k->create = f->revision;
	}
	free(k->value);
	k->value = strdup(value);
	k->mod = f->revision;
	k->lease = lease;
	f->puts++;
}

static inline void fake_end_lease(struct fake_etcd *f, int64_t lease)
{
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		if (f->keys[i].key && lease && f->keys[i].lease == lease)
			fake_drop(&f->keys[i]);
}

/* All leases expire; keepalive requests are answered with that. */
static inline void fake_end_leases(struct fake_etcd *f)
{
	pthread_mutex_lock(&f->lock);
	for (int64_t l = 1; l <= f->last_lease; l++)
		fake_end_lease(f, l);
	f->lease_gone = true;
	pthread_mutex_unlock(&f->lock);
}

static inline void fake_set(struct fake_etcd *f, enum fake_fault fault,
			    unsigned int ms)
{
	pthread_mutex_lock(&f->lock);
	f->fault = fault;
	f->fault_ms = ms;
	pthread_mutex_unlock(&f->lock);
}

/* The same once, for the next request that contains this text. */
static inline void fake_set_once(struct fake_etcd *f, enum fake_fault fault,
				 unsigned int ms, const char *only)
{
	pthread_mutex_lock(&f->lock);
	f->fault = fault;
	f->fault_ms = ms;
	f->fault_only = only;
	f->fault_times = 1;
	pthread_mutex_unlock(&f->lock);
}

/* Number of keys whose base64 begins with this. */
static inline unsigned int fake_count(struct fake_etcd *f, const char *begin)
{
	unsigned int n = 0;

	pthread_mutex_lock(&f->lock);
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		n += f->keys[i].key &&
		     !strncmp(f->keys[i].key, begin, strlen(begin));
	pthread_mutex_unlock(&f->lock);
	return n;
}

static int64_t fake_int(json_t *o, const char *key)
{
	json_t *v = json_object_get(o, key);

	return json_is_string(v) ? atoll(json_string_value(v)) :
				   json_integer_value(v);
}

static json_t *fake_text(int64_t v)
{
	char text[24];

	snprintf(text, sizeof(text), "%lld", (long long)v);
	return json_string(text);
}

static json_t *fake_kv(const struct fake_key *k)
{
	return json_pack("{ss ss so so so}", "key", k->key, "value", k->value,
			 "create_revision", fake_text(k->create),
			 "mod_revision", fake_text(k->mod), "lease",
			 fake_text(k->lease));
}

static json_t *fake_header(struct fake_etcd *f)
{
	return json_pack("{so}", "revision", fake_text(f->revision));
}

static bool fake_holds(struct fake_etcd *f, json_t *c)
{
	const char *target = json_string_value(json_object_get(c, "target"));
	struct fake_key *k = fake_find_key(
		f, json_string_value(json_object_get(c, "key")));
	bool mod = !strcmp(target, "MOD");

	return fake_int(c, mod ? "mod_revision" : "create_revision") ==
	       (!k ? 0 : mod ? k->mod : k->create);
}

static json_t *fake_etcd_op(struct fake_etcd *f, json_t *op)
{
	json_t *o, *kvs = json_array();
	struct fake_key *k;

	if ((o = json_object_get(op, "request_put"))) {
		fake_put_key(f, json_string_value(json_object_get(o, "key")),
			     json_string_value(json_object_get(o, "value")),
			     fake_int(o, "lease"));
		return json_pack("{so}", "response_put", kvs);
	}
	if ((o = json_object_get(op, "request_delete_range"))) {
		f->gaps += f->before && !fake_find_key(f, f->before);
		fake_drop(fake_find_key(f, json_string_value(json_object_get(
						   o, "key"))));
		return json_pack("{so}", "response_delete_range", kvs);
	}
	o = json_object_get(op, "request_range");
	k = fake_find_key(f, json_string_value(json_object_get(o, "key")));
	if (k)
		json_array_append_new(kvs, fake_kv(k));
	return json_pack("{s{so}}", "response_range", "kvs", kvs);
}

static const char *fake_changed_key(json_t *op)
{
	json_t *o = json_object_get(op, "request_put");

	if (!o)
		o = json_object_get(op, "request_delete_range");
	return json_string_value(json_object_get(o, "key"));
}

static void fake_count_repeats(struct fake_etcd *f, json_t *ops)
{
	const char *a, *b;
	size_t i, k;

	for (i = 0; i < json_array_size(ops); i++)
		for (k = 0; k < i; k++) {
			a = fake_changed_key(json_array_get(ops, i));
			b = fake_changed_key(json_array_get(ops, k));
			f->repeats += a && b && !strcmp(a, b);
		}
}

static json_t *fake_txn(struct fake_etcd *f, json_t *msg)
{
	json_t *responses = json_array(), *e;
	bool good = true;
	size_t i;

	f->txns++;
	json_array_foreach(json_object_get(msg, "compare"), i, e)
		good &= fake_holds(f, e);
	f->revision++;
	fake_count_repeats(f, json_object_get(msg, "success"));
	json_array_foreach(json_object_get(msg, good ? "success" : "failure"),
			   i, e)
		json_array_append_new(responses, fake_etcd_op(f, e));
	e = json_pack("{so so}", "header", fake_header(f), "responses",
		      responses);
	if (good) /* left out if false, as etcd does */
		json_object_set_new(e, "succeeded", json_true());
	return e;
}

/* The bytes of a key in base64; the caller owns them. */
static char *fake_bytes(const char *base64, size_t *len)
{
	json_t *kv = json_pack("{ss}", "key", base64);
	char *bytes;

	if (etcd_bytes(kv, "key", &bytes, len))
		abort();
	json_decref(kv);
	return bytes;
}

static int fake_compare(const char *a, const char *b)
{
	size_t na, nb;
	char *pa = fake_bytes(a, &na), *pb = fake_bytes(b, &nb);
	int r = memcmp(pa, pb, na < nb ? na : nb);

	free(pa);
	free(pb);
	return r ? r : (na > nb) - (na < nb);
}

/* In one page, and in order of creation. */
static json_t *fake_range(struct fake_etcd *f, json_t *msg)
{
	const char *from = json_string_value(json_object_get(msg, "key"));
	const char *end = json_string_value(json_object_get(msg, "range_end"));
	json_t *kvs = json_array();

	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		if (f->keys[i].key && fake_compare(f->keys[i].key, from) >= 0 &&
		    fake_compare(f->keys[i].key, end) < 0)
			json_array_append_new(kvs, fake_kv(&f->keys[i]));
	return json_pack("{so so}", "header", fake_header(f), "kvs", kvs);
}

static json_t *fake_etcd_do(struct fake_etcd *f, const char *path, json_t *msg)
{
	int64_t id = fake_int(msg, "ID");

	if (strstr(path, "/kv/txn"))
		return fake_txn(f, msg);
	if (strstr(path, "/kv/range"))
		return fake_range(f, msg);
	if (strstr(path, "/lease/grant")) {
		f->lease_gone = false;
		return json_pack("{so so}", "ID", fake_text(++f->last_lease),
				 "TTL",
				 fake_text(f->ttl ? f->ttl :
						    fake_int(msg, "TTL")));
	}
	if (strstr(path, "/lease/keepalive"))
		return f->lease_gone ?
			       json_pack("{s{so}}", "result", "ID",
					 fake_text(id)) :
			       json_pack("{s{so so}}", "result", "ID",
					 fake_text(id), "TTL",
					 fake_text(f->ttl ? f->ttl : 3));
	fake_end_lease(f, id);
	return json_object();
}

/* All tokens become invalid. */
static inline void fake_end_tokens(struct fake_etcd *f)
{
	pthread_mutex_lock(&f->lock);
	f->token++;
	pthread_mutex_unlock(&f->lock);
}

/* Delays the next refusal of a token by this much. */
static inline void fake_slow_refusal(struct fake_etcd *f, unsigned int ms)
{
	pthread_mutex_lock(&f->lock);
	f->slow_ms = ms;
	pthread_mutex_unlock(&f->lock);
}

/* Has that refusal begun? */
static inline bool fake_has_refused(struct fake_etcd *f)
{
	bool has;

	pthread_mutex_lock(&f->lock);
	has = !f->slow_ms;
	pthread_mutex_unlock(&f->lock);
	return has;
}

static void fake_sleep(unsigned int ms)
{
	struct timespec ts = { .tv_sec = ms / 1000,
			       .tv_nsec = ms % 1000 * 1000000L };

	nanosleep(&ts, NULL);
}

static enum MHD_Result fake_send(struct MHD_Connection *c, unsigned int status,
				 const char *text)
{
	struct MHD_Response *r = MHD_create_response_from_buffer(
		strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
	enum MHD_Result rc = MHD_queue_response(c, status, r);

	MHD_destroy_response(r);
	return rc;
}

static enum MHD_Result fake_login(struct fake_etcd *f, struct MHD_Connection *c,
				  const char *body)
{
	json_t *msg = json_loads(body, 0, NULL);
	const char *name = json_string_value(json_object_get(msg, "name"));
	const char *word = json_string_value(json_object_get(msg, "password"));
	char text[64] = "";
	unsigned int ms;
	bool users;

	pthread_mutex_lock(&f->lock);
	f->logins++;
	ms = f->login_ms;
	users = f->password;
	if (users && name && word && !strcmp(name, FAKE_USER) &&
	    !strcmp(word, f->password)) {
		snprintf(text, sizeof(text), "{\"token\":\"t.%u\"}",
			 ++f->token);
		f->token += f->tokens_die;
	}
	pthread_mutex_unlock(&f->lock);
	json_decref(msg);
	fake_sleep(ms);
	if (text[0])
		return fake_send(c, 200, text);
	return fake_send(
		c, 400,
		users ? "{\"error\":\"etcdserver: authentication failed, "
			"invalid user ID or password\",\"code\":3}" :
			"{\"error\":\"etcdserver: authentication is not "
			"enabled\",\"code\":9}");
}

/* NULL: the request may be executed; else etcd's answer, and the status. */
static const char *fake_no_token(struct fake_etcd *f, struct MHD_Connection *c,
				 const char *path, unsigned int *ret_status,
				 unsigned int *ret_ms)
{
	const char *given = MHD_lookup_connection_value(c, MHD_HEADER_KIND,
							"Authorization");
	char want[32];

	snprintf(want, sizeof(want), "t.%u", f->token);
	if (!f->password || (given && !strcmp(given, want)))
		return NULL;
	f->no_token++;
	*ret_ms = f->slow_ms;
	f->slow_ms = 0;
	*ret_status = given ? 401 : 400;
	if (!given)
		return "{\"error\":\"etcdserver: user name is "
		       "empty\",\"code\":3}";
	/* In a stream the error has another form. */
	return strstr(path, "/lease/keepalive") ?
		       "{\"error\":{\"grpc_code\":16,\"http_code\":401,"
		       "\"message\":\"etcdserver: invalid auth token\"}}" :
		       "{\"error\":\"etcdserver: invalid auth "
		       "token\",\"code\":16}";
}

static enum MHD_Result fake_reply(struct fake_etcd *f, struct MHD_Connection *c,
				  const char *path, const char *body)
{
	const char *refusal;
	enum fake_fault fault;
	unsigned int ms, status;
	enum MHD_Result rc;
	json_t *msg, *answer = NULL;
	char *text;

	if (strstr(path, "/auth/authenticate"))
		return fake_login(f, c, body);
	pthread_mutex_lock(&f->lock);
	refusal = fake_no_token(f, c, path, &status, &ms);
	if (refusal) {
		pthread_mutex_unlock(&f->lock);
		fake_sleep(ms);
		return fake_send(c, status, refusal);
	}
	fault = f->fault;
	ms = f->fault_ms;
	f->asked++;
	if (f->fault_only && !strstr(body, f->fault_only))
		fault = FAKE_FINE;
	else if (f->fault_times && !--f->fault_times)
		f->fault = FAKE_FINE;
	if (fault == FAKE_LATE) {
		pthread_mutex_unlock(&f->lock);
		fake_sleep(ms);
		pthread_mutex_lock(&f->lock);
	}
	if (fault == FAKE_FINE || fault == FAKE_LOSES_WORD ||
	    fault == FAKE_LATE) {
		msg = json_loads(body, 0, NULL);
		answer = fake_etcd_do(f, path, msg);
		json_decref(msg);
	}
	pthread_mutex_unlock(&f->lock);
	if (fault == FAKE_LOSES_WORD || fault == FAKE_SILENT)
		fake_sleep(ms);
	if (fault == FAKE_GARBAGE)
		return fake_send(c, 200, "{\"header\": <html>");
	if (fault == FAKE_NO_LEADER)
		return fake_send(
			c, 503,
			"{\"error\":\"etcdserver: no leader\",\"code\":14}");
	if (fault == FAKE_REFUSES)
		return fake_send(c, 400,
				 "{\"error\":\"etcdserver: too many operations "
				 "in txn request\",\"code\":3}");
	text = answer ? json_dumps(answer, JSON_COMPACT) : strdup("{}");
	json_decref(answer);
	rc = fake_send(c, 200, text);
	free(text);
	return rc;
}

static enum MHD_Result fake_on_request(void *arg, struct MHD_Connection *c,
				       const char *path, const char *method,
				       const char *version, const char *data,
				       size_t *len, void **state)
{
	struct fake_body *b = *state;

	(void)method;
	(void)version;
	if (!b) {
		*state = calloc(1, sizeof(*b));
		return MHD_YES;
	}
	if (*len) {
		b->text = realloc(b->text, b->len + *len + 1);
		memcpy(b->text + b->len, data, *len);
		b->len += *len;
		b->text[b->len] = 0;
		*len = 0;
		return MHD_YES;
	}
	return fake_reply(arg, c, path, b->text ? b->text : "");
}

static void fake_on_end(void *arg, struct MHD_Connection *c, void **state,
			enum MHD_RequestTerminationCode code)
{
	struct fake_body *b = *state;

	(void)arg;
	(void)c;
	(void)code;
	if (b)
		free(b->text);
	free(b);
}

/* port 0: any. key, cert: PEM, for https; NULL: http. */
static inline void fake_etcd_start_at(struct fake_etcd *f, uint16_t port,
				      const char *key, const char *cert)
{
	/* One thread per connection: a delayed one does not delay others. */
	unsigned int flags = MHD_USE_INTERNAL_POLLING_THREAD |
			     MHD_USE_THREAD_PER_CONNECTION |
			     (key ? MHD_USE_TLS : 0);

	memset(f, 0, sizeof(*f));
	pthread_mutex_init(&f->lock, NULL);
	f->revision = 1;
	f->mhd = MHD_start_daemon(
		flags, port, NULL, NULL, fake_on_request, f,
		MHD_OPTION_NOTIFY_COMPLETED, fake_on_end, NULL,
		key ? MHD_OPTION_HTTPS_MEM_KEY : MHD_OPTION_END, key,
		MHD_OPTION_HTTPS_MEM_CERT, cert, MHD_OPTION_END);
	if (!f->mhd)
		abort();
	snprintf(f->url, sizeof(f->url), "%s://127.0.0.1:%u",
		 key ? "https" : "http",
		 MHD_get_daemon_info(f->mhd, MHD_DAEMON_INFO_BIND_PORT)->port);
}

static inline void fake_etcd_start(struct fake_etcd *f)
{
	fake_etcd_start_at(f, 0, NULL, NULL);
}

static inline void fake_etcd_stop(struct fake_etcd *f)
{
	MHD_stop_daemon(f->mhd);
	for (int i = 0; i < FAKE_KEYS_MAX; i++)
		fake_drop(&f->keys[i]);
	pthread_mutex_destroy(&f->lock);
}

#endif
