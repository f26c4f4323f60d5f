/*
 * A master that has more to hear than it can take at once: who waits for his
 * turn is not dead, and is not let believe that the master is.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#define NNODES 2
#define LONG_MS (5 * HEARTBEAT_MS) /* longer than the grace */
#include "master_fake_pool.h"

/* It beats, but its inventory is not complete. */
static void join(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed);
}

static void a_node_that_waits_for_its_turn_hears_from_the_master(void **state)
{
	(void)state;
	/* As if what it sends were not read yet. */
	node[0].silent = true;
	join(&node[0]);
	run_until(&loop, node[0].heartbeats || node[0].closed);
	assert_false(node[0].closed);
}

static void inventories_under_way_are_waited_for(void **state)
{
	(void)state;
	join(&node[0]);
	fake_inventory(&node[0], NULL, 0, true);
	run_until(&loop, master_ready(master));
	stop_master();
	run_until(&loop, node[0].closed);
	start_master();
	join(&node[0]);
	run_ms(&loop, LONG_MS);
	assert_false(node[0].closed);
	assert_false(master_ready(master));
	fake_inventory(&node[0], NULL, 0, true);
	run_until(&loop, master_ready(master));
}

/* ---- bytes by hand ---- */

static int dial_raw(void)
{
	struct sockaddr_in sa = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	sa.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	sa.sin_port = htons(master_port(master));
	assert_true(fd >= 0);
	assert_int_equal(0, connect(fd, (struct sockaddr *)&sa, sizeof(sa)));
	return fd;
}

static void send_raw_join(int fd)
{
	uint8_t bytes[512];
	Kvpool__Join join = KVPOOL__JOIN__INIT;
	Kvpool__NodeInfo info;
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_JOIN };
	size_t len;

	fake_info(&node[0], &info);
	join.version = POOL_WIRE_VERSION;
	join.node = &info;
	len = kvpool__join__pack(&join, bytes + POOL_WIRE_HEADER);
	f.payload_len = (uint32_t)len;
	pool_frame_encode(&f, bytes);
	len += POOL_WIRE_HEADER;
	assert_int_equal(len, write(fd, bytes, len));
}

static bool hung_up(int fd)
{
	char buf[4096];
	ssize_t n;

	do
		n = recv(fd, buf, sizeof(buf), MSG_DONTWAIT);
	while (n > 0);
	return n == 0 || errno != EAGAIN;
}

static void a_message_that_takes_long_to_come_is_a_sign_of_life(void **state)
{
	uint8_t header[POOL_WIRE_HEADER];
	struct pool_frame f = { .version = POOL_WIRE_VERSION,
				.type = POOL_MSG_INVENTORY,
				.payload_len = 1 << 20 };
	uint64_t end;
	int fd = dial_raw();

	(void)state;
	send_raw_join(fd);
	pool_frame_encode(&f, header);
	assert_int_equal(sizeof(header), write(fd, header, sizeof(header)));
	end = pool_now_ms() + LONG_MS;
	while (pool_now_ms() < end) {
		assert_int_equal(1, write(fd, "", 1));
		run_ms(&loop, HEARTBEAT_MS / 5);
		assert_false(hung_up(fd));
	}
	/* And its end is one of death. */
	run_until(&loop, hung_up(fd));
	close(fd);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_node_that_waits_for_its_turn_hears_from_the_master),
		T(inventories_under_way_are_waited_for),
		T(a_message_that_takes_long_to_come_is_a_sign_of_life),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
