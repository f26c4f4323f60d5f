/* TLS streams over socket pairs: which peers are accepted, and that bytes
 * arrive unchanged. */
#include "tests/lib/unit.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <openssl/ssl.h>

#include "pool/base/clock.h"
#include "pool/tls/tls.h"
#include "pool/tls/tls_kernel.h"
#include "tests/unit/tls_pki.h"

static struct {
	struct pki_ca ca, other;
	char *master, *node;
} pki;

struct end {
	struct pool_tls *tls;
	struct pool_tls_stream *s;
	struct pool_tls_want want;
	int fd, err;
};

static struct {
	struct end dials, accepts;
} t;

static int group_setup(void **state)
{
	(void)state;
	pki_ca_make(&pki.ca);
	pki_ca_make(&pki.other);
	pki.master = pki_dir(&pki.ca, "master");
	pki.node = pki_dir(&pki.ca, "node");
	return 0;
}

static int group_teardown(void **state)
{
	(void)state;
	pki_dir_free(pki.master);
	pki_dir_free(pki.node);
	pki_ca_free(&pki.ca);
	pki_ca_free(&pki.other);
	return 0;
}

static void open_end(struct end *e, const char *dir)
{
	char why[POOL_TLS_WHY] = "";
	int err = pool_tls_open(dir, &e->tls, why);

	if (err)
		fail_msg("%s", why);
}

static void make_pair(void)
{
	int pair[2];

	assert_int_equal(0, socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0,
				       pair));
	t.dials.fd = pair[0];
	t.accepts.fd = pair[1];
}

static int setup(void **state)
{
	(void)state;
	t.dials = (struct end){
		.want = { .dialled = true,
			  .roles = POOL_ROLE_BIT(POOL_ROLE_MASTER),
			  .host = "127.0.0.1" },
	};
	t.accepts = (struct end){ .want = { .roles = POOL_ROLES_USERS } };
	make_pair();
	return 0;
}

static void close_end(struct end *e)
{
	pool_tls_free(e->s);
	pool_tls_close(e->tls);
	close(e->fd);
}

static int teardown(void **state)
{
	(void)state;
	close_end(&t.dials);
	close_end(&t.accepts);
	return 0;
}

static void start_end(struct end *e)
{
	assert_int_equal(0, pool_tls_start(e->tls, e->fd, &e->want, &e->s));
	e->err = -EAGAIN;
}

/* A figure of this end's metrics. */
static uint64_t figure(struct end *e, const char *name)
{
	struct pool_metrics *m = pool_metrics_open();
	char *text, *at, key[96];
	size_t len;
	uint64_t n;

	assert_int_equal(0, pool_tls_metrics(e->tls, m));
	assert_int_equal(0, pool_metrics_print(m, &text, &len));
	snprintf(key, sizeof(key), "\nkvpool_tls_%s ", name);
	at = strstr(text, key);
	if (!at)
		fail_msg("no %s", name);
	n = strtoull(at + strlen(key), NULL, 10);
	free(text);
	pool_metrics_close(m);
	return n;
}

#define REASONS 8
static const char *const reasons[REASONS] = {
	"expired", "untrusted", "identity", "cluster", "role", "host",
	"protocol", "by-peer",
};

/* Counts e's handshake; asserts that it was refused for this reason alone. */
static void assert_reason(struct end *e, const char *reason)
{
	char name[64];

	pool_tls_count(e->tls, e->s, -EKEYREJECTED);
	for (unsigned int i = 0; i < REASONS; i++) {
		snprintf(name, sizeof(name), "refused_total{reason=\"%s\"}",
			 reasons[i]);
		if (figure(e, name) != (strcmp(reason, reasons[i]) == 0))
			fail_msg("%s: %s", reason, name);
	}
	assert_int_equal(1, figure(e, "handshakes_total{result=\"refused\"}"));
	assert_int_equal(1, figure(e, "handshake_seconds_count"));
}

static void shake_on(void)
{
	if (t.dials.err == -EAGAIN)
		t.dials.err = pool_tls_shake(t.dials.s);
	if (t.accepts.err == -EAGAIN)
		t.accepts.err = pool_tls_shake(t.accepts.s);
}

/* Runs both handshakes until neither makes progress. A dialler may get an alert
 * after its own handshake has succeeded: a read returns it. */
static void shake(void)
{
	uint8_t byte;

	start_end(&t.dials);
	start_end(&t.accepts);
	for (int i = 0; i < 10; i++)
		shake_on();
	if (t.accepts.err && !t.dials.err)
		t.dials.err = (int)pool_tls_read(t.dials.s, &byte, 1);
}

static void connect_both(void)
{
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	shake();
	assert_int_equal(0, t.dials.err);
	assert_int_equal(0, t.accepts.err);
}

/* ---- who is accepted ---- */

static void both_ends_know_who_the_other_is(void **state)
{
	(void)state;
	connect_both();
	assert_int_equal(POOL_ROLE_MASTER, pool_tls_peer(t.dials.s)->role);
	assert_int_equal(POOL_ROLE_NODE, pool_tls_peer(t.accepts.s)->role);
	assert_string_equal("test", pool_tls_peer(t.accepts.s)->cluster);
	assert_true(pool_tls_peer_has_host(t.accepts.s, "localhost"));
	assert_false(pool_tls_peer_has_host(t.accepts.s, "elsewhere"));
}

/* A node dials with a certificate that is right except for `ca` or the options;
 * its master refuses it with a reason. */
static void refused(const struct pki_ca *ca, const struct pki_want *want,
		    const char *reason, const char *why)
{
	char *dir = pki_dir_make(ca, &pki.ca, ca == &pki.ca ? NULL : ca, want);

	open_end(&t.dials, dir);
	open_end(&t.accepts, pki.master);
	shake();
	pki_dir_free(dir);
	assert_int_equal(-EKEYREJECTED, t.accepts.err);
	if (!strstr(pool_tls_why(t.accepts.s), why))
		fail_msg("\"%s\" does not say \"%s\"",
			 pool_tls_why(t.accepts.s), why);
	assert_reason(&t.accepts, reason);
	assert_int_equal(-EPROTO, t.dials.err);
	assert_non_null(strstr(pool_tls_why(t.dials.s), "alert"));
}

static const struct pki_want a_node = { .uri = { "kvpool://test/node" } };

static void another_pools_certificate_is_refused(void **state)
{
	(void)state;
	refused(&pki.other, &a_node, "untrusted",
		"unable to get local issuer certificate");
}

/* As with an issuer that keeps its own CA elsewhere. */
static void an_intermediate_ca_is_trusted_without_its_root(void **state)
{
	struct pki_ca mid;
	char *node, *master;

	(void)state;
	pki_ca_make(&mid);
	X509_set_issuer_name(mid.cert, X509_get_subject_name(pki.ca.cert));
	assert_true(X509_sign(mid.cert, pki.ca.key, EVP_sha256()) > 0);
	node = pki_dir(&mid, "node");
	master = pki_dir(&mid, "master");
	open_end(&t.dials, node);
	open_end(&t.accepts, master);
	shake();
	pki_dir_free(node);
	pki_dir_free(master);
	pki_ca_free(&mid);
	assert_int_equal(0, t.accepts.err);
	assert_int_equal(0, t.dials.err);
}

static void an_expired_certificate_is_refused(void **state)
{
	struct pki_want w = a_node;

	(void)state;
	w.from_s = -7200;
	w.to_s = -3600;
	refused(&pki.ca, &w, "expired", "expired; kvpool certs renew");
}

/* Who is refused tries again: the log has a line of it, and not one a second.
 */
static void a_refusal_is_news_once_for_each_certificate(void **state)
{
	struct pki_want w = a_node;

	(void)state;
	for (int who = 0; who < 2; who++) {
		char *dir;

		w.from_s = -7200 - who;
		w.to_s = -3600;
		dir = pki_dir_make(&pki.ca, &pki.ca, NULL, &w);
		if (!who)
			open_end(&t.accepts, pki.master);
		open_end(&t.dials, dir);
		for (int again = 0; again < 3; again++) {
			shake();
			assert_int_equal(-EKEYREJECTED, t.accepts.err);
			assert_int_equal(!again, pool_tls_is_news(t.accepts.tls,
								  t.accepts.s));
			pool_tls_free(t.dials.s);
			pool_tls_free(t.accepts.s);
			close(t.dials.fd);
			close(t.accepts.fd);
			make_pair();
		}
		t.dials.s = t.accepts.s = NULL;
		pki_dir_free(dir);
		if (!who)
			pool_tls_close(t.dials.tls);
	}
}

static void a_certificate_of_the_future_is_refused(void **state)
{
	struct pki_want w = a_node;

	(void)state;
	w.from_s = 3600;
	w.to_s = 7200;
	refused(&pki.ca, &w, "expired", "not yet valid");
}

/* Both ends would refuse; the dialler does so first. */
static void another_cluster_is_refused(void **state)
{
	static const struct pki_want w = { .uri = { "kvpool://prod/node" } };
	char *dir = pki_dir_make(&pki.ca, &pki.ca, NULL, &w);

	(void)state;
	open_end(&t.dials, dir);
	open_end(&t.accepts, pki.master);
	shake();
	pki_dir_free(dir);
	assert_int_equal(-EKEYREJECTED, t.dials.err);
	assert_non_null(strstr(pool_tls_why(t.dials.s),
			       "cluster test, and this is prod"));
	assert_reason(&t.dials, "cluster");
	assert_int_equal(-EKEYREJECTED, t.accepts.err);
	assert_reason(&t.accepts, "by-peer");
}

static void a_role_that_is_not_wanted_is_refused(void **state)
{
	static const struct pki_want w = { .uri = { "kvpool://test/master" } };

	(void)state;
	refused(&pki.ca, &w, "role", "role master; accepted here: node or "
				     "client");
}

/* The dialler refuses: the certificate does not name the host dialled. */
static void the_host_that_was_dialled_must_be_in_the_certificate(void **state)
{
	(void)state;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	t.dials.want.host = "10.0.0.7";
	shake();
	assert_int_equal(-EKEYREJECTED, t.dials.err);
	assert_non_null(strstr(pool_tls_why(t.dials.s),
			       "issue one with --host 10.0.0.7"));
	assert_reason(&t.dials, "host");
	assert_int_equal(-EKEYREJECTED, t.accepts.err);
}

static void a_node_is_no_master(void **state)
{
	(void)state;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.node);
	shake();
	assert_int_equal(-EKEYREJECTED, t.dials.err);
	assert_non_null(strstr(pool_tls_why(t.dials.s),
			       "role node; accepted here: master"));
}

static void plain_text_is_refused(void **state)
{
	static const char hello[] = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";

	(void)state;
	open_end(&t.accepts, pki.master);
	start_end(&t.accepts);
	assert_int_equal(sizeof(hello), write(t.dials.fd, hello,
					      sizeof(hello)));
	assert_int_equal(-EKEYREJECTED, pool_tls_shake(t.accepts.s));
	assert_reason(&t.accepts, "protocol");
}

/* A plain OpenSSL client with these settings. */
static int foreign_client(void (*set)(SSL_CTX *ctx))
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	SSL *ssl;
	int err = -EAGAIN, mine = -1;
	char byte;

	set(ctx);
	ssl = SSL_new(ctx);
	SSL_set_fd(ssl, t.dials.fd);
	open_end(&t.accepts, pki.master);
	start_end(&t.accepts);
	for (int i = 0; i < 10; i++) {
		mine = SSL_connect(ssl);
		if (err == -EAGAIN)
			err = pool_tls_shake(t.accepts.s);
	}
	if (mine == 1) /* it has not read the alert yet */
		mine = SSL_read(ssl, &byte, 1);
	assert_true(mine < 1);
	SSL_free(ssl);
	SSL_CTX_free(ctx);
	return err;
}

static void set_old(SSL_CTX *ctx)
{
	SSL_CTX_set_max_proto_version(ctx, TLS1_2_VERSION);
}

static void set_nothing(SSL_CTX *ctx)
{
	(void)ctx;
}

static void an_older_version_is_refused(void **state)
{
	(void)state;
	assert_int_equal(-EKEYREJECTED, foreign_client(set_old));
	assert_non_null(strstr(pool_tls_why(t.accepts.s), "protocol"));
	assert_reason(&t.accepts, "protocol");
}

static void a_client_without_a_certificate_is_refused(void **state)
{
	(void)state;
	assert_int_equal(-EKEYREJECTED, foreign_client(set_nothing));
	assert_non_null(strstr(pool_tls_why(t.accepts.s),
			       "did not return a certificate"));
	assert_reason(&t.accepts, "untrusted");
}

static char *web_dir; /* of a certificate for something else */

static void set_web(SSL_CTX *ctx)
{
	char path[256];

	snprintf(path, sizeof(path), "%s/" POOL_TLS_CERT, web_dir);
	assert_int_equal(1, SSL_CTX_use_certificate_file(ctx, path,
							 SSL_FILETYPE_PEM));
	snprintf(path, sizeof(path), "%s/" POOL_TLS_KEY, web_dir);
	assert_int_equal(1, SSL_CTX_use_PrivateKey_file(ctx, path,
							SSL_FILETYPE_PEM));
}

static void a_certificate_of_no_pool_is_refused(void **state)
{
	static const struct pki_want w = { .uri = { "https://test/node" } };

	(void)state;
	web_dir = pki_dir_make(&pki.ca, &pki.ca, NULL, &w);
	assert_int_equal(-EKEYREJECTED, foreign_client(set_web));
	pki_dir_free(web_dir);
	assert_non_null(strstr(pool_tls_why(t.accepts.s), "its certificate"));
	assert_reason(&t.accepts, "identity");
}

static void a_handshake_is_timed_whatever_its_result(void **state)
{
	(void)state;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	start_end(&t.dials);
	usleep(1100000);
	pool_tls_count(t.dials.tls, t.dials.s, -ETIMEDOUT);
	assert_int_equal(1, figure(&t.dials, "handshake_seconds_count"));
	assert_int_equal(1, figure(&t.dials, "handshake_seconds_sum"));
	assert_int_equal(1, figure(&t.dials,
				   "handshakes_total{result=\"failed\"}"));
	pool_tls_count(t.dials.tls, t.dials.s, 0);
	assert_int_equal(2, figure(&t.dials, "handshake_seconds_count"));
	for (unsigned int i = 0; i < REASONS; i++) {
		char name[64];

		snprintf(name, sizeof(name), "refused_total{reason=\"%s\"}",
			 reasons[i]);
		assert_int_equal(0, figure(&t.dials, name));
	}
}

/* ---- bytes ---- */

#define MUCH (5u << 20)

static uint8_t byte_at(size_t i)
{
	return (uint8_t)(i * 2654435761u >> 13);
}

/* Sends MUCH bytes in pieces of `piece`, as far as the socket takes them. */
static void send_and_receive(size_t piece)
{
	uint8_t *from = malloc(MUCH), *to = malloc(MUCH);
	size_t sent = 0, have = 0;
	ssize_t r;

	for (size_t i = 0; i < MUCH; i++)
		from[i] = byte_at(i);
	while (have < MUCH) {
		struct iovec iov[8];
		int n = 0;

		for (size_t at = sent; n < 8 && at < MUCH; n++, at += piece)
			iov[n] = (struct iovec){
				.iov_base = from + at,
				.iov_len =
					MUCH - at < piece ? MUCH - at : piece,
			};
		r = n ? pool_tls_write(t.dials.s, iov, n) :
			pool_tls_flush(t.dials.s);
		assert_true(r >= 0 || r == -EAGAIN);
		sent += r > 0 ? (size_t)r : 0;
		r = pool_tls_read(t.accepts.s, to + have, MUCH - have);
		assert_true(r > 0 || r == -EAGAIN);
		have += r > 0 ? (size_t)r : 0;
	}
	assert_int_equal(MUCH, sent);
	assert_false(pool_tls_unsent(t.dials.s));
	assert_memory_equal(from, to, MUCH);
	free(from);
	free(to);
}

static void large_pieces_arrive(void **state)
{
	(void)state;
	connect_both();
	send_and_receive(MUCH);
}

static void small_pieces_arrive(void **state)
{
	(void)state;
	connect_both();
	send_and_receive(77);
}

static void middle_pieces_arrive(void **state)
{
	(void)state;
	t.accepts.want.bulk = true;
	connect_both();
	send_and_receive(10000);
}

/* One system call reads several records ahead. */
static void a_blocking_stream_reads_all_records_that_are_there(void **state)
{
	static char from[3 * SSL3_RT_MAX_PLAIN_LENGTH], to[sizeof(from)];
	struct iovec iov = { .iov_base = from, .iov_len = sizeof(from) };

	(void)state;
	t.dials.want.blocking = t.dials.want.bulk = true;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	shake();
	assert_int_equal(0, t.dials.err);
	assert_int_equal(sizeof(from), pool_tls_write(t.accepts.s, &iov, 1));
	assert_false(pool_tls_unsent(t.accepts.s));
	assert_int_equal(sizeof(to), pool_tls_read(t.dials.s, to, sizeof(to)));
}

static void *write_later(void *arg)
{
	struct iovec iov = { .iov_base = arg, .iov_len = 5 };

	usleep(20000);
	return (void *)(intptr_t)pool_tls_write(t.accepts.s, &iov, 1);
}

static void a_blocking_stream_waits_for_bytes_and_not_for_all(void **state)
{
	static char hello[] = "hello";
	pthread_t other;
	void *wrote;
	char to[100];

	(void)state;
	t.dials.want.blocking = true;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	shake();
	assert_int_equal(0, t.dials.err);
	fcntl(t.dials.fd, F_SETFL, 0);
	assert_int_equal(0, pthread_create(&other, NULL, write_later, hello));
	assert_int_equal(5, pool_tls_read(t.dials.s, to, sizeof(to)));
	assert_int_equal(0, pthread_join(other, &wrote));
	assert_int_equal(5, (intptr_t)wrote);
}

static void make_blocking(struct end *e)
{
	const struct timeval limit = { .tv_sec = 10 };

	fcntl(e->fd, F_SETFL, 0);
	assert_int_equal(0, setsockopt(e->fd, SOL_SOCKET, SO_RCVTIMEO, &limit,
				       sizeof(limit)));
}

static void *accept_blocking(void *arg)
{
	(void)arg;
	return (void *)(intptr_t)pool_tls_shake(t.accepts.s);
}

/* Each side sends its message before it waits for the answer. */
static void a_blocking_handshake_takes_one_call(void **state)
{
	pthread_t other;
	void *err;

	(void)state;
	t.dials.want.blocking = t.accepts.want.blocking = true;
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	make_blocking(&t.dials);
	make_blocking(&t.accepts);
	start_end(&t.dials);
	start_end(&t.accepts);
	assert_int_equal(0, pthread_create(&other, NULL, accept_blocking,
					   NULL));
	assert_int_equal(0, pool_tls_shake(t.dials.s));
	assert_int_equal(0, pthread_join(other, &err));
	assert_int_equal(0, (intptr_t)err);
}

static void the_end_of_the_peer_is_the_end(void **state)
{
	char byte;

	(void)state;
	connect_both();
	shutdown(t.accepts.fd, SHUT_WR);
	assert_int_equal(0, pool_tls_read(t.dials.s, &byte, 1));
}

static void a_changed_byte_breaks_the_stream(void **state)
{
	struct iovec iov = { .iov_base = "hello", .iov_len = 5 };
	uint8_t wire[256];
	char to[16];
	ssize_t n;

	(void)state;
	connect_both();
	assert_int_equal(5, pool_tls_write(t.dials.s, &iov, 1));
	n = recv(t.accepts.fd, wire, sizeof(wire), 0);
	assert_true(n > 20);
	wire[n - 5] ^= 1;
	assert_int_equal(n, send(t.dials.fd, wire, (size_t)n, 0));
	assert_int_equal(-EPROTO, pool_tls_read(t.accepts.s, to, sizeof(to)));
	assert_non_null(strstr(pool_tls_why(t.accepts.s), "bad record mac"));
}

/* The same, after valid bytes: these are returned first, then the error, each
 * time. */
static void a_changed_byte_behind_good_ones_breaks_the_stream(void **state)
{
	struct iovec iov = { .iov_base = "hello", .iov_len = 5 };
	uint8_t wire[256];
	char to[16];
	ssize_t n;

	(void)state;
	connect_both();
	for (int i = 0; i < 2; i++)
		assert_int_equal(5, pool_tls_write(t.dials.s, &iov, 1));
	n = recv(t.accepts.fd, wire, sizeof(wire), 0);
	assert_true(n > 40);
	wire[n - 5] ^= 1;
	assert_int_equal(n, send(t.dials.fd, wire, (size_t)n, 0));
	assert_int_equal(5, pool_tls_read(t.accepts.s, to, sizeof(to)));
	assert_memory_equal("hello", to, 5);
	assert_true(pool_tls_is_broken(t.accepts.s));
	for (int i = 0; i < 2; i++)
		assert_int_equal(-EPROTO, pool_tls_read(t.accepts.s, to,
							sizeof(to)));
	assert_non_null(strstr(pool_tls_why(t.accepts.s), "bad record mac"));
}

/* ---- encrypted by the kernel ---- */

static struct tls_kernel_cost need_kernel(void)
{
	struct tls_kernel_cost cost;
	int err = tls_kernel_measure(&cost);

	if (err == -ENOENT) {
		print_message("skipped: this kernel's module tls is not "
			      "loaded\n");
		skip();
	}
	assert_int_equal(0, err);
	return cost;
}

/* The emulated CPU of the guest takes milliseconds. */
static void both_ways_cost_time(void **state)
{
	struct tls_kernel_cost cost = need_kernel();

	(void)state;
	assert_in_range(cost.kernel, 100, 1000000000);
	assert_in_range(cost.openssl, 100, 1000000000);
}

/* Both ends on a TCP connection. */
static void connect_by_tcp(void)
{
	struct sockaddr_in sin = { .sin_family = AF_INET,
				   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(sin);
	int l = socket(AF_INET, SOCK_STREAM, 0);

	close(t.dials.fd);
	close(t.accepts.fd);
	t.dials.fd = socket(AF_INET, SOCK_STREAM, 0);
	assert_int_equal(0, bind(l, (struct sockaddr *)&sin, len));
	assert_int_equal(0, listen(l, 1));
	assert_int_equal(0, getsockname(l, (struct sockaddr *)&sin, &len));
	assert_int_equal(0,
			 connect(t.dials.fd, (struct sockaddr *)&sin, len));
	t.accepts.fd = accept(l, NULL, NULL);
	assert_true(t.accepts.fd >= 0);
	close(l);
}

/* TCP may deliver later. */
static void shake_by_tcp(void)
{
	shake();
	for (int i = 0; i < 10000 && (t.dials.err || t.accepts.err); i++) {
		usleep(1000);
		shake_on();
	}
	assert_int_equal(0, t.dials.err);
	assert_int_equal(0, t.accepts.err);
}

/* The same, with streams, and the accepting one may use the kernel. */
static void connect_for_kernel(void)
{
	(void)need_kernel();
	connect_by_tcp();
	open_end(&t.dials, pki.node);
	open_end(&t.accepts, pki.master);
	pool_tls_allow_kernel(t.dials.tls, true);
	pool_tls_allow_kernel(t.accepts.tls, true);
	shake_by_tcp();
}

static void to_kernel(void)
{
	int err = pool_tls_to_kernel(t.accepts.tls, t.accepts.s);

	if (err)
		fail_msg("%s", strerror(-err));
	assert_true(pool_tls_is_in_kernel(t.accepts.s));
}

static void assert_arrives(struct end *to, const uint8_t *what, size_t len)
{
	uint8_t *got = malloc(len);
	size_t have = 0;

	while (have < len) {
		ssize_t r = pool_tls_read(to->s, got + have, len - have);

		assert_true(r > 0 || r == -EAGAIN);
		have += r > 0 ? (size_t)r : 0;
	}
	assert_memory_equal(what, got, len);
	free(got);
}

/* Fills bytes, and a file with the same. */
static int file_of(uint8_t *bytes, size_t len)
{
	int file = memfd_create("bytes", 0);

	for (size_t i = 0; i < len; i++)
		bytes[i] = byte_at(i);
	assert_int_equal(len, write(file, bytes, len));
	return file;
}

/* Writes and pieces of a file in turn; and what comes from the other side is
 * still decrypted. */
static void what_the_kernel_encrypts_arrives(void **state)
{
	static uint8_t bytes[300000], wire[64];
	struct iovec iov = { .iov_base = bytes, .iov_len = 1000 };
	int file = file_of(bytes, sizeof(bytes));
	off_t off = 0;
	size_t sent = 0;

	(void)state;
	connect_for_kernel();
	to_kernel();
	assert_int_equal(1, figure(&t.accepts, "kernel_lanes_total"));
	for (int i = 0; i < 3; i++) {
		assert_int_equal(1000, pool_tls_write(t.accepts.s, &iov, 1));
		assert_true(recv(t.dials.fd, wire, sizeof(wire), MSG_PEEK) > 8);
		assert_null(memmem(wire, sizeof(wire), bytes, 8));
		assert_arrives(&t.dials, bytes, 1000);
		for (off = 0, sent = 0; sent < sizeof(bytes);) {
			ssize_t r = pool_tls_send_file(t.accepts.s, file, &off,
						       sizeof(bytes) - sent);

			assert_true(r > 0);
			assert_arrives(&t.dials, bytes + sent, (size_t)r);
			sent += (size_t)r;
		}
	}
	assert_int_equal(1000, pool_tls_write(t.dials.s, &iov, 1));
	assert_arrives(&t.accepts, bytes, 1000);
	assert_false(pool_tls_unsent(t.accepts.s));
	close(file);
}

/* Room for less than one record that is unsent. */
static void leave_little_room(int fd)
{
	const int bytes = 16384;

	assert_int_equal(0, setsockopt(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT,
				       &bytes, sizeof(bytes)));
}

static bool has_room(int fd, int wait_ms)
{
	return poll(&(struct pollfd){ .fd = fd, .events = POLLOUT }, 1,
		    wait_ms) == 1;
}

/* Else each record would wait for a timer of TCP, 200 ms and longer. */
static void a_file_is_sent_at_once_although_there_is_little_room(void **state)
{
	static uint8_t bytes[1 << 20], got[sizeof(bytes)];
	const uint64_t began = pool_now_ms();
	int file = file_of(bytes, sizeof(bytes));
	size_t have = 0;
	off_t off = 0;

	(void)state;
	connect_for_kernel();
	to_kernel();
	leave_little_room(t.accepts.fd);
	assert_int_equal(0, fcntl(t.accepts.fd, F_SETFL, O_NONBLOCK));
	while (have < sizeof(bytes)) {
		ssize_t r = pool_tls_send_file(t.accepts.s, file, &off,
					       sizeof(bytes) - (size_t)off);

		if (r < 0) {
			assert_int_equal(EAGAIN, errno);
			assert_true(has_room(t.accepts.fd, 10000));
		}
		r = pool_tls_read(t.dials.s, got + have, sizeof(got) - have);
		assert_true(r > 0 || r == -EAGAIN);
		have += r > 0 ? (size_t)r : 0;
	}
	assert_memory_equal(bytes, got, sizeof(bytes));
	assert_in_range(pool_now_ms() - began, 0, 5000);
	close(file);
}

/* Only accepted streams of a process that allows it. */
static void a_stream_that_may_not_use_the_kernel_does_not(void **state)
{
	(void)state;
	connect_for_kernel();
	assert_int_equal(-EBUSY, pool_tls_to_kernel(t.dials.tls, t.dials.s));
	assert_false(pool_tls_is_in_kernel(t.dials.s));
	to_kernel();
	pool_tls_free(t.accepts.s);
	pool_tls_free(t.dials.s);
	connect_by_tcp(); /* TLS cannot begin anew where the kernel encrypts */
	pool_tls_allow_kernel(t.accepts.tls, false);
	assert_false(pool_tls_allows_kernel(t.accepts.tls));
	shake_by_tcp();
	assert_int_equal(-EBUSY,
			 pool_tls_to_kernel(t.accepts.tls, t.accepts.s));
}

static void streams_with_later_certificates_may_use_the_kernel(void **state)
{
	char why[POOL_TLS_WHY];

	(void)state;
	connect_for_kernel();
	assert_int_equal(0, pool_tls_reload(t.accepts.tls, why));
	pool_tls_free(t.accepts.s);
	pool_tls_free(t.dials.s);
	shake_by_tcp();
	to_kernel();
}

/* A client with a certificate of the pool that asks for a new key. */
static SSL *client_that_asks_for_keys(SSL_CTX **ret_ctx)
{
	SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
	char path[4096];
	SSL *ssl;

	snprintf(path, sizeof(path), "%s/" POOL_TLS_CERT, pki.node);
	assert_int_equal(1, SSL_CTX_use_certificate_file(ctx, path,
							 SSL_FILETYPE_PEM));
	snprintf(path, sizeof(path), "%s/" POOL_TLS_KEY, pki.node);
	assert_int_equal(1, SSL_CTX_use_PrivateKey_file(ctx, path,
							SSL_FILETYPE_PEM));
	ssl = SSL_new(ctx);
	pool_tls_free(t.dials.s);
	pool_tls_free(t.accepts.s);
	t.dials.s = t.accepts.s = NULL;
	start_end(&t.accepts);
	fcntl(t.dials.fd, F_SETFL, O_NONBLOCK);
	SSL_set_fd(ssl, t.dials.fd);
	for (int i = 0; i < 10000 && t.accepts.err == -EAGAIN; i++) {
		(void)SSL_connect(ssl);
		t.accepts.err = pool_tls_shake(t.accepts.s);
		usleep(1000);
	}
	assert_int_equal(0, t.accepts.err);
	*ret_ctx = ctx;
	return ssl;
}

/* After what has been sent to e has arrived. */
static ssize_t wait_and_read(struct end *e, uint8_t *byte)
{
	struct pollfd p = { .fd = e->fd, .events = POLLIN };

	assert_int_equal(1, poll(&p, 1, 10000));
	return pool_tls_read(e->s, byte, 1);
}

static void ask_for_keys(SSL *ssl)
{
	assert_int_equal(1, SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED));
	assert_int_equal(1, SSL_do_handshake(ssl));
}

/* The key that the kernel would get is not the one in use any more. */
static void a_stream_with_other_keys_does_not_use_the_kernel(void **state)
{
	SSL_CTX *ctx;
	SSL *ssl;
	struct iovec iov = { .iov_base = "hello", .iov_len = 5 };
	uint8_t byte;

	(void)state;
	connect_for_kernel();
	ssl = client_that_asks_for_keys(&ctx);
	ask_for_keys(ssl);
	assert_int_equal(-EAGAIN, wait_and_read(&t.accepts, &byte));
	assert_int_equal(-EBUSY,
			 pool_tls_to_kernel(t.accepts.tls, t.accepts.s));
	assert_int_equal(5, pool_tls_write(t.accepts.s, &iov, 1));
	assert_int_equal(-EBUSY,
			 pool_tls_to_kernel(t.accepts.tls, t.accepts.s));
	SSL_free(ssl);
	SSL_CTX_free(ctx);
}

/* Sends until the peer, which does not read, has had no room for a while. */
static void fill(int fd)
{
	static const uint8_t bytes[65536];

	for (int refused = 0; refused < 3;) {
		if (send(fd, bytes, sizeof(bytes), MSG_DONTWAIT) > 0) {
			refused = 0;
		} else {
			refused++;
			usleep(100000);
		}
	}
}

/* The kernel would encrypt them again. */
static void a_stream_with_unsent_bytes_does_not_use_the_kernel(void **state)
{
	(void)state;
	connect_for_kernel();
	pool_tls_free(t.dials.s);
	pool_tls_free(t.accepts.s);
	start_end(&t.dials);
	start_end(&t.accepts);
	assert_int_equal(-EAGAIN, pool_tls_shake(t.dials.s));
	fill(t.accepts.fd);
	assert_int_equal(1, poll(&(struct pollfd){ .fd = t.accepts.fd,
						   .events = POLLIN }, 1,
				 10000));
	assert_int_equal(-EAGAIN, pool_tls_shake(t.accepts.s));
	assert_true(pool_tls_unsent(t.accepts.s));
	assert_int_equal(-EBUSY,
			 pool_tls_to_kernel(t.accepts.tls, t.accepts.s));
}

/* Nobody could answer, so the stream breaks, and sends nothing in between. */
static void a_request_for_new_keys_breaks_a_stream_of_the_kernel(void **state)
{
	SSL_CTX *ctx;
	SSL *ssl;
	uint8_t byte;

	(void)state;
	connect_for_kernel();
	ssl = client_that_asks_for_keys(&ctx);
	to_kernel();
	ask_for_keys(ssl);
	assert_int_equal(-EPROTO, wait_and_read(&t.accepts, &byte));
	assert_true(pool_tls_is_broken(t.accepts.s));
	assert_false(pool_tls_unsent(t.accepts.s));
	assert_int_equal(-1, recv(t.dials.fd, &byte, 1, MSG_DONTWAIT));
	SSL_free(ssl);
	SSL_CTX_free(ctx);
}

/* It would be encrypted as bytes of the stream. */
static void an_alert_is_not_sent_by_the_kernel(void **state)
{
	static const uint8_t record[5 + 32] = { 23, 3, 3, 0, 32 };
	uint8_t byte;

	(void)state;
	connect_for_kernel();
	to_kernel();
	assert_int_equal(sizeof(record),
			 send(t.dials.fd, record, sizeof(record), 0));
	assert_int_equal(-EPROTO, wait_and_read(&t.accepts, &byte));
	assert_false(pool_tls_unsent(t.accepts.s));
	assert_int_equal(0, pool_tls_flush(t.accepts.s));
	assert_int_equal(-1, recv(t.dials.fd, &byte, 1, MSG_DONTWAIT));
}

/* ---- renewal ---- */

/* Makes new streams between the same processes. */
static void again(void)
{
	pool_tls_free(t.dials.s);
	pool_tls_free(t.accepts.s);
	close(t.dials.fd);
	close(t.accepts.fd);
	make_pair();
	shake();
}

static void new_files_are_used_by_new_streams(void **state)
{
	struct pki_want w = { .uri = { "kvpool://test/master" },
			      .host = { "127.0.0.1" },
			      .from_s = -60,
			      .to_s = 3600 };
	char why[POOL_TLS_WHY];

	(void)state;
	connect_both();
	assert_true(pool_tls_expires_s(t.accepts.tls) > 7200);
	assert_false(pool_tls_is_outdated(t.accepts.tls));
	/* A new CA, which the nodes do not trust yet. */
	pki_dir_write(pki.master, &pki.other, &pki.other, &pki.ca, &w);
	assert_true(pool_tls_is_outdated(t.accepts.tls));
	assert_int_equal(0, pool_tls_reload(t.accepts.tls, why));
	assert_false(pool_tls_is_outdated(t.accepts.tls));
	assert_in_range(pool_tls_expires_s(t.accepts.tls), 3500, 3600);
	/* The existing stream still works. */
	send_and_receive(MUCH);
	again();
	assert_int_equal(-EKEYREJECTED, t.dials.err);
	/* Now they do. */
	w.uri[0] = "kvpool://test/node";
	pki_dir_write(pki.node, &pki.ca, &pki.other, &pki.ca, &w);
	pool_tls_check(t.dials.tls);
	again();
	assert_int_equal(0, t.dials.err);
	assert_int_equal(0, t.accepts.err);
}

static void a_process_keeps_its_role_and_its_cluster(void **state)
{
	static const struct pki_want w = { .uri = { "kvpool://test/node" } };
	char why[POOL_TLS_WHY], *dir = pki_dir(&pki.ca, "master");

	(void)state;
	open_end(&t.accepts, dir);
	pki_dir_write(dir, &pki.ca, &pki.ca, NULL, &w);
	assert_int_equal(-EINVAL, pool_tls_reload(t.accepts.tls, why));
	assert_non_null(strstr(why, "restart to use it"));
	assert_int_equal(POOL_ROLE_MASTER, pool_tls_role(t.accepts.tls));
	pki_dir_free(dir);
}

static void a_process_keeps_its_namespaces(void **state)
{
	static const struct pki_want ab = { .uri = { "kvpool://test/node/a",
						     "kvpool://test/node/b" } };
	static const struct pki_want ba = { .uri = { "kvpool://test/node/b",
						     "kvpool://test/node/a" } };
	static const struct pki_want other[] = {
		{ .uri = { "kvpool://test/node" } },
		{ .uri = { "kvpool://test/node/a" } },
		{ .uri = { "kvpool://test/node/a", "kvpool://test/node/c" } },
	};
	char why[POOL_TLS_WHY],
		*dir = pki_dir_make(&pki.ca, &pki.ca, NULL, &ab);

	(void)state;
	open_end(&t.accepts, dir);
	pki_dir_write(dir, &pki.ca, &pki.ca, NULL, &ba);
	assert_int_equal(0, pool_tls_reload(t.accepts.tls, why));
	for (size_t i = 0; i < 3; i++) {
		pki_dir_write(dir, &pki.ca, &pki.ca, NULL, &other[i]);
		assert_int_equal(-EINVAL, pool_tls_reload(t.accepts.tls, why));
		assert_non_null(strstr(why, "had a, b: restart to use it"));
		assert_int_equal(2, pool_tls_self(t.accepts.tls)->ndirs);
	}
	pki_dir_free(dir);
}

/* It may have files of them that are not published yet. */
static void a_process_keeps_its_users(void **state)
{
	static const struct pki_want ab = {
		.uri = { "kvpool://test/node?uid=1,2" }
	};
	static const struct pki_want ba = {
		.uri = { "kvpool://test/node?uid=2,1" }
	};
	static const struct {
		struct pki_want want;
		const char *says;
	} other[] = {
		{ { .uri = { "kvpool://test/node" } }, "other users (all)" },
		{ { .uri = { "kvpool://test/node?uid=1" } },
		  "other users (1)" },
		{ { .uri = { "kvpool://test/node?uid=1,3" } },
		  "other users (1,3)" },
	};
	char why[POOL_TLS_WHY],
		*dir = pki_dir_make(&pki.ca, &pki.ca, NULL, &ab);

	(void)state;
	open_end(&t.accepts, dir);
	pki_dir_write(dir, &pki.ca, &pki.ca, NULL, &ba);
	assert_int_equal(0, pool_tls_reload(t.accepts.tls, why));
	for (size_t i = 0; i < 3; i++) {
		pki_dir_write(dir, &pki.ca, &pki.ca, NULL, &other[i].want);
		assert_int_equal(-EINVAL, pool_tls_reload(t.accepts.tls, why));
		assert_non_null(strstr(why, other[i].says));
		assert_non_null(strstr(why, "restart to use it"));
		assert_int_equal(2, pool_tls_self(t.accepts.tls)->nuids);
	}
	pki_dir_free(dir);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(both_ends_know_who_the_other_is),
		T(another_pools_certificate_is_refused),
		T(an_intermediate_ca_is_trusted_without_its_root),
		T(an_expired_certificate_is_refused),
		T(a_refusal_is_news_once_for_each_certificate),
		T(a_certificate_of_the_future_is_refused),
		T(another_cluster_is_refused),
		T(a_role_that_is_not_wanted_is_refused),
		T(the_host_that_was_dialled_must_be_in_the_certificate),
		T(a_node_is_no_master),
		T(plain_text_is_refused),
		T(an_older_version_is_refused),
		T(a_client_without_a_certificate_is_refused),
		T(a_certificate_of_no_pool_is_refused),
		T(a_handshake_is_timed_whatever_its_result),
		T(large_pieces_arrive),
		T(small_pieces_arrive),
		T(middle_pieces_arrive),
		T(a_blocking_handshake_takes_one_call),
		T(a_blocking_stream_reads_all_records_that_are_there),
		T(a_blocking_stream_waits_for_bytes_and_not_for_all),
		T(the_end_of_the_peer_is_the_end),
		T(a_changed_byte_breaks_the_stream),
		T(a_changed_byte_behind_good_ones_breaks_the_stream),
		T(both_ways_cost_time),
		T(what_the_kernel_encrypts_arrives),
		T(a_file_is_sent_at_once_although_there_is_little_room),
		T(a_stream_that_may_not_use_the_kernel_does_not),
		T(streams_with_later_certificates_may_use_the_kernel),
		T(a_stream_with_other_keys_does_not_use_the_kernel),
		T(a_stream_with_unsent_bytes_does_not_use_the_kernel),
		T(a_request_for_new_keys_breaks_a_stream_of_the_kernel),
		T(an_alert_is_not_sent_by_the_kernel),
		T(new_files_are_used_by_new_streams),
		T(a_process_keeps_its_role_and_its_cluster),
		T(a_process_keeps_its_namespaces),
		T(a_process_keeps_its_users),
	};

	return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
