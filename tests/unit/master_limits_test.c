/*
 * Limits on what a peer can use of the master: connections from one address, an
 * id that another node has, messages that never end, memory, turns, subscribers
 * that do not read.
 */
#define NNODES 4
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#pragma GCC diagnostic ignored "-Wunused-function"
#include "master_fake_pool.h"

#define MIB (1u << 20)
#define SLICE POOL_CONN_SHARE_SLICE

static int fds[NNODES]; /* of the nodes' connections; borrowed */

static uint64_t metric(const char *name)
{
	char *text, *p, key[96];
	size_t len;
	uint64_t v;

	assert_int_equal(0, pool_metrics_print(metrics, &text, &len));
	snprintf(key, sizeof(key), "\n%s ", name);
	p = strstr(text, key);
	assert_non_null(p);
	v = strtoull(strchr(p + 1, ' '), NULL, 10);
	free(text);
	return v;
}

static void with_limits(unsigned int sessions_addr_max, uint64_t bytes_max)
{
	stop_master();
	opts.sessions_addr_max = sessions_addr_max;
	opts.sessions_bytes_max = bytes_max;
	start_master();
}

/* Dials from 127.0.0.FROM, and sends nothing yet. */
static void dial(int i, uint8_t from)
{
	struct pool_conn_opts o = { .ops = &fake_ops, .user = &node[i] };
	struct sockaddr_in in = { .sin_family = AF_INET };
	struct fake_node *n = &node[i];
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	in.sin_addr.s_addr = htonl(0x7f000000u + from);
	assert_int_equal(0, bind(fd, (struct sockaddr *)&in, sizeof(in)));
	in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	in.sin_port = htons(master_port(master));
	assert_int_equal(0, connect(fd, (struct sockaddr *)&in, sizeof(in)));
	n->loop = &loop;
	n->welcomed = n->closed = false;
	n->error = 0;
	assert_int_equal(0, fcntl(fd, F_SETFL, O_NONBLOCK));
	assert_int_equal(0, pool_conn_from_fd(&loop, fd, &o, &n->conn));
	fds[i] = fd;
	if (n->timer_open)
		return;
	uv_timer_init(&loop, &n->beat);
	n->beat.data = n;
	uv_timer_start(&n->beat, fake_beat, HEARTBEAT_MS / 3, HEARTBEAT_MS / 3);
	n->timer_open = true;
}

/* Is it let in? */
static bool joins(int i, uint8_t from)
{
	dial(i, from);
	fake_send_join(&node[i]);
	run_until(&loop, node[i].welcomed || node[i].closed);
	return node[i].welcomed;
}

/* Sends the first `have` bytes of a message of `len`. */
static void says_in_part(int i, enum pool_msg type, size_t len, size_t have)
{
	struct pool_frame f = { .version = pool_wire_version,
				.type = (uint16_t)type,
				.payload_len = (uint32_t)len };
	uint8_t header[POOL_WIRE_HEADER], *zeros = calloc(1, have);
	size_t sent = 0;

	pool_frame_encode(&f, header);
	assert_int_equal(sizeof(header),
			 send(fds[i], header, sizeof(header), MSG_NOSIGNAL));
	while (sent < have) {
		ssize_t n = send(fds[i], zeros + sent, have - sent,
				 MSG_NOSIGNAL);

		assert_true(n > 0 || errno == EAGAIN);
		sent += n > 0 ? (size_t)n : 0;
		uv_run(&loop, UV_RUN_NOWAIT);
	}
	free(zeros);
}

/* Sends a byte from time to time. */
static void trickles_until_closed(int i)
{
	for (int n = 0; n < 200 && !node[i].closed; n++) {
		run_ms(&loop, HEARTBEAT_MS / 3);
		if (!node[i].closed)
			(void)!send(fds[i], "", 1, MSG_NOSIGNAL);
	}
	assert_true(node[i].closed);
}

static void an_address_has_only_so_many_connections(void **state)
{
	(void)state;
	with_limits(2, 0);
	assert_true(joins(0, 1));
	assert_true(joins(1, 1));
	assert_false(joins(2, 1));
	assert_int_equal(1, metric("kvpool_master_sessions_refused_total"));
	assert_true(joins(3, 2));
	assert_false(node[0].closed || node[1].closed);
}

static void a_connection_that_ended_makes_room_for_another(void **state)
{
	(void)state;
	with_limits(2, 0);
	assert_true(joins(0, 1));
	assert_true(joins(1, 1));
	fake_fini(&node[0]);
	run_until(&loop, metric("kvpool_master_sessions") == 1);
	assert_true(joins(2, 1));
}

/* Those that left and may return count, too, until they are gone. */
static void an_address_has_only_so_many_nodes(void **state)
{
	(void)state;
	with_limits(2, 0);
	for (int i = 0; i < 3; i++) {
		assert_true(joins(i, 1));
		fake_hang_up(&node[i]);
		run_until(&loop, metric("kvpool_master_sessions") == 0);
	}
	assert_false(joins(3, 1));
	assert_int_equal(-ENOSPC, node[3].error);
	assert_int_equal(1, metric("kvpool_master_sessions_refused_total"));
	assert_true(joins(3, 2));
	fake_hang_up(&node[3]);
	node[3].id[0] ^= 0x80;
	run_until(&loop, joins(3, 1));
}

static void a_second_join_ends_the_session(void **state)
{
	(void)state;
	assert_true(joins(0, 1));
	fake_send_join(&node[0]);
	run_until(&loop, node[0].closed);
	assert_int_equal(1, metric("kvpool_master_bad_messages_total"));
}

static void nobody_ends_a_node_s_session_from_another_address(void **state)
{
	(void)state;
	assert_true(joins(0, 1));
	node[1].id[0] = node[0].id[0];
	assert_false(joins(1, 2));
	assert_int_equal(-EADDRINUSE, node[1].error);
	assert_false(node[0].closed);
	assert_int_equal(1, metric("kvpool_master_ids_refused_total"));
	/* From the node's own address it may: the node was restarted. */
	assert_true(joins(1, 1));
	run_until(&loop, node[0].closed);
}

static void a_node_that_moved_joins_when_the_one_before_is_gone(void **state)
{
	(void)state;
	assert_true(joins(0, 1));
	node[1].id[0] = node[0].id[0];
	fake_fini(&node[0]);
	run_until(&loop, metric("kvpool_master_sessions") == 0);
	assert_false(joins(1, 2));
	assert_int_equal(-EADDRINUSE, node[1].error);
	run_until(&loop, joins(1, 2));
	assert_int_equal(node[0].index, node[1].index);
}

static void an_endless_message_is_cut_off(void **state)
{
	(void)state;
	assert_true(joins(0, 1));
	node[0].silent = true;
	says_in_part(0, POOL_MSG_INVENTORY, MIB, 1);
	trickles_until_closed(0);
	assert_int_equal(1, metric("kvpool_master_sessions_cut_off_total"));
}

static void an_endless_join_is_cut_off(void **state)
{
	(void)state;
	dial(0, 1);
	says_in_part(0, POOL_MSG_JOIN, 1000, 0);
	trickles_until_closed(0);
}

static void the_address_that_costs_most_memory_pays_for_it(void **state)
{
	int i, left = 0;

	(void)state;
	with_limits(0, 2 * MIB);
	assert_true(joins(0, 1));
	for (i = 1; i < NNODES; i++)
		assert_true(joins(i, 2));
	says_in_part(0, POOL_MSG_INVENTORY, MIB, 64);
	for (i = 1; i < NNODES; i++)
		says_in_part(i, POOL_MSG_INVENTORY, MIB * 2 / 3, 64);
	run_until(&loop,
		  metric("kvpool_master_sessions_ended_for_memory_total") == 2);
	run_until(&loop, metric("kvpool_master_session_bytes") <= 2 * MIB);
	for (i = 1; i < NNODES; i++)
		left += !node[i].closed;
	assert_int_equal(1, left);
	assert_false(node[0].closed);
}

/* ---- turns, and answers that are not read ---- */

static size_t beat_of(int i, uint8_t buf[64])
{
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	struct pool_frame f = { .version = pool_wire_version,
				.type = POOL_MSG_HEARTBEAT };

	hb.epoch = node[i].epoch;
	f.payload_len = (uint32_t)kvpool__heartbeat__pack(
		&hb, buf + POOL_WIRE_HEADER);
	pool_frame_encode(&f, buf);
	return POOL_WIRE_HEADER + f.payload_len;
}

/* Sends as many as the socket takes, of `beats` which are n of len bytes. At
 * most 1 MiB; returns the bytes. */
static size_t send_beats(int fd, const uint8_t *beats, size_t n, size_t len)
{
	static size_t at; /* in beats: one may have been sent in part */
	size_t all = 0;
	ssize_t r;

	while (all < MIB &&
	       (r = send(fd, beats + at, n * len - at,
			 MSG_NOSIGNAL | MSG_DONTWAIT)) > 0) {
		at = (at + (size_t)r) % (n * len);
		all += (size_t)r;
	}
	return all;
}

#define BEATS 1000

static void a_flood_of_one_session_gets_a_slice_of_a_turn(void **state)
{
	static const char *const done =
		"kvpool_master_requests_total{type=\"heartbeat\"}";
	uint8_t *beats = malloc(BEATS * 64);
	uint64_t before, handled;
	size_t len = 0;

	(void)state;
	assert_true(joins(0, 1));
	node[0].silent = true;
	for (int i = 0; i < BEATS; i++)
		len = beat_of(0, beats + (size_t)i * len);
	assert_true(send_beats(fds[0], beats, BEATS, len) > 2 * SLICE);
	before = metric(done);
	uv_run(&loop, UV_RUN_NOWAIT);
	handled = metric(done) - before;
	assert_in_range(handled * len, 1, SLICE);
	free(beats);
}

static void who_reads_no_answers_is_cut_off(void **state)
{
	uint8_t *beats = malloc(BEATS * 64);
	size_t len = 0;
	int fd;

	(void)state;
	assert_true(joins(0, 1));
	fd = dup(fds[0]); /* nobody reads it */
	fake_hang_up(&node[0]);
	for (int i = 0; i < BEATS; i++)
		len = beat_of(0, beats + (size_t)i * len);
	while (metric("kvpool_master_sessions") == 1) {
		(void)send_beats(fd, beats, BEATS, len);
		assert_true(metric("kvpool_master_session_bytes") < 128 * MIB);
		for (int i = 0; i < 64; i++)
			uv_run(&loop, UV_RUN_NOWAIT);
	}
	assert_int_equal(1, metric("kvpool_master_sessions_cut_off_total"));
	close(fd);
	free(beats);
}

/* ---- subscribers ---- */

/* A frame with a small message, by hand. */
static void send_raw(int fd, enum pool_msg type, const ProtobufCMessage *msg)
{
	struct pool_frame f = { .version = pool_wire_version,
				.type = (uint16_t)type };
	uint8_t buf[64];

	f.payload_len = (uint32_t)protobuf_c_message_get_packed_size(msg);
	assert_true(POOL_WIRE_HEADER + f.payload_len <= sizeof(buf));
	pool_frame_encode(&f, buf);
	protobuf_c_message_pack(msg, buf + POOL_WIRE_HEADER);
	(void)!send(fd, buf, POOL_WIRE_HEADER + f.payload_len,
		    MSG_NOSIGNAL | MSG_DONTWAIT);
}

static void acks(int fd, uint64_t seq)
{
	Kvpool__FeedAck ack = KVPOOL__FEED_ACK__INIT;

	ack.seq = seq;
	send_raw(fd, POOL_MSG_FEED_ACK, &ack.base);
}

/* Node 0 subscribes and acks nothing, node 1 has a directory. */
static void a_deaf_mount_joins(void)
{
	assert_true(joins(0, 1));
	assert_true(joins(1, 2));
	for (int i = 0; i < 2; i++)
		fake_inventory(&node[i], NULL, 0, true);
	run_until(&loop, master_ready(master));
	node[0].no_ack = true;
	fake_subscribe(&node[0], 0, 0);
	assert_int_equal(0, fake_do(&node[1], KVPOOL__OP__KIND__MKDIR, "d"));
	run_until(&loop, fake_find(&node[0], "d"));
}

/* Until it is cut off, an fsync waits for it. */
static void cut_off_while_a_sync_waits(uint64_t false_ack)
{
	a_deaf_mount_joins();
	fake_sync(&node[1], 0, 1);
	for (int i = 0; i < 500 && !node[0].closed && !node[1].nsynced; i++) {
		if (false_ack)
			acks(fds[0], false_ack);
		run_ms(&loop, HEARTBEAT_MS / 10);
	}
	assert_int_equal(1, metric("kvpool_master_sessions_cut_off_total"));
	run_until(&loop, node[0].closed && node[1].nsynced);
}

static void a_subscriber_that_acks_nothing_is_cut_off(void **state)
{
	(void)state;
	cut_off_while_a_sync_waits(0);
}

static void nor_does_an_ack_of_what_was_not_sent_help(void **state)
{
	(void)state;
	cut_off_while_a_sync_waits(1ull << 50);
}

#define LARGE 60 /* directories, each with 4 KiB of attributes */

/* All directories change: a round of the feed. */
static void change_all(void)
{
	struct master_feed *feed = &master->map.feed;

	for (int i = 0; i < LARGE; i++)
		master_feed_touch(feed, pool_list_first(&feed->items,
							struct master_item,
							link));
	master_kick(master);
}

/* It guesses what to ack, and when. */
static void who_acks_and_never_reads_the_feed_is_cut_off(void **state)
{
	const uint64_t limit = 64 * MIB;
	Kvpool__Heartbeat hb = KVPOOL__HEARTBEAT__INIT;
	struct master_member *mb;
	char value[4000], name[16];
	uint64_t bytes = 0, most = 0;
	int fd;

	(void)state;
	memset(value, 'x', sizeof(value));
	value[sizeof(value) - 1] = '\0';
	a_deaf_mount_joins();
	for (int i = 0; i < LARGE; i++) {
		snprintf(name, sizeof(name), "d%d", i);
		assert_int_equal(0, fake_do(&node[1], KVPOOL__OP__KIND__MKDIR,
					    name));
		assert_int_equal(0, fake_rule(&node[1], name, "user.x", value));
	}
	mb = master->members.by_index[node[0].index];
	hb.epoch = node[0].epoch;
	fd = dup(fds[0]); /* nobody reads it */
	fake_hang_up(&node[0]);
	while (mb->session) {
		struct master_sub *sub = &mb->session->sub;

		send_raw(fd, POOL_MSG_HEARTBEAT, &hb.base);
		if (sub->nsent)
			acks(fd, sub->sent[sub->nsent - 1]);
		else
			change_all();
		uv_run(&loop, UV_RUN_NOWAIT);
		bytes = metric("kvpool_master_session_bytes");
		most = bytes > most ? bytes : most;
		assert_true(most <= limit);
	}
	assert_true(most > limit / 2);
	assert_int_equal(1, metric("kvpool_master_sessions_cut_off_total"));
	close(fd);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		T(an_address_has_only_so_many_connections),
		T(a_connection_that_ended_makes_room_for_another),
		T(an_address_has_only_so_many_nodes),
		T(a_second_join_ends_the_session),
		T(nobody_ends_a_node_s_session_from_another_address),
		T(a_node_that_moved_joins_when_the_one_before_is_gone),
		T(an_endless_message_is_cut_off),
		T(an_endless_join_is_cut_off),
		T(the_address_that_costs_most_memory_pays_for_it),
		T(a_flood_of_one_session_gets_a_slice_of_a_turn),
		T(who_reads_no_answers_is_cut_off),
		T(a_subscriber_that_acks_nothing_is_cut_off),
		T(nor_does_an_ack_of_what_was_not_sent_help),
		T(who_acks_and_never_reads_the_feed_is_cut_off),
	};

	return run_all_tests(tests, sizeof(tests) / sizeof(tests[0]));
}
