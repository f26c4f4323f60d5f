#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include <openssl/ssl.h>

#include "daemon/admin_socket.h"
#include "daemon/run_dir.h"
#include "pool/tls/tls.h"
#include "tools/cmd.h"

#define ANSWER_MAX ((size_t)64 << 20)
#define CONNECT_TIMEOUT_MS 2000L
#define TIMEOUT_MS 30000L
#define OBJECTS_LIMIT 1000

#define DAEMONS \
	(POOL_ROLE_BIT(POOL_ROLE_MASTER) | POOL_ROLE_BIT(POOL_ROLE_NODE))

struct answer {
	char *text;
	size_t len;
	bool too_long;
	long status;
	const char *host; /* borrows: of the daemon */
	char why[POOL_TLS_WHY];	      /* its certificate was refused; or "" */
	char curl[CURL_ERROR_SIZE]; /* libcurl's error text; or "" */
};

const char *cmd_tls_dir;
static struct pool_tls *tls; /* of cmd_tls_dir, once it is needed */

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct answer *a = arg;
	char *text;

	n *= size;
	if (n > ANSWER_MAX - a->len) {
		a->too_long = true;
		return 0;
	}
	text = realloc(a->text, a->len + n + 1);
	if (!text)
		return 0;
	memcpy(text + a->len, data, n);
	a->text = text;
	a->len += n;
	text[a->len] = '\0';
	return n;
}

/* ---- TLS ---- */

/* 0 or -errno, printed. */
static int open_tls(void)
{
	char why[POOL_TLS_WHY];
	int err = 0;

	if (cmd_tls_dir && !tls)
		err = pool_tls_open(cmd_tls_dir, &tls, why);
	if (err)
		fprintf(stderr, "kvpool: --tls-dir: %s\n", why);
	return err;
}

/* Replaces OpenSSL's verification: does that, then checks that the peer is a
 * daemon of our pool and the one that was asked. */
static int verify(X509_STORE_CTX *x, void *arg)
{
	struct answer *a = arg;

	if (X509_verify_cert(x) != 1) {
		snprintf(a->why, sizeof(a->why), "its certificate is not "
			 "valid: %s",
			 X509_verify_cert_error_string(
				 X509_STORE_CTX_get_error(x)));
		return 0;
	}
	if (pool_tls_accepts(tls, X509_STORE_CTX_get0_cert(x), DAEMONS, a->host,
			     a->why))
		return 1;
	X509_STORE_CTX_set_error(x, X509_V_ERR_APPLICATION_VERIFICATION);
	return 0;
}

static CURLcode on_ssl(CURL *curl, void *ssl_ctx, void *arg)
{
	(void)curl;
	SSL_CTX_set_cert_verify_callback(ssl_ctx, verify, arg);
	return CURLE_OK;
}

static CURLcode set_file(CURL *curl, CURLoption option, const char *name)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/%s", cmd_tls_dir, name);
	return curl_easy_setopt(curl, option, path);
}

static CURLcode set_tls(CURL *curl, struct answer *a)
{
	CURLcode rc = set_file(curl, CURLOPT_CAINFO, POOL_TLS_CA);

	if (rc == CURLE_OK)
		rc = set_file(curl, CURLOPT_SSLCERT, POOL_TLS_CERT);
	if (rc == CURLE_OK)
		rc = set_file(curl, CURLOPT_SSLKEY, POOL_TLS_KEY);
	if (rc == CURLE_OK)
		rc = curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
	if (rc == CURLE_OK)
		rc = curl_easy_setopt(curl, CURLOPT_SSLVERSION,
				      (long)CURL_SSLVERSION_TLSv1_3);
	if (rc == CURLE_OK)
		rc = curl_easy_setopt(curl, CURLOPT_SSL_CTX_FUNCTION, on_ssl);
	if (rc == CURLE_OK)
		rc = curl_easy_setopt(curl, CURLOPT_SSL_CTX_DATA, a);
	return rc;
}

/* ---- one request ---- */

/* local: the path of a Unix socket to connect to, or NULL. */
static CURLcode fetch(const char *url, const char *local, bool post,
		      struct answer *a)
{
	bool secure = tls && !local;
	CURL *curl = curl_easy_init();
	struct curl_slist *headers;
	CURLcode rc = CURLE_OK;

	if (!curl)
		return CURLE_OUT_OF_MEMORY;
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR,
			 secure ? "https" : "http");
	curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, a->curl);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, TIMEOUT_MS);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, a);
	if (post)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "");
	if (local)
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, local);
	/* The daemon checks Host against web pages. The user has chosen the
	 * name in our URL, so no check is needed. */
	headers = curl_slist_append(NULL, "Host: localhost");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	if (secure)
		rc = set_tls(curl, a);
	if (rc == CURLE_OK)
		rc = curl_easy_perform(curl);
	if (rc == CURLE_OK)
		curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &a->status);
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	return rc;
}

/* Prints what is wrong with an answer that was received. */
static int print_refusal(const char *url, const struct answer *a)
{
	json_t *json = a->text ? json_loads(a->text, 0, NULL) : NULL;
	const char *text = json_string_value(json_object_get(json, "error"));

	fprintf(stderr, "kvpool: %s: %ld %s\n", url, a->status,
		text ? text : a->text ? a->text : "");
	json_decref(json);
	return a->status == 404 ? -ENOENT : -EREMOTEIO;
}

/* The remedy for an error; "": none is known. */
static const char *remedy(CURLcode rc, const struct answer *a)
{
	switch (rc) {
	case CURLE_GOT_NOTHING: /* no HTTP: the port for nodes, or TLS */
	case CURLE_UNSUPPORTED_PROTOCOL:
	case CURLE_WEIRD_SERVER_REPLY:
	case CURLE_RECV_ERROR:
		if (tls && strstr(a->curl, "alert"))
			return ": the daemon does not accept the certificate "
			       "of --tls-dir; its log says why";
		return tls ? "" :
			     ": is this an admin address (by default port "
			     "7071 of a master, 7073 of a node), and does the "
			     "pool require a certificate (--tls-dir)?";
	case CURLE_PEER_FAILED_VERIFICATION:
		return strstr(a->why, "for host") ?
			       ", or ask it by a name that its certificate "
			       "has (--admin)" : "";
	case CURLE_SSL_CONNECT_ERROR:
		return ": is this the admin address of a daemon with "
		       "--tls-dir?";
	default:
		return "";
	}
}

static void print_failure(const char *url, CURLcode rc, const struct answer *a)
{
	fprintf(stderr, "kvpool: %s: %s%s\n", url,
		a->too_long ? "the answer is too long" :
		a->why[0]   ? a->why :
		a->curl[0]  ? a->curl :
			      curl_easy_strerror(rc),
		remedy(rc, a));
}

/* The Unix socket of the daemon at hp, if it runs here and as this user. */
static bool find_local(const struct pool_hostport *hp, char *buf, size_t cap)
{
	struct addrinfo hints = { .ai_socktype = SOCK_STREAM,
				  .ai_flags = AI_NUMERICSERV },
			*list, *ai;
	const char *run_dir = getenv("KVPOOL_RUN_DIR");
	char standard[PATH_MAX], port[8];
	bool found = false;

	if (!run_dir || !run_dir[0]) {
		if (daemon_run_dir_default(standard, sizeof(standard)))
			return false;
		run_dir = standard;
	}
	snprintf(port, sizeof(port), "%u", hp->port);
	if (getaddrinfo(hp->host, port, &hints, &list))
		return false;
	for (ai = list; ai && !found; ai = ai->ai_next)
		found = admin_socket_find(run_dir, ai->ai_addr, buf, cap) == 0;
	freeaddrinfo(list);
	return found;
}

static int write_url(const struct pool_hostport *hp, const char *scheme,
		     const char *page, char *url, size_t cap)
{
	bool v6 = strchr(hp->host, ':') != NULL;
	int n = snprintf(url, cap, "%s://%s%s%s:%u%s", scheme, v6 ? "[" : "",
			 hp->host, v6 ? "]" : "", hp->port, page);

	return n < 0 || (size_t)n >= cap ? -ENAMETOOLONG : 0;
}

/* Uses the Unix socket if a daemon listens on it, else TCP. */
static CURLcode fetch_from(const struct pool_hostport *hp, const char *page,
			   bool post, char *url, size_t cap, struct answer *a)
{
	char local[PATH_MAX];
	CURLcode rc = CURLE_COULDNT_CONNECT;

	if (write_url(hp, "http", page, url, cap))
		return CURLE_URL_MALFORMAT;
	if (find_local(hp, local, sizeof(local)))
		rc = fetch(url, local, post, a);
	if (rc != CURLE_COULDNT_CONNECT)
		return rc;
	if (tls && write_url(hp, "https", page, url, cap))
		return CURLE_URL_MALFORMAT;
	return fetch(url, NULL, post, a);
}

/* Where an answer is stored. At least one of the two is NULL. */
struct wanted {
	json_t **json;
	char **text;
};

/* Prints errors, except -ECONNREFUSED: no daemon listens there. */
static int get(const struct pool_hostport *hp, const char *page, bool post,
	       struct wanted to)
{
	struct answer a = { .host = hp->host };
	char url[8192];
	CURLcode curl;
	json_t *json;
	int rc = open_tls();

	if (rc)
		return rc;
	curl = fetch_from(hp, page, post, url, sizeof(url), &a);
	if (curl == CURLE_COULDNT_CONNECT) {
		rc = -ECONNREFUSED;
	} else if (curl != CURLE_OK) {
		print_failure(url, curl, &a);
		rc = -EREMOTEIO;
	} else if (a.status != 200) {
		rc = print_refusal(url, &a);
	} else if (to.text) {
		*to.text = a.text ? a.text : strdup("");
		a.text = NULL;
		rc = *to.text ? 0 : -ENOMEM;
	} else if (to.json) {
		json = json_loads(a.text ? a.text : "", 0, NULL);
		if (json) {
			*to.json = json;
		} else {
			fprintf(stderr,
				"kvpool: %s: the answer is not JSON; is this a "
				"kvpool daemon?\n",
				url);
			rc = -EBADMSG;
		}
	}
	free(a.text);
	return rc;
}

static int get_given(const struct pool_hostport *admin, const char *page,
		     bool post, struct wanted to)
{
	int rc = get(admin, page, post, to);

	if (rc == -ECONNREFUSED)
		fprintf(stderr, "kvpool: no daemon answers at %s:%u\n",
			admin->host, admin->port);
	return rc;
}

static int ask(struct pool_hostport *admin, const char *page, bool post,
	       struct wanted to)
{
	struct pool_hostport hp;
	int rc;

	if (admin->host[0])
		return get_given(admin, page, post, to);
	pool_parse_hostport(CMD_NODE_ADMIN, 0, &hp);
	rc = get(&hp, page, post, to);
	if (rc == -ECONNREFUSED) {
		pool_parse_hostport(CMD_MASTER_ADMIN, 0, &hp);
		rc = get(&hp, page, post, to);
		if (!rc)
			fprintf(stderr,
				"kvpool: no node at " CMD_NODE_ADMIN
				"; asking the master at " CMD_MASTER_ADMIN
				"\n");
	}
	if (rc == -ECONNREFUSED)
		fprintf(stderr,
			"kvpool: no daemon answers at " CMD_NODE_ADMIN
			" (node) or "
			CMD_MASTER_ADMIN " (master);\n"
			"kvpool: give its address with --admin HOST:PORT\n");
	if (!rc)
		*admin = hp;
	return rc;
}

int cmd_get(struct pool_hostport *admin, const char *page, json_t **ret_json)
{
	return ask(admin, page, false, (struct wanted){ .json = ret_json });
}

int cmd_check(struct pool_hostport *admin, const char *page)
{
	return ask(admin, page, false, (struct wanted){ 0 });
}

int cmd_post(struct pool_hostport *admin, const char *page, json_t **ret_json)
{
	return ask(admin, page, true, (struct wanted){ .json = ret_json });
}

int cmd_get_text(struct pool_hostport *admin, const char *page, char **ret_text)
{
	return ask(admin, page, false, (struct wanted){ .text = ret_text });
}

static char *objects_page(const char *prefix, const char *token)
{
	char *p = cmd_url_escape(prefix);
	char *t = token ? cmd_url_escape(token) : NULL, *page = NULL;

	if (p && (t || !token) &&
	    asprintf(&page, "/api/objects?prefix=%s&limit=%d%s%s", p,
		     OBJECTS_LIMIT, t ? "&token=" : "", t ? t : "") < 0)
		page = NULL;
	free(p);
	free(t);
	return page;
}

int cmd_get_objects(struct pool_hostport *admin, const char *prefix,
		    char **token, json_t **ret_json, json_t **ret_rows)
{
	char *page = objects_page(prefix, *token);
	const char *next;
	int rc;

	if (!page) {
		fprintf(stderr, "kvpool: out of memory\n");
		return -ENOMEM;
	}
	rc = cmd_get(admin, page, ret_json);
	free(page);
	if (rc)
		return rc;
	*ret_rows = json_object_get(*ret_json, "objects");
	next = json_string_value(json_object_get(*ret_json, "next"));
	free(*token);
	*token = next && next[0] ? strdup(next) : NULL;
	return 0;
}
