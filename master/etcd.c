#include "master/etcd.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"

#define ANSWER_MAX (64u << 20)
#define POLL_MS 1000 /* new requests wake the thread up at once */
#define EXPIRE_MS 50 /* while requests wait for a token */

/* gRPC's codes, in etcd's error answers. */
#define CODE_DEADLINE 4
#define CODE_NOT_FOUND 5
#define CODE_DENIED 7
#define CODE_UNAVAILABLE 14
#define CODE_UNAUTHENTICATED 16

/* Within this file: the request has no token, or one that is not valid. */
#define ERR_TOKEN (-EKEYEXPIRED)

struct etcd {
	uv_loop_t *loop;
	struct etcd_access access; /* borrows the strings */
	bool tls;
	const char *url[ETCD_URLS_MAX];
	char *url_buf; /* owns */
	unsigned int nurls;
	struct pool_mailbox box;
	CURLM *multi;
	uv_thread_t thread;
	/* under lock */
	uv_mutex_t lock;
	struct pool_list submitted;
	bool closing;
	/* thread kv-etcd */
	struct pool_list active;
	struct pool_list waiting; /* for a token */
	struct etcd_auth auth;
	struct etcd_req login; /* one at a time */
	bool logging_in;
	unsigned int last_good; /* index of the URL that answered last */
	/* loop thread */
	unsigned int nreqs;
	bool failed; /* the last request did */
	char error[ETCD_ERROR_MAX];
	struct pool_metrics *metrics; /* borrows; NULL: none */
	struct pool_counter requests, failures;
	struct pool_gauge uses_tls, cert_left;
	_Atomic int64_t cert_expires; /* wall clock, in s; 0: no certificate */
	void (*closed)(void *arg);
	void *closed_arg;
};

static const char *const paths[] = {
	[ETCD_RANGE] = "/v3/kv/range",
	[ETCD_TXN] = "/v3/kv/txn",
	[ETCD_GRANT] = "/v3/lease/grant",
	[ETCD_KEEPALIVE] = "/v3/lease/keepalive",
	[ETCD_REVOKE] = "/v3/lease/revoke",
	[ETCD_LOGIN] = "/v3/auth/authenticate",
};

/* ---- kv-etcd: attempts ---- */

static void finish_req(struct etcd_req *r, int err);

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct etcd_req *r = arg;
	char *text;

	n *= size;
	if (r->len + n > ANSWER_MAX)
		return 0;
	text = realloc(r->text, r->len + n + 1);
	if (!text)
		return 0;
	memcpy(text + r->len, data, n);
	r->text = text;
	r->len += n;
	return n;
}

/* Called for each new connection: reads the files, which may have been renewed.
 */
static CURLcode on_ssl_ctx(CURL *curl, void *ssl_ctx, void *arg)
{
	struct etcd_req *r = arg;
	struct etcd *e = r->e;
	char why[ETCD_WHY];
	int64_t expires;

	(void)curl;
	if (etcd_access_ctx(&e->access, ssl_ctx, &expires, why)) {
		snprintf(r->error, sizeof(r->error), "%s", why);
		r->bad_files = true;
		return CURLE_SSL_CERTPROBLEM;
	}
	atomic_store(&e->cert_expires, expires);
	return CURLE_OK;
}

/* A libcurl that lacks one of these options cannot be used. Sessions are not
 * resumed, as that skips the checks of certificates. CAs, those of on_ssl_ctx
 * included, are not cached, which libcurl does for a day by default. */
static int setup_tls(struct etcd *e, struct etcd_req *r)
{
	CURL *c = r->curl;

	if (curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L) ||
	    curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L) ||
	    curl_easy_setopt(c, CURLOPT_SSLVERSION,
			     (long)CURL_SSLVERSION_TLSv1_2) ||
	    curl_easy_setopt(c, CURLOPT_SSL_SESSIONID_CACHE, 0L) ||
	    curl_easy_setopt(c, CURLOPT_CA_CACHE_TIMEOUT, 0L) ||
	    curl_easy_setopt(c, CURLOPT_SSL_CTX_FUNCTION, on_ssl_ctx) ||
	    curl_easy_setopt(c, CURLOPT_SSL_CTX_DATA, r))
		return -ENOTSUP;
	/* Only these CAs. Set here, too, as on_ssl_ctx is called before or
	 * after, depending on libcurl's version. */
	if (!e->access.ca)
		return 0;
	if (curl_easy_setopt(c, CURLOPT_CAINFO, e->access.ca) ||
	    curl_easy_setopt(c, CURLOPT_CAPATH, NULL))
		return -ENOTSUP;
	return 0;
}

static int set_headers(struct etcd *e, struct etcd_req *r)
{
	char token[ETCD_AUTH_HEADER_MAX];
	struct curl_slist *more;

	curl_slist_free_all(r->headers);
	/* No "Expect: 100-continue", which costs a round trip. */
	r->headers = curl_slist_append(NULL, "Expect:");
	if (!r->headers)
		return -ENOMEM;
	r->serial = r->method == ETCD_LOGIN ? 0 : etcd_auth_serial(&e->auth);
	if (r->serial && etcd_auth_header(&e->auth, token, sizeof(token))) {
		more = curl_slist_append(r->headers, token);
		explicit_bzero(token, sizeof(token));
		if (!more)
			return -ENOMEM;
	}
	curl_easy_setopt(r->curl, CURLOPT_HTTPHEADER, r->headers);
	return 0;
}

static int setup(struct etcd *e, struct etcd_req *r, const char *url,
		 uint64_t timeout_ms)
{
	unsigned int life_s = e->access.conn_life_s;
	CURL *c = r->curl;
	int err;

	r->len = 0;
	r->detail[0] = 0;
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, e->tls ? "https" : "http");
	curl_easy_setopt(c, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(c, CURLOPT_MAXLIFETIME_CONN,
			 (long)(life_s ? life_s : ETCD_CONN_LIFE_S));
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(c, CURLOPT_ERRORBUFFER, r->detail);
	curl_easy_setopt(c, CURLOPT_PRIVATE, r);
	err = set_headers(e, r);
	if (!err && e->tls)
		err = setup_tls(e, r);
	if (err == -ENOTSUP)
		snprintf(r->error, sizeof(r->error),
			 "%s: this libcurl cannot do what https needs here; "
			 "install one that is built with OpenSSL",
			 e->url[r->url]);
	return err;
}

/* Start an attempt at r->url, with its share of the time that is left. */
static int attempt(struct etcd *e, struct etcd_req *r)
{
	uint64_t now = pool_now_ms(), share;
	char url[512];
	int err;

	if (now >= r->end_ms)
		return -ETIMEDOUT;
	share = (r->end_ms - now) / (e->nurls - r->tries);
	snprintf(url, sizeof(url), "%s%s", e->url[r->url], paths[r->method]);
	err = setup(e, r, url, share ? share : 1);
	if (err)
		return err;
	r->tries++;
	return curl_multi_add_handle(e->multi, r->curl) ? -ENOMEM : 0;
}

static bool text_has(const struct etcd_req *r, const char *what)
{
	return r->text && memmem(r->text, r->len, what, strlen(what));
}

/* An answer that is not JSON comes from etcd's HTTP server. */
static const char *remedy_of_text(const struct etcd_req *r)
{
	if (text_has(r, "HTTP request to an HTTPS server"))
		return "; it requires https://";
	if (text_has(r, "CommonName of client"))
		return "; an etcd with --client-cert-auth and users accepts "
		       "here only a certificate without a common name: issue "
		       "the one for --etcd-cert with an empty subject";
	return "; is this an etcd? Correct --etcd";
}

/* The operator's remedy for etcd's refusal; or "". */
static const char *remedy(const struct etcd_req *r, const char *text, int code)
{
	if (!text)
		return remedy_of_text(r);
	if (strstr(text, "user name is empty"))
		return "; it requires --etcd-user and --etcd-password-file";
	if (strstr(text, "invalid user ID or password"))
		return "; correct --etcd-user or the file of "
		       "--etcd-password-file";
	if (code == CODE_DENIED)
		return "; the user lacks permission: etcdctl role "
		       "grant-permission ROLE readwrite --prefix=true "
		       "/kvpool/CLUSTER/";
	return "";
}

static bool wants_token(const char *text, int code, long status)
{
	return code == CODE_UNAUTHENTICATED || status == 401 ||
	       strstr(text, "user name is empty") ||
	       strstr(text, "revision of auth store is old") ||
	       strstr(text, "revision in header is old");
}

/* In streams, such as keepalive, the error is an object. */
static const char *refusal(const json_t *json, int *ret_code)
{
	const json_t *error = json_object_get(json, "error");
	bool stream = json_is_object(error);

	*ret_code = (int)json_integer_value(
		stream ? json_object_get(error, "grpc_code") :
			 json_object_get(json, "code"));
	return json_string_value(stream ? json_object_get(error, "message") :
					  error);
}

static int etcd_refused(struct etcd_req *r, const json_t *json, long status)
{
	int code;
	const char *text = refusal(json, &code);

	snprintf(r->error, sizeof(r->error), "%s: %s (HTTP %ld)%s",
		 r->e->url[r->url], text ? text : "not an answer of etcd",
		 status, remedy(r, text, code));
	if (!text)
		return status >= 500 ? -EHOSTUNREACH : -EPROTO;
	if (code == CODE_UNAVAILABLE || code == CODE_DEADLINE || status >= 500)
		return -EHOSTUNREACH;
	if (r->method == ETCD_LOGIN)
		return strstr(text, "authentication is not enabled") ?
			       -ENOENT : -EKEYREJECTED;
	if (wants_token(text, code, status))
		return ERR_TOKEN;
	return code == CODE_NOT_FOUND ? -ENOENT : -EREMOTEIO;
}

/* The HTTP exchange is complete: 0 and r->answer, or -errno. */
static int parse_answer(struct etcd_req *r)
{
	json_t *json, *result;
	long status = 0;
	int err = 0;

	curl_easy_getinfo(r->curl, CURLINFO_RESPONSE_CODE, &status);
	json = json_loadb(r->text ? r->text : "", r->len, 0, NULL);
	if (status != 200 || !json_is_object(json) ||
	    json_object_get(json, "error")) {
		err = etcd_refused(r, json, status);
	} else {
		/* In streams, such as keepalive, each message is wrapped. */
		result = json_object_get(json, "result");
		r->answer = json_incref(result ? result : json);
	}
	json_decref(json);
	return err;
}

/* We do not accept etcd's certificate. libcurl checks its names before it sets
 * the result of the verification. */
static void explain_verify(struct etcd_req *r)
{
	const char *url = r->e->url[r->url];
	long rc = X509_V_OK;

	curl_easy_getinfo(r->curl, CURLINFO_SSL_VERIFYRESULT, &rc);
	if (rc != X509_V_OK && rc != X509_V_ERR_UNSPECIFIED)
		snprintf(r->error, sizeof(r->error),
			 "%s: its certificate is not accepted: %s; %s must be "
			 "the CA that signed it, and the clocks must be right",
			 url, X509_verify_cert_error_string(rc),
			 r->e->access.ca ? "--etcd-ca" :
					   "--etcd-ca (not given)");
	else
		snprintf(r->error, sizeof(r->error),
			 "%s: its certificate is not for this host: %s; use a "
			 "name or address that is in it (subjectAltName), or "
			 "issue a certificate that names this host",
			 url, r->detail);
}

/* Does OpenSSL's error mean that etcd refuses our certificate? An etcd that
 * requires one may also just close the connection. */
static bool refuses_cert(const struct etcd_req *r, CURLcode rc)
{
	if (!r->e->tls || rc == CURLE_COULDNT_CONNECT ||
	    rc == CURLE_COULDNT_RESOLVE_HOST || rc == CURLE_OPERATION_TIMEDOUT)
		return false;
	return strstr(r->detail, "alert") &&
	       (strstr(r->detail, "certificate") ||
		strstr(r->detail, "unknown ca") ||
		strstr(r->detail, "access denied"));
}

static const char *hint(const struct etcd_req *r, CURLcode rc)
{
	if (rc == CURLE_SSL_CONNECT_ERROR &&
	    (strstr(r->detail, "wrong version number") ||
	     strstr(r->detail, "SSL_ERROR_SYSCALL") ||
	     strstr(r->detail, "reset by peer")))
		return "; perhaps it requires http://";
	if (rc == CURLE_GOT_NOTHING && !r->e->tls)
		return "; perhaps it requires https://";
	if (r->e->tls && !r->e->access.cert &&
	    (rc == CURLE_RECV_ERROR || rc == CURLE_SEND_ERROR ||
	     rc == CURLE_GOT_NOTHING))
		return "; perhaps it requires --etcd-cert and --etcd-key";
	return "";
}

static int transport_error(struct etcd_req *r, CURLcode rc)
{
	const char *url = r->e->url[r->url];

	if (r->bad_files)
		return -EKEYREJECTED;
	if (rc == CURLE_PEER_FAILED_VERIFICATION) {
		explain_verify(r);
		return -EKEYREJECTED;
	}
	if (refuses_cert(r, rc)) {
		snprintf(r->error, sizeof(r->error),
			 "%s: it does not accept %s: %s; its --trusted-ca-file "
			 "must be the CA that signed --etcd-cert",
			 url,
			 r->e->access.cert ? "our certificate" :
					     "us without --etcd-cert and "
					     "--etcd-key",
			 r->detail);
		return -EKEYREJECTED;
	}
	snprintf(r->error, sizeof(r->error), "%s: %s%s", url,
		 r->detail[0] ? r->detail : curl_easy_strerror(rc),
		 hint(r, rc));
	if (rc == CURLE_WRITE_ERROR)
		return -EMSGSIZE;
	return rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH;
}

static int proceed(struct etcd *e, struct etcd_req *r);

/* Could another member succeed? */
static bool is_of_member(const struct etcd_req *r, CURLcode rc, int err)
{
	if (rc)
		return err != -EMSGSIZE && !r->bad_files;
	return err == -EHOSTUNREACH || err == -EPROTO;
}

/* The same URL is used again, so this attempt does not count. */
static bool again_with_token(struct etcd *e, struct etcd_req *r)
{
	etcd_auth_refused(&e->auth, r->serial, pool_now_ms());
	if (r->logins++ >= ETCD_LOGINS_MAX)
		return false;
	r->tries--;
	return !proceed(e, r);
}

static void attempt_over(struct etcd *e, struct etcd_req *r, CURLcode rc)
{
	int err = rc ? transport_error(r, rc) : parse_answer(r);

	curl_multi_remove_handle(e->multi, r->curl);
	if (!err)
		e->last_good = r->url;
	if (!err && r->serial)
		etcd_auth_accepted(&e->auth);
	if (is_of_member(r, rc, err) && r->tries < e->nurls) {
		r->url = (r->url + 1) % e->nurls;
		if (!attempt(e, r))
			return;
	}
	if (err == ERR_TOKEN) {
		if (e->access.user && again_with_token(e, r))
			return;
		err = -EKEYREJECTED;
	}
	finish_req(r, err);
}

static void begin(struct etcd *e, struct etcd_req *r, unsigned int url)
{
	int err;

	pool_list_add_tail(&e->active, &r->link);
	r->url = url;
	r->curl = curl_easy_init();
	err = r->curl ? proceed(e, r) : -ENOMEM;
	if (err)
		finish_req(r, err);
}

/* ---- kv-etcd: tokens ---- */

/* url: the member that requires a token. The login is sent to it first. */
static int start_login(struct etcd *e, unsigned int url)
{
	struct etcd_req *r = &e->login;
	int err;

	memset(r, 0, sizeof(*r));
	r->e = e;
	r->method = ETCD_LOGIN;
	r->end_ms = pool_now_ms() + ETCD_LOGIN_MS;
	err = etcd_auth_body(&e->auth, &r->body, r->error);
	if (err)
		return err;
	e->logging_in = true;
	begin(e, r, url);
	return 0;
}

/* Sends r, or, if it needs a token first, has it wait for one. */
static int proceed(struct etcd *e, struct etcd_req *r)
{
	uint64_t now = pool_now_ms();
	int err;

	if (r->method == ETCD_LOGIN || etcd_auth_ready(&e->auth))
		return attempt(e, r);
	if (!e->logging_in) {
		err = etcd_auth_due(&e->auth, now, r->error);
		if (err)
			return err;
	}
	pool_list_del(&r->link);
	pool_list_add_tail(&e->waiting, &r->link);
	if (e->logging_in)
		return 0;
	err = start_login(e, r->url);
	if (!err)
		return 0;
	etcd_auth_failed(&e->auth, -EKEYREJECTED, now, e->login.error);
	snprintf(r->error, sizeof(r->error), "%s", e->login.error);
	return -EKEYREJECTED;
}

/* The login has ended: err 0 and a token, or an error and the login's text. */
static void end_waiting(struct etcd *e, int err)
{
	struct pool_list waiting, *it, *tmp;

	pool_list_init(&waiting);
	pool_list_splice(&waiting, &e->waiting);
	pool_list_each(it, tmp, &waiting) {
		struct etcd_req *r = pool_list_entry(it, struct etcd_req, link);
		int rc = err;

		pool_list_del(&r->link);
		pool_list_add_tail(&e->active, &r->link);
		if (err)
			snprintf(r->error, sizeof(r->error), "%s",
				 e->login.error);
		else
			rc = proceed(e, r);
		if (rc)
			finish_req(r, rc);
	}
}

static void login_over(struct etcd *e, int err)
{
	struct etcd_req *r = &e->login;
	uint64_t now = pool_now_ms();

	e->logging_in = false;
	if (!err)
		err = etcd_auth_granted(&e->auth, r->answer, now, r->error);
	if (err == -ENOENT) {
		etcd_auth_not_enabled(&e->auth);
		err = etcd_auth_ready(&e->auth) ? 0 : -ENOMEM;
	}
	if (err && err != -ECANCELED)
		etcd_auth_failed(&e->auth, err, now, r->error);
	json_decref(r->answer);
	if (r->text)
		explicit_bzero(r->text, r->len); /* it has the token */
	free(r->text);
	etcd_auth_free_body(r->body);
	end_waiting(e, err);
}

/* Waiting requests end at their own deadlines. */
static void expire_waiting(struct etcd *e)
{
	uint64_t now = pool_now_ms();
	struct pool_list *it, *tmp;

	pool_list_each(it, tmp, &e->waiting) {
		struct etcd_req *r = pool_list_entry(it, struct etcd_req, link);

		if (now < r->end_ms)
			continue;
		snprintf(r->error, sizeof(r->error),
			 "%s: no token for --etcd-user in time",
			 e->url[r->url]);
		finish_req(r, -ETIMEDOUT);
	}
}

/* ---- kv-etcd: its loop ---- */

/* Begin the submitted requests; false: the thread must end. */
static bool take_submitted(struct etcd *e)
{
	struct pool_list asked, *it, *tmp;
	bool closing;

	pool_list_init(&asked);
	uv_mutex_lock(&e->lock);
	pool_list_splice(&asked, &e->submitted);
	closing = e->closing;
	uv_mutex_unlock(&e->lock);
	pool_list_each(it, tmp, &asked) {
		struct etcd_req *r = pool_list_entry(it, struct etcd_req, link);

		pool_list_del(&r->link);
		begin(e, r, e->last_good);
	}
	return !closing;
}

static void run(void *arg)
{
	struct etcd *e = arg;
	struct etcd_req *r;
	CURLMsg *msg;
	int n;

	pthread_setname_np(pthread_self(), "kv-etcd");
	while (take_submitted(e)) {
		curl_multi_perform(e->multi, &n);
		while ((msg = curl_multi_info_read(e->multi, &n))) {
			curl_easy_getinfo(msg->easy_handle, CURLINFO_PRIVATE,
					  (char **)&r);
			attempt_over(e, r, msg->data.result);
		}
		expire_waiting(e);
		curl_multi_poll(e->multi, NULL, 0,
				pool_list_empty(&e->waiting) ? POLL_MS :
							       EXPIRE_MS,
				NULL);
	}
	pool_list_splice(&e->active, &e->waiting);
	while (!pool_list_empty(&e->active)) {
		r = pool_list_first(&e->active, struct etcd_req, link);
		curl_multi_remove_handle(e->multi, r->curl);
		finish_req(r, -ECANCELED);
	}
}

/* ---- answers ---- */

static void deliver(struct pool_mail *mail)
{
	struct etcd_req *r = pool_container_of(mail, struct etcd_req, mail);
	struct etcd *e = r->e;
	json_t *answer = r->answer;

	e->nreqs--;
	pool_count(&e->requests);
	if (r->err != -ECANCELED)
		e->failed = r->err && r->err != -ENOENT;
	if (r->err) {
		pool_count(&e->failures);
		snprintf(e->error, sizeof(e->error), "%s", r->error);
	}
	free(r->body);
	free(r->text);
	r->cb(r, r->err, answer);
	json_decref(answer);
}

/* For JSON and logs: the text may come from elsewhere, or be cut off within a
 * character. */
static void make_ascii(char *text)
{
	for (; *text; text++)
		if (*text < ' ' || *text > '~')
			*text = '?';
}

static void finish_req(struct etcd_req *r, int err)
{
	struct etcd *e = r->e;

	pool_list_del(&r->link);
	if (r->curl)
		curl_easy_cleanup(r->curl);
	curl_slist_free_all(r->headers);
	if (err && !r->error[0])
		snprintf(r->error, sizeof(r->error), "%s", strerror(-err));
	make_ascii(r->error);
	r->err = err;
	if (r == &e->login)
		login_over(e, err);
	else if (r->done)
		uv_sem_post(r->done);
	else
		pool_mailbox_post(&e->box, &r->mail, deliver);
}

/* ---- asking ---- */

static int submit(struct etcd *e, struct etcd_req *r, enum etcd_method method,
	       json_t *body, unsigned int timeout_ms, uv_sem_t *done)
{
	void (*cb)(struct etcd_req *r, int err, json_t *answer) = r->cb;

	memset(r, 0, sizeof(*r));
	r->cb = cb;
	r->e = e;
	r->method = method;
	r->done = done;
	r->end_ms = pool_now_ms() + timeout_ms;
	r->body = body ? json_dumps(body, JSON_COMPACT) : NULL;
	json_decref(body);
	if (!r->body)
		return -ENOMEM;
	if (e->nreqs >= ETCD_REQS_MAX) {
		free(r->body);
		return -ENOBUFS;
	}
	e->nreqs++;
	uv_mutex_lock(&e->lock);
	assert(!e->closing);
	pool_list_add_tail(&e->submitted, &r->link);
	uv_mutex_unlock(&e->lock);
	curl_multi_wakeup(e->multi);
	return 0;
}

int etcd_start(struct etcd *e, struct etcd_req *r, enum etcd_method method,
	       json_t *body, unsigned int timeout_ms)
{
	return submit(e, r, method, body, timeout_ms, NULL);
}

/* etcd_call reads the answer from the request itself. */
static void no_cb(struct etcd_req *r, int err, json_t *answer)
{
	(void)r;
	(void)err;
	(void)answer;
}

int etcd_call(struct etcd *e, enum etcd_method method, json_t *body,
	      unsigned int timeout_ms, json_t **ret_answer)
{
	struct etcd_req r = { .cb = no_cb };
	uv_sem_t done;
	int err = uv_sem_init(&done, 0);

	if (err) {
		json_decref(body);
		return err;
	}
	err = submit(e, &r, method, body, timeout_ms, &done);
	if (!err) {
		uv_sem_wait(&done);
		if (!r.err)
			*ret_answer = json_incref(r.answer);
		err = r.err;
		deliver(&r.mail);
	}
	uv_sem_destroy(&done);
	return err;
}

/* ---- open and close ---- */

static void free_etcd(struct etcd *e)
{
	if (e->multi)
		curl_multi_cleanup(e->multi);
	uv_mutex_destroy(&e->lock);
	if (e->metrics)
		pool_metrics_remove(e->metrics, e, sizeof(*e));
	etcd_auth_fini(&e->auth);
	free(e->url_buf);
	free(e);
}

static void end_thread(struct etcd *e)
{
	uv_mutex_lock(&e->lock);
	e->closing = true;
	uv_mutex_unlock(&e->lock);
	curl_multi_wakeup(e->multi);
	uv_thread_join(&e->thread);
}

static void before_print(void *arg)
{
	struct etcd *e = arg;
	int64_t expires = atomic_load(&e->cert_expires);

	pool_gauge_set(&e->cert_left,
		       expires ? expires - (int64_t)(pool_wall_ns() /
						     1000000000u) : 0);
}

static int register_tls(struct etcd *e, struct pool_metrics *m)
{
	static const char expires[] = "kvpool_etcd_certificate_expires_seconds";
	int err = pool_metrics_gauge(m, &e->uses_tls, "kvpool_etcd_tls", NULL,
				     "1: etcd is reached by https; 0: by "
				     "http.");

	if (!err)
		err = pool_metrics_gauge(m, &e->cert_left, expires, NULL,
					 "Time until the certificate of "
					 "--etcd-cert expires; 0: none has "
					 "been used.");
	return err ? err : pool_metrics_on_print(m, before_print, e);
}

static int register_metrics(struct etcd *e, struct pool_metrics *m)
{
	int err = pool_metrics_counter(m, &e->requests,
				       "kvpool_etcd_requests_total", NULL,
				       "Requests to etcd that have ended.");

	if (!err)
		err = pool_metrics_counter(m, &e->failures,
					   "kvpool_etcd_requests_failed_total",
					   NULL,
					   "Requests to etcd that failed.");
	if (!err)
		err = etcd_auth_metrics(&e->auth, m);
	return err ? err : register_tls(e, m);
}

static int prepare(struct etcd *e)
{
	int n;

	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	e->multi = curl_multi_init();
	if (!e->multi)
		return -ENOMEM;
	n = etcd_urls_split(e->access.urls, e->url, &e->url_buf);
	if (n < 0)
		return n;
	e->nurls = (unsigned int)n;
	e->tls = etcd_urls_tls(e->access.urls);
	pool_gauge_set(&e->uses_tls, e->tls);
	return 0;
}

int etcd_open(uv_loop_t *loop, const struct etcd_access *access,
	      struct pool_metrics *metrics, struct etcd **ret_etcd)
{
	struct etcd *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->loop = loop;
	e->access = *access;
	e->metrics = metrics;
	etcd_auth_init(&e->auth, &e->access);
	pool_list_init(&e->submitted);
	pool_list_init(&e->active);
	pool_list_init(&e->waiting);
	uv_mutex_init(&e->lock);
	err = prepare(e);
	if (!err && metrics)
		err = register_metrics(e, metrics);
	/* The thread posts nothing to the mailbox before the first request. */
	if (!err)
		err = uv_thread_create(&e->thread, run, e);
	if (err)
		goto err_free;
	err = pool_mailbox_init(&e->box, loop, NULL);
	if (err)
		goto err_thread;
	*ret_etcd = e;
	return 0;

err_thread:
	end_thread(e);
err_free:
	pool_error("etcd: %s", strerror(-err));
	free_etcd(e);
	return err;
}

static void on_box_closed(uv_handle_t *h)
{
	struct etcd *e = pool_container_of((uv_async_t *)h, struct etcd,
					   box.async);
	void (*closed)(void *arg) = e->closed;
	void *arg = e->closed_arg;

	free_etcd(e);
	if (closed)
		closed(arg);
}

void etcd_close(struct etcd *e, void (*closed)(void *arg), void *arg)
{
	e->closed = closed;
	e->closed_arg = arg;
	end_thread(e);
	pool_mailbox_drain(&e->box);
	pool_mailbox_close(&e->box, on_box_closed);
}

const struct etcd_access *etcd_access(const struct etcd *e)
{
	return &e->access;
}

bool etcd_healthy(const struct etcd *e)
{
	return !e->failed;
}

const char *etcd_error(const struct etcd *e)
{
	return e->error;
}
