#include <curl/curl.h>
#include <errno.h>
#include <limits.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "daemon/admin_socket.h"
#include "daemon/run_dir.h"
#include "tools/cmd.h"

#define ANSWER_MAX ((size_t)64 << 20)
#define CONNECT_TIMEOUT_MS 2000L
#define TIMEOUT_MS 30000L
#define OBJECTS_LIMIT 1000

struct answer {
	char *text;
	size_t len;
	bool too_long;
	long status;
};

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

/* local: the path of a Unix socket to connect to, or NULL. */
static CURLcode fetch(const char *url, const char *local, bool post,
		      struct answer *a)
{
	CURL *curl = curl_easy_init();
	struct curl_slist *headers;
	CURLcode rc;

	if (!curl)
		return CURLE_OUT_OF_MEMORY;
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http");
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
	/* The daemon checks Host against web pages. The name in our URL is the
	 * user's choice, so any name may pass. */
	headers = curl_slist_append(NULL, "Host: localhost");
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
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

/* Is the peer no HTTP server? For example, it is the port for nodes. */
static bool no_http(CURLcode rc)
{
	return rc == CURLE_GOT_NOTHING || rc == CURLE_RECV_ERROR ||
	       rc == CURLE_UNSUPPORTED_PROTOCOL ||
	       rc == CURLE_WEIRD_SERVER_REPLY;
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

/* Uses the Unix socket if a daemon listens on it, else TCP. */
static CURLcode fetch_from(const struct pool_hostport *hp, const char *url,
			   bool post, struct answer *a)
{
	char local[PATH_MAX];
	CURLcode rc = CURLE_COULDNT_CONNECT;

	if (find_local(hp, local, sizeof(local)))
		rc = fetch(url, local, post, a);
	return rc == CURLE_COULDNT_CONNECT ? fetch(url, NULL, post, a) : rc;
}

/* Prints errors, except -ECONNREFUSED: no daemon listens there. */
static int get(const struct pool_hostport *hp, const char *page, bool post,
	       json_t **ret_json)
{
	struct answer a = { NULL, 0, false, 0 };
	char url[8192];
	CURLcode curl;
	json_t *json;
	int n, rc = 0;

	n = snprintf(url, sizeof(url),
		     strchr(hp->host, ':') ? "http://[%s]:%u%s" :
					     "http://%s:%u%s",
		     hp->host, hp->port, page);
	if (n < 0 || (size_t)n >= sizeof(url))
		return -ENAMETOOLONG;
	curl = fetch_from(hp, url, post, &a);
	if (curl == CURLE_COULDNT_CONNECT) {
		rc = -ECONNREFUSED;
	} else if (curl != CURLE_OK) {
		fprintf(stderr, "kvpool: %s: %s%s\n", url,
			a.too_long ? "the answer is too long" :
				     curl_easy_strerror(curl),
			no_http(curl) ?
				": is this an admin address (by default port "
				"7071 of a master, 7073 of a node)?" :
				"");
		rc = -EREMOTEIO;
	} else if (a.status != 200) {
		rc = print_refusal(url, &a);
	} else {
		json = json_loads(a.text ? a.text : "", 0, NULL);
		if (json) {
			*ret_json = json;
		} else {
			fprintf(stderr,
				"kvpool: %s: the answer is no JSON; is this a "
				"kvpool daemon?\n",
				url);
			rc = -EBADMSG;
		}
	}
	free(a.text);
	return rc;
}

static int get_given(const struct pool_hostport *admin, const char *page,
		     bool post, json_t **ret_json)
{
	int rc = get(admin, page, post, ret_json);

	if (rc == -ECONNREFUSED)
		fprintf(stderr, "kvpool: nobody answers at %s:%u\n",
			admin->host, admin->port);
	return rc;
}

static int ask(struct pool_hostport *admin, const char *page, bool post,
	       json_t **ret_json)
{
	struct pool_hostport hp;
	int rc;

	if (admin->host[0])
		return get_given(admin, page, post, ret_json);
	pool_parse_hostport(CMD_NODE_ADMIN, 0, &hp);
	rc = get(&hp, page, post, ret_json);
	if (rc == -ECONNREFUSED) {
		pool_parse_hostport(CMD_MASTER_ADMIN, 0, &hp);
		rc = get(&hp, page, post, ret_json);
		if (!rc)
			fprintf(stderr,
				"kvpool: no node at " CMD_NODE_ADMIN
				"; asking the master at " CMD_MASTER_ADMIN
				"\n");
	}
	if (rc == -ECONNREFUSED)
		fprintf(stderr,
			"kvpool: nobody answers at " CMD_NODE_ADMIN
			" (a node) nor " CMD_MASTER_ADMIN " (a master); "
			"say whom to ask with --admin HOST:PORT\n");
	if (!rc)
		*admin = hp;
	return rc;
}

int cmd_get(struct pool_hostport *admin, const char *page, json_t **ret_json)
{
	return ask(admin, page, false, ret_json);
}

int cmd_post(struct pool_hostport *admin, const char *page, json_t **ret_json)
{
	return ask(admin, page, true, ret_json);
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
