#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "daemon/admin.h"
#include "daemon/admin_http.h"
#include "daemon/admin_socket.h"
#include "pool/base/clock.h"

#define BODY_MAX 65536

/* One HTTP request, made on a thread of its own while the loop runs. */
struct request {
	char url[32768];
	const char *method; /* NULL: GET */
	const char *post;   /* a body, or NULL */
	const char *header; /* an additional header line, or NULL */
	const char *more;   /* and another */
	const char *host;   /* value of Host; NULL: 127.0.0.1 */
	const char *local;  /* the daemon's Unix socket, used instead of TCP */
	/* out */
	CURLcode rc;
	long status;
	char type[128], allow[64];
	char body[BODY_MAX];
	size_t len;
	curl_off_t announced; /* Content-Length */
	uv_async_t done;
};

static struct pool_trust trust;
static struct {
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct pool_counter counter;
	struct daemon_admin *admin;
	bool ready;
	char why[600];
	int changes;
	unsigned int closed;
	/* slow_page: number of calls; turns of the loop; the turn and time of
	 * its last return */
	unsigned int slow, turns, slow_turn;
	uint64_t slow_ns;
	bool slow_twice; /* in one turn */
	uint64_t rest_ns; /* shortest time between two calls */
} t;

static bool is_ready(void *arg)
{
	assert_ptr_equal(arg, &t);
	return t.ready;
}

static const char *why_not(void *arg)
{
	assert_ptr_equal(arg, &t);
	return t.why;
}

static json_t *echo_page(void *arg, const struct daemon_admin_query *q,
			 unsigned int *ret_status, const char **ret_text)
{
	const char *text = q->get(q, "text");

	assert_ptr_equal(arg, &t);
	if (!text) {
		*ret_status = 400;
		*ret_text = "text: missing";
		return NULL;
	}
	return json_pack("{s:s}", "text", text);
}

/* Longer than any socket buffer holds. */
static json_t *long_page(void *arg, const struct daemon_admin_query *q,
			 unsigned int *ret_status, const char **ret_text)
{
	json_t *list = json_array();

	(void)arg;
	(void)q;
	(void)ret_status;
	(void)ret_text;
	for (int i = 0; i < 200000; i++)
		json_array_append_new(list, json_string("0123456789abcdef"
							"0123456789abcdef"));
	return list;
}

#define SLOW_NS 20000000u

static json_t *slow_page(void *arg, const struct daemon_admin_query *q,
			 unsigned int *ret_status, const char **ret_text)
{
	uint64_t start_ns = pool_now_ns();

	(void)arg;
	(void)q;
	(void)ret_status;
	(void)ret_text;
	if (t.slow++) {
		t.slow_twice |= t.turns == t.slow_turn;
		if (start_ns - t.slow_ns < t.rest_ns)
			t.rest_ns = start_ns - t.slow_ns;
	}
	while (pool_now_ns() - start_ns < SLOW_NS)
		;
	t.slow_turn = t.turns;
	t.slow_ns = pool_now_ns();
	return json_object();
}

static json_t *change_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	(void)q;
	(void)ret_status;
	(void)ret_text;
	assert_ptr_equal(arg, &t);
	t.changes++;
	return json_pack("{s:i}", "changes", t.changes);
}

static const struct daemon_admin_page pages[] = {
	{ .path = "/api/echo", .fn = echo_page, .params = "other, text" },
	{ .path = "/api/long", .fn = long_page },
	{ .path = "/api/slow", .fn = slow_page },
	{ .path = "/api/names", .fn = echo_page, .params = "text",
	  .names = true },
	{ .path = "/api/change",
	  .fn = echo_page,
	  .params = "text",
	  .post = change_page,
	  .post_params = "by" },
	{ .path = NULL },
};

static int open_with(const char *host, uint64_t exchange_ms)
{
	struct daemon_admin_opts opts = {
		.loop = &t.loop,
		.pages = pages,
		.arg = &t,
		.ready = is_ready,
		.why_not = why_not,
		.names = "pool.example,kv1",
		.exchange_ms = exchange_ms,
		.trust = &trust,
	};

	memset(&t, 0, sizeof(t));
	strcpy(opts.listen.host, host);
	assert_int_equal(uv_loop_init(&t.loop), 0);
	opts.metrics = t.metrics = pool_metrics_open();
	assert_non_null(t.metrics);
	assert_int_equal(pool_metrics_counter(t.metrics, &t.counter,
					      "kvpool_things_total", NULL,
					      "Things."),
			 0);
	pool_count_add(&t.counter, 42);
	assert_int_equal(daemon_admin_open(&opts, &t.admin), 0);
	assert_int_not_equal(daemon_admin_port(t.admin), 0);
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return open_with("127.0.0.1", 0);
}

static int setup_hasty(void **state)
{
	(void)state;
	return open_with("127.0.0.1", 50);
}

static int setup_everywhere(void **state)
{
	(void)state;
	return open_with("0.0.0.0", 0);
}

static void on_closed(void *arg)
{
	assert_ptr_equal(arg, &t);
	t.closed++;
}

static int teardown(void **state)
{
	(void)state;
	daemon_admin_close(t.admin, on_closed, &t);
	assert_int_equal(t.closed, 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_int_equal(t.closed, 1);
	assert_int_equal(uv_loop_close(&t.loop), 0);
	pool_metrics_close(t.metrics);
	return 0;
}

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct request *r = arg;
	size_t take = size * n;

	/* Counts all bytes, keeps those that fit. */
	if (r->len < BODY_MAX - 1) {
		size_t fits = BODY_MAX - 1 - r->len;

		memcpy(r->body + r->len, data, take < fits ? take : fits);
	}
	r->len += take;
	return size * n;
}

static size_t on_header(char *data, size_t size, size_t n, void *arg)
{
	struct request *r = arg;

	if (size * n > 7 && strncasecmp(data, "allow: ", 7) == 0)
		snprintf(r->allow, sizeof(r->allow), "%.*s",
			 (int)(size * n - 9), data + 7);
	return size * n;
}

static void *fetch(void *arg)
{
	struct request *r = arg;
	CURL *curl = curl_easy_init();
	struct curl_slist *headers = NULL;
	const char *type = NULL;

	curl_easy_setopt(curl, CURLOPT_URL, r->url);
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 20L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
	curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, on_header);
	curl_easy_setopt(curl, CURLOPT_HEADERDATA, r);
	if (r->post)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, r->post);
	if (r->header)
		headers = curl_slist_append(NULL, r->header);
	if (r->more)
		headers = curl_slist_append(headers, r->more);
	if (r->local)
		curl_easy_setopt(curl, CURLOPT_UNIX_SOCKET_PATH, r->local);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	if (r->method && strcmp(r->method, "HEAD") == 0)
		curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
	else if (r->method)
		curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, r->method);
	r->rc = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
	curl_easy_getinfo(curl, CURLINFO_CONTENT_TYPE, &type);
	snprintf(r->type, sizeof(r->type), "%s", type ? type : "");
	curl_easy_getinfo(curl, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T,
			  &r->announced);
	curl_easy_cleanup(curl);
	curl_slist_free_all(headers);
	uv_async_send(&r->done);
	return NULL;
}

static void on_done(uv_async_t *done)
{
	uv_close((uv_handle_t *)done, NULL);
	uv_stop(done->loop);
}

/* Make the request for path and run the loop until it is answered. */
static void perform(struct request *r, const char *path)
{
	pthread_t thread;

	snprintf(r->url, sizeof(r->url), "http://%s:%u%s",
		 r->host ? r->host : "127.0.0.1", daemon_admin_port(t.admin),
		 path);
	assert_int_equal(uv_async_init(&t.loop, &r->done, on_done), 0);
	assert_int_equal(pthread_create(&thread, NULL, fetch, r), 0);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	pthread_join(thread, NULL);
	/* run the close callback of the async handle */
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

static struct request *get(const char *path)
{
	static struct request r;

	memset(&r, 0, sizeof(r));
	perform(&r, path);
	assert_int_equal(r.rc, CURLE_OK);
	return &r;
}

static void healthz_says_that_the_program_lives(void **state)
{
	struct request *r = get("/healthz");

	(void)state;
	assert_int_equal(r->status, 200);
	assert_string_equal(r->body, "ok\n");
}

/* The text of readyz is sent after its handler has returned. */
static void readyz_states_the_exact_reason(void **state)
{
	struct request *r;

	(void)state;
	strcpy(t.why, "a standby; the master is at 127.0.0.1:7070");
	r = get("/readyz");
	assert_int_equal(r->status, 503);
	assert_string_equal(r->body,
			    "a standby; the master is at 127.0.0.1:7070\n");
	memset(t.why, 'x', sizeof(t.why) - 1);
	r = get("/readyz");
	assert_int_equal(r->status, 503);
	assert_int_equal(r->len, sizeof(t.why));
	assert_memory_equal(r->body, t.why, sizeof(t.why) - 1);
	assert_int_equal(r->body[sizeof(t.why) - 1], '\n');
}

static void readyz_follows_the_programs_own_word(void **state)
{
	(void)state;
	assert_int_equal(get("/readyz")->status, 503);
	t.ready = true;
	assert_int_equal(get("/readyz")->status, 200);
	t.ready = false;
	assert_int_equal(get("/readyz")->status, 503);
}

static void metrics_are_prometheus_text(void **state)
{
	struct request *r = get("/metrics");

	(void)state;
	assert_int_equal(r->status, 200);
	assert_non_null(strstr(r->type, "text/plain; version=0.0.4"));
	assert_non_null(
		strstr(r->body, "# TYPE kvpool_things_total counter\n"));
	assert_non_null(strstr(r->body, "\nkvpool_things_total 42\n"));
}

static void pages_are_json_and_get_decoded_parameters(void **state)
{
	struct request *r = get("/api/echo?other=1&text=a%2Fb%20c%26d");
	json_t *json = json_loads(r->body, 0, NULL);

	(void)state;
	assert_int_equal(r->status, 200);
	assert_string_equal(r->type, "application/json");
	assert_string_equal(json_string_value(json_object_get(json, "text")),
			    "a/b c&d");
	json_decref(json);
}

static void what_a_page_does_not_know_is_refused(void **state)
{
	static const char *const unknown[] = { "/api/echo?text=a&tex=b",
					       "/api/echo?texts=a",
					       "/api/echo?=a",
					       "/api/echo?text%00=a",
					       "/api/echo?other,%20text=a",
					       "/api/long?a" };
	struct request *r;

	(void)state;
	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
		r = get(unknown[i]);
		assert_int_equal(r->status, 400);
		assert_non_null(strstr(r->body, i == 5 ? "accepted: none" :
						"accepted: other, text"));
	}
	r = get("/api/echo?text=%00");
	assert_int_equal(r->status, 400);
	assert_non_null(strstr(r->body, "NUL"));
	assert_int_equal(get("/api/echo?text=a%00b&other=1")->status, 400);
}

static void a_pages_error_has_its_status_and_text(void **state)
{
	struct request *r = get("/api/echo");
	json_t *json = json_loads(r->body, 0, NULL);

	(void)state;
	assert_int_equal(r->status, 400);
	assert_string_equal(json_string_value(json_object_get(json, "error")),
			    "text: missing");
	json_decref(json);
}

static void a_long_page_arrives_whole(void **state)
{
	struct request *r = get("/api/long");

	(void)state;
	assert_int_equal(r->status, 200);
	assert_true(r->len > 200000 * 34);
	assert_int_equal(r->announced, r->len);
}

static void the_root_lists_the_pages(void **state)
{
	struct request *r = get("/");

	(void)state;
	assert_int_equal(r->status, 200);
	assert_non_null(strstr(r->body, "/metrics\n"));
	assert_non_null(strstr(r->body, "/api/echo\n"));
	assert_non_null(strstr(get("/api")->body, "/api/echo\n"));
}

static void other_paths_are_not_found(void **state)
{
	(void)state;
	assert_int_equal(get("/nothing")->status, 404);
	assert_int_equal(get("/api/echo/")->status, 404);
	assert_int_equal(get("/api/")->status, 404);
}

static void head_has_the_length_and_no_body(void **state)
{
	static struct request r;
	size_t whole = get("/metrics")->len;

	(void)state;
	memset(&r, 0, sizeof(r));
	r.method = "HEAD";
	perform(&r, "/metrics");
	assert_int_equal(r.rc, CURLE_OK);
	assert_int_equal(r.status, 200);
	assert_int_equal(r.len, 0);
	assert_int_equal(r.announced, whole);
}

static long post(const char *path, const char *header, const char *host)
{
	static struct request r;

	memset(&r, 0, sizeof(r));
	r.post = "some=body";
	r.header = header;
	r.host = host;
	perform(&r, path);
	assert_int_equal(r.rc, CURLE_OK);
	return r.status;
}

static void what_changes_something_is_posted(void **state)
{
	(void)state;
	assert_int_equal(200, get("/api/change?text=x")->status);
	assert_int_equal(0, t.changes);
	assert_int_equal(200, post("/api/change", NULL, NULL));
	assert_int_equal(1, t.changes);
	/* Each method has parameters of its own. */
	assert_int_equal(200, post("/api/change?by=1", NULL, NULL));
	assert_int_equal(2, t.changes);
	assert_int_equal(400, post("/api/change?text=x", NULL, NULL));
	assert_int_equal(400, post("/api/change?by=%00", NULL, NULL));
	assert_int_equal(400, get("/api/change?by=1")->status);
	assert_int_equal(2, t.changes);
	/* A web page in a browser on this machine. */
	assert_int_equal(403, post("/api/change", "Origin: http://evil", NULL));
	assert_int_equal(2, t.changes);
	assert_int_equal(405, post("/api/none", NULL, NULL));
}

/* ---- what browsers send ---- */

static struct request *ask(const char *path, const char *host_header,
			   const char *origin)
{
	static struct request r;

	memset(&r, 0, sizeof(r));
	r.header = host_header;
	r.more = origin;
	r.post = origin ? "x" : NULL;
	perform(&r, path);
	assert_int_equal(r.rc, CURLE_OK);
	return &r;
}

static void a_name_that_was_made_to_resolve_to_us_is_refused(void **state)
{
	static const char *const good[] = {
		"Host: localhost",   "Host: LOCALHOST:80",
		"Host: 127.0.0.1:1", "Host: 127.9.9.9",
		"Host: [::1]:7073",  "Host: pool.example:7073",
		"Host: kv1.",	     "Host: Kv1"
	};
	static const char *const bad[] = {
		"Host: evil.example:7073", "Host: localhost.evil.example",
		"Host: 192.0.2.1:7073", "Host: pool.example.evil",
		"Host: pool", "Host: kv1,pool.example", "Host: :7073",
		"Host: 127.0.0.1.evil.example", "Host: [::2]:80"
	};
	char own[80] = "Host: ";
	struct request *r;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		assert_int_equal(200, ask("/metrics", good[i], NULL)->status);
	assert_int_equal(0, gethostname(own + 6, sizeof(own) - 7));
	assert_int_equal(200, ask("/metrics", own, NULL)->status);
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		r = ask("/metrics", bad[i], NULL);
		assert_int_equal(403, r->status);
		assert_non_null(strstr(r->body, bad[i] + 6));
		assert_non_null(strstr(r->body, "--admin-name"));
	}
	assert_int_equal(403, ask("/healthz", bad[0], NULL)->status);
	assert_int_equal(403, ask("/none", bad[0], NULL)->status);
}

static void posts_of_other_origins_are_refused(void **state)
{
	char host[64], origin[80];
	struct request *r;

	(void)state;
	snprintf(host, sizeof(host), "Host: localhost:%u",
		 daemon_admin_port(t.admin));
	snprintf(origin, sizeof(origin), "Origin: http://%s", host + 6);
	assert_int_equal(200, ask("/api/change", host, origin)->status);
	assert_int_equal(1, t.changes);
	r = ask("/api/change", host, "Origin: http://evil.example");
	assert_int_equal(403, r->status);
	assert_non_null(strstr(r->body, "accepted: no Origin, or"));
	assert_int_equal(403, ask("/api/change", host, "Origin: null")->status);
	assert_int_equal(403, ask("/api/change", host,
				  "Origin: http://localhost:1")->status);
	snprintf(origin, sizeof(origin), "Origin: https://%s", host + 6);
	assert_int_equal(403, ask("/api/change", host, origin)->status);
	/* DNS rebinding: Origin matches Host, but Host is not an address of
	 * ours. */
	assert_int_equal(403, ask("/api/change", "Host: evil.example",
				  "Origin: http://evil.example")->status);
	assert_int_equal(1, t.changes);
}

/* ---- the Unix socket ---- */

static char *local_dir; /* of the socket */

static const char *open_local(void)
{
	static char path[256];
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };

	local_dir = unit_dir_make("/tmp/kvt");
	assert_int_equal(0, chmod(local_dir, 0755));
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	assert_int_equal(-ENOENT, admin_socket_find(local_dir, (void *)&tcp,
						    path, sizeof(path)));
	daemon_admin_open_local(t.admin, local_dir);
	assert_int_equal(0, admin_socket_find(local_dir, (void *)&tcp, path,
					      sizeof(path)));
	return path;
}

static void remove_local(const char *path)
{
	unlink(path);
	unit_dir_remove_empty(local_dir);
}

static void the_unix_socket_serves_this_user(void **state)
{
	static struct request r;
	struct stat st;

	(void)state;
	memset(&r, 0, sizeof(r));
	r.local = open_local();
	assert_int_equal(0, stat(r.local, &st));
	assert_int_equal(0600, st.st_mode & 0777);
	perform(&r, "/metrics");
	assert_int_equal(CURLE_OK, r.rc);
	assert_int_equal(200, r.status);
	assert_non_null(strstr(r.body, "\nkvpool_things_total 42\n"));
	/* Connecting to this socket needs the same right as seeing names. */
	perform(&r, "/api/names?text=x");
	assert_int_equal(200, r.status);
	/* Browsers cannot connect to it, so Host is not checked. */
	r.header = "Host: whatever";
	r.post = "x";
	perform(&r, "/api/change");
	assert_int_equal(200, r.status);
	assert_int_equal(1, t.changes);
	remove_local(r.local);
}

/* ---- other users ---- */

#define STRANGER 65533

/* The whole answer to text, over a connection of user uid. */
static const char *talk_as(uid_t uid, const struct sockaddr *to, socklen_t len,
			   const char *text)
{
	static char got[4096];
	size_t have = 0;
	ssize_t n;
	int fd;

	assert_int_equal(0, seteuid(uid));
	fd = socket(to->sa_family, SOCK_STREAM, 0);
	n = connect(fd, to, len);
	assert_int_equal(0, seteuid(0));
	if (n) {
		close(fd);
		return NULL;
	}
	assert_int_equal(strlen(text), send(fd, text, strlen(text),
					    MSG_NOSIGNAL));
	do {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		n = recv(fd, got + have, sizeof(got) - 1 - have, MSG_DONTWAIT);
		have += n > 0 ? (size_t)n : 0;
	} while (n > 0 || (n < 0 && errno == EAGAIN));
	close(fd);
	got[have] = '\0';
	return got;
}

static void other_users_of_the_machine_change_nothing(void **state)
{
	static const char post_it[] =
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 0\r\nConnection: close\r\n\r\n";
	static const char get_it[] =
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
		"Connection: close\r\n\r\n";
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	const char *got, *path;

	(void)state;
	if (getuid() != 0) {
		print_message("skipped: needs root, to play other users\n");
		skip();
	}
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	got = talk_as(STRANGER, (void *)&tcp, sizeof(tcp), get_it);
	assert_non_null(strstr(got, "200 OK"));
	got = talk_as(STRANGER, (void *)&tcp, sizeof(tcp), post_it);
	assert_non_null(strstr(got, "403 Forbidden"));
	assert_non_null(strstr(got, "--allow-user"));
	assert_int_equal(0, t.changes);
	got = talk_as(0, (void *)&tcp, sizeof(tcp), post_it);
	assert_non_null(strstr(got, "200 OK"));
	assert_int_equal(1, t.changes);

	path = open_local();
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	assert_null(talk_as(STRANGER, (void *)&un, sizeof(un), post_it));
	/* The peer's user is checked whatever the mode of the socket file. */
	assert_int_equal(0, chmod(path, 0666));
	got = talk_as(STRANGER, (void *)&un, sizeof(un), post_it);
	assert_string_equal("", got);
	assert_int_equal(1, t.changes);
	got = talk_as(0, (void *)&un, sizeof(un), post_it);
	assert_non_null(strstr(got, "200 OK"));
	assert_int_equal(2, t.changes);
	remove_local(path);
}

static void other_users_of_the_machine_see_no_names(void **state)
{
	static const char get_it[] =
		"GET /api/names?text=x HTTP/1.1\r\nHost: localhost\r\n"
		"Connection: close\r\n\r\n";
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *got;

	(void)state;
	if (getuid() != 0) {
		print_message("skipped: needs root, to play other users\n");
		skip();
	}
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	got = talk_as(STRANGER, (void *)&tcp, sizeof(tcp), get_it);
	assert_non_null(strstr(got, "403 Forbidden"));
	assert_non_null(strstr(got, "--allow-user"));
	assert_null(strstr(got, "\"x\""));
	got = talk_as(0, (void *)&tcp, sizeof(tcp), get_it);
	assert_non_null(strstr(got, "200 OK"));
	assert_non_null(strstr(got, "\"x\""));
}

/* Of two lengths a proxy may believe the other one: what is the body for it
 * would be the next request for us. */
static void requests_that_can_be_read_in_two_ways_are_refused(void **state)
{
#define NEXT "GET /api/names?text=next HTTP/1.1\r\nHost: localhost\r\n" \
	     "Connection: close\r\n\r\n"
	static const char *const bad[] = {
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 0\r\nContent-Length: 80\r\n\r\n" NEXT,
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
		"0\r\n\r\n" NEXT,
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"transfer-encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n"
		"0\r\n\r\n" NEXT,
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 0\r\nContent-Length: 80\r\n\r\n" NEXT,
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\nhost: a.b\r\n\r\n"
		NEXT,
		"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length : 80\r\n\r\n" NEXT,
		"GET /healthz HTTP/1.1\r\n\r\n" NEXT,
	};
	static const char *const good[] = {
		"GET /healthz HTTP/1.0\r\n\r\n",
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Length: 0\r\n\r\n" NEXT,
		"POST /api/change HTTP/1.1\r\nHost: localhost\r\n"
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" NEXT,
	};
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *got;

	(void)state;
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		got = talk_as(getuid(), (void *)&tcp, sizeof(tcp), bad[i]);
		assert_non_null(strstr(got, "400 Bad Request"));
		assert_null(strstr(got, "200 OK"));
	}
	assert_int_equal(0, t.changes);
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		got = talk_as(getuid(), (void *)&tcp, sizeof(tcp), good[i]);
		assert_non_null(strstr(got, "200 OK"));
		assert_null(strstr(got, "400 Bad Request"));
	}
	assert_int_equal(2, t.changes);
#undef NEXT
}

/* A user could listen there to impersonate the daemon. */
static void sockets_of_other_users_are_not_found(void **state)
{
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	const char *path = open_local();
	char found[256];

	(void)state;
	if (getuid() != 0)
		skip();
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	assert_int_equal(0, chown(path, STRANGER, STRANGER));
	assert_int_equal(-ENOENT, admin_socket_find(local_dir, (void *)&tcp,
						    found, sizeof(found)));
	assert_int_equal(0, chown(path, 0, 0));
	assert_int_equal(0, admin_socket_find(local_dir, (void *)&tcp, found,
					      sizeof(found)));
	remove_local(path);
}

static void posts_of_other_machines_are_refused(void **state)
{
	char host[INET_ADDRSTRLEN] = "";
	struct ifaddrs *list, *i;

	(void)state;
	assert_int_equal(0, getifaddrs(&list));
	for (i = list; i; i = i->ifa_next)
		if (i->ifa_addr && i->ifa_addr->sa_family == AF_INET &&
		    !(i->ifa_flags & IFF_LOOPBACK))
			inet_ntop(AF_INET,
				  &((struct sockaddr_in *)(void *)i->ifa_addr)
					   ->sin_addr,
				  host, sizeof(host));
	freeifaddrs(list);
	assert_int_equal(200, post("/api/change", NULL, NULL));
	if (!host[0])
		skip(); /* the machine has no address but loopback */
	assert_int_equal(403, post("/api/change", NULL, host));
	assert_int_equal(1, t.changes);
}

static void other_methods_are_refused(void **state)
{
	static const char *const methods[] = { "POST", "PUT", "DELETE",
					       "OPTIONS" };
	static struct request r;

	(void)state;
	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++) {
		memset(&r, 0, sizeof(r));
		r.method = methods[i];
		r.post = i < 2 ? "some=body" : NULL;
		perform(&r, "/healthz");
		assert_int_equal(r.rc, CURLE_OK);
		assert_int_equal(r.status, 405);
		assert_string_equal(r.allow, "GET, HEAD");
	}
}

static void a_request_too_long_is_refused_and_the_next_one_served(void **state)
{
	static struct request r;
	static char path[30000];

	(void)state;
	memset(&r, 0, sizeof(r));
	memset(path, 'a', sizeof(path) - 1);
	path[0] = '/';
	perform(&r, path);
	if (r.rc == CURLE_OK)
		assert_true(r.status == 414 || r.status == 413 ||
			    r.status == 431);
	assert_int_equal(get("/healthz")->status, 200);
}

/* Idle connections do not keep others from being answered, as long as there are
 * fewer of them than the limit. */
static void silent_connections_do_not_stop_the_others(void **state)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fds[40];

	(void)state;
	addr.sin_port = htons(daemon_admin_port(t.admin));
	for (size_t i = 0; i < 40; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM, 0);
		assert_int_equal(connect(fds[i], (struct sockaddr *)&addr,
					 sizeof(addr)),
				 0);
	}
	assert_int_equal(get("/healthz")->status, 200);
	for (size_t i = 0; i < 40; i++)
		close(fds[i]);
}

/* ---- too many, too slow ---- */

static int connect_as(uid_t uid)
{
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd;

	tcp.sin_port = htons(daemon_admin_port(t.admin));
	assert_int_equal(0, seteuid(uid));
	fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(0, connect(fd, (void *)&tcp, sizeof(tcp)));
	assert_int_equal(0, seteuid(0));
	assert_int_equal(5, send(fd, "GET /", 5, MSG_NOSIGNAL));
	uv_run(&t.loop, UV_RUN_NOWAIT); /* it is accepted */
	return fd;
}

/* Opens as many connections of user uid as the server accepts; *ret_refused of
 * them are closed at once. */
static void crowd(uid_t uid, int fds[ADMIN_HTTP_CONNECTIONS_MAX],
		  unsigned int *ret_refused)
{
	char byte;

	for (int i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		fds[i] = connect_as(uid);
	assert_int_equal(200, get("/healthz")->status);
	*ret_refused = 0;
	for (int i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++) {
		ssize_t n = recv(fds[i], &byte, 1, MSG_DONTWAIT);

		*ret_refused += n == 0 || (n < 0 && errno == ECONNRESET);
	}
}

static void leave(int fds[ADMIN_HTTP_CONNECTIONS_MAX])
{
	for (int i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		close(fds[i]);
}

static bool says(const char *metric)
{
	return strstr(get("/metrics")->body, metric);
}

static void one_address_leaves_room_for_others(void **state)
{
	int fds[ADMIN_HTTP_CONNECTIONS_MAX];
	unsigned int refused;

	(void)state;
	if (getuid() != 0)
		skip();
	crowd(STRANGER, fds, &refused);
	assert_int_equal(ADMIN_HTTP_CONNECTIONS_MAX - ADMIN_HTTP_ADDRESS_MAX,
			 refused);
	assert_true(says("\nkvpool_admin_crowded_total 32\n"));
	leave(fds);
}

static void nobody_on_tcp_keeps_the_unix_sockets_user_out(void **state)
{
	int fds[ADMIN_HTTP_CONNECTIONS_MAX];
	static struct request r;

	(void)state;
	memset(&r, 0, sizeof(r));
	r.local = open_local();
	for (int i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		fds[i] = connect_as(getuid());
	perform(&r, "/healthz");
	assert_int_equal(CURLE_OK, r.rc);
	assert_int_equal(200, r.status);
	leave(fds);
	remove_local(r.local);
}

/* The time limit applies even if bytes keep arriving. */
static void a_header_that_never_ends_is_cut_off(void **state)
{
	int fd = connect_as(getuid()), sent = 0;
	char byte;

	(void)state;
	do {
		usleep(1000);
		uv_run(&t.loop, UV_RUN_NOWAIT);
		(void)send(fd, "x", 1, MSG_NOSIGNAL | MSG_DONTWAIT);
		/* a header of 16 KiB is refused for its length */
		assert_true(++sent < 8192);
	} while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	close(fd);
	assert_true(says("\nkvpool_admin_slow_total 1\n"));
}

/* A trusted user may have all connections, but a further one waits. */
static void connections_beyond_the_total_limit_wait(void **state)
{
	static const char rest[] =
		"healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	int fds[ADMIN_HTTP_CONNECTIONS_MAX], fd;
	char byte;

	(void)state;
	for (int i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		fds[i] = connect_as(getuid());
	fd = connect_as(getuid());
	assert_int_equal(sizeof(rest) - 1,
			 send(fd, rest, sizeof(rest) - 1, MSG_NOSIGNAL));
	for (int i = 0; i < 100; i++) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_true(recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	leave(fds);
	do
		uv_run(&t.loop, UV_RUN_NOWAIT);
	while (recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
	assert_int_equal('H', byte);
	close(fd);
}

/* ---- many requests ---- */

/* A connection that always has another request pipelined. */
struct flood {
	int fd;
	const char *request;
	bool stop;
};

static void *send_all(void *arg)
{
	struct flood *f = arg;
	char answers[65536];

	while (!__atomic_load_n(&f->stop, __ATOMIC_RELAXED)) {
		(void)send(f->fd, f->request, strlen(f->request),
			   MSG_NOSIGNAL | MSG_DONTWAIT);
		while (recv(f->fd, answers, sizeof(answers), MSG_DONTWAIT) > 0)
			;
	}
	return NULL;
}

static void on_turn(uv_check_t *check)
{
	(void)check;
	t.turns++;
}

/* Runs the loop for `ms`, and until so many slow requests were answered, while
 * n connections send the same request again and again. */
static void flooded(const char *request, unsigned int n, unsigned int ms,
		    unsigned int slow)
{
	struct flood f[8];
	pthread_t threads[8];
	uv_check_t check;

	uv_check_init(&t.loop, &check);
	uv_check_start(&check, on_turn);
	for (unsigned int i = 0; i < n; i++) {
		f[i] = (struct flood){ .fd = connect_as(getuid()),
				       .request = request };
		/* connect_as has sent "GET /" already. */
		assert_int_equal(0, pthread_create(&threads[i], NULL, send_all,
						   &f[i]));
	}
	for (uint64_t end = pool_now_ms() + ms;
	     pool_now_ms() < end || t.slow < slow;)
		uv_run(&t.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&check, NULL);
	for (unsigned int i = 0; i < n; i++) {
		__atomic_store_n(&f[i].stop, true, __ATOMIC_RELAXED);
		pthread_join(threads[i], NULL);
		close(f[i].fd);
	}
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

/* The loop ends its turn although the client pipelines requests. (Otherwise
 * uv_run would not return.) */
static void a_pipeline_does_not_hold_the_loop(void **state)
{
	(void)state;
	alarm(20);
	flooded("healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /", 1, 500,
		0);
	alarm(90);
	assert_true(t.turns > 5);
}

/* At most one slow request per turn, and other work gets most of the loop's
 * time. */
static void slow_pages_leave_most_of_the_time(void **state)
{
	(void)state;
	t.rest_ns = UINT64_MAX;
	flooded("api/slow HTTP/1.1\r\nHost: localhost\r\n\r\nGET /", 8, 1500,
		4);
	assert_false(t.slow_twice);
	assert_true(t.rest_ns >= 6 * (uint64_t)SLOW_NS);
	assert_false(says("\nkvpool_admin_waited_total 0\n"));
}

/* Waiting connections are served in order of arrival. */
static void waiting_connections_are_answered_in_order(void **state)
{
	int fds[4], answered[4] = { 0 };
	char got[4096];

	(void)state;
	for (int i = 0; i < 4; i++) {
		static const char rest[] =
			"api/slow HTTP/1.1\r\nHost: localhost\r\n\r\n";

		fds[i] = connect_as(getuid());
		assert_int_equal(sizeof(rest) - 1,
				 send(fds[i], rest, sizeof(rest) - 1, 0));
	}
	for (int n = 0; n < 4;) {
		uv_run(&t.loop, UV_RUN_ONCE);
		for (int i = 0; i < 4; i++)
			if (!answered[i] && recv(fds[i], got, sizeof(got),
						 MSG_DONTWAIT) > 0)
				answered[i] = ++n;
	}
	for (int i = 0; i < 4; i++) {
		assert_int_equal(i + 1, answered[i]);
		close(fds[i]);
	}
}

/* The Unix socket has no pause between requests, but still a limit of two per
 * turn of the loop: one by its timer, one by its descriptor. */
static void the_unix_socket_handles_two_requests_a_turn(void **state)
{
	static const char slow[] =
		"GET /api/slow HTTP/1.1\r\nHost: localhost\r\n\r\n";
	const char *path = open_local();
	struct sockaddr_un un = { .sun_family = AF_UNIX };
	unsigned int before;
	int fds[6];

	(void)state;
	snprintf(un.sun_path, sizeof(un.sun_path), "%s", path);
	for (int i = 0; i < 6; i++) {
		fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
		assert_int_equal(0, connect(fds[i], (void *)&un, sizeof(un)));
	}
	/* Accepting a connection counts against the limit, too: accept all of
	 * them first. */
	for (int i = 0; i < 10; i++)
		uv_run(&t.loop, UV_RUN_NOWAIT);
	for (int i = 0; i < 6; i++)
		assert_int_equal(sizeof(slow) - 1,
				 send(fds[i], slow, sizeof(slow) - 1, 0));
	while (t.slow < 6) {
		before = t.slow;
		uv_run(&t.loop, UV_RUN_ONCE);
		assert_in_range(t.slow - before, 0, 2);
	}
	for (int i = 0; i < 6; i++)
		close(fds[i]);
	uv_run(&t.loop, UV_RUN_NOWAIT);
	remove_local(path);
}

static const char slow_rest[] = "api/slow HTTP/1.1\r\nHost: localhost\r\n\r\n";

/* A later connection is answered after those that are waiting. */
static void later_connections_are_answered_later(void **state)
{
	int fds[6], answered[6] = { 0 }, there = 4;
	char got[4096];

	(void)state;
	for (int i = 0; i < there; i++) {
		fds[i] = connect_as(getuid());
		assert_int_equal(sizeof(slow_rest) - 1,
				 send(fds[i], slow_rest, sizeof(slow_rest) - 1,
				      0));
	}
	for (int n = 0; n < 6;) {
		uv_run(&t.loop, UV_RUN_ONCE);
		for (int i = 0; i < there; i++)
			if (!answered[i] && recv(fds[i], got, sizeof(got),
						 MSG_DONTWAIT) > 0)
				answered[i] = ++n;
		if (n == 0 || there == 6)
			continue;
		/* One has been answered and others wait: connect two more. */
		for (; there < 6; there++) {
			fds[there] = connect_as(getuid());
			assert_int_equal(sizeof(slow_rest) - 1,
					 send(fds[there], slow_rest,
					      sizeof(slow_rest) - 1, 0));
		}
	}
	for (int i = 0; i < 6; i++) {
		if (answered[i] != i + 1)
			fail_msg("request %d was answered as number %d", i + 1,
				 answered[i]);
		close(fds[i]);
	}
}

/* When descriptors are free again, the listening socket still works. */
static void without_a_descriptor_it_accepts_later(void **state)
{
	struct sockaddr_in tcp = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int open = connect_as(getuid()), fd = socket(AF_INET, SOCK_STREAM, 0);
	struct rlimit old, none;

	(void)state;
	tcp.sin_port = htons(daemon_admin_port(t.admin));
	assert_int_equal(0, getrlimit(RLIMIT_NOFILE, &old));
	assert_int_equal(0, connect(fd, (void *)&tcp, sizeof(tcp)));
	none = old;
	none.rlim_cur = (rlim_t)fd + 1;
	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &none));
	for (int i = 0; i < 20; i++) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	close(open);
	for (int i = 0; i < 20; i++) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
	assert_int_equal(0, setrlimit(RLIMIT_NOFILE, &old));
	assert_int_equal(200, get("/healthz")->status);
	close(fd);
}

static void an_address_in_use_is_an_error(void **state)
{
	struct daemon_admin_opts opts = {
		.loop = &t.loop,
		.listen = { "127.0.0.1", daemon_admin_port(t.admin) },
		.metrics = t.metrics,
	};
	struct daemon_admin *other = NULL;

	(void)state;
	assert_int_equal(daemon_admin_open(&opts, &other), -EADDRINUSE);
	assert_null(other);
	snprintf(opts.listen.host, sizeof(opts.listen.host), "no such host");
	assert_int_equal(daemon_admin_open(&opts, &other), -EADDRNOTAVAIL);
}

/* teardown checks that nothing is left on the loop. */
static void closing_with_an_open_connection_leaves_nothing(void **state)
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM, 0);

	(void)state;
	addr.sin_port = htons(daemon_admin_port(t.admin));
	assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)),
			 0);
	assert_int_equal(send(fd, "GET /hea", 8, 0), 8);
	uv_run(&t.loop, UV_RUN_ONCE);
	close(fd);
}

/* Pages are sent after their handlers have returned, so they must not refer to
 * the handlers' stack. */
const char *__asan_default_options(void);
const char *__asan_default_options(void)
{
	return "detect_stack_use_after_return=1";
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(healthz_says_that_the_program_lives),
		T(readyz_follows_the_programs_own_word),
		T(readyz_states_the_exact_reason),
		T(metrics_are_prometheus_text),
		T(pages_are_json_and_get_decoded_parameters),
		T(what_a_page_does_not_know_is_refused),
		T(a_pages_error_has_its_status_and_text),
		T(a_long_page_arrives_whole),
		T(the_root_lists_the_pages),
		T(other_paths_are_not_found),
		T(head_has_the_length_and_no_body),
		T(other_methods_are_refused),
		T(what_changes_something_is_posted),
		T(a_name_that_was_made_to_resolve_to_us_is_refused),
		T(posts_of_other_origins_are_refused),
		T(the_unix_socket_serves_this_user),
		T(other_users_of_the_machine_change_nothing),
		T(other_users_of_the_machine_see_no_names),
		T(requests_that_can_be_read_in_two_ways_are_refused),
		T(sockets_of_other_users_are_not_found),
		cmocka_unit_test_setup_teardown(
			posts_of_other_machines_are_refused, setup_everywhere,
			teardown),
		T(a_request_too_long_is_refused_and_the_next_one_served),
		T(one_address_leaves_room_for_others),
		T(nobody_on_tcp_keeps_the_unix_sockets_user_out),
		cmocka_unit_test_setup_teardown(
			a_header_that_never_ends_is_cut_off, setup_hasty,
			teardown),
		T(connections_beyond_the_total_limit_wait),
		T(silent_connections_do_not_stop_the_others),
		T(a_pipeline_does_not_hold_the_loop),
		T(slow_pages_leave_most_of_the_time),
		T(waiting_connections_are_answered_in_order),
		T(the_unix_socket_handles_two_requests_a_turn),
		T(later_connections_are_answered_later),
		T(without_a_descriptor_it_accepts_later),
		T(an_address_in_use_is_an_error),
		T(closing_with_an_open_connection_leaves_nothing),
	};

	alarm(90);
	unsetenv("http_proxy");
	unsetenv("ALL_PROXY");
	curl_global_init(CURL_GLOBAL_DEFAULT);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
