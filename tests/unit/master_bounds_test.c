/*
 * A master and a client on a plain socket that sends more than a node would:
 * what is refused, the ERROR that the client gets, and the memory used.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define NNODES 1
#include "master_fake_pool.h"
#include "pool/conn/unpack.h"

#define MIB ((size_t)1 << 20)
#define MEMORY_KB (32u << 10) /* most that one message may use */

static int sock;
static char text[256]; /* text of the last ERROR received */
static int32_t status;

/* The test has one thread: runs the master's loop while sending. */
static void send_bytes(const void *data, size_t len)
{
	while (len > 0) {
		ssize_t r = send(sock, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

		uv_run(&loop, UV_RUN_NOWAIT);
		if (r < 0 && errno == EAGAIN)
			continue;
		if (r < 0) /* the master has closed the connection */
			return;
		data = (const char *)data + r;
		len -= (size_t)r;
	}
}

static void say_frame(uint16_t type, const void *payload, size_t len)
{
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = type,
				.payload_len = (uint32_t)len };
	uint8_t header[POOL_WIRE_HEADER];

	pool_frame_encode(&f, header);
	send_bytes(header, sizeof(header));
	send_bytes(payload, len);
}

static void dial_raw(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(master_port(master));
	sock = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	assert_true(sock >= 0);
	assert_int_equal(0, connect(sock, (void *)&sa, sizeof(sa)));
	assert_int_equal(0, fcntl(sock, F_SETFL, O_NONBLOCK));
}

/* Receives len bytes. false: the master has ended the connection. */
static bool receive(void *data, size_t len)
{
	while (len > 0) {
		ssize_t r = recv(sock, data, len, MSG_DONTWAIT);

		if (r == 0 || (r < 0 && errno != EAGAIN))
			return false;
		if (r > 0) {
			data = (char *)data + r;
			len -= (size_t)r;
		}
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	return true;
}

/* Receives frames up to one of this type, which must arrive. */
static void receive_frame(uint16_t type)
{
	uint8_t header[POOL_WIRE_HEADER], payload[4096];
	Kvpool__Error *e;
	struct pool_frame f;

	do {
		assert_true(receive(header, sizeof(header)));
		assert_int_equal(0, pool_frame_decode(header, &f));
		assert_true(f.payload_len <= sizeof(payload));
		assert_true(receive(payload, f.payload_len));
	} while (f.type != type);
	if (type != POOL_MSG_ERROR)
		return;
	e = kvpool__error__unpack(NULL, f.payload_len, payload);
	assert_non_null(e);
	status = e->status;
	snprintf(text, sizeof(text), "%s", e->text);
	kvpool__error__free_unpacked(e, NULL);
}

static void join_raw(void)
{
	Kvpool__Join join = KVPOOL__JOIN__INIT;
	uint8_t payload[1024];
	Kvpool__NodeInfo info;

	fake_info(&node[0], &info);
	join.version = POOL_WIRE_VERSION;
	join.node = &info;
	dial_raw();
	say_frame(POOL_MSG_JOIN, payload, kvpool__join__pack(&join, payload));
	receive_frame(POOL_MSG_WELCOME);
}

static void hang_up(void)
{
	char byte;

	shutdown(sock, SHUT_WR);
	while (receive(&byte, 1))
		;
	close(sock);
}

/* len bytes that repeat `what`. */
static void *many(const void *what, size_t size, size_t len)
{
	uint8_t *p = malloc(len);

	assert_non_null(p);
	for (size_t i = 0; i < len; i++)
		p[i] = ((const uint8_t *)what)[i % size];
	return p;
}

static uint64_t bad_messages(void)
{
	static const char name[] = "\nkvpool_master_bad_messages_total ";
	char *page, *p;
	uint64_t v;
	size_t len;

	assert_int_equal(0, pool_metrics_print(metrics, &page, &len));
	p = strstr(page, name);
	assert_non_null(p);
	v = strtoull(p + strlen(name), NULL, 10);
	free(page);
	return v;
}

static unsigned int memory_kb(const char *name)
{
	FILE *f = fopen("/proc/self/status", "r");
	unsigned int kb = 0;
	char line[128];

	assert_non_null(f);
	while (!kb && fgets(line, sizeof(line), f))
		if (strncmp(line, name, strlen(name)) == 0)
			kb = (unsigned int)strtoul(line + strlen(name), NULL,
						   10);
	fclose(f);
	assert_true(kb > 0);
	return kb;
}

static void peak_reset(void)
{
	FILE *f = fopen("/proc/self/clear_refs", "w");

	assert_non_null(f);
	assert_true(fputs("5", f) >= 0);
	assert_int_equal(0, fclose(f));
}

/* The message is refused, and the master has used little memory for it. */
static void refused(uint16_t type, const void *what, size_t size, size_t len,
		    int32_t err, const char *why)
{
	uint64_t before = bad_messages();
	void *payload = many(what, size, len);
	unsigned int kb;

	peak_reset();
	kb = memory_kb("VmRSS:");
	say_frame(type, payload, len);
	receive_frame(POOL_MSG_ERROR);
	assert_in_range(memory_kb("VmHWM:"), 0, kb + MEMORY_KB);
	assert_string_equal(why, text);
	assert_int_equal(err, status);
	assert_int_equal(before + 1, bad_messages());
	free(payload);
	hang_up();
}

static void an_inventory_of_empty_entries_is_refused(void **state)
{
	(void)state;
	join_raw();
	refused(POOL_MSG_INVENTORY, "\x0a\x00", 2, 1 * MIB, -EPROTO,
		"INVENTORY has 1025 entries or more: at most 1024 are "
		"accepted");
	join_raw();
	refused(POOL_MSG_INVENTORY, "\x0a\x00", 2, 4 * MIB, -EMSGSIZE,
		"INVENTORY has a payload of 4194304 bytes: at most 1048576 are "
		"accepted");
}

static void a_change_of_empty_xattrs_is_refused(void **state)
{
	static const uint8_t evict[] = { 0x0a, 2, 0x52, 0 };

	(void)state;
	join_raw();
	refused(POOL_MSG_EVICT, evict, sizeof(evict), 4 * MIB, -EPROTO,
		"EVICT has 1025 entries or more: at most 1024 are accepted");
}

static void a_beat_of_fields_that_nobody_knows_is_refused(void **state)
{
	(void)state;
	join_raw();
	refused(POOL_MSG_HEARTBEAT, "\x50\x00", 2, 1 * MIB, -EPROTO,
		"HEARTBEAT has 1025 nested, unknown or duplicate fields or "
		"more: at most 1024 are accepted");
}

static void a_join_of_fields_that_nobody_knows_is_refused(void **state)
{
	(void)state;
	dial_raw();
	refused(POOL_MSG_JOIN, "\x50\x00", 2, 4 * MIB, -EMSGSIZE,
		"JOIN has a payload of 4194304 bytes: at most 4096 are "
		"accepted");
	dial_raw();
	refused(POOL_MSG_JOIN, "\x50\x00", 2, 4096, -EPROTO,
		"JOIN has 17 nested, unknown or duplicate fields or more: "
		"at most 16 are accepted");
}

static void nothing_large_is_accepted_before_a_join(void **state)
{
	(void)state;
	dial_raw();
	refused(POOL_MSG_INVENTORY, "\x0a\x00", 2, 1 * MIB, -EPROTO,
		"JOIN must come first, not INVENTORY (1048576 bytes, 0 of "
		"bulk)");
}

static void a_peer_within_the_limits_is_served(void **state)
{
	(void)state;
	fake_dial(&node[0], &loop, master_port(master));
	fake_send_join(&node[0]);
	run_until(&loop, node[0].welcomed || node[0].closed);
	fake_inventory(&node[0], "k", 1ull << POOL_GEN_SEQ_BITS, true);
	run_until(&loop, master_ready(master) || node[0].closed);
	assert_false(node[0].closed);
	assert_int_equal(0, bad_messages());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(an_inventory_of_empty_entries_is_refused),
		T(a_change_of_empty_xattrs_is_refused),
		T(a_beat_of_fields_that_nobody_knows_is_refused),
		T(a_join_of_fields_that_nobody_knows_is_refused),
		T(nothing_large_is_accepted_before_a_join),
		T(a_peer_within_the_limits_is_served),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
