/* The admin address with TLS: whose certificates are accepted, what each role
 * may do, and the limits. */
#include "tests/lib/unit.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "daemon/admin.h"
#include "daemon/admin_http.h"
#include "daemon/admin_tls.h"
#include "pool/base/clock.h"
#include "tests/unit/tls_pki.h"

#define LINE "0123456789abcdef0123456789abcdef"
#define LINES 200000

static struct pki_ca ca, foreign;
static char *dir_of[POOL_ROLES], *dir_foreign, *dir_cluster, *dir_limited;
static struct pool_trust trust;
static struct {
	uv_loop_t loop;
	struct pool_metrics *metrics;
	struct pool_tls *tls;
	struct daemon_admin *admin;
	int changes;
	bool closed;
} t;

/* ---- the pages ---- */

static json_t *text_page(void *arg, const struct daemon_admin_query *q,
			 unsigned int *ret_status, const char **ret_text)
{
	(void)arg;
	(void)q;
	(void)ret_status;
	(void)ret_text;
	return json_pack("{s:s}", "text", "hello");
}

/* Longer than all buffers between the server and the client. */
static json_t *long_page(void *arg, const struct daemon_admin_query *q,
			 unsigned int *ret_status, const char **ret_text)
{
	json_t *list = json_array();

	(void)arg;
	(void)q;
	(void)ret_status;
	(void)ret_text;
	for (int i = 0; i < LINES; i++)
		json_array_append_new(list, json_string(LINE));
	return list;
}

static json_t *change_page(void *arg, const struct daemon_admin_query *q,
			   unsigned int *ret_status, const char **ret_text)
{
	(void)arg;
	(void)q;
	(void)ret_status;
	(void)ret_text;
	t.changes++;
	return json_object();
}

static const struct daemon_admin_page pages[] = {
	{ .path = "/api/text", .fn = text_page },
	{ .path = "/api/long", .fn = long_page },
	{ .path = "/api/names", .fn = text_page, .names = true },
	{ .path = "/api/change", .fn = text_page, .post = change_page },
	{ .path = "/api/faults", .fn = text_page, .admin = true,
	  .post = change_page },
	{ .path = NULL },
};

/* ---- the server ---- */

static int open_with(struct pool_trust *trusted, uint64_t shake_ms,
		     uint64_t exchange_ms)
{
	char why[POOL_TLS_WHY];
	struct daemon_admin_opts opts = {
		.loop = &t.loop,
		.listen = { "127.0.0.1", 0 },
		.pages = pages,
		.trust = trusted,
		.shake_ms = shake_ms,
		.exchange_ms = exchange_ms,
	};

	memset(&t, 0, sizeof(t));
	assert_int_equal(0, pool_tls_open(dir_of[POOL_ROLE_MASTER], &t.tls,
					  why));
	assert_int_equal(0, uv_loop_init(&t.loop));
	opts.metrics = t.metrics = pool_metrics_open();
	assert_non_null(t.metrics);
	assert_int_equal(0, pool_tls_metrics(t.tls, t.metrics));
	opts.tls = t.tls;
	assert_int_equal(0, daemon_admin_open(&opts, &t.admin));
	return 0;
}

static int setup(void **state)
{
	(void)state;
	return open_with(NULL, 0, 0);
}

static int setup_trusting(void **state)
{
	(void)state;
	return open_with(&trust, 1000, 0);
}

static int setup_hasty(void **state)
{
	(void)state;
	return open_with(NULL, 100, 0);
}

static int setup_hasty_later(void **state)
{
	(void)state;
	return open_with(NULL, 0, 100);
}

static void on_closed(void *arg)
{
	(void)arg;
	t.closed = true;
}

static int teardown(void **state)
{
	(void)state;
	daemon_admin_close(t.admin, on_closed, NULL);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_true(t.closed);
	assert_int_equal(0, uv_loop_close(&t.loop));
	pool_metrics_close(t.metrics);
	pool_tls_close(t.tls);
	return 0;
}

static void run_ms(uint64_t ms)
{
	uint64_t end = pool_now_ms() + ms;

	while (pool_now_ms() < end) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		usleep(500);
	}
}

static long long counted(const char *name)
{
	char line[128], *text, *at;
	size_t len;
	long long n;

	assert_int_equal(0, pool_metrics_print(t.metrics, &text, &len));
	snprintf(line, sizeof(line), "\n%s ", name);
	at = strstr(text, line);
	assert_non_null(at);
	n = atoll(at + strlen(line));
	free(text);
	return n;
}

static void wait_counted(const char *name, long long n)
{
	for (int i = 0; i < 1000 && counted(name) < n; i++)
		run_ms(10);
	assert_int_equal(n, counted(name));
}

/* ---- clients, each on a thread ---- */

struct request {
	const char *dir; /* directory of the client's certificate; NULL: it has
			    none */
	const char *path, *header;
	bool post, plain, old, slow;
	/* out */
	CURLcode rc;
	long status;
	char body[512];
	size_t len;
	uv_async_t done;
};

static size_t on_data(char *data, size_t size, size_t n, void *arg)
{
	struct request *r = arg;

	for (size_t i = 0; i < n && r->len + i < sizeof(r->body) - 1; i++)
		r->body[r->len + i] = data[i];
	r->len += n;
	if (r->slow && r->len < 1000000)
		usleep(5000);
	return size * n;
}

static void set_file(CURL *curl, CURLoption o, const char *dir,
		     const char *name)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	curl_easy_setopt(curl, o, path);
}

static void *fetch(void *arg)
{
	struct request *r = arg;
	CURL *curl = curl_easy_init();
	struct curl_slist *headers = NULL;
	char url[256];

	snprintf(url, sizeof(url), "http%s://127.0.0.1:%u%s",
		 r->plain ? "" : "s", daemon_admin_port(t.admin), r->path);
	curl_easy_setopt(curl, CURLOPT_URL, url);
	curl_easy_setopt(curl, CURLOPT_PROXY, "");
	curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(curl, CURLOPT_TIMEOUT, 20L);
	curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
	curl_easy_setopt(curl, CURLOPT_WRITEDATA, r);
	set_file(curl, CURLOPT_CAINFO, dir_of[POOL_ROLE_NODE], POOL_TLS_CA);
	if (r->dir) {
		set_file(curl, CURLOPT_SSLCERT, r->dir, POOL_TLS_CERT);
		set_file(curl, CURLOPT_SSLKEY, r->dir, POOL_TLS_KEY);
	}
	if (r->old)
		curl_easy_setopt(curl, CURLOPT_SSLVERSION,
				 (long)CURL_SSLVERSION_TLSv1_2 |
					 (long)CURL_SSLVERSION_MAX_TLSv1_2);
	if (r->post)
		curl_easy_setopt(curl, CURLOPT_POSTFIELDS, "a=b");
	if (r->header)
		headers = curl_slist_append(NULL, r->header);
	curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
	r->rc = curl_easy_perform(curl);
	curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &r->status);
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

static void perform(struct request *r)
{
	pthread_t thread;

	assert_int_equal(0, uv_async_init(&t.loop, &r->done, on_done));
	assert_int_equal(0, pthread_create(&thread, NULL, fetch, r));
	uv_run(&t.loop, UV_RUN_DEFAULT);
	pthread_join(thread, NULL);
	uv_run(&t.loop, UV_RUN_NOWAIT);
}

static long get(const char *dir, const char *path)
{
	struct request r = { .dir = dir, .path = path };

	perform(&r);
	assert_int_equal(CURLE_OK, r.rc);
	return r.status;
}

static long post(const char *dir, const char *path)
{
	struct request r = { .dir = dir, .path = path, .post = true };

	perform(&r);
	assert_int_equal(CURLE_OK, r.rc);
	return r.status;
}

/* Neither a status nor any byte of an answer was received. */
static void assert_unanswered(struct request r)
{
	r.path = "/healthz";
	perform(&r);
	assert_int_not_equal(CURLE_OK, r.rc);
	assert_int_equal(0, r.status);
	assert_int_equal(0, r.len);
}

static int dial(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET,
				  .sin_port = htons(daemon_admin_port(t.admin)),
				  .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	assert_true(fd >= 0);
	assert_int_equal(0, connect(fd, (struct sockaddr *)&to, sizeof(to)));
	return fd;
}

/* Has the other end closed the connection without sending a byte? */
static bool is_closed(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

/* A TLS stream on a connection, after its handshake. */
static struct pool_tls_stream *shake_on(struct pool_tls *tls, int fd)
{
	const struct pool_tls_want want = {
		.dialled = true,
		.roles = POOL_ROLE_BIT(POOL_ROLE_MASTER),
		.host = "127.0.0.1",
	};
	struct pool_tls_stream *s;
	int err;

	assert_int_equal(0, pool_tls_start(tls, fd, &want, &s));
	for (int i = 0; i < 2000; i++) {
		err = pool_tls_shake(s);
		if (err != -EAGAIN)
			break;
		run_ms(1);
	}
	assert_int_equal(0, err);
	return s;
}

static struct pool_tls *open_dir(const char *dir)
{
	char why[POOL_TLS_WHY];
	struct pool_tls *tls;

	assert_int_equal(0, pool_tls_open(dir, &tls, why));
	return tls;
}

/* ---- who may do what ---- */

static void every_role_may_read(void **state)
{
	(void)state;
	for (int i = 0; i < POOL_ROLES; i++) {
		assert_int_equal(200, get(dir_of[i], "/healthz"));
		assert_int_equal(200, get(dir_of[i], "/metrics"));
		assert_int_equal(200, get(dir_of[i], "/api/text"));
		assert_int_equal(200, get(dir_of[i], "/api/names"));
	}
	assert_int_equal(4 * POOL_ROLES,
			 counted("kvpool_tls_handshakes_total"
				 "{result=\"accepted\"}"));
}

static void only_an_admin_may_change(void **state)
{
	(void)state;
	for (int i = 0; i < POOL_ROLES; i++)
		if (i != POOL_ROLE_ADMIN)
			assert_int_equal(403, post(dir_of[i], "/api/change"));
	assert_int_equal(0, t.changes);
	assert_int_equal(200, post(dir_of[POOL_ROLE_ADMIN], "/api/change"));
	assert_int_equal(1, t.changes);
}

static void only_an_admin_sees_faults(void **state)
{
	(void)state;
	for (int i = 0; i < POOL_ROLES; i++)
		assert_int_equal(i == POOL_ROLE_ADMIN ? 200 : 403,
				 get(dir_of[i], "/api/faults"));
}

static void a_limited_certificate_sees_no_names(void **state)
{
	(void)state;
	assert_int_equal(200, get(dir_limited, "/metrics"));
	assert_int_equal(403, get(dir_limited, "/api/names"));
}

/* A browser may send the user's certificate for any web page, so TLS does not
 * replace these checks. */
static void host_and_origin_are_checked(void **state)
{
	struct request r = { .dir = dir_of[POOL_ROLE_ADMIN],
			     .path = "/api/text",
			     .header = "Host: evil.example" };
	char origin[64];

	(void)state;
	perform(&r);
	assert_int_equal(403, r.status);
	r.header = "Host: 127.0.0.1:1"; /* the address of this end */
	perform(&r);
	assert_int_equal(200, r.status);
	r.path = "/api/change";
	r.post = true;
	r.header = "Origin: https://evil.example";
	perform(&r);
	assert_int_equal(403, r.status);
	/* Somebody on the path can show a page of http:// in our name. */
	snprintf(origin, sizeof(origin), "Origin: http://127.0.0.1:%u",
		 daemon_admin_port(t.admin));
	r.header = origin;
	perform(&r);
	assert_int_equal(403, r.status);
	assert_int_equal(0, t.changes);
	snprintf(origin, sizeof(origin), "Origin: https://127.0.0.1:%u",
		 daemon_admin_port(t.admin));
	perform(&r);
	assert_int_equal(200, r.status);
	assert_int_equal(1, t.changes);
}

static void strangers_get_no_answer(void **state)
{
	(void)state;
	assert_unanswered((struct request){ .plain = true });
	assert_unanswered((struct request){ .dir = NULL });
	assert_unanswered((struct request){ .dir = dir_foreign });
	assert_unanswered((struct request){ .dir = dir_cluster });
	assert_unanswered((struct request){ .dir = dir_of[POOL_ROLE_ADMIN],
					    .old = true });
	assert_int_equal(5, counted("kvpool_tls_handshakes_total"
				    "{result=\"refused\"}"));
	assert_int_equal(200, get(dir_of[POOL_ROLE_ADMIN], "/healthz"));
}

/* ---- bytes ---- */

static void a_long_page_arrives_whole(void **state)
{
	struct request r = { .dir = dir_of[POOL_ROLE_CLIENT],
			     .path = "/api/long" };

	(void)state;
	perform(&r);
	assert_int_equal(CURLE_OK, r.rc);
	assert_int_equal(200, r.status);
	assert_true(r.len > LINES * (sizeof(LINE) + 2));
}

static void a_slow_reader_gets_all(void **state)
{
	struct request r = { .dir = dir_of[POOL_ROLE_CLIENT],
			     .path = "/api/long", .slow = true };

	(void)state;
	perform(&r);
	assert_int_equal(CURLE_OK, r.rc);
	assert_true(r.len > LINES * (sizeof(LINE) + 2));
}

/* A client that pipelines requests and reads no answers: the server stops
 * reading, so that the client can send no more. */
static void reading_stops_while_the_client_does_not_read(void **state)
{
	static const char ask[] = "GET /api/text HTTP/1.1\r\n"
				  "Host: 127.0.0.1\r\n\r\n";
	static char some[(sizeof(ask) - 1) * 400];
	struct pool_tls *tls = open_dir(dir_of[POOL_ROLE_CLIENT]);
	struct iovec iov = { some, sizeof(some) };
	struct pool_tls_stream *s;
	size_t sent = 0;
	int fd = dial(), small = 65536, still = 0;
	ssize_t n;

	(void)state;
	setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	for (size_t i = 0; i < sizeof(some); i += sizeof(ask) - 1)
		memcpy(some + i, ask, sizeof(ask) - 1);
	s = shake_on(tls, fd);
	while (still < 200) {
		n = pool_tls_write(s, &iov, 1);
		still = n > 0 ? 0 : still + 1;
		if (n > 0)
			sent += (size_t)n;
		else
			assert_int_equal(-EAGAIN, n);
		assert_true(sent < 64u << 20);
		run_ms(1);
	}
	pool_tls_free(s);
	close(fd);
	pool_tls_close(tls);
}

/* ---- limits ---- */

static void a_handshake_has_a_deadline(void **state)
{
	int fd = dial();

	(void)state;
	wait_counted("kvpool_admin_slow_total", 1);
	assert_true(is_closed(fd));
	close(fd);
}

/* The handshake succeeds, and no request follows. */
static void an_exchange_has_a_deadline(void **state)
{
	struct pool_tls *tls = open_dir(dir_of[POOL_ROLE_CLIENT]);
	int fd = dial();
	struct pool_tls_stream *s = shake_on(tls, fd);

	(void)state;
	wait_counted("kvpool_admin_slow_total", 1);
	for (int i = 0; i < 2000 && !is_closed(fd); i++)
		run_ms(1);
	assert_true(is_closed(fd));
	pool_tls_free(s);
	pool_tls_close(tls);
	close(fd);
}

static void one_address_has_so_many_connections(void **state)
{
	int fds[ADMIN_HTTP_ADDRESS_MAX + 1], i;

	(void)state;
	for (i = 0; i <= ADMIN_HTTP_ADDRESS_MAX; i++)
		fds[i] = dial();
	wait_counted("kvpool_admin_crowded_total", 1);
	assert_true(is_closed(fds[ADMIN_HTTP_ADDRESS_MAX]));
	assert_false(is_closed(fds[0]));
	close(fds[0]);
	run_ms(50);
	assert_int_equal(200, get(dir_of[POOL_ROLE_NODE], "/healthz"));
	for (i = 1; i <= ADMIN_HTTP_ADDRESS_MAX; i++)
		close(fds[i]);
	run_ms(50);
}

/* Connections of a trusted local user count against the total limit only.
 * Beyond it a connection waits: here until the handshakes of the others have
 * timed out. */
static void connections_beyond_the_total_limit_wait(void **state)
{
	int fds[ADMIN_HTTP_CONNECTIONS_MAX], i;

	(void)state;
	for (i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		fds[i] = dial();
	assert_int_equal(200, get(dir_of[POOL_ROLE_NODE], "/healthz"));
	assert_true(counted("kvpool_admin_slow_total") > 0);
	assert_int_equal(0, counted("kvpool_admin_crowded_total"));
	wait_counted("kvpool_admin_slow_total", ADMIN_HTTP_CONNECTIONS_MAX);
	for (i = 0; i < ADMIN_HTTP_CONNECTIONS_MAX; i++)
		close(fds[i]);
}

/* Teardown checks that no connection is left. */
static void it_closes_with_connections_of_every_kind(void **state)
{
	struct pool_tls *tls = open_dir(dir_of[POOL_ROLE_CLIENT]);
	static const char ask[] = "GET /api/long HTTP/1.1\r\nHost: x\r\n";
	struct iovec iov = { (char *)(uintptr_t)ask, sizeof(ask) - 1 };
	int silent = dial(), idle = dial(), half = dial();
	struct pool_tls_stream *a = shake_on(tls, idle);
	struct pool_tls_stream *b = shake_on(tls, half);

	assert_int_equal(sizeof(ask) - 1, pool_tls_write(b, &iov, 1));
	run_ms(20);
	teardown(state);
	assert_true(is_closed(silent));
	pool_tls_free(a);
	pool_tls_free(b);
	pool_tls_close(tls);
	close(silent);
	close(idle);
	close(half);
}

static int setup_all(void **state)
{
	static const struct pki_want other = {
		.uri = { "kvpool://other/admin" }, .host = { "127.0.0.1" }
	};
	static const struct pki_want limited = {
		.uri = { "kvpool://test/client/models" },
		.host = { "127.0.0.1" }
	};

	(void)state;
	curl_global_init(CURL_GLOBAL_ALL);
	pki_ca_make(&ca);
	pki_ca_make(&foreign);
	for (int i = 0; i < POOL_ROLES; i++)
		dir_of[i] = pki_dir(&ca, pool_role_name((enum pool_role)i));
	dir_foreign = pki_dir(&foreign, "admin");
	dir_cluster = pki_dir_make(&ca, &ca, NULL, &other);
	dir_limited = pki_dir_make(&ca, &ca, NULL, &limited);
	return 0;
}

static int teardown_all(void **state)
{
	(void)state;
	for (int i = 0; i < POOL_ROLES; i++)
		pki_dir_free(dir_of[i]);
	pki_dir_free(dir_foreign);
	pki_dir_free(dir_cluster);
	pki_dir_free(dir_limited);
	pki_ca_free(&ca);
	pki_ca_free(&foreign);
	curl_global_cleanup();
	return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TEST(every_role_may_read),
		TEST(only_an_admin_may_change),
		TEST(only_an_admin_sees_faults),
		TEST(a_limited_certificate_sees_no_names),
		TEST(host_and_origin_are_checked),
		TEST(strangers_get_no_answer),
		TEST(a_long_page_arrives_whole),
		TEST(a_slow_reader_gets_all),
		TEST(reading_stops_while_the_client_does_not_read),
		TEST(one_address_has_so_many_connections),
		cmocka_unit_test_setup_teardown(a_handshake_has_a_deadline,
						setup_hasty, teardown),
		cmocka_unit_test_setup_teardown(an_exchange_has_a_deadline,
						setup_hasty_later, teardown),
		cmocka_unit_test_setup_teardown(
			connections_beyond_the_total_limit_wait, setup_trusting,
			teardown),
		cmocka_unit_test_setup(it_closes_with_connections_of_every_kind,
				       setup),
	};

	return cmocka_run_group_tests(tests, setup_all, teardown_all);
}
