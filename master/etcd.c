#include "master/etcd.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <curl/curl.h>

#include "pool/base/clock.h"
#include "pool/base/log.h"
#include "pool/base/parse.h"

#define ANSWER_MAX (64u << 20)
#define POLL_MS 1000 /* new requests wake the thread up at once */

/* gRPC's codes, in etcd's error answers. */
#define CODE_DEADLINE 4
#define CODE_NOT_FOUND 5
#define CODE_UNAVAILABLE 14

struct etcd {
	uv_loop_t *loop;
	char *urls, *list; /* owns: as given; cut at the commas */
	const char *url[ETCD_URLS_MAX];
	unsigned int nurls;
	struct pool_mailbox box;
	CURLM *multi;
	uv_thread_t thread;
	struct curl_slist *headers;
	/* under lock */
	uv_mutex_t lock;
	struct pool_list submitted;
	bool closing;
	/* thread kv-etcd */
	struct pool_list active;
	unsigned int last_good; /* index of the URL that answered last */
	/* loop thread */
	unsigned int nreqs;
	bool failed; /* the last request did */
	char error[256];
	struct pool_counter requests, failures;
	void (*closed)(void *arg);
	void *closed_arg;
};

static const char *const paths[] = {
	[ETCD_RANGE] = "/v3/kv/range",
	[ETCD_TXN] = "/v3/kv/txn",
	[ETCD_GRANT] = "/v3/lease/grant",
	[ETCD_KEEPALIVE] = "/v3/lease/keepalive",
	[ETCD_REVOKE] = "/v3/lease/revoke",
};

/* ---- URLs ---- */

/* Check "http://host:port"; one trailing slash is allowed and not in *ret_len.
 */
static int check_url(const char *url, size_t len, size_t *ret_len)
{
	static const char *const schemes[] = { "http://", "https://" };
	struct pool_hostport hp;
	char text[POOL_HOST_MAX + 16];
	size_t i, head = 0;

	for (i = 0; i < 2; i++)
		if (!strncmp(url, schemes[i], strlen(schemes[i])))
			head = strlen(schemes[i]);
	if (len > head && url[len - 1] == '/')
		len--;
	if (!head || len <= head || len - head >= sizeof(text))
		return -EINVAL;
	memcpy(text, url + head, len - head);
	text[len - head] = 0;
	*ret_len = len;
	return pool_parse_hostport(text, ETCD_PORT, &hp) || !hp.port ? -EINVAL :
								       0;
}

int etcd_urls_check(const char *urls)
{
	unsigned int n = 0;
	size_t len, url_len;

	do {
		len = strcspn(urls, ",");
		if (++n > ETCD_URLS_MAX || check_url(urls, len, &url_len))
			return -EINVAL;
		urls += len + 1;
	} while (urls[-1]);
	return 0;
}

/* The list has been checked. Adds the default port, as curl's is 80. */
static int take_urls(struct etcd *e, const char *urls)
{
	static const char port[] = ":2379";
	size_t cap = strlen(urls) + ETCD_URLS_MAX * sizeof(port), len, url_len;
	char *at;

	e->urls = strdup(urls);
	e->list = at = malloc(cap);
	if (!e->urls || !e->list)
		return -ENOMEM;
	do {
		len = strcspn(urls, ",");
		if (check_url(urls, len, &url_len))
			return -EINVAL;
		e->url[e->nurls++] = at;
		memcpy(at, urls, url_len);
		at += url_len;
		if (!memchr(urls + 6, ':', url_len - 6) || at[-1] == ']') {
			memcpy(at, port, sizeof(port) - 1);
			at += sizeof(port) - 1;
		}
		*at++ = 0;
		urls += len + 1;
	} while (urls[-1]);
	return 0;
}

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

static void setup(struct etcd_req *r, const char *url, uint64_t timeout_ms)
{
	CURL *c = r->curl;

	r->len = 0;
	curl_easy_setopt(c, CURLOPT_URL, url);
	curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(c, CURLOPT_NOPROXY, "*");
	curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(c, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
	curl_easy_setopt(c, CURLOPT_HTTPHEADER, r->e->headers);
	curl_easy_setopt(c, CURLOPT_POSTFIELDS, r->body);
	curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(c, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(c, CURLOPT_PRIVATE, r);
}

/* Start an attempt at r->url, with its share of the time that is left. */
static int attempt(struct etcd *e, struct etcd_req *r)
{
	uint64_t now = pool_now_ms(), share;
	char url[512];

	if (now >= r->end_ms)
		return -ETIMEDOUT;
	share = (r->end_ms - now) / (e->nurls - r->tries);
	snprintf(url, sizeof(url), "%s%s", e->url[r->url], paths[r->method]);
	setup(r, url, share ? share : 1);
	r->tries++;
	return curl_multi_add_handle(e->multi, r->curl) ? -ENOMEM : 0;
}

static int etcd_refused(struct etcd_req *r, const json_t *json, long status)
{
	const char *text = json_string_value(json_object_get(json, "error"));
	int code = (int)json_integer_value(json_object_get(json, "code"));

	snprintf(r->error, sizeof(r->error), "%s: %s (HTTP %ld)",
		 r->e->url[r->url], text ? text : "no answer of etcd's",
		 status);
	if (!text)
		return status >= 500 ? -EHOSTUNREACH : -EPROTO;
	if (code == CODE_UNAVAILABLE || code == CODE_DEADLINE || status >= 500)
		return -EHOSTUNREACH;
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

static int transport_error(struct etcd_req *r, CURLcode rc)
{
	snprintf(r->error, sizeof(r->error), "%s: %s", r->e->url[r->url],
		 curl_easy_strerror(rc));
	if (rc == CURLE_WRITE_ERROR)
		return -EMSGSIZE;
	return rc == CURLE_OPERATION_TIMEDOUT ? -ETIMEDOUT : -EHOSTUNREACH;
}

static void attempt_over(struct etcd *e, struct etcd_req *r, CURLcode rc)
{
	int err = rc ? transport_error(r, rc) : parse_answer(r);

	curl_multi_remove_handle(e->multi, r->curl);
	if (!err)
		e->last_good = r->url;
	if ((err == -EHOSTUNREACH || err == -ETIMEDOUT || err == -EPROTO) &&
	    r->tries < e->nurls) {
		r->url = (r->url + 1) % e->nurls;
		if (!attempt(e, r))
			return;
	}
	finish_req(r, err);
}

static void begin(struct etcd *e, struct etcd_req *r)
{
	int err;

	pool_list_add_tail(&e->active, &r->link);
	r->url = e->last_good;
	r->curl = curl_easy_init();
	err = r->curl ? attempt(e, r) : -ENOMEM;
	if (err)
		finish_req(r, err);
}

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
		begin(e, r);
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
		curl_multi_poll(e->multi, NULL, 0, POLL_MS, NULL);
	}
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

static void finish_req(struct etcd_req *r, int err)
{
	struct etcd *e = r->e;

	pool_list_del(&r->link);
	if (r->curl)
		curl_easy_cleanup(r->curl);
	if (err && !r->error[0])
		snprintf(r->error, sizeof(r->error), "%s", strerror(-err));
	r->err = err;
	if (r->done)
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
	curl_slist_free_all(e->headers);
	if (e->multi)
		curl_multi_cleanup(e->multi);
	uv_mutex_destroy(&e->lock);
	free(e->urls);
	free(e->list);
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

static int register_metrics(struct etcd *e, struct pool_metrics *m)
{
	int err = pool_metrics_counter(m, &e->requests,
				       "kvpool_etcd_requests_total", NULL,
				       "Requests to etcd that have ended.");

	return err ? err :
		     pool_metrics_counter(m, &e->failures,
					  "kvpool_etcd_requests_failed_total",
					  NULL, "Those that failed.");
}

static int prepare(struct etcd *e, const char *urls)
{
	if (curl_global_init(CURL_GLOBAL_DEFAULT))
		return -ENOMEM;
	e->multi = curl_multi_init();
	/* No "Expect: 100-continue", which costs a round trip. */
	e->headers = curl_slist_append(NULL, "Expect:");
	if (!e->multi || !e->headers)
		return -ENOMEM;
	return take_urls(e, urls);
}

int etcd_open(uv_loop_t *loop, const char *urls, struct pool_metrics *metrics,
	      struct etcd **ret_etcd)
{
	struct etcd *e = calloc(1, sizeof(*e));
	int err;

	if (!e)
		return -ENOMEM;
	e->loop = loop;
	pool_list_init(&e->submitted);
	pool_list_init(&e->active);
	uv_mutex_init(&e->lock);
	err = prepare(e, urls);
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

const char *etcd_urls(const struct etcd *e)
{
	return e->urls;
}

bool etcd_healthy(const struct etcd *e)
{
	return !e->failed;
}

const char *etcd_error(const struct etcd *e)
{
	return e->error;
}
