/* TLS on lines of libkvpool, to a simulated holder. */
#include "tests/lib/unit.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/metric.h"
#include "pool/client/line.h"
#include "pool/conn/hello.h"
#include "pool/tls/tls.h"
#include "tests/unit/tls_pki.h"

#define CONNS_MAX 16

static struct {
	struct pki_ca ca;
	char *node, *client;
} pki;

static struct {
	int listen_fd;
	struct pool_peer_addr addr;
	pthread_t thread;
	struct pool_tls *tls; /* the holder's */
	_Atomic bool says_plain;
	_Atomic unsigned int greeted;
	struct client_lines lines;
} t;

static int group_setup(void **state)
{
	(void)state;
	pki_ca_make(&pki.ca);
	pki.node = pki_dir(&pki.ca, "node");
	pki.client = pki_dir(&pki.ca, "client");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	pki_dir_free(pki.node);
	pki_dir_free(pki.client);
	pki_ca_free(&pki.ca);
	return 0;
}

/* ---- the holder ---- */

static void answer_hello(struct pool_tls_stream *s, uint32_t lane)
{
	uint8_t buf[POOL_WIRE_HEADER + 128];
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_HELLO };
	struct iovec iov = { .iov_base = buf };
	Kvpool__Hello hello;

	pool_hello_init(&hello, t.addr.id, lane, t.says_plain);
	f.payload_len = (uint32_t)kvpool__hello__pack(&hello,
						      buf + POOL_WIRE_HEADER);
	pool_frame_encode(&f, buf);
	iov.iov_len = POOL_WIRE_HEADER + f.payload_len;
	t.greeted++;
	(void)pool_tls_write(s, &iov, 1); /* the client notices a failure */
}

/* Handshake and HELLO. The client waits for each, so one connection at a
 * time. */
static struct pool_tls_stream *greet(int fd)
{
	const struct pool_tls_want want = { .roles = POOL_ROLES_USERS,
					    .blocking = true };
	uint8_t buf[POOL_WIRE_HEADER + 256];
	struct pool_tls_stream *s;
	Kvpool__Hello *hello;
	ssize_t n;

	assert_int_equal(0, pool_tls_start(t.tls, fd, &want, &s));
	if (pool_tls_shake(s) == 0 &&
	    (n = pool_tls_read(s, buf, sizeof(buf))) > POOL_WIRE_HEADER) {
		hello = kvpool__hello__unpack(NULL,
					      (size_t)n - POOL_WIRE_HEADER,
					      buf + POOL_WIRE_HEADER);
		assert_non_null(hello);
		answer_hello(s, hello->lane);
		kvpool__hello__free_unpacked(hello, NULL);
	}
	return s;
}

static void *play(void *arg)
{
	struct pool_tls_stream *s[CONNS_MAX];
	int fd[CONNS_MAX], n = 0;

	(void)arg;
	while (n < CONNS_MAX &&
	       (fd[n] = accept(t.listen_fd, NULL, NULL)) >= 0) {
		s[n] = greet(fd[n]);
		n++;
	}
	while (n-- > 0) {
		pool_tls_free(s[n]);
		close(fd[n]);
	}
	return NULL;
}

static struct pool_tls *open_tls(const char *dir)
{
	char why[POOL_TLS_WHY];
	struct pool_tls *tls;

	if (pool_tls_open(dir, &tls, why))
		fail_msg("%s", why);
	return tls;
}

static int setup(void **state)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	socklen_t len = sizeof(sa);

	(void)state;
	memset(&t, 0, sizeof(t));
	memset(t.addr.id, 7, POOL_ID_SIZE);
	t.tls = open_tls(pki.node);
	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	t.listen_fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(0, bind(t.listen_fd, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, listen(t.listen_fd, 8));
	getsockname(t.listen_fd, (void *)&sa, &len);
	strcpy(t.addr.tcp.host, "127.0.0.1");
	t.addr.tcp.port = ntohs(sa.sin_port);
	assert_int_equal(0, pthread_create(&t.thread, NULL, play, NULL));
	client_lines_init(&t.lines);
	t.lines.first_lane = 3;
	t.lines.stall_ms = 20000; /* for busy machines */
	t.lines.tls = open_tls(pki.client);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	client_lines_fini(&t.lines);
	shutdown(t.listen_fd, SHUT_RDWR);
	pthread_join(t.thread, NULL);
	close(t.listen_fd);
	pool_tls_close(t.tls);
	pool_tls_close(t.lines.tls);
	return 0;
}

/* Asserts a value of the client's metrics; key: the name with labels. */
static void assert_counted(const char *key, unsigned int want)
{
	struct pool_metrics *m = pool_metrics_open();
	char *text, line[128];
	size_t len;

	assert_int_equal(0, pool_tls_metrics(t.lines.tls, m));
	assert_int_equal(0, pool_metrics_print(m, &text, &len));
	snprintf(line, sizeof(line), "\n%s %u\n", key, want);
	if (!strstr(text, line))
		fail_msg("not %s %u:\n%s", key, want, text);
	free(text);
	pool_metrics_close(m);
}

#define PLAIN_LANES "kvpool_tls_plain_lanes_total"

/* ---- tests ---- */

static void a_line_is_two_connections_by_tls(void **state)
{
	struct client_line *l;

	(void)state;
	for (int i = 0; i < 3; i++) {
		l = client_line_take(&t.lines, &t.addr, true);
		assert_non_null(l);
		client_line_give(l, true);
	}
	assert_int_equal(2, t.greeted);
	assert_counted("kvpool_tls_handshakes_total{result=\"accepted\"}", 2);
	assert_counted(PLAIN_LANES, 0);
}

static void a_lane_that_both_allow_ends_tls(void **state)
{
	struct client_line *l;

	(void)state;
	pool_tls_allow_plain(t.lines.tls, true);
	l = client_line_take(&t.lines, &t.addr, false);
	assert_non_null(l);
	client_line_give(l, true);
	t.says_plain = true;
	l = client_line_take(&t.lines, &t.addr, true);
	assert_non_null(l);
	assert_counted(PLAIN_LANES, 1);
	client_line_give(l, true);
}

static void tls_does_not_end_because_the_holder_says_so(void **state)
{
	(void)state;
	t.says_plain = true;
	assert_null(client_line_take(&t.lines, &t.addr, false));
	assert_counted(PLAIN_LANES, 0);
}

static void a_lane_does_not_end_tls_because_the_holder_says_so(void **state)
{
	struct client_line *l = client_line_take(&t.lines, &t.addr, false);

	(void)state;
	assert_non_null(l);
	client_line_give(l, true);
	t.says_plain = true;
	assert_null(client_line_take(&t.lines, &t.addr, true));
	assert_int_equal(2, t.greeted);
	assert_counted(PLAIN_LANES, 0);
}

/* Requests are always encrypted, even if plain bulk is allowed. */
static void requests_stay_in_tls(void **state)
{
	(void)state;
	pool_tls_allow_plain(t.lines.tls, true);
	t.says_plain = true;
	assert_null(client_line_take(&t.lines, &t.addr, false));
	assert_counted(PLAIN_LANES, 0);
}

static void an_old_line_is_replaced(void **state)
{
	struct client_line *l;

	(void)state;
	pool_tls_set_renew(t.lines.tls, 1);
	l = client_line_take(&t.lines, &t.addr, true);
	assert_non_null(l);
	client_line_give(l, true);
	usleep(5000);
	l = client_line_take(&t.lines, &t.addr, true);
	assert_non_null(l);
	client_line_give(l, true);
	assert_int_equal(4, t.greeted);
	assert_counted("kvpool_tls_links_renewed_total", 1);
}

/* The key of its holder has been used enough. */
static void a_line_that_moved_much_is_replaced(void **state)
{
	const uint64_t half = (uint64_t)POOL_TLS_KEY_RECORDS / 2 * 16384;
	struct client_line *l;

	(void)state;
	for (unsigned int i = 0; i < 3; i++) {
		l = client_line_take(&t.lines, &t.addr, true);
		assert_non_null(l);
		assert_int_equal(i < 2 ? 2 : 4, t.greeted);
		assert_int_equal(0, client_line_ask(l, i, "k", 1, 1, half));
		client_line_give(l, true);
	}
	assert_counted("kvpool_tls_links_renewed_total", 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_line_is_two_connections_by_tls),
		T(a_lane_that_both_allow_ends_tls),
		T(tls_does_not_end_because_the_holder_says_so),
		T(a_lane_does_not_end_tls_because_the_holder_says_so),
		T(requests_stay_in_tls),
		T(an_old_line_is_replaced),
		T(a_line_that_moved_much_is_replaced),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
