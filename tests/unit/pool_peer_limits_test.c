/*
 * Limits on what a peer can use of a holder: connections from one address, idle
 * ones, an id that another peer has, and requests that cannot be answered. Raw
 * sockets; each test has its own holder. pool_conn_send(),
 * pool_conn_send_soon(), pool_conn_send_file() and pool_conn_peer_id() are
 * wrapped.
 */
#include "tests/lib/unit.h"

#include <string.h>

#include <errno.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pool/base/clock.h"
#include "pool/peer/peer_priv.h"

#define TIME_LIMIT_S 60
#define ADDR_MAX 4
#define IDLE_MS 300
#define UNREAD_MS 300

static struct {
	uv_loop_t loop;
	struct pool_peers *holder;
	bool open;
	bool has_file; /* the holder has every object requested */
	unsigned int ndoubts, ngets;
	unsigned int not_sent; /* answers that failed for lack of memory */
	const struct pool_tls_id *asker; /* certificate of the asker */
	bool unread; /* answers stay in the queue */
	size_t most; /* bytes held for a connection */
	unsigned int nkept;
	struct {
		void (*done)(void *arg, int err);
		void *arg;
	} kept[SESSION_ANSWERS_MAX + 1];
} t;

const struct pool_tls_id *__wrap_pool_conn_peer_id(const struct pool_conn *c);
const struct pool_tls_id *__wrap_pool_conn_peer_id(const struct pool_conn *c)
{
	(void)c;
	return t.asker;
}

int __real_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);
int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg);
int __wrap_pool_conn_send(struct pool_conn *c, uint16_t type, uint64_t req,
			  const ProtobufCMessage *msg)
{
	int err = __real_pool_conn_send(c, type, req, msg);

	if (pool_conn_memory(c) > t.most)
		t.most = pool_conn_memory(c);
	return err;
}

int __real_pool_conn_send_soon(struct pool_conn *c, uint16_t type,
			       uint64_t req, const ProtobufCMessage *msg);
int __wrap_pool_conn_send_soon(struct pool_conn *c, uint16_t type,
			       uint64_t req, const ProtobufCMessage *msg);
int __wrap_pool_conn_send_soon(struct pool_conn *c, uint16_t type,
			       uint64_t req, const ProtobufCMessage *msg)
{
	int err = __real_pool_conn_send_soon(c, type, req, msg);

	if (pool_conn_memory(c) > t.most)
		t.most = pool_conn_memory(c);
	return err;
}

int __wrap_pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			       const ProtobufCMessage *msg, int fd,
			       uint64_t offset, uint64_t len,
			       void (*done)(void *arg, int err), void *arg);
int __wrap_pool_conn_send_file(struct pool_conn *c, uint16_t type, uint64_t req,
			       const ProtobufCMessage *msg, int fd,
			       uint64_t offset, uint64_t len,
			       void (*done)(void *arg, int err), void *arg)
{
	(void)c;
	(void)type;
	(void)req;
	(void)msg;
	(void)fd;
	(void)offset;
	(void)len;
	if (t.unread) {
		assert_true(t.nkept < SESSION_ANSWERS_MAX + 1);
		t.kept[t.nkept].done = done;
		t.kept[t.nkept++].arg = arg;
		return 0;
	}
	t.not_sent++;
	return -ENOMEM;
}

static int on_get(void *arg, const char *path, size_t len, uint64_t gen,
		  uint64_t length, bool copy, uint64_t *ret_size,
		  bool *ret_lendable)
{
	t.ngets++;
	(void)length;
	(void)arg;
	(void)path;
	(void)len;
	(void)gen;
	(void)copy;
	(void)ret_lendable;
	if (!t.has_file)
		return -ENOENT;
	*ret_size = 1000;
	return memfd_create("k", MFD_CLOEXEC);
}

static void on_doubt(void *arg, const char *path, size_t len, uint64_t gen)
{
	(void)arg;
	(void)path;
	(void)len;
	(void)gen;
	t.ndoubts++;
}

static const char *on_member(void *arg, const uint8_t id[POOL_ID_SIZE],
			     bool *ret_is_store)
{
	(void)arg;
	*ret_is_store = true;
	return memcmp(id, "member", 7) == 0 ? "10.0.0.1:7" : NULL;
}

static const struct pool_peers_ops ops = { .get = on_get, .doubt = on_doubt,
					   .member = on_member };

static int open_holder(unsigned int idle_ms)
{
	struct pool_peers_opts opts = {
		.loop = &t.loop,
		.id = "holder",
		.listen = { .host = "127.0.0.1" },
		.movers = 1,
		.ops = &ops,
		.sessions_addr_max = ADDR_MAX,
		.session_idle_ms = idle_ms,
		.session_unread_ms = UNREAD_MS,
	};

	alarm(TIME_LIMIT_S);
	memset(&t, 0, sizeof(t));
	if (uv_loop_init(&t.loop))
		return -1;
	t.open = true;
	return pool_peers_open(&opts, &t.holder);
}

static int setup(void **state)
{
	(void)state;
	return open_holder(IDLE_MS);
}

/* No session is idle while the machine is busy. */
static int setup_patient(void **state)
{
	(void)state;
	return open_holder(TIME_LIMIT_S * 1000);
}

static void on_closed(void *arg)
{
	*(bool *)arg = false;
}

static int teardown(void **state)
{
	(void)state;
	pool_peers_close(t.holder, on_closed, &t.open);
	uv_run(&t.loop, UV_RUN_DEFAULT);
	assert_false(t.open);
	return uv_loop_close(&t.loop);
}

/* Dials from 127.0.0.FROM. */
static int dial(uint8_t from)
{
	struct sockaddr_in in = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(0x7f000000u + from);
	assert_int_equal(bind(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = htons(pool_peers_port(t.holder));
	assert_int_equal(connect(fd, (struct sockaddr *)&in, sizeof(in)), 0);
	return fd;
}

/* Waits for input. > 0: bytes received; 0 or -errno: the connection ended. */
static ssize_t wait_for_word(int fd)
{
	uint64_t end = pool_now_ms() + 15000;
	uint8_t buf[256];
	ssize_t n;

	do {
		if (pool_now_ms() > end)
			fail_msg(
				"a connection was neither answered nor closed");
		uv_run(&t.loop, UV_RUN_NOWAIT);
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	} while (n < 0 && errno == EAGAIN);
	return n < 0 ? -errno : n;
}

static ssize_t greet(int fd, const char *name, uint32_t lane)
{
	Kvpool__Hello hello = KVPOOL__HELLO__INIT;
	uint8_t buf[256], id[POOL_ID_SIZE] = { 0 };
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_HELLO };

	memcpy(id, name, strlen(name));
	hello.version = pool_wire_version;
	hello.id.data = id;
	hello.id.len = POOL_ID_SIZE;
	hello.lane = lane;
	f.payload_len = (uint32_t)kvpool__hello__get_packed_size(&hello);
	pool_frame_encode(&f, buf);
	kvpool__hello__pack(&hello, buf + POOL_WIRE_HEADER);
	(void)send(fd, buf, POOL_WIRE_HEADER + f.payload_len, MSG_NOSIGNAL);
	return wait_for_word(fd);
}

static void an_address_has_only_so_many_connections(void **state)
{
	int fd[ADDR_MAX + 1], other;

	(void)state;
	for (int i = 0; i < ADDR_MAX; i++) {
		fd[i] = dial(1);
		assert_true(greet(fd[i], "crowd", 0) > 0);
	}
	fd[ADDR_MAX] = dial(1);
	assert_true(greet(fd[ADDR_MAX], "crowd", 0) <= 0);
	assert_int_equal(t.holder->metrics.sessions_refused.v, 1);
	/* Peers at other addresses are not affected. */
	other = dial(2);
	assert_true(greet(other, "other", 0) > 0);
	for (int i = 0; i <= ADDR_MAX; i++)
		close(fd[i]);
	close(other);
}

static void idle_peers_are_disconnected(void **state)
{
	int fd = dial(1), again;

	(void)state;
	assert_true(greet(fd, "idle", 0) > 0);
	assert_true(wait_for_word(fd) <= 0);
	assert_int_equal(t.holder->metrics.sessions_idle.v, 1);
	again = dial(1);
	assert_true(greet(again, "idle", 0) > 0);
	close(fd);
	close(again);
}

/* Returns the length of a GET. */
static size_t request(uint8_t buf[256])
{
	Kvpool__Get get = KVPOOL__GET__INIT;
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_GET };

	get.path.data = (uint8_t *)(uintptr_t)"k";
	get.path.len = 1;
	get.gen = 1;
	get.length = 1000;
	f.payload_len = (uint32_t)kvpool__get__get_packed_size(&get);
	pool_frame_encode(&f, buf);
	kvpool__get__pack(&get, buf + POOL_WIRE_HEADER);
	return POOL_WIRE_HEADER + f.payload_len;
}

static void ask(int fd)
{
	uint8_t buf[256];
	size_t len = request(buf);

	(void)send(fd, buf, len, MSG_NOSIGNAL);
}

static void doubt(int fd)
{
	Kvpool__Key key = KVPOOL__KEY__INIT;
	uint8_t buf[256];
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_DOUBT };

	key.path.data = (uint8_t *)(uintptr_t)"k";
	key.path.len = 1;
	key.gen = 1;
	f.payload_len = (uint32_t)kvpool__key__get_packed_size(&key);
	pool_frame_encode(&f, buf);
	kvpool__key__pack(&key, buf + POOL_WIRE_HEADER);
	(void)send(fd, buf, POOL_WIRE_HEADER + f.payload_len, MSG_NOSIGNAL);
}

static void what_could_not_be_sent_is_no_answer_any_more(void **state)
{
	int fd = dial(1);

	(void)state;
	t.has_file = true;
	assert_true(greet(fd, "asker", 0) > 0);
	for (unsigned int i = 1; i <= 10; i++) {
		ask(fd);
		assert_true(wait_for_word(fd) > 0); /* ERROR */
		assert_int_equal(i, t.not_sent);
	}
	assert_int_equal(0, t.holder->nanswers);
	close(fd);
}

/* A peer that requests and does not read has a bounded number of answers, each
 * with a descriptor; other peers are answered. */
static void unread_answers_are_bounded(void **state)
{
	const unsigned int more = 7;
	int fd = dial(1), other = dial(2);

	(void)state;
	t.has_file = t.unread = true;
	assert_true(greet(fd, "deaf", 0) > 0);
	assert_true(greet(other, "other", 0) > 0);
	for (unsigned int i = 0; i < SESSION_ANSWERS_MAX + more; i++)
		ask(fd);
	unit_run_until(&t.loop, t.holder->metrics.answers_refused.v == more);
	assert_int_equal(SESSION_ANSWERS_MAX, t.holder->nanswers);
	ask(other);
	unit_run_until(&t.loop, t.nkept == SESSION_ANSWERS_MAX + 1);
	for (unsigned int i = 0; i < t.nkept; i++)
		t.kept[i].done(t.kept[i].arg, -ECANCELED);
	assert_int_equal(0, t.holder->nanswers);
	close(fd);
	close(other);
}

/* Requests as many as fd takes now. *at: how much of one it has. */
static void ask_all(int fd, size_t *at)
{
	uint8_t buf[256];
	size_t len = request(buf);
	ssize_t n;

	while ((n = send(fd, buf + *at, len - *at,
			 MSG_NOSIGNAL | MSG_DONTWAIT)) > 0)
		*at = (*at + (size_t)n) % len;
}

/* A peer whose requests fail, and who does not read that: a bounded number of
 * bytes is queued for it, then no requests are read, and it is disconnected. */
static void who_reads_no_errors_is_disconnected(void **state)
{
	int fd = dial(1), other;
	size_t at = 0;

	(void)state;
	assert_true(greet(fd, "deaf", 0) > 0);
	while (t.holder->nsessions == 1 &&
	       t.holder->metrics.sessions_unread.v == 0) {
		ask_all(fd, &at);
		uv_run(&t.loop, UV_RUN_NOWAIT);
		assert_true(t.most <= SESSION_UNREAD_PAUSE * 4 / 3);
	}
	assert_true(t.most > SESSION_UNREAD_PAUSE);
	assert_int_equal(1, t.holder->metrics.sessions_unread.v);
	unit_run_until(&t.loop, t.holder->nsessions == 0);
	other = dial(2);
	assert_true(greet(other, "other", 0) > 0);
	ask(other);
	assert_true(wait_for_word(other) > 0);
	close(fd);
	close(other);
}

/* However many peers send requests, a turn of the loop handles a bounded number
 * of them. */
static void all_requests_share_a_turn(void **state)
{
	const unsigned int each = 400, most =
		(REQUESTS_TURN + POOL_CONN_SHARE_SLICE) / POOL_WIRE_HEADER;
	unsigned int before = 0, i, k;
	int fd[16];

	(void)state;
	for (i = 0; i < 16; i++) {
		fd[i] = dial((uint8_t)(i + 1));
		assert_true(greet(fd[i], "asker", 0) > 0);
	}
	for (i = 0; i < 16; i++)
		for (k = 0; k < each; k++)
			ask(fd[i]);
	assert_true(16 * each > 2 * most);
	while (t.ngets < 16 * each) {
		uv_run(&t.loop, UV_RUN_NOWAIT);
		assert_true(t.ngets - before <= most);
		before = t.ngets;
	}
	for (i = 0; i < 16; i++)
		close(fd[i]);
}

static void a_client_asks_about_its_namespaces_only(void **state)
{
	struct pool_tls_id client = { .role = POOL_ROLE_CLIENT, .ndirs = 1,
				      .dirs = { "other" } };
	int fd = dial(1);

	(void)state;
	assert_true(greet(fd, "asker", 0) > 0);
	t.asker = &client;
	doubt(fd);
	ask(fd);
	assert_true(wait_for_word(fd) > 0);
	assert_int_equal(0, t.ngets);
	assert_int_equal(0, t.ndoubts);
	assert_int_equal(2, t.holder->metrics.answers_denied.v);
	client.role = POOL_ROLE_NODE; /* it may keep copies */
	doubt(fd);
	ask(fd);
	assert_true(wait_for_word(fd) > 0);
	assert_int_equal(1, t.ngets);
	assert_int_equal(1, t.ndoubts);
	close(fd);
}

static bool is_open(int fd)
{
	char byte;

	return recv(fd, &byte, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

static void anothers_id_does_not_close_its_lanes(void **state)
{
	int victim = dial(1), thief, own;

	(void)state;
	assert_true(greet(victim, "victim", 1) > 0);
	thief = dial(2);
	assert_true(greet(thief, "victim", 1) > 0);
	assert_true(is_open(victim));
	/* A peer may replace its connection from its own address: it has
	 * dialled again. */
	own = dial(1);
	assert_true(greet(own, "victim", 1) > 0);
	assert_true(wait_for_word(victim) <= 0);
	assert_true(is_open(thief));
	close(victim);
	close(thief);
	close(own);
}

static void nor_does_another_certificate(void **state)
{
	struct pool_tls_id a = { .role = POOL_ROLE_CLIENT, .ndirs = 1,
				 .dirs = { "a" } };
	struct pool_tls_id b = { .role = POOL_ROLE_CLIENT, .ndirs = 1,
				 .dirs = { "b" } };
	int victim = dial(1), thief = dial(1);

	(void)state;
	t.asker = &a;
	assert_true(greet(victim, "victim", 1) > 0);
	t.asker = &b;
	assert_true(greet(thief, "victim", 1) > 0);
	assert_true(is_open(victim));
	close(victim);
	close(thief);
}

/* The peers of this test have no certificate with hosts. */
static void the_id_of_a_member_elsewhere_is_refused(void **state)
{
	struct pool_tls_id peer = { .role = POOL_ROLE_NODE };
	int fd[4];

	(void)state;
	for (int i = 0; i < 4; i++)
		fd[i] = dial(1);
	t.asker = &peer;
	assert_true(greet(fd[0], "member", 0) <= 0);
	assert_true(greet(fd[1], "unknown", 0) > 0);
	peer.role = POOL_ROLE_CLIENT;
	assert_true(greet(fd[2], "member", 1) <= 0);
	t.asker = NULL;
	assert_true(greet(fd[3], "member", 0) > 0);
	assert_int_equal(2, t.holder->metrics.ids_refused.v);
	for (int i = 0; i < 4; i++)
		close(fd[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_address_has_only_so_many_connections),
		T(idle_peers_are_disconnected),
		T(anothers_id_does_not_close_its_lanes),
		T(nor_does_another_certificate),
		T(the_id_of_a_member_elsewhere_is_refused),
		T(what_could_not_be_sent_is_no_answer_any_more),
		T(unread_answers_are_bounded),
		cmocka_unit_test_setup_teardown(
			who_reads_no_errors_is_disconnected, setup_patient,
			teardown),
		T(all_requests_share_a_turn),
		T(a_client_asks_about_its_namespaces_only),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
