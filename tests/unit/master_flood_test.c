/*
 * A master that receives more than it can handle at once. A node whose messages
 * wait is not taken for dead, and keeps receiving heartbeats. A node with many
 * changes waits for the mounts to ack, and other nodes do not wait for it.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <sys/socket.h>

#define NNODES 3
#define LONG_MS (5 * HEARTBEAT_MS) /* longer than the grace */
#include "master_fake_pool.h"
#include "master/impl.h"

/* Joins and sends heartbeats; the inventory is not complete. */
static void join(struct fake_node *n)
{
	fake_dial(n, &loop, master_port(master));
	fake_send_join(n);
	run_until(&loop, n->welcomed);
}

static void a_node_that_waits_still_gets_heartbeats(void **state)
{
	(void)state;
	/* As if the master had not read the node's messages yet. */
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
	/* When the peer really is silent, it is disconnected. */
	run_until(&loop, hung_up(fd));
	close(fd);
}

/* ---- quanta ---- */

#define FLOOD 8 /* messages of POOL_BATCH_MAX changes */
#define PARTS (POOL_BATCH_MAX / POOL_OPS_QUANTUM) /* of each */
#define MS 1000000ull
#define LONGEST_NS (MASTER_OPS_QUANTUM_MS * MS)

static uint64_t clock_ns;

static uint64_t clock_now(void)
{
	return clock_ns;
}

static void clock_random(void *buf, size_t n)
{
	memset(buf, 7, n);
}

static const struct pool_clock stopped_clock = { .now_ns = clock_now,
						 .wall_ns = clock_now,
						 .random = clock_random };

/* Gives the master time to do what it must not do. */
static void many_turns(void)
{
	int i;

	for (i = 0; i < 20; i++) {
		uv_run(&loop, UV_RUN_NOWAIT);
		usleep(1000);
	}
}

/* Parts of messages that were executed. */
static uint64_t flood_done(void)
{
	uint64_t n = pool_counter_value(&master->stats.c[MC_PUBLISH]) +
		     pool_counter_value(&master->stats.c[MC_UNLINK]);

	assert_int_equal(0, n % POOL_OPS_QUANTUM);
	return n / POOL_OPS_QUANTUM;
}

/* Publishes files, or unlinks them: those numbered from `first`. */
static void send_some(struct fake_node *n, Kvpool__Op__Kind kind,
		      unsigned int first, unsigned int count)
{
	static Kvpool__Op op[POOL_BATCH_MAX], *list[POOL_BATCH_MAX];
	static Kvpool__Meta meta[POOL_BATCH_MAX];
	static char path[POOL_BATCH_MAX][16];
	Kvpool__Ops ops = KVPOOL__OPS__INIT;
	unsigned int i;

	for (i = 0; i < count; i++) {
		snprintf(path[i], sizeof(path[i]), "file.%u",
			 first + i);
		fake_meta(&meta[i], path[i], 0);
		kvpool__op__init(&op[i]);
		op[i].kind = kind;
		op[i].meta = &meta[i];
		list[i] = &op[i];
	}
	ops.ops = list;
	ops.n_ops = count;
	assert_int_equal(0,
			 pool_conn_send(n->conn, POOL_MSG_OPS, 1, &ops.base));
}

static void send_changes(struct fake_node *n, Kvpool__Op__Kind kind)
{
	send_some(n, kind, 0, POOL_BATCH_MAX);
}

/* Node 0 sends more changes than one quantum has. Node 1 is a mount that acks
 * only in ack_feed. Time stands still. */
static void flood(void)
{
	int i;

	for (i = 0; i < NNODES; i++) {
		join(&node[i]);
		node[i].is_store = false;
		fake_inventory(&node[i], NULL, 0, true);
	}
	run_until(&loop, master_ready(master));
	fake_subscribe(&node[1], 0, 0);
	run_until(&loop, node[1].completes != 0);
	run_until(&loop, master_feed_has(&master->map.feed) ==
				 master->map.feed.seq);
	node[1].no_ack = node[1].count_only = true;
	clock_ns = pool_now_ns();
	pool_clock_set(&stopped_clock);
	for (i = 0; i < FLOOD; i++)
		send_changes(&node[0], i % 2 ? KVPOOL__OP__KIND__UNLINK :
					       KVPOOL__OP__KIND__PUBLISH);
	run_until(&loop, pool_counter_value(&master->stats.c[MC_OPS_TURNS]) +
				 flood_done() >= FLOOD);
}

/* Node 1 acks all changes made so far, and none of those that follow. */
static void ack_feed(void)
{
	uint64_t seq = master->map.feed.seq;

	run_until(&loop, node[1].upto >= seq);
	assert_int_equal(seq, node[1].upto);
	fake_ack(&node[1]);
	run_until(&loop, master_feed_has(&master->map.feed) >= seq);
}

static void changes_of_others_pass_a_flood(void **state)
{
	uint64_t quantum;

	(void)state;
	flood();
	for (quantum = 1; quantum < FLOOD * PARTS; quantum++) {
		many_turns();
		assert_int_equal(quantum, flood_done());
		assert_int_equal(0, fake_do(&node[2], KVPOOL__OP__KIND__MKDIR,
					    "other"));
		assert_int_equal(quantum, flood_done());
		ack_feed();
		run_until(&loop, flood_done() != quantum);
	}
	assert_int_equal(FLOOD * PARTS, flood_done());
	assert_false(node[0].closed);
}

/* After its quantum, the node waits for as long as the acks took. */
static void a_flood_leaves_time_to_others(void **state)
{
	(void)state;
	flood();
	clock_ns += MS;
	ack_feed();
	many_turns();
	clock_ns += MS - MS / 2;
	many_turns();
	assert_int_equal(1, flood_done());
	clock_ns += MS / 2;
	run_until(&loop, flood_done() == 2);
}

static void a_mount_that_does_not_ack_stops_nobodys_changes(void **state)
{
	(void)state;
	flood();
	clock_ns += LONGEST_NS - MS;
	many_turns();
	assert_int_equal(1, flood_done());
	clock_ns += MS;
	run_until(&loop, flood_done() == 2);
}

/* The sender is a mount, too: the feed shows it no change before its result. */
static void a_message_in_parts_is_answered_once(void **state)
{
	unsigned int i;

	(void)state;
	join(&node[0]);
	fake_inventory(&node[0], NULL, 0, true);
	run_until(&loop, master_ready(master));
	fake_subscribe(&node[0], 0, 0);
	run_until(&loop, node[0].completes != 0);
	node[0].count_only = true;
	node[0].ops_done = node[0].feed_before_done = false;
	send_changes(&node[0], KVPOOL__OP__KIND__PUBLISH);
	run_until(&loop, node[0].ops_done);
	assert_int_equal(PARTS, flood_done());
	assert_false(node[0].feed_before_done);
	assert_int_equal(POOL_BATCH_MAX, node[0].nresults);
	for (i = 0; i < POOL_BATCH_MAX; i++) {
		assert_int_equal(0, node[0].status[i]);
		assert_true(!i || node[0].gen[i] > node[0].gen[i - 1]);
	}
	run_until(&loop, node[0].nfeed_entries >= POOL_BATCH_MAX);
}

/* The sender is a mount of which always a part of a message was executed. It
 * must receive the feed nevertheless: others' fsyncs wait for its acks. */
static void a_flood_of_parts_does_not_hold_back_the_feed(void **state)
{
	unsigned int sent = 0;
	bool asked = false;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		join(&node[i]);
		fake_inventory(&node[i], NULL, 0, true);
	}
	run_until(&loop, master_ready(master));
	for (i = 0; i < 2; i++) {
		fake_subscribe(&node[i], 0, 0);
		run_until(&loop, node[i].completes != 0);
		node[i].count_only = true;
	}
	node[0].ndone = 0;
	while (!node[1].nsynced && sent < 40) {
		for (; sent < node[0].ndone + 4; sent++)
			send_some(&node[0], KVPOOL__OP__KIND__PUBLISH,
				  sent * POOL_BATCH_MAX, POOL_OPS_QUANTUM + 1);
		uv_run(&loop, UV_RUN_ONCE);
		if (node[0].ndone < 2 || asked)
			continue;
		asked = true;
		fake_sync(&node[1], 0, 5);
	}
	assert_int_equal(1, node[1].nsynced);
	run_until(&loop, node[0].ndone == sent);
	assert_false(node[0].closed);
}

/* More messages than a node may have waiting. */
static void changes_beyond_the_bound_end_the_session(void **state)
{
	unsigned int i;

	(void)state;
	flood();
	for (i = 0; i < MASTER_DEFERRED_MAX; i++)
		send_changes(&node[0], KVPOOL__OP__KIND__PUBLISH);
	run_until(&loop, node[0].closed);
	assert_int_equal(-ENOBUFS, node[0].error);
	assert_int_equal(1, flood_done());
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		T(a_node_that_waits_still_gets_heartbeats),
		T(inventories_under_way_are_waited_for),
		T(a_message_that_takes_long_to_come_is_a_sign_of_life),
		T(changes_of_others_pass_a_flood),
		T(a_flood_leaves_time_to_others),
		T(a_mount_that_does_not_ack_stops_nobodys_changes),
		T(a_message_in_parts_is_answered_once),
		T(a_flood_of_parts_does_not_hold_back_the_feed),
		T(changes_beyond_the_bound_end_the_session),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
